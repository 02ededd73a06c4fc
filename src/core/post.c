/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * post.c - work requests enter the queues (IBTA 10.8, 11.4.1): judged, copied, and the QP made
 * ready.
 *
 * What the program can get wrong by itself is refused here and changes nothing. What needs the
 * memory regions (keys, ranges, rights) is found out when the request's turn comes, and completes
 * with its status. A message that is too long for its QP is the program's fault too, but hardware
 * reports it as a completion: its status is noted here, and the requester completes it in its turn.
 */
#include <errno.h>
#include <string.h>

#include "core/beside.h"
#include "core/nic.h"
#include "core/transport.h"

#define ATOMIC_BYTES 8
#define FLAGS_ALL (VB_SEND_FENCE | VB_SEND_SIGNALED | VB_SEND_SOLICITED | VB_SEND_INLINE)
#define OPCODES_UD (1u << VB_WR_SEND | 1u << VB_WR_SEND_WITH_IMM)
#define OPCODES_OF_WINDOWS (1u << VB_WR_LOCAL_INV | 1u << VB_WR_BIND_MW)
#define OPCODES_UC                                                                                 \
	(OPCODES_UD | 1u << VB_WR_RDMA_WRITE | 1u << VB_WR_RDMA_WRITE_WITH_IMM | OPCODES_OF_WINDOWS)
#define OPCODES_RAW (1u << VB_WR_SEND | 1u << VB_WR_TSO)
#define OPCODES_ATOMIC (1u << VB_WR_ATOMIC_CMP_AND_SWP | 1u << VB_WR_ATOMIC_FETCH_AND_ADD)
#define OPCODES_PLACEMENT (1u << VB_WR_FLUSH | 1u << VB_WR_ATOMIC_WRITE)
#define OPCODES_RC                                                                                 \
	(OPCODES_UC | 1u << VB_WR_RDMA_READ | OPCODES_ATOMIC | OPCODES_PLACEMENT |                 \
	 1u << VB_WR_SEND_WITH_INV)
#define OPCODES_INLINE                                                                             \
	(OPCODES_UD | 1u << VB_WR_RDMA_WRITE | 1u << VB_WR_RDMA_WRITE_WITH_IMM |                   \
	 1u << VB_WR_ATOMIC_WRITE | 1u << VB_WR_SEND_WITH_INV)

static bool opcode_is_of(enum vb_wr_opcode opcode, uint32_t opcodes)
{
	return (unsigned int)opcode < 32 && opcodes & 1u << opcode;
}

static uint32_t opcodes_of_type(enum vb_qp_type type)
{
	switch (type) {
	case VB_QPT_RC:
	case VB_QPT_XRC_SEND:
		return OPCODES_RC;
	case VB_QPT_UC:
		return OPCODES_UC;
	case VB_QPT_UD:
		return OPCODES_UD;
	case VB_QPT_RAW_PACKET:
		return OPCODES_RAW;
	case VB_QPT_XRC_RECV:
		break;
	}
	return 0;
}

static bool state_takes_sends(enum vb_qp_state state)
{
	switch (state) {
	case VB_QPS_RESET:
	case VB_QPS_INIT:
	case VB_QPS_RTR:
		return false;
	case VB_QPS_RTS:
	case VB_QPS_SQD:
	case VB_QPS_SQE: /* this one and the next: accepted, and flushed */
	case VB_QPS_ERR:
		return true;
	}
	return false;
}

/* In 64 bits: two SGEs of 2 GiB are not zero bytes. */
static uint64_t sum_lengths(const struct vb_sge *sges, uint32_t num_sge)
{
	uint64_t length = 0;

	for (uint32_t i = 0; i < num_sge; i++)
		length += sges[i].length;
	return length;
}

static bool judge_flush(const struct vb_send_wr *wr)
{
	const uint8_t placements = VB_FLUSH_GLOBAL | VB_FLUSH_PERSISTENT;

	return wr->num_sge == 0 && wr->flush.placement && !(wr->flush.placement & ~placements) &&
	       wr->flush.selectivity <= VB_FLUSH_REGION;
}

/* is_unsuspicious - of what judge_send() asks, nothing concerns it. */
static inline bool is_unsuspicious(const struct vb_qp *qp, const struct vb_send_wr *wr,
				   uint64_t length)
{
	return qp->type == VB_QPT_RC && vb_qp_state(qp) == VB_QPS_RTS &&
	       opcode_is_of(wr->opcode, OPCODES_UD | 1u << VB_WR_RDMA_WRITE) &&
	       !(wr->flags & ~FLAGS_ALL) &&
	       (!(wr->flags & VB_SEND_INLINE) || length <= qp->cap.max_inline_data);
}

/* judge_send - whether the request can be posted to this QP at all; length is that of its SGEs. */
static bool judge_send(const struct vb_qp *qp, const struct vb_send_wr *wr, uint64_t length)
{
	if (is_unsuspicious(qp, wr, length))
		return true;
	if (!state_takes_sends(vb_qp_state(qp)) ||
	    !opcode_is_of(wr->opcode, opcodes_of_type(qp->type)))
		return false;
	if (wr->flags & ~(FLAGS_ALL | (qp->type == VB_QPT_RAW_PACKET ? VB_SEND_IP_CSUM : 0)))
		return false;
	/* Inline is for data that goes out (ibv_post_send(3)). */
	if (wr->flags & VB_SEND_INLINE && (length > qp->cap.max_inline_data ||
					   !opcode_is_of(wr->opcode, OPCODES_INLINE | OPCODES_RAW)))
		return false;
	if (wr->opcode == VB_WR_TSO &&
	    (!wr->tso_header || wr->tso_header_bytes == 0 || wr->tso_mss == 0 ||
	     wr->tso_header_bytes > qp->tso_header_max || length > VB_MAX_TSO))
		return false;
	if (opcode_is_of(wr->opcode, OPCODES_ATOMIC) &&
	    (wr->num_sge != 1 || length != ATOMIC_BYTES))
		return false;
	if (wr->opcode == VB_WR_ATOMIC_WRITE && length != ATOMIC_BYTES)
		return false;
	if (wr->opcode == VB_WR_FLUSH && !judge_flush(wr))
		return false;
	if (qp->type == VB_QPT_XRC_SEND && wr->remote_srqn > VB_QPN_MASK)
		return false;
	if (opcode_is_of(wr->opcode, OPCODES_OF_WINDOWS) && wr->num_sge)
		return false;
	if (qp->type == VB_QPT_UD &&
	    (!wr->ah || wr->ah->pd != qp->pd || wr->remote_qpn > VB_QPN_MASK))
		return false;
	return true;
}

/* The longest message: for UD one packet of the largest path MTU that the path takes. */
static uint32_t message_limit(const struct vb_qp *qp, const struct vb_send_wr *wr)
{
	uint32_t mtu = VB_MAX_PATH_MTU;

	if (qp->type != VB_QPT_UD)
		return VB_MAX_MESSAGE;
	while (mtu > wr->ah->path.segment_max && mtu > 256)
		mtu /= 2;
	return mtu;
}

static void copy_inline(struct vb_send_wqe *wqe, const struct vb_send_wr *wr)
{
	uint8_t *to = wqe->inline_data;

	for (uint32_t i = 0; i < wr->num_sge; i++) {
		const struct vb_sge *sge = &wr->sges[i];

		if (!sge->length)
			continue;
		memcpy(to, (const void *)(uintptr_t)sge->addr, sge->length);
		to += sge->length;
	}
}

/* fill_rest - what a SEND of RC does not have. */
static void fill_rest(const struct vb_qp *qp, struct vb_send_wqe *wqe, const struct vb_send_wr *wr)
{
	wqe->remote_addr = wr->remote_addr;
	wqe->rkey = wr->rkey;
	wqe->remote_qpn = wr->remote_qpn;
	wqe->remote_qkey = wr->remote_qkey;
	wqe->srqn = wr->remote_srqn;
	wqe->placement = wr->flush.placement;
	wqe->selectivity = wr->flush.selectivity;
	if (wr->opcode == VB_WR_BIND_MW) {
		wqe->bind = wr->bind;
	} else if (wr->opcode == VB_WR_TSO) {
		wqe->tso_mss = wr->tso_mss;
		wqe->tso_header_bytes = wr->tso_header_bytes;
		memcpy(vb_qp_tso_header(qp, wqe), wr->tso_header, wr->tso_header_bytes);
	} else {
		wqe->compare_add = wr->compare_add;
		wqe->swap = wr->swap;
	}
}

static void fill_wqe(const struct vb_qp *qp, struct vb_send_wqe *wqe, const struct vb_send_wr *wr,
		     uint64_t length)
{
	bool is_inline = wr->flags & VB_SEND_INLINE;
	bool too_long = length > message_limit(qp, wr);

	/* One by one, and not what is written before it is read: the requester's half of it. */
	wqe->wr_id = wr->wr_id;
	wqe->ah = qp->type == VB_QPT_UD ? wr->ah : NULL;
	wqe->length = (uint32_t)VB_MIN(length, (uint64_t)UINT32_MAX);
	wqe->num_sge = is_inline ? 0 : wr->num_sge;
	wqe->imm = wr->imm;
	wqe->moved = 0;
	wqe->opcode = (uint8_t)wr->opcode;
	wqe->flags = (uint8_t)(wr->flags | (qp->sq_sig_all ? VB_SEND_SIGNALED : 0));
	wqe->by_packets = false;
	wqe->lent = false;
	wqe->status_known = too_long;
	wqe->status = too_long ? VB_WC_LOC_LEN_ERR : VB_WC_SUCCESS;
	wqe->own = false;
	if (qp->type != VB_QPT_RC || !opcode_is_of(wr->opcode, OPCODES_UD))
		fill_rest(qp, wqe, wr);
	if (is_inline)
		copy_inline(wqe, wr);
	else
		for (uint32_t i = 0; i < wr->num_sge; i++) /* few: not worth a call */
			wqe->sges[i] = wr->sges[i];
}

/* check_send - whether the request may be posted to this QP; *length is that of its message. The
 * list is walked only if it has no more entries than were promised. */
static inline bool check_send(const struct vb_qp *qp, const struct vb_send_wr *wr, uint64_t *length)
{
	if (wr->num_sge > qp->cap.max_send_sge)
		return false;
	*length = sum_lengths(wr->sges, wr->num_sge);
	if (!judge_send(qp, wr, *length))
		return false;
	if (wr->opcode == VB_WR_FLUSH)
		*length = wr->flush.length;
	return true;
}

int vb_qp_check_send(const struct vb_qp *qp, const struct vb_send_wr *wr)
{
	uint64_t length;

	return check_send(qp, wr, &length) ? 0 : -EINVAL;
}

int vb_qp_post_send(struct vb_qp *qp, const struct vb_send_wr *wr)
{
	uint64_t length;

	vb_qp_foresee(qp);
	if (!check_send(qp, wr, &length))
		return -EINVAL;
	if (qp->sq_head - vb_qp_sq_free(qp) >= qp->cap.max_send_wr)
		return -ENOMEM;
	fill_wqe(qp, vb_qp_wqe(qp, qp->sq_head), wr, length);
	if (qp->type == VB_QPT_UD)
		vb_ah_get(wr->ah);
	qp->sq_head++;
	if (qp->state == VB_QPS_ERR)
		vb_qp_flush(qp);
	else if (qp->state == VB_QPS_SQE)
		vb_qp_flush_sends(qp);
	else if (!vb_requester_sends_at_once(qp))
		vb_nic_make_ready(qp->nic, qp);
	vb_qp_settle(qp);
	return 0;
}

int vb_qp_post_send_beside(struct vb_qp *qp, const struct vb_send_wr *wr)
{
	uint64_t length;

	if (!check_send(qp, wr, &length))
		return -EINVAL;
	if (vb_qp_sq_used(qp) >= qp->cap.max_send_wr)
		return -ENOMEM;
	fill_wqe(qp, vb_qp_wqe(qp, qp->sq_posted), wr, length);
	__atomic_store_n(&qp->sq_posted, qp->sq_posted + 1, __ATOMIC_RELEASE);
	return 0;
}

int vb_qp_post_recv(struct vb_qp *qp, const struct vb_recv_wr *wr)
{
	int rc;

	if (qp->state == VB_QPS_RESET || qp->srq || qp->type == VB_QPT_XRC_SEND || qp->xrcd)
		return -EINVAL;
	rc = vb_rq_post(&qp->rq, wr);
	if (rc < 0)
		return rc;
	if (qp->state == VB_QPS_ERR)
		vb_qp_flush(qp);
	vb_qp_settle(qp);
	return 0;
}
