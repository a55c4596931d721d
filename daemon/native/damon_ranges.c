/* SPDX-License-Identifier: Apache-2.0 */
/* The ranges that DAMON shall watch: two files of sysfs for each of hundreds. */
#define _GNU_SOURCE
#include "tierd_native.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int put(int folder, size_t i, const char *name, uint64_t value)
{
	char path[48], text[24];
	int length, file, err = 0;

	snprintf(path, sizeof(path), "%zu/%s", i, name);
	file = openat(folder, path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	if (file < 0)
		return -errno;
	length = snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	if (write(file, text, (size_t)length) != length)
		err = errno == 0 ? -EIO : -errno;
	close(file);
	return err;
}

int tierd_damon_ranges(const char *folder, const uint64_t *range, size_t n, size_t *refused)
{
	int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), err = 0;

	*refused = 0;
	if (dir < 0)
		return -errno;
	for (size_t i = 0; err == 0 && i < n; i++) {
		*refused = i;
		errno = 0;
		err = put(dir, i, "start", range[2 * i]);
		if (err == 0)
			err = put(dir, i, "end", range[2 * i + 1]);
	}
	close(dir);
	return err;
}
