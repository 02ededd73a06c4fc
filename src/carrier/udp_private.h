/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * udp_private.h - what the files of the UDP carrier share.
 *
 *      udp.c         life, routes, readiness
 *      udp_socket.c  how the sockets are made
 *      udp_tx.c      packets -> trains -> sendmmsg
 *      udp_rx.c      recvmmsg, or the ring -> segments -> ICRC -> the NIC
 *      udp_ring.c    short datagrams without a system call, where that is allowed
 *      udp_group.c   multicast groups
 *      udp_stray.c   packets that reached another process of the host than they belong to
 *      steering.c    which process gets a packet
 */
#ifndef VB_CARRIER_UDP_PRIVATE_H
#define VB_CARRIER_UDP_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "carrier/steering.h"
#include "carrier/udp.h"
#include "carrier/udp_address.h"
#include "carrier/udp_ring.h"
#include "wire/icrc.h"
#include "wire/packet.h"

#define VB_UDP_ADDRESSES 16u
#define VB_UDP_GROUPS 64u
#define VB_UDP_POOL 16u		  /* source ports per address, by the flow label */
#define VB_UDP_FIRST_PORT 0xc000u /* RoCEv2 source ports are 0xc000 .. 0xffff */
#define VB_UDP_DEFAULT_HOPS 64u

#define VB_UDP_TRAINS 8u	  /* per batch */
#define VB_UDP_SEGMENTS 64u	  /* per train: older kernels take no more */
#define VB_UDP_TRAIN_BYTES 65000u /* UDP payload; the IP packet must stay under 64 KiB */

#define VB_UDP_RX_BATCH 4u
#define VB_UDP_RX_BYTES 65536u /* no datagram is longer */
#define VB_UDP_RX_CONTROL 128u
#define VB_UDP_COLD_AFTER 64u	   /* empty polls in a row */
#define VB_UDP_COLD_EVERY 64u	   /* polls to a look at a cold socket, where a warm one is empty */
#define VB_UDP_COLD_LATE 256u	   /* and at all events */
#define VB_UDP_EVENTS_EVERY 512u   /* polls between two looks at the epoll set */
#define VB_UDP_QUIET_AFTER 2048u   /* empty looks in a row */
#define VB_UDP_RING_COLD_EVERY 16u /* polls to a look at a cold socket beside the ring */
#define VB_UDP_RING_QUIET_EVERY 256u /* and at one that has long been empty */
#define VB_UDP_RING_PATIENCE 256u    /* datagrams taken before a short one that is not the next */
#define VB_UDP_RING_ROW 256u   /* of the ring one after the other, until a socket has its turn */
#define VB_UDP_RING_FACTOR 16u /* beside the ring, whose look is that much cheaper than a call */
#define VB_UDP_RING_MEMBERS                                                                        \
	8u		 /* with more processes on the host none has one: each asks each packet */
#define VB_UDP_PEERS 64u /* peers whose IP identifications are followed */

#define VB_UDP_SHORT 80u

/* Tags of the epoll set: kind and index. */
enum vb_udp_event {
	VB_UDP_EVENT_RX = 1,
	VB_UDP_EVENT_STRAY = 2,
	VB_UDP_EVENT_WATCH = 3,
	VB_UDP_EVENT_TX = 4,
	VB_UDP_EVENT_RING = 5,
};
#define VB_UDP_TAG(kind, index) ((uint64_t)(kind) << 32 | (uint64_t)(index))

struct vb_udp_address {
	struct in6_addr address;
	uint32_t scope_id;
	bool ipv4;
	bool gro;		/* the kernel gives trains */
	bool group;		/* multicast: only rx_fd is used */
	int rx_fd;		/* -1: a group that was left */
	int tx_fd[VB_UDP_POOL]; /* -1: not made yet */
	uint16_t tx_port[VB_UDP_POOL];
	unsigned int empty_polls;
	uint32_t overflows; /* the kernel's count of what the receive buffer could not hold */
};

/* Packets of one path and one size (the last may be shorter) to one process, sent as one
 * UDP_SEGMENT datagram. */
struct vb_udp_train {
	uint64_t route[3]; /* path->word: equal routes go the same way */
	uint64_t qpns;	   /* whose packets are in it, a bit for one of 64 */
	uint32_t last_qpn;
	uint16_t slot; /* the process */
	int fd;
	uint16_t segment_bytes;
	uint32_t packets, bytes;
	bool closed; /* a shorter packet ended it */
	bool held;   /* its socket had no room */
	socklen_t to_bytes;
	union vb_sockaddr to;
	struct vb_icrc_ip ip;
	uint8_t room[VB_ICRC_ROOM]; /* before the first packet */
	uint8_t data[VB_UDP_TRAIN_BYTES + VB_HEADERS_MAX];
};

/* The IP identifications that a peer uses: those of Linux's Soft-RoCE count up over all its QPs. */
struct vb_udp_peer {
	struct in6_addr address;
	uint16_t next_id;
	bool counts;
};

struct vb_udp_rx_buffer {
	union vb_sockaddr from;
	_Alignas(struct cmsghdr) uint8_t control[VB_UDP_RX_CONTROL];
	struct iovec iov;
};

/* The datagram that is being taken apart: what its segments have in common. */
struct vb_udp_rx_train {
	uint8_t *data;
	uint32_t bytes, offset, segment_bytes, index;
	unsigned int address;
	struct vb_icrc_ip ip;
	struct vb_udp_peer *peer;
	uint16_t id, id_step; /* of the last segment; from one segment to the next */
	uint8_t traffic_class, hop_limit;
	bool in_ring; /* its memory is the ring's oldest entry */
};

struct vb_udp {
	struct vb_carrier carrier;
	struct vb_registry *registry;
	struct vb_steering steering;
	struct vb_udp_counters counters;
	uint32_t ifindex; /* of all addresses: where groups are joined */
	/* the host's own addresses first, then groups */
	unsigned int unicast_count, address_count;
	struct vb_udp_address address[VB_UDP_ADDRESSES + VB_UDP_GROUPS];
	uint32_t receive_bytes; /* SO_RCVBUF as the kernel counts it */
	bool gso;

	struct vb_udp_ring *ring; /* NULL: none */
	bool may_have_ring;	  /* it is allowed, and was not tried yet */
	vb_udp_is_next_fn *is_next;
	uint32_t row;	   /* datagrams of the ring since a socket's last turn */
	unsigned int turn; /* the socket that had it */
	/* The ring's oldest, while it is not the next of its queue pair: */
	uint32_t waited;    /* datagrams of sockets that were taken before it */
	uint32_t impatient; /* so many of the ring that are not waited for: the last waited in vain
			     */
	struct vb_udp_rx_train
		waiting; /* data NULL: none; of the ring, until a socket's were taken */

	/* tx */
	unsigned int train_count;
	struct vb_udp_train *train; /* VB_UDP_TRAINS */
	int blocked_fd;		    /* -1: the kernel takes packets */

	/* rx */
	uint32_t polls;
	unsigned int next_cold;
	uint32_t cold_skipped;		/* polls since a look at a cold socket */
	unsigned int rx_count, rx_next; /* datagrams received, and those taken apart */
	unsigned int rx_address;
	bool rx_open; /* rx_train is in the middle of one */
	struct vb_udp_rx_train rx_train;
	struct mmsghdr rx_message[VB_UDP_RX_BATCH];
	struct vb_udp_rx_buffer rx_buffer[VB_UDP_RX_BATCH];
	uint8_t *rx_data;
	uint64_t heir; /* not 0: we leave, and this is the key of one who stays */
	struct vb_udp_peer peer[VB_UDP_PEERS];

	/* strays */
	int stray_fd;
	bool stray_waiting;
	uint64_t stray_full_key, stray_full_until_ns; /* whose queue was full for too long */
};

static inline struct vb_udp *vb_udp_of(const struct vb_carrier *carrier)
{
	return (struct vb_udp *)vb_container_of(carrier, struct vb_udp, carrier);
}

/* A path's words: the source address and port, traffic class, hop limit and scope in the first, the
 * peer's address in the next two. */
struct vb_udp_route {
	unsigned int address, pool;
	uint8_t traffic_class, hop_limit;
	uint32_t scope_id;
	struct in6_addr to;
};

static inline void vb_udp_route_store(uint64_t word[3], const struct vb_udp_route *r)
{
	word[0] = (uint64_t)r->address | (uint64_t)r->pool << 8 | (uint64_t)r->traffic_class << 16 |
		  (uint64_t)r->hop_limit << 24 | (uint64_t)r->scope_id << 32;
	memcpy(&word[1], &r->to, sizeof(r->to));
}

static inline void vb_udp_route_load(struct vb_udp_route *r, const uint64_t word[3])
{
	r->address = word[0] & 0xff;
	r->pool = word[0] >> 8 & 0xff;
	r->traffic_class = (uint8_t)(word[0] >> 16);
	r->hop_limit = (uint8_t)(word[0] >> 24);
	r->scope_id = (uint32_t)(word[0] >> 32);
	memcpy(&r->to, &word[1], sizeof(r->to));
}

static inline uint32_t vb_udp_qpn(const uint8_t *bth)
{
	return (uint32_t)bth[5] << 16 | (uint32_t)bth[6] << 8 | bth[7];
}

/* udp_socket.c */
int vb_udp_open_receiver(const struct in6_addr *address, bool *gro) VB_MUST_USE;
int vb_udp_open_sender(struct vb_udp *udp, struct vb_udp_address *a, unsigned int pool) VB_MUST_USE;
int vb_udp_route_mtu(const struct vb_udp *udp, const struct vb_udp_address *source,
		     const struct in6_addr *to, uint32_t scope_id) VB_MUST_USE;

/* udp_tx.c */
int vb_udp_tx(struct vb_carrier *carrier, const struct vb_path *path, const struct vb_tx *tx);
void vb_udp_flush(struct vb_carrier *carrier);
/* vb_udp_unblock - tries to send what was held back. True: there is room again. */
bool vb_udp_unblock(struct vb_udp *udp);

/* udp_rx.c */
int vb_udp_rx_init(struct vb_udp *udp) VB_MUST_USE;
int vb_udp_poll(struct vb_carrier *carrier, int budget, bool *room);
/* vb_udp_empty - takes what is still in the sockets for another process to heir's, or to theirs,
 * and drops what was for us. For one who leaves. */
void vb_udp_empty(struct vb_udp *udp, uint64_t heir);
/* vb_udp_icrc - of a packet of at least VB_BTH_BYTES + VB_ICRC_BYTES, with VB_ICRC_ROOM bytes of
 * ours before it. A short one is copied in less time than that room is kept. */
static inline uint32_t vb_udp_icrc(const struct vb_icrc_ip *ip, uint8_t *packet, uint32_t bytes)
{
	if (bytes <= VB_UDP_SHORT)
		return vb_icrc_begin_bth(ip, bytes, packet, bytes - VB_ICRC_BYTES);
	return vb_icrc_in_place(ip, packet, bytes);
}

/* udp_stray.c */
int vb_udp_stray_open(struct vb_udp *udp) VB_MUST_USE;
/* vb_udp_stray_hand_on - to the process that has the slot in the packet's QPN. */
void vb_udp_stray_hand_on(struct vb_udp *udp, const struct vb_udp_rx_train *train,
			  const uint8_t *packet, uint32_t bytes, uint16_t slot);
/* vb_udp_stray_hand_mad_on - a packet to QP 1, which may reach any process by right: to the one
 * that joined the port's groups with that key. */
void vb_udp_stray_hand_mad_on(struct vb_udp *udp, const struct vb_udp_rx_train *train,
			      const uint8_t *packet, uint32_t bytes, uint64_t key);
/* vb_udp_stray_poll - takes up to budget packets that others handed to us; returns how many it
 * looked at and adds those that it delivered. */
int vb_udp_stray_poll(struct vb_udp *udp, int budget, int *delivered);

/* udp.c */
/* vb_udp_look_at_events - one non-blocking look at the epoll set: deaths, and which sockets are
 * warm. */
void vb_udp_look_at_events(struct vb_udp *udp);

#endif
