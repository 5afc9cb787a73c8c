// A caching allocator gives a block back to the stream it was allocated in as soon as the host frees it. A tensor of
// the main stream is used in a side stream and freed before the join. Buggy: nobody tells the allocator of that use
// (PyTorch's record_stream), so the next allocation takes the block while the side stream still reads it.
#include "twins/twin.h"

#include <stddef.h>

enum { BLOCKS = 4 };

// One size class, free lists by stream.
typedef struct cached_block {
    CUdeviceptr address;
    CUstream owner;   // the stream it was allocated in
    CUstream used_in; // another stream that uses it, or NULL
    bool taken;
} cached_block;

static cached_block blocks[BLOCKS];

static cached_block *allocate(CUstream stream)
{
    for (int i = 0; i < BLOCKS; i++) {
        // A block in use elsewhere comes back when that use is known to be over, which no capture can find out.
        if (blocks[i].taken || blocks[i].used_in || (blocks[i].owner && blocks[i].owner != stream))
            continue;
        blocks[i].taken = true;
        blocks[i].owner = stream;
        return &blocks[i];
    }
    return NULL;
}

static void record_use(cached_block *block, CUstream stream)
{
    block->used_in = stream;
}

static void release(cached_block *block)
{
    block->taken = false;
}

static CUdeviceptr out_left, out_next;

static bool is_right(void *user)
{
    return twin_holds(out_left, 2, 2) && twin_holds(out_next, 200, 2);
}

int main(int argc, char **argv)
{
    twin t;
    twin_open(&t, argc, argv);
    for (int i = 0; i < BLOCKS; i++)
        blocks[i].address = twin_buffer(TWIN_BYTES);
    out_left = twin_buffer(TWIN_BYTES);
    out_next = twin_buffer(TWIN_BYTES);
    int count = TWIN_COUNT, left = 1, next = 100;

    CUgraph graph;
    CHECK(cuStreamBeginCapture(t.main, CU_STREAM_CAPTURE_MODE_GLOBAL));
    cached_block *tensor = allocate(t.main);
    LAUNCH(t.make_left, t.main, TWIN_COUNT, &tensor->address, &left, &count);
    twin_order(t.main, t.side);
    twin_hold(&t, t.side, TWIN_HOLD_LONG);
    LAUNCH(t.use_left, t.side, TWIN_COUNT, &tensor->address, &out_left, &count);
    if (!t.buggy)
        record_use(tensor, t.side);
    release(tensor);
    cached_block *second = allocate(t.main);
    LAUNCH(t.make_next, t.main, TWIN_COUNT, &second->address, &next, &count);
    LAUNCH(t.use_next, t.main, TWIN_COUNT, &second->address, &out_next, &count);
    twin_order(t.side, t.main);
    CHECK(cuStreamEndCapture(t.main, &graph));
    return twin_run(&t, graph, NULL, is_right, NULL);
}
