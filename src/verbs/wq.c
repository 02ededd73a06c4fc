/* SPDX-License-Identifier: BSD-2-Clause */
/* wq.c - receive work queues (ibv_create_wq(3)) and their tables (ibv_create_rwq_ind_table(3)). */
#include <errno.h>
#include <stdlib.h>

#include "verbs/raw.h"

#define SAME(core, verbs) _Static_assert((int)(core) == (int)(verbs), #core)
SAME(VB_WQS_RESET, IBV_WQS_RESET);
SAME(VB_WQS_RDY, IBV_WQS_RDY);
SAME(VB_WQS_ERR, IBV_WQS_ERR);
SAME(VB_EVENT_WQ_FATAL, IBV_EVENT_WQ_FATAL);

static struct vb_face_wq *face_of(struct ibv_wq *wq)
{
	return vb_container_of(wq, struct vb_face_wq, ibv);
}

void vb_face_raise_wq(struct vb_wq *core)
{
	struct vb_face_wq *wq = core ? core->user : NULL;

	if (wq)
		vb_event_raise(&wq->object.context->async, &wq->fatal.source);
}

static int post_recv(struct ibv_wq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct vb_face_wq *wq = face_of(ibv);
	int error = 0;

	if (!wr)
		return 0;
	if (!vb_face_enter(wq->engine)) {
		*bad = wr;
		return EIO;
	}
	for (; wr; wr = wr->next) {
		const struct vb_recv_wr core = {
			.wr_id = wr->wr_id,
			.sges = (const struct vb_sge *)wr->sg_list,
			.num_sge = (uint32_t)wr->num_sge,
		};

		error = wr->sg_list || wr->num_sge == 0 ? vb_wq_post(wq->core, &core) : -EINVAL;
		if (error) {
			*bad = wr;
			break;
		}
	}
	vb_engine_pump_posts(wq->engine);
	vb_engine_leave(wq->engine);
	return -error;
}

static int check(struct ibv_context *context, const struct ibv_wq_init_attr *attr)
{
	const uint32_t flags = attr->comp_mask & IBV_WQ_INIT_ATTR_FLAGS ? attr->create_flags : 0;

	if (attr->comp_mask & ~(uint32_t)IBV_WQ_INIT_ATTR_FLAGS ||
	    flags & ~(uint32_t)(IBV_WQ_FLAGS_RESERVED - 1))
		return -EINVAL;
	if (attr->wq_type != IBV_WQT_RQ)
		return -EINVAL;
	if (!attr->pd || !attr->cq || attr->pd->context != context || attr->cq->context != context)
		return -EINVAL;
	return flags & ~(uint32_t)IBV_WQ_FLAGS_CVLAN_STRIPPING ? -EOPNOTSUPP : 0;
}

/* The header's inline function fills in wq_context, and makes the mutex and the condition. */
static void init_shell(struct vb_face_wq *wq, const struct ibv_wq_init_attr *attr)
{
	wq->ibv.context = attr->pd->context;
	wq->ibv.pd = attr->pd;
	wq->ibv.cq = attr->cq;
	wq->ibv.wq_num = wq->core->number;
	wq->ibv.handle = vb_face_handle();
	wq->ibv.state = IBV_WQS_RESET;
	wq->ibv.wq_type = attr->wq_type;
	wq->ibv.post_recv = post_recv;
	wq->object.context = vb_face_context(attr->pd->context);
	vb_face_async_init(&wq->fatal, IBV_EVENT_WQ_FATAL);
	wq->fatal.event.element.wq = &wq->ibv;
}

struct ibv_wq *vb_face_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr)
{
	int error = check(context, attr);
	struct vb_face_pd *pd;
	struct vb_face_wq *wq;

	if (error) {
		errno = -error;
		return NULL;
	}
	pd = vb_face_pd(attr->pd);
	wq = calloc(1, sizeof(*wq));
	if (!wq) {
		errno = ENOMEM;
		return NULL;
	}
	error = EIO;
	if (vb_face_enter(pd->engine)) {
		wq->core = vb_wq_create(pd->core, vb_face_cq(attr->cq)->core, attr->max_wr,
					attr->max_sge,
					attr->comp_mask & IBV_WQ_INIT_ATTR_FLAGS &&
						attr->create_flags & IBV_WQ_FLAGS_CVLAN_STRIPPING,
					wq);
		error = wq->core ? 0 : errno;
		if (wq->core)
			init_shell(wq, attr);
		vb_engine_leave(pd->engine);
	}
	if (error) {
		free(wq);
		errno = error;
		return NULL;
	}
	attr->max_wr = wq->core->rq.max_wr;
	attr->max_sge = wq->core->rq.max_sge;
	wq->engine = pd->engine;
	vb_face_add(context, &wq->object, VB_FACE_WQ);
	return &wq->ibv;
}

static int check_modify(const struct ibv_wq_attr *attr, const struct vb_wq *wq)
{
	const uint32_t known = IBV_WQ_ATTR_RESERVED - 1;

	if (!attr->attr_mask || attr->attr_mask & ~known)
		return -EINVAL;
	if (attr->attr_mask & IBV_WQ_ATTR_CURR_STATE &&
	    (unsigned int)attr->curr_wq_state != (unsigned int)wq->state)
		return -EINVAL;
	if (!(attr->attr_mask & IBV_WQ_ATTR_FLAGS))
		return 0;
	if (attr->flags_mask & ~(uint32_t)(IBV_WQ_FLAGS_RESERVED - 1))
		return -EINVAL;
	return attr->flags_mask & ~(uint32_t)IBV_WQ_FLAGS_CVLAN_STRIPPING ? -EOPNOTSUPP : 0;
}

int vb_face_modify_wq(struct ibv_wq *ibv, struct ibv_wq_attr *attr)
{
	struct vb_face_wq *wq = face_of(ibv);
	int error;

	if (!vb_face_enter(wq->engine))
		return EIO;
	error = check_modify(attr, wq->core);
	if (!error && attr->attr_mask & IBV_WQ_ATTR_STATE)
		error = vb_wq_set_state(wq->core, (enum vb_wq_state)attr->wq_state);
	if (!error && attr->attr_mask & IBV_WQ_ATTR_FLAGS &&
	    attr->flags_mask & IBV_WQ_FLAGS_CVLAN_STRIPPING)
		wq->core->strip_vlan = attr->flags & IBV_WQ_FLAGS_CVLAN_STRIPPING;
	ibv->state = (enum ibv_wq_state)wq->core->state;
	vb_engine_leave(wq->engine);
	return -error;
}

int vb_face_destroy_wq(struct ibv_wq *ibv)
{
	struct vb_face_wq *wq = face_of(ibv);
	uint32_t taken;
	int error = 0;

	if (vb_face_enter(wq->engine)) {
		error = vb_wq_destroy(wq->core);
		vb_engine_leave(wq->engine);
	}
	if (error)
		return -error;
	taken = vb_event_forget(&wq->object.context->async, &wq->fatal.source);
	pthread_mutex_lock(&ibv->mutex);
	while (ibv->events_completed != taken)
		pthread_cond_wait(&ibv->cond, &ibv->mutex);
	pthread_mutex_unlock(&ibv->mutex);
	pthread_mutex_destroy(&ibv->mutex);
	pthread_cond_destroy(&ibv->cond);
	vb_face_remove(&wq->object);
	free(wq);
	return 0;
}

/* --- tables ------------------------------------------------------------------------------ */

static int check_table(struct ibv_context *context, const struct ibv_rwq_ind_table_init_attr *attr)
{
	if (attr->comp_mask || attr->log_ind_tbl_size > VB_MAX_WQ_TABLE_BITS || !attr->ind_tbl)
		return -EINVAL;
	for (uint32_t i = 0; i < 1u << attr->log_ind_tbl_size; i++)
		if (!attr->ind_tbl[i] || attr->ind_tbl[i]->context != context ||
		    attr->ind_tbl[i]->wq_type != IBV_WQT_RQ)
			return -EINVAL;
	return 0;
}

struct ibv_rwq_ind_table *vb_face_create_rwq_ind_table(struct ibv_context *context,
						       struct ibv_rwq_ind_table_init_attr *attr)
{
	struct vb_engine *engine = vb_face_context(context)->engine;
	struct vb_wq *wqs[1u << VB_MAX_WQ_TABLE_BITS];
	struct vb_face_wq_table *table;
	int error = check_table(context, attr);

	if (error) {
		errno = -error;
		return NULL;
	}
	table = calloc(1, sizeof(*table));
	if (!table) {
		errno = ENOMEM;
		return NULL;
	}
	for (uint32_t i = 0; i < 1u << attr->log_ind_tbl_size; i++)
		wqs[i] = face_of(attr->ind_tbl[i])->core;
	error = EIO;
	if (vb_face_enter(engine)) {
		table->core =
			vb_wq_table_create(vb_engine_nic(engine), wqs, attr->log_ind_tbl_size);
		error = table->core ? 0 : errno;
		vb_engine_leave(engine);
	}
	if (error) {
		free(table);
		errno = error;
		return NULL;
	}
	table->ibv.context = context;
	table->ibv.ind_tbl_handle = (int)vb_face_handle();
	table->ibv.ind_tbl_num = table->ibv.ind_tbl_handle;
	table->engine = engine;
	vb_face_add(context, &table->object, VB_FACE_WQ_TABLE);
	return &table->ibv;
}

int vb_face_destroy_rwq_ind_table(struct ibv_rwq_ind_table *ibv)
{
	struct vb_face_wq_table *table = vb_container_of(ibv, struct vb_face_wq_table, ibv);
	int error = 0;

	if (vb_face_enter(table->engine)) {
		error = vb_wq_table_destroy(table->core);
		vb_engine_leave(table->engine);
	}
	if (error)
		return -error;
	vb_face_remove(&table->object);
	free(table);
	return 0;
}

/* --- teardown ---------------------------------------------------------------------------- */

void vb_face_wqs_close(struct vb_list *objects)
{
	struct vb_list *l, *t;

	vb_list_for_each(l, t, &objects[VB_FACE_WQ_TABLE])
	{
		struct vb_face_wq_table *table =
			vb_list_entry(l, struct vb_face_wq_table, object.link);

		vb_wq_table_destroy(table->core);
		table->core = NULL;
		table->engine = NULL;
	}
	vb_list_for_each(l, t, &objects[VB_FACE_WQ])
	{
		struct vb_face_wq *wq = vb_list_entry(l, struct vb_face_wq, object.link);

		vb_wq_destroy(wq->core);
		wq->core = NULL;
		wq->engine = NULL;
	}
}
