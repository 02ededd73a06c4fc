/* SPDX-License-Identifier: BSD-2-Clause */
/* Odd but harmless calls. */
#include "edge.h"

static void null_lists(void **state)
{
	struct edge_pair pair;
	struct ibv_send_wr *bad_send;
	struct ibv_recv_wr *bad_recv;

	edge_open(&pair, &(struct edge_options){0});
	assert_int_equal(ibv_post_send(pair.a.qp, NULL, &bad_send), 0);
	assert_int_equal(ibv_post_recv(pair.a.qp, NULL, &bad_recv), 0);
	edge_close(&pair);
}

static void list_freed_before_use(void **state)
{
	struct ibv_device **list;
	struct ibv_context *first, *second;
	struct ibv_device_attr attr;
	struct ibv_pd *pd;

	setenv("VERBENA_ADDR", "127.0.0.2", 1);
	list = ibv_get_device_list(NULL);
	assert_non_null(list);
	first = ibv_open_device(list[0]);
	second = ibv_open_device(list[0]);
	assert_non_null(first);
	assert_non_null(second);
	ibv_free_device_list(list);
	assert_int_equal(ibv_query_device(first, &attr), 0);

	/* Two opens are independent: what lives in one does not hold the other. */
	pd = ibv_alloc_pd(first);
	assert_non_null(pd);
	assert_int_equal(ibv_close_device(second), 0);
	assert_int_equal(ibv_query_device(first, &attr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(first), 0);
}

static void pd_with_a_live_region(void **state)
{
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){0});
	assert_int_equal(ibv_dealloc_pd(pair.a.pd), EBUSY);
	assert_int_equal(ibv_destroy_cq(pair.a.cq), EBUSY);
	edge_close(&pair);
}

static void close_with_objects_alive(void **state)
{
	struct ibv_device **list;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	static uint8_t memory[4096];

	setenv("VERBENA_ADDR", "127.0.0.2", 1);
	list = ibv_get_device_list(NULL);
	assert_non_null(list);
	context = ibv_open_device(list[0]);
	assert_non_null(context);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	assert_non_null(pd);
	assert_non_null(cq);
	assert_non_null(ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE));

	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {4, 4, 1, 1, 0},
		.qp_type = IBV_QPT_RC,
	};

	assert_non_null(ibv_create_qp(pd, &init));
	assert_int_equal(ibv_close_device(context), 0);
	ibv_free_device_list(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(null_lists),
		cmocka_unit_test(list_freed_before_use),
		cmocka_unit_test(pd_with_a_live_region),
		cmocka_unit_test(close_with_objects_alive),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
