/* SPDX-License-Identifier: BSD-2-Clause */
/* udp.h - RoCEv2 over ordinary UDP sockets (udp.c), the port shared by all processes of the host
 * (steering.c). */
#ifndef VB_CARRIER_UDP_H
#define VB_CARRIER_UDP_H

#include <netinet/in.h>

#include "carrier/carrier.h"
#include "registry/registry.h"

/* Whether a packet of RC or UC is the next one that its queue pair expects; packet begins with its
 * BTH. Packets that have no order are. */
typedef bool vb_udp_is_next_fn(void *env, const uint8_t *packet);

struct vb_udp_config {
	struct in6_addr addresses[16]; /* to receive on: IPv4 mapped, IPv6 */
	uint32_t scope_ids[16];	       /* interface index for link-local IPv6, else 0 */
	unsigned int address_count;
	uint32_t ifindex;	      /* of the interface that has them */
	vb_udp_is_next_fn *is_next;   /* not NULL: short datagrams may come by a ring, udp_ring.h */
	struct vb_registry *registry; /* our slot and the shared table */
};

/* vb_udp_create - binds the sockets. 0 or -errno; -EADDRINUSE: another user has the port. */
int vb_udp_create(struct vb_carrier **out, const struct vb_udp_config *config,
		  vb_deliver_fn deliver, void *env) VB_MUST_USE;

/* vb_udp_drop_in_child - after fork, in the child: closes the sockets and frees memory, touching
 * nothing shared. */
void vb_udp_drop_in_child(struct vb_carrier *carrier);

/* vb_udp_route - fills path for a peer at address (IPv4 mapped or IPv6 with scope_id): source
 * address and port, the route's MTU as segment_max, the window from the socket buffer. sgid and
 * dgid are the caller's. -ENETUNREACH, -EINVAL, -ENOMEM. flow_label: what routers that know several
 * ways choose by, as the source port. Paths without one, 0, have the process's first port, so that
 * what several queue pairs send to one process goes in one train. */
int vb_udp_route(struct vb_carrier *carrier, struct vb_path *path, const struct in6_addr *source,
		 const struct in6_addr *address, uint32_t scope_id, uint32_t flow_label,
		 uint8_t traffic_class, uint8_t hop_limit) VB_MUST_USE;

/* vb_udp_join, vb_udp_leave - a multicast group (IPv4 mapped, or IPv6), on our interface. join: 0
 * or -errno. */
int vb_udp_join(struct vb_carrier *carrier, const struct in6_addr *group) VB_MUST_USE;
void vb_udp_leave(struct vb_carrier *carrier, const struct in6_addr *group);

/* What was counted; dropped unless the comment says otherwise. */
struct vb_udp_counters {
	uint64_t rx_bad_icrc;
	uint64_t rx_short;	/* no room for a BTH and the ICRC, or longer than any datagram */
	uint64_t rx_strays;	/* for another process of this host: handed on where it lives */
	uint64_t rx_handed;	/* taken from another process that it had reached: delivered */
	uint64_t rx_mads_on;	/* for QP 1 and another process of this host: handed on to it */
	uint64_t rx_unclaimed;	/* strays that could not be handed on, or that nobody may hand us */
	uint64_t rx_management; /* for QP 0 */
	uint64_t rx_multicast;	/* to QP 0xffffff of a unicast address, or to another of a group */
	uint64_t rx_overflows;	/* dropped by the kernel: the receive buffer was full */
	uint64_t rx_solved_id;	/* delivered, but the IP identification had to be solved for */
	uint64_t rx_packets, rx_bytes;		 /* delivered */
	uint64_t rx_calls;			 /* system calls that brought something */
	uint64_t tx_packets, tx_bytes, tx_calls; /* sent */
	uint64_t tx_dropped;			 /* refused by the kernel */
	uint64_t tx_held;	/* kept back until the socket had room: sent later */
	uint64_t verifications; /* the steering table was verified because of strays */
};
void vb_udp_read_counters(const struct vb_carrier *carrier, struct vb_udp_counters *out);

#endif
