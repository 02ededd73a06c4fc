/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_null_region.c - ibv_alloc_null_mr(3): what is sent from it are zeros, what arrives in it is
 * dropped, at whatever address.
 */
#include "edge.h"

static const struct edge_options usual;

static struct ibv_mr *make(struct edge_end *end)
{
	struct ibv_mr *mr = ibv_alloc_null_mr(end->pd);

	assert_non_null(mr);
	assert_ptr_equal(mr->pd, end->pd);
	assert_int_equal(mr->rkey, 0);
	return mr;
}

static void post(struct edge_pair *pair, enum ibv_wr_opcode opcode, struct ibv_sge *sges, int count)
{
	struct ibv_send_wr *bad, wr = {
					 .wr_id = 1,
					 .sg_list = sges,
					 .num_sge = count,
					 .opcode = opcode,
					 .send_flags = IBV_SEND_SIGNALED,
				 };

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)pair->b.buffer;
		wr.wr.atomic.rkey = pair->b.mr->rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)pair->b.buffer;
		wr.wr.rdma.rkey = pair->b.mr->rkey;
	}
	assert_int_equal(ibv_post_send(pair->a.qp, &wr, &bad), 0);
}

static void zeros_between_data(void **state)
{
	struct edge_pair pair;
	struct ibv_mr *null;
	struct ibv_sge sges[3];

	edge_open(&pair, &usual);
	null = make(&pair.a);
	memset(pair.a.buffer, 0x61, 2000);
	memset(pair.b.buffer, 0xff, 5000);
	sges[0] = (struct ibv_sge){(uintptr_t)pair.a.buffer, 1000, pair.a.mr->lkey};
	sges[1] = (struct ibv_sge){0xdead000000000000, 2500, null->lkey};
	sges[2] = (struct ibv_sge){(uintptr_t)pair.a.buffer, 500, pair.a.mr->lkey};
	for (int i = 0; i < 2; i++) {
		edge_post_recv(&pair.b, 2, 0, 4000);
		post(&pair, i ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND, sges, 3);
		edge_expect(pair.a.cq, 1, IBV_WC_SUCCESS);
		edge_expect(pair.b.cq, 2, IBV_WC_SUCCESS);
		for (int k = 0; k < 5000; k++)
			assert_int_equal(pair.b.buffer[k], k >= 4000		   ? 0xff
							   : k >= 1000 && k < 3500 ? 0
										   : 0x61);
		memset(pair.b.buffer, 0xff, 5000);
	}
	assert_int_equal(ibv_dereg_mr(null), 0);
	edge_close(&pair);
}

static void a_long_write_of_zeros(void **state)
{
	struct edge_pair pair;
	struct ibv_mr *null;
	struct ibv_sge sge;

	edge_open(&pair, &usual);
	null = make(&pair.a);
	memset(pair.b.buffer, 0xff, EDGE_BUFFER);
	sge = (struct ibv_sge){UINT64_MAX, EDGE_BUFFER, null->lkey};
	post(&pair, IBV_WR_RDMA_WRITE, &sge, 1);
	edge_expect(pair.a.cq, 1, IBV_WC_SUCCESS);
	for (uint32_t k = 0; k < EDGE_BUFFER; k++)
		assert_int_equal(pair.b.buffer[k], 0);
	assert_int_equal(ibv_dereg_mr(null), 0);
	edge_close(&pair);
}

static void what_arrives_is_dropped(void **state)
{
	struct edge_pair pair;
	struct ibv_mr *null;
	struct ibv_sge sges[2];
	struct ibv_recv_wr recv = {.wr_id = 2, .sg_list = sges, .num_sge = 2}, *bad;
	uint64_t sum = 5;

	edge_open(&pair, &usual);
	null = make(&pair.b);
	for (int k = 0; k < 3000; k++)
		pair.a.buffer[k] = (uint8_t)(k % 251);
	sges[0] = (struct ibv_sge){0, 1500, null->lkey};
	sges[1] = (struct ibv_sge){(uintptr_t)pair.b.buffer, 1500, pair.b.mr->lkey};
	assert_int_equal(ibv_post_recv(pair.b.qp, &recv, &bad), 0);
	assert_int_equal(edge_post(&pair.a, &pair.b, 1, IBV_WR_SEND, 0, 3000), 0);
	edge_expect(pair.a.cq, 1, IBV_WC_SUCCESS);
	assert_int_equal(edge_expect(pair.b.cq, 2, IBV_WC_SUCCESS).byte_len, 3000);
	assert_memory_equal(pair.b.buffer, pair.a.buffer + 1500, 1500);
	assert_int_equal(ibv_dereg_mr(null), 0);

	/* what a asks for itself */
	null = make(&pair.a);
	memcpy(pair.b.buffer, &sum, sizeof(sum));
	sges[0] = (struct ibv_sge){8, EDGE_BUFFER, null->lkey};
	post(&pair, IBV_WR_RDMA_READ, sges, 1);
	edge_expect(pair.a.cq, 1, IBV_WC_SUCCESS);
	sges[0].length = 8;
	post(&pair, IBV_WR_ATOMIC_FETCH_AND_ADD, sges, 1);
	edge_expect(pair.a.cq, 1, IBV_WC_SUCCESS);
	memcpy(&sum, pair.b.buffer, sizeof(sum));
	assert_int_equal(sum, 6);
	/* it is still made of zeros */
	post(&pair, IBV_WR_RDMA_WRITE, sges, 1);
	edge_expect(pair.a.cq, 1, IBV_WC_SUCCESS);
	memcpy(&sum, pair.b.buffer, sizeof(sum));
	assert_int_equal(sum, 0);
	assert_int_equal(ibv_dereg_mr(null), 0);
	edge_close(&pair);
}

static void what_it_is_not_for(void **state)
{
	struct edge_pair pair;
	struct ibv_pd *other;
	struct ibv_mr *null;
	struct ibv_sge sge;

	edge_open(&pair, &usual);
	other = ibv_alloc_pd(pair.a.context);
	null = ibv_alloc_null_mr(other);
	assert_non_null(null);
	assert_int_equal(ibv_dealloc_pd(other), EBUSY);
	sge = (struct ibv_sge){0, 8, null->lkey};
	post(&pair, IBV_WR_RDMA_WRITE, &sge, 1);
	edge_expect(pair.a.cq, 1, IBV_WC_LOC_PROT_ERR);
	errno = 0;
	assert_int_equal(ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_PD, pair.a.pd, NULL, 0, 0),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_dereg_mr(null), 0);
	assert_int_equal(ibv_dealloc_pd(other), 0);
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(zeros_between_data),
		cmocka_unit_test(a_long_write_of_zeros),
		cmocka_unit_test(what_arrives_is_dropped),
		cmocka_unit_test(what_it_is_not_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
