/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * world.h - two NICs of src/core with one queue pair of each type, for the targets to abuse.
 *
 *      side 0  RC UC UD XRC                           RC UC UD XRC  side 1
 *      nic --- tx ---> link[0] (a queue of packets) ---> rx --- nic
 *          <-- rx <--- link[1]                      <--- tx
 *
 * The world has time, memory and the carriers; a target decides when packets are delivered, to
 * whom, and what is done to them on the way. What holds whatever happens is checked here:
 *
 *   - a packet that the core sends encodes, its lengths agree, its payload can be read;
 *   - every completion is of a request that was posted; those of one queue come in order, once;
 *   - memory around the registered regions stays as it was;
 *   - at the end, after an error, nothing that was posted is left, and every object can be freed.
 */
#ifndef VB_FUZZ_WORLD_H
#define VB_FUZZ_WORLD_H

#include "core/nic.h"
#include "core/xrc.h"
#include "fuzz.h"

#define FUZZ_MEMORY 8192u
#define FUZZ_GUARD 256u
#define FUZZ_LINK 64u /* packets on their way in one direction */
#define FUZZ_PACKET_MAX (64u + 16384u + 3u)
#define FUZZ_REQUESTS 4096u /* requests that one queue is ever given */
#define FUZZ_SGE_MAX 3u
#define FUZZ_REGIONS 4
#define FUZZ_WINDOWS 2

/* An XRC_SEND queue pair is connected to the other side's XRC_RECV. */
enum fuzz_kind { FUZZ_RC, FUZZ_UC, FUZZ_UD, FUZZ_XRC_SEND, FUZZ_XRC_RECV };
#define FUZZ_KINDS 5

/* The regions, all over the same memory. */
enum fuzz_region {
	FUZZ_ALL_RIGHTS,
	FUZZ_READ_ONLY, /* no right but local read */
	FUZZ_HALF,	/* all rights, the first half */
	FUZZ_OTHER_PD,
};

struct fuzz_packet {
	size_t size;
	uint8_t data[FUZZ_PACKET_MAX];
};

struct fuzz_link {
	struct fuzz_packet *packets; /* FUZZ_LINK of them */
	uint32_t order[FUZZ_LINK];   /* place in the queue -> packet */
	uint32_t count;
};

/* What was posted to one queue and what came back. The wr_id is the number of the request. */
struct fuzz_account {
	uint32_t posted, completed;
	uint8_t state[FUZZ_REQUESTS];
};

struct fuzz_world;

struct fuzz_side {
	struct fuzz_world *world;
	unsigned int index;
	struct vb_nic *nic;
	struct vb_pd *pd, *other_pd;
	struct vb_cq *send_cq, *recv_cq;
	struct vb_srq *srq;
	struct vb_xrcd *xrcd;
	struct vb_srq *xrc_srq;
	struct vb_ah *ah;
	struct vb_mr *mr[FUZZ_REGIONS];
	struct vb_mw *mw[FUZZ_WINDOWS]; /* of type 1 and of type 2 */
	struct vb_qp *qp[FUZZ_KINDS];
	struct fuzz_account sends[FUZZ_KINDS], recvs[FUZZ_KINDS], srq_recvs, xrc_recvs;
	struct fuzz_link out;
	uint8_t *block;	  /* guard, memory, guard */
	uint32_t paths;	  /* resolved and not released */
	bool was_blocked; /* refused a packet since the last unblock */
};

/* Drawn from the input once, before anything is made. */
struct fuzz_config {
	uint32_t random;
	uint32_t cq_entries;
	uint32_t segment_max, window;
	bool own_segment, direct, use_srq, sig_all, forgetful_direct;
	uint32_t access;
	uint32_t psn;
	struct vb_qp_cap cap;
	uint8_t mtu, timeout, retry_cnt, rnr_retry, min_rnr_timer, rd_atomic, dest_rd_atomic;
};

struct fuzz_world {
	struct fuzz_config config;
	struct fuzz_side side[2];
	uint64_t now_ns;
	uint64_t random;
	uint32_t direct_calls;
};

/* fuzz_world_begin - everything made, all queue pairs connected and in RTS. The world is one for
 * the process: its NICs and buffers are kept between inputs. */
struct fuzz_world *fuzz_world_begin(struct vb_fuzz_input *in);

/* fuzz_world_end - all queue pairs go through ERR; what was posted must be accounted for;
 * everything is freed. */
void fuzz_world_end(struct fuzz_world *world);

/* fuzz_world_check - the invariants, after each step. */
void fuzz_world_check(const struct fuzz_world *world);

/* fuzz_connect - RESET to RTS. */
void fuzz_connect(struct fuzz_side *side, enum fuzz_kind kind);
/* fuzz_recreate - destroys the queue pair and makes a new one, in RESET. */
void fuzz_recreate(struct fuzz_side *side, enum fuzz_kind kind);
/* fuzz_set_state - asks for a change of state, whether allowed or not. */
void fuzz_set_state(struct fuzz_side *side, enum fuzz_kind kind, enum vb_qp_state state);

/* fuzz_post_send, fuzz_post_recv, fuzz_post_srq - a request drawn from the input. */
void fuzz_post_send(struct fuzz_side *side, struct vb_fuzz_input *in);
void fuzz_post_recv(struct fuzz_side *side, struct vb_fuzz_input *in);
void fuzz_post_srq(struct fuzz_side *side, struct vb_fuzz_input *in);
/* fuzz_post_plain_recv - one that fits every message of the world. False: the queue is full. */
bool fuzz_post_plain_recv(struct fuzz_side *side, enum fuzz_kind kind);

/* fuzz_region_toggle - deregisters the region unless windows hold it, or registers it again. */
void fuzz_region_toggle(struct fuzz_side *side, enum fuzz_region region);

/* fuzz_poll - takes and judges up to n completions of each CQ. */
void fuzz_poll(struct fuzz_side *side, int n);

/* fuzz_rx - gives the side these bytes, in a block of their exact size, as from its peer. */
void fuzz_rx(struct fuzz_side *side, const uint8_t *data, size_t size, bool right_source);

/* Links. fuzz_link_take removes the packet at a place and returns it; it is valid until the next
 * tx. */
const struct fuzz_packet *fuzz_link_at(const struct fuzz_link *link, uint32_t place);
const struct fuzz_packet *fuzz_link_take(struct fuzz_link *link, uint32_t place);

/* fuzz_forge - a well-formed packet for one of the side's queue pairs, near what that expects, with
 * everything else drawn from the input. Returns its size; out has FUZZ_PACKET_MAX bytes. */
size_t fuzz_forge(const struct fuzz_side *side, struct vb_fuzz_input *in, uint8_t *out);

static inline struct fuzz_side *fuzz_peer(struct fuzz_side *side)
{
	return &side->world->side[!side->index];
}

/* fuzz_peer_kind - what a queue pair of this kind is connected to. */
static inline enum fuzz_kind fuzz_peer_kind(enum fuzz_kind kind)
{
	if (kind == FUZZ_XRC_SEND)
		return FUZZ_XRC_RECV;
	return kind == FUZZ_XRC_RECV ? FUZZ_XRC_SEND : kind;
}

static inline uint8_t *fuzz_memory(const struct fuzz_side *side)
{
	return side->block + FUZZ_GUARD;
}

#endif
