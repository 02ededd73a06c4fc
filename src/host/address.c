/* SPDX-License-Identifier: BSD-2-Clause */
/* address.c - see address.h. */
#include "host/address.h"

#include <arpa/inet.h>
#include <string.h>

static const uint8_t synthetic_prefix[12] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 'V', 'B', 'N', 'I'};
static const uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

struct in6_addr vb_address_from_ipv4(struct in_addr ipv4)
{
	struct in6_addr address;

	memcpy(address.s6_addr, mapped_prefix, sizeof(mapped_prefix));
	memcpy(address.s6_addr + 12, &ipv4, 4);
	return address;
}

bool vb_address_is_virtual_host(const struct in6_addr *address)
{
	return vb_address_is_ipv4(address) && address->s6_addr[12] == 127;
}

bool vb_address_is_multicast(const struct in6_addr *address)
{
	/* 224.0.0.0/4 is multicast, 240.0.0.0/4 reserved but for the broadcast at its end */
	if (vb_address_is_ipv4(address))
		return address->s6_addr[12] >= 224;
	return IN6_IS_ADDR_MULTICAST(address);
}

struct in6_addr vb_gid_synthetic(const struct in6_addr *ipv4)
{
	struct in6_addr gid = *ipv4;

	memcpy(gid.s6_addr, synthetic_prefix, sizeof(synthetic_prefix));
	return gid;
}

struct in6_addr vb_gid_to_address(const struct in6_addr *gid)
{
	struct in6_addr address = *gid;

	if (memcmp(gid->s6_addr, synthetic_prefix, sizeof(synthetic_prefix)) == 0)
		memcpy(address.s6_addr, mapped_prefix, sizeof(mapped_prefix));
	return address;
}

const char *vb_address_text(const struct in6_addr *address, char text[VB_ADDRESS_TEXT])
{
	if (vb_address_is_ipv4(address))
		inet_ntop(AF_INET, address->s6_addr + 12, text, VB_ADDRESS_TEXT);
	else
		inet_ntop(AF_INET6, address, text, VB_ADDRESS_TEXT);
	return text;
}
