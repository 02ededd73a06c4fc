/* SPDX-License-Identifier: BSD-2-Clause */
/* Every completion status in the situation that it is made for. */
#include "edge.h"

static uint64_t address_in(const struct edge_end *end, uint32_t offset)
{
	return (uintptr_t)end->buffer + offset;
}

static int post_rdma(struct edge_pair *pair, enum ibv_wr_opcode opcode, uint32_t lkey,
		     uint64_t remote, uint32_t rkey, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)pair->a.buffer, length, lkey};
	struct ibv_send_wr *bad;
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {remote, rkey},
	};

	return ibv_post_send(pair->a.qp, &wr, &bad);
}

static void expect_event(struct edge_end *end, enum ibv_event_type type)
{
	struct ibv_async_event event;

	assert_int_equal(ibv_get_async_event(end->context, &event), 0);
	assert_int_equal(event.event_type, type);
	assert_ptr_equal(event.element.qp, end->qp);
	ibv_ack_async_event(&event);
}

static void receive_shorter_than_message(void **state)
{
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){0});
	memset(pair.b.buffer, 0xee, 4096);
	edge_post_recv(&pair.b, 5, 0, 99);
	assert_int_equal(edge_post(&pair.a, &pair.b, 1, IBV_WR_SEND, 0, 100), 0);
	edge_expect(pair.b.cq, 5, IBV_WC_LOC_LEN_ERR);
	edge_expect(pair.a.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(pair.b.buffer[99], 0xee);
	assert_int_equal(edge_state(pair.b.qp), IBV_QPS_ERR);
	expect_event(&pair.b, IBV_EVENT_QP_REQ_ERR);
	edge_close(&pair);
}

static void local_protection(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						     IBV_WR_RDMA_READ};
	struct edge_pair pair;
	struct ibv_mr *read_only;

	edge_open(&pair, &(struct edge_options){0});
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(post_rdma(&pair, opcodes[i], ~pair.a.mr->lkey,
					   address_in(&pair.b, 0), pair.b.mr->rkey, 16),
				 0);
		edge_expect(pair.a.cq, 1, IBV_WC_LOC_PROT_ERR);
		edge_reconnect(&pair);
	}
	/* The program's own rkey in place of the lkey is found out here, not on other machines. */
	assert_int_equal(post_rdma(&pair, IBV_WR_RDMA_WRITE, pair.a.mr->rkey,
				   address_in(&pair.b, 0), pair.b.mr->rkey, 16),
			 0);
	edge_expect(pair.a.cq, 1, IBV_WC_LOC_PROT_ERR);
	edge_reconnect(&pair);
	/* READ into a region without LOCAL_WRITE. */
	read_only = ibv_reg_mr(pair.a.pd, pair.a.buffer, 64, 0);
	assert_non_null(read_only);
	assert_int_equal(post_rdma(&pair, IBV_WR_RDMA_READ, read_only->lkey, address_in(&pair.b, 0),
				   pair.b.mr->rkey, 16),
			 0);
	edge_expect(pair.a.cq, 1, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(ibv_dereg_mr(read_only), 0);
	edge_close(&pair);
}

static void expect_access_error(struct edge_pair *pair, enum ibv_wr_opcode opcode, uint64_t remote,
				uint32_t rkey, uint32_t length)
{
	assert_int_equal(post_rdma(pair, opcode, pair->a.mr->lkey, remote, rkey, length), 0);
	edge_expect(pair->a.cq, 1, IBV_WC_REM_ACCESS_ERR);
	expect_event(&pair->b, IBV_EVENT_QP_ACCESS_ERR);
	edge_reconnect(pair);
}

static void remote_access(void **state)
{
	struct edge_pair pair;
	struct ibv_pd *other;
	struct ibv_mr *no_rights, *elsewhere;

	edge_open(&pair, &(struct edge_options){0});
	no_rights = ibv_reg_mr(pair.b.pd, pair.b.buffer, 64, IBV_ACCESS_LOCAL_WRITE);
	other = ibv_alloc_pd(pair.b.context);
	assert_non_null(other);
	elsewhere = ibv_reg_mr(other, pair.b.buffer, 64, EDGE_ALL_ACCESS);
	assert_non_null(no_rights);
	assert_non_null(elsewhere);
	for (int i = 0; i < 2; i++) {
		enum ibv_wr_opcode opcode = i ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;

		/* unknown key, the peer's lkey, one byte past the end, no right, another PD */
		expect_access_error(&pair, opcode, address_in(&pair.b, 0), 0x7fffffff, 16);
		expect_access_error(&pair, opcode, address_in(&pair.b, 0), pair.b.mr->lkey, 16);
		expect_access_error(&pair, opcode, address_in(&pair.b, EDGE_BUFFER - 15),
				    pair.b.mr->rkey, 16);
		expect_access_error(&pair, opcode, address_in(&pair.b, 0), no_rights->rkey, 16);
		expect_access_error(&pair, opcode, address_in(&pair.b, 0), elsewhere->rkey, 16);
		/* a range that wraps around the end of the address space */
		expect_access_error(&pair, opcode, UINT64_MAX - 7, pair.b.mr->rkey, 16);
	}
	assert_int_equal(ibv_dereg_mr(no_rights), 0);
	assert_int_equal(ibv_dereg_mr(elsewhere), 0);
	assert_int_equal(ibv_dealloc_pd(other), 0);
	edge_close(&pair);
}

static void remote_qp_without_the_right(void **state)
{
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){.qp_access = -1});
	assert_int_equal(edge_post(&pair.a, &pair.b, 1, IBV_WR_RDMA_WRITE, 0, 16), 0);
	edge_expect(pair.a.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	edge_reconnect(&pair);
	assert_int_equal(edge_post(&pair.a, &pair.b, 1, IBV_WR_RDMA_READ, 0, 16), 0);
	edge_expect(pair.a.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	edge_close(&pair);
}

static void remote_operation(void **state)
{
	struct edge_pair pair;
	struct ibv_recv_wr *bad;

	/* The receiver's own SGE is wrong: its receive fails locally, the sender learns of an
	 * operational error. */
	edge_open(&pair, &(struct edge_options){0});

	struct ibv_sge sge = {(uintptr_t)pair.b.buffer, 64, ~pair.b.mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 9, .sg_list = &sge, .num_sge = 1};

	assert_int_equal(ibv_post_recv(pair.b.qp, &wr, &bad), 0);
	assert_int_equal(edge_post(&pair.a, &pair.b, 1, IBV_WR_SEND, 0, 16), 0);
	edge_expect(pair.b.cq, 9, IBV_WC_LOC_PROT_ERR);
	edge_expect(pair.a.cq, 1, IBV_WC_REM_OP_ERR);
	edge_close(&pair);
}

static void reads_on_a_qp_that_may_have_none(void **state)
{
	struct edge_pair pair;

	/* max_rd_atomic 0: the initiator itself can't carry the READ out. */
	edge_open(&pair, &(struct edge_options){.max_rd_atomic = -1});
	assert_int_equal(edge_post(&pair.a, &pair.b, 1, IBV_WR_RDMA_READ, 0, 16), 0);
	edge_expect(pair.a.cq, 1, IBV_WC_LOC_QP_OP_ERR);
	edge_close(&pair);
}

static void fence_and_solicited(void **state)
{
	struct edge_pair pair;
	struct ibv_cq *cq;
	void *cq_context;
	struct ibv_send_wr *bad;

	edge_open(&pair, &(struct edge_options){0});
	edge_post_recv(&pair.b, 1, 0, 64);
	edge_post_recv(&pair.b, 2, 64, 64);
	assert_int_equal(ibv_req_notify_cq(pair.b.cq, 1), 0);

	struct ibv_sge sge = {(uintptr_t)pair.a.buffer, 8, pair.a.mr->lkey};
	struct ibv_send_wr wr[2] = {
		{.wr_id = 10,
		 .next = &wr[1],
		 .sg_list = &sge,
		 .num_sge = 1,
		 .opcode = IBV_WR_SEND,
		 .send_flags = IBV_SEND_SIGNALED},
		{.wr_id = 11,
		 .sg_list = &sge,
		 .num_sge = 1,
		 .opcode = IBV_WR_SEND,
		 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE},
	};

	assert_int_equal(ibv_post_send(pair.a.qp, wr, &bad), 0);
	/* One event: for the solicited one. By then both are there. */
	assert_int_equal(ibv_get_cq_event(pair.b.channel, &cq, &cq_context), 0);
	assert_ptr_equal(cq, pair.b.cq);
	ibv_ack_cq_events(cq, 1);
	edge_expect(pair.b.cq, 1, IBV_WC_SUCCESS);
	edge_expect(pair.b.cq, 2, IBV_WC_SUCCESS);
	edge_close(&pair);
}

static void communication_established(void **state)
{
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){.leave_in_rtr = true});
	edge_post_recv(&pair.b, 1, 0, 64);
	assert_int_equal(edge_post(&pair.a, &pair.b, 2, IBV_WR_SEND, 0, 8), 0);
	edge_expect(pair.b.cq, 1, IBV_WC_SUCCESS);
	expect_event(&pair.b, IBV_EVENT_COMM_EST);
	edge_close(&pair);
}

static void send_queue_drained(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){0});
	assert_int_equal(edge_post(&pair.a, &pair.b, 1, IBV_WR_RDMA_WRITE, 0, 4096), 0);
	assert_int_equal(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
			 0);
	expect_event(&pair.a, IBV_EVENT_SQ_DRAINED);
	edge_expect(pair.a.cq, 1, IBV_WC_SUCCESS);
	/* What is posted now waits for RTS. */
	assert_int_equal(edge_post(&pair.a, &pair.b, 2, IBV_WR_RDMA_WRITE, 0, 4096), 0);
	edge_expect_none(pair.a.cq);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE), 0);
	edge_expect(pair.a.cq, 2, IBV_WC_SUCCESS);
	edge_close(&pair);
}

static void completion_queue_overrun(void **state)
{
	struct edge_pair pair;
	struct ibv_async_event event;

	edge_open(&pair, &(struct edge_options){.cq_entries = 4, .cap = {64, 64, 1, 1, 0}});

	/* Far more than fit, and nobody polls. */
	for (uint64_t i = 0; i < 60; i++)
		if (edge_post(&pair.a, &pair.b, i, IBV_WR_RDMA_WRITE, 0, 8) != 0)
			break;
	assert_int_equal(ibv_get_async_event(pair.a.context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(event.element.cq, pair.a.cq);
	ibv_ack_async_event(&event);
	assert_int_equal(edge_state(pair.a.qp), IBV_QPS_ERR);
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(receive_shorter_than_message),
		cmocka_unit_test(local_protection),
		cmocka_unit_test(remote_access),
		cmocka_unit_test(remote_qp_without_the_right),
		cmocka_unit_test(remote_operation),
		cmocka_unit_test(reads_on_a_qp_that_may_have_none),
		cmocka_unit_test(fence_and_solicited),
		cmocka_unit_test(communication_established),
		cmocka_unit_test(send_queue_drained),
		cmocka_unit_test(completion_queue_overrun),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
