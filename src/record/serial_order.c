#include "record/serial_order.h"

#include "base/memory.h"

#include <stdlib.h>

// The edges of a graph by the node they lead from.
typedef struct followers {
    uint32_t *first;   // node_count + 1
    uint32_t *targets; // of node i, ascending: [first[i], first[i + 1])
    uint32_t *waiting; // how many edges lead to each node
} followers;

static void free_followers(followers *f)
{
    gv_free(f->first);
    gv_free(f->targets);
    gv_free(f->waiting);
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static bool list_followers(const gv_snapshot *snapshot, followers *f)
{
    size_t nodes = snapshot->node_count, edges = snapshot->edge_count;
    *f = (followers){gv_calloc(nodes + 1, sizeof *f->first), gv_calloc(edges, sizeof *f->targets),
                     gv_calloc(nodes, sizeof *f->waiting)};
    uint32_t *next = gv_calloc(nodes, sizeof *next);
    if (!f->first || !f->targets || !f->waiting || !next) {
        free_followers(f);
        gv_free(next);
        return false;
    }
    for (size_t i = 0; i < edges; i++) {
        f->first[snapshot->edges[4 * i] + 1]++;
        f->waiting[snapshot->edges[4 * i + 1]]++;
    }
    for (size_t i = 0; i < nodes; i++)
        f->first[i + 1] += f->first[i];
    for (size_t i = 0; i < nodes; i++)
        next[i] = f->first[i];
    for (size_t i = 0; i < edges; i++)
        f->targets[next[snapshot->edges[4 * i]]++] = (uint32_t)snapshot->edges[4 * i + 1];
    for (size_t i = 0; i < nodes; i++)
        if (f->first[i + 1] > f->first[i])
            qsort(f->targets + f->first[i], f->first[i + 1] - f->first[i], sizeof *f->targets, ascending);
    gv_free(next);
    return true;
}

// One branch to its end before the next one. What became ready last runs next; of several, the lowest number, or, with
// `turned`, the highest.
static void by_branches(const gv_snapshot *snapshot, const followers *f, uint32_t *ready, bool turned, uint32_t *order)
{
    size_t count = 0, done = 0, nodes = snapshot->node_count;
    for (size_t i = 0; i < nodes; i++) {
        uint32_t node = (uint32_t)(turned ? i : nodes - 1 - i);
        if (!f->waiting[node])
            ready[count++] = node;
    }
    while (count) {
        uint32_t node = ready[--count], edges = f->first[node + 1] - f->first[node];
        order[done++] = node;
        for (uint32_t i = 0; i < edges; i++) {
            uint32_t target = f->targets[turned ? f->first[node] + i : f->first[node + 1] - 1 - i];
            if (--f->waiting[target] == 0)
                ready[count++] = target;
        }
    }
}

static void at_random(const gv_snapshot *snapshot, const followers *f, uint32_t *ready, uint64_t seed, uint32_t *order)
{
    size_t count = 0, done = 0;
    uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
    for (size_t i = 0; i < snapshot->node_count; i++)
        if (!f->waiting[i])
            ready[count++] = (uint32_t)i;
    while (count) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        size_t pick = (size_t)((state >> 33) % count);
        uint32_t node = ready[pick];
        ready[pick] = ready[--count];
        order[done++] = node;
        for (uint32_t i = f->first[node]; i < f->first[node + 1]; i++)
            if (--f->waiting[f->targets[i]] == 0)
                ready[count++] = f->targets[i];
    }
}

bool gv_serial_order(const gv_snapshot *snapshot, uint64_t which, uint32_t *order)
{
    followers f;
    uint32_t *ready = gv_calloc(snapshot->node_count, sizeof *ready);
    bool made = ready && list_followers(snapshot, &f);
    if (made && which < 2)
        by_branches(snapshot, &f, ready, which == 1, order);
    else if (made)
        at_random(snapshot, &f, ready, which, order);
    if (made)
        free_followers(&f);
    gv_free(ready);
    return made;
}
