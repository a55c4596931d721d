/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels do to memory: hit, read in place, or fault; and the harness's view of it.
 *
 * A fault on a block costs FAULT_NS of handling beside the transfer. Batches of UVM
 * faults take 20 to 50 us to serve (Allen and Ge, "In-Depth Analyses of Unified Virtual
 * Memory System for GPU Accelerated Computing", SC 2021); one 2 MiB block is one batch
 * here. Reads in place move half of what the link could: they are small packets.
 */
#include "world.h"

#include <errno.h>

#define FAULT_NS 30000u
#define REMOTE_FACTOR 2u

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
	uint64_t begin = *when;
	int32_t lanes[2];
	int from, status;

	fg_wait_block(block, when);
	if (block->resident & 1u << gpu) {
		if (write && fg_make_writable(block, gpu))
			*when += FAULT_NS;
		return gpu;
	}
	from = block->preferred;
	if (block->accessed_by & 1u << gpu && from != FG_NONE && block->resident & 1u << from) {
		uint64_t moved = (uint64_t)bytes * REMOTE_FACTOR;

		if (write)
			fg_make_writable(block, from);
		*when = write ? fg_transfer(gpu, from, moved, *when, lanes)
			      : fg_transfer(from, gpu, moved, *when, lanes);
		stats->remote_bytes += bytes;
		return from;
	}
	*when += FAULT_NS;
	status = fg_migrate(block, gpu, when, FG_NONE);
	if (status)
		return -status;
	fg_wait_block(block, when);
	if (write)
		fg_make_writable(block, gpu);
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
