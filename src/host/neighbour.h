/* SPDX-License-Identifier: BSD-2-Clause */
/* neighbour.h - the Ethernet address behind an IP address, as the kernel's tables have it. */
#ifndef VB_HOST_NEIGHBOUR_H
#define VB_HOST_NEIGHBOUR_H

#include <netinet/in.h>
#include <stdint.h>

#include "base/macros.h"
#include "wire/frame.h"

#define VB_NO_VLAN 0xffffu

struct vb_neighbour {
	uint8_t mac[VB_MAC_BYTES];
	uint16_t vlan; /* of the interface, or VB_NO_VLAN */
};

/* vb_neighbour_find - the next hop from the interface towards an address (IPv4 mapped). One whom
 * the kernel does not know yet is asked for, for at most three seconds. 0, -EHOSTUNREACH: there is
 * no way, or nobody answers; or what a socket says. */
int vb_neighbour_find(const struct in6_addr *to, uint32_t ifindex,
		      struct vb_neighbour *out) VB_MUST_USE;

#endif
