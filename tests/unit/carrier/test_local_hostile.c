/* SPDX-License-Identifier: BSD-2-Clause */
/* test_local_hostile.c - a process of our user that writes nonsense, or nothing, where we read. */
#include "local_helper.h"

#include "carrier/local_private.h"

static struct test_nic nic;

static struct vb_local *inside(struct test_nic *n)
{
	return vb_container_of(n->carrier, struct vb_local, base);
}

/* We are well: a packet to ourselves goes through, and nothing stands in the way of sleeping. late:
 * packets sent before that may come with it, since nobody was told of them. */
static void assert_well_with(uint64_t late)
{
	uint64_t before;
	int i;

	for (i = 0; i < 1000 && test_poll(&nic); i++)
		;
	before = nic.received;
	assert_int_equal(test_tx(&nic, test_qpn(nic.registry->slot, 1), 0, 0, "x", 1), 0);
	for (i = 0; i < 1000 && nic.received == before; i++)
		(void)test_poll(&nic);
	assert_in_range(nic.received, before + 1, before + 1 + late);
	assert_int_equal(nic.headers.qpn, test_qpn(nic.registry->slot, 1));
	for (i = 0; i < 1000 && !nic.carrier->ops->arm(nic.carrier); i++)
		(void)test_poll(&nic);
	assert_true(i < 1000);
	nic.carrier->ops->disarm(nic.carrier);
}

static void assert_well(void)
{
	assert_well_with(0);
}

/* A frame that lends, but for a sum, a count or a length. */
static void lend_nonsense(uint8_t *at, uint32_t number)
{
	const uint32_t bytes = number == 6 ? 2 * VB_LENT_BYTES : 6, size = VB_BTH_BYTES + 8 + 16;
	const uint32_t head[2] = {number == 4 ? bytes - 1 : bytes, number == 5 ? 9 : 1};
	const struct vb_lent_part part = {.va = 4096, .rkey = 1, .length = bytes};
	const uint32_t mark = size | 0x80000000u;

	memset(at, 0, 8 + size + 16);
	at[8] = vb_opcode(VB_TRANSPORT_RC, VB_OP_SEND_ONLY);
	memcpy(at + 8 + VB_BTH_BYTES, head, sizeof(head));
	memcpy(at + 8 + VB_BTH_BYTES + 8, &part, sizeof(part));
	__atomic_store_n((uint64_t *)(void *)at, (uint64_t)~mark << 32 | mark, __ATOMIC_RELEASE);
}

/* Overwrites marks and bytes of the ring to the test, and rings. */
static void scribble_ring(struct test_nic *n, int fd, struct test_role *role)
{
	uint64_t seed = 1 + role->number;
	struct vb_local_peer *peer;
	uint32_t i;
	char c;

	if (test_tx(n, test_qpn(role->peer, 1), 0, 0, "first", 5))
		_exit(3);
	test_send(fd, "r", 1);
	if (!test_receive(fd, &c, 1))
		_exit(4);
	peer = inside(n)->peers[role->peer];
	for (i = 0; i < 64; i++)
		((uint32_t *)peer->out.data)[test_random(&seed) % (role->number ? 16 : 65536)] =
			test_random(&seed);
	if (role->number == 1) /* a mark that is right, of a packet that is not */
		*(uint64_t *)(peer->out.data + 32) = (uint64_t)~13u << 32 | 13;
	if (role->number == 2)
		*(uint64_t *)(peer->out.data + 32) = (uint64_t)~40000u << 32 | 40000;
	if (role->number == 3)
		*(uint64_t *)(peer->out.data + 32) = (uint64_t)~11u << 32 | 11;
	if (role->number >= 4 && role->number <= 6)
		lend_nonsense(peer->out.data + 32, role->number);
	vb_local_bell_ring(inside(n), peer);
	test_send(fd, "s", 1);
	(void)test_receive(fd, &c, 1);
	_exit(0);
}

static void tolerant(void *env, const struct vb_rx *rx)
{
	struct test_nic *n = env;
	int r = vb_headers_decode(&n->headers, rx->data, rx->size);

	n->received++;
	if (r >= 0)
		n->payload_bytes = (uint32_t)rx->size - (uint32_t)r;
}

static void nonsense_in_a_ring_ends_that_ring(void **state)
{
	struct test_role role = {.address = test_address(50), .run = scribble_ring};
	struct test_child child;
	uint64_t before;
	int i;
	char c;

	assert_int_equal(test_nic_open(&nic, &role.address), 0);
	nic.carrier->deliver = tolerant;
	role.peer = nic.registry->slot;
	for (role.number = 0; role.number < 12; role.number++) {
		(void)test_start_nic(&child, &role);
		assert_true(test_receive(child.fd, &c, 1));
		before = nic.received;
		assert_true(test_wait_received(&nic, before + 1));
		test_send(child.fd, "g", 1);
		assert_true(test_receive(child.fd, &c, 1));
		for (i = 0; i < 100; i++)
			(void)test_poll(&nic);
		if (role.number >= 2 && role.number <= 6)
			assert_int_equal(nic.received, before + 1); /* no packet is like that */
		assert_well();
		test_kill(&child);
	}
	test_nic_close(&nic);
}

/* Reads one packet, then claims to have read what is not there. */
static void lying_consumer(struct test_nic *n, int fd, struct test_role *role)
{
	const uint64_t lies[] = {1ull << 40, 8, UINT64_MAX, UINT64_MAX - 15, 1ull << 63, 33};
	char c;

	test_send(fd, "r", 1);
	if (!test_wait_received(n, 1))
		_exit(3);
	inside(n)->area->consumed[role->peer].head = lies[role->number];
	test_send(fd, "l", 1);
	(void)test_receive(fd, &c, 1);
	_exit(0);
}

static void a_lying_consumer_gets_nothing_more(void **state)
{
	struct test_role role = {.address = test_address(51), .run = lying_consumer};
	static uint8_t data[VB_LOCAL_SEGMENT];
	struct test_child child;
	uint16_t slot;
	int i, r = 0;
	char c;

	assert_int_equal(test_nic_open(&nic, &role.address), 0);
	role.peer = nic.registry->slot;
	for (role.number = 0; role.number < 6; role.number++) {
		slot = test_start_nic(&child, &role);
		assert_true(test_receive(child.fd, &c, 1));
		assert_int_equal(test_tx(&nic, test_qpn(slot, 1), 0, 0, "x", 1), 0);
		assert_true(test_receive(child.fd, &c, 1));
		for (i = 0; i < 100 && r == 0; i++)
			r = test_tx(&nic, test_qpn(slot, 1), 0, 0, data, VB_LOCAL_SEGMENT);
		assert_int_equal(r, -EIO);
		assert_int_equal(test_tx(&nic, test_qpn(slot, 1), 0, 0, "x", 1), -EIO);
		r = 0;
		assert_well();
		test_kill(&child);
	}
	test_nic_close(&nic);
}

/* Writes random bits over the test's doorbells until it is killed. */
static void scribble_bell(struct test_nic *n, int fd, struct test_role *role)
{
	struct vb_local_peer *peer;
	uint64_t seed = 9;

	if (test_tx(n, test_qpn(role->peer, 1), 0, 0, "first", 5))
		_exit(3);
	peer = inside(n)->peers[role->peer];
	test_send(fd, "r", 1);
	for (;;) {
		uint32_t *words = (uint32_t *)&peer->bell->summary;

		words[test_random(&seed) % 48] = test_random(&seed);
	}
}

static void random_doorbells_cost_a_look(void **state)
{
	struct test_role role = {.address = test_address(52), .run = scribble_bell};
	struct vb_local_mr mr = {.rkey = 1, .pd_id = 1, .addr = 4096, .length = 1};
	struct test_child child;
	char c;
	int i;

	assert_int_equal(test_nic_open(&nic, &role.address), 0);
	role.peer = nic.registry->slot;
	(void)test_start_nic(&child, &role);
	assert_true(test_receive(child.fd, &c, 1));
	for (i = 0; i < 300; i++) {
		(void)test_poll(&nic);
		if (nic.carrier->ops->arm(nic.carrier))
			nic.carrier->ops->disarm(nic.carrier);
	}
	for (i = 0; i < 3; i++) {
		assert_int_equal(vb_local_publish_mr(nic.carrier, &mr), 0);
		assert_int_equal(vb_local_withdraw_mr(nic.carrier, 1), 0);
	}
	test_kill(&child);
	/* It may have written over its own doorbell before we saw it. */
	assert_well_with(nic.received == 0);
	test_nic_close(&nic);
}

/* Fills its tables with random entries; now and then an entry that nearly fits. */
static void scribble_tables(struct test_nic *n, int fd, struct test_role *role)
{
	struct vb_local_area *area = inside(n)->area;
	struct vb_local_mr mr = {.rkey = 7, .pd_id = 1, .access = 6, .addr = 4096, .length = 1};
	struct vb_local_qp qp = {.qpn = test_qpn(n->registry->slot, 5), .open = true};
	uint64_t seed = 3;

	if (vb_local_publish_mr(n->carrier, &mr))
		_exit(3);
	vb_local_publish_qp(n->carrier, &qp);
	test_send(fd, "r", 1);
	for (;;) {
		struct vb_local_mr_entry *m = &area->mrs[7];
		struct vb_local_qp_entry *q = &area->qps[5];

		q->seq = test_random(&seed) & 3;
		q->qpn = qp.qpn;
		q->dest_qpn = test_qpn(role->peer, 5);
		q->pd_id = m->pd_id = test_random(&seed) & 1;
		q->access = m->access = test_random(&seed);
		q->open = test_random(&seed) & 1;
		m->seq = test_random(&seed) & 3;
		m->rkey = 7;
		m->addr = (uint64_t)test_random(&seed) << (test_random(&seed) % 33);
		m->iova = (uint64_t)test_random(&seed) << (test_random(&seed) % 33);
		m->length = (uint64_t)test_random(&seed) << (test_random(&seed) % 33);
	}
}

static void random_tables_are_refused_or_hit_their_owner(void **state)
{
	struct test_role role = {.address = test_address(53), .run = scribble_tables};
	static uint8_t data[256];
	struct iovec part = {data, sizeof(data)};
	struct test_child child;
	uint64_t seed = 4;
	uint16_t slot;
	char c;
	int i;

	assert_int_equal(test_nic_open(&nic, &role.address), 0);
	role.peer = nic.registry->slot;
	slot = test_start_nic(&child, &role);
	assert_true(test_receive(child.fd, &c, 1));
	for (i = 0; i < 20000; i++)
		(void)vb_local_direct(nic.carrier, false, test_qpn(nic.registry->slot, 5),
				      test_qpn(slot, 5), 7,
				      (uint64_t)test_random(&seed) << (test_random(&seed) % 33),
				      &part, 1, 1 + test_random(&seed) % 256);
	assert_int_equal(inside(&nic)->area->hazard, 0);
	test_kill(&child);
	assert_well();
	test_nic_close(&nic);
}

/* Spoils its own files before anybody has looked at them. */
static void spoiler(struct test_nic *n, int fd, struct test_role *role)
{
	struct vb_local_area *area = inside(n)->area;
	char dir[128], name[32], path[200], c;

	test_directory(&role->address, dir, sizeof(dir));
	snprintf(name, sizeof(name), "%s.%u", role->number % 2 ? "bell" : "seg", n->registry->slot);
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	switch (role->number / 2) {
	case 0:
		if (truncate(path, 0))
			_exit(3);
		break;
	case 1:
		if (truncate(path, 100))
			_exit(3);
		break;
	case 2:
		if (unlink(path))
			_exit(3);
		break;
	case 3:
		if (unlink(path) || mkdir(path, 0700))
			_exit(3);
		break;
	case 4: {
		int raw = open(path, O_WRONLY);

		if (pwrite(raw, "garbage!garbage!garbage!", 24, 0) != 24)
			_exit(3);
		break;
	}
	case 5:
		area->wake_length = role->number % 2 ? UINT32_MAX : 0;
		break;
	default:
		area->version = 77;
	}
	test_send(fd, "r", 1);
	(void)test_receive(fd, &c, 1);
	if (role->number / 2 == 3)
		(void)rmdir(path);
	_exit(0);
}

static void spoiled_files_are_not_used(void **state)
{
	struct test_role role = {.address = test_address(54), .run = spoiler};
	static uint8_t data[8];
	struct iovec part = {data, sizeof(data)};
	struct test_child child;
	uint16_t slot;
	char c;

	assert_int_equal(test_nic_open(&nic, &role.address), 0);
	role.peer = nic.registry->slot;
	for (role.number = 0; role.number < 14; role.number++) {
		slot = test_start_nic(&child, &role);
		assert_true(test_receive(child.fd, &c, 1));
		assert_true(test_tx(&nic, test_qpn(slot, 1), 0, 0, "x", 1) < 0);
		assert_true(vb_local_direct(nic.carrier, true, test_qpn(nic.registry->slot, 5),
					    test_qpn(slot, 5), 7, 0, &part, 1, 8) < 0);
		assert_well();
		assert_int_equal(test_join_child(&child), 0);
	}
	test_nic_close(&nic);
}

/* Leaves a ring that is too short, or for another carrier, and rings for it. */
static void bad_ring(struct test_nic *n, int fd, struct test_role *role)
{
	struct vb_local_peer *peer;
	char dir[128], path[200], c;

	if (test_tx(n, test_qpn(role->peer, 1), 0, 0, "first", 5))
		_exit(3);
	peer = inside(n)->peers[role->peer];
	test_directory(&role->address, dir, sizeof(dir));
	snprintf(path, sizeof(path), "%s/ring.%u.%u", dir, n->registry->slot, role->peer);
	if (role->number == 0 && truncate(path, 4096))
		_exit(4);
	if (role->number == 1)
		peer->out.ring->consumer_id ^= 2;
	if (role->number == 2)
		peer->out.ring->ring_id = 0;
	if (role->number == 3)
		peer->out.ring->header.bytes = 4096;
	if (role->number == 4 && (unlink(path) || mkfifo(path, 0600)))
		_exit(4);
	test_send(fd, "r", 1);
	(void)test_receive(fd, &c, 1);
	_exit(0);
}

static void a_bad_ring_is_not_opened(void **state)
{
	struct test_role role = {.address = test_address(55), .run = bad_ring};
	struct test_child child;
	uint64_t before;
	char c;
	int i;

	assert_int_equal(test_nic_open(&nic, &role.address), 0);
	role.peer = nic.registry->slot;
	for (role.number = 0; role.number < 5; role.number++) {
		(void)test_start_nic(&child, &role);
		assert_true(test_receive(child.fd, &c, 1));
		before = nic.received;
		for (i = 0; i < 100; i++)
			(void)test_poll(&nic);
		assert_int_equal(nic.received, before);
		assert_well();
		test_kill(&child);
	}
	test_nic_close(&nic);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nonsense_in_a_ring_ends_that_ring),
		cmocka_unit_test(a_lying_consumer_gets_nothing_more),
		cmocka_unit_test(random_doorbells_cost_a_look),
		cmocka_unit_test(random_tables_are_refused_or_hit_their_owner),
		cmocka_unit_test(spoiled_files_are_not_used),
		cmocka_unit_test(a_bad_ring_is_not_opened),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
