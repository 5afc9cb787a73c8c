#include "cli/launch.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT};

// In the child: runs the program, or tells the parent through the pipe why that failed.
static void become(char **argv, int report, const sigset_t *mask, void (*prepare)(void *user), void *user)
{
    if (prepare)
        prepare(user);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(argv[0], argv);
    int cause = errno;
    ssize_t written = write(report, &cause, sizeof cause);
    _exit(written == sizeof cause ? 127 : 125);
}

static void wait_and_forward(gv_launch_result *result, const sigset_t *watched)
{
    for (;;) {
        siginfo_t info;
        int signal_number = sigwaitinfo(watched, &info);
        if (signal_number < 0)
            continue; // interrupted by a stop and continue
        if (signal_number != SIGCHLD) {
            // SI_KERNEL: typed at the terminal, whose whole foreground group got it.
            if (info.si_code != SI_KERNEL)
                kill(result->pid, signal_number);
            continue;
        }
        int status = 0;
        pid_t ended = waitpid(result->pid, &status, WNOHANG);
        if (ended == result->pid && (WIFEXITED(status) || WIFSIGNALED(status))) {
            result->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            result->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
            return;
        }
        if (ended < 0 && errno == ECHILD)
            return;
    }
}

gv_launch_result gv_launch(char **argv, void (*prepare)(void *user), void *user)
{
    gv_launch_result result = {0};
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0) {
        result.fork_errno = errno;
        return result;
    }
    // Blocked before the fork, so that a signal between fork and wait is not lost. SIGCHLD must not be ignored, as a
    // parent may have left it: the child would then vanish without a status.
    sigset_t watched, before;
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; i++)
        sigaddset(&watched, forwarded[i]);
    struct sigaction child_default = {.sa_handler = SIG_DFL}, child_before;
    sigaction(SIGCHLD, &child_default, &child_before);
    sigprocmask(SIG_BLOCK, &watched, &before);

    result.pid = fork();
    if (result.pid == 0) {
        sigaction(SIGCHLD, &child_before, NULL);
        become(argv, report[1], &before, prepare, user);
    }
    if (result.pid < 0)
        result.fork_errno = errno;
    close(report[1]);
    if (result.pid > 0) {
        int cause = 0;
        ssize_t got;
        while ((got = read(report[0], &cause, sizeof cause)) < 0 && errno == EINTR)
            ;
        result.exec_errno = got == sizeof cause ? cause : 0;
        wait_and_forward(&result, &watched);
    }
    close(report[0]);
    sigprocmask(SIG_SETMASK, &before, NULL);
    sigaction(SIGCHLD, &child_before, NULL);
    return result;
}

int gv_end_alike(const gv_launch_result *result)
{
    if (result->signal) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(result->signal, SIG_DFL);
        sigset_t only;
        sigemptyset(&only);
        sigaddset(&only, result->signal);
        fflush(NULL);
        raise(result->signal);
        sigprocmask(SIG_UNBLOCK, &only, NULL);
    }
    return result->exit_code;
}

// ---- Short commands -----------------------------------------------------------------------------------------------

static double now(void)
{
    return (double)gv_monotonic_ns() * 1e-9;
}

// Reads until the pipe closes, or until the time is up and the child is killed. Returns false in the latter case.
static bool drain(int pipe_end, double deadline, char *output, size_t size)
{
    size_t used = 0;
    for (;;) {
        double left = deadline - now();
        struct pollfd wait_for = {.fd = pipe_end, .events = POLLIN};
        int ready = left > 0 ? poll(&wait_for, 1, (int)(left * 1000) + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return false;
        char chunk[1024];
        ssize_t got = read(pipe_end, chunk, sizeof chunk);
        if (got <= 0)
            return true;
        size_t kept = used + (size_t)got < size ? (size_t)got : size - 1 - used;
        memcpy(output + used, chunk, kept);
        used += kept;
        output[used] = '\0';
    }
}

static int collect(pid_t child, int pipe_end, double seconds, char *output, size_t size)
{
    bool in_time = drain(pipe_end, now() + seconds, output, size);
    close(pipe_end);
    if (!in_time)
        kill(child, SIGKILL);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (!in_time)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Forks a child whose standard output and error are the pipe returned in `pipe_end`.
static pid_t fork_into_pipe(int *pipe_end)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_RDONLY);
        if (null >= 0)
            dup2(null, 0);
        dup2(ends[1], 1);
        dup2(ends[1], 2);
    }
    close(ends[1]);
    if (child <= 0)
        close(ends[0]);
    *pipe_end = ends[0];
    return child;
}

int gv_capture(char **argv, void (*prepare)(void *user), void *user, double seconds, char *output, unsigned long size)
{
    int pipe_end = -1;
    output[0] = '\0';
    pid_t child = fork_into_pipe(&pipe_end);
    if (child == 0) {
        if (prepare)
            prepare(user);
        execvp(argv[0], argv);
        _exit(127);
    }
    return child < 0 ? -1 : collect(child, pipe_end, seconds, output, size);
}

int gv_capture_function(int (*function)(void *user), void *user, double seconds, char *output, unsigned long size)
{
    int pipe_end = -1;
    output[0] = '\0';
    pid_t child = fork_into_pipe(&pipe_end);
    if (child == 0)
        _exit(function(user));
    return child < 0 ? -1 : collect(child, pipe_end, seconds, output, size);
}
