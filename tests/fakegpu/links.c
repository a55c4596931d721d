/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Link graphs and the time that transfers take. A transfer holds every lane of its path
 * for latency + bytes / narrowest lane, after those before it: no sharing within a lane,
 * but for kernels' accesses in place.
 */
#include "world.h"

#include <errno.h>
#include <string.h>

/* Lane numbers: pairs first, then PCIe up and down, then switch up and down. */
enum { PAIR = 0, PCIE_UP = FG_MAX_GPUS * FG_MAX_GPUS };
#define PCIE_DOWN (PCIE_UP + FG_MAX_GPUS)
#define SWITCH_UP (PCIE_UP + 2 * FG_MAX_GPUS)
#define SWITCH_DOWN (PCIE_UP + 3 * FG_MAX_GPUS)

#define GIB ((uint64_t)1 << 30)
#define TO_HOST_RATE 14.7 /* bytes a ns: managed memory to the host, whatever the link */

static void lane(struct fg_world *w, int index, double gbytes_per_s, uint64_t latency_ns)
{
	w->lane[index] = (struct fg_lane){
	    .bytes_per_ns = gbytes_per_s,
	    .latency_ns = latency_ns,
	    .exists = true,
	};
}

/* `pcie` and `hbm` in GB/s a direction. */
static void gpus(struct fg_world *w, int count, uint64_t bytes, double pcie, double hbm)
{
	w->gpus = count;
	for (int g = 0; g < count; g++) {
		if (!w->gpu[g].total_bytes)
			w->gpu[g].total_bytes = bytes;
		w->gpu[g].hbm_bytes_per_ns = hbm;
		lane(w, PCIE_UP + g, pcie, 1500);
		lane(w, PCIE_DOWN + g, pcie, 1500);
	}
}

/*
 * "v100x4": the hybrid cube of a DGX-1's first four GPUs, NVLink 2: 25 GB/s a link and
 * direction, 48 measured on doubled pairs; PCIe 3 x16 gives about 12. "h100x8": NVLink 4
 * through NVSwitch, 18 links of 25 GB/s, PCIe 5. "pcie4": four GPUs on PCIe 4 alone.
 */
void fg_links_setup(struct fg_world *w)
{
	static const int v100[4][4] = {{0, 1, 1, 2}, {1, 0, 2, 1}, {1, 2, 0, 2}, {2, 1, 2, 0}};

	if (!strcmp(w->name, "v100x4")) {
		gpus(w, 4, 16 * GIB, 12.0, 900.0);
		for (int a = 0; a < 4; a++)
			for (int b = 0; b < 4; b++) {
				w->nvlinks[a][b] = v100[a][b];
				if (a != b)
					lane(w, PAIR + a * FG_MAX_GPUS + b,
					     v100[a][b] == 2 ? 48.0 : 25.0, 1300);
			}
	} else if (!strcmp(w->name, "h100x8")) {
		gpus(w, 8, 80 * GIB, 50.0, 3350.0);
		w->switched = true;
		for (int a = 0; a < 8; a++) {
			lane(w, SWITCH_UP + a, 400.0, 700);
			lane(w, SWITCH_DOWN + a, 400.0, 700);
			for (int b = 0; b < 8; b++)
				w->nvlinks[a][b] = a == b ? 0 : 18;
		}
	} else {
		gpus(w, 4, 24 * GIB, 24.0, 900.0);
	}
}

static bool works(int index)
{
	return fg_w->lane[index].exists && !fg_w->lane[index].down;
}

int fg_lanes(int from, int to, int32_t out[2])
{
	int pair = PAIR + from * FG_MAX_GPUS + to;

	out[0] = out[1] = FG_NONE;
	if (from == FG_HOST) {
		out[0] = PCIE_DOWN + to;
		return 1;
	}
	if (to == FG_HOST) {
		out[0] = PCIE_UP + from;
		return 1;
	}
	if (works(pair)) {
		out[0] = pair;
		return 1;
	}
	if (works(SWITCH_UP + from) && works(SWITCH_DOWN + to)) {
		out[0] = SWITCH_UP + from;
		out[1] = SWITCH_DOWN + to;
		return 2;
	}
	out[0] = PCIE_UP + from; /* peer traffic over PCIe */
	out[1] = PCIE_DOWN + to;
	return 2;
}

double fg_bandwidth(int from, int to)
{
	int32_t lanes[2];
	double least = 0.0;

	if (from == to)
		return fg_w->gpu[from].hbm_bytes_per_ns;
	for (int i = 0, n = fg_lanes(from, to, lanes); i < n; i++)
		if (!i || fg_w->lane[lanes[i]].bytes_per_ns < least)
			least = fg_w->lane[lanes[i]].bytes_per_ns;
	return to == FG_HOST && least > TO_HOST_RATE ? TO_HOST_RATE : least;
}

/* Takes memory bandwidth from the kernels that run on the GPU. */
static void contend(int gpu, uint64_t bytes)
{
	if (gpu != FG_HOST)
		fg_w->gpu[gpu].debt_ns +=
		    (uint64_t)((double)bytes / fg_w->gpu[gpu].hbm_bytes_per_ns);
}

uint64_t fg_transfer(int from, int to, uint64_t bytes, uint64_t ready, int32_t lanes[2])
{
	int count = fg_lanes(from, to, lanes);
	uint64_t start = ready, latency = 0, end;

	for (int i = 0; i < count; i++) {
		struct fg_lane *l = &fg_w->lane[lanes[i]];

		start = l->busy_until > start ? l->busy_until : start;
		latency = l->latency_ns > latency ? l->latency_ns : latency;
	}
	end = start + latency + (uint64_t)((double)bytes / fg_bandwidth(from, to));
	for (int i = 0; i < count; i++) {
		fg_w->lane[lanes[i]].busy_until = end;
		fg_w->lane[lanes[i]].carried += bytes;
	}
	contend(from, bytes);
	contend(to, bytes);
	return end;
}

/*
 * A kernel's accesses in place: small packets, which do not wait for a copy that is under
 * way but share the path with it, each at half of its rate. Copies that are already on
 * their way end as was said; those after them start later.
 */
uint64_t fg_access(int from, int to, uint64_t bytes, uint64_t ready)
{
	int32_t lanes[2];
	int count = fg_lanes(from, to, lanes);
	uint64_t alone = (uint64_t)((double)bytes / fg_bandwidth(from, to)), latency = 0, busy = 0;

	for (int i = 0; i < count; i++) {
		struct fg_lane *l = &fg_w->lane[lanes[i]];
		uint64_t ahead = l->busy_until > ready ? l->busy_until - ready : 0;

		busy = ahead > busy ? ahead : busy;
		latency = l->latency_ns > latency ? l->latency_ns : latency;
	}
	busy = busy < 2 * alone ? busy : 2 * alone; /* of the time that this takes */
	for (int i = 0; i < count; i++) {
		struct fg_lane *l = &fg_w->lane[lanes[i]];

		l->busy_until = (l->busy_until > ready ? l->busy_until : ready) + alone;
		l->carried += bytes;
	}
	contend(from, bytes);
	contend(to, bytes);
	return ready + latency + alone + busy / 2;
}

int fg_path(int from, int to, uint64_t *carried, double *bytes_per_s)
{
	int32_t lanes[2];

	if (fg_lock())
		return -ENODEV;
	fg_lanes(from, to, lanes);
	if (carried)
		*carried = fg_w->lane[lanes[0]].carried;
	if (bytes_per_s)
		*bytes_per_s = fg_bandwidth(from, to) * 1e9;
	fg_unlock();
	return 0;
}

int fg_link_set(int a, int b, int up)
{
	int32_t lanes[2];

	if (fg_lock())
		return -ENODEV;
	for (int turn = 0; turn < 2; turn++) {
		int from = turn ? b : a, to = turn ? a : b;
		int pair = PAIR + from * FG_MAX_GPUS + to;

		if (!fg_w->lane[pair].exists && !up) {
			fg_unlock();
			return -ENXIO; /* only direct links break one by one */
		}
		if (!up) {
			fg_lanes(from, to, lanes);
			fg_fail_lane(pair, CUDA_ERROR_NVLINK_UNCORRECTABLE);
		}
		fg_w->lane[pair].down = !up;
		fg_w->lane[pair].busy_until = fg_w->now;
	}
	fg_unlock();
	return 0;
}
