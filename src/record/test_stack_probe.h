// What the test library around stack.c exports; see test_stack_probe.c.
#ifndef GV_RECORD_TEST_STACK_PROBE_H
#define GV_RECORD_TEST_STACK_PROBE_H

#include <stddef.h>
#include <stdint.h>

#define PROBE_API __attribute__((visibility("default")))

// Begins a trace at `path`, ends it, or replaces it in the child of a fork. 0, or -1 on failure.
PROBE_API int probe_open(const char *path);
PROBE_API int probe_close(void);
PROBE_API int probe_reopen_in_child(const char *path);

// gv_stacks_capture and gv_stacks_string on that trace; probe_capture_nowhere has no trace.
PROBE_API uint64_t probe_capture(void);
PROBE_API uint64_t probe_capture_nowhere(void);
PROBE_API uint64_t probe_string(const char *text, size_t length);

// gv_memory_fail_after inside the library.
PROBE_API void probe_fail_after(long successes);

// Runs the callback, or with NULL a capture, on a new thread and waits for it. Returns the capture's stack id.
PROBE_API uint64_t probe_on_thread(void (*callback)(void));

// Writes the Python frames of stack `id` of the finished trace at `path`, one "file TAB line TAB function" a line, and
// returns how many there are.
PROBE_API size_t probe_describe(const char *path, uint64_t id, char *text, size_t size);

#endif
