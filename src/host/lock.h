/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lock.h - the engine's lock: one compare-and-swap to take, one exchange to give back, a short spin
 * and then a futex where two threads meet; and no atomic operation for a thread that it leans to.
 *
 *      word    0 free      1 held      2 held, and somebody may sleep on it
 *
 * Every attempt and every giving back has its place in the one order of the sequentially consistent
 * operations, on which vb_engine_give() builds. On x86 that costs nothing.
 *
 * Not a pthread mutex because every call of a program takes it, empty polls included, and half of
 * their cost would be the lock's.
 *
 * An atomic operation waits for every store before it, and of a program that posts these go to
 * lines that its peer's processor holds: the wait is longer than all the rest of the call. So a
 * lock that one thread has taken again and again leans to that thread: word stays held, and the
 * thread goes in and out by a store into a seat of its own.
 *
 *      the thread that it leans to             another one
 *      inside = 1                              leans = NULL
 *      leans still here? -> it is in           membarrier(2)
 *      ...                                     waits for inside = 0, and holds word, as it stands
 *      inside = 0
 *
 * There is no barrier between the two steps on the left: the one on the right makes it for both.
 * Whoever sees no change of leans there has stored inside before the barrier, and is waited for. A
 * seat is one thread's for ever, since a thread that was stopped between its two steps may clear
 * inside at any time later; where there is none left the lock does not lean. What is said of one
 * order holds for such a lock, too: who fails to get in saw somebody inside behind the barrier.
 *
 * Threads that meet often would pay for that, a few microseconds each time: where leaning ended
 * soon, it takes longer to begin again.
 */
#ifndef VB_HOST_LOCK_H
#define VB_HOST_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

#define VB_LOCK_SEATS 4

struct vb_lock_seat {
	const char *who; /* &vb_lock_self of its thread; NULL: nobody's */
	_Atomic uint32_t inside;
};

struct vb_lock {
	_Atomic uint32_t word;
	bool may_lean;
	_Atomic(struct vb_lock_seat *) leans;
	/* Of whoever is inside, and his alone: */
	struct vb_lock_seat *seat; /* by which he came; NULL: by word */
	const char *last;	   /* who came by word */
	uint32_t row;		   /* so often in a row ... */
	uint32_t row_wanted;	   /* ... until it leans to him */
	uint64_t since_ns;	   /* it leaned */
	struct vb_lock_seat seats[VB_LOCK_SEATS];
};

/* A thread's own byte, whose address tells it from all others that are alive. */
extern _Thread_local char vb_lock_self __attribute__((tls_model("initial-exec")));

/* vb_lock_init - may_lean: where the system can do that. */
void vb_lock_init(struct vb_lock *lock, bool may_lean);
/* vb_lock_reset - free, in a forked child: whoever else wanted it is not there. */
void vb_lock_reset(struct vb_lock *lock);

/* vb_lock_wait - the slow way in; timeout_ns 0: for ever. False: the time is over. */
bool vb_lock_wait(struct vb_lock *lock, uint64_t timeout_ns);
/* vb_lock_wake - the slow way out. */
void vb_lock_wake(struct vb_lock *lock);

/* Between lock.h and lock.c: */
/* vb_lock_win_over - takes a lock that leans to somebody, if he is outside. */
bool vb_lock_win_over(struct vb_lock *lock);
/* vb_lock_lean - to this thread, which is inside. */
void vb_lock_lean(struct vb_lock *lock);

/* vb_lock_try_seat - by the thread that it leans to. */
static inline bool vb_lock_try_seat(struct vb_lock *lock)
{
	struct vb_lock_seat *seat = atomic_load_explicit(&lock->leans, memory_order_acquire);

	if (!seat || seat->who != &vb_lock_self ||
	    atomic_load_explicit(&seat->inside, memory_order_relaxed))
		return false; /* inside: a signal met it there */
	atomic_store_explicit(&seat->inside, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(atomic_load_explicit(&lock->leans, memory_order_relaxed) != seat, 0)) {
		atomic_store_explicit(&seat->inside, 0, memory_order_release);
		return false;
	}
	lock->seat = seat;
	return true;
}

static inline bool vb_lock_try_word(struct vb_lock *lock)
{
	uint32_t free_word = 0;

	if (!atomic_compare_exchange_strong_explicit(&lock->word, &free_word, 1,
						     memory_order_seq_cst, memory_order_seq_cst))
		return false;
	lock->seat = NULL;
	return true;
}

/* vb_lock_try - by whoever has other things to do: it does not come to lean to him. */
static inline bool vb_lock_try(struct vb_lock *lock)
{
	if (vb_lock_try_seat(lock) || vb_lock_try_word(lock))
		return true;
	return atomic_load_explicit(&lock->leans, memory_order_seq_cst) && vb_lock_win_over(lock);
}

/* vb_lock_is_taken - a guess, for who may as well come later: it leans to somebody who is inside.
 */
static inline bool vb_lock_is_taken(struct vb_lock *lock)
{
	const struct vb_lock_seat *seat = atomic_load_explicit(&lock->leans, memory_order_acquire);

	return seat && atomic_load_explicit(&seat->inside, memory_order_relaxed);
}

static inline void vb_lock_take(struct vb_lock *lock)
{
	if (__builtin_expect(vb_lock_try_seat(lock), 1))
		return;
	if (!vb_lock_try_word(lock))
		vb_lock_wait(lock, 0);
	if (lock->last != &vb_lock_self) {
		lock->last = &vb_lock_self;
		lock->row = 0;
	} else if (++lock->row >= lock->row_wanted && lock->may_lean) {
		vb_lock_lean(lock);
	}
}

static inline void vb_lock_give(struct vb_lock *lock)
{
	struct vb_lock_seat *seat = lock->seat;

	if (__builtin_expect(seat != NULL, 1))
		atomic_store_explicit(&seat->inside, 0, memory_order_release);
	else if (atomic_exchange_explicit(&lock->word, 0, memory_order_seq_cst) == 2)
		vb_lock_wake(lock);
}

#endif
