// The table of hooks, and the two ways in which a program is given them: the auditor's bindings and the results of
// cuGetProcAddress. A program that is linked to libcuda needs neither: our exported names come before the driver's.
#include "record/driver.h"
#include "record/hook.h"
#include "record/recorder.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

extern gv_hook *const __start_gv_hooks[] __attribute__((visibility("hidden")));
extern gv_hook *const __stop_gv_hooks[] __attribute__((visibility("hidden")));

void *gv_hook_real(gv_hook *hook)
{
    void *real = __atomic_load_n(&hook->real, __ATOMIC_ACQUIRE);
    if (!real) {
        real = gv_driver_symbol(hook->symbol);
        __atomic_store_n(&hook->real, real, __ATOMIC_RELEASE);
    }
    return real;
}

// ---- By name: the auditor's way ------------------------------------------------------------------------------

static gv_hook *hook_named(const char *symbol)
{
    for (gv_hook *const *hook = __start_gv_hooks; hook < __stop_gv_hooks; hook++)
        if (strcmp((*hook)->symbol, symbol) == 0)
            return *hook;
    return NULL;
}

// Called by the auditor for every binding of a driver symbol. Answers what the program is to call.
GV_EXPORT void *gravel_record_bind(const char *name, void *real);

void *gravel_record_bind(const char *name, void *real)
{
    gv_hook *hook = hook_named(name);
    if (!hook)
        return real;
    __atomic_store_n(&hook->real, real, __ATOMIC_RELEASE);
    return hook->function;
}

// The auditor learns gravel_record_bind's address by watching this very look-up. The result is kept in a volatile:
// a tail call would hide the caller from the dynamic linker.
__attribute__((constructor)) static void shake_hands(void)
{
    void *volatile found = dlsym(RTLD_DEFAULT, "gravel_record_bind");
    (void)found;
}

// ---- By address: cuGetProcAddress ----------------------------------------------------------------------------
// The driver's answer for a name, a version and a flag is one of its exported functions; the address says which, so
// no table of versions has to be kept in step with the driver.

enum { ADDRESS_SLOTS = 2048 };

static struct {
    void *real;
    gv_hook *hook;
} by_address[ADDRESS_SLOTS];

static size_t address_slot(const void *address)
{
    return ((uintptr_t)address >> 4) * 0x9e3779b97f4a7c15ull >> 53;
}

static void fill_by_address(void)
{
    for (gv_hook *const *at = __start_gv_hooks; at < __stop_gv_hooks; at++) {
        gv_hook *hook = *at;
        void *real = gv_hook_real(hook);
        if (!real)
            continue;
        size_t slot = address_slot(real);
        while (by_address[slot].real && by_address[slot].real != real)
            slot = (slot + 1) % ADDRESS_SLOTS;
        // Where the driver exports one function under two names, the first in the table stands for both; their
        // signatures are the same.
        if (!by_address[slot].real) {
            by_address[slot].real = real;
            by_address[slot].hook = hook;
        }
    }
}

static gv_hook *hook_at(void *real)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_by_address);
    for (size_t slot = address_slot(real); by_address[slot].real; slot = (slot + 1) % ADDRESS_SLOTS)
        if (by_address[slot].real == real)
            return by_address[slot].hook;
    return NULL;
}

// A function we hook under some version was handed out in one we do not know. cudart asks for far more than a program
// calls, so this is information and no incompleteness; it is there to be found when something is missing in a trace.
static void unknown_variant(const char *name, int version, cuuint64_t flags)
{
    size_t length = strlen(name);
    for (gv_hook *const *at = __start_gv_hooks; at < __stop_gv_hooks; at++) {
        const gv_hook *hook = *at;
        if (strncmp(hook->symbol, name, length) != 0)
            continue;
        const char *rest = hook->symbol + length;
        if (*rest && strncmp(rest, "_v", 2) != 0 && strncmp(rest, "_pt", 3) != 0)
            continue;
        gv_note_once(GV_NOTE_INFO, name,
                     "the driver handed out a variant of %s (version %d, flags %llu) that this gravel does not know; "
                     "calls through it are not recorded",
                     name, version, (unsigned long long)flags);
        return;
    }
}

static void replace(const char *name, void **function, int version, cuuint64_t flags)
{
    if (!function || !*function || !name)
        return;
    gv_hook *hook = hook_at(*function);
    if (hook)
        *function = hook->function;
    else if (version > 0)
        unknown_variant(name, version, flags);
}

// Inside our own calls (libsanitizer, the recorder) look-ups are answered unchanged.
GV_HOOK(cuGetProcAddress, (const char *name, void **function, int version, cuuint64_t flags),
        (name, function, version, flags))
{
    CUresult result = real(name, function, version, flags);
    if (result == CUDA_SUCCESS && !gv_inside())
        replace(name, function, version, flags);
    return result;
}

GV_HOOK_PAIR(cuGetProcAddress_v2, _ptsz,
             (const char *name, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status),
             (name, function, version, flags, status))
{
    CUresult result = real(name, function, version, flags, status);
    if (result == CUDA_SUCCESS && !gv_inside())
        replace(name, function, version, flags);
    return result;
}
