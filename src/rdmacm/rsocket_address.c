/* SPDX-License-Identifier: BSD-2-Clause */
/* rsocket_address.c - socket addresses in and out of rsockets. */
#include "rdmacm/rsocket.h"

#include <string.h>

int vb_rs_copy_in(union vb_rs_address *to, const struct sockaddr *from, socklen_t size)
{
	memset(to, 0, sizeof(*to));
	if (!from || size < sizeof(sa_family_t))
		return -EINVAL;
	if (from->sa_family == AF_INET) {
		if (size < sizeof(to->in))
			return -EINVAL;
		memcpy(&to->in, from, sizeof(to->in));
		memset(to->in.sin_zero, 0, sizeof(to->in.sin_zero));
	} else if (from->sa_family == AF_INET6) {
		if (size < sizeof(to->in6))
			return -EINVAL;
		memcpy(&to->in6, from, sizeof(to->in6));
		if (IN6_IS_ADDR_V4MAPPED(&to->in6.sin6_addr)) {
			struct sockaddr_in in = {.sin_family = AF_INET,
						 .sin_port = to->in6.sin6_port};

			memcpy(&in.sin_addr, to->in6.sin6_addr.s6_addr + 12, 4);
			memset(to, 0, sizeof(*to));
			to->in = in;
		}
	} else {
		return -EAFNOSUPPORT;
	}
	return 0;
}

void vb_rs_copy_out(const struct vb_rs *rs, const struct sockaddr *from, struct sockaddr *to,
		    socklen_t *size)
{
	union vb_rs_address address;
	socklen_t real, room = *size;

	memset(&address, 0, sizeof(address));
	if (from->sa_family == AF_INET6) {
		memcpy(&address.in6, from, sizeof(address.in6));
	} else if (from->sa_family == AF_INET && rs->domain == AF_INET6) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)from;

		address.in6.sin6_family = AF_INET6;
		address.in6.sin6_port = in->sin_port;
		memset(address.in6.sin6_addr.s6_addr + 10, 0xff, 2);
		memcpy(address.in6.sin6_addr.s6_addr + 12, &in->sin_addr, 4);
	} else if (from->sa_family == AF_INET) {
		memcpy(&address.in, from, sizeof(address.in));
	} else {
		address.any.sa_family = (sa_family_t)rs->domain; /* bound to nothing yet */
	}
	real = vb_rs_address_size(&address);
	memcpy(to, &address, room < real ? room : real);
	*size = real;
}

bool vb_rs_is_any(const union vb_rs_address *address)
{
	if (address->any.sa_family == AF_INET6)
		return IN6_IS_ADDR_UNSPECIFIED(&address->in6.sin6_addr);
	return address->in.sin_addr.s_addr == htonl(INADDR_ANY);
}

bool vb_rs_same_host(const union vb_rs_address *a, const union vb_rs_address *b)
{
	if (a->any.sa_family != b->any.sa_family)
		return false;
	if (a->any.sa_family == AF_INET6)
		return IN6_ARE_ADDR_EQUAL(&a->in6.sin6_addr, &b->in6.sin6_addr);
	return a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
}

uint16_t vb_rs_port(const union vb_rs_address *address)
{
	return address->any.sa_family == AF_INET6 ? address->in6.sin6_port : address->in.sin_port;
}

socklen_t vb_rs_address_size(const union vb_rs_address *address)
{
	return address->any.sa_family == AF_INET6 ? sizeof(address->in6) : sizeof(address->in);
}
