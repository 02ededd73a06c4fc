/* SPDX-License-Identifier: BSD-2-Clause */
/* test_hold.c - what waits a moment for company, and for whom. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "host/hold.h"

#define QPN 0x17u
#define SOON 1000u

static uint64_t now_ns;

/* A message, and what the program does with it; returns whether the acknowledgement waited. */
static bool message(struct vb_hold *hold)
{
	now_ns += 1000 * 1000;
	return vb_hold_message(hold, QPN, now_ns, false);
}

static bool message_and_answer(struct vb_hold *hold)
{
	bool waits = message(hold);

	now_ns += SOON;
	assert_int_equal(vb_hold_answered(hold, QPN, now_ns), waits);
	vb_hold_end(hold);
	return waits;
}

static void be_steady(struct vb_hold *hold)
{
	for (unsigned int i = 0; i < VB_STEADY; i++)
		message_and_answer(hold);
}

static void nothing_waits_before_the_program_is_known(void **state)
{
	struct vb_hold hold = {0};

	for (unsigned int i = 0; i < VB_STEADY; i++) {
		assert_false(message_and_answer(&hold));
		assert_false(vb_hold_waits(&hold));
	}
	assert_true(message(&hold));
	assert_true(vb_hold_waits(&hold));
	assert_true(vb_hold_is_young(&hold, now_ns));
	assert_false(vb_hold_is_young(&hold, now_ns + VB_HOLD_NS));
}

typedef void act_fn(struct vb_hold *hold);

static void posts_late(struct vb_hold *hold)
{
	vb_hold_answered(hold, QPN, now_ns + VB_HOLD_NS);
}

static void posts_elsewhere(struct vb_hold *hold)
{
	vb_hold_answered(hold, QPN + 1, now_ns + SOON);
}

static void is_released(struct vb_hold *hold)
{
	vb_hold_end(hold);
}

/* Each takes the half away, and after half of it again the program is trusted again. */
static void whoever_does_not_answer_is_a_miss(void **state)
{
	static act_fn *const acts[] = {posts_late, posts_elsewhere, vb_hold_polled, is_released};

	for (unsigned int i = 0; i < VB_ARRAY_SIZE(acts); i++) {
		struct vb_hold hold = {0};

		be_steady(&hold);
		assert_true(message(&hold));
		acts[i](&hold);
		vb_hold_end(&hold);
		assert_false(vb_hold_waits(&hold));
		for (unsigned int k = 0; k < VB_STEADY / 2; k++)
			assert_false(message_and_answer(&hold));
		assert_true(message_and_answer(&hold));
	}
}

/* Three answers and then none, over and over: never is one late. */
static void a_short_rhythm_is_none(void **state)
{
	struct vb_hold hold = {0};

	for (unsigned int i = 0; i < 100; i++) {
		for (unsigned int k = 0; k < 3; k++)
			assert_false(message_and_answer(&hold));
		assert_false(message(&hold));
		vb_hold_polled(&hold);
	}
}

static void the_thread_tries_one_in_some(void **state)
{
	struct vb_hold hold = {0};

	for (unsigned int i = 1; i <= VB_TRY_EVERY; i++) {
		assert_int_equal(vb_hold_message(&hold, QPN, now_ns, true), i == VB_TRY_EVERY);
		assert_int_equal(vb_hold_answered(&hold, QPN, now_ns + SOON), i == VB_TRY_EVERY);
	}
	vb_hold_end(&hold);
	assert_true(message(&hold)); /* it was right */
}

/* Posts so many in a row; returns how many wait. */
static unsigned int posts(struct vb_hold *hold, unsigned int count)
{
	unsigned int waiting = 0;

	for (unsigned int i = 0; i < count; i++) {
		now_ns += SOON;
		if (vb_hold_post(hold, true, 0, now_ns))
			waiting++;
		else
			vb_hold_end(hold); /* it goes, and all before it */
	}
	assert_int_equal(vb_hold_waits(hold), hold->posts > 0);
	return waiting;
}

static void ends_row(struct vb_hold *hold)
{
	vb_hold_row_ends(hold, now_ns + SOON);
	vb_hold_end(hold);
}

static void rows_of_posts_wait(void **state)
{
	struct vb_hold hold = {0};

	for (unsigned int i = 0; i < VB_STEADY; i++) {
		assert_int_equal(posts(&hold, VB_ROW_FREE + 1), 0);
		assert_true(vb_hold_row_is_open(&hold));
		ends_row(&hold);
		assert_false(vb_hold_row_is_open(&hold));
	}
	assert_int_equal(posts(&hold, VB_HOLD_POSTS), VB_HOLD_POSTS); /* from the first on */
	assert_int_equal(posts(&hold, 1), 0);			      /* as many as may wait */
	assert_false(vb_hold_waits(&hold));
}

/* A few posts, then nothing for long, over and over: none is late. */
static void rows_that_end_in_a_pause_do_not(void **state)
{
	struct vb_hold hold = {0};

	for (unsigned int i = 0; i < 100; i++) {
		assert_int_equal(posts(&hold, VB_ROW_WIN - 1), 0);
		now_ns += VB_ROW_NS;
	}
}

static void what_may_not_wait_does_not(void **state)
{
	struct vb_hold hold = {0};

	hold.rows.hits = VB_STEADY;
	posts(&hold, VB_ROW_FREE);
	assert_true(vb_hold_post(&hold, true, 0, now_ns));
	assert_false(vb_hold_post(&hold, false, 0, now_ns));
}

/* A poll ended the row, although nobody said so. */
static void a_poll_ends_the_row(void **state)
{
	struct vb_hold hold = {0};

	posts(&hold, VB_ROW_FREE);
	assert_false(vb_hold_post(&hold, true, 1, now_ns));
	assert_false(vb_hold_row_is_open(&hold));
	posts(&hold, VB_ROW_FREE + 1);
	assert_true(vb_hold_row_is_open(&hold));
}

/* One that posted in rows, then one message, and looks elsewhere: the next is not late. */
static void rows_no_more(void **state)
{
	struct vb_hold hold = {0};

	hold.rows.hits = VB_STEADY;
	assert_true(vb_hold_post(&hold, true, 0, now_ns));
	now_ns += VB_ALARM_NS;
	vb_hold_row_ends(&hold, now_ns);
	vb_hold_end(&hold);
	assert_false(vb_hold_post(&hold, true, 0, now_ns));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_waits_before_the_program_is_known),
		cmocka_unit_test(whoever_does_not_answer_is_a_miss),
		cmocka_unit_test(a_short_rhythm_is_none),
		cmocka_unit_test(the_thread_tries_one_in_some),
		cmocka_unit_test(rows_of_posts_wait),
		cmocka_unit_test(rows_that_end_in_a_pause_do_not),
		cmocka_unit_test(what_may_not_wait_does_not),
		cmocka_unit_test(a_poll_ends_the_row),
		cmocka_unit_test(rows_no_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
