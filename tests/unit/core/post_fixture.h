/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * post_fixture.h - a queue pair with memory and an address to post with, and what comes of posting.
 * Include after the headers of cmocka.
 */
#ifndef VB_TESTS_POST_FIXTURE_H
#define VB_TESTS_POST_FIXTURE_H

#include "fake_nic.h"

#define ROUNDS 1000 /* more turns than any of these tests needs */

struct fixture {
	struct fake fake;
	struct fake_qp q;
	struct vb_mr *mr;
	struct vb_ah *ah;
	uint8_t memory[8192];
	struct vb_sge sge;
};

static inline void set_up_with(struct fixture *x, enum vb_qp_type type, const struct vb_qp_cap *cap,
			       bool sq_sig_all)
{
	const struct vb_ah_attr attr = fake_attr().ah;
	struct vb_qp_init init;

	memset(x, 0, sizeof(*x));
	fake_init(&x->fake);
	x->q.pd = vb_pd_create(x->fake.nic);
	x->q.cq = vb_cq_create(x->fake.nic, 64, NULL);
	init = fake_qp_init(type, x->q.cq);
	if (cap)
		init.cap = *cap;
	init.sq_sig_all = sq_sig_all;
	x->q.qp = vb_qp_create(x->q.pd, &init);
	assert_non_null(x->q.qp);
	x->mr = vb_mr_create(x->q.pd, x->memory, sizeof(x->memory), (uintptr_t)x->memory,
			     VB_ACCESS_LOCAL_WRITE);
	x->ah = vb_ah_create(x->q.pd, &attr);
	assert_non_null(x->mr);
	assert_non_null(x->ah);
	x->sge = (struct vb_sge){(uintptr_t)x->memory, 16, x->mr->lkey};
	for (size_t i = 0; i < sizeof(x->memory); i++)
		x->memory[i] = (uint8_t)(i * 7);
}

static inline void set_up(struct fixture *x, enum vb_qp_type type, enum vb_qp_state state)
{
	set_up_with(x, type, NULL, false);
	if (state != VB_QPS_RESET)
		fake_bring_to(x->q.qp, state);
}

static inline void tear_down(struct fixture *x)
{
	vb_ah_put(x->ah);
	vb_mr_destroy(x->mr);
	fake_qp_destroy(&x->q);
	fake_finish(&x->fake);
}

static inline void run(struct fixture *x)
{
	for (int i = 0; i < ROUNDS; i++) {
		if (!vb_nic_run(x->fake.nic, 1000))
			return;
	}
	fail_msg("the NIC never came to rest");
}

static inline struct vb_send_wr make_wr(struct fixture *x, uint64_t wr_id, uint32_t flags)
{
	return (struct vb_send_wr){
		.wr_id = wr_id,
		.sges = &x->sge,
		.num_sge = 1,
		.opcode = VB_WR_SEND,
		.flags = flags,
		.ah = x->ah,
		.remote_qpn = 5,
	};
}

static inline int post(struct fixture *x, uint64_t wr_id, uint32_t flags)
{
	const struct vb_send_wr wr = make_wr(x, wr_id, flags);

	return vb_qp_post_send(x->q.qp, &wr);
}

static inline void assert_polls(struct fixture *x, uint64_t wr_id, enum vb_status status)
{
	struct vb_cqe cqe;

	assert_int_equal(vb_cq_poll(x->q.cq, &cqe, 1), 1);
	assert_int_equal(cqe.wr_id, wr_id);
	assert_int_equal(cqe.status, status);
	assert_int_equal(cqe.qpn, x->q.qp->qpn);
}

static inline void assert_polls_nothing(struct fixture *x)
{
	struct vb_cqe cqe;

	assert_int_equal(vb_cq_poll(x->q.cq, &cqe, 1), 0);
}

#endif
