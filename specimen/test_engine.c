// The engine by its interface: right answers alone and in batches, limits, cancelling, hand-over between engines,
// several threads.
#include "base/memory.h"
#include "specimen/engine.h"
#include "specimen/sessions.h"
#include "specimen/turns.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ANSWER = 32 };

static engine_config configured(void)
{
    engine_config config;
    engine_config_default(&config);
    config.repair = ENGINE_REPAIR_KEEP;
    config.kernels = GV_SPECIMEN_KERNELS;
    config.batch_limit = 4;
    return config;
}

static engine *make(const engine_config *config)
{
    engine *e = NULL;
    gv_error error = {0};
    if (engine_create(&e, config, &error) != GV_OK)
        fail_msg("%s", error.text);
    return e;
}

// Nothing is held, and nothing is left of it.
static void unmake(engine *e)
{
    engine_counts counts;
    engine_step(e, NULL, NULL); // forgets what was released
    engine_counts_now(e, &counts);
    assert_int_equal(counts.free_pages, counts.pages);
    assert_int_equal(counts.free_rows, counts.rows);
    assert_int_equal(counts.requests, 0);
    assert_int_equal(counts.transient_bytes, 0);
    engine_destroy(e);
}

static engine_handle submit(engine *e, const session *s, bool prefill_only)
{
    engine_request request = {.prompt = s->history.items,
                              .prompt_count = (int)s->history.count,
                              .max_tokens = ANSWER,
                              .prefill_only = prefill_only};
    engine_handle handle = 0;
    assert_int_equal(engine_submit(e, &request, &handle, NULL), GV_OK);
    assert_int_not_equal(handle, 0);
    return handle;
}

static void finish(engine *e)
{
    bool worked = true;
    while (worked)
        assert_int_equal(engine_step(e, &worked, NULL), GV_OK);
}

static void assert_right(engine *e, engine_handle handle, const session *s)
{
    int answer[ANSWER], right[SESSION_ANSWER];
    engine_progress progress;
    int count = engine_poll(e, handle, 0, answer, ANSWER, &progress);
    assert_int_equal(progress.state, ENGINE_ENDED_STOP);
    assert_int_equal(progress.prompt_count, s->history.count);
    assert_int_equal(count, progress.token_count);
    assert_int_equal(count, session_answer(s, right));
    assert_memory_equal(answer, right, (size_t)count * sizeof *answer);
    assert_int_equal(session_judge(s, answer, count, true), SESSION_RIGHT);
}

static void begin(session *s, int number)
{
    assert_true(session_begin(s, 7, number) && session_ask(s));
}

static void answers_are_right_in_every_configuration(void **state)
{
    enum { SESSIONS = 4 };
    for (int variant = 0; variant < 16; variant++) {
        engine_config config = configured();
        config.keys = variant & 1 ? ENGINE_KEYS_FP8 : ENGINE_KEYS_BF16;
        config.graph = variant & 2;
        config.overlap = variant & 4;
        config.batch_limit = variant & 8 ? 4 : 1;
        engine *e = make(&config);
        session sessions[SESSIONS];
        engine_handle handles[SESSIONS];
        for (int i = 0; i < SESSIONS; i++) {
            begin(&sessions[i], i);
            handles[i] = submit(e, &sessions[i], false);
        }
        finish(e);
        for (int i = 0; i < SESSIONS; i++) {
            assert_right(e, handles[i], &sessions[i]);
            engine_release(e, handles[i]);
            session_end(&sessions[i]);
        }
        unmake(e);
    }
}

static void the_other_repair_works_too(void **state)
{
    for (int variant = 0; variant < 4; variant++) {
        engine_config config = configured();
        config.repair = ENGINE_REPAIR_RECORD_STREAM;
        config.graph = variant & 1;
        config.prove_reuse = variant & 2;
        engine *e = make(&config);
        session sessions[4];
        engine_handle handles[4];
        for (int i = 0; i < 4; i++) {
            begin(&sessions[i], 100 + i);
            handles[i] = submit(e, &sessions[i], false);
        }
        finish(e);
        for (int i = 0; i < 4; i++) {
            assert_right(e, handles[i], &sessions[i]);
            engine_release(e, handles[i]);
            session_end(&sessions[i]);
        }
        unmake(e);
    }
}

static void rounds_continue_over_a_page(void **state)
{
    engine_config config = configured();
    engine *e = make(&config);
    session s;
    assert_true(session_begin(&s, 3, 0));
    for (int round = 0; round < 6; round++) {
        assert_true(session_ask(&s));
        engine_handle handle = submit(e, &s, false);
        finish(e);
        assert_right(e, handle, &s);
        int answer[ANSWER], count = engine_poll(e, handle, 0, answer, ANSWER, NULL);
        assert_true(session_hear(&s, answer, count));
        engine_release(e, handle);
    }
    assert_true(s.history.count > 256);
    session_end(&s);
    unmake(e);
}

static void batches_beyond_the_largest_bucket_are_eager(void **state)
{
    engine_config config = configured();
    config.bucket_count = 1;
    config.buckets[0] = 2;
    engine *e = make(&config);
    session sessions[4];
    engine_handle handles[4];
    for (int i = 0; i < 4; i++) {
        begin(&sessions[i], 200 + i);
        handles[i] = submit(e, &sessions[i], false);
    }
    finish(e);
    engine_counts counts;
    engine_counts_now(e, &counts);
    assert_true(counts.replays > 0 && counts.eager_steps > 0);
    assert_int_equal(counts.replays + counts.eager_steps, counts.steps);
    assert_int_equal(counts.prefills, 4);
    for (int i = 0; i < 4; i++) {
        assert_right(e, handles[i], &sessions[i]);
        engine_release(e, handles[i]);
        session_end(&sessions[i]);
    }
    unmake(e);
}

static void words_without_tools(void **state)
{
    engine_config config = configured();
    config.graph = false;
    engine *e = make(&config);
    const struct {
        bool after_tool;
        const char *answer;
    } cases[] = {{false, "hello."}, {true, "done."}};
    for (int i = 0; i < 2; i++) {
        tokens prompt = {0};
        assert_true(chat_begin(&prompt) && chat_message(&prompt, CHAT_USER, "hi", 2) &&
                    chat_open(&prompt, false, cases[i].after_tool));
        session fake = {.history = prompt};
        engine_handle handle = submit(e, &fake, false);
        finish(e);
        int answer[ANSWER], count = engine_poll(e, handle, 0, answer, ANSWER, NULL);
        char text[64];
        vocabulary_decode(answer, (size_t)count, text, sizeof text);
        assert_string_equal(text, cases[i].answer);
        engine_release(e, handle);
        tokens_free(&prompt);
    }
    unmake(e);
}

static void unusable_requests_are_refused(void **state)
{
    engine_config config = configured();
    config.graph = false;
    config.pages = 2;
    config.queue_limit = 2;
    engine *e = make(&config);
    int one = TOKEN_USER, bad = vocabulary_size();
    int *many = calloc((size_t)engine_max_context(e), sizeof *many);
    assert_non_null(many);
    const struct {
        engine_request request;
        gv_status status;
        const char *text;
    } cases[] = {
        {{.prompt = NULL, .prompt_count = 1, .max_tokens = 1}, GV_ERR_USAGE, "no tokens"},
        {{.prompt = &one, .prompt_count = 0, .max_tokens = 1}, GV_ERR_USAGE, "no tokens"},
        {{.prompt = &one, .prompt_count = 1, .max_tokens = 0}, GV_ERR_USAGE, "max_tokens"},
        {{.prompt = &bad, .prompt_count = 1, .max_tokens = 1}, GV_ERR_USAGE, "vocabulary"},
        {{.prompt = many, .prompt_count = engine_max_context(e), .max_tokens = 1}, GV_ERR_LIMIT, "leave room"},
        {{.prompt = &one, .prompt_count = 1, .max_tokens = 1000000}, GV_ERR_LIMIT, "pages"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gv_error error = {0};
        engine_handle handle = 0;
        assert_int_equal(engine_submit(e, &cases[i].request, &handle, &error), cases[i].status);
        assert_non_null(strstr(error.text, cases[i].text));
    }
    engine_handle handles[3];
    engine_request request = {.prompt = &one, .prompt_count = 1, .max_tokens = 1};
    assert_int_equal(engine_submit(e, &request, &handles[0], NULL), GV_OK);
    assert_int_equal(engine_submit(e, &request, &handles[1], NULL), GV_OK);
    gv_error error = {0};
    assert_int_equal(engine_submit(e, &request, &handles[2], &error), GV_ERR_LIMIT);
    assert_non_null(strstr(error.text, "waiting"));
    finish(e);
    for (int i = 0; i < 2; i++) {
        engine_progress progress;
        engine_poll(e, handles[i], 0, NULL, 0, &progress);
        assert_int_equal(progress.state, ENGINE_ENDED_LENGTH);
        assert_int_equal(progress.token_count, 1);
        engine_release(e, handles[i]);
    }
    assert_int_equal(engine_poll(e, handles[0], 0, NULL, 0, NULL), -1);
    free(many);
    unmake(e);
}

static void configurations_are_checked(void **state)
{
    const struct {
        engine_config config;
        gv_status status;
        const char *text;
    } cases[] = {
        {{.batch_limit = 0, .queue_limit = 1}, GV_ERR_USAGE, "batch_limit"},
        {{.batch_limit = ENGINE_MAX_BATCH + 1, .queue_limit = 1}, GV_ERR_USAGE, "batch_limit"},
        {{.batch_limit = 1, .queue_limit = 1, .keys = (enum engine_keys)7}, GV_ERR_USAGE, "keys"},
        {{.batch_limit = 1, .queue_limit = 0}, GV_ERR_USAGE, "queue_limit"},
        {{.batch_limit = 1, .queue_limit = 1, .bucket_count = 99}, GV_ERR_USAGE, "bucket_count"},
        {{.batch_limit = 1, .queue_limit = 1, .bucket_count = 1, .buckets = {65}}, GV_ERR_USAGE, "bucket"},
        {{.batch_limit = 1, .queue_limit = 1, .faults = UINT32_C(1) << 31}, GV_ERR_USAGE, "faults"},
        {{.batch_limit = 1, .queue_limit = 1, .kernels = "/nowhere"}, GV_ERR_MISSING, "/nowhere"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        engine *e = (engine *)&e;
        gv_error error = {0};
        assert_int_equal(engine_create(&e, &cases[i].config, &error), cases[i].status);
        assert_null(e);
        assert_non_null(strstr(error.text, cases[i].text));
    }
}

static void cancelled_requests_give_their_pages_back(void **state)
{
    engine_config config = configured();
    config.graph = false;
    engine *e = make(&config);
    session s[3];
    engine_handle handles[3];
    for (int i = 0; i < 3; i++) {
        begin(&s[i], 300 + i);
        handles[i] = submit(e, &s[i], false);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(engine_step(e, NULL, NULL), GV_OK);
    engine_cancel(e, handles[0]);  // running
    engine_release(e, handles[1]); // running, and nobody asks any more
    engine_handle late = submit(e, &s[0], false);
    engine_cancel(e, late); // not even begun
    finish(e);
    engine_progress progress;
    assert_int_equal(engine_poll(e, handles[0], 0, NULL, 0, &progress), 0);
    assert_int_equal(progress.state, ENGINE_ENDED_CANCELLED);
    assert_true(progress.token_count > 0);
    assert_int_equal(engine_poll(e, handles[1], 0, NULL, 0, &progress), -1);
    engine_poll(e, late, 0, NULL, 0, &progress);
    assert_int_equal(progress.state, ENGINE_ENDED_CANCELLED);
    assert_right(e, handles[2], &s[2]);
    engine_release(e, handles[0]);
    engine_release(e, handles[2]);
    engine_release(e, late);
    engine_release(e, late);
    for (int i = 0; i < 3; i++)
        session_end(&s[i]);
    unmake(e);
}

static void requests_wait_for_pages(void **state)
{
    engine_config config = configured();
    config.graph = false;
    config.pages = 2; // for one session and a little
    engine *e = make(&config);
    session s[3];
    engine_handle handles[3];
    for (int i = 0; i < 3; i++) {
        begin(&s[i], 400 + i);
        handles[i] = submit(e, &s[i], false);
    }
    engine_counts counts;
    assert_int_equal(engine_step(e, NULL, NULL), GV_OK);
    assert_int_equal(engine_step(e, NULL, NULL), GV_OK);
    assert_int_equal(engine_step(e, NULL, NULL), GV_OK);
    engine_counts_now(e, &counts);
    assert_int_equal(counts.running + counts.waiting, 3);
    assert_true(counts.waiting > 0);
    finish(e);
    for (int i = 0; i < 3; i++) {
        assert_right(e, handles[i], &s[i]);
        engine_release(e, handles[i]);
        session_end(&s[i]);
    }
    unmake(e);
}

// ---- Prefill here, decode there ----

static unsigned char *export_request(engine *e, engine_handle handle, size_t *size)
{
    *size = engine_export_size(e, handle);
    assert_true(*size > 0);
    unsigned char *bytes = malloc(*size);
    assert_non_null(bytes);
    assert_int_equal(engine_export(e, handle, bytes, *size - 1, NULL), GV_ERR_LIMIT);
    gv_error error = {0};
    if (engine_export(e, handle, bytes, *size, &error) != GV_OK)
        fail_msg("%s", error.text);
    return bytes;
}

static void requests_move_between_engines(void **state)
{
    for (int variant = 0; variant < 4; variant++) {
        engine_config config = configured();
        config.keys = variant & 1 ? ENGINE_KEYS_FP8 : ENGINE_KEYS_BF16;
        engine *decoder = make(&config);
        config.graph = false;
        engine *prefiller = make(&config);
        session s[4];
        engine_handle there[4];
        for (int i = 0; i < 4; i++) {
            begin(&s[i], 500 + i);
            for (int round = 0; variant & 2 && round < 4; round++) { // longer than a page
                int right[SESSION_ANSWER], length = session_answer(&s[i], right);
                assert_true(session_hear(&s[i], right, length) && session_ask(&s[i]));
            }
            engine_handle here = submit(prefiller, &s[i], true);
            assert_int_equal(engine_export_size(prefiller, here), 0); // not yet
            finish(prefiller);
            engine_progress progress;
            int first = -1;
            assert_int_equal(engine_poll(prefiller, here, 0, &first, 1, &progress), 1);
            assert_int_equal(progress.state, ENGINE_PREFILLED);
            size_t size;
            unsigned char *bytes = export_request(prefiller, here, &size);
            engine_request request = {.max_tokens = ANSWER};
            gv_error error = {0};
            if (engine_import(decoder, bytes, size, &request, &there[i], &error) != GV_OK)
                fail_msg("%s", error.text);
            int same = -2;
            assert_int_equal(engine_poll(decoder, there[i], 0, &same, 1, &progress), 1);
            assert_int_equal(first, same);
            free(bytes);
            engine_release(prefiller, here);
            finish(prefiller);
            engine_step(decoder, NULL, NULL); // the earlier ones go on meanwhile
        }
        finish(decoder);
        for (int i = 0; i < 4; i++) {
            assert_right(decoder, there[i], &s[i]);
            engine_release(decoder, there[i]);
            session_end(&s[i]);
        }
        unmake(prefiller);
        unmake(decoder);
    }
}

static void damaged_imports_are_refused(void **state)
{
    engine_config config = configured();
    config.graph = false;
    config.rows = 2;
    engine *e = make(&config);
    session s;
    begin(&s, 600);
    engine_handle here = submit(e, &s, true);
    finish(e);
    size_t size;
    unsigned char *bytes = export_request(e, here, &size);
    engine_request request = {.max_tokens = ANSWER};
    engine_handle handle = 0;
    // Every byte of the header and the tokens, and some of the rest, are of importance.
    for (size_t at = 0; at < size; at += at < 1024 ? 1 : 4093) {
        bytes[at] ^= 0x20;
        gv_error error = {0};
        gv_status status = engine_import(e, bytes, size, &request, &handle, &error);
        // In the header the only bytes without a meaning are the reserved ones.
        if (at < 36 || at >= 40)
            assert_true(status == GV_ERR_FORMAT || status == GV_ERR_USAGE);
        if (status == GV_OK) {
            engine_release(e, handle);
            finish(e);
        }
        bytes[at] ^= 0x20;
    }
    for (size_t cut = 0; cut < size; cut += 1 + cut / 2)
        assert_int_not_equal(engine_import(e, bytes, cut, &request, &handle, NULL), GV_OK);
    request.max_tokens = 0;
    assert_int_equal(engine_import(e, bytes, size, &request, &handle, NULL), GV_ERR_USAGE);
    // The one row that is left is taken; the next import has to wait.
    request.max_tokens = ANSWER;
    engine_handle second = 0;
    assert_int_equal(engine_import(e, bytes, size, &request, &handle, NULL), GV_OK);
    assert_int_equal(engine_import(e, bytes, size, &request, &second, NULL), GV_ERR_LIMIT);
    finish(e);
    assert_right(e, handle, &s);
    engine_release(e, handle);
    // An answer of one token ends at once.
    request.max_tokens = 1;
    assert_int_equal(engine_import(e, bytes, size, &request, &handle, NULL), GV_OK);
    engine_progress progress;
    engine_poll(e, handle, 0, NULL, 0, &progress);
    assert_int_equal(progress.state, ENGINE_ENDED_LENGTH);
    engine_release(e, handle);

    config.keys = ENGINE_KEYS_FP8;
    engine *other = make(&config);
    assert_int_equal(engine_import(other, bytes, size, &request, &handle, NULL), GV_ERR_USAGE);
    unmake(other);
    free(bytes);
    engine_release(e, here);
    session_end(&s);
    unmake(e);
}

// ---- Threads ----

struct desk {
    engine *e;
    int number;
    atomic_int notified;
    atomic_int heard_ends;
    bool right;
};

static void notify(void *user, engine_handle handle)
{
    struct desk *desk = user;
    engine_progress progress;
    bool known = engine_poll(desk->e, handle, 0, NULL, 0, &progress) >= 0;
    atomic_fetch_add(&desk->notified, 1);
    if (known && engine_ended(progress.state))
        atomic_fetch_add(&desk->heard_ends, 1);
}

static void *client(void *user)
{
    struct desk *desk = user;
    bool right = true;
    for (int i = 0; i < 3; i++) {
        session s;
        if (!session_begin(&s, 9, 10 * desk->number + i) || !session_ask(&s))
            return NULL;
        engine_request request = {.prompt = s.history.items,
                                  .prompt_count = (int)s.history.count,
                                  .max_tokens = ANSWER,
                                  .notify = notify,
                                  .user = desk};
        engine_handle handle;
        engine_progress progress = {0};
        int answer[ANSWER], count = 0;
        if (engine_submit(desk->e, &request, &handle, NULL) != GV_OK)
            return NULL;
        // Until it was told of the end: whoever only polls may see the end, and release the request, before the
        // stepping thread has come to the call.
        while (!engine_ended(progress.state) || atomic_load(&desk->heard_ends) == i) {
            engine_poll(desk->e, handle, 0, answer, ANSWER, &progress);
            sched_yield();
        }
        count = engine_poll(desk->e, handle, 0, answer, ANSWER, &progress);
        right = right && session_judge(&s, answer, count, progress.state == ENGINE_ENDED_STOP) == SESSION_RIGHT;
        engine_release(desk->e, handle);
        session_end(&s);
    }
    desk->right = right;
    return NULL;
}

static atomic_bool stop;

static void *stepper(void *user)
{
    engine *e = user;
    while (!atomic_load(&stop))
        if (engine_wait_for_work(e, 1000))
            engine_step(e, NULL, NULL);
    return NULL;
}

static void any_thread_may_submit_and_poll(void **state)
{
    enum { CLIENTS = 4 };
    engine_config config = configured();
    engine *e = make(&config);
    pthread_t threads[CLIENTS], stepping;
    struct desk desks[CLIENTS];
    memset(desks, 0, sizeof desks);
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&stepping, NULL, stepper, e), 0);
    for (int i = 0; i < CLIENTS; i++) {
        desks[i].e = e;
        desks[i].number = i;
        assert_int_equal(pthread_create(&threads[i], NULL, client, &desks[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(desks[i].right);
    }
    atomic_store(&stop, true);
    engine_wake(e);
    pthread_join(stepping, NULL);
    for (int i = 0; i < CLIENTS; i++)
        assert_true(atomic_load(&desks[i].notified) >= 3 * 13);
    unmake(e);
}

// ---- Turns ----

static turns line;
static atomic_bool had_its_turn;

static void *take_a_turn(void *user)
{
    turns_take(&line);
    atomic_store(&had_its_turn, true);
    turns_give(&line);
    return NULL;
}

static void who_gives_a_turn_back_comes_after_who_waits(void **state)
{
    pthread_t other;
    turns_begin(&line);
    atomic_store(&had_its_turn, false);
    turns_take(&line);
    assert_int_equal(pthread_create(&other, NULL, take_a_turn, NULL), 0);
    for (uint64_t next = 0; next < 2; sched_yield()) {
        pthread_mutex_lock(&line.lock);
        next = line.next;
        pthread_mutex_unlock(&line.lock);
    }
    assert_false(atomic_load(&had_its_turn));
    turns_give(&line);
    turns_take(&line);
    assert_true(atomic_load(&had_its_turn));
    turns_give(&line);
    pthread_join(other, NULL);
    turns_end(&line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_right_in_every_configuration),
        cmocka_unit_test(the_other_repair_works_too),
        cmocka_unit_test(rounds_continue_over_a_page),
        cmocka_unit_test(batches_beyond_the_largest_bucket_are_eager),
        cmocka_unit_test(words_without_tools),
        cmocka_unit_test(unusable_requests_are_refused),
        cmocka_unit_test(configurations_are_checked),
        cmocka_unit_test(cancelled_requests_give_their_pages_back),
        cmocka_unit_test(requests_wait_for_pages),
        cmocka_unit_test(requests_move_between_engines),
        cmocka_unit_test(damaged_imports_are_refused),
        cmocka_unit_test(any_thread_may_submit_and_poll),
        cmocka_unit_test(who_gives_a_turn_back_comes_after_who_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
