/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket_wait.c - to sleep until something happens to an rsocket.
 *
 * Several threads may sleep on one rsocket, in rpoll() or in a blocking call. All of them look at
 * its descriptors, but the news that these tell can be read once. So:
 *
 *   - who is going to sleep arms the completion queue under the lock (also when it is armed: that
 *     is how an engine hears that nobody will poll), looks that what it waits for has not happened,
 *     and puts itself into the list of sleepers;
 *   - who takes in news, or changes the state, under the lock, wakes everybody in that list through
 *     their own eventfds; they look again, and arm again.
 *
 * What happens after the lock was given back is told by a descriptor, or by whoever read it.
 */
#include "rdmacm/rsocket.h"

#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static pthread_key_t sleeper_key;
static int sleeper_key_error;

static void close_sleeper(void *value)
{
	close((int)(intptr_t)value - 1);
}

static void make_key(void)
{
	sleeper_key_error = pthread_key_create(&sleeper_key, close_sleeper);
}

int vb_rs_sleeper_fd(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	intptr_t value;
	int fd;

	pthread_once(&once, make_key);
	if (sleeper_key_error)
		return -sleeper_key_error;
	value = (intptr_t)pthread_getspecific(sleeper_key);
	if (value)
		return (int)value - 1;
	fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	if (pthread_setspecific(sleeper_key, (void *)(intptr_t)(fd + 1)) != 0) {
		close(fd);
		return -ENOMEM;
	}
	return fd;
}

uint64_t vb_rs_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void vb_rs_wake(struct vb_rs *rs)
{
	struct vb_list *link, *tmp;

	vb_list_for_each(link, tmp, &rs->sleepers)
		eventfd_write(vb_list_entry(link, struct vb_rs_sleeper, link)->fd, 1);
}

void vb_rs_arm(struct vb_rs *rs)
{
	if (rs->type == SOCK_DGRAM) {
		vb_rs_datagram_arm(rs);
	} else if (rs->stream.cq) {
		vb_rs_probe(rs);
		ibv_req_notify_cq(rs->stream.cq, 0);
		vb_rs_progress(rs);
	}
}

int vb_rs_fds(struct vb_rs *rs, struct pollfd *fds)
{
	int count = 0;

	if (rs->type == SOCK_DGRAM)
		return vb_rs_datagram_fds(rs, fds);
	if (rs->state == VB_RS_LISTENING || vb_rs_is_opening(rs) || rs->state == VB_RS_CONNECTED)
		fds[count++] = (struct pollfd){rs->stream.channel->fd, POLLIN, 0};
	if (rs->stream.cq && rs->state == VB_RS_CONNECTED)
		fds[count++] = (struct pollfd){rs->stream.cq_channel->fd, POLLIN, 0};
	return count;
}

static void take_cq_events(struct vb_rs_stream *s)
{
	unsigned int count = 0;
	struct ibv_cq *cq;
	void *context;

	while (ibv_get_cq_event(s->cq_channel, &cq, &context) == 0)
		count++;
	if (count)
		ibv_ack_cq_events(s->cq, count);
}

void vb_rs_heed(struct vb_rs *rs, const struct pollfd *fds, int count)
{
	int i;

	if (rs->type == SOCK_DGRAM) {
		vb_rs_datagram_heed(rs, fds, count);
	} else {
		for (i = 0; i < count; i++) {
			if (!fds[i].revents)
				continue;
			if (rs->stream.cq && fds[i].fd == rs->stream.cq_channel->fd)
				take_cq_events(&rs->stream);
			else if (fds[i].fd == rs->stream.channel->fd)
				vb_rs_cm_events(rs);
		}
	}
	vb_rs_wake(rs);
}

/* Looks for as long as the administrator has it; true when the test came to hold. */
static bool look(struct vb_rs *rs, vb_rs_test *test)
{
	uint64_t end = vb_rs_now_ns() + vb_rs_config()->polling_us * 1000ull;

	do {
		pthread_mutex_unlock(&rs->lock);
		pthread_mutex_lock(&rs->lock);
		vb_rs_progress(rs);
		if (test(rs) || rs->closed)
			return true;
	} while (vb_rs_now_ns() < end);
	return false;
}

static int sleep_once(struct vb_rs *rs, int fd, int timeout_ms)
{
	struct vb_rs_sleeper sleeper = {.fd = fd};
	struct pollfd fds[VB_RS_FDS_MAX + 1];
	int count = vb_rs_fds(rs, fds);
	int result, error;
	eventfd_t value;

	fds[count] = (struct pollfd){fd, POLLIN, 0};
	vb_list_append(&rs->sleepers, &sleeper.link);
	pthread_mutex_unlock(&rs->lock);
	result = poll(fds, (nfds_t)count + 1, timeout_ms);
	error = errno;
	pthread_mutex_lock(&rs->lock);
	vb_list_remove(&sleeper.link);
	if (result < 0)
		return -error;
	if (result == 0)
		return 0;
	if (fds[count].revents)
		eventfd_read(fd, &value);
	vb_rs_heed(rs, fds, count);
	return 0;
}

int vb_rs_wait(struct vb_rs *rs, vb_rs_test *test, bool nonblocking, int timeout_ms)
{
	int longest_ms = (int)vb_rs_config()->wake_up_ms;
	uint64_t end = vb_rs_now_ns() + (uint64_t)(timeout_ms < 0 ? 0 : timeout_ms) * 1000000u;
	uint64_t now;
	int fd, left_ms, result = 0;

	vb_rs_progress(rs);
	if (test(rs))
		return 0;
	if (nonblocking)
		return -EAGAIN;
	look(rs, test);
	fd = vb_rs_sleeper_fd();
	if (fd < 0)
		return fd;
	for (;;) {
		vb_rs_arm(rs);
		if (test(rs))
			return 0;
		if (rs->closed)
			return -EBADF;
		if (result)
			return result;
		now = vb_rs_now_ns();
		if (timeout_ms >= 0 && now >= end)
			return -EAGAIN;
		left_ms = timeout_ms < 0 ? longest_ms : (int)((end - now) / 1000000u) + 1;
		result = sleep_once(rs, fd, left_ms < longest_ms ? left_ms : longest_ms);
		vb_rs_progress(rs);
	}
}
