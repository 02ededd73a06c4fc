/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mw.c - memory windows: ibv_alloc_mw(3), ibv_bind_mw(3), ibv_dealloc_mw(3).
 *
 * A type 1 window is bound by ibv_bind_mw, which chooses the next key itself; one of type 2 by a
 * request of the program's (post.c, qp_ex.c), with a key of the program's.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/beside.h"
#include "verbs/face.h"

_Static_assert((int)VB_MW_TYPE_1 == (int)IBV_MW_TYPE_1, "type");
_Static_assert((int)VB_MW_TYPE_2 == (int)IBV_MW_TYPE_2, "type");
_Static_assert((int)VB_ACCESS_ZERO_BASED == (int)IBV_ACCESS_ZERO_BASED, "access");
_Static_assert((int)VB_ACCESS_MW_BIND == (int)IBV_ACCESS_MW_BIND, "access");

/* Local rights are meaningless for a window; programs name LOCAL_WRITE all the same. */
#define VB_MW_ACCESS                                                                               \
	(VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL | VB_ACCESS_ZERO_BASED |                     \
	 IBV_ACCESS_OPTIONAL_RANGE)

struct vb_face_mw {
	struct ibv_mw ibv;
	struct vb_face_object object;
	struct vb_engine *engine;
	struct vb_mw *core;
};

static inline struct vb_face_mw *face_mw(struct ibv_mw *mw)
{
	return vb_container_of(mw, struct vb_face_mw, ibv);
}

struct ibv_mw *vb_face_alloc_mw(struct ibv_pd *ibv_pd, enum ibv_mw_type type)
{
	struct vb_face_pd *pd = vb_face_pd(ibv_pd);
	struct vb_face_mw *mw = calloc(1, sizeof(*mw));
	int error;

	if (!mw) {
		errno = ENOMEM;
		return NULL;
	}
	if (!vb_face_enter(pd->engine)) {
		free(mw);
		errno = EIO;
		return NULL;
	}
	mw->core = vb_mw_create(pd->core, (enum vb_mw_type)type);
	error = errno;
	vb_engine_leave(pd->engine);
	if (!mw->core) {
		free(mw);
		errno = error;
		return NULL;
	}
	mw->engine = pd->engine;
	mw->ibv = (struct ibv_mw){
		.context = ibv_pd->context,
		.pd = ibv_pd,
		.rkey = mw->core->shown.rkey,
		.handle = vb_face_handle(),
		.type = type,
	};
	vb_face_add(ibv_pd->context, &mw->object, VB_FACE_MW);
	return &mw->ibv;
}

int vb_face_dealloc_mw(struct ibv_mw *ibv)
{
	struct vb_face_mw *mw = face_mw(ibv);
	int error = 0;

	if (vb_face_enter(mw->engine)) {
		error = vb_mw_destroy(mw->core);
		vb_engine_leave(mw->engine);
	}
	if (error)
		return -error;
	vb_face_remove(&mw->object);
	free(mw);
	return 0;
}

void vb_face_mw_close(struct vb_list *link)
{
	struct vb_face_mw *mw = vb_list_entry(link, struct vb_face_mw, object.link);

	vb_mw_destroy(mw->core);
	mw->core = NULL;
	mw->engine = NULL;
}

int vb_face_bind_to_core(const struct ibv_mw *mw, uint32_t rkey,
			 const struct ibv_mw_bind_info *info, struct vb_mw_bind *core)
{
	if (!mw || info->mw_access_flags & ~(unsigned int)VB_MW_ACCESS ||
	    (!info->mr && (info->addr || info->length)))
		return -EINVAL;
	*core = (struct vb_mw_bind){
		.rkey = rkey,
		.lkey = info->mr ? info->mr->lkey : 0,
		.access = info->mw_access_flags,
		.addr = info->addr,
		.length = info->length,
	};
	return 0;
}

int vb_face_bind_mw(struct ibv_qp *ibv_qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct vb_face_qp *qp = vb_face_qp(ibv_qp);
	struct vb_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = VB_WR_BIND_MW,
		.flags = bind->send_flags,
	};
	uint32_t rkey = ibv_inc_rkey(mw->rkey);
	int error;

	if (bind->send_flags & ~(unsigned int)(IBV_SEND_FENCE | IBV_SEND_SIGNALED) ||
	    mw->context != ibv_qp->context)
		return EINVAL;
	error = vb_face_bind_to_core(mw, rkey, &bind->bind_info, &wr.bind);
	if (error)
		return -error;
	if (!vb_face_enter(qp->engine))
		return EIO;
	if (qp->core->single) {
		error = vb_qp_post_send_beside(qp->core, &wr);
		vb_qp_take_posted(qp->core);
	} else {
		error = vb_qp_post_send(qp->core, &wr);
	}
	if (error == 0) {
		mw->rkey = rkey;
		vb_engine_pump(qp->engine);
	}
	vb_engine_leave(qp->engine);
	return -error;
}
