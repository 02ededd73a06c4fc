/* SPDX-License-Identifier: BSD-2-Clause */
/* lock.c - the slow ways of lock.h. */
#include "host/lock.h"

#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "host/host.h"

/* About as long as a short call holds the lock; longer means a copy, and then sleeping is cheaper.
 */
#define SPINS 200
#define NAP_NS 20000   /* while the one that it leaned to copies */
#define ROW_FIRST 128u /* times in a row, until it leans */
#define ROW_MAX 65536u
#define SOON_NS 200000u	   /* leaning that ends so soon did not pay */
#define SURELY_NS 10000000 /* in which a processor has written what it stored */

_Thread_local char vb_lock_self;

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* A thread that takes the lock is at no cancellation point. */
static void nap(long ns)
{
	const struct timespec time = {.tv_nsec = ns};

	syscall(SYS_nanosleep, &time, NULL);
}

/* 0 or a timeout of the futex. False: the deadline is over. */
static bool time_left(uint64_t deadline, struct timespec *left)
{
	uint64_t now;

	if (!deadline)
		return true;
	now = vb_engine_now();
	if (now >= deadline)
		return false;
	left->tv_sec = (time_t)((deadline - now) / 1000000000u);
	left->tv_nsec = (long)((deadline - now) % 1000000000u);
	return true;
}

/* --- leaning ----------------------------------------------------------------------------- */

void vb_lock_init(struct vb_lock *lock, bool may_lean)
{
	lock->may_lean = may_lean && syscall(SYS_membarrier,
					     MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
	lock->row_wanted = ROW_FIRST;
}

void vb_lock_reset(struct vb_lock *lock)
{
	atomic_store(&lock->leans, NULL);
	atomic_store(&lock->word, 0);
}

static struct vb_lock_seat *seat_of_mine(struct vb_lock *lock)
{
	for (unsigned int i = 0; i < VB_LOCK_SEATS; i++) {
		struct vb_lock_seat *seat = &lock->seats[i];

		if (!seat->who)
			seat->who = &vb_lock_self;
		if (seat->who == &vb_lock_self)
			return seat;
	}
	return NULL;
}

/* Who wants to sleep stores 2 and then looks whether it leans; we the other way round. */
void vb_lock_lean(struct vb_lock *lock)
{
	struct vb_lock_seat *seat = seat_of_mine(lock), *expected = seat;

	lock->row = 0;
	if (!seat)
		return;
	lock->since_ns = vb_engine_now();
	atomic_store_explicit(&seat->inside, 1, memory_order_relaxed);
	atomic_store_explicit(&lock->leans, seat, memory_order_seq_cst);
	lock->seat = seat;
	if (atomic_load_explicit(&lock->word, memory_order_seq_cst) != 2)
		return;
	/* Somebody sleeps already, or is about to; he, or another one, may have won it meanwhile.
	 */
	if (!atomic_compare_exchange_strong(&lock->leans, &expected, NULL))
		return;
	lock->seat = NULL;
	atomic_store_explicit(&seat->inside, 0, memory_order_release);
}

/* The barrier that both sides need. Where the system forbids it meanwhile, time makes it. */
static void meet(void)
{
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
		nap(SURELY_NS);
}

/* wait_outside - until the one that it leaned to is. */
static bool wait_outside(struct vb_lock_seat *seat, bool patient, uint64_t deadline)
{
	struct timespec left;

	for (int i = 0; atomic_load_explicit(&seat->inside, memory_order_acquire); i++) {
		if (!patient || !time_left(deadline, &left))
			return false;
		if (i < SPINS)
			relax();
		else
			nap(NAP_NS);
	}
	return true;
}

/* win_over - patient: until the deadline, or as long as it takes. Without success all is as it was,
 * but for those who went to sleep meanwhile: they are to look again. */
static bool win_over(struct vb_lock *lock, bool patient, uint64_t deadline)
{
	struct vb_lock_seat *seat = atomic_load_explicit(&lock->leans, memory_order_seq_cst);
	bool soon;

	if (!seat || !atomic_compare_exchange_strong(&lock->leans, &seat, NULL))
		return false;
	meet();
	if (!wait_outside(seat, patient, deadline)) {
		atomic_store(&lock->leans, seat);
		atomic_store(&lock->word, 1);
		syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
		return false;
	}
	soon = vb_engine_now() - lock->since_ns < SOON_NS;
	lock->row_wanted = soon ? VB_MIN(2 * lock->row_wanted, ROW_MAX) : ROW_FIRST;
	lock->last = NULL;
	lock->seat = NULL;
	return true;
}

bool vb_lock_win_over(struct vb_lock *lock)
{
	return win_over(lock, false, 0);
}

/* --- waiting ----------------------------------------------------------------------------- */

bool vb_lock_wait(struct vb_lock *lock, uint64_t timeout_ns)
{
	const uint64_t deadline = timeout_ns ? vb_engine_now() + timeout_ns : 0;
	struct timespec left;

	for (int i = 0; i < SPINS; i++) {
		if (atomic_load_explicit(&lock->leans, memory_order_relaxed))
			break;
		if (atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 &&
		    vb_lock_try_word(lock))
			return true;
		relax();
	}
	while (atomic_exchange_explicit(&lock->word, 2, memory_order_seq_cst) != 0) {
		if (win_over(lock, true, deadline))
			return true;
		if (!time_left(deadline, &left))
			return false;
		if (atomic_load_explicit(&lock->leans, memory_order_seq_cst))
			continue;
		syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2, deadline ? &left : NULL,
			NULL, 0);
	}
	lock->seat = NULL;
	return true;
}

void vb_lock_wake(struct vb_lock *lock)
{
	syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
