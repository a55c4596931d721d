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
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys.h"

enum { PIECE = 1 << 16, LINE = 64, PASSES = 3, POLICY_BIND = 2, NODE_BITS = 1024, WORD = 64 };

/* A whole file, ended by a NUL; NULL and errno. */
static char *read_all(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t size = 0, length = 0;
	char *text = NULL;
	ssize_t got = fd == -1 ? -1 : 1;

	while (got > 0) {
		if (length + 1 >= size) {
			char *larger = realloc(text, size = 2 * size + PIECE);

			if (larger == NULL) {
				got = -1;
				break;
			}
			text = larger;
		}
		got = read(fd, text + length, size - 1 - length);
		length += got > 0 ? (size_t)got : 0;
	}
	if (fd != -1)
		close(fd);
	if (got == 0) {
		text[length] = '\0';
		return text;
	}
	free(text);
	return NULL;
}

/* What follows `name` (of `size` bytes) at `at`, as a number of pages; 0 for another line. */
static uint64_t pages_after(const char *at, const char *name, size_t size)
{
	return strncmp(at, name, size) == 0 ? strtoull(at + size, NULL, 10) : 0;
}

/* The entry of a node, made if there is none; NULL if there is no place for it. */
static struct tierd_node_zones *entry_of(struct tierd_node_zones *nodes, size_t *n, size_t most,
					 int node)
{
	for (size_t i = 0; i < *n; i++) {
		if (nodes[i].node == node)
			return &nodes[i];
	}
	if (*n == most)
		return NULL;
	nodes[*n] = (struct tierd_node_zones){.node = node};
	return &nodes[(*n)++];
}

int tierd_zones(const char *path, struct tierd_node_zones *nodes, size_t most)
{
	static const char NODE[] = "Node ", HIGH[] = "high ", COUNT[] = "count:";
	struct tierd_node_zones *zone = NULL;
	size_t n = 0;
	const char *line;
	char *text = read_all(path);

	if (text == NULL)
		return -errno;
	for (line = text; line != NULL; line = strchr(line, '\n')) {
		if (*line == '\n')
			line++;
		while (*line == ' ')
			line++;
		/* Zones of a node, of which there may be several, follow one another. */
		if (*line == 'N' && strncmp(line, NODE, sizeof(NODE) - 1) == 0)
			zone = entry_of(nodes, &n, most, atoi(line + sizeof(NODE) - 1));
		else if (zone != NULL && *line == 'h')
			zone->high_pages += pages_after(line, HIGH, sizeof(HIGH) - 1);
		else if (zone != NULL && *line == 'c')
			zone->held_pages += pages_after(line, COUNT, sizeof(COUNT) - 1);
	}
	free(text);
	return (int)n;
}

static void flush(const unsigned char *memory, size_t bytes)
{
#if defined(__x86_64__)
	for (size_t at = 0; at < bytes; at += LINE)
		__asm__ volatile("clflush (%0)" ::"r"(memory + at) : "memory");
	__asm__ volatile("mfence" ::: "memory");
#else
	(void)memory;
	(void)bytes;
#endif
}

/* Sattolo's algorithm: one cycle through all lines. Each line's first word is the next one. */
static void link_lines(unsigned char *memory, size_t lines)
{
	uint64_t state = 88172645463325252u;

	for (size_t i = 0; i < lines; i++)
		memcpy(memory + i * LINE, &i, sizeof(i));
	for (size_t i = lines - 1; i > 0; i--) {
		size_t j, one, other;

		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		j = (size_t)(state % i);
		memcpy(&one, memory + i * LINE, sizeof(one));
		memcpy(&other, memory + j * LINE, sizeof(other));
		memcpy(memory + i * LINE, &other, sizeof(other));
		memcpy(memory + j * LINE, &one, sizeof(one));
	}
}

static double chase_ns(const unsigned char *memory, size_t lines, size_t steps)
{
	volatile size_t sink;
	size_t at = 0;
	uint64_t begun;

	flush(memory, lines * LINE);
	begun = sys_monotonic_ns();
	for (size_t i = 0; i < steps; i++)
		memcpy(&at, memory + at * LINE, sizeof(at));
	sink = at;
	(void)sink;
	return (double)(sys_monotonic_ns() - begun) / (double)steps;
}

static double stream_bytes_per_s(const unsigned char *memory, size_t bytes)
{
	const volatile uint64_t *words = (const volatile uint64_t *)(const void *)memory;
	uint64_t sum = 0, begun, took;

	flush(memory, bytes);
	begun = sys_monotonic_ns();
	for (size_t i = 0; i < bytes / sizeof(*words); i += LINE / sizeof(*words))
		sum += words[i];
	took = sys_monotonic_ns() - begun;
	(void)sum;
	return took > 0 ? (double)bytes * 1e9 / (double)took : 0;
}

int tierd_probe_node(int node, size_t bytes, size_t steps, double *latency_ns,
		     double *bandwidth_bytes_per_s)
{
	unsigned long mask[NODE_BITS / WORD] = {0};
	const size_t lines = bytes / LINE;
	unsigned char *memory;

	if (node < 0 || node >= NODE_BITS || lines < 2 || steps == 0)
		return -EINVAL;
	mask[node / WORD] = 1ul << (node % WORD);
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return -errno;
	if (syscall(SYS_mbind, memory, bytes, POLICY_BIND, mask, NODE_BITS, 0) != 0) {
		int err = errno;

		munmap(memory, bytes);
		return -err;
	}
	link_lines(memory, lines);
	*latency_ns = 0;
	*bandwidth_bytes_per_s = 0;
	for (unsigned int pass = 0; pass < PASSES; pass++) {
		double latency = chase_ns(memory, lines, steps);
		double bandwidth = stream_bytes_per_s(memory, bytes);

		if (pass == 0 || latency < *latency_ns)
			*latency_ns = latency;
		if (bandwidth > *bandwidth_bytes_per_s)
			*bandwidth_bytes_per_s = bandwidth;
	}
	munmap(memory, bytes);
	return 0;
}
