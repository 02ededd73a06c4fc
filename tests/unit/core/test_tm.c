/* SPDX-License-Identifier: BSD-2-Clause */
/* test_tm.c - tag matching, where the edge tests cannot reach: packet by packet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "fake_nic.h"

#define TAGS 40u

struct fixture {
	struct fake fake;
	struct vb_pd *pd;
	struct vb_cq *cq, *tm_cq;
	struct vb_srq *srq;
	struct vb_qp *qp;
	struct vb_mr *mr;
	uint8_t memory[4096];
	uint32_t psn;
};

static void open_fixture(struct fixture *f, enum vb_qp_state state)
{
	struct vb_qp_init init;

	fake_init(&f->fake);
	f->pd = vb_pd_create(f->fake.nic);
	f->cq = vb_cq_create(f->fake.nic, 16, NULL);
	f->tm_cq = vb_cq_create(f->fake.nic, 256, NULL);
	f->srq = vb_srq_create(f->pd, 4, 1, 0, NULL);
	assert_int_equal(vb_tm_init(f->srq, f->tm_cq, TAGS), 0);
	f->mr = vb_mr_create(f->pd, f->memory, sizeof(f->memory), 0, VB_ACCESS_LOCAL_WRITE);
	init = fake_qp_init(VB_QPT_RC, f->cq);
	init.srq = f->srq;
	init.cap.max_send_wr = 0;
	f->qp = vb_qp_create(f->pd, &init);
	assert_non_null(f->qp);
	assert_int_equal(init.cap.max_send_wr, 0);
	fake_bring_to(f->qp, state);
	f->psn = fake_attr().rq_psn;
}

static void close_fixture(struct fixture *f)
{
	vb_qp_destroy(f->qp);
	vb_mr_destroy(f->mr);
	assert_int_equal(vb_cq_destroy(f->tm_cq), -EBUSY);
	assert_int_equal(vb_srq_destroy(f->srq), 0);
	assert_int_equal(vb_cq_destroy(f->tm_cq), 0);
	assert_int_equal(vb_cq_destroy(f->cq), 0);
	assert_int_equal(vb_pd_destroy(f->pd), 0);
	fake_finish(&f->fake);
}

static int add(struct fixture *f, uint64_t tag, uint32_t *handle)
{
	const struct vb_sge sge = {.addr = 0, .length = 64, .lkey = f->mr->lkey};
	struct vb_tm_op op = {
		.opcode = VB_TM_ADD,
		.recv_wr_id = tag,
		.tag = tag,
		.mask = UINT64_MAX,
		.sges = &sge,
		.num_sge = 1,
	};
	int rc = vb_tm_post(f->srq, &op);

	if (handle)
		*handle = op.handle;
	return rc;
}

/* A SEND ONLY of operation and tag comes; the AETH syndrome of the answer. */
static uint8_t arrive(struct fixture *f, enum vb_tmh operation, uint8_t tag)
{
	const struct vb_headers h = {
		.opcode = vb_opcode(VB_TRANSPORT_RC, VB_OP_SEND_ONLY),
		.pkey = VB_DEFAULT_PKEY,
		.qpn = f->qp->qpn,
		.psn = f->psn,
		.ack_req = true,
	};
	uint8_t packet[VB_HEADERS_MAX + VB_TM_HEADERS_BYTES] = {0};
	int bytes = vb_headers_encode(&h, packet, sizeof(packet));
	const struct vb_rx rx = {.data = packet,
				 .size = (size_t)bytes + VB_TM_HEADERS_BYTES,
				 .src = f->qp->path.dgid};

	packet[bytes] = operation;
	packet[bytes + 15] = tag;
	packet[bytes + 31] = 1; /* RVH length */
	vb_nic_rx(f->fake.nic, &rx, 1);
	assert_true(f->qp->resp.ack_pending); /* nothing leaves before vb_nic_run() */
	return f->qp->resp.ack_syndrome;
}

static void without_a_buffer_the_sender_waits(void **state)
{
	struct fixture f;
	struct vb_cqe cqe;

	open_fixture(&f, VB_QPS_RTS);
	assert_int_equal(vb_aeth_kind(arrive(&f, VB_TMH_EAGER, 1)), VB_AETH_RNR_NAK);
	/* It was not taken, so it is not counted: a buffer added now is matched. */
	assert_int_equal(f.srq->tm->unexpected, 0);
	assert_int_equal(add(&f, 1, NULL), 0);
	assert_int_equal(vb_aeth_kind(arrive(&f, VB_TMH_EAGER, 1)), VB_AETH_ACK);
	assert_int_equal(vb_cq_poll(f.tm_cq, &cqe, 1), 1);
	assert_int_equal(cqe.opcode, VB_WC_TM_RECV);
	assert_int_equal(cqe.qpn, f.qp->qpn);
	close_fixture(&f);
}

/* As many READs as there is room for; the next rendezvous waits, and an eager message does not. */
static void too_many_rendezvous_wait(void **state)
{
	struct fixture f;

	open_fixture(&f, VB_QPS_RTS);
	for (uint32_t i = 0; i < TAGS; i++)
		assert_int_equal(add(&f, i, NULL), 0);
	for (uint32_t i = 0; i < VB_TM_SENDS / 2; i++) {
		assert_int_equal(vb_aeth_kind(arrive(&f, VB_TMH_RNDV, (uint8_t)i)), VB_AETH_ACK);
		f.psn++;
	}
	assert_int_equal(vb_aeth_kind(arrive(&f, VB_TMH_RNDV, TAGS - 1)), VB_AETH_RNR_NAK);
	assert_int_equal(vb_aeth_kind(arrive(&f, VB_TMH_EAGER, TAGS - 1)), VB_AETH_ACK);
	/* What the NIC had begun fails with the queue pair: each buffer completes once more. */
	while (vb_cq_count(f.tm_cq)) {
		struct vb_cqe cqe;

		vb_cq_poll(f.tm_cq, &cqe, 1);
	}
	assert_int_equal(fake_modify(f.qp, VB_QPS_ERR, VB_QP_STATE), 0);
	for (uint32_t i = 0; i < VB_TM_SENDS / 2; i++) {
		struct vb_cqe cqe;

		assert_int_equal(vb_cq_poll(f.tm_cq, &cqe, 1), 1);
		assert_int_equal(cqe.status, VB_WC_WR_FLUSH_ERR);
		assert_int_equal(cqe.wr_id, i);
	}
	assert_int_equal(vb_cq_count(f.tm_cq), 0);
	assert_int_equal(vb_cq_count(f.cq), 0);
	close_fixture(&f);
}

/* In RTR a queue pair cannot READ: the program gets the rendezvous. */
static void rendezvous_before_rts_is_unexpected(void **state)
{
	const struct vb_sge sge = {.addr = 0, .length = 64};
	struct vb_recv_wr wr = {.wr_id = 9, .sges = &sge, .num_sge = 1};
	struct vb_sge own = sge;
	struct fixture f;
	struct vb_cqe cqe;

	open_fixture(&f, VB_QPS_RTR);
	own.lkey = f.mr->lkey;
	wr.sges = &own;
	assert_int_equal(vb_srq_post(f.srq, &wr), 0);
	assert_int_equal(add(&f, 1, NULL), 0);
	assert_int_equal(vb_aeth_kind(arrive(&f, VB_TMH_RNDV, 1)), VB_AETH_ACK);
	assert_int_equal(vb_cq_poll(f.tm_cq, &cqe, 1), 1);
	assert_int_equal(cqe.wr_id, 9);
	assert_int_equal(cqe.wc_flags, 0);
	assert_int_equal(f.srq->tm->unexpected, 1);
	close_fixture(&f);
}

/* A handle of a buffer that is gone is not one of the buffer in its place. */
static void handles_are_not_given_again(void **state)
{
	struct vb_tm_op op = {.opcode = VB_TM_DEL};
	uint32_t handles[TAGS], again;
	struct fixture f;
	struct vb_cqe cqe;

	open_fixture(&f, VB_QPS_RTS);
	for (uint32_t i = 0; i < TAGS; i++)
		assert_int_equal(add(&f, i, &handles[i]), 0);
	assert_int_equal(add(&f, 1, NULL), -ENOMEM);
	op.handle = handles[3];
	assert_int_equal(vb_tm_post(f.srq, &op), 0);
	assert_int_equal(vb_cq_count(f.tm_cq), 0); /* not signaled */
	assert_int_equal(add(&f, 1, &again), 0);
	assert_int_not_equal(again, handles[3]);
	assert_int_equal(vb_tm_post(f.srq, &op), 0);
	assert_int_equal(vb_cq_poll(f.tm_cq, &cqe, 1), 1); /* failures are told all the same */
	assert_int_equal(cqe.status, VB_WC_TM_ERR);
	close_fixture(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_buffer_the_sender_waits),
		cmocka_unit_test(too_many_rendezvous_wait),
		cmocka_unit_test(rendezvous_before_rts_is_unexpected),
		cmocka_unit_test(handles_are_not_given_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
