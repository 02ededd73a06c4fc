/* SPDX-License-Identifier: BSD-2-Clause */
/* ip.c - the private data header of the RDMA IP CM service (IBTA A11.6.2), both ways. */
#include "cm/ip.h"

#include <errno.h>
#include <string.h>

#include "wire/cursor.h"

#define VERSION 0x00
#define IPV4 4
#define IPV6 6
#define SOURCE_AT 4
#define DESTINATION_AT 20
#define GID_BYTES 16
#define PREFIX_BYTES 12 /* before the four bytes of an IPv4 address */

static const uint8_t mapped_prefix[PREFIX_BYTES] = {[10] = 0xff, [11] = 0xff};

static void encode_address(const struct in6_addr *address, bool ipv4, uint8_t *p)
{
	memcpy(p, address->s6_addr, GID_BYTES);
	if (ipv4)
		memset(p, 0, PREFIX_BYTES);
}

static void decode_address(struct in6_addr *address, bool ipv4, const uint8_t *p)
{
	memcpy(address->s6_addr, p, GID_BYTES);
	if (ipv4)
		memcpy(address->s6_addr, mapped_prefix, PREFIX_BYTES);
}

void vb_cm_ip_encode(const struct vb_cm_ip *ip, uint8_t out[VB_CM_IP_HEADER_BYTES])
{
	out[0] = VERSION;
	out[1] = (uint8_t)((ip->ipv4 ? IPV4 : IPV6) << 4);
	vb_store_be16(out + 2, ip->source_port);
	encode_address(&ip->source, ip->ipv4, out + SOURCE_AT);
	encode_address(&ip->destination, ip->ipv4, out + DESTINATION_AT);
}

int vb_cm_ip_decode(struct vb_cm_ip *ip, const void *private_data, size_t len)
{
	struct vb_reader r = {.at = private_data, .end = (const uint8_t *)private_data + len};
	const uint8_t *p = vb_reader_take(&r, VB_CM_IP_HEADER_BYTES);

	if (!p || p[0] != VERSION || (p[1] >> 4 != IPV4 && p[1] >> 4 != IPV6))
		return -EBADMSG;
	memset(ip, 0, sizeof(*ip));
	ip->ipv4 = p[1] >> 4 == IPV4;
	ip->source_port = vb_load_be16(p + 2);
	decode_address(&ip->source, ip->ipv4, p + SOURCE_AT);
	decode_address(&ip->destination, ip->ipv4, p + DESTINATION_AT);
	return 0;
}
