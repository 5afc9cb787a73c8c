// The table of faults.
#include "specimen/faults.h"

#include <string.h>

// clang-format off
const fault fault_table[FAULT_COUNT] = {
    {"early-drop", "The first projection is dropped before the join while the key branch still reads it.",
     "race-waw", "now"},
    {"late-fork", "A side stream reuses a result's block without having waited for the main stream, which still reads it.",
     "race-war", "now"},
    {"ordinary-pool", "A tensor is allocated in a side stream before that stream has joined the capture, and so outside "
     "the graph's pool; its owner drops it, and the next request's tensors take the block.",
     "stale-pointer", "the detector of lives of addresses"},
    {"shared-workspace", "A cached workspace is used in two streams at a time.",
     "race-waw", "now"},
    {"pool-reader", "A result in the graph's pool is read after another graph of the same pool has replayed.",
     "use-outside-life", "the detector of pairs between graphs"},
    {"weak-reference", "Breakable capture: an eager gap reads a tensor whose block was re-issued to a later segment.",
     "use-outside-life", "the detector of pairs between graphs"},
    {"live-table", "The scheduler rebuilds a page table while a replay still reads it: the event that says the replay "
     "has read it is recorded too early.", "race-war", "the detector of pairs between graphs"},
    {"late-transfer", "A transfer of pages without a stream writes pages that already belong to another request.",
     "canary", "canaries"},
    {"disposed-tensor", "A tensor's storage is taken away between two captured launches: the second one keeps a pointer "
     "to what is not its own.", "stale-pointer", "the detector of lives of addresses"},
    {"pad-store", "Padded rows keep the slots of an earlier step and store to them.",
     "pad-write", "padding"},
    {"wrong-slice", "The step's metadata is written to another slice of the buffer than the graph reads.",
     "stale-metadata", "poison"},
    {"staging-reuse", "A pinned staging buffer is filled again before the copy out of it has run.",
     "host-staging", "the detector of host staging"},
    {"baked-grid", "The grid of the logits kernel is baked at capture from the length at that time.",
     "baked-value", "the detector of baked values"},
    {"decoy-pad", "None: padded rows store to the reserved slot 0, several of them.", "-", "-"},
    {"decoy-programmatic", "None: programmatic edges whose later kernel waits before it touches anything.", "-", "-"},
    {"decoy-split-k", "None: two branches count into one counter by atomic operations.", "-", "-"},
};
// clang-format on

int fault_find(const char *name)
{
    for (int i = 0; i < FAULT_COUNT; i++)
        if (!strcmp(fault_table[i].name, name))
            return i;
    return -1;
}
