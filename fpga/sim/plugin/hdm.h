/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A card's HDM decoders: the CXL HDM Decoder Capability Structure (CXL r3.1, 8.2.4.20), written
 * and read back, and host-physical to device addresses and back through them.
 * Owns: the layout. Must not touch: who reads it. Only decoders that do not interleave (one way).
 */
#ifndef TIERD_LAB_HDM_H
#define TIERD_LAB_HDM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	HDM_DECODERS_MAX = 10,
	HDM_BYTES = 0x10 + 0x20 * HDM_DECODERS_MAX, /* of the structure at its largest */
};

#define HDM_GRANULE (256ull << 20) /* base, size and skip are multiples of it */

/* One decoder: host-physical [base, base + size); `skip` bytes of the device are left out before
 * it. `device` follows from the decoders before: hdm_write() and hdm_read() fill it in. */
struct hdm_decoder {
	uint64_t base, size, skip, device;
};

struct hdm {
	struct hdm_decoder decoders[HDM_DECODERS_MAX];
	unsigned int count;
};

/* Writes the structure, committed and enabled, into HDM_BYTES at `block`. 0, or -EINVAL: too many
 * decoders, a misaligned or empty one, or host ranges that do not ascend. */
int hdm_write(struct hdm *hdm, uint8_t *block);

/* What a structure says: its committed decoders. 0, or -EINVAL: an unknown count, a decoder that
 * interleaves; the unit not being enabled gives no decoder. */
int hdm_read(struct hdm *hdm, const uint8_t *block);

/* False: no decoder has the address. */
bool hdm_to_device(const struct hdm *hdm, uint64_t host, uint64_t *device);
bool hdm_to_host(const struct hdm *hdm, uint64_t device, uint64_t *host);

#endif
