// Device work as tasks with dependencies, and the workers that run them. A stream's order, an event's wait and a
// graph's edge all become the same thing here: one task that may start when others are done.
//
// Three schedules (GRAVEL_SOFT_SCHEDULE): "free" lets every ready task run on a thread of its own; "seed:N" runs one
// at a time and switches at memory accesses and task ends by a random sequence that N fixes; "serial" runs one at a
// time in the order of submission.
#ifndef GRAVEL_SOFT_SCHEDULE_H
#define GRAVEL_SOFT_SCHEDULE_H

#include "soft/access.h"
#include "soft/operation.h"

enum task_state { TASK_WAITING, TASK_READY, TASK_RUNNING, TASK_DONE };

// How far a kernel has come, as far as others may follow it: all its blocks have begun, all have triggered or ended.
// Blocks run one after another, so that only the last one counts.
enum task_progress { PROGRESS_NONE, PROGRESS_BEGUN, PROGRESS_TRIGGERED, PROGRESS_DONE };

struct successor {
    struct task *task; // counted
    uint8_t after;     // enum task_progress at which it may start
    bool released;     // that has been reached
    bool waits;        // its grid-dependency wait waits for the end
};

struct task {
    unsigned references;
    enum task_state state;
    size_t missing;    // tasks that must be done, or have come far enough, first; and one until it is submitted
    size_t unfinished; // tasks that its grid-dependency wait still waits for
    uint8_t reached;   // enum task_progress
    bool blocked;      // seeded: suspended in its wait until those are done
    uint64_t sequence;
    const struct operation *operation;
    struct operation own;        // where `operation` points for work that no graph owns
    size_t progress;             // items of a value operation that are done
    struct recording *recording; // owns a reference
    CUcontext context;
    uint64_t finished_ns;          // CLOCK_MONOTONIC
    const struct plan *launched;   // the graph it is of, if that has conditional nodes
    struct task *continuation;     // of a conditional node: counted, comes after the bodies it runs
    void (*completed)(void *user); // called under the lock when it is done; may be NULL
    void *completed_user;
    struct successor *successors;
    size_t successor_count, successor_capacity;
    struct task *next, *previous; // in the ready, parked or suspended list
    void *turn;                   // seeded: what its suspended worker waits on
};

// Reads the schedule's name (NULL: free). CUDA_ERROR_INVALID_VALUE when it is none of the three.
CUresult schedule_initialise(const char *name);

// A task that does nothing yet, with one reference; its context gets errors. The driver's lock is held in all of
// these. NULL when memory is out.
struct task *task_new(CUcontext context);

// `task`, not yet submitted, starts after `earlier` (NULL or done: nothing to wait for). False when memory is out.
bool task_after(struct task *task, struct task *earlier);

// As task_after, for a task that may start when `earlier` has come as far as `progress`; `waits`: its grid-dependency
// wait waits for the end of `earlier`. The serial schedule starts nothing before all it follows is done.
bool task_after_early(struct task *task, struct task *earlier, enum task_progress progress, bool waits);

// A running kernel has come so far. Takes the driver's lock.
void task_reach(struct task *task, enum task_progress progress);

// The grid-dependency wait of a running kernel. Takes the driver's lock.
void task_await(struct task *task, struct observer *observer);

// Lets the task start as soon as what it waits for is done. Sequence numbers are given here.
void task_submit(struct task *task);

// A further reference, and giving one back.
struct task *task_keep(struct task *task);
void task_drop(struct task *task);

// Waits until it is done; gives the lock back meanwhile.
void task_wait(struct task *task);

// Is it done? Under the seeded schedule asking lets the device make a step, or a polling host would wait for ever.
bool task_done(struct task *task);

// The work of a running task went wrong: its context answers with this error from now on.
void task_failed(struct task *task, CUresult error);

// Called in a kernel of the seeded schedule: counts an access, and now and then lets another task have its turn.
void schedule_access(struct observer *observer);

// The hook behind gravel_spin_ns.
void schedule_spin(void *observer, uint64_t nanoseconds);

#endif
