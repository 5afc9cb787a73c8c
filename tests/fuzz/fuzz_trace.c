// libFuzzer harness over whole trace files: see entry.h.
#include "entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gv_fuzz_trace(data, size);
    return 0;
}
