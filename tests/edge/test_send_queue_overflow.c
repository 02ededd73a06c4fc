/* SPDX-License-Identifier: BSD-2-Clause */
/* A send queue takes max_send_wr requests, and gives slots back by polling alone. */
#include "edge.h"

#define DEPTH 8u

static struct ibv_send_wr chain[2 * DEPTH + 2];

/* Links n unsignalled zero-length WRITEs; the last is signalled when asked. */
static struct ibv_send_wr *make_chain(const struct edge_end *to, uint32_t n, bool signal_last)
{
	for (uint32_t i = 0; i < n; i++) {
		chain[i] = (struct ibv_send_wr){
			.wr_id = i,
			.next = i + 1 < n ? &chain[i + 1] : NULL,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = signal_last && i + 1 == n ? IBV_SEND_SIGNALED : 0,
			.wr.rdma = {(uintptr_t)to->buffer, to->mr->rkey},
		};
	}
	return chain;
}

static void overflow(void **state)
{
	struct edge_options options = {.cap = {DEPTH, DEPTH, 1, 1, 0}, .cap_is_exact = true};
	struct edge_pair pair;
	struct ibv_send_wr *bad = NULL;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	uint32_t depth;

	edge_open(&pair, &options);
	assert_int_equal(ibv_query_qp(pair.a.qp, &attr, IBV_QP_CAP, &init), 0);
	depth = init.cap.max_send_wr;
	assert_in_range(depth, DEPTH, 2 * DEPTH);

	/* depth unsignalled fit, one more does not; those before it were taken. */
	assert_int_equal(ibv_post_send(pair.a.qp, make_chain(&pair.b, depth + 1, false), &bad),
			 ENOMEM);
	assert_ptr_equal(bad, &chain[depth]);
	/* Nothing completes, so that nothing comes back, however often one polls. */
	edge_expect_none(pair.a.cq);
	assert_int_equal(ibv_post_send(pair.a.qp, make_chain(&pair.b, 1, true), &bad), ENOMEM);
	assert_ptr_equal(bad, &chain[0]);
	edge_close(&pair);
}

static void one_signalled_gives_all_back(void **state)
{
	struct edge_options options = {.cap = {DEPTH, DEPTH, 1, 1, 0}, .cap_is_exact = true};
	struct edge_pair pair;
	struct ibv_send_wr *bad = NULL;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	uint32_t depth;

	edge_open(&pair, &options);
	assert_int_equal(ibv_query_qp(pair.a.qp, &attr, IBV_QP_CAP, &init), 0);
	depth = init.cap.max_send_wr;
	for (int round = 0; round < 5; round++) {
		assert_int_equal(ibv_post_send(pair.a.qp, make_chain(&pair.b, depth, true), &bad),
				 0);
		edge_expect(pair.a.cq, depth - 1, IBV_WC_SUCCESS);
		edge_expect_none(pair.a.cq);
	}
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(overflow),
		cmocka_unit_test(one_signalled_gives_all_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
