/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * world.h - a random program on a random network, and what must come of it.
 *
 *   world.c     draws nodes, links, connections, queues and memory from the seed; runs; tears down
 *   workload.c  posts and polls as a program would, now and then wrongly
 *   checker.c   knows what every completion and every byte must be
 *
 * A connection is two ends, each a QP with a region that the other end may write, read and count
 * in, and with the model of what the other end did to it (shadow). An end's send requests are ops,
 * numbered; all bytes of an op are a function of (seed, end, op, offset). Only the peer changes an
 * end's region, so that the shadow, advanced when a request is posted, is what the region must
 * hold once the request is done, and what a READ posted behind it must return. The one thing that
 * the specification leaves open, a later WRITE overtaking the repetition of a READ, is closed by a
 * fence where the two touch the same slot of the region.
 *
 * What is checked: every request completes once, in order, with its own wr_id and the right status;
 * messages arrive once, in order and unchanged (RC), as an ordered part of what was sent (UC),
 * whole and not more often than sent and duplicated (UD); nothing beside the data is touched;
 * queues take as many requests as they promised and not one more; sums of atomics are exact; once
 * faults stop everything ends within a bounded time, and nothing is left behind.
 */
#ifndef VB_SIM_WORLD_H
#define VB_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nic.h"
#include "sim/node.h"
#include "sim/sim.h"

#define VB_WORLD_CONNS 4
#define VB_WORLD_ENDS (2 * VB_WORLD_CONNS)
#define VB_WORLD_CQS (2 * VB_WORLD_ENDS + VB_NET_NODES)
#define VB_END_SGES 6
#define VB_END_DEPTH 64					 /* slots of a queue at most */
#define VB_WORLD_CQES (2 * VB_WORLD_ENDS * VB_END_DEPTH) /* more than can ever wait */
#define VB_REGION_SLOTS 8
#define VB_REGION_WORDS 8  /* atomic words at the region's beginning */
#define VB_REGION_GUARD 64 /* bytes at its end that nobody may touch */
#define VB_FILL 0xee	   /* of memory that holds nothing yet */

struct vb_world;
struct vb_end;

/* A piece of a buffer: where one SGE lies in its slot's bytes. */
struct vb_piece {
	uint32_t offset, length;
};

/* struct vb_op - a send request as the model knows it. */
struct vb_op {
	enum vb_wr_opcode opcode;
	uint32_t flags, length, imm;
	uint32_t slot; /* of the end's send memory */
	uint32_t pieces;
	struct vb_piece piece[VB_END_SGES];
	uint32_t offset;	     /* in the peer's region */
	uint32_t region_slot;	     /* VB_REGION_SLOTS: the atomic words */
	bool shared_counter;	     /* atomics: on the node's counter, not in the region */
	uint64_t compare, swap, old; /* atomics; old: what must be returned */
	uint8_t wanted;		     /* enum vb_status that it must get when the connection lives */
	bool succeeded;
	uint32_t deliveries; /* receive completions that it caused */
};

enum vb_recv_state { VB_RECV_FREE, VB_RECV_POSTED };

/* struct vb_recv - a buffer of a pool. */
struct vb_recv {
	enum vb_recv_state state;
	uint64_t wr_id;
	uint32_t pieces;
	struct vb_piece piece[VB_END_SGES];
	uint32_t length;
};

/* struct vb_pool - the buffers of one receive queue: a QP's own or an SRQ. */
struct vb_pool {
	struct vb_world *world;
	struct vb_node *node;
	struct vb_end *end; /* whose own queue it is */
	struct vb_srq *srq; /* or the SRQ; of XRC each end has its own */
	uint32_t depth, length, slot_bytes, sges;
	uint32_t left;	  /* requests that will still be posted */
	uint64_t late_ns; /* a free buffer is posted at most so much later */
	uint64_t generation;
	uint8_t *memory;
	struct vb_mr *mr[2];
	struct vb_recv recv[VB_END_DEPTH];
	uint32_t order[VB_END_DEPTH]; /* slots in the order of posting; own queue only */
	uint32_t posted, taken;
};

struct vb_poller {
	struct vb_world *world;
	struct vb_node *node;
	struct vb_cq *cq;
	bool by_event; /* sleeps until the CQ's event */
	bool scheduled;
	uint64_t interval_ns; /* grows while nothing comes */
	uint64_t patience_ns; /* first interval */
};

enum vb_phase { VB_PHASE_GOOD, VB_PHASE_CAUSE, VB_PHASE_FLUSH };

struct vb_end {
	struct vb_world *world;
	struct vb_conn *conn;
	struct vb_end *peer;
	struct vb_node *node;
	uint32_t index;
	struct vb_qp *qp;
	struct vb_ah *ah; /* UD */
	struct vb_pool *pool;
	struct vb_pool own_pool;
	uint32_t psn, rnr_timer, timeout, retry_cnt, rnr_retry, rd_atomic;
	bool ready; /* in RTS once, posts */
	/* send side */
	uint32_t depth, sges, inline_max, slot_bytes;
	bool sig_all;
	uint32_t unsignalled_ppm, weight[VB_WR_ATOMIC_FETCH_AND_ADD + 1];
	uint64_t gap_ns;
	uint32_t op_count, posted, done;
	bool post_scheduled;
	enum vb_phase phase;
	struct vb_op *ops;
	uint8_t *memory, *snapshots;
	struct vb_mr *mr[2];
	/* what the peer sends: the next of its ops that may be delivered here */
	uint32_t next_op, received;
	uint32_t consumers; /* messages of its own posted so far that use a receive request */
	bool recv_flushing, recv_failed, last_wqe;
	/* region */
	uint8_t *region, *shadow, *first; /* as it is, must be, was */
	uint32_t region_bytes, region_slot_bytes, uc_used;
	uint64_t iova;
	struct vb_mr *region_mr;
	uint32_t reads_out[VB_REGION_SLOTS + 1];   /* by the peer */
	uint32_t last_writer[VB_REGION_SLOTS + 1]; /* 1 + op */
	uint32_t looked_at[VB_REGION_SLOTS + 1];
};

struct vb_conn {
	enum vb_qp_type type; /* XRC_SEND: end 0 is that, end 1 XRC_RECV */
	uint32_t index, path_mtu, mtu, max_length;
	struct vb_end end[2];
	bool broken; /* an error was seen or made: it is going to be torn down */
	bool torn_down;
};

static inline bool vb_conn_is_reliable(const struct vb_conn *conn)
{
	return conn->type == VB_QPT_RC || conn->type == VB_QPT_XRC_SEND;
}

/* What is done wrong on purpose, to one end of a reliable connection. */
enum vb_mischief {
	VB_MISCHIEF_NONE,
	VB_MISCHIEF_RKEY,	/* unknown rkey */
	VB_MISCHIEF_RANGE,	/* behind the region's end */
	VB_MISCHIEF_LKEY,	/* unknown lkey */
	VB_MISCHIEF_ALIGNMENT,	/* atomic on an odd address */
	VB_MISCHIEF_TOO_LONG,	/* longer than the receive buffers */
	VB_MISCHIEF_NO_RECEIVE, /* finite rnr_retry and no receive request after some */
	VB_MISCHIEF_SET_ERROR,	/* the program moves the QP to ERR */
	VB_MISCHIEF_KILL,	/* the peer's node dies */
	VB_MISCHIEF_COUNT,
};

struct vb_world_stats {
	uint64_t seeds, events, ops, messages, bytes;
	uint64_t packets, lost, duplicated, reordered, corrupted, overflowed;
	uint64_t retries, timeouts, rnr_naks, naks, duplicates, direct, again, forged;
	uint64_t broken, retry_exceeded, mischief[VB_MISCHIEF_COUNT];
	uint64_t virtual_ns;
};

struct vb_world {
	struct vb_net net;
	/* drawn */
	uint32_t conn_count, cq_count;
	bool lossless; /* no fault at all: every status is exact */
	bool harsh;    /* faults so bad that retries may run out */
	uint64_t faults_until_ns, limit_ns;
	enum vb_mischief mischief;
	struct vb_end *victim;
	uint32_t mischief_op;
	bool struck; /* the mischief that is not a request has happened */
	/* objects */
	struct vb_pd *pd[VB_NET_NODES];
	struct vb_poller poller[VB_WORLD_CQS];
	struct vb_pool srq_pool[VB_NET_NODES];
	struct vb_xrcd *xrcd[VB_NET_NODES];
	struct vb_conn conn[VB_WORLD_CONNS];
	uint64_t *counter[VB_NET_NODES], counter_sum[VB_NET_NODES], counter_iova[VB_NET_NODES];
	bool counter_unsure[VB_NET_NODES];
	struct vb_mr *counter_mr[VB_NET_NODES];
	struct vb_world_stats stats;
	/* memory, kept from one run to the next */
	uint8_t *arena, *scratch, *scratch2;
	size_t arena_used;
};

/* vb_world_create - the memory for runs. */
struct vb_world *vb_world_create(void);
void vb_world_destroy(struct vb_world *world);

/* vb_world_run - one seed. False: it failed, world->net.sim.failure says how. *hash is the event
 * hash; stats are added to. */
bool vb_world_run(struct vb_world *world, uint64_t seed, bool trace, uint64_t *hash,
		  struct vb_world_stats *stats);

const char *vb_mischief_name(enum vb_mischief mischief);

/* --- world.c, for the other two ---------------------------------------------------------- */
static inline struct vb_sim *vb_world_sim(struct vb_world *world)
{
	return &world->net.sim;
}
/* vb_world_give_up - the connection is broken: both ends are moved to ERR after a while. */
void vb_world_give_up(struct vb_conn *conn);
struct vb_end *vb_world_find_end(struct vb_world *world, const struct vb_node *node, uint32_t qpn);

/* --- workload.c -------------------------------------------------------------------------- */
void vb_workload_start(struct vb_world *world);
/* vb_workload_post_later - the end posts again when it can. */
void vb_workload_post_later(struct vb_end *end);
/* vb_workload_recv_later - the free buffer of the pool is posted again. */
void vb_workload_recv_later(struct vb_pool *pool, uint32_t slot);
void vb_workload_poll_later(struct vb_poller *poller, uint64_t delay_ns);

/* --- checker.c --------------------------------------------------------------------------- */
/* vb_pattern_fill - the bytes of an op. */
void vb_pattern_fill(const struct vb_end *end, uint32_t op, uint8_t *out, uint32_t length);
/* vb_scatter_pieces - copies data, length bytes, into the pieces of a slot. */
void vb_scatter_pieces(uint8_t *slot, const struct vb_piece *piece, uint32_t pieces,
		       const uint8_t *data, uint32_t length);
/* vb_check_completion - judges one entry that was polled. */
void vb_check_completion(struct vb_world *world, struct vb_node *node, const struct vb_cqe *cqe);
/* vb_check_is_done - nothing is left to wait for. */
bool vb_check_is_done(const struct vb_world *world);
/* vb_check_end - the memory after everything has come to rest. */
void vb_check_end(struct vb_world *world);
/* vb_check_flushed - after all QPs were moved to ERR: nothing may be missing. */
void vb_check_flushed(struct vb_world *world);
/* vb_check_stuck - says what is still waited for. */
void vb_check_stuck(struct vb_world *world);

#endif
