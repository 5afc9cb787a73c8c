// Reports of `gravel lab`: what an experiment shows, how far it is, and what a plan would run and could show.
#ifndef GV_LAB_REPORT_H
#define GV_LAB_REPORT_H

#include "lab/document.h"
#include "lab/ledger.h"

#include <jansson.h>

typedef enum gv_lab_form { GV_LAB_TEXT, GV_LAB_MARKDOWN, GV_LAB_HTML, GV_LAB_JSON } gv_lab_form;

// What an experiment comes to.
typedef enum gv_lab_result {
    GV_LAB_GOOD, // every cell is clean; of a minimisation: a set was found of which nothing can be left out
    GV_LAB_BAD,  // some cell is corrupt; the changes together do not pass
    GV_LAB_OPEN, // neither: something is undecided or could not be measured
} gv_lab_result;

// Writes the report of an experiment.
gv_status gv_lab_report(gv_ledger *ledger, const gv_experiment *experiment, const gv_plan *plan, gv_lab_form form,
                        FILE *out, gv_lab_result *result, gv_error *error);

// What `lab check` prints.
gv_status gv_lab_check(const gv_plan *plan, bool json, FILE *out, gv_error *error);

// A few lines on how far an experiment is.
gv_status gv_lab_status(gv_ledger *ledger, const gv_experiment *experiment, const gv_plan *plan, FILE *out,
                        gv_error *error);

// ---- Shared by the two kinds of report ----
// Sentences on trials without counts and on trials that ran different code.
gv_status gv_report_notes(gv_ledger *ledger, const gv_experiment *experiment, const gv_plan *plan,
                          gv_document *document, json_t *json, gv_error *error);
// "16.7 %"
const char *gv_percent(char *buffer, double rate);
#define GV_PERCENT(rate) gv_percent((char[24]){0}, rate)
// A duration as people say it: "75 s", "12 min", "3.5 h".
const char *gv_duration(char *buffer, double seconds);
#define GV_DURATION(seconds) gv_duration((char[32]){0}, seconds)

gv_status gv_report_search(gv_ledger *ledger, const gv_experiment *experiment, const gv_plan *plan,
                           const gv_trials *trials, gv_document *document, json_t *json, gv_lab_result *result,
                           gv_error *error);

#endif
