// Building and laying out text: a growing string, numbers as people read them, text that came from a trace made safe
// for a terminal and for JSON, and paragraphs wrapped at the report's width.
#ifndef GV_REPORT_FORMAT_H
#define GV_REPORT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { GV_REPORT_WIDTH = 100 };

// A string that grows. Zero-initialise it; release it with gv_string_free. When memory runs out it keeps what it
// has and sets `failed`, which the caller looks at once, at the end.
typedef struct gv_string {
    char *text; // NULL while nothing was added; else NUL-terminated
    size_t length, capacity;
    bool failed;
} gv_string;

void gv_string_add(gv_string *string, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gv_string_add_bytes(gv_string *string, const char *bytes, size_t length);

// Adds text that came from outside. Control characters become \n, \t or \xNN and bytes that are not UTF-8 become \xNN,
// so that a name in a trace cannot steer the reader's terminal. NULL adds nothing.
void gv_string_add_safe(gv_string *string, const char *text);

// Empties the string and keeps its memory.
void gv_string_clear(gv_string *string);
void gv_string_free(gv_string *string);

// The text, never NULL.
const char *gv_string_text(const gv_string *string);

// How many bytes the UTF-8 sequence at `text` has (1 to 4), or 0 when the first byte starts none. Surrogates, values
// past U+10FFFF and overlong forms are refused, as RFC 3629 asks.
size_t gv_utf8_length(const char *text);

// "2,048". Points into one of eight static buffers of the calling thread, so that up to eight can stand in one printf.
const char *gv_number(uint64_t value);

// "1 byte", "2,048 bytes": the word `one` for 1, else `many`. Buffers as for gv_number.
const char *gv_count(uint64_t value, const char *one, const char *many);

// How many columns UTF-8 text takes, counting each code point as one.
size_t gv_columns(const char *text);

// Prints `text` wrapped at `width` columns: `first` in front of the first line, blanks as wide as `indent` before the
// others. A word longer than a line stands on a line of its own, uncut.
void gv_print_wrapped(FILE *out, const char *first, size_t indent, size_t width, const char *text);

#endif
