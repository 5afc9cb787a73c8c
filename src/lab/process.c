#include "lab/process.h"

#include "base/clock.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_PIDS = 4096, KILL_SECONDS = 30 };

double gv_now(void)
{
    return (double)gv_monotonic_ns() * 1e-9;
}

static void pause_for(double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds};
    time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
    nanosleep(&time, NULL);
}

// ---- Looking at processes -----------------------------------------------------------------------------------------

// The parent's pid and the time of the start, from /proc/PID/stat. The name before them may hold anything but ends at
// the last parenthesis.
static bool read_stat(pid_t pid, pid_t *parent, uint64_t *start)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0)
        return false;
    text[length] = '\0';
    const char *rest = strrchr(text, ')');
    if (!rest)
        return false;
    char state;
    int read_parent = 0;
    unsigned long long read_start = 0;
    // Field 3 is the state, 4 the parent, 22 the start.
    int got = sscanf(rest + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                     &state, &read_parent, &read_start);
    *parent = (pid_t)read_parent;
    *start = read_start;
    return got == 3 && state != 'Z';
}

uint64_t gv_process_start(pid_t pid)
{
    pid_t parent;
    uint64_t start;
    return pid > 0 && read_stat(pid, &parent, &start) ? start : 0;
}

// All processes with their parents. One pass over /proc is enough: a process that is forked meanwhile is found by the
// next pass of whoever wants all of them.
typedef struct process_list {
    pid_t pid[MOST_PIDS], parent[MOST_PIDS];
    size_t count;
} process_list;

// Without the C library's directory functions, which allocate: the keeper calls this between fork and exit.
static void list_processes(process_list *list)
{
    struct entry {
        uint64_t inode;
        int64_t offset;
        unsigned short length;
        unsigned char type;
        char name[];
    };
    static _Thread_local char buffer[32768] __attribute__((aligned(8)));
    list->count = 0;
    int folder = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return;
    long got;
    while ((got = syscall(SYS_getdents64, folder, buffer, sizeof buffer)) > 0) {
        for (long at = 0; at < got;) {
            const struct entry *entry = (const struct entry *)(const void *)(buffer + at);
            at += entry->length;
            char *end;
            long pid = strtol(entry->name, &end, 10);
            uint64_t start;
            if (*end || pid <= 0 || list->count == MOST_PIDS ||
                !read_stat((pid_t)pid, &list->parent[list->count], &start))
                continue;
            list->pid[list->count++] = (pid_t)pid;
        }
    }
    close(folder);
}

static size_t tree_of(const process_list *list, pid_t root, pid_t *pids, size_t room)
{
    size_t count = 0;
    // Breadth first: pids[next] is the parent whose children are looked for.
    pid_t parent = root;
    for (size_t next = 0;; parent = pids[next++]) {
        for (size_t i = 0; i < list->count && count < room; i++) {
            if (list->parent[i] == parent)
                pids[count++] = list->pid[i];
        }
        if (next == count)
            return count;
    }
}

size_t gv_process_tree(pid_t root, pid_t *pids, size_t room)
{
    process_list *list = gv_malloc(sizeof *list);
    if (!list)
        return 0;
    list_processes(list);
    size_t count = tree_of(list, root, pids, room);
    gv_free(list);
    return count;
}

// ---- The keeper ---------------------------------------------------------------------------------------------------
// Forked and not executed: it runs with what fork left it, calls nothing that allocates, and ends with _exit.

typedef struct stop_order {
    int signal;
    double seconds;
} stop_order;

typedef struct child_notice {
    bool stopped; // else the program has ended
    bool all_gone;
    int status;
} child_notice;

typedef struct keeper {
    int socket, signals;
    pid_t program;
    bool program_ended;
    int status;
    process_list list;
    pid_t pids[MOST_PIDS];
} keeper;

// Takes in every process that has ended. False when there is no child left.
static bool reap(keeper *k)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid == 0)
            return true;
        if (pid < 0)
            return errno != ECHILD;
        if (pid == k->program && !k->program_ended) {
            k->program_ended = true;
            k->status = status;
            child_notice notice = {.status = status};
            send(k->socket, &notice, sizeof notice, MSG_NOSIGNAL);
        }
    }
}

// Kills everything below this process. Orphans come to it as their new parent, so that it is done when it has no child.
static bool kill_all(keeper *k)
{
    double until = gv_now() + KILL_SECONDS;
    while (reap(k)) {
        list_processes(&k->list);
        size_t count = tree_of(&k->list, getpid(), k->pids, MOST_PIDS);
        for (size_t i = 0; i < count; i++)
            kill(k->pids[i], SIGKILL);
        if (gv_now() > until)
            return false;
        pause_for(0.002);
    }
    return true;
}

static bool wait_for_program(keeper *k, double seconds)
{
    double until = gv_now() + seconds;
    while (!k->program_ended) {
        double left = until - gv_now();
        if (left <= 0)
            return false;
        struct pollfd wait = {.fd = k->signals, .events = POLLIN};
        poll(&wait, 1, (int)(left * 1000) + 1);
        struct signalfd_siginfo info;
        while (read(k->signals, &info, sizeof info) == sizeof info)
            ;
        if (!reap(k))
            break;
    }
    return true;
}

// Until gravel says stop or is gone. Its end of the socket closes with it, however it ends.
static _Noreturn void keep(keeper *k)
{
    for (;;) {
        struct pollfd wait[2] = {{.fd = k->socket, .events = POLLIN}, {.fd = k->signals, .events = POLLIN}};
        poll(wait, 2, -1);
        struct signalfd_siginfo info;
        while (read(k->signals, &info, sizeof info) == sizeof info)
            ;
        reap(k);
        if (!wait[0].revents)
            continue;
        stop_order order;
        ssize_t got = recv(k->socket, &order, sizeof order, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (got == (ssize_t)sizeof order) {
            if (!k->program_ended) {
                kill(-k->program, order.signal);
                wait_for_program(k, order.seconds);
            }
            child_notice notice = {.stopped = true, .all_gone = kill_all(k), .status = k->status};
            send(k->socket, &notice, sizeof notice, MSG_NOSIGNAL);
            // What could not be killed (it sleeps in the kernel) is this process's to wait for.
            while (!notice.all_gone)
                notice.all_gone = kill_all(k);
        } else {
            while (!kill_all(k))
                ;
        }
        _exit(0);
    }
}

// ---- Starting -----------------------------------------------------------------------------------------------------

// What went wrong between fork and exec, sent through a pipe that a good exec closes.
typedef struct start_failure {
    enum { FAILED_FOLDER = 1, FAILED_OUTPUT, FAILED_EXEC, FAILED_FORK } step;
    int number;
} start_failure;

static _Noreturn void fail_start(int pipe, int step, int number)
{
    start_failure failure = {.step = step, .number = number};
    if (write(pipe, &failure, sizeof failure) < 0)
        _exit(126);
    _exit(127);
}

static _Noreturn void become_program(const gv_spawn *spawn, const char *program, int report)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    int output = open(spawn->output, O_WRONLY | O_CREAT | O_APPEND, 0666);
    int errors =
        strcmp(spawn->errors, spawn->output) == 0 ? output : open(spawn->errors, O_WRONLY | O_CREAT | O_APPEND, 0666);
    int input = open("/dev/null", O_RDONLY);
    if (output < 0 || errors < 0 || input < 0)
        fail_start(report, FAILED_OUTPUT, errno);
    // In this order: `output` may itself be 0, 1 or 2, which were closed.
    int high_output = fcntl(output, F_DUPFD, 10), high_errors = fcntl(errors, F_DUPFD, 10);
    if (dup2(input, 0) < 0 || dup2(high_output, 1) < 0 || dup2(high_errors, 2) < 0)
        fail_start(report, FAILED_OUTPUT, errno);
    close_range(3, (unsigned)report - 1, 0);
    close_range((unsigned)report + 1, ~0u, 0);
    if (spawn->directory && chdir(spawn->directory) != 0)
        fail_start(report, FAILED_FOLDER, errno);
    execve(program, spawn->argv, spawn->environment);
    fail_start(report, FAILED_EXEC, errno);
}

static _Noreturn void become_keeper(const gv_spawn *spawn, const char *program, keeper *k, int report)
{
    setsid();
    prctl(PR_SET_NAME, "gravel-keeper");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(SIGCHLD, SIG_DFL);
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    // Nothing of gravel's stays open here: not its ledger, not its terminal, and no other keeper's socket.
    int high_socket = fcntl(k->socket, F_DUPFD_CLOEXEC, 100), high_report = fcntl(report, F_DUPFD_CLOEXEC, 100);
    int low = high_socket < high_report ? high_socket : high_report;
    int high = high_socket < high_report ? high_report : high_socket;
    close_range(0, (unsigned)low - 1, 0);
    if (high > low + 1)
        close_range((unsigned)low + 1, (unsigned)high - 1, 0);
    close_range((unsigned)high + 1, ~0u, 0);
    k->socket = high_socket;
    k->signals = signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
    k->program = fork();
    if (k->program == 0)
        become_program(spawn, program, high_report);
    if (k->program < 0 || k->signals < 0)
        fail_start(high_report, FAILED_FORK, errno);
    setpgid(k->program, k->program);
    close(high_report);
    send(k->socket, &k->program, sizeof k->program, MSG_NOSIGNAL);
    keep(k);
}

// As execvp does it, but with the PATH that the program will have.
char *gv_program_path(const char *name, const char *directory, char *const *environment)
{
    const char *path = NULL;
    for (size_t i = 0; environment[i]; i++) {
        if (strncmp(environment[i], "PATH=", 5) == 0)
            path = environment[i] + 5;
    }
    bool relative = strchr(name, '/') && name[0] != '/' && directory;
    if (strchr(name, '/') || !path) {
        char *own = relative ? gv_malloc(strlen(directory) + strlen(name) + 2) : gv_strdup(name);
        if (own && relative)
            sprintf(own, "%s/%s", directory, name);
        return own;
    }
    while (*path) {
        size_t length = strcspn(path, ":");
        char *candidate = gv_malloc(length + strlen(name) + 3);
        if (!candidate)
            return NULL;
        sprintf(candidate, "%.*s/%s", length ? (int)length : 1, length ? path : ".", name);
        if (access(candidate, X_OK) == 0)
            return candidate;
        gv_free(candidate);
        path += length + (path[length] == ':');
    }
    return gv_strdup(name);
}

static gv_status explain(const gv_spawn *spawn, const start_failure *failure, gv_error *error)
{
    const char *why = strerror(failure->number);
    switch (failure->step) {
    case FAILED_FOLDER:
        return gv_fail(error, GV_ERR_MISSING, "the working folder %s of %s: %s", spawn->directory, spawn->argv[0], why);
    case FAILED_OUTPUT: return gv_fail(error, GV_ERR_IO, "%s cannot be written: %s", spawn->output, why);
    case FAILED_EXEC:
        return gv_fail(error, GV_ERR_MISSING, "%s cannot be run: %s; check the plan's command", spawn->argv[0], why);
    default: return gv_fail(error, GV_ERR_IO, "no process could be started: %s", why);
    }
}

gv_status gv_child_start(const gv_spawn *spawn, gv_child *child, gv_error *error)
{
    *child = (gv_child){.socket = -1};
    int sockets[2], report[2];
    char *program = gv_program_path(spawn->argv[0], spawn->directory, spawn->environment);
    keeper *k = gv_calloc(1, sizeof *k);
    if (!program || !k) {
        gv_free(program);
        gv_free(k);
        return gv_fail(error, GV_ERR_MEMORY, "out of memory for a process");
    }
    gv_status status = GV_OK;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
        status = gv_fail(error, GV_ERR_IO, "no socket for a process: %s", strerror(errno));
    } else if (pipe2(report, O_CLOEXEC) != 0) {
        status = gv_fail(error, GV_ERR_IO, "no pipe for a process: %s", strerror(errno));
        close(sockets[0]);
        close(sockets[1]);
    }
    if (status == GV_OK) {
        k->socket = sockets[1];
        pid_t pid = fork();
        if (pid == 0)
            become_keeper(spawn, program, k, report[1]);
        close(sockets[1]);
        close(report[1]);
        start_failure failure;
        ssize_t got = 0;
        if (pid < 0) {
            failure = (start_failure){.step = FAILED_FORK, .number = errno};
            got = sizeof failure;
        } else {
            child->keeper = pid;
            child->keeper_start = gv_process_start(pid);
            do
                got = read(report[0], &failure, sizeof failure);
            while (got < 0 && errno == EINTR);
        }
        close(report[0]);
        child->socket = sockets[0];
        if (got != 0) {
            status = explain(spawn, &failure, error);
        } else {
            do
                got = recv(child->socket, &child->pid, sizeof child->pid, 0);
            while (got < 0 && errno == EINTR);
            if (got != (ssize_t)sizeof child->pid)
                status = gv_fail(error, GV_ERR_IO, "the keeper of %s ended at once", spawn->argv[0]);
        }
        if (status != GV_OK) {
            close(child->socket);
            if (pid > 0)
                waitpid(pid, NULL, 0);
            *child = (gv_child){.socket = -1};
        }
    }
    gv_free(program);
    gv_free(k);
    return status;
}

// Takes one notice of the keeper. False when none came in time.
static bool receive(gv_child *child, double seconds, int wake, child_notice *notice)
{
    double until = gv_now() + seconds;
    for (;;) {
        double left = until - gv_now();
        struct pollfd wait[2] = {{.fd = child->socket, .events = POLLIN}, {.fd = wake, .events = POLLIN}};
        int ready = poll(wait, wake >= 0 ? 2 : 1, left > 0 ? (int)(left < 1e6 ? left * 1000 : 1e9) + 1 : 0);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready > 0 && wait[0].revents) {
            ssize_t got = recv(child->socket, notice, sizeof *notice, MSG_DONTWAIT);
            if (got == (ssize_t)sizeof *notice)
                return true;
            // The keeper is gone: someone killed it, and the program with it.
            *notice = (child_notice){.stopped = true, .all_gone = true, .status = SIGKILL};
            return true;
        }
        if (ready > 0 || left <= 0)
            return false;
    }
}

bool gv_child_wait(gv_child *child, double seconds, int wake)
{
    child_notice notice;
    if (!child->ended && receive(child, seconds, wake, &notice)) {
        child->ended = true;
        child->status = notice.status;
    }
    return child->ended;
}

bool gv_child_stop(gv_child *child, int signal, double seconds)
{
    if (child->socket < 0)
        return true;
    stop_order order = {.signal = signal, .seconds = seconds};
    bool good = send(child->socket, &order, sizeof order, MSG_NOSIGNAL) == (ssize_t)sizeof order;
    child_notice notice = {0};
    while (good && !notice.stopped) {
        if (!receive(child, seconds + KILL_SECONDS + 10, -1, &notice))
            break;
        if (!child->ended) {
            child->ended = true;
            child->status = notice.status;
        }
    }
    bool gone = !good || (notice.stopped && notice.all_gone);
    close(child->socket);
    child->socket = -1;
    if (gone) {
        while (waitpid(child->keeper, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    return gone;
}

const char *gv_child_status_text(int status)
{
    static _Thread_local char text[64];
    if (WIFSIGNALED(status))
        snprintf(text, sizeof text, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(text, sizeof text, "exit code %d", WEXITSTATUS(status));
    return text;
}

void gv_keeper_end(pid_t pid, uint64_t start)
{
    double until = gv_now() + KILL_SECONDS;
    while (start != 0 && gv_process_start(pid) == start) {
        if (gv_now() > until) {
            static pid_t pids[MOST_PIDS];
            size_t count = gv_process_tree(pid, pids, MOST_PIDS);
            kill(pid, SIGKILL);
            for (size_t i = 0; i < count; i++)
                kill(pids[i], SIGKILL);
        }
        pause_for(0.01);
    }
}
