/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lab's QEMU plugin: the memory traffic of a virtual machine, as its last-level cache lets it
 * through, for simulated cards and for exact counts. docs/lab.md says how it is used.
 *
 * This file owns the order of things: what QEMU calls, and which room hears of it. The rooms know
 * nothing of each other: filter and cache (cache.h), counts (truth.h), cards (card.h), the window
 * (window.h), time (clock.h).
 *
 * One lock is around all rooms. A vCPU takes it only for what its own filter does not hold.
 */
#include "cache.h"
#include "card.h"
#include "clock.h"
#include "options.h"
#include "qemu_api.h"
#include "truth.h"
#include "window.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;
QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
					   char **argv);

enum {
	FILTER_LINES = 256,
	FILTER_VCPUS = 64,
	POLL_INSTRUCTIONS = 512, /* how often a vCPU looks at the window */
};

/*
 * The lines a vCPU used last, by virtual address: a stand-in for its first-level cache that spares
 * translation, lock and look-up. An entry is the line's number, and whether a store to it has been
 * passed on. It does not hear of evictions below or of changed page tables; at 16 KiB it forgets
 * soon.
 */
struct filter {
	uint64_t lines[FILTER_LINES];
} __attribute__((aligned(64)));

struct vcpu_score {
	uint64_t since_poll;   /* instructions since this vCPU last looked at the window */
	uint64_t instructions; /* before that */
};

static struct options options;
static struct filter filters[FILTER_VCPUS];
static struct cache cache;
static struct truth truth;
static struct card cards[NPW_CARDS_MAX];
static uint8_t *card_of; /* by MiB; NPW_CARDS_MAX: none */
static struct window window;
static struct qemu_plugin_scoreboard *scores;
static qemu_plugin_u64 since_poll, instructions;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static qemu_plugin_id_t plugin;
static bool watching, wanted, changing, stopped_by_hand, lab_waits;
static unsigned int line_log2;

/* ---------------------------------------------------------------- memory traffic */
static void memory_request(uint64_t address, bool write)
{
	truth_count(&truth, address, write);
	if (address >> TRUTH_PAGE_LOG2 < truth.page_count) {
		const unsigned int number = card_of[address >> TRUTH_BLOCK_LOG2];

		if (number < NPW_CARDS_MAX && card_request(&cards[number], address, write))
			card_advance(&cards[number], clock_ns());
	}
}

static void cached_access(uint64_t address, bool store)
{
	uint64_t evicted;

	pthread_mutex_lock(&lock);
	switch (cache_access(&cache, address, store, &evicted)) {
	case CACHE_MISS_EVICT:
		memory_request(evicted, true);
		/* fall through */
	case CACHE_MISS:
		memory_request(address, false);
		break;
	case CACHE_HIT:
		break;
	}
	pthread_mutex_unlock(&lock);
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
	cached_access(qemu_plugin_hwaddr_phys_addr(address), store);
}

static void on_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t vaddr, bool store)
{
	const uint64_t mask = (1ull << line_log2) - 1;
	struct filter *filter = &filters[vcpu % FILTER_VCPUS];

	access_line(filter, info, vaddr, store);
	/* Only accesses that begin in a line's last bytes can reach into the next one. A second
	 * page's translation is not known here: what crosses a page counts for its first. */
	if ((vaddr & mask) > mask - 63) {
		const uint64_t last = vaddr + (1u << qemu_plugin_mem_size_shift(info)) - 1;

		if ((vaddr ^ last) & ~mask && !((vaddr ^ last) >> TRUTH_PAGE_LOG2))
			access_line(filter, info, last, store);
	}
}

static void on_load(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t vaddr, void *data)
{
	(void)data;
	on_access(vcpu, info, vaddr, false);
}

static void on_store(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t vaddr, void *data)
{
	(void)data;
	on_access(vcpu, info, vaddr, true);
}

/* ---------------------------------------------------------------- the lab's operations */
static uint64_t executed(void)
{
	return qemu_plugin_u64_sum(since_poll) + qemu_plugin_u64_sum(instructions);
}

static int write_summary(const char *path)
{
	FILE *out = fopen(path, "w");

	if (!out)
		return -errno;
	fprintf(out,
		"{\"guest_ns\": %" PRIu64 ", \"clock\": \"%s\", \"instructions\": %" PRIu64
		", \"watching\": %s, \"page_bytes\": %u, \"pages\": %" PRIu64 ", ",
		clock_ns(), clock_name(), executed(), watching ? "true" : "false",
		1u << TRUTH_PAGE_LOG2, truth.page_count);
	truth_print_nodes(&truth, out);
	fputs(", \"cards\": [", out);
	for (unsigned int i = 0; i < options.card_count; i++) {
		fputs(i ? ", " : "", out);
		card_print(&cards[i], out);
	}
	fputs("]}\n", out);
	return fclose(out) ? -errno : 0;
}

static int dump(void)
{
	char path[4096];
	int err;

	if (!options.dump)
		return -ENOENT;
	for (unsigned int i = 0; i < options.card_count; i++)
		card_advance(&cards[i], clock_ns());
	snprintf(path, sizeof(path), "%s.pages", options.dump);
	err = truth_write_pages(&truth, path);
	snprintf(path, sizeof(path), "%s.json", options.dump);
	return err ? err : write_summary(path);
}

static void register_callbacks(void);

/* QEMU has thrown away all translations and callbacks; every vCPU stands still. */
static void on_reset(qemu_plugin_id_t id)
{
	(void)id;
	pthread_mutex_lock(&lock);
	if (wanted && !watching) {
		cache_clear(&cache);
		memset(filters, 0xff, sizeof(filters));
	}
	watching = wanted;
	changing = false;
	register_callbacks();
	if (lab_waits)
		window_lab_done(&window, 0, watching);
	else
		window_set_watching(&window, watching);
	lab_waits = false;
	pthread_mutex_unlock(&lock);
}

/* True if QEMU was asked to; on_reset() comes when all vCPUs have left their translations. */
static bool want(bool watch)
{
	if (changing || watch == watching)
		return false;
	wanted = watch;
	changing = true;
	return true;
}

/* What the mailbox asks for; true if QEMU has to be asked for a reset. */
static bool lab_operation(void)
{
	int status = 0;

	switch (window_lab_op(&window)) {
	case NPW_LAB_START:
	case NPW_LAB_STOP:
		if (changing)
			return false; /* it is looked at again */
		stopped_by_hand = window_lab_op(&window) == NPW_LAB_STOP;
		lab_waits = want(!stopped_by_hand);
		if (lab_waits)
			return true;
		break;
	case NPW_LAB_DUMP:
		status = dump();
		break;
	case NPW_LAB_CLEAR:
		truth_clear(&truth);
		break;
	default:
		status = -EOPNOTSUPP;
	}
	window_lab_done(&window, status, watching);
	return false;
}

static void look_at_window(void)
{
	unsigned int seen;
	bool reset = false;

	if (!window_pending(&window))
		return;
	pthread_mutex_lock(&lock);
	seen = window_serve(&window, clock_ns());
	if (seen & WINDOW_LAB && !lab_waits)
		reset = lab_operation();
	if (seen & WINDOW_WRITE && !stopped_by_hand && want(true))
		reset = true;
	pthread_mutex_unlock(&lock);
	if (reset)
		qemu_plugin_reset(plugin, on_reset);
}

/* ---------------------------------------------------------------- what QEMU calls */
static void on_poll(unsigned int vcpu, void *data)
{
	struct vcpu_score *score = qemu_plugin_scoreboard_find(scores, vcpu);

	(void)data;
	score->instructions += score->since_poll;
	score->since_poll = 0;
	look_at_window();
}

static void on_idle(qemu_plugin_id_t id, unsigned int vcpu)
{
	(void)id;
	(void)vcpu;
	look_at_window();
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	const size_t count = qemu_plugin_tb_n_insns(tb);

	(void)id;
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_ADD_U64,
							  since_poll, count);
	qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, on_poll, QEMU_PLUGIN_CB_NO_REGS,
						  QEMU_PLUGIN_COND_GE, since_poll,
						  POLL_INSTRUCTIONS, NULL);
	for (size_t i = 0; watching && i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		qemu_plugin_register_vcpu_mem_cb(insn, on_load, QEMU_PLUGIN_CB_NO_REGS,
						 QEMU_PLUGIN_MEM_R, NULL);
		qemu_plugin_register_vcpu_mem_cb(insn, on_store, QEMU_PLUGIN_CB_NO_REGS,
						 QEMU_PLUGIN_MEM_W, NULL);
	}
}

static void at_end(qemu_plugin_id_t id, void *data)
{
	(void)id;
	(void)data;
	pthread_mutex_lock(&lock);
	window_close(&window);
	for (unsigned int i = 0; i < options.card_count; i++)
		card_close(&cards[i]);
	/* The lock stays taken: a vCPU that still runs has nothing to go to. */
}

static void register_callbacks(void)
{
	qemu_plugin_register_vcpu_tb_trans_cb(plugin, on_translation);
	qemu_plugin_register_vcpu_idle_cb(plugin, on_idle);
	qemu_plugin_register_atexit_cb(plugin, at_end, NULL);
}

/* ---------------------------------------------------------------- start */
static int complain(const char *what)
{
	fprintf(stderr, "tierd-lab: %s\n", what);
	return -1;
}

static int open_cards(void)
{
	const uint64_t blocks = truth.page_count >> (TRUTH_BLOCK_LOG2 - TRUTH_PAGE_LOG2);

	card_of = malloc(blocks);
	if (!card_of)
		return complain("out of memory");
	memset(card_of, NPW_CARDS_MAX, blocks);
	for (unsigned int i = 0; i < options.card_count; i++) {
		struct hdm *hdm = &cards[i].hdm;

		if (card_open(&cards[i], &options.cards[i], options.icount >= 0,
			      window_hdm(&window, i)))
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
	return 0;
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	int err;

	if (!info->system_emulation || info->system.max_vcpus > FILTER_VCPUS)
		return complain("the plugin is for machines with at most 64 CPUs");
	if (options_parse(&options, argc, argv))
		return -1;
	if (cache_init(&cache, options.cache_bytes, options.cache_ways, options.cache_line))
		return complain("cache=BYTES:WAYS:LINE is no cache: ways x line x a power of 2");
	line_log2 = cache.line_log2;
	err = truth_init(&truth, &options);
	if (err)
		return complain("node=ID:BASE:SIZE is needed, in whole MiB");
	if (truth.page_count >> (30 + cache.set_log2 + cache.line_log2 - TRUTH_PAGE_LOG2))
		return complain("the cache's tags are too short for the machine's memory");
	plugin = id;
	scores = qemu_plugin_scoreboard_new(sizeof(struct vcpu_score));
	since_poll =
	    (qemu_plugin_u64){.score = scores, .offset = offsetof(struct vcpu_score, since_poll)};
	instructions =
	    (qemu_plugin_u64){.score = scores, .offset = offsetof(struct vcpu_score, instructions)};
	clock_init(options.icount, executed);
	if (window_open(&window, options.window) || open_cards())
		return -1;
	memset(filters, 0xff, sizeof(filters));
	watching = wanted = options.from_boot;
	window_publish(&window, cards, options.card_count);
	window_set_watching(&window, watching);
	register_callbacks();
	return 0;
}
