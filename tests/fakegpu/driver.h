/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points of the stand-in driver that its own files use of each other. */
#ifndef FAKEGPU_DRIVER_H
#define FAKEGPU_DRIVER_H

#include "world.h"

/* First and last words of an entry point: the world is locked in between. */
#define ENTER()                                                                                    \
	do {                                                                                       \
		if (fg_lock())                                                                     \
			return CUDA_ERROR_NO_DEVICE;                                               \
	} while (0)
#define LEAVE(result)                                                                              \
	do {                                                                                       \
		CUresult leave_ = (result);                                                        \
		fg_unlock();                                                                       \
		return leave_;                                                                     \
	} while (0)

int fg_context_gpu(void);      /* of the calling thread, or FG_NONE */
CUresult fg_unsafe_call(void); /* what a capture under way says to one */

#define FG_UUID_FORMAT "GPU-fafafafa-fafa-fafa-fafa-fafafafafa%02x"
/* The stream behind a handle; NULL and the default streams have one for each device. */
struct fg_stream *fg_stream_of(CUstream handle);
uint64_t fg_stream_start(const struct fg_stream *stream);
int fg_location(const CUmemLocation *location); /* FG_NONE: not one of this world's */

/* clang-format off */
#define CU_NAMES(X) \
	X(cuInit) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) \
	X(cuDeviceGetAttribute) X(cuDeviceTotalMem_v2) X(cuDeviceGetUuid_v2) \
	X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2) X(cuCtxSetCurrent) \
	X(cuCtxGetCurrent) X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) X(cuCtxGetDevice) \
	X(cuCtxSynchronize) X(cuDeviceCanAccessPeer) X(cuStreamCreate) X(cuStreamDestroy_v2) \
	X(cuStreamSynchronize) X(cuStreamQuery) X(cuStreamWaitEvent) X(cuEventCreate) \
	X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) X(cuEventDestroy_v2) \
	X(cuMemAlloc_v2) X(cuMemAllocManaged) X(cuMemFree_v2) X(cuMemGetInfo_v2) \
	X(cuMemPrefetchAsync) X(cuMemPrefetchAsync_v2) X(cuMemAdvise) X(cuMemAdvise_v2) \
	X(cuMemRangeGetAttribute) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) \
	X(cuMemcpyDtoDAsync_v2) X(cuMemsetD8Async) X(cuGetProcAddress) X(cuGetProcAddress_v2) \
	X(cuGetErrorName) X(cuIpcGetMemHandle) \
	X(cuThreadExchangeStreamCaptureMode) X(cuStreamBeginCapture_v2) X(cuStreamEndCapture) \
	X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuLibraryGetKernel) \
	X(cuFuncGetParamInfo) X(cuKernelGetParamInfo) X(cuLaunchKernel) X(cuStreamIsCapturing)
/* clang-format on */

#endif
