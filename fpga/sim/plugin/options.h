/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin's arguments, in this order of keys where it matters:
 *
 *   window=PATH        file behind the ivshmem device, NPW_BYTES long; needed
 *   dump=PATH          truth is dumped to PATH.json and PATH.pages
 *   icount=SHIFT       the machine runs with -icount shift=SHIFT
 *   cache=BYTES:WAYS:LINE   last-level cache (2097152:16:64)
 *   node=ID:BASE:SIZE  host-physical range of a node, any number of them
 *   card=PATH          a card, simulated by that library; the next ones are about it:
 *   width=LOG2, ring=SLOTS, clock=CYCLES_PER_100US   as np_card_open() takes them
 *   decoder=BASE:SIZE:SKIP   an HDM decoder of it, in host-physical order
 *   time=PS:MLP        model time: picoseconds an instruction, percent of misses that overlap
 *   pace=200           ... and the guest's clock follows it, about so many microseconds behind
 *   profile=PATH       ... and blocks are counted (profile.h), for PATH
 *   speed=ID:PS:MBPS   ... latency and bandwidth (MB/s) of a node
 *   start=boot         watch memory from the first instruction on (else from a mark)
 *
 * Numbers are decimal, or hexadecimal with 0x.
 */
#ifndef TIERD_LAB_OPTIONS_H
#define TIERD_LAB_OPTIONS_H

#include "hdm.h"

#include "../../include/neoprof_window.h"

#include <stdbool.h>
#include <stdint.h>

enum { OPTIONS_RANGES_MAX = 32, OPTIONS_SPEEDS_MAX = 32 };

struct speed {
	unsigned int node;
	uint64_t latency_ps, bandwidth_mb;
};

struct range {
	unsigned int node;
	uint64_t base, size;
};

struct card_options {
	const char *library;
	unsigned int log2_width, ring, cycles_per_100us;
	struct hdm hdm;
};

struct options {
	const char *window, *dump, *profile;
	int icount; /* below 0: none */
	uint64_t cache_bytes;
	unsigned int cache_ways, cache_line;
	bool from_boot;
	unsigned int pace_us;
	unsigned int instruction_ps, mlp_percent; /* 0: no model of time */
	struct speed speeds[OPTIONS_SPEEDS_MAX];
	unsigned int speed_count;
	struct range ranges[OPTIONS_RANGES_MAX];
	unsigned int range_count;
	struct card_options cards[NPW_CARDS_MAX];
	unsigned int card_count;
};

/* 0, or -1 after a message on stderr that names the argument. Texts stay those of argv. */
int options_parse(struct options *options, int argc, char **argv);

#endif
