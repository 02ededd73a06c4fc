/* SPDX-License-Identifier: BSD-2-Clause */
/* test_device.c - from addresses to devices and GID tables, and GIDs back to addresses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "host/address.h"
#include "host/device.h"

static struct in6_addr ip(const char *text)
{
	struct in6_addr address;
	struct in_addr ipv4;

	if (inet_pton(AF_INET, text, &ipv4) == 1)
		return vb_address_from_ipv4(ipv4);
	assert_int_equal(inet_pton(AF_INET6, text, &address), 1);
	return address;
}

#define assert_ip_equal(address, text)                                                             \
	do {                                                                                       \
		char _text[VB_ADDRESS_TEXT];                                                       \
		assert_string_equal(vb_address_text(&(address), _text), text);                     \
	} while (0)

/* A machine: loopback; eth0 with two IPv4 addresses and IPv6; eth1 with IPv4 alone; eth2 with IPv6
 * alone; eth3 down. Each test takes the part of it that it wants by skipping lines. */
static struct vb_ifaddr machine[12];

static void add(size_t i, const char *ifname, uint32_t ifindex, const char *address, bool up,
		uint32_t mtu)
{
	machine[i] = (struct vb_ifaddr){
		.address = ip(address),
		.ifindex = ifindex,
		.mtu = mtu,
		.up = up,
		.loopback = ifindex == 1,
	};
	strcpy(machine[i].ifname, ifname);
}

static int build_machine(void **state)
{
	add(0, "lo", 1, "127.0.0.1", true, 65536);
	add(1, "eth3", 5, "10.3.0.1", false, 1500);
	add(2, "eth0", 2, "10.0.0.1", true, 1500);
	add(3, "eth0", 2, "10.0.0.9", true, 1500);
	add(4, "eth1", 3, "10.1.0.1", true, 9000);
	add(5, "lo", 1, "::1", true, 65536);
	add(6, "eth0", 2, "fe80::fc:ff:fe00:1", true, 1500);
	add(7, "eth0", 2, "fd00::1", true, 1500);
	add(8, "eth0", 2, "fd00::2", true, 1500);
	add(9, "eth2", 4, "fe80::fc:ff:fe00:2", true, 1400);
	add(10, "eth2", 4, "fd02::1", true, 1400);
	add(11, "eth2", 4, "fd02::2", true, 1400);
	return 0;
}

static struct vb_device devices[VB_MAX_DEVICES];

static bool with_lids;

static int make(size_t count, const char *const *addresses, unsigned int n, char **said)
{
	struct vb_settings settings = {.address_count = n, .lid = with_lids};
	char *ignored = NULL;
	size_t size;
	FILE *complaints = open_memstream(said ? said : &ignored, &size);
	int rc;

	for (unsigned int i = 0; i < n; i++)
		settings.addresses[i] = ip(addresses[i]);
	rc = vb_devices_make(&settings, machine, count, devices, complaints);
	fclose(complaints);
	free(ignored);
	return rc;
}

static const struct vb_device *make_named(const char *address)
{
	assert_int_equal(make(VB_ARRAY_SIZE(machine), &address, 1, NULL), 1);
	assert_ip_equal(devices[0].address, address);
	return &devices[0];
}

static void default_is_first_up(void **state)
{
	assert_int_equal(make(VB_ARRAY_SIZE(machine), NULL, 0, NULL), 1);
	assert_ip_equal(devices[0].address, "10.0.0.1"); /* not eth3's, which is down */
	assert_string_equal(devices[0].name, "verbena0");
	assert_string_equal(devices[0].ifname, "eth0");
	assert_int_equal(devices[0].ifindex, 2);
	assert_int_equal(make(2, NULL, 0, NULL), 1); /* loopback, and an interface that is down */
	assert_ip_equal(devices[0].address, "127.0.0.1");
	assert_int_equal(make(0, NULL, 0, NULL), 1); /* nothing at all */
	assert_ip_equal(devices[0].address, "127.0.0.1");
	machine[2].up = machine[3].up = machine[4].up = false;
	assert_int_equal(make(VB_ARRAY_SIZE(machine), NULL, 0, NULL), 1);
	assert_ip_equal(devices[0].address, "fd00::1");
}

static void real_interface(void **state)
{
	const struct vb_device *device = make_named("10.0.0.1");

	assert_int_equal(device->gid_count, 4);
	assert_ip_equal(device->gids[0].gid, "fe80::fc:ff:fe00:1");
	assert_ip_equal(device->gids[0].address, "fe80::fc:ff:fe00:1");
	assert_ip_equal(device->gids[1].gid, "10.0.0.1");
	assert_ip_equal(device->gids[2].gid, "fd00::1");
	assert_ip_equal(device->gids[3].gid, "fd00::2");
	assert_int_equal(device->gids[3].ifindex, 2);
	assert_string_equal(device->gids[3].ifname, "eth0");
	assert_int_equal(device->guid, 0x00fc00fffe000001);
	assert_ip_equal(device->host_address, "10.0.0.1");
	assert_int_equal(device->active_path_mtu, 1024);
}

/* All names of an interface are one host, with one set of addresses in one order. */
static void named_by_ipv6(void **state)
{
	static const char *const names[] = {"10.0.0.1", "fd00::1", "fd00::2", "fe80::fc:ff:fe00:1"};

	for (size_t i = 0; i < VB_ARRAY_SIZE(names); i++) {
		const struct vb_device *device = make_named(names[i]);
		struct in6_addr addresses[VB_MAX_GIDS];
		uint32_t scopes[VB_MAX_GIDS];

		assert_ip_equal(device->host_address, "10.0.0.1");
		assert_ip_equal(device->gids[0].gid, "fe80::fc:ff:fe00:1");
		assert_ip_equal(device->gids[1].gid, i < 3 ? names[i] : "10.0.0.1");
		assert_int_equal(vb_device_addresses(device, addresses, scopes), 4);
		assert_ip_equal(addresses[0], "10.0.0.1");
		assert_ip_equal(addresses[1], "fe80::fc:ff:fe00:1");
		assert_ip_equal(addresses[2], "fd00::1");
		assert_ip_equal(addresses[3], "fd00::2");
		assert_int_equal(scopes[0], 0);
		assert_int_equal(scopes[1], 2);
		assert_int_equal(scopes[2], 0);
	}
	assert_ip_equal(make_named("fd00::2")->gids[2].gid, "10.0.0.1");
	assert_ip_equal(make_named("fd00::2")->gids[3].gid, "fd00::1");
}

static void further_ipv4_is_alone(void **state)
{
	const struct vb_device *device = make_named("10.0.0.9");

	assert_ip_equal(device->host_address, "10.0.0.9");
	assert_int_equal(device->gid_count, 2);
	assert_ip_equal(device->gids[0].gid, "fe80::5642:4e49:a00:9");
	assert_ip_equal(device->gids[0].address, "10.0.0.9");
	assert_ip_equal(device->gids[1].gid, "10.0.0.9");
}

static void ipv4_only(void **state)
{
	const struct vb_device *device = make_named("10.1.0.1");

	assert_int_equal(device->gid_count, 2);
	assert_ip_equal(device->gids[0].gid, "fe80::5642:4e49:a01:1");
	assert_ip_equal(device->gids[0].address, "10.1.0.1");
	assert_int_equal(device->guid, 0x56424e490a010001);
	assert_int_equal(device->active_path_mtu, 4096);
}

static void ipv6_only(void **state)
{
	const struct vb_device *device = make_named("fd02::2");

	assert_int_equal(device->gid_count, 3);
	assert_ip_equal(device->gids[0].gid, "fe80::fc:ff:fe00:2");
	assert_ip_equal(device->gids[1].gid, "fd02::2");
	assert_ip_equal(device->gids[2].gid, "fd02::1");
	assert_ip_equal(device->host_address, "fd02::1");
	device = make_named("::1");
	assert_ip_equal(device->gids[0].gid, "::1");
	assert_ip_equal(device->gids[1].gid, "::1");
	assert_int_equal(device->guid, 1);
}

static void virtual_hosts(void **state)
{
	static const char *const two[] = {"127.0.0.2", "127.77.0.3"};

	assert_int_equal(make(VB_ARRAY_SIZE(machine), two, 2, NULL), 2);
	assert_string_equal(devices[1].name, "verbena1");
	assert_int_equal(devices[1].index, 1);
	assert_ip_equal(devices[1].host_address, "127.77.0.3");
	assert_int_equal(devices[1].gid_count, 2);
	assert_ip_equal(devices[1].gids[0].gid, "fe80::5642:4e49:7f4d:3");
	assert_ip_equal(devices[1].gids[0].address, "127.77.0.3");
	assert_ip_equal(devices[1].gids[1].gid, "127.77.0.3");
	assert_string_equal(devices[1].ifname, "lo");
	assert_int_equal(devices[1].active_path_mtu, 4096);
	assert_true(devices[0].guid != devices[1].guid);
	assert_int_equal(make(0, two, 2, NULL), 2); /* needs no interface that knows it */
}

static void refusals(void **state)
{
	static const char *const wrong[][2] = {
		{"127.0.0.2", "10.9.9.9"}, /* not this machine's */
		{"127.0.0.2", "fd09::1"},	   {"127.0.0.2", "127.0.0.2"}, /* twice */
		{"10.0.0.1", "fd00::2"}, /* one host by two names */
		{"fd02::1", "fe80::fc:ff:fe00:2"},
	};

	for (size_t i = 0; i < VB_ARRAY_SIZE(wrong); i++) {
		char *said;

		assert_int_equal(make(VB_ARRAY_SIZE(machine), wrong[i], 2, &said), -EINVAL);
		assert_non_null(strstr(said, wrong[i][1]));
		assert_non_null(strstr(said, "VERBENA_ADDR"));
		assert_non_null(strstr(said, "allowed is "));
		free(said);
	}
}

static void lids(void **state)
{
	assert_int_equal(make_named("10.1.0.1")->lid, 0);
	with_lids = true;
	assert_int_equal(make_named("10.1.0.1")->lid, 0x0001);
	assert_int_equal(make_named("127.77.9.3")->lid, 0x0903);
	assert_int_equal(make_named("fd02::2")->lid, 0x0002);
	with_lids = false;
}

static void path_mtus(void **state)
{
	/* interface MTU, path MTU: payload + IPv6 40 + UDP 8 + BTH 12 + RETH 16 + ImmDt 4 + ICRC 4
	 */
	static const uint32_t pairs[][2] = {{65536, 4096}, {9000, 4096}, {4180, 4096}, {4179, 2048},
					    {1500, 1024},  {1400, 1024}, {1280, 1024}, {1107, 512},
					    {576, 256},	   {68, 256}};

	for (size_t i = 0; i < VB_ARRAY_SIZE(pairs); i++) {
		machine[4].mtu = pairs[i][0];
		assert_int_equal(make_named("10.1.0.1")->active_path_mtu, pairs[i][1]);
	}
}

static void ownership(void **state)
{
	const struct vb_device *device = make_named("10.0.0.1");
	struct in6_addr mine = ip("fd00::2"), other = ip("10.0.0.9");

	assert_true(vb_device_owns(device, &mine));
	assert_false(vb_device_owns(device, &other));
}

static void gids_and_addresses(void **state)
{
	static const char *const texts[] = {"127.0.0.2", "10.255.0.1", "192.0.2.2"};
	struct in6_addr real = ip("fe80::fc:ff:fe00:1"), global = ip("fd00::5642:4e49:a00:9");
	struct in6_addr back;

	for (size_t i = 0; i < VB_ARRAY_SIZE(texts); i++) {
		struct in6_addr address = ip(texts[i]), gid = vb_gid_synthetic(&address);

		assert_true(IN6_IS_ADDR_LINKLOCAL(&gid));
		back = vb_gid_to_address(&gid);
		assert_memory_equal(&back, &address, sizeof(back));
		back = vb_gid_to_address(&address);
		assert_memory_equal(&back, &address, sizeof(back));
	}
	back = vb_gid_to_address(&real);
	assert_memory_equal(&back, &real, sizeof(back));
	back = vb_gid_to_address(&global);
	assert_memory_equal(&back, &global, sizeof(back));
}

static void kinds_of_address(void **state)
{
	struct in6_addr address = ip("127.200.0.1");

	assert_true(vb_address_is_virtual_host(&address));
	assert_false(vb_address_is_multicast(&address));
	address = ip("128.0.0.1");
	assert_false(vb_address_is_virtual_host(&address));
	address = ip("::1");
	assert_false(vb_address_is_virtual_host(&address));
	address = ip("223.255.255.255");
	assert_false(vb_address_is_multicast(&address));
	address = ip("224.0.0.0");
	assert_true(vb_address_is_multicast(&address));
	address = ip("ff02::1");
	assert_true(vb_address_is_multicast(&address));
}

/* The real machine: every address is some interface's, IPv6 in its order. */
static void real_machine(void **state)
{
	struct vb_ifaddr *all;
	int count = vb_interfaces_read(&all);

	assert_true(count >= 0);
	for (int i = 0; i < count; i++) {
		assert_true(all[i].ifindex > 0);
		assert_true(all[i].mtu >= 68);
		assert_true(strlen(all[i].ifname) > 0);
	}
	free(all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(default_is_first_up, build_machine),
		cmocka_unit_test_setup(real_interface, build_machine),
		cmocka_unit_test_setup(named_by_ipv6, build_machine),
		cmocka_unit_test_setup(further_ipv4_is_alone, build_machine),
		cmocka_unit_test_setup(ipv4_only, build_machine),
		cmocka_unit_test_setup(ipv6_only, build_machine),
		cmocka_unit_test_setup(virtual_hosts, build_machine),
		cmocka_unit_test_setup(refusals, build_machine),
		cmocka_unit_test_setup(lids, build_machine),
		cmocka_unit_test_setup(path_mtus, build_machine),
		cmocka_unit_test_setup(ownership, build_machine),
		cmocka_unit_test(gids_and_addresses),
		cmocka_unit_test(kinds_of_address),
		cmocka_unit_test(real_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
