/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls of releases newer than the installed header, looked up by name and node as a program's
 * loader does that was built with theirs.
 */
#define _GNU_SOURCE
#include "edge.h"

#include <dlfcn.h>
#include <sched.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096u

/* struct ibv_mr_init_attr */
struct region_attr {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah;
	void *buf;
};
enum { IOVA = 1, ADDR = 2, FD = 4, FD_OFFSET = 8, DMAH = 16, BUF = 32 };

static void *find(const char *name, const char *node)
{
	void *symbol = dlvsym(RTLD_DEFAULT, name, node);

	if (!symbol)
		fail_msg("%s@%s is missing", name, node);
	return symbol;
}

static struct ibv_mr *reg_mr_ex(struct ibv_pd *pd, struct region_attr attr)
{
	struct ibv_mr *(*call)(struct ibv_pd * pd, struct region_attr * attr);

	*(void **)&call = find("ibv_reg_mr_ex", "IBVERBS_1.15");
	errno = 0;
	return call(pd, &attr);
}

static void write_to(struct edge_pair *pair, struct ibv_mr *mr, uint64_t at)
{
	struct ibv_mr *kept = pair->b.mr;
	struct ibv_sge sge = {(uintptr_t)pair->a.buffer, 64, pair->a.mr->lkey};
	struct ibv_send_wr *bad, wr = {
					 .wr_id = 6,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_WRITE,
					 .send_flags = IBV_SEND_SIGNALED,
					 .wr.rdma = {at, mr->rkey},
				 };

	assert_int_equal(ibv_post_send(pair->a.qp, &wr, &bad), 0);
	edge_expect(pair->a.cq, 6, IBV_WC_SUCCESS);
	assert_ptr_equal(pair->b.mr, kept);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void every_kind_of_region(void **state)
{
	struct region_attr attr = {.length = PAGE, .access = EDGE_ALL_ACCESS};
	struct edge_pair pair;
	struct ibv_mr *mr;
	char bytes[64];

	edge_open(&pair, &(struct edge_options){0});
	memset(pair.a.buffer, 'v', 64);
	attr.addr = pair.b.buffer;
	attr.comp_mask = ADDR;
	mr = reg_mr_ex(pair.b.pd, attr);
	assert_non_null(mr);
	assert_ptr_equal(mr->addr, pair.b.buffer);
	write_to(&pair, mr, (uintptr_t)pair.b.buffer);
	assert_memory_equal(pair.b.buffer, pair.a.buffer, 64);

	attr.iova = 0x1000;
	attr.comp_mask = ADDR | IOVA;
	mr = reg_mr_ex(pair.b.pd, attr);
	assert_non_null(mr);
	write_to(&pair, mr, 0x1000 + 64);
	assert_memory_equal(pair.b.buffer + 64, pair.a.buffer, 64);

	attr.fd = memfd_create("newer", MFD_CLOEXEC);
	assert_int_equal(ftruncate(attr.fd, 3 * PAGE), 0);
	attr.fd_offset = PAGE;
	attr.comp_mask = FD | FD_OFFSET | IOVA;
	mr = reg_mr_ex(pair.b.pd, attr);
	assert_non_null(mr);
	write_to(&pair, mr, 0x1000 + 8);
	assert_int_equal(pread(attr.fd, bytes, 64, PAGE + 8), 64);
	assert_memory_equal(bytes, pair.a.buffer, 64);
	close(attr.fd);
	edge_close(&pair);
}

static void regions_of_no_kind(void **state)
{
	static const struct {
		uint64_t mask;
		int error;
	} wrong[] = {
		{0, EINVAL},
		{IOVA, EINVAL},
		{FD | FD_OFFSET, EINVAL}, /* a descriptor's needs an iova */
		{FD | IOVA, EINVAL},
		{FD | FD_OFFSET | IOVA | ADDR, EINVAL},
		{ADDR | FD_OFFSET, EINVAL},
		{ADDR | 1u << 20, EOPNOTSUPP},
		{ADDR | DMAH, EINVAL}, /* and none is given */
	};
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){0});
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct region_attr attr = {.length = PAGE,
					   .access = EDGE_ALL_ACCESS,
					   .comp_mask = wrong[i].mask,
					   .addr = pair.b.buffer};

		assert_null(reg_mr_ex(pair.b.pd, attr));
		assert_int_equal(errno, wrong[i].error);
	}
	edge_close(&pair);
}

/* struct ibv_dmah_init_attr */
struct dmah_attr {
	uint32_t comp_mask;
	uint32_t cpu;
	uint8_t ph;
	uint8_t memory;
};
enum { CPU = 1, PH = 2, MEMORY = 4 };

static void *alloc_dmah(struct ibv_context *context, struct dmah_attr attr)
{
	void *(*call)(struct ibv_context * context, struct dmah_attr * attr);

	*(void **)&call = find("ibv_alloc_dmah", "IBVERBS_1.15");
	errno = 0;
	return call(context, &attr);
}

static int dealloc_dmah(void *dmah)
{
	int (*call)(void *dmah);

	*(void **)&call = find("ibv_dealloc_dmah", "IBVERBS_1.15");
	return call(dmah);
}

/* One that the process may run on: as many as there are may be forbidden to it. */
static uint32_t allowed_cpu(void)
{
	cpu_set_t set;
	uint32_t cpu = 0;

	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	while (!CPU_ISSET(cpu, &set))
		cpu++;
	return cpu;
}

static void hints_that_no_bus_takes(void **state)
{
	const uint32_t cpu = allowed_cpu();
	const struct {
		struct dmah_attr attr;
		int error; /* as the kernel and its one driver that has handles say */
	} cases[] = {
		{{PH, 0, 0, 0}, 0},
		{{PH, 0xffff, 3, 0xfe}, 0}, /* what is not in the mask is not looked at */
		{{PH | CPU | MEMORY, cpu, 2, 0}, 0},
		{{PH | CPU | MEMORY, cpu, 2, 1}, 0},
		{{PH, 0, 4, 0}, EINVAL}, /* two bits */
		{{0, 0, 0, 0}, EINVAL},	 /* a processing hint there must be */
		{{CPU | MEMORY, cpu, 0, 0}, EINVAL},
		{{PH | CPU, cpu, 0, 0}, EINVAL}, /* both halves of a steering tag, or none */
		{{PH | MEMORY, 0, 0, 1}, EINVAL},
		{{PH | CPU | MEMORY, cpu, 0, 2}, EOPNOTSUPP},
		{{PH | CPU | MEMORY, 0xffff, 0, 0}, EPERM},
		{{PH | CPU | MEMORY, 0xffffffff, 0, 0}, EPERM},
		{{PH | 8, 0, 0, 0}, EOPNOTSUPP},
	};
	struct edge_pair pair;
	void *dmah;

	edge_open(&pair, &(struct edge_options){0});
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		dmah = alloc_dmah(pair.a.context, cases[i].attr);
		assert_int_equal(errno, cases[i].error);
		assert_int_equal(dmah == NULL, cases[i].error != 0);
		if (!dmah)
			continue;
		assert_ptr_equal(*(struct ibv_context **)dmah, pair.a.context);
		assert_int_equal(dealloc_dmah(dmah), 0);
	}
	edge_close(&pair);
}

static void regions_with_hints(void **state)
{
	struct region_attr attr = {.length = PAGE, .access = EDGE_ALL_ACCESS};
	struct edge_pair pair;
	struct ibv_context *strange;
	struct ibv_mr *mr, *second, *imported;
	void *dmah;

	edge_open(&pair, &(struct edge_options){0});
	dmah = alloc_dmah(pair.b.context, (struct dmah_attr){.comp_mask = PH, .ph = 1});
	assert_non_null(dmah);
	memset(pair.a.buffer, 'h', 64);
	attr.addr = pair.b.buffer;
	attr.comp_mask = ADDR | DMAH;
	attr.dmah = dmah;
	mr = reg_mr_ex(pair.b.pd, attr);
	assert_non_null(mr);
	assert_int_equal(dealloc_dmah(dmah), EBUSY);
	imported = ibv_import_mr(pair.b.pd, mr->handle); /* two shells, one region */
	assert_non_null(imported);
	ibv_unimport_mr(imported);
	assert_int_equal(dealloc_dmah(dmah), EBUSY);

	attr.fd = memfd_create("newer", MFD_CLOEXEC);
	assert_int_equal(ftruncate(attr.fd, PAGE), 0);
	attr.comp_mask = FD | FD_OFFSET | IOVA | DMAH;
	second = reg_mr_ex(pair.b.pd, attr);
	assert_non_null(second);
	write_to(&pair, mr, (uintptr_t)pair.b.buffer);
	assert_memory_equal(pair.b.buffer, pair.a.buffer, 64);
	assert_int_equal(dealloc_dmah(dmah), EBUSY);
	write_to(&pair, second, 0);
	close(attr.fd);

	/* A region that was refused does not count. */
	attr.comp_mask = ADDR | DMAH;
	attr.access = IBV_ACCESS_REMOTE_WRITE;
	assert_null(reg_mr_ex(pair.b.pd, attr));
	assert_int_equal(errno, EINVAL);
	attr.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND;
	assert_null(reg_mr_ex(pair.b.pd, attr));
	assert_int_equal(errno, EOPNOTSUPP);
	strange = ibv_open_device(pair.b.context->device);
	attr.dmah = alloc_dmah(strange, (struct dmah_attr){.comp_mask = PH});
	attr.access = EDGE_ALL_ACCESS;
	assert_null(reg_mr_ex(pair.b.pd, attr)); /* a handle means nothing beside its context */
	assert_int_equal(errno, ENOENT);
	assert_int_equal(dealloc_dmah(attr.dmah), 0);
	assert_int_equal(ibv_close_device(strange), 0);
	assert_int_equal(dealloc_dmah(dmah), 0);
	edge_close(&pair);
}

static void buffers(void **state)
{
	void *(*alloc)(struct ibv_pd * pd, size_t size, void **buf);
	void (*release)(void *buf);
	struct ibv_mr *(*reg)(struct ibv_pd * pd, void *buf, void *addr, size_t length, int access);
	int (*export)(void *buf);
	struct edge_pair pair;
	struct ibv_mr *mr;
	uint8_t *memory;
	void *buf;

	*(void **)&alloc = find("ibv_alloc_buf", "IBVERBS_1.17");
	*(void **)&release = find("ibv_free_buf", "IBVERBS_1.17");
	*(void **)&reg = find("ibv_reg_buf_mr", "IBVERBS_1.17");
	*(void **)&export = find("ibv_export_buf_dmabuf_fd", "IBVERBS_1.18");
	edge_open(&pair, &(struct edge_options){0});
	errno = 0;
	assert_null(alloc(pair.b.pd, 0, &buf));
	assert_int_equal(errno, EINVAL);
	memory = alloc(pair.b.pd, 10000, &buf);
	assert_non_null(memory);
	memset(pair.a.buffer, 'b', 64);
	mr = reg(pair.b.pd, buf, memory + 100, 9900, EDGE_ALL_ACCESS);
	assert_non_null(mr);
	write_to(&pair, mr, (uintptr_t)memory + 100);
	assert_memory_equal(memory + 100, pair.a.buffer, 64);
	errno = 0;
	assert_null(reg(pair.b.pd, buf, memory + 100, 9901, EDGE_ALL_ACCESS));
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_null(reg(pair.b.pd, buf, memory + 20000, 1, EDGE_ALL_ACCESS));
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_null(reg(pair.a.pd, buf, memory, 100, EDGE_ALL_ACCESS));
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_int_equal(export(buf), -1);
	assert_int_equal(errno, ENODATA);
	release(buf);
	edge_close(&pair);
}

static void device_memory_as_a_descriptor(void **state)
{
	int (*export)(struct ibv_dm * dm);
	struct ibv_alloc_dm_attr attr = {.length = 2 * PAGE};
	struct edge_pair pair;
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	uint32_t word = 0;
	int fd;

	*(void **)&export = find("ibv_dm_export_dmabuf_fd", "IBVERBS_1.16");
	edge_open(&pair, &(struct edge_options){0});
	dm = ibv_alloc_dm(pair.b.context, &attr);
	fd = export(dm);
	assert_true(fd >= 0);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	mr = ibv_reg_dmabuf_mr(pair.b.pd, 0, 2 * PAGE, 0, fd, EDGE_ALL_ACCESS);
	assert_non_null(mr);
	memset(pair.a.buffer, 0x11, 64);
	write_to(&pair, mr, PAGE);
	assert_int_equal(ibv_memcpy_from_dm(&word, dm, PAGE, 4), 0);
	assert_int_equal(word, 0x11111111);
	close(fd);
	assert_int_equal(ibv_free_dm(dm), 0);
	attr.length = 64;
	dm = ibv_alloc_dm(pair.b.context, &attr);
	errno = 0;
	assert_int_equal(export(dm), -1);
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(ibv_free_dm(dm), 0);
	edge_close(&pair);
}

static void speed_of_the_port(void **state)
{
	int (*query)(struct ibv_context * context, uint32_t port, uint64_t * speed);
	struct edge_pair pair;
	uint64_t speed = 7;

	*(void **)&query = find("ibv_query_port_speed", "IBVERBS_1.16");
	edge_open(&pair, &(struct edge_options){0});
	assert_int_equal(query(pair.a.context, 2, &speed), EINVAL);
	assert_int_equal(query(pair.a.context, 0, &speed), EINVAL);
	assert_int_equal(speed, 7);
	assert_int_equal(query(pair.a.context, 1, &speed), 0);
	assert_int_equal(speed, 1000); /* 4X of 25 Gbit/s in 100 Mbit/s, as ibv_query_port has it */
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_of_region),
		cmocka_unit_test(regions_of_no_kind),
		cmocka_unit_test(hints_that_no_bus_takes),
		cmocka_unit_test(regions_with_hints),
		cmocka_unit_test(buffers),
		cmocka_unit_test(device_memory_as_a_descriptor),
		cmocka_unit_test(speed_of_the_port),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
