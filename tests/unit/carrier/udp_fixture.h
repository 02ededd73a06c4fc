/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * udp_fixture.h - a host of one process for the tests of the UDP carrier: a registry slot, a
 * carrier, and what it delivered.
 *
 * Every test takes addresses of its own in 127.7.0.0/16: the port is shared per address.
 */
#ifndef VB_TESTS_UDP_FIXTURE_H
#define VB_TESTS_UDP_FIXTURE_H

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "carrier/udp.h"
#include "carrier/udp_private.h"
#include "wire/icrc.h"

#define PATIENCE_NS                                                                                \
	20000000000ull /* longer than anything takes; nothing waits that long when all is well */

struct host {
	struct vb_registry *registry;
	struct vb_carrier *carrier;
	struct in6_addr address;
	/* the latest packet, and how many */
	uint64_t packets;
	struct vb_headers headers;
	struct vb_rx rx;
	uint8_t payload[65536];
	size_t payload_bytes;
	void (*on_packet)(struct host *h);
	void *test; /* the test's own */
};

static inline uint64_t test_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline struct in6_addr test_address(const char *text)
{
	struct in6_addr address = {0};
	char mapped[64];

	if (strchr(text, ':'))
		snprintf(mapped, sizeof(mapped), "%s", text);
	else
		snprintf(mapped, sizeof(mapped), "::ffff:%s", text);
	assert_int_equal(inet_pton(AF_INET6, mapped, &address), 1);
	return address;
}

static inline void host_deliver(void *env, const struct vb_rx *rx)
{
	struct host *h = env;
	int used = vb_headers_decode(&h->headers, rx->data, rx->size);

	h->packets++;
	h->rx = *rx;
	h->payload_bytes = 0;
	if (used > 0) {
		h->payload_bytes = rx->size - (size_t)used - h->headers.pad;
		memcpy(h->payload, rx->data + used, h->payload_bytes);
	}
	if (h->on_packet)
		h->on_packet(h);
}

/* NULL: sockets alone; else hosts have a ring from the start. */
static vb_udp_is_next_fn *host_is_next;

static inline struct vb_path host_path(struct host *from, const struct in6_addr *to);

/* host_create - with all addresses of config; it has not used the network yet. */
static inline struct host *host_create(struct vb_udp_config config)
{
	struct host *h = calloc(1, sizeof(*h));
	char text[INET6_ADDRSTRLEN];
	int err;

	h->address = config.addresses[0];
	err = vb_registry_join(&h->registry, &h->address);
	if (err < 0)
		fail_msg("registry: %s", strerror(-err));
	config.registry = h->registry;
	config.is_next = host_is_next;
	err = vb_udp_create(&h->carrier, &config, host_deliver, h);
	if (err < 0)
		fail_msg("carrier on %s: %s", inet_ntop(AF_INET6, &h->address, text, sizeof(text)),
			 strerror(-err));
	return h;
}

static inline struct host *host_open(const char *address)
{
	struct host *h = host_create(
		(struct vb_udp_config){.addresses = {test_address(address)}, .address_count = 1});

	if (host_is_next) /* the first route makes it */
		(void)host_path(h, &h->address);
	return h;
}

static inline void host_close(struct host *h)
{
	h->carrier->ops->destroy(h->carrier);
	vb_registry_leave(h->registry);
	free(h);
}

static inline struct vb_udp_counters host_counters(const struct host *h)
{
	struct vb_udp_counters c;

	vb_udp_read_counters(h->carrier, &c);
	return c;
}

/* host_wait - polls until it has delivered that many packets in all. */
static inline void host_wait(struct host *h, uint64_t packets)
{
	uint64_t until = test_now_ns() + PATIENCE_NS;
	bool room = false;

	while (h->packets < packets) {
		if (h->carrier->ops->poll(h->carrier, 64, &room) == 0 && test_now_ns() > until)
			fail_msg("%llu of %llu packets came", (unsigned long long)h->packets,
				 (unsigned long long)packets);
	}
}

/* host_settle - polls until the socket has nothing more: what was sent over loopback is there
 * already. */
static inline void host_settle(struct host *h)
{
	bool room = false;

	const unsigned int factor = vb_udp_of(h->carrier)->ring ? VB_UDP_RING_FACTOR : 1;

	for (unsigned int i = 0; i < 4 * VB_UDP_COLD_EVERY * factor; i++)
		h->carrier->ops->poll(h->carrier, 64, &room);
}

static inline bool is_readable(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, timeout_ms) == 1;
}

static inline struct vb_path host_path(struct host *from, const struct in6_addr *to)
{
	struct vb_path path = {0};
	int err = vb_udp_route(from->carrier, &path, &from->address, to, 0, 1, 0, 64);

	if (err < 0)
		fail_msg("route: %s", strerror(-err));
	return path;
}

static inline int host_send_parts(struct host *from, const struct vb_path *path, uint8_t opcode,
				  uint32_t qpn, uint32_t psn, const struct iovec *parts, int n)
{
	struct vb_headers headers = {
		.opcode = opcode, .pkey = VB_DEFAULT_PKEY, .qpn = qpn, .psn = psn};
	struct vb_tx tx = {.headers = &headers, .payload = parts, .payload_parts = n};

	for (int i = 0; i < n; i++)
		tx.payload_bytes += (uint32_t)parts[i].iov_len;
	headers.pad = (uint8_t)(-tx.payload_bytes & 3);
	return from->carrier->ops->tx(from->carrier, path, &tx);
}

static inline int host_send(struct host *from, const struct vb_path *path, uint32_t qpn,
			    uint32_t psn, const void *payload, size_t bytes)
{
	struct iovec part = {(void *)(uintptr_t)payload, bytes};

	return host_send_parts(from, path, vb_opcode(VB_TRANSPORT_UC, VB_OP_SEND_ONLY), qpn, psn,
			       &part, 1);
}

static inline void host_flush(struct host *from)
{
	from->carrier->ops->flush(from->carrier);
}

static inline uint32_t host_qpn(const struct host *h, uint32_t number)
{
	return (uint32_t)h->registry->slot << VB_SLOT_SHIFT | number;
}

#endif
