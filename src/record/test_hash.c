// Regions hashed by the kernels of src/device/hash.cu on the software driver, against a hash computed here byte by
// byte.
#include "record/driver.h"
#include "record/hash.h"

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static CUstream stream, other;
static gv_hasher *hasher;

#define OK(call) assert_int_equal((call), CUDA_SUCCESS)

static int setup(void **state)
{
    CUdevice device;
    CUcontext context;
    const char *missing;
    gv_error error = {0};
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    assert_true(gv_driver_load(&missing));
    if (gv_hasher_open(true, &hasher, &error) != GV_OK)
        fail_msg("%s", error.text);
    return 0;
}

static int teardown(void **state)
{
    gv_hasher_close(hasher);
    OK(cuStreamDestroy(stream));
    OK(cuStreamDestroy(other));
    return 0;
}

// A copy from pageable memory may return before it has arrived, and our stream does not wait for it.
static void upload(CUdeviceptr to, const void *from, size_t size)
{
    OK(cuMemcpyHtoD(to, from, size));
    OK(cuCtxSynchronize());
}

// The definition of a page's hash, written out again: every word alone, every byte of it by hand.
static uint64_t reference(const uint8_t *bytes, uint64_t count)
{
    uint64_t sum = 0;
    for (uint64_t word = 0; word * 8 < count; word++) {
        uint64_t z = 0;
        for (uint64_t i = 0; i < 8 && word * 8 + i < count; i++)
            z += (uint64_t)bytes[word * 8 + i] << (8 * i);
        z += (word + 1) * UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        sum += z ^ (z >> 31);
    }
    return sum;
}

// A region at an offset in memory of random bytes.
typedef struct fixture {
    CUdeviceptr memory;
    uint8_t *bytes;
    uint64_t offset, size, page;
    gv_hashed *hashed;
    const gv_hash_entry *entries;
    const gv_hash_head *head;
} fixture;

static void fill(fixture *f, uint64_t offset, uint64_t size, uint64_t page)
{
    *f = (fixture){.offset = offset, .size = size, .page = page, .bytes = malloc(size)};
    assert_non_null(f->bytes);
    srand(1);
    for (uint64_t i = 0; i < size; i++)
        f->bytes[i] = (uint8_t)rand();
    OK(cuMemAlloc(&f->memory, offset + size + 64));
    upload(f->memory + offset, f->bytes, size);
}

static void watch(fixture *f)
{
    gv_error error = {0};
    if (gv_hashed_open(hasher, f->memory + f->offset, f->size, f->page, stream, &f->hashed, &error) != GV_OK)
        fail_msg("%s", error.text);
}

static void begin(fixture *f, uint64_t offset, uint64_t size, uint64_t page)
{
    fill(f, offset, size, page);
    watch(f);
}

static void hash(fixture *f)
{
    gv_error error = {0};
    assert_int_equal(gv_hashed_enqueue(f->hashed, stream, &error), GV_OK);
    OK(cuStreamSynchronize(stream));
    assert_int_equal(gv_hashed_poll(f->hashed), CUDA_SUCCESS);
    f->head = gv_hashed_take(f->hashed, &f->entries);
}

static void end(fixture *f)
{
    gv_hashed_close(f->hashed);
    OK(cuMemFree(f->memory));
    free(f->bytes);
}

// Changes a byte on the device and here.
static void change(fixture *f, uint64_t at)
{
    f->bytes[at] ^= 0x40;
    upload(f->memory + f->offset + at, f->bytes + at, 1);
}

static const gv_hash_entry *entry_of(const fixture *f, uint32_t page)
{
    for (uint32_t i = 0; i < f->head->listed; i++)
        if (f->entries[i].page == page)
            return &f->entries[i];
    return NULL;
}

static void expect_page(const fixture *f, uint32_t page, uint32_t flags)
{
    uint64_t start = page * f->page, length = f->size - start < f->page ? f->size - start : f->page;
    const gv_hash_entry *entry = entry_of(f, page);
    assert_non_null(entry);
    assert_int_equal(entry->flags, flags);
    assert_true(entry->hash == reference(f->bytes + start, length));
}

static void test_against_the_reference(void **state)
{
    // Whole chunks, pages shorter and longer than a chunk, odd sizes, places that are not aligned, a short last page.
    static const uint64_t cases[][3] = {{0, 8 * 4096, 4096}, {0, 40000, 8448},  {16, 100000, 16384},
                                        {8, 9000, 3000},     {1, 5000, 777},    {3, 20, 7},
                                        {0, 1, 1},           {0, 70000, 70000}, {4, 12345, 4100}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        begin(&f, cases[i][0], cases[i][1], cases[i][2]);
        hash(&f);
        uint64_t pages = gv_hash_pages(f.size, f.page), total = 0;
        assert_int_equal(f.head->listed, pages); // the first time: all
        for (uint32_t page = 0; page < pages; page++) {
            expect_page(&f, page, GV_HASH_CHANGED);
            total += gv_hash_word(entry_of(&f, page)->hash, page);
        }
        assert_true(f.head->total == total);
        hash(&f);
        assert_int_equal(f.head->listed, 0);
        assert_true(f.head->total == total);
        end(&f);
    }
}

static void test_every_byte_counts(void **state)
{
    fixture f;
    begin(&f, 0, 3 * 4200 + 13, 4200);
    hash(&f);
    for (uint64_t at = 0; at<f.size; at += at % 4200> 4190 || at > f.size - 14 ? 1 : 97) {
        change(&f, at);
        hash(&f);
        assert_int_equal(f.head->listed, 1);
        expect_page(&f, (uint32_t)(at / 4200), GV_HASH_CHANGED);
    }
    // Two words that change places are a change.
    memcpy(f.bytes, "aaaaaaaabbbbbbbb", 16);
    upload(f.memory, f.bytes, 16);
    hash(&f);
    memcpy(f.bytes, "bbbbbbbbaaaaaaaa", 16);
    upload(f.memory, f.bytes, 16);
    hash(&f);
    assert_int_equal(f.head->listed, 1);
    end(&f);
}

static void test_marks(void **state)
{
    gv_error error = {0};
    fixture f;
    CUdeviceptr indices;
    const int narrow[] = {0, -1, 65, 700};
    const long long wide[] = {130, -5, 1LL << 40, 131};
    begin(&f, 0, 10 * 4096, 4096);
    hash(&f);
    OK(cuMemAlloc(&indices, 64));
    upload(indices, narrow, sizeof narrow);
    assert_int_equal(gv_hashed_mark(f.hashed, stream, indices, 4, 4, 64, &error), GV_OK);
    OK(cuStreamSynchronize(stream));
    upload(indices, wide, sizeof wide);
    assert_int_equal(gv_hashed_mark(f.hashed, stream, indices, 4, 8, 64, &error), GV_OK);
    change(&f, 2 * 4096);
    change(&f, 9 * 4096);
    hash(&f);
    assert_int_equal(f.head->nonsense, 2); // 700 / 64 is page 10
    assert_int_equal(f.head->listed, 4);
    expect_page(&f, 0, GV_HASH_MARKED);
    expect_page(&f, 1, GV_HASH_MARKED);
    expect_page(&f, 2, GV_HASH_MARKED | GV_HASH_CHANGED);
    expect_page(&f, 9, GV_HASH_CHANGED);
    // Marks are of one hash.
    hash(&f);
    assert_int_equal(f.head->listed, 0);
    assert_int_equal(f.head->nonsense, 0);
    OK(cuMemFree(indices));
    end(&f);
}

static void test_pages_hashed_anew(void **state)
{
    gv_error error = {0};
    fixture f;
    const uint32_t pages[] = {1, 3};
    begin(&f, 0, 5 * 5000, 5000);
    hash(&f);
    change(&f, 5000);
    change(&f, 3 * 5000 + 4999);
    change(&f, 4 * 5000);
    assert_int_equal(gv_hashed_anew(f.hashed, pages, 2, 10, &error), GV_OK);
    change(&f, 3 * 5000);
    hash(&f);
    assert_int_equal(f.head->listed, 3);
    expect_page(&f, 1, GV_HASH_FRESH);
    expect_page(&f, 3, GV_HASH_FRESH | GV_HASH_CHANGED);
    expect_page(&f, 4, GV_HASH_CHANGED);
    hash(&f);
    assert_int_equal(f.head->listed, 0);
    end(&f);
}

static void CUDA_CB wait_for_the_gate(void *gate)
{
    sem_wait(gate);
}

// A transfer may end while the stream of the region's first hash is busy: what is hashed anew waits for the set-up.
static void test_pages_hashed_anew_before_the_stream_is_ready(void **state)
{
    gv_error error = {0};
    fixture f;
    const uint32_t pages[] = {1};
    sem_t gate;
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    fill(&f, 0, 5 * 90000, 90000);
    OK(cuLaunchHostFunc(stream, wait_for_the_gate, &gate));
    watch(&f);
    assert_int_equal(gv_hashed_anew(f.hashed, pages, 1, 0.05, &error), GV_OK);
    assert_int_equal(gv_hashed_enqueue(f.hashed, stream, &error), GV_OK);
    sem_post(&gate);
    OK(cuStreamSynchronize(stream));
    f.head = gv_hashed_take(f.hashed, &f.entries);
    assert_int_equal(f.head->listed, 5); // the first hash lists every page
    hash(&f);
    assert_int_equal(f.head->listed, 0);
    end(&f);
    sem_destroy(&gate);
}

static void test_order_in_the_stream(void **state)
{
    fixture f;
    begin(&f, 0, 64 * 4096, 4096);
    hash(&f);
    // What is in the stream before the hash is seen by it, however late it runs; what comes behind is not.
    OK(cuMemsetD8Async(f.memory, 7, 4096, stream));
    gv_error error = {0};
    assert_int_equal(gv_hashed_enqueue(f.hashed, stream, &error), GV_OK);
    OK(cuMemsetD8Async(f.memory + 4096, 7, 4096, stream));
    OK(cuStreamSynchronize(stream));
    memset(f.bytes, 7, 4096);
    f.head = gv_hashed_take(f.hashed, &f.entries);
    assert_int_equal(f.head->listed, 1);
    expect_page(&f, 0, GV_HASH_CHANGED);
    end(&f);
}

static void test_limits(void **state)
{
    gv_error error = {0};
    gv_hashed *hashed;
    assert_int_equal(gv_hash_pages(10, 3), 4);
    assert_int_equal(gv_hash_chunks(10 * 4096, 4097), 20);
    assert_int_equal(gv_hashed_open(hasher, 4096, GV_HASH_MOST_PAGES + 1, 1, stream, &hashed, &error), GV_ERR_LIMIT);
    assert_null(hashed);
}

static void test_the_self_test(void **state)
{
    gv_error error = {0};
    assert_int_equal(gv_hasher_self_test(hasher, false, &error), GV_OK);
    assert_int_equal(gv_hasher_self_test(hasher, true, &error), GV_ERR_IO);
    assert_non_null(strstr(error.text, "0 where one did"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_the_reference),
        cmocka_unit_test(test_every_byte_counts),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_pages_hashed_anew),
        cmocka_unit_test(test_pages_hashed_anew_before_the_stream_is_ready),
        cmocka_unit_test(test_order_in_the_stream),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_the_self_test),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
