/* SPDX-License-Identifier: BSD-2-Clause */
/* A QP with an SRQ ignores max_recv_wr and max_recv_sge; an SRQ on a UC QP is refused. */
#include "edge.h"

static void receive_caps_are_ignored(void **state)
{
	struct edge_options options = {
		.cap = {4, 0x7fffffff, 1, 0x7fffffff, 0},
		.cap_is_exact = true,
	};
	struct edge_pair pair;
	struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *srq;
	struct ibv_qp *qp;

	edge_open(&pair, &(struct edge_options){.srq_at_b = true});
	srq = ibv_create_srq(pair.a.pd, &srq_attr);
	assert_non_null(srq);

	struct ibv_qp_init_attr init = {
		.send_cq = pair.a.cq,
		.recv_cq = pair.a.cq,
		.srq = srq,
		.cap = options.cap,
		.qp_type = IBV_QPT_RC,
	};

	qp = ibv_create_qp(pair.a.pd, &init);
	assert_non_null(qp);
	assert_int_equal(ibv_destroy_qp(qp), 0);

	/* The same caps without the SRQ are over every limit. */
	init.srq = NULL;
	init.cap = options.cap;
	assert_null(ibv_create_qp(pair.a.pd, &init));
	assert_int_equal(errno, EINVAL);

	init.srq = srq;
	init.qp_type = IBV_QPT_UC;
	init.cap = (struct ibv_qp_cap){1, 1, 1, 1, 0};
	assert_null(ibv_create_qp(pair.a.pd, &init));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_destroy_srq(srq), 0);

	/* And messages do arrive through b's SRQ; its own receive queue can't be posted to. */
	struct ibv_recv_wr wr = {.wr_id = 9};
	struct ibv_recv_wr *bad;

	assert_int_equal(ibv_post_recv(pair.b.qp, &wr, &bad), EINVAL);
	edge_post_recv(&pair.b, 5, 0, 64);
	assert_int_equal(edge_post(&pair.a, &pair.b, 1, IBV_WR_SEND, 0, 33), 0);
	assert_int_equal(edge_expect(pair.b.cq, 5, IBV_WC_SUCCESS).byte_len, 33);
	edge_expect(pair.a.cq, 1, IBV_WC_SUCCESS);
	edge_close(&pair);
}

static void limit_event_comes_once(void **state)
{
	struct edge_pair pair;
	struct ibv_srq_attr limit = {.srq_limit = 3};
	struct ibv_async_event event;

	edge_open(&pair, &(struct edge_options){.srq_at_b = true});
	for (uint64_t i = 0; i < 4; i++)
		edge_post_recv(&pair.b, i, 0, 64);
	assert_int_equal(ibv_modify_srq(pair.b.srq, &limit, IBV_SRQ_LIMIT), 0);
	for (uint64_t i = 0; i < 2; i++) { /* leaves 2, fewer than 3 */
		assert_int_equal(edge_post(&pair.a, &pair.b, i, IBV_WR_SEND, 0, 8), 0);
		edge_expect(pair.b.cq, i, IBV_WC_SUCCESS);
		edge_expect(pair.a.cq, i, IBV_WC_SUCCESS);
	}
	assert_int_equal(ibv_get_async_event(pair.b.context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_ptr_equal(event.element.srq, pair.b.srq);
	ibv_ack_async_event(&event);
	/* Disarmed by having fired (IBTA 10.2.9.1). */
	struct ibv_srq_attr now;

	assert_int_equal(ibv_query_srq(pair.b.srq, &now), 0);
	assert_int_equal(now.srq_limit, 0);
	edge_close(&pair);
}

static void last_wqe_reached_when_in_error(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_async_event event;
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){.srq_at_b = true});
	edge_post_recv(&pair.b, 1, 0, 64);
	assert_int_equal(ibv_modify_qp(pair.b.qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(ibv_get_async_event(pair.b.context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_ptr_equal(event.element.qp, pair.b.qp);
	ibv_ack_async_event(&event);
	/* What is in the SRQ stays there. */
	edge_expect_none(pair.b.cq);
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(receive_caps_are_ignored),
		cmocka_unit_test(limit_event_comes_once),
		cmocka_unit_test(last_wqe_reached_when_in_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
