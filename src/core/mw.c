/* SPDX-License-Identifier: BSD-2-Clause */
/* mw.c - see mw.h. The numbers in the checks are those of IBTA 10.6.7. */
#include "core/mw.h"

#include <errno.h>
#include <stdlib.h>

#include "core/nic.h"

static struct vb_mw *window_in_slot(const struct vb_nic *nic, uint32_t key)
{
	struct vb_mr *mr = nic->mrs[vb_key_slot(key)];

	return mr && mr->kind == VB_MR_WINDOW ? vb_container_of(mr, struct vb_mw, shown) : NULL;
}

struct vb_mw *vb_mw_create(struct vb_pd *pd, enum vb_mw_type type)
{
	struct vb_mw *mw;
	int rc;

	if (type != VB_MW_TYPE_1 && type != VB_MW_TYPE_2) {
		errno = EINVAL;
		return NULL;
	}
	mw = calloc(1, sizeof(*mw));
	if (!mw)
		return NULL;
	mw->type = type;
	mw->shown = (struct vb_mr){.nic = pd->nic, .pd = pd, .kind = VB_MR_WINDOW};
	vb_list_init(&mw->link);
	rc = vb_mr_enter(&mw->shown, &pd->nic->mw_count, VB_MAX_MW);
	if (rc) {
		free(mw);
		errno = -rc;
		return NULL;
	}
	return mw;
}

/* hide - no peer uses the window without us from here on. -EBUSY: one does not stop. */
static int hide(const struct vb_mw *mw)
{
	const struct vb_nic *nic = mw->shown.nic;

	return mw->mr && nic->ops.hide_window ? nic->ops.hide_window(nic->env, &mw->shown) : 0;
}

static void become_free(struct vb_mw *mw)
{
	if (!mw->mr)
		return;
	mw->mr->windows--;
	mw->mr = NULL;
	vb_list_remove(&mw->link);
	mw->shown.access = 0;
	mw->shown.length = 0;
	mw->shown.qpn = 0;
}

int vb_mw_destroy(struct vb_mw *mw)
{
	int rc;

	if (!mw)
		return 0;
	rc = hide(mw);
	if (rc)
		return rc;
	become_free(mw);
	vb_mr_leave(&mw->shown, &mw->shown.nic->mw_count);
	free(mw);
	return 0;
}

static bool refuse(struct vb_reason *reason, enum vb_check check, uint64_t a, uint64_t b,
		   uint64_t c, uint64_t d)
{
	reason->check = check;
	reason->value[0] = a;
	reason->value[1] = b;
	reason->value[2] = c;
	reason->value[3] = d;
	return false;
}

/* judge_region - whether a window of pd may be bound to mr, which stands in the slot of the
 * request's lkey (or NULL). */
static bool judge_region(const struct vb_mr *mr, const struct vb_pd *pd,
			 const struct vb_mw_bind *bind, struct vb_reason *reason)
{
	const uint32_t writes = VB_ACCESS_REMOTE_WRITE | VB_ACCESS_REMOTE_ATOMIC;

	/* C10-73 */
	if (!mr || mr->kind != VB_MR_MEMORY || mr->lkey != bind->lkey ||
	    !(mr->access & VB_ACCESS_MW_BIND))
		return refuse(reason, VB_CHECK_BIND_REGION, bind->lkey, mr ? mr->access : 0, 0, 0);
	if (mr->pd != pd)
		return refuse(reason, VB_CHECK_BIND_PD, pd->id, pd->id, mr->pd->id, 0);
	/* C10-74 */
	if (bind->access & writes && !(mr->access & VB_ACCESS_LOCAL_WRITE))
		return refuse(reason, VB_CHECK_BIND_RIGHTS, bind->lkey, bind->access, mr->access,
			      0);
	/* C10-75 */
	if (bind->addr < mr->iova || bind->addr - mr->iova > mr->length ||
	    bind->length > mr->length - (bind->addr - mr->iova))
		return refuse(reason, VB_CHECK_BIND_RANGE, bind->addr, bind->length, mr->iova,
			      mr->length);
	return true;
}

/* judge_bind - the whole request; *to is the region, or NULL to free a type 1 window. */
static bool judge_bind(const struct vb_qp *qp, const struct vb_mw *mw,
		       const struct vb_mw_bind *bind, struct vb_mr **to, struct vb_reason *reason)
{
	*to = NULL;
	if (!mw || (mw->shown.rkey ^ bind->rkey) >> VB_KEY_TAG_BITS)
		return refuse(reason, VB_CHECK_BIND_WINDOW, bind->rkey, 0, 0, 0);
	/* o10-37.2.30: a bound one is invalidated first */
	if (mw->type == VB_MW_TYPE_2 && mw->mr)
		return refuse(reason, VB_CHECK_BIND_WINDOW, bind->rkey, 0, 0, 0);
	/* C10-72 */
	if (mw->shown.pd != qp->pd)
		return refuse(reason, VB_CHECK_BIND_PD, mw->shown.pd->id, qp->pd->id, 0, 0);
	if (bind->length == 0)
		/* o10-37.2.40 */
		return mw->type == VB_MW_TYPE_1 ||
		       refuse(reason, VB_CHECK_BIND_RANGE, bind->addr, 0, 0, 0);
	*to = qp->nic->mrs[vb_key_slot(bind->lkey)];
	return judge_region(*to, mw->shown.pd, bind, reason);
}

bool vb_mw_bind(struct vb_qp *qp, const struct vb_mw_bind *bind, struct vb_reason *reason)
{
	struct vb_mw *mw = window_in_slot(qp->nic, bind->rkey);
	struct vb_mr *mr;

	if (!judge_bind(qp, mw, bind, &mr, reason))
		return false;
	if (hide(mw))
		return refuse(reason, VB_CHECK_BIND_WINDOW, bind->rkey, 0, 0, 0);
	become_free(mw);
	mw->shown.rkey = bind->rkey;
	if (!mr)
		return true;
	mw->mr = mr;
	mr->windows++;
	mw->shown.addr = mr->addr + (bind->addr - mr->iova);
	mw->shown.iova = bind->access & VB_ACCESS_ZERO_BASED ? 0 : bind->addr;
	mw->shown.length = bind->length;
	mw->shown.access =
		(bind->access & VB_ACCESS_REMOTE_ALL) | (mr->access & VB_ACCESS_ON_DEMAND);
	if (mw->type == VB_MW_TYPE_2) {
		mw->shown.qpn = qp->qpn;
		vb_list_append(&qp->windows, &mw->link);
	}
	if (qp->nic->ops.show_window)
		qp->nic->ops.show_window(qp->nic->env, &mw->shown);
	return true;
}

bool vb_mw_may_invalidate(const struct vb_qp *qp, uint32_t rkey)
{
	const struct vb_mw *mw = window_in_slot(qp->nic, rkey);

	/* o10-37.2.26: not those of type 1 */
	if (!mw || mw->type != VB_MW_TYPE_2 || mw->shown.rkey != rkey || mw->shown.pd != qp->pd)
		return false;
	return !mw->mr || mw->shown.qpn == qp->qpn;
}

int vb_mw_invalidate(const struct vb_qp *qp, uint32_t rkey)
{
	struct vb_mw *mw = window_in_slot(qp->nic, rkey);
	int rc = hide(mw);

	if (rc == 0)
		become_free(mw);
	return rc;
}

void vb_mw_free_all(struct vb_qp *qp)
{
	struct vb_list *link, *next;

	vb_list_for_each(link, next, &qp->windows)
	{
		struct vb_mw *mw = vb_list_entry(link, struct vb_mw, link);

		/* Who still copies does it through this QP, which is hidden itself. */
		(void)hide(mw);
		become_free(mw);
	}
}
