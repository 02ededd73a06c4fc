/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_answers.c - in which order a reliable queue pair says what it has to say: an acknowledgement
 * goes behind the short message that a program posts in answer, and before everything else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/transport.h"
#include "fake_nic.h"

static const struct vb_headers empty_send = {
	.psn = 0x123456, /* as fake_attr() has it */
	.ack_req = true,
};

struct peer {
	struct fake fake;
	struct fake_qp q;
};

/* A queue pair that owes the acknowledgement of a message. */
static void set_up(struct peer *p)
{
	const struct vb_recv_wr receive = {.wr_id = 1};
	struct vb_headers h = empty_send;

	fake_init(&p->fake);
	fake_qp_create(&p->fake, &p->q, VB_QPT_RC, 64);
	fake_bring_to(p->q.qp, VB_QPS_RTS);
	assert_int_equal(vb_qp_post_recv(p->q.qp, &receive), 0);
	h.opcode = vb_opcode(VB_TRANSPORT_RC, VB_OP_SEND_ONLY);
	h.qpn = p->q.qp->qpn;
	vb_rc_on_request(p->q.qp, &h, NULL, 0, NULL);
	assert_int_equal(p->fake.tx_count, 0);
}

static void tear_down(struct peer *p)
{
	fake_qp_destroy(&p->q);
	fake_finish(&p->fake);
}

static void post(struct peer *p, enum vb_wr_opcode opcode)
{
	const struct vb_send_wr wr = {.wr_id = 2, .opcode = opcode, .flags = VB_SEND_SIGNALED};

	assert_int_equal(vb_qp_post_send(p->q.qp, &wr), 0);
}

static enum vb_operation last_of(struct peer *p, unsigned int packets)
{
	vb_nic_run(p->fake.nic, 1000);
	assert_int_equal(p->fake.tx_count, packets);
	return vb_opcode_operation(p->fake.tx_headers.opcode);
}

static void behind_a_short_message(void **state)
{
	struct peer p;

	set_up(&p);
	post(&p, VB_WR_SEND);
	assert_int_equal(last_of(&p, 2), VB_OP_ACK);
	assert_int_equal(p.fake.tx_headers.psn, 0x123456);
	tear_down(&p);
}

/* The peer refuses some of these with the end of its queue pair, and must have heard before that
 * its own message arrived. */
static void before_what_asks_for_an_answer(void **state)
{
	struct peer p;

	set_up(&p);
	post(&p, VB_WR_RDMA_READ);
	assert_int_equal(last_of(&p, 2), VB_OP_READ_REQUEST);
	tear_down(&p);
}

static void before_a_stream(void **state)
{
	struct peer p;

	set_up(&p);
	post(&p, VB_WR_SEND);
	post(&p, VB_WR_SEND);
	assert_int_equal(last_of(&p, 3), VB_OP_SEND_ONLY);
	tear_down(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(behind_a_short_message),
		cmocka_unit_test(before_what_asks_for_an_answer),
		cmocka_unit_test(before_a_stream),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
