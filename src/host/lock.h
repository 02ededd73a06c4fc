/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lock.h - the engine's lock: one compare-and-swap to take, one exchange to give back, a short spin
 * and then a futex where two threads meet.
 *
 *      0 free      1 held      2 held, and somebody may sleep on it
 *
 * Every attempt and every giving back has its place in the one order of the sequentially consistent
 * operations, on which vb_engine_give() builds. On x86 that costs nothing.
 *
 * Not a pthread mutex because every call of a program takes it, empty polls included, and half of
 * their cost would be the lock's.
 */
#ifndef VB_HOST_LOCK_H
#define VB_HOST_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct vb_lock {
	_Atomic uint32_t word;
};

/* vb_lock_wait - the slow way in; timeout_ns 0: for ever. False: the time is over. */
bool vb_lock_wait(struct vb_lock *lock, uint64_t timeout_ns);
/* vb_lock_wake - the slow way out. */
void vb_lock_wake(struct vb_lock *lock);

static inline bool vb_lock_try(struct vb_lock *lock)
{
	uint32_t free_word = 0;

	return atomic_compare_exchange_strong_explicit(&lock->word, &free_word, 1,
						       memory_order_seq_cst, memory_order_seq_cst);
}

static inline void vb_lock_take(struct vb_lock *lock)
{
	if (!vb_lock_try(lock))
		vb_lock_wait(lock, 0);
}

static inline void vb_lock_give(struct vb_lock *lock)
{
	if (atomic_exchange_explicit(&lock->word, 0, memory_order_seq_cst) == 2)
		vb_lock_wake(lock);
}

#endif
