/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * endpoint.c - the calls that do several steps at once: rdma_getaddrinfo(3), rdma_create_ep(3),
 * rdma_get_request(3).
 */
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "rdmacm/cma.h"

#define RESOLVE_TIMEOUT_MS 2000
#define FAMILY_IB 27 /* AF_IB: its addresses are not ours */

/* --- names ------------------------------------------------------------------------------- */

static int socket_type(int qp_type)
{
	switch (qp_type) {
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_XRC_RECV:
		return SOCK_STREAM;
	case IBV_QPT_UD:
		return SOCK_DGRAM;
	default:
		return 0;
	}
}

static int protocol(int port_space, int type)
{
	switch (port_space) {
	case RDMA_PS_TCP:
		return IPPROTO_TCP;
	case RDMA_PS_UDP:
	case RDMA_PS_IPOIB:
		return IPPROTO_UDP;
	case RDMA_PS_IB:
		return type == SOCK_STREAM ? IPPROTO_TCP : type == SOCK_DGRAM ? IPPROTO_UDP : 0;
	default:
		return 0;
	}
}

static void hints_of(const struct rdma_addrinfo *from, struct addrinfo *to)
{
	memset(to, 0, sizeof(*to));
	if (from->ai_flags & RAI_PASSIVE)
		to->ai_flags |= AI_PASSIVE;
	if (from->ai_flags & RAI_NUMERICHOST)
		to->ai_flags |= AI_NUMERICHOST;
	if (from->ai_family != FAMILY_IB)
		to->ai_family = from->ai_family;
	to->ai_socktype = socket_type(from->ai_qp_type);
	to->ai_protocol = protocol(from->ai_port_space, to->ai_socktype);
}

static int copy_address(struct sockaddr **to, socklen_t *to_len, const struct sockaddr *from,
			socklen_t len)
{
	*to = malloc(len);
	if (!*to)
		return EAI_MEMORY;
	memcpy(*to, from, len);
	*to_len = len;
	return 0;
}

static int take_found(struct rdma_addrinfo *out, const struct rdma_addrinfo *hints,
		      const struct addrinfo *found)
{
	bool passive = hints && hints->ai_flags & RAI_PASSIVE;
	char *name = found->ai_canonname ? strdup(found->ai_canonname) : NULL;

	out->ai_qp_type = hints ? hints->ai_qp_type : 0;
	if (!out->ai_qp_type)
		out->ai_qp_type = found->ai_socktype == SOCK_DGRAM ? IBV_QPT_UD : IBV_QPT_RC;
	out->ai_port_space = hints ? hints->ai_port_space : 0;
	if (!out->ai_port_space)
		out->ai_port_space = found->ai_protocol == IPPROTO_UDP ? RDMA_PS_UDP : RDMA_PS_TCP;
	out->ai_family = found->ai_family;
	if (passive) {
		out->ai_flags = RAI_PASSIVE;
		out->ai_src_canonname = name;
		return copy_address(&out->ai_src_addr, &out->ai_src_len, found->ai_addr,
				    found->ai_addrlen);
	}
	out->ai_dst_canonname = name;
	return copy_address(&out->ai_dst_addr, &out->ai_dst_len, found->ai_addr, found->ai_addrlen);
}

static int look_up(const char *node, const char *service, const struct rdma_addrinfo *hints,
		   struct rdma_addrinfo *out)
{
	struct addrinfo wanted, *found;
	int rc;

	if (hints)
		hints_of(hints, &wanted);
	rc = getaddrinfo(node, service, hints ? &wanted : NULL, &found);
	if (rc)
		return rc;
	rc = take_found(out, hints, found);
	freeaddrinfo(found);
	return rc;
}

static int take_hints(struct rdma_addrinfo *out, const struct rdma_addrinfo *hints)
{
	out->ai_flags = hints->ai_flags;
	out->ai_family = hints->ai_family;
	out->ai_qp_type = hints->ai_qp_type;
	out->ai_port_space = hints->ai_port_space;
	if (!hints->ai_dst_len)
		return 0;
	return copy_address(&out->ai_dst_addr, &out->ai_dst_len, hints->ai_dst_addr,
			    hints->ai_dst_len);
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
		     struct rdma_addrinfo **res)
{
	struct vb_adapter *adapters;
	struct rdma_addrinfo *out;
	int rc;

	if (!node && !service && !hints)
		return vb_cma_result(-EINVAL);
	rc = vb_adapters(&adapters);
	if (rc < 0)
		return vb_cma_result(rc);
	out = calloc(1, sizeof(*out));
	if (!out)
		return vb_cma_result(-ENOMEM);
	rc = node || service ? look_up(node, service, hints, out) : take_hints(out, hints);
	if (rc == 0 && hints && hints->ai_src_len && !out->ai_src_len)
		rc = copy_address(&out->ai_src_addr, &out->ai_src_len, hints->ai_src_addr,
				  hints->ai_src_len);
	if (rc) {
		rdma_freeaddrinfo(out);
		return rc;
	}
	*res = out;
	return 0;
}

void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	while (res) {
		struct rdma_addrinfo *next = res->ai_next;

		free(res->ai_connect);
		free(res->ai_route);
		free(res->ai_src_canonname);
		free(res->ai_dst_canonname);
		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res);
		res = next;
	}
}

/* --- endpoints --------------------------------------------------------------------------- */

static int make_passive(struct vb_id *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
			const struct ibv_qp_init_attr *attr)
{
	if (rdma_bind_addr(&id->pub, res->ai_src_addr))
		return -1;
	if (pd)
		id->pub.pd = pd;
	if (!attr)
		return 0;
	id->request_qp = malloc(sizeof(*attr));
	if (!id->request_qp)
		return -1;
	*id->request_qp = *attr;
	id->request_qp->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	return 0;
}

static int take_route(struct vb_id *id, const struct rdma_addrinfo *res)
{
	if (!res->ai_route_len)
		return rdma_resolve_route(&id->pub, RESOLVE_TIMEOUT_MS);
	if (rdma_set_option(&id->pub, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, res->ai_route,
			    res->ai_route_len))
		return -1;
	return vb_id_complete(id);
}

static int make_active(struct vb_id *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
		       struct ibv_qp_init_attr *attr)
{
	if (rdma_resolve_addr(&id->pub, res->ai_src_addr, res->ai_dst_addr, RESOLVE_TIMEOUT_MS) ||
	    take_route(id, res))
		return -1;
	if (attr) {
		attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
		if (rdma_create_qp(&id->pub, pd, attr))
			return -1;
	}
	if (!res->ai_connect_len)
		return 0;
	id->connect_data = malloc(res->ai_connect_len);
	if (!id->connect_data)
		return -1;
	memcpy(id->connect_data, res->ai_connect, res->ai_connect_len);
	id->connect_data_len = res->ai_connect_len;
	return 0;
}

int rdma_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *res, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *attr)
{
	struct vb_id *id;
	int rc = vb_id_create(&id, NULL, NULL, (enum rdma_port_space)res->ai_port_space,
			      (enum ibv_qp_type)res->ai_qp_type);

	if (rc)
		return vb_cma_result(rc);
	rc = res->ai_flags & RAI_PASSIVE ? make_passive(id, res, pd, attr)
					 : make_active(id, res, pd, attr);
	if (rc) {
		int cause = errno;

		rdma_destroy_ep(&id->pub);
		return vb_cma_result(-cause);
	}
	*out = &id->pub;
	return 0;
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	if (id->srq)
		rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

/* What came instead of a request is an error; it stays with the listener until the next call. */
static int check_request(struct vb_id *listener, struct rdma_cm_event *event)
{
	if (event->event == RDMA_CM_EVENT_REJECTED)
		return -ECONNREFUSED;
	if (event->status)
		return event->status < 0 ? event->status : -event->status;
	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		return -EINVAL;
	if (listener->request_qp) {
		struct ibv_qp_init_attr attr = *listener->request_qp;

		if (rdma_create_qp(event->id, listener->pub.pd, &attr))
			return -errno;
	}
	return 0;
}

int rdma_get_request(struct rdma_cm_id *pub, struct rdma_cm_id **out)
{
	struct vb_id *listener = vb_id(pub);
	struct rdma_cm_event *event;
	int rc;

	if (!listener->sync)
		return vb_cma_result(-EINVAL);
	if (pub->event) {
		rdma_ack_cm_event(pub->event);
		pub->event = NULL;
	}
	if (rdma_get_cm_event(pub->channel, &event))
		return -1;
	rc = check_request(listener, event);
	if (rc) {
		/* a request for which there is no queue pair is refused */
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
			rdma_destroy_id(event->id);
		pub->event = event;
		return vb_cma_result(rc);
	}
	*out = event->id;
	event->id->event = event;
	return 0;
}
