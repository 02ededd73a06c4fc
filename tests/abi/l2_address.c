/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * l2_address.c - prints the Ethernet address and the VLAN that ibv_resolve_eth_l2_from_gid finds
 * for each IP address on its command line: "10.91.0.2 02:00:00:00:00:01 vlan 65535", or the error.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

/* The first GID of the address's family, and the address as a GID. */
static int fill(struct ibv_context *context, const char *address, struct ibv_ah_attr *attr)
{
	char mapped[64];
	int ipv6 = strchr(address, ':') != NULL;

	snprintf(mapped, sizeof(mapped), ipv6 ? "%s" : "::ffff:%s", address);
	*attr = (struct ibv_ah_attr){.port_num = 1, .is_global = 1};
	if (inet_pton(AF_INET6, mapped, attr->grh.dgid.raw) != 1)
		return 0;
	for (uint8_t i = 1; i < 16; i++) {
		struct in6_addr own;

		if (ibv_query_gid(context, 1, i, (union ibv_gid *)&own) != 0)
			return 0;
		if (IN6_IS_ADDR_UNSPECIFIED(&own) || IN6_IS_ADDR_V4MAPPED(&own) == ipv6)
			continue;
		attr->grh.sgid_index = i;
		return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;

	if (!context)
		return 1;
	for (int i = 1; i < argc; i++) {
		struct ibv_ah_attr attr;
		uint16_t vlan = 0;
		uint8_t m[6];
		int rc;

		if (!fill(context, argv[i], &attr))
			return 1;
		rc = ibv_resolve_eth_l2_from_gid(context, &attr, m, &vlan);
		if (rc)
			printf("%s %s\n", argv[i], strerror(-rc));
		else
			printf("%s %02x:%02x:%02x:%02x:%02x:%02x vlan %u\n", argv[i], m[0], m[1],
			       m[2], m[3], m[4], m[5], vlan);
	}
	ibv_close_device(context);
	return 0;
}
