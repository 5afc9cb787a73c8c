// libgravel-audit.so: an rtld auditor (LD_AUDIT) that hands bindings of driver symbols to the recorder.
//
// cudart, NCCL, Triton and JAX find the driver by dlsym on a handle, which no preloaded symbol can catch. The dynamic
// linker shows every such binding to its auditors, without any wrapper around dlsym itself (see docs/interposition.md
// for the ways that were tried). The auditor lives in a link namespace of its own and therefore uses no libc at all:
// a second libc in the process would be a second malloc and a second set of locks.
#include <link.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

// rtld calls these by name; no header of glibc declares la_symbind64 with prototypes for all of them.
EXPORT unsigned la_version(unsigned version);
EXPORT unsigned la_objopen(struct link_map *map, Lmid_t namespace, uintptr_t *cookie);
EXPORT uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to, unsigned *flags,
                              const char *name);

// What an object is, kept in its cookie.
enum { OBJECT_OTHER = 0, OBJECT_DRIVER = 1, OBJECT_RECORDER = 2, OBJECT_TOOL = 3 };

// gravel_record_bind of the recorder, learnt from the recorder's own look-up of it.
typedef void *(*bind_function)(const char *name, void *real);
static bind_function bind;

static int equal(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

// Does the file name (without its folders) begin with `prefix`?
static int named(const char *path, const char *prefix)
{
    const char *base = path;
    for (; *path; path++)
        if (*path == '/')
            base = path + 1;
    while (*prefix && *base == *prefix)
        base++, prefix++;
    return !*prefix;
}

unsigned la_version(unsigned version)
{
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

unsigned la_objopen(struct link_map *map, Lmid_t namespace, uintptr_t *cookie)
{
    (void)namespace;
    const char *path = map->l_name ? map->l_name : "";
    if (named(path, "libcuda.so")) {
        *cookie = OBJECT_DRIVER;
        return LA_FLG_BINDTO;
    }
    if (named(path, "libgravel-record.so")) {
        *cookie = OBJECT_RECORDER;
        return LA_FLG_BINDTO | LA_FLG_BINDFROM;
    }
    // NVIDIA's own tools look driver functions up to call the driver, not to be seen calling it.
    if (named(path, "libsanitizer") || named(path, "libcupti") || named(path, "libnvidia-") ||
        named(path, "libcudadebugger") || named(path, "libcheckpoint")) {
        *cookie = OBJECT_TOOL;
        return 0;
    }
    *cookie = OBJECT_OTHER;
    return LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to, unsigned *flags,
                       const char *name)
{
    (void)index;
    (void)flags;
    uintptr_t real = symbol->st_value;
    if (*from == OBJECT_RECORDER) {
        if (*to == OBJECT_RECORDER && equal(name, "gravel_record_bind"))
            bind = (bind_function)real;
        return real;
    }
    if (*to != OBJECT_DRIVER || !bind)
        return real;
    // cu[A-Z] only: "cudnnCreate" and "cublasCreate" are not the driver's.
    if (name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z')
        return (uintptr_t)bind(name, (void *)real);
    return real;
}
