#include "record/hash.h"

#include "base/clock.h"
#include "base/memory.h"
#include "record/driver.h"
#include "record/embed.h"

#include <sched.h>
#include <string.h>

GV_EMBED(gv_hash_soft_image, ".gravel.soft", GV_HASH_SOFT);
#ifdef GV_DEVICE_CODE
GV_EMBED(gv_hash_image, ".gravel.fatbin", GV_HASH_FATBIN);
#endif

enum { THREADS = 256, WARP = 32, MOST_BLOCKS = 4096, HEAD_BYTES = 64 };

struct gv_hasher {
    CUmodule module;
    CUfunction chunks, mark, anew, pages, finish;
    CUdeviceptr scratch; // of the self-test, with its region
    gv_hashed *tested;
};

struct gv_hashed {
    gv_hasher *hasher;
    uint32_t pages, chunks;
    CUdeviceptr memory; // the job, the counters, sums, hashes, marks
    void *host;         // head, then entries
    CUevent done;
    CUdeviceptr list;
    CUevent ready; // what kernels read of this was set up, in the stream of the first hash
    CUstream side; // of pages that are hashed anew; NULL until there are some
    CUevent anew;
    bool has_anew;     // the next hash has to wait for it
    uint64_t sequence; // of hashes; the number of the next one is this plus one
};

// ---- The kernels -------------------------------------------------------------------------------------------------

static const void *image(bool soft)
{
    if (soft)
        return gv_hash_soft_image;
#ifdef GV_DEVICE_CODE
    return gv_hash_image;
#else
    return NULL;
#endif
}

gv_status gv_hasher_open(bool soft, gv_hasher **hasher, gv_error *error)
{
    *hasher = NULL;
    if (!image(soft))
        return gv_fail(error, GV_ERR_MISSING, "this gravel was built without nvcc");
    gv_hasher *h = gv_calloc(1, sizeof *h);
    if (!h)
        return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    const gv_named_kernel kernels[] = {{&h->chunks, "gravel_hash_chunks"},
                                       {&h->mark, "gravel_hash_mark"},
                                       {&h->anew, "gravel_hash_anew"},
                                       {&h->pages, "gravel_hash_pages"},
                                       {&h->finish, "gravel_hash_finish"}};
    CUresult result = gv_driver_load_kernels(&h->module, image(soft), kernels, sizeof kernels / sizeof *kernels);
    if (result != CUDA_SUCCESS) {
        gv_hasher_close(h);
        return gv_driver_failed(error, "the kernels that hash memory could not be loaded", result);
    }
    *hasher = h;
    return GV_OK;
}

void gv_hasher_close(gv_hasher *hasher)
{
    if (!hasher)
        return;
    gv_hashed_close(hasher->tested);
    if (hasher->scratch)
        gv_cuda.cuMemFree(hasher->scratch);
    if (hasher->module)
        gv_cuda.cuModuleUnload(hasher->module);
    gv_free(hasher);
}

// ---- A region ----------------------------------------------------------------------------------------------------

uint64_t gv_hash_pages(uint64_t bytes, uint64_t page_bytes)
{
    return bytes / page_bytes + (bytes % page_bytes != 0);
}

uint64_t gv_hash_chunks(uint64_t bytes, uint64_t page_bytes)
{
    uint64_t each = page_bytes / GV_HASH_CHUNK + (page_bytes % GV_HASH_CHUNK != 0);
    return gv_hash_pages(bytes, page_bytes) * each;
}

static uint64_t aligned(uint64_t size)
{
    return (size + 255) / 256 * 256;
}

static CUresult set_up(gv_hashed *h, gv_hash_job *job, CUstream stream)
{
    uint64_t by_chunk = aligned(8 * (uint64_t)h->chunks), wide = aligned(8 * (uint64_t)h->pages),
             narrow = aligned(4 * (uint64_t)h->pages), counters = aligned(sizeof *job),
             sums = counters + aligned(sizeof(gv_hash_head)), hashes = sums + by_chunk, fresh_hashes = hashes + wide,
             marks = fresh_hashes + wide, fresh = marks + narrow, list = fresh + narrow, size = list + narrow;
    CUdeviceptr on_device = 0;
    CUresult result = gv_cuda.cuMemAlloc(&h->memory, size);
    if (result != CUDA_SUCCESS) {
        h->memory = 0;
        return result;
    }
    result = gv_cuda.cuMemHostAlloc(&h->host, HEAD_BYTES + h->pages * sizeof(gv_hash_entry),
                                    CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
    if (result == CUDA_SUCCESS)
        memset(h->host, 0, HEAD_BYTES);
    else
        h->host = NULL;
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuMemHostGetDevicePointer(&on_device, h->host, 0);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuEventCreate(&h->done, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuMemsetD8Async(h->memory, 0, size, stream);
    job->sums = (uint64_t *)(h->memory + sums);
    job->hashes = (uint64_t *)(h->memory + hashes);
    job->marks = (uint32_t *)(h->memory + marks);
    job->fresh = (uint32_t *)(h->memory + fresh);
    job->fresh_hashes = (uint64_t *)(h->memory + fresh_hashes);
    job->list = (uint32_t *)(h->memory + list);
    h->list = h->memory + list;
    job->counters = (gv_hash_head *)(h->memory + counters);
    job->head = (gv_hash_head *)on_device;
    job->entries = (gv_hash_entry *)(on_device + HEAD_BYTES);
    // From pageable memory: it has been read when the call returns.
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuMemcpyHtoDAsync(h->memory, job, sizeof *job, stream);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuEventCreate(&h->ready, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuEventRecord(h->ready, stream);
    return result;
}

gv_status gv_hashed_open(gv_hasher *hasher, uint64_t base, uint64_t bytes, uint64_t page_bytes, CUstream stream,
                         gv_hashed **hashed, gv_error *error)
{
    *hashed = NULL;
    uint64_t pages = gv_hash_pages(bytes, page_bytes), chunks = gv_hash_chunks(bytes, page_bytes);
    if (pages > GV_HASH_MOST_PAGES || chunks > GV_HASH_MOST_CHUNKS)
        return gv_fail(error, GV_ERR_LIMIT, "it has more pages than can be hashed");
    gv_hashed *h = gv_calloc(1, sizeof *h);
    if (!h)
        return gv_fail(error, GV_ERR_MEMORY, "memory ran out");
    h->hasher = hasher;
    h->pages = (uint32_t)pages;
    h->chunks = (uint32_t)chunks;
    gv_hash_job job = {.base = base,
                       .bytes = bytes,
                       .page_bytes = page_bytes,
                       .pages = h->pages,
                       .chunks = h->chunks,
                       .chunks_per_page = (uint32_t)(chunks / pages)};
    CUresult result = set_up(h, &job, stream);
    if (result != CUDA_SUCCESS) {
        gv_hashed_close(h);
        return gv_driver_failed(error, "memory for its hashes could not be set up", result);
    }
    *hashed = h;
    return GV_OK;
}

void gv_hashed_close(gv_hashed *hashed)
{
    if (!hashed)
        return;
    if (hashed->done)
        gv_cuda.cuEventDestroy(hashed->done);
    if (hashed->ready)
        gv_cuda.cuEventDestroy(hashed->ready);
    if (hashed->anew)
        gv_cuda.cuEventDestroy(hashed->anew);
    if (hashed->side)
        gv_cuda.cuStreamDestroy(hashed->side);
    if (hashed->host)
        gv_cuda.cuMemFreeHost(hashed->host);
    if (hashed->memory)
        gv_cuda.cuMemFree(hashed->memory);
    gv_free(hashed);
}

void gv_hashed_forget(gv_hashed *hashed)
{
    gv_free(hashed);
}

// ---- Hashing -----------------------------------------------------------------------------------------------------

// A grid of about one thread for each of `threads`.
static CUresult launch(CUfunction kernel, uint64_t threads, CUstream stream, void **arguments)
{
    uint64_t blocks = (threads + THREADS - 1) / THREADS;
    return gv_cuda.cuLaunchKernel(kernel,
                                  (unsigned)(blocks > MOST_BLOCKS ? MOST_BLOCKS
                                             : blocks             ? blocks
                                                                  : 1),
                                  1, 1, THREADS, 1, 1, 0, stream, arguments, NULL);
}

gv_status gv_hashed_mark(gv_hashed *h, CUstream stream, uint64_t address, uint64_t count, unsigned index_bytes,
                         uint64_t slots_per_page, gv_error *error)
{
    uint32_t epoch = (uint32_t)h->sequence + 1;
    void *arguments[] = {&h->memory, &epoch, &address, &count, &index_bytes, &slots_per_page};
    CUresult result = count ? launch(h->hasher->mark, count, stream, arguments) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? GV_OK : gv_driver_failed(error, "an index tensor could not be read", result);
}

gv_status gv_hashed_anew(gv_hashed *h, const uint32_t *pages, uint32_t count, double seconds, gv_error *error)
{
    uint32_t epoch = (uint32_t)h->sequence + 1;
    void *arguments[] = {&h->memory, &epoch, &count};
    CUresult result = CUDA_SUCCESS;
    if (!h->side) {
        result = gv_cuda.cuStreamCreate(&h->side, CU_STREAM_NON_BLOCKING);
        // A transfer may end while the stream of the first hash has not come to the set-up, whose memory is no job yet.
        if (result == CUDA_SUCCESS)
            result = gv_cuda.cuStreamWaitEvent(h->side, h->ready, 0);
    }
    if (result == CUDA_SUCCESS && !h->anew)
        result = gv_cuda.cuEventCreate(&h->anew, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuMemcpyHtoDAsync(h->list, pages, count * sizeof *pages, h->side);
    if (result == CUDA_SUCCESS)
        result = launch(h->hasher->anew, (uint64_t)count * WARP, h->side, arguments);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuEventRecord(h->anew, h->side);
    if (result != CUDA_SUCCESS)
        return gv_driver_failed(error, "pages could not be hashed anew", result);
    h->has_anew = true;
    uint64_t deadline = gv_monotonic_ns() + (uint64_t)(seconds * 1e9);
    while (gv_cuda.cuEventQuery(h->anew) == CUDA_ERROR_NOT_READY && gv_monotonic_ns() < deadline)
        sched_yield();
    return GV_OK;
}

gv_status gv_hashed_enqueue(gv_hashed *h, CUstream stream, gv_error *error)
{
    uint64_t sequence = h->sequence + 1;
    uint32_t epoch = (uint32_t)sequence, all = h->sequence == 0;
    void *chunks[] = {&h->memory}, *pages[] = {&h->memory, &epoch, &all}, *finish[] = {&h->memory, &sequence};
    CUresult result = h->has_anew ? gv_cuda.cuStreamWaitEvent(stream, h->anew, 0) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = launch(h->hasher->chunks, (uint64_t)h->chunks * WARP, stream, chunks);
    if (result == CUDA_SUCCESS)
        result = launch(h->hasher->pages, h->pages, stream, pages);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuLaunchKernel(h->hasher->finish, 1, 1, 1, 1, 1, 1, 0, stream, finish, NULL);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuEventRecord(h->done, stream);
    if (result != CUDA_SUCCESS)
        return gv_driver_failed(error, "it could not be hashed", result);
    h->sequence = sequence;
    h->has_anew = false;
    return GV_OK;
}

CUresult gv_hashed_poll(gv_hashed *h)
{
    return gv_cuda.cuEventQuery(h->done);
}

const gv_hash_head *gv_hashed_take(gv_hashed *h, const gv_hash_entry **entries)
{
    *entries = (const gv_hash_entry *)((const char *)h->host + HEAD_BYTES);
    return h->host;
}

// ---- Self-test ---------------------------------------------------------------------------------------------------

enum { TEST_PAGES = 5, TEST_PAGE = 2 * GV_HASH_CHUNK + 136, CHANGED_PAGE = 3 };

// One hash of the scratch region, waited for. Answers how many pages changed, and the last of them.
static gv_status test_hash(gv_hashed *h, CUstream stream, uint32_t *changed, uint32_t *page, gv_error *error)
{
    const gv_hash_entry *entries;
    gv_status status = gv_hashed_enqueue(h, stream, error);
    if (status != GV_OK)
        return status;
    CUresult result = gv_cuda.cuStreamSynchronize(stream);
    if (result != CUDA_SUCCESS)
        return gv_driver_failed(error, "it could not be hashed", result);
    const gv_hash_head *head = gv_hashed_take(h, &entries);
    if (head->sequence != h->sequence)
        return gv_fail(error, GV_ERR_IO, "what the hash found did not arrive on the host");
    *changed = head->listed;
    *page = head->listed ? entries[head->listed - 1].page : 0;
    return GV_OK;
}

static gv_status run_test(gv_hasher *hasher, CUstream stream, bool change_nothing, gv_error *error)
{
    const uint8_t byte = 0x5b;
    uint32_t first = 0, still = 0, changed = 0, page = 0;
    CUresult result = hasher->scratch ? CUDA_SUCCESS : gv_cuda.cuMemAlloc(&hasher->scratch, TEST_PAGES * TEST_PAGE);
    if (result == CUDA_SUCCESS)
        result = gv_cuda.cuMemsetD8Async(hasher->scratch, 0xa7, TEST_PAGES * TEST_PAGE, stream);
    if (result != CUDA_SUCCESS)
        return gv_driver_failed(error, "no memory for its self-test", result);
    gv_hashed_close(hasher->tested);
    gv_status status =
        gv_hashed_open(hasher, hasher->scratch, TEST_PAGES * TEST_PAGE, TEST_PAGE, stream, &hasher->tested, error);
    if (status == GV_OK)
        status = test_hash(hasher->tested, stream, &first, &page, error);
    if (status == GV_OK)
        status = test_hash(hasher->tested, stream, &still, &page, error);
    if (status == GV_OK && !change_nothing) {
        CUdeviceptr at = hasher->scratch + CHANGED_PAGE * TEST_PAGE + TEST_PAGE - 1;
        result = gv_cuda.cuMemcpyHtoDAsync(at, &byte, 1, stream);
        if (result != CUDA_SUCCESS)
            status = gv_driver_failed(error, "its scratch memory could not be written", result);
    }
    if (status == GV_OK)
        status = test_hash(hasher->tested, stream, &changed, &page, error);
    if (status == GV_OK && (first != TEST_PAGES || still != 0 || changed != 1 || page != CHANGED_PAGE))
        status = gv_fail(error, GV_ERR_IO,
                         "of %d pages of scratch memory it saw %u change where none did, and %u where one did",
                         TEST_PAGES, still, changed);
    return status;
}

gv_status gv_hasher_self_test(gv_hasher *hasher, bool change_nothing, gv_error *error)
{
    CUstream stream = NULL;
    CUresult result = gv_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS)
        return gv_driver_failed(error, "no stream for its self-test", result);
    gv_status status = run_test(hasher, stream, change_nothing, error);
    gv_cuda.cuStreamDestroy(stream);
    return status;
}
