// Names of results, and a sentence for each that this driver returns.
#include "soft/driver.h"

struct error_row {
    int code;
    const char *name, *text;
};

static const struct error_row rows[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "an argument is out of its range or does not fit the others"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "cuInit was not called in this process (a forked child cannot use its parent's)"},
    {4, "CUDA_ERROR_DEINITIALIZED", "the driver is shutting down"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "the library is a stub"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "the device is in use by others"},
    {100, "CUDA_ERROR_NO_DEVICE", "there is no device"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "there is no device of that number"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "the image is no shared object of kernels for the software driver"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "no context is current to the calling thread, or the given one is none"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "the image holds GPU code; the software driver loads shared objects"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "memory failed"},
    {215, "CUDA_ERROR_UNSUPPORTED_LIMIT", "the limit is not supported"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "there is one device only"},
    {218, "CUDA_ERROR_INVALID_PTX", "PTX cannot be compiled here"},
    {221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "there is no compiler for device code here"},
    {224, "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", "execution affinity is not supported"},
    {300, "CUDA_ERROR_INVALID_SOURCE", "the source is not valid"},
    {301, "CUDA_ERROR_FILE_NOT_FOUND", "the module's file cannot be read"},
    {302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "a symbol of a shared object is missing"},
    {303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "a shared object could not be initialised"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "an operating system call failed"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "the handle is none, or of an object that was destroyed"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the object is not in a state that allows the call"},
    {402, "CUDA_ERROR_LOSSY_QUERY", "there is edge data that the query has no place for"},
    {500, "CUDA_ERROR_NOT_FOUND", "nothing of that name was found"},
    {600, "CUDA_ERROR_NOT_READY", "work is still under way"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel accessed an address that is not valid"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "the launch asks for more than the device has"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the kernel took too long"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is enabled already"},
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access is not enabled"},
    {708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "the primary context is in use"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "the context was destroyed"},
    {710, "CUDA_ERROR_ASSERT", "a device-side assertion failed"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "the host memory is registered already"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "the host memory is not registered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed: it called __syncthreads without being declared to"},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "the cooperative launch is too large"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "a host function may not call the driver"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "the software driver does not offer this"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "the call is not allowed while a stream captures"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "an earlier error invalidated the capture"},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "the call would join two captures"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture did not begin in this stream"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "a forked stream was not joined to the one the capture began in"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "the capture would depend on work outside of it"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "the legacy stream would depend on a capturing stream"},
    {907, "CUDA_ERROR_CAPTURED_EVENT", "the event was last recorded in a capturing stream"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "another thread began the capture"},
    {909, "CUDA_ERROR_TIMEOUT", "the time allowed has passed"},
    {910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the executable graph cannot be updated from this graph"},
    {911, "CUDA_ERROR_EXTERNAL_DEVICE", "another device failed"},
    {912, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "the cluster size is not valid"},
    {913, "CUDA_ERROR_FUNCTION_NOT_LOADED", "the function is not loaded"},
    {914, "CUDA_ERROR_INVALID_RESOURCE_TYPE", "the resource type is not valid"},
    {915, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", "the resource configuration is not valid"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static const struct error_row *row_of(CUresult result)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].code == (int)result)
            return &rows[i];
    return NULL;
}

CUresult cuGetErrorName(CUresult result, const char **name)
{
    const struct error_row *row = row_of(result);
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    *name = row ? row->name : NULL;
    return row ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult result, const char **text)
{
    const struct error_row *row = row_of(result);
    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    *text = row ? row->text : NULL;
    return row ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
