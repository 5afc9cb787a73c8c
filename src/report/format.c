#include "report/format.h"

#include "base/memory.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

void gv_string_add_bytes(gv_string *string, const char *bytes, size_t length)
{
    if (string->failed)
        return;
    if (length >= SIZE_MAX - string->length || !GV_GROW(string->text, string->capacity, string->length + length + 1)) {
        string->failed = true;
        return;
    }
    memcpy(string->text + string->length, bytes, length);
    string->length += length;
    string->text[string->length] = '\0';
}

void gv_string_add(gv_string *string, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    va_list again;
    va_copy(again, arguments);
    char small[256];
    int needed = vsnprintf(small, sizeof small, format, arguments);
    va_end(arguments);
    if (needed < 0) {
        string->failed = true;
    } else if ((size_t)needed < sizeof small) {
        gv_string_add_bytes(string, small, (size_t)needed);
    } else if (!string->failed) {
        size_t wanted = (size_t)needed + 1;
        if (GV_GROW(string->text, string->capacity, string->length + wanted)) {
            vsnprintf(string->text + string->length, wanted, format, again);
            string->length += (size_t)needed;
        } else {
            string->failed = true;
        }
    }
    va_end(again);
}

size_t gv_utf8_length(const char *text)
{
    const unsigned char *byte = (const unsigned char *)text;
    if (byte[0] < 0x80)
        return 1;
    size_t length = byte[0] >= 0xc2 && byte[0] < 0xe0   ? 2
                    : (byte[0] & 0xf0) == 0xe0          ? 3
                    : byte[0] >= 0xf0 && byte[0] < 0xf5 ? 4
                                                        : 0;
    for (size_t i = 1; i < length; i++) {
        if ((byte[i] & 0xc0) != 0x80)
            return 0;
    }
    bool refused = (byte[0] == 0xe0 && byte[1] < 0xa0) || (byte[0] == 0xed && byte[1] >= 0xa0) ||
                   (byte[0] == 0xf0 && byte[1] < 0x90) || (byte[0] == 0xf4 && byte[1] >= 0x90);
    return refused ? 0 : length;
}

void gv_string_add_safe(gv_string *string, const char *text)
{
    for (const char *next = text; next && *next;) {
        size_t length = gv_utf8_length(next);
        unsigned char byte = (unsigned char)*next;
        // U+0080 to U+009F are control characters too: some terminals take 0xc2 0x9b for the start of a sequence.
        bool control = byte < 0x20 || byte == 0x7f || (byte == 0xc2 && (unsigned char)next[1] < 0xa0);
        if (length && !control) {
            gv_string_add_bytes(string, next, length);
            next += length;
        } else {
            if (byte == '\n')
                gv_string_add(string, "\\n");
            else if (byte == '\t')
                gv_string_add(string, "\\t");
            else
                gv_string_add(string, "\\x%02x", byte);
            next++;
        }
    }
}

void gv_string_clear(gv_string *string)
{
    string->length = 0;
    if (string->text)
        string->text[0] = '\0';
}

void gv_string_free(gv_string *string)
{
    gv_free(string->text);
    *string = (gv_string){0};
}

const char *gv_string_text(const gv_string *string)
{
    return string->text ? string->text : "";
}

// ---- Numbers --------------------------------------------------------------------------------------------------

enum { NUMBER_BUFFERS = 8, NUMBER_SIZE = 96 };

static char *next_buffer(void)
{
    static _Thread_local char buffers[NUMBER_BUFFERS][NUMBER_SIZE];
    static _Thread_local unsigned turn;
    return buffers[turn++ % NUMBER_BUFFERS];
}

// Writes the digits in groups of three; the end of what was written.
static char *put_number(char *out, uint64_t value)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, value);
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            *out++ = ',';
        *out++ = digits[i];
    }
    *out = '\0';
    return out;
}

const char *gv_number(uint64_t value)
{
    char *out = next_buffer();
    put_number(out, value);
    return out;
}

const char *gv_count(uint64_t value, const char *one, const char *many)
{
    char *out = next_buffer(), *end = put_number(out, value);
    snprintf(end, NUMBER_SIZE - (size_t)(end - out), " %s", value == 1 ? one : many);
    return out;
}

// ---- Layout ---------------------------------------------------------------------------------------------------

size_t gv_columns(const char *text)
{
    size_t columns = 0;
    for (; *text; text++)
        columns += ((unsigned char)*text & 0xc0) != 0x80;
    return columns;
}

void gv_print_wrapped(FILE *out, const char *first, size_t indent, size_t width, const char *text)
{
    fputs(first, out);
    size_t column = gv_columns(first);
    bool at_start = true; // of a line's text
    for (const char *word = text; *word;) {
        while (*word == ' ')
            word++;
        size_t bytes = strcspn(word, " ");
        if (!bytes)
            break;
        size_t columns = 0;
        for (size_t i = 0; i < bytes; i++)
            columns += ((unsigned char)word[i] & 0xc0) != 0x80;
        if (!at_start && column + 1 + columns > width) {
            fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
            at_start = true;
        }
        if (!at_start) {
            fputc(' ', out);
            column++;
        }
        fwrite(word, 1, bytes, out);
        column += columns;
        at_start = false;
        word += bytes;
    }
    fputc('\n', out);
}
