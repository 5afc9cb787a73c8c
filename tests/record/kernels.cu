// Kernels of the recorder's end-to-end tests.
#include "soft/kernel.h"

// buffer[i] = value
GRAVEL_KERNEL(fill, (int *, buffer), (int, count), (int, value))
{
    int i = gravel_thread_index();
    if (i < count)
        buffer[i] = value;
}

// sums[i] = buffer[i] + 1
GRAVEL_KERNEL(add_one, (const int *, buffer), (int *, sums), (int, count))
{
    int i = gravel_thread_index();
    if (i < count)
        sums[i] = buffer[i] + 1;
}

// Waits until *flag is set, or `limit_ms` have passed; says which.
GRAVEL_KERNEL(wait_for_flag, (int *, flag), (int *, seen), (int, limit_ms))
{
    int waited = 0;
    while (atomicAdd(flag, 0) == 0 && waited < limit_ms) {
        gravel_spin_ns(1000000);
        waited++;
    }
    *seen = atomicAdd(flag, 0);
}

GRAVEL_KERNEL(set_flag, (int *, flag), (int, value))
{
    atomicExch(flag, value);
}

// Sets the condition to *value.
GRAVEL_KERNEL(set_condition, (const int *, value), (cudaGraphConditionalHandle, handle))
{
    cudaGraphSetConditional(handle, (unsigned)*value);
}

// The same with the handle in device memory, where nobody sees it go by.
GRAVEL_KERNEL(set_from_memory, (const int *, value), (const cudaGraphConditionalHandle *, handle))
{
    cudaGraphSetConditional(*handle, (unsigned)*value);
}

// Takes one from *left and ends the loop when nothing is left.
GRAVEL_KERNEL(count_down, (int *, left), (cudaGraphConditionalHandle, handle))
{
    if (--*left == 0)
        cudaGraphSetConditional(handle, 0);
}

// to[i] = from[i] + 1, from one of two buffers to the other, by turns; *turn says which.
GRAVEL_KERNEL(write_turn, (int *, even), (int *, odd), (const int *, turn), (int, count))
{
    int i = gravel_thread_index();
    if (i < count)
        (*turn % 2 ? odd : even)[i] += 1;
}
GRAVEL_KERNEL(read_turn, (const int *, even), (const int *, odd), (const int *, turn), (int *, sums), (int, count))
{
    int i = gravel_thread_index();
    if (i < count)
        sums[i] += (*turn % 2 ? even : odd)[i];
}

// pool[slot][...] += value for each slot; a page of the pool has `words` words.
GRAVEL_KERNEL(store_slots, (int *, pool), (const long long *, slots), (int, count), (int, words), (const int *, value))
{
    int i = gravel_thread_index();
    if (i < count * words)
        pool[slots[i / words] * words + i % words] += *value;
}
