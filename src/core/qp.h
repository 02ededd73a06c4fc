/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * qp.h - queue pairs (IBTA 10.2.4, 10.3, 11.2.5): the object, its queues, its state.
 *
 *   qp.c          create, destroy, query
 *   qp_state.c    the state table, modify, what a change of state sets in motion
 *   post.c        posting send and receive requests: the checks, the queue
 *   beside.c      the same by a thread that does not drive the NIC
 *   requester.c   from requests to packets, for all types; build.c makes them; rc_requester.c what
 *                 RC adds
 *   rc_responder.c, rc_answers.c, uc.c, ud.c   from packets to memory and completions
 *   rc_short.c    both ways of the usual short message, each in one go; rc_short_ack.c of its ACK
 *   xrc.c         what the two halves of XRC have instead of a PD and a receive CQ
 *
 * The send queue is a ring of WQEs with four free-running counters:
 *
 *      sq_free        sq_una         sq_next        sq_head
 *         | completed,   | sent, not    | not yet      |
 *         | not polled   | completed    | wholly sent  |  empty
 *
 * A slot comes free when a completion at or behind it has been polled, so that no more than
 * max_send_wr requests are ever unaccounted for (ibv_post_send(3)).
 */
#ifndef VB_CORE_QP_H
#define VB_CORE_QP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/heap.h"
#include "base/list.h"
#include "core/ah.h"
#include "core/cq.h"
#include "core/limits.h"
#include "core/mr.h"
#include "core/mw.h"
#include "core/reason.h"
#include "core/rq.h"
#include "core/tm.h"

struct vb_nic;
struct vb_rss;

/* numerically equal to enum ibv_qp_type, ibv_qp_state, ibv_mtu, ibv_wr_opcode, ibv_send_flags,
 * ibv_qp_attr_mask; the face asserts it */
enum vb_qp_type {
	VB_QPT_RC = 2,
	VB_QPT_UC = 3,
	VB_QPT_UD = 4,
	VB_QPT_RAW_PACKET = 8,
	VB_QPT_XRC_SEND = 9,  /* the initiator's half: requests out, responses in */
	VB_QPT_XRC_RECV = 10, /* the target's */
};

enum vb_qp_state {
	VB_QPS_RESET,
	VB_QPS_INIT,
	VB_QPS_RTR,
	VB_QPS_RTS,
	VB_QPS_SQD,
	VB_QPS_SQE,
	VB_QPS_ERR,
};
#define VB_QPS_COUNT 7

enum vb_mtu { VB_MTU_256 = 1, VB_MTU_512, VB_MTU_1024, VB_MTU_2048, VB_MTU_4096 };

enum vb_wr_opcode {
	VB_WR_RDMA_WRITE,
	VB_WR_RDMA_WRITE_WITH_IMM,
	VB_WR_SEND,
	VB_WR_SEND_WITH_IMM,
	VB_WR_RDMA_READ,
	VB_WR_ATOMIC_CMP_AND_SWP,
	VB_WR_ATOMIC_FETCH_AND_ADD,
	VB_WR_LOCAL_INV,
	VB_WR_BIND_MW,
	VB_WR_SEND_WITH_INV,
	VB_WR_TSO = 10,
	VB_WR_FLUSH = 14,
	VB_WR_ATOMIC_WRITE = 15,
};

enum vb_send_flags {
	VB_SEND_FENCE = 1 << 0,
	VB_SEND_SIGNALED = 1 << 1,
	VB_SEND_SOLICITED = 1 << 2,
	VB_SEND_INLINE = 1 << 3,
	VB_SEND_IP_CSUM = 1 << 4,
};

enum vb_qp_attr_mask {
	VB_QP_STATE = 1 << 0,
	VB_QP_CUR_STATE = 1 << 1,
	VB_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2,
	VB_QP_ACCESS_FLAGS = 1 << 3,
	VB_QP_PKEY_INDEX = 1 << 4,
	VB_QP_PORT = 1 << 5,
	VB_QP_QKEY = 1 << 6,
	VB_QP_AV = 1 << 7,
	VB_QP_PATH_MTU = 1 << 8,
	VB_QP_TIMEOUT = 1 << 9,
	VB_QP_RETRY_CNT = 1 << 10,
	VB_QP_RNR_RETRY = 1 << 11,
	VB_QP_RQ_PSN = 1 << 12,
	VB_QP_MAX_QP_RD_ATOMIC = 1 << 13,
	VB_QP_ALT_PATH = 1 << 14,
	VB_QP_MIN_RNR_TIMER = 1 << 15,
	VB_QP_SQ_PSN = 1 << 16,
	VB_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
	VB_QP_PATH_MIG_STATE = 1 << 18,
	VB_QP_CAP = 1 << 19,
	VB_QP_DEST_QPN = 1 << 20,
	VB_QP_RATE_LIMIT = 1 << 25,
};

struct vb_qp_cap {
	uint32_t max_send_wr, max_recv_wr;
	uint32_t max_send_sge, max_recv_sge;
	uint32_t max_inline_data;
};

struct vb_qp_attr {
	uint32_t dest_qpn;
	uint8_t timeout;	      /* local ACK timeout exponent, 0..31; 0: none */
	uint8_t retry_cnt, rnr_retry; /* 0..7; rnr_retry 7: for ever */
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer; /* RNR NAK timer field, 0..31 */
	uint8_t port_num;
	bool en_sqd_async_notify;
	bool sq_draining;
	uint16_t pkey_index;
	enum vb_qp_state qp_state, cur_qp_state;
	enum vb_mtu path_mtu;
	uint32_t path_mig_state;
	uint32_t qkey;
	uint32_t rq_psn, sq_psn;
	uint32_t access_flags; /* enum vb_access, the remote ones */
	struct vb_ah_attr ah;
};

struct vb_send_wr {
	uint64_t wr_id;
	const struct vb_sge *sges;
	uint32_t num_sge;
	enum vb_wr_opcode opcode;
	uint32_t flags;	      /* enum vb_send_flags */
	uint32_t imm;	      /* value of the big-endian field, host order; or rkey to invalidate */
	uint64_t remote_addr; /* WRITE, READ, atomics */
	uint32_t rkey;
	struct vb_mw_bind bind;	    /* BIND_MW */
	uint64_t compare_add, swap; /* atomics */
	struct vb_ah *ah;	    /* UD */
	uint32_t remote_qpn, remote_qkey;
	uint32_t remote_srqn; /* XRC */
	struct {
		uint32_t length;     /* bytes from remote_addr on */
		uint8_t placement;   /* enum vb_placement */
		uint8_t selectivity; /* enum vb_selectivity */
	} flush;
	const uint8_t *tso_header; /* TSO: Ethernet, IP and TCP headers of every segment */
	uint16_t tso_header_bytes;
	uint16_t tso_mss; /* payload bytes of a segment */
};

/* A SEND of one piece, with or without immediate data, and with no other flags than these three. */
#define VB_SHORT_FLAGS (VB_SEND_SIGNALED | VB_SEND_SOLICITED | VB_SEND_INLINE)
#define VB_SHORT_BYTES 1024u /* beyond that the copy costs more than the way */
struct vb_short_wr {
	uint64_t wr_id;
	const struct vb_sge *sge;
	uint32_t flags;
	uint32_t imm; /* as in struct vb_send_wr */
	bool with_imm;
};

/* What a SEND needs comes first. */
struct vb_send_wqe {
	uint64_t wr_id;
	uint32_t length; /* bytes of the message */
	uint32_t num_sge;
	struct vb_sge *sges;  /* max_send_sge of them, in the queue's memory */
	uint8_t *inline_data; /* max_inline_data bytes, in the queue's memory; behind them
				 tso_header_max bytes of header */
	struct vb_ah *ah;     /* UD: a reference */
	uint32_t psn;	      /* of its first packet; valid once assigned */
	uint32_t packets;     /* PSNs that it takes (a READ: those of its responses) */
	uint32_t imm;
	uint8_t opcode;	   /* enum vb_wr_opcode */
	uint8_t flags;	   /* enum vb_send_flags; SIGNALED already includes sq_sig_all */
	bool lent;	   /* its packets name their payload: lend.c */
	bool by_packets;   /* direct access was refused: send it as packets */
	bool status_known; /* failed at post time or locally: completes with status in its turn */
	uint8_t status;	   /* enum vb_status, when status_known */
	bool own;	   /* the NIC's own request: the program hears nothing of it */
	uint32_t moved;	   /* direct: bytes moved so far; READ: bytes received in order */

	uint64_t remote_addr; /* a SEND of RC leaves all this as it was */
	uint32_t rkey;
	uint32_t remote_qpn, remote_qkey;
	uint32_t srqn;			/* XRC: the remote SRQ */
	uint8_t placement, selectivity; /* FLUSH */
	union {
		struct {
			uint64_t compare_add, swap;
		};
		struct vb_mw_bind bind;
		struct {
			uint16_t tso_header_bytes, tso_mss;
		};
	};
};

_Static_assert(offsetof(struct vb_send_wqe, remote_addr) == 64, "a SEND needs one line");

/* What the requester side knows. Cursors over PSNs: una <= nxt <= end (modulo 2^24). */
struct vb_requester {
	uint32_t una_psn;	 /* oldest PSN not acknowledged */
	uint32_t nxt_psn;	 /* next to send; behind end_psn while repeating */
	uint32_t end_psn;	 /* one past the highest PSN ever sent */
	uint32_t sq_assigned;	 /* WQE counter: PSNs are assigned up to here */
	uint32_t rd_outstanding; /* READ requests and atomics sent and not answered */
	uint32_t cwnd;		 /* packets that may be in flight on this path now */
	uint32_t calm;		 /* packets acknowledged since the last loss, up to a bound */
	uint32_t since_ack_req;	 /* packets sent since the last that asked for an ACK */
	uint8_t retries_left, rnr_left;
	uint8_t rnr_timer;	/* the last RNR NAK's timer field */
	bool implied_nak;	/* went back for a lost answer at una_psn; once per una_psn */
	uint16_t lend_pause;	/* messages that are not lent: the last one was refused */
	uint8_t since_wanted;	/* short messages since one said that its answer is waited for */
	uint64_t wait_until_ns; /* RC: an RNR wait; UC, UD: their turn in the pacing. 0: not waiting
				 */
	uint64_t ack_deadline_ns; /* 0: nothing unacknowledged, or no timeout */
};

enum vb_message { VB_MSG_NONE, VB_MSG_SEND, VB_MSG_WRITE, VB_MSG_SKIP };

/* A READ, atomic, FLUSH or ATOMIC WRITE that was accepted: to answer, and kept to answer
 * duplicates.
 */
struct vb_reply {
	uint32_t psn; /* first PSN of the answer */
	uint32_t packets;
	uint32_t msn;
	uint8_t operation; /* enum vb_operation */
	uint64_t va;
	uint32_t rkey;
	uint32_t length;
	uint64_t result; /* atomics: the value before */
	uint32_t srqn;	 /* XRC */
};

struct vb_responder {
	uint32_t epsn;		 /* expected PSN */
	uint32_t msn;		 /* messages completed, 24 bits */
	enum vb_message message; /* under way */
	/* one acknowledgement waits behind the answers; a later ACK replaces an earlier one */
	uint32_t ack_psn;
	uint8_t ack_syndrome;
	bool ack_pending;
	bool unacknowledged; /* a SEND or WRITE packet was accepted since the last answer */
	bool gap_told;	     /* the last answer was a sequence NAK */
	bool last_words; /* in ERR for a fault of the peer: what is owed and the NAK still leave */
	uint8_t last_opcode;
	bool seq_nak_sent;   /* one NAK per gap */
	bool recv_held;	     /* recv holds a request taken for the message under way */
	bool comm_est;	     /* the event was raised */
	uint32_t received;   /* bytes of the message so far */
	uint32_t reply_head; /* free running: next to write */
	uint32_t reply_next; /* the first not wholly answered; reply_head: none */
	uint32_t reply_done; /* all before it were answered once; behind reply_next while repeating
			      */
	uint32_t reply_psn;  /* next PSN to answer of replies[reply_next] */
	uint32_t reply_first_psn; /* the PSN that is answered with a FIRST or ONLY opcode */
	uint32_t rkey;
	uint64_t va; /* WRITE: next address */
	uint32_t write_left, write_total;
	struct vb_srq *
		srq; /* XRC: of the message under way or the latest request; NULL once it is gone */
	struct vb_recv_wqe recv;
	struct vb_tm_message tm; /* on an SRQ of tag matching: what the SEND under way is */
	/* answers: a ring of the latest READs and atomics */
	struct vb_reply replies[VB_MAX_RD_ATOMIC];
};

/* Whether the peer of an idle connection is still there: watch.c. */
struct vb_watch {
	uint64_t heard_ns, due_ns;
	uint32_t unanswered;  /* probes in a row */
	uint64_t interval_ns; /* 0: nobody watches */
};

/* In the order in which a message needs them, since with thousands of queue pairs each line that it
 * touches is one that the processor has to fetch:
 *
 *      line  0     1            2            3, 4   5                7
 *            sq_   requester,   links, CQs   path   caps, attr       watch, responder
 *            posting, sending: 0, 1, 2, 3, 5; being acknowledged, 7 besides
 *            receiving, acknowledging: 0, 2, 3, 5, 7
 *
 * The first VB_QP_HOT_BYTES are fetched ahead where it is known whose turn is next. */
#define VB_LINE_BYTES 64
#define VB_QP_HOT_BYTES (8 * VB_LINE_BYTES)
struct vb_qp {
	_Alignas(VB_LINE_BYTES) struct vb_nic *nic;
	uint32_t qpn;
	enum vb_qp_type type;
	enum vb_qp_state state;
	uint32_t mtu; /* payload bytes per packet in force: the path MTU or path.segment_max */
	/* send queue */
	struct vb_send_wqe *sq;
	struct vb_cq *send_cq;
	uint32_t sq_mask; /* ring size - 1, a power of two >= max_send_wr */
	uint32_t sq_free, sq_una, sq_next, sq_head;
	bool sq_sig_all;
	bool single;	 /* posted to by one thread alone, beside the NIC: beside.h */
	bool blocked;	 /* the carrier had no room; in nic->blocked instead of ready */
	bool cq_overran; /* a completion found no room: ERR when the entry under way ends */

	struct vb_requester req;
	struct vb_pd *pd;

	struct vb_list ready_link; /* in nic->ready: it may have something to send */
	struct vb_heap_item timer; /* in the NIC's heap: never later than the QP's real deadline */
	struct vb_srq *srq;
	struct vb_xrcd *xrcd;	/* XRC_RECV, which has no PD and no CQs */
	struct vb_tally *tally; /* whose completions are counted (tally.h), or NULL */
	struct vb_cq *recv_cq;

	const struct vb_qp
		*posted_next; /* soon after it, lately; perhaps gone: never to be looked into */
	struct vb_path path;  /* RC, UC: resolved from attr.ah */

	struct vb_qp_cap cap;
	uint32_t flows;		 /* rules that lead here */
	const void *posted_user; /* of posted_next, as user; perhaps gone as well */
	struct vb_qp_attr attr;	 /* as set by modify */

	struct vb_watch watch;
	struct vb_responder resp;
	struct vb_rq rq; /* own receive queue; empty with an SRQ */
	struct vb_sge
		*recv_sges; /* for resp.recv: as many as a request of the RQ or SRQ may have */

	bool path_valid;
	bool strip_vlan; /* raw packets */
	bool given;	 /* the queues lie in memory that is not ours to free */
	bool fatal_raised, sqd_notified;
	bool rung;		 /* beside.h: in the chain of nic->rung, or about to be */
	uint16_t tso_header_max; /* raw packets; 0: no TSO */
	void *user;
	struct vb_list xrc_link;
	struct vb_list windows; /* of type 2, bound to it */
	struct vb_rss *rss;	/* raw packets: receives into work queues, and does nothing else */
	struct vb_sge *sq_sges;
	uint8_t *sq_inline;
	struct vb_reason reason; /* first cause of its error */
	uint32_t sq_posted;	 /* beside.h: the thread's; sq_head follows it */
	struct vb_qp *next_rung; /* in the chain of nic->rung */
};

/* vb_qp_fetch - into the cache: it will be needed soon. */
static inline void vb_qp_fetch(const struct vb_qp *qp)
{
	for (uint32_t at = 0; at < VB_QP_HOT_BYTES; at += VB_LINE_BYTES)
		__builtin_prefetch((const uint8_t *)qp + at);
}

struct vb_qp_init {
	enum vb_qp_type type;
	struct vb_cq *send_cq, *recv_cq;
	struct vb_srq *srq;
	struct vb_xrcd *xrcd; /* XRC_RECV */
	struct vb_qp_cap cap;
	bool sq_sig_all;
	bool single; /* one thread alone posts to it; QPs that this is nothing for ignore it */
	void *user;
	void *room; /* for its queues (room.h), vb_qp_room bytes; NULL: the heap */
	/* raw packets */
	uint16_t max_tso_header;
	bool strip_vlan;
	const struct vb_rss *rss; /* without CQs, SRQ and caps */
};

/* vb_qp_is_datagram - it has no connection, and no path of its own. */
#define vb_qp_is_datagram(qp) ((qp)->type == VB_QPT_UD || (qp)->type == VB_QPT_RAW_PACKET)

/* vb_qp_room - 0 for what vb_qp_create refuses. */
size_t vb_qp_room(const struct vb_qp_init *init);
/* vb_qp_create - a QP in RESET; init->cap returns what was given (never less than asked). NULL with
 * errno EINVAL: a cap over the NIC's limits, a missing CQ, an SRQ on UC. With an SRQ, max_recv_wr
 * and max_recv_sge are ignored. XRC_SEND receives nothing and needs no receive CQ; XRC_RECV has an
 * XRC domain instead of pd, which is NULL, and of everything else. ENOMEM at VB_MAX_QP. Raw
 * packets: what vb_raw_get() says. */
struct vb_qp *vb_qp_create(struct vb_pd *pd, struct vb_qp_init *init);
/* vb_qp_destroy - its completions leave the CQs, its requests never complete. NULL is accepted. */
void vb_qp_destroy(struct vb_qp *qp);

/* vb_qp_modify - ibv_modify_qp(3): all or nothing. -EINVAL: this move does not exist, a required
 * attribute is missing, one is not allowed, or a value is out of range; the path's error when the
 * address does not resolve. */
int vb_qp_modify(struct vb_qp *qp, const struct vb_qp_attr *attr, uint32_t mask);

/* vb_qp_set_state - the one function that changes qp->state, with what follows from it: entering
 * ERR flushes, entering RESET forgets, entering RTS makes ready. */
void vb_qp_set_state(struct vb_qp *qp, enum vb_qp_state state);

/* vb_qp_watch - RC, in RTS: a peer that is silent is asked every interval_ns whether it is still
 * there; when it does not answer for long, the QP enters ERR, with VB_CHECK_RETRY_EXCEEDED and a
 * QP_FATAL event. 0 ends it, and so does RESET. */
void vb_qp_watch(struct vb_qp *qp, uint64_t interval_ns);

/* vb_qp_query - the attributes as they are. */
void vb_qp_query(const struct vb_qp *qp, struct vb_qp_attr *attr);

/* vb_qp_post_send - 0; -EINVAL (state, opcode for this type, flags, too many SGEs, inline over the
 * cap), -ENOMEM (no slot). Local protection errors are not checked here: they complete with their
 * status. */
int vb_qp_post_send(struct vb_qp *qp, const struct vb_send_wr *wr);
/* vb_rc_post_short - the same of a short message, if it is one of those that leave at once and at
 * little cost. False: nothing happened, and vb_qp_post_send() is to judge. */
bool vb_rc_post_short(struct vb_qp *qp, const struct vb_short_wr *wr);
/* vb_qp_check_send - whether the same would be refused, but for the lack of a slot. 0 or -EINVAL.
 */
int vb_qp_check_send(const struct vb_qp *qp, const struct vb_send_wr *wr);
/* vb_qp_post_recv - 0; -EINVAL (state RESET, an SRQ is attached, too many SGEs), -ENOMEM (no slot).
 */
int vb_qp_post_recv(struct vb_qp *qp, const struct vb_recv_wr *wr);

/* vb_qp_take_recv - takes the oldest receive request, of the SRQ or the QP's own queue, into
 * resp.recv and sets resp.recv_held; raises the SRQ's limit event. False: none is posted. For the
 * responders. */
bool vb_qp_take_recv(struct vb_qp *qp);

/* vb_qp_check - asserts every invariant; after each entry point in debug builds and the simulator.
 */
void vb_qp_check(const struct vb_qp *qp);

#ifdef VB_CHECK
#define VB_CHECK_ENABLED 1
#else
#define VB_CHECK_ENABLED 0
#endif

/* vb_qp_end_overran - ERR, since its CQ has overrun. */
void vb_qp_end_overran(struct vb_qp *qp);

/* vb_qp_settle - ends each entry point that dealt with the QP: does what could not be done in the
 * middle, then checks the invariants where that is enabled. */
static inline void vb_qp_settle(struct vb_qp *qp)
{
	if (__builtin_expect(qp->cq_overran, 0))
		vb_qp_end_overran(qp);
	if (VB_CHECK_ENABLED)
		vb_qp_check(qp);
}

/* vb_qp_is_reliable - its packets are acknowledged and repeated. */
static inline bool vb_qp_is_reliable(const struct vb_qp *qp)
{
	return qp->type == VB_QPT_RC || qp->type == VB_QPT_XRC_SEND || qp->type == VB_QPT_XRC_RECV;
}

/* vb_qp_srq - the shared queue that the message under way takes from; NULL: the QP's own queue. */
static inline struct vb_srq *vb_qp_srq(const struct vb_qp *qp)
{
	return qp->xrcd ? qp->resp.srq : qp->srq;
}

/* vb_wr_is_answered - the request's response says more than that it was received. */
static inline bool vb_wr_is_answered(uint8_t opcode)
{
	return opcode == VB_WR_RDMA_READ || opcode == VB_WR_ATOMIC_CMP_AND_SWP ||
	       opcode == VB_WR_ATOMIC_FETCH_AND_ADD || opcode == VB_WR_FLUSH ||
	       opcode == VB_WR_ATOMIC_WRITE;
}

/* vb_qp_state - as a thread beside the NIC may read it. */
static inline enum vb_qp_state vb_qp_state(const struct vb_qp *qp)
{
	return __atomic_load_n(&qp->state, __ATOMIC_RELAXED);
}

/* vb_qp_sq_free - a poller may be moving it meanwhile (cq.h): only forward, and to sq_una at most.
 */
static inline uint32_t vb_qp_sq_free(const struct vb_qp *qp)
{
	return __atomic_load_n(&qp->sq_free, __ATOMIC_ACQUIRE);
}

/* vb_qp_tso_header - where the request's is kept. */
static inline uint8_t *vb_qp_tso_header(const struct vb_qp *qp, const struct vb_send_wqe *w)
{
	return w->inline_data + qp->cap.max_inline_data;
}

static inline struct vb_send_wqe *vb_qp_wqe(const struct vb_qp *qp, uint32_t counter)
{
	return &qp->sq[counter & qp->sq_mask];
}

#endif
