/* SPDX-License-Identifier: BSD-2-Clause */
/* Odd but harmless calls. */
#include "edge.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

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

/* The kernel knows the types by name; of a driver's own it asks the driver, and Soft-RoCE has none.
 */
static void queue_pairs_of_no_type(void **state)
{
	static const int none[] = {0, 1, 5, 99, -1};
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){0});

	struct ibv_qp_init_attr init = {
		.send_cq = pair.a.cq, .recv_cq = pair.a.cq, .cap = {4, 4, 1, 1, 0}};

	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		init.qp_type = (enum ibv_qp_type)none[i];
		errno = 0;
		assert_null(ibv_create_qp(pair.a.pd, &init));
		assert_int_equal(errno, EINVAL);
	}
	init.qp_type = IBV_QPT_DRIVER;
	errno = 0;
	assert_null(ibv_create_qp(pair.a.pd, &init));
	assert_int_equal(errno, EOPNOTSUPP);
	edge_close(&pair);
}

/* Queues for nothing. Soft-RoCE refuses them (mlx5 the CQ and the work queue too); a queue pair may
 * have no receives, or no sends. */
static void queues_for_nothing(void **state)
{
	struct edge_pair pair;
	struct edge_end *a = &pair.a;
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 0, .max_sge = 1}};
	struct ibv_srq_init_attr_ex srq_ex = {
		.attr = {.max_wr = 0, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.tm_cap = {.max_num_tags = 4, .max_ops = 4},
	};
	static const enum ibv_srq_type types[] = {IBV_SRQT_BASIC, IBV_SRQT_XRC, IBV_SRQT_TM};
	struct ibv_xrcd_init_attr xrcd = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_wq_init_attr wq = {.wq_type = IBV_WQT_RQ, .max_wr = 0, .max_sge = 1};
	struct ibv_cq_init_attr_ex cq = {.cqe = 0};
	struct ibv_srq_attr attr = {.max_wr = 0};
	struct ibv_srq *some;

	edge_open(&pair, &(struct edge_options){0});
	errno = 0;
	assert_null(ibv_create_srq(a->pd, &srq));
	assert_int_equal(errno, EINVAL);
	srq_ex.pd = a->pd;
	srq_ex.cq = a->cq;
	srq_ex.xrcd = ibv_open_xrcd(a->context, &xrcd);
	assert_non_null(srq_ex.xrcd);
	for (int i = 0; i < 3; i++) {
		srq_ex.srq_type = types[i];
		errno = 0;
		assert_null(ibv_create_srq_ex(a->context, &srq_ex));
		assert_int_equal(errno, EINVAL);
	}
	assert_int_equal(ibv_close_xrcd(srq_ex.xrcd), 0); /* nothing of it was left */
	wq.pd = a->pd;
	wq.cq = a->cq;
	errno = 0;
	assert_null(ibv_create_wq(a->context, &wq));
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_null(ibv_create_cq(a->context, 0, NULL, NULL, 0));
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_null(ibv_create_cq_ex(a->context, &cq));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_resize_cq(a->cq, 0), EINVAL);
	assert_int_equal(a->cq->cqe, 256);

	srq.attr.max_wr = 8;
	some = ibv_create_srq(a->pd, &srq);
	assert_non_null(some);
	assert_int_equal(ibv_modify_srq(some, &attr, IBV_SRQ_MAX_WR), EINVAL);
	assert_int_equal(ibv_query_srq(some, &attr), 0);
	assert_int_equal(attr.max_wr, 8);
	assert_int_equal(ibv_destroy_srq(some), 0);
	edge_close(&pair);
}

static void queue_pairs_of_one_direction(void **state)
{
	struct edge_pair pair;
	struct ibv_qp *qp;

	edge_open(&pair, &(struct edge_options){0});
	for (int sends = 0; sends < 2; sends++) {
		struct ibv_qp_init_attr init = {
			.send_cq = pair.a.cq,
			.recv_cq = pair.a.cq,
			.cap = {sends ? 4 : 0, sends ? 0 : 4, 1, 1, 0},
			.qp_type = IBV_QPT_RC,
		};

		qp = ibv_create_qp(pair.a.pd, &init);
		assert_non_null(qp);
		assert_int_equal(ibv_destroy_qp(qp), 0);
	}
	edge_close(&pair);
}

/* A channel is looked up among those of the CQ's own context. */
static void a_channel_of_another_context(void **state)
{
	struct edge_pair pair;
	struct ibv_context *other;
	struct ibv_comp_channel *channel;

	edge_open(&pair, &(struct edge_options){0});
	other = ibv_open_device(pair.a.pd->context->device);
	assert_non_null(other);
	channel = ibv_create_comp_channel(other);
	assert_non_null(channel);
	errno = 0;
	assert_null(ibv_create_cq(pair.a.pd->context, 1, NULL, channel, 0));
	assert_int_equal(errno, EBADF);
	assert_int_equal(channel->refcnt, 0);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
	assert_int_equal(ibv_close_device(other), 0);
	edge_close(&pair);
}

/* No bytes in the middle of a page are a region of that page; at its beginning they are none. */
static void regions_of_no_bytes(void **state)
{
	static _Alignas(4096) char memory[4096];
	struct edge_pair pair;
	struct ibv_mr *mr;

	edge_open(&pair, &(struct edge_options){0});
	errno = 0;
	assert_null(ibv_reg_mr(pair.a.pd, memory, 0, 0));
	assert_int_equal(errno, EINVAL);
	mr = ibv_reg_mr(pair.a.pd, memory + 8, 0, 0);
	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	edge_close(&pair);
}

/* Registering asks for no descriptor where none is left. */
static void no_descriptor_left(void **state)
{
	static char memory[8192];
	struct rlimit before, none;
	struct edge_pair pair;
	struct ibv_mr *mr;
	int lowest;

	edge_open(&pair, &(struct edge_options){0});
	lowest = dup(0);
	assert_true(lowest > 0);
	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = (rlim_t)lowest;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(dup(0), -1);
	mr = ibv_reg_mr(pair.a.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	errno = 0;
	assert_null(ibv_reg_mr(pair.a.pd, (void *)4096, 8, 0));
	assert_int_equal(errno, EFAULT);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(null_lists),
		cmocka_unit_test(list_freed_before_use),
		cmocka_unit_test(pd_with_a_live_region),
		cmocka_unit_test(close_with_objects_alive),
		cmocka_unit_test(queue_pairs_of_no_type),
		cmocka_unit_test(queues_for_nothing),
		cmocka_unit_test(queue_pairs_of_one_direction),
		cmocka_unit_test(a_channel_of_another_context),
		cmocka_unit_test(regions_of_no_bytes),
		cmocka_unit_test(no_descriptor_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
