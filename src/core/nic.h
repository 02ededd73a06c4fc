/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * nic.h - one NIC, sans I/O.
 *
 * Packets and the time come in as arguments; packets, events and the next deadline come out. The
 * NIC never reads a clock, never sleeps, calls no socket and takes no lock: whoever owns it (a live
 * engine, the simulator, a fuzzer) calls it from one thread at a time:
 *
 *      vb_nic_rx(nic, packet, now)      for each packet that arrived
 *      vb_nic_run(nic, now)             answers, acknowledges, sends, lets timers expire
 *      vb_nic_deadline(nic)             when to call vb_nic_run again at the latest
 *
 * Two things may be done by another thread at the same time: polling a CQ that is single (cq.h),
 * and posting to a QP that is (beside.h).
 *
 * Memory is taken when objects are created, never while packets move.
 */
#ifndef VB_CORE_NIC_H
#define VB_CORE_NIC_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/heap.h"
#include "base/list.h"
#include "core/ah.h"
#include "core/cq.h"
#include "core/limits.h"
#include "core/mr.h"
#include "core/qp.h"
#include "core/reason.h"
#include "core/raw.h"
#include "core/rq.h"
#include "core/wq.h"
#include "wire/packet.h"
#include "wire/path.h"

#define VB_NEVER UINT64_MAX

enum vb_event_type { /* numerically equal to enum ibv_event_type */
		     VB_EVENT_CQ_ERR = 0,
		     VB_EVENT_QP_FATAL = 1,
		     VB_EVENT_QP_REQ_ERR = 2,
		     VB_EVENT_QP_ACCESS_ERR = 3,
		     VB_EVENT_COMM_EST = 4,
		     VB_EVENT_SQ_DRAINED = 5,
		     VB_EVENT_DEVICE_FATAL = 8,
		     VB_EVENT_PORT_ACTIVE = 9,
		     VB_EVENT_PORT_ERR = 10,
		     VB_EVENT_SRQ_ERR = 14,
		     VB_EVENT_SRQ_LIMIT_REACHED = 15,
		     VB_EVENT_QP_LAST_WQE_REACHED = 16,
		     VB_EVENT_WQ_FATAL = 19,
};

struct vb_event {
	enum vb_event_type type;
	struct vb_qp *qp;
	struct vb_cq *cq;
	struct vb_srq *srq;
	struct vb_wq *wq;
};

enum vb_direction { VB_DIRECT_WRITE, VB_DIRECT_READ };

/* What is done to eight aligned bytes, in one piece. */
struct vb_atomic {
	enum { VB_ATOMIC_ADD, VB_ATOMIC_COMPARE_SWAP, VB_ATOMIC_STORE } kind;
	uint64_t operand, compare;
};

/* What a NIC asks of its surroundings. */
struct vb_nic_ops {
	/* tx - takes one packet. 0; -EAGAIN: no room now, vb_nic_unblock() will be called; another
	 * error drops the packet, as a wire would. */
	int (*tx)(void *env, const struct vb_path *path, const struct vb_tx *tx);
	/* tx_short - the same of the usual short SEND, or of an acknowledgement, over a path with
	 * own_segment. May be NULL. */
	int (*tx_short)(void *env, const struct vb_short *packet);
	/* direct - moves length bytes between local memory and the peer's region without the peer.
	 * Returns the bytes moved (> 0) with now_ns brought up to date, or any -errno: the request
	 * then goes as packets, and the peer judges it. May be NULL. */
	ssize_t (*direct)(void *env, const struct vb_qp *qp, enum vb_direction direction,
			  uint32_t rkey, uint64_t va, const struct iovec *local, int parts,
			  uint32_t length);
	/* direct_atomic - an addition or a swap without the peer: 0 with the word's value from
	 * before, or any -errno, as above. May be NULL. */
	int (*direct_atomic)(void *env, const struct vb_qp *qp, uint32_t rkey, uint64_t va,
			     const struct vb_atomic *op, uint64_t *before);
	/* lend - from here on peers may fetch payload from the region. False: not from this one.
	 * May be NULL. */
	bool (*lend)(void *env, struct vb_mr *mr);
	/* fetch - the payload that the QP's peer lent, into memory that holds as much. 0, or any
	 * -errno: the peer sends it again, as packets. May be NULL. */
	int (*fetch)(void *env, const struct vb_qp *qp, const struct vb_lent *lent,
		     const struct iovec *to, int parts);
	/* resolve - fills path from an address handle's attributes. -EINVAL, -ENETUNREACH, -ENOMEM.
	 */
	int (*resolve)(void *env, const struct vb_ah_attr *ah, struct vb_path *path);
	/* release - the path is not used any more. May be NULL. */
	void (*release)(void *env, struct vb_path *path);
	void (*event)(void *env, const struct vb_event *event);
	/* cq_event - an armed CQ got its completion. */
	void (*cq_event)(void *env, struct vb_cq *cq);
	/* qp_changed - the QP's state, attributes or existence (state RESET at the end) changed.
	 * May be NULL. */
	void (*qp_changed)(void *env, struct vb_qp *qp);
	/* join, leave - the first queue pair was attached to a multicast group, the last one
	 * detached. join: 0 or -errno. May be NULL. */
	/* show_window, hide_window - a window is bound from here on, or about to be free.
	 * hide_window: 0 once nobody uses it any more without us, -EBUSY when somebody does not
	 * stop. May be NULL. */
	void (*show_window)(void *env, const struct vb_mr *window);
	int (*hide_window)(void *env, const struct vb_mr *window);
	/* present - of a region on demand: brings in the memory of [at, at + length), to be written
	 * too if write is set. False: there is none with that right. May be NULL: it is there. */
	bool (*present)(void *env, const void *at, uint64_t length, bool write);
	/* copy - between the memory of a region on demand and ours: into the region if write is
	 * set, and then the last bytes become visible last (vb_place). False: part of it is not
	 * there, or lacks the right. May be NULL: all is there. */
	bool (*copy)(void *env, bool write, void *region, void *ours, uint32_t length);
	/* atomic - on an aligned word of a region on demand. False as above. May be NULL. */
	bool (*atomic)(void *env, uint64_t *word, const struct vb_atomic *op, uint64_t *before);
	int (*join)(void *env, const struct in6_addr *group);
	void (*leave)(void *env, const struct in6_addr *group);
	/* raw_open, raw_close - the first raw packet queue pair is made, the last one gone. open:
	 * 0, with port filled in; -EPERM and others. May be NULL, as the next two: no raw packets.
	 */
	int (*raw_open)(void *env, struct vb_raw_port *port);
	void (*raw_close)(void *env);
	/* raw_allowed - while it is open: whether the caller might open it now. 0, -EPERM. May be
	 * NULL. */
	int (*raw_allowed)(void *env);
	/* raw_tx - as tx; the frame is copied, or gone, when it returns. */
	int (*raw_tx)(void *env, const uint8_t *frame, uint32_t size);
	/* raw_listen - which frames vb_nic_raw_rx() is to get from now on. 0 or -errno. */
	int (*raw_listen)(void *env, const struct vb_raw_wanted *wanted);
	/* random - 32 bits nobody can predict (the simulator: from its seed). */
	uint32_t (*random)(void *env);
};

/* Packets and events that were counted and, unless the name says otherwise, dropped. */
struct vb_counters {
	uint64_t rx_packets, tx_packets;
	uint64_t rx_malformed; /* does not decode, pad or length impossible */
	uint64_t rx_unknown_qp;
	uint64_t rx_wrong_pkey, rx_wrong_qkey;
	uint64_t rx_wrong_state;     /* the QP's state takes no packets */
	uint64_t rx_wrong_transport; /* opcode of another QP type */
	uint64_t rx_wrong_address;   /* not from the peer that the QP is connected to */
	uint64_t rx_out_of_window;   /* response or request PSN outside any window */
	uint64_t rx_duplicate;	     /* request seen before (answered again) */
	uint64_t rx_no_receive;	     /* UC, UD: no receive request posted */
	uint64_t rx_too_long;	     /* UD: longer than the receive buffer, whose request fails */
	uint64_t rx_out_of_sequence; /* a gap (RC: NAK) */
	uint64_t tx_naks, tx_rnr_naks, rx_naks, rx_rnr_naks;
	uint64_t retries; /* go-backs after NAK, implied NAK or timeout */
	uint64_t timeouts;
	uint64_t direct_bytes, direct_refused;
	uint64_t tx_dropped; /* the carrier refused the packet for good */
};

struct vb_nic_config {
	uint32_t qpn_base;   /* QPNs are qpn_base + 1 .. qpn_base + 2^VB_MAX_QP_BITS - 1 */
	bool equal_keys;     /* lkey == rkey */
	bool direct_touches; /* ops.direct may touch the request's own memory without the kernel */
	uint64_t ack_timeout_min_ns; /* a shorter local ACK timeout is lengthened to this */
};

/* How many posts to other queue pairs ahead the next ones are fetched (transport.h): a power of
 * two. */
#define VB_POSTED_AHEAD 4u

struct vb_nic {
	struct vb_nic_ops ops;
	void *env;
	struct vb_nic_config config;
	uint64_t now_ns; /* of the latest entry; monotonic */
	struct vb_counters counters;

	struct vb_qp **qps; /* 1 << VB_MAX_QP_BITS, by QPN - qpn_base */
	struct vb_mr **mrs; /* 1 << VB_MAX_MR_BITS, by vb_key_slot(); windows too */
	struct vb_srq *
		*xrc_srqs; /* by SRQ number - qpn_base, xrc.c; NULL before the first domain */
	uint16_t *rested; /* VB_QPN_REST indices into qps, the oldest at rest_count % VB_QPN_REST */
	uint8_t *resting; /* by index: it is among them */
	uint64_t rest_count;
	uint32_t qp_count, mr_count, mw_count, pd_count, cq_count, srq_count, ah_count,
		counter_count;
	uint32_t xrcd_count, xrc_srq_count;
	uint32_t next_pd_id;

	uint32_t wq_count, wq_table_count, next_wq_number;
	struct vb_raw *raw; /* NULL while there is no raw packet queue pair */
	uint8_t *bounce;    /* demand.h; NULL before the first region on demand */

	struct vb_list groups; /* multicast, mcast.c */
	uint32_t group_count;
	struct vb_qp *rung;	   /* QPs with requests posted beside the NIC: beside.h */
	struct vb_qp *posted[VB_POSTED_AHEAD]; /* who were posted send requests to lately, or NULL;
						  the last one at posted_count - 1 */
	uint32_t posted_count;
	struct vb_list ready;	   /* QPs that may have something to send */
	bool ready_soon;	   /* some may; the rest have a timer to start, no more */
	struct vb_list blocked;	   /* QPs whose carrier had no room */
	uint32_t wide_qpn;	   /* the QP that may have all of its path's window in flight */
	uint64_t wide_until_ns;	   /* unless its answers fail to come until then */
	uint64_t late_until_ns;	   /* UC and UD send less until then */
	uint64_t paced_until_ns;   /* UC and UD: when what was sent so far is taken as arrived */
	uint32_t awaiting;	   /* QPs with an answer due */
	struct vb_heap timers;	   /* of QPs; room for all that exist */
	struct vb_list moderated;  /* CQs that hold an event back, cq.c */
	uint64_t moderated_due_ns; /* not later than the first of them is due */
};

/* vb_nic_create - NULL with errno ENOMEM. ops and config are copied. */
struct vb_nic *vb_nic_create(const struct vb_nic_ops *ops, void *env,
			     const struct vb_nic_config *config);
/* vb_nic_destroy - no object may be left in it. NULL is accepted. */
void vb_nic_destroy(struct vb_nic *nic);

/* vb_nic_is_next - whether the packet, a whole BTH at least, is the next one of its stream, or a
 * repeated one: what a carrier asks that may have another of the same queue pair which came before
 * it. True where there is no order. */
bool vb_nic_is_next(const struct vb_nic *nic, const uint8_t *packet);

/* vb_nic_rx - takes one packet; anything from the wire is allowed. */
void vb_nic_rx(struct vb_nic *nic, const struct vb_rx *rx, uint64_t now_ns);

/* vb_nic_run - lets due timers expire and sends what can be sent, with a bound on the work of one
 * call. True: there is more to do at once. */
bool vb_nic_run(struct vb_nic *nic, uint64_t now_ns);

/* vb_nic_needs_time - what is ready starts a timer or completes now: the time of an earlier entry
 * will not do for vb_nic_run. */
bool vb_nic_needs_time(const struct vb_nic *nic);

/* vb_nic_deadline - the next time vb_nic_run must be called, VB_NEVER when nothing waits for time.
 */
uint64_t vb_nic_deadline(const struct vb_nic *nic);

/* vb_nic_answer_is_due - vb_nic_run would take an answer, or a sign of life, for lost: whoever
 * calls it then looks first whether that has come. */
bool vb_nic_answer_is_due(struct vb_nic *nic, uint64_t now_ns);

/* vb_nic_unblock - a carrier has room again. */
void vb_nic_unblock(struct vb_nic *nic);

/* vb_nic_find_qp - by number; NULL. */
struct vb_qp *vb_nic_find_qp(const struct vb_nic *nic, uint32_t qpn);

/* Between the core's files, not for others */
int vb_nic_add_qp(struct vb_nic *nic, struct vb_qp *qp);     /* chooses the QPN; -ENOMEM */
void vb_nic_remove_qp(struct vb_nic *nic, struct vb_qp *qp); /* table, lists, timers */
void vb_nic_make_ready(struct vb_nic *nic, struct vb_qp *qp);
/* vb_nic_make_ready_at_leisure - it has nothing to send, but a run that starts its timer to come.
 */
void vb_nic_make_ready_at_leisure(struct vb_nic *nic, struct vb_qp *qp);
void vb_nic_arm_timer(struct vb_nic *nic, struct vb_qp *qp, uint64_t deadline_ns);
void vb_nic_raise(struct vb_nic *nic, enum vb_event_type type, struct vb_qp *qp, struct vb_cq *cq,
		  struct vb_srq *srq);

#endif
