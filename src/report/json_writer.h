// Writes JSON (RFC 8259) as it goes, without a tree in memory: a check of a large trace can name millions of ranges.
#ifndef GV_REPORT_JSON_WRITER_H
#define GV_REPORT_JSON_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { GV_JSON_DEPTH = 16 };

// Zero-initialise it and set `out`. Objects and arrays whose members are simple are kept on one line by opening them
// with gv_json_open_flat.
typedef struct gv_json {
    FILE *out;
    unsigned depth;
    bool failed; // memory ran out for a text; the caller looks at the end
    bool has_members[GV_JSON_DEPTH + 1];
    bool flat[GV_JSON_DEPTH + 1];
    char closing[GV_JSON_DEPTH + 1];
} gv_json;

// Opens an object ('{') or array ('['); `key` is NULL inside an array and at the top. Nesting past GV_JSON_DEPTH is a
// mistake of the caller and ends the program.
void gv_json_open(gv_json *json, const char *key, char bracket);
void gv_json_open_flat(gv_json *json, const char *key, char bracket);
void gv_json_close(gv_json *json);

// A member or element. Text that is not UTF-8 has each wrong byte replaced by U+FFFD; NULL text becomes null.
void gv_json_text(gv_json *json, const char *key, const char *text);
void gv_json_number(gv_json *json, const char *key, uint64_t number);
void gv_json_bool(gv_json *json, const char *key, bool value);
void gv_json_null(gv_json *json, const char *key);

// An address as text, "0x7f0000001000": many readers of JSON keep numbers as doubles, which have 53 bits.
void gv_json_address(gv_json *json, const char *key, uint64_t address);

#endif
