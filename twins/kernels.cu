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
