#include "stress/baseline.h"

#include "base/folder.h"
#include "base/memory.h"
#include "stress/oracle.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { VERSION = 1 };

// ---- Names --------------------------------------------------------------------------------------------------------

typedef struct digest {
    uint64_t first, second;
} digest;

// Two hashes with different starts; texts are separated by their NUL.
static void add(digest *sum, const char *text)
{
    const char *value = text ? text : "";
    sum->first = gv_hash_bytes(sum->first, value, strlen(value) + 1);
    sum->second = gv_hash_bytes(sum->second, value, strlen(value) + 1);
    // Mixes high bits down, which FNV does not.
    sum->second ^= sum->second >> 29;
}

gv_baseline_key gv_baseline_key_of(const char *url, const char *tail, const gv_session *session)
{
    digest sum = {GV_HASH_START, GV_HASH_START ^ 0x9e3779b97f4a7c15ull};
    add(&sum, url);
    add(&sum, tail);
    add(&sum, session->system);
    for (size_t i = 0; i < session->turn_count; i++) {
        const gv_turn *turn = &session->turns[i];
        char *arguments = turn->arguments ? json_dumps(turn->arguments, JSON_COMPACT) : NULL;
        add(&sum, turn->user);
        add(&sum, turn->expected.tool);
        add(&sum, arguments);
        add(&sum, turn->text);
        add(&sum, turn->result);
        gv_free(arguments);
    }
    gv_baseline_key key;
    snprintf(key.text, sizeof key.text, "%016" PRIx64 "%016" PRIx64, sum.first, sum.second);
    return key;
}

char *gv_baseline_folder(void)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    gv_string path = {0};
    if (cache && cache[0] == '/')
        gv_string_add(&path, "%s/gravel/stress", cache);
    else if (home && home[0] == '/')
        gv_string_add(&path, "%s/.cache/gravel/stress", home);
    if (path.failed || !path.text) {
        gv_string_free(&path);
        return NULL;
    }
    return path.text;
}

static void path_of(gv_string *path, const char *folder, const gv_baseline_key *key, const char *end)
{
    gv_string_add(path, "%s/%s.json%s", folder, key->text, end);
}

// ---- Reading ------------------------------------------------------------------------------------------------------

static uint64_t hexadecimal(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? strtoull(text, NULL, 16) : 0;
}

static bool read_round(const json_t *item, gv_round_result *result)
{
    const json_t *reasons = json_object_get(item, "reasons");
    if (!json_is_array(reasons) || !json_is_string(json_object_get(item, "history")))
        return false;
    *result = (gv_round_result){.asked = true,
                                .history = hexadecimal(item, "history"),
                                .calls = hexadecimal(item, "calls"),
                                .text = hexadecimal(item, "text")};
    for (size_t i = 0; i < json_array_size(reasons); i++) {
        const char *id = json_string_value(json_array_get(reasons, i));
        unsigned reason = 0;
        while (id && reason < GV_REASON_COUNT && strcmp(gv_reason_id((gv_reason)reason), id) != 0)
            reason++;
        // A reason of another gravel: the baseline is taken anew.
        if (!id || reason == GV_REASON_COUNT)
            return false;
        result->reasons |= GV_REASON_BIT(reason);
    }
    return true;
}

bool gv_baseline_read(const char *folder, const gv_baseline_key *key, gv_results *results, size_t session,
                      char taken[32])
{
    gv_string path = {0};
    path_of(&path, folder, key, "");
    json_t *root = path.failed ? NULL : json_load_file(gv_string_text(&path), 0, NULL);
    gv_string_free(&path);
    const json_t *rounds = json_object_get(root, "rounds");
    const char *when = json_string_value(json_object_get(root, "taken"));
    const char *name = json_string_value(json_object_get(root, "key"));
    bool read = json_integer_value(json_object_get(root, "version")) == VERSION && when && name &&
                strcmp(name, key->text) == 0 && json_array_size(rounds) == results->rounds;
    for (size_t i = 0; read && i < results->rounds; i++)
        read = read_round(json_array_get(rounds, i), gv_results_at(results, session, i));
    if (read)
        snprintf(taken, 32, "%.31s", when);
    else
        memset(gv_results_at(results, session, 0), 0, results->rounds * sizeof(gv_round_result));
    json_decref(root);
    return read;
}

// ---- Writing ------------------------------------------------------------------------------------------------------

static json_t *round_json(const gv_round_result *result)
{
    char history[24], calls[24], text[24];
    snprintf(history, sizeof history, "%016" PRIx64, result->history);
    snprintf(calls, sizeof calls, "%016" PRIx64, result->calls);
    snprintf(text, sizeof text, "%016" PRIx64, result->text);
    json_t *reasons = json_array();
    for (unsigned i = 0; reasons && i < GV_REASON_COUNT; i++) {
        if (result->reasons & GV_REASON_BIT(i))
            json_array_append_new(reasons, json_string(gv_reason_id((gv_reason)i)));
    }
    return json_pack("{s:s, s:s, s:s, s:o}", "history", history, "calls", calls, "text", text, "reasons", reasons);
}

gv_status gv_baseline_write(const char *folder, const gv_baseline_key *key, const gv_results *results, size_t session,
                            gv_error *error)
{
    json_t *rounds = json_array();
    for (size_t i = 0; i < results->rounds; i++) {
        const gv_round_result *result = gv_results_at(results, session, i);
        // What failed says nothing of the model.
        if (!result->asked || gv_reasons_have(result->reasons, GV_CLASS_FAILURE)) {
            json_decref(rounds);
            return GV_OK;
        }
        json_array_append_new(rounds, round_json(result));
    }
    gv_status status = gv_make_folder(folder, error);
    json_t *root = json_pack("{s:s, s:i, s:s, s:s, s:s, s:o}", "schema", "gravel-baseline", "version", VERSION, "key",
                             key->text, "url", results->url, "taken", results->started, "rounds", rounds);
    gv_string path = {0}, temporary = {0};
    path_of(&path, folder, key, "");
    path_of(&temporary, folder, key, "");
    gv_string_add(&temporary, ".%ld", (long)getpid());
    if (status == GV_OK && (!root || path.failed || temporary.failed))
        status = gv_fail(error, GV_ERR_MEMORY, "out of memory");
    // Renamed when it is whole: two runs may share the folder.
    if (status == GV_OK &&
        (json_dump_file(root, temporary.text, JSON_INDENT(1)) != 0 || rename(temporary.text, path.text) != 0)) {
        status = gv_fail(error, GV_ERR_IO, "the baseline %s cannot be written: %s", path.text, strerror(errno));
        unlink(temporary.text);
    }
    json_decref(root);
    gv_string_free(&path);
    gv_string_free(&temporary);
    return status;
}

// ---- Settling -----------------------------------------------------------------------------------------------------

static bool nothing_expected(const gv_scenario *scenario, size_t round)
{
    const gv_round_plan *plan = gv_scenario_round(scenario, round);
    return plan && !plan->tool && !plan->text;
}

bool gv_baseline_wanted(const gv_results *load, const gv_scenario *scenario, size_t session)
{
    for (size_t i = 0; i < load->rounds; i++) {
        const gv_round_result *result = gv_results_at(load, session, i);
        if (gv_reasons_have(result->reasons, GV_CLASS_CORRUPTION) || (result->asked && nothing_expected(scenario, i)))
            return true;
    }
    return false;
}

// Adds a reason to a round, with its note.
static void add_reason(gv_results *load, size_t session, size_t round, gv_reason reason, const char *detail,
                       const char *key)
{
    gv_round_result *result = gv_results_at(load, session, round);
    result->reasons |= GV_REASON_BIT(reason);
    gv_results_note(load, session, round, reason, detail, key);
}

static void settle_round(gv_results *load, const gv_round_result *alone, const gv_scenario *scenario, size_t session,
                         size_t round, bool exact, const char *key)
{
    gv_round_result *result = gv_results_at(load, session, round);
    if (!result->asked || gv_reasons_have(result->reasons, GV_CLASS_FAILURE))
        return;
    bool answered = alone && alone->asked && !gv_reasons_have(alone->reasons, GV_CLASS_FAILURE);
    // Only answers to the same history can be compared.
    bool comparable = answered && alone->history == result->history;
    bool calls = comparable && alone->calls != result->calls;
    bool text = comparable && alone->text != result->text;
    if (gv_reasons_have(result->reasons, GV_CLASS_CORRUPTION)) {
        bool alone_too = answered && gv_reasons_have(alone->reasons, GV_CLASS_CORRUPTION);
        // The model is wrong alone, and load changes how: where answers do not depend on the batch, load is at fault.
        if (alone_too && exact && (calls || text)) {
            add_reason(load, session, round, calls ? GV_REASON_CALL_DIFFERS : GV_REASON_TEXT_DIFFERS,
                       "wrong, and otherwise than the session run alone", key);
        } else if (alone_too) {
            result->found = result->reasons;
            result->reasons = GV_REASON_BIT(GV_REASON_ALONE_TOO);
        }
        return;
    }
    if (result->reasons)
        return;
    if (!nothing_expected(scenario, round)) {
        result->drifted = calls || text;
        if (exact && text)
            add_reason(load, session, round, GV_REASON_TEXT_DIFFERS,
                       "right, but the text differs from that of the session run alone", key);
        return;
    }
    if (!comparable)
        add_reason(load, session, round, GV_REASON_NOT_COMPARED,
                   answered ? "what was said before differs from the session run alone" : "there is no baseline", key);
    else if (calls)
        add_reason(load, session, round, GV_REASON_CALL_DIFFERS, "the calls differ from those of the session run alone",
                   key);
    else if (text)
        add_reason(load, session, round, exact ? GV_REASON_TEXT_DIFFERS : GV_REASON_DRIFTED,
                   "the text differs from that of the session run alone", key);
}

void gv_baseline_settle(gv_results *load, const gv_results *alone, const gv_scenario *scenario, size_t session,
                        bool exact, const char *key)
{
    for (size_t i = 0; i < load->rounds; i++)
        settle_round(load, alone ? gv_results_at(alone, session, i) : NULL, scenario, session, i, exact, key);
}
