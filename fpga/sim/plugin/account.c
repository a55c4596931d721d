/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QEMU adds up executed instructions in a scoreboard, apart for user and kernel mode, without
 * calling anybody. A block of user code that follows kernel code asks whose page tables are in
 * use; everything up to the next time belongs to that process.
 */
#include "account.h"

#include "clock.h"
#include "model.h"
#include "pace.h"
#include "profile.h"
#include "registers.h"
#include "samples.h"
#include "traffic.h"

#include <errno.h>
#include <string.h>

struct account_score {
	uint64_t user, kernel; /* instructions */
	uint64_t in_kernel;    /* 1 in the kernel, and until user code has been recognised */
};

static struct qemu_plugin_scoreboard *scores;
static qemu_plugin_u64 user_mode, kernel_mode, in_kernel;
static struct model model;
static unsigned int line_bytes;
static unsigned int lines_log2; /* of the lines in a page */
static const char *profile;	/* where it goes; NULL: none */
static bool enabled;

static int complain(const char *what)
{
	fprintf(stderr, "tierd-lab: %s\n", what);
	return -1;
}

int account_init(const struct options *options, unsigned int vcpus)
{
	if (!options->instruction_ps)
		return 0;
	if (vcpus != 1)
		return complain("time= needs a machine with one CPU");
	line_bytes = options->cache_line;
	model_init(&model, options->instruction_ps / 1e3, options->mlp_percent / 1e2);
	for (unsigned int i = 0; i < options->speed_count; i++) {
		const struct speed *speed = &options->speeds[i];

		if (timing_set_node(&model.timing, speed->node, (double)speed->latency_ps / 1e3,
				    (double)speed->bandwidth_mb * 1e6, options->cache_line))
			return complain("speed= is for nodes below 64");
	}
	while (options->cache_line << lines_log2 < 1u << TRUTH_PAGE_LOG2)
		lines_log2++;
	if (samples_open(options->window))
		return -1;
	if (options->pace_us &&
	    pace_init(options->icount,
		      (double)(1u << options->icount) / model.timing.instruction_ns,
		      options->pace_us * 1e3))
		return -1;
	profile = options->profile;
	scores = qemu_plugin_scoreboard_new(sizeof(struct account_score));
	user_mode = (qemu_plugin_u64){scores, offsetof(struct account_score, user)};
	kernel_mode = (qemu_plugin_u64){scores, offsetof(struct account_score, kernel)};
	in_kernel = (qemu_plugin_u64){scores, offsetof(struct account_score, in_kernel)};
	enabled = true;
	return 0;
}

bool account_enabled(void)
{
	return enabled;
}

int account_set_speed(const struct speed *speed, uint32_t every, uint64_t delay_ps)
{
	int err;

	if (!enabled)
		return -ENODEV;
	err = timing_set_node(&model.timing, speed->node, (double)speed->latency_ps / 1e3,
			      (double)speed->bandwidth_mb * 1e6, line_bytes);
	return err ? err
		   : timing_set_delay(&model.timing, speed->node, every, (double)delay_ps / 1e3);
}

/* Tells the model what was executed; true in the kernel. */
static bool catch_up(void)
{
	const struct account_score *score = qemu_plugin_scoreboard_find(scores, 0);

	model_executed(&model, score->user, score->kernel);
	return score->in_kernel;
}

static void on_enter_user(unsigned int vcpu, void *data)
{
	struct account_score *score = qemu_plugin_scoreboard_find(scores, vcpu);

	(void)data;
	pthread_mutex_lock(&traffic.lock);
	catch_up();
	score->in_kernel = 0;
	model_enter(&model, registers_root());
	pthread_mutex_unlock(&traffic.lock);
}

static void on_mark(unsigned int vcpu, void *what)
{
	(void)vcpu;
	pthread_mutex_lock(&traffic.lock);
	catch_up();
	if (profile && (enum model_mark)(uintptr_t)what == MODEL_MARK_START)
		profile_clear();
	model_mark(&model, (enum model_mark)(uintptr_t)what, registers_root(), clock_ns());
	pthread_mutex_unlock(&traffic.lock);
}

static void on_block(unsigned int vcpu, void *block)
{
	(void)vcpu;
	if (model.inside)
		profile_executed(block, model.user);
}

/* To be asked for when it is known whose turn it is. */
static void watch_block(struct qemu_plugin_tb *tb, size_t count)
{
	struct profile_block *block =
	    profile ? profile_block(qemu_plugin_tb_vaddr(tb), (uint32_t)count) : NULL;

	if (block)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, QEMU_PLUGIN_CB_NO_REGS, block);
}

static void watch_marks(struct qemu_plugin_insn *insn)
{
	static const unsigned char nopl[] = {0x0f, 0x1f, 0x80};
	unsigned char code[sizeof(nopl) + sizeof(uint32_t)];
	uint32_t displacement;

	if (qemu_plugin_insn_data(insn, code, sizeof(code)) != sizeof(code) ||
	    memcmp(code, nopl, sizeof(nopl)))
		return;
	memcpy(&displacement, code + sizeof(nopl), sizeof(displacement));
	if ((displacement & ~0xffu) == MODEL_MARK)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark, QEMU_PLUGIN_CB_R_REGS,
						       (void *)(uintptr_t)(displacement & 0xff));
}

void account_translation(struct qemu_plugin_tb *tb, size_t count)
{
	if (qemu_plugin_tb_vaddr(tb) >> 63) {
		qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_STORE_U64,
								  in_kernel, 1);
		qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_ADD_U64,
								  kernel_mode, count);
		watch_block(tb, count);
		return;
	}
	/* First whose it is, then how much. */
	qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, on_enter_user, QEMU_PLUGIN_CB_R_REGS,
						  QEMU_PLUGIN_COND_NE, in_kernel, 0, NULL);
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_ADD_U64, user_mode,
							  count);
	watch_block(tb, count);
	account_marks(tb, count);
}

void account_marks(struct qemu_plugin_tb *tb, size_t count)
{
	if (qemu_plugin_tb_vaddr(tb) >> 63)
		return;
	for (size_t i = 0; i < count; i++)
		watch_marks(qemu_plugin_tb_get_insn(tb, i));
}

void account_forget(void)
{
	model_forget(&model);
}

int account_profile(void)
{
	return profile ? profile_write(profile) : 0;
}

void account_restart(void)
{
	if (enabled)
		((struct account_score *)qemu_plugin_scoreboard_find(scores, 0))->in_kernel = 1;
}

void account_request(unsigned int node, uint64_t vline, enum account_kind kind)
{
	bool kernel;

	if (!enabled)
		return;
	kernel = catch_up();
	model_request(&model, node, vline, kind == ACCOUNT_WRITE_BACK, kernel);
	if (kind != ACCOUNT_WRITE_BACK && !kernel && model.user == TIMING_WORKLOAD)
		samples_miss(node, vline >> lines_log2, kind == ACCOUNT_STORE);
	pace_waited(model.timing.waited_ns);
}

void account_print(FILE *out)
{
	if (!enabled)
		return;
	fputs(", ", out);
	model_print(&model, out);
}
