/* SPDX-License-Identifier: BSD-2-Clause */
/* test_life.c - an engine opened, closed, forked, left at exit; and what it refuses. */
#include <glob.h>

#include "sides.h"

/* --- fork, exit, open and close ---------------------------------------------------------- */

static unsigned int entries(const char *directory)
{
	DIR *dir = opendir(directory);
	unsigned int count = 0;

	REQUIRE(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static void child_has_its_own(struct vb_engine *parents, uint32_t parents_qpn_base)
{
	struct vb_engine *mine;
	struct vb_cqe cqe;

	REQUIRE(!vb_engine_enter(parents));
	REQUIRE(vb_engine_poll_cq(parents, NULL, &cqe, 1) == -EIO);
	mine = open_first();
	REQUIRE(mine != parents);
	vb_engine_put(parents);
	REQUIRE(vb_engine_nic(mine)->config.qpn_base != parents_qpn_base);
	REQUIRE(vb_engine_enter(mine));
	vb_engine_leave(mine);
	vb_engine_put(mine);
}

static void forks(struct side *side)
{
	struct side second = *side;
	int status;

	side_open(side);
	side_connect(side);
	for (uint32_t round = 0; round < 3; round++) {
		pid_t pid = fork();

		if (pid == 0) {
			child_has_its_own(side->engine, side->qp->qpn & ~0x7fffu);
			_exit(0);
		}
		/* the parent does not notice, neither while the child lives nor afterwards */
		fill(side->buffer, 70000, round);
		post(side, VB_WR_SEND, 0, 70000, 0);
		expect(side, by_polling, VB_WC_SEND);
		REQUIRE(waitpid(pid, &status, 0) == pid);
		REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		post(side, VB_WR_RDMA_READ, HALF, 70000, 7);
		expect(side, by_polling, VB_WC_RDMA_READ);
		compare(side->buffer + HALF, 70000, round);
	}
	meet(side);
	/* and a child may do it all on its own */
	if (fork() == 0) {
		side_open(&second);
		side_connect(&second);
		post(&second, VB_WR_RDMA_WRITE, 0, 4000, 0);
		expect(&second, by_polling, VB_WC_RDMA_WRITE);
		meet(&second);
		side_close(&second);
		_exit(0);
	}
	REQUIRE(wait(&status) > 0);
	REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	side_close(side);
}

static void talks_to_forks(struct side *side)
{
	side_open(side);
	side_connect(side);
	for (uint32_t round = 0; round < 3; round++) {
		post_recv(side, 7, HALF - 7);
		expect(side, by_sleeping, VB_WC_RECV);
		compare(side->buffer + 7, 70000, round);
	}
	meet(side);
	side_close(side);
	side_open(side);
	side_connect(side);
	meet(side);
	side_close(side);
}

static void fork_in_between(void **state)
{
	run_pair(forks, "127.8.3.1", talks_to_forks, "127.8.3.1", 1);
	run_pair(forks, "127.8.3.2", talks_to_forks, "127.8.3.3", 1);
}

static void opens_and_closes(struct side *side)
{
	unsigned int descriptors = 0, threads = entries("/proc/self/task");
	struct vb_engine *again;

	for (int i = 0; i < 20; i++) {
		side_open(side);
		again = open_first();
		REQUIRE(again == side->engine);
		vb_engine_put(again);
		side_close(side);
		close(cq_events);
		REQUIRE(entries("/proc/self/task") == threads);
		if (i == 0)
			descriptors = entries("/proc/self/fd");
		REQUIRE(entries("/proc/self/fd") == descriptors);
	}
	vb_engine_put(NULL);
}

static void nothing_is_left(void **state)
{
	run_alone(opens_and_closes, "127.8.3.4");
}

/* A device closed with objects alive, opened again, and the process ends. */
static void closes_too_early(struct side *side)
{
	struct vb_engine *again;

	side_open(side);
	vb_engine_put(side->engine);
	again = open_first();
	REQUIRE(again == side->engine);
	side_close(side);
}

static void closed_with_objects(void **state)
{
	run_alone(closes_too_early, "127.8.3.5");
}

static void *spins(void *arg)
{
	struct side *side = arg;
	struct vb_cqe cqe;

	for (;;)
		vb_engine_poll_cq(side->engine, side->cq, &cqe, 1);
	return NULL;
}

static void exits_at_once(struct side *side)
{
	static struct side lasting;
	pthread_t thread;

	lasting = *side;
	side_open(&lasting);
	for (int i = 0; i < 2; i++)
		REQUIRE(pthread_create(&thread, NULL, spins, &lasting) == 0);
}

static void exit_with_everything_alive(void **state)
{
	glob_t left;

	for (int i = 0; i < 5; i++)
		run_alone(exits_at_once, "127.8.3.6");
	/* it has taken its segment with it; a killed one's is cleaned up by the next */
	assert_int_equal(glob("/dev/shm/verbena-*/*127.8.3.6/seg.*", 0, NULL, &left), GLOB_NOMATCH);
}

/* --- refusals ---------------------------------------------------------------------------- */

static int try_address(struct side *side, const struct in6_addr *dgid, uint8_t sgid_index)
{
	const struct vb_ah_attr attr = {
		.dgid = *dgid,
		.sgid_index = sgid_index,
		.is_global = true,
		.port_num = 1,
	};
	struct vb_ah *ah;
	int rc;

	REQUIRE(vb_engine_enter(side->engine));
	ah = vb_ah_create(side->pd, &attr);
	rc = ah ? 0 : -errno;
	vb_ah_put(ah);
	vb_engine_leave(side->engine);
	return rc;
}

static void refuses_addresses(struct side *side)
{
	struct in6_addr peer = vb_address_from_ipv4((struct in_addr){htonl(0x7f080402)});
	struct in6_addr synthetic = vb_gid_synthetic(&peer), none = {0}, mapped_none, multicast,
			broadcast;
	struct in6_addr ipv6 = IN6ADDR_LOOPBACK_INIT;

	side_open(side);
	mapped_none = vb_address_from_ipv4((struct in_addr){0});
	multicast = vb_address_from_ipv4((struct in_addr){htonl(0xe0000001)});
	broadcast = vb_address_from_ipv4((struct in_addr){htonl(0xffffffff)});
	for (uint8_t i = 0; i < 2; i++) {
		REQUIRE(try_address(side, &peer, i) == 0);
		REQUIRE(try_address(side, &synthetic, i) == 0);
		REQUIRE(try_address(side, &side->mine.gids[0], i) == 0);
		REQUIRE(try_address(side, &side->mine.gids[1], i) == 0);
		REQUIRE(try_address(side, &multicast, i) == 0);
		REQUIRE(try_address(side, &none, i) == -EINVAL);
		REQUIRE(try_address(side, &mapped_none, i) == -EINVAL);
		REQUIRE(try_address(side, &broadcast, i) == -EINVAL);
		REQUIRE(try_address(side, &ipv6, i) == -EINVAL);
	}
	REQUIRE(try_address(side, &peer, 2) == -EINVAL);
	REQUIRE(try_address(side, &peer, 255) == -EINVAL);
	side_close(side);
}

static void addresses(void **state)
{
	run_alone(refuses_addresses, "127.8.4.1");
}

static void refuses_regions(struct side *side)
{
	struct vb_mr *mr = NULL;
	uint8_t *read_only;

	side_open(side);
	read_only = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(read_only != MAP_FAILED);
	REQUIRE(vb_engine_reg_mr(side->engine, side->pd, read_only, 8192, 0, VB_ACCESS_LOCAL_WRITE,
				 &mr) == -EFAULT);
	REQUIRE(vb_engine_reg_mr(side->engine, side->pd, read_only, 8192, 0, VB_ACCESS_REMOTE_WRITE,
				 &mr) < 0);
	REQUIRE(vb_engine_reg_mr(side->engine, side->pd, NULL, 1, 0, 0, &mr) == -EFAULT);
	REQUIRE(vb_engine_reg_mr(side->engine, side->pd, read_only, UINT64_MAX, 0, 0, &mr) ==
		-EINVAL);
	REQUIRE(vb_engine_reg_mr(side->engine, side->pd, read_only, 8191, 17, VB_ACCESS_REMOTE_READ,
				 &mr) == 0);
	REQUIRE(vb_engine_dereg_mr(side->engine, mr) == 0);
	REQUIRE(vb_engine_reg_mr(side->engine, side->pd, NULL, 0, 0, VB_ACCESS_LOCAL_WRITE, &mr) ==
		0);
	REQUIRE(vb_engine_dereg_mr(side->engine, mr) == 0);
	REQUIRE(side->mr->lkey != side->mr->rkey);
	side_close(side);
}

static void regions(void **state)
{
	run_alone(refuses_regions, "127.8.4.3");
}

static void keys_are_equal(struct side *side)
{
	side_open(side);
	REQUIRE(side->mr->lkey == side->mr->rkey);
	side_close(side);
}

static void equal_keys(void **state)
{
	setenv("VERBENA_EQUAL_KEYS", "1", 1);
	run_alone(keys_are_equal, "127.8.4.4");
	unsetenv("VERBENA_EQUAL_KEYS");
}

static void has_no_device(struct side *side)
{
	struct vb_device *const *list;
	int said[2];
	char text[4096];
	ssize_t got;

	REQUIRE(pipe(said) == 0 && dup2(said[1], STDERR_FILENO) >= 0);
	close(said[1]);
	for (int i = 0; i < 3; i++)
		if (vb_host_devices(&list) != -EINVAL)
			exit(1);
	close(STDERR_FILENO);
	got = read(said[0], text, sizeof(text) - 1);
	if (got <= 0)
		exit(2);
	text[got] = '\0';
	/* one sentence, once */
	if (strchr(text, '\n') != text + got - 1 || !strstr(text, "allowed is "))
		exit(3);
}

static void wrong_setting(void **state)
{
	run_alone(has_no_device, "192.0.2.255");
	run_alone(has_no_device, "nonsense");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fork_in_between),     cmocka_unit_test(nothing_is_left),
		cmocka_unit_test(closed_with_objects), cmocka_unit_test(exit_with_everything_alive),
		cmocka_unit_test(addresses),	       cmocka_unit_test(regions),
		cmocka_unit_test(equal_keys),	       cmocka_unit_test(wrong_setting),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
