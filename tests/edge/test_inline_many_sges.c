/* SPDX-License-Identifier: BSD-2-Clause */
/* Inline data over several SGEs: the limit is on the sum, the lkey is not looked at. */
#include "edge.h"

#define RECV_AT 4096u

static int post_inline(struct edge_pair *pair, struct ibv_sge *sges, int n,
		       struct ibv_send_wr **bad)
{
	struct ibv_send_wr wr = {
		.wr_id = 7,
		.sg_list = sges,
		.num_sge = n,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
	};

	return ibv_post_send(pair->a.qp, &wr, bad);
}

static uint32_t inline_cap(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init), 0);
	return init.cap.max_inline_data;
}

static void sum_is_what_counts(void **state)
{
	struct edge_pair pair;
	struct ibv_send_wr *bad;
	uint8_t data[4096];
	uint32_t cap;

	edge_open(&pair, &(struct edge_options){0});
	cap = inline_cap(pair.a.qp);
	assert_in_range(cap, 64, sizeof(data) - 1);
	for (uint32_t i = 0; i < cap; i++)
		data[i] = (uint8_t)(i * 7 + 1);

	/* The whole cap in four pieces with lkeys that do not exist; the buffer is reused at once.
	 */
	struct ibv_sge sges[4] = {
		{(uintptr_t)data, 1, 0xdeadbeef},
		{(uintptr_t)data + 1, 0, 0},
		{(uintptr_t)data + 1, 30, 1},
		{(uintptr_t)data + 31, cap - 31, 0},
	};

	edge_post_recv(&pair.b, 1, RECV_AT, 4096);
	assert_int_equal(post_inline(&pair, sges, 4, &bad), 0);
	memset(data, 0xee, sizeof(data));
	edge_expect(pair.a.cq, 7, IBV_WC_SUCCESS);
	assert_int_equal(edge_expect(pair.b.cq, 1, IBV_WC_SUCCESS).byte_len, cap);
	for (uint32_t i = 0; i < cap; i++)
		assert_int_equal(pair.b.buffer[RECV_AT + i], (uint8_t)(i * 7 + 1));

	/* One byte more over the sum is refused, and nothing is posted. */
	sges[3].length++;
	assert_int_equal(post_inline(&pair, sges, 4, &bad), EINVAL);
	assert_non_null(bad);
	edge_expect_none(pair.a.cq);
	edge_close(&pair);
}

static void sum_does_not_wrap(void **state)
{
	struct edge_pair pair;
	struct ibv_send_wr *bad;

	edge_open(&pair, &(struct edge_options){0});

	struct ibv_sge sges[2] = {
		{(uintptr_t)pair.a.buffer, 0x80000000u, 0},
		{(uintptr_t)pair.a.buffer, 0x80000000u, 0},
	};

	assert_int_equal(post_inline(&pair, sges, 2, &bad), EINVAL);
	edge_expect_none(pair.a.cq);
	edge_close(&pair);
}

static void cap_of_zero_is_kept(void **state)
{
	struct edge_options options = {.cap = {4, 4, 1, 1, 0}, .cap_is_exact = true};
	struct edge_pair pair;
	struct ibv_send_wr *bad;
	uint32_t cap;

	edge_open(&pair, &options);
	cap = inline_cap(pair.a.qp);

	struct ibv_sge sge = {(uintptr_t)pair.a.buffer, cap + 1, pair.a.mr->lkey};

	assert_int_equal(post_inline(&pair, &sge, 1, &bad), EINVAL);
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sum_is_what_counts),
		cmocka_unit_test(sum_does_not_wrap),
		cmocka_unit_test(cap_of_zero_is_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
