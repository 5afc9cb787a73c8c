// Which bytes equal launches of a graph leave different: partial sums that are added up in an order of their own, slots
// that are drawn by atomics, rows that race for one place. They say nothing about what was changed before a launch, and
// are left out; all others still do.
//
// A byte that was not seen to be unstable may be. So it counts as changed only if it came out otherwise in each of
// several launches with the change and in none of as many without. One that comes out otherwise half of the time, which
// is the worst case, passes for changed once in a thousand checks.
#include "base/memory.h"
#include "record/canary.h"
#include "record/ids.h"
#include "record/perturb.h"
#include "record/recorder.h"

#include <string.h>

enum {
    STEADY = 4,     // launches in a row that must show nothing new, once there is something
    MOST_RUNS = 16, // launches after which that is given up
    WORD = 8,
    GROUP = 4096
};

// The end of an allocation is where what is near a byte ends.
static bool within_lives(gv_perturb *p, const gv_range_set *set, const gv_range_set *wide, gv_range_set *clipped)
{
    gv_live *lives = NULL;
    size_t count = 0;
    gv_error error = {0};
    gv_range_set whole = {0};
    gv_status status = gv_lives(&lives, &count) ? GV_OK : gv_fail(&error, GV_ERR_MEMORY, "memory ran out");
    for (size_t i = 0; i < count && !status; i++) {
        gv_range range = {lives[i].address, lives[i].address + lives[i].size};
        const gv_range_set life = {&range, 1, 1, 0};
        if (gv_range_set_overlaps(&life, set))
            status = gv_range_set_add(&whole, range.start, range.end, &error);
    }
    gv_free(lives);
    if (status)
        gv_perturb_fails(p, "%s", error.text);
    bool enough = !status && gv_perturb_both(p, wide, &whole, clipped);
    gv_range_set_free(&whole);
    return enough;
}

static bool widen(gv_perturb *p, const gv_range_set *set, gv_range_set *wide)
{
    gv_error error = {0};
    gv_status status = GV_OK;
    gv_range_set all = {0};
    uint64_t to = p->left_out_widely ? GROUP : WORD;
    gv_range_set_settle(set);
    for (size_t i = 0; i < set->count && !status; i++)
        status =
            gv_range_set_add(&all, set->ranges[i].start & ~(to - 1), (set->ranges[i].end + to - 1) & ~(to - 1), &error);
    gv_range_set_settle(&all);
    if (status)
        gv_perturb_fails(p, "%s", error.text);
    bool enough = !status && within_lives(p, set, &all, wide);
    gv_range_set_free(&all);
    return enough;
}

// What is left out: unstable bytes, and their words, since a number that varies need not vary in all of its bytes each
// time; all around them where there are too many of them to have seen each. What the verdict is about and what it is
// not do not take from each other, and of the first bytes alone are left out as long as that will do.
static bool leave_out(gv_perturb *p)
{
    gv_range_set judged = {0}, needed = {0}, others = {0}, wide_needed = {0}, wide_others = {0};
    bool enough = gv_perturb_minus(p, &p->unstable, &p->ignored, &judged) &&
                  gv_perturb_both(p, &judged, &p->needed, &needed) &&
                  gv_perturb_minus(p, &judged, &p->needed, &others) && widen(p, &others, &wide_others) &&
                  (!p->left_out_widely || widen(p, &needed, &wide_needed));
    gv_range_set outside = {0}, inside = {0}, sum = {0};
    enough = enough && gv_perturb_minus(p, &wide_others, &p->needed, &outside) &&
             gv_perturb_both(p, &wide_needed, &p->needed, &inside) && gv_perturb_add(p, &judged, &outside) &&
             gv_perturb_add(p, &judged, &inside) && gv_perturb_minus(p, &judged, &p->ignored, &sum) &&
             gv_perturb_add(p, &p->left_out, &sum);
    gv_range_set *sets[] = {&judged, &needed, &others, &wide_needed, &wide_others, &outside, &inside, &sum};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        gv_range_set_free(sets[i]);
    return enough;
}

// Takes in bytes that were seen to be unstable. *news: some of them had not been left out so far.
static bool learn(gv_perturb *p, const gv_range_set *seen, bool *news)
{
    gv_range_set judged = {0}, fresh = {0};
    bool enough = gv_perturb_minus(p, seen, &p->ignored, &judged) &&
                  gv_perturb_minus(p, &judged, &p->left_out, &fresh) && gv_perturb_add(p, &p->unstable, seen);
    *news |= fresh.count != 0;
    if (enough && fresh.count)
        enough = leave_out(p);
    gv_range_set_free(&judged);
    gv_range_set_free(&fresh);
    return enough;
}

// One launch without any change.
static bool launch_equally(gv_perturb *p, bool *news)
{
    gv_range_set seen = {0};
    bool enough = gv_perturb_again(p, NULL, NULL, NULL) && gv_perturb_differences(p, p->after, NULL, &seen) &&
                  learn(p, &seen, news);
    gv_range_set_free(&seen);
    return enough;
}

bool gv_perturb_control(gv_perturb *p)
{
    unsigned steady = 0;
    for (unsigned run = 1; steady < STEADY; run++) {
        bool news = false;
        if (!launch_equally(p, &news))
            return false;
        if (!p->unstable.count)
            return true;
        steady = news ? 0 : steady + 1;
        if (run == MOST_RUNS && steady < STEADY) {
            p->left_out_widely = true;
            if (!leave_out(p))
                return false;
        } else if (run == 2 * MOST_RUNS && steady < STEADY) {
            p->record.status = GV_PERTURBED_UNSTABLE;
            gv_perturb_fails(p, "equal launches of it come out differently in other bytes every time (in %llu so far)",
                             (unsigned long long)gv_range_set_bytes(&p->unstable));
            return false;
        }
    }
    return true;
}

bool gv_perturb_outcome(gv_perturb *p, gv_range_set *different)
{
    gv_range_set all = {0}, judged = {0};
    bool enough = gv_perturb_differences(p, p->after, NULL, &all) && gv_perturb_minus(p, &all, &p->ignored, &judged) &&
                  gv_perturb_minus(p, &judged, &p->left_out, different);
    gv_range_set_free(&all);
    gv_range_set_free(&judged);
    return enough;
}

unsigned gv_perturb_repetitions(const gv_perturb *p)
{
    return p->unstable.count ? STEADY : 1;
}

// Once without the change, once with it. *different becomes what came out otherwise this time too.
static bool confirm_once(gv_perturb *p, gv_perturb_change change, void *user, gv_range_set *different, bool *news)
{
    gv_range_set again = {0}, before = {0}, both = {0}, either = {0}, now_and_then = {0};
    bool enough = launch_equally(p, news) && gv_perturb_again(p, NULL, change, user) && gv_perturb_outcome(p, &again) &&
                  gv_perturb_minus(p, different, &p->left_out, &before) && gv_perturb_both(p, &before, &again, &both) &&
                  gv_perturb_add(p, &either, &before) && gv_perturb_add(p, &either, &again) &&
                  gv_perturb_minus(p, &either, &both, &now_and_then) && learn(p, &now_and_then, news);
    gv_range_set_free(different);
    enough = enough && gv_perturb_minus(p, &both, &p->left_out, different);
    gv_range_set_free(&again);
    gv_range_set_free(&before);
    gv_range_set_free(&both);
    gv_range_set_free(&either);
    gv_range_set_free(&now_and_then);
    return enough;
}

bool gv_perturb_confirm(gv_perturb *p, gv_perturb_change change, void *user, gv_range_set *different)
{
    unsigned steady = 0;
    for (unsigned run = 0; different->count && steady < STEADY && run < MOST_RUNS; run++) {
        bool news = false;
        if (!confirm_once(p, change, user, different, &news))
            return false;
        steady = news ? 0 : steady + 1;
    }
    return true;
}

bool gv_perturb_need_regions(gv_perturb *p, const gv_range_set *but)
{
    gv_range_set regions = {0}, rest = {0};
    bool enough = gv_canary_memory(&regions);
    if (!enough)
        gv_perturb_fails(p, "memory ran out");
    enough = enough && gv_perturb_minus(p, &regions, but, &rest) && gv_perturb_add(p, &p->needed, &rest);
    gv_range_set_free(&regions);
    gv_range_set_free(&rest);
    return enough;
}

// The name of what was declared at an address.
static const char *name_of(const gv_perturb *p, uint64_t address)
{
    for (size_t i = 0; i < p->row_count; i++) {
        const gv_rows *rows = &p->rows[i];
        if (address >= rows->address && address - rows->address < rows->row_bytes * rows->rows &&
            !(rows->flags & GV_ROWS_SCRATCH))
            return rows->name;
    }
    return NULL;
}

void gv_perturb_account(gv_perturb *p)
{
    gv_range_set lost = {0};
    p->record.unstable_bytes = gv_range_set_bytes(&p->unstable);
    p->record.left_out_bytes = gv_range_set_bytes(&p->left_out);
    if (gv_perturb_both(p, &p->left_out, &p->needed, &lost) && lost.count && !p->reason[0]) {
        const char *name = name_of(p, lost.ranges[0].start);
        p->record.status = GV_PERTURBED_UNSTABLE;
        gv_perturb_fails(p,
                         "equal launches of it came out differently, in %llu bytes of what has to be compared%s%s%s: "
                         "its results are not determined by its inputs",
                         (unsigned long long)gv_range_set_bytes(&lost), name ? " (\"" : "", name ? name : "",
                         name ? "\")" : "");
    }
    for (size_t i = 0; i < p->unstable.count && i < 8; i++)
        gv_verbose("graph #%llu: %llu bytes at 0x%llx are unstable%s", (unsigned long long)p->exec->snapshot->id,
                   (unsigned long long)(p->unstable.ranges[i].end - p->unstable.ranges[i].start),
                   (unsigned long long)p->unstable.ranges[i].start,
                   gv_range_set_contains(&p->left_out, p->unstable.ranges[i].start) ? ", and left out" : "");
    gv_range_set_free(&lost);
}
