/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * requests.c - work requests drawn from the input, the account of their completions, and forged
 * packets.
 *
 * The account of a queue: a request's number is its wr_id. Completions of a send queue may leave
 * out only requests that were not signalled; those of a receive queue leave out none; a shared
 * receive queue's come in any order. A queue whose CQ overran keeps no promises any more.
 */
#include <errno.h>
#include <string.h>

#include "base/psn.h"
#include "world.h"
#include "world_private.h"

enum { PENDING, PENDING_SILENT, DONE };

/* --- accounts ---------------------------------------------------------------------------- */

static void note_posted(struct fuzz_account *account, bool silent)
{
	account->state[account->posted++] = silent ? PENDING_SILENT : PENDING;
}

static bool is_full(const struct fuzz_account *account)
{
	return account->posted == FUZZ_REQUESTS;
}

static void note_completed(struct fuzz_account *account, uint64_t id)
{
	VB_ASSERT(id >= account->completed && id < account->posted);
	for (; account->completed < id; account->completed++)
		VB_ASSERT(account->state[account->completed] == PENDING_SILENT);
	account->completed++;
}

static void note_srq_completed(struct fuzz_account *account, uint64_t id)
{
	VB_ASSERT(id < account->posted && account->state[id] == PENDING);
	account->state[id] = DONE;
}

static void judge(struct fuzz_side *side, const struct vb_cqe *cqe)
{
	uintptr_t kind;

	if (!cqe->qp) { /* a receive of XRC; the queue pair may be gone */
		VB_ASSERT(!cqe->is_send);
		note_srq_completed(&side->xrc_recvs, cqe->wr_id);
		return;
	}
	kind = (uintptr_t)cqe->qp->user;
	VB_ASSERT(kind < FUZZ_KINDS && cqe->qp == side->qp[kind] && cqe->qpn == cqe->qp->qpn);
	VB_ASSERT((cqe->status == VB_WC_SUCCESS) == (cqe->vendor_err == VB_CHECK_NONE));
	if (cqe->is_send)
		note_completed(&side->sends[kind], cqe->wr_id);
	else if (cqe->qp->srq)
		note_srq_completed(&side->srq_recvs, cqe->wr_id);
	else
		note_completed(&side->recvs[kind], cqe->wr_id);
	if (!cqe->is_send && cqe->status == VB_WC_SUCCESS)
		VB_ASSERT(cqe->byte_len <= VB_MAX_MESSAGE);
}

static void poll_one(struct fuzz_side *side, struct vb_cq *cq, int n)
{
	struct vb_cqe cqe;

	while (n-- > 0 && vb_cq_poll(cq, &cqe, 1) == 1)
		judge(side, &cqe);
}

void fuzz_poll(struct fuzz_side *side, int n)
{
	poll_one(side, side->send_cq, n);
	poll_one(side, side->recv_cq, n);
}

void fuzz_check_all_completed(const struct fuzz_side *side)
{
	for (int k = 0; k < FUZZ_KINDS; k++) {
		const struct fuzz_account *sends = &side->sends[k], *recvs = &side->recvs[k];

		for (uint32_t i = sends->completed; !side->send_cq->overrun && i < sends->posted;
		     i++)
			VB_ASSERT(sends->state[i] == PENDING_SILENT);
		VB_ASSERT(side->recv_cq->overrun || recvs->completed == recvs->posted);
	}
}

/* --- posting
 * --------------------------------------------------------------------------------------- */

static uint32_t draw_key(const struct fuzz_side *side, struct vb_fuzz_input *in, bool remote)
{
	uint8_t which = vb_fuzz_u8(in) % 16;
	const struct vb_mr *mr = side->mr[FUZZ_ALL_RIGHTS];

	if (which >= 1 && which < FUZZ_REGIONS)
		mr = side->mr[which];
	if (remote && (which == 6 || which == 7))
		return side->mw[which - 6]->shown.rkey;
	if (!mr || which == 4)
		return vb_fuzz_u32(in);
	if (which == 5) /* the wrong one of the two */
		remote = !remote;
	return remote ? mr->rkey : mr->lkey;
}

static uint32_t draw_length(struct vb_fuzz_input *in)
{
	uint8_t how = vb_fuzz_u8(in);

	if (how < 0xc0)
		return how;
	return how == 0xff ? vb_fuzz_u32(in) : (uint32_t)(how & 7) * 512 + vb_fuzz_u8(in);
}

/* Inside the memory, or just beyond its end. */
static uint64_t draw_address(const struct fuzz_side *side, struct vb_fuzz_input *in)
{
	return (uintptr_t)fuzz_memory(side) + vb_fuzz_u16(in) % (FUZZ_MEMORY + 8);
}

static uint32_t draw_sges(const struct fuzz_side *side, struct vb_fuzz_input *in,
			  struct vb_sge *sges)
{
	uint32_t count = vb_fuzz_u8(in) % (FUZZ_SGE_MAX + 1);

	for (uint32_t i = 0; i < count; i++) {
		sges[i].addr = draw_address(side, in);
		sges[i].length = draw_length(in);
		sges[i].lkey = draw_key(side, in, false);
	}
	return count;
}

/* Inline data is read at once, without a key: what the program points to must be there. */
static void make_readable(const struct fuzz_side *side, struct vb_sge *sges, uint32_t count)
{
	uint64_t end = (uintptr_t)fuzz_memory(side) + FUZZ_MEMORY + 8;

	for (uint32_t i = 0; i < count; i++)
		sges[i].length = (uint32_t)VB_MIN((uint64_t)sges[i].length, end - sges[i].addr);
}

static enum vb_wr_opcode draw_opcode(struct vb_fuzz_input *in)
{
	static const uint8_t others[] = {VB_WR_FLUSH, VB_WR_ATOMIC_WRITE, VB_WR_BIND_MW,
					 VB_WR_SEND_WITH_INV};
	uint32_t which = vb_fuzz_below(in, 8 + VB_ARRAY_SIZE(others));

	return (enum vb_wr_opcode)(which < 8 ? which : others[which - 8]);
}

/* A bind of what the drawn address and key say, or the key to invalidate. */
static void make_window_request(const struct fuzz_side *side, struct vb_send_wr *wr)
{
	const uint64_t offset =
		wr->remote_addr - (uintptr_t)fuzz_memory(&side->world->side[!side->index]);
	const struct vb_mr *mr = side->mr[wr->compare_add & 3];

	wr->imm = wr->rkey;
	if (wr->opcode == VB_WR_LOCAL_INV && wr->compare_add & 0x80)
		wr->imm = side->mw[1]->shown.rkey;
	if (wr->opcode != VB_WR_SEND_WITH_INV)
		wr->num_sge = 0;
	if (wr->opcode != VB_WR_BIND_MW)
		return;
	wr->bind = (struct vb_mw_bind){
		.rkey = side->mw[wr->compare_add >> 7]->shown.rkey ^ (wr->compare_add >> 2 & 3),
		.lkey = mr ? mr->lkey : wr->rkey,
		.access = offset & 0x2f,
		.addr = (uintptr_t)fuzz_memory(side) + offset,
		.length = wr->compare_add & 16 ? 0 : wr->compare_add * 16,
	};
}

void fuzz_post_send(struct fuzz_side *side, struct vb_fuzz_input *in)
{
	const struct fuzz_side *peer = fuzz_peer(side);
	struct vb_sge sges[FUZZ_SGE_MAX];
	uint32_t kind = vb_fuzz_below(in, FUZZ_KINDS);
	struct vb_qp *qp = side->qp[kind];
	struct fuzz_account *account = &side->sends[kind];
	struct vb_send_wr wr = {
		.wr_id = account->posted,
		.sges = sges,
		.imm = account->posted,
	};

	if (is_full(account))
		return;
	wr.opcode = draw_opcode(in);
	wr.flags = vb_fuzz_below(in, 16);
	wr.num_sge = draw_sges(side, in, sges);
	if (kind == FUZZ_UD) {
		wr.ah = side->ah;
		wr.remote_qpn = peer->qp[FUZZ_UD]->qpn;
		wr.remote_qkey = qp->attr.qkey;
	} else if (wr.opcode != VB_WR_SEND && wr.opcode != VB_WR_SEND_WITH_IMM) {
		wr.remote_addr = draw_address(peer, in);
		wr.rkey = draw_key(peer, in, true);
		wr.compare_add = vb_fuzz_u8(in);
		wr.swap = wr.compare_add + 1;
		wr.flush.placement = (uint8_t)wr.compare_add & 3;
		wr.flush.selectivity = (uint8_t)(wr.compare_add >> 2 & 1);
		wr.flush.length = (uint32_t)wr.compare_add << 5;
	}
	if (wr.flags & VB_SEND_INLINE)
		make_readable(side, sges, wr.num_sge);
	if (kind == FUZZ_XRC_SEND) /* now and then of nobody */
		wr.remote_srqn = peer->xrc_srq->srqn + (vb_fuzz_u8(in) == 0xff);
	if (wr.opcode >= VB_WR_LOCAL_INV && wr.opcode <= VB_WR_SEND_WITH_INV && kind != FUZZ_UD) {
		make_window_request(side, &wr);
	} else if (wr.opcode == VB_WR_FLUSH) {
		wr.num_sge = 0;
	} else if (wr.opcode >= VB_WR_ATOMIC_CMP_AND_SWP && wr.num_sge > 0) {
		wr.num_sge = 1;
		sges[0].length = 8;
	}
	if (vb_qp_post_send(qp, &wr) == 0)
		note_posted(account, !(wr.flags & VB_SEND_SIGNALED) && !qp->sq_sig_all);
}

void fuzz_post_recv(struct fuzz_side *side, struct vb_fuzz_input *in)
{
	struct vb_sge sges[FUZZ_SGE_MAX];
	uint32_t kind = vb_fuzz_below(in, FUZZ_KINDS);
	struct fuzz_account *account = &side->recvs[kind];
	struct vb_recv_wr wr = {.wr_id = account->posted, .sges = sges};

	wr.num_sge = draw_sges(side, in, sges);
	if (!is_full(account) && vb_qp_post_recv(side->qp[kind], &wr) == 0)
		note_posted(account, false);
}

void fuzz_post_srq(struct fuzz_side *side, struct vb_fuzz_input *in)
{
	struct vb_sge sges[FUZZ_SGE_MAX];
	const bool xrc = vb_fuzz_u8(in) & 1;
	struct fuzz_account *account = xrc ? &side->xrc_recvs : &side->srq_recvs;
	struct vb_srq *srq = xrc ? side->xrc_srq : side->srq;
	struct vb_recv_wr wr = {.wr_id = account->posted, .sges = sges};

	wr.num_sge = draw_sges(side, in, sges);
	if (srq && !is_full(account) && vb_srq_post(srq, &wr) == 0)
		note_posted(account, false);
}

bool fuzz_post_plain_recv(struct fuzz_side *side, enum fuzz_kind kind)
{
	struct vb_qp *qp = side->qp[kind];
	struct vb_srq *srq = kind == FUZZ_XRC_RECV ? side->xrc_srq : qp->srq;
	struct fuzz_account *account = kind == FUZZ_XRC_RECV ? &side->xrc_recvs
				       : qp->srq	     ? &side->srq_recvs
							     : &side->recvs[kind];
	const struct vb_mr *mr = side->mr[FUZZ_ALL_RIGHTS];
	struct vb_sge sge = {.addr = (uintptr_t)fuzz_memory(side),
			     .length = FUZZ_MEMORY,
			     .lkey = mr ? mr->lkey : 0};
	struct vb_recv_wr wr = {.wr_id = account->posted, .sges = &sge, .num_sge = 1};

	if (is_full(account) || (srq ? vb_srq_post(srq, &wr) : vb_qp_post_recv(qp, &wr)) != 0)
		return false;
	note_posted(account, false);
	return true;
}

/* --- forging
 * --------------------------------------------------------------------------------------- */

static uint32_t draw_psn(const struct vb_qp *qp, struct vb_fuzz_input *in)
{
	uint8_t how = vb_fuzz_u8(in);
	uint32_t near = (uint32_t)(how & 15) - 4;

	switch (how >> 6) {
	case 0:
		return qp->resp.epsn;
	case 1:
		return vb_psn_add(qp->resp.epsn, near);
	case 2:
		return vb_psn_add(qp->req.una_psn, near);
	default:
		return vb_psn_add(qp->req.end_psn, near - 4);
	}
}

static void draw_headers(const struct fuzz_side *side, const struct vb_qp *qp,
			 struct vb_fuzz_input *in, struct vb_headers *h)
{
	uint8_t bits = vb_fuzz_u8(in);
	uint32_t rkey = draw_key(side, in, true);
	uint64_t va = draw_address(side, in);

	h->pkey = VB_DEFAULT_PKEY;
	h->qpn = qp->qpn;
	h->psn = draw_psn(qp, in);
	h->ack_req = bits & 1;
	h->solicited = bits & 2;
	h->fecn = bits & 4;
	h->mig_req = bits & 8;
	h->tver = bits == 0xff;
	h->deth.qkey = bits & 16 ? 0 : qp->attr.qkey;
	h->deth.src_qpn = bits;
	h->reth.va = h->atomic.va = va;
	h->reth.rkey = h->atomic.rkey = h->invalidate_rkey = rkey;
	h->reth.length = draw_length(in);
	h->atomic.compare = h->atomic.swap_add = bits;
	h->aeth.syndrome = vb_fuzz_u8(in);
	h->aeth.msn = bits;
	h->imm = bits;
	h->srqn = bits & 32 ? bits : side->xrc_srq->srqn;
	h->feth.placement = bits & 3;
	h->feth.selectivity = bits >> 6;
}

size_t fuzz_forge(const struct fuzz_side *side, struct vb_fuzz_input *in, uint8_t *out)
{
	static const uint8_t transport[FUZZ_KINDS] = {VB_TRANSPORT_RC, VB_TRANSPORT_UC,
						      VB_TRANSPORT_UD, VB_TRANSPORT_XRC,
						      VB_TRANSPORT_XRC};
	uint8_t kind = (uint8_t)vb_fuzz_below(in, FUZZ_KINDS);
	const struct vb_qp *qp = side->qp[kind];
	struct vb_headers h = {
		.opcode = (uint8_t)(transport[kind] << 5 | vb_fuzz_below(in, 32)),
	};
	uint32_t payload;
	int bytes;

	draw_headers(side, qp, in, &h);
	payload = vb_fuzz_u8(in) & 1 ? qp->mtu : draw_length(in);
	payload = VB_MIN(payload, 16384u);
	h.pad = (uint8_t)(-payload & 3);
	bytes = vb_headers_encode(&h, out, FUZZ_PACKET_MAX);
	if (bytes < 0)
		return 0;
	memset(out + bytes, 0xc3, payload + h.pad);
	return (size_t)bytes + payload + h.pad;
}
