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

/* It waits for a receive; what its region is when there is one counts, as it does for packets. */
static const struct change {
	int what; /* IBV_REREG_MR_CHANGE_... */
	uint32_t skip;
	int access;
	enum ibv_wc_status status;
} changes[] = {
	{IBV_REREG_MR_CHANGE_ACCESS, 0, IBV_ACCESS_REMOTE_READ, IBV_WC_SUCCESS},
	{IBV_REREG_MR_CHANGE_TRANSLATION, 0, 0, IBV_WC_SUCCESS}, /* grows */
	{IBV_REREG_MR_CHANGE_TRANSLATION, LONG, 0, IBV_WC_LOC_PROT_ERR},
	{IBV_REREG_MR_CHANGE_TRANSLATION, 1, 0, IBV_WC_LOC_PROT_ERR},
	{IBV_REREG_MR_CHANGE_PD, 0, 0, IBV_WC_LOC_PROT_ERR},
};

static void from_changed(const struct change *change)
{
	struct edge_pair pair;
	struct edge_end *a = &pair.a, *b = &pair.b;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_sge sge;

	edge_open(&pair, &usual);
	pd = ibv_alloc_pd(a->context);
	mr = ibv_reg_mr(a->pd, a->buffer, LONG, IBV_ACCESS_LOCAL_WRITE);
	assert_true(pd && mr);
	sge = (struct ibv_sge){(uintptr_t)a->buffer, LONG, mr->lkey};
	memset(b->buffer, 0x5a, EDGE_BUFFER);
	edge_fill(a->buffer, LONG, 9);
	post(a, 1, IBV_WR_SEND, &sge, 1);
	edge_expect_none(a->cq);
	assert_int_equal(ibv_rereg_mr(mr, change->what, pd, a->buffer + change->skip,
				      EDGE_BUFFER - change->skip, change->access),
			 0);
	edge_post_recv(b, 2, 0, LONG);
	edge_expect(a->cq, 1, change->status);
	if (change->status == IBV_WC_SUCCESS) {
		edge_expect(b->cq, 2, IBV_WC_SUCCESS);
		assert_true(edge_is_filled(b->buffer, LONG, 9));
	} else {
		assert_int_equal(b->buffer[LONG - 1], 0x5a);
	}
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	edge_close(&pair);
}

static void from_a_region_that_changes(void **state)
{
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
		from_changed(&changes[i]);
}

static uint8_t *map_area(void)
{
	uint8_t *area =
		mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(area != MAP_FAILED);
	return area;
}

/* Under the same addresses: its old memory is gone by then. */
static void from_a_region_that_moves(void **state)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED;
	uint8_t *before = map_area(), *after = map_area();
	struct edge_pair pair;
	struct ibv_sge sge;
	struct ibv_mr *mr;

	edge_open(&pair, &usual);
	mr = ibv_reg_mr(pair.a.pd, before, LONG, access);
	assert_non_null(mr);
	sge = (struct ibv_sge){0, LONG, mr->lkey};
	edge_fill(before, LONG, 10);
	edge_fill(after, LONG, 11);
	post(&pair.a, 1, IBV_WR_SEND, &sge, 1);
	edge_expect_none(pair.a.cq);
	assert_int_equal(ibv_rereg_mr(mr,
				      IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS,
				      NULL, after, LONG, access),
			 0);
	munmap(before, LONG);
	edge_post_recv(&pair.b, 2, 0, LONG);
	edge_expect(pair.b.cq, 2, IBV_WC_SUCCESS);
	edge_expect(pair.a.cq, 1, IBV_WC_SUCCESS);
	assert_true(edge_is_filled(pair.b.buffer, LONG, 11));
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(after, LONG);
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
	uint8_t *area = map_area();

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

static void on_demand_and_unmapped_meanwhile(void **state)
{
	struct edge_pair pair;
	struct ibv_sge sge;
	struct ibv_mr *mr;
	uint8_t *area = map_area();

	edge_open(&pair, &usual);
	mr = ibv_reg_mr(pair.a.pd, area, LONG, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	assert_non_null(mr);
	edge_fill(area, LONG, 13);
	memset(pair.b.buffer, 0x5a, EDGE_BUFFER);
	sge = (struct ibv_sge){(uintptr_t)area, LONG, mr->lkey};
	post(&pair.a, 1, IBV_WR_SEND, &sge, 1);
	edge_expect_none(pair.a.cq);
	munmap(area, LONG);
	edge_post_recv(&pair.b, 2, 0, LONG);
	edge_expect(pair.a.cq, 1, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(pair.b.buffer[LONG - 1], 0x5a);
	assert_int_equal(ibv_dereg_mr(mr), 0);
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

/* --- with invalidate ---------------------------------------------------------------------- */

static uint32_t bind_window(struct edge_end *end, struct ibv_mw *mw, struct ibv_mr *mr)
{
	const uint32_t key = ibv_inc_rkey(mw->rkey);
	struct ibv_send_wr *bad, wr = {
					 .wr_id = 70,
					 .opcode = IBV_WR_BIND_MW,
					 .send_flags = IBV_SEND_SIGNALED,
					 .bind_mw = {.mw = mw, .rkey = key},
				 };

	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){mr, (uintptr_t)end->buffer, EDGE_BUFFER,
							 IBV_ACCESS_REMOTE_WRITE};
	assert_int_equal(ibv_post_send(end->qp, &wr, &bad), 0);
	edge_expect(end->cq, 70, IBV_WC_SUCCESS);
	return key;
}

static void send_and_invalidate(struct edge_pair *pair, uint32_t key)
{
	struct ibv_sge sge = {(uintptr_t)pair->a.buffer, LONG, pair->a.mr->lkey};
	struct ibv_send_wr *bad, wr = {
					 .wr_id = 71,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND_WITH_INV,
					 .send_flags = IBV_SEND_SIGNALED,
					 .invalidate_rkey = key,
				 };

	edge_post_recv(&pair->b, 72, 0, LONG);
	assert_int_equal(ibv_post_send(pair->a.qp, &wr, &bad), 0);
}

static void write_into(struct edge_pair *pair, uint32_t key, enum ibv_wc_status status)
{
	struct ibv_sge sge = {(uintptr_t)pair->a.buffer, 8, pair->a.mr->lkey};
	struct ibv_send_wr *bad, wr = {
					 .wr_id = 73,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_WRITE,
					 .send_flags = IBV_SEND_SIGNALED,
					 .wr.rdma = {(uintptr_t)pair->b.buffer, key},
				 };

	assert_int_equal(ibv_post_send(pair->a.qp, &wr, &bad), 0);
	edge_expect(pair->a.cq, 73, status);
	if (status != IBV_WC_SUCCESS)
		edge_reconnect(pair);
}

static void that_take_a_window_back(void **state)
{
	struct edge_pair pair;
	struct edge_end *b = &pair.b;
	struct ibv_mw *mw;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	uint32_t key;

	edge_open(&pair, &usual);
	mr = ibv_reg_mr(b->pd, b->buffer, EDGE_BUFFER, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(b->pd, IBV_MW_TYPE_2);
	assert_true(mr && mw);
	key = bind_window(b, mw, mr);
	write_into(&pair, key, IBV_WC_SUCCESS);
	edge_fill(pair.a.buffer, LONG, 12);
	send_and_invalidate(&pair, key);
	wc = edge_expect(b->cq, 72, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, LONG);
	assert_int_equal(wc.wc_flags, IBV_WC_WITH_INV);
	assert_int_equal(wc.invalidated_rkey, key);
	assert_true(edge_is_filled(b->buffer, LONG, 12));
	edge_expect(pair.a.cq, 71, IBV_WC_SUCCESS);
	write_into(&pair, key, IBV_WC_REM_ACCESS_ERR);
	send_and_invalidate(&pair, mr->rkey); /* that is no window */
	edge_expect(b->cq, 72, IBV_WC_REM_INV_REQ_ERR);
	edge_expect(pair.a.cq, 71, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	edge_close(&pair);
}

/* --- device memory ------------------------------------------------------------------------ */

#define DEVICE_BYTES (512u << 10) /* twice that is all there is */

static struct ibv_mr *device_memory(struct edge_end *end, struct ibv_dm **dm)
{
	struct ibv_alloc_dm_attr attr = {.length = DEVICE_BYTES};
	struct ibv_mr *mr;

	*dm = ibv_alloc_dm(end->context, &attr);
	assert_non_null(*dm);
	mr = ibv_reg_dm_mr(end->pd, *dm, 0, DEVICE_BYTES,
			   IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	return mr;
}

/* From an offset where it is device memory, and so that what is behind it stays. */
static void through_device_memory(void **state)
{
	struct edge_pair pair;
	struct edge_end *a = &pair.a, *b = &pair.b;
	struct ibv_dm *from, *to;
	struct ibv_mr *from_mr, *to_mr;
	struct ibv_sge sges[2];

	edge_open(&pair, &usual);
	from_mr = device_memory(a, &from);
	to_mr = device_memory(b, &to);
	for (uint32_t which = 1; which < 4; which++) {
		const bool is_from = which & 1, is_to = which & 2;

		edge_fill(a->buffer, DEVICE_BYTES + 4, which);
		assert_int_equal(ibv_memcpy_to_dm(from, 0, a->buffer + 4, DEVICE_BYTES), 0);
		memset(b->buffer, 0x5a, EDGE_BUFFER);
		assert_int_equal(ibv_memcpy_to_dm(to, 0, b->buffer, DEVICE_BYTES), 0);
		sges[0] = (struct ibv_sge){(uintptr_t)a->buffer, 4, a->mr->lkey};
		sges[1] = (struct ibv_sge){is_from ? 0 : (uintptr_t)a->buffer + 4, DEVICE_BYTES - 4,
					   is_from ? from_mr->lkey : a->mr->lkey};
		post(a, 1, IBV_WR_SEND, sges, 2);
		sges[0] = (struct ibv_sge){(uintptr_t)b->buffer, 8, b->mr->lkey};
		sges[1] = (struct ibv_sge){is_to ? 0 : (uintptr_t)b->buffer + 8, DEVICE_BYTES,
					   is_to ? to_mr->lkey : b->mr->lkey};
		post_recv(b, 2, sges, 2);
		assert_int_equal(edge_expect(b->cq, 2, IBV_WC_SUCCESS).byte_len, DEVICE_BYTES);
		edge_expect(a->cq, 1, IBV_WC_SUCCESS);
		if (is_to)
			assert_int_equal(ibv_memcpy_from_dm(b->buffer + 8, to, 0, DEVICE_BYTES), 0);
		assert_true(edge_is_filled(b->buffer, DEVICE_BYTES, which));
		for (uint32_t i = 0; i < 8; i++)
			assert_int_equal(b->buffer[DEVICE_BYTES + i], 0x5a);
	}
	assert_int_equal(ibv_dereg_mr(from_mr), 0);
	assert_int_equal(ibv_dereg_mr(to_mr), 0);
	assert_int_equal(ibv_free_dm(from), 0);
	assert_int_equal(ibv_free_dm(to), 0);
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
		cmocka_unit_test(from_a_region_that_changes),
		cmocka_unit_test(from_a_region_that_moves),
		cmocka_unit_test(into_what_is_read_only),
		cmocka_unit_test(on_demand),
		cmocka_unit_test(on_demand_and_unmapped_meanwhile),
		cmocka_unit_test(from_nothing_into_nothing),
		cmocka_unit_test(without_retries),
		cmocka_unit_test(into_a_shared_queue),
		cmocka_unit_test(that_take_a_window_back),
		cmocka_unit_test(through_device_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
