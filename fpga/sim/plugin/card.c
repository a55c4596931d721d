/* SPDX-License-Identifier: Apache-2.0 */
#include "card.h"

#include "../../include/neoprof_regs.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* Longest step of an RTL card against host time: 20 ms of guest time. */
enum { STEP_NS = 20000000 };

static bool find(void *library, const char *name, void *function)
{
	void *symbol = dlsym(library, name);

	memcpy(function, &symbol, sizeof(symbol));
	if (!symbol)
		fprintf(stderr, "tierd-lab: %s\n", dlerror());
	return symbol;
}

int card_open(struct card *card, const struct card_options *options, bool counted, uint8_t *block)
{
	np_card *(*open)(unsigned int, unsigned int, unsigned int);
	const char *(*kind)(void);
	uint64_t timebase = 0;
	void *library;

	memset(card, 0, sizeof(*card));
	card->hdm = options->hdm;
	if (!card->hdm.count || hdm_write(&card->hdm, block)) {
		fprintf(stderr, "tierd-lab: a card's decoders must ascend and be whole 256 MiB\n");
		return -1;
	}
	library = dlopen(options->library, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "tierd-lab: %s (make -C fpga builds it)\n", dlerror());
		return -1;
	}
	if (!find(library, "np_card_open", &open) || !find(library, "np_card_kind", &kind) ||
	    !find(library, "np_card_push", &card->push) ||
	    !find(library, "np_card_step", &card->step) ||
	    !find(library, "np_card_read", &card->read) ||
	    !find(library, "np_card_write", &card->write) ||
	    !find(library, "np_card_cycles", &card->cycles) ||
	    !find(library, "np_card_close", &card->close))
		return -1;
	card->kind = kind();
	card->bounded = !counted && !strcmp(card->kind, "rtl");
	card->card = open(options->log2_width, options->ring, options->cycles_per_100us);
	if (!card->card || card->read(card->card, NEOPROF_VENDOR_TIMEBASE, 8, &timebase)) {
		fprintf(stderr,
			"tierd-lab: %s does not open a card with 2^%u counters, %u slots and %u "
			"cycles in 100 us (0: its own): %s\n",
			options->library, options->log2_width, options->ring,
			options->cycles_per_100us, strerror(errno));
		return -1;
	}
	card->cycles_per_100us = (unsigned int)timebase;
	return 0;
}

void card_close(struct card *card)
{
	if (card->card)
		card->close(card->card);
	card->card = NULL;
}

void card_advance(struct card *card, uint64_t ns)
{
	uint64_t now, due;

	if (!card->begun) {
		card->begun = true;
		card->begin_ns = ns;
		card->begin_cycles = card->cycles(card->card);
	}
	if (card->filled) {
		card->push(card->card, card->batch, card->filled);
		card->filled = 0;
	}
	now = card->cycles(card->card) - card->begin_cycles + card->skipped;
	due =
	    (uint64_t)((unsigned __int128)(ns - card->begin_ns) * card->cycles_per_100us / 100000);
	if (due <= now)
		return;
	due -= now;
	if (card->bounded) {
		const uint64_t most = (uint64_t)STEP_NS * card->cycles_per_100us / 100000;

		if (due > most) {
			card->skipped += due - most;
			due = most;
		}
	}
	card->step(card->card, due);
}

void card_print(const struct card *card, FILE *out)
{
	fprintf(out,
		"{\"kind\": \"%s\", \"cycles_per_100us\": %u, \"reads\": %" PRIu64
		", \"writes\": %" PRIu64 ", \"unmapped\": %" PRIu64 ", \"cycles\": %" PRIu64
		", \"skipped_cycles\": %" PRIu64 "}",
		card->kind, card->cycles_per_100us, card->reads, card->writes, card->unmapped,
		card->cycles(card->card), card->skipped);
}
