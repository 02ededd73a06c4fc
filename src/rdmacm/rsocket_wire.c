/* SPDX-License-Identifier: BSD-2-Clause */
/* rsocket_wire.c - see rsocket_wire.h. */
#include "rdmacm/rsocket_wire.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

enum {
	FLAG_BIG_ENDIAN = 1,
	FLAG_IOMAP = 2,
	UDP_TAG = 0x55555555,
	UDP_DATA = 0,
	UDP_CONTROL = 7,
	QPN_MASK = 0xffffff,
	EXACT_SLOTS = 128, /* up to here an iomap's size is said exactly, else in units of 256 */
};

static void put16(uint8_t *p, uint16_t value)
{
	value = htobe16(value);
	memcpy(p, &value, 2);
}

static void put32(uint8_t *p, uint32_t value, bool big_endian)
{
	value = big_endian ? htobe32(value) : htole32(value);
	memcpy(p, &value, 4);
}

static void put64(uint8_t *p, uint64_t value, bool big_endian)
{
	value = big_endian ? htobe64(value) : htole64(value);
	memcpy(p, &value, 8);
}

static uint16_t get16(const uint8_t *p)
{
	uint16_t value;

	memcpy(&value, p, 2);
	return be16toh(value);
}

static uint32_t get32(const uint8_t *p)
{
	uint32_t value;

	memcpy(&value, p, 4);
	return be32toh(value);
}

static uint64_t get64(const uint8_t *p)
{
	return (uint64_t)get32(p) << 32 | get32(p + 4);
}

static uint8_t scale_slots(uint32_t slots)
{
	if (slots <= EXACT_SLOTS)
		return (uint8_t)slots;
	if (slots >= 128u << 8)
		return 0xff;
	return (uint8_t)(0x80 | slots >> 8);
}

static uint32_t unscale_slots(uint8_t scaled)
{
	return scaled <= EXACT_SLOTS ? scaled : (scaled & 0x7fu) << 8;
}

uint32_t vb_rs_iomap_slots(uint32_t wanted)
{
	return unscale_slots(scale_slots(wanted));
}

void vb_rs_slot_encode(const struct vb_rs_region *region, bool big_endian,
		       uint8_t bytes[VB_RS_SLOT_BYTES])
{
	put64(bytes, region->address, big_endian);
	put32(bytes + 8, region->key, big_endian);
	put32(bytes + 12, region->length, big_endian);
}

void vb_rs_iomap_encode(const struct vb_rs_region *region, uint64_t offset, bool big_endian,
			uint8_t bytes[VB_RS_IOMAP_BYTES])
{
	put64(bytes, offset, big_endian);
	vb_rs_slot_encode(region, big_endian, bytes + 8);
}

static struct vb_rs_region get_region(const uint8_t *bytes)
{
	return (struct vb_rs_region){get64(bytes), get32(bytes + 8), get32(bytes + 12)};
}

void vb_rs_conn_encode(const struct vb_rs_conn *conn, uint8_t bytes[VB_RS_CONN_BYTES])
{
	memset(bytes, 0, VB_RS_CONN_BYTES);
	bytes[0] = VB_RS_VERSION;
	bytes[1] = (uint8_t)((conn->has_iomap ? FLAG_IOMAP : 0) |
			     (conn->big_endian ? FLAG_BIG_ENDIAN : 0));
	put16(bytes + 2, conn->credits);
	bytes[7] = scale_slots(conn->iomap_slots);
	vb_rs_slot_encode(&conn->slots, true, bytes + 8);
	vb_rs_slot_encode(&conn->buffer, true, bytes + 24);
}

int vb_rs_conn_decode(struct vb_rs_conn *conn, const void *data, size_t size)
{
	const uint8_t *bytes = data;

	memset(conn, 0, sizeof(*conn));
	if (!bytes || size < VB_RS_CONN_BYTES)
		return -EBADMSG;
	if (bytes[0] != VB_RS_VERSION)
		return -EPROTONOSUPPORT;
	conn->big_endian = bytes[1] & FLAG_BIG_ENDIAN;
	conn->has_iomap = bytes[1] & FLAG_IOMAP;
	conn->credits = get16(bytes + 2);
	conn->iomap_slots = conn->has_iomap ? unscale_slots(bytes[7]) : 0;
	conn->slots = get_region(bytes + 8);
	conn->buffer = get_region(bytes + 24);
	return conn->slots.length ? 0 : -EBADMSG;
}

/* From the end to the beginning, since an RDMA WRITE lands the other way: whoever sees a length
 * sees the address before it. In words, as it lands: of a length that is read byte by byte, half
 * may be of before. */
static void read_once(uint8_t *copy, const volatile uint8_t *bytes, size_t size)
{
	while (size) {
		uint64_t word;

		size -= sizeof(word);
		word = __atomic_load_n(
			(const volatile uint64_t *)(const volatile void *)(bytes + size),
			__ATOMIC_ACQUIRE);
		memcpy(copy + size, &word, sizeof(word));
	}
}

static struct vb_rs_region native_region(const uint8_t *bytes)
{
	struct vb_rs_region region;

	memcpy(&region.address, bytes, 8);
	memcpy(&region.key, bytes + 8, 4);
	memcpy(&region.length, bytes + 12, 4);
	return region;
}

struct vb_rs_region vb_rs_slot_decode(const volatile uint8_t *bytes)
{
	uint8_t copy[VB_RS_SLOT_BYTES];

	read_once(copy, bytes, sizeof(copy));
	return native_region(copy);
}

struct vb_rs_region vb_rs_iomap_decode(const volatile uint8_t *bytes, uint64_t *offset)
{
	uint8_t copy[VB_RS_IOMAP_BYTES];

	read_once(copy, bytes, sizeof(copy));
	memcpy(offset, copy, 8);
	return native_region(copy + 8);
}

size_t vb_rs_udp_encode(const struct vb_rs_udp *udp, uint8_t bytes[VB_RS_UDP_BYTES_IPV6])
{
	bool ipv4 = udp->local.any.sa_family == AF_INET;
	size_t size = ipv4 ? VB_RS_UDP_BYTES_IPV4 : VB_RS_UDP_BYTES_IPV6;

	put32(bytes, UDP_TAG, true);
	bytes[4] = ipv4 ? 4 : 6;
	bytes[5] = udp->control ? UDP_CONTROL : UDP_DATA;
	bytes[6] = (uint8_t)size;
	bytes[7] = 0;
	put32(bytes + 8, udp->queue_pair & QPN_MASK, true);
	if (ipv4)
		memcpy(bytes + 12, &udp->local.in.sin_addr, 4);
	else
		memcpy(bytes + 12, &udp->local.in6.sin6_addr, 16);
	return size;
}

int vb_rs_udp_decode(struct vb_rs_udp *udp, int family, const void *data, size_t size)
{
	size_t length = family == AF_INET ? VB_RS_UDP_BYTES_IPV4 : VB_RS_UDP_BYTES_IPV6;
	const uint8_t *bytes = data;

	memset(udp, 0, sizeof(*udp));
	if (size < length || get32(bytes) != UDP_TAG || bytes[4] != (family == AF_INET ? 4 : 6) ||
	    (bytes[5] != UDP_DATA && bytes[5] != UDP_CONTROL) || bytes[6] != length)
		return -EBADMSG;
	udp->control = bytes[5] == UDP_CONTROL;
	udp->queue_pair = get32(bytes + 8) & QPN_MASK;
	udp->local.any.sa_family = (sa_family_t)family;
	if (family == AF_INET)
		memcpy(&udp->local.in.sin_addr, bytes + 12, 4);
	else
		memcpy(&udp->local.in6.sin6_addr, bytes + 12, 16);
	return (int)length;
}

size_t vb_rs_ud_encode(const union vb_rs_address *from, uint8_t bytes[VB_RS_UD_BYTES_IPV6])
{
	if (from->any.sa_family == AF_INET) {
		bytes[0] = 4;
		bytes[1] = VB_RS_UD_BYTES_IPV4;
		memcpy(bytes + 2, &from->in.sin_port, 2);
		memcpy(bytes + 4, &from->in.sin_addr, 4);
	} else {
		bytes[0] = 6;
		bytes[1] = VB_RS_UD_BYTES_IPV6;
		memcpy(bytes + 2, &from->in6.sin6_port, 2);
		memcpy(bytes + 4, &from->in6.sin6_flowinfo, 4);
		memcpy(bytes + 8, &from->in6.sin6_addr, 16);
	}
	return bytes[1];
}

int vb_rs_ud_decode(union vb_rs_address *from, const void *data, size_t size)
{
	const uint8_t *bytes = data;

	memset(from, 0, sizeof(*from));
	if (size < VB_RS_UD_BYTES_IPV4 || size < bytes[1])
		return -EBADMSG;
	if (bytes[0] == 4 && bytes[1] == VB_RS_UD_BYTES_IPV4) {
		from->in.sin_family = AF_INET;
		memcpy(&from->in.sin_port, bytes + 2, 2);
		memcpy(&from->in.sin_addr, bytes + 4, 4);
	} else if (bytes[0] == 6 && bytes[1] == VB_RS_UD_BYTES_IPV6) {
		from->in6.sin6_family = AF_INET6;
		memcpy(&from->in6.sin6_port, bytes + 2, 2);
		memcpy(&from->in6.sin6_flowinfo, bytes + 4, 4);
		memcpy(&from->in6.sin6_addr, bytes + 8, 16);
	} else {
		return -EBADMSG;
	}
	return bytes[1];
}
