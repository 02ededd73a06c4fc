/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * event.c - from the connection manager's events to the program's.
 *
 * They come inside the engine, on any thread: what they say is copied into the id and into an event
 * of its channel, nothing else. What takes verbs (queue pairs, multicast) is done when the program
 * takes the event, in its own thread:
 *
 *      CONNECT_REQUEST    a synchronous listener's new id gets a channel of its own
 *      CONNECT_RESPONSE   with a queue pair: it goes to RTS, the RTU to the peer, and the program
 *                         sees ESTABLISHED
 *      REJECTED           the queue pair goes to ERR
 *      MULTICAST_JOIN     the queue pair is attached
 */
#include <stdlib.h>
#include <string.h>

#include "host/address.h"
#include "rdmacm/cma.h"

struct vb_id_event *vb_id_event_new(struct vb_id *id, enum rdma_cm_event_type type, int status)
{
	struct vb_id_event *event = calloc(1, sizeof(*event));

	if (!event)
		return NULL;
	event->owner = id;
	event->pub.id = &id->pub;
	event->pub.event = type;
	event->pub.status = status;
	vb_list_init(&event->link);
	return event;
}

int vb_id_raise(struct vb_id *id, enum rdma_cm_event_type type, int status)
{
	struct vb_id_event *event = vb_id_event_new(id, type, status);

	if (!event)
		return -ENOMEM;
	pthread_mutex_lock(&vb_cma_lock);
	vb_channel_raise(id->channel, event);
	pthread_mutex_unlock(&vb_cma_lock);
	return 0;
}

/* --- parameters -------------------------------------------------------------------------- */

/* size: the bytes of the message's field that are the program's. */
static const void *copy_private(struct vb_id_event *to, const struct vb_cm_event *from, size_t skip,
				size_t size)
{
	size_t given = from->private_data_len > skip ? from->private_data_len - skip : 0;

	if (!from->private_data)
		return NULL;
	memcpy(to->private_data, (const uint8_t *)from->private_data + skip, VB_MIN(given, size));
	return to->private_data;
}

static void copy_conn(struct vb_id_event *to, const struct vb_cm_event *from, size_t skip,
		      size_t size)
{
	struct rdma_conn_param *conn = &to->pub.param.conn;

	conn->private_data = copy_private(to, from, skip, size);
	conn->private_data_len = conn->private_data ? (uint8_t)size : 0;
}

static void copy_ud(struct vb_id_event *to, const struct vb_cm_event *from, size_t skip,
		    size_t size)
{
	struct rdma_ud_param *ud = &to->pub.param.ud;

	ud->private_data = copy_private(to, from, skip, size);
	ud->private_data_len = ud->private_data ? (uint8_t)size : 0;
}

/* What the sender can answer at once is what we may send, and the other way round. */
static void copy_req(struct vb_id_event *to, const struct vb_cm_event *from)
{
	struct rdma_conn_param *conn = &to->pub.param.conn;
	const struct vb_cm_req *req = from->req;

	copy_conn(to, from, VB_CM_IP_HEADER_BYTES, VB_CMA_CONNECT_PRIVATE);
	conn->responder_resources = req->initiator_depth;
	conn->initiator_depth = req->responder_resources;
	conn->flow_control = req->flow_control;
	conn->retry_count = req->retry_count;
	conn->rnr_retry_count = req->rnr_retry_count;
	conn->srq = req->srq;
	conn->qp_num = req->qpn;
}

static void copy_rep(struct vb_id_event *to, const struct vb_cm_event *from)
{
	struct rdma_conn_param *conn = &to->pub.param.conn;
	const struct vb_cm_rep *rep = from->rep;

	copy_conn(to, from, 0, VB_CM_REP_PRIVATE);
	conn->responder_resources = rep->initiator_depth;
	conn->initiator_depth = rep->responder_resources;
	conn->flow_control = rep->flow_control;
	conn->rnr_retry_count = rep->rnr_retry_count;
	conn->srq = rep->srq;
	conn->qp_num = rep->qpn;
}

/* --- a request: a new id ----------------------------------------------------------------- */

static void peering_from_req(struct vb_peering *peering, const struct vb_cm_event *event)
{
	const struct vb_cm_req *req = event->req;

	peering->qpn = req->qpn;
	peering->sq_psn = req->psn;
	peering->path_mtu = req->path_mtu;
	peering->ack_timeout = req->ack_timeout;
	peering->retry_count = req->retry_count;
	peering->rnr_retry_count = req->rnr_retry_count;
	peering->responder_resources = req->initiator_depth;
	peering->initiator_depth = req->responder_resources;
	peering->ah.flow_label = req->flow_label;
	peering->ah.traffic_class = req->traffic_class;
	if (req->hop_limit)
		peering->ah.hop_limit = req->hop_limit;
	peering->known = true;
}

static void set_address(struct sockaddr_storage *out, const struct in6_addr *address, uint16_t port,
			const struct vb_device *host)
{
	struct vb_endpoint endpoint = {.address = *address, .port = port};

	endpoint.family = vb_address_is_ipv4(address) ? AF_INET : AF_INET6;
	if (IN6_IS_ADDR_LINKLOCAL(address))
		endpoint.scope_id = host->ifindex;
	vb_endpoint_write(&endpoint, out);
}

static void describe_child(struct vb_id *child, const struct vb_cm_path *path,
			   const struct vb_cm_ip *ip, uint16_t port)
{
	struct rdma_addr *address = &child->pub.route.addr;
	const struct vb_device *host = child->adapter->host;

	set_address(&address->src_storage, &ip->destination, port, host);
	set_address(&address->dst_storage, &ip->source, ip->source_port, host);
	address->addr.ibaddr.pkey = htons(VB_CMA_PKEY);
	memcpy(address->addr.ibaddr.sgid.raw, &host->gids[path->ah.sgid_index].gid, 16);
	memcpy(address->addr.ibaddr.dgid.raw, &path->ah.dgid, 16);
	child->peering.ah = path->ah;
	child->peering.ah.hop_limit = VB_CMA_HOP_LIMIT;
	child->peering.ah.port_num = VB_CMA_PORT;
	child->peering.ah.is_global = true;
	child->peering.path_mtu = (uint16_t)host->active_path_mtu;
}

static struct vb_id *new_child(struct vb_id *listener, struct vb_engine *engine,
			       const struct vb_cm_event *event, const struct vb_cm_ip *ip)
{
	const bool xrc = event->type == VB_CM_REQ_RECEIVED && event->req->transport == VB_CM_XRC;
	struct vb_adapter *adapters;
	int count = vb_adapters(&adapters);
	struct vb_id *child;
	int i = 0;

	/* The target of XRC is no queue pair for anything else. */
	if (xrc != (listener->pub.qp_type == IBV_QPT_XRC_RECV))
		return NULL;
	while (i < count && adapters[i].engine != engine)
		i++;
	if (i == count || event->path->ah.sgid_index >= adapters[i].host->gid_count)
		return NULL;
	child = vb_id_new(listener->channel, listener->pub.context, listener->pub.ps,
			  listener->pub.qp_type);
	if (!child)
		return NULL;
	child->adapter = &adapters[i];
	child->engine = engine;
	child->sgid_index = event->path->ah.sgid_index;
	child->pub.verbs = adapters[i].verbs;
	child->pub.pd = adapters[i].pd;
	child->pub.port_num = VB_CMA_PORT;
	child->conn = event->conn;
	child->state = VB_ID_REQUESTED;
	child->tos = listener->tos;
	child->ack_timeout = listener->ack_timeout;
	child->ack_timeout_set = listener->ack_timeout_set;
	describe_child(child, event->path, ip, listener->binding.at.port);
	if (event->type == VB_CM_REQ_RECEIVED)
		peering_from_req(&child->peering, event);
	if (vb_id_fill_path(child) == 0)
		return child;
	pthread_mutex_destroy(&child->busy);
	free(child);
	return NULL;
}

/* Whether the listener takes one more; the lock is held. */
static bool queue_request(struct vb_id *listener, struct vb_id *child, struct vb_id_event *request)
{
	if (listener->state != VB_ID_LISTENING || listener->requests >= listener->backlog)
		return false;
	listener->requests++;
	child->listener = listener;
	child->channel = listener->channel;
	child->pub.channel = &listener->channel->pub;
	vb_channel_raise(listener->channel, request);
	return true;
}

static bool on_request(struct vb_engine *engine, const struct vb_cm_event *event)
{
	struct vb_id *listener = vb_cm_listener_user(event->listener), *child;
	struct vb_id_event *request;
	struct vb_cm_ip ip;
	bool taken;

	if ((event->type == VB_CM_SIDR_REQ_RECEIVED) != vb_id_is_datagram(listener) ||
	    vb_cm_ip_decode(&ip, event->private_data, event->private_data_len))
		return false;
	request = vb_id_event_new(listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	child = request ? new_child(listener, engine, event, &ip) : NULL;
	if (!child) {
		free(request);
		return false;
	}
	request->pub.id = &child->pub;
	request->pub.listen_id = &listener->pub;
	if (event->type == VB_CM_REQ_RECEIVED)
		copy_req(request, event);
	else
		copy_ud(request, event, VB_CM_IP_HEADER_BYTES, VB_CMA_LOOKUP_PRIVATE);

	vb_cm_conn_set_user(event->conn, child);
	pthread_mutex_lock(&vb_cma_lock);
	taken = queue_request(listener, child, request);
	pthread_mutex_unlock(&vb_cma_lock);
	if (taken)
		return true;
	*event->later = true; /* as Linux does: the requester's next attempt may find room */
	free(request);
	free(child->pub.route.path_rec);
	pthread_mutex_destroy(&child->busy);
	free(child);
	return false;
}

/* --- what comes to a connection ---------------------------------------------------------- */

static bool is_connecting(enum vb_id_state state)
{
	return state == VB_ID_CONNECTING || state == VB_ID_RESPONDED || state == VB_ID_REQUESTED ||
	       state == VB_ID_ACCEPTED || state == VB_ID_CONNECTED;
}

static void on_rep(struct vb_id *id, const struct vb_cm_event *event, struct vb_id_event *out)
{
	const struct vb_cm_rep *rep = event->rep;
	struct vb_peering *peering = &id->peering;

	id->state = VB_ID_RESPONDED;
	peering->qpn = rep->qpn;
	peering->sq_psn = rep->psn;
	peering->rnr_retry_count = rep->rnr_retry_count;
	peering->responder_resources = VB_MIN(rep->initiator_depth, peering->responder_resources);
	peering->initiator_depth = VB_MIN(rep->responder_resources, peering->initiator_depth);
	peering->ack_timeout =
		vb_ack_timeout(rep->target_ack_delay, id->pub.route.path_rec->packet_life_time);
	peering->known = true;
	out->pub.event = RDMA_CM_EVENT_CONNECT_RESPONSE;
	copy_rep(out, event);
}

static void on_sidr_rep(struct vb_id *id, const struct vb_cm_event *event, struct vb_id_event *out)
{
	const struct vb_cm_sidr_rep *rep = event->sidr_rep;
	struct rdma_ud_param *ud = &out->pub.param.ud;

	copy_ud(out, event, 0, VB_CM_SIDR_REP_PRIVATE);
	if (rep->status != VB_CM_SIDR_VALID) {
		id->state = VB_ID_FAILED;
		out->pub.event = RDMA_CM_EVENT_UNREACHABLE;
		out->pub.status = rep->status;
		return;
	}
	id->state = VB_ID_CONNECTED;
	out->pub.event = RDMA_CM_EVENT_ESTABLISHED;
	vb_ah_attr_to_ibv(&id->peering.ah, &ud->ah_attr);
	ud->qp_num = rep->qpn;
	ud->qkey = rep->qkey;
}

static bool on_end(struct vb_id *id, enum vb_cm_event_type type, struct vb_id_event *out)
{
	id->peer_disconnects = type == VB_CM_DREQ_RECEIVED;
	id->state = VB_ID_DISCONNECTED;
	out->pub.event = RDMA_CM_EVENT_DISCONNECTED;
	if (type == VB_CM_DREQ_FAILED)
		out->pub.status = -ETIMEDOUT;
	return true;
}

static bool on_failure(struct vb_id *id, struct vb_id_event *out)
{
	id->state = VB_ID_FAILED;
	out->pub.event = RDMA_CM_EVENT_UNREACHABLE;
	out->pub.status = -ETIMEDOUT;
	return true;
}

/* Under the lock: the id's next state, and the program's event. False: the program is not told. */
static bool translate(struct vb_id *id, const struct vb_cm_event *event, struct vb_id_event *out)
{
	if (event->type == VB_CM_TIMEWAIT_EXIT) {
		out->pub.event = RDMA_CM_EVENT_TIMEWAIT_EXIT;
		return id->state == VB_ID_DISCONNECTED;
	}
	if (!is_connecting(id->state))
		return false;
	switch (event->type) {
	case VB_CM_REP_RECEIVED:
		on_rep(id, event, out);
		return true;
	case VB_CM_REJ_RECEIVED:
		id->state = VB_ID_FAILED;
		out->pub.event = RDMA_CM_EVENT_REJECTED;
		out->pub.status = event->rej->reason;
		copy_conn(out, event, 0, VB_CM_REJ_PRIVATE);
		return true;
	case VB_CM_REQ_FAILED:
	case VB_CM_REP_FAILED:
	case VB_CM_SIDR_FAILED:
		return on_failure(id, out);
	case VB_CM_ESTABLISHED:
		id->state = VB_ID_CONNECTED;
		out->pub.event = RDMA_CM_EVENT_ESTABLISHED;
		return true;
	case VB_CM_DREQ_RECEIVED:
	case VB_CM_DREP_RECEIVED:
	case VB_CM_DREQ_FAILED:
		return on_end(id, event->type, out);
	case VB_CM_SIDR_REP_RECEIVED:
		on_sidr_rep(id, event, out);
		return true;
	case VB_CM_REQ_RECEIVED:
	case VB_CM_SIDR_REQ_RECEIVED:
	case VB_CM_MRA_RECEIVED:
	case VB_CM_TIMEWAIT_EXIT:
		break;
	}
	return false;
}

bool vb_on_cm_event(struct vb_engine *engine, const struct vb_cm_event *event)
{
	struct vb_id_event *out;
	struct vb_id *id;

	if (event->type == VB_CM_REQ_RECEIVED || event->type == VB_CM_SIDR_REQ_RECEIVED)
		return on_request(engine, event);
	id = vb_cm_conn_user(event->conn);
	if (!id)
		return true;
	out = vb_id_event_new(id, RDMA_CM_EVENT_CONNECT_ERROR, 0);
	if (!out)
		return true;
	pthread_mutex_lock(&vb_cma_lock);
	if (translate(id, event, out)) {
		vb_channel_raise(id->channel, out);
		out = NULL;
	}
	pthread_mutex_unlock(&vb_cma_lock);
	free(out);
	return true;
}

/* --- when the program takes it ----------------------------------------------------------- */

static bool process_request(struct vb_id_event *event)
{
	struct vb_id *child = vb_id(event->pub.id);

	if (!event->owner->sync || vb_id_own_channel(child) == 0)
		return true;
	vb_id_destroy(child);
	return false;
}

static void stop_qp(struct vb_id *id)
{
	pthread_mutex_lock(&id->busy);
	vb_qp_to_error(id);
	pthread_mutex_unlock(&id->busy);
}

static void process_response(struct vb_id *id, struct vb_id_event *event)
{
	int rc = vb_id_respond(id);

	if (rc == -ENOENT)
		return; /* the program moves its own, and calls rdma_establish() */
	if (rc == 0) {
		event->pub.event = RDMA_CM_EVENT_ESTABLISHED;
		return;
	}
	stop_qp(id);
	event->pub.event = RDMA_CM_EVENT_CONNECT_ERROR;
	event->pub.status = rc;
	pthread_mutex_lock(&vb_cma_lock);
	id->told_of_failure = true;
	pthread_mutex_unlock(&vb_cma_lock);
}

static bool was_told(struct vb_id *id)
{
	bool told;

	pthread_mutex_lock(&vb_cma_lock);
	told = id->told_of_failure;
	pthread_mutex_unlock(&vb_cma_lock);
	return told;
}

bool vb_id_event_process(struct vb_id_event *event)
{
	struct vb_id *id = vb_id(event->pub.id);
	int rc;

	switch (event->pub.event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return process_request(event);
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		process_response(id, event);
		return true;
	case RDMA_CM_EVENT_REJECTED:
		if (was_told(id))
			return false;
		stop_qp(id);
		return true;
	case RDMA_CM_EVENT_DISCONNECTED:
		return !was_told(id);
	case RDMA_CM_EVENT_MULTICAST_JOIN:
		rc = vb_group_joined(id, event->group);
		if (rc) {
			event->pub.event = RDMA_CM_EVENT_MULTICAST_ERROR;
			event->pub.status = -rc;
		}
		return true;
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_ESTABLISHED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
	case RDMA_CM_EVENT_MULTICAST_ERROR:
	case RDMA_CM_EVENT_ADDR_CHANGE:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	}
	return true;
}
