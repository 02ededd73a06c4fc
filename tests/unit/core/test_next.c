/* SPDX-License-Identifier: BSD-2-Clause */
/* test_next.c - what the NIC says of a packet that may have overtaken another: whether it is the
 * next of its queue pair (vb_nic_is_next()). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/psn.h"
#include "fake_nic.h"

#define RQ_PSN 0x123456u /* of fake_attr() */
#define SQ_PSN 0x654321u

static bool is_next(const struct fake *f, enum vb_transport transport, enum vb_operation operation,
		    uint32_t qpn, uint32_t psn)
{
	const struct vb_headers h = {.opcode = vb_opcode(transport, operation),
				     .pkey = VB_DEFAULT_PKEY,
				     .qpn = qpn,
				     .psn = psn & VB_PSN_MASK};
	uint8_t packet[VB_HEADERS_MAX];

	assert_true(vb_headers_encode(&h, packet, sizeof(packet)) > 0);
	return vb_nic_is_next(f->nic, packet);
}

static void a_request_is_when_expected(void **state)
{
	static const enum vb_qp_type types[] = {VB_QPT_RC, VB_QPT_UC};
	static const enum vb_transport transports[] = {VB_TRANSPORT_RC, VB_TRANSPORT_UC};
	struct fake f;
	struct fake_qp q;

	for (int i = 0; i < 2; i++) {
		fake_init(&f);
		fake_qp_create(&f, &q, types[i], 4);
		fake_bring_to(q.qp, VB_QPS_RTS);
		assert_true(is_next(&f, transports[i], VB_OP_SEND_ONLY, q.qp->qpn, RQ_PSN));
		assert_false(is_next(&f, transports[i], VB_OP_SEND_ONLY, q.qp->qpn, RQ_PSN + 1));
		assert_false(is_next(&f, transports[i], VB_OP_SEND_ONLY, q.qp->qpn, RQ_PSN + 1000));
		/* repeated: it waits for nothing */
		assert_true(is_next(&f, transports[i], VB_OP_SEND_ONLY, q.qp->qpn, RQ_PSN - 1));
		fake_qp_destroy(&q);
		fake_finish(&f);
	}
}

static void what_has_no_order_always_is(void **state)
{
	struct fake f;
	struct fake_qp q;

	fake_init(&f);
	fake_qp_create(&f, &q, VB_QPT_UD, 4);
	fake_bring_to(q.qp, VB_QPS_RTS);
	assert_true(is_next(&f, VB_TRANSPORT_UD, VB_OP_SEND_ONLY, q.qp->qpn, 77));
	assert_true(is_next(&f, VB_TRANSPORT_RC, VB_OP_SEND_ONLY, q.qp->qpn ^ 1, 77));
	fake_qp_destroy(&q);
	fake_finish(&f);
}

/* An acknowledgement that overtakes the answer to a READ would have it READ again. */
static void an_acknowledgement_waits_for_answers(void **state)
{
	static uint8_t memory[64];
	struct vb_send_wr wr = {.opcode = VB_WR_RDMA_READ, .num_sge = 1, .remote_addr = 64};
	struct vb_sge sge = {(uintptr_t)memory, sizeof(memory), 0};
	struct fake f;
	struct fake_qp q;
	struct vb_mr *mr;

	fake_init(&f);
	fake_qp_create(&f, &q, VB_QPT_RC, 4);
	fake_bring_to(q.qp, VB_QPS_RTS);
	mr = vb_mr_create(q.pd, memory, sizeof(memory), (uintptr_t)memory, VB_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	sge.lkey = mr->lkey;
	wr.sges = &sge;
	assert_true(is_next(&f, VB_TRANSPORT_RC, VB_OP_ACK, q.qp->qpn, SQ_PSN + 5));
	assert_int_equal(vb_qp_post_send(q.qp, &wr), 0);
	while (vb_nic_run(f.nic, 1000))
		;
	assert_int_equal(q.qp->req.rd_outstanding, 1);
	assert_true(is_next(&f, VB_TRANSPORT_RC, VB_OP_READ_RESPONSE_ONLY, q.qp->qpn, SQ_PSN));
	assert_false(is_next(&f, VB_TRANSPORT_RC, VB_OP_ACK, q.qp->qpn, SQ_PSN + 1));
	assert_true(is_next(&f, VB_TRANSPORT_RC, VB_OP_ACK, q.qp->qpn, SQ_PSN - 1));
	vb_mr_destroy(mr);
	fake_qp_destroy(&q);
	fake_finish(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_is_when_expected),
		cmocka_unit_test(what_has_no_order_always_is),
		cmocka_unit_test(an_acknowledgement_waits_for_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
