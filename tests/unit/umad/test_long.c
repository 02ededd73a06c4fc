/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_long.c - messages longer than a MAD (RMPP, IBTA 13.6): between two of ours, and against a
 * program that makes and takes the segments itself.
 */
#include "fixture.h"

#include <errno.h>

#define VENDOR_CLASS 0x32
#define OUI_AT 37
#define HEAD 40 /* of a vendor's message: every segment has it, and 216 bytes of data */
#define ROOM 216
#define PAYLOAD 220 /* what a payload length counts of a full segment */
#define LONGEST (HEAD + 300 * ROOM)
#define DATA 1
#define ACK 2
#define ABORT 4
#define ACTIVE 1
#define FIRST 2
#define LAST 4
#define RESEND_MS 1000 /* longer than a test is off the processor */
#define OUI_OPENIB 0x001405

struct message {
	struct ib_user_mad umad;
	uint8_t bytes[LONGEST];
};

static const uint8_t oui[3] = {0x00, 0x14, 0x05};
static int near, far, ours, theirs; /* ports, agents */
static uint8_t far_gid[16];
static struct message sent, got;

/* The agents of the two ports: one that has its messages cut (rmpp 1), or one that does it itself.
 */
static void begin(int near_rmpp, int far_rmpp)
{
	struct umad_reg_attr attr = {
		.mgmt_class = VENDOR_CLASS,
		.mgmt_class_version = 1,
		.oui = OUI_OPENIB,
		.rmpp_version = 1,
		.flags = near_rmpp ? 0 : UMAD_USER_RMPP,
	};
	uint32_t id;

	near = umad_open_port("verbena0", 1);
	far = umad_open_port("verbena1", 1);
	assert_true(near >= 0 && far >= 0);
	assert_int_equal(umad_register2(near, &attr, &id), 0);
	ours = (int)id;
	attr.flags = far_rmpp ? 0 : UMAD_USER_RMPP;
	attr.method_mask[0] = 1ull << UMAD_METHOD_GET;
	assert_int_equal(umad_register2(far, &attr, &id), 0);
	theirs = (int)id;
	fixture_gid(1, far_gid);
}

static void end(void)
{
	assert_int_equal(umad_close_port(near), 0);
	assert_int_equal(umad_close_port(far), 0);
}

static void fill(int length, uint32_t tid)
{
	struct mad head = request(VENDOR_CLASS, 0x20, 0, tid);

	memset(&sent, 0, sizeof(sent));
	to_gid(&head, far_gid);
	memcpy(&sent, &head, sizeof(head.umad) + HEAD);
	memcpy(sent.bytes + OUI_AT, oui, 3);
	sent.bytes[26] = ACTIVE;
	for (int i = HEAD; i < length; i++)
		sent.bytes[i] = (uint8_t)(i * 7 + i / 251);
}

static void expect_message(int port, int agent, int length)
{
	int room = LONGEST;

	memset(&got, 0, sizeof(got));
	assert_int_equal(umad_recv(port, &got, &room, PATIENCE_MS), agent);
	assert_int_equal(umad_status(&got), 0);
	assert_int_equal(room, length);
	assert_memory_equal(got.bytes + HEAD, sent.bytes + HEAD, length - HEAD);
}

/* --- two of ours ------------------------------------------------------------------------- */

static void test_there_and_back(void **state)
{
	static const int lengths[] = {HEAD,
				      HEAD + 1,
				      HEAD + ROOM - 1,
				      HEAD + ROOM,
				      HEAD + ROOM + 1,
				      HEAD + 64 * ROOM,
				      HEAD + 65 * ROOM,
				      HEAD + 65 * ROOM + 1,
				      LONGEST};

	begin(1, 1);
	for (uint32_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		fill(lengths[i], i);
		assert_int_equal(umad_send(near, ours, &sent, lengths[i], PATIENCE_MS, 3), 0);
		expect_message(far, theirs, lengths[i]);
		assert_int_equal(got.bytes[3], UMAD_METHOD_GET);
		got.bytes[3] = UMAD_METHOD_GET_RESP;
		assert_int_equal(umad_send(far, theirs, &got, lengths[i], 0, 3), 0);
		expect_message(near, ours, lengths[i]);
		assert_int_equal(got.bytes[3], UMAD_METHOD_GET_RESP);
	}
	assert_int_equal(umad_poll(near, 0), -ETIMEDOUT);
	assert_int_equal(umad_poll(far, 0), -ETIMEDOUT);
	end();
}

static void test_a_buffer_for_the_first_segment_alone(void **state)
{
	const int length = HEAD + 2 * ROOM + 10;
	int room = MAD_BYTES;

	begin(1, 1);
	fill(length, 1);
	assert_int_equal(umad_send(near, ours, &sent, length, PATIENCE_MS, 3), 0);
	assert_int_equal(umad_poll(far, PATIENCE_MS), 0);
	memset(&got, 0, sizeof(got));
	assert_int_equal(umad_recv(far, &got, &room, 0), -ENOSPC);
	assert_int_equal(room, length);
	assert_memory_equal(got.bytes + HEAD, sent.bytes + HEAD, ROOM);
	assert_int_equal(got.bytes[MAD_BYTES], 0);
	expect_message(far, theirs, length);
	end();
}

static void test_what_is_too_long(void **state)
{
	begin(1, 1);
	fill(HEAD + ROOM + 1, 1);
	sent.bytes[26] = 0; /* it is to be one MAD */
	assert_int_equal(umad_send(near, ours, &sent, HEAD + ROOM + 1, PATIENCE_MS, 0), -EIO);
	assert_int_equal(errno, EINVAL);
	fill(HEAD, 1);
	assert_int_equal(umad_send(near, ours, &sent, HEAD - 1, PATIENCE_MS, 0), -EIO);
	assert_int_equal(errno, EINVAL);
	end();
}

/* --- segments by hand -------------------------------------------------------------------- */

static struct mad next_segment(int port, int agent)
{
	struct mad mad = {0};
	int room = MAD_BYTES;

	assert_int_equal(umad_recv(port, &mad, &room, PATIENCE_MS), agent);
	assert_int_equal(umad_status(&mad), 0);
	assert_int_equal(room, MAD_BYTES);
	assert_int_equal(mad.bytes[24], 1);
	return mad;
}

/* Segment i of n, of a message of length bytes, as it must come. */
static void expect_segment(uint32_t i, uint32_t n, int length)
{
	struct mad mad = next_segment(far, theirs);
	int pad = HEAD + (int)n * ROOM - length;
	int flags = ACTIVE | (i == 1 ? FIRST : 0) | (i == n ? LAST : 0);

	assert_int_equal(mad.bytes[25], DATA);
	assert_int_equal(mad.bytes[26] & 7, flags);
	assert_int_equal(field(&mad, 28, 4), i);
	assert_int_equal(field(&mad, 32, 4), i == n   ? PAYLOAD - pad
					     : i == 1 ? (int)n * PAYLOAD - pad
						      : 0);
	assert_memory_equal(mad.bytes + OUI_AT, oui, 3);
	assert_memory_equal(mad.bytes + HEAD, sent.bytes + HEAD + (i - 1) * ROOM,
			    i == n ? ROOM - pad : ROOM);
	got.umad = mad.umad;
	memcpy(got.bytes, mad.bytes, MAD_BYTES);
}

/* Answers the segment that came last. */
static void acknowledge(int type, uint32_t segment, uint32_t window)
{
	struct mad mad = {.umad = got.umad};

	memcpy(mad.bytes, got.bytes, HEAD);
	mad.bytes[3] ^= 0x80;
	mad.bytes[25] = (uint8_t)type;
	mad.bytes[26] = ACTIVE;
	set_field(&mad, 28, 4, segment);
	set_field(&mad, 32, 4, window);
	assert_int_equal(umad_send(far, theirs, &mad, MAD_BYTES, 0, 0), 0);
}

static void expect_given_up(int status, uint32_t tid)
{
	struct mad back = {0};
	int room = MAD_BYTES;

	assert_int_equal(umad_recv(near, &back, &room, PATIENCE_MS), ours);
	assert_int_equal(umad_status(&back), status);
	assert_int_equal(room, 24);
	assert_int_equal(field(&back, 12, 4), tid);
}

static void expect_answer(uint32_t tid)
{
	struct mad answer = {0};
	int room = MAD_BYTES;

	assert_int_equal(umad_recv(near, &answer, &room, PATIENCE_MS), ours);
	assert_int_equal(umad_status(&answer), 0);
	assert_int_equal(room, MAD_BYTES);
	assert_int_equal(field(&answer, 12, 4), tid);
}

static void test_the_sender_keeps_to_the_window_and_goes_back(void **state)
{
	const int length = HEAD + 4 * ROOM + 16; /* 5 segments */

	begin(1, 0);
	fill(length, 1);
	assert_int_equal(umad_send(near, ours, &sent, length, RESEND_MS, 9), 0);
	expect_segment(1, 5, length);
	expect_segment(1, 5, length); /* nobody acknowledged it */
	acknowledge(ACK, 1, 3);
	expect_segment(2, 5, length);
	expect_segment(3, 5, length);
	acknowledge(ACK, 9, 99); /* of what was never sent: nothing comes of it */
	acknowledge(ACK, 2, 3);
	expect_segment(3, 5, length); /* from where it was acknowledged */
	acknowledge(ACK, 3, 64);
	expect_segment(4, 5, length);
	expect_segment(5, 5, length);
	acknowledge(ACK, 5, 64);
	/* now the answer is waited for; it is one MAD */
	got.bytes[3] = UMAD_METHOD_GET_RESP;
	got.bytes[26] = 0;
	assert_int_equal(umad_send(far, theirs, &got, MAD_BYTES, 0, 0), 0);
	expect_answer(1);
	end();
}

static void test_a_message_that_is_refused_or_never_acknowledged(void **state)
{
	const int length = HEAD + ROOM + 1;

	begin(1, 0);
	fill(length, 2);
	assert_int_equal(umad_send(near, ours, &sent, length, PATIENCE_MS, 9), 0);
	expect_segment(1, 2, length);
	acknowledge(ABORT, 0, 0);
	expect_given_up(ECONNABORTED, 2);
	fill(length, 3);
	assert_int_equal(umad_send(near, ours, &sent, length, 10, 1), 0);
	expect_segment(1, 2, length);
	expect_segment(1, 2, length);
	expect_given_up(ETIMEDOUT, 3);
	end();
}

/* Sends segment i by hand. */
static void send_segment(uint32_t i, int flags, uint32_t payload)
{
	struct mad mad = {.umad = sent.umad};

	memcpy(mad.bytes, sent.bytes, HEAD);
	memcpy(mad.bytes + HEAD, sent.bytes + HEAD + (i ? i - 1 : 0) * ROOM, ROOM);
	mad.bytes[24] = 1;
	mad.bytes[25] = DATA;
	mad.bytes[26] = (uint8_t)(ACTIVE | flags);
	set_field(&mad, 28, 4, i);
	set_field(&mad, 32, 4, payload);
	assert_int_equal(umad_send(near, ours, &mad, MAD_BYTES, 0, 0), 0);
}

static void expect_ack(uint32_t segment)
{
	struct mad mad = next_segment(near, ours);

	assert_int_equal(mad.bytes[3], UMAD_METHOD_GET_RESP);
	assert_int_equal(mad.bytes[25], ACK);
	assert_int_equal(mad.bytes[26] & 7, ACTIVE);
	assert_int_equal(field(&mad, 28, 4), segment);
	assert_true(field(&mad, 32, 4) > segment);
}

static void test_the_receiver_wants_segments_in_order(void **state)
{
	const int length = HEAD + 2 * ROOM + 16;

	begin(0, 1);
	fill(length, 4);
	send_segment(2, 0, 0); /* of a message that did not begin */
	send_segment(0, FIRST, 0);
	send_segment(1, 0, 0); /* it does not say that it is the first */
	send_segment(1, FIRST, 3 * PAYLOAD - (ROOM - 16));
	expect_ack(1);
	send_segment(1, FIRST, 3 * PAYLOAD - (ROOM - 16)); /* the acknowledgement was lost */
	expect_ack(1);
	send_segment(3, LAST, PAYLOAD - (ROOM - 16)); /* too early */
	send_segment(2, 0, 0);
	send_segment(3, LAST, PAYLOAD - (ROOM - 16));
	expect_ack(3);
	expect_message(far, theirs, length);
	send_segment(3, LAST, PAYLOAD - (ROOM - 16));
	expect_ack(3);
	send_segment(4, LAST, PAYLOAD); /* behind the end */
	expect_ack(3);
	assert_int_equal(umad_poll(far, 0), -ETIMEDOUT); /* once */
	assert_int_equal(umad_poll(near, 0), -ETIMEDOUT);
	end();
}

/* A last segment's length may be anything; it never gives more or less than that segment. */
static void test_lengths_that_cannot_be(void **state)
{
	static const struct {
		uint32_t payload;
		int length;
	} cases[] = {
		{0, HEAD}, {1, HEAD}, {221, HEAD + ROOM}, {UINT32_MAX, HEAD + ROOM}, {4, HEAD}};

	begin(0, 1);
	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fill(HEAD + ROOM, 10 + i);
		send_segment(1, FIRST | LAST, cases[i].payload);
		expect_ack(1);
		expect_message(far, theirs, cases[i].length);
	}
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_there_and_back),
		cmocka_unit_test(test_a_buffer_for_the_first_segment_alone),
		cmocka_unit_test(test_what_is_too_long),
		cmocka_unit_test(test_the_sender_keeps_to_the_window_and_goes_back),
		cmocka_unit_test(test_a_message_that_is_refused_or_never_acknowledged),
		cmocka_unit_test(test_the_receiver_wants_segments_in_order),
		cmocka_unit_test(test_lengths_that_cannot_be),
	};

	return cmocka_run_group_tests(tests, fixture_begin, NULL);
}
