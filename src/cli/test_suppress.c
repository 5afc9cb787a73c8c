// Unit tests of cli/suppress.c: the file's grammar, and what is matched.
#include "base/memory.h"
#include "cli/suppress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static gv_function functions[] = {{0}, {.name = "_Z5scaleIfEvPT_S0_i"}, {.name = "_ZN7indexer11topk_kernelEPKfPii"}};
static gv_node nodes[] = {{.kind = GV_NODE_KERNEL, .function = 1, .stack = 1},
                          {.kind = GV_NODE_KERNEL, .function = 2, .stack = 2},
                          {.kind = GV_NODE_MEMSET}};
static gv_graph graphs[] = {{0}, {.id = 1, .nodes = nodes, .node_count = 3}};
static gv_python_frame frames[] = {{"/srv/engine/model.py", "step", 12}, {"/srv/engine/indexer.py", "topk", 7}};
static gv_stack stacks[] = {{0}, {.python = &frames[0], .python_count = 1}, {.python = &frames[1], .python_count = 1}};
static gv_trace trace = {.functions = functions,
                         .function_count = 3,
                         .graphs = graphs,
                         .graph_count = 2,
                         .stacks = stacks,
                         .stack_count = 3};

// Applies one block of suppressions to a race between nodes 0 and 1 and says whether it matched.
static bool suppresses(const char *block)
{
    gv_race_pair pair = {.first = {.node = 0}, .second = {.node = 1}, .id = GV_FINDING_RACE_WAR};
    gv_finding item = {.id = GV_FINDING_RACE_WAR, .trace = &trace, .graph = 1, .pairs = &pair, .pair_count = 1};
    gv_findings findings = {.items = &item, .count = 1};
    gv_suppressions suppressions = {0};
    gv_error error = {0};
    assert_int_equal(gv_suppressions_parse(&suppressions, "test.supp", block, &error), GV_OK);
    assert_int_equal(gv_suppressions_apply(&suppressions, &findings, &error), GV_OK);
    assert_int_equal(suppressions.items[0].used, item.suppressed);
    gv_suppressions_free(&suppressions);
    return item.suppressed;
}

static void ids_are_matched(void **state)
{
    assert_true(suppresses("{\na\nrace-war\n}\n"));
    assert_true(suppresses("{\na\nrace-*\n}\n"));
    assert_true(suppresses("{\na\n*\n}\n"));
    assert_false(suppresses("{\na\nrace-raw\n}\n"));
    assert_false(suppresses("{\na\nincomplete\n}\n"));
}

static void names_are_matched_in_every_form(void **state)
{
    assert_true(suppresses("{\na\nrace-war\nfirst: scale<float>\n}\n"));
    assert_true(suppresses("{\na\nrace-war\nfirst: void scale<float>(float[*],*int)\n}\n"));
    assert_true(suppresses("{\na\nrace-war\nfirst: _Z5scale*\n}\n"));
    assert_true(suppresses("{\na\nrace-war\nsecond: indexer::*\n}\n"));
    assert_false(suppresses("{\na\nrace-war\nfirst: indexer::*\n}\n"));
    assert_false(suppresses("{\na\nrace-war\nsecond: scale*\n}\n"));
    assert_false(suppresses("{\na\nrace-war\nfirst: scale\n}\n"));
}

static void places_are_matched_on_either_side(void **state)
{
    assert_true(suppresses("{\na\nrace-war\nplace: model.py:12\n}\n"));
    assert_true(suppresses("{\na\nrace-war\nplace: engine/indexer.py:*\n}\n"));
    assert_true(suppresses("{\na\nrace-war\nplace: /srv/engine/model.py:1?\n}\n"));
    assert_false(suppresses("{\na\nrace-war\nplace: model.py:1\n}\n"));
    assert_false(suppresses("{\na\nrace-war\nplace: other.py:*\n}\n"));
    assert_false(suppresses("{\na\nrace-war\nreason: *\n}\n")); // races have none
}

static void every_pair_must_match(void **state)
{
    gv_race_pair pairs[] = {{.first = {.node = 0}, .second = {.node = 1}, .id = GV_FINDING_RACE_WAR},
                            {.first = {.node = 0}, .second = {.node = 2}, .id = GV_FINDING_RACE_WAW}};
    gv_finding item = {.id = GV_FINDING_RACE_WAR, .trace = &trace, .graph = 1, .pairs = pairs, .pair_count = 2};
    gv_findings findings = {.items = &item, .count = 1};
    gv_error error = {0};
    gv_suppressions part = {0}, whole = {0};
    assert_int_equal(gv_suppressions_parse(&part, "a", "{\na\nrace-war\n}\n", &error), GV_OK);
    assert_int_equal(gv_suppressions_apply(&part, &findings, &error), GV_OK);
    assert_false(item.suppressed);
    assert_int_equal(part.items[0].pairs, 1);
    assert_int_equal(part.items[0].used, 0);
    // Two blocks may share the work.
    assert_int_equal(
        gv_suppressions_parse(&whole, "b", "{\na\nrace-war\n}\n{\nb\nrace-waw\nsecond: memset\n}\n", &error), GV_OK);
    assert_int_equal(gv_suppressions_apply(&whole, &findings, &error), GV_OK);
    assert_true(item.suppressed);
    assert_true(whole.items[0].used && whole.items[1].used);
    // Another file does not take it away.
    assert_int_equal(gv_suppressions_apply(&part, &findings, &error), GV_OK);
    assert_true(item.suppressed);
    gv_suppressions_free(&part);
    gv_suppressions_free(&whole);
}

static void incompletenesses_are_matched(void **state)
{
    gv_finding items[] = {
        {.id = GV_FINDING_INCOMPLETE, .trace = &trace, .graph = 1, .node = 2, .reason = "tensor copies"},
        {.id = GV_FINDING_INCOMPLETE, .trace = &trace, .graph = 1, .reason = "tensor copies"},
        {.id = GV_FINDING_INCOMPLETE, .trace = &trace, .graph = 1, .reason = "the process was killed"},
    };
    gv_findings findings = {.items = items, .count = 3};
    gv_error error = {0};
    gv_suppressions suppressions = {0};
    assert_int_equal(
        gv_suppressions_parse(&suppressions, "a", "{\na\nincomplete\nreason: *tensor*\nfirst: *topk*\n}\n", &error),
        GV_OK);
    assert_int_equal(gv_suppressions_apply(&suppressions, &findings, &error), GV_OK);
    assert_true(items[0].suppressed);
    assert_false(items[1].suppressed); // about no node
    assert_false(items[2].suppressed);
    gv_suppressions_free(&suppressions);
}

static void the_grammar_is_strict(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"race\n", "t:1: expected"},
        {"# only a comment\n\n", NULL},
        {"{\na\nrace-war\n", "t:1: the block that begins here"},
        {"{\na\n}\n", "t:1: a block needs"},
        {"{\n}\n", "t:1: a block needs"},
        {"{\na\nrace-odd\n}\n", "no finding has the id \"race-odd\""},
        {"{\na\nrace-war\ncolour: red\n}\n", "t:4: \"colour: red\" is none of"},
        {"{\na\nrace-war\nfirst:\n}\n", "t:4: a glob is missing"},
        {"{\na\nrace-war\nfirst: x\nfirst: y\n}\n", "t:5: the block has this line twice"},
        {"  {  \r\n  a  \r\n race-war \r\n}\r\n", NULL}, // blanks and line ends of other systems
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gv_suppressions suppressions = {0};
        gv_error error = {0};
        gv_status status = gv_suppressions_parse(&suppressions, "t", cases[i].text, &error);
        assert_int_equal(status, cases[i].message ? GV_ERR_FORMAT : GV_OK);
        if (cases[i].message)
            assert_non_null(strstr(error.text, cases[i].message));
        gv_suppressions_free(&suppressions);
    }
}

static void allocations_may_fail(void **state)
{
    static const char text[] = "{\na name\nrace-war\nfirst: scale*\nsecond: *\nplace: *\n}\n";
    gv_status status = GV_ERR_MEMORY;
    for (long allowed = 0; status != GV_OK; allowed++) {
        gv_race_pair pair = {.first = {.node = 0}, .second = {.node = 1}, .id = GV_FINDING_RACE_WAR};
        gv_finding item = {.id = GV_FINDING_RACE_WAR, .trace = &trace, .graph = 1, .pairs = &pair, .pair_count = 1};
        gv_findings findings = {.items = &item, .count = 1};
        gv_suppressions suppressions = {0};
        gv_error error = {0};
        gv_memory_fail_after(allowed);
        status = gv_suppressions_parse(&suppressions, "t", text, &error);
        if (status == GV_OK)
            status = gv_suppressions_apply(&suppressions, &findings, &error);
        gv_memory_fail_after(-1);
        assert_true(status == GV_OK || status == GV_ERR_MEMORY);
        assert_true(allowed < 200);
        gv_suppressions_free(&suppressions);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_matched),
        cmocka_unit_test(names_are_matched_in_every_form),
        cmocka_unit_test(places_are_matched_on_either_side),
        cmocka_unit_test(every_pair_must_match),
        cmocka_unit_test(incompletenesses_are_matched),
        cmocka_unit_test(the_grammar_is_strict),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
