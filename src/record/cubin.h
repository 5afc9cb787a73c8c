// Looking through a module's machine code for instructions whose memory accesses the Sanitizer does not report.
#ifndef GV_RECORD_CUBIN_H
#define GV_RECORD_CUBIN_H

#include <stdbool.h>
#include <stddef.h>

// Calls `found` once for each function of the module that has such instructions, with its name and flags (enum
// gv_function_flag). An instruction in a function that is not a kernel counts for every kernel of the module: `found`
// is called with a NULL name. Returns false when `image` is not a cubin this code can read: nothing is known then.
bool gv_cubin_scan(const void *image, size_t size, void (*found)(const char *name, unsigned flags, void *user),
                   void *user);

// enum gv_function_flag of one instruction of 16 bytes.
unsigned gv_instruction_flags(const unsigned char *instruction);

// Calls `found` with the name of each variable of the module in global or constant memory. Character strings that the
// compiler put there are left out: they hold no address. Returns false when `image` is not a cubin this code can read.
bool gv_cubin_variables(const void *image, size_t size, void (*found)(const char *name, void *user), void *user);

#endif
