/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_short_ack.c - the usual acknowledgement has a way of its own (core/rc_short_ack.c), at both
 * ends: what comes of it, and what it leaves behind, is what comes of the long way.
 *
 * As in test_short.c each story is told twice, to a NIC that may take the short way and to one that
 * takes the long one, and all that can be seen of both is compared, the queue pair's cursors, timer
 * and place among the ready ones included. Each story says how often the short way was taken.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/tally.h"
#include "both_ways.h"
#include "core/transport.h"
#include "wire/cursor.h"

#define MTU 4096u
#define BYTES 8192u
#define PEER_PSN 0x123456u /* as fake_attr() has them */
#define PSN 0x654321u

struct side {
	struct fake fake;
	struct fake_qp q;
	struct vb_mr *mr;
	struct vb_counter *counter;
	bool may;
	unsigned int shorts;  /* turns and packets that took the short way */
	unsigned int packets; /* that left as bytes */
	int tx_result;
	struct notes notes;
};

static uint8_t memory[BYTES];

static int note_tx(void *env, const struct vb_path *path, const struct vb_tx *tx)
{
	struct side *s = vb_container_of((struct fake *)env, struct side, fake);

	if (s->tx_result)
		return s->tx_result;
	assert_int_equal(fake_tx(env, path, tx), 0);
	note_packet(&s->notes, &s->fake, tx->headers);
	return 0;
}

static int note_tx_short(void *env, const struct vb_short *packet)
{
	struct side *s = vb_container_of((struct fake *)env, struct side, fake);

	s->packets++;
	if (s->tx_result)
		return s->tx_result;
	s->fake.tx_count++;
	assert_int_equal(packet->qpn, s->q.qp->attr.dest_qpn);
	assert_int_equal(packet->bytes + packet->pad, 0);
	assert_false(packet->wanted);
	note_short_packet(&s->notes, packet);
	return 0;
}

static void note_requester(struct side *s, const struct vb_qp *qp)
{
	const struct vb_requester *req = &qp->req;

	NOTE(&s->notes, qp->sq_free, qp->sq_una, qp->sq_next, qp->sq_head, req->una_psn,
	     req->nxt_psn, req->end_psn, req->sq_assigned, req->rd_outstanding, req->cwnd,
	     req->calm, req->since_ack_req, req->retries_left, req->rnr_left, req->implied_nak,
	     req->wait_until_ns, req->ack_deadline_ns);
}

static void note_responder(struct side *s, const struct vb_responder *resp)
{
	NOTE(&s->notes, resp->epsn, resp->msn, resp->ack_psn, resp->ack_syndrome, resp->ack_pending,
	     resp->unacknowledged, resp->gap_told, resp->last_words, resp->reply_next);
}

static void note_all(struct side *s)
{
	const struct vb_qp *qp = s->q.qp;
	const struct vb_nic *nic = s->fake.nic;
	struct vb_counters counters = nic->counters;

	counters.rx_packets = 0; /* counted before either way begins */
	note(&s->notes, &counters, sizeof(counters));
	NOTE(&s->notes, nic->awaiting, nic->ready_soon, vb_nic_deadline(nic), qp->state,
	     qp->blocked, qp->cq_overran, vb_list_is_linked(&qp->ready_link),
	     vb_heap_holds(&qp->timer) ? qp->timer.key : 0, qp->watch.heard_ns,
	     qp->watch.unanswered);
	note_requester(s, qp);
	note_responder(s, &qp->resp);
	note_completions(&s->notes, s->q.cq, s->q.qp);
	NOTE(&s->notes, s->fake.event_count, s->fake.cq_events);
}

struct setting {
	enum vb_qp_state state;
	uint32_t cqe;
	bool by_udp; /* no path for packets as bytes */
	bool counted;
};

static const struct setting usual = {.state = VB_QPS_RTS, .cqe = 64};

static void begin(struct side *s, bool may, const struct setting *setting)
{
	struct vb_qp_init init;

	*s = (struct side){.may = may};
	fake_init(&s->fake);
	s->fake.nic->ops.tx = note_tx;
	s->fake.nic->ops.tx_short = may ? note_tx_short : NULL;
	s->fake.own_segment = !setting->by_udp;
	s->fake.segment_max = MTU;
	s->q.pd = vb_pd_create(s->fake.nic);
	s->q.cq = vb_cq_create(s->fake.nic, setting->cqe, NULL);
	init = fake_qp_init(VB_QPT_RC, s->q.cq);
	s->q.qp = vb_qp_create(s->q.pd, &init);
	assert_non_null(s->q.qp);
	if (setting->counted) {
		s->counter = vb_counter_create(s->fake.nic, true);
		assert_int_equal(vb_qp_attach_counter(s->q.qp, s->counter, 1u << VB_COUNTED_SEND),
				 0);
	}
	fake_bring_to(s->q.qp, setting->state);
	s->mr = vb_mr_create(s->q.pd, memory, BYTES, (uintptr_t)memory,
			     VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_READ);
	assert_non_null(s->mr);
	s->fake.nic->now_ns = 1000;
}

static void end(struct side *s)
{
	if (s->counter)
		NOTE(&s->notes, s->counter->done);
	vb_mr_destroy(s->mr);
	vb_qp_destroy(s->q.qp);
	assert_int_equal(vb_counter_destroy(s->counter), 0);
	assert_int_equal(vb_cq_destroy(s->q.cq), 0);
	assert_int_equal(vb_pd_destroy(s->q.pd), 0);
	fake_finish(&s->fake);
}

typedef void story_fn(struct side *s);

/* tell - both ways; expected: how often the short one is taken where that is allowed. */
static void tell_in(story_fn *story, const struct setting *setting, unsigned int expected)
{
	static struct side sides[2];

	for (int i = 0; i < 2; i++) {
		begin(&sides[i], i == 0, setting);
		story(&sides[i]);
		end(&sides[i]);
	}
	assert_int_equal(sides[0].shorts, expected);
	assert_int_equal(sides[1].shorts + sides[1].packets, 0);
	assert_same_notes(&sides[0].notes, &sides[1].notes);
}

static void tell(story_fn *story, unsigned int expected)
{
	tell_in(story, &usual, expected);
}

/* --- what both ends do ------------------------------------------------------------------- */

/* turn_long - as the NIC gives it to a queue pair that has more than an ACK to say. */
static void turn_long(struct side *s)
{
	vb_rc_responder_run(s->q.qp);
	if (!s->q.qp->blocked)
		vb_requester_run(s->q.qp, s->fake.nic->now_ns);
}

static void turn(struct side *s)
{
	if (!s->q.qp->blocked)
		vb_list_remove(&s->q.qp->ready_link);
	if (s->may && vb_rc_turn_short(s->q.qp, s->fake.nic->now_ns))
		s->shorts++;
	else
		turn_long(s);
	vb_qp_settle(s->q.qp);
	note_all(s);
}

/* send - posted, and on its way, with its timer: all of it the long way. */
static void send_as(struct side *s, uint32_t length, uint32_t flags, enum vb_wr_opcode opcode)
{
	const struct vb_sge sge = {(uintptr_t)memory, length, s->mr->lkey};
	const struct vb_send_wr wr = {.wr_id = 1000 + length,
				      .sges = &sge,
				      .num_sge = 1,
				      .opcode = opcode,
				      .flags = flags,
				      .imm = 0x01020304};

	assert_int_equal(vb_qp_post_send(s->q.qp, &wr), 0);
	vb_list_remove(&s->q.qp->ready_link);
	turn_long(s);
	vb_qp_settle(s->q.qp);
}

static void send_one(struct side *s)
{
	send_as(s, 8, VB_SEND_SIGNALED, VB_WR_SEND);
}

/* give_long - as the NIC gives it to the queue pair, once it has decoded it. */
static void give_long(struct side *s, const struct vb_headers *h)
{
	struct vb_qp *qp = s->q.qp;

	if (qp->state == VB_QPS_ERR) {
		s->fake.nic->counters.rx_wrong_state++;
		return;
	}
	if (qp->watch.interval_ns)
		vb_watch_heard(qp, s->fake.nic->now_ns);
	vb_rc_on_response(qp, h, NULL, 0, s->fake.nic->now_ns);
	vb_qp_settle(qp);
}

/* answer - by the NIC's entrance or, as it would be decoded, put before the judge; psn counts from
 * the first message on. */
static void answer(struct side *s, uint8_t syndrome, uint32_t psn)
{
	const struct vb_headers h = {
		.opcode = vb_opcode(VB_TRANSPORT_RC, VB_OP_ACK),
		.pkey = VB_DEFAULT_PKEY,
		.qpn = s->q.qp->qpn,
		.psn = vb_psn_add(PSN, psn),
		.aeth = {.syndrome = syndrome, .msn = 77},
	};
	uint8_t packet[VB_HEADERS_MAX];
	const int bytes = vb_headers_encode(&h, packet, sizeof(packet));
	const struct vb_rx rx = {.data = packet, .size = (size_t)bytes, .src = s->q.qp->path.dgid};

	s->fake.nic->now_ns += 100;
	if (!s->may)
		give_long(s, &h);
	else if (vb_rc_take_ack(s->fake.nic, &rx))
		s->shorts++;
	else
		vb_nic_rx(s->fake.nic, &rx, s->fake.nic->now_ns);
	note_all(s);
}

static void acknowledge(struct side *s, uint32_t psn)
{
	answer(s, VB_AETH_ACK_NO_CREDIT, psn);
}

/* --- taken ------------------------------------------------------------------------------- */

static void of_one_message_after_another(struct side *s)
{
	for (uint32_t i = 0; i < 6; i++) {
		send_as(s, i + 1, i % 3 == 1 ? 0 : VB_SEND_SIGNALED,
			i % 2 ? VB_WR_SEND_WITH_IMM : VB_WR_SEND);
		acknowledge(s, i);
		assert_int_equal(s->q.qp->req.ack_deadline_ns, 0);
	}
}

static void with_credits(struct side *s)
{
	send_one(s);
	answer(s, vb_aeth_syndrome(VB_AETH_ACK, 5), 0);
}

/* The second one has its time from then on. */
static void of_the_first_of_two(struct side *s)
{
	send_one(s);
	send_one(s);
	acknowledge(s, 0);
	assert_int_equal(s->q.qp->req.ack_deadline_ns,
			 s->fake.nic->now_ns + vb_ack_timeout_ns(s->fake.nic, 14));
	acknowledge(s, 1);
}

static void of_two_at_once(struct side *s)
{
	send_one(s);
	send_one(s);
	acknowledge(s, 1);
}

static void that_came_before(struct side *s)
{
	send_one(s);
	acknowledge(s, 0);
	send_one(s);
	acknowledge(s, 0);
}

/* The last time in the place of a message that was. */
static void of_what_was_not_sent(struct side *s)
{
	acknowledge(s, 0);
	send_one(s);
	acknowledge(s, 1);
	acknowledge(s, 0);
	for (uint32_t i = 1; i < 4; i++) {
		send_one(s);
		acknowledge(s, i);
	}
	acknowledge(s, 4);
	assert_int_equal(s->fake.nic->counters.rx_out_of_window, 3);
}

/* As it may be set in SQD: what the timer was set to is too late. */
static void after_the_timeout_became_shorter(struct side *s)
{
	send_one(s);
	send_one(s);
	s->q.qp->attr.timeout = 1;
	acknowledge(s, 0);
	assert_int_equal(s->q.qp->timer.key, s->fake.nic->now_ns + 8192);
}

static void that_refuse(struct side *s)
{
	send_one(s);
	answer(s, vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_PSN_SEQUENCE), 0);
	turn(s);
	answer(s, vb_aeth_syndrome(VB_AETH_RNR_NAK, 1), 0);
	s->fake.nic->now_ns += 1000000000;
	vb_requester_on_deadline(s->q.qp, s->fake.nic->now_ns);
	turn(s);
	answer(s, vb_aeth_syndrome(VB_AETH_RESERVED, 0), 0);
}

static void that_fail(struct side *s)
{
	send_one(s);
	answer(s, vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_REMOTE_OPERATIONAL), 0);
	assert_int_equal(s->q.qp->state, VB_QPS_ERR);
	acknowledge(s, 0);
}

/* It had gone back to the first. */
static void while_it_repeats(struct side *s)
{
	send_one(s);
	answer(s, vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_PSN_SEQUENCE), 0);
	acknowledge(s, 0);
}

/* All that went wrong before is forgiven. */
static void of_what_was_repeated(struct side *s)
{
	send_one(s);
	s->fake.nic->now_ns += 1000000000;
	vb_requester_on_deadline(s->q.qp, s->fake.nic->now_ns);
	turn(s);
	s->q.qp->req.implied_nak = true;
	s->q.qp->req.rnr_left = 1;
	assert_int_equal(s->q.qp->req.retries_left, 6);
	acknowledge(s, 0);
	assert_int_equal(s->q.qp->req.retries_left, 7);
	assert_int_equal(s->q.qp->req.rnr_left, 6);
}

static void of_a_long_message(struct side *s)
{
	send_as(s, MTU + 1, VB_SEND_SIGNALED, VB_WR_SEND);
	acknowledge(s, 0);
	acknowledge(s, 1);
}

static void of_a_write(struct side *s)
{
	send_as(s, 8, VB_SEND_SIGNALED, VB_WR_RDMA_WRITE);
	acknowledge(s, 0);
}

/* Its answer was lost. */
static void of_a_read(struct side *s)
{
	send_as(s, 8, VB_SEND_SIGNALED, VB_WR_RDMA_READ);
	acknowledge(s, 0);
}

static void of_what_is_counted(struct side *s)
{
	send_one(s);
	acknowledge(s, 0);
	send_as(s, 9, 0, VB_WR_SEND);
	acknowledge(s, 1);
	assert_int_equal(s->counter->done, 17);
}

static void into_a_full_cq(struct side *s)
{
	struct vb_cqe other = {.wr_id = 9, .qp = s->q.qp, .qpn = s->q.qp->qpn};

	send_as(s, 8, 0, VB_WR_SEND);
	send_one(s);
	vb_cq_push(s->q.cq, &other, NULL);
	answer(s, VB_AETH_ACK_NO_CREDIT, 0); /* needs no place */
	vb_cq_push(s->q.cq, &other, NULL);
	acknowledge(s, 1);
	assert_int_equal(s->q.qp->state, VB_QPS_ERR);
	assert_int_equal(fake_count_events(&s->fake, VB_EVENT_CQ_ERR), 1);
}

static void that_wake_an_armed_queue(struct side *s)
{
	vb_cq_arm(s->q.cq, true);
	send_one(s);
	acknowledge(s, 0);
	assert_int_equal(s->fake.cq_events, 0);
	vb_cq_arm(s->q.cq, false);
	send_one(s);
	acknowledge(s, 1);
	assert_int_equal(s->fake.cq_events, 1);
}

static void while_it_drains(struct side *s)
{
	send_one(s);
	assert_int_equal(fake_modify(s->q.qp, VB_QPS_SQD, VB_QP_STATE | VB_QP_EN_SQD_ASYNC_NOTIFY),
			 0);
	acknowledge(s, 0);
	assert_true(s->q.qp->sqd_notified);
}

static void that_open_the_window(struct side *s)
{
	s->q.qp->req.cwnd = 1;
	s->q.qp->req.calm = 0;
	send_one(s);
	send_one(s); /* waits */
	assert_int_equal(s->q.qp->req.end_psn, PSN + 1);
	acknowledge(s, 0);
	assert_true(vb_list_is_linked(&s->q.qp->ready_link));
	turn_long(s);
	acknowledge(s, 1);
}

static void without_a_timeout(struct side *s)
{
	s->q.qp->attr.timeout = 0;
	send_one(s);
	send_one(s);
	acknowledge(s, 0);
	acknowledge(s, 1);
}

static void of_a_watched_peer(struct side *s)
{
	vb_qp_watch(s->q.qp, 5000);
	s->q.qp->watch.unanswered = 2;
	send_one(s);
	acknowledge(s, 0);
	assert_int_equal(s->q.qp->watch.heard_ns, s->fake.nic->now_ns);
}

/* From before it sends, when there was no timer to set, and no turn has set it either: the answer
 * was faster. */
static void of_a_peer_that_was_watched_early(struct side *s)
{
	vb_qp_watch(s->q.qp, 5000);
	assert_int_equal(fake_modify(s->q.qp, VB_QPS_RTS, fake_required(VB_QPT_RC, VB_QPS_RTS)), 0);
	send_one(s);
	vb_heap_remove(&s->fake.nic->timers, &s->q.qp->timer);
	acknowledge(s, 0);
	assert_true(vb_nic_deadline(s->fake.nic) <= s->fake.nic->now_ns + 5000);
}

static void acknowledgements(void **state)
{
	const struct setting before = {.state = VB_QPS_RTR, .cqe = 64};

	const struct setting narrow = {.state = VB_QPS_RTS, .cqe = 1};
	const struct setting counted = {.state = VB_QPS_RTS, .cqe = 64, .counted = true};
	const struct setting by_udp = {.state = VB_QPS_RTS, .cqe = 64, .by_udp = true};

	(void)state;
	tell(of_one_message_after_another, 6);
	tell_in(of_one_message_after_another, &by_udp, 6);
	tell(with_credits, 1);
	tell(of_the_first_of_two, 2);
	tell(of_two_at_once, 0);
	tell(that_came_before, 1);
	tell(of_what_was_not_sent, 4);
	tell(after_the_timeout_became_shorter, 1);
	tell(that_refuse, 0);
	tell(that_fail, 0);
	tell(while_it_repeats, 0);
	tell(of_what_was_repeated, 1);
	tell(of_a_long_message, 0);
	tell(of_a_write, 0);
	tell(of_a_read, 0);
	tell_in(of_what_is_counted, &counted, 2);
	tell_in(into_a_full_cq, &narrow, 1);
	tell(that_wake_an_armed_queue, 2);
	tell(while_it_drains, 0);
	tell(that_open_the_window, 2);
	tell(without_a_timeout, 2);
	tell(of_a_watched_peer, 1);
	tell_in(of_a_peer_that_was_watched_early, &before, 1);
}

/* What may come from anybody. And a request of the NIC's own ends elsewhere. */
static void takes_nothing_odd(void **state)
{
	static struct side s;
	uint8_t packet[20] = {VB_OP_ACK, 0, 0xff, 0xff};
	const struct vb_lent lent = {0};
	struct vb_rx rx = {.data = packet};

	(void)state;
	begin(&s, true, &usual);
	send_one(&s);
	rx.src = s.q.qp->path.dgid;
	vb_store_be32(packet + 4, s.q.qp->qpn);
	vb_store_be32(packet + 8, PSN);
	for (rx.size = 0; rx.size <= 20; rx.size++) /* cut off, or more than it has */
		assert_true(rx.size == 16 || !vb_rc_take_ack(s.fake.nic, &rx));
	rx.size = 16;
	packet[0] = VB_OP_ATOMIC_ACK;
	assert_false(vb_rc_take_ack(s.fake.nic, &rx));
	packet[0] = VB_OP_ACK;
	packet[1] = 0x01; /* another version */
	assert_false(vb_rc_take_ack(s.fake.nic, &rx));
	packet[1] = 0x10; /* a pad of nothing */
	assert_false(vb_rc_take_ack(s.fake.nic, &rx));
	packet[1] = 0;
	packet[3] = 0xfe; /* another partition */
	assert_false(vb_rc_take_ack(s.fake.nic, &rx));
	packet[3] = 0xff;
	rx.lent = &lent;
	assert_false(vb_rc_take_ack(s.fake.nic, &rx));
	rx.lent = NULL;
	vb_store_be32(packet + 4, s.q.qp->qpn ^ 1);
	assert_false(vb_rc_take_ack(s.fake.nic, &rx));
	vb_store_be32(packet + 4, s.q.qp->qpn);
	rx.src.s6_addr[0] ^= 1;
	assert_false(vb_rc_take_ack(s.fake.nic, &rx));
	rx.src.s6_addr[0] ^= 1;
	vb_qp_wqe(s.q.qp, 0)->own = true;
	assert_false(vb_rc_take_ack(s.fake.nic, &rx));
	vb_qp_wqe(s.q.qp, 0)->own = false;
	assert_int_equal(s.q.qp->sq_una, 0);
	assert_true(vb_rc_take_ack(s.fake.nic, &rx));
	assert_int_equal(s.q.qp->sq_una, 1);
	end(&s);
}

/* --- given ------------------------------------------------------------------------------- */

static void owe(struct side *s, uint32_t psn)
{
	s->q.qp->resp.unacknowledged = true;
	vb_rc_acknowledge(s->q.qp, VB_AETH_ACK_NO_CREDIT, vb_psn_add(PEER_PSN, psn));
}

static void one_at_a_time(struct side *s)
{
	for (uint32_t i = 0; i < 3; i++) {
		s->q.qp->resp.msn = 0xfffffe + i / 2;
		owe(s, i * 0xabcde);
		turn(s);
		assert_false(s->q.qp->resp.ack_pending);
	}
}

static void of_nothing(struct side *s)
{
	turn(s);
}

static void of_a_refusal(struct side *s)
{
	vb_rc_nak(s->q.qp, VB_NAK_PSN_SEQUENCE, PEER_PSN);
	turn(s);
	assert_true(s->q.qp->resp.gap_told);
	owe(s, 0);
	turn(s);
	assert_false(s->q.qp->resp.gap_told);
	vb_rc_acknowledge(s->q.qp, vb_aeth_syndrome(VB_AETH_RNR_NAK, 3), PEER_PSN);
	turn(s);
}

static void behind_an_answer(struct side *s)
{
	const struct vb_headers h = {
		.opcode = vb_opcode(VB_TRANSPORT_RC, VB_OP_READ_REQUEST),
		.pkey = VB_DEFAULT_PKEY,
		.qpn = s->q.qp->qpn,
		.psn = PEER_PSN,
		.reth = {.va = (uintptr_t)memory, .rkey = s->mr->rkey, .length = 8},
	};

	vb_rc_on_request(s->q.qp, &h, NULL, 0, NULL);
	owe(s, 1);
	turn(s);
	assert_false(s->q.qp->resp.ack_pending);
}

static void beside_a_request(struct side *s)
{
	const struct vb_sge sge = {(uintptr_t)memory, MTU + 1, s->mr->lkey};
	const struct vb_send_wr wr = {.sges = &sge, .num_sge = 1, .opcode = VB_WR_SEND};

	assert_int_equal(vb_qp_post_send(s->q.qp, &wr), 0);
	owe(s, 0);
	turn(s);
	assert_int_equal(s->q.qp->req.end_psn, PSN + 2);
}

static void to_a_carrier_without_room(struct side *s)
{
	s->tx_result = -EAGAIN;
	owe(s, 0);
	turn(s);
	assert_true(s->q.qp->blocked);
	turn(s); /* it is not its turn */
	s->tx_result = 0;
	vb_nic_unblock(s->fake.nic);
	turn(s);
	assert_false(s->q.qp->resp.ack_pending);
}

static void that_the_carrier_drops(struct side *s)
{
	s->tx_result = -EHOSTUNREACH;
	owe(s, 0);
	turn(s);
	assert_int_equal(s->fake.nic->counters.tx_dropped, 1);
}

static void in_another_state(struct side *s)
{
	owe(s, 0);
	turn(s);
	assert_int_equal(s->fake.tx_count, 1);
}

static void after_the_end(struct side *s)
{
	owe(s, 0);
	assert_int_equal(fake_modify(s->q.qp, VB_QPS_ERR, VB_QP_STATE), 0);
	s->q.qp->resp.ack_pending = true; /* and yet is owed */
	turn(s);
	assert_int_equal(s->fake.tx_count, 0);
}

/* A message that left as it was posted, and has no timer yet. */
static void with_a_timer_to_start(struct side *s)
{
	const struct vb_sge sge = {(uintptr_t)memory, 8, s->mr->lkey};
	const struct vb_send_wr wr = {.sges = &sge, .num_sge = 1, .opcode = VB_WR_SEND};

	for (int i = 0; i < 2; i++) {
		assert_int_equal(vb_qp_post_send(s->q.qp, &wr), 0);
		if (i == 0)
			owe(s, 0);
		s->fake.nic->now_ns += 50;
		turn(s);
		assert_int_equal(s->q.qp->req.ack_deadline_ns,
				 1050 + vb_ack_timeout_ns(s->fake.nic, 14));
	}
}

/* Nothing is sent, and so no timer started, behind an ACK for which there was no room. */
static void without_room_and_with_a_timer(struct side *s)
{
	const struct vb_sge sge = {(uintptr_t)memory, 8, s->mr->lkey};
	const struct vb_send_wr wr = {.sges = &sge, .num_sge = 1, .opcode = VB_WR_SEND};

	assert_int_equal(vb_qp_post_send(s->q.qp, &wr), 0);
	s->tx_result = -EAGAIN;
	owe(s, 0);
	turn(s);
	assert_int_equal(s->q.qp->req.ack_deadline_ns, 0);
}

static void turns(void **state)
{
	const struct setting by_udp = {.state = VB_QPS_RTS, .cqe = 64, .by_udp = true};
	const struct setting draining = {.state = VB_QPS_SQD, .cqe = 64};
	const struct setting receiving = {.state = VB_QPS_RTR, .cqe = 64};

	(void)state;
	tell(one_at_a_time, 3);
	tell_in(one_at_a_time, &by_udp, 0);
	tell(of_nothing, 1);
	tell(of_a_refusal, 1);
	tell(behind_an_answer, 0);
	tell(beside_a_request, 0);
	tell(to_a_carrier_without_room, 2);
	tell(that_the_carrier_drops, 1);
	tell_in(in_another_state, &draining, 0);
	tell_in(in_another_state, &receiving, 0);
	tell(after_the_end, 0);
	tell(with_a_timer_to_start, 2);
	tell(without_room_and_with_a_timer, 1);
}

/* Its acknowledgements have another opcode. */
static void gives_xrc_its_own(void **state)
{
	struct fake_qp q;
	struct fake f;

	(void)state;
	fake_init(&f);
	f.own_segment = true;
	f.nic->ops.tx_short = note_tx_short;
	fake_qp_create(&f, &q, VB_QPT_XRC_RECV, 4);
	fake_bring_to(q.qp, VB_QPS_RTS);
	vb_rc_acknowledge(q.qp, VB_AETH_ACK_NO_CREDIT, PEER_PSN);
	vb_nic_run(f.nic, 1000);
	assert_int_equal(f.tx_count, 1);
	assert_int_equal(f.tx_headers.opcode, vb_opcode(VB_TRANSPORT_XRC, VB_OP_ACK));
	fake_qp_destroy(&q);
	fake_finish(&f);
}

/* Nor is what it gets of RC. */
static void takes_nothing_for_xrc(void **state)
{
	const struct vb_send_wr wr = {.opcode = VB_WR_SEND, .flags = VB_SEND_SIGNALED};
	struct fake_qp q;
	struct fake f;

	(void)state;
	fake_init(&f);
	fake_qp_create(&f, &q, VB_QPT_XRC_SEND, 4);
	fake_bring_to(q.qp, VB_QPS_RTS);
	assert_int_equal(vb_qp_post_send(q.qp, &wr), 0);
	vb_nic_run(f.nic, 1000);
	assert_int_equal(q.qp->req.end_psn, PSN + 1);
	fake_ack(&f, q.qp, PSN);
	assert_int_equal(f.nic->counters.rx_wrong_transport, 1);
	assert_int_equal(q.qp->sq_una, 0);
	fake_qp_destroy(&q);
	fake_finish(&f);
}

/* The NIC's own entrances take both ways. */
static void is_what_the_nic_does(void **state)
{
	static struct side s;

	(void)state;
	begin(&s, true, &usual);
	owe(&s, 0);
	vb_nic_run(s.fake.nic, 2000);
	assert_int_equal(s.packets, 1);
	assert_false(s.q.qp->resp.ack_pending);
	end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(acknowledgements),
		cmocka_unit_test(takes_nothing_odd),
		cmocka_unit_test(turns),
		cmocka_unit_test(gives_xrc_its_own),
		cmocka_unit_test(takes_nothing_for_xrc),
		cmocka_unit_test(is_what_the_nic_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
