/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * build.c - the packet of a send request with a PSN, as a pure function of both (but for AckReq,
 * which looks at what was sent before): RC, UC and UD (IBTA 9.2).
 */
#include "core/build.h"

#include "core/transport.h"

static bool is_atomic(const struct vb_send_wqe *w)
{
	return w->opcode == VB_WR_ATOMIC_CMP_AND_SWP || w->opcode == VB_WR_ATOMIC_FETCH_AND_ADD;
}

enum vb_operation vb_send_or_write(const struct vb_send_wqe *w, bool first, bool last)
{
	const bool write = w->opcode == VB_WR_RDMA_WRITE || w->opcode == VB_WR_RDMA_WRITE_WITH_IMM;
	const bool imm = w->opcode == VB_WR_SEND_WITH_IMM || w->opcode == VB_WR_RDMA_WRITE_WITH_IMM;

	if (last && w->opcode == VB_WR_SEND_WITH_INV)
		return first ? VB_OP_SEND_ONLY_INV : VB_OP_SEND_LAST_INV;
	if (first && last) {
		if (write)
			return imm ? VB_OP_WRITE_ONLY_IMM : VB_OP_WRITE_ONLY;
		return imm ? VB_OP_SEND_ONLY_IMM : VB_OP_SEND_ONLY;
	}
	if (first)
		return write ? VB_OP_WRITE_FIRST : VB_OP_SEND_FIRST;
	if (!last)
		return write ? VB_OP_WRITE_MIDDLE : VB_OP_SEND_MIDDLE;
	if (write)
		return imm ? VB_OP_WRITE_LAST_IMM : VB_OP_WRITE_LAST;
	return imm ? VB_OP_SEND_LAST_IMM : VB_OP_SEND_LAST;
}

static void build_read(const struct vb_qp *qp, const struct vb_send_wqe *w, uint32_t index,
		       struct vb_outgoing *out)
{
	uint32_t chunk = vb_read_chunk(qp);
	uint32_t end = VB_MIN(w->packets, (index / chunk + 1) * chunk);
	uint64_t from = (uint64_t)index * qp->mtu;
	uint64_t until = VB_MIN((uint64_t)end * qp->mtu, (uint64_t)w->length);

	out->h.opcode = vb_opcode(vb_qp_transport(qp), VB_OP_READ_REQUEST);
	out->h.ack_req = true;
	out->h.reth.va = w->remote_addr + from;
	out->h.reth.rkey = w->rkey;
	out->h.reth.length = (uint32_t)(until - from);
	out->psns = end - index;
}

static void build_atomic(const struct vb_qp *qp, const struct vb_send_wqe *w,
			 struct vb_outgoing *out)
{
	const bool swap = w->opcode == VB_WR_ATOMIC_CMP_AND_SWP;

	out->h.opcode = vb_opcode(vb_qp_transport(qp), swap ? VB_OP_CMP_SWP : VB_OP_FETCH_ADD);
	out->h.ack_req = true;
	out->h.atomic.va = w->remote_addr;
	out->h.atomic.rkey = w->rkey;
	out->h.atomic.swap_add = swap ? w->swap : w->compare_add;
	out->h.atomic.compare = swap ? w->compare_add : 0;
}

/* build_placement - FLUSH, or an ATOMIC WRITE with its eight bytes. */
static void build_placement(const struct vb_qp *qp, const struct vb_send_wqe *w,
			    struct vb_outgoing *out)
{
	const bool flush = w->opcode == VB_WR_FLUSH;

	out->h.opcode = vb_opcode(vb_qp_transport(qp), flush ? VB_OP_FLUSH : VB_OP_ATOMIC_WRITE);
	out->h.ack_req = true;
	out->h.feth.placement = w->placement;
	out->h.feth.selectivity = w->selectivity;
	out->h.reth.va = w->remote_addr;
	out->h.reth.rkey = w->rkey;
	out->h.reth.length = w->length;
	out->bytes = flush ? 0 : w->length;
}

static void build_send_or_write(const struct vb_qp *qp, const struct vb_send_wqe *w, uint32_t index,
				struct vb_outgoing *out)
{
	const uint32_t chunk = w->lent ? vb_lend_packets(qp) : 1;
	const uint32_t end = VB_MIN(w->packets, (index / chunk + 1) * chunk);
	const bool last = end == w->packets;

	out->psns = end - index;
	out->offset = index * qp->mtu;
	out->bytes = (last ? w->length : end * qp->mtu) - out->offset;
	out->h.opcode = vb_opcode(vb_qp_transport(qp), vb_send_or_write(w, index == 0, last));
	out->h.solicited = last && (w->flags & VB_SEND_SOLICITED);
	out->h.pad = (uint8_t)(-out->bytes & 3);
	out->h.imm = out->h.invalidate_rkey = w->imm;
	out->h.reth.va = w->remote_addr;
	out->h.reth.rkey = w->rkey;
	out->h.reth.length = w->length;
	if (vb_qp_is_reliable(qp))
		out->h.ack_req = last || w->lent || qp->req.since_ack_req + 1 >= qp->req.cwnd / 4;
	if (qp->type == VB_QPT_UD) {
		/* IBTA 10.2.5: a Q_Key with its top bit set stands for the QP's own. */
		out->h.deth.qkey = w->remote_qkey & 0x80000000u ? qp->attr.qkey : w->remote_qkey;
		out->h.deth.src_qpn = qp->qpn;
	}
}

void vb_build(const struct vb_qp *qp, const struct vb_send_wqe *w, uint32_t psn,
	      struct vb_outgoing *out)
{
	uint32_t index = (psn - w->psn) & VB_PSN_MASK;

	*out = (struct vb_outgoing){.psns = 1};
	out->h.pkey = VB_DEFAULT_PKEY;
	out->h.qpn = qp->type == VB_QPT_UD ? w->remote_qpn : qp->attr.dest_qpn;
	out->h.psn = psn;
	out->h.srqn = w->srqn;
	if (w->opcode == VB_WR_RDMA_READ)
		build_read(qp, w, index, out);
	else if (is_atomic(w))
		build_atomic(qp, w, out);
	else if (vb_wr_is_answered(w->opcode))
		build_placement(qp, w, out);
	else
		build_send_or_write(qp, w, index, out);
}
