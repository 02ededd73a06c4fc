/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rc_responder.c - the responder of a reliable connection (IBTA 9.7.4, 9.7.5, 9.7.8).
 *
 * judge() looks at a request with the expected PSN and names its verdict, in the order of the
 * specification's checks; apply() is the only writer. A request before the expected PSN is a
 * duplicate: a READ is answered again, an atomic from its saved result, the rest is acknowledged
 * again. One behind it tells of a gap: one sequence NAK.
 *
 * What is to be answered goes into the ring `replies`; rc_answers.c sends it.
 */
#include <string.h>

#include "core/demand.h"
#include "core/tally.h"
#include "core/transport.h"
#include "core/xrc.h"

#define ATOMIC_BYTES 8u /* of an ATOMIC WRITE too */

/* --- judging ----------------------------------------------------------------------------- */

enum verdict {
	ACCEPT,
	RNR,		 /* no receive request: RNR NAK */
	INVALID_REQUEST, /* NAK invalid request, the QP enters ERR */
	ACCESS_ERROR,	 /* NAK remote access error */
	BAD_INVALIDATE,	 /* NAK remote access error, the receive fails */
	TOO_LONG, /* longer than the receive buffer: NAK invalid request, the receive fails */
};

static bool is_write_first(uint32_t flags)
{
	return (flags & VB_IS_WRITE) && (flags & VB_IS_FIRST);
}

/* right_order - IBTA 9.7.4.1.3: FIRST or ONLY begins, MIDDLE or LAST of the same kind goes on. */
static bool right_order(const struct vb_responder *resp, uint32_t flags)
{
	if (resp->message == VB_MSG_NONE)
		return !(flags & (VB_IS_SEND | VB_IS_WRITE)) || (flags & VB_IS_FIRST);
	if (flags & VB_IS_FIRST)
		return false;
	return flags & (resp->message == VB_MSG_SEND ? VB_IS_SEND : VB_IS_WRITE);
}

/* psns_of - how many packets it is, or stands for. */
static uint32_t psns_of(const struct vb_qp *qp, uint32_t bytes, bool lent)
{
	return lent ? (bytes - 1) / qp->mtu + 1 : 1;
}

/* right_size - IBTA 9.7.4.1.6: only the last packet of a message may differ from the path MTU. */
static bool right_size(const struct vb_qp *qp, uint32_t flags, uint32_t bytes, bool lent)
{
	if (lent)
		return flags & VB_IS_LAST || bytes % qp->mtu == 0;
	if (!(flags & (VB_IS_SEND | VB_IS_WRITE)))
		return bytes == (flags & VB_HAS_PAYLOAD ? ATOMIC_BYTES : 0);
	if (!(flags & VB_IS_LAST))
		return bytes == qp->mtu;
	return bytes <= qp->mtu && (bytes > 0 || (flags & VB_IS_FIRST));
}

static bool needs_recv(const struct vb_qp *qp, uint32_t flags)
{
	if (qp->resp.recv_held)
		return false;
	if (flags & VB_IS_SEND)
		return flags & VB_IS_FIRST;
	return (flags & VB_IS_WRITE) && (flags & VB_HAS_IMM);
}

static uint32_t right_to_flush(const struct vb_headers *h)
{
	return (h->feth.placement & VB_FLUSH_GLOBAL ? VB_ACCESS_FLUSH_GLOBAL : 0) |
	       (h->feth.placement & VB_FLUSH_PERSISTENT ? VB_ACCESS_FLUSH_PERSISTENT : 0);
}

static uint32_t right_needed(const struct vb_headers *h, uint32_t flags)
{
	if (flags & VB_IS_SEND)
		return 0;
	if (flags & VB_HAS_FETH)
		return right_to_flush(h);
	if (flags & VB_HAS_ATOMIC)
		return VB_ACCESS_REMOTE_ATOMIC;
	return flags & VB_HAS_PAYLOAD ? VB_ACCESS_REMOTE_WRITE : VB_ACCESS_REMOTE_READ;
}

/* target_pd - where the keys of the request under way are judged. */
static const struct vb_pd *target_pd(const struct vb_qp *qp)
{
	return qp->xrcd ? qp->resp.srq->pd : qp->pd;
}

static enum verdict refuse(struct vb_reason *reason, enum verdict verdict, enum vb_check check,
			   uint64_t a, uint64_t b, uint64_t c)
{
	reason->check = check;
	reason->value[0] = a;
	reason->value[1] = b;
	reason->value[2] = c;
	return verdict;
}

/* judge_write - to: where the bytes go, if it is accepted. */
static enum verdict judge_write(const struct vb_qp *qp, const struct vb_headers *h, uint32_t flags,
				uint32_t bytes, uint8_t **to, struct vb_reason *reason)
{
	const struct vb_responder *resp = &qp->resp;
	const bool first = is_write_first(flags), whole = first && !(flags & VB_IS_LAST);
	const uint32_t left = first ? h->reth.length : resp->write_left;
	const uint32_t rkey = first ? h->reth.rkey : resp->rkey;
	const uint64_t va = first ? h->reth.va : resp->va;

	if (left > VB_MAX_MESSAGE || bytes > left || ((flags & VB_IS_LAST) && bytes != left))
		return refuse(reason, INVALID_REQUEST, VB_CHECK_REQ_LENGTH, bytes, left, qp->mtu);
	/* The first packet is checked for the whole message, the others for themselves: the region
	 * may go away in the middle. Whether memory on demand is there for a packet, its copy says.
	 */
	*to = vb_mr_remote(qp->nic, target_pd(qp), qp->qpn, rkey, va, first ? left : bytes,
			   VB_ACCESS_REMOTE_WRITE | (whole ? VB_WANT_PRESENT : 0), reason);
	return *to ? ACCEPT : ACCESS_ERROR;
}

/* What a request that is answered from the ring of replies wants of which memory. */
struct target {
	uint64_t va;
	uint32_t rkey, length;
	bool whole_region, aligned;
};

static struct target target_of(const struct vb_headers *h, uint32_t flags)
{
	struct target target = {.va = h->reth.va, .rkey = h->reth.rkey, .length = h->reth.length};

	if (flags & VB_HAS_ATOMIC)
		target = (struct target){
			.va = h->atomic.va, .rkey = h->atomic.rkey, .length = ATOMIC_BYTES};
	target.aligned = flags & (VB_HAS_ATOMIC | VB_HAS_PAYLOAD);
	target.whole_region = flags & VB_HAS_FETH && h->feth.selectivity == VB_FLUSH_REGION;
	return target;
}

/* judge_target - that such a request makes sense, whatever memory there is. */
static enum verdict judge_target(const struct vb_headers *h, uint32_t flags,
				 const struct target *target, struct vb_reason *reason)
{
	if (target->aligned && target->va % ATOMIC_BYTES != 0)
		return refuse(reason, INVALID_REQUEST, VB_CHECK_REQ_ATOMIC_ALIGNED, target->va, 0,
			      0);
	if (flags & VB_HAS_PAYLOAD && target->length != ATOMIC_BYTES)
		return refuse(reason, INVALID_REQUEST, VB_CHECK_REQ_LENGTH, ATOMIC_BYTES,
			      target->length, 0);
	if (target->length > VB_MAX_MESSAGE && !target->whole_region)
		return refuse(reason, INVALID_REQUEST, VB_CHECK_REQ_LENGTH, target->length,
			      VB_MAX_MESSAGE, 0);
	if (flags & VB_HAS_FETH && (!right_to_flush(h) || h->feth.selectivity > VB_FLUSH_REGION))
		return refuse(reason, INVALID_REQUEST, VB_CHECK_REQ_PLACEMENT, h->feth.placement,
			      h->feth.selectivity, 0);
	return ACCEPT;
}

/* judge_answered - READ, atomic, FLUSH, ATOMIC WRITE. */
static enum verdict judge_answered(const struct vb_qp *qp, const struct vb_headers *h,
				   uint32_t flags, struct vb_reason *reason)
{
	const struct vb_responder *resp = &qp->resp;
	/* What is only being repeated does not count: the peer had those answers, or will ask
	 * again. */
	const uint32_t waiting = resp->reply_head - resp->reply_done;
	const uint32_t limit = qp->attr.max_dest_rd_atomic;
	const uint32_t right = right_needed(h, flags);
	const struct target target = target_of(h, flags);
	const uint8_t *memory = NULL;
	enum verdict verdict;
	bool allowed;

	if (waiting >= limit)
		return refuse(reason, INVALID_REQUEST, VB_CHECK_REQ_RD_ATOMIC, waiting, limit, 0);
	verdict = judge_target(h, flags, &target, reason);
	if (verdict != ACCEPT)
		return verdict;
	if (target.whole_region) {
		allowed = vb_mr_remote_whole(qp->nic, target_pd(qp), qp->qpn, target.rkey, right,
					     reason);
	} else {
		memory = vb_mr_remote(qp->nic, target_pd(qp), qp->qpn, target.rkey, target.va,
				      target.length, right | (target.aligned ? VB_WANT_PRESENT : 0),
				      reason);
		allowed = memory;
	}
	/* An atomic works on an aligned word of the machine, whatever its remote address looks
	 * like. */
	if (allowed && target.aligned && (uintptr_t)memory % ATOMIC_BYTES != 0)
		return refuse(reason, INVALID_REQUEST, VB_CHECK_REQ_ATOMIC_ALIGNED,
			      (uintptr_t)memory, 0, 0);
	return allowed ? ACCEPT : ACCESS_ERROR;
}

static bool take_recv(struct vb_qp *qp, uint32_t flags, const uint8_t *payload, uint32_t bytes)
{
	if (qp->srq && qp->srq->tm && (flags & VB_IS_SEND))
		return vb_tm_take(qp, payload, bytes, flags & VB_IS_LAST);
	return vb_qp_take_recv(qp);
}

/* find_srq - XRC: the SRQ that the request names, of the QP's domain and, within a message, the one
 * that it began with. False: there is none. */
static bool find_srq(struct vb_qp *qp, const struct vb_headers *h)
{
	struct vb_srq *srq = vb_xrc_find_srq(qp->xrcd, h->srqn);

	if (!srq || (qp->resp.message != VB_MSG_NONE && srq != qp->resp.srq))
		return false;
	qp->resp.srq = srq;
	return true;
}

/* judge - what becomes of a request with the expected PSN. Finds the SRQ of an XRC request and
 * takes a receive request when the packet needs one (that is why qp is not const); changes nothing
 * else. to: where a WRITE's bytes go.
 */
static enum verdict judge(struct vb_qp *qp, const struct vb_headers *h, const uint8_t *payload,
			  uint32_t bytes, bool lent, uint8_t **to, struct vb_reason *reason)
{
	const uint32_t flags = vb_opcode_table[h->opcode].flags;
	const uint32_t right = right_needed(h, flags);

	if (!right_order(&qp->resp, flags))
		return refuse(reason, INVALID_REQUEST, VB_CHECK_REQ_OPCODE_ORDER, h->opcode,
			      qp->resp.last_opcode, 0);
	if (!right_size(qp, flags, bytes, lent))
		return refuse(reason, INVALID_REQUEST, VB_CHECK_REQ_LENGTH, bytes, qp->mtu,
			      qp->mtu);
	if (right & ~qp->attr.access_flags)
		return refuse(reason, INVALID_REQUEST, VB_CHECK_REQ_NOT_ENABLED, h->opcode,
			      qp->attr.access_flags, 0);
	if (qp->xrcd && !find_srq(qp, h))
		return refuse(reason, ACCESS_ERROR, VB_CHECK_XRC_SRQ, h->srqn, 0, 0);
	if (needs_recv(qp, flags) && !take_recv(qp, flags, payload, bytes))
		return RNR;
	if (flags & VB_IS_SEND) {
		const uint32_t end = qp->resp.received + bytes - qp->resp.tm.skip;

		if (end > qp->resp.recv.length)
			return refuse(reason, TOO_LONG, VB_CHECK_RECV_TOO_SHORT, end,
				      qp->resp.recv.length, 0);
		if (flags & VB_HAS_IETH && !vb_mw_may_invalidate(qp, h->invalidate_rkey))
			return refuse(reason, BAD_INVALIDATE, VB_CHECK_REQ_INVALIDATE,
				      h->invalidate_rkey, 0, 0);
		return ACCEPT;
	}
	if (flags & VB_IS_WRITE)
		return judge_write(qp, h, flags, bytes, to, reason);
	return judge_answered(qp, h, flags, reason);
}

/* --- acknowledging ----------------------------------------------------------------------- */

void vb_rc_acknowledge(struct vb_qp *qp, uint8_t syndrome, uint32_t psn)
{
	struct vb_responder *resp = &qp->resp;

	/* A NAK that has not left says more than an ACK of what came before it. */
	if (resp->ack_pending && vb_aeth_kind(resp->ack_syndrome) != VB_AETH_ACK &&
	    vb_psn_before(psn, resp->ack_psn))
		return;
	resp->ack_pending = true;
	resp->ack_syndrome = syndrome;
	resp->ack_psn = psn;
	vb_nic_make_ready(qp->nic, qp);
}

void vb_rc_nak(struct vb_qp *qp, enum vb_nak_code code, uint32_t psn)
{
	qp->nic->counters.tx_naks++;
	vb_rc_acknowledge(qp, vb_aeth_syndrome(VB_AETH_NAK, code), psn);
}

static void count_failure(const struct vb_qp *qp, const struct vb_headers *h)
{
	if (vb_opcode_table[h->opcode].flags & VB_IS_WRITE)
		vb_count(qp, VB_COUNTED_REMOTE_WRITE, false, 0);
	else if (vb_opcode_operation(h->opcode) == VB_OP_READ_REQUEST)
		vb_count(qp, VB_COUNTED_REMOTE_READ, false, 0);
}

/* nak_and_fail - the QP enters ERR; what it owes for earlier requests and the NAK leave all the
 * same, as soon as the carrier takes them: without the NAK the peer would only see its retries run
 * out. */
static void nak_and_fail(struct vb_qp *qp, const struct vb_headers *h, enum vb_nak_code code,
			 enum vb_status recv_status, struct vb_reason *reason)
{
	const struct vb_reason about = vb_qp_reason(qp, reason->check);

	reason->qpn = about.qpn;
	reason->peer_qpn = about.peer_qpn;
	reason->peer = about.peer;
	count_failure(qp, h);
	vb_rc_nak(qp, code, qp->resp.epsn);
	qp->resp.last_words = true;
	vb_qp_fail_recv(qp, recv_status, reason,
			code == VB_NAK_REMOTE_ACCESS ? VB_EVENT_QP_ACCESS_ERR
						     : VB_EVENT_QP_REQ_ERR);
}

/* --- applying ---------------------------------------------------------------------------- */

/* apply_send - False: a local SGE was refused, or a window cannot be taken back; reason holds why.
 * Where the payload was lent it is in its place already.
 */
static bool apply_send(struct vb_qp *qp, const struct vb_headers *h, uint32_t flags,
		       const uint8_t *payload, uint32_t bytes, bool lent, struct vb_reason *reason)
{
	struct vb_responder *resp = &qp->resp;
	const bool tagged = qp->srq && qp->srq->tm, first = flags & VB_IS_FIRST;

	payload += resp->tm.skip;
	bytes -= resp->tm.skip;
	resp->tm.skip = 0;
	if (!lent && !vb_scatter_recv(qp, resp->received, payload, bytes, reason))
		return false;
	if (flags & VB_HAS_IETH && vb_mw_invalidate(qp, h->invalidate_rkey)) {
		reason->check = VB_CHECK_REQ_INVALIDATE;
		return false;
	}
	resp->message = VB_MSG_SEND;
	resp->received += bytes;
	vb_rc_advance(qp, h->opcode, psns_of(qp, bytes, lent));
	if (flags & VB_IS_LAST) {
		const uint32_t total = resp->received;

		vb_rc_end_message(qp);
		if (tagged)
			vb_tm_complete(qp, h, total, first);
		else
			vb_qp_complete_recv(qp, VB_WC_RECV, total, h);
	} else if (tagged && first) {
		vb_tm_begun(qp);
	}
	return true;
}

/* absent - the memory of a region on demand was there when the request was judged, and is not any
 * more. False. */
static bool absent(struct vb_reason *reason, uint32_t rkey, uint64_t va, uint32_t bytes)
{
	refuse(reason, ACCESS_ERROR, VB_CHECK_RKEY_ABSENT, rkey, va, bytes);
	return false;
}

/* apply_write - to: as judged a moment ago. False: a region on demand, and nothing there; so with
 * all that follow. */
static bool apply_write(struct vb_qp *qp, const struct vb_headers *h, uint32_t flags, uint8_t *to,
			const uint8_t *payload, uint32_t bytes, struct vb_reason *reason)
{
	struct vb_responder *resp = &qp->resp;

	if (flags & VB_IS_FIRST) {
		resp->message = VB_MSG_WRITE;
		resp->va = h->reth.va;
		resp->rkey = h->reth.rkey;
		resp->write_left = resp->write_total = h->reth.length;
	}
	if (!vb_place_remote(qp->nic, resp->rkey, to, payload, bytes))
		return absent(reason, resp->rkey, resp->va, bytes);
	resp->va += bytes;
	resp->write_left -= bytes;
	vb_rc_advance(qp, h->opcode, 1);
	if (flags & VB_IS_LAST) {
		vb_rc_end_message(qp);
		vb_count(qp, VB_COUNTED_REMOTE_WRITE, true, resp->write_total);
		if (flags & VB_HAS_IMM)
			vb_qp_complete_recv(qp, VB_WC_RECV_RDMA_WITH_IMM, resp->write_total, h);
	}
	return true;
}

static struct vb_reply *add_reply(struct vb_qp *qp, const struct vb_headers *h, uint32_t packets)
{
	struct vb_responder *resp = &qp->resp;
	struct vb_reply *reply = &resp->replies[resp->reply_head % VB_MAX_RD_ATOMIC];

	/* Full of repetitions: who asks for more has had the oldest answer. */
	if (resp->reply_head - resp->reply_next == VB_MAX_RD_ATOMIC)
		vb_rc_next_reply(resp);
	if (resp->reply_next == resp->reply_head) {
		resp->reply_psn = h->psn;
		resp->reply_first_psn = h->psn;
	}
	resp->reply_head++;
	resp->msn = (resp->msn + 1) & VB_PSN_MASK;
	*reply = (struct vb_reply){
		.psn = h->psn,
		.packets = packets,
		.msn = resp->msn,
		.operation = (uint8_t)vb_opcode_operation(h->opcode),
		.srqn = h->srqn,
	};
	resp->unacknowledged = resp->gap_told = false; /* the answer says it */
	vb_rc_advance(qp, h->opcode, packets);
	vb_nic_make_ready(qp->nic, qp);
	return reply;
}

static void apply_read(struct vb_qp *qp, const struct vb_headers *h)
{
	const uint32_t length = h->reth.length;
	struct vb_reply *reply = add_reply(qp, h, length ? (length - 1) / qp->mtu + 1 : 1);

	reply->va = h->reth.va;
	reply->rkey = h->reth.rkey;
	reply->length = length;
}

/* on_word - does it to the word that was judged a moment ago. */
static bool on_word(struct vb_qp *qp, uint32_t rkey, uint64_t va, uint32_t right,
		    const struct vb_atomic *op, uint64_t *before, struct vb_reason *reason)
{
	uint8_t *word = vb_mr_remote(qp->nic, target_pd(qp), qp->qpn, rkey, va, ATOMIC_BYTES, right,
				     reason);

	VB_ASSERT(word);
	return vb_atomic_at(qp->nic, rkey, word, op, before) ||
	       absent(reason, rkey, va, ATOMIC_BYTES);
}

static bool apply_atomic(struct vb_qp *qp, const struct vb_headers *h, struct vb_reason *reason)
{
	const bool add = vb_opcode_operation(h->opcode) == VB_OP_FETCH_ADD;
	const struct vb_atomic op = {
		.kind = add ? VB_ATOMIC_ADD : VB_ATOMIC_COMPARE_SWAP,
		.operand = h->atomic.swap_add,
		.compare = h->atomic.compare,
	};
	uint64_t before;

	if (!on_word(qp, h->atomic.rkey, h->atomic.va, VB_ACCESS_REMOTE_ATOMIC, &op, &before,
		     reason))
		return false;
	add_reply(qp, h, 1)->result = before;
	return true;
}

/* apply_atomic_write - eight bytes that nobody sees half of (IBTA A19.3). */
static bool apply_atomic_write(struct vb_qp *qp, const struct vb_headers *h, const uint8_t *payload,
			       struct vb_reason *reason)
{
	struct vb_atomic op = {.kind = VB_ATOMIC_STORE};
	uint64_t before;

	memcpy(&op.operand, payload, sizeof(op.operand));
	if (!on_word(qp, h->reth.rkey, h->reth.va, VB_ACCESS_REMOTE_WRITE, &op, &before, reason))
		return false;
	add_reply(qp, h, 1);
	return true;
}

/* apply_flush - what came before was copied by this thread or by its initiator, into memory that
 * all processors share: nothing holds it back but their store buffers. */
static void apply_flush(struct vb_qp *qp, const struct vb_headers *h)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	add_reply(qp, h, 1);
}

static bool apply_answered(struct vb_qp *qp, const struct vb_headers *h, uint32_t flags,
			   const uint8_t *payload, struct vb_reason *reason)
{
	if (flags & VB_HAS_ATOMIC)
		return apply_atomic(qp, h, reason);
	if (flags & VB_HAS_FETH)
		apply_flush(qp, h);
	else if (flags & VB_HAS_PAYLOAD)
		return apply_atomic_write(qp, h, payload, reason);
	else
		apply_read(qp, h);
	return true;
}

static void apply(struct vb_qp *qp, const struct vb_headers *h, uint8_t *to, const uint8_t *payload,
		  uint32_t bytes, bool lent, struct vb_reason *reason)
{
	const uint32_t flags = vb_opcode_table[h->opcode].flags;

	if (flags & VB_IS_SEND) {
		if (!apply_send(qp, h, flags, payload, bytes, lent, reason)) {
			nak_and_fail(qp, h, VB_NAK_REMOTE_OPERATIONAL, VB_WC_LOC_PROT_ERR, reason);
			return;
		}
	} else if (!(flags & VB_IS_WRITE)) {
		if (!apply_answered(qp, h, flags, payload, reason))
			nak_and_fail(qp, h, VB_NAK_REMOTE_ACCESS, VB_WC_WR_FLUSH_ERR, reason);
		return;
	} else if (!apply_write(qp, h, flags, to, payload, bytes, reason)) {
		nak_and_fail(qp, h, VB_NAK_REMOTE_ACCESS, VB_WC_WR_FLUSH_ERR, reason);
		return;
	}
	qp->resp.unacknowledged = true;
	if (h->ack_req && qp->state != VB_QPS_ERR)
		vb_rc_acknowledge(qp, VB_AETH_ACK_NO_CREDIT,
				  vb_psn_add(h->psn, psns_of(qp, bytes, lent) - 1));
}

/* --- duplicates -------------------------------------------------------------------------- */

/* find_reply - which kept answer holds the PSN; its counter, or reply_head when none. */
static uint32_t find_reply(const struct vb_responder *resp, uint32_t psn)
{
	for (uint32_t i = 1; i <= VB_MAX_RD_ATOMIC; i++) {
		const struct vb_reply *reply =
			&resp->replies[(resp->reply_head - i) % VB_MAX_RD_ATOMIC];

		if (((psn - reply->psn) & VB_PSN_MASK) < reply->packets)
			return resp->reply_head - i;
	}
	return resp->reply_head;
}

/* answer_again - rewinds the answers to this PSN, unless it is still to be answered anyway. */
static void answer_again(struct vb_qp *qp, const struct vb_headers *h)
{
	struct vb_responder *resp = &qp->resp;
	const uint32_t found = find_reply(resp, h->psn);
	const struct vb_reply *reply = &resp->replies[found % VB_MAX_RD_ATOMIC];

	if (found == resp->reply_head || reply->operation != vb_opcode_operation(h->opcode))
		return;
	if ((int32_t)(found - resp->reply_next) > 0)
		return;
	if (found == resp->reply_next && !vb_psn_before(h->psn, resp->reply_psn))
		return;
	resp->reply_next = found;
	resp->reply_psn = h->psn;
	resp->reply_first_psn = h->psn;
	vb_nic_make_ready(qp->nic, qp);
}

static void on_duplicate(struct vb_qp *qp, const struct vb_headers *h)
{
	const uint32_t flags = vb_opcode_table[h->opcode].flags;

	qp->nic->counters.rx_duplicate++;
	if (flags & (VB_IS_SEND | VB_IS_WRITE))
		vb_rc_acknowledge(qp, VB_AETH_ACK_NO_CREDIT,
				  vb_psn_add(qp->resp.epsn, VB_PSN_MASK));
	else
		answer_again(qp, h);
}

/* --- the middle of a message ------------------------------------------------------------- */

/* place_middle - the bytes of a packet that is the next one of its message. False: something else
 * is to be judged than whether there is room. */
static bool place_middle(struct vb_qp *qp, const uint8_t *payload)
{
	struct vb_responder *resp = &qp->resp;
	struct vb_reason reason = {.check = VB_CHECK_NONE};
	uint8_t *to;

	if (resp->message == VB_MSG_SEND) {
		if ((qp->srq && qp->srq->tm) || resp->recv.length < qp->mtu ||
		    resp->received > resp->recv.length - qp->mtu ||
		    !vb_scatter_recv(qp, resp->received, payload, qp->mtu, &reason))
			return false;
		resp->received += qp->mtu;
		return true;
	}
	if (!(qp->attr.access_flags & VB_ACCESS_REMOTE_WRITE) || resp->write_left < qp->mtu ||
	    vb_is_on_demand(qp->nic, resp->rkey))
		return false;
	to = vb_mr_remote(qp->nic, qp->pd, qp->qpn, resp->rkey, resp->va, qp->mtu,
			  VB_ACCESS_REMOTE_WRITE, &reason);
	if (!to)
		return false;
	vb_place(to, payload, qp->mtu);
	resp->va += qp->mtu;
	resp->write_left -= qp->mtu;
	return true;
}

bool vb_rc_on_middle(struct vb_qp *qp, uint8_t opcode, uint32_t psn, bool ack_req,
		     const uint8_t *payload)
{
	struct vb_responder *resp = &qp->resp;
	const enum vb_operation same =
		resp->message == VB_MSG_SEND ? VB_OP_SEND_MIDDLE : VB_OP_WRITE_MIDDLE;

	if (psn != resp->epsn || resp->message == VB_MSG_NONE ||
	    opcode != vb_opcode(VB_TRANSPORT_RC, same) || !place_middle(qp, payload))
		return false;
	vb_rc_advance(qp, opcode, 1);
	resp->unacknowledged = true;
	if (ack_req)
		vb_rc_acknowledge(qp, VB_AETH_ACK_NO_CREDIT, psn);
	return true;
}

/* --- a request arrives ------------------------------------------------------------------- */

void vb_responder_start(struct vb_qp *qp)
{
	struct vb_sge *sges = qp->resp.recv.sges;

	qp->resp = (struct vb_responder){
		.epsn = qp->attr.rq_psn & VB_PSN_MASK,
		/* Not 0: find_reply() may look back a whole ring from the start (of unused
		   entries). */
		.reply_head = VB_MAX_RD_ATOMIC,
		.reply_next = VB_MAX_RD_ATOMIC,
		.reply_done = VB_MAX_RD_ATOMIC,
	};
	qp->resp.recv.sges = sges;
}

static void raise_comm_est(struct vb_qp *qp)
{
	if (qp->state != VB_QPS_RTR || qp->resp.comm_est)
		return;
	qp->resp.comm_est = true;
	vb_nic_raise(qp->nic, VB_EVENT_COMM_EST, qp, NULL, NULL);
}

/* ask_again - lent payload is to come as packets. What follows in flight is dropped in silence. */
static void ask_again(struct vb_qp *qp)
{
	vb_rc_nak(qp, VB_NAK_PSN_SEQUENCE, qp->resp.epsn);
	qp->resp.seq_nak_sent = true;
}

/* may_fetch - a matching of tags has to see the message before it has a place for it. */
static bool may_fetch(const struct vb_qp *qp)
{
	return qp->nic->ops.fetch && !(qp->srq && qp->srq->tm);
}

void vb_rc_on_request(struct vb_qp *qp, const struct vb_headers *h, const uint8_t *payload,
		      uint32_t bytes, const struct vb_lent *lent)
{
	struct vb_responder *resp = &qp->resp;
	const int32_t ahead = vb_psn_diff(h->psn, resp->epsn);
	struct vb_reason reason = {.check = VB_CHECK_NONE}; /* nak_and_fail() says about whom */
	uint8_t *to = NULL;

	raise_comm_est(qp);
	if (ahead < 0) {
		on_duplicate(qp, h);
		return;
	}
	if (ahead > 0) {
		qp->nic->counters.rx_out_of_sequence++;
		if (!resp->seq_nak_sent)
			vb_rc_nak(qp, VB_NAK_PSN_SEQUENCE, resp->epsn);
		resp->seq_nak_sent = true;
		return;
	}
	if (lent && !may_fetch(qp)) {
		ask_again(qp);
		return;
	}
	switch (judge(qp, h, payload, bytes, lent, &to, &reason)) {
	case ACCEPT:
		if (lent && !vb_fetch_recv(qp, lent))
			ask_again(qp);
		else
			apply(qp, h, to, payload, bytes, lent, &reason);
		break;
	case RNR:
		qp->nic->counters.tx_rnr_naks++;
		vb_rc_acknowledge(qp, vb_aeth_syndrome(VB_AETH_RNR_NAK, qp->attr.min_rnr_timer),
				  resp->epsn);
		resp->seq_nak_sent = true; /* what follows in flight is dropped in silence */
		break;
	case INVALID_REQUEST:
		nak_and_fail(qp, h, VB_NAK_INVALID_REQUEST, VB_WC_WR_FLUSH_ERR, &reason);
		break;
	case ACCESS_ERROR:
		nak_and_fail(qp, h, VB_NAK_REMOTE_ACCESS, VB_WC_WR_FLUSH_ERR, &reason);
		break;
	case BAD_INVALIDATE: /* the receive's status is Soft-RoCE's */
		nak_and_fail(qp, h, VB_NAK_REMOTE_ACCESS, VB_WC_REM_INV_REQ_ERR, &reason);
		break;
	case TOO_LONG:
		nak_and_fail(qp, h, VB_NAK_INVALID_REQUEST, VB_WC_LOC_LEN_ERR, &reason);
		break;
	}
}
