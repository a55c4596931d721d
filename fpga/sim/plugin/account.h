/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose time it is: tells the model of time (model.h) what QEMU executes, by mode and by the page
 * tables in use, and what the cache asks of memory. One vCPU; the traffic's lock is around all.
 */
#ifndef TIERD_LAB_ACCOUNT_H
#define TIERD_LAB_ACCOUNT_H

#include "options.h"
#include "qemu_api.h"

#include <stdbool.h>
#include <stdio.h>

/* 0, or -1 after a message on stderr. Without `time=` nothing is modelled, and that is no error. */
int account_init(const struct options *options, unsigned int vcpus);

bool account_enabled(void);

/* A node has another speed from now on, see timing.h. 0, -EINVAL or, without a model, -ENODEV. */
int account_set_speed(const struct speed *speed, uint32_t every, uint64_t delay_ps);

/* Count what the translated block will execute, and look for marks in it. */
void account_translation(struct qemu_plugin_tb *tb, size_t count);

/* Look for marks only: programs say whose they are before anybody watches. */
void account_marks(struct qemu_plugin_tb *tb, size_t count);

/* Who said whose he is has ended. */
void account_forget(void);

/* Writes what was counted block by block, if that was asked for; 0 or -errno. */
int account_profile(void);

/* Translations have been thrown away: whose turn it is must be found out again. */
void account_restart(void);

/* A line of `node` was read, for a load or a store, or written back; the traffic's lock is held. */
enum account_kind { ACCOUNT_LOAD, ACCOUNT_STORE, ACCOUNT_WRITE_BACK };
void account_request(unsigned int node, uint64_t vline, enum account_kind kind);

/* The last region as a member of a JSON object, with a comma before it. */
void account_print(FILE *out);

#endif
