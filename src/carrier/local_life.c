/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * local_life.c - whether a peer is the process that it was, and runs the program that it ran, for a
 * load instead of a system call.
 *
 * A thread that lives as long as its process holds a robust mutex in the process's segment
 * (pthread_mutexattr_setrobust(3), set_robust_list(2)). When it ends, whatever the reason, the
 * kernel takes its number out of the mutex's word; by exec before the old memory goes, as exec ends
 * the other threads first. So a number in the word says that the memory behind what the process
 * published is still its own.
 *
 *      word   thread's number       alive
 *             0                     no such thread: ask the kernel for the slot's lock
 *             FUTEX_OWNER_DIED      ended: the same
 *
 * Nothing but the owner's thread and the kernel writes it; peers have the segment to read.
 */
#include "carrier/local_private.h"

#include <linux/futex.h>

void vb_local_live(struct vb_carrier *carrier)
{
	struct vb_local *local = vb_container_of(carrier, struct vb_local, base);
	pthread_mutexattr_t attr;

	if (pthread_mutexattr_init(&attr))
		return;
	if (pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED) == 0 &&
	    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST) == 0 &&
	    pthread_mutex_init(&local->area->life, &attr) == 0)
		(void)pthread_mutex_lock(&local->area->life);
	pthread_mutexattr_destroy(&attr);
}

void vb_local_live_no_more(struct vb_carrier *carrier)
{
	struct vb_local *local = vb_container_of(carrier, struct vb_local, base);

	if (vb_local_area_lives(local->area))
		(void)pthread_mutex_unlock(&local->area->life);
}

pid_t vb_local_area_thread(const struct vb_local_area *area)
{
#ifdef __GLIBC__ /* whose mutexes begin with the word */
	const uint32_t word =
		__atomic_load_n((const uint32_t *)(const void *)&area->life, __ATOMIC_ACQUIRE);

	return word & FUTEX_OWNER_DIED ? 0 : (pid_t)(word & FUTEX_TID_MASK);
#else
	return 0;
#endif
}
