// For kernel sources that are compiled twice: by nvcc for a GPU, and by GCC (-fsanitize=thread, C) for the software
// driver. A source that keeps to this header means the same on both.
//
//     GRAVEL_KERNEL(scale, (float *, values), (int, count), (float, factor))
//     {
//         int i = gravel_thread_index();
//         if (i < count)
//             values[i] *= factor;
//     }
//
// GRAVEL_KERNEL          a kernel; up to 12 parameters, each as (type, name)
// GRAVEL_BARRIER_KERNEL  the same for a kernel that calls __syncthreads, itself or in a function it calls
// GRAVEL_GLOBAL(type, name) / GRAVEL_GLOBAL_ARRAY(type, name, count)   a variable in device memory
// GRAVEL_DEVICE          a function for kernels to call
// GRAVEL_SHARED          in front of a block's shared variable
// GRAVEL_DYNAMIC_SHARED(type, name)   the launch's dynamic shared memory as `type *name`
// threadIdx, blockIdx, blockDim, gridDim, __syncthreads, __threadfence and the 32 and 64 bit atomics
// as in CUDA C++, cudaGraphSetConditional too (nvcc: link the device code with cudadevrt); gravel_thread_index for
// one-dimensional launches; gravel_spin_ns to take up time; gravel_grid_wait and gravel_grid_trigger are
// cudaGridDependencySynchronize and cudaTriggerProgrammaticLaunchCompletion, and nothing before compute capability 9.0.
#ifndef GRAVEL_SOFT_KERNEL_H
#define GRAVEL_SOFT_KERNEL_H

// ---- Lists of (type, name) pairs: GRAVEL_LIST_ puts commas between what M(context, index, pair) makes, GRAVEL_JOIN_
// nothing ----

#define GRAVEL_TYPE_(type, name) type
#define GRAVEL_NAME_(type, name) name

#define GRAVEL_PASTE_(a, b)                                            GRAVEL_PASTE2_(a, b)
#define GRAVEL_PASTE2_(a, b)                                           a##b
#define GRAVEL_COUNT_(...)                                             GRAVEL_COUNT2_(__VA_ARGS__, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define GRAVEL_COUNT2_(a, b, c, d, e, f, g, h, i, j, k, l, count, ...) count

#define GRAVEL_LIST_(M, context, ...)                      GRAVEL_PASTE_(GRAVEL_LIST_, GRAVEL_COUNT_(__VA_ARGS__))(M, context, __VA_ARGS__)
#define GRAVEL_JOIN_(M, context, ...)                      GRAVEL_PASTE_(GRAVEL_JOIN_, GRAVEL_COUNT_(__VA_ARGS__))(M, context, __VA_ARGS__)
#define GRAVEL_LIST_1(M, x, a)                             M(x, 0, a)
#define GRAVEL_LIST_2(M, x, a, b)                          GRAVEL_LIST_1(M, x, a), M(x, 1, b)
#define GRAVEL_LIST_3(M, x, a, b, c)                       GRAVEL_LIST_2(M, x, a, b), M(x, 2, c)
#define GRAVEL_LIST_4(M, x, a, b, c, d)                    GRAVEL_LIST_3(M, x, a, b, c), M(x, 3, d)
#define GRAVEL_LIST_5(M, x, a, b, c, d, e)                 GRAVEL_LIST_4(M, x, a, b, c, d), M(x, 4, e)
#define GRAVEL_LIST_6(M, x, a, b, c, d, e, f)              GRAVEL_LIST_5(M, x, a, b, c, d, e), M(x, 5, f)
#define GRAVEL_LIST_7(M, x, a, b, c, d, e, f, g)           GRAVEL_LIST_6(M, x, a, b, c, d, e, f), M(x, 6, g)
#define GRAVEL_LIST_8(M, x, a, b, c, d, e, f, g, h)        GRAVEL_LIST_7(M, x, a, b, c, d, e, f, g), M(x, 7, h)
#define GRAVEL_LIST_9(M, x, a, b, c, d, e, f, g, h, i)     GRAVEL_LIST_8(M, x, a, b, c, d, e, f, g, h), M(x, 8, i)
#define GRAVEL_LIST_10(M, x, a, b, c, d, e, f, g, h, i, j) GRAVEL_LIST_9(M, x, a, b, c, d, e, f, g, h, i), M(x, 9, j)
#define GRAVEL_LIST_11(M, x, a, b, c, d, e, f, g, h, i, j, k) \
    GRAVEL_LIST_10(M, x, a, b, c, d, e, f, g, h, i, j), M(x, 10, k)
#define GRAVEL_LIST_12(M, x, a, b, c, d, e, f, g, h, i, j, k, l) \
    GRAVEL_LIST_11(M, x, a, b, c, d, e, f, g, h, i, j, k), M(x, 11, l)
#define GRAVEL_JOIN_1(M, x, a)                             M(x, 0, a)
#define GRAVEL_JOIN_2(M, x, a, b)                          GRAVEL_JOIN_1(M, x, a) M(x, 1, b)
#define GRAVEL_JOIN_3(M, x, a, b, c)                       GRAVEL_JOIN_2(M, x, a, b) M(x, 2, c)
#define GRAVEL_JOIN_4(M, x, a, b, c, d)                    GRAVEL_JOIN_3(M, x, a, b, c) M(x, 3, d)
#define GRAVEL_JOIN_5(M, x, a, b, c, d, e)                 GRAVEL_JOIN_4(M, x, a, b, c, d) M(x, 4, e)
#define GRAVEL_JOIN_6(M, x, a, b, c, d, e, f)              GRAVEL_JOIN_5(M, x, a, b, c, d, e) M(x, 5, f)
#define GRAVEL_JOIN_7(M, x, a, b, c, d, e, f, g)           GRAVEL_JOIN_6(M, x, a, b, c, d, e, f) M(x, 6, g)
#define GRAVEL_JOIN_8(M, x, a, b, c, d, e, f, g, h)        GRAVEL_JOIN_7(M, x, a, b, c, d, e, f, g) M(x, 7, h)
#define GRAVEL_JOIN_9(M, x, a, b, c, d, e, f, g, h, i)     GRAVEL_JOIN_8(M, x, a, b, c, d, e, f, g, h) M(x, 8, i)
#define GRAVEL_JOIN_10(M, x, a, b, c, d, e, f, g, h, i, j) GRAVEL_JOIN_9(M, x, a, b, c, d, e, f, g, h, i) M(x, 9, j)
#define GRAVEL_JOIN_11(M, x, a, b, c, d, e, f, g, h, i, j, k) \
    GRAVEL_JOIN_10(M, x, a, b, c, d, e, f, g, h, i, j) M(x, 10, k)
#define GRAVEL_JOIN_12(M, x, a, b, c, d, e, f, g, h, i, j, k, l) \
    GRAVEL_JOIN_11(M, x, a, b, c, d, e, f, g, h, i, j, k) M(x, 11, l)

#define GRAVEL_PARAMETER_(context, index, pair) GRAVEL_TYPE_ pair GRAVEL_NAME_ pair

#ifdef __CUDACC__

#define GRAVEL_DEVICE static __device__ inline
#define GRAVEL_SHARED __shared__
#define GRAVEL_DYNAMIC_SHARED(type, name)                    \
    extern __shared__ unsigned char gravel_dynamic_shared[]; \
    type *name = (type *)gravel_dynamic_shared
#define GRAVEL_GLOBAL(type, name) \
    extern "C" {                  \
    __device__ type name;         \
    }                             \
    struct name##_declared
#define GRAVEL_GLOBAL_ARRAY(type, name, count) \
    extern "C" {                               \
    __device__ type name[count];               \
    }                                          \
    struct name##_declared
#define GRAVEL_KERNEL(name, ...) extern "C" __global__ void name(GRAVEL_LIST_(GRAVEL_PARAMETER_, name, __VA_ARGS__))
#define GRAVEL_BARRIER_KERNEL    GRAVEL_KERNEL

GRAVEL_DEVICE void gravel_spin_ns(unsigned long long nanoseconds)
{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
}

GRAVEL_DEVICE void gravel_grid_wait(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

GRAVEL_DEVICE void gravel_grid_trigger(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#else // GCC

#include "soft/kernel_abi.h"

#define GRAVEL_HIDDEN_ __attribute__((visibility("hidden")))

extern __thread gravel_soft_thread gravel_soft_thread_state GRAVEL_HIDDEN_;
void gravel_soft_barrier(void) GRAVEL_HIDDEN_;
void gravel_spin_ns(unsigned long long nanoseconds) GRAVEL_HIDDEN_;

void gravel_grid_wait(void) GRAVEL_HIDDEN_;
void gravel_grid_trigger(void) GRAVEL_HIDDEN_;

typedef unsigned long long cudaGraphConditionalHandle;
void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned value) GRAVEL_HIDDEN_;

#define threadIdx (gravel_soft_thread_state.thread_index)
#define blockIdx  (gravel_soft_thread_state.block_index)
#define blockDim  (gravel_soft_thread_state.block_size)
#define gridDim   (gravel_soft_thread_state.grid_size)

#define __syncthreads() gravel_soft_barrier()
#define __threadfence() __sync_synchronize() // GCC warns of an atomic fence under -fsanitize=thread

#define GRAVEL_DEVICE                     static inline __attribute__((unused))
#define GRAVEL_SHARED                     static __thread
#define GRAVEL_DYNAMIC_SHARED(type, name) type *name = (type *)gravel_soft_thread_state.dynamic_shared

// Descriptors are found through sections of pointers: unlike structures, the linker puts no padding between those.
#define GRAVEL_LISTED_(section_name, type, name) \
    static const type *const name##_listed __attribute__((section(section_name), used)) = &name##_descriptor

#define GRAVEL_GLOBAL_LISTED_(name)                                                          \
    static const gravel_soft_global name##_descriptor = {#name, (void *)&name, sizeof name}; \
    GRAVEL_LISTED_("gravel_globals", gravel_soft_global, name)
#define GRAVEL_GLOBAL(type, name) \
    extern type name;             \
    GRAVEL_GLOBAL_LISTED_(name);  \
    GRAVEL_HIDDEN_ type name
#define GRAVEL_GLOBAL_ARRAY(type, name, count) \
    extern type name[count];                   \
    GRAVEL_GLOBAL_LISTED_(name);               \
    GRAVEL_HIDDEN_ type name[count]

#define GRAVEL_MEMBER_(context, index, pair) GRAVEL_TYPE_ pair GRAVEL_NAME_ pair;
#define GRAVEL_PLACE_(context, index, pair)                                            \
    {                                                                                  \
        offsetof(struct context##_block, GRAVEL_NAME_ pair), sizeof(GRAVEL_TYPE_ pair) \
    }
#define GRAVEL_UNPACK_(context, index, pair) *(GRAVEL_TYPE_ pair *)gravel_values_[index]

// The structure is there for its offsets: C lays it out as the CUDA ABI lays out a parameter block.
#define GRAVEL_KERNEL_(name, kernel_flags, ...)                                                                       \
    struct name##_block {                                                                                             \
        GRAVEL_JOIN_(GRAVEL_MEMBER_, name, __VA_ARGS__)                                                               \
    };                                                                                                                \
    static void name(GRAVEL_LIST_(GRAVEL_PARAMETER_, name, __VA_ARGS__));                                             \
    static void name##_call(void *const *gravel_values_)                                                              \
    {                                                                                                                 \
        name(GRAVEL_LIST_(GRAVEL_UNPACK_, name, __VA_ARGS__));                                                        \
    }                                                                                                                 \
    static const gravel_soft_parameter name##_parameters[] = {GRAVEL_LIST_(GRAVEL_PLACE_, name, __VA_ARGS__)};        \
    static const gravel_soft_kernel name##_descriptor = {                                                             \
        #name, name##_call, name##_parameters, sizeof name##_parameters / sizeof name##_parameters[0], kernel_flags}; \
    GRAVEL_LISTED_("gravel_kernels", gravel_soft_kernel, name);                                                       \
    static void name(GRAVEL_LIST_(GRAVEL_PARAMETER_, name, __VA_ARGS__))

#define GRAVEL_KERNEL(name, ...)         GRAVEL_KERNEL_(name, 0, __VA_ARGS__)
#define GRAVEL_BARRIER_KERNEL(name, ...) GRAVEL_KERNEL_(name, GRAVEL_SOFT_BARRIER, __VA_ARGS__)

// ---- Atomics: by compare-and-swap where there is no builtin, so that every one of their accesses is atomic ----

#define GRAVEL_ATOMIC_CAS_(type, name)                                                                \
    GRAVEL_DEVICE type name(type *address, type compare, type value)                                  \
    {                                                                                                 \
        __atomic_compare_exchange_n(address, &compare, value, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
        return compare;                                                                               \
    }
GRAVEL_ATOMIC_CAS_(int, gravel_atomic_cas_int)
GRAVEL_ATOMIC_CAS_(unsigned, gravel_atomic_cas_unsigned)
GRAVEL_ATOMIC_CAS_(unsigned long long, gravel_atomic_cas_long)

#define GRAVEL_ATOMIC_LIMIT_(type, name, better)                                                           \
    GRAVEL_DEVICE type name(type *address, type value)                                                     \
    {                                                                                                      \
        type seen = __atomic_load_n(address, __ATOMIC_RELAXED);                                            \
        while (value better seen &&                                                                        \
               !__atomic_compare_exchange_n(address, &seen, value, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) \
            ;                                                                                              \
        return seen;                                                                                       \
    }
GRAVEL_ATOMIC_LIMIT_(int, gravel_atomic_max_int, >)
GRAVEL_ATOMIC_LIMIT_(unsigned, gravel_atomic_max_unsigned, >)
GRAVEL_ATOMIC_LIMIT_(unsigned long long, gravel_atomic_max_long, >)
GRAVEL_ATOMIC_LIMIT_(int, gravel_atomic_min_int, <)
GRAVEL_ATOMIC_LIMIT_(unsigned, gravel_atomic_min_unsigned, <)
GRAVEL_ATOMIC_LIMIT_(unsigned long long, gravel_atomic_min_long, <)

GRAVEL_DEVICE float gravel_atomic_add_float(float *address, float value)
{
    unsigned *word = (unsigned *)address, seen = __atomic_load_n(word, __ATOMIC_RELAXED), wanted;
    float sum;
    do {
        __builtin_memcpy(&sum, &seen, sizeof sum);
        sum += value;
        __builtin_memcpy(&wanted, &sum, sizeof wanted);
    } while (!__atomic_compare_exchange_n(word, &seen, wanted, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    __builtin_memcpy(&sum, &seen, sizeof sum);
    return sum;
}
GRAVEL_DEVICE int gravel_atomic_add_int(int *address, int value)
{
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
GRAVEL_DEVICE unsigned gravel_atomic_add_unsigned(unsigned *address, unsigned value)
{
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
GRAVEL_DEVICE unsigned long long gravel_atomic_add_long(unsigned long long *address, unsigned long long value)
{
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}

// clang-format off
#define GRAVEL_BY_TYPE_(address, stem)                                                                                 \
    _Generic((address), int *: stem##int, unsigned *: stem##unsigned, unsigned long long *: stem##long)
#define atomicAdd(address, value)                                                                                      \
    _Generic((address), float *: gravel_atomic_add_float, int *: gravel_atomic_add_int,                                \
             unsigned *: gravel_atomic_add_unsigned, unsigned long long *: gravel_atomic_add_long)(address, value)
// clang-format on
#define atomicMax(address, value)          GRAVEL_BY_TYPE_(address, gravel_atomic_max_)(address, value)
#define atomicMin(address, value)          GRAVEL_BY_TYPE_(address, gravel_atomic_min_)(address, value)
#define atomicCAS(address, compare, value) GRAVEL_BY_TYPE_(address, gravel_atomic_cas_)(address, compare, value)
#define atomicOr(address, value)           __atomic_fetch_or(address, value, __ATOMIC_RELAXED)
#define atomicAnd(address, value)          __atomic_fetch_and(address, value, __ATOMIC_RELAXED)
#define atomicXor(address, value)          __atomic_fetch_xor(address, value, __ATOMIC_RELAXED)
#define atomicExch(address, value)         __atomic_exchange_n(address, value, __ATOMIC_RELAXED)

#endif

// The index of the calling thread in a one-dimensional launch, and how many threads there are.
GRAVEL_DEVICE unsigned gravel_thread_index(void)
{
    return blockIdx.x * blockDim.x + threadIdx.x;
}
GRAVEL_DEVICE unsigned gravel_thread_count(void)
{
    return gridDim.x * blockDim.x;
}

#endif
