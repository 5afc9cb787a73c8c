// A launch that is repeated on the same memory, with something changed before it that must not matter: padded rows
// (pad.c), or memory that the launch has to write before it reads it (poison.c). docs/padding.md describes both.
//
// What a launch may write is saved, and the graph is launched as the program asked. Its result is kept, the memory is
// put back, something is changed, and the graph is launched again; the results are compared. In the end the program has
// the result of its own launch, byte for byte. The Sanitizer has no part in this.
#ifndef GV_RECORD_PERTURB_H
#define GV_RECORD_PERTURB_H

#include "record/arm.h"
#include "record/extent.h"
#include "record/image.h"
#include "record/replay.h"
#include "record/rows.h"
#include "trace/record.h"

typedef struct gv_perturb {
    // Given.
    gv_graph_launch launch;
    gv_exec *exec;
    CUstream stream; // as the program gave it
    bool per_thread;

    // Its own.
    gv_hold hold;
    gv_compare *compare;
    gv_reach *reach;
    gv_extent extent;
    gv_image_room room;
    gv_image *before, *after; // all that is saved: as it was before the launch, and as the launch left it
    gv_range_set saved;
    gv_range_set changed;  // by the launch, in whole words (gv_perturb_words)
    gv_range_set needed;   // what the verdict is about: it is none where these bytes are unstable
    gv_range_set ignored;  // what may come out otherwise anyway
    gv_range_set unstable; // bytes that equal launches were seen to leave different
    gv_range_set left_out; // those that are not ignored, and what is near them: not compared
    bool left_out_widely;  // there are so many of them that not each was seen
    gv_rows *rows;         // what is declared
    size_t row_count;
    uint64_t real, captured;
    gv_perturbed_record record;
    char patterns[96]; // that were tried, for the record
    char reason[420];  // why it shows nothing; empty: it does
    CUresult result;   // an error of the program's own work
    bool unfinished;   // the launch's own work has not come to an end
    bool disturbed;    // memory is not as the launch left it
    bool forever;      // no later launch of this graph would fare better
    bool unfit;        // this launch cannot be checked, at whatever moment
} gv_perturb;

// Changes memory that is as it was before the launch. Enqueues on p->hold.stream.
typedef gv_status (*gv_perturb_change)(gv_perturb *p, void *user, gv_error *error);

// One check: called when the launch has run, memory is as it left it, and `after` and `changed` are there. Writes its
// effects. What is left of memory is put right by the caller.
typedef void (*gv_perturb_check)(gv_perturb *p);

// Launches the graph as the program asked and checks it. False: it was not launched, since this is not the moment, with
// the reason in *why; with p->forever it never is. True: it was launched, with `result`. `more` is memory to be saved
// beside what the launch may write.
bool gv_perturb_launch(gv_perturb *p, gv_status (*more)(gv_perturb *p, gv_range_set *saved, gv_error *error),
                       gv_perturb_check check, CUresult *result, const char **why);

// It was not launched: writes down why it is not checked, unless this is only not the moment for it. Then it stays due.
void gv_perturb_refused(gv_perturb *p, const char *why, bool *owed, bool *refused);

// Says why the launch shows nothing. The first reason stays.
void gv_perturb_fails(gv_perturb *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Memory becomes what it was before the launch, but for what `image` (may be NULL) and then `change` (may be NULL) make
// of it. False: as below.
bool gv_perturb_rewind(gv_perturb *p, const gv_image *image, gv_perturb_change change, void *user);

// Runs the nodes one by one on memory as it is; `step` is called behind each. False: as below.
bool gv_perturb_nodes(gv_perturb *p, gv_replay_step step, void *user);

// Launches the graph again, on memory as it was before the launch but for what `image` (may be NULL) and then `change`
// (may be NULL) make of it. Waits for it. False: it failed, with the reason given.
bool gv_perturb_again(gv_perturb *p, const gv_image *image, gv_perturb_change change, void *user);

// The bytes in which memory differs from `image`, all that it has or those in `within`. False: as above.
bool gv_perturb_differences(gv_perturb *p, const gv_image *image, const gv_range_set *within, gv_range_set *found);

// ---- Unstable bytes (unstable.c). A check has set `needed` and `ignored` before. ----

// Launches the graph again, unchanged, and learns which bytes are unstable: until nothing new shows up. False: as
// above; also when there is no end to it.
bool gv_perturb_control(gv_perturb *p);

// The bytes that came out otherwise than in the program's own launch, but for those that are ignored or left out.
bool gv_perturb_outcome(gv_perturb *p, gv_range_set *different);

// A launch on memory so changed had that outcome. Launches it again and again, with unchanged launches in between;
// *different becomes what came out otherwise each time with the change and never without. What came out otherwise now
// and then is unstable. Memory is then as a launch with the change left it.
bool gv_perturb_confirm(gv_perturb *p, gv_perturb_change change, void *user, gv_range_set *different);

// How often what a launch does not do must be seen not to happen.
unsigned gv_perturb_repetitions(const gv_perturb *p);

// Adds regions of canaries to `needed`, but for the bytes `but`.
bool gv_perturb_need_regions(gv_perturb *p, const gv_range_set *but);

// At the end of a check: writes into the record what was left out, and that needed bytes were.
void gv_perturb_account(gv_perturb *p);

// ---- Memory that is kept ----

// Keeps the bytes of `ranges` as they are now. NULL: as above.
gv_image *gv_perturb_keep(gv_perturb *p, const gv_range_set *ranges);
void gv_perturb_drop(gv_perturb *p, gv_image *image);

// Set algebra with the reason given on failure: out = a - b, a & b; add `more` to `set`.
bool gv_perturb_minus(gv_perturb *p, const gv_range_set *a, const gv_range_set *b, gv_range_set *out);
bool gv_perturb_both(gv_perturb *p, const gv_range_set *a, const gv_range_set *b, gv_range_set *out);
bool gv_perturb_add(gv_perturb *p, gv_range_set *set, const gv_range_set *more);

// Widens the ranges to whole 8-byte words: a number that is written need not change in all of its bytes.
bool gv_perturb_words(gv_perturb *p, gv_range_set *set);

// Runs the nodes one by one on memory as it was before the launch, changed as above, and finds the first node behind
// which bytes of `bytes` differ from what they were when it began. *graph and *node (index + 1) are 0 when there is
// none or the nodes cannot be run so.
void gv_perturb_find_node(gv_perturb *p, gv_perturb_change change, void *user, const gv_range_set *bytes,
                          uint64_t *graph, uint64_t *node);

// Writes an effect: fills in the launch and encodes at most the first 4,096 ranges.
void gv_perturb_write_effect(gv_perturb *p, gv_effect_record *effect, const gv_range_set *ranges);

// Lists what is declared of this device's memory in p->rows.
gv_status gv_perturb_list_rows(gv_perturb *p, gv_error *error);

// The part of declared rows that is real, and that is padding, in this launch.
gv_range gv_perturb_real(const gv_perturb *p, const gv_rows *rows);
gv_range gv_perturb_padding(const gv_perturb *p, const gv_rows *rows);

// Adds the memory that was allocated during captures: the graphs' own.
bool gv_perturb_own_memory(gv_perturb *p, gv_range_set *own);

// ---- The two checks ----

// Is this launch of the exec one to check? Counts launches.
bool gv_pad_is_due(gv_exec *exec);
bool gv_poison_is_due(gv_exec *exec);

// For the hook of a graph launch. True: the launch was made; *sequence is its number, 0 when it failed.
bool gv_pad_launch(gv_graph_launch launch, gv_exec *exec, CUstream stream, bool per_thread, CUresult *result,
                   uint64_t *sequence);
bool gv_poison_launch(gv_graph_launch launch, gv_exec *exec, CUstream stream, bool per_thread, CUresult *result,
                      uint64_t *sequence);

#endif
