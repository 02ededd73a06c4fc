/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * flush.c - how requests complete, and what an error does to the rest.
 *
 * Every posted request completes once, in order, with its own wr_id: the first that fails with the
 * cause, those behind it with WR_FLUSH_ERR (IBTA 10.3.1.5, 11.6.2). The reason is kept with the QP
 * (the first one) and goes into the completion.
 */
#include "core/tally.h"
#include "core/transport.h"

struct vb_reason vb_qp_reason(const struct vb_qp *qp, enum vb_check check)
{
	return (struct vb_reason){
		.check = check,
		.qpn = qp->qpn,
		.peer_qpn = qp->type == VB_QPT_UD ? 0 : qp->attr.dest_qpn,
		.peer = qp->path.dgid,
	};
}

static void remember_reason(struct vb_qp *qp, const struct vb_reason *reason)
{
	if (reason && qp->reason.check == VB_CHECK_NONE)
		qp->reason = *reason;
}

static const uint8_t wc_opcode[] = {
	[VB_WR_RDMA_WRITE] = VB_WC_RDMA_WRITE,
	[VB_WR_RDMA_WRITE_WITH_IMM] = VB_WC_RDMA_WRITE,
	[VB_WR_SEND] = VB_WC_SEND,
	[VB_WR_SEND_WITH_IMM] = VB_WC_SEND,
	[VB_WR_RDMA_READ] = VB_WC_RDMA_READ,
	[VB_WR_ATOMIC_CMP_AND_SWP] = VB_WC_COMP_SWAP,
	[VB_WR_ATOMIC_FETCH_AND_ADD] = VB_WC_FETCH_ADD,
	[VB_WR_LOCAL_INV] = VB_WC_LOCAL_INV,
	[VB_WR_BIND_MW] = VB_WC_BIND_MW,
	[VB_WR_SEND_WITH_INV] = VB_WC_SEND,
	[VB_WR_FLUSH] = VB_WC_FLUSH,
	[VB_WR_ATOMIC_WRITE] = VB_WC_ATOMIC_WRITE,
	[VB_WR_TSO] = VB_WC_TSO,
};

void vb_qp_complete_send(struct vb_qp *qp, enum vb_status status, const struct vb_reason *reason)
{
	struct vb_send_wqe *w = vb_qp_wqe(qp, qp->sq_una);
	struct vb_ah *ah = w->ah;

	VB_ASSERT(qp->sq_una != qp->sq_head);
	if (qp->sq_next == qp->sq_una)
		qp->sq_next++;
	if (qp->req.sq_assigned == qp->sq_una)
		qp->req.sq_assigned++;
	qp->sq_una++;
	if (w->own) {
		qp->sq_free = qp->sq_una;
		vb_tm_sent(qp, w, status, reason);
		return;
	}
	w->ah = NULL;
	vb_count_sent(qp, (enum vb_wr_opcode)w->opcode, status == VB_WC_SUCCESS, w->length);
	/* The last look at w: once the completion is there, the place may be posted to again. */
	if (status != VB_WC_SUCCESS || (w->flags & VB_SEND_SIGNALED)) {
		const struct vb_cqe cqe = {
			.wr_id = w->wr_id,
			.qp = qp,
			.qpn = qp->qpn,
			.byte_len = w->length,
			.sq_slots_until = qp->sq_una,
			.vendor_err = reason ? (uint16_t)reason->check : VB_CHECK_NONE,
			.status = (uint8_t)status,
			.opcode = wc_opcode[w->opcode],
			.is_send = true,
			.time_ns = qp->nic->now_ns,
		};
		vb_cq_push(qp->send_cq, &cqe, reason);
	}
	vb_ah_put(ah);
}

void vb_qp_push_recv(struct vb_qp *qp, const struct vb_recv_wqe *recv, const struct vb_cqe *facts,
		     const struct vb_reason *reason)
{
	struct vb_cqe cqe = *facts;

	cqe.wr_id = recv->wr_id;
	cqe.qp = qp;
	cqe.qpn = qp->qpn;
	cqe.vendor_err = reason ? (uint16_t)reason->check : VB_CHECK_NONE;
	cqe.time_ns = qp->nic->now_ns;
	vb_count(qp, VB_COUNTED_RECV, cqe.status == VB_WC_SUCCESS, cqe.byte_len);
	vb_cq_push(vb_qp_recv_cq(qp), &cqe, reason);
}

static void complete_recv(struct vb_qp *qp, enum vb_wc_opcode opcode, uint32_t byte_len,
			  const struct vb_headers *h, uint8_t sl)
{
	bool with_imm = vb_opcode_table[h->opcode].flags & VB_HAS_IMM;
	bool with_inv = vb_opcode_table[h->opcode].flags & VB_HAS_IETH;
	const struct vb_cqe facts = {
		.src_qpn = qp->type == VB_QPT_UD ? h->deth.src_qpn : qp->attr.dest_qpn,
		.byte_len = byte_len,
		.imm = with_imm	  ? h->imm
		       : with_inv ? h->invalidate_rkey
				  : 0,
		.status = VB_WC_SUCCESS,
		.opcode = (uint8_t)opcode,
		.wc_flags = (uint8_t)((with_imm ? VB_WC_WITH_IMM : 0) |
				      (with_inv ? VB_WC_WITH_INV : 0) |
				      (qp->type == VB_QPT_UD ? VB_WC_GRH : 0)),
		.sl = sl,
		.solicited = h->solicited,
	};

	VB_ASSERT(qp->resp.recv_held);
	qp->resp.recv_held = false;
	vb_qp_push_recv(qp, &qp->resp.recv, &facts, NULL);
}

void vb_qp_complete_recv(struct vb_qp *qp, enum vb_wc_opcode opcode, uint32_t byte_len,
			 const struct vb_headers *h)
{
	complete_recv(qp, opcode, byte_len, h, 0);
}

void vb_qp_complete_datagram(struct vb_qp *qp, uint32_t byte_len, const struct vb_headers *h,
			     const struct vb_rx *rx)
{
	complete_recv(qp, VB_WC_RECV, byte_len, h,
		      IN6_IS_ADDR_V4MAPPED(&rx->src) ? VB_WC_SL_IPV4 : VB_WC_SL_IPV6);
}

static void fail_held_recv(struct vb_qp *qp, enum vb_status status, const struct vb_reason *reason)
{
	const struct vb_cqe facts = {.status = (uint8_t)status, .opcode = VB_WC_RECV};

	qp->resp.recv_held = false;
	vb_qp_push_recv(qp, &qp->resp.recv, &facts, reason);
}

void vb_qp_fail_send(struct vb_qp *qp, enum vb_status status, const struct vb_reason *reason)
{
	remember_reason(qp, reason);
	vb_qp_complete_send(qp, status, reason);
	/* IBTA 10.3.1.6: for UC and UD a failed send stops the send queue only. */
	vb_qp_set_state(qp, vb_qp_is_reliable(qp) ? VB_QPS_ERR : VB_QPS_SQE);
}

void vb_qp_fail_recv(struct vb_qp *qp, enum vb_status status, const struct vb_reason *reason,
		     enum vb_event_type event)
{
	remember_reason(qp, reason);
	if (qp->resp.recv_held)
		fail_held_recv(qp, status, reason);
	if (!qp->fatal_raised) {
		qp->fatal_raised = true;
		vb_nic_raise(qp->nic, event, qp, NULL, NULL);
	}
	vb_qp_set_state(qp, VB_QPS_ERR);
}

void vb_qp_flush_sends(struct vb_qp *qp)
{
	const struct vb_reason flushed = vb_qp_reason(qp, VB_CHECK_FLUSHED);

	while (qp->sq_una != qp->sq_head)
		vb_qp_complete_send(qp, VB_WC_WR_FLUSH_ERR, &flushed);
	qp->req.wait_until_ns = 0;
	vb_requester_await(qp, 0);
	qp->req.una_psn = qp->req.nxt_psn = qp->req.end_psn;
	qp->req.rd_outstanding = 0;
}

void vb_qp_flush(struct vb_qp *qp)
{
	const struct vb_reason flushed = vb_qp_reason(qp, VB_CHECK_FLUSHED);
	const struct vb_cqe facts = {.status = VB_WC_WR_FLUSH_ERR, .opcode = VB_WC_RECV};

	vb_qp_flush_sends(qp);
	if (qp->resp.recv_held)
		fail_held_recv(qp, VB_WC_WR_FLUSH_ERR, &flushed);
	while (!qp->srq && vb_rq_take(&qp->rq, &qp->resp.recv))
		vb_qp_push_recv(qp, &qp->resp.recv, &facts, &flushed);
	qp->resp.message = VB_MSG_NONE;
	if (!qp->resp.last_words) {
		qp->resp.ack_pending = false;
		qp->resp.reply_next = qp->resp.reply_done = qp->resp.reply_head;
	}
}

void vb_qp_forget(struct vb_qp *qp)
{
	for (uint32_t i = qp->sq_una; i != qp->sq_head; i++) {
		struct vb_send_wqe *w = vb_qp_wqe(qp, i);

		vb_ah_put(w->ah);
		w->ah = NULL;
	}
	qp->sq_free = qp->sq_una = qp->sq_next = qp->sq_head = qp->sq_posted = 0;
	vb_rq_reset(&qp->rq);
	vb_requester_await(qp, 0);
	qp->watch = (struct vb_watch){0};
	qp->resp.recv_held = false;
	if (qp->send_cq)
		vb_cq_forget_qp(qp->send_cq, qp);
	if (qp->recv_cq && qp->recv_cq != qp->send_cq)
		vb_cq_forget_qp(qp->recv_cq, qp);
	if (qp->srq && qp->srq->cq)
		vb_cq_forget_qp(qp->srq->cq, qp);
	vb_list_remove(&qp->ready_link);
	qp->blocked = false;
}
