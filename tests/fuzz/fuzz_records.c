// libFuzzer harness over the records inside a frame: see entry.h.
#include "entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gv_fuzz_records(data, size);
    return 0;
}
