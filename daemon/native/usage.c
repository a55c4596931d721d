/* SPDX-License-Identifier: Apache-2.0 */
/* Memory use of nodes, from a few lines of the kernel's texts. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tierd_native.h"

enum { PIECE = 1 << 16 };

/* A whole file, ended by a NUL; NULL and a negative errno. */
static char *read_all(const char *path, int *error)
{
	size_t size = PIECE, length = 0;
	char *text = malloc(size);
	ssize_t got;
	int fd;

	*error = -ENOMEM;
	if (text == NULL)
		return NULL;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd == -1) {
		*error = -errno;
		free(text);
		return NULL;
	}
	while ((got = read(fd, text + length, size - 1 - length)) > 0) {
		char *larger;

		length += (size_t)got;
		if (length + 1 < size)
			continue;
		larger = realloc(text, 2 * size);
		if (larger == NULL)
			break;
		text = larger;
		size *= 2;
	}
	if (got < 0)
		*error = -errno;
	close(fd);
	if (got != 0) {
		free(text);
		return NULL;
	}
	text[length] = '\0';
	return text;
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
	int error;
	char *text = read_all(path, &error);

	if (text == NULL)
		return error;
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

/* What follows `name` in a text, in bytes; false if it is not there. */
static bool kilobytes_after(const char *text, const char *name, uint64_t *bytes)
{
	const char *at = strstr(text, name);
	char *end;

	if (at == NULL)
		return false;
	at += strlen(name);
	*bytes = strtoull(at, &end, 10) * 1024;
	return end != at && strncmp(end, " kB", 3) == 0;
}

int tierd_node_memory(const char *path, uint64_t *total, uint64_t *free_bytes)
{
	/* Total and free are the first two lines. */
	char text[1024];
	ssize_t length;
	int fd = open(path, O_RDONLY | O_CLOEXEC), error;

	if (fd == -1)
		return -errno;
	length = read(fd, text, sizeof(text) - 1);
	error = errno;
	close(fd);
	if (length < 0)
		return -error;
	text[length] = '\0';
	return kilobytes_after(text, "MemTotal:", total) &&
		       kilobytes_after(text, "MemFree:", free_bytes)
		   ? 0
		   : -EINVAL;
}
