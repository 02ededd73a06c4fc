/* SPDX-License-Identifier: BSD-2-Clause */
/* test_frame.c - Ethernet frames: what is found in them, what matches, checksums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "wire/frame.h"

/* IPv4 192.168.0.1 to 192.168.0.199, UDP 1000 to 53 with four bytes. */
static const uint8_t udp4[] = {0x02, 0x00, 0x00, 0x00, 0x00, 0x02, 0x02, 0x00, 0x00, 0x00,
			       0x00, 0x01, 0x08, 0x00, 0x45, 0x00, 0x00, 0x20, 0x00, 0x00,
			       0x40, 0x00, 0x40, 0x11, 0xb7, 0x74, 0xc0, 0xa8, 0x00, 0x01,
			       0xc0, 0xa8, 0x00, 0xc7, 0x03, 0xe8, 0x00, 0x35, 0x00, 0x0c,
			       0x00, 0x00, 0x01, 0x02, 0x03, 0x04};

/* IPv6, flow label 0x12345, traffic class 0xa5, TCP 1 to 2 */
static const uint8_t tcp6[] = {
	0x02, 0x00, 0x00, 0x00, 0x00, 0x02, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x81,
	0x00, 0x61, 0x23, 0x86, 0xdd, 0x6a, 0x51, 0x23, 0x45, 0x00, 0x14, 0x06, 0x33,
	0x20, 0x01, 0x0d, 0xb8, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x01, 0x20, 0x01, 0x0d, 0xb8, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x01, 0x00, 0x02, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x50, 0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};

static struct vb_frame parse(const uint8_t *bytes, uint32_t size)
{
	struct vb_frame f;

	assert_true(vb_frame_parse(&f, bytes, size));
	return f;
}

static void fields_are_found(void **state)
{
	struct vb_frame f = parse(udp4, sizeof(udp4));

	assert_int_equal(f.l3, VB_L3_IPV4);
	assert_int_equal(f.l4, VB_L4_UDP);
	assert_int_equal(f.l3_at, 14);
	assert_int_equal(f.l4_at, 34);
	assert_false(f.has_vlan);
	assert_memory_equal(f.key.ip_src, udp4 + 26, 4);
	assert_memory_equal(f.key.src_port, udp4 + 34, 2);
	assert_int_equal(f.key.protocol, 17);
	assert_int_equal(f.key.hop_limit, 64);
	assert_int_equal(f.key.fragment, VB_DONT_FRAGMENT);

	f = parse(tcp6, sizeof(tcp6));
	assert_int_equal(f.l3, VB_L3_IPV6);
	assert_int_equal(f.l4, VB_L4_TCP);
	assert_true(f.has_vlan);
	assert_memory_equal(f.key.vlan_tag, "\x61\x23", 2);
	assert_memory_equal(f.key.ether_type, "\x86\xdd", 2);
	assert_int_equal(f.key.traffic_class, 0xa5);
	assert_memory_equal(f.key.flow_label, "\x00\x01\x23\x45", 4);
	assert_int_equal(f.key.hop_limit, 0x33);
	assert_memory_equal(f.key.ip_dst, tcp6 + 42, 16);
	assert_memory_equal(f.key.dst_port, "\x00\x02", 2);
}

/* What is cut off is not there, and nothing behind the end is read (ASan looks). */
static void every_length_is_safe(void **state)
{
	for (uint32_t size = 0; size <= sizeof(tcp6); size++) {
		uint8_t copy[sizeof(tcp6)];
		struct vb_frame f;

		memcpy(copy + sizeof(copy) - size, tcp6, size);
		if (!vb_frame_parse(&f, copy + sizeof(copy) - size, size)) {
			assert_true(size < 14);
			continue;
		}
		assert_int_equal(f.l3 == VB_L3_IPV6, size >= 18 + 40);
		assert_int_equal(f.l4 == VB_L4_TCP, size >= 18 + 40 + 20);
		assert_false(vb_frame_checksums_are_right(&f, true));
	}
}

static void fragments_have_no_ports(void **state)
{
	uint8_t copy[sizeof(udp4)];
	struct vb_frame f;

	memcpy(copy, udp4, sizeof(copy));
	copy[20] = 0x20; /* more fragments, offset 0: the first */
	f = parse(copy, sizeof(copy));
	assert_int_equal(f.l4, VB_L4_UDP);
	assert_int_equal(f.key.fragment, VB_MORE_FRAGMENTS);
	copy[21] = 1; /* a later one */
	f = parse(copy, sizeof(copy));
	assert_int_equal(f.l3, VB_L3_IPV4);
	assert_int_equal(f.l4, VB_L4_ANY);
}

static void masks_say_what_counts(void **state)
{
	struct vb_frame f = parse(udp4, sizeof(udp4)), g = parse(tcp6, sizeof(tcp6));
	struct vb_frame_match m = {0};

	assert_true(vb_frame_matches(&f, &m)); /* everything */
	m.value.ip_src[0] = 0xc0;
	m.value.ip_src[3] = 0x01;
	m.mask.ip_src[0] = 0xf0;
	m.mask.ip_src[3] = 0x0f;
	assert_true(vb_frame_matches(&f, &m));
	m.value.ip_src[3] = 0x02;
	assert_false(vb_frame_matches(&f, &m));
	m = (struct vb_frame_match){.l3 = VB_L3_IPV6};
	assert_false(vb_frame_matches(&f, &m));
	assert_true(vb_frame_matches(&g, &m));
	m = (struct vb_frame_match){.l4 = VB_L4_UDP};
	assert_true(vb_frame_matches(&f, &m));
	assert_false(vb_frame_matches(&g, &m));
	m = (struct vb_frame_match){.vlan = true};
	assert_false(vb_frame_matches(&f, &m));
	assert_true(vb_frame_matches(&g, &m));
}

static void checksums(void **state)
{
	uint8_t copy[sizeof(udp4)], v6[sizeof(tcp6)];
	struct vb_frame f;

	/* ~(4500+0020+4000+4011+c0a8+0001+c0a8+00c7), with the carry */
	memcpy(copy, udp4, sizeof(copy));
	f = parse(copy, sizeof(copy));
	vb_frame_fill_checksums(&f, copy);
	assert_memory_equal(copy + 24, "\xb8\xb4", 2);
	assert_true(vb_frame_checksums_are_right(&f, false));
	/* ~(c0a8+0001+c0a8+00c7+0011+000c, 03e8+0035+000c, 0102+0304) */
	assert_memory_equal(copy + 40, "\x75\x9a", 2);
	copy[45] ^= 1;
	assert_false(vb_frame_checksums_are_right(&f, false));
	assert_true(vb_frame_checksums_are_right(&f, true)); /* the kernel has not filled it in */
	copy[40] = copy[41] = 0;			     /* UDP may leave it out */
	assert_true(vb_frame_checksums_are_right(&f, false));
	copy[14 + 8]--;
	assert_false(vb_frame_checksums_are_right(&f, true));

	memcpy(v6, tcp6, sizeof(v6));
	f = parse(v6, sizeof(v6));
	vb_frame_fill_checksums(&f, v6);
	/* ~(2001+0db8+1+2001+0db8+2+0006+0014, 1+2+5010) */
	assert_memory_equal(v6 + 18 + 40 + 16, "\x54\x5d", 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_are_found),
		cmocka_unit_test(every_length_is_safe),
		cmocka_unit_test(fragments_have_no_ports),
		cmocka_unit_test(masks_say_what_counts),
		cmocka_unit_test(checksums),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
