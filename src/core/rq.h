/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rq.h - queues of receive work requests: a QP's own receive queue and the shared one (SRQ).
 *
 * Both are one ring: the responder takes the oldest request when a message begins that needs one,
 * copies it into the QP and forgets the slot; where the message ends it completes the copy. A slot
 * of a QP's own queue is free again as soon as it is taken. With an SRQ the requests of several QPs
 * may be under way at once.
 *
 * One may post while another takes: who posts moves head, who takes moves tail (beside.h).
 */
#ifndef VB_CORE_RQ_H
#define VB_CORE_RQ_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "core/limits.h"

struct vb_cq;
struct vb_nic;
struct vb_pd;
struct vb_tm;

/* struct vb_sge - same layout as struct ibv_sge. */
struct vb_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct vb_recv_wr {
	uint64_t wr_id;
	const struct vb_sge *sges;
	uint32_t num_sge;
};

/* A receive request in the ring, or taken out of it. */
struct vb_recv_wqe {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t length; /* sum of the SGEs; at most VB_MAX_MESSAGE is used */
	struct vb_sge *sges;
};

struct vb_rq {
	uint32_t max_wr, max_sge;
	uint32_t mask;	     /* ring size - 1, a power of two >= max_wr */
	uint32_t head, tail; /* free running */
	struct vb_recv_wqe *ring;
	struct vb_sge *sges; /* max_sge for each place in the ring */
	bool given;	     /* in memory that is not ours to free */
};

struct vb_srq {
	struct vb_nic *nic;
	struct vb_pd *pd;
	void *user;
	struct vb_rq rq;
	uint32_t limit;	      /* 0: not armed (IBTA 10.2.9.1) */
	uint32_t users;	      /* QPs attached */
	struct vb_cq *cq;     /* its receives complete there; NULL: into each QP's own */
	struct vb_tm *tm;     /* tag matching; NULL: none */
	struct vb_list qps;   /* their srq_link: those that may wait in RNR, none today */
	struct vb_xrcd *xrcd; /* XRC (xrc.h), else NULL */
	uint32_t srqn;
};

int vb_rq_init(struct vb_rq *rq, uint32_t max_wr, uint32_t max_sge) VB_MUST_USE;
/* vb_rq_init_in - the same, in room (room.h) of vb_rq_room bytes; NULL: on the heap. */
int vb_rq_init_in(struct vb_rq *rq, uint32_t max_wr, uint32_t max_sge, void *room) VB_MUST_USE;
size_t vb_rq_room(uint32_t max_wr, uint32_t max_sge);
void vb_rq_finish(struct vb_rq *rq);
void vb_rq_reset(struct vb_rq *rq);

/* vb_rq_first - the oldest request, which stays; NULL: empty. */
static inline const struct vb_recv_wqe *vb_rq_first(const struct vb_rq *rq)
{
	if (__atomic_load_n(&rq->head, __ATOMIC_ACQUIRE) == rq->tail)
		return NULL;
	return &rq->ring[rq->tail & rq->mask];
}
/* vb_rq_drop_first - its slot is free. */
static inline void vb_rq_drop_first(struct vb_rq *rq)
{
	__atomic_store_n(&rq->tail, rq->tail + 1, __ATOMIC_RELEASE);
}

/* vb_rq_take - copies the oldest request into out, whose sges has room for max_sge. False: empty.
 */
bool vb_rq_take(struct vb_rq *rq, struct vb_recv_wqe *out);

static inline uint32_t vb_rq_count(const struct vb_rq *rq)
{
	return __atomic_load_n(&rq->head, __ATOMIC_ACQUIRE) -
	       __atomic_load_n(&rq->tail, __ATOMIC_ACQUIRE);
}

/* vb_rq_post - 0, -ENOMEM when full, -EINVAL when num_sge is over max_sge or the sum over
 * VB_MAX_MESSAGE. */
static inline int vb_rq_post(struct vb_rq *rq, const struct vb_recv_wr *wr)
{
	struct vb_recv_wqe *wqe;
	uint64_t length = 0;

	if (wr->num_sge > rq->max_sge)
		return -EINVAL;
	for (uint32_t i = 0; i < wr->num_sge; i++)
		length += wr->sges[i].length;
	if (length > VB_MAX_MESSAGE)
		return -EINVAL;
	if (vb_rq_count(rq) >= rq->max_wr)
		return -ENOMEM;
	wqe = &rq->ring[rq->head & rq->mask];
	wqe->wr_id = wr->wr_id;
	wqe->length = (uint32_t)length;
	wqe->num_sge = wr->num_sge;
	for (uint32_t i = 0; i < wr->num_sge; i++) /* few: not worth a call */
		wqe->sges[i] = wr->sges[i];
	__atomic_store_n(&rq->head, rq->head + 1, __ATOMIC_RELEASE);
	return 0;
}

/* vb_srq_create - NULL with errno EINVAL (no requests, or a limit exceeded), ENOMEM. */
struct vb_srq *vb_srq_create(struct vb_pd *pd, uint32_t max_wr, uint32_t max_sge, uint32_t limit,
			     void *user);
/* vb_srq_create_in - the same, in room of vb_srq_room bytes; NULL: on the heap. */
struct vb_srq *vb_srq_create_in(struct vb_pd *pd, uint32_t max_wr, uint32_t max_sge, uint32_t limit,
				void *user, void *room);
size_t vb_srq_room(uint32_t max_wr, uint32_t max_sge);
/* vb_srq_destroy - 0 or -EBUSY while a QP uses it. */
int vb_srq_destroy(struct vb_srq *srq);
int vb_srq_post(struct vb_srq *srq, const struct vb_recv_wr *wr);
/* vb_srq_set_limit - arms the limit event; -EINVAL when over max_wr. */
int vb_srq_set_limit(struct vb_srq *srq, uint32_t limit);
/* vb_srq_resize - -EINVAL when fewer than are posted or over the limits. */
int vb_srq_resize(struct vb_srq *srq, uint32_t max_wr);
/* vb_srq_resize_in - the same, in room of vb_srq_room bytes; the room before is free after it. */
int vb_srq_resize_in(struct vb_srq *srq, uint32_t max_wr, void *room);

#endif
