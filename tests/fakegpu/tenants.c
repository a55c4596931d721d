/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants of the world: processes, and several of them played by one process. One that
 * died is found by its lock on a byte of the world's file.
 */
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define PLAYED_PID 1000000 /* plus the slot */

static int world_fd = -1; /* world.c owns it */
static int own_tenant = FG_NONE;
static _Thread_local int used_tenant = FG_NONE;

int fg_self(void)
{
	return used_tenant != FG_NONE ? used_tenant : own_tenant;
}

/* Whether the calling process itself, not one that it plays, is tenant `slot`. */
bool fg_is_own(int slot)
{
	return slot == own_tenant;
}

/* Whether the process that made a tenant is gone: it held a lock on the tenant's byte. */
static bool tenant_died(int slot)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};

	if (slot == own_tenant || !fg_w->tenant[slot].used || !fg_w->tenant[slot].own_process)
		return false;
	return !fcntl(world_fd, F_OFD_GETLK, &lock) && lock.l_type == F_UNLCK;
}

/* A process that ended took its memory with it. Only the world's lock holder calls this. */
void fg_reap(void)
{
	for (int slot = 0; slot < FG_MAX_TENANTS; slot++)
		if (tenant_died(slot)) {
			fg_reap_tenant(slot);
			fg_w->tenant[slot] = (struct fg_tenant){0};
		}
}

static int tenant_take(bool own_process)
{
	for (int slot = 0; slot < FG_MAX_TENANTS; slot++) {
		if (fg_w->tenant[slot].used)
			continue;
		fg_w->tenant[slot] = (struct fg_tenant){
		    .used = true,
		    .own_process = own_process,
		    .pid = own_process ? getpid() : PLAYED_PID + slot,
		    .serial = ++fg_w->serials,
		};
		return slot;
	}
	return FG_NONE;
}

int fg_join(int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};

	world_fd = fd;
	fg_devices_find();
	fg_take_spent();
	pthread_mutex_lock(&fg_w->lock);
	fg_reap();
	own_tenant = tenant_take(true);
	lock.l_start = own_tenant;
	if (own_tenant != FG_NONE)
		fcntl(world_fd, F_OFD_SETLK, &lock);
	pthread_mutex_unlock(&fg_w->lock);
	fg_cpu_watch();
	return own_tenant == FG_NONE ? -EUSERS : 0;
}

/* This process leaves, and what was several processes in it. */
void fg_part(void)
{
	for (int slot = 0; slot < FG_MAX_TENANTS; slot++)
		if (slot == own_tenant ||
		    (fg_w->tenant[slot].used && !fg_w->tenant[slot].own_process))
			fg_tenant_kill(slot);
	fg_cpu_unwatch();
	own_tenant = used_tenant = FG_NONE;
}

int fg_tenant_new(void)
{
	int slot;

	if (fg_lock())
		return -ENODEV;
	slot = tenant_take(false);
	fg_unlock();
	return slot == FG_NONE ? -EUSERS : slot;
}

void fg_tenant_use(int slot)
{
	used_tenant = slot;
}

void fg_tenant_kill(int slot)
{
	if (fg_lock())
		return;
	fg_reap_tenant(slot);
	fg_w->tenant[slot] = (struct fg_tenant){0};
	fg_unlock();
}
