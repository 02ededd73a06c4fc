/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rc_requester.c - what an answer does to a reliable connection's requester
 * (IBTA 9.7.5, 9.7.6, 9.7.7.3).
 *
 *      ACK p            everything up to p is done, as far as no READ or atomic stands in between
 *      RNR NAK p        everything before p is done; wait, then send from p
 *      NAK sequence p   everything before p is done; send from p at once
 *      NAK other p      everything before p is done; the request of p fails
 *      READ response p  everything before p is done; p's bytes have come
 *      ATOMIC ACK p     everything before p is done; p's old value has come
 *                       (FLUSH and ATOMIC WRITE are answered by a READ response without bytes)
 *
 * "Everything before p" stops at a READ or atomic that has not been answered itself: that answer
 * was lost, and the requester goes back as for a sequence NAK (an implied NAK, once per such PSN).
 */
#include "core/transport.h"

static bool wants_answer(const struct vb_send_wqe *w)
{
	return vb_wr_is_answered(w->opcode);
}

/* is_placement - answered by an empty READ response (IBTA A19). */
static bool is_placement(const struct vb_send_wqe *w)
{
	return w->opcode == VB_WR_FLUSH || w->opcode == VB_WR_ATOMIC_WRITE;
}

static bool is_atomic(const struct vb_send_wqe *w)
{
	return w->opcode == VB_WR_ATOMIC_CMP_AND_SWP || w->opcode == VB_WR_ATOMIC_FETCH_AND_ADD;
}

/* --- progress ---------------------------------------------------------------------------- */

/* note_progress - una_psn has moved by acked PSNs: retries start afresh, the window opens. */
static void note_progress(struct vb_qp *qp, uint32_t acked, uint64_t now_ns)
{
	struct vb_requester *req = &qp->req;
	uint64_t timeout = vb_ack_timeout_ns(qp->nic, qp->attr.timeout);

	if (acked == 0)
		return;
	req->retries_left = qp->attr.retry_cnt;
	req->rnr_left = qp->attr.rnr_retry;
	req->implied_nak = false;
	vb_requester_open_window(qp, acked, now_ns);
	vb_requester_await(qp, timeout && req->una_psn != req->end_psn ? now_ns + timeout : 0);
	vb_nic_arm_timer(qp->nic, qp, vb_requester_deadline(qp));
	if (qp->sq_next != qp->sq_head)
		vb_nic_make_ready(qp->nic, qp);
}

/* move_una - una_psn becomes psn; the cursor for sending never stays behind it. */
static void move_una(struct vb_qp *qp, uint32_t psn)
{
	qp->req.una_psn = psn;
	if (vb_psn_before(qp->req.nxt_psn, psn))
		qp->req.nxt_psn = psn;
}

/* ends_silently - what is sent and asks for no completion: nobody hears of it. False: nothing
 * happened. */
static inline bool ends_silently(struct vb_qp *qp, const struct vb_send_wqe *w)
{
	if (w->flags & VB_SEND_SIGNALED || w->own || w->ah || qp->tally ||
	    qp->sq_next == qp->sq_una || qp->req.sq_assigned == qp->sq_una)
		return false;
	qp->sq_una++;
	return true;
}

/* acknowledge_before - every PSN before target is done. False: a READ or atomic in between has not
 * been answered; una_psn stands at it. */
static bool acknowledge_before(struct vb_qp *qp, uint32_t target)
{
	while (qp->req.una_psn != target) {
		struct vb_send_wqe *w = vb_qp_wqe(qp, qp->sq_una);
		uint32_t end = vb_psn_add(w->psn, w->packets);

		if (wants_answer(w))
			return false;
		if (vb_psn_before(target, end)) {
			move_una(qp, target);
			return true;
		}
		move_una(qp, end);
		if (!ends_silently(qp, w))
			vb_qp_complete_send(qp, VB_WC_SUCCESS, NULL);
	}
	return true;
}

/* --- going back -------------------------------------------------------------------------- */

static void give_up(struct vb_qp *qp)
{
	struct vb_reason reason = vb_qp_reason(qp, VB_CHECK_RETRY_EXCEEDED);

	reason.value[0] = qp->req.una_psn;
	reason.value[1] = qp->attr.timeout;
	reason.value[2] = qp->attr.retry_cnt;
	vb_qp_fail_send(qp, VB_WC_RETRY_EXC_ERR, &reason);
}

/* retry - goes back, or gives up when retry_cnt is used up. The window shrinks: what was lost was
 * probably lost to a full buffer. patience is in timeouts. */
static void retry(struct vb_qp *qp, uint32_t window_divisor, uint32_t patience, uint64_t now_ns)
{
	struct vb_requester *req = &qp->req;
	uint64_t timeout = patience * vb_ack_timeout_ns(qp->nic, qp->attr.timeout);

	if (req->retries_left == 0) {
		give_up(qp);
		return;
	}
	req->retries_left--;
	qp->nic->counters.retries++;
	req->cwnd = VB_MAX(4u, req->cwnd / window_divisor);
	req->calm = 0;
	vb_lend_refused(qp);
	vb_requester_go_back(qp);
	vb_requester_await(qp, timeout ? now_ns + timeout : 0);
	vb_nic_arm_timer(qp->nic, qp, vb_requester_deadline(qp));
	vb_nic_make_ready(qp->nic, qp);
}

/* vb_rc_on_timeout - each further one in a row comes later, up to the four times that
 * IBTA 9.7.6.1.3 allows: a peer that is merely slow has to work off what is repeated, too. */
void vb_rc_on_timeout(struct vb_qp *qp, uint64_t now_ns)
{
	const uint32_t in_a_row = qp->attr.retry_cnt - qp->req.retries_left;

	vb_requester_await(qp, 0);
	if (qp->req.una_psn == qp->req.end_psn)
		return;
	qp->nic->counters.timeouts++;
	qp->req.implied_nak = false;
	retry(qp, 4, in_a_row == 0 ? 2 : 4, now_ns);
}

static void on_implied_nak(struct vb_qp *qp, uint64_t now_ns)
{
	if (qp->req.implied_nak)
		return; /* answers from before going back; the timeout covers the rest */
	retry(qp, 2, 1, now_ns);
	qp->req.implied_nak = true;
}

static void on_rnr_nak(struct vb_qp *qp, uint8_t timer, uint64_t now_ns)
{
	struct vb_requester *req = &qp->req;

	qp->nic->counters.rx_rnr_naks++;
	if (req->wait_until_ns)
		return;
	if (req->rnr_left == 0) {
		struct vb_reason reason = vb_qp_reason(qp, VB_CHECK_RNR_RETRY_EXCEEDED);

		reason.value[0] = req->una_psn;
		reason.value[1] = qp->attr.rnr_retry;
		reason.value[2] = timer;
		vb_qp_fail_send(qp, VB_WC_RNR_RETRY_EXC_ERR, &reason);
		return;
	}
	if (req->rnr_left != 7) /* 7: for ever (IBTA 9.7.5.2.8) */
		req->rnr_left--;
	req->rnr_timer = timer;
	vb_requester_go_back(qp);
	vb_requester_await(qp, 0);
	req->wait_until_ns = now_ns + vb_rnr_timer_ns(timer);
	vb_nic_arm_timer(qp->nic, qp, req->wait_until_ns);
}

/* send_again - a gap; or the peer cannot fetch what was lent, which is no attempt less. */
static void send_again(struct vb_qp *qp, const struct vb_send_wqe *w, uint64_t now_ns)
{
	if (!w->lent) {
		retry(qp, 2, 1, now_ns);
		return;
	}
	vb_lend_refused(qp);
	vb_requester_go_back(qp);
	vb_nic_make_ready(qp->nic, qp);
}

static void on_nak(struct vb_qp *qp, unsigned int code, uint64_t now_ns)
{
	const struct vb_send_wqe *w = vb_qp_wqe(qp, qp->sq_una);
	struct vb_reason reason;

	qp->nic->counters.rx_naks++;
	switch (code) {
	case VB_NAK_PSN_SEQUENCE:
		send_again(qp, w, now_ns);
		break;
	case VB_NAK_INVALID_REQUEST:
		reason = vb_qp_reason(qp, VB_CHECK_NAK_INVALID_REQUEST);
		reason.value[0] = qp->req.una_psn;
		vb_qp_fail_send(qp, VB_WC_REM_INV_REQ_ERR, &reason);
		break;
	case VB_NAK_REMOTE_ACCESS:
		reason = vb_qp_reason(qp, VB_CHECK_NAK_REMOTE_ACCESS);
		reason.value[0] = qp->req.una_psn;
		if (w->opcode != VB_WR_SEND && w->opcode != VB_WR_SEND_WITH_IMM) {
			reason.value[1] = w->rkey;
			reason.value[2] = w->remote_addr;
		}
		reason.value[3] = w->length;
		vb_qp_fail_send(qp, VB_WC_REM_ACCESS_ERR, &reason);
		break;
	case VB_NAK_REMOTE_OPERATIONAL:
		reason = vb_qp_reason(qp, VB_CHECK_NAK_REMOTE_OPERATIONAL);
		reason.value[0] = qp->req.una_psn;
		vb_qp_fail_send(qp, VB_WC_REM_OP_ERR, &reason);
		break;
	default: /* reserved codes: as if nothing had come */
		qp->nic->counters.rx_malformed++;
	}
}

/* --- answers ----------------------------------------------------------------------------- */

static void bad_response(struct vb_qp *qp, const struct vb_headers *h, uint32_t bytes,
			 uint32_t expected)
{
	struct vb_reason reason = vb_qp_reason(qp, VB_CHECK_BAD_RESPONSE);

	reason.value[0] = h->opcode;
	reason.value[1] = h->psn;
	reason.value[2] = bytes;
	reason.value[3] = expected;
	vb_qp_fail_send(qp, VB_WC_BAD_RESP_ERR, &reason);
}

static void on_aeth(struct vb_qp *qp, const struct vb_headers *h, uint64_t now_ns)
{
	const uint32_t una = qp->req.una_psn;
	const enum vb_aeth_kind kind = vb_aeth_kind(h->aeth.syndrome);
	const uint32_t target = kind == VB_AETH_ACK ? vb_psn_add(h->psn, 1) : h->psn;
	const bool whole = acknowledge_before(qp, target);

	note_progress(qp, (qp->req.una_psn - una) & VB_PSN_MASK, now_ns);
	if (!whole) {
		on_implied_nak(qp, now_ns);
		return;
	}
	switch (kind) {
	case VB_AETH_ACK:
		break;
	case VB_AETH_RNR_NAK:
		on_rnr_nak(qp, h->aeth.syndrome & 0x1f, now_ns);
		break;
	case VB_AETH_NAK:
		on_nak(qp, h->aeth.syndrome & 0x1f, now_ns);
		break;
	case VB_AETH_RESERVED:
		qp->nic->counters.rx_malformed++;
		break;
	}
}

/* finish_answered - the READ chunk or atomic that ended at una_psn - 1 is answered. */
static void finish_answered(struct vb_qp *qp, bool counted)
{
	if (counted && qp->req.rd_outstanding > 0)
		qp->req.rd_outstanding--;
}

static void on_read_response(struct vb_qp *qp, struct vb_send_wqe *w, const struct vb_headers *h,
			     const uint8_t *payload, uint32_t bytes, uint64_t now_ns)
{
	const uint32_t index = (h->psn - w->psn) & VB_PSN_MASK;
	const uint32_t offset = index * qp->mtu;
	const uint32_t expected = VB_MIN(qp->mtu, w->length - offset);
	const bool ends_chunk = index == w->packets - 1 || (index + 1) % vb_read_chunk(qp) == 0;
	const bool says_last = vb_opcode_table[h->opcode].flags & VB_IS_LAST;
	/* Not counted as outstanding: an answer from before going back. */
	const bool counted = vb_psn_before(h->psn, qp->req.nxt_psn);
	struct vb_reason reason = {0};

	if (bytes != expected || says_last != ends_chunk) {
		bad_response(qp, h, bytes, expected);
		return;
	}
	if (!vb_scatter(qp, w->sges, w->num_sge, offset, payload, bytes, &reason)) {
		vb_qp_fail_send(qp, VB_WC_LOC_PROT_ERR, &reason);
		return;
	}
	move_una(qp, vb_psn_add(h->psn, 1));
	if (ends_chunk)
		finish_answered(qp, counted);
	if (index == w->packets - 1)
		vb_qp_complete_send(qp, VB_WC_SUCCESS, NULL);
	note_progress(qp, 1, now_ns);
}

static void on_atomic_ack(struct vb_qp *qp, struct vb_send_wqe *w, const struct vb_headers *h,
			  uint64_t now_ns)
{
	const bool counted = vb_psn_before(h->psn, qp->req.nxt_psn);
	const uint64_t before = h->atomic_ack; /* into memory in host order */
	struct vb_reason reason = {0};

	if (!vb_scatter(qp, w->sges, w->num_sge, 0, (const uint8_t *)&before, sizeof(before),
			&reason)) {
		vb_qp_fail_send(qp, VB_WC_LOC_PROT_ERR, &reason);
		return;
	}
	move_una(qp, vb_psn_add(h->psn, 1));
	finish_answered(qp, counted);
	vb_qp_complete_send(qp, VB_WC_SUCCESS, NULL);
	note_progress(qp, 1, now_ns);
}

static void on_placement_response(struct vb_qp *qp, const struct vb_headers *h, uint32_t bytes,
				  uint64_t now_ns)
{
	const bool counted = vb_psn_before(h->psn, qp->req.nxt_psn);

	if (bytes > 0 || vb_opcode_operation(h->opcode) != VB_OP_READ_RESPONSE_ONLY) {
		bad_response(qp, h, bytes, 0);
		return;
	}
	move_una(qp, vb_psn_add(h->psn, 1));
	finish_answered(qp, counted);
	vb_qp_complete_send(qp, VB_WC_SUCCESS, NULL);
	note_progress(qp, 1, now_ns);
}

/* on_answer - a READ response or an atomic acknowledgement. */
static void on_answer(struct vb_qp *qp, const struct vb_headers *h, const uint8_t *payload,
		      uint32_t bytes, uint64_t now_ns)
{
	const uint32_t una = qp->req.una_psn;
	const bool is_read = vb_opcode_table[h->opcode].flags & VB_IS_READ_RESPONSE;
	const bool whole = acknowledge_before(qp, h->psn);
	struct vb_send_wqe *w = vb_qp_wqe(qp, qp->sq_una);

	note_progress(qp, (qp->req.una_psn - una) & VB_PSN_MASK, now_ns);
	if (!whole)
		on_implied_nak(qp, now_ns);
	else if (is_read && w->opcode == VB_WR_RDMA_READ)
		on_read_response(qp, w, h, payload, bytes, now_ns);
	else if (is_read && is_placement(w))
		on_placement_response(qp, h, bytes, now_ns);
	else if (!is_read && is_atomic(w))
		on_atomic_ack(qp, w, h, now_ns);
	else
		bad_response(qp, h, bytes, 0);
}

void vb_rc_on_response(struct vb_qp *qp, const struct vb_headers *h, const uint8_t *payload,
		       uint32_t bytes, uint64_t now_ns)
{
	const struct vb_requester *req = &qp->req;

	if (qp->state != VB_QPS_RTS && qp->state != VB_QPS_SQD) {
		qp->nic->counters.rx_wrong_state++;
		return;
	}
	/* Stale or never sent: not in [una, end). */
	if (vb_psn_before(h->psn, req->una_psn) || !vb_psn_before(h->psn, req->end_psn)) {
		qp->nic->counters.rx_out_of_window++;
		return;
	}
	if (vb_opcode_operation(h->opcode) == VB_OP_ACK)
		on_aeth(qp, h, now_ns);
	else
		on_answer(qp, h, payload, bytes, now_ns);
	vb_requester_check_drained(qp);
}
