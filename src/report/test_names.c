// Unit tests of report/names.c: demangled and shortened kernel names.
#include "base/memory.h"
#include "report/names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect_short(const char *name, size_t width, const char *expected)
{
    gv_string string = {0};
    gv_name_shorten(&string, name, width);
    assert_string_equal(gv_string_text(&string), expected);
    gv_string_free(&string);
}

#define FILL "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"

static void demangled_in_full(void **state)
{
    gv_string string = {0};
    gv_name_demangle(&string, FILL);
    assert_string_equal(gv_string_text(&string),
                        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
                        "std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)");
    gv_string_free(&string);
}

static void parameters_and_return_type_go_first(void **state)
{
    expect_short("_Z5scaleIfEvPT_S0_i", 64, "scale<float>");
    expect_short("_ZN7indexer11topk_kernelEPKfPii", 64, "indexer::topk_kernel");
    expect_short("_Z6decodePf", 64, "decode");
    expect_short("_ZN12_GLOBAL__N_13fooEi", 64, "(anonymous namespace)::foo");
    expect_short("_Z1fPFviE", 64, "f");
    expect_short("_ZN1AclEv", 64, "A::operator()()");
}

static void then_namespaces_and_the_last_arguments(void **state)
{
    expect_short(
        FILL, 120,
        "at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >");
    expect_short(FILL, 80, "vectorized_elementwise_kernel<4, FillFunctor<float>, array<char*, 1ul> >");
    expect_short(FILL, 64, "vectorized_elementwise_kernel<4, FillFunctor<float>, ...>");
    expect_short(FILL, 40, "vectorized_elementwise_kernel<4, ...>");
    expect_short("_ZN12_GLOBAL__N_13fooEi", 8, "foo");
}

static void names_that_are_not_mangled_stay(void **state)
{
    expect_short("nvjet_sm90_tst_128x64_64x8_2x1_v_bz_coopA_TNT", 64, "nvjet_sm90_tst_128x64_64x8_2x1_v_bz_coopA_TNT");
    expect_short("nvjet_sm90_tst_128x64_64x8_2x1_v_bz_coopA_TNT", 20, "nvjet_sm90_tst_12...");
    expect_short("triton_poi_fused_add_0", 64, "triton_poi_fused_add_0");
    // Not a kernel's signature: nothing is taken off.
    expect_short("step(int) <lambda>", 64, "step(int) <lambda>");
    expect_short("_Znonsense", 64, "_Znonsense");
    expect_short("", 64, "");
    expect_short("a\x1b[0m", 64, "a\\x1b[0m");
}

// Names come from the traced program. One that nests without end must not take the reader down, and one too long to be
// a name is not given to the demangler at all.
static void hostile_names_end(void **state)
{
    enum { LENGTH = GV_NAME_DEMANGLE_MAX + 2 };
    char *name = malloc(LENGTH + 1);
    assert_non_null(name);
    memset(name, 'P', LENGTH);
    memcpy(name, "_Z1f", 4);
    name[LENGTH] = '\0';
    gv_string string = {0};
    gv_name_demangle(&string, name);
    assert_string_equal(gv_string_text(&string), name);
    gv_string_free(&string);
    name[GV_NAME_DEMANGLE_MAX] = '\0';
    gv_name_demangle(&string, name);
    assert_false(string.failed);
    gv_string_free(&string);
    free(name);
}

static void nodes_have_names(void **state)
{
    gv_function functions[] = {{0}, {.name = "_Z6decodePf"}, {.name = NULL}};
    gv_node nodes[] = {
        {.kind = GV_NODE_KERNEL, .function = 1}, {.kind = GV_NODE_KERNEL, .function = 2}, {.kind = GV_NODE_MEMCPY},
        {.kind = GV_NODE_CHILD, .child = 5},     {.kind = (enum gv_node_kind)99},
    };
    gv_graph graph = {.id = 1, .nodes = nodes, .node_count = 5};
    gv_trace trace = {.functions = functions, .function_count = 3};
    static const char *const expected[] = {"decode", "kernel", "memcpy", "child graph #5", "node", "node"};
    for (size_t i = 0; i < 6; i++) {
        gv_string string = {0};
        gv_node_name(&string, &trace, &graph, i, 64);
        assert_string_equal(gv_string_text(&string), expected[i]);
        gv_string_free(&string);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(demangled_in_full),
        cmocka_unit_test(parameters_and_return_type_go_first),
        cmocka_unit_test(then_namespaces_and_the_last_arguments),
        cmocka_unit_test(names_that_are_not_mangled_stay),
        cmocka_unit_test(hostile_names_end),
        cmocka_unit_test(nodes_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
