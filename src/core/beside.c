/* SPDX-License-Identifier: BSD-2-Clause */
/* beside.c - see beside.h; posting a send is in post.c, beside the other way to do it. */
#include "core/beside.h"

#include <errno.h>

#include "core/transport.h"

int vb_qp_post_recv_beside(struct vb_qp *qp, const struct vb_recv_wr *wr)
{
	if (vb_qp_state(qp) == VB_QPS_RESET || qp->srq || qp->type == VB_QPT_XRC_SEND)
		return -EINVAL;
	return vb_rq_post(&qp->rq, wr);
}

/* Whether the QP is in the chain, or about to be, is one word that both sides exchange. Found true,
 * whoever answers will exchange it later than we, and so read what was posted before we did. */
void vb_qp_ring(struct vb_qp *qp)
{
	struct vb_nic *nic = qp->nic;
	struct vb_qp *first;

	if (__atomic_exchange_n(&qp->rung, true, __ATOMIC_SEQ_CST))
		return;
	first = __atomic_load_n(&nic->rung, __ATOMIC_RELAXED);
	do {
		qp->next_rung = first;
	} while (!__atomic_compare_exchange_n(&nic->rung, &first, qp, true, __ATOMIC_SEQ_CST,
					      __ATOMIC_RELAXED));
}

/* The references that the requests hold, which the posting thread did not count: others count
 * theirs of the same address handle. */
static void hold_addresses(const struct vb_qp *qp, uint32_t from, uint32_t to)
{
	if (qp->type != VB_QPT_UD)
		return;
	for (uint32_t i = from; i != to; i++)
		vb_ah_get(vb_qp_wqe(qp, i)->ah);
}

void vb_qp_take_posted(struct vb_qp *qp)
{
	const uint32_t posted = __atomic_load_n(&qp->sq_posted, __ATOMIC_ACQUIRE);

	hold_addresses(qp, qp->sq_head, posted);
	if (posted != qp->sq_head)
		vb_nic_make_ready(qp->nic, qp);
	qp->sq_head = posted;
	if (qp->state == VB_QPS_ERR)
		vb_qp_flush(qp);
	else if (qp->state == VB_QPS_SQE)
		vb_qp_flush_sends(qp);
	vb_qp_settle(qp);
}

void vb_nic_answer(struct vb_nic *nic)
{
	struct vb_qp *qp = __atomic_exchange_n(&nic->rung, NULL, __ATOMIC_SEQ_CST);

	while (qp) {
		struct vb_qp *next = qp->next_rung; /* rung again, it has another one */

		(void)__atomic_exchange_n(&qp->rung, false, __ATOMIC_SEQ_CST);
		vb_qp_take_posted(qp);
		qp = next;
	}
}
