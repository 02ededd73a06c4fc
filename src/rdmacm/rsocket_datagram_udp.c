/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket_datagram_udp.c - datagram rsockets before their queue pairs know each other.
 *
 *      A                                       B
 *      data, A's queue pair  --- UDP --->      delivered; B can send to A's queue pair now
 *                            <--- UDP ---      control, B's queue pair
 *      data                  --- UD ---->
 *
 * Every UDP datagram leaves with the address of the queue pair that it tells of as its source,
 * whatever the UDP socket is bound to, since the receiver takes both for one.
 */
#define _GNU_SOURCE
#include "rdmacm/rsocket.h"

#include <stdlib.h>
#include <string.h>

enum {
	TAKE_AT_ONCE = 32,
	WAITING_MAX = 64, /* datagrams that came by UDP and nobody read */
	PEERS_MAX = 1024, /* the one that was not used for longest goes first */
};

int vb_rs_udp_name(const struct vb_rs *rs, union vb_rs_address *address)
{
	union vb_rs_address raw;
	socklen_t size = sizeof(raw);

	if (getsockname(rs->fd, &raw.any, &size) != 0)
		return vb_rs_failed(-1);
	return vb_rs_copy_in(address, &raw.any, size);
}

int vb_rs_udp_bind(struct vb_rs *rs, const union vb_rs_address *address)
{
	union vb_rs_address raw;
	socklen_t size = sizeof(raw);

	vb_rs_copy_out(rs, &address->any, &raw.any, &size);
	return vb_rs_failed(bind(rs->fd, &raw.any, size));
}

/* Which of our addresses reaches it. A socket that is bound to one has no choice. */
static int source_for(struct vb_rs *rs, const union vb_rs_address *to, union vb_rs_address *source)
{
	union vb_rs_address name, remote = *to;
	struct rdma_cm_id *id;
	int result = vb_rs_udp_name(rs, &name);

	if (result)
		return result;
	if (!vb_rs_is_any(&name)) {
		*source = name;
		return 0;
	}
	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP) != 0)
		return vb_rs_failed(-1);
	result = vb_rs_failed(rdma_resolve_addr(id, NULL, &remote.any, 2000));
	if (!result) {
		const struct sockaddr *local = rdma_get_local_addr(id);

		result = vb_rs_copy_in(source, local,
				       local->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
								    : sizeof(struct sockaddr_in));
	}
	rdma_destroy_id(id);
	if (result)
		return result;
	if (source->any.sa_family == AF_INET6)
		source->in6.sin6_port = vb_rs_port(&name);
	else
		source->in.sin_port = vb_rs_port(&name);
	return 0;
}

/* A UDP socket without a port gets one before its port is told to anybody. */
static int bind_source(struct vb_rs *rs, union vb_rs_address *source)
{
	int result;

	if (vb_rs_port(source))
		return 0;
	result = vb_rs_udp_bind(rs, source);
	if (!result) {
		rs->state = VB_RS_BOUND;
		result = vb_rs_udp_name(rs, source);
	}
	return result;
}

static void forget_oldest(struct vb_rs_datagram *d)
{
	struct vb_rs_peer *peer = vb_list_entry(d->peers.prev, struct vb_rs_peer, link);

	if (peer == d->connected)
		return;
	vb_list_remove(&peer->link);
	d->peer_count--;
	if (peer->ah)
		ibv_destroy_ah(peer->ah);
	free(peer);
}

static void to_front(struct vb_rs_datagram *d, struct vb_rs_peer *peer)
{
	vb_list_remove(&peer->link);
	vb_list_append(d->peers.next, &peer->link); /* before the first one */
}

int vb_rs_peer_find(struct vb_rs *rs, const union vb_rs_address *address, struct vb_rs_peer **found)
{
	struct vb_rs_datagram *d = &rs->datagram;
	union vb_rs_address source;
	struct vb_list *link, *tmp;
	struct vb_rs_peer *peer;
	int result;

	vb_list_for_each(link, tmp, &d->peers)
	{
		peer = vb_list_entry(link, struct vb_rs_peer, link);
		if (vb_rs_port(&peer->address) == vb_rs_port(address) &&
		    vb_rs_same_host(&peer->address, address)) {
			to_front(d, peer);
			*found = peer;
			return 0;
		}
	}
	result = source_for(rs, address, &source);
	if (!result)
		result = bind_source(rs, &source);
	if (result)
		return result;
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return -ENOMEM;
	vb_list_init(&peer->link);
	peer->address = *address;
	result = vb_rs_local_find(rs, &source, &peer->local);
	if (result) {
		free(peer);
		return result;
	}
	if (d->peer_count == PEERS_MAX)
		forget_oldest(d);
	vb_list_append(d->peers.next, &peer->link);
	d->peer_count++;
	*found = peer;
	return 0;
}

/* Room for either family's packet information, aligned as its header. */
union control {
	struct cmsghdr header;
	uint8_t bytes[CMSG_SPACE(sizeof(struct in6_pktinfo))];
};

/* The source address: as packet information of the socket's own family. */
static void set_source(const struct vb_rs *rs, const union vb_rs_address *source,
		       struct msghdr *msg, union control *control)
{
	struct cmsghdr *header = &control->header;
	union vb_rs_address raw;
	socklen_t size = sizeof(raw);

	memset(control, 0, sizeof(*control));
	vb_rs_copy_out(rs, &source->any, &raw.any, &size);
	if (rs->domain == AF_INET) {
		struct in_pktinfo info = {.ipi_spec_dst = raw.in.sin_addr};

		*header = (struct cmsghdr){CMSG_LEN(sizeof(info)), IPPROTO_IP, IP_PKTINFO};
		memcpy(CMSG_DATA(header), &info, sizeof(info));
		msg->msg_controllen = CMSG_SPACE(sizeof(info));
	} else {
		struct in6_pktinfo info = {.ipi6_addr = raw.in6.sin6_addr};

		*header = (struct cmsghdr){CMSG_LEN(sizeof(info)), IPPROTO_IPV6, IPV6_PKTINFO};
		memcpy(CMSG_DATA(header), &info, sizeof(info));
		msg->msg_controllen = CMSG_SPACE(sizeof(info));
	}
	msg->msg_control = control;
}

int vb_rs_udp_send(struct vb_rs *rs, const struct vb_rs_peer *peer, struct vb_rs_vector *from)
{
	struct vb_rs_udp udp = {
		.control = !from,
		.queue_pair = peer->local->id->qp->qp_num,
		.local = peer->local->address,
	};
	uint8_t bytes[VB_RS_UDP_BYTES_IPV6 + VB_RS_DATAGRAM_BYTES];
	struct iovec iov = {bytes, vb_rs_udp_encode(&udp, bytes)};
	union vb_rs_address raw;
	socklen_t size = sizeof(raw);
	struct msghdr msg = {.msg_name = &raw, .msg_iov = &iov, .msg_iovlen = 1};
	union control control;

	vb_rs_copy_out(rs, &peer->address.any, &raw.any, &size);
	msg.msg_namelen = size;
	set_source(rs, &peer->local->address, &msg, &control);
	if (from)
		iov.iov_len +=
			vb_rs_vector_copy(from, bytes + iov.iov_len, VB_RS_DATAGRAM_BYTES, false);
	return sendmsg(rs->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void learn(struct vb_rs_peer *peer, uint32_t queue_pair)
{
	if (!peer->ah)
		peer->ah = vb_rs_local_ah(peer->local, &peer->address);
	peer->queue_pair = queue_pair;
}

static void deliver(struct vb_rs *rs, const union vb_rs_address *from, const uint8_t *data,
		    uint32_t size)
{
	struct vb_rs_datagram *d = &rs->datagram;
	struct vb_rs_arrival *arrival;

	if (d->by_udp == WAITING_MAX)
		return;
	arrival = malloc(sizeof(*arrival) + size);
	if (!arrival)
		return;
	*arrival = (struct vb_rs_arrival){.size = size, .from = *from};
	memcpy(arrival + 1, data, size);
	arrival->data = (const uint8_t *)(arrival + 1);
	vb_list_append(&d->arrived, &arrival->link);
	d->by_udp++;
}

static void on_datagram(struct vb_rs *rs, const union vb_rs_address *from, const uint8_t *bytes,
			size_t size)
{
	const struct vb_rs_peer *connected = rs->datagram.connected;
	struct vb_rs_peer *peer;
	struct vb_rs_udp udp;
	int header = vb_rs_udp_decode(&udp, from->any.sa_family, bytes, size);

	if (header < 0 || udp.queue_pair < 2 || vb_rs_peer_find(rs, from, &peer) != 0)
		return;
	learn(peer, udp.queue_pair);
	if (udp.control)
		return;
	vb_rs_udp_send(rs, peer, NULL); /* lost: it is sent again for the next data */
	if (!connected || connected == peer)
		deliver(rs, from, bytes + header, (uint32_t)(size - (size_t)header));
}

bool vb_rs_udp_take(struct vb_rs *rs)
{
	uint8_t bytes[VB_RS_UDP_BYTES_IPV6 + VB_RS_DATAGRAM_BYTES];
	union vb_rs_address raw, from;
	bool some = false;
	socklen_t length;
	ssize_t size;
	int i;

	rs->datagram.since_udp = 0;
	for (i = 0; i < TAKE_AT_ONCE; i++) {
		length = sizeof(raw);
		size = recvfrom(rs->fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_TRUNC, &raw.any,
				&length);
		if (size < 0)
			break;
		some = true;
		if ((size_t)size <= sizeof(bytes) && vb_rs_copy_in(&from, &raw.any, length) == 0)
			on_datagram(rs, &from, bytes, (size_t)size);
	}
	return some;
}
