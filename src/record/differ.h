// The differential: a chosen launch of a graph is compared with serial replays of its nodes on the same memory. What
// the program gets is the result of its graph, byte for byte. docs/differential.md says what is exact and what is not.
//
// The Sanitizer has no part in this.
#ifndef GV_RECORD_DIFFER_H
#define GV_RECORD_DIFFER_H

#include "record/arm.h"
#include "record/graph.h"

// Is this launch of the exec one to check? It has been counted in exec->launches. One that could not be checked when it
// was due is made up for at the next.
bool gv_check_is_due(gv_exec *exec);

// Launches the graph as the program asked and compares. False: it was not launched, since it cannot be checked now;
// with `uncompared` set, it never can be, and gv_check_refused is to be called once it has been launched. True: it was
// launched, with `result`; *sequence is the number of the launch, 0 when it failed. Under the lock that armed launches
// are made under.
bool gv_check_launch(gv_graph_launch launch, gv_exec *exec, CUstream stream, bool per_thread, CUresult *result,
                     uint64_t *sequence, const char **uncompared);

// Writes down that a launch was not compared, and why.
void gv_check_refused(gv_exec *exec, uint64_t sequence, const char *why);

// What is known of an executable graph's memory (gv_exec.plan). NULL is allowed.
typedef struct gv_check_plan gv_check_plan;
void gv_check_plan_free(gv_check_plan *plan);

// An allocation of the program has failed: frees the device memory that is kept for the next checked launch. True:
// there was some, and the call may be made again.
bool gv_check_give_back(void);

// How much of the current device's memory is kept so: to the program it counts as free.
uint64_t gv_check_kept_bytes(void);

void gv_check_after_fork(void);

// Writes how differences are to be judged, for `gravel check`. Called once, when the trace has been opened.
void gv_differ_write_settings(void);

#endif
