/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_changed_regions.c - ibv_rereg_mr(3): what a region is changes under its keys, all of it or
 * nothing.
 */
#include "edge.h"

#include <sys/mman.h>

#define BYTES 8192u
#define WRITABLE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

static const struct edge_options usual;

struct bench {
	struct edge_pair pair;
	struct ibv_mr *mr; /* of b, BYTES at its buffer */
	uint8_t *other;	   /* BYTES that are not registered */
	uint8_t stamp;
};

static void set_up(struct bench *x)
{
	memset(x, 0, sizeof(*x));
	edge_open(&x->pair, &usual);
	x->mr = ibv_reg_mr(x->pair.b.pd, x->pair.b.buffer, BYTES, WRITABLE);
	assert_non_null(x->mr);
	x->other = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(x->other != MAP_FAILED);
}

static void tear_down(struct bench *x)
{
	assert_int_equal(ibv_dereg_mr(x->mr), 0);
	munmap(x->other, BYTES);
	edge_close(&x->pair);
}

/* a writes three packets to this address of b's region. */
static void write_to(struct bench *x, uint8_t *at, enum ibv_wc_status status)
{
	struct edge_end *a = &x->pair.a;
	struct ibv_sge sge = {(uintptr_t)a->buffer, 3000, a->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)at, .rkey = x->mr->rkey},
	};
	struct ibv_send_wr *bad;

	memset(a->buffer, ++x->stamp, 3000);
	assert_int_equal(ibv_post_send(a->qp, &wr, &bad), 0);
	edge_expect(a->cq, 1, status);
	if (status == IBV_WC_SUCCESS)
		assert_memory_equal(at, a->buffer, 3000);
	else
		edge_reconnect(&x->pair);
}

static void rights(void **state)
{
	struct bench x;
	uint32_t lkey, rkey;

	set_up(&x);
	lkey = x.mr->lkey;
	rkey = x.mr->rkey;
	write_to(&x, x.pair.b.buffer, IBV_WC_SUCCESS);
	assert_int_equal(ibv_rereg_mr(x.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				      IBV_ACCESS_LOCAL_WRITE),
			 0);
	write_to(&x, x.pair.b.buffer, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_rereg_mr(x.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				      WRITABLE | IBV_ACCESS_RELAXED_ORDERING),
			 0);
	write_to(&x, x.pair.b.buffer, IBV_WC_SUCCESS);
	assert_int_equal(x.mr->lkey, lkey);
	assert_int_equal(x.mr->rkey, rkey);
	tear_down(&x);
}

static void place(void **state)
{
	struct bench x;

	set_up(&x);
	assert_int_equal(
		ibv_rereg_mr(x.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, x.other, 4096, 0), 0);
	assert_ptr_equal(x.mr->addr, x.other);
	assert_int_equal(x.mr->length, 4096);
	write_to(&x, x.other + 4096 - 3000, IBV_WC_SUCCESS);
	write_to(&x, x.other + 4096 - 2999, IBV_WC_REM_ACCESS_ERR);
	write_to(&x, x.pair.b.buffer, IBV_WC_REM_ACCESS_ERR);
	tear_down(&x);
}

static void domain(void **state)
{
	struct bench x;
	struct ibv_pd *other;

	set_up(&x);
	other = ibv_alloc_pd(x.pair.b.context);
	assert_non_null(other);
	assert_int_equal(ibv_rereg_mr(x.mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0), 0);
	assert_ptr_equal(x.mr->pd, other);
	write_to(&x, x.pair.b.buffer, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dealloc_pd(other), EBUSY);
	assert_int_equal(ibv_rereg_mr(x.mr, IBV_REREG_MR_CHANGE_PD, x.pair.b.pd, NULL, 0, 0), 0);
	assert_int_equal(ibv_dealloc_pd(other), 0);
	write_to(&x, x.pair.b.buffer, IBV_WC_SUCCESS);
	tear_down(&x);
}

static void everything_at_once(void **state)
{
	struct bench x;
	struct ibv_pd *other;
	struct ibv_mr *home;

	set_up(&x);
	other = ibv_alloc_pd(x.pair.b.context);
	home = x.mr;
	/* a region of another PD, elsewhere, without rights, becomes the one that is needed */
	x.mr = ibv_reg_mr(other, x.other, 1, 0);
	assert_non_null(x.mr);
	write_to(&x, x.pair.b.buffer, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_rereg_mr(x.mr, IBV_REREG_MR_FLAGS_SUPPORTED, x.pair.b.pd,
				      x.pair.b.buffer, BYTES, WRITABLE),
			 0);
	write_to(&x, x.pair.b.buffer + BYTES - 3000, IBV_WC_SUCCESS);
	assert_int_equal(ibv_dealloc_pd(other), 0);
	assert_int_equal(ibv_dereg_mr(x.mr), 0);
	x.mr = home;
	tear_down(&x);
}

static void zero_based(void **state)
{
	struct bench x;

	set_up(&x);
	assert_int_equal(ibv_rereg_mr(x.mr,
				      IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS,
				      NULL, x.other, BYTES, WRITABLE | IBV_ACCESS_ZERO_BASED),
			 0);
	write_to(&x, x.other, IBV_WC_REM_ACCESS_ERR);
	memset(x.pair.a.buffer, 0x77, 8);
	{
		struct edge_end *a = &x.pair.a;
		struct ibv_sge sge = {(uintptr_t)a->buffer, 8, a->mr->lkey};
		struct ibv_send_wr *bad, wr = {.wr_id = 2,
					       .sg_list = &sge,
					       .num_sge = 1,
					       .opcode = IBV_WR_RDMA_WRITE,
					       .send_flags = IBV_SEND_SIGNALED,
					       .wr.rdma = {100, x.mr->rkey}};

		assert_int_equal(ibv_post_send(a->qp, &wr, &bad), 0);
		edge_expect(a->cq, 2, IBV_WC_SUCCESS);
		assert_memory_equal(x.other + 100, a->buffer, 8);
	}
	tear_down(&x);
}

static void refuse(struct bench *x, int code, int error, int flags, struct ibv_pd *pd, void *addr,
		   size_t length, int access)
{
	struct ibv_mr before = *x->mr;

	errno = 0;
	assert_int_equal(ibv_rereg_mr(x->mr, flags, pd, addr, length, access), code);
	assert_int_equal(errno, error);
	assert_memory_equal(x->mr, &before, sizeof(before));
	write_to(x, x->pair.b.buffer, IBV_WC_SUCCESS);
}

static void what_is_refused_changes_nothing(void **state)
{
	const int input = IBV_REREG_MR_ERR_INPUT, cmd = IBV_REREG_MR_ERR_CMD;
	const int place_flag = IBV_REREG_MR_CHANGE_TRANSLATION;
	const int pd_flag = IBV_REREG_MR_CHANGE_PD, access_flag = IBV_REREG_MR_CHANGE_ACCESS;
	struct bench x;
	uint8_t *hole;

	set_up(&x);
	refuse(&x, input, EINVAL, 0, NULL, NULL, 0, 0);
	refuse(&x, input, EINVAL, 8 | access_flag, NULL, NULL, 0, 0);
	refuse(&x, input, EINVAL, place_flag, NULL, NULL, BYTES, 0);
	refuse(&x, input, EINVAL, place_flag, NULL, x.other, 0, 0);
	refuse(&x, input, EINVAL, place_flag, NULL, x.other, BYTES, WRITABLE);
	refuse(&x, input, EINVAL, pd_flag, NULL, NULL, 0, 0);
	refuse(&x, input, EINVAL, pd_flag, x.pair.a.pd, NULL, 0, 0);
	refuse(&x, input, EINVAL, access_flag, NULL, NULL, 0, 1 << 19);
	refuse(&x, cmd, EINVAL, access_flag, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE);
	refuse(&x, cmd, EINVAL, place_flag, NULL, x.other, SIZE_MAX, 0);
	hole = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(hole != MAP_FAILED);
	refuse(&x, cmd, EFAULT, place_flag, NULL, hole, BYTES, 0); /* not to be written */
	munmap(hole, BYTES);
	refuse(&x, cmd, EFAULT, place_flag, NULL, hole, BYTES, 0);
	refuse(&x, cmd, EFAULT, place_flag | pd_flag | access_flag, x.pair.b.pd, hole, BYTES,
	       WRITABLE);
	tear_down(&x);
}

static void not_under_its_windows(void **state)
{
	struct bench x;
	struct ibv_mw *mw;
	struct ibv_mw_bind bind = {.wr_id = 3, .send_flags = IBV_SEND_SIGNALED};

	set_up(&x);
	assert_int_equal(ibv_rereg_mr(x.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				      WRITABLE | IBV_ACCESS_MW_BIND),
			 0);
	mw = ibv_alloc_mw(x.pair.b.pd, IBV_MW_TYPE_1);
	assert_non_null(mw);
	bind.bind_info = (struct ibv_mw_bind_info){x.mr, (uintptr_t)x.pair.b.buffer, 8,
						   IBV_ACCESS_REMOTE_READ};
	assert_int_equal(ibv_bind_mw(x.pair.b.qp, mw, &bind), 0);
	edge_expect(x.pair.b.cq, 3, IBV_WC_SUCCESS);
	refuse(&x, IBV_REREG_MR_ERR_CMD, EBUSY, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, x.other,
	       BYTES, 0);
	refuse(&x, IBV_REREG_MR_ERR_CMD, EBUSY, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
	       WRITABLE);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_rereg_mr(x.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, WRITABLE),
			 0);
	tear_down(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rights),
		cmocka_unit_test(place),
		cmocka_unit_test(domain),
		cmocka_unit_test(everything_at_once),
		cmocka_unit_test(zero_based),
		cmocka_unit_test(what_is_refused_changes_nothing),
		cmocka_unit_test(not_under_its_windows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
