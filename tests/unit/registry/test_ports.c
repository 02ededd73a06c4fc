/* SPDX-License-Identifier: BSD-2-Clause */
/* test_ports.c - the ports of a host: one owner each, claims counted, free when the owner is gone.
 */
#include "registry_helper.h"

#include "registry/ports.h"

#define BOTH (VB_PORT_IPV4 | VB_PORT_IPV6)

static struct vb_registry *join(unsigned int n)
{
	struct in6_addr address = test_address(n);
	struct vb_registry *registry;

	assert_int_equal(vb_registry_join(&registry, &address), 0);
	return registry;
}

static int claim(struct vb_registry *r, uint16_t space, unsigned int families, uint16_t port)
{
	return vb_ports_claim(r, space, families, &port);
}

/* --- another process of the host, told what to do ---------------------------------------- */

enum verb { CLAIM, RELEASE, LISTEN, UNLISTEN, LISTENER, CLAIM_ALL, LEAVE };

struct order {
	enum verb verb;
	uint16_t space, port;
	unsigned int families;
};

struct answer {
	int result;
	uint16_t port, slot;
};

static struct answer obey(struct vb_registry *r, const struct order *order)
{
	struct answer answer = {.port = order->port, .slot = r->slot};

	switch (order->verb) {
	case CLAIM:
		answer.result = vb_ports_claim(r, order->space, order->families, &answer.port);
		break;
	case RELEASE:
		vb_ports_release(r, order->space, order->families, order->port);
		break;
	case LISTEN:
	case UNLISTEN:
		vb_ports_set_listening(r, order->space, order->families, order->port,
				       order->verb == LISTEN);
		break;
	case LISTENER:
		answer.result = vb_ports_listener(
			r, order->space, (enum vb_port_families)order->families, order->port);
		break;
	case CLAIM_ALL: /* how many ephemeral ones there were */
		for (;;) {
			answer.port = 0;
			if (vb_ports_claim(r, order->space, order->families, &answer.port))
				break;
			answer.result++;
		}
		break;
	case LEAVE:
		break;
	}
	return answer;
}

static void process(int fd, void *arg)
{
	struct vb_registry *registry;
	struct order order = {.verb = CLAIM};

	if (vb_registry_join(&registry, arg))
		_exit(1);
	while (order.verb != LEAVE && test_receive(fd, &order, sizeof(order))) {
		struct answer answer = obey(registry, &order);

		test_send(fd, &answer, sizeof(answer));
	}
	vb_registry_leave(registry);
}

static struct answer tell(struct test_child *child, enum verb verb, uint16_t space,
			  unsigned int families, uint16_t port)
{
	struct order order = {.verb = verb, .space = space, .families = families, .port = port};
	struct answer answer;

	test_send(child->fd, &order, sizeof(order));
	assert_true(test_receive(child->fd, &answer, sizeof(answer)));
	return answer;
}

static struct test_child other(struct in6_addr *address)
{
	return test_fork(process, address);
}

/* --- tests ------------------------------------------------------------------------------- */

static void a_port_has_one_owner(void **state)
{
	struct in6_addr address = test_address(0);
	struct vb_registry *r = join(0);
	struct test_child child = other(&address);

	assert_int_equal(claim(r, VB_PS_TCP, VB_PORT_IPV4, 7174), 0);
	assert_int_equal(tell(&child, CLAIM, VB_PS_TCP, VB_PORT_IPV4, 7174).result, -EADDRINUSE);
	/* another family, another port space, another port */
	assert_int_equal(tell(&child, CLAIM, VB_PS_TCP, VB_PORT_IPV6, 7174).result, 0);
	assert_int_equal(tell(&child, CLAIM, VB_PS_UDP, VB_PORT_IPV4, 7174).result, 0);
	assert_int_equal(tell(&child, CLAIM, VB_PS_IB, VB_PORT_IPV4, 7174).result, 0);
	assert_int_equal(tell(&child, CLAIM, VB_PS_IPOIB, VB_PORT_IPV4, 7174).result, 0);
	assert_int_equal(tell(&child, CLAIM, VB_PS_TCP, VB_PORT_IPV4, 7175).result, 0);
	assert_int_equal(tell(&child, CLAIM, VB_PS_TCP, VB_PORT_IPV4, 65535).result, 0);
	vb_ports_release(r, VB_PS_TCP, VB_PORT_IPV4, 7174);
	assert_int_equal(tell(&child, CLAIM, VB_PS_TCP, VB_PORT_IPV4, 7174).result, 0);
	assert_int_equal(claim(r, VB_PS_TCP, VB_PORT_IPV4, 7174), -EADDRINUSE);
	/* what is another's cannot be released */
	vb_ports_release(r, VB_PS_TCP, VB_PORT_IPV4, 7174);
	assert_int_equal(claim(r, VB_PS_TCP, VB_PORT_IPV4, 7174), -EADDRINUSE);
	(void)tell(&child, LEAVE, 0, 0, 0);
	assert_int_equal(test_join_child(&child), 0);
	assert_int_equal(claim(r, VB_PS_TCP, VB_PORT_IPV4, 7174), 0);
	vb_registry_leave(r);
}

static void families_are_taken_together(void **state)
{
	struct in6_addr address = test_address(1);
	struct vb_registry *r = join(1);
	struct test_child child = other(&address);

	assert_int_equal(tell(&child, CLAIM, VB_PS_TCP, VB_PORT_IPV6, 5000).result, 0);
	assert_int_equal(claim(r, VB_PS_TCP, BOTH, 5000), -EADDRINUSE);
	/* and the IPv4 one was given back */
	assert_int_equal(tell(&child, CLAIM, VB_PS_TCP, VB_PORT_IPV4, 5000).result, 0);
	assert_int_equal(claim(r, VB_PS_TCP, BOTH, 5001), 0);
	assert_int_equal(tell(&child, CLAIM, VB_PS_TCP, VB_PORT_IPV4, 5001).result, -EADDRINUSE);
	assert_int_equal(tell(&child, CLAIM, VB_PS_TCP, VB_PORT_IPV6, 5001).result, -EADDRINUSE);
	vb_ports_release(r, VB_PS_TCP, VB_PORT_IPV6, 5001);
	assert_int_equal(tell(&child, CLAIM, VB_PS_TCP, VB_PORT_IPV6, 5001).result, 0);
	assert_int_equal(tell(&child, CLAIM, VB_PS_TCP, VB_PORT_IPV4, 5001).result, -EADDRINUSE);
	test_kill(&child);
	vb_registry_leave(r);
}

static void claims_of_one_process_are_counted(void **state)
{
	struct in6_addr address = test_address(2);
	struct vb_registry *r = join(2);
	struct test_child child = other(&address);
	unsigned int i;

	for (i = 0; i < 255; i++)
		assert_int_equal(claim(r, VB_PS_TCP, BOTH, 80), 0);
	assert_int_equal(claim(r, VB_PS_TCP, BOTH, 80), -EADDRINUSE);
	for (i = 0; i < 255; i++) {
		assert_int_equal(tell(&child, CLAIM, VB_PS_TCP, BOTH, 80).result, -EADDRINUSE);
		vb_ports_release(r, VB_PS_TCP, BOTH, 80);
	}
	vb_ports_release(r, VB_PS_TCP, BOTH, 80); /* one too many does nothing */
	assert_int_equal(tell(&child, CLAIM, VB_PS_TCP, BOTH, 80).result, 0);
	test_kill(&child);
	vb_registry_leave(r);
}

static void a_listener_is_found_while_it_listens(void **state)
{
	struct in6_addr address = test_address(3);
	struct vb_registry *r = join(3);
	struct test_child child = other(&address);
	uint16_t slot = tell(&child, CLAIM, VB_PS_TCP, BOTH, 7471).slot;

	assert_int_equal(vb_ports_listener(r, VB_PS_TCP, VB_PORT_IPV4, 7471), 0);
	(void)tell(&child, LISTEN, VB_PS_TCP, BOTH, 7471);
	assert_int_equal(vb_ports_listener(r, VB_PS_TCP, VB_PORT_IPV4, 7471), slot);
	assert_int_equal(vb_ports_listener(r, VB_PS_TCP, VB_PORT_IPV6, 7471), slot);
	assert_int_equal(vb_ports_listener(r, VB_PS_UDP, VB_PORT_IPV4, 7471), 0);
	assert_int_equal(vb_ports_listener(r, VB_PS_TCP, VB_PORT_IPV4, 7472), 0);
	assert_int_equal(tell(&child, LISTENER, VB_PS_TCP, VB_PORT_IPV4, 7471).result, slot);
	(void)tell(&child, UNLISTEN, VB_PS_TCP, VB_PORT_IPV4, 7471);
	assert_int_equal(vb_ports_listener(r, VB_PS_TCP, VB_PORT_IPV4, 7471), 0);
	assert_int_equal(vb_ports_listener(r, VB_PS_TCP, VB_PORT_IPV6, 7471), slot);
	/* not its port: not its listener */
	vb_ports_set_listening(r, VB_PS_TCP, VB_PORT_IPV4, 7471, true);
	assert_int_equal(vb_ports_listener(r, VB_PS_TCP, VB_PORT_IPV4, 7471), 0);
	/* the last claim given back ends listening */
	(void)tell(&child, RELEASE, VB_PS_TCP, BOTH, 7471);
	assert_int_equal(vb_ports_listener(r, VB_PS_TCP, VB_PORT_IPV6, 7471), 0);
	test_kill(&child);
	vb_registry_leave(r);
}

static void what_the_dead_had_is_free(void **state)
{
	struct in6_addr address = test_address(4);
	struct vb_registry *r = join(4);

	for (int round = 0; round < 20; round++) {
		struct test_child child = other(&address);
		uint16_t ephemeral;

		assert_int_equal(tell(&child, CLAIM, VB_PS_TCP, BOTH, 9000).result, 0);
		(void)tell(&child, LISTEN, VB_PS_TCP, BOTH, 9000);
		ephemeral = tell(&child, CLAIM, VB_PS_UDP, VB_PORT_IPV4, 0).port;
		assert_int_equal(claim(r, VB_PS_TCP, VB_PORT_IPV6, 9000), -EADDRINUSE);
		test_kill(&child);
		assert_int_equal(vb_ports_listener(r, VB_PS_TCP, VB_PORT_IPV4, 9000), 0);
		if (round % 2) {
			assert_int_equal(claim(r, VB_PS_TCP, BOTH, 9000), 0);
			vb_ports_release(r, VB_PS_TCP, BOTH, 9000);
		}
		assert_int_equal(claim(r, VB_PS_UDP, VB_PORT_IPV4, ephemeral), 0);
		vb_ports_release(r, VB_PS_UDP, VB_PORT_IPV4, ephemeral);
	}
	vb_registry_leave(r);
}

/* Reads or writes a word of PS_TCP, the second port space, and IPv4, its first family. */
static void poke(const struct in6_addr *address, uint16_t port, uint64_t *old, uint64_t word)
{
	off_t at = 4096 + (off_t)(2 * 65536 + port) * 8;
	char path[200], dir[128];
	int fd;

	test_directory(address, dir, sizeof(dir));
	snprintf(path, sizeof(path), "%s/ports", dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_return_code(fd, errno);
	if (old)
		assert_int_equal(pread(fd, old, 8, at), 8);
	assert_int_equal(pwrite(fd, &word, 8, at), 8);
	close(fd);
}

/* A process in the slot of one that died does not inherit its ports: the word's upper half tells
 * the two apart. */
static void a_slots_next_owner_has_no_ports(void **state)
{
	struct in6_addr address = test_address(5);
	struct vb_registry *r = join(5);
	struct test_child child = other(&address);
	uint16_t slot = tell(&child, CLAIM, VB_PS_TCP, VB_PORT_IPV4, 9001).slot;
	uint64_t word;

	(void)tell(&child, LISTEN, VB_PS_TCP, VB_PORT_IPV4, 9001);
	assert_int_equal(vb_ports_listener(r, VB_PS_TCP, VB_PORT_IPV4, 9001), slot);
	poke(&address, 9001, &word, 0);
	poke(&address, 9001, NULL, word ^ 1ull << 63);
	assert_int_equal(vb_ports_listener(r, VB_PS_TCP, VB_PORT_IPV4, 9001), 0);
	assert_int_equal(tell(&child, LISTENER, VB_PS_TCP, VB_PORT_IPV4, 9001).result, 0);
	assert_int_equal(claim(r, VB_PS_TCP, VB_PORT_IPV4, 9001), 0);
	test_kill(&child);
	vb_registry_leave(r);
}

static void every_ephemeral_port_is_given_once(void **state)
{
	struct in6_addr address = test_address(6);
	struct vb_registry *r = join(6);
	struct test_child child = other(&address);
	static uint8_t seen[65536];
	int mine = 0, its;

	for (; mine < 1000; mine++) {
		uint16_t port = 0;

		assert_int_equal(vb_ports_claim(r, VB_PS_TCP, BOTH, &port), 0);
		assert_in_range(port, 32768, 60999);
		assert_int_equal(seen[port]++, 0);
	}
	its = tell(&child, CLAIM_ALL, VB_PS_TCP, BOTH, 0).result;
	assert_int_equal(mine + its, 60999 - 32768 + 1);
	assert_int_equal(claim(r, VB_PS_TCP, BOTH, 0), -EADDRINUSE);
	assert_int_equal(claim(r, VB_PS_TCP, VB_PORT_IPV4, 0), -EADDRINUSE);
	assert_int_equal(claim(r, VB_PS_UDP, BOTH, 0), 0);
	assert_int_equal(claim(r, VB_PS_TCP, BOTH, 32767), 0);
	test_kill(&child);
	assert_int_equal(claim(r, VB_PS_TCP, BOTH, 0), 0);
	vb_registry_leave(r);
}

static void nonsense_is_refused(void **state)
{
	struct vb_registry *r = join(7);
	uint16_t port = 0;

	assert_int_equal(claim(r, 0x0107, BOTH, 80), -EINVAL);
	assert_int_equal(claim(r, 0, BOTH, 0), -EINVAL);
	assert_int_equal(claim(r, VB_PS_TCP, 0, 80), -EINVAL);
	assert_int_equal(claim(r, VB_PS_TCP, 4, 80), -EINVAL);
	assert_int_equal(vb_ports_claim(r, 0xffff, BOTH, &port), -EINVAL);
	assert_int_equal(port, 0);
	vb_ports_release(r, 0xffff, BOTH, 80);
	vb_ports_set_listening(r, 0xffff, BOTH, 80, true);
	assert_int_equal(vb_ports_listener(r, 0xffff, VB_PORT_IPV4, 80), 0);
	vb_registry_leave(r);
}

/* Words that a process of our user scribbled: free, or at worst taken; never a crash. */
static void scribbled_words_do_no_harm(void **state)
{
	static const uint64_t scribbles[] = {UINT64_MAX, 511, 510, 0x1ffffffff0101ff, 0xffff};
	struct in6_addr address = test_address(8);
	struct vb_registry *r = join(8);

	for (uint16_t i = 0; i < VB_ARRAY_SIZE(scribbles); i++) {
		poke(&address, (uint16_t)(1000 + i), NULL, scribbles[i]);
		assert_int_equal(
			vb_ports_listener(r, VB_PS_TCP, VB_PORT_IPV4, (uint16_t)(1000 + i)), 0);
		assert_int_equal(claim(r, VB_PS_TCP, VB_PORT_IPV4, (uint16_t)(1000 + i)), 0);
	}
	vb_registry_leave(r);
}

static void the_file_is_private_sparse_and_goes_with_the_last(void **state)
{
	struct in6_addr address = test_address(9);
	struct vb_registry *r = join(9);
	char path[200], dir[128];
	struct stat st;

	test_directory(&address, dir, sizeof(dir));
	snprintf(path, sizeof(path), "%s/ports", dir);
	assert_int_equal(claim(r, VB_PS_TCP, BOTH, 80), 0);
	assert_int_equal(vb_ports_listener(r, VB_PS_UDP, VB_PORT_IPV4, 80), 0);
	assert_return_code(stat(path, &st), errno);
	assert_int_equal(st.st_mode & 07777, 0600);
	/* the tags, and a page for each of two families */
	assert_int_equal(st.st_blocks * 512, 3 * 4096);
	vb_registry_leave(r);
	assert_false(test_exists(&address, "ports"));
	assert_false(test_exists(&address, "."));
}

/* Left by processes that were all killed: the next one finds every port free. Any process of this
 * user that starts meanwhile may have taken it away altogether. */
static void a_host_begins_anew(void **state)
{
	struct in6_addr address = test_address(10);
	struct test_child child = other(&address);
	struct vb_registry *r;
	struct stat before, after;
	char path[200], dir[128];

	test_directory(&address, dir, sizeof(dir));
	snprintf(path, sizeof(path), "%s/ports", dir);
	assert_int_equal(tell(&child, CLAIM, VB_PS_TCP, BOTH, 80).result, 0);
	assert_return_code(stat(path, &before), errno);
	test_kill(&child);
	if (truncate(path, 100) != 0) /* and damaged */
		assert_int_equal(errno, ENOENT);
	r = join(10);
	assert_return_code(stat(path, &after), errno);
	assert_int_not_equal(after.st_size, 100);
	assert_int_equal(claim(r, VB_PS_TCP, BOTH, 80), 0);
	vb_registry_leave(r);
}

/* A forked child owns nothing, and what it closes is not its parent's. */
static void forked(int fd, void *arg)
{
	vb_registry_drop_in_child(arg);
	test_send(fd, "x", 1);
}

static void a_forked_child_drops_it(void **state)
{
	struct in6_addr address = test_address(11);
	struct vb_registry *r = join(11);
	struct test_child child, third;
	char byte;

	assert_int_equal(claim(r, VB_PS_TCP, BOTH, 80), 0);
	child = test_fork(forked, r);
	assert_true(test_receive(child.fd, &byte, 1));
	assert_int_equal(test_join_child(&child), 0);
	third = other(&address);
	assert_int_equal(tell(&third, CLAIM, VB_PS_TCP, BOTH, 80).result, -EADDRINUSE);
	vb_ports_release(r, VB_PS_TCP, BOTH, 80);
	assert_int_equal(tell(&third, CLAIM, VB_PS_TCP, BOTH, 80).result, 0);
	test_kill(&third);
	vb_registry_leave(r);
}

/* Processes that all want one port at the same time: exactly one has it. */
static void runner(int fd, void *arg)
{
	struct vb_registry *registry;
	uint8_t won[64] = {0};
	char byte;

	if (vb_registry_join(&registry, arg))
		_exit(1);
	for (uint16_t i = 0; i < sizeof(won); i++) {
		if (!test_receive(fd, &byte, 1))
			_exit(2);
		won[i] = claim(registry, VB_PS_TCP, BOTH, (uint16_t)(100 + i)) == 0;
		test_send(fd, &won[i], 1);
	}
	(void)test_receive(fd, &byte, 1);
	vb_registry_leave(registry);
}

static void a_race_has_one_winner(void **state)
{
	struct in6_addr address = test_address(12);
	struct test_child children[4];

	for (int c = 0; c < 4; c++)
		children[c] = test_fork(runner, &address);
	for (int i = 0; i < 64; i++) {
		int winners = 0;

		for (int c = 0; c < 4; c++)
			test_send(children[c].fd, "x", 1);
		for (int c = 0; c < 4; c++) {
			uint8_t won;

			assert_true(test_receive(children[c].fd, &won, 1));
			winners += won;
		}
		assert_int_equal(winners, 1);
	}
	for (int c = 0; c < 4; c++)
		test_kill(&children[c]);
	vb_registry_leave(join(12)); /* sweeps */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_port_has_one_owner),
		cmocka_unit_test(families_are_taken_together),
		cmocka_unit_test(claims_of_one_process_are_counted),
		cmocka_unit_test(a_listener_is_found_while_it_listens),
		cmocka_unit_test(what_the_dead_had_is_free),
		cmocka_unit_test(a_slots_next_owner_has_no_ports),
		cmocka_unit_test(every_ephemeral_port_is_given_once),
		cmocka_unit_test(nonsense_is_refused),
		cmocka_unit_test(scribbled_words_do_no_harm),
		cmocka_unit_test(the_file_is_private_sparse_and_goes_with_the_last),
		cmocka_unit_test(a_host_begins_anew),
		cmocka_unit_test(a_forked_child_drops_it),
		cmocka_unit_test(a_race_has_one_winner),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
