/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion counters (ibv_create_comp_cntr(3) and kin, IBVERBS_1.18): what is counted, by whom,
 * and what is refused. Looked up by name and node, since the installed header may not have them.
 */
#define _GNU_SOURCE
#include "edge.h"

#include <dlfcn.h>

/* As the manual pages have them. */
struct caps {
	uint64_t max_value;
	uint32_t max_counters, kinds;
};
enum { WRS, BYTES };
struct init_attr {
	uint32_t comp_mask, type, flags;
};
struct attach_attr {
	uint32_t comp_mask, kinds;
};
struct counter {
	struct ibv_context *context;
	uint32_t handle;
};
enum { SEND = 1, RECV = 2, READ = 4, REMOTE_READ = 8, WRITE = 16, REMOTE_WRITE = 32 };
#define KINDS 6u

static void *find(const char *name)
{
	void *symbol = dlvsym(RTLD_DEFAULT, name, "IBVERBS_1.18");

	if (!symbol)
		fail_msg("%s is missing", name);
	return symbol;
}

static struct counter *create(struct ibv_context *context, struct init_attr attr)
{
	struct counter *(*call)(struct ibv_context * context, struct init_attr * attr);

	*(void **)&call = find("ibv_create_comp_cntr");
	errno = 0;
	return call(context, &attr);
}

static struct counter *must_create(struct ibv_context *context, uint32_t type)
{
	struct counter *counter = create(context, (struct init_attr){.type = type});

	assert_non_null(counter);
	assert_ptr_equal(counter->context, context);
	return counter;
}

static int destroy(struct counter *counter)
{
	int (*call)(struct counter * counter);

	*(void **)&call = find("ibv_destroy_comp_cntr");
	return call(counter);
}

static int attach(struct ibv_qp *qp, struct counter *counter, struct attach_attr attr)
{
	int (*call)(struct ibv_qp * qp, struct counter * counter, struct attach_attr * attr);

	*(void **)&call = find("ibv_qp_attach_comp_cntr");
	return call(qp, counter, &attr);
}

static int change(const char *name, struct counter *counter, uint64_t value)
{
	int (*call)(struct counter * counter, uint64_t value);

	*(void **)&call = find(name);
	return call(counter, value);
}

static uint64_t read_it(const char *name, struct counter *counter)
{
	int (*call)(struct counter * counter, uint64_t * value);
	uint64_t value;

	*(void **)&call = find(name);
	assert_int_equal(call(counter, &value), 0);
	return value;
}

static uint64_t done(struct counter *counter)
{
	return read_it("ibv_read_comp_cntr", counter);
}

static uint64_t failed(struct counter *counter)
{
	return read_it("ibv_read_err_comp_cntr", counter);
}

/* Nothing but the counter is looked at: it says by itself that something is over. */
static void wait_for(struct counter *counter, uint64_t value)
{
	const double end = edge_seconds() + 20;

	while (done(counter) != value && edge_seconds() < end)
		;
	assert_int_equal(done(counter), value);
}

/* The ends, each with a counter for each kind of operation. */
struct bench {
	struct edge_pair pair;
	struct counter *a[KINDS], *b[KINDS];
};

static void count_all(struct edge_end *end, struct counter **counters, uint32_t type)
{
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

	assert_int_equal(ibv_modify_qp(end->qp, &reset, IBV_QP_STATE), 0);
	for (uint32_t i = 0; i < KINDS; i++) {
		counters[i] = must_create(end->context, type);
		assert_int_equal(attach(end->qp, counters[i], (struct attach_attr){0, 1u << i}), 0);
	}
}

static void set_up(struct bench *t, enum ibv_qp_type qp_type, uint32_t type)
{
	edge_open(&t->pair, &(struct edge_options){.type = qp_type});
	count_all(&t->pair.a, t->a, type);
	count_all(&t->pair.b, t->b, type);
	edge_reconnect(&t->pair);
}

/* A counter outlives nothing: its queue pair goes with the device. */
static void tear_down(struct bench *t)
{
	for (uint32_t i = 0; i < KINDS; i++)
		assert_int_equal(destroy(t->a[i]), EBUSY);
	edge_close(&t->pair);
	for (uint32_t i = 0; i < KINDS; i++) {
		assert_int_equal(destroy(t->a[i]), 0);
		assert_int_equal(destroy(t->b[i]), 0);
	}
}

static void expect(struct counter **counters, const uint64_t good[KINDS], const uint64_t bad[KINDS])
{
	for (uint32_t i = 0; i < KINDS; i++) {
		wait_for(counters[i], good[i]);
		assert_int_equal(failed(counters[i]), bad[i]);
	}
}

static void post(struct bench *t, enum ibv_wr_opcode opcode, uint32_t length, unsigned int flags)
{
	struct ibv_sge sge = {(uintptr_t)t->pair.a.buffer, length, t->pair.a.mr->lkey};
	struct ibv_send_wr *bad,
		wr = {.sg_list = &sge,
		      .num_sge = 1,
		      .opcode = opcode,
		      .send_flags = flags,
		      .wr.rdma = {(uintptr_t)t->pair.b.buffer, t->pair.b.mr->rkey}};

	assert_int_equal(ibv_post_send(t->pair.a.qp, &wr, &bad), 0);
}

static const uint64_t none[KINDS];

/* Each kind by itself, signalled or not; what has no name in the API is not counted. */
static void each_kind(struct bench *t)
{
	for (uint32_t i = 0; i < 4; i++)
		edge_post_recv(&t->pair.b, i, 4096 * i, 4096);
	post(t, IBV_WR_SEND, 100, 0);
	post(t, IBV_WR_SEND, 3000, IBV_SEND_SIGNALED);
	post(t, IBV_WR_SEND_WITH_IMM, 0, 0);
	post(t, IBV_WR_RDMA_WRITE, 50000, 0);
	post(t, IBV_WR_RDMA_WRITE, 8, IBV_SEND_SIGNALED);
	post(t, IBV_WR_RDMA_WRITE_WITH_IMM, 16, 0);
}

static void operations_are_counted(void **state)
{
	const uint64_t at_a[KINDS] = {3, 0, 2, 0, 3, 0}, at_b[KINDS] = {0, 4, 0, 2, 0, 3};
	struct bench t;

	set_up(&t, IBV_QPT_RC, WRS);
	each_kind(&t);
	post(&t, IBV_WR_RDMA_READ, 70000, 0);
	post(&t, IBV_WR_RDMA_READ, 1, IBV_SEND_SIGNALED);
	assert_int_equal(edge_post(&t.pair.a, &t.pair.b, 9, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8), 0);
	expect(t.a, at_a, none);
	expect(t.b, at_b, none);
	tear_down(&t);
}

static void bytes_are_counted(void **state)
{
	const uint64_t at_a[KINDS] = {3100, 0, 70001, 0, 50024, 0};
	const uint64_t at_b[KINDS] = {0, 3116, 0, 70001, 0, 50024};
	struct bench t;

	set_up(&t, IBV_QPT_RC, BYTES);
	each_kind(&t);
	post(&t, IBV_WR_RDMA_READ, 70000, 0);
	post(&t, IBV_WR_RDMA_READ, 1, IBV_SEND_SIGNALED);
	expect(t.a, at_a, none);
	expect(t.b, at_b, none);
	tear_down(&t);
}

static void on_unreliable_connections(void **state)
{
	const uint64_t at_a[KINDS] = {3, 0, 0, 0, 3, 0}, at_b[KINDS] = {0, 4, 0, 0, 0, 3};
	struct bench t;

	set_up(&t, IBV_QPT_UC, WRS);
	each_kind(&t);
	expect(t.a, at_a, none);
	expect(t.b, at_b, none);
	tear_down(&t);
}

static void failures_are_counted(void **state)
{
	/* the WRITE that was refused, and the SEND behind it that was flushed */
	const uint64_t at_a[KINDS] = {1, 0, 0, 0, 1, 0}, at_b[KINDS] = {0, 2, 0, 0, 0, 1};
	struct bench t;

	set_up(&t, IBV_QPT_RC, BYTES); /* failures are operations all the same */
	edge_post_recv(&t.pair.b, 1, 0, 64);
	edge_post_recv(&t.pair.b, 2, 0, 64);
	t.pair.b.mr->rkey ^= 1;
	post(&t, IBV_WR_RDMA_WRITE, 8, IBV_SEND_SIGNALED);
	t.pair.b.mr->rkey ^= 1;
	post(&t, IBV_WR_SEND, 8, 0);
	edge_expect(t.pair.a.cq, 0, IBV_WC_REM_ACCESS_ERR);
	edge_expect(t.pair.a.cq, 0, IBV_WC_WR_FLUSH_ERR);
	edge_expect(t.pair.b.cq, 1, IBV_WC_WR_FLUSH_ERR);
	edge_expect(t.pair.b.cq, 2, IBV_WC_WR_FLUSH_ERR);
	expect(t.a, none, at_a);
	expect(t.b, none, at_b);
	/* It goes on counting after RESET. */
	edge_reconnect(&t.pair);
	post(&t, IBV_WR_RDMA_READ, 8, 0);
	wait_for(t.a[2], 8);
	wait_for(t.b[3], 8);
	tear_down(&t);
}

/* One counter for all kinds, and for two queue pairs. */
static void one_counter_for_all(void **state)
{
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct edge_pair pair;
	struct counter *counter;

	edge_open(&pair, &(struct edge_options){0});
	counter = must_create(pair.a.context, WRS);
	assert_int_equal(ibv_modify_qp(pair.a.qp, &reset, IBV_QP_STATE), 0);
	assert_int_equal(attach(pair.a.qp, counter, (struct attach_attr){0, 63}), 0);
	edge_reconnect(&pair);
	edge_post_recv(&pair.b, 1, 0, 64);
	assert_int_equal(edge_post(&pair.a, &pair.b, 2, IBV_WR_SEND, 0, 64), 0);
	wait_for(counter, 1);
	assert_int_equal(edge_post(&pair.b, &pair.a, 3, IBV_WR_RDMA_WRITE, 0, 64), 0);
	wait_for(counter, 2);
	edge_close(&pair);
	assert_int_equal(destroy(counter), 0);
}

static void values_are_the_programs(void **state)
{
	struct edge_pair pair;
	struct counter *counter;

	edge_open(&pair, &(struct edge_options){0});
	counter = must_create(pair.a.context, WRS);
	assert_int_equal(done(counter), 0);
	assert_int_equal(failed(counter), 0);
	assert_int_equal(change("ibv_set_comp_cntr", counter, 1000), 0);
	assert_int_equal(change("ibv_inc_comp_cntr", counter, 5), 0);
	assert_int_equal(change("ibv_set_err_comp_cntr", counter, 70), 0);
	assert_int_equal(change("ibv_inc_err_comp_cntr", counter, 7), 0);
	assert_int_equal(done(counter), 1005);
	assert_int_equal(failed(counter), 77);
	assert_int_equal(change("ibv_set_comp_cntr", counter, UINT64_MAX), 0);
	assert_int_equal(change("ibv_inc_comp_cntr", counter, 1), 0); /* past max_value */
	assert_int_equal(done(counter), 0);
	assert_int_equal(failed(counter), 77);
	assert_int_equal(destroy(counter), 0);
	edge_close(&pair);
}

static void what_the_device_can(void **state)
{
	int (*query)(struct ibv_context * context, struct caps * caps, size_t size);
	struct edge_pair pair;
	struct caps caps;

	*(void **)&query = find("_ibv_query_comp_cntr_caps");
	edge_open(&pair, &(struct edge_options){0});
	memset(&caps, 0xff, sizeof(caps));
	assert_int_equal(query(pair.a.context, &caps, sizeof(caps) - 4), EINVAL);
	assert_int_equal(query(pair.a.context, &caps, sizeof(caps)), 0);
	assert_true(caps.max_value == UINT64_MAX);
	assert_true(caps.max_counters >= 1000);
	assert_int_equal(caps.kinds, 63);
	edge_close(&pair);
}

static void what_is_refused(void **state)
{
	static const struct init_attr attrs[] = {{.comp_mask = 1}, {.type = 2}, {.flags = 1}};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
	struct counter *counter, *second, *strange;
	struct edge_pair pair;
	struct ibv_context *other;
	struct ibv_qp *qp;

	edge_open(&pair, &(struct edge_options){0});
	for (size_t i = 0; i < sizeof(attrs) / sizeof(attrs[0]); i++) {
		assert_null(create(pair.a.context, attrs[i]));
		assert_int_equal(errno, EOPNOTSUPP);
	}
	counter = must_create(pair.a.context, WRS);
	second = must_create(pair.a.context, WRS);
	assert_int_equal(attach(pair.a.qp, counter, (struct attach_attr){0, SEND}),
			 EINVAL); /* RTS */
	init.send_cq = init.recv_cq = pair.a.cq;
	qp = ibv_create_qp(pair.a.pd, &init);
	assert_non_null(qp);
	assert_int_equal(attach(qp, counter, (struct attach_attr){1, SEND}), EINVAL);
	assert_int_equal(attach(qp, counter, (struct attach_attr){0, 0}), EINVAL);
	assert_int_equal(attach(qp, counter, (struct attach_attr){0, SEND | 64}), EOPNOTSUPP);
	other = ibv_open_device(pair.a.context->device);
	strange = must_create(other, WRS);
	assert_int_equal(attach(qp, strange, (struct attach_attr){0, SEND}), EINVAL);
	assert_int_equal(destroy(strange), 0);
	assert_int_equal(ibv_close_device(other), 0);
	assert_int_equal(destroy(counter), 0); /* after all that it is attached to nothing */
	counter = must_create(pair.a.context, WRS);
	assert_int_equal(attach(qp, counter, (struct attach_attr){0, SEND | WRITE}), 0);
	assert_int_equal(attach(qp, second, (struct attach_attr){0, READ | WRITE}), EBUSY);
	assert_int_equal(attach(qp, counter, (struct attach_attr){0, SEND}), EBUSY);
	assert_int_equal(destroy(second), 0); /* nothing of it was attached */
	assert_int_equal(destroy(counter), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(destroy(counter), 0);
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(operations_are_counted),
		cmocka_unit_test(bytes_are_counted),
		cmocka_unit_test(on_unreliable_connections),
		cmocka_unit_test(failures_are_counted),
		cmocka_unit_test(one_counter_for_all),
		cmocka_unit_test(values_are_the_programs),
		cmocka_unit_test(what_the_device_can),
		cmocka_unit_test(what_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
