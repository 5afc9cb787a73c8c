// libFuzzer harness over scenario files: see stress_entry.h.
#include "stress_entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gv_fuzz_scenario(data, size);
    return 0;
}
