/* SPDX-License-Identifier: BSD-2-Clause */
/* test_cq.c - completion queues: order, room, notification, overrun, resize. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/room.h"
#include "fake_nic.h"

struct fixture {
	struct fake fake;
	struct vb_cq *cq;
};

static void set_up(struct fixture *x, uint32_t entries)
{
	fake_init(&x->fake);
	x->cq = vb_cq_create(x->fake.nic, entries, NULL);
	assert_non_null(x->cq);
}

static void tear_down(struct fixture *x)
{
	assert_int_equal(vb_cq_destroy(x->cq), 0);
	fake_finish(&x->fake);
}

static void push(struct vb_cq *cq, uint64_t wr_id)
{
	const struct vb_cqe cqe = {.wr_id = wr_id};

	vb_cq_push(cq, &cqe, NULL);
}

static void assert_polls(struct vb_cq *cq, uint64_t first, int n)
{
	struct vb_cqe out[16];

	assert_int_equal(vb_cq_poll(cq, out, 16), n);
	for (int i = 0; i < n; i++)
		assert_int_equal(out[i].wr_id, first + (uint64_t)i);
}

static void test_create_limits(void **state)
{
	struct fixture x;

	set_up(&x, 1);
	errno = 0;
	assert_null(vb_cq_create(x.fake.nic, 0, NULL));
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_null(vb_cq_create(x.fake.nic, VB_MAX_CQE + 1, NULL));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(x.cq->capacity, 1);
	assert_int_equal(vb_cq_destroy(NULL), 0);
	tear_down(&x);
}

/* In order, also where the counters wrap around. */
static void test_order(void **state)
{
	struct vb_cqe out[2];
	struct fixture x;

	set_up(&x, 5);
	x.cq->head = x.cq->tail = UINT32_MAX - 6;
	for (uint64_t id = 0; id < 40; id += 5) {
		for (uint64_t i = 0; i < 5; i++)
			push(x.cq, id + i);
		assert_int_equal(vb_cq_poll(x.cq, out, 2), 2);
		assert_int_equal(out[0].wr_id, id);
		assert_int_equal(out[1].wr_id, id + 1);
		assert_polls(x.cq, id + 2, 3);
	}
	assert_int_equal(vb_cq_poll(x.cq, out, 2), 0);
	assert_int_equal(vb_cq_poll(x.cq, out, 0), 0);
	assert_int_equal(x.fake.event_count, 0);
	tear_down(&x);
}

static void test_time_and_reason(void **state)
{
	const struct vb_reason flushed = {.check = VB_CHECK_FLUSHED};
	const struct vb_reason range = {.check = VB_CHECK_SGE_RANGE, .value = {1, 2, 3, 4}};
	const struct vb_cqe cqe = {.status = VB_WC_LOC_PROT_ERR};
	struct vb_cqe out[2];
	struct fixture x;

	set_up(&x, 4);
	x.fake.nic->now_ns = 77;
	vb_cq_push(x.cq, &cqe, &range);
	vb_cq_push(x.cq, &cqe, &flushed);
	assert_int_equal(vb_cq_poll(x.cq, out, 2), 2);
	assert_int_equal(out[0].time_ns, 77);
	assert_int_equal(out[0].vendor_err, VB_CHECK_SGE_RANGE);
	assert_int_equal(out[1].vendor_err, VB_CHECK_FLUSHED);
	/* A flush is no cause: the one before it stays. */
	assert_memory_equal(&x.cq->last_reason, &range, sizeof(range));
	tear_down(&x);
}

static void push_kind(struct vb_cq *cq, bool solicited, enum vb_status status)
{
	const struct vb_cqe cqe = {.solicited = solicited, .status = (uint8_t)status};

	vb_cq_push(cq, &cqe, NULL);
}

static void test_arm(void **state)
{
	struct fixture x;

	set_up(&x, 16);
	vb_cq_arm(x.cq, false);
	assert_int_equal(x.fake.cq_events, 0);
	push(x.cq, 1);
	assert_int_equal(x.fake.cq_events, 1);
	assert_ptr_equal(x.fake.last_cq, x.cq);
	push(x.cq, 2);
	assert_int_equal(x.fake.cq_events, 1); /* not armed any more */
	/* Armed before it polls for the event that it has: not a second one for what is inside. */
	vb_cq_arm(x.cq, false);
	assert_int_equal(x.fake.cq_events, 1);
	assert_polls(x.cq, 1, 2);
	push(x.cq, 3);
	assert_int_equal(x.fake.cq_events, 2);
	tear_down(&x);
}

/* The event, a poll, one more completion, and only then armed: as adapters do, it is told. */
static void test_arm_behind_a_completion(void **state)
{
	struct vb_cqe out[2];
	struct fixture x;

	set_up(&x, 16);
	push(x.cq, 1);
	vb_cq_arm(x.cq, false); /* there never was an event */
	assert_int_equal(x.fake.cq_events, 1);
	assert_polls(x.cq, 1, 1);
	push(x.cq, 2);
	vb_cq_arm(x.cq, false);
	assert_int_equal(x.fake.cq_events, 2);
	push(x.cq, 3);
	assert_int_equal(x.fake.cq_events, 2); /* one event for one arming */
	assert_int_equal(vb_cq_poll(x.cq, out, 1), 1);
	vb_cq_arm(x.cq, false); /* not all was polled */
	assert_int_equal(x.fake.cq_events, 3);
	assert_polls(x.cq, 3, 1);
	vb_cq_arm(x.cq, false); /* nothing is inside */
	assert_int_equal(x.fake.cq_events, 3);
	tear_down(&x);
}

static void test_arm_solicited_behind_a_completion(void **state)
{
	struct vb_cqe out[4];
	struct fixture x;

	set_up(&x, 16);
	push_kind(x.cq, false, VB_WC_SUCCESS);
	vb_cq_arm(x.cq, true);
	assert_int_equal(x.fake.cq_events, 0);
	vb_cq_arm(x.cq, false); /* for more than before */
	assert_int_equal(x.fake.cq_events, 1);
	assert_int_equal(vb_cq_poll(x.cq, out, 4), 1);
	push_kind(x.cq, false, VB_WC_SUCCESS);
	push_kind(x.cq, true, VB_WC_SUCCESS);
	vb_cq_arm(x.cq, true);
	assert_int_equal(x.fake.cq_events, 2);
	assert_int_equal(vb_cq_poll(x.cq, out, 4), 2);
	push_kind(x.cq, false, VB_WC_WR_FLUSH_ERR);
	vb_cq_arm(x.cq, true);
	assert_int_equal(x.fake.cq_events, 3);
	tear_down(&x);
}

static void test_arm_solicited(void **state)
{
	struct fixture x;

	set_up(&x, 16);
	vb_cq_arm(x.cq, true);
	push_kind(x.cq, false, VB_WC_SUCCESS);
	assert_int_equal(x.fake.cq_events, 0);
	push_kind(x.cq, true, VB_WC_SUCCESS);
	assert_int_equal(x.fake.cq_events, 1);
	vb_cq_arm(x.cq, true);
	push_kind(x.cq, false, VB_WC_WR_FLUSH_ERR);
	assert_int_equal(x.fake.cq_events, 2);
	/* Asking for less does not take back what was asked for. */
	vb_cq_arm(x.cq, false);
	vb_cq_arm(x.cq, true);
	push_kind(x.cq, false, VB_WC_SUCCESS);
	assert_int_equal(x.fake.cq_events, 3);
	/* Asking for more does. */
	vb_cq_arm(x.cq, true);
	vb_cq_arm(x.cq, false);
	push_kind(x.cq, false, VB_WC_SUCCESS);
	assert_int_equal(x.fake.cq_events, 4);
	tear_down(&x);
}

static void test_resize(void **state)
{
	struct fixture x;

	set_up(&x, 4);
	x.cq->head = x.cq->tail = UINT32_MAX - 1;
	for (uint64_t i = 0; i < 4; i++)
		push(x.cq, i);
	assert_int_equal(vb_cq_resize(x.cq, 3), -EINVAL);
	assert_int_equal(vb_cq_resize(x.cq, 0), -EINVAL);
	assert_int_equal(vb_cq_resize(x.cq, VB_MAX_CQE + 1), -EINVAL);
	assert_int_equal(x.cq->capacity, 4);
	assert_int_equal(vb_cq_resize(x.cq, 9), 0);
	assert_int_equal(x.cq->capacity, 9);
	for (uint64_t i = 4; i < 9; i++)
		push(x.cq, i);
	assert_polls(x.cq, 0, 9);
	assert_int_equal(vb_cq_resize(x.cq, 1), 0);
	push(x.cq, 9);
	assert_polls(x.cq, 9, 1);
	assert_int_equal(x.fake.event_count, 0);
	tear_down(&x);
}

static void test_overrun_without_qp(void **state)
{
	struct fixture x;

	set_up(&x, 3); /* a ring of four, of which three may be used */
	for (uint64_t i = 0; i < 6; i++)
		push(x.cq, i);
	assert_int_equal(x.fake.event_count, 1);
	assert_int_equal(x.fake.events[0].type, VB_EVENT_CQ_ERR);
	assert_ptr_equal(x.fake.events[0].cq, x.cq);
	/* What came in time can be polled; nothing is added any more. */
	assert_polls(x.cq, 0, 3);
	push(x.cq, 7);
	assert_polls(x.cq, 0, 0);
	assert_int_equal(x.fake.event_count, 1);
	tear_down(&x);
}

static void assert_overrun(struct fake *fake, struct fake_qp *q, uint32_t capacity)
{
	assert_int_equal(q->qp->state, VB_QPS_ERR);
	assert_int_equal(q->qp->reason.check, VB_CHECK_CQ_OVERRUN);
	assert_int_equal(q->qp->reason.value[0], capacity);
	assert_int_equal(fake_count_events(fake, VB_EVENT_CQ_ERR), 1);
	assert_int_equal(vb_cq_count(q->cq), capacity);
	vb_qp_check(q->qp);
}

static void post_sends(struct vb_qp *qp, uint64_t n)
{
	for (uint64_t id = 0; id < n; id++) {
		const struct vb_send_wr wr = {
			.wr_id = id,
			.opcode = VB_WR_SEND,
			.flags = VB_SEND_SIGNALED,
		};

		assert_int_equal(vb_qp_post_send(qp, &wr), 0);
	}
}

/* The overflow comes in the middle of sending; the QP's flush completes into the same full CQ. */
static void test_overrun_while_sending(void **state)
{
	const struct vb_recv_wr recv = {0};
	struct fake_qp q;
	struct fake fake;

	fake_init(&fake);
	fake_qp_create(&fake, &q, VB_QPT_UC, 2);
	fake_bring_to(q.qp, VB_QPS_RTS);
	assert_int_equal(vb_qp_post_recv(q.qp, &recv), 0);
	post_sends(q.qp, 4);
	vb_nic_run(fake.nic, 1);
	assert_overrun(&fake, &q, 2);
	assert_polls(q.cq, 0, 2);
	fake_qp_destroy(&q);
	fake_finish(&fake);
}

/* One acknowledgement completes more requests than there is room for. */
static void test_overrun_while_acknowledged(void **state)
{
	struct fake_qp q;
	struct fake fake;

	fake_init(&fake);
	fake_qp_create(&fake, &q, VB_QPT_RC, 1);
	fake_bring_to(q.qp, VB_QPS_RTS);
	post_sends(q.qp, 4);
	vb_nic_run(fake.nic, 1);
	assert_int_equal(fake.tx_count, 4);
	fake_ack(&fake, q.qp, q.qp->attr.sq_psn + 2); /* the last one is still under way */
	assert_overrun(&fake, &q, 1);
	assert_polls(q.cq, 0, 1);
	fake_qp_destroy(&q);
	fake_finish(&fake);
}

static void test_overrun_while_posting(void **state)
{
	struct fake_qp q;
	struct fake fake;

	fake_init(&fake);
	fake_qp_create(&fake, &q, VB_QPT_UC, 1);
	fake_bring_to(q.qp, VB_QPS_SQE);
	post_sends(q.qp, 2); /* flushed at once */
	assert_overrun(&fake, &q, 1);
	fake_qp_destroy(&q);
	fake_finish(&fake);
}

static void test_busy_and_forget(void **state)
{
	struct vb_qp_init init;
	struct vb_cqe cqe = {0};
	struct fake_qp q;
	struct vb_qp *other;
	struct fake fake;

	fake_init(&fake);
	fake_qp_create(&fake, &q, VB_QPT_RC, 8);
	init = fake_qp_init(VB_QPT_RC, q.cq);
	other = vb_qp_create(q.pd, &init);
	assert_non_null(other);
	assert_int_equal(vb_cq_destroy(q.cq), -EBUSY);
	for (cqe.wr_id = 0; cqe.wr_id < 8; cqe.wr_id++) {
		cqe.qp = cqe.wr_id & 1 ? q.qp : other;
		vb_cq_push(q.cq, &cqe, NULL);
	}
	vb_qp_destroy(other);
	for (uint64_t id = 1; id < 8; id += 2) {
		assert_int_equal(vb_cq_poll(q.cq, &cqe, 1), 1);
		assert_int_equal(cqe.wr_id, id);
		assert_ptr_equal(cqe.qp, q.qp);
	}
	assert_int_equal(vb_cq_count(q.cq), 0);
	fake_qp_destroy(&q);
	fake_finish(&fake);
}

/* --- moderation (ibv_modify_cq(3)) ------------------------------------------------------- */

#define PERIOD 1000u

static void at(struct fixture *x, uint64_t now_ns)
{
	vb_nic_run(x->fake.nic, now_ns);
}

static void test_moderation_by_count(void **state)
{
	struct fixture x;

	set_up(&x, 16);
	vb_cq_moderate(x.cq, 3, 0);
	push(x.cq, 1);
	vb_cq_arm(x.cq, false); /* what is inside counts, once */
	vb_cq_arm(x.cq, false);
	push(x.cq, 2);
	assert_int_equal(x.fake.cq_events, 0);
	push(x.cq, 3);
	assert_int_equal(x.fake.cq_events, 1);
	push(x.cq, 4);
	push(x.cq, 5);
	push(x.cq, 6);
	push(x.cq, 7);
	assert_int_equal(x.fake.cq_events, 1); /* one event for each time that it is armed */
	vb_cq_arm(x.cq, false);
	push(x.cq, 8);
	assert_int_equal(vb_nic_deadline(x.fake.nic), VB_NEVER);
	vb_cq_moderate(x.cq, 0, 0); /* who waits for more need not any longer */
	assert_int_equal(x.fake.cq_events, 2);
	vb_cq_arm(x.cq, false);
	push(x.cq, 9);
	assert_int_equal(x.fake.cq_events, 3);
	tear_down(&x);
}

static void test_moderation_by_time(void **state)
{
	struct fixture x;
	uint64_t t0;

	set_up(&x, 16);
	at(&x, 5000);
	t0 = x.fake.nic->now_ns;
	vb_cq_moderate(x.cq, 10, PERIOD);
	vb_cq_arm(x.cq, false);
	assert_int_equal(vb_nic_deadline(x.fake.nic), VB_NEVER);
	push(x.cq, 1); /* the period begins */
	assert_int_equal(vb_nic_deadline(x.fake.nic), t0 + PERIOD);
	at(&x, t0 + PERIOD / 2);
	push(x.cq, 2);
	assert_int_equal(vb_nic_deadline(x.fake.nic), t0 + PERIOD);
	at(&x, t0 + PERIOD - 1);
	assert_int_equal(x.fake.cq_events, 0);
	at(&x, t0 + PERIOD);
	assert_int_equal(x.fake.cq_events, 1);
	assert_int_equal(vb_nic_deadline(x.fake.nic), VB_NEVER);
	at(&x, t0 + 10 * PERIOD);
	assert_int_equal(x.fake.cq_events, 1);
	tear_down(&x);
}

/* The count is reached first: the period is over with it. */
static void test_moderation_by_either(void **state)
{
	struct fixture x;

	set_up(&x, 16);
	vb_cq_moderate(x.cq, 2, PERIOD);
	vb_cq_arm(x.cq, false);
	push(x.cq, 1);
	push(x.cq, 2);
	assert_int_equal(x.fake.cq_events, 1);
	at(&x, x.fake.nic->now_ns + 2 * PERIOD);
	assert_int_equal(x.fake.cq_events, 1);
	tear_down(&x);
}

/* Several wait, each for its own time; one is destroyed meanwhile. */
static void test_moderation_of_several(void **state)
{
	struct vb_cq *other, *gone;
	struct fixture x;
	uint64_t t0;

	set_up(&x, 4);
	at(&x, 5000);
	t0 = x.fake.nic->now_ns;
	other = vb_cq_create(x.fake.nic, 4, NULL);
	gone = vb_cq_create(x.fake.nic, 4, NULL);
	vb_cq_moderate(x.cq, 0, 3 * PERIOD);
	vb_cq_moderate(other, 0, 2 * PERIOD);
	vb_cq_moderate(gone, 0, PERIOD);
	vb_cq_arm(x.cq, false);
	vb_cq_arm(other, true);
	vb_cq_arm(gone, false);
	push(x.cq, 1);
	push(other, 1); /* it waits for a solicited one */
	push(gone, 1);
	push_kind(other, true, VB_WC_SUCCESS);
	assert_int_equal(vb_cq_destroy(gone), 0);
	at(&x, t0 + PERIOD);
	assert_int_equal(x.fake.cq_events, 0);
	assert_int_equal(vb_nic_deadline(x.fake.nic), t0 + 2 * PERIOD);
	at(&x, t0 + 2 * PERIOD);
	assert_int_equal(x.fake.cq_events, 1);
	assert_int_equal(vb_nic_deadline(x.fake.nic), t0 + 3 * PERIOD);
	at(&x, t0 + 3 * PERIOD);
	assert_int_equal(x.fake.cq_events, 2);
	assert_int_equal(vb_nic_deadline(x.fake.nic), VB_NEVER);
	assert_int_equal(vb_cq_destroy(other), 0);
	tear_down(&x);
}

/* --- other kinds ------------------------------------------------------------------------- */

static void test_the_oldest_gives_way(void **state)
{
	struct fixture x;

	set_up(&x, 3);
	x.cq->overwrites = true;
	for (uint64_t id = 1; id <= 8; id++)
		push(x.cq, id);
	assert_int_equal(x.fake.event_count, 0);
	assert_false(x.cq->overrun);
	assert_polls(x.cq, 6, 3);
	tear_down(&x);
}

static void test_given_room(void **state)
{
	static _Alignas(VB_ROOM_ALIGN) uint8_t room[2][4096];
	struct vb_cq *cq;
	struct fixture x;

	set_up(&x, 1);
	assert_int_equal(vb_cq_room(0), 0);
	assert_int_equal(vb_cq_room(VB_MAX_CQE + 1), 0);
	assert_true(vb_cq_room(20) > 0 && vb_cq_room(20) <= sizeof(room[0]));
	memset(room[0] + vb_cq_room(20), 0xa5, sizeof(room[0]) - vb_cq_room(20));
	cq = vb_cq_create_in(x.fake.nic, 20, NULL, room[0]);
	assert_non_null(cq);
	for (uint64_t id = 0; id < 20; id++)
		push(cq, id);
	for (size_t i = vb_cq_room(20); i < sizeof(room[0]); i++)
		assert_int_equal(room[0][i], 0xa5);
	assert_int_equal(vb_cq_resize_in(cq, 19, room[1]), -EINVAL); /* and it stays where it is */
	assert_int_equal(vb_cq_resize_in(cq, 25, room[1]), 0);
	memset(room[0], 0xff, sizeof(room[0]));
	for (uint64_t id = 0; id < 20; id += 5) {
		struct vb_cqe out[5];

		assert_int_equal(vb_cq_poll(cq, out, 5), 5);
		assert_int_equal(out[4].wr_id, id + 4);
	}
	assert_int_equal(vb_cq_destroy(cq), 0);
	tear_down(&x);
}

#define MANY 200000u

static void *push_many(void *argument)
{
	struct vb_cq *cq = argument;

	for (uint64_t id = 0; id < MANY;) {
		if (vb_cq_count(cq) == cq->capacity) {
			sched_yield();
			continue;
		}
		push(cq, id++);
	}
	return NULL;
}

/* One reads while another writes: all of it comes, in order. */
static void test_a_reader_beside_the_writer(void **state)
{
	struct vb_cqe out[7];
	struct fixture x;
	pthread_t writer;
	uint64_t next = 0;
	bool in_order = true;

	set_up(&x, 64);
	x.cq->single = true;
	assert_int_equal(pthread_create(&writer, NULL, push_many, x.cq), 0);
	while (next < MANY) {
		int n = vb_cq_poll(x.cq, out, 7);

		for (int i = 0; i < n; i++)
			in_order &= out[i].wr_id == next++;
		if (n == 0)
			sched_yield();
	}
	assert_int_equal(pthread_join(writer, NULL), 0);
	assert_true(in_order);
	assert_int_equal(x.fake.event_count, 0);
	tear_down(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_create_limits),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_time_and_reason),
		cmocka_unit_test(test_arm),
		cmocka_unit_test(test_arm_behind_a_completion),
		cmocka_unit_test(test_arm_solicited_behind_a_completion),
		cmocka_unit_test(test_arm_solicited),
		cmocka_unit_test(test_resize),
		cmocka_unit_test(test_overrun_without_qp),
		cmocka_unit_test(test_overrun_while_sending),
		cmocka_unit_test(test_overrun_while_acknowledged),
		cmocka_unit_test(test_overrun_while_posting),
		cmocka_unit_test(test_busy_and_forget),
		cmocka_unit_test(test_moderation_by_count),
		cmocka_unit_test(test_moderation_by_time),
		cmocka_unit_test(test_moderation_by_either),
		cmocka_unit_test(test_moderation_of_several),
		cmocka_unit_test(test_the_oldest_gives_way),
		cmocka_unit_test(test_given_room),
		cmocka_unit_test(test_a_reader_beside_the_writer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
