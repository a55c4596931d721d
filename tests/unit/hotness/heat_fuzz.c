/* SPDX-License-Identifier: Apache-2.0 */
/* Random use of the heat table under the sanitizers; the arguments: seed, steps, capacity. */
#include <stdio.h>
#include <stdlib.h>

#include "tierd_native.h"

enum { N = 700, SPACE = 1 << 14 };

int heat_check(const struct tierd_heat *heat);

static uint64_t state;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

int main(int argc, char **argv)
{
	static uint64_t page[N];
	static struct tierd_span span;
	static float count[N], value[N], idle[N];
	static int16_t node[N], on[N];
	static uint8_t order[N], fate[N], insert_on[256], among[1 << 16];
	uint64_t now = 1000;
	struct tierd_heat *heat;

	if (argc != 4)
		return 2;
	state = strtoull(argv[1], NULL, 10) * 2654435761U + 1;
	if (tierd_heat_new(strtoull(argv[3], NULL, 10), 2.0, 1.0, &heat) != 0)
		return 3;
	insert_on[0] = 1;
	among[1] = 1;
	for (long step = 0; step < atol(argv[2]); step++) {
		size_t n = next() % N;

		for (size_t i = 0; i < n; i++) {
			page[i] = ((next() % 2) << 48) + next() % SPACE;
			count[i] = (float)(next() % 1000) / 8.0F - 1.0F;
			node[i] = (int16_t)(next() % 6) - 2;
			order[i] = next() % 64 == 0 ? 9 : 0;
			fate[i] = next() % 8;
		}
		now += next() % 3000000000;
		switch (next() % 8) {
		case 0:
			tierd_heat_place(heat, page, node, order, n, insert_on);
			break;
		case 1:
			tierd_heat_moved(heat, page, fate, node, order, n);
			break;
		case 2:
			span.start = next() % SPACE;
			span.end = span.start + next() % SPACE;
			tierd_heat_keep(heat, next() % 2, &span, next() % 8 != 0);
			break;
		case 3:
			if (tierd_heat_select(heat, (int)(next() % 256), next() % 2, next() % 2,
					      0.5F, next() % 2 ? NULL : among, n, page, value, on,
					      order, idle) < 0)
				return 4;
			tierd_heat_where(heat, page, n, on);
			if (!(tierd_heat_least(heat, (int)(next() % 254)) >= 0.0F))
				return 5;
			break;
		default:
			tierd_heat_ingest(heat, page, count, next() % 2 ? NULL : node, n, now);
			break;
		}
		if (heat_check(heat) != 0) {
			fprintf(stderr, "unsound after step %ld\n", step);
			return 1;
		}
	}
	tierd_heat_free(heat);
	return 0;
}
