// Every function that the software driver exports, for cuGetProcAddress: the base name a program asks for, the CUDA
// version that introduced this variant of it, and the exported symbol; WITH_THREAD rows also have the symbol of the
// variant whose null stream is the per-thread default stream. Variants of one name are in ascending order of version.
#ifndef GRAVEL_SOFT_FUNCTIONS_H
#define GRAVEL_SOFT_FUNCTIONS_H

// clang-format off
#define SOFT_FUNCTIONS(PLAIN, WITH_THREAD) \
    PLAIN(cuCtxCreate, 2000, cuCtxCreate) \
    PLAIN(cuCtxCreate, 3020, cuCtxCreate_v2) \
    PLAIN(cuCtxCreate, 11040, cuCtxCreate_v3) \
    PLAIN(cuCtxCreate, 12050, cuCtxCreate_v4) \
    PLAIN(cuCtxDestroy, 2000, cuCtxDestroy) \
    PLAIN(cuCtxDestroy, 4000, cuCtxDestroy_v2) \
    PLAIN(cuCtxGetApiVersion, 3020, cuCtxGetApiVersion) \
    PLAIN(cuCtxGetCacheConfig, 3020, cuCtxGetCacheConfig) \
    PLAIN(cuCtxGetCurrent, 4000, cuCtxGetCurrent) \
    PLAIN(cuCtxGetDevice, 2000, cuCtxGetDevice) \
    PLAIN(cuCtxGetDevice, 13000, cuCtxGetDevice_v2) \
    PLAIN(cuCtxGetFlags, 7000, cuCtxGetFlags) \
    PLAIN(cuCtxGetId, 12000, cuCtxGetId) \
    PLAIN(cuCtxGetLimit, 3010, cuCtxGetLimit) \
    PLAIN(cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange) \
    PLAIN(cuCtxPopCurrent, 2000, cuCtxPopCurrent) \
    PLAIN(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2) \
    PLAIN(cuCtxPushCurrent, 2000, cuCtxPushCurrent) \
    PLAIN(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2) \
    PLAIN(cuCtxSetCacheConfig, 3020, cuCtxSetCacheConfig) \
    PLAIN(cuCtxSetCurrent, 4000, cuCtxSetCurrent) \
    PLAIN(cuCtxSetFlags, 12010, cuCtxSetFlags) \
    PLAIN(cuCtxSetLimit, 3010, cuCtxSetLimit) \
    PLAIN(cuCtxSynchronize, 2000, cuCtxSynchronize) \
    PLAIN(cuCtxSynchronize, 13000, cuCtxSynchronize_v2) \
    PLAIN(cuDeviceCanAccessPeer, 4000, cuDeviceCanAccessPeer) \
    PLAIN(cuDeviceComputeCapability, 2000, cuDeviceComputeCapability) \
    PLAIN(cuDeviceGet, 2000, cuDeviceGet) \
    PLAIN(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute) \
    PLAIN(cuDeviceGetCount, 2000, cuDeviceGetCount) \
    PLAIN(cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool) \
    PLAIN(cuDeviceGetGraphMemAttribute, 11040, cuDeviceGetGraphMemAttribute) \
    PLAIN(cuDeviceGetMemPool, 11020, cuDeviceGetMemPool) \
    PLAIN(cuDeviceGetName, 2000, cuDeviceGetName) \
    PLAIN(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId) \
    PLAIN(cuDeviceGetUuid, 9020, cuDeviceGetUuid) \
    PLAIN(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2) \
    PLAIN(cuDeviceGraphMemTrim, 11040, cuDeviceGraphMemTrim) \
    PLAIN(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState) \
    PLAIN(cuDevicePrimaryCtxRelease, 7000, cuDevicePrimaryCtxRelease) \
    PLAIN(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2) \
    PLAIN(cuDevicePrimaryCtxReset, 7000, cuDevicePrimaryCtxReset) \
    PLAIN(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2) \
    PLAIN(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain) \
    PLAIN(cuDevicePrimaryCtxSetFlags, 7000, cuDevicePrimaryCtxSetFlags) \
    PLAIN(cuDevicePrimaryCtxSetFlags, 11000, cuDevicePrimaryCtxSetFlags_v2) \
    PLAIN(cuDeviceSetMemPool, 11020, cuDeviceSetMemPool) \
    PLAIN(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2) \
    PLAIN(cuDriverGetVersion, 2020, cuDriverGetVersion) \
    PLAIN(cuEventCreate, 2000, cuEventCreate) \
    PLAIN(cuEventDestroy, 2000, cuEventDestroy) \
    PLAIN(cuEventDestroy, 4000, cuEventDestroy_v2) \
    PLAIN(cuEventElapsedTime, 2000, cuEventElapsedTime) \
    PLAIN(cuEventElapsedTime, 12080, cuEventElapsedTime_v2) \
    PLAIN(cuEventQuery, 2000, cuEventQuery) \
    WITH_THREAD(cuEventRecord, 2000, cuEventRecord, cuEventRecord_ptsz) \
    WITH_THREAD(cuEventRecordWithFlags, 11010, cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz) \
    PLAIN(cuEventSynchronize, 2000, cuEventSynchronize) \
    PLAIN(cuFuncGetAttribute, 2020, cuFuncGetAttribute) \
    PLAIN(cuFuncGetModule, 11000, cuFuncGetModule) \
    PLAIN(cuFuncGetName, 12030, cuFuncGetName) \
    PLAIN(cuFuncGetParamInfo, 12040, cuFuncGetParamInfo) \
    PLAIN(cuFuncIsLoaded, 12040, cuFuncIsLoaded) \
    PLAIN(cuFuncLoad, 12040, cuFuncLoad) \
    PLAIN(cuFuncSetAttribute, 9000, cuFuncSetAttribute) \
    PLAIN(cuFuncSetCacheConfig, 3000, cuFuncSetCacheConfig) \
    PLAIN(cuGetErrorName, 6000, cuGetErrorName) \
    PLAIN(cuGetErrorString, 6000, cuGetErrorString) \
    PLAIN(cuGetExportTable, 3000, cuGetExportTable) \
    PLAIN(cuGetProcAddress, 11030, cuGetProcAddress) \
    PLAIN(cuGetProcAddress, 12000, cuGetProcAddress_v2) \
    PLAIN(cuGraphAddBatchMemOpNode, 11070, cuGraphAddBatchMemOpNode) \
    PLAIN(cuGraphAddChildGraphNode, 10000, cuGraphAddChildGraphNode) \
    PLAIN(cuGraphAddDependencies, 10000, cuGraphAddDependencies) \
    PLAIN(cuGraphAddDependencies, 12030, cuGraphAddDependencies_v2) \
    PLAIN(cuGraphAddEmptyNode, 10000, cuGraphAddEmptyNode) \
    PLAIN(cuGraphAddEventRecordNode, 11010, cuGraphAddEventRecordNode) \
    PLAIN(cuGraphAddEventWaitNode, 11010, cuGraphAddEventWaitNode) \
    PLAIN(cuGraphAddHostNode, 10000, cuGraphAddHostNode) \
    PLAIN(cuGraphAddKernelNode, 10000, cuGraphAddKernelNode) \
    PLAIN(cuGraphAddKernelNode, 12000, cuGraphAddKernelNode_v2) \
    PLAIN(cuGraphAddMemAllocNode, 11040, cuGraphAddMemAllocNode) \
    PLAIN(cuGraphAddMemFreeNode, 11040, cuGraphAddMemFreeNode) \
    PLAIN(cuGraphAddMemcpyNode, 10000, cuGraphAddMemcpyNode) \
    PLAIN(cuGraphAddMemsetNode, 10000, cuGraphAddMemsetNode) \
    PLAIN(cuGraphAddNode, 12020, cuGraphAddNode) \
    PLAIN(cuGraphAddNode, 12030, cuGraphAddNode_v2) \
    PLAIN(cuGraphBatchMemOpNodeGetParams, 11070, cuGraphBatchMemOpNodeGetParams) \
    PLAIN(cuGraphBatchMemOpNodeSetParams, 11070, cuGraphBatchMemOpNodeSetParams) \
    PLAIN(cuGraphChildGraphNodeGetGraph, 10000, cuGraphChildGraphNodeGetGraph) \
    PLAIN(cuGraphClone, 10000, cuGraphClone) \
    PLAIN(cuGraphConditionalHandleCreate, 12030, cuGraphConditionalHandleCreate) \
    PLAIN(cuGraphCreate, 10000, cuGraphCreate) \
    PLAIN(cuGraphDestroy, 10000, cuGraphDestroy) \
    PLAIN(cuGraphDestroyNode, 10000, cuGraphDestroyNode) \
    PLAIN(cuGraphEventRecordNodeGetEvent, 11010, cuGraphEventRecordNodeGetEvent) \
    PLAIN(cuGraphEventRecordNodeSetEvent, 11010, cuGraphEventRecordNodeSetEvent) \
    PLAIN(cuGraphEventWaitNodeGetEvent, 11010, cuGraphEventWaitNodeGetEvent) \
    PLAIN(cuGraphEventWaitNodeSetEvent, 11010, cuGraphEventWaitNodeSetEvent) \
    PLAIN(cuGraphExecBatchMemOpNodeSetParams, 11070, cuGraphExecBatchMemOpNodeSetParams) \
    PLAIN(cuGraphExecChildGraphNodeSetParams, 11010, cuGraphExecChildGraphNodeSetParams) \
    PLAIN(cuGraphExecDestroy, 10000, cuGraphExecDestroy) \
    PLAIN(cuGraphExecEventRecordNodeSetEvent, 11010, cuGraphExecEventRecordNodeSetEvent) \
    PLAIN(cuGraphExecEventWaitNodeSetEvent, 11010, cuGraphExecEventWaitNodeSetEvent) \
    PLAIN(cuGraphExecGetFlags, 12000, cuGraphExecGetFlags) \
    PLAIN(cuGraphExecHostNodeSetParams, 10020, cuGraphExecHostNodeSetParams) \
    PLAIN(cuGraphExecKernelNodeSetParams, 10010, cuGraphExecKernelNodeSetParams) \
    PLAIN(cuGraphExecKernelNodeSetParams, 12000, cuGraphExecKernelNodeSetParams_v2) \
    PLAIN(cuGraphExecMemcpyNodeSetParams, 10020, cuGraphExecMemcpyNodeSetParams) \
    PLAIN(cuGraphExecMemsetNodeSetParams, 10020, cuGraphExecMemsetNodeSetParams) \
    PLAIN(cuGraphExecNodeSetParams, 12020, cuGraphExecNodeSetParams) \
    PLAIN(cuGraphExecUpdate, 10020, cuGraphExecUpdate) \
    PLAIN(cuGraphExecUpdate, 12000, cuGraphExecUpdate_v2) \
    PLAIN(cuGraphGetEdges, 10000, cuGraphGetEdges) \
    PLAIN(cuGraphGetEdges, 12030, cuGraphGetEdges_v2) \
    PLAIN(cuGraphGetNodes, 10000, cuGraphGetNodes) \
    PLAIN(cuGraphGetRootNodes, 10000, cuGraphGetRootNodes) \
    PLAIN(cuGraphHostNodeGetParams, 10000, cuGraphHostNodeGetParams) \
    PLAIN(cuGraphHostNodeSetParams, 10000, cuGraphHostNodeSetParams) \
    PLAIN(cuGraphInstantiate, 10000, cuGraphInstantiate) \
    PLAIN(cuGraphInstantiate, 11000, cuGraphInstantiate_v2) \
    PLAIN(cuGraphInstantiateWithFlags, 11040, cuGraphInstantiateWithFlags) \
    WITH_THREAD(cuGraphInstantiateWithParams, 12000, cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz) \
    PLAIN(cuGraphKernelNodeCopyAttributes, 11000, cuGraphKernelNodeCopyAttributes) \
    PLAIN(cuGraphKernelNodeGetAttribute, 11000, cuGraphKernelNodeGetAttribute) \
    PLAIN(cuGraphKernelNodeGetParams, 10000, cuGraphKernelNodeGetParams) \
    PLAIN(cuGraphKernelNodeGetParams, 12000, cuGraphKernelNodeGetParams_v2) \
    PLAIN(cuGraphKernelNodeSetAttribute, 11000, cuGraphKernelNodeSetAttribute) \
    PLAIN(cuGraphKernelNodeSetParams, 10000, cuGraphKernelNodeSetParams) \
    PLAIN(cuGraphKernelNodeSetParams, 12000, cuGraphKernelNodeSetParams_v2) \
    WITH_THREAD(cuGraphLaunch, 10000, cuGraphLaunch, cuGraphLaunch_ptsz) \
    PLAIN(cuGraphMemAllocNodeGetParams, 11040, cuGraphMemAllocNodeGetParams) \
    PLAIN(cuGraphMemFreeNodeGetParams, 11040, cuGraphMemFreeNodeGetParams) \
    PLAIN(cuGraphMemcpyNodeGetParams, 10000, cuGraphMemcpyNodeGetParams) \
    PLAIN(cuGraphMemcpyNodeSetParams, 10000, cuGraphMemcpyNodeSetParams) \
    PLAIN(cuGraphMemsetNodeGetParams, 10000, cuGraphMemsetNodeGetParams) \
    PLAIN(cuGraphMemsetNodeSetParams, 10000, cuGraphMemsetNodeSetParams) \
    PLAIN(cuGraphNodeFindInClone, 10000, cuGraphNodeFindInClone) \
    PLAIN(cuGraphNodeGetDependencies, 10000, cuGraphNodeGetDependencies) \
    PLAIN(cuGraphNodeGetDependencies, 12030, cuGraphNodeGetDependencies_v2) \
    PLAIN(cuGraphNodeGetDependentNodes, 10000, cuGraphNodeGetDependentNodes) \
    PLAIN(cuGraphNodeGetDependentNodes, 12030, cuGraphNodeGetDependentNodes_v2) \
    PLAIN(cuGraphNodeGetEnabled, 11060, cuGraphNodeGetEnabled) \
    PLAIN(cuGraphNodeGetType, 10000, cuGraphNodeGetType) \
    PLAIN(cuGraphNodeSetEnabled, 11060, cuGraphNodeSetEnabled) \
    PLAIN(cuGraphNodeSetParams, 12020, cuGraphNodeSetParams) \
    PLAIN(cuGraphReleaseUserObject, 11030, cuGraphReleaseUserObject) \
    PLAIN(cuGraphRemoveDependencies, 10000, cuGraphRemoveDependencies) \
    PLAIN(cuGraphRemoveDependencies, 12030, cuGraphRemoveDependencies_v2) \
    PLAIN(cuGraphRetainUserObject, 11030, cuGraphRetainUserObject) \
    WITH_THREAD(cuGraphUpload, 11010, cuGraphUpload, cuGraphUpload_ptsz) \
    PLAIN(cuInit, 2000, cuInit) \
    PLAIN(cuKernelGetAttribute, 12000, cuKernelGetAttribute) \
    PLAIN(cuKernelGetFunction, 12000, cuKernelGetFunction) \
    PLAIN(cuKernelGetLibrary, 12050, cuKernelGetLibrary) \
    PLAIN(cuKernelGetName, 12030, cuKernelGetName) \
    PLAIN(cuKernelGetParamInfo, 12040, cuKernelGetParamInfo) \
    PLAIN(cuKernelSetAttribute, 12000, cuKernelSetAttribute) \
    WITH_THREAD(cuLaunchCooperativeKernel, 9000, cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz) \
    WITH_THREAD(cuLaunchHostFunc, 10000, cuLaunchHostFunc, cuLaunchHostFunc_ptsz) \
    WITH_THREAD(cuLaunchKernel, 4000, cuLaunchKernel, cuLaunchKernel_ptsz) \
    WITH_THREAD(cuLaunchKernelEx, 11060, cuLaunchKernelEx, cuLaunchKernelEx_ptsz) \
    PLAIN(cuLibraryEnumerateKernels, 12040, cuLibraryEnumerateKernels) \
    PLAIN(cuLibraryGetGlobal, 12000, cuLibraryGetGlobal) \
    PLAIN(cuLibraryGetKernel, 12000, cuLibraryGetKernel) \
    PLAIN(cuLibraryGetKernelCount, 12040, cuLibraryGetKernelCount) \
    PLAIN(cuLibraryGetModule, 12000, cuLibraryGetModule) \
    PLAIN(cuLibraryLoadData, 12000, cuLibraryLoadData) \
    PLAIN(cuLibraryLoadFromFile, 12000, cuLibraryLoadFromFile) \
    PLAIN(cuLibraryUnload, 12000, cuLibraryUnload) \
    PLAIN(cuMemAdvise, 8000, cuMemAdvise) \
    PLAIN(cuMemAdvise, 12020, cuMemAdvise_v2) \
    PLAIN(cuMemAlloc, 3020, cuMemAlloc_v2) \
    WITH_THREAD(cuMemAllocAsync, 11020, cuMemAllocAsync, cuMemAllocAsync_ptsz) \
    WITH_THREAD(cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz) \
    PLAIN(cuMemAllocHost, 3020, cuMemAllocHost_v2) \
    PLAIN(cuMemAllocManaged, 6000, cuMemAllocManaged) \
    PLAIN(cuMemAllocPitch, 3020, cuMemAllocPitch_v2) \
    PLAIN(cuMemFree, 3020, cuMemFree_v2) \
    WITH_THREAD(cuMemFreeAsync, 11020, cuMemFreeAsync, cuMemFreeAsync_ptsz) \
    PLAIN(cuMemFreeHost, 2000, cuMemFreeHost) \
    PLAIN(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2) \
    PLAIN(cuMemGetInfo, 3020, cuMemGetInfo_v2) \
    PLAIN(cuMemHostAlloc, 2020, cuMemHostAlloc) \
    PLAIN(cuMemHostGetDevicePointer, 3020, cuMemHostGetDevicePointer_v2) \
    PLAIN(cuMemHostGetFlags, 2030, cuMemHostGetFlags) \
    PLAIN(cuMemHostRegister, 4000, cuMemHostRegister) \
    PLAIN(cuMemHostRegister, 6050, cuMemHostRegister_v2) \
    PLAIN(cuMemHostUnregister, 4000, cuMemHostUnregister) \
    PLAIN(cuMemPoolCreate, 11020, cuMemPoolCreate) \
    PLAIN(cuMemPoolDestroy, 11020, cuMemPoolDestroy) \
    PLAIN(cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute) \
    PLAIN(cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute) \
    PLAIN(cuMemPoolTrimTo, 11020, cuMemPoolTrimTo) \
    WITH_THREAD(cuMemPrefetchAsync, 8000, cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz) \
    WITH_THREAD(cuMemPrefetchAsync, 12020, cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz) \
    WITH_THREAD(cuMemcpy, 4000, cuMemcpy, cuMemcpy_ptds) \
    WITH_THREAD(cuMemcpy2D, 3020, cuMemcpy2D_v2, cuMemcpy2D_v2_ptds) \
    WITH_THREAD(cuMemcpy2DAsync, 3020, cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz) \
    WITH_THREAD(cuMemcpy2DUnaligned, 3020, cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds) \
    WITH_THREAD(cuMemcpy3D, 3020, cuMemcpy3D_v2, cuMemcpy3D_v2_ptds) \
    WITH_THREAD(cuMemcpy3DAsync, 3020, cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz) \
    WITH_THREAD(cuMemcpyAsync, 4000, cuMemcpyAsync, cuMemcpyAsync_ptsz) \
    WITH_THREAD(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds) \
    WITH_THREAD(cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz) \
    WITH_THREAD(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds) \
    WITH_THREAD(cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz) \
    WITH_THREAD(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds) \
    WITH_THREAD(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz) \
    WITH_THREAD(cuMemsetD16, 3020, cuMemsetD16_v2, cuMemsetD16_v2_ptds) \
    WITH_THREAD(cuMemsetD16Async, 3020, cuMemsetD16Async, cuMemsetD16Async_ptsz) \
    WITH_THREAD(cuMemsetD2D16, 3020, cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds) \
    WITH_THREAD(cuMemsetD2D16Async, 3020, cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz) \
    WITH_THREAD(cuMemsetD2D32, 3020, cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds) \
    WITH_THREAD(cuMemsetD2D32Async, 3020, cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz) \
    WITH_THREAD(cuMemsetD2D8, 3020, cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds) \
    WITH_THREAD(cuMemsetD2D8Async, 3020, cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz) \
    WITH_THREAD(cuMemsetD32, 3020, cuMemsetD32_v2, cuMemsetD32_v2_ptds) \
    WITH_THREAD(cuMemsetD32Async, 3020, cuMemsetD32Async, cuMemsetD32Async_ptsz) \
    WITH_THREAD(cuMemsetD8, 3020, cuMemsetD8_v2, cuMemsetD8_v2_ptds) \
    WITH_THREAD(cuMemsetD8Async, 3020, cuMemsetD8Async, cuMemsetD8Async_ptsz) \
    PLAIN(cuModuleEnumerateFunctions, 12040, cuModuleEnumerateFunctions) \
    PLAIN(cuModuleGetFunction, 2000, cuModuleGetFunction) \
    PLAIN(cuModuleGetFunctionCount, 12040, cuModuleGetFunctionCount) \
    PLAIN(cuModuleGetGlobal, 3020, cuModuleGetGlobal_v2) \
    PLAIN(cuModuleGetLoadingMode, 11070, cuModuleGetLoadingMode) \
    PLAIN(cuModuleLoad, 2000, cuModuleLoad) \
    PLAIN(cuModuleLoadData, 2000, cuModuleLoadData) \
    PLAIN(cuModuleLoadDataEx, 2010, cuModuleLoadDataEx) \
    PLAIN(cuModuleLoadFatBinary, 2000, cuModuleLoadFatBinary) \
    PLAIN(cuModuleUnload, 2000, cuModuleUnload) \
    PLAIN(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, cuOccupancyMaxActiveBlocksPerMultiprocessor) \
    PLAIN(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) \
    PLAIN(cuPointerGetAttribute, 4000, cuPointerGetAttribute) \
    PLAIN(cuPointerGetAttributes, 7000, cuPointerGetAttributes) \
    PLAIN(cuPointerSetAttribute, 6000, cuPointerSetAttribute) \
    WITH_THREAD(cuStreamAddCallback, 5000, cuStreamAddCallback, cuStreamAddCallback_ptsz) \
    WITH_THREAD(cuStreamAttachMemAsync, 6000, cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz) \
    WITH_THREAD(cuStreamBatchMemOp, 8000, cuStreamBatchMemOp, cuStreamBatchMemOp_ptsz) \
    WITH_THREAD(cuStreamBatchMemOp, 11070, cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz) \
    WITH_THREAD(cuStreamBeginCapture, 10000, cuStreamBeginCapture, cuStreamBeginCapture_ptsz) \
    WITH_THREAD(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz) \
    WITH_THREAD(cuStreamBeginCaptureToGraph, 12030, cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz) \
    WITH_THREAD(cuStreamCopyAttributes, 11000, cuStreamCopyAttributes, cuStreamCopyAttributes_ptsz) \
    PLAIN(cuStreamCreate, 2000, cuStreamCreate) \
    PLAIN(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority) \
    PLAIN(cuStreamDestroy, 2000, cuStreamDestroy) \
    PLAIN(cuStreamDestroy, 4000, cuStreamDestroy_v2) \
    WITH_THREAD(cuStreamEndCapture, 10000, cuStreamEndCapture, cuStreamEndCapture_ptsz) \
    WITH_THREAD(cuStreamGetAttribute, 11000, cuStreamGetAttribute, cuStreamGetAttribute_ptsz) \
    WITH_THREAD(cuStreamGetCaptureInfo, 10010, cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_ptsz) \
    WITH_THREAD(cuStreamGetCaptureInfo, 11030, cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz) \
    WITH_THREAD(cuStreamGetCaptureInfo, 12030, cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz) \
    WITH_THREAD(cuStreamGetCtx, 9020, cuStreamGetCtx, cuStreamGetCtx_ptsz) \
    WITH_THREAD(cuStreamGetDevice, 12080, cuStreamGetDevice, cuStreamGetDevice_ptsz) \
    WITH_THREAD(cuStreamGetFlags, 5050, cuStreamGetFlags, cuStreamGetFlags_ptsz) \
    WITH_THREAD(cuStreamGetId, 12000, cuStreamGetId, cuStreamGetId_ptsz) \
    WITH_THREAD(cuStreamGetPriority, 5050, cuStreamGetPriority, cuStreamGetPriority_ptsz) \
    WITH_THREAD(cuStreamIsCapturing, 10000, cuStreamIsCapturing, cuStreamIsCapturing_ptsz) \
    WITH_THREAD(cuStreamQuery, 2000, cuStreamQuery, cuStreamQuery_ptsz) \
    WITH_THREAD(cuStreamSetAttribute, 11000, cuStreamSetAttribute, cuStreamSetAttribute_ptsz) \
    WITH_THREAD(cuStreamSynchronize, 2000, cuStreamSynchronize, cuStreamSynchronize_ptsz) \
    WITH_THREAD(cuStreamUpdateCaptureDependencies, 11030, cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies_ptsz) \
    WITH_THREAD(cuStreamUpdateCaptureDependencies, 12030, cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies_v2_ptsz) \
    WITH_THREAD(cuStreamWaitEvent, 3020, cuStreamWaitEvent, cuStreamWaitEvent_ptsz) \
    WITH_THREAD(cuStreamWaitValue32, 8000, cuStreamWaitValue32, cuStreamWaitValue32_ptsz) \
    WITH_THREAD(cuStreamWaitValue32, 11070, cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz) \
    WITH_THREAD(cuStreamWaitValue64, 9000, cuStreamWaitValue64, cuStreamWaitValue64_ptsz) \
    WITH_THREAD(cuStreamWaitValue64, 11070, cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz) \
    WITH_THREAD(cuStreamWriteValue32, 8000, cuStreamWriteValue32, cuStreamWriteValue32_ptsz) \
    WITH_THREAD(cuStreamWriteValue32, 11070, cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz) \
    WITH_THREAD(cuStreamWriteValue64, 9000, cuStreamWriteValue64, cuStreamWriteValue64_ptsz) \
    WITH_THREAD(cuStreamWriteValue64, 11070, cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz) \
    PLAIN(cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode) \
    PLAIN(cuUserObjectCreate, 11030, cuUserObjectCreate) \
    PLAIN(cuUserObjectRelease, 11030, cuUserObjectRelease) \
    PLAIN(cuUserObjectRetain, 11030, cuUserObjectRetain)
// clang-format on

#endif
