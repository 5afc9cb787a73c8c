// cuGetProcAddress, from the one table of what is exported.
#include "soft/driver.h"
#include "soft/functions.h"

// The addresses are all this file needs of the functions; their types are in cuda.h and in the files that define
// them, so they are declared here under other names. Weak: what takes types that an older cuda.h lacks is not built.
#define DECLARE_PLAIN(base, version, symbol) extern void symbol_##symbol(void) __asm__(#symbol) __attribute__((weak));
#define DECLARE_WITH_THREAD(base, version, symbol, per_thread)                \
    extern void symbol_##symbol(void) __asm__(#symbol) __attribute__((weak)); \
    extern void symbol_##per_thread(void) __asm__(#per_thread) __attribute__((weak));
SOFT_FUNCTIONS(DECLARE_PLAIN, DECLARE_WITH_THREAD)

struct function_row {
    const char *base;
    int version;
    void (*function)(void);
    void (*per_thread)(void); // NULL: there is one variant only
};

#define ROW_PLAIN(base, version, symbol)                   {#base, version, symbol_##symbol, NULL},
#define ROW_WITH_THREAD(base, version, symbol, per_thread) {#base, version, symbol_##symbol, symbol_##per_thread},
static const struct function_row rows[] = {SOFT_FUNCTIONS(ROW_PLAIN, ROW_WITH_THREAD)};

// The newest variant of a function that a program of that version can know. Versions of one name are in ascending
// order in the table. Success with a null address is how the driver says that there is none.
static CUresult look_up(const char *symbol, void **address, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult *status)
{
    cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (!symbol || !address || flags & ~known || version > SOFT_DRIVER_VERSION)
        return CUDA_ERROR_INVALID_VALUE;
    const struct function_row *best = NULL;
    bool named = false;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!rows[i].function || strcmp(rows[i].base, symbol) != 0)
            continue;
        named = true;
        if (rows[i].version <= version)
            best = &rows[i];
    }
    void (*function)(void) = NULL;
    if (best)
        function = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM && best->per_thread ? best->per_thread
                                                                                             : best->function;
    memcpy(address, &function, sizeof function);
    if (status)
        *status = best    ? CU_GET_PROC_ADDRESS_SUCCESS
                  : named ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                          : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **address, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    return look_up(symbol, address, version, flags, status);
}

CUresult cuGetProcAddress(const char *symbol, void **address, int version, cuuint64_t flags)
{
    return look_up(symbol, address, version, flags, NULL);
}

// Private tables are for NVIDIA's own libraries; there are none here.
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    if (table)
        *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
