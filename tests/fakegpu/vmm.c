/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses apart from memory ("CUDA Driver API": virtual memory management), and the
 * driver's own directory of entry points. Memory made here is never evicted; it goes
 * when its handle is released and nothing maps it (cuMemRelease).
 */
#include "driver.h"

#include <string.h>
#include <sys/mman.h>

FG_API CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop,
					      int option)
{
	(void)prop;
	(void)option;
	*bytes = FG_BLOCK_BYTES;
	return CUDA_SUCCESS;
}

FG_API CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment,
				    CUdeviceptr wanted, unsigned long long flags)
{
	uint64_t at;
	void *map;

	(void)alignment;
	(void)wanted;
	if (!bytes || bytes % FG_BLOCK_BYTES || flags)
		return CUDA_ERROR_INVALID_VALUE;
	map = mmap(NULL, bytes + FG_BLOCK_BYTES, PROT_NONE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	at = ((uint64_t)(uintptr_t)map + FG_BLOCK_BYTES - 1) / FG_BLOCK_BYTES * FG_BLOCK_BYTES;
	if (fg_lock())
		return CUDA_ERROR_NO_DEVICE;
	if (fg_range_new(at, bytes, fg_self(), FG_RESERVED) < 0)
		at = 0;
	fg_unlock();
	*out = at;
	return at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

FG_API CUresult cuMemAddressFree(CUdeviceptr addr, size_t bytes)
{
	struct fg_range *range;

	(void)bytes;
	if (fg_lock())
		return CUDA_ERROR_NO_DEVICE;
	range = fg_find_range(addr, fg_self());
	if (range && range->kind == FG_RESERVED)
		fg_range_drop(range);
	else
		range = NULL;
	fg_unlock();
	return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void unreference(struct fg_range *range)
{
	if (!--range->refs)
		fg_range_drop(range);
}

FG_API CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
			    const CUmemAllocationProp *prop, unsigned long long flags)
{
	int where, index;
	uint64_t when;
	CUresult ret = CUDA_SUCCESS;

	if (flags || bytes % FG_BLOCK_BYTES || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (fg_lock())
		return CUDA_ERROR_NO_DEVICE;
	where = fg_location(&prop->location);
	when = fg_w->now;
	if (fg_w->fail_allocations > 0) {
		fg_w->fail_allocations--;
		fg_unlock();
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	/* A handle has no address; one that no mapping can have keeps it apart. */
	index = where == FG_NONE ? -1 : fg_range_new(0, bytes, fg_self(), FG_DEVICE);
	if (index < 0) {
		fg_unlock();
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	fg_w->range[index].va = ((uint64_t)1 << 62) + ((uint64_t)index << 44);
	for (int32_t i = 0; !ret && i < fg_w->range[index].blocks; i++) {
		struct fg_block *block = fg_block_at(fg_w->range[index].first + i);

		if (where != FG_HOST) {
			block->frame[where] =
			    fg_frame_take(where, fg_w->range[index].first + i, fg_self(), &when);
			if (block->frame[where] == FG_NONE) {
				ret = CUDA_ERROR_OUT_OF_MEMORY;
				break;
			}
		} else {
			memset(fg_host_bytes(block), 0, fg_w->payload);
		}
		block->resident = 1u << where;
	}
	if (ret)
		fg_range_drop(&fg_w->range[index]);
	*out = (CUmemGenericAllocationHandle)index + 1;
	fg_block_until(when);
	fg_unlock();
	return ret;
}

static struct fg_range *handle_range(CUmemGenericAllocationHandle handle)
{
	struct fg_range *range;

	if (!handle || handle > FG_MAX_RANGES)
		return NULL;
	range = &fg_w->range[handle - 1];
	return range->kind == FG_DEVICE && range->owner == fg_self() ? range : NULL;
}

FG_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct fg_range *range;

	if (fg_lock())
		return CUDA_ERROR_NO_DEVICE;
	range = handle_range(handle);
	if (range)
		unreference(range);
	fg_unlock();
	return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FG_API CUresult cuMemMap(CUdeviceptr addr, size_t bytes, size_t offset,
			 CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct fg_range *range;
	CUresult ret = CUDA_SUCCESS;

	if (offset || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (fg_lock())
		return CUDA_ERROR_NO_DEVICE;
	range = handle_range(handle);
	if (!range || (uint64_t)range->blocks * FG_BLOCK_BYTES != bytes)
		ret = CUDA_ERROR_INVALID_VALUE;
	for (int32_t i = 0; !ret && i < range->blocks; i++) {
		struct fg_block *slot = fg_slot(addr + (uint64_t)i * FG_BLOCK_BYTES);

		if (!slot || slot->kind != FG_RESERVED) {
			ret = CUDA_ERROR_INVALID_VALUE;
			break;
		}
		slot->kind = FG_MAPPED;
		slot->target = range->first + i;
	}
	if (!ret)
		range->refs++;
	fg_unlock();
	return ret;
}

FG_API CUresult cuMemUnmap(CUdeviceptr addr, size_t bytes)
{
	struct fg_block *slot;
	struct fg_range *range;

	if (fg_lock())
		return CUDA_ERROR_NO_DEVICE;
	slot = fg_slot(addr);
	if (!slot || slot->kind != FG_MAPPED) {
		fg_unlock();
		return CUDA_ERROR_INVALID_VALUE;
	}
	range = &fg_w->range[fg_block_at(slot->target)->range];
	for (uint64_t at = 0; at < bytes; at += FG_BLOCK_BYTES) {
		slot = fg_slot(addr + at);
		slot->kind = FG_RESERVED;
		slot->target = FG_NONE;
	}
	unreference(range);
	fg_unlock();
	return CUDA_SUCCESS;
}

FG_API CUresult cuMemSetAccess(CUdeviceptr addr, size_t bytes, const CUmemAccessDesc *desc,
			       size_t count)
{
	struct fg_block *slot;

	(void)bytes;
	(void)desc;
	if (fg_lock())
		return CUDA_ERROR_NO_DEVICE;
	slot = fg_slot(addr);
	fg_unlock();
	return slot && slot->kind == FG_MAPPED && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FG_API CUresult cuGetErrorName(CUresult error, const char **name)
{
	*name = error ? "CUDA_ERROR" : "CUDA_SUCCESS";
	return CUDA_SUCCESS;
}

#define DECLARE(name) extern char name##_symbol __asm__(#name);
CU_NAMES(DECLARE)

static const struct {
	const char *name;
	void *entry;
} directory[] = {
#define ENTRY(name) {#name, &name##_symbol},
    CU_NAMES(ENTRY)
#undef ENTRY
};

static void *look_up(const char *name, const char *suffix)
{
	char whole[64];

	for (size_t i = 0; i < sizeof(directory) / sizeof(directory[0]); i++) {
		size_t length = strlen(name);

		if (length + strlen(suffix) >= sizeof(whole))
			return NULL;
		memcpy(whole, name, length);
		strcpy(whole + length, suffix);
		if (!strcmp(directory[i].name, whole))
			return directory[i].entry;
	}
	return NULL;
}

/* Names come without a version suffix; the newest of the asked version is given. */
FG_API CUresult cuGetProcAddress_v2(const char *name, void **entry, int version,
				    unsigned long long flags, int *status)
{
	(void)flags;
	*entry =
	    version >= 12020 || (strcmp(name, "cuMemAdvise") && strcmp(name, "cuMemPrefetchAsync"))
		? look_up(name, "_v2")
		: NULL;
	if (!*entry)
		*entry = look_up(name, "");
	if (status)
		*status = *entry ? 0 : 1;
	return *entry ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

FG_API CUresult cuGetProcAddress(const char *name, void **entry, int version,
				 unsigned long long flags)
{
	return cuGetProcAddress_v2(name, entry, version, flags, NULL);
}
