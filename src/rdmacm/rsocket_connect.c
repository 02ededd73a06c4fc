/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket_connect.c - how streams find each other: the CM's calls go out, its events move the
 * state.
 *
 *      rconnect()   RESOLVING_ADDRESS --ADDR_RESOLVED--> RESOLVING_ROUTE --ROUTE_RESOLVED-->
 *                   CONNECTING --ESTABLISHED, with the peer's buffers--> CONNECTED
 *      raccept()    takes a CONNECT_REQUEST, with the peer's buffers, off the listener's channel,
 *                   gives the new id a channel of its own, and accepts: ACCEPTING
 *                   --ESTABLISHED--> CONNECTED
 *
 * raccept() does not wait for that: a peer that goes silent holds up nobody but itself, and a
 * thread may connect to itself. The channel never blocks; who has to wait sleeps on its descriptor.
 */
#include "rdmacm/rsocket.h"

#include <fcntl.h>
#include <string.h>

enum {
	RESOLVE_MS = 10000,
	RETRIES_FOREVER = 7, /* of RNR: a peer that computes has no receives posted */
};

static void fail(struct vb_rs *rs, int error)
{
	rs->state = VB_RS_FAILED;
	rs->error = error ? error : EIO;
}

static void begin(struct vb_rs *rs, enum vb_rs_state state, int result)
{
	if (result)
		fail(rs, errno);
	else
		rs->state = state;
}

static void resolve_route(struct vb_rs *rs)
{
	struct vb_rs_stream *s = &rs->stream;

	if (!s->path)
		begin(rs, VB_RS_RESOLVING_ROUTE, rdma_resolve_route(s->id, RESOLVE_MS));
	else /* the event comes all the same */
		begin(rs, VB_RS_RESOLVING_ROUTE,
		      rdma_set_option(s->id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, s->path,
				      s->path_size));
}

static void request_connection(struct vb_rs *rs)
{
	uint8_t description[VB_RS_CONN_BYTES];
	struct rdma_conn_param param = {
		.private_data = description,
		.private_data_len = sizeof(description),
		.flow_control = 1,
		.retry_count = 7,
		.rnr_retry_count = RETRIES_FOREVER,
	};
	int result = vb_rs_open_endpoint(rs);

	if (result) {
		fail(rs, -result);
		return;
	}
	vb_rs_describe(rs, description);
	begin(rs, VB_RS_CONNECTING, rdma_connect(rs->stream.id, &param));
}

static void establish(struct vb_rs *rs, const struct rdma_cm_event *event)
{
	struct vb_rs_conn peer;
	int result = 0;

	if (rs->state == VB_RS_CONNECTING) {
		result = vb_rs_conn_decode(&peer, event->param.conn.private_data,
					   event->param.conn.private_data_len);
		if (result == 0)
			vb_rs_meet(rs, &peer);
	}
	if (result) {
		rdma_disconnect(rs->stream.id);
		fail(rs, -result);
		return;
	}
	rs->state = VB_RS_CONNECTED;
	rs->stream.read_open = rs->stream.write_open = true;
	rs->stream.heard_ns = vb_rs_now_ns();
}

static int reason(const struct rdma_cm_event *event)
{
	if (event->event == RDMA_CM_EVENT_REJECTED)
		return ECONNREFUSED;
	if (event->status < 0)
		return -event->status;
	return event->event == RDMA_CM_EVENT_UNREACHABLE     ? ETIMEDOUT
	       : event->event == RDMA_CM_EVENT_CONNECT_ERROR ? ECONNABORTED
							     : EHOSTUNREACH;
}

/* The other side went. Its last word is in the queue, or it was killed and had none: then what it
 * sent may be missing its end, which is not the end of the data. */
static void disconnected(struct vb_rs *rs)
{
	struct vb_rs_stream *s = &rs->stream;

	if (rs->state == VB_RS_CONNECTED)
		vb_rs_take_completions(rs);
	if (vb_rs_is_opening(rs))
		fail(rs, ECONNRESET);
	else if (rs->state == VB_RS_CONNECTED && !s->read_open && !s->write_open)
		rs->state = VB_RS_ENDED;
	else
		vb_rs_break(rs, ECONNRESET);
}

static void on_event(struct vb_rs *rs, const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (rs->state == VB_RS_RESOLVING_ADDRESS)
			resolve_route(rs);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		if (rs->state == VB_RS_RESOLVING_ROUTE)
			request_connection(rs);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (rs->state == VB_RS_CONNECTING || rs->state == VB_RS_ACCEPTING)
			establish(rs, event);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		if (vb_rs_is_opening(rs))
			fail(rs, reason(event));
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		disconnected(rs);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		if (rs->state == VB_RS_CONNECTED)
			vb_rs_break(rs, ENODEV);
		else if (vb_rs_is_opening(rs))
			fail(rs, ENODEV);
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:  /* of listeners only */
	case RDMA_CM_EVENT_CONNECT_RESPONSE: /* of ids without a queue pair */
	case RDMA_CM_EVENT_MULTICAST_JOIN:
	case RDMA_CM_EVENT_MULTICAST_ERROR:
	case RDMA_CM_EVENT_ADDR_CHANGE:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	}
}

/* Keeps a connection request that can be understood; true when it was kept. */
static bool keep_request(struct vb_rs *rs, struct rdma_cm_event *event)
{
	struct vb_rs_request *request = &rs->stream.request;
	struct rdma_cm_id *id = event->id;
	bool bad = vb_rs_conn_decode(&request->peer, event->param.conn.private_data,
				     event->param.conn.private_data_len) != 0;

	request->param = event->param.conn;
	request->param.private_data = NULL;
	request->param.private_data_len = 0;
	rdma_ack_cm_event(event);
	if (bad) {
		rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
		return false;
	}
	request->id = id;
	return true;
}

/* What the channel of a listener tells of a connection that nobody has accepted: its end. */
static void forget_request(struct vb_rs *rs, struct rdma_cm_event *event)
{
	struct rdma_cm_id *id = event->id;

	rdma_ack_cm_event(event);
	if (id == rs->stream.request.id) {
		rs->stream.request.id = NULL;
		rdma_destroy_id(id);
	}
}

bool vb_rs_has_request(struct vb_rs *rs)
{
	struct vb_rs_stream *s = &rs->stream;
	struct rdma_cm_event *event;

	while (!s->request.id && rdma_get_cm_event(s->channel, &event) == 0) {
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
			keep_request(rs, event);
		else
			forget_request(rs, event);
	}
	return s->request.id;
}

bool vb_rs_cm_events(struct vb_rs *rs)
{
	struct rdma_cm_event *event;
	bool some = false;

	if (rs->state == VB_RS_LISTENING)
		return vb_rs_has_request(rs);
	while (rdma_get_cm_event(rs->stream.channel, &event) == 0) {
		on_event(rs, event);
		rdma_ack_cm_event(event);
		some = true;
	}
	return some;
}

static bool is_opened(struct vb_rs *rs)
{
	return !vb_rs_is_opening(rs);
}

int vb_rs_await_connection(struct vb_rs *rs, bool nonblocking)
{
	int result;

	if (vb_rs_is_opening(rs)) {
		result = vb_rs_wait(rs, is_opened, nonblocking, -1);
		if (result)
			return result;
	}
	if (rs->state < VB_RS_CONNECTED)
		return -ENOTCONN;
	if (rs->state == VB_RS_FAILED) {
		result = rs->error ? -rs->error : -ENOTCONN;
		rs->error = 0;
		return result;
	}
	return 0;
}

int rbind(int fd, const struct sockaddr *addr, socklen_t addrlen)
{
	struct vb_rs *rs = vb_rs_enter(fd);
	union vb_rs_address address;
	int result;

	if (!rs)
		return -1;
	result = vb_rs_copy_in(&address, addr, addrlen);
	if (!result && rs->state != VB_RS_NEW)
		result = -EINVAL;
	if (!result)
		result = rs->type == SOCK_STREAM
				 ? vb_rs_failed(rdma_bind_addr(rs->stream.id, &address.any))
				 : vb_rs_datagram_bind(rs, &address);
	if (!result)
		rs->state = VB_RS_BOUND;
	return (int)vb_rs_leave(rs, result);
}

int rlisten(int fd, int backlog)
{
	struct vb_rs *rs = vb_rs_enter(fd);
	union vb_rs_address any = {0};
	int result = 0;

	if (!rs)
		return -1;
	if (rs->type != SOCK_STREAM)
		result = -EOPNOTSUPP;
	else if (rs->state > VB_RS_LISTENING)
		result = -EINVAL;
	if (!result && rs->state == VB_RS_NEW) {
		any.any.sa_family = (sa_family_t)rs->domain;
		result = vb_rs_failed(rdma_bind_addr(rs->stream.id, &any.any));
	}
	if (!result && rs->state != VB_RS_LISTENING)
		result = vb_rs_failed(rdma_listen(rs->stream.id, backlog));
	if (!result)
		rs->state = VB_RS_LISTENING;
	return (int)vb_rs_leave(rs, result);
}

/* Makes a stream of a request, which it takes over whatever happens. */
static int accept_request(struct vb_rs *listener, struct vb_rs_request *request,
			  struct vb_rs **made)
{
	uint8_t description[VB_RS_CONN_BYTES];
	struct vb_rs *rs = vb_rs_create(listener->domain, SOCK_STREAM, listener);
	struct vb_rs_stream *s;
	int result;

	if (!rs) {
		rdma_reject(request->id, NULL, 0);
		rdma_destroy_id(request->id);
		return -ENOMEM;
	}
	s = &rs->stream;
	s->id = request->id;
	s->id->context = rs;
	s->channel = rdma_create_event_channel();
	result = vb_rs_failed(s->channel ? 0 : -1);
	if (!result)
		result = vb_rs_failed(fcntl(s->channel->fd, F_SETFL, O_NONBLOCK));
	if (!result)
		result = vb_rs_failed(rdma_migrate_id(s->id, s->channel));
	if (!result)
		result = vb_rs_open_endpoint(rs);
	if (result) {
		rdma_reject(s->id, NULL, 0);
		vb_rs_put(rs);
		return result;
	}
	rs->fd = s->channel->fd;
	vb_rs_meet(rs, &request->peer);
	vb_rs_describe(rs, description);
	request->param.private_data = description;
	request->param.private_data_len = sizeof(description);
	result = vb_rs_failed(rdma_accept(s->id, &request->param));
	if (!result) {
		rs->state = VB_RS_ACCEPTING;
		result = vb_rs_insert(rs);
	}
	if (result) {
		vb_rs_put(rs);
		return result;
	}
	*made = rs;
	return 0;
}

int raccept(int fd, struct sockaddr *addr, socklen_t *addrlen)
{
	struct vb_rs *rs = vb_rs_enter(fd);
	struct vb_rs *made = NULL;
	struct vb_rs_request request;
	int result = 0;

	if (!rs)
		return -1;
	if (rs->type != SOCK_STREAM)
		result = -EOPNOTSUPP;
	else if (rs->state != VB_RS_LISTENING)
		result = -EINVAL;
	else
		result = vb_rs_wait(rs, vb_rs_has_request, rs->nonblocking, -1);
	if (!result) {
		request = rs->stream.request;
		rs->stream.request.id = NULL;
		result = accept_request(rs, &request, &made);
	}
	pthread_mutex_unlock(&rs->lock);
	vb_rs_put(rs);
	if (result)
		return (int)vb_rs_result(result);
	if (addr && addrlen)
		vb_rs_copy_out(made, rdma_get_peer_addr(made->stream.id), addr, addrlen);
	return made->fd;
}

static int connect_stream(struct vb_rs *rs, const union vb_rs_address *to)
{
	struct vb_rs_stream *s = &rs->stream;
	union vb_rs_address address = *to;
	int result;

	if (rs->state == VB_RS_LISTENING)
		return -EOPNOTSUPP;
	if (rs->state >= VB_RS_CONNECTED && rs->state != VB_RS_FAILED)
		return -EISCONN;
	if (vb_rs_is_opening(rs)) {
		if (rs->nonblocking) {
			vb_rs_progress(rs);
			if (vb_rs_is_opening(rs))
				return -EALREADY;
		}
	} else if (rs->state != VB_RS_FAILED) {
		if (rdma_resolve_addr(s->id, NULL, &address.any, RESOLVE_MS) != 0)
			return vb_rs_failed(-1);
		rs->state = VB_RS_RESOLVING_ADDRESS;
	}
	result = vb_rs_await_connection(rs, rs->nonblocking);
	return result == -EAGAIN ? -EINPROGRESS : result;
}

int rconnect(int fd, const struct sockaddr *addr, socklen_t addrlen)
{
	struct vb_rs *rs = vb_rs_enter(fd);
	union vb_rs_address address;
	int result;

	if (!rs)
		return -1;
	result = vb_rs_copy_in(&address, addr, addrlen);
	if (!result)
		result = rs->type == SOCK_STREAM ? connect_stream(rs, &address)
						 : vb_rs_datagram_connect(rs, &address);
	return (int)vb_rs_leave(rs, result);
}
