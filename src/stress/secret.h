// Keeps the bearer key out of what is written: a server may repeat it in an error, and a model in a text.
#ifndef GV_STRESS_SECRET_H
#define GV_STRESS_SECRET_H

#include <stddef.h>

// Overwrites with '*' every place of the text that holds the key or at least its first 8 characters (messages are cut).
// Does nothing when `key` is NULL or has fewer than 4 characters, which keep no secret.
void gv_redact(char *text, size_t length, const char *key);

#endif
