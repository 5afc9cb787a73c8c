#include "lab/worker.h"

#include "base/memory.h"
#include "lab/minimise.h"
#include "lab/patch.h"
#include "lab/tree.h"
#include "report/format.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- Signals ------------------------------------------------------------------------------------------------------

static int wake_write = -1;

static void on_signal(int number)
{
    int saved = errno;
    // Never read: it stays readable for everyone who asks.
    ssize_t written = write(wake_write, "", 1);
    (void)written;
    signal(number, SIG_DFL);
    errno = saved;
}

int gv_work_signals(gv_error *error)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        gv_fail(error, GV_ERR_IO, "no pipe for signals: %s", strerror(errno));
        return -1;
    }
    wake_write = ends[1];
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    return ends[0];
}

static bool awake(int wake, int milliseconds)
{
    struct pollfd wait = {.fd = wake, .events = POLLIN};
    return poll(&wait, 1, milliseconds) > 0;
}

// ---- Subjects -----------------------------------------------------------------------------------------------------

static gv_status find_cell(const gv_plan *plan, const char *subject, gv_cell *cell, gv_error *error)
{
    for (size_t c = 0; c < plan->design.cell_count; c++) {
        char *name = gv_plan_cell_name(plan, &plan->design.cells[c]);
        if (!name)
            return gv_fail(error, GV_ERR_MEMORY, "out of memory");
        bool same = strcmp(name, subject) == 0;
        gv_free(name);
        if (same) {
            *cell = plan->design.cells[c];
            return GV_OK;
        }
    }
    return gv_fail(error, GV_ERR_FORMAT, "the plan has no cell \"%s\"; the ledger belongs to another plan", subject);
}

gv_status gv_subject_changes(const gv_plan *plan, gv_kind kind, const char *subject, gv_cell *cell, gv_change **changes,
                             size_t *count, gv_error *error)
{
    gv_status status = GV_OK;
    *count = 0;
    if (kind == GV_KIND_RUN)
        status = find_cell(plan, subject, cell, error);
    else
        *cell = plan->minimise.cell;
    for (size_t f = 0; status == GV_OK && f < plan->factor_count; f++)
        changes[(*count)++] = &plan->factors[f].levels[cell->level[f]];
    if (status != GV_OK || kind == GV_KIND_RUN)
        return status;
    bool *in = gv_calloc(plan->minimise.count, sizeof *in);
    if (!in)
        return gv_fail(error, GV_ERR_MEMORY, "out of memory");
    if (!gv_set_read(subject, in, plan->minimise.count))
        status = gv_fail(error, GV_ERR_FORMAT,
                         "the plan has no set of changes \"%s\"; the ledger belongs to another plan", subject);
    for (size_t i = 0; status == GV_OK && i < plan->minimise.count; i++) {
        if (in[i])
            changes[(*count)++] = &plan->minimise.changes[i];
    }
    gv_free(in);
    return status;
}

// ---- What an earlier gravel left ----------------------------------------------------------------------------------

static void boot_id(char *text, size_t size)
{
    char *whole = NULL;
    text[0] = '\0';
    if (gv_read_whole("/proc/sys/kernel/random/boot_id", 4096, &whole, NULL, NULL) == GV_OK)
        snprintf(text, size, "%.*s", (int)strcspn(whole, "\n"), whole);
    gv_free(whole);
}

static void end_keeper(void *context, const char *text)
{
    int pid = 0;
    unsigned long long start = 0;
    char boot[64] = "";
    if (sscanf(text, "pid %d start %llu boot %63s", &pid, &start, boot) == 3 && strcmp(boot, context) == 0)
        gv_keeper_end((pid_t)pid, start);
}

// ---- One trial ----------------------------------------------------------------------------------------------------

typedef struct worker {
    const gv_work *work;
    int wake;
    gv_status status; // of an event that could not be written
    gv_error *error;
    const gv_trial *trial;
    uint64_t done;  // trials of this process
    char last[512]; // why the last attempt had no counts
} worker;

// Written before the program does anything: whoever comes after a kill finds what to wait for.
static void note_keeper(void *context, pid_t keeper, uint64_t start)
{
    worker *w = context;
    char boot[64], text[160];
    boot_id(boot, sizeof boot);
    snprintf(text, sizeof text, "pid %d start %" PRIu64 " boot %s", (int)keeper, start, boot);
    if (w->status == GV_OK)
        w->status = gv_ledger_event(w->work->ledger, w->work->experiment->id, "keeper", text, w->error);
}

static void tell(void *context, const char *what)
{
    const worker *w = context;
    if (w->work->progress && isatty(fileno(w->work->progress)))
        fprintf(w->work->progress, "\r\033[K  trial %" PRIu64 ": %s ...", w->trial->number, what);
}

static void tell_outcome(const worker *w, const char *subject, const gv_attempt *attempt, bool final)
{
    FILE *out = w->work->progress;
    if (!out)
        return;
    char *set = w->work->experiment->kind == GV_KIND_MINIMISE ? gv_set_text(w->work->plan, subject) : NULL;
    fprintf(out, isatty(fileno(out)) ? "\r\033[K" : "");
    fprintf(out, "trial %" PRIu64 " (%s): ", w->trial->number, set ? set : subject);
    gv_free(set);
    if (attempt->outcome == GV_OUTCOME_COUNTED)
        fprintf(out, "%" PRIu64 " of %" PRIu64 " sessions corrupt, %.1f s\n", attempt->counted.corrupt, attempt->judged,
                attempt->seconds);
    else
        fprintf(out, "%s: %s%s\n", gv_outcome_name(attempt->outcome), attempt->reason,
                final ? "" : "; it is tried again");
    fflush(out);
}

static char *attempt_folder(const worker *w, uint64_t attempt)
{
    gv_string path = {0};
    gv_string_add(&path, "%s/%s-%06" PRIu64 "-%" PRIu64, w->work->folder, gv_kind_name(w->work->experiment->kind),
                  w->trial->number, attempt);
    if (path.failed)
        gv_string_free(&path);
    return path.text;
}

// Attempts until one ends the trial. `*interrupted` when a signal came first.
static gv_status run_trial(worker *w, gv_trial *trial, bool *interrupted)
{
    const gv_work *work = w->work;
    const gv_plan *plan = work->plan;
    gv_change **changes = gv_calloc(GV_LAB_MOST_FACTORS + GV_LAB_MOST_CHANGES, sizeof(gv_change *));
    gv_cell cell = {{0}};
    size_t count = 0;
    gv_status status =
        changes ? gv_subject_changes(plan, work->experiment->kind, trial->subject, &cell, changes, &count, w->error)
                : gv_fail(w->error, GV_ERR_MEMORY, "out of memory");
    bool final = false;
    w->trial = trial;
    *interrupted = false;
    while (status == GV_OK && !final && !*interrupted) {
        gv_job job = {.plan = plan,
                      .changes = changes,
                      .change_count = count,
                      .cell = &cell,
                      .subject = trial->subject,
                      .trial = trial->number,
                      .attempt = trial->attempts + 1,
                      .block = trial->block,
                      .seed = trial->seed,
                      .gravel = work->gravel,
                      .wake = w->wake,
                      .started = note_keeper,
                      .say = tell,
                      .context = w};
        gv_attempt attempt;
        char *folder = attempt_folder(w, job.attempt);
        job.folder = folder;
        status = folder ? gv_attempt_run(&job, &attempt, w->error) : gv_fail(w->error, GV_ERR_MEMORY, "out of memory");
        if (status == GV_OK && w->status != GV_OK)
            status = w->status;
        if (status == GV_OK && attempt.interrupted) {
            *interrupted = true;
        } else if (status == GV_OK) {
            bool kept = true;
            final = attempt.outcome == GV_OUTCOME_COUNTED || attempt.permanent || job.attempt > plan->retries;
            status = gv_ledger_record(work->ledger, work->experiment->id, &job, &attempt, final, &kept, w->error);
            if (status == GV_OK && kept)
                tell_outcome(w, trial->subject, &attempt, final);
            snprintf(w->last, sizeof w->last, "%s", attempt.reason);
            trial->attempts++;
            final = final || !kept;
        }
        if (folder && status != GV_ERR_MEMORY)
            gv_attempt_free(&attempt);
        gv_free(folder);
    }
    gv_free(changes);
    return status;
}

// A plan whose service never works should not take its start time-out hundreds of times to say so. Stops the run, which
// can be resumed once the cause is mended.
static gv_status check_that_it_works(worker *w)
{
    enum { MOST_FAILURES = 5 };
    uint64_t counted, uncounted;
    gv_status status = gv_ledger_totals(w->work->ledger, w->work->experiment->id, &counted, &uncounted, w->error);
    if (status != GV_OK || counted || uncounted < MOST_FAILURES || w->done < 2)
        return status;
    return gv_fail(w->error, GV_ERR_MISSING,
                   "%" PRIu64 " attempts were made and none had counts; the last one: %s. Mend it and "
                   "`gravel lab resume`; `gravel lab report` shows the logs",
                   uncounted, w->last);
}

// ---- The loop -----------------------------------------------------------------------------------------------------

gv_status gv_work_local(const gv_work *work, gv_work_end *end, gv_error *error)
{
    worker w = {.work = work, .error = error};
    *end = GV_WORK_ENDED;
    w.wake = gv_work_signals(error);
    if (w.wake < 0)
        return GV_ERR_IO;
    gv_status status = gv_make_folder(work->folder, error);
    // Only where no one else can have keepers: those of other workers of a shared ledger are at work.
    char boot[64];
    boot_id(boot, sizeof boot);
    if (status == GV_OK && !gv_ledger_shared(work->ledger))
        status = gv_ledger_events(work->ledger, work->experiment->id, "keeper", end_keeper, boot, error);
    while (status == GV_OK) {
        bool ended = false, claimed = false, interrupted = awake(w.wake, 0);
        gv_trial trial = {0};
        if (!interrupted)
            status = gv_ledger_advance(work->ledger, work->experiment, work->plan, &ended, error);
        if (status != GV_OK || ended)
            break;
        if (!interrupted)
            status = gv_ledger_claim(work->ledger, work->experiment->id, &trial, &claimed, error);
        if (status == GV_OK && claimed) {
            status = run_trial(&w, &trial, &interrupted);
            w.done++;
            if (status == GV_OK && !interrupted)
                status = check_that_it_works(&w);
        }
        gv_ledger_release(work->ledger);
        gv_free(trial.subject);
        if (status == GV_OK && !claimed && !interrupted) {
            // Others have what there is to do.
            if (work->once) {
                *end = GV_WORK_IDLE;
                return GV_OK;
            }
            interrupted = awake(w.wake, 500);
        }
        if (status == GV_OK && interrupted) {
            *end = GV_WORK_INTERRUPTED;
            return gv_ledger_event(work->ledger, work->experiment->id, "interrupted", "by a signal", error);
        }
    }
    return status;
}
