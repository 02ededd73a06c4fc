/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_icrc.c - the ICRC against the definition of the CRC, bit by bit, over a pseudo packet that
 * is built here by hand; and solving for the IPv4 identification.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "wire/icrc.h"
#include "wire/packet.h"

#define PACKET_MAX 4300

static uint64_t random_state;

static uint32_t random32(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 32);
}

/* CRC-32 as IEEE 802.3 defines it, reflected, one bit at a time. */
static uint32_t crc_by_bits(const uint8_t *p, size_t n)
{
	uint32_t crc = 0xffffffff;

	while (n--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
	}
	return ~crc;
}

static struct vb_icrc_ip ipv4(void)
{
	struct vb_icrc_ip ip = {.src_port = 0xc123,
				.dst_port = VB_ROCE_PORT,
				.ip_id = 0x1234,
				.dont_fragment = true};

	inet_pton(AF_INET6, "::ffff:10.77.0.11", &ip.src);
	inet_pton(AF_INET6, "::ffff:10.77.0.12", &ip.dst);
	return ip;
}

static struct vb_icrc_ip ipv6(void)
{
	struct vb_icrc_ip ip = {.src_port = 0xc123,
				.dst_port = VB_ROCE_PORT,
				.ip_id = 0x1234,
				.dont_fragment = true};

	inet_pton(AF_INET6, "fe80::77:ff:fe00:10", &ip.src);
	inet_pton(AF_INET6, "fe80::77:ff:fe00:11", &ip.dst);
	return ip;
}

static void fill(uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)random32();
}

static uint32_t icrc_in_parts(const struct vb_icrc_ip *ip, const uint8_t *packet, size_t size,
			      size_t headers)
{
	uint32_t state = vb_icrc_begin(ip, size + VB_ICRC_BYTES);

	state = vb_icrc_add_bth(state, packet, headers);
	return vb_icrc_add(state, packet + headers, size - headers);
}

static void test_ipv4_by_hand(void **state)
{
	/* 8 ones; IPv4: 45 TOS len id flags TTL proto csum src dst; UDP; BTH ... */
	uint8_t pseudo[8 + 20 + 8 + 16] = {
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x45, 0xff, 0x00, 0x30, 0x12,
		0x34, 0x40, 0x00, 0xff, 0x11, 0xff, 0xff, 10,	77,   0,    11,	  10,	77,
		0,    12,   0xc1, 0x23, 0x12, 0xb7, 0x00, 0x1c, 0xff, 0xff, 0x04, 0x00, 0xff,
		0xff, 0xff, 0x00, 0x00, 0x11, 0x80, 0x00, 0x00, 0x22, 1,    2,	  3,	4};
	struct vb_icrc_ip ip = ipv4();
	uint8_t packet[16];

	memcpy(packet, pseudo + 36, 16);
	packet[4] = 0;
	assert_int_equal(icrc_in_parts(&ip, packet, 16, 12), crc_by_bits(pseudo, sizeof(pseudo)));
	ip.dont_fragment = false;
	pseudo[8 + 6] = 0;
	assert_int_equal(icrc_in_parts(&ip, packet, 16, 16), crc_by_bits(pseudo, sizeof(pseudo)));
}

static void test_ipv6_by_hand(void **state)
{
	uint8_t pseudo[8 + 40 + 8 + 12] = {
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x6f, 0xff, 0xff, 0xff, 0x00, 0x18,
		0x11, 0xff, 0xfe, 0x80, 0,    0,    0,	  0,	0,    0,    0,	  0,	0,    0x77,
		0,    0xff, 0xfe, 0,	0,    0,    0,	  0,	0,    0,    0,	  0,	0,    0,
		0,    0,    0,	  0,	0,    0,    0xc1, 0x23, 0x12, 0xb7, 0x00, 0x18, 0xff, 0xff,
		0x01, 0x00, 0xff, 0xff, 0xff, 0x00, 0x00, 0x11, 0x00, 0x00, 0x00, 0x22};
	struct vb_icrc_ip ip = ipv6();
	uint8_t packet[12];

	memcpy(pseudo + 16, &ip.src, 16);
	memcpy(pseudo + 32, &ip.dst, 16);
	memcpy(packet, pseudo + 56, 12);
	packet[4] = 0xc0;
	assert_int_equal(icrc_in_parts(&ip, packet, 12, 12), crc_by_bits(pseudo, sizeof(pseudo)));
	ip.ip_id = 7; /* IPv6 has none */
	ip.dont_fragment = false;
	assert_int_equal(icrc_in_parts(&ip, packet, 12, 12), crc_by_bits(pseudo, sizeof(pseudo)));
}

/* The packet and what stands before it are as they were. */
static uint32_t icrc_in_place(const struct vb_icrc_ip *ip, const uint8_t *packet, size_t size)
{
	static uint8_t memory[VB_ICRC_ROOM + PACKET_MAX + VB_ICRC_BYTES], before[sizeof(memory)];
	uint32_t icrc;

	fill(memory, VB_ICRC_ROOM);
	memcpy(memory + VB_ICRC_ROOM, packet, size);
	memcpy(before, memory, sizeof(memory));
	icrc = vb_icrc_in_place(ip, memory + VB_ICRC_ROOM, size + VB_ICRC_BYTES);
	assert_memory_equal(memory, before, sizeof(memory));
	return icrc;
}

/* However the bytes are handed over, the ICRC is the same; FECN and BECN never count. */
static void test_pieces(void **state)
{
	static uint8_t packet[PACKET_MAX];

	random_state = 3;
	for (int round = 0; round < 300; round++) {
		struct vb_icrc_ip ip = round & 1 ? ipv6() : ipv4();
		size_t size = 12 + random32() % (round < 150 ? 300 : PACKET_MAX - 12);
		size_t cut = 12 + random32() % (size - 11);
		uint32_t whole, icrc;

		fill(packet, size);
		whole = icrc_in_parts(&ip, packet, size, 12);
		assert_int_equal(icrc_in_parts(&ip, packet, size, cut), whole);
		assert_int_equal(vb_icrc_begin_bth(&ip, size + 4, packet, size), whole);
		assert_int_equal(icrc_in_place(&ip, packet, size), whole);
		icrc = vb_icrc_begin_bth(&ip, size + 4, packet, cut);
		assert_int_equal(vb_icrc_add(icrc, packet + cut, size - cut), whole);
		packet[4] ^= (uint8_t)(1 + random32() % 255);
		assert_int_equal(icrc_in_parts(&ip, packet, size, 12), whole);
		packet[5 + random32() % (size - 5)] ^= 1;
		assert_int_not_equal(icrc_in_parts(&ip, packet, size, 12), whole);
	}
}

static void test_field_order(void **state)
{
	static const uint8_t bytes[4] = {0x78, 0x56, 0x34, 0x12};
	uint8_t out[4];

	vb_icrc_store(out, 0x12345678);
	assert_memory_equal(out, bytes, 4);
	assert_int_equal(vb_icrc_load(bytes), 0x12345678);
}

static void test_solve(void **state)
{
	static uint8_t packet[PACKET_MAX];

	random_state = 4;
	for (int round = 0; round < 2000; round++) {
		struct vb_icrc_ip sent = ipv4(), guess = sent;
		size_t size = 12 + 4 * (random32() % ((PACKET_MAX - 12) / 4));
		uint32_t right, wrong;
		uint16_t id = 0xaaaa;

		fill(packet, size);
		sent.ip_id = (uint16_t)random32();
		guess.ip_id = round & 1 ? 0 : (uint16_t)random32();
		right = icrc_in_parts(&sent, packet, size, 12);
		wrong = icrc_in_parts(&guess, packet, size, 12);
		assert_int_equal(vb_icrc_solve_ip_id(wrong, right, &guess, size + 4, &id), 0);
		assert_int_equal(id, sent.ip_id);
	}
}

static void test_solve_longest(void **state)
{
	static uint8_t packet[65507];
	struct vb_icrc_ip sent = ipv4(), guess = sent;
	size_t size = sizeof(packet) - 4;
	uint16_t id = 0;

	fill(packet, size);
	guess.ip_id = 0;
	assert_int_equal(vb_icrc_solve_ip_id(icrc_in_parts(&guess, packet, size, 12),
					     icrc_in_parts(&sent, packet, size, 12), &guess,
					     sizeof(packet), &id),
			 0);
	assert_int_equal(id, 0x1234);
}

/* A bit error is no identification: of 2^32 differences 2^16 are, so 20,000 errors pass 0.3 times
 * on average; with this seed none does. */
static void test_solve_refuses_errors(void **state)
{
	uint8_t packet[276];
	struct vb_icrc_ip ip = ipv4();
	uint32_t right;
	uint16_t id = 0xaaaa;

	random_state = 5;
	fill(packet, sizeof(packet));
	right = icrc_in_parts(&ip, packet, sizeof(packet), 12);
	for (int i = 0; i < 20000; i++) {
		size_t a = 5 + random32() % (sizeof(packet) - 5), b = random32() % sizeof(packet);
		uint8_t ma = (uint8_t)(1 << (random32() & 7)), mb = (uint8_t)random32();
		uint32_t wrong;

		if (a == b || b == 4)
			continue;
		packet[a] ^= ma;
		packet[b] ^= mb;
		wrong = icrc_in_parts(&ip, packet, sizeof(packet), 12);
		assert_int_equal(vb_icrc_solve_ip_id(wrong, right, &ip, sizeof(packet) + 4, &id),
				 -EBADMSG);
		packet[a] ^= ma;
		packet[b] ^= mb;
	}
	assert_int_equal(id, 0xaaaa);
}

static void test_solve_has_no_answer(void **state)
{
	struct vb_icrc_ip v6 = ipv6(), v4 = ipv4();
	uint16_t id;

	assert_int_equal(vb_icrc_solve_ip_id(1, 1, &v6, 100, &id), -EBADMSG);
	assert_int_equal(vb_icrc_solve_ip_id(1, 1, &v4, 15, &id), -EBADMSG);
	assert_int_equal(vb_icrc_solve_ip_id(1, 1, &v4, 0, &id), -EBADMSG);
	assert_int_equal(vb_icrc_solve_ip_id(1, 1, &v4, 65508, &id), -EBADMSG);
	assert_int_equal(vb_icrc_solve_ip_id(1, 1, &v4, SIZE_MAX, &id), -EBADMSG);
	assert_int_equal(vb_icrc_solve_ip_id(1, 1, &v4, 100, &id), 0);
	assert_int_equal(id, 0x1234);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ipv4_by_hand),
		cmocka_unit_test(test_ipv6_by_hand),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_field_order),
		cmocka_unit_test(test_solve),
		cmocka_unit_test(test_solve_longest),
		cmocka_unit_test(test_solve_refuses_errors),
		cmocka_unit_test(test_solve_has_no_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
