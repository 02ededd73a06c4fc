/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rspreload.h - librspreload.so, which makes a program's TCP sockets rsockets: LD_PRELOAD it.
 *
 *      real.c       the C library's own calls
 *      rules.c      which sockets become rsockets
 *      sockets.c    socket() to close(): descriptors and what stands behind them
 *      transfer.c   bytes in and out
 *      ready.c      poll() and select()
 *
 * The program's descriptor is a real socket that is never connected, with an rsocket behind it:
 *
 *      descriptor --> a TCP socket of the kernel's      keeps the number, answers for options that
 *           |                                           rsockets do not know
 *           `-------> an rsocket                        does all the work
 *
 * Where an rsocket cannot go on (no device has the address, the peer knows nothing of RDMA) it is
 * closed, and what is left is an ordinary socket. dup() makes one more descriptor for the same
 * rsocket.
 */
#ifndef VB_RSPRELOAD_H
#define VB_RSPRELOAD_H

#include <poll.h>
#include <stdbool.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <rdma/rsocket.h>

/* The C library's calls, which ours stand in front of. */
struct vb_real {
	int (*socket)(int, int, int);
	int (*bind)(int, const struct sockaddr *, socklen_t);
	int (*listen)(int, int);
	int (*accept4)(int, struct sockaddr *, socklen_t *, int);
	int (*connect)(int, const struct sockaddr *, socklen_t);
	int (*shutdown)(int, int);
	int (*close)(int);
	ssize_t (*recv)(int, void *, size_t, int);
	ssize_t (*recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
	ssize_t (*recvmsg)(int, struct msghdr *, int);
	ssize_t (*read)(int, void *, size_t);
	ssize_t (*readv)(int, const struct iovec *, int);
	ssize_t (*send)(int, const void *, size_t, int);
	ssize_t (*sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
	ssize_t (*sendmsg)(int, const struct msghdr *, int);
	ssize_t (*write)(int, const void *, size_t);
	ssize_t (*writev)(int, const struct iovec *, int);
	ssize_t (*sendfile)(int, int, off_t *, size_t);
	int (*poll)(struct pollfd *, nfds_t, int);
	int (*select)(int, fd_set *, fd_set *, fd_set *, struct timeval *);
	int (*getpeername)(int, struct sockaddr *, socklen_t *);
	int (*getsockname)(int, struct sockaddr *, socklen_t *);
	int (*setsockopt)(int, int, int, const void *, socklen_t);
	int (*getsockopt)(int, int, int, void *, socklen_t *);
	int (*fcntl)(int, int, ...);
	int (*ioctl)(int, unsigned long, ...);
	int (*dup)(int);
	int (*dup2)(int, int);
	int (*dup3)(int, int, int);
};

const struct vb_real *vb_real(void);

/* vb_preload_wanted - whether the rules make such a socket an rsocket. */
bool vb_preload_wanted(int domain, int type, int protocol);
/* vb_preload_sizes - sets what the environment says of queue and inline sizes. */
void vb_preload_sizes(int rsocket);

/* vb_rsocket_of - the rsocket behind a descriptor, or -1. */
int vb_rsocket_of(int fd);

/* What a thread does inside of rsockets is not intercepted: the sockets under them are real. */
extern __thread int vb_preload_inside;

#define VB_INSIDE(call)                                                                            \
	__extension__({                                                                            \
		__typeof__(call) vb_result;                                                        \
		vb_preload_inside++;                                                               \
		vb_result = (call);                                                                \
		vb_preload_inside--;                                                               \
		vb_result;                                                                         \
	})

#endif
