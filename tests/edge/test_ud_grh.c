/* SPDX-License-Identifier: BSD-2-Clause */
/* UD: 40 bytes before the payload, an IPv4 header in the last 20, and replies through them. */
#include "edge.h"

#include <arpa/inet.h>

static uint16_t sum_of_header(const uint8_t *header)
{
	uint32_t sum = 0;

	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)header[i] << 8 | header[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

static void payload_behind_40_bytes(int gid_index)
{
	struct edge_pair pair;
	struct ibv_ah *reply;
	struct ibv_wc wc;

	edge_open(&pair, &(struct edge_options){.type = IBV_QPT_UD, .gid_index = gid_index});
	memset(pair.b.buffer, 0xee, 4096);
	memcpy(pair.a.buffer, "hello, datagram", 15);
	edge_post_recv(&pair.b, 1, 0, 200);
	assert_int_equal(edge_post(&pair.a, &pair.b, 2, IBV_WR_SEND, 0, 15), 0);
	edge_expect(pair.a.cq, 2, IBV_WC_SUCCESS);
	wc = edge_expect(pair.b.cq, 1, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 40 + 15);
	assert_true(wc.wc_flags & IBV_WC_GRH);
	assert_int_equal(wc.src_qp, pair.a.qp->qp_num);
	assert_memory_equal(pair.b.buffer + 40, "hello, datagram", 15);
	assert_int_equal(pair.b.buffer[55], 0xee);
	/* Virtual hosts speak IPv4 whichever GID names them; RoCE v2 adapters say it in place of
	 * the SL: it came by UDP (8), and IPv4 (2). */
	assert_int_equal(pair.b.buffer[20], 0x45);
	assert_int_equal(wc.sl, 0xa);
	assert_int_equal(sum_of_header(pair.b.buffer + 20), 0xffff);

	reply = ibv_create_ah_from_wc(pair.b.pd, &wc, (struct ibv_grh *)pair.b.buffer, 1);
	assert_non_null(reply);
	assert_int_equal(ibv_destroy_ah(pair.b.ah), 0);
	pair.b.ah = reply;
	edge_post_recv(&pair.a, 3, 4096, 100);
	assert_int_equal(edge_post(&pair.b, &pair.a, 4, IBV_WR_SEND, 40, 15), 0);
	edge_expect(pair.b.cq, 4, IBV_WC_SUCCESS);
	assert_int_equal(edge_expect(pair.a.cq, 3, IBV_WC_SUCCESS).byte_len, 40 + 15);
	assert_memory_equal(pair.a.buffer + 4096 + 40, "hello, datagram", 15);
	edge_close(&pair);
}

static void by_ipv4_gid(void **state)
{
	payload_behind_40_bytes(0);
}

static void by_link_local_gid(void **state)
{
	payload_behind_40_bytes(-1);
}

static void short_buffer_is_not_overrun(void **state)
{
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){.type = IBV_QPT_UD});
	memset(pair.b.buffer, 0xee, 4096);
	edge_post_recv(&pair.b, 1, 0, 50); /* 40 + 10, and 15 come */
	assert_int_equal(edge_post(&pair.a, &pair.b, 2, IBV_WR_SEND, 0, 15), 0);
	edge_expect(pair.a.cq, 2, IBV_WC_SUCCESS);
	edge_expect(pair.b.cq, 1, IBV_WC_LOC_LEN_ERR);
	for (int i = 50; i < 100; i++)
		assert_int_equal(pair.b.buffer[i], 0xee);
	edge_close(&pair);
}

static void wrong_qkey_is_dropped(void **state)
{
	struct edge_pair pair;
	struct ibv_sge sge;
	struct ibv_send_wr *bad;

	edge_open(&pair, &(struct edge_options){.type = IBV_QPT_UD});
	edge_post_recv(&pair.b, 1, 0, 200);
	sge = (struct ibv_sge){(uintptr_t)pair.a.buffer, 8, pair.a.mr->lkey};

	struct ibv_send_wr wr = {
		.wr_id = 5,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.ud = {pair.a.ah, pair.b.qp->qp_num, 0x99},
	};

	assert_int_equal(ibv_post_send(pair.a.qp, &wr, &bad), 0);
	edge_expect(pair.a.cq, 5, IBV_WC_SUCCESS);
	edge_expect_none(pair.b.cq);
	/* The receive is still there for the next. */
	assert_int_equal(edge_post(&pair.a, &pair.b, 6, IBV_WR_SEND, 0, 8), 0);
	edge_expect(pair.b.cq, 1, IBV_WC_SUCCESS);
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_ipv4_gid),
		cmocka_unit_test(by_link_local_gid),
		cmocka_unit_test(short_buffer_is_not_overrun),
		cmocka_unit_test(wrong_qkey_is_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
