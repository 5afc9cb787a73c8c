// The fix file: what is written is read again, and nothing else is.
#include "base/memory.h"
#include "fix/fix_file.h"
#include "trace/test_sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char sample[] =
    "{\"gravel_fix\": 1, \"made_by\": \"0.1.0\", \"graphs\": [{"
    "\"fingerprint\": \"00112233445566778899aabbccddeeff\","
    "\"fingerprint_without_shapes\": \"ffeeddccbbaa99887766554433221100\", \"name\": \"decode\", \"nodes\": 9,"
    "\"complete\": true, \"cost\": {\"before\": 10, \"after\": 12, \"side_streams\": 20, \"serial\": 30, \"timed\": 8,"
    "\"nodes\": 9}, \"edges\": [{\"path\": [], \"from\": {\"node\": 3, \"kernel\": \"gather\"},"
    "\"to\": {\"node\": 5, \"kernel\": null}, \"replaces\": false, \"reversed\": false, \"added_ns\": 2, \"pairs\": 1,"
    "\"orders\": [{\"id\": \"race-war\", \"bytes\": 64,"
    "\"first\": {\"path\": [{\"node\": 2, \"body\": 1}], \"node\": 3, \"kernel\": \"gather\"},"
    "\"second\": {\"path\": [], \"node\": 5, \"kernel\": null}}], \"reading\": \"Wait.\"}, {"
    "\"path\": [{\"node\": 4, \"body\": 0}], \"from\": {\"node\": 70, \"kernel\": \"a\"},"
    "\"to\": {\"node\": 71, \"kernel\": \"b\"}, \"replaces\": true, \"reversed\": true, \"added_ns\": 0, \"pairs\": 0,"
    "\"orders\": [], \"reading\": \"\"}]}]}";

static gv_status parse(const char *text, gv_fix_file *file, gv_error *error)
{
    return gv_fix_file_parse(text, strlen(text), "fix.json", file, error);
}

static void check_sample(const gv_fix_file *file)
{
    assert_string_equal(file->made_by, "0.1.0");
    assert_int_equal(file->graph_count, 1);
    const gv_fix_graph *graph = &file->graphs[0];
    assert_string_equal(graph->name, "decode");
    assert_int_equal(graph->prints.exact.bytes[15], 0xff);
    assert_int_equal(graph->prints.without_shapes.bytes[15], 0);
    assert_int_equal(graph->nodes, 9);
    assert_true(graph->complete);
    assert_int_equal(graph->cost.before, 10);
    assert_int_equal(graph->cost.after, 12);
    assert_int_equal(graph->cost.side_streams, 20);
    assert_int_equal(graph->cost.serial, 30);
    assert_int_equal(graph->cost.timed, 8);
    assert_int_equal(graph->cost.nodes, 9);
    assert_int_equal(graph->edge_count, 2);
    const gv_fix_edge *edge = &graph->edges[0];
    assert_int_equal(edge->depth, 0);
    assert_int_equal(edge->from.node, 3);
    assert_string_equal(edge->from.kernel, "gather");
    assert_int_equal(edge->to.node, 5);
    assert_null(edge->to.kernel);
    assert_false(edge->replaces || edge->reversed);
    assert_int_equal(edge->added_ns, 2);
    assert_int_equal(edge->pairs, 1);
    assert_int_equal(edge->order_count, 1);
    assert_string_equal(edge->orders[0].id, "race-war");
    assert_int_equal(edge->orders[0].bytes, 64);
    assert_int_equal(edge->orders[0].first.depth, 1);
    assert_int_equal(edge->orders[0].first.path[0].node, 2);
    assert_int_equal(edge->orders[0].first.path[0].body, 1);
    assert_string_equal(edge->reading, "Wait.");
    edge = &graph->edges[1];
    assert_int_equal(edge->depth, 1);
    assert_int_equal(edge->path[0].node, 4);
    assert_int_equal(edge->from.node, 70); // of the child: its count is not in the file
    assert_true(edge->replaces && edge->reversed);
}

static void test_round_trip(void **state)
{
    gv_fix_file file, again;
    gv_error error = {0};
    if (parse(sample, &file, &error) != GV_OK)
        fail_msg("%s", error.text);
    check_sample(&file);
    for (int i = 0; i < 2; i++) { // the second time over an older file
        assert_int_equal(gv_fix_file_write(&file, scratch("fix.json"), &error), GV_OK);
        assert_int_equal(gv_fix_file_read(scratch("fix.json"), &again, &error), GV_OK);
        check_sample(&again);
        gv_fix_file_free(&again);
    }
    gv_fix_file_free(&file);
}

// The sample with the first `find` replaced.
static char *changed(const char *find, const char *by)
{
    const char *at = strstr(sample, find);
    assert_non_null(at);
    size_t size = sizeof sample + strlen(by) + 1;
    char *text = malloc(size);
    assert_non_null(text);
    snprintf(text, size, "%.*s%s%s", (int)(at - sample), sample, by, at + strlen(find));
    return text;
}

static void test_refused(void **state)
{
    static const struct {
        const char *find, *by;
        gv_status status;
        const char *says;
    } cases[] = {
        {"\"gravel_fix\": 1", "\"gravel_fix\": 2", GV_ERR_VERSION, "version 2"},
        {"\"gravel_fix\": 1", "\"gravel_fix\": \"1\"", GV_ERR_FORMAT, "gravel_fix"},
        {"\"gravel_fix\": 1", "\"other\": 1", GV_ERR_FORMAT, "gravel_fix"},
        {"\"made_by\"", "\"waits\": [], \"made_by\"", GV_ERR_FORMAT, "waits is a key"},
        {"\"made_by\"", "\"\\u001b[31m\": [], \"made_by\"", GV_ERR_FORMAT, "?[31m is a key"},
        {"\"made_by\": \"0.1.0\"", "\"made_by\": 5", GV_ERR_FORMAT, "made_by is not text"},
        {"\"made_by\": \"0.1.0\", ", "", GV_ERR_FORMAT, "made_by is missing"},
        {"\"made_by\"", "\"made_by\": \"\", \"made_by\"", GV_ERR_FORMAT, "duplicate"},
        {"\"graphs\": [{", "\"graphs\": [3, {", GV_ERR_FORMAT, "graphs[0] is not an object"},
        {"00112233445566778899aabbccddeeff", "0011", GV_ERR_FORMAT, "graphs[0].fingerprint is not 32"},
        {"ffeeddccbbaa99887766554433221100", "FFeeddccbbaa99887766554433221100", GV_ERR_FORMAT, "without_shapes"},
        {"\"nodes\": 9", "\"nodes\": -1", GV_ERR_LIMIT, "graphs[0].nodes is outside"},
        {"\"nodes\": 9", "\"nodes\": 1.5", GV_ERR_FORMAT, "graphs[0].nodes is not a whole number"},
        {"\"nodes\": 9", "\"nodes\": 18446744073709551616", GV_ERR_FORMAT, "big"},
        {"\"nodes\": 9", "\"nodes\": 4294967295", GV_ERR_LIMIT, "graphs[0].nodes"},
        {"\"nodes\": 9", "\"nodes\": 5", GV_ERR_FORMAT, "edges[0] names a node"},
        {"\"nodes\": 9", "\"nodes\": 4", GV_ERR_FORMAT, "edges[0] names a node"},
        {"\"complete\": true", "\"complete\": 1", GV_ERR_FORMAT, "complete is neither"},
        {"\"after\": 12", "\"after\": null", GV_ERR_FORMAT, "cost.after"},
        {"\"path\": []", "\"path\": [1]", GV_ERR_FORMAT, "edges[0].path[0] is not an object"},
        {"\"path\": []", "\"path\": {}", GV_ERR_FORMAT, "edges[0].path is not an array"},
        {"\"node\": 3", "\"node\": 5", GV_ERR_FORMAT, "edges[0] leads from a node to itself"},
        {"\"node\": 3", "\"node\": 4294967295", GV_ERR_LIMIT, "edges[0].from.node"},
        {"\"kernel\": \"gather\"", "\"kernel\": 1", GV_ERR_FORMAT, "from.kernel is not text"},
        {"\"orders\": [{", "\"orders\": [null, {", GV_ERR_FORMAT, "orders[0] is not an object"},
        {"\"node\": 4, \"body\": 0", "\"node\": 9, \"body\": 0", GV_ERR_FORMAT, "edges[1] names a node"},
        {"[{\"node\": 4, \"body\": 0}], \"from\": {\"node\": 70", "[], \"from\": {\"node\": 3", GV_ERR_FORMAT,
         "edges[1] names"},
        {"}]}]}", "}]}]", GV_ERR_FORMAT, "fix.json:1"},
        {"}]}]}", "}]}]} 5", GV_ERR_FORMAT, "fix.json:1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gv_fix_file file;
        gv_error error = {0};
        char *text = changed(cases[i].find, cases[i].by);
        gv_status status = parse(text, &file, &error);
        if (status != cases[i].status || !strstr(error.text, cases[i].says))
            fail_msg("case %zu: %s, \"%s\"", i, gv_status_name(status), error.text);
        assert_null(file.graphs);
        assert_null(file.made_by);
        free(text);
    }
}

// The sample's whole graph, or one of its edges, twice.
static void test_twice(void **state)
{
    gv_fix_file file;
    gv_error error = {0};
    const char *graph = strstr(sample, "[{") + 1, *edge = strstr(sample, "{\"path\": []");
    const char *edge_end = strstr(sample, ", {\"path\": [{\"node\": 4");
    char text[2 * sizeof sample];
    snprintf(text, sizeof text, "%.*s%.*s, %s", (int)(graph - sample), sample, (int)strlen(graph) - 2, graph, graph);
    assert_int_equal(parse(text, &file, &error), GV_ERR_FORMAT);
    assert_non_null(strstr(error.text, "two graphs of one fingerprint"));
    snprintf(text, sizeof text, "%.*s%.*s, %s", (int)(edge - sample), sample, (int)(edge_end - edge), edge, edge);
    assert_int_equal(parse(text, &file, &error), GV_ERR_FORMAT);
    assert_non_null(strstr(error.text, "has an edge twice"));
}

// Every prefix, and every byte replaced by one that JSON uses: nothing but a refusal or a well-formed result.
static void test_hostile(void **state)
{
    static const char bytes[] = "{}[]\",:0-e.\\ nt\xff";
    char text[sizeof sample];
    size_t accepted = 0;
    for (size_t length = 0; length < sizeof sample - 1; length++) {
        gv_fix_file file;
        assert_int_not_equal(gv_fix_file_parse(sample, length, "f", &file, NULL), GV_OK);
    }
    for (size_t i = 0; i < sizeof sample - 1; i++) {
        for (size_t k = 0; k < sizeof bytes - 1; k++) {
            gv_fix_file file;
            memcpy(text, sample, sizeof text);
            text[i] = bytes[k];
            if (gv_fix_file_parse(text, sizeof text - 1, "f", &file, NULL) == GV_OK)
                accepted++;
            gv_fix_file_free(&file);
        }
    }
    assert_true(accepted > 0); // letters of names
    char deep[100000];
    gv_fix_file file;
    memset(deep, '[', sizeof deep);
    assert_int_equal(gv_fix_file_parse(deep, sizeof deep, "f", &file, NULL), GV_ERR_FORMAT);
}

static void test_files(void **state)
{
    gv_fix_file file;
    gv_error error = {0};
    assert_int_equal(gv_fix_file_read(scratch("none.json"), &file, &error), GV_ERR_IO);
    write_file(scratch("empty.json"), "", 0);
    assert_int_equal(gv_fix_file_read(scratch("empty.json"), &file, &error), GV_ERR_FORMAT);
    write_file(scratch("sample.json"), sample, sizeof sample - 1);
    assert_int_equal(gv_fix_file_read(scratch("sample.json"), &file, &error), GV_OK);
    check_sample(&file);
    assert_int_equal(gv_fix_file_write(&file, scratch("none/fix.json"), &error), GV_ERR_IO);
    assert_non_null(strstr(error.text, "none/fix.json cannot be written"));
    gv_fix_file_free(&file);
    for (long n = 0;; n++) { // every allocation fails once
        gv_memory_fail_after(n);
        gv_status status = gv_fix_file_read(scratch("sample.json"), &file, &error);
        gv_memory_fail_after(-1);
        if (status == GV_OK)
            break;
        assert_int_equal(status, GV_ERR_MEMORY);
        assert_null(file.graphs);
    }
    gv_fix_file_free(&file);
    remove_scratch();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_refused), cmocka_unit_test(test_twice),
        cmocka_unit_test(test_hostile),    cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
