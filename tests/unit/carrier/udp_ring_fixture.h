/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * udp_ring_fixture.h - hosts that have a ring beside their sockets, in a network namespace of the
 * test's own; what is sent to them, and what others hand on to them.
 */
#ifndef VB_TESTS_UDP_RING_FIXTURE_H
#define VB_TESTS_UDP_RING_FIXTURE_H

#include "own_network.h"
#include "udp_fixture.h"

#include <linux/ip.h>
#include <netinet/udp.h>
#include <sys/un.h>

#define LONG_BYTES 3000u /* of payload; the ring takes VB_UDP_RING_SHORT with the headers */

static uint8_t pattern[65536];

/* The packets of a host count up from 0. */
static inline bool counts_up(void *env, const uint8_t *packet)
{
	const struct host *h = env;
	struct vb_headers headers;

	vb_bth_decode(&headers, packet);
	return headers.psn == h->packets;
}

static inline void check_psn(struct host *h)
{
	assert_int_equal(h->headers.psn, h->packets - 1);
	assert_memory_equal(h->payload, pattern + h->headers.psn, h->payload_bytes);
}

static inline struct host *open_with_ring(const char *address)
{
	struct host *h = host_open(address);

	assert_non_null(vb_udp_of(h->carrier)->ring);
	assert_true(h->carrier->looks_cheaply);
	h->on_packet = check_psn;
	host_settle(h); /* probes come by sockets */
	h->test = (void *)(uintptr_t)host_counters(h).rx_calls;
	return h;
}

/* rx_calls - since the host was opened. */
static inline uint64_t rx_calls(const struct host *h)
{
	return host_counters(h).rx_calls - (uint64_t)(uintptr_t)h->test;
}

static inline int make_network(void **state)
{
	for (size_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = (uint8_t)(i * 2654435761u >> 13);
	host_is_next = counts_up;
	return enter_namespace() && run("link set lo multicast on up") &&
			       run("addr add fd00::1/128 dev lo nodad") &&
			       run("addr add fd00::2/128 dev lo nodad")
		       ? 0
		       : -1;
}

static inline void send_now(struct host *a, const struct vb_path *path, const struct host *b,
			    uint32_t psn, size_t bytes)
{
	assert_int_equal(host_send(a, path, host_qpn(b, 1), psn, pattern + psn, bytes), 0);
	host_flush(a);
}

/* The carrier's own packet as an IP packet of ours, with its header's length in words. */
static inline size_t ip_packet(uint8_t out[256], const struct host *to, const char *from,
			       uint8_t words)
{
	struct vb_icrc_ip ip = {.src = test_address(from),
				.dst = to->address,
				.src_port = 50000,
				.dst_port = VB_ROCE_PORT,
				.dont_fragment = true};
	const struct vb_headers h = {.opcode = vb_opcode(VB_TRANSPORT_UC, VB_OP_SEND_ONLY),
				     .qpn = host_qpn(to, 1)};
	uint8_t *udp = out + words * 4, *bth = udp + 8;
	const int n = vb_headers_encode(&h, bth, 64);
	const uint16_t bytes = (uint16_t)(words * 4 + 8 + n + VB_ICRC_BYTES);
	struct iphdr header = {.version = 4,
			       .ihl = words,
			       .tot_len = htons(bytes),
			       .frag_off = htons(0x4000),
			       .ttl = 64,
			       .protocol = IPPROTO_UDP};

	memset(out, 1, words * 4); /* options that do nothing */
	memcpy(&header.saddr, &ip.src.s6_addr[12], 4);
	memcpy(&header.daddr, &ip.dst.s6_addr[12], 4);
	memcpy(out, &header, sizeof(header));
	memcpy(udp,
	       (uint16_t[]){htons(ip.src_port), htons(VB_ROCE_PORT),
			    htons((uint16_t)(bytes - words * 4)), 0},
	       8);
	vb_icrc_store(bth + n, vb_icrc_begin_bth(&ip, (size_t)n + VB_ICRC_BYTES, bth, (size_t)n));
	return bytes;
}

/* hand - what another process got by mistake, and says whether it was short. */
static inline void hand(struct host *b, const char *from, uint8_t is_short)
{
	struct sockaddr_un name;
	socklen_t name_bytes = sizeof(name);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	const uint32_t magic = 0x76627374u;
	const uint16_t port = 50000;
	uint8_t packet[256], handed[256] = {0};
	const size_t bytes = ip_packet(packet, b, from, 5) - 28;

	assert_int_equal(
		getsockname(vb_udp_of(b->carrier)->stray_fd, (struct sockaddr *)&name, &name_bytes),
		0);
	memcpy(handed, &magic, 4);
	memcpy(handed + 4, &port, 2);
	memcpy(handed + 8, (struct in6_addr[]){test_address(from)}, 16);
	memcpy(handed + 24, &b->address, 16);
	handed[41] = 64;
	handed[42] = is_short;
	memcpy(handed + 48, packet + 28, bytes);
	assert_int_equal(sendto(fd, handed, 48 + bytes, 0, (struct sockaddr *)&name, name_bytes),
			 48 + bytes);
	close(fd);
}

#endif
