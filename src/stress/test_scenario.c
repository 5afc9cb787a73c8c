// Scenario files: what is read, what is refused with which line and remedy; sessions: values, facts, determinism.
#include "stress/session.h"

#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char small[] =
    "name: small\n"
    "lines: 5\n"
    "system: |\n"
    "  Facts:\n"
    "  ${context}\n"
    "values: {city: {pick: [Rome]}}\n"
    "facts: [\"We are in ${city}.\"]\n"
    "filler:\n"
    "  values: {who: {name: 2}}\n"
    "  lines: [\"${who} is somewhere.\"]\n"
    "fragments: [\"<<X>>\"]\n"
    "tools:\n"
    "  - name: ring\n"
    "    description: Rings.\n"
    "    parameters: {type: object, properties: {who: {type: string}, times: {type: integer}}, required: [who]}\n"
    "    result: {ok: true}\n"
    "rounds:\n"
    "  - values: {who: {name: 2}, times: {integer: [2, 9]}}\n"
    "    facts: [\"${who} wants ${times} rings in ${city}.\"]\n"
    "    user: Ring for ${who} (round ${round}).\n"
    "    expect: {call: ring, arguments: {who: \"${who}\", times: \"${times}\"}}\n"
    "  - user: Where are we?\n"
    "    expect: {text: \"${city}\"}\n"
    "  - user: Who was it?\n";

static gv_scenario *load(const char *text)
{
    gv_scenario *scenario = NULL;
    gv_error error = {0};
    gv_status status = gv_scenario_parse("a.yaml", text, strlen(text), &scenario, &error);
    if (status != GV_OK)
        print_message("%s\n", error.text);
    assert_int_equal(status, GV_OK);
    return scenario;
}

static gv_session make(const gv_scenario *scenario, uint64_t seed, size_t index, size_t rounds, size_t lines)
{
    gv_session session;
    gv_error error = {0};
    gv_status status = gv_session_make(scenario, seed, index, rounds, lines, &session, &error);
    if (status != GV_OK)
        print_message("%s\n", error.text);
    assert_int_equal(status, GV_OK);
    return session;
}

static size_t count_lines(const char *text)
{
    size_t lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

static void test_small(void **state)
{
    gv_scenario *scenario = load(small);
    assert_string_equal(scenario->name, "small");
    assert_int_equal(scenario->lines, 5);
    assert_int_equal(scenario->round_count, 3);
    assert_string_equal(gv_scenario_tools(scenario).fragments[0], "<<X>>");
    assert_non_null(strstr(scenario->tools_json, "\"description\":\"Rings.\""));
    assert_null(gv_scenario_round(scenario, 3));

    gv_session session = make(scenario, 1, 0, 3, scenario->lines);
    assert_non_null(strstr(session.system, "We are in Rome."));
    assert_int_equal(count_lines(session.system), 6);
    const char *who = json_string_value(json_object_get(session.turns[0].arguments, "who"));
    const json_t *times = json_object_get(session.turns[0].arguments, "times");
    assert_true(json_is_integer(times));
    char fact[100];
    snprintf(fact, sizeof fact, "%s wants %d rings in Rome.", who, (int)json_integer_value(times));
    assert_non_null(strstr(session.system, fact));
    snprintf(fact, sizeof fact, "Ring for %s (round 1).", who);
    assert_string_equal(session.turns[0].user, fact);
    assert_string_equal(session.turns[0].result, "{\"ok\":true}");
    assert_string_equal(session.turns[1].expected.text, "Rome");
    assert_null(session.turns[2].expected.text);
    assert_null(session.turns[2].expected.tool);
    char *other = gv_session_other_result(&session, "ring");
    assert_string_equal(other, "{\"ok\":true}");
    gv_free(other);
    gv_session_free(&session);

    gv_error error = {0};
    assert_int_equal(gv_session_make(scenario, 1, 0, 4, 5, &session, &error), GV_ERR_USAGE);
    assert_non_null(strstr(error.text, "3 rounds, and 4 were asked for"));
    gv_scenario_free(scenario);
}

static void test_built_in(void **state)
{
    gv_scenario *scenario = load(gv_builtin_scenario);
    for (size_t i = 0; i < 20; i++) {
        gv_session session = make(scenario, 7, i, 9, 300);
        assert_int_equal(count_lines(session.system), 304);
        for (size_t round = 0; round < 9; round++) {
            const gv_turn *turn = &session.turns[round];
            const char *depot = json_string_value(json_object_get(turn->arguments, "depot"));
            const char *code = json_string_value(json_object_get(turn->arguments, "code"));
            // The fact stands in the context, once; and the ticket in the result before.
            char fact[100];
            snprintf(fact, sizeof fact, "Depot %s has the access code %s", depot, code ? code : "");
            const char *found = strstr(session.system, fact);
            assert_non_null(found);
            snprintf(fact, sizeof fact, "Depot %s has", depot);
            assert_null(strstr(found + 1, fact));
            assert_non_null(strstr(turn->user, depot));
            const char *ticket = json_string_value(json_object_get(turn->arguments, "ticket"));
            assert_int_equal(ticket != NULL, round > 0);
            if (ticket)
                assert_non_null(strstr(session.turns[round - 1].result, ticket));
        }
        gv_session_free(&session);
    }
    gv_scenario_free(scenario);
}

// The scenario for the specimen: eight rounds, all of whose words are in its files.
static void test_specimen(void **state)
{
    gv_scenario *scenario = NULL;
    assert_int_equal(gv_scenario_load("specimen/stress.yaml", &scenario, NULL), GV_OK);
    for (size_t i = 0; i < 50; i++) {
        gv_session session = make(scenario, 1, i, 8, scenario->lines);
        assert_int_equal(count_lines(session.system), 21);
        gv_session_free(&session);
    }
    gv_scenario_free(scenario);
}

static void test_same_again(void **state)
{
    gv_scenario *scenario = load(gv_builtin_scenario);
    gv_session a = make(scenario, 3, 5, 4, 60), b = make(scenario, 3, 5, 4, 60);
    gv_session other_seed = make(scenario, 4, 5, 4, 60), other_index = make(scenario, 3, 6, 4, 60);
    assert_string_equal(a.system, b.system);
    assert_string_equal(a.turns[3].user, b.turns[3].user);
    assert_true(json_equal(a.turns[3].arguments, b.turns[3].arguments));
    assert_string_not_equal(a.system, other_seed.system);
    assert_string_not_equal(a.system, other_index.system);
    gv_session_free(&a);
    gv_session_free(&b);
    gv_session_free(&other_seed);
    gv_session_free(&other_index);
    gv_scenario_free(scenario);
}

static void test_too_few_values(void **state)
{
    gv_scenario *scenario = load("rounds: [{user: '${a} ${context}', values: {a: {deal: [x, y]}}, facts: ['${a}']}]\n"
                                 "filler: {values: {b: {deal: [x, y]}}, lines: ['${b}']}\n");
    gv_session session = make(scenario, 1, 0, 1, 2);
    assert_non_null(strchr(session.turns[0].user, 'x'));
    assert_non_null(strchr(session.turns[0].user, 'y'));
    gv_session_free(&session);
    gv_error error = {0};
    assert_int_equal(gv_session_make(scenario, 1, 0, 1, 3, &session, &error), GV_ERR_LIMIT);
    assert_non_null(strstr(error.text, "`b` has too few different values"));
    gv_scenario_free(scenario);
}

static void test_refused(void **state)
{
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"name: x\n", "a.yaml:1: the scenario has no `rounds`"},
        {"rounds: []\n", "between 1 and 1000 items"},
        {"rounds: {user: x}\n", "`rounds` must be a list"},
        {"round: []\n", "a.yaml:1: a scenario has no key \"round\"; it can have: name, system"},
        {"rounds:\n  - usr: x\n", "a.yaml:2: a round has no key \"usr\"; it can have: values, facts, user"},
        {"rounds:\n  - values: {}\n", "a.yaml:2: the round has no `user`"},
        {"rounds:\n  - user: Hello ${nam}\n", "a.yaml:2: ${nam} is not among the `values`"},
        {"rounds:\n  - user: Hello ${}\n", "a.yaml:2: ${} is not among"},
        {"rounds:\n  - user: ${previous.x}\n", "there is no round before this one"},
        {"rounds:\n  - user: a\n  - user: '${previous.x}'\n",
         "a.yaml:3: ${previous.x}: a round that comes before this one has no "
         "value `x`"},
        {"rounds:\n  - user: a\n    values: {x: {digits: 2}}\n  - user: '${previous.x}'\nagain_from: 2\n",
         "a.yaml:4: ${previous.x}: a round that comes before"},
        {"again_from: 3\nrounds: [{user: a}]\n", "a.yaml:1: `again_from` must be a whole number from 1 to 1"},
        {"rounds:\n  - user: a\n    facts: [b]\n", "no ${context} where they shall stand"},
        {"rounds:\n  - user: a\n  - user: '${context}'\n", "a.yaml:3: ${context} can stand only in"},
        {"again_from: 1\nrounds: [{user: '${context}'}]\n", "the first round holds ${context} and cannot come again"},
        {"rounds:\n  - user: a\n    expect: {call: x}\n", "a.yaml:3: there is no tool `x`"},
        {"rounds:\n  - user: a\n    expect: {}\n", "`expect` must have either `call`"},
        {"rounds:\n  - user: a\n    expect: {text: ''}\n", "the expected `text` is empty"},
        {"rounds:\n  - user: a\n    expect: {text: x, arguments: {}}\n", "`arguments` belong to a `call`"},
        {"tools: [{name: x}]\nrounds:\n  - user: a\n    expect: {call: x, text: y}\n", "either `call`"},
        {"tools: [{name: x}]\nrounds:\n  - user: a\n    expect: {call: x, arguments: 7}\n",
         "`arguments` must be a mapping"},
        {"tools: [{name: x, parameters: {type: object, required: [q]}}]\nrounds:\n  - user: a\n    expect: {call: x}\n",
         "the tool `x` requires `q`"},
        {"tools: [{name: 'a b'}]\nrounds: [{user: a}]\n", "a.yaml:1: a tool needs a `name`"},
        {"tools:\n  - name: a\n  - name: a\nrounds: [{user: a}]\n", "a.yaml:3: there are two tools called `a`"},
        {"tools: [{name: a, parameters: {type: string}}]\nrounds: [{user: a}]\n", "`type: object`"},
        {"values: {a: 7}\nrounds: [{user: a}]\n", "a.yaml:1: the value `a` must say how it is drawn"},
        {"values: {a: {dice: 7}}\nrounds: [{user: a}]\n", "there is no kind of value `dice`"},
        {"values: {a: {digits: 0}}\nrounds: [{user: a}]\n", "`digits` must be a whole number from 1 to 18"},
        {"values: {a: {integer: [3, 2]}}\nrounds: [{user: a}]\n", "the smaller first"},
        {"values: {a: {integer: 3}}\nrounds: [{user: a}]\n", "`integer` takes its bounds"},
        {"values: {a: {pick: []}}\nrounds: [{user: a}]\n", "`pick` takes a list of texts"},
        {"values: {context: {digits: 2}}\nrounds: [{user: a}]\n", "a value cannot be called \"context\""},
        {"facts: [{a: b}]\nrounds: [{user: a}]\n", "must be text"},
        {"filler: {values: {}}\nrounds: [{user: a}]\n", "`filler` has no `lines`"},
        {"fragments: ['']\nrounds: [{user: a}]\n", "a fragment is empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gv_scenario *scenario = NULL;
        gv_error error = {0};
        gv_status status = gv_scenario_parse("a.yaml", cases[i].text, strlen(cases[i].text), &scenario, &error);
        if (status == GV_OK || !strstr(error.text, cases[i].said))
            print_message("case %zu: %s\n", i, error.text);
        assert_int_not_equal(status, GV_OK);
        assert_null(scenario);
        assert_non_null(strstr(error.text, cases[i].said));
    }
}

static void test_json_string(void **state)
{
    gv_string out = {0};
    gv_add_json_string(&out, "a\"b\\c\n\x01\xc3\xa4", 9);
    assert_string_equal(out.text, "\"a\\\"b\\\\c\\n\\u0001\xc3\xa4\"");
    gv_string_free(&out);
}

static void test_random(void **state)
{
    gv_random random = gv_random_open(1, 2);
    size_t counts[7] = {0};
    for (int i = 0; i < 70000; i++)
        counts[gv_random_below(&random, 7)]++;
    // Six standard deviations around 10,000.
    for (int i = 0; i < 7; i++)
        assert_in_range(counts[i], 9450, 10550);
    assert_int_equal(gv_random_below(&random, 0), 0);
    assert_int_equal(gv_random_below(&random, 1), 0);
}

static void test_no_memory(void **state)
{
    json_set_alloc_funcs(gv_malloc, gv_free);
    bool succeeded = false;
    for (long n = 0; !succeeded; n++) {
        gv_scenario *scenario = NULL;
        gv_memory_fail_after(n);
        gv_status status = gv_scenario_parse("a.yaml", small, sizeof small - 1, &scenario, NULL);
        gv_memory_fail_after(-1);
        succeeded = status == GV_OK;
        assert_true(succeeded || status == GV_ERR_MEMORY);
        gv_scenario_free(scenario);
    }
    gv_scenario *scenario = load(small);
    succeeded = false;
    for (long n = 0; !succeeded; n++) {
        gv_session session;
        gv_memory_fail_after(n);
        gv_status status = gv_session_make(scenario, 1, 0, 3, 8, &session, NULL);
        gv_memory_fail_after(-1);
        succeeded = status == GV_OK;
        assert_true(succeeded || status == GV_ERR_MEMORY);
        gv_session_free(&session);
    }
    gv_scenario_free(scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),       cmocka_unit_test(test_built_in),       cmocka_unit_test(test_specimen),
        cmocka_unit_test(test_same_again),  cmocka_unit_test(test_too_few_values), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_json_string), cmocka_unit_test(test_random),         cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
