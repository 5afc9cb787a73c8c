// The one error idiom of gravel: a function that can fail returns a gv_status and, where the caller gave one,
// fills a gv_error with a sentence that names the place and the remedy. Nothing prints on its own.
#ifndef GV_BASE_ERROR_H
#define GV_BASE_ERROR_H

#include <stdarg.h>
#include <stddef.h>

typedef enum gv_status {
    GV_OK = 0,
    GV_ERR_MEMORY,  // an allocation failed
    GV_ERR_IO,      // the operating system refused; text carries strerror
    GV_ERR_FORMAT,  // the input is not what it claims to be
    GV_ERR_VERSION, // the input is of a version this build does not read
    GV_ERR_LIMIT,   // the input asks for more than a stated limit
    GV_ERR_USAGE,   // the caller's request makes no sense
    GV_ERR_MISSING, // something that was asked for is not there
} gv_status;

// A failure and its message. Owned by the caller; zero-initialise it.
typedef struct gv_error {
    gv_status status;
    char text[512];
} gv_error;

// Fills `error` (which may be NULL) with `status` and a formatted message and returns `status`, so that a
// failing function can end with `return gv_fail(error, GV_ERR_IO, "...")`. A message that does not fit is cut.
gv_status gv_fail(gv_error *error, gv_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

// As gv_fail, with the argument list of a caller that is variadic itself.
gv_status gv_vfail(gv_error *error, gv_status status, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

// Puts "prefix: " in front of a message that is already there; for a caller that knows the place (a file name).
void gv_error_prefix(gv_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

// The status in one word, for logs and tests ("ok", "memory", ...). Never NULL.
const char *gv_status_name(gv_status status);

#endif
