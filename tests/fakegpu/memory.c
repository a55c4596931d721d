/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the stand-in driver ("CUDA Driver API": memory management, unified
 * addressing): allocation, prefetch, advice.
 *
 * Memory is not cleared by an allocation (cuMemAlloc, cuMemAllocManaged: "The memory is
 * not cleared"); what a driver clears between processes is the world's `scrub`.
 */
#include "driver.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CU_DEVICE_INVALID (-2)

/* Measured on an H100, driver 580: cuMemGetInfo, cuMemAdvise, and what one that leaves one
 * of two copies takes beside (three calls, 86 us). */
#define INFO_NS 6400u
#define ADVICE_NS 2800u

static uint64_t reserve_addresses(uint64_t bytes)
{
	uint64_t padded = bytes + FG_BLOCK_BYTES, at;
	void *map =
	    mmap(NULL, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (map == MAP_FAILED)
		return 0;
	at = ((uint64_t)(uintptr_t)map + FG_BLOCK_BYTES - 1) / FG_BLOCK_BYTES * FG_BLOCK_BYTES;
	if (at > (uint64_t)(uintptr_t)map)
		munmap(map, at - (uint64_t)(uintptr_t)map);
	munmap((void *)(uintptr_t)(at + bytes), (uint64_t)(uintptr_t)map + padded - at - bytes);
	return at;
}

/* Shows the host's copy of the blocks at their addresses. */
static void show_to_cpu(const struct fg_range *range)
{
	uint64_t at = fg_w->host_arena_at + (uint64_t)range->first * FG_BLOCK_BYTES;
	uint64_t bytes = (uint64_t)range->blocks * FG_BLOCK_BYTES;
	void *arena = (char *)fg_w + at;

	if (fg_w->payload != FG_BLOCK_BYTES || range->kind != FG_MANAGED)
		return;
	/* A second mapping of the same pages; the first stays where it is. */
	mremap(arena, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)(uintptr_t)range->va);
	mprotect((void *)(uintptr_t)range->va, bytes, PROT_NONE);
}

static CUresult new_range(uint64_t bytes, enum fg_kind kind, struct fg_range **out)
{
	uint64_t whole = (bytes + FG_BLOCK_BYTES - 1) / FG_BLOCK_BYTES * FG_BLOCK_BYTES, at;
	int index;

	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (fg_w->fail_allocations > 0) {
		fg_w->fail_allocations--;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	at = reserve_addresses(whole);
	if (!at)
		return CUDA_ERROR_OUT_OF_MEMORY;
	index = fg_range_new(at, bytes, fg_self(), kind);
	if (index < 0) {
		munmap((void *)(uintptr_t)at, whole);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = &fg_w->range[index];
	show_to_cpu(*out);
	return CUDA_SUCCESS;
}

static void drop_range(struct fg_range *range)
{
	munmap((void *)(uintptr_t)range->va, (uint64_t)range->blocks * FG_BLOCK_BYTES);
	fg_range_drop(range);
}

FG_API CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags)
{
	struct fg_range *range;
	CUresult ret;

	if (fg_lock())
		return CUDA_ERROR_NO_DEVICE;
	(void)flags;
	ret = fg_context_gpu() == FG_NONE ? CUDA_ERROR_INVALID_CONTEXT
					  : new_range(bytes, FG_MANAGED, &range);
	if (!ret)
		*out = range->va;
	fg_unlock();
	return ret;
}

int fg_plain_range(uint64_t bytes, int gpu, struct fg_range **out)
{
	struct fg_range *range = NULL;
	uint64_t when = fg_present();
	CUresult ret = new_range(bytes, FG_DEVICE, &range);

	for (int32_t i = 0; !ret && i < range->blocks; i++) {
		struct fg_block *block = fg_block_at(range->first + i);
		int32_t frame = fg_frame_take(gpu, range->first + i, fg_self(), &when);

		if (frame == FG_NONE) {
			drop_range(range);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		block->frame[gpu] = frame;
		block->resident = 1u << gpu;
	}
	fg_spend_until(when);
	if (!ret)
		*out = range;
	return ret;
}

void fg_plain_drop(struct fg_range *range)
{
	drop_range(range);
}

FG_API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
	int gpu = fg_context_gpu();
	struct fg_range *range;
	CUresult ret;

	if (fg_lock())
		return CUDA_ERROR_NO_DEVICE;
	ret = fg_unsafe_call();
	if (!ret)
		ret = gpu == FG_NONE ? CUDA_ERROR_INVALID_CONTEXT
				     : fg_plain_range(bytes, gpu, &range);
	if (!ret)
		*out = range->va;
	fg_unlock();
	return ret;
}

/* "Takes a pointer to the base of an existing device memory allocation created with
 * cuMemAlloc": managed memory is refused (measured as well). */
FG_API CUresult cuIpcGetMemHandle(void *handle, CUdeviceptr addr)
{
	struct fg_range *range;

	if (fg_lock())
		return CUDA_ERROR_NO_DEVICE;
	range = fg_find_range(addr, fg_self());
	if (range && range->kind == FG_DEVICE)
		memcpy(handle, &range->va, sizeof(range->va));
	else
		range = NULL;
	fg_unlock();
	return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FG_API CUresult cuMemFree_v2(CUdeviceptr addr)
{
	struct fg_range *range;

	if (fg_lock())
		return CUDA_ERROR_NO_DEVICE;
	range = fg_find_range(addr, fg_self());
	if (range && range->va == addr)
		drop_range(range);
	else
		range = NULL;
	fg_unlock();
	return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FG_API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	int device = fg_context_gpu();

	if (fg_lock())
		return CUDA_ERROR_NO_DEVICE;
	if (device != FG_NONE) {
		fg_reap();
		fg_spend(INFO_NS);
		*free_bytes = (size_t)fg_w->gpu[device].list[FG_ON_FREE].count * FG_BLOCK_BYTES;
		*total = (size_t)fg_w->gpu[device].frames * FG_BLOCK_BYTES;
	}
	fg_unlock();
	return device == FG_NONE ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

/*
 * What a prefetch takes beside the link's time, of managed memory of an H100 on PCIe 5 with
 * driver 580 (2 MiB, 32 MiB and 512 MiB at a time): to a GPU 80 us, most of it in the call,
 * whatever the size; to the host 55 us, and at most 14.7 GB/s. Two of one process follow each
 * other, in opposite directions as well (512 MiB each way: 36 and 11.5 ms alone, 52.6 together),
 * and advice waits for the call (uvm_migrate.c and uvm_policy.c: the address space's lock). One to
 * the host ends in the call (uvm_migrate.c: the CPU's mapping waits for the copy). Not measured, as
 * there was one GPU: between GPUs, taken to cost what it costs to a GPU.
 */
#define TO_GPU_NS 80000u
#define TO_HOST_NS 55000u
#define THERE_NS 5500u /* of what is there already */

static bool all_there(CUdeviceptr addr, uint64_t end, int to)
{
	for (; addr < end; addr += FG_BLOCK_BYTES) {
		const struct fg_block *block = fg_find(addr);

		if (!block || block->op != FG_NONE || !(block->resident & 1u << to))
			return false;
	}
	return true;
}

static CUresult prefetch_block(struct fg_block *block, int to, struct fg_stream *stream,
			       uint64_t *when)
{
	CUresult ret;

	if (!block || block->kind != FG_MANAGED)
		return CUDA_ERROR_INVALID_VALUE;
	ret = fg_migrate(block, to, FG_BLOCK_BYTES, when, (int)(stream - fg_w->stream));
	if (!ret && to == FG_HOST)
		fg_wait_block(block, when);
	if (!ret)
		block->last_prefetch = (int16_t)to;
	return ret;
}

static CUresult prefetch(CUdeviceptr addr, size_t bytes, int to, CUstream handle)
{
	struct fg_tenant *tenant = &fg_w->tenant[fg_self()];
	struct fg_stream *stream = fg_stream_of(handle);
	uint64_t end = addr + bytes, when;
	CUresult ret = CUDA_SUCCESS;

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	/* uvm_migrate.c: the destination must be registered with the address space, which
	 * is what a context there does. */
	if (to == FG_NONE || (to != FG_HOST && !tenant->contexts[to]))
		return CUDA_ERROR_INVALID_DEVICE;
	if (all_there(addr, end, to)) {
		fg_spend(THERE_NS);
		return CUDA_SUCCESS;
	}
	when = fg_stream_start(stream);
	if (tenant->moving_until > when)
		when = tenant->moving_until;
	when += to == FG_HOST ? TO_HOST_NS : TO_GPU_NS;
	fg_spend(to == FG_HOST ? 0 : TO_GPU_NS);
	tenant->locked_until = fg_present();
	for (; !ret && addr < end; addr += FG_BLOCK_BYTES)
		ret = prefetch_block(fg_find(addr), to, stream, &when);
	stream->tail = tenant->moving_until = when;
	if (to == FG_HOST) {
		fg_spend_until(when);
		tenant->locked_until = when;
	}
	return ret;
}

static CUmemLocation old_style(CUdevice device)
{
	CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};

	if (device == CU_DEVICE_CPU)
		location.type = CU_MEM_LOCATION_TYPE_HOST;
	return location;
}

FG_API CUresult cuMemPrefetchAsync_v2(CUdeviceptr addr, size_t bytes, CUmemLocation to,
				      unsigned int flags, CUstream stream)
{
	CUresult ret;

	fg_wait_while_held();
	if (fg_lock())
		return CUDA_ERROR_NO_DEVICE;
	ret = flags ? CUDA_ERROR_INVALID_VALUE : prefetch(addr, bytes, fg_location(&to), stream);
	fg_unlock();
	return ret;
}

FG_API CUresult cuMemPrefetchAsync(CUdeviceptr addr, size_t bytes, CUdevice to, CUstream stream)
{
	return cuMemPrefetchAsync_v2(addr, bytes, old_style(to), 0, stream);
}

static CUresult advise(struct fg_block *block, int advice, int where)
{
	if (advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION) {
		block->preferred = FG_NONE;
		return CUDA_SUCCESS;
	}
	if (where == FG_NONE)
		return CUDA_ERROR_INVALID_DEVICE;
	if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION)
		block->preferred = (int16_t)where;
	else if (advice == CU_MEM_ADVISE_SET_ACCESSED_BY)
		block->accessed_by |= 1u << where;
	else if (advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY)
		block->accessed_by &= ~(1u << where);
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

FG_API CUresult cuMemAdvise_v2(CUdeviceptr addr, size_t bytes, int advice, CUmemLocation location)
{
	uint64_t end = addr + bytes;
	CUresult ret = CUDA_SUCCESS;

	if (fg_lock())
		return CUDA_ERROR_NO_DEVICE;
	fg_spend_until(fg_w->tenant[fg_self()].locked_until);
	fg_spend(ADVICE_NS);
	for (; !ret && addr < end; addr += FG_BLOCK_BYTES) {
		struct fg_block *block = fg_find(addr);

		ret = block && block->kind == FG_MANAGED
			  ? advise(block, advice, fg_location(&location))
			  : CUDA_ERROR_INVALID_VALUE;
	}
	fg_unlock();
	return ret;
}

FG_API CUresult cuMemAdvise(CUdeviceptr addr, size_t bytes, int advice, CUdevice device)
{
	return cuMemAdvise_v2(addr, bytes, advice, old_style(device));
}

static int told(int where)
{
	if (where == FG_HOST)
		return CU_DEVICE_CPU;
	return where == FG_NONE ? CU_DEVICE_INVALID : fg_ordinal_of(where);
}

FG_API CUresult cuMemRangeGetAttribute(void *data, size_t size, int attribute, CUdeviceptr addr,
				       size_t bytes)
{
	struct fg_block *block;
	int value = 0;

	if (fg_lock())
		return CUDA_ERROR_NO_DEVICE;
	(void)bytes;
	block = fg_find(addr);
	if (block && attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION)
		value = told(block->preferred);
	else if (block && attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION)
		value = told(block->last_prefetch);
	else
		block = NULL;
	fg_unlock();
	if (!block || size != sizeof(value))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(data, &value, sizeof(value));
	return CUDA_SUCCESS;
}
