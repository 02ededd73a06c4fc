/* SPDX-License-Identifier: BSD-2-Clause */
/* qp.c - queue pairs: create, modify, query, destroy. Which move needs what is the core's table. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/mcast.h"
#include "host/identity.h"
#include "verbs/face.h"
#include "verbs/raw.h"

#define SAME(core, verbs) _Static_assert((int)(core) == (int)(verbs), #core)
SAME(VB_QPT_RC, IBV_QPT_RC);
SAME(VB_QPT_UC, IBV_QPT_UC);
SAME(VB_QPT_UD, IBV_QPT_UD);
SAME(VB_QPT_XRC_SEND, IBV_QPT_XRC_SEND);
SAME(VB_QPT_XRC_RECV, IBV_QPT_XRC_RECV);
SAME(VB_QPS_RESET, IBV_QPS_RESET);
SAME(VB_QPS_INIT, IBV_QPS_INIT);
SAME(VB_QPS_RTR, IBV_QPS_RTR);
SAME(VB_QPS_RTS, IBV_QPS_RTS);
SAME(VB_QPS_SQD, IBV_QPS_SQD);
SAME(VB_QPS_SQE, IBV_QPS_SQE);
SAME(VB_QPS_ERR, IBV_QPS_ERR);
SAME(VB_MTU_256, IBV_MTU_256);
SAME(VB_MTU_4096, IBV_MTU_4096);
SAME(VB_QP_STATE, IBV_QP_STATE);
SAME(VB_QP_CUR_STATE, IBV_QP_CUR_STATE);
SAME(VB_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY);
SAME(VB_QP_ACCESS_FLAGS, IBV_QP_ACCESS_FLAGS);
SAME(VB_QP_PKEY_INDEX, IBV_QP_PKEY_INDEX);
SAME(VB_QP_PORT, IBV_QP_PORT);
SAME(VB_QP_QKEY, IBV_QP_QKEY);
SAME(VB_QP_AV, IBV_QP_AV);
SAME(VB_QP_PATH_MTU, IBV_QP_PATH_MTU);
SAME(VB_QP_TIMEOUT, IBV_QP_TIMEOUT);
SAME(VB_QP_RETRY_CNT, IBV_QP_RETRY_CNT);
SAME(VB_QP_RNR_RETRY, IBV_QP_RNR_RETRY);
SAME(VB_QP_RQ_PSN, IBV_QP_RQ_PSN);
SAME(VB_QP_MAX_QP_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC);
SAME(VB_QP_ALT_PATH, IBV_QP_ALT_PATH);
SAME(VB_QP_MIN_RNR_TIMER, IBV_QP_MIN_RNR_TIMER);
SAME(VB_QP_SQ_PSN, IBV_QP_SQ_PSN);
SAME(VB_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_DEST_RD_ATOMIC);
SAME(VB_QP_PATH_MIG_STATE, IBV_QP_PATH_MIG_STATE);
SAME(VB_QP_CAP, IBV_QP_CAP);
SAME(VB_QP_DEST_QPN, IBV_QP_DEST_QPN);
SAME(VB_QP_RATE_LIMIT, IBV_QP_RATE_LIMIT);
SAME(VB_EVENT_CQ_ERR, IBV_EVENT_CQ_ERR);
SAME(VB_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_QP_LAST_WQE_REACHED);
SAME(VB_EVENT_SRQ_LIMIT_REACHED, IBV_EVENT_SRQ_LIMIT_REACHED);

#define VB_KNOWN_QP_ATTR (((IBV_QP_DEST_QPN << 1) - 1) | IBV_QP_RATE_LIMIT)

static const enum ibv_event_type event_types[VB_QP_SOURCES] = {
	[VB_QP_SOURCE_FATAL] = IBV_EVENT_QP_FATAL,
	[VB_QP_SOURCE_REQ_ERR] = IBV_EVENT_QP_REQ_ERR,
	[VB_QP_SOURCE_ACCESS_ERR] = IBV_EVENT_QP_ACCESS_ERR,
	[VB_QP_SOURCE_COMM_EST] = IBV_EVENT_COMM_EST,
	[VB_QP_SOURCE_SQ_DRAINED] = IBV_EVENT_SQ_DRAINED,
	[VB_QP_SOURCE_LAST_WQE] = IBV_EVENT_QP_LAST_WQE_REACHED,
};

static void caps_to_core(const struct ibv_qp_cap *from, struct vb_qp_cap *to)
{
	to->max_send_wr = from->max_send_wr;
	to->max_recv_wr = from->max_recv_wr;
	to->max_send_sge = from->max_send_sge;
	to->max_recv_sge = from->max_recv_sge;
	to->max_inline_data = from->max_inline_data;
}

static void caps_from_core(const struct vb_qp_cap *from, struct ibv_qp_cap *to)
{
	to->max_send_wr = from->max_send_wr;
	to->max_recv_wr = from->max_recv_wr;
	to->max_send_sge = from->max_send_sge;
	to->max_recv_sge = from->max_recv_sge;
	to->max_inline_data = from->max_inline_data;
}

static bool belongs(const struct ibv_context *context, const struct ibv_cq *cq)
{
	return cq && cq->context == context;
}

static int check_create(struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	switch ((int)attr->qp_type) {
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_UD:
	case IBV_QPT_RAW_PACKET:
		break;
	case IBV_QPT_XRC_SEND: /* receives nothing: its receive CQ does not matter */
		return pd && !attr->srq && belongs(pd->context, attr->send_cq) ? 0 : -EINVAL;
	case IBV_QPT_XRC_RECV: /* has a domain instead, in the extended call */
		return -EINVAL;
	case IBV_QPT_DRIVER: /* a type, and no adapter's here */
		return -EOPNOTSUPP;
	default:
		return -EINVAL;
	}
	if (!pd || !belongs(pd->context, attr->send_cq) || !belongs(pd->context, attr->recv_cq))
		return -EINVAL;
	/* One of XRC is named in packets, and completes into a CQ of its own: no other type's. */
	if (attr->srq && (attr->srq->context != pd->context || vb_face_srq(attr->srq)->xrcd))
		return -EINVAL;
	return 0;
}

static void init_shell(struct vb_face_qp *qp, struct ibv_context *context, struct ibv_pd *pd,
		       const struct ibv_qp_init_attr *attr)
{
	const bool receives = attr->qp_type != IBV_QPT_XRC_SEND;
	struct ibv_qp *ibv = &qp->ex.qp_base;
	int i;

	ibv->context = context;
	ibv->qp_context = attr->qp_context;
	ibv->pd = pd;
	ibv->send_cq = pd ? attr->send_cq : NULL;
	ibv->recv_cq = pd && receives ? attr->recv_cq : NULL;
	ibv->srq = pd ? attr->srq : NULL;
	ibv->handle = vb_face_handle();
	ibv->state = IBV_QPS_RESET;
	ibv->qp_type = attr->qp_type;
	pthread_mutex_init(&ibv->mutex, NULL);
	pthread_cond_init(&ibv->cond, NULL);
	qp->sq_sig_all = attr->sq_sig_all;
	vb_list_init(&qp->shared);
	qp->object.context = vb_face_context(context);
	for (i = 0; i < VB_QP_SOURCES; i++) {
		vb_face_async_init(&qp->events[i], event_types[i]);
		qp->events[i].event.element.qp = ibv;
	}
}

struct vb_face_qp *vb_face_qp_shell(struct ibv_context *context, struct ibv_pd *pd,
				    struct ibv_xrcd *xrcd, const struct ibv_qp_init_attr *attr)
{
	struct vb_face_qp *qp = calloc(1, sizeof(*qp));

	if (!qp) {
		errno = ENOMEM;
		return NULL;
	}
	init_shell(qp, context, pd, attr);
	qp->xrcd = xrcd;
	vb_face_xrcd_use(xrcd, 1);
	return qp;
}

void vb_face_qp_shell_free(struct vb_face_qp *qp)
{
	vb_face_xrcd_use(qp->xrcd, -1);
	vb_builder_destroy(qp->builder);
	vb_rings_free(&qp->rings);
	pthread_mutex_destroy(&qp->ex.qp_base.mutex);
	pthread_cond_destroy(&qp->ex.qp_base.cond);
	free(qp);
}

/* 0 or -errno. */
static int create_core(struct vb_face_qp *qp, struct vb_engine *engine,
		       struct ibv_qp_init_attr *attr, const struct vb_qp_init *raw)
{
	struct ibv_qp *ibv = &qp->ex.qp_base;
	struct vb_qp_init init = {
		.type = (enum vb_qp_type)attr->qp_type,
		.srq = ibv->srq ? vb_face_srq(ibv->srq)->core : NULL,
		.send_cq = ibv->send_cq ? vb_face_cq(ibv->send_cq)->core : NULL,
		.recv_cq = ibv->recv_cq ? vb_face_cq(ibv->recv_cq)->core : NULL,
		.xrcd = qp->xrcd ? vb_face_xrcd(qp->xrcd)->core : NULL,
		.sq_sig_all = attr->sq_sig_all != 0,
		.single = ibv->pd && vb_face_is_single(vb_face_pd(ibv->pd)),
		.user = qp,
		.max_tso_header = raw->max_tso_header,
		.strip_vlan = raw->strip_vlan,
		.rss = raw->rss,
	};
	int error;

	caps_to_core(&attr->cap, &init.cap);
	error = vb_rings_alloc(&qp->rings, ibv->pd, vb_qp_room(&init), VB_RINGS_QP);
	if (error)
		return error;
	init.room = qp->rings.memory;
	if (!vb_face_enter(engine))
		return -EIO;
	qp->core = vb_qp_create(ibv->pd ? vb_face_pd(ibv->pd)->core : NULL, &init);
	if (!qp->core)
		error = -errno;
	else
		ibv->qp_num = qp->core->qpn;
	vb_engine_leave(engine);
	if (error)
		return error;
	qp->beside = qp->core->single;
	qp->engine = engine;
	caps_from_core(&init.cap, &attr->cap);
	return 0;
}

/* In pd, or in xrcd: the other one is NULL. raw: what only raw packets have. */
static struct vb_face_qp *create_in(struct ibv_context *context, struct ibv_pd *pd,
				    struct ibv_xrcd *xrcd, struct ibv_qp_init_attr *attr,
				    const struct vb_qp_init *raw)
{
	struct vb_engine *engine = pd ? vb_face_pd(pd)->engine : vb_face_xrcd(xrcd)->engine;
	struct vb_face_qp *qp = vb_face_qp_shell(context, pd, xrcd, attr);
	int error;

	if (!qp)
		return NULL;
	error = create_core(qp, engine, attr, raw);
	if (error) {
		vb_face_qp_shell_free(qp);
		errno = -error;
		return NULL;
	}
	vb_face_add(context, &qp->object, VB_FACE_QP);
	return qp;
}

static const struct vb_qp_init nothing_raw;

static struct vb_face_qp *create(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	int error = check_create(pd, attr);

	if (error) {
		errno = -error;
		return NULL;
	}
	return create_in(pd->context, pd, NULL, attr, &nothing_raw);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct vb_face_qp *qp = create(pd, attr);

	return qp ? &qp->ex.qp_base : NULL;
}

/* XRC_RECV: a domain is all that it has; what the program says about queues does not matter. */
static struct ibv_qp *create_xrc_recv(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct vb_face_qp *qp;

	if (attr->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS) ||
	    !(attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) || !attr->xrcd ||
	    attr->xrcd->context != context) {
		errno = EINVAL;
		return NULL;
	}
	if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && attr->create_flags) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	qp = create_in(context, NULL, attr->xrcd, (struct ibv_qp_init_attr *)attr, &nothing_raw);
	return qp ? &qp->ex.qp_base : NULL;
}

/* The extended struct begins with the members of the plain one. */
_Static_assert(offsetof(struct ibv_qp_init_attr_ex, sq_sig_all) ==
		       offsetof(struct ibv_qp_init_attr, sq_sig_all),
	       "struct ibv_qp_init_attr_ex");

/* The functions of ibv_wr_post(3), where they are asked for; qp may be NULL. */
static struct ibv_qp *with_builder(struct vb_face_qp *qp, const struct ibv_qp_init_attr_ex *attr)
{
	int error;

	if (!qp || !(attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
		return qp ? &qp->ex.qp_base : NULL;
	error = vb_builder_create(qp, attr->send_ops_flags);
	if (error) {
		ibv_destroy_qp(&qp->ex.qp_base);
		errno = -error;
		return NULL;
	}
	return &qp->ex.qp_base;
}

static struct ibv_qp *create_raw(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct vb_qp_init raw = {0};
	struct vb_rss rss;
	int error = vb_face_raw_init(attr, &raw, &rss);

	/* What spreads over work queues has no queues of its own. */
	if (!error && !raw.rss)
		error = check_create(attr->pd, (struct ibv_qp_init_attr *)attr);
	if (error) {
		errno = -error;
		return NULL;
	}
	return with_builder(
		create_in(context, attr->pd, NULL, (struct ibv_qp_init_attr *)attr, &raw), attr);
}

struct ibv_qp *vb_face_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	uint32_t known = (IBV_QP_INIT_ATTR_SEND_OPS_FLAGS << 1) - 1;
	uint32_t done = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
			IBV_QP_INIT_ATTR_CREATE_FLAGS;

	if (attr->qp_type == IBV_QPT_XRC_RECV && !(attr->comp_mask & ~known))
		return create_xrc_recv(context, attr);
	if (attr->comp_mask & ~known || !(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd ||
	    attr->pd->context != context) {
		errno = EINVAL;
		return NULL;
	}
	if (attr->qp_type == IBV_QPT_RAW_PACKET)
		return create_raw(context, attr);
	if (attr->comp_mask & ~done ||
	    (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && attr->create_flags)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return with_builder(create(attr->pd, (struct ibv_qp_init_attr *)attr), attr);
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *ibv)
{
	struct vb_face_qp *qp = vb_face_qp(ibv);

	return qp->builder ? &qp->ex : NULL;
}

/* Programs (perftest) give both halves of XRC what RC takes; the kernel's uverbs drops what the
 * half does not have. */
static uint32_t mask_of_half(enum ibv_qp_type type, uint32_t mask)
{
	if (type == IBV_QPT_XRC_SEND)
		mask &= ~(uint32_t)(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (type == IBV_QPT_XRC_RECV)
		mask &= ~(uint32_t)(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
	return mask;
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	struct vb_face_qp *qp = vb_face_qp(ibv);
	struct vb_qp_attr core = {
		.qp_state = (enum vb_qp_state)attr->qp_state,
		.cur_qp_state = (enum vb_qp_state)attr->cur_qp_state,
		.path_mtu = (enum vb_mtu)attr->path_mtu,
		.path_mig_state = attr->path_mig_state,
		.qkey = attr->qkey,
		.rq_psn = attr->rq_psn,
		.sq_psn = attr->sq_psn,
		.dest_qpn = attr->dest_qp_num,
		.access_flags = attr->qp_access_flags,
		.pkey_index = attr->pkey_index,
		.en_sqd_async_notify = attr->en_sqd_async_notify != 0,
		.max_rd_atomic = attr->max_rd_atomic,
		.max_dest_rd_atomic = attr->max_dest_rd_atomic,
		.min_rnr_timer = attr->min_rnr_timer,
		.port_num = attr->port_num,
		.timeout = attr->timeout,
		.retry_cnt = attr->retry_cnt,
		.rnr_retry = attr->rnr_retry,
	};
	int error;

	if (mask & ~(int)VB_KNOWN_QP_ATTR)
		return EINVAL;
	if (mask & IBV_QP_AV)
		vb_face_ah_attr_to_core(vb_face_host_device(ibv->context), &attr->ah_attr,
					&core.ah);
	if (!vb_face_enter(qp->engine))
		return EIO;
	error = vb_qp_modify(qp->core, &core, mask_of_half(ibv->qp_type, (uint32_t)mask));
	ibv->state = (enum ibv_qp_state)qp->core->state;
	vb_engine_pump(qp->engine);
	vb_engine_leave(qp->engine);
	return -error;
}

static void fill_attr(const struct vb_qp_attr *core, struct ibv_qp_attr *attr)
{
	*attr = (struct ibv_qp_attr){
		.qp_state = (enum ibv_qp_state)core->qp_state,
		.cur_qp_state = (enum ibv_qp_state)core->cur_qp_state,
		.path_mtu = (enum ibv_mtu)core->path_mtu,
		.path_mig_state = (enum ibv_mig_state)core->path_mig_state,
		.qkey = core->qkey,
		.rq_psn = core->rq_psn,
		.sq_psn = core->sq_psn,
		.dest_qp_num = core->dest_qpn,
		.qp_access_flags = core->access_flags,
		.pkey_index = core->pkey_index,
		.en_sqd_async_notify = core->en_sqd_async_notify,
		.sq_draining = core->sq_draining,
		.max_rd_atomic = core->max_rd_atomic,
		.max_dest_rd_atomic = core->max_dest_rd_atomic,
		.min_rnr_timer = core->min_rnr_timer,
		.port_num = core->port_num,
		.timeout = core->timeout,
		.retry_cnt = core->retry_cnt,
		.rnr_retry = core->rnr_retry,
	};
	vb_face_ah_attr_from_core(&core->ah, &attr->ah_attr);
}

/* The mask is a hint: everything is cheap, so everything is returned. */
int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init_attr)
{
	struct vb_face_qp *qp = vb_face_qp(ibv);
	struct vb_qp_attr core;
	struct vb_qp_cap caps;

	if (!vb_face_enter(qp->engine))
		return EIO;
	if (qp->core->rss) { /* it has no attributes */
		vb_engine_leave(qp->engine);
		return EOPNOTSUPP;
	}
	vb_qp_query(qp->core, &core);
	caps = qp->core->cap;
	vb_engine_leave(qp->engine);

	fill_attr(&core, attr);
	caps_from_core(&caps, &attr->cap);
	ibv->state = attr->qp_state;
	*init_attr = (struct ibv_qp_init_attr){
		.qp_context = ibv->qp_context,
		.send_cq = ibv->send_cq,
		.recv_cq = ibv->recv_cq,
		.srq = ibv->srq,
		.cap = attr->cap,
		.qp_type = ibv->qp_type,
		.sq_sig_all = qp->sq_sig_all,
	};
	return 0;
}

/* let_go - the core goes with its last handle. */
static void let_go(struct vb_face_qp *qp)
{
	if (!vb_list_is_linked(&qp->shared)) {
		vb_qp_destroy(qp->core);
		return;
	}
	if (qp->core->user == qp)
		qp->core->user = vb_list_entry(qp->shared.next, struct vb_face_qp, shared);
	vb_list_remove(&qp->shared);
}

int ibv_destroy_qp(struct ibv_qp *ibv)
{
	struct vb_face_qp *qp = vb_face_qp(ibv);
	uint32_t taken = 0;
	int i;

	if (vb_face_enter(qp->engine)) {
		if (vb_mcast_is_attached(qp->core) || qp->core->flows) {
			vb_engine_leave(qp->engine);
			return EBUSY;
		}
		let_go(qp);
		vb_engine_leave(qp->engine);
	}
	for (i = 0; i < VB_QP_SOURCES; i++)
		taken += vb_event_forget(&qp->object.context->async, &qp->events[i].source);
	pthread_mutex_lock(&ibv->mutex);
	while (ibv->events_completed != taken)
		pthread_cond_wait(&ibv->cond, &ibv->mutex);
	pthread_mutex_unlock(&ibv->mutex);
	vb_face_remove(&qp->object);
	vb_face_qp_shell_free(qp);
	return 0;
}

void vb_face_qp_close(struct vb_face_qp *qp)
{
	let_go(qp);
	qp->core = NULL;
	qp->engine = NULL;
}

/* --- multicast --------------------------------------------------------------------------- */

/* The LID is InfiniBand's: RoCE has none, and nothing looks at it. */
static int change_membership(struct ibv_qp *ibv, const union ibv_gid *gid,
			     int (*change)(struct vb_qp *qp, const struct in6_addr *gid))
{
	struct vb_face_qp *qp = vb_face_qp(ibv);
	struct in6_addr group;
	int rc;

	memcpy(&group, gid, sizeof(group));
	if (!vb_face_enter(qp->engine))
		return EIO;
	rc = change(qp->core, &group);
	vb_engine_leave(qp->engine);
	return -rc;
}

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return change_membership(qp, gid, vb_mcast_attach);
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return change_membership(qp, gid, vb_mcast_detach);
}

/* --- what this library answers for every QP ---------------------------------------------- */

/* A repeated packet writes its bytes again: nothing is promised. */
int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return 0;
}

/* Enhanced connection establishment: what two ends agree on beyond the specification. There is
 * nothing of that kind here, so that of whatever a peer proposes no option is accepted. */
static void no_options(struct ibv_ece *ece)
{
	*ece = (struct ibv_ece){.vendor_id = VB_VENDOR_ID};
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (ece->comp_mask)
		return EINVAL;
	if (!vb_face_qp(qp)->engine)
		return EIO;
	no_options(ece);
	return 0;
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (!vb_face_qp(qp)->engine)
		return EIO;
	no_options(ece);
	return 0;
}
