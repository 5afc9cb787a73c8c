// Encoding and decoding of records, driven by field tables generated from record.h: see codec.h.
#include "trace/codec.h"

#include "base/memory.h"
#include "trace/leb128.h"

#include <string.h>

// ---- The field tables -----------------------------------------------------------------------------------------

enum field_kind { KIND_NUMBER, KIND_TEXT, KIND_BYTES, KIND_NUMBERS };

static const char *const kind_names[] = {
    [KIND_NUMBER] = "an unsigned integer",
    [KIND_TEXT] = "a text string",
    [KIND_BYTES] = "a byte string",
    [KIND_NUMBERS] = "a byte string of LEB128 numbers",
};

struct field {
    uint8_t key;
    uint8_t kind;    // enum field_kind
    uint16_t offset; // in the record's struct
};

struct layout {
    const char *name;
    const struct field *fields;
    size_t field_count;
};

// The field macros do not know their record's name, hence the local typedef.
#define FIELD_ROW(key, kind, name) {key, KIND_##kind, offsetof(record_struct, name)},
#define DEFINE_LAYOUT(number, name, FIELDS)                                    \
    static struct layout layout_##name(void)                                   \
    {                                                                          \
        typedef gv_##name##_record record_struct;                              \
        static const struct field fields[] = {FIELDS(FIELD_ROW)};              \
        return (struct layout){#name, fields, sizeof fields / sizeof *fields}; \
    }
GV_RECORDS(DEFINE_LAYOUT)

// The keys seen in a record are kept in the bits of one word.
enum { KEY_LIMIT = 64 };
#define CHECK_KEY(key, kind, name)       _Static_assert((key) < KEY_LIMIT, "key of " #name);
#define CHECK_KEYS(number, name, FIELDS) FIELDS(CHECK_KEY)
GV_RECORDS(CHECK_KEYS)

#define COUNT_NUMBERS_NUMBER           0
#define COUNT_NUMBERS_TEXT             0
#define COUNT_NUMBERS_BYTES            0
#define COUNT_NUMBERS_NUMBERS          1
#define COUNT_NUMBERS(key, kind, name) +COUNT_NUMBERS_##kind
#define CHECK_SLOTS(number, name, FIELDS)                                                                        \
    _Static_assert(0 FIELDS(COUNT_NUMBERS) <= sizeof((gv_number_pool){0}).slots / sizeof(struct gv_number_slot), \
                   "more NUMBERS fields in " #name " than a pool has slots");
GV_RECORDS(CHECK_SLOTS)

// The layout of a record type; one without a name for a type this build does not know.
static struct layout layout_of(uint64_t type)
{
    switch (type) {
#define LAYOUT_CASE(number, name, FIELDS) \
    case number: return layout_##name();
        GV_RECORDS(LAYOUT_CASE)
    default: return (struct layout){0};
    }
}

const char *gv_record_type_name(uint64_t type)
{
    const char *name = layout_of(type).name;
    return name ? name : "unknown";
}

// ---- Encoding -------------------------------------------------------------------------------------------------

// Longest head of a CBOR item.
enum { HEAD_BYTES = 9 };

static const void *member(const void *record, struct field field)
{
    return (const char *)record + field.offset;
}

// Texts, byte strings and numbers all begin with a pointer and a count, and are empty when the count is 0.
static bool is_empty(const void *record, struct field field)
{
    const void *value = member(record, field);
    switch ((enum field_kind)field.kind) {
    case KIND_NUMBER: return *(const uint64_t *)value == 0;
    case KIND_TEXT: return ((const gv_text *)value)->length == 0;
    case KIND_BYTES: return ((const gv_bytes *)value)->length == 0;
    case KIND_NUMBERS: return ((const gv_numbers *)value)->count == 0;
    }
    return true;
}

size_t gv_record_bound(uint64_t type, const void *record)
{
    struct layout layout = layout_of(type);
    size_t bound = (size_t)3 * HEAD_BYTES;
    for (size_t i = 0; i < layout.field_count; i++) {
        const void *value = member(record, layout.fields[i]);
        size_t body = 0;
        switch ((enum field_kind)layout.fields[i].kind) {
        case KIND_NUMBER: break;
        case KIND_TEXT: body = ((const gv_text *)value)->length; break;
        case KIND_BYTES: body = ((const gv_bytes *)value)->length; break;
        case KIND_NUMBERS: body = ((const gv_numbers *)value)->count * GV_LEB128_MAX_BYTES; break;
        }
        bound += 1 + HEAD_BYTES + body;
    }
    return bound;
}

static void put_numbers(gv_buffer *buffer, gv_numbers numbers)
{
    uint8_t bytes[GV_LEB128_MAX_BYTES];
    size_t size = 0;
    for (size_t i = 0; i < numbers.count; i++)
        size += gv_leb128_write(numbers.items[i], bytes);
    gv_cbor_put_bytes_head(buffer, size);
    for (size_t i = 0; i < numbers.count; i++)
        gv_buffer_put(buffer, bytes, gv_leb128_write(numbers.items[i], bytes));
}

static void put_text(gv_buffer *buffer, gv_text text)
{
    if (gv_utf8_valid(text.data, text.length))
        gv_cbor_put_text(buffer, text.data, text.length);
    else
        gv_cbor_put_bytes(buffer, text.data, text.length);
}

void gv_record_encode(gv_buffer *buffer, uint64_t type, const void *record)
{
    struct layout layout = layout_of(type);
    size_t present = 0;
    for (size_t i = 0; i < layout.field_count; i++)
        present += !is_empty(record, layout.fields[i]);
    gv_cbor_put_array(buffer, 2);
    gv_cbor_put_unsigned(buffer, type);
    gv_cbor_put_map(buffer, present);
    for (size_t i = 0; i < layout.field_count; i++) {
        struct field field = layout.fields[i];
        if (is_empty(record, field))
            continue;
        const void *value = member(record, field);
        gv_cbor_put_unsigned(buffer, field.key);
        switch ((enum field_kind)field.kind) {
        case KIND_NUMBER: gv_cbor_put_unsigned(buffer, *(const uint64_t *)value); break;
        case KIND_TEXT: put_text(buffer, *(const gv_text *)value); break;
        case KIND_BYTES:
            gv_cbor_put_bytes(buffer, ((const gv_bytes *)value)->data, ((const gv_bytes *)value)->length);
            break;
        case KIND_NUMBERS: put_numbers(buffer, *(const gv_numbers *)value); break;
        }
    }
}

// ---- Decoding -------------------------------------------------------------------------------------------------

void gv_number_pool_free(gv_number_pool *pool)
{
    for (size_t i = 0; i < sizeof pool->slots / sizeof *pool->slots; i++)
        gv_free(pool->slots[i].items);
    *pool = (gv_number_pool){0};
}

static gv_status read_numbers(const uint8_t *data, size_t size, struct gv_number_slot *slot, gv_numbers *numbers,
                              gv_error *error)
{
    // Every number ends with a byte whose high bit is clear, so that counting those gives the exact size first.
    size_t count = 0;
    for (size_t i = 0; i < size; i++)
        count += data[i] < 0x80;
    if (!GV_GROW(slot->items, slot->capacity, count))
        return gv_fail(error, GV_ERR_MEMORY, "no memory for %zu numbers of a trace record", count);
    const uint8_t *next = data, *limit = size ? data + size : data;
    for (size_t i = 0; next < limit; i++) {
        uint64_t value;
        next = gv_leb128_read(next, limit, &value);
        if (!next)
            return gv_fail(error, GV_ERR_FORMAT, "number %zu of a list is not a LEB128 number of 64 bits", i);
        slot->items[i] = value;
    }
    *numbers = (gv_numbers){slot->items, count};
    return GV_OK;
}

static bool read_text(gv_cbor_cursor *cursor, gv_text *text)
{
    enum gv_cbor_major major;
    if (gv_cbor_peek(cursor, &major) && major == GV_CBOR_BYTES) {
        const uint8_t *data;
        if (!gv_cbor_read_bytes(cursor, &data, &text->length))
            return false;
        text->data = (const char *)data;
        return true;
    }
    return gv_cbor_read_text(cursor, &text->data, &text->length);
}

// Reads the value of one known field into the record.
static gv_status read_field(gv_cbor_cursor *cursor, struct field field, struct gv_number_slot *slot, void *record,
                            gv_error *error)
{
    void *value = (char *)record + field.offset;
    const uint8_t *data;
    size_t size;
    bool good = false;
    switch ((enum field_kind)field.kind) {
    case KIND_NUMBER: good = gv_cbor_read_unsigned(cursor, value); break;
    case KIND_TEXT: good = read_text(cursor, value); break;
    case KIND_BYTES:
        good = gv_cbor_read_bytes(cursor, &data, &size);
        if (good)
            *(gv_bytes *)value = (gv_bytes){data, size};
        break;
    case KIND_NUMBERS:
        good = gv_cbor_read_bytes(cursor, &data, &size);
        if (good)
            return read_numbers(data, size, slot, value, error);
        break;
    }
    if (!good)
        return gv_fail(error, GV_ERR_FORMAT, "not %s: %s", kind_names[field.kind], cursor->problem);
    return GV_OK;
}

// Reads the map of a record of known type.
static gv_status read_fields(gv_cbor_cursor *cursor, const struct layout *layout, gv_number_pool *pool, void *record,
                             gv_error *error)
{
    size_t pairs, used_slots = 0;
    uint64_t seen = 0;
    if (!gv_cbor_read_map(cursor, &pairs))
        return gv_fail(error, GV_ERR_FORMAT, "its fields are no map: %s", cursor->problem);
    for (; pairs; pairs--) {
        uint64_t key;
        if (!gv_cbor_read_unsigned(cursor, &key))
            return gv_fail(error, GV_ERR_FORMAT, "a key is not valid: %s", cursor->problem);
        if (key < KEY_LIMIT) {
            if (seen >> key & 1)
                return gv_fail(error, GV_ERR_FORMAT, "key %u stands twice", (unsigned)key);
            seen |= UINT64_C(1) << key;
        }
        size_t i = 0;
        while (i < layout->field_count && layout->fields[i].key != key)
            i++;
        if (i == layout->field_count) {
            if (!gv_cbor_skip(cursor))
                return gv_fail(error, GV_ERR_FORMAT, "the value of an unknown key is not valid: %s", cursor->problem);
            continue;
        }
        struct field field = layout->fields[i];
        // No key stands twice, so there are never more slots in use than the type has NUMBERS fields.
        struct gv_number_slot *slot = &pool->slots[used_slots];
        if (field.kind == KIND_NUMBERS)
            used_slots++;
        gv_status status = read_field(cursor, field, slot, record, error);
        if (status != GV_OK) {
            gv_error_prefix(error, "key %u", field.key);
            return status;
        }
    }
    return GV_OK;
}

gv_status gv_record_decode(gv_cbor_cursor *cursor, gv_number_pool *pool, gv_record *record, gv_error *error)
{
    size_t items;
    uint64_t type;
    if (!gv_cbor_read_array(cursor, &items))
        return gv_fail(error, GV_ERR_FORMAT, "a record does not begin: %s", cursor->problem);
    if (items != 2)
        return gv_fail(error, GV_ERR_FORMAT, "a record has %zu items where it must have 2", items);
    if (!gv_cbor_read_unsigned(cursor, &type))
        return gv_fail(error, GV_ERR_FORMAT, "a record has no type: %s", cursor->problem);
    memset(record, 0, sizeof *record);
    record->type = type;
    struct layout layout = layout_of(type);
    if (!layout.name) {
        if (!gv_cbor_skip(cursor))
            return gv_fail(error, GV_ERR_FORMAT, "a record of unknown type is not valid: %s", cursor->problem);
        return GV_OK;
    }
    // All members of the union begin at the same place, that of the first.
    gv_status status = read_fields(cursor, &layout, pool, &record->frame, error);
    if (status != GV_OK)
        gv_error_prefix(error, "%s record", layout.name);
    return status;
}

bool gv_record_peek_version(gv_cbor_cursor cursor, uint64_t *major, uint64_t *minor)
{
    size_t items, pairs;
    uint64_t type, key;
    enum gv_cbor_major kind;
    if (!gv_cbor_read_array(&cursor, &items) || items < 2 || !gv_cbor_read_unsigned(&cursor, &type) ||
        type != GV_RECORD_frame || !gv_cbor_read_map(&cursor, &pairs))
        return false;
    bool found = false;
    *minor = 0;
    for (; pairs; pairs--) {
        bool numbered = gv_cbor_peek(&cursor, &kind) && kind == GV_CBOR_UNSIGNED;
        if (numbered ? !gv_cbor_read_unsigned(&cursor, &key) : !gv_cbor_skip(&cursor))
            return false;
        if (numbered && (key == 1 || key == 2) && gv_cbor_peek(&cursor, &kind) && kind == GV_CBOR_UNSIGNED) {
            if (!gv_cbor_read_unsigned(&cursor, key == 1 ? major : minor))
                return false;
            found = found || key == 1;
        } else if (!gv_cbor_skip(&cursor)) {
            return false;
        }
    }
    return found;
}
