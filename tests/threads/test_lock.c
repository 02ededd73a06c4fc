/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_lock.c - the engine's lock (host/lock.h): never two inside, whether it leans or not, and
 * nobody left asleep. It is run under ThreadSanitizer, and once without.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "host/host.h"
#include "host/lock.h"

#define UNTIL_IT_LEANS 200 /* more than lock.c wants at first */
#define ROUNDS 300u
#define ROW 400u

uint64_t vb_engine_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct vb_lock lock;
static uint64_t count; /* under the lock */

static int set_up(void **state)
{
	(void)state;
	lock = (struct vb_lock){0};
	vb_lock_init(&lock, true);
	count = 0;
	return 0;
}

static void *in_thread(void *(*run)(void *), void *arg)
{
	pthread_t thread;
	void *result;

	assert_int_equal(pthread_create(&thread, NULL, run, arg), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	return result;
}

static void lean_to_me(void)
{
	for (int i = 0; i < UNTIL_IT_LEANS; i++) {
		vb_lock_take(&lock);
		vb_lock_give(&lock);
	}
	assert_true(lock.may_lean);
	assert_non_null(lock.leans);
	assert_ptr_equal(lock.leans->who, &vb_lock_self);
}

static void *try_it(void *arg)
{
	bool *got = arg;

	*got = vb_lock_try(&lock);
	if (*got)
		vb_lock_give(&lock);
	return NULL;
}

static void *wait_a_moment(void *arg)
{
	bool *got = arg;

	*got = vb_lock_wait(&lock, 1000000);
	if (*got)
		vb_lock_give(&lock);
	return NULL;
}

static void leans_to_who_takes_it_again_and_again(void **state)
{
	(void)state;
	lean_to_me();
	vb_lock_take(&lock);
	assert_int_equal(lock.leans->inside, 1);
	assert_ptr_equal(lock.seat, lock.leans);
	vb_lock_give(&lock);
	assert_int_equal(lock.leans->inside, 0);
}

static void does_not_lean_where_it_must_not(void **state)
{
	(void)state;
	lock = (struct vb_lock){0};
	vb_lock_init(&lock, false);
	for (int i = 0; i < UNTIL_IT_LEANS; i++) {
		vb_lock_take(&lock);
		vb_lock_give(&lock);
	}
	assert_null(lock.leans);
}

static void another_one_wins_it_only_while_i_am_outside(void **state)
{
	bool got = true;

	(void)state;
	lean_to_me();
	vb_lock_take(&lock);
	in_thread(try_it, &got);
	assert_false(got);
	assert_non_null(lock.leans); /* as it was */
	vb_lock_give(&lock);
	in_thread(try_it, &got);
	assert_true(got);
	assert_null(lock.leans);
	assert_int_equal(lock.word, 0);
	assert_true(vb_lock_try(&lock));
	vb_lock_give(&lock);
}

static void a_wait_that_ends_leaves_all_as_it_was(void **state)
{
	bool got = true;

	(void)state;
	lean_to_me();
	vb_lock_take(&lock);
	in_thread(wait_a_moment, &got);
	assert_false(got);
	vb_lock_give(&lock);
	vb_lock_take(&lock);
	vb_lock_give(&lock);
	in_thread(wait_a_moment, &got);
	assert_true(got);
	assert_int_equal(lock.word, 0);
}

/* As in a handler of a signal that met its thread inside. */
static void the_one_inside_does_not_get_in_again(void **state)
{
	(void)state;
	lean_to_me();
	vb_lock_take(&lock);
	assert_false(vb_lock_try(&lock));
	assert_false(vb_lock_wait(&lock, 1000000));
	vb_lock_give(&lock);
	assert_true(vb_lock_try(&lock));
	vb_lock_give(&lock);
}

static void a_child_finds_it_free(void **state)
{
	(void)state;
	lean_to_me();
	vb_lock_take(&lock);
	vb_lock_reset(&lock);
	assert_true(vb_lock_try(&lock));
	assert_null(lock.seat);
	vb_lock_give(&lock);
}

static void *take_rows(void *arg)
{
	const unsigned int pause = *(const unsigned int *)arg;

	for (unsigned int i = 0; i < ROUNDS; i++) {
		for (unsigned int k = 0; k < ROW; k++) {
			vb_lock_take(&lock);
			count++;
			vb_lock_give(&lock);
		}
		for (unsigned int k = 0; k < pause; k++)
			sched_yield();
	}
	return NULL;
}

static void *take_now_and_then(void *arg)
{
	uint64_t *mine = arg;

	for (unsigned int i = 0; i < ROUNDS; i++) {
		if (vb_lock_try(&lock)) {
			count++;
			(*mine)++;
			vb_lock_give(&lock);
		}
		sched_yield();
	}
	return NULL;
}

static void never_are_two_inside(void **state)
{
	static const unsigned int pauses[] = {0, 3, 7};
	pthread_t rows[3], tries;
	uint64_t tried = 0;

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&rows[i], NULL, take_rows, (void *)&pauses[i]), 0);
	assert_int_equal(pthread_create(&tries, NULL, take_now_and_then, &tried), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_join(rows[i], NULL), 0);
	assert_int_equal(pthread_join(tries, NULL), 0);
	assert_true(count == 3ull * ROUNDS * ROW + tried);
}

/* More threads than seats, one after the other. */
static void more_threads_than_seats_share_it(void **state)
{
	static const unsigned int pause = 1;
	pthread_t threads[VB_LOCK_SEATS + 2];

	(void)state;
	for (int i = 0; i < VB_LOCK_SEATS + 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_rows, (void *)&pause), 0);
	for (int i = 0; i < VB_LOCK_SEATS + 2; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_true(count == (VB_LOCK_SEATS + 2ull) * ROUNDS * ROW);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(leans_to_who_takes_it_again_and_again, set_up),
		cmocka_unit_test_setup(does_not_lean_where_it_must_not, set_up),
		cmocka_unit_test_setup(another_one_wins_it_only_while_i_am_outside, set_up),
		cmocka_unit_test_setup(a_wait_that_ends_leaves_all_as_it_was, set_up),
		cmocka_unit_test_setup(the_one_inside_does_not_get_in_again, set_up),
		cmocka_unit_test_setup(a_child_finds_it_free, set_up),
		cmocka_unit_test_setup(never_are_two_inside, set_up),
		cmocka_unit_test_setup(more_threads_than_seats_share_it, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
