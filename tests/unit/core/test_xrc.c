/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_xrc.c - XRC (IBTA annex A14): domains and who keeps them, the numbers of their SRQs, and the
 * target's half of a connection, request by request.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/psn.h"
#include "fake_nic.h"

#define BYTES 8192u
#define PSN 0x123456u /* of fake_attr() */

struct fixture {
	struct fake fake;
	struct vb_pd *pd, *other_pd;
	struct vb_cq *cq[2];
	struct vb_xrcd *xrcd, *other_xrcd;
	struct vb_srq *srq[2], *stranger; /* two of the domain, one of the other */
	struct vb_qp *qp;
	struct vb_mr *mr, *other_mr;
	uint8_t memory[BYTES] __attribute__((aligned(8)));
	uint32_t psn;
};

static void set_up(struct fixture *x)
{
	struct vb_qp_init init = {.type = VB_QPT_XRC_RECV};

	memset(x, 0, sizeof(*x));
	fake_init(&x->fake);
	x->pd = vb_pd_create(x->fake.nic);
	x->other_pd = vb_pd_create(x->fake.nic);
	for (int i = 0; i < 2; i++)
		x->cq[i] = vb_cq_create(x->fake.nic, 8, NULL);
	x->xrcd = vb_xrcd_create(x->fake.nic);
	x->other_xrcd = vb_xrcd_create(x->fake.nic);
	x->srq[0] = vb_xrc_srq_create(x->pd, x->xrcd, x->cq[0], 4, 2, NULL);
	x->srq[1] = vb_xrc_srq_create(x->other_pd, x->xrcd, x->cq[1], 4, 2, NULL);
	x->stranger = vb_xrc_srq_create(x->pd, x->other_xrcd, x->cq[0], 4, 2, NULL);
	assert_non_null(x->srq[0]);
	assert_non_null(x->srq[1]);
	assert_non_null(x->stranger);
	x->mr = vb_mr_create(x->pd, x->memory, BYTES, 0x1000,
			     VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL);
	x->other_mr = vb_mr_create(x->other_pd, x->memory, BYTES, 0x1000,
				   VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL);
	init.xrcd = x->xrcd;
	x->qp = vb_qp_create(NULL, &init);
	assert_non_null(x->qp);
	fake_bring_to(x->qp, VB_QPS_RTR);
	x->psn = PSN;
}

static void tear_down(struct fixture *x)
{
	vb_qp_destroy(x->qp);
	for (int i = 0; i < 2; i++)
		assert_int_equal(vb_srq_destroy(x->srq[i]), 0);
	assert_int_equal(vb_srq_destroy(x->stranger), 0);
	vb_mr_destroy(x->mr);
	vb_mr_destroy(x->other_mr);
	assert_int_equal(vb_xrcd_destroy(x->xrcd), 0);
	assert_int_equal(vb_xrcd_destroy(x->other_xrcd), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(vb_cq_destroy(x->cq[i]), 0);
	assert_int_equal(vb_pd_destroy(x->pd), 0);
	assert_int_equal(vb_pd_destroy(x->other_pd), 0);
	fake_finish(&x->fake);
}

static void post_recv(struct fixture *x, int which, uint64_t wr_id, uint32_t length)
{
	const struct vb_mr *mr = which ? x->other_mr : x->mr;
	const struct vb_sge sge = {.addr = 0x1000, .length = length, .lkey = mr->lkey};
	const struct vb_recv_wr wr = {.wr_id = wr_id, .sges = &sge, .num_sge = 1};

	assert_int_equal(vb_srq_post(x->srq[which], &wr), 0);
}

/* The next request in order; the NIC runs as long as it has to behind it. */
static void request(struct fixture *x, struct vb_headers h, enum vb_operation operation,
		    uint32_t srqn, uint32_t bytes)
{
	uint8_t packet[VB_HEADERS_MAX + 4096];
	struct vb_rx rx = {.data = packet, .src = x->qp->path.dgid};
	int used;

	h.opcode = vb_opcode(VB_TRANSPORT_XRC, operation);
	h.pkey = VB_DEFAULT_PKEY;
	h.qpn = x->qp->qpn;
	h.psn = x->psn;
	h.srqn = srqn;
	h.ack_req = true;
	h.pad = (uint8_t)(-bytes & 3);
	used = vb_headers_encode(&h, packet, sizeof(packet));
	assert_true(used > 0);
	memset(packet + used, 0xa5, bytes + h.pad);
	rx.size = (size_t)used + bytes + h.pad;
	vb_nic_rx(x->fake.nic, &rx, 1);
	for (int i = 0; i < 8 && vb_nic_run(x->fake.nic, 1); i++)
		;
	x->psn = vb_psn_add(x->psn, 1);
}

static void send_only(struct fixture *x, uint32_t srqn, uint32_t bytes)
{
	request(x, (struct vb_headers){0}, VB_OP_SEND_ONLY, srqn, bytes);
}

static void assert_answered(const struct fixture *x, uint8_t syndrome)
{
	assert_int_equal(x->fake.tx_headers.opcode, vb_opcode(VB_TRANSPORT_XRC, VB_OP_ACK));
	assert_int_equal(x->fake.tx_headers.aeth.syndrome, syndrome);
	assert_int_equal(x->fake.tx_headers.qpn, 0x17); /* the initiator: fake_attr() */
}

static void assert_refused(struct fixture *x)
{
	assert_answered(x, vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_REMOTE_ACCESS));
	assert_int_equal(x->qp->state, VB_QPS_ERR);
	assert_int_equal(fake_count_events(&x->fake, VB_EVENT_QP_ACCESS_ERR), 1);
}

static void assert_received(struct fixture *x, int which, uint64_t wr_id, uint32_t bytes)
{
	struct vb_cqe cqe;

	assert_int_equal(vb_cq_poll(x->cq[which], &cqe, 1), 1);
	assert_int_equal(cqe.wr_id, wr_id);
	assert_int_equal(cqe.status, VB_WC_SUCCESS);
	assert_int_equal(cqe.byte_len, bytes);
	assert_int_equal(cqe.qpn, x->qp->qpn);
	assert_int_equal(cqe.src_qpn, 0x17);
}

/* --- objects ----------------------------------------------------------------------------- */

static void test_domain_is_kept_by_what_is_in_it(void **state)
{
	struct fixture x;

	set_up(&x);
	assert_int_equal(vb_xrcd_destroy(x.xrcd), -EBUSY);
	assert_int_equal(vb_xrcd_destroy(x.other_xrcd), -EBUSY);
	assert_int_equal(vb_cq_destroy(x.cq[1]), -EBUSY); /* by the SRQ alone */
	assert_int_equal(vb_pd_destroy(x.other_pd), -EBUSY);
	assert_int_equal(vb_xrcd_destroy(NULL), 0);
	tear_down(&x);
}

static void test_numbers(void **state)
{
	struct fixture x;
	uint32_t gone;

	set_up(&x);
	assert_int_not_equal(x.srq[0]->srqn, x.srq[1]->srqn);
	for (int i = 0; i < 2; i++) {
		assert_in_range(x.srq[i]->srqn, 0x18001, 0x1ffff);
		assert_ptr_equal(vb_xrc_find_srq(x.xrcd, x.srq[i]->srqn), x.srq[i]);
		assert_null(vb_xrc_find_srq(x.other_xrcd, x.srq[i]->srqn));
	}
	assert_null(vb_xrc_find_srq(x.xrcd, 0));
	assert_null(vb_xrc_find_srq(x.xrcd, 0xffffff));
	gone = x.srq[1]->srqn;
	assert_int_equal(vb_srq_destroy(x.srq[1]), 0);
	assert_null(vb_xrc_find_srq(x.xrcd, gone));
	x.srq[1] = vb_xrc_srq_create(x.other_pd, x.xrcd, x.cq[1], 4, 2, NULL);
	tear_down(&x);
}

static void test_what_each_half_needs(void **state)
{
	struct vb_qp_init good, init;
	struct vb_qp *qp;
	struct fixture x;

	set_up(&x);
	init = (struct vb_qp_init){.type = VB_QPT_XRC_RECV, .xrcd = x.xrcd};
	assert_null(vb_qp_create(x.pd, &init));
	init.send_cq = x.cq[0];
	assert_null(vb_qp_create(NULL, &init));
	init = (struct vb_qp_init){.type = VB_QPT_XRC_RECV};
	assert_null(vb_qp_create(NULL, &init));

	good = fake_qp_init(VB_QPT_XRC_SEND, x.cq[0]);
	init = good;
	init.send_cq = NULL;
	assert_null(vb_qp_create(x.pd, &init));
	init = good;
	init.xrcd = x.xrcd;
	assert_null(vb_qp_create(x.pd, &init));
	init = good;
	init.srq = x.srq[0];
	assert_null(vb_qp_create(x.pd, &init));
	init = good;
	init.recv_cq = NULL;
	qp = vb_qp_create(x.pd, &init);
	assert_non_null(qp);
	assert_int_equal(init.cap.max_recv_wr, 0);
	vb_qp_destroy(qp);
	tear_down(&x);
}

static void test_halves_post_nothing_of_the_other(void **state)
{
	const struct vb_send_wr send = {.opcode = VB_WR_SEND};
	const struct vb_recv_wr recv = {.wr_id = 1};
	struct fake_qp q;
	struct fixture x;

	set_up(&x);
	assert_int_equal(vb_qp_post_recv(x.qp, &recv), -EINVAL);
	fake_bring_to(x.qp, VB_QPS_ERR);
	assert_int_equal(vb_qp_post_send(x.qp, &send), -EINVAL);
	fake_qp_create(&x.fake, &q, VB_QPT_XRC_SEND, 8);
	fake_bring_to(q.qp, VB_QPS_RTS);
	assert_int_equal(vb_qp_post_recv(q.qp, &recv), -EINVAL);
	fake_qp_destroy(&q);
	tear_down(&x);
}

/* --- requests ---------------------------------------------------------------------------- */

static void test_each_srq_gets_its_own(void **state)
{
	struct fixture x;

	set_up(&x);
	post_recv(&x, 0, 10, 64);
	post_recv(&x, 1, 11, 64);
	send_only(&x, x.srq[1]->srqn, 8);
	assert_answered(&x, VB_AETH_ACK_NO_CREDIT);
	assert_received(&x, 1, 11, 8);
	send_only(&x, x.srq[0]->srqn, 9);
	assert_received(&x, 0, 10, 9);
	assert_int_equal(x.memory[8], 0xa5);
	tear_down(&x);
}

static void test_no_receive_request_in_this_srq(void **state)
{
	struct fixture x;

	set_up(&x);
	post_recv(&x, 0, 10, 64);
	send_only(&x, x.srq[1]->srqn, 8);
	assert_answered(&x, vb_aeth_syndrome(VB_AETH_RNR_NAK, 12)); /* fake_attr() */
	assert_int_equal(x.qp->state, VB_QPS_RTR);
	post_recv(&x, 1, 11, 64);
	x.psn = PSN;
	send_only(&x, x.srq[1]->srqn, 8);
	assert_received(&x, 1, 11, 8);
	tear_down(&x);
}

static void test_srq_of_another_domain(void **state)
{
	struct fixture x;

	set_up(&x);
	send_only(&x, x.stranger->srqn, 8);
	assert_refused(&x);
	assert_int_equal(x.qp->reason.check, VB_CHECK_XRC_SRQ);
	assert_int_equal(x.qp->reason.value[0], x.stranger->srqn);
	tear_down(&x);
}

static void test_srq_that_does_not_exist(void **state)
{
	struct fixture x;

	set_up(&x);
	post_recv(&x, 0, 10, 64);
	send_only(&x, 0x800000, 8);
	assert_refused(&x);
	assert_int_equal(vb_cq_count(x.cq[0]), 0);
	tear_down(&x);
}

/* A message is for one SRQ from its first packet to its last. */
static void test_srq_changes_within_a_message(void **state)
{
	struct vb_cqe cqe;
	struct fixture x;

	set_up(&x);
	post_recv(&x, 0, 10, 4096);
	post_recv(&x, 1, 11, 4096);
	request(&x, (struct vb_headers){0}, VB_OP_SEND_FIRST, x.srq[0]->srqn, 1024);
	request(&x, (struct vb_headers){0}, VB_OP_SEND_LAST, x.srq[1]->srqn, 8);
	assert_refused(&x);
	assert_int_equal(vb_cq_poll(x.cq[0], &cqe, 1), 1);
	assert_int_equal(cqe.status, VB_WC_WR_FLUSH_ERR);
	assert_int_equal(vb_cq_count(x.cq[1]), 0);
	tear_down(&x);
}

static void test_srq_goes_within_a_message(void **state)
{
	struct fixture x;
	uint32_t srqn;

	set_up(&x);
	post_recv(&x, 1, 11, 4096);
	srqn = x.srq[1]->srqn;
	request(&x, (struct vb_headers){0}, VB_OP_SEND_FIRST, srqn, 1024);
	assert_int_equal(vb_srq_destroy(x.srq[1]), 0);
	request(&x, (struct vb_headers){0}, VB_OP_SEND_LAST, srqn, 8);
	assert_refused(&x);
	assert_int_equal(vb_cq_count(x.cq[1]), 0);
	x.srq[1] = vb_xrc_srq_create(x.other_pd, x.xrcd, x.cq[1], 4, 2, NULL);
	tear_down(&x);
}

/* Keys are judged in the PD of the SRQ that the request names, whatever it does with it. */
static void test_keys_are_the_srqs(void **state)
{
	struct fixture x;
	struct vb_headers h;

	set_up(&x);
	h = (struct vb_headers){.reth = {0x1000, x.other_mr->rkey, 8}};
	request(&x, h, VB_OP_WRITE_ONLY, x.srq[1]->srqn, 8);
	assert_answered(&x, VB_AETH_ACK_NO_CREDIT);
	assert_int_equal(x.memory[7], 0xa5);
	request(&x, h, VB_OP_READ_REQUEST, x.srq[1]->srqn, 0);
	assert_int_equal(x.fake.tx_headers.opcode,
			 vb_opcode(VB_TRANSPORT_XRC, VB_OP_READ_RESPONSE_ONLY));
	assert_int_equal(x.fake.tx_payload[7], 0xa5);
	request(&x, h, VB_OP_WRITE_ONLY, x.srq[0]->srqn, 8);
	assert_refused(&x);
	assert_int_equal(x.qp->reason.check, VB_CHECK_RKEY_PD);
	tear_down(&x);
}

/* A READ is repeated after its SRQ went: there is no PD to judge it in any more. */
static void test_read_again_without_its_srq(void **state)
{
	struct fixture x;
	struct vb_headers h;
	uint32_t srqn;

	set_up(&x);
	srqn = x.srq[1]->srqn;
	h = (struct vb_headers){.reth = {0x1000, x.other_mr->rkey, 8}};
	request(&x, h, VB_OP_READ_REQUEST, srqn, 0);
	assert_int_equal(vb_srq_destroy(x.srq[1]), 0);
	x.psn = PSN;
	request(&x, h, VB_OP_READ_REQUEST, srqn, 0);
	assert_refused(&x);
	x.srq[1] = vb_xrc_srq_create(x.other_pd, x.xrcd, x.cq[1], 4, 2, NULL);
	tear_down(&x);
}

static void test_completions_outlive_the_queue_pair(void **state)
{
	struct fixture x;
	struct vb_cqe cqe;

	set_up(&x);
	post_recv(&x, 0, 10, 64);
	send_only(&x, x.srq[0]->srqn, 8);
	vb_qp_destroy(x.qp);
	x.qp = NULL;
	assert_int_equal(vb_cq_poll(x.cq[0], &cqe, 1), 1);
	assert_int_equal(cqe.wr_id, 10);
	assert_null(cqe.qp);
	tear_down(&x);
}

/* What the SRQ's CQ has no room for is lost; the queue pair that lost it cannot go on. */
static void test_cq_overrun(void **state)
{
	struct fixture x;

	set_up(&x);
	assert_int_equal(vb_cq_resize(x.cq[0], 1), 0);
	for (uint64_t i = 0; i < 2; i++) {
		post_recv(&x, 0, i, 64);
		send_only(&x, x.srq[0]->srqn, 8);
	}
	assert_int_equal(x.qp->state, VB_QPS_ERR);
	assert_int_equal(fake_count_events(&x.fake, VB_EVENT_CQ_ERR), 1);
	tear_down(&x);
}

/* Requests go to the target and responses to the initiator; and RC's are neither's. */
static void test_wrong_direction(void **state)
{
	struct fake_qp q;
	struct fixture x;
	uint64_t before;

	set_up(&x);
	before = x.fake.nic->counters.rx_wrong_transport;
	request(&x, (struct vb_headers){0}, VB_OP_ACK, 0, 0);
	assert_int_equal(x.fake.nic->counters.rx_wrong_transport, before + 1);
	fake_qp_create(&x.fake, &q, VB_QPT_XRC_SEND, 8);
	fake_bring_to(q.qp, VB_QPS_RTS);
	x.psn = PSN;
	{
		struct vb_qp *target = x.qp;

		x.qp = q.qp;
		send_only(&x, x.srq[0]->srqn, 8);
		x.qp = target;
	}
	assert_int_equal(x.fake.nic->counters.rx_wrong_transport, before + 2);
	fake_ack(&x.fake, q.qp, 0); /* RC's ACK */
	assert_int_equal(x.fake.nic->counters.rx_wrong_transport, before + 3);
	assert_int_equal(x.fake.tx_count, 0);
	fake_qp_destroy(&q);
	tear_down(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_domain_is_kept_by_what_is_in_it),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_what_each_half_needs),
		cmocka_unit_test(test_halves_post_nothing_of_the_other),
		cmocka_unit_test(test_each_srq_gets_its_own),
		cmocka_unit_test(test_no_receive_request_in_this_srq),
		cmocka_unit_test(test_srq_of_another_domain),
		cmocka_unit_test(test_srq_that_does_not_exist),
		cmocka_unit_test(test_srq_changes_within_a_message),
		cmocka_unit_test(test_srq_goes_within_a_message),
		cmocka_unit_test(test_keys_are_the_srqs),
		cmocka_unit_test(test_read_again_without_its_srq),
		cmocka_unit_test(test_completions_outlive_the_queue_pair),
		cmocka_unit_test(test_cq_overrun),
		cmocka_unit_test(test_wrong_direction),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
