// Three ways to read Python frames, by what the interpreter of this process offers:
//
// 1. A walk over its frames in memory, with the layout of CPython 3.13, which that version publishes for debuggers at
//    the start of _PyRuntime, and of 3.11 and 3.12, which do not: there it is believed only after it has given what
//    the second way gives, several times.
// 2. _Py_DumpTraceback (CPython 3.6 to 3.8, 3.11, 3.12) and PyUnstable_DumpTraceback (3.15): what faulthandler uses in
//    a signal handler. It does the same walk and writes text to a file descriptor, with about ten system calls a frame,
//    which makes it ten times as slow.
// 3. The public frame functions, for the others. They count references, so only a thread that holds the interpreter
//    lock may use them; elsewhere there are no frames.
//
// The first two take no reference and no lock. PyTorch releases the interpreter lock around nearly every operator, so
// that it is not held at most launches, and these are the ways that matter. They read memory that only the calling
// thread changes while it is outside Python, with one exception: a finalising interpreter frees the states of daemon
// threads. Hence the check right before the walk. What is left of that window is the walk itself, in a daemon thread,
// while the program is exiting.
#include "record/python_stack.h"

#include "base/memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

// ---- Symbols ------------------------------------------------------------------------------------------------

#define GV_PYTHON_SYMBOLS(SYMBOL)         \
    SYMBOL(Py_IsInitialized)              \
    SYMBOL(_Py_IsFinalizing)              \
    SYMBOL(Py_IsFinalizing)               \
    SYMBOL(PyGILState_GetThisThreadState) \
    SYMBOL(_Py_DumpTraceback)             \
    SYMBOL(PyUnstable_DumpTraceback)      \
    SYMBOL(_PyRuntime)                    \
    SYMBOL(Py_Version)                    \
    SYMBOL(PyCode_Type)                   \
    SYMBOL(PyCode_Addr2Line)              \
    SYMBOL(PyUnicode_Type)                \
    SYMBOL(PyUnicode_GetLength)           \
    SYMBOL(PyUnicode_ReadChar)            \
    SYMBOL(_PyThreadState_UncheckedGet)   \
    SYMBOL(PyThreadState_GetUnchecked)    \
    SYMBOL(PyEval_GetFrame)               \
    SYMBOL(PyFrame_GetBack)               \
    SYMBOL(PyFrame_GetCode)               \
    SYMBOL(PyFrame_GetLineNumber)         \
    SYMBOL(PyObject_GetAttrString)        \
    SYMBOL(PyUnicode_AsUTF8AndSize)       \
    SYMBOL(Py_IncRef)                     \
    SYMBOL(Py_DecRef)                     \
    SYMBOL(PyErr_Fetch)                   \
    SYMBOL(PyErr_Restore)                 \
    SYMBOL(PyErr_Clear)

#define GV_DECLARE_SYMBOL(name) SYMBOL_##name,
enum { GV_PYTHON_SYMBOLS(GV_DECLARE_SYMBOL) SYMBOL_COUNT };
#define GV_SYMBOL_NAME(name) #name,
static const char *const symbol_names[SYMBOL_COUNT] = {GV_PYTHON_SYMBOLS(GV_SYMBOL_NAME)};

// Threads look up and read at once. Each pointer is atomic on its own: every lookup finds the same interpreter, and
// each of the three ways asks for all the symbols it needs.
static _Atomic(void *) symbols[SYMBOL_COUNT];

// The address of a symbol as a function of the given type.
#define GV_FUNCTION(type, name) ((type)atomic_load_explicit(&symbols[SYMBOL_##name], memory_order_relaxed))

// Whether the interpreter that was found is still loaded. Takes no lock, unlike dlsym.
static bool is_still_there(void)
{
    struct dl_find_object object;
    void *address = atomic_load_explicit(&symbols[SYMBOL_Py_IsInitialized], memory_order_relaxed);
    return address && _dl_find_object(address, &object) == 0;
}

void gv_python_stack_look_up(void)
{
    if (is_still_there())
        return;
    for (int i = 0; i < SYMBOL_COUNT; i++) {
        // volatile: a tail call would show glibc the return address of our caller, and with it the wrong namespace.
        void *volatile address = dlsym(RTLD_DEFAULT, symbol_names[i]);
        atomic_store_explicit(&symbols[i], address, memory_order_relaxed);
        if (i == SYMBOL_Py_IsInitialized && !address)
            return;
    }
}

// ---- Text ---------------------------------------------------------------------------------------------------

// Frames beyond this much text are dropped: names are cut at 500 characters, so it takes an adversary to get here.
enum { TEXT_LIMIT = 256 << 10, NAME_LIMIT = 500, LONGEST_UTF8 = 4 };

static bool append_bytes(gv_python_stack *stack, const char *bytes, size_t length)
{
    if (length > TEXT_LIMIT - stack->text_length ||
        !GV_GROW(stack->text, stack->text_capacity, stack->text_length + length))
        return false;
    memcpy(stack->text + stack->text_length, bytes, length);
    stack->text_length += length;
    return true;
}

static bool append_code_point(gv_python_stack *stack, uint32_t code)
{
    char utf8[LONGEST_UTF8];
    size_t length;
    // A lone surrogate stands for a byte of a file name that is not UTF-8. Text in a trace is, so it is replaced.
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        code = 0xfffd;
    if (code < 0x80) {
        utf8[0] = (char)code;
        length = 1;
    } else if (code < 0x800) {
        utf8[0] = (char)(0xc0 | code >> 6);
        length = 2;
    } else if (code < 0x10000) {
        utf8[0] = (char)(0xe0 | code >> 12);
        length = 3;
    } else {
        utf8[0] = (char)(0xf0 | code >> 18);
        length = 4;
    }
    for (size_t i = 1; i < length; i++)
        utf8[i] = (char)(0x80 | (code >> (6 * (length - 1 - i)) & 0x3f));
    return append_bytes(stack, utf8, length);
}

// The value of `digits` hexadecimal digits, or -1 when they are not all there.
static int64_t hexadecimal(const char *text, size_t length, size_t digits)
{
    if (length < digits)
        return -1;
    int64_t value = 0;
    for (size_t i = 0; i < digits; i++) {
        char c = text[i];
        if (c >= '0' && c <= '9')
            value = value << 4 | (c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (c - 'a' + 10);
        else
            return -1;
    }
    return value;
}

// Appends a name of a traceback with its escapes (\xe9, \u20ac, \U0001f600) resolved. CPython writes a backslash of
// the name as it is and escapes only what is not printable ASCII: an "escape" of something printable is plain text.
static bool append_escaped(gv_python_stack *stack, const char *text, size_t length)
{
    for (size_t i = 0; i < length;) {
        size_t digits = 0;
        if (text[i] == '\\' && i + 1 < length)
            digits = text[i + 1] == 'x' ? 2 : text[i + 1] == 'u' ? 4 : text[i + 1] == 'U' ? 8 : 0;
        int64_t code = digits ? hexadecimal(text + i + 2, length - i - 2, digits) : -1;
        bool is_escape = code >= 0 && (code < ' ' || code > '~');
        bool appended = is_escape ? append_code_point(stack, (uint32_t)code) : append_bytes(stack, text + i, 1);
        if (!appended)
            return false;
        i += is_escape ? 2 + digits : 1;
    }
    return true;
}

// Where a frame's two names go: begins a frame, and completes it once both are in stack->text.
static bool begin_frame(gv_python_stack *stack, gv_python_line *frame)
{
    *frame = (gv_python_line){.file = (uint32_t)stack->text_length};
    return stack->count < GV_PYTHON_FRAMES;
}

static void file_is_there(gv_python_stack *stack, gv_python_line *frame)
{
    frame->function = (uint32_t)stack->text_length;
    frame->file_length = frame->function - frame->file;
}

static void end_frame(gv_python_stack *stack, gv_python_line *frame, int64_t line)
{
    frame->function_length = (uint32_t)stack->text_length - frame->function;
    frame->line = line > 0 ? (uint64_t)line : 0;
    stack->frames[stack->count++] = *frame;
}

// Finds `needle` in text; NULL when it is not there.
static const char *find(const char *text, size_t length, const char *needle)
{
    return memmem(text, length, needle, strlen(needle));
}

// Parses `File "FILE", line LINE in FUNCTION`, FILE perhaps a bare ???, LINE perhaps ???.
static void parse_line(gv_python_stack *stack, const char *text, size_t length)
{
    static const char head[] = "  File ", separator[] = ", line ";
    if (length < sizeof head - 1 || memcmp(text, head, sizeof head - 1) != 0)
        return;
    const char *end = text + length, *file = text + sizeof head - 1;

    // The last separator counts: a file may have any name, a function is an identifier or in angle brackets.
    const char *file_end = NULL;
    for (const char *at = find(file, (size_t)(end - file), separator); at;
         at = find(at + 1, (size_t)(end - at - 1), separator))
        file_end = at;
    if (!file_end)
        return;
    const char *number = file_end + sizeof separator - 1;
    const char *in = find(number, (size_t)(end - number), " in ");
    if (!in)
        return;
    if (file_end - file >= 2 && file[0] == '"' && file_end[-1] == '"') {
        file++;
        file_end--;
    }
    int64_t line = 0;
    for (; number < in && *number >= '0' && *number <= '9' && line < INT32_MAX; number++)
        line = line * 10 + (*number - '0');

    gv_python_line frame;
    if (!begin_frame(stack, &frame) || !append_escaped(stack, file, (size_t)(file_end - file)))
        return;
    file_is_there(stack, &frame);
    const char *function = in + 4;
    if (append_escaped(stack, function, (size_t)(end - function)))
        end_frame(stack, &frame, line);
}

void gv_python_stack_parse(gv_python_stack *stack, const char *dump, size_t length)
{
    for (const char *end = dump + length; dump < end;) {
        const char *newline = memchr(dump, '\n', (size_t)(end - dump));
        const char *line_end = newline ? newline : end;
        parse_line(stack, dump, (size_t)(line_end - dump));
        dump = newline ? newline + 1 : end;
    }
}

// ---- First way: a walk in memory ----------------------------------------------------------------------------------

// Where the fields of the interpreter's structures are, in bytes. Constant within a minor version.
typedef struct frame_layout {
    uint64_t cframe;                             // thread state: pointer to what holds current_frame; 0: it does itself
    uint64_t current_frame;                      // pointer to the innermost frame
    uint64_t previous, code, instruction, owner; // frame; `instruction` points into the code's bytecode
    uint64_t filename, name, bytecode;           // code object
    uint64_t type;                               // any object
} frame_layout;

static const frame_layout layout_3_11 = {.cframe = 56,
                                         .current_frame = 8,
                                         .previous = 48,
                                         .code = 32,
                                         .instruction = 56,
                                         .owner = 69,
                                         .filename = 112,
                                         .name = 120,
                                         .bytecode = 184,
                                         .type = 8};
static const frame_layout layout_3_12 = {.cframe = 56,
                                         .current_frame = 0,
                                         .previous = 8,
                                         .code = 0,
                                         .instruction = 56,
                                         .owner = 70,
                                         .filename = 112,
                                         .name = 120,
                                         .bytecode = 192,
                                         .type = 8};

// Byte positions in _Py_DebugOffsets of CPython 3.13 (Include/internal/pycore_runtime.h of that version). Each field is
// a 64-bit offset into the structure it is named after.
enum {
    DEBUG_VERSION = 8,
    DEBUG_THREAD_CURRENT_FRAME = 184,
    DEBUG_FRAME_PREVIOUS = 232,
    DEBUG_FRAME_EXECUTABLE = 240,
    DEBUG_FRAME_INSTRUCTION = 248,
    DEBUG_FRAME_OWNER = 264,
    DEBUG_CODE_FILENAME = 280,
    DEBUG_CODE_NAME = 288,
    DEBUG_CODE_BYTECODE = 344,
    DEBUG_OBJECT_TYPE = 360,
};

// PY_VERSION_HEX is major << 24 | minor << 16 | ... | release level << 4 | serial. Only final releases have a layout
// that stays.
static bool is_final_release(uint64_t version, unsigned minor)
{
    return version >> 16 == (3 << 8 | minor) && (version & 0xf0) == 0xf0;
}

static uint64_t debug_offset(const char *runtime, int position)
{
    uint64_t value;
    memcpy(&value, runtime + position, sizeof value);
    return value;
}

// Stores the layout of this process's interpreter. False when it is not known. *published says whether the interpreter
// itself told it.
static bool find_layout(frame_layout *layout, bool *published)
{
    const unsigned long *version = GV_FUNCTION(const unsigned long *, Py_Version);
    const char *runtime = GV_FUNCTION(const char *, _PyRuntime);
    *published = false;
    if (!version || !GV_FUNCTION(void *, PyCode_Type) || !GV_FUNCTION(void *, PyCode_Addr2Line) ||
        !GV_FUNCTION(void *, PyUnicode_Type) || !GV_FUNCTION(void *, PyUnicode_GetLength) ||
        !GV_FUNCTION(void *, PyUnicode_ReadChar))
        return false;
    if (is_final_release(*version, 11)) {
        *layout = layout_3_11;
        return true;
    }
    if (is_final_release(*version, 12)) {
        *layout = layout_3_12;
        return true;
    }
    if (!is_final_release(*version, 13) || !runtime || memcmp(runtime, "xdebugpy", 8) != 0 ||
        debug_offset(runtime, DEBUG_VERSION) != *version)
        return false;
    *published = true;
    *layout = (frame_layout){
        .current_frame = debug_offset(runtime, DEBUG_THREAD_CURRENT_FRAME),
        .previous = debug_offset(runtime, DEBUG_FRAME_PREVIOUS),
        .code = debug_offset(runtime, DEBUG_FRAME_EXECUTABLE),
        .instruction = debug_offset(runtime, DEBUG_FRAME_INSTRUCTION),
        .owner = debug_offset(runtime, DEBUG_FRAME_OWNER),
        .filename = debug_offset(runtime, DEBUG_CODE_FILENAME),
        .name = debug_offset(runtime, DEBUG_CODE_NAME),
        .bytecode = debug_offset(runtime, DEBUG_CODE_BYTECODE),
        .type = debug_offset(runtime, DEBUG_OBJECT_TYPE),
    };
    return true;
}

// Reads memory of this process; carefully: through the kernel, which refuses what a plain load would fault on.
static bool load_bytes(const void *object, uint64_t offset, void *value, size_t size, bool careful)
{
    const char *address = (const char *)object + offset;
    if (!careful) {
        memcpy(value, address, size);
        return true;
    }
    struct iovec local = {value, size}, remote = {(void *)address, size};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)size;
}

static void *load_pointer(const void *object, uint64_t offset, bool careful)
{
    void *value;
    return object && load_bytes(object, offset, &value, sizeof value, careful) ? value : NULL;
}

// Appends a str object. Reading by index neither allocates nor counts references, unlike the UTF-8 functions.
static bool append_str(gv_python_stack *stack, void *text, const frame_layout *layout, bool careful)
{
    ssize_t (*get_length)(void *) = GV_FUNCTION(ssize_t(*)(void *), PyUnicode_GetLength);
    uint32_t (*read_char)(void *, ssize_t) = GV_FUNCTION(uint32_t(*)(void *, ssize_t), PyUnicode_ReadChar);
    if (load_pointer(text, layout->type, careful) != GV_FUNCTION(void *, PyUnicode_Type))
        return append_bytes(stack, "???", 3);
    ssize_t length = get_length(text);
    for (ssize_t i = 0; i < length && i < NAME_LIMIT; i++) {
        if (!append_code_point(stack, read_char(text, i)))
            return false;
    }
    return length <= NAME_LIMIT || append_bytes(stack, "...", 3);
}

static void read_walk(gv_python_stack *stack, void *thread_state, const frame_layout *layout, bool careful)
{
    enum { OWNED_BY_C_STACK = 3 };
    int (*get_line)(void *, int) = GV_FUNCTION(int (*)(void *, int), PyCode_Addr2Line);
    void *code_type = GV_FUNCTION(void *, PyCode_Type);
    void *holder = layout->cframe ? load_pointer(thread_state, layout->cframe, careful) : thread_state;
    void *frame = load_pointer(holder, layout->current_frame, careful);
    for (; frame && stack->count < GV_PYTHON_FRAMES; frame = load_pointer(frame, layout->previous, careful)) {
        // The interpreter's C code has entry frames of its own, whose code is none or not the program's.
        char owner = OWNED_BY_C_STACK;
        void *code = load_pointer(frame, layout->code, careful);
        if (!load_bytes(frame, layout->owner, &owner, 1, careful) || owner == OWNED_BY_C_STACK ||
            load_pointer(code, layout->type, careful) != code_type)
            continue;
        gv_python_line line;
        if (!begin_frame(stack, &line) ||
            !append_str(stack, load_pointer(code, layout->filename, careful), layout, careful))
            return;
        file_is_there(stack, &line);
        if (!append_str(stack, load_pointer(code, layout->name, careful), layout, careful))
            return;
        char *instruction = load_pointer(frame, layout->instruction, careful);
        end_frame(stack, &line, get_line(code, (int)(instruction - ((char *)code + layout->bytecode))));
    }
}

// ---- Second way: the interpreter's own traceback ------------------------------------------------------------------

// A file of its own for each dump. One kept open would save a few microseconds, but programs close descriptors they
// do not know (daemons do), and the number could then be a file of theirs when the traceback is written.
static void read_dump(gv_python_stack *stack, void (*dump)(int, void *), void *thread_state)
{
    int fd = memfd_create("gravel-python-stack", MFD_CLOEXEC);
    if (fd < 0)
        return;
    dump(fd, thread_state);
    struct stat file;
    size_t length = fstat(fd, &file) == 0 && file.st_size > 0 ? (size_t)file.st_size : 0;
    if (length > TEXT_LIMIT)
        length = TEXT_LIMIT;
    char *text = length ? gv_malloc(length) : NULL;
    ssize_t got = text ? pread(fd, text, length, 0) : 0;
    close(fd);
    if (got > 0)
        gv_python_stack_parse(stack, text, (size_t)got);
    gv_free(text);
}

static bool equal_stacks(const gv_python_stack *a, const gv_python_stack *b)
{
    return a->count == b->count && a->text_length == b->text_length &&
           (a->count == 0 || (memcmp(a->frames, b->frames, a->count * sizeof a->frames[0]) == 0 &&
                              memcmp(a->text, b->text, a->text_length) == 0));
}

// How often a walk with an unpublished layout has agreed with the interpreter's own traceback; negative once it has
// not, and for good.
static _Atomic int agreements;
enum { ENOUGH_AGREEMENTS = 16, DISAGREED = -1000000 };

// The first and the second way, whichever there is. False when there is neither.
static bool read_without_lock(gv_python_stack *stack, void *thread_state)
{
    void (*dump)(int, void *) = GV_FUNCTION(void (*)(int, void *), _Py_DumpTraceback);
    if (!dump)
        dump = GV_FUNCTION(void (*)(int, void *), PyUnstable_DumpTraceback);
    frame_layout layout;
    bool published, is_known = find_layout(&layout, &published);
    if (is_known && (published || agreements >= ENOUGH_AGREEMENTS)) {
        read_walk(stack, thread_state, &layout, false);
        return true;
    }
    if (!dump)
        return false;
    read_dump(stack, dump, thread_state);
    if (is_known && agreements >= 0 && stack->count) {
        gv_python_stack walked = {.count = 0};
        read_walk(&walked, thread_state, &layout, true);
        if (equal_stacks(stack, &walked))
            agreements++;
        else
            agreements = DISAGREED;
        gv_python_stack_release(&walked);
    }
    return true;
}

// ---- Third way: the public frame functions, under the interpreter lock ----------------------------------------------

// PyGILState_Check answers yes to everybody once a subinterpreter exists; that the running thread state is this
// thread's own cannot be mistaken.
static bool holds_interpreter_lock(void *thread_state)
{
    void *(*current)(void) = GV_FUNCTION(void *(*)(void), PyThreadState_GetUnchecked);
    if (!current)
        current = GV_FUNCTION(void *(*)(void), _PyThreadState_UncheckedGet);
    return current && current() == thread_state;
}

static bool append_attribute(gv_python_stack *stack, void *object, const char *name)
{
    void *(*get)(void *, const char *) = GV_FUNCTION(void *(*)(void *, const char *), PyObject_GetAttrString);
    const char *(*utf8)(void *, ssize_t *) = GV_FUNCTION(const char *(*)(void *, ssize_t *), PyUnicode_AsUTF8AndSize);
    void *value = get(object, name);
    ssize_t length = 0;
    const char *text = value ? utf8(value, &length) : NULL;
    bool appended = append_bytes(stack, text ? text : "???", text ? (size_t)length : 3);
    if (!text)
        GV_FUNCTION(void (*)(void), PyErr_Clear)();
    GV_FUNCTION(void (*)(void *), Py_DecRef)(value);
    return appended;
}

static bool append_frame(gv_python_stack *stack, void *frame)
{
    int (*get_line)(void *) = GV_FUNCTION(int (*)(void *), PyFrame_GetLineNumber);
    void *code = GV_FUNCTION(void *(*)(void *), PyFrame_GetCode)(frame);
    gv_python_line line;
    bool whole = begin_frame(stack, &line) && append_attribute(stack, code, "co_filename");
    if (whole) {
        file_is_there(stack, &line);
        whole = append_attribute(stack, code, "co_name");
        if (whole)
            end_frame(stack, &line, get_line(frame));
    }
    GV_FUNCTION(void (*)(void *), Py_DecRef)(code);
    return whole;
}

static bool has_frame_functions(void)
{
    return GV_FUNCTION(void *, PyEval_GetFrame) && GV_FUNCTION(void *, PyFrame_GetBack) &&
           GV_FUNCTION(void *, PyFrame_GetCode) && GV_FUNCTION(void *, PyFrame_GetLineNumber) &&
           GV_FUNCTION(void *, PyObject_GetAttrString) && GV_FUNCTION(void *, PyUnicode_AsUTF8AndSize) &&
           GV_FUNCTION(void *, Py_IncRef) && GV_FUNCTION(void *, Py_DecRef) && GV_FUNCTION(void *, PyErr_Fetch) &&
           GV_FUNCTION(void *, PyErr_Restore) && GV_FUNCTION(void *, PyErr_Clear);
}

static void read_frames(gv_python_stack *stack)
{
    void (*incref)(void *) = GV_FUNCTION(void (*)(void *), Py_IncRef);
    void (*decref)(void *) = GV_FUNCTION(void (*)(void *), Py_DecRef);
    void *(*get_back)(void *) = GV_FUNCTION(void *(*)(void *), PyFrame_GetBack);

    // A launch may come from a destructor that runs while an exception is on its way.
    void *exception[3];
    GV_FUNCTION(void (*)(void **, void **, void **), PyErr_Fetch)(&exception[0], &exception[1], &exception[2]);
    void *frame = GV_FUNCTION(void *(*)(void), PyEval_GetFrame)();
    incref(frame);
    while (frame) {
        bool more = append_frame(stack, frame);
        void *back = more ? get_back(frame) : NULL;
        decref(frame);
        frame = back;
    }
    GV_FUNCTION(void (*)(void *, void *, void *), PyErr_Restore)(exception[0], exception[1], exception[2]);
}

// ---- Reading ------------------------------------------------------------------------------------------------

static bool interpreter_is_usable(void)
{
    int (*is_initialized)(void) = GV_FUNCTION(int (*)(void), Py_IsInitialized);
    if (!is_initialized || !is_initialized())
        return false;
    int (*is_finalizing)(void) = GV_FUNCTION(int (*)(void), _Py_IsFinalizing);
    if (!is_finalizing)
        is_finalizing = GV_FUNCTION(int (*)(void), Py_IsFinalizing);
    return !is_finalizing || !is_finalizing();
}

void gv_python_stack_read(gv_python_stack *stack)
{
    stack->count = 0;
    stack->text = NULL;
    stack->text_length = stack->text_capacity = 0;
    void *(*this_thread)(void) = GV_FUNCTION(void *(*)(void), PyGILState_GetThisThreadState);
    if (!this_thread || !is_still_there() || !interpreter_is_usable())
        return;
    void *thread_state = this_thread();
    if (!thread_state)
        return;

    int saved_errno = errno;
    if (!read_without_lock(stack, thread_state) && has_frame_functions() && holds_interpreter_lock(thread_state))
        read_frames(stack);
    errno = saved_errno;
}

void gv_python_stack_release(gv_python_stack *stack)
{
    gv_free(stack->text);
    stack->text = NULL;
    stack->count = 0;
}
