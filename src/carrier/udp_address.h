/* SPDX-License-Identifier: BSD-2-Clause */
/* udp_address.h - between in6_addr with IPv4 mapped, as everything above sockets has it, and
 * sockaddr. */
#ifndef VB_CARRIER_UDP_ADDRESS_H
#define VB_CARRIER_UDP_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

union vb_sockaddr {
	struct sockaddr any;
	struct sockaddr_in in4;
	struct sockaddr_in6 in6;
};

static inline bool vb_is_ipv4(const struct in6_addr *address)
{
	return IN6_IS_ADDR_V4MAPPED(address);
}

static inline struct in6_addr vb_ipv4_mapped(struct in_addr address)
{
	struct in6_addr mapped = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

	memcpy(&mapped.s6_addr[12], &address, sizeof(address));
	return mapped;
}

/* vb_is_nowhere - the unspecified address of either kind. */
static inline bool vb_is_nowhere(const struct in6_addr *address)
{
	static const uint8_t zero[4];

	return vb_is_ipv4(address) ? memcmp(&address->s6_addr[12], zero, sizeof(zero)) == 0
				   : IN6_IS_ADDR_UNSPECIFIED(address);
}

/* vb_sockaddr_fill - returns the bytes used. */
static inline socklen_t vb_sockaddr_fill(union vb_sockaddr *out, const struct in6_addr *address,
					 uint32_t scope_id, uint16_t port)
{
	memset(out, 0, sizeof(*out));
	if (vb_is_ipv4(address)) {
		out->in4.sin_family = AF_INET;
		out->in4.sin_port = htons(port);
		memcpy(&out->in4.sin_addr, &address->s6_addr[12], 4);
		return sizeof(out->in4);
	}
	out->in6.sin6_family = AF_INET6;
	out->in6.sin6_port = htons(port);
	out->in6.sin6_addr = *address;
	out->in6.sin6_scope_id =
		IN6_IS_ADDR_LINKLOCAL(address) || IN6_IS_ADDR_MC_LINKLOCAL(address) ? scope_id : 0;
	return sizeof(out->in6);
}

/* vb_sockaddr_read - false: neither IPv4 nor IPv6. */
static inline bool vb_sockaddr_read(const union vb_sockaddr *in, struct in6_addr *address,
				    uint16_t *port)
{
	if (in->any.sa_family == AF_INET) {
		memset(address, 0, sizeof(*address));
		address->s6_addr[10] = address->s6_addr[11] = 0xff;
		memcpy(&address->s6_addr[12], &in->in4.sin_addr, 4);
		*port = ntohs(in->in4.sin_port);
		return true;
	}
	if (in->any.sa_family == AF_INET6) {
		*address = in->in6.sin6_addr;
		*port = ntohs(in->in6.sin6_port);
		return true;
	}
	return false;
}

#endif
