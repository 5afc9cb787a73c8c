// The driver's own functions, as the recorder calls them: never through a hook. Found by dlsym on libcuda.so.1.
#ifndef GV_RECORD_DRIVER_H
#define GV_RECORD_DRIVER_H

#include "base/error.h"

#include <cuda.h>
#include <stdbool.h>

// F(field, exported symbol): the field has the type that cuda.h gives the name. All are there in CUDA 12.4 and later;
// a missing one switches the recorder off with the name in the message.
#define GV_DRIVER_FUNCTIONS(F)                                                \
    F(cuDriverGetVersion, "cuDriverGetVersion")                               \
    F(cuGetErrorString, "cuGetErrorString")                                   \
    F(cuDeviceGetName, "cuDeviceGetName")                                     \
    F(cuDeviceGetAttribute, "cuDeviceGetAttribute")                           \
    F(cuCtxGetCurrent, "cuCtxGetCurrent")                                     \
    F(cuCtxGetDevice, "cuCtxGetDevice")                                       \
    F(cuCtxGetId, "cuCtxGetId")                                               \
    F(cuCtxPushCurrent, "cuCtxPushCurrent_v2")                                \
    F(cuCtxPopCurrent, "cuCtxPopCurrent_v2")                                  \
    F(cuMemAlloc, "cuMemAlloc_v2")                                            \
    F(cuMemFree, "cuMemFree_v2")                                              \
    F(cuMemGetInfo, "cuMemGetInfo_v2")                                        \
    F(cuMemHostAlloc, "cuMemHostAlloc")                                       \
    F(cuMemFreeHost, "cuMemFreeHost")                                         \
    F(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2")              \
    F(cuMemGetAddressRange, "cuMemGetAddressRange_v2")                        \
    F(cuPointerGetAttribute, "cuPointerGetAttribute")                         \
    F(cuMemsetD8Async, "cuMemsetD8Async")                                     \
    F(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2")                              \
    F(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2")                              \
    F(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2")                              \
    F(cuModuleLoadData, "cuModuleLoadData")                                   \
    F(cuModuleUnload, "cuModuleUnload")                                       \
    F(cuModuleGetFunction, "cuModuleGetFunction")                             \
    F(cuModuleGetGlobal, "cuModuleGetGlobal_v2")                              \
    F(cuFuncGetName, "cuFuncGetName")                                         \
    F(cuFuncGetModule, "cuFuncGetModule")                                     \
    F(cuFuncGetParamInfo, "cuFuncGetParamInfo")                               \
    F(cuLaunchKernel, "cuLaunchKernel")                                       \
    F(cuLaunchKernelEx, "cuLaunchKernelEx")                                   \
    F(cuStreamCreate, "cuStreamCreate")                                       \
    F(cuStreamDestroy, "cuStreamDestroy_v2")                                  \
    F(cuStreamSynchronize, "cuStreamSynchronize")                             \
    F(cuStreamQuery, "cuStreamQuery")                                         \
    F(cuStreamWaitEvent, "cuStreamWaitEvent")                                 \
    F(cuEventCreate, "cuEventCreate")                                         \
    F(cuEventRecord, "cuEventRecord")                                         \
    F(cuEventQuery, "cuEventQuery")                                           \
    F(cuEventElapsedTime, "cuEventElapsedTime")                               \
    F(cuEventDestroy, "cuEventDestroy_v2")                                    \
    F(cuStreamGetCtx, "cuStreamGetCtx")                                       \
    F(cuStreamGetFlags, "cuStreamGetFlags")                                   \
    F(cuStreamGetPriority, "cuStreamGetPriority")                             \
    F(cuStreamIsCapturing, "cuStreamIsCapturing")                             \
    F(cuStreamGetCaptureInfo, "cuStreamGetCaptureInfo_v3")                    \
    F(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode") \
    F(cuGraphCreate, "cuGraphCreate")                                         \
    F(cuGraphDestroy, "cuGraphDestroy")                                       \
    F(cuGraphClone, "cuGraphClone")                                           \
    F(cuGraphNodeFindInClone, "cuGraphNodeFindInClone")                       \
    F(cuGraphGetNodes, "cuGraphGetNodes")                                     \
    F(cuGraphGetEdges, "cuGraphGetEdges_v2")                                  \
    F(cuGraphNodeGetDependencies, "cuGraphNodeGetDependencies_v2")            \
    F(cuGraphAddDependencies, "cuGraphAddDependencies_v2")                    \
    F(cuGraphRemoveDependencies, "cuGraphRemoveDependencies_v2")              \
    F(cuGraphDestroyNode, "cuGraphDestroyNode")                               \
    F(cuGraphNodeGetType, "cuGraphNodeGetType")                               \
    F(cuGraphKernelNodeGetParams, "cuGraphKernelNodeGetParams_v2")            \
    F(cuGraphKernelNodeSetParams, "cuGraphKernelNodeSetParams_v2")            \
    F(cuGraphKernelNodeGetAttribute, "cuGraphKernelNodeGetAttribute")         \
    F(cuGraphMemcpyNodeGetParams, "cuGraphMemcpyNodeGetParams")               \
    F(cuGraphMemcpyNodeSetParams, "cuGraphMemcpyNodeSetParams")               \
    F(cuGraphMemsetNodeGetParams, "cuGraphMemsetNodeGetParams")               \
    F(cuGraphMemsetNodeSetParams, "cuGraphMemsetNodeSetParams")               \
    F(cuGraphHostNodeGetParams, "cuGraphHostNodeGetParams")                   \
    F(cuGraphHostNodeSetParams, "cuGraphHostNodeSetParams")                   \
    F(cuGraphEventRecordNodeGetEvent, "cuGraphEventRecordNodeGetEvent")       \
    F(cuGraphEventRecordNodeSetEvent, "cuGraphEventRecordNodeSetEvent")       \
    F(cuGraphEventWaitNodeGetEvent, "cuGraphEventWaitNodeGetEvent")           \
    F(cuGraphEventWaitNodeSetEvent, "cuGraphEventWaitNodeSetEvent")           \
    F(cuGraphMemAllocNodeGetParams, "cuGraphMemAllocNodeGetParams")           \
    F(cuGraphMemFreeNodeGetParams, "cuGraphMemFreeNodeGetParams")             \
    F(cuGraphChildGraphNodeGetGraph, "cuGraphChildGraphNodeGetGraph")         \
    F(cuGraphAddNode, "cuGraphAddNode_v2")                                    \
    F(cuGraphAddEmptyNode, "cuGraphAddEmptyNode")                             \
    F(cuGraphAddKernelNode, "cuGraphAddKernelNode_v2")                        \
    F(cuGraphAddChildGraphNode, "cuGraphAddChildGraphNode")                   \
    F(cuGraphKernelNodeCopyAttributes, "cuGraphKernelNodeCopyAttributes")     \
    F(cuGraphConditionalHandleCreate, "cuGraphConditionalHandleCreate")       \
    F(cuLaunchHostFunc, "cuLaunchHostFunc")                                   \
    F(cuGraphAddMemcpyNode, "cuGraphAddMemcpyNode")                           \
    F(cuGraphAddMemsetNode, "cuGraphAddMemsetNode")                           \
    F(cuGraphAddHostNode, "cuGraphAddHostNode")                               \
    F(cuGraphAddEventRecordNode, "cuGraphAddEventRecordNode")                 \
    F(cuGraphAddEventWaitNode, "cuGraphAddEventWaitNode")                     \
    F(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags")             \
    F(cuGraphLaunch, "cuGraphLaunch")                                         \
    F(cuGraphExecDestroy, "cuGraphExecDestroy")

typedef struct gv_driver {
#define GV_DRIVER_FIELD(field, symbol) __typeof__(field) *field;
    GV_DRIVER_FUNCTIONS(GV_DRIVER_FIELD)
    void *library; // handle of libcuda.so.1
} gv_driver;

// Valid after gv_driver_load answered true.
extern gv_driver gv_cuda;

// Finds the functions in the libcuda.so.1 that the process has loaded. Returns false and names the first missing one
// (or the library) in *missing. Not thread-safe; the recorder's start calls it under its lock.
bool gv_driver_load(const char **missing);

// Address of any driver symbol, or NULL.
void *gv_driver_symbol(const char *symbol);

// The driver's text for an error, never NULL.
const char *gv_driver_error(CUresult result);

// A kernel of a module, and where its handle goes.
typedef struct gv_named_kernel {
    CUfunction *function;
    const char *name;
} gv_named_kernel;

// Loads an image of gravel's own into the current context and looks its kernels up. After an error *module is the
// module if it was loaded: the caller's to unload, as after success.
CUresult gv_driver_load_kernels(CUmodule *module, const void *image, const gv_named_kernel *kernels, size_t count);

// Fills `error` with "what: the driver's text". GV_ERR_MEMORY where the device ran out of it, else GV_ERR_IO.
gv_status gv_driver_failed(gv_error *error, const char *what, CUresult result);

#endif
