/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mra.c - MRA: "I have your message, the answer takes longer" (IBTA 12.6.6).
 *
 * A program may say so. When it does not, and the peer repeats REQ or REP while the program still
 * decides, the manager says so by itself. Whoever receives it waits so much longer before he
 * repeats his message; the repetitions that he has left are as many as before.
 */
#include <errno.h>

#include "cm/cm_private.h"

static int write_mra(struct vb_cm_conn *conn, uint8_t service_timeout, const void *data, size_t len)
{
	bool about_rep = conn->state == VB_CMS_REP_RCVD || conn->state == VB_CMS_MRA_REP_SENT;
	struct vb_cm_message message = vb_cm_begin(conn, VB_CM_ATTR_MRA, conn->tid);

	message.mra.about = about_rep ? VB_CM_ABOUT_REP : VB_CM_ABOUT_REQ;
	message.mra.service_timeout = service_timeout;
	message.private_data = data;
	message.private_len = len;
	return vb_cm_write(conn, &message);
}

static void send_mra(struct vb_cm_conn *conn, uint64_t now_ns)
{
	bool about_rep = conn->state == VB_CMS_REP_RCVD || conn->state == VB_CMS_MRA_REP_SENT;

	vb_cm_conn_move(conn, about_rep ? VB_CMS_MRA_REP_SENT : VB_CMS_MRA_REQ_SENT, now_ns);
	vb_cm_send_written(conn);
}

int vb_cm_send_mra(struct vb_cm_conn *conn, uint8_t service_timeout, const void *data, size_t len,
		   uint64_t now_ns)
{
	int err;

	if (!vb_cm_may_send(conn, VB_CM_ATTR_MRA) || service_timeout > VB_CM_TIMEOUT_LIMIT)
		return -EINVAL;
	err = write_mra(conn, service_timeout, data, len);
	if (err)
		return err;
	send_mra(conn, now_ns);
	return 0;
}

void vb_cm_mra_by_itself(struct vb_cm_conn *conn, uint64_t now_ns)
{
	int err = write_mra(conn, VB_CM_MRA_EXPONENT, NULL, 0);

	VB_ASSERT(err == 0);
	send_mra(conn, now_ns);
}

struct vb_cm_conn *vb_cm_mra_find(struct vb_cm *cm, const struct vb_cm_rx *rx)
{
	const struct vb_cm_message *m = &rx->message;
	struct vb_cm_conn *conn;

	if (m->mra.about == VB_CM_ABOUT_REP)
		return vb_cm_find_pair(cm, m->remote_id, m->local_id);
	/* Whoever has our REQ has not told his ID yet; the transaction is what he knows of us. */
	conn = vb_cm_find_local(cm, m->remote_id);
	return conn && conn->state == VB_CMS_REQ_SENT && conn->tid == m->mad.tid ? conn : NULL;
}

void vb_cm_mra_take(struct vb_cm_conn *conn, const struct vb_cm_rx *rx)
{
	uint8_t about = conn->state == VB_CMS_REQ_SENT ? VB_CM_ABOUT_REQ : VB_CM_ABOUT_REP;
	uint64_t until_ns = rx->now_ns + vb_cm_life_ns(conn) +
			    vb_cm_time_ns(rx->message.mra.service_timeout, VB_CM_MAX_EXPONENT);

	if (rx->message.mra.about != about) {
		conn->cm->counters.rx_unknown++;
		return;
	}
	vb_cm_timer_set(conn, VB_MAX(vb_cm_timer(conn), until_ns));
	vb_cm_tell_plain(conn, VB_CM_MRA_RECEIVED, rx);
}
