/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rc_short.c - the usual short message of a reliable connection, at both ends.
 *
 *      vb_rc_post_short   from the program's request to the packet, as it is posted
 *      vb_rc_take_short   from the packet to the receive request's completion
 *
 * Each is one function in which every question of the long way is a test, and asks them all before
 * it changes anything. Whatever is not usual takes that way, as if nobody had looked: what is
 * refused, fails, waits or is repeated is decided and counted there alone, and what is left behind
 * here, a send request or a receive completion, is the same that the long way would have left.
 *
 * Usual is a SEND, with immediate data or without, of one packet and one piece of ordinary memory
 * (or inline), to a peer of this host: in RTS, with everything before it sent, nothing being
 * repeated, blocked or fenced, and room in the window. If no timer runs, the next turn starts it.
 * At the responder: with the expected PSN, between two messages, from the peer, for a queue that
 * matches no tags and whose limit is not watched, and whose oldest request has room for all of it
 * in its first piece.
 *
 * The responder's acknowledgement of many messages leaves when all that came at a look is taken. A
 * program that may have 128 under way and asks to hear of each hundredth, as many do, has nothing
 * to send then until it hears of that one, and its peer has nothing to take. So the message says
 * that it is waited for (wanted), and is acknowledged at once. Where a program asks to hear of all,
 * one in WANTED_EVERY says so.
 */
#include <errno.h>
#include <string.h>

#include "core/tally.h"
#include "core/transport.h"
#include "wire/cursor.h"

#define SEND_ONLY ((unsigned int)VB_TRANSPORT_RC << 5 | VB_OP_SEND_ONLY)
#define WITH_IMM 1u
_Static_assert(VB_TRANSPORT_RC == 0 && VB_OP_SEND_ONLY == 4 && VB_OP_SEND_ONLY_IMM == 5,
	       "one bit tells the two opcodes");

/* The BTH's second byte, and the first of the PSN's word (packet.c). */
#define SOLICITED 0x80u
#define PAD(byte) ((byte) >> 4 & 3u)
#define VERSION(byte) ((byte)&0x0fu)
#define ACK_REQ 0x80000000u
#define IMM_BYTES 4u
#define WANTED_EVERY 16u

static inline void copy(uint8_t *to, const uint8_t *from, uint32_t bytes)
{
	if (bytes == 8)
		memcpy(to, from, 8);
	else
		memcpy(to, from, bytes);
}

/* --- posted ------------------------------------------------------------------------------ */

/* may_go - a message of so many bytes, that is to say nothing of where they lie. */
static inline bool may_go(const struct vb_qp *qp, uint32_t bytes)
{
	const struct vb_requester *req = &qp->req;
	const uint32_t in_flight = (req->nxt_psn - req->una_psn) & VB_PSN_MASK;

	return qp->type == VB_QPT_RC && qp->state == VB_QPS_RTS && qp->path.own_segment &&
	       qp->nic->ops.tx_short && qp->sq_next == qp->sq_head &&
	       req->sq_assigned == qp->sq_head && req->nxt_psn == req->end_psn && !qp->blocked &&
	       !req->wait_until_ns && bytes - 1 < VB_MIN(qp->mtu, VB_SHORT_BYTES) &&
	       in_flight < req->cwnd && qp->sq_head - vb_qp_sq_free(qp) < qp->cap.max_send_wr &&
	       qp->cap.max_send_sge > 0;
}

/* fill_request - as it stays in the send queue, to be completed, or sent again the long way. */
static inline struct vb_send_wqe *fill_request(struct vb_qp *qp, const struct vb_short_wr *wr)
{
	struct vb_send_wqe *w = vb_qp_wqe(qp, qp->sq_head);
	const bool is_inline = wr->flags & VB_SEND_INLINE;

	w->wr_id = wr->wr_id;
	w->ah = NULL;
	w->length = wr->sge->length;
	w->num_sge = is_inline ? 0 : 1;
	w->imm = wr->imm;
	w->psn = qp->req.end_psn;
	w->packets = 1;
	w->moved = 0;
	w->opcode = wr->with_imm ? VB_WR_SEND_WITH_IMM : VB_WR_SEND;
	w->flags = (uint8_t)(wr->flags | (qp->sq_sig_all ? VB_SEND_SIGNALED : 0));
	w->lent = false;
	w->by_packets = false;
	w->status_known = false;
	w->status = VB_WC_SUCCESS;
	w->own = false;
	if (is_inline)
		copy(w->inline_data, (const uint8_t *)(uintptr_t)wr->sge->addr, w->length);
	else
		w->sges[0] = *wr->sge;
	return w;
}

/* is_wanted - whether the program waits for this one's acknowledgement. */
static inline bool is_wanted(struct vb_requester *req, const struct vb_send_wqe *w)
{
	if (req->since_wanted < WANTED_EVERY)
		req->since_wanted++;
	if (!(w->flags & VB_SEND_SIGNALED) || req->since_wanted < WANTED_EVERY)
		return false;
	req->since_wanted = 0;
	return true;
}

static inline void fill_packet(struct vb_short *packet, const struct vb_qp *qp,
			       const struct vb_short_wr *wr)
{
	const uint32_t pad = -wr->sge->length & 3;
	uint8_t *h = packet->header;

	h[0] = (uint8_t)(SEND_ONLY | (wr->with_imm ? WITH_IMM : 0));
	h[1] = (uint8_t)((wr->flags & VB_SEND_SOLICITED ? SOLICITED : 0) | pad << 4);
	vb_store_be16(h + 2, VB_DEFAULT_PKEY);
	vb_store_be32(h + 4, qp->attr.dest_qpn & VB_QPN_MASK);
	vb_store_be32(h + 8, ACK_REQ | qp->req.end_psn);
	vb_store_be32(h + VB_BTH_BYTES, wr->imm);
	packet->header_bytes = VB_BTH_BYTES + (wr->with_imm ? IMM_BYTES : 0);
	packet->qpn = qp->attr.dest_qpn;
	packet->bytes = wr->sge->length;
	packet->pad = pad;
}

bool vb_rc_post_short(struct vb_qp *qp, const struct vb_short_wr *wr)
{
	struct vb_requester *req = &qp->req;
	struct vb_nic *nic = qp->nic;
	struct vb_short packet;
	int r;

	vb_qp_foresee(qp);
	if (!may_go(qp, wr->sge->length))
		return false;
	if (!(wr->flags & VB_SEND_INLINE))
		packet.payload =
			vb_ordinary_memory(nic, vb_send_pd(qp), wr->sge, 0, wr->sge->length, 0);
	else if (wr->sge->length <= qp->cap.max_inline_data)
		packet.payload = (const uint8_t *)(uintptr_t)wr->sge->addr;
	else
		packet.payload = NULL;
	if (!packet.payload)
		return false;
	packet.wanted = is_wanted(req, fill_request(qp, wr));
	fill_packet(&packet, qp, wr);
	qp->sq_head++;
	req->sq_assigned++;
	r = nic->ops.tx_short(nic->env, &packet);
	if (r == -EAGAIN) {
		if (packet.wanted) /* it goes the long way then, and does not say so */
			req->since_wanted = WANTED_EVERY;
		vb_nic_block(nic, qp);
	} else {
		if (r < 0)
			nic->counters.tx_dropped++;
		else
			nic->counters.tx_packets++;
		req->nxt_psn = req->end_psn = vb_psn_add(req->end_psn, 1);
		req->since_ack_req = 0;
		qp->sq_next++;
		if (!req->ack_deadline_ns)
			vb_nic_make_ready_at_leisure(nic, qp);
	}
	vb_qp_settle(qp);
	return true;
}

/* --- received ---------------------------------------------------------------------------- */

/* A packet of that kind, as far as it says so itself. */
struct arrival {
	uint32_t qpn, psn;
	bool ack_req, solicited, with_imm;
	const uint8_t *payload;
	uint32_t bytes, imm;
};

static inline bool read_packet(struct arrival *a, const struct vb_rx *rx)
{
	const uint8_t *p = rx->data;
	uint32_t header_bytes, pad, psn;

	if (rx->size <= VB_BTH_BYTES || (p[0] & ~WITH_IMM) != SEND_ONLY || rx->lent ||
	    VERSION(p[1]) || !vb_pkey_is_default(vb_load_be16(p + 2)))
		return false;
	a->with_imm = p[0] & WITH_IMM;
	a->solicited = p[1] & SOLICITED;
	header_bytes = VB_BTH_BYTES + (a->with_imm ? IMM_BYTES : 0);
	pad = PAD(p[1]);
	if (rx->size <= header_bytes + pad || (rx->size - header_bytes) % 4)
		return false;
	psn = vb_load_be32(p + 8);
	a->qpn = vb_load_be32(p + 4) & VB_QPN_MASK;
	a->psn = psn & VB_PSN_MASK;
	a->ack_req = psn & ACK_REQ;
	a->imm = a->with_imm ? vb_load_be32(p + VB_BTH_BYTES) : 0;
	a->payload = p + header_bytes;
	a->bytes = (uint32_t)rx->size - header_bytes - pad;
	return true;
}

/* may_come - in RTR the first packet raises an event. */
static inline bool may_come(const struct vb_qp *qp, const struct arrival *a, const struct vb_rx *rx)
{
	const struct vb_responder *resp = &qp->resp;

	return qp->type == VB_QPT_RC &&
	       (qp->state == VB_QPS_RTS || (qp->state == VB_QPS_RTR && resp->comm_est)) &&
	       a->psn == resp->epsn && resp->message == VB_MSG_NONE && !resp->recv_held &&
	       a->bytes <= qp->mtu && memcmp(&rx->src, &qp->path.dgid, sizeof(rx->src)) == 0;
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

bool vb_rc_take_short(struct vb_nic *nic, const struct vb_rx *rx)
{
	const struct vb_recv_wqe *recv;
	struct vb_cqe *cqe;
	struct arrival a;
	struct vb_qp *qp;
	struct vb_rq *rq;
	struct vb_cq *cq;
	uint8_t *to;

	if (!read_packet(&a, rx))
		return false;
	qp = vb_nic_find_qp(nic, a.qpn);
	if (!qp || !may_come(qp, &a, rx))
		return false;
	rq = queue_of(qp);
	cq = vb_qp_recv_cq(qp);
	cqe = vb_cq_room_for_one(cq);
	if (!rq || !cqe)
		return false;
	recv = vb_rq_first(rq);
	to = place_of(qp, recv, a.bytes);
	if (!to)
		return false;
	copy(to, a.payload, a.bytes);
	*cqe = (struct vb_cqe){
		.wr_id = recv->wr_id,
		.qp = qp,
		.qpn = qp->qpn,
		.src_qpn = qp->attr.dest_qpn,
		.byte_len = a.bytes,
		.imm = a.imm,
		.status = VB_WC_SUCCESS,
		.opcode = VB_WC_RECV,
		.wc_flags = a.with_imm ? VB_WC_WITH_IMM : 0,
		.solicited = a.solicited,
		.time_ns = nic->now_ns,
	};
	vb_rq_drop_first(rq);
	vb_rc_advance(qp, rx->data[0], 1);
	vb_rc_end_message(qp);
	vb_count(qp, VB_COUNTED_RECV, true, a.bytes);
	vb_cq_add(cq, cqe);
	qp->resp.unacknowledged = true;
	if (a.ack_req)
		vb_rc_acknowledge(qp, VB_AETH_ACK_NO_CREDIT, a.psn);
	if (rx->wanted && vb_rc_owes_ack_alone(qp))
		(void)vb_rc_responder_run(qp);
	if (qp->watch.interval_ns)
		vb_watch_heard(qp, nic->now_ns);
	vb_qp_settle(qp);
	return true;
}
