// What the fuzzers and the replay of their corpus call: one entry for a whole trace file, one for the records inside
// a frame. Both return normally for every input, and end the process when a promise of trace.h or reader.h is broken.
#ifndef GV_TESTS_FUZZ_ENTRY_H
#define GV_TESTS_FUZZ_ENTRY_H

#include <stddef.h>
#include <stdint.h>

// `data` is a trace file.
void gv_fuzz_trace(const uint8_t *data, size_t size);

// `data` is what follows the frame record in a frame. Compression and checksum would hide this level from a fuzzer
// that works on whole files.
void gv_fuzz_records(const uint8_t *data, size_t size);

#endif
