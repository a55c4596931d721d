/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every number that tunes the client library, and every bound of its tables. Where nothing is
 * said of its evidence a value is an assumption; "measured" is docs/operate/gpu.md. Those of the
 * daemon are in daemon/tierd_gpu/tuning.py.
 */
#ifndef TIERD_GPU_TUNING_H
#define TIERD_GPU_TUNING_H

/* Moves */
#define TG_DEFAULT_CHUNKS 65536u /* chunks: 128 GiB */
#define TG_DEFAULT_INFLIGHT 2u	 /* calls under way on one path */
#define TG_RUN 16u		 /* chunks in a call: measured, more are hardly faster */
#define TG_HOST_RUN 4u		 /* chunks in a call to the host, which waits for them (measured) */
#define TG_WINDOW 128u		 /* queued moves that a turn considers */
#define TG_TURN_NS 1000000u	 /* ns; a turn starts nothing more after this: messages wait */

/* Launches */
#define TG_MARK_NS 100000u     /* ns; an event is set after a launch so long after the last one */
#define TG_MARK_SPANS 256u     /* spans; ... or so many after it */
#define TG_STALE_NS 1000000u   /* ns; a stream idle for so long waits for others' events */
#define TG_FORGET_SPANS 65536u /* spans; a start not seen for one to two of these is forgotten */
#define TG_BATCH 256u	       /* spans reported with one hold of the lock */
#define TG_LEAST_PARAMETER 8u  /* bytes; a smaller one holds no address */
#define TG_GRAPH_DEPTH 4       /* graphs in graphs */

/* The connection */
#define TG_RETRY_MS 1000u      /* ms before the next try, doubled by each that fails */
#define TG_RETRY_MOST_MS 8000u /* ms */
#define TG_STEADY_MS 10000u    /* ms; a connection of this age is a success */
#define TG_BUSY_US 200	       /* us between turns while chunks move: measured, one moves in it */
#define TG_IDLE_US 50000       /* us */
#define TG_SILENCE_MS 800u     /* ms without a word after which the daemon is gone, at most */
#define TG_DUE_MS 40u	       /* ms to give a loan back, until the daemon has said */

/* Bounds of tables; what does not fit is counted */
#define TG_MAX_RANGES 4096
#define TG_MAX_INFLIGHT 64
#define TG_QUEUE 8192u
#define TG_REPORTS 8192u
#define TG_CHANGES 4096u
#define TG_LOAN_STEPS 8
#define TG_LAUNCH_SPANS 512u /* of one launch or graph */
#define TG_WAITING 16384u    /* spans of launches that have not run yet */
#define TG_MARKS 64u	     /* events under way */
#define TG_STREAMS 32u	     /* told apart; further ones share */
#define TG_GRAPHS 512u
#define TG_GRAPH_NODES 65536u
#define TG_FUNCTIONS 4096u /* whose parameters are known; a full table starts anew */
#define TG_SIZES 65536u	   /* of their parameters */

#endif
