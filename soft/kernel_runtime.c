// Linked into every shared object of kernels: answers the call-outs that GCC's -fsanitize=thread put in front of
// each access, and tells the driver what is in the object. Compiled without that option. Everything but the module's
// description is hidden, so that a process with the real ThreadSanitizer in it keeps both apart.
#include "soft/kernel_abi.h"

#include <stdbool.h>

#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN __thread gravel_soft_thread gravel_soft_thread_state;
static const int never_observed;
static gravel_soft_hooks hooks = {.observed = &never_observed};

static gravel_soft_thread *this_thread(void)
{
    return &gravel_soft_thread_state;
}

static void connect(const gravel_soft_hooks *given)
{
    hooks = *given;
}

// The linker defines these at both ends of a section whose name is a C identifier; weak, for objects without one.
extern const gravel_soft_kernel *const __start_gravel_kernels[] __attribute__((weak)) HIDDEN;
extern const gravel_soft_kernel *const __stop_gravel_kernels[] __attribute__((weak)) HIDDEN;
extern const gravel_soft_global *const __start_gravel_globals[] __attribute__((weak)) HIDDEN;
extern const gravel_soft_global *const __stop_gravel_globals[] __attribute__((weak)) HIDDEN;

extern const gravel_soft_module_info gravel_soft_module;
__attribute__((visibility("default"))) const gravel_soft_module_info gravel_soft_module = {GRAVEL_SOFT_ABI,
                                                                                           __start_gravel_kernels,
                                                                                           __stop_gravel_kernels,
                                                                                           __start_gravel_globals,
                                                                                           __stop_gravel_globals,
                                                                                           this_thread,
                                                                                           connect};

void gravel_soft_barrier(void);
HIDDEN void gravel_soft_barrier(void)
{
    gravel_soft_thread *thread = &gravel_soft_thread_state;
    if (thread->barrier)
        thread->barrier(thread);
    else if (thread->block_size.x * thread->block_size.y * thread->block_size.z > 1)
        thread->barrier_missing = 1;
}

void gravel_spin_ns(unsigned long long nanoseconds);
HIDDEN void gravel_spin_ns(unsigned long long nanoseconds)
{
    if (hooks.spin)
        hooks.spin(gravel_soft_thread_state.observer, nanoseconds);
}

void cudaGraphSetConditional(unsigned long long handle, unsigned value);
HIDDEN void cudaGraphSetConditional(unsigned long long handle, unsigned value)
{
    if (!hooks.set_condition || !hooks.set_condition(handle, value))
        gravel_soft_thread_state.handle_unknown = 1;
}

void gravel_grid_wait(void);
HIDDEN void gravel_grid_wait(void)
{
    if (hooks.grid_wait)
        hooks.grid_wait();
}

void gravel_grid_trigger(void);
HIDDEN void gravel_grid_trigger(void)
{
    if (hooks.grid_trigger)
        hooks.grid_trigger();
}

static inline void touch(const volatile void *address, uint64_t size, enum gravel_soft_touch kind)
{
    // One load and one branch when nobody looks.
    if (__builtin_expect(__atomic_load_n(hooks.observed, __ATOMIC_RELAXED), 0)) {
        void *observer = gravel_soft_thread_state.observer;
        if (observer)
            hooks.access(observer, (uint64_t)(uintptr_t)address, size, kind);
    }
}

// ---- Plain accesses ----

#define PLAIN(size)                                         \
    void __tsan_read##size(void *address);                  \
    void __tsan_write##size(void *address);                 \
    void __tsan_unaligned_read##size(void *address);        \
    void __tsan_unaligned_write##size(void *address);       \
    void __tsan_volatile_read##size(void *address);         \
    void __tsan_volatile_write##size(void *address);        \
    HIDDEN void __tsan_read##size(void *address)            \
    {                                                       \
        touch(address, size, GRAVEL_SOFT_TOUCH_READ);       \
    }                                                       \
    HIDDEN void __tsan_write##size(void *address)           \
    {                                                       \
        touch(address, size, GRAVEL_SOFT_TOUCH_WRITE);      \
    }                                                       \
    HIDDEN void __tsan_unaligned_read##size(void *address)  \
    {                                                       \
        touch(address, size, GRAVEL_SOFT_TOUCH_READ);       \
    }                                                       \
    HIDDEN void __tsan_unaligned_write##size(void *address) \
    {                                                       \
        touch(address, size, GRAVEL_SOFT_TOUCH_WRITE);      \
    }                                                       \
    HIDDEN void __tsan_volatile_read##size(void *address)   \
    {                                                       \
        touch(address, size, GRAVEL_SOFT_TOUCH_READ);       \
    }                                                       \
    HIDDEN void __tsan_volatile_write##size(void *address)  \
    {                                                       \
        touch(address, size, GRAVEL_SOFT_TOUCH_WRITE);      \
    }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_read_range(void *address, size_t size);
HIDDEN void __tsan_read_range(void *address, size_t size)
{
    touch(address, size, GRAVEL_SOFT_TOUCH_READ);
}

void __tsan_write_range(void *address, size_t size);
HIDDEN void __tsan_write_range(void *address, size_t size)
{
    touch(address, size, GRAVEL_SOFT_TOUCH_WRITE);
}

void __tsan_init(void);
HIDDEN void __tsan_init(void)
{
}

void __tsan_func_entry(void *caller);
HIDDEN void __tsan_func_entry(void *caller)
{
    (void)caller;
}

void __tsan_func_exit(void);
HIDDEN void __tsan_func_exit(void)
{
}

// ---- Atomic accesses: the call-out replaces the operation and has to do it; always the strongest order, which is
// never wrong ----

#define ATOMIC_RMW(bits, type, name, builtin)                                               \
    type __tsan_atomic##bits##_##name(volatile type *address, type value, int order);       \
    HIDDEN type __tsan_atomic##bits##_##name(volatile type *address, type value, int order) \
    {                                                                                       \
        (void)order;                                                                        \
        touch(address, sizeof(type), GRAVEL_SOFT_TOUCH_ATOMIC);                             \
        return builtin(address, value, __ATOMIC_SEQ_CST);                                   \
    }
#define ATOMIC_CAS(bits, type, strength)                                                                             \
    int __tsan_atomic##bits##_compare_exchange_##strength(volatile type *address, type *expected, type value,        \
                                                          int order, int failure);                                   \
    HIDDEN int __tsan_atomic##bits##_compare_exchange_##strength(volatile type *address, type *expected, type value, \
                                                                 int order, int failure)                             \
    {                                                                                                                \
        (void)order;                                                                                                 \
        (void)failure;                                                                                               \
        touch(address, sizeof(type), GRAVEL_SOFT_TOUCH_ATOMIC);                                                      \
        return __atomic_compare_exchange_n(address, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);     \
    }
#define ATOMIC(bits, type)                                                                 \
    type __tsan_atomic##bits##_load(const volatile type *address, int order);              \
    HIDDEN type __tsan_atomic##bits##_load(const volatile type *address, int order)        \
    {                                                                                      \
        (void)order;                                                                       \
        touch(address, sizeof(type), GRAVEL_SOFT_TOUCH_ATOMIC);                            \
        return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                 \
    }                                                                                      \
    void __tsan_atomic##bits##_store(volatile type *address, type value, int order);       \
    HIDDEN void __tsan_atomic##bits##_store(volatile type *address, type value, int order) \
    {                                                                                      \
        (void)order;                                                                       \
        touch(address, sizeof(type), GRAVEL_SOFT_TOUCH_ATOMIC);                            \
        __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                \
    }                                                                                      \
    ATOMIC_RMW(bits, type, exchange, __atomic_exchange_n)                                  \
    ATOMIC_RMW(bits, type, fetch_add, __atomic_fetch_add)                                  \
    ATOMIC_RMW(bits, type, fetch_sub, __atomic_fetch_sub)                                  \
    ATOMIC_RMW(bits, type, fetch_and, __atomic_fetch_and)                                  \
    ATOMIC_RMW(bits, type, fetch_or, __atomic_fetch_or)                                    \
    ATOMIC_RMW(bits, type, fetch_xor, __atomic_fetch_xor)                                  \
    ATOMIC_RMW(bits, type, fetch_nand, __atomic_fetch_nand)                                \
    ATOMIC_CAS(bits, type, strong)                                                         \
    ATOMIC_CAS(bits, type, weak)
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

void __tsan_atomic_thread_fence(int order);
HIDDEN void __tsan_atomic_thread_fence(int order)
{
    (void)order;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void __tsan_atomic_signal_fence(int order);
HIDDEN void __tsan_atomic_signal_fence(int order)
{
    (void)order;
}

// ---- Block operations: the compiler leaves these calls as they are, so the object has its own ----

void *memcpy(void *restrict to, const void *restrict from, size_t size);
HIDDEN void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
    touch(from, size, GRAVEL_SOFT_TOUCH_READ);
    touch(to, size, GRAVEL_SOFT_TOUCH_WRITE);
    for (size_t i = 0; i < size; i++)
        ((volatile char *)to)[i] = ((const char *)from)[i];
    return to;
}

void *memmove(void *to, const void *from, size_t size);
HIDDEN void *memmove(void *to, const void *from, size_t size)
{
    touch(from, size, GRAVEL_SOFT_TOUCH_READ);
    touch(to, size, GRAVEL_SOFT_TOUCH_WRITE);
    if ((uintptr_t)to < (uintptr_t)from)
        for (size_t i = 0; i < size; i++)
            ((volatile char *)to)[i] = ((const char *)from)[i];
    else
        for (size_t i = size; i-- > 0;)
            ((volatile char *)to)[i] = ((const char *)from)[i];
    return to;
}

void *memset(void *to, int value, size_t size);
HIDDEN void *memset(void *to, int value, size_t size)
{
    touch(to, size, GRAVEL_SOFT_TOUCH_WRITE);
    for (size_t i = 0; i < size; i++)
        ((volatile char *)to)[i] = (char)value;
    return to;
}
