/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * timers.c - the NIC's deadlines: one heap of queue pairs.
 *
 * A QP's key is never later than its real deadline, and only an earlier deadline moves it: sending
 * and acknowledging, which push the deadline out again and again, cost a compare. When the key
 * comes due the real deadline is looked at, and the QP goes back in if it lies ahead.
 */
#include "core/timers.h"

void vb_nic_arm_timer(struct vb_nic *nic, struct vb_qp *qp, uint64_t deadline_ns)
{
	if (deadline_ns == VB_NEVER)
		return;
	if (!vb_heap_holds(&qp->timer) || deadline_ns < qp->timer.key)
		vb_heap_set(&nic->timers, &qp->timer, deadline_ns);
}

struct vb_qp *vb_timers_pop(struct vb_nic *nic, uint64_t now_ns)
{
	struct vb_heap_item *first = vb_heap_first(&nic->timers);

	if (!first || first->key > now_ns)
		return NULL;
	vb_heap_remove(&nic->timers, first);
	return vb_container_of(first, struct vb_qp, timer);
}
