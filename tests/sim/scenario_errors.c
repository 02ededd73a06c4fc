/* SPDX-License-Identifier: BSD-2-Clause */
/* scenario_errors.c - each error status in its own situation, and how long it takes
 * (IBTA 9.7.5.2, 9.9, 11.6.2). */
#include "scenario.h"

#include <string.h>

#define MTU 1024u

static const struct scenario_options usual = {.retry_cnt = 7, .rnr_retry = 7};

/* --- retries that run out ---------------------------------------------------------------- */

/* retry_cnt + 1 times sent, each waited for by one to four timeouts; then the cause, and the rest
 * is flushed. */
static void peer_dead(void **state)
{
	const struct scenario_options options = {.retry_cnt = 3, .timeout = 10};
	struct scenario *s = scenario_begin(&options);
	const uint64_t timeout = scenario_timeout(10);
	const struct vb_cqe *cqe;

	vb_node_kill(&s->net.nodes[B]);
	scenario_recv(s, A, 20, 64);
	scenario_recv(s, A, 21, 64);
	for (uint64_t i = 0; i < 3; i++)
		scenario_send(s, A, VB_WR_SEND, 10 + i, 8);
	scenario_run(s);
	cqe = scenario_expect(s, A, 0, 10, VB_WC_RETRY_EXC_ERR);
	assert_int_equal(cqe->vendor_err, VB_CHECK_RETRY_EXCEEDED);
	assert_in_range(cqe->time_ns, 4 * timeout, 4 * 4 * timeout);
	assert_int_equal(scenario_count(s, A, VB_OP_SEND_ONLY), 4 * 3);
	for (uint32_t i = 1; i < 4; i++)
		assert_in_range(scenario_nth(s, A, VB_OP_SEND_ONLY, 3 * i)->at_ns, i * timeout,
				i * 4 * timeout);
	/* Each waits longer than the one before, up to four times the timeout. */
	assert_int_equal(scenario_nth(s, A, VB_OP_SEND_ONLY, 3)->at_ns, timeout);
	assert_int_equal(scenario_nth(s, A, VB_OP_SEND_ONLY, 6)->at_ns, (1 + 2) * timeout);
	assert_int_equal(scenario_nth(s, A, VB_OP_SEND_ONLY, 9)->at_ns, (1 + 2 + 4) * timeout);
	assert_int_equal(cqe->time_ns, (1 + 2 + 4 + 4) * timeout);
	scenario_expect(s, A, 1, 11, VB_WC_WR_FLUSH_ERR);
	scenario_expect(s, A, 2, 12, VB_WC_WR_FLUSH_ERR);
	scenario_expect(s, A, 3, 20, VB_WC_WR_FLUSH_ERR);
	scenario_expect(s, A, 4, 21, VB_WC_WR_FLUSH_ERR);
	assert_int_equal(s->cqe_count[A], 5);
	assert_int_equal(s->qp[A]->state, VB_QPS_ERR);
	assert_int_equal(s->qp[A]->reason.check, VB_CHECK_RETRY_EXCEEDED);
	/* What is posted from now on is taken, and flushed. */
	scenario_send(s, A, VB_WR_SEND, 30, 8);
	scenario_recv(s, A, 31, 64);
	scenario_run(s);
	scenario_expect(s, A, 5, 30, VB_WC_WR_FLUSH_ERR);
	scenario_expect(s, A, 6, 31, VB_WC_WR_FLUSH_ERR);
	scenario_end(s);
}

/* Progress starts the count afresh: retry_cnt 1 survives three losses that are not in a row. */
static void retries_start_afresh_with_progress(void **state)
{
	const struct scenario_options options = {.retry_cnt = 1, .timeout = 10};
	struct scenario *s = scenario_begin(&options);

	for (uint64_t i = 0; i < 3; i++) {
		scenario_recv(s, B, i, 64);
		scenario_rule(s, A, VB_OP_SEND_ONLY, (uint32_t)(2 * i), 1, VB_DROP);
	}
	for (uint64_t i = 0; i < 3; i++) {
		scenario_send(s, A, VB_WR_SEND, 10 + i, 8);
		scenario_run(s);
		scenario_expect(s, A, (uint32_t)i, 10 + i, VB_WC_SUCCESS);
	}
	assert_int_equal(s->net.nodes[A].nic->counters.timeouts, 3);
	scenario_end(s);
}

static void the_longest_timeout(void **state)
{
	const struct scenario_options options = {.retry_cnt = 0, .timeout = 31};
	struct scenario *s = scenario_begin(&options);

	/* 31: 4.096 us * 2^31 = 8796 s; one timeout, no retry. */
	vb_node_kill(&s->net.nodes[B]);
	scenario_send(s, A, VB_WR_SEND, 1, 8);
	scenario_run(s);
	assert_in_range(scenario_expect(s, A, 0, 1, VB_WC_RETRY_EXC_ERR)->time_ns, 8796093022208u,
			4 * 8796093022208u);
	assert_int_equal(scenario_count(s, A, -1), 1);
	scenario_end(s);
}

/* --- receiver not ready ------------------------------------------------------------------ */

static void rnr_retry_0_fails_at_once(void **state)
{
	const struct scenario_options options = {.retry_cnt = 7, .min_rnr_timer = 12};
	struct scenario *s = scenario_begin(&options);
	const struct vb_cqe *cqe;

	scenario_send(s, A, VB_WR_SEND, 1, 8);
	scenario_send(s, A, VB_WR_SEND, 2, 8);
	scenario_run(s);
	cqe = scenario_expect(s, A, 0, 1, VB_WC_RNR_RETRY_EXC_ERR);
	assert_int_equal(cqe->time_ns, SCENARIO_RTT_NS);
	assert_int_equal(cqe->vendor_err, VB_CHECK_RNR_RETRY_EXCEEDED);
	scenario_expect(s, A, 1, 2, VB_WC_WR_FLUSH_ERR);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 0)->h.aeth.syndrome, 0x2c);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 0)->h.psn, SCENARIO_PSN);
	assert_int_equal(s->qp[A]->state, VB_QPS_ERR);
	assert_int_equal(s->qp[B]->state, VB_QPS_RTS); /* nothing happened to it */
	scenario_end(s);
}

static void rnr_retry_2_waits_twice(void **state)
{
	const struct scenario_options options = {
		.retry_cnt = 7, .rnr_retry = 2, .min_rnr_timer = 12};
	struct scenario *s = scenario_begin(&options);
	const uint64_t timer = 640000; /* IBTA table 45: 12 is 0.64 ms */

	scenario_send(s, A, VB_WR_SEND, 1, 8);
	scenario_run(s);
	assert_int_equal(scenario_count(s, A, VB_OP_SEND_ONLY), 3);
	for (uint32_t i = 1; i < 3; i++)
		assert_true(scenario_nth(s, A, VB_OP_SEND_ONLY, i)->at_ns -
				    scenario_nth(s, B, VB_OP_ACK, i - 1)->at_ns >=
			    timer);
	assert_in_range(scenario_expect(s, A, 0, 1, VB_WC_RNR_RETRY_EXC_ERR)->time_ns,
			2 * timer + 3 * SCENARIO_RTT_NS, 4 * (2 * timer + 3 * SCENARIO_RTT_NS));
	scenario_end(s);
}

/* Timer field 0 is the longest, 655.36 ms, not none. */
static void rnr_timer_0_is_the_longest(void **state)
{
	const struct scenario_options options = {.retry_cnt = 7, .rnr_retry = 1};
	struct scenario *s = scenario_begin(&options);

	scenario_send(s, A, VB_WR_SEND, 1, 8);
	scenario_run(s);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 0)->h.aeth.syndrome, 0x20);
	assert_in_range(scenario_expect(s, A, 0, 1, VB_WC_RNR_RETRY_EXC_ERR)->time_ns, 655360000u,
			2000000000u);
	scenario_end(s);
}

static void rnr_retry_7_waits_for_ever(void **state)
{
	const struct scenario_options options = {
		.retry_cnt = 7, .rnr_retry = 7, .min_rnr_timer = 12};
	struct scenario *s = scenario_begin(&options);

	scenario_send(s, A, VB_WR_SEND, 1, 3 * MTU);
	scenario_send(s, A, VB_WR_SEND_WITH_IMM, 2, 8);
	scenario_run_until(s, 20000000);
	assert_int_equal(s->cqe_count[A], 0);
	assert_true(s->net.nodes[A].nic->counters.rx_rnr_naks > 20);
	scenario_recv(s, B, 10, 4096);
	scenario_run_until(s, 40000000);
	scenario_expect(s, A, 0, 1, VB_WC_SUCCESS);
	assert_int_equal(s->cqe_count[A], 1);
	scenario_recv(s, B, 11, 4096);
	scenario_run(s);
	scenario_expect(s, A, 1, 2, VB_WC_SUCCESS);
	assert_int_equal(scenario_expect(s, B, 0, 10, VB_WC_SUCCESS)->byte_len, 3 * MTU);
	assert_int_equal(scenario_expect(s, B, 1, 11, VB_WC_SUCCESS)->imm, 0x01020304);
	assert_int_equal(s->net.nodes[A].nic->counters.timeouts, 0);
	scenario_end(s);
}

/* Who needs no receive request meets no RNR; WRITE with immediate needs one, and its data is not
 * lost. */
static void rnr_only_for_those_that_need_a_receive(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	const struct vb_cqe *cqe;

	scenario_send(s, A, VB_WR_RDMA_WRITE, 1, 8);
	scenario_send(s, A, VB_WR_RDMA_READ, 2, 8);
	scenario_send(s, A, VB_WR_ATOMIC_FETCH_AND_ADD, 3, 8);
	scenario_run(s);
	assert_int_equal(s->cqe_count[A], 3);
	assert_int_equal(s->net.nodes[B].nic->counters.tx_rnr_naks, 0);
	memset(s->memory[A] + LOCAL_OFFSET, 0x5a, 2 * MTU);
	scenario_send(s, A, VB_WR_RDMA_WRITE_WITH_IMM, 4, 2 * MTU);
	scenario_run_until(s, s->net.sim.now_ns + SCENARIO_RTT_NS);
	assert_int_equal(s->net.nodes[B].nic->counters.tx_rnr_naks, 1);
	scenario_recv(s, B, 10, 0);
	scenario_run(s);
	scenario_expect(s, A, 3, 4, VB_WC_SUCCESS);
	cqe = scenario_expect(s, B, 0, 10, VB_WC_SUCCESS);
	assert_int_equal(cqe->opcode, VB_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(cqe->byte_len, 2 * MTU);
	assert_memory_equal(s->memory[B] + REMOTE_OFFSET, s->memory[A] + LOCAL_OFFSET, 2 * MTU);
	scenario_end(s);
}

/* --- what the responder refuses ---------------------------------------------------------- */

/* One good request, the bad one, one behind it: success, the cause, flush; and the responder is in
 * ERR. */
static void expect_refusal(struct scenario *s, const struct vb_send_wr *bad, enum vb_status status,
			   enum vb_event_type event, enum vb_check check)
{
	scenario_recv(s, B, 50, 64);
	scenario_send(s, A, VB_WR_SEND, 1, 8);
	scenario_post(s, A, bad);
	scenario_send(s, A, VB_WR_RDMA_READ, 3, 8);
	scenario_recv(s, B, 51, 64);
	scenario_recv(s, A, 4, 64);
	scenario_run(s);
	scenario_expect(s, A, 0, 1, VB_WC_SUCCESS);
	assert_in_range(scenario_expect(s, A, 1, bad->wr_id, status)->time_ns, SCENARIO_RTT_NS,
			SCENARIO_RTT_NS);
	scenario_expect(s, A, 2, 3, VB_WC_WR_FLUSH_ERR);
	scenario_expect(s, A, 3, 4, VB_WC_WR_FLUSH_ERR);
	assert_int_equal(s->qp[A]->state, VB_QPS_ERR);
	assert_int_equal(s->qp[B]->state, VB_QPS_ERR);
	assert_true(scenario_has_event(s, B, event));
	assert_int_equal(s->event_count[A], 0); /* its completion says it */
	assert_int_equal(s->qp[B]->reason.check, check);
	scenario_expect(s, B, 0, 50, VB_WC_SUCCESS);
}

static void rkey_unknown(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_RDMA_WRITE, 2, 3 * MTU, &sge);

	wr.rkey ^= 0x80000000u;
	expect_refusal(s, &wr, VB_WC_REM_ACCESS_ERR, VB_EVENT_QP_ACCESS_ERR, VB_CHECK_RKEY_UNKNOWN);
	scenario_expect(s, B, 1, 51, VB_WC_WR_FLUSH_ERR);
	scenario_end(s);
}

/* The classic mistake, which works on hardware where both keys are equal. */
static void rkey_is_an_lkey(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_RDMA_READ, 2, 8, &sge);

	wr.rkey = s->mr[B]->lkey;
	expect_refusal(s, &wr, VB_WC_REM_ACCESS_ERR, VB_EVENT_QP_ACCESS_ERR, VB_CHECK_RKEY_IS_LKEY);
	scenario_end(s);
}

/* One byte too many, checked for the whole message with its first packet: nothing is written. */
static void range_exceeded_by_one(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_RDMA_WRITE, 2, 3 * MTU, &sge);

	memset(s->memory[A] + LOCAL_OFFSET, 0x77, 3 * MTU);
	wr.remote_addr = s->mr[B]->iova + SCENARIO_BYTES - 3 * MTU + 1;
	expect_refusal(s, &wr, VB_WC_REM_ACCESS_ERR, VB_EVENT_QP_ACCESS_ERR, VB_CHECK_RKEY_RANGE);
	for (uint32_t i = 1; i <= 3 * MTU; i++)
		assert_int_equal(s->memory[B][SCENARIO_BYTES - i], 0);
	scenario_end(s);
}

static void region_without_the_right(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	struct vb_mr *mr = vb_mr_create(s->pd[B], s->memory[B], 4096, 0,
					VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_READ);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_ATOMIC_FETCH_AND_ADD, 2, 8, &sge);

	wr.rkey = mr->rkey;
	wr.remote_addr = 0;
	expect_refusal(s, &wr, VB_WC_REM_ACCESS_ERR, VB_EVENT_QP_ACCESS_ERR, VB_CHECK_RKEY_RIGHTS);
	vb_mr_destroy(mr);
	scenario_end(s);
}

static void region_of_another_domain(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	struct vb_pd *pd = vb_pd_create(s->net.nodes[B].nic);
	struct vb_mr *mr = vb_mr_create(pd, s->memory[B], 4096, 0,
					VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_RDMA_WRITE, 2, 8, &sge);

	wr.rkey = mr->rkey;
	wr.remote_addr = 0;
	expect_refusal(s, &wr, VB_WC_REM_ACCESS_ERR, VB_EVENT_QP_ACCESS_ERR, VB_CHECK_RKEY_PD);
	vb_mr_destroy(mr);
	assert_int_equal(vb_pd_destroy(pd), 0);
	scenario_end(s);
}

static void atomic_not_aligned(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_ATOMIC_CMP_AND_SWP, 2, 8, &sge);

	wr.remote_addr += 4;
	expect_refusal(s, &wr, VB_WC_REM_INV_REQ_ERR, VB_EVENT_QP_REQ_ERR,
		       VB_CHECK_REQ_ATOMIC_ALIGNED);
	scenario_end(s);
}

static void queue_pair_without_the_right(void **state)
{
	const struct scenario_options options = {.retry_cnt = 7, .access = VB_ACCESS_REMOTE_READ};
	struct scenario *s = scenario_begin(&options);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_ATOMIC_FETCH_AND_ADD, 2, 8, &sge);

	expect_refusal(s, &wr, VB_WC_REM_INV_REQ_ERR, VB_EVENT_QP_REQ_ERR,
		       VB_CHECK_REQ_NOT_ENABLED);
	scenario_end(s);
}

static void no_reads_accepted(void **state)
{
	const struct scenario_options options = {.retry_cnt = 7,
						 .max_dest_rd_atomic = NO_RD_ATOMIC};
	struct scenario *s = scenario_begin(&options);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_ATOMIC_FETCH_AND_ADD, 2, 8, &sge);

	expect_refusal(s, &wr, VB_WC_REM_INV_REQ_ERR, VB_EVENT_QP_REQ_ERR, VB_CHECK_REQ_RD_ATOMIC);
	scenario_end(s);
}

/* The receive buffer is too short: the receiver's request fails too, and is not overrun. */
static void message_longer_than_the_buffer(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_SEND, 2, 65, &sge);

	memset(s->memory[A] + LOCAL_OFFSET, 0x33, 65);
	expect_refusal(s, &wr, VB_WC_REM_INV_REQ_ERR, VB_EVENT_QP_REQ_ERR, VB_CHECK_RECV_TOO_SHORT);
	scenario_expect(s, B, 1, 51, VB_WC_LOC_LEN_ERR);
	assert_int_equal(s->cqe_count[B], 2);
	assert_int_equal(s->memory[B][RECV_OFFSET + 64], 0);
	scenario_end(s);
}

/* The receiver's own mistake: its buffer's key is wrong. */
static void receive_with_a_wrong_lkey(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	struct vb_sge sge = {s->mr[B]->iova, 64, s->mr[B]->lkey ^ 0x80000000u};
	const struct vb_recv_wr bad = {.wr_id = 60, .sges = &sge, .num_sge = 1};

	assert_int_equal(vb_qp_post_recv(s->qp[B], &bad), 0);
	scenario_recv(s, B, 61, 64);
	scenario_send(s, A, VB_WR_SEND, 1, 8);
	scenario_run(s);
	scenario_expect(s, A, 0, 1, VB_WC_REM_OP_ERR);
	scenario_expect(s, B, 0, 60, VB_WC_LOC_PROT_ERR);
	scenario_expect(s, B, 1, 61, VB_WC_WR_FLUSH_ERR);
	assert_int_equal(s->qp[B]->state, VB_QPS_ERR);
	scenario_end(s);
}

/* The region goes away between two packets of one WRITE. */
static void region_gone_in_the_middle(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	struct vb_mr *mr = vb_mr_create(s->pd[B], s->memory[B], 64 * MTU, 0,
					VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_RDMA_WRITE, 2, 8 * MTU, &sge);

	wr.rkey = mr->rkey;
	wr.remote_addr = 0;
	s->net.links[A][B].rate = 10000000000; /* so that they arrive one after the other */
	scenario_post(s, A, &wr);
	scenario_run_until(s, SCENARIO_DELAY_NS + 3000);
	vb_mr_destroy(mr);
	scenario_run(s);
	scenario_expect(s, A, 0, 2, VB_WC_REM_ACCESS_ERR);
	assert_true(scenario_has_event(s, B, VB_EVENT_QP_ACCESS_ERR));
	scenario_end(s);
}

/* The same with a READ that is being answered. */
static void region_gone_while_it_is_read(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	struct vb_mr *mr = vb_mr_create(s->pd[B], s->memory[B], 200 * MTU, 0,
					VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_RDMA_READ, 2, 3 * MTU, &sge);

	wr.rkey = mr->rkey;
	wr.remote_addr = 0;
	s->net.nodes[B].again_ppm = VB_MILLION;
	scenario_post(s, A, &wr);
	scenario_run_until(s, 50000);
	vb_mr_destroy(mr);
	s->net.nodes[B].again_ppm = 0;
	scenario_run(s);
	scenario_expect(s, A, 0, 2, VB_WC_REM_ACCESS_ERR);
	assert_int_equal(scenario_count(s, B, -1), 1);
	assert_int_equal(s->qp[B]->state, VB_QPS_ERR);
	scenario_end(s);
}

/* Once found by a seed: the carrier had no room when the NAK was due, the QP entered ERR and forgot
 * it, and the peer's retries ran out instead. */
static void nak_leaves_when_the_carrier_has_room(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_RDMA_WRITE, 3, 8, &sge);

	wr.rkey ^= 0x80000000u;
	s->net.nodes[B].again_ppm = VB_MILLION;
	scenario_send(s, A, VB_WR_RDMA_READ, 2, 3 * MTU);
	scenario_post(s, A, &wr);
	scenario_run_until(s, 100000);
	assert_int_equal(s->qp[B]->state, VB_QPS_ERR);
	assert_int_equal(scenario_count(s, B, -1), 0);
	s->net.nodes[B].again_ppm = 0;
	scenario_run(s);
	scenario_expect(s, A, 0, 2, VB_WC_SUCCESS);
	scenario_expect(s, A, 1, 3, VB_WC_REM_ACCESS_ERR);
	assert_int_equal(s->net.nodes[A].nic->counters.timeouts, 0);
	scenario_end(s);
}

/* The NAK itself is lost: the responder is in ERR and says nothing more, so retries run out. */
static void fatal_nak_lost(void **state)
{
	const struct scenario_options options = {.retry_cnt = 2, .timeout = 10};
	struct scenario *s = scenario_begin(&options);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_RDMA_WRITE, 3, 8, &sge);

	wr.rkey ^= 0x80000000u;
	scenario_rule(s, B, VB_OP_ACK, 0, 1, VB_DROP);
	scenario_post(s, A, &wr);
	scenario_run(s);
	assert_in_range(scenario_expect(s, A, 0, 3, VB_WC_RETRY_EXC_ERR)->time_ns,
			3 * scenario_timeout(10), 12 * scenario_timeout(10));
	assert_int_equal(scenario_count(s, B, -1), 1);
	scenario_end(s);
}

/* --- what the requester finds itself ----------------------------------------------------- */

/* It fails in its turn: what was sent before it still succeeds, and the peer never hears of it. */
static void send_with_a_wrong_lkey(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_SEND, 2, 8, &sge);

	scenario_recv(s, B, 50, 64);
	scenario_recv(s, B, 51, 64);
	scenario_send(s, A, VB_WR_SEND, 1, 8);
	sge.lkey ^= 0x80000000u;
	scenario_post(s, A, &wr);
	scenario_send(s, A, VB_WR_SEND, 3, 8);
	scenario_run(s);
	scenario_expect(s, A, 0, 1, VB_WC_SUCCESS);
	assert_int_equal(scenario_expect(s, A, 1, 2, VB_WC_LOC_PROT_ERR)->vendor_err,
			 VB_CHECK_SGE_LKEY_UNKNOWN);
	scenario_expect(s, A, 2, 3, VB_WC_WR_FLUSH_ERR);
	assert_int_equal(scenario_count(s, A, -1), 1);
	assert_int_equal(s->qp[B]->state, VB_QPS_RTS);
	scenario_end(s);
}

static void read_into_memory_that_may_not_be_written(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	struct vb_mr *mr = vb_mr_create(s->pd[A], s->memory[A], 4096, 0, 0);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_RDMA_READ, 2, 8, &sge);

	sge.addr = 0;
	sge.lkey = mr->lkey;
	scenario_post(s, A, &wr);
	scenario_run(s);
	assert_int_equal(scenario_expect(s, A, 0, 2, VB_WC_LOC_PROT_ERR)->vendor_err,
			 VB_CHECK_SGE_RIGHTS);
	assert_int_equal(scenario_count(s, A, -1), 0);
	vb_mr_destroy(mr);
	scenario_end(s);
}

/* An answer that does not fit the request: the responder is broken, or somebody plays one. */
static void answer_of_the_wrong_kind(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	const struct vb_headers h = {
		.opcode = vb_opcode(VB_TRANSPORT_RC, VB_OP_READ_RESPONSE_ONLY),
		.pkey = VB_DEFAULT_PKEY,
		.qpn = s->qp[A]->qpn,
		.psn = SCENARIO_PSN,
		.aeth = {.syndrome = 0x1f},
	};

	s->net.links[A][B].cut = true;
	scenario_send(s, A, VB_WR_RDMA_READ, 2, 100);
	scenario_run_until(s, 1000);
	scenario_inject(s, A, &h, "12345678", 8, NULL);
	vb_node_kick(&s->net.nodes[A]);
	scenario_run(s);
	scenario_expect(s, A, 0, 2, VB_WC_BAD_RESP_ERR);
	assert_int_equal(s->qp[A]->state, VB_QPS_ERR);
	scenario_end(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(peer_dead),
		cmocka_unit_test(retries_start_afresh_with_progress),
		cmocka_unit_test(the_longest_timeout),
		cmocka_unit_test(rnr_retry_0_fails_at_once),
		cmocka_unit_test(rnr_retry_2_waits_twice),
		cmocka_unit_test(rnr_timer_0_is_the_longest),
		cmocka_unit_test(rnr_retry_7_waits_for_ever),
		cmocka_unit_test(rnr_only_for_those_that_need_a_receive),
		cmocka_unit_test(rkey_unknown),
		cmocka_unit_test(rkey_is_an_lkey),
		cmocka_unit_test(range_exceeded_by_one),
		cmocka_unit_test(region_without_the_right),
		cmocka_unit_test(region_of_another_domain),
		cmocka_unit_test(atomic_not_aligned),
		cmocka_unit_test(queue_pair_without_the_right),
		cmocka_unit_test(no_reads_accepted),
		cmocka_unit_test(message_longer_than_the_buffer),
		cmocka_unit_test(receive_with_a_wrong_lkey),
		cmocka_unit_test(region_gone_in_the_middle),
		cmocka_unit_test(region_gone_while_it_is_read),
		cmocka_unit_test(nak_leaves_when_the_carrier_has_room),
		cmocka_unit_test(fatal_nak_lost),
		cmocka_unit_test(send_with_a_wrong_lkey),
		cmocka_unit_test(read_into_memory_that_may_not_be_written),
		cmocka_unit_test(answer_of_the_wrong_kind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
