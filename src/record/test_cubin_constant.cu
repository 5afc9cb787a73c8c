// A module with variables in constant and in global memory, and with a kernel that allocates, for test_cubin.c. Nothing
// here is run.
#include <stdio.h>
#include <stdlib.h>

__constant__ float table[64];
__device__ float *pointer;
__device__ int counter = 5;
static __device__ float *hidden;

extern "C" __global__ void constant(float *out, int index)
{
    out[0] = table[index];
    pointer = out;
    counter++;
}

extern "C" __global__ void allocate(float **out)
{
    if (!hidden)
        hidden = (float *)malloc(64);
    *out = hidden;
    printf("%p\n", hidden);
}
