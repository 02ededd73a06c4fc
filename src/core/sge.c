/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sge.c - gather and scatter: message bytes [offset, offset + length) over a list of SGEs.
 *
 * Every piece is looked up by its lkey each time, since a region may be deregistered while requests
 * that name it are under way.
 */
#include <string.h>

#include "core/demand.h"
#include "core/transport.h"

/* A part of the range that lies in one SGE. */
struct piece {
	uint8_t *at;
	uint32_t length;
	bool on_demand;
};

/* find_piece - the first length bytes, as far as this SGE has them, behind its first skip bytes.
 * False: the key was refused, reason holds why. */
static bool find_piece(const struct vb_qp *qp, const struct vb_pd *pd, const struct vb_sge *sge,
		       uint32_t skip, uint32_t length, uint32_t rights, struct piece *piece,
		       struct vb_reason *reason)
{
	piece->length = VB_MIN(sge->length - skip, length);
	piece->on_demand = false;
	piece->at = vb_ordinary_memory(qp->nic, pd, sge, skip, piece->length,
				       rights & ~VB_WANT_PRESENT);
	if (__builtin_expect(piece->at != NULL, 1))
		return true;
	piece->on_demand = vb_is_on_demand(qp->nic, sge->lkey);
	piece->at = vb_mr_local(qp->nic, pd, sge->lkey, sge->addr + skip, piece->length, rights,
				reason);
	if (!piece->at) {
		reason->qpn = qp->qpn;
		reason->peer_qpn = qp->attr.dest_qpn;
		reason->peer = qp->path.dgid;
	}
	return piece->at;
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
		if (!find_piece(qp, vb_send_pd(qp), &sges[i], offset, length,
				rights | VB_WANT_PRESENT, &piece, reason))
			return -1;
		out[parts++] = (struct iovec){piece.at, piece.length};
		length -= piece.length;
		offset = 0;
	}
	VB_ASSERT(length == 0);
	return parts;
}

/* absent - the memory of a region on demand was not there when it was wanted. False. */
static bool absent(const struct vb_qp *qp, const struct vb_sge *sge, uint32_t skip, uint32_t length,
		   struct vb_reason *reason)
{
	*reason = vb_qp_reason(qp, VB_CHECK_SGE_ABSENT);
	reason->value[0] = sge->lkey;
	reason->value[1] = sge->addr + skip;
	reason->value[2] = length;
	return false;
}

int vb_gather_payload(const struct vb_qp *qp, const struct vb_sge *sges, uint32_t num_sge,
		      uint32_t offset, uint32_t length, struct iovec *out, struct vb_reason *reason)
{
	struct vb_nic *nic = qp->nic;
	struct piece piece;
	uint32_t bounced = 0;
	int parts = 0;

	for (uint32_t i = 0; i < num_sge && length > 0; i++) {
		if (offset >= sges[i].length) {
			offset -= sges[i].length;
			continue;
		}
		if (!find_piece(qp, vb_send_pd(qp), &sges[i], offset, length, 0, &piece, reason))
			return -1;
		if (piece.on_demand) {
			uint8_t *to = nic->bounce + bounced;

			VB_ASSERT(piece.length <= VB_BOUNCE_BYTES - bounced);
			if (!vb_demand_read(nic, to, piece.at, piece.length)) {
				absent(qp, &sges[i], offset, piece.length, reason);
				return -1;
			}
			bounced += piece.length;
			piece.at = to;
		}
		out[parts++] = (struct iovec){piece.at, piece.length};
		length -= piece.length;
		offset = 0;
	}
	VB_ASSERT(length == 0);
	return parts;
}

void vb_place(uint8_t *to, const uint8_t *from, uint32_t length)
{
	const uint32_t head = vb_place_head(to, length);

	if (head) {
		memcpy(to, from, head);
		__atomic_thread_fence(__ATOMIC_RELEASE);
	}
	if (length - head == 8)
		memcpy(to + head, from + head, 8);
	else
		memcpy(to + head, from + head, length - head);
}

bool vb_place_remote(struct vb_nic *nic, uint32_t rkey, uint8_t *to, const uint8_t *from,
		     uint32_t length)
{
	if (length == 0)
		return true;
	if (vb_is_on_demand(nic, rkey))
		return vb_demand_write(nic, to, from, length);
	vb_place(to, from, length);
	return true;
}

/* put - data to where vb_mr_local said. False: a region on demand, and no memory there. */
static bool put(struct vb_nic *nic, uint32_t lkey, uint8_t *at, const uint8_t *data,
		uint32_t length)
{
	if (vb_mr_is_null(at))
		return true;
	if (vb_is_on_demand(nic, lkey))
		return vb_demand_write(nic, at, data, length);
	memcpy(at, data, length);
	return true;
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
		if (!put(qp->nic, sges[i].lkey, piece.at, data, piece.length))
			return absent(qp, &sges[i], offset, piece.length, reason);
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
	return scatter(qp, vb_send_pd(qp), sges, num_sge, offset, data, length, reason);
}

bool vb_scatter_recv(const struct vb_qp *qp, uint32_t offset, const uint8_t *data, uint32_t length,
		     struct vb_reason *reason)
{
	const struct vb_recv_wqe *recv = &qp->resp.recv;
	const struct vb_srq *srq = vb_qp_srq(qp);
	const struct vb_pd *pd = srq ? srq->pd : qp->pd;
	uint8_t *at = NULL;

	/* The usual case at little cost: all of it in one piece. */
	if (recv->num_sge == 1 && length > 0 && offset + length <= recv->sges[0].length)
		at = vb_ordinary_memory(qp->nic, pd, recv->sges, offset, length,
					VB_ACCESS_LOCAL_WRITE);
	if (at) {
		memcpy(at, data, length);
		return true;
	}
	return scatter(qp, pd, recv->sges, recv->num_sge, offset, data, length, reason);
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
		if (!put(nic, sge->lkey, at, data, piece)) {
			reason->check = VB_CHECK_SGE_ABSENT;
			reason->value[0] = sge->lkey;
			reason->value[1] = sge->addr + offset;
			reason->value[2] = piece;
			return false;
		}
		data += piece;
		length -= piece;
		offset = 0;
	}
	VB_ASSERT(length == 0);
	return true;
}
