// What the software driver offers beyond the driver API: how gravel's recorder asks which bytes a kernel touched,
// and how a test chooses a schedule. Found by dlsym on the loaded libcuda.so.1; a real driver has no such symbol.
#ifndef GRAVEL_SOFT_H
#define GRAVEL_SOFT_H

#include <stddef.h>
#include <stdint.h>

#define GRAVEL_SOFT_API_SYMBOL "gravelSoftApi"
enum { GRAVEL_SOFT_API_VERSION = 5 };

enum gravel_soft_access_kind { GRAVEL_SOFT_READ = 0, GRAVEL_SOFT_WRITE = 1, GRAVEL_SOFT_ATOMIC = 2 };

// What recorded kernels did about grid dependencies.
enum gravel_soft_grid {
    GRAVEL_SOFT_GRID_WAITED = 1u << 0,        // a thread executed a grid-dependency wait
    GRAVEL_SOFT_GRID_TRIGGERED_LATE = 1u << 1 // the blocks of a kernel had all triggered only behind a thread's wait
};

// Called once for each maximal range, ascending within a kind, [start, end).
typedef void (*gravel_soft_range_callback)(void *user, enum gravel_soft_access_kind kind, uint64_t start, uint64_t end);

// Called for each variable of each loaded module; `module` is a CUmodule. Must not call the driver.
typedef void (*gravel_soft_variable_callback)(void *user, void *module, uint64_t address, uint64_t size);

typedef struct gravel_soft_api {
    uint32_t version; // GRAVEL_SOFT_API_VERSION

    // From now on the kernels launched by the calling thread are recorded, until access_end. Nothing is recorded
    // for other threads' launches. `early` not 0: what each thread touches before its grid-dependency wait (before it
    // met, at a barrier, a thread that has waited) is recorded a second time. Returns 0, or -1 when memory is out or
    // recording is already on.
    int (*access_begin)(int early);

    // Ends recording, after the recorded work was synchronised, and reports what was touched; empties the record.
    // Returns 0; 1 when the set is not whole (the table was full); -1 when recording was not on.
    int (*access_end)(gravel_soft_range_callback callback, void *user);

    // Reports what was touched so far, while recorded work may still run. Returns as access_end.
    int (*access_so_far)(gravel_soft_range_callback callback, void *user);

    // Reports what was touched early, after the recorded work was synchronised and before access_end; *grid: enum
    // gravel_soft_grid. Returns as access_end; -1 also when it was not asked for.
    int (*access_early)(gravel_soft_range_callback callback, void *user, unsigned *grid);

    // Lists the variables of the modules of the current context. Returns 0, or -1 when the driver cannot be entered.
    int (*variables)(gravel_soft_variable_callback callback, void *user);

    // In a host function that is a node of a graph with conditional nodes: sets the value behind one of its handles at
    // once, as a kernel would that calls cudaGraphSetConditional. Returns 0, or -1 anywhere else.
    int (*set_condition)(uint64_t handle, uint32_t value);
} gravel_soft_api;

typedef const gravel_soft_api *(*gravel_soft_api_function)(void);

#endif
