/* SPDX-License-Identifier: BSD-2-Clause */
/* test_engine.c - two engines move data over both carriers, while both poll and while nobody does.
 */
#include "sides.h"

#include "carrier/udp.h"
#include "host/engine.h"

static const uint32_t sizes[] = {1, 3, 8, 100, 4096, 4097, 16384, 65537, (1u << 20) + 13};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* --- everything, by polling and by sleeping ---------------------------------------------- */

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

static struct vb_qp *to_itself(struct side *side)
{
	struct vb_qp_init init = {
		.type = VB_QPT_RC,
		.send_cq = side->cq,
		.recv_cq = side->cq,
		.cap = {.max_send_wr = 2, .max_send_sge = 1},
	};
	struct vb_qp *qp = vb_qp_create(side->pd, &init);
	struct vb_qp_attr attr = {
		.qp_state = VB_QPS_INIT, .port_num = 1, .access_flags = VB_ACCESS_REMOTE_ALL};

	REQUIRE(qp);
	REQUIRE(vb_qp_modify(qp, &attr,
			     VB_QP_STATE | VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS) ==
		0);
	attr = (struct vb_qp_attr){
		.qp_state = VB_QPS_RTR,
		.path_mtu = VB_MTU_1024,
		.dest_qpn = qp->qpn,
		.max_dest_rd_atomic = 1,
		.ah = {.dgid = side->mine.gids[1],
		       .sgid_index = 1,
		       .is_global = true,
		       .port_num = 1},
	};
	REQUIRE(vb_qp_modify(qp, &attr,
			     VB_QP_STATE | VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN |
				     VB_QP_RQ_PSN | VB_QP_MAX_DEST_RD_ATOMIC |
				     VB_QP_MIN_RNR_TIMER) == 0);
	attr = (struct vb_qp_attr){
		.qp_state = VB_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
	REQUIRE(vb_qp_modify(qp, &attr,
			     VB_QP_STATE | VB_QP_SQ_PSN | VB_QP_TIMEOUT | VB_QP_RETRY_CNT |
				     VB_QP_RNR_RETRY | VB_QP_MAX_QP_RD_ATOMIC) == 0);
	return qp;
}

/* --- an answer in time, looked at too late ----------------------------------------------- */

static void post_bare(struct side *side, struct vb_qp *qp, uint32_t flags, uint64_t remote_addr,
		      uint32_t rkey)
{
	struct vb_sge sge = {(uintptr_t)side->buffer, 64, side->mr->lkey};
	const struct vb_send_wr wr = {
		.opcode = VB_WR_RDMA_WRITE,
		.sges = &sge,
		.num_sge = 1,
		.flags = flags,
		.remote_addr = remote_addr,
		.rkey = rkey,
	};

	REQUIRE(vb_qp_post_send(qp, &wr) == 0);
}

/* Inside. One attempt only. The engine's lock is kept, so that its thread stays away like the rest
 * of a process that was stopped; when the next call is made the ACK has come, behind much else, and
 * its timer has run out. */
static void outlast_the_timer(struct side *side)
{
	fill(side->buffer, 64, 9);
	side->qp->attr.retry_cnt = 0;
	side->qp->req.retries_left = 0;
	meet(side); /* the other is inside as well */
	post_bare(side, side->qp, VB_SEND_SIGNALED, side->theirs.addr, side->theirs.rkey);
	vb_engine_pump(side->engine);
	meet(side);
	meet(side);
	while (vb_engine_now() <= vb_nic_deadline(vb_engine_nic(side->engine)))
		sched_yield();
}

static void looks_late(struct side *side)
{
	side_open(side);
	side_connect(side);
	REQUIRE(vb_engine_enter(side->engine));
	outlast_the_timer(side);
	vb_engine_pump(side->engine);
	vb_engine_leave(side->engine);
	expect(side, by_polling, VB_WC_RDMA_WRITE);
	meet(side);
	side_close(side);
}

/* The next call is a post, which looks at nothing but one time in many: the first one. What it
 * posts must not be copied directly, which would leave it nothing to do. */
static void posts_late(struct side *side)
{
	struct vb_qp *other;

	side_open(side);
	side_connect(side);
	REQUIRE(vb_engine_enter(side->engine));
	other = to_itself(side);
	outlast_the_timer(side);
	side->engine->pumps = 0;
	post_bare(side, other, 0, (uintptr_t)side->buffer + HALF, side->mr->rkey);
	REQUIRE(side->engine->nic->ready_soon);
	vb_engine_pump_posts(side->engine);
	vb_engine_leave(side->engine);
	expect(side, by_polling, VB_WC_RDMA_WRITE);
	meet(side);
	REQUIRE(vb_engine_enter(side->engine));
	vb_qp_destroy(other);
	vb_engine_leave(side->engine);
	side_close(side);
}

/* Packets for nobody: more than one look at a ring or a socket takes. */
static void crowd(struct side *side)
{
	const struct vb_headers headers = {
		.opcode = vb_opcode(VB_TRANSPORT_UC, VB_OP_SEND_ONLY),
		.pkey = VB_DEFAULT_PKEY,
		.qpn = side->theirs.qpn ^ 1,
	};
	const struct vb_tx tx = {.headers = &headers};
	struct vb_carrier *carrier = side->qp->path.carrier;

	for (int i = 0; i < 600; i++)
		REQUIRE(carrier->ops->tx(carrier, &side->qp->path, &tx) == 0);
	carrier->ops->flush(carrier);
}

static void acknowledges(struct side *side)
{
	const volatile uint8_t *last;

	side_open(side);
	last = side->buffer + 63;
	side_connect(side);
	REQUIRE(vb_engine_enter(side->engine));
	meet(side);
	meet(side);
	crowd(side);
	vb_engine_leave(side->engine);
	while (*last != pattern(9, 63))
		sched_yield();
	/* Whoever placed it had the lock, and gave it back with the ACK on its way. */
	REQUIRE(vb_engine_enter(side->engine));
	vb_engine_leave(side->engine);
	meet(side);
	meet(side);
	side_close(side);
}

static void an_answer_in_time_counts(void **state)
{
	run_pair(looks_late, "127.8.1.14", acknowledges, "127.8.1.15", 1);
	setenv("VERBENA_DIRECT", "0", 1);
	run_pair(posts_late, "127.8.1.14", acknowledges, "127.8.1.15", 1);
	run_pair(looks_late, "127.8.1.16", acknowledges, "127.8.1.16", 1);
	run_pair(posts_late, "127.8.1.16", acknowledges, "127.8.1.16", 1);
	unsetenv("VERBENA_DIRECT");
}

/* --- posted, then never called again ----------------------------------------------------- */

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

/* --- a row of posts to several queue pairs ------------------------------------------------ */

#define ROW 16u
#define ROWS 2000 /* some are disturbed where the machine is busy */

static void post_to(struct side *side, struct vb_qp *qp)
{
	struct vb_sge sge = {.addr = (uintptr_t)side->buffer, .length = 8, .lkey = side->mr->lkey};
	const struct vb_send_wr wr = {
		.opcode = VB_WR_RDMA_WRITE,
		.sges = &sge,
		.num_sge = 1,
		.flags = VB_SEND_SIGNALED,
		.remote_addr = (uintptr_t)side->buffer + HALF,
		.rkey = side->mr->rkey,
	};

	REQUIRE(vb_engine_enter_to_post(side->engine, qp));
	REQUIRE(vb_qp_post_send(qp, &wr) == 0);
	vb_engine_leave_sends(side->engine, qp);
}

/* A row, to its end; the system calls that it and its acknowledgements left by. */
static uint64_t calls_of_row(struct side *side, struct vb_qp **qps)
{
	struct vb_udp_counters before, after;

	vb_udp_read_counters(side->engine->udp, &before);
	for (unsigned int i = 0; i < ROW; i++) {
		post_to(side, qps[i]);
		/* The first one has nobody to wait for. */
		REQUIRE(i > 0 || !vb_hold_waits(&side->engine->hold));
	}
	for (unsigned int i = 0; i < ROW; i++)
		REQUIRE(by_polling(side).status == VB_WC_SUCCESS);
	vb_udp_read_counters(side->engine->udp, &after);
	return after.tx_calls - before.tx_calls;
}

static void posts_to_many(struct side *side)
{
	struct vb_qp *qps[ROW];
	uint64_t fewest = UINT64_MAX;

	side_open(side);
	REQUIRE(vb_engine_enter(side->engine));
	for (unsigned int i = 0; i < ROW; i++)
		qps[i] = to_itself(side);
	vb_engine_leave(side->engine);
	for (int row = 0; row < ROWS && fewest > ROW / 2; row++)
		fewest = VB_MIN(fewest, calls_of_row(side, qps));
	REQUIRE(fewest <= ROW / 2); /* alone they are a call each, and their answers too */
	REQUIRE(vb_engine_enter(side->engine));
	for (unsigned int i = 0; i < ROW; i++)
		vb_qp_destroy(qps[i]);
	vb_engine_leave(side->engine);
	side_close(side);
}

static void a_row_is_of_many_queue_pairs(void **state)
{
	setenv("VERBENA_LOCAL", "0", 1);
	run_alone(posts_to_many, "127.8.2.7");
	unsetenv("VERBENA_LOCAL");
}

/* --- what an idle engine costs ----------------------------------------------------------- */

#define IDLE_WAKES 10 /* one look in 200 ms would be as many; our own sleep is one */

static uint64_t processor_ns(void)
{
	struct timespec used;

	REQUIRE(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0);
	return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

static long wakes(void)
{
	struct rusage used;

	REQUIRE(getrusage(RUSAGE_SELF, &used) == 0);
	return used.ru_nvcsw;
}

static void idles(struct side *side)
{
	const struct timespec settle = {.tv_nsec = 300 * 1000 * 1000}, idle = {.tv_sec = 2};
	struct vb_cqe cqe;
	uint64_t spent;
	long before;

	side_open(side);
	side_connect(side);
	post(side, VB_WR_RDMA_WRITE, 0, 100, HALF);
	expect(side, by_polling, VB_WC_RDMA_WRITE);
	for (int i = 0; i < 1000; i++) /* it has been spinning */
		REQUIRE(vb_engine_poll_cq(side->engine, side->cq, &cqe, 1) == 0);
	meet(side);
	nanosleep(&settle, NULL);
	before = wakes();
	spent = processor_ns();
	nanosleep(&idle, NULL);
	REQUIRE(wakes() - before < IDLE_WAKES);
	REQUIRE(processor_ns() - spent < 1000000000u); /* it does not spin for half of the time */
	meet(side);
	side_close(side);
}

static void idle_costs_nothing(void **state)
{
	run_pair(idles, "127.8.2.4", idles, "127.8.2.4", 1);
	run_pair(idles, "127.8.2.5", idles, "127.8.2.6", 1);
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
		cmocka_unit_test(an_answer_in_time_counts),
		cmocka_unit_test(a_row_is_of_many_queue_pairs),
		cmocka_unit_test(idle_costs_nothing),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
