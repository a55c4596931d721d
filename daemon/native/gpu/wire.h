/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What client and daemon say to each other: one message a packet (SOCK_SEQPACKET), a
 * header and `count` records of one kind, little-endian. daemon/tierd_gpu/wire.py repeats
 * these layouts (a test compares them). Devices are the daemon's numbers, -1 is the host.
 */
#ifndef TIERD_GPU_WIRE_H
#define TIERD_GPU_WIRE_H

#include <stdint.h>

#define TGW_VERSION 4u
#define TGW_MAX_BYTES 16384u
#define TGW_MAX_GPUS 16

enum tgw_type {
	/* from the client */
	TGW_HELLO = 1,
	TGW_CHUNKS = 2,
	TGW_USE = 3,
	TGW_STATE = 4,
	TGW_ALIVE = 5,
	TGW_SHOW = 6, /* of `tierd gpu show`: not the library's */
	TGW_LOAN = 7, /* told before memory is taken, and after it was given back */
	/* from the daemon */
	TGW_WELCOME = 17,
	TGW_GPUS = 18,
	TGW_MOVE = 19,
	TGW_LEASE = 21,
	TGW_PING = 22,
	TGW_REFUSED = 23, /* the last message of a connection that the daemon ends */
	TGW_TENANTS = 24, /* the answer to TGW_SHOW */
	TGW_GRANT = 25,
};

enum tgw_flag {
	TGW_URGENT = 1,	  /* of a move: a lender wants its memory */
	TGW_IN_PLACE = 2, /* of a state: used where it is; of a move: to be, once it is there */
};

struct tgw_header {
	uint16_t type, count;
	uint32_t bytes; /* of the whole message */
};

struct tgw_hello {
	uint32_t version, role, max_chunks;
	uint32_t visible; /* GPUs that this process can see: only there it can move */
	uint8_t uuid[16];
	char name[32];
	uint8_t visible_uuid[TGW_MAX_GPUS][16];
};

struct tgw_chunks {
	uint32_t first, count, live, reserved;
};

struct tgw_use {
	uint32_t chunk;
	uint16_t pages; /* of 4 KiB, touched */
	uint16_t reserved;
	uint64_t time_ns;
};

struct tgw_state {
	uint32_t chunk;
	int16_t location;
	uint8_t flags;
	uint8_t status;	   /* errno, 0: done */
	uint32_t sequence; /* of the command, 0: it was found there, not moved */
	uint32_t reserved;
	uint64_t time_ns;
};

struct tgw_alive {
	uint64_t time_ns, uses_dropped, states_dropped, moves_dropped;
	uint64_t launches, launches_untold, spans_dropped; /* that the preload saw */
};

struct tgw_welcome {
	uint32_t version, session, heartbeat_ms, reserved;
};

struct tgw_gpu {
	uint8_t uuid[16];
};

struct tgw_refused {
	uint32_t status, reserved; /* errno */
	char text[56];
};

struct tgw_move {
	uint32_t chunk;
	int16_t dest;
	uint16_t flags;
	uint32_t sequence;
};

struct tgw_lease {
	int32_t device;
	uint32_t chunks; /* that may be there */
	uint64_t borrowed_bytes;
};

/* A loan: memory of a neighbour that a program fills itself, as a cache. */
struct tgw_loan {
	int32_t device;
	uint32_t reserved;
	uint64_t wanted, held; /* bytes */
};

struct tgw_grant {
	int32_t device;
	uint32_t due_ms; /* until what is held above `granted` must be gone; 0: nothing is */
	uint64_t granted;
};

#endif
