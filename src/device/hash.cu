// Hashes the pages of a region (hash.h). Compiled twice (soft/kernel.h): for the GPU, and for the software driver. On
// the GPU a warp takes a chunk of 4 KiB at a time: eight 16-byte loads are under way in each thread before the first of
// them is used, which is what it takes to keep up with the memory.
#include "device/hash.h"
#include "device/unit.cuh"

// Sum over the lanes of a warp, in its first lane.
GRAVEL_DEVICE uint64_t over_lanes(uint64_t sum)
{
#ifdef __CUDACC__
    for (int away = 16; away; away /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, away);
#endif
    return sum;
}

// The last bytes of a page, or words of one that is not aligned: zeros stand in for what is behind the end.
GRAVEL_DEVICE uint64_t load_bytes(uint64_t address, uint32_t count)
{
    uint64_t word = 0;
    for (uint32_t i = 0; i < count; i++)
        word |= (uint64_t)((const uint8_t *)address)[i] << (8 * i);
    return word;
}

// Sum over this lane's words of `bytes` bytes at `address`, the first of which is word `place` of its page.
GRAVEL_DEVICE uint64_t hash_chunk(uint64_t address, uint32_t bytes, uint64_t place, uint32_t lane)
{
    uint64_t sum = 0;
    if (address % 16) {
        for (uint32_t word = lane; word * 8 < bytes; word += LANES) {
            uint32_t count = bytes - word * 8 < 8 ? bytes - word * 8 : 8;
            sum += gv_hash_word(load_bytes(address + word * 8, count), place + word);
        }
        return sum;
    }
#ifdef __CUDACC__
    if (bytes == GV_HASH_CHUNK) {
        unit words[GV_HASH_CHUNK / 16 / LANES];
#pragma unroll
        for (uint32_t i = 0; i < GV_HASH_CHUNK / 16 / LANES; i++)
            words[i] = load_whole(address + (i * LANES + lane) * 16);
#pragma unroll
        for (uint32_t i = 0; i < GV_HASH_CHUNK / 16 / LANES; i++) {
            uint64_t at = place + (i * LANES + lane) * 2;
            sum += gv_hash_word(words[i].low, at) + gv_hash_word(words[i].high, at + 1);
        }
        return sum;
    }
#endif
    uint32_t pairs = bytes / 16;
    for (uint32_t i = lane; i < pairs; i += LANES) {
        unit words = load_whole(address + i * 16);
        sum += gv_hash_word(words.low, place + i * 2) + gv_hash_word(words.high, place + i * 2 + 1);
    }
    uint32_t done = pairs * 16;
    if (lane == 0)
        for (uint32_t at = done; at < bytes; at += 8)
            sum += gv_hash_word(load_bytes(address + at, bytes - at < 8 ? bytes - at : 8), place + at / 8);
    return sum;
}

// Every chunk of every page.
GRAVEL_KERNEL(gravel_hash_chunks, (const gv_hash_job *, job))
{
    uint32_t lane = gravel_thread_index() % LANES;
    for (uint32_t chunk = gravel_thread_index() / LANES; chunk < job->chunks; chunk += gravel_thread_count() / LANES) {
        uint64_t page = chunk / job->chunks_per_page;
        uint64_t within = (uint64_t)(chunk % job->chunks_per_page) * GV_HASH_CHUNK;
        uint64_t offset = page * job->page_bytes + within, end = (page + 1) * job->page_bytes;
        end = end < job->bytes ? end : job->bytes;
        uint64_t sum = 0;
        if (offset < end) {
            uint64_t bytes = end - offset < GV_HASH_CHUNK ? end - offset : GV_HASH_CHUNK;
            sum = hash_chunk(job->base + offset, (uint32_t)bytes, within / 8, lane);
        }
        sum = over_lanes(sum);
        if (lane == 0)
            job->sums[chunk] = sum;
    }
}

// Marks the pages that an index tensor names, for the hash number `epoch`. Negative numbers name nothing.
GRAVEL_KERNEL(gravel_hash_mark, (const gv_hash_job *, job), (uint32_t, epoch), (const void *, indices),
              (uint64_t, count), (uint32_t, index_bytes), (uint64_t, slots_per_page))
{
    for (uint64_t i = gravel_thread_index(); i < count; i += gravel_thread_count()) {
        long long slot = index_bytes == 4 ? ((const int *)indices)[i] : ((const long long *)indices)[i];
        if (slot < 0)
            continue;
        uint64_t page = (uint64_t)slot / slots_per_page;
        // Several threads may write the same number to the same place, which an atomic makes known to be meant.
        if (page < job->pages)
            atomicExch(&job->marks[page], epoch);
        else
            atomicAdd(&job->counters->nonsense, 1u);
    }
}

// Hashes the pages of the list anew, a warp each: the next hash, number `epoch`, compares them with what they are now.
// Touches nothing that a hash under way in another stream uses.
GRAVEL_KERNEL(gravel_hash_anew, (const gv_hash_job *, job), (uint32_t, epoch), (uint32_t, count))
{
    uint32_t lane = gravel_thread_index() % LANES;
    for (uint32_t i = gravel_thread_index() / LANES; i < count; i += gravel_thread_count() / LANES) {
        uint64_t page = job->list[i], start = page * job->page_bytes, end = start + job->page_bytes, sum = 0;
        end = end < job->bytes ? end : job->bytes;
        for (uint64_t at = start; at < end; at += GV_HASH_CHUNK) {
            uint64_t bytes = end - at < GV_HASH_CHUNK ? end - at : GV_HASH_CHUNK;
            sum += hash_chunk(job->base + at, (uint32_t)bytes, (at - start) / 8, lane);
        }
        sum = over_lanes(sum);
        if (lane == 0) {
            job->fresh_hashes[page] = sum;
            job->fresh[page] = epoch;
        }
    }
}

// Every page: what its chunks sum up to, compared with the hash before. `all`: there is none, every page is listed.
GRAVEL_KERNEL(gravel_hash_pages, (const gv_hash_job *, job), (uint32_t, epoch), (uint32_t, all))
{
    for (uint32_t page = gravel_thread_index(); page < job->pages; page += gravel_thread_count()) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < job->chunks_per_page; i++)
            sum += job->sums[(uint64_t)page * job->chunks_per_page + i];
        atomicAdd((unsigned long long *)&job->counters->total, (unsigned long long)gv_hash_word(sum, page));
        int fresh = job->fresh[page] == epoch;
        uint64_t before = fresh ? job->fresh_hashes[page] : job->hashes[page];
        uint32_t flags = all || sum != before ? GV_HASH_CHANGED : 0;
        if (fresh)
            flags |= GV_HASH_FRESH;
        if (job->marks[page] == epoch)
            flags |= GV_HASH_MARKED;
        job->hashes[page] = sum;
        if (flags) {
            gv_hash_entry entry;
            entry.hash = sum;
            entry.page = page;
            entry.flags = flags;
            job->entries[atomicAdd(&job->counters->listed, 1u)] = entry;
        }
    }
}

// One thread, behind all others: hands over the counts and resets them.
GRAVEL_KERNEL(gravel_hash_finish, (const gv_hash_job *, job), (uint64_t, sequence))
{
    gv_hash_head *counters = job->counters;
    job->head->total = counters->total;
    job->head->listed = counters->listed;
    job->head->nonsense = counters->nonsense;
    counters->total = 0;
    counters->listed = counters->nonsense = 0;
#ifdef __CUDACC__
    __threadfence_system();
#else
    __threadfence();
#endif
    job->head->sequence = sequence;
}
