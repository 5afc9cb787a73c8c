// Plans and what comes out of them before anything runs: designs, patches in parts, placeholders, counts.
#include "lab/counts.h"
#include "lab/design.h"
#include "lab/expand.h"
#include "lab/minimise.h"
#include "lab/patch.h"
#include "lab/plan.h"

#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SERVICE                                                                \
    "version: 1\nname: t\nservice: {command: [x], ready: {url: 'http://x'}}\n" \
    "trial: {command: [x], sessions: 5, counts: {format: json, sessions: /s, corrupt: /c}}\n"

static gv_plan *parse(const char *rest)
{
    char text[4096];
    gv_error error = {0};
    gv_plan *plan = NULL;
    int length = snprintf(text, sizeof text, SERVICE "%s", rest);
    if (gv_plan_parse("t.yaml", text, (size_t)length, &plan, &error) != GV_OK)
        fail_msg("%s", error.text);
    return plan;
}

static void expect_error(const char *rest, const char *message)
{
    char text[4096];
    gv_error error = {0};
    gv_plan *plan = NULL;
    int length = snprintf(text, sizeof text, SERVICE "%s", rest);
    assert_int_equal(gv_plan_parse("t.yaml", text, (size_t)length, &plan, &error), GV_ERR_FORMAT);
    assert_null(plan);
    assert_non_null(strstr(error.text, "t.yaml:"));
    if (!strstr(error.text, message))
        fail_msg("\"%s\" does not say \"%s\"", error.text, message);
}

static void test_full_design(void **state)
{
    gv_plan *plan = parse("factors: {a: {p: , q: , r: }, b: {x: , y: }}\n");
    assert_int_equal(plan->design.cell_count, 6);
    char *name = gv_plan_cell_name(plan, &plan->design.cells[3]);
    assert_string_equal(name, "a=q, b=y");
    gv_free(name);
    gv_plan_free(plan);
    plan = parse("factors: {a: {p: , q: , r: }, b: {x: , y: }}\ndesign: {exclude: [{a: p, b: y}, {a: r}]}\n");
    assert_int_equal(plan->design.cell_count, 3);
    gv_plan_free(plan);
    expect_error("factors: {a: {p: , q: }}\ndesign: {exclude: [{a: p}, {a: q}]}\n", "no cells left");
    expect_error("factors: {a: {p: , q: }}\ndesign: {exclude: [{a: p}, {a: p}]}\n", "excludes no cell");
    expect_error("factors: {a: {p: }}\n", "2 to 50");
}

static void test_one_factor_design(void **state)
{
    gv_plan *plan = parse("factors: {a: {p: , q: , r: }, b: {x: , y: }}\n"
                          "design: {kind: one-factor, baseline: {a: q, b: x}}\n");
    assert_int_equal(plan->design.cell_count, 4); // the baseline, two other a, one other b
    uint32_t factors;
    for (size_t c = 1; c < 4; c++)
        assert_int_equal(gv_cell_difference(plan, &plan->design.cells[0], &plan->design.cells[c], &factors), 1);
    gv_plan_free(plan);
    expect_error("factors: {a: {p: , q: }}\ndesign: {kind: one-factor}\n", "`baseline`");
}

// A half fraction of 2^4 with d = a b c: of resolution IV, so that main effects are clear of two-factor interactions.
static void test_fraction(void **state)
{
    gv_plan *plan = parse("factors: {a: {m: , p: }, b: {m: , p: }, c: {m: , p: }, d: {m: , p: }}\n"
                          "design: {kind: fraction, generators: [d = a * b * c]}\n");
    assert_int_equal(plan->design.cell_count, 8);
    for (size_t i = 0; i < 8; i++) {
        int product = 1;
        for (size_t f = 0; f < 3; f++)
            product *= plan->design.cells[i].level[f] ? 1 : -1;
        assert_int_equal(plan->design.cells[i].level[3] ? 1 : -1, product);
    }
    // Balanced: every level of every factor in half of the cells.
    for (size_t f = 0; f < 4; f++) {
        size_t plus = 0;
        for (size_t i = 0; i < 8; i++)
            plus += plan->design.cells[i].level[f];
        assert_int_equal(plus, 4);
    }
    uint32_t aliases[8];
    assert_int_equal(gv_design_aliases(plan, 1, aliases, 8), 0);
    assert_int_equal(gv_design_aliases(plan, 1 | 2, aliases, 8), 1); // a b with c d
    assert_int_equal(aliases[0], 4 | 8);
    gv_plan_free(plan);
    // A quarter of 2^5: d = a b, e = a c.
    plan = parse("factors: {a: {m: , p: }, b: {m: , p: }, c: {m: , p: }, d: {m: , p: }, e: {m: , p: }}\n"
                 "design: {kind: fraction, generators: [d = a * b, e = a * c]}\n");
    assert_int_equal(plan->design.cell_count, 8);
    assert_int_equal(gv_design_aliases(plan, 1, aliases, 8), 2); // a with b d and with c e
    gv_plan_free(plan);
    expect_error("factors: {a: {m: , p: }, b: {m: , p: }}\ndesign: {kind: fraction}\n", "`generators`");
    expect_error("factors: {a: {m: , p: }, b: {m: , p: }}\ndesign: {kind: fraction, generators: [b = b]}\n", "itself");
    expect_error("factors: {a: {m: , p: }, b: {m: , p: , q: }}\ndesign: {kind: fraction, generators: [b = a]}\n",
                 "two levels");
}

static void test_block_order(void **state)
{
    size_t first[8], again[8], second[8], sum = 0;
    gv_block_order(3, 1, first, 8);
    gv_block_order(3, 1, again, 8);
    gv_block_order(3, 2, second, 8);
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, second, sizeof first);
    for (int i = 0; i < 8; i++)
        sum |= 1u << first[i];
    assert_int_equal(sum, 255);
    // Each cell comes first equally often, as far as 8,000 draws tell: 1,000 each, give or take 4 standard deviations.
    size_t leads[8] = {0};
    for (uint64_t block = 1; block <= 8000; block++) {
        gv_block_order(9, block, first, 8);
        leads[first[0]]++;
    }
    for (int i = 0; i < 8; i++)
        assert_in_range(leads[i], 882, 1118);
}

// ---- Files --------------------------------------------------------------------------------------------------------

static char folder[] = "/tmp/gravel-lab-XXXXXX";
static char path[512], other[512];

static int make_folder(void **state)
{
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/in", folder);
    snprintf(other, sizeof other, "%s/out", folder);
    return 0;
}

static int remove_folder(void **state)
{
    unlink(path);
    unlink(other);
    return rmdir(folder);
}

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void expect_file(const char *wanted)
{
    char *text;
    assert_int_equal(gv_read_whole(other, 1 << 20, &text, NULL, NULL), GV_OK);
    assert_string_equal(text, wanted);
    gv_free(text);
}

static void test_patch(void **state)
{
    // Two files, three hunks, a rename without one, mail around it, and a removed line that looks like a header.
    write_file("From: someone\nSubject: a patch\n\n"
               "diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n"
               "@@ -1,2 +1,2 @@ top\n-old\n+new\n same\n"
               "@@ -10 +10,2 @@\n---- a\n+++ b\n+two\n\\ No newline at end of file\n"
               "diff --git a/y b/z\nsimilarity index 100%\nrename from y\nrename to z\n"
               "diff --git a/w b/w\n--- a/w\n+++ b/w\n@@ -3,0 +4 @@\n+added\n-- \n2.39\n");
    size_t count;
    gv_error error = {0};
    assert_int_equal(gv_patch_hunks(path, &count, &error), GV_OK);
    assert_int_equal(count, 4);
    bool second[] = {false, true, false, false}, rename_and_last[] = {false, false, true, true}, none[4] = {false};
    assert_int_equal(gv_patch_select(path, second, 4, other, &error), GV_OK);
    expect_file("diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n"
                "@@ -10 +10,2 @@\n---- a\n+++ b\n+two\n\\ No newline at end of file\n");
    assert_int_equal(gv_patch_select(path, rename_and_last, 4, other, &error), GV_OK);
    expect_file("diff --git a/y b/z\nsimilarity index 100%\nrename from y\nrename to z\n"
                "diff --git a/w b/w\n--- a/w\n+++ b/w\n@@ -3,0 +4 @@\n+added\n");
    assert_int_equal(gv_patch_select(path, none, 4, other, &error), GV_OK);
    expect_file("");
    write_file("no patch at all\n");
    assert_int_equal(gv_patch_hunks(path, &count, &error), GV_ERR_FORMAT);
    write_file("--- a\n+++ b\n@@ -1,5 +1,5 @@\n one\n");
    assert_int_equal(gv_patch_hunks(path, &count, &error), GV_ERR_FORMAT);
    assert_non_null(strstr(error.text, "cut"));
}

static void test_fix(void **state)
{
    write_file("{\"version\": 1, \"edges\": [{\"from\": 1}, {\"from\": 2}, {\"from\": 3}]}");
    size_t count;
    gv_error error = {0};
    bool keep[] = {true, false, true};
    assert_int_equal(gv_fix_edges(path, &count, &error), GV_OK);
    assert_int_equal(count, 3);
    assert_int_equal(gv_fix_select(path, keep, 3, other, &error), GV_OK);
    char *text;
    assert_int_equal(gv_read_whole(other, 4096, &text, NULL, NULL), GV_OK);
    assert_true(strstr(text, "\"from\": 1") && !strstr(text, "\"from\": 2") && strstr(text, "\"from\": 3"));
    gv_free(text);
    write_file("{}");
    assert_int_equal(gv_fix_edges(path, &count, &error), GV_ERR_FORMAT);
}

// ---- Texts --------------------------------------------------------------------------------------------------------

static void test_expand(void **state)
{
    gv_variables variables = {0};
    gv_error error = {0};
    gv_variables_set(&variables, "port", "80");
    gv_variables_set_number(&variables, "port", 8080);
    gv_variables_set(&variables, "level.keys", "bf16");
    char *text = gv_expand(&variables, "a${port}/${level.keys}$ $${port} $5", &error);
    assert_string_equal(text, "a8080/bf16$ ${port} $5");
    gv_free(text);
    setenv("GV_TEST_EXPAND", "x", 1);
    text = gv_expand(&variables, "${env.GV_TEST_EXPAND}", &error);
    assert_string_equal(text, "x");
    gv_free(text);
    assert_null(gv_expand(&variables, "${prot}", &error));
    assert_non_null(strstr(error.text, "port, level.keys"));
    assert_null(gv_expand(&variables, "${port", &error));
    assert_null(gv_expand(&variables, "${env.GV_NOT_SET}", &error));
    gv_variables_free(&variables);
}

static void test_counts_json(void **state)
{
    gv_counts counts = {
        .json = true, .sessions = "/a~1b/0", .corrupt = "/c", .failed = "/f", .list = "/l", .list_verdict = "/v"};
    gv_counted counted;
    gv_error error = {0};
    const char *text = "{\"a/b\": [10], \"c\": 3, \"f\": 1, \"l\": [{\"v\": \"corrupt\"}, {\"v\": \"clean\"}]}";
    assert_int_equal(gv_counts_read(&counts, text, strlen(text), &counted, &error), GV_OK);
    assert_true(counted.sessions == 10 && counted.corrupt == 3 && counted.failed == 1 && counted.verdict_count == 2);
    assert_string_equal(counted.verdicts[1], "clean");
    gv_counted_free(&counted);
    const char *bad[] = {"{",
                         "{\"c\": 3}",
                         "{\"a/b\": [2], \"c\": 3, \"f\": 0, \"l\": []}",
                         "{\"a/b\": [-1], \"c\": 0, \"f\": 0, \"l\": []}",
                         "{\"a/b\": [9], \"c\": 0, \"f\": 0, \"l\": [1]}",
                         "{\"a/b\": [9], \"c\": 1.5, \"f\": 0, \"l\": []}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(gv_counts_read(&counts, bad[i], strlen(bad[i]), &counted, &error), GV_ERR_FORMAT);
}

static void test_counts_text(void **state)
{
    gv_counts counts = {.sessions = "^CORRUPTION sessions: [0-9]+/([0-9]+)", .corrupt = "sessions: ([0-9]+)/"};
    gv_counted counted;
    gv_error error = {0};
    const char *text = "so far sessions: 1/5\nCORRUPTION sessions: 2/30\nnot CORRUPTION sessions: 9/99\n";
    // The last match counts, and ^ is the beginning of a line.
    assert_int_equal(gv_counts_read(&counts, text, strlen(text), &counted, &error), GV_OK);
    assert_int_equal(counted.sessions, 30);
    assert_int_equal(counted.corrupt, 9);
    assert_int_equal(gv_counts_read(&counts, "nothing", 7, &counted, &error), GV_ERR_FORMAT);
}

static void test_set_names(void **state)
{
    bool in[4] = {true, false, true, false}, read[4];
    char *name = gv_set_name(in, 4);
    assert_string_equal(name, "1 3");
    assert_true(gv_set_read(name, read, 4));
    assert_memory_equal(in, read, sizeof in);
    gv_free(name);
    assert_true(gv_set_read("none", read, 4) && !read[0]);
    assert_false(gv_set_read("1 5", read, 4));
    assert_false(gv_set_read("1,3", read, 4));
    assert_false(gv_set_read("", read, 4) && read[0]);
}

static void test_more_mistakes(void **state)
{
    expect_error("", "`factors`");
    expect_error("factors: {a: {p: {files: {x: y}}, q: }}\n", "y is not there");
    expect_error("factors: {a: {p: {files: {../x: /dev/null}}, q: }}\n", "outside the source");
    expect_error("factors: {a: {p: {files: {x: /dev/null}}, q: }}\n", "need a `source`");
    expect_error("factors: {a: {p: {revision: HEAD}, q: }}\n", "needs `source: {git");
    expect_error("factors: {'a=b': {p: , q: }}\n", "1 to 60 characters");
    expect_error("factors: {a: {p: , q: }}\nstop: {rule: never}\n", "sequential");
    expect_error("factors: {a: {p: , q: }}\ncomparisons: [{name: n, from: {a: p}, to: {a: p}}]\n", "same cell");
    expect_error("factors: {a: {p: , q: }}\ncomparisons: [{name: n, from: {a: p}, to: {a: z}}]\n", "no level \"z\"");
    expect_error("factors: {a: {p: , q: }}\nexecutor: cloud\n", "local or slurm");
    expect_error("factors: {a: {p: , q: }}\nminimise: {cell: {a: p}, changes: {c: {}}}\n", "changes nothing");
    expect_error("factors: {a: {p: , q: }}\nminimise: {changes: {c: {environment: {X: 1}}}}\n", "`cell`");
    expect_error("factors: {a: {p: , q: }}\nbudget: {time: -3h}\n", "such as 90s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_design),   cmocka_unit_test(test_one_factor_design),
        cmocka_unit_test(test_fraction),      cmocka_unit_test(test_block_order),
        cmocka_unit_test(test_patch),         cmocka_unit_test(test_fix),
        cmocka_unit_test(test_expand),        cmocka_unit_test(test_counts_json),
        cmocka_unit_test(test_counts_text),   cmocka_unit_test(test_set_names),
        cmocka_unit_test(test_more_mistakes),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
