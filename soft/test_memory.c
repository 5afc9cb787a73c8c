// Memory: allocation of every kind, what is known about an address, pools, copies and sets in all shapes.
#include "soft/testing.h"

static void allocations_are_apart_and_counted(void **state)
{
    size_t free_before, free_after, total;
    CUdeviceptr a, b;
    OK(cuMemGetInfo(&free_before, &total));
    OK(cuMemAlloc(&a, 1000));
    OK(cuMemAlloc(&b, 1000));
    assert_int_equal(a % 256, 0);
    assert_true(a + 1000 <= b || b + 1000 <= a);
    OK(cuMemGetInfo(&free_after, &total));
    assert_int_equal(free_before - free_after, 2048);
    OK(cuMemFree(a));
    OK(cuMemFree(b));
    OK(cuMemGetInfo(&free_after, &total));
    assert_int_equal(free_before, free_after);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(a));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&a, 0));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&a, total + 1));
    OK(cuMemFree(0));
}

static void freed_memory_is_used_again(void **state)
{
    CUdeviceptr many[200], again;
    for (int i = 0; i < 200; i++)
        OK(cuMemAlloc(&many[i], 256 * (1 + i % 3)));
    // Holes in the middle close again, whatever the order.
    for (int i = 0; i < 200; i += 2)
        OK(cuMemFree(many[i]));
    for (int i = 199; i > 0; i -= 2)
        OK(cuMemFree(many[i]));
    OK(cuMemAlloc(&again, 256));
    assert_int_equal(again, many[0]);
    OK(cuMemFree(again));
}

static void pointers_know_what_they_are(void **state)
{
    CUdeviceptr device, managed;
    void *pinned, *registered = aligned_alloc(4096, 4096);
    OK(cuMemAlloc(&device, 1000));
    OK(cuMemAllocManaged(&managed, 1000, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemHostAlloc(&pinned, 1000, 0));
    OK(cuMemHostRegister(registered, 4096, 0));
    const struct {
        CUdeviceptr address;
        CUmemorytype type;
        unsigned managed;
        size_t size;
    } rows[] = {{device, CU_MEMORYTYPE_DEVICE, 0, 1000},
                {managed, CU_MEMORYTYPE_DEVICE, 1, 1000},
                {(CUdeviceptr)(uintptr_t)pinned, CU_MEMORYTYPE_HOST, 0, 1000},
                {(CUdeviceptr)(uintptr_t)registered, CU_MEMORYTYPE_HOST, 0, 4096}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CUmemorytype type = 0;
        unsigned is_managed = 9;
        CUdeviceptr start = 0;
        size_t size = 0;
        unsigned long long id = 0;
        CUdeviceptr inside = rows[i].address + 100;
        OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
        assert_int_equal(type, rows[i].type);
        OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, inside));
        assert_int_equal(is_managed, rows[i].managed);
        OK(cuMemGetAddressRange(&start, &size, inside));
        assert_int_equal(start, rows[i].address);
        assert_int_equal(size, rows[i].size);
        CUpointer_attribute both[] = {CU_POINTER_ATTRIBUTE_BUFFER_ID, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
        void *values[] = {&id, &size};
        OK(cuPointerGetAttributes(2, both, values, inside));
        assert_true(id != 0);
        assert_int_equal(size, rows[i].size);
    }
    int on_stack = 0;
    CUmemorytype type = CU_MEMORYTYPE_DEVICE;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&on_stack));
    CUpointer_attribute one[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    OK(cuPointerGetAttributes(1, one, (void *[]){&type}, (CUdeviceptr)(uintptr_t)&on_stack));
    assert_int_equal(type, 0);

    FAILS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(registered, 16, 0));
    OK(cuMemHostUnregister(registered));
    FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(registered));
    free(registered);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree((CUdeviceptr)(uintptr_t)pinned));
    OK(cuMemFreeHost(pinned));
    OK(cuMemFree(managed));
    OK(cuMemFree(device));
}

static void pools_reuse_by_stream(void **state)
{
    CUdeviceptr first, same_stream, other_stream, large;
    int value = 1, count = 1;
    OK(cuMemAllocAsync(&first, 4096, the.a));
    gate held = gate_close(the.a);
    LAUNCH(kernel("fill"), the.a, 1, &first, &value, &count);
    OK(cuMemFreeAsync(first, the.a));
    // The free is still behind the kernel: another stream may not have the block, its own may.
    OK(cuMemAllocAsync(&other_stream, 4096, the.b));
    assert_true(other_stream != first);
    OK(cuMemAllocAsync(&same_stream, 4096, the.a));
    assert_int_equal(same_stream, first);
    OK(cuMemFreeAsync(same_stream, the.a));
    CUmemoryPool pool;
    cuuint64_t keep = UINT64_MAX, used = 9;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    gate_open(held, the.a);
    // Done: now anybody may.
    OK(cuMemAllocAsync(&large, 4096, the.b));
    assert_int_equal(large, first);
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    assert_int_equal(used, 8192);
    OK(cuMemFreeAsync(large, the.b));
    OK(cuMemFreeAsync(other_stream, the.b));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(large, the.b));
    OK(cuStreamSynchronize(the.b));
    OK(cuMemPoolTrimTo(pool, 0));
    cuuint64_t reserved = 9;
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    assert_int_equal(reserved, 0);
}

static void plain_memory_can_be_freed_in_stream_order(void **state)
{
    CUdeviceptr first, second;
    int value = 1, count = 1;
    OK(cuMemAlloc(&first, 4096));
    gate held = gate_close(the.a);
    LAUNCH(kernel("fill"), the.a, 1, &first, &value, &count);
    OK(cuMemFreeAsync(first, the.a));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree(first));
    OK(cuMemAlloc(&second, 4096)); // the kernel still uses the first one
    assert_true(second != first);
    gate_open(held, the.a);
    OK(cuMemFree(second)); // which waits for all work
    OK(cuMemAlloc(&second, 4096));
    assert_int_equal(second, first);
    OK(cuMemFree(second));
}

static void pool_memory_can_be_freed_the_ordinary_way(void **state)
{
    CUdeviceptr block;
    CUmemoryPool own;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    OK(cuMemPoolCreate(&own, &properties));
    OK(cuMemAllocFromPoolAsync(&block, 100, own, the.a));
    CUmemoryPool seen = NULL;
    OK(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, block));
    assert_ptr_equal(seen, own);
    OK(cuMemFree(block));
    OK(cuMemPoolDestroy(own));
}

static void copies_in_one_two_and_three_dimensions(void **state)
{
    unsigned char host[4096], back[4096];
    for (size_t i = 0; i < sizeof host; i++)
        host[i] = (unsigned char)(i * 7 + i / 256);
    CUdeviceptr a = buffer(4096), b = buffer(4096);
    OK(cuMemcpyHtoD(a, host, 4096));
    OK(cuMemcpyDtoD(b, a, 4096));
    OK(cuMemcpyDtoH(back, b, 4096));
    assert_memory_equal(back, host, 4096);

    // A tile of 10 x 5 bytes at (3, 2) of a pitch of 64, to (1, 1) of a pitch of 32.
    OK(cuMemsetD8(b, 0, 4096));
    CUDA_MEMCPY2D flat = {.srcXInBytes = 3,
                          .srcY = 2,
                          .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = a,
                          .srcPitch = 64,
                          .dstXInBytes = 1,
                          .dstY = 1,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = b,
                          .dstPitch = 32,
                          .WidthInBytes = 10,
                          .Height = 5};
    OK(cuMemcpy2D(&flat));
    OK(cuMemcpyDtoH(back, b, 4096));
    for (int y = 0; y < 128; y++)
        for (int x = 0; x < 32; x++) {
            bool inside = x >= 1 && x < 11 && y >= 1 && y < 6;
            assert_int_equal(back[y * 32 + x], inside ? host[(y + 1) * 64 + x + 2] : 0);
        }

    // A box of 8 x 3 x 2 from the host, with slices of four rows.
    OK(cuMemsetD8(b, 0, 4096));
    OK(cuCtxSynchronize()); // a set is not complete when the call returns, and the.a does not wait for the default
                            // stream
    CUDA_MEMCPY3D box = {.srcZ = 1,
                         .srcMemoryType = CU_MEMORYTYPE_HOST,
                         .srcHost = host,
                         .srcPitch = 16,
                         .srcHeight = 4,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = b,
                         .dstPitch = 8,
                         .dstHeight = 3,
                         .WidthInBytes = 8,
                         .Height = 3,
                         .Depth = 2};
    OK(cuMemcpy3DAsync(&box, the.a));
    OK(cuStreamSynchronize(the.a));
    OK(cuMemcpyDtoH(back, b, 4096));
    for (int z = 0; z < 2; z++)
        for (int y = 0; y < 3; y++)
            assert_memory_equal(back + (z * 3 + y) * 8, host + ((z + 1) * 4 + y) * 16, 8);
    assert_int_equal(back[48], 0);

    // Past the end of an allocation.
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(a + 4000, host, 97));
    flat.dstY = 127;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&flat));
    OK(cuMemFree(a));
    OK(cuMemFree(b));
}

static void unified_copies_find_the_direction(void **state)
{
    int host = 77, back = 0;
    CUdeviceptr a = buffer(64), b = buffer(64);
    OK(cuMemcpy(a, (CUdeviceptr)(uintptr_t)&host, 4));
    OK(cuCtxSynchronize()); // a copy from pageable memory returns when it is staged
    OK(cuMemcpyAsync(b, a, 4, the.a));
    OK(cuMemcpyAsync((CUdeviceptr)(uintptr_t)&back, b, 4, the.a));
    OK(cuStreamSynchronize(the.a));
    assert_int_equal(back, 77);
    OK(cuMemFree(a));
    OK(cuMemFree(b));
}

static void sets_of_every_width(void **state)
{
    unsigned char back[512];
    CUdeviceptr memory = buffer(512);
    OK(cuMemsetD8(memory, 0xa1, 3));
    OK(cuMemsetD16(memory + 4, 0xb1b2, 2));
    OK(cuMemsetD32(memory + 8, 0xc1c2c3c4, 1));
    OK(cuMemsetD2D8(memory + 64, 16, 0xd1, 3, 2));
    OK(cuMemsetD2D16Async(memory + 128, 16, 0xe1e2, 2, 2, the.a));
    OK(cuMemsetD2D32Async(memory + 256, 16, 0xf1f2f3f4, 1, 2, the.a));
    OK(cuStreamSynchronize(the.a));
    OK(cuMemcpyDtoH(back, memory, 512));
    assert_memory_equal(
        back, ((unsigned char[]){0xa1, 0xa1, 0xa1, 0, 0xb2, 0xb1, 0xb2, 0xb1, 0xc4, 0xc3, 0xc2, 0xc1, 0}), 13);
    assert_memory_equal(back + 64, ((unsigned char[]){0xd1, 0xd1, 0xd1, 0}), 4);
    assert_memory_equal(back + 80, ((unsigned char[]){0xd1, 0xd1, 0xd1, 0}), 4);
    assert_memory_equal(back + 96, ((unsigned char[]){0, 0, 0, 0}), 4);
    assert_memory_equal(back + 144, ((unsigned char[]){0xe2, 0xe1, 0xe2, 0xe1, 0}), 5);
    assert_memory_equal(back + 272, ((unsigned char[]){0xf4, 0xf3, 0xf2, 0xf1, 0}), 5);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(memory + 2, 0, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(memory, 0, 513));
    OK(cuMemFree(memory));
}

// As a GPU's driver has it: what adjoins is not one allocation, however the memory was allocated.
static void copies_and_sets_stay_in_one_allocation(void **state)
{
    char host[512] = {0};
    CUdeviceptr plain[2], pooled[2], other = buffer(512);
    for (int i = 0; i < 2; i++)
        OK(cuMemAlloc(&plain[i], 1 << 20));
    for (int i = 0; i < 2; i++)
        OK(cuMemAllocAsync(&pooled[i], 1 << 20, the.a));
    OK(cuStreamSynchronize(the.a));
    for (int i = 0; i < 2; i++) {
        CUdeviceptr *pair = i ? pooled : plain, low = pair[0] < pair[1] ? pair[0] : pair[1];
        assert_int_equal(pair[0] + pair[1], 2 * low + (1 << 20));
        CUdeviceptr at = low + (1 << 20) - 256;
        OK(cuMemsetD8Async(at, 1, 256, the.a));
        OK(cuMemsetD8Async(at + 256, 1, 256, the.a));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(at, 1, 257));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(at, 1, 257, the.a));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D32Async(at, 256, 1, 1, 2, the.a));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync(at, other, 257, the.a));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync(other, at, 257, the.a));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync(at, host, 257, the.a));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoHAsync(host, at, 257, the.a));
    }
    for (int i = 0; i < 2; i++) {
        OK(cuMemFreeAsync(pooled[i], the.a));
        OK(cuMemFree(plain[i]));
    }
    OK(cuStreamSynchronize(the.a));
    OK(cuMemFree(other));
}

static void pitched_memory_has_rows_of_equal_length(void **state)
{
    CUdeviceptr memory;
    size_t pitch = 0, size = 0;
    OK(cuMemAllocPitch(&memory, &pitch, 1000, 10, 4));
    assert_true(pitch >= 1000 && pitch % 512 == 0);
    OK(cuMemGetAddressRange(NULL, &size, memory));
    assert_int_equal(size, pitch * 10);
    OK(cuMemFree(memory));
}

static void kernels_and_the_host_share_managed_memory(void **state)
{
    CUdeviceptr memory;
    int value = 5, count = 4;
    OK(cuMemAllocManaged(&memory, 64, CU_MEM_ATTACH_GLOBAL));
    LAUNCH(kernel("fill"), the.a, 4, &memory, &value, &count);
    OK(cuStreamSynchronize(the.a));
    assert_int_equal(((int *)(uintptr_t)memory)[3], 5);
    OK(cuMemFree(memory));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_apart_and_counted),
        cmocka_unit_test(freed_memory_is_used_again),
        cmocka_unit_test(pointers_know_what_they_are),
        cmocka_unit_test(pools_reuse_by_stream),
        cmocka_unit_test(plain_memory_can_be_freed_in_stream_order),
        cmocka_unit_test(pool_memory_can_be_freed_the_ordinary_way),
        cmocka_unit_test(copies_in_one_two_and_three_dimensions),
        cmocka_unit_test(unified_copies_find_the_direction),
        cmocka_unit_test(sets_of_every_width),
        cmocka_unit_test(copies_and_sets_stay_in_one_allocation),
        cmocka_unit_test(pitched_memory_has_rows_of_equal_length),
        cmocka_unit_test(kernels_and_the_host_share_managed_memory),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
