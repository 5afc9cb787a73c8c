// What the parameters of a launch lead to, on the software driver: real allocations, real functions, both forms of
// handing parameters over.
#include "record/parameters.h"

#include "record/driver.h"
#include "soft/testing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 1 << 16 };
static CUdeviceptr one, other;

static int set_up(void **state)
{
    const char *missing = NULL;
    if (open_device(state) != 0 || !gv_driver_load(&missing))
        return -1;
    one = buffer(SIZE);
    other = buffer(SIZE);
    return 0;
}

// A map of a matrix of 16-bit values, 32 x `rows`, rows of 64 bytes, at `address`: as NVIDIA's encoder makes it.
static void encode(uint64_t *words, CUdeviceptr address, uint64_t rows)
{
    memset(words, 0, GV_TENSOR_MAP_BYTES);
    words[0] = address;
    words[1] = 0x0000000400240312;
    words[4] = (rows - 1) << 32 | 31;
    words[6] = 0x1f00000000000000;
    words[7] = 7;
}

typedef struct launch {
    CUdeviceptr first;
    int count;
    uint64_t map[16] __attribute__((aligned(64)));
    CUdeviceptr last;
} launch;

static const gv_parameter *find(const gv_parameters *all, uint64_t where)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->items[i].where == where)
            return &all->items[i];
    return NULL;
}

static void assert_pointer(const gv_parameters *all, uint64_t where, uint64_t address, CUdeviceptr in)
{
    const gv_parameter *found = find(all, where);
    assert_non_null(found);
    assert_int_equal(found->kind, GV_PARAMETER_POINTER);
    assert_int_equal(found->address, address);
    assert_int_equal(found->start, in);
    assert_int_equal(found->end, in + SIZE);
}

static void assert_launch_is_read(const CUDA_KERNEL_NODE_PARAMS *params)
{
    gv_parameters all = {0};
    gv_error error = {0};
    assert_int_equal(gv_parameters_read(&all, kernel("take_map"), params, &error), GV_OK);
    assert_int_equal(all.count, 3);
    assert_pointer(&all, 0, one, one);
    assert_pointer(&all, 192, other + 100, other);
    const gv_parameter *map = find(&all, 64);
    assert_non_null(map);
    assert_int_equal(map->kind, GV_PARAMETER_TENSOR_MAP);
    assert_int_equal(map->address, other + 1024);
    assert_int_equal(map->map.dims[1], 1000);
    assert_int_equal(map->start, other);
    assert_int_equal(map->end, other + SIZE);
    assert_true(gv_parameters_have_pointer(kernel("take_map"), params));
    gv_parameters_free(&all);
}

static void both_forms_of_parameters(void **state)
{
    launch values = {.first = one, .count = 5, .last = other + 100};
    encode(values.map, other + 1024, 1000);
    void *each[] = {&values.first, &values.count, values.map, &values.last};
    CUDA_KERNEL_NODE_PARAMS params = {.func = kernel("take_map"), .kernelParams = each};
    assert_launch_is_read(&params);

    size_t size = sizeof values;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &values, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    params = (CUDA_KERNEL_NODE_PARAMS){.func = kernel("take_map"), .extra = extra};
    assert_launch_is_read(&params);
}

// The values stand wherever the program keeps them.
static void unaligned_values(void **state)
{
    char bytes[64];
    memcpy(bytes + 3, &one, 8);
    int count = 1;
    uint64_t map[16] = {0};
    void *each[] = {bytes + 3, &count, map, bytes + 3};
    CUDA_KERNEL_NODE_PARAMS params = {.func = kernel("take_map"), .kernelParams = each};
    gv_parameters all = {0};
    assert_int_equal(gv_parameters_read(&all, params.func, &params, NULL), GV_OK);
    assert_int_equal(all.count, 2);
    assert_pointer(&all, 0, one, one);
    assert_pointer(&all, 192, one, one);
    gv_parameters_free(&all);
}

static void no_pointers(void **state)
{
    launch values = {.first = 0x1234, .count = 5, .map = {1, 2, 3, UINT64_MAX}, .last = one + SIZE + (64u << 20)};
    void *each[] = {&values.first, &values.count, values.map, &values.last};
    CUDA_KERNEL_NODE_PARAMS params = {.func = kernel("take_map"), .kernelParams = each};
    gv_parameters all = {0};
    assert_int_equal(gv_parameters_read(&all, params.func, &params, NULL), GV_OK);
    assert_int_equal(all.count, 0);
    assert_false(gv_parameters_have_pointer(params.func, &params));
    params = (CUDA_KERNEL_NODE_PARAMS){.func = params.func};
    assert_int_equal(gv_parameters_read(&all, params.func, &params, NULL), GV_OK);
    assert_int_equal(all.count, 0);
    gv_parameters_free(&all);
}

// A tensor that is larger than what is there is no tensor that could be copied as a whole: its address alone counts.
static void a_map_past_live_memory_is_listed_as_both(void **state)
{
    launch values = {.first = one, .count = 5, .last = one};
    encode(values.map, other, SIZE / 64 + (64u << 20));
    void *each[] = {&values.first, &values.count, values.map, &values.last};
    CUDA_KERNEL_NODE_PARAMS params = {.func = kernel("take_map"), .kernelParams = each};
    gv_parameters all = {0};
    assert_int_equal(gv_parameters_read(&all, params.func, &params, NULL), GV_OK);
    assert_int_equal(all.count, 4);
    assert_int_equal(all.items[1].kind, GV_PARAMETER_TENSOR_MAP);
    assert_true(all.items[1].beyond);
    assert_int_equal(all.items[1].where, 64);
    assert_int_equal(all.items[1].address, other);
    assert_int_equal(all.items[2].kind, GV_PARAMETER_POINTER);
    assert_int_equal(all.items[2].where, 64);
    assert_int_equal(all.items[2].address, other);
    encode(values.map, other, SIZE / 64);
    assert_int_equal(gv_parameters_read(&all, params.func, &params, NULL), GV_OK);
    assert_int_equal(all.count, 3);
    assert_int_equal(find(&all, 64)->kind, GV_PARAMETER_TENSOR_MAP);
    assert_false(find(&all, 64)->beyond);
    gv_parameters_free(&all);
}

// ---- What libraries handed over on a GPU (tests/data/parameters) ----

enum { MOST_PARAMETERS = 64, MOST_RANGES = 256, MOST_BYTES = 4096 };

static struct {
    char name[256];
    struct {
        size_t offset, size;
    } parameters[MOST_PARAMETERS];
    void *values[MOST_PARAMETERS];
    unsigned char bytes[MOST_BYTES];
    size_t count, used;
    struct {
        uint64_t start, end;
    } memory[MOST_RANGES];
    size_t memory_count;
} recorded;

static CUresult recorded_memory(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    for (size_t i = 0; i < recorded.memory_count; i++)
        if (address >= recorded.memory[i].start && address < recorded.memory[i].end) {
            *base = recorded.memory[i].start;
            *size = recorded.memory[i].end - recorded.memory[i].start;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

static CUresult recorded_parameter(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    if (index >= recorded.count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = recorded.parameters[index].offset;
    *size = recorded.parameters[index].size;
    return CUDA_SUCCESS;
}

static void take_parameter(const char *line)
{
    int read = 0;
    assert_true(recorded.count < MOST_PARAMETERS);
    assert_int_equal(sscanf(line, "parameter %zu %n", &recorded.parameters[recorded.count].offset, &read), 1);
    recorded.values[recorded.count] = recorded.bytes + recorded.used;
    unsigned byte;
    for (line += read; sscanf(line, "%2x", &byte) == 1; line += 2) {
        assert_true(recorded.used < MOST_BYTES);
        recorded.bytes[recorded.used++] = (unsigned char)byte;
        recorded.parameters[recorded.count].size++;
    }
    recorded.count++;
}

static size_t list_of(const char *text, uint64_t *values)
{
    size_t count = 0;
    for (char *end = NULL; count < GV_TENSOR_MAP_RANK; text = end + 1) {
        values[count++] = strtoull(text, &end, 0);
        if (*end != ',')
            break;
    }
    return count;
}

static void assert_map_is_found(const gv_parameters *all, const char *line)
{
    uint64_t where, sizes[GV_TENSOR_MAP_RANK], strides[GV_TENSOR_MAP_RANK];
    unsigned bits;
    char first[128], second[128];
    assert_int_equal(sscanf(line, "map %" SCNu64 " %u %127s %127s", &where, &bits, first, second), 4);
    const gv_parameter *found = find(all, where);
    if (!found || found->kind != GV_PARAMETER_TENSOR_MAP)
        fail_msg("%s: no map at offset %" PRIu64, recorded.name, where);
    size_t rank = list_of(first, sizes);
    assert_int_equal(list_of(second, strides), rank - 1);
    assert_int_equal(found->map.rank, rank);
    assert_int_equal(found->map.element_bits, bits);
    assert_false(found->beyond);
    for (size_t i = 0; i < rank; i++) {
        assert_int_equal(found->map.dims[i], sizes[i]);
        if (i)
            assert_int_equal(found->map.strides[i], strides[i - 1]);
    }
}

static void maps_in_parameters_of_libraries(void **state)
{
    static char line[2 * MOST_BYTES + 64];
    gv_driver kept = gv_cuda;
    gv_parameters all = {0};
    gv_error error = {0};
    size_t kernels = 0, maps = 0;
    bool read = false;
    FILE *file = fopen("tests/data/parameters/h200.txt", "r");
    assert_non_null(file);
    gv_cuda.cuMemGetAddressRange = recorded_memory;
    gv_cuda.cuFuncGetParamInfo = recorded_parameter;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "kernel ", 7) == 0) {
            memset(&recorded, 0, sizeof recorded);
            snprintf(recorded.name, sizeof recorded.name, "%.200s", line + 7);
            read = false;
            kernels++;
        } else if (strncmp(line, "parameter ", 10) == 0) {
            take_parameter(line);
        } else if (strncmp(line, "memory ", 7) == 0) {
            assert_true(recorded.memory_count < MOST_RANGES);
            assert_int_equal(sscanf(line, "memory %" SCNx64 " %" SCNx64, &recorded.memory[recorded.memory_count].start,
                                    &recorded.memory[recorded.memory_count].end),
                             2);
            recorded.memory_count++;
        } else if (strncmp(line, "map ", 4) == 0) {
            CUDA_KERNEL_NODE_PARAMS params = {.kernelParams = recorded.values};
            if (!read)
                assert_int_equal(gv_parameters_read(&all, NULL, &params, &error), GV_OK);
            read = true;
            assert_map_is_found(&all, line);
            maps++;
        }
    }
    gv_cuda = kept;
    fclose(file);
    gv_parameters_free(&all);
    assert_int_equal(kernels, 10);
    assert_int_equal(maps, 28);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_forms_of_parameters),
        cmocka_unit_test(unaligned_values),
        cmocka_unit_test(no_pointers),
        cmocka_unit_test(a_map_past_live_memory_is_listed_as_both),
        cmocka_unit_test(maps_in_parameters_of_libraries),
    };
    return cmocka_run_group_tests(tests, set_up, close_device);
}
