// What can be told from a text alone: pieces of chat templates, characters that no answer has, and repetition.
#ifndef GV_STRESS_TEXT_CHECKS_H
#define GV_STRESS_TEXT_CHECKS_H

#include <stdbool.h>
#include <stddef.h>

// The pieces of chat templates and tool-call syntaxes that a server takes out of an answer; a list that ends with NULL.
extern const char *const gv_template_fragments[];

// The first of the fragments that occurs in the text, or NULL. `extra` is a list that ends with NULL, or NULL.
const char *gv_find_fragment(const char *text, size_t length, const char *const *extra);

// Whether the text (UTF-8) holds U+FFFD, which stands for bytes that were no UTF-8, or a control character other than
// tab, line feed and carriage return. `*at` is its offset.
bool gv_find_garbled(const char *text, size_t length, size_t *at);

typedef struct gv_loop {
    size_t start, length; // the part that repeats, in bytes
    size_t period;        // exact repetition: bytes of what is repeated; 0: few distinct word sequences
} gv_loop;

// Whether the text repeats itself: a piece of up to 256 bytes at least 10 times in a row, 400 bytes or more in all; or
// at least 240 words of which fewer than one in five sequences of four is new. Looks at the last 16 KiB, since a loop
// that a model is in lasts until the answer ends.
bool gv_find_loop(const char *text, size_t length, gv_loop *loop);

#endif
