/* SPDX-License-Identifier: Apache-2.0 */
/* Between the shim's parts: whose call this is, and the driver's own entry points. */
#ifndef TIERD_GPU_SHIM_H
#define TIERD_GPU_SHIM_H

#include "launches.h"

/* The borrowing client of the thread's current device whose launches somebody wants to
 * know of; NULL: leave the call to the driver. */
struct tg_client *tg_shim_watching(void);
struct tg_client *tg_shim_client(void); /* ... whether anybody does or not */
/* The driver's own function of that name, NULL: it has none. */
void *tg_shim_real(const char *symbol);

/* hooks.c. What stands in for an entry point that the directory (cuGetProcAddress) or the
 * loader is asked for; NULL: nothing does. */
void *tg_hook_by_name(const char *name, bool per_thread_stream);
void *tg_hook_by_symbol(const char *symbol);

#endif
