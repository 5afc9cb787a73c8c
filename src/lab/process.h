// Programs that `gravel lab` starts, and that none of their processes outlives it. Between gravel and a program stands
// a keeper: a process in a session of its own that adopts whatever the program leaves behind (it is a subreaper) and
// kills all of it when it is told to, or when gravel itself is gone, kill -9 included.
#ifndef GV_LAB_PROCESS_H
#define GV_LAB_PROCESS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct gv_spawn {
    char *const *argv;        // argv[0] is looked for in the PATH of `environment`; NULL-terminated
    char *const *environment; // KEY=VALUE, NULL-terminated
    const char *directory;    // NULL: the current one
    const char *output;       // the file that standard output goes to
    const char *errors;       // the same for standard error; may be the same file
} gv_spawn;

// A program that was started. Its standard input is /dev/null.
typedef struct gv_child {
    pid_t pid; // of the program, the leader of its own process group
    pid_t keeper;
    uint64_t keeper_start; // when the keeper started, in clock ticks since boot; with its pid it names it for good
    int socket;
    bool ended;
    int status; // as of waitpid, once `ended`
} gv_child;

// Starts a program. GV_ERR_MISSING when there is no such program or folder, GV_ERR_IO for what the system refuses.
gv_status gv_child_start(const gv_spawn *spawn, gv_child *child, gv_error *error);

// Waits until the program itself has ended, `seconds` have passed (false), or `wake` (a file descriptor, or -1) can be
// read (false). What it left behind goes on until gv_child_stop.
bool gv_child_wait(gv_child *child, double seconds, int wake);

// Sends `signal` to the program's process group, gives it `seconds` to end, then kills every process that came from it,
// whatever group or session it went to. False when some process could not be killed within half a minute, which is then
// left to the keeper.
bool gv_child_stop(gv_child *child, int signal, double seconds);

// The file that running `name` in `directory` with this environment would execute; owned by the caller, NULL when
// memory is out. A name that is found nowhere comes back as it is.
char *gv_program_path(const char *name, const char *directory, char *const *environment);

// "exit code 1", "signal 9 (Killed)". Static buffer of the calling thread.
const char *gv_child_status_text(int status);

// When a process started, in clock ticks since boot; 0 when there is none. Two processes with one pid differ in it.
uint64_t gv_process_start(pid_t pid);

// A keeper that an earlier gravel left: waits for it to finish its killing, which takes it an instant, and kills it
// with what it keeps when it does not. Returns once it is gone. Does nothing when no such process is left.
void gv_keeper_end(pid_t keeper, uint64_t start);

// The processes below `root`, without it, at most `room`; returns how many.
size_t gv_process_tree(pid_t root, pid_t *pids, size_t room);

// Seconds since some fixed time, which no clock change affects.
double gv_now(void);

#endif
