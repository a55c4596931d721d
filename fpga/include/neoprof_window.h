/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * The shared window through which a virtual machine reaches simulated NeoProf cards: a memory
 * that guest and host map (an ivshmem-plain device, PCI 1af4:1110, BAR 2). Memory has no side
 * effects, so a register access is a message: the guest fills in the request of a card, writes
 * NPW_DOORBELL_POSTED last, and waits for NPW_DOORBELL_IDLE. One request a card at a time.
 *
 * Beside the message each card has its HDM decoders, in the layout of the CXL HDM Decoder
 * Capability Structure (CXL r3.1, 8.2.4.20), written by the host before the guest starts.
 *
 * All fields are little endian.
 */
#ifndef NEOPROF_WINDOW_H
#define NEOPROF_WINDOW_H

#define NPW_PCI_VENDOR 0x1af4
#define NPW_PCI_DEVICE 0x1110
#define NPW_PCI_BAR 2

/* Head of the window. */
#define NPW_MAGIC_OFFSET 0x00	/* u32; 0 when the host has gone */
#define NPW_MAGIC 0x4e57504eu	/* "NPWN" */
#define NPW_VERSION_OFFSET 0x04 /* u32 */
#define NPW_VERSION 1u
#define NPW_CARDS_OFFSET 0x08 /* u32: cards in the window */
#define NPW_CARDS_MAX 8u

/*
 * The lab's own mailbox, beside the cards': whoever maps the window, guest or host, may start and
 * stop the watching of memory traffic and ask for the exact counts. A driver needs none of it: the
 * first register write to any card starts the watching, unless NPW_LAB_STOP came before.
 */
#define NPW_LAB_WATCHING 0x0c /* u32: 1 while memory traffic is watched */
#define NPW_LAB_GUEST_NS 0x10 /* u64: guest time when something was last answered */
#define NPW_LAB_DOORBELL 0x40 /* u32, as a card's */
#define NPW_LAB_OP 0x44	      /* u32 */
#define NPW_LAB_START 1u      /* watch; the cache is empty at first */
#define NPW_LAB_STOP 2u
#define NPW_LAB_DUMP 3u	    /* write the counts to the host's files */
#define NPW_LAB_CLEAR 4u    /* set the counts to zero; if nothing is watched, forget marks */
#define NPW_LAB_SPEED 5u    /* from now on a node has the speed below; -EINVAL from node 64 on */
#define NPW_LAB_STATUS 0x48 /* s32: 0 or a negative errno of Linux */
#define NPW_LAB_NODE 0x50   /* u32 */
#define NPW_LAB_LATENCY_PS 0x54 /* u32 */
#define NPW_LAB_BANDWIDTH 0x58	/* u32: MB/s, 0: without limit */
#define NPW_LAB_EVERY 0x5c	/* u32: one demand miss in so many takes NPW_LAB_DELAY_PS longer */
#define NPW_LAB_DELAY_PS 0x60	/* u32 */

/* Card n lives at NPW_CARD_BASE + n * NPW_CARD_STRIDE. */
#define NPW_CARD_BASE 0x1000u
#define NPW_CARD_STRIDE 0x2000u

/* In a card's part. */
#define NPW_DOORBELL 0x00 /* u32 */
#define NPW_DOORBELL_IDLE 0u
#define NPW_DOORBELL_POSTED 1u
#define NPW_OP 0x04	     /* u32 */
#define NPW_OP_READ 1u	     /* NPW_VALUE = register at NPW_OFFSET, NPW_SIZE bytes wide */
#define NPW_OP_WRITE 2u	     /* register at NPW_OFFSET = NPW_VALUE */
#define NPW_OP_READ_BLOCK 3u /* NPW_BUFFER = NPW_COUNT registers of NPW_SIZE bytes in a row */
#define NPW_OFFSET 0x08	     /* u32 */
#define NPW_SIZE 0x0c	     /* u32: 1, 2, 4 or 8 */
#define NPW_VALUE 0x10	     /* u64 */
#define NPW_STATUS 0x18	     /* s32: 0 or a negative errno of Linux */
#define NPW_COUNT 0x1c	     /* u32: at most NPW_BUFFER_BYTES / NPW_SIZE */
#define NPW_HDM 0x100	     /* CXL HDM Decoder Capability Structure */
#define NPW_BUFFER 0x1000
#define NPW_BUFFER_BYTES 0x1000u

#define NPW_BYTES (NPW_CARD_BASE + NPW_CARDS_MAX * NPW_CARD_STRIDE)

/*
 * Samples of the accesses that missed the cache, where the lab models time: the stand-in for a
 * processor's event sampling. Behind the cards, in a window that is long enough; no driver
 * needs it. Only accesses that a measured workload makes itself are sampled.
 */
#define NPW_SAMPLES NPW_BYTES
#define NPW_SAMPLES_PERIOD (NPW_SAMPLES + 0x00) /* u32: one in so many of each node; 0: none */
#define NPW_SAMPLES_HEAD (NPW_SAMPLES + 0x08)	/* u64: samples ever written */
#define NPW_SAMPLES_RING (NPW_SAMPLES + 0x40)	/* u64[]: page << 8 | node << 1 | store */
#define NPW_SAMPLES_SLOTS 4096u
#define NPW_SAMPLES_END (NPW_SAMPLES_RING + NPW_SAMPLES_SLOTS * 8u)

#endif /* NEOPROF_WINDOW_H */
