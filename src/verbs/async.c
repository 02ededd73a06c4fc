/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * async.c - asynchronous events (ibv_get_async_event(3)).
 *
 * Events of a QP, CQ or SRQ go to the context that owns it, those of the device and its port to
 * every open context of the engine. The hooks are called inside the engine, perhaps by its thread.
 */
#include <errno.h>

#include "verbs/face.h"

static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list contexts = {&contexts, &contexts};

void vb_face_contexts_add(struct vb_face_context *context)
{
	pthread_mutex_lock(&contexts_lock);
	vb_list_append(&contexts, &context->link);
	pthread_mutex_unlock(&contexts_lock);
}

void vb_face_contexts_remove(struct vb_face_context *context)
{
	pthread_mutex_lock(&contexts_lock);
	vb_list_remove(&context->link);
	pthread_mutex_unlock(&contexts_lock);
}

void vb_face_contexts_visit(bool (*visit)(struct vb_face_context *context, void *argument),
			    void *argument)
{
	struct vb_list *link, *tmp;

	pthread_mutex_lock(&contexts_lock);
	vb_list_for_each(link, tmp,
			 &contexts) if (visit(vb_list_entry(link, struct vb_face_context, link),
					      argument)) break;
	pthread_mutex_unlock(&contexts_lock);
}

void vb_face_async_init(struct vb_async_source *source, enum ibv_event_type type)
{
	vb_event_source_init(&source->source);
	source->event.event_type = type;
}

static void raise_qp(struct vb_qp *core, enum vb_qp_source which)
{
	struct vb_face_qp *qp = core ? core->user : NULL;
	struct vb_list *link, *next;

	if (!qp)
		return;
	vb_event_raise(&qp->object.context->async, &qp->events[which].source);
	/* Everybody who opened it learns of it. */
	vb_list_for_each(link, next, &qp->shared)
	{
		struct vb_face_qp *other = vb_list_entry(link, struct vb_face_qp, shared);

		vb_event_raise(&other->object.context->async, &other->events[which].source);
	}
}

static void raise_srq(struct vb_srq *core, enum vb_event_type type)
{
	struct vb_face_srq *srq = core ? core->user : NULL;

	if (srq)
		vb_event_raise(&srq->object.context->async,
			       type == VB_EVENT_SRQ_ERR ? &srq->error.source : &srq->limit.source);
}

static void raise_cq(struct vb_cq *core)
{
	struct vb_face_cq *cq = core ? core->user : NULL;

	if (cq)
		vb_event_raise(&cq->object.context->async, &cq->overrun.source);
}

static struct vb_event_source *device_source(struct vb_face_context *context,
					     enum vb_event_type type)
{
	if (type == VB_EVENT_PORT_ACTIVE)
		return &context->port_active.source;
	if (type == VB_EVENT_PORT_ERR)
		return &context->port_error.source;
	return &context->device_fatal.source;
}

static void raise_device(struct vb_engine *engine, enum vb_event_type type)
{
	struct vb_list *link, *tmp;

	pthread_mutex_lock(&contexts_lock);
	vb_list_for_each(link, tmp, &contexts)
	{
		struct vb_face_context *context = vb_list_entry(link, struct vb_face_context, link);

		if (context->engine == engine)
			vb_event_raise(&context->async, device_source(context, type));
	}
	pthread_mutex_unlock(&contexts_lock);
}

static void on_event(struct vb_engine *engine, const struct vb_event *event)
{
	switch (event->type) {
	case VB_EVENT_CQ_ERR:
		raise_cq(event->cq);
		break;
	case VB_EVENT_QP_FATAL:
		raise_qp(event->qp, VB_QP_SOURCE_FATAL);
		break;
	case VB_EVENT_QP_REQ_ERR:
		raise_qp(event->qp, VB_QP_SOURCE_REQ_ERR);
		break;
	case VB_EVENT_QP_ACCESS_ERR:
		raise_qp(event->qp, VB_QP_SOURCE_ACCESS_ERR);
		break;
	case VB_EVENT_COMM_EST:
		raise_qp(event->qp, VB_QP_SOURCE_COMM_EST);
		break;
	case VB_EVENT_SQ_DRAINED:
		raise_qp(event->qp, VB_QP_SOURCE_SQ_DRAINED);
		break;
	case VB_EVENT_QP_LAST_WQE_REACHED:
		raise_qp(event->qp, VB_QP_SOURCE_LAST_WQE);
		break;
	case VB_EVENT_SRQ_ERR:
	case VB_EVENT_SRQ_LIMIT_REACHED:
		raise_srq(event->srq, event->type);
		break;
	case VB_EVENT_WQ_FATAL:
		vb_face_raise_wq(event->wq);
		break;
	case VB_EVENT_DEVICE_FATAL:
	case VB_EVENT_PORT_ACTIVE:
	case VB_EVENT_PORT_ERR:
		raise_device(engine, event->type);
		break;
	}
}

static void on_cq_event(struct vb_engine *engine, struct vb_cq *core)
{
	struct vb_face_cq *cq = core->user;

	if (cq && cq->ex.channel)
		vb_event_raise(&vb_container_of(cq->ex.channel, struct vb_face_channel, ibv)->queue,
			       &cq->completion);
}

const struct vb_host_hooks vb_face_hooks = {.event = on_event, .cq_event = on_cq_event};

int ibv_get_async_event(struct ibv_context *ibv, struct ibv_async_event *event)
{
	struct vb_face_context *context = vb_face_context(ibv);
	struct vb_event_source *source;

	if (!vb_event_waits(&context->async) && vb_face_enter(context->engine)) {
		vb_engine_pump(context->engine);
		vb_engine_wake_thread(context->engine);
		vb_engine_leave(context->engine);
	}
	source = vb_event_take(&context->async);
	if (!source)
		return -1;
	*event = vb_container_of(source, struct vb_async_source, source)->event;
	return 0;
}

static void acknowledge(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
	pthread_mutex_lock(mutex);
	(*completed)++;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_qp *qp = event->element.qp;
	struct ibv_cq *cq = event->element.cq;
	struct ibv_srq *srq = event->element.srq;
	struct ibv_wq *wq = event->element.wq;

	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		acknowledge(&qp->mutex, &qp->cond, &qp->events_completed);
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		acknowledge(&srq->mutex, &srq->cond, &srq->events_completed);
		break;
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		break;
	case IBV_EVENT_WQ_FATAL:
		acknowledge(&wq->mutex, &wq->cond, &wq->events_completed);
		break;
	}
}
