/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Parent domains and thread domains (ibv_alloc_parent_domain(3), ibv_alloc_td(3)): allocators that
 * count what they give, refuse, or leave it to the library, and who keeps whom.
 */
#include "edge.h"

#include <pthread.h>

#define GUARD 64u
#define GUARD_BYTE 0x5a
#define DEPTH 16u

/* What a program's allocator has seen. */
struct ledger {
	struct ibv_pd *pd; /* the parent domain, once known */
	uint64_t given, taken_back;
	uint64_t calls;
	uint64_t fail_at; /* this call is refused; 0: none */
	bool use_default, crooked, damaged;
};

static void *give(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	struct ledger *ledger = context;
	uint8_t *memory;

	assert_true(size > 0 && alignment > 0 && (alignment & (alignment - 1)) == 0);
	if (ledger->pd)
		assert_ptr_equal(pd, ledger->pd);
	if (++ledger->calls == ledger->fail_at)
		return NULL;
	if (ledger->use_default)
		return IBV_ALLOCATOR_USE_DEFAULT;
	/* [size, in front] [memory] [guard]; it comes dirty. */
	memory = aligned_alloc(alignment,
			       (alignment + size + GUARD + alignment - 1) / alignment * alignment);
	assert_non_null(memory);
	memset(memory, GUARD_BYTE, alignment + size + GUARD);
	memcpy(memory, &size, sizeof(size));
	ledger->given++;
	return memory + alignment + (ledger->crooked ? 1 : 0);
}

static void take_back(struct ibv_pd *pd, void *context, void *pointer, uint64_t type)
{
	struct ledger *ledger = context;
	uint8_t *memory = (uint8_t *)pointer - (ledger->crooked ? 1 : 0);
	size_t size, alignment = 64;

	assert_ptr_not_equal(pointer, IBV_ALLOCATOR_USE_DEFAULT);
	assert_non_null(pointer);
	memcpy(&size, memory - alignment, sizeof(size));
	for (size_t i = 0; i < GUARD; i++)
		ledger->damaged |= memory[size + i] != GUARD_BYTE;
	free(memory - alignment);
	ledger->taken_back++;
}

static struct ibv_pd *make_parent(struct ibv_pd *pd, struct ibv_td *td, struct ledger *ledger)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = pd,
		.td = td,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
		.alloc = give,
		.free = take_back,
		.pd_context = ledger,
	};
	struct ibv_pd *parent;

	if (!ledger)
		attr.comp_mask = 0;
	parent = ibv_alloc_parent_domain(pd->context, &attr);
	assert_non_null(parent);
	assert_ptr_equal(parent->context, pd->context);
	if (ledger)
		ledger->pd = parent;
	return parent;
}

static struct ibv_cq_ex *make_cq(struct ibv_pd *parent)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 64,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
		.parent_domain = parent,
	};

	return ibv_create_cq_ex(parent->context, &attr);
}

/* a's end, made anew from a parent domain and connected to itself. */
struct loop {
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
};

static void make_loop(struct edge_pair *pair, struct ibv_pd *parent, bool with_srq,
		      struct loop *loop)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = DEPTH, .max_sge = 3}};
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = {DEPTH, DEPTH, 4, 3, 100},
	};

	*loop = (struct loop){.cq = ibv_cq_ex_to_cq(make_cq(parent))};
	assert_non_null(loop->cq);
	if (with_srq) {
		loop->srq = ibv_create_srq(parent, &srq);
		assert_non_null(loop->srq);
	}
	init.send_cq = init.recv_cq = loop->cq;
	init.srq = loop->srq;
	loop->qp = ibv_create_qp(parent, &init);
	assert_non_null(loop->qp);
	assert_ptr_equal(loop->qp->pd, parent);
	edge_connect_qp(loop->qp, loop->qp, &pair->a.gid, EDGE_ALL_ACCESS);
}

static void destroy_loop(struct loop *loop)
{
	assert_int_equal(ibv_destroy_qp(loop->qp), 0);
	if (loop->srq)
		assert_int_equal(ibv_destroy_srq(loop->srq), 0);
	assert_int_equal(ibv_destroy_cq(loop->cq), 0);
}

/* Both queues full, three SGEs, inline data, thrice around the rings. */
static void run(struct edge_pair *pair, struct loop *loop)
{
	uint8_t *from = pair->a.buffer, *to = from + 65536;
	uint32_t lkey = pair->a.mr->lkey;
	struct ibv_wc wc;

	for (uint32_t i = 0; i < 65536; i++)
		from[i] = (uint8_t)(i * 7);
	for (uint32_t round = 0; round < 3; round++) {
		memset(to, 0, 65536);
		for (uint32_t i = 0; i < DEPTH; i++) {
			struct ibv_sge sges[3] = {{(uintptr_t)to + i * 128, 40, lkey},
						  {(uintptr_t)to + i * 128 + 40, 1, lkey},
						  {(uintptr_t)to + i * 128 + 41, 59, lkey}};
			struct ibv_recv_wr *bad,
				recv = {.wr_id = 100 + i, .sg_list = sges, .num_sge = 3};

			if (loop->srq)
				assert_int_equal(ibv_post_srq_recv(loop->srq, &recv, &bad), 0);
			else
				assert_int_equal(ibv_post_recv(loop->qp, &recv, &bad), 0);
		}
		for (uint32_t i = 0; i < DEPTH; i++) {
			struct ibv_sge sges[2] = {{(uintptr_t)from + i * 128, 30, lkey},
						  {(uintptr_t)from + i * 128 + 30, 70, lkey}};
			struct ibv_send_wr *bad,
				send = {
					.wr_id = i,
					.sg_list = sges,
					.num_sge = 2,
					.opcode = IBV_WR_SEND,
					.send_flags =
						IBV_SEND_SIGNALED | (i % 2 ? IBV_SEND_INLINE : 0),
				};

			assert_int_equal(ibv_post_send(loop->qp, &send, &bad), 0);
		}
		for (uint32_t i = 0; i < 2 * DEPTH; i++) {
			wc = edge_wait(loop->cq);
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
		}
		for (uint32_t i = 0; i < DEPTH; i++)
			assert_memory_equal(to + i * 128, from + i * 128, 100);
	}
}

static void every_ring_is_asked_for(void **state)
{
	struct edge_pair pair;
	struct ledger ledger = {0};
	struct ibv_pd *parent;
	struct loop loop;

	edge_open(&pair, &(struct edge_options){0});
	parent = make_parent(pair.a.pd, NULL, &ledger);
	for (int with_srq = 0; with_srq < 2; with_srq++) {
		ledger = (struct ledger){.pd = parent};
		make_loop(&pair, parent, with_srq, &loop);
		assert_int_equal(ledger.given, 2 + with_srq); /* CQ, QP, SRQ */
		assert_int_equal(ledger.taken_back, 0);
		run(&pair, &loop);
		assert_int_equal(ibv_dealloc_pd(parent), EBUSY);
		assert_int_equal(ibv_dealloc_pd(pair.a.pd), EBUSY);
		destroy_loop(&loop);
		assert_int_equal(ledger.taken_back, ledger.given);
		assert_false(ledger.damaged);
	}
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	edge_close(&pair);
}

static void resized_rings_are_asked_for(void **state)
{
	struct ibv_srq_attr attr = {.max_wr = 3 * DEPTH};
	struct edge_pair pair;
	struct ledger ledger = {0};
	struct ibv_pd *parent;
	struct loop loop;

	edge_open(&pair, &(struct edge_options){0});
	parent = make_parent(pair.a.pd, NULL, &ledger);
	make_loop(&pair, parent, true, &loop);
	assert_int_equal(ibv_resize_cq(loop.cq, 300), 0);
	assert_int_equal(ledger.given, 4);
	assert_int_equal(ledger.taken_back, 1);
	assert_int_equal(ibv_modify_srq(loop.srq, &attr, IBV_SRQ_MAX_WR), 0);
	assert_int_equal(ledger.given, 5);
	assert_int_equal(ledger.taken_back, 2);
	run(&pair, &loop);
	ledger.fail_at = ledger.calls + 1;
	assert_int_equal(ibv_resize_cq(loop.cq, 400), ENOMEM);
	assert_int_equal(loop.cq->cqe, 300);
	ledger.fail_at = ledger.calls + 1;
	assert_int_equal(ibv_modify_srq(loop.srq, &attr, IBV_SRQ_MAX_WR), ENOMEM);
	attr = (struct ibv_srq_attr){.max_wr = 1 << 30};
	assert_int_equal(ibv_modify_srq(loop.srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	run(&pair, &loop);
	destroy_loop(&loop);
	assert_int_equal(ledger.taken_back, ledger.given);
	assert_false(ledger.damaged);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	edge_close(&pair);
}

static void left_to_the_library(void **state)
{
	struct edge_pair pair;
	struct ledger ledger = {.use_default = true};
	struct ibv_pd *parent;
	struct loop loop;

	edge_open(&pair, &(struct edge_options){0});
	parent = make_parent(pair.a.pd, NULL, &ledger);
	make_loop(&pair, parent, true, &loop);
	assert_int_equal(ledger.calls, 3);
	run(&pair, &loop);
	destroy_loop(&loop);
	assert_int_equal(ledger.taken_back, 0);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	parent = make_parent(pair.a.pd, NULL, NULL); /* and without an allocator */
	make_loop(&pair, parent, false, &loop);
	run(&pair, &loop);
	destroy_loop(&loop);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	edge_close(&pair);
}

static void expect_none(struct edge_pair *pair, struct ibv_pd *parent)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = DEPTH, .max_sge = 3}};
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = {DEPTH, DEPTH, 4, 3, 100},
		.send_cq = pair->a.cq,
		.recv_cq = pair->a.cq,
	};

	errno = 0;
	assert_null(make_cq(parent));
	assert_int_equal(errno, ENOMEM);
	errno = 0;
	assert_null(ibv_create_srq(parent, &srq));
	assert_int_equal(errno, ENOMEM);
	errno = 0;
	assert_null(ibv_create_qp(parent, &init));
	assert_int_equal(errno, ENOMEM);
}

static void refusals_leave_nothing(void **state)
{
	struct edge_pair pair;
	struct ledger ledger = {0};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {1 << 30, 1, 1, 1, 0}};
	struct ibv_pd *parent;

	edge_open(&pair, &(struct edge_options){0});
	parent = make_parent(pair.a.pd, NULL, &ledger);
	ledger.fail_at = 1;
	errno = 0;
	assert_null(make_cq(parent));
	assert_int_equal(errno, ENOMEM);
	ledger.crooked = true; /* not aligned as was asked for: as good as none */
	expect_none(&pair, parent);
	assert_int_equal(ledger.taken_back, 3);
	ledger.crooked = false;
	init.send_cq = init.recv_cq = pair.a.cq;
	errno = 0;
	assert_null(ibv_create_qp(parent, &init)); /* too large, whoever gives the memory */
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ledger.taken_back, ledger.given);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	edge_close(&pair);
}

static void expect_refused(struct ibv_context *context, struct ibv_parent_domain_init_attr attr)
{
	errno = 0;
	assert_null(ibv_alloc_parent_domain(context, &attr));
	assert_int_equal(errno, EINVAL);
}

static void who_keeps_whom(void **state)
{
	struct edge_pair pair;
	struct ibv_td_init_attr td_attr = {0};
	struct ibv_td *td;
	struct ibv_pd *pd, *parent;
	struct ibv_context *other;
	struct ibv_cq_init_attr_ex cq_attr = {.cqe = 1, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD};

	edge_open(&pair, &(struct edge_options){0});
	td_attr.comp_mask = 1;
	errno = 0;
	assert_null(ibv_alloc_td(pair.a.context, &td_attr));
	assert_int_equal(errno, EINVAL);
	td_attr.comp_mask = 0;
	td = ibv_alloc_td(pair.a.context, &td_attr);
	assert_non_null(td);
	pd = ibv_alloc_pd(pair.a.context);
	parent = make_parent(pd, td, NULL);
	assert_int_equal(ibv_dealloc_td(td), EBUSY);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);

	other = ibv_open_device(pair.a.context->device);
	assert_non_null(other);
	expect_refused(pair.a.context, (struct ibv_parent_domain_init_attr){.pd = NULL});
	expect_refused(pair.a.context, (struct ibv_parent_domain_init_attr){.pd = parent});
	expect_refused(pair.a.context,
		       (struct ibv_parent_domain_init_attr){.pd = pd, .comp_mask = 1u << 20});
	expect_refused(other, (struct ibv_parent_domain_init_attr){.pd = pd});
	errno = 0;
	cq_attr.parent_domain = pd; /* a plain one */
	assert_null(ibv_create_cq_ex(pair.a.context, &cq_attr));
	assert_int_equal(errno, EINVAL);
	errno = 0;
	cq_attr.parent_domain = parent;
	assert_null(ibv_create_cq_ex(other, &cq_attr));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_close_device(other), 0);

	assert_int_equal(ibv_dealloc_pd(parent), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_dealloc_td(td), 0);
	edge_close(&pair);
}

/* Regions and address handles of the parent domain are the PD's. */
static void interchangeable_with_its_pd(void **state)
{
	struct edge_pair pair;
	struct ibv_pd *parent;
	struct ibv_mr *mr;

	edge_open(&pair, &(struct edge_options){0});
	parent = make_parent(pair.b.pd, NULL, NULL);
	mr = ibv_reg_mr(parent, pair.b.buffer, EDGE_BUFFER, EDGE_ALL_ACCESS);
	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(pair.b.mr), 0);
	pair.b.mr = mr;
	assert_int_equal(edge_post(&pair.a, &pair.b, 3, IBV_WR_RDMA_WRITE, 64, 100), 0);
	edge_expect(pair.a.cq, 3, IBV_WC_SUCCESS);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	pair.b.mr = ibv_reg_mr(pair.b.pd, pair.b.buffer, EDGE_BUFFER, EDGE_ALL_ACCESS);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	edge_close(&pair);
}

/* Whatever has rings keeps the parent domain that they are made with. What is the PD's alone does
 * not, as with the adapters that know parent domains: it lives on, and keeps the PD. */
static void what_keeps_the_parent(void **state)
{
	struct edge_pair pair;
	struct ibv_pd *pd, *parent;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_ah *ah;
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1}};
	struct loop loop;

	edge_open(&pair, &(struct edge_options){0});
	to.grh.dgid = pair.b.gid;
	pd = ibv_alloc_pd(pair.a.context);
	parent = make_parent(pd, NULL, NULL);
	make_loop(&pair, parent, true, &loop);
	assert_int_equal(ibv_dealloc_pd(parent), EBUSY);
	assert_int_equal(ibv_destroy_qp(loop.qp), 0);
	assert_int_equal(ibv_dealloc_pd(parent), EBUSY);
	assert_int_equal(ibv_destroy_srq(loop.srq), 0);
	assert_int_equal(ibv_dealloc_pd(parent), EBUSY);
	assert_int_equal(ibv_destroy_cq(loop.cq), 0);

	mr = ibv_reg_mr(parent, pair.a.buffer, 64, EDGE_ALL_ACCESS | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(parent, IBV_MW_TYPE_1);
	ah = ibv_create_ah(parent, &to);
	assert_true(mr && mw && ah);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE),
		0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	edge_close(&pair);
}

struct worker {
	struct edge_pair *pair;
	struct loop loop;
	pthread_t thread;
	uint32_t at;
	bool ok;
};

#define WRITES 3000u

/* A thread with its own domain, sixteen requests under way. */
static void *write_much(void *argument)
{
	struct worker *w = argument;
	struct ibv_sge sge = {(uintptr_t)w->pair->a.buffer + w->at, 64, w->pair->a.mr->lkey};
	uint32_t posted = 0, done = 0;
	struct ibv_wc wc[4];

	w->ok = true;
	while (w->ok && done < WRITES) {
		struct ibv_send_wr *bad, send = {
						 .wr_id = posted,
						 .sg_list = &sge,
						 .num_sge = 1,
						 .opcode = IBV_WR_RDMA_WRITE,
						 .send_flags = IBV_SEND_SIGNALED,
						 .wr.rdma = {sge.addr + 64, w->pair->a.mr->rkey},
					 };
		int n;

		if (posted < WRITES && posted - done < DEPTH) {
			w->ok = ibv_post_send(w->loop.qp, &send, &bad) == 0;
			posted++;
			continue;
		}
		n = ibv_poll_cq(w->loop.cq, 4, wc);
		for (int i = 0; i < n; i++)
			w->ok &= wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == done++;
		w->ok &= n >= 0;
	}
	return NULL;
}

static void threads_each_with_a_domain(void **state)
{
	struct ibv_td_init_attr td_attr = {0};
	struct edge_pair pair;
	struct worker workers[3] = {0};
	struct ibv_td *td[3];
	struct ibv_pd *parent[3];

	edge_open(&pair, &(struct edge_options){0});
	for (int i = 0; i < 3; i++) {
		td[i] = ibv_alloc_td(pair.a.context, &td_attr);
		parent[i] = make_parent(pair.a.pd, td[i], NULL);
		workers[i].pair = &pair;
		workers[i].at = (uint32_t)i * 4096;
		make_loop(&pair, parent[i], false, &workers[i].loop);
	}
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&workers[i].thread, NULL, write_much, &workers[i]),
				 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
	for (int i = 0; i < 3; i++) {
		assert_true(workers[i].ok);
		destroy_loop(&workers[i].loop);
		assert_int_equal(ibv_dealloc_pd(parent[i]), 0);
		assert_int_equal(ibv_dealloc_td(td[i]), 0);
	}
	edge_close(&pair);
}

/* Closing takes the cores; what is left can be let go of in any order that its users keep. */
static void closed_with_everything_alive(void **state)
{
	struct edge_pair pair;
	struct ledger ledger = {0};
	struct ibv_td_init_attr td_attr = {0};
	struct ibv_context *context;
	struct ibv_cq_ex *cq;
	struct ibv_td *td;
	struct ibv_pd *pd, *parent;

	edge_open(&pair, &(struct edge_options){0});
	context = ibv_open_device(pair.a.context->device);
	assert_non_null(context);
	td = ibv_alloc_td(context, &td_attr);
	pd = ibv_alloc_pd(context);
	parent = make_parent(pd, td, &ledger);
	cq = make_cq(parent);
	assert_non_null(cq);
	assert_int_equal(ibv_close_device(context), 0);
	assert_int_equal(ibv_dealloc_pd(parent), EBUSY);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	assert_int_equal(ledger.taken_back, 1);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	assert_int_equal(ibv_dealloc_td(td), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_ring_is_asked_for),
		cmocka_unit_test(resized_rings_are_asked_for),
		cmocka_unit_test(left_to_the_library),
		cmocka_unit_test(refusals_leave_nothing),
		cmocka_unit_test(who_keeps_whom),
		cmocka_unit_test(what_keeps_the_parent),
		cmocka_unit_test(interchangeable_with_its_pd),
		cmocka_unit_test(threads_each_with_a_domain),
		cmocka_unit_test(closed_with_everything_alive),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
