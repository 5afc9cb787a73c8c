// Encoded ranges and LEB128 numbers: round trips, exact bounds, and every way an encoding can be wrong.
#include "trace/ranges.h"

#include "trace/leb128.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ENCODED(literal) ((gv_bytes){(const uint8_t *)(literal), sizeof(literal) - 1})

static void test_leb128_edges(void **state)
{
    for (int shift = 0; shift <= 64; shift++) {
        for (int off = -1; off <= 1; off++) {
            uint64_t value = (shift < 64 ? 1ull << shift : 0) + (uint64_t)off, back = 0;
            // Behind the number once nothing and once enough for the fast path, which must not look further.
            uint8_t bytes[32];
            memset(bytes, 0xff, sizeof bytes);
            size_t size = gv_leb128_write(value, bytes);
            assert_in_range(size, 1, GV_LEB128_MAX_BYTES);
            assert_ptr_equal(gv_leb128_read(bytes, bytes + size, &back), bytes + size);
            assert_true(back == value);
            back = 0;
            assert_ptr_equal(gv_leb128_read(bytes, bytes + sizeof bytes, &back), bytes + size);
            assert_true(back == value);
            for (size_t cut = 0; cut < size; cut++)
                assert_null(gv_leb128_read(bytes, bytes + cut, &back));
        }
    }
}

static void test_leb128_refused(void **state)
{
    uint64_t value;
    struct {
        const char *bytes;
        size_t size;
    } cases[] = {
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10},     // 2^64 and more
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x81\x00", 11}, // eleven bytes
        {"\x80\x00", 2},                                      // padded, near the end
        {"\x85\x80\x00\x11\x11\x11\x11\x11\x11\x11", 10},     // padded, on the fast path
        {"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 10},
        {"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80", 12},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint8_t *bytes = (const uint8_t *)cases[i].bytes;
        assert_null(gv_leb128_read(bytes, bytes + cases[i].size, &value));
    }
}

static void check_round_trip(const gv_range *ranges, size_t count)
{
    size_t bound = gv_ranges_encoded_bound(count);
    uint8_t *room = malloc(bound + 1);
    assert_non_null(room);
    size_t size = gv_ranges_encode(ranges, count, room);
    assert_true(size <= bound);
    gv_bytes encoded = {room, size};
    gv_range_cursor cursor = gv_range_cursor_open(encoded);
    gv_range range;
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) {
        assert_true(gv_range_cursor_next(&cursor, &range));
        assert_true(range.start == ranges[i].start && range.end == ranges[i].end);
        total += range.end - range.start;
    }
    assert_false(gv_range_cursor_next(&cursor, &range));
    assert_false(cursor.broken);
    size_t counted;
    uint64_t bytes;
    assert_int_equal(gv_ranges_check(encoded, &counted, &bytes, NULL), GV_OK);
    assert_int_equal(counted, count);
    assert_true(bytes == total);
    // A cut encoding is whole only at the end of a range.
    size_t whole = 0;
    for (size_t cut = 0; cut < size && size < 2000; cut++)
        whole += gv_ranges_check((gv_bytes){room, cut}, NULL, NULL, NULL) == GV_OK;
    if (size < 2000)
        assert_int_equal(whole, count);
    free(room);
}

static void test_round_trips(void **state)
{
    check_round_trip(NULL, 0);
    check_round_trip((gv_range[]){{0, 1}}, 1);
    check_round_trip((gv_range[]){{0, UINT64_MAX}}, 1);
    check_round_trip((gv_range[]){{UINT64_MAX - 1, UINT64_MAX}}, 1);
    check_round_trip((gv_range[]){{0, 1}, {2, 3}, {UINT64_MAX - 1, UINT64_MAX}}, 3);
    srand(3);
    enum { COUNT = 2000 };
    gv_range *ranges = malloc(COUNT * sizeof *ranges);
    assert_non_null(ranges);
    for (int round = 0; round < 50; round++) {
        uint64_t position = 0;
        size_t count = (size_t)(rand() % COUNT);
        for (size_t i = 0; i < count; i++) {
            uint64_t start = position + 1 + ((uint64_t)rand() >> rand() % 31),
                     end = start + 1 + ((uint64_t)rand() >> rand() % 31);
            ranges[i] = (gv_range){start, end};
            position = end;
        }
        check_round_trip(ranges, count);
    }
    free(ranges);
}

static void test_known_bytes(void **state)
{
    uint8_t room[64];
    size_t size = gv_ranges_encode((gv_range[]){{0x1000, 0x1080}, {0x1090, 0x1091}}, 2, room);
    assert_int_equal(size, 6);
    assert_memory_equal(room, "\x80\x20\x80\x01\x10\x01", 6);
}

static void test_refused(void **state)
{
    gv_bytes cases[] = {
        ENCODED("\x05"),                                         // a gap without a length
        ENCODED("\x05\x00"),                                     // a zero length
        ENCODED("\x05\x01\x00\x01"),                             // adjacent
        ENCODED("\x05\x81"),                                     // a cut number
        ENCODED("\x05\x81\x00"),                                 // a padded number
        ENCODED("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02\x01"), // a number past 64 bits
        ENCODED("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01"), // starts at the last address: its end does not fit
        ENCODED("\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), // past the end of the address space
        ENCODED("\x02\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01"), // a gap past it
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gv_error error = {0};
        if (gv_ranges_check(cases[i], NULL, NULL, &error) != GV_ERR_FORMAT)
            fail_msg("case %zu was accepted", i);
        assert_non_null(strstr(error.text, "range"));
        gv_range_cursor cursor = gv_range_cursor_open(cases[i]);
        gv_range range;
        while (gv_range_cursor_next(&cursor, &range))
            ;
        assert_true(cursor.broken);
        assert_false(gv_range_cursor_next(&cursor, &range));
    }
    assert_int_equal(gv_ranges_check(ENCODED("\x00\x01"), NULL, NULL, NULL), GV_OK); // the first may start at 0
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leb128_edges), cmocka_unit_test(test_leb128_refused), cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_known_bytes),  cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
