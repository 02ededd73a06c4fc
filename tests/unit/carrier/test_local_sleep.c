/* SPDX-License-Identifier: BSD-2-Clause */
/* test_local_sleep.c - who sleeps on the carrier's descriptor is woken by every packet, and by
 * nothing for long. */
#include "local_helper.h"

#include "carrier/local_private.h"

#include <signal.h>
#include <sys/wait.h>

static struct test_nic nic;

static struct vb_local *inside(struct test_nic *n)
{
	return vb_container_of(n->carrier, struct vb_local, base);
}

static bool is_readable(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, timeout_ms) == 1;
}

static void arming_says_when_something_waits(void **state)
{
	struct in6_addr address = test_address(40);
	const struct vb_carrier_ops *ops;
	uint32_t self;

	assert_int_equal(test_nic_open(&nic, &address), 0);
	ops = nic.carrier->ops;
	self = test_qpn(nic.registry->slot, 1);
	assert_true(ops->arm(nic.carrier));
	assert_false(is_readable(nic.carrier->fd, 0));
	assert_int_equal(test_tx(&nic, self, 0, 0, "x", 1), 0);
	assert_true(is_readable(nic.carrier->fd, 0));
	ops->disarm(nic.carrier);
	assert_false(is_readable(nic.carrier->fd, 0));
	assert_false(ops->arm(nic.carrier)); /* the packet is still there */
	assert_int_equal(test_poll(&nic), 1);
	assert_true(ops->arm(nic.carrier));
	assert_false(is_readable(nic.carrier->fd, 0));
	ops->disarm(nic.carrier);
	/* Not armed: nobody is woken. */
	assert_int_equal(test_tx(&nic, self, 0, 0, "x", 1), 0);
	assert_false(is_readable(nic.carrier->fd, 0));
	assert_int_equal(test_poll(&nic), 1);

	/* A budget that does not cover what is there leaves it there. */
	assert_int_equal(test_tx(&nic, self, 0, 0, "x", 1), 0);
	assert_int_equal(test_tx(&nic, self, 0, 0, "x", 1), 0);
	assert_int_equal(ops->poll(nic.carrier, 1, &nic.room), 1);
	assert_false(ops->arm(nic.carrier));
	assert_int_equal(ops->poll(nic.carrier, 1, &nic.room), 1);
	(void)test_poll(&nic);
	assert_true(ops->arm(nic.carrier));
	ops->disarm(nic.carrier);
	test_nic_close(&nic);
}

static void a_flood_from_strangers_is_read_away(void **state)
{
	struct in6_addr address = test_address(41);
	const struct vb_carrier_ops *ops;
	struct sockaddr_storage bound;
	char path[64];
	FILE *f;
	char line[256];
	int i, fd = socket(AF_UNIX, SOCK_DGRAM, 0), hits = 0;

	assert_int_equal(test_nic_open(&nic, &address), 0);
	ops = nic.carrier->ops;
	snprintf(path, sizeof(path), "@verbena.%u.", nic.registry->slot);
	f = fopen("/proc/net/unix", "r");
	assert_non_null(f);
	memset(&bound, 0, sizeof(bound));
	while (fgets(line, sizeof(line), f)) {
		char *at = strstr(line, path);

		if (!at)
			continue;
		at[strcspn(at, "\n")] = 0;
		for (i = 0; i < 200; i++) {
			struct {
				sa_family_t family;
				char name[100];
			} to = {AF_UNIX, {0}};

			memcpy(&to.name[1], at + 1, strlen(at + 1));
			(void)sendto(fd, "junk that nobody reads", 22, MSG_DONTWAIT,
				     (struct sockaddr *)&to,
				     (socklen_t)(sizeof(sa_family_t) + strlen(at)));
		}
		hits++;
	}
	fclose(f);
	assert_true(hits >= 1);
	assert_true(is_readable(nic.carrier->fd, 0));
	for (i = 0; i < 100 && is_readable(nic.carrier->fd, 0); i++)
		ops->disarm(nic.carrier);
	assert_false(is_readable(nic.carrier->fd, 0));
	assert_int_equal(test_tx(&nic, test_qpn(nic.registry->slot, 1), 0, 0, "x", 1), 0);
	assert_int_equal(test_poll(&nic), 1);
	close(fd);
	test_nic_close(&nic);
}

/* What a process does on its way to wake another one; the linker takes this one for the carrier,
 * too. */
static int signal_at_wake;

ssize_t sendto(int fd, const void *data, size_t bytes, int flags, const struct sockaddr *to,
	       socklen_t to_bytes)
{
	struct iovec part = {(void *)(uintptr_t)data, bytes};
	struct msghdr message = {
		.msg_name = (void *)(uintptr_t)to,
		.msg_namelen = to_bytes,
		.msg_iov = &part,
		.msg_iovlen = 1,
	};

	if (signal_at_wake)
		raise(signal_at_wake);
	return sendmsg(fd, &message, flags);
}

static void one_packet(struct test_nic *n, int fd, struct test_role *role)
{
	char c;

	if (!test_receive(fd, &c, 1))
		_exit(3);
	signal_at_wake = (int)role->number;
	if (test_tx(n, test_qpn(role->peer, 1), 0, 0, "x", 1))
		_exit(4);
	signal_at_wake = 0;
	test_send(fd, "s", 1);
	(void)test_receive(fd, &c, 1);
	test_nic_close(n);
}

/* The first is killed, or stopped, when it has rung and before its wake-up has left. */
static void who_rings_later_wakes(int signal)
{
	struct test_role role = {.address = test_address(44), .run = one_packet};
	struct test_child children[2];
	int status;
	char c;

	assert_int_equal(test_nic_open(&nic, &role.address), 0);
	role.peer = nic.registry->slot;
	for (int i = 0; i < 2; i++) {
		role.number = i == 0 ? (uint32_t)signal : 0;
		(void)test_start_nic(&children[i], &role);
	}
	assert_true(nic.carrier->ops->arm(nic.carrier));
	test_send(children[0].fd, "g", 1);
	assert_int_equal(waitpid(children[0].pid, &status, WUNTRACED), children[0].pid);
	assert_true(signal == SIGKILL ? WIFSIGNALED(status) : WIFSTOPPED(status));
	assert_false(is_readable(nic.carrier->fd, 0));
	test_send(children[1].fd, "g", 1);
	assert_true(test_receive(children[1].fd, &c, 1));
	assert_true(is_readable(nic.carrier->fd, 0));
	nic.carrier->ops->disarm(nic.carrier);
	while (test_poll(&nic))
		;
	assert_int_equal(nic.received, 2); /* what the first had said, too */
	if (signal == SIGKILL) {
		close(children[0].fd);
	} else {
		/* It goes on while its owner sleeps once more, which is not to end that. */
		assert_true(nic.carrier->ops->arm(nic.carrier));
		assert_int_equal(kill(children[0].pid, SIGCONT), 0);
		assert_true(test_receive(children[0].fd, &c, 1));
		assert_true(is_readable(nic.carrier->fd, 0));
		assert_int_not_equal(inside(&nic)->bell->armed, 0);
		nic.carrier->ops->disarm(nic.carrier);
		test_send(children[0].fd, "q", 1);
		assert_int_equal(test_join_child(&children[0]), 0);
	}
	test_send(children[1].fd, "q", 1);
	assert_int_equal(test_join_child(&children[1]), 0);
	test_nic_close(&nic);
}

static void one_killed_on_its_way_to_wake_keeps_nobody_asleep(void **state)
{
	who_rings_later_wakes(SIGKILL);
}

static void one_stopped_on_its_way_to_wake_keeps_nobody_asleep(void **state)
{
	who_rings_later_wakes(SIGSTOP);
}

enum { ROUNDS = 3000 };

/* Answers each packet; sleeps whenever nothing is there, after a random number of empty polls. */
static bool ping_pong(struct test_nic *n, uint32_t qpn, bool first, uint64_t seed)
{
	uint64_t i;

	for (i = 0; i < ROUNDS; i++) {
		if ((first || i > 0) && test_tx(n, qpn, (uint32_t)i, 0, &i, sizeof(i)))
			return false;
		for (uint32_t spin = test_random(&seed) % 40; n->received <= i && spin; spin--)
			(void)test_poll(n);
		if (!test_wait_received(n, i + 1))
			return false;
	}
	return first || test_tx(n, qpn, 0, 0, &i, sizeof(i)) == 0;
}

static void pong(struct test_nic *n, int fd, struct test_role *role)
{
	struct vb_local_counters counters;
	char c;

	if (!ping_pong(n, test_qpn(role->peer, 1), false, 7))
		_exit(3);
	vb_local_read_counters(n->carrier, &counters);
	test_send(fd, &counters.wakeups_sent, sizeof(counters.wakeups_sent));
	(void)test_receive(fd, &c, 1);
	test_nic_close(n);
}

static void no_wake_up_is_lost(void **state)
{
	struct test_role role = {.address = test_address(42), .run = pong};
	struct vb_local_counters counters;
	struct test_child child;
	uint64_t wakeups;
	uint16_t slot;

	assert_int_equal(test_nic_open(&nic, &role.address), 0);
	role.peer = nic.registry->slot;
	slot = test_start_nic(&child, &role);
	assert_true(ping_pong(&nic, test_qpn(slot, 1), true, 3));
	assert_true(test_receive(child.fd, &wakeups, sizeof(wakeups)));
	vb_local_read_counters(nic.carrier, &counters);
	assert_true(wakeups + counters.wakeups_sent > 0); /* there was sleep to be woken from */
	assert_true(wakeups <= ROUNDS && counters.wakeups_sent <= ROUNDS);
	test_send(child.fd, "q", 1);
	assert_int_equal(test_join_child(&child), 0);
	test_nic_close(&nic);
}

enum { BULK = 3000 };

static void slow_reader(struct test_nic *n, int fd, struct test_role *role)
{
	uint64_t seed = 11;

	while (n->received < BULK) {
		if (test_random(&seed) % 8 == 0)
			usleep(test_random(&seed) % 300);
		if (n->carrier->ops->poll(n->carrier, 1 + (int)(test_random(&seed) % 40),
					  &n->room) == 0 &&
		    !test_sleep(n))
			_exit(3);
	}
	test_send(fd, &n->received, sizeof(n->received));
	test_nic_close(n);
}

static void a_producer_that_sleeps_for_room_is_woken(void **state)
{
	struct test_role role = {.address = test_address(43), .run = slow_reader};
	static uint8_t data[VB_LOCAL_SEGMENT];
	struct test_child child;
	uint64_t got, seed = 5;
	uint16_t slot;
	uint32_t i;

	assert_int_equal(test_nic_open(&nic, &role.address), 0);
	role.peer = nic.registry->slot;
	slot = test_start_nic(&child, &role);
	for (i = 0; i < BULK; i++)
		assert_int_equal(test_tx_wait(&nic, test_qpn(slot, 1), i, i, data,
					      test_random(&seed) % (VB_LOCAL_SEGMENT + 1)),
				 0);
	assert_true(test_receive(child.fd, &got, sizeof(got)));
	assert_int_equal(got, BULK);
	assert_int_equal(test_join_child(&child), 0);
	test_nic_close(&nic);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arming_says_when_something_waits),
		cmocka_unit_test(a_flood_from_strangers_is_read_away),
		cmocka_unit_test(one_killed_on_its_way_to_wake_keeps_nobody_asleep),
		cmocka_unit_test(one_stopped_on_its_way_to_wake_keeps_nobody_asleep),
		cmocka_unit_test(no_wake_up_is_lost),
		cmocka_unit_test(a_producer_that_sleeps_for_room_is_woken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
