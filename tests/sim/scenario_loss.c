/* SPDX-License-Identifier: BSD-2-Clause */
/* scenario_loss.c - requests, acknowledgements and NAKs that are lost (IBTA 9.7.5, 9.7.6). */
#include "scenario.h"

#include <string.h>

#define MTU 1024u

static const struct scenario_options usual = {.retry_cnt = 7, .rnr_retry = 7};

static void fill(struct scenario *s, int at, uint32_t offset, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		s->memory[at][offset + i] = (uint8_t)(i * 7 + i / 256 + 1);
}

static void assert_received(struct scenario *s, uint32_t bytes)
{
	assert_memory_equal(s->memory[B] + RECV_OFFSET, s->memory[A] + LOCAL_OFFSET, bytes);
}

/* Without loss: one packet there, one acknowledgement back, a round trip. */
static void nothing_lost(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	const struct vb_cqe *cqe;

	fill(s, A, LOCAL_OFFSET, 100);
	scenario_recv(s, B, 1, 4096);
	scenario_send(s, A, VB_WR_SEND, 2, 100);
	scenario_run(s);
	cqe = scenario_expect(s, A, 0, 2, VB_WC_SUCCESS);
	assert_int_equal(cqe->time_ns, SCENARIO_RTT_NS);
	assert_int_equal(scenario_expect(s, B, 0, 1, VB_WC_SUCCESS)->byte_len, 100);
	assert_received(s, 100);
	assert_int_equal(scenario_count(s, A, -1), 1);
	assert_int_equal(scenario_count(s, B, -1), 1);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 0)->h.aeth.syndrome, 0x1f);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 0)->h.aeth.msn, 1);
	scenario_end(s);
}

/* IBTA 9.7.6.1.3: the requester waits at least the timeout and at most four times as long. */
static void request_lost_and_repeated_after_the_timeout(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	const uint64_t timeout = scenario_timeout(14);
	uint64_t again;

	scenario_recv(s, B, 1, 4096);
	scenario_rule(s, A, VB_OP_SEND_ONLY, 0, 1, VB_DROP);
	scenario_send(s, A, VB_WR_SEND, 2, 100);
	scenario_run(s);
	again = scenario_nth(s, A, VB_OP_SEND_ONLY, 1)->at_ns;
	assert_in_range(again, timeout, 4 * timeout);
	assert_int_equal(scenario_expect(s, A, 0, 2, VB_WC_SUCCESS)->time_ns,
			 again + SCENARIO_RTT_NS);
	assert_int_equal(scenario_count(s, A, -1), 2);
	scenario_end(s);
}

/* A gap is answered by one NAK with the missing PSN, and everything from there is sent again at
 * once. */
static void middle_lost_and_sent_again_from_there(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	const struct seen *nak;

	fill(s, A, LOCAL_OFFSET, 6 * MTU);
	scenario_recv(s, B, 1, 6 * MTU);
	scenario_rule(s, A, VB_OP_SEND_MIDDLE, 1, 1, VB_DROP); /* the third packet, PSN 0 */
	scenario_send(s, A, VB_WR_SEND, 2, 6 * MTU);
	scenario_run(s);
	nak = scenario_nth(s, B, VB_OP_ACK, 0);
	assert_int_equal(nak->h.aeth.syndrome, 0x60);
	assert_int_equal(nak->h.psn, 0);
	assert_int_equal(nak->h.aeth.msn, 0);
	assert_int_equal(nak->at_ns, SCENARIO_DELAY_NS);
	assert_int_equal(scenario_count(s, B, -1), 2); /* the NAK, and the ACK of it all */
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 1)->h.aeth.msn, 1);
	assert_int_equal(scenario_count(s, A, -1), 6 + 4);
	assert_int_equal(scenario_nth(s, A, -1, 6)->h.psn, 0);
	assert_int_equal(scenario_nth(s, A, -1, 6)->at_ns, SCENARIO_RTT_NS);
	assert_int_equal(scenario_expect(s, A, 0, 2, VB_WC_SUCCESS)->time_ns, 2 * SCENARIO_RTT_NS);
	scenario_expect(s, B, 0, 1, VB_WC_SUCCESS);
	assert_received(s, 6 * MTU);
	assert_int_equal(s->net.nodes[A].nic->counters.timeouts, 0);
	scenario_end(s);
}

/* Of two gaps in one message the second is told by an ACK of what came between, then the NAK: there
 * are peers that go back by a second NAK only when an ACK came first. */
static void two_gaps_in_one_message(void **state)
{
	struct scenario *s = scenario_begin(&usual);

	fill(s, A, LOCAL_OFFSET, 8 * MTU);
	scenario_recv(s, B, 1, 8 * MTU);
	scenario_rule(s, A, VB_OP_SEND_MIDDLE, 1, 1, VB_DROP); /* the third packet, PSN 0 */
	scenario_rule(s, A, VB_OP_SEND_MIDDLE, 8, 1, VB_DROP); /* of those sent again PSN 2 */
	scenario_send(s, A, VB_WR_SEND, 2, 8 * MTU);
	scenario_run(s);
	assert_int_equal(scenario_count(s, B, -1), 4);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 0)->h.aeth.syndrome, 0x60);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 0)->h.psn, 0);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 1)->h.aeth.syndrome, 0x1f);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 1)->h.psn, 1);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 2)->h.aeth.syndrome, 0x60);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 2)->h.psn, 2);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 3)->h.aeth.msn, 1);
	scenario_expect(s, A, 0, 2, VB_WC_SUCCESS);
	assert_received(s, 8 * MTU);
	assert_int_equal(s->net.nodes[A].nic->counters.timeouts, 0);
	scenario_end(s);
}

/* The NAK is lost as well: the timeout repeats everything, the message arrives once. */
static void nak_lost(void **state)
{
	struct scenario *s = scenario_begin(&usual);

	fill(s, A, LOCAL_OFFSET, 5 * MTU);
	scenario_recv(s, B, 1, 5 * MTU);
	scenario_recv(s, B, 3, 5 * MTU);
	scenario_rule(s, A, VB_OP_SEND_MIDDLE, 1, 1, VB_DROP);
	scenario_rule(s, B, VB_OP_ACK, 0, 1, VB_DROP);
	scenario_send(s, A, VB_WR_SEND, 2, 5 * MTU);
	scenario_run(s);
	assert_int_equal(s->net.nodes[A].nic->counters.timeouts, 1);
	assert_in_range(scenario_nth(s, A, -1, 5)->at_ns, scenario_timeout(14),
			4 * scenario_timeout(14));
	assert_int_equal(scenario_nth(s, A, -1, 5)->h.psn, SCENARIO_PSN);
	scenario_expect(s, A, 0, 2, VB_WC_SUCCESS);
	scenario_expect(s, B, 0, 1, VB_WC_SUCCESS);
	assert_int_equal(s->cqe_count[B], 1);
	assert_received(s, 5 * MTU);
	scenario_end(s);
}

/* The ACK is lost: the repeated request is a duplicate, acknowledged again and not delivered again.
 */
static void ack_lost(void **state)
{
	struct scenario *s = scenario_begin(&usual);

	scenario_recv(s, B, 1, 4096);
	scenario_recv(s, B, 3, 4096);
	scenario_rule(s, B, VB_OP_ACK, 0, 1, VB_DROP);
	scenario_send(s, A, VB_WR_SEND, 2, 100);
	scenario_run(s);
	assert_int_equal(scenario_count(s, A, VB_OP_SEND_ONLY), 2);
	assert_int_equal(scenario_count(s, B, VB_OP_ACK), 2);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 1)->h.psn, SCENARIO_PSN);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 1)->h.aeth.msn, 1); /* not counted twice */
	assert_int_equal(s->net.nodes[B].nic->counters.rx_duplicate, 1);
	scenario_expect(s, A, 0, 2, VB_WC_SUCCESS);
	assert_int_equal(s->cqe_count[B], 1);
	scenario_end(s);
}

/* One acknowledgement for all that came in one turn, and a later one says what a lost one said. */
static void ack_coalesced_and_made_up_for(void **state)
{
	struct scenario *s = scenario_begin(&usual);

	for (uint64_t i = 0; i < 4; i++)
		scenario_recv(s, B, i, 4096);
	scenario_rule(s, B, VB_OP_ACK, 0, 1, VB_DROP);
	scenario_send(s, A, VB_WR_SEND, 10, 8);
	scenario_send(s, A, VB_WR_SEND, 11, 8);
	scenario_run_until(s, SCENARIO_DELAY_NS);
	assert_int_equal(scenario_count(s, B, VB_OP_ACK), 1);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 0)->h.psn, 0xffffff);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 0)->h.aeth.msn, 2);
	scenario_send(s, A, VB_WR_SEND, 12, 8);
	scenario_run(s);
	assert_int_equal(scenario_count(s, A, -1), 3); /* nothing was sent again */
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(scenario_expect(s, A, i, 10 + i, VB_WC_SUCCESS)->time_ns,
				 SCENARIO_DELAY_NS + SCENARIO_RTT_NS);
	scenario_end(s);
}

static void packet_duplicated(void **state)
{
	struct scenario *s = scenario_begin(&usual);

	scenario_recv(s, B, 1, 4096);
	scenario_recv(s, B, 3, 4096);
	scenario_rule(s, A, -1, 0, 100, VB_DUPLICATE);
	scenario_rule(s, B, -1, 0, 100, VB_DUPLICATE);
	scenario_send(s, A, VB_WR_SEND, 2, 3 * MTU);
	scenario_run(s);
	scenario_expect(s, A, 0, 2, VB_WC_SUCCESS);
	assert_int_equal(s->cqe_count[A], 1);
	scenario_expect(s, B, 0, 1, VB_WC_SUCCESS);
	assert_int_equal(s->cqe_count[B], 1);
	assert_int_equal(s->net.nodes[B].nic->counters.rx_duplicate, 3);
	assert_int_equal(s->net.nodes[A].nic->counters.retries, 0);
	scenario_end(s);
}

/* A bit error is found by the ICRC and is a loss like any other. */
static void packet_corrupted(void **state)
{
	struct scenario *s = scenario_begin(&usual);

	fill(s, A, LOCAL_OFFSET, 3 * MTU);
	scenario_recv(s, B, 1, 4096);
	scenario_rule(s, A, VB_OP_SEND_FIRST, 0, 1, VB_CORRUPT);
	scenario_send(s, A, VB_WR_SEND, 2, 3 * MTU);
	scenario_run(s);
	assert_int_equal(s->net.nodes[B].count.bad_icrc, 1);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 0)->h.aeth.syndrome, 0x60);
	scenario_expect(s, A, 0, 2, VB_WC_SUCCESS);
	assert_received(s, 3 * MTU);
	scenario_end(s);
}

/* A packet of somebody else, though its QPN and PSN are right, is counted and changes nothing. */
static void packet_from_a_stranger(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	struct in6_addr stranger = s->net.nodes[A].gid;
	const struct vb_headers h = {
		.opcode = vb_opcode(VB_TRANSPORT_RC, VB_OP_SEND_ONLY),
		.pkey = VB_DEFAULT_PKEY,
		.qpn = s->qp[B]->qpn,
		.psn = SCENARIO_PSN,
		.ack_req = true,
	};

	stranger.s6_addr[15] = 99;
	scenario_recv(s, B, 1, 4096);
	scenario_inject(s, B, &h, "abcd", 4, &stranger);
	vb_node_kick(&s->net.nodes[B]);
	scenario_run(s);
	assert_int_equal(s->net.nodes[B].nic->counters.rx_wrong_address, 1);
	assert_int_equal(s->cqe_count[B], 0);
	assert_int_equal(scenario_count(s, B, -1), 0);
	scenario_inject(s, B, &h, "abcd", 4, NULL);
	vb_node_kick(&s->net.nodes[B]);
	scenario_run(s);
	assert_int_equal(scenario_expect(s, B, 0, 1, VB_WC_SUCCESS)->byte_len, 4);
	scenario_end(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_lost),
		cmocka_unit_test(request_lost_and_repeated_after_the_timeout),
		cmocka_unit_test(middle_lost_and_sent_again_from_there),
		cmocka_unit_test(two_gaps_in_one_message),
		cmocka_unit_test(nak_lost),
		cmocka_unit_test(ack_lost),
		cmocka_unit_test(ack_coalesced_and_made_up_for),
		cmocka_unit_test(packet_duplicated),
		cmocka_unit_test(packet_corrupted),
		cmocka_unit_test(packet_from_a_stranger),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
