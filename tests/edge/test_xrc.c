/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC through the public API: one connection into a domain with two SRQs, each with its own PD and
 * CQ; who may open and close domains and shared queue pairs; what the wrong SRQ number does.
 */
#define _GNU_SOURCE
#include "edge.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

struct xrc {
	struct edge_pair
		pair; /* an RC pair beside it: its devices, PDs, CQs and buffers are used */
	struct ibv_xrcd *xrcd;
	struct ibv_pd *pd[2];
	struct ibv_mr *mr[2];
	struct ibv_cq *cq[2];
	struct ibv_srq *srq[2];
	uint32_t srqn[2];
	struct ibv_qp *send, *recv;
};

static struct ibv_xrcd *open_domain(struct ibv_context *context, int fd, int oflags)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd,
		.oflags = oflags,
	};

	errno = 0;
	return ibv_open_xrcd(context, &attr);
}

static struct ibv_srq *create_srq(struct ibv_pd *pd, struct ibv_xrcd *xrcd, struct ibv_cq *cq)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = {.max_wr = 8, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
		.xrcd = xrcd,
		.cq = cq,
	};

	errno = 0;
	return ibv_create_srq_ex(pd->context, &attr);
}

static struct ibv_qp *create_recv(struct ibv_context *context, struct ibv_xrcd *xrcd)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrcd,
	};

	errno = 0;
	return ibv_create_qp_ex(context, &attr);
}

static struct ibv_qp *create_send(struct edge_end *end, uint64_t operations)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = end->cq,
		.cap = {.max_send_wr = 8, .max_send_sge = 2, .max_inline_data = 32},
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = end->pd,
		.send_ops_flags = operations,
	};

	errno = 0;
	return ibv_create_qp_ex(end->context, &attr);
}

static void reconnect(struct xrc *x)
{
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

	assert_int_equal(ibv_modify_qp(x->send, &reset, IBV_QP_STATE), 0);
	assert_int_equal(ibv_modify_qp(x->recv, &reset, IBV_QP_STATE), 0);
	edge_connect_qp(x->recv, x->send, &x->pair.a.gid, EDGE_ALL_ACCESS);
	edge_connect_qp(x->send, x->recv, &x->pair.b.gid, EDGE_ALL_ACCESS);
}

static void xrc_open(struct xrc *x, uint64_t operations)
{
	struct edge_end *b = &x->pair.b;

	memset(x, 0, sizeof(*x));
	edge_open(&x->pair, &(struct edge_options){0});
	x->xrcd = open_domain(b->context, -1, O_CREAT);
	assert_non_null(x->xrcd);
	for (int i = 0; i < 2; i++) {
		x->pd[i] = ibv_alloc_pd(b->context);
		x->mr[i] = ibv_reg_mr(x->pd[i], b->buffer, EDGE_BUFFER, EDGE_ALL_ACCESS);
		x->cq[i] = ibv_create_cq(b->context, 16, NULL, NULL, 0);
		x->srq[i] = create_srq(x->pd[i], x->xrcd, x->cq[i]);
		assert_non_null(x->srq[i]);
		assert_int_equal(ibv_get_srq_num(x->srq[i], &x->srqn[i]), 0);
	}
	x->recv = create_recv(b->context, x->xrcd);
	x->send = create_send(&x->pair.a, operations);
	assert_non_null(x->recv);
	assert_non_null(x->send);
	edge_connect_qp(x->recv, x->send, &x->pair.a.gid, EDGE_ALL_ACCESS);
	edge_connect_qp(x->send, x->recv, &b->gid, EDGE_ALL_ACCESS);
}

static void xrc_close(struct xrc *x)
{
	assert_int_equal(ibv_destroy_qp(x->send), 0);
	assert_int_equal(ibv_destroy_qp(x->recv), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_destroy_srq(x->srq[i]), 0);
		assert_int_equal(ibv_destroy_cq(x->cq[i]), 0);
		assert_int_equal(ibv_dereg_mr(x->mr[i]), 0);
		assert_int_equal(ibv_dealloc_pd(x->pd[i]), 0);
	}
	assert_int_equal(ibv_close_xrcd(x->xrcd), 0);
	edge_close(&x->pair);
}

static void post_recv(struct xrc *x, int which, uint64_t wr_id, uint32_t offset, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)x->pair.b.buffer + offset, length, x->mr[which]->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};

	assert_int_equal(ibv_post_srq_recv(x->srq[which], &wr, &bad), 0);
}

static int post(struct xrc *x, uint64_t wr_id, enum ibv_wr_opcode opcode, uint32_t srqn,
		uint32_t length, uint32_t rkey)
{
	struct ibv_sge sge = {(uintptr_t)x->pair.a.buffer, length, x->pair.a.mr->lkey};
	struct ibv_send_wr *bad;
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htobe32(0x01020304),
		.qp_type.xrc.remote_srqn = srqn,
	};

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)x->pair.b.buffer;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 5;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)x->pair.b.buffer;
		wr.wr.rdma.rkey = rkey;
	}
	return ibv_post_send(x->send, &wr, &bad);
}

/* --- data -------------------------------------------------------------------------------- */

static void messages_reach_the_srq_that_they_name(void **state)
{
	struct ibv_wc wc;
	struct xrc x;

	xrc_open(&x, IBV_QP_EX_WITH_SEND);
	memset(x.pair.a.buffer, 0x5a, 5000);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 2; i++) {
			post_recv(&x, i, 10 + (uint64_t)i, 8192u * (uint32_t)(i + 1), 5000);
			assert_int_equal(post(&x, 1, i ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
					      x.srqn[i], 5000, 0),
					 0);
			wc = edge_expect(x.cq[i], 10 + (uint64_t)i, IBV_WC_SUCCESS);
			assert_int_equal(wc.byte_len, 5000);
			assert_int_equal(wc.qp_num, x.recv->qp_num);
			assert_int_equal(wc.src_qp, x.send->qp_num);
			assert_int_equal(wc.wc_flags & IBV_WC_WITH_IMM, i ? IBV_WC_WITH_IMM : 0);
			wc = edge_expect(x.pair.a.cq, 1, IBV_WC_SUCCESS);
			assert_int_equal(wc.qp_num, x.send->qp_num);
			assert_memory_equal(x.pair.b.buffer + 8192 * (i + 1), x.pair.a.buffer,
					    5000);
		}
	}
	xrc_close(&x);
}

static void rdma_and_atomics(void **state)
{
	uint64_t *word;
	struct xrc x;

	xrc_open(&x, IBV_QP_EX_WITH_SEND);
	memset(x.pair.a.buffer, 0x33, 3000);
	assert_int_equal(post(&x, 1, IBV_WR_RDMA_WRITE, x.srqn[0], 3000, x.mr[0]->rkey), 0);
	edge_expect(x.pair.a.cq, 1, IBV_WC_SUCCESS);
	assert_memory_equal(x.pair.b.buffer, x.pair.a.buffer, 3000);

	memset(x.pair.b.buffer, 0x44, 3000);
	assert_int_equal(post(&x, 2, IBV_WR_RDMA_READ, x.srqn[1], 3000, x.mr[1]->rkey), 0);
	edge_expect(x.pair.a.cq, 2, IBV_WC_SUCCESS);
	assert_memory_equal(x.pair.b.buffer, x.pair.a.buffer, 3000);

	word = (uint64_t *)(void *)x.pair.b.buffer;
	*word = 37;
	assert_int_equal(post(&x, 3, IBV_WR_ATOMIC_FETCH_AND_ADD, x.srqn[0], 8, x.mr[0]->rkey), 0);
	edge_expect(x.pair.a.cq, 3, IBV_WC_SUCCESS);
	assert_int_equal(*word, 42);
	assert_int_equal(*(uint64_t *)(void *)x.pair.a.buffer, 37);

	post_recv(&x, 1, 9, 0, 0);
	assert_int_equal(post(&x, 4, IBV_WR_RDMA_WRITE_WITH_IMM, x.srqn[1], 3000, x.mr[1]->rkey),
			 0);
	assert_int_equal(edge_expect(x.cq[1], 9, IBV_WC_SUCCESS).opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	edge_expect(x.pair.a.cq, 4, IBV_WC_SUCCESS);
	xrc_close(&x);
}

/* RNR: the connection waits for the one SRQ, though the other has requests. */
static void an_empty_srq_holds_the_connection(void **state)
{
	struct xrc x;

	xrc_open(&x, IBV_QP_EX_WITH_SEND);
	post_recv(&x, 0, 10, 0, 64);
	assert_int_equal(post(&x, 1, IBV_WR_SEND, x.srqn[1], 8, 0), 0);
	assert_int_equal(post(&x, 2, IBV_WR_SEND, x.srqn[0], 8, 0), 0);
	edge_expect_none(x.cq[0]);
	post_recv(&x, 1, 11, 64, 64);
	edge_expect(x.cq[1], 11, IBV_WC_SUCCESS);
	edge_expect(x.cq[0], 10, IBV_WC_SUCCESS);
	edge_expect(x.pair.a.cq, 1, IBV_WC_SUCCESS);
	edge_expect(x.pair.a.cq, 2, IBV_WC_SUCCESS);
	xrc_close(&x);
}

static void wrong_numbers_and_keys(void **state)
{
	struct ibv_async_event event;
	struct xrc x;

	xrc_open(&x, IBV_QP_EX_WITH_SEND);
	assert_int_equal(post(&x, 1, IBV_WR_SEND, x.srqn[0] ^ x.srqn[1], 8, 0), 0);
	edge_expect(x.pair.a.cq, 1, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(edge_state(x.recv), IBV_QPS_ERR);
	do {
		assert_int_equal(ibv_get_async_event(x.pair.b.context, &event), 0);
		ibv_ack_async_event(&event);
	} while (event.event_type == IBV_EVENT_COMM_EST);
	assert_int_equal(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
	assert_ptr_equal(event.element.qp, x.recv);

	/* the key of the other SRQ's PD */
	reconnect(&x);
	assert_int_equal(post(&x, 2, IBV_WR_RDMA_WRITE, x.srqn[0], 8, x.mr[1]->rkey), 0);
	edge_expect(x.pair.a.cq, 2, IBV_WC_REM_ACCESS_ERR);

	/* no number at all has more than 24 bits */
	reconnect(&x);
	assert_int_equal(post(&x, 3, IBV_WR_SEND, 1u << 24, 8, 0), EINVAL);
	edge_expect_none(x.pair.a.cq);
	xrc_close(&x);
}

/* Its limit, its size and its query are those of any SRQ. */
static void its_srqs_are_modified_like_others(void **state)
{
	struct ibv_srq_attr attr = {.srq_limit = 2, .max_wr = 16};
	struct ibv_async_event event;
	struct xrc x;

	xrc_open(&x, IBV_QP_EX_WITH_SEND);
	post_recv(&x, 0, 10, 0, 64);
	post_recv(&x, 0, 11, 64, 64);
	assert_int_equal(ibv_modify_srq(x.srq[0], &attr, IBV_SRQ_LIMIT), 0);
	assert_int_equal(post(&x, 1, IBV_WR_SEND, x.srqn[0], 8, 0), 0);
	edge_expect(x.cq[0], 10, IBV_WC_SUCCESS);
	do {
		assert_int_equal(ibv_get_async_event(x.pair.b.context, &event), 0);
		ibv_ack_async_event(&event);
	} while (event.event_type == IBV_EVENT_COMM_EST);
	assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_ptr_equal(event.element.srq, x.srq[0]);
	assert_int_equal(ibv_modify_srq(x.srq[0], &attr, IBV_SRQ_MAX_WR), 0);
	assert_int_equal(ibv_query_srq(x.srq[0], &attr), 0);
	assert_true(attr.max_wr >= 16);
	assert_int_equal(attr.srq_limit, 0); /* it was told once */
	attr.srq_limit = attr.max_wr + 1;
	assert_int_equal(ibv_modify_srq(x.srq[0], &attr, IBV_SRQ_LIMIT), EINVAL);
	/* what was posted before is still there */
	assert_int_equal(post(&x, 2, IBV_WR_SEND, x.srqn[0], 8, 0), 0);
	edge_expect(x.cq[0], 11, IBV_WC_SUCCESS);
	xrc_close(&x);
}

/* --- domains ----------------------------------------------------------------------------- */

static void domains_are_named_by_inodes(void **state)
{
	int fd = memfd_create("one", 0), other_fd = memfd_create("other", 0), same = dup(fd);
	struct ibv_xrcd_init_attr attr = {.comp_mask = IBV_XRCD_INIT_ATTR_FD, .fd = fd};
	struct ibv_xrcd *one, *two, *other;
	struct edge_pair pair;
	struct ibv_context *c;

	assert_true(fd >= 0 && other_fd >= 0 && same >= 0);
	edge_open(&pair, &(struct edge_options){0});
	c = pair.a.context;
	assert_null(ibv_open_xrcd(c, &attr)); /* both members are required */
	assert_int_equal(errno, EINVAL);
	attr.comp_mask = IBV_XRCD_INIT_ATTR_RESERVED;
	assert_null(ibv_open_xrcd(c, &attr));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_null(open_domain(c, 12345, O_CREAT));
	assert_int_equal(errno, EBADF);
	assert_null(open_domain(c, fd, 0));
	assert_int_equal(errno, EAGAIN);
	one = open_domain(c, fd, O_CREAT | O_EXCL);
	assert_non_null(one);
	assert_null(open_domain(c, same, O_CREAT | O_EXCL));
	assert_int_equal(errno, EINVAL);
	two = open_domain(c, same, 0);
	assert_non_null(two);
	other = open_domain(c, other_fd, O_CREAT | O_EXCL);
	assert_non_null(other);

	/* What is made by one handle is found by the other, and not in another domain. */
	{
		struct ibv_qp_open_attr by_number = {
			.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
				     IBV_QP_OPEN_ATTR_TYPE,
			.xrcd = two,
			.qp_type = IBV_QPT_XRC_RECV,
		};
		struct ibv_qp *made = create_recv(c, one), *opened;

		assert_non_null(made);
		by_number.qp_num = made->qp_num;
		opened = ibv_open_qp(c, &by_number);
		assert_non_null(opened);
		assert_int_equal(opened->qp_num, made->qp_num);
		by_number.xrcd = other;
		assert_null(ibv_open_qp(c, &by_number));
		assert_int_equal(errno, EINVAL);
		by_number.xrcd = two;
		by_number.qp_type = IBV_QPT_RC;
		assert_null(ibv_open_qp(c, &by_number));
		assert_int_equal(errno, EINVAL);
		by_number.qp_type = IBV_QPT_XRC_RECV;
		by_number.qp_num = pair.a.qp->qp_num; /* no XRC queue pair */
		assert_null(ibv_open_qp(c, &by_number));
		assert_int_equal(errno, EINVAL);
		by_number.comp_mask = IBV_QP_OPEN_ATTR_NUM;
		assert_null(ibv_open_qp(c, &by_number));
		assert_int_equal(errno, EINVAL);

		assert_int_equal(ibv_close_xrcd(one), EBUSY);
		assert_int_equal(ibv_close_xrcd(two), EBUSY);
		assert_int_equal(ibv_destroy_qp(made), 0);
		assert_int_equal(edge_state(opened), IBV_QPS_RESET); /* it lives on */
		assert_int_equal(ibv_close_xrcd(one), 0);
		assert_int_equal(ibv_close_xrcd(two), EBUSY);
		assert_int_equal(ibv_destroy_qp(opened), 0);
	}
	assert_int_equal(ibv_close_xrcd(two), 0);
	assert_null(open_domain(c, fd, 0)); /* the last handle took it along */
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(ibv_close_xrcd(other), 0);
	edge_close(&pair);
	close(fd);
	close(same);
	close(other_fd);
}

static void handles_of_one_queue_pair(void **state)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE |
			     IBV_QP_OPEN_ATTR_CONTEXT,
		.qp_type = IBV_QPT_XRC_RECV,
	};
	struct ibv_async_event event[2];
	struct ibv_qp *opened;
	struct xrc x;

	xrc_open(&x, IBV_QP_EX_WITH_SEND);
	attr.xrcd = x.xrcd;
	attr.qp_num = x.recv->qp_num;
	attr.qp_context = &x;
	opened = ibv_open_qp(x.pair.b.context, &attr);
	assert_non_null(opened);
	assert_ptr_equal(opened->qp_context, &x);
	assert_int_equal(opened->state, IBV_QPS_RTS);
	/* Both handles hear of its end. */
	assert_int_equal(post(&x, 1, IBV_WR_SEND, 0, 8, 0), 0);
	edge_expect(x.pair.a.cq, 1, IBV_WC_REM_ACCESS_ERR);
	for (int i = 0; i < 2; i++) {
		do {
			assert_int_equal(ibv_get_async_event(x.pair.b.context, &event[i]), 0);
			ibv_ack_async_event(&event[i]);
		} while (event[i].event_type == IBV_EVENT_COMM_EST);
		assert_int_equal(event[i].event_type, IBV_EVENT_QP_ACCESS_ERR);
	}
	assert_true((event[0].element.qp == opened && event[1].element.qp == x.recv) ||
		    (event[0].element.qp == x.recv && event[1].element.qp == opened));
	assert_int_equal(ibv_destroy_qp(opened), 0);
	reconnect(&x);
	post_recv(&x, 0, 10, 0, 8);
	assert_int_equal(post(&x, 2, IBV_WR_SEND, x.srqn[0], 8, 0), 0);
	edge_expect(x.cq[0], 10, IBV_WC_SUCCESS);
	xrc_close(&x);
}

/* --- wrong arguments --------------------------------------------------------------------- */

static void creation_is_refused(void **state)
{
	struct ibv_qp_init_attr_ex recv = {.qp_type = IBV_QPT_XRC_RECV};
	struct ibv_srq_init_attr_ex srq = {.attr = {.max_wr = 8, .max_sge = 1},
					   .srq_type = IBV_SRQT_XRC};
	struct ibv_qp_init_attr plain = {.qp_type = IBV_QPT_XRC_RECV};
	struct ibv_srq *basic;
	uint32_t number;
	struct xrc x;

	xrc_open(&x, IBV_QP_EX_WITH_SEND);
	recv.xrcd = x.xrcd;
	recv.pd = x.pd[0];
	recv.comp_mask = IBV_QP_INIT_ATTR_CREATE_FLAGS; /* no domain */
	assert_null(ibv_create_qp_ex(x.pair.b.context, &recv));
	assert_int_equal(errno, EINVAL);
	recv.comp_mask = IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_PD;
	assert_null(ibv_create_qp_ex(x.pair.b.context, &recv));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_create_qp(x.pd[0], &plain));
	assert_int_equal(errno, EINVAL);
	plain.qp_type = IBV_QPT_XRC_SEND; /* without a send CQ */
	assert_null(ibv_create_qp(x.pd[0], &plain));
	assert_int_equal(errno, EINVAL);

	srq.pd = x.pd[0];
	srq.xrcd = x.xrcd;
	srq.cq = x.cq[0];
	for (uint32_t left_out = IBV_SRQ_INIT_ATTR_PD; left_out <= IBV_SRQ_INIT_ATTR_CQ;
	     left_out <<= 1) {
		srq.comp_mask = (IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
				 IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ) &
				~left_out;
		assert_null(ibv_create_srq_ex(x.pair.b.context, &srq));
		assert_int_equal(errno, EINVAL);
	}
	/* The basic type by the extended call; it has no number. */
	srq.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	srq.srq_type = IBV_SRQT_BASIC;
	basic = ibv_create_srq_ex(x.pair.b.context, &srq);
	assert_non_null(basic);
	assert_int_equal(ibv_get_srq_num(basic, &number), EINVAL);
	assert_int_equal(ibv_destroy_srq(basic), 0);
	xrc_close(&x);
}

/* An SRQ of XRC completes into a CQ of its own and is named in packets: the kernel gives it to no
 * other type of queue pair. */
static void its_srqs_are_no_other_types(void **state)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	struct xrc x;

	xrc_open(&x, IBV_QP_EX_WITH_SEND);
	for (int i = 0; i < 3; i++) {
		struct ibv_qp_init_attr plain = {.qp_type = types[i],
						 .send_cq = x.pair.b.cq,
						 .recv_cq = x.pair.b.cq,
						 .srq = x.srq[0],
						 .cap = {4, 4, 1, 1, 0}};
		struct ibv_qp_init_attr_ex ex = {.qp_type = types[i],
						 .send_cq = x.pair.b.cq,
						 .recv_cq = x.pair.b.cq,
						 .srq = x.srq[0],
						 .cap = {4, 4, 1, 1, 0},
						 .comp_mask = IBV_QP_INIT_ATTR_PD |
							      IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
						 .send_ops_flags = IBV_QP_EX_WITH_SEND,
						 .pd = x.pd[0]};

		errno = 0;
		assert_null(ibv_create_qp(x.pd[0], &plain));
		assert_int_equal(errno, EINVAL);
		errno = 0;
		assert_null(ibv_create_qp_ex(x.pair.b.context, &ex));
		assert_int_equal(errno, EINVAL);
	}
	xrc_close(&x);
}

static void domain_is_busy(void **state)
{
	struct xrc x;

	xrc_open(&x, IBV_QP_EX_WITH_SEND);
	assert_int_equal(ibv_close_xrcd(x.xrcd), EBUSY);
	assert_int_equal(ibv_destroy_cq(x.cq[0]), EBUSY);
	xrc_close(&x);
}

/* --- ibv_wr_* ---------------------------------------------------------------------------- */

static void set_text(struct ibv_qp_ex *ex, const char *text)
{
	ibv_wr_set_inline_data(ex, (void *)(uintptr_t)text, strlen(text) + 1);
}

static void posted_by_calls(void **state)
{
	struct ibv_qp_ex *ex;
	struct xrc x;

	xrc_open(&x, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE);
	ex = ibv_qp_to_qp_ex(x.send);
	post_recv(&x, 1, 11, 64, 64);
	ibv_wr_start(ex);
	ex->wr_id = 1;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(ex, x.mr[0]->rkey, (uintptr_t)x.pair.b.buffer);
	ibv_wr_set_xrc_srqn(ex, x.srqn[0]);
	set_text(ex, "written");
	ex->wr_id = 2;
	ibv_wr_send(ex);
	ibv_wr_set_xrc_srqn(ex, x.srqn[1]);
	set_text(ex, "sent");
	assert_int_equal(ibv_wr_complete(ex), 0);
	edge_expect(x.cq[1], 11, IBV_WC_SUCCESS);
	edge_expect(x.pair.a.cq, 1, IBV_WC_SUCCESS);
	edge_expect(x.pair.a.cq, 2, IBV_WC_SUCCESS);
	assert_string_equal((char *)x.pair.b.buffer, "written");
	assert_string_equal((char *)x.pair.b.buffer + 64, "sent");

	/* The setter is mandatory: without it nothing of the batch is posted. */
	ibv_wr_start(ex);
	ex->wr_id = 3;
	ibv_wr_rdma_write(ex, x.mr[0]->rkey, (uintptr_t)x.pair.b.buffer);
	ibv_wr_set_xrc_srqn(ex, x.srqn[0]);
	set_text(ex, "not this");
	ibv_wr_send(ex);
	set_text(ex, "nor this");
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	edge_expect_none(x.pair.a.cq);
	assert_string_equal((char *)x.pair.b.buffer, "written");
	xrc_close(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_reach_the_srq_that_they_name),
		cmocka_unit_test(rdma_and_atomics),
		cmocka_unit_test(an_empty_srq_holds_the_connection),
		cmocka_unit_test(wrong_numbers_and_keys),
		cmocka_unit_test(its_srqs_are_modified_like_others),
		cmocka_unit_test(domains_are_named_by_inodes),
		cmocka_unit_test(handles_of_one_queue_pair),
		cmocka_unit_test(creation_is_refused),
		cmocka_unit_test(its_srqs_are_no_other_types),
		cmocka_unit_test(domain_is_busy),
		cmocka_unit_test(posted_by_calls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
