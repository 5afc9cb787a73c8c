// Runs a program as a child with its environment changed, passes signals on to it, and says how it ended.
#ifndef GV_CLI_LAUNCH_H
#define GV_CLI_LAUNCH_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct gv_launch_result {
    pid_t pid;
    int exec_errno; // not 0: the program could not be started
    int fork_errno; // not 0: there was not even a child
    int exit_code;  // when not killed
    int signal;     // the signal that ended it, or 0
} gv_launch_result;

// Starts argv[0] (looked up in PATH as execvp does) after `prepare` ran in the child, and waits for its end. Meanwhile
// SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM and SIGCONT sent to this process go on to the child; one
// that a terminal sent has reached the child already, being in the same process group, and is not sent twice.
gv_launch_result gv_launch(char **argv, void (*prepare)(void *user), void *user);

// Ends this process as the child ended: by the same signal, without a second core dump, when that is how it died.
// Returns the exit code where it returns.
int gv_end_alike(const gv_launch_result *result);

// Runs a short command with its output (standard output and error) in `output`, and kills it after `seconds`. `prepare`
// as above, or NULL. Returns the exit code, 128 + signal, or -1 when it could not be started or took too long.
int gv_capture(char **argv, void (*prepare)(void *user), void *user, double seconds, char *output, unsigned long size);

// The same for a function of this program in a child process: what it writes to descriptor 1 is captured, and a crash
// or a hang in it stays there. Its return value is the exit code.
int gv_capture_function(int (*function)(void *user), void *user, double seconds, char *output, unsigned long size);

#endif
