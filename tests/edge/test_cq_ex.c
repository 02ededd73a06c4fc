/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Extended CQs (ibv_create_cq_ex(3)), when a CQ's event is raised, and its moderation
 * (ibv_modify_cq(3)).
 */
#include "edge.h"

#include <poll.h>
#include <time.h>

#define PATIENCE_MS 20000

/* A CQ of its own at end a, behind a queue pair that is not connected: each flushed request is a
 * completion, whenever it is wanted. */
struct flusher {
	struct edge_pair pair;
	struct ibv_comp_channel *channel;
	struct ibv_cq_ex *ex;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint64_t next;
};

static void open_flusher(struct flusher *f, uint32_t flags, uint32_t cqe)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = flags,
	};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {64, 64, 1, 1, 0}};
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};

	*f = (struct flusher){0};
	edge_open(&f->pair, &(struct edge_options){0});
	f->channel = attr.channel = ibv_create_comp_channel(f->pair.a.context);
	f->ex = ibv_create_cq_ex(f->pair.a.context, &attr);
	assert_non_null(f->ex);
	f->cq = ibv_cq_ex_to_cq(f->ex);
	init.send_cq = init.recv_cq = f->cq;
	f->qp = ibv_create_qp(f->pair.a.pd, &init);
	assert_non_null(f->qp);
	assert_int_equal(ibv_modify_qp(f->qp, &error, IBV_QP_STATE), 0);
}

static void close_flusher(struct flusher *f)
{
	assert_int_equal(ibv_destroy_qp(f->qp), 0);
	assert_int_equal(ibv_destroy_cq(f->cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(f->channel), 0);
	edge_close(&f->pair);
}

static void complete(struct flusher *f, int n)
{
	struct ibv_recv_wr *bad;

	while (n--) {
		struct ibv_recv_wr wr = {.wr_id = f->next++};

		assert_int_equal(ibv_post_recv(f->qp, &wr, &bad), 0);
	}
}

static bool has_event(struct flusher *f, int patience_ms)
{
	struct pollfd fd = {.fd = f->channel->fd, .events = POLLIN};

	return poll(&fd, 1, patience_ms) == 1;
}

static void take_event(struct flusher *f)
{
	struct ibv_cq *cq;
	void *context;

	assert_int_equal(ibv_get_cq_event(f->channel, &cq, &context), 0);
	assert_ptr_equal(cq, f->cq);
	ibv_ack_cq_events(cq, 1);
}

static void moderate(struct flusher *f, uint16_t count, uint16_t period_us)
{
	struct ibv_modify_cq_attr attr = {
		.attr_mask = IBV_CQ_ATTR_MODERATE,
		.moderate = {.cq_count = count, .cq_period = period_us},
	};

	assert_int_equal(ibv_modify_cq(f->cq, &attr), 0);
}

static void poll_all(struct flusher *f)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(f->cq, 1, &wc) == 1)
		;
}

/* Open MPI's udcm polls once for an event and arms behind that; what came between is its last
 * message, perhaps. Adapters tell of it at once. */
static void a_completion_before_the_arming(void **state)
{
	struct flusher f;

	open_flusher(&f, 0, 64);
	assert_int_equal(ibv_req_notify_cq(f.cq, 0), 0);
	complete(&f, 1);
	take_event(&f);
	poll_all(&f);
	complete(&f, 1);
	assert_int_equal(ibv_req_notify_cq(f.cq, 0), 0);
	assert_true(has_event(&f, 0));
	take_event(&f);
	assert_false(has_event(&f, 0)); /* once */
	/* Who arms before polling gets no second event for the same completion. */
	assert_int_equal(ibv_req_notify_cq(f.cq, 0), 0);
	assert_false(has_event(&f, 0));
	poll_all(&f);
	complete(&f, 1);
	assert_true(has_event(&f, 0));
	take_event(&f);
	close_flusher(&f);
}

static void events_by_count(void **state)
{
	struct flusher f;

	open_flusher(&f, 0, 64);
	moderate(&f, 4, 0);
	assert_int_equal(ibv_req_notify_cq(f.cq, 0), 0);
	complete(&f, 3);
	assert_false(has_event(&f, 0));
	complete(&f, 1);
	assert_true(has_event(&f, 0));
	take_event(&f);
	complete(&f, 8);
	assert_false(has_event(&f, 0)); /* not armed again */
	moderate(&f, 0, 0);
	assert_int_equal(ibv_req_notify_cq(f.cq, 0), 0);
	complete(&f, 1);
	assert_true(has_event(&f, 0));
	take_event(&f);
	close_flusher(&f);
}

/* Nobody calls into the library while the period runs. */
static void events_by_time(void **state)
{
	struct flusher f;

	open_flusher(&f, 0, 64);
	moderate(&f, 1000, 65535);
	assert_int_equal(ibv_req_notify_cq(f.cq, 0), 0);
	complete(&f, 2);
	assert_true(has_event(&f, PATIENCE_MS));
	take_event(&f);
	close_flusher(&f);
}

static void wrong_moderation(void **state)
{
	struct flusher f;
	struct ibv_modify_cq_attr attr = {.moderate = {.cq_count = 9, .cq_period = 9}};
	struct ibv_device_attr_ex device;

	open_flusher(&f, 0, 64);
	assert_int_equal(ibv_query_device_ex(f.pair.a.context, NULL, &device), 0);
	assert_int_equal(device.cq_mod_caps.max_cq_count, 65535);
	assert_int_equal(device.cq_mod_caps.max_cq_period, 65535);
	assert_int_equal(ibv_modify_cq(f.cq, &attr), EINVAL);
	attr.attr_mask = IBV_CQ_ATTR_MODERATE | 1u << 5;
	assert_int_equal(ibv_modify_cq(f.cq, &attr), EOPNOTSUPP);
	assert_int_equal(ibv_req_notify_cq(f.cq, 0), 0);
	complete(&f, 1);
	assert_true(has_event(&f, 0)); /* nothing has changed */
	take_event(&f);
	close_flusher(&f);
}

static void the_iterator(void **state)
{
	struct ibv_poll_cq_attr attr = {.comp_mask = 1};
	struct flusher f;

	open_flusher(&f, 0, 64);
	assert_int_equal(ibv_start_poll(f.ex, &attr), EINVAL);
	attr.comp_mask = 0;
	assert_int_equal(ibv_start_poll(f.ex, &attr), ENOENT);
	assert_int_equal(ibv_start_poll(f.ex, &attr), ENOENT);
	complete(&f, 3);
	assert_int_equal(ibv_start_poll(f.ex, &attr), 0);
	assert_int_equal(f.ex->wr_id, 0);
	assert_int_equal(f.ex->status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ibv_wc_read_qp_num(f.ex), f.qp->qp_num);
	assert_int_equal(ibv_next_poll(f.ex), 0);
	assert_int_equal(f.ex->wr_id, 1);
	ibv_end_poll(f.ex);
	/* What was not reached is there for either way of polling. */
	edge_expect(f.cq, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ibv_start_poll(f.ex, &attr), ENOENT);
	complete(&f, 1);
	assert_int_equal(ibv_start_poll(f.ex, &attr), 0);
	assert_int_equal(ibv_next_poll(f.ex), ENOENT);
	ibv_end_poll(f.ex);
	close_flusher(&f);
}

static void expect_no_cq(struct ibv_context *context, struct ibv_cq_init_attr_ex attr, int error)
{
	errno = 0;
	assert_null(ibv_create_cq_ex(context, &attr));
	assert_int_equal(errno, error);
}

static void wrong_creation(void **state)
{
	struct edge_pair pair;
	struct ibv_context *context;

	edge_open(&pair, &(struct edge_options){0});
	context = pair.a.context;
	expect_no_cq(context, (struct ibv_cq_init_attr_ex){.cqe = 0}, EINVAL);
	expect_no_cq(context, (struct ibv_cq_init_attr_ex){.cqe = UINT32_MAX}, EINVAL);
	expect_no_cq(context, (struct ibv_cq_init_attr_ex){.cqe = 1, .comp_vector = 1}, EINVAL);
	expect_no_cq(context, (struct ibv_cq_init_attr_ex){.cqe = 1, .comp_mask = 1u << 9}, EINVAL);
	expect_no_cq(context,
		     (struct ibv_cq_init_attr_ex){
			     .cqe = 1, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = 1u << 9},
		     EINVAL);
	expect_no_cq(context, (struct ibv_cq_init_attr_ex){.cqe = 1, .wc_flags = 1ull << 40},
		     EOPNOTSUPP);
	edge_close(&pair);
}

static uint64_t raw_clock(struct ibv_context *context)
{
	struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};

	assert_int_equal(ibv_query_rt_values_ex(context, &values), 0);
	assert_int_equal(values.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
	return (uint64_t)values.raw_clock.tv_sec * 1000000000u + (uint64_t)values.raw_clock.tv_nsec;
}

static uint64_t wall_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Between two readings of the same clocks, whenever they are asked for. The wall clock is worked
 * out from two clocks that are not read at once: a millisecond of grace. */
static void timestamps(void **state)
{
	const uint64_t grace = 1000000;
	struct ibv_poll_cq_attr attr = {0};
	struct ibv_device_attr_ex device;
	uint64_t raw[2], wall[2];
	struct flusher f;

	open_flusher(&f, 0, 64);
	assert_int_equal(ibv_query_device_ex(f.pair.a.context, NULL, &device), 0);
	assert_true(device.completion_timestamp_mask == UINT64_MAX);
	assert_int_equal(device.hca_core_clock, 1000000); /* kHz: nanoseconds */
	raw[0] = raw_clock(f.pair.a.context);
	wall[0] = wall_clock();
	complete(&f, 1);
	raw[1] = raw_clock(f.pair.a.context);
	wall[1] = wall_clock();
	assert_int_equal(ibv_start_poll(f.ex, &attr), 0);
	assert_in_range(ibv_wc_read_completion_ts(f.ex), raw[0], raw[1]);
	assert_in_range(ibv_wc_read_completion_wallclock_ns(f.ex), wall[0] - grace,
			wall[1] + grace);
	ibv_end_poll(f.ex);
	close_flusher(&f);
}

static void unknown_values(void **state)
{
	struct edge_pair pair;
	struct ibv_values_ex values = {.comp_mask = 1u << 7, .raw_clock = {3, 4}};

	edge_open(&pair, &(struct edge_options){0});
	assert_int_equal(ibv_query_rt_values_ex(pair.a.context, &values), EINVAL);
	assert_int_equal(values.raw_clock.tv_sec, 3);
	values.comp_mask = 0; /* asked for nothing */
	assert_int_equal(ibv_query_rt_values_ex(pair.a.context, &values), 0);
	assert_int_equal(values.raw_clock.tv_sec, 3);
	edge_close(&pair);
}

/* Every field of a receive with immediate data, asked for alone. */
static void each_field(void **state)
{
	static const uint64_t flags[] = {
		IBV_WC_EX_WITH_BYTE_LEN,       IBV_WC_EX_WITH_IMM,
		IBV_WC_EX_WITH_QP_NUM,	       IBV_WC_EX_WITH_SRC_QP,
		IBV_WC_EX_WITH_SLID,	       IBV_WC_EX_WITH_SL,
		IBV_WC_EX_WITH_DLID_PATH_BITS, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
		IBV_WC_EX_WITH_CVLAN,	       IBV_WC_EX_WITH_FLOW_TAG,
		IBV_WC_EX_WITH_TM_INFO,	       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){0});
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		struct ibv_cq_init_attr_ex attr = {.cqe = 4, .wc_flags = flags[i]};
		struct ibv_cq_ex *cq = ibv_create_cq_ex(pair.a.context, &attr);

		assert_non_null(cq);
		assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	}
	edge_close(&pair);
}

static void the_fields_of_no_vlan_no_flow_no_lid(void **state)
{
	struct ibv_poll_cq_attr attr = {0};
	struct ibv_cq_init_attr_ex init = {
		.cqe = 8,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG,
	};
	struct ibv_qp_init_attr qp_init = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	struct ibv_recv_wr *bad, wr = {.wr_id = 1};
	struct edge_pair pair;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;

	edge_open(&pair, &(struct edge_options){0});
	cq = ibv_create_cq_ex(pair.a.context, &init);
	assert_non_null(cq);
	qp_init.send_cq = qp_init.recv_cq = ibv_cq_ex_to_cq(cq);
	qp = ibv_create_qp(pair.a.pd, &qp_init);
	assert_int_equal(ibv_modify_qp(qp, &error, IBV_QP_STATE), 0);
	assert_int_equal(ibv_post_recv(qp, &wr, &bad), 0);
	assert_int_equal(ibv_start_poll(cq, &attr), 0);
	assert_int_equal(ibv_wc_read_cvlan(cq), 0);
	assert_int_equal(ibv_wc_read_flow_tag(cq), 0);
	assert_int_equal(ibv_wc_read_slid(cq), 0);
	assert_int_equal(ibv_wc_read_sl(cq), 0);
	assert_int_equal(ibv_wc_read_dlid_path_bits(cq), 0);
	ibv_end_poll(cq);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	edge_close(&pair);
}

static void overrun_ignored(void **state)
{
	struct flusher f;

	open_flusher(&f, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, 4);
	complete(&f, 10);
	for (uint64_t id = 6; id < 10; id++)
		edge_expect(f.cq, id, IBV_WC_WR_FLUSH_ERR);
	edge_expect_none(f.cq);
	complete(&f, 1);
	edge_expect(f.cq, 10, IBV_WC_WR_FLUSH_ERR);
	close_flusher(&f);
}

/* Taken without the engine; the send queue's places come back all the same. */
static void single_threaded(void **state)
{
	struct ibv_poll_cq_attr attr = {0};
	struct flusher f;

	open_flusher(&f, IBV_CREATE_CQ_ATTR_SINGLE_THREADED, 64);
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 64; i++) {
			struct ibv_send_wr *bad, wr = {.wr_id = (uint64_t)i, .opcode = IBV_WR_SEND};

			assert_int_equal(ibv_post_send(f.qp, &wr, &bad), 0);
		}
		for (int i = 0; i < 32; i++)
			edge_expect(f.cq, (uint64_t)i, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(ibv_start_poll(f.ex, &attr), 0);
		for (int i = 33; i < 64; i++)
			assert_int_equal(ibv_next_poll(f.ex), 0);
		assert_int_equal(ibv_next_poll(f.ex), ENOENT);
		ibv_end_poll(f.ex);
	}
	assert_int_equal(ibv_resize_cq(f.cq, 3), 0);
	assert_int_equal(f.cq->cqe, 3);
	close_flusher(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_completion_before_the_arming),
		cmocka_unit_test(events_by_count),
		cmocka_unit_test(events_by_time),
		cmocka_unit_test(wrong_moderation),
		cmocka_unit_test(the_iterator),
		cmocka_unit_test(wrong_creation),
		cmocka_unit_test(timestamps),
		cmocka_unit_test(unknown_values),
		cmocka_unit_test(each_field),
		cmocka_unit_test(the_fields_of_no_vlan_no_flow_no_lid),
		cmocka_unit_test(overrun_ignored),
		cmocka_unit_test(single_threaded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
