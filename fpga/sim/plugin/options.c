/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS_MAX = 3 };

/* Numbers with colons between; how many, or -1. */
static int numbers(const char *text, uint64_t out[NUMBERS_MAX])
{
	for (int i = 0; i < NUMBERS_MAX; i++) {
		char *end;

		if (*text < '0' || *text > '9')
			return -1;
		out[i] = strtoull(text, &end, 0);
		if (!*end)
			return i + 1;
		if (*end != ':')
			return -1;
		text = end + 1;
	}
	return -1;
}

static bool add_range(struct options *options, const uint64_t value[])
{
	struct range *range = &options->ranges[options->range_count];

	if (options->range_count == OPTIONS_RANGES_MAX || !value[2] || value[0] > 254)
		return false;
	range->node = (unsigned int)value[0];
	range->base = value[1];
	range->size = value[2];
	options->range_count++;
	return true;
}

static bool add_speed(struct options *options, const uint64_t value[])
{
	if (options->speed_count == OPTIONS_SPEEDS_MAX || value[0] > 254)
		return false;
	options->speeds[options->speed_count++] = (struct speed){
	    .node = (unsigned int)value[0], .latency_ps = value[1], .bandwidth_mb = value[2]};
	return true;
}

static bool add_decoder(struct card_options *card, const uint64_t value[])
{
	if (card->hdm.count == HDM_DECODERS_MAX)
		return false;
	card->hdm.decoders[card->hdm.count++] =
	    (struct hdm_decoder){.base = value[0], .size = value[1], .skip = value[2]};
	return true;
}

static bool parse(struct options *options, const char *key, const char *text)
{
	struct card_options *card =
	    options->card_count ? &options->cards[options->card_count - 1] : NULL;
	uint64_t value[NUMBERS_MAX] = {0};
	int count;

	if (!strcmp(key, "window")) {
		options->window = text;
		return *text;
	}
	if (!strcmp(key, "dump")) {
		options->dump = text;
		return *text;
	}
	if (!strcmp(key, "profile")) {
		options->profile = text;
		return *text;
	}
	if (!strcmp(key, "start")) {
		options->from_boot = true;
		return !strcmp(text, "boot");
	}
	if (!strcmp(key, "card")) {
		if (options->card_count == NPW_CARDS_MAX)
			return false;
		options->cards[options->card_count++].library = text;
		return *text;
	}
	count = numbers(text, value);
	if (!strcmp(key, "icount") && count == 1 && value[0] <= 10) {
		options->icount = (int)value[0];
		return true;
	}
	if (!strcmp(key, "cache") && count == 3) {
		options->cache_bytes = value[0];
		options->cache_ways = (unsigned int)value[1];
		options->cache_line = (unsigned int)value[2];
		return true;
	}
	if (!strcmp(key, "time") && count == 2 && value[0] && value[0] < 1u << 20 &&
	    value[1] >= 100 && value[1] < 1u << 20) {
		options->instruction_ps = (unsigned int)value[0];
		options->mlp_percent = (unsigned int)value[1];
		return true;
	}
	if (!strcmp(key, "pace") && count == 1 && value[0] <= 1000) {
		options->pace_us = (unsigned int)value[0];
		return true;
	}
	if (!strcmp(key, "speed") && count == 3)
		return add_speed(options, value);
	if (!strcmp(key, "node") && count == 3)
		return add_range(options, value);
	if (!strcmp(key, "decoder") && card && count == 3)
		return add_decoder(card, value);
	if (!card || count != 1 || value[0] > UINT32_MAX)
		return false;
	if (!strcmp(key, "width"))
		card->log2_width = (unsigned int)value[0];
	else if (!strcmp(key, "ring"))
		card->ring = (unsigned int)value[0];
	else if (!strcmp(key, "clock"))
		card->cycles_per_100us = (unsigned int)value[0];
	else
		return false;
	return true;
}

int options_parse(struct options *options, int argc, char **argv)
{
	memset(options, 0, sizeof(*options));
	options->icount = -1;
	options->cache_bytes = 2u << 20;
	options->cache_ways = 16;
	options->cache_line = 64;
	for (int i = 0; i < argc; i++) {
		char *equals = strchr(argv[i], '='), key[16] = "";

		if (equals && (size_t)(equals - argv[i]) < sizeof(key))
			memcpy(key, argv[i], (size_t)(equals - argv[i]));
		if (!*key || !parse(options, key, equals + 1)) {
			fprintf(stderr, "tierd-lab: the plugin does not take %s here\n", argv[i]);
			return -1;
		}
	}
	if (!options->window) {
		fprintf(stderr, "tierd-lab: the plugin needs window=PATH\n");
		return -1;
	}
	return 0;
}
