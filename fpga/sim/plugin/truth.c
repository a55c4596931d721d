/* SPDX-License-Identifier: Apache-2.0 */
#include "truth.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int truth_init(struct truth *truth, const struct options *options)
{
	const uint64_t block = 1ull << TRUTH_BLOCK_LOG2;
	uint64_t end = 0;

	memset(truth, 0, sizeof(*truth));
	for (unsigned int i = 0; i < options->range_count; i++) {
		const struct range *range = &options->ranges[i];

		if ((range->base | range->size) % block || range->node >= TRUTH_NODES_MAX)
			return -EINVAL;
		if (range->base + range->size > end)
			end = range->base + range->size;
	}
	truth->page_count = end >> TRUTH_PAGE_LOG2;
	if (!truth->page_count)
		return -EINVAL;
	truth->node_of = malloc(end >> TRUTH_BLOCK_LOG2);
	/* Mapped, so that pages nothing touches cost nothing. */
	truth->pages = mmap(NULL, truth->page_count * sizeof(*truth->pages), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!truth->node_of || truth->pages == MAP_FAILED)
		return -ENOMEM;
	memset(truth->node_of, TRUTH_NODES_MAX, end >> TRUTH_BLOCK_LOG2);
	for (unsigned int i = 0; i < options->range_count; i++) {
		const struct range *range = &options->ranges[i];

		memset(truth->node_of + (range->base >> TRUTH_BLOCK_LOG2), (int)range->node,
		       range->size >> TRUTH_BLOCK_LOG2);
	}
	return 0;
}

void truth_clear(struct truth *truth)
{
	madvise(truth->pages, truth->page_count * sizeof(*truth->pages), MADV_DONTNEED);
	memset(truth->nodes, 0, sizeof(truth->nodes));
	truth->outside = 0;
}

int truth_write_pages(const struct truth *truth, const char *path)
{
	FILE *file = fopen(path, "wb");
	int err = 0;

	if (!file)
		return -errno;
	if (fwrite(truth->pages, sizeof(*truth->pages), truth->page_count, file) !=
	    truth->page_count)
		err = -EIO;
	if (fclose(file) && !err)
		err = -errno;
	return err;
}

void truth_print_nodes(const struct truth *truth, FILE *out)
{
	const char *comma = "";

	fputs("\"nodes\": {", out);
	for (unsigned int i = 0; i < TRUTH_NODES_MAX; i++) {
		const struct truth_node *node = &truth->nodes[i];

		if (!node->reads && !node->writes)
			continue;
		fprintf(out, "%s\"%u\": {\"reads\": %" PRIu64 ", \"writes\": %" PRIu64 "}", comma,
			i, node->reads, node->writes);
		comma = ", ";
	}
	fprintf(out, "}, \"outside\": %" PRIu64,
		truth->outside + truth->nodes[TRUTH_NODES_MAX].reads +
		    truth->nodes[TRUTH_NODES_MAX].writes);
}
