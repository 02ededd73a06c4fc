/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sockets.c - the program's descriptors, and the rsockets behind them.
 *
 * Two tables without a lock: which rsocket a descriptor stands for (plus one; 0: none), and how
 * many descriptors stand for an rsocket. Descriptors above the tables stay ordinary.
 *
 * Not _GNU_SOURCE: that makes the prototypes of <sys/socket.h> such that they cannot be defined.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rspreload/rspreload.h"

enum { DESCRIPTORS_MAX = 1 << 16, LINGER_AT_EXIT_S = 2 };

int accept4(int fd, struct sockaddr *addr, socklen_t *addrlen, int flags);
int dup3(int oldfd, int newfd, int flags);

__thread int vb_preload_inside;

static atomic_int rsocket_of[DESCRIPTORS_MAX];
static atomic_int holders[DESCRIPTORS_MAX];
static atomic_int owner; /* the process whose rsockets these are; a fork's child has none */

int vb_rsocket_of(int fd)
{
	return fd >= 0 && fd < DESCRIPTORS_MAX ? atomic_load(&rsocket_of[fd]) - 1 : -1;
}

static void attach(int fd, int rs)
{
	atomic_store(&owner, (int)getpid());
	atomic_fetch_add(&holders[rs], 1);
	atomic_store(&rsocket_of[fd], rs + 1);
}

/* Takes the rsocket away from a descriptor, and closes it with the last one. */
static int detach(int fd)
{
	int rs = fd >= 0 && fd < DESCRIPTORS_MAX ? atomic_exchange(&rsocket_of[fd], 0) - 1 : -1;

	if (rs < 0 || atomic_fetch_sub(&holders[rs], 1) != 1)
		return 0;
	return VB_INSIDE(rclose(rs));
}

/* The kernel sends what a process wrote after it has ended; an rsocket's bytes would end with it.
 */
__attribute__((destructor)) static void close_at_exit(void)
{
	struct linger linger = {1, LINGER_AT_EXIT_S};
	int fd, rs;

	if (atomic_load(&owner) != (int)getpid())
		return;
	for (fd = 0; fd < DESCRIPTORS_MAX; fd++) {
		rs = vb_rsocket_of(fd);
		if (rs < 0)
			continue;
		rsetsockopt(rs, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
		detach(fd);
	}
}

/* Puts an rsocket behind a fresh descriptor, or gives up on the descriptor. */
static void adopt(int fd, int rs, int flags)
{
	if (fd >= DESCRIPTORS_MAX || rs >= DESCRIPTORS_MAX) {
		VB_INSIDE(rclose(rs));
		return;
	}
	if (flags & SOCK_NONBLOCK)
		rfcntl(rs, F_SETFL, O_NONBLOCK);
	attach(fd, rs);
}

int socket(int domain, int type, int protocol)
{
	int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
	int fd = vb_real()->socket(domain, type, protocol);
	int rs, before = errno;

	if (fd < 0 || vb_preload_inside || !vb_preload_wanted(domain, kind, protocol))
		return fd;
	rs = VB_INSIDE(rsocket(domain, kind, protocol));
	if (rs >= 0) {
		vb_preload_sizes(rs);
		adopt(fd, rs, type);
	}
	errno = before;
	return fd;
}

int bind(int fd, const struct sockaddr *addr, socklen_t addrlen)
{
	int rs = vb_rsocket_of(fd);

	if (rs < 0)
		return vb_real()->bind(fd, addr, addrlen);
	if (VB_INSIDE(rbind(rs, addr, addrlen)) == 0)
		return 0;
	if (errno != ENODEV && errno != EADDRNOTAVAIL)
		return -1;
	detach(fd);
	return vb_real()->bind(fd, addr, addrlen);
}

int listen(int fd, int backlog)
{
	int rs = vb_rsocket_of(fd);

	return rs < 0 ? vb_real()->listen(fd, backlog) : VB_INSIDE(rlisten(rs, backlog));
}

int accept4(int fd, struct sockaddr *addr, socklen_t *addrlen, int flags)
{
	int rs = vb_rsocket_of(fd);
	int domain = AF_INET;
	socklen_t size = sizeof(domain);
	int made;

	if (rs < 0)
		return vb_real()->accept4(fd, addr, addrlen, flags);
	rs = VB_INSIDE(raccept(rs, addr, addrlen));
	if (rs < 0)
		return -1;
	rgetsockopt(rs, SOL_SOCKET, SO_DOMAIN, &domain, &size);
	made = vb_real()->socket(domain, SOCK_STREAM | flags, 0);
	if (made < 0) {
		VB_INSIDE(rclose(rs));
		return -1;
	}
	adopt(made, rs, flags);
	return made;
}

int accept(int fd, struct sockaddr *addr, socklen_t *addrlen)
{
	return accept4(fd, addr, addrlen, 0);
}

/* The ordinary socket takes over, from the address that the rsocket was bound to. */
static int connect_ordinary(int fd, int rs, const struct sockaddr *addr, socklen_t addrlen)
{
	struct sockaddr_storage name;
	socklen_t size = sizeof(name);
	in_port_t port = 0;

	if (rgetsockname(rs, (struct sockaddr *)&name, &size) == 0)
		port = name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
						  : ((struct sockaddr_in *)&name)->sin_port;
	detach(fd);
	if (port)
		vb_real()->bind(fd, (struct sockaddr *)&name, size);
	return vb_real()->connect(fd, addr, addrlen);
}

int connect(int fd, const struct sockaddr *addr, socklen_t addrlen)
{
	int rs = vb_rsocket_of(fd);

	if (rs < 0)
		return vb_real()->connect(fd, addr, addrlen);
	if (VB_INSIDE(rconnect(rs, addr, addrlen)) == 0)
		return 0;
	if (errno == EINPROGRESS || errno == EALREADY || errno == EISCONN || errno == EINTR)
		return -1;
	return connect_ordinary(fd, rs, addr, addrlen);
}

int shutdown(int fd, int how)
{
	int rs = vb_rsocket_of(fd);

	return rs < 0 ? vb_real()->shutdown(fd, how) : VB_INSIDE(rshutdown(rs, how));
}

int close(int fd)
{
	int result = detach(fd);
	int closed = vb_real()->close(fd);

	return closed ? closed : result;
}

int getpeername(int fd, struct sockaddr *addr, socklen_t *addrlen)
{
	int rs = vb_rsocket_of(fd);

	return rs < 0 ? vb_real()->getpeername(fd, addr, addrlen) : rgetpeername(rs, addr, addrlen);
}

int getsockname(int fd, struct sockaddr *addr, socklen_t *addrlen)
{
	int rs = vb_rsocket_of(fd);

	return rs < 0 ? vb_real()->getsockname(fd, addr, addrlen) : rgetsockname(rs, addr, addrlen);
}

/* Both get the option: the socket may have to take over. */
int setsockopt(int fd, int level, int optname, const void *optval, socklen_t optlen)
{
	int rs = vb_rsocket_of(fd);
	int result = -1;

	if (level != SOL_RDMA || rs < 0)
		result = vb_real()->setsockopt(fd, level, optname, optval, optlen);
	if (rs < 0)
		return result;
	if (VB_INSIDE(rsetsockopt(rs, level, optname, optval, optlen)) == 0)
		return 0;
	return errno == ENOTSUP && level != SOL_RDMA ? result : -1;
}

int getsockopt(int fd, int level, int optname, void *optval, socklen_t *optlen)
{
	int rs = vb_rsocket_of(fd);

	if (rs >= 0 && VB_INSIDE(rgetsockopt(rs, level, optname, optval, optlen)) == 0)
		return 0;
	if (rs >= 0 && (errno != ENOTSUP || level == SOL_RDMA))
		return -1;
	return vb_real()->getsockopt(fd, level, optname, optval, optlen);
}

/* A second descriptor for the same rsocket. */
static int share(int fd, int made)
{
	int rs = vb_rsocket_of(fd);

	if (made >= 0 && made != fd && rs >= 0 && made < DESCRIPTORS_MAX)
		attach(made, rs);
	return made;
}

int dup(int fd)
{
	return share(fd, vb_real()->dup(fd));
}

int dup3(int oldfd, int newfd, int flags)
{
	int made = vb_real()->dup3(oldfd, newfd, flags);

	if (made >= 0)
		detach(newfd);
	return share(oldfd, made);
}

int dup2(int oldfd, int newfd)
{
	int made = vb_real()->dup2(oldfd, newfd);

	if (made >= 0 && oldfd != newfd)
		detach(newfd);
	return share(oldfd, made);
}

static int control(int fd, int cmd, void *argument)
{
	int rs = vb_rsocket_of(fd);
	int result = vb_real()->fcntl(fd, cmd, argument);

	if (rs < 0 || result < 0)
		return result;
	if (cmd == F_SETFL)
		return rfcntl(rs, F_SETFL, (int)(intptr_t)argument);
	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
		return share(fd, result);
	return result;
}

/* Every argument of fcntl() is an int or a pointer, and travels as one word. */
int fcntl(int fd, int cmd, ...)
{
	va_list arguments;
	void *argument;

	va_start(arguments, cmd);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	return control(fd, cmd, argument);
}

int fcntl64(int fd, int cmd, ...) __attribute__((alias("fcntl")));

/* What lies ready, as far as one look sees. */
static int bytes_ready(int rs)
{
	static __thread char bytes[1 << 16];
	ssize_t n = VB_INSIDE(rrecv(rs, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT));

	return n < 0 ? 0 : (int)n;
}

/* Of an rsocket's requests these two; Python sets O_NONBLOCK so. */
int ioctl(int fd, unsigned long request, ...)
{
	int rs = vb_rsocket_of(fd), result;
	va_list arguments;
	void *argument;

	va_start(arguments, request);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	result = vb_real()->ioctl(fd, request, argument);
	if (rs < 0 || result < 0)
		return result;
	if (request == FIONBIO)
		return rfcntl(rs, F_SETFL, *(int *)argument ? O_NONBLOCK : 0);
	if (request == FIONREAD)
		*(int *)argument = bytes_ready(rs);
	return result;
}
