// Sets the value behind a conditional handle, as a program's kernels do.
#include <cstdint>

// One thread: the value becomes `value`, or, with `from`, what that word holds less `value`.
extern "C" __global__ void gravel_set_condition(cudaGraphConditionalHandle handle, const volatile uint32_t *from,
                                                uint32_t value)
{
    cudaGraphSetConditional(handle, from ? *from - value : value);
}
