/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_udp_wire.c - what a wire would carry, captured behind a device that cuts trains apart
 * itself, and what happens when a socket has no room.
 *
 * In a network namespace that the test makes (as an ordinary user: with a user namespace around
 * it), one end of a veth pair sends to a neighbour that does not exist, and a packet socket listens
 * at the other. The ICRC is computed here bit by bit from the bytes of the frame, IP header and
 * all. Where namespaces are forbidden the tests are skipped.
 */
#define _GNU_SOURCE
#include "own_network.h"
#include "udp_fixture.h"

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/ioctl.h>

static uint8_t pattern[65536];
static uint8_t far_mac[6];
static bool have_namespace;

/* What leaves a device can be captured only in a network namespace of our own. Where the system
 * forbids one to root and to ordinary users alike (some containers do) there is nothing to look at.
 */
static void need_namespace(void)
{
	if (have_namespace)
		return;
	print_message("no network namespace of our own can be had here\n");
	skip(); /* nothing of ours: the system forbids namespaces, see above */
}

static int make_network(void **state)
{
	struct ifreq request = {.ifr_name = "far"};
	int fd;

	for (size_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = (uint8_t)(i * 2654435761u >> 13);
	have_namespace =
		enter_namespace() && run("link set lo up") &&
		run("link add near type veth peer name far") &&
		run("addr add 10.77.0.1/24 dev near") &&
		run("addr add fd00::1/64 dev near nodad") && run("link set near mtu 9000 up") &&
		run("link set far mtu 9000 up") &&
		run("link set near gso_max_segs 1"); /* the kernel cuts before the device */
	if (!have_namespace)
		return 0;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (ioctl(fd, SIOCGIFHWADDR, &request) == 0)
		memcpy(far_mac, request.ifr_hwaddr.sa_data, sizeof(far_mac));
	close(fd);
	return 0;
}

static void add_neighbour(const char *address)
{
	char line[200];

	snprintf(line, sizeof(line),
		 "neigh replace %s lladdr %02x:%02x:%02x:%02x:%02x:%02x dev near nud permanent",
		 address, far_mac[0], far_mac[1], far_mac[2], far_mac[3], far_mac[4], far_mac[5]);
	assert_true(run(line));
}

/* --- the capture ------------------------------------------------------------------------- */

static int capture_open(void)
{
	struct sockaddr_ll name = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL)), bytes = 4 << 20;

	assert_true(fd >= 0);
	name.sll_ifindex = (int)if_nametoindex("far");
	assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	return fd;
}

/* next_frame - the next RoCE packet; returns the offset of the UDP header. */
static size_t next_frame(int fd, uint8_t frame[16384], size_t *bytes)
{
	for (;;) {
		ssize_t n;
		size_t udp = 0;

		assert_true(is_readable(fd, 10000));
		n = recv(fd, frame, 16384, 0);
		assert_true(n > 0);
		*bytes = (size_t)n;
		if (n > 42 && frame[12] == 0x08 && frame[13] == 0x00 &&
		    frame[14 + 9] == IPPROTO_UDP)
			udp = 14 + 20;
		else if (n > 62 && frame[12] == 0x86 && frame[13] == 0xdd &&
			 frame[14 + 6] == IPPROTO_UDP)
			udp = 14 + 40;
		if (udp && frame[udp + 2] == VB_ROCE_PORT >> 8 &&
		    frame[udp + 3] == (VB_ROCE_PORT & 0xff))
			return udp;
	}
}

static uint32_t crc_bit_by_bit(uint32_t crc, const uint8_t *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		crc ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
	}
	return crc;
}

/* IBTA annex A17.3.3, from the frame's own bytes. */
static uint32_t icrc_of_frame(const uint8_t *frame, size_t bytes, size_t udp)
{
	static uint8_t masked[16384];
	const uint8_t ones[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	uint8_t *ip = masked + 14;

	memcpy(masked, frame, bytes);
	if (udp == 14 + 20) {
		ip[1] = ip[8] = ip[10] = ip[11] = 0xff;
	} else {
		ip[0] |= 0x0f;
		ip[1] = ip[2] = ip[3] = ip[7] = 0xff;
	}
	masked[udp + 6] = masked[udp + 7] = 0xff;
	masked[udp + 8 + 4] = 0xff;
	return ~crc_bit_by_bit(crc_bit_by_bit(0xffffffffu, ones, 8), ip, bytes - 14 - 4);
}

static void check_frame(const uint8_t *frame, size_t bytes, size_t udp, uint32_t psn,
			uint32_t ip_id, size_t payload_bytes)
{
	const uint8_t *bth = frame + udp + 8;

	if (udp == 14 + 20) {
		assert_int_equal(frame[14], 0x45);
		assert_int_equal(frame[14 + 2] << 8 | frame[14 + 3], bytes - 14);
		assert_int_equal(frame[14 + 4] << 8 | frame[14 + 5], ip_id);
		assert_int_equal(frame[14 + 6] << 8 | frame[14 + 7], 0x4000); /* DF, no fragment */
		assert_int_equal(frame[14 + 8], 64);
	}
	assert_true((frame[udp] << 8 | frame[udp + 1]) >= 0xc000);
	assert_int_equal(bth[9] << 16 | bth[10] << 8 | bth[11], psn);
	assert_int_equal(bytes, udp + 8 + 12 + payload_bytes + 4);
	assert_memory_equal(bth + 12, pattern + psn, payload_bytes);
	assert_int_equal(vb_icrc_load(frame + bytes - 4), icrc_of_frame(frame, bytes, udp));
}

/* --- tests ------------------------------------------------------------------------------- */

static void check_trains(const char *near, const char *far)
{
	struct host *a = host_open(near);
	struct in6_addr to = test_address(far);
	struct vb_path path = host_path(a, &to);
	int fd = capture_open();
	static uint8_t frame[16384];
	size_t bytes, udp;
	uint32_t psn = 0;

	add_neighbour(far);
	assert_int_equal(path.segment_max, 4096);
	/* One alone; a train of 14 with a shorter one at its end; many small ones. */
	for (uint32_t n = 1; n <= 14; n += 13, host_flush(a)) {
		for (uint32_t i = 0; i < n; i++, psn++)
			assert_int_equal(host_send(a, &path, 0x12345, psn, pattern + psn, 4096), 0);
	}
	assert_int_equal(host_send(a, &path, 0x12345, psn, pattern + psn, 8), 0);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(host_send(a, &path, 0x12346, i, pattern + i, 64), 0);
	host_flush(a);
	udp = next_frame(fd, frame, &bytes);
	check_frame(frame, bytes, udp, 0, 0, 4096);
	for (uint32_t i = 0; i < 14; i++) {
		udp = next_frame(fd, frame, &bytes);
		check_frame(frame, bytes, udp, 1 + i, i, 4096);
	}
	udp = next_frame(fd, frame, &bytes);
	check_frame(frame, bytes, udp, 15, 0, 8); /* flushed in between: a train of its own */
	for (uint32_t i = 0; i < 100; i++) {
		udp = next_frame(fd, frame, &bytes);
		check_frame(frame, bytes, udp, i, i % 64, 64);
	}
	assert_int_equal(host_counters(a).tx_dropped, 0);
	assert_int_equal(host_counters(a).tx_packets, 116);
	close(fd);
	host_close(a);
}

static void trains_on_the_wire_ipv4(void **state)
{
	need_namespace();
	check_trains("10.77.0.1", "10.77.0.2");
}

static void trains_on_the_wire_ipv6(void **state)
{
	need_namespace();
	check_trains("fd00::1", "fd00::2");
}

/* The neighbour does not answer, so that packets wait in the kernel and fill the socket. What was
 * taken before is neither lost nor looked at again in the program's memory. */
static void a_full_socket_is_waited_for(void **state)
{
	static uint8_t payload[40][4096], frame[16384];
	struct host *a;
	struct in6_addr to = test_address("10.77.0.3");
	struct vb_path path;
	uint32_t taken = 0;
	size_t bytes, udp;
	bool room = false;
	int fd, small = 1, err = 0;

	need_namespace();
	a = host_open("10.77.0.1");
	path = host_path(a, &to);
	fd = capture_open();
	for (unsigned int p = 0; p < VB_UDP_POOL; p++) {
		int sender = vb_udp_of(a->carrier)->address[0].tx_fd[p];

		if (sender >= 0)
			assert_int_equal(
				setsockopt(sender, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)),
				0);
	}
	for (; taken < 40 && err == 0; taken += err == 0) {
		memcpy(payload[taken], pattern + taken, 4096);
		err = host_send(a, &path, 0x12345, taken, payload[taken], 4096);
		if (taken % 5 == 4) {
			host_flush(a);
			memset(payload, 0, sizeof(payload));
		}
	}
	assert_int_equal(err, -EAGAIN);
	assert_int_equal(taken, 10); /* five went to the kernel, five wait here */
	assert_int_equal(host_counters(a).tx_held, 5);
	a->carrier->ops->poll(a->carrier, 16, &room);
	assert_false(room);
	add_neighbour("10.77.0.3");
	while (!room) {
		assert_true(is_readable(a->carrier->fd, 10000));
		a->carrier->ops->disarm(a->carrier);
		a->carrier->ops->poll(a->carrier, 16, &room);
	}
	assert_int_equal(host_send(a, &path, 0x12345, 10, pattern + 10, 4096), 0);
	host_flush(a);
	for (uint32_t i = 0; i < 11; i++) {
		udp = next_frame(fd, frame, &bytes);
		check_frame(frame, bytes, udp, i, i % 5, 4096);
	}
	assert_int_equal(host_counters(a).tx_dropped, 0);
	assert_int_equal(host_counters(a).tx_packets, 11);
	host_settle(a);
	a->carrier->ops->disarm(a->carrier);
	assert_false(is_readable(a->carrier->fd, 0)); /* no more waiting for room */
	close(fd);
	host_close(a);
}

/* A packet longer than the route's MTU is lost and counted; the next one goes. */
static void a_packet_over_the_mtu_is_counted(void **state)
{
	static uint8_t frame[16384];
	struct host *a;
	struct in6_addr to = test_address("10.77.0.4"), nowhere = test_address("192.0.2.7");
	struct vb_path path;
	size_t bytes, udp;
	int fd;

	need_namespace();
	a = host_open("10.77.0.1");
	assert_int_equal(vb_udp_route(a->carrier, &path, &a->address, &nowhere, 0, 0, 0, 64),
			 -ENETUNREACH);
	assert_true(run("link set near mtu 1500"));
	path = host_path(a, &to);
	assert_int_equal(path.segment_max, 1024);
	fd = capture_open();
	add_neighbour("10.77.0.4");
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(host_send(a, &path, 0x12345, i, pattern + i, 2048), 0);
	assert_int_equal(host_send(a, &path, 0x12346, 3, pattern + 3, 2048), 0);
	assert_int_equal(host_send(a, &path, 0x12347, 4, pattern + 4, 1024), 0);
	host_flush(a);
	udp = next_frame(fd, frame, &bytes);
	check_frame(frame, bytes, udp, 4, 0, 1024);
	assert_int_equal(host_counters(a).tx_dropped, 4);
	assert_int_equal(host_counters(a).tx_packets, 1);
	assert_true(run("link set near mtu 9000"));
	close(fd);
	host_close(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trains_on_the_wire_ipv4),
		cmocka_unit_test(trains_on_the_wire_ipv6),
		cmocka_unit_test(a_full_socket_is_waited_for),
		cmocka_unit_test(a_packet_over_the_mtu_is_counted),
	};

	return cmocka_run_group_tests(tests, make_network, NULL);
}
