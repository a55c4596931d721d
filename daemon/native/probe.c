/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How near and how wide a node's memory is, measured from this CPU with a buffer there.
 *
 * A stream reads the whole buffer in order. A chase then goes through some lines of the buffer's
 * first half in random order, where each step waits for the one before. It is timed in blocks of
 * TIERD_PROBE_STEPS, so that a few slow accesses are told from many. What is read is flushed from
 * the caches before. Where a CPU cannot be asked to flush, the stream through the second half
 * has pushed the chase's lines out of caches that are not larger.
 *
 * The buffer is kept, and locked, from one measurement to the next: to have the kernel clear and
 * free it takes longer than what is measured.
 */
#define _GNU_SOURCE
#include <errno.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pagekey.h"
#include "sys.h"

enum { PARTS = 16, POLICY_BIND = 2, STRICT = 1, NODE_BITS = 1024, WORD = 64 };

/* A cache line; its first word is the line that a chase reads next. */
typedef uint64_t line[8];

struct tierd_probe {
	line *memory;
	/* What is mapped: more than the buffer, which begins at a huge page. */
	void *mapped;
	size_t bytes;
	size_t lines;
	size_t blocks;
	/* Lines from one that is chased to the next. */
	size_t stride;
	unsigned long mask[NODE_BITS / WORD];
};

static void flush(const line *memory, size_t lines, size_t stride)
{
#if defined(__x86_64__)
	unsigned int eax, ebx = 0, ecx, edx;

	/* CLFLUSHOPT need not wait for the flush before. */
	__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx);
	for (size_t i = 0; i < lines; i++)
		if (ebx & bit_CLFLUSHOPT)
			__asm__ volatile("clflushopt (%0)" ::"r"(memory[i * stride]) : "memory");
		else
			__asm__ volatile("clflush (%0)" ::"r"(memory[i * stride]) : "memory");
	__asm__ volatile("mfence" ::: "memory");
#else
	(void)memory;
	(void)lines;
	(void)stride;
#endif
}

/* Sattolo's algorithm: one cycle through `lines` lines, `stride` apart. */
static void link_lines(line *memory, size_t lines, size_t stride)
{
	uint64_t state = 88172645463325252u;

	for (size_t i = 0; i < lines; i++)
		memory[i * stride][0] = i * stride;
	for (size_t i = lines - 1; i > 0; i--) {
		uint64_t *one = memory[i * stride], *other, next = *one;

		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		other = memory[state % i * stride];
		*one = *other;
		*other = next;
	}
}

/* How often another thread took this one's CPU from it. */
static long preemptions(void)
{
	struct rusage usage;

	return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

/* Times of blocks that nobody interrupted, 0 for others; how many there are. */
static size_t chase(const line *memory, uint32_t *block_ns, size_t blocks)
{
	size_t whole = 0;
	uint64_t at = 0;

	for (size_t block = 0; block < blocks; block++) {
		const long before = preemptions();
		const uint64_t begun = sys_monotonic_ns();
		uint64_t took;

		for (unsigned int step = 0; step < TIERD_PROBE_STEPS; step++)
			at = memory[at][0];
		__asm__ volatile("" ::"r"(at));
		took = sys_monotonic_ns() - begun;
		block_ns[block] = 0;
		if (preemptions() == before && took > 0) {
			block_ns[block] = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
			whole++;
		}
	}
	return whole;
}

/* Bytes a second, of the parts of the buffer that nobody interrupted; 0 where those are few. */
static double stream(const volatile line *memory, size_t lines)
{
	const size_t part = lines / PARTS;
	uint64_t total = 0;
	unsigned int whole = 0;

	for (unsigned int i = 0; i < PARTS; i++, memory += part) {
		const long before = preemptions();
		const uint64_t begun = sys_monotonic_ns();
		uint64_t took;

		for (size_t at = 0; at < part; at++)
			(void)memory[at][0];
		took = sys_monotonic_ns() - begun;
		if (preemptions() == before) {
			total += took;
			whole++;
		}
	}
	if (whole < PARTS / 2 || total == 0)
		return 0;
	return (double)(whole * part * sizeof(line)) * 1e9 / (double)total;
}

static long bind_memory(const struct tierd_probe *probe, unsigned int flags)
{
	return syscall(SYS_mbind, probe->memory, probe->bytes, POLICY_BIND, probe->mask, NODE_BITS,
		       flags);
}

int tierd_probe_open(int node, size_t bytes, size_t blocks, struct tierd_probe **out)
{
	const size_t lines = bytes / sizeof(line), chased = blocks * TIERD_PROBE_STEPS;
	struct tierd_probe *probe;
	int err;

	if (node < 0 || node >= NODE_BITS || blocks == 0 || blocks > lines || chased > lines / 2 ||
	    lines < PARTS)
		return -EINVAL;
	probe = malloc(sizeof(*probe));
	if (probe == NULL)
		return -ENOMEM;
	/* An odd number of lines, so that the chase's lines are of all sets of a cache. */
	*probe = (struct tierd_probe){.bytes = bytes,
				      .lines = lines,
				      .blocks = blocks,
				      .stride = (lines / 2 / chased - 1) | 1};
	probe->mask[node / WORD] = 1ul << (node % WORD);
	probe->mapped = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (probe->mapped == MAP_FAILED) {
		err = -errno;
		free(probe);
		return err;
	}
	probe->memory =
	    (line *)(((uintptr_t)probe->mapped + HUGE_BYTES - 1) & -(uintptr_t)HUGE_BYTES);
	/* In 2 MiB pages where the kernel has them: else translations are a part of each read. */
	(void)madvise(probe->memory, bytes, MADV_HUGEPAGE);
	if (bind_memory(probe, 0) != 0 || madvise(probe->memory, bytes, MADV_POPULATE_WRITE) != 0) {
		err = -errno;
		tierd_probe_close(probe);
		return err;
	}
	link_lines(probe->memory, chased, probe->stride);
	/* What was written is written back now, also where the CPU cannot be asked to flush. */
	stream((const line *)probe->memory, lines);
	*out = probe;
	/* Unlocked, the kernel could demote it, and a later measurement would be of another node.
	 */
	return mlock(probe->memory, bytes) == 0 ? 0 : 1;
}

int tierd_probe_run(struct tierd_probe *probe, uint32_t *block_ns, double *bandwidth_bytes_per_s)
{
	const line *const memory = (const line *)probe->memory;

	/* Who takes a part of the node offline moves the buffer to another one, EIO says. */
	if (bind_memory(probe, STRICT) != 0)
		return -errno;
	flush(memory, probe->lines, 1);
	*bandwidth_bytes_per_s = stream(memory, probe->lines);
	flush(memory, probe->blocks * TIERD_PROBE_STEPS, probe->stride);
	if (chase(memory, block_ns, probe->blocks) < (probe->blocks + 1) / 2)
		return -EAGAIN;
	return *bandwidth_bytes_per_s > 0 ? 0 : -EAGAIN;
}

void tierd_probe_close(struct tierd_probe *probe)
{
	munmap(probe->mapped, probe->bytes + HUGE_BYTES);
	free(probe);
}
