/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_rsocket_wire.c - any bytes, for each decoder of what rsockets say. What is taken encodes to
 * the same bytes again, where nothing is reserved, and decodes to the same once more.
 */
#include <string.h>

#include "base/macros.h"
#include "fuzz.h"
#include "rdmacm/rsocket_wire.h"

static void private_data(const uint8_t *data, size_t size)
{
	struct vb_rs_conn conn, again;
	uint8_t bytes[VB_RS_CONN_BYTES];

	if (vb_rs_conn_decode(&conn, data, size) != 0)
		return;
	vb_rs_conn_encode(&conn, bytes);
	VB_ASSERT(vb_rs_conn_decode(&again, bytes, sizeof(bytes)) == 0);
	VB_ASSERT(again.credits == conn.credits && again.iomap_slots == conn.iomap_slots);
	VB_ASSERT(memcmp(bytes + 8, data + 8, VB_RS_CONN_BYTES - 8) == 0);
}

static void udp_header(const uint8_t *data, size_t size, int family)
{
	uint8_t bytes[VB_RS_UDP_BYTES_IPV6];
	struct vb_rs_udp udp, again;
	int header = vb_rs_udp_decode(&udp, family, data, size);

	if (header < 0)
		return;
	VB_ASSERT((size_t)header <= size);
	VB_ASSERT(vb_rs_udp_encode(&udp, bytes) == (size_t)header);
	VB_ASSERT(vb_rs_udp_decode(&again, family, bytes, sizeof(bytes)) == header);
	VB_ASSERT(again.queue_pair == udp.queue_pair && again.control == udp.control);
}

static void ud_header(const uint8_t *data, size_t size)
{
	uint8_t bytes[VB_RS_UD_BYTES_IPV6];
	union vb_rs_address from;
	int header = vb_rs_ud_decode(&from, data, size);

	if (header < 0)
		return;
	VB_ASSERT((size_t)header <= size);
	VB_ASSERT(vb_rs_ud_encode(&from, bytes) == (size_t)header);
	VB_ASSERT(memcmp(bytes, data, (size_t)header) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	private_data(data, size);
	udp_header(data, size, AF_INET);
	udp_header(data, size, AF_INET6);
	ud_header(data, size);
	return 0;
}
