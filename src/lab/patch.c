#include "lab/patch.h"

#include "base/memory.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { MOST_BYTES = 64 << 20 };

gv_status gv_read_whole(const char *path, size_t most, char **text, size_t *length, gv_error *error)
{
    *text = NULL;
    FILE *file = fopen(path, "rb");
    if (!file)
        return gv_fail(error, GV_ERR_IO, "%s cannot be opened: %s", path, strerror(errno));
    size_t capacity = 0, used = 0;
    char *buffer = NULL;
    gv_status status = GV_OK;
    while (status == GV_OK) {
        if (!GV_GROW(buffer, capacity, used + 4096 + 1)) {
            status = gv_fail(error, GV_ERR_MEMORY, "%s: out of memory", path);
            break;
        }
        size_t got = fread(buffer + used, 1, capacity - used - 1, file);
        used += got;
        if (used > most)
            status = gv_fail(error, GV_ERR_LIMIT, "%s has more than %zu bytes", path, most);
        else if (ferror(file))
            status = gv_fail(error, GV_ERR_IO, "%s cannot be read: %s", path, strerror(errno));
        else if (got == 0)
            break;
    }
    fclose(file);
    if (status != GV_OK) {
        gv_free(buffer);
        return status;
    }
    buffer[used] = '\0';
    *text = buffer;
    if (length)
        *length = used;
    return GV_OK;
}

// ---- Patches ------------------------------------------------------------------------------------------------------
// A unified diff as git and diff -u write it: sections, each a header that ends with "+++ " (or with what git says of a
// rename or a binary) and hunks. A hunk's length is in its head, so that a removed line "-- a" is not taken for a
// header.

typedef struct walker {
    const char *next, *end;
    const char *line;
    size_t length; // with its line feed
} walker;

static bool next_line(walker *w)
{
    if (w->next >= w->end)
        return false;
    w->line = w->next;
    const char *feed = memchr(w->next, '\n', (size_t)(w->end - w->next));
    w->next = feed ? feed + 1 : w->end;
    w->length = (size_t)(w->next - w->line);
    return true;
}

static bool starts(const walker *w, const char *word)
{
    size_t length = strlen(word);
    return w->length >= length && memcmp(w->line, word, length) == 0;
}

// What is met while a patch is walked through. `hunk` counts from 0.
typedef struct visitor {
    const bool *keep;
    size_t count;
    FILE *out; // NULL: only count
    size_t hunk;
    const char *header, *header_end; // of the section being read; written before its first kept hunk
    bool header_written, section_has_hunk;
} visitor;

static bool kept(const visitor *v)
{
    return v->out && v->hunk < v->count && v->keep[v->hunk];
}

static void write_header(visitor *v)
{
    if (!v->header_written && v->header)
        fwrite(v->header, 1, (size_t)(v->header_end - v->header), v->out);
    v->header_written = true;
}

// Ends a section: one without hunks is a part of its own.
static void end_section(visitor *v)
{
    if (v->header && !v->section_has_hunk) {
        if (kept(v))
            write_header(v);
        v->hunk++;
    }
    v->header = NULL;
    v->header_written = v->section_has_hunk = false;
}

static bool hunk_lengths(const char *line, unsigned long *before, unsigned long *after)
{
    unsigned long from, to;
    *before = *after = 1;
    int end = 0;
    if (sscanf(line, "@@ -%lu,%lu +%lu,%lu @@%n", &from, before, &to, after, &end) == 4 && end)
        return true;
    *before = 1;
    if (sscanf(line, "@@ -%lu +%lu,%lu @@%n", &from, &to, after, &end) == 3 && end)
        return true;
    *after = 1;
    if (sscanf(line, "@@ -%lu,%lu +%lu @@%n", &from, before, &to, &end) == 3 && end)
        return true;
    *before = 1;
    return sscanf(line, "@@ -%lu +%lu @@%n", &from, &to, &end) == 2 && end;
}

static gv_status walk(const char *path, visitor *v, gv_error *error)
{
    char *text;
    size_t length;
    gv_status status = gv_read_whole(path, MOST_BYTES, &text, &length, error);
    if (status != GV_OK)
        return status;
    walker w = {.next = text, .end = text + length};
    bool more = next_line(&w);
    while (status == GV_OK && more) {
        bool git = starts(&w, "diff --git "), plain = starts(&w, "--- ");
        if (!git && !plain) {
            // Mail headers, a description, "-- " and a version: no part of any file's section.
            if (starts(&w, "@@ "))
                status = gv_fail(error, GV_ERR_FORMAT, "%s: a hunk comes before any \"---\" and \"+++\" lines", path);
            more = next_line(&w);
            continue;
        }
        end_section(v);
        v->header = w.line;
        do {
            v->header_end = w.next;
            bool last = starts(&w, "+++ ");
            more = next_line(&w);
            if (last)
                break;
        } while (more && !starts(&w, "@@ ") && !starts(&w, "diff --git "));
        while (status == GV_OK && more && starts(&w, "@@ ")) {
            unsigned long before, after;
            v->section_has_hunk = true;
            bool wanted = kept(v);
            if (wanted)
                write_header(v);
            if (!hunk_lengths(w.line, &before, &after)) {
                status = gv_fail(error, GV_ERR_FORMAT, "%s: hunk %zu has no line numbers gravel can read: \"%.40s\"",
                                 path, v->hunk + 1, w.line);
                break;
            }
            if (wanted)
                fwrite(w.line, 1, w.length, v->out);
            while ((more = next_line(&w)) && (before || after || w.line[0] == '\\')) {
                char kind = w.line[0];
                before -= (kind == ' ' || kind == '-' || kind == '\n') && before;
                after -= (kind == ' ' || kind == '+' || kind == '\n') && after;
                if (wanted)
                    fwrite(w.line, 1, w.length, v->out);
            }
            if (before || after)
                status = gv_fail(error, GV_ERR_FORMAT, "%s: hunk %zu ends before its last line; the file is cut", path,
                                 v->hunk + 1);
            v->hunk++;
        }
    }
    if (status == GV_OK)
        end_section(v);
    gv_free(text);
    if (status == GV_OK && v->hunk == 0)
        status =
            gv_fail(error, GV_ERR_FORMAT, "%s holds no hunk of a unified diff; make it with git diff or diff -u", path);
    return status;
}

gv_status gv_patch_hunks(const char *path, size_t *count, gv_error *error)
{
    visitor v = {0};
    gv_status status = walk(path, &v, error);
    *count = v.hunk;
    return status;
}

static gv_status close_file(FILE *file, const char *path, gv_error *error)
{
    bool failed = ferror(file);
    if (fclose(file) != 0 || failed)
        return gv_fail(error, GV_ERR_IO, "%s cannot be written: %s", path, strerror(errno));
    return GV_OK;
}

gv_status gv_patch_select(const char *path, const bool *keep, size_t count, const char *out, gv_error *error)
{
    FILE *file = fopen(out, "wb");
    if (!file)
        return gv_fail(error, GV_ERR_IO, "%s cannot be written: %s", out, strerror(errno));
    visitor v = {.keep = keep, .count = count, .out = file};
    gv_status status = walk(path, &v, error);
    gv_status closed = close_file(file, out, error);
    if (status == GV_OK && closed == GV_OK && v.hunk != count)
        return gv_fail(error, GV_ERR_FORMAT, "%s has %zu hunks and had %zu before; it was changed meanwhile", path,
                       v.hunk, count);
    return status != GV_OK ? status : closed;
}

// ---- Fix files ----------------------------------------------------------------------------------------------------

static gv_status load_fix(const char *path, json_t **fix, json_t **edges, gv_error *error)
{
    json_error_t why;
    *fix = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (!*fix)
        return gv_fail(error, GV_ERR_FORMAT, "%s:%d: %s; `gravel fix` writes fix files", path, why.line, why.text);
    *edges = json_object_get(*fix, "edges");
    if (json_is_array(*edges))
        return GV_OK;
    json_decref(*fix);
    *fix = NULL;
    return gv_fail(error, GV_ERR_FORMAT, "%s has no array `edges`; `gravel fix` writes fix files", path);
}

gv_status gv_fix_edges(const char *path, size_t *count, gv_error *error)
{
    json_t *fix, *edges;
    gv_status status = load_fix(path, &fix, &edges, error);
    if (status != GV_OK)
        return status;
    *count = json_array_size(edges);
    json_decref(fix);
    return GV_OK;
}

gv_status gv_fix_select(const char *path, const bool *keep, size_t count, const char *out, gv_error *error)
{
    json_t *fix, *edges;
    gv_status status = load_fix(path, &fix, &edges, error);
    if (status != GV_OK)
        return status;
    if (json_array_size(edges) != count)
        status = gv_fail(error, GV_ERR_FORMAT, "%s has %zu edges and had %zu before; it was changed meanwhile", path,
                         json_array_size(edges), count);
    for (size_t i = count; status == GV_OK && i-- > 0;) {
        if (!keep[i])
            json_array_remove(edges, i);
    }
    if (status == GV_OK && json_dump_file(fix, out, JSON_INDENT(2)) != 0)
        status = gv_fail(error, GV_ERR_IO, "%s cannot be written: %s", out, strerror(errno));
    json_decref(fix);
    return status;
}
