/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rq.c - rings of receive requests: the ring itself, and the shared receive queue around one (IBTA
 * 10.2.9). Each place of the ring has its own max_sge SGEs, so that posting and taking copy and
 * never allocate.
 */
#include "core/rq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ring.h"
#include "core/nic.h"
#include "core/qp.h"
#include "core/room.h"
#include "core/tm.h"
#include "core/xrc.h"

static size_t sge_count(size_t places, uint32_t max_sge)
{
	return places * VB_MAX(max_sge, 1u);
}

size_t vb_rq_room(uint32_t max_wr, uint32_t max_sge)
{
	size_t places = (size_t)vb_ring_mask(max_wr) + 1;

	if (!max_wr)
		return 0;
	return vb_room_bytes(places, sizeof(struct vb_recv_wqe)) +
	       vb_room_bytes(sge_count(places, max_sge), sizeof(struct vb_sge));
}

int vb_rq_init_in(struct vb_rq *rq, uint32_t max_wr, uint32_t max_sge, void *room)
{
	size_t places;

	*rq = (struct vb_rq){.max_wr = max_wr,
			     .max_sge = max_sge,
			     .mask = vb_ring_mask(max_wr),
			     .given = room != NULL};
	if (!max_wr)
		return 0;
	places = (size_t)rq->mask + 1;
	rq->ring = vb_room_take(&room, places, sizeof(*rq->ring));
	rq->sges = vb_room_take(&room, sge_count(places, max_sge), sizeof(*rq->sges));
	if (!rq->ring || !rq->sges) {
		vb_rq_finish(rq);
		return -ENOMEM;
	}
	for (size_t i = 0; i < places; i++)
		rq->ring[i].sges = rq->sges + i * max_sge;
	return 0;
}

int vb_rq_init(struct vb_rq *rq, uint32_t max_wr, uint32_t max_sge)
{
	return vb_rq_init_in(rq, max_wr, max_sge, NULL);
}

void vb_rq_finish(struct vb_rq *rq)
{
	if (!rq->given) {
		free(rq->ring);
		free(rq->sges);
	}
	*rq = (struct vb_rq){0};
}

void vb_rq_reset(struct vb_rq *rq)
{
	rq->head = rq->tail = 0;
}

static void copy_sges(struct vb_recv_wqe *wqe, const struct vb_sge *sges, uint32_t num_sge)
{
	wqe->num_sge = num_sge;
	if (num_sge)
		memcpy(wqe->sges, sges, num_sge * sizeof(*sges));
}

bool vb_rq_take(struct vb_rq *rq, struct vb_recv_wqe *out)
{
	const struct vb_recv_wqe *wqe = vb_rq_first(rq);

	if (!wqe)
		return false;
	out->wr_id = wqe->wr_id;
	out->length = wqe->length;
	copy_sges(out, wqe->sges, wqe->num_sge);
	vb_rq_drop_first(rq);
	return true;
}

/* --- shared receive queues --------------------------------------------------------------- */

size_t vb_srq_room(uint32_t max_wr, uint32_t max_sge)
{
	max_sge = VB_MAX(max_sge, 1u);
	return max_wr > VB_MAX_SRQ_WR || max_sge > VB_MAX_SRQ_SGE ? 0 : vb_rq_room(max_wr, max_sge);
}

struct vb_srq *vb_srq_create(struct vb_pd *pd, uint32_t max_wr, uint32_t max_sge, uint32_t limit,
			     void *user)
{
	return vb_srq_create_in(pd, max_wr, max_sge, limit, user, NULL);
}

struct vb_srq *vb_srq_create_in(struct vb_pd *pd, uint32_t max_wr, uint32_t max_sge, uint32_t limit,
				void *user, void *room)
{
	struct vb_nic *nic = pd->nic;
	struct vb_srq *srq;

	max_sge = VB_MAX(max_sge, 1u);
	if (!max_wr || max_wr > VB_MAX_SRQ_WR || max_sge > VB_MAX_SRQ_SGE || limit > max_wr) {
		errno = EINVAL;
		return NULL;
	}
	if (nic->srq_count >= VB_MAX_SRQ) {
		errno = ENOMEM;
		return NULL;
	}
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;
	if (vb_rq_init_in(&srq->rq, max_wr, max_sge, room) < 0) {
		free(srq);
		errno = ENOMEM;
		return NULL;
	}
	srq->nic = nic;
	srq->pd = pd;
	srq->user = user;
	srq->limit = limit;
	vb_list_init(&srq->qps);
	nic->srq_count++;
	pd->users++;
	return srq;
}

int vb_srq_destroy(struct vb_srq *srq)
{
	if (!srq)
		return 0;
	if (srq->users)
		return -EBUSY;
	vb_tm_finish(srq);
	vb_xrc_forget_srq(srq);
	vb_rq_finish(&srq->rq);
	srq->nic->srq_count--;
	srq->pd->users--;
	free(srq);
	return 0;
}

int vb_srq_post(struct vb_srq *srq, const struct vb_recv_wr *wr)
{
	return vb_rq_post(&srq->rq, wr);
}

int vb_srq_set_limit(struct vb_srq *srq, uint32_t limit)
{
	if (limit > srq->rq.max_wr)
		return -EINVAL;
	srq->limit = limit;
	return 0;
}

int vb_srq_resize(struct vb_srq *srq, uint32_t max_wr)
{
	return vb_srq_resize_in(srq, max_wr, NULL);
}

int vb_srq_resize_in(struct vb_srq *srq, uint32_t max_wr, void *room)
{
	struct vb_rq *old = &srq->rq;
	uint32_t count = vb_rq_count(old);
	struct vb_rq new;

	if (!max_wr || max_wr > VB_MAX_SRQ_WR || max_wr < count || max_wr < srq->limit)
		return -EINVAL;
	if (vb_rq_init_in(&new, max_wr, old->max_sge, room) < 0)
		return -ENOMEM;
	while (vb_rq_take(old, &new.ring[new.head]))
		new.head++;
	vb_rq_finish(old);
	*old = new;
	return 0;
}

/* The event says once that the queue ran low; the program arms it again (IBTA 10.2.9.1). */
static void check_limit(struct vb_srq *srq)
{
	if (!srq->limit || vb_rq_count(&srq->rq) >= srq->limit)
		return;
	srq->limit = 0;
	vb_nic_raise(srq->nic, VB_EVENT_SRQ_LIMIT_REACHED, NULL, NULL, srq);
}

bool vb_qp_take_recv(struct vb_qp *qp)
{
	struct vb_srq *srq = vb_qp_srq(qp);

	VB_ASSERT(!qp->resp.recv_held);
	qp->resp.recv.sges = qp->recv_sges;
	if (!vb_rq_take(srq ? &srq->rq : &qp->rq, &qp->resp.recv))
		return false;
	qp->resp.recv_held = true;
	if (srq)
		check_limit(srq);
	return true;
}
