// The parser of Python tracebacks, on what CPython writes and on what it never would; and a process without Python.
#include "record/python_stack.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static gv_python_stack parse(const char *dump)
{
    gv_python_stack stack = {.count = 0};
    gv_python_stack_parse(&stack, dump, strlen(dump));
    return stack;
}

static void assert_frame(const gv_python_stack *stack, size_t index, const char *file, const char *function,
                         uint64_t line)
{
    assert_true(index < stack->count);
    const gv_python_line *frame = &stack->frames[index];
    assert_int_equal(frame->file_length, strlen(file));
    assert_memory_equal(stack->text + frame->file, file, strlen(file));
    assert_int_equal(frame->function_length, strlen(function));
    assert_memory_equal(stack->text + frame->function, function, strlen(function));
    assert_int_equal(frame->line, line);
}

static void frames_are_read_innermost_first(void **state)
{
    (void)state;
    gv_python_stack stack = parse("Stack (most recent call first):\n"
                                  "  File \"/srv/model.py\", line 12 in forward\n"
                                  "  File \"<stdin>\", line 1 in <module>\n");
    assert_int_equal(stack.count, 2);
    assert_frame(&stack, 0, "/srv/model.py", "forward", 12);
    assert_frame(&stack, 1, "<stdin>", "<module>", 1);
    gv_python_stack_release(&stack);
}

static void escapes_become_utf8(void **state)
{
    (void)state;
    gv_python_stack stack = parse("  File \"/d\\xe9p\\u20ac\\U0001f600.py\", line 3 in \\xe9t\\xe9\n"
                                  "  File \"/back\\slash\\x41\\x4\\u12\\\", line 4 in f\n"
                                  "  File \"/raw\\udcff\\x0a\", line 5 in g\n");
    assert_frame(&stack, 0, "/d\u00e9p\u20ac\U0001f600.py", "\u00e9t\u00e9", 3);
    // \x41 is a printable character, which CPython never escapes: these are backslashes of the name itself.
    assert_frame(&stack, 1, "/back\\slash\\x41\\x4\\u12\\", "f", 4);
    assert_frame(&stack, 2, "/raw\ufffd\n", "g", 5);
    gv_python_stack_release(&stack);
}

static void unusual_names_are_read(void **state)
{
    (void)state;
    gv_python_stack stack = parse("  File \"a\", line 1 in b\", line 2 in c\n"
                                  "  File ???, line 7 in ???\n"
                                  "  File \"x.py\", line ??? in f\n"
                                  "  File \"y.py\", line 99999999999999999999 in g\n"
                                  "  File \"\", line 0 in \n");
    assert_int_equal(stack.count, 5);
    assert_frame(&stack, 0, "a\", line 1 in b", "c", 2);
    assert_frame(&stack, 1, "???", "???", 7);
    assert_frame(&stack, 2, "x.py", "f", 0);
    assert_int_equal(stack.frames[4].line, 0);
    assert_frame(&stack, 4, "", "", 0);
    gv_python_stack_release(&stack);
}

static void other_lines_are_skipped(void **state)
{
    (void)state;
    gv_python_stack stack = parse("  <no Python frame>\n\n  ...\n  File \n  File \"\n  File \"a\"\n"
                                  "  File \"a\", line 3\n  File \"a\", line in \n File \"a\", line 3 in f\n"
                                  "  File \"last.py\", line 3 in without_newline");
    assert_int_equal(stack.count, 1);
    assert_frame(&stack, 0, "last.py", "without_newline", 3);
    gv_python_stack_release(&stack);
}

static void frames_and_text_are_limited(void **state)
{
    (void)state;
    gv_python_stack stack = {.count = 0};
    for (int i = 0; i < 200; i++) {
        static const char line[] = "  File \"f.py\", line 1 in f\n";
        gv_python_stack_parse(&stack, line, sizeof line - 1);
    }
    assert_int_equal(stack.count, GV_PYTHON_FRAMES);
    gv_python_stack_release(&stack);

    // A name of a megabyte is no frame, and does not keep the next line from being one.
    size_t size = 1 << 20;
    char *text = malloc(size);
    memset(text, 'a', size);
    memcpy(text, "  File \"", 8);
    static const char tail[] = "\", line 1 in f\n";
    memcpy(text + size - sizeof tail, tail, sizeof tail);
    stack = (gv_python_stack){.count = 0};
    gv_python_stack_parse(&stack, text, size);
    assert_true(stack.text_length <= 256 << 10);
    assert_int_equal(stack.count, 0);
    gv_python_stack_release(&stack);
    free(text);
}

static void a_failing_allocation_drops_frames(void **state)
{
    (void)state;
    gv_memory_fail_after(0);
    gv_python_stack stack = parse("  File \"/srv/model.py\", line 12 in forward\n");
    gv_memory_fail_after(-1);
    assert_int_equal(stack.count, 0);
    gv_python_stack_release(&stack);
}

// Random text made of the pieces the parser looks for: frames stay within the text, whatever comes.
static void any_text_is_survived(void **state)
{
    (void)state;
    static const char *const pieces[] = {"  File ", "\"",       ", line ",  " in ", "\\x", "\\u", "\\U",
                                         "0",       "f",        "9",        "\n",   "\\",  "?",   "e9",
                                         "dfff",    "0010ffff", "ffffffff", "\xff", " "};
    srandom(1);
    for (int round = 0; round < 20000; round++) {
        char text[256];
        size_t length = 0;
        while (length < 200) {
            const char *piece = pieces[(size_t)random() % (sizeof pieces / sizeof *pieces)];
            memcpy(text + length, piece, strlen(piece));
            length += strlen(piece);
        }
        // Exactly as long as the heap block, so that a sanitizer sees a read past the end.
        char *exact = malloc(length);
        memcpy(exact, text, length);
        gv_python_stack stack = {.count = 0};
        gv_python_stack_parse(&stack, exact, length);
        for (size_t i = 0; i < stack.count; i++) {
            assert_true(stack.frames[i].file + stack.frames[i].file_length <= stack.text_length);
            assert_true(stack.frames[i].function + stack.frames[i].function_length <= stack.text_length);
        }
        gv_python_stack_release(&stack);
        free(exact);
    }
}

static void without_python_there_are_no_frames(void **state)
{
    (void)state;
    gv_python_stack_look_up();
    gv_python_stack stack;
    memset(&stack, 0xff, sizeof stack);
    gv_python_stack_read(&stack);
    assert_int_equal(stack.count, 0);
    gv_python_stack_release(&stack);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_are_read_innermost_first),
        cmocka_unit_test(escapes_become_utf8),
        cmocka_unit_test(unusual_names_are_read),
        cmocka_unit_test(other_lines_are_skipped),
        cmocka_unit_test(frames_and_text_are_limited),
        cmocka_unit_test(a_failing_allocation_drops_frames),
        cmocka_unit_test(any_text_is_survived),
        cmocka_unit_test(without_python_there_are_no_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
