/* SPDX-License-Identifier: BSD-2-Clause */
/* A QP in error completes every request once, in order, the first with the cause. */
#include "edge.h"

static void check_flushed(struct ibv_cq *cq, struct ibv_qp *qp, uint64_t wr_id)
{
	struct ibv_wc wc = edge_expect(cq, wr_id, IBV_WC_WR_FLUSH_ERR);

	assert_int_equal(wc.qp_num, qp->qp_num);
}

static void first_cause_then_flush(void **state)
{
	struct edge_pair pair;
	struct ibv_wc wc;

	edge_open(&pair, &(struct edge_options){0});
	for (uint64_t i = 0; i < 3; i++)
		edge_post_recv(&pair.a, 100 + i, 0, 64);

	/* The second WRITE names a region that does not exist. */
	struct ibv_sge sge = {(uintptr_t)pair.a.buffer, 32, pair.a.mr->lkey};
	struct ibv_send_wr wr[4];
	struct ibv_send_wr *bad;

	for (int i = 0; i < 4; i++)
		wr[i] = (struct ibv_send_wr){
			.wr_id = (uint64_t)i,
			.next = i < 3 ? &wr[i + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = i == 0 ? IBV_SEND_SIGNALED : 0,
			.wr.rdma = {(uintptr_t)pair.b.buffer,
				    i == 1 ? ~pair.b.mr->rkey : pair.b.mr->rkey},
		};
	assert_int_equal(ibv_post_send(pair.a.qp, wr, &bad), 0);
	edge_expect(pair.a.cq, 0, IBV_WC_SUCCESS);
	wc = edge_expect(pair.a.cq, 1, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(wc.qp_num, pair.a.qp->qp_num);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
	assert_int_not_equal(wc.vendor_err, 0);
	check_flushed(pair.a.cq, pair.a.qp, 2);
	check_flushed(pair.a.cq, pair.a.qp, 3);
	for (uint64_t i = 0; i < 3; i++) {
		wc = edge_expect(pair.a.cq, 100 + i, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(wc.qp_num, pair.a.qp->qp_num);
		assert_true(wc.opcode & IBV_WC_RECV);
	}
	edge_expect_none(pair.a.cq);
	assert_int_equal(edge_state(pair.a.qp), IBV_QPS_ERR);

	/* Requests posted afterwards are accepted and flushed. */
	assert_int_equal(edge_post(&pair.a, &pair.b, 50, IBV_WR_SEND, 0, 8), 0);
	edge_post_recv(&pair.a, 51, 0, 8);
	check_flushed(pair.a.cq, pair.a.qp, 50);
	check_flushed(pair.a.cq, pair.a.qp, 51);
	edge_expect_none(pair.a.cq);

	/* The peer's QP went into error too; both come back through RESET. */
	edge_reconnect(&pair);
	assert_int_equal(edge_post(&pair.a, &pair.b, 60, IBV_WR_RDMA_WRITE, 0, 8), 0);
	edge_expect(pair.a.cq, 60, IBV_WC_SUCCESS);
	edge_close(&pair);
}

static void modify_to_err_flushes(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){0});
	for (uint64_t i = 0; i < 4; i++)
		edge_post_recv(&pair.b, i, 0, 64);
	assert_int_equal(ibv_modify_qp(pair.b.qp, &attr, IBV_QP_STATE), 0);
	for (uint64_t i = 0; i < 4; i++)
		check_flushed(pair.b.cq, pair.b.qp, i);
	edge_expect_none(pair.b.cq);
	edge_close(&pair);
}

static void retry_exceeded_when_nobody_answers(void **state)
{
	/* 4.096 us * 2^10 = 4.2 ms, lengthened to the library's least; two tries. */
	struct edge_options options = {.timeout = 10, .retry_cnt = 1};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	struct edge_pair pair;

	edge_open(&pair, &options);
	assert_int_equal(ibv_modify_qp(pair.b.qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(edge_post(&pair.a, &pair.b, 1, IBV_WR_RDMA_WRITE, 0, 100), 0);
	assert_int_equal(edge_post(&pair.a, &pair.b, 2, IBV_WR_SEND, 0, 100), 0);
	edge_expect(pair.a.cq, 1, IBV_WC_RETRY_EXC_ERR);
	check_flushed(pair.a.cq, pair.a.qp, 2);
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(first_cause_then_flush),
		cmocka_unit_test(modify_to_err_flushes),
		cmocka_unit_test(retry_exceeded_when_nobody_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
