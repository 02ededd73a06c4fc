/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * subnet_agent.c - the subnet management agent of a port (IBTA 14.2), for those who ask it from
 * this host: RoCE has no QP 0, and nobody manages its subnet.
 *
 *      0  header of a MAD; directed route: status with the D bit | hop pointer | hop count at 4
 *     24  M_Key
 *     32  directed route: source and destination LID
 *     64  64 bytes of attribute
 *    128  directed route: initial path, return path
 *
 * NodeDescription, NodeInfo, PortInfo, GUIDInfo and P_KeyTable are answered. SetPortInfo and the
 * like are refused: what it would change is the interface's, and the system's. A directed route of
 * more than no hops leads out of the port, where no switch is.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "host/identity.h"
#include "umad/face.h"
#include "wire/cursor.h"

#define DATA_AT 64
#define DATA_BYTES 64
#define HOP_COUNT_AT 7
#define CLASS_VERSION 1
#define DIRECTION 0x8000u /* the D bit: on the way back */

enum {
	ATTR_NODE_DESCRIPTION = 0x10,
	ATTR_NODE_INFO = 0x11,
	ATTR_GUID_INFO = 0x14,
	ATTR_PORT_INFO = 0x15,
	ATTR_PKEY_TABLE = 0x16,
};

enum { /* IBTA 13.4.7 */
       STATUS_OK = 0,
       STATUS_BAD_VERSION = 1 << 2,
       STATUS_BAD_METHOD = 2 << 2,
       STATUS_BAD_ATTRIBUTE = 3 << 2,
       STATUS_BAD_VALUE = 7 << 2,
};

enum { /* IBTA 14.2.5.6; what the verbs and umad_get_port() show is RoCE's own */
       CAPABILITY_EXTENDED_SPEEDS = 1 << 14,
       CAPABILITY_CM = 1 << 16,
};

#define TIME_VALUE 18 /* 4.096 us * 2^18: about a second */

static uint16_t node_description(const struct vb_umad_port *port, uint8_t *data)
{
	char host[DATA_BYTES - UMAD_CA_NAME_LEN - 1] = "";
	char text[DATA_BYTES + 1];

	(void)gethostname(host, sizeof(host) - 1);
	snprintf(text, sizeof(text), "%s %.*s", host, UMAD_CA_NAME_LEN - 1, port->device->name);
	memcpy(data, text, strlen(text));
	return STATUS_OK;
}

static uint16_t node_info(const struct vb_umad_port *port, const umad_port_t *seen, uint8_t *data)
{
	data[0] = VB_MAD_BASE_VERSION;
	data[1] = CLASS_VERSION;
	data[2] = 1;				     /* channel adapter */
	data[3] = 1;				     /* ports */
	vb_store_be64(data + 4, port->device->guid); /* of the system */
	vb_store_be64(data + 12, port->device->guid);
	memcpy(data + 20, &seen->port_guid, sizeof(seen->port_guid));
	vb_store_be16(data + 28, VB_PKEY_TABLE);
	vb_store_be16(data + 30, VB_DEVICE_ID);
	vb_store_be32(data + 32, VB_HARDWARE_VERSION);
	vb_store_be32(data + 36, (uint32_t)VB_UMAD_PORT << 24 | VB_VENDOR_ID);
	return STATUS_OK;
}

/* M_Key, error counters and what a subnet manager sets are 0. */
static uint16_t port_info(const struct vb_umad_port *port, const umad_port_t *seen,
			  uint32_t modifier, uint8_t *data)
{
	uint8_t mtu = (uint8_t)vb_mtu_code(port->device->active_path_mtu);

	if (modifier > VB_UMAD_PORT) /* 0: the port by which it came */
		return STATUS_BAD_VALUE;
	memcpy(data + 8, &seen->gid_prefix, sizeof(seen->gid_prefix));
	vb_store_be32(data + 20, CAPABILITY_EXTENDED_SPEEDS | CAPABILITY_CM);
	vb_store_be16(data + 16, (uint16_t)seen->base_lid);
	data[28] = VB_UMAD_PORT;
	data[29] = data[30] = data[31] = VB_WIDTH_4X;	 /* enabled, supported, active */
	data[32] = (uint8_t)(7 << 4 | seen->state);	 /* 2.5, 5 and 10 Gb/s a lane */
	data[33] = (uint8_t)(seen->phys_state << 4 | 2); /* polls when it is down */
	data[35] = 4 << 4 | 7;				 /* 10 Gb/s active: more is below */
	data[36] = (uint8_t)(mtu << 4);
	data[37] = 1 << 4; /* VL 0 */
	data[41] = (uint8_t)vb_mtu_code(VB_MAX_PATH_MTU);
	data[43] = 1 << 4;
	data[50] = 1; /* GUIDs */
	data[51] = TIME_VALUE;
	data[52] = TIME_VALUE;
	data[62] = 2 << 4 | 2; /* 25 Gb/s a lane: active, supported */
	data[63] = 2;	       /* enabled */
	return STATUS_OK;
}

static uint16_t guid_info(const umad_port_t *seen, uint32_t block, uint8_t *data)
{
	if (block > 0)
		return STATUS_BAD_VALUE;
	memcpy(data, &seen->port_guid, sizeof(seen->port_guid));
	return STATUS_OK;
}

/* The upper half of the modifier names a switch's port. */
static uint16_t pkey_table(uint32_t block, uint8_t *data)
{
	if (block & 0xffff)
		return STATUS_BAD_VALUE;
	vb_store_be16(data, VB_DEFAULT_PKEY);
	return STATUS_OK;
}

static uint16_t get(struct vb_umad_port *port, uint16_t attribute, uint32_t modifier, uint8_t *data)
{
	umad_port_t seen;

	vb_umad_describe_port(port->device, vb_engine_port(port->engine), &seen);
	switch (attribute) {
	case ATTR_NODE_DESCRIPTION:
		return node_description(port, data);
	case ATTR_NODE_INFO:
		return node_info(port, &seen, data);
	case ATTR_PORT_INFO:
		return port_info(port, &seen, modifier, data);
	case ATTR_GUID_INFO:
		return guid_info(&seen, modifier, data);
	case ATTR_PKEY_TABLE:
		return pkey_table(modifier, data);
	}
	return STATUS_BAD_ATTRIBUTE;
}

bool vb_umad_subnet_answer(struct vb_umad_port *port, const uint8_t in[VB_MAD_BYTES],
			   uint8_t out[VB_MAD_BYTES])
{
	bool directed = in[1] == VB_MAD_SUBNET_DIRECTED;
	uint8_t data[DATA_BYTES] = {0};
	uint16_t status;

	if (vb_umad_is_response(in) || (directed && in[HOP_COUNT_AT] > 0))
		return false;
	memcpy(out, in, VB_MAD_BYTES);
	if (in[0] != VB_MAD_BASE_VERSION || in[2] != CLASS_VERSION)
		status = STATUS_BAD_VERSION;
	else if (in[3] == VB_MAD_GET)
		status = get(port, vb_load_be16(in + 16), vb_load_be32(in + 20), data);
	else if (in[3] == VB_MAD_SET)
		status = STATUS_BAD_ATTRIBUTE;
	else
		status = STATUS_BAD_METHOD;
	if (status == STATUS_OK)
		memcpy(out + DATA_AT, data, sizeof(data));
	out[3] = VB_MAD_GET_RESPONSE;
	vb_store_be16(out + 4, (uint16_t)(status | (directed ? DIRECTION : 0)));
	return true;
}
