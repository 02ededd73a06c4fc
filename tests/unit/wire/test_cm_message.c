/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_cm_message.c - the connection manager's messages: every one that was captured from the Linux
 * kernel decodes, encodes to the same bytes and says what it should; every field makes the round
 * trip at its greatest value, to its own bits and no others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>

#include "golden_mad.h"
#include "wire/cm_message.h"

/* How many of each message, REQ first, an independent reader found. */
static const struct {
	const char *name;
	unsigned int count[VB_CM_ATTR_COUNT];
} captures[] = {
	{"rxe-cm-reject-no-listener.pcap", {1, 0, 1, 0, 0, 0, 0, 0, 0}},
	{"rxe-ipv6-rping.pcap", {1, 0, 0, 1, 1, 1, 1, 0, 0}},
	{"rxe-loss-cm-drep.pcap", {1, 0, 0, 1, 1, 1, 0, 0, 0}},
	{"rxe-loss-cm-dreq-ucmatose.pcap", {1, 0, 0, 1, 1, 1, 1, 0, 0}},
	{"rxe-loss-cm-dreq.pcap", {1, 0, 0, 1, 1, 2, 1, 0, 0}},
	{"rxe-loss-cm-rep.pcap", {1, 0, 0, 1, 1, 1, 1, 0, 0}},
	{"rxe-loss-cm-req.pcap", {2, 0, 0, 1, 1, 1, 1, 0, 0}},
	{"rxe-loss-cm-rtu.pcap", {1, 0, 0, 2, 2, 1, 1, 0, 0}},
	{"rxe-loss-rping.pcap", {1, 0, 0, 1, 1, 1, 1, 0, 0}},
	{"rxe-rping-C3.pcap", {1, 0, 0, 1, 1, 1, 1, 0, 0}},
	{"rxe-rstream.pcap", {1, 0, 0, 1, 1, 1, 1, 0, 0}},
	{"rxe-ucmatose.pcap", {1, 0, 0, 1, 1, 1, 1, 0, 0}},
	{"rxe-udaddy-sidr.pcap", {0, 0, 0, 0, 0, 0, 0, 1, 1}},
	{"rxe-write_R.pcap", {2, 0, 0, 2, 2, 3, 2, 0, 0}},
	{"udpsock-to-rxe.pcap", {3, 0, 0, 1, 1, 1, 1, 0, 0}},
};

static void test_every_captured_message(void **state)
{
	for (size_t i = 0; i < VB_ARRAY_SIZE(captures); i++) {
		unsigned int count[VB_CM_ATTR_COUNT] = {0};
		struct golden_file file;
		struct golden_packet p;
		const uint8_t *mad;

		assert_true(golden_open(&file, captures[i].name));
		while ((mad = golden_next_mad(&file, &p))) {
			struct vb_cm_message m;
			uint8_t out[VB_MAD_BYTES];

			assert_int_equal(vb_cm_message_decode(&m, mad, VB_MAD_BYTES), 0);
			assert_int_equal(vb_cm_message_encode(&m, out), 0);
			assert_memory_equal(out, mad, VB_MAD_BYTES);
			count[m.mad.attr_id - VB_CM_ATTR_REQ]++;
		}
		golden_close(&file);
		for (unsigned int kind = 0; kind < VB_CM_ATTR_COUNT; kind++)
			assert_int_equal(count[kind], captures[i].count[kind]);
	}
}

/* The first message of that kind in the capture; the bytes stay in the file. */
static struct vb_cm_message first(struct golden_file *file, const char *name, uint16_t attr_id)
{
	struct golden_packet p;
	struct vb_cm_message m;
	const uint8_t *mad;

	assert_true(golden_open(file, name));
	do {
		mad = golden_next_mad(file, &p);
		assert_non_null(mad);
		assert_int_equal(vb_cm_message_decode(&m, mad, VB_MAD_BYTES), 0);
	} while (m.mad.attr_id != attr_id);
	assert_int_equal(m.mad.base_version, 1);
	assert_int_equal(m.mad.mgmt_class, 7);
	assert_int_equal(m.mad.class_version, 2);
	assert_int_equal(m.mad.method, 3);
	assert_int_equal(m.mad.status, 0);
	assert_int_equal(m.mad.attr_modifier, 0);
	return m;
}

static void assert_gid(const struct in6_addr *gid, const char *text)
{
	struct in6_addr expected;

	assert_int_equal(inet_pton(AF_INET6, text, &expected), 1);
	assert_memory_equal(gid, &expected, 16);
}

static void assert_zeros(const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		assert_int_equal(bytes[i], 0);
}

static void test_req_of_rping(void **state)
{
	struct golden_file file;
	struct vb_cm_message m = first(&file, "rxe-rping-C3.pcap", VB_CM_ATTR_REQ);
	const struct vb_cm_wire_path none = {0};

	assert_int_equal(m.mad.tid, 0x2ba883164);
	assert_int_equal(m.local_id, 0x643188ba);
	assert_int_equal(m.remote_id, 0);
	assert_int_equal(m.req.service_id, 0x01061c06); /* RDMA_PS_TCP, port 7174 */
	assert_int_equal(m.req.ca_guid, 0x007700fffe000011);
	assert_int_equal(m.req.qkey, 0);
	assert_int_equal(m.req.qpn, 0x12);
	assert_int_equal(m.req.responder_resources, 1);
	assert_int_equal(m.req.eecn, 0);
	assert_int_equal(m.req.initiator_depth, 1);
	assert_int_equal(m.req.remote_eecn, 0);
	assert_int_equal(m.req.remote_cm_timeout, 20);
	assert_int_equal(m.req.transport, 0);
	assert_false(m.req.flow_control);
	assert_int_equal(m.req.psn, 0xa905e1);
	assert_int_equal(m.req.local_cm_timeout, 20);
	assert_int_equal(m.req.retry_count, 7);
	assert_int_equal(m.req.pkey, 0xffff);
	assert_int_equal(m.req.path_mtu, 3);
	assert_false(m.req.rdc_exists);
	assert_int_equal(m.req.rnr_retry_count, 7);
	assert_int_equal(m.req.max_cm_retries, 15);
	assert_false(m.req.srq);
	assert_int_equal(m.req.extended_transport, 0);
	assert_int_equal(m.req.primary.local_lid, 0xffff);
	assert_int_equal(m.req.primary.remote_lid, 0xffff);
	assert_gid(&m.req.primary.local_gid, "::ffff:10.77.0.12");
	assert_gid(&m.req.primary.remote_gid, "::ffff:10.77.0.11");
	assert_int_equal(m.req.primary.flow_label, 0x40df1);
	assert_int_equal(m.req.primary.packet_rate, 0);
	assert_int_equal(m.req.primary.traffic_class, 0);
	assert_int_equal(m.req.primary.hop_limit, 64);
	assert_int_equal(m.req.primary.sl, 0);
	assert_false(m.req.primary.subnet_local);
	assert_int_equal(m.req.primary.ack_timeout, 19);
	assert_memory_equal(&m.req.alternate, &none, sizeof(none));
	assert_false(m.req.sap_supported);
	assert_int_equal(m.private_len, 92);
	assert_memory_equal(m.private_data, "\0\x40\xa4\xb5", 4);
	assert_memory_equal(m.private_data + 16, "\x0a\x4d\0\x0c", 4);
	assert_memory_equal(m.private_data + 32, "\x0a\x4d\0\x0b", 4);
	assert_zeros(m.private_data + 36, 92 - 36);
	golden_close(&file);
}

static void test_req_over_ipv6(void **state)
{
	struct golden_file file;
	struct vb_cm_message m = first(&file, "rxe-ipv6-rping.pcap", VB_CM_ATTR_REQ);

	assert_int_equal(m.req.psn, 0x47db61);
	assert_int_equal(m.req.path_mtu, 5);
	assert_gid(&m.req.primary.local_gid, "fe80::77:ff:fe00:11");
	assert_gid(&m.req.primary.remote_gid, "fe80::77:ff:fe00:10");
	assert_int_equal(m.req.primary.flow_label, 0x266d7);
	assert_int_equal(m.private_data[1], 0x60);
	golden_close(&file);
}

static void test_rep_rtu_dreq_drep_of_rping(void **state)
{
	struct golden_file file;
	struct vb_cm_message m = first(&file, "rxe-rping-C3.pcap", VB_CM_ATTR_REP);

	assert_int_equal(m.mad.tid, 0x2ba883164);
	assert_int_equal(m.local_id, 0xd9d112b0);
	assert_int_equal(m.remote_id, 0x643188ba);
	assert_int_equal(m.rep.qkey, 0);
	assert_int_equal(m.rep.qpn, 0x64);
	assert_int_equal(m.rep.eecn, 0);
	assert_int_equal(m.rep.psn, 0x661dbb);
	assert_int_equal(m.rep.responder_resources, 1);
	assert_int_equal(m.rep.initiator_depth, 1);
	assert_int_equal(m.rep.target_ack_delay, 15);
	assert_int_equal(m.rep.failover_accepted, 0);
	assert_false(m.rep.flow_control);
	assert_int_equal(m.rep.rnr_retry_count, 7);
	assert_false(m.rep.srq);
	assert_int_equal(m.rep.ca_guid, 0x007700fffe000010);
	assert_int_equal(m.private_len, 196);
	assert_zeros(m.private_data, 196);
	golden_close(&file);

	m = first(&file, "rxe-rping-C3.pcap", VB_CM_ATTR_RTU);
	assert_int_equal(m.mad.tid, 0x2ba883164);
	assert_int_equal(m.local_id, 0x643188ba);
	assert_int_equal(m.remote_id, 0xd9d112b0);
	assert_int_equal(m.private_len, 224);
	golden_close(&file);

	m = first(&file, "rxe-rping-C3.pcap", VB_CM_ATTR_DREQ);
	assert_int_equal(m.local_id, 0x643188ba);
	assert_int_equal(m.remote_id, 0xd9d112b0);
	assert_int_equal(m.dreq.remote_qpn, 0x64);
	assert_int_equal(m.private_len, 220);
	golden_close(&file);

	m = first(&file, "rxe-rping-C3.pcap", VB_CM_ATTR_DREP);
	assert_int_equal(m.local_id, 0xd9d112b0);
	assert_int_equal(m.remote_id, 0x643188ba);
	assert_int_equal(m.private_len, 224);
	golden_close(&file);
}

static void test_rej_of_an_unknown_service(void **state)
{
	struct golden_file file;
	struct vb_cm_message m = first(&file, "rxe-cm-reject-no-listener.pcap", VB_CM_ATTR_REJ);

	assert_int_equal(m.mad.tid, 0x2ba883166);
	assert_int_equal(m.local_id, 0);
	assert_int_equal(m.remote_id, 0x663188ba);
	assert_int_equal(m.rej.about, VB_CM_ABOUT_REQ);
	assert_int_equal(m.rej.ari_len, 0);
	assert_int_equal(m.rej.reason, 8);
	assert_int_equal(m.private_len, 148);
	golden_close(&file);
}

static void test_sidr_of_udaddy(void **state)
{
	struct golden_file file;
	struct vb_cm_message m = first(&file, "rxe-udaddy-sidr.pcap", VB_CM_ATTR_SIDR_REQ);

	assert_int_equal(m.local_id, 0x603188ba);
	assert_int_equal(m.sidr_req.pkey, 0xffff);
	assert_int_equal(m.sidr_req.service_id, 0x01111c06); /* RDMA_PS_UDP, port 7174 */
	assert_int_equal(m.private_len, 216);
	assert_memory_equal(m.private_data, "\0\x40\xe2\xe1", 4);
	golden_close(&file);

	m = first(&file, "rxe-udaddy-sidr.pcap", VB_CM_ATTR_SIDR_REP);
	assert_int_equal(m.remote_id, 0x603188ba);
	assert_int_equal(m.local_id, 0);
	assert_int_equal(m.sidr_rep.status, 0);
	assert_int_equal(m.sidr_rep.info_len, 0);
	assert_int_equal(m.sidr_rep.qpn, 0x67);
	assert_int_equal(m.sidr_rep.service_id, 0x01111c06);
	assert_int_equal(m.sidr_rep.qkey, 0x01234567);
	assert_int_equal(m.private_len, 136);
	golden_close(&file);
}

/* Bytes that are 0xff but for the reserved bits, which are known to be zero. */
static const struct {
	uint16_t attr_id;
	size_t private_len;
	struct {
		uint8_t at, mask;
	} reserved[24];
} full[] = {
	{VB_CM_ATTR_REQ,
	 92,
	 {{4, 0},
	  {5, 0},
	  {6, 0},
	  {7, 0},
	  {24, 0},
	  {25, 0},
	  {26, 0},
	  {27, 0},
	  {90, 0xf0},
	  {91, 0x3f},
	  {94, 0xf8},
	  {95, 0xf8},
	  {134, 0xf0},
	  {135, 0x3f},
	  {138, 0xf8},
	  {139, 0xfc}}},
	{VB_CM_ATTR_MRA, 222, {{8, 0xc0}, {9, 0xf8}}},
	{VB_CM_ATTR_REJ, 148, {{8, 0xc0}, {9, 72 << 1}}},
	{VB_CM_ATTR_REP, 196, {{15, 0}, {19, 0}, {23, 0}, {27, 0xf0}}},
	{VB_CM_ATTR_RTU, 224, {{0, 0xff}}},
	{VB_CM_ATTR_DREQ, 220, {{11, 0}}},
	{VB_CM_ATTR_DREP, 224, {{0, 0xff}}},
	{VB_CM_ATTR_SIDR_REQ, 216, {{6, 0}, {7, 0}}},
	{VB_CM_ATTR_SIDR_REP, 136, {{5, 72}, {6, 0}, {7, 0}, {11, 0}}},
};

static void fill(uint8_t mad[VB_MAD_BYTES], size_t kind)
{
	const struct vb_mad header = {1, 7, 2, 3, 0, 0, 0x1122334455667788, full[kind].attr_id, 0};

	memset(mad, 0xff, VB_MAD_BYTES);
	vb_mad_encode(&header, mad);
	for (size_t i = 0; i < VB_ARRAY_SIZE(full[kind].reserved); i++) {
		uint8_t at = full[kind].reserved[i].at;

		if (at || i == 0)
			mad[VB_MAD_HEADER_BYTES + at] = at ? full[kind].reserved[i].mask : 0xff;
	}
}

/* What is reserved comes back as zeros, the rest as it was; and each bit by itself. */
static void test_every_bit_makes_the_round_trip(void **state)
{
	for (size_t kind = 0; kind < VB_ARRAY_SIZE(full); kind++) {
		uint8_t mad[VB_MAD_BYTES], mask[VB_MAD_BYTES], out[VB_MAD_BYTES];
		struct vb_cm_message m;

		fill(mask, kind);
		assert_int_equal(vb_cm_message_decode(&m, mask, sizeof(mask)), 0);
		assert_int_equal(m.private_len, full[kind].private_len);
		assert_int_equal(vb_cm_message_encode(&m, out), 0);
		assert_memory_equal(out, mask, VB_MAD_BYTES);
		if (full[kind].attr_id == VB_CM_ATTR_REJ)
			mask[VB_MAD_HEADER_BYTES + 9] = 0; /* a longer one is refused: below */
		if (full[kind].attr_id == VB_CM_ATTR_SIDR_REP)
			mask[VB_MAD_HEADER_BYTES + 5] = 0;
		for (size_t bit = 8 * VB_MAD_HEADER_BYTES; bit < 8 * VB_MAD_BYTES; bit++) {
			memcpy(mad, mask, VB_MAD_HEADER_BYTES);
			memset(mad + VB_MAD_HEADER_BYTES, 0, VB_MAD_DATA_BYTES);
			mad[bit / 8] = (uint8_t)(1u << bit % 8);
			mad[bit / 8] &= mask[bit / 8];
			assert_int_equal(vb_cm_message_decode(&m, mad, sizeof(mad)), 0);
			assert_int_equal(vb_cm_message_encode(&m, out), 0);
			if ((full[kind].attr_id == VB_CM_ATTR_REJ &&
			     bit / 8 >= VB_MAD_HEADER_BYTES + 12 &&
			     bit / 8 < VB_MAD_HEADER_BYTES + 84) ||
			    (full[kind].attr_id == VB_CM_ATTR_SIDR_REP &&
			     bit / 8 >= VB_MAD_HEADER_BYTES + 24 &&
			     bit / 8 < VB_MAD_HEADER_BYTES + 96))
				memset(mad + bit / 8, 0, 1); /* beyond the length that it says */
			assert_memory_equal(out, mad, VB_MAD_BYTES);
		}
	}
}

static void test_what_is_too_long(void **state)
{
	const uint8_t bytes[256] = {1};

	for (size_t kind = 0; kind < VB_ARRAY_SIZE(full); kind++) {
		uint8_t out[VB_MAD_BYTES] = {0}, zeros[VB_MAD_BYTES] = {0};
		struct vb_cm_message m = {.mad = {1, 7, 2, 3, .attr_id = full[kind].attr_id},
					  .private_data = bytes,
					  .private_len = full[kind].private_len + 1};

		assert_int_equal(vb_cm_message_encode(&m, out), -EMSGSIZE);
		assert_memory_equal(out, zeros, sizeof(out));
		m.private_len--;
		assert_int_equal(vb_cm_message_encode(&m, out), 0);
		assert_int_equal(out[VB_MAD_BYTES - full[kind].private_len], 1);
	}
	struct vb_cm_message rej = {.mad = {1, 7, 2, 3, .attr_id = VB_CM_ATTR_REJ},
				    .rej = {.ari = bytes, .ari_len = 73}};
	struct vb_cm_message rep = {.mad = {1, 7, 2, 3, .attr_id = VB_CM_ATTR_SIDR_REP},
				    .sidr_rep = {.info = bytes, .info_len = 73}};
	uint8_t out[VB_MAD_BYTES];

	assert_int_equal(vb_cm_message_encode(&rej, out), -EMSGSIZE);
	assert_int_equal(vb_cm_message_encode(&rep, out), -EMSGSIZE);
}

static void test_what_does_not_decode(void **state)
{
	uint8_t mad[VB_MAD_BYTES];
	struct vb_cm_message m;

	fill(mad, 0);
	for (size_t size = 0; size < sizeof(mad); size++)
		assert_int_equal(vb_cm_message_decode(&m, mad, size), -EBADMSG);
	assert_int_equal(vb_cm_message_decode(&m, mad, sizeof(mad) + 1), -EBADMSG);
	for (size_t at = 0; at < 4; at++) { /* base version, class, class version, method */
		fill(mad, 0);
		mad[at] ^= 0x80;
		assert_int_equal(vb_cm_message_decode(&m, mad, sizeof(mad)), -EBADMSG);
	}
	for (uint32_t attr_id = 0; attr_id < 0x10000; attr_id++) {
		fill(mad, 0);
		vb_store_be16(mad + 16, (uint16_t)attr_id);
		assert_int_equal(vb_cm_message_decode(&m, mad, sizeof(mad)),
				 attr_id >= 0x10 && attr_id <= 0x18 ? 0 : -ENOMSG);
	}
	m.mad.attr_id = 0x19;
	assert_int_equal(vb_cm_message_encode(&m, mad), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_captured_message),
		cmocka_unit_test(test_req_of_rping),
		cmocka_unit_test(test_req_over_ipv6),
		cmocka_unit_test(test_rep_rtu_dreq_drep_of_rping),
		cmocka_unit_test(test_rej_of_an_unknown_service),
		cmocka_unit_test(test_sidr_of_udaddy),
		cmocka_unit_test(test_every_bit_makes_the_round_trip),
		cmocka_unit_test(test_what_is_too_long),
		cmocka_unit_test(test_what_does_not_decode),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
