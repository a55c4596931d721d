/* SPDX-License-Identifier: Apache-2.0 */
#include "place.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { QUERY_BATCH = 1024 };

int place_prefer(int node)
{
	unsigned long mask = node < 0 ? 0 : 1ul << node;
	int mode = node < 0 ? MPOL_DEFAULT : MPOL_PREFERRED;

	if (syscall(SYS_set_mempolicy, mode, node < 0 ? NULL : &mask, node < 0 ? 0 : 64))
		return -errno;
	return 0;
}

long long place_node_free(int node)
{
	long long kib = -1;
	char line[256];
	FILE *file;

	snprintf(line, sizeof(line), "/sys/devices/system/node/node%d/meminfo", node);
	file = fopen(line, "r");
	if (!file)
		return -errno;
	while (kib < 0 && fgets(line, sizeof(line), file)) {
		const char *colon = strstr(line, "MemFree:");

		if (colon && sscanf(colon, "MemFree: %lld", &kib) != 1)
			kib = -1;
	}
	fclose(file);
	return kib < 0 ? -ENODATA : kib * 1024;
}

int place_count(const char *base, const struct layout *layout, size_t from, size_t to,
		size_t stride, size_t counts[PLACE_MAX_NODES + 1])
{
	const void *pages[QUERY_BATCH];
	int status[QUERY_BATCH];

	memset(counts, 0, (PLACE_MAX_NODES + 1) * sizeof(*counts));
	while (from < to) {
		unsigned long n = 0;

		for (; n < QUERY_BATCH && from < to; from += stride)
			pages[n++] = base + (size_t)layout->order[from] * PLACE_PAGE;
		if (syscall(SYS_move_pages, 0, n, pages, NULL, status, 0))
			return -errno;
		for (unsigned long i = 0; i < n; i++) {
			int node = status[i];

			counts[node >= 0 && node < PLACE_MAX_NODES ? node : PLACE_MAX_NODES]++;
		}
	}
	return 0;
}

int place_of(const char *base, size_t from, size_t n, int *node)
{
	const void *pages[QUERY_BATCH];

	for (size_t done = 0; done < n;) {
		unsigned long batch = n - done < QUERY_BATCH ? n - done : QUERY_BATCH;

		for (unsigned long i = 0; i < batch; i++)
			pages[i] = base + (from + done + i) * PLACE_PAGE;
		if (syscall(SYS_move_pages, 0, batch, pages, NULL, node + done, 0))
			return -errno;
		done += batch;
	}
	return 0;
}
