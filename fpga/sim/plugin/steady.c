/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To be loaded before QEMU (LD_PRELOAD) where two runs have to be the same run: a machine with one
 * vCPU, counted instructions (-icount sleep=off) and a calendar on that clock (-rtc clock=vm).
 * In two places of QEMU the host's time reaches such a guest.
 *
 * QEMU's software TLB grows and shrinks by how full it was in the last 100 ms of the host's
 * clock, which it asks for whenever it is emptied. How large it is decides which translations are
 * walked again, and those set accessed bits, which the guest sees. Here a thread's clock goes on
 * by a millisecond each time it is asked.
 *
 * QEMU's main loop skips the sleep of an idle guest. Each timer of the guest wakes the main loop,
 * which then looks whether the vCPU is idle. Between the instruction that halts and the moment at
 * which the instructions before it are counted, the vCPU looks idle at a time that is past, and the
 * main loop skips too much. Here the main thread gets QEMU's big lock only while the vCPU's
 * thread waits for work. A guest that computes does not need the main loop: the vCPU's thread runs
 * its timers. A request to end (SIGTERM) waits for an idle guest as well; SIGKILL does not.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/time.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

typedef int lock_function(pthread_mutex_t *);
typedef int wait_function(pthread_cond_t *, pthread_mutex_t *);

/* With what the vCPU's thread waits for work: QEMU's big lock. NULL before it first did. */
static _Atomic(pthread_mutex_t *) big_lock;
/* True while it waits. Its thread changes it, with the big lock held. */
static atomic_bool waiting;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

EXPORTED int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	static _Thread_local long asked;

	(void)zone;
	asked++;
	now->tv_sec = 1000000000 + asked / 1000;
	now->tv_usec = asked % 1000 * 1000;
	return 0;
}

static bool is_main(void)
{
	static _Thread_local pid_t thread;

	if (!thread)
		thread = gettid();
	return thread == getpid();
}

static lock_function *real_lock(void)
{
	static _Atomic(lock_function *) found;

	/* By number: C has no conversion from an object's address to a function's. */
	if (!found)
		found = (lock_function *)(uintptr_t)dlsym(RTLD_NEXT, "pthread_mutex_lock");
	return found;
}

static wait_function *real_wait(void)
{
	static _Atomic(wait_function *) found;

	if (!found)
		found = (wait_function *)(uintptr_t)dlsym(RTLD_NEXT, "pthread_cond_wait");
	return found;
}

static void set_waiting(bool is)
{
	real_lock()(&lock);
	waiting = is;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
}

/* QEMU says so itself; one that does not export it is not the one that this was written for. */
static bool holds_big_lock(void)
{
	bool (*locked)(void) = (bool (*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "bql_locked");

	return locked && locked();
}

/* Of QEMU's threads only the main one and the vCPU's wait in this way. */
EXPORTED int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
	pthread_mutex_t *none = NULL;
	int err;

	if (is_main())
		return real_wait()(condition, mutex);
	if (atomic_compare_exchange_strong(&big_lock, &none, mutex) && !holds_big_lock()) {
		fputs("tierd-lab: this QEMU's big lock is not where it was expected\n", stderr);
		_exit(1);
	}
	if (mutex != big_lock)
		return real_wait()(condition, mutex);
	set_waiting(true);
	err = real_wait()(condition, mutex);
	set_waiting(false);
	return err;
}

EXPORTED int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	int err;

	if (mutex != big_lock || !is_main())
		return real_lock()(mutex);
	while (!(err = real_lock()(mutex)) && !waiting) {
		pthread_mutex_unlock(mutex);
		real_lock()(&lock);
		while (!waiting)
			real_wait()(&changed, &lock);
		pthread_mutex_unlock(&lock);
	}
	return err;
}
