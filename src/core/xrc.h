/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * xrc.h - extended reliable connections (IBTA annex A14): one connection for all the receive queues
 * of a host.
 *
 *      XRC SEND QP ===== a reliable connection =====> XRC RECV QP --- domain --- SRQ 1 -> CQ
 *      each request names an SRQ                      no PD, no CQ           \-- SRQ 2 -> CQ
 *
 * The receive QP owns the order of packets and nothing else: the SRQ that a request names gives the
 * receive request, the protection domain that keys are judged in, and the CQ of the completion.
 * Both must be of one domain; else the request is refused as a remote access error, and the receive
 * QP enters ERR.
 *
 * An SRQ may be destroyed while a message for it is under way: its receive request vanishes, and
 * the rest of the message is refused. So nothing keeps a pointer to an SRQ that vb_xrc_forget_srq()
 * does not find, and what is repeated looks its SRQ up by number.
 */
#ifndef VB_CORE_XRC_H
#define VB_CORE_XRC_H

#include <stdint.h>

#include "base/list.h"

struct vb_cq;
struct vb_nic;
struct vb_pd;
struct vb_qp;
struct vb_srq;

struct vb_xrcd {
	struct vb_nic *nic;
	uint32_t users;	    /* SRQs and QPs in it */
	struct vb_list qps; /* their xrc_link: the receive QPs */
};

/* vb_xrcd_create - a new domain. NULL with errno ENOMEM, at VB_MAX_XRCD too. */
struct vb_xrcd *vb_xrcd_create(struct vb_nic *nic);
/* vb_xrcd_destroy - 0, or -EBUSY while an SRQ or a QP is in it. NULL is accepted. */
int vb_xrcd_destroy(struct vb_xrcd *xrcd);

/* vb_xrc_srq_create - an SRQ of the domain, with a number; destroyed and posted to like any other.
 * NULL with errno EINVAL (a limit exceeded, another NIC's object), ENOMEM. */
struct vb_srq *vb_xrc_srq_create(struct vb_pd *pd, struct vb_xrcd *xrcd, struct vb_cq *cq,
				 uint32_t max_wr, uint32_t max_sge, void *user);
/* vb_xrc_srq_create_in - the same, in room as of vb_srq_create_in. */
struct vb_srq *vb_xrc_srq_create_in(struct vb_pd *pd, struct vb_xrcd *xrcd, struct vb_cq *cq,
				    uint32_t max_wr, uint32_t max_sge, void *user, void *room);

/* Between the core's files */
/* vb_xrc_find_srq - the SRQ of that number, when it is in the domain; NULL. */
struct vb_srq *vb_xrc_find_srq(const struct vb_xrcd *xrcd, uint32_t srqn);
/* vb_xrc_forget_srq - it is about to go: its number is free, and no QP holds it or a request of it.
 */
void vb_xrc_forget_srq(struct vb_srq *srq);

#endif
