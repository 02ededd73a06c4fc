/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dreq.c - DREQ asks to end a connection, DREP agrees (IBTA 12.6.10 and 12.6.11).
 *
 * DREQ is repeated until DREP comes. Whoever knows no such connection agrees all the same: it is
 * over for him. When both sides ask at once, each answers the other and needs no answer of his own.
 */
#include <errno.h>

#include "cm/cm_private.h"

#define NEW_TRANSACTION(cm, conn) ((uint64_t)(cm)->ops.random((cm)->env) << 32 | (conn)->local_id)

static int write_dreq(struct vb_cm_conn *conn, const void *private_data, size_t len)
{
	struct vb_cm_message message =
		vb_cm_begin(conn, VB_CM_ATTR_DREQ, NEW_TRANSACTION(conn->cm, conn));

	message.dreq.remote_qpn = conn->remote_qpn;
	message.private_data = private_data;
	message.private_len = len;
	return vb_cm_write(conn, &message);
}

static int write_drep(struct vb_cm_conn *conn, const void *private_data, size_t len)
{
	struct vb_cm_message message = vb_cm_begin(conn, VB_CM_ATTR_DREP, conn->dreq_tid);

	message.private_data = private_data;
	message.private_len = len;
	return vb_cm_write(conn, &message);
}

static void agree(struct vb_cm_conn *conn, uint64_t now_ns)
{
	vb_cm_conn_move(conn, VB_CMS_TIMEWAIT, now_ns);
	vb_cm_send_written(conn);
}

int vb_cm_send_dreq(struct vb_cm_conn *conn, const void *private_data, size_t len, uint64_t now_ns)
{
	int err;

	if (!vb_cm_may_send(conn, VB_CM_ATTR_DREQ))
		return -EINVAL;
	if (len > VB_CM_DREQ_PRIVATE)
		return -EMSGSIZE;
	if (conn->state == VB_CMS_DREQ_RCVD) {
		/* The peer's and ours have crossed. */
		err = write_drep(conn, private_data, len);
		if (!err) {
			agree(conn, now_ns);
			vb_cm_tell_plain(conn, VB_CM_DREP_RECEIVED, NULL);
		}
		return err;
	}
	err = write_dreq(conn, private_data, len);
	if (!err) {
		vb_cm_conn_move(conn, VB_CMS_DREQ_SENT, now_ns);
		vb_cm_send_written(conn);
	}
	return err;
}

int vb_cm_send_drep(struct vb_cm_conn *conn, const void *private_data, size_t len, uint64_t now_ns)
{
	int err;

	if (!vb_cm_may_send(conn, VB_CM_ATTR_DREP))
		return -EINVAL;
	err = write_drep(conn, private_data, len);
	if (!err)
		agree(conn, now_ns);
	return err;
}

void vb_cm_send_last_dreq(struct vb_cm_conn *conn)
{
	int err = write_dreq(conn, NULL, 0);

	VB_ASSERT(err == 0);
	vb_cm_send_written(conn);
}

/* The DREQ is for a peer that only cannot be heard. */
void vb_cm_peer_lost(struct vb_cm *cm, uint32_t local_qpn, uint64_t now_ns)
{
	struct vb_list *link, *next;

	vb_list_for_each(link, next, &cm->conns)
	{
		struct vb_cm_conn *conn = vb_list_entry(link, struct vb_cm_conn, link);

		if (conn->state != VB_CMS_ESTABLISHED || conn->local_qpn != local_qpn)
			continue;
		vb_cm_send_last_dreq(conn);
		vb_cm_conn_move(conn, VB_CMS_TIMEWAIT, now_ns);
		vb_cm_tell_plain(conn, VB_CM_DREQ_FAILED, NULL);
		return;
	}
}

void vb_cm_send_last_drep(struct vb_cm_conn *conn)
{
	int err = write_drep(conn, NULL, 0);

	VB_ASSERT(err == 0);
	vb_cm_send_written(conn);
}

/* Both IDs are right and the queue pair is not: from nobody who is connected to us. */
static bool is_of_our_qp(const struct vb_cm_conn *conn, const struct vb_cm_rx *rx)
{
	if (rx->message.dreq.remote_qpn == conn->local_qpn)
		return true;
	conn->cm->counters.rx_unknown++;
	return false;
}

void vb_cm_dreq_take(struct vb_cm_conn *conn, const struct vb_cm_rx *rx)
{
	int err;

	if (!is_of_our_qp(conn, rx))
		return;
	conn->dreq_tid = rx->message.mad.tid;
	if (conn->state == VB_CMS_DREQ_SENT) {
		err = write_drep(conn, NULL, 0);
		VB_ASSERT(err == 0);
		agree(conn, rx->now_ns);
		vb_cm_tell_plain(conn, VB_CM_DREP_RECEIVED, NULL);
		return;
	}
	vb_cm_conn_move(conn, VB_CMS_DREQ_RCVD, rx->now_ns);
	vb_cm_tell_plain(conn, VB_CM_DREQ_RECEIVED, rx);
}

void vb_cm_dreq_again(struct vb_cm_conn *conn, const struct vb_cm_rx *rx)
{
	if (!is_of_our_qp(conn, rx) || conn->state != VB_CMS_TIMEWAIT)
		return; /* DREQ_RCVD: the program will answer */
	if (!vb_cm_has_written(conn, VB_CM_ATTR_DREP) || conn->dreq_tid != rx->message.mad.tid) {
		int err;

		conn->dreq_tid = rx->message.mad.tid;
		err = write_drep(conn, NULL, 0);
		VB_ASSERT(err == 0);
	}
	vb_cm_send_written(conn);
}

void vb_cm_dreq_stranger(struct vb_cm *cm, const struct vb_cm_rx *rx)
{
	struct vb_cm_message message = vb_cm_reply(rx, VB_CM_ATTR_DREP);

	cm->counters.rx_unknown++;
	vb_cm_send_once(cm, rx->from, &message);
}

void vb_cm_drep_take(struct vb_cm_conn *conn, const struct vb_cm_rx *rx)
{
	vb_cm_conn_move(conn, VB_CMS_TIMEWAIT, rx->now_ns);
	vb_cm_tell_plain(conn, VB_CM_DREP_RECEIVED, rx);
}
