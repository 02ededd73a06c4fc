/* SPDX-License-Identifier: BSD-2-Clause */
/* test_mad_route.c - whose a MAD is: requests by port, answers by the identifier that they carry.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "carrier/mad_route.h"
#include "registry/ports.h"
#include "wire/mad.h"

static struct vb_registry *registry;

static struct in6_addr address(void)
{
	struct in6_addr a = {0};

	a.s6_addr[10] = a.s6_addr[11] = 0xff;
	a.s6_addr[12] = 127;
	a.s6_addr[13] = 46;
	a.s6_addr[14] = 200;
	a.s6_addr[15] = 1;
	return a;
}

static int set_up(void **state)
{
	struct in6_addr a = address();

	return vb_registry_join(&registry, &a);
}

static int tear_down(void **state)
{
	vb_registry_leave(registry);
	return 0;
}

static void put16(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static void put32(uint8_t *at, uint32_t value)
{
	put16(at, value >> 16);
	put16(at + 2, value);
}

static void make(uint8_t mad[256], uint8_t mgmt_class, uint8_t method, uint16_t attribute)
{
	memset(mad, 0, 256);
	mad[0] = 1;
	mad[1] = mgmt_class;
	mad[2] = 2;
	mad[3] = method;
	put16(mad + 16, attribute);
}

static uint16_t route(const uint8_t mad[256])
{
	return vb_mad_route(registry, mad, 256);
}

/* The n-th packet to QP 1 of a capture: its MAD. */
static void load_golden(const char *name, unsigned int n, uint8_t mad[256])
{
	char path[512];
	uint8_t record[16], frame[4096];
	FILE *file;
	uint32_t bytes;

	snprintf(path, sizeof(path), "%s/%s", VB_GOLDEN_DIR, name);
	file = fopen(path, "rb");
	assert_non_null(file);
	assert_int_equal(fseek(file, 24, SEEK_SET), 0);
	while (fread(record, 1, 16, file) == 16) {
		memcpy(&bytes, record + 8, 4);
		assert_true(bytes <= sizeof(frame));
		assert_int_equal(fread(frame, 1, bytes, file), bytes);
		/* Ethernet 14, IPv4 20, UDP 8, BTH 12, DETH 8 */
		if (frame[12] != 8 || frame[23] != 17 || memcmp(frame + 47, "\0\0\1", 3) || n--)
			continue;
		memcpy(mad, frame + 62, 256);
		fclose(file);
		return;
	}
	fail_msg("%s has too few MADs", name);
}

/* --- requests ---------------------------------------------------------------------------- */

static void a_request_goes_to_the_ports_listener(void **state)
{
	uint16_t port = 7174; /* what rping and the capture use */
	uint8_t mad[256];

	load_golden("rxe-rping-C3.pcap", 0, mad);
	assert_int_equal(route(mad), 0);
	assert_int_equal(vb_ports_claim(registry, VB_PS_TCP, VB_PORT_IPV4, &port), 0);
	assert_int_equal(route(mad), 0);
	vb_ports_set_listening(registry, VB_PS_TCP, VB_PORT_IPV4, port, true);
	assert_int_equal(route(mad), registry->slot);

	mad[165] = 0x60; /* IP version 6 */
	assert_int_equal(route(mad), 0);
	mad[165] = 0x50;
	assert_int_equal(route(mad), 0);
	mad[165] = 0x4f; /* the lower half is reserved */
	assert_int_equal(route(mad), registry->slot);
	mad[39]++; /* another port */
	assert_int_equal(route(mad), 0);
	mad[39]--;
	put16(mad + 36, VB_PS_UDP);
	assert_int_equal(route(mad), 0);
	put16(mad + 36, VB_PS_TCP);
	mad[35] = 1; /* a service ID that is not of the IP CM service */
	assert_int_equal(route(mad), 0);
	mad[35] = 0;
	assert_int_equal(route(mad), registry->slot);
	vb_ports_release(registry, VB_PS_TCP, VB_PORT_IPV4, port);
	assert_int_equal(route(mad), 0);
}

static void a_service_lookup_goes_to_the_ports_listener(void **state)
{
	uint16_t port = 7174;
	uint8_t mad[256];

	load_golden("rxe-udaddy-sidr.pcap", 0, mad);
	assert_int_equal(mad[17], 0x17);
	port = (uint16_t)(mad[38] << 8 | mad[39]);
	assert_int_equal(vb_ports_claim(registry, VB_PS_UDP, VB_PORT_IPV4, &port), 0);
	assert_int_equal(route(mad), 0);
	vb_ports_set_listening(registry, VB_PS_UDP, VB_PORT_IPV4, port, true);
	assert_int_equal(route(mad), registry->slot);
	mad[41] = 0x60;
	assert_int_equal(route(mad), 0);
	vb_ports_release(registry, VB_PS_UDP, VB_PORT_IPV4, port);
}

static void a_dead_listener_gets_nothing(void **state)
{
	uint16_t port = 7174;
	struct in6_addr a = address();
	uint8_t mad[256];
	int pair[2], status;
	char byte;
	pid_t child;

	load_golden("rxe-rping-C3.pcap", 0, mad);
	assert_return_code(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), errno);
	child = fork();
	if (child == 0) {
		struct vb_registry *own;

		close(pair[0]);
		vb_registry_drop_in_child(registry);
		if (vb_registry_join(&own, &a) ||
		    vb_ports_claim(own, VB_PS_TCP, VB_PORT_IPV4, &port))
			_exit(1);
		vb_ports_set_listening(own, VB_PS_TCP, VB_PORT_IPV4, port, true);
		if (write(pair[1], &own->slot, 2) != 2 || read(pair[1], &byte, 1) != 0)
			_exit(2);
		_exit(0); /* as abruptly as any death */
	}
	close(pair[1]);
	uint16_t slot;

	assert_int_equal(read(pair[0], &slot, 2), 2);
	assert_int_equal(route(mad), slot);
	close(pair[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(route(mad), 0);
}

/* --- answers ----------------------------------------------------------------------------- */

static void answers_carry_the_slot(void **state)
{
	/* MRA, REJ, REP, RTU, DREQ, DREP, LAP, APR: the remote communication ID */
	static const uint16_t by_remote_id[] = {0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x19, 0x1a};
	uint8_t mad[256];

	for (size_t i = 0; i < VB_ARRAY_SIZE(by_remote_id); i++) {
		make(mad, 0x07, 0x03, by_remote_id[i]);
		put32(mad + 24, 99u << 23 | 5); /* the sender's own */
		put32(mad + 28, 321u << 23 | 0x7fffff);
		assert_int_equal(route(mad), 321);
		put32(mad + 28, 5);
		assert_int_equal(route(mad), 0);
		put32(mad + 28, 511u << 23 | 5); /* no process has it */
		assert_int_equal(route(mad), 0);
		put32(mad + 28, 510u << 23);
		assert_int_equal(route(mad), 510);
	}
	make(mad, 0x07, 0x03, 0x18); /* SIDR_REP: the request ID */
	put32(mad + 24, 123u << 23 | 1);
	put32(mad + 28, 77u << 23 | 1);
	assert_int_equal(route(mad), 123);
}

static void responses_of_other_classes_carry_it_in_the_transaction_id(void **state)
{
	uint8_t mad[256];

	make(mad, 0x04, 0x81, 0x12);
	put32(mad + 8, 200u << 23 | 3);
	put32(mad + 12, 0xffffffff);
	assert_int_equal(route(mad), 200);
	mad[3] = 0x01; /* a request */
	assert_int_equal(route(mad), 0);
}

static void what_is_no_mad_is_nobodys(void **state)
{
	uint8_t mad[300];

	memset(mad, 0xff, sizeof(mad));
	make(mad, 0x07, 0x03, 0x13);
	put32(mad + 28, 321u << 23);
	assert_int_equal(vb_mad_route(registry, mad, 300), 321);
	for (size_t size = 0; size < 256; size++) {
		uint8_t *exact = malloc(size ? size : 1); /* what lies behind is not ours */

		memcpy(exact, mad, size);
		assert_int_equal(vb_mad_route(registry, exact, size), 0);
		free(exact);
	}
	mad[0] = 2;
	assert_int_equal(vb_mad_route(registry, mad, 256), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_goes_to_the_ports_listener),
		cmocka_unit_test(a_service_lookup_goes_to_the_ports_listener),
		cmocka_unit_test(a_dead_listener_gets_nothing),
		cmocka_unit_test(answers_carry_the_slot),
		cmocka_unit_test(responses_of_other_classes_carry_it_in_the_transaction_id),
		cmocka_unit_test(what_is_no_mad_is_nobodys),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
