// The kernels of all twins, for nvcc and for the software driver (soft/kernel.h). Each role has a name of its own, so
// that a finding's two names say which twin and which side it is.
#include "soft/kernel.h"

// Writes value, value + 1, ...
#define PRODUCER(name)                                                                                                 \
    GRAVEL_KERNEL(name, (int *, out), (int, value), (int, count))                                                      \
    {                                                                                                                  \
        int i = (int)gravel_thread_index();                                                                            \
        if (i < count)                                                                                                 \
            out[i] = value + i;                                                                                        \
    }

// Doubles what it reads.
#define CONSUMER(name)                                                                                                 \
    GRAVEL_KERNEL(name, (const int *, in), (int *, out), (int, count))                                                 \
    {                                                                                                                  \
        int i = (int)gravel_thread_index();                                                                            \
        if (i < count)                                                                                                 \
            out[i] = 2 * in[i];                                                                                        \
    }

PRODUCER(make_left)
PRODUCER(make_right)
PRODUCER(make_next)
CONSUMER(use_left)
CONSUMER(use_right)
CONSUMER(use_next)

// Takes up time and touches nothing: holds a branch up, so that the other one gets ahead.
GRAVEL_KERNEL(hold, (unsigned long long, nanoseconds))
{
    if (gravel_thread_index() == 0)
        gravel_spin_ns(nanoseconds);
}

GRAVEL_KERNEL(update_in_place, (int *, values), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        values[i] += 1000;
}

GRAVEL_KERNEL(fill_low, (unsigned char *, bytes), (int, value), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        bytes[i] = (unsigned char)value;
}

GRAVEL_KERNEL(fill_high, (unsigned char *, bytes), (int, value), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        bytes[i] = (unsigned char)value;
}

GRAVEL_KERNEL(count_left, (int *, counters), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        atomicAdd(&counters[i], 1);
}

GRAVEL_KERNEL(count_right, (int *, counters), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        atomicAdd(&counters[i], 2);
}

GRAVEL_KERNEL(store_right, (int *, counters), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        counters[i] = 2;
}

// ---- Programmatic dependent launches ----

// Lets its dependents begin, and writes later. For one block of fewer threads than there are elements, so that all of it
// comes after its trigger also where blocks run one after another.
GRAVEL_KERNEL(make_triggering, (int *, out), (int, value), (int, count), (unsigned long long, nanoseconds))
{
    int first = (int)gravel_thread_index();
    gravel_grid_trigger();
    if (first == 0)
        gravel_spin_ns(nanoseconds);
    for (int i = first; i < count; i += (int)gravel_thread_count())
        out[i] = value + i;
}

GRAVEL_KERNEL(use_after_wait, (const int *, in), (int *, out), (int, count))
{
    int i = (int)gravel_thread_index();
    gravel_grid_wait();
    if (i < count)
        out[i] = 2 * in[i];
}

GRAVEL_KERNEL(use_without_wait, (const int *, in), (int *, out), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        out[i] = 2 * in[i];
}

// Reads one input before its wait and the other one after it.
GRAVEL_KERNEL(prefetch, (const int *, first), (const int *, second), (int *, out), (int, count))
{
    int i = (int)gravel_thread_index();
    int early = i < count ? ((const volatile int *)first)[i] : 0;
    gravel_grid_wait();
    if (i < count)
        out[i] = early + second[i];
}

// The middle of a chain: three ways to stand between a kernel and the one behind it.
GRAVEL_KERNEL(wait_and_trigger, (int *, own), (int, count))
{
    int i = (int)gravel_thread_index();
    gravel_grid_wait();
    gravel_grid_trigger();
    if (i < count)
        own[i] += 1;
}

GRAVEL_KERNEL(trigger_and_wait, (int *, own), (int, count))
{
    int i = (int)gravel_thread_index();
    gravel_grid_trigger();
    gravel_grid_wait();
    if (i < count)
        own[i] += 1;
}

GRAVEL_KERNEL(no_wait, (int *, own), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        own[i] += 1;
}

GRAVEL_KERNEL(mix, (const int *, left), (const int *, right), (int *, out), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        out[i] = left[i] + right[i];
}

// ---- Rows and padding: TWIN_ROWS rows of TWIN_WIDTH elements, one thread an element --------------------------------

// cache[slots[row]] = in[row]; a row whose slot is negative is skipped.
GRAVEL_KERNEL(store_rows, (const int *, in), (const int *, slots), (int *, cache), (int, rows), (int, width))
{
    int i = (int)gravel_thread_index();
    if (i < rows * width && slots[i / width] >= 0)
        cache[slots[i / width] * width + i % width] = in[i];
}

// Each thread takes the next place of a queue, in the order in which they come, and leaves its number there.
GRAVEL_KERNEL(take_places, (int *, taken), (int *, queue), (int, first), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        queue[atomicAdd(taken, 1)] = first + i;
}

// How many tokens the rows have together. One thread.
GRAVEL_KERNEL(count_tokens, (const int *, lengths), (int *, total), (int, rows))
{
    if (gravel_thread_index() != 0)
        return;
    int sum = 0;
    for (int i = 0; i < rows; i++)
        sum += lengths[i];
    *total = sum;
}

// Each element's share of all tokens.
GRAVEL_KERNEL(share_rows, (const int *, in), (const int *, total), (int *, out), (int, rows), (int, width))
{
    int i = (int)gravel_thread_index();
    if (i < rows * width)
        out[i] = in[i] * 1000 / (*total ? *total : 1);
}

// The largest magnitude in the first *counted rows; a NaN counts as larger than all. One thread.
GRAVEL_KERNEL(find_largest, (const float *, in), (const int *, counted), (float *, largest), (int, rows), (int, width))
{
    if (gravel_thread_index() != 0)
        return;
    float found = 0;
    for (int i = 0; i < *counted * width && i < rows * width; i++) {
        float value = in[i] < 0 ? -in[i] : in[i];
        if (!(value <= found))
            found = value;
    }
    *largest = found;
}

// Rounded to 1/127 of the largest magnitude, as for a format of 8 bits with one scale.
GRAVEL_KERNEL(scale_rows, (const float *, in), (const float *, largest), (float *, out), (int, rows), (int, width))
{
    int i = (int)gravel_thread_index();
    if (i < rows * width)
        out[i] = in[i] * 127 / *largest;
}
