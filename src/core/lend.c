/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lend.c - long SENDs between processes of one host, copied once.
 *
 *      sender                                    receiver
 *      packet: headers, {rkey, address, length}
 *                                                judged as the packets that it stands for
 *                                                copies from there into the receive request
 *      <-------------------------------- ACK
 *
 * A packet that lends takes the PSNs of all the packets that its bytes would fill, up to
 * VB_LENT_BYTES, and ends where one of them ends; so order, RNR, lengths, keys and duplicates are
 * what they are for packets. It names regions as a READ would, and the owner keeps control of them:
 * a region that was deregistered, or a queue pair that failed, is not copied from any more
 * (carrier/local_direct.c).
 *
 * Only payload in ordinary regions is lent, into receive requests of such. Any doubt on the
 * receiver's side is answered as a gap is, by a sequence NAK, and the sender repeats as packets
 * what it had lent. As the reason will mostly last, it lends no more for a while. The receive
 * request that was taken stays taken, for these packets, as that of any message of which some have
 * come.
 */
#include "core/transport.h"

#define PAUSE 1024u /* long messages */

static bool is_send(const struct vb_send_wqe *w)
{
	return w->opcode == VB_WR_SEND || w->opcode == VB_WR_SEND_WITH_IMM ||
	       w->opcode == VB_WR_SEND_WITH_INV;
}

bool vb_lend_may(struct vb_qp *qp, const struct vb_send_wqe *w)
{
	if (qp->type != VB_QPT_RC || !qp->path.lend_from || w->length < qp->path.lend_from ||
	    !qp->nic->ops.lend || !is_send(w) || w->flags & VB_SEND_INLINE)
		return false;
	if (qp->req.lend_pause == 0)
		return true;
	qp->req.lend_pause--;
	return false;
}

bool vb_lend(const struct vb_qp *qp, const struct vb_send_wqe *w, uint32_t offset, uint32_t bytes,
	     struct vb_lent_part *parts, struct vb_lent *lent)
{
	struct vb_nic *nic = qp->nic;

	*lent = (struct vb_lent){.bytes = bytes, .parts = parts};
	for (uint32_t i = 0; i < w->num_sge && bytes > 0; i++) {
		const struct vb_sge *sge = &w->sges[i];
		uint32_t length;
		struct vb_mr *mr;

		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		length = VB_MIN(sge->length - offset, bytes);
		mr = nic->mrs[vb_key_slot(sge->lkey)];
		if (lent->count == VB_LENT_PARTS ||
		    !vb_ordinary_memory(nic, qp->pd, sge, offset, length, 0) ||
		    !nic->ops.lend(nic->env, mr))
			return false;
		parts[lent->count++] = (struct vb_lent_part){
			.va = sge->addr + offset, .rkey = mr->rkey, .length = length};
		bytes -= length;
		offset = 0;
	}
	return bytes == 0;
}

void vb_lend_refused(struct vb_qp *qp)
{
	bool any = false;

	for (uint32_t i = qp->sq_una; i != qp->req.sq_assigned; i++) {
		struct vb_send_wqe *w = vb_qp_wqe(qp, i);

		any |= w->lent;
		w->lent = false;
	}
	if (any)
		qp->req.lend_pause = PAUSE;
}

bool vb_fetch_recv(const struct vb_qp *qp, const struct vb_lent *lent)
{
	const struct vb_recv_wqe *recv = &qp->resp.recv;
	const struct vb_srq *srq = vb_qp_srq(qp);
	const struct vb_pd *pd = srq ? srq->pd : qp->pd;
	uint32_t offset = qp->resp.received, left = lent->bytes;
	struct vb_nic *nic = qp->nic;
	struct iovec to[VB_MAX_SGE];
	int parts = 0;

	for (uint32_t i = 0; i < recv->num_sge && left > 0; i++) {
		const struct vb_sge *sge = &recv->sges[i];
		uint32_t length;
		uint8_t *at;

		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		length = VB_MIN(sge->length - offset, left);
		at = vb_ordinary_memory(nic, pd, sge, offset, length, VB_ACCESS_LOCAL_WRITE);
		if (!at)
			return false;
		to[parts++] = (struct iovec){at, length};
		left -= length;
		offset = 0;
	}
	return left == 0 && nic->ops.fetch(nic->env, qp, lent, to, parts) == 0;
}
