// See arena.h.
#include "trace/arena.h"

#include "base/memory.h"

#include <stdalign.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK_BYTES = 256 << 10, ALIGNMENT = alignof(max_align_t) };

struct gv_arena_block {
    struct gv_arena_block *older;
    max_align_t bytes[];
};

// A piece at an address that is a multiple of `alignment`.
static void *piece(gv_arena *arena, size_t size, size_t alignment)
{
    size_t padding = (size_t)(-(uintptr_t)arena->next & (alignment - 1));
    size_t room = (size_t)(arena->limit - arena->next);
    if (!arena->next || room < padding || room - padding < size) {
        // A big piece gets a block of its own size, behind the first one, whose free part stays in use.
        size_t bytes = size > BLOCK_BYTES / 4 ? size : BLOCK_BYTES;
        if (bytes > SIZE_MAX - sizeof(struct gv_arena_block))
            return NULL;
        struct gv_arena_block *block = gv_malloc(sizeof *block + bytes);
        if (!block)
            return NULL;
        if (bytes == size && arena->blocks) {
            block->older = arena->blocks->older;
            arena->blocks->older = block;
            return block->bytes;
        }
        block->older = arena->blocks;
        arena->blocks = block;
        arena->next = (unsigned char *)block->bytes;
        arena->limit = arena->next + bytes;
        padding = 0;
    }
    void *given = arena->next + padding;
    arena->next += padding + size;
    return given;
}

void *gv_arena_alloc(gv_arena *arena, size_t size)
{
    return piece(arena, size, ALIGNMENT);
}

void *gv_arena_array(gv_arena *arena, size_t count, size_t element_size)
{
    if (element_size && count > SIZE_MAX / element_size)
        return NULL;
    return piece(arena, count * element_size, ALIGNMENT);
}

void *gv_arena_copy(gv_arena *arena, const void *data, size_t size)
{
    void *copy = piece(arena, size, 1);
    if (copy && size)
        memcpy(copy, data, size);
    return copy;
}

char *gv_arena_string(gv_arena *arena, const char *text, size_t length)
{
    char *copy = length < SIZE_MAX ? piece(arena, length + 1, 1) : NULL;
    if (!copy)
        return NULL;
    if (length)
        memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

void gv_arena_free(gv_arena *arena)
{
    while (arena->blocks) {
        struct gv_arena_block *older = arena->blocks->older;
        gv_free(arena->blocks);
        arena->blocks = older;
    }
    *arena = (gv_arena){0};
}
