/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scenario_xrc.c - XRC under loss: the initiator's half repeats, the target's half answers, and
 * every request names its SRQ again. FLUSH and ATOMIC WRITE too, over RC and XRC.
 */
#include "scenario.h"

#include <string.h>

static const struct scenario_options xrc = {.xrc = true, .retry_cnt = 7, .rnr_retry = 7};
static const struct scenario_options rc = {.retry_cnt = 7, .rnr_retry = 7};

/* --- XRC --------------------------------------------------------------------------------- */

static void fill(struct scenario *s, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		s->memory[A][LOCAL_OFFSET + i] = (uint8_t)(i * 7);
}

/* A packet in the middle is lost: a sequence NAK, and all from there on again. */
static void test_message_with_a_gap(void **state)
{
	struct scenario *s = scenario_begin(&xrc);

	fill(s, 5 * 1024);
	scenario_recv(s, B, 10, 8192);
	scenario_rule(s, A, VB_OP_SEND_MIDDLE, 1, 1, VB_DROP);
	scenario_send(s, A, VB_WR_SEND, 1, 5 * 1024);
	scenario_run(s);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 0)->h.aeth.syndrome, 0x60);
	for (uint32_t i = 0; i < s->seen_count; i++) {
		assert_int_equal(vb_opcode_transport(s->seen[i].h.opcode), VB_TRANSPORT_XRC);
		if (s->seen[i].from == A) {
			assert_int_equal(s->seen[i].h.srqn, s->srq[B]->srqn);
			assert_int_equal(s->seen[i].h.qpn, s->qp[B]->qpn);
		} else {
			assert_int_equal(s->seen[i].h.qpn, s->qp[A]->qpn);
		}
	}
	scenario_expect(s, A, 0, 1, VB_WC_SUCCESS);
	assert_int_equal(scenario_expect(s, B, 0, 10, VB_WC_SUCCESS)->byte_len, 5 * 1024);
	assert_memory_equal(s->memory[B] + RECV_OFFSET, s->memory[A] + LOCAL_OFFSET, 5 * 1024);
	scenario_end(s);
}

static void test_lost_acknowledgement(void **state)
{
	struct scenario *s = scenario_begin(&xrc);

	scenario_recv(s, B, 10, 64);
	scenario_rule(s, B, VB_OP_ACK, 0, 1, VB_DROP);
	scenario_send(s, A, VB_WR_SEND, 1, 8);
	scenario_run(s);
	assert_int_equal(scenario_count(s, A, VB_OP_SEND_ONLY), 2);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 1)->h.aeth.msn, 1); /* not counted twice */
	scenario_expect(s, A, 0, 1, VB_WC_SUCCESS);
	assert_int_equal(s->cqe_count[B], 1);
	scenario_end(s);
}

static void test_read_resumes(void **state)
{
	struct scenario *s = scenario_begin(&xrc);

	for (uint32_t i = 0; i < 5 * 1024; i++)
		s->memory[B][REMOTE_OFFSET + i] = (uint8_t)(i * 5);
	scenario_rule(s, B, VB_OP_READ_RESPONSE_MIDDLE, 1, 1, VB_DROP);
	scenario_send(s, A, VB_WR_RDMA_READ, 1, 5 * 1024);
	scenario_run(s);
	assert_int_equal(scenario_count(s, A, VB_OP_READ_REQUEST), 2);
	assert_int_equal(scenario_nth(s, A, VB_OP_READ_REQUEST, 1)->h.reth.length, 3 * 1024);
	scenario_expect(s, A, 0, 1, VB_WC_SUCCESS);
	assert_memory_equal(s->memory[A] + LOCAL_OFFSET, s->memory[B] + REMOTE_OFFSET, 5 * 1024);
	scenario_end(s);
}

static void test_atomic_is_done_once(void **state)
{
	struct scenario *s = scenario_begin(&xrc);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_ATOMIC_FETCH_AND_ADD, 1, 8, &sge);
	uint64_t word = 40, old;

	memcpy(s->memory[B] + REMOTE_OFFSET, &word, 8);
	wr.compare_add = 2;
	scenario_rule(s, B, VB_OP_ATOMIC_ACK, 0, 1, VB_DROP);
	scenario_post(s, A, &wr);
	scenario_run(s);
	assert_int_equal(scenario_count(s, B, VB_OP_ATOMIC_ACK), 2);
	scenario_expect(s, A, 0, 1, VB_WC_SUCCESS);
	memcpy(&word, s->memory[B] + REMOTE_OFFSET, 8);
	memcpy(&old, s->memory[A] + LOCAL_OFFSET, 8);
	assert_int_equal(word, 42);
	assert_int_equal(old, 40);
	scenario_end(s);
}

static void test_receive_comes_late(void **state)
{
	struct scenario_options o = xrc;
	struct scenario *s;

	o.min_rnr_timer = 12; /* 0.64 ms, 0x2c */
	s = scenario_begin(&o);
	scenario_send(s, A, VB_WR_SEND_WITH_IMM, 1, 8);
	scenario_run_until(s, SCENARIO_RTT_NS + 1000);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 0)->h.aeth.syndrome, 0x2c);
	scenario_recv(s, B, 10, 64);
	scenario_run(s);
	assert_int_equal(scenario_expect(s, B, 0, 10, VB_WC_SUCCESS)->imm, 0x01020304);
	scenario_expect(s, A, 0, 1, VB_WC_SUCCESS);
	scenario_end(s);
}

/* The refusal is lost: the target is in ERR, and only the initiator's retries can tell. */
static void test_wrong_srq(void **state)
{
	struct scenario *s = scenario_begin(&xrc);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_SEND, 1, 8, &sge);

	wr.remote_srqn ^= 1;
	scenario_post(s, A, &wr);
	scenario_run(s);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 0)->h.aeth.syndrome, 0x62);
	scenario_expect(s, A, 0, 1, VB_WC_REM_ACCESS_ERR);
	assert_int_equal(s->qp[A]->state, VB_QPS_ERR);
	assert_int_equal(s->qp[B]->state, VB_QPS_ERR);
	assert_true(scenario_has_event(s, B, VB_EVENT_QP_ACCESS_ERR));
	scenario_end(s);
}

/* --- FLUSH and ATOMIC WRITE (annex A19) -------------------------------------------------- */

static struct vb_send_wr flush_wr(struct scenario *s, uint64_t wr_id, uint8_t placement,
				  uint8_t selectivity, uint32_t length)
{
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_FLUSH, wr_id, 0, &sge);

	wr.sges = NULL;
	wr.num_sge = 0;
	wr.flush.placement = placement;
	wr.flush.selectivity = selectivity;
	wr.flush.length = length;
	return wr;
}

/* Its answer is lost: answered again from what was kept, in the place of one READ. */
static void lose_the_answer_to_a_flush(const struct scenario_options *o)
{
	struct scenario *s = scenario_begin(o);
	struct vb_send_wr wr = flush_wr(s, 2, VB_FLUSH_GLOBAL, VB_FLUSH_RANGE, 4096);
	const struct seen *request, *answer;

	scenario_send(s, A, VB_WR_RDMA_WRITE, 1, 3000);
	scenario_rule(s, B, VB_OP_READ_RESPONSE_ONLY, 0, 1, VB_DROP);
	scenario_post(s, A, &wr);
	scenario_run(s);
	assert_int_equal(scenario_count(s, A, VB_OP_FLUSH), 2);
	request = scenario_nth(s, A, VB_OP_FLUSH, 0);
	assert_int_equal(request->bytes, 0);
	assert_int_equal(request->h.feth.placement, VB_FLUSH_GLOBAL);
	assert_int_equal(request->h.reth.length, 4096);
	answer = scenario_nth(s, B, VB_OP_READ_RESPONSE_ONLY, 1);
	assert_int_equal(answer->bytes, 0);
	assert_int_equal(answer->h.psn, request->h.psn);
	assert_int_equal(answer->h.aeth.msn, 2);
	scenario_expect(s, A, 0, 1, VB_WC_SUCCESS);
	assert_int_equal(scenario_expect(s, A, 1, 2, VB_WC_SUCCESS)->opcode, VB_WC_FLUSH);
	scenario_end(s);
}

static void test_flush_is_answered_again(void **state)
{
	lose_the_answer_to_a_flush(&rc);
	lose_the_answer_to_a_flush(&xrc);
}

/* Done once: what was written there since then stays when it comes again. */
static void atomic_write_comes_twice(const struct scenario_options *o)
{
	struct scenario *s = scenario_begin(o);
	const uint64_t value = 0x1122334455667788, later = 5;

	memcpy(s->memory[A] + LOCAL_OFFSET, &value, 8);
	scenario_rule(s, B, VB_OP_READ_RESPONSE_ONLY, 0, 1, VB_DROP);
	scenario_send(s, A, VB_WR_ATOMIC_WRITE, 1, 8);
	scenario_run_until(s, SCENARIO_RTT_NS);
	assert_memory_equal(s->memory[B] + REMOTE_OFFSET, &value, 8);
	memcpy(s->memory[B] + REMOTE_OFFSET, &later, 8);
	scenario_run(s);
	assert_int_equal(scenario_count(s, A, VB_OP_ATOMIC_WRITE), 2);
	assert_int_equal(scenario_nth(s, A, VB_OP_ATOMIC_WRITE, 0)->bytes, 8);
	assert_int_equal(scenario_nth(s, A, VB_OP_ATOMIC_WRITE, 0)->h.reth.length, 8);
	assert_int_equal(scenario_expect(s, A, 0, 1, VB_WC_SUCCESS)->opcode, VB_WC_ATOMIC_WRITE);
	assert_memory_equal(s->memory[B] + REMOTE_OFFSET, &later, 8);
	scenario_end(s);
}

static void test_atomic_write_is_done_once(void **state)
{
	atomic_write_comes_twice(&rc);
	atomic_write_comes_twice(&xrc);
}

static void test_no_more_at_once_than_reads(void **state)
{
	struct scenario_options o = rc;
	struct scenario *s;

	o.max_rd_atomic = 1;
	s = scenario_begin(&o);
	for (uint64_t i = 0; i < 3; i++) {
		struct vb_send_wr wr =
			flush_wr(s, i, VB_FLUSH_GLOBAL, VB_FLUSH_REGION, (uint32_t)i);

		scenario_post(s, A, &wr);
	}
	scenario_run(s);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(scenario_nth(s, A, VB_OP_FLUSH, i)->at_ns, i * SCENARIO_RTT_NS);
		scenario_expect(s, A, i, i, VB_WC_SUCCESS);
	}
	scenario_end(s);
}

static void refused(const struct vb_send_wr *change, enum vb_status status, enum vb_check check,
		    uint32_t access)
{
	struct scenario_options o = rc;
	struct scenario *s;
	struct vb_send_wr wr;
	struct vb_sge sge;

	o.access = access;
	s = scenario_begin(&o);
	if (change->opcode == VB_WR_FLUSH) {
		wr = flush_wr(s, 1, change->flush.placement, VB_FLUSH_RANGE, 64);
		wr.rkey ^= change->rkey;
	} else {
		wr = scenario_wr(s, A, change->opcode, 1, 8, &sge);
	}
	wr.remote_addr += change->remote_addr;
	scenario_post(s, A, &wr);
	scenario_run(s);
	scenario_expect(s, A, 0, 1, status);
	assert_int_equal(s->qp[B]->reason.check, check);
	scenario_end(s);
}

static void test_refusals(void **state)
{
	const struct vb_send_wr persistent = {
		.opcode = VB_WR_FLUSH,
		.flush.placement = VB_FLUSH_GLOBAL | VB_FLUSH_PERSISTENT,
	};
	const struct vb_send_wr global = {.opcode = VB_WR_FLUSH,
					  .flush.placement = VB_FLUSH_GLOBAL};
	const struct vb_send_wr behind = {
		.opcode = VB_WR_FLUSH,
		.flush.placement = VB_FLUSH_GLOBAL,
		.remote_addr = SCENARIO_BYTES,
	};
	const struct vb_send_wr odd = {.opcode = VB_WR_ATOMIC_WRITE, .remote_addr = 4};
	const struct vb_send_wr far = {.opcode = VB_WR_ATOMIC_WRITE, .remote_addr = SCENARIO_BYTES};
	const struct vb_send_wr write = {.opcode = VB_WR_ATOMIC_WRITE};
	const uint32_t all =
		VB_ACCESS_REMOTE_ALL | VB_ACCESS_FLUSH_GLOBAL | VB_ACCESS_FLUSH_PERSISTENT;

	refused(&persistent, VB_WC_REM_ACCESS_ERR, VB_CHECK_RKEY_RIGHTS, all);
	refused(&persistent, VB_WC_REM_INV_REQ_ERR, VB_CHECK_REQ_NOT_ENABLED, 0);
	refused(&global, VB_WC_REM_INV_REQ_ERR, VB_CHECK_REQ_NOT_ENABLED, VB_ACCESS_REMOTE_ALL);
	refused(&behind, VB_WC_REM_ACCESS_ERR, VB_CHECK_RKEY_RANGE, 0);
	refused(&odd, VB_WC_REM_INV_REQ_ERR, VB_CHECK_REQ_ATOMIC_ALIGNED, 0);
	refused(&far, VB_WC_REM_ACCESS_ERR, VB_CHECK_RKEY_RANGE, 0);
	refused(&write, VB_WC_REM_INV_REQ_ERR, VB_CHECK_REQ_NOT_ENABLED,
		VB_ACCESS_REMOTE_ATOMIC | VB_ACCESS_REMOTE_READ);
}

/* A FLUSH of the whole region says nothing about where it lies; its key must be right. */
static void test_flush_of_a_region(void **state)
{
	struct scenario *s = scenario_begin(&rc);
	struct vb_send_wr wr = flush_wr(s, 1, VB_FLUSH_GLOBAL, VB_FLUSH_REGION, 0);

	wr.remote_addr = 0;
	scenario_post(s, A, &wr);
	scenario_run(s);
	scenario_expect(s, A, 0, 1, VB_WC_SUCCESS);
	wr.wr_id = 2;
	wr.rkey ^= 0x80000000;
	scenario_post(s, A, &wr);
	scenario_run(s);
	scenario_expect(s, A, 1, 2, VB_WC_REM_ACCESS_ERR);
	scenario_end(s);
}

static void test_posting(void **state)
{
	struct scenario *s = scenario_begin(&rc);
	struct vb_send_wr wr;
	struct vb_sge sge;

	wr = flush_wr(s, 1, 0, VB_FLUSH_RANGE, 8);
	assert_int_equal(vb_qp_post_send(s->qp[A], &wr), -EINVAL);
	wr = flush_wr(s, 1, 4, VB_FLUSH_RANGE, 8);
	assert_int_equal(vb_qp_post_send(s->qp[A], &wr), -EINVAL);
	wr = flush_wr(s, 1, VB_FLUSH_GLOBAL, 2, 8);
	assert_int_equal(vb_qp_post_send(s->qp[A], &wr), -EINVAL);
	wr = scenario_wr(s, A, VB_WR_FLUSH, 1, 8, &sge); /* it carries no data */
	wr.flush.placement = VB_FLUSH_GLOBAL;
	assert_int_equal(vb_qp_post_send(s->qp[A], &wr), -EINVAL);
	wr = scenario_wr(s, A, VB_WR_ATOMIC_WRITE, 1, 4, &sge);
	assert_int_equal(vb_qp_post_send(s->qp[A], &wr), -EINVAL);
	wr = scenario_wr(s, A, VB_WR_ATOMIC_WRITE, 1, 16, &sge);
	assert_int_equal(vb_qp_post_send(s->qp[A], &wr), -EINVAL);
	scenario_end(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_message_with_a_gap),
		cmocka_unit_test(test_lost_acknowledgement),
		cmocka_unit_test(test_read_resumes),
		cmocka_unit_test(test_atomic_is_done_once),
		cmocka_unit_test(test_receive_comes_late),
		cmocka_unit_test(test_wrong_srq),
		cmocka_unit_test(test_flush_is_answered_again),
		cmocka_unit_test(test_atomic_write_is_done_once),
		cmocka_unit_test(test_no_more_at_once_than_reads),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_flush_of_a_region),
		cmocka_unit_test(test_posting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
