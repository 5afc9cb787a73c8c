// How long nodes run by themselves, with nothing that records them: a launch behind an armed one is run one node at a
// time, each between two events.
#ifndef GV_RECORD_TIMES_H
#define GV_RECORD_TIMES_H

#include "record/graph.h"

// What one such launch needs.
typedef struct gv_times gv_times;

// Runs the launch so and records the times. False: this is not the moment, or the graph cannot be run so; nothing has
// happened then. Otherwise *result is the program's.
bool gv_times_launch(gv_exec *exec, CUstream stream, bool per_thread, CUresult *result);

// For the replay: between the two, one node is enqueued on the stream.
void gv_times_before(gv_times *times);
void gv_times_behind(gv_times *times);

// The node ran to its end, alone: writes its time.
void gv_times_write(gv_times *times, uint64_t launch, uint64_t graph, uint32_t node);

#endif
