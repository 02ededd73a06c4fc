/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * udp_rx.c - datagrams become packets.
 *
 * recvmmsg with UDP_GRO brings trains: segments of one size (the last may be shorter) of one
 * sender. Each is a packet and is checked by itself, in this order, which ends at the first answer:
 *
 *      length      room for a BTH and the ICRC
 *      probe       steering.c's own small packets, of this round or of one before
 *      ICRC        with the identification that is expected, else solved for (IPv4)
 *      QPN         0xffffff: to a group's socket and only there; another slot: a stray; QP 1: whose
 *                  it is stands in the MAD (mad_route.h)
 *      deliver
 *
 * The identification of an IP packet is not shown to a UDP socket although the ICRC covers it. What
 * is expected: 0; in a train one more than the segment before; from a peer that counts, one more
 * than its last packet. Another one that makes the ICRC right is taken too, but it is the weaker
 * check and counted: 16 bits of the 32 are then used up.
 *
 * Where there is a ring (udp_ring.h) it brings the short trains. One whose first packet the NIC
 * does not expect yet may have come behind a long one, which then is in the socket already. While
 * it is never empty, each socket has a turn now and then.
 *
 * A socket that brought nothing for a while is cold and looked at only now and then: each look is
 * a system call; and not behind a packet of a warm one, which somebody waits to answer. Who sleeps
 * on the epoll set is woken by cold ones as well.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <netinet/udp.h>
#include <stdlib.h>

#include "carrier/mad_route.h"
#include "carrier/udp_private.h"
#include "wire/mad.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

/* The buffers do not begin at equal offsets of a cache way. */
#define BUFFER_STRIDE (VB_UDP_RX_BYTES + 512u)
#define BUFFER_ROOM 64u /* before each: for the ICRC */
_Static_assert(BUFFER_ROOM >= VB_ICRC_ROOM, "room before the first packet");
#define EMPTY_CALLS 1024u /* of a socket whose process leaves, whatever still comes */

int vb_udp_rx_init(struct vb_udp *udp)
{
	udp->rx_data = malloc((size_t)VB_UDP_RX_BATCH * BUFFER_STRIDE);
	if (!udp->rx_data)
		return -ENOMEM;
	for (unsigned int i = 0; i < VB_UDP_RX_BATCH; i++) {
		struct vb_udp_rx_buffer *b = &udp->rx_buffer[i];
		struct msghdr *m = &udp->rx_message[i].msg_hdr;

		b->iov = (struct iovec){udp->rx_data + (size_t)i * BUFFER_STRIDE + BUFFER_ROOM,
					VB_UDP_RX_BYTES};
		m->msg_name = &b->from;
		m->msg_namelen = sizeof(b->from);
		m->msg_iov = &b->iov;
		m->msg_iovlen = 1;
		m->msg_control = b->control;
		m->msg_controllen = sizeof(b->control);
	}
	return 0;
}

/* --- one datagram ------------------------------------------------------------------------ */

static struct vb_udp_peer *find_peer(struct vb_udp *udp, const struct in6_addr *address)
{
	uint32_t hash, word[4];
	struct vb_udp_peer *p;

	memcpy(word, address, sizeof(word));
	hash = (word[0] ^ word[1] ^ word[2] ^ word[3]) * 0x9e3779b1u;
	p = &udp->peer[hash >> 26];
	if (!IN6_ARE_ADDR_EQUAL(&p->address, address))
		*p = (struct vb_udp_peer){.address = *address};
	return p;
}

static void read_control(struct vb_udp *udp, struct msghdr *m, struct vb_udp_rx_train *t)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		int value = 0;

		memcpy(&value, CMSG_DATA(c), VB_MIN(sizeof(value), c->cmsg_len - CMSG_LEN(0)));
		if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
			if (value > 0)
				t->segment_bytes = (uint32_t)value;
		} else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
			t->traffic_class = (uint8_t)value;
		} else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TTL) {
			t->hop_limit = (uint8_t)value;
		} else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS) {
			t->traffic_class = (uint8_t)value;
		} else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_HOPLIMIT) {
			t->hop_limit = (uint8_t)value;
		} else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
			struct vb_udp_address *a = &udp->address[t->address];

			udp->counters.rx_overflows += (uint32_t)value - a->overflows;
			a->overflows = (uint32_t)value;
		}
	}
}

/* open_datagram - begins to take the next one apart. */
static void open_datagram(struct vb_udp *udp)
{
	unsigned int i = udp->rx_next++;
	struct mmsghdr *message = &udp->rx_message[i];
	struct vb_udp_rx_buffer *b = &udp->rx_buffer[i];
	struct vb_udp_rx_train *t = &udp->rx_train;
	const struct vb_udp_address *a = &udp->address[udp->rx_address];

	*t = (struct vb_udp_rx_train){.data = b->iov.iov_base,
				      .bytes = message->msg_len,
				      .segment_bytes = message->msg_len,
				      .address = udp->rx_address,
				      .hop_limit = VB_UDP_DEFAULT_HOPS};
	read_control(udp, &message->msg_hdr, t);
	t->ip.dst = a->address;
	t->ip.dst_port = VB_ROCE_PORT;
	t->ip.dont_fragment = true;
	udp->rx_open = vb_sockaddr_read(&b->from, &t->ip.src, &t->ip.src_port);
	if (message->msg_hdr.msg_flags & MSG_TRUNC || t->bytes < VB_BTH_BYTES + VB_ICRC_BYTES) {
		udp->counters.rx_short++;
		udp->rx_open = false;
	}
	if (udp->rx_open) {
		t->peer = find_peer(udp, &t->ip.src);
		t->id = t->peer->counts ? t->peer->next_id : 0;
		t->id_step = 1;
	}
	message->msg_hdr.msg_namelen = sizeof(b->from);
	message->msg_hdr.msg_controllen = sizeof(b->control);
	message->msg_hdr.msg_flags = 0;
}

/* --- sockets ----------------------------------------------------------------------------- */

static int receive_one(int fd, struct mmsghdr *message)
{
	ssize_t bytes = recvmsg(fd, &message->msg_hdr, MSG_DONTWAIT);

	if (bytes < 0)
		return -1;
	message->msg_len = (unsigned int)bytes;
	return 1;
}

/* receive - one system call, for several datagrams where the last look found something: behind an
 * empty one there is hardly more than one, and the plain call is the cheaper one. Returns the
 * datagrams. */
static unsigned int receive(struct vb_udp *udp, unsigned int address)
{
	struct vb_udp_address *a = &udp->address[address];
	int n = a->empty_polls == 0
			? recvmmsg(a->rx_fd, udp->rx_message, VB_UDP_RX_BATCH, MSG_DONTWAIT, NULL)
			: receive_one(a->rx_fd, &udp->rx_message[0]);

	if (n <= 0) {
		if (a->empty_polls < VB_UDP_QUIET_AFTER)
			a->empty_polls++;
		return 0;
	}
	udp->counters.rx_calls++;
	a->empty_polls = 0;
	udp->rx_count = (unsigned int)n;
	udp->rx_next = 0;
	udp->rx_address = address;
	return (unsigned int)n;
}

/* --- the ring ---------------------------------------------------------------------------- */

/* address_of - the ring gives what is for one of them, and nothing else. */
static unsigned int address_of(const struct vb_udp *udp, struct in_addr address)
{
	unsigned int i = 0;

	while (i < udp->unicast_count &&
	       (!udp->address[i].ipv4 || udp->address[i].address.s6_addr32[3] != address.s_addr))
		i++;
	VB_ASSERT(i < udp->unicast_count);
	return i;
}

/* open_entry - begins to take one of the ring apart. */
static void open_entry(struct vb_udp *udp, const struct vb_udp_ring_datagram *d)
{
	struct vb_udp_rx_train *t = &udp->rx_train;

	*t = (struct vb_udp_rx_train){
		.data = d->data,
		.bytes = d->bytes,
		.segment_bytes = d->segment_bytes,
		.address = address_of(udp, d->dst),
		.traffic_class = d->traffic_class,
		.hop_limit = d->hop_limit,
		.ip = {.src = vb_ipv4_mapped(d->src),
		       .dst = vb_ipv4_mapped(d->dst),
		       .src_port = d->src_port,
		       .dst_port = VB_ROCE_PORT,
		       .dont_fragment = d->dont_fragment},
		.id = d->ip_id,
		.id_step = 1,
		.in_ring = true,
	};
	t->peer = find_peer(udp, &t->ip.src);
	udp->rx_open = true;
}

/* may_go_now - a packet of the ring that is its queue pair's next, or has waited for long enough:
 * no sender has more under way, and a socket that is never empty must not hold it up for ever. */
static bool may_go_now(const struct vb_udp *udp, const uint8_t *packet)
{
	return udp->impatient > 0 || udp->waited >= VB_UDP_RING_PATIENCE ||
	       udp->is_next(udp->carrier.env, packet);
}

/* next_of_ring - opens the ring's oldest datagram if that is the next one for its queue pair, or
 * if any is good. False: it is not, or there is none. */
static bool next_of_ring(struct vb_udp *udp, bool any)
{
	struct vb_udp_ring_datagram d;

	if (!vb_udp_ring_look(udp->ring, &d))
		return false;
	if (!any && !may_go_now(udp, d.data))
		return false;
	open_entry(udp, &d);
	return true;
}

/* must_wait - of a train with packets of several queue pairs only the first was asked about. Where
 * another's are not the next ones either, and a socket has something, the train waits. */
static bool must_wait(struct vb_udp *udp, const uint8_t *packet)
{
	const struct vb_udp_rx_train *t = &udp->rx_train;

	if (!t->in_ring || t->index == 0 || vb_udp_qpn(packet) == vb_udp_qpn(t->data) ||
	    may_go_now(udp, packet))
		return false;
	if (udp->rx_next == udp->rx_count && receive(udp, t->address) == 0)
		return false;
	udp->waiting = *t;
	udp->rx_open = false;
	return true;
}

static void go_on_waiting(struct vb_udp *udp)
{
	udp->rx_train = udp->waiting;
	udp->rx_open = true;
	udp->waiting.data = NULL;
}

/* next_turn - whose turn it is of all sockets. */
static unsigned int next_turn(struct vb_udp *udp)
{
	do
		udp->turn = (udp->turn + 1) % udp->address_count;
	while (udp->address[udp->turn].rx_fd < 0);
	return udp->turn;
}

/* is_sockets_turn - after so many of the ring in a row a socket is looked at, be it cold, warm, or
 * not of the addresses that the ring has: while the ring gives all that is asked for no other look
 * comes to them. */
static bool is_sockets_turn(struct vb_udp *udp)
{
	if (udp->row < VB_UDP_RING_ROW)
		return false;
	udp->row = 0;
	return udp->rx_next < udp->rx_count || receive(udp, next_turn(udp)) > 0;
}

/* open_next - begins to take the next datagram apart, if there is one. */
static bool open_next(struct vb_udp *udp)
{
	struct vb_udp_ring_datagram d;

	if (udp->waiting.data && udp->rx_next == udp->rx_count) {
		go_on_waiting(udp);
		return true;
	}
	if (udp->ring && !udp->waiting.data && !is_sockets_turn(udp) && next_of_ring(udp, false)) {
		udp->row++;
		return true;
	}
	udp->row = 0;
	if (udp->rx_next == udp->rx_count) {
		if (!udp->ring || !vb_udp_ring_look(udp->ring, &d))
			return false;
		/* What came before it is there by now. */
		if (receive(udp, address_of(udp, d.dst)) == 0)
			return next_of_ring(udp, true);
	}
	open_datagram(udp);
	udp->waited += udp->ring && !vb_udp_ring_is_empty(udp->ring);
	return true;
}

static void close_train(struct vb_udp *udp)
{
	udp->rx_open = false;
	if (!udp->rx_train.in_ring)
		return;
	vb_udp_ring_release(udp->ring);
	if (udp->waited >= VB_UDP_RING_PATIENCE)
		udp->impatient = VB_UDP_RING_PATIENCE;
	else if (udp->impatient > 0)
		udp->impatient--;
	udp->waited = 0;
}

/* --- one packet -------------------------------------------------------------------------- */

/* check_icrc - and learns which identification the packet had. */
static bool check_icrc(struct vb_udp *udp, struct vb_udp_rx_train *t, uint8_t *packet,
		       uint32_t bytes)
{
	uint16_t expected = (uint16_t)(t->id + (t->index ? t->id_step : 0));
	uint32_t icrc, right = vb_icrc_load(packet + bytes - VB_ICRC_BYTES);
	uint16_t id = expected;

	t->ip.ip_id = expected;
	icrc = vb_udp_icrc(&t->ip, packet, bytes);
	if (icrc != right) {
		if (vb_icrc_solve_ip_id(icrc, right, &t->ip, bytes, &id) < 0)
			return false;
		/* As strong as expecting it: the values that are tried anyway. */
		if (id != 0 && id != t->index && id != (uint16_t)(t->id + 1) &&
		    id != t->peer->next_id)
			udp->counters.rx_solved_id++;
		t->ip.ip_id = id;
	}
	if (t->index)
		t->id_step = id == t->id ? 0 : 1;
	t->id = id;
	t->peer->next_id = (uint16_t)(id + 1);
	if (t->index == 0)
		t->peer->counts = id != 0;
	return true;
}

static void deliver(struct vb_udp *udp, const struct vb_udp_rx_train *t, const uint8_t *packet,
		    uint32_t bytes)
{
	struct vb_rx rx = {.data = packet,
			   .size = bytes - VB_ICRC_BYTES,
			   .src = t->ip.src,
			   .dst = t->ip.dst,
			   .traffic_class = t->traffic_class,
			   .hop_limit = t->hop_limit};

	if (t->offset + 2 * bytes <= t->bytes) /* the next segment is as long */
		rx.next = packet + bytes;

	udp->counters.rx_packets++;
	udp->counters.rx_bytes += bytes;
	udp->carrier.deliver(udp->carrier.env, &rx);
}

/* The MAD of a UD SEND, behind BTH and DETH. A process that is gone leaves its MADs to whoever gets
 * them, who says so to the peer. */
#define MAD_AT 20u

static uint16_t gsi_slot(struct vb_udp *udp, const uint8_t *packet, uint32_t bytes)
{
	uint16_t own = udp->registry->slot, slot = 0;

	if (packet[0] == vb_opcode(VB_TRANSPORT_UD, VB_OP_SEND_ONLY) &&
	    bytes > MAD_AT + VB_ICRC_BYTES)
		slot = vb_mad_route(udp->registry, packet + MAD_AT, bytes - MAD_AT - VB_ICRC_BYTES);
	if (slot == 0 || !vb_registry_is_alive(udp->registry, slot))
		return own;
	return slot;
}

/* take_mad - the same for a packet to QP 1. One who leaves answers nobody: his heir does. */
static int take_mad(struct vb_udp *udp, const struct vb_udp_rx_train *t, const uint8_t *packet,
		    uint32_t bytes)
{
	uint16_t slot = gsi_slot(udp, packet, bytes);
	uint64_t key = udp->heir;

	if (slot != udp->registry->slot)
		key = __atomic_load_n(&udp->registry->shared->member_key[slot], __ATOMIC_RELAXED);
	else if (!key) {
		deliver(udp, t, packet, bytes);
		return 1;
	}
	vb_udp_stray_hand_mad_on(udp, t, packet, bytes, key);
	return 0;
}

/* take_packet - returns 1 when it was delivered, else 0. */
static int take_packet(struct vb_udp *udp, struct vb_udp_rx_train *t, uint8_t *packet,
		       uint32_t bytes)
{
	bool group = udp->address[t->address].group;
	uint32_t qpn;
	uint16_t slot;

	if (bytes < VB_BTH_BYTES + VB_ICRC_BYTES) {
		udp->counters.rx_short++;
		return 0;
	}
	qpn = vb_udp_qpn(packet);
	slot = (uint16_t)(qpn >> VB_SLOT_SHIFT);
	if (slot == VB_PROBE_SLOT && !group && bytes == VB_PROBE_BYTES &&
	    vb_steering_on_probe(&udp->steering, t->address, &t->ip.src, packet))
		return 0;
	if (!check_icrc(udp, t, packet, bytes)) {
		udp->counters.rx_bad_icrc++;
		return 0;
	}
	if (group != (qpn == VB_QPN_MULTICAST)) {
		udp->counters.rx_multicast++;
		return 0;
	}
	if (group || slot == udp->registry->slot) {
		if (udp->heir)
			return 0;
		deliver(udp, t, packet, bytes);
		return 1;
	}
	if (qpn == VB_GSI_QPN)
		return take_mad(udp, t, packet, bytes);
	if (qpn == 0)
		udp->counters.rx_management++;
	else
		vb_udp_stray_hand_on(udp, t, packet, bytes, slot);
	return 0;
}

/* take_received - up to budget packets of what was received. Returns how many were looked at. */
static int take_received(struct vb_udp *udp, int budget, int *delivered)
{
	struct vb_udp_rx_train *t = &udp->rx_train;
	int looked = 0;

	while (looked < budget) {
		uint32_t offset = t->offset, bytes;

		if (!udp->rx_open) {
			if (!open_next(udp))
				break;
			looked += !udp->rx_open;
			continue;
		}
		bytes = VB_MIN(t->segment_bytes, t->bytes - offset);
		if (must_wait(udp, t->data + offset))
			continue;
		*delivered += take_packet(udp, t, t->data + offset, bytes);
		looked++;
		t->offset = offset + bytes;
		t->index++;
		if (t->offset >= t->bytes)
			close_train(udp);
	}
	return looked;
}

/* --- polling ----------------------------------------------------------------------------- */

/* poll_socket - until it is empty or the budget is used up. */
static int poll_socket(struct vb_udp *udp, unsigned int address, int budget, int *delivered)
{
	int looked = 0;

	while (looked < budget) {
		unsigned int n = receive(udp, address);

		looked += take_received(udp, budget - looked, delivered);
		if (n < VB_UDP_RX_BATCH)
			break;
	}
	return looked;
}

void vb_udp_empty(struct vb_udp *udp, uint64_t heir)
{
	int delivered = 0;

	/* All that it brings is for us. */
	udp->rx_open = udp->rx_open && !udp->rx_train.in_ring;
	udp->waiting.data = NULL;
	vb_udp_ring_close(udp->ring);
	udp->ring = NULL;
	udp->heir = heir;
	take_received(udp, INT_MAX, &delivered);
	for (unsigned int i = 0; i < udp->unicast_count; i++) {
		for (unsigned int calls = 0; calls < EMPTY_CALLS && receive(udp, i) > 0; calls++)
			take_received(udp, INT_MAX, &delivered);
	}
}

/* next_cold - whose turn it is of the cold sockets; the one for strays is numbered last. */
static unsigned int next_cold(struct vb_udp *udp)
{
	unsigned int count = udp->address_count + 1;

	for (unsigned int i = 0; i < count; i++) {
		unsigned int turn = udp->next_cold++ % count;

		if (turn == udp->address_count ||
		    (udp->address[turn].rx_fd >= 0 &&
		     udp->address[turn].empty_polls >= VB_UDP_COLD_AFTER))
			return turn;
	}
	return udp->address_count;
}

static int poll_cold(struct vb_udp *udp, int budget, int *delivered)
{
	unsigned int turn = next_cold(udp);

	udp->cold_skipped = 0;
	if (turn < udp->address_count)
		return poll_socket(udp, turn, budget, delivered);
	return vb_udp_stray_poll(udp, budget, delivered);
}

/* is_cold_due - looked: what this poll has found so far. */
static bool is_cold_due(struct vb_udp *udp, bool warm, int looked)
{
	const uint32_t skipped = ++udp->cold_skipped, factor = udp->ring ? VB_UDP_RING_FACTOR : 1;

	return (!warm && !udp->ring) || skipped >= VB_UDP_COLD_LATE * (looked ? 1 : factor) ||
	       (looked == 0 && skipped >= VB_UDP_COLD_EVERY * factor);
}

/* is_free - nothing that was received waits to be taken: a socket may give more. */
static bool is_free(const struct vb_udp *udp)
{
	return !udp->rx_open && !udp->waiting.data && udp->rx_next == udp->rx_count;
}

/* is_due - a warm socket is at each poll. One beside the ring never goes quite cold: the first long
 * datagram after many short ones comes there. */
static bool is_due(const struct vb_udp *udp, const struct vb_udp_address *a, uint32_t polls)
{
	if (a->empty_polls < VB_UDP_COLD_AFTER)
		return true;
	if (!udp->ring || !a->ipv4 || a->group)
		return false;
	return polls % (a->empty_polls < VB_UDP_QUIET_AFTER ? VB_UDP_RING_COLD_EVERY
							    : VB_UDP_RING_QUIET_EVERY) ==
	       0;
}

int vb_udp_poll(struct vb_carrier *carrier, int budget, bool *room)
{
	struct vb_udp *udp = vb_udp_of(carrier);
	const uint32_t events_every = VB_UDP_EVENTS_EVERY * (udp->ring ? VB_UDP_RING_FACTOR : 1);
	uint32_t polls = udp->polls++;
	int delivered = 0, looked;
	bool warm = false;

	if (udp->blocked_fd >= 0 && vb_udp_unblock(udp))
		*room = true;
	if (polls % events_every == events_every - 1)
		vb_udp_look_at_events(udp);
	if (udp->ring)
		udp->counters.rx_overflows += vb_udp_ring_lost(udp->ring);
	if (vb_steering_changed(&udp->steering))
		vb_steering_sync(&udp->steering);
	looked = take_received(udp, budget, &delivered);
	for (unsigned int i = 0; i < udp->address_count && looked < budget; i++) {
		if (!is_due(udp, &udp->address[i], polls))
			continue;
		warm = true;
		looked += poll_socket(udp, i, budget - looked, &delivered);
	}
	if (udp->stray_waiting) /* whatever else there is: a ring may never be empty */
		looked += vb_udp_stray_poll(udp, VB_MAX(budget - looked, 1), &delivered);
	else if (is_cold_due(udp, warm, looked) && is_free(udp))
		looked += poll_cold(udp, VB_MAX(budget - looked, 1), &delivered);
	carrier->has_more = looked >= budget;
	return delivered;
}
