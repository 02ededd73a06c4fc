/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_local_kill.c - processes that talk to each other are killed at random instants, for a few
 * seconds.
 *
 * Two witnesses that are never killed exchange a checked stream all the while. Everybody checks
 * everything that arrives, sleeps when there is nothing to do, and complains by exiting. At the end
 * the registry is clean.
 */
#include "local_helper.h"

#include "carrier/local_private.h"

enum { WORKERS = 5, SECONDS = 4, RKEY = 0x12345, PD = 3, STREAM = 40000 };

struct board {
	uint32_t slot[WORKERS];
	uint32_t stop;
	uint8_t region[WORKERS][65536];
};
static struct board *board;

/* The payload is made from the immediate value. */
static void check(struct test_nic *n, void *arg)
{
	if (!test_filled(n->payload, n->payload_bytes, n->headers.imm))
		_exit(60);
}

static void publish(struct test_nic *n, uint32_t number, bool open)
{
	struct vb_local_mr mr = {.rkey = RKEY,
				 .pd_id = PD,
				 .access = 6,
				 .addr = (uint64_t)(uintptr_t)board->region[number],
				 .iova = 0,
				 .length = 65536};
	struct vb_local_qp qp = {.qpn = test_qpn(n->registry->slot, 1), .pd_id = PD, .access = 6};
	uint32_t i;

	/* One QP for each who may write here. */
	for (i = 0; i < WORKERS; i++) {
		qp.qpn = test_qpn(n->registry->slot, 100 + i);
		qp.dest_qpn = test_qpn(board->slot[i], 100 + number);
		qp.open = open;
		vb_local_publish_qp(n->carrier, &qp);
	}
	if (open && vb_local_publish_mr(n->carrier, &mr))
		_exit(61);
}

static void work(struct test_nic *n, int fd, struct test_role *role)
{
	static uint8_t data[65536];
	uint64_t seed = (uint64_t)getpid() * 77;

	n->on_packet = check;
	__atomic_store_n(&board->slot[role->number], n->registry->slot, __ATOMIC_SEQ_CST);
	test_send(fd, "r", 1);
	for (;;) {
		uint32_t to = test_random(&seed) % WORKERS, bytes, what = test_random(&seed) % 100;
		uint32_t slot = __atomic_load_n(&board->slot[to], __ATOMIC_SEQ_CST);
		struct iovec part = {data, 1 + test_random(&seed) % 65536};

		if (slot == 0) {
			/* not started yet: the QPN would be 1, and random bytes a MAD for anybody
			 */
			(void)test_poll(n);
			continue;
		}
		if (what < 60) {
			uint32_t imm = test_random(&seed);

			bytes = test_random(&seed) % (what < 30 ? 200 : VB_LOCAL_SEGMENT + 1);
			test_fill(data, bytes, imm);
			(void)test_tx(n, test_qpn(slot, 1), 0, imm, data, bytes);
		} else if (what < 75) {
			(void)vb_local_direct(n->carrier, what & 1,
					      test_qpn(n->registry->slot, 100 + role->number),
					      test_qpn(slot, 100 + role->number), RKEY, 0, &part, 1,
					      (uint32_t)part.iov_len);
		} else if (what < 78) {
			publish(n, role->number, true);
		} else if (what < 79) {
			if (vb_local_withdraw_mr(n->carrier, RKEY))
				_exit(62);
			publish(n, role->number, false);
			if (vb_local_quiesce_qp(n->carrier, test_qpn(n->registry->slot, 101)))
				_exit(63);
		} else if (what < 81 && n->carrier->ops->arm(n->carrier)) {
			struct pollfd p = {.fd = n->carrier->fd, .events = POLLIN};

			(void)poll(&p, 1, 2);
			n->carrier->ops->disarm(n->carrier);
		}
		(void)test_poll(n);
	}
}

static void order(struct test_nic *n, void *arg)
{
	uint64_t *expected = arg;

	if (!test_filled(n->payload, n->payload_bytes, n->headers.imm) ||
	    n->headers.imm != (uint32_t)*expected)
		_exit(64);
	++*expected;
}

/* Sends and receives packets number by number until the test says stop. */
static void witness(struct test_nic *n, int fd, struct test_role *role)
{
	static uint8_t data[VB_LOCAL_SEGMENT];
	uint64_t expected = 0, seed = 5, sent;
	uint32_t peer;

	test_send(fd, "r", 1);
	if (!test_receive(fd, &peer, sizeof(peer)))
		_exit(66);
	n->on_packet = order;
	n->arg = &expected;
	for (sent = 0; !__atomic_load_n(&board->stop, __ATOMIC_SEQ_CST);) {
		uint32_t bytes = test_random(&seed) % 3000;
		int r;

		test_fill(data, bytes, sent);
		r = test_tx(n, test_qpn(peer, 1), 0, (uint32_t)sent, data, bytes);
		if (r && r != -EAGAIN)
			_exit(65);
		sent += r == 0;
		(void)test_poll(n);
		if (sent % 64 == 0)
			usleep(500); /* leave something of the processors to the others */
	}
	test_send(fd, &sent, sizeof(sent));
	if (!test_receive(fd, &sent, sizeof(sent)) || !test_wait_received(n, sent))
		_exit(67);
	test_send(fd, &expected, sizeof(expected));
	(void)test_receive(fd, &peer, 1);
	test_nic_close(n);
}

static void assert_no_complaint(struct test_child *child)
{
	int status = 0;
	pid_t r = waitpid(child->pid, &status, WNOHANG);

	if (r)
		fail_msg("a process ended with status 0x%x", (unsigned int)status);
}

static void a_storm_of_kills_harms_nobody_else(void **state)
{
	struct in6_addr address = test_address(57);
	struct test_role role[WORKERS], seen[2];
	struct test_child child[WORKERS], see[2];
	uint64_t start, sent[2], got;
	unsigned int seed = 4, kills = 0;
	uint32_t slot[2];
	char dir[128], c;
	struct stat st;
	int i;

	for (i = 0; i < 2; i++) {
		seen[i] = (struct test_role){.address = address, .run = witness};
		slot[i] = test_start_nic(&see[i], &seen[i]);
		assert_true(test_receive(see[i].fd, &c, 1));
	}
	for (i = 0; i < 2; i++)
		test_send(see[i].fd, &slot[1 - i], sizeof(slot[0]));
	for (i = 0; i < WORKERS; i++) {
		role[i] =
			(struct test_role){.address = address, .run = work, .number = (uint32_t)i};
		(void)test_start_nic(&child[i], &role[i]);
	}
	for (start = test_now_ms(); test_now_ms() - start < SECONDS * 1000; kills++) {
		int victim = rand_r(&seed) % WORKERS, j;

		assert_true(test_receive(child[victim].fd, &c, 1));
		usleep((useconds_t)(rand_r(&seed) % 20000));
		for (j = 0; j < WORKERS; j++)
			assert_no_complaint(&child[j]);
		test_kill(&child[victim]);
		(void)test_start_nic(&child[victim], &role[victim]);
	}
	assert_true(kills >= 10);
	for (i = 0; i < WORKERS; i++)
		test_kill(&child[i]);
	__atomic_store_n(&board->stop, 1, __ATOMIC_SEQ_CST);
	for (i = 0; i < 2; i++) {
		assert_no_complaint(&see[i]);
		assert_true(test_receive(see[i].fd, &sent[i], sizeof(sent[i])));
		assert_true(sent[i] > 0);
	}
	for (i = 0; i < 2; i++)
		test_send(see[i].fd, &sent[1 - i], sizeof(sent[0]));
	for (i = 0; i < 2; i++) {
		assert_true(test_receive(see[i].fd, &got, sizeof(got)));
		assert_int_equal(got, sent[1 - i]);
	}
	for (i = 0; i < 2; i++) {
		test_send(see[i].fd, "q", 1);
		assert_int_equal(test_join_child(&see[i]), 0);
	}
	test_directory(&address, dir, sizeof(dir));
	assert_int_equal(lstat(dir, &st), -1); /* the last witness swept */
}

static int set_up(void **state)
{
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	return board == MAP_FAILED;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_storm_of_kills_harms_nobody_else),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
