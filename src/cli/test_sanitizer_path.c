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

// Makes root/folder/libsanitizer-public.so.
static void put(const char *below, const char *name)
{
    char command[512];
    snprintf(command, sizeof command, "/bin/mkdir -p '%s/%s' && : > '%s/%s/%s'", root, below, root, below, name);
    assert_int_equal(system(command), 0);
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
        cmocka_unit_test_setup_teardown(small_buffers, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
