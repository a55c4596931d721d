/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runs in an agent, and in the process that forks agents.
 *
 * That process is forked when the service starts, is small and has one thread: what is forked later
 * would keep a copy of all that the service has, and of locks that its other threads hold. It gets
 * a socket for each agent, and forgets it as soon as the agent has it. So the service finds the
 * socket closed when an agent has ended, and asks for another one.
 */
#define _GNU_SOURCE
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pagekey.h"
#include "sys.h"

/* Most ranges of a process_madvise call: UIO_MAXIOV of linux/uio.h. */
enum { ADVISED_AT_ONCE = 1024 };

static int64_t mapped(struct agent_call *call)
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

/* A range that is refused (locked, or gone) does not keep those behind it from being advised. */
static int64_t advise(const struct agent_call *call)
{
	const long pidfd = syscall(SYS_pidfd_open, call->pid, 0);
	struct iovec range[ADVISED_AT_ONCE];
	int64_t total = 0, result = 0;

	if (pidfd == -1)
		return -errno;
	for (size_t first = 0; first < call->n;) {
		size_t n = 0, done = 0;
		uint64_t left;

		for (; n < ADVISED_AT_ONCE && first + n < call->n; n++) {
			range[n].iov_base = call->address[first + n];
			range[n].iov_len = (size_t)call->node[first + n] << PAGE_SHIFT;
		}
		result = sys_advise((int)pidfd, range, n, call->advice);
		if (result == -ESRCH)
			break;
		left = result > 0 ? (uint64_t)result : 0;
		total += (int64_t)left;
		while (done < n && left >= range[done].iov_len)
			left -= range[done++].iov_len;
		first += done < n ? done + 1 : n;
	}
	close((int)pidfd);
	return total > 0 ? total : result;
}

static int64_t write_file(const struct agent_call *call)
{
	const int fd = open(call->path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	int64_t result;

	if (fd == -1)
		return -errno;
	result = write(fd, call->text, call->n) == -1 ? -errno : 0;
	close(fd);
	return result;
}

int64_t agent_perform(struct agent_call *call)
{
	switch (call->op) {
	case AGENT_MOVE:
		return sys_move_pages(call->pid, call->n, call->address,
				      call->has_nodes ? call->node : NULL, call->status);
	case AGENT_MAPPED:
		return mapped(call);
	case AGENT_ADVISE:
		return advise(call);
	case AGENT_WRITE:
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

static _Noreturn void serve(struct agent_call *call, int fd)
{
	char word;

	call->agent = getpid();
	keep_only(fd);
	for (;;) {
		const ssize_t got = read(fd, &word, 1);
		uint64_t start;

		if (got == -1 && errno == EINTR)
			continue;
		if (got != 1)
			_exit(0); /* The service has ended. */
		start = sys_thread_cpu_ns();
		call->result = agent_perform(call);
		call->cpu_ns = sys_thread_cpu_ns() - start;
		if (send(fd, &word, 1, MSG_NOSIGNAL) != 1)
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

/* A request: the agent's number, and its end of a socket. */
struct request {
	struct msghdr message;
	struct iovec data;
	unsigned char number;
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
};

static void set_up(struct request *request)
{
	memset(request, 0, sizeof(*request));
	request->data = (struct iovec){.iov_base = &request->number, .iov_len = 1};
	request->message.msg_iov = &request->data;
	request->message.msg_iovlen = 1;
	request->message.msg_control = request->control;
	request->message.msg_controllen = sizeof(request->control);
}

bool agent_request(int requests, unsigned char number, int socket)
{
	struct request request;
	struct cmsghdr *control;

	set_up(&request);
	request.number = number;
	control = CMSG_FIRSTHDR(&request.message);
	control->cmsg_level = SOL_SOCKET;
	control->cmsg_type = SCM_RIGHTS;
	control->cmsg_len = CMSG_LEN(sizeof(socket));
	memcpy(CMSG_DATA(control), &socket, sizeof(socket));
	return sendmsg(requests, &request.message, MSG_NOSIGNAL) == 1;
}

/* The socket of a request, -1 if there is none; sets `*got` as read(2) returns it. */
static int take_request(int requests, unsigned char *number, ssize_t *got)
{
	struct request request;
	struct cmsghdr *control;
	int socket = -1;

	set_up(&request);
	*got = recvmsg(requests, &request.message, MSG_CMSG_CLOEXEC);
	if (*got != 1)
		return -1;
	*number = request.number;
	control = CMSG_FIRSTHDR(&request.message);
	if (control != NULL && control->cmsg_type == SCM_RIGHTS)
		memcpy(&socket, CMSG_DATA(control), sizeof(socket));
	return socket;
}

/* Agents that end are waited for by nobody. */
_Noreturn void agent_fork_on_request(int requests, struct agent_call *const call[AGENTS],
				     uint64_t capabilities)
{
	static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE, SIGCHLD};

	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		signal(ignored[i], SIG_IGN);
	prctl(PR_SET_NAME, "tierd-agent");
	drop_capabilities(capabilities);
	keep_only(requests);
	for (;;) {
		unsigned char number = AGENTS;
		ssize_t got;
		const int socket = take_request(requests, &number, &got);

		if (got == -1 && errno == EINTR)
			continue;
		if (got != 1)
			_exit(0); /* The service has ended. */
		if (socket == -1)
			continue;
		if (number < AGENTS && fork() == 0)
			serve(call[number], socket);
		close(socket);
	}
}
