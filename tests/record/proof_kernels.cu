// Kernels of the tests of padding, poison and probes: one thread an element of `rows` rows of `width` elements.
#include "soft/kernel.h"

// out = 2 * in + 1
GRAVEL_KERNEL(double_rows, (const float *, in), (float *, out), (int, rows), (int, width))
{
    int i = (int)gravel_thread_index();
    if (i < rows * width)
        out[i] = 2 * in[i] + 1;
}

// Another number each time, by which kernels below come to a result that is not determined by what they read.
GRAVEL_DEVICE unsigned draw(void)
{
#ifdef __CUDACC__
    unsigned seed = (unsigned)clock64();
#else
    static unsigned calls; // the driver does not know of it, and so nobody puts it back
    unsigned seed = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
#endif
    return seed * 0x9e3779b9u >> 16;
}

// Partial sums that are kept in any order: the workspace is another one each time, what is made of it is not.
GRAVEL_KERNEL(keep_partial, (const float *, in), (float *, workspace), (int, count))
{
    if (gravel_thread_index() != 0)
        return;
    int first = (int)(draw() % (unsigned)count);
    for (int i = 0; i < count; i++)
        workspace[i] = in[(first + i) % count];
}

// Adds one to any one of the numbers.
GRAVEL_KERNEL(count_anywhere, (unsigned *, counts), (int, count))
{
    if (gravel_thread_index() == 0)
        counts[draw() % (unsigned)count]++;
}

// cache[slots[row]] = in[row]; of rows with the same slot any one may be the last.
GRAVEL_KERNEL(store_in_any_order, (const float *, in), (const int *, slots), (float *, cache), (int, rows), (int, width))
{
    int column = (int)gravel_thread_index();
    if (column >= width)
        return;
    int first = (int)(draw() % (unsigned)rows);
    for (int i = 0; i < rows; i++) {
        int row = (first + i) % rows;
        if (slots[row] >= 0)
            cache[slots[row] * width + column] = in[row * width + column];
    }
}

// Sets the lowest bit of each number, or does not.
GRAVEL_KERNEL(disturb_last_bit, (unsigned *, values), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        values[i] = (values[i] & ~1u) | (draw() & 1);
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
