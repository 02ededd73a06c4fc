/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * traffic.h - what passes a port, counted for its whole host.
 *
 * An engine counts its own packets; the port's counters, for those who ask the performance
 * management agent, are the sum over all processes of the host. Each process has a row of the
 * registry's table, by slot, and writes what it counted there about once a millisecond while
 * something moves, and before it sleeps or goes. A row begins with what its slot's owner before
 * left, so that no sum ever falls, whoever is killed: at most a millisecond's count is lost. The
 * last process of a host takes the table with it.
 *
 * Bytes are those of a packet from the BTH to the ICRC, wherever it travels. A copy that the
 * initiator makes itself moves its bytes out of the port and into it, as an adapter's own loopback
 * does, but no packets.
 */
#ifndef VB_HOST_TRAFFIC_H
#define VB_HOST_TRAFFIC_H

#include <stdint.h>

#include "registry/registry.h"
#include "wire/packet.h"
#include "wire/path.h"

enum vb_traffic_kind {
	VB_TRAFFIC_TX_BYTES,
	VB_TRAFFIC_RX_BYTES,
	VB_TRAFFIC_TX_PACKETS,
	VB_TRAFFIC_RX_PACKETS,
	VB_TRAFFIC_TX_MULTICAST,
	VB_TRAFFIC_RX_MULTICAST,
	VB_TRAFFIC_COUNTED, /* up to here counted as packets pass */
	VB_TRAFFIC_RX_ERRORS = VB_TRAFFIC_COUNTED,
	VB_TRAFFIC_TX_DISCARDS,
	VB_TRAFFIC_RX_BAD_ICRC,
	VB_TRAFFIC_RX_DUPLICATES,
	VB_TRAFFIC_RX_OUT_OF_SEQUENCE,
	VB_TRAFFIC_RX_NAKS,
	VB_TRAFFIC_RX_RNR_NAKS,
	VB_TRAFFIC_TX_RNR_NAKS,
	VB_TRAFFIC_RETRIES,
	VB_TRAFFIC_TIMEOUTS,
	VB_TRAFFIC_KINDS,
};

_Static_assert(VB_TRAFFIC_KINDS == VB_REGISTRY_TRAFFIC, "a row of the registry's table");

struct vb_engine;

struct vb_traffic {
	uint64_t counted[VB_TRAFFIC_COUNTED];
	uint64_t before[VB_TRAFFIC_KINDS]; /* what the row held when we came */
	uint64_t due_ns;		   /* when it is written next */
};

/* vb_traffic_open - once the engine has its slot. */
void vb_traffic_open(struct vb_engine *engine);
/* vb_traffic_publish - inside: writes our row. */
void vb_traffic_publish(struct vb_engine *engine);
/* vb_traffic_sum - inside: the host's, ours up to now. */
void vb_traffic_sum(struct vb_engine *engine, uint64_t sum[VB_TRAFFIC_KINDS]);

static inline void vb_traffic_sent(struct vb_traffic *traffic, const struct vb_tx *tx)
{
	const struct vb_headers *h = tx->headers;

	traffic->counted[VB_TRAFFIC_TX_PACKETS]++;
	traffic->counted[VB_TRAFFIC_TX_BYTES] += vb_opcode_table[h->opcode].header_bytes +
						 tx->payload_bytes + h->pad + VB_ICRC_BYTES;
	traffic->counted[VB_TRAFFIC_TX_MULTICAST] += h->qpn == VB_QPN_MULTICAST;
}

static inline void vb_traffic_sent_short(struct vb_traffic *traffic, const struct vb_short *packet)
{
	traffic->counted[VB_TRAFFIC_TX_PACKETS]++;
	traffic->counted[VB_TRAFFIC_TX_BYTES] +=
		packet->header_bytes + packet->bytes + packet->pad + VB_ICRC_BYTES;
}

/* vb_traffic_received - qpn: the packet's destination. */
static inline void vb_traffic_received(struct vb_traffic *traffic, const struct vb_rx *rx,
				       uint32_t qpn)
{
	traffic->counted[VB_TRAFFIC_RX_PACKETS]++;
	traffic->counted[VB_TRAFFIC_RX_BYTES] +=
		rx->size + (rx->lent ? rx->lent->bytes : 0) + VB_ICRC_BYTES;
	traffic->counted[VB_TRAFFIC_RX_MULTICAST] += qpn == VB_QPN_MULTICAST;
}

#endif
