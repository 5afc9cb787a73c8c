// How fast the canary's hash goes over memory, beside a copy on the same device in the same run: hash_bench [MIB
// [ROUNDS]]. On a GPU, or with LD_LIBRARY_PATH=build/soft on the software driver, where the numbers say nothing.
//
// A copy of S bytes moves 2 S, a hash reads S. Each is timed several times, by turns, and the fastest counts.
#include "base/clock.h"
#include "record/driver.h"
#include "record/hash.h"
#include "soft/gravel_soft.h"

#include <stdio.h>
#include <stdlib.h>

static CUstream stream;

#define CHECK(call)                                                                   \
    do {                                                                              \
        CUresult result_ = (call);                                                    \
        if (result_ != CUDA_SUCCESS) {                                                \
            fprintf(stderr, "hash_bench: %s: %s\n", #call, gv_driver_error(result_)); \
            exit(2);                                                                  \
        }                                                                             \
    } while (0)

static void require(gv_status status, const gv_error *error)
{
    if (status == GV_OK)
        return;
    fprintf(stderr, "hash_bench: %s\n", error->text);
    exit(2);
}

// Seconds of one hash, of `repeats` one behind the other.
static double time_hash(gv_hashed *hashed, int repeats)
{
    gv_error error = {0};
    uint64_t start = gv_monotonic_ns();
    for (int i = 0; i < repeats; i++)
        require(gv_hashed_enqueue(hashed, stream, &error), &error);
    CHECK(cuStreamSynchronize(stream));
    return (double)(gv_monotonic_ns() - start) / 1e9 / repeats;
}

static double time_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, int repeats)
{
    uint64_t start = gv_monotonic_ns();
    for (int i = 0; i < repeats; i++)
        CHECK(cuMemcpyDtoDAsync(to, from, bytes, stream));
    CHECK(cuStreamSynchronize(stream));
    return (double)(gv_monotonic_ns() - start) / 1e9 / repeats;
}

int main(int argc, char **argv)
{
    static const uint64_t pages[] = {8448, 16384, 131072, 2 << 20};
    size_t bytes = (size_t)(argc > 1 ? atoll(argv[1]) : 4096) << 20;
    int rounds = argc > 2 ? atoi(argv[2]) : 5, repeats = 10;
    const char *missing;
    CUdevice device;
    CUcontext context;
    CUdeviceptr from, to;
    gv_hasher *hasher;
    gv_error error = {0};
    if (!bytes || rounds < 1)
        return 2;
    if (!gv_driver_load(&missing)) {
        fprintf(stderr, "hash_bench: the driver has no %s\n", missing);
        return 2;
    }
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&from, bytes));
    CHECK(cuMemAlloc(&to, bytes));
    CHECK(cuMemsetD32Async(from, 0x9e3779b9, bytes / 4, stream));
    require(gv_hasher_open(gv_driver_symbol(GRAVEL_SOFT_API_SYMBOL) != NULL, &hasher, &error), &error);
    require(gv_hasher_self_test(hasher, false, &error), &error);
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        gv_hashed *hashed;
        double hash = 1e9, copy = 1e9;
        require(gv_hashed_open(hasher, from, bytes, pages[i], stream, &hashed, &error), &error);
        time_hash(hashed, 1);
        for (int round = 0; round < rounds; round++) {
            double seconds = time_copy(to, from, bytes, repeats);
            copy = seconds < copy ? seconds : copy;
            seconds = time_hash(hashed, repeats);
            hash = seconds < hash ? seconds : hash;
        }
        double hashed_bytes = (double)bytes / hash, moved = 2 * (double)bytes / copy;
        printf("pages of %7llu bytes: hash %8.1f GB/s, copy %8.1f GB/s (read and written): %.0f %%\n",
               (unsigned long long)pages[i], hashed_bytes / 1e9, moved / 1e9, 100 * hashed_bytes / moved);
        gv_hashed_close(hashed);
    }
    gv_hasher_close(hasher);
    printf("bar: 70 %% of the copy on a GPU\n");
    return 0;
}
