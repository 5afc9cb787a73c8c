// gravel-specimen run: agent sessions against an engine in this process, and how many of them went wrong.
#include "base/memory.h"
#include "specimen/commands.h"
#include "specimen/faults.h"
#include "specimen/sessions.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum { OPTION_SESSIONS = 1, OPTION_ROUNDS, OPTION_SEED, OPTION_SPLIT, OPTION_VERBOSE, OPTION_HELP, ANSWER_LIMIT = 32 };

typedef struct plan {
    engine_config engine;
    int sessions, rounds, concurrent;
    uint64_t seed;
    bool split, verbose;
} plan;

// A session at work.
typedef struct seat {
    session session;
    int number; // -1: nobody sits here
    engine_handle handle;
    engine_handle prefilling;     // with --split: in the engine that prefills
    enum session_verdict verdict; // the worst so far
} seat;

typedef struct outcome {
    int sessions[SESSION_VERDICTS]; // by their worst round
    int rounds[SESSION_VERDICTS];
} outcome;

static void print_help(void)
{
    printf("Usage: gravel-specimen run [OPTIONS]\n\n"
           "Runs agent sessions: in each round the model is asked to call a tool whose arguments are facts of the\n"
           "conversation, found through the index. The right answers are known. Prints how many sessions had a wrong "
           "one.\n\n"
           "  --sessions N           sessions (default 60)\n"
           "  --rounds N             rounds of each (default 4)\n"
           "  --seed N               of the stories (default 1)\n"
           "  --split                prefill in a second engine and hand the pages over\n"
           "  --verbose              prints each wrong answer\n"
           "%s",
           engine_options_help);
}

// One or two engines: with --split one prefills and the other decodes.
typedef struct engines {
    engine *prefill; // NULL: the other one does both
    engine *decode;
    unsigned char *bytes; // a request on its way
    size_t capacity;
} engines;

static bool ask(const engines *es, seat *s)
{
    gv_error error = {0};
    if (!session_ask(&s->session)) {
        fprintf(stderr, "gravel-specimen: no memory\n");
        return false;
    }
    engine_request request = {.prompt = s->session.history.items,
                              .prompt_count = (int)s->session.history.count,
                              .max_tokens = ANSWER_LIMIT,
                              .prefill_only = es->prefill != NULL};
    if (engine_submit(es->prefill ? es->prefill : es->decode, &request, es->prefill ? &s->prefilling : &s->handle,
                      &error) == GV_OK)
        return true;
    fprintf(stderr, "gravel-specimen: session %d: %s\n", s->number, error.text);
    return false;
}

// Hands a prefilled request over, if it is ready and there is room. False when that failed for good.
static bool hand_over(engines *es, seat *s)
{
    gv_error error = {0};
    size_t size = engine_export_size(es->prefill, s->prefilling);
    if (!size)
        return true;
    if (size > es->capacity) {
        gv_free(es->bytes);
        es->bytes = gv_malloc(size);
        es->capacity = es->bytes ? size : 0;
    }
    engine_request request = {.max_tokens = ANSWER_LIMIT};
    gv_status status = es->bytes ? engine_export(es->prefill, s->prefilling, es->bytes, es->capacity, &error)
                                 : gv_fail(&error, GV_ERR_MEMORY, "no memory for a request");
    if (status == GV_OK)
        status = engine_import(es->decode, es->bytes, size, &request, &s->handle, &error);
    if (status == GV_ERR_LIMIT)
        return true; // later
    if (status != GV_OK) {
        fprintf(stderr, "gravel-specimen: session %d: %s\n", s->number, error.text);
        return false;
    }
    engine_release(es->prefill, s->prefilling);
    s->prefilling = 0;
    return true;
}

static void print_answer(const char *label, const int *answer, int count)
{
    char text[2048];
    vocabulary_decode(answer, (size_t)count, text, sizeof text);
    printf("  %-6s ", label);
    for (const char *c = text; *c; c++)
        putchar(*c == '\n' ? ' ' : *c);
    putchar('\n');
}

// Takes an answer, if it is there. False when the session cannot go on.
static bool hear(engine *e, const plan *p, seat *s, outcome *o)
{
    static const char *const names[] = {"right", "a wrong argument", "a broken call", "no end"};
    int answer[ANSWER_LIMIT];
    engine_progress progress = {0};
    int count = engine_poll(e, s->handle, 0, answer, ANSWER_LIMIT, &progress);
    if (count < 0 || !engine_ended(progress.state))
        return true;
    engine_release(e, s->handle);
    s->handle = 0;
    if (progress.state == ENGINE_ENDED_FAILED || progress.state == ENGINE_ENDED_CANCELLED)
        return false;
    enum session_verdict verdict = session_judge(&s->session, answer, count, progress.state == ENGINE_ENDED_STOP);
    o->rounds[verdict]++;
    if (verdict > s->verdict)
        s->verdict = verdict;
    if (verdict != SESSION_RIGHT && p->verbose) {
        int right[SESSION_ANSWER], length = session_answer(&s->session, right);
        printf("session %d, round %d: %s\n", s->number, s->session.rounds, names[verdict]);
        print_answer("wanted", right, length);
        print_answer("got", answer, count);
    }
    if (session_hear(&s->session, answer, count))
        return true;
    fprintf(stderr, "gravel-specimen: no memory\n");
    return false;
}

static bool step(engine *e)
{
    gv_error error = {0};
    if (!e || engine_step(e, NULL, &error) == GV_OK)
        return true;
    fprintf(stderr, "gravel-specimen: %s\n", error.text);
    return false;
}

// All sessions, `concurrent` at a time. False when something failed.
static bool run_sessions(engines *es, const plan *p, seat *seats, outcome *o)
{
    int next = 0, seated = 0;
    for (;;) {
        for (int i = 0; i < p->concurrent; i++) {
            seat *s = &seats[i];
            if (s->prefilling && !hand_over(es, s))
                return false;
            if (s->handle && !hear(es->decode, p, s, o))
                return false;
            bool idle = s->number >= 0 && !s->handle && !s->prefilling;
            if (idle && s->session.rounds == p->rounds) {
                o->sessions[s->verdict]++;
                session_end(&s->session);
                s->number = -1;
                seated--;
                idle = false;
            }
            if (s->number < 0 && next < p->sessions) {
                s->number = next++;
                s->verdict = SESSION_RIGHT;
                seated++;
                idle = true;
                if (!session_begin(&s->session, p->seed, s->number)) {
                    fprintf(stderr, "gravel-specimen: no memory\n");
                    return false;
                }
            }
            if (idle && !ask(es, s))
                return false;
        }
        if (!seated)
            return true;
        if (!step(es->prefill) || !step(es->decode))
            return false;
    }
}

// Nothing may be held when all sessions have ended. False, with a message, when something is.
static bool all_returned(engine *e)
{
    engine_counts c = {0};
    if (!step(e)) // forgets what was released
        return false;
    if (e)
        engine_counts_now(e, &c);
    if (c.free_pages == c.pages && c.free_rows == c.rows && !c.requests && !c.transient_bytes)
        return true;
    fprintf(stderr, "gravel-specimen: lost: %d pages, %d rows, %zu requests, %zu bytes of tensors\n",
            c.pages - c.free_pages, c.rows - c.free_rows, c.requests, c.transient_bytes);
    return false;
}

static int run(const plan *p)
{
    gv_error error = {0};
    engines es = {0};
    engine_config prefill = p->engine;
    prefill.graph = false;
    seat *seats = gv_calloc((size_t)p->concurrent, sizeof *seats);
    if (!seats || engine_create(&es.decode, &p->engine, &error) != GV_OK ||
        (p->split && engine_create(&es.prefill, &prefill, &error) != GV_OK)) {
        fprintf(stderr, "gravel-specimen: %s\n", seats ? error.text : "no memory");
        engine_destroy(es.decode);
        gv_free(seats);
        return 1;
    }
    for (int i = 0; i < p->concurrent; i++)
        seats[i].number = -1;
    outcome o = {0};
    bool ok = run_sessions(&es, p, seats, &o) && all_returned(es.prefill) && all_returned(es.decode);
    engine_counts counts;
    engine_counts_now(es.decode, &counts);
    engine_destroy(es.prefill);
    engine_destroy(es.decode);
    gv_free(es.bytes);
    for (int i = 0; i < p->concurrent; i++)
        session_end(&seats[i].session);
    gv_free(seats);
    if (!ok)
        return 1;
    int wrong = p->sessions - o.sessions[SESSION_RIGHT];
    printf("%s keys, %s, overlap %s, batch %d: wrong sessions %d of %d (%.1f %%)\n",
           p->engine.keys == ENGINE_KEYS_FP8 ? "fp8" : "bf16", p->engine.graph ? "graph" : "eager",
           p->engine.overlap ? "on" : "off", p->engine.batch_limit, wrong, p->sessions, 100.0 * wrong / p->sessions);
    printf("rounds: %d right, %d with a wrong argument, %d broken, %d without an end; %llu tokens in %llu steps "
           "(%llu replays)\n",
           o.rounds[SESSION_RIGHT], o.rounds[SESSION_ARGUMENT], o.rounds[SESSION_FORM], o.rounds[SESSION_ENDLESS],
           (unsigned long long)counts.tokens, (unsigned long long)counts.steps, (unsigned long long)counts.replays);
    if (p->engine.probe)
        printf("probe: %llu searches of the index compared, %llu differ\n", (unsigned long long)counts.probes_compared,
               (unsigned long long)counts.probes_differing);
    return 0;
}

int command_run(int argc, char **argv)
{
    static const struct option options[] = {
        {"sessions", required_argument, NULL, OPTION_SESSIONS},
        {"rounds", required_argument, NULL, OPTION_ROUNDS},
        {"seed", required_argument, NULL, OPTION_SEED},
        {"split", no_argument, NULL, OPTION_SPLIT},
        {"verbose", no_argument, NULL, OPTION_VERBOSE},
        {"help", no_argument, NULL, OPTION_HELP},
        ENGINE_OPTIONS,
        {0},
    };
    plan p = {.sessions = 60, .rounds = 4, .seed = 1};
    engine_config_default(&p.engine);
    for (int code; (code = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        long long number = 0;
        bool ok = true;
        switch (code) {
        case OPTION_SESSIONS:
            ok = option_number("--sessions", optarg, 1, 10000000, &number);
            p.sessions = (int)number;
            break;
        case OPTION_ROUNDS:
            ok = option_number("--rounds", optarg, 1, 16, &number);
            p.rounds = (int)number;
            break;
        case OPTION_SEED:
            ok = option_number("--seed", optarg, 0, INT64_MAX, &number);
            p.seed = (uint64_t)number;
            break;
        case OPTION_SPLIT: p.split = true; break;
        case OPTION_VERBOSE: p.verbose = true; break;
        case OPTION_HELP: print_help(); return 0;
        default: ok = code >= ENGINE_OPTION_FIRST && engine_option(&p.engine, code, optarg); break;
        }
        if (!ok)
            return 2;
    }
    if (optind < argc) {
        fprintf(stderr, "gravel-specimen: run takes options only, not \"%s\"\n", argv[optind]);
        return 2;
    }
    // Without what it needs such a fault does nothing, and gravel's silence would look like a miss.
    if ((p.engine.faults & FAULT(LATE_TRANSFER)) && !p.split) {
        fprintf(stderr, "gravel-specimen: --fault late-transfer needs --split, and pages that are soon used again: "
                        "--pages 12\n");
        return 2;
    }
    if ((p.engine.faults & FAULT(WEAK_REFERENCE)) && !p.engine.breakable) {
        fprintf(stderr, "gravel-specimen: --fault weak-reference needs --breakable\n");
        return 2;
    }
    p.concurrent = 2 * p.engine.batch_limit;
    if (p.engine.queue_limit < p.concurrent)
        p.engine.queue_limit = p.concurrent;
    return run(&p);
}
