/* SPDX-License-Identifier: BSD-2-Clause */
/* test_devices.c - which devices libibumad shows, what it says of them, and names for numbers. */
#define _GNU_SOURCE /* dlvsym */
#include "fixture.h"

#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/umad_str.h>
#include <unistd.h>

static void test_both_devices_are_listed(void **state)
{
	struct umad_device_node *list = umad_get_ca_device_list();
	char names[4][UMAD_CA_NAME_LEN] = {"", "", "none"};

	assert_non_null(list);
	assert_string_equal(list->ca_name, "verbena0");
	assert_string_equal(list->next->ca_name, "verbena1");
	assert_null(list->next->next);
	umad_free_ca_device_list(list);
	umad_free_ca_device_list(NULL);
	assert_int_equal(umad_get_cas_names(names, 4), 2);
	assert_string_equal(names[0], "verbena0");
	assert_string_equal(names[1], "verbena1");
	assert_string_equal(names[2], "none");
	assert_int_equal(umad_get_cas_names(names, 1), 1);
}

static void test_a_list_is_sorted_by_name(void **state)
{
	struct umad_device_node c = {NULL, "c"}, a = {&c, "a"}, b = {&a, "b"}, *head = &b;

	assert_int_equal(umad_sort_ca_device_list(&head, 2), EINVAL); /* there are three */
	assert_ptr_equal(head, &b);
	assert_int_equal(umad_sort_ca_device_list(&head, 3), 0);
	assert_ptr_equal(head, &a);
	assert_ptr_equal(a.next, &b);
	assert_ptr_equal(b.next, &c);
	assert_null(c.next);
	head = NULL;
	assert_int_equal(umad_sort_ca_device_list(&head, 0), 0);
}

static void test_a_device_and_its_port(void **state)
{
	umad_port_t port, other;
	umad_ca_t ca;

	assert_int_equal(umad_get_ca("verbena1", &ca), 0);
	assert_string_equal(ca.ca_name, "verbena1");
	assert_int_equal(ca.node_type, 1);
	assert_int_equal(ca.numports, 1);
	assert_null(ca.ports[0]);
	assert_non_null(ca.ports[1]);
	assert_true(ca.node_guid != 0 && ca.node_guid == ca.system_guid);
	assert_true(ca.fw_ver[0] && ca.hw_ver[0] && ca.ca_type[0]);

	assert_int_equal(umad_get_port("verbena1", 1, &port), 0);
	assert_string_equal(port.ca_name, "verbena1");
	assert_int_equal(port.portnum, 1);
	assert_int_equal(port.base_lid | port.lmc | port.sm_lid | port.sm_sl, 0);
	assert_int_equal(port.state, 4);
	assert_int_equal(port.phys_state, 5);
	assert_int_equal(port.rate, 100);
	assert_string_equal(port.link_layer, "Ethernet");
	assert_true(port.gid_prefix == htobe64(0xfe80ull << 48)); /* of GID 0 */
	assert_true(port.port_guid == ca.ports[1]->port_guid && port.port_guid == ca.node_guid);
	assert_int_equal(port.pkeys_size, 1);
	assert_int_equal(port.pkeys[0], 0xffff);
	assert_int_equal(umad_get_port("verbena0", 0, &other), 0);
	assert_true(other.port_guid != port.port_guid);
	assert_int_equal(umad_release_port(&port), 0);
	assert_null(port.pkeys);
	assert_int_equal(umad_release_port(&other), 0);
	assert_int_equal(umad_release_ca(&ca), 0);
	assert_null(ca.ports[1]);
}

static void test_defaults_and_what_is_not_there(void **state)
{
	__be64 guids[2] = {1, 1};
	char path[64];
	umad_port_t port;
	umad_ca_t ca;

	assert_int_equal(umad_get_ca(NULL, &ca), 0);
	assert_string_equal(ca.ca_name, "verbena0");
	assert_int_equal(umad_get_ca_portguids(NULL, guids, 2), 2);
	assert_true(guids[0] == 0 && guids[1] == ca.ports[1]->port_guid);
	assert_int_equal(umad_get_ca_portguids("verbena0", guids, 1), -ENOMEM);
	assert_int_equal(umad_get_ca_portguids("verbena9", guids, 2), -ENODEV);
	assert_int_equal(umad_release_ca(&ca), 0);
	assert_int_equal(umad_get_port(NULL, 0, &port), 0);
	assert_string_equal(port.ca_name, "verbena0");
	assert_int_equal(umad_release_port(&port), 0);
	assert_int_equal(umad_get_ca("verbena9", &ca), -ENODEV);
	assert_int_equal(umad_get_port("verbena9", 1, &port), -ENODEV);
	assert_int_equal(umad_get_port("verbena0", 2, &port), -EINVAL);
	assert_int_equal(umad_open_port("verbena9", 1), -ENODEV);
	assert_int_equal(umad_open_port("verbena0", 2), -EINVAL);
	assert_int_equal(umad_get_issm_path("verbena9", 1, path, sizeof(path)), -ENODEV);
	assert_int_equal(umad_get_issm_path("verbena0", 1, path, sizeof(path)), -EINVAL);
}

static void test_a_port_is_its_descriptor(void **state)
{
	int a = umad_open_port("verbena0", 1), b = umad_open_port("verbena0", 1);

	assert_true(a >= 0 && b >= 0 && a != b);
	assert_int_equal(umad_get_fd(a), a);
	assert_true(fcntl(a, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(a, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(umad_close_port(a), 0);
	assert_int_equal(fcntl(a, F_GETFD), -1);
	assert_int_equal(umad_close_port(a), -EINVAL);
	assert_int_equal(umad_get_fd(a), -EINVAL);
	assert_int_equal(umad_get_fd(STDERR_FILENO), -EINVAL);
	assert_int_equal(umad_get_fd(b), b);
	assert_int_equal(umad_close_port(b), 0);
}

static void test_buffers(void **state)
{
	struct ib_mad_addr addr = {
		.gid = {0xfe, 0x80, 1},
		.hop_limit = 7,
		.traffic_class = 3,
		.flow_label = 0x12345,
		.grh_present = 1,
	};
	struct ib_mad_addr *to;
	struct mad mad = {0};

	assert_int_equal(umad_size(), sizeof(struct ib_user_mad));
	assert_ptr_equal(umad_get_mad(&mad), mad.bytes);
	to = umad_get_mad_addr(&mad);
	assert_ptr_equal(to, &mad.umad.addr);
	assert_int_equal(umad_set_addr(&mad, 0x102, 1, 3, (int)0x80010000), 0);
	assert_int_equal(to->lid, htobe16(0x102));
	assert_int_equal(to->qpn, htobe32(1));
	assert_int_equal(to->qkey, htobe32(0x80010000));
	assert_int_equal(to->sl, 3);
	assert_int_equal(umad_set_grh(&mad, &addr), 0);
	assert_int_equal(to->grh_present, 1);
	assert_memory_equal(to->gid, addr.gid, 16);
	assert_int_equal(to->flow_label, htobe32(0x12345));
	assert_int_equal(to->hop_limit, 7);
	assert_int_equal(to->traffic_class, 3);
	assert_int_equal(umad_set_grh(&mad, NULL), 0);
	assert_int_equal(to->grh_present, 0);
	assert_int_equal(umad_set_pkey(&mad, 5), 0);
	assert_int_equal(umad_get_pkey(&mad), 5);
	mad.umad.status = 110;
	assert_int_equal(umad_status(&mad), 110);
	assert_int_equal(umad_debug(2), 2);
	assert_int_equal(umad_debug(-1), 2);
	assert_int_equal(umad_debug(0), 0);
}

/* struct umad_ca_pair of newer headers */
struct pair {
	char smi_name[UMAD_CA_NAME_LEN];
	uint32_t smi_port;
	char gsi_name[UMAD_CA_NAME_LEN];
	uint32_t gsi_port;
};

/* What programs of newer releases look for; the library that this is linked with need not have it.
 */
static void test_newer_calls(void **state)
{
	int (*open_smi)(const char *, int) =
		dlvsym(RTLD_DEFAULT, "umad_open_smi_port", "IBUMAD_1.3");
	int (*get_pairs)(struct pair *, size_t) =
		dlvsym(RTLD_DEFAULT, "umad_get_smi_gsi_pairs", "IBUMAD_1.4");
	int (*get_pair)(const char *, uint8_t, struct pair *, unsigned int) =
		dlvsym(RTLD_DEFAULT, "umad_get_smi_gsi_pair_by_ca_name", "IBUMAD_1.4");
	struct pair pairs[4], pair;
	int port;

	assert_non_null(open_smi);
	assert_non_null(get_pairs);
	assert_non_null(get_pair);
	port = open_smi("verbena1", 1);
	assert_int_equal(umad_get_fd(port), port);
	assert_int_equal(umad_close_port(port), 0);
	assert_int_equal(get_pairs(pairs, 4), 2);
	assert_string_equal(pairs[1].smi_name, "verbena1");
	assert_string_equal(pairs[1].gsi_name, "verbena1");
	assert_int_equal(get_pairs(pairs, 1), 1);
	assert_int_equal(get_pair("verbena1", 1, &pair, 1), 0);
	assert_string_equal(pair.gsi_name, "verbena1");
	assert_int_equal(pair.smi_port, 1);
	assert_int_equal(pair.gsi_port, 1);
	assert_int_equal(get_pair("verbena9", 0, &pair, 0), -ENODEV);
	assert_string_equal(pair.smi_name, "");
}

static void test_names(void **state)
{
	assert_string_equal(umad_class_str(UMAD_CLASS_PERF_MGMT), "Perf");
	assert_string_equal(umad_method_str(UMAD_CLASS_PERF_MGMT, UMAD_METHOD_GET_RESP), "GetResp");
	assert_string_equal(umad_attribute_str(UMAD_CLASS_SUBN_DIRECTED_ROUTE, htobe16(0x11)),
			    "NodeInfo");
	assert_string_equal(umad_common_mad_status_str(htobe16(UMAD_STATUS_BAD_VERSION)),
			    "Bad version");
	assert_string_equal(umad_sa_mad_status_str(htobe16(0x0300)), "No records");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_both_devices_are_listed),
		cmocka_unit_test(test_a_list_is_sorted_by_name),
		cmocka_unit_test(test_a_device_and_its_port),
		cmocka_unit_test(test_defaults_and_what_is_not_there),
		cmocka_unit_test(test_a_port_is_its_descriptor),
		cmocka_unit_test(test_buffers),
		cmocka_unit_test(test_newer_calls),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, fixture_begin, NULL);
}
