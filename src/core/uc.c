/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * uc.c - the receiving side of an unreliable connection (IBTA 9.8.2).
 *
 * Nothing is answered. A gap, or a packet that does not fit, ends the message under way in silence;
 * the packets up to the next FIRST or ONLY are skipped, and a receive request that was taken stays
 * with the QP for the next message. A PSN that was passed already is dropped.
 */
#include "core/tally.h"
#include "core/transport.h"

static void skip_message(struct vb_qp *qp)
{
	qp->resp.message = VB_MSG_SKIP;
	qp->resp.received = 0;
}

/* in_sequence - whether the packet goes on with what came before it; False: it is to be dropped. */
static bool in_sequence(struct vb_qp *qp, const struct vb_headers *h, uint32_t flags)
{
	struct vb_responder *resp = &qp->resp;
	const int32_t ahead = vb_psn_diff(h->psn, resp->epsn);

	if (ahead < 0) {
		qp->nic->counters.rx_duplicate++;
		return false;
	}
	if (ahead > 0) {
		qp->nic->counters.rx_out_of_sequence++;
		skip_message(qp);
	}
	resp->epsn = vb_psn_add(h->psn, 1);
	if (flags & VB_IS_FIRST) {
		resp->message = flags & VB_IS_SEND ? VB_MSG_SEND : VB_MSG_WRITE;
		resp->received = 0;
		return true;
	}
	if (resp->message == VB_MSG_SKIP)
		return false;
	if (resp->message == (flags & VB_IS_SEND ? VB_MSG_SEND : VB_MSG_WRITE))
		return true;
	skip_message(qp);
	return false;
}

static bool right_size(const struct vb_qp *qp, uint32_t flags, uint32_t bytes)
{
	if (!(flags & VB_IS_LAST))
		return bytes == qp->mtu;
	return bytes <= qp->mtu && (bytes > 0 || (flags & VB_IS_FIRST));
}

static bool hold_recv(struct vb_qp *qp)
{
	if (qp->resp.recv_held || vb_qp_take_recv(qp))
		return true;
	qp->nic->counters.rx_no_receive++;
	skip_message(qp);
	return false;
}

static void on_send(struct vb_qp *qp, const struct vb_headers *h, uint32_t flags,
		    const uint8_t *payload, uint32_t bytes)
{
	struct vb_responder *resp = &qp->resp;
	struct vb_reason reason = vb_qp_reason(qp, VB_CHECK_RECV_TOO_SHORT);

	if (!hold_recv(qp))
		return;
	if (resp->received + bytes > resp->recv.length) {
		reason.value[0] = resp->received + bytes;
		reason.value[1] = resp->recv.length;
		vb_qp_fail_recv(qp, VB_WC_LOC_LEN_ERR, &reason, VB_EVENT_QP_REQ_ERR);
		return;
	}
	if (!vb_scatter_recv(qp, resp->received, payload, bytes, &reason)) {
		vb_qp_fail_recv(qp, VB_WC_LOC_PROT_ERR, &reason, VB_EVENT_QP_FATAL);
		return;
	}
	resp->received += bytes;
	if (flags & VB_IS_LAST) {
		resp->message = VB_MSG_NONE;
		vb_qp_complete_recv(qp, VB_WC_RECV, resp->received, h);
	}
}

static void on_write(struct vb_qp *qp, const struct vb_headers *h, uint32_t flags,
		     const uint8_t *payload, uint32_t bytes)
{
	struct vb_responder *resp = &qp->resp;
	struct vb_reason reason;
	uint8_t *to;

	if (flags & VB_IS_FIRST) {
		resp->va = h->reth.va;
		resp->rkey = h->reth.rkey;
		resp->write_left = resp->write_total = h->reth.length;
	}
	to = vb_mr_remote(qp->nic, qp->pd, qp->qpn, resp->rkey, resp->va,
			  flags & VB_IS_FIRST ? resp->write_left : bytes, VB_ACCESS_REMOTE_WRITE,
			  &reason);
	/* IBTA 9.8.2.2.2: a WRITE that may not be done is dropped in silence. */
	if (!(qp->attr.access_flags & VB_ACCESS_REMOTE_WRITE) || !to || bytes > resp->write_left ||
	    ((flags & VB_IS_LAST) && bytes != resp->write_left)) {
		qp->nic->counters.rx_malformed++;
		vb_count(qp, VB_COUNTED_REMOTE_WRITE, false, 0);
		skip_message(qp);
		return;
	}
	if ((flags & VB_HAS_IMM) && !hold_recv(qp))
		return;
	if (!vb_place_remote(qp->nic, resp->rkey, to, payload, bytes)) {
		qp->nic->counters.rx_malformed++;
		vb_count(qp, VB_COUNTED_REMOTE_WRITE, false, 0);
		skip_message(qp);
		return;
	}
	resp->va += bytes;
	resp->write_left -= bytes;
	if (flags & VB_IS_LAST) {
		resp->message = VB_MSG_NONE;
		vb_count(qp, VB_COUNTED_REMOTE_WRITE, true, resp->write_total);
		if (flags & VB_HAS_IMM)
			vb_qp_complete_recv(qp, VB_WC_RECV_RDMA_WITH_IMM, resp->write_total, h);
	}
}

void vb_uc_on_request(struct vb_qp *qp, const struct vb_headers *h, const uint8_t *payload,
		      uint32_t bytes)
{
	const uint32_t flags = vb_opcode_table[h->opcode].flags;

	if (qp->state == VB_QPS_RTR && !qp->resp.comm_est) {
		qp->resp.comm_est = true;
		vb_nic_raise(qp->nic, VB_EVENT_COMM_EST, qp, NULL, NULL);
	}
	if (!in_sequence(qp, h, flags))
		return;
	if (!right_size(qp, flags, bytes)) {
		qp->nic->counters.rx_malformed++;
		skip_message(qp);
		return;
	}
	if (flags & VB_IS_SEND)
		on_send(qp, h, flags, payload, bytes);
	else
		on_write(qp, h, flags, payload, bytes);
}
