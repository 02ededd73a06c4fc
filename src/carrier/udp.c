/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * udp.c - RoCEv2 (IBTA annex A17) on ordinary UDP sockets: the carrier's life, routes, readiness.
 *
 *      NIC -> tx -> trains -> sendmmsg          udp_tx.c    from ports 0xc000 .. 0xffff
 *      recvmmsg -> segments -> ICRC -> NIC      udp_rx.c    port 4791, one socket an address
 *      which process of the host                steering.c
 *      the wrong process                        udp_stray.c
 *
 * The carrier's descriptor is an epoll set (level-triggered) of the receive sockets, the socket for
 * strays, the pidfds of the processes that we watch, and a send socket without room. Polling does
 * not ask the set (but for one time in VB_UDP_EVENTS_EVERY): it looks at the warm sockets
 * themselves. Nothing that a peer or another process sends changes anything but counters, except
 * for packets that pass every check.
 */
#define _GNU_SOURCE
#include "carrier/udp.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "carrier/udp_private.h"

#define LARGEST_PATH_MTU 4096u
#define SMALLEST_PATH_MTU 256u
/* Around a payload that fills the path MTU: BTH, RETH, ImmDt, ICRC. */
#define ROCE_OVERHEAD (VB_BTH_BYTES + 16u + 4u + VB_ICRC_BYTES)
#define UDP_HEADER_BYTES 8u
/* In flight at most this part of the receive buffer: the kernel counts its own overhead too, and
 * several QPs share it. The peer's buffer is taken to be like ours. */
#define WINDOW_PART 4u
#define WINDOW_LEAST (64u << 10)
#define WINDOW_MOST (2048u << 10)
/* Of UC and UD, which nobody acknowledges, in a millisecond: the buffer holds what comes while its
 * reader waits 16 of them for a processor; 64, where that is to be expected. */
#define PACE_PART 16u
#define PACE_LEAST (64u << 10)
#define PACE_MOST (512u << 10)
#define PACE_LATE_PART 64u
#define PACE_LATE_LEAST (16u << 10)

/* --- life -------------------------------------------------------------------------------- */

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

/* free_all - closes what is still open and frees the memory. */
static void free_all(struct vb_udp *udp)
{
	vb_udp_ring_close(udp->ring);
	for (unsigned int i = 0; i < udp->address_count; i++) {
		close_fd(udp->address[i].rx_fd);
		for (unsigned int p = 0; p < VB_UDP_POOL; p++)
			close_fd(udp->address[i].tx_fd[p]);
	}
	close_fd(udp->stray_fd);
	close_fd(udp->carrier.fd);
	free(udp->train);
	free(udp->rx_data);
	free(udp);
}

static void udp_destroy(struct vb_carrier *carrier)
{
	struct vb_udp *udp = vb_udp_of(carrier);
	uint64_t heir = vb_steering_retire(&udp->steering);

	if (heir)
		vb_udp_empty(udp, heir);
	vb_steering_leave(&udp->steering);
	for (unsigned int i = 0; i < udp->unicast_count; i++)
		udp->address[i].rx_fd = -1;
	free_all(udp);
}

void vb_udp_drop_in_child(struct vb_carrier *carrier)
{
	struct vb_udp *udp = vb_udp_of(carrier);

	vb_steering_drop_in_child(&udp->steering);
	vb_udp_ring_drop_in_child(udp->ring);
	udp->ring = NULL;
	free_all(udp);
}

static bool udp_arm(struct vb_carrier *carrier)
{
	struct vb_udp *udp = vb_udp_of(carrier);

	/* What was received and not yet delivered does not make the descriptor readable. */
	return !udp->rx_open && udp->rx_next == udp->rx_count &&
	       (!udp->ring || vb_udp_ring_is_empty(udp->ring));
}

static void udp_disarm(struct vb_carrier *carrier)
{
	vb_udp_look_at_events(vb_udp_of(carrier));
}

static const struct vb_carrier_ops udp_ops = {
	.name = "udp",
	.tx = vb_udp_tx,
	.flush = vb_udp_flush,
	.poll = vb_udp_poll,
	.arm = udp_arm,
	.disarm = udp_disarm,
	.destroy = udp_destroy,
};

static struct vb_udp *allocate(vb_deliver_fn deliver, void *env)
{
	struct vb_udp *udp = calloc(1, sizeof(*udp));

	if (!udp)
		return NULL;
	udp->carrier =
		(struct vb_carrier){.ops = &udp_ops, .deliver = deliver, .env = env, .fd = -1};
	udp->stray_fd = udp->blocked_fd = -1;
	udp->gso = true;
	udp->train = calloc(VB_UDP_TRAINS, sizeof(*udp->train));
	if (!udp->train || vb_udp_rx_init(udp) < 0) {
		free_all(udp);
		return NULL;
	}
	return udp;
}

static int add_address(struct vb_udp *udp, const struct in6_addr *address, uint32_t scope_id)
{
	struct vb_udp_address *a = &udp->address[udp->address_count];
	struct epoll_event event = {.events = EPOLLIN,
				    .data.u64 = VB_UDP_TAG(VB_UDP_EVENT_RX, udp->address_count)};
	int bytes = 0;
	socklen_t bytes_size = sizeof(bytes);
	int err;

	*a = (struct vb_udp_address){
		.address = *address, .scope_id = scope_id, .ipv4 = vb_is_ipv4(address)};
	for (unsigned int p = 0; p < VB_UDP_POOL; p++)
		a->tx_fd[p] = -1;
	a->rx_fd = vb_udp_open_receiver(address, &a->gro);
	udp->unicast_count = ++udp->address_count;
	if (a->rx_fd < 0)
		return a->rx_fd;
	err = vb_udp_open_sender(udp, a, 0);
	if (err < 0)
		return err;
	if (getsockopt(a->rx_fd, SOL_SOCKET, SO_RCVBUF, &bytes, &bytes_size) == 0 && bytes > 0)
		udp->receive_bytes = (uint32_t)bytes;
	if (epoll_ctl(udp->carrier.fd, EPOLL_CTL_ADD, a->rx_fd, &event) < 0)
		return -errno;
	vb_steering_add(&udp->steering, address, scope_id, a->rx_fd, a->tx_fd[0]);
	return 0;
}

static int check_config(const struct vb_udp_config *config)
{
	if (!config->registry || config->address_count == 0 ||
	    config->address_count > VB_UDP_ADDRESSES)
		return -EINVAL;
	for (unsigned int i = 0; i < config->address_count; i++) {
		if (vb_is_nowhere(&config->addresses[i]))
			return -EINVAL;
		for (unsigned int k = 0; k < i; k++) {
			if (IN6_ARE_ADDR_EQUAL(&config->addresses[i], &config->addresses[k]) &&
			    config->scope_ids[i] == config->scope_ids[k])
				return -EINVAL;
		}
	}
	return 0;
}

int vb_udp_create(struct vb_carrier **out, const struct vb_udp_config *config,
		  vb_deliver_fn deliver, void *env)
{
	int err = check_config(config);
	struct vb_udp *udp;

	if (err < 0)
		return err;
	udp = allocate(deliver, env);
	if (!udp)
		return -ENOMEM;
	udp->registry = config->registry;
	udp->ifindex = config->ifindex;
	udp->is_next = config->is_next;
	udp->may_have_ring = config->is_next != NULL;
	udp->carrier.fd = epoll_create1(EPOLL_CLOEXEC);
	if (udp->carrier.fd < 0) {
		err = -errno;
		goto err_free;
	}
	err = vb_steering_init(&udp->steering, config->registry, udp->carrier.fd,
			       VB_UDP_TAG(VB_UDP_EVENT_WATCH, 0));
	if (err < 0)
		goto err_free;
	err = vb_udp_stray_open(udp);
	if (err < 0)
		goto err_free;
	for (unsigned int i = 0; i < config->address_count; i++) {
		err = add_address(udp, &config->addresses[i], config->scope_ids[i]);
		if (err < 0)
			goto err_free;
	}
	err = vb_steering_join(&udp->steering);
	if (err < 0)
		goto err_free;
	*out = &udp->carrier;
	return 0;

err_free:
	free_all(udp);
	return err;
}

/* --- readiness --------------------------------------------------------------------------- */

void vb_udp_look_at_events(struct vb_udp *udp)
{
	struct epoll_event events[VB_UDP_ADDRESSES + VB_STEERING_WATCHES + 3];
	int n = epoll_wait(udp->carrier.fd, events, VB_ARRAY_SIZE(events), 0);

	for (int i = 0; i < n; i++) {
		uint32_t index = (uint32_t)events[i].data.u64;

		switch ((enum vb_udp_event)(events[i].data.u64 >> 32)) {
		case VB_UDP_EVENT_RX:
			udp->address[index].empty_polls = 0;
			break;
		case VB_UDP_EVENT_STRAY:
			udp->stray_waiting = true;
			break;
		case VB_UDP_EVENT_WATCH:
			vb_steering_on_death(&udp->steering, index);
			break;
		case VB_UDP_EVENT_RING:
		case VB_UDP_EVENT_TX: /* the next poll looks, or tries to send */
			break;
		}
	}
	if (udp->steering.pending)
		vb_steering_sync(&udp->steering);
}

/* --- the ring ---------------------------------------------------------------------------- */

/* open_ring - at the first use of the network, where that is allowed and pays. Without it the
 * sockets give everything. */
static void open_ring(struct vb_udp *udp)
{
	struct epoll_event event = {.events = EPOLLIN,
				    .data.u64 = VB_UDP_TAG(VB_UDP_EVENT_RING, 0)};
	struct vb_udp_ring_config config = {.slot = udp->registry->slot, .ifindex = udp->ifindex};
	int fds[VB_UDP_RING_ADDRESSES];
	struct vb_udp_ring *ring;

	udp->may_have_ring = false;
	for (unsigned int i = 0; i < udp->unicast_count; i++) {
		const struct vb_udp_address *a = &udp->address[i];

		if (!a->ipv4)
			continue;
		if (!a->gro || udp->steering.group[i].port->count > VB_UDP_RING_MEMBERS)
			return;
		fds[config.address_count] = a->rx_fd;
		config.addresses[config.address_count++].s_addr = a->address.s6_addr32[3];
	}
	if (vb_udp_ring_open(&ring, &config) < 0)
		return;
	if (epoll_ctl(udp->carrier.fd, EPOLL_CTL_ADD, vb_udp_ring_fd(ring), &event) < 0 ||
	    vb_udp_ring_start(ring, fds) < 0) {
		vb_udp_ring_close(ring);
		return;
	}
	udp->ring = ring;
	udp->carrier.looks_cheaply = true;
}

/* --- routes ------------------------------------------------------------------------------ */

static int find_source(const struct vb_udp *udp, const struct in6_addr *source, uint32_t scope_id)
{
	for (unsigned int i = 0; i < udp->unicast_count; i++) {
		const struct vb_udp_address *a = &udp->address[i];

		if (IN6_ARE_ADDR_EQUAL(&a->address, source) &&
		    (!IN6_IS_ADDR_LINKLOCAL(source) || scope_id == 0 || scope_id == a->scope_id))
			return (int)i;
	}
	return -1;
}

/* segment_for - the largest path MTU of InfiniBand that fits into an IP packet of mtu bytes, or 0.
 */
static uint32_t segment_for(bool ipv4, uint32_t mtu)
{
	uint32_t overhead = (ipv4 ? 20u : 40u) + UDP_HEADER_BYTES + ROCE_OVERHEAD;

	for (uint32_t bytes = LARGEST_PATH_MTU; bytes >= SMALLEST_PATH_MTU; bytes /= 2) {
		if (bytes + overhead <= mtu)
			return bytes;
	}
	return 0;
}

/* choose_port - a socket of the pool, made at its first use; the first one where that fails. */
static unsigned int choose_port(struct vb_udp *udp, struct vb_udp_address *a, uint32_t flow_label)
{
	/* Neighbouring labels are to differ in the upper bits as well. */
	unsigned int pool = flow_label * 0x9e3779b1u >> 28;

	if (a->tx_fd[pool] < 0 && vb_udp_open_sender(udp, a, pool) < 0)
		pool = 0;
	return pool;
}

int vb_udp_route(struct vb_carrier *carrier, struct vb_path *path, const struct in6_addr *source,
		 const struct in6_addr *address, uint32_t scope_id, uint32_t flow_label,
		 uint8_t traffic_class, uint8_t hop_limit)
{
	struct vb_udp *udp = vb_udp_of(carrier);
	int from = find_source(udp, source, scope_id);
	struct vb_udp_route r = {.to = *address, .traffic_class = traffic_class};
	struct vb_udp_address *a;
	int mtu;

	if (from < 0)
		return -EINVAL;
	a = &udp->address[from];
	if (vb_is_ipv4(address) != a->ipv4 || vb_is_nowhere(address))
		return -EINVAL;
	r.address = (unsigned int)from;
	r.scope_id = scope_id ? scope_id : a->scope_id;
	r.hop_limit = hop_limit ? hop_limit : VB_UDP_DEFAULT_HOPS;
	if (udp->may_have_ring && a->ipv4)
		open_ring(udp);
	mtu = vb_udp_route_mtu(udp, a, address, r.scope_id);
	if (mtu < 0)
		return mtu;
	path->segment_max = segment_for(a->ipv4, (uint32_t)mtu);
	if (path->segment_max == 0)
		return -EINVAL;
	r.pool = choose_port(udp, a, flow_label);
	path->own_segment = false;
	path->direct = false;
	path->window = VB_MIN(VB_MAX(udp->receive_bytes / WINDOW_PART, WINDOW_LEAST), WINDOW_MOST);
	path->pace = VB_MIN(VB_MAX(udp->receive_bytes / PACE_PART, PACE_LEAST), PACE_MOST);
	path->pace_late =
		VB_MIN(VB_MAX(udp->receive_bytes / PACE_LATE_PART, PACE_LATE_LEAST), path->pace);
	path->train = udp->gso ? VB_UDP_TRAIN_BYTES : 0;
	path->carrier = carrier;
	path->peer = NULL;
	memset(path->word, 0, sizeof(path->word));
	vb_udp_route_store(path->word, &r);
	return 0;
}

void vb_udp_read_counters(const struct vb_carrier *carrier, struct vb_udp_counters *out)
{
	const struct vb_udp *udp = vb_udp_of(carrier);

	*out = udp->counters;
	out->verifications = udp->steering.verifications;
}
