// What `gravel run --canary-region` takes: which allocations to watch in a program that declares no regions.
//
//     [const:]KEY=VALUE[,KEY=VALUE...]
//
// size=N or size=N..M (K, M and G stand for powers of 1024), name=TEXT (of the variable or region), stack=TEXT (a
// Python frame "FILE:LINE FUNCTION" or the name of a function of a shared library, of the call that allocates), page=N.
// All of them have to hold.
#ifndef GV_RECORD_PATTERN_H
#define GV_RECORD_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gv_pattern {
    char text[128];           // as it was given
    bool constant;            // nothing may change the memory
    uint64_t least, most;     // bytes
    uint64_t page_bytes;      // 0: not said
    char name[64], stack[64]; // empty: any
} gv_pattern;

// Reads one pattern. False when it makes no sense: `why` says what is wrong (static text).
bool gv_pattern_parse(const char *text, size_t length, gv_pattern *pattern, const char **why);

// Reads patterns, one a line; those that make no sense are said and left out. To be freed with gv_free.
gv_pattern *gv_patterns_parse(const char *text, size_t *count);

// The first one that the allocation under way matches, or NULL. `name` may be NULL. Looks at the calling thread's stack
// only when a pattern asks for it.
const gv_pattern *gv_pattern_find(const gv_pattern *patterns, size_t count, uint64_t size, const char *name);

#endif
