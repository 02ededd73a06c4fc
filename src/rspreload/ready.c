/* SPDX-License-Identifier: BSD-2-Clause */
/* ready.c - poll() and select() on descriptors of both sorts: rpoll() takes them together. */
#include <errno.h>
#include <stdlib.h>

#include "rspreload/rspreload.h"

int __poll_chk(struct pollfd *fds, nfds_t nfds, int timeout, size_t room);
void __chk_fail(void) __attribute__((noreturn));

enum { FEW = 64 };

/* rpoll() on copies, with rsockets in the place of the descriptors before them. */
static int poll_mixed(struct pollfd *fds, nfds_t nfds, int timeout)
{
	struct pollfd few[FEW], *copies = few;
	int result, rs, error;
	nfds_t i;

	if (nfds > FEW)
		copies = calloc(nfds, sizeof(*copies));
	if (!copies) {
		errno = ENOMEM;
		return -1;
	}
	for (i = 0; i < nfds; i++) {
		rs = vb_rsocket_of(fds[i].fd);
		copies[i] = fds[i];
		copies[i].fd = rs < 0 ? fds[i].fd : rs;
	}
	result = VB_INSIDE(rpoll(copies, nfds, timeout));
	error = errno;
	for (i = 0; result >= 0 && i < nfds; i++)
		fds[i].revents = copies[i].revents;
	if (copies != few)
		free(copies);
	errno = error;
	return result;
}

int poll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	nfds_t i;

	for (i = 0; !vb_preload_inside && i < nfds; i++)
		if (vb_rsocket_of(fds[i].fd) >= 0)
			return poll_mixed(fds, nfds, timeout);
	return vb_real()->poll(fds, nfds, timeout);
}

int __poll_chk(struct pollfd *fds, nfds_t nfds, int timeout, size_t room)
{
	if (nfds > room / sizeof(*fds))
		__chk_fail();
	return poll(fds, nfds, timeout);
}

static bool is_in(int fd, fd_set *set)
{
	return set && FD_ISSET(fd, set);
}

/* An entry for each descriptor that is in some set; whether one of them is an rsocket. */
static bool to_entries(int count, fd_set *sets[3], struct pollfd *fds, nfds_t *used)
{
	static const short events[3] = {POLLIN, POLLOUT, POLLPRI};
	bool some = false;
	int fd, i;

	*used = 0;
	for (fd = 0; fd < count; fd++) {
		struct pollfd entry = {fd, 0, 0};

		for (i = 0; i < 3; i++)
			entry.events |= is_in(fd, sets[i]) ? events[i] : 0;
		if (!entry.events)
			continue;
		some |= vb_rsocket_of(fd) >= 0;
		fds[(*used)++] = entry;
	}
	return some;
}

static int to_sets(const struct pollfd *fds, nfds_t used, fd_set *sets[3])
{
	static const short asked[3] = {POLLIN, POLLOUT, POLLPRI};
	static const short told[3] = {POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR, POLLPRI};
	int bits = 0, i;
	nfds_t k;

	for (i = 0; i < 3; i++) {
		if (!sets[i])
			continue;
		FD_ZERO(sets[i]);
		for (k = 0; k < used; k++) {
			if (!(fds[k].events & asked[i]) || !(fds[k].revents & told[i]))
				continue;
			FD_SET(fds[k].fd, sets[i]);
			bits++;
		}
	}
	return bits;
}

int select(int nfds, fd_set *readable, fd_set *writable, fd_set *exceptional,
	   struct timeval *timeout)
{
	fd_set *sets[3] = {readable, writable, exceptional};
	struct pollfd fds[FD_SETSIZE];
	int wait_ms = -1, result;
	nfds_t used;

	if (vb_preload_inside || nfds < 0 || nfds > FD_SETSIZE ||
	    !to_entries(nfds, sets, fds, &used))
		return vb_real()->select(nfds, readable, writable, exceptional, timeout);
	if (timeout) {
		int64_t ms = (int64_t)timeout->tv_sec * 1000 + (timeout->tv_usec + 999) / 1000;

		wait_ms = ms > 0x7fffffff ? 0x7fffffff : (int)ms;
	}
	result = poll_mixed(fds, used, wait_ms);
	return result < 0 ? result : to_sets(fds, used, sets);
}
