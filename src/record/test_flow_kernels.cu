// Kernels whose control flow test_flow.c follows: where each waits, triggers and accesses memory is in its name.
// Nothing here is run.
#define WAIT()    asm volatile("griddepcontrol.wait;" ::: "memory")
#define TRIGGER() asm volatile("griddepcontrol.launch_dependents;" ::: "memory")
#define READ(p)   (*(const volatile float *)(p))

extern "C" __global__ void no_wait(const float *a, float *out)
{
    out[threadIdx.x] = a[threadIdx.x];
}

extern "C" __global__ void waits_first(const float *a, float *out)
{
    WAIT();
    out[threadIdx.x] = a[threadIdx.x];
}

extern "C" __global__ void prefetches(const float *weights, const float *a, float *out, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    float weight = READ(&weights[i]);
    WAIT();
    out[i] = a[i] + weight;
}

extern "C" __global__ void prefetches_in_a_loop(const float *weights, const float *a, float *out, int count)
{
    float sum = 0;
    for (int i = threadIdx.x; i < count; i += 32)
        sum += READ(&weights[i]);
    WAIT();
    for (int i = threadIdx.x; i < count; i += 32)
        out[i] = a[i] * sum;
}

// All threads meet before any of them waits.
extern "C" __global__ void barrier_before_the_wait(const float *weights, const float *a, float *out)
{
    __shared__ float shared[256];
    shared[threadIdx.x] = READ(&weights[threadIdx.x]);
    __syncthreads();
    float weight = shared[255 - threadIdx.x] + READ(&weights[threadIdx.x + 256]);
    WAIT();
    out[threadIdx.x] = a[threadIdx.x] + weight;
}

// Each role waits for itself.
extern "C" __global__ void two_roles(const float *weights, const float *a, float *out)
{
    if (threadIdx.x < 32) {
        WAIT();
        out[threadIdx.x] = a[threadIdx.x];
    } else {
        float weight = READ(&weights[threadIdx.x]);
        WAIT();
        out[threadIdx.x] = weight;
    }
}

// Barriers in shared memory are set up and arrived at; nobody learns from that what others did.
extern "C" __global__ void arrives_before_the_wait(const float *weights, const float *a, float *out)
{
    __shared__ unsigned long long barriers[20];
    if (threadIdx.x == 0) {
#pragma unroll
        for (int i = 0; i < 20; i++) {
            unsigned at = (unsigned)__cvta_generic_to_shared(&barriers[i]);
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;" ::"r"(at) : "memory");
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
        }
    }
    float weight = READ(&weights[threadIdx.x]);
    WAIT();
    out[threadIdx.x] = a[threadIdx.x] + weight;
}

// What a mistake leads to, and a part of a warp that works together.
extern "C" __global__ void traps_and_shuffles(const float *weights, const float *a, float *out, int count, int lanes)
{
    float weight = READ(&weights[threadIdx.x]);
    if (count > 256)
        __trap();
    WAIT();
    float sum = a[threadIdx.x];
    if (threadIdx.x < lanes) {
        for (int i = 0; i < count; i++) {
            if (out[i] > weight)
                break;
            sum += __shfl_xor_sync(0xffffffff, sum, 1);
        }
        sum += __shfl_xor_sync(0xffffffff, sum, 2);
    }
    out[threadIdx.x] = sum;
}

// Who waits cannot be told from the code alone: by a parameter, by a barrier, by a function.
extern "C" __global__ void waits_if_asked(const float *a, float *out, int wait)
{
    if (wait)
        WAIT();
    out[threadIdx.x] = a[threadIdx.x];
}

extern "C" __global__ void one_thread_waits(const float *a, float *out)
{
    if (threadIdx.x == 0)
        WAIT();
    __syncthreads();
    out[threadIdx.x] = a[threadIdx.x];
}

extern "C" __global__ void one_warp_waits_for_another(const float *a, float *out)
{
    __shared__ float shared[32];
    if (threadIdx.x < 32) {
        WAIT();
        shared[threadIdx.x] = a[threadIdx.x];
        asm volatile("bar.sync 1, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 1, 64;" ::: "memory");
        out[threadIdx.x] = shared[threadIdx.x - 32];
    }
}

__device__ __noinline__ void wait_in_a_function()
{
    WAIT();
}

extern "C" __global__ void waits_in_a_function(const float *a, float *out)
{
    float first = READ(a);
    wait_in_a_function();
    out[threadIdx.x] = first + a[threadIdx.x];
}

__device__ __noinline__ float read_in_a_function(const float *a)
{
    return READ(a + 3) * 2;
}

extern "C" __global__ void reads_in_a_function(const float *weights, const float *a, float *out)
{
    float weight = read_in_a_function(weights);
    WAIT();
    out[threadIdx.x] = weight + read_in_a_function(a);
}

extern "C" __global__ void calls_through_a_pointer(const float *weights, float *out, float (*function)(const float *))
{
    float weight = function(weights);
    WAIT();
    out[threadIdx.x] = weight;
}

// One access comes before the wait, one after it, and one both before and after.
extern "C" __global__ void reads_again(const float *weights, const float *a, float *out, int count)
{
    float weight = READ(weights);
#pragma unroll 1
    for (int i = 0; i < count; i++) {
        float x = READ(&a[i]);
        WAIT();
        out[i] = x * weight;
    }
}

// A division calls a function of the compiler's, which touches no memory.
extern "C" __global__ void divides_on_both_sides(const float *weights, const float *a, float *out)
{
    float weight = READ(&weights[threadIdx.x]) / READ(&weights[threadIdx.x + 1]);
    WAIT();
    out[threadIdx.x] = a[threadIdx.x] / weight;
}

// The way back leads to what comes before the wait.
// Enough cases, and unlike enough, for a table of places to go on at.
#define SWITCH(what, x, out)                            \
    switch (what) {                                     \
    case 0: *(out) = READ(x) + 1; break;                \
    case 1: *(out) = sqrtf(READ(x)); break;             \
    case 2: *(out) = READ((x) + 1) * READ(x); break;    \
    case 3: *(out) = READ(x) / (READ((x) + 2) + 1);     \
    case 4: *(out) = __expf(READ(x)); break;            \
    case 5: *(out) = READ((x) + 3) - READ(x); break;    \
    case 6: *(out) = __logf(READ(x)); break;            \
    case 7: *(out) = READ(x) * READ(x) + READ((x) + 7); \
    case 8: *(out) = __cosf(READ((x) + 5)); break;      \
    case 9: *(out) = __powf(READ(x), READ((x) + 9));    \
    }

extern "C" __global__ void waits_and_switches(const float *a, float *out, int what)
{
    WAIT();
    SWITCH(what, a + threadIdx.x, out + threadIdx.x)
}

extern "C" __global__ void switches_and_waits(const float *weights, const float *a, float *out, int what)
{
    float weight;
    SWITCH(what, weights + threadIdx.x, &weight)
    WAIT();
    out[threadIdx.x] = weight * a[threadIdx.x];
}

extern "C" __global__ void waits_in_a_loop(const float *a, float *out, int count)
{
#pragma unroll 1
    for (int i = 0; i < count; i++) {
        float x = READ(&a[i]);
        WAIT();
        out[i] = x;
    }
}

// ---- Triggers ----

extern "C" __global__ void triggers_first(const float *a, float *out)
{
    TRIGGER();
    WAIT();
    out[threadIdx.x] = a[threadIdx.x];
}

extern "C" __global__ void triggers_after_the_wait(const float *a, float *out)
{
    WAIT();
    TRIGGER();
    out[threadIdx.x] = a[threadIdx.x];
}

extern "C" __global__ void triggers_if_asked(const float *weights, const float *a, float *out, int trigger)
{
    float weight = READ(weights);
    if (trigger)
        TRIGGER();
    WAIT();
    out[threadIdx.x] = a[threadIdx.x] + weight;
}

// ---- What the Sanitizer does not report ----

extern "C" __global__ void texture_after_the_wait(cudaTextureObject_t object, float *out)
{
    // The coordinate is read behind the wait: a fetch may be moved across what only orders memory.
    WAIT();
    int at = (int)READ(out);
    out[threadIdx.x] = tex1Dfetch<float>(object, at);
}

extern "C" __global__ void texture_before_the_wait(cudaTextureObject_t object, float *out)
{
    float x = tex1Dfetch<float>(object, threadIdx.x);
    out[threadIdx.x] = x;
    WAIT();
    out[threadIdx.x + 1024] = x;
}
