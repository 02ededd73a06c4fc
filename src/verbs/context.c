/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * context.c - opening and closing a device, and the table of functions behind a context.
 *
 * The inline functions of <infiniband/verbs.h> call through two tables: ibv_context.ops, and struct
 * verbs_context, which lies in front of the ibv_context (abi_compat says that it is there). An
 * entry that is NULL makes the inline function answer EOPNOTSUPP.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "sysfs/sysfs.h"
#include "verbs/exports.h"
#include "verbs/raw.h"

uint32_t vb_face_handle(void)
{
	static atomic_uint next;

	return atomic_fetch_add(&next, 1);
}

void vb_face_add(struct ibv_context *ibv, struct vb_face_object *object, enum vb_face_kind kind)
{
	struct vb_face_context *context = vb_face_context(ibv);

	object->context = context;
	pthread_mutex_lock(&context->lock);
	vb_list_append(&context->objects[kind], &object->link);
	context->references++;
	pthread_mutex_unlock(&context->lock);
}

static void put(struct vb_face_context *context)
{
	bool last;

	pthread_mutex_lock(&context->lock);
	last = --context->references == 0;
	pthread_mutex_unlock(&context->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&context->lock);
	pthread_mutex_destroy(&context->verbs.context.mutex);
	vb_event_queue_finish(&context->async);
	free(context);
}

void vb_face_remove(struct vb_face_object *object)
{
	struct vb_face_context *context = object->context;

	pthread_mutex_lock(&context->lock);
	vb_list_remove(&object->link);
	pthread_mutex_unlock(&context->lock);
	put(context);
}

static void fill_tables(struct verbs_context *verbs)
{
	struct ibv_context_ops *ops = &verbs->context.ops;

	ops->poll_cq = vb_face_poll_cq;
	ops->req_notify_cq = vb_face_req_notify_cq;
	ops->post_send = vb_face_post_send;
	ops->post_recv = vb_face_post_recv;
	ops->post_srq_recv = vb_face_post_srq_recv;
	ops->alloc_mw = vb_face_alloc_mw;
	ops->bind_mw = vb_face_bind_mw;
	ops->dealloc_mw = vb_face_dealloc_mw;

	verbs->sz = sizeof(*verbs);
	verbs->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	verbs->query_port = vb_face_query_port;
	verbs->query_device_ex = vb_face_query_device_ex;
	verbs->query_rt_values = vb_face_query_rt_values;
	verbs->create_cq_ex = vb_face_create_cq_ex;
	verbs->create_qp_ex = vb_face_create_qp_ex;
	verbs->create_srq_ex = vb_face_create_srq_ex;
	verbs->post_srq_ops = vb_face_post_srq_ops;
	verbs->alloc_dm = vb_face_alloc_dm;
	verbs->free_dm = vb_face_free_dm;
	verbs->reg_dm_mr = vb_face_reg_dm_mr;
	verbs->get_srq_num = vb_face_get_srq_num;
	vb_face_xrc_tables(verbs);
	verbs->alloc_null_mr = vb_face_alloc_null_mr;
	verbs->advise_mr = vb_face_advise_mr;
	verbs->alloc_td = vb_face_alloc_td;
	verbs->dealloc_td = vb_face_dealloc_td;
	verbs->alloc_parent_domain = vb_face_alloc_parent_domain;
	verbs->modify_cq = vb_face_modify_cq;
	vb_face_raw_tables(verbs);
}

static struct vb_face_context *make_context(struct ibv_device *device)
{
	struct vb_face_context *context = calloc(1, sizeof(*context));
	int kind, error;

	if (!context) {
		errno = ENOMEM;
		return NULL;
	}
	error = vb_event_queue_init(&context->async);
	if (error) {
		free(context);
		errno = -error;
		return NULL;
	}
	context->references = 1;
	vb_list_init(&context->link);
	for (kind = 0; kind < VB_FACE_KINDS; kind++)
		vb_list_init(&context->objects[kind]);
	pthread_mutex_init(&context->lock, NULL);
	vb_face_async_init(&context->device_fatal, IBV_EVENT_DEVICE_FATAL);
	vb_face_async_init(&context->port_active, IBV_EVENT_PORT_ACTIVE);
	context->port_active.event.element.port_num = VB_PORT;
	vb_face_async_init(&context->port_error, IBV_EVENT_PORT_ERR);
	context->port_error.event.element.port_num = VB_PORT;
	fill_tables(&context->verbs);
	context->verbs.context.device = device;
	context->verbs.context.async_fd = context->async.fd;
	context->verbs.context.num_comp_vectors = 1;
	context->verbs.context.cmd_fd = -1;
	pthread_mutex_init(&context->verbs.context.mutex, NULL);
	return context;
}

/* As the registry does with the hosts of the killed when an engine joins. */
static void sweep_once(void)
{
	static atomic_flag swept = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&swept))
		vb_sysfs_sweep();
}

struct ibv_context *vb_face_open(struct ibv_device *device, uint32_t family)
{
	struct vb_face_context *context;
	int error;

	vb_face_setup();
	context = make_context(device);
	if (!context)
		return NULL;
	error = vb_engine_get(vb_face_host_device(&context->verbs.context), &context->engine);
	if (error) {
		put(context);
		errno = -error;
		return NULL;
	}
	sweep_once();
	context->family = family;
	vb_face_contexts_add(context);
	return &context->verbs.context;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *ibv = vb_face_open(device, vb_face_handle());

	if (!ibv)
		return NULL;
	ibv->cmd_fd =
		vb_exports_create(vb_face_context(ibv), (unsigned int)ibv_get_device_index(device));
	/* A context without can do all but be imported; programs set flags on the descriptor. */
	if (ibv->cmd_fd < 0)
		ibv->cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	return ibv;
}

/* The core of every object that is still alive ends; its shell stays with the program. */
static void close_objects(struct vb_face_context *context)
{
	struct vb_list *l, *t, *objects = context->objects;
	struct vb_engine *engine = context->engine;

	if (vb_face_enter(engine)) {
		vb_face_flows_close(objects);
		vb_list_for_each(l, t, &objects[VB_FACE_QP])
			vb_face_qp_close(vb_list_entry(l, struct vb_face_qp, object.link));
		vb_face_wqs_close(objects);
		vb_list_for_each(l, t, &objects[VB_FACE_COMP_CNTR]) vb_face_comp_cntr_close(l);
		vb_list_for_each(l, t, &objects[VB_FACE_AH])
			vb_face_ah_close(vb_list_entry(l, struct vb_face_ah, object.link));
		vb_list_for_each(l, t, &objects[VB_FACE_SRQ])
			vb_face_srq_close(vb_list_entry(l, struct vb_face_srq, object.link));
		vb_list_for_each(l, t, &objects[VB_FACE_CQ])
			vb_face_cq_close(vb_list_entry(l, struct vb_face_cq, object.link));
		vb_list_for_each(l, t, &objects[VB_FACE_MW]) vb_face_mw_close(l);
		vb_engine_leave(engine);
	}
	vb_list_for_each(l, t, &objects[VB_FACE_MR])
		vb_face_mr_close(vb_list_entry(l, struct vb_face_mr, object.link));
	vb_list_for_each(l, t, &objects[VB_FACE_DM])
		vb_face_dm_close(vb_list_entry(l, struct vb_face_dm, object.link));
	if (vb_face_enter(engine)) {
		vb_list_for_each(l, t, &objects[VB_FACE_XRCD])
			vb_face_xrcd_close(vb_list_entry(l, struct vb_face_xrcd, object.link));
		vb_list_for_each(l, t, &objects[VB_FACE_PARENT])
			vb_face_parent_close(vb_list_entry(l, struct vb_face_pd, object.link));
		vb_list_for_each(l, t, &objects[VB_FACE_PD])
			vb_face_pd_close(vb_list_entry(l, struct vb_face_pd, object.link));
		vb_engine_leave(engine);
	}
}

int ibv_close_device(struct ibv_context *ibv)
{
	struct vb_face_context *context = vb_face_context(ibv);
	struct vb_engine *engine = context->engine;

	if (!engine)
		return EINVAL;
	vb_face_contexts_remove(context);
	close_objects(context);
	/* In a forked child the engine is the parent's business. */
	if (vb_face_enter(engine)) {
		vb_engine_leave(engine);
		vb_engine_put(engine);
	}
	context->engine = NULL;
	vb_exports_part(context);
	vb_imports_put(context->imports);
	context->imports = NULL;
	if (ibv->cmd_fd >= 0)
		close(ibv->cmd_fd);
	ibv->cmd_fd = -1;
	/* Shells that the program still holds keep the memory, not the descriptor. */
	vb_event_queue_close(&context->async);
	ibv->async_fd = -1;
	put(context);
	return 0;
}
