// What the software source hides: GRAVEL_SOFT_BLIND names kernels whose accesses it does not report, so that what is
// done about kernels that the Sanitizer does not see is tried without a GPU too.
#include "base/memory.h"
#include "record/source.h"
#include "trace/record.h"

#include <stdlib.h>
#include <string.h>

// GRAVEL_SOFT_BLIND is a list of KERNEL or KERNEL:WHAT+WHAT..., separated by commas (docs/soft-driver.md).
static const struct {
    const char *word;
    unsigned flags;
} blind_words[] = {
    {"loads", GV_FUNCTION_TENSOR_COPY | GV_FUNCTION_TENSOR_LOAD},
    {"stores", GV_FUNCTION_TENSOR_COPY | GV_FUNCTION_TENSOR_STORE},
    {"updates", GV_FUNCTION_TENSOR_COPY | GV_FUNCTION_TENSOR_REDUCE},
    {"replaces", GV_FUNCTION_TENSOR_REPLACE},
    {"atomics", GV_FUNCTION_ATOMIC},
    {"all", GV_FUNCTION_UNSEEN},
};

static unsigned flags_of_words(const char *words, size_t length)
{
    unsigned flags = 0;
    for (size_t at = 0, next; at < length; at = next + 1) {
        const char *plus = memchr(words + at, '+', length - at);
        next = plus ? (size_t)(plus - words) : length;
        for (size_t i = 0; i < sizeof blind_words / sizeof *blind_words; i++)
            if (strlen(blind_words[i].word) == next - at && !memcmp(blind_words[i].word, words + at, next - at))
                flags |= blind_words[i].flags;
    }
    return flags;
}

unsigned gv_soft_function_flags(const char *name)
{
    const char *list = getenv("GRAVEL_SOFT_BLIND");
    size_t length = name ? strlen(name) : 0;
    while (list && *list && length) {
        const char *end = strchrnul(list, ',');
        if ((size_t)(end - list) >= length && !memcmp(list, name, length)) {
            if (list[length] == ':')
                return flags_of_words(list + length + 1, (size_t)(end - list) - length - 1);
            if (list + length == end)
                return GV_FUNCTION_UNSEEN;
        }
        list = *end ? end + 1 : end;
    }
    return 0;
}

// Removes the ranges of one kind from `tensors` on: all that is left is what lies outside of them.
static bool subtract(gv_node_ranges *ranges, enum gv_access_kind kind, const gv_range *tensors, size_t count)
{
    gv_node_ranges kept = {0};
    size_t at = 0;
    bool enough = true;
    for (size_t i = 0; i < ranges->count[kind] && enough; i++) {
        gv_range left = ranges->ranges[kind][i];
        while (at < count && tensors[at].end <= left.start)
            at++;
        for (size_t t = at; t < count && tensors[t].start < left.end && enough; t++) {
            if (tensors[t].start > left.start)
                enough = gv_node_ranges_append(&kept, kind, left.start, tensors[t].start);
            left.start = tensors[t].end < left.end ? tensors[t].end : left.end;
        }
        if (left.start < left.end && enough)
            enough = gv_node_ranges_append(&kept, kind, left.start, left.end);
    }
    gv_free(ranges->ranges[kind]);
    ranges->ranges[kind] = kept.ranges[kind];
    ranges->count[kind] = kept.count[kind];
    ranges->capacity[kind] = kept.capacity[kind];
    return enough;
}

bool gv_soft_hide(const char *name, const gv_range *tensors, size_t count, gv_node_ranges *ranges)
{
    unsigned flags = gv_soft_function_flags(name);
    bool enough = true;
    if (flags & GV_FUNCTION_UNSEEN)
        gv_node_ranges_clear(ranges);
    if (flags & GV_FUNCTION_TENSOR_LOAD)
        enough = subtract(ranges, GV_ACCESS_READ, tensors, count);
    if (flags & GV_FUNCTION_TENSOR_STORE)
        enough = subtract(ranges, GV_ACCESS_WRITE, tensors, count) && enough;
    if (flags & GV_FUNCTION_TENSOR_REDUCE)
        enough = subtract(ranges, GV_ACCESS_ATOMIC, tensors, count) && enough;
    return enough;
}
