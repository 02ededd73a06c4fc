/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm_message.c - messages of the connection manager from bytes and to bytes.
 *
 * Offsets are those of the specification's tables (12.6.5 to 12.6.12, 12.11.1): from the first byte
 * behind the MAD's header. A field that shares its bytes with others is named by its mask, from the
 * most significant bit of the byte on:
 *
 *      REQ  43  remote CM timeout (5) transport (2) flow control (1)
 *           47  local CM timeout (5) retry count (3)
 *           50  path MTU (4) RDC exists (1) RNR retry count (3)
 *           51  max CM retries (4) SRQ (1) extended transport (3)
 *           88  flow label (20) - (6) packet rate (6)         and the same at 132
 *           94  SL (4) subnet local (1) - (3)                            at 138
 *           95  ACK timeout (5) - (3)                                    at 139, where the first
 *                                                    bit behind is "supports alternate paths"
 *      REP  26  target ACK delay (5) failover (2) flow control (1)
 *           27  RNR retry count (3) SRQ (1) - (4)
 */
#include "wire/cm_message.h"

#include <errno.h>
#include <string.h>

#include "wire/cursor.h"

#define PATH_BYTES 44u
#define PRIMARY_AT 52u
#define ALTERNATE_AT (PRIMARY_AT + PATH_BYTES)
#define SAP_SUPPORTED 0x04u /* in the last byte of the alternate path */
#define SIDR_INFO_BYTES 72u

/* Where a message's private data begins; it goes to the end. */
static const uint8_t private_at[VB_CM_ATTR_COUNT] = {
	[VB_CM_ATTR_REQ - VB_CM_ATTR_REQ] = 140,     [VB_CM_ATTR_MRA - VB_CM_ATTR_REQ] = 10,
	[VB_CM_ATTR_REJ - VB_CM_ATTR_REQ] = 84,	     [VB_CM_ATTR_REP - VB_CM_ATTR_REQ] = 36,
	[VB_CM_ATTR_RTU - VB_CM_ATTR_REQ] = 8,	     [VB_CM_ATTR_DREQ - VB_CM_ATTR_REQ] = 12,
	[VB_CM_ATTR_DREP - VB_CM_ATTR_REQ] = 8,	     [VB_CM_ATTR_SIDR_REQ - VB_CM_ATTR_REQ] = 16,
	[VB_CM_ATTR_SIDR_REP - VB_CM_ATTR_REQ] = 96,
};

size_t vb_cm_message_private_room(uint16_t attr_id)
{
	uint32_t index = (uint32_t)attr_id - VB_CM_ATTR_REQ;

	return index < VB_CM_ATTR_COUNT ? VB_MAD_DATA_BYTES - private_at[index] : 0;
}

/* 24 bits in the upper part of a word whose last byte is another field's. */
static void store_24(uint8_t *p, uint32_t value, uint8_t last)
{
	vb_store_be32(p, value << 8 | last);
}

static uint32_t load_24(const uint8_t *p)
{
	return vb_load_be32(p) >> 8;
}

static void encode_path(const struct vb_cm_wire_path *path, uint8_t *p)
{
	vb_store_be16(p, path->local_lid);
	vb_store_be16(p + 2, path->remote_lid);
	memcpy(p + 4, &path->local_gid, 16);
	memcpy(p + 20, &path->remote_gid, 16);
	vb_store_be32(p + 36, path->flow_label << 12 | (path->packet_rate & 0x3fu));
	p[40] = path->traffic_class;
	p[41] = path->hop_limit;
	p[42] = (uint8_t)(path->sl << 4 | (path->subnet_local ? 8 : 0));
	p[43] = (uint8_t)(path->ack_timeout << 3);
}

static void decode_path(struct vb_cm_wire_path *path, const uint8_t *p)
{
	uint32_t word = vb_load_be32(p + 36);

	path->local_lid = vb_load_be16(p);
	path->remote_lid = vb_load_be16(p + 2);
	memcpy(&path->local_gid, p + 4, 16);
	memcpy(&path->remote_gid, p + 20, 16);
	path->flow_label = word >> 12;
	path->packet_rate = word & 0x3f;
	path->traffic_class = p[40];
	path->hop_limit = p[41];
	path->sl = p[42] >> 4;
	path->subnet_local = p[42] & 8;
	path->ack_timeout = p[43] >> 3;
}

static void encode_req(const struct vb_cm_wire_req *req, uint8_t *p)
{
	vb_store_be64(p + 8, req->service_id);
	vb_store_be64(p + 16, req->ca_guid);
	vb_store_be32(p + 28, req->qkey);
	store_24(p + 32, req->qpn, req->responder_resources);
	store_24(p + 36, req->eecn, req->initiator_depth);
	store_24(p + 40, req->remote_eecn,
		 (uint8_t)(req->remote_cm_timeout << 3 | (req->transport & 3) << 1 |
			   req->flow_control));
	store_24(p + 44, req->psn, (uint8_t)(req->local_cm_timeout << 3 | (req->retry_count & 7)));
	vb_store_be16(p + 48, req->pkey);
	p[50] = (uint8_t)(req->path_mtu << 4 | (req->rdc_exists ? 8 : 0) |
			  (req->rnr_retry_count & 7));
	p[51] = (uint8_t)(req->max_cm_retries << 4 | (req->srq ? 8 : 0) |
			  (req->extended_transport & 7));
	encode_path(&req->primary, p + PRIMARY_AT);
	encode_path(&req->alternate, p + ALTERNATE_AT);
	if (req->sap_supported)
		p[ALTERNATE_AT + PATH_BYTES - 1] |= SAP_SUPPORTED;
}

static void decode_req(struct vb_cm_wire_req *req, const uint8_t *p)
{
	req->service_id = vb_load_be64(p + 8);
	req->ca_guid = vb_load_be64(p + 16);
	req->qkey = vb_load_be32(p + 28);
	req->qpn = load_24(p + 32);
	req->responder_resources = p[35];
	req->eecn = load_24(p + 36);
	req->initiator_depth = p[39];
	req->remote_eecn = load_24(p + 40);
	req->remote_cm_timeout = p[43] >> 3;
	req->transport = p[43] >> 1 & 3;
	req->flow_control = p[43] & 1;
	req->psn = load_24(p + 44);
	req->local_cm_timeout = p[47] >> 3;
	req->retry_count = p[47] & 7;
	req->pkey = vb_load_be16(p + 48);
	req->path_mtu = p[50] >> 4;
	req->rdc_exists = p[50] & 8;
	req->rnr_retry_count = p[50] & 7;
	req->max_cm_retries = p[51] >> 4;
	req->srq = p[51] & 8;
	req->extended_transport = p[51] & 7;
	decode_path(&req->primary, p + PRIMARY_AT);
	decode_path(&req->alternate, p + ALTERNATE_AT);
	req->sap_supported = p[ALTERNATE_AT + PATH_BYTES - 1] & SAP_SUPPORTED;
}

static void encode_rep(const struct vb_cm_wire_rep *rep, uint8_t *p)
{
	vb_store_be32(p + 8, rep->qkey);
	store_24(p + 12, rep->qpn, 0);
	store_24(p + 16, rep->eecn, 0);
	store_24(p + 20, rep->psn, 0);
	p[24] = rep->responder_resources;
	p[25] = rep->initiator_depth;
	p[26] = (uint8_t)(rep->target_ack_delay << 3 | (rep->failover_accepted & 3) << 1 |
			  rep->flow_control);
	p[27] = (uint8_t)(rep->rnr_retry_count << 5 | (rep->srq ? 16 : 0));
	vb_store_be64(p + 28, rep->ca_guid);
}

static void decode_rep(struct vb_cm_wire_rep *rep, const uint8_t *p)
{
	rep->qkey = vb_load_be32(p + 8);
	rep->qpn = load_24(p + 12);
	rep->eecn = load_24(p + 16);
	rep->psn = load_24(p + 20);
	rep->responder_resources = p[24];
	rep->initiator_depth = p[25];
	rep->target_ack_delay = p[26] >> 3;
	rep->failover_accepted = p[26] >> 1 & 3;
	rep->flow_control = p[26] & 1;
	rep->rnr_retry_count = p[27] >> 5;
	rep->srq = p[27] & 16;
	rep->ca_guid = vb_load_be64(p + 28);
}

static void encode_rej(const struct vb_cm_wire_rej *rej, uint8_t *p)
{
	p[8] = (uint8_t)(rej->about << 6);
	p[9] = (uint8_t)(rej->ari_len << 1);
	vb_store_be16(p + 10, rej->reason);
	if (rej->ari_len)
		memcpy(p + 12, rej->ari, rej->ari_len);
}

static void decode_rej(struct vb_cm_wire_rej *rej, const uint8_t *p)
{
	rej->about = p[8] >> 6;
	rej->ari_len = p[9] >> 1;
	rej->reason = vb_load_be16(p + 10);
	rej->ari = p + 12;
}

static void encode_sidr_rep(const struct vb_cm_wire_sidr_rep *rep, uint8_t *p)
{
	p[4] = rep->status;
	p[5] = rep->info_len;
	store_24(p + 8, rep->qpn, 0);
	vb_store_be64(p + 12, rep->service_id);
	vb_store_be32(p + 20, rep->qkey);
	if (rep->info_len)
		memcpy(p + 24, rep->info, rep->info_len);
}

static void decode_sidr_rep(struct vb_cm_wire_sidr_rep *rep, const uint8_t *p)
{
	rep->status = p[4];
	rep->info_len = p[5];
	rep->qpn = load_24(p + 8);
	rep->service_id = vb_load_be64(p + 12);
	rep->qkey = vb_load_be32(p + 20);
	rep->info = p + 24;
}

static void encode_own_fields(const struct vb_cm_message *m, uint8_t *p)
{
	switch ((enum vb_cm_attr)m->mad.attr_id) {
	case VB_CM_ATTR_REQ:
		encode_req(&m->req, p);
		break;
	case VB_CM_ATTR_MRA:
		p[8] = (uint8_t)(m->mra.about << 6);
		p[9] = (uint8_t)(m->mra.service_timeout << 3);
		break;
	case VB_CM_ATTR_REJ:
		encode_rej(&m->rej, p);
		break;
	case VB_CM_ATTR_REP:
		encode_rep(&m->rep, p);
		break;
	case VB_CM_ATTR_DREQ:
		store_24(p + 8, m->dreq.remote_qpn, 0);
		break;
	case VB_CM_ATTR_SIDR_REQ:
		vb_store_be16(p + 4, m->sidr_req.pkey);
		vb_store_be64(p + 8, m->sidr_req.service_id);
		break;
	case VB_CM_ATTR_SIDR_REP:
		encode_sidr_rep(&m->sidr_rep, p);
		break;
	case VB_CM_ATTR_RTU:
	case VB_CM_ATTR_DREP:
		break;
	}
}

static void decode_own_fields(struct vb_cm_message *m, const uint8_t *p)
{
	switch ((enum vb_cm_attr)m->mad.attr_id) {
	case VB_CM_ATTR_REQ:
		decode_req(&m->req, p);
		break;
	case VB_CM_ATTR_MRA:
		m->mra.about = p[8] >> 6;
		m->mra.service_timeout = p[9] >> 3;
		break;
	case VB_CM_ATTR_REJ:
		decode_rej(&m->rej, p);
		break;
	case VB_CM_ATTR_REP:
		decode_rep(&m->rep, p);
		break;
	case VB_CM_ATTR_DREQ:
		m->dreq.remote_qpn = load_24(p + 8);
		break;
	case VB_CM_ATTR_SIDR_REQ:
		m->sidr_req.pkey = vb_load_be16(p + 4);
		m->sidr_req.service_id = vb_load_be64(p + 8);
		break;
	case VB_CM_ATTR_SIDR_REP:
		decode_sidr_rep(&m->sidr_rep, p);
		break;
	case VB_CM_ATTR_RTU:
	case VB_CM_ATTR_DREP:
		break;
	}
}

static bool has_remote_id(uint16_t attr_id)
{
	return attr_id >= VB_CM_ATTR_MRA && attr_id <= VB_CM_ATTR_DREP;
}

int vb_cm_message_encode(const struct vb_cm_message *message, uint8_t out[VB_MAD_BYTES])
{
	size_t room = vb_cm_message_private_room(message->mad.attr_id);
	uint8_t *p = out + VB_MAD_HEADER_BYTES;

	if (!room)
		return -EINVAL;
	if (message->private_len > room ||
	    (message->mad.attr_id == VB_CM_ATTR_REJ && message->rej.ari_len > VB_CM_ARI_BYTES) ||
	    (message->mad.attr_id == VB_CM_ATTR_SIDR_REP &&
	     message->sidr_rep.info_len > SIDR_INFO_BYTES))
		return -EMSGSIZE;
	vb_mad_encode(&message->mad, out);
	memset(p, 0, VB_MAD_DATA_BYTES);
	/* The answer to a SIDR_REQ names the request alone. */
	vb_store_be32(p, message->mad.attr_id == VB_CM_ATTR_SIDR_REP ? message->remote_id
								     : message->local_id);
	if (has_remote_id(message->mad.attr_id))
		vb_store_be32(p + 4, message->remote_id);
	encode_own_fields(message, p);
	if (message->private_len)
		memcpy(p + VB_MAD_DATA_BYTES - room, message->private_data, message->private_len);
	return 0;
}

int vb_cm_message_decode(struct vb_cm_message *message, const uint8_t *in, size_t size)
{
	struct vb_reader r = {.at = in, .end = in + size};
	const uint8_t *p;
	size_t room;

	memset(message, 0, sizeof(*message));
	if (vb_mad_decode(&message->mad, in, size) || message->mad.mgmt_class != VB_MAD_CM ||
	    message->mad.class_version != VB_CM_CLASS_VERSION ||
	    message->mad.method != VB_MAD_SEND || !vb_reader_take(&r, VB_MAD_HEADER_BYTES))
		return -EBADMSG;
	p = vb_reader_take(&r, VB_MAD_DATA_BYTES);
	if (!p)
		return -EBADMSG;
	room = vb_cm_message_private_room(message->mad.attr_id);
	if (!room)
		return -ENOMSG;
	if (message->mad.attr_id == VB_CM_ATTR_SIDR_REP)
		message->remote_id = vb_load_be32(p);
	else
		message->local_id = vb_load_be32(p);
	if (has_remote_id(message->mad.attr_id))
		message->remote_id = vb_load_be32(p + 4);
	decode_own_fields(message, p);
	message->private_data = p + VB_MAD_DATA_BYTES - room;
	message->private_len = room;
	return 0;
}
