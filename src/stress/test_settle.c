// What the baseline changes: each case is a pair of a session under load and the same session alone. Also the cache,
// and what a run comes to.
#include "stress/baseline.h"
#include "stress/client.h"
#include "stress/summary.h"

#include "base/memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

// Round 1 expects a call, round 2 nothing.
static gv_scenario *scenario(void)
{
    static const char text[] =
        "name: s\ntools: [{name: x}]\nrounds:\n  - user: a\n    expect: {call: x}\n  - user: b\n";
    gv_scenario *made = NULL;
    assert_int_equal(gv_scenario_parse("s", text, sizeof text - 1, &made, NULL), GV_OK);
    return made;
}

static gv_results results(size_t sessions, size_t rounds)
{
    gv_results made = {.sessions = sessions, .rounds = rounds, .load_seconds = 2};
    made.items = gv_calloc(sessions * rounds, sizeof *made.items);
    for (size_t i = 0; i < sessions * rounds; i++)
        made.items[i] = (gv_round_result){.asked = true,
                                          .history = 1,
                                          .calls = 2,
                                          .text = 3,
                                          .first_ms = 1,
                                          .whole_ms = (float)(i + 1),
                                          .token_ms = -1,
                                          .tokens = 10,
                                          .counted = true};
    return made;
}

typedef struct pair {
    gv_results load, alone;
    gv_scenario *scenario;
} pair;

static pair set_up(void)
{
    return (pair){results(1, 2), results(1, 2), scenario()};
}

static void settle(pair *p, bool with_baseline, bool exact)
{
    gv_baseline_settle(&p->load, with_baseline ? &p->alone : NULL, p->scenario, 0, exact, NULL);
}

static void tear_down(pair *p)
{
    gv_results_free(&p->load);
    gv_results_free(&p->alone);
    gv_scenario_free(p->scenario);
}

static void test_corruption(void **state)
{
    // Wrong under load and right alone: corruption. Wrong alone too: unsure. No answer alone: corruption.
    static const gv_reasons alone[] = {0, GV_REASON_BIT(GV_REASON_NO_CALL), GV_REASON_BIT(GV_REASON_TIMEOUT)};
    static const gv_class classes[] = {GV_CLASS_CORRUPTION, GV_CLASS_UNSURE, GV_CLASS_CORRUPTION};
    for (int i = 0; i < 3; i++) {
        pair p = set_up();
        p.load.items[0].reasons = GV_REASON_BIT(GV_REASON_WRONG_ARGUMENTS);
        p.alone.items[0].reasons = alone[i];
        settle(&p, true, false);
        assert_int_equal(gv_results_session_class(&p.load, 0), classes[i]);
        assert_true(p.load.items[0].found == (i == 1 ? GV_REASON_BIT(GV_REASON_WRONG_ARGUMENTS) : 0));
        tear_down(&p);
    }
    // Wrong alone too, and otherwise than under load: the model, unless answers do not depend on the batch.
    for (int exact = 0; exact < 2; exact++) {
        pair p = set_up();
        p.load.items[0].reasons = p.alone.items[0].reasons = GV_REASON_BIT(GV_REASON_WRONG_ARGUMENTS);
        p.load.items[0].calls = 9;
        settle(&p, true, exact);
        assert_int_equal(gv_results_session_class(&p.load, 0), exact ? GV_CLASS_CORRUPTION : GV_CLASS_UNSURE);
        tear_down(&p);
    }
    // Without a baseline it stays.
    pair p = set_up();
    p.load.items[0].reasons = GV_REASON_BIT(GV_REASON_WRONG_ARGUMENTS);
    settle(&p, false, false);
    assert_int_equal(gv_results_session_class(&p.load, 0), GV_CLASS_CORRUPTION);
    tear_down(&p);
}

static void test_nothing_expected(void **state)
{
    static const struct {
        uint64_t history, calls, text;
        bool known, exact;
        gv_reasons reasons;
    } cases[] = {
        {1, 2, 3, true, false, 0},
        {1, 2, 3, true, true, 0},
        {1, 9, 3, true, false, GV_REASON_BIT(GV_REASON_CALL_DIFFERS)},
        {1, 2, 9, true, false, GV_REASON_BIT(GV_REASON_DRIFTED)},
        {1, 2, 9, true, true, GV_REASON_BIT(GV_REASON_TEXT_DIFFERS)},
        {9, 9, 9, true, false, GV_REASON_BIT(GV_REASON_NOT_COMPARED)},
        {1, 2, 3, false, false, GV_REASON_BIT(GV_REASON_NOT_COMPARED)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pair p = set_up();
        p.load.items[1].history = cases[i].history;
        p.load.items[1].calls = cases[i].calls;
        p.load.items[1].text = cases[i].text;
        settle(&p, cases[i].known, cases[i].exact);
        assert_true(p.load.items[1].reasons == cases[i].reasons);
        assert_true(p.load.items[0].reasons == 0);
        tear_down(&p);
    }
}

static void test_drift(void **state)
{
    // Right, with other words than alone: counted; with --exact, corruption.
    for (int exact = 0; exact < 2; exact++) {
        pair p = set_up();
        p.load.items[0].text = 9;
        settle(&p, true, exact);
        assert_true(p.load.items[0].drifted);
        assert_true(p.load.items[0].reasons == (exact ? GV_REASON_BIT(GV_REASON_TEXT_DIFFERS) : 0));
        tear_down(&p);
    }
}

static void test_failures_stay(void **state)
{
    pair p = set_up();
    p.load.items[0].reasons = GV_REASON_BIT(GV_REASON_TIMEOUT);
    p.load.items[1] = (gv_round_result){0};
    settle(&p, true, true);
    assert_true(p.load.items[0].reasons == GV_REASON_BIT(GV_REASON_TIMEOUT));
    assert_true(p.load.items[1].reasons == 0);
    assert_int_equal(gv_results_session_class(&p.load, 0), GV_CLASS_FAILURE);
    // A session that stopped without a reason, as after an interruption, is not clean.
    p.load.items[0].reasons = 0;
    assert_int_equal(gv_results_session_class(&p.load, 0), GV_CLASS_FAILURE);
    tear_down(&p);
}

static void test_wanted(void **state)
{
    pair p = set_up();
    assert_true(gv_baseline_wanted(&p.load, p.scenario, 0));
    p.load.items[1].asked = false;
    assert_false(gv_baseline_wanted(&p.load, p.scenario, 0));
    p.load.items[0].reasons = GV_REASON_BIT(GV_REASON_LOOP);
    assert_true(gv_baseline_wanted(&p.load, p.scenario, 0));
    tear_down(&p);
}

static void test_cache(void **state)
{
    char folder[] = "/tmp/gravel-test-XXXXXX", path[200], taken[32];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a/b", folder);
    pair p = set_up();
    gv_session session;
    assert_int_equal(gv_session_make(p.scenario, 1, 0, 2, 0, &session, NULL), GV_OK);
    gv_baseline_key key = gv_baseline_key_of("http://a/v1", ",tail", &session);
    gv_baseline_key other = gv_baseline_key_of("http://b/v1", ",tail", &session);
    gv_baseline_key third = gv_baseline_key_of("http://a/v1", ",tale", &session);
    assert_string_not_equal(key.text, other.text);
    assert_string_not_equal(key.text, third.text);
    assert_int_equal(strlen(key.text), 32);
    gv_session_free(&session);

    p.alone.items[0].reasons = GV_REASON_BIT(GV_REASON_NO_CALL) | GV_REASON_BIT(GV_REASON_LOOP);
    p.alone.items[0].history = 0xfedcba9876543210;
    snprintf(p.alone.started, sizeof p.alone.started, "2026-11-30T12:00:00Z");
    assert_false(gv_baseline_read(path, &key, &p.load, 0, taken));
    assert_int_equal(gv_baseline_write(path, &key, &p.alone, 0, NULL), GV_OK);
    assert_true(gv_baseline_read(path, &key, &p.load, 0, taken));
    assert_string_equal(taken, "2026-11-30T12:00:00Z");
    assert_true(p.load.items[0].reasons == p.alone.items[0].reasons);
    assert_true(p.load.items[0].history == p.alone.items[0].history);
    assert_true(p.load.items[1].calls == p.alone.items[1].calls);
    assert_false(gv_baseline_read(path, &other, &p.load, 0, taken));

    // A file that is damaged, or of another number of rounds, is no baseline.
    char file[300];
    snprintf(file, sizeof file, "%s/%s.json", path, key.text);
    gv_results three = results(1, 3);
    assert_false(gv_baseline_read(path, &key, &three, 0, taken));
    gv_results_free(&three);
    assert_int_equal(truncate(file, 40), 0);
    assert_false(gv_baseline_read(path, &key, &p.load, 0, taken));
    // A session that failed is not kept.
    p.alone.items[1].reasons = GV_REASON_BIT(GV_REASON_TIMEOUT);
    unlink(file);
    assert_int_equal(gv_baseline_write(path, &key, &p.alone, 0, NULL), GV_OK);
    assert_int_equal(access(file, F_OK), -1);
    // A folder that cannot be made.
    gv_error error = {0};
    p.alone.items[1].reasons = 0;
    assert_int_equal(gv_baseline_write("/proc/no/such", &key, &p.alone, 0, &error), GV_ERR_IO);
    tear_down(&p);
    rmdir(path);
    snprintf(path, sizeof path, "%s/a", folder);
    rmdir(path);
    rmdir(folder);
}

static void test_summary(void **state)
{
    gv_results r = results(60, 2);
    gv_summary summary;
    for (size_t i = 0; i < 10; i++)
        gv_results_at(&r, i, i % 2)->reasons = GV_REASON_BIT(GV_REASON_WRONG_ARGUMENTS);
    gv_results_at(&r, 0, 1)->reasons = GV_REASON_BIT(GV_REASON_LOOP) | GV_REASON_BIT(GV_REASON_WRONG_ARGUMENTS);
    assert_int_equal(gv_summarise(&r, &summary, NULL), GV_OK);
    assert_int_equal(summary.classes[GV_CLASS_CORRUPTION], 10);
    assert_int_equal(summary.measured, 60);
    // From the binomial sums, by bisection.
    assert_true(fabs(summary.interval.low - 0.0829288102) < 1e-6);
    assert_true(fabs(summary.interval.high - 0.2852192548) < 1e-6);
    assert_int_equal(summary.reasons[GV_REASON_WRONG_ARGUMENTS].rounds, 11);
    assert_int_equal(summary.reasons[GV_REASON_WRONG_ARGUMENTS].sessions, 10);
    assert_int_equal(summary.reasons[GV_REASON_LOOP].sessions, 1);
    assert_true(summary.whole.p50 == 60 && summary.whole.p90 == 108 && summary.whole.p99 == 119);
    assert_true(summary.whole.most == 120 && summary.whole.count == 120);
    assert_int_equal(summary.token.count, 0);
    assert_true(summary.counted);
    assert_int_equal(gv_summarise_round(&r, 1).classes[GV_CLASS_CORRUPTION], 6);
    assert_false(gv_summary_unmeasured(&summary, &r, 10));

    // Failed and unsure sessions are no part of the rate; times of failures are no part of the latency.
    for (size_t i = 50; i < 57; i++)
        gv_results_at(&r, i, 0)->reasons = GV_REASON_BIT(i % 2 ? GV_REASON_RESET : GV_REASON_ALONE_TOO);
    for (size_t i = 58; i < 60; i++)
        gv_results_at(&r, i, 0)->asked = gv_results_at(&r, i, 1)->asked = false;
    assert_int_equal(gv_summarise(&r, &summary, NULL), GV_OK);
    assert_int_equal(summary.measured, 51);
    assert_int_equal(summary.classes[GV_CLASS_FAILURE], 3);
    assert_int_equal(summary.classes[GV_CLASS_UNSURE], 4);
    assert_int_equal(summary.not_run, 2);
    assert_int_equal(summary.whole.count, 120 - 3 - 4);
    assert_true(gv_summary_unmeasured(&summary, &r, 14));
    assert_false(gv_summary_unmeasured(&summary, &r, 15));
    gv_results_free(&r);

    r = results(1, 1);
    r.items[0].asked = false;
    assert_int_equal(gv_summarise(&r, &summary, NULL), GV_OK);
    assert_true(gv_summary_unmeasured(&summary, &r, 100));
    gv_results_free(&r);
}

static void test_urls(void **state)
{
    static const struct {
        const char *base, *url, *said;
    } cases[] = {
        {"http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1/chat/completions", NULL},
        {"http://127.0.0.1:8000/v1///", "http://127.0.0.1:8000/v1/chat/completions", NULL},
        {"http://127.0.0.1:8000", "http://127.0.0.1:8000/v1/chat/completions", NULL},
        {"https://a.example/", "https://a.example/v1/chat/completions", NULL},
        {"http://[::1]:8000/api/v3", "http://[::1]:8000/api/v3/chat/completions", NULL},
        {"127.0.0.1:8000/v1", NULL, "must begin with http://"},
        {"file:///etc/passwd", NULL, "must begin with http://"},
        {"http://me:secret@host/v1", NULL, "GRAVEL_API_KEY"},
        {"http://host/v1?key=secret", NULL, "query"},
        {"http://", NULL, "cannot be read"},
        {"http://a b/v1", NULL, "cannot be read"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *url = NULL;
        gv_error error = {0};
        gv_status status = gv_client_url(cases[i].base, &url, &error);
        // Nothing can be read from a URL where libcurl itself is missing: the message says so.
        assert_int_not_equal(status, GV_ERR_MISSING);
        if (cases[i].url)
            assert_string_equal(url, cases[i].url);
        else
            assert_non_null(strstr(error.text, cases[i].said));
        assert_null(strstr(error.text, "secret"));
        gv_free(url);
    }
    gv_error error = {0};
    assert_int_equal(gv_client_check_key("sk-abc.DEF_123~+/==", &error), GV_OK);
    assert_int_equal(gv_client_check_key("a key\r\nX-Evil: 1", &error), GV_ERR_USAGE);
    assert_null(strstr(error.text, "Evil"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_corruption), cmocka_unit_test(test_nothing_expected),
        cmocka_unit_test(test_drift),      cmocka_unit_test(test_failures_stay),
        cmocka_unit_test(test_wanted),     cmocka_unit_test(test_cache),
        cmocka_unit_test(test_summary),    cmocka_unit_test(test_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
