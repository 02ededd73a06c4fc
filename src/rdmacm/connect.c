/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * connect.c - rdma_listen(3), rdma_connect(3), rdma_accept(3), rdma_reject(3), rdma_establish(3),
 * rdma_disconnect(3), rdma_notify(3).
 *
 * Everything is checked before anything is changed or sent: sizes, the id's state, depths.
 */
#include <string.h>

#include "rdmacm/cma.h"

/* What Linux gives a peer for an answer, 4.096 us * 2^20 = 4.3 s, and how often it asks. */
#define CM_TIMEOUT 20
#define CM_RETRIES 15
#define MAX_BACKLOG 1024
#define REJ_VENDOR_OPTION_NOT_SUPPORTED 35
#define SEVEN 7 /* of three bits: for ever, where RNR retries are meant */

uint8_t vb_ack_timeout(uint8_t ack_delay, uint8_t packet_life_time)
{
	int timeout = packet_life_time + 1;

	/* a sum of powers of two, to the next power */
	if (timeout >= ack_delay)
		timeout += ack_delay >= timeout - 1;
	else
		timeout = ack_delay + (timeout >= ack_delay - 1);
	return (uint8_t)VB_MIN(timeout, 31);
}

/* --- listening --------------------------------------------------------------------------- */

static void match_of(const struct vb_id *id, struct vb_cm_match *match)
{
	const struct vb_binding *binding = &id->binding;
	bool ipv4 = IN6_IS_ADDR_V4MAPPED(&binding->at.address);

	memset(match, 0, sizeof(*match));
	if (binding->at.any) {
		if (ipv4)
			match->ip_version = 4;
		else if (id->one_family || !IN6_IS_ADDR_UNSPECIFIED(&binding->at.address))
			match->ip_version = 6;
		return;
	}
	/* the header's destination address ends at its end (cm/ip.h) */
	match->ip_version = ipv4 ? 4 : 6;
	match->len = ipv4 ? 4 : 16;
	match->at = (uint8_t)(VB_CM_IP_HEADER_BYTES - match->len);
	memcpy(match->bytes, &binding->at.address.s6_addr[16 - match->len], match->len);
}

static int listen_on(struct vb_id *id, struct vb_adapter *adapter)
{
	uint64_t service = vb_cm_service_id((uint16_t)id->pub.ps, id->binding.at.port);
	struct vb_cm_match match;
	struct vb_cm *cm;
	int rc = -ENODEV;

	match_of(id, &match);
	if (!vb_engine_enter(adapter->engine))
		return rc;
	cm = vb_engine_cm(adapter->engine);
	rc = cm ? vb_cm_listen(cm, service, &match, id, &id->listeners[adapter->index]) : -errno;
	vb_engine_leave(adapter->engine);
	return rc;
}

static void unlisten(struct vb_id *id, struct vb_adapter *adapters)
{
	for (unsigned int i = 0; i < VB_MAX_DEVICES; i++) {
		if (!id->listeners[i])
			continue;
		if (vb_engine_enter(adapters[i].engine)) {
			vb_cm_unlisten(id->listeners[i]);
			vb_engine_leave(adapters[i].engine);
		}
		id->listeners[i] = NULL;
	}
}

static int listen_everywhere(struct vb_id *id)
{
	struct vb_adapter *adapters;
	int count = vb_adapters(&adapters), rc = 0;

	for (int i = 0; i < count && rc == 0; i++)
		if (id->binding.adapters & 1u << i)
			rc = listen_on(id, &adapters[i]);
	if (rc == 0)
		rc = vb_port_listen(id);
	if (rc)
		unlisten(id, adapters);
	return rc;
}

static int start_listening(struct vb_id *id, int backlog)
{
	static const struct vb_endpoint anywhere = {
		.family = AF_INET,
		.address = {{{[10] = 0xff, [11] = 0xff}}},
		.any = true,
	};
	int rc = 0;

	if (vb_id_state(id) == VB_ID_IDLE)
		rc = vb_id_bind(id, &anywhere);
	if (rc == 0 && vb_id_state(id) != VB_ID_BOUND)
		rc = -EINVAL;
	if (rc)
		return rc;
	pthread_mutex_lock(&vb_cma_lock);
	id->backlog = backlog > 0 && backlog < MAX_BACKLOG ? (unsigned int)backlog : MAX_BACKLOG;
	id->state = VB_ID_LISTENING;
	pthread_mutex_unlock(&vb_cma_lock);
	rc = listen_everywhere(id);
	if (rc)
		vb_id_set_state(id, VB_ID_BOUND);
	return rc;
}

int rdma_listen(struct rdma_cm_id *pub, int backlog)
{
	struct vb_id *id = vb_id(pub);
	int rc;

	pthread_mutex_lock(&id->busy);
	rc = start_listening(id, backlog);
	pthread_mutex_unlock(&id->busy);
	return vb_cma_result(rc);
}

/* --- parameters -------------------------------------------------------------------------- */

/* struct message - a program's private data behind what the face puts before it. */
struct message {
	uint8_t data[VB_CM_PRIVATE_MAX];
	size_t len;
};

static int append(struct message *message, const void *data, size_t len, size_t limit)
{
	if (!data)
		return 0;
	if (message->len + len > limit)
		return -EINVAL;
	memcpy(message->data + message->len, data, len);
	message->len += len;
	return 0;
}

static int append_program(struct message *message, const struct vb_id *id,
			  const struct rdma_conn_param *param, size_t limit)
{
	int rc = append(message, id->connect_data, id->connect_data_len, limit);

	if (rc == 0 && param)
		rc = append(message, param->private_data, param->private_data_len, limit);
	return rc;
}

static void ip_header(const struct vb_id *id, struct message *message)
{
	const struct rdma_addr *address = &id->pub.route.addr;
	struct vb_endpoint source, destination;
	struct vb_cm_ip ip;

	if (vb_endpoint_read(&source, &address->src_addr) ||
	    vb_endpoint_read(&destination, &address->dst_addr))
		return; /* a routed id has both */
	ip.ipv4 = IN6_IS_ADDR_V4MAPPED(&destination.address);
	ip.source_port = source.port;
	ip.source = source.address;
	ip.destination = destination.address;
	vb_cm_ip_encode(&ip, message->data);
	message->len = VB_CM_IP_HEADER_BYTES;
}

/* 255 stands for what the device can do. */
static int check_depths(const struct vb_id *id, const struct rdma_conn_param *param)
{
	if (vb_id_is_datagram(id))
		return 0;
	if (!param)
		return id->pub.qp ? 0 : -EINVAL;
	if (param->responder_resources != RDMA_MAX_RESP_RES &&
	    param->responder_resources > id->adapter->max_responder_resources)
		return -EINVAL;
	if (param->initiator_depth != RDMA_MAX_INIT_DEPTH &&
	    param->initiator_depth > id->adapter->max_initiator_depth)
		return -EINVAL;
	return 0;
}

static uint8_t three_bits(uint8_t value)
{
	return VB_MIN(value, SEVEN);
}

/* struct offer - what of a REQ or REP comes from the program. */
struct offer {
	uint32_t qpn;
	bool srq, flow_control;
	uint8_t responder_resources, initiator_depth, retry_count, rnr_retry_count;
};

/* limits: the most of each, where the program asks for the most. */
static void make_offer(const struct vb_id *id, const struct rdma_conn_param *param,
		       uint8_t max_responder_resources, uint8_t max_initiator_depth,
		       struct offer *out)
{
	memset(out, 0, sizeof(*out));
	out->responder_resources = max_responder_resources;
	out->initiator_depth = max_initiator_depth;
	out->retry_count = out->rnr_retry_count = SEVEN;
	if (param) {
		out->qpn = param->qp_num & 0xffffff;
		out->srq = param->srq;
		out->flow_control = param->flow_control;
		out->retry_count = three_bits(param->retry_count);
		out->rnr_retry_count = three_bits(param->rnr_retry_count);
		if (param->responder_resources != RDMA_MAX_RESP_RES)
			out->responder_resources = param->responder_resources;
		if (param->initiator_depth != RDMA_MAX_INIT_DEPTH)
			out->initiator_depth = param->initiator_depth;
	}
	if (id->pub.qp) {
		out->qpn = id->pub.qp->qp_num;
		out->srq = id->pub.qp->srq != NULL;
	}
}

/* --- the active side --------------------------------------------------------------------- */

static enum vb_cm_transport transport_of(const struct vb_id *id)
{
	enum ibv_qp_type type = id->pub.qp ? id->pub.qp->qp_type : id->pub.qp_type;

	if (type == IBV_QPT_XRC_SEND)
		return VB_CM_XRC;
	return type == IBV_QPT_UC ? VB_CM_UC : VB_CM_RC;
}

static void fill_req(struct vb_id *id, const struct offer *offer, const struct message *message,
		     struct vb_cm_req *req)
{
	const struct vb_peering *peering = &id->peering;
	const struct rdma_addr *address = &id->pub.route.addr;

	*req = (struct vb_cm_req){
		.service_id =
			vb_cm_service_id((uint16_t)id->pub.ps, ntohs(rdma_get_dst_port(&id->pub))),
		.qpn = offer->qpn,
		.psn = id->rq_psn,
		.transport = transport_of(id),
		.responder_resources = offer->responder_resources,
		.initiator_depth = offer->initiator_depth,
		.flow_control = offer->flow_control,
		.srq = offer->srq,
		.retry_count = offer->retry_count,
		.rnr_retry_count = offer->rnr_retry_count,
		.pkey = VB_CMA_PKEY,
		.path_mtu = peering->path_mtu,
		.ack_timeout = peering->ack_timeout,
		.remote_cm_timeout = CM_TIMEOUT,
		.local_cm_timeout = CM_TIMEOUT,
		.max_cm_retries = CM_RETRIES,
		.dgid = peering->ah.dgid,
		.flow_label = peering->ah.flow_label,
		.traffic_class = peering->ah.traffic_class,
		.hop_limit = peering->ah.hop_limit,
		.sl = peering->ah.sl,
		.private_data = message->data,
		.private_data_len = message->len,
	};
	memcpy(&req->sgid, address->addr.ibaddr.sgid.raw, sizeof(req->sgid));
}

static int send_req(struct vb_id *id, const struct offer *offer, const struct message *message)
{
	struct vb_cm_path path = {.ah = id->peering.ah};

	if (vb_id_is_datagram(id)) {
		struct vb_cm_sidr_req req = {
			.service_id = vb_cm_service_id((uint16_t)id->pub.ps,
						       ntohs(rdma_get_dst_port(&id->pub))),
			.pkey = VB_CMA_PKEY,
			.timeout = CM_TIMEOUT,
			.max_retries = CM_RETRIES,
			.private_data = message->data,
			.private_data_len = message->len,
		};

		return vb_cm_send_sidr_req(id->conn, &path, &req, vb_engine_now());
	} else {
		struct vb_cm_req req;

		fill_req(id, offer, message, &req);
		return vb_cm_send_req(id->conn, &path, &req, vb_engine_now());
	}
}

static void remember_offer(struct vb_id *id, const struct offer *offer)
{
	struct vb_peering *peering = &id->peering;

	peering->retry_count = offer->retry_count;
	peering->responder_resources = offer->responder_resources;
	peering->initiator_depth = offer->initiator_depth;
	peering->ack_timeout =
		vb_ack_timeout(id->adapter->ack_delay, id->pub.route.path_rec->packet_life_time);
	peering->known = false;
}

/* Inside: the answer may come before this returns, to another thread, but not into the engine. */
static int start_connecting(struct vb_id *id, const struct offer *offer,
			    const struct message *message)
{
	struct vb_cm *cm = vb_engine_cm(id->engine);
	int rc;

	if (!cm)
		return -errno;
	id->conn = vb_cm_conn_create(cm, id);
	if (!id->conn)
		return -errno;
	remember_offer(id, offer);
	id->qpn = offer->qpn;
	vb_id_set_state(id, VB_ID_CONNECTING);
	rc = send_req(id, offer, message);
	if (rc) {
		vb_id_set_state(id, VB_ID_ROUTE);
		vb_cm_conn_destroy(id->conn, vb_engine_now());
		id->conn = NULL;
	}
	return rc;
}

static int connect_id(struct vb_id *id, const struct rdma_conn_param *param)
{
	size_t limit = vb_id_is_datagram(id) ? VB_CM_SIDR_REQ_PRIVATE : VB_CM_REQ_PRIVATE;
	struct message message = {.len = 0};
	struct offer offer;
	int rc;

	if (vb_id_state(id) != VB_ID_ROUTE)
		return -EINVAL;
	rc = check_depths(id, param);
	ip_header(id, &message);
	if (rc == 0)
		rc = append_program(&message, id, param, limit);
	if (rc)
		return rc;
	make_offer(id, param, id->adapter->max_responder_resources,
		   id->adapter->max_initiator_depth, &offer);
	if (!vb_engine_enter(id->engine))
		return -ENODEV;
	rc = start_connecting(id, &offer, &message);
	vb_engine_leave(id->engine);
	return rc;
}

int rdma_connect(struct rdma_cm_id *pub, struct rdma_conn_param *param)
{
	struct vb_id *id = vb_id(pub);
	int rc;

	pthread_mutex_lock(&id->busy);
	rc = connect_id(id, param);
	pthread_mutex_unlock(&id->busy);
	return rc ? vb_cma_result(rc) : vb_id_complete(id);
}

static int send_rtu(struct vb_id *id)
{
	int rc = -EINVAL;

	if (!vb_engine_enter(id->engine))
		return -ENODEV;
	if (vb_id_state(id) == VB_ID_RESPONDED)
		rc = vb_cm_send_rtu(id->conn, NULL, 0, vb_engine_now());
	if (rc == 0) {
		vb_id_set_state(id, VB_ID_CONNECTED);
		vb_engine_watch_peer(id->engine, id->qpn);
	}
	vb_engine_leave(id->engine);
	return rc;
}

int vb_id_respond(struct vb_id *id)
{
	int rc;

	pthread_mutex_lock(&id->busy);
	rc = id->pub.qp ? vb_qp_to_rtr(id, RDMA_MAX_RESP_RES) : -ENOENT;
	if (rc == 0)
		rc = vb_qp_to_rts(id, RDMA_MAX_INIT_DEPTH);
	if (rc == 0)
		rc = send_rtu(id);
	pthread_mutex_unlock(&id->busy);
	return rc;
}

int rdma_establish(struct rdma_cm_id *pub)
{
	struct vb_id *id = vb_id(pub);
	int rc;

	if (pub->qp)
		return vb_cma_result(-EINVAL);
	pthread_mutex_lock(&id->busy);
	rc = id->conn ? send_rtu(id) : -EINVAL;
	pthread_mutex_unlock(&id->busy);
	return vb_cma_result(rc);
}

/* --- the passive side -------------------------------------------------------------------- */

static int send_rep(struct vb_id *id, const struct offer *offer, const struct message *message)
{
	struct vb_cm_rep rep = {
		.qpn = offer->qpn,
		.psn = id->rq_psn,
		.responder_resources = offer->responder_resources,
		.initiator_depth = offer->initiator_depth,
		.flow_control = offer->flow_control,
		.srq = offer->srq,
		.rnr_retry_count = offer->rnr_retry_count,
		.target_ack_delay = id->adapter->ack_delay,
		.failover_accepted = 1,
		.private_data = message->data,
		.private_data_len = message->len,
	};

	return vb_cm_send_rep(id->conn, &rep, vb_engine_now());
}

static int answer_lookup(struct vb_id *id, uint32_t qpn, const struct message *message)
{
	struct vb_cm_sidr_rep rep = {
		.status = VB_CM_SIDR_VALID,
		.qpn = qpn,
		.qkey = RDMA_UDP_QKEY,
		.private_data = message->data,
		.private_data_len = message->len,
	};

	return vb_cm_send_sidr_rep(id->conn, &rep, vb_engine_now());
}

/* The answer, inside. The state first: the RTU may be there before we have left. */
static int answer(struct vb_id *id, const struct offer *offer, const struct message *message)
{
	bool datagram = vb_id_is_datagram(id);
	int rc = -EINVAL;

	if (!vb_engine_enter(id->engine))
		return -ENODEV;
	if (vb_id_state(id) == VB_ID_REQUESTED) {
		vb_id_set_state(id, datagram ? VB_ID_CONNECTED : VB_ID_ACCEPTED);
		rc = datagram ? answer_lookup(id, offer->qpn, message)
			      : send_rep(id, offer, message);
		if (rc)
			vb_id_set_state(id, VB_ID_REQUESTED);
		else if (!datagram)
			vb_engine_watch_peer(id->engine, offer->qpn);
	}
	vb_engine_leave(id->engine);
	return rc;
}

static int accept_id(struct vb_id *id, const struct rdma_conn_param *param)
{
	size_t limit = vb_id_is_datagram(id) ? VB_CM_SIDR_REP_PRIVATE : VB_CM_REP_PRIVATE;
	const struct vb_peering *peering = &id->peering;
	struct message message = {.len = 0};
	struct offer offer;
	int rc;

	if (vb_id_state(id) != VB_ID_REQUESTED || (!id->pub.qp && !param))
		return -EINVAL;
	rc = check_depths(id, param);
	if (rc == 0)
		rc = append_program(&message, id, param, limit);
	if (rc)
		return rc;
	make_offer(id, param,
		   VB_MIN(peering->responder_resources, id->adapter->max_responder_resources),
		   VB_MIN(peering->initiator_depth, id->adapter->max_initiator_depth), &offer);
	if (!vb_id_is_datagram(id)) {
		rc = vb_qp_to_rtr(id, offer.responder_resources);
		if (rc == 0)
			rc = vb_qp_to_rts(id, offer.initiator_depth);
	}
	if (rc == 0)
		rc = answer(id, &offer, &message);
	if (rc)
		vb_qp_to_error(id);
	return rc;
}

int rdma_accept(struct rdma_cm_id *pub, struct rdma_conn_param *param)
{
	struct vb_id *id = vb_id(pub);
	int rc;

	pthread_mutex_lock(&id->busy);
	rc = accept_id(id, param);
	pthread_mutex_unlock(&id->busy);
	if (rc)
		return vb_cma_result(rc);
	if (!vb_id_is_datagram(id))
		return vb_id_complete(id);
	if (id->sync && pub->event) { /* nothing more comes: the request is done with */
		rdma_ack_cm_event(pub->event);
		pub->event = NULL;
	}
	return 0;
}

static int send_refusal(struct vb_id *id, uint16_t reason, const void *data, size_t len)
{
	if (vb_id_is_datagram(id)) {
		struct vb_cm_sidr_rep rep = {
			.status = VB_CM_SIDR_REJECTED,
			.private_data = data,
			.private_data_len = len,
		};

		return vb_cm_send_sidr_rep(id->conn, &rep, vb_engine_now());
	} else {
		struct vb_cm_rej rej = {
			.reason = reason,
			.private_data = data,
			.private_data_len = len,
		};

		return vb_cm_send_rej(id->conn, &rej, vb_engine_now());
	}
}

static int reject(struct rdma_cm_id *pub, uint16_t reason, const void *data, uint8_t len)
{
	struct vb_id *id = vb_id(pub);
	size_t limit = vb_id_is_datagram(id) ? VB_CM_SIDR_REP_PRIVATE : VB_CM_REJ_PRIVATE;
	int rc = -EINVAL;

	if (!data)
		len = 0;
	if (len > limit)
		return vb_cma_result(-EINVAL);
	pthread_mutex_lock(&id->busy);
	if (id->conn && !vb_engine_enter(id->engine)) {
		rc = -ENODEV;
	} else if (id->conn) {
		rc = send_refusal(id, reason, data, len);
		if (rc == 0)
			vb_id_set_state(id, VB_ID_FAILED);
		vb_engine_leave(id->engine);
	}
	pthread_mutex_unlock(&id->busy);
	return vb_cma_result(rc);
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	return reject(id, VB_CM_REJ_CONSUMER_DEFINED, data, len);
}

int rdma_reject_ece(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	return reject(id, REJ_VENDOR_OPTION_NOT_SUPPORTED, data, len);
}

/* --- the end ----------------------------------------------------------------------------- */

/* True: an event of it comes, or is there. */
static bool say_goodbye(struct vb_id *id)
{
	bool comes = false, answer_peer;
	enum vb_id_state state;

	if (vb_id_is_datagram(id) || !vb_engine_enter(id->engine))
		return false;
	pthread_mutex_lock(&vb_cma_lock);
	state = id->state;
	answer_peer = id->peer_disconnects;
	id->peer_disconnects = false;
	comes = !vb_list_is_empty(&id->channel->events);
	pthread_mutex_unlock(&vb_cma_lock);
	/* what the manager refuses has happened otherwise */
	if (answer_peer)
		(void)!vb_cm_send_drep(id->conn, NULL, 0, vb_engine_now());
	else if (state == VB_ID_CONNECTED || state == VB_ID_ACCEPTED || state == VB_ID_RESPONDED)
		comes |= vb_cm_send_dreq(id->conn, NULL, 0, vb_engine_now()) == 0;
	vb_engine_leave(id->engine);
	return comes;
}

int rdma_disconnect(struct rdma_cm_id *pub)
{
	struct vb_id *id = vb_id(pub);
	bool comes = false;
	int rc = -EINVAL;

	pthread_mutex_lock(&id->busy);
	if (id->conn)
		rc = vb_qp_to_error(id);
	if (rc == 0)
		comes = say_goodbye(id);
	pthread_mutex_unlock(&id->busy);
	if (rc || !comes)
		return vb_cma_result(rc);
	return vb_id_complete(id);
}

static int communication_established(struct vb_id *id)
{
	enum vb_id_state state;
	int rc = -EINVAL;

	if (!vb_engine_enter(id->engine))
		return -ENODEV;
	state = vb_id_state(id);
	if (state == VB_ID_CONNECTED)
		rc = -EISCONN;
	else if (state == VB_ID_ACCEPTED)
		rc = vb_cm_notify_established(id->conn, vb_engine_now());
	vb_engine_leave(id->engine);
	return rc;
}

int rdma_notify(struct rdma_cm_id *pub, enum ibv_event_type event)
{
	struct vb_id *id = vb_id(pub);
	int rc = -EINVAL;

	pthread_mutex_lock(&id->busy);
	if (id->conn && event == IBV_EVENT_COMM_EST)
		rc = communication_established(id);
	pthread_mutex_unlock(&id->busy);
	return vb_cma_result(rc);
}
