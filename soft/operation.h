// One piece of device work with its parameters: what a stream call enqueues and what a graph node holds.
#ifndef GRAVEL_SOFT_OPERATION_H
#define GRAVEL_SOFT_OPERATION_H

#include "soft/driver.h"

enum { LAUNCH_ATTRIBUTES = 24 }; // above every CUlaunchAttributeID that is kept

struct kernel_operation {
    CUfunction function;
    CUkernel kernel; // when it was given as one
    CUcontext context;
    unsigned grid[3], block[3], shared_bytes;
    bool packed;           // given through `extra`
    unsigned char *values; // the parameter block
    size_t values_size;
    void **parameters;                  // one pointer into the block for each parameter
    void *extra[5];                     // what GetParams returns for a packed block
    CUlaunchAttributeValue *attributes; // LAUNCH_ATTRIBUTES of them, or NULL
    uint32_t attributes_set;            // bit by id
};

struct host_operation {
    CUhostFn function;
    CUstreamCallback callback; // of cuStreamAddCallback, instead of function
    CUstream stream;           // for callback
    void *data;
};

struct copy_operation {
    CUDA_MEMCPY3D parameters;
    CUcontext context;
    void *staged; // owned: what the pageable source held when the call was made
};

struct set_operation {
    CUDA_MEMSET_NODE_PARAMS parameters;
    CUcontext context;
};

struct values_operation {
    CUstreamBatchMemOpParams *items; // owned
    unsigned count, flags;
    CUcontext context;
};

struct condition;
struct plan_node;

struct conditional_operation {
    struct condition *condition; // counted reference
    CUgraphConditionalNodeType type;
    unsigned size;             // bodies
    CUgraph *bodies;           // owned; NULL in an exec
    struct plan_node *planned; // in an exec: the node, which has the bodies' plans
};

struct graph_memory;

struct memory_operation {
    CUDA_MEM_ALLOC_NODE_PARAMS parameters; // alloc
    struct graph_memory *memory;           // counted reference; NULL for a free of other memory
    CUdeviceptr address;
};

struct operation {
    CUgraphNodeType kind;
    union {
        struct kernel_operation kernel;
        struct copy_operation copy;
        struct set_operation set;
        struct host_operation host;
        struct values_operation values;
        struct memory_operation memory;
        struct conditional_operation conditional;
        CUevent event;     // counted reference
        CUgraph child;     // owned by its node
        struct plan *plan; // OPERATION_LAUNCH: what the launch that begins runs
    };
};

// The beginning of a graph's launch, which assigns its conditions their defaults. No kind of node.
#define OPERATION_LAUNCH ((CUgraphNodeType)1000)

enum run_result {
    RUN_DONE,
    RUN_PARKED, // a value wait that is not satisfied: to be tried again
};

// A deep copy; child graphs are cloned. On failure `*copy` is an empty operation.
CUresult operation_copy(struct operation *copy, const struct operation *original);
void operation_clear(struct operation *operation);

// Does the work of a task, without the driver's lock. `observer` is NULL unless kernels are to be watched.
struct task;
struct observer;
enum run_result operation_run(struct task *task, struct observer *observer);

// Would the value wait that the task is parked at succeed now?
bool operation_can_resume(const struct task *task);

#endif
