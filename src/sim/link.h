/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * link.h - one direction of a wire between two nodes.
 *
 *      send -> [verdict of the filter] -> queue at `rate` -> `delay` -> deliver
 *                                          |                 |
 *                                          overflow          loss, bit error, duplicate, reorder
 *
 * A packet is the bytes of a UDP payload (BTH to ICRC) with the addresses of its IP header. The
 * queue is kept as the time until which the wire is busy. A reordered packet takes a longer way and
 * is overtaken; a duplicate arrives a second time some time later. Faults can be switched off in
 * the middle; packets under way keep the fate that they drew.
 */
#ifndef VB_SIM_LINK_H
#define VB_SIM_LINK_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "sim/sim.h"
#include "wire/packet.h"

struct vb_node;

/* struct vb_sim_packet - a packet on the wire. */
struct vb_sim_packet {
	struct in6_addr src, dst;
	uint16_t src_port;
	uint8_t traffic_class, hop_limit;
	uint32_t size;
	uint8_t bytes[]; /* BTH .. pad, ICRC */
};

struct vb_link_faults { /* chances in a million packets */
	uint32_t loss, duplicate, reorder, bit_error;
	uint64_t reorder_ns; /* at most so much later */
};

enum vb_verdict { VB_PASS, VB_DROP, VB_DUPLICATE, VB_CORRUPT };

struct vb_link {
	struct vb_sim *sim;
	struct vb_node *from, *to;
	uint64_t rate; /* bits a second; 0: no limit */
	uint64_t delay_ns;
	uint64_t queue_ns; /* a packet that would wait longer is dropped; 0: no limit */
	struct vb_link_faults faults;
	bool faulty; /* faults are on */
	bool cut;    /* nothing passes */
	uint64_t busy_until_ns;
	uint32_t in_flight; /* packets that will be delivered */
	/* filter - a scenario's own choice for a packet; NULL: all pass. */
	enum vb_verdict (*filter)(void *env, struct vb_link *link, const struct vb_headers *h,
				  uint32_t payload_bytes);
	void *filter_env;
	struct {
		uint64_t sent, delivered, lost, duplicated, reordered, corrupted, overflowed;
	} count;
};

/* vb_link_send - takes the packet (from malloc), and delivers it to link->to as the link will. */
void vb_link_send(struct vb_link *link, struct vb_sim_packet *packet);

#endif
