/* The C interface of gravel for programs that `gravel run` records. Header-only: every function looks the recorder up
 * in the process and does nothing when it is not there, so the calls can stay in the program.
 *
 * Build: needs nothing but this header, and -ldl where glibc is older than 2.34. Any thread may call any function.
 */
#ifndef GRAVEL_H
#define GRAVEL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_DEFAULT */
#endif
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Is the recorder in this process? 1 or 0. It may be there and have switched itself off. */
static inline int gravel_present(void)
{
    void *volatile found = dlsym(RTLD_DEFAULT, "gravel_record_arm_next");
    return found != 0;
}

/* Arms the next launch of each executable graph, in addition to what `gravel run --arm` chooses. Two limits: only
 * graphs that --graph names are armed, and under --arm none, which does not prepare for it, none is.
 */
static inline void gravel_arm_next(void)
{
    void (*volatile arm)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "gravel_record_arm_next");
    if (arm)
        arm();
}

/* Declares order that only the program knows, such as a lock or a queue between two threads: what the calling thread
 * enqueued, and what it synchronised with, before gravel_order_release(token) comes before what is enqueued after a
 * later gravel_order_acquire of the same token. Tokens are numbers that the program chooses. The trace keeps the order
 * (docs/order.md, rule 4); `gravel check` does not need it, since it compares nodes of one graph.
 */
static inline void gravel_order_release(uint64_t token)
{
    void (*volatile order)(uint64_t, int) = (void (*)(uint64_t, int))dlsym(RTLD_DEFAULT, "gravel_record_order");
    if (order)
        order(token, 0);
}

/* The other half: see gravel_order_release. */
static inline void gravel_order_acquire(uint64_t token)
{
    void (*volatile order)(uint64_t, int) = (void (*)(uint64_t, int))dlsym(RTLD_DEFAULT, "gravel_record_order");
    if (order)
        order(token, 1);
}

/* ---- Regions: memory of which the program knows what each step may change ----------------------------------------
 * docs/canary.md explains them. `gravel run --canary` and `--checksums` hash the pages of regions between steps.
 *
 * A region is device memory in pages of equal size, numbered from 0; all of it must be allocated. What makes no sense
 * is reported once and ignored: the call then returns 0 or does nothing, and 0 is never a region. Calls that name no
 * region, or one that has ended, do nothing. Without --canary and --checksums every call does nothing.
 */
typedef uint64_t gravel_region;
typedef uint64_t gravel_transfer;

enum { GRAVEL_REGION_CANARY_ = 1, GRAVEL_REGION_CHECKSUM_ = 2 };

static inline gravel_region gravel_region_declare_(const char *name, uint64_t base, uint64_t bytes, uint64_t page_bytes,
                                                   unsigned what)
{
    typedef uint64_t begin_function(const char *, uint64_t, uint64_t, uint64_t, unsigned);
    begin_function *volatile begin = (begin_function *)dlsym(RTLD_DEFAULT, "gravel_record_region_begin");
    return begin ? begin(name, base, bytes, page_bytes, what) : 0;
}

/* Declares a region: `name` for reports (copied), `base` its device address, `bytes` its size, `page_bytes` that of a
 * page (the last page may be shorter; 0: the whole region is one page). It is watched from the next step on.
 */
static inline gravel_region gravel_region_begin(const char *name, uint64_t base, uint64_t bytes, uint64_t page_bytes)
{
    return gravel_region_declare_(name, base, bytes, page_bytes, GRAVEL_REGION_CANARY_ | GRAVEL_REGION_CHECKSUM_);
}

/* The same for memory that any step may change anywhere: only `--checksums` looks at it. */
static inline gravel_region gravel_checksum_region(const char *name, uint64_t base, uint64_t bytes, uint64_t page_bytes)
{
    return gravel_region_declare_(name, base, bytes, page_bytes, GRAVEL_REGION_CHECKSUM_);
}

/* Ends a region: call it before its memory is freed. What changed since the last step is not looked at any more. */
static inline void gravel_region_end(gravel_region region)
{
    void (*volatile end)(uint64_t) = (void (*)(uint64_t))dlsym(RTLD_DEFAULT, "gravel_record_region_end");
    if (end)
        end(region);
}

/* Puts a region into a group: a number that the program chooses, such as the address of an engine. The steps of a
 * group are those of gravel_step_of with this number. Without this call a region is in group 0.
 */
static inline void gravel_region_group(gravel_region region, uint64_t group)
{
    typedef void group_function(uint64_t, uint64_t);
    group_function *volatile set = (group_function *)dlsym(RTLD_DEFAULT, "gravel_record_region_group");
    if (set)
        set(region, group);
}

/* A step ends: everything it does to the regions of group 0 has been enqueued on `stream` (a CUstream or
 * cudaStream_t), or is ordered before this point of it; what comes next in the stream belongs to the next step. The
 * pages are hashed there. Not to be called while the stream is capturing (it is ignored then).
 */
static inline void gravel_step_of(uint64_t group, void *stream)
{
    void (*volatile step)(uint64_t, void *) = (void (*)(uint64_t, void *))dlsym(RTLD_DEFAULT, "gravel_record_step");
    if (step)
        step(group, stream);
}
static inline void gravel_step(void *stream)
{
    gravel_step_of(0, stream);
}

/* What the step under way, the one that the next gravel_step ends, may change in a region. Several declarations add
 * up, and end with the step. A step without any may change nothing; but until the first declaration for a region its
 * steps may do anything, so that an engine which only declares regions hears no false alarm.
 *
 * Here by slots: `count` numbers, of which `slots_per_page` lie on a page (copied; negative ones are left out).
 */
static inline void gravel_allow_slots(gravel_region region, const int64_t *slots, size_t count, uint64_t slots_per_page)
{
    typedef void allow_function(uint64_t, const int64_t *, size_t, uint64_t);
    allow_function *volatile allow = (allow_function *)dlsym(RTLD_DEFAULT, "gravel_record_allow_slots");
    if (allow)
        allow(region, slots, count, slots_per_page);
}

/* By page numbers. */
static inline void gravel_allow_pages(gravel_region region, const int64_t *pages, size_t count)
{
    gravel_allow_slots(region, pages, count, 1);
}

/* By a tensor of slots in device memory, of `index_bytes` (4 or 8) each, signed. It is read when the step ends, in the
 * order of that stream, and must hold the step's slots until then.
 */
static inline void gravel_allow_index(gravel_region region, uint64_t address, size_t count, unsigned index_bytes,
                                      uint64_t slots_per_page)
{
    typedef void allow_function(uint64_t, uint64_t, size_t, unsigned, uint64_t);
    allow_function *volatile allow = (allow_function *)dlsym(RTLD_DEFAULT, "gravel_record_allow_index");
    if (allow)
        allow(region, address, count, index_bytes, slots_per_page);
}

/* By a function, which is called in every gravel_step from now on, on the thread that calls it and before the pages
 * are hashed. It writes at most `capacity` page numbers to `pages` and returns how many there are; if that is more
 * than the capacity it is called once again with room for them. NULL takes it back.
 */
typedef size_t gravel_allow_function(void *user, uint64_t step, int64_t *pages, size_t capacity);
static inline void gravel_allow_callback(gravel_region region, gravel_allow_function *function, void *user)
{
    typedef void allow_function(uint64_t, gravel_allow_function *, void *);
    allow_function *volatile allow = (allow_function *)dlsym(RTLD_DEFAULT, "gravel_record_allow_callback");
    if (allow)
        allow(region, function, user);
}

/* This step may change any page of the region. */
static inline void gravel_allow_all(gravel_region region)
{
    void (*volatile allow)(uint64_t) = (void (*)(uint64_t))dlsym(RTLD_DEFAULT, "gravel_record_allow_all");
    if (allow)
        allow(region);
}

/* A transfer, on any stream or on none, writes these pages from now on (`pages` NULL: any page) until
 * gravel_transfer_end: they are left out of every step that it overlaps. Call the end when the transfer has completed,
 * not when it has been enqueued.
 */
static inline gravel_transfer gravel_transfer_begin(gravel_region region, const int64_t *pages, size_t count)
{
    typedef uint64_t begin_function(uint64_t, const int64_t *, size_t);
    begin_function *volatile begin = (begin_function *)dlsym(RTLD_DEFAULT, "gravel_record_transfer_begin");
    return begin ? begin(region, pages, count) : 0;
}
static inline void gravel_transfer_end(gravel_transfer transfer)
{
    void (*volatile end)(uint64_t) = (void (*)(uint64_t))dlsym(RTLD_DEFAULT, "gravel_record_transfer_end");
    if (end)
        end(transfer);
}

/* ---- Rows and padding ----
 * A graph that is captured for a fixed number of rows (a batch size) is launched with fewer real rows; the rest is
 * padding. Declaring the static inputs and outputs that are made of rows, and how many rows of a launch are real, lets
 * gravel leave padding out where it compares results, and check that padding does no harm (docs/padding.md).
 */
enum {
    GRAVEL_ROWS_IN = 1,    /* the graph reads them; the program fills them between launches */
    GRAVEL_ROWS_OUT = 2,   /* the graph writes them; the program reads the real ones after a launch */
    GRAVEL_ROWS_INDEX = 4, /* they hold integers that kernels index memory with: slots, pages, positions, lengths */
    /* With INDEX: the value that marks a padded row. 0: kernels use it like any other, and what lies there belongs to
     * nobody (a reserved slot). -1: kernels skip the row. With neither, no value is known to be safe. */
    GRAVEL_ROWS_ZERO_IS_PAD = 8,
    GRAVEL_ROWS_MINUS_ONE_IS_PAD = 16,
    /* 1, for lengths that must not be 0: rows of one integer of 4 or 8 bytes. */
    GRAVEL_ROWS_ONE_IS_PAD = 64
};

/* Declares `rows` rows of `row_bytes` bytes, one behind the other from device address `address` on: a static input or
 * output of graphs. `flags`: GRAVEL_ROWS_..., IN or OUT or both among them. The memory must be allocated; the
 * declaration ends when it is freed. Rows of the same address replace earlier ones. `name` is copied (63 characters)
 * and may be null. A declaration that makes no sense is ignored, with a line on standard error the first time.
 */
static inline void gravel_rows(const char *name, uint64_t address, uint64_t row_bytes, uint64_t rows, unsigned flags)
{
    typedef void function(const char *, uint64_t, uint64_t, uint64_t, unsigned);
    function *volatile declare = (function *)dlsym(RTLD_DEFAULT, "gravel_record_rows");
    if (declare)
        declare(name, address, row_bytes, rows, flags);
}

/* How many rows are real in the graph launches that the calling thread makes from here on, until it says something
 * else (UINT64_MAX: all of them), and how many rows these graphs were captured for: rows behind those are not theirs.
 * For a thread that never says so, what any thread said last holds.
 */
static inline void gravel_batch_rows(uint64_t real, uint64_t captured)
{
    typedef void function(uint64_t, uint64_t);
    function *volatile batch = (function *)dlsym(RTLD_DEFAULT, "gravel_record_batch_rows");
    if (batch)
        batch(real, captured);
}

/* The same for graphs that were captured for all declared rows. */
static inline void gravel_real_rows(uint64_t count)
{
    gravel_batch_rows(count, UINT64_MAX);
}

/* Declares memory that holds nothing from one graph launch to the next: workspaces, intermediate results, a slot that
 * is kept for padded rows. A launch must write each byte of it before it reads it, and nobody cares what is in it
 * afterwards. For `bytes` bytes from `address` on; otherwise as gravel_rows.
 */
static inline void gravel_scratch(const char *name, uint64_t address, uint64_t bytes)
{
    typedef void function(const char *, uint64_t, uint64_t);
    function *volatile declare = (function *)dlsym(RTLD_DEFAULT, "gravel_record_scratch");
    if (declare)
        declare(name, address, bytes);
}

/* ---- Probes: graph against eager ----
 * docs/probes.md explains them. `gravel run --probe` turns them on; without it, and without gravel, every call answers
 * "absent" and does nothing, so that an engine can keep the calls in.
 *
 * While a graph is captured, a probe clones a tensor: the copy is a node of the graph, and each replay refreshes the
 * clone, whose address never changes. Clones are kept by (name, layer, bucket), where the bucket is the number of rows
 * that the graph was captured for. After a replay the program computes the same eagerly from the clones of its inputs,
 * and has the result compared with the clone of the graph's. Different: the graph computed wrongly from right inputs.
 * Equal: if something is wrong, the inputs already were.
 */
typedef struct gravel_clone {
    uint64_t address;         /* of the clone on the device; valid until the process ends */
    uint64_t row_bytes, rows; /* as probed */
    uint64_t bucket;          /* of this clone */
    uint64_t launches;        /* how many launches of its graph have refreshed it */
    int fallback; /* 1: the bucket asked for has no clone, this is that of the graph that was launched last */
} gravel_clone;

enum gravel_dtype {
    GRAVEL_BYTES = 0, /* compared bit by bit */
    GRAVEL_F64 = 1,
    GRAVEL_F32 = 2,
    GRAVEL_F16 = 3,
    GRAVEL_BF16 = 4,
    GRAVEL_F8_E4M3 = 5,
    GRAVEL_F8_E5M2 = 6,
    GRAVEL_I64 = 7,
    GRAVEL_I32 = 8,
    GRAVEL_I8 = 9
};

/* In a capture: clones `rows` rows of `row_bytes` bytes from device address `address` on, at this point of `stream`
 * (a CUstream or cudaStream_t that is capturing). The clone is memory of gravel's own, outside of every allocator of
 * the program, so that probing moves no other tensor. 1: it will be there; 0: absent: gravel is not there or not asked
 * for probes, the stream is not capturing, or the clone would go beyond the budget (--probe-memory), which is said
 * once.
 */
static inline int gravel_probe(const char *name, uint64_t layer, uint64_t bucket, uint64_t address, uint64_t row_bytes,
                               uint64_t rows, void *stream)
{
    typedef int function(const char *, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, void *);
    function *volatile probe = (function *)dlsym(RTLD_DEFAULT, "gravel_record_probe");
    return probe ? probe(name, layer, bucket, address, row_bytes, rows, 0, stream) : 0;
}

/* The same into memory of the program's, rows * row_bytes bytes at `clone`, such as a tensor from the graph's own pool:
 * as an engine's probe would do it, at the cost of moving other blocks. It must live as long as the graph.
 */
static inline int gravel_probe_into(const char *name, uint64_t layer, uint64_t bucket, uint64_t address,
                                    uint64_t row_bytes, uint64_t rows, uint64_t clone, void *stream)
{
    typedef int function(const char *, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, void *);
    function *volatile probe = (function *)dlsym(RTLD_DEFAULT, "gravel_record_probe");
    return probe ? probe(name, layer, bucket, address, row_bytes, rows, clone, stream) : 0;
}

/* The clone of a key: 1, and fills `clone`. When the bucket has none, that of the graph that was launched last. 0:
 * absent, or no graph that has one was launched yet. Order what reads it after the replay, and before the next one.
 */
static inline int gravel_probe_find(const char *name, uint64_t layer, uint64_t bucket, gravel_clone *clone)
{
    typedef int function(const char *, uint64_t, uint64_t, gravel_clone *);
    function *volatile find = (function *)dlsym(RTLD_DEFAULT, "gravel_record_probe_find");
    return find ? find(name, layer, bucket, clone) : 0;
}

/* Compares the first `real_rows` rows of the clone that gravel_probe_find gives with the same rows at device address
 * `eager`, once all work of `stream` is done, and records the result. `dtype`: enum gravel_dtype. `tolerance`: 0: bit
 * by bit; else how much two values may differ, relative to the larger one. Answers how many elements differ; -1:
 * absent, or nothing could be compared (said once). A row that is not a whole number of elements is compared bit by
 * bit.
 */
static inline int64_t gravel_probe_compare(const char *name, uint64_t layer, uint64_t bucket, uint64_t real_rows,
                                           uint64_t eager, unsigned dtype, double tolerance, void *stream)
{
    typedef int64_t function(const char *, uint64_t, uint64_t, uint64_t, uint64_t, unsigned, double, void *);
    function *volatile compare = (function *)dlsym(RTLD_DEFAULT, "gravel_record_probe_compare");
    return compare ? compare(name, layer, bucket, real_rows, eager, dtype, tolerance, stream) : -1;
}

#ifdef __cplusplus
}
#endif

#endif
