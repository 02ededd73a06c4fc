/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sge.c - gather and scatter: message bytes [offset, offset + length) over a list of SGEs.
 *
 * Every piece is looked up by its lkey each time, since a region may be deregistered while requests
 * that name it are under way.
 */
#include <string.h>

#include "core/transport.h"

/* A part of the range that lies in one SGE. */
struct piece {
	uint8_t *at;
	uint32_t length;
};

/* find_piece - the first length bytes, as far as this SGE has them, behind its first skip bytes.
 * False: the key was refused, reason holds why. */
static bool find_piece(const struct vb_qp *qp, const struct vb_pd *pd, const struct vb_sge *sge,
		       uint32_t skip, uint32_t length, uint32_t rights, struct piece *piece,
		       struct vb_reason *reason)
{
	piece->length = VB_MIN(sge->length - skip, length);
	piece->at = vb_mr_local(qp->nic, pd, sge->lkey, sge->addr + skip, piece->length,
				rights | VB_WANT_PRESENT, reason);
	if (!piece->at) {
		reason->qpn = qp->qpn;
		reason->peer_qpn = qp->attr.dest_qpn;
		reason->peer = qp->path.dgid;
	}
	return piece->at;
}

/* The keys of a send request are the QP's; what tag matching READs goes into the SRQ's buffers. */
static const struct vb_pd *send_pd(const struct vb_qp *qp)
{
	return qp->srq && qp->srq->tm ? qp->srq->pd : qp->pd;
}

int vb_gather(const struct vb_qp *qp, const struct vb_sge *sges, uint32_t num_sge, uint32_t offset,
	      uint32_t length, uint32_t rights, struct iovec *out, struct vb_reason *reason)
{
	struct piece piece;
	int parts = 0;

	for (uint32_t i = 0; i < num_sge && length > 0; i++) {
		if (offset >= sges[i].length) {
			offset -= sges[i].length;
			continue;
		}
		if (!find_piece(qp, send_pd(qp), &sges[i], offset, length, rights, &piece, reason))
			return -1;
		out[parts++] = (struct iovec){piece.at, piece.length};
		length -= piece.length;
		offset = 0;
	}
	VB_ASSERT(length == 0);
	return parts;
}

void vb_place(uint8_t *to, const uint8_t *from, uint32_t length)
{
	uint32_t head = 0;

	if (length > 8) {
		head = (uint32_t)((((uintptr_t)to + length - 1) & ~(uintptr_t)7) - (uintptr_t)to);
		memcpy(to, from, head);
		__atomic_thread_fence(__ATOMIC_RELEASE);
	}
	if (length - head == 8)
		memcpy(to + head, from + head, 8);
	else
		memcpy(to + head, from + head, length - head);
}

/* scatter - keys are those of one PD: the SRQ's for its receive requests, else the QP's. */
static bool scatter(const struct vb_qp *qp, const struct vb_pd *pd, const struct vb_sge *sges,
		    uint32_t num_sge, uint32_t offset, const uint8_t *data, uint32_t length,
		    struct vb_reason *reason)
{
	struct piece piece;

	for (uint32_t i = 0; i < num_sge && length > 0; i++) {
		if (offset >= sges[i].length) {
			offset -= sges[i].length;
			continue;
		}
		if (!find_piece(qp, pd, &sges[i], offset, length, VB_ACCESS_LOCAL_WRITE, &piece,
				reason))
			return false;
		if (!vb_mr_is_null(piece.at))
			memcpy(piece.at, data, piece.length);
		data += piece.length;
		length -= piece.length;
		offset = 0;
	}
	VB_ASSERT(length == 0);
	return true;
}

bool vb_scatter(const struct vb_qp *qp, const struct vb_sge *sges, uint32_t num_sge,
		uint32_t offset, const uint8_t *data, uint32_t length, struct vb_reason *reason)
{
	return scatter(qp, send_pd(qp), sges, num_sge, offset, data, length, reason);
}

bool vb_scatter_recv(const struct vb_qp *qp, uint32_t offset, const uint8_t *data, uint32_t length,
		     struct vb_reason *reason)
{
	const struct vb_recv_wqe *recv = &qp->resp.recv;
	const struct vb_srq *srq = vb_qp_srq(qp);

	return scatter(qp, srq ? srq->pd : qp->pd, recv->sges, recv->num_sge, offset, data, length,
		       reason);
}

bool vb_scatter_to(struct vb_nic *nic, const struct vb_pd *pd, const struct vb_recv_wqe *recv,
		   uint32_t offset, const uint8_t *data, uint32_t length, struct vb_reason *reason)
{
	const uint32_t qpn = reason->qpn;

	for (uint32_t i = 0; i < recv->num_sge && length > 0; i++) {
		const struct vb_sge *sge = &recv->sges[i];
		uint32_t piece;
		uint8_t *at;

		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		piece = VB_MIN(sge->length - offset, length);
		at = vb_mr_local(nic, pd, sge->lkey, sge->addr + offset, piece,
				 VB_ACCESS_LOCAL_WRITE, reason);
		if (!at) {
			reason->qpn = qpn;
			return false;
		}
		memcpy(at, data, piece);
		data += piece;
		length -= piece;
		offset = 0;
	}
	VB_ASSERT(length == 0);
	return true;
}
