/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_rsocket_wire.c - what rsockets say to each other, against what the genuine ones said: a
 * capture of rstream between two Linux kernels, and vectors by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "../wire/golden.h"
#include "rdmacm/rsocket_wire.h"

enum {
	BTH = 12,
	DETH = 8,
	RETH = 16,
	OPCODE_WRITE_FIRST = 0x06,
	OPCODE_WRITE_LAST_IMM = 0x09,
	OPCODE_WRITE_ONLY_IMM = 0x0b,
	OPCODE_UD_SEND = 0x64,
	/* where the program's private data begins in these MADs: the REQ's has an IP header first
	 */
	MAD_REQ = 0x10,
	MAD_REP = 0x13,
	REQ_PRIVATE = BTH + DETH + 24 + 140 + 36,
	REP_PRIVATE = BTH + DETH + 24 + 36,
	ATTRIBUTE = BTH + DETH + 17,
};

/* One end of the captured connection, and what it wrote to the other one. */
struct end {
	struct vb_rs_conn conn;
	uint8_t private_data[VB_RS_CONN_BYTES];
	bool known;
	uint64_t first_address; /* of the WRITE under way */
	uint32_t first_length;
	uint64_t next_data;
	unsigned int credits, datas, disconnects;
	uint32_t data_bytes;
};

static void on_mad(struct end *end, const struct golden_packet *packet)
{
	size_t at = packet->data[ATTRIBUTE] == MAD_REQ	 ? REQ_PRIVATE
		    : packet->data[ATTRIBUTE] == MAD_REP ? REP_PRIVATE
							 : 0;

	if (!at)
		return;
	memcpy(end->private_data, packet->data + at, VB_RS_CONN_BYTES);
	assert_int_equal(vb_rs_conn_decode(&end->conn, packet->data + at, VB_RS_CONN_BYTES), 0);
	end->known = true;
}

static void on_message(struct end *from, const struct end *to, uint64_t address, uint32_t length,
		       uint32_t message, const uint8_t *payload)
{
	uint64_t slot[VB_RS_SLOT_BYTES / 8];
	struct vb_rs_region region;
	uint8_t bytes[VB_RS_SLOT_BYTES];

	switch (vb_rs_message_kind(message)) {
	case VB_RS_DATA:
		if (!from->datas++)
			from->next_data = to->conn.buffer.address;
		assert_int_equal(address, from->next_data);
		assert_int_equal(length, vb_rs_message_value(message));
		from->next_data += length;
		from->data_bytes += length;
		break;
	case VB_RS_CREDIT:
		/* the second half of the buffer goes into the second slot; nothing was consumed */
		from->credits++;
		assert_int_equal(vb_rs_message_value(message), from->conn.credits);
		assert_int_equal(address, to->conn.slots.address + VB_RS_SLOT_BYTES);
		assert_int_equal(length, VB_RS_SLOT_BYTES);
		memcpy(slot, payload, sizeof(slot));
		region = vb_rs_slot_decode((const uint8_t *)slot);
		assert_int_equal(region.address,
				 from->conn.buffer.address + from->conn.buffer.length);
		assert_int_equal(region.key, from->conn.buffer.key);
		assert_int_equal(region.length, from->conn.buffer.length);
		vb_rs_slot_encode(&region, from->conn.big_endian, bytes);
		assert_memory_equal(bytes, payload, sizeof(bytes));
		break;
	case VB_RS_CONTROL:
		assert_int_equal(length, 0);
		assert_int_equal(message, vb_rs_message(VB_RS_CONTROL, VB_RS_DISCONNECT));
		from->disconnects++;
		break;
	default:
		fail();
	}
}

static void on_packet(struct end ends[2], const struct golden_packet *packet)
{
	int client = packet->ip.src.s6_addr[15] == 12;
	struct end *from = &ends[client];
	const uint8_t *after = packet->data + BTH;

	switch (packet->data[0]) {
	case OPCODE_UD_SEND:
		on_mad(from, packet);
		break;
	case OPCODE_WRITE_FIRST:
		from->first_address = (uint64_t)vb_load_be32(after) << 32 | vb_load_be32(after + 4);
		from->first_length = vb_load_be32(after + 12);
		break;
	case OPCODE_WRITE_LAST_IMM:
		on_message(from, &ends[!client], from->first_address, from->first_length,
			   vb_load_be32(after), NULL);
		break;
	case OPCODE_WRITE_ONLY_IMM:
		on_message(from, &ends[!client],
			   (uint64_t)vb_load_be32(after) << 32 | vb_load_be32(after + 4),
			   vb_load_be32(after + 12), vb_load_be32(after + RETH), after + RETH + 4);
		break;
	default:
		break;
	}
}

static void genuine_conversation(void **state)
{
	struct end ends[2] = {{.known = false}};
	struct golden_packet packet;
	struct golden_file file;
	uint8_t bytes[VB_RS_CONN_BYTES];
	int i;

	assert_true(golden_open(&file, "rxe-rstream.pcap"));
	while (golden_next(&file, &packet))
		on_packet(ends, &packet);
	golden_close(&file);
	for (i = 0; i < 2; i++) {
		assert_true(ends[i].known);
		assert_false(ends[i].conn.big_endian);
		assert_true(ends[i].conn.has_iomap);
		assert_int_equal(ends[i].conn.credits, 384);
		assert_int_equal(ends[i].conn.iomap_slots, 0);
		assert_int_equal(ends[i].conn.slots.length, 2);
		assert_int_equal(ends[i].conn.buffer.length, 0x80000);
		vb_rs_conn_encode(&ends[i].conn, bytes);
		assert_memory_equal(bytes, ends[i].private_data, sizeof(bytes));
		assert_int_equal(ends[i].credits, 1);
		assert_int_equal(ends[i].datas, 13);
		assert_int_equal(ends[i].data_bytes, 16 + 12 * 2048);
		assert_int_equal(ends[i].disconnects, 1);
	}
	assert_int_equal(ends[1].conn.slots.address, 0x564e553d0000);
	assert_int_equal(ends[1].conn.slots.key, 0x151e);
	assert_int_equal(ends[1].conn.buffer.address, 0x7f03e1677000);
	assert_int_equal(ends[1].conn.buffer.key, 0x16f9);
}

static void messages(void **state)
{
	assert_int_equal(vb_rs_message(VB_RS_DATA, 2048), 0x00000800);
	assert_int_equal(vb_rs_message(VB_RS_CREDIT, 384), 0x80000180);
	assert_int_equal(vb_rs_message(VB_RS_IOMAP, 5), 0xc0000005);
	assert_int_equal(vb_rs_message(VB_RS_CONTROL, VB_RS_SHUTDOWN), 0xe0000002);
	assert_int_equal(vb_rs_message_kind(0xc0000005), VB_RS_IOMAP);
	assert_int_equal(vb_rs_message_value(0x9fffffff), VB_RS_VALUE_MAX);
}

static void bad_private_data(void **state)
{
	struct vb_rs_conn conn = {.credits = 1, .slots = {1, 2, 2}, .buffer = {3, 4, 5}}, back;
	uint8_t bytes[VB_RS_CONN_BYTES];

	vb_rs_conn_encode(&conn, bytes);
	assert_int_equal(vb_rs_conn_decode(&back, bytes, sizeof(bytes)), 0);
	assert_false(back.has_iomap);
	assert_int_equal(vb_rs_conn_decode(&back, bytes, sizeof(bytes) - 1), -EBADMSG);
	assert_int_equal(vb_rs_conn_decode(&back, NULL, 0), -EBADMSG);
	bytes[0] = 2;
	assert_int_equal(vb_rs_conn_decode(&back, bytes, sizeof(bytes)), -EPROTONOSUPPORT);
	conn.slots.length = 0;
	vb_rs_conn_encode(&conn, bytes);
	assert_int_equal(vb_rs_conn_decode(&back, bytes, sizeof(bytes)), -EBADMSG);
}

/* The flags say who reads big-endian; the entries of such a peer are turned round. */
static void byte_orders(void **state)
{
	static const uint8_t little[] = {8, 7, 6, 5, 4, 3, 2, 1, 12, 11, 10, 9, 16, 15, 14, 13};
	static const uint8_t big[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
	struct vb_rs_region region = {0x0102030405060708, 0x090a0b0c, 0x0d0e0f10};
	_Alignas(8) uint8_t bytes[VB_RS_IOMAP_BYTES];
	uint64_t offset;

	vb_rs_slot_encode(&region, false, bytes);
	assert_memory_equal(bytes, little, sizeof(little));
	vb_rs_slot_encode(&region, true, bytes);
	assert_memory_equal(bytes, big, sizeof(big));
	vb_rs_iomap_encode(&region, 0x1122334455667788, true, bytes);
	assert_int_equal(vb_load_be32(bytes), 0x11223344);
	assert_memory_equal(bytes + 8, big, sizeof(big));
	vb_rs_iomap_encode(&region, 0x1122334455667788, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__,
			   bytes);
	region = vb_rs_iomap_decode(bytes, &offset);
	assert_int_equal(offset, 0x1122334455667788);
	assert_int_equal(region.address, 0x0102030405060708);
	assert_int_equal(region.key, 0x090a0b0c);
	assert_int_equal(region.length, 0x0d0e0f10);
}

static void iomap_sizes(void **state)
{
	static const uint32_t pairs[][2] = {
		{0, 0},	    {1, 1},	{128, 128}, {129, 128},	      {255, 128},
		{256, 256}, {300, 256}, {512, 512}, {0x7f00, 0x7f00}, {0xffff, 0x7f00}};
	struct vb_rs_conn conn = {.has_iomap = true, .slots = {1, 2, 2}}, back;
	uint8_t bytes[VB_RS_CONN_BYTES];
	size_t i;

	for (i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		assert_int_equal(vb_rs_iomap_slots(pairs[i][0]), pairs[i][1]);
		conn.iomap_slots = pairs[i][0];
		vb_rs_conn_encode(&conn, bytes);
		assert_int_equal(vb_rs_conn_decode(&back, bytes, sizeof(bytes)), 0);
		assert_int_equal(back.iomap_slots, pairs[i][1]);
	}
}

static void udp_headers(void **state)
{
	static const uint8_t expected[] = {0x55, 0x55, 0x55, 0x55, 4,  0, 16, 0,
					   0,	 0x12, 0x34, 0x56, 10, 1, 2,  3};
	struct vb_rs_udp udp = {.queue_pair = 0x123456}, back;
	uint8_t bytes[VB_RS_UDP_BYTES_IPV6];
	size_t i;

	udp.local.in.sin_family = AF_INET;
	udp.local.in.sin_addr.s_addr = htonl(0x0a010203);
	assert_int_equal(vb_rs_udp_encode(&udp, bytes), 16);
	assert_memory_equal(bytes, expected, sizeof(expected));
	assert_int_equal(vb_rs_udp_decode(&back, AF_INET, bytes, 16), 16);
	assert_int_equal(back.queue_pair, 0x123456);
	assert_false(back.control);
	assert_int_equal(back.local.in.sin_addr.s_addr, htonl(0x0a010203));
	assert_int_equal(vb_rs_udp_decode(&back, AF_INET6, bytes, 16), -EBADMSG);
	assert_int_equal(vb_rs_udp_decode(&back, AF_INET, bytes, 15), -EBADMSG);
	for (i = 0; i < 7; i++) { /* tag, version, operation, length */
		bytes[i] ^= 0x40;
		assert_int_equal(vb_rs_udp_decode(&back, AF_INET, bytes, 16), -EBADMSG);
		bytes[i] ^= 0x40;
	}
	udp.control = true;
	udp.local.in6 = (struct sockaddr_in6){.sin6_family = AF_INET6};
	udp.local.in6.sin6_addr.s6_addr[15] = 9;
	assert_int_equal(vb_rs_udp_encode(&udp, bytes), 28);
	assert_int_equal(bytes[4], 6);
	assert_int_equal(bytes[5], 7);
	assert_int_equal(bytes[6], 28);
	assert_int_equal(bytes[27], 9);
	assert_int_equal(vb_rs_udp_decode(&back, AF_INET6, bytes, 28), 28);
	assert_true(back.control);
}

static void ud_headers(void **state)
{
	static const uint8_t expected[] = {4, 8, 0x1d, 0x2f, 10, 1, 2, 3};
	union vb_rs_address from, back;
	uint8_t bytes[VB_RS_UD_BYTES_IPV6];

	memset(&from, 0, sizeof(from));
	from.in.sin_family = AF_INET;
	from.in.sin_port = htons(7471);
	from.in.sin_addr.s_addr = htonl(0x0a010203);
	assert_int_equal(vb_rs_ud_encode(&from, bytes), 8);
	assert_memory_equal(bytes, expected, sizeof(expected));
	assert_int_equal(vb_rs_ud_decode(&back, bytes, 8), 8);
	assert_memory_equal(&back.in, &from.in, sizeof(from.in));
	assert_int_equal(vb_rs_ud_decode(&back, bytes, 7), -EBADMSG);
	bytes[1] = 24;
	assert_int_equal(vb_rs_ud_decode(&back, bytes, 24), -EBADMSG);
	memset(&from, 0, sizeof(from));
	from.in6.sin6_family = AF_INET6;
	from.in6.sin6_port = htons(7471);
	from.in6.sin6_flowinfo = htonl(0x01020304);
	from.in6.sin6_addr.s6_addr[0] = 0xfd;
	assert_int_equal(vb_rs_ud_encode(&from, bytes), 24);
	assert_int_equal(bytes[0], 6);
	assert_int_equal(vb_load_be32(bytes + 4), 0x01020304);
	assert_int_equal(bytes[8], 0xfd);
	assert_int_equal(vb_rs_ud_decode(&back, bytes, 24), 24);
	assert_memory_equal(&back.in6, &from.in6, sizeof(from.in6));
	assert_int_equal(vb_rs_ud_decode(&back, bytes, 23), -EBADMSG);
}

#define LOOKS 3000000

struct shared_slot {
	uint64_t words[VB_RS_SLOT_BYTES / 8];
	atomic_bool over;
};

/* A word at a time, as an RDMA WRITE lands. */
static void *write_on(void *arg)
{
	struct shared_slot *slot = arg;

	for (unsigned int i = 0; !atomic_load(&slot->over); i++)
		__atomic_store_n(&slot->words[1], (i % 15 + 1) * 0x1111111111111111u,
				 __ATOMIC_RELEASE);
	return NULL;
}

static void a_length_is_not_read_in_halves(void **state)
{
	struct shared_slot slot = {.over = false};
	pthread_t writer;

	assert_int_equal(pthread_create(&writer, NULL, write_on, &slot), 0);
	while (!__atomic_load_n(&slot.words[1], __ATOMIC_ACQUIRE))
		; /* until it runs */
	for (int i = 0; i < LOOKS; i++) {
		struct vb_rs_region region = vb_rs_slot_decode((const uint8_t *)slot.words);

		if (region.key == region.length && region.length % 0x11111111u == 0)
			continue;
		fail_msg("key %x, length %x", region.key, region.length);
	}
	atomic_store(&slot.over, true);
	assert_int_equal(pthread_join(writer, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(genuine_conversation),
		cmocka_unit_test(messages),
		cmocka_unit_test(bad_private_data),
		cmocka_unit_test(byte_orders),
		cmocka_unit_test(iomap_sizes),
		cmocka_unit_test(udp_headers),
		cmocka_unit_test(ud_headers),
		cmocka_unit_test(a_length_is_not_read_in_halves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
