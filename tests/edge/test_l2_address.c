/* SPDX-License-Identifier: BSD-2-Clause */
/* Ethernet addresses from GIDs (ibv_resolve_eth_l2_from_gid): what needs no network but loopback.
 */
#include "edge.h"

#include <arpa/inet.h>

#define NO_VLAN 0xffff

static struct ibv_ah_attr to(const char *gid)
{
	struct ibv_ah_attr attr = {.port_num = 1, .is_global = 1, .grh = {.sgid_index = 1}};

	assert_int_equal(inet_pton(AF_INET6, gid, attr.grh.dgid.raw), 1);
	return attr;
}

static void expect_mac(struct ibv_context *context, const char *gid, const uint8_t *mac)
{
	struct ibv_ah_attr attr = to(gid);
	uint8_t got[6];
	uint16_t vlan = 3;

	memset(got, 0xee, sizeof(got));
	assert_int_equal(ibv_resolve_eth_l2_from_gid(context, &attr, got, &vlan), 0);
	assert_memory_equal(got, mac, 6);
	assert_int_equal(vlan, NO_VLAN);
	assert_int_equal(ibv_resolve_eth_l2_from_gid(context, &attr, got, NULL), 0);
}

/* Frames on the loopback interface have addresses of zeros. */
static void on_loopback(void **state)
{
	struct edge_pair pair;
	struct ibv_ah_attr attr = {.port_num = 1, .grh = {.sgid_index = 1}};
	uint8_t mac[6], zero[6] = {0};

	edge_open(&pair, &(struct edge_options){0});
	attr.grh.dgid = pair.b.gid;
	memset(mac, 0xee, sizeof(mac));
	assert_int_equal(ibv_resolve_eth_l2_from_gid(pair.a.context, &attr, mac, NULL), 0);
	assert_memory_equal(mac, zero, 6);
	edge_close(&pair);
}

/* RFC 1112: 23 bits of the group. */
static void of_groups(void **state)
{
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){0});
	expect_mac(pair.a.context, "::ffff:224.1.2.3", (const uint8_t[]){1, 0, 0x5e, 1, 2, 3});
	expect_mac(pair.a.context, "::ffff:239.129.2.255",
		   (const uint8_t[]){1, 0, 0x5e, 1, 2, 255});
	edge_close(&pair);
}

static void expect_invalid(struct ibv_context *context, struct ibv_ah_attr attr)
{
	uint8_t mac[6] = {9, 9, 9, 9, 9, 9};
	uint16_t vlan = 9;

	assert_int_equal(ibv_resolve_eth_l2_from_gid(context, &attr, mac, &vlan), -EINVAL);
	assert_int_equal(mac[0], 9);
	assert_int_equal(vlan, 9);
}

static void wrong_arguments(void **state)
{
	struct ibv_ah_attr attr = to("::ffff:127.0.0.1");
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){0});
	attr.port_num = 2;
	expect_invalid(pair.a.context, attr);
	attr = to("::ffff:127.0.0.1");
	attr.grh.sgid_index = 15;
	expect_invalid(pair.a.context, attr);
	expect_invalid(pair.a.context, to("::"));
	expect_invalid(pair.a.context, to("2001:db8::1")); /* from an IPv4 address */
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(on_loopback),
		cmocka_unit_test(of_groups),
		cmocka_unit_test(wrong_arguments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
