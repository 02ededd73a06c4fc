/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cq.c - completion queues (IBTA 11.2.8, 11.4.2): a ring, one notification, one error.
 *
 *      tail            head
 *        | not polled yet |  free: capacity - (head - tail)
 *
 * Invariants: head - tail <= capacity <= mask + 1; once overrun, nothing is added any more (IBTA
 * 11.6.3.1: the CQ error is not recovered from), what is inside can still be polled.
 */
#include "core/cq.h"

#include <errno.h>
#include <stdlib.h>

#include "base/ring.h"
#include "core/limits.h"
#include "core/nic.h"
#include "core/qp.h"

struct vb_cq *vb_cq_create(struct vb_nic *nic, uint32_t entries, void *user)
{
	struct vb_cq *cq;

	if (!entries || entries > VB_MAX_CQE) {
		errno = EINVAL;
		return NULL;
	}
	if (nic->cq_count >= VB_MAX_CQ) {
		errno = ENOMEM;
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	cq->mask = vb_ring_mask(entries);
	cq->ring = calloc((size_t)cq->mask + 1, sizeof(*cq->ring));
	if (!cq->ring) {
		free(cq);
		errno = ENOMEM;
		return NULL;
	}
	cq->nic = nic;
	cq->user = user;
	cq->capacity = entries;
	nic->cq_count++;
	return cq;
}

int vb_cq_destroy(struct vb_cq *cq)
{
	if (!cq)
		return 0;
	if (cq->users)
		return -EBUSY;
	cq->nic->cq_count--;
	free(cq->ring);
	free(cq);
	return 0;
}

int vb_cq_resize(struct vb_cq *cq, uint32_t entries)
{
	uint32_t count = vb_cq_count(cq);
	uint32_t mask = vb_ring_mask(entries);
	struct vb_cqe *ring;

	if (!entries || entries > VB_MAX_CQE || entries < count)
		return -EINVAL;
	ring = calloc((size_t)mask + 1, sizeof(*ring));
	if (!ring)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		ring[i] = cq->ring[(cq->tail + i) & cq->mask];
	free(cq->ring);
	cq->ring = ring;
	cq->mask = mask;
	cq->capacity = entries;
	cq->tail = 0;
	cq->head = count;
	return 0;
}

int vb_cq_poll(struct vb_cq *cq, struct vb_cqe *out, int n)
{
	int taken = 0;

	while (taken < n && cq->tail != cq->head) {
		const struct vb_cqe *cqe = &cq->ring[cq->tail & cq->mask];

		if (cqe->is_send && cqe->qp)
			cqe->qp->sq_free = cqe->sq_slots_until;
		out[taken++] = *cqe;
		cq->tail++;
	}
	return taken;
}

void vb_cq_arm(struct vb_cq *cq, bool solicited_only)
{
	enum vb_cq_arm arm = solicited_only ? VB_CQ_ARMED_SOLICITED : VB_CQ_ARMED;

	/* The wider request stands until its event (IBTA 11.4.2.2). */
	if (arm > cq->arm)
		cq->arm = arm;
}

/* The QP lost a completion: it cannot go on. But it is in the middle of something now, sending
 * perhaps or working through an acknowledgement; vb_qp_settle() puts it into ERR at the end. */
static void overrun(struct vb_cq *cq, struct vb_qp *qp)
{
	if (!cq->overrun) {
		cq->overrun = true;
		vb_nic_raise(cq->nic, VB_EVENT_CQ_ERR, NULL, cq, NULL);
	}
	if (!qp || qp->state == VB_QPS_ERR || qp->state == VB_QPS_RESET)
		return;
	qp->cq_overran = true;
	if (qp->reason.check == VB_CHECK_NONE)
		qp->reason = (struct vb_reason){
			.check = VB_CHECK_CQ_OVERRUN,
			.qpn = qp->qpn,
			.value = {cq->capacity},
		};
}

static void notify(struct vb_cq *cq, const struct vb_cqe *cqe)
{
	bool wanted = false;

	switch (cq->arm) {
	case VB_CQ_NOT_ARMED:
		break;
	case VB_CQ_ARMED_SOLICITED:
		wanted = cqe->solicited || cqe->status != VB_WC_SUCCESS;
		break;
	case VB_CQ_ARMED:
		wanted = true;
		break;
	}
	if (!wanted)
		return;
	cq->arm = VB_CQ_NOT_ARMED;
	cq->nic->ops.cq_event(cq->nic->env, cq);
}

void vb_cq_push(struct vb_cq *cq, const struct vb_cqe *cqe, const struct vb_reason *reason)
{
	struct vb_cqe *slot;

	if (cq->overrun || vb_cq_count(cq) >= cq->capacity) {
		overrun(cq, cqe->qp);
		return;
	}
	slot = &cq->ring[cq->head & cq->mask];
	*slot = *cqe;
	slot->time_ns = cq->nic->now_ns;
	/* It is the SRQ's: it stays when the queue pair goes. */
	if (slot->qp && slot->qp->type == VB_QPT_XRC_RECV)
		slot->qp = NULL;
	if (reason) {
		slot->vendor_err = (uint16_t)reason->check;
		if (reason->check != VB_CHECK_NONE && reason->check != VB_CHECK_FLUSHED)
			cq->last_reason = *reason;
	}
	cq->head++;
	notify(cq, slot);
}

void vb_cq_forget_qp(struct vb_cq *cq, const struct vb_qp *qp)
{
	uint32_t to = cq->tail;

	for (uint32_t from = cq->tail; from != cq->head; from++) {
		const struct vb_cqe *cqe = &cq->ring[from & cq->mask];

		if (cqe->qp == qp)
			continue;
		if (to != from)
			cq->ring[to & cq->mask] = *cqe;
		to++;
	}
	cq->head = to;
}
