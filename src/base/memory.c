#include "base/memory.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Negative: never fail. Atomic because the recorder allocates from every thread of the target.
static atomic_long successes_left = -1;

static bool allowed(void)
{
    long left = atomic_load_explicit(&successes_left, memory_order_relaxed);
    if (left < 0)
        return true;
    if (left == 0)
        return false;
    atomic_fetch_sub_explicit(&successes_left, 1, memory_order_relaxed);
    return true;
}

void gv_memory_fail_after(long successes)
{
    atomic_store(&successes_left, successes);
}

void *gv_malloc(size_t size)
{
    return allowed() ? malloc(size ? size : 1) : NULL;
}

void *gv_calloc(size_t count, size_t size)
{
    return allowed() ? calloc(count ? count : 1, size ? size : 1) : NULL;
}

void *gv_realloc_array(void *pointer, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size)
        return NULL;
    size_t bytes = count * size;
    return allowed() ? realloc(pointer, bytes ? bytes : 1) : NULL;
}

char *gv_strndup(const char *text, size_t length)
{
    char *copy = length < SIZE_MAX ? gv_malloc(length + 1) : NULL;
    if (copy) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

char *gv_strdup(const char *text)
{
    return gv_strndup(text, strlen(text));
}

void gv_free(void *pointer)
{
    free(pointer);
}

bool gv_grow(void **items, size_t *capacity, size_t needed, size_t element_size)
{
    if (needed <= *capacity)
        return true;
    size_t target = *capacity > SIZE_MAX / 2 ? needed : *capacity * 2;
    if (target < needed)
        target = needed;
    if (target < 8)
        target = 8;
    void *grown = gv_realloc_array(*items, target, element_size);
    if (!grown)
        return false;
    *items = grown;
    *capacity = target;
    return true;
}
