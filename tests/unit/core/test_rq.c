/* SPDX-License-Identifier: BSD-2-Clause */
/* test_rq.c - rings of receive requests, the shared receive queue and its limit event. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fake_nic.h"

static const struct vb_sge sges[3] = {
	{.addr = 0x1000, .length = 10, .lkey = 1},
	{.addr = 0x2000, .length = 20, .lkey = 2},
	{.addr = 0x3000, .length = 30, .lkey = 3},
};

static struct vb_recv_wr make_wr(uint64_t wr_id, uint32_t num_sge)
{
	return (struct vb_recv_wr){.wr_id = wr_id, .sges = sges, .num_sge = num_sge};
}

static int post(struct vb_rq *rq, uint64_t wr_id, uint32_t num_sge)
{
	const struct vb_recv_wr wr = make_wr(wr_id, num_sge);

	return vb_rq_post(rq, &wr);
}

/* Filled and emptied again and again, over the place where the counters wrap. */
static void test_ring(void **state)
{
	static const uint32_t length[] = {0, 10, 30};
	struct vb_sge room[2];
	struct vb_recv_wqe out = {.sges = room};
	struct vb_rq rq;

	assert_int_equal(vb_rq_init(&rq, 5, 2), 0);
	rq.head = rq.tail = UINT32_MAX - 7;
	for (uint64_t id = 0; id < 50; id += 5) {
		for (uint64_t i = 0; i < 5; i++)
			assert_int_equal(post(&rq, id + i, (uint32_t)(id + i) % 3), 0);
		assert_int_equal(post(&rq, 99, 1), -ENOMEM);
		assert_int_equal(vb_rq_count(&rq), 5);
		for (uint64_t i = id; i < id + 5; i++) {
			assert_true(vb_rq_take(&rq, &out));
			assert_int_equal(out.wr_id, i);
			assert_int_equal(out.num_sge, i % 3);
			assert_int_equal(out.length, length[i % 3]);
			assert_memory_equal(out.sges, sges, i % 3 * sizeof(sges[0]));
			assert_ptr_equal(out.sges, room);
		}
		assert_false(vb_rq_take(&rq, &out));
	}
	vb_rq_finish(&rq);
}

static void test_refusals(void **state)
{
	const struct vb_sge half = {.length = 1u << 30};
	const struct vb_sge most[] = {half, half};
	const struct vb_sge over[] = {half, half, {.length = 1}};
	const struct vb_sge wrap[] = {{.length = 1u << 31}, {.length = 1u << 31}};
	struct vb_recv_wr wr = {.sges = most, .num_sge = 2};
	struct vb_rq rq;

	assert_int_equal(vb_rq_init(&rq, 4, 3), 0);
	assert_int_equal(post(&rq, 0, 4), -EINVAL);
	assert_int_equal(vb_rq_post(&rq, &wr), 0); /* 2 GiB */
	wr = (struct vb_recv_wr){.sges = over, .num_sge = 3};
	assert_int_equal(vb_rq_post(&rq, &wr), -EINVAL);
	wr = (struct vb_recv_wr){.sges = wrap, .num_sge = 2};
	assert_int_equal(vb_rq_post(&rq, &wr), -EINVAL);
	assert_int_equal(vb_rq_count(&rq), 1);
	vb_rq_reset(&rq);
	assert_int_equal(vb_rq_count(&rq), 0);
	vb_rq_finish(&rq);
}

static void test_queue_of_none(void **state)
{
	struct vb_recv_wqe out = {0};
	struct vb_rq rq;

	assert_int_equal(vb_rq_init(&rq, 0, 0), 0);
	assert_int_equal(post(&rq, 0, 0), -ENOMEM);
	assert_false(vb_rq_take(&rq, &out));
	vb_rq_finish(&rq);
}

/* --- SRQ --------------------------------------------------------------------------------- */

struct fixture {
	struct fake fake;
	struct vb_pd *pd;
	struct vb_cq *cq;
	struct vb_srq *srq;
	struct vb_qp *qp[2];
};

static void set_up(struct fixture *x, uint32_t limit)
{
	struct vb_qp_init init;

	fake_init(&x->fake);
	x->pd = vb_pd_create(x->fake.nic);
	x->cq = vb_cq_create(x->fake.nic, 64, NULL);
	x->srq = vb_srq_create(x->pd, 6, 3, limit, NULL);
	assert_non_null(x->srq);
	for (int i = 0; i < 2; i++) {
		init = fake_qp_init(VB_QPT_RC, x->cq);
		init.srq = x->srq;
		x->qp[i] = vb_qp_create(x->pd, &init);
		assert_non_null(x->qp[i]);
	}
}

static void tear_down(struct fixture *x)
{
	assert_int_equal(vb_srq_destroy(x->srq), -EBUSY);
	vb_qp_destroy(x->qp[0]);
	vb_qp_destroy(x->qp[1]);
	assert_int_equal(vb_srq_destroy(x->srq), 0);
	assert_int_equal(vb_srq_destroy(NULL), 0);
	assert_int_equal(vb_cq_destroy(x->cq), 0);
	assert_int_equal(vb_pd_destroy(x->pd), 0);
	fake_finish(&x->fake);
}

static void fill(struct fixture *x, uint64_t first, uint64_t n)
{
	for (uint64_t i = first; i < first + n; i++) {
		const struct vb_recv_wr wr = make_wr(i, 3);

		assert_int_equal(vb_srq_post(x->srq, &wr), 0);
	}
}

static void take(struct vb_qp *qp, uint64_t wr_id)
{
	assert_true(vb_qp_take_recv(qp));
	assert_true(qp->resp.recv_held);
	assert_int_equal(qp->resp.recv.wr_id, wr_id);
	assert_int_equal(qp->resp.recv.length, 60);
	assert_memory_equal(qp->resp.recv.sges, sges, sizeof(sges));
	qp->resp.recv_held = false;
}

static void test_srq_is_shared(void **state)
{
	const struct vb_recv_wr wr = make_wr(9, 0);
	struct fixture x;

	set_up(&x, 0);
	fill(&x, 0, 6);
	assert_int_equal(vb_srq_post(x.srq, &wr), -ENOMEM);
	for (uint64_t i = 0; i < 6; i++)
		take(x.qp[i & 1], i);
	assert_false(vb_qp_take_recv(x.qp[0]));
	assert_false(x.qp[0]->resp.recv_held);
	assert_int_equal(x.fake.event_count, 0);
	/* A QP that has an SRQ takes no receive requests of its own. */
	fake_bring_to(x.qp[0], VB_QPS_INIT);
	assert_int_equal(vb_qp_post_recv(x.qp[0], &wr), -EINVAL);
	tear_down(&x);
}

/* Once, when fewer than the limit are left; then it must be armed again. */
static void test_srq_limit(void **state)
{
	struct fixture x;

	set_up(&x, 0);
	fill(&x, 0, 6);
	assert_int_equal(vb_srq_set_limit(x.srq, 7), -EINVAL);
	assert_int_equal(vb_srq_set_limit(x.srq, 4), 0);
	take(x.qp[0], 0);
	take(x.qp[1], 1);
	assert_int_equal(x.fake.event_count, 0); /* four are left */
	take(x.qp[0], 2);
	assert_int_equal(x.fake.event_count, 1);
	assert_int_equal(x.fake.events[0].type, VB_EVENT_SRQ_LIMIT_REACHED);
	assert_ptr_equal(x.fake.events[0].srq, x.srq);
	assert_int_equal(x.srq->limit, 0);
	take(x.qp[1], 3);
	assert_int_equal(x.fake.event_count, 1);
	assert_int_equal(vb_srq_set_limit(x.srq, 1), 0);
	take(x.qp[0], 4);
	assert_int_equal(x.fake.event_count, 1);
	take(x.qp[0], 5);
	assert_int_equal(x.fake.event_count, 2);
	tear_down(&x);
}

static void test_srq_resize(void **state)
{
	struct fixture x;

	set_up(&x, 2);
	fill(&x, 0, 2);
	take(x.qp[0], 0);
	x.fake.event_count = 0;
	fill(&x, 2, 5);
	assert_int_equal(vb_srq_resize(x.srq, 5), -EINVAL); /* six are posted */
	assert_int_equal(vb_srq_resize(x.srq, 0), -EINVAL);
	assert_int_equal(vb_srq_resize(x.srq, VB_MAX_SRQ_WR + 1), -EINVAL);
	assert_int_equal(x.srq->rq.max_wr, 6);
	assert_int_equal(vb_srq_resize(x.srq, 17), 0);
	assert_int_equal(x.srq->rq.max_wr, 17);
	fill(&x, 7, 11);
	for (uint64_t i = 1; i < 18; i++)
		take(x.qp[i & 1], i);
	assert_int_equal(vb_srq_set_limit(x.srq, 3), 0);
	assert_int_equal(vb_srq_resize(x.srq, 2), -EINVAL); /* the limit could not be kept */
	assert_int_equal(vb_srq_resize(x.srq, 3), 0);
	tear_down(&x);
}

static void test_srq_limits(void **state)
{
	struct vb_srq *srq;
	struct fixture x;

	set_up(&x, 0);
	errno = 0;
	assert_null(vb_srq_create(x.pd, VB_MAX_SRQ_WR + 1, 1, 0, NULL));
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_null(vb_srq_create(x.pd, 0, 1, 0, NULL));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(vb_srq_room(0, 1), 0);
	assert_null(vb_srq_create(x.pd, 1, VB_MAX_SRQ_SGE + 1, 0, NULL));
	assert_null(vb_srq_create(x.pd, 4, 1, 5, NULL));
	srq = vb_srq_create(x.pd, VB_MAX_SRQ_WR, VB_MAX_SRQ_SGE, 0, NULL);
	assert_non_null(srq);
	assert_int_equal(vb_srq_destroy(srq), 0);
	tear_down(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ring),	      cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_queue_of_none), cmocka_unit_test(test_srq_is_shared),
		cmocka_unit_test(test_srq_limit),     cmocka_unit_test(test_srq_resize),
		cmocka_unit_test(test_srq_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
