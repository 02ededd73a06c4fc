/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket_datagram.c - datagrams: a UDP socket that gives the rsocket its port, and queue pairs
 * that carry what is sent once both ends know each other's (rsocket_datagram_udp.c says how).
 *
 * The genuine library answers from a thread of its own; here the UDP socket is looked at by every
 * call that waits, and now and then by those that do not.
 */
#include "rdmacm/rsocket.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	LOOK_AT_UDP_EVERY = 64,
	FLUSH_MS = 1000, /* as long rclose() waits for what was sent to leave */
};

int vb_rs_datagram_open(struct vb_rs *rs)
{
	rs->fd = socket(rs->domain, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return vb_rs_failed(rs->fd < 0 ? -1 : 0);
}

static void drop_arrival(struct vb_rs_datagram *d, struct vb_rs_arrival *arrival)
{
	vb_list_remove(&arrival->link);
	if (arrival->local) {
		vb_rs_local_repost(arrival->local, arrival->slot);
	} else {
		d->by_udp--;
		free(arrival);
	}
}

static bool is_sent(struct vb_rs *rs)
{
	struct vb_list *link, *tmp;

	vb_list_for_each(link, tmp, &rs->datagram.queue_pairs)
	{
		struct vb_rs_local *local = vb_list_entry(link, struct vb_rs_local, link);

		if (local->free_count < local->send_slots)
			return false;
	}
	return true;
}

void vb_rs_datagram_flush(struct vb_rs *rs)
{
	vb_rs_wait(rs, is_sent, false, FLUSH_MS);
}

void vb_rs_datagram_close(struct vb_rs *rs)
{
	struct vb_rs_datagram *d = &rs->datagram;
	struct vb_list *link, *tmp;

	vb_list_for_each(link, tmp, &d->arrived)
		drop_arrival(d, vb_list_entry(link, struct vb_rs_arrival, link));
	vb_list_for_each(link, tmp, &d->peers)
	{
		struct vb_rs_peer *peer = vb_list_entry(link, struct vb_rs_peer, link);

		if (peer->ah)
			ibv_destroy_ah(peer->ah);
		free(peer);
	}
	vb_list_for_each(link, tmp, &d->queue_pairs)
		vb_rs_local_destroy(vb_list_entry(link, struct vb_rs_local, link));
	if (rs->fd >= 0)
		close(rs->fd);
}

/* Whether exactly one address of all devices fits the rsocket: it is what any address means then.
 * That lets several virtual hosts of one machine bind one port each for itself. */
static bool only_address(const struct vb_rs *rs, union vb_rs_address *only)
{
	struct ibv_context **devices = rdma_get_devices(NULL);
	unsigned int found = 0, i;
	struct ibv_gid_entry entry;
	uint32_t gid;

	for (i = 0; devices && devices[i]; i++) {
		for (gid = 0; gid < 16; gid++) {
			struct sockaddr_in6 raw = {.sin6_family = AF_INET6};
			union vb_rs_address address;

			if (ibv_query_gid_ex(devices[i], 1, gid, &entry, 0) != 0 ||
			    entry.gid_type != IBV_GID_TYPE_ROCE_V2)
				continue;
			memcpy(&raw.sin6_addr, entry.gid.raw, 16);
			vb_rs_copy_in(&address, (struct sockaddr *)&raw, sizeof(raw));
			if (IN6_IS_ADDR_LINKLOCAL(&raw.sin6_addr) || vb_rs_is_any(&address) ||
			    (rs->domain == AF_INET && address.any.sa_family != AF_INET) ||
			    (rs->v6only && address.any.sa_family != AF_INET6))
				continue;
			*only = address;
			found++;
		}
	}
	if (devices)
		rdma_free_devices(devices);
	return found == 1;
}

int vb_rs_datagram_bind(struct vb_rs *rs, const union vb_rs_address *address)
{
	union vb_rs_address only;

	if (rs->domain == AF_INET && address->any.sa_family != AF_INET)
		return -EAFNOSUPPORT;
	if (!vb_rs_is_any(address) || !only_address(rs, &only))
		return vb_rs_udp_bind(rs, address);
	if (only.any.sa_family == AF_INET6)
		only.in6.sin6_port = vb_rs_port(address);
	else
		only.in.sin_port = vb_rs_port(address);
	return vb_rs_udp_bind(rs, &only);
}

int vb_rs_datagram_connect(struct vb_rs *rs, const union vb_rs_address *address)
{
	struct vb_rs_datagram *d = &rs->datagram;
	struct vb_list *link, *tmp;
	struct vb_rs_peer *peer;
	int result;

	if (rs->domain == AF_INET && address->any.sa_family != AF_INET)
		return -EAFNOSUPPORT;
	result = vb_rs_peer_find(rs, address, &peer);
	if (result)
		return result;
	d->connected = peer;
	vb_list_for_each(link, tmp, &d->arrived)
	{ /* what others sent before is not for us any more */
		struct vb_rs_arrival *arrival = vb_list_entry(link, struct vb_rs_arrival, link);

		if (!vb_rs_same_host(&arrival->from, address) ||
		    vb_rs_port(&arrival->from) != vb_rs_port(address))
			drop_arrival(d, arrival);
	}
	return 0;
}

int vb_rs_datagram_peer(struct vb_rs *rs, struct sockaddr *to, socklen_t *size)
{
	if (!rs->datagram.connected)
		return -ENOTCONN;
	vb_rs_copy_out(rs, &rs->datagram.connected->address.any, to, size);
	return 0;
}

bool vb_rs_datagram_progress(struct vb_rs *rs)
{
	struct vb_list *link, *tmp;
	bool some = false;

	vb_list_for_each(link, tmp, &rs->datagram.queue_pairs) some |=
		vb_rs_local_poll(rs, vb_list_entry(link, struct vb_rs_local, link));
	if (!some || ++rs->datagram.since_udp >= LOOK_AT_UDP_EVERY)
		some |= vb_rs_udp_take(rs);
	return some;
}

bool vb_rs_datagram_readable(struct vb_rs *rs)
{
	return !vb_list_is_empty(&rs->datagram.arrived);
}

/* Any queue pair with room will do; a datagram to another one waits when it is sent. */
bool vb_rs_datagram_writable(struct vb_rs *rs)
{
	struct vb_list *link, *tmp;

	if (vb_list_is_empty(&rs->datagram.queue_pairs))
		return true;
	vb_list_for_each(
		link, tmp,
		&rs->datagram.queue_pairs) if (vb_list_entry(link, struct vb_rs_local, link)
						       ->free_count) return true;
	return false;
}

static bool every_local_writable(struct vb_rs *rs)
{
	struct vb_list *link, *tmp;

	vb_list_for_each(
		link, tmp,
		&rs->datagram.queue_pairs) if (!vb_list_entry(link, struct vb_rs_local, link)
							->free_count) return false;
	return true;
}

ssize_t vb_rs_datagram_send(struct vb_rs *rs, struct vb_rs_vector *from, int flags,
			    const union vb_rs_address *to)
{
	bool nonblocking = rs->nonblocking || (flags & MSG_DONTWAIT);
	struct vb_rs_datagram *d = &rs->datagram;
	ssize_t size = vb_rs_vector_bytes(from);
	struct vb_rs_peer *peer = d->connected;
	int result = 0;

	if (size < 0)
		return size;
	if (!to && !peer)
		return -EDESTADDRREQ;
	if (to && rs->domain == AF_INET && to->any.sa_family != AF_INET)
		return -EAFNOSUPPORT;
	if (to)
		result = vb_rs_peer_find(rs, to, &peer);
	if (result)
		return result;
	if (size > (ssize_t)peer->local->payload_bytes)
		return -EMSGSIZE;
	if (!peer->ah || ++d->since_udp >= LOOK_AT_UDP_EVERY)
		vb_rs_progress(rs);
	if (peer->ah && peer->local->free_count < peer->local->send_slots / 2)
		vb_rs_local_poll(rs, peer->local);
	if (peer->ah && !peer->local->free_count) {
		result = vb_rs_wait(rs, every_local_writable, nonblocking, -1);
		if (result)
			return result;
		if (to) /* it may have been forgotten while this thread slept */
			result = vb_rs_peer_find(rs, to, &peer);
		if (result || !peer->local->free_count)
			return result ? result : -EAGAIN;
	}
	result = peer->ah ? vb_rs_local_send(peer->local, peer, from, (uint32_t)size)
			  : vb_rs_udp_send(rs, peer, from);
	return result ? result : size;
}

ssize_t vb_rs_datagram_receive(struct vb_rs *rs, struct vb_rs_vector *to, int flags,
			       union vb_rs_address *from)
{
	bool nonblocking = rs->nonblocking || (flags & MSG_DONTWAIT);
	struct vb_rs_datagram *d = &rs->datagram;
	struct vb_rs_arrival *arrival;
	ssize_t size;
	int result = 0;

	if (vb_list_is_empty(&d->arrived))
		result = vb_rs_wait(rs, vb_rs_datagram_readable, nonblocking, -1);
	if (result)
		return result;
	arrival = vb_list_entry(d->arrived.next, struct vb_rs_arrival, link);
	size = arrival->size;
	*from = arrival->from;
	vb_rs_vector_copy(to, (void *)(uintptr_t)arrival->data, arrival->size, true);
	if (!(flags & MSG_PEEK))
		drop_arrival(d, arrival);
	return size;
}
