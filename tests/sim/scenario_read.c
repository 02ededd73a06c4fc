/* SPDX-License-Identifier: BSD-2-Clause */
/* scenario_read.c - READs and atomics: what is lost, what is asked again, in which order
 * (IBTA 9.7.5.1). */
#include "scenario.h"

#include <string.h>

#define MTU 1024u

static const struct scenario_options usual = {.retry_cnt = 7, .rnr_retry = 7};

static void fill(struct scenario *s, uint8_t value, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		s->memory[B][REMOTE_OFFSET + i] = (uint8_t)(value + i / 251);
}

static uint64_t word_at(const uint8_t *at)
{
	uint64_t word;

	memcpy(&word, at, 8);
	return word;
}

static void atomic(struct scenario *s, enum vb_wr_opcode opcode, uint64_t wr_id,
		   uint64_t compare_add, uint64_t swap)
{
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, opcode, wr_id, 8, &sge);

	sge.addr += 8 * wr_id; /* results side by side */
	wr.compare_add = compare_add;
	wr.swap = swap;
	scenario_post(s, A, &wr);
}

/* The answer behind the gap is an implied NAK: at once, the rest is asked for, from the missing
 * PSN. */
static void response_lost_and_resumed_there(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	const struct seen *first, *again;

	fill(s, 1, 5 * MTU);
	scenario_rule(s, B, VB_OP_READ_RESPONSE_MIDDLE, 1, 1, VB_DROP); /* the third of five */
	scenario_send(s, A, VB_WR_RDMA_READ, 2, 5 * MTU);
	scenario_run(s);
	assert_int_equal(scenario_count(s, A, -1), 2);
	first = scenario_nth(s, A, VB_OP_READ_REQUEST, 0);
	again = scenario_nth(s, A, VB_OP_READ_REQUEST, 1);
	assert_int_equal(again->at_ns, SCENARIO_RTT_NS);
	assert_int_equal(again->h.psn, (first->h.psn + 2) & 0xffffff);
	assert_int_equal(again->h.reth.va, first->h.reth.va + 2 * MTU);
	assert_int_equal(again->h.reth.length, 3 * MTU);
	assert_int_equal(scenario_nth(s, B, VB_OP_READ_RESPONSE_FIRST, 1)->h.psn, again->h.psn);
	assert_int_equal(scenario_expect(s, A, 0, 2, VB_WC_SUCCESS)->time_ns, 2 * SCENARIO_RTT_NS);
	assert_memory_equal(s->memory[A] + LOCAL_OFFSET, s->memory[B] + REMOTE_OFFSET, 5 * MTU);
	scenario_end(s);
}

/* The last is lost, nothing follows it: the timeout. The READ is executed again on the memory as it
 * is then. */
static void last_response_lost_and_read_again(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	const struct seen *again;

	fill(s, 1, 5 * MTU);
	scenario_rule(s, B, VB_OP_READ_RESPONSE_LAST, 0, 1, VB_DROP);
	scenario_send(s, A, VB_WR_RDMA_READ, 2, 5 * MTU);
	scenario_run_until(s, 2 * SCENARIO_RTT_NS);
	assert_int_equal(s->cqe_count[A], 0);
	fill(s, 101, 5 * MTU);
	scenario_run(s);
	again = scenario_nth(s, A, VB_OP_READ_REQUEST, 1);
	/* From the last answer on: progress starts the timer afresh. */
	assert_in_range(again->at_ns - SCENARIO_RTT_NS, scenario_timeout(14),
			4 * scenario_timeout(14));
	assert_int_equal(again->h.reth.length, MTU);
	assert_int_equal(scenario_count(s, B, VB_OP_READ_RESPONSE_ONLY), 1);
	scenario_expect(s, A, 0, 2, VB_WC_SUCCESS);
	assert_int_equal(s->memory[A][LOCAL_OFFSET], 1);
	assert_memory_equal(s->memory[A] + LOCAL_OFFSET + 4 * MTU,
			    s->memory[B] + REMOTE_OFFSET + 4 * MTU, MTU);
	scenario_end(s);
}

static void request_lost(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	const struct seen *again;

	scenario_rule(s, A, VB_OP_READ_REQUEST, 0, 1, VB_DROP);
	scenario_send(s, A, VB_WR_RDMA_READ, 2, 3 * MTU + 1);
	scenario_run(s);
	again = scenario_nth(s, A, VB_OP_READ_REQUEST, 1);
	assert_in_range(again->at_ns, scenario_timeout(14), 4 * scenario_timeout(14));
	assert_int_equal(again->h.psn, SCENARIO_PSN);
	assert_int_equal(again->h.reth.length, 3 * MTU + 1);
	scenario_expect(s, A, 0, 2, VB_WC_SUCCESS);
	scenario_end(s);
}

/* Executed once, answered twice: the duplicate gets the saved result, whatever the word is by then.
 */
static void atomic_answer_lost(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	uint64_t *word = (uint64_t *)(void *)(s->memory[B] + REMOTE_OFFSET);

	*word = 40;
	scenario_rule(s, B, VB_OP_ATOMIC_ACK, 0, 1, VB_DROP);
	atomic(s, VB_WR_ATOMIC_FETCH_AND_ADD, 0, 2, 0);
	scenario_run_until(s, 2 * SCENARIO_RTT_NS);
	assert_int_equal(*word, 42);
	*word = 1000;
	scenario_run(s);
	assert_int_equal(scenario_count(s, A, VB_OP_FETCH_ADD), 2);
	assert_int_equal(scenario_count(s, B, VB_OP_ATOMIC_ACK), 2);
	assert_int_equal(scenario_nth(s, B, VB_OP_ATOMIC_ACK, 1)->h.atomic_ack, 40);
	assert_int_equal(scenario_nth(s, B, VB_OP_ATOMIC_ACK, 1)->h.aeth.msn, 1);
	scenario_expect(s, A, 0, 0, VB_WC_SUCCESS);
	assert_int_equal(word_at(s->memory[A] + LOCAL_OFFSET), 40);
	assert_int_equal(*word, 1000);
	scenario_end(s);
}

static void compare_and_swap_answer_lost(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	uint64_t *word = (uint64_t *)(void *)(s->memory[B] + REMOTE_OFFSET);

	*word = 7;
	scenario_rule(s, B, VB_OP_ATOMIC_ACK, 0, 1, VB_DROP);
	atomic(s, VB_WR_ATOMIC_CMP_AND_SWP, 0, 7, 8);
	atomic(s, VB_WR_ATOMIC_CMP_AND_SWP, 1, 7, 9); /* fails: 8 is there */
	scenario_run(s);
	/* The second's answer shows that the first's was lost: both again, at once. */
	assert_int_equal(scenario_nth(s, A, VB_OP_CMP_SWP, 2)->at_ns, SCENARIO_RTT_NS);
	scenario_expect(s, A, 0, 0, VB_WC_SUCCESS);
	scenario_expect(s, A, 1, 1, VB_WC_SUCCESS);
	assert_int_equal(word_at(s->memory[A] + LOCAL_OFFSET), 7);
	assert_int_equal(word_at(s->memory[A] + LOCAL_OFFSET + 8), 8);
	assert_int_equal(*word, 8);
	scenario_end(s);
}

/* An ACK of a later SEND can't stand for the answer of a READ before it. */
static void ack_behind_a_lost_response(void **state)
{
	struct scenario *s = scenario_begin(&usual);

	fill(s, 5, 100);
	scenario_recv(s, B, 1, 4096);
	scenario_rule(s, B, VB_OP_READ_RESPONSE_ONLY, 0, 1, VB_DROP);
	scenario_send(s, A, VB_WR_RDMA_READ, 2, 100);
	scenario_send(s, A, VB_WR_SEND, 3, 100);
	scenario_run(s);
	assert_int_equal(scenario_nth(s, A, VB_OP_READ_REQUEST, 1)->at_ns, SCENARIO_RTT_NS);
	scenario_expect(s, A, 0, 2, VB_WC_SUCCESS);
	scenario_expect(s, A, 1, 3, VB_WC_SUCCESS);
	assert_memory_equal(s->memory[A] + LOCAL_OFFSET, s->memory[B] + REMOTE_OFFSET, 100);
	assert_int_equal(s->cqe_count[B], 1);
	scenario_end(s);
}

static void max_rd_atomic_kept(void **state)
{
	const struct scenario_options one = {
		.retry_cnt = 7, .max_rd_atomic = 1, .max_dest_rd_atomic = 1};
	struct scenario *s = scenario_begin(&one);

	for (uint64_t i = 0; i < 3; i++)
		scenario_send(s, A, VB_WR_RDMA_READ, i, 8);
	scenario_run(s);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(scenario_nth(s, A, VB_OP_READ_REQUEST, i)->at_ns,
				 i * SCENARIO_RTT_NS);
		scenario_expect(s, A, i, i, VB_WC_SUCCESS);
	}
	scenario_end(s);
}

/* A fenced request waits for the READs and atomics before it, another one does not (IBTA 10.8.3.3).
 */
static void fence(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	struct vb_sge sge;
	struct vb_send_wr wr;

	scenario_send(s, A, VB_WR_RDMA_READ, 1, 8);
	wr = scenario_wr(s, A, VB_WR_RDMA_WRITE, 2, 8, &sge);
	scenario_post(s, A, &wr);
	wr = scenario_wr(s, A, VB_WR_RDMA_WRITE, 3, 8, &sge);
	wr.flags |= VB_SEND_FENCE;
	scenario_post(s, A, &wr);
	scenario_run(s);
	assert_int_equal(scenario_nth(s, A, VB_OP_WRITE_ONLY, 0)->at_ns, 0);
	assert_int_equal(scenario_nth(s, A, VB_OP_WRITE_ONLY, 1)->at_ns, SCENARIO_RTT_NS);
	for (uint32_t i = 0; i < 3; i++)
		scenario_expect(s, A, i, 1 + i, VB_WC_SUCCESS);
	scenario_end(s);
}

/* Once found by a seed: late copies of atomics that were answered long ago were being answered
 * again, and counted against max_dest_rd_atomic, so that new ones were refused. */
static void repetition_does_not_count_as_outstanding(void **state)
{
	const struct scenario_options two = {
		.retry_cnt = 7, .max_rd_atomic = 2, .max_dest_rd_atomic = 2};
	struct scenario *s = scenario_begin(&two);
	uint64_t *word = (uint64_t *)(void *)(s->memory[B] + REMOTE_OFFSET);

	for (uint64_t i = 0; i < 4; i++)
		atomic(s, VB_WR_ATOMIC_FETCH_AND_ADD, i, 1, 0);
	scenario_run_until(s, SCENARIO_RTT_NS);
	assert_int_equal(scenario_count(s, A, VB_OP_FETCH_ADD), 4);
	scenario_inject(s, B, &scenario_nth(s, A, VB_OP_FETCH_ADD, 0)->h, NULL, 0, NULL);
	scenario_inject(s, B, &scenario_nth(s, A, VB_OP_FETCH_ADD, 1)->h, NULL, 0, NULL);
	scenario_run(s);
	for (uint32_t i = 0; i < 4; i++) {
		scenario_expect(s, A, i, i, VB_WC_SUCCESS);
		assert_int_equal(word_at(s->memory[A] + LOCAL_OFFSET + 8 * i), i);
	}
	assert_int_equal(*word, 4);
	scenario_end(s);
}

/* A READ of nothing is one packet there and one back, and its key does not matter. */
static void zero_length(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_RDMA_READ, 1, 0, &sge);

	wr.rkey = 0x12345678;
	sge.lkey = 0x12345678;
	scenario_post(s, A, &wr);
	wr.opcode = VB_WR_RDMA_WRITE;
	wr.wr_id = 2;
	scenario_post(s, A, &wr);
	scenario_run(s);
	scenario_expect(s, A, 0, 1, VB_WC_SUCCESS);
	scenario_expect(s, A, 1, 2, VB_WC_SUCCESS);
	assert_int_equal(scenario_nth(s, B, VB_OP_READ_RESPONSE_ONLY, 0)->bytes, 0);
	scenario_end(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(response_lost_and_resumed_there),
		cmocka_unit_test(last_response_lost_and_read_again),
		cmocka_unit_test(request_lost),
		cmocka_unit_test(atomic_answer_lost),
		cmocka_unit_test(compare_and_swap_answer_lost),
		cmocka_unit_test(ack_behind_a_lost_response),
		cmocka_unit_test(max_rd_atomic_kept),
		cmocka_unit_test(fence),
		cmocka_unit_test(repetition_does_not_count_as_outstanding),
		cmocka_unit_test(zero_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
