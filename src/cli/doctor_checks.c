#include "cli/doctor_checks.h"

#include "cli/launch.h"
#include "record/sanitizer_path.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gelf.h>
#include <gnu/libc-version.h>
#include <libelf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SECONDS = 30, OUTPUT_SIZE = 1024 };

static void conclude(gv_check *check, enum gv_check_state state, const char *remedy, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void conclude(gv_check *check, enum gv_check_state state, const char *remedy, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(check->found, sizeof check->found, format, arguments);
    va_end(arguments);
    snprintf(check->remedy, sizeof check->remedy, "%s", remedy);
    check->state = state;
}

// Output of a captured command as one line.
static const char *one_line(char *output)
{
    for (char *next = output; *next; next++) {
        if (*next == '\n' || *next == '\t')
            *next = next[1] ? ' ' : '\0';
    }
    return output;
}

// ---- gravel's own parts -------------------------------------------------------------------------------------------

static void check_libraries(const gv_install *install, gv_check *check)
{
    if (install->record[0] && install->audit[0])
        conclude(check, GV_CHECK_OK, "", "%s and libgravel-audit.so", install->record);
    else
        conclude(check, GV_CHECK_MISSING,
                 "Build or install gravel as a whole, or set GRAVEL_LIBDIR to the folder that has them.",
                 "%s not found; looked in: %s",
                 install->record[0]  ? "libgravel-audit.so was"
                 : install->audit[0] ? "libgravel-record.so was"
                                     : "libgravel-record.so and libgravel-audit.so were",
                 install->tried);
}

static void set_loader_variables(void *user)
{
    const gv_install *install = user;
    setenv("LD_AUDIT", install->audit, 1);
    setenv("LD_PRELOAD", install->record, 1);
    unsetenv("GRAVEL_TRACE"); // without a name for a trace the recorder does nothing
}

// Runs a program with both libraries. The dynamic linker complains about a library it cannot use and goes on, so that
// silence is the proof.
static void check_linker(const gv_install *install, gv_check *check)
{
    const char *version = gnu_get_libc_version();
    if (!install->record[0] || !install->audit[0]) {
        conclude(check, GV_CHECK_MISSING, "", "glibc %s; not tried without gravel's libraries", version);
        return;
    }
    char output[OUTPUT_SIZE];
    char *argv[] = {"/bin/true", NULL};
    int code = gv_capture(argv, set_loader_variables, (void *)install, SECONDS, output, sizeof output);
    if (code == 0 && !output[0])
        conclude(check, GV_CHECK_OK, "", "glibc %s; a program was run with LD_AUDIT and LD_PRELOAD and both were taken",
                 version);
    else if (code == 0)
        conclude(check, GV_CHECK_MISSING,
                 "Build gravel on the oldest system it is to run on: its libraries need that glibc.",
                 "glibc %s did not take gravel's libraries: %s", version, one_line(output));
    else
        conclude(check, GV_CHECK_MISSING, "Please report this, with the output of `LD_DEBUG=libs` beside it.",
                 "glibc %s: /bin/true ended with %d under LD_AUDIT and LD_PRELOAD. %s", version, code,
                 one_line(output));
}

static void check_patches(const gv_install *install, gv_check *check)
{
    const char *remedy = "Build gravel where nvcc and the Sanitizer's headers are (`make deps` fetches both).";
    int file = install->record[0] ? open(install->record, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) {
        conclude(check, GV_CHECK_MISSING, "", "not looked for without libgravel-record.so");
        return;
    }
    size_t bytes = 0;
    elf_version(EV_CURRENT);
    Elf *elf = elf_begin(file, ELF_C_READ, NULL);
    size_t names = 0;
    if (elf && elf_getshdrstrndx(elf, &names) == 0) {
        for (Elf_Scn *section = NULL; (section = elf_nextscn(elf, section));) {
            GElf_Shdr header;
            const char *name = gelf_getshdr(section, &header) ? elf_strptr(elf, names, header.sh_name) : NULL;
            if (name && strcmp(name, ".gravel.fatbin") == 0)
                bytes += header.sh_size;
        }
    }
    elf_end(elf);
    close(file);
    if (bytes)
        conclude(check, GV_CHECK_OK, "", "in the recorder, %zu KiB, for GPUs of compute capability 8.0 and later",
                 (bytes + 1023) / 1024);
    else
        conclude(check, GV_CHECK_MISSING, remedy, "this recorder was built without them");
}

// ---- Drivers ------------------------------------------------------------------------------------------------------

// The driver's functions as cuda.h declares them; the header is not needed for so few.
typedef struct driver_functions {
    int (*init)(unsigned flags);
    int (*version)(int *version);
    int (*count)(int *count);
    int (*get)(int *device, int ordinal);
    int (*name)(char *name, int size, int device);
    int (*attribute)(int *value, int attribute, int device);
} driver_functions;

enum { COMPUTE_CAPABILITY_MAJOR = 75, COMPUTE_CAPABILITY_MINOR = 76 }; // CUdevice_attribute

// Exit codes of examine_driver, with what it prints.
enum { DRIVER_WORKS = 0, DRIVER_OLD_GPU = 10, DRIVER_NO_LIBRARY = 11, DRIVER_NO_INIT = 12, DRIVER_NO_GPU = 13 };

static bool look_up(void *library, driver_functions *functions)
{
    const struct {
        const char *name;
        void *slot;
    } names[] = {{"cuInit", &functions->init},
                 {"cuDriverGetVersion", &functions->version},
                 {"cuDeviceGetCount", &functions->count},
                 {"cuDeviceGet", &functions->get},
                 {"cuDeviceGetName", &functions->name},
                 {"cuDeviceGetAttribute", &functions->attribute}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *function = dlsym(library, names[i].name);
        if (!function)
            return false;
        memcpy(names[i].slot, &function, sizeof function);
    }
    return true;
}

// In a child: loads the driver named by `user`, and prints version and devices.
static int examine_driver(void *user)
{
    void *library = dlopen(user, RTLD_NOW);
    driver_functions cuda;
    if (!library) {
        printf("%s", dlerror());
        fflush(stdout);
        return DRIVER_NO_LIBRARY;
    }
    if (!look_up(library, &cuda)) {
        printf("it lacks functions of the CUDA driver");
        fflush(stdout);
        return DRIVER_NO_LIBRARY;
    }
    int version = 0, devices = 0, result = cuda.init(0), code = DRIVER_WORKS;
    cuda.version(&version);
    printf("CUDA %d.%d%s", version / 1000, version % 1000 / 10, dlsym(library, "gravelSoftApi") ? " (software)" : "");
    if (result == 0)
        cuda.count(&devices);
    if (result != 0 && result != 100) { // CUDA_ERROR_NO_DEVICE
        printf(", cuInit answered error %d", result);
        code = DRIVER_NO_INIT;
    } else if (devices < 1) {
        printf(", no GPU");
        code = DRIVER_NO_GPU;
    }
    for (int i = 0; i < devices && code != DRIVER_NO_INIT; i++) {
        char name[128] = "?";
        int device = 0, major = 0, minor = 0;
        cuda.get(&device, i);
        cuda.name(name, sizeof name, device);
        cuda.attribute(&major, COMPUTE_CAPABILITY_MAJOR, device);
        cuda.attribute(&minor, COMPUTE_CAPABILITY_MINOR, device);
        printf(", %s (compute capability %d.%d)", name, major, minor);
        if (major < 8)
            code = DRIVER_OLD_GPU;
    }
    fflush(stdout);
    return code;
}

static void check_soft(const gv_install *install, gv_check *check)
{
    if (!install->soft_dir[0]) {
        conclude(check, GV_CHECK_MISSING, "Build or install gravel as a whole.", "soft/libcuda.so.1 was not found");
        return;
    }
    char output[OUTPUT_SIZE], path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/libcuda.so.1", install->soft_dir);
    int code = gv_capture_function(examine_driver, path, SECONDS, output, sizeof output);
    // The software device's compute capability is its own affair.
    if (code == DRIVER_WORKS || code == DRIVER_OLD_GPU)
        conclude(check, GV_CHECK_OK, "", "%s: %s", install->soft_dir, one_line(output));
    else
        conclude(check, GV_CHECK_MISSING, "Build gravel again; please report this if it stays.", "%s: %s", path,
                 output[0] ? one_line(output) : "it crashed or made no progress");
}

static void check_driver(gv_check *check)
{
    char output[OUTPUT_SIZE];
    int code = gv_capture_function(examine_driver, "libcuda.so.1", SECONDS, output, sizeof output);
    const char *found = one_line(output);
    switch (code) {
    case DRIVER_WORKS:
        if (strstr(found, "(software)"))
            conclude(check, GV_CHECK_MISSING,
                     "Take its folder out of LD_LIBRARY_PATH; `gravel run --soft` adds it by itself.",
                     "libcuda.so.1 is gravel's software driver: %s", found);
        else
            conclude(check, GV_CHECK_OK, "", "%s", found);
        break;
    case DRIVER_OLD_GPU:
        conclude(check, GV_CHECK_LIMITED, "Kernels on a GPU before compute capability 8.0 cannot be recorded.", "%s",
                 found);
        break;
    case DRIVER_NO_LIBRARY:
        conclude(check, GV_CHECK_MISSING,
                 "On a machine with an NVIDIA GPU install its driver; in a container start it with the GPU passed in "
                 "(docker run --gpus all). Without a GPU use --soft.",
                 "%s", found);
        break;
    case DRIVER_NO_GPU:
        conclude(check, GV_CHECK_MISSING, "Check CUDA_VISIBLE_DEVICES, and that the container was started with a GPU.",
                 "%s", found);
        break;
    case DRIVER_NO_INIT:
        conclude(check, GV_CHECK_MISSING, "Run nvidia-smi: if it fails too, the driver has to be repaired first.", "%s",
                 found);
        break;
    default:
        conclude(check, GV_CHECK_MISSING, "Run nvidia-smi: if it fails too, the driver has to be repaired first.",
                 code < 0 ? "the driver made no progress for %d seconds" : "the driver crashed (%d)",
                 code < 0 ? SECONDS : code);
        break;
    }
}

static int load_library(void *user)
{
    void *library = dlopen(user, RTLD_NOW);
    if (!library)
        printf("%s", dlerror());
    else if (!dlsym(library, "sanitizerSubscribe"))
        printf("it lacks sanitizerSubscribe");
    fflush(stdout);
    return library && dlsym(library, "sanitizerSubscribe") ? 0 : 1;
}

static void check_sanitizer(const gv_check *driver, gv_check *check)
{
    char path[PATH_MAX], tried[768];
    const char *remedy =
        "Install the CUDA toolkit's compute-sanitizer, or `pip install nvidia-cuda-sanitizer-api`, or set "
        "GRAVEL_SANITIZER to libsanitizer-public.so. Without it the accesses of kernels cannot be seen.";
    if (!gv_sanitizer_find(path, sizeof path, tried, sizeof tried)) {
        conclude(check, GV_CHECK_MISSING, remedy, "libsanitizer-public.so was not found; looked in: %s", tried);
        return;
    }
    char output[OUTPUT_SIZE];
    int code = gv_capture_function(load_library, path, SECONDS, output, sizeof output);
    if (code == 0 && gv_sanitizer_reports_tensor_copies(path))
        conclude(check, GV_CHECK_OK, "", "%s; it reports TMA tensor loads", path);
    else if (code == 0)
        conclude(
            check, GV_CHECK_LIMITED,
            "On GPUs from compute capability 9.0 on: `pip install 'nvidia-cuda-sanitizer-api>=13.3'`. Without it less "
            "is known of kernels with such loads (many GEMM and attention kernels).",
            "%s; it does not report TMA tensor loads", path);
    else if (driver->state == GV_CHECK_MISSING)
        conclude(check, GV_CHECK_LIMITED, "It can be tried once there is a driver.",
                 "%s is there, but does not load here: %s", path, one_line(output));
    else
        conclude(check, GV_CHECK_MISSING, remedy, "%s does not load: %s", path, one_line(output));
}

// ---- The rest -----------------------------------------------------------------------------------------------------

static void check_python(gv_check *check)
{
    char output[OUTPUT_SIZE];
    char *argv[] = {"python3", "-c",
                    "import sys, platform; print(platform.python_implementation(), platform.python_version(), "
                    "sys.executable, int(sys.version_info >= (3, 9)))",
                    NULL};
    int code = gv_capture(argv, NULL, NULL, SECONDS, output, sizeof output);
    char *last = strrchr(one_line(output), ' ');
    if (code != 0 || !last) {
        conclude(check, GV_CHECK_LIMITED, "Nothing to do for programs without Python.", "no python3 in PATH");
        return;
    }
    bool recent = last[1] == '1';
    *last = '\0';
    if (recent && strncmp(output, "CPython", 7) == 0)
        conclude(check, GV_CHECK_OK, "", "%s; Python lines are recorded", output);
    else
        conclude(check, GV_CHECK_LIMITED, "Use CPython 3.9 or later to see Python lines in reports.",
                 "%s; Python lines cannot be recorded, lines of compiled code can", output);
}

static void check_output(gv_check *check)
{
    char here[PATH_MAX] = "?";
    if (!getcwd(here, sizeof here))
        here[0] = '?';
    if (access(".", W_OK | X_OK) == 0)
        conclude(check, GV_CHECK_OK, "", "traces can be written here, in %s", here);
    else
        conclude(check, GV_CHECK_LIMITED, "Give a name in another folder: gravel run -o /tmp/t.gravel ...",
                 "the current folder, %s, cannot be written to", here);
}

static void check_rights(gv_check *check)
{
    conclude(check, GV_CHECK_OK, "", "none are needed: no root, no ptrace, no GPU performance counters");
}

void gv_doctor_examine(const gv_install *install, gv_check checks[GV_CHECK_COUNT])
{
    static const char *const ids[] = {"libraries", "linker", "soft",   "driver", "sanitizer",
                                      "patches",   "python", "output", "rights"};
    static const char *const titles[] = {"gravel's libraries", "dynamic linker", "software driver", "GPU and driver",
                                         "Sanitizer library",  "device code",    "Python",          "output",
                                         "special rights"};
    for (size_t i = 0; i < GV_CHECK_COUNT; i++)
        checks[i] = (gv_check){.id = ids[i], .title = titles[i]};
    check_libraries(install, &checks[GV_CHECK_LIBRARIES]);
    check_linker(install, &checks[GV_CHECK_LINKER]);
    check_soft(install, &checks[GV_CHECK_SOFT]);
    check_driver(&checks[GV_CHECK_DRIVER]);
    check_sanitizer(&checks[GV_CHECK_DRIVER], &checks[GV_CHECK_SANITIZER]);
    check_patches(install, &checks[GV_CHECK_PATCHES]);
    check_python(&checks[GV_CHECK_PYTHON]);
    check_output(&checks[GV_CHECK_OUTPUT]);
    check_rights(&checks[GV_CHECK_RIGHTS]);
}
