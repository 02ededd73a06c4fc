/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mw.h - memory windows (IBTA 10.6.7, 11.2.8.9 to 11.2.8.12).
 *
 * A window is a second, narrower door into a region: an rkey of its own, a part of the range, its
 * own rights. It stands in the same table of keys as the regions, and a peer's request does not
 * know one from the other.
 *
 *      type 1   bound again and again, each time with another key; any QP of its PD may name it
 *      type 2   bound once, until it is invalidated; only the QP that bound it may name it, in that
 *               QP's PD (what the IBTA calls 2B, as Soft-RoCE and mlx5 have it)
 *
 *                  bind (type 1 again, too)
 *        FREE  ----------------------------->  BOUND    its region cannot go or change
 *              <-----------------------------
 *        invalidate (type 2), bind to nothing (type 1), its QP is destroyed (type 2)
 *
 * Binding and invalidating are requests of a send queue, and take effect in its order: each waits
 * until everything before it has completed (requester.c).
 */
#ifndef VB_CORE_MW_H
#define VB_CORE_MW_H

#include "base/list.h"
#include "core/mr.h"

struct vb_qp;

/* numerically equal to enum ibv_mw_type */
enum vb_mw_type { VB_MW_TYPE_1 = 1, VB_MW_TYPE_2 = 2 };

struct vb_mw {
	struct vb_mr shown; /* in nic->mrs; without rights while free */
	enum vb_mw_type type;
	struct vb_mr *mr;    /* that it is bound to; NULL: free */
	struct vb_list link; /* type 2, bound: in its QP's windows */
};

/* vb_mw_create - a free window. NULL with errno EINVAL (no such type), ENOMEM at VB_MAX_MW. */
struct vb_mw *vb_mw_create(struct vb_pd *pd, enum vb_mw_type type);
/* vb_mw_destroy - frees it first when it is bound. 0; -EBUSY: an access by another process is under
 * way and does not end, nothing was done. NULL is accepted. */
int vb_mw_destroy(struct vb_mw *mw);

/* What a bind request says. The keys stand for window and region: either may be gone by then. */
struct vb_mw_bind {
	uint32_t rkey; /* the window's from then on; only its consumer's bits may differ from now */
	uint32_t lkey; /* the region's; 0 with length 0 */
	uint32_t access; /* enum vb_access: remote rights, ZERO_BASED; others are ignored */
	uint64_t addr;	 /* first byte, in the region's addresses */
	uint64_t length; /* 0: the window is free from then on (type 1 only) */
};

/* vb_mw_bind - by qp. False: nothing has changed, reason holds why. */
bool vb_mw_bind(struct vb_qp *qp, const struct vb_mw_bind *bind, struct vb_reason *reason);

/* vb_mw_may_invalidate - rkey is now that of a type 2 window which qp may invalidate: its own or,
 * where that is harmless, a free one of its PD. */
bool vb_mw_may_invalidate(const struct vb_qp *qp, uint32_t rkey);
/* vb_mw_invalidate - frees that window. 0 or -EBUSY as for vb_mw_destroy. */
int vb_mw_invalidate(const struct vb_qp *qp, uint32_t rkey);
/* vb_mw_free_all - the QP goes, and all windows that are bound to it are free. */
void vb_mw_free_all(struct vb_qp *qp);

#endif
