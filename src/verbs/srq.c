/* SPDX-License-Identifier: BSD-2-Clause */
/* srq.c - shared receive queues, of XRC too; what tag matching adds to them is tm.c. */
#include <errno.h>
#include <stdlib.h>

#include "core/xrc.h"
#include "verbs/face.h"

static void init_shell(struct vb_face_srq *srq, struct ibv_pd *pd, void *user)
{
	srq->ibv.context = pd->context;
	srq->ibv.srq_context = user;
	srq->ibv.pd = pd;
	srq->ibv.handle = vb_face_handle();
	pthread_mutex_init(&srq->ibv.mutex, NULL);
	pthread_cond_init(&srq->ibv.cond, NULL);
	srq->object.context = vb_face_context(pd->context);
	vb_face_async_init(&srq->error, IBV_EVENT_SRQ_ERR);
	vb_face_async_init(&srq->limit, IBV_EVENT_SRQ_LIMIT_REACHED);
	srq->error.event.element.srq = &srq->ibv;
	srq->limit.event.element.srq = &srq->ibv;
}

static void free_shell(struct vb_face_srq *srq)
{
	vb_rings_free(&srq->rings);
	pthread_mutex_destroy(&srq->ibv.mutex);
	pthread_cond_destroy(&srq->ibv.cond);
	vb_face_xrcd_use(srq->xrcd, -1);
	free(srq);
}

/* 0 or -errno, inside the engine. */
static int create_core(struct vb_face_srq *srq, struct vb_pd *pd, const struct ibv_srq_attr *attr,
		       const struct vb_srq_more *more)
{
	int error = 0;

	if (more->xrcd)
		srq->core =
			vb_xrc_srq_create_in(pd, vb_face_xrcd(more->xrcd)->core, more->cq,
					     attr->max_wr, attr->max_sge, srq, srq->rings.memory);
	else
		srq->core = vb_srq_create_in(pd, attr->max_wr, attr->max_sge, 0, srq,
					     srq->rings.memory);
	if (!srq->core)
		return -errno;
	if (more->max_num_tags)
		error = vb_tm_init(srq->core, more->cq, more->max_num_tags);
	if (error)
		vb_srq_destroy(srq->core);
	return error;
}

/* srq_limit is ignored here: it is armed by ibv_modify_srq(3) only. */
struct ibv_srq *vb_face_srq_create(struct ibv_pd *ibv_pd, void *user, struct ibv_srq_attr *attr,
				   const struct vb_srq_more *more)
{
	struct vb_face_pd *pd = vb_face_pd(ibv_pd);
	struct vb_face_srq *srq = calloc(1, sizeof(*srq));
	int error;

	if (!srq) {
		errno = ENOMEM;
		return NULL;
	}
	init_shell(srq, ibv_pd, user);
	srq->xrcd = more->xrcd;
	vb_face_xrcd_use(srq->xrcd, 1);
	error = vb_rings_alloc(&srq->rings, ibv_pd, vb_srq_room(attr->max_wr, attr->max_sge),
			       VB_RINGS_SRQ);
	if (!error && !vb_face_enter(pd->engine))
		error = -EIO;
	if (!error) {
		error = create_core(srq, pd->core, attr, more);
		vb_engine_leave(pd->engine);
	}
	if (error) {
		free_shell(srq);
		errno = -error;
		return NULL;
	}
	attr->max_wr = srq->core->rq.max_wr;
	attr->max_sge = srq->core->rq.max_sge;
	srq->beside = vb_face_is_single(pd);
	srq->engine = pd->engine;
	vb_face_add(ibv_pd->context, &srq->object, VB_FACE_SRQ);
	return &srq->ibv;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	const struct vb_srq_more more = {0};

	return vb_face_srq_create(pd, attr->srq_context, &attr->attr, &more);
}

static struct ibv_srq *create_xrc_srq(struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t needed = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	struct vb_srq_more more = {.xrcd = attr->xrcd};

	if ((attr->comp_mask & needed) != needed || !attr->xrcd || !attr->cq ||
	    attr->xrcd->context != attr->pd->context || attr->cq->context != attr->pd->context) {
		errno = EINVAL;
		return NULL;
	}
	more.cq = vb_face_cq(attr->cq)->core;
	return vb_face_srq_create(attr->pd, attr->srq_context, &attr->attr, &more);
}

/* Basic ones come here with masks that the header's inline function does not know. */
struct ibv_srq *vb_face_create_srq_ex(struct ibv_context *context,
				      struct ibv_srq_init_attr_ex *attr)
{
	uint32_t known = IBV_SRQ_INIT_ATTR_RESERVED - 1;
	const struct vb_srq_more more = {0};

	if (attr->comp_mask & ~known || !(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd ||
	    attr->pd->context != context) {
		errno = EINVAL;
		return NULL;
	}
	switch (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? attr->srq_type : IBV_SRQT_BASIC) {
	case IBV_SRQT_BASIC:
		return vb_face_srq_create(attr->pd, attr->srq_context, &attr->attr, &more);
	case IBV_SRQT_XRC:
		return create_xrc_srq(attr);
	case IBV_SRQT_TM:
		return vb_face_create_tm_srq(attr);
	}
	errno = EINVAL;
	return NULL;
}

/* Only an SRQ of XRC is named in packets. */
int vb_face_get_srq_num(struct ibv_srq *ibv, uint32_t *number)
{
	struct vb_face_srq *srq = vb_face_srq(ibv);

	if (!srq->xrcd)
		return EINVAL;
	if (!vb_face_enter(srq->engine))
		return EIO;
	*number = srq->core->srqn;
	vb_engine_leave(srq->engine);
	return 0;
}

/* 0 or -errno, inside: all or nothing, the limit is judged against the size to come. */
static int modify(struct vb_srq *core, const struct ibv_srq_attr *attr, int mask, void *room)
{
	uint32_t max_wr = mask & IBV_SRQ_MAX_WR ? attr->max_wr : core->rq.max_wr;
	int error = 0;

	if (mask & IBV_SRQ_LIMIT && attr->srq_limit > max_wr)
		return -EINVAL;
	if (mask & IBV_SRQ_MAX_WR)
		error = vb_srq_resize_in(core, attr->max_wr, room);
	if (!error && mask & IBV_SRQ_LIMIT)
		error = vb_srq_set_limit(core, attr->srq_limit);
	return error;
}

int ibv_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr, int mask)
{
	struct vb_face_srq *srq = vb_face_srq(ibv);
	struct vb_rings rings = {0}, unused;
	int error = 0;

	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return EINVAL;
	if (mask & IBV_SRQ_MAX_WR && attr->max_wr && srq->core)
		error = vb_rings_alloc(&rings, srq->rings.pd,
				       vb_srq_room(attr->max_wr, srq->core->rq.max_sge),
				       VB_RINGS_SRQ);
	if (error)
		return -error;
	unused = rings;
	if (!vb_face_enter(srq->engine)) {
		error = -EIO;
	} else {
		error = modify(srq->core, attr, mask, rings.memory);
		if (!error && mask & IBV_SRQ_MAX_WR) {
			unused = srq->rings;
			srq->rings = rings;
		}
		vb_engine_leave(srq->engine);
	}
	vb_rings_free(&unused);
	return -error;
}

int ibv_query_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr)
{
	struct vb_face_srq *srq = vb_face_srq(ibv);

	if (!vb_face_enter(srq->engine))
		return EIO;
	attr->max_wr = srq->core->rq.max_wr;
	attr->max_sge = srq->core->rq.max_sge;
	attr->srq_limit = srq->core->limit;
	vb_engine_leave(srq->engine);
	return 0;
}

int ibv_destroy_srq(struct ibv_srq *ibv)
{
	struct vb_face_srq *srq = vb_face_srq(ibv);
	struct vb_event_queue *async = &srq->object.context->async;
	uint32_t taken;
	int error = 0;

	if (vb_face_enter(srq->engine)) {
		error = vb_srq_destroy(srq->core);
		vb_engine_leave(srq->engine);
	}
	if (error)
		return -error;
	taken = vb_event_forget(async, &srq->error.source);
	taken += vb_event_forget(async, &srq->limit.source);
	pthread_mutex_lock(&ibv->mutex);
	while (ibv->events_completed != taken)
		pthread_cond_wait(&ibv->cond, &ibv->mutex);
	pthread_mutex_unlock(&ibv->mutex);
	vb_face_remove(&srq->object);
	free_shell(srq);
	return 0;
}

void vb_face_srq_close(struct vb_face_srq *srq)
{
	vb_srq_destroy(srq->core);
	srq->core = NULL;
	srq->engine = NULL;
}
