// libFuzzer harness over what a server answers: see stress_entry.h.
#include "stress_entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gv_fuzz_answer(data, size);
    return 0;
}
