/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's entry points, found at run time; nothing of CUDA is linked. */
#ifndef TIERD_GPU_DRV_H
#define TIERD_GPU_DRV_H

#include "cuabi.h"

struct tg_driver {
	void *library;
	CUresult (*init)(unsigned int);
	CUresult (*device_count)(int *);
	CUresult (*device_attribute)(int *, int, CUdevice);
	CUresult (*device_uuid)(unsigned char[16], CUdevice);
	CUresult (*context_retain)(CUcontext *, CUdevice);
	CUresult (*context_release)(CUdevice);
	CUresult (*context_push)(CUcontext);
	CUresult (*context_pop)(CUcontext *);
	CUresult (*context_device)(CUdevice *);
	CUresult (*stream_create)(CUstream *, unsigned int);
	CUresult (*stream_destroy)(CUstream);
	CUresult (*stream_synchronize)(CUstream);
	CUresult (*event_create)(CUevent *, unsigned int);
	CUresult (*event_record)(CUevent, CUstream);
	CUresult (*event_query)(CUevent);
	CUresult (*event_synchronize)(CUevent);
	CUresult (*event_destroy)(CUevent);
	CUresult (*mem_alloc)(CUdeviceptr *, size_t);
	CUresult (*mem_alloc_managed)(CUdeviceptr *, size_t, unsigned int);
	CUresult (*mem_free)(CUdeviceptr);
	CUresult (*mem_info)(size_t *, size_t *);
	/* 12.2 and later; else the older pair below */
	CUresult (*prefetch_v2)(CUdeviceptr, size_t, CUmemLocation, unsigned int, CUstream);
	CUresult (*advise_v2)(CUdeviceptr, size_t, int, CUmemLocation);
	CUresult (*prefetch_v1)(CUdeviceptr, size_t, CUdevice, CUstream);
	CUresult (*advise_v1)(CUdeviceptr, size_t, int, CUdevice);
	/* what launches use; any may be missing */
	CUresult (*func_param_info)(void *, size_t, size_t *, size_t *);
	CUresult (*kernel_param_info)(void *, size_t, size_t *, size_t *);
	CUresult (*stream_capturing)(CUstream, int *);
	CUresult (*graph_nodes)(void *, void **, size_t *);
	CUresult (*node_type)(void *, int *);
	CUresult (*kernel_node_params)(void *, CUDA_KERNEL_NODE_PARAMS *);
	CUresult (*child_graph)(void *, void **);
	CUresult (*capture_mode)(int *); /* exchanges the thread's */
};

/* Opens the driver (NULL: libcuda.so.1) and initialises it. 0, -ENOENT without a driver,
 * -ENOSYS when it lacks a function, -ENODEV without a device. */
int tg_driver_open(struct tg_driver *driver, const char *path);
void tg_driver_close(struct tg_driver *driver);

/* The negative errno for a CUresult. */
int tg_errno(CUresult result);
/* `where` is a device ordinal or TG_HOST. Both return a negative errno. */
int tg_prefetch(const struct tg_driver *driver, CUdeviceptr addr, size_t bytes, int where,
		CUstream stream);
int tg_advise(const struct tg_driver *driver, CUdeviceptr addr, size_t bytes, int advice,
	      int where);

#endif
