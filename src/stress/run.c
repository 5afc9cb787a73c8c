#include "stress/run.h"

#include "base/memory.h"
#include "stress/agent.h"
#include "stress/baseline.h"
#include "stress/client.h"
#include "stress/reply.h"
#include "stress/secret.h"
#include "stress/transcript.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

// ---- Results ------------------------------------------------------------------------------------------------------

gv_round_result *gv_results_at(const gv_results *results, size_t session, size_t round)
{
    return &results->items[session * results->rounds + round];
}

gv_class gv_results_session_class(const gv_results *results, size_t session)
{
    gv_class highest = GV_CLASS_CLEAN;
    for (size_t i = 0; i < results->rounds; i++) {
        const gv_round_result *result = gv_results_at(results, session, i);
        gv_class class_ = result->asked ? gv_reasons_class(result->reasons) : GV_CLASS_CLEAN;
        // A round that was not asked leaves the session unmeasured. After a refusal it is the refusal that did.
        if (!result->asked && highest == GV_CLASS_CLEAN)
            class_ = GV_CLASS_FAILURE;
        if (class_ > highest)
            highest = class_;
    }
    return highest;
}

void gv_results_note(gv_results *results, size_t session, size_t round, gv_reason reason, const char *detail,
                     const char *key)
{
    if (results->note_count >= GV_MOST_NOTES ||
        !GV_GROW(results->notes, results->note_capacity, results->note_count + 1))
        return;
    char *text = gv_strdup(detail);
    if (!text)
        return;
    gv_redact(text, strlen(text), key);
    results->notes[results->note_count++] =
        (gv_note){.session = (uint32_t)session, .round = (uint32_t)round, .reason = reason, .detail = text};
}

void gv_results_free(gv_results *results)
{
    for (size_t i = 0; i < results->note_count; i++)
        gv_free(results->notes[i].detail);
    gv_free(results->notes);
    gv_free(results->items);
    *results = (gv_results){0};
}

static gv_status make_results(const gv_stress_options *options, const char *url, gv_results *results, gv_error *error)
{
    *results = (gv_results){.sessions = options->sessions, .rounds = options->rounds};
    results->items = gv_calloc(options->sessions * options->rounds, sizeof *results->items);
    if (!results->items)
        return gv_fail(error, GV_ERR_MEMORY, "out of memory: fewer sessions or rounds");
    snprintf(results->url, sizeof results->url, "%.255s", url);
    gv_utf8_trim(results->url);
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(results->started, sizeof results->started, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return GV_OK;
}

// ---- Phases -------------------------------------------------------------------------------------------------------

typedef struct run {
    const gv_stress_options *options;
    gv_client *client;
    char *url;
    char *tail, *alone_tail;
    gv_results *results;
    gv_results alone;      // the baseline; `items` NULL until it is wanted
    gv_baseline_key *keys; // of each session whose baseline was wanted
    bool *known;           // the session's baseline is in `alone`
    gv_error *error;
} run;

static bool stopped(const run *r)
{
    return r->options->interrupted && *r->options->interrupted;
}

static gv_status make_baseline(run *r)
{
    if (r->alone.items)
        return GV_OK;
    gv_status status = make_results(r->options, r->results->url, &r->alone, r->error);
    r->keys = gv_calloc(r->options->sessions, sizeof *r->keys);
    r->known = gv_calloc(r->options->sessions, sizeof *r->known);
    if (status == GV_OK && (!r->keys || !r->known))
        status = gv_fail(r->error, GV_ERR_MEMORY, "out of memory: fewer sessions or rounds");
    return status;
}

static gv_status name_baseline(run *r, size_t session)
{
    const gv_stress_options *options = r->options;
    gv_session made;
    gv_status status =
        gv_session_make(options->scenario, options->seed, session, options->rounds, options->lines, &made, r->error);
    if (status != GV_OK)
        return status;
    r->keys[session] = gv_baseline_key_of(r->url, r->alone_tail, &made);
    gv_session_free(&made);
    return GV_OK;
}

// Takes from the cache what is there; `sessions` and `*count` become those that are missing.
static gv_status read_cache(run *r, size_t *sessions, size_t *count)
{
    size_t missing = 0;
    for (size_t i = 0; i < *count; i++) {
        size_t session = sessions[i];
        char taken[32];
        gv_status status = name_baseline(r, session);
        if (status != GV_OK)
            return status;
        if (r->options->cache && !r->options->refresh &&
            gv_baseline_read(r->options->cache, &r->keys[session], &r->alone, session, taken)) {
            r->known[session] = true;
            r->results->baseline_cached++;
            char *oldest = r->results->baseline_oldest;
            if (!oldest[0] || strcmp(taken, oldest) < 0)
                memcpy(oldest, taken, sizeof taken);
        } else {
            sessions[missing++] = session;
        }
    }
    *count = missing;
    return GV_OK;
}

// Brings the baseline of `count` sessions; `sessions` is used up.
static gv_status take_baseline(run *r, const char *phase, size_t *sessions, size_t count)
{
    gv_status status = make_baseline(r);
    if (status == GV_OK)
        status = read_cache(r, sessions, &count);
    if (status != GV_OK || count == 0)
        return status;
    uint64_t began = gv_monotonic_ns();
    gv_pass pass = {.options = r->options,
                    .client = r->client,
                    .phase = phase,
                    .tail = r->alone_tail,
                    .indices = sessions,
                    .count = count,
                    .concurrency = 1,
                    .alone = true,
                    .results = &r->alone};
    status = gv_pass_run(&pass, r->error);
    for (size_t i = 0; i < count && status == GV_OK; i++) {
        size_t session = sessions[i];
        gv_error error = {0};
        bool whole = gv_results_session_class(&r->alone, session) != GV_CLASS_FAILURE;
        r->known[session] = gv_results_at(&r->alone, session, 0)->asked;
        r->results->baseline_taken += whole;
        r->results->baseline_missing += !whole;
        if (whole && r->options->cache &&
            gv_baseline_write(r->options->cache, &r->keys[session], &r->alone, session, &error) != GV_OK)
            snprintf(r->results->warning, sizeof r->results->warning, "%.250s", error.text);
    }
    if (r->results->baseline_taken && !r->results->baseline_oldest[0])
        memcpy(r->results->baseline_oldest, r->alone.started, sizeof r->alone.started);
    r->results->baseline_seconds += (double)(gv_monotonic_ns() - began) / 1e9;
    return status;
}

static gv_status load(run *r)
{
    const gv_stress_options *options = r->options;
    gv_pass pass = {.options = options,
                    .client = r->client,
                    .phase = "load",
                    .tail = r->tail,
                    .count = options->sessions,
                    .concurrency = options->concurrency,
                    .ramp_s = options->ramp_s,
                    .think_low_s = options->think_low_s,
                    .think_high_s = options->think_high_s,
                    .results = r->results};
    uint64_t began = gv_monotonic_ns();
    gv_status status = gv_pass_run(&pass, r->error);
    r->results->load_seconds = (double)(gv_monotonic_ns() - began) / 1e9;
    return status;
}

static gv_status settle(run *r, size_t *sessions)
{
    const gv_stress_options *options = r->options;
    gv_status status = GV_OK;
    size_t count = 0;
    for (size_t i = 0; i < options->sessions; i++) {
        if (gv_baseline_wanted(r->results, options->scenario, i))
            sessions[count++] = i;
    }
    if (options->baseline == GV_BASELINE_FAILED && count && !stopped(r))
        status = take_baseline(r, "settling", sessions, count);
    for (size_t i = 0; i < options->sessions && status == GV_OK; i++) {
        bool known = r->alone.items && r->known[i];
        gv_baseline_settle(r->results, known ? &r->alone : NULL, options->scenario, i, options->exact, options->key);
    }
    return status;
}

static gv_status run_phases(run *r)
{
    const gv_stress_options *options = r->options;
    size_t *sessions = gv_calloc(options->sessions, sizeof *sessions);
    if (!sessions)
        return gv_fail(r->error, GV_ERR_MEMORY, "out of memory: fewer sessions");
    gv_status status = GV_OK;
    for (size_t i = 0; i < options->sessions; i++)
        sessions[i] = i;
    if (options->baseline == GV_BASELINE_ALL)
        status = take_baseline(r, "baseline", sessions, options->sessions);
    if (status == GV_OK && !stopped(r))
        status = load(r);
    if (status == GV_OK)
        status = settle(r, sessions);
    r->results->interrupted = stopped(r);
    gv_free(sessions);
    return status;
}

static gv_status check(const gv_stress_options *options, gv_error *error)
{
    if (options->sessions == 0 || options->rounds == 0 || options->sessions > GV_MOST_ROUND_RESULTS / options->rounds)
        return gv_fail(error, GV_ERR_USAGE, "sessions times rounds must be between 1 and %d", GV_MOST_ROUND_RESULTS);
    // The first session shows what is wrong with the sizes, before anything is sent.
    gv_session session;
    gv_status status =
        gv_session_make(options->scenario, options->seed, 0, options->rounds, options->lines, &session, error);
    gv_session_free(&session);
    return status;
}

gv_status gv_stress_run(const gv_stress_options *options, gv_results *results, gv_error *error)
{
    *results = (gv_results){0};
    run r = {.options = options, .results = results, .error = error};
    json_set_alloc_funcs(gv_malloc, gv_free);
    gv_status status = check(options, error);
    if (status == GV_OK)
        status = gv_client_url(options->base_url, &r.url, error);
    if (status == GV_OK)
        status = make_results(options, r.url, results, error);
    if (status == GV_OK && options->key)
        status = gv_client_check_key(options->key, error);
    if (status == GV_OK && options->transcripts)
        status = gv_transcripts_prepare(options->transcripts, error);
    if (status == GV_OK) {
        r.tail = gv_request_tail(options, options->temperature);
        r.alone_tail = gv_request_tail(options, 0);
        if (!r.tail || !r.alone_tail)
            status = gv_fail(error, GV_ERR_MEMORY, "out of memory");
    }
    gv_client_options client = {.url = r.url,
                                .key = options->key,
                                .stream = options->stream,
                                .timeout_ms = options->timeout_ms,
                                // An event is a few hundred bytes a token; beyond this a stream has no end.
                                .most_bytes = (size_t)options->most_tokens * 4096 + (2 << 20),
                                .most_requests = options->concurrency};
    if (status == GV_OK)
        status = gv_client_open(&r.client, &client, error);
    if (status == GV_OK)
        status = run_phases(&r);
    gv_client_close(r.client);
    gv_results_free(&r.alone);
    gv_free(r.keys);
    gv_free(r.known);
    gv_free(r.tail);
    gv_free(r.alone_tail);
    gv_free(r.url);
    if (status != GV_OK)
        gv_results_free(results);
    return status;
}
