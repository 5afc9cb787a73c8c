// Arming: running a chosen launch of a graph one node at a time, recording what each kernel touches.
#ifndef GV_RECORD_ARM_H
#define GV_RECORD_ARM_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct gv_exec;
struct gv_snapshot;

// The hook of cuGraphLaunch: launches `handle` on `stream`, armed or checked if it is this launch's turn, and
// records it. `launch` is the program's call.
typedef CUresult (*gv_graph_launch)(CUgraphExec handle, CUstream stream);
CUresult gv_launch_graph(gv_graph_launch launch, CUgraphExec handle, CUstream stream, bool per_thread);

// Every other launch-like call passes this gate: it waits while another thread has this context's modules patched.
// Cheap when nothing is armed. gv_gate_leave must follow.
void gv_gate_enter(void);
void gv_gate_leave(void);

// The same for copies, sets and stream writes of values, which need not wait for an armed launch, but for one that is
// held.
void gv_copy_gate_enter(void);
void gv_copy_gate_leave(void);

// A launch whose memory is saved, and put back after further replays, must be alone in its context: nothing else runs
// there, and what other threads would launch, copy, capture, free or unload there waits until gv_hold_end.
typedef struct gv_hold {
    CUcontext context;
    CUstream stream; // as the driver knows it: the default streams by their handles
    CUstreamCaptureMode mode;
} gv_hold;

// For the hook of a graph launch, between gv_enter and gv_leave. The context is current until gv_hold_end. False: this
// is not the moment, and nothing is held; `why` says why.
bool gv_hold_begin(gv_hold *hold, CUstream stream, bool per_thread, const char **why);
void gv_hold_end(gv_hold *hold);

// Lets others go on before the end. What they do then has to be reckoned with.
void gv_hold_open(gv_hold *hold);

// Do all kernels of the graph belong to this context?
bool gv_in_context(const struct gv_snapshot *snapshot, CUcontext context);

// Writes the GRAPH_LAUNCH operation and returns its sequence number.
uint64_t gv_write_launch(const struct gv_exec *exec, CUstream stream, bool per_thread, uint64_t stack);

// The same, when what was launched under the hold still runs: `source` is closed once it has ended.
struct gv_recording_source;
void gv_hold_leave(gv_hold *hold, const struct gv_recording_source *source);

// Asks that the next launch of every exec be armed, whatever --arm says (gravel_arm_next of gravel.h).
void gv_arm_next(void);

void gv_arm_after_fork(void);

#endif
