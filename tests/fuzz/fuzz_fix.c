// libFuzzer harness over fix files: see fix_entry.h.
#include "fix_entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gv_fuzz_fix(data, size);
    return 0;
}
