// Copies of memory: saved to device and host memory, compared and put back in whole and in part. On the software
// driver, where device memory is the process's own.
#include "record/image.h"

#include "base/memory.h"

enum { ARENA = 200000 };
#include "record/test_arena.h"

static gv_range_set random_ranges(void)
{
    gv_range_set set = {0};
    for (size_t offset = draw(5000); offset + 2 < ARENA;) {
        size_t length = 1 + draw(draw(3) ? 300 : 20000);
        length = length < ARENA - offset ? length : ARENA - offset;
        assert_int_equal(gv_range_set_add(&set, at + offset, at + offset + length, NULL), GV_OK);
        offset += length + 1 + draw(draw(2) ? 40 : 9000);
    }
    gv_range_set_settle(&set);
    return set;
}

static void scribble(void)
{
    for (unsigned writes = draw(40); writes; writes--) {
        size_t offset = draw(ARENA), length = 1 + draw(draw(3) ? 30 : 9000);
        for (size_t i = offset; i < offset + length && i < ARENA; i++)
            base[i] = (unsigned char)draw(256);
    }
}

static bool equal(const gv_range_set *a, const gv_range_set *b)
{
    gv_range_set_settle(a);
    gv_range_set_settle(b);
    return a->count == b->count && (!a->count || !memcmp(a->ranges, b->ranges, a->count * sizeof *a->ranges));
}

// With all kinds of room: all in device memory, all in host memory, divided.
static void test_copies_are_compared_and_put_back(void **state)
{
    for (int round = 0; round < 60; round++) {
        gv_error error = {0};
        gv_range_set ranges = random_ranges(), within = random_ranges(), found = {0}, expected = {0}, coarse = {0},
                     missing = {0};
        gv_image_room room = {.device = round % 3 == 0   ? 1 << 20
                                        : round % 3 == 1 ? 0
                                                         : draw(ARENA),
                              .host = 1 << 20},
                      all = room;
        gv_image *image = NULL;
        for (size_t i = 0; i < ARENA; i++)
            base[i] = (unsigned char)draw(256);
        memcpy(before, base, ARENA);
        ok(gv_image_save(compare, &ranges, &room, &image, &error), &error);
        assert_true(room.device + room.host < all.device + all.host);
        scribble();
        memcpy(now, base, ARENA);
        const gv_range_set *part = round % 2 ? &within : NULL;
        for (size_t i = 0; i < ARENA; i++)
            if (now[i] != before[i] && gv_range_set_contains(&ranges, at + i) &&
                (!part || gv_range_set_contains(part, at + i)))
                assert_int_equal(gv_range_set_add(&expected, at + i, at + i + 1, NULL), GV_OK);
        ok(gv_image_changed(compare, image, part, false, &found, &error), &error);
        assert_true(equal(&found, &expected));
        // Groups hold all of it, and nothing that was not saved.
        ok(gv_image_changed(compare, image, part, true, &coarse, &error), &error);
        ok(gv_range_set_difference(&found, &coarse, &missing, &error), &error);
        assert_int_equal(missing.count, 0);
        gv_range_set_free(&missing);
        ok(gv_range_set_difference(&coarse, &ranges, &missing, &error), &error);
        assert_int_equal(missing.count, 0);
        // What the copy has can be read, piece by piece.
        for (size_t i = 0; i < ranges.count; i += 1 + ranges.count / 7) {
            unsigned char bytes[20000 + 300];
            gv_range range = ranges.ranges[i];
            if (range.end - range.start > sizeof bytes)
                continue;
            ok(gv_image_read(compare, image, range.start, range.end, bytes, &error), &error);
            assert_memory_equal(bytes, before + (range.start - at), range.end - range.start);
        }
        ok(gv_image_restore(compare, image, part, &error), &error);
        for (size_t i = 0; i < ARENA; i++) {
            bool back = gv_range_set_contains(&ranges, at + i) && (!part || gv_range_set_contains(part, at + i));
            if (base[i] != (back ? before[i] : now[i]))
                fail_msg("byte %zu is %u", i, base[i]);
        }
        // Renewed, it is as memory is.
        ok(gv_image_renew(compare, image, &error), &error);
        gv_range_set_free(&found);
        ok(gv_image_changed(compare, image, NULL, false, &found, &error), &error);
        assert_int_equal(found.count, 0);
        gv_image_free(image, &room);
        assert_true(room.device == all.device && room.host == all.host);
        gv_range_set *sets[] = {&ranges, &within, &found, &expected, &coarse, &missing};
        for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) // NOLINT(bugprone-sizeof-expression): they are pointers
            gv_range_set_free(sets[i]);
    }
}

static void test_room_is_kept_to(void **state)
{
    gv_error error = {0};
    gv_range_set ranges = {0};
    gv_image *image = (gv_image *)&error;
    gv_image_room room = {.device = 100, .host = 200};
    assert_int_equal(gv_range_set_add(&ranges, at, at + 1000, NULL), GV_OK);
    assert_int_equal(gv_image_save(compare, &ranges, &room, &image, &error), GV_ERR_MEMORY);
    assert_null(image);
    assert_non_null(strstr(error.text, "does not fit"));
    assert_int_equal(room.device, 100);
    assert_int_equal(room.host, 200);
    room.device = gv_image_cost(&ranges);
    ok(gv_image_save(compare, &ranges, &room, &image, &error), &error);
    assert_int_equal(room.device, 0);
    // What is not in the copy cannot be read from it.
    unsigned char bytes[16];
    assert_int_equal(gv_image_read(compare, image, at + 990, at + 1006, bytes, &error), GV_ERR_USAGE);
    gv_image_free(image, &room);
    gv_range_set_free(&ranges);
}

static void test_nothing_is_a_copy_too(void **state)
{
    gv_error error = {0};
    gv_range_set nothing = {0}, changed = {0};
    gv_image_room room = {0};
    gv_image *image = NULL;
    ok(gv_image_save(compare, &nothing, &room, &image, &error), &error);
    ok(gv_image_changed(compare, image, NULL, false, &changed, &error), &error);
    ok(gv_image_restore(compare, image, NULL, &error), &error);
    assert_int_equal(changed.count, 0);
    gv_image_free(image, &room);
    gv_image_free(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_are_compared_and_put_back),
        cmocka_unit_test(test_room_is_kept_to),
        cmocka_unit_test(test_nothing_is_a_copy_too),
    };
    return cmocka_run_group_tests(tests, open_driver, close_driver);
}
