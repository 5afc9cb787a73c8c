// Unit tests of report/stack.c: which line of a call stack is named.
#include "base/memory.h"
#include "report/stack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static gv_module modules[] = {
    {0},
    {.path = "/home/dev/engine/build/engine"},
    {.path = "/usr/local/cuda/lib64/libcudart.so.13"},
    {.path = "/usr/lib/libcuda.so.1"},
    {.path = "/opt/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so"},
    {.path = "/usr/bin/python3.12"},
};
enum { ENGINE = 1, CUDART, DRIVER, TORCH, PYTHON };

static gv_place place_of(gv_stack stack)
{
    gv_stack stacks[] = {{0}, stack};
    gv_trace trace = {.modules = modules, .module_count = 6, .stacks = stacks, .stack_count = 2};
    return gv_stack_place(&trace, 1);
}

static void expect_printed(gv_place place, const char *expected)
{
    gv_string string = {0};
    gv_place_print(&string, &place);
    assert_string_equal(gv_string_text(&string), expected);
    gv_string_free(&string);
}

#define PYTHON_STACK(...)                                   \
    ((gv_stack){.python = (gv_python_frame[]){__VA_ARGS__}, \
                .python_count = sizeof((gv_python_frame[]){__VA_ARGS__}) / sizeof(gv_python_frame)})
#define HOST_STACK(...)                                 \
    ((gv_stack){.host = (gv_host_frame[]){__VA_ARGS__}, \
                .host_count = sizeof((gv_host_frame[]){__VA_ARGS__}) / sizeof(gv_host_frame)})

static void python_files_of_frameworks_are_known(void **state)
{
    static const char *const libraries[] = {
        "/opt/venv/lib/python3.12/site-packages/torch/_ops.py",
        "/usr/lib/python3/dist-packages/triton/runtime/jit.py",
        "/usr/lib/python3.12/contextlib.py",
        "<frozen importlib._bootstrap>",
    };
    static const char *const own[] = {
        "/srv/engine/model.py",
        "/opt/venv/lib/python3.12/site-packages/sglang/srt/models/deepseek.py", // an engine is the program
        "/opt/venv/lib/python3.12/site-packages/torchlike/x.py",
        "/home/dev/torch/model.py",
        "<string>", // python -c
        "/tmp/torchinductor_dev/ab/cab.py",
    };
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        assert_true(gv_python_file_is_library(libraries[i]));
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        assert_false(gv_python_file_is_library(own[i]));
}

static void modules_of_others_are_known(void **state)
{
    for (size_t i = CUDART; i <= PYTHON; i++)
        assert_true(gv_module_is_library(modules[i].path));
    assert_true(gv_module_is_library("/lib/x86_64-linux-gnu/libc.so.6"));
    assert_true(gv_module_is_library("/opt/gravel/lib/libgravel-record.so"));
    assert_true(gv_module_is_library("[vdso]"));
    assert_false(gv_module_is_library(modules[ENGINE].path));
    assert_false(gv_module_is_library("/opt/llama/libggml-cuda.so"));
    assert_false(gv_module_is_library("/srv/python_bench"));
    assert_false(gv_module_is_library("/srv/vllm/_C.abi3.so"));
}

static void python_comes_before_compiled_code(void **state)
{
    gv_stack stack = PYTHON_STACK({"/opt/lib/python3.12/site-packages/torch/_ops.py", "__call__", 502},
                                  {"/srv/engine/model.py", "step", 12}, {"/srv/engine/serve.py", "main", 3});
    gv_host_frame host = {.module = ENGINE, .file = "decode.c", .line = 1};
    stack.host = &host;
    stack.host_count = 1;
    expect_printed(place_of(stack), "engine/model.py:12 in step");
}

static void frameworks_alone_are_better_than_nothing(void **state)
{
    expect_printed(place_of(PYTHON_STACK({"/opt/lib/python3.12/site-packages/torch/_ops.py", "__call__", 502})),
                   "torch/_ops.py:502 in __call__");
    expect_printed(place_of(HOST_STACK({.module = CUDART, .address = 0x100})), "lib64/libcudart.so.13 (+0x100)");
}

static void the_programs_own_line_is_found(void **state)
{
    expect_printed(
        place_of(HOST_STACK({.module = DRIVER, .address = 1}, {.module = CUDART, .function = "cudaLaunchKernel"},
                            {.module = ENGINE, .function = "launch", .file = "/home/dev/engine/decode.c", .line = 88},
                            {.module = ENGINE, .function = "main", .file = "/home/dev/engine/main.c", .line = 5})),
        "engine/decode.c:88 in launch");
    // A function without a line is passed over for one with a line further out, which says more.
    expect_printed(place_of(HOST_STACK({.module = ENGINE, .function = "static_cudart"},
                                       {.module = ENGINE, .function = "main", .file = "main.c", .line = 5})),
                   "main.c:5 in main");
    expect_printed(place_of(HOST_STACK({.module = CUDART}, {.module = ENGINE, .address = 0x10},
                                       {.module = ENGINE, .function = "_Z6decodePf", .address = 0x1f40})),
                   "decode in build/engine (+0x1f40)");
    expect_printed(place_of(HOST_STACK({.module = CUDART}, {.module = ENGINE, .address = 0x10})),
                   "build/engine (+0x10)");
}

// What nvcc puts between a launch and cudart, as it stands in the stack of an unoptimised program (CUDA 13.0).
static void the_launch_is_named_and_not_the_kernels_definition(void **state)
{
    expect_printed(
        place_of(HOST_STACK({.module = ENGINE,
                             .function = "_ZL25__cudaLaunchKernel_helper",
                             .file = "/cuda/include/crt/device_functions.h",
                             .line = 2963},
                            {.module = ENGINE,
                             .function = "_ZL32__device_stub__Z5scaleIfEvPT_S0_Pff",
                             .file = "/tmp/tmpxft_1_a.cudafe1.stub.c",
                             .line = 1},
                            {.module = ENGINE,
                             .function = "_Z28__wrapper__device_stub_scaleIfEvRPT_RS0_",
                             .file = "/tmp/tmpxft_1_a.cudafe1.stub.c",
                             .line = 2},
                            {.module = ENGINE, .function = "_Z5scaleIfEvPT_S0_", .file = "/home/dev/a.cu", .line = 3},
                            {.module = ENGINE, .function = "_ZL4stepPf", .file = "/home/dev/a.cu", .line = 12})),
        "dev/a.cu:12 in step");
    // The kernel's name is no reason to pass over a function that only has the same name as another kernel.
    assert_true(gv_stub_is_of("_Z5plainPfPf", "_Z5plainPf"));
    assert_false(gv_stub_is_of("_Z5plainPfPf", "_Z4stepPf"));
    assert_false(gv_stub_is_of("scale<float>", "scale"));
    assert_null(gv_stub_kernel("_Z5plainPf"));
}

static void nothing_was_recorded(void **state)
{
    gv_trace trace = {.stack_count = 0};
    expect_printed(gv_stack_place(&trace, 0), "an unknown place (no call stack was recorded)");
    expect_printed(gv_stack_place(&trace, 7), "an unknown place (no call stack was recorded)");
    expect_printed(place_of((gv_stack){0}), "an unknown place (no call stack was recorded)");
}

static void paths_are_cut_to_two_parts(void **state)
{
    assert_string_equal(gv_short_path("/a/b/c.py"), "b/c.py");
    assert_string_equal(gv_short_path("b/c.py"), "b/c.py");
    assert_string_equal(gv_short_path("c.py"), "c.py");
    assert_string_equal(gv_short_path("/c.py"), "c.py");
    assert_string_equal(gv_short_path(""), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(python_files_of_frameworks_are_known),
        cmocka_unit_test(modules_of_others_are_known),
        cmocka_unit_test(python_comes_before_compiled_code),
        cmocka_unit_test(frameworks_alone_are_better_than_nothing),
        cmocka_unit_test(the_programs_own_line_is_found),
        cmocka_unit_test(the_launch_is_named_and_not_the_kernels_definition),
        cmocka_unit_test(nothing_was_recorded),
        cmocka_unit_test(paths_are_cut_to_two_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
