/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For LD_PRELOAD: the process that loads it, and what it forks, counts as the tiering daemon in
 * modelled time.
 */
#include "mark.h"

#include <pthread.h>

static void mark(void)
{
	MARK_DAEMON();
}

__attribute__((constructor)) static void begin(void)
{
	mark();
	pthread_atfork(NULL, NULL, mark);
}
