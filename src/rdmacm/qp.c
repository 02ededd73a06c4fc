/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * qp.c - queue pairs, completion queues and shared receive queues of ids (rdma_create_qp(3),
 * rdma_create_srq(3), rdma_init_qp_attr(3)).
 *
 * A connected queue pair goes to INIT when it is created, and through RTR to RTS when both ends
 * have said what they want; a datagram one goes to RTS at once. All by the public ibv_modify_qp(),
 * with the attributes that rdma_init_qp_attr() gives to programs that move theirs themselves.
 */
#include <string.h>

#include "rdmacm/cma.h"

/* --- attributes -------------------------------------------------------------------------- */

static void init_attr(struct vb_id *id, struct ibv_qp_attr *attr, int *mask)
{
	attr->port_num = VB_CMA_PORT;
	attr->pkey_index = 0;
	*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	if (vb_id_is_datagram(id)) {
		attr->qkey = RDMA_UDP_QKEY;
		*mask |= IBV_QP_QKEY;
		return;
	}
	*mask |= IBV_QP_ACCESS_FLAGS;
	if (!id->conn)
		return;
	attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (id->peering.responder_resources)
		attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
}

static bool is_reliable(const struct vb_id *id)
{
	return (id->pub.qp ? id->pub.qp->qp_type : id->pub.qp_type) != IBV_QPT_UC;
}

static void rtr_attr(struct vb_id *id, struct ibv_qp_attr *attr, int *mask)
{
	const struct vb_peering *peering = &id->peering;

	vb_ah_attr_to_ibv(&peering->ah, &attr->ah_attr);
	attr->path_mtu = vb_mtu_to_ibv(peering->path_mtu);
	attr->dest_qp_num = peering->qpn;
	attr->rq_psn = id->rq_psn;
	*mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (!is_reliable(id))
		return;
	attr->max_dest_rd_atomic = peering->responder_resources;
	attr->min_rnr_timer = 0;
	*mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

static void rts_attr(struct vb_id *id, struct ibv_qp_attr *attr, int *mask)
{
	const struct vb_peering *peering = &id->peering;

	attr->sq_psn = peering->sq_psn;
	*mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (!is_reliable(id))
		return;
	attr->timeout = id->ack_timeout_set ? id->ack_timeout : peering->ack_timeout;
	attr->retry_cnt = peering->retry_count;
	attr->rnr_retry = peering->rnr_retry_count;
	attr->max_rd_atomic = peering->initiator_depth;
	*mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
}

/* Under vb_cma_lock: the peer's numbers come from the connection manager. */
static int fill_attr(struct vb_id *id, struct ibv_qp_attr *attr, int *mask)
{
	enum ibv_qp_state state = attr->qp_state;

	memset(attr, 0, sizeof(*attr));
	attr->qp_state = state;
	if (vb_id_is_datagram(id) || state == IBV_QPS_INIT) {
		init_attr(id, attr, mask);
		return 0;
	}
	if (!id->peering.known)
		return -EINVAL;
	if (state == IBV_QPS_RTR)
		rtr_attr(id, attr, mask);
	else if (state == IBV_QPS_RTS)
		rts_attr(id, attr, mask);
	else
		return -EINVAL;
	return 0;
}

static int qp_attr(struct vb_id *id, struct ibv_qp_attr *attr, int *mask)
{
	int rc;

	if (!id->adapter)
		return -EINVAL;
	pthread_mutex_lock(&vb_cma_lock);
	rc = fill_attr(id, attr, mask);
	pthread_mutex_unlock(&vb_cma_lock);
	return rc;
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	return vb_cma_result(qp_attr(vb_id(id), attr, mask));
}

/* --- moving ------------------------------------------------------------------------------ */

static int move(struct vb_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask, rc = qp_attr(id, &attr, &mask);

	return rc ?: -ibv_modify_qp(qp, &attr, mask);
}

int vb_qp_to_rtr(struct vb_id *id, uint8_t responder_resources)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int mask, rc;

	if (!id->pub.qp)
		return 0;
	rc = move(id, id->pub.qp, IBV_QPS_INIT); /* now with the peer's rights */
	if (rc == 0)
		rc = qp_attr(id, &attr, &mask);
	if (rc)
		return rc;
	if (responder_resources != RDMA_MAX_RESP_RES)
		attr.max_dest_rd_atomic = responder_resources;
	return -ibv_modify_qp(id->pub.qp, &attr, mask);
}

int vb_qp_to_rts(struct vb_id *id, uint8_t initiator_depth)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	int mask, rc;

	if (!id->pub.qp)
		return 0;
	rc = qp_attr(id, &attr, &mask);
	if (rc)
		return rc;
	if (initiator_depth != RDMA_MAX_INIT_DEPTH)
		attr.max_rd_atomic = initiator_depth;
	return -ibv_modify_qp(id->pub.qp, &attr, mask);
}

int vb_qp_to_error(struct vb_id *id)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	return id->pub.qp ? -ibv_modify_qp(id->pub.qp, &attr, IBV_QP_STATE) : 0;
}

static int make_ready(struct vb_id *id, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int rc = move(id, qp, IBV_QPS_INIT);

	if (rc || !vb_id_is_datagram(id))
		return rc;
	rc = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	if (rc)
		return -rc;
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = 0;
	return -ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

/* --- creating ---------------------------------------------------------------------------- */

static void destroy_cqs(struct rdma_cm_id *id)
{
	if (id->send_cq && id->send_cq != id->recv_cq)
		ibv_destroy_cq(id->send_cq);
	if (id->recv_cq)
		ibv_destroy_cq(id->recv_cq);
	if (id->send_cq_channel && id->send_cq_channel != id->recv_cq_channel)
		ibv_destroy_comp_channel(id->send_cq_channel);
	if (id->recv_cq_channel)
		ibv_destroy_comp_channel(id->recv_cq_channel);
	id->send_cq = id->recv_cq = NULL;
	id->send_cq_channel = id->recv_cq_channel = NULL;
}

static int create_cq(struct rdma_cm_id *id, uint32_t size, struct ibv_cq **cq,
		     struct ibv_comp_channel **channel)
{
	if (size == 0)
		return 0;
	*channel = ibv_create_comp_channel(id->verbs);
	if (*channel)
		*cq = ibv_create_cq(id->verbs, (int)size, id, *channel, 0);
	return *cq ? 0 : -errno;
}

static int create_cqs(struct rdma_cm_id *id, uint32_t send_size, uint32_t recv_size)
{
	int rc = create_cq(id, recv_size, &id->recv_cq, &id->recv_cq_channel);

	return rc ?: create_cq(id, send_size, &id->send_cq, &id->send_cq_channel);
}

/* The target's half of XRC has a domain, and no queues: without one of the program's, the
 * adapter's.
 */
static int check_xrc_target(struct vb_id *id, struct ibv_qp_init_attr_ex *attr)
{
	attr->comp_mask &= ~(uint32_t)IBV_QP_INIT_ATTR_PD;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_XRCD)
		return attr->xrcd && attr->xrcd->context == id->pub.verbs ? 0 : -EINVAL;
	attr->xrcd = id->adapter ? vb_adapter_xrcd(id->adapter) : NULL;
	attr->comp_mask |= IBV_QP_INIT_ATTR_XRCD;
	return attr->xrcd ? 0 : -EINVAL;
}

static int check_qp(struct vb_id *full, struct ibv_qp_init_attr_ex *attr)
{
	const struct rdma_cm_id *id = &full->pub;

	if (id->qp || !id->verbs)
		return -EINVAL;
	if (attr->qp_type == IBV_QPT_XRC_RECV)
		return check_xrc_target(full, attr);
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
		attr->pd = id->pd;
	} else if (attr->pd->context != id->verbs) {
		return -EINVAL;
	}
	if ((id->recv_cq && attr->recv_cq && id->recv_cq != attr->recv_cq) ||
	    (id->send_cq && attr->send_cq && id->send_cq != attr->send_cq))
		return -EINVAL;
	return 0;
}

static int create_qp(struct vb_id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct rdma_cm_id *pub = &id->pub;
	struct ibv_qp *qp = NULL;
	const bool target = attr->qp_type == IBV_QPT_XRC_RECV;
	int rc = check_qp(id, attr);

	if (rc)
		return rc;
	rc = create_cqs(pub, target || attr->send_cq || pub->send_cq ? 0 : attr->cap.max_send_wr,
			target || attr->recv_cq || pub->recv_cq ? 0 : attr->cap.max_recv_wr);
	if (rc)
		goto err_cqs;
	if (!attr->send_cq)
		attr->send_cq = pub->send_cq;
	if (!attr->recv_cq)
		attr->recv_cq = pub->recv_cq;
	if (!attr->srq && attr->qp_type != IBV_QPT_XRC_SEND)
		attr->srq = pub->srq;
	qp = ibv_create_qp_ex(pub->verbs, attr);
	rc = qp ? make_ready(id, qp) : -errno;
	if (rc)
		goto err_qp;
	if (!target)
		pub->pd = qp->pd;
	pub->qp = qp;
	return 0;

err_qp:
	if (qp)
		ibv_destroy_qp(qp);
err_cqs:
	destroy_cqs(pub);
	return rc;
}

int rdma_create_qp_ex(struct rdma_cm_id *pub, struct ibv_qp_init_attr_ex *attr)
{
	struct vb_id *id = vb_id(pub);
	int rc;

	pthread_mutex_lock(&id->busy);
	rc = create_qp(id, attr);
	pthread_mutex_unlock(&id->busy);
	return vb_cma_result(rc);
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex extended = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd ? pd : id->pd,
	};
	int rc = rdma_create_qp_ex(id, &extended);

	attr->send_cq = extended.send_cq;
	attr->recv_cq = extended.recv_cq;
	attr->srq = extended.srq;
	attr->cap = extended.cap;
	return rc;
}

/* Another thread may take the id's events meanwhile, and move the queue pair for them. */
void rdma_destroy_qp(struct rdma_cm_id *pub)
{
	struct vb_id *id = vb_id(pub);
	struct ibv_qp *qp;

	pthread_mutex_lock(&id->busy);
	qp = pub->qp;
	pub->qp = NULL;
	pthread_mutex_unlock(&id->busy);
	if (qp)
		ibv_destroy_qp(qp);
	destroy_cqs(pub);
}

/* --- shared receive queues --------------------------------------------------------------- */

/* What the program leaves out: the adapter's domain, and a CQ of the id's. 0 or -errno. */
static int complete_xrc_srq(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	struct vb_adapter *adapter = vb_id(id)->adapter;
	int rc;

	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) || !attr->xrcd) {
		attr->xrcd = adapter ? vb_adapter_xrcd(adapter) : NULL;
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
	}
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) || !attr->cq) {
		rc = id->recv_cq ? 0 : create_cqs(id, 0, attr->attr.max_wr);
		if (rc)
			return rc;
		attr->cq = id->recv_cq;
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
	}
	return attr->xrcd ? 0 : -EINVAL;
}

int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq *srq;
	int rc = 0;

	if (!id->verbs || id->srq || !(attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE))
		return vb_cma_result(-EINVAL);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd) {
		attr->pd = id->pd;
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
	}
	if (attr->srq_type == IBV_SRQT_XRC)
		rc = complete_xrc_srq(id, attr);
	if (rc)
		return vb_cma_result(rc);
	srq = ibv_create_srq_ex(id->verbs, attr);
	if (!srq)
		return -1;
	if (!id->pd)
		id->pd = attr->pd;
	id->srq = srq;
	return 0;
}

int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex extended = {
		.srq_context = attr->srq_context,
		.attr = attr->attr,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC,
		.pd = pd,
	};
	int rc = rdma_create_srq_ex(id, &extended);

	attr->attr = extended.attr;
	return rc;
}

void rdma_destroy_srq(struct rdma_cm_id *id)
{
	if (id->srq)
		ibv_destroy_srq(id->srq);
	id->srq = NULL;
	if (!id->qp)
		destroy_cqs(id);
}
