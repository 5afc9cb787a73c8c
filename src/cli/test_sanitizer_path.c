// Unit tests of record/sanitizer_path.c: where the Sanitizer library is looked for, and in which order. The file is
// here because the recorder's folder has nothing that could be linked into a test without the recorder.
#include "base/memory.h"
#include "record/sanitizer_path.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64];

static int set_up(void **state)
{
    strcpy(root, "/tmp/gravel-sanitizer-XXXXXX");
    if (!mkdtemp(root))
        return -1;
    static const char *const names[] = {"GRAVEL_SANITIZER", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    setenv("HOME", root, 1);
    setenv("PATH", root, 1);
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "/bin/rm -rf '%s'", root);
    return system(command);
}

// Makes root/folder/name with this text in it.
static void put_text(const char *below, const char *name, const char *text)
{
    char command[512];
    snprintf(command, sizeof command, "/bin/mkdir -p '%s/%s' && printf %%s '%s' > '%s/%s/%s'", root, below, text, root,
             below, name);
    assert_int_equal(system(command), 0);
}

// Libraries here look as if they reported tensor copies, so that one that this machine really has does not come first.
static void put(const char *below, const char *name)
{
    put_text(below, name, "ELF HopperTmaLoadGenerator");
}

static void set(const char *name, const char *below)
{
    char value[256];
    snprintf(value, sizeof value, "%s/%s", root, below);
    setenv(name, value, 1);
}

static void expect_found(const char *below)
{
    char path[PATH_MAX], tried[256], expected[256];
    assert_true(gv_sanitizer_find(path, sizeof path, tried, sizeof tried));
    snprintf(expected, sizeof expected, "%s/%s", root, below);
    assert_string_equal(path, expected);
    assert_string_equal(tried, "");
}

#define LIBRARY "libsanitizer-public.so"

static void the_variable_comes_first_and_alone(void **state)
{
    put("a", LIBRARY);
    put("toolkit/compute-sanitizer", LIBRARY);
    set("CUDA_HOME", "toolkit");
    set("GRAVEL_SANITIZER", "a/" LIBRARY);
    expect_found("a/" LIBRARY);
    set("GRAVEL_SANITIZER", "a");
    expect_found("a/./" LIBRARY);
    set("GRAVEL_SANITIZER", "toolkit");
    expect_found("toolkit/compute-sanitizer/" LIBRARY);
    char path[PATH_MAX], tried[256];
    set("GRAVEL_SANITIZER", "nowhere");
    assert_false(gv_sanitizer_find(path, sizeof path, tried, sizeof tried));
    assert_string_equal(path, "");
    assert_non_null(strstr(tried, "nowhere"));
}

static void toolkits(void **state)
{
    put("toolkit/extras/Sanitizer", LIBRARY);
    set("CUDA_PATH", "toolkit");
    expect_found("toolkit/extras/Sanitizer/" LIBRARY);
    put("other/compute-sanitizer", LIBRARY);
    set("CUDA_HOME", "other");
    expect_found("other/compute-sanitizer/" LIBRARY);
}

static void python_environments(void **state)
{
    put("home/.local/lib/python3.12/site-packages/nvidia/cu13/lib", LIBRARY);
    set("HOME", "home");
    expect_found("home/.local/lib/python3.12/site-packages/nvidia/cu13/lib/" LIBRARY);
    // The environment of the first python3 in PATH, although it is a link that leads elsewhere.
    put("venv/lib/python3.11/site-packages/nvidia/cu13/lib", LIBRARY);
    put("venv/bin", "pip");
    char link[128];
    snprintf(link, sizeof link, "%s/venv/bin/python3", root);
    assert_int_equal(symlink("/bin/sh", link), 0);
    set("PATH", "venv/bin");
    expect_found("venv/lib/python3.11/site-packages/nvidia/cu13/lib/" LIBRARY);
    put("active/lib/python3.10/site-packages/nvidia/cuda_sanitizer_api/compute-sanitizer", LIBRARY);
    set("VIRTUAL_ENV", "active");
    expect_found("active/lib/python3.10/site-packages/nvidia/cuda_sanitizer_api/compute-sanitizer/" LIBRARY);
}

static void the_newest_of_several(void **state)
{
    put("env/lib/python3.9/site-packages/nvidia/cu12/lib", LIBRARY);
    put("env/lib/python3.12/site-packages/nvidia/cu9/lib", LIBRARY);
    put("env/lib/python3.12/site-packages/nvidia/cu13/lib", LIBRARY);
    set("CONDA_PREFIX", "env");
    expect_found("env/lib/python3.12/site-packages/nvidia/cu13/lib/" LIBRARY);
}

// A library that reports tensor copies comes first, wherever it was found; the rest keep their order.
static void those_that_report_tensor_copies_come_first(void **state)
{
    put_text("toolkit/compute-sanitizer", LIBRARY, "ELF");
    set("CUDA_HOME", "toolkit");
    put_text("env/lib/python3.12/site-packages/nvidia/cu13/compute-sanitizer", LIBRARY, "");
    set("VIRTUAL_ENV", "env");
    put("conda/lib/python3.12/site-packages/nvidia/cu13/compute-sanitizer", LIBRARY);
    set("CONDA_PREFIX", "conda");
    expect_found("conda/lib/python3.12/site-packages/nvidia/cu13/compute-sanitizer/" LIBRARY);

    gv_sanitizer_choice choices[8];
    char tried[64], expected[256];
    size_t count = gv_sanitizer_find_all(choices, 8, tried, sizeof tried);
    assert_in_range(count, 3, 8); // and what this machine has
    size_t next = 0;
    while (next < count && choices[next].tensor_copies)
        next++;
    assert_in_range(next, 1, count - 2);
    snprintf(expected, sizeof expected, "%s/toolkit/compute-sanitizer/" LIBRARY, root);
    assert_string_equal(choices[next].path, expected);
    assert_false(gv_sanitizer_reports_tensor_copies(expected));
    snprintf(expected, sizeof expected, "%s/env/lib/python3.12/site-packages/nvidia/cu13/compute-sanitizer/" LIBRARY,
             root);
    assert_true(next + 1 < count && !choices[next + 1].tensor_copies);
    assert_true(gv_sanitizer_reports_tensor_copies(choices[0].path));
    assert_false(gv_sanitizer_reports_tensor_copies(expected) || gv_sanitizer_reports_tensor_copies(root) ||
                 gv_sanitizer_reports_tensor_copies("/nowhere/" LIBRARY));
    assert_int_equal(gv_sanitizer_find_all(choices, 1, tried, sizeof tried), 1);
    // What the user names is taken as it is.
    set("GRAVEL_SANITIZER", "toolkit");
    assert_int_equal(gv_sanitizer_find_all(choices, 8, tried, sizeof tried), 1);
    assert_false(choices[0].tensor_copies);
}

static void small_buffers(void **state)
{
    put("a", LIBRARY);
    set("GRAVEL_SANITIZER", "a/" LIBRARY);
    char path[8], tried[8];
    assert_false(gv_sanitizer_find(path, sizeof path, tried, sizeof tried));
    set("GRAVEL_SANITIZER", "nowhere");
    char large[PATH_MAX];
    assert_false(gv_sanitizer_find(large, sizeof large, tried, sizeof tried));
    assert_int_equal(strlen(tried), sizeof tried - 1);
    assert_false(gv_sanitizer_find(large, sizeof large, NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_variable_comes_first_and_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(toolkits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(python_environments, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_newest_of_several, set_up, tear_down),
        cmocka_unit_test_setup_teardown(those_that_report_tensor_copies_come_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(small_buffers, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
