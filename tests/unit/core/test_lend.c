/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_lend.c - a receiver of lent SENDs: what it fetches counts as the packets that it stands for;
 * what it cannot fetch it asks for again, and keeps the receive request that it took for it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/transport.h"
#include "fake_nic.h"

#define MTU 1024u
#define BYTES (3 * MTU)
#define FIRST_PSN 0x123456u /* as fake_attr() has it */

static uint8_t pattern[BYTES], memory[BYTES];

struct receiver {
	struct fake fake;
	struct fake_qp q;
	struct vb_mr *mr;
};

static int fetch(void *env, const struct vb_qp *qp, const struct vb_lent *lent,
		 const struct iovec *to, int parts)
{
	assert_int_equal(parts, 1);
	assert_ptr_equal(to->iov_base, memory);
	assert_int_equal(to->iov_len, BYTES);
	memcpy(to->iov_base, pattern, BYTES);
	return 0;
}

static int refuse(void *env, const struct vb_qp *qp, const struct vb_lent *lent,
		  const struct iovec *to, int parts)
{
	return -EPERM;
}

static void set_up(struct receiver *r,
		   int (*how)(void *env, const struct vb_qp *qp, const struct vb_lent *lent,
			      const struct iovec *to, int parts))
{
	*r = (struct receiver){0};
	for (uint32_t i = 0; i < BYTES; i++)
		pattern[i] = (uint8_t)(i * 7 + i / MTU);
	memset(memory, 0, sizeof(memory));
	fake_init(&r->fake);
	r->fake.nic->ops.fetch = how;
	fake_qp_create(&r->fake, &r->q, VB_QPT_RC, 64);
	fake_bring_to(r->q.qp, VB_QPS_RTS);
	r->mr = vb_mr_create(r->q.pd, memory, BYTES, (uintptr_t)memory, VB_ACCESS_LOCAL_WRITE);
	assert_non_null(r->mr);

	const struct vb_sge sge = {(uintptr_t)memory, BYTES, r->mr->lkey};
	const struct vb_recv_wr wr = {.wr_id = 9, .sges = &sge, .num_sge = 1};

	assert_int_equal(vb_qp_post_recv(r->q.qp, &wr), 0);
}

static void tear_down(struct receiver *r)
{
	vb_mr_destroy(r->mr);
	fake_qp_destroy(&r->q);
	fake_finish(&r->fake);
}

/* A packet arrives; the payload is in it, or lent. */
static void receive(struct receiver *r, enum vb_operation operation, uint32_t psn, bool is_lent)
{
	const struct vb_headers h = {
		.opcode = vb_opcode(VB_TRANSPORT_RC, operation),
		.pkey = VB_DEFAULT_PKEY,
		.qpn = r->q.qp->qpn,
		.psn = FIRST_PSN + psn,
		.ack_req = true,
	};
	const struct vb_lent_part part = {.va = 0x1000, .rkey = 0x77, .length = BYTES};
	const struct vb_lent lent = {.bytes = BYTES, .count = 1, .parts = &part};
	uint8_t packet[VB_HEADERS_MAX + MTU];
	int n = vb_headers_encode(&h, packet, sizeof(packet));

	assert_true(n > 0);
	memcpy(packet + n, pattern + (size_t)psn * MTU, MTU);

	const struct vb_rx rx = {
		.data = packet,
		.size = (size_t)n + (is_lent ? 0 : MTU),
		.lent = is_lent ? &lent : NULL,
		.src = r->q.qp->path.dgid,
	};

	vb_nic_rx(r->fake.nic, &rx, 1000);
	while (vb_nic_run(r->fake.nic, 1000))
		;
	vb_qp_check(r->q.qp);
}

static void has_message(struct receiver *r)
{
	struct vb_cqe cqe;

	assert_int_equal(vb_cq_poll(r->q.cq, &cqe, 1), 1);
	assert_int_equal(cqe.status, VB_WC_SUCCESS);
	assert_int_equal(cqe.wr_id, 9);
	assert_int_equal(cqe.byte_len, BYTES);
	assert_memory_equal(memory, pattern, BYTES);
}

static void is_acknowledged(const struct receiver *r)
{
	assert_int_equal(r->fake.tx_headers.aeth.syndrome, VB_AETH_ACK_NO_CREDIT);
	assert_int_equal(r->fake.tx_headers.psn, FIRST_PSN + 2);
	assert_int_equal(r->q.qp->resp.epsn, FIRST_PSN + 3);
}

static void is_asked_for_again(const struct receiver *r)
{
	assert_int_equal(r->fake.tx_headers.aeth.syndrome,
			 vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_PSN_SEQUENCE));
	assert_int_equal(r->fake.tx_headers.psn, FIRST_PSN);
	assert_int_equal(r->q.qp->resp.epsn, FIRST_PSN);
}

static void fetched(void **state)
{
	struct receiver r;

	set_up(&r, fetch);
	receive(&r, VB_OP_SEND_ONLY, 0, true);
	is_acknowledged(&r);
	has_message(&r);
	tear_down(&r);
}

static void refused_and_sent_again(void **state)
{
	struct receiver r;

	set_up(&r, refuse);
	receive(&r, VB_OP_SEND_ONLY, 0, true);
	is_asked_for_again(&r);
	assert_int_equal(vb_cq_poll(r.q.cq, &(struct vb_cqe){0}, 1), 0);
	receive(&r, VB_OP_SEND_FIRST, 0, false);
	receive(&r, VB_OP_SEND_MIDDLE, 1, false);
	receive(&r, VB_OP_SEND_LAST, 2, false);
	is_acknowledged(&r);
	has_message(&r);
	tear_down(&r);
}

/* IBTA 10.3.1: what was posted completes, flushed. */
static void refused_and_given_up(void **state)
{
	struct receiver r;
	struct vb_cqe cqe;

	set_up(&r, refuse);
	receive(&r, VB_OP_SEND_ONLY, 0, true);
	is_asked_for_again(&r);
	fake_bring_to(r.q.qp, VB_QPS_ERR);
	assert_int_equal(vb_cq_poll(r.q.cq, &cqe, 1), 1);
	assert_int_equal(cqe.status, VB_WC_WR_FLUSH_ERR);
	assert_int_equal(cqe.wr_id, 9);
	assert_int_equal(vb_cq_poll(r.q.cq, &cqe, 1), 0);
	tear_down(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fetched),
		cmocka_unit_test(refused_and_sent_again),
		cmocka_unit_test(refused_and_given_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
