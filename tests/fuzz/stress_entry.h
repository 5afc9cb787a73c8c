// Entries of the fuzzers of `gravel stress`: what a server answers, and scenario files. Each aborts when a promise is
// broken.
#ifndef GV_FUZZ_STRESS_ENTRY_H
#define GV_FUZZ_STRESS_ENTRY_H

#include <stddef.h>
#include <stdint.h>

// An answer, as the client reads it. The first byte says how it comes: bit 7 streamed or whole, the other bits how many
// bytes a piece has. A stream read in pieces gives the same as the stream read at once.
void gv_fuzz_answer(const uint8_t *data, size_t size);

// A scenario file, and two of its sessions when it can be read.
void gv_fuzz_scenario(const uint8_t *data, size_t size);

#endif
