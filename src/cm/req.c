/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * req.c - REQ: asks for a connection (IBTA 12.6.5).
 *
 * The requester repeats it until something comes back. Whoever receives it knows a repetition by
 * the sender's GUID and communication ID, and answers by what he has said so far: MRA, REP, or,
 * when the connection is over, a REJ. A REQ from a queue pair that we believe to be connected means
 * that the other side has forgotten that connection (12.9.8.3.1).
 */
#include <errno.h>

#include "cm/cm_private.h"

#define EXTENDED_XRC 1u
#define MIN_PATH_MTU_SHIFT 8 /* code 1 is 256 bytes */
#define MIN_MTU_CODE 1
#define MAX_MTU_CODE 5
#define REJ_INVALID_MTU 26
#define PERMISSIVE_LID 0xffff /* RoCE has no LIDs */
#define RETRY_LIMIT 7
#define CM_RETRY_LIMIT 15

/* 0: not a path MTU. */
static uint8_t mtu_code(uint16_t bytes)
{
	for (uint8_t code = MIN_MTU_CODE; code <= MAX_MTU_CODE; code++) {
		if (bytes == 1u << (code + MIN_PATH_MTU_SHIFT - 1))
			return code;
	}
	return 0;
}

static uint16_t mtu_bytes(uint8_t code)
{
	return (uint16_t)(1u << (code + MIN_PATH_MTU_SHIFT - 1));
}

static bool is_valid(const struct vb_cm_req *req)
{
	return (req->transport == VB_CM_RC || req->transport == VB_CM_UC ||
		req->transport == VB_CM_XRC) &&
	       mtu_code(req->path_mtu) && req->retry_count <= RETRY_LIMIT &&
	       req->rnr_retry_count <= RETRY_LIMIT && req->max_cm_retries <= CM_RETRY_LIMIT &&
	       req->ack_timeout <= VB_CM_TIMEOUT_LIMIT &&
	       req->remote_cm_timeout <= VB_CM_TIMEOUT_LIMIT &&
	       req->local_cm_timeout <= VB_CM_TIMEOUT_LIMIT;
}

/* is_known_transport - one that a connection can have. */
static bool is_known_transport(const struct vb_cm_wire_req *req)
{
	return req->transport == VB_CM_RC || req->transport == VB_CM_UC ||
	       (req->transport == VB_CM_XRC && req->extended_transport == EXTENDED_XRC);
}

static struct vb_cm_wire_req to_wire(const struct vb_cm_req *req, uint64_t ca_guid)
{
	return (struct vb_cm_wire_req){
		.service_id = req->service_id,
		.ca_guid = ca_guid,
		.qkey = req->qkey,
		.qpn = req->qpn & VB_CM_QPN_MASK,
		.psn = req->psn & VB_CM_QPN_MASK,
		.responder_resources = req->responder_resources,
		.initiator_depth = req->initiator_depth,
		.remote_cm_timeout = req->remote_cm_timeout,
		.local_cm_timeout = req->local_cm_timeout,
		.transport = (uint8_t)req->transport,
		.extended_transport = req->transport == VB_CM_XRC ? EXTENDED_XRC : 0,
		.flow_control = req->flow_control,
		.srq = req->srq,
		.retry_count = req->retry_count,
		.rnr_retry_count = req->rnr_retry_count,
		.pkey = req->pkey,
		.path_mtu = mtu_code(req->path_mtu),
		.max_cm_retries = req->max_cm_retries,
		.primary = {.local_lid = PERMISSIVE_LID,
			    .remote_lid = PERMISSIVE_LID,
			    .local_gid = req->sgid,
			    .remote_gid = req->dgid,
			    .flow_label = req->flow_label,
			    .traffic_class = req->traffic_class,
			    .hop_limit = req->hop_limit,
			    .sl = req->sl,
			    .subnet_local = req->hop_limit <= 1,
			    .ack_timeout = req->ack_timeout},
	};
}

static struct vb_cm_req from_wire(const struct vb_cm_message *m)
{
	const struct vb_cm_wire_req *wire = &m->req;

	return (struct vb_cm_req){
		.service_id = wire->service_id,
		.qpn = wire->qpn,
		.psn = wire->psn,
		.qkey = wire->qkey,
		.transport = (enum vb_cm_transport)wire->transport,
		.responder_resources = wire->responder_resources,
		.initiator_depth = wire->initiator_depth,
		.flow_control = wire->flow_control,
		.srq = wire->srq,
		.retry_count = wire->retry_count,
		.rnr_retry_count = wire->rnr_retry_count,
		.pkey = wire->pkey,
		.path_mtu = mtu_bytes(wire->path_mtu),
		.ack_timeout = wire->primary.ack_timeout,
		.remote_cm_timeout = wire->remote_cm_timeout,
		.local_cm_timeout = wire->local_cm_timeout,
		.max_cm_retries = wire->max_cm_retries,
		.sgid = wire->primary.local_gid,
		.dgid = wire->primary.remote_gid,
		.flow_label = wire->primary.flow_label,
		.traffic_class = wire->primary.traffic_class,
		.hop_limit = wire->primary.hop_limit,
		.sl = wire->primary.sl,
		.ca_guid = wire->ca_guid,
		.private_data = m->private_data,
		.private_data_len = m->private_len,
	};
}

int vb_cm_send_req(struct vb_cm_conn *conn, const struct vb_cm_path *to,
		   const struct vb_cm_req *req, uint64_t now_ns)
{
	struct vb_cm_message message;
	int err;

	if (!vb_cm_may_send(conn, VB_CM_ATTR_REQ) || !is_valid(req))
		return -EINVAL;
	message = vb_cm_begin(conn, VB_CM_ATTR_REQ, conn->tid);
	message.req = to_wire(req, conn->cm->config.ca_guid);
	message.private_data = req->private_data;
	message.private_len = req->private_data_len;
	err = vb_cm_write(conn, &message);
	if (err)
		return err;
	conn->active = true;
	conn->xrc = req->transport == VB_CM_XRC;
	conn->path = *to;
	conn->service_id = req->service_id;
	conn->local_qpn = req->qpn & VB_CM_QPN_MASK;
	conn->ack_timeout = req->ack_timeout;
	conn->max_retries = req->max_cm_retries;
	/* There and back, and what the peer takes to answer. */
	conn->interval_ns =
		2 * vb_cm_life_ns(conn) + vb_cm_time_ns(req->remote_cm_timeout, VB_CM_MAX_EXPONENT);
	vb_cm_conn_move(conn, VB_CMS_REQ_SENT, now_ns);
	vb_cm_send_written(conn);
	return 0;
}

struct vb_cm_conn *vb_cm_req_find(struct vb_cm *cm, const struct vb_cm_rx *rx)
{
	return vb_cm_find_remote_id(cm, rx->message.req.ca_guid, rx->message.local_id);
}

void vb_cm_req_again(struct vb_cm_conn *conn, const struct vb_cm_rx *rx)
{
	struct vb_cm *cm = conn->cm;

	if (conn->active || conn->tid != rx->message.mad.tid ||
	    conn->remote_qpn != rx->message.req.qpn) {
		vb_cm_reject(cm, rx, VB_CM_ABOUT_REQ, VB_CM_REJ_DUPLICATE_LOCAL_COMM_ID);
		return;
	}
	if (conn->state == VB_CMS_REQ_RCVD)
		vb_cm_mra_by_itself(conn, rx->now_ns);
	else if (conn->state == VB_CMS_MRA_REQ_SENT || conn->state == VB_CMS_REP_SENT)
		vb_cm_send_written(conn);
	else if (conn->state == VB_CMS_TIMEWAIT)
		vb_cm_send_last_rej(conn, VB_CM_REJ_STALE_CONN);
}

/* A connection of that REQ, known to nobody yet. */
static struct vb_cm_conn *conn_of(struct vb_cm *cm, const struct vb_cm_rx *rx)
{
	const struct vb_cm_wire_req *wire = &rx->message.req;
	struct vb_cm_conn *conn = vb_cm_conn_new(cm, NULL);

	if (!conn)
		return NULL;
	conn->path = *rx->from;
	conn->tid = rx->message.mad.tid;
	conn->service_id = wire->service_id;
	conn->ack_timeout = wire->primary.ack_timeout;
	conn->max_retries = wire->max_cm_retries;
	conn->interval_ns = vb_cm_time_ns(wire->local_cm_timeout, VB_CM_MAX_EXPONENT);
	vb_cm_conn_know_peer(conn, wire->ca_guid, rx->message.local_id, wire->qpn);
	vb_cm_conn_move(conn, VB_CMS_REQ_RCVD, rx->now_ns);
	return conn;
}

void vb_cm_req_new(struct vb_cm *cm, const struct vb_cm_rx *rx)
{
	const struct vb_cm_message *m = &rx->message;
	struct vb_cm_conn *old = vb_cm_find_remote_qp(cm, m->req.ca_guid, m->req.qpn);
	bool later = false;
	struct vb_cm_event event = {
		.type = VB_CM_REQ_RECEIVED,
		.path = rx->from,
		.later = &later,
		.private_data = m->private_data,
		.private_data_len = m->private_len,
	};
	struct vb_cm_conn *conn;
	struct vb_cm_req req;

	if (old) {
		vb_cm_reject_stale(cm, rx, VB_CM_ABOUT_REQ, old);
		return;
	}
	event.listener =
		vb_cm_find_listener(cm, m->req.service_id, m->private_data, m->private_len);
	if (!event.listener) {
		vb_cm_reject(cm, rx, VB_CM_ABOUT_REQ, VB_CM_REJ_INVALID_SERVICE_ID);
		return;
	}
	if (!is_known_transport(&m->req)) {
		vb_cm_reject(cm, rx, VB_CM_ABOUT_REQ, VB_CM_REJ_INVALID_TRANSPORT);
		return;
	}
	if (m->req.path_mtu < MIN_MTU_CODE || m->req.path_mtu > MAX_MTU_CODE) {
		vb_cm_reject(cm, rx, VB_CM_ABOUT_REQ, REJ_INVALID_MTU);
		return;
	}
	conn = conn_of(cm, rx);
	req = from_wire(m);
	if (conn)
		conn->xrc = req.transport == VB_CM_XRC;
	event.req = &req;
	if (!conn || !vb_cm_tell(conn, &event)) {
		if (conn)
			vb_cm_conn_free(conn);
		if (!later)
			vb_cm_reject(cm, rx, VB_CM_ABOUT_REQ, VB_CM_REJ_NO_RESOURCES);
	}
}
