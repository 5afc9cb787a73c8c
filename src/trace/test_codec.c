// Records to CBOR and back: every record type of the table with all its fields and with none, what a later minor
// version may add, and what must be refused. libcbor reads what we write.
#include "trace/codec.h"

#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cbor.h>
#include <cmocka.h>

// ---- Every record type ----------------------------------------------------------------------------------------

static uint64_t some_numbers[] = {0, 1, 127, 128, 1ull << 35, UINT64_MAX, 3};

// Distinct, non-empty values for every kind of field.
static void fill_NUMBER(uint64_t *field, unsigned key)
{
    *field = key % 3 == 0 ? UINT64_MAX - key : 1000 * key;
}
static void fill_TEXT(gv_text *field, unsigned key)
{
    *field = (gv_text){&"text with \xc3\xa4 in it"[key % 4], 12};
}
static void fill_BYTES(gv_bytes *field, unsigned key)
{
    *field = (gv_bytes){(const uint8_t *)&"\x00\x01\xff\x80\x7f\x00\x10\x20\x30"[key % 4], 5};
}
static void fill_NUMBERS(gv_numbers *field, unsigned key)
{
    *field = (gv_numbers){&some_numbers[key % 3], sizeof some_numbers / sizeof *some_numbers - key % 3};
}

static void same_NUMBER(uint64_t a, uint64_t b)
{
    assert_true(a == b);
}
static void same_TEXT(gv_text a, gv_text b)
{
    assert_int_equal(a.length, b.length);
    if (a.length)
        assert_memory_equal(a.data, b.data, a.length);
}
static void same_BYTES(gv_bytes a, gv_bytes b)
{
    same_TEXT((gv_text){(const char *)a.data, a.length}, (gv_text){(const char *)b.data, b.length});
}
static void same_NUMBERS(gv_numbers a, gv_numbers b)
{
    assert_int_equal(a.count, b.count);
    if (a.count)
        assert_memory_equal(a.items, b.items, a.count * sizeof *a.items);
}

#define FILL(key, kind, name)  fill_##kind(&record.name, key);
#define SAME(key, kind, name)  same_##kind(record.name, decoded->name);
#define COUNT(key, kind, name) +1

// Encodes, checks with libcbor that it is [type, map of `fields` pairs], decodes and leaves the result in `again`.
static void pass_through(uint64_t type, const void *record, size_t fields, gv_number_pool *pool, gv_record *again,
                         gv_buffer *buffer)
{
    buffer->size = 0;
    gv_record_encode(buffer, type, record);
    assert_false(buffer->failed);
    assert_true(buffer->size <= gv_record_bound(type, record));
    struct cbor_load_result result;
    cbor_item_t *item = cbor_load(buffer->data, buffer->size, &result);
    assert_non_null(item);
    assert_int_equal(result.read, buffer->size);
    assert_true(cbor_isa_array(item) && cbor_array_size(item) == 2);
    cbor_item_t *first = cbor_array_handle(item)[0], *second = cbor_array_handle(item)[1];
    assert_int_equal(cbor_get_int(first), type);
    assert_true(cbor_isa_map(second));
    assert_int_equal(cbor_map_size(second), fields);
    cbor_decref(&item);

    gv_cbor_cursor cursor = gv_cbor_open(buffer->data, buffer->size);
    gv_error error = {0};
    assert_int_equal(gv_record_decode(&cursor, pool, again, &error), GV_OK);
    assert_true(gv_cbor_at_end(&cursor));
    assert_int_equal(again->type, type);
    // Cut anywhere, it is refused.
    for (size_t cut = 0; cut < buffer->size; cut++) {
        gv_record unused;
        gv_number_pool other = {0};
        cursor = gv_cbor_open(buffer->data, cut);
        assert_int_equal(gv_record_decode(&cursor, &other, &unused, &error), GV_ERR_FORMAT);
        assert_true(error.text[0]);
        gv_number_pool_free(&other);
    }
}

#define DEFINE_TEST(number, name, FIELDS)                                       \
    static void test_##name(void **state)                                       \
    {                                                                           \
        gv_number_pool pool = {0};                                              \
        gv_buffer buffer = {0};                                                 \
        gv_record again;                                                        \
        const gv_##name##_record *decoded = &again.name;                        \
        gv_##name##_record record = {0};                                        \
        pass_through(number, &record, 0, &pool, &again, &buffer);               \
        FIELDS(SAME)                                                            \
        FIELDS(FILL)                                                            \
        pass_through(number, &record, 0 FIELDS(COUNT), &pool, &again, &buffer); \
        FIELDS(SAME)                                                            \
        assert_string_equal(gv_record_type_name(number), #name);                \
        gv_buffer_free(&buffer);                                                \
        gv_number_pool_free(&pool);                                             \
    }
GV_RECORDS(DEFINE_TEST)

// ---- Single cases ---------------------------------------------------------------------------------------------

static gv_status decode(const char *bytes, size_t size, gv_record *record, gv_error *error)
{
    static gv_number_pool pool;
    gv_number_pool_free(&pool);
    gv_cbor_cursor cursor = gv_cbor_open(bytes, size);
    gv_status status = gv_record_decode(&cursor, &pool, record, error);
    if (status == GV_OK)
        assert_true(gv_cbor_at_end(&cursor));
    if (status != GV_OK || record->type != GV_RECORD_stack)
        gv_number_pool_free(&pool);
    return status;
}
#define DECODE(literal, record, error) decode(literal, sizeof(literal) - 1, record, error)

static void test_text_that_is_not_utf8(void **state)
{
    gv_buffer buffer = {0};
    gv_number_pool pool = {0};
    gv_record again;
    gv_module_record record = {.id = 1, .path = {"/tmp/\xff\xfe.so", 10}};
    pass_through(GV_RECORD_module, &record, 2, &pool, &again, &buffer);
    same_TEXT(record.path, again.module.path);
    assert_non_null(memmem(buffer.data, buffer.size, "\x02\x4a/tmp/", 7)); // key 2, a byte string of 10
    record.path = (gv_text){"/tmp/\xc3\xa4.so", 10};
    pass_through(GV_RECORD_module, &record, 2, &pool, &again, &buffer);
    same_TEXT(record.path, again.module.path);
    assert_non_null(memmem(buffer.data, buffer.size, "\x02\x6a/tmp/", 7)); // a text
    gv_buffer_free(&buffer);
    gv_number_pool_free(&pool);
}

static void test_later_minor_version(void **state)
{
    gv_record record;
    gv_error error = {0};
    // An unknown type with any content.
    assert_int_equal(DECODE("\x82\x18\x63\xf6", &record, &error), GV_OK);
    assert_int_equal(record.type, 99);
    assert_string_equal(gv_record_type_name(record.type), "unknown");
    assert_int_equal(DECODE("\x82\x1b\xff\xff\xff\xff\xff\xff\xff\xff\x9f\x01\xff", &record, &error), GV_OK);
    assert_true(record.type == UINT64_MAX);
    // Unknown keys before, between and after the known ones, with values of every kind.
    assert_int_equal(DECODE("\x82\x02\xa5\x18\x20\xbf\x61"
                            "a\xfb\x00\x00\x00\x00\x00\x00\x00\x00\xff\x01\x05"
                            "\x19\x01\x00\xc1\x20\x02\x62hi\x18\x21\x5f\x41x\xff",
                            &record, &error),
                     GV_OK);
    assert_int_equal(record.string.id, 5);
    same_TEXT(record.string.text, (gv_text){"hi", 2});
}

static void test_refused(void **state)
{
    struct {
        const char *says, *bytes;
        size_t size;
    } cases[] = {
#define CASE(says, literal) {says, literal, sizeof(literal) - 1}
        CASE("stands twice", "\x82\x02\xa2\x01\x05\x01\x06"),
        CASE("stands twice", "\x82\x02\xa2\x18\x20\x05\x18\x20\x06"), // an unknown key, twice
        CASE("not an unsigned integer", "\x82\x02\xa1\x01\x61x"),
        CASE("not an unsigned integer", "\x82\x02\xa1\x01\x20"),
        CASE("not a text string", "\x82\x02\xa1\x02\x05"),
        CASE("not a text string", "\x82\x02\xa1\x02\x7f\x61x\xff"), // in pieces
        CASE("not a byte string", "\x82\x03\xa1\x03\x61x"),
        CASE("not a byte string of LEB128", "\x82\x04\xa1\x02\x83\x01\x02\x03"),
        CASE("LEB128", "\x82\x04\xa1\x02\x42\x01\x80"),
        CASE("LEB128", "\x82\x04\xa1\x02\x42\x80\x00"),
        CASE("LEB128", "\x82\x04\xa1\x02\x49\x80\x80\x80\x80\x80\x80\x80\x80\x80"), // not one number ends
        CASE("no map", "\x82\x02\x80"),
        CASE("no map", "\x82\x02\xbf\xff"), // of indefinite length
        CASE("key is not valid", "\x82\x02\xa1\x61x\x01"),
        CASE("has 1 items", "\x81\x02\xa0"),
        CASE("has 3 items", "\x83\x02\xa0\x00"),
        CASE("has no type", "\x82\x20\xa0"),
        CASE("does not begin", "\xa1\x02\xa0"),
        CASE("does not begin", ""),
        CASE("unknown key", "\x82\x02\xa1\x18\x20\xff"),
        CASE("unknown type", "\x82\x18\x63\xff"),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gv_record record;
        gv_error error = {0};
        gv_status status = decode(cases[i].bytes, cases[i].size, &record, &error);
        if (status != GV_ERR_FORMAT || !strstr(error.text, cases[i].says))
            fail_msg("case %zu: %s, %s", i, gv_status_name(status), error.text);
    }
    // Messages name the record type and the key.
    gv_record record;
    gv_error error = {0};
    assert_int_equal(DECODE("\x82\x02\xa1\x02\x05", &record, &error), GV_ERR_FORMAT);
    assert_non_null(strstr(error.text, "string record: key 2: "));
}

static void test_number_lists_out_of_memory(void **state)
{
    gv_record record;
    gv_error error = {0};
    gv_memory_fail_after(0);
    gv_status status = DECODE("\x82\x04\xa2\x01\x01\x02\x42\x01\x02", &record, &error);
    gv_memory_fail_after(-1);
    assert_int_equal(status, GV_ERR_MEMORY);
    // Both lists of one record at once keep their own values.
    gv_number_pool pool = {0};
    gv_buffer buffer = {0};
    gv_record again;
    uint64_t many[1000];
    for (size_t i = 0; i < 1000; i++)
        many[i] = i * i;
    gv_stack_record stack = {.id = 1, .host = {many, 2}, .python = {many + 1, 999}};
    pass_through(GV_RECORD_stack, &stack, 3, &pool, &again, &buffer);
    same_NUMBERS(stack.host, again.stack.host);
    same_NUMBERS(stack.python, again.stack.python);
    gv_buffer_free(&buffer);
    gv_number_pool_free(&pool);
}

static void test_peek_version(void **state)
{
    uint64_t major, minor;
#define PEEK(literal) gv_record_peek_version(gv_cbor_open(literal, sizeof(literal) - 1), &major, &minor)
    assert_true(PEEK("\x82\x00\xa2\x01\x01\x02\x07"));
    assert_int_equal(major, 1);
    assert_int_equal(minor, 7);
    // A later major version may have anything beside its number, in any order, with other kinds of keys.
    assert_true(PEEK("\x83\x00\xa3\x61x\xf6\x03\x80\x01\x18\x2a\x80"));
    assert_int_equal(major, 42);
    assert_int_equal(minor, 0);
    assert_false(PEEK("\x82\x01\xa1\x01\x01"));
    assert_false(PEEK("\x82\x00\xa1\x02\x01"));
    assert_false(PEEK("\x82\x00\xa1\x01\x61x"));
    assert_false(PEEK("\x82\x00\xa2\x01\x01"));
    assert_false(PEEK("\x81\x00"));
    assert_false(PEEK("hello"));
    assert_false(PEEK(""));
}

int main(void)
{
#define LIST_TEST(number, name, FIELDS) cmocka_unit_test(test_##name),
    const struct CMUnitTest tests[] = {
        GV_RECORDS(LIST_TEST)                         //
        cmocka_unit_test(test_text_that_is_not_utf8), //
        cmocka_unit_test(test_later_minor_version),   //
        cmocka_unit_test(test_refused),               //
        cmocka_unit_test(test_number_lists_out_of_memory),
        cmocka_unit_test(test_peek_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
