/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts of the stand-in driver ("CUDA Driver API": primary context and context
 * management). A context takes memory of its GPU for each process that has one there, which
 * nothing evicts: 523 MiB on an H100 with driver 580, by cuMemGetInfo of another process.
 */
#include "driver.h"

#define CONTEXT_TAG 0x53000000u
#define DEPTH 16

static _Thread_local CUcontext stack[DEPTH];
static _Thread_local int depth;

static CUcontext context_of(int gpu)
{
	return (CUcontext)(uintptr_t)(CONTEXT_TAG + (unsigned int)gpu);
}

static CUresult hold(int slot, int gpu)
{
	struct fg_tenant *tenant = &fg_w->tenant[slot];
	struct fg_range *range;
	CUresult ret = CUDA_SUCCESS;

	if (!tenant->contexts[gpu] && fg_w->context_bytes >= FG_BLOCK_BYTES) {
		ret = fg_plain_range(fg_w->context_bytes, gpu, &range);
		if (!ret)
			tenant->context_at[gpu] = range->va;
	}
	if (!ret)
		tenant->contexts[gpu]++;
	return ret;
}

void fg_context_drop(int slot, int gpu)
{
	struct fg_tenant *tenant = &fg_w->tenant[slot];
	struct fg_range *range =
	    tenant->context_at[gpu] ? fg_find_range(tenant->context_at[gpu], slot) : NULL;

	if (range)
		fg_plain_drop(range);
	tenant->context_at[gpu] = 0;
}

FG_API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	int gpu;
	CUresult ret;

	ENTER();
	gpu = fg_gpu_of(device);
	if (gpu == FG_NONE)
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	if (fg_w->gpu[gpu].lost)
		LEAVE(CUDA_ERROR_DEVICE_UNAVAILABLE);
	ret = hold(fg_self(), gpu);
	if (!ret)
		*context = context_of(gpu);
	LEAVE(ret);
}

FG_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	struct fg_tenant *tenant;
	int gpu;

	ENTER();
	gpu = fg_gpu_of(device);
	tenant = &fg_w->tenant[fg_self()];
	if (gpu == FG_NONE || !tenant->contexts[gpu])
		LEAVE(gpu == FG_NONE ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_CONTEXT);
	if (!--tenant->contexts[gpu])
		fg_context_drop(fg_self(), gpu);
	LEAVE(CUDA_SUCCESS);
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

int fg_context_gpu(void)
{
	uintptr_t value = depth ? (uintptr_t)stack[depth - 1] : 0;

	return value >= CONTEXT_TAG ? (int)(value - CONTEXT_TAG) : FG_NONE;
}

FG_API CUresult cuCtxGetDevice(CUdevice *device)
{
	int gpu = fg_context_gpu();

	if (gpu == FG_NONE)
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = fg_ordinal_of(gpu);
	return CUDA_SUCCESS;
}
