/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agents: processes that make calls which may never return.
 *
 * move_pages(2) and process_madvise(2) take the map lock of the other process (mmap_read_lock), and
 * some of DAMON's files wait for a kernel thread that does. No signal ends these waits. If that
 * process waits for a file server while it holds the lock, the caller waits for as long, and with
 * it the end of its process. So the service leaves such calls to agents.
 *
 * agent_calls.c has the calls, agent_pool.c finds an agent for one, agent_wait.c waits for its
 * answer, and agent.c is what runs in the agent. The service shares a piece of memory with each
 * agent, for the call, and a socket, which says when a call is to be made and when it is done.
 */
#ifndef TIERD_AGENT_H
#define TIERD_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tierd_native.h"

enum {
	AGENTS = 16,
	/* Pages of one call. */
	AGENT_PAGES = 1 << 16,
	AGENT_PATH_BYTES = 512,
	AGENT_TEXT_BYTES = 512,
	/* What calls about DAMON count as calls about; no process has that number. */
	AGENT_DAMON = -1,
};

enum agent_op { AGENT_MOVE, AGENT_MAPPED, AGENT_ADVISE, AGENT_WRITE };

struct agent_call {
	enum agent_op op;
	int pid;
	/* Who makes it, 0 if that is not known yet. */
	int agent;
	bool has_nodes;
	int64_t result;
	uint64_t cpu_ns;
	/* Pages, or bytes of text. */
	uint64_t n;
	/* Bytes from each address on, of AGENT_MAPPED. */
	uint64_t length;
	/* Of AGENT_ADVISE, as of process_madvise(2). */
	int advice;
	char path[AGENT_PATH_BYTES];
	char text[AGENT_TEXT_BYTES];
	void *address[AGENT_PAGES];
	/* Of AGENT_ADVISE, 4 KiB pages from each address on. */
	int node[AGENT_PAGES];
	/* Of AGENT_MAPPED, categories. */
	int status[AGENT_PAGES];
};

/* agent_calls.c */

/*
 * For each of n ranges of `length` bytes: the categories of the first page that is present there, 0
 * if none is, or a negative errno. Returns a negative errno if nothing could be found out.
 */
int agent_mapped(int pid, size_t n, void *const *address, uint64_t length, int *categories);

/* agent_pool.c */

/* The call to fill in, about a process; NULL and `*result` if there is no agent for it. */
struct agent_call *agent_begin(enum agent_op op, int about, size_t n, int *result);
/* Have it made; 0, and agent_end must follow, or a negative errno, and it has ended. */
int agent_carry_out(struct agent_call *call);
void agent_end(struct agent_call *call);

/* agent_wait.c: of its socket */

/* Whether an answer comes in time, or the agent has ended. */
bool agent_answers(int fd, int timeout_ms);
/* Wait for an answer or the agent's end; false once the agent has been asleep for so long. */
bool agent_waited_for(int fd, const struct agent_call *call, int sleep_ms);

/* agent.c */

/* Make a call: in an agent, or in the service itself where there are none. */
int64_t agent_perform(struct agent_call *call);
/* Fork an agent for each request that comes through a socket, until the service ends. */
_Noreturn void agent_fork_on_request(int requests, struct agent_call *const call[AGENTS],
				     uint64_t capabilities);
/* Ask for an agent of this number, with its end of a socket; false if it cannot be asked for. */
bool agent_request(int requests, unsigned char number, int socket);

#endif
