/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * interface.h - the addresses of this machine's interfaces, as the kernel has them.
 *
 * IPv4 in the kernel's order, each interface's first address before its further ones. IPv6 without
 * the temporary addresses of RFC 8981 and those that failed duplicate address detection, sorted:
 * link-local first, then by value, so that every process of a host has them in the same order.
 */
#ifndef VB_HOST_INTERFACE_H
#define VB_HOST_INTERFACE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

struct vb_ifaddr {
	struct in6_addr address; /* IPv4 mapped */
	uint32_t ifindex;
	uint32_t mtu;
	char ifname[16];
	bool up; /* administratively up, with a carrier */
	bool loopback;
	bool tentative; /* duplicate address detection is under way: it cannot be bound yet */
};

/* vb_interfaces_read - *out is to be freed. Returns how many, or -errno. */
int vb_interfaces_read(struct vb_ifaddr **out) VB_MUST_USE;

/* vb_interfaces_settle - waits, at most about three seconds, while an IPv6 address of this
 * interface is tentative: an interface that just came up has its addresses but lets nobody bind
 * them. */
void vb_interfaces_settle(uint32_t ifindex);

#endif
