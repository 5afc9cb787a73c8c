// Call stacks of the traced process: captured, interned and written as string, module and stack records.
#ifndef GV_RECORD_STACK_H
#define GV_RECORD_STACK_H

#include "trace/writer.h"

#include <stddef.h>
#include <stdint.h>

// Host frames kept, innermost first, frames of this library left out.
enum { GV_HOST_FRAMES = 48 };

// The interning tables of one trace. Thread-safe: one lock, under which only the writer and the heap are called.
typedef struct gv_stacks gv_stacks;

// Creates empty tables that write to `writer`, which must outlive them. NULL when memory is out.
gv_stacks *gv_stacks_create(gv_writer *writer);

// NULL is allowed.
void gv_stacks_destroy(gv_stacks *stacks);

// The id of the calling thread's stack: its return addresses, each within its module, and its Python frames (see
// python_stack.h). Equal stacks get equal ids; what is new is written before the id is handed out. Costs about a
// microsecond a frame. Returns 0 on any failure, when `stacks` is NULL, and when called from within itself. Keeps
// errno.
uint64_t gv_stacks_capture(gv_stacks *stacks);

// The id of a text, written when new; 0 when `stacks` is NULL or memory is out. Keeps errno.
uint64_t gv_stacks_string(gv_stacks *stacks, const char *text, size_t length);

// For the child of a fork, which writes a file of its own: forgets everything and starts anew with `writer` (NULL:
// every id is 0 until the next reset). The old tables are leaked on purpose: another thread of the parent may have
// been changing them, or holding their lock, when the process was copied.
void gv_stacks_reset_after_fork(gv_stacks *stacks, gv_writer *writer);

#endif
