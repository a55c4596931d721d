/* SPDX-License-Identifier: Apache-2.0 */
/* The zones of nodes, from a few lines of the kernel's zoneinfo. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tierd_native.h"

enum { PIECE = 1 << 16 };

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
