/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mad_route.c - which process of the host a MAD for QP 1 belongs to.
 *
 *      class CM (IBTA 12.6.5 to 12.6.12, 12.11.1), by attribute
 *        REQ          service ID at 32, private data at 164   \ the listener of the port and of the
 *        SIDR_REQ     service ID at 32, private data at 40    / IP version in private data byte 1
 *        SIDR_REP     request ID at 24                        \ bits 31 .. 23 are the slot of the
 *        others       remote communication ID at 28           / process that is answered
 *      other classes
 *        responses    transaction ID at 8          bits 63 .. 55 are the asker's slot
 *        requests     class and its version        whoever registered for them
 *
 * Service IDs and the IP version are those of the RDMA IP CM service (IBTA annex A11). Only where
 * the bytes stand is known here; whether they make sense is for the one to judge who gets them.
 */
#include "carrier/mad_route.h"

#include "registry/ports.h"
#include "wire/cm_message.h"

#define CLASS_AT 1
#define VERSION_AT 2
#define METHOD_AT 3
#define TID_AT 8
#define ATTRIBUTE_AT 16
#define LOCAL_ID_AT 24 /* also the request ID of SIDR_REP */
#define REMOTE_ID_AT 28
#define SERVICE_ID_AT 32 /* of REQ and SIDR_REQ alike */
#define REQ_PRIVATE_AT 164
#define SIDR_REQ_PRIVATE_AT 40
#define ID_SLOT_SHIFT 23

static uint32_t load_u32(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint16_t slot_of_id(uint32_t id)
{
	uint16_t slot = (uint16_t)(id >> ID_SLOT_SHIFT);

	return slot < VB_REGISTRY_SLOTS ? slot : 0;
}

static uint16_t listener(struct vb_registry *registry, const uint8_t *service_id,
			 const uint8_t *private_data)
{
	uint32_t low = load_u32(service_id + 4);
	unsigned int ip_version = private_data[1] >> 4;

	if (load_u32(service_id) != 0 || (ip_version != 4 && ip_version != 6))
		return 0;
	return vb_ports_listener(registry, (uint16_t)(low >> 16),
				 ip_version == 4 ? VB_PORT_IPV4 : VB_PORT_IPV6, (uint16_t)low);
}

uint16_t vb_mad_route(struct vb_registry *registry, const uint8_t *mad, size_t size)
{
	if (size < VB_MAD_BYTES || mad[0] != VB_MAD_BASE_VERSION)
		return 0;
	if (mad[CLASS_AT] != VB_MAD_CM)
		return mad[METHOD_AT] & VB_MAD_RESPONSE_BIT
			       ? slot_of_id(load_u32(mad + TID_AT))
			       : vb_ports_listener(
					 registry, VB_PS_MAD, VB_PORT_IPV4,
					 vb_mad_class_port(mad[CLASS_AT], mad[VERSION_AT]));
	switch ((unsigned int)mad[ATTRIBUTE_AT] << 8 | mad[ATTRIBUTE_AT + 1]) {
	case VB_CM_ATTR_REQ:
		return listener(registry, mad + SERVICE_ID_AT, mad + REQ_PRIVATE_AT);
	case VB_CM_ATTR_SIDR_REQ:
		return listener(registry, mad + SERVICE_ID_AT, mad + SIDR_REQ_PRIVATE_AT);
	case VB_CM_ATTR_SIDR_REP:
		return slot_of_id(load_u32(mad + LOCAL_ID_AT));
	default:
		return slot_of_id(load_u32(mad + REMOTE_ID_AT));
	}
}
