/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * address.h - IP addresses, and how a GID names one.
 *
 * Everywhere in Verbena an IP address is a struct in6_addr, IPv4 as ::ffff:a.b.c.d. A GID of
 * RoCE v2 is an IP address too (IBTA A17.5), with one exception that is ours: where a host has no
 * link-local address, its GID 0 is a synthetic one that carries the IPv4 address in its last bytes,
 *
 *      fe80 : 0 : 0 : 0 : 5642 : 4e49 : aabb : ccdd      for aa.bb.cc.dd  ("VBNI")
 *
 * and packets to it travel over IPv4. A real link-local address is not mistaken for one: those made
 * from a MAC address have ff:fe where this has 49:aa, random ones hit the pattern with 2^-32.
 */
#ifndef VB_HOST_ADDRESS_H
#define VB_HOST_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

static inline bool vb_address_is_ipv4(const struct in6_addr *address)
{
	return IN6_IS_ADDR_V4MAPPED(address);
}

VB_SHARED struct in6_addr vb_address_from_ipv4(struct in_addr ipv4);
/* vb_address_is_virtual_host - an address of 127.0.0.0/8. */
VB_SHARED bool vb_address_is_virtual_host(const struct in6_addr *address);
/* vb_address_is_multicast - IPv6 multicast, IPv4 multicast or broadcast. */
bool vb_address_is_multicast(const struct in6_addr *address);

/* vb_gid_synthetic - the link-local GID of a host that has only this IPv4 address. */
VB_SHARED struct in6_addr vb_gid_synthetic(const struct in6_addr *ipv4);
/* vb_gid_to_address - the address that goes into the IP header of a packet to or from this GID. */
VB_SHARED struct in6_addr vb_gid_to_address(const struct in6_addr *gid);

#define VB_ADDRESS_TEXT 46
/* vb_address_text - writes it as people do, IPv4 dotted, and returns text. */
const char *vb_address_text(const struct in6_addr *address, char text[VB_ADDRESS_TEXT]);

#endif
