/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * path.h - where packets to one peer go, and a packet on its way in or out.
 *
 * The transport knows of a path what the protocol needs: the two GIDs to compare and to put into a
 * UD receiver's GRH, how many payload bytes one packet may hold, and how many may be in flight.
 * Which carrier takes the packets stands in the carrier's own words, which the transport only
 * keeps.
 */
#ifndef VB_WIRE_PATH_H
#define VB_WIRE_PATH_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "wire/packet.h"

struct vb_path {
	struct in6_addr dgid; /* IPv4 as ::ffff:a.b.c.d */
	void *carrier;
	void *peer;	      /* the carrier's own */
	uint32_t segment_max; /* payload bytes of a packet that this carrier takes; for RC and UC
			       * on a carrier of pieces more than the path MTU, else VB_MAX_PATH_MTU
			       */
	uint32_t
		window; /* payload bytes that may be in flight; 0: no bound but the carrier's own */
	uint32_t train; /* bytes of packets of one size and process that cost what one costs; 0:
			   each for itself */
	uint32_t lend_from; /* bytes of a SEND's payload from which on RC lends it; 0: never */
	bool own_segment;   /* RC and UC use segment_max in place of the path MTU (both ends decide
			       alike) */
	bool direct;	    /* vb_nic_ops.direct may be tried */
	/* bytes that UC and UD send in a millisecond, all of them, 0: no bound; and where the
	 * processors are wanted by others */
	uint32_t pace, pace_late;
	struct in6_addr sgid;
	uint64_t word[5]; /* the carrier's own */
};

/* Payload that does not travel: it lies in regions of the sender, which names it as a READ would
 * and keeps it until the packet is acknowledged. Such a packet stands for as many as its bytes
 * would fill. */
#define VB_LENT_PARTS 8
#define VB_LENT_BYTES (1u << 20)
struct vb_lent_part {
	uint64_t va;
	uint32_t rkey, length;
};
struct vb_lent {
	uint32_t bytes, count;
	const struct vb_lent_part *parts;
};

/* A packet to send. The payload has been read when tx returns. The pad count is in the headers, the
 * pad bytes themselves are the carrier's to add. */
struct vb_tx {
	const struct vb_headers *headers;
	const struct iovec *payload;
	int payload_parts;
	uint32_t payload_bytes;
	const struct vb_lent *lent; /* in place of payload, or NULL */
};

/* A packet whose headers are bytes already, with its payload in one piece: the BTH, and ImmDt or an
 * AETH behind it where header_bytes says so. */
struct vb_short {
	uint8_t header[VB_BTH_BYTES + 4];
	uint32_t header_bytes;
	uint32_t qpn; /* its destination */
	uint32_t bytes, pad;
	bool wanted; /* its program waits for the acknowledgement, as far as can be known */
	const uint8_t *payload;
};

/* A packet that arrived, its ICRC (where the carrier has one) already checked. */
struct vb_rx {
	const uint8_t *data; /* BTH up to and with the pad, without ICRC */
	size_t size;
	const struct vb_lent *lent; /* or NULL; data are the headers alone then */
	struct in6_addr src, dst;   /* IPv4 as ::ffff:a.b.c.d */
	const uint8_t *next; /* a hint: VB_BTH_BYTES of the packet that is delivered next, or NULL
			      */
	bool wanted;	     /* of a vb_short: the acknowledgement, as soon as it is there */
	uint8_t traffic_class, hop_limit;
};

#endif
