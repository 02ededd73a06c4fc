/* SPDX-License-Identifier: BSD-2-Clause */
/* VERBENA_SHARE=1: what registering, forking and deregistering do to the program's memory. */
#define _GNU_SOURCE
#include "edge.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096u

/* Whether the system allows what sharing takes: write protection of shared memory. */
static bool system_can_share(void)
{
	struct uffdio_api api = {.api = UFFD_API,
				 .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | 1 << 12};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1);
	bool can = fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0;

	if (fd >= 0)
		close(fd);
	return can;
}

static bool is_shared(const void *at)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from, to;
	char line[512];
	bool shared = false;

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from <= (uintptr_t)at &&
		    (uintptr_t)at < to)
			shared = strstr(line, "memfd:verbena-share") != NULL;
	fclose(maps);
	return shared;
}

static void expect_shared(const void *at)
{
	assert_int_equal(is_shared(at), system_can_share());
}

static uint8_t *new_memory(size_t bytes)
{
	uint8_t *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(memory != MAP_FAILED);
	return memory;
}

static struct ibv_mr *reg(struct edge_pair *pair, void *at, size_t bytes)
{
	struct ibv_mr *mr = ibv_reg_mr(pair->b.pd, at, bytes, EDGE_ALL_ACCESS);

	assert_non_null(mr);
	return mr;
}

/* a writes length bytes of its buffer to `at` in mr, and reads them back behind. */
static void round_trip(struct edge_pair *pair, struct ibv_mr *mr, uint8_t *at, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)pair->a.buffer, length, pair->a.mr->lkey};
	struct ibv_send_wr *bad, wr = {
					 .wr_id = 1,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_WRITE,
					 .send_flags = IBV_SEND_SIGNALED,
					 .wr.rdma = {(uintptr_t)at, mr->rkey},
				 };

	assert_true(length <= EDGE_BUFFER / 2);
	edge_fill(pair->a.buffer, length, length);
	assert_int_equal(ibv_post_send(pair->a.qp, &wr, &bad), 0);
	edge_expect(pair->a.cq, 1, IBV_WC_SUCCESS);
	assert_true(edge_is_filled(at, length, length));
	sge.addr += EDGE_BUFFER / 2;
	wr.opcode = IBV_WR_RDMA_READ;
	assert_int_equal(ibv_post_send(pair->a.qp, &wr, &bad), 0);
	edge_expect(pair->a.cq, 1, IBV_WC_SUCCESS);
	assert_true(edge_is_filled(pair->a.buffer + EDGE_BUFFER / 2, length, length));
}

static void contents_stay(void **state)
{
	const size_t bytes = 64 * PAGE;
	uint8_t *memory = new_memory(bytes);
	struct edge_pair pair;
	struct ibv_mr *mr;

	edge_open(&pair, &(struct edge_options){0});
	edge_fill(memory, bytes / 2, 7);
	mr = reg(&pair, memory + 100, bytes - 300);
	assert_false(is_shared(memory));
	expect_shared(memory + PAGE);
	expect_shared(memory + bytes - 2 * PAGE);
	assert_false(is_shared(memory + bytes - PAGE));
	assert_true(edge_is_filled(memory, bytes / 2, 7));
	round_trip(&pair, mr, memory + bytes / 2 - 77, 3 * PAGE + 5);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_false(is_shared(memory + PAGE));
	assert_true(edge_is_filled(memory, bytes / 2 - 77, 7));
	assert_true(edge_is_filled(memory + bytes / 2 - 77, 3 * PAGE + 5, 3 * PAGE + 5));
	for (size_t i = bytes / 2 + 4 * PAGE; i < bytes; i++)
		assert_int_equal(memory[i], 0);
	edge_close(&pair);
	munmap(memory, bytes);
}

/* --- what is not shared ------------------------------------------------------------------ */

static void expect_private(struct edge_pair *pair, uint8_t *memory, size_t bytes)
{
	struct ibv_mr *mr = reg(pair, memory, bytes);

	assert_false(is_shared(memory));
	assert_false(is_shared(memory + bytes / 2));
	round_trip(pair, mr, memory + 1, bytes - 1 < 9000 ? (uint32_t)bytes - 1 : 9000);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void special_memory_is_left_alone(void **state)
{
	const size_t bytes = 8 * PAGE;
	uint8_t on_stack[8 * PAGE];
	struct edge_pair pair;
	uint8_t *memory;
	int fd;

	edge_open(&pair, &(struct edge_options){0});
	expect_private(&pair, on_stack, sizeof(on_stack));

	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	expect_private(&pair, memory, bytes);
	munmap(memory, bytes);

	fd = memfd_create("file", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	expect_private(&pair, memory, bytes);
	munmap(memory, bytes);
	close(fd);

	memory = new_memory(bytes);
	assert_int_equal(madvise(memory + PAGE, PAGE, MADV_DONTFORK), 0);
	expect_private(&pair, memory, bytes);
	munmap(memory, bytes);

	memory = new_memory(bytes);
	assert_int_equal(mlock(memory, PAGE), 0);
	expect_private(&pair, memory, bytes);
	munmap(memory, bytes);

	/* more than 4 MiB of it are in use */
	memory = new_memory(EDGE_BUFFER * 5);
	memset(memory, 1, EDGE_BUFFER * 4 + 1);
	expect_private(&pair, memory, EDGE_BUFFER * 5);
	munmap(memory, EDGE_BUFFER * 5);

	memory = mmap(NULL, 2u << 20, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	if (memory != MAP_FAILED) { /* where the system has set some aside */
		expect_private(&pair, memory, 2u << 20);
		munmap(memory, 2u << 20);
	}
	edge_close(&pair);
}

/* A thread's stack is ordinary memory, above a page that nobody may touch. */
static void *lend_stack(void *argument)
{
	_Atomic(uint8_t *) *lent = argument;
	uint8_t on_stack[16 * PAGE];

	on_stack[0] = 0;
	atomic_store(lent, on_stack);
	while (atomic_load(lent))
		sched_yield();
	return NULL;
}

static void another_threads_stack(void **state)
{
	_Atomic(uint8_t *) lent = NULL;
	struct edge_pair pair;
	pthread_t thread;

	edge_open(&pair, &(struct edge_options){0});
	assert_int_equal(pthread_create(&thread, NULL, lend_stack, &lent), 0);
	while (!atomic_load(&lent))
		sched_yield();
	expect_private(&pair, atomic_load(&lent), 16 * PAGE);
	atomic_store(&lent, NULL);
	pthread_join(thread, NULL);
	edge_close(&pair);
}

/* --- threads that write meanwhile -------------------------------------------------------- */

#define COUNTERS 32u
#define ROUNDS 60

struct counting {
	uint8_t *memory; /* COUNTERS pages */
	atomic_bool stop;
	uint64_t counted[COUNTERS];
};

/* One counter on each page, by plain loads and stores: a write that is lost is missed at the end.
 */
static void *count(void *argument)
{
	struct counting *c = argument;

	while (!atomic_load_explicit(&c->stop, memory_order_relaxed))
		for (unsigned int i = 0; i < COUNTERS; i++) {
			volatile uint64_t *at = (void *)(c->memory + i * PAGE + 8 * i);

			*at += 1;
			c->counted[i]++;
		}
	return NULL;
}

static void no_write_is_lost(void **state)
{
	struct counting c = {.memory = new_memory(COUNTERS * PAGE)};
	struct edge_pair pair;
	pthread_t thread;

	edge_open(&pair, &(struct edge_options){0});
	assert_int_equal(pthread_create(&thread, NULL, count, &c), 0);
	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_mr *mr = reg(&pair, c.memory + 300, COUNTERS * PAGE - 600);

		expect_shared(c.memory + PAGE);
		assert_int_equal(ibv_dereg_mr(mr), 0);
		assert_false(is_shared(c.memory + PAGE));
	}
	atomic_store(&c.stop, true);
	pthread_join(thread, NULL);
	for (unsigned int i = 0; i < COUNTERS; i++)
		assert_int_equal(*(uint64_t *)(void *)(c.memory + i * PAGE + 8 * i), c.counted[i]);
	edge_close(&pair);
	munmap(c.memory, COUNTERS * PAGE);
}

/* --- fork -------------------------------------------------------------------------------- */

static void wait_for_byte(int fd)
{
	char byte;

	if (read(fd, &byte, 1) != 1)
		_exit(9);
}

static void fork_while_shared(void **state)
{
	const size_t bytes = 16 * PAGE;
	uint8_t *memory = new_memory(bytes);
	struct edge_pair pair;
	struct ibv_mr *mr;
	int to_child[2], to_parent[2], status;
	char byte = 0;
	pid_t pid;

	edge_open(&pair, &(struct edge_options){0});
	mr = reg(&pair, memory, bytes);
	expect_shared(memory);
	assert_int_equal(mprotect(memory + 8 * PAGE, PAGE, PROT_READ), 0);
	edge_fill(memory, 8 * PAGE, 1);
	assert_int_equal(pipe(to_child) | pipe(to_parent), 0);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		wait_for_byte(to_child[0]); /* the parent has written */
		if (is_shared(memory) || is_shared(memory + 8 * PAGE))
			_exit(1);
		if (!edge_is_filled(memory, 8 * PAGE, 1))
			_exit(2);
		edge_fill(memory, 8 * PAGE, 3);
		if (write(to_parent[1], &byte, 1) != 1)
			_exit(3);
		wait_for_byte(to_child[0]);
		_exit(edge_is_filled(memory, 8 * PAGE, 3) ? 0 : 4);
	}
	edge_fill(memory, 8 * PAGE, 2);
	assert_int_equal(write(to_child[1], &byte, 1), 1);
	assert_int_equal(read(to_parent[0], &byte, 1), 1); /* the child has written */
	assert_true(edge_is_filled(memory, 8 * PAGE, 2));
	expect_shared(memory);
	round_trip(&pair, mr, memory + 3, 2 * PAGE);
	assert_int_equal(write(to_child[1], &byte, 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_true(edge_is_filled(memory + 3, 2 * PAGE, 2 * PAGE));
	edge_close(&pair);
	munmap(memory, bytes);
	for (int i = 0; i < 2; i++) {
		close(to_child[i]);
		close(to_parent[i]);
	}
}

/* A child may register and share for itself. */
static void child_shares_too(void **state)
{
	uint8_t *memory = new_memory(4 * PAGE);
	struct edge_pair pair;
	struct ibv_mr *mr;
	int status;
	pid_t pid;

	edge_open(&pair, &(struct edge_options){0});
	mr = reg(&pair, memory, 4 * PAGE);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct edge_pair own;

		edge_open(&own, &(struct edge_options){0});
		mr = reg(&own, memory, 4 * PAGE);
		expect_shared(memory);
		round_trip(&own, mr, memory, 4 * PAGE);
		assert_int_equal(ibv_dereg_mr(mr), 0);
		edge_close(&own);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(memory[5], 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	edge_close(&pair);
	munmap(memory, 4 * PAGE);
}

/* --- the program does what it likes ------------------------------------------------------ */

static void grown_and_moved(void **state)
{
	uint8_t *memory = new_memory(4 * PAGE), *bar, *moved, *other = new_memory(64 * PAGE);
	struct edge_pair pair;
	struct ibv_mr *mr, *second;

	edge_open(&pair, &(struct edge_options){0});
	edge_fill(memory, 4 * PAGE, 5);
	mr = reg(&pair, memory, 4 * PAGE);
	second = reg(&pair, other, 64 * PAGE);
	edge_fill(other, 64 * PAGE, 6);
	/* somewhere else, with room */
	bar = new_memory(64 * PAGE);
	moved = mremap(memory, 4 * PAGE, 64 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, bar);
	assert_ptr_equal(moved, bar);
	assert_true(edge_is_filled(moved, 4 * PAGE, 5));
	for (size_t i = 4 * PAGE; i < 64 * PAGE; i++)
		assert_int_equal(moved[i], 0);
	edge_fill(moved, 64 * PAGE, 8);
	assert_true(edge_is_filled(other, 64 * PAGE, 6));
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_false(is_shared(moved));
	assert_false(is_shared(moved + 63 * PAGE));
	assert_true(edge_is_filled(moved, 64 * PAGE, 8));
	assert_true(edge_is_filled(other, 64 * PAGE, 6));
	assert_int_equal(ibv_dereg_mr(second), 0);
	edge_close(&pair);
	munmap(moved, 64 * PAGE);
	munmap(other, 64 * PAGE);
}

static void unmapped_and_used_anew(void **state)
{
	uint8_t *memory = new_memory(8 * PAGE), *again;
	struct edge_pair pair;
	struct ibv_mr *mr;

	edge_open(&pair, &(struct edge_options){0});
	edge_fill(memory, 8 * PAGE, 5);
	mr = reg(&pair, memory, 8 * PAGE);
	assert_int_equal(munmap(memory + 2 * PAGE, 4 * PAGE), 0);
	again = mmap(memory + 3 * PAGE, PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	assert_ptr_equal(again, memory + 3 * PAGE);
	edge_fill(again, PAGE, 9);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_true(edge_is_filled(again, PAGE, 9));
	assert_true(edge_is_filled(memory, 2 * PAGE, 5));
	assert_false(is_shared(memory));
	assert_false(is_shared(memory + 6 * PAGE));
	edge_close(&pair);
	munmap(memory, 2 * PAGE);
	munmap(again, PAGE);
	munmap(memory + 6 * PAGE, 2 * PAGE);
}

/* What daemons do: the arena's descriptor is gone with the others. */
static void descriptor_closed(void **state)
{
	const size_t bytes = 8 * PAGE;
	uint8_t *memory = new_memory(bytes), *later = new_memory(bytes);
	struct edge_pair pair;
	struct ibv_mr *mr, *after;
	char path[64], name[64];
	ssize_t n;

	edge_open(&pair, &(struct edge_options){0});
	edge_fill(memory, bytes, 4);
	mr = reg(&pair, memory, bytes);
	for (int fd = 3; fd < 256; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, name, sizeof(name) - 1);
		name[n < 0 ? 0 : n] = '\0';
		if (strstr(name, "memfd:verbena-share"))
			close(fd);
	}
	after = reg(&pair, later, bytes);
	assert_false(is_shared(later));
	round_trip(&pair, after, later, bytes);
	assert_int_equal(ibv_dereg_mr(after), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_true(edge_is_filled(memory, bytes, 4));
	assert_false(is_shared(memory));
	edge_close(&pair);
	munmap(memory, bytes);
	munmap(later, bytes);
}

/* --- several regions --------------------------------------------------------------------- */

static void overlapping_regions(void **state)
{
	const size_t bytes = 16 * PAGE;
	uint8_t *memory = new_memory(bytes);
	struct ibv_mr *whole, *same, *inner, *across;
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){0});
	whole = reg(&pair, memory, 12 * PAGE);
	same = reg(&pair, memory, 12 * PAGE);
	inner = reg(&pair, memory + 2 * PAGE + 9, 5 * PAGE);
	across = reg(&pair, memory + 8 * PAGE, 8 * PAGE);
	expect_shared(memory);
	assert_false(is_shared(memory + 13 * PAGE));
	round_trip(&pair, whole, memory + 11, 11 * PAGE);
	round_trip(&pair, inner, memory + 2 * PAGE + 9, 5 * PAGE);
	round_trip(&pair, across, memory + 8 * PAGE, 8 * PAGE);
	assert_int_equal(ibv_dereg_mr(whole), 0);
	expect_shared(memory);
	round_trip(&pair, same, memory + 3, 12 * PAGE - 3);
	assert_int_equal(ibv_dereg_mr(same), 0);
	round_trip(&pair, inner, memory + 2 * PAGE + 9, 5 * PAGE);
	assert_int_equal(ibv_dereg_mr(inner), 0);
	assert_false(is_shared(memory));
	assert_true(edge_is_filled(memory + 2 * PAGE + 9, 5 * PAGE, 5 * PAGE));
	round_trip(&pair, across, memory + 8 * PAGE, 8 * PAGE);
	assert_int_equal(ibv_dereg_mr(across), 0);
	edge_close(&pair);
	munmap(memory, bytes);
}

#define REGIONS 1040u

/* Every other page, so that each is a mapping of its own; low in memory, and from the top, so that
 * looking at them takes no long. */
#define LOW ((void *)0x200000000ull)

static void many_regions(void **state)
{
	static struct ibv_mr *mrs[REGIONS];
	uint8_t *memory = mmap(LOW, (size_t)REGIONS * 2 * PAGE, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct edge_pair pair;
	unsigned int shared = 0;

	edge_open(&pair, &(struct edge_options){0});
	assert_true(memory != MAP_FAILED);
	for (unsigned int i = REGIONS; i-- > 0;) {
		memory[(size_t)i * 2 * PAGE] = (uint8_t)i;
		mrs[i] = reg(&pair, memory + (size_t)i * 2 * PAGE, PAGE);
	}
	for (unsigned int i = 0; i < REGIONS; i += 40)
		shared += is_shared(memory + (size_t)i * 2 * PAGE);
	assert_true(shared <= 1000 / 40);
	assert_int_equal(shared > 0, system_can_share());
	for (unsigned int i = 0; i < REGIONS; i += 8) {
		round_trip(&pair, mrs[i], memory + (size_t)i * 2 * PAGE + 4, 64);
		assert_int_equal(memory[(size_t)i * 2 * PAGE], (uint8_t)i);
	}
	for (unsigned int i = 0; i < REGIONS; i++)
		assert_int_equal(ibv_dereg_mr(mrs[i]), 0);
	for (unsigned int i = 0; i < REGIONS; i++)
		assert_int_equal(memory[(size_t)i * 2 * PAGE], (uint8_t)i);
	assert_false(is_shared(memory));
	edge_close(&pair);
	munmap(memory, (size_t)REGIONS * 2 * PAGE);
}

static void changed_region(void **state)
{
	uint8_t *first = new_memory(4 * PAGE), *second = new_memory(4 * PAGE);
	struct edge_pair pair;
	struct ibv_mr *mr;

	edge_open(&pair, &(struct edge_options){0});
	mr = reg(&pair, first, 4 * PAGE);
	edge_fill(first, 4 * PAGE, 1);
	assert_int_equal(
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, second, 4 * PAGE, 0), 0);
	assert_false(is_shared(first));
	expect_shared(second);
	assert_true(edge_is_filled(first, 4 * PAGE, 1));
	round_trip(&pair, mr, second, 4 * PAGE);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_false(is_shared(second));
	edge_close(&pair);
	munmap(first, 4 * PAGE);
	munmap(second, 4 * PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(contents_stay),
		cmocka_unit_test(special_memory_is_left_alone),
		cmocka_unit_test(another_threads_stack),
		cmocka_unit_test(no_write_is_lost),
		cmocka_unit_test(fork_while_shared),
		cmocka_unit_test(child_shares_too),
		cmocka_unit_test(grown_and_moved),
		cmocka_unit_test(unmapped_and_used_anew),
		cmocka_unit_test(overlapping_regions),
		cmocka_unit_test(many_regions),
		cmocka_unit_test(changed_region),
		cmocka_unit_test(descriptor_closed), /* shares no more: the last */
	};

	setenv("VERBENA_SHARE", "1", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
