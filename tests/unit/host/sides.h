/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sides.h - live engines in processes of their own, for the tests of this part.
 *
 * A test forks one or two sides before anything of the host was touched, because a process reads
 * its settings once. Sides talk over a socket pair. The test passes when every side returns.
 */
#ifndef VB_TEST_SIDES_H
#define VB_TEST_SIDES_H

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
#include <sys/resource.h>
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

/* --- sides ------------------------------------------------------------------------------- */

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

static inline void on_cq_event(struct vb_engine *engine, struct vb_cq *cq)
{
	uint64_t one = 1;

	REQUIRE(write(cq_events, &one, sizeof(one)) == sizeof(one));
}

static const struct vb_host_hooks hooks = {.cq_event = on_cq_event};

static inline void say(struct side *side, const void *data, size_t size)
{
	REQUIRE(send(side->link, data, size, MSG_NOSIGNAL) == (ssize_t)size);
}

static inline void hear(struct side *side, void *data, size_t size)
{
	REQUIRE(recv(side->link, data, size, MSG_WAITALL) == (ssize_t)size);
}

static inline void meet(struct side *side)
{
	char c = 'x';

	say(side, &c, 1);
	hear(side, &c, 1);
}

static inline struct vb_engine *open_first(void)
{
	struct vb_device *const *list;
	struct vb_engine *engine;

	REQUIRE(vb_host_devices(&list) >= 1);
	REQUIRE(vb_engine_get(list[0], &engine) == 0);
	return engine;
}

static inline void side_open(struct side *side)
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

static inline void side_connect(struct side *side)
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

static inline void side_close(struct side *side)
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

static inline void post(struct side *side, enum vb_wr_opcode opcode, uint32_t at, uint32_t length,
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

static inline void post_recv(struct side *side, uint32_t at, uint32_t length)
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

static inline void arm(struct side *side)
{
	REQUIRE(vb_engine_enter(side->engine));
	vb_cq_arm(side->cq, false);
	vb_engine_wake_thread(side->engine);
	vb_engine_leave(side->engine);
}

/* The way a completion is waited for: by polling, or asleep until the thread says so. */
typedef struct vb_cqe completion_fn(struct side *side);

static inline struct vb_cqe by_polling(struct side *side)
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

static inline struct vb_cqe by_sleeping(struct side *side)
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

static inline void expect(struct side *side, completion_fn *next, enum vb_wc_opcode opcode)
{
	struct vb_cqe cqe = next(side);

	if (cqe.status != VB_WC_SUCCESS)
		fprintf(stderr, "status %u: %s\n", cqe.status, vb_check_name(cqe.vendor_err));
	REQUIRE(cqe.status == VB_WC_SUCCESS);
	REQUIRE(cqe.opcode == opcode);
	REQUIRE(cqe.qpn == side->mine.qpn);
}

static inline uint8_t pattern(uint32_t seed, uint32_t i)
{
	return (uint8_t)((i * 2654435761u + seed * 40503u) >> 11);
}

static inline void fill(uint8_t *to, uint32_t length, uint32_t seed)
{
	for (uint32_t i = 0; i < length; i++)
		to[i] = pattern(seed, i);
}

static inline void compare(const uint8_t *data, uint32_t length, uint32_t seed)
{
	for (uint32_t i = 0; i < length; i++)
		REQUIRE(data[i] == pattern(seed, i));
}

/* --- running sides ----------------------------------------------------------------------- */

typedef void side_fn(struct side *side);

static inline pid_t start(side_fn *run, int link, int other, const char *addr,
			  unsigned int gid_index)
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

static inline void finish(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static inline void run_pair(side_fn *a, const char *a_addr, side_fn *b, const char *b_addr,
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

static inline void run_alone(side_fn *run, const char *addr)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	finish(start(run, pair[0], pair[1], addr, 0));
	close(pair[1]);
}

#define HALF (BUFFER / 2)

#endif
