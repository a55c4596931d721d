/* SPDX-License-Identifier: Apache-2.0 */
#include "traffic.h"

#include "account.h"
#include "cache.h"
#include "clock.h"

#include <stdlib.h>
#include <string.h>

enum { FILTER_LINES = 512 };

/*
 * The lines a vCPU used last, by virtual address: a stand-in for its first-level cache that spares
 * translation, lock and look-up. An entry is the line's number, and whether a store to it has been
 * passed on. It does not hear of evictions below or of changed page tables; at 32 KiB it forgets
 * soon.
 */
struct filter {
	uint64_t lines[FILTER_LINES];
} __attribute__((aligned(64)));

struct traffic traffic = {.lock = PTHREAD_MUTEX_INITIALIZER};
static struct filter filters[TRAFFIC_VCPUS];
static struct cache cache;
static uint8_t *card_of; /* by MiB; NPW_CARDS_MAX: none */
static unsigned int line_log2;

static void memory_request(uint64_t address, uint64_t vline, enum account_kind kind)
{
	const bool write = kind == ACCOUNT_WRITE_BACK;

	truth_count(&traffic.truth, address, write);
	if (address >> TRUTH_PAGE_LOG2 < traffic.truth.page_count) {
		const unsigned int number = card_of[address >> TRUTH_BLOCK_LOG2];

		account_request(traffic.truth.node_of[address >> TRUTH_BLOCK_LOG2], vline, kind);

		if (number < NPW_CARDS_MAX && card_request(&traffic.cards[number], address, write))
			card_advance(&traffic.cards[number], clock_ns());
	}
}

static void cached_access(uint64_t address, uint64_t vline, bool store)
{
	uint64_t evicted;

	pthread_mutex_lock(&traffic.lock);
	switch (cache_access(&cache, address, store, &evicted)) {
	case CACHE_MISS_EVICT:
		memory_request(evicted, 0, ACCOUNT_WRITE_BACK);
		/* fall through */
	case CACHE_MISS:
		memory_request(address, vline, store ? ACCOUNT_STORE : ACCOUNT_LOAD);
		break;
	case CACHE_HIT:
		break;
	}
	pthread_mutex_unlock(&traffic.lock);
}

static void access_line(struct filter *filter, qemu_plugin_meminfo_t info, uint64_t vaddr,
			bool store)
{
	const uint64_t line = vaddr >> line_log2;
	uint64_t *entry = &filter->lines[line % FILTER_LINES];
	struct qemu_plugin_hwaddr *address;

	if (*entry >> 1 == line && (*entry & 1) >= store)
		return;
	address = qemu_plugin_get_hwaddr(info, vaddr);
	if (!address || qemu_plugin_hwaddr_is_io(address))
		return;
	*entry = line << 1 | store;
	cached_access(qemu_plugin_hwaddr_phys_addr(address), line, store);
}

void traffic_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t vaddr, bool store)
{
	const uint64_t mask = (1ull << line_log2) - 1;
	struct filter *filter = &filters[vcpu % TRAFFIC_VCPUS];

	access_line(filter, info, vaddr, store);
	/* Only accesses that begin in a line's last bytes can reach into the next one. A second
	 * page's translation is not known here: what crosses a page counts for its first. */
	if ((vaddr & mask) > mask - 63) {
		const uint64_t last = vaddr + (1u << qemu_plugin_mem_size_shift(info)) - 1;

		if ((vaddr ^ last) & ~mask && !((vaddr ^ last) >> TRUTH_PAGE_LOG2))
			access_line(filter, info, last, store);
	}
}

static int complain(const char *what)
{
	fprintf(stderr, "tierd-lab: %s\n", what);
	return -1;
}

static int open_cards(const struct options *options, uint8_t *(*hdm_block)(void *, unsigned int),
		      void *context)
{
	const uint64_t blocks = traffic.truth.page_count >> (TRUTH_BLOCK_LOG2 - TRUTH_PAGE_LOG2);

	card_of = malloc(blocks);
	if (!card_of)
		return complain("out of memory");
	memset(card_of, NPW_CARDS_MAX, blocks);
	for (unsigned int i = 0; i < options->card_count; i++) {
		struct hdm *hdm = &traffic.cards[i].hdm;

		if (card_open(&traffic.cards[i], &options->cards[i], options->icount >= 0,
			      hdm_block(context, i)))
			return -1;
		for (unsigned int k = 0; k < hdm->count; k++) {
			const struct hdm_decoder *decoder = &hdm->decoders[k];
			const uint64_t first = decoder->base >> TRUTH_BLOCK_LOG2;
			const uint64_t count = decoder->size >> TRUTH_BLOCK_LOG2;

			if (first + count > blocks)
				return complain("a card's decoder reaches above the nodes");
			for (uint64_t block = first; block < first + count; block++) {
				if (card_of[block] != NPW_CARDS_MAX)
					return complain("two cards have the same memory");
				card_of[block] = (uint8_t)i;
			}
		}
	}
	traffic.card_count = options->card_count;
	return 0;
}

int traffic_open(const struct options *options, uint8_t *(*hdm)(void *context, unsigned int card),
		 void *context)
{
	if (cache_init(&cache, options->cache_bytes, options->cache_ways, options->cache_line))
		return complain("cache=BYTES:WAYS:LINE is no cache: ways x line x a power of 2");
	line_log2 = cache.line_log2;
	if (truth_init(&traffic.truth, options))
		return complain("node=ID:BASE:SIZE is needed, in whole MiB");
	if (traffic.truth.page_count >> (30 + cache.set_log2 + cache.line_log2 - TRUTH_PAGE_LOG2))
		return complain("the cache's tags are too short for the machine's memory");
	memset(filters, 0xff, sizeof(filters));
	return open_cards(options, hdm, context);
}

void traffic_forget(void)
{
	cache_clear(&cache);
	memset(filters, 0xff, sizeof(filters));
}
