/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sidr.c - SIDR_REQ asks which queue pair serves a service of datagrams, SIDR_REP says it (IBTA
 * 12.11).
 *
 * SIDR_REQ is repeated until the answer comes. A repetition is known by the requester's address and
 * its request ID, and gets the same answer again for a while, also when the program has let go of
 * it.
 */
#include <errno.h>

#include "cm/cm_private.h"

#define CM_RETRY_LIMIT 15

int vb_cm_send_sidr_req(struct vb_cm_conn *conn, const struct vb_cm_path *to,
			const struct vb_cm_sidr_req *req, uint64_t now_ns)
{
	struct vb_cm_message message;
	int err;

	if (!vb_cm_may_send(conn, VB_CM_ATTR_SIDR_REQ) || req->timeout > VB_CM_TIMEOUT_LIMIT ||
	    req->max_retries > CM_RETRY_LIMIT)
		return -EINVAL;
	message = vb_cm_begin(conn, VB_CM_ATTR_SIDR_REQ, conn->tid);
	message.sidr_req.pkey = req->pkey;
	message.sidr_req.service_id = req->service_id;
	message.private_data = req->private_data;
	message.private_len = req->private_data_len;
	err = vb_cm_write(conn, &message);
	if (err)
		return err;
	conn->active = true;
	conn->path = *to;
	conn->service_id = req->service_id;
	conn->max_retries = req->max_retries;
	conn->interval_ns = vb_cm_time_ns(req->timeout, VB_CM_MAX_EXPONENT);
	vb_cm_conn_move(conn, VB_CMS_SIDR_REQ_SENT, now_ns);
	vb_cm_send_written(conn);
	return 0;
}

static int write_sidr_rep(struct vb_cm_conn *conn, const struct vb_cm_sidr_rep *rep)
{
	struct vb_cm_message message = vb_cm_begin(conn, VB_CM_ATTR_SIDR_REP, conn->tid);

	message.sidr_rep.status = rep->status;
	message.sidr_rep.qpn = rep->qpn & VB_CM_QPN_MASK;
	message.sidr_rep.service_id = conn->service_id;
	message.sidr_rep.qkey = rep->qkey;
	message.private_data = rep->private_data;
	message.private_len = rep->private_data_len;
	return vb_cm_write(conn, &message);
}

int vb_cm_send_sidr_rep(struct vb_cm_conn *conn, const struct vb_cm_sidr_rep *rep, uint64_t now_ns)
{
	int err;

	if (!vb_cm_may_send(conn, VB_CM_ATTR_SIDR_REP))
		return -EINVAL;
	err = write_sidr_rep(conn, rep);
	if (err)
		return err;
	vb_cm_conn_move(conn, VB_CMS_SIDR_REP_SENT, now_ns);
	vb_cm_send_written(conn);
	return 0;
}

void vb_cm_refuse_sidr(struct vb_cm_conn *conn)
{
	const struct vb_cm_sidr_rep rep = {.status = VB_CM_SIDR_REJECTED};
	int err = write_sidr_rep(conn, &rep);

	VB_ASSERT(err == 0);
	vb_cm_send_written(conn);
}

void vb_cm_sidr_req_again(struct vb_cm_conn *conn, const struct vb_cm_rx *rx)
{
	if (conn->state == VB_CMS_SIDR_REP_SENT)
		vb_cm_send_written(conn);
}

static void refuse(struct vb_cm *cm, const struct vb_cm_rx *rx, enum vb_cm_sidr_status status)
{
	struct vb_cm_message message = vb_cm_reply(rx, VB_CM_ATTR_SIDR_REP);

	message.sidr_rep.status = (uint8_t)status;
	message.sidr_rep.service_id = rx->message.sidr_req.service_id;
	vb_cm_send_once(cm, rx->from, &message);
}

void vb_cm_sidr_req_new(struct vb_cm *cm, const struct vb_cm_rx *rx)
{
	const struct vb_cm_message *m = &rx->message;
	const struct vb_cm_sidr_req req = {
		.service_id = m->sidr_req.service_id,
		.pkey = m->sidr_req.pkey,
		.private_data = m->private_data,
		.private_data_len = m->private_len,
	};
	bool later = false;
	struct vb_cm_event event = {
		.type = VB_CM_SIDR_REQ_RECEIVED,
		.path = rx->from,
		.later = &later,
		.sidr_req = &req,
		.private_data = m->private_data,
		.private_data_len = m->private_len,
		.listener =
			vb_cm_find_listener(cm, req.service_id, m->private_data, m->private_len),
	};
	struct vb_cm_conn *conn;

	if (!event.listener) {
		refuse(cm, rx, VB_CM_SIDR_UNSUPPORTED);
		return;
	}
	conn = vb_cm_conn_new(cm, NULL);
	if (conn) {
		conn->path = *rx->from;
		conn->tid = m->mad.tid;
		conn->service_id = req.service_id;
		vb_cm_conn_know_requester(conn, m->local_id);
		vb_cm_conn_move(conn, VB_CMS_SIDR_REQ_RCVD, rx->now_ns);
	}
	if (!conn || !vb_cm_tell(conn, &event)) {
		if (conn)
			vb_cm_conn_free(conn);
		if (!later)
			refuse(cm, rx, VB_CM_SIDR_REJECTED);
	}
}

struct vb_cm_conn *vb_cm_sidr_rep_find(struct vb_cm *cm, const struct vb_cm_rx *rx)
{
	struct vb_cm_conn *conn = vb_cm_find_local(cm, rx->message.remote_id);

	return conn && conn->tid == rx->message.mad.tid ? conn : NULL;
}

void vb_cm_sidr_rep_take(struct vb_cm_conn *conn, const struct vb_cm_rx *rx)
{
	const struct vb_cm_message *m = &rx->message;
	const struct vb_cm_sidr_rep rep = {
		.status = m->sidr_rep.status,
		.qpn = m->sidr_rep.qpn,
		.qkey = m->sidr_rep.qkey,
		.private_data = m->private_data,
		.private_data_len = m->private_len,
	};
	struct vb_cm_event event = {
		.type = VB_CM_SIDR_REP_RECEIVED,
		.sidr_rep = &rep,
		.private_data = m->private_data,
		.private_data_len = m->private_len,
	};

	if (rep.status == VB_CM_SIDR_UNSUPPORTED && vb_cm_ask_again(conn, rx->now_ns))
		return;
	vb_cm_conn_close(conn);
	vb_cm_tell(conn, &event);
}
