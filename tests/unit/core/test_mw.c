/* SPDX-License-Identifier: BSD-2-Clause */
/* test_mw.c - memory windows: what may be bound to what, and whose key opens them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "fake_nic.h"

#define ALL (VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL | VB_ACCESS_MW_BIND)
#define IOVA 0x10000u
#define BYTES 200u

static uint8_t memory[256];

struct fixture {
	struct fake fake;
	struct vb_pd *pd, *other_pd;
	struct vb_cq *cq;
	struct vb_qp *qp, *other_qp;
	struct vb_mr *mr; /* BYTES at IOVA, without remote rights */
	struct vb_mw *one, *two;
	struct vb_reason reason;
};

static struct vb_qp *make_qp(struct fixture *x, struct vb_pd *pd)
{
	struct vb_qp_init init = {.type = VB_QPT_RC, .send_cq = x->cq, .recv_cq = x->cq};

	return vb_qp_create(pd, &init);
}

static void set_up(struct fixture *x)
{
	*x = (struct fixture){0};
	fake_init(&x->fake);
	x->pd = vb_pd_create(x->fake.nic);
	x->other_pd = vb_pd_create(x->fake.nic);
	x->cq = vb_cq_create(x->fake.nic, 16, NULL);
	x->qp = make_qp(x, x->pd);
	x->other_qp = make_qp(x, x->pd);
	x->mr = vb_mr_create(x->pd, memory + 8, BYTES, IOVA,
			     VB_ACCESS_LOCAL_WRITE | VB_ACCESS_MW_BIND);
	x->one = vb_mw_create(x->pd, VB_MW_TYPE_1);
	x->two = vb_mw_create(x->pd, VB_MW_TYPE_2);
	assert_true(x->qp && x->other_qp && x->mr && x->one && x->two);
}

static void tear_down(struct fixture *x)
{
	assert_int_equal(vb_mw_destroy(x->one), 0);
	assert_int_equal(vb_mw_destroy(x->two), 0);
	assert_int_equal(x->fake.nic->mw_count, 0);
	assert_int_equal(vb_mr_destroy(x->mr), 0);
	vb_qp_destroy(x->qp);
	vb_qp_destroy(x->other_qp);
	assert_int_equal(vb_cq_destroy(x->cq), 0);
	assert_int_equal(vb_pd_destroy(x->pd), 0);
	assert_int_equal(vb_pd_destroy(x->other_pd), 0);
	fake_finish(&x->fake);
}

/* The next key of a window, as ibv_inc_rkey has it. */
static uint32_t next_key(const struct vb_mw *mw)
{
	return (mw->shown.rkey & ~0xffu) | ((mw->shown.rkey + 1) & 0xff);
}

static struct vb_mw_bind usual(const struct fixture *x, const struct vb_mw *mw)
{
	return (struct vb_mw_bind){
		.rkey = next_key(mw),
		.lkey = x->mr->lkey,
		.access = VB_ACCESS_REMOTE_WRITE,
		.addr = IOVA + 50,
		.length = 100,
	};
}

static bool bind_window(struct fixture *x, const struct vb_mw_bind *b)
{
	x->reason = (struct vb_reason){0};
	return vb_mw_bind(x->qp, b, &x->reason);
}

static void assert_bind_refused(struct fixture *x, const struct vb_mw_bind *b, enum vb_check check)
{
	uint32_t windows = x->mr->windows;

	assert_false(bind_window(x, b));
	assert_int_equal(x->reason.check, check);
	assert_int_equal(x->mr->windows, windows);
}

static uint8_t *open_by(struct fixture *x, const struct vb_qp *qp, uint32_t rkey, uint64_t va,
			uint64_t length, uint32_t want)
{
	x->reason = (struct vb_reason){0};
	return vb_mr_remote(x->fake.nic, qp->pd, qp->qpn, rkey, va, length, want, &x->reason);
}

static uint8_t *open_window(struct fixture *x, uint32_t rkey, uint64_t va, uint64_t length)
{
	return open_by(x, x->qp, rkey, va, length, VB_ACCESS_REMOTE_WRITE);
}

static void test_a_window_shows_its_part_and_no_more(void **state)
{
	struct fixture x;
	struct vb_mw *mws[2];

	set_up(&x);
	mws[0] = x.one;
	mws[1] = x.two;
	for (int i = 0; i < 2; i++) {
		struct vb_mw_bind b = usual(&x, mws[i]);

		assert_null(open_window(&x, mws[i]->shown.rkey, IOVA + 50, 1));
		assert_true(bind_window(&x, &b));
		assert_ptr_equal(open_window(&x, b.rkey, IOVA + 50, 100), memory + 8 + 50);
		assert_ptr_equal(open_window(&x, b.rkey, IOVA + 149, 1), memory + 8 + 149);
		assert_null(open_window(&x, b.rkey, IOVA + 49, 1));
		assert_int_equal(x.reason.check, VB_CHECK_RKEY_RANGE);
		assert_null(open_window(&x, b.rkey, IOVA + 50, 101));
		assert_null(open_by(&x, x.qp, b.rkey, IOVA + 50, 1, VB_ACCESS_REMOTE_READ));
		assert_int_equal(x.reason.check, VB_CHECK_RKEY_RIGHTS);
		/* nor is it a local key */
		assert_null(vb_mr_local(x.fake.nic, x.pd, b.rkey, IOVA + 50, 1, 0, &x.reason));
		/* the key before is no key */
		assert_null(open_window(&x, b.rkey ^ 1, IOVA + 50, 1));
		assert_int_equal(x.reason.check, VB_CHECK_RKEY_UNKNOWN);
	}
	assert_int_equal(x.mr->windows, 2);
	tear_down(&x);
}

static void test_who_may_name_it(void **state)
{
	struct fixture x;
	struct vb_qp *stranger;
	struct vb_mw_bind b;

	set_up(&x);
	stranger = make_qp(&x, x.other_pd);
	b = usual(&x, x.one);
	assert_true(bind_window(&x, &b));
	assert_non_null(open_by(&x, x.other_qp, b.rkey, IOVA + 50, 1, VB_ACCESS_REMOTE_WRITE));
	assert_null(open_by(&x, stranger, b.rkey, IOVA + 50, 1, VB_ACCESS_REMOTE_WRITE));
	assert_int_equal(x.reason.check, VB_CHECK_RKEY_PD);
	b = usual(&x, x.two);
	assert_true(bind_window(&x, &b));
	assert_null(open_by(&x, x.other_qp, b.rkey, IOVA + 50, 1, VB_ACCESS_REMOTE_WRITE));
	assert_int_equal(x.reason.check, VB_CHECK_RKEY_QP);
	vb_qp_destroy(stranger);
	tear_down(&x);
}

static void test_zero_based(void **state)
{
	struct fixture x;
	struct vb_mw_bind b;

	set_up(&x);
	b = usual(&x, x.two);
	b.access |= VB_ACCESS_ZERO_BASED;
	assert_true(bind_window(&x, &b));
	assert_ptr_equal(open_window(&x, b.rkey, 0, 100), memory + 8 + 50);
	assert_null(open_window(&x, b.rkey, IOVA + 50, 1));
	tear_down(&x);
}

static void test_what_cannot_be_bound(void **state)
{
	struct fixture x;
	struct vb_mr *mr;
	struct vb_mw_bind b;

	set_up(&x);
	b = usual(&x, x.one);
	b.rkey ^= 0x100; /* another window's, or nobody's */
	assert_bind_refused(&x, &b, VB_CHECK_BIND_WINDOW);
	b = usual(&x, x.one);
	b.rkey = x.mr->rkey; /* a region's */
	assert_bind_refused(&x, &b, VB_CHECK_BIND_WINDOW);
	b = usual(&x, x.one);
	b.lkey = 0;
	assert_bind_refused(&x, &b, VB_CHECK_BIND_REGION);
	b.lkey = x.mr->rkey;
	assert_bind_refused(&x, &b, VB_CHECK_BIND_REGION);
	b = usual(&x, x.one);
	b.addr = IOVA - 1;
	assert_bind_refused(&x, &b, VB_CHECK_BIND_RANGE);
	b.addr = IOVA + BYTES - 99;
	assert_bind_refused(&x, &b, VB_CHECK_BIND_RANGE);
	b.addr = IOVA + 1;
	b.length = UINT64_MAX;
	assert_bind_refused(&x, &b, VB_CHECK_BIND_RANGE);
	b.addr = IOVA;
	b.length = BYTES;
	assert_true(bind_window(&x, &b));
	/* regions that are not for windows, not for writing, of another PD */
	mr = vb_mr_create(x.pd, memory, 200, IOVA, VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL);
	b = usual(&x, x.two);
	b.lkey = mr->lkey;
	assert_bind_refused(&x, &b, VB_CHECK_BIND_REGION);
	assert_int_equal(vb_mr_destroy(mr), 0);
	mr = vb_mr_create(x.pd, memory, 200, IOVA, VB_ACCESS_MW_BIND);
	b.lkey = mr->lkey;
	assert_bind_refused(&x, &b, VB_CHECK_BIND_RIGHTS);
	b.access = VB_ACCESS_REMOTE_ATOMIC;
	assert_bind_refused(&x, &b, VB_CHECK_BIND_RIGHTS);
	b.access = VB_ACCESS_REMOTE_READ;
	assert_true(bind_window(&x, &b));
	assert_int_equal(vb_mw_invalidate(x.qp, b.rkey), 0);
	assert_int_equal(vb_mr_destroy(mr), 0);
	mr = vb_mr_create(x.other_pd, memory, 200, IOVA, ALL);
	b = usual(&x, x.two);
	b.lkey = mr->lkey;
	assert_bind_refused(&x, &b, VB_CHECK_BIND_PD);
	assert_int_equal(vb_mr_destroy(mr), 0);
	mr = vb_mr_create_null(x.pd);
	b.lkey = mr->lkey;
	assert_bind_refused(&x, &b, VB_CHECK_BIND_REGION);
	assert_int_equal(vb_mr_destroy(mr), 0);
	tear_down(&x);
}

static void test_queue_pair_of_another_domain(void **state)
{
	struct fixture x;
	struct vb_qp *stranger;
	struct vb_mw_bind b;

	set_up(&x);
	stranger = make_qp(&x, x.other_pd);
	b = usual(&x, x.two);
	assert_false(vb_mw_bind(stranger, &b, &x.reason));
	assert_int_equal(x.reason.check, VB_CHECK_BIND_PD);
	assert_false(vb_mw_may_invalidate(stranger, x.two->shown.rkey));
	vb_qp_destroy(stranger);
	tear_down(&x);
}

static void test_type_1_is_bound_again_and_to_nothing(void **state)
{
	struct fixture x;
	struct vb_mw_bind b, again;

	set_up(&x);
	b = usual(&x, x.one);
	assert_true(bind_window(&x, &b));
	assert_false(vb_mw_may_invalidate(x.qp, b.rkey));
	again = usual(&x, x.one);
	again.addr = IOVA;
	again.length = 10;
	assert_true(bind_window(&x, &again));
	assert_int_equal(x.mr->windows, 1);
	assert_null(open_window(&x, b.rkey, IOVA + 50, 1));
	assert_non_null(open_window(&x, again.rkey, IOVA, 10));
	b = (struct vb_mw_bind){.rkey = next_key(x.one)};
	assert_true(bind_window(&x, &b));
	assert_int_equal(x.mr->windows, 0);
	assert_null(open_window(&x, again.rkey, IOVA, 1));
	assert_null(open_window(&x, b.rkey, IOVA, 1));
	tear_down(&x);
}

static void test_type_2_is_invalidated_first(void **state)
{
	struct fixture x;
	struct vb_mw_bind b, again;

	set_up(&x);
	b = usual(&x, x.two);
	assert_true(bind_window(&x, &b));
	again = usual(&x, x.two);
	assert_bind_refused(&x, &again, VB_CHECK_BIND_WINDOW);
	assert_non_null(open_window(&x, b.rkey, IOVA + 50, 1));
	assert_false(vb_mw_may_invalidate(x.other_qp, b.rkey));
	assert_false(vb_mw_may_invalidate(x.qp, b.rkey ^ 1));
	assert_false(vb_mw_may_invalidate(x.qp, x.mr->rkey));
	assert_true(vb_mw_may_invalidate(x.qp, b.rkey));
	assert_int_equal(vb_mw_invalidate(x.qp, b.rkey), 0);
	assert_int_equal(x.mr->windows, 0);
	assert_null(open_window(&x, b.rkey, IOVA + 50, 1));
	/* once more does no harm */
	assert_true(vb_mw_may_invalidate(x.other_qp, b.rkey));
	assert_int_equal(vb_mw_invalidate(x.other_qp, b.rkey), 0);
	assert_true(bind_window(&x, &again));
	again.length = 0;
	assert_int_equal(vb_mw_invalidate(x.qp, again.rkey), 0);
	assert_bind_refused(&x, &again, VB_CHECK_BIND_RANGE);
	tear_down(&x);
}

static void test_a_region_with_windows_stays_as_it_is(void **state)
{
	struct fixture x;
	struct vb_mw_bind b;
	struct vb_mr_change change;

	set_up(&x);
	b = usual(&x, x.two);
	change = (struct vb_mr_change){x.pd, memory, 8, 0, VB_ACCESS_LOCAL_WRITE};
	assert_true(bind_window(&x, &b));
	assert_int_equal(vb_mr_destroy(x.mr), -EBUSY);
	assert_int_equal(vb_mr_change(x.mr, &change), -EBUSY);
	assert_int_equal(x.mr->length, BYTES);
	assert_int_equal(vb_mw_destroy(x.two), 0);
	x.two = NULL;
	assert_null(open_window(&x, b.rkey, IOVA + 50, 1));
	assert_int_equal(vb_mr_change(x.mr, &change), 0);
	tear_down(&x);
}

static void test_a_queue_pair_takes_its_windows_along(void **state)
{
	struct fixture x;
	struct vb_mw_bind b;

	set_up(&x);
	b = usual(&x, x.two);
	assert_true(bind_window(&x, &b));
	vb_qp_destroy(x.qp);
	assert_int_equal(x.mr->windows, 0);
	x.qp = make_qp(&x, x.pd);
	assert_null(open_window(&x, b.rkey, IOVA + 50, 1));
	b = usual(&x, x.two);
	assert_true(bind_window(&x, &b));
	tear_down(&x);
}

static void test_limits_and_types(void **state)
{
	struct fixture x;
	struct vb_mw **mws = calloc(VB_MAX_MW, sizeof(*mws));
	uint32_t n;

	set_up(&x);
	assert_non_null(mws);
	assert_null(vb_mw_create(x.pd, (enum vb_mw_type)0));
	assert_int_equal(errno, EINVAL);
	assert_null(vb_mw_create(x.pd, (enum vb_mw_type)3));
	assert_int_equal(errno, EINVAL);
	for (n = 0; n < VB_MAX_MW - 2; n++) {
		mws[n] = vb_mw_create(x.pd, VB_MW_TYPE_1);
		assert_non_null(mws[n]);
	}
	assert_null(vb_mw_create(x.pd, VB_MW_TYPE_1));
	assert_int_equal(errno, ENOMEM);
	while (n > 0)
		assert_int_equal(vb_mw_destroy(mws[--n]), 0);
	assert_int_equal(vb_mw_destroy(NULL), 0);
	free(mws);
	tear_down(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_window_shows_its_part_and_no_more),
		cmocka_unit_test(test_who_may_name_it),
		cmocka_unit_test(test_zero_based),
		cmocka_unit_test(test_what_cannot_be_bound),
		cmocka_unit_test(test_queue_pair_of_another_domain),
		cmocka_unit_test(test_type_1_is_bound_again_and_to_nothing),
		cmocka_unit_test(test_type_2_is_invalidated_first),
		cmocka_unit_test(test_a_region_with_windows_stays_as_it_is),
		cmocka_unit_test(test_a_queue_pair_takes_its_windows_along),
		cmocka_unit_test(test_limits_and_types),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
