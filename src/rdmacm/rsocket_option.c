/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket_option.c - options, names and flags.
 *
 * Options that mean nothing to a connection which the transport keeps reliable (TCP_NODELAY,
 * TCP_MAXSEG, ...) are taken and remembered, so that programs for TCP run. What is unknown is
 * refused with ENOTSUP, or for datagrams left to the UDP socket.
 */
#include "rdmacm/rsocket.h"

#include <fcntl.h>
#include <infiniband/sa.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static bool take_int(const void *value, socklen_t size, int *number)
{
	if (!value || size < (socklen_t)sizeof(*number))
		return false;
	memcpy(number, value, sizeof(*number));
	return true;
}

static int give(const void *value, size_t size, void *to, socklen_t *room)
{
	if (!to || !room)
		return -EFAULT;
	if (*room > size)
		*room = (socklen_t)size;
	memcpy(to, value, *room);
	return 0;
}

static int give_int(int value, void *to, socklen_t *room)
{
	return give(&value, sizeof(value), to, room);
}

static void remember(struct vb_rs *rs, int option, bool on)
{
	if (on)
		rs->so_flags |= UINT64_C(1) << option;
	else
		rs->so_flags &= ~(UINT64_C(1) << option);
}

/* Twice what was asked for, as the kernel does: rgetsockopt() tells the doubled size. */
static uint32_t buffer_size(int asked)
{
	if (asked < VB_RS_BUFFER_MIN / 2)
		return VB_RS_BUFFER_MIN;
	if (asked > VB_RS_BUFFER_MAX / 2)
		return VB_RS_BUFFER_MAX;
	return (uint32_t)asked * 2;
}

static bool has_endpoint(const struct vb_rs *rs)
{
	return rs->type == SOCK_STREAM ? rs->stream.cq != NULL
				       : !vb_list_is_empty(&rs->datagram.queue_pairs);
}

static int set_cm_int(struct vb_rs *rs, int option, int value)
{
	if (rs->type != SOCK_STREAM)
		return 0;
	return vb_rs_failed(
		rdma_set_option(rs->stream.id, RDMA_OPTION_ID, option, &value, sizeof(value)));
}

static int set_socket(struct vb_rs *rs, int option, const void *value, socklen_t size)
{
	int number, result = 0;

	if (option == SO_LINGER) {
		if (!value || size < sizeof(rs->linger))
			return -EINVAL;
		memcpy(&rs->linger, value, sizeof(rs->linger));
		return 0;
	}
	if (!take_int(value, size, &number))
		return -EINVAL;
	switch (option) {
	case SO_REUSEADDR:
		/* After binding it changes nothing any more, and programs set it at any time. */
		if (rs->state == VB_RS_NEW)
			result = set_cm_int(rs, RDMA_OPTION_ID_REUSEADDR, number);
		break;
	case SO_RCVBUF:
		if (!has_endpoint(rs))
			rs->receive_bytes = buffer_size(number);
		return 0;
	case SO_SNDBUF:
		if (!has_endpoint(rs))
			rs->send_bytes = buffer_size(number);
		return 0;
	case SO_KEEPALIVE:
		if (rs->type != SOCK_STREAM)
			break;
		if (number)
			result = vb_rs_keepalive_start(rs);
		else
			vb_rs_keepalive_stop(rs);
		rs->stream.keepalive = number != 0;
		break;
	case SO_OOBINLINE:
		break;
	default:
		return -ENOTSUP;
	}
	if (!result)
		remember(rs, option, number);
	return result;
}

static int set_tcp(struct vb_rs *rs, int option, const void *value, socklen_t size)
{
	int number;

	if (rs->type != SOCK_STREAM)
		return -ENOTSUP;
	if (!take_int(value, size, &number))
		return -EINVAL;
	switch (option) {
	case TCP_NODELAY:
		rs->nodelay = number;
		return 0;
	case TCP_KEEPIDLE:
		if (number <= 0)
			return -EINVAL;
		rs->stream.keepalive_s = number;
		return rs->stream.keepalive ? vb_rs_keepalive_start(rs) : 0;
	case TCP_KEEPINTVL:
	case TCP_KEEPCNT:
	case TCP_MAXSEG:
		return 0;
	default:
		return -ENOTSUP;
	}
}

static int set_ipv6(struct vb_rs *rs, int option, const void *value, socklen_t size)
{
	int number, result = 0;

	if (option != IPV6_V6ONLY || rs->domain != AF_INET6)
		return -ENOTSUP;
	if (!take_int(value, size, &number))
		return -EINVAL;
	if (rs->state == VB_RS_NEW)
		result = set_cm_int(rs, RDMA_OPTION_ID_AFONLY, number);
	if (!result)
		rs->v6only = number;
	return result;
}

static int set_path(struct vb_rs *rs, const void *value, socklen_t size)
{
	void *copy;

	if (rs->type != SOCK_STREAM || !value || !size || size % sizeof(struct ibv_path_data))
		return -EINVAL;
	copy = malloc(size);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, value, size);
	free(rs->stream.path);
	rs->stream.path = copy;
	rs->stream.path_size = size;
	return 0;
}

static int set_rdma(struct vb_rs *rs, int option, const void *value, socklen_t size)
{
	int number;

	if (has_endpoint(rs) || rs->state > VB_RS_LISTENING)
		return -EINVAL;
	if (option == RDMA_ROUTE)
		return set_path(rs, value, size);
	if (!take_int(value, size, &number) || number < 0)
		return -EINVAL;
	if (number > VB_RS_QUEUE_MAX)
		number = VB_RS_QUEUE_MAX;
	switch (option) {
	case RDMA_SQSIZE:
		rs->sq_size = (uint32_t)number;
		return 0;
	case RDMA_RQSIZE:
		rs->rq_size = (uint32_t)number;
		return 0;
	case RDMA_INLINE:
		rs->inline_bytes = (uint32_t)number;
		return 0;
	case RDMA_IOMAPSIZE:
		rs->iomap_slots = vb_rs_iomap_slots((uint32_t)number);
		return 0;
	default:
		return -ENOTSUP;
	}
}

int rsetsockopt(int fd, int level, int optname, const void *optval, socklen_t optlen)
{
	struct vb_rs *rs = vb_rs_enter(fd);
	int result;

	if (!rs)
		return -1;
	switch (level) {
	case SOL_SOCKET:
		result = set_socket(rs, optname, optval, optlen);
		break;
	case IPPROTO_TCP:
		result = set_tcp(rs, optname, optval, optlen);
		break;
	case IPPROTO_IPV6:
		result = set_ipv6(rs, optname, optval, optlen);
		break;
	case SOL_RDMA:
		result = set_rdma(rs, optname, optval, optlen);
		break;
	default:
		result = -ENOTSUP;
		break;
	}
	/* The UDP socket under a datagram rsocket has options of its own, and a port to share. */
	if (rs->type == SOCK_DGRAM && level != SOL_RDMA && (!result || result == -ENOTSUP))
		result = vb_rs_failed(setsockopt(rs->fd, level, optname, optval, optlen));
	return (int)vb_rs_leave(rs, result);
}

static int take_error(struct vb_rs *rs)
{
	int error = rs->error;

	rs->error = 0;
	return error;
}

static int get_socket(struct vb_rs *rs, int option, void *to, socklen_t *room)
{
	switch (option) {
	case SO_REUSEADDR:
	case SO_KEEPALIVE:
	case SO_OOBINLINE:
		return give_int(rs->so_flags >> option & 1, to, room);
	case SO_RCVBUF:
		return give_int((int)rs->receive_bytes, to, room);
	case SO_SNDBUF:
		return give_int((int)rs->send_bytes, to, room);
	case SO_LINGER:
		return give(&rs->linger, sizeof(rs->linger), to, room);
	case SO_ERROR:
		vb_rs_progress(rs);
		return give_int(take_error(rs), to, room);
	case SO_TYPE:
		return give_int(rs->type, to, room);
	case SO_DOMAIN:
		return give_int(rs->domain, to, room);
	case SO_PROTOCOL:
		return give_int(rs->type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP, to, room);
	case SO_ACCEPTCONN:
		return give_int(rs->state == VB_RS_LISTENING, to, room);
	default:
		return -ENOTSUP;
	}
}

static int path_mtu(const struct rdma_cm_id *id)
{
	if (id->route.num_paths < 1 || !id->route.path_rec)
		return 2048;
	return 128 << (id->route.path_rec->mtu & 7);
}

static int get_tcp(struct vb_rs *rs, int option, void *to, socklen_t *room)
{
	if (rs->type != SOCK_STREAM)
		return -ENOTSUP;
	switch (option) {
	case TCP_NODELAY:
		return give_int(rs->nodelay, to, room);
	case TCP_KEEPIDLE:
		return give_int(rs->stream.keepalive_s, to, room);
	case TCP_KEEPINTVL:
	case TCP_KEEPCNT:
		return give_int(1, to, room);
	case TCP_MAXSEG:
		return give_int(path_mtu(rs->stream.id), to, room);
	default:
		return -ENOTSUP;
	}
}

/* A path as the SA's record spells it: exact values carry a selector of 2 in their top bits. */
static struct ibv_path_data path_data(const struct ibv_sa_path_rec *rec)
{
	const uint8_t exactly = 2 << 6;
	struct ibv_path_data data = {.flags = rec->preference};

	data.path.dgid = rec->dgid;
	data.path.sgid = rec->sgid;
	data.path.dlid = rec->dlid;
	data.path.slid = rec->slid;
	data.path.flowlabel_hoplimit = htonl(ntohl(rec->flow_label) << 8 | rec->hop_limit);
	data.path.tclass = rec->traffic_class;
	data.path.reversible_numpath = (uint8_t)((rec->reversible ? 0x80 : 0) | 1);
	data.path.pkey = rec->pkey;
	data.path.qosclass_sl = htons(rec->sl);
	data.path.mtu = rec->mtu | exactly;
	data.path.rate = rec->rate | exactly;
	data.path.packetlifetime = rec->packet_life_time | exactly;
	return data;
}

static int get_path(struct vb_rs *rs, void *to, socklen_t *room)
{
	const struct rdma_route *route;
	struct ibv_path_data data;
	socklen_t size = 0;
	int i;

	if (rs->type != SOCK_STREAM)
		return -ENOTSUP;
	if (!to || !room)
		return -EFAULT;
	if (rs->stream.path)
		return *room < rs->stream.path_size
			       ? -EINVAL
			       : give(rs->stream.path, rs->stream.path_size, to, room);
	route = &rs->stream.id->route;
	if (*room < sizeof(data))
		return -EINVAL;
	for (i = 0; i < route->num_paths && size + sizeof(data) <= *room; i++) {
		data = path_data(&route->path_rec[i]);
		memcpy((uint8_t *)to + size, &data, sizeof(data));
		size += (socklen_t)sizeof(data);
	}
	*room = size;
	return 0;
}

static int get_rdma(struct vb_rs *rs, int option, void *to, socklen_t *room)
{
	switch (option) {
	case RDMA_SQSIZE:
		return give_int((int)rs->sq_size, to, room);
	case RDMA_RQSIZE:
		return give_int((int)rs->rq_size, to, room);
	case RDMA_INLINE:
		return give_int((int)rs->inline_bytes, to, room);
	case RDMA_IOMAPSIZE:
		return give_int((int)rs->iomap_slots, to, room);
	case RDMA_ROUTE:
		return get_path(rs, to, room);
	default:
		return -ENOTSUP;
	}
}

int rgetsockopt(int fd, int level, int optname, void *optval, socklen_t *optlen)
{
	struct vb_rs *rs = vb_rs_enter(fd);
	int result;

	if (!rs)
		return -1;
	switch (level) {
	case SOL_SOCKET:
		result = get_socket(rs, optname, optval, optlen);
		break;
	case IPPROTO_TCP:
		result = get_tcp(rs, optname, optval, optlen);
		break;
	case IPPROTO_IPV6:
		result = optname == IPV6_V6ONLY ? give_int(rs->v6only, optval, optlen) : -ENOTSUP;
		break;
	case SOL_RDMA:
		result = get_rdma(rs, optname, optval, optlen);
		break;
	default:
		result = -ENOTSUP;
		break;
	}
	if (rs->type == SOCK_DGRAM && result == -ENOTSUP && level != SOL_RDMA)
		result = vb_rs_failed(getsockopt(rs->fd, level, optname, optval, optlen));
	return (int)vb_rs_leave(rs, result);
}

int rfcntl(int fd, int cmd, ...)
{
	struct vb_rs *rs = vb_rs_enter(fd);
	int result = 0, argument;
	va_list arguments;

	if (!rs)
		return -1;
	va_start(arguments, cmd);
	argument = cmd == F_SETFL || cmd == F_SETFD ? va_arg(arguments, int) : 0;
	va_end(arguments);
	switch (cmd) {
	case F_GETFL:
		result = O_RDWR | (rs->nonblocking ? O_NONBLOCK : 0);
		break;
	case F_SETFL:
		rs->nonblocking = argument & O_NONBLOCK;
		break;
	case F_GETFD:
	case F_SETFD:
		result = fcntl(fd, cmd, argument);
		if (result < 0)
			result = -errno;
		break;
	default:
		result = -ENOTSUP;
		break;
	}
	return (int)vb_rs_leave(rs, result);
}

int rgetpeername(int fd, struct sockaddr *addr, socklen_t *addrlen)
{
	struct vb_rs *rs = vb_rs_enter(fd);
	int result = 0;

	if (!rs)
		return -1;
	if (rs->type == SOCK_DGRAM)
		result = vb_rs_datagram_peer(rs, addr, addrlen);
	else if (rs->state < VB_RS_ACCEPTING || rs->state == VB_RS_FAILED)
		result = -ENOTCONN;
	else
		vb_rs_copy_out(rs, rdma_get_peer_addr(rs->stream.id), addr, addrlen);
	return (int)vb_rs_leave(rs, result);
}

int rgetsockname(int fd, struct sockaddr *addr, socklen_t *addrlen)
{
	struct vb_rs *rs = vb_rs_enter(fd);
	int result = 0;

	if (!rs)
		return -1;
	if (rs->type == SOCK_DGRAM)
		result = vb_rs_failed(getsockname(fd, addr, addrlen));
	else
		vb_rs_copy_out(rs, rdma_get_local_addr(rs->stream.id), addr, addrlen);
	return (int)vb_rs_leave(rs, result);
}
