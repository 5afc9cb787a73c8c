// The table of faults.
#include "specimen/faults.h"

#include <string.h>

#define LIVES  "with the detector of lives of addresses"
#define GRAPHS "with the detector of pairs between graphs"

// clang-format off
const fault fault_table[FAULT_COUNT] = {
    {"early-drop", "The fused projection is dropped before the join, while the branch of the window's keys still reads "
     "it; a copy that the main stream makes next takes its block.",
     "race-war", "now"},
    {"late-fork", "The second look-up's list of entries is cleared in a side stream before that stream has waited for "
     "the main one, which may still read the first look-up's list in the same block.",
     "race-war", "now"},
    {"ordinary-pool", "A small table is made in a side stream before that stream has joined the capture: it lies outside "
     "the graph's pool and is filled once. A prompt's tensor gets its block later, and the graph goes on reading there.",
     "stale-pointer", LIVES},
    {"shared-workspace", "Two projections use one cached workspace, in two streams at a time.",
     "race-waw", "now"},
    {"pool-reader", "A large batch is decoded by two replays, and both results, which lie in the graphs' pool, are read "
     "after the second one.",
     "use-outside-life", GRAPHS},
    {"weak-reference", "With --breakable: the eager gaps hold the plan of their search weakly; its block is given to a "
     "tensor of a later segment before the second gap reads it.",
     "use-outside-life", GRAPHS},
    {"live-table", "The scheduler writes rows of the table of locations again while a replay may still read them: the "
     "event that it waits for is recorded before the replay and not in it.",
     "race-war", GRAPHS},
    {"late-transfer", "With --split: a transfer repeats its write of index keys, without any stream, after the pages "
     "have gone to another request.",
     "canary", "now, with --canary"},
    {"disposed-tensor", "The input of a projection is disposed of before the projection is captured; the node keeps the "
     "address, where another tensor lives by then.",
     "stale-pointer", LIVES},
    {"pad-store", "Padded rows keep the slots and locations of an earlier step and store to them.",
     "pad-write", "now, with gravel run --pad"},
    {"wrong-slice", "The lengths of a step are written to the beginning of their buffer, and the graphs read its end.",
     "stale-metadata", "with poison"},
    {"staging-reuse", "Prompts are uploaded in pieces through one pinned buffer, which is filled again before the copy of "
     "the piece before it has run.",
     "host-staging", "with the detector of host staging"},
    {"baked-grid", "The grid of the index's logits is computed from the longest sequence, which is one token at capture.",
     "baked-value", "with the detector of baked values"},
    {"decoy-pad", "None: rows that complete no entry store to the reserved slot 0, all of them to the same bytes.",
     "-", "-"},
    {"decoy-table", "None: the scheduler does what it does in live-table, but waits for the event in the replay.",
     "-", "-"},
    {"decoy-programmatic", "None: the choice of entries is launched behind a programmatic edge and waits before it touches "
     "anything.", "-", "-"},
    {"decoy-split-k", "None: two branches count into one counter by atomic operations.", "-", "-"},
};
// clang-format on

int fault_find(const char *name)
{
    for (int i = 0; i < FAULT_COUNT; i++)
        if (!strcmp(fault_table[i].name, name))
            return i;
    return -1;
}
