// The CBOR core of the trace file: see cbor.h.
#include "trace/cbor.h"

#include "base/memory.h"

#include <string.h>

// ---- Writing --------------------------------------------------------------------------------------------------

bool gv_buffer_reserve(gv_buffer *buffer, size_t more)
{
    if (buffer->failed || more > SIZE_MAX - buffer->size ||
        !GV_GROW(buffer->data, buffer->capacity, buffer->size + more))
        buffer->failed = true;
    return !buffer->failed;
}

void gv_buffer_put(gv_buffer *buffer, const void *data, size_t size)
{
    if (size && gv_buffer_reserve(buffer, size)) {
        memcpy(buffer->data + buffer->size, data, size);
        buffer->size += size;
    }
}

void gv_buffer_free(gv_buffer *buffer)
{
    gv_free(buffer->data);
    *buffer = (gv_buffer){0};
}

// A head in its shortest form: three bits of major type, then the argument in 0, 1, 2, 4 or 8 bytes.
static void put_head(gv_buffer *buffer, enum gv_cbor_major major, uint64_t argument)
{
    uint8_t head[9];
    unsigned extra = argument < 24            ? 0
                     : argument <= UINT8_MAX  ? 1
                     : argument <= UINT16_MAX ? 2
                     : argument <= UINT32_MAX ? 4
                                              : 8;
    unsigned info = extra == 0 ? (unsigned)argument : extra == 1 ? 24 : extra == 2 ? 25 : extra == 4 ? 26 : 27;
    head[0] = (uint8_t)((unsigned)major << 5 | info);
    for (unsigned i = 0; i < extra; i++)
        head[1 + i] = (uint8_t)(argument >> (8 * (extra - 1 - i)));
    gv_buffer_put(buffer, head, 1 + extra);
}

void gv_cbor_put_unsigned(gv_buffer *buffer, uint64_t value)
{
    put_head(buffer, GV_CBOR_UNSIGNED, value);
}

void gv_cbor_put_bytes_head(gv_buffer *buffer, uint64_t size)
{
    put_head(buffer, GV_CBOR_BYTES, size);
}

void gv_cbor_put_bytes(gv_buffer *buffer, const void *data, size_t size)
{
    put_head(buffer, GV_CBOR_BYTES, size);
    gv_buffer_put(buffer, data, size);
}

void gv_cbor_put_text(gv_buffer *buffer, const char *text, size_t length)
{
    put_head(buffer, GV_CBOR_TEXT, length);
    gv_buffer_put(buffer, text, length);
}

void gv_cbor_put_array(gv_buffer *buffer, uint64_t count)
{
    put_head(buffer, GV_CBOR_ARRAY, count);
}

void gv_cbor_put_map(gv_buffer *buffer, uint64_t count)
{
    put_head(buffer, GV_CBOR_MAP, count);
}

bool gv_utf8_valid(const void *data, size_t size)
{
    const uint8_t *p = data, *limit = size ? p + size : p;
    while (p < limit) {
        uint8_t lead = *p++;
        if (lead < 0x80)
            continue;
        // The second byte's bounds depend on the lead: they keep out overlong forms, surrogates and what lies above
        // U+10FFFF (RFC 3629 section 4).
        unsigned more = lead >= 0xc2 && lead <= 0xdf   ? 1
                        : lead >= 0xe0 && lead <= 0xef ? 2
                        : lead >= 0xf0 && lead <= 0xf4 ? 3
                                                       : 0;
        if (more == 0 || (size_t)(limit - p) < more)
            return false;
        uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
        uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
        for (; more; more--, low = 0x80, high = 0xbf) {
            uint8_t byte = *p++;
            if (byte < low || byte > high)
                return false;
        }
    }
    return true;
}

// ---- Reading --------------------------------------------------------------------------------------------------

gv_cbor_cursor gv_cbor_open(const void *data, size_t size)
{
    const uint8_t *bytes = data;
    return (gv_cbor_cursor){.next = bytes, .limit = size ? bytes + size : bytes};
}

bool gv_cbor_at_end(const gv_cbor_cursor *cursor)
{
    return cursor->next >= cursor->limit;
}

bool gv_cbor_peek(const gv_cbor_cursor *cursor, enum gv_cbor_major *major)
{
    if (gv_cbor_at_end(cursor))
        return false;
    *major = (enum gv_cbor_major)(*cursor->next >> 5);
    return true;
}

static bool refuse(gv_cbor_cursor *cursor, const char *problem)
{
    cursor->problem = problem;
    return false;
}

static size_t left(const gv_cbor_cursor *cursor)
{
    return (size_t)(cursor->limit - cursor->next);
}

struct head {
    enum gv_cbor_major major;
    unsigned info;     // the low five bits of the first byte; 31: indefinite length, or break
    uint64_t argument; // 0 when info is 31
    size_t length;     // bytes of the head itself
};

// Reads a head without moving on.
static bool look_at_head(gv_cbor_cursor *cursor, struct head *head)
{
    if (gv_cbor_at_end(cursor))
        return refuse(cursor, "an item is missing at the end");
    uint8_t first = *cursor->next;
    unsigned info = first & 31;
    *head = (struct head){.major = (enum gv_cbor_major)(first >> 5), .info = info, .length = 1};
    if (info < 24) {
        head->argument = info;
    } else if (info <= 27) {
        size_t extra = (size_t)1 << (info - 24);
        if (left(cursor) - 1 < extra)
            return refuse(cursor, "an item's head is cut off");
        for (size_t i = 0; i < extra; i++)
            head->argument = head->argument << 8 | cursor->next[1 + i];
        head->length += extra;
    } else if (info < 31) {
        return refuse(cursor, "an item has a reserved length");
    }
    return true;
}

// Reads the head of an item that must be of `major` and of definite length.
static bool expect(gv_cbor_cursor *cursor, enum gv_cbor_major major, struct head *head)
{
    static const char *const wanted[] = {
        [GV_CBOR_UNSIGNED] = "an unsigned integer was expected",
        [GV_CBOR_BYTES] = "a byte string was expected",
        [GV_CBOR_TEXT] = "a text string was expected",
        [GV_CBOR_ARRAY] = "an array was expected",
        [GV_CBOR_MAP] = "a map was expected",
    };
    if (!look_at_head(cursor, head))
        return false;
    if (head->major != major || head->info == 31)
        return refuse(cursor, wanted[major]);
    return true;
}

bool gv_cbor_read_unsigned(gv_cbor_cursor *cursor, uint64_t *value)
{
    struct head head;
    if (!expect(cursor, GV_CBOR_UNSIGNED, &head))
        return false;
    cursor->next += head.length;
    *value = head.argument;
    return true;
}

static bool read_string(gv_cbor_cursor *cursor, enum gv_cbor_major major, const uint8_t **data, size_t *size)
{
    struct head head;
    if (!expect(cursor, major, &head))
        return false;
    if (head.argument > left(cursor) - head.length)
        return refuse(cursor, "a string is longer than what is left");
    *data = cursor->next + head.length;
    *size = (size_t)head.argument;
    cursor->next = *data + *size;
    return true;
}

bool gv_cbor_read_bytes(gv_cbor_cursor *cursor, const uint8_t **data, size_t *size)
{
    return read_string(cursor, GV_CBOR_BYTES, data, size);
}

bool gv_cbor_read_text(gv_cbor_cursor *cursor, const char **text, size_t *length)
{
    const uint8_t *data;
    if (!read_string(cursor, GV_CBOR_TEXT, &data, length))
        return false;
    *text = (const char *)data;
    return true;
}

bool gv_cbor_read_array(gv_cbor_cursor *cursor, size_t *count)
{
    struct head head;
    if (!expect(cursor, GV_CBOR_ARRAY, &head))
        return false;
    if (head.argument > left(cursor) - head.length)
        return refuse(cursor, "an array has more items than what is left can hold");
    cursor->next += head.length;
    *count = (size_t)head.argument;
    return true;
}

bool gv_cbor_read_map(gv_cbor_cursor *cursor, size_t *count)
{
    struct head head;
    if (!expect(cursor, GV_CBOR_MAP, &head))
        return false;
    if (head.argument > (left(cursor) - head.length) / 2)
        return refuse(cursor, "a map has more items than what is left can hold");
    cursor->next += head.length;
    *count = (size_t)head.argument;
    return true;
}

// An enclosing item that gv_cbor_skip has begun and not finished.
struct level {
    uint64_t items;  // how many are still to come; of indefinite length: how many came, modulo 2
    bool indefinite; // ends at a break
    bool pairs;      // a map: a break may stand only after a whole pair
    bool chunks;     // a string in pieces: only definite strings of `major` may stand in it
    enum gv_cbor_major major;
};

// Passes the head, and for strings and simple values the body, of one item. Sets *opened when items follow in it.
static bool skip_one(gv_cbor_cursor *cursor, const struct level *around, struct level *opened)
{
    struct head head;
    if (!look_at_head(cursor, &head))
        return false;
    *opened = (struct level){.indefinite = head.info == 31, .major = head.major};
    if (around && around->chunks && (head.major != around->major || head.info == 31))
        return refuse(cursor, "a string in pieces holds something else");
    size_t room = left(cursor) - head.length;
    size_t body = 0;
    switch (head.major) {
    case GV_CBOR_UNSIGNED:
    case GV_CBOR_NEGATIVE:
        if (head.info == 31)
            return refuse(cursor, "an integer has an indefinite length");
        break;
    case GV_CBOR_BYTES:
    case GV_CBOR_TEXT:
        opened->chunks = head.info == 31;
        if (head.argument > room)
            return refuse(cursor, "a string is longer than what is left");
        body = (size_t)head.argument;
        break;
    case GV_CBOR_ARRAY:
    case GV_CBOR_MAP:
        opened->pairs = head.major == GV_CBOR_MAP;
        if (head.argument > (opened->pairs ? room / 2 : room))
            return refuse(cursor, "an array or map has more items than what is left can hold");
        opened->items = opened->pairs ? head.argument * 2 : head.argument;
        break;
    case GV_CBOR_TAG:
        if (head.info == 31)
            return refuse(cursor, "a tag has an indefinite length");
        opened->items = 1;
        break;
    case GV_CBOR_SIMPLE:
        // A break is the caller's; it gets here only where none may stand.
        if (head.info == 31)
            return refuse(cursor, "a break stands where none may");
        if (head.info == 24 && head.argument < 32)
            return refuse(cursor, "a simple value is not well-formed");
        break;
    }
    cursor->next += head.length + body;
    return true;
}

bool gv_cbor_skip(gv_cbor_cursor *cursor)
{
    // Explicit levels instead of recursion: depth is bounded by the input's nesting, not by our stack.
    struct level levels[GV_CBOR_NESTING_LIMIT];
    size_t depth = 0;
    const uint8_t *start = cursor->next;
    do {
        struct level *around = depth ? &levels[depth - 1] : NULL;
        if (around && around->indefinite && !gv_cbor_at_end(cursor) && *cursor->next == 0xff) {
            if (around->pairs && around->items) {
                refuse(cursor, "a map ends between a key and its value");
                goto refused;
            }
            cursor->next++;
            depth--;
        } else {
            struct level opened;
            if (!skip_one(cursor, around, &opened))
                goto refused;
            if (around)
                around->items = around->indefinite ? !around->items : around->items - 1;
            if (opened.items || opened.indefinite) {
                if (depth == GV_CBOR_NESTING_LIMIT) {
                    refuse(cursor, "items are nested too deeply");
                    goto refused;
                }
                levels[depth++] = opened;
            }
        }
        while (depth && !levels[depth - 1].indefinite && levels[depth - 1].items == 0)
            depth--;
    } while (depth);
    return true;

refused:
    cursor->next = start;
    return false;
}
