// Arming: running a chosen launch of a graph one node at a time, recording what each kernel touches.
#ifndef GV_RECORD_ARM_H
#define GV_RECORD_ARM_H

#include <cuda.h>
#include <stdbool.h>

// The hook of cuGraphLaunch: launches `handle` on `stream`, armed if it is this launch's turn, and records it.
// `launch` is the program's call.
typedef CUresult (*gv_graph_launch)(CUgraphExec handle, CUstream stream);
CUresult gv_launch_graph(gv_graph_launch launch, CUgraphExec handle, CUstream stream, bool per_thread);

// Every other launch-like call passes this gate: it waits while another thread has this context's modules patched.
// Cheap when nothing is armed. gv_gate_leave must follow.
void gv_gate_enter(void);
void gv_gate_leave(void);

// Asks that the next launch of every exec be armed, whatever --arm says (gravel_arm_next of gravel.h).
void gv_arm_next(void);

void gv_arm_after_fork(void);

#endif
