/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rc_answers.c - what the responder of a reliable connection says (IBTA 9.7.5): rc_responder.c
 * judged the requests.
 *
 * Answers leave in PSN order: READ responses, atomic results and what answers FLUSH and ATOMIC
 * WRITE from the ring `replies`, and behind them at most one acknowledgement, since a later ACK
 * says what an earlier one said.
 *
 *      reply_head - 16 ... reply_next ............ reply_head
 *         answered, kept    | to be answered |         free
 *         for duplicates      from reply_psn on
 */
#include <errno.h>

#include "core/demand.h"
#include "core/tally.h"
#include "core/transport.h"
#include "core/xrc.h"

void vb_rc_next_reply(struct vb_responder *resp)
{
	const struct vb_reply *reply;

	resp->reply_next++;
	if ((int32_t)(resp->reply_next - resp->reply_done) > 0)
		resp->reply_done = resp->reply_next;
	reply = &resp->replies[resp->reply_next % VB_MAX_RD_ATOMIC];
	resp->reply_psn = reply->psn;
	resp->reply_first_psn = reply->psn;
}

static int send_answer(struct vb_qp *qp, struct vb_headers *h, const struct iovec *payload,
		       uint32_t bytes)
{
	const struct vb_tx tx = {
		.headers = h,
		.payload = payload,
		.payload_parts = bytes > 0,
		.payload_bytes = bytes,
	};
	int r;

	h->pkey = VB_DEFAULT_PKEY;
	h->qpn = qp->attr.dest_qpn;
	h->pad = (uint8_t)(-bytes & 3);
	r = qp->nic->ops.tx(qp->nic->env, &qp->path, &tx);
	if (r == -EAGAIN)
		vb_nic_block(qp->nic, qp);
	else if (r < 0)
		qp->nic->counters.tx_dropped++;
	else
		qp->nic->counters.tx_packets++;
	return r;
}

static bool send_atomic_result(struct vb_qp *qp, const struct vb_reply *reply)
{
	struct vb_headers h = {
		.opcode = vb_opcode(vb_qp_transport(qp), VB_OP_ATOMIC_ACK),
		.psn = reply->psn,
		.aeth = {.syndrome = VB_AETH_ACK_NO_CREDIT, .msn = reply->msn},
		.atomic_ack = reply->result,
	};

	return send_answer(qp, &h, NULL, 0) != -EAGAIN;
}

/* send_placement_done - the answer to FLUSH and ATOMIC WRITE. */
static bool send_placement_done(struct vb_qp *qp, const struct vb_reply *reply)
{
	struct vb_headers h = {
		.opcode = vb_opcode(vb_qp_transport(qp), VB_OP_READ_RESPONSE_ONLY),
		.psn = reply->psn,
		.aeth = {.syndrome = VB_AETH_ACK_NO_CREDIT, .msn = reply->msn},
	};

	return send_answer(qp, &h, NULL, 0) != -EAGAIN;
}

static enum vb_operation read_operation(bool first, bool last)
{
	if (first)
		return last ? VB_OP_READ_RESPONSE_ONLY : VB_OP_READ_RESPONSE_FIRST;
	return last ? VB_OP_READ_RESPONSE_LAST : VB_OP_READ_RESPONSE_MIDDLE;
}

/* fail_read - the region went away while its READ was being answered: the NAK takes the answer's
 * place. */
static void fail_read(struct vb_qp *qp, struct vb_reason *reason)
{
	struct vb_responder *resp = &qp->resp;
	const struct vb_reason about = vb_qp_reason(qp, reason->check);

	reason->qpn = about.qpn;
	reason->peer_qpn = about.peer_qpn;
	reason->peer = about.peer;
	resp->reply_next = resp->reply_done = resp->reply_head;
	resp->ack_pending = false;
	vb_rc_nak(qp, VB_NAK_REMOTE_ACCESS, resp->reply_psn);
	resp->last_words = true;
	vb_count(qp, VB_COUNTED_REMOTE_READ, false, 0);
	vb_qp_fail_recv(qp, VB_WC_WR_FLUSH_ERR, reason, VB_EVENT_QP_ACCESS_ERR);
}

/* read_from - the bytes of the answer's next packet, good until the next call. NULL: reason holds
 * why. */
static uint8_t *read_from(const struct vb_qp *qp, const struct vb_reply *reply, uint64_t va,
			  uint32_t bytes, struct vb_reason *reason)
{
	const struct vb_pd *pd = qp->pd;
	struct vb_nic *nic = qp->nic;
	uint8_t *from;

	if (qp->xrcd) {
		/* The SRQ that it was asked for by, unless that is gone. */
		const struct vb_srq *srq = vb_xrc_find_srq(qp->xrcd, reply->srqn);

		if (!srq) {
			reason->check = VB_CHECK_XRC_SRQ;
			reason->value[0] = reply->srqn;
			return NULL;
		}
		pd = srq->pd;
	}
	from = vb_mr_remote(nic, pd, qp->qpn, reply->rkey, va, bytes, VB_ACCESS_REMOTE_READ,
			    reason);
	if (!from || bytes == 0 || !vb_is_on_demand(nic, reply->rkey))
		return from;
	if (vb_demand_read(nic, nic->bounce, from, bytes))
		return nic->bounce;
	reason->check = VB_CHECK_RKEY_ABSENT;
	reason->value[0] = reply->rkey;
	reason->value[1] = va;
	reason->value[2] = bytes;
	return NULL;
}

/* send_read_response - one packet of the answer. False: it could not go (no room, or the QP
 * failed). */
static bool send_read_response(struct vb_qp *qp, const struct vb_reply *reply)
{
	struct vb_responder *resp = &qp->resp;
	const uint32_t index = (resp->reply_psn - reply->psn) & VB_PSN_MASK;
	const bool last = index == reply->packets - 1;
	const uint32_t offset = index * qp->mtu;
	const uint32_t bytes = last ? reply->length - offset : qp->mtu;
	struct vb_reason reason = {0};
	uint8_t *from = read_from(qp, reply, reply->va + offset, bytes, &reason);
	const struct iovec iov = {from, bytes};
	struct vb_headers h = {
		.opcode = vb_opcode(vb_qp_transport(qp),
				    read_operation(resp->reply_psn == resp->reply_first_psn, last)),
		.psn = resp->reply_psn,
		.aeth = {.syndrome = VB_AETH_ACK_NO_CREDIT, .msn = reply->msn},
	};

	if (!from) {
		fail_read(qp, &reason);
		return false;
	}
	if (send_answer(qp, &h, &iov, bytes) == -EAGAIN)
		return false;
	resp->reply_psn = vb_psn_add(resp->reply_psn, 1);
	return true;
}

/* middles - packets of the answer that may go now, are neither its first nor its last, and lie in
 * ordinary memory, at *from. 0: something is not so simple. */
static uint32_t middles(const struct vb_qp *qp, const struct vb_reply *reply, uint32_t budget,
			const uint8_t **from)
{
	const struct vb_responder *resp = &qp->resp;
	const uint32_t index = (resp->reply_psn - reply->psn) & VB_PSN_MASK;
	struct vb_reason reason = {0};
	uint32_t n;

	if (qp->type != VB_QPT_RC || reply->operation != VB_OP_READ_REQUEST ||
	    resp->reply_psn == resp->reply_first_psn || index + 1 >= reply->packets)
		return 0;
	n = VB_MIN(budget, reply->packets - 1 - index);
	*from = vb_mr_remote(qp->nic, qp->pd, qp->qpn, reply->rkey, reply->va + index * qp->mtu,
			     (uint64_t)n * qp->mtu, VB_ACCESS_REMOTE_READ, &reason);
	return *from && !vb_is_on_demand(qp->nic, reply->rkey) ? n : 0;
}

/* send_middles - what send_read_response() does with each of them. */
static bool send_middles(struct vb_qp *qp, uint32_t n, const uint8_t *from)
{
	struct vb_headers h = {
		.opcode = vb_opcode(VB_TRANSPORT_RC, VB_OP_READ_RESPONSE_MIDDLE),
	};

	for (uint32_t i = 0; i < n; i++) {
		const struct iovec iov = {(void *)(uintptr_t)(from + i * qp->mtu), qp->mtu};

		h.psn = qp->resp.reply_psn;
		if (send_answer(qp, &h, &iov, qp->mtu) == -EAGAIN)
			return false;
		qp->resp.reply_psn = vb_psn_add(qp->resp.reply_psn, 1);
	}
	return true;
}

static bool send_one_acknowledgement(struct vb_qp *qp, uint8_t syndrome, uint32_t psn)
{
	struct vb_headers h = {
		.opcode = vb_opcode(vb_qp_transport(qp), VB_OP_ACK),
		.psn = psn,
		.aeth = {.syndrome = syndrome, .msn = qp->resp.msn},
	};

	return send_answer(qp, &h, NULL, 0) != -EAGAIN;
}

/* send_acknowledgement - a sequence NAK acknowledges what came before it. Yet between two of them
 * an ACK goes ahead of the second when it says something new: Linux's Soft-RoCE, once it has gone
 * back, heeds no NAK before an ACK or its timeout. */
static void send_acknowledgement(struct vb_qp *qp)
{
	struct vb_responder *resp = &qp->resp;
	const bool gap = resp->ack_syndrome == vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);

	if (gap && resp->gap_told && resp->unacknowledged &&
	    !send_one_acknowledgement(qp, VB_AETH_ACK_NO_CREDIT,
				      vb_psn_add(resp->ack_psn, VB_PSN_MASK)))
		return;
	resp->unacknowledged = false;
	if (!send_one_acknowledgement(qp, resp->ack_syndrome, resp->ack_psn))
		return;
	resp->gap_told = gap;
	resp->ack_pending = resp->last_words = false;
}

/* send_reply - False: it could not go (no room, or the QP failed). */
static bool send_reply(struct vb_qp *qp, const struct vb_reply *reply)
{
	struct vb_responder *resp = &qp->resp;

	switch (reply->operation) {
	case VB_OP_READ_REQUEST:
		if (!send_read_response(qp, reply))
			return false;
		if (resp->reply_psn != vb_psn_add(reply->psn, reply->packets))
			return true;
		if ((int32_t)(resp->reply_next - resp->reply_done) >= 0) /* not repeated */
			vb_count(qp, VB_COUNTED_REMOTE_READ, true, reply->length);
		break;
	case VB_OP_FLUSH:
	case VB_OP_ATOMIC_WRITE:
		if (!send_placement_done(qp, reply))
			return false;
		break;
	default:
		if (!send_atomic_result(qp, reply))
			return false;
	}
	vb_rc_next_reply(resp);
	return true;
}

bool vb_rc_owes_ack_alone(const struct vb_qp *qp)
{
	const struct vb_responder *resp = &qp->resp;

	return resp->ack_pending && vb_aeth_kind(resp->ack_syndrome) == VB_AETH_ACK &&
	       resp->reply_next == resp->reply_head && !qp->blocked;
}

/* turn_now - packets that may go in this turn: whole trains, and what begins or ends an answer,
 * which is longer and belongs to none. */
static uint32_t turn_now(const struct vb_qp *qp)
{
	const struct vb_responder *resp = &qp->resp;
	const struct vb_reply *reply = &resp->replies[resp->reply_next % VB_MAX_RD_ATOMIC];
	const uint32_t index = (resp->reply_psn - reply->psn) & VB_PSN_MASK;
	const bool first = resp->reply_psn == resp->reply_first_psn;
	const uint32_t turn = vb_turn(qp) + (first ? 2 : 0);

	return index + turn + 1 == reply->packets ? turn + 1 : turn;
}

bool vb_rc_responder_run(struct vb_qp *qp)
{
	struct vb_responder *resp = &qp->resp;
	uint32_t budget;

	if (qp->blocked || (qp->state == VB_QPS_ERR && !resp->last_words))
		return false;
	budget = resp->reply_next != resp->reply_head ? turn_now(qp) : 0;
	while (resp->reply_next != resp->reply_head && budget > 0) {
		const struct vb_reply *reply = &resp->replies[resp->reply_next % VB_MAX_RD_ATOMIC];
		const uint8_t *from;
		const uint32_t n = middles(qp, reply, budget, &from);

		if (n > 0 ? !send_middles(qp, n, from) : !send_reply(qp, reply))
			return false;
		budget -= VB_MAX(1u, n);
	}
	if (resp->reply_next != resp->reply_head)
		return true;
	if (resp->ack_pending)
		send_acknowledgement(qp);
	return false;
}
