/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_long_sends_peers.c - long SENDs between two processes, which both may copy at the same time:
 * one of them is stopped meanwhile, may not reach the other's memory, takes a region back, changes
 * it or unmaps what it sends.
 *
 * The test is one end, a child the other; each connects by what both write into a socket.
 */
#define _GNU_SOURCE
#include "edge.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES 1000000u /* of a message */
#define PLACES 4u      /* messages under way */
#define MESSAGES 60u
#define STOPS 40

struct hello {
	uint32_t qpn;
	union ibv_gid gid;
};

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_pd *other_pd;
	struct ibv_dm *dm; /* NULL, or what mr is: one place alone */
	uint8_t *memory;   /* PLACES * BYTES */
	uint8_t *other;	   /* as much, for nothing yet */
	int socket;
	pid_t child;
};

/* In both processes: says where, and ends this one; the parent sees the child's status. */
#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s, line %d: %s\n", __func__, __LINE__, #what);           \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static bool is_local(void)
{
	return strcmp(getenv("VB_EDGE_TOPOLOGY"), "local") == 0;
}

static void choose_hosts(void)
{
	const int high = getpid() / 100 % 200 + 1, low = getpid() % 100 * 2 + 1;
	char hosts[64];

	snprintf(hosts, sizeof(hosts), is_local() ? "127.66.%d.%d" : "127.66.%d.%d,127.66.%d.%d",
		 high, low, high, low + 1);
	setenv("VERBENA_ADDR", hosts, 1);
}

static void to_rts(struct end *end, const struct hello *peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	CHECK(ibv_modify_qp(end->qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
	      0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer->qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = peer->gid, .sgid_index = 1, .hop_limit = 64}},
	};
	CHECK(ibv_modify_qp(end->qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER) == 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = 16,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	CHECK(ibv_modify_qp(end->qp, &attr,
			    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

/* Both are in RTS when both are back. */
static void connect_end(struct end *end)
{
	struct hello own = {.qpn = end->qp->qp_num}, peer;
	char byte = 0;

	CHECK(ibv_query_gid(end->context, 1, 1, &own.gid) == 0);
	CHECK(write(end->socket, &own, sizeof(own)) == sizeof(own));
	CHECK(recv(end->socket, &peer, sizeof(peer), MSG_WAITALL) == sizeof(peer));
	to_rts(end, &peer);
	CHECK(write(end->socket, &byte, 1) == 1 && read(end->socket, &byte, 1) == 1);
}

static void open_end(struct end *end, bool is_child)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_qp_init_attr init = {.cap = {16, 16, 1, 1, 0}, .qp_type = IBV_QPT_RC};

	CHECK(count > 0);
	end->context = ibv_open_device(list[is_child ? count - 1 : 0]);
	ibv_free_device_list(list);
	CHECK(end->context);
	end->pd = ibv_alloc_pd(end->context);
	end->cq = ibv_create_cq(end->context, 64, NULL, NULL, 0);
	CHECK(end->pd && end->cq);
	init.send_cq = init.recv_cq = end->cq;
	end->qp = ibv_create_qp(end->pd, &init);
	end->memory = mmap(NULL, PLACES * BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	end->other = mmap(NULL, PLACES * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	end->other_pd = ibv_alloc_pd(end->context);
	CHECK(end->qp && end->memory != MAP_FAILED && end->other != MAP_FAILED && end->other_pd);
	end->mr = ibv_reg_mr(end->pd, end->memory, PLACES * BYTES, IBV_ACCESS_LOCAL_WRITE);
	CHECK(end->mr);
	connect_end(end);
}

/* The copies between processes are refused from here on. */
static void forbid_copies(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(code) / sizeof(*code), .filter = code};

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static uint8_t *place(const struct end *end, uint32_t index)
{
	return end->memory + index % PLACES * BYTES;
}

static struct ibv_sge sge_of(const struct end *end, uint32_t index)
{
	return (struct ibv_sge){end->dm ? 0 : (uintptr_t)place(end, index), BYTES, end->mr->lkey};
}

static void fill_place(struct end *end, uint32_t index)
{
	edge_fill(place(end, index), BYTES, index);
	if (end->dm)
		CHECK(ibv_memcpy_to_dm(end->dm, 0, place(end, index), BYTES) == 0);
}

static void post_filled(struct end *end, uint32_t index, enum ibv_wr_opcode opcode, uint32_t key)
{
	struct ibv_sge sge = sge_of(end, index);
	struct ibv_send_wr *bad, wr = {
					 .wr_id = index,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = opcode,
					 .send_flags = IBV_SEND_SIGNALED,
					 .invalidate_rkey = key,
				 };

	CHECK(ibv_post_send(end->qp, &wr, &bad) == 0);
}

static void post_send(struct end *end, uint32_t index)
{
	fill_place(end, index);
	post_filled(end, index, IBV_WR_SEND, 0);
}

static void post_recv(struct end *end, uint32_t index)
{
	struct ibv_sge sge = sge_of(end, index);
	struct ibv_recv_wr *bad, wr = {.wr_id = index, .sg_list = &sge, .num_sge = 1};

	memset(place(end, index), 0, BYTES);
	if (end->dm)
		CHECK(ibv_memcpy_to_dm(end->dm, 0, place(end, index), BYTES) == 0);
	CHECK(ibv_post_recv(end->qp, &wr, &bad) == 0);
}

static void check(struct end *end, uint32_t index)
{
	if (end->dm)
		CHECK(ibv_memcpy_from_dm(place(end, index), end->dm, 0, BYTES) == 0);
	CHECK(edge_is_filled(place(end, index), BYTES, index));
}

/* The next completion; false: none yet. */
static bool poll_for(struct end *end, uint32_t index)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(end->cq, 1, &wc);

	CHECK(n >= 0);
	if (n == 0)
		return false;
	CHECK(wc.wr_id == index);
	CHECK(wc.status == IBV_WC_SUCCESS);
	return true;
}

static void wait_for(struct end *end, uint32_t index)
{
	const double until = edge_seconds() + 40;

	while (!poll_for(end, index))
		CHECK(edge_seconds() < until);
}

static void send_all(struct end *end)
{
	for (uint32_t i = 0; i < MESSAGES + PLACES; i++) {
		if (i >= PLACES)
			wait_for(end, i - PLACES);
		if (i < MESSAGES)
			post_send(end, i);
	}
}

static void take(struct end *end, uint32_t index)
{
	check(end, index);
	if (index + PLACES < MESSAGES)
		post_recv(end, index + PLACES);
}

static void begin_to_receive(struct end *end)
{
	for (uint32_t i = 0; i < PLACES; i++)
		post_recv(end, i);
}

static void receive_all(struct end *end)
{
	begin_to_receive(end);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		wait_for(end, i);
		take(end, i);
	}
}

typedef void child_fn(struct end *end);

static void start(struct end *end, child_fn *does)
{
	int sockets[2];

	memset(end, 0, sizeof(*end));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
	fflush(NULL);
	end->child = fork();
	assert_true(end->child >= 0);
	if (end->child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(sockets[0]);
		end->socket = sockets[1];
		open_end(end, true);
		does(end);
		exit(0);
	}
	close(sockets[1]);
	end->socket = sockets[0];
	open_end(end, false);
}

static void close_end(struct end *end)
{
	assert_int_equal(ibv_destroy_qp(end->qp), 0);
	if (end->mr)
		assert_int_equal(ibv_dereg_mr(end->mr), 0);
	if (end->dm)
		assert_int_equal(ibv_free_dm(end->dm), 0);
	assert_int_equal(ibv_destroy_cq(end->cq), 0);
	assert_int_equal(ibv_dealloc_pd(end->pd), 0);
	assert_int_equal(ibv_dealloc_pd(end->other_pd), 0);
	assert_int_equal(ibv_close_device(end->context), 0);
	munmap(end->memory, PLACES * BYTES);
	munmap(end->other, PLACES * BYTES);
	close(end->socket);
}

static void finish(struct end *end)
{
	int status;

	assert_int_equal(waitpid(end->child, &status, 0), end->child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	close_end(end);
}

/* --- the tests ---------------------------------------------------------------------------- */

static void all_arrive(void **state)
{
	struct end end;

	start(&end, send_all);
	receive_all(&end);
	finish(&end);
}

static void send_forbidden(struct end *end)
{
	forbid_copies();
	send_all(end);
}

static void receive_forbidden(struct end *end)
{
	forbid_copies();
	receive_all(end);
}

static void the_sender_may_not_copy(void **state)
{
	struct end end;

	start(&end, send_forbidden);
	receive_all(&end);
	finish(&end);
}

static void the_receiver_may_not_copy(void **state)
{
	struct end end;

	start(&end, receive_forbidden);
	send_all(&end);
	finish(&end);
}

static void stop(pid_t pid)
{
	int status;

	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
}

/* Stopped wherever it happens to be, in the middle of a piece that it took over too; what it left
 * there must not come late. */
static void the_sender_is_stopped(void **state)
{
	uint32_t done = 0, polls = 0;
	struct end end;

	start(&end, send_all);
	begin_to_receive(&end);
	while (done < MESSAGES) {
		const bool stops = polls < STOPS * 50 && polls % 50 == 0;

		polls++;
		if (stops)
			stop(end.child);
		for (int i = 0; i < 5 && done < MESSAGES; i++)
			if (poll_for(&end, done)) {
				take(&end, done);
				done++;
			}
		if (stops)
			assert_int_equal(kill(end.child, SIGCONT), 0);
	}
	finish(&end);
}

static void receive_until_told(struct end *end)
{
	struct pollfd told = {.fd = end->socket, .events = POLLIN};
	struct ibv_wc wc;
	char byte = 0;

	begin_to_receive(end);
	CHECK(write(end->socket, &byte, 1) == 1);
	while (poll(&told, 1, 0) == 0)
		if (ibv_poll_cq(end->cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS)
			check(end, (uint32_t)wc.wr_id);
}

typedef void take_back_fn(struct end *end);

static void deregister(struct end *end)
{
	assert_int_equal(ibv_dereg_mr(end->mr), 0);
	end->mr = NULL;
}

static void change(struct end *end, int what)
{
	assert_int_equal(ibv_rereg_mr(end->mr, what, end->other_pd, end->other, PLACES * BYTES, 0),
			 0);
}

static void move_away(struct end *end)
{
	change(end, IBV_REREG_MR_CHANGE_TRANSLATION);
}

static void give_to_another(struct end *end)
{
	change(end, IBV_REREG_MR_CHANGE_PD);
}

/* All of it, and a little of each page soon: a copy that is still under way has it. */
static void spoil(struct end *end)
{
	for (uint32_t at = PLACES * BYTES; at > 4096; at -= 4096)
		((volatile uint8_t *)end->memory)[at - 1] ^= 0xff;
	memset(end->memory, 0xee, PLACES * BYTES);
}

/* With the receiver stopped, in the middle of its copy or elsewhere, or going on with it: the
 * region can be taken back, and nothing is read out of it afterwards. */
static void take_back(take_back_fn *how, bool stops)
{
	for (uint32_t round = 0; round < 4; round++) {
		struct end end;
		struct ibv_wc wc;
		char byte = 0;

		start(&end, receive_until_told);
		assert_int_equal(read(end.socket, &byte, 1), 1);
		for (uint32_t i = 0; i < PLACES; i++)
			fill_place(&end, i);
		for (uint32_t i = 0; i < PLACES; i++)
			post_filled(&end, i, IBV_WR_SEND, 0);
		for (uint32_t i = 0; i < round * 20; i++)
			(void)ibv_poll_cq(end.cq, 0, &wc);
		if (stops)
			stop(end.child);
		how(&end);
		spoil(&end);
		if (stops)
			assert_int_equal(kill(end.child, SIGCONT), 0);
		for (uint32_t i = 0; i < PLACES; i++) {
			wc = edge_wait(end.cq);
			assert_int_equal(wc.wr_id, i);
			assert_true(wc.status == IBV_WC_SUCCESS ||
				    wc.status == IBV_WC_LOC_PROT_ERR ||
				    wc.status == IBV_WC_WR_FLUSH_ERR);
		}
		assert_int_equal(write(end.socket, &byte, 1), 1);
		finish(&end);
	}
}

static void the_region_goes_while_the_receiver_is_stopped(void **state)
{
	take_back(deregister, true);
}

static void the_region_goes_while_the_receiver_copies(void **state)
{
	take_back(deregister, false);
}

static void the_region_moves_meanwhile(void **state)
{
	take_back(move_away, true);
	take_back(move_away, false);
}

static void the_region_becomes_another_ones_meanwhile(void **state)
{
	take_back(give_to_another, true);
	take_back(give_to_another, false);
}

/* A page near the end, while the message waits for a receive. */
static void send_and_unmap(struct end *end)
{
	const struct rlimit no_core = {0};
	struct ibv_wc wc;
	char byte = 0;

	CHECK(setrlimit(RLIMIT_CORE, &no_core) == 0);
	CHECK(signal(SIGSEGV, SIG_DFL) != SIG_ERR); /* not the test's own failure */
	post_send(end, 0);
	CHECK(munmap(end->memory + (BYTES - 8192) / 4096 * 4096, 4096) == 0);
	CHECK(write(end->socket, &byte, 1) == 1);
	while (ibv_poll_cq(end->cq, 1, &wc) == 0)
		;
}

/* As a program that unmaps what it registered always may; its peer gets nothing. */
static void who_unmaps_what_it_sends_harms_itself(void **state)
{
	const double until = edge_seconds() + 40;
	struct ibv_wc wc;
	struct end end;
	int status;
	char byte;

	start(&end, send_and_unmap);
	assert_int_equal(read(end.socket, &byte, 1), 1);
	post_recv(&end, 0);
	while (waitpid(end.child, &status, WNOHANG) == 0) {
		assert_int_equal(ibv_poll_cq(end.cq, 1, &wc), 0);
		assert_true(edge_seconds() < until);
	}
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSEGV);
	edge_expect_none(end.cq);
	close_end(&end);
}

/* --- with invalidate ---------------------------------------------------------------------- */

static void send_and_invalidate(struct end *end)
{
	uint32_t key;

	for (uint32_t i = 0; i < PLACES; i++) {
		CHECK(recv(end->socket, &key, sizeof(key), MSG_WAITALL) == sizeof(key));
		fill_place(end, i);
		post_filled(end, i, IBV_WR_SEND_WITH_INV, key);
		wait_for(end, i);
	}
}

static uint32_t bind_window(struct end *end, struct ibv_mw *mw, struct ibv_mr *mr)
{
	const uint32_t key = ibv_inc_rkey(mw->rkey);
	struct ibv_send_wr *bad, wr = {
					 .wr_id = 100,
					 .opcode = IBV_WR_BIND_MW,
					 .send_flags = IBV_SEND_SIGNALED,
					 .bind_mw = {.mw = mw, .rkey = key},
				 };

	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){mr, (uintptr_t)end->memory, BYTES,
							 IBV_ACCESS_REMOTE_WRITE};
	CHECK(ibv_post_send(end->qp, &wr, &bad) == 0);
	edge_expect(end->cq, 100, IBV_WC_SUCCESS);
	return key;
}

/* The window is over what the message is copied into. */
static void they_take_a_window_back(void **state)
{
	struct ibv_mw *mw;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	struct end end;
	uint32_t key;

	start(&end, send_and_invalidate);
	mr = ibv_reg_mr(end.pd, end.memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(end.pd, IBV_MW_TYPE_2);
	assert_true(mr && mw);
	for (uint32_t i = 0; i < PLACES; i++) {
		mw->rkey = key = bind_window(&end, mw, mr);
		post_recv(&end, i);
		assert_int_equal(write(end.socket, &key, sizeof(key)), sizeof(key));
		wc = edge_expect(end.cq, i, IBV_WC_SUCCESS);
		assert_int_equal(wc.wc_flags, IBV_WC_WITH_INV);
		assert_int_equal(wc.invalidated_rkey, key);
		assert_int_equal(wc.byte_len, BYTES);
		check(&end, i);
	}
	assert_int_equal(ibv_dereg_mr(mr), 0); /* nothing is bound to it */
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	finish(&end);
}

/* --- device memory ------------------------------------------------------------------------ */

static void use_device_memory(struct end *end)
{
	struct ibv_alloc_dm_attr attr = {.length = BYTES};

	CHECK(ibv_dereg_mr(end->mr) == 0);
	end->dm = ibv_alloc_dm(end->context, &attr);
	CHECK(end->dm);
	end->mr = ibv_reg_dm_mr(end->pd, end->dm, 0, BYTES,
				IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
	CHECK(end->mr);
}

static void send_one_by_one(struct end *end)
{
	for (uint32_t i = 0; i < MESSAGES; i++) {
		post_send(end, i);
		wait_for(end, i);
	}
}

static void send_from_device_memory(struct end *end)
{
	use_device_memory(end);
	send_one_by_one(end);
}

static void receive_one_by_one(struct end *end)
{
	for (uint32_t i = 0; i < MESSAGES; i++) {
		post_recv(end, i);
		wait_for(end, i);
		check(end, i);
	}
}

static void through_device_memory(void **state)
{
	struct end end;

	start(&end, send_from_device_memory);
	receive_one_by_one(&end);
	finish(&end);

	start(&end, send_from_device_memory);
	use_device_memory(&end);
	receive_one_by_one(&end);
	finish(&end);

	start(&end, send_one_by_one);
	use_device_memory(&end);
	receive_one_by_one(&end);
	finish(&end);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_arrive),
		cmocka_unit_test(the_sender_may_not_copy),
		cmocka_unit_test(the_receiver_may_not_copy),
		cmocka_unit_test(the_sender_is_stopped),
		cmocka_unit_test(the_region_goes_while_the_receiver_is_stopped),
		cmocka_unit_test(the_region_goes_while_the_receiver_copies),
		cmocka_unit_test(the_region_moves_meanwhile),
		cmocka_unit_test(the_region_becomes_another_ones_meanwhile),
		cmocka_unit_test(who_unmaps_what_it_sends_harms_itself),
		cmocka_unit_test(they_take_a_window_back),
		cmocka_unit_test(through_device_memory),
	};

	choose_hosts();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
