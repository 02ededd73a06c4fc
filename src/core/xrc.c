/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * xrc.c - XRC domains, and the numbers of the SRQs in them (IBTA annex A14).
 *
 * A number is chosen like a queue pair's: the process's part above, 15 random bits below, at most
 * half of them in use. The table of them is made with the first domain and stays with the NIC.
 */
#include "core/xrc.h"

#include <errno.h>
#include <stdlib.h>

#include "core/nic.h"

#define INDEX_MASK ((1u << VB_MAX_QP_BITS) - 1)

struct vb_xrcd *vb_xrcd_create(struct vb_nic *nic)
{
	struct vb_xrcd *xrcd;

	if (!nic->xrc_srqs)
		nic->xrc_srqs = calloc(INDEX_MASK + 1, sizeof(nic->xrc_srqs[0]));
	if (!nic->xrc_srqs || nic->xrcd_count >= VB_MAX_XRCD) {
		errno = ENOMEM;
		return NULL;
	}
	xrcd = calloc(1, sizeof(*xrcd));
	if (!xrcd)
		return NULL;
	xrcd->nic = nic;
	vb_list_init(&xrcd->qps);
	nic->xrcd_count++;
	return xrcd;
}

int vb_xrcd_destroy(struct vb_xrcd *xrcd)
{
	if (!xrcd)
		return 0;
	if (xrcd->users)
		return -EBUSY;
	xrcd->nic->xrcd_count--;
	free(xrcd);
	return 0;
}

static void choose_number(struct vb_nic *nic, struct vb_srq *srq)
{
	uint32_t index;

	do {
		index = nic->ops.random(nic->env) & INDEX_MASK;
	} while (index == 0 || nic->xrc_srqs[index]);
	nic->xrc_srqs[index] = srq;
	srq->srqn = nic->config.qpn_base + index;
}

struct vb_srq *vb_xrc_srq_create(struct vb_pd *pd, struct vb_xrcd *xrcd, struct vb_cq *cq,
				 uint32_t max_wr, uint32_t max_sge, void *user)
{
	return vb_xrc_srq_create_in(pd, xrcd, cq, max_wr, max_sge, user, NULL);
}

struct vb_srq *vb_xrc_srq_create_in(struct vb_pd *pd, struct vb_xrcd *xrcd, struct vb_cq *cq,
				    uint32_t max_wr, uint32_t max_sge, void *user, void *room)
{
	struct vb_nic *nic = pd->nic;
	struct vb_srq *srq;

	if (xrcd->nic != nic || cq->nic != nic) {
		errno = EINVAL;
		return NULL;
	}
	if (nic->xrc_srq_count >= VB_MAX_XRC_SRQ) {
		errno = ENOMEM;
		return NULL;
	}
	srq = vb_srq_create_in(pd, max_wr, max_sge, 0, user, room);
	if (!srq)
		return NULL;
	srq->xrcd = xrcd;
	srq->cq = cq;
	xrcd->users++;
	cq->users++;
	nic->xrc_srq_count++;
	choose_number(nic, srq);
	return srq;
}

struct vb_srq *vb_xrc_find_srq(const struct vb_xrcd *xrcd, uint32_t srqn)
{
	const struct vb_nic *nic = xrcd->nic;
	uint32_t index = srqn - nic->config.qpn_base;
	struct vb_srq *srq = index <= INDEX_MASK ? nic->xrc_srqs[index] : NULL;

	return srq && srq->xrcd == xrcd ? srq : NULL;
}

void vb_xrc_forget_srq(struct vb_srq *srq)
{
	struct vb_nic *nic = srq->nic;
	struct vb_list *link, *next;

	if (!srq->xrcd)
		return;
	vb_list_for_each(link, next, &srq->xrcd->qps)
	{
		struct vb_qp *qp = vb_list_entry(link, struct vb_qp, xrc_link);

		if (qp->resp.srq != srq)
			continue;
		qp->resp.srq = NULL;
		qp->resp.recv_held = false;
	}
	nic->xrc_srqs[srq->srqn - nic->config.qpn_base] = NULL;
	nic->xrc_srq_count--;
	srq->cq->users--;
	srq->xrcd->users--;
}
