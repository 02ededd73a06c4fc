/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RDMA ATOMIC WRITE and FLUSH (IBTA annex A19) through the public API, by ibv_post_send() and by
 * ibv_wr_*. ibv_wr_flush() and its constants are not in every release's header: they are named here
 * as newer ones have them.
 */
#include "edge.h"

#include <pthread.h>

#define WITH_FLUSH (1u << 11)	  /* IBV_QP_EX_WITH_FLUSH */
#define ACCESS_FLUSH_GLOBAL 0x100 /* IBV_ACCESS_FLUSH_GLOBAL */
#define ACCESS (EDGE_ALL_ACCESS | ACCESS_FLUSH_GLOBAL)
#define ACCESS_PERSISTENT 0x200 /* IBV_ACCESS_FLUSH_PERSISTENT */
#define DEVICE_FLUSH_GLOBAL 38	/* bits of device_cap_flags_ex */
#define DEVICE_FLUSH_PERSISTENT 39
#define DEVICE_ATOMIC_WRITE 40
#define WC_FLUSH 8 /* IBV_WC_FLUSH */
#define GLOBAL 1
#define PERSISTENT 2
#define RANGE 0
#define REGION 1

typedef void (*flush_function)(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
			       size_t length, uint8_t type, uint8_t level);

/* The member behind the last one that the header of Debian 12 has. */
static flush_function flush_of(struct ibv_qp_ex *ex)
{
	flush_function function;

	memcpy(&function, (char *)ex + offsetof(struct ibv_qp_ex, wr_atomic_write) + sizeof(void *),
	       sizeof(function));
	return function;
}

/* A pair beside edge.h's, since that one makes plain queue pairs: the same ends, connected anew. */
struct placement {
	struct edge_pair pair;
	struct ibv_qp *a, *b;
	struct ibv_mr *flushable; /* all of b's buffer */
};

static struct ibv_qp *create(struct edge_end *end, uint64_t operations)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.cap = {.max_send_wr = 16, .max_send_sge = 2, .max_recv_wr = 4, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = end->pd,
		.send_ops_flags = operations,
	};

	errno = 0;
	return ibv_create_qp_ex(end->context, &attr);
}

static void placement_open(struct placement *p)
{
	memset(p, 0, sizeof(*p));
	edge_open(&p->pair, &(struct edge_options){0});
	p->a = create(&p->pair.a, WITH_FLUSH | IBV_QP_EX_WITH_ATOMIC_WRITE |
					  IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND |
					  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
	p->b = create(&p->pair.b, IBV_QP_EX_WITH_SEND);
	assert_non_null(p->a);
	assert_non_null(p->b);
	edge_connect_qp(p->a, p->b, &p->pair.b.gid, ACCESS);
	edge_connect_qp(p->b, p->a, &p->pair.a.gid, ACCESS);
	p->flushable = ibv_reg_mr(p->pair.b.pd, p->pair.b.buffer, EDGE_BUFFER, ACCESS);
	assert_non_null(p->flushable);
}

static void placement_close(struct placement *p)
{
	assert_int_equal(ibv_destroy_qp(p->a), 0);
	assert_int_equal(ibv_destroy_qp(p->b), 0);
	assert_int_equal(ibv_dereg_mr(p->flushable), 0);
	edge_close(&p->pair);
}

static struct ibv_qp_ex *start(struct placement *p, uint64_t wr_id)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(p->a);

	ibv_wr_start(ex);
	ex->wr_id = wr_id;
	ex->wr_flags = IBV_SEND_SIGNALED;
	return ex;
}

/* --- ATOMIC WRITE ------------------------------------------------------------------------ */

static void eight_bytes_are_written(void **state)
{
	const uint64_t value = 0x1020304050607080;
	struct ibv_qp_ex *ex;
	struct placement p;
	struct ibv_wc wc;

	placement_open(&p);
	ex = start(&p, 7);
	ibv_wr_atomic_write(ex, p.pair.b.mr->rkey, (uintptr_t)p.pair.b.buffer + 8, &value);
	assert_int_equal(ibv_wr_complete(ex), 0);
	wc = edge_expect(p.pair.a.cq, 7, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_ATOMIC_WRITE);
	assert_memory_equal(p.pair.b.buffer + 8, &value, 8);
	placement_close(&p);
}

static void by_the_plain_call(void **state)
{
	struct ibv_sge sge;
	struct ibv_send_wr *bad;
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_ATOMIC_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct placement p;

	placement_open(&p);
	sge = (struct ibv_sge){(uintptr_t)p.pair.a.buffer, 8, p.pair.a.mr->lkey};
	wr.wr.rdma.remote_addr = (uintptr_t)p.pair.b.buffer;
	wr.wr.rdma.rkey = p.pair.b.mr->rkey;
	memcpy(p.pair.a.buffer, "eight by", 8);
	assert_int_equal(ibv_post_send(p.a, &wr, &bad), 0);
	edge_expect(p.pair.a.cq, 1, IBV_WC_SUCCESS);
	assert_memory_equal(p.pair.b.buffer, "eight by", 8);

	wr.send_flags |= IBV_SEND_INLINE;
	sge.lkey = 0;
	memcpy(p.pair.a.buffer, "inline!!", 8);
	assert_int_equal(ibv_post_send(p.a, &wr, &bad), 0);
	edge_expect(p.pair.a.cq, 1, IBV_WC_SUCCESS);
	assert_memory_equal(p.pair.b.buffer, "inline!!", 8);

	sge.length = 4;
	assert_int_equal(ibv_post_send(p.a, &wr, &bad), EINVAL);
	wr.opcode = (enum ibv_wr_opcode)14; /* IBV_WR_FLUSH: has no place in the plain request */
	wr.num_sge = 0;
	assert_int_equal(ibv_post_send(p.a, &wr, &bad), EINVAL);
	edge_expect_none(p.pair.a.cq);
	placement_close(&p);
}

static void unaligned_and_without_right(void **state)
{
	const uint64_t value = 1;
	struct ibv_qp_ex *ex;
	struct placement p;
	struct ibv_mr *readable;

	placement_open(&p);
	ex = start(&p, 1);
	ibv_wr_atomic_write(ex, p.pair.b.mr->rkey, (uintptr_t)p.pair.b.buffer + 4, &value);
	assert_int_equal(ibv_wr_complete(ex), 0);
	edge_expect(p.pair.a.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	placement_close(&p);

	placement_open(&p);
	readable = ibv_reg_mr(p.pair.b.pd, p.pair.b.buffer, 4096, IBV_ACCESS_REMOTE_READ);
	assert_non_null(readable);
	ex = start(&p, 1);
	ibv_wr_atomic_write(ex, readable->rkey, (uintptr_t)p.pair.b.buffer, &value);
	assert_int_equal(ibv_wr_complete(ex), 0);
	edge_expect(p.pair.a.cq, 1, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(readable), 0);
	placement_close(&p);
}

/* The reader sees one of the two values, whole. */
struct reader {
	const uint64_t *word;
	bool stop, torn;
	pthread_t thread;
};

static void *watch(void *argument)
{
	struct reader *reader = argument;

	while (!__atomic_load_n(&reader->stop, __ATOMIC_ACQUIRE)) {
		uint64_t seen = __atomic_load_n(reader->word, __ATOMIC_RELAXED);

		if (seen != 0 && seen != UINT64_MAX)
			reader->torn = true;
	}
	return NULL;
}

static void nobody_sees_half_of_it(void **state)
{
	struct reader reader = {0};
	struct placement p;

	placement_open(&p);
	reader.word = (const uint64_t *)(const void *)p.pair.b.buffer;
	assert_int_equal(pthread_create(&reader.thread, NULL, watch, &reader), 0);
	for (uint64_t i = 0; i < 200; i++) {
		const uint64_t value = i & 1 ? UINT64_MAX : 0;
		struct ibv_qp_ex *ex = start(&p, i);

		ibv_wr_atomic_write(ex, p.pair.b.mr->rkey, (uintptr_t)p.pair.b.buffer, &value);
		assert_int_equal(ibv_wr_complete(ex), 0);
		edge_expect(p.pair.a.cq, i, IBV_WC_SUCCESS);
	}
	__atomic_store_n(&reader.stop, true, __ATOMIC_RELEASE);
	assert_int_equal(pthread_join(reader.thread, NULL), 0);
	assert_false(reader.torn);
	placement_close(&p);
}

/* --- FLUSH ------------------------------------------------------------------------------- */

static void flushed_behind_a_write(void **state)
{
	struct ibv_qp_ex *ex;
	struct placement p;

	placement_open(&p);
	memset(p.pair.a.buffer, 0x21, 5000);
	ex = start(&p, 1);
	ibv_wr_rdma_write(ex, p.flushable->rkey, (uintptr_t)p.pair.b.buffer);
	ibv_wr_set_sge(ex, p.pair.a.mr->lkey, (uintptr_t)p.pair.a.buffer, 5000);
	ex->wr_id = 2;
	flush_of(ex)(ex, p.flushable->rkey, (uintptr_t)p.pair.b.buffer, 5000, GLOBAL, RANGE);
	ex->wr_id = 3;
	flush_of(ex)(ex, p.flushable->rkey, 0, 0, GLOBAL, REGION);
	assert_int_equal(ibv_wr_complete(ex), 0);
	edge_expect(p.pair.a.cq, 1, IBV_WC_SUCCESS);
	assert_int_equal((int)edge_expect(p.pair.a.cq, 2, IBV_WC_SUCCESS).opcode, WC_FLUSH);
	edge_expect(p.pair.a.cq, 3, IBV_WC_SUCCESS);
	assert_memory_equal(p.pair.b.buffer, p.pair.a.buffer, 5000);
	placement_close(&p);
}

static void expect_flush(uint8_t type, uint8_t level, size_t length, bool flushable, int error,
			 enum ibv_wc_status status)
{
	struct ibv_qp_ex *ex;
	struct placement p;

	placement_open(&p);
	ex = start(&p, 1);
	flush_of(ex)(ex, flushable ? p.flushable->rkey : p.pair.b.mr->rkey,
		     (uintptr_t)p.pair.b.buffer, length, type, level);
	assert_int_equal(ibv_wr_complete(ex), error);
	if (error)
		edge_expect_none(p.pair.a.cq);
	else
		edge_expect(p.pair.a.cq, 1, status);
	placement_close(&p);
}

static void flush_is_refused(void **state)
{
	expect_flush(0, RANGE, 8, true, EINVAL, IBV_WC_SUCCESS);
	expect_flush(4, RANGE, 8, true, EINVAL, IBV_WC_SUCCESS);
	expect_flush(GLOBAL, 2, 8, true, EINVAL, IBV_WC_SUCCESS);
	expect_flush(GLOBAL, RANGE, (size_t)1 << 32, true, EINVAL, IBV_WC_SUCCESS);
	expect_flush(GLOBAL, RANGE, 8, false, 0, IBV_WC_REM_ACCESS_ERR);
	expect_flush(GLOBAL, RANGE, EDGE_BUFFER + 1, true, 0, IBV_WC_REM_ACCESS_ERR);
	/* No memory here survives a loss of power: the queue pair cannot be given the right. */
	expect_flush(PERSISTENT, RANGE, 8, true, 0, IBV_WC_REM_INV_REQ_ERR);
}

static void what_the_device_says(void **state)
{
	struct ibv_device_attr_ex attr;
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){0});
	assert_int_equal(ibv_query_device_ex(pair.a.context, NULL, &attr), 0);
	assert_true(attr.device_cap_flags_ex >> DEVICE_ATOMIC_WRITE & 1);
	assert_true(attr.device_cap_flags_ex >> DEVICE_FLUSH_GLOBAL & 1);
	assert_false(attr.device_cap_flags_ex >> DEVICE_FLUSH_PERSISTENT & 1);
	assert_null(ibv_reg_mr(pair.a.pd, pair.a.buffer, 4096, ACCESS_PERSISTENT));
	edge_close(&pair);
}

/* --- ibv_wr_*: all or nothing ------------------------------------------------------------ */

static void one_wrong_request_and_nothing_is_posted(void **state)
{
	struct ibv_qp_ex *ex;
	struct placement p;

	placement_open(&p);
	/* the second has no data, which an atomic needs: found out only when it is posted */
	ex = start(&p, 1);
	ibv_wr_rdma_write(ex, p.flushable->rkey, (uintptr_t)p.pair.b.buffer);
	ibv_wr_set_sge(ex, p.pair.a.mr->lkey, (uintptr_t)p.pair.a.buffer, 64);
	ibv_wr_atomic_fetch_add(ex, p.flushable->rkey, (uintptr_t)p.pair.b.buffer, 1);
	memset(p.pair.a.buffer, 1, 64);
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	edge_expect_none(p.pair.a.cq);
	assert_int_equal(p.pair.b.buffer[0], 0);

	/* an operation that the queue pair was not made with does not spoil the next batch */
	ex = start(&p, 2);
	ibv_wr_rdma_read(ex, p.flushable->rkey, (uintptr_t)p.pair.b.buffer);
	ibv_wr_abort(ex);
	ex = start(&p, 3);
	ibv_wr_send(ex);
	ibv_wr_abort(ex);
	edge_expect_none(p.pair.a.cq);
	ex = start(&p, 4);
	ibv_wr_rdma_write(ex, p.flushable->rkey, (uintptr_t)p.pair.b.buffer);
	ibv_wr_set_sge(ex, p.pair.a.mr->lkey, (uintptr_t)p.pair.a.buffer, 64);
	assert_int_equal(ibv_wr_complete(ex), 0);
	edge_expect(p.pair.a.cq, 4, IBV_WC_SUCCESS);
	placement_close(&p);
}

static void operations_of_each_type(void **state)
{
	const uint64_t reliable = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
				  IBV_QP_EX_WITH_ATOMIC_WRITE | WITH_FLUSH;
	const uint64_t writes = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	const uint64_t sends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
						 IBV_QPT_XRC_SEND};
	const uint64_t allowed[] = {sends | writes | reliable, sends | writes, sends,
				    sends | writes | reliable};
	const uint64_t judged = sends | writes | reliable;
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){0});
	for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
		for (uint64_t bit = 1; bit < 1 << 14; bit <<= 1) {
			struct ibv_qp_init_attr_ex attr = {
				.send_cq = pair.a.cq,
				.recv_cq = pair.a.cq,
				.cap = {.max_send_wr = 1, .max_send_sge = 1},
				.qp_type = types[t],
				.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
				.pd = pair.a.pd,
				.send_ops_flags = bit,
			};
			struct ibv_qp *qp;

			if (!(bit & judged))
				continue;
			errno = 0;
			qp = ibv_create_qp_ex(pair.a.context, &attr);
			if (bit & allowed[t]) {
				assert_non_null(qp);
				assert_int_equal(ibv_destroy_qp(qp), 0);
			} else {
				assert_null(qp);
				assert_int_equal(errno, EOPNOTSUPP);
			}
		}
	}
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(eight_bytes_are_written),
		cmocka_unit_test(by_the_plain_call),
		cmocka_unit_test(unaligned_and_without_right),
		cmocka_unit_test(nobody_sees_half_of_it),
		cmocka_unit_test(flushed_behind_a_write),
		cmocka_unit_test(flush_is_refused),
		cmocka_unit_test(what_the_device_says),
		cmocka_unit_test(one_wrong_request_and_nothing_is_posted),
		cmocka_unit_test(operations_of_each_type),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
