/* SPDX-License-Identifier: BSD-2-Clause */
/* identity.h - what every face says about a device and its port: the verbs, libibumad, and the
 * management agents must not contradict each other. */
#ifndef VB_HOST_IDENTITY_H
#define VB_HOST_IDENTITY_H

#include "host/host.h"

#define VB_VENDOR_ID 0x025642u /* a locally administered OUI: 02-56-42 */
#define VB_DEVICE_ID 1u
#define VB_HARDWARE_VERSION 1u

/* PortPhysicalState of PortInfo, IBTA 14.2.5.6 */
#define VB_PHYS_POLLING 2
#define VB_PHYS_DISABLED 3
#define VB_PHYS_LINK_UP 5
#define VB_WIDTH_4X 2
#define VB_SPEED_25_GBPS 32 /* EDR, a lane: enum ibv_port_attr's active_speed */
#define VB_PORT_GBPS 100    /* four lanes of it */

/* vb_physical_state - PortPhysicalState of PortInfo, IBTA 14.2.5.6. */
static inline uint8_t vb_physical_state(enum vb_port_state state)
{
	switch (state) {
	case VB_PORT_UP:
		return VB_PHYS_LINK_UP;
	case VB_PORT_POLLING:
		return VB_PHYS_POLLING;
	case VB_PORT_DISABLED:
		break;
	}
	return VB_PHYS_DISABLED;
}

/* vb_mtu_code - 1 .. 5 for a path MTU of 256 .. 4096 bytes (IBTA 14.2.5.6). */
static inline unsigned int vb_mtu_code(unsigned int bytes)
{
	unsigned int code = 5;

	while (code > 1 && bytes < 128u << code)
		code--;
	return code;
}

#endif
