// Padding checks: a launch is repeated with its padded rows filled with several patterns. What it makes of its real
// rows must not change by a bit, and nothing may be written for padded rows outside of declared outputs and scratch
// memory.
//
// Which patterns are tried where: data gets numbers, since a kernel has to bear any; indices get only the value that
// the program declared to mark padding, since any other could send a kernel to memory that is not there.
#include "base/memory.h"
#include "record/perturb.h"
#include "record/recorder.h"

#include <stdio.h>
#include <string.h>

enum pattern { PATTERN_MARK, PATTERN_ZEROS, PATTERN_ONES, PATTERN_NAN, PATTERN_LARGE, PATTERN_ROW, PATTERN_COUNT };

static const char *const pattern_names[PATTERN_COUNT] = {
    [PATTERN_MARK] = "mark", [PATTERN_ZEROS] = "zeros", [PATTERN_ONES] = "ones",
    [PATTERN_NAN] = "nan",   [PATTERN_LARGE] = "large", [PATTERN_ROW] = "first-row",
};

// What was found of one output, or of what was written.
typedef struct outcome {
    gv_range_set bytes;
    bool rows_seen[PATTERN_COUNT];
    uint64_t graph, node;
} outcome;

typedef struct checking {
    gv_perturb *p;
    gv_range_set padding; // of inputs
    gv_range_set real;    // real rows of outputs
    gv_range_set tried;   // bytes that data patterns showed and that were looked at with marked rows
    outcome *reads;       // for each of p->rows
    outcome writes;
} checking;

// ---- Choosing ----------------------------------------------------------------------------------------------------

bool gv_pad_is_due(gv_exec *exec)
{
    const gv_record_options *options = &gv_state.options;
    uint64_t real, captured;
    if (options->pad == GV_PERTURB_NONE || !exec->named || exec->pad_refused || !gv_rows_batch(&real, &captured) ||
        !gv_rows_padded(real, captured))
        return false;
    exec->padded_launches++;
    exec->pad_owed |= options->pad == GV_PERTURB_FIRST ? exec->padded_launches == 1
                                                       : (exec->padded_launches - 1) % options->pad_number == 0;
    return exec->pad_owed;
}

// ---- Patterns ----------------------------------------------------------------------------------------------------

static bool is_marked(const gv_rows *rows)
{
    return rows->flags & GV_ROWS_MARKS;
}

static bool takes(const gv_perturb *p, const gv_rows *rows, enum pattern pattern)
{
    gv_range padding = gv_perturb_padding(p, rows);
    if (!(rows->flags & GV_ROWS_IN) || padding.start >= padding.end)
        return false;
    if (rows->flags & GV_ROWS_INDEX)
        return pattern == PATTERN_MARK && is_marked(rows);
    return pattern != PATTERN_MARK && (pattern != PATTERN_ROW || p->real > 0);
}

static bool applies(const gv_perturb *p, enum pattern pattern)
{
    for (size_t i = 0; i < p->row_count; i++)
        if (takes(p, &p->rows[i], pattern))
            return true;
    return false;
}

// Bytes that are a number of that kind in every floating-point format in use: 0x3f80 is 1 in bf16, 1.875 in f16 and
// 1.002 in f32; 0xff.. is a NaN in all of them, 0x7f7f.. the largest numbers or a NaN. As 8 bytes from the first
// padded row on.
static uint64_t pattern_bytes(const gv_rows *rows, gv_range padding, enum pattern pattern)
{
    switch (pattern) {
    case PATTERN_MARK:
        if (rows->flags & GV_ROWS_ONE_IS_PAD)
            return rows->row_bytes == 4 ? UINT64_C(0x0000000100000001) : 1;
        return rows->flags & GV_ROWS_MINUS_ONE_IS_PAD ? UINT64_MAX : 0;
    case PATTERN_ONES:
        return padding.start % 2 || padding.end % 2 ? UINT64_C(0x3f3f3f3f3f3f3f3f) : UINT64_C(0x3f803f803f803f80);
    case PATTERN_NAN: return UINT64_MAX;
    case PATTERN_LARGE: return UINT64_C(0x7f7f7f7f7f7f7f7f);
    default: return 0;
    }
}

static gv_status fill(gv_perturb *p, const gv_rows *rows, enum pattern pattern, gv_error *error)
{
    gv_range padding = gv_perturb_padding(p, rows);
    if (pattern == PATTERN_ROW)
        return gv_compare_repeat(p->compare, padding, rows->address, rows->row_bytes, error);
    // gv_compare_fill counts from a multiple of eight on.
    uint64_t bytes = pattern_bytes(rows, padding, pattern);
    unsigned turn = padding.start % 8 * 8;
    gv_range_set set = {0};
    gv_status status = gv_range_set_add(&set, padding.start, padding.end, error);
    if (!status)
        status = gv_compare_fill(p->compare, &set, turn ? bytes << turn | bytes >> (64 - turn) : bytes, error);
    gv_range_set_free(&set);
    return status;
}

static gv_status change(gv_perturb *p, void *user, gv_error *error)
{
    enum pattern pattern = *(enum pattern *)user;
    gv_status status = GV_OK;
    for (size_t i = 0; i < p->row_count && !status; i++)
        if (takes(p, &p->rows[i], pattern))
            status = fill(p, &p->rows[i], pattern, error);
    return status;
}

// ---- Memory ------------------------------------------------------------------------------------------------------

static gv_status save_rows(gv_perturb *p, gv_range_set *saved, gv_error *error)
{
    gv_status status = gv_perturb_list_rows(p, error);
    bool changeable = false;
    for (size_t i = 0; i < p->row_count && !status; i++) {
        gv_range padding = gv_perturb_padding(p, &p->rows[i]);
        if (!(p->rows[i].flags & GV_ROWS_IN) || padding.start >= padding.end)
            continue;
        changeable |= !(p->rows[i].flags & GV_ROWS_INDEX) || is_marked(&p->rows[i]);
        status = gv_range_set_add(saved, padding.start, padding.end, error);
    }
    if (!status && !changeable)
        status =
            gv_fail(error, GV_ERR_USAGE,
                    "all declared inputs are indices of which no value is known to mark padding (declare them with "
                    "GRAVEL_ROWS_ZERO_IS_PAD, GRAVEL_ROWS_ONE_IS_PAD or GRAVEL_ROWS_MINUS_ONE_IS_PAD)");
    return status;
}

static bool add_range(checking *c, gv_range_set *set, uint64_t start, uint64_t end)
{
    gv_error error = {0};
    if (start >= end || gv_range_set_add(set, start, end, &error) == GV_OK)
        return true;
    gv_perturb_fails(c->p, "%s", error.text);
    return false;
}

// What may come out otherwise: padding, scratch memory, the graphs' own memory; but real rows of outputs may not,
// wherever they lie. The verdict is about those, and about all else that is declared.
static bool list_memory(checking *c)
{
    gv_perturb *p = c->p;
    gv_range_set allowed = {0}, declared = {0};
    bool enough = gv_perturb_own_memory(p, &allowed);
    for (size_t i = 0; i < p->row_count && enough; i++) {
        const gv_rows *rows = &p->rows[i];
        gv_range padding = gv_perturb_padding(p, rows), real = gv_perturb_real(p, rows);
        if (rows->flags & GV_ROWS_SCRATCH) {
            enough = add_range(c, &allowed, rows->address, rows->address + rows->row_bytes);
            continue;
        }
        // Rows behind those that the graph has are as much nobody's as its padding.
        enough = add_range(c, &allowed, padding.start, rows->address + rows->row_bytes * rows->rows) &&
                 add_range(c, &declared, real.start, real.end);
        if (enough && rows->flags & GV_ROWS_IN)
            enough = add_range(c, &c->padding, padding.start, padding.end);
        if (enough && rows->flags & GV_ROWS_OUT)
            enough = add_range(c, &c->real, real.start, real.end);
    }
    gv_range_set_settle(&c->padding);
    gv_range_set_settle(&c->real);
    gv_range_set_settle(&allowed);
    gv_range_set_settle(&declared);
    enough = enough && gv_perturb_minus(p, &allowed, &c->real, &p->ignored) &&
             gv_perturb_minus(p, &declared, &p->ignored, &p->needed) && gv_perturb_need_regions(p, &p->ignored);
    gv_range_set_free(&allowed);
    gv_range_set_free(&declared);
    return enough;
}

// ---- Findings ----------------------------------------------------------------------------------------------------

// Adds what a pattern showed. The node is looked for once, with padding that `shown_by` makes write the bytes
// (PATTERN_COUNT: the program's own).
static bool add_result(checking *c, outcome *to, const gv_range_set *bytes, enum pattern pattern, enum pattern shown_by)
{
    if (!bytes->count)
        return true;
    bool first = !to->bytes.count;
    if (!gv_perturb_add(c->p, &to->bytes, bytes))
        return false;
    to->rows_seen[pattern] = true;
    if (first)
        gv_perturb_find_node(c->p, shown_by == PATTERN_COUNT ? NULL : change, &shown_by, bytes, &to->graph, &to->node);
    return !c->p->reason[0];
}

// Real rows that came out otherwise.
static bool check_reads(checking *c, const gv_range_set *different, enum pattern pattern)
{
    gv_perturb *p = c->p;
    bool going_on = true;
    for (size_t i = 0; i < p->row_count && going_on; i++) {
        gv_range_set rows = {0}, bytes = {0};
        gv_range real = gv_perturb_real(p, &p->rows[i]);
        if (!(p->rows[i].flags & GV_ROWS_OUT))
            continue;
        going_on = add_range(c, &rows, real.start, real.end) && gv_perturb_both(p, different, &rows, &bytes) &&
                   add_result(c, &c->reads[i], &bytes, pattern, pattern);
        gv_range_set_free(&rows);
        gv_range_set_free(&bytes);
    }
    return going_on;
}

// Of the bytes `suspects`, of which `values` has values, those whose words a launch with memory as the program had it
// (pattern PATTERN_COUNT), or with the pattern, does not write: they are given these values, and keep them. A number
// that is written need not change in all of its bytes. One launch shows that, but where there are unstable bytes.
//
// The values are ones that the graph itself has put there, so that a kernel that should read them meets nothing that it
// could not have met.
static bool unwritten(checking *c, const gv_image *values, const gv_range_set *suspects, enum pattern pattern,
                      gv_range_set *found)
{
    gv_perturb *p = c->p;
    gv_range_set written = {0};
    bool going_on = true;
    for (unsigned i = 0; i < gv_perturb_repetitions(p) && going_on; i++)
        going_on = gv_perturb_again(p, values, pattern == PATTERN_COUNT ? NULL : change, &pattern) &&
                   gv_perturb_differences(p, values, suspects, &written);
    going_on = going_on && gv_perturb_words(p, &written) && gv_perturb_minus(p, suspects, &written, found);
    gv_range_set_free(&written);
    return going_on;
}

// The same with the values that the bytes have now.
static bool unwritten_now(checking *c, const gv_range_set *suspects, enum pattern pattern, gv_range_set *found)
{
    gv_image *values = gv_perturb_keep(c->p, suspects);
    bool going_on = values && unwritten(c, values, suspects, pattern, found);
    gv_perturb_drop(c->p, values);
    return going_on;
}

// Bytes become what the program's own launch left in them.
static bool put_back(checking *c, const gv_range_set *bytes)
{
    gv_error error = {0};
    if (gv_image_restore(c->p->compare, c->p->after, bytes, &error) == GV_OK)
        return true;
    gv_perturb_fails(c->p, "%.400s", error.text);
    return false;
}

// Memory is as the launch with marked rows left it. Adds to `found` the bytes that the program's own padding made the
// launch write, as is seen by its having changed them, and that it does not write with marked rows.
static bool changed_by_own_padding(checking *c, const gv_range_set *different, gv_range_set *found)
{
    gv_perturb *p = c->p;
    gv_range_set suspects = {0}, changed = {0}, rest = {0};
    bool going_on = gv_perturb_differences(p, p->before, NULL, &changed) && gv_perturb_words(p, &changed) &&
                    gv_perturb_both(p, different, &p->changed, &rest) &&
                    gv_perturb_minus(p, &rest, &changed, &suspects);
    if (going_on && suspects.count)
        going_on = put_back(c, &suspects) && unwritten_now(c, &suspects, PATTERN_MARK, found);
    gv_range_set_free(&suspects);
    gv_range_set_free(&changed);
    gv_range_set_free(&rest);
    return going_on;
}

// What the launch leaves in `suspects` depends on the data of padded rows. Adds to `found` those that it writes with
// the program's own padding and does not write with marked rows. What it writes need not be new: padded rows may store
// the same in every step.
//
// Both is tried on the same values, those that `shown_by` makes the launch leave. The bytes are then given those that
// the program's own launch left, and must keep them too: the launch with marked rows does not write either.
static bool written_by_own_padding(checking *c, const gv_range_set *suspects, enum pattern shown_by,
                                   gv_range_set *found)
{
    gv_perturb *p = c->p;
    gv_range_set kept = {0}, written = {0}, once = {0};
    gv_image *values = NULL;
    bool going_on = gv_perturb_again(p, NULL, change, &shown_by) && (values = gv_perturb_keep(p, suspects)) != NULL &&
                    unwritten(c, values, suspects, PATTERN_COUNT, &kept) &&
                    gv_perturb_minus(p, suspects, &kept, &written) &&
                    (!written.count || unwritten(c, values, &written, PATTERN_MARK, &once));
    gv_perturb_drop(p, values);
    if (going_on && once.count)
        going_on = put_back(c, &once) && unwritten_now(c, &once, PATTERN_MARK, found);
    gv_range_set_free(&kept);
    gv_range_set_free(&written);
    gv_range_set_free(&once);
    return going_on;
}

// What was written for padded rows outside of what may be. `different` is what came out otherwise there. Data: the
// pattern made the launch write where it does not with the program's own padding. Indices: the program's own padding
// made it write where it does not with rows that are marked as padding.
static bool check_writes(checking *c, const gv_range_set *different, enum pattern pattern)
{
    gv_perturb *p = c->p;
    gv_range_set suspects = {0}, found = {0}, rest = {0}, fresh = {0}, stored = {0};
    bool going_on;
    if (pattern == PATTERN_MARK) {
        going_on = changed_by_own_padding(c, different, &found) &&
                   add_result(c, &c->writes, &found, PATTERN_MARK, PATTERN_COUNT);
    } else {
        going_on = gv_perturb_minus(p, different, &p->changed, &suspects) &&
                   (!suspects.count || unwritten_now(c, &suspects, PATTERN_COUNT, &found)) &&
                   add_result(c, &c->writes, &found, pattern, pattern) && gv_perturb_minus(p, different, &found, &rest);
        if (going_on && rest.count && applies(p, PATTERN_MARK))
            going_on = gv_perturb_minus(p, &rest, &c->tried, &fresh) && gv_perturb_add(p, &c->tried, &fresh) &&
                       (!fresh.count || written_by_own_padding(c, &fresh, pattern, &stored)) &&
                       add_result(c, &c->writes, &stored, PATTERN_MARK, pattern);
    }
    gv_range_set_free(&suspects);
    gv_range_set_free(&found);
    gv_range_set_free(&rest);
    gv_range_set_free(&fresh);
    gv_range_set_free(&stored);
    return going_on;
}

static bool try_pattern(checking *c, enum pattern pattern)
{
    gv_perturb *p = c->p;
    gv_range_set different = {0}, elsewhere = {0}, read = {0};
    bool going_on = gv_perturb_again(p, NULL, change, &pattern) && gv_perturb_outcome(p, &different) &&
                    gv_perturb_confirm(p, change, &pattern, &different) &&
                    gv_perturb_minus(p, &different, &c->real, &elsewhere) &&
                    gv_perturb_both(p, &different, &c->real, &read);
    // Memory is as the launch with the pattern left it.
    if (going_on && elsewhere.count)
        going_on = check_writes(c, &elsewhere, pattern);
    if (going_on && read.count)
        going_on = check_reads(c, &read, pattern);
    gv_range_set_free(&different);
    gv_range_set_free(&elsewhere);
    gv_range_set_free(&read);
    return going_on;
}

static void write_result(checking *c, const outcome *r, unsigned kind, const gv_rows *rows)
{
    char patterns[96] = "";
    for (int i = 0; i < PATTERN_COUNT; i++)
        if (r->rows_seen[i])
            snprintf(patterns + strlen(patterns), sizeof patterns - strlen(patterns), "%s%s", patterns[0] ? "," : "",
                     pattern_names[i]);
    gv_effect_record effect = {
        .graph = r->graph, .node = r->node, .kind = kind, .patterns = {patterns, strlen(patterns)}};
    if (rows) {
        uint64_t last = UINT64_MAX;
        effect.name = (gv_text){rows->name, strlen(rows->name)};
        for (size_t i = 0; i < r->bytes.count; i++) {
            uint64_t from = (r->bytes.ranges[i].start - rows->address) / rows->row_bytes;
            uint64_t to = (r->bytes.ranges[i].end - 1 - rows->address) / rows->row_bytes;
            effect.rows += to - from + 1 - (from == last);
            effect.first_row = i ? effect.first_row : from;
            effect.last_row = last = to;
        }
    }
    gv_perturb_write_effect(c->p, &effect, &r->bytes);
}

static void check(gv_perturb *p)
{
    char *patterns = p->patterns;
    checking c = {.p = p, .reads = gv_calloc(p->row_count, sizeof(outcome))};
    bool going_on = c.reads && list_memory(&c) && gv_perturb_control(p);
    if (!c.reads)
        gv_perturb_fails(p, "memory ran out");
    for (int i = 0; i < PATTERN_COUNT && going_on; i++) {
        enum pattern pattern = (enum pattern)i;
        if (!applies(p, pattern))
            continue;
        going_on = try_pattern(&c, pattern);
        snprintf(patterns + strlen(patterns), sizeof p->patterns - strlen(patterns), "%s%s", patterns[0] ? "," : "",
                 pattern_names[i]);
    }
    p->record.perturbed_bytes = gv_range_set_bytes(&c.padding);
    // What a pattern showed before another one failed still holds, and so it does beside unstable bytes.
    for (size_t i = 0; i < p->row_count && c.reads; i++)
        if (c.reads[i].bytes.count)
            write_result(&c, &c.reads[i], GV_EFFECT_PAD_READ, &p->rows[i]);
    if (c.writes.bytes.count)
        write_result(&c, &c.writes, GV_EFFECT_PAD_WRITE, NULL);
    for (size_t i = 0; i < p->row_count && c.reads; i++)
        gv_range_set_free(&c.reads[i].bytes);
    gv_range_set_free(&c.writes.bytes);
    gv_range_set_free(&c.padding);
    gv_range_set_free(&c.real);
    gv_range_set_free(&c.tried);
    gv_free(c.reads);
}

bool gv_pad_launch(gv_graph_launch launch, gv_exec *exec, CUstream stream, bool per_thread, CUresult *result,
                   uint64_t *sequence)
{
    gv_perturb p = {.launch = launch, .exec = exec, .stream = stream, .per_thread = per_thread};
    const char *why = "";
    p.record.what = GV_PERTURBED_PADDING;
    gv_rows_batch(&p.real, &p.captured);
    bool launched = gv_perturb_launch(&p, save_rows, check, result, &why);
    exec->pad_refused |= p.unfinished; // what waits for the program now will wait for it again
    if (launched)
        exec->pad_owed = false;
    else
        gv_perturb_refused(&p, why, &exec->pad_owed, &exec->pad_refused);
    *sequence = p.record.launch;
    return launched;
}
