/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_many_queue_pairs.c - short messages in turn over many queue pairs to one peer. Over UDP they
 * share datagrams, and so do their acknowledgements: each keeps its order, also where some of a
 * datagram are refused, and none stays behind when the program calls nothing more.
 */
#include <stdlib.h>

#include "edge.h"

#define QPS 64u
#define ROUNDS 200u
#define RECEIVES 64u
#define FEW 24u /* receives for the messages of a whole round */

struct message {
	uint32_t qp, number;
};

struct many {
	struct edge_pair pair;
	struct ibv_qp *a[QPS], *b[QPS];
	uint32_t sent[QPS], completed[QPS], received[QPS];
};

static struct ibv_qp *create_qp(struct edge_end *end, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.srq = srq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 2, .max_send_sge = 1, .max_inline_data = 8},
	};
	struct ibv_qp *qp = ibv_create_qp(end->pd, &init);

	assert_non_null(qp);
	return qp;
}

static void post_receive(struct many *m, uint64_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)m->pair.b.buffer + slot * sizeof(struct message),
		.length = sizeof(struct message),
		.lkey = m->pair.b.mr->lkey,
	};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_srq_recv(m->pair.b.srq, &wr, &bad), 0);
}

static struct many *open_many(uint32_t receives)
{
	struct edge_options options = {
		.cap = {4, RECEIVES, 1, 1, 0},
		.cap_is_exact = true,
		.srq_at_b = true,
		.rnr_retry = 7,
		.cq_entries = 4 * QPS,
	};
	struct many *m = calloc(1, sizeof(*m));

	assert_non_null(m);
	edge_open(&m->pair, &options);
	for (uint32_t i = 0; i < QPS; i++) {
		m->a[i] = create_qp(&m->pair.a, NULL);
		m->b[i] = create_qp(&m->pair.b, m->pair.b.srq);
		edge_connect_qp(m->a[i], m->b[i], &m->pair.b.gid, 0);
		edge_connect_qp(m->b[i], m->a[i], &m->pair.a.gid, 0);
	}
	for (uint32_t i = 0; i < receives; i++)
		post_receive(m, i);
	return m;
}

static void close_many(struct many *m)
{
	for (uint32_t i = 0; i < QPS; i++) {
		assert_int_equal(ibv_destroy_qp(m->a[i]), 0);
		assert_int_equal(ibv_destroy_qp(m->b[i]), 0);
	}
	edge_close(&m->pair);
	free(m);
}

static void post(struct many *m, uint32_t qp)
{
	struct message message = {qp, m->sent[qp]};
	struct ibv_sge sge = {(uintptr_t)&message, sizeof(message), 0};
	struct ibv_send_wr *bad, wr = {
					 .wr_id = (uint64_t)qp << 32 | m->sent[qp],
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND,
					 .send_flags = IBV_SEND_INLINE,
				 };

	assert_int_equal(ibv_post_send(m->a[qp], &wr, &bad), 0);
	m->sent[qp]++;
}

static void post_round(struct many *m)
{
	for (uint32_t i = 0; i < QPS; i++)
		post(m, i);
}

/* One message: the next of its queue pair, and of no other. */
static void take(struct many *m)
{
	const struct ibv_wc wc = edge_wait(m->pair.b.cq);
	struct message message;

	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, sizeof(message));
	memcpy(&message, m->pair.b.buffer + wc.wr_id * sizeof(message), sizeof(message));
	assert_in_range(message.qp, 0, QPS - 1);
	assert_int_equal(wc.qp_num, m->b[message.qp]->qp_num);
	assert_int_equal(message.number, m->received[message.qp]++);
	post_receive(m, wc.wr_id);
}

static void complete(struct many *m)
{
	const struct ibv_wc wc = edge_wait(m->pair.a.cq);
	const uint32_t qp = (uint32_t)(wc.wr_id >> 32);

	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_in_range(qp, 0, QPS - 1);
	assert_int_equal(wc.qp_num, m->a[qp]->qp_num);
	assert_int_equal((uint32_t)wc.wr_id, m->completed[qp]++);
}

static void rounds(struct many *m, uint32_t count)
{
	for (uint32_t round = 0; round < count; round++) {
		post_round(m);
		for (uint32_t i = 0; i < QPS; i++)
			take(m);
		for (uint32_t i = 0; i < QPS; i++)
			complete(m);
	}
	assert_memory_equal(m->sent, m->received, sizeof(m->sent));
	assert_memory_equal(m->sent, m->completed, sizeof(m->sent));
}

static void each_keeps_its_order(void **state)
{
	struct many *m = open_many(RECEIVES);

	rounds(m, ROUNDS);
	close_many(m);
}

/* Those of a datagram that find no receive come again, the others not. */
static void some_are_refused(void **state)
{
	struct many *m = open_many(FEW);

	rounds(m, ROUNDS / 10);
	close_many(m);
}

/* Two each, without a poll in between, and then no call at all of the sender's. */
static void none_stays_behind(void **state)
{
	struct many *m = open_many(RECEIVES);

	rounds(m, 40);
	post_round(m);
	post_round(m);
	for (uint32_t i = 0; i < 2 * QPS; i++)
		take(m);
	for (uint32_t i = 0; i < 2 * QPS; i++)
		complete(m);
	close_many(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_keeps_its_order),
		cmocka_unit_test(some_are_refused),
		cmocka_unit_test(none_stays_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
