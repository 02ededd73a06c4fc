/* SPDX-License-Identifier: BSD-2-Clause */
/* traffic.c - the rows of a host's processes; traffic.h says what they are. */
#include "carrier/udp.h"
#include "host/engine.h"

#define PUBLISH_NS (1000ull * 1000)

/* A value of our own row is written by us alone, those of others by them alone: each is read whole,
 * though a row may be read half old and half new. */
static uint64_t load(const uint64_t *value)
{
	return __atomic_load_n(value, __ATOMIC_RELAXED);
}

static uint64_t *row(struct vb_engine *engine)
{
	return engine->registry->shared->traffic[engine->registry->slot];
}

void vb_traffic_open(struct vb_engine *engine)
{
	for (int i = 0; i < VB_TRAFFIC_KINDS; i++)
		engine->traffic.before[i] = load(&row(engine)[i]);
}

static uint64_t own(const struct vb_engine *engine, enum vb_traffic_kind kind)
{
	const struct vb_counters *c = &engine->nic->counters;
	struct vb_udp_counters udp;

	switch (kind) {
	case VB_TRAFFIC_RX_ERRORS:
		vb_udp_read_counters(engine->udp, &udp);
		return c->rx_malformed + udp.rx_bad_icrc + udp.rx_short + udp.rx_overflows;
	case VB_TRAFFIC_TX_DISCARDS:
		vb_udp_read_counters(engine->udp, &udp);
		return c->tx_dropped + udp.tx_dropped;
	case VB_TRAFFIC_RX_BAD_ICRC:
		vb_udp_read_counters(engine->udp, &udp);
		return udp.rx_bad_icrc;
	case VB_TRAFFIC_RX_DUPLICATES:
		return c->rx_duplicate;
	case VB_TRAFFIC_RX_OUT_OF_SEQUENCE:
		return c->rx_out_of_sequence;
	case VB_TRAFFIC_RX_NAKS:
		return c->rx_naks;
	case VB_TRAFFIC_RX_RNR_NAKS:
		return c->rx_rnr_naks;
	case VB_TRAFFIC_TX_RNR_NAKS:
		return c->tx_rnr_naks;
	case VB_TRAFFIC_RETRIES:
		return c->retries;
	case VB_TRAFFIC_TIMEOUTS:
		return c->timeouts;
	case VB_TRAFFIC_TX_BYTES:
	case VB_TRAFFIC_RX_BYTES:
		return engine->traffic.counted[kind] + c->direct_bytes;
	case VB_TRAFFIC_TX_PACKETS:
	case VB_TRAFFIC_RX_PACKETS:
	case VB_TRAFFIC_TX_MULTICAST:
	case VB_TRAFFIC_RX_MULTICAST:
		return engine->traffic.counted[kind];
	case VB_TRAFFIC_KINDS:
		break;
	}
	return 0;
}

void vb_traffic_publish(struct vb_engine *engine)
{
	for (int i = 0; i < VB_TRAFFIC_KINDS; i++)
		__atomic_store_n(&row(engine)[i],
				 engine->traffic.before[i] + own(engine, (enum vb_traffic_kind)i),
				 __ATOMIC_RELAXED);
	engine->traffic.due_ns = engine->nic->now_ns + PUBLISH_NS;
}

void vb_traffic_sum(struct vb_engine *engine, uint64_t sum[VB_TRAFFIC_KINDS])
{
	const struct vb_registry_shared *shared = engine->registry->shared;

	vb_traffic_publish(engine);
	for (int i = 0; i < VB_TRAFFIC_KINDS; i++) {
		sum[i] = 0;
		for (unsigned int slot = 0; slot < VB_REGISTRY_SLOTS; slot++)
			sum[i] += load(&shared->traffic[slot][i]);
	}
}
