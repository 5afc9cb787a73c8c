// Sessions at work: each sends a round, waits for the answer, judges it, appends answer and tool result to what was
// said, thinks, and sends the next. All of them share one client and one thread.
#ifndef GV_STRESS_AGENT_H
#define GV_STRESS_AGENT_H

#include "stress/client.h"
#include "stress/run.h"
#include "stress/session.h"

// One pass over sessions: the load, or the baseline with `concurrency` 1.
typedef struct gv_pass {
    const gv_stress_options *options;
    gv_client *client;
    const char *phase;
    const char *tail;      // of each request's body: its parameters, from the comma after the messages on
    const size_t *indices; // the sessions; NULL: 0 to count - 1
    size_t count, concurrency;
    double ramp_s, think_low_s, think_high_s;
    bool alone;          // the baseline
    gv_results *results; // of the pass: results of session `index` stand at its place
} gv_pass;

// Runs the pass to its end or interruption. Fails only for the client's own reasons.
gv_status gv_pass_run(const gv_pass *pass, gv_error *error);

// The parameters of the requests as JSON text that follows the messages: `,"tools":[...],"model":...}`. Freed with
// gv_free; NULL when memory is out.
char *gv_request_tail(const gv_stress_options *options, double temperature);

#endif
