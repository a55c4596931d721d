/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modelled time of a measured region: instructions by owner, waiting by node, and how the
 * requests' share of each node went. One processor.
 */
#ifndef TIERD_LAB_MODEL_H
#define TIERD_LAB_MODEL_H

#include "timing.h"

#include <stdio.h>

/*
 * A program marks itself with a no-op that no compiler makes: nopl with the displacement
 * MODEL_MARK | what. tests/workloads/suite/mark.h is the programs' side.
 */
enum model_mark {
	MODEL_MARK = 0x74696500,
	MODEL_MARK_START = 0x01,    /* the region begins; the process is the workload */
	MODEL_MARK_STOP = 0x02,	    /* ... ends */
	MODEL_MARK_WORKLOAD = 0x03, /* the process is a part of the workload */
	MODEL_MARK_DAEMON = 0x04,   /* ... of the tiering daemon */
};

enum {
	MODEL_SPACES_MAX = 64,	  /* address spaces that have marked themselves */
	MODEL_CURVE_NODES = 4,	  /* nodes 0 to 3 are in the curve */
	MODEL_CURVE_POINTS = 512, /* then two become one */
};

struct model_counts {
	double now_ns, spent_ns[TIMING_OWNERS];
	uint64_t instructions[TIMING_OWNERS], guest_ns;
	struct timing_lines lines[TIMING_OWNERS];
	struct timing_node nodes[TIMING_NODES_MAX];
};

struct model {
	struct timing timing;
	uint64_t user_seen, kernel_seen; /* instructions that timing knows of */
	enum timing_owner user;		 /* whose user instructions come now */
	struct {
		uint64_t root;
		enum timing_owner owner;
	} spaces[MODEL_SPACES_MAX];
	unsigned int space_count, spaces_dropped;
	bool inside, complete;
	struct model_counts begin, end;
	double interval_ns;
	uint64_t curve[MODEL_CURVE_POINTS][MODEL_CURVE_NODES];
	unsigned int point;
};

void model_init(struct model *model, double instruction_ns, double mlp);

/* So many instructions were executed since the start, in user mode and in the kernel. */
void model_executed(struct model *model, uint64_t user, uint64_t kernel);

/* No process is known any more: their page tables' places are used again when they end. */
void model_forget(struct model *model);

/* The processor goes on in user mode with the page tables at `root`. */
void model_enter(struct model *model, uint64_t root);

/* A mark was executed by the process whose page tables are at `root`. */
void model_mark(struct model *model, enum model_mark what, uint64_t root, uint64_t guest_ns);

/* A line was read or written back; `kernel`: the kernel is executing. */
void model_request(struct model *model, unsigned int node, uint64_t line, bool write, bool kernel);

/* The last whole region as a member of a JSON object. */
void model_print(const struct model *model, FILE *out);

#endif
