// Layout and arithmetic shared by hash.cu and the host: pages of regions, hashed where they lie.
//
// A page is hashed as the sum, over its 64-bit words, of a permutation of (word + a key of the word's place in the
// page). The permutation is the finaliser of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", 2014, figure 17, with the constants of the reference code). A change of one word always changes the
// hash; of changes of several words one in 2^64 does not. Sums can be taken in any order, and so in parallel.
#ifndef GV_DEVICE_HASH_H
#define GV_DEVICE_HASH_H

#include <stdint.h>

enum {
    GV_HASH_CHUNK = 4096, // bytes that a warp hashes at a time; a page is made of whole chunks and a shorter last one
};

#define GV_HASH_KEY UINT64_C(0x9e3779b97f4a7c15) // odd: keys of different places differ

enum gv_hash_flag {
    GV_HASH_CHANGED = 1u << 0, // the page is not what it was at the last hash
    GV_HASH_MARKED = 1u << 1,  // an index tensor names it
    GV_HASH_FRESH = 1u << 2    // it was hashed anew in between: its change is counted from there
};

// A page that has something to say.
typedef struct gv_hash_entry {
    uint64_t hash; // what it is now
    uint32_t page;
    uint32_t flags;
} gv_hash_entry;

// What one hash of a region found; in memory of the host that the device can write.
typedef struct gv_hash_head {
    uint64_t sequence; // of the hash: written last
    uint64_t total;    // hash of all pages
    uint32_t listed;   // entries
    uint32_t nonsense; // numbers in index tensors beyond the region
} gv_hash_head;

// All that the kernels need to know of a region; in device memory. `all` pages are listed the first time.
typedef struct gv_hash_job {
    uint64_t base, bytes, page_bytes;
    uint32_t pages, chunks; // of all pages together
    uint32_t chunks_per_page;
    uint32_t unused;
    uint64_t *sums;         // one for each chunk
    uint64_t *hashes;       // one for each page, as of the last hash
    uint32_t *marks;        // one for each page: the hash for which an index tensor named it
    uint32_t *fresh;        // and the one before which the page was hashed anew
    uint64_t *fresh_hashes; // to this
    uint32_t *list;         // of pages that are to be hashed anew
    gv_hash_head *counters; // in device memory: counted here, handed over at the end
    gv_hash_head *head;
    gv_hash_entry *entries; // room for one for each page
} gv_hash_job;

#ifdef __CUDACC__
#define GV_HASH_FUNCTION static __device__ __forceinline__
#else
#define GV_HASH_FUNCTION static inline __attribute__((unused))
#endif

// The permutation.
GV_HASH_FUNCTION uint64_t gv_hash_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

// Of the word at index `place` of its page.
GV_HASH_FUNCTION uint64_t gv_hash_word(uint64_t word, uint64_t place)
{
    return gv_hash_mix(word + (place + 1) * GV_HASH_KEY);
}

#endif
