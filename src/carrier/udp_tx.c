/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * udp_tx.c - packets become trains, trains become system calls.
 *
 * Packets of one path, to one process and of one size join into a train, which the kernel takes as
 * one datagram (UDP_SEGMENT) and cuts apart; one shorter packet of the queue pair that was the last
 * may end it. On the wire each is a packet by itself, so a train may be of many queue pairs; what
 * each of them sends keeps its order, what two of them send does not. The receiving kernel steers a
 * train by its first packet: hence one process. A batch is up to VB_UDP_TRAINS trains, sent by one
 * sendmmsg for each source socket.
 *
 * A train is one piece of memory: the payload is copied into it as soon as the packet is taken, and
 * the ICRC computed there, since its identification is then known, the packet's place in its train.
 * The kernel takes 62 packets of 1 KiB from one piece in half the time that it needs for 124 pieces
 * of headers and payload, which is more than the copy costs.
 *
 * When a socket has no room, what is left of the batch stays, and tx refuses until it is gone.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "carrier/udp_private.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

#define CONTROL_BYTES 96

/* --- joining ----------------------------------------------------------------------------- */

/* Whom the receiving kernel gives a packet to. */
static uint16_t slot_of(uint32_t qpn)
{
	return (uint16_t)(qpn >> VB_SLOT_SHIFT);
}

/* The queue pair's bit in a train's set: two may have the same. */
static uint64_t qpn_bit(uint32_t qpn)
{
	return 1ull << qpn % 64;
}

/* takes - a shorter packet would end the train, and is worth that only where the others of its
 * queue pair are likely to follow it: an acknowledgement behind its message. */
static bool takes(const struct vb_udp *udp, const struct vb_udp_train *t, uint32_t qpn,
		  uint32_t bytes)
{
	return udp->gso && !t->closed && t->packets < VB_UDP_SEGMENTS &&
	       (bytes == t->segment_bytes || (bytes < t->segment_bytes && t->last_qpn == qpn)) &&
	       t->bytes + bytes <= VB_UDP_TRAIN_BYTES;
}

static struct vb_udp_train *open_train(struct vb_udp *udp, const struct vb_path *path, uint32_t qpn,
				       uint32_t bytes)
{
	struct vb_udp_train *t = &udp->train[udp->train_count++];
	const struct vb_udp_address *a;
	struct vb_udp_route r;

	vb_udp_route_load(&r, path->word);
	VB_ASSERT(r.address < udp->address_count && r.pool < VB_UDP_POOL);
	a = &udp->address[r.address];
	memcpy(t->route, path->word, sizeof(t->route));
	t->slot = slot_of(qpn);
	t->qpns = 0;
	t->fd = a->tx_fd[r.pool];
	t->segment_bytes = (uint16_t)bytes;
	t->packets = t->bytes = 0;
	t->closed = t->held = false;
	t->to_bytes = vb_sockaddr_fill(&t->to, &r.to, r.scope_id, VB_ROCE_PORT);
	t->ip = (struct vb_icrc_ip){.src = a->address,
				    .dst = r.to,
				    .src_port = a->tx_port[r.pool],
				    .dst_port = VB_ROCE_PORT,
				    .dont_fragment = true};
	return t;
}

/* train_for - the train that the packet joins, or a new one. NULL: the batch is full. */
static struct vb_udp_train *train_for(struct vb_udp *udp, const struct vb_path *path, uint32_t qpn,
				      uint32_t bytes)
{
	for (unsigned int i = udp->train_count; i > 0; i--) {
		struct vb_udp_train *t = &udp->train[i - 1];

		if (t->slot != slot_of(qpn) || memcmp(t->route, path->word, sizeof(t->route)) != 0)
			continue;
		if (takes(udp, t, qpn, bytes))
			return t;
		if (t->qpns & qpn_bit(qpn))
			break; /* an earlier train would let this packet overtake that one */
	}
	if (udp->train_count == VB_UDP_TRAINS)
		return NULL;
	return open_train(udp, path, qpn, bytes);
}

/* --- one packet -------------------------------------------------------------------------- */

/* append - the headers are there; behind them go the payload, the pad and the ICRC. */
static void append(struct vb_udp_train *t, const struct vb_tx *tx, uint32_t header_bytes,
		   uint32_t packet_bytes)
{
	uint8_t *start = t->data + t->bytes, *at = start + header_bytes;

	for (int i = 0; i < tx->payload_parts; i++) {
		if (tx->payload[i].iov_len == 0)
			continue;
		memcpy(at, tx->payload[i].iov_base, tx->payload[i].iov_len);
		at += tx->payload[i].iov_len;
	}
	memset(at, 0, tx->headers->pad);
	at += tx->headers->pad;
	vb_icrc_store(at, vb_udp_icrc(&t->ip, start, packet_bytes));
	t->last_qpn = tx->headers->qpn;
	t->qpns |= qpn_bit(t->last_qpn);
	t->packets++;
	t->bytes += packet_bytes;
	t->closed = packet_bytes < t->segment_bytes;
}

static int check(const struct vb_udp *udp, const struct vb_path *path, const struct vb_tx *tx)
{
	uint64_t sum = 0;

	if (tx->payload_parts < 0 || tx->headers->pad > 3 || path->carrier != &udp->carrier)
		return -EINVAL;
	for (int i = 0; i < tx->payload_parts; i++)
		sum += tx->payload[i].iov_len;
	if (sum != tx->payload_bytes)
		return -EINVAL;
	if (sum > VB_UDP_TRAIN_BYTES - VB_HEADERS_MAX - 3 - VB_ICRC_BYTES)
		return -EMSGSIZE;
	return 0;
}

int vb_udp_tx(struct vb_carrier *carrier, const struct vb_path *path, const struct vb_tx *tx)
{
	struct vb_udp *udp = vb_udp_of(carrier);
	uint32_t header_bytes = vb_opcode_table[tx->headers->opcode].header_bytes;
	uint32_t bytes = header_bytes + tx->payload_bytes + tx->headers->pad + VB_ICRC_BYTES;
	struct vb_udp_train *t;
	int err = check(udp, path, tx);

	if (err < 0)
		return err;
	if (header_bytes == 0)
		return -EINVAL;
	if (udp->blocked_fd >= 0)
		return -EAGAIN;
	t = train_for(udp, path, tx->headers->qpn, bytes);
	if (!t) {
		vb_udp_flush(carrier);
		if (udp->blocked_fd >= 0)
			return -EAGAIN;
		t = train_for(udp, path, tx->headers->qpn, bytes);
	}
	err = vb_headers_encode(tx->headers, t->data + t->bytes, VB_HEADERS_MAX);
	VB_ASSERT(err == (int)header_bytes);
	t->ip.ip_id = (uint16_t)t->packets;
	append(t, tx, header_bytes, bytes);
	return 0;
}

/* --- sending ----------------------------------------------------------------------------- */

static void put_control(struct msghdr *m, int level, int type, const void *value, size_t bytes)
{
	struct cmsghdr *c = (struct cmsghdr *)((uint8_t *)m->msg_control + m->msg_controllen);

	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(bytes);
	memcpy(CMSG_DATA(c), value, bytes);
	m->msg_controllen += CMSG_SPACE(bytes);
}

/* fill_message - piece is where the message keeps its only one. */
static void fill_message(struct msghdr *m, struct iovec *piece, struct vb_udp_train *t,
			 void *control)
{
	struct vb_udp_route r;
	bool ipv4;
	int value;

	vb_udp_route_load(&r, t->route);
	ipv4 = vb_is_ipv4(&r.to);
	*piece = (struct iovec){t->data, t->bytes};
	*m = (struct msghdr){.msg_name = &t->to,
			     .msg_namelen = t->to_bytes,
			     .msg_iov = piece,
			     .msg_iovlen = 1,
			     .msg_control = control};
	if (t->packets > 1)
		put_control(m, IPPROTO_UDP, UDP_SEGMENT, &t->segment_bytes,
			    sizeof(t->segment_bytes));
	if (r.traffic_class) {
		value = r.traffic_class;
		put_control(m, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TOS : IPV6_TCLASS,
			    &value, sizeof(value));
	}
	if (r.hop_limit != VB_UDP_DEFAULT_HOPS) {
		value = r.hop_limit;
		put_control(m, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TTL : IPV6_HOPLIMIT,
			    &value, sizeof(value));
	}
	if (m->msg_controllen == 0)
		m->msg_control = NULL;
}

/* send_at_once - one system call; the plain one is the cheaper one. As sendmmsg(2). */
static int send_at_once(int fd, struct mmsghdr *messages, unsigned int n)
{
	const int flags = MSG_DONTWAIT | MSG_NOSIGNAL;

	if (n > 1)
		return sendmmsg(fd, messages, n, flags);
	return sendmsg(fd, &messages->msg_hdr, flags) < 0 ? -1 : 1;
}

/* send_some - trains of one socket. Returns how many are done with, sent or dropped; fewer than n
 * when the socket has no room. */
static unsigned int send_some(struct vb_udp *udp, int fd, struct mmsghdr *messages,
			      struct vb_udp_train **trains, unsigned int n)
{
	unsigned int done = 0, interrupted = 0;

	while (done < n) {
		int sent = send_at_once(fd, messages + done, n - done);

		udp->counters.tx_calls++;
		for (int i = 0; i < sent; i++, done++) {
			udp->counters.tx_packets += trains[done]->packets;
			udp->counters.tx_bytes += trains[done]->bytes;
		}
		if (sent > 0)
			continue;
		if (errno == EAGAIN || errno == EWOULDBLOCK)
			break;
		/* An interrupted call, or an error that an earlier packet left behind. */
		if ((errno == EINTR || errno == ECONNREFUSED) && interrupted++ < 4)
			continue;
		if (errno == EIO) /* the device cannot cut trains apart */
			udp->gso = false;
		/* No buffers, no route, forbidden, too long: lost, as on a wire. */
		udp->counters.tx_dropped += trains[done++]->packets;
	}
	return done;
}

/* set_blocked - fd -1: not any more. Who sleeps on the carrier's descriptor wakes when there is
 * room. */
static void set_blocked(struct vb_udp *udp, int fd)
{
	struct epoll_event event = {.events = EPOLLOUT, .data.u64 = VB_UDP_TAG(VB_UDP_EVENT_TX, 0)};

	if (fd == udp->blocked_fd)
		return;
	if (udp->blocked_fd >= 0)
		epoll_ctl(udp->carrier.fd, EPOLL_CTL_DEL, udp->blocked_fd, NULL);
	if (fd >= 0)
		epoll_ctl(udp->carrier.fd, EPOLL_CTL_ADD, fd, &event);
	udp->blocked_fd = fd;
}

/* send_batch - sends socket by socket. What finds no room stays; a train that is done with has no
 * packets afterwards. */
static void send_batch(struct vb_udp *udp)
{
	struct mmsghdr messages[VB_UDP_TRAINS];
	struct vb_udp_train *trains[VB_UDP_TRAINS];
	struct iovec pieces[VB_UDP_TRAINS];
	_Alignas(struct cmsghdr) uint8_t control[VB_UDP_TRAINS][CONTROL_BYTES];
	unsigned int n, sent, visited = 0;
	int blocked = -1;

	for (unsigned int first = 0; first < udp->train_count; first++) {
		int fd = udp->train[first].fd;

		if (udp->train[first].packets == 0 || visited & 1u << first)
			continue;
		n = 0;
		for (unsigned int i = first; i < udp->train_count; i++) {
			if (udp->train[i].fd != fd || udp->train[i].packets == 0)
				continue;
			visited |= 1u << i;
			trains[n] = &udp->train[i];
			fill_message(&messages[n].msg_hdr, &pieces[n], trains[n], control[n]);
			n++;
		}
		sent = send_some(udp, fd, messages, trains, n);
		for (unsigned int i = 0; i < n; i++) {
			if (i < sent) {
				trains[i]->packets = 0;
			} else if (!trains[i]->held) {
				trains[i]->held = true;
				udp->counters.tx_held += trains[i]->packets;
			}
		}
		if (sent < n)
			blocked = fd;
	}
	set_blocked(udp, blocked);
}

void vb_udp_flush(struct vb_carrier *carrier)
{
	struct vb_udp *udp = vb_udp_of(carrier);

	if (udp->train_count == 0)
		return;
	send_batch(udp);
	/* A train that found no room keeps its place, and those that have gone theirs. */
	for (unsigned int i = 0; i < udp->train_count; i++) {
		if (udp->train[i].packets)
			return;
	}
	udp->train_count = 0;
	set_blocked(udp, -1);
}

bool vb_udp_unblock(struct vb_udp *udp)
{
	vb_udp_flush(&udp->carrier);
	return udp->blocked_fd < 0;
}
