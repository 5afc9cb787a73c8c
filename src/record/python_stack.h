// The calling thread's Python frames, read from inside a process that may or may not run a Python interpreter, and
// without needing one at build or load time: every function is looked up in the process itself.
#ifndef GV_RECORD_PYTHON_STACK_H
#define GV_RECORD_PYTHON_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Frames kept, innermost first. Launches are told apart by their inner frames; the outer ones are the entry point.
enum { GV_PYTHON_FRAMES = 64 };

// One frame. The texts are UTF-8 (what an interpreter could not say is "???"), stand in gv_python_stack.text and are
// not NUL-terminated.
typedef struct gv_python_line {
    uint32_t file, file_length;         // offset in text, bytes
    uint32_t function, function_length; // the same
    uint64_t line;                      // 0: not known
} gv_python_line;

typedef struct gv_python_stack {
    gv_python_line frames[GV_PYTHON_FRAMES];
    size_t count;
    char *text; // owned; NULL when there are no frames
    size_t text_length, text_capacity;
} gv_python_stack;

// Looks for an interpreter among the objects that are loaded now, unless one was found before. Call it once, and again
// when something was loaded. It may call dlsym, which takes the loader's lock: hold no lock of your own.
void gv_python_stack_look_up(void);

// Reads the calling thread's Python frames into *stack, which need not be initialised. No interpreter, an interpreter
// that is starting or finalising, a thread that never ran Python: no frames. Neither takes nor needs the interpreter
// lock, runs no Python code, leaves a pending exception and errno as they are. Free with gv_python_stack_release.
void gv_python_stack_read(gv_python_stack *stack);

void gv_python_stack_release(gv_python_stack *stack);

// Appends the frames of a traceback as CPython's faulthandler module prints it ("  File "x", line 3 in f", escapes
// resolved). Lines that are something else are skipped. Part of gv_python_stack_read; visible for its test.
void gv_python_stack_parse(gv_python_stack *stack, const char *dump, size_t length);

#endif
