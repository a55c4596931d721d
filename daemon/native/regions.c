/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions in the text of the tracepoint damon:damon_aggregated (include/trace/events/damon.h);
 * sources/damon_kernel.py reads it. There are thousands of lines a second.
 */
#define _GNU_SOURCE
#include "tierd_native.h"

#include <stdbool.h>
#include <string.h>

static const char EVENT[] = "damon_aggregated: target_id=";

/* A decimal number behind a word, both at *at; false where they are not, or it is above 64 bits. */
static inline bool field(const char **at, const char *end, const char *word, uint64_t *value)
{
	const size_t length = strlen(word);
	const char *const first = *at + length, *digit = first;

	if ((size_t)(end - *at) < length || memcmp(*at, word, length) != 0)
		return false;
	for (*value = 0; digit < end && *digit >= '0' && *digit <= '9'; digit++) {
		if (__builtin_mul_overflow(*value, 10, value) ||
		    __builtin_add_overflow(*value, (uint64_t)(*digit - '0'), value))
			return false;
	}
	*at = digit;
	return digit > first;
}

/* The event's fields behind its name: target, start, end, accesses. */
static bool fields(const char *at, const char *end, uint64_t region[4])
{
	uint64_t regions;

	return field(&at, end, "", &region[0]) && field(&at, end, " nr_regions=", &regions) &&
	       field(&at, end, " ", &region[1]) && field(&at, end, "-", &region[2]) &&
	       field(&at, end, ": ", &region[3]);
}

/* The event's name in a line: mostly where it was in the one before. */
static const char *event_in(const char *line, const char *stop, size_t column)
{
	const size_t length = (size_t)(stop - line), name = sizeof(EVENT) - 1;

	if (column + name <= length && memcmp(line + column, EVENT, name) == 0)
		return line + column;
	return memmem(line, length, EVENT, name);
}

size_t tierd_damon_regions(const char *text, size_t length, uint64_t *region, size_t most)
{
	const char *const end = text + length;
	size_t found = 0, column = 0;

	while (text < end && found < most) {
		const char *const line = memchr(text, '\n', (size_t)(end - text));
		const char *const stop = line == NULL ? end : line;
		const char *event = event_in(text, stop, column);

		if (event != NULL) {
			column = (size_t)(event - text);
			found += fields(event + sizeof(EVENT) - 1, stop, region + 4 * found);
		}
		text = stop + 1;
	}
	return found;
}
