// What the twins share: a device with the kernels loaded, streams and events, and the loop that launches the captured
// graph and counts wrong results. Driver API only.
//
// A twin is one program with two variants, chosen by its first argument: `buggy` leaves out or misplaces one ordering
// call that `clean` has. The second argument is how often to launch (default 3).
#ifndef TWINS_TWIN_H
#define TWINS_TWIN_H

#include <cuda.h>
#include <stdbool.h>

enum {
    TWIN_COUNT = 1024,           // elements of most buffers
    TWIN_BYTES = TWIN_COUNT * 4, // their bytes
    TWIN_BLOCK = 128,            // threads that LAUNCH makes one block of
    TWIN_HOLD_SHORT = 100000,    // nanoseconds a branch is held up, so that the wrong order is the likely one
    TWIN_HOLD_LONG = 400000,
    TWIN_ROWS = 4, // of twins whose buffers are made of rows
    TWIN_WIDTH = 16,
};

typedef struct twin {
    bool buggy;
    int launches;
    CUstream main, side, third; // non-blocking
    CUfunction make_left, make_right, make_next, use_left, use_right, use_next, hold, update_in_place, fill_low,
        fill_high, count_left, count_right, store_right, mix;
    CUfunction store_rows, count_tokens, share_rows, find_largest, scale_rows, take_places;
    CUfunction make_triggering, use_after_wait, use_without_wait, prefetch, wait_and_trigger, trigger_and_wait, no_wait;
} twin;

// Stops the program with the call's place and the error's name, unless it succeeded.
#define CHECK(call) twin_check((call), #call, __FILE__, __LINE__)
void twin_check(CUresult result, const char *call, const char *file, int line);

// Launches a kernel of `count` threads. A macro, so that the launch is on the line it is written on.
#define LAUNCH(function, stream, count, ...) \
    CHECK(cuLaunchKernel(function, ((count) + 127) / 128, 1, 1, 128, 1, 1, 0, stream, (void *[]){__VA_ARGS__}, 0))

// The same for a kernel that may begin before the one in front of it in the stream ends, and for one that records an
// event as soon as its dependents may begin.
#define LAUNCH_EARLY(function, stream, count, ...) \
    CHECK(twin_launch_early(function, stream, count, NULL, (void *[]){__VA_ARGS__}))
#define LAUNCH_WITH_EVENT(function, stream, count, event, ...) \
    CHECK(twin_launch_early(function, stream, count, event, (void *[]){__VA_ARGS__}))
CUresult twin_launch_early(CUfunction function, CUstream stream, int count, CUevent event, void **parameters);

// Reads the command line, opens device 0 and loads the kernels: twins/kernels.fatbin on a GPU, twins/kernels.so on the
// software driver, from the folder the program is in.
void twin_open(twin *t, int argc, char **argv);

// A zeroed device buffer.
CUdeviceptr twin_buffer(size_t bytes);

CUevent twin_event(void);

// Records a new event in one stream and makes the other one wait for it.
void twin_order(CUstream before, CUstream after);

// Holds a stream up.
void twin_hold(twin *t, CUstream stream, unsigned long long nanoseconds);

// A kernel of twins/conditional.cu.
CUfunction twin_conditional_kernel(const char *name);

// Into what a stream captures: a conditional handle, and a conditional node with one body, behind what was captured
// last.
CUgraphConditionalHandle twin_handle(CUstream stream, unsigned initial, unsigned flags);
CUgraph twin_conditional(CUstream stream, CUgraphConditionalHandle handle, CUgraphConditionalNodeType type);

// Launches the captured graph t->launches times, each time after `prepare` and followed by `is_right` (0: wrong),
// prints `wrong K of N`, and returns the program's exit code.
int twin_run(twin *t, CUgraph graph, void (*prepare)(void *user), bool (*is_right)(void *user), void *user);

// Does the buffer hold first, first + step, ... ?
bool twin_holds(CUdeviceptr buffer, int first, int step);

#endif
