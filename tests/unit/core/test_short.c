/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_short.c - the usual short message has a way of its own (core/rc_short.c), at both ends: what
 * comes of it is what comes of the long way.
 *
 * Each story is told twice, to a NIC that may take the short way and to one that may not, and all
 * that can be seen of both is compared: return values, packets, completions, events, memory.
 * Besides, each story says how many messages went the short way: else it would compare nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "both_ways.h"
#include "core/transport.h"
#include "wire/cursor.h"

#define MTU 4096u
#define BYTES 8192u
#define PEER_PSN 0x123456u /* as fake_attr() has it */

struct side {
	struct fake fake;
	struct fake_qp q;
	struct vb_mr *mr;
	struct vb_srq *srq;
	bool may;
	unsigned int shorts;	   /* that went, or came, the short way */
	unsigned int wanted_at[4]; /* how many shorts, where one was waited for */
	unsigned int wanted;
	int tx_result;
	uint8_t *memory;
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

	s->shorts += packet->bytes > 0; /* not an acknowledgement: test_short_ack.c */
	if (packet->wanted) {
		assert_true(s->wanted < VB_ARRAY_SIZE(s->wanted_at));
		s->wanted_at[s->wanted++] = s->shorts;
	}
	if (s->tx_result)
		return s->tx_result;
	s->fake.tx_count++;
	if (packet->bytes == 0)
		assert_int_equal(vb_headers_decode(&s->fake.tx_headers, packet->header,
						   packet->header_bytes),
				 packet->header_bytes);
	assert_int_equal(packet->qpn, s->q.qp->attr.dest_qpn);
	assert_int_equal((packet->bytes + packet->pad) % 4, 0);
	note_short_packet(&s->notes, packet);
	return 0;
}

static void run(struct side *s)
{
	while (vb_nic_run(s->fake.nic, s->fake.nic->now_ns + 10))
		;
	note_completions(&s->notes, s->q.cq, s->q.qp);
	NOTE(&s->notes, s->q.qp->state);
	NOTE(&s->notes, s->fake.event_count);
	NOTE(&s->notes, s->fake.cq_events);
}

static void begin(struct side *s, bool may, bool with_srq, enum vb_qp_state state, uint32_t cqe)
{
	struct vb_qp_init init;

	*s = (struct side){.may = may, .memory = memory};
	for (uint32_t i = 0; i < BYTES; i++)
		s->memory[i] = (uint8_t)(i * 7 + i / 256);
	fake_init(&s->fake);
	s->fake.nic->ops.tx = note_tx;
	s->fake.nic->ops.tx_short = may ? note_tx_short : NULL;
	s->fake.own_segment = true;
	s->fake.segment_max = MTU;
	s->q.pd = vb_pd_create(s->fake.nic);
	s->q.cq = vb_cq_create(s->fake.nic, cqe, NULL);
	init = fake_qp_init(VB_QPT_RC, s->q.cq);
	if (with_srq)
		init.srq = s->srq = vb_srq_create(s->q.pd, 4, 2, 0, NULL);
	s->q.qp = vb_qp_create(s->q.pd, &init);
	assert_non_null(s->q.qp);
	fake_bring_to(s->q.qp, state);
	s->mr = vb_mr_create(s->q.pd, s->memory, BYTES, (uintptr_t)s->memory,
			     VB_ACCESS_LOCAL_WRITE);
	assert_non_null(s->mr);
}

static void end(struct side *s)
{
	vb_mr_destroy(s->mr);
	vb_qp_destroy(s->q.qp);
	assert_int_equal(vb_srq_destroy(s->srq), 0);
	assert_int_equal(vb_cq_destroy(s->q.cq), 0);
	assert_int_equal(vb_pd_destroy(s->q.pd), 0);
	fake_finish(&s->fake);
}

typedef void story_fn(struct side *s);

/* tell - both ways; expected: messages that go the short one where that is allowed. */
static void tell_in(story_fn *story, bool with_srq, enum vb_qp_state state, uint32_t cqe,
		    unsigned int expected)
{
	static struct side sides[2];

	for (int i = 0; i < 2; i++) {
		begin(&sides[i], i == 0, with_srq, state, cqe);
		story(&sides[i]);
		note(&sides[i].notes, sides[i].memory, BYTES);
		end(&sides[i]);
	}
	assert_int_equal(sides[0].shorts, expected);
	assert_int_equal(sides[1].shorts, 0);
	assert_same_notes(&sides[0].notes, &sides[1].notes);
}

static void tell(story_fn *story, unsigned int expected)
{
	tell_in(story, false, VB_QPS_RTS, 64, expected);
}

/* --- posting ----------------------------------------------------------------------------- */

/* As the face does it. */
static int post_wr(struct side *s, const struct vb_send_wr *wr)
{
	const struct vb_short_wr wanted = {
		.wr_id = wr->wr_id,
		.sge = wr->sges,
		.flags = wr->flags,
		.imm = wr->imm,
		.with_imm = wr->opcode == VB_WR_SEND_WITH_IMM,
	};
	int rc = 0;

	if (!((wr->opcode == VB_WR_SEND || wanted.with_imm) && wr->num_sge == 1 &&
	      !(wr->flags & ~VB_SHORT_FLAGS) && vb_rc_post_short(s->q.qp, &wanted)))
		rc = vb_qp_post_send(s->q.qp, wr);
	NOTE(&s->notes, rc);
	return rc;
}

static int post(struct side *s, uint32_t length, uint32_t flags, enum vb_wr_opcode opcode)
{
	const struct vb_sge sge = {(uintptr_t)s->memory + 16, length, s->mr->lkey};
	const struct vb_send_wr wr = {.wr_id = 1000 + length,
				      .sges = &sge,
				      .num_sge = 1,
				      .opcode = opcode,
				      .flags = flags,
				      .imm = 0x01020304};

	return post_wr(s, &wr);
}

/* The first one, by the long way, and its timer. */
static void start(struct side *s)
{
	const struct vb_sge sge = {(uintptr_t)s->memory + 16, 4, s->mr->lkey};
	const struct vb_send_wr wr = {.wr_id = 1004,
				      .sges = &sge,
				      .num_sge = 1,
				      .opcode = VB_WR_SEND,
				      .flags = VB_SEND_SIGNALED};

	assert_int_equal(vb_qp_post_send(s->q.qp, &wr), 0);
	run(s);
	assert_true(s->q.qp->req.ack_deadline_ns);
}

static void acknowledge(struct side *s)
{
	fake_ack(&s->fake, s->q.qp, vb_psn_add(s->q.qp->req.end_psn, VB_PSN_MASK));
	run(s);
}

static void answer(struct side *s, uint8_t syndrome, uint32_t psn)
{
	const struct vb_headers h = {
		.opcode = vb_opcode(VB_TRANSPORT_RC, VB_OP_ACK),
		.pkey = VB_DEFAULT_PKEY,
		.qpn = s->q.qp->qpn,
		.psn = psn,
		.aeth = {.syndrome = syndrome},
	};
	uint8_t packet[VB_HEADERS_MAX];
	const int bytes = vb_headers_encode(&h, packet, sizeof(packet));
	const struct vb_rx rx = {.data = packet, .size = (size_t)bytes, .src = s->q.qp->path.dgid};

	vb_nic_rx(s->fake.nic, &rx, s->fake.nic->now_ns);
}

static const uint32_t lengths[] = {0,  1,    2,	   3,	 4,    7,    8,	   63,	 64,
				   65, 1023, 1024, 1025, 4095, 4096, 4097, 8000, 100000};

static void of_all_lengths(struct side *s)
{
	for (size_t i = 0; i < VB_ARRAY_SIZE(lengths); i++) {
		start(s);
		post(s, lengths[i], VB_SEND_SIGNALED, VB_WR_SEND);
		run(s);
		if (s->q.qp->state == VB_QPS_RTS)
			acknowledge(s);
	}
}

static void with_flags(struct side *s)
{
	static const uint32_t flags[] = {0,
					 VB_SEND_SIGNALED,
					 VB_SEND_SOLICITED,
					 VB_SEND_FENCE,
					 VB_SEND_SIGNALED | VB_SEND_SOLICITED,
					 VB_SEND_INLINE,
					 VB_SEND_INLINE | VB_SEND_SIGNALED,
					 VB_SEND_IP_CSUM};

	for (size_t i = 0; i < VB_ARRAY_SIZE(flags); i++) {
		start(s);
		post(s, 8, flags[i], VB_WR_SEND);
		post(s, 9, flags[i], VB_WR_SEND_WITH_IMM);
		run(s);
		acknowledge(s);
		start(s); /* whose completion gives the places back */
		acknowledge(s);
	}
}

/* 64 bytes are allowed. */
static void inline_up_to_the_limit(struct side *s)
{
	start(s);
	assert_int_equal(post(s, 64, VB_SEND_INLINE, VB_WR_SEND), 0);
	assert_int_equal(post(s, 65, VB_SEND_INLINE, VB_WR_SEND), -EINVAL);
	acknowledge(s);
}

static void of_other_kinds(struct side *s)
{
	const struct vb_sge sges[] = {{(uintptr_t)s->memory, 8, s->mr->lkey},
				      {(uintptr_t)s->memory + 100, 8, s->mr->lkey}};
	struct vb_send_wr wr = {.wr_id = 5, .sges = sges, .num_sge = 2, .opcode = VB_WR_SEND};

	start(s);
	assert_int_equal(post_wr(s, &wr), 0); /* two pieces */
	wr.num_sge = 0;
	assert_int_equal(post_wr(s, &wr), 0); /* none */
	wr.num_sge = 1;
	wr.opcode = VB_WR_RDMA_WRITE;
	wr.flags = VB_SEND_SIGNALED;
	assert_int_equal(post_wr(s, &wr), 0);
	run(s);
	acknowledge(s);
}

/* It is started by the next turn, and by none where there is no room. */
static void without_a_timer(struct side *s)
{
	run(s);
	assert_int_equal(post(s, 8, VB_SEND_SIGNALED, VB_WR_SEND), 0);
	assert_int_equal(s->q.qp->req.ack_deadline_ns, 0);
	assert_true(vb_list_is_linked(&s->q.qp->ready_link));
	assert_false(s->fake.nic->ready_soon);
	run(s);
	assert_int_equal(s->q.qp->req.ack_deadline_ns,
			 s->fake.nic->now_ns + vb_ack_timeout_ns(s->fake.nic, 14));
	acknowledge(s);
	s->tx_result = -EAGAIN;
	assert_int_equal(post(s, 8, VB_SEND_SIGNALED, VB_WR_SEND), 0);
	assert_true(s->q.qp->blocked);
	s->tx_result = 0;
	vb_nic_unblock(s->fake.nic);
	run(s);
	acknowledge(s);
}

static void to_a_full_queue(struct side *s)
{
	start(s);
	for (int i = 0; i < 3; i++)
		assert_int_equal(post(s, 8, VB_SEND_SIGNALED, VB_WR_SEND), 0);
	assert_int_equal(post(s, 8, VB_SEND_SIGNALED, VB_WR_SEND), -ENOMEM);
	acknowledge(s); /* and polls */
	start(s);
	assert_int_equal(post(s, 8, VB_SEND_SIGNALED, VB_WR_SEND), 0);
}

static void of_memory_that_is_not_there(struct side *s)
{
	struct vb_sge sge = {(uintptr_t)s->memory + BYTES - 8, 9, s->mr->lkey};
	const struct vb_send_wr wr = {.wr_id = 6, .sges = &sge, .num_sge = 1, .opcode = VB_WR_SEND};

	start(s);
	sge.length = 8;
	assert_int_equal(post_wr(s, &wr), 0); /* its last bytes */
	sge.length = 9;
	assert_int_equal(post_wr(s, &wr), 0);
	run(s);
	acknowledge(s);
	run(s); /* LOC_PROT_ERR */
	assert_int_equal(s->q.qp->state, VB_QPS_ERR);
}

static void after_its_region_went(struct side *s)
{
	start(s);
	assert_int_equal(post(s, 8, VB_SEND_SIGNALED, VB_WR_SEND), 0);
	acknowledge(s);
	start(s);
	vb_mr_destroy(s->mr);
	s->mr = vb_mr_create(s->q.pd, s->memory, 16, (uintptr_t)s->memory, 0);
	assert_int_equal(post(s, 8, VB_SEND_SIGNALED, VB_WR_SEND), 0); /* behind its end */
	run(s);
	acknowledge(s);
	run(s);
	assert_int_equal(s->q.qp->state, VB_QPS_ERR);
}

static void of_another_domain(struct side *s)
{
	struct vb_pd *other = vb_pd_create(s->fake.nic);
	struct vb_mr *mr = vb_mr_create(other, s->memory, BYTES, (uintptr_t)s->memory, 0);
	const struct vb_sge sge = {(uintptr_t)s->memory, 8, mr->lkey};
	const struct vb_send_wr wr = {.wr_id = 6, .sges = &sge, .num_sge = 1, .opcode = VB_WR_SEND};

	start(s);
	assert_int_equal(post_wr(s, &wr), 0);
	run(s);
	acknowledge(s);
	run(s);
	assert_int_equal(s->q.qp->state, VB_QPS_ERR);
	vb_mr_destroy(mr);
	assert_int_equal(vb_pd_destroy(other), 0);
}

static void in_other_states(struct side *s)
{
	start(s);
	assert_int_equal(fake_modify(s->q.qp, VB_QPS_SQD, VB_QP_STATE), 0);
	assert_int_equal(post(s, 8, VB_SEND_SIGNALED, VB_WR_SEND), 0);
	run(s);
	assert_int_equal(fake_modify(s->q.qp, VB_QPS_ERR, VB_QP_STATE), 0);
	assert_int_equal(post(s, 8, 0, VB_WR_SEND), 0);
	run(s);
	assert_int_equal(fake_modify(s->q.qp, VB_QPS_RESET, VB_QP_STATE), 0);
	assert_int_equal(post(s, 8, 0, VB_WR_SEND), -EINVAL);
}

static void to_a_carrier_without_room(struct side *s)
{
	start(s);
	s->tx_result = -EAGAIN;
	assert_int_equal(post(s, 8, VB_SEND_SIGNALED, VB_WR_SEND), 0);
	assert_true(s->q.qp->blocked);
	run(s);
	s->tx_result = 0;
	vb_nic_unblock(s->fake.nic);
	assert_int_equal(post(s, 16, VB_SEND_SIGNALED, VB_WR_SEND), 0); /* behind those */
	run(s);
	acknowledge(s);
}

static void that_the_carrier_drops(struct side *s)
{
	start(s);
	s->tx_result = -EHOSTUNREACH;
	assert_int_equal(post(s, 8, VB_SEND_SIGNALED, VB_WR_SEND), 0);
	NOTE(&s->notes, s->fake.nic->counters.tx_dropped);
	s->tx_result = 0;
	answer(s, vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_PSN_SEQUENCE), s->q.qp->req.una_psn + 1);
	run(s); /* sends it again */
	acknowledge(s);
}

static void that_is_to_be_repeated(struct side *s)
{
	uint32_t first;

	start(s);
	first = s->q.qp->req.end_psn;
	assert_int_equal(post(s, 8, VB_SEND_SIGNALED | VB_SEND_INLINE, VB_WR_SEND), 0);
	assert_int_equal(post(s, 7, VB_SEND_SOLICITED, VB_WR_SEND_WITH_IMM), 0);
	s->memory[16] ^= 0xff; /* of the inline one the old byte goes again */
	answer(s, vb_aeth_syndrome(VB_AETH_RNR_NAK, 1), first);
	assert_int_equal(post(s, 6, VB_SEND_SIGNALED, VB_WR_SEND), 0); /* while it waits */
	run(s);
	s->fake.nic->now_ns += 1000000000;
	run(s);
	acknowledge(s);
}

/* What is repeated was acknowledged meanwhile, and the peer is not asked before its time. */
static void while_it_waits_for_nothing(struct side *s)
{
	uint32_t first;

	start(s);
	first = s->q.qp->req.end_psn;
	assert_int_equal(post(s, 8, VB_SEND_SIGNALED, VB_WR_SEND), 0);
	answer(s, vb_aeth_syndrome(VB_AETH_RNR_NAK, 1), first);
	acknowledge(s);
	assert_true(s->q.qp->req.wait_until_ns);
	assert_int_equal(s->q.qp->sq_una, s->q.qp->sq_head);
	assert_int_equal(post(s, 6, VB_SEND_SIGNALED, VB_WR_SEND), 0);
	run(s);
	s->fake.nic->now_ns += 1000000000;
	run(s);
	acknowledge(s);
}

static void within_the_window(struct side *s)
{
	start(s);
	s->q.qp->req.cwnd = 2;
	assert_int_equal(post(s, 8, 0, VB_WR_SEND), 0);
	assert_int_equal(post(s, 8, VB_SEND_SIGNALED, VB_WR_SEND), 0);
	run(s);
	acknowledge(s);
	acknowledge(s);
}

/* Nothing is before it, and yet there was no room. */
static void while_an_answer_waits(struct side *s)
{
	start(s);
	s->tx_result = -EAGAIN;
	vb_rc_nak(s->q.qp, VB_NAK_PSN_SEQUENCE, s->q.qp->resp.epsn);
	run(s);
	assert_true(s->q.qp->blocked);
	s->tx_result = 0;
	assert_int_equal(post(s, 8, VB_SEND_SIGNALED, VB_WR_SEND), 0);
	vb_nic_unblock(s->fake.nic);
	run(s);
	acknowledge(s);
}

static void posts(void **state)
{
	(void)state;
	/* 1 to 1024 bytes: 11; beyond the region (100000) it fails. */
	tell(of_all_lengths, 11);
	tell(with_flags, 12);
	tell(inline_up_to_the_limit, 1);
	tell(of_other_kinds, 0);
	tell(without_a_timer, 2);
	tell(to_a_full_queue, 4);
	tell(of_memory_that_is_not_there, 1);
	tell(after_its_region_went, 1);
	tell(of_another_domain, 0);
	tell(in_other_states, 0);
	tell(to_a_carrier_without_room, 1);
	tell(while_an_answer_waits, 0);
	tell(that_the_carrier_drops, 1);
	tell(that_is_to_be_repeated, 2);
	tell(while_it_waits_for_nothing, 1);
	tell(within_the_window, 1);
}

/* send_short - and nothing else; it is acknowledged. */
static void send_short(struct side *s, uint32_t flags)
{
	s->notes.count = 0; /* nobody compares it */
	start(s);
	assert_int_equal(post(s, 8, flags, VB_WR_SEND), 0);
	acknowledge(s);
	start(s); /* whose completion gives the places back */
	acknowledge(s);
}

/* What the program does not hear of it does not wait for; of what it hears of, one in 16. */
static void says_what_is_waited_for(void **state)
{
	static struct side s;

	(void)state;
	begin(&s, true, false, VB_QPS_RTS, 64);
	for (int i = 0; i < 40; i++)
		send_short(&s, VB_SEND_SIGNALED);
	assert_int_equal(s.shorts, 40);
	assert_int_equal(s.wanted, 2);
	assert_int_equal(s.wanted_at[0], 16);
	assert_int_equal(s.wanted_at[1], 32);
	for (int i = 0; i < 255; i++) /* with the 8 before them more than a byte counts */
		send_short(&s, 0);
	assert_int_equal(s.wanted, 2);
	send_short(&s, VB_SEND_SIGNALED);
	assert_int_equal(s.wanted, 3);
	assert_int_equal(s.wanted_at[2], 296);
	end(&s);
}

/* --- receiving --------------------------------------------------------------------------- */

/* A message of one packet: by the NIC's entrance, or put before the judge. */
static void arrive(struct side *s, uint32_t psn, uint32_t length, bool imm, bool solicited)
{
	const struct vb_headers h = {
		.opcode = vb_opcode(VB_TRANSPORT_RC, imm ? VB_OP_SEND_ONLY_IMM : VB_OP_SEND_ONLY),
		.pkey = VB_DEFAULT_PKEY,
		.qpn = s->q.qp->qpn,
		.psn = vb_psn_add(PEER_PSN, psn),
		.pad = (uint8_t)(-length & 3),
		.solicited = solicited,
		.ack_req = psn % 3 != 2,
		.imm = 0xa0b0c0d0,
	};
	uint8_t packet[VB_HEADERS_MAX + MTU + 4] = {0};
	const int n = vb_headers_encode(&h, packet, sizeof(packet));
	const struct vb_rx rx = {
		.data = packet, .size = (size_t)n + length + h.pad, .src = s->q.qp->path.dgid};

	for (uint32_t i = 0; i < length; i++)
		packet[(uint32_t)n + i] = (uint8_t)(i * 3 + psn);
	if (s->may) {
		if (vb_rc_take_short(s->fake.nic, &rx))
			s->shorts++;
		else
			vb_nic_rx(s->fake.nic, &rx, s->fake.nic->now_ns);
	} else {
		vb_rc_on_request(s->q.qp, &h, packet + n, length, NULL);
		vb_qp_settle(s->q.qp);
	}
	run(s);
}

static void want(struct side *s, uint32_t first, uint32_t second)
{
	const struct vb_sge sges[] = {{(uintptr_t)s->memory + 4096, first, s->mr->lkey},
				      {(uintptr_t)s->memory + 64, second, s->mr->lkey}};
	const struct vb_recv_wr wr = {.wr_id = 77 + first, .sges = sges, .num_sge = second ? 2 : 1};

	if (s->srq)
		assert_int_equal(vb_srq_post(s->srq, &wr), 0);
	else
		assert_int_equal(vb_qp_post_recv(s->q.qp, &wr), 0);
}

static void that_fit(struct side *s)
{
	static const uint32_t bytes[] = {1, 2, 3, 4, 8, 9, 1000, 4096};

	for (uint32_t i = 0; i < VB_ARRAY_SIZE(bytes); i++) {
		want(s, bytes[i], 0);
		arrive(s, i, bytes[i], i % 2, i % 4 > 1);
	}
}

static void without_a_byte(struct side *s)
{
	want(s, 8, 0);
	arrive(s, 0, 0, false, false);
}

static void that_need_two_pieces(struct side *s)
{
	want(s, 8, 8);
	arrive(s, 0, 8, false, false); /* the first is enough */
	want(s, 8, 8);
	arrive(s, 1, 9, false, false);
}

static void too_long_for_the_request(struct side *s)
{
	want(s, 8, 0);
	arrive(s, 0, 9, false, false);
	assert_int_equal(s->q.qp->state, VB_QPS_ERR);
}

static void that_nobody_waits_for(struct side *s)
{
	arrive(s, 0, 8, false, false); /* RNR NAK */
	want(s, 8, 0);
	arrive(s, 0, 8, false, false);
}

static void out_of_order(struct side *s)
{
	want(s, 8, 0);
	want(s, 8, 0);
	arrive(s, 1, 8, false, false); /* a gap */
	arrive(s, 0, 8, false, false);
	arrive(s, 0, 8, false, false); /* a duplicate */
}

static void into_memory_without_the_right(struct side *s)
{
	vb_mr_destroy(s->mr);
	s->mr = vb_mr_create(s->q.pd, s->memory, BYTES, (uintptr_t)s->memory, 0);
	want(s, 8, 0);
	arrive(s, 0, 8, false, false);
	assert_int_equal(s->q.qp->state, VB_QPS_ERR);
}

static void that_wake_an_armed_queue(struct side *s)
{
	for (uint32_t i = 0; i < 3; i++)
		want(s, 8, 0);
	vb_cq_arm(s->q.cq, true);
	arrive(s, 0, 8, false, false);
	assert_int_equal(s->fake.cq_events, 0);
	arrive(s, 1, 8, false, true);
	assert_int_equal(s->fake.cq_events, 1);
	vb_cq_arm(s->q.cq, false);
	arrive(s, 2, 8, true, false);
	assert_int_equal(s->fake.cq_events, 2);
}

/* One place, and nobody polls between. */
static void into_a_full_cq(struct side *s)
{
	struct vb_cqe other = {.wr_id = 9, .qp = s->q.qp, .qpn = s->q.qp->qpn};

	want(s, 8, 0);
	vb_cq_push(s->q.cq, &other, NULL);
	arrive(s, 0, 8, false, false);
	assert_int_equal(s->q.qp->state, VB_QPS_ERR);
	assert_int_equal(fake_count_events(&s->fake, VB_EVENT_CQ_ERR), 1);
}

static void for_a_shared_queue(struct side *s)
{
	want(s, 8, 0);
	want(s, 8, 0);
	arrive(s, 0, 8, false, false);
	assert_int_equal(vb_srq_set_limit(s->srq, 1), 0);
	arrive(s, 1, 8, false, false); /* which is told that it has come below */
	assert_int_equal(fake_count_events(&s->fake, VB_EVENT_SRQ_LIMIT_REACHED), 1);
}

static void before_it_sends(struct side *s)
{
	want(s, 8, 0);
	want(s, 8, 0);
	arrive(s, 0, 8, false, false);
	assert_int_equal(fake_count_events(&s->fake, VB_EVENT_COMM_EST), 1);
	arrive(s, 1, 8, false, false);
	assert_int_equal(fake_count_events(&s->fake, VB_EVENT_COMM_EST), 1);
}

static void receives(void **state)
{
	(void)state;
	tell(that_fit, 8);
	tell(without_a_byte, 0);
	tell(that_need_two_pieces, 1);
	tell(too_long_for_the_request, 0);
	tell(that_nobody_waits_for, 1);
	tell(out_of_order, 1);
	tell(into_memory_without_the_right, 0);
	tell(that_wake_an_armed_queue, 3);
	tell_in(into_a_full_cq, false, VB_QPS_RTS, 1, 0);
	tell_in(for_a_shared_queue, true, VB_QPS_RTS, 64, 1);
	tell_in(before_it_sends, false, VB_QPS_RTR, 64, 1);
}

/* What may come from anybody: odd headers of the same opcode, and from elsewhere. */
static void receives_nothing_odd(void **state)
{
	static struct side s;
	uint8_t packet[24] = {VB_OP_SEND_ONLY, 0, 0xff, 0xff};
	struct vb_rx rx = {.data = packet, .size = 20};

	(void)state;
	begin(&s, true, false, VB_QPS_RTS, 64);
	want(&s, 8, 0);
	rx.src = s.q.qp->path.dgid;
	vb_store_be32(packet + 4, s.q.qp->qpn);
	vb_store_be32(packet + 8, PEER_PSN);
	for (rx.size = 0; rx.size <= 12; rx.size++) /* cut off */
		assert_false(vb_rc_take_short(s.fake.nic, &rx));
	rx.size = 19; /* no multiple of 4 */
	assert_false(vb_rc_take_short(s.fake.nic, &rx));
	rx.size = 20;
	packet[1] = 0x01; /* another version */
	assert_false(vb_rc_take_short(s.fake.nic, &rx));
	packet[1] = 0;
	packet[3] = 0xfe; /* another partition */
	assert_false(vb_rc_take_short(s.fake.nic, &rx));
	packet[3] = 0xff;
	vb_store_be32(packet + 4, s.q.qp->qpn ^ 1);
	assert_false(vb_rc_take_short(s.fake.nic, &rx));
	vb_store_be32(packet + 4, s.q.qp->qpn);
	rx.src.s6_addr[0] ^= 1;
	assert_false(vb_rc_take_short(s.fake.nic, &rx));
	rx.src = s.q.qp->path.dgid;
	packet[0] = VB_OP_SEND_ONLY_IMM;
	rx.size = 16; /* immediate data alone */
	assert_false(vb_rc_take_short(s.fake.nic, &rx));
	packet[0] = VB_OP_SEND_ONLY;
	rx.size = 20;
	assert_int_equal(vb_rq_count(&s.q.qp->rq), 1);
	assert_true(vb_rc_take_short(s.fake.nic, &rx));
	assert_int_equal(vb_rq_count(&s.q.qp->rq), 0);
	end(&s);
}

/* The acknowledgement of what is waited for is there when the packet has been taken; any other is
 * sent when the NIC runs. */
static void acknowledges_at_once_what_is_waited_for(void **state)
{
	static struct side s;
	const struct vb_headers h = {
		.opcode = vb_opcode(VB_TRANSPORT_RC, VB_OP_SEND_ONLY),
		.pkey = VB_DEFAULT_PKEY,
		.psn = PEER_PSN,
		.ack_req = true,
	};
	uint8_t packet[VB_BTH_BYTES + 8] = {0};
	struct vb_rx rx = {.data = packet, .size = sizeof(packet)};

	(void)state;
	begin(&s, true, false, VB_QPS_RTS, 64);
	assert_int_equal(vb_headers_encode(&h, packet, sizeof(packet)), VB_BTH_BYTES);
	vb_store_be32(packet + 4, s.q.qp->qpn);
	rx.src = s.q.qp->path.dgid;
	for (uint32_t i = 0; i < 4; i++) {
		want(&s, 8, 0);
		vb_store_be32(packet + 8, 0x80000000u | vb_psn_add(PEER_PSN, i));
		rx.wanted = i % 2;
		assert_true(vb_rc_take_short(s.fake.nic, &rx));
		assert_int_equal(s.fake.tx_count, i % 2 ? i / 2 + 1 : i / 2);
		if (i % 2)
			assert_int_equal(s.fake.tx_headers.psn, vb_psn_add(PEER_PSN, i));
	}
	run(&s); /* the second said all of the first, and nothing is left */
	assert_int_equal(s.fake.tx_count, 2);
	/* Where there is no room it waits, as any. */
	want(&s, 8, 0);
	s.tx_result = -EAGAIN;
	rx.wanted = true;
	vb_store_be32(packet + 8, 0x80000000u | vb_psn_add(PEER_PSN, 4));
	assert_true(vb_rc_take_short(s.fake.nic, &rx));
	assert_true(s.q.qp->blocked);
	s.tx_result = 0;
	vb_nic_unblock(s.fake.nic);
	run(&s);
	assert_int_equal(s.fake.tx_count, 3);
	assert_int_equal(s.fake.tx_headers.psn, vb_psn_add(PEER_PSN, 4));
	end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(posts),
		cmocka_unit_test(says_what_is_waited_for),
		cmocka_unit_test(acknowledges_at_once_what_is_waited_for),
		cmocka_unit_test(receives),
		cmocka_unit_test(receives_nothing_odd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
