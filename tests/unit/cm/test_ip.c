/* SPDX-License-Identifier: BSD-2-Clause */
/* test_ip.c - the private data header of the RDMA IP CM service, byte by byte; service IDs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "cm/ip.h"

static struct in6_addr address(const char *text)
{
	struct in6_addr gid;

	assert_int_equal(inet_pton(AF_INET6, text, &gid), 1);
	return gid;
}

static void test_ipv4(void **state)
{
	static const uint8_t expected[VB_CM_IP_HEADER_BYTES] = {
		0x00, 0x40, 0x12, 0x34, [16] = 10, 77, 0, 12, [32] = 10, 77, 0, 11};
	struct vb_cm_ip ip = {true, 0x1234, address("::ffff:10.77.0.12"),
			      address("::ffff:10.77.0.11")};
	uint8_t out[VB_CM_IP_HEADER_BYTES];
	struct vb_cm_ip back;

	memset(out, 0xff, sizeof(out));
	vb_cm_ip_encode(&ip, out);
	assert_memory_equal(out, expected, sizeof(out));
	assert_int_equal(vb_cm_ip_decode(&back, out, sizeof(out)), 0);
	assert_true(back.ipv4);
	assert_int_equal(back.source_port, 0x1234);
	assert_memory_equal(&back.source, &ip.source, 16);
	assert_memory_equal(&back.destination, &ip.destination, 16);
	/* what a peer writes before an IPv4 address has no meaning */
	memset(out + 4, 0xee, 12);
	assert_int_equal(vb_cm_ip_decode(&back, out, sizeof(out)), 0);
	assert_memory_equal(&back.source, &ip.source, 16);
}

static void test_ipv6(void **state)
{
	struct vb_cm_ip ip = {false, 65535, address("fe80::1"), address("2001:db8::2")};
	uint8_t out[VB_CM_IP_HEADER_BYTES];
	struct vb_cm_ip back;

	vb_cm_ip_encode(&ip, out);
	assert_int_equal(out[1], 0x60);
	assert_memory_equal(out + 4, &ip.source, 16);
	assert_memory_equal(out + 20, &ip.destination, 16);
	assert_int_equal(vb_cm_ip_decode(&back, out, sizeof(out)), 0);
	assert_false(back.ipv4);
	assert_int_equal(back.source_port, 65535);
	assert_memory_equal(&back.destination, &ip.destination, 16);
}

static void test_what_is_no_header(void **state)
{
	uint8_t bytes[VB_CM_IP_HEADER_BYTES] = {0, 0x40};
	struct vb_cm_ip ip;

	for (size_t len = 0; len < sizeof(bytes); len++)
		assert_int_equal(vb_cm_ip_decode(&ip, bytes, len), -EBADMSG);
	for (int version = 0; version < 16; version++) {
		bytes[1] = (uint8_t)(version << 4);
		assert_int_equal(vb_cm_ip_decode(&ip, bytes, sizeof(bytes)),
				 version == 4 || version == 6 ? 0 : -EBADMSG);
	}
	bytes[1] = 0x40;
	bytes[0] = 0x10; /* major version 1 */
	assert_int_equal(vb_cm_ip_decode(&ip, bytes, sizeof(bytes)), -EBADMSG);
}

static void test_service_id(void **state)
{
	assert_true(vb_cm_service_id(0x0106, 7174) == 0x01061c06);
	assert_true(vb_cm_service_id(0x013f, 65535) == 0x013fffff);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ipv4),
		cmocka_unit_test(test_ipv6),
		cmocka_unit_test(test_what_is_no_header),
		cmocka_unit_test(test_service_id),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
