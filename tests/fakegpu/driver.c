/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices and contexts of the stand-in driver ("CUDA Driver API": device, primary context
 * and context management; entry point access).
 */
#include "driver.h"

#include <stdio.h>
#include <string.h>

#define CONTEXT_TAG 0x53000000u
#define DEPTH 16
#define VERSION 12080

static _Thread_local CUcontext stack[DEPTH];
static _Thread_local int depth;

FG_API CUresult cuInit(unsigned int flags)
{
	ENTER();
	LEAVE(flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}

FG_API CUresult cuDriverGetVersion(int *version)
{
	*version = VERSION;
	return CUDA_SUCCESS;
}

FG_API CUresult cuDeviceGetCount(int *count)
{
	ENTER();
	*count = fg_w->gpus;
	LEAVE(CUDA_SUCCESS);
}

static bool valid(int device)
{
	return device >= 0 && device < fg_w->gpus;
}

FG_API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	ENTER();
	*device = ordinal;
	LEAVE(valid(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

FG_API CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
	ENTER();
	snprintf(name, (size_t)size, "Stand-in %s", fg_w->name);
	LEAVE(valid(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

FG_API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
	ENTER();
	if (!valid(device))
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		*value = 0x10 + device;
		break;
	case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
		*value = 1;
		break;
	default:
		*value = 0;
	}
	LEAVE(CUDA_SUCCESS);
}

FG_API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	ENTER();
	if (!valid(device))
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	*bytes = (size_t)fg_w->gpu[device].frames * FG_BLOCK_BYTES;
	LEAVE(CUDA_SUCCESS);
}

FG_API CUresult cuDeviceGetUuid_v2(unsigned char uuid[16], CUdevice device)
{
	ENTER();
	memset(uuid, 0xfa, 16);
	uuid[15] = (unsigned char)device;
	LEAVE(valid(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

FG_API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	ENTER();
	if (!valid(device) || !valid(peer))
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	*can = device != peer;
	LEAVE(CUDA_SUCCESS);
}

static CUcontext context_of(int device)
{
	return (CUcontext)(uintptr_t)(CONTEXT_TAG + (unsigned int)device);
}

FG_API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	ENTER();
	if (!valid(device))
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	if (fg_w->gpu[device].lost)
		LEAVE(CUDA_ERROR_DEVICE_UNAVAILABLE);
	fg_w->tenant[fg_self()].contexts |= 1u << device;
	*context = context_of(device);
	LEAVE(CUDA_SUCCESS);
}

FG_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	ENTER();
	LEAVE(valid(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

FG_API CUresult cuCtxSetCurrent(CUcontext context)
{
	if (!depth)
		depth = 1;
	stack[depth - 1] = context;
	return CUDA_SUCCESS;
}

FG_API CUresult cuCtxGetCurrent(CUcontext *context)
{
	*context = depth ? stack[depth - 1] : NULL;
	return CUDA_SUCCESS;
}

FG_API CUresult cuCtxPushCurrent_v2(CUcontext context)
{
	if (depth == DEPTH)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack[depth++] = context;
	return CUDA_SUCCESS;
}

FG_API CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (context)
		*context = stack[depth];
	return CUDA_SUCCESS;
}

int fg_context_device(void)
{
	uintptr_t value = depth ? (uintptr_t)stack[depth - 1] : 0;

	return value >= CONTEXT_TAG ? (int)(value - CONTEXT_TAG) : FG_NONE;
}

FG_API CUresult cuCtxGetDevice(CUdevice *device)
{
	*device = fg_context_device();
	return *device == FG_NONE ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

int fg_location(const CUmemLocation *location)
{
	if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
		return valid(location->id) ? location->id : FG_NONE;
	if (location->type == CU_MEM_LOCATION_TYPE_HOST ||
	    location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
		return FG_HOST;
	return FG_NONE;
}
