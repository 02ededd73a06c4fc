/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * plain_peer.h - a peer made of two ordinary UDP sockets: it writes MADs byte by byte, with the
 * ICRC that they need, and reads what comes back. It lives in a process of test sides.
 */
#ifndef VB_TEST_PLAIN_PEER_H
#define VB_TEST_PLAIN_PEER_H

#include <arpa/inet.h>

#include "sides.h"
#include "wire/icrc.h"

#define MAD_AT 20u /* behind BTH and DETH */
#define PACKET_BYTES (MAD_AT + 256u + 4u)

struct plain_peer {
	int tx, rx;
	struct in_addr address, to;
	uint16_t port;
	uint32_t psn;
};

static inline void put16(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static inline void put32(uint8_t *at, uint32_t value)
{
	put16(at, value >> 16);
	put16(at + 2, value);
}

static inline uint32_t get16(const uint8_t *at)
{
	return (uint32_t)at[0] << 8 | at[1];
}

static inline uint32_t get32(const uint8_t *at)
{
	return get16(at) << 16 | get16(at + 2);
}

static inline int plain_socket(struct in_addr address, uint16_t port)
{
	struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), df = IP_PMTUDISC_DO;

	name.sin_addr = address;
	REQUIRE(fd >= 0);
	REQUIRE(setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &df, sizeof(df)) == 0);
	REQUIRE(bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0);
	return fd;
}

static inline struct plain_peer plain_open(const char *address, const char *to)
{
	struct plain_peer peer = {.psn = 7};
	struct sockaddr_in name;
	socklen_t size = sizeof(name);

	REQUIRE(inet_pton(AF_INET, address, &peer.address) == 1);
	REQUIRE(inet_pton(AF_INET, to, &peer.to) == 1);
	peer.tx = plain_socket(peer.address, 0);
	peer.rx = plain_socket(peer.address, 4791);
	REQUIRE(getsockname(peer.tx, (struct sockaddr *)&name, &size) == 0);
	peer.port = ntohs(name.sin_port);
	return peer;
}

static inline void plain_close(struct plain_peer *peer)
{
	close(peer->tx);
	close(peer->rx);
}

/* A packet around a MAD, ready but for the ICRC; returns its bytes without that. */
static inline size_t plain_wrap(struct plain_peer *peer, const uint8_t *mad, uint8_t *packet)
{
	memset(packet, 0, MAD_AT);
	packet[0] = 0x64; /* UD SEND_ONLY */
	put16(packet + 2, 0xffff);
	put32(packet + 4, 1);
	put32(packet + 8, 1u << 31 | peer->psn++);
	put32(packet + 12, 0x80010000);
	put32(packet + 16, 1);
	memcpy(packet + MAD_AT, mad, 256);
	return MAD_AT + 256;
}

static inline void plain_send_packet(struct plain_peer *peer, uint8_t *packet, size_t bytes)
{
	const struct vb_icrc_ip ip = {
		.src = vb_address_from_ipv4(peer->address),
		.dst = vb_address_from_ipv4(peer->to),
		.src_port = peer->port,
		.dst_port = 4791,
		.dont_fragment = true,
	};
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_port = htons(4791), .sin_addr = peer->to};

	vb_icrc_store(packet + bytes, vb_icrc_begin_bth(&ip, bytes + 4, packet, bytes));
	REQUIRE(sendto(peer->tx, packet, bytes + 4, 0, (struct sockaddr *)&to, sizeof(to)) ==
		(ssize_t)bytes + 4);
}

static inline void plain_send(struct plain_peer *peer, const uint8_t *mad)
{
	uint8_t packet[PACKET_BYTES];

	plain_send_packet(peer, packet, plain_wrap(peer, mad, packet));
}

/* The next MAD that comes, its packet's headers checked. */
static inline void plain_receive(struct plain_peer *peer, uint8_t mad[256])
{
	struct pollfd wait = {.fd = peer->rx, .events = POLLIN};
	struct sockaddr_in from;
	socklen_t size = sizeof(from);
	uint8_t packet[2048];
	struct vb_icrc_ip ip = {
		.src = vb_address_from_ipv4(peer->to),
		.dst = vb_address_from_ipv4(peer->address),
		.dst_port = 4791,
		.dont_fragment = true,
	};

	REQUIRE(poll(&wait, 1, PATIENCE_MS) == 1);
	REQUIRE(recvfrom(peer->rx, packet, sizeof(packet), 0, (struct sockaddr *)&from, &size) ==
		PACKET_BYTES);
	REQUIRE(from.sin_addr.s_addr == peer->to.s_addr);
	ip.src_port = ntohs(from.sin_port);
	REQUIRE(vb_icrc_load(packet + PACKET_BYTES - 4) ==
		vb_icrc_begin_bth(&ip, PACKET_BYTES, packet, PACKET_BYTES - 4));
	REQUIRE(packet[0] == 0x64 && packet[1] == 0);
	REQUIRE(get16(packet + 2) == 0xffff);
	REQUIRE(get32(packet + 4) == 1);
	REQUIRE(get32(packet + 12) == 0x80010000);
	REQUIRE(get32(packet + 16) == 1);
	memcpy(mad, packet + MAD_AT, 256);
}

static inline bool plain_is_silent(struct plain_peer *peer)
{
	struct pollfd wait = {.fd = peer->rx, .events = POLLIN};

	return poll(&wait, 1, 0) == 0;
}

/* --- messages ---------------------------------------------------------------------------- */

static inline void plain_make(uint8_t mad[256], uint16_t attribute, uint64_t tid)
{
	memset(mad, 0, 256);
	mad[0] = 1;
	mad[1] = 7; /* communication management */
	mad[2] = 2;
	mad[3] = 3; /* Send */
	put32(mad + 8, (uint32_t)(tid >> 32));
	put32(mad + 12, (uint32_t)tid);
	put16(mad + 16, attribute);
}

static inline void put_gid(uint8_t *at, struct in_addr address)
{
	memset(at, 0, 10);
	at[10] = at[11] = 0xff;
	memcpy(at + 12, &address, 4);
}

/* A REQ to a port of RDMA_PS_TCP, as Soft-RoCE's manager writes one. */
static inline void plain_req(const struct plain_peer *peer, uint8_t mad[256], uint32_t id,
			     uint16_t port)
{
	uint8_t *b = mad + 24;

	plain_make(mad, 0x10, (uint64_t)id << 32 | 1);
	put32(b, id);
	put32(b + 12, 0x01060000u | port);
	put32(b + 16, 0x02770000);
	put32(b + 20, 1);
	put32(b + 32, (id & 0xffff) << 8 | 1); /* QPN, responder resources */
	put32(b + 36, 1);		       /* initiator depth */
	put32(b + 40, 0xa0);		       /* remote CM timeout 20, RC */
	put32(b + 44, 0x123456u << 8 | 0xa7);  /* PSN, local CM timeout 20, retry count 7 */
	put16(b + 48, 0xffff);
	b[50] = 0x37; /* path MTU 1024, RNR retry count 7 */
	b[51] = 0xf0; /* CM retries */
	put16(b + 52, 0xffff);
	put16(b + 54, 0xffff);
	put_gid(b + 56, peer->address);
	put_gid(b + 72, peer->to);
	put32(b + 88, 0x40df1u << 12);
	b[93] = 0x40;
	b[95] = 0x98;  /* local ACK timeout */
	b[141] = 0x40; /* the IP CM service: IPv4, our port, the addresses */
	put16(b + 142, 40000);
	memcpy(b + 156, &peer->address, 4);
	memcpy(b + 172, &peer->to, 4);
}

/* RTU, DREQ or DREP: their identifiers. */
static inline void plain_short(uint8_t mad[256], uint16_t attribute, uint64_t tid, uint32_t id,
			       uint32_t theirs)
{
	plain_make(mad, attribute, tid);
	put32(mad + 24, id);
	put32(mad + 28, theirs);
}

#endif
