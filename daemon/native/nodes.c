/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of nodes: their zones, from a few lines of the kernel's zoneinfo, and how near and wide it
 * is, measured from this CPU.
 *
 * What is measured is a chase through lines of a buffer there in random order, each step of which
 * waits for the one before, and a read of the whole buffer in order. The buffer's lines are flushed
 * from the caches before each measurement, so that it can be small. The latency is the least of
 * several passes: whatever disturbs one makes it longer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys.h"

enum { PASSES = 3, POLICY_BIND = 2, NODE_BITS = 1024, WORD = 64 };

int tierd_zones(const char *path, struct tierd_node_zones *nodes, size_t most)
{
	struct tierd_node_zones *zone = NULL;
	FILE *file = fopen(path, "re");
	size_t n = 0, size = 0;
	char *text = NULL;

	if (file == NULL)
		return -errno;
	while (getline(&text, &size, file) > 0) {
		const char *line = text + strspn(text, " ");
		unsigned long pages;
		int node;

		/* Zones of a node, of which there may be several, follow one another. */
		if (*line == 'N' && sscanf(line, "Node %d", &node) == 1) {
			if (zone != NULL && zone->node == node)
				continue;
			zone = n < most ? &nodes[n++] : NULL;
			if (zone != NULL)
				*zone = (struct tierd_node_zones){.node = node};
		} else if (zone != NULL && *line == 'h' && sscanf(line, "high %lu", &pages) == 1) {
			zone->high_pages += pages;
		} else if (zone != NULL && *line == 'c' &&
			   sscanf(line, "count: %lu", &pages) == 1) {
			zone->held_pages += pages;
		}
	}
	free(text);
	fclose(file);
	return (int)n;
}

/* A cache line; its first word is the line that a chase reads next. */
typedef uint64_t line[8];

static void flush(const line *memory, size_t lines)
{
#if defined(__x86_64__)
	for (size_t i = 0; i < lines; i++)
		__asm__ volatile("clflush (%0)" ::"r"(memory[i]) : "memory");
	__asm__ volatile("mfence" ::: "memory");
#else
	(void)memory;
	(void)lines;
#endif
}

/* Sattolo's algorithm: one cycle through all lines. */
static void link_lines(line *memory, size_t lines)
{
	uint64_t state = 88172645463325252u;

	for (size_t i = 0; i < lines; i++)
		memory[i][0] = i;
	for (size_t i = lines - 1; i > 0; i--) {
		uint64_t *one = memory[i], *other, next = *one;

		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		other = memory[state % i];
		*one = *other;
		*other = next;
	}
}

static double chase_ns(const line *memory, size_t lines, size_t steps)
{
	uint64_t at = 0, begun;

	flush(memory, lines);
	begun = sys_monotonic_ns();
	for (size_t i = 0; i < steps; i++)
		at = memory[at][0];
	__asm__ volatile("" ::"r"(at));
	return (double)(sys_monotonic_ns() - begun) / (double)steps;
}

static double stream_bytes_per_s(const volatile line *memory, size_t lines)
{
	uint64_t begun, took;

	flush((const line *)memory, lines);
	begun = sys_monotonic_ns();
	for (size_t i = 0; i < lines; i++)
		(void)memory[i][0];
	took = sys_monotonic_ns() - begun;
	return took > 0 ? (double)(lines * sizeof(*memory)) * 1e9 / (double)took : 0;
}

int tierd_probe_node(int node, size_t bytes, size_t steps, double *latency_ns,
		     double *bandwidth_bytes_per_s)
{
	unsigned long mask[NODE_BITS / WORD] = {0};
	const size_t lines = bytes / sizeof(line);
	int err = 0;
	line *memory;

	if (node < 0 || node >= NODE_BITS || lines < 2 || steps == 0)
		return -EINVAL;
	mask[node / WORD] = 1ul << (node % WORD);
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return -errno;
	if (syscall(SYS_mbind, memory, bytes, POLICY_BIND, mask, NODE_BITS, 0) != 0)
		err = -errno;
	else
		link_lines(memory, lines);
	*latency_ns = INFINITY;
	*bandwidth_bytes_per_s = 0;
	for (unsigned int pass = 0; err == 0 && pass < PASSES; pass++) {
		*latency_ns = fmin(*latency_ns, chase_ns(memory, lines, steps));
		*bandwidth_bytes_per_s =
		    fmax(*bandwidth_bytes_per_s, stream_bytes_per_s(memory, lines));
	}
	munmap(memory, bytes);
	return err;
}
