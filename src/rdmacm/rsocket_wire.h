/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket_wire.h - what rsockets say to each other, as bytes.
 *
 * Streams. The private data of the CM's REQ and REP, 40 bytes, big-endian:
 *
 *      0        1       2         4           7             8
 *      | version | flags | credits | reserved | iomap slots | slots: region | first buffer: region
 * |
 *
 *      region:   | address 8 | key 4 | length 4 |     (of the slots: their number; else bytes)
 *
 * Each side keeps two slots which its peer fills, by RDMA WRITE, with the regions that may be
 * written next; behind them lie the peer's iomap entries. Slots and entries are in the byte order
 * of the one who reads them, which `flags` tells. Every message is an RDMA WRITE with immediate
 * data (most of the words need no bytes beside it):
 *
 *      31    29 28                                   0
 *      | kind  | value                               |
 *      000 data:   bytes that were written behind the previous ones
 *      100 credit: the 16-bit number of the data message that may not be sent any more;
 *                  the next slot may have been filled
 *      110 iomap:  the entry that was filled
 *      111 control: disconnect, shut down (no more data will come)
 *
 * Datagrams go by UD between rsockets that know each other's queue pair, behind an 8 or 24 byte
 * header with the sender's address; the others are sent by UDP behind a 16 or 28 byte header
 * that tells the sender's queue pair. Fields that mirror a sockaddr's are as there: big-endian.
 */
#ifndef VB_RDMACM_RSOCKET_WIRE_H
#define VB_RDMACM_RSOCKET_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>

enum {
	VB_RS_VERSION = 1,
	VB_RS_CONN_BYTES = 40,
	VB_RS_SLOT_BYTES = 16,
	VB_RS_IOMAP_BYTES = 24,
	VB_RS_UDP_BYTES_IPV4 = 16,
	VB_RS_UDP_BYTES_IPV6 = 28,
	VB_RS_UD_BYTES_IPV4 = 8,
	VB_RS_UD_BYTES_IPV6 = 24,
};

struct vb_rs_region {
	uint64_t address;
	uint32_t key;
	uint32_t length;
};

/* What a peer says of itself when a stream is connected. */
struct vb_rs_conn {
	bool big_endian;
	bool has_iomap;
	uint16_t credits;
	uint32_t iomap_slots;
	struct vb_rs_region slots; /* length: how many */
	struct vb_rs_region buffer;
};

enum vb_rs_kind {
	VB_RS_DATA = 0,
	VB_RS_CREDIT = 4,
	VB_RS_IOMAP = 6,
	VB_RS_CONTROL = 7,
};

enum vb_rs_control {
	VB_RS_DISCONNECT = 0,
	VB_RS_KEEPALIVE = 1, /* reserved: keepalives are empty writes, which nobody sees */
	VB_RS_SHUTDOWN = 2,
};

#define VB_RS_VALUE_MAX 0x1fffffffu

static inline uint32_t vb_rs_message(enum vb_rs_kind kind, uint32_t value)
{
	return (uint32_t)kind << 29 | (value & VB_RS_VALUE_MAX);
}

static inline unsigned int vb_rs_message_kind(uint32_t message)
{
	return message >> 29;
}

static inline uint32_t vb_rs_message_value(uint32_t message)
{
	return message & VB_RS_VALUE_MAX;
}

/* vb_rs_iomap_slots - the nearest number of iomap slots, rounded down, that 8 bits can say: up to
 * 128 exactly, more in multiples of 256. */
uint32_t vb_rs_iomap_slots(uint32_t wanted);

void vb_rs_conn_encode(const struct vb_rs_conn *conn, uint8_t bytes[VB_RS_CONN_BYTES]);

/* vb_rs_conn_decode - -EBADMSG when it is short or tells no slots, -EPROTONOSUPPORT for another
 * version. The CM pads private data: more bytes than needed are fine. */
int vb_rs_conn_decode(struct vb_rs_conn *conn, const void *data, size_t size);

/* vb_rs_slot_encode, vb_rs_iomap_encode - in the byte order of the reader. */
void vb_rs_slot_encode(const struct vb_rs_region *region, bool big_endian,
		       uint8_t bytes[VB_RS_SLOT_BYTES]);
void vb_rs_iomap_encode(const struct vb_rs_region *region, uint64_t offset, bool big_endian,
			uint8_t bytes[VB_RS_IOMAP_BYTES]);

/* vb_rs_slot_decode, vb_rs_iomap_decode - from memory of ours, which the peer filled in our byte
 * order, and may change at any time: each word is read once. Aligned to 8 bytes. */
struct vb_rs_region vb_rs_slot_decode(const volatile uint8_t *bytes);
struct vb_rs_region vb_rs_iomap_decode(const volatile uint8_t *bytes, uint64_t *offset);

union vb_rs_address {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_storage storage;
};

/* A datagram by UDP: `queue_pair` is the sender's; control carries no data. */
struct vb_rs_udp {
	bool control;
	uint32_t queue_pair;
	union vb_rs_address local; /* the sender's address, as its queue pair knows it */
};

/* vb_rs_udp_encode - returns the header's bytes, 16 or 28. */
size_t vb_rs_udp_encode(const struct vb_rs_udp *udp, uint8_t bytes[VB_RS_UDP_BYTES_IPV6]);
/* vb_rs_udp_decode - the header's bytes, or -EBADMSG. `family` is the socket's. */
int vb_rs_udp_decode(struct vb_rs_udp *udp, int family, const void *data, size_t size);

/* vb_rs_ud_encode - returns the header's bytes, 8 or 24. */
size_t vb_rs_ud_encode(const union vb_rs_address *from, uint8_t bytes[VB_RS_UD_BYTES_IPV6]);
/* vb_rs_ud_decode - the header's bytes, or -EBADMSG. */
int vb_rs_ud_decode(union vb_rs_address *from, const void *data, size_t size);

#endif
