// Call stacks: interning, module resolution, threads, modules that come and go, forks, signals.
// Paths of the two plugins come from the build.
#include "test_stack_probe.h"
#include "trace/reader.h"
#include "trace/trace.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static char trace_path[64];

static int open_trace(void **state)
{
    (void)state;
    strcpy(trace_path, "/tmp/gravel-test-stack-XXXXXX");
    int fd = mkstemp(trace_path);
    if (fd < 0)
        return -1;
    close(fd);
    return probe_open(trace_path);
}

static int remove_trace(void **state)
{
    (void)state;
    return unlink(trace_path);
}

static gv_trace *load(const char *path)
{
    gv_trace *trace = NULL;
    gv_error error = {0};
    if (gv_trace_load(path, &trace, &error) != GV_OK)
        fail_msg("%s", error.text);
    assert_int_equal(trace->undefined, 0);
    return trace;
}

static gv_trace *close_and_load(void)
{
    assert_int_equal(probe_close(), 0);
    return load(trace_path);
}

// ---- Interning ----------------------------------------------------------------------------------------------

static void equal_stacks_are_written_once(void **state)
{
    (void)state;
    uint64_t ids[2] = {0};
    for (int i = 0; i < 100000; i++) {
        uint64_t id = probe_capture();
        if (ids[0] == 0)
            ids[0] = id;
        assert_int_equal(id, ids[0]);
    }
    ids[1] = probe_capture();
    assert_int_not_equal(ids[0], 0);
    assert_int_not_equal(ids[1], 0);
    assert_int_not_equal(ids[0], ids[1]);

    gv_trace *trace = close_and_load();
    assert_int_equal(trace->stack_count, 3); // row 0 and two stacks
    gv_trace_free(trace);
    struct stat file;
    assert_int_equal(stat(trace_path, &file), 0);
    assert_true(file.st_size < 16 << 10);
}

static void strings_are_interned(void **state)
{
    (void)state;
    uint64_t a = probe_string("alpha", 5), b = probe_string("beta", 4);
    uint64_t prefix = probe_string("alphabet", 5), empty = probe_string("", 0);
    assert_int_equal(a, 1);
    assert_int_equal(b, 2);
    assert_int_equal(prefix, a);
    assert_int_equal(empty, 3);
    char text[32];
    for (int i = 0; i < 5000; i++)
        assert_int_equal(probe_string(text, (size_t)snprintf(text, sizeof text, "text %d", i)), 4 + i);
    for (int i = 4999; i >= 0; i--)
        assert_int_equal(probe_string(text, (size_t)snprintf(text, sizeof text, "text %d", i)), 4 + i);

    gv_trace *trace = close_and_load();
    assert_int_equal(trace->string_count, 5004);
    assert_string_equal(trace->strings[1], "alpha");
    assert_string_equal(trace->strings[2], "beta");
    assert_string_equal(trace->strings[3], "");
    assert_string_equal(trace->strings[5003], "text 4999");
    gv_trace_free(trace);
}

static void no_tables_and_no_memory_give_zero(void **state)
{
    (void)state;
    assert_int_equal(probe_capture_nowhere(), 0);
    // Every allocation of the first capture fails once. The last round has them all.
    uint64_t id = 0;
    long successes = 0;
    for (; id == 0 && successes < 100; successes++) {
        probe_fail_after(successes);
        id = probe_capture();
        probe_fail_after(-1);
    }
    assert_int_not_equal(id, 0);
    assert_true(successes > 1);
    gv_trace *trace = close_and_load();
    assert_true(trace->stacks[id].host_count > 0);
    gv_trace_free(trace);
}

static void errno_is_kept(void **state)
{
    (void)state;
    errno = EXDEV;
    probe_capture();
    assert_int_equal(errno, EXDEV);
    probe_string("x", 1);
    assert_int_equal(errno, EXDEV);
    assert_int_equal(probe_close(), 0);
}

// ---- Host frames --------------------------------------------------------------------------------------------

// One capture beside one backtrace() of the C library, which agree on every frame but the innermost.
typedef struct both_stacks {
    void *addresses[100];
    int count;
    uint64_t id;
} both_stacks;

static __attribute__((noinline)) void capture_both(both_stacks *both)
{
    both->id = probe_capture();
    both->count = backtrace(both->addresses, 100);
}

static void frames_agree_with_dladdr(void **state)
{
    (void)state;
    both_stacks both = {0};
    capture_both(&both);
    char *real[100] = {NULL};
    gv_trace *trace = close_and_load();
    const gv_stack *stack = &trace->stacks[both.id];
    // A sanitizer's backtrace() begins with a frame of its own, so the two are compared from the outside in.
    assert_in_range(both.count, stack->host_count, stack->host_count + 1);
    size_t skip = (size_t)both.count - stack->host_count;
    assert_true(stack->host_count >= 5);
    for (size_t i = 1; i < stack->host_count; i++) {
        Dl_info info;
        struct link_map *map = NULL;
        char *address = both.addresses[i + skip];
        assert_true(dladdr1(address - 1, &info, (void **)&map, RTLD_DL_LINKMAP));
        assert_int_equal(stack->host[i].address, (uintptr_t)address - map->l_addr);
        real[i] = realpath(map->l_name[0] ? map->l_name : "/proc/self/exe", NULL);
        char *module = realpath(trace->modules[stack->host[i].module].path, NULL);
        assert_non_null(module);
        assert_string_equal(module, real[i]);
        assert_int_equal(trace->modules[stack->host[i].module].path[0], '/');
        free(module);
        free(real[i]);
    }
    // The innermost frame is this program's own: the library that captures has none.
    char *self = realpath("/proc/self/exe", NULL);
    assert_string_equal(trace->modules[stack->host[0].module].path, self);
    free(self);
    gv_trace_free(trace);
}

static __attribute__((noinline)) uint64_t recurse(int depth)
{
    volatile uint64_t id = depth > 0 ? recurse(depth - 1) : probe_capture();
    return id;
}

// How many frames from `first` on return to the same place.
static size_t equal_frames(const gv_stack *stack, size_t first)
{
    size_t i = first;
    while (i < stack->host_count && stack->host[i].module == stack->host[first].module &&
           stack->host[i].address == stack->host[first].address)
        i++;
    return i - first;
}

static void recursion_is_seen_and_cut(void **state)
{
    (void)state;
    uint64_t shallow = recurse(10), deep = recurse(1000);
    gv_trace *trace = close_and_load();
    assert_int_equal(equal_frames(&trace->stacks[shallow], 1), 10);
    assert_true(trace->stacks[shallow].host_count < 48);
    assert_int_equal(trace->stacks[deep].host_count, 48);
    assert_int_equal(equal_frames(&trace->stacks[deep], 1), 47);
    assert_int_equal(trace->stacks[shallow].python_count, 0);
    gv_trace_free(trace);
}

// ---- Modules ------------------------------------------------------------------------------------------------

static uint64_t capture_through(const char *path)
{
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!plugin)
        fail_msg("%s", dlerror());
    uint64_t (*call)(uint64_t(*)(void)) = (uint64_t(*)(uint64_t(*)(void)))dlsym(plugin, "plugin_call");
    uint64_t id = call(probe_capture);
    assert_int_equal(dlclose(plugin), 0);
    return id;
}

static void assert_build_id_is_in_file(const gv_module *module)
{
    int fd = open(module->path, O_RDONLY | O_CLOEXEC);
    struct stat file;
    assert_int_equal(fstat(fd, &file), 0);
    void *bytes = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    assert_int_equal(module->build_id.length, 20);
    assert_non_null(memmem(bytes, (size_t)file.st_size, module->build_id.data, module->build_id.length));
    munmap(bytes, (size_t)file.st_size);
    close(fd);
}

static void modules_may_come_and_go(void **state)
{
    (void)state;
    uint64_t first = capture_through(PLUGIN_A), other = capture_through(PLUGIN_B), again = 0;
    for (int i = 0; i < 50; i++) {
        capture_through(PLUGIN_B);
        again = capture_through(PLUGIN_A);
    }
    gv_trace *trace = close_and_load();
    const gv_host_frame *a = &trace->stacks[first].host[0], *b = &trace->stacks[other].host[0];
    assert_string_equal(trace->modules[a->module].path, PLUGIN_A);
    assert_string_equal(trace->modules[b->module].path, PLUGIN_B);
    assert_int_equal(trace->stacks[again].host[0].module, a->module);
    assert_int_equal(trace->stacks[again].host[0].address, a->address);
    assert_int_equal(b->address, a->address);
    assert_build_id_is_in_file(&trace->modules[a->module]);
    for (size_t i = 1; i < trace->module_count; i++) {
        for (size_t k = i + 1; k < trace->module_count; k++)
            assert_string_not_equal(trace->modules[i].path, trace->modules[k].path);
    }
    gv_trace_free(trace);
}

static void a_relative_module_path_becomes_absolute(void **state)
{
    (void)state;
    char before[PATH_MAX], folder[PATH_MAX], relative[PATH_MAX];
    assert_non_null(getcwd(before, sizeof before));
    strcpy(folder, PLUGIN_A);
    char *slash = strrchr(folder, '/');
    *slash = '\0';
    snprintf(relative, sizeof relative, "./%s", slash + 1);
    assert_int_equal(chdir(folder), 0);
    uint64_t id = capture_through(relative);
    assert_int_equal(chdir(before), 0);
    gv_trace *trace = close_and_load();
    assert_string_equal(trace->modules[trace->stacks[id].host[0].module].path, PLUGIN_A);
    gv_trace_free(trace);
}

// ---- Threads, signals, forks ------------------------------------------------------------------------------------

enum { THREADS = 8, ROUNDS = 2000 };

static void *capture_from_thread(void *data)
{
    uint64_t *ids = data;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t round[3] = {recurse(1), recurse(2), recurse(3)};
        if (i == 0)
            memcpy(ids, round, sizeof round);
        else if (memcmp(ids, round, sizeof round) != 0)
            return "a stack changed its id";
        char text[16];
        if (probe_string(text, (size_t)snprintf(text, sizeof text, "%d", i)) == 0)
            return "a string got no id";
    }
    return NULL;
}

static void *load_and_unload(void *data)
{
    (void)data;
    for (int i = 0; i < 100; i++)
        capture_through(i % 2 ? PLUGIN_A : PLUGIN_B);
    return NULL;
}

static void threads_share_ids(void **state)
{
    (void)state;
    pthread_t threads[THREADS], loader;
    uint64_t ids[THREADS][3];
    assert_int_equal(pthread_create(&loader, NULL, load_and_unload, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, capture_from_thread, ids[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        void *complaint;
        pthread_join(threads[i], &complaint);
        assert_null(complaint);
        assert_memory_equal(ids[i], ids[0], sizeof ids[0]);
    }
    pthread_join(loader, NULL);
    gv_trace *trace = close_and_load();
    // Three sites of the threads and two of the loader, and no string twice.
    assert_int_equal(trace->stack_count, 1 + 3 + 2);
    assert_int_equal(trace->string_count, 1 + ROUNDS);
    gv_trace_free(trace);
}

static volatile sig_atomic_t signals_seen;

static void capture_in_handler(int signal)
{
    (void)signal;
    probe_capture();
    probe_string("signal", 6);
    signals_seen = signals_seen + 1;
}

// A handler that interrupts a capture must neither wait for the lock its own thread holds nor enter the tables.
static void a_signal_handler_may_capture(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = capture_in_handler, .sa_flags = SA_RESTART}, before;
    probe_capture();
    capture_in_handler(0); // what it interns is there before it interrupts anything
    assert_int_equal(sigaction(SIGPROF, &action, &before), 0);
    struct itimerval timer = {.it_interval.tv_usec = 200, .it_value.tv_usec = 200}, off = {0};
    assert_int_equal(setitimer(ITIMER_REAL, &off, NULL), 0);
    assert_int_equal(setitimer(ITIMER_PROF, &timer, NULL), 0);
    uint64_t first = 0;
    // The timer counts the process's own time, in the system's ticks: as long as it takes, on any machine.
    while (signals_seen < 50) {
        uint64_t id = probe_capture();
        first = first ? first : id;
        assert_int_equal(id, first);
    }
    assert_int_equal(setitimer(ITIMER_PROF, &off, NULL), 0);
    sigaction(SIGPROF, &before, NULL);
    gv_trace_free(close_and_load());
}

// The child of a fork, in its own trace: 0 when ids begin at 1 again.
static int work_in_child(const char *path)
{
    if (probe_reopen_in_child(path) != 0)
        return 1;
    // volatile keeps it a loop, with one call and one return address.
    for (volatile int i = 0; i < 4; i = i + 1) {
        if (recurse(i % 2 ? 3 : 2) != (uint64_t)(1 + i % 2))
            return 2;
    }
    return probe_string("child", 5) != 1 ? 3 : probe_close() != 0 ? 4 : 0;
}

static _Atomic bool stop_capturing;

static void *capture_until_stopped(void *data)
{
    while (!stop_capturing)
        recurse(1);
    return data;
}

// Other threads hold the lock at most of these forks; the child must not wait for them.
static void a_forked_child_numbers_anew(void **state)
{
    (void)state;
    char child_path[80];
    snprintf(child_path, sizeof child_path, "%s-child", trace_path);
    assert_int_equal(probe_string("parent", 6), 1);
    pthread_t threads[2];
    stop_capturing = false;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, capture_until_stopped, NULL), 0);
    uint64_t parent_id = recurse(3);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(work_in_child(child_path));
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        gv_trace *trace = load(child_path);
        assert_int_equal(trace->stack_count, 3);
        assert_int_equal(equal_frames(&trace->stacks[1], 1), 2);
        assert_int_equal(equal_frames(&trace->stacks[2], 1), 3);
        assert_int_equal(trace->string_count, 2);
        assert_string_equal(trace->strings[1], "child");
        gv_trace_free(trace);
    }
    unlink(child_path);
    stop_capturing = true;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);

    gv_trace *trace = close_and_load();
    assert_int_equal(equal_frames(&trace->stacks[parent_id], 1), 3);
    assert_string_equal(trace->strings[1], "parent");
    gv_trace_free(trace);
}

static void a_foreign_thread_has_host_frames_only(void **state)
{
    (void)state;
    uint64_t id = probe_on_thread(NULL);
    gv_trace *trace = close_and_load();
    assert_true(trace->stacks[id].host_count > 0);
    assert_int_equal(trace->stacks[id].python_count, 0);
    gv_trace_free(trace);
}

#define WITH_TRACE(test) cmocka_unit_test_setup_teardown(test, open_trace, remove_trace)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_TRACE(equal_stacks_are_written_once),
        WITH_TRACE(strings_are_interned),
        WITH_TRACE(no_tables_and_no_memory_give_zero),
        WITH_TRACE(errno_is_kept),
        WITH_TRACE(frames_agree_with_dladdr),
        WITH_TRACE(recursion_is_seen_and_cut),
        WITH_TRACE(modules_may_come_and_go),
        WITH_TRACE(a_relative_module_path_becomes_absolute),
        WITH_TRACE(threads_share_ids),
        WITH_TRACE(a_signal_handler_may_capture),
        WITH_TRACE(a_forked_child_numbers_anew),
        WITH_TRACE(a_foreign_thread_has_host_frames_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
