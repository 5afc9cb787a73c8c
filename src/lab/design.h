// Which cells a plan runs, in which order, and which effects a fractional design cannot tell apart.
#ifndef GV_LAB_DESIGN_H
#define GV_LAB_DESIGN_H

#include "lab/plan.h"
#include "stress/session.h" // gv_random

// A number that depends on all three and looks random.
uint64_t gv_random_mix(uint64_t seed, uint64_t stream, uint64_t index);

// Puts 0 .. count - 1 into `order`, shuffled by the plan's seed and the block's number.
void gv_block_order(uint64_t seed, uint64_t block, size_t *order, size_t count);

// The seed of a trial, 0 to 2^31 - 1, which the trial's command takes as ${seed}.
uint64_t gv_trial_seed(uint64_t seed, uint64_t trial);

// The index of a cell in the design, or -1 when the design does not run it.
long gv_design_find(const gv_plan *plan, const gv_cell *cell);

// In how many factors two cells differ; `*factors` gets the bit set of them.
unsigned gv_cell_difference(const gv_plan *plan, const gv_cell *a, const gv_cell *b, uint32_t *factors);

// An effect is a bit set of factors: one bit a main effect, two an interaction. The other effects of at most two
// factors that a fractional design cannot tell from `effect`; returns how many were put into `aliases`.
size_t gv_design_aliases(const gv_plan *plan, uint32_t effect, uint32_t *aliases, size_t room);

#endif
