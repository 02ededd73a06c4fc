/* SPDX-License-Identifier: BSD-2-Clause */
/* Registration needs no locked memory, and refuses what it must at the call. */
#include "edge.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGE (8u << 20)
#define NOBODY 65534

static void register_large(void)
{
	struct edge_pair pair;
	void *memory =
		mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;

	edge_open(&pair, &(struct edge_options){0});
	mr = ibv_reg_mr(pair.a.pd, memory, LARGE, EDGE_ALL_ACCESS);
	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	edge_close(&pair);
	munmap(memory, LARGE);
}

static void as_nobody_without_locked_memory(void **state)
{
	const struct rlimit limit = {64 << 10, 64 << 10};
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (setrlimit(RLIMIT_MEMLOCK, &limit) < 0)
			_exit(1);
		if (geteuid() == 0 && (setgid(NOBODY) < 0 || setuid(NOBODY) < 0))
			_exit(2);
		register_large(); /* a failed assertion ends the child by longjmp or abort, never
				     with 0 */
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void odd_sizes_and_alignments(void **state)
{
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){0});
	for (uint32_t i = 0; i < 64; i++) {
		uint32_t offset = i * 37 + 1, length = i * i * 5 + i % 3;
		struct ibv_mr *mr =
			ibv_reg_mr(pair.b.pd, pair.b.buffer + offset, length, EDGE_ALL_ACCESS);

		assert_non_null(mr);
		assert_ptr_equal(mr->addr, pair.b.buffer + offset);
		assert_int_equal(mr->length, length);
		assert_int_equal(ibv_dereg_mr(mr), 0);
	}
	edge_close(&pair);
}

static void expect_refused(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	errno = 0;
	assert_null(ibv_reg_mr(pd, addr, length, access));
	assert_true(errno == EFAULT || errno == EACCES);
}

static void unmapped_and_read_only(void **state)
{
	struct edge_pair pair;
	uint8_t *memory =
		mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;

	edge_open(&pair, &(struct edge_options){0});
	assert_int_equal(munmap(memory + 4096, 4096), 0);
	expect_refused(pair.a.pd, memory + 4096, 4096, EDGE_ALL_ACCESS);
	expect_refused(pair.a.pd, memory, 3 * 4096, EDGE_ALL_ACCESS); /* a hole in the middle */
	expect_refused(pair.a.pd, memory + 4095, 2, 0);
	expect_refused(pair.a.pd, (void *)8, 8, 0);

	assert_int_equal(mprotect(memory, 4096, PROT_READ), 0);
	expect_refused(pair.a.pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE);
	mr = ibv_reg_mr(pair.a.pd, memory, 4096, IBV_ACCESS_REMOTE_READ);
	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);

	/* Remote writing needs local writing (ibv_reg_mr(3)). */
	errno = 0;
	assert_null(ibv_reg_mr(pair.a.pd, pair.a.buffer, 64, IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(errno, EINVAL);
	edge_close(&pair);
	munmap(memory, 4096);
	munmap(memory + 2 * 4096, 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_nobody_without_locked_memory),
		cmocka_unit_test(odd_sizes_and_alignments),
		cmocka_unit_test(unmapped_and_read_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
