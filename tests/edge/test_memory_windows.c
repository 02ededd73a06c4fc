/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_memory_windows.c - windows as storage targets use them: bound to a part of a region for one
 * request of a peer, which then takes the right back itself (SEND with invalidate), or which the
 * owner takes back (LOCAL_INV). No access is possible before, beside or after.
 */
#include "edge.h"

#define AT 4096u     /* where windows begin, and what is written at a */
#define LENGTH 3000u /* three packets */

static const struct edge_options usual;

struct bench {
	struct edge_pair pair;
	struct ibv_mr *mr; /* of b: the whole buffer, for windows only */
	struct ibv_mw *mw;
};

static void set_up(struct bench *x, const struct edge_options *options, enum ibv_mw_type type)
{
	edge_open(&x->pair, options);
	x->mr = ibv_reg_mr(x->pair.b.pd, x->pair.b.buffer, EDGE_BUFFER,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	assert_non_null(x->mr);
	x->mw = ibv_alloc_mw(x->pair.b.pd, type);
	assert_non_null(x->mw);
	assert_int_equal(x->mw->type, type);
	assert_ptr_equal(x->mw->pd, x->pair.b.pd);
	assert_ptr_equal(x->mw->context, x->pair.b.context);
}

static void tear_down(struct bench *x)
{
	assert_int_equal(ibv_dealloc_mw(x->mw), 0);
	assert_int_equal(ibv_dereg_mr(x->mr), 0);
	edge_close(&x->pair);
}

static struct ibv_mw_bind_info info_of(const struct bench *x, unsigned int access)
{
	return (struct ibv_mw_bind_info){
		.mr = x->mr,
		.addr = (uintptr_t)x->pair.b.buffer + AT,
		.length = LENGTH,
		.mw_access_flags = access,
	};
}

static int post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	int error = ibv_post_send(qp, wr, &bad);

	if (error)
		assert_ptr_equal(bad, wr);
	return error;
}

static struct ibv_send_wr bind_wr(struct bench *x, uint32_t key,
				  const struct ibv_mw_bind_info *info)
{
	return (struct ibv_send_wr){
		.wr_id = 70,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {.mw = x->mw, .rkey = key, .bind_info = *info},
	};
}

/* Binds in the way of the window's type; the key to use. */
static uint32_t bind_info(struct bench *x, const struct ibv_mw_bind_info *info,
			  enum ibv_wc_status status)
{
	uint32_t key = ibv_inc_rkey(x->mw->rkey);
	struct ibv_wc wc;

	if (x->mw->type == IBV_MW_TYPE_1) {
		struct ibv_mw_bind bind = {70, IBV_SEND_SIGNALED, *info};

		assert_int_equal(ibv_bind_mw(x->pair.b.qp, x->mw, &bind), 0);
		assert_int_equal(x->mw->rkey, key);
	} else {
		struct ibv_send_wr wr = bind_wr(x, key, info);

		assert_int_equal(post(x->pair.b.qp, &wr), 0);
	}
	wc = edge_expect(x->pair.b.cq, 70, status);
	if (status == IBV_WC_SUCCESS)
		assert_int_equal(wc.opcode, IBV_WC_BIND_MW);
	return key;
}

static uint32_t bind_usual(struct bench *x, unsigned int access)
{
	struct ibv_mw_bind_info info = info_of(x, access);

	return bind_info(x, &info, IBV_WC_SUCCESS);
}

/* a reaches into b by key. */
static void reach(struct bench *x, enum ibv_wr_opcode opcode, uint32_t key, uint64_t address,
		  uint32_t length, enum ibv_wc_status status)
{
	struct edge_end *a = &x->pair.a;
	struct ibv_sge sge = {(uintptr_t)a->buffer + AT, length, a->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = 71,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	};

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = address;
		wr.wr.atomic.rkey = key;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = address;
		wr.wr.rdma.rkey = key;
	}
	assert_int_equal(post(a->qp, &wr), 0);
	edge_expect(a->cq, 71, status);
	if (status != IBV_WC_SUCCESS)
		edge_reconnect(&x->pair);
}

static void write_at(struct bench *x, uint32_t key, uint32_t offset, uint32_t length,
		     enum ibv_wc_status status)
{
	reach(x, IBV_WR_RDMA_WRITE, key, (uintptr_t)x->pair.b.buffer + offset, length, status);
}

static void fill(struct bench *x, uint8_t value)
{
	memset(x->pair.a.buffer + AT, value, LENGTH);
	memset(x->pair.b.buffer, 0, 3 * AT);
}

static void a_part_is_open_and_nothing_else(void **state)
{
	for (int type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; type++) {
		struct bench x;
		uint32_t key;

		set_up(&x, &usual, (enum ibv_mw_type)type);
		fill(&x, 0x51);
		write_at(&x, x.mw->rkey, AT, 1, IBV_WC_REM_ACCESS_ERR);
		write_at(&x, x.mr->rkey, AT, 1, IBV_WC_REM_ACCESS_ERR);
		key = bind_usual(&x, IBV_ACCESS_REMOTE_WRITE);
		write_at(&x, key, AT, LENGTH, IBV_WC_SUCCESS);
		assert_memory_equal(x.pair.b.buffer + AT, x.pair.a.buffer + AT, LENGTH);
		write_at(&x, key, AT - 1, 2, IBV_WC_REM_ACCESS_ERR);
		write_at(&x, key, AT + LENGTH - 1, 2, IBV_WC_REM_ACCESS_ERR);
		assert_int_equal(x.pair.b.buffer[AT - 1], 0);
		assert_int_equal(x.pair.b.buffer[AT + LENGTH], 0);
		reach(&x, IBV_WR_RDMA_READ, key, (uintptr_t)x.pair.b.buffer + AT, 8,
		      IBV_WC_REM_ACCESS_ERR);
		tear_down(&x);
	}
}

static void reads_and_atomics_by_their_rights(void **state)
{
	struct bench x;
	uint64_t at;
	uint32_t key;

	set_up(&x, &usual, IBV_MW_TYPE_1);
	at = (uintptr_t)x.pair.b.buffer + AT;
	fill(&x, 0);
	memset(x.pair.b.buffer + AT, 0x33, LENGTH);
	key = bind_usual(&x, IBV_ACCESS_REMOTE_READ);
	reach(&x, IBV_WR_RDMA_READ, key, at, LENGTH, IBV_WC_SUCCESS);
	assert_memory_equal(x.pair.a.buffer + AT, x.pair.b.buffer + AT, LENGTH);
	reach(&x, IBV_WR_ATOMIC_FETCH_AND_ADD, key, at, 8, IBV_WC_REM_ACCESS_ERR);
	key = bind_usual(&x, IBV_ACCESS_REMOTE_ATOMIC);
	reach(&x, IBV_WR_ATOMIC_FETCH_AND_ADD, key, at, 8, IBV_WC_SUCCESS);
	assert_int_equal(*(uint64_t *)(uintptr_t)at, 0x3333333333333334);
	reach(&x, IBV_WR_RDMA_READ, key, at, 8, IBV_WC_REM_ACCESS_ERR);
	tear_down(&x);
}

static void addresses_from_zero(void **state)
{
	struct bench x;
	uint32_t key;

	set_up(&x, &usual, IBV_MW_TYPE_2);
	fill(&x, 0x52);
	key = bind_usual(&x, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED);
	reach(&x, IBV_WR_RDMA_WRITE, key, 0, LENGTH, IBV_WC_SUCCESS);
	assert_memory_equal(x.pair.b.buffer + AT, x.pair.a.buffer + AT, LENGTH);
	write_at(&x, key, AT, 1, IBV_WC_REM_ACCESS_ERR);
	tear_down(&x);
}

static void type_1_is_bound_anew(void **state)
{
	struct bench x;
	struct ibv_mw_bind_info info;
	uint32_t first, second;

	set_up(&x, &usual, IBV_MW_TYPE_1);
	fill(&x, 0x53);
	first = bind_usual(&x, IBV_ACCESS_REMOTE_WRITE);
	second = bind_usual(&x, IBV_ACCESS_REMOTE_WRITE);
	assert_int_not_equal(first, second);
	write_at(&x, first, AT, 1, IBV_WC_REM_ACCESS_ERR);
	write_at(&x, second, AT, 1, IBV_WC_SUCCESS);
	/* no length: to nothing */
	info = (struct ibv_mw_bind_info){.mr = x.mr, .addr = (uintptr_t)x.pair.b.buffer};
	first = bind_info(&x, &info, IBV_WC_SUCCESS);
	write_at(&x, second, AT, 1, IBV_WC_REM_ACCESS_ERR);
	write_at(&x, first, AT, 1, IBV_WC_REM_ACCESS_ERR);
	tear_down(&x);
}

static void invalidate_locally(struct bench *x, uint32_t key, enum ibv_wc_status status)
{
	struct ibv_send_wr wr = {
		.wr_id = 72,
		.opcode = IBV_WR_LOCAL_INV,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE,
		.invalidate_rkey = key,
	};
	struct ibv_wc wc;

	assert_int_equal(post(x->pair.b.qp, &wr), 0);
	wc = edge_expect(x->pair.b.cq, 72, status);
	if (status == IBV_WC_SUCCESS)
		assert_int_equal(wc.opcode, IBV_WC_LOCAL_INV);
	else
		edge_reconnect(&x->pair);
}

static void the_owner_takes_it_back(void **state)
{
	struct bench x;
	uint32_t key;

	set_up(&x, &usual, IBV_MW_TYPE_2);
	fill(&x, 0x54);
	key = bind_usual(&x, IBV_ACCESS_REMOTE_WRITE);
	write_at(&x, key, AT, LENGTH, IBV_WC_SUCCESS);
	invalidate_locally(&x, key, IBV_WC_SUCCESS);
	fill(&x, 0x55);
	write_at(&x, key, AT, LENGTH, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(x.pair.b.buffer[AT], 0);
	x.mw->rkey = key;
	key = bind_usual(&x, IBV_ACCESS_REMOTE_WRITE);
	write_at(&x, key, AT, LENGTH, IBV_WC_SUCCESS);
	tear_down(&x);
}

static void send_inv(struct bench *x, uint32_t key, uint32_t length)
{
	struct edge_end *a = &x->pair.a;
	struct ibv_sge sge = {(uintptr_t)a->buffer + AT, length, a->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = 73,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND_WITH_INV,
		.send_flags = IBV_SEND_SIGNALED | (length <= 64 ? IBV_SEND_INLINE : 0),
		.invalidate_rkey = key,
	};

	edge_post_recv(&x->pair.b, 74, 0, EDGE_BUFFER);
	assert_int_equal(post(a->qp, &wr), 0);
}

static void the_peer_gives_it_back(void **state)
{
	static const uint32_t lengths[] = {0, 10, 1024, LENGTH};
	struct bench x;

	set_up(&x, &usual, IBV_MW_TYPE_2);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint32_t key = bind_usual(&x, IBV_ACCESS_REMOTE_WRITE);
		struct ibv_wc wc;

		fill(&x, 0x56);
		write_at(&x, key, AT, LENGTH, IBV_WC_SUCCESS);
		send_inv(&x, key, lengths[i]);
		wc = edge_expect(x.pair.b.cq, 74, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_int_equal(wc.wc_flags, IBV_WC_WITH_INV);
		assert_int_equal(wc.invalidated_rkey, key);
		assert_int_equal(wc.byte_len, lengths[i]);
		assert_memory_equal(x.pair.b.buffer, x.pair.a.buffer + AT, lengths[i]);
		wc = edge_expect(x.pair.a.cq, 73, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_SEND);
		write_at(&x, key, AT, LENGTH, IBV_WC_REM_ACCESS_ERR);
		x.mw->rkey = key;
	}
	tear_down(&x);
}

static void a_peer_takes_back_only_windows(void **state)
{
	struct bench x;
	uint32_t keys[3];

	set_up(&x, &usual, IBV_MW_TYPE_1);
	keys[0] = bind_usual(&x, IBV_ACCESS_REMOTE_WRITE);
	keys[1] = x.mr->rkey;
	keys[2] = 0;
	for (int i = 0; i < 3; i++) {
		send_inv(&x, keys[i], 8);
		edge_expect(x.pair.b.cq, 74, IBV_WC_REM_INV_REQ_ERR);
		edge_expect(x.pair.a.cq, 73, IBV_WC_REM_ACCESS_ERR);
		assert_int_equal(edge_state(x.pair.a.qp), IBV_QPS_ERR);
		assert_int_equal(edge_state(x.pair.b.qp), IBV_QPS_ERR);
		edge_reconnect(&x.pair);
		invalidate_locally(&x, keys[i], IBV_WC_MW_BIND_ERR);
	}
	/* and what was not taken back is open */
	write_at(&x, keys[0], AT, LENGTH, IBV_WC_SUCCESS);
	tear_down(&x);
}

static void binds_that_fail(void **state)
{
	struct bench x;
	struct ibv_mw_bind_info info;
	struct ibv_mr *plain;
	uint32_t key;

	set_up(&x, &usual, IBV_MW_TYPE_2);
	info = info_of(&x, IBV_ACCESS_REMOTE_WRITE);
	info.addr = (uintptr_t)x.pair.b.buffer + EDGE_BUFFER - LENGTH + 1;
	bind_info(&x, &info, IBV_WC_MW_BIND_ERR);
	assert_int_equal(edge_state(x.pair.b.qp), IBV_QPS_ERR);
	edge_reconnect(&x.pair);
	info = info_of(&x, IBV_ACCESS_REMOTE_WRITE);
	info.mr = x.pair.b.mr; /* not for windows */
	bind_info(&x, &info, IBV_WC_MW_BIND_ERR);
	edge_reconnect(&x.pair);
	plain = ibv_reg_mr(x.pair.b.pd, x.pair.b.buffer, EDGE_BUFFER, IBV_ACCESS_MW_BIND);
	info.mr = plain; /* not to be written */
	bind_info(&x, &info, IBV_WC_MW_BIND_ERR);
	edge_reconnect(&x.pair);
	assert_int_equal(ibv_dereg_mr(plain), 0);
	info = info_of(&x, IBV_ACCESS_REMOTE_WRITE);
	info.length = 0;
	bind_info(&x, &info, IBV_WC_MW_BIND_ERR);
	edge_reconnect(&x.pair);
	key = bind_usual(&x, IBV_ACCESS_REMOTE_WRITE);
	info = info_of(&x, IBV_ACCESS_REMOTE_WRITE);
	bind_info(&x, &info, IBV_WC_MW_BIND_ERR); /* bound already */
	edge_reconnect(&x.pair);
	write_at(&x, key, AT, LENGTH, IBV_WC_SUCCESS);
	tear_down(&x);
}

/* A chain takes effect in its order: the key is good when the message that tells it arrives, and no
 * more once the last of the chain has completed. */
static void in_the_order_of_the_queue(void **state)
{
	struct bench x;
	struct edge_end *b = &x.pair.b;
	struct ibv_sge sge;
	struct ibv_mw_bind_info info;
	struct ibv_send_wr wr[3];
	uint32_t key;

	set_up(&x, &usual, IBV_MW_TYPE_2);
	fill(&x, 0x57);
	key = ibv_inc_rkey(x.mw->rkey);
	info = info_of(&x, IBV_ACCESS_REMOTE_WRITE);
	wr[0] = bind_wr(&x, key, &info);
	wr[0].next = &wr[1];
	wr[0].send_flags = 0;
	sge = (struct ibv_sge){(uintptr_t)b->buffer, 8, b->mr->lkey};
	wr[1] = (struct ibv_send_wr){.wr_id = 2,
				     .sg_list = &sge,
				     .num_sge = 1,
				     .opcode = IBV_WR_SEND,
				     .send_flags = IBV_SEND_SIGNALED};
	edge_post_recv(&x.pair.a, 1, 0, 8);
	assert_int_equal(post(b->qp, &wr[0]), 0);
	edge_expect(x.pair.a.cq, 1, IBV_WC_SUCCESS);
	write_at(&x, key, AT, LENGTH, IBV_WC_SUCCESS);
	edge_expect(b->cq, 2, IBV_WC_SUCCESS);
	/* SEND, LOCAL_INV, BIND again: completions in that order */
	edge_post_recv(&x.pair.a, 1, 0, 8);
	wr[0] = wr[1];
	wr[0].next = &wr[1];
	wr[1] = (struct ibv_send_wr){.wr_id = 3,
				     .opcode = IBV_WR_LOCAL_INV,
				     .next = &wr[2],
				     .send_flags = IBV_SEND_SIGNALED,
				     .invalidate_rkey = key};
	wr[2] = bind_wr(&x, ibv_inc_rkey(key), &info);
	assert_int_equal(post(b->qp, &wr[0]), 0);
	edge_expect(b->cq, 2, IBV_WC_SUCCESS);
	edge_expect(b->cq, 3, IBV_WC_SUCCESS);
	edge_expect(b->cq, 70, IBV_WC_SUCCESS);
	edge_expect(x.pair.a.cq, 1, IBV_WC_SUCCESS);
	write_at(&x, ibv_inc_rkey(key), AT, LENGTH, IBV_WC_SUCCESS);
	write_at(&x, key, AT, LENGTH, IBV_WC_REM_ACCESS_ERR);
	tear_down(&x);
}

static void what_is_bound_holds_its_region(void **state)
{
	struct bench x;
	uint32_t key;

	set_up(&x, &usual, IBV_MW_TYPE_2);
	fill(&x, 0x58);
	assert_int_equal(ibv_dealloc_pd(x.pair.b.pd), EBUSY);
	key = bind_usual(&x, IBV_ACCESS_REMOTE_WRITE);
	assert_int_equal(ibv_dereg_mr(x.mr), EBUSY);
	write_at(&x, key, AT, LENGTH, IBV_WC_SUCCESS);
	assert_int_equal(ibv_dealloc_mw(x.mw), 0);
	write_at(&x, key, AT, LENGTH, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(x.mr), 0);
	edge_close(&x.pair);
}

/* A request names a window and a region that are gone when its turn comes. */
static void gone_before_their_turn(void **state)
{
	struct bench x;
	struct ibv_mw_bind_info info;
	struct ibv_send_wr wr[2];
	struct ibv_sge sge;
	struct edge_end *b = &x.pair.b;

	set_up(&x, &usual, IBV_MW_TYPE_2);
	info = info_of(&x, IBV_ACCESS_REMOTE_WRITE);
	sge = (struct ibv_sge){(uintptr_t)b->buffer, 8, b->mr->lkey};
	wr[0] = (struct ibv_send_wr){.wr_id = 1,
				     .sg_list = &sge,
				     .num_sge = 1,
				     .next = &wr[1],
				     .opcode = IBV_WR_SEND,
				     .send_flags = IBV_SEND_SIGNALED};
	wr[1] = bind_wr(&x, ibv_inc_rkey(x.mw->rkey), &info);
	assert_int_equal(post(b->qp, &wr[0]), 0); /* waits for a receive */
	assert_int_equal(ibv_dealloc_mw(x.mw), 0);
	assert_int_equal(ibv_dereg_mr(x.mr), 0);
	edge_post_recv(&x.pair.a, 2, 0, 8);
	edge_expect(b->cq, 1, IBV_WC_SUCCESS);
	edge_expect(b->cq, 70, IBV_WC_MW_BIND_ERR);
	edge_expect(x.pair.a.cq, 2, IBV_WC_SUCCESS);
	edge_close(&x.pair);
}

static void wrong_arguments(void **state)
{
	struct bench x;
	struct ibv_device_attr device;
	struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr wr;
	struct ibv_pd *other;
	uint32_t before;

	set_up(&x, &usual, IBV_MW_TYPE_1);
	assert_int_equal(ibv_query_device(x.pair.b.context, &device), 0);
	assert_true(device.device_cap_flags & IBV_DEVICE_MEM_WINDOW);
	assert_true(device.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	assert_true(device.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS);
	assert_true(device.max_mw > 0);
	assert_null(ibv_alloc_mw(x.pair.b.pd, (enum ibv_mw_type)3));
	assert_int_equal(errno, EINVAL);
	before = x.mw->rkey;
	bind.bind_info = info_of(&x, IBV_ACCESS_REMOTE_WRITE);
	bind.send_flags = IBV_SEND_INLINE;
	assert_int_equal(ibv_bind_mw(x.pair.b.qp, x.mw, &bind), EINVAL);
	bind.send_flags = IBV_SEND_SIGNALED;
	bind.bind_info.mw_access_flags = IBV_ACCESS_ON_DEMAND;
	assert_int_equal(ibv_bind_mw(x.pair.b.qp, x.mw, &bind), EINVAL);
	bind.bind_info = info_of(&x, IBV_ACCESS_REMOTE_WRITE);
	bind.bind_info.mr = NULL;
	assert_int_equal(ibv_bind_mw(x.pair.b.qp, x.mw, &bind), EINVAL);
	bind.bind_info = info_of(&x, IBV_ACCESS_REMOTE_WRITE);
	assert_int_equal(ibv_bind_mw(x.pair.a.qp, x.mw, &bind), EINVAL); /* of another device */
	other = x.mw->pd;
	x.mw->pd = NULL;
	assert_int_equal(ibv_bind_mw(x.pair.b.qp, x.mw, &bind), EPERM);
	x.mw->pd = other;
	assert_int_equal(x.mw->rkey, before);
	/* a request is for type 2, the call for type 1 */
	wr = bind_wr(&x, ibv_inc_rkey(before), &bind.bind_info);
	assert_int_equal(post(x.pair.b.qp, &wr), EINVAL);
	wr.bind_mw.mw = NULL;
	assert_int_equal(post(x.pair.b.qp, &wr), EINVAL);
	x.mw->type = IBV_MW_TYPE_2;
	assert_int_equal(ibv_bind_mw(x.pair.b.qp, x.mw, &bind), EINVAL);
	x.mw->type = IBV_MW_TYPE_1;
	edge_expect_none(x.pair.b.cq);
	tear_down(&x);
}

static void on_an_unreliable_connection(void **state)
{
	static const struct edge_options uc = {.type = IBV_QPT_UC};
	struct bench x;
	struct ibv_send_wr inv = {.opcode = IBV_WR_SEND_WITH_INV};
	const volatile uint8_t *last;
	const double until = edge_seconds() + 20;
	uint32_t key;

	set_up(&x, &uc, IBV_MW_TYPE_2);
	fill(&x, 0x59);
	key = bind_usual(&x, IBV_ACCESS_REMOTE_WRITE);
	write_at(&x, key, AT, 1000, IBV_WC_SUCCESS);
	last = x.pair.b.buffer + AT + 999;
	while (*last != 0x59 && edge_seconds() < until)
		edge_expect_none(x.pair.b.cq);
	assert_memory_equal(x.pair.b.buffer + AT, x.pair.a.buffer + AT, 1000);
	assert_int_equal(post(x.pair.a.qp, &inv), EINVAL); /* has no such packet */
	invalidate_locally(&x, key, IBV_WC_SUCCESS);
	tear_down(&x);
}

static void by_the_functions_of_a_queue_pair(void **state)
{
	static const struct edge_options ex = {
		.send_ops = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV |
			    IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE};
	struct bench x;
	struct ibv_qp_ex *a, *b;
	struct ibv_mw_bind_info info;
	struct ibv_wc wc;
	uint32_t key;

	set_up(&x, &ex, IBV_MW_TYPE_2);
	a = ibv_qp_to_qp_ex(x.pair.a.qp);
	b = ibv_qp_to_qp_ex(x.pair.b.qp);
	fill(&x, 0x5a);
	info = info_of(&x, IBV_ACCESS_REMOTE_WRITE);
	key = ibv_inc_rkey(x.mw->rkey);
	for (int round = 0; round < 2; round++) {
		ibv_wr_start(b);
		b->wr_id = 1;
		b->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_bind_mw(b, x.mw, key, &info);
		assert_int_equal(ibv_wr_complete(b), 0);
		wc = edge_expect(x.pair.b.cq, 1, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_BIND_MW);
		write_at(&x, key, AT, LENGTH, IBV_WC_SUCCESS);
		if (round == 1)
			break;
		memcpy(x.pair.a.buffer, "back", 4);
		edge_post_recv(&x.pair.b, 2, 0, 64);
		ibv_wr_start(a);
		a->wr_id = 3;
		a->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send_inv(a, key);
		ibv_wr_set_inline_data(a, x.pair.a.buffer, 4);
		assert_int_equal(ibv_wr_complete(a), 0);
		edge_expect(x.pair.a.cq, 3, IBV_WC_SUCCESS);
		wc = edge_expect(x.pair.b.cq, 2, IBV_WC_SUCCESS);
		assert_int_equal(wc.invalidated_rkey, key);
		assert_memory_equal(x.pair.b.buffer, x.pair.a.buffer, 4);
		key = ibv_inc_rkey(key);
	}
	ibv_wr_start(b);
	b->wr_id = 4;
	b->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_local_inv(b, key);
	assert_int_equal(ibv_wr_complete(b), 0);
	edge_expect(x.pair.b.cq, 4, IBV_WC_SUCCESS);
	write_at(&x, key, AT, LENGTH, IBV_WC_REM_ACCESS_ERR);
	ibv_wr_start(b);
	ibv_wr_bind_mw(b, NULL, key, &info);
	assert_int_equal(ibv_wr_complete(b), EINVAL);
	tear_down(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_part_is_open_and_nothing_else),
		cmocka_unit_test(reads_and_atomics_by_their_rights),
		cmocka_unit_test(addresses_from_zero),
		cmocka_unit_test(type_1_is_bound_anew),
		cmocka_unit_test(the_owner_takes_it_back),
		cmocka_unit_test(the_peer_gives_it_back),
		cmocka_unit_test(a_peer_takes_back_only_windows),
		cmocka_unit_test(binds_that_fail),
		cmocka_unit_test(in_the_order_of_the_queue),
		cmocka_unit_test(what_is_bound_holds_its_region),
		cmocka_unit_test(gone_before_their_turn),
		cmocka_unit_test(wrong_arguments),
		cmocka_unit_test(on_an_unreliable_connection),
		cmocka_unit_test(by_the_functions_of_a_queue_pair),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
