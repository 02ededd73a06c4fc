/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket_epoll.c - repoll_create(), repoll_ctl() and repoll_wait() (node RDMACM_1.5): sets of
 * rsockets and ordinary descriptors that are waited for, with the arguments and errors of epoll(7).
 *
 * A set is a list that repoll_wait() hands to rpoll(), behind an eventfd: its number is the set's,
 * and it is written when the list changes, so that who waits looks at the new one. Events are
 * level-triggered; EPOLLONESHOT is kept. It ends with rclose().
 *
 * The header may have these calls: so they have other names here, and their own where programs look
 * for them.
 */
#define _GNU_SOURCE
#include "rdmacm/rsocket.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define NEWER(name) __asm__(name) __attribute__((visibility("default")))

/* What epoll and poll both know, by the same numbers. */
#define EVENTS (POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLERR | POLLHUP)
_Static_assert((int)EPOLLIN == POLLIN && (int)EPOLLOUT == POLLOUT && (int)EPOLLPRI == POLLPRI &&
		       (int)EPOLLRDHUP == POLLRDHUP && (int)EPOLLERR == POLLERR &&
		       (int)EPOLLHUP == POLLHUP,
	       "epoll's events");

struct member {
	int fd;
	bool spent; /* EPOLLONESHOT: until it is changed */
	struct epoll_event event;
};

struct set {
	struct vb_list link;
	int fd;
	unsigned int users; /* calls under way, and the descriptor */
	struct member *members;
	size_t count, room;
	size_t first; /* where the next look for events begins, so that none is left out for ever */
};

int create(int flags) NEWER("repoll_create");
int control(int set_fd, int op, int fd, struct epoll_event *event) NEWER("repoll_ctl");
int wait_for(int set_fd, struct epoll_event *events, int max, int timeout) NEWER("repoll_wait");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all sets, and what is in them */
static struct vb_list sets = {&sets, &sets};

static struct set *find_set(int fd)
{
	struct vb_list *link, *next;

	vb_list_for_each(link, next, &sets)
	{
		struct set *set = vb_list_entry(link, struct set, link);

		if (set->fd == fd)
			return set;
	}
	return NULL;
}

/* Under the lock. */
static void put(struct set *set)
{
	if (--set->users)
		return;
	close(set->fd);
	free(set->members);
	free(set);
}

int create(int flags)
{
	struct set *set;

	if (flags & ~(O_CLOEXEC | O_NONBLOCK))
		return (int)vb_rs_result(-EINVAL);
	set = calloc(1, sizeof(*set));
	if (!set)
		return (int)vb_rs_result(-ENOMEM);
	set->fd = eventfd(0, EFD_NONBLOCK | (flags & O_CLOEXEC ? EFD_CLOEXEC : 0));
	if (set->fd < 0) {
		free(set);
		return -1;
	}
	set->users = 1;
	pthread_mutex_lock(&lock);
	vb_list_append(&sets, &set->link);
	pthread_mutex_unlock(&lock);
	return set->fd;
}

static void tell(const struct set *set)
{
	static const uint64_t one = 1;
	ssize_t written = write(set->fd, &one, sizeof(one));

	(void)written; /* full, it tells all the same */
}

bool vb_rs_close_set(int fd)
{
	struct set *set;

	pthread_mutex_lock(&lock);
	set = find_set(fd);
	if (set) {
		vb_list_remove(&set->link);
		tell(set);
		put(set);
	}
	pthread_mutex_unlock(&lock);
	return set != NULL;
}

/* --- what is in it ----------------------------------------------------------------------- */

static struct member *find_member(struct set *set, int fd)
{
	for (size_t i = 0; i < set->count; i++)
		if (set->members[i].fd == fd)
			return &set->members[i];
	return NULL;
}

static void drop_member(struct set *set, struct member *member)
{
	*member = set->members[--set->count];
}

static int add_member(struct set *set, int fd, const struct epoll_event *event)
{
	if (set->count == set->room) {
		size_t room = set->room ? 2 * set->room : 16;
		struct member *members = realloc(set->members, room * sizeof(*members));

		if (!members)
			return -ENOMEM;
		set->members = members;
		set->room = room;
	}
	set->members[set->count++] = (struct member){.fd = fd, .event = *event};
	return 0;
}

static int change(struct set *set, int op, int fd, const struct epoll_event *event)
{
	struct member *member = find_member(set, fd);

	if (op == EPOLL_CTL_ADD)
		return member ? -EEXIST : add_member(set, fd, event);
	if (!member)
		return -ENOENT;
	if (op == EPOLL_CTL_DEL) {
		drop_member(set, member);
	} else {
		member->event = *event;
		member->spent = false;
	}
	return 0;
}

static bool is_open(int fd)
{
	struct vb_rs *rs = vb_rs_find(fd);

	if (rs)
		vb_rs_put(rs);
	return rs || fcntl(fd, F_GETFD) >= 0;
}

int control(int set_fd, int op, int fd, struct epoll_event *event)
{
	int result = -EBADF;
	struct set *set;

	if (!is_open(fd))
		return (int)vb_rs_result(-EBADF);
	if ((op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD && op != EPOLL_CTL_DEL) || fd == set_fd)
		return (int)vb_rs_result(-EINVAL);
	if (op != EPOLL_CTL_DEL && !event)
		return (int)vb_rs_result(-EFAULT);
	pthread_mutex_lock(&lock);
	set = find_set(set_fd);
	if (set) {
		result = change(set, op, fd, event);
		tell(set);
	}
	pthread_mutex_unlock(&lock);
	return (int)vb_rs_result(result);
}

/* --- waiting ----------------------------------------------------------------------------- */

/* The set's own descriptor first. NULL: no memory. */
static struct pollfd *list(const struct set *set, nfds_t *count)
{
	struct pollfd *fds = calloc(set->count + 1, sizeof(*fds));

	if (!fds)
		return NULL;
	fds[0] = (struct pollfd){set->fd, POLLIN, 0};
	for (size_t i = 0; i < set->count; i++) {
		const struct member *m = &set->members[i];

		fds[i + 1].fd = m->spent ? -1 : m->fd;
		fds[i + 1].events = (short)(m->event.events & EVENTS);
	}
	*count = set->count + 1;
	return fds;
}

static const struct pollfd *find_ready(const struct pollfd *fds, nfds_t count, int fd)
{
	for (nfds_t i = 1; i < count; i++)
		if (fds[i].fd == fd && fds[i].revents)
			return &fds[i];
	return NULL;
}

/* Under the lock: the list may have changed meanwhile. Returns how many events. */
static int collect(struct set *set, const struct pollfd *fds, nfds_t count,
		   struct epoll_event *events, int max)
{
	size_t looked = 0, i = set->count ? set->first % set->count : 0;
	int found = 0;

	while (looked < set->count && found < max) {
		struct member *m = &set->members[i % set->count];
		const struct pollfd *ready = m->spent ? NULL : find_ready(fds, count, m->fd);

		if (ready && ready->revents & POLLNVAL) { /* closed: then it is out of the set */
			drop_member(set, m);
			continue;
		}
		if (ready) {
			events[found].events = (uint32_t)(unsigned short)ready->revents;
			events[found++].data = m->event.data;
			m->spent = m->event.events & EPOLLONESHOT;
		}
		looked++;
		i++;
	}
	set->first = i;
	return found;
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* One look, with the lock given back while it waits. 0: nothing yet, but the list changed. */
static int look(struct set *set, struct epoll_event *events, int max, int timeout, bool *over)
{
	struct pollfd *fds;
	uint64_t changes;
	nfds_t count;
	ssize_t got;
	int ready;

	fds = list(set, &count);
	if (!fds)
		return -ENOMEM;
	pthread_mutex_unlock(&lock);
	ready = rpoll(fds, count, timeout);
	ready = ready < 0 ? -errno : ready;
	pthread_mutex_lock(&lock);
	*over = ready == 0;
	if (ready > 0) {
		got = read(set->fd, &changes, sizeof(changes));
		(void)got;
		ready = collect(set, fds, count, events, max);
	}
	free(fds);
	return ready;
}

int wait_for(int set_fd, struct epoll_event *events, int max, int timeout)
{
	const int64_t end = now_ms() + timeout;
	bool over = false;
	int result = 0;
	struct set *set;

	if (max <= 0)
		return (int)vb_rs_result(-EINVAL);
	if (!events)
		return (int)vb_rs_result(-EFAULT);
	pthread_mutex_lock(&lock);
	set = find_set(set_fd);
	if (!set) {
		pthread_mutex_unlock(&lock);
		return (int)vb_rs_result(-EBADF);
	}
	set->users++;
	while (result == 0 && !over) {
		int left = timeout < 0 ? -1 : (int)VB_MAX(end - now_ms(), (int64_t)0);

		result = look(set, events, max, left, &over);
		if (result == 0 && !vb_list_is_linked(&set->link))
			result = -EBADF; /* closed meanwhile */
	}
	put(set);
	pthread_mutex_unlock(&lock);
	return (int)vb_rs_result(result);
}
