// The recorder's state and what every hook uses: phases, the recursion guard, options, sequence numbers, notes.
//
// Everything in this folder runs inside someone else's process. It changes no result, keeps errno, and on any doubt
// switches the part in doubt off, says so once, and forwards the call.
#ifndef GV_RECORD_RECORDER_H
#define GV_RECORD_RECORDER_H

#include "record/driver.h"
#include "record/stack.h"
#include "trace/writer.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

// Phases, in order. The recorder starts at the first hooked call that has a current context.
enum gv_phase {
    GV_PHASE_IDLE = 0,  // nothing recorded yet; a forked child begins here
    GV_PHASE_RECORDING, // a trace file is open
    GV_PHASE_OFF,       // switched off: not asked for, or a failure of ours
    GV_PHASE_FINISHED   // the process is ending
};

enum gv_arm_mode { GV_ARM_NONE, GV_ARM_NTH, GV_ARM_EVERY, GV_ARM_ALL };
enum gv_diff_mode { GV_DIFF_NONE, GV_DIFF_FIRST, GV_DIFF_EVERY };

// Which launches are repeated with other padding, or with poisoned memory: of those that have padding, or all.
enum gv_perturb_mode { GV_PERTURB_NONE, GV_PERTURB_FIRST, GV_PERTURB_EVERY };

typedef struct gv_record_options {
    enum gv_arm_mode arm;
    uint64_t arm_number; // NTH: which launch of an exec, from 1; EVERY: the period
    enum gv_diff_mode diff;
    uint64_t diff_number;                 // EVERY: the period
    uint64_t diff_bytes, diff_host_bytes; // most device and page-locked memory for copies of a checked launch
    char graph[256];                      // only graphs this names (gv_graph_matches); empty: all
    bool stacks;
    bool verbose;
    bool times;               // launches behind armed ones are timed
    bool light;               // only a fix file is applied: no operations in the trace
    uint64_t loop_iterations; // of one run of a loop, how many are recorded
    double stall_seconds;     // how long a node may make no progress before the watchdog speaks
    uint64_t compare_bytes;   // most device memory for copies to compare with (src/record/opaque.c)
    uint64_t search_bytes;    // most memory that one armed replay searches for addresses
    double search_seconds;    // and most time
    enum gv_perturb_mode pad, poison;
    uint64_t pad_number, poison_number; // EVERY: the period
    bool probe;                         // gravel_probe of gravel.h makes clones
    uint64_t probe_bytes;               // most device memory for them
} gv_record_options;

typedef struct gv_recorder {
    gv_record_options options;
    gv_writer *writer;
    gv_stacks *stacks;
    bool soft; // the driver is the software driver
} gv_recorder;

extern gv_recorder gv_state;

// ---- Entering and leaving a hook ----
// gv_enter answers whether this call is to be recorded; if so, gv_leave must follow. Nested driver calls of the
// same thread (the driver's own, ours, a callback's) are not recorded.
bool gv_enter(void);
void gv_leave(void);

// The same for hooks that a fix file needs: those that make, change and end graphs and begin captures. With --fix alone
// (`light`) only these are entered, and while a capture is under way the others too.
bool gv_enter_graph(void);

// Is the calling thread between gv_enter and gv_leave, or inside gv_guard?
bool gv_inside(void);

// ---- Writing ----
// Gives the operation its sequence number and thread and writes it. Returns the number, 0 when not recording.
uint64_t gv_operation(gv_operation_record *operation);

// The same for an operation that brings something into being: `define` is called with the number just before the
// operation is written, so that the definition stands before its first use.
uint64_t gv_operation_defining(gv_operation_record *operation, void (*define)(uint64_t sequence, void *user),
                               void *user);

// Sequence number of the operation written last.
uint64_t gv_last_operation(void);

// The calling thread's stack, or 0 when stacks are off.
uint64_t gv_stack(void);

// Flushes the trace; after armed launches and before the process image goes away.
void gv_flush(void);

// Writes a note and, for incompletenesses and failures, prints it to stderr once.
void gv_note(enum gv_note_severity severity, uint64_t graph, uint64_t node, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// What was said already, by key. Initialise with GV_SAID_INIT(how many keys at most).
enum { GV_SAID_KEYS = 64 };
typedef struct gv_said {
    pthread_mutex_t lock;
    size_t count, most; // most: up to GV_SAID_KEYS
    char keys[GV_SAID_KEYS][96];
} gv_said;
#define GV_SAID_INIT(keys_at_most)                                \
    {                                                             \
        .lock = PTHREAD_MUTEX_INITIALIZER, .most = (keys_at_most) \
    }

// Is this the first time that `key` is asked about? Keys alike in their first 95 bytes are one. When the table is full
// no key is new any more: a program is not flooded.
bool gv_first_time(gv_said *said, const char *key);

// The same, but only the first time for `key`.
void gv_note_once(enum gv_note_severity severity, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// A line "gravel: ..." on stderr, whatever the options say.
void gv_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

// The same, only with --verbose.
void gv_verbose(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Switches the recorder off for good, with the reason on stderr and in the trace.
void gv_switch_off(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
