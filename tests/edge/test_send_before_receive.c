/* SPDX-License-Identifier: BSD-2-Clause */
/* A SEND before its receive is posted: rnr_retry and the RNR timer decide. */
#include "edge.h"

static void seven_waits_and_keeps_order(void **state)
{
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){.rnr_retry = 7});
	for (uint64_t i = 0; i < 3; i++) {
		pair.a.buffer[i] = (uint8_t)(0x40 + i);
		assert_int_equal(edge_post(&pair.a, &pair.b, i, IBV_WR_SEND, (uint32_t)i, 1), 0);
	}
	edge_expect_none(pair.a.cq);
	for (uint64_t i = 0; i < 3; i++)
		edge_post_recv(&pair.b, 10 + i, 1000 + (uint32_t)i, 1);
	for (uint64_t i = 0; i < 3; i++) {
		edge_expect(pair.b.cq, 10 + i, IBV_WC_SUCCESS);
		assert_int_equal(pair.b.buffer[1000 + i], 0x40 + i);
		edge_expect(pair.a.cq, i, IBV_WC_SUCCESS);
	}
	edge_close(&pair);
}

static void zero_fails_at_once(void **state)
{
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){.rnr_retry = -1});
	assert_int_equal(edge_post(&pair.a, &pair.b, 1, IBV_WR_SEND, 0, 8), 0);
	edge_expect(pair.a.cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	assert_int_equal(edge_state(pair.a.qp), IBV_QPS_ERR);
	edge_close(&pair);
}

static void timer_zero_is_the_longest(void **state)
{
	struct edge_options options = {.rnr_retry = 1, .rnr_timer_is_exact = true};
	struct edge_pair pair;
	double start;

	edge_open(&pair, &options);
	start = edge_seconds();
	assert_int_equal(edge_post(&pair.a, &pair.b, 1, IBV_WR_SEND, 0, 8), 0);
	edge_expect(pair.a.cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	/* IBTA table 45: field 0 asks for 655.36 ms, which the requester must not shorten. */
	assert_true(edge_seconds() - start >= 0.655);
	edge_close(&pair);
}

static void write_and_read_do_not_care(void **state)
{
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){.rnr_retry = -1});
	assert_int_equal(edge_post(&pair.a, &pair.b, 1, IBV_WR_RDMA_WRITE, 0, 5000), 0);
	edge_expect(pair.a.cq, 1, IBV_WC_SUCCESS);
	assert_int_equal(edge_post(&pair.a, &pair.b, 2, IBV_WR_RDMA_READ, 0, 5000), 0);
	edge_expect(pair.a.cq, 2, IBV_WC_SUCCESS);
	assert_int_equal(edge_post(&pair.a, &pair.b, 3, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 5000), 0);
	edge_expect(pair.a.cq, 3, IBV_WC_RNR_RETRY_EXC_ERR);
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(seven_waits_and_keeps_order),
		cmocka_unit_test(zero_fails_at_once),
		cmocka_unit_test(timer_zero_is_the_longest),
		cmocka_unit_test(write_and_read_do_not_care),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
