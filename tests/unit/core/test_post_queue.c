/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_post_queue.c - what becomes of what was posted: when slots come free, what leaves
 * at once, and how a queue in error behaves.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "post_fixture.h"

/* --- slots ------------------------------------------------------------------------------- */

static void test_slots_come_free_by_polling(void **state)
{
	const struct vb_qp_cap cap = {.max_send_wr = 5, .max_send_sge = 1}; /* a ring of eight */
	struct fixture x;

	set_up_with(&x, VB_QPT_UC, &cap, false);
	fake_bring_to(x.q.qp, VB_QPS_RTS);
	/* Over the place where the counters wrap. */
	x.q.qp->sq_free = x.q.qp->sq_una = x.q.qp->sq_next = x.q.qp->sq_head =
		x.q.qp->req.sq_assigned = UINT32_MAX - 7;
	for (int round = 0; round < 4; round++) {
		for (uint64_t i = 0; i < 4; i++)
			assert_int_equal(post(&x, i, 0), 0);
		assert_int_equal(post(&x, 4, VB_SEND_SIGNALED), 0);
		assert_int_equal(post(&x, 5, VB_SEND_SIGNALED), -ENOMEM);
		run(&x);
		/* All five have gone, but nobody knows yet. */
		assert_int_equal(post(&x, 5, VB_SEND_SIGNALED), -ENOMEM);
		assert_polls(&x, 4, VB_WC_SUCCESS);
		assert_polls_nothing(&x);
	}
	assert_int_equal(x.fake.tx_count, 20);
	tear_down(&x);
}

static void test_unsignalled_slots_stay_taken(void **state)
{
	struct fixture x;

	set_up(&x, VB_QPT_UC, VB_QPS_RTS);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(post(&x, i, 0), 0);
	run(&x);
	assert_polls_nothing(&x);
	assert_int_equal(post(&x, 4, VB_SEND_SIGNALED), -ENOMEM);
	tear_down(&x);
}

static void test_each_completion_frees_up_to_itself(void **state)
{
	struct fixture x;

	set_up(&x, VB_QPT_UC, VB_QPS_RTS);
	assert_int_equal(post(&x, 0, 0), 0);
	assert_int_equal(post(&x, 1, VB_SEND_SIGNALED), 0);
	assert_int_equal(post(&x, 2, VB_SEND_SIGNALED), 0);
	assert_int_equal(post(&x, 3, 0), 0);
	run(&x);
	assert_polls(&x, 1, VB_WC_SUCCESS);
	assert_int_equal(post(&x, 4, 0), 0);
	assert_int_equal(post(&x, 5, 0), 0);
	assert_int_equal(post(&x, 6, 0), -ENOMEM);
	assert_polls(&x, 2, VB_WC_SUCCESS);
	assert_int_equal(post(&x, 6, 0), 0);
	assert_int_equal(post(&x, 7, 0), -ENOMEM);
	tear_down(&x);
}

static void test_sq_sig_all(void **state)
{
	struct fixture x;

	set_up_with(&x, VB_QPT_UC, NULL, true);
	fake_bring_to(x.q.qp, VB_QPS_RTS);
	assert_int_equal(post(&x, 1, 0), 0);
	assert_int_equal(post(&x, 2, 0), 0);
	run(&x);
	assert_polls(&x, 1, VB_WC_SUCCESS);
	assert_polls(&x, 2, VB_WC_SUCCESS);
	tear_down(&x);
}

static void test_receive_queue_is_bounded(void **state)
{
	struct vb_recv_wr recv = {0};
	struct fixture x;

	set_up(&x, VB_QPT_RC, VB_QPS_INIT);
	for (recv.wr_id = 0; recv.wr_id < 4; recv.wr_id++)
		assert_int_equal(vb_qp_post_recv(x.q.qp, &recv), 0);
	assert_int_equal(vb_qp_post_recv(x.q.qp, &recv), -ENOMEM);
	tear_down(&x);
}

/* --- at once ----------------------------------------------------------------------------- */

/* 4.096 us * 2^14 (IBTA 9.7.6.1.3) */
#define TIMEOUT_NS (4096ull << 14)

/* A carrier of pieces takes a short message as it is posted; its timer starts with the next run,
 * which is told the time. */
static void test_short_messages_go_at_once_where_nothing_is_gained_by_waiting(void **state)
{
	struct fixture x;
	struct vb_send_wr wr;

	set_up(&x, VB_QPT_RC, VB_QPS_RESET);
	x.fake.own_segment = true;
	x.fake.segment_max = 16384;
	fake_bring_to(x.q.qp, VB_QPS_RTS);
	(void)vb_nic_run(x.fake.nic, 1000);
	assert_int_equal(post(&x, 1, VB_SEND_SIGNALED), 0);
	assert_int_equal(x.fake.tx_count, 1);
	assert_int_equal(x.fake.tx_headers.opcode, VB_OP_SEND_ONLY);
	assert_int_equal(x.fake.tx_headers.psn, 0x654321);
	assert_true(x.fake.tx_headers.ack_req);
	assert_memory_equal(x.fake.tx_payload, x.memory, 16);
	assert_false(vb_list_is_empty(&x.fake.nic->ready));
	(void)vb_nic_run(x.fake.nic, 5000);
	assert_int_equal(x.fake.tx_count, 1);
	assert_int_equal(vb_nic_deadline(x.fake.nic), 5000 + TIMEOUT_NS);

	/* The timer runs: there is nothing left to do. */
	wr = make_wr(&x, 2, VB_SEND_SOLICITED);
	wr.opcode = VB_WR_SEND_WITH_IMM;
	wr.imm = 0x01020304;
	assert_int_equal(vb_qp_post_send(x.q.qp, &wr), 0);
	assert_int_equal(x.fake.tx_count, 2);
	assert_int_equal(x.fake.tx_headers.opcode, VB_OP_SEND_ONLY_IMM);
	assert_int_equal(x.fake.tx_headers.imm, 0x01020304);
	assert_true(x.fake.tx_headers.solicited);
	assert_true(vb_list_is_empty(&x.fake.nic->ready));

	/* What has to wait does, and what is behind it. */
	wr = make_wr(&x, 3, VB_SEND_FENCE);
	assert_int_equal(vb_qp_post_send(x.q.qp, &wr), 0);
	assert_int_equal(post(&x, 4, 0), 0);
	assert_int_equal(x.fake.tx_count, 2);
	(void)vb_nic_run(x.fake.nic, 6000);
	assert_int_equal(x.fake.tx_count, 4);
	assert_int_equal(vb_nic_deadline(x.fake.nic), 5000 + TIMEOUT_NS);
	tear_down(&x);
}

/* Queue pairs that are posted to in turn: each knows who comes some posts after it. The short way
 * remembers as the long one does. */
static void test_turns_are_remembered_until_one_is_gone(void **state)
{
	enum { COUNT = VB_POSTED_AHEAD + 3 };
	struct vb_qp *qps[COUNT];
	struct fixture x;
	char users[COUNT];

	set_up(&x, VB_QPT_RC, VB_QPS_RTS);
	for (uint32_t i = 0; i < COUNT; i++) {
		struct vb_qp_init init = fake_qp_init(VB_QPT_RC, x.q.cq);

		init.user = &users[i];
		qps[i] = vb_qp_create(x.q.pd, &init);
		fake_bring_to(qps[i], VB_QPS_RTS);
	}
	for (uint32_t i = 0; i < COUNT; i++) {
		const struct vb_send_wr wr = {.sges = &x.sge, .num_sge = 1, .opcode = VB_WR_SEND};
		const struct vb_short_wr wanted = {.sge = &x.sge};

		assert_int_equal(vb_qp_post_send(qps[i], &wr), 0);
		assert_false(vb_rc_post_short(qps[i], &wanted)); /* the same one again */
	}
	for (uint32_t i = 0; i < COUNT; i++) {
		const uint32_t next = i + VB_POSTED_AHEAD;

		assert_ptr_equal(qps[i]->posted_next, next < COUNT ? qps[next] : NULL);
		assert_ptr_equal(qps[i]->posted_user, next < COUNT ? &users[next] : NULL);
	}
	for (uint32_t i = 0; i < COUNT; i++)
		vb_qp_destroy(qps[i]);
	for (uint32_t i = 0; i < VB_POSTED_AHEAD; i++)
		assert_null(x.fake.nic->posted[i]);
	tear_down(&x);
}

/* --- errors ------------------------------------------------------------------------------ */

static void test_first_fails_with_the_cause_the_rest_is_flushed(void **state)
{
	struct vb_recv_wr recv = {.wr_id = 100};
	struct vb_send_wr wr;
	struct vb_cqe cqe;
	struct vb_sge bad;
	struct fixture x;

	set_up(&x, VB_QPT_RC, VB_QPS_RTS);
	bad = x.sge;
	bad.lkey = x.mr->rkey;
	wr = make_wr(&x, 1, 0); /* unsignalled: a failure completes all the same */
	wr.sges = &bad;
	assert_int_equal(vb_qp_post_recv(x.q.qp, &recv), 0);
	assert_int_equal(vb_qp_post_send(x.q.qp, &wr), 0);
	assert_int_equal(post(&x, 2, 0), 0);
	assert_int_equal(post(&x, 3, VB_SEND_SIGNALED), 0);
	run(&x);
	assert_int_equal(x.q.qp->state, VB_QPS_ERR);
	assert_int_equal(vb_cq_poll(x.q.cq, &cqe, 1), 1);
	assert_int_equal(cqe.wr_id, 1);
	assert_int_equal(cqe.status, VB_WC_LOC_PROT_ERR);
	assert_int_equal(cqe.vendor_err, VB_CHECK_SGE_IS_RKEY);
	assert_int_equal(x.q.cq->last_reason.check, VB_CHECK_SGE_IS_RKEY);
	assert_int_equal(x.q.cq->last_reason.value[0], x.mr->rkey);
	assert_int_equal(x.q.qp->reason.check, VB_CHECK_SGE_IS_RKEY);
	assert_int_equal(x.q.qp->reason.qpn, x.q.qp->qpn);
	assert_polls(&x, 2, VB_WC_WR_FLUSH_ERR);
	assert_polls(&x, 3, VB_WC_WR_FLUSH_ERR);
	assert_polls(&x, 100, VB_WC_WR_FLUSH_ERR);
	assert_polls_nothing(&x);
	/* Posted afterwards: accepted and flushed, each once. */
	for (uint64_t i = 4; i < 12; i++) {
		assert_int_equal(post(&x, i, 0), 0);
		assert_polls(&x, i, VB_WC_WR_FLUSH_ERR);
	}
	assert_int_equal(vb_qp_post_recv(x.q.qp, &recv), 0);
	assert_polls(&x, 100, VB_WC_WR_FLUSH_ERR);
	assert_polls_nothing(&x);
	assert_int_equal(x.fake.tx_count, 0);
	tear_down(&x);
}

static void test_unreliable_stops_the_send_queue_only(void **state)
{
	struct vb_recv_wr recv = {.wr_id = 100};
	struct fixture x;
	uint32_t lkey;

	set_up(&x, VB_QPT_UC, VB_QPS_RTS);
	lkey = x.sge.lkey;
	assert_int_equal(vb_qp_post_recv(x.q.qp, &recv), 0);
	x.sge.lkey = 0;
	assert_int_equal(post(&x, 1, VB_SEND_SIGNALED), 0);
	x.sge.lkey = lkey;
	assert_int_equal(post(&x, 2, 0), 0);
	run(&x);
	assert_int_equal(x.q.qp->state, VB_QPS_SQE);
	assert_polls(&x, 1, VB_WC_LOC_PROT_ERR);
	assert_polls(&x, 2, VB_WC_WR_FLUSH_ERR);
	assert_polls_nothing(&x);
	assert_int_equal(post(&x, 3, 0), 0);
	assert_polls(&x, 3, VB_WC_WR_FLUSH_ERR);
	/* Back in RTS it sends again, and the receive request is still there. */
	assert_int_equal(fake_modify(x.q.qp, VB_QPS_RTS, VB_QP_STATE), 0);
	assert_int_equal(post(&x, 4, VB_SEND_SIGNALED), 0);
	run(&x);
	assert_polls(&x, 4, VB_WC_SUCCESS);
	assert_int_equal(x.fake.tx_count, 1);
	assert_int_equal(vb_rq_count(&x.q.qp->rq), 1);
	tear_down(&x);
}

/* UD sends one packet: what does not fit into the path's MTU completes with an error. */
static void test_ud_message_over_the_mtu(void **state)
{
	const struct vb_ah_attr attr = fake_attr().ah;
	struct fixture x;
	struct vb_ah *all;

	set_up(&x, VB_QPT_UD, VB_QPS_RTS);
	x.fake.segment_max = 1440; /* an interface of 1500 bytes: path MTU 1024 */
	all = x.ah;
	x.ah = vb_ah_create(x.q.pd, &attr);
	assert_non_null(x.ah);
	x.sge.length = 1024;
	assert_int_equal(post(&x, 1, VB_SEND_SIGNALED), 0);
	run(&x);
	assert_polls(&x, 1, VB_WC_SUCCESS);
	x.sge.length = 1025;
	assert_int_equal(post(&x, 2, VB_SEND_SIGNALED), 0);
	run(&x);
	assert_polls(&x, 2, VB_WC_LOC_LEN_ERR);
	assert_int_equal(x.q.qp->state, VB_QPS_SQE);
	assert_int_equal(x.q.qp->reason.check, VB_CHECK_MESSAGE_TOO_LONG);
	assert_int_equal(x.q.qp->reason.value[0], 1025);
	assert_int_equal(x.fake.tx_count, 1);
	assert_int_equal(x.ah->refs, 1);
	vb_ah_put(x.ah);
	x.ah = all;
	tear_down(&x);
}

static void test_message_over_two_gib(void **state)
{
	struct vb_sge sges[4];
	struct vb_send_wr wr;
	struct fixture x;

	set_up(&x, VB_QPT_RC, VB_QPS_RTS);
	for (size_t i = 0; i < VB_ARRAY_SIZE(sges); i++)
		sges[i] = (struct vb_sge){(uintptr_t)x.memory, 0x80000000u, x.mr->lkey};
	wr = make_wr(&x, 1, 0);
	wr.sges = sges;
	wr.num_sge = 4; /* 8 GiB: in 32 bits, none */
	assert_int_equal(vb_qp_post_send(x.q.qp, &wr), 0);
	run(&x);
	assert_polls(&x, 1, VB_WC_LOC_LEN_ERR);
	assert_int_equal(x.q.qp->reason.check, VB_CHECK_MESSAGE_TOO_LONG);
	assert_int_equal(x.fake.tx_count, 0);
	tear_down(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slots_come_free_by_polling),
		cmocka_unit_test(test_unsignalled_slots_stay_taken),
		cmocka_unit_test(test_each_completion_frees_up_to_itself),
		cmocka_unit_test(test_sq_sig_all),
		cmocka_unit_test(test_receive_queue_is_bounded),
		cmocka_unit_test(test_short_messages_go_at_once_where_nothing_is_gained_by_waiting),
		cmocka_unit_test(test_turns_are_remembered_until_one_is_gone),
		cmocka_unit_test(test_first_fails_with_the_cause_the_rest_is_flushed),
		cmocka_unit_test(test_unreliable_stops_the_send_queue_only),
		cmocka_unit_test(test_ud_message_over_the_mtu),
		cmocka_unit_test(test_message_over_two_gib),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
