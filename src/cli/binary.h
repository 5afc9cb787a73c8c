// Looks addresses of an ELF file up: which function, which source line. Through elfutils' libdw; separate debug files
// are found where elfutils looks for them (by build id under /usr/lib/debug, and beside the file).
#ifndef GV_CLI_BINARY_H
#define GV_CLI_BINARY_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct gv_binary gv_binary;

// Opens the file at `path` if its build id is `build_id`; GV_ERR_MISSING when the file cannot be opened, GV_ERR_VERSION
// when it is another build. A file without a build id is taken only if it was not changed after `not_after_ns` (wall
// clock).
gv_status gv_binary_open(const char *path, const uint8_t *build_id, size_t build_id_length, uint64_t not_after_ns,
                         gv_binary **binary, gv_error *error);

typedef struct gv_binary_place {
    const char *function; // as in the symbol table (mangled); NULL when not known
    const char *file;     // NULL when not known
    uint64_t line;
} gv_binary_place;

// Looks up the call that returns to `address` (as in the file's program headers). Where functions were inlined there,
// the innermost one that is not the CUDA compiler's or a system header's is taken. The texts live as long as `binary`.
gv_binary_place gv_binary_look_up(gv_binary *binary, uint64_t address);

void gv_binary_close(gv_binary *binary);

#endif
