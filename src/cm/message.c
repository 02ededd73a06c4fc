/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * message.c - what all messages have in common: writing one, sending it, sending it again; and
 * telling the program.
 */
#include <errno.h>
#include <string.h>

#include "cm/cm_private.h"
#include "wire/cursor.h"

#define ATTR_ID_AT 16

static const struct vb_mad header = {
	.base_version = VB_MAD_BASE_VERSION,
	.mgmt_class = VB_MAD_CM,
	.class_version = VB_CM_CLASS_VERSION,
	.method = VB_MAD_SEND,
};

struct vb_cm_message vb_cm_begin(const struct vb_cm_conn *conn, enum vb_cm_attr attr, uint64_t tid)
{
	struct vb_cm_message message = {
		.mad = header,
		.local_id = conn->local_id,
		.remote_id = conn->remote_id,
	};

	message.mad.attr_id = (uint16_t)attr;
	message.mad.tid = tid;
	return message;
}

struct vb_cm_message vb_cm_reply(const struct vb_cm_rx *rx, enum vb_cm_attr attr)
{
	struct vb_cm_message message = {
		.mad = header,
		.local_id = rx->message.remote_id,
		.remote_id = rx->message.local_id,
	};

	message.mad.attr_id = (uint16_t)attr;
	message.mad.tid = rx->message.mad.tid;
	return message;
}

int vb_cm_write(struct vb_cm_conn *conn, const struct vb_cm_message *message)
{
	return vb_cm_message_encode(message, conn->sent);
}

bool vb_cm_has_written(const struct vb_cm_conn *conn, enum vb_cm_attr attr)
{
	return vb_load_be16(conn->sent + ATTR_ID_AT) == attr;
}

static void transmit(struct vb_cm *cm, const struct vb_cm_path *to, const uint8_t mad[VB_MAD_BYTES])
{
	cm->counters.tx_messages++;
	cm->ops.send(cm->env, to, mad);
}

void vb_cm_send_written(struct vb_cm_conn *conn)
{
	transmit(conn->cm, &conn->path, conn->sent);
}

void vb_cm_send_once(struct vb_cm *cm, const struct vb_cm_path *to,
		     const struct vb_cm_message *message)
{
	uint8_t mad[VB_MAD_BYTES];
	int err = vb_cm_message_encode(message, mad);

	VB_ASSERT(err == 0);
	transmit(cm, to, mad);
}

bool vb_cm_tell(struct vb_cm_conn *conn, struct vb_cm_event *event)
{
	event->conn = conn;
	return conn->cm->ops.event(conn->cm->env, event);
}

void vb_cm_tell_plain(struct vb_cm_conn *conn, enum vb_cm_event_type type,
		      const struct vb_cm_rx *rx)
{
	struct vb_cm_event event = {
		.type = type,
		.private_data = rx ? rx->message.private_data : NULL,
		.private_data_len = rx ? rx->message.private_len : 0,
	};

	vb_cm_tell(conn, &event);
}
