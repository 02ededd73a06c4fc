/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_memory_on_demand.c - regions whose memory comes and goes while they are registered: what is
 * there is used, what is not there is a status, and nobody's process ends.
 */
#define _GNU_SOURCE
#include "edge.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGES 8u
#define ROUNDS 300
#define ACCESS (EDGE_ALL_ACCESS | IBV_ACCESS_ON_DEMAND)

static const struct edge_options usual = {.mtu = IBV_MTU_4096};

struct bench {
	struct edge_pair pair;
	size_t page;
	uint8_t *area; /* PAGES of b's address space */
	struct ibv_mr *mr;
};

static void set_up(struct bench *x)
{
	memset(x, 0, sizeof(*x));
	x->page = (size_t)sysconf(_SC_PAGESIZE);
	edge_open(&x->pair, &usual);
	x->area = mmap(NULL, PAGES * x->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);
	assert_true(x->area != MAP_FAILED);
	x->mr = ibv_reg_mr(x->pair.b.pd, x->area, PAGES * x->page, ACCESS);
	assert_non_null(x->mr);
}

static void tear_down(struct bench *x)
{
	assert_int_equal(ibv_dereg_mr(x->mr), 0);
	munmap(x->area, PAGES * x->page);
	edge_close(&x->pair);
}

/* A hole that nothing else is mapped into meanwhile. */
static void take_away(const struct bench *x, uint32_t page)
{
	assert_int_equal(mprotect(x->area + page * x->page, x->page, PROT_NONE), 0);
}

static void map_again(const struct bench *x, uint32_t page, int rights, int fd)
{
	int flags = MAP_FIXED | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);

	assert_true(mmap(x->area + page * x->page, x->page, rights, flags, fd, 0) != MAP_FAILED);
}

static void reach(struct bench *x, enum ibv_wr_opcode opcode, size_t offset, uint32_t length,
		  enum ibv_wc_status status)
{
	struct edge_end *a = &x->pair.a;
	struct ibv_sge sge = {(uintptr_t)a->buffer, length, a->mr->lkey};
	struct ibv_send_wr *bad, wr = {
					 .wr_id = 1,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = opcode,
					 .send_flags = IBV_SEND_SIGNALED,
				 };

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)x->area + offset;
		wr.wr.atomic.rkey = x->mr->rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)x->area + offset;
		wr.wr.rdma.rkey = x->mr->rkey;
	}
	assert_int_equal(ibv_post_send(a->qp, &wr, &bad), 0);
	edge_expect(a->cq, 1, status);
	if (status != IBV_WC_SUCCESS)
		edge_reconnect(&x->pair);
}

static void a_page_that_goes_and_comes_back(void **state)
{
	struct bench x;
	size_t at;

	set_up(&x);
	at = 3 * x.page;
	memset(x.pair.a.buffer, 0x41, 2 * x.page);
	reach(&x, IBV_WR_RDMA_WRITE, at, 100, IBV_WC_SUCCESS);
	take_away(&x, 3);
	reach(&x, IBV_WR_RDMA_WRITE, at, 100, IBV_WC_REM_ACCESS_ERR);
	reach(&x, IBV_WR_RDMA_READ, at, 100, IBV_WC_REM_ACCESS_ERR);
	reach(&x, IBV_WR_ATOMIC_FETCH_AND_ADD, at, 8, IBV_WC_REM_ACCESS_ERR);
	/* in the middle of a message, too */
	reach(&x, IBV_WR_RDMA_WRITE, at - x.page, (uint32_t)(2 * x.page), IBV_WC_REM_ACCESS_ERR);
	reach(&x, IBV_WR_RDMA_READ, at - x.page, (uint32_t)(2 * x.page), IBV_WC_REM_ACCESS_ERR);
	reach(&x, IBV_WR_RDMA_WRITE, at - 100, 100, IBV_WC_SUCCESS);
	map_again(&x, 3, PROT_READ | PROT_WRITE, -1);
	memset(x.pair.a.buffer, 0x42, 2 * x.page);
	reach(&x, IBV_WR_RDMA_WRITE, at - x.page, (uint32_t)(2 * x.page), IBV_WC_SUCCESS);
	assert_memory_equal(x.area + at - x.page, x.pair.a.buffer, 2 * x.page);
	reach(&x, IBV_WR_ATOMIC_FETCH_AND_ADD, at, 8, IBV_WC_SUCCESS);
	assert_int_equal(x.area[at], 0x43);
	tear_down(&x);
}

static void what_may_only_be_read(void **state)
{
	struct bench x;

	set_up(&x);
	memset(x.area, 0x44, x.page);
	assert_int_equal(mprotect(x.area, x.page, PROT_READ), 0);
	reach(&x, IBV_WR_RDMA_READ, 0, 100, IBV_WC_SUCCESS);
	assert_memory_equal(x.pair.a.buffer, x.area, 100);
	reach(&x, IBV_WR_RDMA_WRITE, 0, 100, IBV_WC_REM_ACCESS_ERR);
	reach(&x, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, IBV_WC_REM_ACCESS_ERR);
	tear_down(&x);
}

/* A mapping whose file was cut: to touch it is a SIGBUS. */
static void a_file_that_was_cut(void **state)
{
	struct bench x;
	int fd = memfd_create("cut", MFD_CLOEXEC);

	assert_true(fd >= 0);
	set_up(&x);
	assert_int_equal(ftruncate(fd, (off_t)x.page), 0);
	map_again(&x, 1, PROT_READ | PROT_WRITE, fd);
	reach(&x, IBV_WR_RDMA_WRITE, x.page, 100, IBV_WC_SUCCESS);
	assert_int_equal(ftruncate(fd, 0), 0);
	reach(&x, IBV_WR_RDMA_WRITE, x.page, 100, IBV_WC_REM_ACCESS_ERR);
	reach(&x, IBV_WR_RDMA_READ, x.page, 100, IBV_WC_REM_ACCESS_ERR);
	close(fd);
	tear_down(&x);
}

/* Its own requests, of memory that is not there. */
static void local_memory(void **state)
{
	struct bench x;
	struct edge_end *b = &x.pair.b;
	struct ibv_sge sge;
	struct ibv_send_wr *bad,
		wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_recv_wr *bad_recv, recv = {.wr_id = 3, .sg_list = &sge, .num_sge = 1};
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						     IBV_WR_RDMA_READ};

	set_up(&x);
	sge = (struct ibv_sge){(uintptr_t)x.area, 1000, x.mr->lkey};
	wr.wr.rdma.remote_addr = (uintptr_t)x.pair.a.buffer;
	wr.wr.rdma.rkey = x.pair.a.mr->rkey;
	for (int i = 0; i < 3; i++) {
		wr.opcode = opcodes[i];
		take_away(&x, 0);
		assert_int_equal(ibv_post_send(b->qp, &wr, &bad), 0);
		edge_expect(b->cq, 2, IBV_WC_LOC_PROT_ERR);
		edge_reconnect(&x.pair);
		map_again(&x, 0, PROT_READ | PROT_WRITE, -1);
		memset(x.area, 0x45, 1000);
		if (wr.opcode == IBV_WR_SEND)
			edge_post_recv(&x.pair.a, 4, 0, 1000);
		assert_int_equal(ibv_post_send(b->qp, &wr, &bad), 0);
		edge_expect(b->cq, 2, IBV_WC_SUCCESS);
		if (wr.opcode == IBV_WR_SEND)
			edge_expect(x.pair.a.cq, 4, IBV_WC_SUCCESS);
		assert_memory_equal(x.area, x.pair.a.buffer, 1000);
	}
	assert_int_equal(ibv_post_recv(b->qp, &recv, &bad_recv), 0);
	take_away(&x, 0);
	assert_int_equal(edge_post(&x.pair.a, b, 5, IBV_WR_SEND, 0, 1000), 0);
	edge_expect(b->cq, 3, IBV_WC_LOC_PROT_ERR);
	edge_expect(x.pair.a.cq, 5, IBV_WC_REM_OP_ERR);
	tear_down(&x);
}

static void registered_before_it_exists(void **state)
{
	struct bench x;
	struct ibv_mr *pinned;

	set_up(&x);
	assert_int_equal(ibv_dereg_mr(x.mr), 0);
	for (uint32_t i = 0; i < PAGES; i++)
		take_away(&x, i);
	errno = 0;
	pinned = ibv_reg_mr(x.pair.b.pd, x.area, PAGES * x.page, EDGE_ALL_ACCESS);
	assert_null(pinned);
	assert_int_equal(errno, EFAULT);
	x.mr = ibv_reg_mr(x.pair.b.pd, x.area, PAGES * x.page, ACCESS);
	assert_non_null(x.mr);
	/* it may not become one that is not on demand, either */
	assert_int_equal(
		ibv_rereg_mr(x.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, EDGE_ALL_ACCESS),
		IBV_REREG_MR_ERR_CMD);
	assert_int_equal(errno, EFAULT);
	reach(&x, IBV_WR_RDMA_WRITE, 0, 100, IBV_WC_REM_ACCESS_ERR);
	map_again(&x, 0, PROT_READ | PROT_WRITE, -1);
	reach(&x, IBV_WR_RDMA_WRITE, 0, 100, IBV_WC_SUCCESS);
	tear_down(&x);
}

static void the_whole_address_space(void **state)
{
	struct bench x;
	uint8_t *heap = malloc(1000);

	assert_non_null(heap);
	set_up(&x);
	assert_int_equal(ibv_dereg_mr(x.mr), 0);
	assert_null(ibv_reg_mr_iova(x.pair.b.pd, NULL, SIZE_MAX, 1, ACCESS));
	assert_int_equal(errno, EINVAL);
	x.mr = ibv_reg_mr(x.pair.b.pd, NULL, SIZE_MAX, ACCESS);
	assert_non_null(x.mr);
	assert_int_equal(x.mr->length, SIZE_MAX);
	memset(x.pair.a.buffer, 0x46, 1000);
	reach(&x, IBV_WR_RDMA_WRITE, (size_t)(heap - x.area), 1000, IBV_WC_SUCCESS);
	assert_memory_equal(heap, x.pair.a.buffer, 1000);
	reach(&x, IBV_WR_RDMA_WRITE, (size_t)0 - (size_t)x.area, 1, IBV_WC_REM_ACCESS_ERR);
	reach(&x, IBV_WR_RDMA_READ, SIZE_MAX - 7 - (size_t)x.area, 7, IBV_WC_REM_ACCESS_ERR);
	tear_down(&x);
	free(heap);
}

static void a_window_into_it(void **state)
{
	struct bench x;
	struct ibv_mw *mw;
	struct ibv_mr *whole;
	struct ibv_mw_bind bind = {.wr_id = 3, .send_flags = IBV_SEND_SIGNALED};

	set_up(&x);
	whole = ibv_reg_mr(x.pair.b.pd, x.area, PAGES * x.page, ACCESS | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(x.pair.b.pd, IBV_MW_TYPE_1);
	assert_true(whole && mw);
	bind.bind_info =
		(struct ibv_mw_bind_info){whole, (uintptr_t)x.area, 100, IBV_ACCESS_REMOTE_WRITE};
	assert_int_equal(ibv_bind_mw(x.pair.b.qp, mw, &bind), 0);
	edge_expect(x.pair.b.cq, 3, IBV_WC_SUCCESS);
	assert_int_equal(ibv_dereg_mr(x.mr), 0);
	x.mr = whole;
	whole->rkey = mw->rkey;
	reach(&x, IBV_WR_RDMA_WRITE, 0, 100, IBV_WC_SUCCESS);
	take_away(&x, 0);
	reach(&x, IBV_WR_RDMA_WRITE, 0, 100, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	tear_down(&x);
}

/* --- while a thread takes it away and gives it back -------------------------------------- */

enum taking { UNMAPPED, PROTECTED, CUT };
#define TAKINGS (CUT + 1)

struct churn {
	struct bench x;
	enum taking taking;
	int fd; /* the file, of CUT */
	atomic_bool stop;
	pthread_t thread;
	unsigned int went, came; /* requests that failed, and that did not */
};

static void map_all(struct churn *c, int rights)
{
	assert_true(mmap(c->x.area, PAGES * c->x.page, rights,
			 MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
}

static void *take_and_give(void *argument)
{
	struct churn *c = argument;
	const size_t bytes = PAGES * c->x.page;

	while (!atomic_load(&c->stop)) {
		switch (c->taking) {
		case UNMAPPED: /* by a hole that nothing else is mapped into */
			map_all(c, PROT_NONE);
			map_all(c, PROT_READ | PROT_WRITE);
			break;
		case PROTECTED:
			assert_int_equal(mprotect(c->x.area, bytes, PROT_NONE), 0);
			assert_int_equal(mprotect(c->x.area, bytes, PROT_READ | PROT_WRITE), 0);
			break;
		case CUT:
			assert_int_equal(ftruncate(c->fd, 0), 0);
			assert_int_equal(ftruncate(c->fd, (off_t)bytes), 0);
			break;
		}
		sched_yield();
	}
	return NULL;
}

static void start_churn(struct churn *c, enum taking taking)
{
	memset(c, 0, sizeof(*c));
	set_up(&c->x);
	c->taking = taking;
	c->fd = memfd_create("cut", MFD_CLOEXEC);
	assert_true(c->fd >= 0);
	if (taking == CUT) {
		assert_int_equal(ftruncate(c->fd, (off_t)(PAGES * c->x.page)), 0);
		assert_true(mmap(c->x.area, PAGES * c->x.page, PROT_READ | PROT_WRITE,
				 MAP_FIXED | MAP_SHARED, c->fd, 0) != MAP_FAILED);
	}
	assert_int_equal(pthread_create(&c->thread, NULL, take_and_give, c), 0);
}

static void end_churn(struct churn *c)
{
	atomic_store(&c->stop, true);
	pthread_join(c->thread, NULL);
	edge_reconnect(&c->x.pair);
	reach(&c->x, IBV_WR_RDMA_WRITE, 0, 100, IBV_WC_SUCCESS);
	assert_int_equal(c->went + c->came, ROUNDS);
	close(c->fd);
	tear_down(&c->x);
}

/* One request of poster's, whose completion is a success or this failure. */
static bool may_fail(struct churn *c, struct edge_end *poster, struct ibv_send_wr *wr,
		     enum ibv_wc_status failure)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	wr->wr_id = 6;
	wr->num_sge = 1;
	wr->send_flags = IBV_SEND_SIGNALED;
	assert_int_equal(ibv_post_send(poster->qp, wr, &bad), 0);
	wc = edge_wait(poster->cq);
	assert_int_equal(wc.wr_id, 6);
	if (wc.status != IBV_WC_SUCCESS)
		assert_int_equal(wc.status, failure);
	return wc.status == IBV_WC_SUCCESS;
}

static void count(struct churn *c, bool good)
{
	c->came += good;
	c->went += !good;
	if (!good)
		edge_reconnect(&c->x.pair);
}

static void as_a_peers_target(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						     IBV_WR_ATOMIC_FETCH_AND_ADD,
						     IBV_WR_ATOMIC_CMP_AND_SWP};

	for (enum taking taking = 0; taking < TAKINGS; taking++) {
		struct churn c;

		start_churn(&c, taking);
		for (int i = 0; i < ROUNDS; i++) {
			struct edge_end *a = &c.x.pair.a;
			const bool atomic = i % 4 > 1;
			struct ibv_sge sge = {(uintptr_t)a->buffer,
					      atomic ? 8 : (uint32_t)(PAGES * c.x.page),
					      a->mr->lkey};
			struct ibv_send_wr wr = {.opcode = opcodes[i % 4], .sg_list = &sge};

			if (atomic) {
				wr.wr.atomic.remote_addr = (uintptr_t)c.x.area + 64;
				wr.wr.atomic.rkey = c.x.mr->rkey;
			} else {
				wr.wr.rdma.remote_addr = (uintptr_t)c.x.area;
				wr.wr.rdma.rkey = c.x.mr->rkey;
			}
			count(&c, may_fail(&c, a, &wr, IBV_WC_REM_ACCESS_ERR));
		}
		end_churn(&c);
	}
}

static void as_what_is_sent_and_read_into(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						     IBV_WR_SEND};

	for (enum taking taking = 0; taking < TAKINGS; taking++) {
		struct churn c;

		start_churn(&c, taking);
		for (int i = 0; i < ROUNDS; i++) {
			struct edge_end *a = &c.x.pair.a, *b = &c.x.pair.b;
			struct ibv_sge sge = {(uintptr_t)c.x.area, (uint32_t)(PAGES * c.x.page),
					      c.x.mr->lkey};
			struct ibv_send_wr wr = {.opcode = opcodes[i % 3],
						 .sg_list = &sge,
						 .wr.rdma = {(uintptr_t)a->buffer, a->mr->rkey}};
			bool good;

			if (wr.opcode == IBV_WR_SEND)
				edge_post_recv(a, 4, 0, EDGE_BUFFER);
			good = may_fail(&c, b, &wr, IBV_WC_LOC_PROT_ERR);
			if (wr.opcode == IBV_WR_SEND && good)
				edge_expect(a->cq, 4, IBV_WC_SUCCESS);
			count(&c, good);
		}
		end_churn(&c);
	}
}

static void as_what_is_received_into(void **state)
{
	for (enum taking taking = 0; taking < TAKINGS; taking++) {
		struct churn c;

		start_churn(&c, taking);
		for (int i = 0; i < ROUNDS; i++) {
			struct edge_end *a = &c.x.pair.a, *b = &c.x.pair.b;
			struct ibv_sge from = {(uintptr_t)a->buffer, (uint32_t)(PAGES * c.x.page),
					       a->mr->lkey},
				       to = {(uintptr_t)c.x.area, from.length, c.x.mr->lkey};
			struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = &from};
			struct ibv_recv_wr *bad, recv = {.wr_id = 7, .sg_list = &to, .num_sge = 1};
			bool good;

			assert_int_equal(ibv_post_recv(b->qp, &recv, &bad), 0);
			good = may_fail(&c, a, &wr, IBV_WC_REM_OP_ERR);
			edge_expect(b->cq, 7, good ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR);
			count(&c, good);
		}
		end_churn(&c);
	}
}

/* -------------------------------------------------------------------------------------------- */

static int advise(struct bench *x, enum ibv_advise_mr_advice advice, uint32_t flags,
		  struct ibv_sge sge)
{
	return ibv_advise_mr(x->pair.b.pd, advice, flags, &sge, 1);
}

static bool is_resident(const struct bench *x, uint32_t page)
{
	unsigned char there = 0;

	assert_int_equal(mincore(x->area + page * x->page, x->page, &there), 0);
	return there & 1;
}

static void advice(void **state)
{
	const enum ibv_advise_mr_advice read = IBV_ADVISE_MR_ADVICE_PREFETCH;
	const enum ibv_advise_mr_advice write = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	const enum ibv_advise_mr_advice no_fault = IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
	const uint32_t flush = IBV_ADVISE_MR_FLAG_FLUSH;
	struct bench x;
	struct ibv_mr *read_only;
	struct ibv_pd *other;
	struct ibv_sge sge, wrong;

	set_up(&x);
	sge = (struct ibv_sge){(uintptr_t)x.area, (uint32_t)(3 * x.page), x.mr->lkey};
	assert_int_equal(advise(&x, no_fault, flush, sge), 0);
	assert_false(is_resident(&x, 1));
	assert_int_equal(advise(&x, write, 0, sge), 0);
	assert_int_equal(advise(&x, write, flush, sge), 0);
	assert_true(is_resident(&x, 0) && is_resident(&x, 2));
	assert_false(is_resident(&x, 3));
	assert_int_equal(x.area[0], 0);

	assert_int_equal(advise(&x, (enum ibv_advise_mr_advice)9, 0, sge), EOPNOTSUPP);
	assert_int_equal(advise(&x, read, flush << 1, sge), EINVAL);
	assert_int_equal(ibv_advise_mr(x.pair.b.pd, read, 0, &sge, 0), EINVAL);
	wrong = sge;
	wrong.lkey = x.mr->rkey;
	assert_int_equal(advise(&x, read, 0, wrong), ENOENT);
	wrong.lkey = x.pair.b.mr->lkey; /* not on demand */
	wrong.addr = (uintptr_t)x.pair.b.buffer;
	assert_int_equal(advise(&x, read, 0, wrong), EINVAL);
	wrong = sge;
	wrong.addr += PAGES * x.page - wrong.length + 1;
	assert_int_equal(advise(&x, read, 0, wrong), EFAULT);
	other = ibv_alloc_pd(x.pair.b.context);
	assert_int_equal(ibv_advise_mr(other, read, 0, &sge, 1), EPERM);
	assert_int_equal(ibv_dealloc_pd(other), 0);
	read_only = ibv_reg_mr(x.pair.b.pd, x.area, PAGES * x.page, IBV_ACCESS_ON_DEMAND);
	wrong = sge;
	wrong.lkey = read_only->lkey;
	assert_int_equal(advise(&x, write, flush, wrong), EPERM);
	assert_int_equal(advise(&x, read, flush, wrong), 0);
	assert_int_equal(ibv_dereg_mr(read_only), 0);
	/* what is not there, only to who waits for it */
	take_away(&x, 2);
	assert_int_equal(advise(&x, read, flush, sge), EFAULT);
	assert_int_equal(advise(&x, read, 0, sge), 0);
	tear_down(&x);
}

static void what_the_device_says(void **state)
{
	struct bench x;
	struct ibv_device_attr_ex device;
	const uint32_t rc = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
			    IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC |
			    IBV_ODP_SUPPORT_SRQ_RECV;

	set_up(&x);
	assert_int_equal(ibv_query_device_ex(x.pair.b.context, NULL, &device), 0);
	assert_int_equal(device.odp_caps.general_caps, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
	assert_int_equal(device.odp_caps.per_transport_caps.rc_odp_caps, rc);
	assert_int_equal(device.xrc_odp_caps, rc);
	assert_int_equal(device.odp_caps.per_transport_caps.uc_odp_caps,
			 IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE);
	assert_int_equal(device.odp_caps.per_transport_caps.ud_odp_caps,
			 IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV);
	tear_down(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_page_that_goes_and_comes_back),
		cmocka_unit_test(what_may_only_be_read),
		cmocka_unit_test(a_file_that_was_cut),
		cmocka_unit_test(local_memory),
		cmocka_unit_test(registered_before_it_exists),
		cmocka_unit_test(the_whole_address_space),
		cmocka_unit_test(a_window_into_it),
		cmocka_unit_test(as_a_peers_target),
		cmocka_unit_test(as_what_is_sent_and_read_into),
		cmocka_unit_test(as_what_is_received_into),
		cmocka_unit_test(advice),
		cmocka_unit_test(what_the_device_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
