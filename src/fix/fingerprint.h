// Fingerprints of the graphs of a trace (trace/fingerprint.h says what they are).
#ifndef GV_FIX_FINGERPRINT_H
#define GV_FIX_FINGERPRINT_H

#include "trace/fingerprint.h"
#include "trace/trace.h"

// Both levels of a graph with its child graphs and bodies. GV_ERR_MISSING when some of its nodes or edges are not in
// the trace.
gv_status gv_fingerprint_trace_graph(const gv_trace *trace, uint64_t graph, gv_fingerprints *prints, gv_error *error);

// By index, the numbers of a graph's own nodes (gv_fingerprint_numbers). To be freed; NULL when memory is out.
uint32_t *gv_fingerprint_trace_numbers(const gv_trace *trace, uint64_t graph);

#endif
