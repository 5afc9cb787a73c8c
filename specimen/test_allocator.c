// The allocator's rules, one by one, on the software driver. Where a test says "PyTorch", the numbers are those of
// c10/cuda/CUDACachingAllocator.cpp.
#include "base/memory.h"
#include "specimen/allocator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define OK(call) assert_int_equal((call), CUDA_SUCCESS)

enum { MIB = 1 << 20 };

static device gpu;
static CUstream first, second, third;
static allocator *a;
static bool prove;

static int open_device(void **state)
{
    assert_int_equal(device_open(&gpu, NULL), GV_OK);
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&third, CU_STREAM_NON_BLOCKING));
    return 0;
}

static int close_device(void **state)
{
    device_close(&gpu);
    return 0;
}

static int make(void **state)
{
    a = allocator_create(&gpu, prove);
    return a ? 0 : -1;
}

static int make_proving(void **state)
{
    prove = true;
    return make(state);
}

static int unmake(void **state)
{
    prove = false;
    OK(cuCtxSynchronize());
    assert_int_equal(gpu.error.status, GV_OK);
    assert_int_equal(allocator_destroy(a), 0); // every test gives back what it took
    return 0;
}

static block *take(size_t bytes, CUstream stream)
{
    block *b = allocator_take(a, bytes, stream);
    assert_non_null(b);
    return b;
}

static void give(block *b)
{
    allocator_give(a, b);
}

static void begin(allocator_pool *p)
{
    OK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    allocator_begin_capture(a, p, first);
}

static void end(allocator_pool *p)
{
    CUgraph graph;
    OK(cuStreamEndCapture(first, &graph));
    allocator_end_capture(a, p);
    OK(cuGraphDestroy(graph));
}

static void sizes_are_rounded_and_split(void **state)
{
    block *x = take(1, first), *y = take(512, first), *z = take(513, first);
    assert_int_equal(x->bytes, 512);
    assert_int_equal(y->bytes, 512);
    assert_int_equal(z->bytes, 1024);
    // One segment, from its start on.
    assert_int_equal(y->address - x->address, 512);
    assert_int_equal(z->address - y->address, 512);
    assert_int_equal(allocator_count(a).reserved, 2 * MIB);
    assert_int_equal(allocator_count(a).bytes, 2048);
    assert_int_equal(allocator_count(a).blocks, 3);
    give(x);
    give(y);
    give(z);
    assert_int_equal(allocator_count(a).bytes, 0);
}

static void the_smallest_sufficient_block_is_taken(void **state)
{
    // Holes of 2048, 1024 and 1024 bytes, kept apart by blocks that stay.
    block *keep[3], *hole[3];
    size_t sizes[] = {2048, 1024, 1024};
    for (int i = 0; i < 3; i++) {
        hole[i] = take(sizes[i], first);
        keep[i] = take(512, first);
    }
    CUdeviceptr address[3];
    for (int i = 2; i >= 0; i--) {
        address[i] = hole[i]->address;
        give(hole[i]);
    }
    block *x = take(600, first), *y = take(1024, first), *z = take(1024, first);
    assert_int_equal(x->address, address[1]); // among equals the lowest address
    assert_int_equal(y->address, address[2]);
    assert_int_equal(z->address, address[0]); // then the next larger one,
    block *rest = take(1024, first);
    assert_int_equal(rest->address, address[0] + 1024); // whose rest is a block of its own
    give(x);
    give(y);
    give(z);
    give(rest);
    for (int i = 0; i < 3; i++)
        give(keep[i]);
}

static void neighbours_become_one_block(void **state)
{
    block *b[4];
    for (int i = 0; i < 4; i++)
        b[i] = take(512, first);
    CUdeviceptr start = b[0]->address;
    give(b[0]);
    give(b[2]);
    block *x = take(1024, first); // no hole of 1024 yet
    assert_int_equal(x->address, start + 2048);
    give(b[1]); // joins both sides
    block *y = take(1536, first);
    assert_int_equal(y->address, start);
    give(x);
    give(y);
    give(b[3]);
    block *whole = take(MIB, first);
    assert_int_equal(whole->address, start);
    give(whole);
}

static void large_requests_follow_their_own_rules(void **state)
{
    block *small = take(MIB, first);
    assert_int_equal(allocator_count(a).reserved, 2 * MIB);
    block *large = take(MIB + 1, first);
    assert_int_equal(large->bytes, MIB + 512);
    assert_int_equal(allocator_count(a).reserved, 22 * MIB);
    block *wide = take(19 * MIB, first); // more than is left: a segment of its own, rounded to 2 MiB,
    assert_int_equal(allocator_count(a).reserved, 42 * MIB);
    assert_int_equal(wide->bytes, 20 * MIB); // and not split: the rest is not more than 1 MiB
    block *rest = take(18 * MIB - 512, first);
    assert_int_equal(rest->address, large->address + MIB + 512); // from what was left: exactly 1 MiB more, not split
    assert_int_equal(rest->bytes, 19 * MIB - 512);
    give(small);
    give(large);
    give(wide);
    give(rest);
}

static void blocks_stay_with_their_stream(void **state)
{
    block *x = take(4096, first);
    CUdeviceptr address = x->address;
    give(x);
    block *y = take(4096, second);
    assert_true(y->address < address || y->address >= address + 2 * MIB);
    block *z = take(4096, first);
    assert_int_equal(z->address, address);
    give(y);
    give(z);
}

// Holds a stream up until the word is 1.
static CUdeviceptr hold(CUstream stream)
{
    CUdeviceptr word;
    OK(cuMemAlloc(&word, 4));
    OK(cuMemsetD32(word, 0, 1));
    OK(cuCtxSynchronize());
    OK(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
    return word;
}

static void let_go(CUdeviceptr word, CUstream stream)
{
    OK(cuStreamWriteValue32(third, word, 1, 0));
    OK(cuStreamSynchronize(stream));
    OK(cuMemFree(word));
}

static void giving_back_does_not_wait_for_the_device(void **state)
{
    block *x = take(512, first);
    CUdeviceptr address = x->address, word = hold(first);
    OK(cuMemsetD8Async(address, 1, 512, first)); // still to come
    give(x);
    block *y = take(512, first);
    assert_int_equal(y->address, address);
    give(y);
    let_go(word, first);
}

static void announced_uses_are_waited_for(void **state)
{
    block *x = take(512, first);
    CUdeviceptr address = x->address, word = hold(second);
    allocator_record_stream(a, x, second);
    allocator_record_stream(a, x, second); // twice is once
    allocator_record_stream(a, x, first);  // and its own stream needs none
    give(x);
    assert_int_equal(allocator_count(a).set_aside, 1);
    block *y = take(512, first);
    assert_int_not_equal(y->address, address);
    let_go(word, second);
    block *z = take(512, first);
    assert_int_equal(z->address, address);
    assert_int_equal(allocator_count(a).set_aside, 0);
    give(y);
    give(z);
}

static void several_streams_are_all_waited_for(void **state)
{
    block *x = take(512, first);
    CUdeviceptr address = x->address, word = hold(second);
    allocator_record_stream(a, x, third);
    allocator_record_stream(a, x, second);
    give(x);
    OK(cuStreamSynchronize(third));
    block *y = take(512, first);
    assert_int_not_equal(y->address, address);
    let_go(word, second);
    give(y);
    y = take(512, first);
    assert_int_equal(y->address, address);
    give(y);
}

static void a_capture_has_memory_of_its_own(void **state)
{
    allocator_pool *p = allocator_pool_create(a);
    block *before = take(512, first);
    CUdeviceptr ordinary = before->address;
    give(before);
    block *side_before = take(512, second);
    CUdeviceptr side_ordinary = side_before->address;
    give(side_before);

    begin(p);
    block *in = take(512, first);
    assert_int_not_equal(in->address, ordinary);
    // A side stream that has not joined the capture yet still gets ordinary memory.
    block *early = take(512, second);
    assert_int_equal(early->address, side_ordinary);
    OK(cuMemsetD8Async(in->address, 0, 512, first));
    device_order(&gpu, first, second);
    block *side = take(512, second);
    assert_int_not_equal(side->address, side_ordinary + 512);
    device_order(&gpu, second, first);
    CUdeviceptr addresses[] = {in->address, side->address};
    give(in);
    give(side);
    end(p);
    give(early);

    block *after = take(512, first);
    assert_int_equal(after->address, ordinary);
    give(after);
    // The next capture into the pool finds what the first one gave back.
    begin(p);
    in = take(512, first);
    assert_int_equal(in->address, addresses[0]);
    give(in);
    end(p);
    size_t reserved = allocator_count(a).reserved;
    allocator_pool_drop(a, p); // and everything that is free goes back to the driver
    assert_int_equal(allocator_count(a).reserved, 0);
    assert_int_equal(reserved, 4 * 2 * MIB);
}

static void announced_blocks_are_not_reused_in_a_capture(void **state)
{
    allocator_pool *p = allocator_pool_create(a);
    begin(p);
    block *x = take(512, first);
    CUdeviceptr address = x->address;
    OK(cuMemsetD8Async(address, 0, 512, first));
    device_order(&gpu, first, second);
    OK(cuMemsetD8Async(address, 1, 512, second));
    allocator_record_stream(a, x, second);
    give(x);
    device_order(&gpu, second, first);
    block *y = take(512, first); // not even behind the join
    assert_int_not_equal(y->address, address);
    give(y);
    end(p);
    give(take(512, first)); // with the first ordinary request it comes back
    assert_int_equal(allocator_count(a).set_aside, 0);
    begin(p);
    y = take(512, first);
    assert_int_equal(y->address, address);
    give(y);
    end(p);
    allocator_pool_drop(a, p);
}

static void what_was_not_announced_is_reused_before_the_join(void **state)
{
    allocator_pool *p = allocator_pool_create(a);
    begin(p);
    block *x = take(512, first);
    CUdeviceptr address = x->address;
    OK(cuMemsetD8Async(address, 0, 512, first));
    device_order(&gpu, first, second);
    OK(cuMemsetD8Async(address, 1, 512, second));
    give(x);
    block *y = take(512, first); // the fault of the incident
    assert_int_equal(y->address, address);
    give(y);
    device_order(&gpu, second, first);
    end(p);
    allocator_pool_drop(a, p);
}

static void proved_blocks_are_reused_behind_the_join(void **state)
{
    allocator_pool *p = allocator_pool_create(a);
    begin(p);
    block *x = take(512, first), *unused = take(512, first);
    CUdeviceptr address = x->address;
    give(unused);
    OK(cuMemsetD8Async(address, 0, 512, first));
    device_order(&gpu, first, second);
    OK(cuMemsetD8Async(address, 1, 512, second));
    allocator_record_stream(a, x, second);
    give(x);
    OK(cuMemsetD8Async(address + 4096, 0, 512, first));
    block *y = take(512, first);
    assert_int_not_equal(y->address, address); // second is not before what comes next
    device_order(&gpu, second, first);
    block *z = take(512, first);
    assert_int_equal(z->address, address); // now it is
    give(y);
    give(z);
    end(p);
    allocator_pool_drop(a, p);
}

static void nothing_is_proved_of_streams_outside_the_capture(void **state)
{
    allocator_pool *p = allocator_pool_create(a);
    begin(p);
    block *x = take(512, first);
    CUdeviceptr address = x->address;
    allocator_record_stream(a, x, third); // does not take part
    give(x);
    OK(cuMemsetD8Async(address + 4096, 0, 512, first));
    block *y = take(512, first);
    assert_int_not_equal(y->address, address);
    give(y);
    end(p);
    // That use was not captured: it is waited for like any other.
    CUdeviceptr word = hold(third);
    give(take(512, first));
    assert_int_equal(allocator_count(a).set_aside, 1);
    OK(cuStreamWriteValue32(second, word, 1, 0));
    OK(cuStreamSynchronize(third));
    give(take(512, first));
    assert_int_equal(allocator_count(a).set_aside, 0);
    OK(cuMemFree(word));
    allocator_pool_drop(a, p);
}

static void cached_memory_is_given_back_when_it_runs_out(void **state)
{
    size_t free_bytes, total;
    OK(cuMemGetInfo(&free_bytes, &total));
    size_t half = free_bytes / 2 / (2 * MIB) * (2 * MIB);
    give(take(half, first));
    give(take(half - 4 * MIB, second));
    block *x = take(half + 8 * MIB, first); // fits only after the driver has both back
    assert_int_equal(allocator_count(a).reserved, half + 8 * MIB);
    give(x);
    assert_null(allocator_take(a, total * 2, first));
    assert_int_equal(gpu.error.status, GV_ERR_IO);
    gpu.error = (gv_error){0};
}

static void out_of_host_memory_is_an_error(void **state)
{
    for (int successes = 0; successes < 3; successes++) {
        gv_memory_fail_after(successes);
        block *x = allocator_take(a, 512, first);
        gv_memory_fail_after(-1);
        assert_null(x);
        assert_int_equal(gpu.error.status, GV_ERR_MEMORY);
        gpu.error = (gv_error){0};
        if (allocator_count(a).reserved)
            break;
    }
    give(take(512, first));
}

struct heard {
    int events[4];
};

static void listen(void *user, enum allocator_event event, const block *b, size_t requested)
{
    struct heard *heard = user;
    heard->events[event]++;
    assert_true(b->bytes >= requested);
}

static void listeners_hear_of_everything(void **state)
{
    struct heard heard = {0};
    allocator_listen(a, listen, &heard);
    give(take(100, first));
    block *x = take(100, first);
    allocator_record_stream(a, x, second);
    give(x);
    OK(cuStreamSynchronize(second));
    give(take(100, first));
    const int expected[] = {3, 2, 1, 3};
    assert_memory_equal(heard.events, expected, sizeof expected);
}

// A long random history keeps the books: blocks never overlap, and everything comes together in the end.
static void random_histories_keep_the_books(void **state)
{
    enum { LIVE = 64 };
    block *live[LIVE] = {0};
    uint64_t random = 1;
    for (int step = 0; step < 20000; step++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        int at = (int)(random >> 33) % LIVE;
        if (live[at]) {
            give(live[at]);
            live[at] = NULL;
            continue;
        }
        CUstream stream = random >> 40 & 1 ? first : second;
        live[at] = take(1 + (random >> 45) % (random >> 41 & 7 ? 8192 : 3 * MIB), stream);
        assert_ptr_equal(live[at]->stream, stream);
        for (int i = 0; i < LIVE; i++)
            if (i != at && live[i])
                assert_true(live[i]->address >= live[at]->address + live[at]->bytes ||
                            live[at]->address >= live[i]->address + live[i]->bytes);
    }
    size_t bytes = 0;
    for (int i = 0; i < LIVE; i++)
        bytes += live[i] ? live[i]->bytes : 0;
    assert_int_equal(allocator_count(a).bytes, bytes);
    for (int i = 0; i < LIVE; i++)
        give(live[i]);
    assert_true(allocator_count(a).reserved > 0);
    allocator_trim(a);
    assert_int_equal(allocator_count(a).reserved, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sizes_are_rounded_and_split, make, unmake),
        cmocka_unit_test_setup_teardown(the_smallest_sufficient_block_is_taken, make, unmake),
        cmocka_unit_test_setup_teardown(neighbours_become_one_block, make, unmake),
        cmocka_unit_test_setup_teardown(large_requests_follow_their_own_rules, make, unmake),
        cmocka_unit_test_setup_teardown(blocks_stay_with_their_stream, make, unmake),
        cmocka_unit_test_setup_teardown(giving_back_does_not_wait_for_the_device, make, unmake),
        cmocka_unit_test_setup_teardown(announced_uses_are_waited_for, make, unmake),
        cmocka_unit_test_setup_teardown(several_streams_are_all_waited_for, make, unmake),
        cmocka_unit_test_setup_teardown(a_capture_has_memory_of_its_own, make, unmake),
        cmocka_unit_test_setup_teardown(announced_blocks_are_not_reused_in_a_capture, make, unmake),
        cmocka_unit_test_setup_teardown(what_was_not_announced_is_reused_before_the_join, make, unmake),
        cmocka_unit_test_setup_teardown(proved_blocks_are_reused_behind_the_join, make_proving, unmake),
        cmocka_unit_test_setup_teardown(nothing_is_proved_of_streams_outside_the_capture, make_proving, unmake),
        cmocka_unit_test_setup_teardown(cached_memory_is_given_back_when_it_runs_out, make, unmake),
        cmocka_unit_test_setup_teardown(out_of_host_memory_is_an_error, make, unmake),
        cmocka_unit_test_setup_teardown(listeners_hear_of_everything, make, unmake),
        cmocka_unit_test_setup_teardown(random_histories_keep_the_books, make, unmake),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
