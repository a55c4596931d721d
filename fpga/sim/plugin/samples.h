/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples of cache misses in the window (NPW_SAMPLES_* of ../../include/neoprof_window.h).
 * Owns: that part of the window. Must not touch: whose accesses they are.
 */
#ifndef TIERD_LAB_SAMPLES_H
#define TIERD_LAB_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

/* Without a window that is long enough nothing is sampled. 0, or -1 after a message on stderr. */
int samples_open(const char *window);

/* An access to the page with that virtual number missed the cache. One thread at a time. */
void samples_miss(unsigned int node, uint64_t page, bool store);

#endif
