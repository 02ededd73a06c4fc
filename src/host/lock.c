/* SPDX-License-Identifier: BSD-2-Clause */
/* lock.c - the slow ways of lock.h. */
#include "host/lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "host/host.h"

/* About as long as a short call holds the lock; longer means a copy, and then sleeping is cheaper.
 */
#define SPINS 200

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

bool vb_lock_wait(struct vb_lock *lock, uint64_t timeout_ns)
{
	uint64_t deadline = timeout_ns ? vb_engine_now() + timeout_ns : 0;

	for (int i = 0; i < SPINS; i++) {
		if (atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 &&
		    vb_lock_try(lock))
			return true;
		relax();
	}
	while (atomic_exchange_explicit(&lock->word, 2, memory_order_seq_cst) != 0) {
		struct timespec left, *until = NULL;
		uint64_t now;

		if (deadline) {
			now = vb_engine_now();
			if (now >= deadline)
				return false;
			left.tv_sec = (time_t)((deadline - now) / 1000000000u);
			left.tv_nsec = (long)((deadline - now) % 1000000000u);
			until = &left;
		}
		syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2, until, NULL, 0);
	}
	return true;
}

void vb_lock_wake(struct vb_lock *lock)
{
	syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
