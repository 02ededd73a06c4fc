/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * udp_ring.h - short datagrams without a system call: a ring of memory that the kernel fills
 * (packet(7), PACKET_RX_RING), beside the UDP sockets.
 *
 *      the kernel's IPv4 input --+--> packet socket: filter --> ring   the short ones for our slot
 *                                |
 *                                +--> UDP socket: filter --> queue     all others
 *
 * Looking at an empty ring takes some nanoseconds, at a socket a microsecond. The two filters ask
 * the same of a packet, so that each datagram is had from one of the two places. In which order a
 * long and a short one came is not known; who asks both keeps the order by the packets' PSNs.
 *
 * It needs CAP_NET_RAW, which root has, and who has made the network namespace; and Linux 6.6. What
 * it takes does not pass the host's packet filter, as with an adapter of hardware.
 */
#ifndef VB_CARRIER_UDP_RING_H
#define VB_CARRIER_UDP_RING_H

#include <linux/filter.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

#define VB_UDP_RING_FRAMES 512u
#define VB_UDP_RING_FRAME_BYTES 2048u
#define VB_UDP_RING_SHORT 1792u /* UDP payload that the ring takes whole */
#define VB_UDP_RING_ADDRESSES 16u
#define VB_UDP_RING_FILTER_MAX (25u + VB_UDP_RING_ADDRESSES)

struct vb_udp_ring;

/* Whose datagrams the ring takes. */
struct vb_udp_ring_config {
	struct in_addr addresses[VB_UDP_RING_ADDRESSES];
	unsigned int address_count;
	uint16_t slot;	  /* of the registry: the upper bits of the first packet's QPN */
	uint32_t ifindex; /* of the interface that has the addresses; 0: any */
};

/* A datagram: what its headers say, and the ICRC covers. */
struct vb_udp_ring_datagram {
	uint8_t *data;		/* UDP payload, writable, with VB_ICRC_ROOM bytes before it */
	uint32_t bytes;		/* of the UDP payload */
	uint32_t segment_bytes; /* of each packet in it but the last; bytes where there is one */
	struct in_addr src, dst; /* dst: one of the config's addresses */
	uint16_t src_port, ip_id;
	uint8_t traffic_class, hop_limit;
	bool dont_fragment;
};

/* vb_udp_ring_open - 0, and the ring takes nothing yet. -EPERM, -EOPNOTSUPP: the socket is all
 * there is; so it is on an interface whose frames the ring does not take. */
int vb_udp_ring_open(struct vb_udp_ring **out, const struct vb_udp_ring_config *config) VB_MUST_USE;
void vb_udp_ring_close(struct vb_udp_ring *ring);
void vb_udp_ring_drop_in_child(struct vb_udp_ring *ring);

/* vb_udp_ring_start - from now on the ring takes the datagrams, and the receive sockets fds, one
 * for each address, do not give the short ones any more. Between the two some may be lost. */
int vb_udp_ring_start(struct vb_udp_ring *ring, const int *fds) VB_MUST_USE;

/* vb_udp_ring_fd - readable while datagrams wait. */
int vb_udp_ring_fd(const struct vb_udp_ring *ring);

/* vb_udp_ring_is_empty - a look that costs nothing. */
bool vb_udp_ring_is_empty(const struct vb_udp_ring *ring);

/* vb_udp_ring_look - the oldest datagram, which stays until vb_udp_ring_release(). False: none. */
bool vb_udp_ring_look(struct vb_udp_ring *ring, struct vb_udp_ring_datagram *out);
void vb_udp_ring_release(struct vb_udp_ring *ring);

/* vb_udp_ring_lost - datagrams that the kernel had no room for since the last call. */
uint32_t vb_udp_ring_lost(struct vb_udp_ring *ring);

/* vb_udp_ring_filter - the program for the ring, or the one for the UDP sockets. Returns its
 * length, at most VB_UDP_RING_FILTER_MAX. */
unsigned int vb_udp_ring_filter(const struct vb_udp_ring_config *config, bool of_ring,
				struct sock_filter *code);

#endif
