/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_demand.c - regions on demand whose memory goes between the look at it and the copy: the
 * surroundings say that it is there, and then that it is not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/psn.h"
#include "core/demand.h"
#include "fake_nic.h"

#define BYTES 4096u
#define IOVA 0x1000u
#define RQ_PSN 0x123456u /* of fake_attr() */
#define SQ_PSN 0x654321u
#define NOTHING ((uint8_t *)16) /* to touch it ends the test */

/* The one bench under test: the NIC's environment is the fake. */
static struct bench {
	struct fake fake;
	struct fake_qp q;
	struct vb_mr *mr;
	unsigned int copies, atomics, left; /* left: copies that succeed */
	uint8_t memory[BYTES];
	bool write;
} x;

static bool present(void *env, const void *at, uint64_t length, bool write)
{
	return true;
}

/* Region addresses are NOTHING + offset; what is there lies in x.memory. */
static bool copy(void *env, bool write, void *region, void *ours, uint32_t length)
{
	const uintptr_t offset = (uintptr_t)region - (uintptr_t)NOTHING;

	x.copies++;
	x.write = write;
	assert_true(offset + length <= BYTES);
	if (x.left == 0)
		return false;
	x.left--;
	if (write)
		memcpy(x.memory + offset, ours, length);
	else
		memcpy(ours, x.memory + offset, length);
	return true;
}

static bool atomic(void *env, uint64_t *word, const struct vb_atomic *op, uint64_t *before)
{
	uint64_t *at = (uint64_t *)(void *)(x.memory + ((uintptr_t)word - (uintptr_t)NOTHING));

	x.atomics++;
	if (x.left == 0)
		return false;
	*before = vb_atomic_do(at, op);
	return true;
}

static void set_up(enum vb_qp_type type, unsigned int left)
{
	memset(&x, 0, sizeof(x));
	x.left = left;
	fake_init(&x.fake);
	x.fake.nic->ops.present = present;
	x.fake.nic->ops.copy = copy;
	x.fake.nic->ops.atomic = atomic;
	fake_qp_create(&x.fake, &x.q, type, 64);
	fake_bring_to(x.q.qp, VB_QPS_RTS);
	x.q.qp->attr.access_flags = VB_ACCESS_REMOTE_ALL;
	x.mr = vb_mr_create(x.q.pd, NOTHING, BYTES, IOVA,
			    VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL | VB_ACCESS_ON_DEMAND);
	assert_non_null(x.mr);
}

static void tear_down(void)
{
	assert_int_equal(vb_mr_destroy(x.mr), 0);
	fake_qp_destroy(&x.q);
	fake_finish(&x.fake);
}

static void receive(struct vb_headers h, enum vb_transport transport, enum vb_operation operation,
		    uint32_t psn, uint32_t bytes)
{
	uint8_t packet[VB_HEADERS_MAX + BYTES];
	struct vb_rx rx = {.data = packet, .src = x.q.qp->path.dgid};
	int used;

	h.opcode = vb_opcode(transport, operation);
	h.pkey = VB_DEFAULT_PKEY;
	h.qpn = x.q.qp->qpn;
	h.psn = psn;
	h.ack_req = true;
	used = vb_headers_encode(&h, packet, sizeof(packet));
	assert_true(used > 0);
	memset(packet + used, 0xa5, bytes);
	rx.size = (size_t)used + bytes;
	vb_nic_rx(x.fake.nic, &rx, 1);
	for (int i = 0; i < 8 && vb_nic_run(x.fake.nic, 1); i++)
		;
}

static void expect_nak(enum vb_nak_code code, enum vb_check check)
{
	assert_int_equal(x.fake.tx_headers.aeth.syndrome, vb_aeth_syndrome(VB_AETH_NAK, code));
	assert_int_equal(x.q.qp->state, VB_QPS_ERR);
	assert_int_equal(x.q.qp->reason.check, check);
}

static struct vb_headers to_region(void)
{
	return (struct vb_headers){.reth = {IOVA + 8, x.mr->rkey, 256},
				   .atomic = {IOVA + 8, x.mr->rkey, 5, 0}};
}

static void a_write_that_finds_nothing(void **state)
{
	set_up(VB_QPT_RC, 0);
	receive(to_region(), VB_TRANSPORT_RC, VB_OP_WRITE_ONLY, RQ_PSN, 256);
	assert_int_equal(x.copies, 1);
	assert_true(x.write);
	expect_nak(VB_NAK_REMOTE_ACCESS, VB_CHECK_RKEY_ABSENT);
	assert_int_equal(fake_count_events(&x.fake, VB_EVENT_QP_ACCESS_ERR), 1);
	tear_down();

	set_up(VB_QPT_RC, 1);
	receive(to_region(), VB_TRANSPORT_RC, VB_OP_WRITE_ONLY, RQ_PSN, 256);
	assert_int_equal(x.fake.tx_headers.aeth.syndrome, VB_AETH_ACK_NO_CREDIT);
	for (uint32_t i = 0; i < BYTES; i++)
		assert_int_equal(x.memory[i], i >= 8 && i < 264 ? 0xa5 : 0);
	tear_down();
}

/* In the middle of a message: what came before it is there. */
static void a_message_that_finds_half(void **state)
{
	struct vb_headers h;

	set_up(VB_QPT_RC, 1);
	h = to_region();
	h.reth.length = 1024 + 256;
	receive(h, VB_TRANSPORT_RC, VB_OP_WRITE_FIRST, RQ_PSN, 1024);
	assert_int_equal(x.q.qp->state, VB_QPS_RTS);
	receive(h, VB_TRANSPORT_RC, VB_OP_WRITE_LAST, vb_psn_add(RQ_PSN, 1), 256);
	expect_nak(VB_NAK_REMOTE_ACCESS, VB_CHECK_RKEY_ABSENT);
	assert_int_equal(x.fake.tx_headers.psn, vb_psn_add(RQ_PSN, 1));
	assert_int_equal(x.memory[8 + 1023], 0xa5);
	assert_int_equal(x.memory[8 + 1024], 0);
	tear_down();
}

static void a_read_that_finds_nothing(void **state)
{
	set_up(VB_QPT_RC, 0);
	receive(to_region(), VB_TRANSPORT_RC, VB_OP_READ_REQUEST, RQ_PSN, 0);
	assert_int_equal(x.copies, 1);
	assert_false(x.write);
	expect_nak(VB_NAK_REMOTE_ACCESS, VB_CHECK_RKEY_ABSENT);
	tear_down();

	set_up(VB_QPT_RC, 1);
	memset(x.memory + 8, 0x5c, 256);
	receive(to_region(), VB_TRANSPORT_RC, VB_OP_READ_REQUEST, RQ_PSN, 0);
	assert_int_equal(x.fake.tx_bytes, 256);
	assert_memory_equal(x.fake.tx_payload, x.memory + 8, 256);
	tear_down();
}

static void an_atomic_that_finds_nothing(void **state)
{
	set_up(VB_QPT_RC, 0);
	receive(to_region(), VB_TRANSPORT_RC, VB_OP_FETCH_ADD, RQ_PSN, 0);
	assert_int_equal(x.atomics, 1);
	expect_nak(VB_NAK_REMOTE_ACCESS, VB_CHECK_RKEY_ABSENT);
	tear_down();

	set_up(VB_QPT_RC, 1);
	x.memory[8] = 3;
	receive(to_region(), VB_TRANSPORT_RC, VB_OP_FETCH_ADD, RQ_PSN, 0);
	assert_int_equal(x.fake.tx_headers.atomic_ack, 3);
	assert_int_equal(x.memory[8], 8);
	tear_down();
}

static void a_receive_that_finds_nothing(void **state)
{
	const enum vb_qp_type types[] = {VB_QPT_RC, VB_QPT_UC};

	for (int i = 0; i < 2; i++) {
		const bool rc = types[i] == VB_QPT_RC;
		struct vb_cqe cqe;

		set_up(types[i], 0);
		const struct vb_sge sge = {IOVA, 512, x.mr->lkey};
		const struct vb_recv_wr wr = {.wr_id = 7, .sges = &sge, .num_sge = 1};

		assert_int_equal(vb_qp_post_recv(x.q.qp, &wr), 0);
		receive((struct vb_headers){0}, rc ? VB_TRANSPORT_RC : VB_TRANSPORT_UC,
			VB_OP_SEND_ONLY, RQ_PSN, 256);
		assert_int_equal(vb_cq_poll(x.q.cq, &cqe, 1), 1);
		assert_int_equal(cqe.wr_id, 7);
		assert_int_equal(cqe.status, VB_WC_LOC_PROT_ERR);
		assert_int_equal(x.q.qp->reason.check, VB_CHECK_SGE_ABSENT);
		if (rc)
			expect_nak(VB_NAK_REMOTE_OPERATIONAL, VB_CHECK_SGE_ABSENT);
		tear_down();
	}
}

/* UC: a WRITE that cannot be done is dropped, and the next one is done. */
static void a_datagram_that_finds_nothing(void **state)
{
	set_up(VB_QPT_UC, 0);
	receive(to_region(), VB_TRANSPORT_UC, VB_OP_WRITE_ONLY, RQ_PSN, 256);
	assert_int_equal(x.copies, 1);
	assert_int_equal(x.q.qp->state, VB_QPS_RTS);
	x.left = 1;
	receive(to_region(), VB_TRANSPORT_UC, VB_OP_WRITE_ONLY, vb_psn_add(RQ_PSN, 1), 256);
	assert_int_equal(x.memory[8], 0xa5);
	tear_down();
}

static void post(enum vb_wr_opcode opcode)
{
	const struct vb_sge sges[2] = {{IOVA, 100, x.mr->lkey}, {IOVA + 200, 156, x.mr->lkey}};
	const struct vb_send_wr wr = {.wr_id = 3,
				      .opcode = opcode,
				      .sges = sges,
				      .num_sge = 2,
				      .flags = VB_SEND_SIGNALED};

	assert_int_equal(vb_qp_post_send(x.q.qp, &wr), 0);
	for (int i = 0; i < 8 && vb_nic_run(x.fake.nic, 1); i++)
		;
}

static void expect_failed_send(void)
{
	struct vb_cqe cqe;

	assert_int_equal(vb_cq_poll(x.q.cq, &cqe, 1), 1);
	assert_int_equal(cqe.wr_id, 3);
	assert_int_equal(cqe.status, VB_WC_LOC_PROT_ERR);
	assert_int_equal(x.q.qp->reason.check, VB_CHECK_SGE_ABSENT);
}

static void what_is_sent_finds_nothing(void **state)
{
	for (unsigned int left = 0; left < 2; left++) {
		set_up(VB_QPT_RC, left);
		post(VB_WR_SEND);
		assert_int_equal(x.fake.tx_count, 0);
		expect_failed_send();
		tear_down();
	}
	set_up(VB_QPT_RC, 2);
	memset(x.memory, 1, 100);
	memset(x.memory + 200, 2, 156);
	post(VB_WR_SEND);
	assert_int_equal(x.fake.tx_bytes, 256);
	assert_memory_equal(x.fake.tx_payload, x.memory, 100);
	assert_memory_equal(x.fake.tx_payload + 100, x.memory + 200, 156);
	tear_down();
}

static void what_was_read_finds_nothing(void **state)
{
	set_up(VB_QPT_RC, 0);
	post(VB_WR_RDMA_READ);
	assert_int_equal(x.copies, 0);
	receive((struct vb_headers){.aeth = {VB_AETH_ACK_NO_CREDIT, 1}}, VB_TRANSPORT_RC,
		VB_OP_READ_RESPONSE_ONLY, SQ_PSN, 256);
	expect_failed_send();
	tear_down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_write_that_finds_nothing),
		cmocka_unit_test(a_message_that_finds_half),
		cmocka_unit_test(a_read_that_finds_nothing),
		cmocka_unit_test(an_atomic_that_finds_nothing),
		cmocka_unit_test(a_receive_that_finds_nothing),
		cmocka_unit_test(a_datagram_that_finds_nothing),
		cmocka_unit_test(what_is_sent_finds_nothing),
		cmocka_unit_test(what_was_read_finds_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
