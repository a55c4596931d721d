/* SPDX-License-Identifier: Apache-2.0 */
#include "drv.h"

#include "tierd_gpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

struct entry {
	const char *name;
	size_t offset;
	int needed;
};

#define AT(member, name, needed) {name, offsetof(struct tg_driver, member), needed}

static const struct entry entries[] = {
    AT(init, "cuInit", 1),
    AT(device_count, "cuDeviceGetCount", 1),
    AT(device_attribute, "cuDeviceGetAttribute", 1),
    AT(device_uuid, "cuDeviceGetUuid_v2", 1),
    AT(context_retain, "cuDevicePrimaryCtxRetain", 1),
    AT(context_release, "cuDevicePrimaryCtxRelease_v2", 1),
    AT(context_push, "cuCtxPushCurrent_v2", 1),
    AT(context_pop, "cuCtxPopCurrent_v2", 1),
    AT(context_device, "cuCtxGetDevice", 1),
    AT(stream_create, "cuStreamCreate", 1),
    AT(stream_destroy, "cuStreamDestroy_v2", 1),
    AT(stream_synchronize, "cuStreamSynchronize", 1),
    AT(event_create, "cuEventCreate", 1),
    AT(event_record, "cuEventRecord", 1),
    AT(event_query, "cuEventQuery", 1),
    AT(event_synchronize, "cuEventSynchronize", 1),
    AT(event_destroy, "cuEventDestroy_v2", 1),
    AT(mem_alloc, "cuMemAlloc_v2", 1),
    AT(mem_alloc_managed, "cuMemAllocManaged", 1),
    AT(mem_free, "cuMemFree_v2", 1),
    AT(mem_info, "cuMemGetInfo_v2", 1),
    AT(prefetch_v2, "cuMemPrefetchAsync_v2", 0),
    AT(advise_v2, "cuMemAdvise_v2", 0),
    AT(prefetch_v1, "cuMemPrefetchAsync", 0),
    AT(advise_v1, "cuMemAdvise", 0),
    AT(func_param_info, "cuFuncGetParamInfo", 0),
    AT(kernel_param_info, "cuKernelGetParamInfo", 0),
    AT(stream_capturing, "cuStreamIsCapturing", 0),
    AT(graph_nodes, "cuGraphGetNodes", 0),
    AT(node_type, "cuGraphNodeGetType", 0),
    AT(kernel_node_params, "cuGraphKernelNodeGetParams_v2", 0),
    AT(child_graph, "cuGraphChildGraphNodeGetGraph", 0),
    AT(capture_mode, "cuThreadExchangeStreamCaptureMode", 0),
};

/* A preloaded shim replaces dlsym by a function that asks it first; this one does not. */
void *tg_real_dlsym(void *library, const char *name);

static int resolve(struct tg_driver *driver)
{
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		void *found = tg_real_dlsym(driver->library, entries[i].name);

		if (!found && entries[i].needed)
			return -ENOSYS;
		memcpy((char *)driver + entries[i].offset, &found, sizeof(found));
	}
	/* CUDA 13 leaves only the newer signature, under the name with the suffix. */
	if ((!driver->prefetch_v2 || !driver->advise_v2) &&
	    (!driver->prefetch_v1 || !driver->advise_v1))
		return -ENOSYS;
	return 0;
}

int tg_driver_open(struct tg_driver *driver, const char *path)
{
	int count = 0, ret;

	*driver = (struct tg_driver){0};
	driver->library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!driver->library)
		return -ENOENT;
	ret = resolve(driver);
	if (!ret && (driver->init(0) || driver->device_count(&count) || !count))
		ret = -ENODEV;
	if (ret)
		tg_driver_close(driver);
	return ret;
}

void tg_driver_close(struct tg_driver *driver)
{
	if (driver->library)
		dlclose(driver->library);
	driver->library = NULL;
}

int tg_errno(CUresult result)
{
	switch (result) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_NOT_READY:
		return -EAGAIN;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return -ENOMEM;
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
		return -ENOLINK;
	case CUDA_ERROR_DEVICE_UNAVAILABLE:
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_INVALID_DEVICE:
		return -ENODEV;
	case CUDA_ERROR_NOT_SUPPORTED:
		return -EOPNOTSUPP;
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_CONTEXT:
	case CUDA_ERROR_INVALID_HANDLE:
		return -EINVAL;
	default:
		return -EIO;
	}
}

static CUmemLocation location(int where)
{
	CUmemLocation at = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = where};

	if (where == TG_HOST)
		at = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
	return at;
}

int tg_prefetch(const struct tg_driver *driver, CUdeviceptr addr, size_t bytes, int where,
		CUstream stream)
{
	if (driver->prefetch_v2)
		return tg_errno(driver->prefetch_v2(addr, bytes, location(where), 0, stream));
	return tg_errno(
	    driver->prefetch_v1(addr, bytes, where == TG_HOST ? CU_DEVICE_CPU : where, stream));
}

int tg_advise(const struct tg_driver *driver, CUdeviceptr addr, size_t bytes, int advice, int where)
{
	if (driver->advise_v2)
		return tg_errno(driver->advise_v2(addr, bytes, advice, location(where)));
	return tg_errno(
	    driver->advise_v1(addr, bytes, advice, where == TG_HOST ? CU_DEVICE_CPU : where));
}
