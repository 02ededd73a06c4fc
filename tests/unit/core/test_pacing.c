/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_pacing.c - UC and UD send a path's pace in a millisecond, all queue pairs together, since
 * nothing that they send is acknowledged; less where their turns come late.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "fake_nic.h"

#define PACE (64u << 10)
#define MESSAGE (1u << 20)
#define MTU 1024u
#define MILLISECOND 1000000u

static uint64_t run_until_idle(struct fake *fake, uint64_t now)
{
	for (;;) {
		while (vb_nic_run(fake->nic, now))
			;
		if (vb_nic_deadline(fake->nic) == VB_NEVER)
			return now;
		assert_true(vb_nic_deadline(fake->nic) > now);
		now = vb_nic_deadline(fake->nic);
	}
}

static void post_message(struct fake_qp *q, const struct vb_mr *mr)
{
	const struct vb_sge sge = {(uintptr_t)mr->addr, MESSAGE, mr->lkey};
	const struct vb_send_wr wr = {
		.wr_id = 1,
		.sges = &sge,
		.num_sge = 1,
		.opcode = VB_WR_RDMA_WRITE,
		.flags = VB_SEND_SIGNALED,
	};

	assert_int_equal(vb_qp_post_send(q->qp, &wr), 0);
}

static void set_up(struct fake *fake, struct fake_qp *q, enum vb_qp_type type, uint32_t pace)
{
	fake_init(fake);
	fake->pace = pace;
	fake_qp_create(fake, q, type, 64);
	fake_bring_to(q->qp, VB_QPS_RTS);
}

static void so_much_in_a_millisecond(void **state)
{
	uint8_t *memory = calloc(1, MESSAGE);
	struct fake fake;
	struct fake_qp q;
	struct vb_mr *mr;
	struct vb_cqe cqe;
	uint64_t end;

	set_up(&fake, &q, VB_QPT_UC, PACE);
	mr = vb_mr_create(q.pd, memory, MESSAGE, (uintptr_t)memory, VB_ACCESS_LOCAL_WRITE);
	post_message(&q, mr);
	while (vb_nic_run(fake.nic, MILLISECOND))
		;
	/* At once no more than the pace, and the packet that reaches its end. */
	assert_in_range(fake.tx_count, 1, PACE / MTU + 1);
	end = run_until_idle(&fake, MILLISECOND);
	assert_int_equal(fake.tx_count, MESSAGE / MTU);
	assert_true(end - MILLISECOND >= (MESSAGE / PACE - 2) * (uint64_t)MILLISECOND);
	assert_int_equal(vb_cq_poll(q.cq, &cqe, 1), 1);
	assert_int_equal(cqe.status, VB_WC_SUCCESS);
	vb_mr_destroy(mr);
	fake_qp_destroy(&q);
	fake_finish(&fake);
	free(memory);
}

static void no_pace_no_wait(void **state)
{
	uint8_t *memory = calloc(1, MESSAGE);
	struct fake fake;
	struct fake_qp q;
	struct vb_mr *mr;

	set_up(&fake, &q, VB_QPT_UC, 0);
	mr = vb_mr_create(q.pd, memory, MESSAGE, (uintptr_t)memory, VB_ACCESS_LOCAL_WRITE);
	post_message(&q, mr);
	assert_true(run_until_idle(&fake, MILLISECOND) == MILLISECOND);
	assert_int_equal(fake.tx_count, MESSAGE / MTU);
	vb_mr_destroy(mr);
	fake_qp_destroy(&q);
	fake_finish(&fake);
	free(memory);
}

/* What is sent in a millisecond from now on, with every turn late by so much. */
static unsigned int sent_in_a_millisecond(struct fake *fake, uint64_t *now, uint64_t late)
{
	const unsigned int before = fake->tx_count;
	const uint64_t end = *now + MILLISECOND;

	while (vb_nic_deadline(fake->nic) + late <= end) {
		*now = vb_nic_deadline(fake->nic) + late;
		while (vb_nic_run(fake->nic, *now))
			;
	}
	*now = end;
	return fake->tx_count - before;
}

/* Where a turn comes 3 ms late, others want the processors: it goes on slowly for 100 ms. */
static void late_turns_slow_down(void **state)
{
	const unsigned int all = PACE / (MTU + 512); /* with what a packet costs besides */
	uint8_t *memory = calloc(1, MESSAGE);
	uint64_t now = MILLISECOND;
	struct fake fake;
	struct fake_qp q;
	struct vb_mr *mr;

	set_up(&fake, &q, VB_QPT_UC, PACE);
	mr = vb_mr_create(q.pd, memory, MESSAGE, (uintptr_t)memory, VB_ACCESS_LOCAL_WRITE);
	for (unsigned int i = 0; i < 4; i++)
		post_message(&q, mr);
	while (vb_nic_run(fake.nic, now))
		;
	sent_in_a_millisecond(&fake, &now, 0);
	assert_in_range(sent_in_a_millisecond(&fake, &now, 0), all - all / 4, all + all / 4 + 1);
	now = vb_nic_deadline(fake.nic) + 3 * MILLISECOND;
	while (vb_nic_run(fake.nic, now))
		;
	sent_in_a_millisecond(&fake, &now, 0); /* what was under way goes on */
	for (unsigned int i = 0; i < 98; i++)
		assert_in_range(sent_in_a_millisecond(&fake, &now, 0), 1, all / 4 + 3);
	sent_in_a_millisecond(&fake, &now, 0);
	sent_in_a_millisecond(&fake, &now, 0);
	assert_in_range(sent_in_a_millisecond(&fake, &now, 0), all - all / 4, all + all / 4 + 1);
	assert_int_equal(fake_modify(q.qp, VB_QPS_ERR, VB_QP_STATE), 0);
	vb_mr_destroy(mr);
	fake_qp_destroy(&q);
	fake_finish(&fake);
	free(memory);
}

static void a_flush_ends_the_wait(void **state)
{
	uint8_t *memory = calloc(1, MESSAGE);
	struct fake fake;
	struct fake_qp q;
	struct vb_mr *mr;
	struct vb_cqe cqe;

	set_up(&fake, &q, VB_QPT_UC, PACE);
	mr = vb_mr_create(q.pd, memory, MESSAGE, (uintptr_t)memory, VB_ACCESS_LOCAL_WRITE);
	post_message(&q, mr);
	while (vb_nic_run(fake.nic, MILLISECOND))
		;
	assert_int_equal(fake_modify(q.qp, VB_QPS_ERR, VB_QP_STATE), 0);
	assert_int_equal(vb_cq_poll(q.cq, &cqe, 1), 1);
	assert_int_equal(cqe.status, VB_WC_WR_FLUSH_ERR);
	run_until_idle(&fake, MILLISECOND);
	vb_mr_destroy(mr);
	fake_qp_destroy(&q);
	fake_finish(&fake);
	free(memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(so_much_in_a_millisecond),
		cmocka_unit_test(no_pace_no_wait),
		cmocka_unit_test(late_turns_slow_down),
		cmocka_unit_test(a_flush_ends_the_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
