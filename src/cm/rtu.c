/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rtu.c - RTU: "ready to use", the third and last message of a connection's beginning
 * (IBTA 12.6.9).
 *
 * Nobody answers it: when it is lost, REP is repeated and it is sent again; or the queue pair sees
 * traffic, which says the same.
 */
#include <errno.h>

#include "cm/cm_private.h"

int vb_cm_send_rtu(struct vb_cm_conn *conn, const void *private_data, size_t len, uint64_t now_ns)
{
	struct vb_cm_message message;
	int err;

	if (!vb_cm_may_send(conn, VB_CM_ATTR_RTU))
		return -EINVAL;
	message = vb_cm_begin(conn, VB_CM_ATTR_RTU, conn->tid);
	message.private_data = private_data;
	message.private_len = len;
	err = vb_cm_write(conn, &message);
	if (err)
		return err;
	vb_cm_conn_move(conn, VB_CMS_ESTABLISHED, now_ns);
	vb_cm_send_written(conn);
	return 0;
}

void vb_cm_rtu_take(struct vb_cm_conn *conn, const struct vb_cm_rx *rx)
{
	vb_cm_conn_move(conn, VB_CMS_ESTABLISHED, rx->now_ns);
	vb_cm_tell_plain(conn, VB_CM_ESTABLISHED, rx);
}

int vb_cm_notify_established(struct vb_cm_conn *conn, uint64_t now_ns)
{
	if (conn->state == VB_CMS_ESTABLISHED)
		return -EISCONN;
	if (conn->state != VB_CMS_REP_SENT)
		return -EINVAL;
	vb_cm_conn_move(conn, VB_CMS_ESTABLISHED, now_ns);
	vb_cm_tell_plain(conn, VB_CM_ESTABLISHED, NULL);
	return 0;
}
