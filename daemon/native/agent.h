/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that may wait for another process for ever, made by processes of their own (agent.c). */
#ifndef TIERD_AGENT_H
#define TIERD_AGENT_H

#include <stddef.h>
#include <stdint.h>

#include "tierd_native.h"

/*
 * For each of n ranges of `length` bytes: the categories of the first page that is present there, 0
 * if none is, or a negative errno. Returns a negative errno if nothing could be found out.
 */
int agent_mapped(int pid, size_t n, void *const *address, uint64_t length, int *categories);

#endif
