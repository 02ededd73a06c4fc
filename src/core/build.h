/* SPDX-License-Identifier: BSD-2-Clause */
/* build.h - from a send request to its packets: build.c. */
#ifndef VB_CORE_BUILD_H
#define VB_CORE_BUILD_H

#include "core/nic.h"

/* A packet about to go: its headers and the message bytes it carries. */
struct vb_outgoing {
	struct vb_headers h;
	uint32_t offset, bytes; /* payload */
	uint32_t psns;		/* how far it moves nxt_psn */
};

/* vb_send_or_write - the operation of a packet of a SEND or WRITE. */
enum vb_operation vb_send_or_write(const struct vb_send_wqe *w, bool first, bool last);
/* vb_build - the packet with this PSN, which is one of the request's. */
void vb_build(const struct vb_qp *qp, const struct vb_send_wqe *w, uint32_t psn,
	      struct vb_outgoing *out);

#endif
