#include "lab/ledger.h"

#include "base/memory.h"
#include "lab/analysis.h"
#include "lab/database.h"
#include "lab/minimise.h"
#include "lab/schema.h"
#include "report/format.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

// One number of the whole product, so that gravel's locks meet no one else's in a shared database.
#define ADVISORY_LOCK "SELECT pg_advisory_xact_lock(20261130)"

struct gv_ledger {
    gv_database *database;
    gv_database *claims; // shared ledgers: holds the claim's row lock in a transaction of its own
    bool claiming;
    char *where;
    int lock; // of a SQLite ledger
};

const char *gv_kind_name(gv_kind kind)
{
    return kind == GV_KIND_RUN ? "run" : "minimise";
}

// ---- Small parts --------------------------------------------------------------------------------------------------

// Parameters are texts. Each use has a buffer of its own.
static const char *number_text(char *buffer, uint64_t number)
{
    sprintf(buffer, "%" PRIu64, number);
    return buffer;
}
#define NUMBER(value) number_text((char[24]){0}, value)

static const char *real_text(char *buffer, double number)
{
    snprintf(buffer, 32, "%.17g", number);
    return buffer;
}
#define REAL(value) real_text((char[32]){0}, value)

static const char *now_text(char *buffer)
{
    time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(buffer, 24, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return buffer;
}
#define NOW() now_text((char[24]){0})

static const char *host_text(char *buffer, size_t size)
{
    if (gethostname(buffer, size) != 0)
        snprintf(buffer, size, "unknown");
    buffer[size - 1] = '\0';
    return buffer;
}
#define HOST() host_text((char[256]){0}, 256)

#define QUERY(ledger, sql, row, context, error, ...)                               \
    gv_database_query((ledger)->database, sql, (const char *const[]){__VA_ARGS__}, \
                      sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *), row, context, error)

static uint64_t to_number(const char *text)
{
    return text ? strtoull(text, NULL, 10) : 0;
}

static gv_status take_number(void *context, const char *const *columns, size_t count)
{
    *(uint64_t *)context = to_number(columns[0]);
    return GV_OK;
}

// A copy of a column that may be null.
static char *copy(const char *text, bool *failed)
{
    char *own = text ? gv_strdup(text) : NULL;
    *failed = *failed || (text && !own);
    return own;
}

static char *replaced(const char *text, const char *mark, const char *with)
{
    gv_string out = {0};
    const char *at;
    while ((at = strstr(text, mark))) {
        gv_string_add_bytes(&out, text, (size_t)(at - text));
        gv_string_add(&out, "%s", with);
        text = at + strlen(mark);
    }
    gv_string_add(&out, "%s", text);
    if (out.failed)
        gv_string_free(&out);
    return out.text;
}

// ---- Opening ------------------------------------------------------------------------------------------------------

static gv_status run_script(gv_ledger *ledger, const char *text, const char *mark, const char *with, gv_error *error)
{
    char *script = replaced(text, mark, with);
    gv_status status = script ? gv_database_script(ledger->database, script, error)
                              : gv_fail(error, GV_ERR_MEMORY, "out of memory for the ledger");
    gv_free(script);
    return status;
}

static gv_status make_tables(gv_ledger *ledger, gv_error *error)
{
    bool server = gv_database_is_postgres(ledger->database);
    gv_status status = gv_database_begin(ledger->database, error);
    if (status != GV_OK)
        return status;
    if (server)
        status = gv_database_query(ledger->database, ADVISORY_LOCK, NULL, 0, NULL, NULL, error);
    if (status == GV_OK)
        status = run_script(ledger, gv_schema_tables, "@NUMBER@",
                            server ? gv_schema_postgres_number : gv_schema_sqlite_number, error);
    if (status == GV_OK && server)
        status = gv_database_script(ledger->database, gv_schema_postgres_function, error);
    for (size_t i = 0; status == GV_OK && gv_schema_names[i]; i++)
        status = run_script(ledger, server ? gv_schema_postgres_guard : gv_schema_sqlite_guard, "@TABLE@",
                            gv_schema_names[i], error);
    if (status == GV_OK)
        return gv_database_commit(ledger->database, error);
    gv_database_rollback(ledger->database);
    return status;
}

static gv_status has_tables(gv_ledger *ledger, bool *found, gv_error *error)
{
    uint64_t count = 0;
    const char *sql = gv_database_is_postgres(ledger->database)
                          ? "SELECT count(*) FROM pg_class WHERE relname = 'lab_event' AND pg_table_is_visible(oid)"
                          : "SELECT count(*) FROM sqlite_master WHERE name = 'lab_event'";
    gv_status status = gv_database_query(ledger->database, sql, NULL, 0, take_number, &count, error);
    *found = count > 0;
    return status;
}

gv_status gv_ledger_open(const char *where, bool create, gv_ledger **result, gv_error *error)
{
    *result = NULL;
    gv_ledger *ledger = gv_calloc(1, sizeof *ledger);
    if (!ledger || !(ledger->where = gv_strdup(where))) {
        gv_free(ledger);
        return gv_fail(error, GV_ERR_MEMORY, "out of memory for the ledger");
    }
    ledger->lock = -1;
    bool found = false;
    gv_status status = gv_database_open(where, create, &ledger->database, error);
    if (status == GV_OK)
        status = has_tables(ledger, &found, error);
    if (status == GV_OK && !found)
        status = create ? make_tables(ledger, error)
                        : gv_fail(error, GV_ERR_MISSING, "%s holds no experiment; `gravel lab run` begins one", where);
    uint64_t version = 0;
    if (status == GV_OK)
        status = gv_database_query(ledger->database, "SELECT max(version) FROM lab_schema", NULL, 0, take_number,
                                   &version, error);
    if (status == GV_OK && version != GV_SCHEMA_VERSION)
        status = gv_fail(error, GV_ERR_VERSION,
                         "the ledger has version %" PRIu64 " and this gravel reads version %d; use "
                         "the gravel that made it, or another ledger",
                         version, GV_SCHEMA_VERSION);
    if (status != GV_OK) {
        gv_ledger_close(ledger);
        return status;
    }
    *result = ledger;
    return GV_OK;
}

void gv_ledger_close(gv_ledger *ledger)
{
    if (!ledger)
        return;
    gv_ledger_release(ledger);
    gv_database_close(ledger->claims);
    gv_database_close(ledger->database);
    if (ledger->lock >= 0)
        close(ledger->lock);
    gv_free(ledger->where);
    gv_free(ledger);
}

bool gv_ledger_shared(const gv_ledger *ledger)
{
    return gv_database_is_postgres(ledger->database);
}

gv_status gv_ledger_lock(gv_ledger *ledger, gv_error *error)
{
    if (gv_ledger_shared(ledger) || ledger->lock >= 0)
        return GV_OK;
    // A file beside the ledger: SQLite's own locks are taken and dropped with each transaction. The kernel drops this
    // one with the process, however it ends.
    gv_string path = {0};
    gv_string_add(&path, "%s-lock", ledger->where);
    int file = path.failed ? -1 : open(path.text, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    gv_status status = GV_OK;
    if (file < 0)
        status = gv_fail(error, GV_ERR_IO, "%s cannot be opened: %s", gv_string_text(&path), strerror(errno));
    else if (flock(file, LOCK_EX | LOCK_NB) != 0)
        status = gv_fail(error, GV_ERR_LIMIT,
                         "another gravel lab is running trials of %s; wait for it, or follow it with "
                         "`gravel lab status`",
                         ledger->where);
    if (status == GV_OK)
        ledger->lock = file;
    else if (file >= 0)
        close(file);
    gv_string_free(&path);
    return status;
}

// ---- Experiments --------------------------------------------------------------------------------------------------

typedef struct experiment_reader {
    gv_experiment *experiment;
    bool found, failed;
} experiment_reader;

static gv_status take_experiment(void *context, const char *const *columns, size_t count)
{
    experiment_reader *reader = context;
    gv_experiment *experiment = reader->experiment;
    reader->found = true;
    experiment->id = to_number(columns[0]);
    experiment->kind = strcmp(columns[1], "run") == 0 ? GV_KIND_RUN : GV_KIND_MINIMISE;
    experiment->name = copy(columns[2], &reader->failed);
    experiment->path = copy(columns[3], &reader->failed);
    experiment->text = copy(columns[4], &reader->failed);
    experiment->begun = copy(columns[5], &reader->failed);
    experiment->ended = copy(columns[6], &reader->failed);
    return GV_OK;
}

gv_status gv_ledger_find(gv_ledger *ledger, const gv_plan *plan, int kind, gv_experiment *experiment, gv_error *error)
{
    *experiment = (gv_experiment){0};
    experiment_reader reader = {.experiment = experiment};
    char digest[GV_SHA256_TEXT] = "";
    if (plan)
        gv_sha256_text(plan->text, plan->length, digest);
    gv_status status = QUERY(ledger,
                             "SELECT e.id, e.kind, e.name, e.path, e.plan, e.begun,"
                             " (SELECT text FROM lab_event v WHERE v.experiment = e.id AND v.what = 'ended'"
                             "  ORDER BY number LIMIT 1)"
                             " FROM lab_experiment e WHERE (e.plan_sha256 = $1 OR $1 = '') AND (e.kind = $2 OR $2 = '')"
                             " ORDER BY e.id DESC LIMIT 1",
                             take_experiment, &reader, error, digest, kind < 0 ? "" : gv_kind_name((gv_kind)kind));
    if (status == GV_OK && reader.failed) {
        gv_experiment_free(experiment);
        status = gv_fail(error, GV_ERR_MEMORY, "out of memory for the experiment");
    }
    if (status == GV_OK && !reader.found)
        status = gv_fail(error, GV_ERR_MISSING,
                         plan ? "%s holds no experiment of this plan; the plan may have changed since "
                                "it was run, and a changed plan is a new experiment"
                              : "%s holds no experiment",
                         ledger->where);
    return status;
}

void gv_experiment_free(gv_experiment *experiment)
{
    gv_free(experiment->name);
    gv_free(experiment->path);
    gv_free(experiment->text);
    gv_free(experiment->begun);
    gv_free(experiment->ended);
    *experiment = (gv_experiment){0};
}

gv_status gv_ledger_begin(gv_ledger *ledger, const gv_plan *plan, gv_kind kind, gv_experiment *experiment,
                          bool *existed, gv_error *error)
{
    *existed = true;
    gv_status status = gv_ledger_find(ledger, plan, (int)kind, experiment, error);
    if (status != GV_ERR_MISSING)
        return status;
    char digest[GV_SHA256_TEXT];
    gv_sha256_text(plan->text, plan->length, digest);
    status = gv_database_begin(ledger->database, error);
    if (status != GV_OK)
        return status;
    if (gv_ledger_shared(ledger))
        status = gv_database_query(ledger->database, ADVISORY_LOCK, NULL, 0, NULL, NULL, error);
    // Someone else may have begun it since: their row stays.
    if (status == GV_OK)
        status = QUERY(ledger,
                       "INSERT INTO lab_experiment(id, kind, plan_sha256, name, path, plan, begun, host, version)"
                       " SELECT coalesce(max(id), 0) + 1, $1, $2, $3, $4, $5, $6, $7, $8 FROM lab_experiment WHERE true"
                       " ON CONFLICT DO NOTHING",
                       NULL, NULL, error, gv_kind_name(kind), digest, plan->name, plan->path, plan->text, NOW(), HOST(),
                       GRAVEL_VERSION);
    if (status == GV_OK)
        status = gv_database_commit(ledger->database, error);
    else
        gv_database_rollback(ledger->database);
    *existed = false;
    return status == GV_OK ? gv_ledger_find(ledger, plan, (int)kind, experiment, error) : status;
}

gv_status gv_ledger_event(gv_ledger *ledger, uint64_t experiment, const char *what, const char *text, gv_error *error)
{
    return QUERY(ledger, "INSERT INTO lab_event(experiment, at, host, what, text) VALUES($1, $2, $3, $4, $5)", NULL,
                 NULL, error, NUMBER(experiment), NOW(), HOST(), what, text);
}

typedef struct event_reader {
    void (*each)(void *context, const char *text);
    void *context;
} event_reader;

static gv_status take_event(void *context, const char *const *columns, size_t count)
{
    const event_reader *reader = context;
    reader->each(reader->context, columns[0]);
    return GV_OK;
}

gv_status gv_ledger_events(gv_ledger *ledger, uint64_t experiment, const char *what,
                           void (*each)(void *context, const char *text), void *context, gv_error *error)
{
    event_reader reader = {each, context};
    return QUERY(ledger, "SELECT text FROM lab_event WHERE experiment = $1 AND what = $2 ORDER BY number", take_event,
                 &reader, error, NUMBER(experiment), what);
}

// ---- Trials -------------------------------------------------------------------------------------------------------

static gv_status take_trial(void *context, const char *const *columns, size_t count)
{
    gv_trial trial = {.number = to_number(columns[0]),
                      .block = to_number(columns[1]),
                      .subject = (char *)columns[2],
                      .seed = to_number(columns[3]),
                      .outcome = columns[4] ? gv_outcome_named(columns[4]) : GV_OUTCOME_PENDING,
                      .sessions = to_number(columns[5]),
                      .corrupt = to_number(columns[6]),
                      .failed = to_number(columns[7]),
                      .attempts = to_number(columns[8]),
                      .seconds = columns[9] ? strtod(columns[9], NULL) : 0};
    return gv_trials_add(context, &trial, NULL);
}

gv_status gv_ledger_trials(gv_ledger *ledger, uint64_t experiment, gv_trials *trials, gv_error *error)
{
    *trials = (gv_trials){0};
    gv_status status =
        QUERY(ledger,
              "SELECT t.number, t.block, t.subject, t.seed, a.outcome, a.sessions, a.corrupt, a.failed,"
              " (SELECT count(*) FROM lab_attempt n WHERE n.experiment = t.experiment AND n.trial = t.number),"
              " (SELECT sum(n.seconds) FROM lab_attempt n WHERE n.experiment = t.experiment"
              "  AND n.trial = t.number)"
              " FROM lab_trial t LEFT JOIN lab_attempt a"
              "  ON a.experiment = t.experiment AND a.trial = t.number AND a.final = 1"
              " WHERE t.experiment = $1 ORDER BY t.number",
              take_trial, trials, error, NUMBER(experiment));
    if (status != GV_OK) {
        gv_trials_free(trials);
        if (status == GV_ERR_MEMORY)
            gv_fail(error, status, "out of memory for the trials");
    }
    return status;
}

static gv_status insert_trials(gv_ledger *ledger, uint64_t experiment, const gv_trials *next, gv_error *error)
{
    gv_status status = GV_OK;
    for (size_t i = 0; status == GV_OK && i < next->count; i++) {
        const gv_trial *trial = &next->items[i];
        status = QUERY(ledger,
                       "INSERT INTO lab_trial(experiment, number, block, subject, seed, planned)"
                       " VALUES($1, $2, $3, $4, $5, $6)",
                       NULL, NULL, error, NUMBER(experiment), NUMBER(trial->number), NUMBER(trial->block),
                       trial->subject, NUMBER(trial->seed), NOW());
    }
    return status;
}

// ---- Planning -----------------------------------------------------------------------------------------------------

typedef struct planner {
    gv_ledger *ledger;
    const gv_experiment *experiment;
    const gv_plan *plan;
    uint64_t decisions; // recorded so far
} planner;

static gv_status add_decision(planner *p, const char *subject, const char *verdict, uint64_t sessions, uint64_t corrupt,
                              double wrong, gv_error *error)
{
    p->decisions++;
    return QUERY(p->ledger,
                 "INSERT INTO lab_decision(experiment, number, subject, verdict, sessions, corrupt, error, decided)"
                 " VALUES($1, $2, $3, $4, $5, $6, $7, $8)",
                 NULL, NULL, error, NUMBER(p->experiment->id), NUMBER(p->decisions), subject, verdict, NUMBER(sessions),
                 NUMBER(corrupt), REAL(wrong), NOW());
}

// Verdicts of cells that were reached since the last time.
static gv_status record_verdicts(planner *p, const gv_trials *trials, gv_error *error)
{
    gv_analysis *analysis;
    gv_status status = gv_analyse(p->plan, trials, &analysis, error);
    if (status != GV_OK)
        return status;
    gv_sprt test = gv_cell_test(p->plan);
    for (size_t i = 0; status == GV_OK && i < analysis->cell_count; i++) {
        const gv_cell_result *cell = &analysis->cells[i];
        if (cell->verdict == GV_UNDECIDED)
            continue;
        char *name = gv_plan_cell_name(p->plan, &cell->cell);
        uint64_t known = 0;
        status = name ? QUERY(p->ledger, "SELECT count(*) FROM lab_decision WHERE experiment = $1 AND subject = $2",
                              take_number, &known, error, NUMBER(p->experiment->id), name)
                      : gv_fail(error, GV_ERR_MEMORY, "out of memory");
        if (status == GV_OK && known == 0)
            status = add_decision(p, name, gv_cell_verdict_name(cell->verdict), cell->at_sessions, cell->at_corrupt,
                                  cell->verdict == GV_LOW ? test.wrong_low : test.wrong_high, error);
        gv_free(name);
    }
    gv_analysis_free(analysis);
    return status;
}

static gv_status next_of_run(planner *p, const gv_trials *trials, gv_step *step, gv_error *error)
{
    gv_status status = gv_run_next(p->plan, trials, step, error);
    // Under the fixed rule verdicts come at the end.
    if (status == GV_OK && (step->ended || p->plan->stop.sequential) && !gv_trials_pending(trials) && trials->count)
        status = record_verdicts(p, trials, error);
    return status;
}

static gv_status next_of_search(planner *p, const gv_trials *trials, gv_step *step, gv_error *error)
{
    gv_search *search;
    gv_status status = gv_search_follow(p->plan, trials, &search, error);
    if (status != GV_OK)
        return status;
    // The last one is still open while the search is.
    size_t answered = search->decision_count - (search->end == GV_SEARCH_OPEN && search->decision_count > 0);
    for (size_t i = (size_t)p->decisions; status == GV_OK && i < answered; i++) {
        const gv_decision *decision = &search->decisions[i];
        status = add_decision(p, decision->name, gv_answer_name(decision->answer), decision->sessions,
                              decision->corrupt, decision->error, error);
    }
    *step = search->step;
    search->step.next = (gv_trials){0};
    gv_search_free(search);
    return status;
}

gv_status gv_ledger_advance(gv_ledger *ledger, const gv_experiment *experiment, const gv_plan *plan, bool *ended,
                            gv_error *error)
{
    *ended = false;
    planner p = {.ledger = ledger, .experiment = experiment, .plan = plan};
    gv_trials trials = {0};
    gv_step step = {0};
    uint64_t finished = 0;
    gv_status status = gv_database_begin(ledger->database, error);
    if (status != GV_OK)
        return status;
    if (gv_ledger_shared(ledger))
        status = gv_database_query(ledger->database, ADVISORY_LOCK, NULL, 0, NULL, NULL, error);
    if (status == GV_OK)
        status = QUERY(ledger, "SELECT count(*) FROM lab_event WHERE experiment = $1 AND what = 'ended'", take_number,
                       &finished, error, NUMBER(experiment->id));
    if (status == GV_OK)
        status = QUERY(ledger, "SELECT count(*) FROM lab_decision WHERE experiment = $1", take_number, &p.decisions,
                       error, NUMBER(experiment->id));
    if (status == GV_OK && !finished)
        status = gv_ledger_trials(ledger, experiment->id, &trials, error);
    if (status == GV_OK && !finished)
        status = experiment->kind == GV_KIND_RUN ? next_of_run(&p, &trials, &step, error)
                                                 : next_of_search(&p, &trials, &step, error);
    if (status == GV_OK)
        status = insert_trials(ledger, experiment->id, &step.next, error);
    if (status == GV_OK && step.ended)
        status = gv_ledger_event(ledger, experiment->id, "ended", step.why, error);
    *ended = finished || step.ended;
    gv_trials_free(&trials);
    gv_trials_free(&step.next);
    if (status == GV_OK)
        return gv_database_commit(ledger->database, error);
    gv_database_rollback(ledger->database);
    return status;
}

// ---- Claims -------------------------------------------------------------------------------------------------------

static gv_status take_claimed(void *context, const char *const *columns, size_t count)
{
    gv_trial *trial = context;
    trial->number = to_number(columns[0]);
    trial->block = to_number(columns[1]);
    trial->seed = to_number(columns[3]);
    trial->subject = gv_strdup(columns[2]);
    return trial->subject ? GV_OK : GV_ERR_MEMORY;
}

#define PENDING                                                                                               \
    "SELECT t.number, t.block, t.subject, t.seed FROM lab_trial t WHERE t.experiment = $1 AND NOT EXISTS"     \
    " (SELECT 1 FROM lab_attempt a WHERE a.experiment = t.experiment AND a.trial = t.number AND a.final = 1)" \
    " ORDER BY t.number LIMIT 1"

static gv_status query_trial(gv_database *database, const char *sql, uint64_t experiment, gv_trial *trial,
                             gv_error *error)
{
    const char *parameters[] = {NUMBER(experiment)};
    *trial = (gv_trial){0};
    return gv_database_query(database, sql, parameters, 1, take_claimed, trial, error);
}

// The trial stays locked by this connection's open transaction: when the worker dies, the server rolls it back and
// another worker gets the trial.
static gv_status claim_shared(gv_ledger *ledger, uint64_t experiment, gv_trial *trial, gv_error *error)
{
    gv_status status = ledger->claims ? GV_OK : gv_database_open(ledger->where, false, &ledger->claims, error);
    while (status == GV_OK) {
        status = gv_database_begin(ledger->claims, error);
        if (status != GV_OK)
            break;
        ledger->claiming = true;
        status = query_trial(ledger->claims, PENDING " FOR NO KEY UPDATE OF t SKIP LOCKED", experiment, trial, error);
        if (status != GV_OK || !trial->number)
            break;
        // That statement began before it had the lock. Another worker may have ended the trial in between, which only a
        // statement that begins now is sure to see.
        uint64_t final = 0;
        const char *parameters[] = {NUMBER(experiment), NUMBER(trial->number)};
        status = gv_database_query(
            ledger->claims, "SELECT count(*) FROM lab_attempt WHERE experiment = $1 AND trial = $2 AND final = 1",
            parameters, 2, take_number, &final, error);
        if (status != GV_OK || !final)
            break;
        gv_free(trial->subject);
        *trial = (gv_trial){0};
        gv_ledger_release(ledger);
    }
    return status;
}

gv_status gv_ledger_claim(gv_ledger *ledger, uint64_t experiment, gv_trial *trial, bool *claimed, gv_error *error)
{
    gv_status status = gv_ledger_shared(ledger) ? claim_shared(ledger, experiment, trial, error)
                                                : query_trial(ledger->database, PENDING, experiment, trial, error);
    uint64_t attempts = 0;
    *claimed = status == GV_OK && trial->number;
    if (*claimed)
        status = QUERY(ledger, "SELECT count(*) FROM lab_attempt WHERE experiment = $1 AND trial = $2", take_number,
                       &attempts, error, NUMBER(experiment), NUMBER(trial->number));
    trial->attempts = attempts;
    if (status != GV_OK || !*claimed) {
        gv_ledger_release(ledger);
        gv_free(trial->subject);
        *trial = (gv_trial){0};
        *claimed = false;
    }
    return status;
}

void gv_ledger_release(gv_ledger *ledger)
{
    if (ledger->claiming)
        gv_database_rollback(ledger->claims);
    ledger->claiming = false;
}

// ---- Attempts -----------------------------------------------------------------------------------------------------

static gv_status insert_manifests(gv_ledger *ledger, const char *experiment, const char *trial, const char *number,
                                  const gv_attempt *attempt, gv_error *error)
{
    gv_status status = GV_OK;
    for (int i = 0; status == GV_OK && i < GV_STAGE_COUNT; i++) {
        char digest[GV_SHA256_TEXT];
        const char *text = attempt->manifests[i];
        if (!text)
            continue;
        gv_sha256_text(text, strlen(text), digest);
        status = QUERY(ledger, "INSERT INTO lab_manifest(sha256, manifest) VALUES($1, $2) ON CONFLICT DO NOTHING", NULL,
                       NULL, error, digest, text);
        if (status == GV_OK)
            status = QUERY(ledger,
                           "INSERT INTO lab_attempt_manifest(experiment, trial, attempt, stage, sha256)"
                           " VALUES($1, $2, $3, $4, $5)",
                           NULL, NULL, error, experiment, trial, number, gv_stage_name((gv_stage)i), digest);
    }
    return status;
}

static gv_status insert_attempt(gv_ledger *ledger, const char *experiment, const gv_job *job, const gv_attempt *attempt,
                                bool final, gv_error *error)
{
    const char *trial = NUMBER(job->trial), *number = NUMBER(job->attempt);
    bool counted = attempt->outcome == GV_OUTCOME_COUNTED;
    gv_status status = QUERY(
        ledger,
        "INSERT INTO lab_attempt(experiment, trial, attempt, outcome, reason, log_tail, sessions, corrupt, failed,"
        " final, seconds, start_seconds, ended, host, folder)"
        " VALUES($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
        NULL, NULL, error, experiment, trial, number, gv_outcome_name(attempt->outcome),
        attempt->reason[0] ? attempt->reason : NULL, attempt->tail, NUMBER(counted ? attempt->judged : 0),
        NUMBER(counted ? attempt->counted.corrupt : 0), NUMBER(attempt->counted.failed + attempt->counted.unsure),
        final ? "1" : "0", REAL(attempt->seconds), REAL(attempt->start_seconds), NOW(), HOST(), job->folder);
    for (size_t i = 0; status == GV_OK && i < attempt->counted.verdict_count; i++)
        status = QUERY(
            ledger, "INSERT INTO lab_session(experiment, trial, attempt, number, verdict) VALUES($1, $2, $3, $4, $5)",
            NULL, NULL, error, experiment, trial, number, NUMBER(i + 1), attempt->counted.verdicts[i]);
    if (status == GV_OK)
        status = insert_manifests(ledger, experiment, trial, number, attempt, error);
    return status;
}

gv_status gv_ledger_record(gv_ledger *ledger, uint64_t experiment, const gv_job *job, const gv_attempt *attempt,
                           bool final, bool *kept, gv_error *error)
{
    const char *id = NUMBER(experiment);
    uint64_t known = 0;
    *kept = true;
    gv_status status = gv_database_begin(ledger->database, error);
    if (status != GV_OK)
        return status;
    if (gv_ledger_shared(ledger))
        status = gv_database_query(ledger->database, ADVISORY_LOCK, NULL, 0, NULL, NULL, error);
    // A worker that lost its claim with its connection, and was slower than the next one.
    if (status == GV_OK)
        status = QUERY(
            ledger,
            "SELECT count(*) FROM lab_attempt WHERE experiment = $1 AND trial = $2 AND (attempt = $3 OR final = 1)",
            take_number, &known, error, id, NUMBER(job->trial), NUMBER(job->attempt));
    if (status == GV_OK && known == 0)
        status = insert_attempt(ledger, id, job, attempt, final, error);
    *kept = known == 0;
    if (status == GV_OK)
        return gv_database_commit(ledger->database, error);
    gv_database_rollback(ledger->database);
    return status;
}

gv_status gv_ledger_totals(gv_ledger *ledger, uint64_t experiment, uint64_t *counted, uint64_t *uncounted,
                           gv_error *error)
{
    *counted = *uncounted = 0;
    gv_status status = QUERY(ledger, "SELECT count(*) FROM lab_attempt WHERE experiment = $1 AND outcome = 'counted'",
                             take_number, counted, error, NUMBER(experiment));
    if (status == GV_OK)
        status = QUERY(ledger, "SELECT count(*) FROM lab_attempt WHERE experiment = $1 AND outcome <> 'counted'",
                       take_number, uncounted, error, NUMBER(experiment));
    return status;
}

static gv_status take_attempt(void *context, const char *const *columns, size_t count)
{
    gv_attempt_rows *rows = context;
    bool failed = !GV_GROW(rows->items, rows->capacity, rows->count + 1);
    if (failed)
        return GV_ERR_MEMORY;
    gv_attempt_row *row = &rows->items[rows->count++];
    *row = (gv_attempt_row){.trial = to_number(columns[0]),
                            .attempt = to_number(columns[1]),
                            .subject = copy(columns[2], &failed),
                            .outcome = copy(columns[3], &failed),
                            .reason = copy(columns[4], &failed),
                            .tail = copy(columns[5], &failed),
                            .sessions = to_number(columns[6]),
                            .corrupt = to_number(columns[7]),
                            .failed = to_number(columns[8]),
                            .final = to_number(columns[9]) == 1,
                            .seconds = strtod(columns[10], NULL),
                            .start_seconds = strtod(columns[11], NULL),
                            .folder = copy(columns[12], &failed),
                            .host = copy(columns[13], &failed)};
    return failed ? GV_ERR_MEMORY : GV_OK;
}

gv_status gv_ledger_attempts(gv_ledger *ledger, uint64_t experiment, gv_attempt_rows *rows, gv_error *error)
{
    *rows = (gv_attempt_rows){0};
    gv_status status =
        QUERY(ledger,
              "SELECT a.trial, a.attempt, t.subject, a.outcome, a.reason, a.log_tail, a.sessions, a.corrupt,"
              " a.failed, a.final, a.seconds, a.start_seconds, a.folder, a.host"
              " FROM lab_attempt a JOIN lab_trial t ON t.experiment = a.experiment AND t.number = a.trial"
              " WHERE a.experiment = $1 ORDER BY a.trial, a.attempt",
              take_attempt, rows, error, NUMBER(experiment));
    if (status != GV_OK) {
        gv_attempt_rows_free(rows);
        if (status == GV_ERR_MEMORY)
            gv_fail(error, status, "out of memory for the attempts");
    }
    return status;
}

void gv_attempt_rows_free(gv_attempt_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        gv_attempt_row *row = &rows->items[i];
        char *texts[] = {row->subject, row->outcome, row->reason, row->tail, row->folder, row->host};
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
            gv_free(texts[k]);
    }
    gv_free(rows->items);
    *rows = (gv_attempt_rows){0};
}

typedef struct manifest_reader {
    gv_status (*each)(void *context, const char *subject, uint64_t trial, const char *manifest);
    void *context;
} manifest_reader;

static gv_status take_manifest(void *context, const char *const *columns, size_t count)
{
    const manifest_reader *reader = context;
    return reader->each(reader->context, columns[0], to_number(columns[1]), columns[2]);
}

gv_status gv_ledger_manifests(gv_ledger *ledger, uint64_t experiment,
                              gv_status (*each)(void *context, const char *subject, uint64_t trial,
                                                const char *manifest),
                              void *context, gv_error *error)
{
    manifest_reader reader = {each, context};
    return QUERY(ledger,
                 "SELECT t.subject, t.number, m.manifest FROM lab_trial t"
                 " JOIN lab_attempt a ON a.experiment = t.experiment AND a.trial = t.number AND a.final = 1"
                 "  AND a.outcome = 'counted'"
                 " JOIN lab_attempt_manifest s ON s.experiment = a.experiment AND s.trial = a.trial"
                 "  AND s.attempt = a.attempt AND s.stage = 'started'"
                 " JOIN lab_manifest m ON m.sha256 = s.sha256 WHERE t.experiment = $1 ORDER BY t.number",
                 take_manifest, &reader, error, NUMBER(experiment));
}
