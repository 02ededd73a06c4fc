/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_long_sends.c - SENDs that are long enough for their receiver to fetch them: they arrive, and
 * fail, as short ones do.
 */
#define _GNU_SOURCE
#include "edge.h"

#include <sys/mman.h>

#define LONG 600000u /* and not a multiple of anything */
#define HALF (EDGE_BUFFER / 2)

static const struct edge_options usual = {.mtu = IBV_MTU_4096};

static void post(struct edge_end *from, uint64_t wr_id, enum ibv_wr_opcode opcode,
		 struct ibv_sge *sges, int count)
{
	struct ibv_send_wr *bad, wr = {
					 .wr_id = wr_id,
					 .sg_list = sges,
					 .num_sge = count,
					 .opcode = opcode,
					 .send_flags = IBV_SEND_SIGNALED,
					 .imm_data = htobe32(0x01020304),
				 };

	assert_int_equal(ibv_post_send(from->qp, &wr, &bad), 0);
}

static void post_recv(struct edge_end *end, uint64_t wr_id, struct ibv_sge *sges, int count)
{
	struct ibv_recv_wr *bad, wr = {.wr_id = wr_id, .sg_list = sges, .num_sge = count};

	assert_int_equal(ibv_post_recv(end->qp, &wr, &bad), 0);
}

static void in_many_parts(void **state)
{
	struct edge_pair pair;
	struct edge_end *a = &pair.a, *b = &pair.b;
	struct ibv_sge from[3], to[2];
	struct ibv_wc wc;

	edge_open(&pair, &usual);
	edge_fill(a->buffer, LONG, 1);
	memset(b->buffer, 0, EDGE_BUFFER);
	from[0] = (struct ibv_sge){(uintptr_t)a->buffer, 5, a->mr->lkey};
	from[1] = (struct ibv_sge){(uintptr_t)a->buffer + 5, 300001, a->mr->lkey};
	from[2] = (struct ibv_sge){(uintptr_t)a->buffer + 300006, LONG - 300006, a->mr->lkey};
	to[0] = (struct ibv_sge){(uintptr_t)b->buffer + 1, 70007, b->mr->lkey};
	to[1] = (struct ibv_sge){(uintptr_t)b->buffer + 70008, LONG, b->mr->lkey};
	post_recv(b, 7, to, 2);
	post(a, 8, IBV_WR_SEND_WITH_IMM, from, 3);
	wc = edge_expect(b->cq, 7, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, LONG);
	assert_true(wc.wc_flags & IBV_WC_WITH_IMM);
	assert_int_equal(be32toh(wc.imm_data), 0x01020304);
	edge_expect(a->cq, 8, IBV_WC_SUCCESS);
	assert_true(edge_is_filled(b->buffer + 1, LONG, 1));
	assert_int_equal(b->buffer[LONG + 1], 0);
	edge_close(&pair);
}

/* Behind a WRITE and before a short SEND, each seen by the completion of what came after it. */
static void in_order(void **state)
{
	struct edge_pair pair;
	struct edge_end *a = &pair.a, *b = &pair.b;

	edge_open(&pair, &usual);
	for (uint32_t i = 0; i < 20; i++) {
		edge_fill(a->buffer, LONG, i);
		edge_fill(a->buffer + LONG, 1000, i + 100);
		edge_fill(a->buffer + LONG + 1000, 8, i + 200);
		edge_post_recv(b, 1, 0, LONG);
		edge_post_recv(b, 2, LONG + 1000, 8);
		assert_int_equal(edge_post(a, b, 11, IBV_WR_RDMA_WRITE, LONG, 1000), 0);
		assert_int_equal(edge_post(a, b, 12, IBV_WR_SEND, 0, LONG), 0);
		assert_int_equal(edge_post(a, b, 13, IBV_WR_SEND, LONG + 1000, 8), 0);
		edge_expect(b->cq, 1, IBV_WC_SUCCESS);
		assert_true(edge_is_filled(b->buffer, LONG, i));
		assert_true(edge_is_filled(b->buffer + LONG, 1000, i + 100));
		edge_expect(b->cq, 2, IBV_WC_SUCCESS);
		assert_true(edge_is_filled(b->buffer + LONG + 1000, 8, i + 200));
		for (uint64_t id = 11; id <= 13; id++)
			edge_expect(a->cq, id, IBV_WC_SUCCESS);
	}
	edge_close(&pair);
}

/* More than one packet's worth of what is lent: the buffer as several SGEs, several times over. */
static void of_many_megabytes(void **state)
{
	static const struct edge_options options = {
		.mtu = IBV_MTU_4096, .cap = {4, 4, 8, 8, 0}, .cap_is_exact = true};
	struct edge_pair pair;
	struct ibv_sge from[8], to[8];

	edge_open(&pair, &options);
	edge_fill(pair.a.buffer, EDGE_BUFFER, 3);
	for (int i = 0; i < 8; i++) {
		from[i] = (struct ibv_sge){(uintptr_t)pair.a.buffer + (uint32_t)i, EDGE_BUFFER - 8,
					   pair.a.mr->lkey};
		to[i] = (struct ibv_sge){(uintptr_t)pair.b.buffer, EDGE_BUFFER - 8,
					 pair.b.mr->lkey};
	}
	post_recv(&pair.b, 1, to, 8);
	post(&pair.a, 2, IBV_WR_SEND, from, 8);
	assert_int_equal(edge_expect(pair.b.cq, 1, IBV_WC_SUCCESS).byte_len, 8 * (EDGE_BUFFER - 8));
	edge_expect(pair.a.cq, 2, IBV_WC_SUCCESS);
	assert_memory_equal(pair.b.buffer, pair.a.buffer + 7, EDGE_BUFFER - 8);
	edge_close(&pair);
}

static void before_there_is_a_receive(void **state)
{
	struct edge_pair pair;
	struct edge_end *a = &pair.a, *b = &pair.b;

	edge_open(&pair, &usual);
	edge_fill(a->buffer, LONG, 4);
	assert_int_equal(edge_post(a, b, 1, IBV_WR_SEND, 0, LONG), 0);
	edge_expect_none(a->cq);
	edge_post_recv(b, 2, 0, LONG);
	edge_expect(b->cq, 2, IBV_WC_SUCCESS);
	edge_expect(a->cq, 1, IBV_WC_SUCCESS);
	assert_true(edge_is_filled(b->buffer, LONG, 4));
	edge_close(&pair);
}

static void longer_than_the_receive(void **state)
{
	struct edge_pair pair;
	struct edge_end *a = &pair.a, *b = &pair.b;

	edge_open(&pair, &usual);
	edge_post_recv(b, 1, 0, LONG - 1);
	memset(b->buffer, 0x5a, EDGE_BUFFER);
	assert_int_equal(edge_post(a, b, 2, IBV_WR_SEND, 0, LONG), 0);
	edge_expect(b->cq, 1, IBV_WC_LOC_LEN_ERR);
	edge_expect(a->cq, 2, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(b->buffer[LONG - 1], 0x5a);
	edge_reconnect(&pair);
	edge_post_recv(b, 3, 0, LONG);
	assert_int_equal(edge_post(a, b, 4, IBV_WR_SEND, 0, LONG), 0);
	edge_expect(b->cq, 3, IBV_WC_SUCCESS);
	edge_expect(a->cq, 4, IBV_WC_SUCCESS);
	edge_close(&pair);
}

/* The region goes while its message waits for a receive. */
static void from_a_region_that_goes(void **state)
{
	struct edge_pair pair;
	struct edge_end *a = &pair.a, *b = &pair.b;
	struct ibv_mr *mr;
	struct ibv_sge sge;

	edge_open(&pair, &usual);
	mr = ibv_reg_mr(a->pd, a->buffer, LONG, 0);
	assert_non_null(mr);
	sge = (struct ibv_sge){(uintptr_t)a->buffer, LONG, mr->lkey};
	memset(b->buffer, 0x5a, EDGE_BUFFER);
	edge_fill(a->buffer, LONG, 5);
	post(a, 1, IBV_WR_SEND, &sge, 1);
	edge_expect_none(a->cq);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	edge_post_recv(b, 2, 0, LONG);
	edge_expect(a->cq, 1, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(b->buffer[LONG - 1], 0x5a);
	edge_close(&pair);
}

/* A receive buffer that may not be written: the same status as for a short message. */
static void into_what_is_read_only(void **state)
{
	struct edge_pair pair;
	struct edge_end *a = &pair.a, *b = &pair.b;
	struct ibv_mr *mr;
	struct ibv_sge sge;

	edge_open(&pair, &usual);
	mr = ibv_reg_mr(b->pd, b->buffer, LONG, IBV_ACCESS_REMOTE_READ);
	assert_non_null(mr);
	sge = (struct ibv_sge){(uintptr_t)b->buffer, LONG, mr->lkey};
	post_recv(b, 1, &sge, 1);
	assert_int_equal(edge_post(a, b, 2, IBV_WR_SEND, 0, LONG), 0);
	edge_expect(b->cq, 1, IBV_WC_LOC_PROT_ERR);
	edge_expect(a->cq, 2, IBV_WC_REM_OP_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	edge_close(&pair);
}

/* --- memory that only packets reach ------------------------------------------------------- */

static void send_from(struct edge_pair *pair, void *at, const struct ibv_mr *mr, uint64_t wr_id)
{
	struct ibv_sge sge = {(uintptr_t)at, LONG, mr->lkey};

	edge_post_recv(&pair->b, wr_id, 0, LONG);
	post(&pair->a, wr_id, IBV_WR_SEND, &sge, 1);
	edge_expect(pair->b.cq, wr_id, IBV_WC_SUCCESS);
	edge_expect(pair->a.cq, wr_id, IBV_WC_SUCCESS);
}

static void on_demand(void **state)
{
	struct edge_pair pair;
	struct ibv_sge sge;
	struct ibv_mr *mr;
	uint8_t *area =
		mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(area != MAP_FAILED);
	edge_open(&pair, &usual);
	mr = ibv_reg_mr(pair.a.pd, area, LONG, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	assert_non_null(mr);
	edge_fill(area, LONG, 6);
	send_from(&pair, area, mr, 1);
	assert_true(edge_is_filled(pair.b.buffer, LONG, 6));
	assert_int_equal(mprotect(area + 131072, 4096, PROT_NONE), 0);
	sge = (struct ibv_sge){(uintptr_t)area, LONG, mr->lkey};
	edge_post_recv(&pair.b, 2, 0, LONG);
	post(&pair.a, 2, IBV_WR_SEND, &sge, 1);
	edge_expect(pair.a.cq, 2, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(area, LONG);
	edge_close(&pair);
}

static void from_nothing_into_nothing(void **state)
{
	struct edge_pair pair;
	struct ibv_mr *null_a, *null_b;
	struct ibv_sge sge;

	edge_open(&pair, &usual);
	null_a = ibv_alloc_null_mr(pair.a.pd);
	null_b = ibv_alloc_null_mr(pair.b.pd);
	assert_true(null_a && null_b);
	memset(pair.b.buffer, 0x5a, LONG);
	send_from(&pair, NULL, null_a, 1);
	for (uint32_t i = 0; i < LONG; i++)
		assert_int_equal(pair.b.buffer[i], 0);
	sge = (struct ibv_sge){0, LONG, null_b->lkey};
	post_recv(&pair.b, 2, &sge, 1);
	assert_int_equal(edge_post(&pair.a, &pair.b, 3, IBV_WR_SEND, 0, LONG), 0);
	edge_expect(pair.b.cq, 2, IBV_WC_SUCCESS);
	edge_expect(pair.a.cq, 3, IBV_WC_SUCCESS);
	assert_int_equal(ibv_dereg_mr(null_a), 0);
	assert_int_equal(ibv_dereg_mr(null_b), 0);
	edge_close(&pair);
}

/* What packets alone do costs no attempt: there is none here. */
static void without_retries(void **state)
{
	static const struct edge_options options = {
		.mtu = IBV_MTU_4096, .retry_cnt = -1, .srq_at_b = true, .tm_at_b = true};
	struct edge_pair pair;
	struct ibv_sge sge;
	struct ibv_recv_wr *bad, wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1};
	struct ibv_poll_cq_attr none = {0};
	const double end = edge_seconds() + 20;

	edge_open(&pair, &options);
	sge = (struct ibv_sge){(uintptr_t)pair.b.buffer, EDGE_BUFFER, pair.b.srq_mr->lkey};
	assert_int_equal(ibv_post_srq_recv(pair.b.srq, &wr, &bad), 0);
	memset(pair.a.buffer, 0, 64); /* a header of tag matching that says: none */
	edge_fill(pair.a.buffer + 64, LONG - 64, 7);
	assert_int_equal(edge_post(&pair.a, &pair.b, 2, IBV_WR_SEND, 0, LONG), 0);
	edge_expect(pair.a.cq, 2, IBV_WC_SUCCESS);
	while (ibv_start_poll(pair.b.tm_cq, &none) != 0)
		assert_true(edge_seconds() < end);
	assert_int_equal(pair.b.tm_cq->wr_id, 1);
	assert_int_equal(pair.b.tm_cq->status, IBV_WC_SUCCESS);
	ibv_end_poll(pair.b.tm_cq);
	assert_true(edge_is_filled(pair.b.buffer + 64, LONG - 64, 7));
	edge_close(&pair);
}

static void into_a_shared_queue(void **state)
{
	static const struct edge_options options = {
		.mtu = IBV_MTU_4096, .srq_at_b = true, .srq_in_own_pd = true};
	struct edge_pair pair;
	struct ibv_sge sge;
	struct ibv_recv_wr *bad, wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1};

	edge_open(&pair, &options);
	sge = (struct ibv_sge){(uintptr_t)pair.b.buffer, LONG, pair.b.srq_mr->lkey};
	assert_int_equal(ibv_post_srq_recv(pair.b.srq, &wr, &bad), 0);
	edge_fill(pair.a.buffer, LONG, 8);
	assert_int_equal(edge_post(&pair.a, &pair.b, 2, IBV_WR_SEND, 0, LONG), 0);
	edge_expect(pair.b.cq, 1, IBV_WC_SUCCESS);
	edge_expect(pair.a.cq, 2, IBV_WC_SUCCESS);
	assert_true(edge_is_filled(pair.b.buffer, LONG, 8));
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_many_parts),
		cmocka_unit_test(in_order),
		cmocka_unit_test(of_many_megabytes),
		cmocka_unit_test(before_there_is_a_receive),
		cmocka_unit_test(longer_than_the_receive),
		cmocka_unit_test(from_a_region_that_goes),
		cmocka_unit_test(into_what_is_read_only),
		cmocka_unit_test(on_demand),
		cmocka_unit_test(from_nothing_into_nothing),
		cmocka_unit_test(without_retries),
		cmocka_unit_test(into_a_shared_queue),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
