// Applying a fix file to the live program: edges are added to a graph just before the driver makes an executable graph
// of it, and taken away again behind that. docs/fix.md has the rules.
#ifndef GV_RECORD_FIX_H
#define GV_RECORD_FIX_H

#include "record/graph.h"

// gv_fixing (record/graph.h): what is done to one graph for the length of one driver call.

// gv_fixed: the edges that an executable graph runs with, by the structure of the graph it was made of: an update has
// to bring the same ones.

// Reads the entries that `gravel run` prepared (GRAVEL_FIX names the file) and writes them into the trace. Says so when
// that fails; no graph is changed then.
void gv_fix_open(void);

// Before the driver makes an executable graph. NULL: there is no fix file.
gv_fixing *gv_fix_instantiate(CUgraph graph, unsigned long long flags);

// Before the driver updates one.
gv_fixing *gv_fix_update(CUgraphExec exec, CUgraph graph);

// Before the driver replaces a child graph in an executable graph: as an update, of that child graph. NULL also where
// nothing was added inside of it.
gv_fixing *gv_fix_child(CUgraphExec exec, CUgraphNode node, CUgraph child);

// The driver refused the graph. If edges had been added to instantiate it they are taken away, and the call is to be
// made again: true.
bool gv_fix_retry(gv_fixing *fixing, CUresult result);

// Behind the call, whatever came of it: takes the edges away. `node`, when given, is a node that the driver told the
// program of; one of ours becomes NULL.
void gv_fix_end(gv_fixing *fixing, CUgraphNode *node);

// Is there more to tell of an update than that it went on with the edges that the executable graph has?
bool gv_fix_tells(const gv_fixing *fixing);

// For graph.c: writes what was done into the trace, behind the snapshot, and says it.
void gv_fix_write(const gv_fixing *fixing, const gv_snapshot *snapshot);

// What an executable graph runs with now that it was made or updated so. Takes `before` over, which may be NULL.
gv_fixed *gv_fix_keep(gv_fixing *fixing, gv_fixed *before);
void gv_fixed_free(gv_fixed *fixed);

#endif
