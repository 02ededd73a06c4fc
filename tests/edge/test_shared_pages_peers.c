/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * VERBENA_SHARE=1 between processes: what peers write, read and count in each other's memory, and
 * what becomes of it when one of them goes or takes its memory back.
 *
 * The test is the target. Its peers are forked before it opens the device; each connects by what
 * both write into a socket, does one thing, and ends with 0 if all was well.
 */
#define _GNU_SOURCE
#include "edge.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096u
#define BYTES (1u << 20)
#define PEERS 3

/* What the ends tell each other. */
struct hello {
	uint32_t qpn, rkey;
	uint64_t at;
	union ibv_gid gid;
};

/* One end, of one connection. */
struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory; /* BYTES */
	struct hello hello, peer;
	int socket;
	pid_t pid; /* the target's: of the peer */
};

/* In peers, where an assertion would end nothing: says where, and ends it. */
#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "peer, line %d: %s\n", __LINE__, #what);                   \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static bool system_can_share(void)
{
	struct uffdio_api api = {.api = UFFD_API,
				 .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | 1 << 12};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1);
	bool can = fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0;

	if (fd >= 0)
		close(fd);
	return can;
}

/* Whether this process has mapped an arena, its own or a peer's. */
static bool has_mapped_arena(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	bool found = false;
	char line[512];

	while (maps && fgets(line, sizeof(line), maps))
		found |= strstr(line, "memfd:verbena-share") != NULL;
	if (maps)
		fclose(maps);
	return found;
}

static bool is_local(void)
{
	return strcmp(getenv("VB_EDGE_TOPOLOGY"), "local") == 0;
}

/* Addresses of this test's own; the target has the first, its peers the last. */
static void choose_hosts(void)
{
	const int high = getpid() / 100 % 200 + 1, low = getpid() % 100 * 2 + 1;
	char hosts[64];

	snprintf(hosts, sizeof(hosts), is_local() ? "127.65.%d.%d" : "127.65.%d.%d,127.65.%d.%d",
		 high, low, high, low + 1);
	setenv("VERBENA_ADDR", hosts, 1);
}

/* --- an end's life; false: something was refused ------------------------------------------ */

static bool open_end(struct end *end, bool is_peer)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_qp_init_attr init = {
		.cap = {16, 16, 4, 4, 64},
		.qp_type = IBV_QPT_RC,
	};

	end->context = count ? ibv_open_device(list[is_peer ? count - 1 : 0]) : NULL;
	ibv_free_device_list(list);
	end->pd = end->context ? ibv_alloc_pd(end->context) : NULL;
	end->cq = end->pd ? ibv_create_cq(end->context, 64, NULL, NULL, 0) : NULL;
	init.send_cq = init.recv_cq = end->cq;
	end->qp = end->cq ? ibv_create_qp(end->pd, &init) : NULL;
	end->hello.qpn = end->qp ? end->qp->qp_num : 0;
	return end->qp && ibv_query_gid(end->context, 1, 1, &end->hello.gid) == 0;
}

static bool to_rts(struct end *end)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = EDGE_ALL_ACCESS,
	};

	if (ibv_modify_qp(end->qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		return false;
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = end->peer.qpn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = end->peer.gid, .sgid_index = 1, .hop_limit = 64}},
	};
	if (ibv_modify_qp(end->qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return false;
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = 12,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};
	return ibv_modify_qp(end->qp, &attr,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0;
}

static bool say(int fd)
{
	return write(fd, "", 1) == 1;
}

static bool hear(int fd)
{
	char byte;

	return read(fd, &byte, 1) == 1;
}

/* Both are in RTS when both are back. */
static bool connect_end(struct end *end)
{
	return write(end->socket, &end->hello, sizeof(end->hello)) == sizeof(end->hello) &&
	       recv(end->socket, &end->peer, sizeof(end->peer), MSG_WAITALL) == sizeof(end->peer) &&
	       to_rts(end) && say(end->socket) && hear(end->socket);
}

/* --- a peer ------------------------------------------------------------------------------- */

static enum ibv_wc_status run(struct end *end, enum ibv_wr_opcode opcode, uint32_t from,
			      uint64_t at, uint32_t length, uint64_t value)
{
	struct ibv_sge sge = {(uintptr_t)end->memory + from, length, end->mr->lkey};
	struct ibv_send_wr *bad, wr = {
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = opcode,
					 .send_flags = IBV_SEND_SIGNALED,
				 };
	struct ibv_wc wc;
	int n;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = at;
		wr.wr.atomic.compare_add = value;
		wr.wr.atomic.swap = value + 1;
		wr.wr.atomic.rkey = end->peer.rkey;
	} else {
		wr.wr.rdma.remote_addr = at;
		wr.wr.rdma.rkey = end->peer.rkey;
	}
	CHECK(ibv_post_send(end->qp, &wr, &bad) == 0);
	do {
		n = ibv_poll_cq(end->cq, 1, &wc);
	} while (n == 0);
	CHECK(n == 1);
	return wc.status;
}

typedef void peer_fn(struct end *end);

static void be_peer(struct end *end, peer_fn *does)
{
	CHECK(open_end(end, true));
	end->memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(end->memory != MAP_FAILED);
	end->mr = ibv_reg_mr(end->pd, end->memory, BYTES, IBV_ACCESS_LOCAL_WRITE);
	CHECK(end->mr);
	CHECK(connect_end(end));
	does(end);
	_exit(0);
}

static void start_peer(struct end *end, peer_fn *does)
{
	int sockets[2];

	memset(end, 0, sizeof(*end));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
	fflush(NULL);
	end->pid = fork();
	assert_true(end->pid >= 0);
	if (end->pid == 0) {
		close(sockets[0]);
		end->socket = sockets[1];
		be_peer(end, does);
	}
	close(sockets[1]);
	end->socket = sockets[0];
}

static void expect_end(struct end *end)
{
	int status;

	assert_int_equal(waitpid(end->pid, &status, 0), end->pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* --- the target --------------------------------------------------------------------------- */

/* Accepts the peer's connection, with memory [from, from + length) to be used by it. */
static void be_target(struct end *end, uint32_t from, uint32_t length)
{
	assert_true(open_end(end, false));
	end->memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(end->memory != MAP_FAILED);
	end->mr = ibv_reg_mr(end->pd, end->memory + from, length, EDGE_ALL_ACCESS);
	assert_non_null(end->mr);
	end->hello.rkey = end->mr->rkey;
	end->hello.at = (uintptr_t)end->memory + from;
	assert_true(connect_end(end));
}

static void close_end(struct end *end)
{
	assert_int_equal(ibv_destroy_qp(end->qp), 0);
	if (end->mr)
		assert_int_equal(ibv_dereg_mr(end->mr), 0);
	assert_int_equal(ibv_destroy_cq(end->cq), 0);
	assert_int_equal(ibv_dealloc_pd(end->pd), 0);
	assert_int_equal(ibv_close_device(end->context), 0);
	if (end->memory)
		munmap(end->memory, BYTES);
	close(end->socket);
}

/* --- right data --------------------------------------------------------------------------- */

#define AREA_FROM 1111u
#define AREA_LENGTH (90u * PAGE + 77u)
#define WRITES 200u

static uint32_t draw(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*seed >> 33);
}

/* The same accesses for whoever makes them and whoever checks them: most of them short, near the
 * borders of the region; some long, over all of them. */
static void next_access(uint64_t *seed, uint32_t *offset, uint32_t *length)
{
	uint32_t near = draw(seed) % 3 ? 2 * PAGE : AREA_LENGTH;

	*offset = draw(seed) % near;
	if (draw(seed) % 2)
		*offset = AREA_LENGTH - 1 - *offset;
	*length = draw(seed) % 4 ? draw(seed) % 40 + 1 : draw(seed) % AREA_LENGTH + 1;
	if (*length > AREA_LENGTH - *offset)
		*length = AREA_LENGTH - *offset;
}

static void write_and_read(struct end *end)
{
	uint32_t offset, length;
	uint64_t seed = 5;

	for (uint32_t i = 0; i < WRITES; i++) {
		next_access(&seed, &offset, &length);
		edge_fill(end->memory, length, i);
		CHECK(run(end, IBV_WR_RDMA_WRITE, 0, end->peer.at + offset, length, 0) ==
		      IBV_WC_SUCCESS);
		memset(end->memory + BYTES / 2, 0, length);
		CHECK(run(end, IBV_WR_RDMA_READ, BYTES / 2, end->peer.at + offset, length, 0) ==
		      IBV_WC_SUCCESS);
		CHECK(edge_is_filled(end->memory + BYTES / 2, length, i));
	}
	CHECK(has_mapped_arena() == (is_local() && system_can_share()));
	CHECK(run(end, IBV_WR_RDMA_WRITE, 0, end->peer.at + AREA_LENGTH - 5, 6, 0) ==
	      IBV_WC_REM_ACCESS_ERR);
}

static void over_borders(void **state)
{
	static uint8_t expected[BYTES];
	uint32_t offset, length;
	uint64_t seed = 5;
	struct end end;

	start_peer(&end, write_and_read);
	be_target(&end, AREA_FROM, AREA_LENGTH);
	expect_end(&end);
	memset(expected, 0, sizeof(expected));
	for (uint32_t i = 0; i < WRITES; i++) {
		next_access(&seed, &offset, &length);
		edge_fill(expected + AREA_FROM + offset, length, i);
	}
	assert_memory_equal(end.memory, expected, BYTES);
	close_end(&end);
}

/* --- other data on the region's pages ------------------------------------------------------ */

struct neighbour {
	volatile uint64_t *word[4];
	atomic_bool stop;
	uint64_t count;
};

static void *count_beside(void *argument)
{
	struct neighbour *n = argument;

	for (; !atomic_load(&n->stop); n->count++)
		for (int i = 0; i < 4; i++)
			*n->word[i] += 1;
	return NULL;
}

static void write_all(struct end *end)
{
	for (uint32_t i = 0; i < 300; i++) {
		edge_fill(end->memory, 3 * PAGE, i);
		CHECK(run(end, IBV_WR_RDMA_WRITE, 0, end->peer.at, 3 * PAGE, 0) == IBV_WC_SUCCESS);
	}
}

/* The region ends and begins within pages that have other data, which the program changes; and
 * others come and go in the middle of it. */
static void neighbours_keep_their_data(void **state)
{
	struct neighbour n = {.count = 0};
	struct end end;
	pthread_t thread;
	struct ibv_mr *mr;

	start_peer(&end, write_all);
	be_target(&end, 200, 3 * PAGE);
	n.word[0] = (void *)end.memory;
	n.word[1] = (void *)(end.memory + 192);
	n.word[2] = (void *)(end.memory + 3 * PAGE + 200);
	n.word[3] = (void *)(end.memory + 4 * PAGE - 8);
	assert_int_equal(pthread_create(&thread, NULL, count_beside, &n), 0);
	for (int i = 0; i < 100; i++) {
		mr = ibv_reg_mr(end.pd, end.memory + PAGE, 2 * PAGE + 100, EDGE_ALL_ACCESS);
		assert_non_null(mr);
		assert_int_equal(ibv_dereg_mr(mr), 0);
	}
	expect_end(&end);
	atomic_store(&n.stop, true);
	pthread_join(thread, NULL);
	for (int i = 0; i < 4; i++)
		assert_int_equal(*n.word[i], n.count);
	assert_true(edge_is_filled(end.memory + 200, 3 * PAGE, 299));
	close_end(&end);
}

/* --- taken back, and killed ---------------------------------------------------------------- */

static void write_until_refused(struct end *end)
{
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	bool first = true;

	memset(end->memory, 0xee, BYTES);
	for (; status == IBV_WC_SUCCESS; first = false) {
		status = run(end, IBV_WR_RDMA_WRITE, 0, end->peer.at, BYTES, 0);
		CHECK(!first || (status == IBV_WC_SUCCESS && say(end->socket)));
	}
	CHECK(status == IBV_WC_REM_ACCESS_ERR);
	CHECK(say(end->socket));
}

static void taken_back_during_a_copy(void **state)
{
	for (int i = 0; i < 10; i++) {
		struct end end;

		start_peer(&end, write_until_refused);
		be_target(&end, 0, BYTES);
		assert_true(hear(end.socket));
		assert_int_equal(ibv_dereg_mr(end.mr), 0);
		end.mr = NULL;
		memset(end.memory, 0x11, BYTES);
		assert_true(hear(end.socket));
		expect_end(&end);
		for (size_t k = 0; k < BYTES; k++)
			assert_int_equal(end.memory[k], 0x11);
		close_end(&end);
	}
}

/* One that is stopped, perhaps in the middle of its copy, and goes on later. */
static void taken_back_from_the_stopped(void **state)
{
	for (int i = 0; i < 10; i++) {
		struct end end;
		int status;

		start_peer(&end, write_until_refused);
		be_target(&end, 0, BYTES);
		assert_true(hear(end.socket));
		assert_int_equal(kill(end.pid, SIGSTOP), 0);
		assert_int_equal(waitpid(end.pid, &status, WUNTRACED), end.pid);
		assert_true(WIFSTOPPED(status));
		assert_int_equal(ibv_dereg_mr(end.mr), 0);
		memset(end.memory, 0x11, BYTES);
		/* the arena's next pages are others than those it may still write */
		end.mr = ibv_reg_mr(end.pd, end.memory, BYTES, EDGE_ALL_ACCESS);
		assert_non_null(end.mr);
		assert_int_equal(kill(end.pid, SIGCONT), 0);
		assert_true(hear(end.socket));
		expect_end(&end);
		for (size_t k = 0; k < BYTES; k++)
			assert_int_equal(end.memory[k], 0x11);
		close_end(&end);
	}
}

static void write_until_dead(struct end *end)
{
	enum ibv_wc_status status = IBV_WC_SUCCESS;

	CHECK(run(end, IBV_WR_RDMA_WRITE, 0, end->peer.at, BYTES, 0) == IBV_WC_SUCCESS);
	CHECK(say(end->socket));
	while (status == IBV_WC_SUCCESS)
		status = run(end, IBV_WR_RDMA_WRITE, 0, end->peer.at, BYTES, 0);
	CHECK(status == IBV_WC_RETRY_EXC_ERR);
	CHECK(!has_mapped_arena());
}

/* The target is a process of its own here. */
static void target_killed(void **state)
{
	struct end end;
	pid_t target;
	int status, ready[2];

	assert_int_equal(pipe(ready), 0);
	start_peer(&end, write_until_dead);
	fflush(NULL);
	target = fork();
	assert_true(target >= 0);
	if (target == 0) {
		be_target(&end, 0, BYTES);
		CHECK(say(ready[1]));
		for (;;)
			pause();
	}
	/* its first byte, that it is connected, is the target's to read; the next is ours */
	close(ready[1]);
	assert_true(hear(ready[0]));
	assert_true(hear(end.socket));
	assert_int_equal(kill(target, SIGKILL), 0);
	assert_int_equal(waitpid(target, &status, 0), target);
	expect_end(&end);
	close(end.socket);
	close(ready[0]);
}

/* --- counting ------------------------------------------------------------------------------ */

#define ADDS 3000u

static void add_ones(struct end *end)
{
	for (uint32_t i = 0; i < ADDS; i++)
		CHECK(run(end, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, end->peer.at, 8, 1) ==
		      IBV_WC_SUCCESS);
}

/* The same by compare and swap. */
static void swap_ones(struct end *end)
{
	volatile uint64_t *old = (void *)end->memory;

	for (uint32_t i = 0; i < ADDS / 10;) {
		uint64_t expected = *old;

		CHECK(run(end, IBV_WR_ATOMIC_CMP_AND_SWP, 0, end->peer.at, 8, expected) ==
		      IBV_WC_SUCCESS);
		i += *old == expected;
	}
}

/* Through a region of the same word that has no whole page. */
static void add_by_packets(struct end *end)
{
	add_ones(end);
	CHECK(!has_mapped_arena());
}

static void add_in_pages(struct end *end)
{
	add_ones(end);
	CHECK(has_mapped_arena() == (is_local() && system_can_share()));
}

static void *add_here(void *argument)
{
	for (uint32_t i = 0; i < ADDS * 10; i++)
		__atomic_fetch_add((uint64_t *)argument, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void everybody_counts(void **state)
{
	struct end ends[PEERS];
	struct ibv_mr *small;
	pthread_t thread;
	uint64_t *word;

	start_peer(&ends[0], add_in_pages);
	start_peer(&ends[1], swap_ones);
	start_peer(&ends[2], add_by_packets);
	be_target(&ends[0], 0, BYTES);
	word = (void *)ends[0].memory;
	small = ibv_reg_mr(ends[0].pd, word, 16, EDGE_ALL_ACCESS);
	assert_non_null(small);
	for (int i = 1; i < PEERS; i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = ends[0].cq,
			.recv_cq = ends[0].cq,
			.cap = {16, 16, 4, 4, 64},
			.qp_type = IBV_QPT_RC,
		};

		assert_true(open_end(&ends[i], false));
		assert_int_equal(ibv_destroy_qp(ends[i].qp), 0);
		ends[i].qp = ibv_create_qp(ends[0].pd, &init);
		assert_non_null(ends[i].qp);
		ends[i].hello = ends[0].hello;
		ends[i].hello.qpn = ends[i].qp->qp_num;
		if (i == PEERS - 1)
			ends[i].hello.rkey = small->rkey;
		assert_true(connect_end(&ends[i]));
	}
	assert_int_equal(pthread_create(&thread, NULL, add_here, word), 0);
	for (int i = 0; i < PEERS; i++)
		expect_end(&ends[i]);
	pthread_join(thread, NULL);
	assert_int_equal(*word, ADDS * 12 + ADDS / 10);
	assert_int_equal(ibv_dereg_mr(small), 0);
	for (int i = PEERS - 1; i >= 0; i--)
		close_end(&ends[i]);
}

static void bad_atomics(struct end *end)
{
	CHECK(run(end, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, end->peer.at + 8, 8, 5) == IBV_WC_SUCCESS);
	CHECK(run(end, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, end->peer.at + 12, 8, 1) ==
	      IBV_WC_REM_INV_REQ_ERR);
}

static void unaligned_atomic(void **state)
{
	struct end end;

	start_peer(&end, bad_atomics);
	be_target(&end, 0, BYTES);
	expect_end(&end);
	assert_int_equal(end.memory[8], 5);
	end.memory[8] = 0;
	for (size_t k = 0; k < 64; k++)
		assert_int_equal(end.memory[k], 0);
	close_end(&end);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(over_borders),
		cmocka_unit_test(neighbours_keep_their_data),
		cmocka_unit_test(taken_back_during_a_copy),
		cmocka_unit_test(taken_back_from_the_stopped),
		cmocka_unit_test(target_killed),
		cmocka_unit_test(everybody_counts),
		cmocka_unit_test(unaligned_atomic),
	};

	setenv("VERBENA_SHARE", "1", 1);
	choose_hosts();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
