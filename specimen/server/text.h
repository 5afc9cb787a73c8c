// A byte buffer that grows, for bodies, events and page images of the specimen's servers.
#ifndef GV_SERVER_TEXT_H
#define GV_SERVER_TEXT_H

#include <stdbool.h>
#include <stddef.h>

// Zero-initialise it. `data` is not terminated. Once memory ran out `failed` is set and stays set, and later additions
// do nothing, so that a writer may look once, at the end.
typedef struct gv_text {
    char *data;
    size_t length, capacity;
    bool failed;
} gv_text;

// Appends bytes; false when memory ran out now or before.
bool gv_text_add(gv_text *text, const void *bytes, size_t length);
bool gv_text_add_string(gv_text *text, const char *string);
bool gv_text_format(gv_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Drops the first `length` bytes.
void gv_text_drop(gv_text *text, size_t length);

// Hands the bytes over to the caller, who frees them with gv_free, and leaves the buffer empty. A zero byte that
// `*length` does not count ends them. NULL when memory ran out.
char *gv_text_take(gv_text *text, size_t *length);

void gv_text_free(gv_text *text);

#endif
