/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cq.h - completion queues (IBTA 11.2.8, 11.4.2).
 *
 * A ring of completions. Who polls a completion of the send queue gives the queue's slots back up
 * to that request: the entry names its QP and how far. A CQ that is full when something completes
 * is in error from then on (IBV_EVENT_CQ_ERR), and so are the QPs that complete into it.
 *
 * A CQ that one thread alone uses (single) may be polled while another drives the NIC: the ring has
 * one reader, who moves tail, and one writer, who moves head. Everything else that is done to the
 * CQ, and ending or resetting a QP that completes into it, is that thread's too.
 *
 * Moderation: armed, it raises its event for the count-th completion from then on, or count or none
 * being there when the period since the first is over.
 */
#ifndef VB_CORE_CQ_H
#define VB_CORE_CQ_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "core/reason.h"

struct vb_nic;
struct vb_qp;

/* enum vb_status - numerically equal to enum ibv_wc_status. */
enum vb_status {
	VB_WC_SUCCESS = 0,
	VB_WC_LOC_LEN_ERR = 1,
	VB_WC_LOC_QP_OP_ERR = 2,
	VB_WC_LOC_PROT_ERR = 4,
	VB_WC_WR_FLUSH_ERR = 5,
	VB_WC_MW_BIND_ERR = 6,
	VB_WC_BAD_RESP_ERR = 7,
	VB_WC_LOC_ACCESS_ERR = 8,
	VB_WC_REM_INV_REQ_ERR = 9,
	VB_WC_REM_ACCESS_ERR = 10,
	VB_WC_REM_OP_ERR = 11,
	VB_WC_RETRY_EXC_ERR = 12,
	VB_WC_RNR_RETRY_EXC_ERR = 13,
	VB_WC_FATAL_ERR = 19,
	VB_WC_GENERAL_ERR = 21,
	VB_WC_TM_ERR = 22,
	VB_WC_TM_RNDV_INCOMPLETE = 23,
};

/* enum vb_wc_opcode - numerically equal to enum ibv_wc_opcode. */
enum vb_wc_opcode {
	VB_WC_SEND = 0,
	VB_WC_RDMA_WRITE = 1,
	VB_WC_RDMA_READ = 2,
	VB_WC_COMP_SWAP = 3,
	VB_WC_FETCH_ADD = 4,
	VB_WC_BIND_MW = 5,
	VB_WC_LOCAL_INV = 6,
	VB_WC_TSO = 7,
	VB_WC_FLUSH = 8,
	VB_WC_ATOMIC_WRITE = 9,
	VB_WC_RECV = 1 << 7,
	VB_WC_RECV_RDMA_WITH_IMM,
	VB_WC_TM_ADD,
	VB_WC_TM_DEL,
	VB_WC_TM_SYNC,
	VB_WC_TM_RECV,
	VB_WC_TM_NO_TAG,
};

/* numerically equal to enum ibv_wc_flags */
enum vb_wc_flags {
	VB_WC_GRH = 1 << 0,
	VB_WC_WITH_IMM = 1 << 1,
	VB_WC_IP_CSUM_OK = 1 << 2,
	VB_WC_WITH_INV = 1 << 3,
	VB_WC_TM_SYNC_REQ = 1 << 4,
	VB_WC_TM_MATCH = 1 << 5,
	VB_WC_TM_DATA_VALID = 1 << 6,
};

/* What RoCE v2 adapters put where InfiniBand has the SL of a datagram: bit 3, it came by UDP;
 * bits 2..0, its network header. UCX looks for the address that the datagram was sent to by it. */
enum vb_wc_sl {
	VB_WC_SL_IPV6 = 0x9,
	VB_WC_SL_IPV4 = 0xa,
};

struct vb_cqe {
	uint64_t wr_id;
	struct vb_qp *qp; /* NULL once the QP is gone, and for receives of XRC */
	uint32_t qpn;
	uint32_t src_qpn; /* UD receive */
	uint32_t byte_len;
	uint32_t imm; /* value of the big-endian field, host order; or the rkey */
	union {
		uint32_t sq_slots_until; /* send queue: the consumer index after this request */
		uint32_t tm_priv;	 /* TM_MATCH: the program's own part of the header */
	};
	uint16_t vendor_err; /* enum vb_check */
	uint8_t status;	     /* enum vb_status */
	uint8_t opcode;	     /* enum vb_wc_opcode */
	uint8_t wc_flags;
	uint8_t sl;   /* UD receive: enum vb_wc_sl */
	bool is_send; /* completes a request of the send queue */
	bool solicited;
	uint64_t time_ns; /* engine time of the completion */
	union {
		uint64_t tm_tag; /* TM_MATCH */
		struct {	 /* raw packets */
			uint32_t flow_tag;
			uint16_t cvlan;
		};
	};
};

enum vb_cq_arm {
	VB_CQ_NOT_ARMED,
	VB_CQ_ARMED_SOLICITED, /* the next solicited or failed completion raises the event */
	VB_CQ_ARMED,	       /* the next completion raises the event */
};

struct vb_cq {
	struct vb_nic *nic;
	void *user;	     /* the host's or face's object */
	uint32_t capacity;   /* entries, as reported */
	uint32_t mask;	     /* ring size - 1, a power of two >= capacity */
	uint32_t head, tail; /* free running; head: next to write, tail: next to poll */
	struct vb_cqe *ring;
	bool given;	 /* the ring lies in memory that is not ours to free */
	bool single;	 /* polled by one thread, perhaps beside the NIC */
	bool overwrites; /* when full, the oldest completion gives way, and nobody is told */
	bool told;	 /* its event was raised, and nobody has polled since */
	enum vb_cq_arm arm;
	bool overrun;
	uint32_t event_count;	  /* completions that make an event; 0: the period alone */
	uint64_t event_period_ns; /* 0: the count alone */
	uint32_t held_back;	  /* completions that the event is for, and that wait for more */
	uint64_t event_due_ns;	  /* while it is in nic->moderated */
	struct vb_list moderated; /* in nic->moderated */
	uint32_t users;		  /* QPs, and SRQs of XRC, that complete into it */
	struct vb_reason
		last_reason; /* of the latest completion that failed for a cause of its own */
};

/* vb_cq_create - a CQ of at least entries. Returns NULL with errno EINVAL (0 or over VB_MAX_CQE),
 * ENOMEM. */
struct vb_cq *vb_cq_create(struct vb_nic *nic, uint32_t entries, void *user);

/* vb_cq_create_in - the same, in room (room.h) of vb_cq_room bytes; NULL: on the heap. */
struct vb_cq *vb_cq_create_in(struct vb_nic *nic, uint32_t entries, void *user, void *room);
/* vb_cq_room - 0 for what vb_cq_create refuses. */
size_t vb_cq_room(uint32_t entries);

/* vb_cq_destroy - 0, or -EBUSY while a QP uses it. NULL is accepted. */
int vb_cq_destroy(struct vb_cq *cq);

/* vb_cq_resize - keeps what is inside. -EINVAL when more than entries are inside or over the limit.
 */
int vb_cq_resize(struct vb_cq *cq, uint32_t entries);
/* vb_cq_resize_in - the same, in room of vb_cq_room bytes; the room before is free after it. */
int vb_cq_resize_in(struct vb_cq *cq, uint32_t entries, void *room);

/* vb_cq_poll - takes up to n completions in order and gives their send queue slots back. */
int vb_cq_poll(struct vb_cq *cq, struct vb_cqe *out, int n);

/* vb_cq_arm - ibv_req_notify_cq(3): the event is for a completion added from now on; or for one
 * that is inside, at once, unless nobody has polled since the event before. */
void vb_cq_arm(struct vb_cq *cq, bool solicited_only);

/* vb_cq_moderate - ibv_modify_cq(3). 0 and 0, or a count of 1: each completion makes an event. */
void vb_cq_moderate(struct vb_cq *cq, uint32_t count, uint64_t period_ns);

/* vb_cq_run_moderated - raises the events whose period is over; for vb_nic_run. */
void vb_cq_run_moderated(struct vb_nic *nic, uint64_t now_ns);

/* vb_cq_push - adds a completion; for the core's own use. reason may be NULL for success. */
void vb_cq_push(struct vb_cq *cq, const struct vb_cqe *cqe, const struct vb_reason *reason);

/* vb_cq_notify - a completion was added to a CQ that is armed. */
void vb_cq_notify(struct vb_cq *cq, const struct vb_cqe *cqe);

/* vb_cq_forget_qp - removes the completions of a QP that is destroyed or reset. */
void vb_cq_forget_qp(struct vb_cq *cq, const struct vb_qp *qp);

/* vb_cq_forget_wq - the same for a work queue, by its number. */
void vb_cq_forget_wq(struct vb_cq *cq, uint32_t number);

static inline uint32_t vb_cq_count(const struct vb_cq *cq)
{
	return __atomic_load_n(&cq->head, __ATOMIC_ACQUIRE) -
	       __atomic_load_n(&cq->tail, __ATOMIC_ACQUIRE);
}

/* vb_cq_room_for_one - where the next completion goes if nothing else comes of it: a caller that
 * knows all of it fills it in, and then adds it. NULL: vb_cq_push() knows what is to be done. */
static inline struct vb_cqe *vb_cq_room_for_one(struct vb_cq *cq)
{
	if (cq->overwrites || cq->overrun || vb_cq_count(cq) >= cq->capacity)
		return NULL;
	return &cq->ring[cq->head & cq->mask];
}

/* vb_cq_add - it is filled in. */
static inline void vb_cq_add(struct vb_cq *cq, const struct vb_cqe *cqe)
{
	__atomic_store_n(&cq->head, cq->head + 1, __ATOMIC_RELEASE);
	if (cq->arm != VB_CQ_NOT_ARMED)
		vb_cq_notify(cq, cqe);
}

#endif
