#include "record/sanitizer_path.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIBRARY "libsanitizer-public.so"

typedef struct search {
    gv_sanitizer_choice *choices;
    size_t count, most;
    char *tried;
    size_t tried_size, tried_length;
} search;

// Has this very place been noted? CUDA_HOME often names the folder that is looked at anyway.
static bool is_noted(const search *state, const char *place)
{
    size_t length = strlen(place);
    const char *next = state->tried_length ? state->tried : NULL;
    for (; next && (next = strstr(next, place)); next++) {
        bool begins = next == state->tried || next[-1] == ' ';
        if (begins && (next[length] == ',' || !next[length]))
            return true;
    }
    return false;
}

static void note_tried(search *state, const char *place)
{
    if (state->tried_length >= state->tried_size || is_noted(state, place))
        return;
    int added = snprintf(state->tried + state->tried_length, state->tried_size - state->tried_length, "%s%s",
                         state->tried_length ? ", " : "", place);
    if (added > 0)
        state->tried_length += (size_t)added;
}

static bool is_taken(const search *state, const struct stat *file)
{
    for (size_t i = 0; i < state->count; i++) {
        struct stat other;
        if (stat(state->choices[i].path, &other) == 0 && other.st_dev == file->st_dev && other.st_ino == file->st_ino)
            return true;
    }
    return false;
}

// This and the functions below answer whether the search is over: there is no room for more.
static bool take_file(search *state, const char *file)
{
    struct stat status;
    size_t length = strlen(file);
    if (stat(file, &status) != 0 || !S_ISREG(status.st_mode) || length >= sizeof state->choices->path ||
        is_taken(state, &status))
        return false;
    gv_sanitizer_choice *next = &state->choices[state->count++];
    memcpy(next->path, file, length + 1);
    next->tensor_copies = gv_sanitizer_reports_tensor_copies(file);
    return state->count == state->most;
}

// Looks for the library under every folder that `pattern` matches, the last in the alphabet first, so that of several
// releases the newest is taken.
static bool take_pattern(search *state, const char *pattern)
{
    glob_t found = {0};
    bool taken = false;
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
        const char *best = NULL;
        for (size_t i = 0; i < found.gl_pathc; i++) {
            if (!best || strverscmp(found.gl_pathv[i], best) > 0)
                best = found.gl_pathv[i];
        }
        taken = best && take_file(state, best);
    }
    globfree(&found);
    return taken;
}

static bool take_below(search *state, const char *root, const char *const *folders, size_t count)
{
    char pattern[PATH_MAX];
    size_t before = state->count;
    for (size_t i = 0; i < count; i++) {
        int length = snprintf(pattern, sizeof pattern, "%s/%s/" LIBRARY, root, folders[i]);
        if (length > 0 && (size_t)length < sizeof pattern && take_pattern(state, pattern))
            return true;
    }
    if (state->count == before)
        note_tried(state, root);
    return false;
}

// A toolkit, as NVIDIA's installers and its PyPI packages lay it out.
static bool take_toolkit(search *state, const char *root)
{
    static const char *const folders[] = {"compute-sanitizer", "extras/Sanitizer", "extras/compute-sanitizer", "lib",
                                          "lib64"};
    return root && *root && take_below(state, root, folders, sizeof folders / sizeof *folders);
}

// A Python prefix: the packages nvidia-cuda-sanitizer-api (under nvidia/) and conda's layout.
static bool take_python_prefix(search *state, const char *prefix)
{
    static const char *const folders[] = {
        "lib/python3*/site-packages/nvidia/*/lib",
        "lib/python3*/site-packages/nvidia/*/compute-sanitizer",
        "lib/python3*/site-packages/compute-sanitizer",
        "lib/python3*/dist-packages/nvidia/*/lib",
        "lib/python3*/dist-packages/nvidia/*/compute-sanitizer",
        "compute-sanitizer",
    };
    return prefix && *prefix && take_below(state, prefix, folders, sizeof folders / sizeof *folders);
}

// The prefix of an interpreter is the folder above its bin/. Its own path is taken, not what a link leads to: a
// virtual environment's interpreter is a link to the system's.
static bool take_interpreter(search *state, const char *interpreter)
{
    char prefix[PATH_MAX];
    size_t length = strlen(interpreter);
    if (length >= sizeof prefix)
        return false;
    memcpy(prefix, interpreter, length + 1);
    for (int level = 0; level < 2; level++) {
        char *slash = strrchr(prefix, '/');
        if (!slash)
            return false;
        *slash = '\0';
    }
    return take_python_prefix(state, prefix);
}

// argv[0] of this process when it is a path to a Python interpreter: the recorder runs inside it.
static bool take_running_interpreter(search *state)
{
    char name[PATH_MAX];
    int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t length = file >= 0 ? read(file, name, sizeof name - 1) : -1;
    if (file >= 0)
        close(file);
    if (length <= 0)
        return false;
    name[length] = '\0';
    const char *slash = strrchr(name, '/');
    return slash && strncmp(slash + 1, "python", 6) == 0 && take_interpreter(state, name);
}

static bool take_interpreter_in_path(search *state)
{
    for (const char *next = getenv("PATH"); next && *next;) {
        size_t length = strcspn(next, ":");
        char candidate[PATH_MAX];
        int written =
            snprintf(candidate, sizeof candidate, "%.*s/python3", (int)(length < PATH_MAX ? length : 0), next);
        if (length && written > 0 && (size_t)written < sizeof candidate && access(candidate, X_OK) == 0)
            return take_interpreter(state, candidate);
        next += length;
        next += *next == ':';
    }
    return false;
}

static bool take_environment(search *state, const char *chosen)
{
    struct stat status;
    if (stat(chosen, &status) == 0 && S_ISREG(status.st_mode))
        return take_file(state, chosen);
    static const char *const here[] = {"."};
    return take_below(state, chosen, here, 1) || take_toolkit(state, chosen);
}

static bool find(search *state)
{
    const char *chosen = getenv("GRAVEL_SANITIZER");
    if (chosen && *chosen) {
        state->most = 1;
        return take_environment(state, chosen);
    }
    if (take_toolkit(state, getenv("CUDA_HOME")) || take_toolkit(state, getenv("CUDA_PATH")) ||
        take_toolkit(state, "/usr/local/cuda") || take_toolkit(state, "/usr/local/cuda-*"))
        return true;

    if (take_python_prefix(state, getenv("VIRTUAL_ENV")) || take_python_prefix(state, getenv("CONDA_PREFIX")) ||
        take_running_interpreter(state) || take_interpreter_in_path(state))
        return true;
    const char *home = getenv("HOME");
    char local[PATH_MAX];
    int length = home ? snprintf(local, sizeof local, "%s/.local", home) : -1;
    if (length > 0 && (size_t)length < sizeof local && take_python_prefix(state, local))
        return true;
    if (take_python_prefix(state, "/usr/local") || take_python_prefix(state, "/usr"))
        return true;

    // Last, what `make deps` fetched for the build: the program's own environment fits its driver better.
    Dl_info own;
    char folder[PATH_MAX];
    if (dladdr((const void *)&gv_sanitizer_find, &own) && own.dli_fname && realpath(own.dli_fname, folder)) {
        static const char *const deps[] = {"deps/sanitizer/nvidia/*/compute-sanitizer",
                                           "../deps/sanitizer/nvidia/*/compute-sanitizer", "deps/cuda/nvidia/*/lib",
                                           "../deps/cuda/nvidia/*/lib"};
        char *slash = strrchr(folder, '/');
        if (slash)
            *slash = '\0';
        if (take_below(state, folder, deps, sizeof deps / sizeof *deps))
            return true;
    }
    return false;
}

bool gv_sanitizer_reports_tensor_copies(const char *path)
{
    // Part of the name of the class that makes these patches. It is in the releases from 13.3 on and not in earlier
    // ones.
    static const char name[] = "TmaLoadGenerator";
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    bool found = false;
    if (fstat(file, &status) == 0 && status.st_size > 0) {
        size_t size = (size_t)status.st_size;
        void *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
        if (bytes != MAP_FAILED) {
            found = memmem(bytes, size, name, sizeof name - 1) != NULL;
            munmap(bytes, size);
        }
    }
    close(file);
    return found;
}

size_t gv_sanitizer_find_all(gv_sanitizer_choice *choices, size_t most, char *tried, size_t tried_size)
{
    search state = {.choices = choices, .most = most, .tried = tried, .tried_size = tried_size};
    if (tried_size)
        tried[0] = '\0';
    find(&state);
    if (state.count && tried_size)
        tried[0] = '\0';
    // A stable sort of two kinds.
    for (size_t i = 0, sorted = 0; i < state.count; i++) {
        if (!choices[i].tensor_copies)
            continue;
        gv_sanitizer_choice better = choices[i];
        memmove(&choices[sorted + 1], &choices[sorted], (i - sorted) * sizeof *choices);
        choices[sorted++] = better;
    }
    return state.count;
}

bool gv_sanitizer_find(char *path, size_t size, char *tried, size_t tried_size)
{
    gv_sanitizer_choice choices[8];
    bool found = gv_sanitizer_find_all(choices, sizeof choices / sizeof *choices, tried, tried_size) > 0 &&
                 strlen(choices[0].path) < size;
    if (size)
        snprintf(path, size, "%s", found ? choices[0].path : "");
    return found;
}
