// What a program declares of its rows: nonsense is refused with a reason, addresses are looked up, freed memory takes
// its rows with it, and real rows are counted for each thread.
#include "base/memory.h"
#include "record/rows.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static int forget(void **state)
{
    for (uint64_t id = 1; id < 8; id++)
        gv_rows_freed(id, 0, UINT64_MAX);
    gv_rows_forget();
    return 0;
}

static gv_rows rows_at(uint64_t address, uint64_t row_bytes, uint64_t rows, unsigned flags)
{
    return (gv_rows){
        .address = address, .row_bytes = row_bytes, .rows = rows, .flags = flags, .oldest = 1, .newest = 1};
}

static void declare(gv_rows rows)
{
    bool fresh;
    assert_null(gv_rows_check(&rows));
    assert_null(gv_rows_declare(&rows, &fresh));
}

static size_t count(void)
{
    gv_rows *items;
    size_t found;
    assert_true(gv_rows_list(&items, &found));
    gv_free(items);
    return found;
}

static void nonsense_is_refused(void **state)
{
    const struct {
        gv_rows rows;
        const char *says;
    } cases[] = {
        {rows_at(0, 8, 4, GV_ROWS_IN), "null"},
        {rows_at(4096, 0, 4, GV_ROWS_IN), "no bytes"},
        {rows_at(4096, 8, 0, GV_ROWS_IN), "no bytes"},
        {rows_at(4096, UINT64_MAX / 2, 3, GV_ROWS_IN), "address space"},
        {rows_at(UINT64_MAX - 8, 8, 2, GV_ROWS_IN), "address space"},
        {rows_at(4096, 8, 4, 0), "neither"},
        {rows_at(4096, 8, 4, GV_ROWS_INDEX), "neither"},
        {rows_at(4096, 8, 4, 1u << 9), "flags"},
        {rows_at(4096, 8, 4, GV_ROWS_IN | GV_ROWS_ZERO_IS_PAD), "indices"},
        {rows_at(4096, 8, 4, GV_ROWS_IN | GV_ROWS_INDEX | GV_ROWS_ZERO_IS_PAD | GV_ROWS_MINUS_ONE_IS_PAD),
         "not several"},
        {rows_at(4096, 16, 4, GV_ROWS_IN | GV_ROWS_INDEX | GV_ROWS_ONE_IS_PAD), "4 or 8 bytes"},
        {rows_at(4096, 8, 1, GV_ROWS_SCRATCH | GV_ROWS_IN), "flags"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *why = gv_rows_check(&cases[i].rows);
        assert_non_null(why);
        assert_non_null(strstr(why, cases[i].says));
    }
    assert_int_equal(count(), 0);
}

static void an_address_is_looked_up(void **state)
{
    gv_rows found;
    declare(rows_at(0x3000, 16, 4, GV_ROWS_OUT));
    declare(rows_at(0x1000, 8, 4, GV_ROWS_IN));
    assert_true(gv_rows_find(0x1000, &found));
    assert_int_equal(found.flags, GV_ROWS_IN);
    assert_true(gv_rows_find(0x101f, &found));
    assert_false(gv_rows_find(0x1020, &found));
    assert_false(gv_rows_find(0xfff, &found));
    assert_true(gv_rows_find(0x303f, &found));
    assert_int_equal(found.flags, GV_ROWS_OUT);
    // The same address again: what it is now.
    declare(rows_at(0x1000, 8, 8, GV_ROWS_IN | GV_ROWS_INDEX));
    assert_int_equal(count(), 2);
    assert_true(gv_rows_find(0x103f, &found));
    assert_int_equal(found.flags, GV_ROWS_IN | GV_ROWS_INDEX);
    // Scratch memory may begin where rows do, and holds no rows.
    declare(rows_at(0x1000, 0x40000, 1, GV_ROWS_SCRATCH));
    assert_int_equal(count(), 3);
    assert_false(gv_rows_find(0x2000, &found));
    assert_true(gv_rows_find(0x1000, &found));
    assert_int_equal(found.rows, 8);
}

static void the_list_ascends_and_is_bounded(void **state)
{
    bool fresh;
    gv_rows *items, more = rows_at(8, 4, 1, GV_ROWS_IN);
    size_t found;
    for (uint64_t i = 0; i < 4096; i++)
        declare(rows_at(0x100000 - 16 * i, 8, 1, GV_ROWS_IN));
    assert_non_null(gv_rows_declare(&more, &fresh));
    assert_true(gv_rows_list(&items, &found));
    assert_int_equal(found, 4096);
    for (size_t i = 1; i < found; i++)
        assert_true(items[i - 1].address < items[i].address);
    gv_free(items);
}

static void freed_memory_takes_its_rows_with_it(void **state)
{
    gv_rows found, young = rows_at(0x5000, 8, 4, GV_ROWS_IN);
    declare(rows_at(0x1000, 8, 4, GV_ROWS_IN));
    declare(rows_at(0x3000, 8, 4, GV_ROWS_IN));
    young.oldest = young.newest = 7;
    declare(young);
    gv_rows_freed(1, 0x1010, 0x1000); // its beginning is not in it, but its end is
    assert_false(gv_rows_find(0x1000, &found));
    assert_true(gv_rows_find(0x3000, &found));
    // The end of an earlier life of the address, told late.
    gv_rows_freed(6, 0x5000, 0x1000);
    assert_true(gv_rows_find(0x5000, &found));
    gv_rows_freed(7, 0x5000, 0x1000);
    assert_false(gv_rows_find(0x5000, &found));
    assert_int_equal(count(), 1);
}

static void rows_end_where_the_real_ones_do(void **state)
{
    gv_rows rows = rows_at(0x1000, 8, 4, GV_ROWS_IN);
    assert_int_equal(gv_rows_real_end(&rows, 0), 0x1000);
    assert_int_equal(gv_rows_real_end(&rows, 3), 0x1018);
    assert_int_equal(gv_rows_real_end(&rows, UINT64_MAX), 0x1020);
}

static void *other_thread(void *user)
{
    uint64_t real = 0;
    bool *right = user;
    *right = gv_rows_real(&real) && real == 3; // what the first thread said
    gv_rows_set_real(5, 8);
    *right = *right && gv_rows_real(&real) && real == 5;
    for (uint64_t i = 0; i < 2000; i++) {
        gv_rows rows = rows_at(0x20000 + 64 * (i % 7), 8, 1, GV_ROWS_IN);
        bool fresh;
        gv_rows_declare(&rows, &fresh);
        gv_rows_freed(1, 0x20000 + 64 * (i % 5), 64);
        gv_rows_set_real(5, 8);
    }
    return NULL;
}

static void threads_count_their_own_rows(void **state)
{
    uint64_t real = 99;
    bool right = false;
    pthread_t thread;
    gv_rows found;
    assert_false(gv_rows_real(&real));
    assert_true(real == UINT64_MAX); // all of them: a program that says nothing has no padding
    gv_rows_set_real(3, 4);
    assert_int_equal(pthread_create(&thread, NULL, other_thread, &right), 0);
    for (uint64_t i = 0; i < 2000; i++) {
        gv_rows_find(0x20000 + i % 512, &found);
        assert_true(count() <= 7);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(right);
    assert_true(gv_rows_real(&real));
    assert_int_equal(real, 3);
}

static void rows_behind_the_captured_ones_are_no_padding(void **state)
{
    uint64_t real, captured;
    declare(rows_at(0x1000, 8, 16, GV_ROWS_OUT));
    assert_false(gv_rows_padded(2, 4)); // no input
    declare(rows_at(0x2000, 8, 16, GV_ROWS_IN));
    assert_true(gv_rows_padded(2, 4));
    assert_false(gv_rows_padded(4, 4));
    assert_false(gv_rows_padded(16, UINT64_MAX));
    assert_true(gv_rows_padded(15, UINT64_MAX));
    gv_rows_set_real(2, 4);
    assert_true(gv_rows_batch(&real, &captured));
    assert_int_equal(real, 2);
    assert_int_equal(captured, 4);
}

static void without_memory_nothing_is_lost(void **state)
{
    bool fresh;
    gv_rows *items, more = rows_at(0x9000, 8, 1, GV_ROWS_IN);
    size_t found;
    for (uint64_t i = 0; i < 64; i++)
        declare(rows_at(0x1000 + 64 * i, 8, 1, GV_ROWS_IN));
    gv_memory_fail_after(0);
    const char *why = gv_rows_declare(&more, &fresh);
    bool listed = gv_rows_list(&items, &found);
    gv_memory_fail_after(-1);
    assert_false(listed);
    assert_true(why || count() == 65);
    assert_true(count() >= 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nonsense_is_refused, forget, forget),
        cmocka_unit_test_setup_teardown(an_address_is_looked_up, forget, forget),
        cmocka_unit_test_setup_teardown(the_list_ascends_and_is_bounded, forget, forget),
        cmocka_unit_test_setup_teardown(freed_memory_takes_its_rows_with_it, forget, forget),
        cmocka_unit_test_setup_teardown(rows_end_where_the_real_ones_do, forget, forget),
        cmocka_unit_test_setup_teardown(threads_count_their_own_rows, forget, forget),
        cmocka_unit_test_setup_teardown(rows_behind_the_captured_ones_are_no_padding, forget, forget),
        cmocka_unit_test_setup_teardown(without_memory_nothing_is_lost, forget, forget),
    };
    return cmocka_run_group_tests_name("record/rows", tests, NULL, NULL);
}
