/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm_message.h - the messages of the connection manager, as values in host order (IBTA 12.6 and
 * 12.11.1). Each is the data of one MAD of class VB_MAD_CM.
 *
 *                    who speaks and to whom    fields of its own        private data
 *      REQ      0x10 local                     40 of them               140 .. 232   92 bytes
 *      MRA      0x11 local, remote             which, how long           10 .. 232  222
 *      REJ      0x12 local, remote             which, why, ARI           84 .. 232  148
 *      REP      0x13 local, remote             15 of them                36 .. 232  196
 *      RTU      0x14 local, remote             none                       8 .. 232  224
 *      DREQ     0x15 local, remote             the remote queue pair     12 .. 232  220
 *      DREP     0x16 local, remote             none                       8 .. 232  224
 *      SIDR_REQ 0x17 local (the request ID)    P_Key, service            16 .. 232  216
 *      SIDR_REP 0x18 remote (the request ID)   status, queue pair, info  96 .. 232  136
 *
 * LAP (0x19) and APR (0x1a), for alternate paths, are not known here. Reserved bits are written as
 * zeros and ignored when read. Whether a value makes sense is not the codec's to say.
 */
#ifndef VB_WIRE_CM_MESSAGE_H
#define VB_WIRE_CM_MESSAGE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "wire/mad.h"

#define VB_CM_CLASS_VERSION 2
#define VB_CM_ARI_BYTES 72u

enum vb_cm_attr {
	VB_CM_ATTR_REQ = 0x10,
	VB_CM_ATTR_MRA,
	VB_CM_ATTR_REJ,
	VB_CM_ATTR_REP,
	VB_CM_ATTR_RTU,
	VB_CM_ATTR_DREQ,
	VB_CM_ATTR_DREP,
	VB_CM_ATTR_SIDR_REQ,
	VB_CM_ATTR_SIDR_REP,
};
#define VB_CM_ATTR_COUNT 9u

/* Which message an MRA or REJ is about. */
enum vb_cm_about { VB_CM_ABOUT_REQ = 0, VB_CM_ABOUT_REP = 1, VB_CM_ABOUT_OTHER = 2 };

/* struct vb_cm_wire_path - the primary or the alternate path of a REQ: 44 bytes. */
struct vb_cm_wire_path {
	uint16_t local_lid, remote_lid;
	struct in6_addr local_gid, remote_gid;
	uint32_t flow_label; /* 20 bits */
	uint8_t packet_rate; /* 6 */
	uint8_t traffic_class, hop_limit;
	uint8_t sl; /* 4 */
	bool subnet_local;
	uint8_t ack_timeout; /* 5 */
};

struct vb_cm_wire_req {
	uint64_t service_id, ca_guid;
	uint32_t qkey;
	uint32_t qpn, eecn, remote_eecn, psn; /* 24 bits each */
	uint8_t responder_resources, initiator_depth;
	uint8_t remote_cm_timeout, local_cm_timeout; /* 5 */
	uint8_t transport;			     /* 2 */
	uint8_t extended_transport;		     /* 3 */
	bool flow_control, rdc_exists, srq;
	uint8_t retry_count, rnr_retry_count; /* 3 */
	uint16_t pkey;
	uint8_t path_mtu;	/* 4: 1 .. 5 for 256 .. 4096 bytes */
	uint8_t max_cm_retries; /* 4 */
	bool sap_supported;	/* beside the alternate path */
	struct vb_cm_wire_path primary, alternate;
};

struct vb_cm_wire_rep {
	uint32_t qkey;
	uint32_t qpn, eecn, psn; /* 24 bits each */
	uint8_t responder_resources, initiator_depth;
	uint8_t target_ack_delay;  /* 5 */
	uint8_t failover_accepted; /* 2 */
	bool flow_control, srq;
	uint8_t rnr_retry_count; /* 3 */
	uint64_t ca_guid;
};

struct vb_cm_wire_mra {
	uint8_t about;		 /* 2 bits: enum vb_cm_about */
	uint8_t service_timeout; /* 5 */
};

struct vb_cm_wire_rej {
	uint8_t about; /* 2 bits */
	uint16_t reason;
	uint8_t ari_len; /* 7 bits, as it stands: may be more than there is room */
	const uint8_t
		*ari; /* decoded: all VB_CM_ARI_BYTES; to encode: ari_len of them, at most all */
};

struct vb_cm_wire_dreq {
	uint32_t remote_qpn; /* 24 bits, or an EECN */
};

struct vb_cm_wire_sidr_req {
	uint16_t pkey;
	uint64_t service_id;
};

struct vb_cm_wire_sidr_rep {
	uint8_t status;
	uint32_t qpn; /* 24 bits */
	uint64_t service_id;
	uint32_t qkey;
	uint8_t info_len;    /* as it stands */
	const uint8_t *info; /* as ari */
};

struct vb_cm_message {
	struct vb_mad mad; /* attr_id says which of the union */
	uint32_t local_id, remote_id;
	union {
		struct vb_cm_wire_req req;
		struct vb_cm_wire_rep rep;
		struct vb_cm_wire_mra mra;
		struct vb_cm_wire_rej rej;
		struct vb_cm_wire_dreq dreq;
		struct vb_cm_wire_sidr_req sidr_req;
		struct vb_cm_wire_sidr_rep sidr_rep;
	};
	/* Decoded: the whole field, in the decoded bytes. To encode: as many as there are, the rest
	 * of the field becomes zeros. */
	const uint8_t *private_data;
	size_t private_len;
};

/* vb_cm_message_private_room - bytes of private data of that message; 0: not a known message. */
size_t vb_cm_message_private_room(uint16_t attr_id);
/* vb_cm_message_encode - header and data. 0; -EINVAL: no such message; -EMSGSIZE: private data, ARI
 * or info is longer than its field. out is written only if 0. */
int vb_cm_message_encode(const struct vb_cm_message *message,
			 uint8_t out[VB_MAD_BYTES]) VB_MUST_USE;
/* vb_cm_message_decode - 0; -EBADMSG: not a MAD of 256 bytes, another class or class version,
 * another method than SEND; -ENOMSG: a message that is not known here. The pointers in message
 * point into in. */
int vb_cm_message_decode(struct vb_cm_message *message, const uint8_t *in, size_t size) VB_MUST_USE;

#endif
