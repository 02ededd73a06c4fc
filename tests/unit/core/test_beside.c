/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_beside.c - requests that are posted beside the NIC: when it hears of them, what becomes of
 * them where the queue pair has changed meanwhile, and that all else is as when posted inside.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/beside.h"
#include "fake_nic.h"

struct fixture {
	struct fake fake;
	struct fake_qp q;
	struct vb_mr *mr;
	struct vb_ah *ah;
	uint8_t memory[256];
	struct vb_sge sge;
};

static void set_up(struct fixture *x, enum vb_qp_type type, enum vb_qp_state state)
{
	const struct vb_ah_attr attr = fake_attr().ah;
	struct vb_qp_init init;

	memset(x, 0, sizeof(*x));
	fake_init(&x->fake);
	x->q.pd = vb_pd_create(x->fake.nic);
	x->q.cq = vb_cq_create(x->fake.nic, 64, NULL);
	init = fake_qp_init(type, x->q.cq);
	init.single = true;
	x->q.qp = vb_qp_create(x->q.pd, &init);
	assert_non_null(x->q.qp);
	assert_true(x->q.qp->single);
	x->mr = vb_mr_create(x->q.pd, x->memory, sizeof(x->memory), (uintptr_t)x->memory,
			     VB_ACCESS_LOCAL_WRITE);
	x->ah = vb_ah_create(x->q.pd, &attr);
	x->sge = (struct vb_sge){(uintptr_t)x->memory, 16, x->mr->lkey};
	if (state != VB_QPS_RESET)
		fake_bring_to(x->q.qp, state);
}

static void tear_down(struct fixture *x)
{
	vb_ah_destroy(x->ah);
	vb_mr_destroy(x->mr);
	fake_qp_destroy(&x->q);
	fake_finish(&x->fake);
}

static struct vb_send_wr make_wr(struct fixture *x, uint64_t wr_id)
{
	return (struct vb_send_wr){
		.wr_id = wr_id,
		.sges = &x->sge,
		.num_sge = 1,
		.opcode = VB_WR_SEND,
		.flags = VB_SEND_SIGNALED,
		.ah = x->ah,
		.remote_qpn = 5,
	};
}

static int post(struct fixture *x, uint64_t wr_id)
{
	const struct vb_send_wr wr = make_wr(x, wr_id);

	return vb_qp_post_send_beside(x->q.qp, &wr);
}

static int post_recv(struct fixture *x, uint64_t wr_id)
{
	const struct vb_recv_wr wr = {.wr_id = wr_id, .sges = &x->sge, .num_sge = 1};

	return vb_qp_post_recv_beside(x->q.qp, &wr);
}

static void assert_polls(struct fixture *x, uint64_t wr_id, enum vb_status status)
{
	struct vb_cqe cqe;

	assert_int_equal(vb_cq_poll(x->q.cq, &cqe, 1), 1);
	assert_int_equal(cqe.wr_id, wr_id);
	assert_int_equal(cqe.status, status);
}

static void assert_polls_nothing(struct fixture *x)
{
	struct vb_cqe cqe;

	assert_int_equal(vb_cq_poll(x->q.cq, &cqe, 1), 0);
}

/* Nothing is sent before the NIC was told, and then everything is. */
static void test_taken_over(void **state)
{
	struct fixture x;

	set_up(&x, VB_QPT_RC, VB_QPS_RTS);
	assert_int_equal(post(&x, 1), 0);
	assert_int_equal(post(&x, 2), 0);
	vb_nic_run(x.fake.nic, 1000);
	assert_int_equal(x.fake.tx_count, 0);
	assert_false(vb_nic_is_rung(x.fake.nic));
	vb_qp_ring(x.q.qp);
	assert_true(vb_nic_is_rung(x.fake.nic));
	assert_int_equal(post(&x, 3), 0);
	vb_qp_ring(x.q.qp); /* is in the chain once */
	vb_nic_answer(x.fake.nic);
	assert_false(vb_nic_is_rung(x.fake.nic));
	vb_nic_run(x.fake.nic, 1000);
	assert_int_equal(x.fake.tx_count, 3);
	assert_int_equal(x.fake.tx_headers.psn, 0x654321 + 2);
	fake_ack(&x.fake, x.q.qp, 0x654321 + 2);
	for (uint64_t id = 1; id <= 3; id++)
		assert_polls(&x, id, VB_WC_SUCCESS);
	tear_down(&x);
}

/* Of four places all can be used, and come back when completions are polled. */
static void test_full(void **state)
{
	struct fixture x;
	uint32_t psn = 0x654321;

	set_up(&x, VB_QPT_RC, VB_QPS_RTS);
	for (int round = 0; round < 5; round++) {
		for (uint64_t id = 0; id < 4; id++)
			assert_int_equal(post(&x, id), 0);
		assert_int_equal(vb_qp_sq_used(x.q.qp), 4);
		assert_int_equal(post(&x, 4), -ENOMEM);
		vb_qp_take_posted(x.q.qp);
		vb_nic_run(x.fake.nic, 1000);
		psn += 4;
		fake_ack(&x.fake, x.q.qp, psn - 1);
		assert_int_equal(post(&x, 4), -ENOMEM);
		assert_polls(&x, 0, VB_WC_SUCCESS);
		assert_int_equal(post(&x, 9), 0);
		assert_int_equal(post(&x, 10), -ENOMEM);
		for (uint64_t id = 1; id < 4; id++)
			assert_polls(&x, id, VB_WC_SUCCESS);
		vb_qp_take_posted(x.q.qp);
		vb_nic_run(x.fake.nic, 1000);
		fake_ack(&x.fake, x.q.qp, psn++);
		assert_polls(&x, 9, VB_WC_SUCCESS);
	}
	for (uint64_t id = 0; id < 4; id++)
		assert_int_equal(post_recv(&x, id), 0);
	assert_int_equal(post_recv(&x, 4), -ENOMEM);
	tear_down(&x);
}

static void test_refusals(void **state)
{
	struct vb_sge many[5] = {{0}};
	struct vb_recv_wr recv = {.sges = many, .num_sge = 3};
	struct vb_send_wr wr;
	struct fixture x;

	set_up(&x, VB_QPT_RC, VB_QPS_RESET);
	assert_int_equal(post_recv(&x, 1), -EINVAL);
	fake_bring_to(x.q.qp, VB_QPS_RTR);
	assert_int_equal(post(&x, 1), -EINVAL);
	assert_int_equal(post_recv(&x, 1), 0);
	assert_int_equal(vb_qp_post_recv_beside(x.q.qp, &recv), -EINVAL);
	assert_int_equal(fake_modify(x.q.qp, VB_QPS_RTS, fake_required(VB_QPT_RC, VB_QPS_RTS)), 0);
	wr = make_wr(&x, 1);
	wr.sges = many;
	wr.num_sge = 5;
	assert_int_equal(vb_qp_post_send_beside(x.q.qp, &wr), -EINVAL);
	wr = make_wr(&x, 1);
	wr.opcode = VB_WR_TSO;
	assert_int_equal(vb_qp_post_send_beside(x.q.qp, &wr), -EINVAL);
	x.sge.length = 65;
	wr = make_wr(&x, 1);
	wr.flags |= VB_SEND_INLINE;
	assert_int_equal(vb_qp_post_send_beside(x.q.qp, &wr), -EINVAL);
	assert_int_equal(x.q.qp->sq_posted, 0);
	tear_down(&x);
}

/* Inline data is the program's again at once. */
static void test_inline(void **state)
{
	struct fixture x;
	struct vb_send_wr wr;

	set_up(&x, VB_QPT_RC, VB_QPS_RTS);
	memset(x.memory, 7, sizeof(x.memory));
	wr = make_wr(&x, 1);
	wr.flags |= VB_SEND_INLINE;
	assert_int_equal(vb_qp_post_send_beside(x.q.qp, &wr), 0);
	memset(x.memory, 8, sizeof(x.memory));
	vb_qp_take_posted(x.q.qp);
	vb_nic_run(x.fake.nic, 1000);
	assert_int_equal(x.fake.tx_bytes, 16);
	assert_int_equal(x.fake.tx_payload[0], 7);
	assert_int_equal(x.fake.tx_payload[15], 7);
	tear_down(&x);
}

/* The queue pair failed between the post and the taking over: all is flushed, once, in order. */
static void test_failed_meanwhile(void **state)
{
	struct fixture x;

	set_up(&x, VB_QPT_RC, VB_QPS_RTS);
	assert_int_equal(post(&x, 1), 0);
	assert_int_equal(post_recv(&x, 2), 0);
	vb_qp_ring(x.q.qp);
	vb_qp_set_state(x.q.qp, VB_QPS_ERR); /* the NIC's own doing */
	assert_int_equal(post(&x, 3), 0);
	assert_int_equal(post_recv(&x, 4), 0);
	vb_qp_ring(x.q.qp);
	vb_nic_answer(x.fake.nic);
	assert_polls(&x, 2, VB_WC_WR_FLUSH_ERR); /* was seen when it failed */
	assert_polls(&x, 1, VB_WC_WR_FLUSH_ERR);
	assert_polls(&x, 3, VB_WC_WR_FLUSH_ERR);
	assert_polls(&x, 4, VB_WC_WR_FLUSH_ERR);
	assert_polls_nothing(&x);
	tear_down(&x);
}

/* What is posted in SQE is flushed (IBTA 10.3.1.6), also where the program is quick to leave it. */
static void test_in_sqe(void **state)
{
	struct fixture x;

	set_up(&x, VB_QPT_UC, VB_QPS_SQE);
	assert_int_equal(post(&x, 1), 0);
	vb_qp_ring(x.q.qp);
	vb_nic_answer(x.fake.nic);
	assert_polls(&x, 1, VB_WC_WR_FLUSH_ERR);
	assert_int_equal(post(&x, 2), 0);
	assert_int_equal(fake_modify(x.q.qp, VB_QPS_RTS, VB_QP_STATE), 0);
	assert_int_equal(post(&x, 3), 0);
	vb_qp_take_posted(x.q.qp);
	vb_nic_run(x.fake.nic, 1000);
	assert_polls(&x, 2, VB_WC_WR_FLUSH_ERR);
	assert_polls(&x, 3, VB_WC_SUCCESS);
	assert_int_equal(x.fake.tx_count, 1);
	tear_down(&x);
}

/* RESET forgets it; the bell may ring on. */
static void test_reset_forgets(void **state)
{
	struct fixture x;

	set_up(&x, VB_QPT_UD, VB_QPS_RTS);
	assert_int_equal(post(&x, 1), 0);
	assert_int_equal(post_recv(&x, 2), 0);
	vb_qp_ring(x.q.qp);
	assert_int_equal(fake_modify(x.q.qp, VB_QPS_RESET, VB_QP_STATE), 0);
	assert_int_equal(x.ah->refs, 1);
	fake_bring_to(x.q.qp, VB_QPS_RTS);
	vb_nic_answer(x.fake.nic);
	vb_nic_run(x.fake.nic, 1000);
	assert_int_equal(x.fake.tx_count, 0);
	assert_polls_nothing(&x);
	assert_int_equal(post(&x, 3), 0);
	vb_qp_ring(x.q.qp);
	vb_nic_answer(x.fake.nic);
	vb_nic_run(x.fake.nic, 1000);
	assert_int_equal(x.fake.tx_count, 1);
	assert_polls(&x, 3, VB_WC_SUCCESS);
	tear_down(&x);
}

/* A queue pair that goes leaves the chain, and no other does. */
static void test_destroyed_while_rung(void **state)
{
	struct fixture x;
	struct fake_qp other = {0};
	struct vb_qp_init init;

	set_up(&x, VB_QPT_UD, VB_QPS_RTS);
	init = fake_qp_init(VB_QPT_UD, x.q.cq);
	init.single = true;
	other.qp = vb_qp_create(x.q.pd, &init);
	fake_bring_to(other.qp, VB_QPS_RTS);
	assert_int_equal(post(&x, 1), 0);
	vb_qp_ring(x.q.qp);
	{
		const struct vb_send_wr wr = make_wr(&x, 2);

		assert_int_equal(vb_qp_post_send_beside(other.qp, &wr), 0);
		vb_qp_ring(other.qp);
	}
	vb_qp_destroy(other.qp);
	assert_false(vb_nic_is_rung(x.fake.nic));
	vb_nic_run(x.fake.nic, 1000);
	assert_int_equal(x.fake.tx_count, 1);
	assert_polls(&x, 1, VB_WC_SUCCESS);
	assert_int_equal(x.ah->refs, 1);
	tear_down(&x);
}

/* A request that nobody has taken over yet keeps its address handle all the same. */
static void test_address_destroyed(void **state)
{
	const struct vb_ah_attr attr = fake_attr().ah;
	struct fixture x;

	set_up(&x, VB_QPT_UD, VB_QPS_RTS);
	assert_int_equal(post(&x, 1), 0);
	vb_qp_ring(x.q.qp);
	vb_ah_destroy(x.ah);
	assert_int_equal(x.fake.nic->ah_count, 1);
	vb_nic_run(x.fake.nic, 1000);
	assert_int_equal(x.fake.nic->ah_count, 0);
	assert_polls(&x, 1, VB_WC_SUCCESS);
	x.ah = vb_ah_create(x.q.pd, &attr);
	tear_down(&x);
}

/* The NIC sees a receive request at once, rung or not. */
static void test_receives_are_seen(void **state)
{
	struct fixture x;

	set_up(&x, VB_QPT_UC, VB_QPS_RTS);
	assert_int_equal(post_recv(&x, 5), 0);
	assert_true(vb_qp_take_recv(x.q.qp));
	assert_int_equal(x.q.qp->resp.recv.wr_id, 5);
	tear_down(&x);
}

/* Others are posted to inside, whatever was asked for. */
static void test_who_may_be_single(void **state)
{
	struct fixture x;
	struct vb_qp_init init;
	struct vb_srq *srq;
	struct vb_qp *qp;

	set_up(&x, VB_QPT_RC, VB_QPS_RTS);
	srq = vb_srq_create(x.q.pd, 4, 1, 0, NULL);
	init = fake_qp_init(VB_QPT_RC, x.q.cq);
	init.single = true;
	init.srq = srq;
	qp = vb_qp_create(x.q.pd, &init);
	assert_true(qp->single);
	vb_qp_destroy(qp);
	assert_int_equal(vb_tm_init(srq, x.q.cq, 4), 0);
	init.cap.max_send_wr = 0;
	qp = vb_qp_create(x.q.pd, &init);
	assert_non_null(qp);
	assert_false(qp->single); /* its send queue is the NIC's */
	vb_qp_destroy(qp);
	assert_int_equal(vb_srq_destroy(srq), 0);
	tear_down(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_taken_over),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_inline),
		cmocka_unit_test(test_failed_meanwhile),
		cmocka_unit_test(test_in_sqe),
		cmocka_unit_test(test_reset_forgets),
		cmocka_unit_test(test_destroyed_while_rung),
		cmocka_unit_test(test_address_destroyed),
		cmocka_unit_test(test_receives_are_seen),
		cmocka_unit_test(test_who_may_be_single),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
