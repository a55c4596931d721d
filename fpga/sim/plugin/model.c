/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <inttypes.h>
#include <string.h>

static const char *const owner_names[TIMING_OWNERS] = {"workload", "daemon", "kernel", "other"};
static const double first_interval_ns = 5e6;

void model_init(struct model *model, double instruction_ns, double mlp)
{
	memset(model, 0, sizeof(*model));
	timing_init(&model->timing, instruction_ns, mlp);
	model->user = TIMING_OTHER;
}

void model_executed(struct model *model, uint64_t user, uint64_t kernel)
{
	timing_execute(&model->timing, model->user, user - model->user_seen);
	timing_execute(&model->timing, TIMING_KERNEL, kernel - model->kernel_seen);
	model->user_seen = user;
	model->kernel_seen = kernel;
}

static enum timing_owner owner_of(const struct model *model, uint64_t root)
{
	for (unsigned int i = 0; i < model->space_count; i++)
		if (model->spaces[i].root == root)
			return model->spaces[i].owner;
	return TIMING_OTHER;
}

void model_enter(struct model *model, uint64_t root)
{
	model->user = owner_of(model, root);
}

static void claim(struct model *model, uint64_t root, enum timing_owner owner)
{
	unsigned int i = 0;

	while (i < model->space_count && model->spaces[i].root != root)
		i++;
	if (i == MODEL_SPACES_MAX) {
		model->spaces_dropped++;
		return;
	}
	model->spaces[i].root = root;
	model->spaces[i].owner = owner;
	if (i == model->space_count)
		model->space_count++;
	model->user = owner;
}

void model_forget(struct model *model)
{
	model->space_count = model->spaces_dropped = 0;
	model->user = TIMING_OTHER;
}

static void snapshot(const struct model *model, struct model_counts *counts, uint64_t guest_ns)
{
	counts->now_ns = model->timing.now_ns;
	counts->guest_ns = guest_ns;
	memcpy(counts->spent_ns, model->timing.spent_ns, sizeof(counts->spent_ns));
	memcpy(counts->instructions, model->timing.instructions, sizeof(counts->instructions));
	memcpy(counts->lines, model->timing.lines, sizeof(counts->lines));
	memcpy(counts->nodes, model->timing.nodes, sizeof(counts->nodes));
}

void model_mark(struct model *model, enum model_mark what, uint64_t root, uint64_t guest_ns)
{
	switch (what) {
	case MODEL_MARK_START:
		claim(model, root, TIMING_WORKLOAD);
		snapshot(model, &model->begin, guest_ns);
		memset(model->curve, 0, sizeof(model->curve));
		model->point = 0;
		model->interval_ns = first_interval_ns;
		model->inside = true;
		model->complete = false;
		break;
	case MODEL_MARK_STOP:
		if (!model->inside)
			break;
		snapshot(model, &model->end, guest_ns);
		model->inside = false;
		model->complete = true;
		break;
	case MODEL_MARK_WORKLOAD:
		claim(model, root, TIMING_WORKLOAD);
		break;
	case MODEL_MARK_DAEMON:
		claim(model, root, TIMING_DAEMON);
		break;
	default:
		break;
	}
}

/* Two neighbours become one point of twice the time. */
static void fold(struct model *model)
{
	for (unsigned int i = 0; i < MODEL_CURVE_POINTS / 2; i++)
		for (unsigned int n = 0; n < MODEL_CURVE_NODES; n++)
			model->curve[i][n] = model->curve[2 * i][n] + model->curve[2 * i + 1][n];
	memset(model->curve[MODEL_CURVE_POINTS / 2], 0, sizeof(model->curve) / 2);
	model->interval_ns *= 2;
}

static void count(struct model *model, unsigned int node)
{
	double since = model->timing.now_ns - model->begin.now_ns;

	while (since >= model->interval_ns * MODEL_CURVE_POINTS)
		fold(model);
	model->point = (unsigned int)(since / model->interval_ns);
	if (node < MODEL_CURVE_NODES)
		model->curve[model->point][node]++;
}

void model_request(struct model *model, unsigned int node, uint64_t line, bool write, bool kernel)
{
	const enum timing_owner owner = kernel ? TIMING_KERNEL : model->user;

	if (write)
		timing_write(&model->timing, owner, node);
	else
		timing_read(&model->timing, owner, node, line);
	if (model->inside)
		count(model, node);
}

static struct timing_lines between(const struct timing_lines *begin, const struct timing_lines *end)
{
	return (struct timing_lines){
	    .demand = end->demand - begin->demand,
	    .prefetched = end->prefetched - begin->prefetched,
	    .written = end->written - begin->written,
	};
}

static void print_lines(const struct timing_lines *lines, FILE *out)
{
	fprintf(out, "\"demand\": %" PRIu64 ", \"prefetched\": %" PRIu64 ", \"written\": %" PRIu64,
		lines->demand, lines->prefetched, lines->written);
}

static void print_owners(const struct model *model, FILE *out)
{
	const struct model_counts *begin = &model->begin, *end = &model->end;

	for (unsigned int i = 0; i < TIMING_OWNERS; i++) {
		const struct timing_lines lines = between(&begin->lines[i], &end->lines[i]);

		fprintf(out, "%s\"%s\": {\"instructions\": %" PRIu64 ", \"ns\": %.0f, ",
			i ? ", " : "", owner_names[i],
			end->instructions[i] - begin->instructions[i],
			end->spent_ns[i] - begin->spent_ns[i]);
		print_lines(&lines, out);
		fputs("}", out);
	}
}

static void print_nodes(const struct model *model, FILE *out)
{
	const char *comma = "";

	for (unsigned int i = 0; i < TIMING_NODES_MAX; i++) {
		const struct timing_node *a = &model->begin.nodes[i], *b = &model->end.nodes[i];
		const struct timing_lines lines = between(&a->lines, &b->lines);

		if (lines.demand + lines.prefetched + lines.written == 0)
			continue;
		fprintf(out, "%s\"%u\": {", comma, i);
		print_lines(&lines, out);
		fprintf(out, ", \"waited_ns\": %.0f}", b->waited_ns - a->waited_ns);
		comma = ", ";
	}
}

void model_print(const struct model *model, FILE *out)
{
	fputs("\"region\": ", out);
	if (!model->complete) {
		fputs("null", out);
		return;
	}
	fprintf(out,
		"{\"ns\": %.0f, \"guest_ns\": %" PRIu64 ", \"spaces_dropped\": %u, \"owners\": {",
		model->end.now_ns - model->begin.now_ns,
		model->end.guest_ns - model->begin.guest_ns, model->spaces_dropped);
	print_owners(model, out);
	fputs("}, \"nodes\": {", out);
	print_nodes(model, out);
	fprintf(out, "}, \"interval_ns\": %.0f, \"curve\": [", model->interval_ns);
	for (unsigned int i = 0; i <= model->point; i++) {
		fprintf(out, "%s[", i ? ", " : "");
		for (unsigned int n = 0; n < MODEL_CURVE_NODES; n++)
			fprintf(out, "%s%" PRIu64, n ? ", " : "", model->curve[i][n]);
		fputs("]", out);
	}
	fputs("]}", out);
}
