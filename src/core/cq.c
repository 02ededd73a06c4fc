/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cq.c - completion queues (IBTA 11.2.8, 11.4.2): a ring, one notification, one error.
 *
 *      tail            head
 *        | not polled yet |  free: capacity - (head - tail)
 *
 * A program takes an event, polls, arms, and waits for the next event. What came between its poll
 * and the arming would never be told, were the event for completions after the arming alone; the
 * adapters that programs are written on look at what is inside as well (their doorbell says how far
 * the program has polled). So does vb_cq_arm, unless the program has an event that it did not poll
 * for yet: it is going to, and those who arm before they poll do not get a second one for the same
 * completions.
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
#include "core/room.h"

static bool is_size(uint32_t entries)
{
	return entries && entries <= VB_MAX_CQE;
}

size_t vb_cq_room(uint32_t entries)
{
	if (!is_size(entries))
		return 0;
	return vb_room_bytes((size_t)vb_ring_mask(entries) + 1, sizeof(struct vb_cqe));
}

struct vb_cq *vb_cq_create_in(struct vb_nic *nic, uint32_t entries, void *user, void *room)
{
	struct vb_cq *cq;

	if (!is_size(entries)) {
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
	cq->given = room != NULL;
	cq->mask = vb_ring_mask(entries);
	cq->ring = vb_room_take(&room, (size_t)cq->mask + 1, sizeof(*cq->ring));
	if (!cq->ring) {
		free(cq);
		errno = ENOMEM;
		return NULL;
	}
	cq->nic = nic;
	cq->user = user;
	cq->capacity = entries;
	vb_list_init(&cq->moderated);
	nic->cq_count++;
	return cq;
}

struct vb_cq *vb_cq_create(struct vb_nic *nic, uint32_t entries, void *user)
{
	return vb_cq_create_in(nic, entries, user, NULL);
}

static void free_ring(struct vb_cq *cq)
{
	if (!cq->given)
		free(cq->ring);
}

int vb_cq_destroy(struct vb_cq *cq)
{
	if (!cq)
		return 0;
	if (cq->users)
		return -EBUSY;
	vb_list_remove(&cq->moderated);
	cq->nic->cq_count--;
	free_ring(cq);
	free(cq);
	return 0;
}

int vb_cq_resize_in(struct vb_cq *cq, uint32_t entries, void *room)
{
	uint32_t count = vb_cq_count(cq);
	uint32_t mask = vb_ring_mask(entries);
	bool given = room != NULL;
	struct vb_cqe *ring;

	if (!is_size(entries) || entries < count)
		return -EINVAL;
	ring = vb_room_take(&room, (size_t)mask + 1, sizeof(*ring));
	if (!ring)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		ring[i] = cq->ring[(cq->tail + i) & cq->mask];
	free_ring(cq);
	cq->ring = ring;
	cq->given = given;
	cq->mask = mask;
	cq->capacity = entries;
	cq->tail = 0;
	cq->head = count;
	return 0;
}

int vb_cq_resize(struct vb_cq *cq, uint32_t entries)
{
	return vb_cq_resize_in(cq, entries, NULL);
}

/* The slots of the send queue up to the completed request are free. */
static void give_slots_back(const struct vb_cqe *cqe)
{
	if (cqe->is_send && cqe->qp)
		__atomic_store_n(&cqe->qp->sq_free, cqe->sq_slots_until, __ATOMIC_RELEASE);
}

int vb_cq_poll(struct vb_cq *cq, struct vb_cqe *out, int n)
{
	const uint32_t head = __atomic_load_n(&cq->head, __ATOMIC_ACQUIRE);
	uint32_t tail = cq->tail;
	int taken = 0;

	if (__atomic_load_n(&cq->told, __ATOMIC_RELAXED))
		__atomic_store_n(&cq->told, false, __ATOMIC_RELAXED);
	while (taken < n && tail != head) {
		const struct vb_cqe *cqe = &cq->ring[tail & cq->mask];

		give_slots_back(cqe);
		out[taken++] = *cqe;
		tail++;
	}
	__atomic_store_n(&cq->tail, tail, __ATOMIC_RELEASE);
	return taken;
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

static void raise_event(struct vb_cq *cq)
{
	cq->arm = VB_CQ_NOT_ARMED;
	__atomic_store_n(&cq->told, true, __ATOMIC_RELAXED);
	cq->held_back = 0;
	vb_list_remove(&cq->moderated);
	cq->nic->ops.cq_event(cq->nic->env, cq);
}

/* One that waits longer does so until the earliest of all is due: see vb_cq_run_moderated. */
static void hold_back(struct vb_cq *cq)
{
	struct vb_nic *nic = cq->nic;

	if (!cq->event_period_ns || vb_list_is_linked(&cq->moderated))
		return;
	cq->event_due_ns = nic->now_ns + cq->event_period_ns;
	if (vb_list_is_empty(&nic->moderated) || cq->event_due_ns < nic->moderated_due_ns)
		nic->moderated_due_ns = cq->event_due_ns;
	vb_list_append(&nic->moderated, &cq->moderated);
}

static bool has_enough(const struct vb_cq *cq)
{
	if (cq->event_count)
		return cq->held_back >= cq->event_count;
	return !cq->event_period_ns;
}

/* Completions that count towards the event were added, or found inside. */
static void tell(struct vb_cq *cq)
{
	if (has_enough(cq))
		raise_event(cq);
	else
		hold_back(cq);
}

static bool is_wanted(const struct vb_cq *cq, const struct vb_cqe *cqe)
{
	switch (cq->arm) {
	case VB_CQ_NOT_ARMED:
		break;
	case VB_CQ_ARMED_SOLICITED:
		return cqe->solicited || cqe->status != VB_WC_SUCCESS;
	case VB_CQ_ARMED:
		return true;
	}
	return false;
}

void vb_cq_notify(struct vb_cq *cq, const struct vb_cqe *cqe)
{
	if (!is_wanted(cq, cqe))
		return;
	cq->held_back++;
	tell(cq);
}

/* What is inside counts as if it came now. Some of it may have been counted already. */
static void catch_up(struct vb_cq *cq)
{
	uint32_t inside = 0;

	for (uint32_t i = cq->tail; i != cq->head; i++)
		inside += is_wanted(cq, &cq->ring[i & cq->mask]);
	if (inside == 0)
		return;
	cq->held_back = VB_MAX(cq->held_back, inside);
	tell(cq);
}

void vb_cq_arm(struct vb_cq *cq, bool solicited_only)
{
	enum vb_cq_arm arm = solicited_only ? VB_CQ_ARMED_SOLICITED : VB_CQ_ARMED;

	/* The wider request stands until its event (IBTA 11.4.2.2). */
	if (arm > cq->arm)
		cq->arm = arm;
	if (!__atomic_load_n(&cq->told, __ATOMIC_RELAXED))
		catch_up(cq);
}

void vb_cq_moderate(struct vb_cq *cq, uint32_t count, uint64_t period_ns)
{
	cq->event_count = count;
	cq->event_period_ns = period_ns;
	vb_list_remove(&cq->moderated);
	if (cq->held_back)
		tell(cq);
}

void vb_cq_run_moderated(struct vb_nic *nic, uint64_t now_ns)
{
	uint64_t next_ns = VB_NEVER;
	struct vb_list *link, *tmp;

	vb_list_for_each(link, tmp, &nic->moderated)
	{
		struct vb_cq *cq = vb_list_entry(link, struct vb_cq, moderated);

		if (cq->event_due_ns <= now_ns)
			raise_event(cq);
		else
			next_ns = VB_MIN(next_ns, cq->event_due_ns);
	}
	nic->moderated_due_ns = next_ns;
}

void vb_cq_push(struct vb_cq *cq, const struct vb_cqe *cqe, const struct vb_reason *reason)
{
	struct vb_cqe *slot;

	if (cq->overwrites && vb_cq_count(cq) >= cq->capacity) {
		give_slots_back(&cq->ring[cq->tail & cq->mask]);
		cq->tail++;
	}
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
	vb_cq_add(cq, cqe);
}

/* Those of qp or, where it is NULL, those that no QP has, of the work queue with this number. */
static void forget(struct vb_cq *cq, const struct vb_qp *qp, uint32_t wq)
{
	uint32_t to = cq->tail;

	for (uint32_t from = cq->tail; from != cq->head; from++) {
		const struct vb_cqe *cqe = &cq->ring[from & cq->mask];

		if (cqe->qp == qp && (qp || cqe->qpn == wq))
			continue;
		if (to != from)
			cq->ring[to & cq->mask] = *cqe;
		to++;
	}
	cq->head = to;
}

void vb_cq_forget_qp(struct vb_cq *cq, const struct vb_qp *qp)
{
	forget(cq, qp, 0);
}

void vb_cq_forget_wq(struct vb_cq *cq, uint32_t number)
{
	forget(cq, NULL, number);
}
