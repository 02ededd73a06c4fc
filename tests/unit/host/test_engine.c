/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_engine.c - live engines in processes of their own: connected over both carriers, moving data
 * while both poll and while nobody does, idle, forked, and gone.
 *
 * A test forks one or two sides before anything of the host was touched, because a process reads
 * its settings once. Sides talk over a socket pair. The test passes when every side returns.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/address.h"
#include "host/host.h"

#define PATIENCE_MS 20000
#define BUFFER (3u << 20)

/* Assertions of a side: it is a process of its own, with nothing to unwind. */
#define REQUIRE(cond)                                                                              \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #cond,       \
				errno);                                                            \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* --- sides ------------------------------------------------------------------------------------ */

struct card { /* what a side tells the other */
	uint32_t qpn, psn, rkey;
	uint64_t addr;
	struct in6_addr gids[2];
};

struct side {
	int link; /* to the other side */
	unsigned int gid_index;
	struct vb_engine *engine;
	struct vb_pd *pd;
	struct vb_cq *cq;
	struct vb_qp *qp;
	struct vb_mr *mr;
	uint8_t *buffer;
	struct card mine, theirs;
};

static int cq_events = -1; /* an eventfd, one per armed completion */

static void on_cq_event(struct vb_engine *engine, struct vb_cq *cq)
{
	uint64_t one = 1;

	REQUIRE(write(cq_events, &one, sizeof(one)) == sizeof(one));
}

static const struct vb_host_hooks hooks = {.cq_event = on_cq_event};

static void say(struct side *side, const void *data, size_t size)
{
	REQUIRE(send(side->link, data, size, MSG_NOSIGNAL) == (ssize_t)size);
}

static void hear(struct side *side, void *data, size_t size)
{
	REQUIRE(recv(side->link, data, size, MSG_WAITALL) == (ssize_t)size);
}

static void meet(struct side *side)
{
	char c = 'x';

	say(side, &c, 1);
	hear(side, &c, 1);
}

static struct vb_engine *open_first(void)
{
	struct vb_device *const *list;
	struct vb_engine *engine;

	REQUIRE(vb_host_devices(&list) >= 1);
	REQUIRE(vb_engine_get(list[0], &engine) == 0);
	return engine;
}

static void side_open(struct side *side)
{
	const struct vb_device *device;
	struct vb_qp_init init = {
		.type = VB_QPT_RC,
		.cap = {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1},
	};

	cq_events = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	vb_host_set_hooks(&hooks);
	side->engine = open_first();
	device = vb_engine_device(side->engine);
	side->buffer =
		mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(side->buffer != MAP_FAILED);
	REQUIRE(vb_engine_enter(side->engine));
	side->pd = vb_pd_create(vb_engine_nic(side->engine));
	side->cq = vb_cq_create(vb_engine_nic(side->engine), 256, NULL);
	REQUIRE(side->pd && side->cq);
	init.send_cq = init.recv_cq = side->cq;
	side->qp = vb_qp_create(side->pd, &init);
	REQUIRE(side->qp);
	vb_engine_leave(side->engine);
	REQUIRE(vb_engine_reg_mr(side->engine, side->pd, side->buffer, BUFFER,
				 (uintptr_t)side->buffer,
				 VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL, &side->mr) == 0);
	side->mine = (struct card){
		.qpn = side->qp->qpn,
		.psn = side->qp->qpn * 77 & 0xffffff,
		.rkey = side->mr->rkey,
		.addr = (uintptr_t)side->buffer,
		.gids = {device->gids[0].gid, device->gids[1].gid},
	};
}

static void side_connect(struct side *side)
{
	struct vb_qp_attr attr = {
		.qp_state = VB_QPS_INIT,
		.port_num = 1,
		.access_flags = VB_ACCESS_REMOTE_ALL,
	};

	say(side, &side->mine, sizeof(side->mine));
	hear(side, &side->theirs, sizeof(side->theirs));
	REQUIRE(vb_engine_enter(side->engine));
	REQUIRE(vb_qp_modify(side->qp, &attr,
			     VB_QP_STATE | VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS) ==
		0);
	attr = (struct vb_qp_attr){
		.qp_state = VB_QPS_RTR,
		.path_mtu = VB_MTU_4096,
		.dest_qpn = side->theirs.qpn,
		.rq_psn = side->theirs.psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah = {.dgid = side->theirs.gids[side->gid_index],
		       .sgid_index = (uint8_t)side->gid_index,
		       .is_global = true,
		       .port_num = 1},
	};
	REQUIRE(vb_qp_modify(side->qp, &attr,
			     VB_QP_STATE | VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN |
				     VB_QP_RQ_PSN | VB_QP_MAX_DEST_RD_ATOMIC |
				     VB_QP_MIN_RNR_TIMER) == 0);
	attr = (struct vb_qp_attr){
		.qp_state = VB_QPS_RTS,
		.sq_psn = side->mine.psn,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};
	REQUIRE(vb_qp_modify(side->qp, &attr,
			     VB_QP_STATE | VB_QP_SQ_PSN | VB_QP_TIMEOUT | VB_QP_RETRY_CNT |
				     VB_QP_RNR_RETRY | VB_QP_MAX_QP_RD_ATOMIC) == 0);
	vb_engine_leave(side->engine);
	meet(side); /* neither sends before both are ready */
}

static void side_close(struct side *side)
{
	REQUIRE(vb_engine_enter(side->engine));
	vb_qp_destroy(side->qp);
	REQUIRE(vb_cq_destroy(side->cq) == 0);
	vb_engine_leave(side->engine);
	REQUIRE(vb_engine_dereg_mr(side->engine, side->mr) == 0);
	REQUIRE(vb_engine_enter(side->engine));
	REQUIRE(vb_pd_destroy(side->pd) == 0);
	vb_engine_leave(side->engine);
	vb_engine_put(side->engine);
	munmap(side->buffer, BUFFER);
}

static void post(struct side *side, enum vb_wr_opcode opcode, uint32_t at, uint32_t length,
		 uint32_t remote_at)
{
	struct vb_sge sge = {
		.addr = (uintptr_t)side->buffer + at,
		.length = length,
		.lkey = side->mr->lkey,
	};
	struct vb_send_wr wr = {
		.wr_id = opcode,
		.opcode = opcode,
		.sges = &sge,
		.num_sge = 1,
		.flags = VB_SEND_SIGNALED,
		.remote_addr = side->theirs.addr + remote_at,
		.rkey = side->theirs.rkey,
		.compare_add = 5,
	};

	REQUIRE(vb_engine_enter(side->engine));
	REQUIRE(vb_qp_post_send(side->qp, &wr) == 0);
	vb_engine_pump(side->engine);
	vb_engine_leave(side->engine);
}

static void post_recv(struct side *side, uint32_t at, uint32_t length)
{
	struct vb_sge sge = {
		.addr = (uintptr_t)side->buffer + at,
		.length = length,
		.lkey = side->mr->lkey,
	};
	const struct vb_recv_wr wr = {.wr_id = 99, .sges = &sge, .num_sge = 1};

	REQUIRE(vb_engine_enter(side->engine));
	REQUIRE(vb_qp_post_recv(side->qp, &wr) == 0);
	vb_engine_pump(side->engine);
	vb_engine_leave(side->engine);
}

static void arm(struct side *side)
{
	REQUIRE(vb_engine_enter(side->engine));
	vb_cq_arm(side->cq, false);
	vb_engine_wake_thread(side->engine);
	vb_engine_leave(side->engine);
}

/* The way a completion is waited for: by polling, or asleep until the thread says so. */
typedef struct vb_cqe completion_fn(struct side *side);

static struct vb_cqe by_polling(struct side *side)
{
	uint64_t until = vb_engine_now() + PATIENCE_MS * 1000000ull;
	struct vb_cqe cqe;

	for (;;) {
		int got = vb_engine_poll_cq(side->engine, side->cq, &cqe, 1);

		REQUIRE(got >= 0);
		if (got == 1)
			return cqe;
		REQUIRE(vb_engine_now() < until);
		sched_yield(); /* often more sides than processors */
	}
}

static struct vb_cqe by_sleeping(struct side *side)
{
	struct pollfd wait = {.fd = cq_events, .events = POLLIN};
	struct vb_cqe cqe;
	uint64_t count;

	for (;;) {
		int got = vb_engine_poll_cq(side->engine, side->cq, &cqe, 1);

		if (got == 0) {
			arm(side);
			got = vb_engine_poll_cq(side->engine, side->cq, &cqe, 1);
		}
		REQUIRE(got >= 0);
		if (got == 1)
			return cqe;
		REQUIRE(poll(&wait, 1, PATIENCE_MS) == 1);
		REQUIRE(read(cq_events, &count, sizeof(count)) == sizeof(count));
	}
}

static void expect(struct side *side, completion_fn *next, enum vb_wc_opcode opcode)
{
	struct vb_cqe cqe = next(side);

	if (cqe.status != VB_WC_SUCCESS)
		fprintf(stderr, "status %u: %s\n", cqe.status, vb_check_name(cqe.vendor_err));
	REQUIRE(cqe.status == VB_WC_SUCCESS);
	REQUIRE(cqe.opcode == opcode);
	REQUIRE(cqe.qpn == side->mine.qpn);
}

static uint8_t pattern(uint32_t seed, uint32_t i)
{
	return (uint8_t)((i * 2654435761u + seed * 40503u) >> 11);
}

static void fill(uint8_t *to, uint32_t length, uint32_t seed)
{
	for (uint32_t i = 0; i < length; i++)
		to[i] = pattern(seed, i);
}

static void compare(const uint8_t *data, uint32_t length, uint32_t seed)
{
	for (uint32_t i = 0; i < length; i++)
		REQUIRE(data[i] == pattern(seed, i));
}

/* --- running sides ------------------------------------------------------------------------------
 */

typedef void side_fn(struct side *side);

static pid_t start(side_fn *run, int link, int other, const char *addr, unsigned int gid_index)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		struct side side = {.link = link, .gid_index = gid_index};

		close(other);
		alarm(100);
		setenv("VERBENA_ADDR", addr, 1);
		run(&side);
		exit(0);
	}
	close(link);
	return pid;
}

static void finish(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void run_pair(side_fn *a, const char *a_addr, side_fn *b, const char *b_addr,
		     unsigned int gid_index)
{
	int pair[2];
	pid_t first, second;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	first = start(a, pair[0], pair[1], a_addr, gid_index);
	second = start(b, pair[1], -1, b_addr, gid_index);
	finish(first);
	finish(second);
}

static void run_alone(side_fn *run, const char *addr)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	finish(start(run, pair[0], pair[1], addr, 0));
	close(pair[1]);
}

static const uint32_t sizes[] = {1, 3, 8, 100, 4096, 4097, 16384, 65537, (1u << 20) + 13};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define HALF (BUFFER / 2)

/* --- everything, by polling and by sleeping
 * ------------------------------------------------------- */

static void initiator(struct side *side, completion_fn *next)
{
	side_open(side);
	side_connect(side);
	for (uint32_t i = 0; i < SIZES; i++) {
		uint32_t n = sizes[i];

		fill(side->buffer + i, n, i);
		post(side, VB_WR_RDMA_WRITE, i, n, HALF + 1);
		expect(side, next, VB_WC_RDMA_WRITE);
		post(side, VB_WR_RDMA_READ, HALF, n, HALF + 1);
		expect(side, next, VB_WC_RDMA_READ);
		compare(side->buffer + HALF, n, i);
		fill(side->buffer, n, i + 1000);
		post(side, VB_WR_SEND, 0, n, 0);
		expect(side, next, VB_WC_SEND);
		meet(side); /* the other has looked at it */
	}
	for (uint64_t i = 0; i < 10; i++) {
		uint64_t before;

		post(side, VB_WR_ATOMIC_FETCH_AND_ADD, 64, 8, BUFFER - 64);
		expect(side, next, VB_WC_FETCH_ADD);
		memcpy(&before, side->buffer + 64, 8);
		REQUIRE(before == 5 * i);
	}
	meet(side);
	meet(side);
	side_close(side);
}

static void target(struct side *side, completion_fn *next)
{
	uint64_t sum;

	side_open(side);
	side_connect(side);
	for (uint32_t i = 0; i < SIZES; i++) {
		post_recv(side, 7, HALF - 7);
		expect(side, next, VB_WC_RECV);
		compare(side->buffer + 7, sizes[i], i + 1000);
		/* the WRITE before it is there, too */
		compare(side->buffer + HALF + 1, sizes[i], i);
		meet(side);
	}
	meet(side); /* asleep in recv(2) while the atomics run */
	memcpy(&sum, side->buffer + BUFFER - 64, 8);
	REQUIRE(sum == 50);
	meet(side);
	side_close(side);
}

static void initiator_polls(struct side *side)
{
	initiator(side, by_polling);
}

static void target_polls(struct side *side)
{
	target(side, by_polling);
}

static void initiator_sleeps(struct side *side)
{
	initiator(side, by_sleeping);
}

static void target_sleeps(struct side *side)
{
	target(side, by_sleeping);
}

static void same_host_polling(void **state)
{
	for (unsigned int gid = 0; gid < 2; gid++)
		run_pair(initiator_polls, "127.8.1.1", target_polls, "127.8.1.1", gid);
}

static void same_host_sleeping(void **state)
{
	run_pair(initiator_sleeps, "127.8.1.2", target_sleeps, "127.8.1.2", 1);
	run_pair(initiator_polls, "127.8.1.2", target_sleeps, "127.8.1.2", 0);
}

static void two_hosts_polling(void **state)
{
	for (unsigned int gid = 0; gid < 2; gid++)
		run_pair(initiator_polls, "127.8.1.3", target_polls, "127.8.1.4", gid);
}

static void two_hosts_sleeping(void **state)
{
	run_pair(initiator_sleeps, "127.8.1.5", target_sleeps, "127.8.1.6", 1);
	run_pair(initiator_polls, "127.8.1.5", target_sleeps, "127.8.1.6", 0);
}

static void same_host_by_udp(void **state)
{
	setenv("VERBENA_LOCAL", "0", 1);
	run_pair(initiator_polls, "127.8.1.7", target_sleeps, "127.8.1.7", 1);
	unsetenv("VERBENA_LOCAL");
}

static void same_host_not_directly(void **state)
{
	setenv("VERBENA_DIRECT", "0", 1);
	run_pair(initiator_sleeps, "127.8.1.8", target_polls, "127.8.1.8", 1);
	unsetenv("VERBENA_DIRECT");
}

static void ipv6_loopback(void **state)
{
	setenv("VERBENA_LOCAL", "0", 1);
	if (access("/proc/net/if_inet6", R_OK) == 0)
		run_pair(initiator_polls, "::1", target_sleeps, "::1", 1);
	unsetenv("VERBENA_LOCAL");
}

/* --- posted, then never called again
 * -------------------------------------------------------------- */

/* Posts and only watches memory: no poll, no event, no further call. */
static void posts_and_watches(struct side *side)
{
	volatile uint8_t *answer;
	uint64_t until;

	side_open(side);
	side_connect(side);
	fill(side->buffer, 1 << 20, 4);
	for (int i = 0; i < 5; i++) /* looks like a spinner, so that the thread parks */
		for (struct vb_cqe cqe; vb_engine_poll_cq(side->engine, side->cq, &cqe, 1) > 0;)
			;
	post(side, VB_WR_RDMA_WRITE, 0, 1 << 20, HALF);
	answer = side->buffer + HALF;
	for (until = vb_engine_now() + PATIENCE_MS * 1000000ull; *answer != 0x5a; sched_yield())
		REQUIRE(vb_engine_now() < until);
	meet(side);
	side_close(side);
}

static void watches_and_posts(struct side *side)
{
	volatile uint8_t *last;
	uint64_t until;

	side_open(side);
	side_connect(side);
	last = side->buffer + HALF + (1 << 20) - 1;
	for (until = vb_engine_now() + PATIENCE_MS * 1000000ull; *last != pattern(4, (1 << 20) - 1);
	     sched_yield())
		REQUIRE(vb_engine_now() < until);
	compare(side->buffer + HALF, 1 << 20, 4);
	side->buffer[0] = 0x5a;
	post(side, VB_WR_RDMA_WRITE, 0, 1, HALF);
	meet(side);
	side_close(side);
}

static void only_memory_is_watched(void **state)
{
	run_pair(posts_and_watches, "127.8.2.1", watches_and_posts, "127.8.2.1", 1);
	run_pair(posts_and_watches, "127.8.2.2", watches_and_posts, "127.8.2.3", 1);
}

/* --- what an idle engine costs
 * --------------------------------------------------------------------- */

static uint64_t processor_ns(void)
{
	struct timespec used;

	REQUIRE(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0);
	return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

static void idles(struct side *side)
{
	const struct timespec settle = {.tv_nsec = 300 * 1000 * 1000}, idle = {.tv_sec = 2};
	struct vb_cqe cqe;
	uint64_t before;

	side_open(side);
	side_connect(side);
	post(side, VB_WR_RDMA_WRITE, 0, 100, HALF);
	expect(side, by_polling, VB_WC_RDMA_WRITE);
	for (int i = 0; i < 1000; i++) /* it has been spinning */
		REQUIRE(vb_engine_poll_cq(side->engine, side->cq, &cqe, 1) == 0);
	meet(side);
	nanosleep(&settle, NULL);
	before = processor_ns();
	nanosleep(&idle, NULL);
	REQUIRE(processor_ns() - before < 1000000);
	meet(side);
	side_close(side);
}

static void idle_costs_nothing(void **state)
{
	run_pair(idles, "127.8.2.4", idles, "127.8.2.4", 1);
	run_pair(idles, "127.8.2.5", idles, "127.8.2.6", 1);
}

/* --- fork, exit, open and close
 * --------------------------------------------------------------------- */

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
	for (int i = 0; i < 5; i++)
		run_alone(exits_at_once, "127.8.3.6");
}

/* --- refusals ------------------------------------------------------------------------------------
 */

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
	struct in6_addr synthetic = vb_gid_synthetic(&peer), none = {0}, mapped_none, multicast;
	struct in6_addr ipv6 = IN6ADDR_LOOPBACK_INIT;

	side_open(side);
	mapped_none = vb_address_from_ipv4((struct in_addr){0});
	multicast = vb_address_from_ipv4((struct in_addr){htonl(0xe0000001)});
	for (uint8_t i = 0; i < 2; i++) {
		REQUIRE(try_address(side, &peer, i) == 0);
		REQUIRE(try_address(side, &synthetic, i) == 0);
		REQUIRE(try_address(side, &side->mine.gids[0], i) == 0);
		REQUIRE(try_address(side, &side->mine.gids[1], i) == 0);
		REQUIRE(try_address(side, &none, i) == -EINVAL);
		REQUIRE(try_address(side, &mapped_none, i) == -EINVAL);
		REQUIRE(try_address(side, &multicast, i) == -EINVAL);
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
		cmocka_unit_test(same_host_polling),
		cmocka_unit_test(same_host_sleeping),
		cmocka_unit_test(two_hosts_polling),
		cmocka_unit_test(two_hosts_sleeping),
		cmocka_unit_test(same_host_by_udp),
		cmocka_unit_test(same_host_not_directly),
		cmocka_unit_test(ipv6_loopback),
		cmocka_unit_test(only_memory_is_watched),
		cmocka_unit_test(idle_costs_nothing),
		cmocka_unit_test(fork_in_between),
		cmocka_unit_test(nothing_is_left),
		cmocka_unit_test(closed_with_objects),
		cmocka_unit_test(exit_with_everything_alive),
		cmocka_unit_test(addresses),
		cmocka_unit_test(regions),
		cmocka_unit_test(equal_keys),
		cmocka_unit_test(wrong_setting),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
