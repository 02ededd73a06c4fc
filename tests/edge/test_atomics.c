/* SPDX-License-Identifier: BSD-2-Clause */
/* Atomics: alignment, rights, results in host order, and exactness under threads. */
#include "edge.h"

#include <pthread.h>

#define THREADS 4
#define ADDS 100000u

static int post_atomic(struct edge_pair *pair, enum ibv_wr_opcode opcode, uint64_t at,
		       uint32_t rkey, uint64_t compare_add, uint64_t swap, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)pair->a.buffer, length, pair->a.mr->lkey};
	struct ibv_send_wr *bad;
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = {at, compare_add, swap, rkey},
	};

	return ibv_post_send(pair->a.qp, &wr, &bad);
}

static void values_in_host_order(void **state)
{
	struct edge_pair pair;
	uint64_t *word, *old;

	edge_open(&pair, &(struct edge_options){0});
	word = (uint64_t *)(void *)pair.b.buffer;
	old = (uint64_t *)(void *)pair.a.buffer;
	*word = 0x0123456789abcdefull;
	assert_int_equal(post_atomic(&pair, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)word,
				     pair.b.mr->rkey, 0x10, 0, 8),
			 0);
	edge_expect(pair.a.cq, 1, IBV_WC_SUCCESS);
	assert_true(*old == 0x0123456789abcdefull);
	assert_true(*word == 0x0123456789abcdffull);

	assert_int_equal(post_atomic(&pair, IBV_WR_ATOMIC_CMP_AND_SWP, (uintptr_t)word,
				     pair.b.mr->rkey, 1, 2, 8),
			 0);
	edge_expect(pair.a.cq, 1, IBV_WC_SUCCESS);
	assert_true(*old == 0x0123456789abcdffull); /* no match: unchanged */
	assert_true(*word == 0x0123456789abcdffull);
	assert_int_equal(post_atomic(&pair, IBV_WR_ATOMIC_CMP_AND_SWP, (uintptr_t)word,
				     pair.b.mr->rkey, 0x0123456789abcdffull, 2, 8),
			 0);
	edge_expect(pair.a.cq, 1, IBV_WC_SUCCESS);
	assert_true(*old == 0x0123456789abcdffull);
	assert_true(*word == 2);
	edge_close(&pair);
}

static void unaligned_is_invalid(void **state)
{
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){0});
	assert_int_equal(post_atomic(&pair, IBV_WR_ATOMIC_FETCH_AND_ADD,
				     (uintptr_t)pair.b.buffer + 4, pair.b.mr->rkey, 1, 0, 8),
			 0);
	edge_expect(pair.a.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	edge_close(&pair);
}

static void region_without_the_right(void **state)
{
	struct edge_pair pair;
	struct ibv_mr *mr;

	edge_open(&pair, &(struct edge_options){0});
	mr = ibv_reg_mr(pair.b.pd, pair.b.buffer, 64,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	assert_non_null(mr);
	assert_int_equal(post_atomic(&pair, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)pair.b.buffer,
				     mr->rkey, 1, 0, 8),
			 0);
	edge_expect(pair.a.cq, 1, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	edge_close(&pair);
}

static void expect_invalid(const struct edge_options *options)
{
	struct edge_pair pair;

	edge_open(&pair, options);
	assert_int_equal(post_atomic(&pair, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)pair.b.buffer,
				     pair.b.mr->rkey, 1, 0, 8),
			 0);
	edge_expect(pair.a.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	edge_close(&pair);
}

static void qp_without_the_right(void **state)
{
	expect_invalid(&(struct edge_options){.qp_access = IBV_ACCESS_REMOTE_WRITE |
							   IBV_ACCESS_REMOTE_READ});
	expect_invalid(&(struct edge_options){.max_dest_rd_atomic = -1});
}

static void other_lengths_are_refused(void **state)
{
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){0});
	assert_int_equal(post_atomic(&pair, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)pair.b.buffer,
				     pair.b.mr->rkey, 1, 0, 4),
			 EINVAL);
	assert_int_equal(post_atomic(&pair, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)pair.b.buffer,
				     pair.b.mr->rkey, 1, 0, 16),
			 EINVAL);
	edge_expect_none(pair.a.cq);
	edge_close(&pair);
}

struct adder {
	struct edge_pair pair;
	pthread_t thread;
	uint64_t target;
	uint32_t rkey;
	bool ok;
};

/* Each thread has a QP of its own and keeps 16 additions under way. */
static void *add_many(void *argument)
{
	struct adder *adder = argument;
	uint32_t posted = 0, done = 0;
	struct ibv_wc wc[16];

	adder->ok = true;
	while (done < ADDS && adder->ok) {
		int n;

		while (posted < ADDS && posted - done < 16 && adder->ok)
			if (post_atomic(&adder->pair, IBV_WR_ATOMIC_FETCH_AND_ADD, adder->target,
					adder->rkey, 1, 0, 8) == 0)
				posted++;
			else
				adder->ok = false;
		n = ibv_poll_cq(adder->pair.a.cq, 16, wc);
		for (int i = 0; i < n; i++)
			adder->ok &= wc[i].status == IBV_WC_SUCCESS;
		done += (uint32_t)n;
	}
	return NULL;
}

static void four_threads_sum_exactly(void **state)
{
	static struct adder adders[THREADS];
	static uint64_t word;
	struct ibv_mr *mr[THREADS];

	word = 0;
	for (int i = 0; i < THREADS; i++) {
		edge_open(&adders[i].pair,
			  &(struct edge_options){.max_rd_atomic = 8, .max_dest_rd_atomic = 8});
		mr[i] = ibv_reg_mr(adders[i].pair.b.pd, &word, 8, EDGE_ALL_ACCESS);
		assert_non_null(mr[i]);
		adders[i].target = (uintptr_t)&word;
		adders[i].rkey = mr[i]->rkey;
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&adders[i].thread, NULL, add_many, &adders[i]), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(adders[i].thread, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		assert_true(adders[i].ok);
	assert_true(word == (uint64_t)THREADS * ADDS);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(ibv_dereg_mr(mr[i]), 0);
		edge_close(&adders[i].pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_in_host_order),
		cmocka_unit_test(unaligned_is_invalid),
		cmocka_unit_test(region_without_the_right),
		cmocka_unit_test(qp_without_the_right),
		cmocka_unit_test(other_lengths_are_refused),
		cmocka_unit_test(four_threads_sum_exactly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
