/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rej.c - REJ: refuses a connection, or ends one that is being made (IBTA 12.6.7).
 *
 * Whom it is for is told in three ways: by both IDs; by ours alone when it refuses our REQ, whose
 * answerer may have no ID; and, when the sender gave up waiting and may not know our ID, by his own
 * ID and his GUID, which is the additional information of reason TIMEOUT. Nobody answers a REJ.
 */
#include <errno.h>

#include "cm/cm_private.h"
#include "wire/cursor.h"

#define GUID_BYTES 8

static enum vb_cm_about about_of(const struct vb_cm_conn *conn)
{
	if (conn->state == VB_CMS_REQ_RCVD || conn->state == VB_CMS_MRA_REQ_SENT)
		return VB_CM_ABOUT_REQ;
	if (conn->state == VB_CMS_REP_RCVD || conn->state == VB_CMS_MRA_REP_SENT)
		return VB_CM_ABOUT_REP;
	return VB_CM_ABOUT_OTHER;
}

static struct vb_cm_message begin(const struct vb_cm_conn *conn, uint16_t reason)
{
	struct vb_cm_message message = vb_cm_begin(conn, VB_CM_ATTR_REJ, conn->tid);

	/* The peer has not heard of our ID. */
	if (conn->state == VB_CMS_REQ_RCVD)
		message.local_id = 0;
	message.rej.about = (uint8_t)about_of(conn);
	message.rej.reason = reason;
	return message;
}

int vb_cm_send_rej(struct vb_cm_conn *conn, const struct vb_cm_rej *rej, uint64_t now_ns)
{
	struct vb_cm_message message;
	int err;

	if (!vb_cm_may_send(conn, VB_CM_ATTR_REJ))
		return -EINVAL;
	if (rej->ari_len > VB_CM_REJ_ARI)
		return -EMSGSIZE;
	message = begin(conn, rej->reason);
	message.rej.ari = rej->ari;
	message.rej.ari_len = (uint8_t)rej->ari_len;
	message.private_data = rej->private_data;
	message.private_len = rej->private_data_len;
	err = vb_cm_write(conn, &message);
	if (err)
		return err;
	/* Behind a REP the peer may already believe in the connection. */
	if (conn->state == VB_CMS_REP_SENT)
		vb_cm_conn_move(conn, VB_CMS_TIMEWAIT, now_ns);
	else
		vb_cm_conn_close(conn);
	vb_cm_send_written(conn);
	return 0;
}

void vb_cm_send_last_rej(struct vb_cm_conn *conn, uint16_t reason)
{
	struct vb_cm_message message = begin(conn, reason);
	uint8_t guid[GUID_BYTES];

	if (reason == VB_CM_REJ_TIMEOUT) {
		vb_store_be64(guid, conn->cm->config.ca_guid);
		message.rej.ari = guid;
		message.rej.ari_len = sizeof(guid);
	}
	vb_cm_send_once(conn->cm, &conn->path, &message);
}

void vb_cm_reject(struct vb_cm *cm, const struct vb_cm_rx *rx, enum vb_cm_about about,
		  uint16_t reason)
{
	struct vb_cm_message message = vb_cm_reply(rx, VB_CM_ATTR_REJ);

	message.rej.about = (uint8_t)about;
	message.rej.reason = reason;
	vb_cm_send_once(cm, rx->from, &message);
}

void vb_cm_reject_stale(struct vb_cm *cm, const struct vb_cm_rx *rx, enum vb_cm_about about,
			struct vb_cm_conn *old)
{
	vb_cm_reject(cm, rx, about, VB_CM_REJ_STALE_CONN);
	/* Whoever is there does not know the old connection any more and answers our DREQ at once,
	 * which ends it. Somebody else who only names that queue pair shall not bring this about.
	 */
	if (old->state == VB_CMS_ESTABLISHED &&
	    IN6_ARE_ADDR_EQUAL(&old->path.ah.dgid, &rx->from->ah.dgid)) {
		int err = vb_cm_send_dreq(old, NULL, 0, rx->now_ns);

		VB_ASSERT(err == 0);
	}
}

struct vb_cm_conn *vb_cm_rej_find(struct vb_cm *cm, const struct vb_cm_rx *rx)
{
	const struct vb_cm_message *m = &rx->message;
	struct vb_cm_conn *conn;

	if (m->rej.reason == VB_CM_REJ_TIMEOUT && m->rej.ari_len >= GUID_BYTES) {
		conn = vb_cm_find_remote_id(cm, vb_load_be64(m->rej.ari), m->local_id);
		if (conn)
			return conn;
	}
	conn = vb_cm_find_local(cm, m->remote_id);
	if (!conn)
		return NULL;
	if (conn->state == VB_CMS_REQ_SENT)
		return conn->tid == m->mad.tid ? conn : NULL;
	return m->rej.about != VB_CM_ABOUT_REQ && conn->remote_id == m->local_id ? conn : NULL;
}

/* Where a queue pair may have been in use, or the peer says that an old connection still is,
 * packets may be under way. */
static bool needs_timewait(const struct vb_cm_conn *conn, uint16_t reason)
{
	return reason == VB_CM_REJ_STALE_CONN || conn->state == VB_CMS_REP_RCVD ||
	       conn->state == VB_CMS_MRA_REP_SENT || conn->state == VB_CMS_ESTABLISHED ||
	       conn->state == VB_CMS_DREQ_SENT;
}

void vb_cm_rej_take(struct vb_cm_conn *conn, const struct vb_cm_rx *rx)
{
	const struct vb_cm_message *m = &rx->message;
	const struct vb_cm_rej rej = {
		.reason = m->rej.reason,
		.ari = m->rej.ari,
		.ari_len = VB_MIN((size_t)m->rej.ari_len, (size_t)VB_CM_REJ_ARI),
		.private_data = m->private_data,
		.private_data_len = m->private_len,
	};
	struct vb_cm_event event = {
		.type = VB_CM_REJ_RECEIVED,
		.rej = &rej,
		.private_data = m->private_data,
		.private_data_len = m->private_len,
	};

	if (conn->state == VB_CMS_REQ_SENT && rej.reason == VB_CM_REJ_INVALID_SERVICE_ID &&
	    vb_cm_ask_again(conn, rx->now_ns))
		return;
	if (needs_timewait(conn, rej.reason))
		vb_cm_conn_move(conn, VB_CMS_TIMEWAIT, rx->now_ns);
	else
		vb_cm_conn_close(conn);
	vb_cm_tell(conn, &event);
}
