/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * local_hazard.c - the owner's side of direct access: taking back what peers may be using.
 *
 *      initiator (local_direct.c)               owner
 *      hazard = {QP, rkey}   (full barrier)     entry = nothing
 *      entry right?                             full barrier
 *      target = ...          (full barrier)     every accessor's hazard: not this one, or dead,
 *      entry unchanged? -> copy                 or stopped, or wait
 *      hazard = 0
 *
 * Either the initiator sees that the entry is gone, or the owner sees the hazard. A process that
 * dies with a hazard set holds no slot any more and is skipped: the kernel frees its slot only
 * after its last thread, and with it a copy under way, has ended.
 *
 * One that was stopped (SIGSTOP, a debugger) with its hazard set may stay so for ever. But the
 * kernel stops a thread on its way into or out of a system call and never within
 * process_vm_writev(2): its copy is over, or has not begun. One that has not begun reads its target
 * when it begins, from a page that we may write. So:
 *
 *      target's lengths = 0 (full barrier); is every thread of it stopped? -> it copies no more
 *
 * A thread that is seen stopped behind the barrier has copied before, or will find the lengths 0,
 * or the entry changed. That what it copies next may be refused for nothing, should it have gone on
 * just then, is no harm: packets do it.
 *
 * Where the initiator copies by itself, in pages that both have mapped (local_share.c), it may be
 * stopped half way and go on later. It says so beforehand (sharing). Who takes a whole region back
 * need not wait for it: its pages are private again then, and what is still written goes to pages
 * that are nobody's. Others have to wait.
 *
 * Who is neither stopped nor done (frozen by a cgroup, or waiting for a page for long) is waited
 * for, VB_LOCAL_WITHDRAW_MS long, and then the owner is told -EBUSY.
 */
#include "carrier/local_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "carrier/clock.h"

#define LOOK_EVERY 8u /* rounds of waiting between two looks at whether it is stopped */

/* Maps the part of a peer's segment with the hazard. -ENOENT: there is no segment, so no access. */
static int open_watch(struct vb_local *local, unsigned int slot, struct vb_local_watch *watch)
{
	struct vb_file_header header;
	void *map;
	int r, fd = vb_registry_file_open(local->registry, VB_FILE_SEGMENT, (uint16_t)slot, 0,
					  VB_SEGMENT_BYTES, false, &header);

	if (fd < 0)
		return fd;
	r = vb_file_map(fd, VB_LOCAL_WATCH_BYTES, false, &map);
	close(fd);
	if (r == 0)
		watch->segment = map;
	return r;
}

/* Whether the process of slot is, as far as can be known, accessing what (mask, value) names. */
static bool is_accessing(struct vb_local *local, unsigned int slot, uint64_t mask, uint64_t value)
{
	struct vb_local_watch *watch = &local->watch[slot];
	const struct vb_local_area *area;
	bool found = true;
	int r = 0;

	pthread_mutex_lock(&local->watch_lock);
	if (watch->segment && vb_local_is_closed(watch->segment)) {
		munmap((void *)(uintptr_t)watch->segment, VB_LOCAL_WATCH_BYTES);
		watch->segment = NULL;
	}
	if (!watch->segment)
		r = open_watch(local, slot, watch);
	if (watch->segment) {
		area = (const void *)((const uint8_t *)watch->segment + VB_FILE_PAGE);
		found = (__atomic_load_n(&area->hazard, __ATOMIC_SEQ_CST) & mask) == value;
	}
	pthread_mutex_unlock(&local->watch_lock);
	if (r == -ENOENT)
		return false;
	return found && vb_registry_is_alive(local->registry, (uint16_t)slot);
}

/* --- stopped processes -------------------------------------------------------------------- */

/* Whether /proc is that of our PID namespace, so that a number there is the process we mean. */
static bool proc_is_ours(void)
{
	char text[16];
	ssize_t length = readlink("/proc/self", text, sizeof(text) - 1);

	if (length <= 0)
		return false;
	text[length] = '\0';
	return atoi(text) == getpid();
}

/* Of one thread: stopped, held by a debugger, or dead. */
static bool is_thread_stopped(int tasks, const char *tid)
{
	char path[64], text[512], *name_end;
	ssize_t length = -1;
	int fd;

	snprintf(path, sizeof(path), "%.16s/stat", tid);
	fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT; /* it ended: so did its copy */
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (length <= 0)
		return length < 0 && errno == ESRCH;
	text[length] = '\0';
	name_end = strrchr(text, ')');
	return name_end && name_end[1] == ' ' && name_end[2] && strchr("TtZXx", name_end[2]);
}

static bool are_all_threads_stopped(pid_t pid)
{
	bool all = true, any = false;
	struct dirent *entry;
	char path[48];
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	if (!tasks)
		return false;
	while (all && (entry = readdir(tasks)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		any = true;
		all = is_thread_stopped(dirfd(tasks), entry->d_name);
	}
	closedir(tasks);
	return any && all;
}

/* Makes what the process of slot is about to copy, if it is about to, nothing. *sharing: unless it
 * is one that it makes itself. */
static bool stop_copy(struct vb_local *local, unsigned int slot, bool *sharing)
{
	struct vb_file_header header;
	struct vb_local_bell *bell;
	void *map;
	int fd, r;

	fd = vb_registry_file_open(local->registry, VB_FILE_BELL, (uint16_t)slot, 0,
				   VB_LOCAL_BELL_FILE, true, &header);
	if (fd < 0)
		return false;
	r = header.pid_ns && header.pid_ns == vb_registry_pid_ns(local->registry)
		    ? vb_file_map(fd, VB_LOCAL_BELL_FILE, true, &map)
		    : -EXDEV;
	close(fd);
	if (r)
		return false;
	bell = map;
	__atomic_store_n(&bell->target[0].iov_len, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&bell->target[1].iov_len, 0, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*sharing = __atomic_load_n(&bell->sharing, __ATOMIC_SEQ_CST) != 0;
	munmap(map, VB_LOCAL_BELL_FILE);
	return true;
}

/* Whether the process of slot is stopped, and will copy nothing of what it began, or, with *worn
 * set, to shared pages alone. It keeps its lock all the while, so that its number stays its own. */
static bool is_stopped(struct vb_local *local, unsigned int slot, bool *worn)
{
	pid_t pid = vb_registry_pid(local->registry, (uint16_t)slot);
	bool sharing;

	if (pid <= 0 || slot == local->slot || !proc_is_ours() || !are_all_threads_stopped(pid) ||
	    !stop_copy(local, slot, &sharing) || !are_all_threads_stopped(pid) ||
	    vb_registry_pid(local->registry, (uint16_t)slot) != pid)
		return false;
	if (sharing && worn)
		*worn = true;
	return !sharing || worn;
}

/* --- waiting ------------------------------------------------------------------------------ */

static int wait_for_slot(struct vb_local *local, unsigned int slot, uint64_t mask, uint64_t value,
			 bool *worn, uint64_t end_ns)
{
	const struct timespec pause = {0, 20000};

	for (unsigned int round = 1; is_accessing(local, slot, mask, value); round++) {
		if (round % LOOK_EVERY == 0 && is_stopped(local, slot, worn))
			return 0;
		if (vb_clock_ns() > end_ns)
			return -EBUSY;
		nanosleep(&pause, NULL);
	}
	return 0;
}

int vb_local_wait_for_hazards(struct vb_local *local, uint64_t mask, uint64_t value, bool *worn)
{
	uint64_t end_ns = vb_clock_ns() + VB_LOCAL_WITHDRAW_MS * 1000000ull;
	int r = 0;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (unsigned int w = 0; w < 8; w++) {
		uint64_t slots = __atomic_load_n(&local->bell->accessors[w], __ATOMIC_SEQ_CST);

		for (; slots && r == 0; slots &= slots - 1)
			r = wait_for_slot(local, w * 64 + (unsigned int)__builtin_ctzll(slots),
					  mask, value, worn, end_ns);
	}
	return r;
}
