// What the same session brings when it runs alone at temperature 0: taken once, kept on disk under the content of the
// session, and compared with what it brought under load.
#ifndef GV_STRESS_BASELINE_H
#define GV_STRESS_BASELINE_H

#include "stress/run.h"
#include "stress/session.h"

// The name of a session's baseline: a hash, in hexadecimal, of the URL, the model, every parameter and every text.
typedef struct gv_baseline_key {
    char text[33];
} gv_baseline_key;

gv_baseline_key gv_baseline_key_of(const char *url, const char *tail, const gv_session *session);

// Reads a session's baseline into `results`. False when there is none, or none that can be read (which is then taken
// anew). `taken` is when it was.
bool gv_baseline_read(const char *folder, const gv_baseline_key *key, gv_results *results, size_t session,
                      char taken[32]);

// Writes it, when every round was answered. The folder is made. GV_ERR_IO, GV_ERR_MEMORY.
gv_status gv_baseline_write(const char *folder, const gv_baseline_key *key, const gv_results *results, size_t session,
                            gv_error *error);

// The folder where baselines are kept when none was named: gravel/stress in XDG_CACHE_HOME or ~/.cache. Freed with
// gv_free; NULL when there is no home or no memory.
char *gv_baseline_folder(void);

// Changes the results of `session` by what it brought alone: see the reasons alone-too, call-differs, text-differs,
// not-compared and drifted. `alone` may be NULL: nothing to compare with.
void gv_baseline_settle(gv_results *load, const gv_results *alone, const gv_scenario *scenario, size_t session,
                        bool exact, const char *key);

// Whether settling needs the baseline of this session.
bool gv_baseline_wanted(const gv_results *load, const gv_scenario *scenario, size_t session);

#endif
