// Kernels of the tests of padding, poison and probes: one thread an element of `rows` rows of `width` elements.
#include "soft/kernel.h"

// out = 2 * in + 1
GRAVEL_KERNEL(double_rows, (const float *, in), (float *, out), (int, rows), (int, width))
{
    int i = (int)gravel_thread_index();
    if (i < rows * width)
        out[i] = 2 * in[i] + 1;
}

// Adds to the element `at`.
GRAVEL_KERNEL(disturb, (float *, values), (int, at), (float, value))
{
    if (gravel_thread_index() == 0)
        values[at] += value;
}

// cache[slots[row]] = in[row]; rows with a negative slot are skipped.
GRAVEL_KERNEL(store_rows, (const float *, in), (const int *, slots), (float *, cache), (int, rows), (int, width))
{
    int i = (int)gravel_thread_index();
    if (i < rows * width && slots[i / width] >= 0)
        cache[slots[i / width] * width + i % width] = in[i];
}

// Largest magnitude of all rows, and rows divided by it. One thread.
GRAVEL_KERNEL(largest, (const float *, in), (float *, amax), (int, rows), (int, width))
{
    if (gravel_thread_index() != 0)
        return;
    float found = 0;
    for (int i = 0; i < rows * width; i++) {
        float value = in[i] < 0 ? -in[i] : in[i];
        if (!(value <= found))
            found = value;
    }
    *amax = found;
}

GRAVEL_KERNEL(divide_rows, (const float *, in), (const float *, amax), (float *, out), (int, rows), (int, width))
{
    int i = (int)gravel_thread_index();
    if (i < rows * width)
        out[i] = in[i] / *amax;
}

// count counts how often it ran
GRAVEL_KERNEL(count_launches, (int *, count))
{
    if (gravel_thread_index() == 0)
        ++*count;
}

// state += in, and out = state: what it was before matters
GRAVEL_KERNEL(accumulate, (const float *, in), (float *, state), (float *, out), (int, rows), (int, width))
{
    int i = (int)gravel_thread_index();
    if (i < rows * width) {
        state[i] += in[i];
        out[i] = state[i];
    }
}
