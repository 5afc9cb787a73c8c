// A module with a __constant__ variable, for test_cubin.c. Nothing here is run.
__constant__ float table[64];

extern "C" __global__ void constant(float *out, int index)
{
    out[0] = table[index];
}
