// The recorder's call stacks in a shared library of their own, as they are in the recorder: frames of the library that
// captures are left out, so a test linked with stack.c would have none. Loaded by test_stack.c and, preloaded into
// Python, by test_python_stack.py.
#include "test_stack_probe.h"
#include "base/memory.h"
#include "record/stack.h"
#include "trace/trace.h"

#include <pthread.h>
#include <stdio.h>

static gv_writer *writer;
static gv_stacks *stacks;

PROBE_API int probe_open(const char *path)
{
    gv_error error = {0};
    if (gv_writer_create(path, &writer, &error) != GV_OK) {
        fprintf(stderr, "%s\n", error.text);
        return -1;
    }
    gv_process_record process = {.pid = 1};
    gv_write_process(writer, &process);
    stacks = gv_stacks_create(writer);
    return stacks ? 0 : -1;
}

PROBE_API int probe_close(void)
{
    gv_stacks_destroy(stacks);
    stacks = NULL;
    gv_status status = gv_writer_close(writer);
    writer = NULL;
    return status == GV_OK ? 0 : -1;
}

PROBE_API int probe_reopen_in_child(const char *path)
{
    gv_writer_abandon(writer);
    if (gv_writer_create(path, &writer, NULL) != GV_OK)
        return -1;
    gv_process_record process = {.pid = 2};
    gv_write_process(writer, &process);
    gv_stacks_reset_after_fork(stacks, writer);
    return 0;
}

PROBE_API uint64_t probe_capture(void)
{
    return gv_stacks_capture(stacks);
}

PROBE_API uint64_t probe_capture_nowhere(void)
{
    return gv_stacks_capture(NULL);
}

PROBE_API uint64_t probe_string(const char *text, size_t length)
{
    return gv_stacks_string(stacks, text, length);
}

PROBE_API void probe_fail_after(long successes)
{
    gv_memory_fail_after(successes);
}

// A thread that the interpreter did not start: it runs `callback` where one is given and captures otherwise.
static void *run_thread(void *data)
{
    void (*callback)(void) = (void (*)(void))data;
    if (callback) {
        callback();
        return NULL;
    }
    return (void *)(uintptr_t)gv_stacks_capture(stacks);
}

PROBE_API uint64_t probe_on_thread(void (*callback)(void))
{
    pthread_t thread;
    void *result = NULL;
    if (pthread_create(&thread, NULL, run_thread, (void *)callback) != 0)
        return 0;
    pthread_join(thread, &result);
    return (uintptr_t)result;
}

PROBE_API size_t probe_describe(const char *path, uint64_t id, char *text, size_t size)
{
    gv_trace *trace = NULL;
    gv_error error = {0};
    if (gv_trace_load(path, &trace, &error) != GV_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 0;
    }
    size_t frames = 0, used = 0;
    text[0] = '\0';
    if (id < trace->stack_count) {
        const gv_stack *stack = &trace->stacks[id];
        for (; frames < stack->python_count && used < size; frames++) {
            const gv_python_frame *frame = &stack->python[frames];
            used += (size_t)snprintf(text + used, size - used, "%s\t%lu\t%s\n", frame->file, (unsigned long)frame->line,
                                     frame->function);
        }
    }
    gv_trace_free(trace);
    return frames;
}
