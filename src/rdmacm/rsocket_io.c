/* SPDX-License-Identifier: BSD-2-Clause */
/* rsocket_io.c - every form of sending and receiving: a vector, flags, perhaps an address. */
#define _GNU_SOURCE
#include "rdmacm/rsocket.h"

#include <limits.h>
#include <string.h>

/* One sender and one receiver at a time; who may not wait does not wait for another thread either.
 */
static int enter(struct vb_rs *rs, pthread_mutex_t *side, int flags)
{
	if (!rs->nonblocking && !(flags & MSG_DONTWAIT))
		pthread_mutex_lock(side);
	else if (pthread_mutex_trylock(side) != 0)
		return -EAGAIN;
	pthread_mutex_lock(&rs->lock);
	return 0;
}

static void leave(struct vb_rs *rs, pthread_mutex_t *side)
{
	pthread_mutex_unlock(&rs->lock);
	pthread_mutex_unlock(side);
}

static ssize_t send_vector(int fd, const struct iovec *iov, size_t count, int flags,
			   const struct sockaddr *to, socklen_t to_size)
{
	struct vb_rs *rs = vb_rs_find(fd);
	struct vb_rs_vector vector = {iov, (int)count, 0};
	union vb_rs_address address;
	ssize_t result = 0;

	if (!rs)
		return vb_rs_result(-EBADF);
	if (count > IOV_MAX)
		result = -EMSGSIZE;
	else if (flags & (MSG_OOB | MSG_FASTOPEN | MSG_ERRQUEUE))
		result = -EOPNOTSUPP;
	else if (to && rs->type == SOCK_STREAM)
		result = -EISCONN;
	else if (to)
		result = vb_rs_copy_in(&address, to, to_size);
	if (!result)
		result = enter(rs, &rs->sender, flags);
	if (!result) {
		result = rs->type == SOCK_STREAM
				 ? vb_rs_stream_send(rs, &vector, flags)
				 : vb_rs_datagram_send(rs, &vector, flags, to ? &address : NULL);
		leave(rs, &rs->sender);
	}
	vb_rs_put(rs);
	return vb_rs_result(result);
}

/* `cut`: it was a datagram, and longer than the room for it. */
static ssize_t receive_vector(int fd, const struct iovec *iov, size_t count, int flags,
			      struct sockaddr *from, socklen_t *from_size, bool *cut)
{
	struct vb_rs *rs = vb_rs_find(fd);
	struct vb_rs_vector vector = {iov, (int)count, 0};
	union vb_rs_address address;
	ssize_t room, result = 0;

	*cut = false;
	if (!rs)
		return vb_rs_result(-EBADF);
	room = vb_rs_vector_bytes(&vector);
	if (count > IOV_MAX)
		result = -EMSGSIZE;
	else if (flags & (MSG_OOB | MSG_ERRQUEUE))
		result = -EOPNOTSUPP;
	else if (room < 0)
		result = room;
	if (!result)
		result = enter(rs, &rs->receiver, flags);
	if (!result) {
		if (rs->type == SOCK_STREAM) {
			result = vb_rs_stream_receive(rs, &vector, flags);
			if (result > 0 && from && from_size)
				vb_rs_copy_out(rs, rdma_get_peer_addr(rs->stream.id), from,
					       from_size);
		} else {
			result = vb_rs_datagram_receive(rs, &vector, flags, &address);
			if (result >= 0 && from && from_size)
				vb_rs_copy_out(rs, &address.any, from, from_size);
			*cut = result > room;
			if (*cut && !(flags & MSG_TRUNC))
				result = room;
		}
		leave(rs, &rs->receiver);
	}
	vb_rs_put(rs);
	return vb_rs_result(result);
}

ssize_t rsendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *dest_addr,
		socklen_t addrlen)
{
	struct iovec iov = {(void *)(uintptr_t)buf, len};

	return send_vector(fd, &iov, 1, flags, dest_addr, addrlen);
}

ssize_t rsend(int fd, const void *buf, size_t len, int flags)
{
	return rsendto(fd, buf, len, flags, NULL, 0);
}

ssize_t rwrite(int fd, const void *buf, size_t count)
{
	return rsendto(fd, buf, count, 0, NULL, 0);
}

ssize_t rwritev(int fd, const struct iovec *iov, int iovcnt)
{
	if (iovcnt < 0)
		return vb_rs_result(-EINVAL);
	return send_vector(fd, iov, (size_t)iovcnt, 0, NULL, 0);
}

ssize_t rsendmsg(int fd, const struct msghdr *msg, int flags)
{
	if (msg->msg_control && msg->msg_controllen)
		return vb_rs_result(-ENOTSUP);
	return send_vector(fd, msg->msg_iov, msg->msg_iovlen, flags, msg->msg_name,
			   msg->msg_namelen);
}

ssize_t rrecvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *src_addr,
		  socklen_t *addrlen)
{
	struct iovec iov = {buf, len};
	bool cut;

	return receive_vector(fd, &iov, 1, flags, src_addr, addrlen, &cut);
}

ssize_t rrecv(int fd, void *buf, size_t len, int flags)
{
	return rrecvfrom(fd, buf, len, flags, NULL, NULL);
}

ssize_t rread(int fd, void *buf, size_t count)
{
	return rrecvfrom(fd, buf, count, 0, NULL, NULL);
}

ssize_t rreadv(int fd, const struct iovec *iov, int iovcnt)
{
	bool cut;

	if (iovcnt < 0)
		return vb_rs_result(-EINVAL);
	return receive_vector(fd, iov, (size_t)iovcnt, 0, NULL, NULL, &cut);
}

ssize_t rrecvmsg(int fd, struct msghdr *msg, int flags)
{
	socklen_t *size = msg->msg_name ? &msg->msg_namelen : NULL;
	ssize_t result;
	bool cut;

	result =
		receive_vector(fd, msg->msg_iov, msg->msg_iovlen, flags, msg->msg_name, size, &cut);
	if (result >= 0) {
		msg->msg_flags = cut ? MSG_TRUNC : 0;
		msg->msg_controllen = 0;
	}
	return result;
}
