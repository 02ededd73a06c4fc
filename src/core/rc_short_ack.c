/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rc_short_ack.c - the usual acknowledgement of a reliable connection, at both ends.
 *
 *      vb_rc_turn_short   a turn with nothing to send but perhaps an ACK: from what is owed to the
 *                         packet
 *      vb_rc_take_ack     from the packet to the send request's completion
 *
 * With many queue pairs each message has an acknowledgement of its own, which costs as much as the
 * message. As in rc_short.c each of these asks everything before it changes anything, and leaves
 * behind what the long way would have left; whatever is not usual takes that way.
 *
 * Usual is, at the responder, a positive ACK to a peer of this host, in RTS, behind no answer, and
 * no request waiting to be sent; or no ACK at all, and at most a timer to be started. At the
 * requester: in RTS, from the peer, with nothing being repeated, for the oldest request alone,
 * which is a SEND of one packet and the program's, and whose completion, if it asked for one, has
 * room.
 */
#include <errno.h>
#include <string.h>

#include "core/tally.h"
#include "core/transport.h"
#include "wire/cursor.h"

#define ACK_OPCODE ((unsigned int)VB_TRANSPORT_RC << 5 | VB_OP_ACK)
#define AETH_BYTES 4u
#define ACK_BYTES (VB_BTH_BYTES + AETH_BYTES)

/* The BTH's second byte, and the first of the PSN's word (packet.c). */
#define PAD_OR_VERSION 0x3fu

/* --- given ------------------------------------------------------------------------------- */

/* may_turn - it has nothing to send that takes more than one turn, or may be refused. */
static inline bool may_turn(const struct vb_qp *qp)
{
	const struct vb_responder *resp = &qp->resp;

	if (qp->type != VB_QPT_RC || qp->state != VB_QPS_RTS || qp->blocked ||
	    qp->sq_next != qp->sq_head || resp->reply_next != resp->reply_head)
		return false;
	return !resp->ack_pending || (resp->ack_syndrome == VB_AETH_ACK_NO_CREDIT &&
				      qp->path.own_segment && qp->nic->ops.tx_short);
}

static inline void fill_ack(struct vb_short *packet, const struct vb_qp *qp)
{
	uint8_t *h = packet->header;

	vb_store_be32(h, ACK_OPCODE << 24 | VB_DEFAULT_PKEY);
	vb_store_be32(h + 4, qp->attr.dest_qpn & VB_QPN_MASK);
	vb_store_be32(h + 8, qp->resp.ack_psn);
	vb_store_be32(h + VB_BTH_BYTES, (uint32_t)VB_AETH_ACK_NO_CREDIT << 24 | qp->resp.msn);
	packet->header_bytes = ACK_BYTES;
	packet->qpn = qp->attr.dest_qpn;
	packet->bytes = packet->pad = 0;
	packet->wanted = false;
	packet->payload = NULL;
}

/* give_ack - False: the carrier has no room. */
static inline bool give_ack(struct vb_qp *qp)
{
	struct vb_responder *resp = &qp->resp;
	struct vb_nic *nic = qp->nic;
	struct vb_short packet;
	int r;

	fill_ack(&packet, qp);
	resp->unacknowledged = false;
	r = nic->ops.tx_short(nic->env, &packet);
	if (r == -EAGAIN) {
		vb_nic_block(nic, qp);
		return false;
	}
	if (r < 0)
		nic->counters.tx_dropped++;
	else
		nic->counters.tx_packets++;
	resp->gap_told = resp->ack_pending = false; /* last words are of another state */
	return true;
}

bool vb_rc_turn_short(struct vb_qp *qp, uint64_t now_ns)
{
	if (!may_turn(qp))
		return false;
	if (qp->resp.ack_pending && !give_ack(qp))
		return true;
	if (qp->sq_una != qp->sq_head)
		vb_requester_start_timer(qp, now_ns);
	return true;
}

/* --- received ---------------------------------------------------------------------------- */

/* is_plain_ack - as far as the packet says so itself. */
static inline bool is_plain_ack(const struct vb_rx *rx)
{
	const uint8_t *p = rx->data;

	return rx->size == ACK_BYTES && p[0] == ACK_OPCODE && !(p[1] & PAD_OR_VERSION) &&
	       !rx->lent && vb_aeth_kind(p[VB_BTH_BYTES]) == VB_AETH_ACK &&
	       vb_pkey_is_default(vb_load_be16(p + 2));
}

/* may_end - the oldest request, by an ACK of that PSN. */
static inline bool may_end(const struct vb_qp *qp, uint32_t psn, const struct vb_rx *rx)
{
	const struct vb_requester *req = &qp->req;

	return qp->type == VB_QPT_RC && qp->state == VB_QPS_RTS && psn == req->una_psn &&
	       req->una_psn != req->end_psn && req->nxt_psn == req->end_psn &&
	       memcmp(&rx->src, &qp->path.dgid, sizeof(rx->src)) == 0;
}

static inline bool is_short_send(const struct vb_send_wqe *w)
{
	return (w->opcode == VB_WR_SEND || w->opcode == VB_WR_SEND_WITH_IMM) && w->packets == 1 &&
	       !w->own;
}

static inline void fill_completion(struct vb_cqe *cqe, const struct vb_send_wqe *w,
				   struct vb_qp *qp)
{
	*cqe = (struct vb_cqe){
		.wr_id = w->wr_id,
		.qp = qp,
		.qpn = qp->qpn,
		.byte_len = w->length,
		.sq_slots_until = qp->sq_una,
		.vendor_err = VB_CHECK_NONE,
		.status = VB_WC_SUCCESS,
		.opcode = VB_WC_SEND,
		.is_send = true,
		.time_ns = qp->nic->now_ns,
	};
}

/* note_progress - retries start afresh, the window opens, and what else is under way has its time
 * from now on. */
static inline void note_progress(struct vb_qp *qp, uint64_t now_ns)
{
	struct vb_requester *req = &qp->req;
	uint64_t timeout = 0;

	req->retries_left = qp->attr.retry_cnt;
	req->rnr_left = qp->attr.rnr_retry;
	req->implied_nak = false;
	vb_requester_open_window(qp, 1, now_ns);
	if (req->una_psn != req->end_psn)
		timeout = vb_ack_timeout_ns(qp->nic, qp->attr.timeout);
	vb_requester_await(qp, timeout ? now_ns + timeout : 0);
	if (timeout || qp->watch.interval_ns) /* else the heap has what it had */
		vb_nic_arm_timer(qp->nic, qp, vb_requester_deadline(qp));
	if (qp->sq_next != qp->sq_head)
		vb_nic_make_ready(qp->nic, qp);
}

bool vb_rc_take_ack(struct vb_nic *nic, const struct vb_rx *rx)
{
	struct vb_cqe *cqe = NULL;
	struct vb_send_wqe *w;
	struct vb_qp *qp;
	uint32_t psn;

	if (!is_plain_ack(rx))
		return false;
	qp = vb_nic_find_qp(nic, vb_load_be32(rx->data + 4) & VB_QPN_MASK);
	psn = vb_load_be32(rx->data + 8) & VB_PSN_MASK;
	if (!qp || !may_end(qp, psn, rx))
		return false;
	w = vb_qp_wqe(qp, qp->sq_una);
	if (!is_short_send(w))
		return false;
	if (w->flags & VB_SEND_SIGNALED) {
		cqe = vb_cq_room_for_one(qp->send_cq);
		if (!cqe)
			return false;
	}
	if (qp->watch.interval_ns)
		vb_watch_heard(qp, nic->now_ns);
	qp->req.una_psn = vb_psn_add(psn, 1);
	qp->sq_una++;
	vb_count(qp, VB_COUNTED_SEND, true, w->length);
	if (cqe) {
		fill_completion(cqe, w, qp);
		vb_cq_add(qp->send_cq, cqe);
	}
	note_progress(qp, nic->now_ns);
	vb_qp_settle(qp);
	return true;
}
