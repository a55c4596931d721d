/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that talks to the daemon: connects, carries messages, runs moves, and lets
 * go when the daemon is silent for three of its heartbeats, at most 800 ms. After each
 * connection that fails, is refused or ends it waits, each time twice as long up to a bound.
 */
#include "client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

void tg_link_wake(struct tg_client *c)
{
	uint64_t one = 1;
	ssize_t ret;

	if (c->wake_fd < 0)
		return;
	ret = write(c->wake_fd, &one, sizeof(one));
	(void)ret; /* full: it is awake already */
}

static int connect_daemon(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		int ret = -errno;

		close(fd);
		return ret;
	}
	return fd;
}

/* All messages out. False: the daemon is gone. */
static bool send_all(struct tg_client *c, uint8_t *held, int *held_bytes)
{
	for (;;) {
		if (!*held_bytes)
			*held_bytes = tg_drain(c, held, TGW_MAX_BYTES);
		if (*held_bytes <= 0)
			return true;
		if (send(c->socket_fd, held, (size_t)*held_bytes, MSG_NOSIGNAL) < 0)
			return errno == EAGAIN || errno == EINTR;
		*held_bytes = 0;
		tg_loan_sent(c);
	}
}

static bool receive_all(struct tg_client *c)
{
	uint8_t message[TGW_MAX_BYTES];

	for (;;) {
		ssize_t bytes = recv(c->socket_fd, message, sizeof(message), 0);

		if (bytes < 0 && errno == ECONNRESET)
			continue; /* once: behind it is what the daemon said before it hung up */
		if (bytes < 0)
			return errno == EAGAIN || errno == EINTR;
		if (!bytes || tg_feed(c, message, (size_t)bytes))
			return false;
	}
}

static bool silent(struct tg_client *c)
{
	uint64_t limit = 3u * c->heartbeat_ms;

	if (!limit || limit > TG_SILENCE_MS)
		limit = TG_SILENCE_MS;
	return tg_now(c) - c->heard_ns > limit * 1000000u;
}

static void drop(struct tg_client *c)
{
	close(c->socket_fd);
	c->socket_fd = -1;
	tg_detach(c);
}

static void wait_a_while(struct tg_client *c, long us)
{
	struct pollfd fds[2] = {{.fd = c->wake_fd, .events = POLLIN},
				{.fd = c->socket_fd, .events = POLLIN}};
	struct timespec limit = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
	uint64_t count;

	ppoll(fds, c->socket_fd < 0 ? 1 : 2, &limit, NULL);
	if (fds[0].revents && read(c->wake_fd, &count, sizeof(count)) < 0)
		return; /* nothing to read: another wake came first */
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

/* Waits before the next try, whoever wakes the thread. Moves under way go on to their end. */
static void wait_to_retry(struct tg_client *c, uint32_t *retry_ms)
{
	uint64_t due = now_ms() + *retry_ms, now;

	while ((now = now_ms()) < due && !__atomic_load_n(&c->stopping, __ATOMIC_ACQUIRE))
		wait_a_while(c, tg_pump(c) ? TG_BUSY_US : (long)(due - now) * 1000);
	*retry_ms = *retry_ms * 2 < TG_RETRY_MOST_MS ? *retry_ms * 2 : TG_RETRY_MOST_MS;
}

static void *serve(void *argument)
{
	struct tg_client *c = argument;
	uint32_t retry_ms = TG_RETRY_MS;
	uint64_t since_ms = 0;
	uint8_t held[TGW_MAX_BYTES];
	int held_bytes = 0, relaxed = 2; /* CU_STREAM_CAPTURE_MODE_RELAXED */

	/* Else a query of this thread spoils a graph that another one is capturing. */
	if (c->driver.capture_mode)
		c->driver.capture_mode(&relaxed);
	while (!__atomic_load_n(&c->stopping, __ATOMIC_ACQUIRE)) {
		bool there;
		int moving;

		if (c->socket_fd < 0) {
			c->socket_fd = connect_daemon(c->socket);
			if (c->socket_fd < 0) {
				c->socket_fd = -1;
				wait_to_retry(c, &retry_ms);
				continue;
			}
			held_bytes = 0;
			since_ms = now_ms();
			tg_attach(c);
		}
		there = receive_all(c) && !silent(c);
		moving = there ? tg_pump(c) : 0;
		if (there && !send_all(c, held, &held_bytes)) {
			receive_all(c); /* what it said before it hung up */
			there = false;
		}
		if (!there) {
			drop(c);
			if (now_ms() - since_ms >= TG_STEADY_MS)
				retry_ms = TG_RETRY_MS;
			wait_to_retry(c, &retry_ms);
			continue;
		}
		wait_a_while(c, moving || held_bytes ? TG_BUSY_US : TG_IDLE_US);
	}
	if (c->socket_fd >= 0)
		drop(c);
	return NULL;
}

int tg_link_start(struct tg_client *c)
{
	c->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (c->wake_fd < 0)
		return -errno;
	if (pthread_create(&c->thread, NULL, serve, c)) {
		close(c->wake_fd);
		c->wake_fd = -1;
		return -EAGAIN;
	}
	c->threaded = true;
	return 0;
}

void tg_link_stop(struct tg_client *c)
{
	if (!c->threaded)
		return;
	__atomic_store_n(&c->stopping, true, __ATOMIC_RELEASE);
	tg_link_wake(c);
	pthread_join(c->thread, NULL);
	c->threaded = false;
	close(c->wake_fd);
	c->wake_fd = -1;
}
