// Where NVIDIA's Sanitizer library is on this machine: one search for the recorder, which loads it, and for
// `gravel doctor`, which says whether it is there. Needs nothing but libc.
#ifndef GV_RECORD_SANITIZER_PATH_H
#define GV_RECORD_SANITIZER_PATH_H

#include <stdbool.h>
#include <stddef.h>

// Finds libsanitizer-public.so and stores its path in `path`. Looks, in this order, at
//   GRAVEL_SANITIZER (the library or its folder; when set nothing else is looked at),
//   CUDA_HOME and CUDA_PATH, /usr/local/cuda and /usr/local/cuda-* (the newest first),
//   the folder this code was loaded from (a build tree keeps the library under deps/),
//   and the Python environments in use: VIRTUAL_ENV, CONDA_PREFIX, that of the running interpreter or of python3 in
//   PATH, the user's and the system's packages.
// Returns false when there is none; `tried` then names the places looked at, separated by ", " and cut to fit. On
// success `tried` is empty. Allocates only what glob(3) needs and frees it; changes no global state.
bool gv_sanitizer_find(char *path, size_t size, char *tried, size_t tried_size);

#endif
