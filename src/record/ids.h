// Ids of driver objects. The driver re-uses handles; the trace's ids are never re-used. An object is given its id, and
// its record is written, when it is first met.
#ifndef GV_RECORD_IDS_H
#define GV_RECORD_IDS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

// For a forked child: drops the tables without locking or freeing them.
void gv_ids_forget(void);

// The id of a context; 0 for NULL.
uint64_t gv_context_id(CUcontext context);

// The id of a stream as an API call names it: NULL and CU_STREAM_LEGACY mean the legacy default stream of the current
// context, or, for a per-thread variant of the call, NULL means the thread's own default stream.
uint64_t gv_stream_id(CUstream stream, bool per_thread);
// A context may have ended: forgets those that have, and the streams that went with them. Their handles may be given
// again, and a stream that is none any more would never count as idle.
void gv_contexts_ended(void);

// Reads what the streams are that were first met in a capture, and could not be asked there. After a capture's end.
void gv_describe_streams(void);

void gv_stream_created(CUstream stream);
void gv_stream_destroyed(CUstream stream);

// Calls `visit` with the handle of every created stream of `context` that has not been destroyed, until it answers
// false. Answers whether all were visited. Runs under a lock: `visit` may call the driver, but no id function.
bool gv_streams_of(CUcontext context, bool (*visit)(CUstream stream, void *user), void *user);

uint64_t gv_event_id(CUevent event);
void gv_event_destroyed(CUevent event);

// `function` may be a CUkernel, as launch calls allow.
uint64_t gv_function_id(CUfunction function);

// A module or library was unloaded: function handles may be used again for others.
void gv_functions_unloaded(void);

// The next graph (snapshot) or exec id.
uint64_t gv_next_graph_id(void);
uint64_t gv_next_exec_id(void);

// ---- Allocations ----
// A new life of [address, address + size): writes the ALLOC operation and the allocation record. `name` may be NULL.
void gv_allocated(uint64_t address, uint64_t size, unsigned kind, uint64_t stream, const char *name);

// A life that is about to end. Freeing takes three steps: the driver may refuse it, and may give the address to another
// thread as soon as it does not. So the life is taken out before the call, and then ended (which writes the FREE
// operation) or put back.
typedef struct gv_life {
    uint64_t address, size;
    uint64_t id; // 0: nothing is known of the address
} gv_life;

gv_life gv_life_take(uint64_t address);
void gv_life_put_back(gv_life life);
void gv_life_end(gv_life life, uint64_t stream);

// Is a life under way that begins at `address`?
bool gv_is_allocated(uint64_t address);

// The same, but not for a module's variable.
bool gv_is_heap(uint64_t address);

// Does memory that is allocated hold all of [address, address + size)? Lives that adjoin each other may do so together;
// *oldest and *newest are the lowest and the highest id of those that do.
bool gv_is_live(uint64_t address, uint64_t size, uint64_t *oldest, uint64_t *newest);

// The end of the life that holds `address`; 0: none does. A copy or set of the driver's must not reach beyond it.
uint64_t gv_life_until(uint64_t address);

// cuMemUnmap: ends every life that begins in the range.
void gv_unmapped(uint64_t address, uint64_t size);

// Bytes of device memory in known lives.
uint64_t gv_live_bytes(void);

// A life under way.
typedef struct gv_live {
    uint64_t address, size;
    unsigned kind; // enum gv_allocation_kind
    bool exported; // another process may have been given it
    bool captured; // it was allocated while a capture was under way: a graph's own memory, as a private pool's
} gv_live;

// All lives under way, to be freed with gv_free. False when memory is out.
bool gv_lives(gv_live **items, size_t *count);

// cuMemMap mapped `handle` at `address`; memory was exported to other processes, by the address where its life begins
// or by handle.
void gv_mapped(uint64_t address, uint64_t handle);
void gv_exported(uint64_t address_or_handle);

#endif
