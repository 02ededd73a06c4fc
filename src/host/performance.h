/* SPDX-License-Identifier: BSD-2-Clause */
/* performance.h - the performance management agent of a port; see performance.c. */
#ifndef VB_HOST_PERFORMANCE_H
#define VB_HOST_PERFORMANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "host/traffic.h"
#include "wire/mad.h"

struct vb_engine;

/* vb_engine_performance - inside: answers a Get or Set of the class PerfMgmt, from this host or
 * another. False: in is none; there is no answer. */
VB_SHARED bool vb_engine_performance(struct vb_engine *engine, const uint8_t in[VB_MAD_BYTES],
				     uint8_t out[VB_MAD_BYTES]);

/* What the agent's counters are, data in words of four bytes; none stops at a largest value. */
struct vb_port_counters {
	uint64_t xmit_data, rcv_data, xmit_packets, rcv_packets;
	uint64_t unicast_xmit_packets, unicast_rcv_packets;
	uint64_t multicast_xmit_packets, multicast_rcv_packets;
	uint64_t rcv_errors, xmit_discards;
};

/* vb_port_counters_read - from the host's sums and what stands in the registry beside them. */
void vb_port_counters_read(const uint64_t sum[VB_TRAFFIC_KINDS],
			   const uint64_t behind[2][VB_REGISTRY_TRAFFIC],
			   struct vb_port_counters *out);

#endif
