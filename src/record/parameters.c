#include "record/parameters.h"

#include "base/memory.h"
#include "record/driver.h"
#include "record/tensor_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Addresses below are null pointers with an offset, counts and sizes; those above no GPU has.
enum { LOWEST_ADDRESS = 0x10000, ADDRESS_BITS = 57 };

// A map stands at a multiple of 64 bytes. But offsets are from where the parameters begin in their bank of constants,
// which is no such multiple on every architecture: 0x210 on 9.0. It is one of 16 on all.
enum { MAP_ALIGNMENT = 16 };

// A tensor is followed over this many adjoining allocations. A mapped chunk is 2 MiB or more: this is 8 GiB and more.
enum { MOST_ADJOINING = 4096 };

// ---- Live memory ---------------------------------------------------------------------------------------------

static bool allocation_of(uint64_t address, uint64_t *start, uint64_t *end)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    if (address < LOWEST_ADDRESS || address >> ADDRESS_BITS ||
        gv_cuda.cuMemGetAddressRange(&base, &size, address) != CUDA_SUCCESS || address - base >= size)
        return false;
    *start = base;
    *end = base + size;
    return true;
}

// The live memory around `address`: the allocation it is in, and those that adjoin it up to `end` or until there is a
// gap (a large tensor may lie in several that were mapped side by side). False when `address` is in none.
static bool live_memory(uint64_t address, uint64_t end, uint64_t *start, uint64_t *stop)
{
    if (!allocation_of(address, start, stop))
        return false;
    for (int i = 0; i < MOST_ADJOINING && *stop < end; i++) {
        uint64_t next, next_end;
        if (!allocation_of(*stop, &next, &next_end) || next != *stop)
            break;
        *stop = next_end;
    }
    return true;
}

// ---- Words and maps ------------------------------------------------------------------------------------------

// Where a scan writes what it finds. Without a list it only answers whether there is anything.
typedef struct scan {
    FILE *dump; // NULL: none is wanted
    gv_parameters *all;
    bool found, memory_ran_out;
    uint64_t start, end; // the allocation found last: most words of a kernel lead to few
} scan;

static void keep(scan *into, gv_parameter item)
{
    into->found = true;
    gv_parameters *all = into->all;
    if (!all)
        return;
    if (GV_GROW(all->items, all->capacity, all->count + 1))
        all->items[all->count++] = item;
    else
        into->memory_ran_out = true;
}

static void take_word(scan *into, uint64_t word, uint64_t where)
{
    if (word < LOWEST_ADDRESS || word >> ADDRESS_BITS)
        return;
    if (word - into->start >= into->end - into->start && !allocation_of(word, &into->start, &into->end)) {
        into->start = into->end = 0;
        return;
    }
    keep(into,
         (gv_parameter){
             .kind = GV_PARAMETER_POINTER, .where = where, .address = word, .start = into->start, .end = into->end});
}

static bool take_map(scan *into, const unsigned char *bytes, uint64_t where)
{
    uint64_t words[GV_TENSOR_MAP_WORDS];
    gv_parameter item = {.kind = GV_PARAMETER_TENSOR_MAP, .where = where};
    memcpy(words, bytes, sizeof words);
    if (!gv_tensor_map_decode(words, &item.map))
        return false;
    gv_range whole;
    gv_tensor_map_ranges(&item.map, &whole, 1);
    item.address = item.map.address;
    if (!live_memory(item.address, whole.end, &item.start, &item.end))
        return false;
    item.beyond = whole.end > item.end;
    keep(into, item);
    return !item.beyond;
}

// A parameter as text: tests are made of blocks that libraries handed over on a GPU.
static void dump_bytes(FILE *file, const unsigned char *bytes, size_t size, uint64_t where)
{
    fprintf(file, "parameter %llu ", (unsigned long long)where);
    for (size_t i = 0; i < size; i++)
        fprintf(file, "%02x", bytes[i]);
    fputc('\n', file);
    for (size_t at = -where % 8; at + 8 <= size; at += 8) {
        uint64_t word, start, end;
        memcpy(&word, bytes + at, sizeof word);
        if (allocation_of(word, &start, &end))
            fprintf(file, "memory %#llx %#llx\n", (unsigned long long)start, (unsigned long long)end);
    }
}

// `where` is the place of the first byte; words are looked for where that makes them aligned.
static void take_bytes(scan *into, const unsigned char *bytes, size_t size, uint64_t where)
{
    if (into->dump)
        dump_bytes(into->dump, bytes, size, where);
    size_t at = -where % 8;
    while (at + 8 <= size && !(into->found && !into->all)) {
        bool map = (where + at) % MAP_ALIGNMENT == 0 && at + GV_TENSOR_MAP_BYTES <= size &&
                   take_map(into, bytes + at, where + at);
        if (!map) {
            uint64_t word;
            memcpy(&word, bytes + at, sizeof word);
            take_word(into, word, where + at);
        }
        // What follows in a map is looked at as well: were the map none after all, its words would be missed.
        at += 8;
    }
}

// ---- The parameters ------------------------------------------------------------------------------------------

const unsigned char *gv_packed_parameters(const CUDA_KERNEL_NODE_PARAMS *params, size_t *size)
{
    const unsigned char *block = NULL;
    *size = 0;
    for (size_t i = 0; params->extra && params->extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (params->extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            block = params->extra[i + 1];
        else if (params->extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            *size = *(const size_t *)params->extra[i + 1];
    }
    return block;
}

static void scan_parameters(scan *into, CUfunction function, const CUDA_KERNEL_NODE_PARAMS *params)
{
    size_t block_size;
    const unsigned char *block = gv_packed_parameters(params, &block_size);
    if (!params->kernelParams) {
        if (block)
            take_bytes(into, block, block_size, 0);
        return;
    }
    // The list of parameters ends with an error.
    size_t offset = 0, size = 0;
    for (size_t i = 0; gv_cuda.cuFuncGetParamInfo(function, i, &offset, &size) == CUDA_SUCCESS; i++)
        if (params->kernelParams[i])
            take_bytes(into, params->kernelParams[i], size, offset);
}

// The file that GRAVEL_DUMP_PARAMETERS names, with this kernel's name in it, or NULL.
static FILE *open_dump(CUfunction function)
{
    const char *path = getenv("GRAVEL_DUMP_PARAMETERS"), *name = NULL;
    FILE *file = path && *path ? fopen(path, "ae") : NULL;
    if (file)
        fprintf(file, "kernel %s\n", gv_cuda.cuFuncGetName(&name, function) == CUDA_SUCCESS && name ? name : "?");
    return file;
}

gv_status gv_parameters_read(gv_parameters *all, CUfunction function, const CUDA_KERNEL_NODE_PARAMS *params,
                             gv_error *error)
{
    scan into = {.all = all, .dump = open_dump(function)};
    all->count = 0;
    scan_parameters(&into, function, params);
    if (into.dump)
        fclose(into.dump);
    return into.memory_ran_out ? gv_fail(error, GV_ERR_MEMORY, "memory for a list of its parameters ran out") : GV_OK;
}

bool gv_parameters_have_pointer(CUfunction function, const CUDA_KERNEL_NODE_PARAMS *params)
{
    scan into = {0};
    scan_parameters(&into, function, params);
    return into.found;
}

void gv_parameters_free(gv_parameters *all)
{
    gv_free(all->items);
    *all = (gv_parameters){0};
}
