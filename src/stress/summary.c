#include "stress/summary.h"

#include "base/memory.h"
#include "report/format.h"
#include "stress/secret.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Counting -----------------------------------------------------------------------------------------------------

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

// The smallest value that at least `share` of all do not exceed (nearest rank).
static double rank(const float *sorted, size_t count, double share)
{
    size_t index = (size_t)ceil(share * (double)count);
    return (double)sorted[index ? index - 1 : 0];
}

static gv_percentiles percentiles(float *values, size_t count)
{
    if (count == 0)
        return (gv_percentiles){0};
    qsort(values, count, sizeof *values, compare_floats);
    return (gv_percentiles){count, rank(values, count, 0.5), rank(values, count, 0.9), rank(values, count, 0.99),
                            (double)values[count - 1]};
}

// Times of rounds that brought a whole answer: those of a time-out would say how long the time-out is.
static gv_status summarise_times(const gv_results *results, gv_summary *summary, gv_error *error)
{
    size_t most = results->sessions * results->rounds, count = 0;
    float *values = gv_calloc(most, sizeof *values);
    if (!values)
        return gv_fail(error, GV_ERR_MEMORY, "out of memory while the times were put together");
    gv_percentiles *out[] = {&summary->first, &summary->token, &summary->whole};
    for (int kind = 0; kind < 3; kind++) {
        count = 0;
        for (size_t i = 0; i < most; i++) {
            const gv_round_result *result = &results->items[i];
            float value = kind == 0 ? result->first_ms : kind == 1 ? result->token_ms : result->whole_ms;
            if (result->asked && !gv_reasons_have(result->reasons, GV_CLASS_FAILURE) && value >= 0)
                values[count++] = value;
        }
        *out[kind] = percentiles(values, count);
    }
    gv_free(values);
    return GV_OK;
}

static void count_reasons(const gv_results *results, size_t session, gv_summary *summary)
{
    gv_reasons seen = 0;
    for (size_t round = 0; round < results->rounds; round++) {
        const gv_round_result *result = gv_results_at(results, session, round);
        for (unsigned i = 0; result->reasons && i < GV_REASON_COUNT; i++) {
            if (!(result->reasons & GV_REASON_BIT(i)))
                continue;
            gv_reason_count *reason = &summary->reasons[i];
            if (reason->rounds++ == 0) {
                reason->first_session = session;
                reason->first_round = round;
            }
            reason->sessions += !(seen & GV_REASON_BIT(i));
            seen |= GV_REASON_BIT(i);
        }
    }
}

gv_status gv_summarise(const gv_results *results, gv_summary *summary, gv_error *error)
{
    *summary = (gv_summary){.counted = true};
    for (size_t session = 0; session < results->sessions; session++) {
        if (!gv_results_at(results, session, 0)->asked) {
            summary->not_run++;
            continue;
        }
        summary->classes[gv_results_session_class(results, session)]++;
        count_reasons(results, session, summary);
    }
    for (size_t i = 0; i < results->sessions * results->rounds; i++) {
        const gv_round_result *result = &results->items[i];
        summary->rounds_asked += result->asked;
        summary->drifted += result->drifted;
        summary->tokens += result->tokens;
        summary->prompt_tokens += result->prompt_tokens;
        summary->counted &= result->counted || result->tokens == 0;
    }
    size_t corrupt = summary->classes[GV_CLASS_CORRUPTION];
    summary->measured = corrupt + summary->classes[GV_CLASS_CLEAN];
    summary->rate = summary->measured ? (double)corrupt / (double)summary->measured : 0;
    summary->interval = gv_clopper_pearson(corrupt, summary->measured, 0.95);
    return summarise_times(results, summary, error);
}

gv_round_summary gv_summarise_round(const gv_results *results, size_t round)
{
    gv_round_summary summary = {0};
    for (size_t session = 0; session < results->sessions; session++) {
        const gv_round_result *result = gv_results_at(results, session, round);
        if (!result->asked)
            continue;
        summary.asked++;
        summary.classes[gv_reasons_class(result->reasons)]++;
    }
    return summary;
}

bool gv_summary_unmeasured(const gv_summary *summary, const gv_results *results, double most_unmeasured)
{
    size_t unmeasured = results->sessions - summary->measured;
    return summary->measured == 0 || (double)unmeasured * 100 > most_unmeasured * (double)results->sessions;
}

// ---- Text ---------------------------------------------------------------------------------------------------------

static void print_percentiles(FILE *out, const char *name, const gv_percentiles *values)
{
    if (values->count)
        fprintf(out, "  %-18s %10.1f %10.1f %10.1f %10.1f\n", name, values->p50, values->p90, values->p99,
                values->most);
}

static void print_rounds(FILE *out, const gv_results *results)
{
    fprintf(out, "\n  %-18s %10s %10s %10s %10s\n", "round", "asked", "corrupt", "failed", "unsure");
    size_t shown = results->rounds > 20 ? 20 : results->rounds;
    for (size_t i = 0; i < shown; i++) {
        gv_round_summary round = gv_summarise_round(results, i);
        fprintf(out, "  %-18zu %10s %10s %10s %10s\n", i + 1, gv_number(round.asked),
                gv_number(round.classes[GV_CLASS_CORRUPTION]), gv_number(round.classes[GV_CLASS_FAILURE]),
                gv_number(round.classes[GV_CLASS_UNSURE]));
    }
    if (shown < results->rounds)
        fprintf(out, "  (the JSON has the other %s)\n", gv_count(results->rounds - shown, "round", "rounds"));
}

// The note of a round, or "". What is wrong alone too has the note of what was found at first.
static const char *note_of(const gv_results *results, size_t session, size_t round, gv_reason reason)
{
    for (size_t i = 0; i < results->note_count; i++) {
        const gv_note *note = &results->notes[i];
        if (note->session == session && note->round == round &&
            (note->reason == reason || reason == GV_REASON_ALONE_TOO))
            return note->detail;
    }
    return "";
}

static void print_reasons(FILE *out, const gv_results *results, const gv_summary *summary)
{
    bool any = false;
    for (int class_ = GV_CLASS_CORRUPTION; class_ > GV_CLASS_CLEAN; class_--) {
        for (unsigned i = 0; i < GV_REASON_COUNT; i++) {
            const gv_reason_count *reason = &summary->reasons[i];
            if (reason->rounds == 0 || gv_reason_class((gv_reason)i) != (gv_class)class_)
                continue;
            if (!any)
                fprintf(out, "\n  %-11s %-18s %10s %10s   %s\n", "class", "reason", "rounds", "sessions", "first seen");
            any = true;
            const char *detail = note_of(results, reason->first_session, reason->first_round, (gv_reason)i);
            fprintf(out, "  %-11s %-18s %10s %10s   session %zu, round %zu\n", gv_class_name((gv_class)class_),
                    gv_reason_id((gv_reason)i), gv_number(reason->rounds), gv_number(reason->sessions),
                    reason->first_session, reason->first_round + 1);
            if (detail[0])
                gv_print_wrapped(out, "              ", 14, GV_REPORT_WIDTH, detail);
        }
    }
}

static void print_baseline(FILE *out, const gv_stress_options *options, const gv_results *results,
                           const gv_summary *summary)
{
    size_t known = results->baseline_taken + results->baseline_cached;
    if (known || results->baseline_missing)
        fprintf(out, "\n  baseline: %s run alone, %s from the cache%s%s, %s without one\n",
                gv_count(results->baseline_taken, "session", "sessions"), gv_number(results->baseline_cached),
                results->baseline_cached ? ", the oldest of " : "",
                results->baseline_cached ? results->baseline_oldest : "", gv_number(results->baseline_missing));
    if (summary->drifted)
        fprintf(out, "  %s right, but not word for word what the session brings alone\n",
                gv_count(summary->drifted, "round was", "rounds were"));
    if (summary->reasons[GV_REASON_ALONE_TOO].rounds)
        fprintf(out,
                "  rounds that are wrong alone too are not counted as corruption: the model, or a damage that lasts\n"
                "  (such as a cached prefix); restart the server and run again with --baseline all --refresh\n");
}

void gv_summary_text(FILE *out, const gv_stress_options *options, const gv_results *results, const gv_summary *summary)
{
    fprintf(out, "%s x %s of \"%s\", %s at a time, seed %llu, %s at %s\n",
            gv_count(results->sessions, "session", "sessions"), gv_count(results->rounds, "round", "rounds"),
            options->scenario->name, gv_number(options->concurrency), (unsigned long long)options->seed, options->model,
            results->url);
    print_rounds(out, results);
    print_reasons(out, results, summary);
    if (summary->whole.count) {
        fprintf(out, "\n  %-18s %10s %10s %10s %10s\n", "milliseconds", "median", "90 %", "99 %", "most");
        print_percentiles(out, "first token", &summary->first);
        print_percentiles(out, "each token", &summary->token);
        print_percentiles(out, "whole answer", &summary->whole);
    }
    double seconds = results->load_seconds > 0 ? results->load_seconds : 1;
    fprintf(out, "\n  %.1f s, %.1f sessions/s, %.1f requests/s, %.1f tokens/s%s\n", results->load_seconds,
            (double)(results->sessions - summary->not_run) / seconds, (double)results->requests / seconds,
            (double)summary->tokens / seconds,
            summary->counted ? "" : " (tokens counted as events where the server gave no usage)");
    print_baseline(out, options, results, summary);
    if (results->transcripts)
        fprintf(out, "  transcripts of %s in %s%s\n", gv_count(results->transcripts, "session", "sessions"),
                options->transcripts, results->transcripts_left_out ? " (the limit of --transcripts was reached)" : "");
    if (results->warning[0])
        fprintf(out, "  warning: %s\n", results->warning);
    if (results->interrupted)
        fprintf(out, "  INTERRUPTED: %s not run\n", gv_count(summary->not_run, "session was", "sessions were"));
    size_t unmeasured = summary->classes[GV_CLASS_FAILURE] + summary->classes[GV_CLASS_UNSURE];
    if (unmeasured)
        fprintf(out, "  not measured: %s failed, %s unsure; the rate is that of the others\n",
                gv_count(summary->classes[GV_CLASS_FAILURE], "session", "sessions"),
                gv_number(summary->classes[GV_CLASS_UNSURE]));
    // 0 of 0 must not look like a rate of nothing.
    if (summary->measured == 0) {
        fprintf(out, "\nCORRUPTION sessions: 0/0: no session could be measured\n");
        return;
    }
    fprintf(out, "\nCORRUPTION sessions: %zu/%zu = %.1f %% (95 %% interval %.1f-%.1f %%)\n",
            summary->classes[GV_CLASS_CORRUPTION], summary->measured, summary->rate * 100, summary->interval.low * 100,
            summary->interval.high * 100);
}

// ---- JSON ---------------------------------------------------------------------------------------------------------

static json_t *percentiles_json(const gv_percentiles *values)
{
    if (values->count == 0)
        return json_null();
    return json_pack("{s:I, s:f, s:f, s:f, s:f}", "count", (json_int_t)values->count, "p50", values->p50, "p90",
                     values->p90, "p99", values->p99, "max", values->most);
}

static json_t *reasons_list(gv_reasons reasons)
{
    json_t *list = json_array();
    for (unsigned i = 0; list && i < GV_REASON_COUNT; i++) {
        if (reasons & GV_REASON_BIT(i))
            json_array_append_new(list, json_string(gv_reason_id((gv_reason)i)));
    }
    return list;
}

static json_t *rounds_json(const gv_results *results)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < results->rounds; i++) {
        gv_round_summary round = gv_summarise_round(results, i);
        json_array_append_new(list, json_pack("{s:I, s:I, s:I, s:I, s:I}", "round", (json_int_t)i + 1, "asked",
                                              (json_int_t)round.asked, "corrupt",
                                              (json_int_t)round.classes[GV_CLASS_CORRUPTION], "failed",
                                              (json_int_t)round.classes[GV_CLASS_FAILURE], "unsure",
                                              (json_int_t)round.classes[GV_CLASS_UNSURE]));
    }
    return list;
}

static json_t *reasons_json(const gv_summary *summary)
{
    json_t *list = json_array();
    for (unsigned i = 0; list && i < GV_REASON_COUNT; i++) {
        const gv_reason_count *reason = &summary->reasons[i];
        if (reason->rounds)
            json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I, s:I}", "reason", gv_reason_id((gv_reason)i),
                                                  "class", gv_class_name(gv_reason_class((gv_reason)i)), "about",
                                                  gv_reason_about((gv_reason)i), "rounds", (json_int_t)reason->rounds,
                                                  "sessions", (json_int_t)reason->sessions));
    }
    return list;
}

// Every round that is not clean. The notes were made in the order in which rounds ended.
static json_t *findings_json(const gv_results *results)
{
    json_t *list = json_array();
    for (size_t session = 0; list && session < results->sessions; session++) {
        for (size_t round = 0; round < results->rounds; round++) {
            const gv_round_result *result = gv_results_at(results, session, round);
            if (!result->reasons)
                continue;
            gv_class class_ = gv_reasons_class(result->reasons);
            json_array_append_new(list, json_pack("{s:I, s:I, s:s, s:o, s:o, s:n}", "session", (json_int_t)session,
                                                  "round", (json_int_t)round + 1, "class", gv_class_name(class_),
                                                  "reasons", reasons_list(result->reasons), "found",
                                                  reasons_list(result->found), "detail"));
        }
    }
    return list;
}

// Fills in the details: one pass over the notes, and a search in the list, which is in order.
static void add_details(json_t *list, const gv_results *results)
{
    for (size_t i = 0; i < results->note_count; i++) {
        const gv_note *note = &results->notes[i];
        size_t low = 0, high = json_array_size(list);
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            const json_t *item = json_array_get(list, middle);
            json_int_t session = json_integer_value(json_object_get(item, "session"));
            json_int_t round = json_integer_value(json_object_get(item, "round"));
            bool before = session < (json_int_t)note->session ||
                          (session == (json_int_t)note->session && round < (json_int_t)note->round + 1);
            if (before)
                low = middle + 1;
            else
                high = middle;
        }
        json_t *item = json_array_get(list, low);
        if (json_integer_value(json_object_get(item, "session")) == (json_int_t)note->session &&
            json_integer_value(json_object_get(item, "round")) == (json_int_t)note->round + 1)
            json_object_set_new(item, "detail", json_string(note->detail));
    }
}

static json_t *options_json(const gv_stress_options *options)
{
    static const char *const modes[] = {"off", "failed", "all"};
    json_t *list = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "scenario", options->scenario->name, "seed",
                             (json_int_t)options->seed, "sessions", (json_int_t)options->sessions, "rounds",
                             (json_int_t)options->rounds, "ctx", (json_int_t)options->lines, "concurrency",
                             (json_int_t)options->concurrency, "max_tokens", (json_int_t)options->most_tokens,
                             "temperature", options->temperature);
    json_t *more = json_pack("{s:f, s:b, s:f, s:f, s:f, s:s, s:b, s:O?}", "timeout_s",
                             (double)options->timeout_ms / 1000, "stream", options->stream, "ramp_s", options->ramp_s,
                             "think_low_s", options->think_low_s, "think_high_s", options->think_high_s, "baseline",
                             modes[options->baseline], "exact", options->exact, "body", options->body);
    if (list && more)
        json_object_update(list, more);
    json_decref(more);
    return list;
}

char *gv_summary_json(const gv_stress_options *options, const gv_results *results, const gv_summary *summary,
                      int exit_code)
{
    double seconds = results->load_seconds > 0 ? results->load_seconds : 1;
    json_t *findings = findings_json(results);
    add_details(findings, results);
    json_t *root = json_pack("{s:s, s:i, s:s, s:s, s:s, s:s, s:s, s:o}", "schema", "gravel-stress", "version", 1,
                             "gravel", GRAVEL_VERSION, "tag", options->tag, "url", results->url, "model",
                             options->model, "started", results->started, "options", options_json(options));
    json_t *sessions = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "asked", (json_int_t)results->sessions, "not_run",
        (json_int_t)summary->not_run, "corrupt", (json_int_t)summary->classes[GV_CLASS_CORRUPTION], "clean",
        (json_int_t)summary->classes[GV_CLASS_CLEAN], "failed", (json_int_t)summary->classes[GV_CLASS_FAILURE],
        "unsure", (json_int_t)summary->classes[GV_CLASS_UNSURE], "measured", (json_int_t)summary->measured);
    json_t *corruption = json_pack("{s:f, s:f, s:f, s:f}", "rate", summary->rate, "low", summary->interval.low, "high",
                                   summary->interval.high, "confidence", 0.95);
    json_t *latency = json_pack("{s:o, s:o, s:o}", "first_token_ms", percentiles_json(&summary->first), "token_ms",
                                percentiles_json(&summary->token), "whole_ms", percentiles_json(&summary->whole));
    json_t *throughput =
        json_pack("{s:f, s:I, s:I, s:I, s:b, s:f, s:f, s:f}", "seconds", results->load_seconds, "requests",
                  (json_int_t)results->requests, "tokens", (json_int_t)summary->tokens, "prompt_tokens",
                  (json_int_t)summary->prompt_tokens, "counted_by_server", summary->counted, "sessions_per_s",
                  (double)(results->sessions - summary->not_run) / seconds, "requests_per_s",
                  (double)results->requests / seconds, "tokens_per_s", (double)summary->tokens / seconds);
    json_t *baseline =
        json_pack("{s:I, s:I, s:I, s:s*, s:f, s:I}", "taken", (json_int_t)results->baseline_taken, "cached",
                  (json_int_t)results->baseline_cached, "missing", (json_int_t)results->baseline_missing, "oldest",
                  results->baseline_oldest[0] ? results->baseline_oldest : NULL, "seconds", results->baseline_seconds,
                  "drifted_rounds", (json_int_t)summary->drifted);
    json_t *transcripts =
        json_pack("{s:s?, s:I, s:I}", "folder", options->transcripts, "kept", (json_int_t)results->transcripts,
                  "left_out", (json_int_t)results->transcripts_left_out);
    json_t *rest = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:s?, s:i}", "sessions", sessions,
                             "corruption", corruption, "by_round", rounds_json(results), "by_reason",
                             reasons_json(summary), "findings", findings, "latency", latency, "throughput", throughput,
                             "baseline", baseline, "transcripts", transcripts, "interrupted", results->interrupted,
                             "warning", results->warning[0] ? results->warning : NULL, "exit_code", exit_code);
    char *text = NULL;
    if (root && rest && json_object_update(root, rest) == 0)
        text = json_dumps(root, JSON_INDENT(1));
    json_decref(root);
    json_decref(rest);
    if (text)
        gv_redact(text, strlen(text), options->key);
    return text;
}
