/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lab's QEMU plugin: the memory traffic of a virtual machine, as its last-level cache lets it
 * through, for simulated cards and for exact counts. docs/research/lab.md says how it is used.
 *
 * This file owns the order of things: what QEMU calls, and which room hears of it. The rooms know
 * nothing of each other: traffic (traffic.h: filters, cache, counts, cards), the window
 * (window.h), time (clock.h).
 *
 * One lock, traffic.lock, is around all rooms. A vCPU takes it only for what its own filter does
 * not hold.
 */
#include "account.h"
#include "clock.h"
#include "traffic.h"
#include "window.h"

#include <errno.h>
#include <inttypes.h>

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;
QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
					   char **argv);

enum { POLL_INSTRUCTIONS = 512 }; /* how often a vCPU looks at the window */

struct vcpu_score {
	uint64_t since_poll;   /* instructions since this vCPU last looked at the window */
	uint64_t instructions; /* before that */
};

static struct options options;
static struct window window;
static struct qemu_plugin_scoreboard *scores;
static qemu_plugin_u64 since_poll, instructions;
static qemu_plugin_id_t plugin;
static bool watching, wanted, changing, stopped_by_hand, lab_waits;

/* ---------------------------------------------------------------- memory traffic */
static void on_load(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t vaddr, void *data)
{
	(void)data;
	traffic_access(vcpu, info, vaddr, false);
}

static void on_store(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t vaddr, void *data)
{
	(void)data;
	traffic_access(vcpu, info, vaddr, true);
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
		1u << TRUTH_PAGE_LOG2, traffic.truth.page_count);
	truth_print_nodes(&traffic.truth, out);
	account_print(out);
	fputs(", \"cards\": [", out);
	for (unsigned int i = 0; i < options.card_count; i++) {
		fputs(i ? ", " : "", out);
		card_print(&traffic.cards[i], out);
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
		card_advance(&traffic.cards[i], clock_ns());
	snprintf(path, sizeof(path), "%s.pages", options.dump);
	err = truth_write_pages(&traffic.truth, path);
	snprintf(path, sizeof(path), "%s.json", options.dump);
	err = err ? err : write_summary(path);
	return err ? err : account_profile();
}

static void register_callbacks(void);

/* QEMU has thrown away all translations and callbacks; every vCPU stands still. */
static void on_reset(qemu_plugin_id_t id)
{
	(void)id;
	pthread_mutex_lock(&traffic.lock);
	if (wanted && !watching)
		traffic_forget();
	account_restart();
	watching = wanted;
	changing = false;
	register_callbacks();
	if (lab_waits)
		window_lab_done(&window, 0, watching);
	else
		window_set_watching(&window, watching);
	lab_waits = false;
	pthread_mutex_unlock(&traffic.lock);
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

static int set_speed(void)
{
	const struct speed speed = {
	    .node = window_lab_word(&window, NPW_LAB_NODE),
	    .latency_ps = window_lab_word(&window, NPW_LAB_LATENCY_PS),
	    .bandwidth_mb = window_lab_word(&window, NPW_LAB_BANDWIDTH),
	};

	return account_set_speed(&speed, window_lab_word(&window, NPW_LAB_EVERY),
				 window_lab_word(&window, NPW_LAB_DELAY_PS));
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
		truth_clear(&traffic.truth);
		if (!watching)
			account_forget();
		break;
	case NPW_LAB_SPEED:
		status = set_speed();
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
	pthread_mutex_lock(&traffic.lock);
	seen = window_serve(&window, clock_ns());
	if (seen & WINDOW_LAB && !lab_waits)
		reset = lab_operation();
	if (seen & WINDOW_WRITE && !stopped_by_hand && want(true))
		reset = true;
	pthread_mutex_unlock(&traffic.lock);
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
	if (watching && account_enabled())
		account_translation(tb, count);
	else if (account_enabled())
		account_marks(tb, count);
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
	pthread_mutex_lock(&traffic.lock);
	window_close(&window);
	for (unsigned int i = 0; i < options.card_count; i++)
		card_close(&traffic.cards[i]);
	/* The lock stays taken: a vCPU that still runs has nothing to go to. */
}

static void register_callbacks(void)
{
	qemu_plugin_register_vcpu_tb_trans_cb(plugin, on_translation);
	qemu_plugin_register_vcpu_idle_cb(plugin, on_idle);
	qemu_plugin_register_atexit_cb(plugin, at_end, NULL);
}

/* ---------------------------------------------------------------- start */
static uint8_t *hdm_block(void *context, unsigned int card)
{
	return window_hdm(context, card);
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	if (!info->system_emulation || info->system.max_vcpus > TRAFFIC_VCPUS) {
		fprintf(stderr, "tierd-lab: the plugin is for machines with at most 64 CPUs\n");
		return -1;
	}
	if (options_parse(&options, argc, argv))
		return -1;
	plugin = id;
	scores = qemu_plugin_scoreboard_new(sizeof(struct vcpu_score));
	since_poll =
	    (qemu_plugin_u64){.score = scores, .offset = offsetof(struct vcpu_score, since_poll)};
	instructions =
	    (qemu_plugin_u64){.score = scores, .offset = offsetof(struct vcpu_score, instructions)};
	clock_init(options.icount, executed);
	if (account_init(&options, (unsigned int)info->system.max_vcpus) ||
	    window_open(&window, options.window) || traffic_open(&options, hdm_block, &window))
		return -1;
	watching = wanted = options.from_boot;
	window_publish(&window, traffic.cards, traffic.card_count);
	window_set_watching(&window, watching);
	register_callbacks();
	return 0;
}
