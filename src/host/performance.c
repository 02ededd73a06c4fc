/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * performance.c - the performance management agent (IBTA 16.1): ClassPortInfo, PortCounters,
 * PortCountersExtended.
 *
 *      0  header of a MAD
 *     24  reserved
 *     64  192 bytes of attribute: reserved | PortSelect | CounterSelect | counters
 *
 * The counters are the host's (traffic.h). A Set gives the selected ones the values that it brings,
 * 0 as a rule: what stands in the registry's table for each is how far it is behind the traffic.
 * PortCounters stop at their largest value, PortCountersExtended are 64 bits wide. Data is counted
 * in words of four bytes.
 *
 * Anybody who reaches QP 1 may ask and set, as on any fabric: PerfMgmt knows no key.
 */
#include "host/performance.h"

#include <string.h>

#include "host/engine.h"
#include "wire/cursor.h"

#define CLASS_VERSION 1
#define DATA_AT 64
#define ALL_PORTS 0xff
#define PORT 1
#define RESPONSE_TIME 18 /* 4.096 us * 2^18: about a second */

enum {
	ATTR_CLASS_PORT_INFO = 0x01,
	ATTR_PORT_COUNTERS = 0x12,
	ATTR_PORT_COUNTERS_EXTENDED = 0x1d,
};

enum { /* IBTA 16.1.3.1, 16.1.4.1 */
       CAPABILITY_ALL_PORTS = 1 << 8,
       CAPABILITY_EXTENDED = 1 << 9,
};

enum { /* IBTA 13.4.7 */
       STATUS_OK = 0,
       STATUS_BAD_VERSION = 1 << 2,
       STATUS_BAD_ATTRIBUTE = 3 << 2,
       STATUS_BAD_VALUE = 7 << 2,
};

enum unit { UNITS, WORDS };

/* What a counter counts: plus, less minus (the same kind twice: nothing is taken off). */
struct counter {
	uint8_t select; /* bit of CounterSelect */
	uint8_t at;	/* in the attribute */
	uint8_t bytes;
	enum vb_traffic_kind plus, minus;
	enum unit unit;
};

#define COUNTER(bit, offset, width, kind, what)                                                    \
	{                                                                                          \
		.select = (bit), .at = (offset), .bytes = (width), .plus = (kind),                 \
		.minus = (kind), .unit = (what),                                                   \
	}
#define UNICAST(bit, offset, all, multicast)                                                       \
	{                                                                                          \
		.select = (bit), .at = (offset), .bytes = 8, .plus = (all), .minus = (multicast),  \
		.unit = UNITS,                                                                     \
	}

static const struct counter port_counters[] = {
	COUNTER(3, 8, 2, VB_TRAFFIC_RX_ERRORS, UNITS),
	COUNTER(6, 14, 2, VB_TRAFFIC_TX_DISCARDS, UNITS),
	COUNTER(12, 24, 4, VB_TRAFFIC_TX_BYTES, WORDS),
	COUNTER(13, 28, 4, VB_TRAFFIC_RX_BYTES, WORDS),
	COUNTER(14, 32, 4, VB_TRAFFIC_TX_PACKETS, UNITS),
	COUNTER(15, 36, 4, VB_TRAFFIC_RX_PACKETS, UNITS),
};

static const struct counter port_counters_extended[] = {
	COUNTER(0, 8, 8, VB_TRAFFIC_TX_BYTES, WORDS),
	COUNTER(1, 16, 8, VB_TRAFFIC_RX_BYTES, WORDS),
	COUNTER(2, 24, 8, VB_TRAFFIC_TX_PACKETS, UNITS),
	COUNTER(3, 32, 8, VB_TRAFFIC_RX_PACKETS, UNITS),
	UNICAST(4, 40, VB_TRAFFIC_TX_PACKETS, VB_TRAFFIC_TX_MULTICAST),
	UNICAST(5, 48, VB_TRAFFIC_RX_PACKETS, VB_TRAFFIC_RX_MULTICAST),
	COUNTER(6, 56, 8, VB_TRAFFIC_TX_MULTICAST, UNITS),
	COUNTER(7, 64, 8, VB_TRAFFIC_RX_MULTICAST, UNITS),
};

/* A set of counters, and where the registry keeps how far they are behind. */
struct set {
	const struct counter *counters;
	size_t count;
	enum { BEHIND_SHORT, BEHIND_EXTENDED } behind;
};

_Static_assert(VB_ARRAY_SIZE(port_counters) <= VB_REGISTRY_TRAFFIC, "a row of the table");
_Static_assert(VB_ARRAY_SIZE(port_counters_extended) <= VB_REGISTRY_TRAFFIC, "a row of the table");

static uint64_t traffic_of(const struct counter *c, const uint64_t sum[VB_TRAFFIC_KINDS])
{
	uint64_t value = sum[c->plus] - (c->minus == c->plus ? 0 : sum[c->minus]);

	return c->unit == WORDS ? value / 4 : value;
}

static uint64_t read_field(const uint8_t *at, unsigned int bytes)
{
	return bytes == 2 ? vb_load_be16(at) : bytes == 4 ? vb_load_be32(at) : vb_load_be64(at);
}

static void write_field(uint8_t *at, unsigned int bytes, uint64_t value)
{
	if (bytes == 2)
		vb_store_be16(at, (uint16_t)VB_MIN(value, (uint64_t)UINT16_MAX));
	else if (bytes == 4)
		vb_store_be32(at, (uint32_t)VB_MIN(value, (uint64_t)UINT32_MAX));
	else
		vb_store_be64(at, value);
}

static uint16_t counters(struct vb_engine *engine, const struct set *set, bool write,
			 const uint8_t *in, uint8_t *out)
{
	uint64_t *behind = engine->registry->shared->traffic_behind[set->behind];
	uint16_t select = vb_load_be16(in + 2);
	uint64_t sum[VB_TRAFFIC_KINDS];

	if (in[1] != PORT && in[1] != ALL_PORTS)
		return STATUS_BAD_VALUE;
	vb_traffic_sum(engine, sum);
	out[1] = in[1];
	vb_store_be16(out + 2, select);
	for (size_t i = 0; i < set->count; i++) {
		const struct counter *c = &set->counters[i];
		uint64_t total = traffic_of(c, sum);

		if (write && select & 1u << c->select)
			__atomic_store_n(&behind[i], total - read_field(in + c->at, c->bytes),
					 __ATOMIC_RELAXED);
		write_field(out + c->at, c->bytes,
			    total - __atomic_load_n(&behind[i], __ATOMIC_RELAXED));
	}
	return STATUS_OK;
}

void vb_port_counters_read(const uint64_t sum[VB_TRAFFIC_KINDS],
			   const uint64_t behind[2][VB_REGISTRY_TRAFFIC],
			   struct vb_port_counters *out)
{
	uint64_t wide[VB_ARRAY_SIZE(port_counters_extended)];
	uint64_t narrow[VB_ARRAY_SIZE(port_counters)];

	for (size_t i = 0; i < VB_ARRAY_SIZE(wide); i++)
		wide[i] = traffic_of(&port_counters_extended[i], sum) - behind[BEHIND_EXTENDED][i];
	for (size_t i = 0; i < VB_ARRAY_SIZE(narrow); i++)
		narrow[i] = traffic_of(&port_counters[i], sum) - behind[BEHIND_SHORT][i];
	*out = (struct vb_port_counters){
		.xmit_data = wide[0],
		.rcv_data = wide[1],
		.xmit_packets = wide[2],
		.rcv_packets = wide[3],
		.unicast_xmit_packets = wide[4],
		.unicast_rcv_packets = wide[5],
		.multicast_xmit_packets = wide[6],
		.multicast_rcv_packets = wide[7],
		.rcv_errors = narrow[0],
		.xmit_discards = narrow[1],
	};
}

static uint16_t class_port_info(bool write, uint8_t *out)
{
	if (write) /* it would set where traps go, of which there are none */
		return STATUS_BAD_ATTRIBUTE;
	out[0] = VB_MAD_BASE_VERSION;
	out[1] = CLASS_VERSION;
	vb_store_be16(out + 2, CAPABILITY_ALL_PORTS | CAPABILITY_EXTENDED);
	vb_store_be32(out + 4, RESPONSE_TIME);
	return STATUS_OK;
}

static uint16_t judge(struct vb_engine *engine, const uint8_t *in, uint8_t *data)
{
	static const struct set short_set = {port_counters, VB_ARRAY_SIZE(port_counters),
					     BEHIND_SHORT};
	static const struct set extended_set = {
		port_counters_extended, VB_ARRAY_SIZE(port_counters_extended), BEHIND_EXTENDED};
	bool write = in[3] == VB_MAD_SET;

	if (in[0] != VB_MAD_BASE_VERSION || in[2] != CLASS_VERSION)
		return STATUS_BAD_VERSION;
	switch (vb_load_be16(in + 16)) {
	case ATTR_CLASS_PORT_INFO:
		return class_port_info(write, data);
	case ATTR_PORT_COUNTERS:
		return counters(engine, &short_set, write, in + DATA_AT, data);
	case ATTR_PORT_COUNTERS_EXTENDED:
		return counters(engine, &extended_set, write, in + DATA_AT, data);
	}
	return STATUS_BAD_ATTRIBUTE;
}

bool vb_engine_performance(struct vb_engine *engine, const uint8_t in[VB_MAD_BYTES],
			   uint8_t out[VB_MAD_BYTES])
{
	uint8_t data[VB_MAD_BYTES - DATA_AT] = {0};
	uint16_t status;

	if (in[1] != VB_MAD_PERFORMANCE || (in[3] != VB_MAD_GET && in[3] != VB_MAD_SET))
		return false;
	status = judge(engine, in, data);
	memcpy(out, in, VB_MAD_BYTES);
	if (status == STATUS_OK)
		memcpy(out + DATA_AT, data, sizeof(data));
	out[3] = VB_MAD_GET_RESPONSE;
	vb_store_be16(out + 4, status);
	return true;
}
