/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_window.c - how much a reliable connection has under way: 512 KiB where several want it, the
 * path's whole window for one at a time, and not after a loss.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "base/psn.h"
#include "fake_nic.h"

#define MTU 1024u
#define WIDE (2048u << 10)
#define SHARED (512u << 10)
#define MESSAGE (16u << 20)
#define MILLISECOND 1000000u
#define TRAIN_BYTES 65000u
#define TRAIN 62u /* packets of it, and their headers, in 64 KiB */
#define QPS 2

struct peer {
	struct fake fake;
	struct fake_qp q[QPS];
	struct vb_mr *mr[QPS];
	uint8_t *memory;
	uint64_t now;
};

static void set_up(struct peer *p, uint32_t window, uint32_t train)
{
	*p = (struct peer){.now = MILLISECOND, .memory = calloc(1, MESSAGE)};
	assert_non_null(p->memory);
	fake_init(&p->fake);
	p->fake.window = window;
	p->fake.train = train;
	for (int i = 0; i < QPS; i++) {
		fake_qp_create(&p->fake, &p->q[i], VB_QPT_RC, 1024);
		fake_bring_to(p->q[i].qp, VB_QPS_RTS);
		p->mr[i] = vb_mr_create(p->q[i].pd, p->memory, MESSAGE, (uintptr_t)p->memory,
					VB_ACCESS_LOCAL_WRITE);
		assert_non_null(p->mr[i]);
	}
}

static void tear_down(struct peer *p)
{
	for (int i = 0; i < QPS; i++) {
		vb_mr_destroy(p->mr[i]);
		fake_qp_destroy(&p->q[i]);
	}
	fake_finish(&p->fake);
	free(p->memory);
}

/* Keeps the send queue full, and the completion queue empty. */
static void fill(struct peer *p, int i)
{
	const struct vb_sge sge = {(uintptr_t)p->memory, MESSAGE, p->mr[i]->lkey};
	const struct vb_send_wr wr = {
		.sges = &sge, .num_sge = 1, .opcode = VB_WR_SEND, .flags = VB_SEND_SIGNALED};
	struct vb_cqe cqe[16];
	int n;

	while ((n = vb_cq_poll(p->q[i].cq, cqe, 16)) > 0)
		for (int k = 0; k < n; k++)
			assert_int_equal(cqe[k].status, VB_WC_SUCCESS);
	while (vb_qp_post_send(p->q[i].qp, &wr) == 0)
		;
}

static uint32_t in_flight(const struct peer *p, int i)
{
	const struct vb_requester *req = &p->q[i].qp->req;

	return vb_psn_diff(req->nxt_psn, req->una_psn) & VB_PSN_MASK;
}

static void run(struct peer *p)
{
	while (vb_nic_run(p->fake.nic, p->now))
		;
}

/* A round trip in which the first count queue pairs send what they may, and a quarter of what is
 * under way is acknowledged to each. */
static void round_trip(struct peer *p, int count)
{
	for (int i = 0; i < count; i++)
		fill(p, i);
	run(p);
	p->now += MILLISECOND / 10;
	for (int i = 0; i < count; i++)
		fake_ack(&p->fake, p->q[i].qp,
			 vb_psn_add(p->q[i].qp->req.una_psn, in_flight(p, i) / 4));
	run(p);
}

static void one_has_all_of_it(void **state)
{
	struct peer p;

	set_up(&p, WIDE, 0);
	fill(&p, 0);
	run(&p);
	assert_int_equal(in_flight(&p, 0), SHARED / MTU);
	for (unsigned int i = 0; i < 100; i++) {
		round_trip(&p, 1);
		assert_true(in_flight(&p, 0) <= WIDE / MTU);
	}
	assert_int_equal(in_flight(&p, 0), WIDE / MTU);
	tear_down(&p);
}

/* The peer's buffer has room for one such window, and not for one of each. */
static void of_several_one_has_it(void **state)
{
	struct peer p;
	uint32_t most = 0, least;

	set_up(&p, WIDE, 0);
	for (unsigned int i = 0; i < 100; i++) {
		round_trip(&p, 2);
		assert_true(in_flight(&p, 0) + in_flight(&p, 1) <= (WIDE + SHARED) / MTU);
	}
	most = VB_MAX(in_flight(&p, 0), in_flight(&p, 1));
	least = VB_MIN(in_flight(&p, 0), in_flight(&p, 1));
	assert_int_equal(most, WIDE / MTU);
	assert_int_equal(least, SHARED / MTU);
	tear_down(&p);
}

static void a_small_path_stays_small(void **state)
{
	struct peer p;

	set_up(&p, SHARED / 2, 0);
	for (unsigned int i = 0; i < 100; i++) {
		round_trip(&p, 1);
		assert_true(in_flight(&p, 0) <= SHARED / 2 / MTU);
	}
	tear_down(&p);
}

static void sequence_nak(struct peer *p)
{
	const struct vb_qp *qp = p->q[0].qp;
	const struct vb_headers h = {
		.opcode = vb_opcode(VB_TRANSPORT_RC, VB_OP_ACK),
		.pkey = VB_DEFAULT_PKEY,
		.qpn = qp->qpn,
		.psn = qp->req.una_psn,
		.aeth = {.syndrome = vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_PSN_SEQUENCE)},
	};
	uint8_t packet[VB_HEADERS_MAX];
	const int bytes = vb_headers_encode(&h, packet, sizeof(packet));
	const struct vb_rx rx = {.data = packet, .size = (size_t)bytes, .src = qp->path.dgid};

	vb_nic_rx(p->fake.nic, &rx, p->now);
}

/* What was lost was probably too much for somebody's buffer: 65,536 packets later it is tried
 * again. */
static void a_loss_makes_it_narrow(void **state)
{
	uint32_t acknowledged = 0;
	struct peer p;

	set_up(&p, WIDE, 0);
	for (unsigned int i = 0; i < 100; i++)
		round_trip(&p, 1);
	assert_true(in_flight(&p, 0) > SHARED / MTU);
	sequence_nak(&p);
	while (acknowledged < 65000) {
		const uint32_t una = p.q[0].qp->req.una_psn;

		round_trip(&p, 1);
		acknowledged += (p.q[0].qp->req.una_psn - una) & VB_PSN_MASK;
		assert_true(in_flight(&p, 0) <= WIDE / 2 / MTU);
		if (acknowledged > 8192)
			assert_int_equal(in_flight(&p, 0), SHARED / MTU);
	}
	for (unsigned int i = 0; i < 100; i++)
		round_trip(&p, 1);
	assert_int_equal(in_flight(&p, 0), WIDE / MTU);
	tear_down(&p);
}

/* Who loses the wide window with so much under way that the narrow one has no room for a train, and
 * of which nothing asks for an acknowledgement, would hear of its peer no more. */
static void who_loses_it_goes_on(void **state)
{
	struct peer p;
	struct vb_requester *req;
	uint32_t tail;

	set_up(&p, WIDE, TRAIN_BYTES);
	req = &p.q[0].qp->req;
	for (unsigned int i = 0; i < 100; i++)
		round_trip(&p, 1);
	/* Until the narrow window has no room for a train behind what asked last. */
	for (unsigned int i = 0; i < 20 && req->since_ack_req <= SHARED / MTU - TRAIN; i++) {
		fake_ack(&p.fake, p.q[0].qp, vb_psn_add(req->una_psn, TRAIN - 1));
		run(&p);
	}
	assert_in_range(req->since_ack_req, SHARED / MTU - TRAIN + 1, SHARED / MTU - 1);
	/* Silent for longer than it keeps it; the other one takes it. */
	p.now += 5 * MILLISECOND;
	for (unsigned int i = 0; i < 4; i++) {
		fill(&p, 1);
		run(&p);
		fake_ack(&p.fake, p.q[1].qp, vb_psn_add(p.q[1].qp->req.una_psn, 64));
	}
	fake_ack(&p.fake, p.q[0].qp, vb_psn_add(req->nxt_psn, -1 - (int)req->since_ack_req));
	tail = req->since_ack_req;
	run(&p);
	assert_true(in_flight(&p, 0) > tail || in_flight(&p, 0) == 0);
	assert_true(in_flight(&p, 0) > req->since_ack_req || in_flight(&p, 0) == 0);
	tear_down(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_has_all_of_it),
		cmocka_unit_test(of_several_one_has_it),
		cmocka_unit_test(a_small_path_stays_small),
		cmocka_unit_test(a_loss_makes_it_narrow),
		cmocka_unit_test(who_loses_it_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
