// Reads the parts of a plan that say what is run: the service, and the trial with its counts.
#include "base/memory.h"
#include "lab/expand.h"
#include "lab/plan_read.h"

#include <jansson.h>
#include <regex.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

// ---- The readiness request ----------------------------------------------------------------------------------------

// A YAML tree as JSON: plain scalars by the core schema, quoted ones as texts. NULL when memory is out.
static json_t *to_json(const gv_yaml_node *node)
{
    if (node->kind == GV_YAML_SCALAR) {
        gv_yaml_value value = gv_yaml_scalar_value(node);
        switch (value.type) {
        case GV_YAML_IS_NULL: return json_null();
        case GV_YAML_IS_BOOL: return json_boolean(value.boolean);
        case GV_YAML_IS_INTEGER: return json_integer(value.integer);
        case GV_YAML_IS_NUMBER: return json_real(value.number);
        case GV_YAML_IS_TEXT: return json_string(node->text);
        }
    }
    json_t *json = node->kind == GV_YAML_MAPPING ? json_object() : json_array();
    for (size_t i = 0; json && i < node->count; i++) {
        json_t *item = to_json(node->items[i]);
        int failed = node->kind == GV_YAML_MAPPING ? json_object_set_new(json, node->items[i]->key, item)
                                                   : json_array_append_new(json, item);
        if (failed) {
            json_decref(json);
            json = NULL;
        }
    }
    return json;
}

static void check_pointer(gv_reader *r, const gv_yaml_node *map, const char *key, const char *pointer)
{
    if (r->status == GV_OK && pointer && pointer[0] != '/')
        gv_read_fail(r, gv_yaml_get(map, key),
                     "`%s` is a JSON pointer (RFC 6901) and begins with \"/\", for example "
                     "/counts/corrupt; \"%.60s\" does not",
                     key, pointer);
}

static void read_ready(gv_reader *r, const gv_yaml_node *service_map, gv_service *service)
{
    const gv_yaml_node *map = gv_yaml_get(service_map, "ready");
    service->ready_timeout = 30;
    if (r->status == GV_OK && !map)
        gv_read_fail(r, service_map,
                     "`service` needs `ready`: a real request whose good answer says that the service "
                     "works, for example a chat completion; a health check alone does not show that");
    GV_READ_KEYS(r, map, "`ready`", "url", "body", "headers", "expect", "timeout");
    gv_read_text(r, map, "url", &service->ready_url);
    gv_read_text(r, map, "expect", &service->ready_expect);
    gv_read_seconds(r, map, "timeout", &service->ready_timeout);
    gv_read_settings(r, gv_yaml_get(map, "headers"), "`headers`", false, &service->ready_headers);
    check_pointer(r, map, "expect", service->ready_expect);
    if (r->status == GV_OK && !service->ready_url)
        gv_read_fail(r, map, "`ready` needs the `url` the request goes to");
    const gv_yaml_node *body = gv_yaml_get(map, "body");
    if (r->status != GV_OK || !body)
        return;
    json_t *json = to_json(body);
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    service->ready_body = text ? gv_strdup(text) : NULL;
    free(text);
    json_decref(json);
    if (!service->ready_body)
        gv_read_no_memory(r);
}

// ---- The service --------------------------------------------------------------------------------------------------

static const struct {
    const char *name;
    int number;
} signals[] = {{"TERM", SIGTERM}, {"INT", SIGINT},   {"KILL", SIGKILL}, {"HUP", SIGHUP},
               {"QUIT", SIGQUIT}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}};

static void read_stop(gv_reader *r, const gv_yaml_node *service_map, gv_service *service)
{
    service->stop_signal = SIGTERM;
    service->stop_timeout = 20;
    const gv_yaml_node *map = gv_yaml_get(service_map, "stop");
    if (!map)
        return;
    GV_READ_KEYS(r, map, "`stop`", "signal", "timeout", "command");
    const char *name = "TERM";
    gv_read_text(r, map, "signal", &name);
    gv_read_seconds(r, map, "timeout", &service->stop_timeout);
    gv_read_command(r, gv_yaml_get(map, "command"), "`command`", &service->stop);
    if (r->status != GV_OK)
        return;
    const char *bare = strncmp(name, "SIG", 3) == 0 ? name + 3 : name;
    service->stop_signal = 0;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        if (strcmp(signals[i].name, bare) == 0)
            service->stop_signal = signals[i].number;
    }
    if (!service->stop_signal)
        gv_read_fail(r, gv_yaml_get(map, "signal"),
                     "there is no signal \"%.20s\" to stop a service with; use TERM, "
                     "INT, KILL, HUP, QUIT, USR1 or USR2",
                     name);
}

static void read_source(gv_reader *r, const gv_yaml_node *service_map, gv_service *service)
{
    const gv_yaml_node *map = gv_yaml_get(service_map, "source");
    service->prepare_timeout = 1800;
    if (!map)
        return;
    GV_READ_KEYS(r, map, "`source`", "git", "revision", "copy", "prepare", "prepare_timeout");
    gv_read_text(r, map, "git", &service->git);
    gv_read_text(r, map, "revision", &service->revision);
    gv_read_text(r, map, "copy", &service->copy);
    gv_read_command(r, gv_yaml_get(map, "prepare"), "`prepare`", &service->prepare);
    gv_read_seconds(r, map, "prepare_timeout", &service->prepare_timeout);
    if (r->status != GV_OK)
        return;
    if (!service->git == !service->copy)
        gv_read_fail(r, map,
                     "`source` is either `git`, a repository of which each trial gets a work tree, or `copy`, a "
                     "folder of which each trial gets a copy");
    if (service->copy && service->revision)
        gv_read_fail(r, gv_yaml_get(map, "revision"), "`revision` belongs to `git`; `copy` has none");
    if (r->status != GV_OK)
        return;
    const char **folder = service->git ? &service->git : &service->copy;
    const gv_yaml_node *at = gv_yaml_get(map, service->git ? "git" : "copy");
    if (!(*folder = gv_plan_path(r->plan, *folder)))
        gv_read_no_memory(r);
    else if (access(*folder, R_OK | X_OK) != 0)
        gv_read_fail(r, at, "the folder %.200s is not there; paths are seen from the plan's folder", *folder);
    if (service->git && !service->revision)
        service->revision = "HEAD";
}

void gv_read_service(gv_reader *r, const gv_yaml_node *root)
{
    const gv_yaml_node *map = gv_yaml_get(root, "service");
    if (r->status == GV_OK && !map)
        gv_read_fail(r, root, "the plan has no `service`: what is started for each trial");
    if (r->status != GV_OK)
        return;
    gv_service *service = &r->plan->service;
    GV_READ_KEYS(r, map, "`service`", "command", "unit", "user_unit", "environment", "inherit", "directory", "source",
                 "ports", "health", "ready", "start_timeout", "stop", "files");
    gv_read_command(r, gv_yaml_get(map, "command"), "`command`", &service->command);
    gv_read_text(r, map, "unit", &service->unit);
    gv_read_bool(r, map, "user_unit", &service->user_unit);
    gv_read_settings(r, gv_yaml_get(map, "environment"), "`environment`", true, &service->environment);
    gv_read_text(r, map, "directory", &service->directory);
    gv_read_text(r, map, "health", &service->health);
    service->start_timeout = 300;
    gv_read_seconds(r, map, "start_timeout", &service->start_timeout);
    gv_read_words(r, gv_yaml_get(map, "ports"), "`ports`", &service->ports);
    gv_read_words(r, gv_yaml_get(map, "files"), "`files`", &service->files);
    const gv_yaml_node *inherit = gv_yaml_get(map, "inherit");
    if (inherit) {
        gv_read_words(r, inherit, "`inherit`", &service->inherit);
    } else {
        // Enough to find programs and their libraries, and nothing that could change a result unseen.
        static const char *const usual[] = {"PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH"};
        for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
            gv_add_word(r, &service->inherit, usual[i]);
    }
    if (r->status == GV_OK && !service->unit && !service->command.line)
        gv_read_fail(r, map, "`service` needs a `command` to start, or the systemd `unit` that is the service");
    if (r->status == GV_OK && service->unit && service->command.line)
        gv_read_fail(r, gv_yaml_get(map, "command"), "`service` has both a `command` and a `unit`; keep one");
    read_source(r, map, service);
    read_ready(r, map, service);
    read_stop(r, map, service);
    if (r->status == GV_OK && service->unit && (service->git || service->copy))
        gv_read_fail(r, gv_yaml_get(map, "source"), "a `unit` runs what is installed; `source` goes with `command`");
}

// ---- The trial ----------------------------------------------------------------------------------------------------

static void check_expression(gv_reader *r, const gv_yaml_node *map, const char *key, const char *expression)
{
    if (r->status != GV_OK || !expression)
        return;
    regex_t compiled;
    int failed = regcomp(&compiled, expression, REG_EXTENDED | REG_NEWLINE);
    if (failed) {
        char why[120];
        regerror(failed, &compiled, why, sizeof why);
        gv_read_fail(r, gv_yaml_get(map, key), "`%s` is not an extended regular expression: %s", key, why);
        return;
    }
    if (compiled.re_nsub < 1)
        gv_read_fail(r, gv_yaml_get(map, key),
                     "`%s` needs one group in parentheses around the number, for example "
                     "corrupt: ([0-9]+)",
                     key);
    regfree(&compiled);
}

static void read_counts(gv_reader *r, const gv_yaml_node *trial_map, gv_counts *counts)
{
    const gv_yaml_node *map = gv_yaml_get(trial_map, "counts");
    if (r->status == GV_OK && !map)
        gv_read_fail(r, trial_map, "`trial` needs `counts`: where its numbers of sessions and of corrupt ones stand");
    GV_READ_KEYS(r, map, "`counts`", "format", "file", "sessions", "corrupt", "failed", "unsure", "list", "verdict");
    const char *format = NULL;
    gv_read_text(r, map, "format", &format);
    gv_read_text(r, map, "file", &counts->file);
    gv_read_text(r, map, "sessions", &counts->sessions);
    gv_read_text(r, map, "corrupt", &counts->corrupt);
    gv_read_text(r, map, "failed", &counts->failed);
    gv_read_text(r, map, "unsure", &counts->unsure);
    gv_read_text(r, map, "list", &counts->list);
    gv_read_text(r, map, "verdict", &counts->list_verdict);
    if (r->status != GV_OK)
        return;
    counts->json = format && strcmp(format, "json") == 0;
    if (!format || (!counts->json && strcmp(format, "text") != 0))
        gv_read_fail(r, format ? gv_yaml_get(map, "format") : map,
                     "`counts` needs `format: json` (the keys are JSON pointers) or `format: text` (they are regular "
                     "expressions)");
    if (!counts->sessions || !counts->corrupt)
        gv_read_fail(r, map,
                     "`counts` needs `sessions` and `corrupt`; `failed` and `unsure` say how many of the "
                     "sessions say nothing");
    if (!counts->list != !counts->list_verdict)
        gv_read_fail(r, map,
                     "`list` and `verdict` go together: the array of sessions, and where its verdict stands in "
                     "each");
    if (counts->list && !counts->json)
        gv_read_fail(r, gv_yaml_get(map, "list"), "`list` needs `format: json`");
    const char *keys[] = {"sessions", "corrupt", "failed", "unsure", "list", "verdict"};
    const char *values[] = {counts->sessions, counts->corrupt, counts->failed,
                            counts->unsure,   counts->list,    counts->list_verdict};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (counts->json)
            check_pointer(r, map, keys[i], values[i]);
        else
            check_expression(r, map, keys[i], values[i]);
    }
}

void gv_read_trial(gv_reader *r, const gv_yaml_node *root)
{
    const gv_yaml_node *map = gv_yaml_get(root, "trial");
    if (r->status == GV_OK && !map)
        gv_read_fail(r, root, "the plan has no `trial`: the command that is run against the service");
    if (r->status != GV_OK)
        return;
    gv_trial_plan *trial = &r->plan->trial;
    GV_READ_KEYS(r, map, "`trial`", "command", "environment", "directory", "timeout", "sessions", "failed_allowed",
                 "counts");
    gv_read_command(r, gv_yaml_get(map, "command"), "`command`", &trial->command);
    gv_read_settings(r, gv_yaml_get(map, "environment"), "`environment`", true, &trial->environment);
    gv_read_text(r, map, "directory", &trial->directory);
    trial->timeout = 3600;
    gv_read_seconds(r, map, "timeout", &trial->timeout);
    gv_read_count(r, map, "sessions", 1, 1000000, &trial->sessions);
    gv_read_count(r, map, "failed_allowed", 0, 1000000, &trial->failed_allowed);
    if (r->status == GV_OK && !trial->command.line)
        gv_read_fail(r, map, "`trial` needs a `command`, for example gravel stress with --json \"${out}/stress.json\"");
    if (r->status == GV_OK && !trial->sessions)
        gv_read_fail(r, map, "`trial` needs `sessions`: how many one trial runs; the command takes it as ${sessions}");
    read_counts(r, map, &trial->counts);
}
