/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * slots.c - who is alive: POSIX record locks on single bytes of the file `reg`.
 *
 *      byte 1 .. 510   a slot, held from join to the process's end
 *      byte 600        the registry's lock, held for moments
 *
 * The kernel frees a lock when its process dies or executes another program, a forked child does
 * not inherit it, and F_GETLK names the holder in the asker's own PID namespace: no word in shared
 * memory has to be believed. A process never conflicts with its own locks, so the callers compare
 * with their own slot first.
 */
#include "registry/registry_private.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define FIRST_SLOT 1u
#define SLOT_COUNT (VB_REGISTRY_SLOTS - 1u) /* 1 .. 510 */
#define RANDOM_TRIES 32

static int set_lock(int reg_fd, unsigned int byte, short type)
{
	struct flock lock = {
		.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};

	while (fcntl(reg_fd, F_SETLK, &lock)) {
		if (errno == EACCES || errno == EAGAIN)
			return -EAGAIN;
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

int vb_slot_try(int reg_fd, unsigned int byte)
{
	return set_lock(reg_fd, byte, F_WRLCK);
}

void vb_slot_release(int reg_fd, unsigned int byte)
{
	(void)set_lock(reg_fd, byte, F_UNLCK);
}

bool vb_slot_holder(int reg_fd, unsigned int first, unsigned int count, pid_t *pid)
{
	struct flock lock = {.l_type = F_WRLCK,
			     .l_whence = SEEK_SET,
			     .l_start = (off_t)first,
			     .l_len = (off_t)count};

	if (pid)
		*pid = 0;
	if (fcntl(reg_fd, F_GETLK, &lock))
		return errno == ENOMEM || errno == ENOLCK; /* not known: better taken than stolen */
	if (lock.l_type == F_UNLCK)
		return false;
	if (pid && lock.l_pid > 0)
		*pid = lock.l_pid;
	return true;
}

int vb_slot_take_random(int reg_fd)
{
	uint16_t chosen[RANDOM_TRIES];
	unsigned int i, start;
	int r;

	if (getrandom(chosen, sizeof(chosen), 0) != (ssize_t)sizeof(chosen))
		return -EIO;
	for (i = 0; i < RANDOM_TRIES; i++) {
		unsigned int slot = FIRST_SLOT + chosen[i] % SLOT_COUNT;

		r = vb_slot_try(reg_fd, slot);
		if (r != -EAGAIN)
			return r ? r : (int)slot;
	}
	start = chosen[0] % SLOT_COUNT; /* nearly all are taken: look at each */
	for (i = 0; i < SLOT_COUNT; i++) {
		unsigned int slot = FIRST_SLOT + (start + i) % SLOT_COUNT;

		r = vb_slot_try(reg_fd, slot);
		if (r != -EAGAIN)
			return r ? r : (int)slot;
	}
	return -ENOSPC;
}

int vb_slot_wait(int reg_fd, unsigned int byte, unsigned int wait_ms)
{
	struct timespec now, pause = {0, 20000};
	int64_t end_ms;

	clock_gettime(CLOCK_MONOTONIC, &now);
	end_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + wait_ms;
	for (;;) {
		int r = vb_slot_try(reg_fd, byte);

		if (r != -EAGAIN)
			return r;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 >= end_ms)
			return -ETIMEDOUT;
		/* F_SETLKW would wait for ever for a holder that was stopped. */
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 1000000)
			pause.tv_nsec *= 2;
	}
}
