// Tensor maps against the driver that encodes them and the hardware that reads them:
//   1. maps of random shapes, types and modes are encoded by cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col, and
//      decoded by src/device/tensor_map.h: every field must come back;
//   2. boxes at random coordinates are loaded by TMA from a tensor in which every value names its place, and what
//   arrives
//      must be what gv_tensor_map_rows says.
// Prints "tensor maps: N encoded, N wrong; N loaded, N wrong". With the argument `dump` it prints the encoded maps as
// well, in the form of tests/data/tensor-maps. With `graphs` it instead captures loads in a graph each, launches each
// once and prints, in the form of access_truth.py, what each must read and write.
#include "common.cuh"
#include "device/tensor_map.h"

#include <cuda.h>

#include <map>
#include <random>
#include <set>
#include <vector>

static std::mt19937 generator(1);

// A number in [low, high].
static int64_t pick(int64_t low, int64_t high)
{
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
}

template <typename Function> static Function entry_point(const char *name)
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    CHECK(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
    if (!found) {
        fprintf(stderr, "the driver has no %s\n", name);
        exit(2);
    }
    return (Function)found;
}

// What a map is made from.
struct Recipe {
    bool im2col;
    CUtensorMapDataType type;
    uint32_t bits, rank;
    uint64_t address, dims[5], strides[4]; // strides from dimension 1 on
    uint32_t box[5], steps[5];
    int lower[3], upper[3];
    uint32_t channels, pixels;
    CUtensorMapSwizzle swizzle;
    CUtensorMapL2promotion promotion;
    CUtensorMapFloatOOBfill fill;
};

static bool encode(const Recipe &recipe, CUtensorMap *map)
{
    static auto tiled = entry_point<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
    static auto im2col = entry_point<decltype(&cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
    memset(map, 0xa5, sizeof *map);
    void *address = (void *)recipe.address;
    return (recipe.im2col
                ? im2col(map, recipe.type, recipe.rank, address, recipe.dims, recipe.strides, recipe.lower,
                         recipe.upper, recipe.channels, recipe.pixels, recipe.steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                         recipe.swizzle, recipe.promotion, recipe.fill)
                : tiled(map, recipe.type, recipe.rank, address, recipe.dims, recipe.strides, recipe.box, recipe.steps,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, recipe.swizzle, recipe.promotion, recipe.fill)) == CUDA_SUCCESS;
}

static void print(const Recipe &recipe, const CUtensorMap &map)
{
    printf("%s bits=%u interleave=0 swizzle=%d address=%#llx dims=", recipe.im2col ? "im2col" : "tiled", recipe.bits,
           (int)recipe.swizzle, (unsigned long long)recipe.address);
    for (uint32_t i = 0; i < recipe.rank; i++)
        printf("%s%llu", i ? "," : "", (unsigned long long)recipe.dims[i]);
    printf(" strides=");
    for (uint32_t i = 0; i + 1 < recipe.rank; i++)
        printf("%s%llu", i ? "," : "", (unsigned long long)recipe.strides[i]);
    printf(" box=");
    for (uint32_t i = 0; i < (recipe.im2col ? 1 : recipe.rank); i++)
        printf("%s%u", i ? "," : "", recipe.im2col ? recipe.channels : recipe.box[i]);
    printf(" steps=");
    for (uint32_t i = 0; i < recipe.rank; i++)
        printf("%s%u", i ? "," : "", recipe.steps[i]);
    printf(" :");
    for (int i = 0; i < CU_TENSOR_MAP_NUM_QWORDS; i++)
        printf(" %016llx", (unsigned long long)map.opaque[i]);
    printf("\n");
}

static Recipe random_recipe(bool im2col)
{
    static const struct {
        CUtensorMapDataType type;
        uint32_t bits;
        bool is_float;
    } types[] = {
        {CU_TENSOR_MAP_DATA_TYPE_UINT8, 8, false},        {CU_TENSOR_MAP_DATA_TYPE_UINT16, 16, false},
        {CU_TENSOR_MAP_DATA_TYPE_UINT32, 32, false},      {CU_TENSOR_MAP_DATA_TYPE_INT32, 32, false},
        {CU_TENSOR_MAP_DATA_TYPE_UINT64, 64, false},      {CU_TENSOR_MAP_DATA_TYPE_INT64, 64, false},
        {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 16, true},      {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 32, true},
        {CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 64, true},      {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 16, true},
        {CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ, 32, true},  {CU_TENSOR_MAP_DATA_TYPE_TFLOAT32, 32, true},
        {CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ, 32, true},
    };
    const auto &type = types[pick(0, sizeof types / sizeof *types - 1)];
    Recipe recipe = {};
    recipe.im2col = im2col;
    recipe.type = type.type;
    recipe.bits = type.bits;
    recipe.rank = (uint32_t)pick(im2col ? 3 : 1, 5);
    recipe.address = (uint64_t)pick(1 << 16, (int64_t)1 << 42) * 16;
    recipe.swizzle = (CUtensorMapSwizzle)pick(0, 3);
    recipe.promotion = (CUtensorMapL2promotion)pick(0, 3);
    recipe.fill = (CUtensorMapFloatOOBfill)(type.is_float ? pick(0, 1) : 0);
    // A swizzle needs an inner box of at most its span, and every box whole blocks of 16 bytes.
    int span = recipe.swizzle ? 16 << recipe.swizzle : 256;
    int inner = (int)pick(1, span / 16) * 16 * 8 / (int)type.bits;
    recipe.box[0] = recipe.channels = (uint32_t)(inner < 256 ? inner : 256);
    recipe.pixels = (uint32_t)pick(1, 256);
    uint64_t reach = 0;
    for (uint32_t i = 0; i < recipe.rank; i++) {
        recipe.dims[i] = (uint64_t)pick(1, pick(0, 1) ? 100 : 5000);
        recipe.steps[i] = i && pick(0, 3) == 0 ? (uint32_t)pick(1, 8) : 1;
        if (i) {
            recipe.box[i] = (uint32_t)pick(1, 256);
            recipe.strides[i - 1] = (reach + 15) / 16 * 16 + (uint64_t)pick(0, 4) * 16;
        }
        reach = (i ? recipe.strides[i - 1] : type.bits / 8) * recipe.dims[i];
    }
    int limit = recipe.rank == 3 ? 30000 : recipe.rank == 4 ? 120 : 15;
    for (int i = 0; i < 3; i++) {
        recipe.lower[i] = (int)pick(-limit, limit);
        recipe.upper[i] = (int)pick(-limit, limit);
    }
    return recipe;
}

static bool comes_back(const Recipe &recipe, const CUtensorMap &encoded)
{
    gv_tensor_map map;
    if (!gv_tensor_map_decode((const uint64_t *)encoded.opaque, &map))
        return false;
    bool same = map.address == recipe.address && map.rank == recipe.rank && map.element_bits == recipe.bits &&
                map.mode == (recipe.im2col ? GV_TENSOR_MAP_IM2COL : GV_TENSOR_MAP_TILED) &&
                map.swizzle == (uint32_t)recipe.swizzle;
    for (uint32_t i = 0; i < recipe.rank; i++) {
        same = same && map.dims[i] == recipe.dims[i] && (i == 0 || map.element_strides[i] == recipe.steps[i]);
        same = same && (i == 0 || map.strides[i] == recipe.strides[i - 1]);
        same = same && (recipe.im2col ? i > 0 || map.box[0] == recipe.channels : map.box[i] == recipe.box[i]);
    }
    return same;
}

// ---- Loads ----

enum { ELEMENTS = 1 << 22, MOST_LOADED = 8192 };

struct Coordinates {
    int32_t at[5];
};

__device__ static void copy_box(const CUtensorMap *map, uint32_t to, uint32_t barrier, uint32_t rank, Coordinates c)
{
#define LOAD(dimensions, list)                                                                                 \
    asm volatile("cp.async.bulk.tensor." dimensions                                                            \
                 ".shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, " list "], [%2];" ::"r"(to), \
                 "l"(map), "r"(barrier), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(c.at[4])  \
                 : "memory")
    switch (rank) {
    case 1: LOAD("1d", "{%3}"); break;
    case 2: LOAD("2d", "{%3,%4}"); break;
    case 3: LOAD("3d", "{%3,%4,%5}"); break;
    case 4: LOAD("4d", "{%3,%4,%5,%6}"); break;
    default: LOAD("5d", "{%3,%4,%5,%6,%7}"); break;
    }
}

// One thread loads one box of `count` elements and hands it over.
__global__ void load_box(const __grid_constant__ CUtensorMap map, uint32_t rank, Coordinates coordinates,
                         uint32_t count, uint32_t *out)
{
    extern __shared__ __align__(128) uint32_t box[];
    __shared__ __align__(8) uint64_t barrier;
    uint32_t at = (uint32_t)__cvta_generic_to_shared(&barrier);
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(count * 4) : "memory");
    copy_box(&map, (uint32_t)__cvta_generic_to_shared(box), at, rank, coordinates);
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
                 "@!done bra again;\n"
                 "}" ::"r"(at)
                 : "memory");
    for (uint32_t i = 0; i < count; i++)
        out[i] = box[i];
}

__global__ void number(uint32_t *elements)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < ELEMENTS; i += gridDim.x * blockDim.x)
        elements[i] = i + 1;
}

// A map of 32-bit values inside the numbered tensor, in whatever order and overlap of strides.
static Recipe recipe_in(uint64_t tensor)
{
    Recipe recipe = {};
    recipe.type = CU_TENSOR_MAP_DATA_TYPE_UINT32;
    recipe.bits = 32;
    recipe.rank = (uint32_t)pick(1, 5);
    recipe.address = tensor + (uint64_t)pick(0, 1000) * 16;
    uint64_t room = (uint64_t)ELEMENTS * 4 - 16000, volume = 1;
    for (uint32_t i = 0; i < recipe.rank; i++) {
        recipe.dims[i] = (uint64_t)pick(1, i == 0 ? 300 : 40);
        recipe.steps[i] = i && pick(0, 2) == 0 ? (uint32_t)pick(1, 8) : 1;
        uint32_t most = i == 0 ? 8 : 5;
        recipe.box[i] = i == 0 ? 4 * (uint32_t)pick(1, most) : recipe.steps[i] * (uint32_t)pick(1, most);
        volume *= recipe.box[i];
        if (i)
            recipe.strides[i - 1] = 16 * (uint64_t)pick(recipe.dims[i] / 16 + 1, room / 5 / recipe.dims[i] / 16);
    }
    return recipe;
}

// A load of one box, ready to be launched.
struct Load {
    Recipe recipe;
    CUtensorMap map;
    Coordinates coordinates;
    uint32_t count; // elements of the box, inside the tensor or not
    gv_tensor_rows rows;
};

// False when gravel refuses the map. What the driver refuses is not tried.
static bool random_load(uint64_t tensor, Load *load)
{
    gv_tensor_map map;
    int tries = 0;
    do {
        if (tries++ == 1000) {
            fprintf(stderr, "the driver refuses every map\n");
            exit(2);
        }
        load->recipe = recipe_in(tensor);
        load->count = 1;
        load->coordinates = {};
        for (uint32_t i = 0; i < load->recipe.rank; i++) {
            const Recipe &recipe = load->recipe;
            load->coordinates.at[i] = (int32_t)pick(-12, (int64_t)recipe.dims[i] + 6);
            load->count *= i == 0 ? recipe.box[0] : (recipe.box[i] + recipe.steps[i] - 1) / recipe.steps[i];
        }
        load->coordinates.at[0] = load->coordinates.at[0] / 4 * 4; // where a box begins is a multiple of 16 bytes
    } while (load->count > MOST_LOADED || !encode(load->recipe, &load->map));
    return gv_tensor_map_decode((const uint64_t *)load->map.opaque, &map) &&
           gv_tensor_map_rows(&map, load->coordinates.at, &load->rows);
}

static bool loads_what_is_predicted(uint64_t tensor, uint32_t *out)
{
    Load load;
    if (!random_load(tensor, &load))
        return false;
    load_box<<<1, 1, load.count * 4>>>(load.map, load.recipe.rank, load.coordinates, load.count, out);
    std::vector<uint32_t> values(load.count);
    CHECK(cudaMemcpy(values.data(), out, load.count * 4, cudaMemcpyDeviceToHost));
    std::set<uint32_t> loaded(values.begin(), values.end()), predicted;
    loaded.erase(0); // what lies outside the tensor
    const gv_tensor_rows &rows = load.rows;
    for (uint32_t outer = 0; outer < rows.outer; outer++)
        for (uint32_t row = 0; row < rows.count; row++)
            for (uint32_t byte = 0; byte < rows.row_bytes; byte += 4)
                predicted.insert(
                    (uint32_t)((gv_tensor_outer(&rows, outer) + row * rows.stride + byte - tensor) / 4 + 1));
    if (loaded != predicted)
        print(load.recipe, load.map);
    return loaded == predicted;
}

// ---- The same under gravel ----

static void print_ranges(const std::map<uint64_t, uint64_t> &ranges)
{
    const char *comma = "";
    printf("[");
    for (auto range = ranges.begin(); range != ranges.end();) {
        uint64_t start = range->first, end = range->second;
        while (++range != ranges.end() && range->first <= end)
            end = range->second > end ? range->second : end;
        printf("%s[%llu, %llu]", comma, (unsigned long long)start, (unsigned long long)end);
        comma = ", ";
    }
    printf("]");
}

static int launch_graphs(uint64_t tensor, uint32_t *out)
{
    cudaStream_t stream = make_stream();
    for (int i = 0; i < 40; i++) {
        Load load;
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        if (!random_load(tensor, &load)) {
            printf("refused load %d\n", i);
            continue;
        }
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        load_box<<<1, 1, load.count * 4, stream>>>(load.map, load.recipe.rank, load.coordinates, load.count, out);
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaGraphExecDestroy(exec));
        CHECK(cudaGraphDestroy(graph));
        std::map<uint64_t, uint64_t> reads;
        const gv_tensor_rows &rows = load.rows;
        for (uint32_t outer = 0; outer < rows.outer; outer++)
            for (uint32_t row = 0; row < rows.count; row++) {
                uint64_t start = gv_tensor_outer(&rows, outer) + row * rows.stride;
                if (reads[start] < start + rows.row_bytes)
                    reads[start] = start + rows.row_bytes;
            }
        printf("case {\"name\": \"box %d of rank %u\", \"tensors\": [{\"name\": \"tensor\", \"storage\": [%llu, %llu], "
               "\"writes\": [], \"reads\": ",
               i, load.recipe.rank, (unsigned long long)tensor, (unsigned long long)(tensor + ELEMENTS * 4ull));
        print_ranges(reads);
        uint64_t to = (uint64_t)out;
        printf("}, {\"name\": \"out\", \"storage\": [%llu, %llu], \"reads\": [], \"writes\": [[%llu, %llu]]}]}\n",
               (unsigned long long)to, (unsigned long long)(to + MOST_LOADED * 4), (unsigned long long)to,
               (unsigned long long)(to + load.count * 4));
    }
    return 0;
}

int main(int argc, char **argv)
{
    int encoded = 0, wrong = 0, loaded = 0, other = 0;
    uint32_t *tensor, *out;
    CHECK(cudaMalloc(&tensor, ELEMENTS * sizeof *tensor));
    CHECK(cudaMalloc(&out, MOST_LOADED * sizeof *out));
    CHECK(cudaFuncSetAttribute(load_box, cudaFuncAttributeMaxDynamicSharedMemorySize, MOST_LOADED * 4));
    number<<<256, 256>>>(tensor);
    CHECK(cudaDeviceSynchronize());
    if (argc > 1 && strcmp(argv[1], "graphs") == 0)
        return launch_graphs((uint64_t)tensor, out);
    for (int i = 0; i < 20000 && encoded < 3000; i++) {
        Recipe recipe = random_recipe(i % 4 == 0);
        CUtensorMap map;
        if (!encode(recipe, &map))
            continue; // the driver has rules beyond those that are kept here
        bool right = comes_back(recipe, map);
        encoded++;
        wrong += !right;
        if (argc > 1 || (!right && wrong < 10))
            print(recipe, map);
    }
    for (; loaded < 500; loaded++)
        other += !loads_what_is_predicted((uint64_t)tensor, out);
    printf("tensor maps: %d encoded, %d wrong; %d loaded, %d wrong\n", encoded, wrong, loaded, other);
    return encoded < 1000 || wrong || other;
}
