/* SPDX-License-Identifier: BSD-2-Clause */
/* test_local_follow.c - rings without doorbells: when, and that nothing is lost where that ends. */
#include "local_helper.h"

#include "carrier/local_private.h"

#define BUSY 64 /* packets since the last sleep */
#define SELDOM 24

static struct test_nic nic;

static struct vb_local *inside(struct test_nic *n)
{
	return vb_container_of(n->carrier, struct vb_local, base);
}

static void say(struct test_nic *n, int packets)
{
	for (int i = 0; i < packets; i++)
		assert_int_equal(test_tx(n, test_qpn(n->registry->slot, 1), 0, 0, "x", 1), 0);
}

static void say_and_hear(struct test_nic *n, int times)
{
	for (int i = 0; i < times; i++) {
		say(n, 1);
		assert_int_equal(test_poll(n), 1);
	}
}

static bool has_rung(struct test_nic *n)
{
	return __atomic_load_n(&inside(n)->bell->summary, __ATOMIC_SEQ_CST);
}

static void a_busy_ring_needs_no_doorbell_until_its_reader_sleeps(void **state)
{
	struct in6_addr address = test_address(110);
	const struct vb_carrier_ops *ops;

	assert_int_equal(test_nic_open(&nic, &address), 0);
	ops = nic.carrier->ops;
	assert_true(inside(&nic)->barriers); /* Linux 4.16 */
	say_and_hear(&nic, BUSY - 1);
	say(&nic, 1);
	assert_true(has_rung(&nic));
	assert_int_equal(test_poll(&nic), 1);
	say(&nic, 1);
	assert_false(has_rung(&nic));
	assert_false(ops->arm(nic.carrier)); /* it is there all the same */
	assert_int_equal(test_poll(&nic), 1);
	assert_true(ops->arm(nic.carrier));
	say(&nic, 1);
	assert_true(has_rung(&nic));
	ops->disarm(nic.carrier);
	assert_int_equal(test_poll(&nic), 1);
	test_nic_close(&nic);
}

static void who_sleeps_between_packets_has_doorbells(void **state)
{
	struct in6_addr address = test_address(111);

	assert_int_equal(test_nic_open(&nic, &address), 0);
	for (int i = 0; i < 2 * BUSY; i++) {
		say(&nic, 1);
		assert_true(has_rung(&nic));
		assert_int_equal(test_poll(&nic), 1);
		assert_true(nic.carrier->ops->arm(nic.carrier));
		nic.carrier->ops->disarm(nic.carrier);
	}
	test_nic_close(&nic);
}

static void where_barriers_are_forbidden_nobody_is_followed(void **state)
{
	struct in6_addr address = test_address(112);

	assert_int_equal(test_nic_open(&nic, &address), 0);
	inside(&nic)->barriers = false;
	say_and_hear(&nic, 2 * BUSY);
	say(&nic, 1);
	assert_true(has_rung(&nic));
	assert_int_equal(test_poll(&nic), 1);
	test_nic_close(&nic);
}

/* Polls until it is worth it, each time ns later: how many were not. The packets are another's, as
 * it were. */
static int polls_left_out(struct test_nic *n, int packets, uint64_t ns)
{
	static uint64_t now_ns;
	int polls = 0;

	now_ns += ns;
	say(n, packets);
	inside(n)->pace.spoke = false;
	while (!vb_local_is_worth_a_look(n->carrier))
		polls++;
	assert_int_equal(test_poll(n), packets);
	vb_local_note_look(n->carrier, packets, now_ns);
	return polls;
}

static void who_polls_slowly_looks_each_time(void **state)
{
	struct in6_addr address = test_address(115);
	int tries = 0;

	assert_int_equal(test_nic_open(&nic, &address), 0);
	say_and_hear(&nic, BUSY);
	for (int i = 0; i < 10 * BUSY; i++)
		assert_int_equal(polls_left_out(&nic, 1, 20000), 0);
	while (polls_left_out(&nic, 1, 1000) == 0)
		assert_true(++tries <= BUSY + 1);
	/* Who becomes slow is late once. */
	assert_int_equal(polls_left_out(&nic, 5, 20000), SELDOM);
	assert_int_equal(polls_left_out(&nic, 5, 20000), 0);
	test_nic_close(&nic);
}

static void a_stream_is_looked_at_now_and_then(void **state)
{
	struct in6_addr address = test_address(113);
	int tries = 0;

	assert_int_equal(test_nic_open(&nic, &address), 0);
	say_and_hear(&nic, BUSY);
	while (polls_left_out(&nic, 1, 1000) == 0)
		assert_true(++tries <= BUSY + 1);
	/* It pays, for a while; then not. */
	for (int i = 0; i < 1000; i++)
		assert_int_equal(polls_left_out(&nic, 5, 1000), SELDOM);
	/* A look takes 32 at most: the rest is not kept waiting. */
	say(&nic, 35);
	inside(&nic)->pace.spoke = false;
	assert_int_equal(test_poll(&nic), 32);
	vb_local_note_look(nic.carrier, 32, inside(&nic)->pace.found_ns + 1);
	assert_true(vb_local_is_worth_a_look(nic.carrier));
	assert_int_equal(test_poll(&nic), 3);
	vb_local_note_look(nic.carrier, 3, inside(&nic)->pace.found_ns + 1);
	for (int i = 0; i < 4; i++)
		assert_int_equal(polls_left_out(&nic, 1, 1000), SELDOM);
	assert_int_equal(polls_left_out(&nic, 1, 1000), 0);

	for (tries = 0; polls_left_out(&nic, 1, 1000) == 0; tries++)
		assert_true(tries < 2 * BUSY);
	assert_true(tries >= BUSY); /* later than the first time */
	/* Who said something may wait for the answer. */
	say(&nic, 2);
	assert_true(vb_local_is_worth_a_look(nic.carrier));
	assert_int_equal(test_poll(&nic), 2);
	vb_local_note_look(nic.carrier, 2, 0);
	assert_int_equal(polls_left_out(&nic, 1, 1000), 0);
	test_nic_close(&nic);
}

enum { ROUNDS = 400 };

/* Bursts that make the other follow; each ends where it is answered. */
static void bursts(struct test_nic *n, int fd, struct test_role *role)
{
	uint64_t seed = 3, sent = 0;
	char c;

	for (uint64_t i = 0; i < ROUNDS; i++) {
		uint32_t burst = BUSY + 1 + test_random(&seed) % 100;

		test_send(fd, &burst, sizeof(burst));
		for (; burst > 0; burst--) {
			if (test_tx_wait(n, test_qpn(role->peer, 1), 0, 0, &sent, sizeof(sent)))
				_exit(3);
			sent++;
			for (uint32_t spin = test_random(&seed) % 64; spin; spin--)
				__asm__ volatile("");
		}
		if (!test_wait_received(n, i + 1))
			_exit(4);
	}
	(void)test_receive(fd, &c, 1);
	test_nic_close(n);
}

static void nothing_is_lost_between_looking_and_sleeping(void **state)
{
	struct test_role role = {.address = test_address(114), .run = bursts};
	unsigned int followed = 0, slept = 0;
	uint64_t expected = 0, seed = 5;
	struct test_child child;
	uint16_t slot;

	assert_int_equal(test_nic_open(&nic, &role.address), 0);
	role.peer = nic.registry->slot;
	slot = test_start_nic(&child, &role);
	for (int i = 0; i < ROUNDS; i++) {
		uint32_t burst;

		assert_true(test_receive(child.fd, &burst, sizeof(burst)));
		expected += burst;
		while (nic.received < expected) {
			uint32_t spin = test_random(&seed) % 400;

			while (spin && !test_poll(&nic))
				spin--;
			followed += inside(&nic)->followed_count;
			if (spin || nic.received == expected)
				continue;
			slept++;
			assert_true(test_sleep(&nic));
		}
		assert_int_equal(nic.received, expected);
		assert_int_equal(test_tx(&nic, test_qpn(slot, 1), 0, 0, "x", 1), 0);
	}
	assert_true(followed > 0 && slept > 0);
	test_send(child.fd, "q", 1);
	assert_int_equal(test_join_child(&child), 0);
	test_nic_close(&nic);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_busy_ring_needs_no_doorbell_until_its_reader_sleeps),
		cmocka_unit_test(who_sleeps_between_packets_has_doorbells),
		cmocka_unit_test(where_barriers_are_forbidden_nobody_is_followed),
		cmocka_unit_test(who_polls_slowly_looks_each_time),
		cmocka_unit_test(a_stream_is_looked_at_now_and_then),
		cmocka_unit_test(nothing_is_lost_between_looking_and_sleeping),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
