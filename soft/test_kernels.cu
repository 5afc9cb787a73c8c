// Kernels of the software driver's tests.
#include "soft/kernel.h"

GRAVEL_GLOBAL(int, counter);
GRAVEL_GLOBAL_ARRAY(int, table, 16);

GRAVEL_KERNEL(fill, (int *, out), (int, value), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        out[i] = value;
}

GRAVEL_KERNEL(copy, (const int *, in), (int *, out), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        out[i] = in[i];
}

GRAVEL_KERNEL(increment, (int *, values), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        values[i] += 1;
}

// Takes up time, then writes.
GRAVEL_KERNEL(late_fill, (int *, out), (int, value), (unsigned long long, nanoseconds))
{
    gravel_spin_ns(nanoseconds);
    *out = value;
}

// Parameters whose places show the layout of the block: a byte, a double, a short, a pointer.
GRAVEL_KERNEL(layout, (char, byte), (double, number), (short, word), (int *, out))
{
    out[0] = byte;
    out[1] = (int)number;
    out[2] = word;
}

// A parameter as large as a tensor map, and as aligned, between others (src/record/test_parameters.c).
struct __attribute__((aligned(64))) map_parameter {
    unsigned long long words[16];
};

GRAVEL_KERNEL(take_map, (int *, first), (int, count), (struct map_parameter, map), (int *, last))
{
    first[0] = count;
    last[0] = (int)map.words[0];
}

GRAVEL_KERNEL(use_globals, (int, value))
{
    atomicAdd(&counter, value);
    table[3] = value;
}

// ---- Access sets ----

GRAVEL_KERNEL(touch_bytes, (unsigned char *, bytes), (int, from), (int, to))
{
    for (int i = from; i < to; i++)
        bytes[i] = 1;
}

GRAVEL_KERNEL(read_bytes, (const unsigned char *, bytes), (int, from), (int, to), (int *, out))
{
    int sum = 0;
    for (int i = from; i < to; i++)
        sum += bytes[i];
    *out = sum;
}

struct record {
    int words[5];
};

GRAVEL_KERNEL(copy_record, (const struct record *, in), (struct record *, out))
{
    *out = *in;
}

GRAVEL_KERNEL(wide, (const double *, in), (unsigned short *, out))
{
    *out = (unsigned short)*in;
}

GRAVEL_KERNEL(count_all, (int *, counters), (unsigned *, bits), (unsigned long long *, largest), (float *, sum))
{
    atomicAdd(counters, 1);
    atomicOr(bits, 4u);
    atomicMax(largest, 10ull);
    atomicAdd(sum, 0.5f);
    atomicCAS(counters + 1, 0, 7);
    atomicExch(counters + 2, 9);
}

GRAVEL_KERNEL(stack_only, (int *, out))
{
    int local[32];
    for (int i = 0; i < 32; i++)
        local[i] = i;
    volatile int *seen = local;
    int sum = 0;
    for (int i = 0; i < 32; i++)
        sum += seen[i];
    *out = sum;
}

GRAVEL_KERNEL(unaligned, (unsigned char *, bytes))
{
    // A four-byte store across a word's edge, as packed structures make it.
    struct __attribute__((packed)) packed {
        unsigned char before;
        int value;
    } *packed = (struct packed *)bytes;
    packed->value = 5;
}

// ---- Barriers ----

GRAVEL_BARRIER_KERNEL(block_sum, (const int *, in), (int *, out))
{
    GRAVEL_SHARED int part[64];
    int i = (int)threadIdx.x;
    part[i] = in[blockIdx.x * 64 + threadIdx.x];
    __syncthreads();
    for (int step = 32; step > 0; step /= 2) {
        if (i < step)
            part[i] += part[i + step];
        __syncthreads();
    }
    if (i == 0)
        out[blockIdx.x] = part[0];
}

GRAVEL_BARRIER_KERNEL(reverse_shared, (int *, values), (int, count))
{
    GRAVEL_DYNAMIC_SHARED(int, kept);
    int i = (int)threadIdx.x;
    kept[i] = values[i];
    __syncthreads();
    values[i] = kept[count - 1 - i];
}

GRAVEL_KERNEL(undeclared_barrier, (int *, out))
{
    __syncthreads();
    *out = 1;
}

GRAVEL_KERNEL(dimensions, (int *, out))
{
    int block = (int)((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x);
    int thread = (int)((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    int threads = (int)(blockDim.x * blockDim.y * blockDim.z);
    out[block * threads + thread] = 1000 * block + thread;
}

// ---- Schedules ----

// Says that it is there and waits, but not for ever, until the other one has said so.
GRAVEL_KERNEL(meet, (volatile int *, mine), (volatile int *, theirs), (int *, met), (int, rounds))
{
    *mine = 1;
    for (int i = 0; i < rounds && !*met; i++) {
        if (*theirs)
            *met = 1;
        gravel_spin_ns(100000);
    }
}

// Adds by a load and a store, so that what another branch adds in between is lost.
GRAVEL_KERNEL(add_slowly, (volatile int *, sum), (int, times))
{
    for (int i = 0; i < times; i++)
        *sum = *sum + 1;
}

// Appends its number to a list; the order of the list is the order of the accesses.
GRAVEL_KERNEL(append, (volatile int *, list), (int, number), (int, times))
{
    for (int i = 0; i < times; i++) {
        int at = list[0];
        list[0] = at + 1;
        list[1 + at % 255] = number;
    }
}

GRAVEL_KERNEL(wait_for_flag, (volatile int *, flag), (int *, out))
{
    while (!*flag)
        gravel_spin_ns(1000);
    *out = 1;
}

// ---- Grid dependencies ----

GRAVEL_DEVICE int meet_until(volatile int *mine, volatile int *theirs, int rounds)
{
    int met = 0;
    *mine = 1;
    for (int i = 0; i < rounds && !met; i++) {
        met = *theirs;
        gravel_spin_ns(100000);
    }
    return met;
}

// Triggers, meets whoever began meanwhile, and writes later.
GRAVEL_KERNEL(trigger_and_write, (volatile int *, mine), (volatile int *, theirs), (int *, met), (int *, data), (int, rounds))
{
    gravel_grid_trigger();
    *met = meet_until(mine, theirs, rounds);
    gravel_spin_ns(300000);
    *data = 5;
}

// Meets the kernel in front, and reads what it writes after its wait.
GRAVEL_KERNEL(meet_and_wait, (volatile int *, mine), (volatile int *, theirs), (int *, met), (const int *, data), (int *, out),
              (int, rounds))
{
    *met = meet_until(mine, theirs, rounds);
    gravel_grid_wait();
    *out = *data;
}

// Reads what the kernel in front has yet to write, and only then lets it go on.
GRAVEL_KERNEL(read_without_wait, (volatile int *, mine), (volatile int *, theirs), (int *, met), (const int *, data),
              (int *, out), (int, rounds))
{
    *out = *(const volatile int *)data;
    *met = meet_until(mine, theirs, rounds);
}

GRAVEL_KERNEL(trigger_then_wait, (int *, out))
{
    gravel_grid_trigger();
    gravel_grid_wait();
    *out = 1;
}

GRAVEL_KERNEL(wait_then_trigger, (int *, out))
{
    gravel_grid_wait();
    gravel_grid_trigger();
    *out = 1;
}

GRAVEL_KERNEL(do_nothing, (int *, out))
{
}

// Each thread reads a weight, waits, and adds its data.
GRAVEL_KERNEL(prefetch, (const int *, weights), (const int *, data), (int *, sums))
{
    int i = (int)gravel_thread_index(), weight = ((const volatile int *)weights)[i];
    gravel_grid_wait();
    sums[i] = weight + data[i];
}

// One thread of a block waits for all of them.
GRAVEL_BARRIER_KERNEL(wait_for_the_block, (const int *, weights), (const int *, data), (int *, sums))
{
    int i = (int)gravel_thread_index(), weight = ((const volatile int *)weights)[i];
    if (threadIdx.x == 0)
        gravel_grid_wait();
    __syncthreads();
    sums[i] = weight + data[i];
}

// ---- Conditional nodes (the software driver only: on a GPU they need cudadevrt) ----

#ifndef __CUDACC__
// Sets the condition to *value.
GRAVEL_KERNEL(set_condition, (const int *, value), (cudaGraphConditionalHandle, handle))
{
    cudaGraphSetConditional(handle, (unsigned)*value);
}

// Takes one from *left and goes on while something is left.
GRAVEL_KERNEL(count_down, (int *, left), (cudaGraphConditionalHandle, handle))
{
    if (--*left == 0)
        cudaGraphSetConditional(handle, 0);
}
#endif
