/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service's agents: one is found for a call, and its answer is waited for.
 *
 * An agent that is not waited for any more is used again when it has answered. In the place of one
 * that was killed another one is forked.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent.h"
#include "sys.h"

/* DAMON's kernel thread works meanwhile, for a few of its sampling intervals. */
enum { DAMON_TIMES = 10 };

struct agent {
	/* -1: there is no such agent now. */
	int fd;
	bool busy;
	/* Its answer is not waited for any more. */
	bool late;
	int about;
};

static struct {
	pthread_mutex_t lock;
	bool started;
	/* The process that forks agents. */
	int forker;
	int answer_ms;
	uint64_t timeouts;
	/* Memory for the call of each agent. It outlives the agent: a forked one has it already. */
	struct agent_call *call[AGENTS];
	struct agent agent[AGENTS];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local uint64_t spent_ns;

uint64_t tierd_thread_cpu_ns(void)
{
	return sys_thread_cpu_ns() + spent_ns;
}

/* Pages of it are allocated when they are first used. */
static bool has_memory(int number)
{
	struct agent_call **call = &pool.call[number];

	if (*call == NULL)
		*call = mmap(NULL, sizeof(**call), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (*call == MAP_FAILED)
		*call = NULL;
	return *call != NULL;
}

int tierd_agents_start(uint64_t capabilities, uint64_t answer_ns)
{
	int pair[2];
	pid_t pid;

	if (pool.started)
		return 0;
	for (int i = 0; i < AGENTS; i++) {
		pool.agent[i].fd = -1;
		if (!has_memory(i))
			return -ENOMEM;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		agent_fork_on_request(pair[1], pool.call, capabilities);
	close(pair[1]);
	if (pid == -1) {
		const int result = -errno;

		close(pair[0]);
		return result;
	}
	pool.forker = pair[0];
	pool.answer_ms = (int)(answer_ns / 1000000);
	pool.started = true;
	return 0;
}

/* Have an agent forked; false if it cannot be. */
static bool make(int number)
{
	struct agent *agent = &pool.agent[number];
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		return false;
	pool.call[number]->agent = 0;
	agent->fd = pair[0];
	if (!agent_request(pool.forker, (unsigned char)number, pair[1])) {
		close(agent->fd);
		agent->fd = -1;
	}
	close(pair[1]);
	return agent->fd != -1;
}

static void forget(struct agent *agent)
{
	close(agent->fd);
	agent->fd = -1;
	agent->busy = agent->late = false;
}

/* Take the answer; false if the agent has ended. */
static bool take_answer(const struct agent *agent)
{
	char word;

	return read(agent->fd, &word, 1) == 1;
}

/* Use agents again that have answered after all, and forget those that have ended. */
static void welcome_back(void)
{
	for (int i = 0; i < AGENTS; i++) {
		struct agent *agent = &pool.agent[i];

		if (!pool.started || agent->fd == -1 || (agent->busy && !agent->late) ||
		    !agent_answers(agent->fd, 0))
			continue;
		if (take_answer(agent))
			agent->late = agent->busy = false;
		else
			forget(agent);
	}
}

static bool is_late(int about)
{
	for (int i = 0; i < AGENTS; i++) {
		if (pool.agent[i].late && pool.agent[i].about == about)
			return true;
	}
	return false;
}

/* The number of a free agent for a call about a process, -1 if there is none. */
static int pick(int about)
{
	for (int i = 0; i < AGENTS; i++) {
		struct agent *agent = &pool.agent[i];

		if (agent->busy)
			continue;
		if (!has_memory(i) || (pool.started && agent->fd == -1 && !make(i)))
			continue; /* Another one may be there already. */
		agent->busy = true;
		agent->about = about;
		return i;
	}
	return -1;
}

struct agent_call *agent_begin(enum agent_op op, int about, size_t n, int *result)
{
	struct agent_call *call;
	int number = -1;

	*result = -ETIMEDOUT;
	pthread_mutex_lock(&pool.lock);
	welcome_back();
	if (!is_late(about)) {
		number = pick(about);
		*result = number != -1 ? 0 : -EAGAIN;
	}
	pthread_mutex_unlock(&pool.lock);
	if (number == -1)
		return NULL;
	call = pool.call[number];
	call->op = op;
	call->pid = about;
	call->n = n;
	return call;
}

static struct agent *agent_of(const struct agent_call *call)
{
	int number = 0;

	while (pool.call[number] != call)
		number++;
	return &pool.agent[number];
}

void agent_end(struct agent_call *call)
{
	pthread_mutex_lock(&pool.lock);
	agent_of(call)->busy = false;
	pthread_mutex_unlock(&pool.lock);
}

int agent_carry_out(struct agent_call *call)
{
	struct agent *agent = agent_of(call);
	const int times = agent->about == AGENT_DAMON ? DAMON_TIMES : 1;
	const char word = 0;
	bool asked, ended;

	if (!pool.started) {
		call->result = agent_perform(call);
		return 0;
	}
	asked = send(agent->fd, &word, 1, MSG_NOSIGNAL) == 1;
	ended = !asked || agent_waited_for(agent->fd, call, times * pool.answer_ms);
	if (ended && asked && take_answer(agent)) {
		spent_ns += call->cpu_ns;
		return 0;
	}
	pthread_mutex_lock(&pool.lock);
	if (ended) {
		forget(agent);
	} else {
		agent->late = true;
		pool.timeouts++;
	}
	pthread_mutex_unlock(&pool.lock);
	return ended ? -EAGAIN : -ETIMEDOUT;
}

size_t tierd_agents_late(int *about, size_t space, uint64_t *timeouts)
{
	size_t n = 0;

	pthread_mutex_lock(&pool.lock);
	welcome_back();
	for (int i = 0; i < AGENTS; i++) {
		if (pool.agent[i].late && n < space)
			about[n++] = pool.agent[i].about;
	}
	*timeouts = pool.timeouts;
	pthread_mutex_unlock(&pool.lock);
	return n;
}
