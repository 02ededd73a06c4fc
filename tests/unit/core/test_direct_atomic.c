/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_direct_atomic.c - atomics that the surroundings do without the peer: what they are offered,
 * and that what they refuse, or are not to have, goes by packets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "fake_nic.h"

#define NOW 1000000u
#define WORD_BEFORE 0x1122334455667788ull

/* What was offered last; the surroundings of all tests here. */
static struct {
	unsigned int count;
	int result;
	uint32_t rkey;
	uint64_t va;
	struct vb_atomic op;
} offered;

static int direct_atomic(void *env, const struct vb_qp *qp, uint32_t rkey, uint64_t va,
			 const struct vb_atomic *op, uint64_t *before)
{
	offered.count++;
	offered.rkey = rkey;
	offered.va = va;
	offered.op = *op;
	*before = WORD_BEFORE;
	return offered.result;
}

struct stand {
	struct fake fake;
	struct fake_qp q;
	struct vb_mr *mr;
	uint64_t result;
};

static void set_up(struct stand *s, int result)
{
	memset(s, 0, sizeof(*s));
	memset(&offered, 0, sizeof(offered));
	offered.result = result;
	fake_init(&s->fake);
	s->fake.nic->ops.direct_atomic = direct_atomic;
	fake_qp_create(&s->fake, &s->q, VB_QPT_RC, 64);
	fake_bring_to(s->q.qp, VB_QPS_RTS);
	s->q.qp->path.direct = true;
	s->mr = vb_mr_create(s->q.pd, &s->result, sizeof(s->result), (uintptr_t)&s->result,
			     VB_ACCESS_LOCAL_WRITE);
	assert_non_null(s->mr);
}

static void tear_down(struct stand *s)
{
	assert_int_equal(vb_mr_destroy(s->mr), 0);
	fake_qp_destroy(&s->q);
	fake_finish(&s->fake);
}

static void post(struct stand *s, enum vb_wr_opcode opcode, uint32_t lkey)
{
	const struct vb_sge sge = {(uintptr_t)&s->result, sizeof(s->result), lkey};
	const struct vb_send_wr wr = {
		.wr_id = 7,
		.sges = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.flags = VB_SEND_SIGNALED,
		.remote_addr = 0x1000,
		.rkey = 0xabc,
		.compare_add = 5,
		.swap = 6,
	};

	assert_int_equal(vb_qp_post_send(s->q.qp, &wr), 0);
	while (vb_nic_run(s->fake.nic, NOW))
		;
}

static void expect_completion(struct stand *s, enum vb_status status)
{
	struct vb_cqe cqe;

	assert_int_equal(vb_cq_poll(s->q.cq, &cqe, 1), 1);
	assert_int_equal(cqe.status, status);
	assert_int_equal(cqe.wr_id, 7);
}

static void done_without_packets(void **state)
{
	struct stand s;

	set_up(&s, 0);
	post(&s, VB_WR_ATOMIC_FETCH_AND_ADD, s.mr->lkey);
	expect_completion(&s, VB_WC_SUCCESS);
	assert_true(s.result == WORD_BEFORE);
	assert_int_equal(offered.rkey, 0xabc);
	assert_int_equal(offered.va, 0x1000);
	assert_int_equal(offered.op.kind, VB_ATOMIC_ADD);
	assert_int_equal(offered.op.operand, 5);
	post(&s, VB_WR_ATOMIC_CMP_AND_SWP, s.mr->lkey);
	expect_completion(&s, VB_WC_SUCCESS);
	assert_int_equal(offered.op.kind, VB_ATOMIC_COMPARE_SWAP);
	assert_int_equal(offered.op.compare, 5);
	assert_int_equal(offered.op.operand, 6);
	assert_int_equal(offered.count, 2);
	assert_int_equal(s.fake.tx_count, 0);
	tear_down(&s);
}

static void refused_goes_by_packets(void **state)
{
	struct stand s;

	set_up(&s, -EACCES);
	post(&s, VB_WR_ATOMIC_CMP_AND_SWP, s.mr->lkey);
	assert_int_equal(offered.count, 1);
	assert_int_equal(s.fake.tx_count, 1);
	assert_int_equal(s.fake.tx_headers.atomic.compare, 5);
	assert_int_equal(s.fake.tx_headers.atomic.swap_add, 6);
	assert_int_equal(s.result, 0);
	tear_down(&s);
}

/* Behind what is unfinished it is not offered, and does not wait. */
static void several_stay_under_way(void **state)
{
	struct stand s;

	set_up(&s, -EACCES);
	post(&s, VB_WR_ATOMIC_FETCH_AND_ADD, s.mr->lkey);
	post(&s, VB_WR_ATOMIC_FETCH_AND_ADD, s.mr->lkey);
	assert_int_equal(offered.count, 1);
	assert_int_equal(s.fake.tx_count, 2);
	tear_down(&s);
}

static void over_a_wire_it_is_not_offered(void **state)
{
	struct stand s;

	set_up(&s, 0);
	s.q.qp->path.direct = false;
	post(&s, VB_WR_ATOMIC_FETCH_AND_ADD, s.mr->lkey);
	assert_int_equal(offered.count, 0);
	assert_int_equal(s.fake.tx_count, 1);
	tear_down(&s);
}

/* The word is not touched where there is no place for its value. */
static void own_memory_comes_first(void **state)
{
	struct stand s;

	set_up(&s, 0);
	post(&s, VB_WR_ATOMIC_FETCH_AND_ADD, s.mr->rkey);
	assert_int_equal(offered.count, 0);
	expect_completion(&s, VB_WC_LOC_PROT_ERR);
	tear_down(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(done_without_packets),
		cmocka_unit_test(refused_goes_by_packets),
		cmocka_unit_test(several_stay_under_way),
		cmocka_unit_test(over_a_wire_it_is_not_offered),
		cmocka_unit_test(own_memory_comes_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
