// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where a card's memory is in the host's physical address space: from its HDM decoders (CXL
 * r3.1, 8.2.4.20) or from what netlink says, never from constants.
 */
#include "neoprof.h"

#include <linux/math64.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/string_helpers.h>

#define MAX_WAYS 16
#define PHYSICAL_BITS 52
#define NODE_LOOKS 64 /* places of a range that are asked for their node */

/* Registers of the HDM Decoder Capability Structure. */
enum {
	HDM_CAPABILITY = 0x00,
	HDM_CAPABILITY_COUNT = 0xf,
	HDM_CONTROL = 0x04,
	HDM_CONTROL_ENABLE = 1 << 1,
	HDM_DECODER = 0x10,
	HDM_STRIDE = 0x20,
	HDM_BASE_LOW = 0x00,
	HDM_BASE_HIGH = 0x04,
	HDM_SIZE_LOW = 0x08,
	HDM_SIZE_HIGH = 0x0c,
	HDM_DECODER_CONTROL = 0x10,
	HDM_GRANULARITY = 0xf,
	HDM_WAYS_SHIFT = 4,
	HDM_WAYS = 0xf,
	HDM_COMMITTED = 1 << 10,
	HDM_UIO = 1 << 14,
	HDM_POSITION_SHIFT = 24,
	HDM_POSITION = 0xf,
	HDM_SKIP_LOW = 0x14,
	HDM_SKIP_HIGH = 0x18,
	HDM_ADDRESS_LOW = 0xf0000000, /* 256 MiB and more */
};

/* By the encodings in the capability and in a decoder's control register. */
static const u8 neoprof_ranges_decoder_counts[16] = {
	1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32
};
static const u8 neoprof_ranges_decoder_ways[16] = { 1, 2, 4, 8, 16, 0, 0, 0, 3, 6, 12 };

/**
 * neoprof_range_length() - bytes of the card's own address space that a range takes
 * @range: the range
 *
 * Return: The bytes.
 */
u64 neoprof_range_length(const struct tierd_card_range *range)
{
	return div_u64(range->end - range->start, range->ways);
}

/**
 * neoprof_to_host() - translate an address
 * @card: the card
 * @device: the address in the card's space
 * @host: the host's address
 *
 * Return: False if no range has it.
 */
bool neoprof_to_host(const struct neoprof_card *card, u64 device, u64 *host)
{
	unsigned int i;

	for (i = 0; i < card->range_count; i++) {
		const struct tierd_card_range *range = &card->ranges[i];
		u64 offset = device - range->device;
		u32 rest;

		if (device < range->device || offset >= neoprof_range_length(range))
			continue;
		if (range->ways > 1) {
			u64 block = div_u64_rem(offset, range->granularity, &rest);

			offset =
				(block * range->ways + range->position) * range->granularity + rest;
		}
		*host = range->start + offset;
		return true;
	}
	return false;
}

static const char *neoprof_ranges_range_problem(struct tierd_card_range *range)
{
	u64 block;

	if (!range->ways)
		range->ways = 1;
	if (range->start >= range->end || (range->end | range->device) >> PHYSICAL_BITS ||
	    !PAGE_ALIGNED(range->start | range->end | range->device))
		return "a range must be of whole pages of physical memory";
	if (range->ways > MAX_WAYS || range->position >= range->ways)
		return "interleaving is of 1 to 16 ways, the position less";
	if (range->ways == 1)
		return NULL;
	if (!is_power_of_2(range->granularity) || range->granularity < PAGE_SIZE)
		return "an interleave granularity finer than a page: a page would be of several cards";
	block = (u64)range->granularity * range->ways;
	if (range->end - range->start != div64_u64(range->end - range->start, block) * block)
		return "an interleaved range must be of whole sets of blocks";
	return NULL;
}

/**
 * neoprof_ranges_check() - check ranges as user space gives them
 * @ranges: the ranges
 * @count: how many
 * @why: the reason of a refusal
 *
 * Sets ways 0 to 1.
 *
 * Return: 0 or a negative errno.
 */
int neoprof_ranges_check(struct tierd_card_range *ranges, unsigned int count, const char **why)
{
	unsigned int i, j;

	for (i = 0; i < count; i++) {
		struct tierd_card_range *a = &ranges[i];

		*why = neoprof_ranges_range_problem(a);
		if (*why)
			return -EINVAL;
		for (j = 0; j < i; j++) {
			struct tierd_card_range *b = &ranges[j];

			if (a->device < b->device + neoprof_range_length(b) &&
			    b->device < a->device + neoprof_range_length(a)) {
				*why = "two ranges have the same device addresses";
				return -EINVAL;
			}
		}
	}
	return 0;
}

/**
 * neoprof_range_node() - where the memory of a range is
 * @range: the range
 *
 * Return: The node of the first memory in it that is on line, -1 if none is.
 */
int neoprof_range_node(const struct tierd_card_range *range)
{
	u64 step = max_t(u64, (range->end - range->start) / NODE_LOOKS, PAGE_SIZE), address;
	int node = NUMA_NO_NODE;
	struct page *page;

	/* Keeps struct pages where they are (resolve.c). */
	mutex_lock(&tierd_targets_lock);
	for (address = range->start; address < range->end; address += step) {
		page = pfn_to_online_page(address >> PAGE_SHIFT);
		if (!page)
			continue;
		node = page_to_nid(page);
		break;
	}
	mutex_unlock(&tierd_targets_lock);
	return node;
}

static u64 neoprof_ranges_hdm_address(struct neoprof_card *card, u32 low, u32 high)
{
	return (u64)card->bus->hdm(card, high) << 32 |
	       (card->bus->hdm(card, low) & HDM_ADDRESS_LOW);
}

/* A committed decoder as a range; a reason if it cannot be one. */
static const char *neoprof_ranges_read_decoder(struct neoprof_card *card, u32 at,
					       struct tierd_card_range *range)
{
	u32 control = card->bus->hdm(card, at + HDM_DECODER_CONTROL);

	range->start = neoprof_ranges_hdm_address(card, at + HDM_BASE_LOW, at + HDM_BASE_HIGH);
	range->end = range->start +
		     neoprof_ranges_hdm_address(card, at + HDM_SIZE_LOW, at + HDM_SIZE_HIGH);
	range->granularity = 256u << (control & HDM_GRANULARITY);
	range->ways = neoprof_ranges_decoder_ways[control >> HDM_WAYS_SHIFT & HDM_WAYS];
	range->position = 0;
	if (!range->ways)
		return "a number of ways that is not known";
	if (range->ways > 1) {
		if (!(control & HDM_UIO))
			return "interleaves, and does not tell the card's place in the set: give ranges";
		range->position = control >> HDM_POSITION_SHIFT & HDM_POSITION;
	}
	return neoprof_ranges_range_problem(range);
}

/**
 * neoprof_hdm_ranges() - take the ranges from the decoders
 * @card: the card
 *
 * Called with the card's lock. Without any, its why says why.
 */
void neoprof_hdm_ranges(struct neoprof_card *card)
{
	unsigned int count, i, found = 0;
	const char *problem;
	u64 device = 0;

	card->range_count = 0;
	card->ranges_given = false;
	card->why[0] = 0;
	if (!card->bus->hdm) {
		strscpy(card->why, "the card shows no HDM decoders: give ranges",
			sizeof(card->why));
		return;
	}
	count = neoprof_ranges_decoder_counts[card->bus->hdm(card, HDM_CAPABILITY) &
					      HDM_CAPABILITY_COUNT];
	if (!(card->bus->hdm(card, HDM_CONTROL) & HDM_CONTROL_ENABLE))
		count = 0;
	for (i = 0; i < count && found < TIERD_CARD_RANGES_MAX; i++) {
		u32 at = HDM_DECODER + i * HDM_STRIDE;
		struct tierd_card_range *range = &card->ranges[found];

		/* They are committed in their order. */
		if (!(card->bus->hdm(card, at + HDM_DECODER_CONTROL) & HDM_COMMITTED))
			break;
		*range = (struct tierd_card_range){ .node = NUMA_NO_NODE };
		/* One of no bytes may be committed; it takes none of the card's addresses either.
		 */
		if (!neoprof_ranges_hdm_address(card, at + HDM_SIZE_LOW, at + HDM_SIZE_HIGH))
			continue;
		problem = neoprof_ranges_read_decoder(card, at, range);
		if (problem) {
			scnprintf(card->why, sizeof(card->why), "HDM decoder %u: %s", i, problem);
			if (!range->ways || range->start >= range->end)
				break; /* nor is it known where the next one begins */
		}
		device += neoprof_ranges_hdm_address(card, at + HDM_SKIP_LOW, at + HDM_SKIP_HIGH);
		range->device = device;
		device += neoprof_range_length(range);
		if (!problem)
			found++;
	}
	card->range_count = found;
	if (!found && !card->why[0])
		strscpy(card->why, "no HDM decoder is committed: give ranges", sizeof(card->why));
}
