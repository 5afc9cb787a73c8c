#include "record/recorder.h"

#include "base/memory.h"
#include "record/arm.h"
#include "record/canary.h"
#include "record/differ.h"
#include "record/fix.h"
#include "record/graph.h"
#include "record/hook.h"
#include "record/ids.h"
#include "record/probe.h"
#include "record/rows.h"
#include "record/source.h"
#include "soft/gravel_soft.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

gv_recorder gv_state;

static atomic_int phase = GV_PHASE_IDLE;
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t order_lock = PTHREAD_MUTEX_INITIALIZER; // sequence numbers are given in writing order
static atomic_ullong sequence;
static pid_t owner; // the process whose trace is open

// Depth of hooks on this thread. Initial-exec: the library is preloaded, and the general model may call malloc.
static __thread int depth __attribute__((tls_model("initial-exec")));
static __thread int kept_errno __attribute__((tls_model("initial-exec")));

// ---- Messages ------------------------------------------------------------------------------------------------

static void say(const char *format, va_list arguments)
{
    char line[1024];
    int length = snprintf(line, sizeof line, "gravel: ");
    int more = vsnprintf(line + length, sizeof line - (size_t)length - 1, format, arguments);
    if (more < 0)
        return;
    length += more;
    if (length > (int)sizeof line - 2)
        length = (int)sizeof line - 2;
    line[length++] = '\n';
    // One write, so that lines of several processes do not mix. Nothing can be done about a closed stderr.
    ssize_t written = write(STDERR_FILENO, line, (size_t)length);
    (void)written;
}

void gv_say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
}

void gv_verbose(const char *format, ...)
{
    if (!gv_state.options.verbose)
        return;
    va_list arguments;
    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
}

static void note(enum gv_note_severity severity, uint64_t graph, uint64_t node, const char *format, va_list arguments)
{
    char text[768];
    vsnprintf(text, sizeof text, format, arguments);
    gv_note_record record = {
        .severity = severity,
        .text = {text, strlen(text)},
        .graph = graph,
        .node = node,
        .operation = atomic_load(&sequence),
    };
    if (gv_state.writer)
        gv_write_note(gv_state.writer, &record);
    if (severity != GV_NOTE_INFO || gv_state.options.verbose)
        gv_say("%s", text);
}

void gv_note(enum gv_note_severity severity, uint64_t graph, uint64_t node, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    note(severity, graph, node, format, arguments);
    va_end(arguments);
}

bool gv_first_time(gv_said *said, const char *key)
{
    bool first = true;
    pthread_mutex_lock(&said->lock);
    for (size_t i = 0; i < said->count && first; i++)
        first = strncmp(said->keys[i], key, sizeof said->keys[i] - 1) != 0;
    if (first && said->count < said->most)
        snprintf(said->keys[said->count++], sizeof said->keys[0], "%s", key);
    else
        first = false;
    pthread_mutex_unlock(&said->lock);
    return first;
}

void gv_note_once(enum gv_note_severity severity, const char *key, const char *format, ...)
{
    static gv_said said = GV_SAID_INIT(GV_SAID_KEYS);
    if (!gv_first_time(&said, key))
        return;
    va_list arguments;
    va_start(arguments, format);
    note(severity, 0, 0, format, arguments);
    va_end(arguments);
}

void gv_switch_off(const char *format, ...)
{
    if (atomic_exchange(&phase, GV_PHASE_OFF) == GV_PHASE_OFF)
        return;
    va_list arguments;
    va_start(arguments, format);
    note(GV_NOTE_FAILURE, 0, 0, format, arguments);
    va_end(arguments);
    gv_say("recording is off from here on; the program goes on unchanged");
    gv_flush();
}

// ---- Options -------------------------------------------------------------------------------------------------

static bool is_number(const char *text, uint64_t *value)
{
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    *value = number;
    return *text >= '0' && *text <= '9' && !*end && !errno;
}

// A limit in MiB; none when the variable is not set or is not a number.
static uint64_t mebibytes(const char *variable)
{
    const char *text = getenv(variable);
    uint64_t value;
    return text && is_number(text, &value) && value < UINT64_MAX >> 20 ? value << 20 : UINT64_MAX;
}

// "first" or "every=K"; anything else, "0" and nothing among it, is none.
static enum gv_perturb_mode perturb_mode(const char *variable, uint64_t *number)
{
    const char *text = getenv(variable);
    *number = 1;
    if (text && strcmp(text, "first") == 0)
        return GV_PERTURB_FIRST;
    if (text && strncmp(text, "every=", 6) == 0 && is_number(text + 6, number) && *number)
        return GV_PERTURB_EVERY;
    return GV_PERTURB_NONE;
}

static void read_options(gv_record_options *options)
{
    const char *arm = getenv("GRAVEL_ARM");
    const char *diff = getenv("GRAVEL_DIFF");
    const char *graph = getenv("GRAVEL_GRAPH");
    const char *stacks = getenv("GRAVEL_STACKS");
    const char *verbose = getenv("GRAVEL_VERBOSE");
    const char *stall = getenv("GRAVEL_STALL_SECONDS");
    const char *loop = getenv("GRAVEL_LOOP_ITERATIONS");
    const char *search = getenv("GRAVEL_SEARCH_SECONDS");
    const char *probe = getenv("GRAVEL_PROBE"), *probe_memory = getenv("GRAVEL_PROBE_MEMORY");
    uint64_t iterations;
    *options = (gv_record_options){.arm = GV_ARM_NTH,
                                   .arm_number = 1,
                                   .loop_iterations = 1000,
                                   .stall_seconds = 10,
                                   .compare_bytes = mebibytes("GRAVEL_COMPARE_MEMORY"),
                                   .diff_bytes = mebibytes("GRAVEL_DIFF_MEMORY"),
                                   .diff_host_bytes = mebibytes("GRAVEL_DIFF_HOST_MEMORY"),
                                   .search_bytes = mebibytes("GRAVEL_SEARCH_MEMORY"),
                                   .search_seconds = 10};
    if (arm && *arm && strcmp(arm, "first") != 0) {
        if (strcmp(arm, "none") == 0)
            options->arm = GV_ARM_NONE;
        else if (strcmp(arm, "all") == 0)
            options->arm = GV_ARM_ALL;
        else if (strncmp(arm, "every=", 6) == 0 && is_number(arm + 6, &options->arm_number) && options->arm_number)
            options->arm = GV_ARM_EVERY;
        else if (!is_number(arm, &options->arm_number) || !options->arm_number) {
            gv_say("GRAVEL_ARM=%s is not first, none, all, every=K or a number; taking first", arm);
            options->arm_number = 1;
        }
    }
    if (diff && *diff && strcmp(diff, "none") != 0) {
        options->diff = GV_DIFF_FIRST;
        if (strncmp(diff, "every=", 6) == 0 && is_number(diff + 6, &options->diff_number) && options->diff_number)
            options->diff = GV_DIFF_EVERY;
        else if (strcmp(diff, "first") != 0)
            gv_say("GRAVEL_DIFF=%s is not first, none or every=K; taking first", diff);
    }
    if (graph)
        snprintf(options->graph, sizeof options->graph, "%s", graph);
    options->stacks = !stacks || strcmp(stacks, "0") != 0;
    const char *times = getenv("GRAVEL_TIMES"), *light = getenv("GRAVEL_LIGHT");
    options->times = times && strcmp(times, "1") == 0;
    options->light = light && strcmp(light, "1") == 0;
    options->stacks = options->stacks && !options->light;
    options->verbose = verbose && *verbose && strcmp(verbose, "0") != 0;
    if (stall && atof(stall) > 0)
        options->stall_seconds = atof(stall);
    options->pad = perturb_mode("GRAVEL_PAD", &options->pad_number);
    options->poison = perturb_mode("GRAVEL_POISON", &options->poison_number);
    options->probe = probe && *probe && strcmp(probe, "0") != 0;
    options->probe_bytes = probe_memory && *probe_memory ? mebibytes("GRAVEL_PROBE_MEMORY") : UINT64_C(256) << 20;
    if (loop && is_number(loop, &iterations))
        options->loop_iterations = iterations;
    if (search && *search)
        options->search_seconds = atof(search);
}

// ---- Start ---------------------------------------------------------------------------------------------------

// The trace's name: %p becomes the process id. Without %p the first process to use CUDA takes the name as it is and
// every further one gets .<pid>.gravel appended to it, since one file holds one process.
static bool trace_path(char *path, size_t size)
{
    const char *pattern = getenv("GRAVEL_TRACE");
    if (!pattern || !*pattern)
        return false;
    const char *place = strstr(pattern, "%p");
    int length;
    if (place) {
        length = snprintf(path, size, "%.*s%d%s", (int)(place - pattern), pattern, (int)getpid(), place + 2);
        return length > 0 && (size_t)length < size;
    }
    length = snprintf(path, size, "%s", pattern);
    if (length <= 0 || (size_t)length >= size)
        return false;
    int taken = open(path, O_CREAT | O_EXCL | O_CLOEXEC | O_WRONLY, 0666);
    if (taken >= 0) {
        close(taken);
        return true;
    }
    length = snprintf(path, size, "%s.%d.gravel", pattern, (int)getpid());
    return length > 0 && (size_t)length < size;
}

static void read_command_line(char *text, size_t size)
{
    text[0] = '\0';
    int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    ssize_t got = read(file, text, size - 1);
    close(file);
    if (got <= 0)
        return;
    text[got] = '\0';
    for (ssize_t i = 0; i + 1 < got; i++)
        if (text[i] == '\0')
            text[i] = ' ';
}

static gv_text text_of(const char *text)
{
    return (gv_text){text, strlen(text)};
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void write_process(void)
{
    char command[4096], executable[PATH_MAX] = "", host[256] = "", driver[64], source[256];
    int version = 0;
    gv_cuda.cuDriverGetVersion(&version);
    read_command_line(command, sizeof command);
    ssize_t length = readlink("/proc/self/exe", executable, sizeof executable - 1);
    executable[length > 0 ? length : 0] = '\0';
    gethostname(host, sizeof host - 1);
    snprintf(driver, sizeof driver, gv_state.soft ? "soft" : "cuda");
    if (!gv_state.soft) {
        FILE *file = fopen("/proc/driver/nvidia/version", "re");
        char line[256] = "";
        if (file) {
            if (fgets(line, sizeof line, file)) {
                // "... Kernel Module ... 580.159.04 Release Build": the first word of digits and dots.
                for (char *word = strtok(line, " "); word; word = strtok(NULL, " "))
                    if (word[0] >= '0' && word[0] <= '9' && strchr(word, '.')) {
                        snprintf(driver, sizeof driver, "cuda %s", word);
                        break;
                    }
            }
            fclose(file);
        }
    }
    gv_source_describe(source, sizeof source);
    const char *arm = getenv("GRAVEL_ARM"), *diff = getenv("GRAVEL_DIFF");
    char options[128];
    snprintf(options, sizeof options, "%.40s%s%.40s", arm && *arm ? arm : "first",
             gv_state.options.diff ? " diff=" : "", gv_state.options.diff ? diff : "");
    gv_process_record record = {
        .pid = (uint64_t)getpid(),
        .ppid = (uint64_t)getppid(),
        .time_ns = now_ns(),
        .executable = text_of(executable),
        .command_line = text_of(command),
        .host = text_of(host),
        .gravel_version = text_of(GRAVEL_VERSION),
        .driver_version = (uint64_t)version,
        .driver = text_of(driver),
        .access_source = text_of(source),
        .options = text_of(options),
    };
    gv_write_process(gv_state.writer, &record);
}

// Opens the trace. Under start_lock. Leaves the phase at RECORDING or OFF.
static void start(void)
{
    char path[PATH_MAX];
    const char *missing = NULL;
    gv_error error = {0};
    read_options(&gv_state.options);
    if (!trace_path(path, sizeof path)) {
        atomic_store(&phase, GV_PHASE_OFF); // loaded, but nobody asked for a trace
        return;
    }
    if (!gv_driver_load(&missing)) {
        atomic_store(&phase, GV_PHASE_OFF);
        gv_say("the driver has no %s: gravel needs a driver of CUDA 12.4 or later. Nothing is recorded", missing);
        return;
    }
    if (gv_writer_create(path, &gv_state.writer, &error) != GV_OK) {
        atomic_store(&phase, GV_PHASE_OFF);
        gv_say("%s. Nothing is recorded", error.text);
        return;
    }
    gv_state.soft = gv_driver_symbol(GRAVEL_SOFT_API_SYMBOL) != NULL;
    gv_state.stacks = gv_stacks_create(gv_state.writer);
    if (!gv_state.stacks) {
        atomic_store(&phase, GV_PHASE_OFF);
        gv_say("out of memory at start. Nothing is recorded");
        return;
    }
    owner = getpid();
    atomic_store(&sequence, 0);
    write_process();
    gv_differ_write_settings();
    gv_fix_open();
    gv_canary_start();
    gv_flush();
    atomic_store(&phase, GV_PHASE_RECORDING);
}

bool gv_inside(void)
{
    return depth > 0;
}

static bool enter(bool graph)
{
    if (depth > 0)
        return false;
    int now = atomic_load_explicit(&phase, memory_order_acquire);
    if (now == GV_PHASE_IDLE) {
        // Without a context nothing can be allocated, launched or captured: a process that only counts devices, as
        // the parents of workers do, leaves no file.
        depth++;
        pthread_mutex_lock(&start_lock);
        if (atomic_load(&phase) == GV_PHASE_IDLE) {
            CUcontext current = NULL;
            const char *missing = NULL;
            if (!gv_driver_load(&missing) || (gv_cuda.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current))
                start();
        }
        pthread_mutex_unlock(&start_lock);
        depth--;
        now = atomic_load(&phase);
    }
    if (now != GV_PHASE_RECORDING || (gv_state.options.light && !graph && !gv_captures_active()))
        return false;
    kept_errno = errno;
    depth = 1;
    return true;
}

bool gv_enter(void)
{
    return enter(false);
}

bool gv_enter_graph(void)
{
    return enter(true);
}

void gv_leave(void)
{
    depth = 0;
    errno = kept_errno;
}

// cuInit is where the driver loads libgravel-record.so once more, as its injection library. What that does in the
// driver's name is not the program's doing.
GV_HOOK(cuInit, (unsigned flags), (flags))
{
    int outer = depth;
    depth = 1;
    CUresult result = real(flags);
    depth = outer;
    return result;
}

// ---- Writing -------------------------------------------------------------------------------------------------

static uint64_t thread_id(void)
{
    static __thread uint64_t id __attribute__((tls_model("initial-exec")));
    if (!id)
        id = (uint64_t)syscall(SYS_gettid);
    return id;
}

uint64_t gv_operation(gv_operation_record *operation)
{
    return gv_operation_defining(operation, NULL, NULL);
}

uint64_t gv_operation_defining(gv_operation_record *operation, void (*define)(uint64_t sequence, void *user),
                               void *user)
{
    operation->thread = thread_id();
    pthread_mutex_lock(&order_lock);
    operation->sequence = atomic_fetch_add(&sequence, 1) + 1;
    if (define)
        define(operation->sequence, user);
    gv_status status = gv_state.options.light ? GV_OK : gv_write_operation(gv_state.writer, operation);
    pthread_mutex_unlock(&order_lock);
    if (status == GV_ERR_IO) {
        const char *why = gv_writer_failure(gv_state.writer);
        gv_switch_off("writing the trace failed: %s", why ? why : "unknown error");
    }
    return operation->sequence;
}

uint64_t gv_last_operation(void)
{
    return atomic_load(&sequence);
}

uint64_t gv_stack(void)
{
    return gv_state.options.stacks ? gv_stacks_capture(gv_state.stacks) : 0;
}

void gv_flush(void)
{
    if (gv_state.writer)
        gv_writer_flush(gv_state.writer);
}

// ---- The process's ends and beginnings -----------------------------------------------------------------------

// Writes what is buffered, with an end record. The writer stays: other threads may still be in hooks.
static void finish(uint64_t reason)
{
    // Inside a hook, this is a signal handler that ends the process: the thread it interrupted may hold the writer's
    // lock.
    if (atomic_load(&phase) != GV_PHASE_RECORDING || owner != getpid() || depth > 0)
        return;
    gv_canary_finish();
    gv_end_record record = {.time_ns = now_ns(), .operations = atomic_load(&sequence), .reason = reason};
    gv_write_end(gv_state.writer, &record);
    gv_flush();
}

static void finish_at_exit(void)
{
    finish(0);
    if (owner == getpid())
        atomic_store(&phase, GV_PHASE_FINISHED);
}

// The child has a copy of the parent's buffer and must not write it; its locks may be held by threads it does not
// have. It starts anew if it comes to use CUDA (which the driver allows only where the parent had not).
static void after_fork_in_child(void)
{
    if (atomic_load(&phase) == GV_PHASE_RECORDING || atomic_load(&phase) == GV_PHASE_FINISHED) {
        if (gv_state.writer)
            gv_writer_abandon(gv_state.writer);
        gv_state.writer = NULL;
        gv_state.stacks = NULL; // leaked: its lock may be held
        gv_ids_forget();
        gv_rows_forget();
        gv_probe_forget();
        atomic_store(&phase, GV_PHASE_IDLE);
    }
    pthread_mutex_init(&start_lock, NULL);
    pthread_mutex_init(&order_lock, NULL);
    gv_arm_after_fork();
    gv_canary_after_fork();
    gv_check_after_fork();
    depth = 0;
}

__attribute__((constructor)) static void watch_process(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

__attribute__((destructor)) static void at_exit(void)
{
    finish_at_exit();
}

// exec and _exit end the process image without destructors. A child between vfork and exec shares our memory but not
// our pid, which finish() checks.
#define GV_WRAP_EXEC(name, parameters, arguments)            \
    GV_EXPORT int name parameters;                           \
    int name parameters                                      \
    {                                                        \
        static int(*real) parameters;                        \
        if (!real)                                           \
            *(void **)&real = dlsym(RTLD_NEXT, #name);       \
        finish(1);                                           \
        return real ? real arguments : (errno = ENOSYS, -1); \
    }

#include <dlfcn.h>
GV_WRAP_EXEC(execve, (const char *path, char *const argv[], char *const envp[]), (path, argv, envp))
GV_WRAP_EXEC(execv, (const char *path, char *const argv[]), (path, argv))
GV_WRAP_EXEC(execvp, (const char *file, char *const argv[]), (file, argv))
GV_WRAP_EXEC(execvpe, (const char *file, char *const argv[], char *const envp[]), (file, argv, envp))
GV_WRAP_EXEC(fexecve, (int file, char *const argv[], char *const envp[]), (file, argv, envp))

GV_EXPORT void _exit(int status);
void _exit(int status)
{
    finish_at_exit();
    syscall(SYS_exit_group, status);
    __builtin_unreachable();
}

GV_EXPORT void _Exit(int status);
void _Exit(int status)
{
    _exit(status);
}
