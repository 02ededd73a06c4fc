/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ip.h - the RDMA IP CM service (IBTA annex A11): how ports and IP addresses stand in CM messages.
 *
 *      service ID = port space << 16 | port, so 0x0000000001060000 | port for RDMA_PS_TCP
 *      private data of REQ and SIDR_REQ, 36 bytes before the program's:
 *
 *       0  major/minor version (0) | IP version << 4 | source port
 *       4  source address, IPv4 in its last four bytes
 *      20  destination address
 */
#ifndef VB_CM_IP_H
#define VB_CM_IP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

#define VB_CM_IP_HEADER_BYTES 36u

static inline uint64_t vb_cm_service_id(uint16_t port_space, uint16_t port)
{
	return (uint64_t)port_space << 16 | port;
}

/* struct vb_cm_ip - addresses IPv4-mapped where IPv4. */
struct vb_cm_ip {
	bool ipv4;
	uint16_t source_port; /* host order */
	struct in6_addr source, destination;
};

/* vb_cm_ip_encode - 36 bytes. */
VB_SHARED void vb_cm_ip_encode(const struct vb_cm_ip *ip, uint8_t out[VB_CM_IP_HEADER_BYTES]);
/* vb_cm_ip_decode - 0, or -EBADMSG: too short, another version, neither IPv4 nor IPv6. */
VB_SHARED int vb_cm_ip_decode(struct vb_cm_ip *ip, const void *private_data,
			      size_t len) VB_MUST_USE;

#endif
