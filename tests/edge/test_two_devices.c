/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What belongs to one opened device does not work with another: on the wire the two ends are two
 * devices of one process, locally one device that was opened twice.
 */
#include "edge.h"

static void expect_no_queue_pair(struct edge_end *end, struct ibv_cq *send, struct ibv_cq *receive,
				 struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = send,
		.recv_cq = receive,
		.srq = srq,
		.cap = {4, 4, 1, 1, 0},
		.qp_type = IBV_QPT_RC,
	};

	errno = 0;
	assert_null(ibv_create_qp(end->pd, &init));
	assert_int_equal(errno, EINVAL);
}

static void queue_pairs_take_queues_of_their_own_device(void **state)
{
	struct edge_options options = {.srq_at_b = true};
	struct edge_pair pair;

	edge_open(&pair, &options);
	expect_no_queue_pair(&pair.a, pair.b.cq, pair.a.cq, NULL);
	expect_no_queue_pair(&pair.a, pair.a.cq, pair.b.cq, NULL);
	expect_no_queue_pair(&pair.a, pair.a.cq, pair.a.cq, pair.b.srq);
	edge_close(&pair);
}

static void keys_of_the_other_device_are_refused(void **state)
{
	struct edge_options options = {0};
	struct edge_pair pair;
	struct ibv_send_wr *bad;

	edge_open(&pair, &options);

	struct ibv_sge sge = {(uintptr_t)pair.b.buffer, 8, pair.b.mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {(uintptr_t)pair.b.buffer + 4096, pair.b.mr->rkey},
	};

	memset(pair.b.buffer, 0x5a, 8);
	assert_int_equal(ibv_post_send(pair.a.qp, &wr, &bad), 0);
	edge_expect(pair.a.cq, 1, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(pair.b.buffer[4096], 0);
	edge_close(&pair);
}

static void address_handles_of_the_other_device_are_refused(void **state)
{
	struct edge_options options = {.type = IBV_QPT_UD};
	struct edge_pair pair;
	struct ibv_send_wr *bad = NULL;

	edge_open(&pair, &options);

	struct ibv_sge sge = {(uintptr_t)pair.a.buffer, 8, pair.a.mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.ud = {pair.b.ah, pair.a.qp->qp_num, 0x11223344},
	};

	assert_int_equal(ibv_post_send(pair.a.qp, &wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr);
	edge_expect_none(pair.a.cq);
	assert_int_equal(edge_state(pair.a.qp), IBV_QPS_RTS);
	edge_close(&pair);
}

/* One's end is not the other's. */
static void a_device_goes_on_when_the_other_is_closed(void **state)
{
	struct edge_options options = {0};
	struct edge_pair pair, alone;

	edge_open(&pair, &options);
	edge_open(&alone, &options);
	edge_close(&pair);
	memset(alone.a.buffer, 0x77, 5000);
	assert_int_equal(edge_post(&alone.a, &alone.b, 1, IBV_WR_RDMA_WRITE, 0, 5000), 0);
	edge_expect(alone.a.cq, 1, IBV_WC_SUCCESS);
	assert_memory_equal(alone.b.buffer, alone.a.buffer, 5000);
	edge_close(&alone);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(queue_pairs_take_queues_of_their_own_device),
		cmocka_unit_test(keys_of_the_other_device_are_refused),
		cmocka_unit_test(address_handles_of_the_other_device_are_refused),
		cmocka_unit_test(a_device_goes_on_when_the_other_is_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
