// Types, writer and reader of the fix file. The file decides what is changed in a live program, so that the reader
// takes nothing on trust and guesses nothing.
#include "fix/fix_file.h"

#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- Freeing ----------------------------------------------------------------------------------------------------

static void free_node(gv_fix_node *node)
{
    gv_free(node->path);
    gv_free(node->kernel);
}

static void free_edge(gv_fix_edge *edge)
{
    gv_free(edge->path);
    free_node(&edge->from);
    free_node(&edge->to);
    for (size_t i = 0; i < edge->order_count; i++) {
        gv_free(edge->orders[i].id);
        free_node(&edge->orders[i].first);
        free_node(&edge->orders[i].second);
    }
    gv_free(edge->orders);
    gv_free(edge->reading);
}

void gv_fix_file_free(gv_fix_file *file)
{
    for (size_t g = 0; g < file->graph_count; g++) {
        gv_fix_graph *graph = &file->graphs[g];
        for (size_t e = 0; e < graph->edge_count; e++)
            free_edge(&graph->edges[e]);
        gv_free(graph->edges);
        gv_free(graph->name);
    }
    gv_free(file->graphs);
    gv_free(file->made_by);
    *file = (gv_fix_file){0};
}

// ---- Writing ----------------------------------------------------------------------------------------------------

// NULL where memory is out; jansson's functions that take a reference over accept that and fail in turn.
static json_t *number(uint64_t value)
{
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static json_t *text_of(const char *text)
{
    json_t *value = text ? json_string(text) : NULL;
    return value ? value : json_null(); // NULL also for text that is not UTF-8
}

static json_t *path_of(const gv_fix_step *path, size_t depth)
{
    json_t *steps = json_array();
    for (size_t i = 0; i < depth; i++) {
        json_t *step = json_object();
        if (json_object_set_new(step, "node", number(path[i].node)) ||
            json_object_set_new(step, "body", number(path[i].body)) || json_array_append(steps, step)) {
            json_decref(step);
            json_decref(steps);
            return NULL;
        }
        json_decref(step);
    }
    return steps;
}

static json_t *node_of(const gv_fix_node *node, bool with_path)
{
    json_t *object = json_object();
    if ((with_path && json_object_set_new(object, "path", path_of(node->path, node->depth))) ||
        json_object_set_new(object, "node", number(node->node)) ||
        json_object_set_new(object, "kernel", text_of(node->kernel))) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *pair_of(const gv_fix_pair *pair)
{
    json_t *object = json_object();
    if (json_object_set_new(object, "id", text_of(pair->id)) ||
        json_object_set_new(object, "bytes", number(pair->bytes)) ||
        json_object_set_new(object, "first", node_of(&pair->first, true)) ||
        json_object_set_new(object, "second", node_of(&pair->second, true))) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *edge_of(const gv_fix_edge *edge)
{
    json_t *object = json_object(), *orders = json_array();
    bool failed = json_object_set_new(object, "path", path_of(edge->path, edge->depth)) ||
                  json_object_set_new(object, "from", node_of(&edge->from, false)) ||
                  json_object_set_new(object, "to", node_of(&edge->to, false)) ||
                  json_object_set_new(object, "replaces", json_boolean(edge->replaces)) ||
                  json_object_set_new(object, "reversed", json_boolean(edge->reversed)) ||
                  json_object_set_new(object, "added_ns", number(edge->added_ns)) ||
                  json_object_set_new(object, "pairs", number(edge->pairs));
    for (size_t i = 0; !failed && i < edge->order_count; i++)
        failed = json_array_append_new(orders, pair_of(&edge->orders[i])) != 0;
    failed = failed || json_object_set(object, "orders", orders) ||
             json_object_set_new(object, "reading", text_of(edge->reading ? edge->reading : ""));
    json_decref(orders);
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *cost_of(const gv_fix_cost *cost)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "before", number(cost->before), "after", number(cost->after),
                     "side_streams", number(cost->side_streams), "serial", number(cost->serial), "timed",
                     number(cost->timed), "nodes", number(cost->nodes));
}

static json_t *graph_of(const gv_fix_graph *graph)
{
    char exact[GV_FINGERPRINT_TEXT], without[GV_FINGERPRINT_TEXT];
    gv_fingerprint_text(&graph->prints.exact, exact);
    gv_fingerprint_text(&graph->prints.without_shapes, without);
    json_t *object = json_object(), *edges = json_array();
    bool failed = json_object_set_new(object, "fingerprint", json_string(exact)) ||
                  json_object_set_new(object, "fingerprint_without_shapes", json_string(without)) ||
                  json_object_set_new(object, "name", text_of(graph->name)) ||
                  json_object_set_new(object, "nodes", number(graph->nodes)) ||
                  json_object_set_new(object, "complete", json_boolean(graph->complete)) ||
                  json_object_set_new(object, "cost", cost_of(&graph->cost));
    for (size_t e = 0; !failed && e < graph->edge_count; e++)
        failed = json_array_append_new(edges, edge_of(&graph->edges[e])) != 0;
    failed = failed || json_object_set(object, "edges", edges);
    json_decref(edges);
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *document_of(const gv_fix_file *file)
{
    json_t *object = json_object(), *graphs = json_array();
    bool failed = json_object_set_new(object, "gravel_fix", number(GV_FIX_VERSION)) ||
                  json_object_set_new(object, "made_by", text_of(file->made_by ? file->made_by : ""));
    for (size_t g = 0; !failed && g < file->graph_count; g++)
        failed = json_array_append_new(graphs, graph_of(&file->graphs[g])) != 0;
    failed = failed || json_object_set(object, "graphs", graphs);
    json_decref(graphs);
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

gv_status gv_fix_file_write(const gv_fix_file *file, const char *path, gv_error *error)
{
    json_t *document = document_of(file);
    size_t length = strlen(path) + 8;
    char *beside = gv_malloc(length);
    if (!document || !beside) {
        json_decref(document);
        gv_free(beside);
        return gv_fail(error, GV_ERR_MEMORY, "out of memory while the fix was written");
    }
    // A program may be reading the older file; half of a new one would be refused by it. A pipe cannot be replaced.
    struct stat there;
    bool replaced = stat(path, &there) != 0 || S_ISREG(there.st_mode);
    snprintf(beside, length, "%s%s", path, replaced ? ".new" : "");
    FILE *out = fopen(beside, "we");
    bool failed = !out || json_dumpf(document, out, JSON_INDENT(2)) != 0 || fputc('\n', out) == EOF;
    int number_of = errno;
    if (out && fclose(out) != 0 && !failed) {
        failed = true;
        number_of = errno;
    }
    if (!failed && replaced && rename(beside, path) != 0) {
        failed = true;
        number_of = errno;
    }
    if (failed && out && replaced)
        unlink(beside);
    json_decref(document);
    gv_free(beside);
    if (failed)
        return gv_fail(error, GV_ERR_IO, "%s cannot be written: %s", path, strerror(number_of));
    return GV_OK;
}

// ---- Reading ----------------------------------------------------------------------------------------------------

// A place in the document for messages, "graphs[2].edges[0].from".
typedef struct place {
    const struct place *in;
    const char *key; // NULL: an element of an array
    size_t index;
} place;

typedef struct reading {
    const char *name;
    size_t edges;
    gv_error *error;
} reading;

static void spell(const place *at, char *text, size_t size)
{
    if (!at)
        return;
    spell(at->in, text, size);
    size_t length = strlen(text);
    if (at->key)
        snprintf(text + length, size - length, "%s%s", length ? "." : "", at->key);
    else
        snprintf(text + length, size - length, "[%zu]", at->index);
}

static gv_status wrong(const reading *r, gv_status status, const place *at, const char *what)
{
    char text[160] = "";
    spell(at, text, sizeof text);
    return gv_fail(r->error, status, "%s: %s%s%s; it is not a fix file that `gravel fix -o` wrote", r->name, text,
                   *text ? " " : "", what);
}

static gv_status no_memory(const reading *r)
{
    return gv_fail(r->error, GV_ERR_MEMORY, "out of memory while %s was read", r->name);
}

// An object with exactly these keys, the last of which is NULL.
static gv_status check_keys(const reading *r, const place *at, json_t *object, const char *const *keys)
{
    if (!json_is_object(object))
        return wrong(r, GV_ERR_FORMAT, at, "is not an object");
    for (size_t i = 0; keys[i]; i++) {
        if (!json_object_get(object, keys[i])) {
            place missing = {at, keys[i], 0};
            return wrong(r, GV_ERR_FORMAT, &missing, "is missing");
        }
    }
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        bool known = false;
        for (size_t i = 0; keys[i] && !known; i++)
            known = strcmp(key, keys[i]) == 0;
        if (!known) {
            // The key is text from outside: a message shows no more of it than is harmless.
            char shown[32];
            size_t length = 0;
            for (; key[length] && length + 1 < sizeof shown; length++)
                shown[length] = key[length] > ' ' && key[length] < 127 ? key[length] : '?';
            shown[length] = '\0';
            place unknown = {at, shown, 0};
            return wrong(r, GV_ERR_FORMAT, &unknown, "is a key that this gravel does not know");
        }
    }
    return GV_OK;
}

static gv_status read_number(const reading *r, const place *in, json_t *object, const char *key, uint64_t most,
                             uint64_t *value)
{
    place at = {in, key, 0};
    json_t *item = json_object_get(object, key);
    if (!json_is_integer(item))
        return wrong(r, GV_ERR_FORMAT, &at, "is not a whole number");
    json_int_t read = json_integer_value(item);
    if (read < 0 || (uint64_t)read > most)
        return wrong(r, GV_ERR_LIMIT, &at, "is outside of its limits");
    *value = (uint64_t)read;
    return GV_OK;
}

static gv_status read_index(const reading *r, const place *in, json_t *object, const char *key, uint32_t *value)
{
    uint64_t read = 0;
    gv_status status = read_number(r, in, object, key, UINT32_MAX - 1, &read);
    *value = (uint32_t)read;
    return status;
}

static gv_status read_bool(const reading *r, const place *in, json_t *object, const char *key, bool *value)
{
    place at = {in, key, 0};
    json_t *item = json_object_get(object, key);
    if (!json_is_boolean(item))
        return wrong(r, GV_ERR_FORMAT, &at, "is neither true nor false");
    *value = json_is_true(item);
    return GV_OK;
}

static gv_status read_text(const reading *r, const place *in, json_t *object, const char *key, bool may_be_null,
                           char **value)
{
    place at = {in, key, 0};
    json_t *item = json_object_get(object, key);
    if (may_be_null && json_is_null(item))
        return GV_OK;
    if (!json_is_string(item))
        return wrong(r, GV_ERR_FORMAT, &at, "is not text");
    *value = gv_strdup(json_string_value(item));
    return *value ? GV_OK : no_memory(r);
}

static gv_status read_print(const reading *r, const place *in, json_t *object, const char *key, gv_fingerprint *print)
{
    place at = {in, key, 0};
    json_t *item = json_object_get(object, key);
    if (!json_is_string(item) || !gv_fingerprint_parse(json_string_value(item), print))
        return wrong(r, GV_ERR_FORMAT, &at, "is not 32 hexadecimal digits");
    return GV_OK;
}

// An array of at most `most` elements.
static gv_status read_array(const reading *r, const place *in, json_t *object, const char *key, size_t most,
                            json_t **array)
{
    place at = {in, key, 0};
    *array = json_object_get(object, key);
    if (!json_is_array(*array))
        return wrong(r, GV_ERR_FORMAT, &at, "is not an array");
    if (json_array_size(*array) > most)
        return wrong(r, GV_ERR_LIMIT, &at, "has too many elements");
    return GV_OK;
}

static gv_status read_path(const reading *r, const place *in, json_t *object, gv_fix_step **path, size_t *depth)
{
    json_t *array;
    gv_status status = read_array(r, in, object, "path", GV_FINGERPRINT_DEPTH, &array);
    if (status || !json_array_size(array))
        return status;
    *path = gv_calloc(json_array_size(array), sizeof **path);
    if (!*path)
        return no_memory(r);
    place list = {in, "path", 0};
    for (size_t i = 0; !status && i < json_array_size(array); i++) {
        static const char *const keys[] = {"node", "body", NULL};
        place at = {&list, NULL, i};
        json_t *step = json_array_get(array, i);
        status = check_keys(r, &at, step, keys);
        if (!status)
            status = read_index(r, &at, step, "node", &(*path)[i].node);
        if (!status)
            status = read_index(r, &at, step, "body", &(*path)[i].body);
    }
    *depth = json_array_size(array);
    return status;
}

static gv_status read_node(const reading *r, const place *in, json_t *object, const char *key, bool with_path,
                           gv_fix_node *node)
{
    static const char *const keys[] = {"node", "kernel", "path", NULL};
    static const char *const bare[] = {"node", "kernel", NULL};
    place at = {in, key, 0};
    json_t *item = json_object_get(object, key);
    gv_status status = check_keys(r, &at, item, with_path ? keys : bare);
    if (!status)
        status = read_index(r, &at, item, "node", &node->node);
    if (!status)
        status = read_text(r, &at, item, "kernel", true, &node->kernel);
    if (!status && with_path)
        status = read_path(r, &at, item, &node->path, &node->depth);
    return status;
}

static gv_status read_orders(const reading *r, const place *in, json_t *object, gv_fix_edge *edge)
{
    static const char *const keys[] = {"id", "bytes", "first", "second", NULL};
    json_t *array;
    gv_status status = read_array(r, in, object, "orders", GV_FIX_PAIRS_LISTED, &array);
    if (status)
        return status;
    edge->orders = gv_calloc(json_array_size(array), sizeof *edge->orders);
    if (!edge->orders)
        return no_memory(r);
    place list = {in, "orders", 0};
    for (size_t i = 0; !status && i < json_array_size(array); i++) {
        place at = {&list, NULL, i};
        gv_fix_pair *pair = &edge->orders[edge->order_count++];
        json_t *item = json_array_get(array, i);
        status = check_keys(r, &at, item, keys);
        if (!status)
            status = read_text(r, &at, item, "id", false, &pair->id);
        if (!status)
            status = read_number(r, &at, item, "bytes", INT64_MAX, &pair->bytes);
        if (!status)
            status = read_node(r, &at, item, "first", true, &pair->first);
        if (!status)
            status = read_node(r, &at, item, "second", true, &pair->second);
    }
    return status;
}

static gv_status read_edge(const reading *r, const place *at, json_t *object, const gv_fix_graph *graph,
                           gv_fix_edge *edge)
{
    static const char *const keys[] = {"path",     "from",  "to",     "replaces", "reversed",
                                       "added_ns", "pairs", "orders", "reading",  NULL};
    gv_status status = check_keys(r, at, object, keys);
    if (!status)
        status = read_path(r, at, object, &edge->path, &edge->depth);
    if (!status)
        status = read_node(r, at, object, "from", false, &edge->from);
    if (!status)
        status = read_node(r, at, object, "to", false, &edge->to);
    if (!status)
        status = read_bool(r, at, object, "replaces", &edge->replaces);
    if (!status)
        status = read_bool(r, at, object, "reversed", &edge->reversed);
    if (!status)
        status = read_number(r, at, object, "added_ns", INT64_MAX, &edge->added_ns);
    if (!status)
        status = read_number(r, at, object, "pairs", INT64_MAX, &edge->pairs);
    if (!status)
        status = read_orders(r, at, object, edge);
    if (!status)
        status = read_text(r, at, object, "reading", false, &edge->reading);
    if (status)
        return status;
    if (edge->from.node == edge->to.node)
        return wrong(r, GV_ERR_FORMAT, at, "leads from a node to itself");
    uint32_t top = edge->depth ? edge->path[0].node : edge->from.node > edge->to.node ? edge->from.node : edge->to.node;
    if (top >= graph->nodes)
        return wrong(r, GV_ERR_FORMAT, at, "names a node that its graph does not have");
    return GV_OK;
}

static int by_place(const void *left, const void *right)
{
    const gv_fix_edge *a = *(gv_fix_edge *const *)left, *b = *(gv_fix_edge *const *)right;
    if (a->depth != b->depth)
        return a->depth < b->depth ? -1 : 1;
    for (size_t i = 0; i < a->depth; i++) {
        if (a->path[i].node != b->path[i].node)
            return a->path[i].node < b->path[i].node ? -1 : 1;
        if (a->path[i].body != b->path[i].body)
            return a->path[i].body < b->path[i].body ? -1 : 1;
    }
    if (a->from.node != b->from.node)
        return a->from.node < b->from.node ? -1 : 1;
    return a->to.node < b->to.node ? -1 : a->to.node > b->to.node;
}

static gv_status refuse_twice(const reading *r, const place *at, const gv_fix_graph *graph)
{
    gv_fix_edge **sorted = gv_calloc(graph->edge_count, sizeof *sorted);
    if (!sorted)
        return no_memory(r);
    for (size_t e = 0; e < graph->edge_count; e++)
        sorted[e] = &graph->edges[e];
    qsort(sorted, graph->edge_count, sizeof *sorted, by_place);
    gv_status status = GV_OK;
    for (size_t e = 1; e < graph->edge_count && !status; e++)
        if (by_place(&sorted[e - 1], &sorted[e]) == 0)
            status = wrong(r, GV_ERR_FORMAT, at, "has an edge twice");
    gv_free(sorted);
    return status;
}

static gv_status read_cost(const reading *r, const place *in, json_t *object, gv_fix_cost *cost)
{
    static const char *const keys[] = {"before", "after", "side_streams", "serial", "timed", "nodes", NULL};
    uint64_t *const values[] = {&cost->before, &cost->after, &cost->side_streams,
                                &cost->serial, &cost->timed, &cost->nodes};
    place at = {in, "cost", 0};
    json_t *item = json_object_get(object, "cost");
    gv_status status = check_keys(r, &at, item, keys);
    for (size_t i = 0; !status && keys[i]; i++)
        status = read_number(r, &at, item, keys[i], INT64_MAX, values[i]);
    return status;
}

static gv_status read_graph(reading *r, const place *at, json_t *object, gv_fix_graph *graph)
{
    static const char *const keys[] = {
        "fingerprint", "fingerprint_without_shapes", "name", "nodes", "complete", "cost", "edges", NULL};
    gv_status status = check_keys(r, at, object, keys);
    json_t *array = NULL;
    if (!status)
        status = read_print(r, at, object, "fingerprint", &graph->prints.exact);
    if (!status)
        status = read_print(r, at, object, "fingerprint_without_shapes", &graph->prints.without_shapes);
    if (!status)
        status = read_text(r, at, object, "name", false, &graph->name);
    if (!status)
        status = read_number(r, at, object, "nodes", UINT32_MAX - 1, &graph->nodes);
    if (!status)
        status = read_bool(r, at, object, "complete", &graph->complete);
    if (!status)
        status = read_cost(r, at, object, &graph->cost);
    if (!status)
        status = read_array(r, at, object, "edges", GV_FIX_MOST_EDGES - r->edges, &array);
    if (status)
        return status;
    r->edges += json_array_size(array);
    graph->edges = gv_calloc(json_array_size(array), sizeof *graph->edges);
    if (!graph->edges)
        return no_memory(r);
    place list = {at, "edges", 0};
    for (size_t e = 0; !status && e < json_array_size(array); e++) {
        place here = {&list, NULL, e};
        graph->edge_count++;
        status = read_edge(r, &here, json_array_get(array, e), graph, &graph->edges[e]);
    }
    return status ? status : refuse_twice(r, at, graph);
}

static int by_print(const void *left, const void *right)
{
    return memcmp(left, right, sizeof(gv_fingerprint));
}

static gv_status refuse_same_graph(const reading *r, const gv_fix_file *file)
{
    gv_fingerprint *prints = gv_calloc(file->graph_count, sizeof *prints);
    if (!prints)
        return no_memory(r);
    for (size_t g = 0; g < file->graph_count; g++)
        prints[g] = file->graphs[g].prints.exact;
    qsort(prints, file->graph_count, sizeof *prints, by_print);
    gv_status status = GV_OK;
    place at = {NULL, "graphs", 0};
    for (size_t g = 1; g < file->graph_count && !status; g++)
        if (by_print(&prints[g - 1], &prints[g]) == 0)
            status = wrong(r, GV_ERR_FORMAT, &at, "has two graphs of one fingerprint");
    gv_free(prints);
    return status;
}

static gv_status read_document(reading *r, json_t *document, gv_fix_file *file)
{
    static const char *const keys[] = {"gravel_fix", "made_by", "graphs", NULL};
    json_t *version = json_object_get(document, "gravel_fix"), *array = NULL;
    if (!json_is_integer(version))
        return wrong(r, GV_ERR_FORMAT, NULL, "it has no whole number \"gravel_fix\"");
    if (json_integer_value(version) != GV_FIX_VERSION)
        return gv_fail(r->error, GV_ERR_VERSION,
                       "%s: the fix file has version %" JSON_INTEGER_FORMAT
                       ", and this gravel reads version %d; make the file anew with this gravel's `gravel fix`",
                       r->name, json_integer_value(version), GV_FIX_VERSION);
    gv_status status = check_keys(r, NULL, document, keys);
    if (!status)
        status = read_text(r, NULL, document, "made_by", false, &file->made_by);
    if (!status)
        status = read_array(r, NULL, document, "graphs", GV_FIX_MOST_GRAPHS, &array);
    if (status)
        return status;
    file->graphs = gv_calloc(json_array_size(array), sizeof *file->graphs);
    if (!file->graphs)
        return no_memory(r);
    place list = {NULL, "graphs", 0};
    for (size_t g = 0; !status && g < json_array_size(array); g++) {
        place at = {&list, NULL, g};
        file->graph_count++;
        status = read_graph(r, &at, json_array_get(array, g), &file->graphs[g]);
    }
    return status ? status : refuse_same_graph(r, file);
}

gv_status gv_fix_file_parse(const char *text, size_t length, const char *name, gv_fix_file *file, gv_error *error)
{
    *file = (gv_fix_file){0};
    reading r = {.name = name, .error = error};
    json_error_t mistake;
    json_t *document = json_loadb(text, length, JSON_REJECT_DUPLICATES, &mistake);
    if (!document)
        return gv_fail(error, GV_ERR_FORMAT, "%s:%d: %s; it is not a fix file that `gravel fix -o` wrote", name,
                       mistake.line, mistake.text);
    gv_status status = read_document(&r, document, file);
    json_decref(document);
    if (status)
        gv_fix_file_free(file);
    return status;
}

gv_status gv_fix_file_read(const char *path, gv_fix_file *file, gv_error *error)
{
    *file = (gv_fix_file){0};
    FILE *in = fopen(path, "re");
    if (!in)
        return gv_fail(error, GV_ERR_IO, "%s cannot be read: %s", path, strerror(errno));
    char *text = NULL;
    size_t length = 0, capacity = 0, got = 1;
    gv_status status = GV_OK;
    while (!status && got) {
        if (!GV_GROW(text, capacity, length + 65536)) {
            status = gv_fail(error, GV_ERR_MEMORY, "out of memory while %s was read", path);
            break;
        }
        got = fread(text + length, 1, 65536, in);
        length += got;
        if (length > GV_FIX_MOST_BYTES)
            status = gv_fail(error, GV_ERR_LIMIT, "%s is larger than the limit of %d bytes for a fix file", path,
                             GV_FIX_MOST_BYTES);
    }
    if (!status && ferror(in))
        status = gv_fail(error, GV_ERR_IO, "%s cannot be read: %s", path, strerror(errno));
    fclose(in);
    if (!status)
        status = gv_fix_file_parse(text, length, path, file, error);
    gv_free(text);
    return status;
}
