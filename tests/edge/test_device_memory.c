/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device memory (ibv_alloc_dm(3)): at either end of a transfer, zero based, and every way to get it
 * wrong.
 */
#include "edge.h"

#include <sys/wait.h>
#include <unistd.h>

#define DM_ACCESS (IBV_ACCESS_ZERO_BASED | EDGE_ALL_ACCESS)
#define BYTES 8192u

/* A piece at each end, registered from an offset on. */
struct memories {
	struct edge_pair pair;
	struct ibv_dm *dm[2];
	struct ibv_mr *mr[2];
};

static struct ibv_dm *alloc(struct ibv_context *context, size_t length)
{
	struct ibv_alloc_dm_attr attr = {.length = length, .log_align_req = 6};
	struct ibv_dm *dm = ibv_alloc_dm(context, &attr);

	assert_non_null(dm);
	assert_true(dm->comp_mask & IBV_DM_MASK_HANDLE);
	assert_ptr_equal(dm->context, context);
	return dm;
}

static size_t limit(struct ibv_context *context)
{
	struct ibv_device_attr_ex attr;

	assert_int_equal(ibv_query_device_ex(context, NULL, &attr), 0);
	assert_true(attr.max_dm_size > 0);
	return attr.max_dm_size;
}

static void open_memories(struct memories *m)
{
	struct edge_end *end[2] = {&m->pair.a, &m->pair.b};

	edge_open(&m->pair, &(struct edge_options){0});
	for (int i = 0; i < 2; i++) {
		m->dm[i] = alloc(end[i]->context, BYTES);
		m->mr[i] = ibv_reg_dm_mr(end[i]->pd, m->dm[i], 4096, 4096, DM_ACCESS);
		assert_non_null(m->mr[i]);
		assert_int_equal(m->mr[i]->length, 4096);
		assert_ptr_equal(m->mr[i]->pd, end[i]->pd);
	}
}

static void close_memories(struct memories *m)
{
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_free_dm(m->dm[i]), EBUSY);
		assert_int_equal(ibv_dereg_mr(m->mr[i]), 0);
		assert_int_equal(ibv_free_dm(m->dm[i]), 0);
	}
	edge_close(&m->pair);
}

static void fill(struct ibv_dm *dm, uint64_t at, uint32_t length, uint8_t first)
{
	uint8_t bytes[4096];

	for (uint32_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(first + i);
	assert_int_equal(ibv_memcpy_to_dm(dm, at, bytes, length), 0);
}

static void expect(struct ibv_dm *dm, uint64_t at, uint32_t length, uint8_t first)
{
	uint8_t bytes[4096];

	assert_int_equal(ibv_memcpy_from_dm(bytes, dm, at, length), 0);
	for (uint32_t i = 0; i < length; i++)
		assert_int_equal(bytes[i], (uint8_t)(first + i));
}

static void post(struct memories *m, enum ibv_wr_opcode opcode, uint64_t local, uint64_t remote,
		 uint32_t length, uint64_t add)
{
	struct ibv_sge sge = {local, length, m->mr[0]->lkey};
	struct ibv_send_wr *bad, wr = {
					 .wr_id = 7,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = opcode,
					 .send_flags = IBV_SEND_SIGNALED,
				 };

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = m->mr[1]->rkey;
		wr.wr.atomic.compare_add = add;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = m->mr[1]->rkey;
	}
	assert_int_equal(ibv_post_send(m->pair.a.qp, &wr, &bad), 0);
}

static void both_ends_of_every_operation(void **state)
{
	struct memories m;
	struct ibv_sge sge;
	struct ibv_recv_wr *bad, recv = {.wr_id = 8, .sg_list = &sge, .num_sge = 1};
	uint64_t word = 40;

	open_memories(&m);
	fill(m.dm[0], 4096, 4096, 11);
	post(&m, IBV_WR_RDMA_WRITE, 100, 200, 3000, 0);
	edge_expect(m.pair.a.cq, 7, IBV_WC_SUCCESS);
	expect(m.dm[1], 4096 + 200, 3000, (uint8_t)(11 + 100));

	fill(m.dm[1], 4096, 4096, 77);
	post(&m, IBV_WR_RDMA_READ, 0, 4, 4092, 0);
	edge_expect(m.pair.a.cq, 7, IBV_WC_SUCCESS);
	expect(m.dm[0], 4096, 4092, 77 + 4);

	sge = (struct ibv_sge){64, 1024, m.mr[1]->lkey};
	assert_int_equal(ibv_post_recv(m.pair.b.qp, &recv, &bad), 0);
	post(&m, IBV_WR_SEND, 0, 0, 1024, 0);
	edge_expect(m.pair.b.cq, 8, IBV_WC_SUCCESS);
	edge_expect(m.pair.a.cq, 7, IBV_WC_SUCCESS);
	expect(m.dm[1], 4096 + 64, 1024, 77 + 4);

	assert_int_equal(ibv_memcpy_to_dm(m.dm[1], 4096 + 8, &word, sizeof(word)), 0);
	post(&m, IBV_WR_ATOMIC_FETCH_AND_ADD, 16, 8, 8, 2);
	edge_expect(m.pair.a.cq, 7, IBV_WC_SUCCESS);
	assert_int_equal(ibv_memcpy_from_dm(&word, m.dm[0], 4096 + 16, sizeof(word)), 0);
	assert_int_equal(word, 40);
	assert_int_equal(ibv_memcpy_from_dm(&word, m.dm[1], 4096 + 8, sizeof(word)), 0);
	assert_int_equal(word, 42);
	close_memories(&m);
}

static void behind_the_end_of_a_region(void **state)
{
	struct memories m;

	open_memories(&m);
	post(&m, IBV_WR_RDMA_WRITE, 0, 4090, 8, 0);
	edge_expect(m.pair.a.cq, 7, IBV_WC_REM_ACCESS_ERR);
	edge_reconnect(&m.pair);
	post(&m, IBV_WR_RDMA_WRITE, 4090, 0, 8, 0);
	edge_expect(m.pair.a.cq, 7, IBV_WC_LOC_PROT_ERR);
	close_memories(&m);
}

static void wrong_allocations(void **state)
{
	struct edge_pair pair;
	struct ibv_context *context;
	struct ibv_alloc_dm_attr attr = {0};
	struct ibv_dm *half[2];
	size_t most;

	edge_open(&pair, &(struct edge_options){0});
	context = pair.a.context;
	most = limit(context);
	for (int i = 0; i < 4; i++) {
		attr = (struct ibv_alloc_dm_attr){.length = 64};
		if (i == 0)
			attr.length = 0;
		else if (i == 1)
			attr.length = most + 1;
		else if (i == 2)
			attr.comp_mask = 1;
		else
			attr.log_align_req = 40;
		errno = 0;
		assert_null(ibv_alloc_dm(context, &attr));
		assert_int_equal(errno, EINVAL);
	}
	for (int i = 0; i < 2; i++)
		half[i] = alloc(context, most / 2);
	attr = (struct ibv_alloc_dm_attr){.length = 4};
	errno = 0;
	assert_null(ibv_alloc_dm(context, &attr));
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(ibv_free_dm(half[0]), 0);
	half[0] = alloc(context, most / 2); /* what was freed can be had again */
	for (int i = 0; i < 2; i++)
		assert_int_equal(ibv_free_dm(half[i]), 0);
	edge_close(&pair);
}

static void wrong_copies(void **state)
{
	struct edge_pair pair;
	struct ibv_dm *dm;
	uint8_t bytes[256] = {0};

	edge_open(&pair, &(struct edge_options){0});
	dm = alloc(pair.a.context, 128);
	fill(dm, 0, 128, 1);
	assert_int_equal(ibv_memcpy_to_dm(dm, 1, bytes, 4), EINVAL);
	assert_int_equal(ibv_memcpy_to_dm(dm, 4, bytes, 3), EINVAL);
	assert_int_equal(ibv_memcpy_to_dm(dm, 128, bytes, 4), EFAULT);
	assert_int_equal(ibv_memcpy_to_dm(dm, 124, bytes, 8), EFAULT);
	assert_int_equal(ibv_memcpy_to_dm(dm, UINT64_MAX - 3, bytes, 8), EFAULT);
	assert_int_equal(ibv_memcpy_from_dm(bytes, dm, 2, 4), EINVAL);
	assert_int_equal(ibv_memcpy_from_dm(bytes, dm, 0, 132), EFAULT);
	assert_int_equal(bytes[0], 0);
	expect(dm, 0, 128, 1);
	assert_int_equal(ibv_memcpy_to_dm(dm, 128, bytes, 0), 0);
	assert_int_equal(ibv_free_dm(dm), 0);
	edge_close(&pair);
}

static void expect_no_region(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length,
			     unsigned int access)
{
	errno = 0;
	assert_null(ibv_reg_dm_mr(pd, dm, offset, length, access));
	assert_int_equal(errno, EINVAL);
}

static void wrong_regions(void **state)
{
	struct edge_pair pair;
	struct ibv_context *other;
	struct ibv_dm *dm;
	struct ibv_pd *pd;

	edge_open(&pair, &(struct edge_options){0});
	other = ibv_open_device(pair.a.context->device);
	assert_non_null(other);
	pd = ibv_alloc_pd(other);
	assert_non_null(pd);
	dm = alloc(pair.a.context, 128);
	expect_no_region(pair.a.pd, dm, 0, 128, EDGE_ALL_ACCESS); /* not zero based */
	expect_no_region(pair.a.pd, dm, 0, 129, DM_ACCESS);
	expect_no_region(pair.a.pd, dm, 129, 0, DM_ACCESS);
	expect_no_region(pair.a.pd, dm, 64, 128, DM_ACCESS);
	expect_no_region(pair.a.pd, dm, UINT64_MAX, 2, DM_ACCESS);
	expect_no_region(pair.a.pd, dm, 0, 128, DM_ACCESS | IBV_ACCESS_MW_BIND);
	expect_no_region(pair.a.pd, dm, 0, 128, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE);
	expect_no_region(pd, dm, 0, 128, DM_ACCESS); /* another context's */
	assert_int_equal(ibv_free_dm(dm), 0);	     /* none of them left anything */
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(other), 0);
	edge_close(&pair);
}

/* As an adapter's memory is: a child has the same, and its own allowance. */
static void a_forked_child_sees_it(void **state)
{
	struct edge_pair pair;
	struct ibv_alloc_dm_attr attr = {.length = 64};
	struct ibv_dm *dm;
	uint32_t word;
	int status;
	pid_t pid;

	edge_open(&pair, &(struct edge_options){0});
	dm = alloc(pair.a.context, 64);
	fill(dm, 0, 64, 5);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (ibv_memcpy_from_dm(&word, dm, 0, 4) != 0 || word != 0x08070605)
			_exit(1);
		word = 0x12345678;
		if (ibv_memcpy_to_dm(dm, 4, &word, 4) != 0)
			_exit(2);
		_exit(ibv_alloc_dm(pair.a.context, &attr) ? 0 : 3);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(ibv_memcpy_from_dm(&word, dm, 4, 4), 0);
	assert_int_equal(word, 0x12345678);
	assert_int_equal(ibv_free_dm(dm), 0);
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_ends_of_every_operation),
		cmocka_unit_test(behind_the_end_of_a_region),
		cmocka_unit_test(wrong_allocations),
		cmocka_unit_test(wrong_copies),
		cmocka_unit_test(wrong_regions),
		cmocka_unit_test(a_forked_child_sees_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
