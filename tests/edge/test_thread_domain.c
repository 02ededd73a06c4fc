/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Posting with a thread domain (ibv_alloc_td(3)): it waits for no other thread, loses nothing, and
 * refuses what posting without one refuses.
 *
 * Where one thread is to be stopped inside the library, it posts inline data from a page that may
 * not be read: the copy faults, and the fault's handler waits until the test lets it go on.
 */
#include "edge.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEPTH 16u
#define PATIENCE_MS 20000
#define SEND_OPS                                                                                   \
	(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)

/* --- one end made with a thread domain, at a, and its ordinary peer at b ----------------- */

struct domain {
	struct edge_pair *pair;
	struct ibv_td *td;
	struct ibv_pd *parent;
	struct ibv_cq *cq, *peer_cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp, *peer;
	struct ibv_ah *ah; /* UD: to the peer */
	uint32_t at;	   /* its bytes of both buffers */
};

static void make_qps(struct domain *d, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = type,
		.cap = {DEPTH, DEPTH, 2, 2, 64},
		.send_cq = d->cq,
		.recv_cq = d->cq,
		.srq = d->srq,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = d->parent,
		.send_ops_flags = type == IBV_QPT_UD ? IBV_QP_EX_WITH_SEND : SEND_OPS,
	};
	struct ibv_qp_init_attr plain = {
		.qp_type = type,
		.cap = attr.cap,
		.send_cq = d->peer_cq,
		.recv_cq = d->peer_cq,
	};

	struct ibv_ah_attr to = {
		.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = d->pair->b.gid, .sgid_index = 1, .hop_limit = 64},
	};

	d->qp = ibv_create_qp_ex(d->parent->context, &attr);
	d->peer = ibv_create_qp(d->pair->b.pd, &plain);
	assert_true(d->qp && d->peer);
	edge_connect_qp(d->qp, d->peer, &d->pair->b.gid, EDGE_ALL_ACCESS);
	edge_connect_qp(d->peer, d->qp, &d->pair->a.gid, EDGE_ALL_ACCESS);
	if (type == IBV_QPT_UD) {
		d->ah = ibv_create_ah(d->parent, &to);
		assert_non_null(d->ah);
	}
}

static void make_domain(struct domain *d, struct edge_pair *pair, enum ibv_qp_type type,
			bool with_srq, uint32_t at)
{
	struct ibv_td_init_attr td_attr = {0};
	struct ibv_parent_domain_init_attr parent_attr = {.pd = pair->a.pd};
	struct ibv_cq_init_attr_ex cq_attr = {.cqe = 64, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD};
	struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = DEPTH, .max_sge = 2}};

	*d = (struct domain){.pair = pair, .at = at};
	d->td = ibv_alloc_td(pair->a.context, &td_attr);
	assert_non_null(d->td);
	parent_attr.td = d->td;
	d->parent = ibv_alloc_parent_domain(pair->a.context, &parent_attr);
	assert_non_null(d->parent);
	cq_attr.parent_domain = d->parent;
	d->cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(pair->a.context, &cq_attr));
	d->peer_cq = ibv_create_cq(pair->b.context, 64, NULL, NULL, 0);
	assert_true(d->cq && d->peer_cq);
	if (with_srq) {
		d->srq = ibv_create_srq(d->parent, &srq_attr);
		assert_non_null(d->srq);
	}
	make_qps(d, type);
}

static void destroy_domain(struct domain *d)
{
	assert_int_equal(ibv_destroy_qp(d->qp), 0);
	assert_int_equal(ibv_destroy_qp(d->peer), 0);
	if (d->srq)
		assert_int_equal(ibv_destroy_srq(d->srq), 0);
	if (d->ah)
		assert_int_equal(ibv_destroy_ah(d->ah), 0);
	assert_int_equal(ibv_destroy_cq(d->cq), 0);
	assert_int_equal(ibv_destroy_cq(d->peer_cq), 0);
	assert_int_equal(ibv_dealloc_pd(d->parent), 0);
	assert_int_equal(ibv_dealloc_td(d->td), 0);
}

static struct ibv_sge sge_of(const struct edge_end *end, uint32_t at, uint32_t length)
{
	return (struct ibv_sge){(uintptr_t)end->buffer + at, length, end->mr->lkey};
}

static int post_recv_at(struct ibv_qp *qp, const struct edge_end *end, uint64_t wr_id, uint32_t at)
{
	struct ibv_sge sge = sge_of(end, at, 64);
	struct ibv_recv_wr *bad, wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};

	return ibv_post_recv(qp, &wr, &bad);
}

static int post_send_at(struct ibv_qp *qp, const struct edge_end *end, uint64_t wr_id, uint32_t at,
			unsigned int flags)
{
	struct ibv_sge sge = sge_of(end, at, 64);
	struct ibv_send_wr *bad, wr = {
					 .wr_id = wr_id,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND,
					 .send_flags = flags,
				 };

	return ibv_post_send(qp, &wr, &bad);
}

/* --- a thread that is stopped inside ----------------------------------------------------- */

static struct {
	uint8_t *page;
	size_t size;
	int is_in[2], go_on[2]; /* pipes */
} trap;

static void on_fault(int signal, siginfo_t *info, void *context)
{
	char c = 'x';

	if (info->si_addr < (void *)trap.page || info->si_addr >= (void *)(trap.page + trap.size) ||
	    write(trap.is_in[1], &c, 1) != 1 || read(trap.go_on[0], &c, 1) != 1 ||
	    mprotect(trap.page, trap.size, PROT_READ | PROT_WRITE) != 0)
		_exit(99);
}

static void *post_from_the_trap(void *argument)
{
	struct edge_pair *pair = argument;
	struct ibv_sge sge = {(uintptr_t)trap.page, 32, 0};
	struct ibv_send_wr *bad, wr = {
					 .wr_id = 77,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_WRITE,
					 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
					 .wr.rdma = {(uintptr_t)pair->b.buffer, pair->b.mr->rkey},
				 };

	return (void *)(intptr_t)ibv_post_send(pair->a.qp, &wr, &bad);
}

static pthread_t stop_a_thread_inside(struct edge_pair *pair)
{
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	struct pollfd wait;
	pthread_t thread;
	char c;

	trap.size = (size_t)sysconf(_SC_PAGESIZE);
	trap.page =
		mmap(NULL, trap.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(trap.page, MAP_FAILED);
	memset(trap.page, 0x77, trap.size);
	assert_int_equal(mprotect(trap.page, trap.size, PROT_NONE), 0);
	assert_int_equal(pipe(trap.is_in) | pipe(trap.go_on), 0);
	assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0);
	assert_int_equal(pthread_create(&thread, NULL, post_from_the_trap, pair), 0);
	wait = (struct pollfd){.fd = trap.is_in[0], .events = POLLIN};
	assert_int_equal(poll(&wait, 1, PATIENCE_MS), 1);
	assert_int_equal(read(trap.is_in[0], &c, 1), 1);
	return thread;
}

static void let_it_go_on(pthread_t thread)
{
	void *result;

	assert_int_equal(write(trap.go_on[1], "x", 1), 1);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_null(result);
	signal(SIGSEGV, SIG_DFL);
	for (int i = 0; i < 2; i++) {
		close(trap.is_in[i]);
		close(trap.go_on[i]);
	}
	munmap(trap.page, trap.size);
}

/* --- what is posted meanwhile ------------------------------------------------------------ */

struct poster {
	struct domain *domain;
	int said[2];	    /* a pipe: it is done */
	int failed, polled; /* calls that failed; completions that there cannot be */
};

static void build_two(struct poster *p)
{
	struct domain *d = p->domain;
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(d->qp);
	const struct edge_end *a = &d->pair->a;

	ibv_wr_start(ex);
	for (uint64_t id = 4; id < 6; id++) {
		ex->wr_id = id;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send(ex);
		ibv_wr_set_sge(ex, a->mr->lkey, (uintptr_t)a->buffer + d->at + 64 * id, 64);
	}
	p->failed += ibv_wr_complete(ex) != 0;
}

static void *post_all_kinds(void *argument)
{
	struct poster *p = argument;
	struct domain *d = p->domain;
	const struct edge_end *a = &d->pair->a;
	struct ibv_sge sge = sge_of(a, d->at + 4096, 64);
	struct ibv_recv_wr *bad, recv = {.wr_id = 100, .sg_list = &sge, .num_sge = 1};
	struct ibv_wc wc;

	for (uint64_t id = 0; id < 2; id++)
		p->failed += d->srq ? ibv_post_srq_recv(d->srq, &recv, &bad) != 0
				    : ibv_post_recv(d->qp, &recv, &bad) != 0;
	for (uint64_t id = 1; id < 4; id++) {
		unsigned int flags = IBV_SEND_SIGNALED | (id == 2 ? IBV_SEND_INLINE : 0);

		p->failed += post_send_at(d->qp, a, id, d->at + 64 * (uint32_t)id, flags) != 0;
	}
	build_two(p);
	p->polled = ibv_poll_cq(d->cq, 1, &wc);
	p->failed += write(p->said[1], "x", 1) != 1;
	return NULL;
}

static void expect_pattern(const uint8_t *buffer, uint32_t at)
{
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(buffer[at + i], (uint8_t)(at + i * 5));
}

/* All of it returns while another thread is stopped inside, and happens when that leaves. */
static void waits_for_nobody(bool with_srq)
{
	struct domain d;
	struct edge_pair pair;
	struct poster poster = {.domain = &d};
	struct pollfd wait;
	pthread_t inside, thread;

	edge_open(&pair, &(struct edge_options){0});
	make_domain(&d, &pair, IBV_QPT_RC, with_srq, 8192);
	for (uint32_t at = d.at; at < d.at + 512; at += 64)
		for (uint32_t i = 0; i < 64; i++)
			pair.a.buffer[at + i] = (uint8_t)(at + i * 5);
	for (uint32_t id = 1; id < 6; id++)
		assert_int_equal(post_recv_at(d.peer, &pair.b, id, d.at + 64 * id), 0);
	assert_int_equal(pipe(poster.said), 0);
	inside = stop_a_thread_inside(&pair);
	assert_int_equal(pthread_create(&thread, NULL, post_all_kinds, &poster), 0);
	wait = (struct pollfd){.fd = poster.said[0], .events = POLLIN};
	assert_int_equal(poll(&wait, 1, PATIENCE_MS), 1);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(poster.failed, 0);
	assert_int_equal(poster.polled, 0);
	let_it_go_on(inside);

	edge_expect(pair.a.cq, 77, IBV_WC_SUCCESS);
	for (uint32_t id = 1; id < 6; id++) {
		edge_expect(d.peer_cq, id, IBV_WC_SUCCESS);
		expect_pattern(pair.b.buffer, d.at + 64 * id);
		edge_expect(d.cq, id, IBV_WC_SUCCESS);
	}
	for (int i = 0; i < 2; i++) {
		assert_int_equal(post_send_at(d.peer, &pair.b, 200, d.at + 64, IBV_SEND_SIGNALED),
				 0);
		edge_expect(d.cq, 100, IBV_WC_SUCCESS);
		edge_expect(d.peer_cq, 200, IBV_WC_SUCCESS);
	}
	assert_memory_equal(pair.a.buffer + d.at + 4096, pair.b.buffer + d.at + 64, 64);
	close(poster.said[0]);
	close(poster.said[1]);
	destroy_domain(&d);
	edge_close(&pair);
}

static void posts_while_another_is_inside(void **state)
{
	waits_for_nobody(false);
}

static void posts_to_a_shared_queue_meanwhile(void **state)
{
	waits_for_nobody(true);
}

/* --- what is refused --------------------------------------------------------------------- */

static void full_queues(void **state)
{
	struct edge_pair pair;
	struct domain d;
	struct ibv_sge sges[3] = {{0}};
	struct ibv_recv_wr *bad_recv, recv = {.sg_list = sges, .num_sge = 3};
	struct ibv_send_wr *bad, second = {.sg_list = sges, .num_sge = 3, .opcode = IBV_WR_SEND},
				 first = {.next = &second, .opcode = IBV_WR_SEND};

	edge_open(&pair, &(struct edge_options){0});
	make_domain(&d, &pair, IBV_QPT_RC, false, 0);
	assert_int_equal(ibv_post_recv(d.qp, &recv, &bad_recv), EINVAL);
	assert_ptr_equal(bad_recv, &recv);
	assert_int_equal(ibv_post_send(d.qp, &first, &bad), EINVAL); /* one was posted */
	assert_ptr_equal(bad, &second);
	for (uint32_t i = 1; i < DEPTH; i++)
		assert_int_equal(post_send_at(d.qp, &pair.a, i, 0, IBV_SEND_SIGNALED), 0);
	assert_int_equal(post_send_at(d.qp, &pair.a, 99, 0, IBV_SEND_SIGNALED), ENOMEM);
	for (uint32_t i = 0; i < DEPTH; i++)
		assert_int_equal(post_recv_at(d.qp, &pair.a, i, 0), 0);
	assert_int_equal(post_recv_at(d.qp, &pair.a, 99, 0), ENOMEM);
	for (uint32_t i = 0; i < DEPTH; i++)
		assert_int_equal(post_recv_at(d.peer, &pair.b, i, 0), 0);
	for (uint32_t i = 1; i < DEPTH; i++) /* the first was not signalled */
		edge_expect(d.cq, i, IBV_WC_SUCCESS);
	assert_int_equal(post_send_at(d.qp, &pair.a, 99, 0, IBV_SEND_SIGNALED), 0);
	destroy_domain(&d);
	edge_close(&pair);
}

/* In ERR all is taken, and flushed; in RESET nothing is. */
static void other_states(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct edge_pair pair;
	struct domain d;

	edge_open(&pair, &(struct edge_options){0});
	make_domain(&d, &pair, IBV_QPT_RC, false, 0);
	assert_int_equal(ibv_modify_qp(d.qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(post_send_at(d.qp, &pair.a, 1, 0, 0), 0);
	assert_int_equal(post_recv_at(d.qp, &pair.a, 2, 0), 0);
	edge_expect(d.cq, 1, IBV_WC_WR_FLUSH_ERR);
	edge_expect(d.cq, 2, IBV_WC_WR_FLUSH_ERR);
	attr.qp_state = IBV_QPS_RESET;
	assert_int_equal(ibv_modify_qp(d.qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(post_send_at(d.qp, &pair.a, 3, 0, 0), EINVAL);
	assert_int_equal(post_recv_at(d.qp, &pair.a, 4, 0), EINVAL);
	edge_expect_none(d.cq);
	destroy_domain(&d);
	edge_close(&pair);
}

static void in_a_forked_child(void **state)
{
	struct edge_pair pair;
	struct domain d;
	int status;
	pid_t pid;

	edge_open(&pair, &(struct edge_options){0});
	make_domain(&d, &pair, IBV_QPT_RC, true, 0);
	pid = fork();
	if (pid == 0) {
		struct ibv_sge sge = sge_of(&pair.a, 0, 64);
		struct ibv_recv_wr *bad = NULL, recv = {.sg_list = &sge, .num_sge = 1};
		struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(d.qp);
		bool ok = post_send_at(d.qp, &pair.a, 1, 0, 0) == EIO;

		ok &= ibv_post_srq_recv(d.srq, &recv, &bad) == EIO && bad == &recv;
		ibv_wr_start(ex);
		ibv_wr_send(ex);
		ok &= ibv_wr_complete(ex) == EIO;
		_exit(ok ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	destroy_domain(&d);
	edge_close(&pair);
}

/* --- many threads ------------------------------------------------------------------------ */

#define WORKERS 4u
#define ROUNDS 150u
#define BURST 8u
#define SLOT 128u
#define GRH 40u

struct worker {
	struct domain d;
	pthread_t thread;
	bool ok;
	atomic_bool done;
};

/* Polls until both queues have given sends and receives as often as a burst has messages. */
static bool take_burst(struct worker *w, struct ibv_cq *sends, struct ibv_cq *receives)
{
	const double until = edge_seconds() + PATIENCE_MS / 1000.0;
	uint32_t sent = 0, received = 0;
	struct ibv_wc wc[4];

	while (sent < BURST || received < BURST) {
		int n = ibv_poll_cq(sends, 4, wc);

		for (int i = 0; i < n; i++)
			if (wc[i].status != IBV_WC_SUCCESS || wc[i].wr_id != sent++)
				return false;
		n = ibv_poll_cq(receives, 4, wc);
		for (int i = 0; i < n; i++)
			if (wc[i].status != IBV_WC_SUCCESS || wc[i].wr_id != received++)
				return false;
		if (n < 0 || edge_seconds() > until)
			return false;
	}
	return true;
}

static bool post_slot(struct domain *d, uint32_t i)
{
	struct ibv_sge sge = sge_of(&d->pair->a, d->at + i * SLOT, 64);
	struct ibv_send_wr *bad,
		wr = {
			.wr_id = i,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED | (i % 2 ? IBV_SEND_INLINE : 0),
		};

	if (d->ah) {
		wr.wr.ud.ah = d->ah;
		wr.wr.ud.remote_qpn = d->peer->qp_num;
		wr.wr.ud.remote_qkey = EDGE_QKEY;
	}
	return ibv_post_send(d->qp, &wr, &bad) == 0;
}

static bool receive_slot(struct domain *d, uint32_t i)
{
	struct ibv_sge sge = sge_of(&d->pair->a, d->at + (BURST + i) * SLOT, SLOT);
	struct ibv_recv_wr *bad, wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1};

	return d->srq ? ibv_post_srq_recv(d->srq, &wr, &bad) == 0
		      : ibv_post_recv(d->qp, &wr, &bad) == 0;
}

/* A burst to the peer and, but for UD, the same bytes back. */
static bool play_round(struct worker *w, uint32_t round)
{
	struct domain *d = &w->d;
	struct edge_end *a = &d->pair->a, *b = &d->pair->b;
	uint8_t *out = a->buffer + d->at, *there = b->buffer + d->at, *back = out + BURST * SLOT;
	bool ok = true;

	for (uint32_t i = 0; i < BURST; i++) {
		struct ibv_sge sge = sge_of(b, d->at + i * SLOT, SLOT);
		struct ibv_recv_wr *bad, wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1};

		memset(out + i * SLOT, (int)(round * BURST + i), 64);
		ok &= ibv_post_recv(d->peer, &wr, &bad) == 0;
	}
	for (uint32_t i = 0; i < BURST; i++)
		ok &= post_slot(d, i);
	ok = ok && take_burst(w, d->cq, d->peer_cq);
	for (uint32_t i = 0; i < BURST; i++)
		ok &= memcmp(out + i * SLOT, there + i * SLOT + (d->ah ? GRH : 0), 64) == 0;
	if (!ok || d->ah)
		return ok;
	for (uint32_t i = 0; i < BURST; i++)
		ok &= receive_slot(d, i);
	for (uint32_t i = 0; i < BURST; i++)
		ok &= post_send_at(d->peer, b, i, d->at + i * SLOT, IBV_SEND_SIGNALED) == 0;
	ok = ok && take_burst(w, d->peer_cq, d->cq);
	for (uint32_t i = 0; i < BURST; i++)
		ok &= memcmp(out + i * SLOT, back + i * SLOT, 64) == 0;
	return ok;
}

static void *play(void *argument)
{
	struct worker *w = argument;

	w->ok = true;
	for (uint32_t round = 0; w->ok && round < ROUNDS; round++)
		w->ok = play_round(w, round);
	atomic_store(&w->done, true);
	return NULL;
}

/* What else a program does meanwhile: others come and go, some with requests under way. */
static void come_and_go(struct edge_pair *pair, struct worker *workers)
{
	struct domain d;

	for (uint32_t turn = 0; !atomic_load(&workers[turn % WORKERS].done); turn++) {
		make_domain(&d, pair, turn % 2 ? IBV_QPT_UD : IBV_QPT_RC, false, 65536);
		for (uint32_t i = 0; i < 4; i++)
			assert_true(post_slot(&d, i));
		destroy_domain(&d);
		assert_int_equal(edge_post(&pair->a, &pair->b, turn, IBV_WR_RDMA_WRITE, 70000, 64),
				 0);
		edge_expect(pair->a.cq, turn, IBV_WC_SUCCESS);
	}
}

static void many_threads_post(void **state)
{
	struct worker workers[WORKERS] = {0};
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){0});
	for (uint32_t i = 0; i < WORKERS; i++)
		make_domain(&workers[i].d, &pair, i == 3 ? IBV_QPT_UD : IBV_QPT_RC, i == 1,
			    i * 2 * BURST * SLOT);
	for (uint32_t i = 0; i < WORKERS; i++)
		assert_int_equal(pthread_create(&workers[i].thread, NULL, play, &workers[i]), 0);
	come_and_go(&pair, workers);
	for (uint32_t i = 0; i < WORKERS; i++) {
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
		assert_true(workers[i].ok);
		destroy_domain(&workers[i].d);
	}
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(posts_while_another_is_inside),
		cmocka_unit_test(posts_to_a_shared_queue_meanwhile),
		cmocka_unit_test(full_queues),
		cmocka_unit_test(other_states),
		cmocka_unit_test(in_a_forked_child),
		cmocka_unit_test(many_threads_post),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
