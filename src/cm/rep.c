/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rep.c - REP: accepts a connection (IBTA 12.6.8).
 *
 * It is repeated until RTU, REJ or DREQ comes, or the queue pair sees traffic. A repetition is
 * answered by RTU once more; by MRA while the program decides. A REP for no connection of ours is
 * refused, so that its sender need not repeat it to the end.
 */
#include <errno.h>

#include "cm/cm_private.h"

int vb_cm_send_rep(struct vb_cm_conn *conn, const struct vb_cm_rep *rep, uint64_t now_ns)
{
	struct vb_cm_message message;
	int err;

	if (!vb_cm_may_send(conn, VB_CM_ATTR_REP))
		return -EINVAL;
	message = vb_cm_begin(conn, VB_CM_ATTR_REP, conn->tid);
	message.rep = (struct vb_cm_wire_rep){
		.qkey = rep->qkey,
		/* The target of an XRC connection stands where an EE context would (annex A14). */
		.qpn = conn->xrc ? 0 : rep->qpn & VB_CM_QPN_MASK,
		.eecn = conn->xrc ? rep->qpn & VB_CM_QPN_MASK : 0,
		.psn = rep->psn & VB_CM_QPN_MASK,
		.responder_resources = rep->responder_resources,
		.initiator_depth = rep->initiator_depth,
		.target_ack_delay = rep->target_ack_delay,
		.failover_accepted = rep->failover_accepted,
		.flow_control = rep->flow_control,
		.srq = rep->srq || conn->xrc,
		.rnr_retry_count = rep->rnr_retry_count,
		.ca_guid = conn->cm->config.ca_guid,
	};
	message.private_data = rep->private_data;
	message.private_len = rep->private_data_len;
	err = vb_cm_write(conn, &message);
	if (err)
		return err;
	conn->local_qpn = rep->qpn & VB_CM_QPN_MASK;
	vb_cm_conn_move(conn, VB_CMS_REP_SENT, now_ns);
	vb_cm_send_written(conn);
	return 0;
}

struct vb_cm_conn *vb_cm_rep_find(struct vb_cm *cm, const struct vb_cm_rx *rx)
{
	const struct vb_cm_message *m = &rx->message;
	struct vb_cm_conn *conn = vb_cm_find_local(cm, m->remote_id);

	if (!conn || !conn->active || conn->tid != m->mad.tid)
		return NULL;
	return conn->state == VB_CMS_REQ_SENT || conn->remote_id == m->local_id ? conn : NULL;
}

void vb_cm_rep_take(struct vb_cm_conn *conn, const struct vb_cm_rx *rx)
{
	const struct vb_cm_message *m = &rx->message;
	const struct vb_cm_wire_rep *wire = &m->rep;
	const uint32_t qpn = conn->xrc ? wire->eecn : wire->qpn;
	struct vb_cm_conn *old = vb_cm_find_remote_qp(conn->cm, wire->ca_guid, qpn);
	const struct vb_cm_rep rep = {
		.qpn = qpn,
		.psn = wire->psn,
		.qkey = wire->qkey,
		.responder_resources = wire->responder_resources,
		.initiator_depth = wire->initiator_depth,
		.flow_control = wire->flow_control,
		.srq = wire->srq,
		.rnr_retry_count = wire->rnr_retry_count,
		.target_ack_delay = wire->target_ack_delay,
		.failover_accepted = wire->failover_accepted,
		.ca_guid = wire->ca_guid,
		.private_data = m->private_data,
		.private_data_len = m->private_len,
	};
	const struct vb_cm_rej rej = {.reason = VB_CM_REJ_STALE_CONN};
	struct vb_cm_event event = {.type = VB_CM_REJ_RECEIVED};

	if (old) {
		vb_cm_reject_stale(conn->cm, rx, VB_CM_ABOUT_REP, old);
		vb_cm_conn_close(conn);
		event.rej = &rej;
	} else {
		vb_cm_conn_know_peer(conn, wire->ca_guid, m->local_id, qpn);
		vb_cm_conn_move(conn, VB_CMS_REP_RCVD, rx->now_ns);
		event.type = VB_CM_REP_RECEIVED;
		event.rep = &rep;
		event.private_data = m->private_data;
		event.private_data_len = m->private_len;
	}
	vb_cm_tell(conn, &event);
}

void vb_cm_rep_again(struct vb_cm_conn *conn, const struct vb_cm_rx *rx)
{
	if (conn->state == VB_CMS_REP_RCVD)
		vb_cm_mra_by_itself(conn, rx->now_ns);
	else /* MRA_REP_SENT: the MRA; ESTABLISHED: the RTU */
		vb_cm_send_written(conn);
}

void vb_cm_rep_stranger(struct vb_cm *cm, const struct vb_cm_rx *rx)
{
	cm->counters.rx_unknown++;
	vb_cm_reject(cm, rx, VB_CM_ABOUT_REP, VB_CM_REJ_INVALID_COMM_ID);
}
