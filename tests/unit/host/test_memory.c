/* SPDX-License-Identifier: BSD-2-Clause */
/* test_memory.c - which ranges may be registered. Both ways of asking the kernel must agree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/nic.h"
#include "host/memory.h"

static size_t page;

/* rw rw ro -- none rw: six pages, the fourth not mapped, the fifth without any right */
static uint8_t *layout(void)
{
	uint8_t *base =
		mmap(NULL, 6 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(base != MAP_FAILED);
	assert_int_equal(mprotect(base + 2 * page, page, PROT_READ), 0);
	assert_int_equal(munmap(base + 3 * page, page), 0);
	assert_int_equal(mprotect(base + 4 * page, page, PROT_NONE), 0);
	return base;
}

/* The same question all three ways; the query is skipped where the kernel does not know it. */
static int check(const void *addr, uint64_t length, bool write)
{
	uint64_t start = (uintptr_t)addr;
	int maps, by_text, by_query, rc = vb_memory_check(addr, length, write);

	if (length == 0 || start + length < start)
		return rc;
	maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	assert_true(maps >= 0);
	by_query = vb_memory_check_by_query(maps, start, start + length, write);
	by_text = vb_memory_check_by_text(maps, start, start + length, write);
	close(maps);
	assert_int_equal(by_text, rc);
	if (by_query != -ENOTTY)
		assert_int_equal(by_query, rc);
	return rc;
}

static void rights(void **state)
{
	uint8_t *base = layout();

	assert_int_equal(check(base, 2 * page, true), 0);
	assert_int_equal(check(base, 3 * page, false), 0);
	assert_int_equal(check(base, 3 * page, true), -EFAULT);
	assert_int_equal(check(base + 2 * page, page, false), 0);
	assert_int_equal(check(base + 2 * page, page, true), -EFAULT);
	assert_int_equal(check(base + 4 * page, 1, false), -EFAULT);
	assert_int_equal(check(base + 5 * page, page, true), 0);
	munmap(base, 6 * page);
}

static void holes(void **state)
{
	uint8_t *base = layout();

	assert_int_equal(check(base + 3 * page, 1, false), -EFAULT);
	assert_int_equal(check(base + 2 * page, page + 1, false), -EFAULT);
	assert_int_equal(check(base, 6 * page, false), -EFAULT);
	assert_int_equal(check(base + 3 * page, 2 * page, false), -EFAULT);
	assert_int_equal(check(base + 5 * page - 1, page, false), -EFAULT);
	munmap(base, 6 * page);
}

static void odd_sizes(void **state)
{
	uint8_t *base = layout();

	assert_int_equal(check(base + 1, 1, true), 0);
	assert_int_equal(check(base + 2 * page - 1, 1, true), 0);
	assert_int_equal(check(base + 2 * page - 1, 2, true), -EFAULT);
	assert_int_equal(check(base + 2 * page - 1, 2, false), 0);
	assert_int_equal(check(base + 17, 2 * page - 17, true), 0);
	assert_int_equal(check(base + 3 * page - 1, 1, false), 0);
	munmap(base, 6 * page);
}

static void nothing_and_everything(void **state)
{
	assert_int_equal(check(NULL, 0, true), 0);
	assert_int_equal(check((void *)(uintptr_t)-1, 0, true), 0);
	assert_int_equal(check(NULL, 1, false), -EFAULT);
	assert_int_equal(check(NULL, page, true), -EFAULT);
	assert_int_equal(check((void *)(uintptr_t)-1, 2, false), -EINVAL);
	assert_int_equal(check(&page, UINT64_MAX, false), -EINVAL);
	assert_int_equal(check((void *)page, UINT64_MAX - page, false), -EFAULT);
	assert_int_equal(check((void *)(uintptr_t)0xffff800000000000u, page, false), -EFAULT);
}

static void usual_memory(void **state)
{
	uint8_t *heap = calloc(1, 12345), on_stack[321] = {0};
	static uint8_t in_bss[4321];

	assert_int_equal(check(heap + 1, 12344, true), 0);
	assert_int_equal(check(on_stack, sizeof(on_stack), true), 0);
	assert_int_equal(check(in_bss + 3, sizeof(in_bss) - 3, true), 0);
	assert_int_equal(check("a constant", 5, false), 0);
	assert_int_equal(check("a constant", 5, true), -EFAULT);
	free(heap);
}

/* Many mappings side by side: the answer needs all of them. */
static void many_mappings(void **state)
{
	size_t pages = 1000;
	uint8_t *base = mmap(NULL, pages * page, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(base != MAP_FAILED);
	for (size_t i = 0; i < pages; i += 2)
		assert_int_equal(mprotect(base + i * page, page, PROT_READ), 0);
	assert_int_equal(check(base, pages * page, false), 0);
	assert_int_equal(check(base, pages * page, true), -EFAULT);
	assert_int_equal(munmap(base + 777 * page, page), 0);
	assert_int_equal(check(base, pages * page, false), -EFAULT);
	assert_int_equal(check(base + 1, 777 * page - 1, false), 0);
	munmap(base, pages * page);
}

static void locks_nothing(void **state)
{
	const struct rlimit none = {0, 0};
	size_t size = 8u << 20;
	uint8_t *base =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *in_core = malloc(size / page);

	assert_true(base != MAP_FAILED);
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &none), 0);
	assert_int_equal(check(base, size, true), 0);
	/* and touches nothing: no page has come in */
	assert_int_equal(mincore(base, size, in_core), 0);
	for (size_t i = 0; i < size / page; i++)
		assert_int_equal(in_core[i] & 1, 0);
	free(in_core);
	munmap(base, size);
}

/* What regions on demand ask for at each packet: it comes in, and only there. */
static void brought_in(void **state)
{
	uint8_t *base =
		mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char in_core[4];

	assert_true(base != MAP_FAILED);
	assert_int_equal(vb_memory_bring_in(base + page - 1, 2, true), 0);
	assert_int_equal(mincore(base, 4 * page, in_core), 0);
	assert_int_equal(in_core[0] & 1, 1);
	assert_int_equal(in_core[1] & 1, 1);
	assert_int_equal(in_core[2] & 1, 0);
	assert_int_equal(mprotect(base + 2 * page, page, PROT_READ), 0);
	assert_int_equal(vb_memory_bring_in(base, 3 * page, false), 0);
	assert_int_equal(vb_memory_bring_in(base, 3 * page, true), -EFAULT);
	assert_int_equal(vb_memory_bring_in(base, 2 * page, true), 0);
	assert_int_equal(mprotect(base + 2 * page, page, PROT_NONE), 0);
	assert_int_equal(vb_memory_bring_in(base, 3 * page, false), -EFAULT);
	assert_int_equal(munmap(base + page, page), 0);
	assert_int_equal(vb_memory_bring_in(base, 2 * page, false), -EFAULT);
	assert_int_equal(vb_memory_bring_in(base, page, false), 0);
	assert_int_equal(vb_memory_bring_in(NULL, 1, false), -EFAULT);
	assert_int_equal(vb_memory_bring_in((void *)(UINTPTR_MAX - 8), 8, false), -EFAULT);
	assert_int_equal(vb_memory_bring_in((void *)(UINTPTR_MAX - 8), 100, false), -EFAULT);
	assert_int_equal(vb_memory_bring_in(NULL, 0, true), 0);
	munmap(base, 4 * page);
}

/* Both ways, which must agree, and what the library itself uses. */
static void copies(void **state)
{
	int (*const ways[])(bool, void *, void *, uint32_t) = {vb_memory_copy_by_vm,
							       vb_memory_copy_by_pipe};
	uint8_t *base = layout(), *ours = malloc(6 * page);

	for (int i = 0; i < 2; i++) {
		memset(ours, 0x31 + i, 6 * page);
		assert_int_equal(ways[i](true, base + 1, ours, 2 * page - 1), 0);
		assert_int_equal(base[0], i ? 0x31 : 0);
		assert_int_equal(base[1], 0x31 + i);
		assert_int_equal(base[2 * page - 1], 0x31 + i);
		assert_int_equal(ways[i](true, base, ours, 2 * page), 0);
		memset(ours, 0, 6 * page);
		assert_int_equal(ways[i](false, base, ours, 3 * page), 0);
		assert_int_equal(ours[2 * page - 1], 0x31 + i);
		assert_int_equal(ours[2 * page], 0);
		/* what may not be written, what is not there, both in part */
		assert_int_equal(ways[i](true, base + 2 * page, ours, 8), -EFAULT);
		assert_int_equal(ways[i](true, base + 2 * page - 8, ours, 16), -EFAULT);
		assert_int_equal(ways[i](true, base, ours, 3 * page), -EFAULT);
		assert_int_equal(ways[i](false, base + 3 * page, ours, 1), -EFAULT);
		assert_int_equal(ways[i](false, base + 4 * page, ours, 1), -EFAULT);
		assert_int_equal(ways[i](false, base, ours, 6 * page), -EFAULT);
		assert_int_equal(ways[i](true, NULL, ours, 8), -EFAULT);
		assert_int_equal(ways[i](true, NULL, ours, 0), 0);
	}
	assert_int_equal(vb_memory_write(base, "verbena", 8), 0);
	assert_int_equal(vb_memory_read(ours, base, 8), 0);
	assert_string_equal((char *)ours, "verbena");
	assert_int_equal(vb_memory_write(base + 2 * page, ours, 8), -EFAULT);
	assert_int_equal(vb_memory_read(ours, base + 3 * page, 8), -EFAULT);
	munmap(base, 6 * page);
	free(ours);
}

static volatile sig_atomic_t signals;

static void count_signal(int number)
{
	signals++;
}

typedef int (*atomic_way)(uint64_t *word, const struct vb_atomic *op, uint64_t *before);

/* An atomic that fails is nothing that the program hears of: no signal, no child. */
static void try_atomics(atomic_way way)
{
	const struct vb_atomic add = {VB_ATOMIC_ADD, 5, 0}, swap = {VB_ATOMIC_COMPARE_SWAP, 77, 15},
			       store = {VB_ATOMIC_STORE, 99, 0};
	uint8_t *base = layout();
	uint64_t *word = (uint64_t *)(void *)(base + 64), before = 0;

	signals = 0;
	signal(SIGSEGV, count_signal);
	signal(SIGBUS, count_signal);
	signal(SIGCHLD, count_signal);
	*word = 10;
	assert_int_equal(way(word, &add, &before), 0);
	assert_int_equal(before, 10);
	assert_int_equal(way(word, &swap, &before), 0);
	assert_int_equal(before, 15);
	assert_int_equal(*word, 77);
	assert_int_equal(way(word, &swap, &before), 0);
	assert_int_equal(before, 77);
	assert_int_equal(*word, 77);
	assert_int_equal(way(word, &store, &before), 0);
	assert_int_equal(*word, 99);

	word = (uint64_t *)(void *)(base + 2 * page);
	assert_int_equal(way(word, &add, &before), -EFAULT);
	assert_int_equal(way(word + page / 8, &add, &before), -EFAULT);
	assert_int_equal(way(NULL, &add, &before), -EFAULT);
	assert_int_equal(*word, 0);
	assert_int_equal(signals, 0);
	assert_true(waitpid(-1, NULL, __WALL) < 0 && errno == ECHILD);
	signal(SIGSEGV, SIG_DFL);
	signal(SIGBUS, SIG_DFL);
	signal(SIGCHLD, SIG_DFL);
	munmap(base, 6 * page);
}

static void atomics(void **state)
{
	try_atomics(vb_memory_atomic);
}

static void atomics_by_copies(void **state)
{
	try_atomics(vb_memory_atomic_by_copies);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rights),	 cmocka_unit_test(holes),
		cmocka_unit_test(odd_sizes),	 cmocka_unit_test(nothing_and_everything),
		cmocka_unit_test(usual_memory),	 cmocka_unit_test(many_mappings),
		cmocka_unit_test(brought_in),	 cmocka_unit_test(copies),
		cmocka_unit_test(atomics),	 cmocka_unit_test(atomics_by_copies),
		cmocka_unit_test(locks_nothing),
	};

	page = (size_t)sysconf(_SC_PAGESIZE);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
