/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket_poll.c - rpoll() and rselect(), for rsockets and ordinary descriptors side by side.
 *
 * All are looked at; for as long as the administrator has it, again; then the thread sleeps on all
 * the descriptors, an rsocket's being those that tell of its news. News need not be what the caller
 * waits for (a credit, a step of connecting): then it goes round again.
 */
#define _GNU_SOURCE
#include "rdmacm/rsocket.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

/* One entry of the caller's, while rpoll() runs. */
struct entry {
	struct vb_rs *rs; /* NULL: an ordinary descriptor, or none */
	struct vb_rs_sleeper sleeper;
	int first, count; /* its descriptors among those that are slept on */
};

struct call {
	struct pollfd *fds; /* the caller's */
	nfds_t count;
	struct entry *entries;
	struct pollfd *sleep_fds;
	size_t sleep_room;
	bool ordinary; /* there is at least one ordinary descriptor */
};

static short stream_events(struct vb_rs *rs)
{
	short events = 0;

	switch (rs->state) {
	case VB_RS_NEW:
	case VB_RS_BOUND:
		return POLLOUT | POLLHUP;
	case VB_RS_FAILED:
		return POLLIN | POLLOUT | POLLERR | POLLHUP;
	case VB_RS_BROKEN:
	case VB_RS_ENDED:
		/* What came before the end is read before the end is told: programs stop at it. */
		events = POLLIN | POLLOUT | POLLRDHUP;
		if (rs->stream.unread)
			return events;
		return rs->state == VB_RS_ENDED ? events | POLLHUP : events | POLLHUP | POLLERR;
	case VB_RS_LISTENING:
	case VB_RS_RESOLVING_ADDRESS:
	case VB_RS_RESOLVING_ROUTE:
	case VB_RS_CONNECTING:
	case VB_RS_ACCEPTING:
	case VB_RS_CONNECTED:
		break;
	}
	if (vb_rs_readable(rs))
		events |= POLLIN;
	if (rs->state == VB_RS_CONNECTED && vb_rs_writable(rs))
		events |= POLLOUT;
	if (rs->state == VB_RS_CONNECTED && !rs->stream.read_open)
		events |= POLLRDHUP;
	return events;
}

/* What is true of an rsocket now; its lock is held. */
static short events_of(struct vb_rs *rs, short wanted)
{
	short events;

	if (rs->closed)
		return POLLNVAL;
	if (rs->type == SOCK_STREAM)
		events = stream_events(rs);
	else
		events = (vb_rs_datagram_readable(rs) ? POLLIN : 0) |
			 (vb_rs_datagram_writable(rs) ? POLLOUT : 0);
	if (events & POLLIN)
		events |= POLLRDNORM;
	if (events & POLLOUT)
		events |= POLLWRNORM;
	return events & (wanted | POLLERR | POLLHUP);
}

/* The same after a look at what is new, unless all that is wanted is known already. */
static short look_at(struct vb_rs *rs, short wanted)
{
	short events = events_of(rs, wanted);

	if ((events & wanted) == wanted && wanted)
		return events;
	vb_rs_progress(rs);
	return events_of(rs, wanted);
}

/* Ordinary descriptors, without waiting: the rsockets' places are left out. */
static int look_at_ordinary(struct call *call)
{
	int result;
	nfds_t i;

	if (!call->ordinary)
		return 0;
	for (i = 0; i < call->count; i++) {
		call->sleep_fds[i] = call->fds[i];
		if (call->entries[i].rs)
			call->sleep_fds[i].fd = -1;
	}
	result = poll(call->sleep_fds, call->count, 0);
	for (i = 0; i < call->count; i++)
		if (!call->entries[i].rs)
			call->fds[i].revents = result > 0 ? call->sleep_fds[i].revents : 0;
	return result < 0 ? -errno : result;
}

static int look_at_all(struct call *call)
{
	int ready = look_at_ordinary(call);
	nfds_t i;

	for (i = 0; ready >= 0 && i < call->count; i++) {
		struct vb_rs *rs = call->entries[i].rs;

		if (!rs)
			continue;
		pthread_mutex_lock(&rs->lock);
		call->fds[i].revents = look_at(rs, call->fds[i].events);
		pthread_mutex_unlock(&rs->lock);
		if (call->fds[i].revents)
			ready++;
	}
	return ready;
}

static int make_room(struct call *call, size_t needed)
{
	struct pollfd *bigger;

	if (needed <= call->sleep_room)
		return 0;
	bigger = realloc(call->sleep_fds, 2 * needed * sizeof(*bigger));
	if (!bigger)
		return -ENOMEM;
	call->sleep_fds = bigger;
	call->sleep_room = 2 * needed;
	return 0;
}

/* Arms everything and enters the lists of sleepers. Returns how many descriptors are to be slept
 * on; 0 when something came to be ready, which is in the caller's entries then. */
static int lie_down(struct call *call, int fd)
{
	int count = 0, result = make_room(call, call->count + 1);
	bool ready = false;
	nfds_t i;

	for (i = 0; result == 0 && i < call->count; i++) {
		struct entry *entry = &call->entries[i];
		struct vb_rs *rs = entry->rs;

		entry->first = count;
		if (!rs) {
			call->sleep_fds[count++] =
				(struct pollfd){call->fds[i].fd, call->fds[i].events, 0};
			continue;
		}
		result = make_room(call, (size_t)count + VB_RS_FDS_MAX + (call->count - i) + 1);
		if (result)
			break;
		pthread_mutex_lock(&rs->lock);
		vb_rs_arm(rs);
		call->fds[i].revents = events_of(rs, call->fds[i].events);
		ready |= call->fds[i].revents != 0;
		entry->count = vb_rs_fds(rs, call->sleep_fds + count);
		count += entry->count;
		entry->sleeper.fd = fd;
		vb_list_append(&rs->sleepers, &entry->sleeper.link);
		pthread_mutex_unlock(&rs->lock);
	}
	if (result)
		return result;
	call->sleep_fds[count++] = (struct pollfd){fd, POLLIN, 0};
	return ready ? 0 : count;
}

static void get_up(struct call *call, bool told)
{
	nfds_t i;

	for (i = 0; i < call->count; i++) {
		struct entry *entry = &call->entries[i];
		struct vb_rs *rs = entry->rs;
		bool some = false;
		int k;

		if (!rs)
			continue;
		for (k = 0; told && k < entry->count; k++)
			some |= call->sleep_fds[entry->first + k].revents != 0;
		pthread_mutex_lock(&rs->lock); /* other sleepers write into our link */
		vb_list_remove(&entry->sleeper.link);
		if (some)
			vb_rs_heed(rs, call->sleep_fds + entry->first, entry->count);
		pthread_mutex_unlock(&rs->lock);
	}
}

/* Sleeps once, up to timeout_ms. */
static int sleep_once(struct call *call, int timeout_ms)
{
	int fd = vb_rs_sleeper_fd();
	int result = 0, count;
	eventfd_t value;

	if (fd < 0)
		return fd;
	count = lie_down(call, fd);
	if (count > 0) {
		result = poll(call->sleep_fds, (nfds_t)count, timeout_ms);
		if (result < 0)
			result = -errno;
		else if (call->sleep_fds[count - 1].revents)
			eventfd_read(fd, &value);
	}
	get_up(call, count > 0 && result > 0);
	return count < 0 ? count : result < 0 ? result : 0;
}

static int run(struct call *call, int timeout_ms)
{
	const struct vb_rs_config *config = vb_rs_config();
	uint64_t start = vb_rs_now_ns(), now, left;
	int result;

	for (;;) {
		result = look_at_all(call);
		now = vb_rs_now_ns();
		if (result || timeout_ms == 0)
			return result;
		if (timeout_ms > 0 && now - start >= (uint64_t)timeout_ms * 1000000u)
			return 0;
		if (now - start < config->polling_us * 1000ull)
			continue;
		left = config->wake_up_ms;
		if (timeout_ms > 0) {
			uint64_t rest = timeout_ms - (now - start) / 1000000u;

			left = rest < left ? rest : left;
		}
		result = sleep_once(call, (int)left);
		if (result < 0)
			return result;
	}
}

int rpoll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	struct call call = {.fds = fds, .count = nfds};
	bool some = false;
	long result;
	nfds_t i;

	call.entries = calloc(nfds + 1, sizeof(*call.entries));
	if (!call.entries)
		return (int)vb_rs_result(-ENOMEM);
	for (i = 0; i < nfds; i++) {
		call.entries[i].rs = vb_rs_find(fds[i].fd);
		vb_list_init(&call.entries[i].sleeper.link);
		some |= call.entries[i].rs != NULL;
		call.ordinary |= !call.entries[i].rs && fds[i].fd >= 0;
		fds[i].revents = 0;
	}
	if (!some) {
		free(call.entries);
		return poll(fds, nfds, timeout);
	}
	result = make_room(&call, nfds + 1);
	if (!result)
		result = run(&call, timeout < 0 ? -1 : timeout);
	for (i = 0; i < nfds; i++)
		if (call.entries[i].rs)
			vb_rs_put(call.entries[i].rs);
	free(call.entries);
	free(call.sleep_fds);
	return (int)vb_rs_result(result);
}

/* The sets as entries for rpoll(); returns how many. */
static nfds_t to_entries(int count, const fd_set *readable, const fd_set *writable,
			 const fd_set *exceptional, struct pollfd *fds)
{
	nfds_t used = 0;
	int fd;

	for (fd = 0; fd < count; fd++) {
		short events = (short)((readable && FD_ISSET(fd, readable) ? POLLIN : 0) |
				       (writable && FD_ISSET(fd, writable) ? POLLOUT : 0) |
				       (exceptional && FD_ISSET(fd, exceptional) ? POLLPRI : 0));

		if (events)
			fds[used++] = (struct pollfd){fd, events, 0};
	}
	return used;
}

/* Sets again, of what was asked for and is so; returns how many bits. */
static int to_sets(const struct pollfd *fds, nfds_t count, fd_set *readable, fd_set *writable,
		   fd_set *exceptional)
{
	int bits = 0;
	nfds_t i;

	if (readable)
		FD_ZERO(readable);
	if (writable)
		FD_ZERO(writable);
	if (exceptional)
		FD_ZERO(exceptional);
	for (i = 0; i < count; i++) {
		const struct pollfd *f = &fds[i];

		if ((f->events & POLLIN) && (f->revents & (POLLIN | POLLHUP | POLLERR))) {
			FD_SET(f->fd, readable);
			bits++;
		}
		if ((f->events & POLLOUT) && (f->revents & (POLLOUT | POLLERR))) {
			FD_SET(f->fd, writable);
			bits++;
		}
		if ((f->events & POLLPRI) && (f->revents & POLLPRI)) {
			FD_SET(f->fd, exceptional);
			bits++;
		}
	}
	return bits;
}

/* In whole milliseconds, rounded up: to wait for less than asked is worse than for more. */
static int milliseconds(const struct timeval *timeout)
{
	int64_t ms;

	if (!timeout)
		return -1;
	ms = (int64_t)timeout->tv_sec * 1000 + (timeout->tv_usec + 999) / 1000;
	return ms > 0x7fffffff ? 0x7fffffff : (int)ms;
}

int rselect(int count, fd_set *readable, fd_set *writable, fd_set *exceptional,
	    struct timeval *timeout)
{
	uint64_t start = vb_rs_now_ns(), wait_us, took_us;
	struct pollfd *fds;
	nfds_t used, i;
	int result;

	if (count < 0 || count > FD_SETSIZE ||
	    (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0)))
		return (int)vb_rs_result(-EINVAL);
	fds = calloc((size_t)count + 1, sizeof(*fds));
	if (!fds)
		return (int)vb_rs_result(-ENOMEM);
	used = to_entries(count, readable, writable, exceptional, fds);
	result = rpoll(fds, used, milliseconds(timeout));
	for (i = 0; result > 0 && i < used; i++) {
		if (fds[i].revents & POLLNVAL) {
			free(fds);
			return (int)vb_rs_result(-EBADF);
		}
	}
	if (result >= 0)
		result = to_sets(fds, used, readable, writable, exceptional);
	free(fds);
	if (timeout) { /* as Linux does: what is left of it */
		wait_us = (uint64_t)timeout->tv_sec * 1000000u + (uint64_t)timeout->tv_usec;
		took_us = (vb_rs_now_ns() - start) / 1000u;
		wait_us = took_us < wait_us ? wait_us - took_us : 0;
		timeout->tv_sec = (time_t)(wait_us / 1000000u);
		timeout->tv_usec = (suseconds_t)(wait_us % 1000000u);
	}
	return result;
}
