// The faults that can be switched on, in one table: what each does, what gravel should say of it, and what brings that
// detector. Decoys look like faults and are none: nothing may be reported of them.
#ifndef SPECIMEN_FAULTS_H
#define SPECIMEN_FAULTS_H

#include <stddef.h>

// Bits of engine_config.faults are 1 << index; FAULT(NAME) is the bit.
enum fault_index {
    FAULT_INDEX_EARLY_DROP,
    FAULT_INDEX_LATE_FORK,
    FAULT_INDEX_ORDINARY_POOL,
    FAULT_INDEX_SHARED_WORKSPACE,
    FAULT_INDEX_POOL_READER,
    FAULT_INDEX_WEAK_REFERENCE,
    FAULT_INDEX_LIVE_TABLE,
    FAULT_INDEX_LATE_TRANSFER,
    FAULT_INDEX_DISPOSED_TENSOR,
    FAULT_INDEX_PAD_STORE,
    FAULT_INDEX_WRONG_SLICE,
    FAULT_INDEX_STAGING_REUSE,
    FAULT_INDEX_BAKED_GRID,
    FAULT_INDEX_DECOY_PAD,
    FAULT_INDEX_DECOY_TABLE,
    FAULT_INDEX_DECOY_PROGRAMMATIC,
    FAULT_INDEX_DECOY_SPLIT_K,
    FAULT_COUNT,
};
#define FAULT(name) (UINT32_C(1) << FAULT_INDEX_##name)

typedef struct fault {
    const char *name;    // as --fault takes it
    const char *what;    // one sentence
    const char *finding; // the id that gravel should report; "-" for decoys
    const char *since;   // "now", or what its detector comes with
} fault;

// FAULT_COUNT rows, in the order of enum fault_index.
extern const fault fault_table[FAULT_COUNT];

// The index of a name, or -1.
int fault_find(const char *name);

#endif
