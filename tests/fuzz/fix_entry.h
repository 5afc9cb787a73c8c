// What the fuzzer of fix files does with an input; test_corpus.c replays kept inputs through it.
#ifndef GV_FUZZ_FIX_ENTRY_H
#define GV_FUZZ_FIX_ENTRY_H

#include <stddef.h>
#include <stdint.h>

// Reads the bytes as a fix file. Aborts when the reader breaks a promise of its header, or when what it accepted is not
// what is read of it once it was written again.
void gv_fuzz_fix(const uint8_t *data, size_t size);

#endif
