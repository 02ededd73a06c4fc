/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket_life.c - how an rsocket comes to be, ends its connection, and goes.
 *
 * The end of a stream: whoever shuts down both ways says so with a control message behind its last
 * data; when all of that has been acknowledged, the CM disconnects. rclose() waits for this, since
 * bytes that this process has not sent die with it; but not for a peer that has gone silent.
 */
#include "rdmacm/rsocket.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	LINGER_MS = 10000, /* how long rclose() waits for acknowledgements */
};

long vb_rs_result(long result)
{
	if (result >= 0)
		return result;
	errno = (int)-result;
	return -1;
}

int vb_rs_failed(int result)
{
	if (result == 0)
		return 0;
	return errno ? -errno : -EIO;
}

struct vb_rs *vb_rs_create(int domain, int type, const struct vb_rs *listener)
{
	const struct vb_rs_config *config = vb_rs_config();
	struct vb_rs *rs = calloc(1, sizeof(*rs));

	if (!rs)
		return NULL;
	rs->type = type;
	rs->domain = domain;
	rs->fd = -1;
	rs->receive_bytes = listener ? listener->receive_bytes : config->receive_bytes;
	rs->send_bytes = listener ? listener->send_bytes : config->send_bytes;
	rs->sq_size = listener ? listener->sq_size : config->sq_size;
	rs->rq_size = listener ? listener->rq_size : config->rq_size;
	rs->inline_bytes = listener ? listener->inline_bytes : config->inline_bytes;
	rs->iomap_slots = listener ? listener->iomap_slots : config->iomap_slots;
	atomic_init(&rs->references, 1);
	pthread_mutex_init(&rs->sender, NULL);
	pthread_mutex_init(&rs->receiver, NULL);
	pthread_mutex_init(&rs->lock, NULL);
	vb_list_init(&rs->sleepers);
	if (type == SOCK_STREAM) {
		vb_list_init(&rs->stream.mapped);
		vb_list_init(&rs->stream.to_map);
		vb_list_init(&rs->stream.keepalive_link);
	} else {
		vb_list_init(&rs->datagram.queue_pairs);
		vb_list_init(&rs->datagram.peers);
		vb_list_init(&rs->datagram.arrived);
	}
	return rs;
}

static void destroy_stream(struct vb_rs_stream *s)
{
	if (s->request.id) {
		rdma_reject(s->request.id, NULL, 0);
		rdma_destroy_id(s->request.id);
	}
	if (s->id)
		rdma_destroy_id(s->id);
	if (s->channel)
		rdma_destroy_event_channel(s->channel);
	free(s->path);
}

void vb_rs_destroy(struct vb_rs *rs)
{
	if (rs->type == SOCK_STREAM) {
		vb_rs_close_endpoint(rs);
		destroy_stream(&rs->stream);
	} else {
		vb_rs_datagram_close(rs);
	}
	pthread_mutex_destroy(&rs->sender);
	pthread_mutex_destroy(&rs->receiver);
	pthread_mutex_destroy(&rs->lock);
	free(rs);
}

static int open_stream(struct vb_rs *rs)
{
	struct vb_rs_stream *s = &rs->stream;

	s->channel = rdma_create_event_channel();
	if (!s->channel)
		return vb_rs_failed(-1);
	if (fcntl(s->channel->fd, F_SETFL, O_NONBLOCK) != 0 ||
	    rdma_create_id(s->channel, &s->id, rs, RDMA_PS_TCP) != 0)
		return vb_rs_failed(-1);
	rs->fd = s->channel->fd;
	return 0;
}

int rsocket(int domain, int type, int protocol)
{
	struct vb_rs *rs;
	int result;

	if ((domain != AF_INET && domain != AF_INET6) ||
	    !((type == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP)) ||
	      (type == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP))))
		return (int)vb_rs_result(-ENOTSUP);
	rs = vb_rs_create(domain, type, NULL);
	if (!rs)
		return (int)vb_rs_result(-ENOMEM);
	result = type == SOCK_STREAM ? open_stream(rs) : vb_rs_datagram_open(rs);
	if (!result)
		result = vb_rs_insert(rs);
	if (result) {
		vb_rs_put(rs);
		return (int)vb_rs_result(result);
	}
	return rs->fd;
}

static bool control_free_or_over(struct vb_rs *rs)
{
	return vb_rs_control_free(rs) || rs->state != VB_RS_CONNECTED;
}

static bool sent_or_over(struct vb_rs *rs)
{
	return vb_rs_all_sent(rs) || rs->state != VB_RS_CONNECTED;
}

/* What the peer must hear of, or nothing: when the other way was closed before, all is over. */
static int shut_stream(struct vb_rs *rs, int how, int timeout_ms)
{
	struct vb_rs_stream *s = &rs->stream;
	bool was_writable = s->write_open;
	int result;

	if (how != SHUT_WR)
		s->read_open = false;
	if (how != SHUT_RD)
		s->write_open = false;
	vb_rs_wake(rs);
	if (s->write_open || (!was_writable && s->read_open))
		return 0;
	result = vb_rs_wait(rs, control_free_or_over, false, timeout_ms);
	if (result || rs->state != VB_RS_CONNECTED)
		return result;
	s->end_told = true; /* not before: the peer's own end may have come in while we waited */
	return vb_rs_post_control(rs, s->read_open ? VB_RS_SHUTDOWN : VB_RS_DISCONNECT);
}

int rshutdown(int fd, int how)
{
	struct vb_rs *rs = vb_rs_enter(fd);
	int result = 0;

	if (!rs)
		return -1;
	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
		result = -EINVAL;
	else if (rs->state == VB_RS_ACCEPTING) /* to its program it is connected */
		result = vb_rs_await_connection(rs, false);
	if (result)
		return (int)vb_rs_leave(rs, result);
	if (rs->type == SOCK_DGRAM)
		result = rs->datagram.connected ? 0 : -ENOTCONN;
	else if (rs->state == VB_RS_CONNECTED)
		result = shut_stream(rs, how, -1);
	else if (rs->state != VB_RS_ENDED && rs->state != VB_RS_BROKEN)
		result = -ENOTCONN;
	return (int)vb_rs_leave(rs, result);
}

static void close_stream(struct vb_rs *rs)
{
	struct vb_rs_stream *s = &rs->stream;
	int timeout_ms = rs->linger.l_onoff ? rs->linger.l_linger * 1000 : LINGER_MS;
	bool was_connected = rs->state >= VB_RS_CONNECTED && rs->state != VB_RS_FAILED;

	if (rs->state == VB_RS_CONNECTED) {
		if (s->read_open || s->write_open)
			shut_stream(rs, SHUT_RDWR, timeout_ms);
		vb_rs_wait(rs, sent_or_over, false, timeout_ms);
	}
	if (was_connected)
		rdma_disconnect(s->id);
}

int rclose(int fd)
{
	struct vb_rs *rs = vb_rs_remove(fd);

	if (!rs && vb_rs_close_set(fd))
		return 0;
	if (!rs)
		return (int)vb_rs_result(-EBADF);
	if (rs->type == SOCK_STREAM)
		vb_rs_keepalive_stop(rs);
	pthread_mutex_lock(&rs->lock);
	if (rs->type == SOCK_STREAM)
		close_stream(rs);
	else
		vb_rs_datagram_flush(rs);
	rs->closed = true;
	vb_rs_wake(rs);
	pthread_mutex_unlock(&rs->lock);
	vb_rs_put(rs);
	return 0;
}
