/* SPDX-License-Identifier: BSD-2-Clause */
/* The keys in an SRQ's receive requests belong to the SRQ's PD, not to the queue pair's. */
#include "edge.h"

static void messages_land_in_the_srqs_regions(void **state)
{
	struct edge_options options = {.srq_at_b = true, .srq_in_own_pd = true};
	struct edge_pair pair;

	edge_open(&pair, &options);
	memset(pair.a.buffer, 0x3c, 3000);
	edge_post_recv(&pair.b, 1, 8192, 3000);
	assert_int_equal(edge_post(&pair.a, &pair.b, 2, IBV_WR_SEND, 0, 3000), 0);
	assert_int_equal(edge_expect(pair.b.cq, 1, IBV_WC_SUCCESS).byte_len, 3000);
	edge_expect(pair.a.cq, 2, IBV_WC_SUCCESS);
	assert_memory_equal(pair.b.buffer + 8192, pair.a.buffer, 3000);
	edge_close(&pair);
}

static void keys_of_the_queue_pairs_pd_are_refused(void **state)
{
	struct edge_options options = {.srq_at_b = true, .srq_in_own_pd = true};
	struct edge_pair pair;
	struct ibv_recv_wr *bad;

	edge_open(&pair, &options);

	struct ibv_sge sge = {(uintptr_t)pair.b.buffer, 64, pair.b.mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1};

	assert_int_equal(ibv_post_srq_recv(pair.b.srq, &wr, &bad), 0);
	assert_int_equal(edge_post(&pair.a, &pair.b, 2, IBV_WR_SEND, 0, 8), 0);
	edge_expect(pair.b.cq, 1, IBV_WC_LOC_PROT_ERR);
	edge_expect(pair.a.cq, 2, IBV_WC_REM_OP_ERR);
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_land_in_the_srqs_regions),
		cmocka_unit_test(keys_of_the_queue_pairs_pd_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
