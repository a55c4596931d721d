/* SPDX-License-Identifier: Apache-2.0 */
#include "hdm.h"

#include <errno.h>
#include <string.h>

/* CXL r3.1, 8.2.4.20: offsets in the structure and bits of its registers. */
enum {
	CAPABILITY = 0x00,
	GLOBAL_CONTROL = 0x04,
	DECODER = 0x10,
	STRIDE = 0x20,
	BASE_LOW = 0x00,
	BASE_HIGH = 0x04,
	SIZE_LOW = 0x08,
	SIZE_HIGH = 0x0c,
	CONTROL = 0x10,
	SKIP_LOW = 0x14,
	SKIP_HIGH = 0x18,
	CONTROL_WAYS_SHIFT = 4,
	CONTROL_WAYS_MASK = 0xf << CONTROL_WAYS_SHIFT,
	CONTROL_COMMIT = 1 << 9,
	CONTROL_COMMITTED = 1 << 10,
	CONTROL_HOST_ONLY = 1 << 12, /* target type: host-only coherent */
	GLOBAL_ENABLE = 1 << 1,
};

/* Number of decoders by the encoding in the capability's low four bits. */
static const uint8_t counts[] = {1, 2, 4, 6, 8, 10};
enum { COUNTS = sizeof(counts) };

static void put32(uint8_t *at, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t)(value >> 8 * i);
}

static uint32_t get32(const uint8_t *at)
{
	return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void put_address(uint8_t *low, uint64_t value)
{
	put32(low, (uint32_t)value & 0xf0000000u);
	put32(low + 4, (uint32_t)(value >> 32));
}

static uint64_t get_address(const uint8_t *low)
{
	return (uint64_t)get32(low + 4) << 32 | (get32(low) & 0xf0000000u);
}

int hdm_write(struct hdm *hdm, uint8_t *block)
{
	unsigned int encoding = 0;
	uint64_t device = 0, end = 0;

	while (encoding < COUNTS && counts[encoding] < hdm->count)
		encoding++;
	if (encoding == COUNTS)
		return -EINVAL;
	memset(block, 0, HDM_BYTES);
	for (unsigned int i = 0; i < hdm->count; i++) {
		struct hdm_decoder *decoder = &hdm->decoders[i];
		uint8_t *at = block + DECODER + STRIDE * i;

		if ((decoder->base | decoder->size | decoder->skip) % HDM_GRANULE ||
		    !decoder->size || decoder->base < end)
			return -EINVAL;
		device += decoder->skip;
		decoder->device = device;
		device += decoder->size;
		end = decoder->base + decoder->size;
		put_address(at + BASE_LOW, decoder->base);
		put_address(at + SIZE_LOW, decoder->size);
		put_address(at + SKIP_LOW, decoder->skip);
		put32(at + CONTROL, CONTROL_COMMIT | CONTROL_COMMITTED | CONTROL_HOST_ONLY);
	}
	put32(block + CAPABILITY, encoding);
	put32(block + GLOBAL_CONTROL, GLOBAL_ENABLE);
	return 0;
}

int hdm_read(struct hdm *hdm, const uint8_t *block)
{
	const unsigned int encoding = get32(block + CAPABILITY) & 0xf;
	uint64_t device = 0;

	memset(hdm, 0, sizeof(*hdm));
	if (encoding >= COUNTS)
		return -EINVAL;
	if (!(get32(block + GLOBAL_CONTROL) & GLOBAL_ENABLE))
		return 0;
	for (unsigned int i = 0; i < counts[encoding]; i++) {
		const uint8_t *at = block + DECODER + STRIDE * i;
		const uint32_t control = get32(at + CONTROL);
		struct hdm_decoder *decoder = &hdm->decoders[hdm->count];

		if (!(control & CONTROL_COMMITTED))
			break; /* decoders are committed in order */
		if (control & CONTROL_WAYS_MASK)
			return -EINVAL;
		decoder->base = get_address(at + BASE_LOW);
		decoder->size = get_address(at + SIZE_LOW);
		decoder->skip = get_address(at + SKIP_LOW);
		device += decoder->skip;
		decoder->device = device;
		device += decoder->size;
		hdm->count++;
	}
	return 0;
}

bool hdm_to_device(const struct hdm *hdm, uint64_t host, uint64_t *device)
{
	for (unsigned int i = 0; i < hdm->count; i++) {
		const struct hdm_decoder *decoder = &hdm->decoders[i];

		if (host - decoder->base < decoder->size) {
			*device = host - decoder->base + decoder->device;
			return true;
		}
	}
	return false;
}

bool hdm_to_host(const struct hdm *hdm, uint64_t device, uint64_t *host)
{
	for (unsigned int i = 0; i < hdm->count; i++) {
		const struct hdm_decoder *decoder = &hdm->decoders[i];

		if (device - decoder->device < decoder->size) {
			*host = device - decoder->device + decoder->base;
			return true;
		}
	}
	return false;
}
