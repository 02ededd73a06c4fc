/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_watch.c - the peer of an idle connection is asked by a duplicate, and counts as gone after
 * six that it does not answer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fake_nic.h"

#define SECOND 1000000000ull
#define START (100 * SECOND)
#define INTERVAL (5 * SECOND)
#define PROBES 6
#define SQ_PSN 0x654321u /* fake_attr's */

static void set_up(struct fake *fake, struct fake_qp *q)
{
	fake_init(fake);
	fake_qp_create(fake, q, VB_QPT_RC, 64);
	fake_bring_to(q->qp, VB_QPS_RTS);
	vb_nic_run(fake->nic, START);
	vb_qp_watch(q->qp, INTERVAL);
}

static void take_down(struct fake *fake, struct fake_qp *q)
{
	fake_qp_destroy(q);
	fake_finish(fake);
}

/* The next thing that happens by itself; returns when. */
static uint64_t next(struct fake *fake)
{
	uint64_t now = vb_nic_deadline(fake->nic);

	assert_true(now != VB_NEVER);
	while (vb_nic_run(fake->nic, now))
		;
	return now;
}

static void a_silent_peer_is_given_up(void **state)
{
	const struct vb_recv_wr receive = {.wr_id = 9};
	struct fake fake;
	struct fake_qp q;
	struct vb_cqe cqe;

	set_up(&fake, &q);
	assert_int_equal(vb_qp_post_recv(q.qp, &receive), 0);
	for (unsigned int i = 1; i <= PROBES; i++) {
		assert_int_equal(next(&fake), START + i * INTERVAL);
		assert_int_equal(fake.tx_count, i);
		assert_int_equal(fake.tx_headers.opcode,
				 vb_opcode(VB_TRANSPORT_RC, VB_OP_SEND_ONLY));
		assert_int_equal(fake.tx_headers.psn, SQ_PSN - 1);
		assert_true(fake.tx_headers.ack_req);
		assert_int_equal(fake.tx_bytes, 0);
		assert_int_equal(q.qp->state, VB_QPS_RTS);
	}
	assert_int_equal(next(&fake), START + (PROBES + 1) * INTERVAL);
	assert_int_equal(fake.tx_count, PROBES);
	assert_int_equal(q.qp->state, VB_QPS_ERR);
	assert_int_equal(q.qp->reason.check, VB_CHECK_RETRY_EXCEEDED);
	assert_int_equal(fake_count_events(&fake, VB_EVENT_QP_FATAL), 1);
	assert_int_equal(vb_cq_poll(q.cq, &cqe, 1), 1);
	assert_int_equal(cqe.status, VB_WC_WR_FLUSH_ERR);
	assert_true(vb_nic_deadline(fake.nic) == VB_NEVER);
	take_down(&fake, &q);
}

static void a_peer_that_answers_is_asked_seldom(void **state)
{
	struct fake fake;
	struct fake_qp q;
	uint64_t now;

	set_up(&fake, &q);
	for (unsigned int i = 1; i <= 3 * PROBES; i++) {
		now = next(&fake);
		assert_int_equal(fake.tx_count, i);
		fake_ack(&fake, q.qp, SQ_PSN - 1); /* what a duplicate is answered with */
		assert_int_equal(vb_nic_deadline(fake.nic), now + INTERVAL);
	}
	assert_int_equal(q.qp->state, VB_QPS_RTS);
	take_down(&fake, &q);
}

static void nobody_is_asked_while_requests_are_under_way(void **state)
{
	const struct vb_send_wr wr = {.wr_id = 1, .opcode = VB_WR_SEND, .flags = VB_SEND_SIGNALED};
	struct fake fake;
	struct fake_qp q;
	struct vb_cqe cqe;
	unsigned int repeated = 0;

	set_up(&fake, &q);
	assert_int_equal(vb_qp_post_send(q.qp, &wr), 0);
	while (vb_nic_run(fake.nic, START))
		;
	while (vb_cq_poll(q.cq, &cqe, 1) == 0) { /* its own retries end it */
		next(&fake);
		assert_int_equal(fake.tx_headers.psn, SQ_PSN);
		assert_true(++repeated < 100);
	}
	assert_int_equal(cqe.status, VB_WC_RETRY_EXC_ERR);
	take_down(&fake, &q);
}

static void reset_ends_the_watch(void **state)
{
	struct fake fake;
	struct fake_qp q;

	set_up(&fake, &q);
	assert_int_equal(fake_modify(q.qp, VB_QPS_RESET, VB_QP_STATE), 0);
	fake_bring_to(q.qp, VB_QPS_RTS);
	vb_nic_run(fake.nic, START + 2 * INTERVAL);
	assert_true(vb_nic_deadline(fake.nic) == VB_NEVER);
	assert_int_equal(fake.tx_count, 0);
	take_down(&fake, &q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_silent_peer_is_given_up),
		cmocka_unit_test(a_peer_that_answers_is_asked_seldom),
		cmocka_unit_test(nobody_is_asked_while_requests_are_under_way),
		cmocka_unit_test(reset_ends_the_watch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
