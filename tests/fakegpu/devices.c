/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of the world's GPUs a process sees, and under which ordinal ("CUDA C Programming
 * Guide", CUDA environment variables: CUDA_VISIBLE_DEVICES has indices or the beginnings
 * of UUIDs, in the order of the ordinals; one that is none ends the list).
 */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int gpu_of[FG_MAX_GPUS];
static int visible;

static int gpu_named(const char *name, size_t length)
{
	char uuid[64], *end;
	long index = strtol(name, &end, 10);

	if (end == name + length && end != name)
		return index >= 0 && index < fg_w->gpus ? (int)index : FG_NONE;
	for (int g = 0; g < fg_w->gpus && length > 4; g++) {
		snprintf(uuid, sizeof(uuid), FG_UUID_FORMAT, (unsigned int)g);
		if (!strncmp(uuid, name, length))
			return g;
	}
	return FG_NONE;
}

void fg_devices_find(void)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");

	visible = 0;
	if (!list)
		for (; visible < fg_w->gpus; visible++)
			gpu_of[visible] = visible;
	while (list && visible < fg_w->gpus) {
		size_t length = strcspn(list, ",");
		int g = gpu_named(list, length);

		if (g == FG_NONE)
			break;
		gpu_of[visible++] = g;
		list = list[length] ? list + length + 1 : NULL;
	}
}

int fg_gpu_of(int ordinal)
{
	return ordinal >= 0 && ordinal < visible ? gpu_of[ordinal] : FG_NONE;
}

int fg_ordinal_of(int gpu)
{
	for (int i = 0; i < visible; i++)
		if (gpu_of[i] == gpu)
			return i;
	return FG_NONE;
}

int fg_visible_count(void)
{
	return visible;
}
