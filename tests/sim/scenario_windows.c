/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scenario_windows.c - memory windows and SEND with invalidate on a wire that loses: a window is
 * taken back once, before its receive completes, and requests about windows keep their place.
 */
#include "scenario.h"

#include <string.h>

#define MTU 1024u
#define AT REMOTE_OFFSET
#define LENGTH (3 * MTU)

static const struct scenario_options usual = {.retry_cnt = 7, .rnr_retry = 7, .min_rnr_timer = 1};

struct bench {
	struct scenario *s;
	struct vb_mr *mr; /* B's whole memory, for windows only */
	struct vb_mw *mw;
	uint32_t key; /* once it is bound */
};

static void begin(struct bench *x)
{
	x->s = scenario_begin(&usual);
	x->mr = vb_mr_create(x->s->pd[B], x->s->memory[B], SCENARIO_BYTES, 0,
			     VB_ACCESS_LOCAL_WRITE | VB_ACCESS_MW_BIND);
	x->mw = vb_mw_create(x->s->pd[B], VB_MW_TYPE_2);
	assert_true(x->mr && x->mw);
}

static void end(struct bench *x)
{
	assert_int_equal(vb_mw_destroy(x->mw), 0);
	assert_int_equal(vb_mr_destroy(x->mr), 0);
	scenario_end(x->s);
}

static void post_bind(struct bench *x, uint64_t wr_id)
{
	const uint32_t now = x->mw->shown.rkey;
	struct vb_send_wr wr = {.wr_id = wr_id, .opcode = VB_WR_BIND_MW, .flags = VB_SEND_SIGNALED};

	x->key = (now & ~0xffu) | ((now + 1) & 0xff);
	wr.bind = (struct vb_mw_bind){x->key, x->mr->lkey, VB_ACCESS_REMOTE_WRITE, AT, LENGTH};
	scenario_post(x->s, B, &wr);
}

static void send_inv(struct bench *x, uint64_t wr_id, uint32_t length)
{
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(x->s, A, VB_WR_SEND_WITH_INV, wr_id, length, &sge);

	wr.imm = x->key;
	scenario_post(x->s, A, &wr);
}

static void write_by(struct bench *x, uint32_t key, uint64_t wr_id)
{
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(x->s, A, VB_WR_RDMA_WRITE, wr_id, LENGTH, &sge);

	memset(x->s->memory[A] + LOCAL_OFFSET, (int)wr_id, LENGTH);
	wr.rkey = key;
	wr.remote_addr = AT;
	scenario_post(x->s, A, &wr);
}

static void on_the_wire(void **state)
{
	struct bench x;
	const struct seen *last;
	const struct vb_cqe *cqe;

	begin(&x);
	post_bind(&x, 1);
	scenario_recv(x.s, B, 2, 4096);
	scenario_run(x.s);
	assert_int_equal(scenario_expect(x.s, B, 0, 1, VB_WC_SUCCESS)->opcode, VB_WC_BIND_MW);
	assert_int_equal(scenario_count(x.s, B, -1), 0); /* a bind needs no packets */
	write_by(&x, x.key, 3);
	send_inv(&x, 4, LENGTH);
	scenario_run(x.s);
	scenario_expect(x.s, A, 0, 3, VB_WC_SUCCESS);
	scenario_expect(x.s, A, 1, 4, VB_WC_SUCCESS);
	last = scenario_nth(x.s, A, VB_OP_SEND_LAST_INV, 0);
	assert_int_equal(last->h.invalidate_rkey, x.key);
	assert_int_equal(scenario_count(x.s, A, VB_OP_SEND_FIRST), 1);
	assert_int_equal(scenario_count(x.s, A, VB_OP_SEND_MIDDLE), 1);
	cqe = scenario_expect(x.s, B, 1, 2, VB_WC_SUCCESS);
	assert_int_equal(cqe->wc_flags, VB_WC_WITH_INV);
	assert_int_equal(cqe->imm, x.key);
	assert_int_equal(cqe->byte_len, LENGTH);
	assert_null(x.mw->mr);
	end(&x);
}

/* The acknowledgement is lost and the message comes again, when the window is already bound anew:
 * that one stays. */
static void a_repeated_invalidation_does_nothing(void **state)
{
	struct bench x;

	begin(&x);
	post_bind(&x, 1);
	scenario_recv(x.s, B, 2, 4096);
	scenario_run(x.s);
	scenario_rule(x.s, B, VB_OP_ACK, 0, 1, VB_DROP);
	send_inv(&x, 3, 100);
	scenario_run_until(x.s, SCENARIO_RTT_NS);
	assert_null(x.mw->mr);
	post_bind(&x, 4);
	scenario_run(x.s);
	assert_int_equal(scenario_count(x.s, A, VB_OP_SEND_ONLY_INV), 2);
	scenario_expect(x.s, A, 0, 3, VB_WC_SUCCESS);
	scenario_expect(x.s, B, 0, 1, VB_WC_SUCCESS);
	scenario_expect(x.s, B, 1, 2, VB_WC_SUCCESS);
	scenario_expect(x.s, B, 2, 4, VB_WC_SUCCESS);
	assert_ptr_equal(x.mw->mr, x.mr);
	write_by(&x, x.key, 5);
	scenario_run(x.s);
	scenario_expect(x.s, A, 1, 5, VB_WC_SUCCESS);
	end(&x);
}

/* Without a receive the message waits, and the window with it. */
static void not_before_there_is_a_receive(void **state)
{
	struct bench x;

	begin(&x);
	post_bind(&x, 1);
	scenario_run(x.s);
	send_inv(&x, 3, 100);
	scenario_run_until(x.s, SCENARIO_RTT_NS);
	assert_ptr_equal(x.mw->mr, x.mr);
	scenario_recv(x.s, B, 2, 4096);
	scenario_run(x.s);
	assert_null(x.mw->mr);
	scenario_expect(x.s, A, 0, 3, VB_WC_SUCCESS);
	end(&x);
}

/* IBTA 10.8.3: a request about a window waits for what was posted before it. */
static void in_its_place(void **state)
{
	struct bench x;
	struct vb_send_wr inv = {.wr_id = 4, .opcode = VB_WR_LOCAL_INV, .flags = VB_SEND_SIGNALED};
	struct scenario *s;

	begin(&x);
	s = x.s;
	post_bind(&x, 1);
	scenario_run(s);
	scenario_rule(s, B, VB_OP_SEND_ONLY, 0, 1, VB_DROP);
	scenario_recv(s, A, 2, 4096);
	scenario_send(s, B, VB_WR_SEND, 3, 100);
	inv.imm = x.key;
	scenario_post(s, B, &inv);
	scenario_run_until(s, SCENARIO_RTT_NS);
	assert_ptr_equal(x.mw->mr, x.mr); /* the SEND was lost */
	write_by(&x, x.key, 5);
	scenario_run(s);
	scenario_expect(s, B, 0, 1, VB_WC_SUCCESS);
	scenario_expect(s, B, 1, 3, VB_WC_SUCCESS);
	assert_int_equal(scenario_expect(s, B, 2, 4, VB_WC_SUCCESS)->opcode, VB_WC_LOCAL_INV);
	scenario_expect(s, A, 0, 5, VB_WC_SUCCESS); /* was in time */
	assert_null(x.mw->mr);
	end(&x);
}

/* A WRITE loses its window between two packets: the rest is refused. */
static void taken_back_in_the_middle(void **state)
{
	struct bench x;
	struct vb_send_wr inv = {.wr_id = 2, .opcode = VB_WR_LOCAL_INV, .flags = VB_SEND_SIGNALED};

	begin(&x);
	post_bind(&x, 1);
	scenario_run(x.s);
	scenario_rule(x.s, A, VB_OP_WRITE_LAST, 0, 1, VB_DROP);
	write_by(&x, x.key, 3);
	scenario_run_until(x.s, SCENARIO_RTT_NS);
	inv.imm = x.key;
	scenario_post(x.s, B, &inv);
	scenario_run(x.s);
	scenario_expect(x.s, B, 1, 2, VB_WC_SUCCESS);
	scenario_expect(x.s, A, 0, 3, VB_WC_REM_ACCESS_ERR);
	assert_int_equal(x.s->memory[B][AT], 3);
	assert_int_equal(x.s->memory[B][AT + LENGTH - 1], 0);
	end(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(on_the_wire),
		cmocka_unit_test(a_repeated_invalidation_does_nothing),
		cmocka_unit_test(not_before_there_is_a_receive),
		cmocka_unit_test(in_its_place),
		cmocka_unit_test(taken_back_in_the_middle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
