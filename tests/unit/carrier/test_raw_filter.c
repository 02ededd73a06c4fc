/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_raw_filter.c - the kernel's program for what raw packets want, run by the kernel: a socket
 * filter sees what a Unix datagram holds just as it sees a frame.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "carrier/raw_filter.h"

/* True: the kernel lets the frame through. */
static bool passes(const struct vb_raw_wanted *wanted, const uint8_t *frame, uint32_t size)
{
	struct sock_filter *code = calloc(VB_RAW_FILTER_MAX, sizeof(*code));
	struct sock_fprog program = {.filter = code};
	uint8_t back[2048];
	ssize_t got;
	int fds[2];

	program.len = (unsigned short)vb_raw_filter_make(wanted, code);
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, fds), 0);
	assert_int_equal(
		setsockopt(fds[1], SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
	got = send(fds[0], frame, size, 0);
	assert_true(got == (ssize_t)size || (got < 0 && errno == EPERM));
	got = recv(fds[1], back, sizeof(back), 0);
	close(fds[0]);
	close(fds[1]);
	free(code);
	return got == (ssize_t)size;
}

static void make_udp(uint8_t frame[100])
{
	memset(frame, 0, 100);
	memcpy(frame, "\x01\x50\x56\x19\x20\xa7\x24\x8a\x07\xa5\x28\xc8\x08\x00\x45", 15);
	frame[23] = 17;
	memcpy(frame + 26, "\x0a\x01\x02\x03\x0a\x01\x02\x04", 8);
	memcpy(frame + 34, "\x04\xd2\x16\x2e", 4);
}

static bool one(const struct vb_frame_match *match, const uint8_t *frame, uint32_t size)
{
	const struct vb_raw_wanted wanted = {.count = 1, .matches = &match};

	return passes(&wanted, frame, size);
}

static void nothing_and_everything(void **state)
{
	const struct vb_raw_wanted nothing = {0}, everything = {.everything = true};
	uint8_t frame[100];

	make_udp(frame);
	assert_false(passes(&nothing, frame, 100));
	assert_false(passes(&nothing, frame, 20));
	assert_true(passes(&everything, frame, 100));
	assert_true(passes(&everything, frame, 20));
}

static void fields_are_compared(void **state)
{
	struct vb_frame_match m = {.l3 = VB_L3_IPV4, .l4 = VB_L4_UDP};
	uint8_t frame[100];

	make_udp(frame);
	assert_true(one(&m, frame, 100));
	memcpy(m.value.dst, frame, 6);
	memset(m.mask.dst, 0xff, 6);
	memcpy(m.value.src, frame + 6, 6);
	memset(m.mask.src, 0xff, 6);
	memcpy(m.value.ip_src, frame + 26, 4);
	memset(m.mask.ip_src, 0xff, 4);
	memcpy(m.value.dst_port, frame + 36, 2);
	memset(m.mask.dst_port, 0xff, 2);
	assert_true(one(&m, frame, 100));
	for (uint32_t at = 0; at < 38; at++) {
		/* What the rule names: addresses, type, version, protocol, source, port. */
		const bool named = at < 14 || at == 23 || (at >= 26 && at < 30) || at >= 36;

		frame[at] ^= 0x10;
		/* A version that is not plain IPv4 is for core/flow.c to look at. */
		assert_int_equal(one(&m, frame, 100), !named);
		frame[at] ^= 0x10;
	}
	m.l4 = VB_L4_TCP;
	assert_false(one(&m, frame, 100));
}

static void masks_are_heeded(void **state)
{
	struct vb_frame_match m = {.l3 = VB_L3_IPV4};
	uint8_t frame[100];

	make_udp(frame);
	m.value.ip_dst[0] = 0x0a;
	m.mask.ip_dst[0] = 0xfe;
	assert_true(one(&m, frame, 100));
	frame[30] = 0x0b;
	assert_true(one(&m, frame, 100));
	frame[30] = 0x0c;
	assert_false(one(&m, frame, 100));
}

static void ipv6_too(void **state)
{
	struct vb_frame_match m = {.l3 = VB_L3_IPV6, .l4 = VB_L4_TCP};
	uint8_t frame[100];

	make_udp(frame);
	memcpy(frame + 12, "\x86\xdd\x60", 3);
	frame[20] = 6;
	memset(frame + 22, 0x20, 32);
	memcpy(frame + 54, "\x00\x01\x00\x02", 4);
	memset(m.value.ip_src, 0x20, 16);
	memset(m.mask.ip_src, 0xff, 16);
	m.value.dst_port[1] = 2;
	memset(m.mask.dst_port, 0xff, 2);
	assert_true(one(&m, frame, 100));
	frame[37] ^= 1;
	assert_false(one(&m, frame, 100));
	frame[37] ^= 1;
	frame[57] ^= 1;
	assert_false(one(&m, frame, 100));
}

/* Short, tagged, with IP options: let through, since the program cannot tell. */
static void the_unusual_passes(void **state)
{
	struct vb_frame_match m = {.l3 = VB_L3_IPV4, .l4 = VB_L4_TCP};
	uint8_t frame[100];

	make_udp(frame);
	assert_false(one(&m, frame, 58));
	assert_true(one(&m, frame, 57));
	frame[14] = 0x46;
	assert_true(one(&m, frame, 100));
	frame[14] = 0x45;
	memcpy(frame + 12, "\x81\x00", 2);
	assert_true(one(&m, frame, 100));
	memcpy(frame + 12, "\x88\xa8", 2);
	assert_true(one(&m, frame, 100));
}

/* Any of them; so many that they do not fit pass everything. */
static void rules_are_alternatives(void **state)
{
	enum { MANY = 600 };
	static struct vb_frame_match rules[MANY];
	const struct vb_frame_match *matches[MANY];
	struct vb_raw_wanted wanted = {.matches = matches};
	uint8_t frame[100];

	make_udp(frame);
	for (uint32_t i = 0; i < MANY; i++) {
		rules[i] = (struct vb_frame_match){.l3 = VB_L3_IPV4, .l4 = VB_L4_UDP};
		rules[i].value.dst_port[0] = (uint8_t)(i >> 8);
		rules[i].value.dst_port[1] = (uint8_t)i;
		memset(rules[i].mask.dst_port, 0xff, 2);
		matches[i] = &rules[i];
	}
	wanted.count = 100;
	for (uint32_t port = 0; port < 130; port++) {
		frame[36] = 0;
		frame[37] = (uint8_t)port;
		assert_int_equal(passes(&wanted, frame, 100), port < 100);
	}
	frame[36] = 0xff;
	wanted.count = MANY;
	assert_true(passes(&wanted, frame, 100));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_and_everything), cmocka_unit_test(fields_are_compared),
		cmocka_unit_test(masks_are_heeded),	  cmocka_unit_test(ipv6_too),
		cmocka_unit_test(the_unusual_passes),	  cmocka_unit_test(rules_are_alternatives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
