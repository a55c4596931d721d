/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices of the stand-in driver ("CUDA Driver API": device management).
 */
#include "driver.h"

#include <stdio.h>
#include <string.h>

#define VERSION 12080

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
	*count = fg_visible_count();
	LEAVE(CUDA_SUCCESS);
}

static bool valid(int device)
{
	return fg_gpu_of(device) != FG_NONE;
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
		*value = 0x10 + fg_gpu_of(device);
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
	*bytes = (size_t)fg_w->gpu[fg_gpu_of(device)].frames * FG_BLOCK_BYTES;
	LEAVE(CUDA_SUCCESS);
}

FG_API CUresult cuDeviceGetUuid_v2(unsigned char uuid[16], CUdevice device)
{
	ENTER();
	memset(uuid, 0xfa, 16);
	uuid[15] = (unsigned char)fg_gpu_of(device);
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

int fg_location(const CUmemLocation *location)
{
	if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
		return fg_gpu_of(location->id);
	if (location->type == CU_MEM_LOCATION_TYPE_HOST ||
	    location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
		return FG_HOST;
	return FG_NONE;
}
