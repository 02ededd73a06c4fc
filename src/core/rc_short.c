/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rc_short.c - the usual short message at a reliable connection's responder.
 *
 * A SEND of one packet, with the expected PSN and between two messages, that finds a receive
 * request with room for all of it in one piece of ordinary memory, passes every check of
 * rc_responder.c's judge(), and apply() has nothing to decide. Whether a packet is of that kind is
 * one test, and it costs a third of the way through both. Whatever is not goes there, as if nobody
 * had looked.
 */
#include <string.h>

#include "core/tally.h"
#include "core/transport.h"

static inline bool is_whole_send(uint8_t opcode)
{
	return opcode == vb_opcode(VB_TRANSPORT_RC, VB_OP_SEND_ONLY) ||
	       opcode == vb_opcode(VB_TRANSPORT_RC, VB_OP_SEND_ONLY_IMM);
}

/* queue_of - where the QP's receive requests are taken from, if nothing else comes of that: no tag
 * is matched and no limit watched. */
static inline struct vb_rq *queue_of(struct vb_qp *qp)
{
	if (!qp->srq)
		return &qp->rq;
	return qp->srq->tm || qp->srq->limit ? NULL : &qp->srq->rq;
}

/* place_of - where the oldest request wants the bytes; NULL: they do not all go into its first
 * piece, or that is not what it seems. */
static inline uint8_t *place_of(const struct vb_qp *qp, const struct vb_recv_wqe *recv,
				uint32_t bytes)
{
	const struct vb_pd *pd = qp->srq ? qp->srq->pd : qp->pd;

	if (!recv || recv->num_sge == 0 || bytes > recv->sges[0].length)
		return NULL;
	return vb_ordinary_memory(qp->nic, pd, recv->sges, 0, bytes, VB_ACCESS_LOCAL_WRITE);
}

bool vb_rc_take_short(struct vb_qp *qp, const struct vb_headers *h, const uint8_t *payload,
		      uint32_t bytes)
{
	const bool imm = h->opcode == vb_opcode(VB_TRANSPORT_RC, VB_OP_SEND_ONLY_IMM);
	struct vb_responder *resp = &qp->resp;
	const struct vb_recv_wqe *recv;
	struct vb_rq *rq = queue_of(qp);
	uint8_t *to;

	/* In RTR the first packet raises an event. */
	if (!is_whole_send(h->opcode) || h->psn != resp->epsn ||
	    !(qp->state == VB_QPS_RTS || resp->comm_est) || resp->message != VB_MSG_NONE ||
	    resp->recv_held || bytes - 1 >= qp->mtu || !rq)
		return false;
	recv = vb_rq_first(rq);
	to = place_of(qp, recv, bytes);
	if (!to)
		return false;

	const struct vb_cqe cqe = {
		.wr_id = recv->wr_id,
		.qp = qp,
		.qpn = qp->qpn,
		.src_qpn = qp->attr.dest_qpn,
		.byte_len = bytes,
		.imm = imm ? h->imm : 0,
		.status = VB_WC_SUCCESS,
		.opcode = VB_WC_RECV,
		.wc_flags = imm ? VB_WC_WITH_IMM : 0,
		.solicited = h->solicited,
	};
	if (bytes == 8)
		memcpy(to, payload, 8);
	else
		memcpy(to, payload, bytes);
	vb_rq_drop_first(rq);
	vb_rc_advance(qp, h->opcode, 1);
	vb_rc_end_message(qp);
	vb_count(qp, VB_COUNTED_RECV, true, bytes);
	vb_cq_push(vb_qp_recv_cq(qp), &cqe, NULL);
	resp->unacknowledged = true;
	if (h->ack_req)
		vb_rc_acknowledge(qp, VB_AETH_ACK_NO_CREDIT, h->psn);
	return true;
}
