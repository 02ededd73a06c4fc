/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions over a descriptor (ibv_reg_dmabuf_mr(3)): a memfd stands for any that can be mapped.
 */
#define _GNU_SOURCE
#include "edge.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096u
#define PAGES 8u

static int make(void)
{
	int fd = memfd_create("dmabuf", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, PAGES * PAGE), 0);
	return fd;
}

static uint8_t *look(int fd)
{
	uint8_t *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	assert_ptr_not_equal(memory, MAP_FAILED);
	return memory;
}

static void post(struct edge_pair *pair, enum ibv_wr_opcode opcode, uint64_t local, uint32_t lkey,
		 uint64_t remote, uint32_t rkey, uint32_t length)
{
	struct ibv_sge sge = {local, length, lkey};
	struct ibv_send_wr *bad, wr = {
					 .wr_id = 5,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = opcode,
					 .send_flags = IBV_SEND_SIGNALED,
					 .wr.rdma = {remote, rkey},
				 };

	assert_int_equal(ibv_post_send(pair->a.qp, &wr, &bad), 0);
}

/* From an offset in the middle of a page, at an iova of its own; the descriptor is closed long
 * before. */
static void as_source_and_target(void **state)
{
	const uint64_t offset = 2 * PAGE + 24, iova = 0x7700000000ull + 24;
	const uint32_t length = 3 * PAGE + 100;
	struct edge_pair pair;
	struct ibv_mr *mr[2];
	uint8_t *seen[2];

	edge_open(&pair, &(struct edge_options){0});
	for (int i = 0; i < 2; i++) {
		struct ibv_pd *pd = i ? pair.b.pd : pair.a.pd;
		int fd = make();

		seen[i] = look(fd);
		mr[i] = ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, EDGE_ALL_ACCESS);
		assert_non_null(mr[i]);
		assert_int_equal(mr[i]->length, length);
		assert_ptr_equal(mr[i]->pd, pd);
		close(fd);
	}
	for (uint32_t i = 0; i < length; i++)
		seen[0][offset + i] = (uint8_t)(i * 3 + 1);
	post(&pair, IBV_WR_RDMA_WRITE, iova, mr[0]->lkey, iova, mr[1]->rkey, length);
	edge_expect(pair.a.cq, 5, IBV_WC_SUCCESS);
	assert_memory_equal(seen[0] + offset, seen[1] + offset, length);
	assert_int_equal(seen[1][offset - 1], 0);
	assert_int_equal(seen[1][offset + length], 0);

	memset(seen[1], 0x44, PAGES * PAGE);
	post(&pair, IBV_WR_RDMA_READ, iova + 8, mr[0]->lkey, iova, mr[1]->rkey, 5000);
	edge_expect(pair.a.cq, 5, IBV_WC_SUCCESS);
	for (uint32_t i = 0; i < 5000; i++)
		assert_int_equal(seen[0][offset + 8 + i], 0x44);

	post(&pair, IBV_WR_RDMA_WRITE, iova, mr[0]->lkey, iova + length - 4, mr[1]->rkey, 8);
	edge_expect(pair.a.cq, 5, IBV_WC_REM_ACCESS_ERR);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_dereg_mr(mr[i]), 0);
		munmap(seen[i], PAGES * PAGE);
	}
	edge_close(&pair);
}

/* What was cut off is an error of whoever reaches for it, and nobody's process ends; what is left,
 * and what comes back, is used. A sealed file cannot be cut at all. */
static void a_file_that_is_cut(void **state)
{
	struct edge_pair pair;
	struct ibv_mr *mr;
	uint64_t local;
	int fd = make();

	edge_open(&pair, &(struct edge_options){0});
	mr = ibv_reg_dmabuf_mr(pair.b.pd, 0, PAGES * PAGE, 0, fd, EDGE_ALL_ACCESS);
	assert_non_null(mr);
	local = (uintptr_t)pair.a.buffer;
	post(&pair, IBV_WR_RDMA_WRITE, local, pair.a.mr->lkey, 0, mr->rkey, PAGES * PAGE);
	edge_expect(pair.a.cq, 5, IBV_WC_SUCCESS);
	assert_int_equal(ftruncate(fd, 2 * PAGE), 0);
	post(&pair, IBV_WR_RDMA_WRITE, local, pair.a.mr->lkey, 0, mr->rkey, PAGES * PAGE);
	edge_expect(pair.a.cq, 5, IBV_WC_REM_ACCESS_ERR);
	edge_reconnect(&pair);
	post(&pair, IBV_WR_RDMA_READ, local, pair.a.mr->lkey, PAGE, mr->rkey, 2 * PAGE);
	edge_expect(pair.a.cq, 5, IBV_WC_REM_ACCESS_ERR);
	edge_reconnect(&pair);
	post(&pair, IBV_WR_RDMA_WRITE, local, pair.a.mr->lkey, 0, mr->rkey, 2 * PAGE);
	edge_expect(pair.a.cq, 5, IBV_WC_SUCCESS);
	assert_int_equal(ftruncate(fd, PAGES * PAGE), 0);
	post(&pair, IBV_WR_RDMA_WRITE, local, pair.a.mr->lkey, 0, mr->rkey, PAGES * PAGE);
	edge_expect(pair.a.cq, 5, IBV_WC_SUCCESS);
	assert_int_equal(ibv_dereg_mr(mr), 0);

	/* as the source of its own requests */
	mr = ibv_reg_dmabuf_mr(pair.a.pd, 0, PAGES * PAGE, 0, fd, EDGE_ALL_ACCESS);
	assert_non_null(mr);
	assert_int_equal(ftruncate(fd, 0), 0);
	for (int read = 0; read < 2; read++) {
		post(&pair, read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 0, mr->lkey,
		     (uintptr_t)pair.b.buffer, pair.b.mr->rkey, PAGE);
		edge_expect(pair.a.cq, 5, IBV_WC_LOC_PROT_ERR);
		edge_reconnect(&pair);
	}
	assert_int_equal(ibv_dereg_mr(mr), 0);
	close(fd);
	edge_close(&pair);
}

static void a_file_that_cannot_be_cut(void **state)
{
	struct edge_pair pair;
	struct ibv_mr *mr;
	int fd = memfd_create("dmabuf", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint8_t *seen;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, PAGES * PAGE), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	seen = look(fd);
	edge_open(&pair, &(struct edge_options){0});
	mr = ibv_reg_dmabuf_mr(pair.b.pd, 0, PAGES * PAGE, 0, fd, EDGE_ALL_ACCESS);
	assert_non_null(mr);
	memset(pair.a.buffer, 0x47, PAGES * PAGE);
	post(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)pair.a.buffer, pair.a.mr->lkey, 0, mr->rkey,
	     PAGES * PAGE);
	edge_expect(pair.a.cq, 5, IBV_WC_SUCCESS);
	assert_memory_equal(seen, pair.a.buffer, PAGES * PAGE);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(seen, PAGES * PAGE);
	close(fd);
	edge_close(&pair);
}

static void read_only(void **state)
{
	struct edge_pair pair;
	struct ibv_mr *mr;
	char path[64];
	int fd = make(), reader;

	edge_open(&pair, &(struct edge_options){0});
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	reader = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(reader >= 0);
	errno = 0;
	assert_null(ibv_reg_dmabuf_mr(pair.b.pd, 0, PAGE, 0, reader, IBV_ACCESS_LOCAL_WRITE));
	assert_int_equal(errno, EACCES);
	mr = ibv_reg_dmabuf_mr(pair.b.pd, 0, PAGE, 0, reader, IBV_ACCESS_REMOTE_READ);
	assert_non_null(mr);
	assert_int_equal(pwrite(fd, "verbena", 7, 64), 7);
	post(&pair, IBV_WR_RDMA_READ, (uintptr_t)pair.a.buffer, pair.a.mr->lkey, 64, mr->rkey, 7);
	edge_expect(pair.a.cq, 5, IBV_WC_SUCCESS);
	assert_memory_equal(pair.a.buffer, "verbena", 7);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	close(reader);
	close(fd);
	edge_close(&pair);
}

static void expect(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
		   int access, int error)
{
	errno = 0;
	assert_null(ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access));
	assert_int_equal(errno, error);
}

static unsigned int mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned int n = 0;
	char line[4300];

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "memfd:dmabuf") != NULL;
	fclose(maps);
	return n;
}

static void refused(void **state)
{
	const int all = EDGE_ALL_ACCESS;
	struct edge_pair pair;
	struct ibv_pd *pd;
	int fd = make(), pipes[2], event = eventfd(0, 0);

	edge_open(&pair, &(struct edge_options){0});
	pd = pair.a.pd;
	assert_int_equal(pipe(pipes), 0);
	expect(pd, 0, PAGE, 0, -1, all, EBADF);
	expect(pd, 0, PAGE, 0, 1 << 20, all, EBADF);
	expect(pd, 0, PAGE, 0, pipes[0], all, EINVAL);
	expect(pd, 0, PAGE, 0, event, all, EINVAL);
	expect(pd, 0, 0, 0, fd, all, EINVAL);
	expect(pd, 0, PAGES * PAGE + 1, 0, fd, all, EINVAL);
	expect(pd, PAGE, PAGES * PAGE, 0, fd, all, EINVAL);
	expect(pd, UINT64_MAX - 8, PAGE, UINT64_MAX - 8, fd, all, EINVAL);
	expect(pd, 8, PAGE, 16, fd, all, EINVAL); /* elsewhere in its page */
	expect(pd, 0, PAGE, 0, fd, IBV_ACCESS_REMOTE_WRITE, EINVAL);
	expect(pd, 0, PAGE, 0, fd, all | IBV_ACCESS_ON_DEMAND, EINVAL);
	expect(pd, 0, PAGE, 0, fd, all | IBV_ACCESS_ZERO_BASED, EINVAL);
	expect(pd, 0, PAGE, 0, fd, all | IBV_ACCESS_MW_BIND, EINVAL);
	assert_int_equal(mappings(), 0); /* none of them left anything */
	close(fd);
	close(event);
	close(pipes[0]);
	close(pipes[1]);
	edge_close(&pair);
}

static void nothing_is_left(void **state)
{
	struct edge_pair pair;
	struct ibv_context *context;
	struct ibv_mr *mr;
	int fd = make();

	edge_open(&pair, &(struct edge_options){0});
	mr = ibv_reg_dmabuf_mr(pair.a.pd, 0, PAGE, 0, fd, EDGE_ALL_ACCESS);
	assert_non_null(mr);
	assert_int_equal(mappings(), 1);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(mappings(), 0);
	context = ibv_open_device(pair.a.context->device);
	mr = ibv_reg_dmabuf_mr(ibv_alloc_pd(context), 0, PAGE, 0, fd, EDGE_ALL_ACCESS);
	assert_non_null(mr);
	assert_int_equal(ibv_close_device(context), 0);
	assert_int_equal(mappings(), 0);
	close(fd);
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_source_and_target),
		cmocka_unit_test(a_file_that_is_cut),
		cmocka_unit_test(a_file_that_cannot_be_cut),
		cmocka_unit_test(read_only),
		cmocka_unit_test(refused),
		cmocka_unit_test(nothing_is_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
