// Trials as Slurm jobs. This process plans and submits; the jobs are workers that claim trials from the shared ledger.
// Slurm is spoken to through its commands, as a user would: sbatch, squeue and scancel.
#include "base/memory.h"
#include "lab/patch.h"
#include "lab/tree.h"
#include "lab/worker.h"
#include "report/format.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Jobs in a row that may end without having recorded anything.
enum { MOST_IDLE_JOBS = 4, COMMAND_SECONDS = 120 };

typedef struct jobs {
    char **ids;
    size_t count, capacity;
} jobs;

typedef struct slurm {
    const gv_work *work;
    jobs active;
    char *log; // what the last command said
    gv_error *error;
} slurm;

// Runs a command of Slurm's; what it printed is the caller's.
static gv_status run_command(slurm *s, char *const *argv, char **output)
{
    *output = NULL;
    unlink(s->log);
    gv_status status = gv_run_program(argv, NULL, s->log, COMMAND_SECONDS, s->error);
    return status == GV_OK ? gv_read_whole(s->log, 1 << 20, output, NULL, s->error) : status;
}

static gv_status submit(slurm *s)
{
    const gv_executor *executor = &s->work->plan->executor;
    gv_words words = {0};
    gv_string output = {0}, wrap = {0};
    gv_string_add(&output, "--output=%s/slurm-%%j.log", s->work->folder);
    // The ledger's address may hold a password: it goes by the environment, not on a command line that anyone can read.
    gv_string_add(&wrap,
                  "--wrap=exec \"$GRAVEL_LAB_PROGRAM\" lab worker --experiment %" PRIu64 " --output "
                  "\"$GRAVEL_LAB_OUTPUT\"",
                  s->work->experiment->id);
    const char *fixed[] = {"sbatch",       "--parsable",   "--job-name=gravel-lab",
                           "--export=ALL", "--no-requeue", gv_string_text(&output)};
    bool good = !output.failed && !wrap.failed;
    good = good && GV_GROW(words.items, words.capacity, executor->options.count + 10);
    for (size_t i = 0; good && i < sizeof fixed / sizeof *fixed; i++)
        words.items[words.count++] = fixed[i];
    for (size_t i = 0; good && i < executor->options.count; i++)
        words.items[words.count++] = executor->options.items[i];
    gv_status status = GV_OK;
    char *text = NULL;
    if (good) {
        words.items[words.count++] = gv_string_text(&wrap);
        words.items[words.count] = NULL;
        status = run_command(s, (char *const *)words.items, &text);
    }
    // "1234" or "1234;cluster"
    char *id = text ? gv_strndup(text, strspn(text, "0123456789")) : NULL;
    if (status == GV_OK && id && id[0] && GV_GROW(s->active.ids, s->active.capacity, s->active.count + 1)) {
        s->active.ids[s->active.count++] = id;
    } else {
        if (status == GV_OK)
            status = id && !id[0] ? gv_fail(s->error, GV_ERR_IO, "sbatch printed no job number: %.80s", text)
                                  : gv_fail(s->error, GV_ERR_MEMORY, "out of memory for a job");
        gv_free(id);
    }
    gv_free(text);
    gv_free(words.items);
    gv_string_free(&output);
    gv_string_free(&wrap);
    return status;
}

// Takes the jobs that Slurm no longer has out of the list.
static gv_status look_at_jobs(slurm *s)
{
    char *argv[] = {"squeue", "--noheader", "--name=gravel-lab", "--me", "--format=%i", NULL}, *text;
    if (s->active.count == 0)
        return GV_OK;
    gv_status status = run_command(s, argv, &text);
    size_t kept = 0;
    for (size_t i = 0; status == GV_OK && i < s->active.count; i++) {
        bool there = false;
        size_t length = strlen(s->active.ids[i]);
        for (const char *line = text; *line && !there; line += strcspn(line, "\n"), line += *line == '\n') {
            line += strspn(line, " ");
            there = strncmp(line, s->active.ids[i], length) == 0 && strspn(line, "0123456789") == length;
        }
        if (there)
            s->active.ids[kept++] = s->active.ids[i];
        else
            gv_free(s->active.ids[i]);
    }
    if (status == GV_OK)
        s->active.count = kept;
    gv_free(text);
    return status;
}

static void cancel_jobs(slurm *s)
{
    for (size_t i = 0; i < s->active.count; i++) {
        char *argv[] = {"scancel", s->active.ids[i], NULL};
        gv_run_program(argv, NULL, s->log, COMMAND_SECONDS, NULL);
        gv_free(s->active.ids[i]);
    }
    s->active.count = 0;
}

static gv_status count_trials(slurm *s, uint64_t *pending, uint64_t *attempts)
{
    gv_trials trials;
    gv_status status = gv_ledger_trials(s->work->ledger, s->work->experiment->id, &trials, s->error);
    *pending = *attempts = 0;
    for (size_t i = 0; status == GV_OK && i < trials.count; i++) {
        *pending += trials.items[i].outcome == GV_OUTCOME_PENDING;
        *attempts += trials.items[i].attempts;
    }
    gv_trials_free(&trials);
    return status;
}

gv_status gv_work_slurm(const gv_work *work, const char *ledger_url, gv_work_end *end, gv_error *error)
{
    slurm s = {.work = work, .error = error};
    int wake = gv_work_signals(error);
    gv_string log = {0};
    gv_string_add(&log, "%s/slurm-command.log", work->folder);
    s.log = log.text;
    *end = GV_WORK_ENDED;
    setenv("GRAVEL_LAB_LEDGER", ledger_url, 1);
    setenv("GRAVEL_LAB_PROGRAM", work->gravel, 1);
    setenv("GRAVEL_LAB_OUTPUT", work->folder, 1);
    gv_status status = wake < 0     ? GV_ERR_IO
                       : log.failed ? gv_fail(error, GV_ERR_MEMORY, "out of memory")
                                    : gv_make_folder(work->folder, error);
    uint64_t idle = 0, known_attempts = 0;
    while (status == GV_OK) {
        bool ended = false;
        uint64_t pending = 0, attempts = 0;
        size_t before = s.active.count;
        status = gv_ledger_advance(work->ledger, work->experiment, work->plan, &ended, error);
        if (status != GV_OK || ended)
            break;
        status = look_at_jobs(&s);
        if (status == GV_OK)
            status = count_trials(&s, &pending, &attempts);
        // A job that ends without a result: the next one may be luckier, a few in a row are not.
        idle = attempts > known_attempts ? 0 : idle + (before - s.active.count);
        known_attempts = attempts;
        if (status == GV_OK && idle >= MOST_IDLE_JOBS)
            status = gv_fail(error, GV_ERR_IO,
                             "%" PRIu64 " Slurm jobs in a row ended without a result; their output is in "
                             "%s/slurm-*.log",
                             idle, work->folder);
        uint64_t wanted = pending < work->plan->executor.jobs ? pending : work->plan->executor.jobs;
        while (status == GV_OK && s.active.count < wanted)
            status = submit(&s);
        struct pollfd wait = {.fd = wake, .events = POLLIN};
        if (status == GV_OK && poll(&wait, 1, 1000) > 0) {
            *end = GV_WORK_INTERRUPTED;
            status = gv_ledger_event(work->ledger, work->experiment->id, "interrupted", "by a signal", error);
            break;
        }
    }
    cancel_jobs(&s);
    gv_free(s.active.ids);
    gv_string_free(&log);
    return status;
}
