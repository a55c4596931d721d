/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that agents make, as the service has them. */
#include <errno.h>
#include <string.h>

#include "agent.h"
#include "pagekey.h"

static long move_some(int pid, size_t n, void **pages, const int *nodes, int *status)
{
	int result;
	struct agent_call *call = agent_begin(AGENT_MOVE, pid, n, &result);

	if (call == NULL)
		return result;
	call->has_nodes = nodes != NULL;
	memcpy(call->address, pages, n * sizeof(*pages));
	memcpy(call->status, status, n * sizeof(*status));
	if (nodes != NULL)
		memcpy(call->node, nodes, n * sizeof(*nodes));
	result = agent_carry_out(call);
	if (result != 0)
		return result;
	memcpy(status, call->status, n * sizeof(*status));
	result = (int)call->result;
	agent_end(call);
	return result;
}

long tierd_move_pages(int pid, unsigned long count, void **pages, const int *nodes, int *status)
{
	long left = 0;

	for (unsigned long done = 0; done < count; done += AGENT_PAGES) {
		const size_t n = count - done < AGENT_PAGES ? count - done : AGENT_PAGES;
		const long result = move_some(pid, n, pages + done,
					      nodes == NULL ? NULL : nodes + done, status + done);

		if (result < 0)
			return result;
		left += result;
	}
	return left;
}

int agent_mapped(int pid, size_t n, void *const *address, uint64_t length, int *categories)
{
	int result;
	struct agent_call *call = agent_begin(AGENT_MAPPED, pid, n, &result);

	if (call == NULL)
		return result;
	call->length = length;
	memcpy(call->address, address, n * sizeof(*address));
	result = agent_carry_out(call);
	if (result != 0)
		return result;
	memcpy(categories, call->status, n * sizeof(*categories));
	result = (int)call->result;
	agent_end(call);
	return result;
}

/* Have a call made that gives nothing back but its result, and free the agent. */
static int64_t made(struct agent_call *call)
{
	int64_t result = agent_carry_out(call);

	if (result == 0) {
		result = call->result;
		agent_end(call);
	}
	return result;
}

int64_t tierd_advise(int pid, const struct tierd_span *span, size_t n, int advice)
{
	int result;
	struct agent_call *call;

	if (n > AGENT_PAGES)
		return -EINVAL;
	call = agent_begin(AGENT_ADVISE, pid, n, &result);
	if (call == NULL)
		return result;
	call->advice = advice;
	for (size_t i = 0; i < n; i++) {
		call->address[i] = (void *)(uintptr_t)(span[i].start << PAGE_SHIFT);
		call->node[i] = (int)(span[i].end - span[i].start);
	}
	return made(call);
}

int tierd_write_damon(const char *path, const char *text, size_t n)
{
	int result;
	struct agent_call *call;

	if (strlen(path) >= AGENT_PATH_BYTES || n > AGENT_TEXT_BYTES)
		return -ENAMETOOLONG;
	call = agent_begin(AGENT_WRITE, AGENT_DAMON, n, &result);
	if (call == NULL)
		return result;
	strcpy(call->path, path);
	memcpy(call->text, text, n);
	return (int)made(call);
}
