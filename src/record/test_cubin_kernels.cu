// Kernels whose machine code test_cubin.c looks through: each has one kind of instruction the Sanitizer is blind to, or
// none. The operands make no sense; nothing here is run.
#include <cuda.h>

#define SHARED extern __shared__ __align__(128) char shared[];                                                         \
    unsigned at = (unsigned)__cvta_generic_to_shared(shared)

extern "C" __global__ void plain(float *data)
{
    __shared__ int counter;
    atomicAdd(&counter, 1);
    data[1] = data[2];
}

extern "C" __global__ void atomic(int *data)
{
    atomicAdd(data, 1);
}

extern "C" __global__ void atomic_result(int *data)
{
    data[1] = atomicAdd(data, 1);
}

extern "C" __global__ void atomic_compare(int *data)
{
    data[1] = atomicCAS(data, 1, 2);
}

extern "C" __global__ void atomic_generic(int **data, int *out)
{
    __shared__ int counter;
    int *which = data[0] ? data[0] : &counter;
    out[0] = atomicExch(which, 3);
}

extern "C" __global__ void atomic_float(float *data)
{
    data[1] = atomicAdd(data, 2.0f);
}

extern "C" __global__ void bulk_reduce(char *data)
{
    SHARED;
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 1024;" ::"l"(data), "r"(at)
                 : "memory");
}

extern "C" __global__ void bulk_copy(char *data)
{
    SHARED;
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024;" ::"l"(data), "r"(at) : "memory");
}

extern "C" __global__ void tensor_load(const __grid_constant__ CUtensorMap map, float *out)
{
    SHARED;
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2}], [%3];" ::"r"(at),
                 "l"(&map), "r"(0), "r"(at + 4096)
                 : "memory");
    out[0] = shared[0];
}

extern "C" __global__ void tensor_store(const __grid_constant__ CUtensorMap map)
{
    SHARED;
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %1}], [%2];" ::"l"(&map), "r"(0), "r"(at)
                 : "memory");
}

extern "C" __global__ void tensor_reduce(const __grid_constant__ CUtensorMap map)
{
    SHARED;
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %1}], [%2];" ::"l"(&map), "r"(0),
                 "r"(at)
                 : "memory");
}

extern "C" __global__ void tensor_prefetch(const __grid_constant__ CUtensorMap map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

extern "C" __global__ void tensor_replace(void *map)
{
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

extern "C" __global__ void texture(cudaTextureObject_t object, float *out)
{
    out[0] = tex2D<float>(object, 0.5f, 0.5f);
    out[1] = tex1Dfetch<float>(object, 3);
}

extern "C" __global__ void surface(cudaSurfaceObject_t object)
{
    surf2Dwrite<float>(surf2Dread<float>(object, 4, 4), object, 8, 8);
}

extern "C" __global__ void multimem(float *data)
{
    float sum;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];" : "=f"(sum) : "l"(data));
    data[0] = sum;
}
