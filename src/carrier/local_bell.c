/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * local_bell.c - doorbells between processes, and sleeping until one rings.
 *
 *      sender                                 owner
 *      frame, then its mark
 *      word |= bit          (full barrier)    poll: summary = 0, word = 0 -> look into those rings
 *      summary |= word's bit
 *      armed? -> datagram, then armed = 0     arm: armed = n (full barrier), doorbells? -> stay up
 *                if it still is that n
 *
 * Either the sender sees armed, or the owner sees the doorbell: both store first and load then, in
 * one total order. A sender that is killed between two steps leaves a doorbell without a summary:
 * its frame is found with the next one, or goes the way of everything that the dead were saying.
 *
 * armed says that a datagram is needed, and is 0 only once one is under way: a sender that is
 * killed or stopped in between leaves it standing, and the next one wakes the owner. n is another
 * one each time, so that a sender who comes late with the 0 does not end a later sleep. Two who
 * see the same n both send, which costs the owner a look.
 *
 * The datagram goes to an abstract socket, which everybody in the network namespace can reach who
 * knows its random name. What it says is "look", and nothing in it is read.
 */
#include "carrier/local_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define DRAIN_MAX 64 /* datagrams that one disarm takes; a flood does not hold us */

/* Our wake-up socket under a random name, which goes into the segment. */
static int create_socket(struct vb_local *local)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	uint64_t secret[2];
	int length, r;

	if (getrandom(secret, sizeof(secret), 0) != (ssize_t)sizeof(secret))
		return -EIO;
	local->wake_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (local->wake_fd < 0)
		return -errno;
	length = snprintf(local->area->wake_name, VB_LOCAL_WAKE_NAME_MAX,
			  "verbena.%u.%016llx%016llx", local->slot, (unsigned long long)secret[0],
			  (unsigned long long)secret[1]);
	local->area->wake_length = (uint32_t)length;
	memcpy(&address.sun_path[1], local->area->wake_name, (size_t)length);
	if (bind(local->wake_fd, (struct sockaddr *)&address,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length))) {
		r = -errno;
		close(local->wake_fd);
		local->wake_fd = -1;
		return r;
	}
	return 0;
}

static int create_page(struct vb_local *local)
{
	uint32_t number;
	void *map;
	int r, fd = vb_registry_file_create(local->registry, VB_FILE_BELL, 0, VB_LOCAL_BELL_FILE,
					    VB_LOCAL_BELL_FILE, &number);

	if (fd < 0)
		return fd;
	r = vb_file_map(fd, VB_LOCAL_BELL_FILE, true, &map);
	if (r == 0) {
		local->bell = map;
		r = vb_registry_file_publish(local->registry, VB_FILE_BELL, 0, number);
	}
	if (r)
		vb_registry_file_abandon(local->registry, number);
	close(fd);
	return r;
}

int vb_local_bell_create(struct vb_local *local)
{
	struct epoll_event event = {.events = EPOLLIN};
	int r = create_page(local);

	if (r)
		return r;
	r = create_socket(local);
	if (r)
		return r;
	local->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (local->timer_fd < 0)
		return -errno;
	local->base.fd = epoll_create1(EPOLL_CLOEXEC);
	if (local->base.fd < 0)
		return -errno;
	if (epoll_ctl(local->base.fd, EPOLL_CTL_ADD, local->wake_fd, &event) ||
	    epoll_ctl(local->base.fd, EPOLL_CTL_ADD, local->timer_fd, &event))
		return -errno;
	return 0;
}

void vb_local_bell_finish(struct vb_local *local)
{
	if (local->base.fd >= 0)
		close(local->base.fd);
	if (local->timer_fd >= 0)
		close(local->timer_fd);
	if (local->wake_fd >= 0)
		close(local->wake_fd);
	if (local->bell)
		munmap(local->bell, VB_LOCAL_BELL_FILE);
}

/* Of an owner that sleeps, for the armed-th time. */
static void wake(struct vb_local *local, struct vb_local_peer *peer, uint32_t armed)
{
	const int shield = vb_local_shield();

	local->counters.wakeups_sent++;
	/* EAGAIN: its queue is full of wake-ups already. Anything else: nobody is there. */
	if (sendto(local->wake_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL,
		   (struct sockaddr *)&peer->wake, peer->wake_bytes) >= 0 ||
	    errno == EAGAIN || errno == EWOULDBLOCK)
		(void)__atomic_compare_exchange_n(&peer->bell->armed, &armed, 0, false,
						  __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	else
		peer->suspect = true;
	vb_local_unshield(shield);
}

void vb_local_bell_ring(struct vb_local *local, struct vb_local_peer *peer)
{
	struct vb_local_bell *bell = peer->bell;
	unsigned int w = local->slot / 64;
	uint64_t bit = 1ull << (local->slot % 64);
	uint32_t armed;

	if (peer->out.bell_busy) {
		/* The consumer lags: likely the last doorbell still stands, and looking leaves its
		 * cache line alone. The barrier puts the look behind the frame. */
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if ((__atomic_load_n(&bell->word[w], __ATOMIC_SEQ_CST) & bit) &&
		    (__atomic_load_n(&bell->summary, __ATOMIC_SEQ_CST) & 1u << w))
			return;
	}
	peer->out.bell_busy = __atomic_fetch_or(&bell->word[w], bit, __ATOMIC_SEQ_CST) & bit;
	if (!(__atomic_load_n(&bell->summary, __ATOMIC_SEQ_CST) & 1u << w))
		__atomic_fetch_or(&bell->summary, 1u << w, __ATOMIC_SEQ_CST);
	armed = __atomic_load_n(&bell->armed, __ATOMIC_SEQ_CST);
	if (armed)
		wake(local, peer, armed);
}

void vb_local_bell_leave(struct vb_local *local, struct vb_local_peer *peer)
{
	unsigned int w = local->slot / 64;

	__atomic_fetch_or(&peer->bell->word[w], 1ull << (local->slot % 64), __ATOMIC_SEQ_CST);
	__atomic_fetch_or(&peer->bell->summary, 1u << w, __ATOMIC_SEQ_CST);
}

void vb_local_bell_take(struct vb_local *local)
{
	uint32_t summary = __atomic_exchange_n(&local->bell->summary, 0, __ATOMIC_SEQ_CST) & 0xff;

	local->pending_summary |= summary;
	while (summary) {
		unsigned int w = (unsigned int)__builtin_ctz(summary);

		summary &= summary - 1;
		local->pending[w] |=
			__atomic_exchange_n(&local->bell->word[w], 0, __ATOMIC_SEQ_CST);
	}
}

bool vb_local_arm(struct vb_carrier *carrier)
{
	struct vb_local *local = vb_container_of(carrier, struct vb_local, base);
	uint64_t now_ms = vb_local_now_ms();
	bool sure;

	if (now_ms - local->swept_ms >= VB_LOCAL_SWEEP_MS)
		vb_local_sweep(local);
	if (local->waiting || local->retries) {
		/* Room comes with a doorbell, unless who owes it is dead: look again in a while. */
		struct itimerspec when = {.it_value.tv_nsec = VB_LOCAL_STALE_MS * 1000000L};

		(void)timerfd_settime(local->timer_fd, 0, &when, NULL);
	}
	__atomic_store_n(&local->bell->armed, local->arms << 1 | 1, __ATOMIC_SEQ_CST);
	sure = vb_local_unfollow_all(local);
	if (sure && !__atomic_load_n(&local->bell->summary, __ATOMIC_SEQ_CST) &&
	    !local->pending_summary && !local->room_due)
		return true;
	__atomic_store_n(&local->bell->armed, 0, __ATOMIC_SEQ_CST);
	return false;
}

void vb_local_disarm(struct vb_carrier *carrier)
{
	struct vb_local *local = vb_container_of(carrier, struct vb_local, base);
	uint64_t expirations;
	char byte;
	int i;

	__atomic_store_n(&local->bell->armed, 0, __ATOMIC_SEQ_CST);
	for (i = 0; i < DRAIN_MAX && recv(local->wake_fd, &byte, 1, MSG_DONTWAIT) >= 0; i++)
		;
	if (read(local->timer_fd, &expirations, sizeof(expirations)) > 0)
		local->waiting_polls = 0; /* the next poll looks after those who owe us room */
}
