// A plan: which service is run, what is changed in it, how a trial counts, and when enough is known. Read from a YAML
// file whose keys docs/lab.md describes. Every mistake in it is refused with its line and a remedy, because a plan that
// is misread measures something else than was meant.
#ifndef GV_LAB_PLAN_H
#define GV_LAB_PLAN_H

#include "base/error.h"
#include "base/yaml.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GV_LAB_MOST_FACTORS = 12, GV_LAB_MOST_CELLS = 1024, GV_LAB_MOST_CHANGES = 1024 };

// Texts belong to the plan.
typedef struct gv_setting {
    const char *name;
    const char *value; // NULL: taken out of the environment
} gv_setting;

typedef struct gv_settings {
    gv_setting *items;
    size_t count, capacity;
} gv_settings;

typedef struct gv_words {
    const char **items;
    size_t count, capacity;
} gv_words;

// What is changed in the service, as one: a level of a factor, or a change to be minimised.
typedef struct gv_change {
    const char *name;
    size_t line;
    gv_settings environment;
    gv_words arguments;   // added to the service's command
    const char *revision; // of `source: git`
    const char *patch;    // a patch file; `hunk` is one of it by number from 0, or -1 for all
    long hunk;
    gv_settings files; // path in the source -> file that takes its place
    const char *fix;   // a fix file; `edge` is one of it by number from 0, or -1 for all
    long edge;
} gv_change;

typedef struct gv_factor {
    const char *name;
    size_t line;
    gv_change *levels;
    size_t count, capacity;
} gv_factor;

// A command: words, or one text for sh -c.
typedef struct gv_command_line {
    gv_words words;
    const char *shell; // NULL: `words` is used
    size_t line;
} gv_command_line;

typedef struct gv_service {
    gv_command_line command;
    const char *unit; // a systemd unit in place of `command`
    bool user_unit;   // of the user's manager
    gv_settings environment;
    gv_words inherit; // variables taken over from gravel's own environment
    const char *directory;
    const char *git, *revision; // source: a repository and what is checked out of it for each trial
    const char *copy;           // source: a folder that is copied for each trial
    gv_command_line prepare;    // run in the source's tree once the changes are in
    double prepare_timeout;
    gv_words ports;
    const char *health;
    const char *ready_url, *ready_expect;
    char *ready_body; // JSON; NULL: a GET
    gv_settings ready_headers;
    double ready_timeout;
    double start_timeout; // seconds from the start to a good answer of `ready`
    int stop_signal;
    double stop_timeout;
    gv_command_line stop;
    gv_words files; // checked like the binaries
} gv_service;

typedef struct gv_counts {
    bool json;        // JSON pointers, else regular expressions
    const char *file; // NULL: the trial command's output
    const char *sessions, *corrupt, *failed, *unsure;
    const char *list, *list_verdict; // JSON pointers: the array of sessions, and the verdict in each
} gv_counts;

typedef struct gv_trial_plan {
    gv_command_line command;
    gv_settings environment;
    const char *directory;
    double timeout;
    uint64_t sessions; // of one trial
    uint64_t failed_allowed;
    gv_counts counts;
} gv_trial_plan;

// A level for each factor, by number.
typedef struct gv_cell {
    unsigned char level[GV_LAB_MOST_FACTORS];
} gv_cell;

// A wanted comparison of two cells.
typedef struct gv_comparison {
    const char *name;
    gv_cell from, to;
} gv_comparison;

typedef enum gv_design_kind {
    GV_DESIGN_FULL,
    GV_DESIGN_ONE_FACTOR,
    GV_DESIGN_FRACTION,
    GV_DESIGN_CELLS
} gv_design_kind;

typedef struct gv_design {
    gv_design_kind kind;
    gv_cell baseline;
    // fraction: factor `generated[i]` is the product of the factors in the bit set `product[i]`.
    size_t generated[GV_LAB_MOST_FACTORS];
    uint32_t product[GV_LAB_MOST_FACTORS];
    size_t generator_count;
    gv_cell *cells; // what is run, without what `exclude` names
    size_t cell_count, cell_capacity;
    uint64_t blocks;
} gv_design;

typedef struct gv_stop {
    bool sequential;
    bool contrasts;        // a cell also runs until what it is compared with is settled
    double clean, corrupt; // rates
    double confidence;
} gv_stop;

typedef enum gv_executor_kind { GV_EXECUTE_LOCAL, GV_EXECUTE_SLURM } gv_executor_kind;

typedef struct gv_executor {
    gv_executor_kind kind;
    uint64_t jobs;
    gv_words options; // for sbatch
} gv_executor;

// What `gravel lab minimise` searches.
typedef struct gv_minimise {
    size_t line; // 0: the plan has no such part
    gv_cell cell;
    gv_change *changes; // after splitting
    size_t count, capacity;
    double clean, corrupt, confidence;
    uint64_t most_sessions; // of one decision
    uint64_t together;      // trials planned at a time
} gv_minimise;

typedef struct gv_plan {
    const char *name;
    char *path, *directory; // of the file; absolute
    char *text;             // the file as it was read
    size_t length;
    gv_yaml *yaml;
    char **owned; // texts made while reading
    size_t owned_count, owned_capacity;

    gv_service service;
    gv_factor *factors;
    size_t factor_count, factor_capacity;
    gv_trial_plan trial;
    gv_design design;
    gv_stop stop;
    gv_comparison *comparisons;
    size_t comparison_count, comparison_capacity;
    gv_executor executor;
    gv_minimise minimise;
    uint64_t seed;
    uint64_t most_trials;                  // budget; 0: none
    double most_seconds;                   // of trials together; 0: none
    uint64_t retries;                      // after an infrastructure outcome
    double estimate_start, estimate_trial; // seconds; 0: not given
} gv_plan;

// Reads and checks a plan. Files it names must be there. `*plan` is NULL on failure.
gv_status gv_plan_load(const char *path, gv_plan **plan, gv_error *error);

// The same from text that was kept elsewhere (the ledger); `path` is where it came from.
gv_status gv_plan_parse(const char *path, const char *text, size_t length, gv_plan **plan, gv_error *error);

void gv_plan_free(gv_plan *plan);

// The number of a level of factor `f`, or -1.
int gv_plan_level(const gv_plan *plan, size_t f, const char *name);

// "keys=bf16, overlap=on": how a cell is written everywhere. Owned by the caller; NULL when memory is out.
char *gv_plan_cell_name(const gv_plan *plan, const gv_cell *cell);

bool gv_cell_equal(const gv_plan *plan, const gv_cell *a, const gv_cell *b);

// Keeps a text for as long as the plan lives. NULL when `text` is NULL (memory was out) or memory is out now.
const char *gv_plan_own(gv_plan *plan, char *text);

// `relative` seen from the plan's folder; owned by the plan. NULL when memory is out.
const char *gv_plan_path(gv_plan *plan, const char *relative);

#endif
