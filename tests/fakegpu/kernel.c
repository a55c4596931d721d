/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels do to memory: hit, read in place, or fault; and the harness's view of it.
 *
 * Faults on a block on the host, measured on an H100 with driver 580 (PCIe 5, 42 us for a
 * block's bytes): 21 us where a kernel touches one word of it, 162 us for one in each
 * 64 KiB, 320 to 367 us for all of its pages: several batches a block, each of which
 * brings 64 KiB, or more where many are touched. A block is at one place as a whole here,
 * which spares the driver the faults on what it left behind. Reads in place go at the
 * link's rate (42 us for a block that is read whole), measured over PCIe.
 */
#include "world.h"

#include <errno.h>

#define FAULT_NS 20000u		     /* the first page that is touched */
#define FAULT_FEW_NS 3200u	     /* each further one of the first 32 */
#define FAULT_MANY_NS 330u	     /* and of the others */
#define BROUGHT ((uint64_t)64 << 10) /* at least, for each page */
#define FEW 32u

static uint64_t fault_ns(uint64_t pages)
{
	uint64_t few = pages < FEW ? pages : FEW;

	return FAULT_NS + (few - 1) * FAULT_FEW_NS + (pages - few) * FAULT_MANY_NS;
}

static uint64_t mix64(uint64_t z)
{
	z += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static uint64_t hash_words(const uint64_t *words, uint32_t count)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (uint32_t i = 0; i < count; i++)
		hash = (hash ^ words[i]) * 0x100000001b3u;
	return hash;
}

uint64_t fg_hash_of(uint64_t value)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (uint32_t i = 0; i < fg_w->payload / 8; i++)
		hash = (hash ^ mix64(value + i)) * 0x100000001b3u;
	return hash;
}

/* Memory time that copies took since the last kernel; at most this kernel's own time. */
static uint64_t contention(struct fg_gpu *gpu, bool idle, uint64_t compute_ns)
{
	uint64_t debt = gpu->debt_ns;

	if (idle)
		debt = 0;
	if (debt > compute_ns)
		debt = compute_ns;
	gpu->debt_ns = idle ? 0 : gpu->debt_ns - debt;
	gpu->stats.contention_ns += debt;
	return debt;
}

/* Brings the block where the kernel can use it. Returns where that is, or -CUresult. */
static int reach(struct fg_block *block, int gpu, uint32_t bytes, int write, uint64_t *when)
{
	struct fg_gpu_stats *stats = &fg_w->gpu[gpu].stats;
	uint64_t pages = (bytes + 4095) / 4096, begin = *when, brought;
	int from, status;

	fg_wait_block(block, when);
	if (block->resident & 1u << gpu)
		return gpu;
	from = block->preferred;
	if (block->accessed_by & 1u << gpu && from != FG_NONE && block->resident & 1u << from) {
		*when =
		    write ? fg_access(gpu, from, bytes, *when) : fg_access(from, gpu, bytes, *when);
		stats->remote_bytes += bytes;
		return from;
	}
	pages = pages ? pages : 1;
	brought = pages * BROUGHT < FG_BLOCK_BYTES ? pages * BROUGHT : FG_BLOCK_BYTES;
	*when += fault_ns(pages);
	status = fg_migrate(block, gpu, brought, when, FG_NONE);
	if (status)
		return -status;
	fg_wait_block(block, when);
	stats->faults++;
	stats->fault_ns += *when - begin;
	return gpu;
}

static uint64_t run(struct fg_block *block, int gpu, uint32_t bytes, int write, uint64_t value,
		    uint64_t compute_ns, uint64_t not_before, uint64_t *hash, int *status)
{
	struct fg_tenant *tenant = &fg_w->tenant[fg_self()];
	uint64_t tail = tenant->kernel_tail[gpu];
	uint64_t when = tail > not_before ? tail : not_before;
	uint64_t *words;
	int where;

	if (fg_w->now > when)
		when = fg_w->now;
	where = reach(block, gpu, bytes, write, &when);
	if (where < 0) {
		*status = -where;
		return 0;
	}
	words = (uint64_t *)(void *)fg_bytes(block, where);
	if (write)
		for (uint32_t i = 0; i < fg_w->payload / 8; i++)
			words[i] = mix64(value + i);
	else if (hash)
		*hash = hash_words(words, fg_w->payload / 8);
	when += compute_ns + contention(&fg_w->gpu[gpu], not_before > tail + 1, compute_ns);
	fg_w->gpu[gpu].stats.kernel_ns += compute_ns;
	tenant->kernel_tail[gpu] = when;
	fg_block_until(when);
	return when;
}

uint64_t fg_kernel(int gpu, uint64_t addr, uint32_t bytes, int write, uint64_t value,
		   uint64_t compute_ns, uint64_t not_before, uint64_t *hash, int *status)
{
	struct fg_block *block;
	uint64_t end = 0;
	int dummy;

	status = status ? status : &dummy;
	*status = 0;
	if (fg_lock()) {
		*status = CUDA_ERROR_NO_DEVICE;
		return 0;
	}
	block = fg_find(addr);
	if (!block)
		*status = CUDA_ERROR_ILLEGAL_ADDRESS;
	else if (block->lost)
		*status = CUDA_ERROR_LAUNCH_FAILED;
	else if (fg_w->gpu[gpu].lost)
		*status = CUDA_ERROR_DEVICE_UNAVAILABLE;
	else
		end = run(block, gpu, bytes, write, value, compute_ns, not_before, hash, status);
	fg_unlock();
	return end;
}

uint64_t fg_compute(int gpu, uint64_t compute_ns, uint64_t not_before)
{
	uint64_t end = not_before + compute_ns;

	if (fg_lock())
		return end;
	end += contention(&fg_w->gpu[gpu], false, compute_ns);
	fg_w->gpu[gpu].stats.kernel_ns += compute_ns;
	fg_unlock();
	return end;
}

uint32_t fg_residency(uint64_t addr)
{
	struct fg_block *block;
	uint32_t mask = 0;

	if (fg_lock())
		return 0;
	block = fg_find(addr);
	if (block)
		mask = block->resident | (block->lost ? 1u << 31 : 0);
	fg_unlock();
	return mask;
}

int fg_device_lose(int gpu)
{
	if (fg_lock())
		return -ENODEV;
	fg_w->gpu[gpu].lost = true;
	fg_lose_blocks(gpu);
	fg_unlock();
	return 0;
}
