// Tensor maps: decoding ones that NVIDIA's own tools encoded, refusing what is none, and the bytes a map names, against
// a plain count over all elements.
#include "record/tensor_map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// ---- Maps as they were encoded: by encode.py of tests/data/tensor-maps, and by a driver (tests/gpu/tensor_maps.cu)
// ----

typedef struct sample {
    gv_tensor_map made_from; // what the encoder was given
    size_t boxes;            // how many sizes of the box are known
    uint64_t words[GV_TENSOR_MAP_WORDS];
} sample;

static sample samples[1024];
static size_t sample_count;

static size_t read_list(const char *line, const char *key, unsigned long long *values)
{
    size_t count = 0;
    const char *next = strstr(line, key);
    assert_non_null(next);
    next += strlen(key);
    while (*next >= '0' && *next <= '9' && count < GV_TENSOR_MAP_RANK) {
        char *end;
        values[count++] = strtoull(next, &end, 0);
        next = *end == ',' ? end + 1 : end;
    }
    return count;
}

static void read_samples(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[1024];
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        unsigned long long values[GV_TENSOR_MAP_RANK];
        assert_true(sample_count < sizeof samples / sizeof *samples);
        sample *next = &samples[sample_count++];
        gv_tensor_map *map = &next->made_from;
        map->mode = strncmp(line, "im2col", 6) == 0 ? GV_TENSOR_MAP_IM2COL : GV_TENSOR_MAP_TILED;
        read_list(line, " bits=", values);
        map->element_bits = (uint32_t)values[0];
        read_list(line, " interleave=", values);
        map->interleave = (uint32_t)values[0];
        read_list(line, " swizzle=", values);
        map->swizzle = (uint32_t)values[0];
        read_list(line, " address=", values);
        map->address = values[0];
        map->rank = (uint32_t)read_list(line, " dims=", values);
        for (size_t i = 0; i < map->rank; i++)
            map->dims[i] = values[i];
        assert_int_equal(read_list(line, " strides=", values), map->rank - 1);
        for (size_t i = 1; i < map->rank; i++)
            map->strides[i] = values[i - 1];
        next->boxes = read_list(line, " box=", values);
        for (size_t i = 0; i < next->boxes; i++)
            map->box[i] = (uint32_t)values[i];
        assert_int_equal(read_list(line, " steps=", values), map->rank);
        for (size_t i = 0; i < map->rank; i++)
            map->element_strides[i] = (uint32_t)values[i];
        const char *words = strstr(line, " : ");
        assert_non_null(words);
        words += 3;
        for (size_t i = 0; i < GV_TENSOR_MAP_WORDS; i++) {
            char *end;
            next->words[i] = strtoull(words, &end, 16);
            words = end;
        }
    }
    fclose(file);
}

static int load(void **state)
{
    read_samples("tests/data/tensor-maps/tiled.txt");
    read_samples("tests/data/tensor-maps/im2col.txt");
    read_samples("tests/data/tensor-maps/driver-580.txt");
    return sample_count > 200 ? 0 : -1;
}

static void maps_decode_to_what_they_were_made_from(void **state)
{
    for (size_t n = 0; n < sample_count; n++) {
        const gv_tensor_map *made = &samples[n].made_from;
        gv_tensor_map map;
        assert_true(gv_tensor_map_decode(samples[n].words, &map));
        assert_int_equal(map.mode, made->mode);
        assert_int_equal(map.address, made->address);
        assert_int_equal(map.rank, made->rank);
        assert_int_equal(map.element_bits, made->element_bits);
        assert_int_equal(map.element_bytes, made->element_bits < 8 ? 1 : made->element_bits / 8);
        assert_int_equal(map.interleave, made->interleave);
        assert_int_equal(map.swizzle, made->swizzle);
        // Types of less than a byte are described by bytes.
        unsigned scale = made->element_bits < 8 ? made->element_bits : 8;
        for (unsigned i = 0; i < GV_TENSOR_MAP_RANK; i++) {
            uint64_t dim = i >= made->rank ? 1 : i == 0 ? made->dims[0] * scale / 8 : made->dims[i];
            assert_int_equal(map.dims[i], dim);
            assert_int_equal(map.strides[i], i == 0 ? map.element_bytes : i < made->rank ? made->strides[i] : 0);
            assert_int_equal(map.element_strides[i], i < made->rank ? made->element_strides[i] : 1);
            uint32_t box = i >= samples[n].boxes ? 1 : i == 0 ? made->box[0] * scale / 8 : made->box[i];
            assert_int_equal(map.box[i], box);
        }
    }
}

// tensormap.replace, the PTX instruction that changes fields of a map, leaves bit 1 of a map made from zeros as it is.
static void a_map_made_of_zeros_on_the_device_decodes(void **state)
{
    for (size_t n = 0; n < sample_count; n++) {
        gv_tensor_map map, zeros;
        uint64_t words[GV_TENSOR_MAP_WORDS];
        memset(&map, 0, sizeof map);
        memset(&zeros, 0, sizeof zeros);
        if (samples[n].made_from.mode != GV_TENSOR_MAP_TILED)
            continue; // the instruction is for tiled maps
        memcpy(words, samples[n].words, sizeof words);
        words[1] &= ~(uint64_t)2;
        assert_true(gv_tensor_map_decode(samples[n].words, &map) && gv_tensor_map_decode(words, &zeros));
        assert_memory_equal(&map, &zeros, sizeof map);
    }
}

// ---- What is no map ----

// Bits that are zero in every map, and those of dimensions that a map does not have.
static void a_bit_that_has_no_meaning_is_refused(void **state)
{
    static const struct {
        unsigned word, bit;
    } never[] = {{0, 0},  {0, 3},  {1, 11}, {1, 12}, {0, 57}, {0, 63}, {1, 2},  {1, 3},  {1, 23},
                 {1, 30}, {1, 31}, {3, 48}, {3, 63}, {6, 47}, {6, 52}, {6, 55}, {7, 42}, {7, 63}};
    for (size_t n = 0; n < sample_count; n++) {
        gv_tensor_map map;
        uint64_t words[GV_TENSOR_MAP_WORDS];
        for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
            memcpy(words, samples[n].words, sizeof words);
            words[never[i].word] ^= 1ull << never[i].bit;
            assert_false(gv_tensor_map_decode(words, &map));
        }
        for (unsigned i = samples[n].made_from.rank; i < GV_TENSOR_MAP_RANK; i++) {
            memcpy(words, samples[n].words, sizeof words);
            words[4 + i / 2] ^= 1ull << i % 2 * 32; // its size
            assert_false(gv_tensor_map_decode(words, &map));
            memcpy(words, samples[n].words, sizeof words);
            words[6] ^= 1ull << (32 + 3 * i); // its traversal stride
            assert_false(gv_tensor_map_decode(words, &map));
            memcpy(words, samples[n].words, sizeof words);
            words[i / 2 + 1] ^= 1ull << (i % 2 ? 32 : 0); // its stride: cuBLAS leaves one there
            assert_true(gv_tensor_map_decode(words, &map));
            assert_int_equal(map.strides[i], 0);
        }
        memcpy(words, samples[n].words, sizeof words);
        words[0] = 0;
        assert_false(gv_tensor_map_decode(words, &map));
    }
}

static uint64_t random64(void)
{
    return (uint64_t)rand() << 62 ^ (uint64_t)rand() << 31 ^ (uint64_t)rand();
}

// What stands in parameter blocks: addresses, counts, strides, floats, zeros.
static uint64_t parameter_word(void)
{
    static const float floats[] = {1.0f, 0.5f, 1e-6f, 0.08838835f, -1.0f};
    float pair[2] = {floats[rand() % 5], floats[rand() % 5]};
    uint64_t word;
    switch (rand() % 7) {
    case 0: return 0x7f0000000000 + (random64() & 0xffffffff) / 256 * 256;
    case 1: return 0x7f0000000000 + (random64() & 0xffffffff) / 16 * 16;
    case 2: return (uint64_t)(rand() % 65536);
    case 3: return (uint64_t)(rand() % 8192) << 32 | (uint64_t)(rand() % 8192);
    case 4: return (uint64_t)rand() << (rand() % 20);
    case 5: memcpy(&word, pair, sizeof word); return word;
    default: return 0;
    }
}

static void random_bytes_are_no_maps(void **state)
{
    srand(1);
    gv_tensor_map map;
    uint64_t words[GV_TENSOR_MAP_WORDS];
    for (int round = 0; round < 300000; round++) {
        for (int i = 0; i < GV_TENSOR_MAP_WORDS; i++)
            words[i] = random64();
        assert_false(gv_tensor_map_decode(words, &map));
    }
}

// Behind a real address, so that the first word is right each time. What passes here still has to begin
// in live memory (parameters.c).
static void parameters_seldom_look_like_a_map(void **state)
{
    srand(1);
    gv_tensor_map map;
    uint64_t words[GV_TENSOR_MAP_WORDS];
    unsigned taken = 0;
    for (int round = 0; round < 300000; round++) {
        words[0] = 0x7f0000000000 + (random64() & 0xffffffff) / 256 * 256;
        for (int i = 1; i < GV_TENSOR_MAP_WORDS; i++)
            words[i] = parameter_word();
        taken += gv_tensor_map_decode(words, &map);
    }
    assert_true(taken < 5);
    // Addresses and counts alone, as in most parameter blocks: never.
    for (int round = 0; round < 300000; round++) {
        for (int i = 0; i < GV_TENSOR_MAP_WORDS; i++)
            words[i] = i == 0 || rand() % 2 ? 0x7f0000000000 + (random64() & 0xffffffff) / 16 * 16
                                            : (uint64_t)(rand() % 8192) << (rand() % 2 ? 32 : 0);
        assert_false(gv_tensor_map_decode(words, &map));
    }
}

// ---- The bytes of a box ----

enum { SPAN = 1 << 16, BASE = 1 << 20 };
static unsigned char expected[SPAN], seen[SPAN];

static void touch(unsigned char *bytes, uint64_t start, uint64_t count)
{
    assert_true(start >= BASE && start - BASE + count <= SPAN);
    for (uint64_t at = start - BASE; at < start - BASE + count; at++)
        bytes[at] = 1;
}

// A small tensor inside the span, its dimensions in any order of strides, with gaps or overlapping.
static gv_tensor_map small_tensor(void)
{
    static const uint32_t sizes[] = {1, 2, 4, 8};
    gv_tensor_map map = {.address = BASE, .rank = 1 + (uint32_t)rand() % 5, .mode = GV_TENSOR_MAP_TILED};
    map.element_bytes = sizes[rand() % 4];
    map.element_bits = 8 * map.element_bytes;
    uint64_t room = SPAN;
    for (unsigned i = 0; i < GV_TENSOR_MAP_RANK; i++) {
        map.dims[i] = map.box[i] = map.element_strides[i] = 1;
        if (i < map.rank) {
            map.dims[i] = 1 + (uint64_t)rand() % (i == 0 ? 64 : 9);
            map.box[i] = 1 + (uint32_t)rand() % 12;
            map.element_strides[i] = i && rand() % 3 == 0 ? 1 + (uint32_t)rand() % 8 : 1;
        }
        map.strides[i] = i == 0 ? map.element_bytes : 0;
        if (i > 0 && i < map.rank) {
            uint64_t most = room / 6 / map.dims[i] / 16 + 1;
            map.strides[i] = 16 * (1 + (uint64_t)rand() % most);
            // Often as a program lays it out: right behind one another.
            if (rand() % 2) {
                uint64_t inner = map.strides[i - 1] * map.dims[i - 1];
                map.strides[i] = inner % 16 || inner * map.dims[i] > room / 6 ? map.strides[i] : inner;
            }
        }
    }
    return map;
}

static void rows_are_the_elements_of_the_box(void **state)
{
    srand(2);
    size_t inside = 0, outside = 0;
    for (int round = 0; round < 5000; round++) {
        gv_tensor_map map = small_tensor();
        int32_t coordinates[GV_TENSOR_MAP_RANK];
        for (unsigned i = 0; i < GV_TENSOR_MAP_RANK; i++)
            coordinates[i] = i < map.rank ? rand() % ((int)map.dims[i] + 20) - 12 : rand();
        if (rand() % 100 == 0)
            coordinates[rand() % (int)map.rank] = rand() % 2 ? INT32_MIN + rand() % 3 : INT32_MAX - rand() % 3;
        memset(expected, 0, sizeof expected);
        memset(seen, 0, sizeof seen);
        uint32_t at[GV_TENSOR_MAP_RANK] = {0};
        for (unsigned i = 0; i < GV_TENSOR_MAP_RANK;) {
            uint64_t address = map.address;
            bool in = true;
            for (unsigned j = 0; j < map.rank; j++) {
                int64_t position = (int64_t)coordinates[j] + (int64_t)at[j] * map.element_strides[j];
                in &= position >= 0 && position < (int64_t)map.dims[j];
                address += (uint64_t)position * map.strides[j];
            }
            if (in)
                touch(expected, address, map.element_bytes);
            for (i = 0; i < GV_TENSOR_MAP_RANK; i++) {
                uint32_t count = (map.box[i] + map.element_strides[i] - 1) / map.element_strides[i];
                if (++at[i] < count)
                    break;
                at[i] = 0;
            }
        }
        gv_tensor_rows rows = {0};
        assert_true(gv_tensor_map_rows(&map, coordinates, &rows));
        for (uint32_t outer = 0; outer < rows.outer; outer++)
            for (uint32_t row = 0; row < rows.count; row++)
                touch(seen, gv_tensor_outer(&rows, outer) + row * rows.stride, rows.row_bytes);
        assert_memory_equal(seen, expected, SPAN);
        if (rows.outer)
            inside++;
        else
            outside++;
    }
    assert_true(inside > 500 && outside > 500);
}

static void a_box_of_a_whole_tensor_is_one_row(void **state)
{
    gv_tensor_map map = {.address = BASE,
                         .rank = 3,
                         .element_bytes = 2,
                         .element_bits = 16,
                         .dims = {64, 8, 4, 1, 1},
                         .strides = {2, 128, 1024},
                         .box = {64, 8, 4, 1, 1},
                         .element_strides = {1, 1, 1, 1, 1}};
    const int32_t start[GV_TENSOR_MAP_RANK] = {0};
    gv_tensor_rows rows = {0};
    assert_true(gv_tensor_map_rows(&map, start, &rows));
    assert_int_equal(rows.outer, 1);
    assert_int_equal(rows.count, 1);
    assert_int_equal(rows.row_bytes, 64 * 8 * 4 * 2);
}

static void packed_types_count_values_and_touch_bytes(void **state)
{
    gv_tensor_map map = {.address = BASE,
                         .rank = 2,
                         .element_bytes = 1,
                         .element_bits = 6,
                         .dims = {512 * 6 / 8, 10, 1, 1, 1},
                         .strides = {1, 512},
                         .box = {128 * 6 / 8, 2, 1, 1, 1},
                         .element_strides = {1, 1, 1, 1, 1}};
    const int32_t at[GV_TENSOR_MAP_RANK] = {256, 3};
    gv_tensor_rows rows = {0};
    assert_true(gv_tensor_map_rows(&map, at, &rows));
    assert_int_equal(rows.row_bytes, 96);
    assert_int_equal(rows.count, 2);
    assert_int_equal(gv_tensor_outer(&rows, 0), BASE + 3 * 512 + 256 * 6 / 8);
}

static void im2col_has_no_exact_rows(void **state)
{
    gv_tensor_map map = small_tensor();
    const int32_t at[GV_TENSOR_MAP_RANK] = {0};
    gv_tensor_rows rows = {0};
    map.mode = GV_TENSOR_MAP_IM2COL;
    assert_false(gv_tensor_map_rows(&map, at, &rows));
}

// ---- The bytes of a tensor ----

static void touch_tensor(const gv_tensor_map *map)
{
    uint64_t at[GV_TENSOR_MAP_RANK] = {0};
    for (unsigned i = 0; i < GV_TENSOR_MAP_RANK;) {
        uint64_t address = map->address;
        for (unsigned j = 0; j < map->rank; j++)
            address += at[j] * map->strides[j];
        touch(expected, address, map->element_bytes);
        for (i = 0; i < GV_TENSOR_MAP_RANK; i++) {
            if (++at[i] < map->dims[i])
                break;
            at[i] = 0;
        }
    }
}

// Nothing of the tensor is ever left out, and for as long as the rows do not cross nothing is added either.
static void ranges_are_the_elements_of_the_tensor(void **state)
{
    srand(3);
    size_t exact = 0, coarse = 0;
    for (int round = 0; round < 5000; round++) {
        gv_tensor_map map = small_tensor();
        gv_range ranges[4096];
        size_t most = rand() % 3 ? 4096 : 1 + (size_t)rand() % 30;
        memset(expected, 0, sizeof expected);
        memset(seen, 0, sizeof seen);
        touch_tensor(&map);
        size_t count = gv_tensor_map_ranges(&map, ranges, most);
        assert_in_range(count, 1, most);
        for (size_t i = 0; i < count; i++) {
            assert_true(ranges[i].start < ranges[i].end);
            assert_true(i == 0 || ranges[i].start > ranges[i - 1].end);
            touch(seen, ranges[i].start, ranges[i].end - ranges[i].start);
        }
        bool same = true, whole = true;
        for (size_t i = 0; i < SPAN; i++) {
            whole &= seen[i] || !expected[i];
            same &= seen[i] == expected[i];
        }
        assert_true(whole);
        // The ends are exact in any case.
        assert_true(expected[ranges[0].start - BASE] && expected[ranges[count - 1].end - 1 - BASE]);
        bool nested = most == 4096;
        for (unsigned i = 1; i < map.rank; i++)
            nested &= map.strides[i] >= map.strides[i - 1] * map.dims[i - 1];
        assert_true(same || !nested);
        exact += same;
        coarse += !same;
    }
    assert_true(exact > 500 && coarse > 500);
}

static void a_padded_matrix_keeps_its_gaps(void **state)
{
    gv_tensor_map map = {
        .address = BASE, .rank = 2, .element_bytes = 2, .dims = {100, 50, 1, 1, 1}, .strides = {2, 256}};
    gv_range ranges[64];
    assert_int_equal(gv_tensor_map_ranges(&map, ranges, 64), 50);
    assert_int_equal(ranges[49].start, BASE + 49 * 256);
    assert_int_equal(ranges[49].end, BASE + 49 * 256 + 200);
    assert_int_equal(gv_tensor_map_ranges(&map, ranges, 49), 1);
    assert_int_equal(ranges[0].start, BASE);
    assert_int_equal(ranges[0].end, BASE + 49 * 256 + 200);
}

static void sizes_past_the_address_space_end_there(void **state)
{
    gv_tensor_map map = {.address = 1ull << 56,
                         .rank = 5,
                         .element_bytes = 8,
                         .dims = {1ull << 32, 1ull << 32, 1ull << 32, 1ull << 32, 1ull << 32},
                         .strides = {8, 1ull << 39, 1ull << 39, 1ull << 39, 1ull << 39}};
    gv_range ranges[16];
    assert_int_equal(gv_tensor_map_ranges(&map, ranges, 16), 1);
    assert_int_equal(ranges[0].start, 1ull << 56);
    assert_true(ranges[0].end == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_decode_to_what_they_were_made_from),
        cmocka_unit_test(a_map_made_of_zeros_on_the_device_decodes),
        cmocka_unit_test(a_bit_that_has_no_meaning_is_refused),
        cmocka_unit_test(random_bytes_are_no_maps),
        cmocka_unit_test(parameters_seldom_look_like_a_map),
        cmocka_unit_test(rows_are_the_elements_of_the_box),
        cmocka_unit_test(a_box_of_a_whole_tensor_is_one_row),
        cmocka_unit_test(packed_types_count_values_and_touch_bytes),
        cmocka_unit_test(im2col_has_no_exact_rows),
        cmocka_unit_test(ranges_are_the_elements_of_the_tensor),
        cmocka_unit_test(a_padded_matrix_keeps_its_gaps),
        cmocka_unit_test(sizes_past_the_address_space_end_there),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
