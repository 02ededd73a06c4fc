/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * timers.c - the NIC's deadlines: one binary heap of queue pairs.
 *
 * A QP's key is never later than its real deadline, and only an earlier deadline moves it: sending
 * and acknowledging, which push the deadline out again and again, cost a compare. When the key
 * comes due the real deadline is looked at, and the QP goes back in if it lies ahead.
 */
#include "core/timers.h"

static void put(struct vb_nic *nic, uint32_t index, struct vb_qp *qp)
{
	nic->timers[index] = qp;
	qp->timer_index = index;
}

static void sift_up(struct vb_nic *nic, uint32_t index)
{
	struct vb_qp *qp = nic->timers[index];

	while (index > 0) {
		uint32_t parent = (index - 1) / 2;

		if (nic->timers[parent]->timer_ns <= qp->timer_ns)
			break;
		put(nic, index, nic->timers[parent]);
		index = parent;
	}
	put(nic, index, qp);
}

static void sift_down(struct vb_nic *nic, uint32_t index)
{
	struct vb_qp *qp = nic->timers[index];

	for (;;) {
		uint32_t child = 2 * index + 1;

		if (child >= nic->timer_count)
			break;
		if (child + 1 < nic->timer_count &&
		    nic->timers[child + 1]->timer_ns < nic->timers[child]->timer_ns)
			child++;
		if (nic->timers[child]->timer_ns >= qp->timer_ns)
			break;
		put(nic, index, nic->timers[child]);
		index = child;
	}
	put(nic, index, qp);
}

void vb_nic_arm_timer(struct vb_nic *nic, struct vb_qp *qp, uint64_t deadline_ns)
{
	if (deadline_ns == VB_NEVER)
		return;
	if (qp->timer_index == VB_NO_TIMER) {
		VB_ASSERT(nic->timer_count < nic->timer_room);
		qp->timer_ns = deadline_ns;
		put(nic, nic->timer_count, qp);
		sift_up(nic, nic->timer_count++);
	} else if (deadline_ns < qp->timer_ns) {
		qp->timer_ns = deadline_ns;
		sift_up(nic, qp->timer_index);
	}
}

void vb_timers_remove(struct vb_nic *nic, struct vb_qp *qp)
{
	uint32_t index = qp->timer_index;
	struct vb_qp *last;

	if (index == VB_NO_TIMER)
		return;
	qp->timer_index = VB_NO_TIMER;
	last = nic->timers[--nic->timer_count];
	if (last == qp)
		return;
	put(nic, index, last);
	sift_up(nic, index);
	sift_down(nic, last->timer_index);
}

struct vb_qp *vb_timers_pop(struct vb_nic *nic, uint64_t now_ns)
{
	struct vb_qp *qp;

	if (nic->timer_count == 0 || nic->timers[0]->timer_ns > now_ns)
		return NULL;
	qp = nic->timers[0];
	vb_timers_remove(nic, qp);
	return qp;
}
