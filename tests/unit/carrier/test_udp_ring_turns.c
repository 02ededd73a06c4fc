/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_udp_ring_turns.c - what comes by the ring, by a socket or from another process of the host
 * is delivered although another of these ways is never empty.
 */
#define _GNU_SOURCE
#include "udp_ring_fixture.h"

/* Who sends what is never the next one, and keeps the socket full, holds up nothing for long. */
static uint64_t short_came_at[16];
static unsigned int shorts;

static void note_shorts(struct host *h)
{
	if (h->payload_bytes < LONG_BYTES && shorts < VB_ARRAY_SIZE(short_came_at))
		short_came_at[shorts++] = h->packets - 1;
}

static void a_full_socket_does_not_hold_the_ring_up(void **state)
{
	struct host *a = open_with_ring("127.7.5.27"), *b = open_with_ring("127.7.5.28");
	const struct vb_path path = host_path(a, &b->address);
	const uint32_t longs = VB_UDP_RING_PATIENCE + 40;
	bool room = false;

	b->on_packet = note_shorts;
	shorts = 0;
	for (uint32_t n = 0; n < 4; n++)
		send_now(a, &path, b, 60000, 8);
	for (uint32_t n = 0; n < longs; n++) {
		send_now(a, &path, b, 50000, LONG_BYTES);
		if (n % 4 == 3) /* the receive buffer may be small */
			b->carrier->ops->poll(b->carrier, 4, &room);
	}
	host_wait(b, longs + 4);
	assert_int_equal(shorts, 4);
	assert_in_range(short_came_at[0], 4, VB_UDP_RING_PATIENCE);
	for (unsigned int i = 1; i < 4; i++) /* the others are not waited for again */
		assert_int_equal(short_came_at[i], short_came_at[0] + i);
	host_close(a);
	host_close(b);
}

/* A ring that is never empty: for each short datagram that comes another one is sent, until one
 * came by a socket. */
#define BACKLOG 300u
#define TOO_MANY 100000u

static struct {
	struct host *from;
	struct vb_path path;
	uint32_t packets; /* of a datagram */
	uint32_t by_ring;
	bool by_socket;
} busy;

static bool any_is_next(void *env, const uint8_t *packet)
{
	return true;
}

static void send_busy(const struct host *to)
{
	for (uint32_t n = 0; n < busy.packets; n++)
		assert_int_equal(host_send(busy.from, &busy.path, host_qpn(to, 1), 0, pattern, 8),
				 0);
	host_flush(busy.from);
}

static void keep_busy(struct host *h)
{
	busy.by_socket |= h->payload_bytes != 8;
	busy.by_ring += !busy.by_socket;
	if (!busy.by_socket && busy.by_ring < TOO_MANY && busy.by_ring % busy.packets == 0)
		send_busy(h);
}

static void begin_busy(struct host *from, struct host *to, uint32_t packets)
{
	busy.from = from;
	busy.path = host_path(from, &to->address);
	busy.packets = packets;
	busy.by_ring = 0;
	busy.by_socket = false;
	to->on_packet = keep_busy;
	for (uint32_t n = 0; n < BACKLOG; n++)
		send_busy(to);
}

/* take_turns - how many came by the ring before the first of a socket; budget: of a poll. */
static uint32_t take_turns(struct host *to, int budget)
{
	const struct vb_udp *udp = vb_udp_of(to->carrier);
	bool room = false;

	while (!busy.by_socket && !vb_udp_ring_is_empty(udp->ring))
		to->carrier->ops->poll(to->carrier, budget, &room);
	assert_true(busy.by_socket);
	to->on_packet = NULL;
	host_settle(to);
	return busy.by_ring;
}

static void a_ring_that_never_empties_leaves_the_socket_its_turn(void **state)
{
	struct host *a = open_with_ring("127.7.5.32"), *b;

	host_is_next = any_is_next;
	b = open_with_ring("127.7.5.33");
	host_is_next = counts_up;
	begin_busy(a, b, 1);
	send_now(a, &busy.path, b, 0, LONG_BYTES);
	assert_int_equal(take_turns(b, 128), VB_UDP_RING_ROW);
	host_close(a);
	host_close(b);
}

/* others_have_their_turn - one to address at, cold or warm, comes although the ring is never empty
 * and is of another socket. */
static void others_have_their_turn(struct host *from, struct host *to, const struct in6_addr *at,
				   uint32_t qpn)
{
	const uint32_t most = vb_udp_of(to->carrier)->address_count * VB_UDP_RING_ROW;
	const struct vb_path path = host_path(from, at);
	struct host *short_ones = open_with_ring("127.7.5.39");

	to->on_packet = NULL;
	for (unsigned int is_warm = 0; is_warm < 2; is_warm++) {
		const uint64_t before = to->packets;

		if (is_warm) {
			assert_int_equal(host_send(from, &path, qpn, 0, pattern, 8), 0);
			host_flush(from);
			host_wait(to, before + 1);
		}
		begin_busy(short_ones, to, 1);
		assert_int_equal(host_send(from, &path, qpn, 0, pattern, LONG_BYTES), 0);
		host_flush(from);
		assert_in_range(take_turns(to, 128), 1, most);
	}
	host_close(short_ones);
}

static struct host *open_with(const char *address, const char *second)
{
	struct vb_udp_config config = {.addresses = {test_address(address)},
				       .address_count = second ? 2 : 1,
				       .ifindex = 1}; /* the loopback interface */
	struct host *h;

	if (second)
		config.addresses[1] = test_address(second);
	host_is_next = any_is_next;
	h = host_create(config);
	host_is_next = counts_up;
	(void)host_path(h, &h->address);
	host_settle(h);
	return h;
}

static void a_busy_ring_leaves_ipv6_its_turn(void **state)
{
	struct host *a = host_open("fd00::1"), *b = open_with("127.7.5.37", "fd00::2");
	const struct in6_addr six = test_address("fd00::2");

	others_have_their_turn(a, b, &six, host_qpn(b, 1));
	host_close(a);
	host_close(b);
}

static void a_busy_ring_leaves_a_group_its_turn(void **state)
{
	struct host *a = open_with("127.7.5.40", NULL), *b = open_with("127.7.5.38", NULL);
	const struct in6_addr group = test_address("239.7.5.1");

	assert_int_equal(vb_udp_join(b->carrier, &group), 0);
	host_settle(b);
	others_have_their_turn(a, b, &group, VB_QPN_MULTICAST);
	host_close(a);
	host_close(b);
}

/* Each poll ends in the middle of a train. */
static void a_busy_ring_leaves_strays_their_turn(void **state)
{
	struct host *a = open_with_ring("127.7.5.44"), *b = open_with("127.7.5.45", NULL);
	bool room = false;

	begin_busy(a, b, 2);
	b->carrier->ops->poll(b->carrier, 1, &room);
	hand(b, "127.7.5.46", 0);
	assert_in_range(take_turns(b, 2), 1, 2 * VB_UDP_EVENTS_EVERY * VB_UDP_RING_FACTOR + 1);
	host_close(a);
	host_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_full_socket_does_not_hold_the_ring_up),
		cmocka_unit_test(a_ring_that_never_empties_leaves_the_socket_its_turn),
		cmocka_unit_test(a_busy_ring_leaves_ipv6_its_turn),
		cmocka_unit_test(a_busy_ring_leaves_a_group_its_turn),
		cmocka_unit_test(a_busy_ring_leaves_strays_their_turn),
	};

	return cmocka_run_group_tests(tests, make_network, NULL);
}
