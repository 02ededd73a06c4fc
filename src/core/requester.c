/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * requester.c - from send requests to packets, for RC, UC and UD.
 *
 *            una_psn          nxt_psn           end_psn
 *      answered | sent, unanswered | to be repeated | never sent
 *
 * A packet is a pure function of (request, PSN). Repeating after a NAK, an RNR NAK or a timeout is
 * one act: nxt_psn goes back to una_psn and sq_next to sq_una (vb_requester_go_back). PSNs are
 * assigned to a request when its first packet is about to go, at end_psn: requests that need no
 * packets (a copy by the initiator itself, `direct`) take none.
 *
 * A request that fails locally, that `direct` carries out, or that binds or invalidates a window,
 * waits until everything before it has completed: completions keep their order, a WRITE never
 * overtakes a SEND, and no window changes under a request that was posted before.
 */
#include <errno.h>

#include "core/build.h"
#include "core/transport.h"

#define PACE_NS 1000000ull	   /* in which UC and UD send what the path bears */
#define LATE_NS 2000000ull	   /* so late a turn comes where others want the processors */
#define LATE_FOR_NS 100000000ull   /* how long that is taken to go on */
#define PACE_OVERHEAD 512u	   /* bytes that a small packet costs its receiver besides */
#define AT_ONCE_MAX 4096u	   /* bytes of a copy that is not left to the run */
#define DIRECT_PIECE (1u << 20)	   /* bytes of one direct copy */
_Static_assert(DIRECT_PIECE <= VB_NULL_BYTES, "a null region has enough zeros");

/* What became of an attempt to send a packet. */
enum outcome {
	SENT,	/* go on */
	WAIT,	/* an answer, a timer or the carrier makes the QP ready again */
	FAILED, /* the QP has left its state */
};

void vb_requester_start(struct vb_qp *qp)
{
	const uint32_t psn = qp->attr.sq_psn & VB_PSN_MASK;

	VB_ASSERT(qp->sq_una == qp->sq_head && !qp->req.ack_deadline_ns);
	qp->req = (struct vb_requester){
		.una_psn = psn,
		.nxt_psn = psn,
		.end_psn = psn,
		.sq_assigned = qp->sq_head,
		.retries_left = qp->attr.retry_cnt,
		.rnr_left = qp->attr.rnr_retry,
	};
	vb_requester_first_window(qp);
}

void vb_requester_go_back(struct vb_qp *qp)
{
	qp->req.nxt_psn = qp->req.una_psn;
	qp->sq_next = qp->sq_una;
	qp->req.rd_outstanding = 0;
	qp->req.since_ack_req = 0;
}

static uint64_t own_deadline(const struct vb_qp *qp)
{
	if (qp->req.wait_until_ns)
		return qp->req.wait_until_ns;
	return qp->req.ack_deadline_ns ? qp->req.ack_deadline_ns : VB_NEVER;
}

uint64_t vb_requester_deadline(const struct vb_qp *qp)
{
	return VB_MIN(own_deadline(qp), vb_watch_deadline(qp));
}

/* note_turn - of UC or UD, and when it should have come. Who gets the processor late has others
 * beside him that want it; the receiver may be another program of this machine, and wait for it
 * too, while its buffer fills. */
static void note_turn(struct vb_nic *nic, uint64_t due_ns, uint64_t now_ns)
{
	if (now_ns - due_ns > LATE_NS)
		nic->late_until_ns = now_ns + LATE_FOR_NS;
}

void vb_requester_on_deadline(struct vb_qp *qp, uint64_t now_ns)
{
	if (vb_watch_deadline(qp) <= now_ns)
		vb_watch_on_deadline(qp, now_ns);
	if (own_deadline(qp) > now_ns)
		return;
	if (qp->req.wait_until_ns) {
		if (!vb_qp_is_reliable(qp))
			note_turn(qp->nic, qp->req.wait_until_ns, now_ns);
		qp->req.wait_until_ns = 0;
	} else
		vb_rc_on_timeout(qp, now_ns);
}

void vb_requester_check_drained(struct vb_qp *qp)
{
	if (qp->state != VB_QPS_SQD || qp->sqd_notified || qp->sq_una != qp->req.sq_assigned)
		return;
	if (qp->sq_una != qp->sq_head && vb_qp_wqe(qp, qp->sq_una)->moved)
		return;
	qp->sqd_notified = true;
	qp->attr.sq_draining = false;
	if (qp->attr.en_sqd_async_notify)
		vb_nic_raise(qp->nic, VB_EVENT_SQ_DRAINED, qp, NULL, NULL);
}

/* --- one request ------------------------------------------------------------------------- */

static bool is_atomic(const struct vb_send_wqe *w)
{
	return w->opcode == VB_WR_ATOMIC_CMP_AND_SWP || w->opcode == VB_WR_ATOMIC_FETCH_AND_ADD;
}

static bool is_answered(const struct vb_send_wqe *w)
{
	return vb_wr_is_answered(w->opcode);
}

static bool is_read(const struct vb_send_wqe *w)
{
	return w->opcode == VB_WR_RDMA_READ;
}

/* local_iovec - the request's local bytes [offset, offset + length). -1: refused, see reason. */
static int local_iovec(const struct vb_qp *qp, const struct vb_send_wqe *w, uint32_t offset,
		       uint32_t length, struct iovec *out, struct vb_reason *reason)
{
	if (w->flags & VB_SEND_INLINE) {
		out[0] = (struct iovec){w->inline_data + offset, length};
		return length > 0;
	}
	return vb_gather(qp, w->sges, w->num_sge, offset, length,
			 is_read(w) || is_atomic(w) ? VB_ACCESS_LOCAL_WRITE : 0, out, reason);
}

/* payload_iovec - the same of what a packet carries, as vb_gather_payload. */
static int payload_iovec(const struct vb_qp *qp, const struct vb_send_wqe *w, uint32_t offset,
			 uint32_t length, struct iovec *out, struct vb_reason *reason)
{
	if (w->flags & VB_SEND_INLINE)
		return local_iovec(qp, w, offset, length, out, reason);
	return vb_gather_payload(qp, w->sges, w->num_sge, offset, length, out, reason);
}

/* fail_locally - the request at sq_next can't be sent: it fails once it is the oldest. */
static enum outcome fail_locally(struct vb_qp *qp, struct vb_send_wqe *w, enum vb_status status,
				 const struct vb_reason *reason)
{
	w->status_known = true;
	w->status = (uint8_t)status;
	if (qp->reason.check == VB_CHECK_NONE)
		qp->reason = *reason;
	if (qp->sq_una != qp->sq_next)
		return WAIT;
	vb_qp_fail_send(qp, status, &qp->reason);
	return FAILED;
}

static enum outcome fail_known(struct vb_qp *qp, struct vb_send_wqe *w)
{
	struct vb_reason reason = vb_qp_reason(qp, VB_CHECK_MESSAGE_TOO_LONG);

	reason.value[0] = w->length;
	reason.value[1] = w->ah ? VB_MIN(w->ah->path.segment_max, VB_MAX_PATH_MTU) : VB_MAX_MESSAGE;
	return fail_locally(qp, w, (enum vb_status)w->status, &reason);
}

static bool may_go_direct(const struct vb_qp *qp, const struct vb_send_wqe *w)
{
	/* An XRC target's region is judged in its SRQ's PD: not what is published. */
	return qp->path.direct && qp->nic->ops.direct && qp->type != VB_QPT_XRC_SEND &&
	       !w->by_packets && w->length > 0 &&
	       (w->opcode == VB_WR_RDMA_WRITE || (is_read(w) && qp->attr.max_rd_atomic > 0));
}

/* has_plain_memory - the copy can reach all of the request's own memory: a null region is none, and
 * what is on demand may be gone, which a copy without the kernel would not survive. */
static bool has_plain_memory(const struct vb_qp *qp, const struct vb_send_wqe *w)
{
	const struct vb_nic *nic = qp->nic;
	const bool touches = nic->config.direct_touches || vb_nic_find_qp(nic, qp->attr.dest_qpn);

	for (uint32_t i = 0; i < w->num_sge; i++) {
		const struct vb_mr *mr = nic->mrs[vb_key_slot(w->sges[i].lkey)];

		if (mr && ((mr->kind == VB_MR_NULL && is_read(w)) ||
			   (mr->access & VB_ACCESS_ON_DEMAND && touches)))
			return false;
	}
	return true;
}

/* refuse_copy - the request becomes one of packets. */
static void refuse_copy(struct vb_qp *qp, struct vb_send_wqe *w)
{
	qp->nic->counters.direct_refused++;
	w->by_packets = true;
	w->moved = 0;
}

/* copy_piece - of the request, which is the oldest, from or to these parts. It is complete then, or
 * has become one of packets, or another piece is left. The bytes moved. */
static uint32_t copy_piece(struct vb_qp *qp, struct vb_send_wqe *w, const struct iovec *iov,
			   int parts, uint32_t piece)
{
	struct vb_nic *nic = qp->nic;
	const ssize_t moved =
		nic->ops.direct(nic->env, qp, is_read(w) ? VB_DIRECT_READ : VB_DIRECT_WRITE,
				w->rkey, w->remote_addr + w->moved, iov, parts, piece);

	if (moved <= 0) {
		refuse_copy(qp, w);
		return 0;
	}
	VB_ASSERT((uint64_t)moved <= piece);
	nic->counters.direct_bytes += (uint64_t)moved;
	w->moved += (uint32_t)moved;
	if (w->moved == w->length)
		vb_qp_complete_send(qp, VB_WC_SUCCESS, NULL);
	return (uint32_t)moved;
}

/* move_directly - one piece of the copy. SENT: the request is complete, or has become one of
 * packets. */
static enum outcome move_directly(struct vb_qp *qp, struct vb_send_wqe *w, uint32_t *budget)
{
	const uint32_t piece = VB_MIN(w->length - w->moved, DIRECT_PIECE);
	struct iovec iov[VB_MAX_SGE];
	struct vb_reason reason = {0};
	uint32_t moved;
	int parts;

	if (qp->sq_una != qp->sq_next)
		return WAIT;
	parts = local_iovec(qp, w, w->moved, piece, iov, &reason);
	if (parts < 0)
		return fail_locally(qp, w, VB_WC_LOC_PROT_ERR, &reason);
	if (!has_plain_memory(qp, w)) {
		refuse_copy(qp, w);
		return SENT;
	}
	moved = copy_piece(qp, w, iov, parts, piece);
	if (moved)
		*budget -= VB_MIN(*budget, 1 + moved / (DIRECT_PIECE / 16));
	return SENT;
}

/* An atomic is tried at once or not at all: where something before it is unfinished, packets keep
 * several under way. */
static bool may_do_atomic(const struct vb_qp *qp, const struct vb_send_wqe *w)
{
	return is_atomic(w) && qp->path.direct && qp->nic->ops.direct_atomic &&
	       qp->type != VB_QPT_XRC_SEND && !w->by_packets && qp->sq_una == qp->sq_next &&
	       qp->attr.max_rd_atomic > 0;
}

/* do_atomic - SENT: the request is complete, or has become one of packets. */
static enum outcome do_atomic(struct vb_qp *qp, struct vb_send_wqe *w)
{
	const bool swap = w->opcode == VB_WR_ATOMIC_CMP_AND_SWP;
	const struct vb_atomic op = {
		.kind = swap ? VB_ATOMIC_COMPARE_SWAP : VB_ATOMIC_ADD,
		.operand = swap ? w->swap : w->compare_add,
		.compare = w->compare_add,
	};
	struct vb_nic *nic = qp->nic;
	struct iovec iov[VB_MAX_SGE];
	struct vb_reason reason = {0};
	uint64_t before;

	if (local_iovec(qp, w, 0, w->length, iov, &reason) < 0)
		return fail_locally(qp, w, VB_WC_LOC_PROT_ERR, &reason);
	if (nic->ops.direct_atomic(nic->env, qp, w->rkey, w->remote_addr, &op, &before) != 0) {
		w->by_packets = true;
		return SENT;
	}
	if (vb_scatter(qp, w->sges, w->num_sge, 0, (const uint8_t *)&before, sizeof(before),
		       &reason))
		vb_qp_complete_send(qp, VB_WC_SUCCESS, NULL);
	else
		return fail_locally(qp, w, VB_WC_LOC_PROT_ERR, &reason);
	return SENT;
}

static bool is_one_packet(const struct vb_send_wqe *w)
{
	return is_atomic(w) || w->opcode == VB_WR_FLUSH || w->length == 0;
}

static bool is_of_windows(const struct vb_send_wqe *w)
{
	return w->opcode == VB_WR_BIND_MW || w->opcode == VB_WR_LOCAL_INV;
}

/* change_window - the request at sq_next needs no packets. A fence asks for nothing more than what
 * holds for it anyway. */
static enum outcome change_window(struct vb_qp *qp, struct vb_send_wqe *w)
{
	struct vb_reason reason = vb_qp_reason(qp, VB_CHECK_INVALIDATE);
	bool done;

	if (qp->sq_una != qp->sq_next)
		return WAIT;
	if (w->opcode == VB_WR_BIND_MW) {
		done = vb_mw_bind(qp, &w->bind, &reason);
	} else {
		reason.value[0] = w->imm;
		done = vb_mw_may_invalidate(qp, w->imm) && vb_mw_invalidate(qp, w->imm) == 0;
	}
	if (!done)
		return fail_locally(qp, w, VB_WC_MW_BIND_ERR, &reason);
	vb_qp_complete_send(qp, VB_WC_SUCCESS, NULL);
	return SENT;
}

/* is_judged_at_once - the memory of the whole request is looked up before its first packet. Where
 * there is one packet, and it carries that memory, making it is early enough. */
static bool is_judged_at_once(const struct vb_send_wqe *w)
{
	return w->num_sge > 0 && (w->packets > 1 || is_answered(w));
}

/* begin - the request at sq_next gets its PSNs. WAIT: not yet. */
static enum outcome begin(struct vb_qp *qp, struct vb_send_wqe *w)
{
	struct iovec iov[VB_MAX_SGE];
	struct vb_reason reason = {0};

	if ((w->flags & VB_SEND_FENCE) && qp->req.rd_outstanding > 0)
		return WAIT;
	if (is_answered(w) && qp->attr.max_rd_atomic == 0) {
		reason = vb_qp_reason(qp, VB_CHECK_NO_RD_ATOMIC);
		reason.value[0] = w->opcode;
		return fail_locally(qp, w, VB_WC_LOC_QP_OP_ERR, &reason);
	}
	w->psn = qp->req.end_psn;
	w->packets = is_one_packet(w) ? 1 : (w->length - 1) / qp->mtu + 1;
	if (is_judged_at_once(w) && local_iovec(qp, w, 0, w->length, iov, &reason) < 0)
		return fail_locally(qp, w, VB_WC_LOC_PROT_ERR, &reason);
	w->lent = vb_lend_may(qp, w);
	qp->req.sq_assigned++;
	return SENT;
}

/* --- one packet -------------------------------------------------------------------------- */

/* window_is_open - RC: the peer has room for the packet, as far as its acknowledgements tell. */
static bool window_is_open(const struct vb_qp *qp, const struct vb_send_wqe *w,
			   const struct vb_outgoing *out)
{
	const struct vb_requester *req = &qp->req;
	uint32_t in_flight = (req->nxt_psn - req->una_psn) & VB_PSN_MASK;

	if (is_answered(w) && req->rd_outstanding >= qp->attr.max_rd_atomic)
		return false;
	return in_flight == 0 || in_flight + out->psns <= req->cwnd;
}

/* in_turn - UC and UD have no acknowledgements that would hold them back: what the peer can't
 * buffer is lost for good. All of them together send a path's pace in a PACE_NS, or what it
 * bears where turns come late. False: wait_until_ns says when to go on. */
static bool in_turn(struct vb_qp *qp, const struct vb_path *path, uint64_t now_ns)
{
	struct vb_nic *nic = qp->nic;

	if (!path->pace)
		return true;
	if (nic->paced_until_ns < now_ns)
		nic->paced_until_ns = now_ns;
	if (nic->paced_until_ns - now_ns > PACE_NS) {
		qp->req.wait_until_ns = nic->paced_until_ns - PACE_NS + PACE_NS / 4;
		vb_nic_arm_timer(nic, qp, qp->req.wait_until_ns);
		return false;
	}
	return true;
}

/* start_timer - something is on its way, and must be acknowledged in time. */
static inline void start_timer(struct vb_qp *qp, uint64_t now_ns)
{
	struct vb_requester *req = &qp->req;
	uint64_t timeout;

	if (req->ack_deadline_ns)
		return;
	timeout = vb_ack_timeout_ns(qp->nic, qp->attr.timeout);
	vb_requester_await(qp, timeout ? now_ns + timeout : 0);
	vb_nic_arm_timer(qp->nic, qp, vb_requester_deadline(qp));
}

void vb_requester_start_timer(struct vb_qp *qp, uint64_t now_ns)
{
	if (qp->req.nxt_psn != qp->req.una_psn)
		start_timer(qp, now_ns);
}

static void note_sent(struct vb_qp *qp, const struct vb_send_wqe *w, const struct vb_outgoing *out,
		      uint64_t now_ns)
{
	struct vb_requester *req = &qp->req;

	req->nxt_psn = vb_psn_add(req->nxt_psn, out->psns);
	if (vb_psn_before(req->end_psn, req->nxt_psn))
		req->end_psn = req->nxt_psn;
	req->since_ack_req = out->h.ack_req ? 0 : req->since_ack_req + 1;
	if (is_answered(w))
		req->rd_outstanding++;
	if (req->nxt_psn == vb_psn_add(w->psn, w->packets))
		qp->sq_next++;
	if (!vb_qp_is_reliable(qp)) {
		/* Unreliable: a request is done when its last packet has gone. */
		req->una_psn = req->nxt_psn;
		if (qp->sq_next != qp->sq_una)
			vb_qp_complete_send(qp, VB_WC_SUCCESS, NULL);
	} else {
		start_timer(qp, now_ns);
	}
}

/* hand_out - to the carrier. What it refuses for good counts as lost on the way. */
static inline enum outcome hand_out(struct vb_qp *qp, const struct vb_path *path,
				    const struct vb_tx *tx)
{
	struct vb_nic *nic = qp->nic;
	const int r = nic->ops.tx(nic->env, path, tx);

	if (r == -EAGAIN) {
		vb_nic_block(nic, qp);
		return WAIT;
	}
	if (r < 0)
		nic->counters.tx_dropped++;
	else
		nic->counters.tx_packets++;
	return SENT;
}

/* send_lent - a packet that names its payload. */
static enum outcome send_lent(struct vb_qp *qp, struct vb_send_wqe *w,
			      const struct vb_outgoing *out, uint64_t now_ns)
{
	struct vb_lent_part parts[VB_LENT_PARTS];
	struct vb_lent lent;
	const struct vb_tx tx = {.headers = &out->h, .lent = &lent, .payload_bytes = out->bytes};

	if (!vb_lend(qp, w, out->offset, out->bytes, parts, &lent)) {
		w->lent = false;
		return SENT;
	}
	if (hand_out(qp, &qp->path, &tx) == WAIT)
		return WAIT;
	note_sent(qp, w, out, now_ns);
	return SENT;
}

static enum outcome send_packet(struct vb_qp *qp, struct vb_send_wqe *w, uint64_t now_ns)
{
	const struct vb_path *path = w->ah ? &w->ah->path : &qp->path;
	struct vb_nic *nic = qp->nic;
	struct iovec iov[VB_MAX_SGE];
	struct vb_reason reason = {0};
	struct vb_outgoing out;
	int parts = 0;

	vb_build(qp, w, qp->req.nxt_psn, &out);
	if (vb_qp_is_reliable(qp) ? !window_is_open(qp, w, &out) : !in_turn(qp, path, now_ns))
		return WAIT;
	if (w->lent)
		return send_lent(qp, w, &out, now_ns);
	if (out.bytes > 0)
		parts = payload_iovec(qp, w, out.offset, out.bytes, iov, &reason);
	if (parts < 0)
		return fail_locally(qp, w, VB_WC_LOC_PROT_ERR, &reason);

	const struct vb_tx tx = {
		.headers = &out.h,
		.payload = iov,
		.payload_parts = parts,
		.payload_bytes = out.bytes,
	};
	if (hand_out(qp, path, &tx) == WAIT)
		return WAIT;
	if (!vb_qp_is_reliable(qp) && path->pace)
		nic->paced_until_ns += (out.bytes + PACE_OVERHEAD) * PACE_NS /
				       (now_ns < nic->late_until_ns ? path->pace_late : path->pace);
	note_sent(qp, w, &out, now_ns);
	return SENT;
}

/* --- the middle of a long message -------------------------------------------------------- */

/* middles - packets that may go now and are in the middle of the request at sq_next, all of them in
 * one piece of ordinary memory, at *from. 0: something is not so simple. */
static uint32_t middles(const struct vb_qp *qp, const struct vb_send_wqe *w, uint32_t budget,
			const uint8_t **from)
{
	const uint32_t in_flight = (qp->req.nxt_psn - qp->req.una_psn) & VB_PSN_MASK;
	const uint32_t index = (qp->req.nxt_psn - w->psn) & VB_PSN_MASK;
	uint32_t n;

	if (qp->type != VB_QPT_RC || index == 0 || index + 1 >= w->packets || w->num_sge != 1 ||
	    w->flags & VB_SEND_INLINE || w->lent || is_answered(w) || in_flight >= qp->req.cwnd)
		return 0;
	n = VB_MIN(budget, w->packets - 1 - index);
	n = VB_MIN(n, qp->req.cwnd - in_flight);
	*from = vb_ordinary_memory(qp->nic, vb_send_pd(qp), w->sges, index * qp->mtu, n * qp->mtu,
				   0);
	return *from ? n : 0;
}

/* send_middles - what send_packet() does with each of them. */
static enum outcome send_middles(struct vb_qp *qp, const struct vb_send_wqe *w, uint32_t n,
				 const uint8_t *from, uint64_t now_ns)
{
	struct vb_requester *req = &qp->req;
	struct iovec iov = {(void *)(uintptr_t)from, qp->mtu};
	struct vb_headers h = {
		.opcode = vb_opcode(VB_TRANSPORT_RC, vb_send_or_write(w, false, false)),
		.pkey = VB_DEFAULT_PKEY,
		.qpn = qp->attr.dest_qpn,
	};
	const struct vb_tx tx = {
		.headers = &h, .payload = &iov, .payload_parts = 1, .payload_bytes = qp->mtu};

	for (uint32_t i = 0; i < n; i++) {
		h.psn = req->nxt_psn;
		h.ack_req = req->since_ack_req + 1 >= req->cwnd / 4;
		if (hand_out(qp, &qp->path, &tx) == WAIT)
			return WAIT;
		req->nxt_psn = vb_psn_add(req->nxt_psn, 1);
		req->since_ack_req = h.ack_req ? 0 : req->since_ack_req + 1;
		if (vb_psn_before(req->end_psn, req->nxt_psn))
			req->end_psn = req->nxt_psn;
		start_timer(qp, now_ns);
		iov.iov_base = (uint8_t *)iov.iov_base + qp->mtu;
	}
	return SENT;
}

/* --- a short message --------------------------------------------------------------------- */

static inline bool is_plain_send(const struct vb_send_wqe *w)
{
	return w->opcode == VB_WR_SEND || w->opcode == VB_WR_SEND_WITH_IMM;
}

/* only_piece - where the bytes of a message of RC lie that begins now, if it is a SEND of one
 * packet and one piece of ordinary memory for which there is room in the window. NULL: it is
 * something else, or not allowed, and takes the long way. */
static const uint8_t *only_piece(const struct vb_qp *qp, const struct vb_send_wqe *w)
{
	const uint32_t in_flight = (qp->req.nxt_psn - qp->req.una_psn) & VB_PSN_MASK;

	if (qp->type != VB_QPT_RC || !is_plain_send(w) || w->length - 1 >= qp->mtu ||
	    w->flags & VB_SEND_FENCE || in_flight >= qp->req.cwnd)
		return NULL;
	if (w->flags & VB_SEND_INLINE)
		return w->inline_data;
	if (w->num_sge != 1)
		return NULL;
	return vb_ordinary_memory(qp->nic, vb_send_pd(qp), w->sges, 0, w->length, 0);
}

/* send_short - what begin() and send_packet() do with such a message, but for the timer. */
static enum outcome send_short(struct vb_qp *qp, struct vb_send_wqe *w, const uint8_t *from)
{
	const bool imm = w->opcode == VB_WR_SEND_WITH_IMM;
	const struct iovec iov = {(void *)(uintptr_t)from, w->length};
	const struct vb_headers h = {
		.opcode = vb_opcode(VB_TRANSPORT_RC, imm ? VB_OP_SEND_ONLY_IMM : VB_OP_SEND_ONLY),
		.solicited = w->flags & VB_SEND_SOLICITED,
		.pad = (uint8_t)(-w->length & 3),
		.pkey = VB_DEFAULT_PKEY,
		.ack_req = true,
		.qpn = qp->attr.dest_qpn,
		.psn = qp->req.end_psn,
		.imm = w->imm,
	};
	const struct vb_tx tx = {
		.headers = &h, .payload = &iov, .payload_parts = 1, .payload_bytes = w->length};

	w->psn = qp->req.end_psn;
	w->packets = 1;
	qp->req.sq_assigned++;
	if (hand_out(qp, &qp->path, &tx) == WAIT)
		return WAIT;
	qp->req.nxt_psn = qp->req.end_psn = vb_psn_add(qp->req.end_psn, 1);
	qp->req.since_ack_req = 0;
	qp->sq_next++;
	return SENT;
}

/* copies_at_once - such a WRITE or READ of one piece of ordinary memory. False: it is something
 * else, or not done. */
static bool copies_at_once(struct vb_qp *qp, struct vb_send_wqe *w)
{
	struct iovec iov = {w->inline_data, w->length};

	if (!may_go_direct(qp, w) || w->length > AT_ONCE_MAX)
		return false;
	if (!(w->flags & VB_SEND_INLINE)) {
		if (w->num_sge != 1)
			return false;
		iov.iov_base = vb_ordinary_memory(qp->nic, vb_send_pd(qp), w->sges, 0, w->length,
						  is_read(w) ? VB_ACCESS_LOCAL_WRITE : 0);
	}
	return iov.iov_base && copy_piece(qp, w, &iov, 1, w->length) == iov.iov_len;
}

/* A carrier of pieces hands each packet on as it comes; one that fills datagrams waits for more.
 * Without the time: a timer that is to be started is the next run's. */
bool vb_requester_sends_at_once(struct vb_qp *qp)
{
	const struct vb_requester *req = &qp->req;
	struct vb_send_wqe *w = vb_qp_wqe(qp, qp->sq_next);
	const uint8_t *from;

	if (!qp->path.own_segment || qp->state != VB_QPS_RTS || qp->sq_head - qp->sq_next != 1 ||
	    qp->sq_next != req->sq_assigned || req->nxt_psn != req->end_psn || qp->blocked ||
	    req->wait_until_ns || w->status_known)
		return false;
	if (qp->sq_una == qp->sq_next && copies_at_once(qp, w))
		return true;
	from = only_piece(qp, w);
	if (!from)
		return false;
	(void)send_short(qp, w, from);
	if (!qp->blocked && !req->ack_deadline_ns)
		vb_nic_make_ready_at_leisure(qp->nic, qp);
	return true;
}

bool vb_requester_goes_on(const struct vb_qp *qp)
{
	return qp->type == VB_QPT_RC && qp->req.ack_deadline_ns && qp->sq_head - qp->sq_next == 1 &&
	       is_plain_send(vb_qp_wqe(qp, qp->sq_next));
}

static bool state_lets_send(const struct vb_qp *qp, const struct vb_send_wqe *w)
{
	if (qp->state == VB_QPS_RTS)
		return true;
	/* SQD: what has begun goes on, nothing new begins (IBTA 10.3.1.7). */
	return qp->state == VB_QPS_SQD && (qp->sq_next != qp->req.sq_assigned || w->moved > 0);
}

/* turn_now - packets that may go in this turn: of a long message no more than the whole trains that
 * the window has room for. None, where there is room for less than a train and half the window is
 * under way: that will be acknowledged, and a part of a train costs as much as all of it. */
static uint32_t turn_now(const struct vb_qp *qp)
{
	const uint32_t turn = vb_turn(qp), packets = vb_train(qp), cwnd = qp->req.cwnd;
	const uint32_t in_flight = (qp->req.nxt_psn - qp->req.una_psn) & VB_PSN_MASK;
	const uint32_t room = cwnd - VB_MIN(cwnd, in_flight);
	const struct vb_send_wqe *w;
	uint32_t left;

	if (qp->type != VB_QPT_RC || qp->sq_next == qp->sq_head || room >= turn)
		return turn;
	w = vb_qp_wqe(qp, qp->sq_next);
	left = w->length / qp->mtu;
	if (qp->sq_next != qp->req.sq_assigned)
		left = (w->psn + w->packets - qp->req.nxt_psn) & VB_PSN_MASK;
	if (is_answered(w) || left <= room)
		return turn;
	if (room >= packets)
		return room - room % packets;
	if (in_flight < cwnd / 2)
		return turn;
	/* The window became narrow meanwhile, and nothing that is under way asks: these will. */
	return in_flight > qp->req.since_ack_req ? 0 : room;
}

bool vb_requester_run(struct vb_qp *qp, uint64_t now_ns)
{
	enum outcome outcome = SENT;
	uint32_t budget;

	if (qp->req.wait_until_ns)
		return false;
	vb_requester_start_timer(qp, now_ns); /* of what was sent at once */
	budget = qp->sq_next == qp->sq_head ? 0 : turn_now(qp);
	while (outcome == SENT && budget > 0 && qp->sq_next != qp->sq_head) {
		struct vb_send_wqe *w = vb_qp_wqe(qp, qp->sq_next);
		const uint8_t *from;
		uint32_t n;

		if (!state_lets_send(qp, w))
			break;
		if (w->status_known) {
			outcome = fail_known(qp, w);
		} else if (qp->sq_next != qp->req.sq_assigned &&
			   (n = middles(qp, w, budget, &from)) > 0) {
			outcome = send_middles(qp, w, n, from, now_ns);
			budget -= n;
		} else if (qp->sq_next != qp->req.sq_assigned) {
			outcome = send_packet(qp, w, now_ns);
			budget--;
		} else if ((from = only_piece(qp, w)) != NULL) {
			outcome = send_short(qp, w, from);
			vb_requester_start_timer(qp, now_ns);
			budget--;
		} else if (is_of_windows(w)) {
			outcome = change_window(qp, w);
			budget--;
		} else if (may_go_direct(qp, w)) {
			outcome = move_directly(qp, w, &budget);
		} else if (may_do_atomic(qp, w)) {
			outcome = do_atomic(qp, w);
			budget--;
		} else {
			outcome = begin(qp, w);
		}
	}
	vb_requester_check_drained(qp);
	return outcome == SENT && budget == 0 && qp->sq_next != qp->sq_head && turn_now(qp) > 0;
}
