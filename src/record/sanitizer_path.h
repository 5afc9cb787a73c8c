// Where NVIDIA's Sanitizer library is on this machine: one search for the recorder, which loads it, and for
// `gravel doctor`, which says whether it is there. Needs nothing but libc.
#ifndef GV_RECORD_SANITIZER_PATH_H
#define GV_RECORD_SANITIZER_PATH_H

#include <stdbool.h>
#include <stddef.h>

// One library that was found.
typedef struct gv_sanitizer_choice {
    char path[1024];
    bool tensor_copies; // it has what reports TMA tensor copies (docs/sanitizer.md)
} gv_sanitizer_choice;

// Finds the libraries libsanitizer-public.so of this machine, `most` at most, and returns how many: the best first.
// Those that report tensor copies come before the others; within each group they stand in the order of the search:
//   GRAVEL_SANITIZER (the library or its folder; when set nothing else is looked at),
//   CUDA_HOME and CUDA_PATH, /usr/local/cuda and /usr/local/cuda-* (the newest first),
//   the Python environments in use: VIRTUAL_ENV, CONDA_PREFIX, that of the running interpreter or of python3 in PATH,
//   the user's and the system's packages, and the folder this code was loaded from (a build tree keeps the library
//   under deps/).
// When there is none, `tried` names the places looked at, separated by ", " and cut to fit; else it is empty. Allocates
// only what glob(3) needs and frees it; changes no global state.
size_t gv_sanitizer_find_all(gv_sanitizer_choice *choices, size_t most, char *tried, size_t tried_size);

// The best of them alone: stores its path in `path`. False when there is none, or when the path does not fit.
bool gv_sanitizer_find(char *path, size_t size, char *tried, size_t tried_size);

// Does this library have what reports tensor copies? There is no function that tells a library's version: this looks
// for the name of a class in it. False for a file that cannot be read.
bool gv_sanitizer_reports_tensor_copies(const char *path);

#endif
