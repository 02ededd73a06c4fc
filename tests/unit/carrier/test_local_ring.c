/* SPDX-License-Identifier: BSD-2-Clause */
/* test_local_ring.c - packets through the rings: whole, in order, once; full rings; peers that come
 * and go. */
#include "local_helper.h"
#include "wire/cursor.h"

#include "carrier/local_private.h"

static struct test_nic nic;

static void a_packet_to_ourselves_arrives_whole(void **state)
{
	struct in6_addr address = test_address(30);
	static uint8_t data[VB_LOCAL_SEGMENT];
	const uint32_t sizes[] = {0, 1, 3, 4, 8, 220, 221, 240, 4096, 16383, VB_LOCAL_SEGMENT};
	struct vb_local_counters counters;
	unsigned int i;

	assert_int_equal(test_nic_open(&nic, &address), 0);
	assert_int_equal(nic.path.segment_max, VB_LOCAL_SEGMENT);
	assert_true(nic.path.own_segment && nic.path.direct);
	assert_int_equal(nic.path.window, 0);
	assert_ptr_equal(nic.path.carrier, nic.carrier);
	assert_int_equal(test_poll(&nic), 0);
	for (i = 0; i < VB_ARRAY_SIZE(sizes); i++) {
		test_fill(data, sizes[i], i);
		assert_int_equal(test_tx(&nic, test_qpn(nic.registry->slot, 77), i, 0xabc + i, data,
					 sizes[i]),
				 0);
		nic.carrier->ops->flush(nic.carrier);
		assert_int_equal(test_poll(&nic), 1);
		assert_int_equal(nic.headers.psn, i);
		assert_int_equal(nic.headers.imm, 0xabc + i);
		assert_int_equal(nic.headers.qpn, test_qpn(nic.registry->slot, 77));
		assert_int_equal(nic.payload_bytes, sizes[i]);
		assert_true(test_filled(nic.payload, sizes[i], i));
		assert_memory_equal(&nic.src, &address, sizeof(address));
		assert_memory_equal(&nic.dst, &address, sizeof(address));
		assert_true(nic.hop_limit > 0);
		assert_int_equal(test_poll(&nic), 0);
	}
	assert_int_equal(
		test_tx(&nic, test_qpn(nic.registry->slot, 1), 0, 0, data, VB_LOCAL_SEGMENT + 1),
		-EMSGSIZE);
	vb_local_read_counters(nic.carrier, &counters);
	assert_int_equal(counters.tx_packets, VB_ARRAY_SIZE(sizes));
	assert_int_equal(counters.rx_packets, VB_ARRAY_SIZE(sizes));
	test_nic_close(&nic);
}

/* --- short packets, by either way -------------------------------------------------------- */

#define LAP (VB_LOCAL_RING_BYTES / 16) /* packets: more than a ring takes */

static const struct kind {
	uint8_t op;
	uint32_t bytes;
} kinds[] = {
	{VB_OP_SEND_ONLY, 1},	  {VB_OP_SEND_ONLY, 2},	    {VB_OP_SEND_ONLY, 3},
	{VB_OP_SEND_ONLY, 8},	  {VB_OP_SEND_ONLY, 1021},  {VB_OP_SEND_ONLY_IMM, 1},
	{VB_OP_SEND_ONLY_IMM, 2}, {VB_OP_SEND_ONLY_IMM, 3}, {VB_OP_SEND_ONLY_IMM, 8},
	{VB_OP_ACK, 0},
};

static struct vb_headers headers_of(const struct kind *kind, uint32_t n)
{
	return (struct vb_headers){
		.opcode = vb_opcode(VB_TRANSPORT_RC, kind->op),
		.solicited = n & 1,
		.pad = (uint8_t)(-kind->bytes & 3),
		.pkey = VB_DEFAULT_PKEY,
		.ack_req = n & 2,
		.qpn = test_qpn(nic.registry->slot, 77),
		.psn = n,
		.imm = 0xabc + n,
		.aeth = {.syndrome = VB_AETH_ACK_NO_CREDIT, .msn = 0xabc00 + n},
	};
}

static int send_short(const struct kind *kind, uint32_t n)
{
	const struct vb_headers h = headers_of(kind, n);
	uint8_t data[1024];
	struct vb_short packet = {
		.qpn = h.qpn,
		.bytes = kind->bytes,
		.pad = h.pad,
		.wanted = true,
		.payload = kind->bytes ? data : NULL,
	};

	packet.header_bytes = (uint32_t)vb_headers_encode(&h, packet.header, sizeof(packet.header));
	test_fill(data, kind->bytes, n);
	return vb_local_tx_short(nic.carrier, &packet);
}

static void assert_arrived(const struct kind *kind, uint32_t n)
{
	const struct vb_headers h = headers_of(kind, n);

	assert_int_equal(nic.headers.opcode, h.opcode);
	assert_int_equal(nic.headers.solicited, h.solicited);
	assert_int_equal(nic.headers.pad, h.pad);
	assert_int_equal(nic.headers.pkey, h.pkey);
	assert_int_equal(nic.headers.ack_req, h.ack_req);
	assert_int_equal(nic.headers.qpn, h.qpn);
	assert_int_equal(nic.headers.psn, n);
	if (kind->op == VB_OP_SEND_ONLY_IMM)
		assert_int_equal(nic.headers.imm, h.imm);
	if (kind->op == VB_OP_ACK) {
		assert_int_equal(nic.headers.aeth.syndrome, h.aeth.syndrome);
		assert_int_equal(nic.headers.aeth.msn, h.aeth.msn);
	}
	assert_int_equal(nic.payload_bytes, kind->bytes);
	assert_true(test_filled(nic.payload, kind->bytes, n));
}

/* One is sent and arrives, the same by either way. An acknowledgement is no answer that anybody
 * waits to be answered. Returns whether it went with care: the frames of that way do not say that
 * the packet is waited for, and need not, since it is acknowledged all the same, only later. */
static bool goes_with_care(const struct kind *kind, uint32_t n)
{
	struct vb_local *local = vb_container_of(nic.carrier, struct vb_local, base);

	local->pace.spoke = false;
	assert_int_equal(send_short(kind, n), 0);
	assert_int_equal(local->pace.spoke, kind->bytes > 0);
	assert_int_equal(test_poll(&nic), 1);
	assert_arrived(kind, n);
	return !nic.wanted;
}

static void the_first_short_packet_goes_with_care(void **state)
{
	struct in6_addr address = test_address(30);

	for (size_t i = 0; i < VB_ARRAY_SIZE(kinds); i++) {
		assert_int_equal(test_nic_open(&nic, &address), 0);
		assert_true(goes_with_care(&kinds[i], 0)); /* there is no ring */
		for (uint32_t n = 1; n < 8; n++)
			assert_false(goes_with_care(&kinds[i], n));
		test_nic_close(&nic);
	}
}

/* What the consumer has read meanwhile is looked up before that. */
static void one_where_the_ring_only_seems_full_does_not(void **state)
{
	struct in6_addr address = test_address(30);

	assert_int_equal(test_nic_open(&nic, &address), 0);
	for (size_t i = 0; i < VB_ARRAY_SIZE(kinds); i++) {
		(void)goes_with_care(&kinds[i], 0); /* there is a ring now */
		for (uint32_t n = 1; n <= LAP; n++)
			assert_false(goes_with_care(&kinds[i], n));
	}
	test_nic_close(&nic);
}

static void a_full_ring_refuses_short_packets_until_there_is_room(void **state)
{
	struct in6_addr address = test_address(30);

	for (size_t i = 0; i < VB_ARRAY_SIZE(kinds); i++) {
		uint32_t n = 0;
		int r;

		assert_int_equal(test_nic_open(&nic, &address), 0);
		while ((r = send_short(&kinds[i], n)) == 0)
			assert_true(++n < LAP);
		assert_int_equal(r, -EAGAIN);
		assert_int_equal(send_short(&kinds[i], n), -EAGAIN);
		while (!nic.room || nic.received < n)
			(void)test_poll(&nic);
		assert_arrived(&kinds[i], n - 1); /* the last that was taken */
		assert_int_equal(nic.received, n);
		assert_false(goes_with_care(&kinds[i], n));
		test_nic_close(&nic);
	}
}

static void one_that_is_waited_for_says_so_for_itself_alone(void **state)
{
	struct in6_addr address = test_address(30);
	const struct vb_headers h = {.opcode = vb_opcode(VB_TRANSPORT_RC, VB_OP_SEND_ONLY)};
	struct vb_short packet = {.bytes = 4, .wanted = true, .payload = (const uint8_t *)"abcd"};

	assert_int_equal(test_nic_open(&nic, &address), 0);
	packet.qpn = test_qpn(nic.registry->slot, 77);
	packet.header_bytes = (uint32_t)vb_headers_encode(&h, packet.header, sizeof(packet.header));
	vb_store_be32(packet.header + 4, packet.qpn);
	assert_int_equal(test_tx(&nic, packet.qpn, 0, 0, "x", 1), 0); /* there is a ring */
	assert_int_equal(test_poll(&nic), 1);
	assert_int_equal(vb_local_tx_short(nic.carrier, &packet), 0);
	packet.wanted = false;
	assert_int_equal(vb_local_tx_short(nic.carrier, &packet), 0);
	assert_int_equal(test_poll(&nic), 2);
	assert_false(nic.wanted); /* the second */
	test_nic_close(&nic);
}

/* --- errors, and a full ring --------------------------------------------------------------- */

static void nobody_there_is_an_error(void **state)
{
	struct in6_addr address = test_address(31);
	struct vb_headers h = {.opcode = 0xff};
	struct vb_tx tx = {.headers = &h};
	unsigned int slot;

	assert_int_equal(test_nic_open(&nic, &address), 0);
	for (slot = 0; slot < 512; slot++) {
		if (slot == nic.registry->slot)
			continue;
		assert_int_equal(test_tx(&nic, test_qpn(slot, 3), 0, 0, "x", 1), -EHOSTUNREACH);
	}
	h.qpn = test_qpn(nic.registry->slot, 3);
	assert_int_equal(nic.carrier->ops->tx(nic.carrier, &nic.path, &tx), -EINVAL);
	h.opcode = vb_opcode(VB_TRANSPORT_UC, VB_OP_SEND_ONLY);
	tx.payload_bytes = 1; /* and no part that has it */
	assert_int_equal(nic.carrier->ops->tx(nic.carrier, &nic.path, &tx), -EINVAL);
	assert_int_equal(test_poll(&nic), 0); /* nothing of it is in the ring */
	assert_int_equal(test_tx(&nic, h.qpn, 0, 0, "x", 1), 0);
	assert_int_equal(test_poll(&nic), 1);
	test_nic_close(&nic);
}

static void a_slot_has_one_carrier_and_may_have_another_later(void **state)
{
	struct in6_addr address = test_address(32);
	struct vb_carrier *second;
	struct vb_local_mr mr = {.rkey = 5, .pd_id = 1, .access = 6, .addr = 4096, .length = 1};
	int i;

	assert_int_equal(test_nic_open(&nic, &address), 0);
	assert_int_equal(vb_local_create(&second, nic.registry, test_deliver, &nic), -EBUSY);
	for (i = 0; i < 3; i++) {
		assert_int_equal(vb_local_publish_mr(nic.carrier, &mr), 0);
		assert_int_equal(test_tx(&nic, test_qpn(nic.registry->slot, 1), 0, 0, "x", 1), 0);
		assert_int_equal(test_poll(&nic), 1);
		nic.carrier->ops->destroy(nic.carrier);
		assert_int_equal(vb_local_create(&nic.carrier, nic.registry, test_deliver, &nic),
				 0);
		vb_local_route(nic.carrier, &nic.path);
		assert_int_equal(test_poll(&nic), 0);
	}
	test_nic_close(&nic);
}

static void a_full_ring_says_so_and_then_that_there_is_room(void **state)
{
	struct in6_addr address = test_address(33);
	static uint8_t data[VB_LOCAL_SEGMENT];
	uint32_t self, sent = 0, lap;

	assert_int_equal(test_nic_open(&nic, &address), 0);
	self = test_qpn(nic.registry->slot, 9);
	for (lap = 0; lap < 20; lap++) {
		uint32_t bytes = lap % 2 ? VB_LOCAL_SEGMENT : 1000 + lap, before = sent;
		int r;

		while ((r = test_tx(&nic, self, sent, sent, data, bytes)) == 0)
			sent++;
		assert_int_equal(r, -EAGAIN);
		assert_true(sent - before >= 8); /* at least eight pieces of 16 KiB fit */
		assert_true((uint64_t)(sent - before) * bytes <= 256 << 10);
		assert_int_equal(test_tx(&nic, self, sent, sent, data, bytes), -EAGAIN);
		nic.room = false;
		while (!nic.room || nic.received < sent)
			(void)test_poll(&nic);
		assert_int_equal(nic.received, sent);
		assert_int_equal(nic.headers.imm, sent - 1);
	}
	test_nic_close(&nic);
}

/* --- two processes
 * ---------------------------------------------------------------------------------- */

struct stream {
	uint64_t seed;
	uint64_t expected;
	bool bad;
};

static void check_stream(struct test_nic *n, void *arg)
{
	struct stream *s = arg;
	uint64_t seed = s->seed + s->expected;
	uint32_t bytes = test_random(&seed) % 5 ? test_random(&seed) % 300
						: test_random(&seed) % (VB_LOCAL_SEGMENT + 1);

	if (n->headers.imm != (uint32_t)s->expected || n->payload_bytes != bytes ||
	    !test_filled(n->payload, bytes, s->expected))
		s->bad = true;
	s->expected++;
}

/* Sends count packets and receives as many, at once. False: something was wrong. */
static bool exchange(struct test_nic *n, uint32_t qpn, uint64_t tx_seed, uint64_t rx_seed,
		     uint32_t count)
{
	struct stream s = {.seed = rx_seed};
	static uint8_t data[VB_LOCAL_SEGMENT];
	uint64_t from = n->received;
	uint32_t i;

	n->on_packet = check_stream;
	n->arg = &s;
	for (i = 0; i < count; i++) {
		uint64_t seed = tx_seed + i;
		uint32_t bytes = test_random(&seed) % 5
					 ? test_random(&seed) % 300
					 : test_random(&seed) % (VB_LOCAL_SEGMENT + 1);

		test_fill(data, bytes, i);
		if (test_tx_wait(n, qpn, i, i, data, bytes))
			return false;
		if (i % 16 == 0)
			(void)test_poll(n);
	}
	if (!test_wait_received(n, from + count) || n->received != from + count)
		return false;
	n->on_packet = NULL;
	return !s.bad;
}

enum { STRESS = 20000 };

static void stress_peer(struct test_nic *n, int fd, struct test_role *role)
{
	char c;

	if (!exchange(n, test_qpn(role->peer, 4), 1000, 900000, STRESS))
		_exit(3);
	test_send(fd, "d", 1);
	(void)test_receive(fd, &c, 1);
	test_nic_close(n);
}

static void streams_both_ways_arrive_whole_in_order_once(void **state)
{
	struct test_role role = {.address = test_address(34), .run = stress_peer};
	struct test_child child;
	uint16_t slot;
	char c;

	assert_int_equal(test_nic_open(&nic, &role.address), 0);
	role.peer = nic.registry->slot;
	slot = test_start_nic(&child, &role);
	assert_true(exchange(&nic, test_qpn(slot, 4), 900000, 1000, STRESS));
	assert_true(test_receive(child.fd, &c, 1));
	test_send(child.fd, "q", 1);
	assert_int_equal(test_join_child(&child), 0);
	assert_int_equal(test_poll(&nic), 0);
	test_nic_close(&nic);
}

/* Sends one packet and is gone. */
static void one_word(struct test_nic *n, int fd, struct test_role *role)
{
	uint32_t i;

	for (i = 0; i < role->number; i++)
		if (test_tx(n, test_qpn(role->peer, 4), i, i, "last words", 10))
			_exit(3);
	test_nic_close(n);
}

static void what_a_process_sent_before_it_left_still_arrives(void **state)
{
	struct test_role role = {.address = test_address(35), .run = one_word, .number = 1};
	struct test_child child;
	char name[40];
	uint16_t slot;
	int i;

	assert_int_equal(test_nic_open(&nic, &role.address), 0);
	role.peer = nic.registry->slot;
	for (i = 0; i < 30; i++) {
		uint64_t before = nic.received;

		role.number = 1 + (uint32_t)i % 3;
		slot = test_start_nic(&child, &role);
		assert_int_equal(test_join_child(&child), 0);
		/* It is gone for good, and what it said is here. */
		assert_false(vb_registry_is_alive(nic.registry, slot));
		assert_true(test_wait_received(&nic, before + role.number));
		assert_int_equal(nic.received, before + role.number);
		assert_int_equal(nic.payload_bytes, 10);
		assert_memory_equal(nic.payload, "last words", 10);
		assert_int_equal(test_poll(&nic), 0);
		snprintf(name, sizeof(name), "ring.%u.%u", slot, nic.registry->slot);
		assert_false(test_exists(&role.address, name));
		assert_int_equal(test_tx(&nic, test_qpn(slot, 1), 0, 0, "x", 1), -EHOSTUNREACH);
	}
	test_nic_close(&nic);
}

static void wait_to_die(struct test_nic *n, int fd, struct test_role *role)
{
	char c;

	if (role->number && test_tx(n, test_qpn(role->peer, 4), 0, 0, "x", 1))
		_exit(3);
	test_send(fd, "r", 1);
	if (role->number == 2 && test_wait_received(n, 1))
		test_send(fd, "g", 1);
	(void)test_receive(fd, &c, 1);
	_exit(0);
}

static void a_dead_peer_is_noticed_and_its_rings_are_given_back(void **state)
{
	struct test_role role = {.address = test_address(36), .run = wait_to_die, .number = 1};
	static uint8_t data[VB_LOCAL_SEGMENT];
	struct test_child child;
	uint64_t start;
	uint16_t slot;
	char c;
	int r, i;

	assert_int_equal(test_nic_open(&nic, &role.address), 0);
	role.peer = nic.registry->slot;
	slot = test_start_nic(&child, &role);
	assert_true(test_receive(child.fd, &c, 1));
	assert_true(test_wait_received(&nic, 1));
	assert_int_equal(test_tx(&nic, test_qpn(slot, 1), 0, 0, data, 100), 0);
	test_kill(&child);
	/* Into the ring of the dead for a while, as onto a wire; then it is known. */
	start = test_now_ms();
	do
		r = test_tx(&nic, test_qpn(slot, 1), 0, 0, data, 100);
	while (r == 0 && test_now_ms() - start < 10000);
	if (r == -EAGAIN) {
		for (nic.room = false; !nic.room && test_now_ms() - start < 10000;)
			(void)test_poll(&nic);
		r = test_tx(&nic, test_qpn(slot, 1), 0, 0, data, 100);
	}
	assert_int_equal(r, -EHOSTUNREACH);

	/* Full, and then it dies: who sleeps until there is room wakes up. */
	slot = test_start_nic(&child, &role);
	assert_true(test_receive(child.fd, &c, 1));
	while ((r = test_tx(&nic, test_qpn(slot, 1), 0, 0, data, VB_LOCAL_SEGMENT)) == 0)
		;
	assert_int_equal(r, -EAGAIN);
	test_kill(&child);
	for (nic.room = false; !nic.room;) {
		if (test_poll(&nic) == 0 && !nic.room)
			assert_true(test_sleep(&nic));
	}
	assert_int_equal(test_tx(&nic, test_qpn(slot, 1), 0, 0, data, 8), -EHOSTUNREACH);

	/* A successor in any slot is met afresh. */
	for (i = 0; i < 5; i++) {
		role.number = 2;
		slot = test_start_nic(&child, &role);
		assert_true(test_receive(child.fd, &c, 1));
		assert_int_equal(test_tx(&nic, test_qpn(slot, 1), 0, 0, data, 8), 0);
		test_kill(&child);
	}
	test_nic_close(&nic);
}

/* A process that takes one given slot, since all others are held by the test. */
static void a_successor_in_the_same_slot_is_met_afresh(void **state)
{
	struct test_role role = {.address = test_address(37), .run = wait_to_die, .number = 2};
	struct test_child child, next, holder;
	char dir[128], path[160], c;
	uint16_t slot, again;
	int round;

	assert_int_equal(test_nic_open(&nic, &role.address), 0);
	role.peer = nic.registry->slot;
	test_directory(&role.address, dir, sizeof(dir));
	snprintf(path, sizeof(path), "%s/reg", dir);
	slot = test_start_nic(&child, &role);
	assert_true(test_receive(child.fd, &c, 1));
	/* The holder takes every slot but theirs and ours. */
	{
		int pair[2];

		assert_return_code(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), errno);
		holder.pid = fork();
		if (holder.pid == 0) {
			unsigned int s;
			int fd = open(path, O_RDWR);

			close(pair[0]);
			for (s = 1; s < 511; s++) {
				struct flock l = {.l_type = F_WRLCK, .l_start = s, .l_len = 1};

				if (s != slot && s != role.peer && fcntl(fd, F_SETLK, &l))
					_exit(1);
			}
			test_send(pair[1], "h", 1);
			(void)test_receive(pair[1], &c, 1);
			_exit(0);
		}
		close(pair[1]);
		holder.fd = pair[0];
		assert_true(test_receive(holder.fd, &c, 1));
	}
	for (round = 0; round < 10; round++) {
		uint64_t before = nic.received;

		assert_true(test_wait_received(&nic, before + (round == 0)));
		assert_int_equal(test_tx(&nic, test_qpn(slot, 1), 0, 0, "x", 1), 0);
		assert_true(test_receive(child.fd, &c, 1)); /* it got the packet */
		test_kill(&child);
		again = test_start_nic(&next, &role);
		assert_int_equal(again, slot);
		assert_true(test_receive(next.fd, &c, 1));
		before = nic.received;
		assert_true(test_wait_received(&nic, before + 1));
		child = next;
	}
	test_kill(&child);
	test_kill(&holder);
	test_nic_close(&nic);
}

static void a_forked_child_drops_it_and_the_parent_goes_on(void **state)
{
	struct in6_addr address = test_address(38);
	struct test_nic mine;
	int status;
	pid_t pid;

	assert_int_equal(test_nic_open(&nic, &address), 0);
	assert_int_equal(test_tx(&nic, test_qpn(nic.registry->slot, 1), 1, 1, "x", 1), 0);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		vb_local_drop_in_child(nic.carrier);
		vb_registry_drop_in_child(nic.registry);
		if (test_nic_open(&mine, &address) ||
		    test_tx(&mine, test_qpn(mine.registry->slot, 1), 0, 0, "x", 1) ||
		    test_poll(&mine) != 1)
			_exit(1);
		test_nic_close(&mine);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(test_poll(&nic), 1);
	assert_int_equal(test_tx(&nic, test_qpn(nic.registry->slot, 1), 1, 1, "x", 1), 0);
	assert_int_equal(test_poll(&nic), 1);
	test_nic_close(&nic);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_packet_to_ourselves_arrives_whole),
		cmocka_unit_test(the_first_short_packet_goes_with_care),
		cmocka_unit_test(one_where_the_ring_only_seems_full_does_not),
		cmocka_unit_test(a_full_ring_refuses_short_packets_until_there_is_room),
		cmocka_unit_test(one_that_is_waited_for_says_so_for_itself_alone),
		cmocka_unit_test(nobody_there_is_an_error),
		cmocka_unit_test(a_slot_has_one_carrier_and_may_have_another_later),
		cmocka_unit_test(a_full_ring_says_so_and_then_that_there_is_room),
		cmocka_unit_test(streams_both_ways_arrive_whole_in_order_once),
		cmocka_unit_test(what_a_process_sent_before_it_left_still_arrives),
		cmocka_unit_test(a_dead_peer_is_noticed_and_its_rings_are_given_back),
		cmocka_unit_test(a_successor_in_the_same_slot_is_met_afresh),
		cmocka_unit_test(a_forked_child_drops_it_and_the_parent_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
