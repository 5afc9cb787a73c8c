// Marking in the access table, as the patches do it on the GPU, compiled for the host: what is marked is read back from
// the table and compared with a byte map.
#include "base/memory.h"
#include "device/mark.h"
#include "record/drain.h"
#include "record/tensor_map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SPAN = 1 << 18, SLOTS = 512 };
static const uint64_t base = 0x7f1230000000;
static unsigned char expected[GV_ACCESS_KINDS][SPAN], seen[GV_ACCESS_KINDS][SPAN];

static int set_up(void **state)
{
    gv_access_table *access = gv_calloc(1, sizeof *access);
    for (int i = 0; access && i < GV_TABLES; i++) {
        gv_page_table *table = &access->tables[i];
        table->slots = SLOTS;
        table->unit_shift = i == GV_TABLE_WORDS ? 2 : 0;
        table->keys = gv_calloc(SLOTS, sizeof *table->keys);
        table->bits = gv_calloc((size_t)SLOTS * GV_ACCESS_KINDS * GV_PAGE_WORDS, sizeof *table->bits);
        if (!table->keys || !table->bits)
            return -1;
    }
    *state = access;
    memset(expected, 0, sizeof expected);
    srand(1);
    return access ? 0 : -1;
}

static int tear_down(void **state)
{
    gv_access_table *access = *state;
    for (int i = 0; i < GV_TABLES; i++) {
        gv_free(access->tables[i].keys);
        gv_free(access->tables[i].bits);
    }
    gv_free(access);
    return 0;
}

static void expect(int kind, uint64_t address, uint64_t size)
{
    assert_true(address >= base && address - base + size <= SPAN);
    for (uint64_t at = address - base; at < address - base + size; at++)
        expected[kind][at] = 1;
}

static void assert_marked_as_expected(const gv_access_table *access)
{
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < GV_TABLES; i++) {
        const gv_page_table *table = &access->tables[i];
        for (size_t slot = 0; slot < SLOTS; slot++) {
            if (!table->keys[slot])
                continue;
            const uint32_t *bits = table->bits + slot * GV_ACCESS_KINDS * GV_PAGE_WORDS;
            uint64_t first = (table->keys[slot] - 1) * GV_PAGE_UNITS;
            for (unsigned at = 0; at < GV_ACCESS_KINDS * GV_PAGE_UNITS; at++)
                if (bits[at / 32] >> at % 32 & 1) {
                    uint64_t address = (first + at % GV_PAGE_UNITS) << table->unit_shift;
                    assert_true(address >= base && address - base < SPAN);
                    memset(seen[at / GV_PAGE_UNITS] + (address - base), 1, (size_t)1 << table->unit_shift);
                }
        }
        assert_int_equal(table->overflow, 0);
    }
    for (int kind = 0; kind < GV_ACCESS_KINDS; kind++)
        assert_memory_equal(seen[kind], expected[kind], SPAN);
}

static void accesses_of_any_size_and_alignment(void **state)
{
    gv_access_table *access = *state;
    for (int i = 0; i < 3000; i++) {
        uint64_t size = rand() % 50 == 0 ? 1 + (uint64_t)rand() % 40000 : 1 + (uint64_t)rand() % 16;
        uint64_t address = base + (uint64_t)rand() % (SPAN - size);
        if (rand() % 2) {
            address &= ~3ull;
            size = (size + 3) & ~3ull;
        }
        int kind = rand() % GV_ACCESS_KINDS;
        gv_mark(access, address, size, kind);
        expect(kind, address, size);
    }
    assert_marked_as_expected(access);
}

// Rows inside a page, across pages, longer than one, with bytes that are not whole units, marked the first time and
// again.
static void rows_of_boxes(void **state)
{
    gv_access_table *access = *state;
    for (int i = 0; i < 600; i++) {
        gv_tensor_rows rows = {.row_bytes = rand() % 3 ? 16u * (1 + (uint32_t)rand() % 16) : 1 + (uint32_t)rand() % 300,
                               .count = 1 + (uint32_t)rand() % 30,
                               .stride = 16 * (uint64_t)(rand() % 150),
                               .outer = 1};
        if (rand() % 20 == 0)
            rows.row_bytes = 16000 + 4 * ((uint32_t)rand() % 5000);
        for (int j = 0; j < GV_TENSOR_MAP_RANK - 2; j++) {
            rows.outer_count[j] = 1 + (uint32_t)rand() % 3;
            rows.outer_stride[j] = 16 * (uint64_t)(rand() % 1000);
            rows.outer *= rows.outer_count[j];
        }
        rows.address = base + (rand() % 4 ? 16 * (uint64_t)(rand() % 1000) : (uint64_t)rand() % 16000);
        int kind = rand() % GV_ACCESS_KINDS;
        gv_mark_rows(access, &rows, kind);
        for (uint32_t outer = 0; outer < rows.outer; outer++)
            for (uint32_t row = 0; row < rows.count; row++)
                expect(kind, gv_tensor_outer(&rows, outer) + row * rows.stride, rows.row_bytes);
    }
    assert_marked_as_expected(access);
}

// A map of 16-bit values, 300 x 200, rows of 640 bytes, boxes of 64 x 32: the words of NVIDIA's encoder for it.
static void matrix(uint64_t *words)
{
    static const uint64_t as_encoded[GV_TENSOR_MAP_WORDS] = {0, 0x0000002800240512, 0,   0, 0x000000c70000012b,
                                                             0, 0x3f00000000000000, 0x1f};
    memcpy(words, as_encoded, sizeof as_encoded);
    words[0] = base + 4096;
}

static void a_copy_marks_its_box(void **state)
{
    gv_access_table *access = *state;
    uint64_t words[GV_TENSOR_MAP_WORDS];
    matrix(words);
    for (int i = 0; i < 30; i++) {
        int32_t at[GV_TENSOR_MAP_RANK] = {rand() % 50 * 8 - 64, rand() % 300 - 50, 77, -5, 9};
        gv_mark_tensor(access, words, at, true, GV_ACCESS_READ, 0);
        for (int row = at[1]; row < at[1] + 32; row++)
            for (int column = at[0]; column < at[0] + 64; column++)
                if (row >= 0 && row < 200 && column >= 0 && column < 300)
                    expect(GV_ACCESS_READ, base + 4096 + (uint64_t)row * 640 + (uint64_t)column * 2, 2);
    }
    assert_marked_as_expected(access);
    assert_int_equal(access->flags, GV_TABLE_TENSOR_SEEN);
}

static void an_unknown_map_is_said(void **state)
{
    gv_access_table *access = *state;
    uint64_t words[GV_TENSOR_MAP_WORDS];
    const int32_t at[GV_TENSOR_MAP_RANK] = {0};
    matrix(words);
    words[1] |= 1u << 11; // interleaved
    gv_mark_tensor(access, words, at, true, GV_ACCESS_READ, 0);
    assert_int_equal(access->flags, GV_TABLE_TENSOR_SEEN | GV_TABLE_MAP_UNKNOWN);
    assert_marked_as_expected(access);
}

static size_t logged(const gv_access_table *access)
{
    size_t count = 0;
    while (count < GV_LOGGED_MAPS && access->maps[count].state)
        count++;
    return count;
}

// A copy whose bytes are not known exactly leaves its map, once for each kind, and the host lists the tensor.
static void other_modes_leave_their_map(void **state)
{
    gv_access_table *access = *state;
    uint64_t words[GV_TENSOR_MAP_WORDS];
    const int32_t at[GV_TENSOR_MAP_RANK] = {0};
    matrix(words);
    for (int i = 0; i < 5; i++)
        gv_mark_tensor(access, words, at, false, i % 2 ? GV_ACCESS_WRITE : GV_ACCESS_READ, 0);
    assert_int_equal(logged(access), 2);
    assert_marked_as_expected(access);

    gv_node_ranges extents = {0};
    uint64_t more[GV_TENSOR_MAP_WORDS];
    matrix(more);
    more[0] += 200 * 640; // right behind the other
    gv_mark_tensor(access, more, at, false, GV_ACCESS_READ, 0);
    assert_true(gv_maps_to_ranges(access->maps, logged(access), &extents));
    assert_int_equal(extents.count[GV_ACCESS_READ], 400);
    assert_int_equal(extents.count[GV_ACCESS_WRITE], 200);
    assert_int_equal(extents.count[GV_ACCESS_ATOMIC], 0);
    for (uint64_t i = 0; i < 400; i++) {
        assert_int_equal(extents.ranges[GV_ACCESS_READ][i].start, base + 4096 + i * 640);
        assert_int_equal(extents.ranges[GV_ACCESS_READ][i].end, base + 4096 + i * 640 + 600);
    }
    gv_node_ranges_free(&extents);
}

static void too_many_maps_are_said(void **state)
{
    gv_access_table *access = *state;
    uint64_t words[GV_TENSOR_MAP_WORDS];
    const int32_t at[GV_TENSOR_MAP_RANK] = {0};
    matrix(words);
    for (int i = 0; i < GV_LOGGED_MAPS; i++, words[0] += 256)
        gv_mark_tensor(access, words, at, false, GV_ACCESS_READ, 0);
    assert_int_equal(access->flags, GV_TABLE_TENSOR_SEEN);
    gv_mark_tensor(access, words, at, false, GV_ACCESS_READ, 0);
    assert_int_equal(access->flags, GV_TABLE_TENSOR_SEEN | GV_TABLE_MAPS_OVERFLOW);
}

static void a_full_table_is_said(void **state)
{
    gv_access_table *access = *state;
    for (uint64_t i = 0; i <= SLOTS; i++)
        gv_mark(access, base + i * 4 * GV_PAGE_UNITS, 4, GV_ACCESS_READ);
    assert_int_equal(access->tables[GV_TABLE_WORDS].overflow, 1);
    assert_int_equal(access->tables[GV_TABLE_BYTES].overflow, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(accesses_of_any_size_and_alignment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rows_of_boxes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_copy_marks_its_box, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_unknown_map_is_said, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_modes_leave_their_map, set_up, tear_down),
        cmocka_unit_test_setup_teardown(too_many_maps_are_said, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_table_is_said, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
