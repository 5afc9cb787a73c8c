// From drained pages of bitmaps to byte ranges, against a plain byte map.
#include "record/drain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SPAN = 128 * 1024, MOST_PAGES = 64 };

// The reference: for each kind one byte a byte of memory.
static unsigned char touched[GV_ACCESS_KINDS][SPAN];

// Builds the pages as the drain kernel would from marked units, and checks what the ranges say against `touched`.
typedef struct pages {
    gv_drained_page rows[MOST_PAGES];
    size_t count;
    uint32_t bitmaps[MOST_PAGES * GV_ACCESS_KINDS][GV_PAGE_WORDS];
    uint32_t bitmap_count;
} pages;

typedef struct marks {
    unsigned char unit[GV_ACCESS_KINDS][SPAN]; // by unit number
} marks;

static void add_pages(pages *all, const marks *marked, unsigned table)
{
    unsigned shift = table == GV_TABLE_WORDS ? 2 : 0;
    uint64_t units = SPAN >> shift;
    for (uint64_t page = 0; page * GV_PAGE_UNITS < units; page++) {
        gv_drained_page row = {.page = page, .bitmap = all->bitmap_count, .table = (uint8_t)table};
        bool used = false;
        for (int kind = 0; kind < GV_ACCESS_KINDS; kind++) {
            uint32_t bits[GV_PAGE_WORDS] = {0};
            unsigned set = 0;
            for (unsigned i = 0; i < GV_PAGE_UNITS; i++)
                if (marked->unit[kind][page * GV_PAGE_UNITS + i]) {
                    bits[i / 32] |= 1u << i % 32;
                    set++;
                }
            row.states[kind] = set == 0 ? GV_PAGE_EMPTY : set == GV_PAGE_UNITS ? GV_PAGE_FULL : GV_PAGE_MIXED;
            if (row.states[kind] == GV_PAGE_MIXED)
                memcpy(all->bitmaps[all->bitmap_count++], bits, sizeof bits);
            used |= set != 0;
        }
        if (used)
            all->rows[all->count++] = row;
    }
}

static void mark(marks *marked, int kind, size_t unit, size_t count, unsigned shift)
{
    for (size_t i = unit; i < unit + count && i < (size_t)SPAN >> shift; i++) {
        marked->unit[kind][i] = 1;
        memset(touched[kind] + (i << shift), 1, (size_t)1 << shift);
    }
}

static void assert_ranges_match(pages *all)
{
    gv_node_ranges ranges = {0};
    // The drain hands pages over in any order.
    for (size_t i = all->count; i > 1; i--) {
        size_t j = (size_t)rand() % i;
        gv_drained_page swapped = all->rows[i - 1];
        all->rows[i - 1] = all->rows[j];
        all->rows[j] = swapped;
    }
    assert_true(gv_pages_to_ranges(all->rows, all->count, all->bitmaps[0], &ranges));
    for (int kind = 0; kind < GV_ACCESS_KINDS; kind++) {
        static unsigned char seen[SPAN];
        memset(seen, 0, sizeof seen);
        for (size_t i = 0; i < ranges.count[kind]; i++) {
            gv_range range = ranges.ranges[kind][i];
            assert_true(range.start < range.end && range.end <= SPAN);
            // Normalised: a gap before each range.
            assert_true(i == 0 || range.start > ranges.ranges[kind][i - 1].end);
            memset(seen + range.start, 1, range.end - range.start);
        }
        assert_memory_equal(seen, touched[kind], SPAN);
    }
    gv_node_ranges_free(&ranges);
}

static void nothing_gives_nothing(void **state)
{
    pages *all = calloc(1, sizeof *all);
    memset(touched, 0, sizeof touched);
    assert_ranges_match(all);
    free(all);
}

static void full_pages_join(void **state)
{
    pages *all = calloc(1, sizeof *all);
    marks *words = calloc(1, sizeof *words);
    memset(touched, 0, sizeof touched);
    mark(words, GV_ACCESS_WRITE, 0, (size_t)3 * GV_PAGE_UNITS, 2);
    mark(words, GV_ACCESS_READ, GV_PAGE_UNITS - 1, 2, 2);
    add_pages(all, words, GV_TABLE_WORDS);
    assert_ranges_match(all);
    free(all);
    free(words);
}

static void random_marks_match_the_byte_map(void **state)
{
    srand(1);
    for (int round = 0; round < 300; round++) {
        pages *all = calloc(1, sizeof *all);
        marks *words = calloc(1, sizeof *words), *bytes = calloc(1, sizeof *bytes);
        memset(touched, 0, sizeof touched);
        for (int i = rand() % 40; i > 0; i--)
            mark(words, rand() % GV_ACCESS_KINDS, (size_t)rand() % (SPAN >> 2),
                 (size_t)rand() % (round % 2 ? 9000 : 70), 2);
        for (int i = rand() % 40; i > 0; i--)
            mark(bytes, rand() % GV_ACCESS_KINDS, (size_t)rand() % SPAN, (size_t)rand() % (round % 3 ? 5 : 6000), 0);
        add_pages(all, words, GV_TABLE_WORDS);
        add_pages(all, bytes, GV_TABLE_BYTES);
        assert_ranges_match(all);
        free(all);
        free(words);
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_gives_nothing),
        cmocka_unit_test(full_pages_join),
        cmocka_unit_test(random_marks_match_the_byte_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
