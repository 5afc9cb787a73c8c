#include "report/json_writer.h"

#include "report/format.h"

#include <inttypes.h>
#include <stdlib.h>

static void write_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (const char *next = text; *next;) {
        unsigned char byte = (unsigned char)*next;
        size_t length = gv_utf8_length(next);
        if (byte == '"' || byte == '\\')
            fprintf(out, "\\%c", byte);
        else if (byte == '\n')
            fputs("\\n", out);
        else if (byte < 0x20 || byte == 0x7f)
            fprintf(out, "\\u%04x", byte);
        else if (length)
            fwrite(next, 1, length, out);
        else
            fputs("\xef\xbf\xbd", out); // U+FFFD
        next += length ? length : 1;
    }
    fputc('"', out);
}

// Puts the comma, the line break and the key in front of a member.
static void begin_member(gv_json *json, const char *key)
{
    if (json->depth) {
        if (json->has_members[json->depth])
            fputc(',', json->out);
        if (!json->flat[json->depth])
            fprintf(json->out, "\n%*s", (int)json->depth * 2, "");
        else if (json->has_members[json->depth])
            fputc(' ', json->out);
    }
    json->has_members[json->depth] = true;
    if (key) {
        write_text(json->out, key);
        fputs(": ", json->out);
    }
}

static void open_level(gv_json *json, const char *key, char bracket, bool flat)
{
    begin_member(json, key);
    if (json->depth >= GV_JSON_DEPTH)
        abort();
    fputc(bracket, json->out);
    json->depth++;
    json->has_members[json->depth] = false;
    json->flat[json->depth] = flat || json->flat[json->depth - 1];
    json->closing[json->depth] = bracket == '{' ? '}' : ']';
}

void gv_json_open(gv_json *json, const char *key, char bracket)
{
    open_level(json, key, bracket, false);
}

void gv_json_open_flat(gv_json *json, const char *key, char bracket)
{
    open_level(json, key, bracket, true);
}

void gv_json_close(gv_json *json)
{
    if (!json->depth)
        abort();
    if (json->has_members[json->depth] && !json->flat[json->depth])
        fprintf(json->out, "\n%*s", (int)(json->depth - 1) * 2, "");
    fputc(json->closing[json->depth], json->out);
    json->depth--;
    if (!json->depth)
        fputc('\n', json->out);
}

void gv_json_text(gv_json *json, const char *key, const char *text)
{
    if (!text) {
        gv_json_null(json, key);
        return;
    }
    begin_member(json, key);
    write_text(json->out, text);
}

void gv_json_number(gv_json *json, const char *key, uint64_t number)
{
    begin_member(json, key);
    fprintf(json->out, "%" PRIu64, number);
}

void gv_json_bool(gv_json *json, const char *key, bool value)
{
    begin_member(json, key);
    fputs(value ? "true" : "false", json->out);
}

void gv_json_null(gv_json *json, const char *key)
{
    begin_member(json, key);
    fputs("null", json->out);
}

void gv_json_address(gv_json *json, const char *key, uint64_t address)
{
    begin_member(json, key);
    fprintf(json->out, "\"0x%" PRIx64 "\"", address);
}
