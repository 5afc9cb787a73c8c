// One checked launch, as differ.c (its course), differ_plan.c (the memory that goes with it) and differ_name.c (which
// nodes the differing bytes come from) see it.
#ifndef GV_RECORD_DIFFER_CORE_H
#define GV_RECORD_DIFFER_CORE_H

#include "record/differ.h"
#include "record/extent.h"
#include "record/image.h"
#include "record/replay.h"
#include "record/shadow.h"
#include "trace/record.h"

// What the time of a checked launch goes to.
enum gv_check_phase {
    GV_CHECK_HOLD,    // waiting for the context to be idle and held
    GV_CHECK_PLAN,    // finding out what the launch may write
    GV_CHECK_SAVE,    // copying that, or bringing the copy up to date
    GV_CHECK_GRAPH,   // the launch itself
    GV_CHECK_REWIND,  // keeping its result and putting memory back
    GV_CHECK_SERIAL,  // serial replays
    GV_CHECK_COMPARE, // and everything done to compare and to name
    GV_CHECK_END,     // leaving memory as the graph did, freeing
    GV_CHECK_WRITE,   // the records
    GV_CHECK_PHASES
};

// What is known of the memory of an executable graph, from one of its checked launches to the next. It belongs to the
// gv_exec.
struct gv_check_plan {
    uint64_t id;
    uint64_t version; // of the exec that it is for
    CUcontext context;
    gv_reach *reach; // live memory, as it was listed
    gv_extent extent;
};

typedef struct gv_check {
    // The launch.
    gv_graph_launch launch;
    gv_exec *exec;
    gv_hold hold;
    gv_compare *compare;
    gv_check_plan *plan; // the exec's
    uint64_t order;      // of the serial replays (gv_serial_order)
    uint64_t inputs;     // hash of the memory that others can change and the graph reads

    // What is kept. `touched` is all that the graph or a serial replay has changed so far, by groups of 4 KiB; outside
    // of it memory is as it was before the launch.
    gv_shadow *shadow;  // the copy of what it may write, if that is in device memory; NULL: `before` has its own
    uint64_t laid_out;  // id of the plan that it is laid out for; 0: none
    bool shadowed;      // `before` and `graph` lie in the shadow
    bool rewound;       // memory is as it was before the launch
    gv_image_room room; // for further copies: see gv_check_room
    bool room_known;
    gv_image *before;     // all that it may write, as it was before the launch
    gv_image *graph;      // what the graph left in `changed`
    gv_image *serial;     // what the first serial replay left in `touched`, while it is needed
    gv_range_set changed; // by the graph, by groups
    gv_range_set touched;
    gv_range_set different; // bytes that the graph and the first serial replay left differently
    gv_range_set unstable;  // bytes that serial replays left differently among each other
    gv_range_set ignored;   // padded rows and scratch memory: differences there do not count
    bool disturbed;         // memory is not as the graph left it: it has to be put back

    gv_checked_record record;
    char reason[420];  // why it is not compared; empty: it is
    CUresult result;   // an error of the program's own work
    bool unfinished;   // the launch's own work has not come to an end
    bool left_running; // a node of a serial replay has not

    enum gv_check_phase phase;
    uint64_t since; // CLOCK_MONOTONIC, in nanoseconds
    uint64_t spent[GV_CHECK_PHASES];
} gv_check;

// Says why the launch is not compared. The first reason stays.
void gv_check_fails(gv_check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));

// What follows belongs to this phase.
void gv_check_enter(gv_check *check, enum gv_check_phase phase);

// ---- differ.c ----

// Puts the memory that was touched back to what it was before the launch, or to what the graph left.
gv_status gv_check_rewind(gv_check *check, gv_error *error);
gv_status gv_check_leave_graph(gv_check *check, gv_error *error);

// Runs the nodes one by one on memory as it is. False: it did not come to an end, with the reason given.
bool gv_check_replay(gv_check *check, gv_replay_step step, void *user);

// Takes into `touched` what has changed outside of it, and adds to `to` the bytes in which memory differs from what it
// was there; `to` may be NULL.
gv_status gv_check_touch(gv_check *check, gv_range_set *to, gv_error *error);

// Have the inputs that others can change stayed as they were? If not, the check fails.
bool gv_check_inputs_hold(gv_check *check);

// ---- differ_plan.c ----

// Finds out what the launch may write and saves it. Nothing of the program has run. `meanwhile` is called when the
// device is at it. False: it cannot be, with the reason given; *forever says that the next launch of the graph would
// fare no better.
bool gv_check_prepare(gv_check *check, void (*meanwhile)(gv_check *check), bool *forever);

// The graph has run: keeps what it left, and fills in `changed`.
gv_status gv_check_keep_result(gv_check *check, gv_error *error);

// What further copies may take.
gv_image_room *gv_check_room(gv_check *check);

// Frees everything, or keeps it for the next checked launch. The stream must be done with it.
void gv_check_release(gv_check *check);

// ---- differ_name.c ----

// There are differing bytes: finds out with further serial replays whether these agree among each other, and which
// nodes the bytes come from, and writes the difference records. Memory is as the first serial replay left it.
void gv_check_name(gv_check *check);

#endif
