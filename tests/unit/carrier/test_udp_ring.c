/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_udp_ring.c - the ring beside the sockets, with the real kernel, in a network namespace of
 * the test's own: which datagrams it takes, in which order they and the sockets' are delivered,
 * what happens when it is full, and that nobody gets one twice.
 *
 * Which of the two a datagram came by is told by the count of system calls that brought something.
 */
#define _GNU_SOURCE
#include "udp_ring_fixture.h"

#include <net/if.h>
#include <sys/wait.h>

/* ICRC and BTH are 16 bytes of a datagram; payload and pad the others. */
static void the_short_come_by_the_ring(void **state)
{
	struct host *a = open_with_ring("127.7.5.1"), *b = open_with_ring("127.7.5.2");
	const struct vb_path path = host_path(a, &b->address);
	const uint32_t most = VB_UDP_RING_SHORT - VB_BTH_BYTES - VB_ICRC_BYTES;

	send_now(a, &path, b, 0, 0);
	host_wait(b, 1);
	send_now(a, &path, b, 1, most);
	host_wait(b, 2);
	assert_int_equal(rx_calls(b), 0);
	send_now(a, &path, b, 2, most + 1);
	host_wait(b, 3);
	assert_int_equal(rx_calls(b), 1);
	assert_int_equal(host_counters(b).rx_bad_icrc, 0);
	assert_int_equal(host_counters(b).rx_solved_id, 0);
	host_close(a);
	host_close(b);
}

static void a_short_train_is_one_entry(void **state)
{
	struct host *a = open_with_ring("127.7.5.3"), *b = open_with_ring("127.7.5.4");
	const struct vb_path path = host_path(a, &b->address);

	for (uint32_t n = 0; n < VB_UDP_SEGMENTS; n++)
		assert_int_equal(host_send(a, &path, host_qpn(b, 1), n, pattern + n, 8), 0);
	host_flush(a);
	host_wait(b, VB_UDP_SEGMENTS);
	assert_int_equal(rx_calls(b), 0);
	assert_int_equal(host_counters(b).rx_solved_id, 0);
	assert_true(vb_udp_ring_is_empty(vb_udp_of(b->carrier)->ring));
	host_close(a);
	host_close(b);
}

/* Long and short ones in all turns of four, all there before the first look. */
static void the_order_is_kept(void **state)
{
	struct host *a = open_with_ring("127.7.5.5"), *b = open_with_ring("127.7.5.6");
	const struct vb_path path = host_path(a, &b->address);
	uint32_t psn = 0;

	for (uint32_t turns = 0; turns < 16; turns++) {
		for (uint32_t i = 0; i < 4; i++, psn++)
			send_now(a, &path, b, psn, turns & 1u << i ? LONG_BYTES : 8);
		if (turns % 2)
			host_wait(b, psn);
	}
	host_close(a);
	host_close(b);
}

/* A short train with packets of two queue pairs, behind a long one of the second. */
static uint32_t next_of[2];

static bool counts_each_up(void *env, const uint8_t *packet)
{
	struct vb_headers headers;

	vb_bth_decode(&headers, packet);
	return headers.psn == next_of[headers.qpn & 1];
}

static void check_each_psn(struct host *h)
{
	assert_int_equal(h->headers.psn, next_of[h->headers.qpn & 1]);
	next_of[h->headers.qpn & 1]++;
}

static void the_order_of_each_queue_pair_is_kept(void **state)
{
	struct host *a = open_with_ring("127.7.5.25"), *b;
	struct vb_path path;

	host_is_next = counts_each_up;
	b = open_with_ring("127.7.5.26");
	host_is_next = counts_up;
	b->on_packet = check_each_psn;
	path = host_path(a, &b->address);
	for (uint32_t n = 0; n < 3; n++) {
		assert_int_equal(host_send(a, &path, host_qpn(b, 1), n, pattern, LONG_BYTES), 0);
		host_flush(a);
	}
	for (uint32_t n = 0; n < 10; n++) {
		assert_int_equal(host_send(a, &path, host_qpn(b, 0), n, pattern, 8), 0);
		assert_int_equal(host_send(a, &path, host_qpn(b, 1), 3 + n, pattern, 8), 0);
	}
	host_flush(a);
	host_wait(b, 23);
	assert_int_equal(next_of[0], 10);
	assert_int_equal(next_of[1], 13);
	host_close(a);
	host_close(b);
}

static void a_packet_behind_a_lost_one_is_delivered(void **state)
{
	struct host *a = open_with_ring("127.7.5.7"), *b = open_with_ring("127.7.5.8");
	const struct vb_path path = host_path(a, &b->address);

	b->on_packet = NULL;
	send_now(a, &path, b, 7, 8);
	host_wait(b, 1);
	assert_int_equal(b->headers.psn, 7);
	host_close(a);
	host_close(b);
}

static void what_the_ring_has_no_room_for_is_counted(void **state)
{
	struct host *a = open_with_ring("127.7.5.9"), *b = open_with_ring("127.7.5.10");
	const struct vb_path path = host_path(a, &b->address);

	b->on_packet = NULL;
	for (uint32_t n = 0; n < VB_UDP_RING_FRAMES + 88; n++)
		send_now(a, &path, b, n, 8);
	host_wait(b, VB_UDP_RING_FRAMES);
	assert_int_equal(b->headers.psn, VB_UDP_RING_FRAMES - 1);
	send_now(a, &path, b, 1, 8); /* with the first that finds room the kernel tells */
	host_wait(b, VB_UDP_RING_FRAMES + 1);
	host_settle(b);
	assert_int_equal(host_counters(b).rx_overflows, 88);
	assert_int_equal(b->packets, VB_UDP_RING_FRAMES + 1);
	host_close(a);
	host_close(b);
}

static void who_sleeps_is_woken(void **state)
{
	struct host *a = open_with_ring("127.7.5.11"), *b = open_with_ring("127.7.5.12");
	const struct vb_path path = host_path(a, &b->address);

	host_settle(b);
	assert_true(b->carrier->ops->arm(b->carrier));
	assert_false(is_readable(b->carrier->fd, 0));
	send_now(a, &path, b, 0, 8);
	assert_true(is_readable(b->carrier->fd, 10000));
	assert_false(b->carrier->ops->arm(b->carrier));
	host_wait(b, 1);
	assert_true(b->carrier->ops->arm(b->carrier));
	assert_false(is_readable(b->carrier->fd, 0));
	host_close(a);
	host_close(b);
}

/* --- several processes of one host ------------------------------------------------------- */

struct process {
	pid_t pid;
	int fd;
	uint16_t slot;
	bool has_ring;
};

/* process - on the host's address; it takes that many packets, one more not, hands that many strays
 * on, and ends well. */
static struct process process(const char *address, uint64_t packets, uint64_t strays)
{
	struct process p = {0};
	int fds[2], rc = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds);

	assert_int_equal(rc, 0);
	p.pid = fork();
	assert_true(p.pid >= 0);
	if (p.pid == 0) {
		struct host *h = host_open(address);

		h->on_packet = check_psn;
		p.slot = h->registry->slot;
		p.has_ring = vb_udp_of(h->carrier)->ring != NULL;
		if (send(fds[1], &p, sizeof(p), 0) != sizeof(p))
			_exit(2);
		host_wait(h, packets);
		rc = (int)recv(fds[1], &p, sizeof(p), 0); /* until all were sent to all */
		host_settle(h);
		_exit(rc == sizeof(p) && h->packets == packets &&
				      host_counters(h).rx_strays == strays
			      ? 0
			      : 1);
	}
	close(fds[1]);
	p.fd = fds[0];
	return p;
}

static void await_open(struct process *p)
{
	struct process told;

	assert_int_equal(recv(p->fd, &told, sizeof(told), 0), sizeof(told));
	p->slot = told.slot;
	p->has_ring = told.has_ring;
}

static void await_end(struct process *p)
{
	int status;

	assert_int_equal(send(p->fd, p, sizeof(*p), 0), sizeof(*p));
	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
	assert_int_equal(status, 0);
	close(p->fd);
}

static void send_to_process(struct host *a, const struct vb_path *path, const struct process *p,
			    uint32_t psn)
{
	assert_int_equal(
		host_send(a, path, (uint32_t)p->slot << VB_SLOT_SHIFT | 1, psn, pattern + psn, 8),
		0);
	host_flush(a);
}

static void each_process_has_its_own(void **state)
{
	struct host *a = open_with_ring("127.7.5.13");
	struct in6_addr address = test_address("127.7.5.14");
	struct process p[2];
	struct vb_path path;

	for (unsigned int i = 0; i < 2; i++) {
		p[i] = process("127.7.5.14", 20, 0);
		await_open(&p[i]);
		assert_true(p[i].has_ring);
	}
	path = host_path(a, &address);
	assert_int_not_equal(p[0].slot, p[1].slot);
	for (uint32_t n = 0; n < 20; n++)
		for (unsigned int i = 0; i < 2; i++)
			send_to_process(a, &path, &p[i], n);
	for (unsigned int i = 0; i < 2; i++)
		await_end(&p[i]);
	host_close(a);
}

/* A train for two processes, as the kernel may merge it or another sender make it: the first one's
 * ring has it, and hands on what is the other's. */
static void a_train_for_two_reaches_both(void **state)
{
	struct vb_icrc_ip ip = {.src = test_address("127.7.5.30"),
				.dst = test_address("127.7.5.31"),
				.dst_port = VB_ROCE_PORT,
				.dont_fragment = true};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), value = IP_PMTUDISC_DO;
	union vb_sockaddr name;
	socklen_t bytes = vb_sockaddr_fill(&name, &ip.src, 0, 0);
	uint8_t train[256];
	int at = 0, n = 0;
	struct process p[2];

	assert_int_equal(bind(fd, &name.any, bytes), 0);
	assert_int_equal(getsockname(fd, &name.any, &bytes), 0);
	assert_true(vb_sockaddr_read(&name, &ip.src, &ip.src_port));
	assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &value, sizeof(value)), 0);
	for (unsigned int i = 0; i < 2; i++) {
		p[i] = process("127.7.5.31", 1, 1 - i);
		await_open(&p[i]);
		assert_true(p[i].has_ring);
	}
	for (unsigned int i = 0; i < 2; i++) {
		const struct vb_headers h = {.opcode = vb_opcode(VB_TRANSPORT_UC, VB_OP_SEND_ONLY),
					     .qpn = (uint32_t)p[i].slot << VB_SLOT_SHIFT | 1};

		n = vb_headers_encode(&h, train + at, 64);
		ip.ip_id = (uint16_t)i;
		vb_icrc_store(train + at + n, vb_icrc_begin_bth(&ip, (size_t)n + VB_ICRC_BYTES,
								train + at, (size_t)n));
		at += n + VB_ICRC_BYTES;
	}
	value = at / 2;
	assert_int_equal(setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &value, sizeof(value)), 0);
	bytes = vb_sockaddr_fill(&name, &ip.dst, 0, VB_ROCE_PORT);
	assert_int_equal(sendto(fd, train, (size_t)at, 0, &name.any, bytes), at);
	for (unsigned int i = 0; i < 2; i++)
		await_end(&p[i]);
	close(fd);
}

/* Each ring asks each packet of the machine. */
static void many_processes_do_without(void **state)
{
	struct process p[VB_UDP_RING_MEMBERS + 1];
	struct host *a = open_with_ring("127.7.5.21");
	struct in6_addr address = test_address("127.7.5.22");
	struct vb_path path;

	for (unsigned int i = 0; i <= VB_UDP_RING_MEMBERS; i++) {
		p[i] = process("127.7.5.22", 1, 0);
		await_open(&p[i]);
		assert_int_equal(p[i].has_ring, i < VB_UDP_RING_MEMBERS);
	}
	path = host_path(a, &address);
	for (unsigned int i = 0; i <= VB_UDP_RING_MEMBERS; i++)
		send_to_process(a, &path, &p[i], 0);
	for (unsigned int i = 0; i <= VB_UDP_RING_MEMBERS; i++)
		await_end(&p[i]);
	host_close(a);
}

/* --- what is left to the sockets --------------------------------------------------------- */

static void send_ip(const struct host *to, const uint8_t *packet, size_t bytes)
{
	const struct sockaddr_in name = {.sin_family = AF_INET,
					 .sin_addr.s_addr = to->address.s6_addr32[3]};
	int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);

	assert_int_equal(sendto(fd, packet, bytes, 0, (const struct sockaddr *)&name, sizeof(name)),
			 bytes);
	close(fd);
}

static void options_of_ip_are_left_to_the_socket(void **state)
{
	struct host *b = open_with_ring("127.7.5.15");
	uint8_t packet[256];

	b->on_packet = NULL;
	send_ip(b, packet, ip_packet(packet, b, "127.7.5.16", 5));
	host_wait(b, 1);
	assert_int_equal(rx_calls(b), 0);
	send_ip(b, packet, ip_packet(packet, b, "127.7.5.16", 6));
	host_wait(b, 2);
	assert_int_equal(rx_calls(b), 1);
	host_close(b);
}

/* Whose sender says less or more than there is: the kernel's UDP drops the one, we the other. */
static void wrong_lengths_are_dropped(void **state)
{
	struct host *b = open_with_ring("127.7.5.17");
	uint8_t packet[256];
	size_t bytes = ip_packet(packet, b, "127.7.5.18", 5);

	for (uint32_t length = 0; length < 1800; length++) {
		const uint16_t word = htons((uint16_t)length);

		memcpy(packet + 24, &word, sizeof(word));
		if (length != bytes - 20)
			send_ip(b, packet, bytes);
		if (length % 100 == 0)
			host_settle(b);
	}
	host_settle(b);
	assert_int_equal(b->packets, 0);
	host_close(b);
}

/* A frame that is not what the filter saw: its sender shares the packet's memory with the kernel.
 */
static void a_frame_for_another_address_is_dropped(void **state)
{
	struct host *a = open_with_ring("127.7.5.41"), *b = open_with_ring("127.7.5.42");
	const struct vb_path path = host_path(a, &b->address);
	struct vb_udp_ring *ring = vb_udp_of(b->carrier)->ring;
	const struct in_addr other = {inet_addr("127.7.5.43")};
	struct vb_udp_ring_datagram d;
	uint8_t *destination;

	send_now(a, &path, b, 0, 8);
	assert_true(vb_udp_ring_look(ring, &d));
	assert_int_equal(d.dst.s_addr, b->address.s6_addr32[3]);
	destination = d.data - sizeof(struct udphdr) - sizeof(other);
	assert_memory_equal(destination, &d.dst, sizeof(other));
	memcpy(destination, &other, sizeof(other));
	assert_false(vb_udp_ring_look(ring, &d));
	send_now(a, &path, b, 0, 8);
	host_wait(b, 1);
	assert_int_equal(host_counters(b).rx_bad_icrc, 0);
	host_close(a);
	host_close(b);
}

/* --- strays ------------------------------------------------------------------------------ */

/* It was in our ring too. */
static void a_short_stray_is_not_taken_twice(void **state)
{
	struct host *b = open_with_ring("127.7.5.19");

	b->on_packet = NULL;
	hand(b, "127.7.5.20", 0);
	hand(b, "127.7.5.20", 1);
	host_settle(b);
	assert_int_equal(b->packets, 1);
	assert_int_equal(host_counters(b).rx_handed, 1);
	host_close(b);
}

/* The ring would take nothing that comes by it. */
static void an_interface_that_is_not_ethernet_has_none(void **state)
{
	struct host *b;

	if (!run("tuntap add dev tunnel mode tun") || !run("addr add 10.78.0.1/24 dev tunnel") ||
	    !run("link set tunnel up")) {
		print_message("no tunnel can be made here\n");
		skip(); /* nothing of ours: /dev/net/tun is the system's */
	}
	b = host_create((struct vb_udp_config){.addresses = {test_address("10.78.0.1")},
					       .address_count = 1,
					       .ifindex = if_nametoindex("tunnel")});
	(void)host_path(b, &b->address);
	assert_null(vb_udp_of(b->carrier)->ring);
	hand(b, "10.78.0.2", 1);
	host_wait(b, 1);
	host_close(b);
}

/* --- where there is none ----------------------------------------------------------------- */

static void a_child_does_not_hold_it(void **state)
{
	struct host *a = open_with_ring("127.7.5.23"), *b = open_with_ring("127.7.5.24");
	const struct vb_path path = host_path(a, &b->address);
	int fd = vb_udp_ring_fd(vb_udp_of(b->carrier)->ring), status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		vb_udp_drop_in_child(b->carrier);
		_exit(fcntl(fd, F_GETFD) == -1 && errno == EBADF ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	send_now(a, &path, b, 0, 8);
	host_wait(b, 1);
	host_close(a);
	host_close(b);
}

static unsigned int filter_length(int fd)
{
	socklen_t length = 0;

	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, NULL, &length), 0);
	return length;
}

/* The second of two sockets takes no filter: the first has given its one back. */
static void one_that_cannot_start_leaves_nothing_behind(void **state)
{
	struct host *a = open_with_ring("127.7.5.34");
	const char *const addresses[] = {"127.7.5.35", "127.7.5.36"};
	struct host *b = host_create((struct vb_udp_config){
		.addresses = {test_address(addresses[0]), test_address(addresses[1])},
		.address_count = 2});
	const struct vb_udp *udp = vb_udp_of(b->carrier);
	const int on = 1;
	struct vb_path path;

	assert_int_equal(
		setsockopt(udp->address[1].rx_fd, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof(on)), 0);
	(void)host_path(b, &b->address);
	assert_null(udp->ring);
	assert_false(b->carrier->looks_cheaply);
	assert_int_equal(filter_length(udp->address[0].rx_fd), 0);
	for (uint32_t i = 0; i < 2; i++) {
		const struct in6_addr to = test_address(addresses[i]);

		path = host_path(a, &to);
		send_now(a, &path, b, i, 8);
		host_wait(b, i + 1);
	}
	host_close(a);
	host_close(b);
}

static void without_the_capability_there_is_none(void **state)
{
	int status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
		struct __user_cap_data_struct none[2] = {0};
		struct vb_udp_ring *ring;

		_exit(syscall(SYS_capset, &header, none) == 0 &&
				      vb_udp_ring_open(&ring, &(struct vb_udp_ring_config){0}) ==
					      -EPERM
			      ? 0
			      : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_short_come_by_the_ring),
		cmocka_unit_test(a_short_train_is_one_entry),
		cmocka_unit_test(the_order_is_kept),
		cmocka_unit_test(the_order_of_each_queue_pair_is_kept),
		cmocka_unit_test(a_packet_behind_a_lost_one_is_delivered),
		cmocka_unit_test(what_the_ring_has_no_room_for_is_counted),
		cmocka_unit_test(who_sleeps_is_woken),
		cmocka_unit_test(each_process_has_its_own),
		cmocka_unit_test(options_of_ip_are_left_to_the_socket),
		cmocka_unit_test(wrong_lengths_are_dropped),
		cmocka_unit_test(a_frame_for_another_address_is_dropped),
		cmocka_unit_test(a_short_stray_is_not_taken_twice),
		cmocka_unit_test(an_interface_that_is_not_ethernet_has_none),
		cmocka_unit_test(a_train_for_two_reaches_both),
		cmocka_unit_test(many_processes_do_without),
		cmocka_unit_test(a_child_does_not_hold_it),
		cmocka_unit_test(one_that_cannot_start_leaves_nothing_behind),
		cmocka_unit_test(without_the_capability_there_is_none),
	};

	return cmocka_run_group_tests(tests, make_network, NULL);
}
