/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agents: processes that make calls which may never return.
 *
 * move_pages(2) and process_madvise(2) take the map lock of the other process (mmap_read_lock), and
 * some of DAMON's files wait for a kernel thread that does. No signal ends these waits. If that
 * process waits for a file server while it holds the lock, the caller waits for as long, and with
 * it the end of its process. So the service leaves such calls to agents, with which it shares a
 * piece of memory for the call and a socket that says when it is made and when it is done. An agent
 * that sleeps for longer than an answer may take is left to itself, and used again when it has
 * answered. One that ran meanwhile, or waited for a processor, is only slow: it is waited for.
 *
 * All memory and sockets are made at the start, and one process is forked, which forks agents when
 * they are needed: forked later, they would keep a copy of all that the service has.
 */
#define _GNU_SOURCE
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pagekey.h"
#include "sys.h"

enum {
	AGENTS = 16,
	/* Pages of one call. */
	PAGES = 1 << 16,
	PATH_BYTES = 512,
	TEXT_BYTES = 512,
	/* A call sleeps if the agent was active for less than this part of the time, and one that
	 * is active is waited for so many times. */
	SLEEPS = 50,
	SLOW = 20,
	/* DAMON's kernel thread works meanwhile, for a few of its sampling intervals. */
	DAMON_TIMES = 10,
	/* What calls about DAMON count as calls about; no process has that number. */
	DAMON = -1,
};

enum op { MOVE, MAPPED, COLD, WRITE };

struct call {
	enum op op;
	int pid;
	/* Who makes it. */
	int agent;
	bool has_nodes;
	int64_t result;
	uint64_t cpu_ns;
	/* Pages, or bytes of text. */
	uint64_t n;
	/* Bytes from each address on. */
	uint64_t length;
	char path[PATH_BYTES];
	char text[TEXT_BYTES];
	void *address[PAGES];
	int node[PAGES];
	/* Of MAPPED, categories. */
	int status[PAGES];
};

struct agent {
	struct call *call;
	int fd;
	int child_fd;
	bool forked;
	bool busy;
	/* Its answer is not waited for any more. */
	bool late;
	int about;
};

static struct {
	pthread_mutex_t lock;
	bool started;
	int forker;
	int answer_ms;
	uint64_t timeouts;
	struct agent agent[AGENTS];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local uint64_t spent_ns;

uint64_t tierd_thread_cpu_ns(void)
{
	return sys_thread_cpu_ns() + spent_ns;
}

/* ---- in an agent, or in the service itself where there are none ---- */

static int64_t mapped(struct call *call)
{
	const int pagemap = sys_open_pagemap(call->pid);
	uint64_t walk_end;

	if (pagemap < 0)
		return pagemap;
	for (size_t i = 0; i < call->n; i++) {
		const uint64_t at = (uint64_t)(uintptr_t)call->address[i];
		struct tierd_region run = {0};
		int64_t found;

		found = tierd_pagemap_scan(pagemap, at, at + call->length, TIERD_PAGE_PRESENT,
					   TIERD_PAGE_PFNZERO, 1, &run, 1, &walk_end);
		call->status[i] = (int)found;
		if (found > 0)
			call->status[i] = (int)(run.categories | TIERD_PAGE_PRESENT);
	}
	close(pagemap);
	return 0;
}

static int64_t cold(const struct call *call)
{
	const long pidfd = syscall(SYS_pidfd_open, call->pid, 0);
	int64_t result;

	if (pidfd == -1)
		return -errno;
	result = sys_advise_cold((int)pidfd, (uint64_t)(uintptr_t)call->address[0], call->length);
	close((int)pidfd);
	return result;
}

static int64_t write_file(const struct call *call)
{
	const int fd = open(call->path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	int64_t result;

	if (fd == -1)
		return -errno;
	result = write(fd, call->text, call->n) == -1 ? -errno : 0;
	close(fd);
	return result;
}

static int64_t perform(struct call *call)
{
	switch (call->op) {
	case MOVE:
		return sys_move_pages(call->pid, call->n, call->address,
				      call->has_nodes ? call->node : NULL, call->status);
	case MAPPED:
		return mapped(call);
	case COLD:
		return cold(call);
	case WRITE:
		return write_file(call);
	}
	return -EINVAL;
}

static void keep_only(int fd)
{
	if (fd > 0)
		close_range(0, (unsigned int)fd - 1, 0);
	close_range((unsigned int)fd + 1, ~0U, 0);
}

static _Noreturn void serve(const struct agent *agent)
{
	char word;

	agent->call->agent = getpid();
	keep_only(agent->child_fd);
	for (;;) {
		const ssize_t got = read(agent->child_fd, &word, 1);
		uint64_t start;

		if (got == -1 && errno == EINTR)
			continue;
		if (got != 1)
			_exit(0); /* The service has ended. */
		start = sys_thread_cpu_ns();
		agent->call->result = perform(agent->call);
		agent->call->cpu_ns = sys_thread_cpu_ns() - start;
		if (send(agent->child_fd, &word, 1, MSG_NOSIGNAL) != 1)
			_exit(0);
	}
}

static void drop_capabilities(uint64_t keep)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data) != 0)
		return;
	for (int i = 0; i < 2; i++) {
		const uint32_t kept = (uint32_t)(keep >> (32 * i));

		data[i].effective &= kept;
		data[i].permitted &= kept;
		data[i].inheritable &= kept;
	}
	(void)syscall(SYS_capset, &header, data);
}

/* Fork an agent for each number that is read; those that end are waited for by nobody. */
static _Noreturn void fork_agents(int fd, uint64_t keep)
{
	static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE, SIGCHLD};
	unsigned char number;

	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		signal(ignored[i], SIG_IGN);
	prctl(PR_SET_NAME, "tierd-agent");
	drop_capabilities(keep);
	for (int i = 0; i < AGENTS; i++)
		close(pool.agent[i].fd);
	close(pool.forker);
	for (;;) {
		const ssize_t got = read(fd, &number, 1);

		if (got == -1 && errno == EINTR)
			continue;
		if (got != 1)
			_exit(0);
		if (number < AGENTS && fork() == 0)
			serve(&pool.agent[number]);
	}
}

/* ---- in the service ---- */

/* What no call needs of it the kernel does not give. */
static bool has_memory(struct agent *agent)
{
	if (agent->call == NULL)
		agent->call = mmap(NULL, sizeof(*agent->call), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (agent->call == MAP_FAILED)
		agent->call = NULL;
	return agent->call != NULL;
}

static int make(int *forked_end)
{
	int pair[2];

	for (int i = 0; i < AGENTS; i++) {
		struct agent *agent = &pool.agent[i];

		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
			return -errno;
		agent->fd = pair[0];
		agent->child_fd = pair[1];
		if (!has_memory(agent))
			return -ENOMEM;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		return -errno;
	pool.forker = pair[0];
	*forked_end = pair[1];
	return 0;
}

int tierd_agents_start(uint64_t capabilities, uint64_t answer_ns)
{
	int fd = -1, result;
	pid_t pid;

	if (pool.started)
		return 0;
	result = make(&fd);
	if (result != 0)
		return result;
	pid = fork();
	if (pid == -1)
		return -errno;
	if (pid == 0)
		fork_agents(fd, capabilities);
	close(fd);
	for (int i = 0; i < AGENTS; i++)
		close(pool.agent[i].child_fd);
	pool.answer_ms = (int)(answer_ns / 1000000);
	pool.started = true;
	return 0;
}

/* Whether an answer came, or the agent has ended. */
static bool answers(const struct agent *agent, int timeout_ms)
{
	struct pollfd waits = {.fd = agent->fd, .events = POLLIN};
	const uint64_t end = sys_monotonic_ns() + (uint64_t)timeout_ms * 1000000;
	int ready;

	while ((ready = poll(&waits, 1, timeout_ms)) == -1 && errno == EINTR) {
		const uint64_t now = sys_monotonic_ns();

		timeout_ms = now < end ? (int)((end - now) / 1000000) : 0;
	}
	return ready == 1;
}

/*
 * Nanoseconds that an agent ran and waited for a processor, 0 if that is not known.
 * Source: /proc/PID/schedstat, Documentation/scheduler/sched-stats.rst.
 */
static uint64_t activity_ns(const struct agent *agent)
{
	unsigned long long ran, waited;
	char path[40], text[96];
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", agent->call->agent);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd == -1)
		return 0;
	got = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (got <= 0)
		return 0;
	text[got] = '\0';
	return sscanf(text, "%llu %llu", &ran, &waited) == 2 ? ran + waited : 0;
}

/* Whether an answer came, or the agent has ended, before the agent slept for as long as given. */
static bool waited_for(const struct agent *agent, int sleep_ms)
{
	const uint64_t least = (uint64_t)sleep_ms * 1000000 / SLEEPS;
	uint64_t before = activity_ns(agent);

	for (int i = 0; i < SLOW; i++) {
		uint64_t now;

		if (answers(agent, sleep_ms))
			return true;
		now = activity_ns(agent);
		if (now < before + least)
			return false;
		before = now;
	}
	return false;
}

/* Take the answer; false if the agent has ended. */
static bool take_answer(const struct agent *agent)
{
	char word;

	return read(agent->fd, &word, 1) == 1;
}

/* Use agents again that have answered after all. */
static void welcome_back(void)
{
	for (int i = 0; i < AGENTS; i++) {
		struct agent *agent = &pool.agent[i];

		if (agent->late && answers(agent, 0) && take_answer(agent))
			agent->late = agent->busy = false;
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

/* A free agent for a call about a process, NULL if there is none. */
static struct agent *pick(int about)
{
	for (int i = 0; i < AGENTS; i++) {
		struct agent *agent = &pool.agent[i];
		const unsigned char number = (unsigned char)i;

		if (agent->busy)
			continue;
		if (pool.started && !agent->forked)
			agent->forked = send(pool.forker, &number, 1, MSG_NOSIGNAL) == 1;
		agent->busy = agent->forked == pool.started && has_memory(agent);
		agent->about = about;
		return agent->busy ? agent : NULL;
	}
	return NULL;
}

/* Begin a call; `*result` is why there is no agent for it. */
static struct call *begin(enum op op, int about, size_t n, struct agent **taken, int *result)
{
	pthread_mutex_lock(&pool.lock);
	welcome_back();
	*taken = is_late(about) ? NULL : pick(about);
	*result = *taken != NULL ? 0 : is_late(about) ? -ETIMEDOUT : -EAGAIN;
	pthread_mutex_unlock(&pool.lock);
	if (*taken == NULL)
		return NULL;
	(*taken)->call->op = op;
	(*taken)->call->pid = about;
	(*taken)->call->n = n;
	return (*taken)->call;
}

static void end(struct agent *agent, bool late)
{
	pthread_mutex_lock(&pool.lock);
	agent->busy = agent->late = late;
	pool.timeouts += late;
	pthread_mutex_unlock(&pool.lock);
}

/* Have it made. If there is no answer, the call has ended here; one that was killed gives none. */
static int carry_out(struct agent *agent)
{
	const int times = agent->about == DAMON ? DAMON_TIMES : 1;
	const char word = 0;

	if (!pool.started) {
		agent->call->result = perform(agent->call);
		return 0;
	}
	if (send(agent->fd, &word, 1, MSG_NOSIGNAL) == 1 &&
	    waited_for(agent, times * pool.answer_ms) && take_answer(agent)) {
		spent_ns += agent->call->cpu_ns;
		return 0;
	}
	end(agent, true);
	return -ETIMEDOUT;
}

static long move_some(int pid, size_t n, void **pages, const int *nodes, int *status)
{
	struct agent *agent;
	int result;
	struct call *call = begin(MOVE, pid, n, &agent, &result);

	if (call == NULL)
		return result;
	call->has_nodes = nodes != NULL;
	memcpy(call->address, pages, n * sizeof(*pages));
	memcpy(call->status, status, n * sizeof(*status));
	if (nodes != NULL)
		memcpy(call->node, nodes, n * sizeof(*nodes));
	result = carry_out(agent);
	if (result != 0)
		return result;
	memcpy(status, call->status, n * sizeof(*status));
	result = (int)call->result;
	end(agent, false);
	return result;
}

long tierd_move_pages(int pid, unsigned long count, void **pages, const int *nodes, int *status)
{
	long left = 0;

	for (unsigned long done = 0; done < count; done += PAGES) {
		const size_t n = count - done < PAGES ? count - done : PAGES;
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
	struct agent *agent;
	int result;
	struct call *call = begin(MAPPED, pid, n, &agent, &result);

	if (call == NULL)
		return result;
	call->length = length;
	memcpy(call->address, address, n * sizeof(*address));
	result = carry_out(agent);
	if (result != 0)
		return result;
	memcpy(categories, call->status, n * sizeof(*categories));
	result = (int)call->result;
	end(agent, false);
	return result;
}

/* Have a call made that gives nothing back but its result, and free the agent. */
static int made(struct agent *agent)
{
	int result = carry_out(agent);

	if (result == 0) {
		result = (int)agent->call->result;
		end(agent, false);
	}
	return result;
}

int tierd_advise_cold(int pid, uint64_t start, uint64_t length)
{
	struct agent *agent;
	int result;
	struct call *call = begin(COLD, pid, 1, &agent, &result);

	if (call == NULL)
		return result;
	call->address[0] = (void *)(uintptr_t)start;
	call->length = length;
	return made(agent);
}

int tierd_write_damon(const char *path, const char *text, size_t n)
{
	struct agent *agent;
	int result;
	struct call *call;

	if (strlen(path) >= PATH_BYTES || n > TEXT_BYTES)
		return -ENAMETOOLONG;
	call = begin(WRITE, DAMON, n, &agent, &result);
	if (call == NULL)
		return result;
	strcpy(call->path, path);
	memcpy(call->text, text, n);
	return made(agent);
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
