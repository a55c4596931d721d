/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAKE_SYS_H
#define FAKE_SYS_H

#include "tierd_native.h"

enum { FAKE_PAGES = 65536, FAKE_NODES = 4, FAKE_LOG = 65536, FAKE_EXIT_NS = 50000 };

void fake_reset(uint64_t page_ns);
void fake_page(int page, int node, int busy, int error);
int fake_node(int page);
void fake_join(int page);
void fake_no_scan(void);
uint64_t fake_scans(void);
void fake_room(int node, int64_t free_pages);
int64_t fake_room_left(int node);
void fake_hold(int node, int64_t free_pages);
void fake_pass(uint64_t ns);
void fake_exit_at(uint64_t time_ns);
void fake_stop_at(struct tierd_mover *mover, uint64_t time_ns);
uint64_t fake_now(void);
uint64_t fake_calls(void);
uint64_t fake_asked(void);
uint64_t fake_log(uint64_t *time_ns, uint64_t *moved);

#endif
