/* SPDX-License-Identifier: BSD-2-Clause */
/* scenario_states.c - what completes in which state, the unreliable types, queues and their events.
 */
#include "scenario.h"

#include <string.h>

#define MTU 1024u

static const struct scenario_options usual = {.retry_cnt = 7, .rnr_retry = 7};

static void fill(struct scenario *s, uint8_t value, uint32_t bytes)
{
	memset(s->memory[A] + LOCAL_OFFSET, value, bytes);
}

/* --- states ------------------------------------------------------------------------------ */

/* IBTA 10.3.1.5: what has begun goes on, nothing new begins, one event says when nothing is under
 * way. */
static void send_queue_drained(void **state)
{
	struct scenario *s = scenario_begin(&usual);

	scenario_recv(s, B, 10, 64);
	scenario_recv(s, B, 11, 4 * MTU);
	scenario_recv(s, B, 12, 64);
	scenario_send(s, A, VB_WR_SEND, 1, 8);
	scenario_send(s, A, VB_WR_SEND, 2, 4 * MTU);
	scenario_run_until(s, SCENARIO_DELAY_NS);
	scenario_modify(s, A, VB_QPS_SQD);
	scenario_send(s, A, VB_WR_SEND, 3, 8);
	scenario_run_until(s, SCENARIO_RTT_NS - 1);
	assert_int_equal(s->event_count[A], 0);
	scenario_run(s);
	assert_int_equal(s->event_count[A], 1);
	assert_int_equal(s->event[A][0], VB_EVENT_SQ_DRAINED);
	assert_int_equal(s->cqe_count[A], 2);
	assert_int_equal(scenario_count(s, A, VB_OP_SEND_ONLY), 1);
	scenario_modify(s, A, VB_QPS_RTS);
	scenario_run(s);
	for (uint32_t i = 0; i < 3; i++)
		scenario_expect(s, A, i, 1 + i, VB_WC_SUCCESS);
	scenario_end(s);
}

/* The program moves its QP to ERR: everything flushes, the send queue in order and the receive
 * queue in order. */
static void moved_to_err(void **state)
{
	struct scenario *s = scenario_begin(&usual);

	for (uint64_t i = 0; i < 3; i++) {
		scenario_recv(s, A, 20 + i, 64);
		scenario_send(s, A, VB_WR_SEND, 10 + i, 8);
	}
	scenario_run_until(s, 1000);
	scenario_modify(s, A, VB_QPS_ERR);
	scenario_run(s);
	for (uint32_t i = 0; i < 3; i++) {
		scenario_expect(s, A, i, 10 + i, VB_WC_WR_FLUSH_ERR);
		scenario_expect(s, A, 3 + i, 20 + i, VB_WC_WR_FLUSH_ERR);
	}
	assert_int_equal(s->cqe_count[A], 6);
	assert_int_equal(s->event_count[A], 0); /* it was asked for */
	assert_int_equal(scenario_count(s, A, -1), 3);
	scenario_end(s);
}

/* From RESET on, requests and completions of before are forgotten; packets of before are dropped.
 */
static void moved_to_reset(void **state)
{
	struct scenario *s = scenario_begin(&usual);

	scenario_recv(s, A, 20, 64);
	scenario_recv(s, B, 30, 64);
	scenario_send(s, A, VB_WR_SEND, 10, 8);
	scenario_run_until(s, 1000);
	scenario_modify(s, A, VB_QPS_RESET);
	scenario_run(s);
	assert_int_equal(s->cqe_count[A], 0);
	assert_int_equal(s->cqe_count[B], 1); /* it had left already */
	assert_int_equal(s->net.nodes[A].nic->counters.rx_wrong_state, 1);
	scenario_end(s);
}

/* From ERR through RESET to RTS again, over the state that a failure left, with new PSNs. */
static void used_again_after_reset(void **state)
{
	const struct scenario_options options = {.retry_cnt = 1, .timeout = 10};
	struct scenario *s = scenario_begin(&options);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_RDMA_WRITE, 2, 8, &sge);

	/* Both sides full of what must not survive: B has answers and a NAK that it can't send. */
	wr.rkey ^= 0x80000000u;
	s->net.nodes[B].again_ppm = VB_MILLION;
	scenario_send(s, A, VB_WR_RDMA_READ, 1, 3 * MTU);
	scenario_post(s, A, &wr);
	scenario_recv(s, A, 3, 64);
	scenario_run_until(s, 100000);
	assert_int_equal(s->qp[B]->state, VB_QPS_ERR);
	scenario_modify(s, B, VB_QPS_RESET);
	scenario_modify(s, A, VB_QPS_RESET);
	s->net.nodes[B].again_ppm = 0;
	scenario_run(s);
	assert_int_equal(scenario_count(s, B, -1), 0);
	assert_int_equal(s->cqe_count[A], 0);
	scenario_connect(s, A, &options);
	scenario_connect(s, B, &options);
	scenario_recv(s, B, 10, 4 * MTU);
	fill(s, 9, 4 * MTU);
	scenario_send(s, A, VB_WR_SEND, 11, 4 * MTU);
	scenario_send(s, A, VB_WR_RDMA_READ, 12, 4 * MTU);
	scenario_run(s);
	scenario_expect(s, A, 0, 11, VB_WC_SUCCESS);
	scenario_expect(s, A, 1, 12, VB_WC_SUCCESS);
	scenario_expect(s, B, 0, 10, VB_WC_SUCCESS);
	assert_memory_equal(s->memory[A] + LOCAL_OFFSET, s->memory[B] + REMOTE_OFFSET, 4 * MTU);
	assert_int_equal(scenario_nth(s, B, VB_OP_ACK, 0)->h.aeth.msn, 2);
	scenario_end(s);
}

/* Destroyed in the middle of everything: with timers, without room, with requests on both sides. */
static void destroyed_in_the_middle(void **state)
{
	for (uint64_t at = 0; at < 60000; at += 2500) {
		struct scenario *s = scenario_begin(&usual);

		s->net.nodes[A].again_ppm = s->net.nodes[B].again_ppm = 300000;
		scenario_recv(s, A, 1, 64 * MTU);
		scenario_recv(s, B, 2, 64 * MTU);
		scenario_send(s, A, VB_WR_SEND, 3, 32 * MTU);
		scenario_send(s, A, VB_WR_RDMA_READ, 4, 32 * MTU);
		scenario_send(s, B, VB_WR_SEND, 5, 32 * MTU);
		scenario_send(s, B, VB_WR_ATOMIC_FETCH_AND_ADD, 6, 8);
		scenario_run_until(s, at);
		scenario_destroy_qp(s, A);
		scenario_run(s);
		if (at >= 10000)
			assert_true(s->net.nodes[A].nic->counters.rx_unknown_qp > 0);
		assert_int_equal(s->net.nodes[A].nic->qp_count, 0);
		scenario_end(s);
	}
}

/* A queue pair connected to itself is a connection like any other. */
static void connected_to_itself(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	struct vb_sge sge;
	struct vb_send_wr wr;

	scenario_modify(s, A, VB_QPS_RESET);
	scenario_connect_to(s, A, A, &usual);
	scenario_recv(s, A, 1, 4 * MTU);
	fill(s, 3, 4 * MTU);
	scenario_send(s, A, VB_WR_SEND, 2, 4 * MTU);
	wr = scenario_wr(s, A, VB_WR_ATOMIC_FETCH_AND_ADD, 3, 8, &sge);
	wr.remote_addr = s->mr[A]->iova + REMOTE_OFFSET;
	wr.rkey = s->mr[A]->rkey;
	wr.compare_add = 5;
	scenario_post(s, A, &wr);
	scenario_run(s);
	scenario_expect(s, A, 0, 1, VB_WC_SUCCESS);
	scenario_expect(s, A, 1, 2, VB_WC_SUCCESS);
	scenario_expect(s, A, 2, 3, VB_WC_SUCCESS);
	assert_memory_equal(s->memory[A] + RECV_OFFSET, s->memory[A] + LOCAL_OFFSET + 8,
			    MTU); /* the atomic's result lies over the first 8 */
	assert_int_equal(s->memory[A][REMOTE_OFFSET], 5);
	scenario_end(s);
}

/* Unsignalled requests are silent while they succeed; one that is flushed is not. */
static void unsignalled(void **state)
{
	const struct scenario_options options = {
		.retry_cnt = 0, .timeout = 10, .not_signalled = true};
	struct scenario *s = scenario_begin(&options);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_RDMA_WRITE, 0, 8, &sge);

	for (wr.wr_id = 1; wr.wr_id <= 3; wr.wr_id++) {
		wr.flags = wr.wr_id == 3 ? VB_SEND_SIGNALED : 0;
		scenario_post(s, A, &wr);
	}
	scenario_run(s);
	scenario_expect(s, A, 0, 3, VB_WC_SUCCESS);
	assert_int_equal(s->cqe_count[A], 1);
	vb_node_kill(&s->net.nodes[B]);
	wr.flags = 0;
	for (; wr.wr_id <= 6; wr.wr_id++)
		scenario_post(s, A, &wr);
	scenario_run(s);
	scenario_expect(s, A, 1, 4, VB_WC_RETRY_EXC_ERR);
	scenario_expect(s, A, 2, 5, VB_WC_WR_FLUSH_ERR);
	scenario_expect(s, A, 3, 6, VB_WC_WR_FLUSH_ERR);
	scenario_end(s);
}

/* --- queues ------------------------------------------------------------------------------ */

static void completion_queue_overrun(void **state)
{
	const struct scenario_options options = {.retry_cnt = 7, .cqes = 2};
	struct scenario *s = scenario_begin(&options);

	for (uint64_t i = 0; i < 4; i++)
		scenario_send(s, A, VB_WR_RDMA_WRITE, i, 8);
	scenario_run(s);
	assert_true(scenario_has_event(s, A, VB_EVENT_CQ_ERR));
	assert_int_equal(s->qp[A]->state, VB_QPS_ERR);
	assert_int_equal(s->cqe_count[A], 2); /* those that had room can be polled still */
	scenario_expect(s, A, 0, 0, VB_WC_SUCCESS);
	scenario_expect(s, A, 1, 1, VB_WC_SUCCESS);
	scenario_end(s);
}

static void srq_limit(void **state)
{
	const struct scenario_options options = {.retry_cnt = 7, .srq = true};
	struct scenario *s = scenario_begin(&options);

	for (uint64_t i = 0; i < 4; i++)
		scenario_recv(s, B, 10 + i, 64);
	assert_int_equal(vb_srq_set_limit(s->srq[B], 3), 0);
	scenario_send(s, A, VB_WR_SEND, 1, 8);
	scenario_run(s);
	assert_int_equal(s->event_count[B], 0); /* three are left: not below the limit */
	scenario_send(s, A, VB_WR_SEND, 2, 8);
	scenario_run(s);
	assert_int_equal(s->event_count[B], 1);
	assert_int_equal(s->event[B][0], VB_EVENT_SRQ_LIMIT_REACHED);
	scenario_send(s, A, VB_WR_SEND, 3, 8);
	scenario_run(s);
	assert_int_equal(s->event_count[B], 1); /* once for each time that it is armed */
	scenario_modify(s, B, VB_QPS_ERR);
	assert_true(scenario_has_event(s, B, VB_EVENT_QP_LAST_WQE_REACHED));
	for (uint32_t i = 0; i < 3; i++)
		scenario_expect(s, B, i, 10 + i, VB_WC_SUCCESS);
	assert_int_equal(s->cqe_count[B], 3); /* the fourth stays in the SRQ */
	scenario_end(s);
}

/* Armed for solicited completions only: a plain message is silent, a solicited one is not, an error
 * is not. */
static void solicited_events(void **state)
{
	struct scenario *s = scenario_begin(&usual);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_SEND, 1, 8, &sge);

	for (uint64_t i = 0; i < 4; i++)
		scenario_recv(s, B, 10 + i, 64);
	vb_cq_arm(s->cq[B], true);
	scenario_post(s, A, &wr);
	scenario_run(s);
	assert_int_equal(s->cq_events[B], 0);
	wr.flags |= VB_SEND_SOLICITED;
	scenario_post(s, A, &wr);
	scenario_post(s, A, &wr);
	scenario_run(s);
	assert_int_equal(s->cq_events[B], 1); /* one event for one arming */
	vb_cq_arm(s->cq[B], true);
	scenario_modify(s, B, VB_QPS_ERR);
	assert_int_equal(s->cq_events[B], 2);
	scenario_end(s);
}

/* --- UC ---------------------------------------------------------------------------------- */

/* A message with a lost packet never arrives, the next one does; the sender never knows. */
static void uc_message_lost(void **state)
{
	const struct scenario_options options = {.type = VB_QPT_UC};
	struct scenario *s = scenario_begin(&options);

	scenario_recv(s, B, 10, 4 * MTU);
	scenario_recv(s, B, 11, 4 * MTU);
	scenario_rule(s, A, VB_OP_SEND_MIDDLE, 1, 1, VB_DROP);
	fill(s, 1, 4 * MTU);
	scenario_send(s, A, VB_WR_SEND, 1, 4 * MTU);
	scenario_run(s);
	assert_int_equal(s->cqe_count[B], 0);
	fill(s, 2, 3 * MTU);
	scenario_send(s, A, VB_WR_SEND_WITH_IMM, 2, 3 * MTU);
	scenario_run(s);
	scenario_expect(s, A, 0, 1, VB_WC_SUCCESS);
	scenario_expect(s, A, 1, 2, VB_WC_SUCCESS);
	assert_int_equal(scenario_expect(s, B, 0, 10, VB_WC_SUCCESS)->byte_len, 3 * MTU);
	assert_int_equal(s->cqe_count[B], 1);
	assert_memory_equal(s->memory[B] + RECV_OFFSET, s->memory[A] + LOCAL_OFFSET, 3 * MTU);
	assert_int_equal(scenario_count(s, B, -1), 0); /* nothing is answered */
	scenario_end(s);
}

/* Once found by a seed: the receive request of a message that was lost in the middle stays with the
 * QP while a WRITE comes in between. */
static void uc_write_behind_a_lost_message(void **state)
{
	const struct scenario_options options = {.type = VB_QPT_UC};
	struct scenario *s = scenario_begin(&options);

	scenario_recv(s, B, 10, 4 * MTU);
	scenario_rule(s, A, VB_OP_SEND_LAST, 0, 1, VB_DROP);
	scenario_send(s, A, VB_WR_SEND, 1, 2 * MTU);
	scenario_send(s, A, VB_WR_RDMA_WRITE, 2, 8);
	scenario_send(s, A, VB_WR_RDMA_WRITE_WITH_IMM, 3, 8);
	scenario_run(s);
	assert_int_equal(scenario_expect(s, B, 0, 10, VB_WC_SUCCESS)->opcode,
			 VB_WC_RECV_RDMA_WITH_IMM);
	scenario_end(s);
}

/* No receive request: the message is dropped whole, and counted. */
static void uc_no_receive(void **state)
{
	const struct scenario_options options = {.type = VB_QPT_UC};
	struct scenario *s = scenario_begin(&options);

	scenario_send(s, A, VB_WR_SEND, 1, 3 * MTU);
	scenario_run(s);
	scenario_expect(s, A, 0, 1, VB_WC_SUCCESS);
	assert_int_equal(s->net.nodes[B].nic->counters.rx_no_receive, 1);
	scenario_recv(s, B, 10, 64);
	scenario_send(s, A, VB_WR_SEND, 2, 8);
	scenario_run(s);
	assert_int_equal(scenario_expect(s, B, 0, 10, VB_WC_SUCCESS)->byte_len, 8);
	scenario_end(s);
}

/* Nothing acknowledges UC: it sends a path's window (each packet counted with 512 bytes besides) in
 * a millisecond. A packet that the carrier refused and takes later counts once. */
static void uc_paced(void **state)
{
	const struct scenario_options options = {.type = VB_QPT_UC, .window = 65536};
	const uint64_t all_ns = 256 * (MTU + 512) * 1000000ull / 65536;

	for (uint32_t refused = 0; refused <= 400000; refused += 400000) {
		struct scenario *s = scenario_begin(&options);
		uint64_t last;

		s->net.nodes[A].again_ppm = refused;
		for (uint64_t i = 0; i < 4; i++) {
			scenario_recv(s, B, 10 + i, 64 * MTU);
			scenario_send(s, A, VB_WR_SEND, i, 64 * MTU);
		}
		scenario_run(s);
		last = scenario_nth(s, A, -1, 255)->at_ns;
		assert_in_range(last, all_ns - 1000000 - 100000, all_ns + 500000);
		for (uint32_t i = 0; i < 4; i++)
			scenario_expect(s, B, i, 10 + i, VB_WC_SUCCESS);
		scenario_end(s);
	}
}

/* IBTA 10.3.1.6: a failed send of UC leads into SQE; receiving goes on, and the program may go back
 * to RTS. */
static void uc_failed_send(void **state)
{
	const struct scenario_options options = {.type = VB_QPT_UC};
	struct scenario *s = scenario_begin(&options);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_SEND, 1, 8, &sge);

	sge.lkey ^= 0x80000000u;
	scenario_recv(s, A, 20, 64);
	scenario_recv(s, B, 30, 64);
	scenario_post(s, A, &wr);
	scenario_send(s, A, VB_WR_SEND, 2, 8);
	scenario_run(s);
	scenario_expect(s, A, 0, 1, VB_WC_LOC_PROT_ERR);
	scenario_expect(s, A, 1, 2, VB_WC_WR_FLUSH_ERR);
	assert_int_equal(s->qp[A]->state, VB_QPS_SQE);
	scenario_send(s, B, VB_WR_SEND, 3, 8);
	scenario_run(s);
	scenario_expect(s, A, 2, 20, VB_WC_SUCCESS);
	scenario_modify(s, A, VB_QPS_RTS);
	scenario_send(s, A, VB_WR_SEND, 4, 8);
	scenario_run(s);
	scenario_expect(s, A, 3, 4, VB_WC_SUCCESS);
	scenario_expect(s, B, 1, 30, VB_WC_SUCCESS);
	scenario_end(s);
}

/* --- UD ---------------------------------------------------------------------------------- */

/* The 40 bytes before a datagram: over IPv4 the IPv4 header, with a right checksum, at 20. */
static void ud_datagram(void **state)
{
	const struct scenario_options options = {.type = VB_QPT_UD};
	struct scenario *s = scenario_begin(&options);
	const uint8_t *grh = s->memory[B] + RECV_OFFSET;
	const struct vb_cqe *cqe;
	uint32_t sum = 0;

	scenario_recv(s, B, 10, 4096 + 40);
	fill(s, 0x61, 4096);
	scenario_send(s, A, VB_WR_SEND_WITH_IMM, 1, 4096);
	scenario_run(s);
	cqe = scenario_expect(s, B, 0, 10, VB_WC_SUCCESS);
	assert_int_equal(cqe->byte_len, 4096 + 40);
	assert_int_equal(cqe->wc_flags, VB_WC_GRH | VB_WC_WITH_IMM);
	assert_int_equal(cqe->src_qpn, s->qp[A]->qpn);
	assert_memory_equal(grh + 40, s->memory[A] + LOCAL_OFFSET, 4096);
	assert_int_equal(grh[20], 0x45);
	for (int i = 20; i < 40; i += 2)
		sum += (uint32_t)grh[i] << 8 | grh[i + 1];
	assert_int_equal((sum & 0xffff) + (sum >> 16), 0xffff);
	assert_memory_equal(grh + 32, s->net.nodes[A].gid.s6_addr + 12, 4);
	assert_memory_equal(grh + 36, s->net.nodes[B].gid.s6_addr + 12, 4);
	/* IPv4 total length: 20 IP, 8 UDP, 12 BTH, 8 DETH, 4 ImmDt, 4096, 4 ICRC */
	assert_int_equal((grh[22] << 8) | grh[23], 20 + 8 + 12 + 8 + 4 + 4096 + 4);
	scenario_end(s);
}

static void ud_wrong_qkey(void **state)
{
	const struct scenario_options options = {.type = VB_QPT_UD};
	struct scenario *s = scenario_begin(&options);
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, VB_WR_SEND, 1, 8, &sge);

	scenario_recv(s, B, 10, 64);
	wr.remote_qkey++;
	scenario_post(s, A, &wr);
	scenario_run(s);
	scenario_expect(s, A, 0, 1, VB_WC_SUCCESS);
	assert_int_equal(s->cqe_count[B], 0);
	assert_int_equal(s->net.nodes[B].nic->counters.rx_wrong_qkey, 1);
	scenario_end(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(send_queue_drained),
		cmocka_unit_test(moved_to_err),
		cmocka_unit_test(moved_to_reset),
		cmocka_unit_test(used_again_after_reset),
		cmocka_unit_test(destroyed_in_the_middle),
		cmocka_unit_test(connected_to_itself),
		cmocka_unit_test(unsignalled),
		cmocka_unit_test(completion_queue_overrun),
		cmocka_unit_test(srq_limit),
		cmocka_unit_test(solicited_events),
		cmocka_unit_test(uc_message_lost),
		cmocka_unit_test(uc_write_behind_a_lost_message),
		cmocka_unit_test(uc_no_receive),
		cmocka_unit_test(uc_paced),
		cmocka_unit_test(uc_failed_send),
		cmocka_unit_test(ud_datagram),
		cmocka_unit_test(ud_wrong_qkey),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
