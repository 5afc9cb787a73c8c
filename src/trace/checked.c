// Brings the differences of each checked launch together. A launch whose checked record is missing (the process died in
// the middle) was not compared: its differences, of which some may be missing, are left to themselves.
#include "trace/load.h"

#include <stdlib.h>

static int by_launch_then_position(const void *a, const void *b)
{
    const gv_difference *x = a, *y = b;
    if (x->launch != y->launch)
        return x->launch < y->launch ? -1 : 1;
    if (x->position != y->position)
        return x->position < y->position ? -1 : 1;
    if (x->graph != y->graph)
        return x->graph < y->graph ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

// The first difference at or behind a launch.
static size_t lower_bound(const gv_trace *trace, uint64_t launch)
{
    size_t low = 0, high = trace->difference_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (trace->differences[middle].launch < launch)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void gv_load_checked(gv_loader *loader)
{
    gv_trace *trace = loader->trace;
    if (trace->difference_count)
        qsort(trace->differences, trace->difference_count, sizeof *trace->differences, by_launch_then_position);
    for (size_t i = 0; i < trace->checked_count; i++) {
        gv_checked *checked = &trace->checked[i];
        trace->undefined += gv_trace_operation(trace, checked->launch) == NULL;
        checked->first_difference = lower_bound(trace, checked->launch);
        size_t end = checked->launch == UINT64_MAX ? trace->difference_count : lower_bound(trace, checked->launch + 1);
        checked->difference_count = end - checked->first_difference;
    }
}
