/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where instructions go: how often each translated block was executed in the region, by whose turn
 * it was. Exact, and slow. Owns: the counts and their file. Must not touch: QEMU, or what a block
 * is a part of (tests/bench/tiering/hotspots.py finds out). One vCPU, whose callbacks are not
 * locked.
 */
#ifndef TIERD_LAB_PROFILE_H
#define TIERD_LAB_PROFILE_H

#include "timing.h"

#include <stdint.h>

struct profile_block;

/* The block of so many instructions at `vaddr`; NULL without memory, which is counted. */
struct profile_block *profile_block(uint64_t vaddr, uint32_t instructions);

/* It is executed while it is the turn of a process of `owner`. */
void profile_executed(struct profile_block *block, enum timing_owner owner);

/* The region begins anew. */
void profile_clear(void);

/*
 * Writes the blocks that were executed, a line each: address (hexadecimal), instructions, and
 * executions by owner in the order of enum timing_owner; at last `dropped N`, blocks that there was
 * no memory for. 0 or -errno.
 */
int profile_write(const char *path);

#endif
