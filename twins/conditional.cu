// The kernels of the twins with conditional nodes: in a file of their own, because on a GPU they need CUDA's device runtime.
#include "soft/kernel.h"

// Sets the condition to *value.
GRAVEL_KERNEL(set_condition, (const int *, value), (cudaGraphConditionalHandle, handle))
{
    cudaGraphSetConditional(handle, (unsigned)*value);
}

// Takes one from *left, and ends the loop when nothing is left.
GRAVEL_KERNEL(count_down, (int *, left), (cudaGraphConditionalHandle, handle))
{
    if (--*left == 0)
        cudaGraphSetConditional(handle, 0);
}

// Writes what is left to one of two buffers, by turns.
GRAVEL_KERNEL(write_turn, (int *, even), (int *, odd), (const int *, left), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        (*left % 2 ? odd : even)[i] = *left;
}

// Adds the buffer of `ahead` turns later to the sums.
GRAVEL_KERNEL(add_turn, (const int *, even), (const int *, odd), (const int *, left), (int, ahead), (int *, sums),
              (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        sums[i] += ((*left + ahead) % 2 ? odd : even)[i];
}
