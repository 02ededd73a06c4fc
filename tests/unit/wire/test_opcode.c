/* SPDX-License-Identifier: BSD-2-Clause */
/* test_opcode.c - the opcode table against IBTA 9.2.1, table 38, and the annexes A14 (XRC)
 * and A19 (FLUSH, ATOMIC WRITE), written out a second time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "wire/packet.h"

#define BTH 12
#define DETH 8
#define RETH 16
#define ATOMIC 28
#define AETH 4
#define ATOMIC_ACK 8
#define IMM 4
#define IETH 4
#define XRCETH 4
#define FETH 4

/* value, bytes of headers, what it carries */
static const struct {
	uint8_t opcode, header_bytes;
	unsigned int has;
} expected[] = {
	/* reliable connected */
	{0x00, BTH, VB_HAS_PAYLOAD},
	{0x01, BTH, VB_HAS_PAYLOAD},
	{0x02, BTH, VB_HAS_PAYLOAD},
	{0x03, BTH + IMM, VB_HAS_PAYLOAD | VB_HAS_IMM},
	{0x04, BTH, VB_HAS_PAYLOAD},
	{0x05, BTH + IMM, VB_HAS_PAYLOAD | VB_HAS_IMM},
	{0x06, BTH + RETH, VB_HAS_PAYLOAD | VB_HAS_RETH},
	{0x07, BTH, VB_HAS_PAYLOAD},
	{0x08, BTH, VB_HAS_PAYLOAD},
	{0x09, BTH + IMM, VB_HAS_PAYLOAD | VB_HAS_IMM},
	{0x0a, BTH + RETH, VB_HAS_PAYLOAD | VB_HAS_RETH},
	{0x0b, BTH + RETH + IMM, VB_HAS_PAYLOAD | VB_HAS_RETH | VB_HAS_IMM},
	{0x0c, BTH + RETH, VB_HAS_RETH},
	{0x0d, BTH + AETH, VB_HAS_PAYLOAD | VB_HAS_AETH},
	{0x0e, BTH, VB_HAS_PAYLOAD},
	{0x0f, BTH + AETH, VB_HAS_PAYLOAD | VB_HAS_AETH},
	{0x10, BTH + AETH, VB_HAS_PAYLOAD | VB_HAS_AETH},
	{0x11, BTH + AETH, VB_HAS_AETH},
	{0x12, BTH + AETH + ATOMIC_ACK, VB_HAS_AETH | VB_HAS_ATOMIC_ACK},
	{0x13, BTH + ATOMIC, VB_HAS_ATOMIC},
	{0x14, BTH + ATOMIC, VB_HAS_ATOMIC},
	{0x16, BTH + IETH, VB_HAS_PAYLOAD | VB_HAS_IETH},
	{0x17, BTH + IETH, VB_HAS_PAYLOAD | VB_HAS_IETH},
	{0x1c, BTH + FETH + RETH, VB_HAS_FETH | VB_HAS_RETH},
	{0x1d, BTH + RETH, VB_HAS_PAYLOAD | VB_HAS_RETH},
	/* unreliable connected */
	{0x20, BTH, VB_HAS_PAYLOAD},
	{0x21, BTH, VB_HAS_PAYLOAD},
	{0x22, BTH, VB_HAS_PAYLOAD},
	{0x23, BTH + IMM, VB_HAS_PAYLOAD | VB_HAS_IMM},
	{0x24, BTH, VB_HAS_PAYLOAD},
	{0x25, BTH + IMM, VB_HAS_PAYLOAD | VB_HAS_IMM},
	{0x26, BTH + RETH, VB_HAS_PAYLOAD | VB_HAS_RETH},
	{0x27, BTH, VB_HAS_PAYLOAD},
	{0x28, BTH, VB_HAS_PAYLOAD},
	{0x29, BTH + IMM, VB_HAS_PAYLOAD | VB_HAS_IMM},
	{0x2a, BTH + RETH, VB_HAS_PAYLOAD | VB_HAS_RETH},
	{0x2b, BTH + RETH + IMM, VB_HAS_PAYLOAD | VB_HAS_RETH | VB_HAS_IMM},
	/* unreliable datagram */
	{0x64, BTH + DETH, VB_HAS_PAYLOAD | VB_HAS_DETH},
	{0x65, BTH + DETH + IMM, VB_HAS_PAYLOAD | VB_HAS_DETH | VB_HAS_IMM},
	/* extended reliable connected: an XRCETH in every request, in no response */
	{0xa0, BTH + XRCETH, VB_HAS_XRCETH | VB_HAS_PAYLOAD},
	{0xa1, BTH + XRCETH, VB_HAS_XRCETH | VB_HAS_PAYLOAD},
	{0xa2, BTH + XRCETH, VB_HAS_XRCETH | VB_HAS_PAYLOAD},
	{0xa3, BTH + XRCETH + IMM, VB_HAS_XRCETH | VB_HAS_PAYLOAD | VB_HAS_IMM},
	{0xa4, BTH + XRCETH, VB_HAS_XRCETH | VB_HAS_PAYLOAD},
	{0xa5, BTH + XRCETH + IMM, VB_HAS_XRCETH | VB_HAS_PAYLOAD | VB_HAS_IMM},
	{0xa6, BTH + XRCETH + RETH, VB_HAS_XRCETH | VB_HAS_PAYLOAD | VB_HAS_RETH},
	{0xa7, BTH + XRCETH, VB_HAS_XRCETH | VB_HAS_PAYLOAD},
	{0xa8, BTH + XRCETH, VB_HAS_XRCETH | VB_HAS_PAYLOAD},
	{0xa9, BTH + XRCETH + IMM, VB_HAS_XRCETH | VB_HAS_PAYLOAD | VB_HAS_IMM},
	{0xaa, BTH + XRCETH + RETH, VB_HAS_XRCETH | VB_HAS_PAYLOAD | VB_HAS_RETH},
	{0xab, BTH + XRCETH + RETH + IMM,
	 VB_HAS_XRCETH | VB_HAS_PAYLOAD | VB_HAS_RETH | VB_HAS_IMM},
	{0xac, BTH + XRCETH + RETH, VB_HAS_XRCETH | VB_HAS_RETH},
	{0xad, BTH + AETH, VB_HAS_PAYLOAD | VB_HAS_AETH},
	{0xae, BTH, VB_HAS_PAYLOAD},
	{0xaf, BTH + AETH, VB_HAS_PAYLOAD | VB_HAS_AETH},
	{0xb0, BTH + AETH, VB_HAS_PAYLOAD | VB_HAS_AETH},
	{0xb1, BTH + AETH, VB_HAS_AETH},
	{0xb2, BTH + AETH + ATOMIC_ACK, VB_HAS_AETH | VB_HAS_ATOMIC_ACK},
	{0xb3, BTH + XRCETH + ATOMIC, VB_HAS_XRCETH | VB_HAS_ATOMIC},
	{0xb4, BTH + XRCETH + ATOMIC, VB_HAS_XRCETH | VB_HAS_ATOMIC},
	{0xb6, BTH + XRCETH + IETH, VB_HAS_XRCETH | VB_HAS_PAYLOAD | VB_HAS_IETH},
	{0xb7, BTH + XRCETH + IETH, VB_HAS_XRCETH | VB_HAS_PAYLOAD | VB_HAS_IETH},
	{0xbc, BTH + XRCETH + FETH + RETH, VB_HAS_XRCETH | VB_HAS_FETH | VB_HAS_RETH},
	{0xbd, BTH + XRCETH + RETH, VB_HAS_XRCETH | VB_HAS_PAYLOAD | VB_HAS_RETH},
};

#define HAS_ALL                                                                                    \
	(VB_HAS_DETH | VB_HAS_RETH | VB_HAS_ATOMIC | VB_HAS_AETH | VB_HAS_ATOMIC_ACK |             \
	 VB_HAS_IMM | VB_HAS_IETH | VB_HAS_PAYLOAD | VB_HAS_XRCETH | VB_HAS_FETH)

static void test_headers(void **state)
{
	for (size_t i = 0; i < VB_ARRAY_SIZE(expected); i++) {
		const struct vb_opcode_info *info = &vb_opcode_table[expected[i].opcode];

		assert_non_null(info->name);
		assert_int_equal(info->header_bytes, expected[i].header_bytes);
		assert_int_equal(info->flags & HAS_ALL, expected[i].has);
		assert_true(info->header_bytes <= VB_HEADERS_MAX);
	}
}

static void test_nothing_else_exists(void **state)
{
	size_t count = 0;

	for (unsigned int opcode = 0; opcode < 256; opcode++) {
		const struct vb_opcode_info *info = &vb_opcode_table[opcode];

		count += info->name != NULL;
		if (!info->name) {
			assert_int_equal(info->flags, 0);
			assert_int_equal(info->header_bytes, 0);
		}
	}
	assert_int_equal(count, VB_ARRAY_SIZE(expected));
}

static unsigned int flags(enum vb_transport transport, enum vb_operation operation)
{
	return vb_opcode_table[vb_opcode(transport, operation)].flags;
}

static void test_place_in_message(void **state)
{
	const unsigned int both = VB_IS_FIRST | VB_IS_LAST;

	static const enum vb_transport connected[] = {VB_TRANSPORT_RC, VB_TRANSPORT_UC,
						      VB_TRANSPORT_XRC};

	for (size_t i = 0; i < VB_ARRAY_SIZE(connected); i++) {
		const enum vb_transport t = connected[i];

		assert_int_equal(flags(t, VB_OP_SEND_FIRST) & both, VB_IS_FIRST);
		assert_int_equal(flags(t, VB_OP_SEND_MIDDLE) & both, 0);
		assert_int_equal(flags(t, VB_OP_SEND_LAST) & both, VB_IS_LAST);
		assert_int_equal(flags(t, VB_OP_SEND_LAST_IMM) & both, VB_IS_LAST);
		assert_int_equal(flags(t, VB_OP_SEND_ONLY) & both, both);
		assert_int_equal(flags(t, VB_OP_SEND_ONLY_IMM) & both, both);
		assert_int_equal(flags(t, VB_OP_WRITE_FIRST) & both, VB_IS_FIRST);
		assert_int_equal(flags(t, VB_OP_WRITE_MIDDLE) & both, 0);
		assert_int_equal(flags(t, VB_OP_WRITE_LAST) & both, VB_IS_LAST);
		assert_int_equal(flags(t, VB_OP_WRITE_LAST_IMM) & both, VB_IS_LAST);
		assert_int_equal(flags(t, VB_OP_WRITE_ONLY) & both, both);
		assert_int_equal(flags(t, VB_OP_WRITE_ONLY_IMM) & both, both);
	}
	assert_int_equal(flags(VB_TRANSPORT_RC, VB_OP_READ_RESPONSE_FIRST) & both, VB_IS_FIRST);
	assert_int_equal(flags(VB_TRANSPORT_RC, VB_OP_READ_RESPONSE_MIDDLE) & both, 0);
	assert_int_equal(flags(VB_TRANSPORT_RC, VB_OP_READ_RESPONSE_LAST) & both, VB_IS_LAST);
	assert_int_equal(flags(VB_TRANSPORT_RC, VB_OP_READ_RESPONSE_ONLY) & both, both);
	assert_int_equal(flags(VB_TRANSPORT_RC, VB_OP_SEND_LAST_INV) & both, VB_IS_LAST);
	assert_int_equal(flags(VB_TRANSPORT_RC, VB_OP_SEND_ONLY_INV) & both, both);
	assert_int_equal(flags(VB_TRANSPORT_RC, VB_OP_READ_REQUEST) & both, both);
	assert_int_equal(flags(VB_TRANSPORT_UD, VB_OP_SEND_ONLY) & both, both);
}

static void test_direction_and_kind(void **state)
{
	const unsigned int direction = VB_IS_REQUEST | VB_IS_RESPONSE;
	const unsigned int kind = VB_IS_SEND | VB_IS_WRITE | VB_IS_READ_RESPONSE;

	for (size_t i = 0; i < VB_ARRAY_SIZE(expected); i++) {
		enum vb_operation op = vb_opcode_operation(expected[i].opcode);
		unsigned int f = vb_opcode_table[expected[i].opcode].flags;
		bool response = op >= VB_OP_READ_RESPONSE_FIRST && op <= VB_OP_ATOMIC_ACK;
		unsigned int want = 0;

		if (op <= VB_OP_SEND_ONLY_IMM || op == VB_OP_SEND_LAST_INV ||
		    op == VB_OP_SEND_ONLY_INV)
			want = VB_IS_SEND;
		else if (op <= VB_OP_WRITE_ONLY_IMM)
			want = VB_IS_WRITE;
		else if (op >= VB_OP_READ_RESPONSE_FIRST && op <= VB_OP_READ_RESPONSE_ONLY)
			want = VB_IS_READ_RESPONSE;
		assert_int_equal(f & direction, response ? VB_IS_RESPONSE : VB_IS_REQUEST);
		assert_int_equal(f & kind, want);
	}
}

static void test_names(void **state)
{
	assert_string_equal(vb_opcode_table[0x04].name, "RC SEND_ONLY");
	assert_string_equal(vb_opcode_table[0x29].name, "UC WRITE_LAST_IMM");
	assert_string_equal(vb_opcode_table[0x64].name, "UD SEND_ONLY");
	assert_string_equal(vb_opcode_table[0xa4].name, "XRC SEND_ONLY");
	assert_string_equal(vb_opcode_table[0x1c].name, "RC FLUSH");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_headers),
		cmocka_unit_test(test_nothing_else_exists),
		cmocka_unit_test(test_place_in_message),
		cmocka_unit_test(test_direction_and_kind),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
