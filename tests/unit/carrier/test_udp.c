/* SPDX-License-Identifier: BSD-2-Clause */
/* test_udp.c - the UDP carrier between two hosts of this process: every size, trains, bad input; by
 * sockets alone, and with a ring beside them. */
#define _GNU_SOURCE
#include "own_network.h"
#include "udp_fixture.h"

#ifndef UDP_NO_CHECK6_TX
#define UDP_NO_CHECK6_TX 101
#endif

#define SEND_ONLY vb_opcode(VB_TRANSPORT_UC, VB_OP_SEND_ONLY)

static uint8_t pattern[131072];

static int make_pattern(void **state)
{
	uint32_t x = 12345;

	for (size_t i = 0; i < sizeof(pattern); i++) {
		x = x * 1664525u + 1013904223u;
		pattern[i] = (uint8_t)(x >> 24);
	}
	return 0;
}

static void every_size_arrives_unchanged(void **state)
{
	struct host *a = host_open("127.7.1.1"), *b = host_open("127.7.1.2");
	struct vb_path path = host_path(a, &b->address);
	uint32_t qpn = host_qpn(b, 77);
	uint64_t sent = 0;

	assert_int_equal(path.segment_max, 4096);
	assert_false(path.own_segment);
	assert_true(path.window >= 65536);
	for (size_t bytes = 0; bytes <= 4096; bytes += bytes < 300 ? 1 : 173) {
		assert_int_equal(host_send(a, &path, qpn, (uint32_t)bytes, pattern + bytes, bytes),
				 0);
		host_flush(a);
		host_wait(b, ++sent);
		assert_int_equal(b->headers.psn, bytes);
		assert_int_equal(b->headers.qpn, qpn);
		assert_int_equal(b->headers.opcode, SEND_ONLY);
		assert_int_equal(b->payload_bytes, bytes);
		assert_int_equal(b->rx.size % 4, 0);
		assert_memory_equal(b->payload, pattern + bytes, bytes);
		assert_memory_equal(&b->rx.src, &a->address, 16);
		assert_memory_equal(&b->rx.dst, &b->address, 16);
	}
	assert_int_equal(host_counters(b).rx_packets, sent);
	assert_int_equal(host_counters(b).rx_bad_icrc, 0);
	assert_int_equal(host_counters(b).rx_solved_id, 0);
	assert_int_equal(host_counters(a).tx_packets, sent);
	host_close(a);
	host_close(b);
}

static void check_in_order(struct host *h)
{
	uint32_t bytes = *(uint32_t *)h->test;

	if (h->payload_bytes != bytes)
		bytes = 4; /* the last of a train */
	assert_int_equal(h->headers.psn, h->packets - 1);
	assert_int_equal(h->payload_bytes, bytes);
	assert_memory_equal(h->payload, pattern + h->headers.psn, bytes);
}

/* Equal packets travel in trains, a shorter last one with them, all with the ICRC expected. */
static void trains_arrive_in_order(void **state)
{
	static const uint32_t sizes[] = {0, 8, 64, 256, 257, 1000, 1024, 4096};
	struct host *a = host_open("127.7.1.3"), *b = host_open("127.7.1.4");
	struct vb_path path = host_path(a, &b->address);

	b->on_packet = check_in_order;
	for (size_t s = 0; s < VB_ARRAY_SIZE(sizes); s++) {
		uint32_t bytes = sizes[s], n = 0;
		uint64_t calls = host_counters(a).tx_calls;

		b->packets = 0;
		b->test = &bytes;
		for (; n < 100; n++)
			assert_int_equal(host_send(a, &path, host_qpn(b, 1), n, pattern + n, bytes),
					 0);
		if (bytes > 4)
			assert_int_equal(host_send(a, &path, host_qpn(b, 1), n, pattern + n, 4), 0);
		host_flush(a);
		assert_true(host_counters(a).tx_calls - calls <= 2);
		host_wait(b, bytes > 4 ? n + 1 : n);
	}
	assert_int_equal(host_counters(b).rx_bad_icrc, 0);
	assert_int_equal(host_counters(b).rx_solved_id, 0);
	assert_true(host_counters(b).rx_calls < host_counters(b).rx_packets / 8);
	host_close(a);
	host_close(b);
}

/* More packets than a batch holds, of several paths and QPs in turn: nothing is lost or reordered
 * in a QP. */
static uint32_t next_psn[3];
static void check_each_qp(struct host *h);

static bool is_next(void *env, const uint8_t *packet)
{
	const struct host *h = env;
	struct vb_headers headers;

	vb_bth_decode(&headers, packet);
	return h->on_packet != check_each_qp || headers.psn == next_psn[headers.qpn & 3];
}

static void check_each_qp(struct host *h)
{
	uint32_t qp = h->headers.qpn & 3;

	assert_true(qp < 3);
	assert_int_equal(h->headers.psn, next_psn[qp]);
	assert_memory_equal(h->payload, pattern + h->headers.psn, h->payload_bytes);
	next_psn[qp]++;
}

static void queue_pairs_take_turns(void **state)
{
	struct host *a = host_open("127.7.1.5"), *b = host_open("127.7.1.6");
	struct vb_path path[3];

	for (uint32_t q = 0; q < 3; q++) {
		next_psn[q] = 0;
		assert_int_equal(
			vb_udp_route(a->carrier, &path[q], &a->address, &b->address, 0, q, 0, 0),
			0);
	}
	b->on_packet = check_each_qp;
	for (uint32_t n = 0; n < 300; n++) {
		for (uint32_t q = 0; q < 3; q++)
			assert_int_equal(host_send(a, &path[q], host_qpn(b, q), n, pattern + n,
						   n % 7 ? 200 : 2000 + n),
					 0);
		if (n % 20 == 19) { /* before the receive buffer is full */
			host_flush(a);
			host_wait(b, 3 * (n + 1));
		}
	}
	for (uint32_t q = 0; q < 3; q++)
		assert_int_equal(next_psn[q], 300);
	host_close(a);
	host_close(b);
}

static void payload_is_gathered(void **state)
{
	struct host *a = host_open("127.7.1.7"), *b = host_open("127.7.1.8");
	struct vb_path path = host_path(a, &b->address);
	struct iovec parts[32];

	for (uint64_t round = 1; round <= 40; round++) {
		size_t bytes = 0;

		for (int i = 0; i < 32; i++) {
			size_t n = (size_t)i * round % 129; /* some are empty */

			parts[i] = (struct iovec){pattern + bytes, n};
			bytes += n;
		}
		assert_int_equal(host_send_parts(a, &path, SEND_ONLY, host_qpn(b, 5), 0, parts, 32),
				 0);
		host_flush(a);
		host_wait(b, round);
		assert_int_equal(b->payload_bytes, bytes);
		assert_memory_equal(b->payload, pattern, bytes);
	}
	host_close(a);
	host_close(b);
}

/* The payload is another's as soon as it is taken: short, long, in pieces, in a train. */
static void payload_that_passes(void **state)
{
	struct host *a = host_open("127.61.1.11"), *b = host_open("127.61.1.12");
	struct vb_path path = host_path(a, &b->address);
	static uint8_t bounce[4096];
	const uint32_t bytes[] = {100, 4096, 1000};

	for (uint32_t i = 0; i < 3; i++) {
		const struct iovec parts[2] = {{bounce, bytes[i] / 4},
					       {bounce + bytes[i] / 4, bytes[i] - bytes[i] / 4}};
		struct vb_headers headers = {
			.opcode = SEND_ONLY, .pkey = VB_DEFAULT_PKEY, .qpn = host_qpn(b, 77)};
		const struct vb_tx tx = {.headers = &headers,
					 .payload = parts,
					 .payload_parts = 2,
					 .payload_bytes = bytes[i]};

		for (uint32_t n = 0; n < 3; n++) {
			memcpy(bounce, pattern + n * 4096, sizeof(bounce));
			headers.psn = n;
			assert_int_equal(a->carrier->ops->tx(a->carrier, &path, &tx), 0);
			memset(bounce, 0, sizeof(bounce));
		}
		host_flush(a);
		host_wait(b, 3 * i + 3);
		assert_int_equal(b->headers.psn, 2);
		assert_int_equal(b->payload_bytes, bytes[i]);
		assert_memory_equal(b->payload, pattern + 2 * 4096, bytes[i]);
	}
	assert_int_equal(host_counters(b).rx_bad_icrc, 0);
	host_close(a);
	host_close(b);
}

static void many_pieces_and_packets(void **state)
{
	struct host *a = host_open("127.7.1.9"), *b = host_open("127.7.1.10");
	struct vb_path path = host_path(a, &b->address);
	struct iovec parts[30];

	for (int i = 0; i < 30; i++)
		parts[i] = (struct iovec){pattern + i * 20, 20};
	for (int i = 0; i < 60; i++)
		assert_int_equal(host_send_parts(a, &path, SEND_ONLY, host_qpn(b, 5), 0, parts, 30),
				 0);
	host_flush(a);
	host_wait(b, 60);
	assert_int_equal(b->payload_bytes, 600);
	assert_memory_equal(b->payload, pattern, 600);
	host_close(a);
	host_close(b);
}

static void wrong_requests_are_refused(void **state)
{
	struct host *a = host_open("127.7.1.11"), *b = host_open("127.7.1.12");
	struct vb_path path = host_path(a, &b->address), other = {0};
	struct in6_addr six = test_address("::1"), none = {0},
			mapped_none = test_address("0.0.0.0");
	struct iovec part = {pattern, 70000};

	assert_int_equal(host_send_parts(a, &path, 0xff, host_qpn(b, 1), 0, NULL, 0), -EINVAL);
	assert_int_equal(host_send_parts(a, &path, SEND_ONLY, host_qpn(b, 1), 0, &part, 1),
			 -EMSGSIZE);
	assert_int_equal(host_send(b, &path, host_qpn(b, 1), 0, pattern, 8), -EINVAL);
	assert_int_equal(vb_udp_route(a->carrier, &other, &b->address, &a->address, 0, 0, 0, 0),
			 -EINVAL);
	assert_int_equal(vb_udp_route(a->carrier, &other, &a->address, &six, 0, 0, 0, 0), -EINVAL);
	assert_int_equal(vb_udp_route(a->carrier, &other, &a->address, &none, 0, 0, 0, 0), -EINVAL);
	assert_int_equal(vb_udp_route(a->carrier, &other, &a->address, &mapped_none, 0, 0, 0, 0),
			 -EINVAL);
	host_close(a);
	host_close(b);
}

static void traffic_class_and_hops_are_told(void **state)
{
	struct host *a = host_open("127.7.1.13"), *b = host_open("127.7.1.14");
	struct vb_path path = host_path(a, &b->address);

	assert_int_equal(host_send(a, &path, host_qpn(b, 1), 0, pattern, 8), 0);
	host_flush(a);
	host_wait(b, 1);
	assert_int_equal(b->rx.traffic_class, 0);
	assert_int_equal(b->rx.hop_limit, 64);
	assert_int_equal(vb_udp_route(a->carrier, &path, &a->address, &b->address, 0, 0, 0x68, 7),
			 0);
	assert_int_equal(host_send(a, &path, host_qpn(b, 1), 0, pattern, 8), 0);
	host_flush(a);
	host_wait(b, 2);
	assert_int_equal(b->rx.traffic_class, 0x68);
	assert_int_equal(b->rx.hop_limit, 7);
	host_close(a);
	host_close(b);
}

static void a_host_reaches_itself_over_ipv6(void **state)
{
	struct host *a = host_open("::1");
	struct vb_path path = host_path(a, &a->address);

	assert_int_equal(path.segment_max, 4096);
	for (uint32_t n = 0; n < 40; n++)
		assert_int_equal(host_send(a, &path, host_qpn(a, 3), n, pattern, 4096), 0);
	host_flush(a);
	host_wait(a, 40);
	assert_int_equal(a->payload_bytes, 4096);
	assert_memory_equal(a->payload, pattern, 4096);
	assert_memory_equal(&a->rx.src, &a->address, 16);
	assert_int_equal(a->rx.hop_limit, 64);
	assert_int_equal(vb_udp_route(a->carrier, &path, &a->address, &a->address, 0, 0, 0x68, 7),
			 0);
	assert_int_equal(host_send(a, &path, host_qpn(a, 1), 0, pattern, 8), 0);
	host_flush(a);
	host_wait(a, 41);
	assert_int_equal(a->rx.traffic_class, 0x68);
	assert_int_equal(a->rx.hop_limit, 7);
	assert_int_equal(host_counters(a).rx_bad_icrc, 0);
	host_close(a);
}

/* --- what others may send ---------------------------------------------------------------- */

struct raw {
	int fd;
	struct vb_icrc_ip ip;
	union vb_sockaddr to;
	socklen_t to_bytes;
};

static struct raw raw_open(const char *from, const struct host *to)
{
	struct raw r = {.ip.src = test_address(from)};
	union vb_sockaddr name;
	socklen_t bytes = vb_sockaddr_fill(&name, &r.ip.src, 0, 0);
	int value = IP_PMTUDISC_DO;

	r.ip.dst = to->address;
	r.ip.dst_port = VB_ROCE_PORT;
	r.ip.dont_fragment = true;
	r.fd = socket(name.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(r.fd, &name.any, bytes), 0);
	assert_int_equal(getsockname(r.fd, &name.any, &bytes), 0);
	assert_true(vb_sockaddr_read(&name, &r.ip.src, &r.ip.src_port));
	if (vb_is_ipv4(&to->address))
		setsockopt(r.fd, IPPROTO_IP, IP_MTU_DISCOVER, &value, sizeof(value));
	r.to_bytes = vb_sockaddr_fill(&r.to, &to->address, 0, VB_ROCE_PORT);
	return r;
}

static void raw_send(const struct raw *r, const void *data, size_t bytes)
{
	assert_int_equal(sendto(r->fd, data, bytes, 0, &r->to.any, r->to_bytes), bytes);
}

/* raw_packet - a right packet with the ICRC for an IP identification of ip_id. */
static size_t raw_packet(struct raw *r, uint8_t out[256], uint32_t qpn, uint16_t ip_id)
{
	struct vb_headers h = {.opcode = SEND_ONLY, .pkey = VB_DEFAULT_PKEY, .qpn = qpn};
	int n = vb_headers_encode(&h, out, 256);

	assert_true(n > 0);
	memcpy(out + n, pattern, 100);
	n += 100;
	r->ip.ip_id = ip_id;
	vb_icrc_store(out + n, vb_icrc_begin_bth(&r->ip, (size_t)n + 4, out, (size_t)n));
	return (size_t)n + 4;
}

static void a_bad_icrc_is_dropped_and_counted(void **state)
{
	struct host *b = host_open("127.7.1.20");
	struct raw r = raw_open("127.7.1.21", b);
	uint8_t packet[256];
	size_t bytes = raw_packet(&r, packet, host_qpn(b, 1), 0);

	raw_send(&r, packet, bytes);
	host_wait(b, 1);
	/* One bit anywhere but in the byte that the ICRC does not cover. QPN bits would lead
	 * elsewhere. */
	for (size_t bit = 0; bit < bytes * 8; bit++) {
		if (bit / 8 >= 4 && bit / 8 <= 7)
			continue;
		packet[bit / 8] ^= (uint8_t)(1u << bit % 8);
		raw_send(&r, packet, bytes);
		packet[bit / 8] ^= (uint8_t)(1u << bit % 8);
		if (bit % 64 == 63)
			host_settle(b);
	}
	host_settle(b);
	assert_int_equal(b->packets, 1);
	assert_int_equal(host_counters(b).rx_bad_icrc, bytes * 8 - 32);
	/* It was for these addresses and ports only. */
	close(r.fd);
	r = raw_open("127.7.1.22", b);
	raw_send(&r, packet, bytes);
	host_settle(b);
	assert_int_equal(b->packets, 1);
	close(r.fd);
	host_close(b);
}

/* Soft-RoCE leaves the UDP checksum of IPv6 zero, which a socket does not take by itself. */
static void ipv6_without_a_udp_checksum_is_taken(void **state)
{
	struct host *b = host_open("::1");
	struct raw r = raw_open("::1", b);
	uint8_t packet[256];
	size_t bytes = raw_packet(&r, packet, host_qpn(b, 1), 0);
	int none = 1;

	assert_int_equal(setsockopt(r.fd, IPPROTO_UDP, UDP_NO_CHECK6_TX, &none, sizeof(none)), 0);
	raw_send(&r, packet, bytes);
	host_wait(b, 1);
	assert_memory_equal(b->payload, pattern, 100);
	packet[bytes - 1] ^= 1;
	raw_send(&r, packet, bytes);
	host_settle(b);
	assert_int_equal(b->packets, 1);
	assert_int_equal(host_counters(b).rx_bad_icrc, 1);
	close(r.fd);
	host_close(b);
}

/* A peer whose identifications count up from somewhere: the first is solved for, the others
 * expected. */
static void counting_identifications_are_followed(void **state)
{
	struct host *b = host_open("127.7.1.23");
	struct raw r = raw_open("127.7.1.24", b);
	uint8_t packet[256];
	size_t bytes;

	for (uint32_t n = 0; n < 50; n++) {
		bytes = raw_packet(&r, packet, host_qpn(b, 1), (uint16_t)(65500 + n));
		raw_send(&r, packet, bytes);
		host_wait(b, n + 1);
	}
	assert_int_equal(host_counters(b).rx_solved_id, 1);
	bytes = raw_packet(&r, packet, host_qpn(b, 1), 4711);
	raw_send(&r, packet, bytes);
	host_wait(b, 51);
	assert_int_equal(host_counters(b).rx_solved_id, 2);
	bytes = raw_packet(&r, packet, host_qpn(b, 1), 0);
	raw_send(&r, packet, bytes);
	host_wait(b, 52);
	assert_int_equal(host_counters(b).rx_solved_id, 2);
	assert_int_equal(host_counters(b).rx_bad_icrc, 0);
	close(r.fd);
	host_close(b);
}

static void short_packets_are_dropped_and_counted(void **state)
{
	struct host *b = host_open("127.7.1.25");
	struct raw r = raw_open("127.7.1.26", b);

	for (size_t bytes = 0; bytes < VB_BTH_BYTES + VB_ICRC_BYTES; bytes++)
		raw_send(&r, pattern, bytes);
	host_settle(b);
	assert_int_equal(host_counters(b).rx_short, VB_BTH_BYTES + VB_ICRC_BYTES);
	assert_int_equal(b->packets, 0);
	close(r.fd);
	host_close(b);
}

/* Random bytes of every length, also for QPNs of probes, of other slots and of ours; as single
 * datagrams and as trains: nothing is delivered, all is counted, and a good packet still arrives.
 */
static void garbage_is_dropped(void **state)
{
	struct host *b = host_open("127.7.1.27");
	struct raw r = raw_open("127.7.1.28", b);
	uint8_t data[65000];
	size_t bytes;
	uint64_t passed;

	for (uint32_t n = 0; n < 3000; n++) {
		uint32_t qpn = n % 3 == 0   ? host_qpn(b, n)
			       : n % 3 == 1 ? VB_PROBE_QPN + n % 600
					    : n * 5557u & 0xffffff;
		int segment = n % 5 == 0 ? (int)(17 + n % 1400) : 0;

		bytes = n % 97 == 0 ? 24 : n % 11 == 0 ? 1 + n * 7 % 60000 : n % 200;
		if (segment && bytes > 60u * (unsigned)segment)
			bytes = 60u * (unsigned)segment;
		memcpy(data, pattern + n, bytes);
		for (size_t at = 0; at + 8 <= bytes; at += segment ? (size_t)segment : bytes) {
			data[at + 5] = (uint8_t)(qpn >> 16);
			data[at + 6] = (uint8_t)(qpn >> 8);
			data[at + 7] = (uint8_t)qpn;
		}
		setsockopt(r.fd, IPPROTO_UDP, 103 /* UDP_SEGMENT */, &segment, sizeof(segment));
		raw_send(&r, data, bytes);
		if (n % 16 == 15)
			host_settle(b);
	}
	host_settle(b);
	/* where the identification is solved for, 2^-16 of random bytes pass, and are counted */
	passed = b->packets;
	assert_true(passed <= host_counters(b).rx_solved_id && passed < 10);
	assert_true(host_counters(b).rx_bad_icrc + host_counters(b).rx_short > 3000);
	assert_int_equal(host_counters(b).rx_handed, 0);
	assert_int_equal(b->registry->shared->port[0].count, 1);
	assert_int_equal(b->registry->shared->port[0].slot[0], b->registry->slot);
	close(r.fd);
	r = raw_open("127.7.1.28", b);
	bytes = raw_packet(&r, data, host_qpn(b, 1), 0);
	raw_send(&r, data, bytes);
	host_wait(b, passed + 1);
	close(r.fd);
	host_close(b);
}

static void packets_for_nobody_are_counted(void **state)
{
	struct host *b = host_open("127.7.1.29");
	struct raw r = raw_open("127.7.1.30", b);
	uint32_t stranger = (uint32_t)(b->registry->slot % 500 + 1) << VB_SLOT_SHIFT | 9;
	const uint32_t qpns[] = {0, VB_QPN_MULTICAST, 2, stranger, VB_PROBE_QPN + 5};
	uint8_t packet[256];

	for (size_t i = 0; i < VB_ARRAY_SIZE(qpns); i++)
		raw_send(&r, packet, raw_packet(&r, packet, qpns[i], 0));
	host_settle(b);
	assert_int_equal(b->packets, 0);
	assert_int_equal(host_counters(b).rx_management, 1);
	assert_int_equal(host_counters(b).rx_multicast, 1);
	assert_int_equal(host_counters(b).rx_strays, 3);
	assert_int_equal(host_counters(b).rx_unclaimed, 3);
	close(r.fd);
	host_close(b);
}

/* --- readiness --------------------------------------------------------------------------- */

static void the_descriptor_tells_of_packets(void **state)
{
	struct host *a = host_open("127.7.1.31"), *b = host_open("127.7.1.32");
	struct vb_path path = host_path(a, &b->address);
	bool room = false;

	host_settle(b); /* its own first probe */
	b->carrier->ops->disarm(b->carrier);
	assert_true(b->carrier->ops->arm(b->carrier));
	assert_false(is_readable(b->carrier->fd, 0));
	for (uint32_t n = 0; n < 10; n++)
		assert_int_equal(host_send(a, &path, host_qpn(b, 1), n, pattern, 1000), 0);
	host_flush(a);
	assert_true(is_readable(b->carrier->fd, 10000));
	b->carrier->ops->disarm(b->carrier);
	/* A budget that ends in the middle of a train: the rest must not be slept over. */
	assert_int_equal(b->carrier->ops->poll(b->carrier, 4, &room), 4);
	assert_false(b->carrier->ops->arm(b->carrier));
	assert_int_equal(b->carrier->ops->poll(b->carrier, 4, &room), 4);
	assert_int_equal(b->carrier->ops->poll(b->carrier, 4, &room), 2);
	assert_true(b->carrier->ops->arm(b->carrier));
	assert_false(is_readable(b->carrier->fd, 0));
	assert_int_equal(b->packets, 10);
	host_close(a);
	host_close(b);
}

static void the_same_address_twice_is_refused(void **state)
{
	struct host *a = host_open("127.7.1.33");
	struct vb_udp_config config = {.registry = a->registry, .address_count = 2};
	struct vb_carrier *carrier;

	config.addresses[0] = config.addresses[1] = test_address("127.7.1.34");
	assert_int_equal(vb_udp_create(&carrier, &config, host_deliver, a), -EINVAL);
	config.addresses[1] = test_address("192.0.2.1"); /* nobody's */
	assert_int_equal(vb_udp_create(&carrier, &config, host_deliver, a), -EADDRNOTAVAIL);
	host_close(a);
}

/* What fits into it is what may be under way. The kernel doubles what it is asked for (socket(7)).
 */
static void the_receive_buffer_is_as_large_as_allowed(void **state)
{
	struct host *a = host_open("127.7.1.35"), *b = host_open("127.7.1.36");
	const struct vb_path path = host_path(a, &b->address);
	const int forced = 16 << 20, asked = 4 << 20, fd = socket(AF_INET, SOCK_DGRAM, 0);
	int allowed = 0, bytes = 0;
	socklen_t size = sizeof(allowed);

	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &forced, sizeof(forced)) < 0)
		assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &asked, sizeof(asked)), 0);
	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &allowed, &size), 0);
	assert_int_equal(getsockopt(vb_udp_of(a->carrier)->address[0].rx_fd, SOL_SOCKET, SO_RCVBUF,
				    &bytes, &size),
			 0);
	assert_int_equal(bytes, allowed);
	assert_int_equal(path.window, VB_MIN(VB_MAX(bytes / 4, 65536), 2 << 20));
	assert_int_equal(path.pace, VB_MIN(VB_MAX(bytes / 16, 65536), 512 << 10));
	assert_int_equal(path.pace_late, VB_MIN(VB_MAX(bytes / 64, 16384), (int)path.pace));
	close(fd);
	host_close(a);
	host_close(b);
}

/* use_ring - from here on, in a network where that is allowed. */
static int use_ring(void **state)
{
	if (geteuid() != 0 && !(enter_namespace() && run("link set lo up")))
		return -1;
	host_is_next = is_next;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_size_arrives_unchanged),
		cmocka_unit_test(trains_arrive_in_order),
		cmocka_unit_test(queue_pairs_take_turns),
		cmocka_unit_test(payload_is_gathered),
		cmocka_unit_test(payload_that_passes),
		cmocka_unit_test(many_pieces_and_packets),
		cmocka_unit_test(wrong_requests_are_refused),
		cmocka_unit_test(traffic_class_and_hops_are_told),
		cmocka_unit_test(a_host_reaches_itself_over_ipv6),
		cmocka_unit_test(a_bad_icrc_is_dropped_and_counted),
		cmocka_unit_test(ipv6_without_a_udp_checksum_is_taken),
		cmocka_unit_test(counting_identifications_are_followed),
		cmocka_unit_test(short_packets_are_dropped_and_counted),
		cmocka_unit_test(garbage_is_dropped),
		cmocka_unit_test(packets_for_nobody_are_counted),
		cmocka_unit_test(the_descriptor_tells_of_packets),
		cmocka_unit_test(the_same_address_twice_is_refused),
		cmocka_unit_test(the_receive_buffer_is_as_large_as_allowed),
	};

	int failed = cmocka_run_group_tests_name("sockets", tests, make_pattern, NULL);

	return failed + cmocka_run_group_tests_name("ring", tests, use_ring, NULL);
}
