#include "answers.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const answers_kinds[] = {"no-call",
                                     "length-no-call",
                                     "length-in-call",
                                     "bad-json",
                                     "unknown-tool",
                                     "wrong-tool",
                                     "wrong-type",
                                     "wrong-arguments",
                                     "extra-call",
                                     "template-fragment",
                                     "fragment-in-argument",
                                     "garbled",
                                     "loop",
                                     "text-too",
                                     "refusal",
                                     NULL};

static void usage(const char *message, const char *what)
{
    fprintf(stderr, "%s %s\n", message, what);
    exit(2);
}

int answers_open(answers *all, int argc, char **argv)
{
    const char *path = NULL;
    uint64_t seed = 1;
    size_t lines = 0;
    bool lines_given = false;
    *all = (answers){.count = 60, .rounds = 4, .piece = 4};
    int at = 1;
    for (; at < argc && strncmp(argv[at], "--", 2) == 0; at++) {
        const char *name = argv[at];
        if (strcmp(name, "--wrong-alone") == 0) {
            all->wrong_alone = true;
            continue;
        }
        if (at + 1 >= argc)
            usage("an argument is missing after", name);
        const char *value = argv[++at];
        unsigned long long number = strtoull(value, NULL, 10);
        if (strcmp(name, "--scenario") == 0)
            path = value;
        else if (strcmp(name, "--seed") == 0)
            seed = number;
        else if (strcmp(name, "--sessions") == 0)
            all->count = number;
        else if (strcmp(name, "--rounds") == 0)
            all->rounds = number;
        else if (strcmp(name, "--ctx") == 0)
            lines = number, lines_given = true;
        else if (strcmp(name, "--wrong") == 0)
            all->wrong = value;
        else if (strcmp(name, "--wrong-count") == 0)
            all->wrong_count = number;
        else if (strcmp(name, "--key") == 0)
            all->key = value;
        else if (strcmp(name, "--piece") == 0)
            all->piece = number ? number : 1;
        else
            usage("there is no option", name);
    }
    bool known = !all->wrong || strcmp(all->wrong, "by-tag") == 0;
    for (size_t i = 0; answers_kinds[i]; i++)
        known |= all->wrong && strcmp(answers_kinds[i], all->wrong) == 0;
    if (!known)
        usage("there is no kind of wrong answer", all->wrong);
    gv_error error = {0};
    gv_status status =
        path ? gv_scenario_load(path, &all->scenario, &error)
             : gv_scenario_parse("built-in", gv_builtin_scenario, strlen(gv_builtin_scenario), &all->scenario, &error);
    all->sessions = gv_calloc(all->count, sizeof *all->sessions);
    for (size_t i = 0; status == GV_OK && i < all->count; i++)
        status = gv_session_make(all->scenario, seed, i, all->rounds, lines_given ? lines : all->scenario->lines,
                                 &all->sessions[i], &error);
    if (status != GV_OK)
        usage(error.text, "");
    return at;
}

void answers_close(answers *all)
{
    for (size_t i = 0; i < all->count; i++)
        gv_session_free(&all->sessions[i]);
    gv_free(all->sessions);
    gv_scenario_free(all->scenario);
}

// The kind that a tag begins with.
static const char *kind_of(const char *id)
{
    for (size_t i = 0; answers_kinds[i]; i++) {
        size_t length = strlen(answers_kinds[i]);
        if (strncmp(answers_kinds[i], id, length) == 0 && id[length] == '.')
            return answers_kinds[i];
    }
    return NULL;
}

bool answers_find(const answers *all, const char *id, answers_place *place)
{
    const char *found = NULL;
    for (const char *at = id; at && (at = strstr(at, "-s")); at += 2)
        found = at;
    unsigned long session, round;
    int end = 0;
    if (!found || sscanf(found, "-s%lu-r%lu%n", &session, &round, &end) != 2)
        return false;
    *place = (answers_place){.session = session, .round = round - 1, .alone = strcmp(found + end, "-alone") == 0};
    if (all->wrong && strcmp(all->wrong, "by-tag") == 0)
        place->kind = kind_of(id);
    return session < all->count && round >= 1 && round <= all->rounds;
}

// ---- Answers ------------------------------------------------------------------------------------------------------

typedef struct answer {
    gv_string content, arguments;
    const char *tool, *finish;
    bool twice;
} answer;

static bool is(const char *kind, const char *name)
{
    return kind && strcmp(kind, name) == 0;
}

// Puts another value of the same length in the place of the first argument that is text.
static char *other_arguments(const json_t *arguments, const char *value)
{
    json_t *copy = json_deep_copy(arguments);
    const char *key;
    json_t *member;
    json_object_foreach(copy, key, member)
    {
        if (json_is_string(member)) {
            json_object_set_new(copy, key, json_string(value));
            break;
        }
    }
    char *text = json_dumps(copy, JSON_COMPACT);
    json_decref(copy);
    return text;
}

static void make_wrong(const answers *all, const char *kind, answer *out)
{
    if (is(kind, "no-call") || is(kind, "length-no-call") || is(kind, "refusal"))
        out->tool = NULL;
    if (is(kind, "no-call"))
        gv_string_add(&out->content, "I am not sure what to do.");
    out->finish = is(kind, "length-no-call") || is(kind, "length-in-call") ? "length"
                  : is(kind, "refusal")                                    ? "content_filter"
                                                                           : out->finish;
    if (is(kind, "length-in-call") || is(kind, "bad-json")) {
        out->arguments.length -= out->arguments.length / 2;
        out->arguments.text[out->arguments.length] = '\0';
    }
    if (is(kind, "unknown-tool"))
        out->tool = "drop_table";
    if (is(kind, "wrong-tool"))
        out->tool = strcmp(out->tool, all->scenario->tools[0].name) == 0 ? all->scenario->tools[1].name
                                                                         : all->scenario->tools[0].name;
    if (is(kind, "wrong-type")) {
        gv_string_clear(&out->arguments);
        gv_string_add(&out->arguments, "{\"depot\":7}");
    }
    out->twice = is(kind, "extra-call");
    if (is(kind, "template-fragment"))
        gv_string_add(&out->content, "<\xef\xbd\x9c"
                                     "DSML\xef\xbd\x9ctool_calls>");
    if (is(kind, "garbled"))
        gv_string_add(&out->content, "ok \xef\xbf\xbd");
    for (int i = 0; i < 200 && is(kind, "loop"); i++)
        gv_string_add(&out->content, "the code is ");
    if (is(kind, "text-too"))
        gv_string_add(&out->content, "Here is the call.");
}

static void make_answer(const answers *all, const answers_place *place, const char *kind, answer *out)
{
    const gv_turn *turn = &all->sessions[place->session].turns[place->round];
    *out = (answer){.tool = turn->expected.tool, .finish = turn->expected.tool ? "tool_calls" : "stop"};
    if (turn->expected.tool) {
        const char *value = is(kind, "fragment-in-argument") ? "a<|im_end|>" : "Nowhere";
        bool other = is(kind, "wrong-arguments") || is(kind, "fragment-in-argument");
        char *text = other ? other_arguments(turn->arguments, value) : json_dumps(turn->arguments, JSON_COMPACT);
        gv_string_add_bytes(&out->arguments, text, strlen(text));
        gv_free(text);
    } else {
        gv_string_add(&out->content, "It is %s.", turn->expected.text ? turn->expected.text : "done");
    }
    if (kind)
        make_wrong(all, kind, out);
}

static void add_event(gv_string *out, const char *delta, size_t length, const char *finish)
{
    gv_string_add(out, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":");
    gv_string_add_bytes(out, delta, length);
    if (finish)
        gv_string_add(out, ",\"finish_reason\":\"%s\"}]}\n\n", finish);
    else
        gv_string_add(out, ",\"finish_reason\":null}]}\n\n");
}

// Text in pieces, cut between characters.
static void add_pieces(gv_string *out, const gv_string *text, size_t piece, const char *before, const char *after)
{
    for (size_t at = 0; at < text->length;) {
        size_t length = piece < text->length - at ? piece : text->length - at;
        while (at + length < text->length && ((unsigned char)text->text[at + length] & 0xc0) == 0x80)
            length++;
        gv_string delta = {0};
        gv_string_add(&delta, "%s", before);
        gv_add_json_string(&delta, text->text + at, length);
        gv_string_add(&delta, "%s", after);
        add_event(out, delta.text, delta.length, NULL);
        gv_string_free(&delta);
        at += length;
    }
}

static void write_stream(const answers *all, const answer *from, gv_string *out)
{
    static const char role[] = "{\"role\":\"assistant\",\"content\":\"\"}";
    add_event(out, role, sizeof role - 1, NULL);
    add_pieces(out, &from->content, all->piece, "{\"content\":", "}");
    for (int i = 0; from->tool && i < 1 + from->twice; i++) {
        gv_string delta = {0};
        gv_string_add(&delta,
                      "{\"tool_calls\":[{\"index\":%d,\"id\":\"call_%d\",\"type\":\"function\",\"function\":{"
                      "\"name\":\"%s\",\"arguments\":\"\"}}]}",
                      i, i, from->tool);
        add_event(out, delta.text, delta.length, NULL);
        gv_string_clear(&delta);
        gv_string_add(&delta, "{\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":", i);
        add_pieces(out, &from->arguments, all->piece, delta.text, "}}]}");
        gv_string_free(&delta);
    }
    add_event(out, "{}", 2, from->finish);
    gv_string_add(out,
                  "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[],\"usage\":{"
                  "\"prompt_tokens\":100,\"completion_tokens\":%zu}}\n\ndata: [DONE]\n\n",
                  from->arguments.length / 4 + 8);
}

static void write_whole(const answer *from, gv_string *out)
{
    gv_string_add(out, "{\"id\":\"x\",\"object\":\"chat.completion\",\"choices\":[{\"index\":0,\"message\":{\"role\":"
                       "\"assistant\",\"content\":");
    gv_add_json_string(out, gv_string_text(&from->content), from->content.length);
    if (from->tool)
        gv_string_add(out, ",\"tool_calls\":[");
    for (int i = 0; from->tool && i < 1 + from->twice; i++) {
        gv_string_add(out, "%s{\"id\":\"call_%d\",\"type\":\"function\",\"function\":{\"name\":\"%s\",\"arguments\":",
                      i ? "," : "", i, from->tool);
        gv_add_json_string(out, gv_string_text(&from->arguments), from->arguments.length);
        gv_string_add(out, "}}");
    }
    gv_string_add(out, "%s},\"finish_reason\":\"%s\"}],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":%zu}}\n",
                  from->tool ? "]" : "", from->finish, from->arguments.length / 4 + 8);
}

char *answers_body(const answers *all, const answers_place *place, bool stream, size_t *length)
{
    // One round of each wrong session, another one from session to session.
    bool wrong = all->wrong && place->session < all->wrong_count && place->round == place->session % all->rounds &&
                 (!place->alone || all->wrong_alone);
    answer from;
    gv_string out = {0};
    const char *kind = strcmp(all->wrong ? all->wrong : "", "by-tag") == 0 ? place->kind : all->wrong;
    make_answer(all, place, wrong ? kind : NULL, &from);
    if (stream)
        write_stream(all, &from, &out);
    else
        write_whole(&from, &out);
    gv_string_free(&from.content);
    gv_string_free(&from.arguments);
    *length = out.length;
    return out.text;
}

bool answers_write_port(const char *path, unsigned port)
{
    char temporary[4096];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    FILE *file = fopen(temporary, "w");
    return file && fprintf(file, "%u\n", port) > 0 && fclose(file) == 0 && rename(temporary, path) == 0;
}
