/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_trains.c - where packets that leave together cost what one costs, a long message goes in
 * whole trains of them: no turn and no window ends in the middle of one, as long as more will be
 * acknowledged.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "core/transport.h"
#include "fake_nic.h"

#define MTU 1024u
#define MESSAGE (1024 * MTU)
#define WINDOW (512 * MTU)
#define TRAIN_BYTES 65000u
#define TRAIN 62u /* packets of MTU, BTH (12) and ICRC (4): 65,000 / 1,040 */

struct peer {
	struct fake fake;
	struct fake_qp q;
	struct vb_mr *mr;
	uint8_t *memory;
	uint32_t psn; /* of the first packet */
};

static void set_up(struct peer *p, uint32_t train, uint32_t window)
{
	fake_init(&p->fake);
	p->fake.train = train;
	p->fake.window = window;
	fake_qp_create(&p->fake, &p->q, VB_QPT_RC, 64);
	fake_bring_to(p->q.qp, VB_QPS_RTS);
	assert_int_equal(p->q.qp->mtu, MTU);
	p->memory = calloc(1, MESSAGE);
	assert_non_null(p->memory);
	p->mr = vb_mr_create(p->q.pd, p->memory, MESSAGE, (uintptr_t)p->memory,
			     VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_READ);
	assert_non_null(p->mr);
	p->psn = p->q.qp->req.nxt_psn;
}

static void tear_down(struct peer *p)
{
	vb_mr_destroy(p->mr);
	fake_qp_destroy(&p->q);
	fake_finish(&p->fake);
	free(p->memory);
}

static void post(struct peer *p, uint32_t bytes)
{
	const struct vb_sge sge = {(uintptr_t)p->memory, bytes, p->mr->lkey};
	const struct vb_send_wr wr = {
		.sges = &sge, .num_sge = 1, .opcode = VB_WR_SEND, .flags = VB_SEND_SIGNALED};

	assert_int_equal(vb_qp_post_send(p->q.qp, &wr), 0);
}

static void post_read(struct peer *p, uint32_t bytes)
{
	const struct vb_sge sge = {(uintptr_t)p->memory, bytes, p->mr->lkey};
	const struct vb_send_wr wr = {.sges = &sge, .num_sge = 1, .opcode = VB_WR_RDMA_READ};

	assert_int_equal(vb_qp_post_send(p->q.qp, &wr), 0);
}

static unsigned int sent_until_idle(struct peer *p)
{
	while (vb_nic_run(p->fake.nic, 1000))
		;
	return p->fake.tx_count;
}

/* The first so many packets are acknowledged. */
static void acknowledge(struct peer *p, uint32_t packets)
{
	fake_ack(&p->fake, p->q.qp, vb_psn_add(p->psn, packets - 1));
}

/* As many as 256 KiB hold, so that one system call takes them. */
static void a_turn_is_whole_trains(void **state)
{
	struct peer p;

	set_up(&p, TRAIN_BYTES, WINDOW);
	post(&p, MESSAGE);
	assert_true(vb_nic_run(p.fake.nic, 1000));
	assert_int_equal(p.fake.tx_count, 4 * TRAIN);
	tear_down(&p);

	set_up(&p, 16 * TRAIN_BYTES, WINDOW); /* a datagram holds 64 packets at most */
	post(&p, MESSAGE);
	assert_true(vb_nic_run(p.fake.nic, 1000));
	assert_int_equal(p.fake.tx_count, 4 * 64);
	tear_down(&p);

	set_up(&p, 0, WINDOW);
	post(&p, MESSAGE);
	assert_true(vb_nic_run(p.fake.nic, 1000));
	assert_int_equal(p.fake.tx_count, 64);
	tear_down(&p);
}

static void a_window_is_whole_trains(void **state)
{
	struct peer p;

	set_up(&p, TRAIN_BYTES, WINDOW);
	post(&p, MESSAGE);
	assert_int_equal(sent_until_idle(&p), 512 / TRAIN * TRAIN);
	acknowledge(&p, 40); /* room for 56 */
	assert_int_equal(sent_until_idle(&p), 496);
	acknowledge(&p, 128); /* for 144 */
	assert_int_equal(sent_until_idle(&p), 496 + 2 * TRAIN);
	acknowledge(&p, 496 + 2 * TRAIN);
	assert_int_equal(sent_until_idle(&p), 1024); /* the last train is what is left */
	acknowledge(&p, 1024);
	tear_down(&p);
}

/* Nothing under way would make room, or no room is needed. */
static void what_need_not_wait_does_not(void **state)
{
	struct peer p;

	set_up(&p, TRAIN_BYTES, 40 * MTU); /* a window of less than a train */
	post(&p, MESSAGE);
	assert_int_equal(sent_until_idle(&p), 40);
	acknowledge(&p, 10);
	assert_int_equal(sent_until_idle(&p), 40);
	acknowledge(&p, 21);
	assert_int_equal(sent_until_idle(&p), 61);
	tear_down(&p);

	set_up(&p, TRAIN_BYTES, WINDOW);
	for (unsigned int i = 0; i < 3; i++)
		post(&p, 170 * MTU); /* 510, and room for two */
	post(&p, 2 * MTU);
	assert_int_equal(sent_until_idle(&p), 512);
	tear_down(&p);
}

static void every_room_is_used_without_trains(void **state)
{
	struct peer p;

	set_up(&p, 0, WINDOW);
	post(&p, MESSAGE);
	assert_int_equal(sent_until_idle(&p), 512);
	acknowledge(&p, 1);
	assert_int_equal(sent_until_idle(&p), 513);
	tear_down(&p);
}

static void answers_are_whole_trains(void **state)
{
	struct peer p;
	struct vb_headers h = {
		.opcode = vb_opcode(VB_TRANSPORT_RC, VB_OP_READ_REQUEST),
		.psn = 0x123456, /* as fake_attr() has it */
		.reth = {.length = (8 * TRAIN + 3) * MTU},
	};

	set_up(&p, TRAIN_BYTES, WINDOW);
	h.qpn = p.q.qp->qpn;
	h.reth.va = (uintptr_t)p.memory;
	h.reth.rkey = p.mr->rkey;
	vb_rc_on_request(p.q.qp, &h, NULL, 0, NULL);
	/* The FIRST, which is longer, and one of those behind it; then trains. */
	assert_true(vb_nic_run(p.fake.nic, 1000));
	assert_int_equal(p.fake.tx_count, 2 + 4 * TRAIN);
	assert_int_equal(p.fake.tx_headers.opcode,
			 vb_opcode(VB_TRANSPORT_RC, VB_OP_READ_RESPONSE_MIDDLE));
	assert_int_equal(p.fake.tx_headers.psn, h.psn + 2 + 4 * TRAIN - 1);
	/* The LAST, longer too, goes with the turn that ends before it. */
	assert_false(vb_nic_run(p.fake.nic, 1000));
	assert_int_equal(p.fake.tx_count, 2 + 8 * TRAIN + 1);
	assert_int_equal(p.fake.tx_headers.opcode,
			 vb_opcode(VB_TRANSPORT_RC, VB_OP_READ_RESPONSE_LAST));
	tear_down(&p);
}

/* A READ asks for what is answered so: 3 packets and whole trains. */
static void reads_ask_for_whole_trains(void **state)
{
	static const struct {
		uint32_t window, packets;
	} cases[] = {
		{WINDOW, 3 + 4 * TRAIN},     /* half the window */
		{4 * WINDOW, 3 + 8 * TRAIN}, /* a quarter of a large one */
		{200 * MTU, 3 + TRAIN},
		{100 * MTU, 50}, /* no train fits beside the three */
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct peer p;

		set_up(&p, TRAIN_BYTES, cases[i].window);
		post_read(&p, MESSAGE);
		while (p.fake.tx_count == 0)
			vb_nic_run(p.fake.nic, 1000);
		assert_int_equal(vb_read_chunk(p.q.qp), cases[i].packets);
		assert_int_equal(p.fake.tx_headers.reth.length % (cases[i].packets * MTU), 0);
		tear_down(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_turn_is_whole_trains),
		cmocka_unit_test(a_window_is_whole_trains),
		cmocka_unit_test(what_need_not_wait_does_not),
		cmocka_unit_test(every_room_is_used_without_trains),
		cmocka_unit_test(answers_are_whole_trains),
		cmocka_unit_test(reads_ask_for_whole_trains),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
