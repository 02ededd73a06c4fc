/* SPDX-License-Identifier: BSD-2-Clause */
/* test_local_share.c - accesses to a peer's arena: that they are made there, which are not, and
 * what is not taken for an arena. */
#define _GNU_SOURCE
#include "local_helper.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "carrier/local_private.h"

enum {
	ACCESS_WRITE = 1 << 1,
	ACCESS_READ = 1 << 2,
	ACCESS_ATOMIC = 1 << 3,
	ACCESS_ALL = ACCESS_WRITE | ACCESS_READ | ACCESS_ATOMIC,
	PD = 5,
	RKEY = 0xabcd0000 + 77,
	OUR_INDEX = 3,
	ITS_INDEX = 9,
	PAGE = 4096,
	AT = 16 * PAGE, /* of the region's first whole page, in the arena */
	ODD = 100,	/* the region begins so much before it */
	REGION = 64 * PAGE,
	ARENA = 256 * PAGE,
};
#define IOVA 0x10000000ull
#define WHOLE (IOVA + ODD) /* the first whole page */

static struct test_nic nic;
static int arena_fd;
static uint8_t *memory; /* a page of no file, then the arena from AT on */

/* Commands of the test to the owner. */
struct order {
	char what; /* m: publish mr, q: publish qp, c: close the arena */
	struct vb_local_mr mr;
	struct vb_local_qp qp;
};

static void owner(struct test_nic *n, int fd, struct test_role *role)
{
	struct order order;

	while (test_receive(fd, &order, sizeof(order))) {
		int r = 0;

		if (order.what == 'm')
			r = vb_local_publish_mr(n->carrier, &order.mr);
		else if (order.what == 'q')
			vb_local_publish_qp(n->carrier, &order.qp);
		else
			r = close(arena_fd);
		test_send(fd, &r, sizeof(r));
	}
	test_nic_close(n);
}

static int tell(struct test_child *child, char what, const struct vb_local_mr *mr,
		const struct vb_local_qp *qp)
{
	struct order order = {.what = what};
	int r;

	if (mr)
		order.mr = *mr;
	if (qp)
		order.qp = *qp;
	test_send(child->fd, &order, sizeof(order));
	assert_true(test_receive(child->fd, &r, sizeof(r)));
	return r;
}

static struct vb_local_mr region(void)
{
	struct stat st;

	assert_int_equal(fstat(arena_fd, &st), 0);
	return (struct vb_local_mr){
		.rkey = RKEY,
		.pd_id = PD,
		.access = ACCESS_ALL,
		.addr = (uint64_t)(uintptr_t)memory + PAGE - ODD,
		.iova = IOVA,
		.length = REGION,
		.shared = true,
		.shared_at = AT,
		.arena = {arena_fd, st.st_dev, st.st_ino, ARENA},
	};
}

static uint16_t start(struct test_child *child, struct test_role *role)
{
	struct vb_local_mr mr = region();
	struct vb_local_qp qp;
	uint16_t slot;

	*role = (struct test_role){.address = test_address(48), .run = owner};
	assert_int_equal(test_nic_open(&nic, &role->address), 0);
	slot = test_start_nic(child, role);
	vb_local_use_shared(nic.carrier);
	qp = (struct vb_local_qp){.qpn = test_qpn(slot, ITS_INDEX),
				  .dest_qpn = test_qpn(nic.registry->slot, OUR_INDEX),
				  .pd_id = PD,
				  .access = ACCESS_ALL,
				  .open = true};
	(void)tell(child, 'q', NULL, &qp);
	assert_int_equal(tell(child, 'm', &mr, NULL), 0);
	return slot;
}

static void stop(struct test_child *child)
{
	assert_int_equal(test_join_child(child), 0);
	test_nic_close(&nic);
}

static ssize_t direct(unsigned int slot, bool write, uint64_t va, void *data, uint32_t bytes)
{
	struct iovec part = {data, bytes};

	return vb_local_direct(nic.carrier, write, test_qpn(nic.registry->slot, OUR_INDEX),
			       test_qpn(slot, ITS_INDEX), RKEY, va, &part, 1, bytes);
}

static int atomic(unsigned int slot, bool swap, uint64_t va, uint64_t compare, uint64_t swap_add,
		  uint64_t *before)
{
	const struct vb_local_atomic op = {
		.swap = swap,
		.qpn = test_qpn(nic.registry->slot, OUR_INDEX),
		.dest_qpn = test_qpn(slot, ITS_INDEX),
		.rkey = RKEY,
		.va = va,
		.compare = compare,
		.swap_add = swap_add,
	};

	return vb_local_atomic(nic.carrier, &op, before);
}

static uint64_t shared_accesses(void)
{
	struct vb_local_counters counters;

	vb_local_read_counters(nic.carrier, &counters);
	return counters.shared_accesses;
}

/* An access of 64 bytes to the first whole page works; made in the arena or by the kernel. */
static void expect_made(unsigned int slot, bool in_arena)
{
	const uint64_t before = shared_accesses();
	uint8_t out[64], in[64];

	test_fill(out, sizeof(out), before);
	assert_int_equal(direct(slot, true, WHOLE + 7, out, sizeof(out)), sizeof(out));
	assert_int_equal(direct(slot, false, WHOLE + 7, in, sizeof(in)), sizeof(in));
	assert_memory_equal(in, out, sizeof(in));
	assert_memory_equal(memory + PAGE + 7, out, sizeof(out));
	assert_int_equal(shared_accesses() - before, in_arena ? 2 : 0);
}

static void only_whole_pages_are_in_the_arena(void **state)
{
	static uint8_t out[REGION], in[REGION];
	const uint32_t last = (REGION - ODD) / PAGE * PAGE; /* bytes of whole pages */
	struct test_child child;
	struct test_role role;
	uint64_t n = 0;
	uint16_t slot = start(&child, &role);

	expect_made(slot, true);
	n = shared_accesses();
	test_fill(out, REGION, 3);
	/* across the borders, and outside of them */
	assert_int_equal(direct(slot, true, IOVA, out, 8), 8);
	assert_int_equal(direct(slot, true, WHOLE - 1, out, 2), 2);
	assert_int_equal(direct(slot, true, WHOLE + last - 1, out, 2), 2);
	assert_int_equal(direct(slot, true, WHOLE + last, out, 8), 8);
	assert_int_equal(shared_accesses(), n);
	assert_int_equal(direct(slot, true, WHOLE, out, 1), 1);
	assert_int_equal(direct(slot, true, WHOLE + last - 1, out, 1), 1);
	assert_int_equal(shared_accesses(), n + 2);
	/* a long one in pieces, each of one kind */
	assert_int_equal(direct(slot, true, IOVA, out, REGION), ODD);
	assert_int_equal(shared_accesses(), n + 2);
	assert_int_equal(direct(slot, true, WHOLE, out + ODD, REGION - ODD), last);
	assert_int_equal(shared_accesses(), n + 3);
	assert_int_equal(direct(slot, true, WHOLE + last, out + ODD + last, REGION - ODD - last),
			 REGION - ODD - last);
	assert_memory_equal(memory + PAGE - ODD, out, REGION);
	for (uint32_t done = 0; done < REGION;) {
		ssize_t got = direct(slot, false, IOVA + done, in + done, REGION - done);

		assert_true(got > 0);
		done += (uint32_t)got;
	}
	assert_memory_equal(in, out, REGION);
	assert_true(direct(slot, true, IOVA + REGION - 1, out, 2) < 0);
	stop(&child);
}

static void atomics_are_exact_or_refused(void **state)
{
	const uint64_t iova =
		IOVA + 4; /* addresses are multiples of eight where it says they are */
	const uint64_t va = iova + ODD + 32;
	uint64_t *word = (uint64_t *)(void *)(memory + PAGE + 32), before;
	struct vb_local_mr mr = region();
	struct test_child child;
	struct test_role role;
	uint16_t slot = start(&child, &role);

	mr.iova = iova;
	assert_int_equal(tell(&child, 'm', &mr, NULL), 0);
	*word = 40;
	assert_int_equal(atomic(slot, false, va, 0, 2, &before), 0);
	assert_int_equal(before, 40);
	assert_int_equal(*word, 42);
	assert_int_equal(atomic(slot, true, va, 41, 7, &before), 0);
	assert_int_equal(before, 42);
	assert_int_equal(*word, 42);
	assert_int_equal(atomic(slot, true, va, 42, 7, &before), 0);
	assert_int_equal(before, 42);
	assert_int_equal(*word, 7);
	/* not at eight bytes; not in whole pages; where only the remote address looks aligned */
	assert_true(atomic(slot, false, va + 4, 0, 1, &before) < 0);
	assert_true(atomic(slot, false, IOVA + 8, 0, 1, &before) < 0);
	mr.iova = IOVA;
	assert_int_equal(tell(&child, 'm', &mr, NULL), 0);
	assert_true(atomic(slot, false, IOVA + PAGE, 0, 1, &before) < 0);
	/* without the right, and without an arena */
	mr.iova = iova;
	mr.access = ACCESS_READ | ACCESS_WRITE;
	assert_int_equal(tell(&child, 'm', &mr, NULL), 0);
	assert_true(atomic(slot, false, va, 0, 1, &before) < 0);
	mr.access = ACCESS_ALL;
	mr.shared = false;
	assert_int_equal(tell(&child, 'm', &mr, NULL), 0);
	assert_true(atomic(slot, false, va, 0, 1, &before) < 0);
	assert_int_equal(*word, 7);
	stop(&child);
}

/* What the owner's table says is checked; with doubts the kernel copies. */
static void what_is_no_arena_is_not_mapped(void **state)
{
	struct vb_local_mr mr = region();
	struct test_child child;
	struct test_role role;
	uint16_t slot;

	for (int wrong = 0; wrong < 6; wrong++) {
		slot = start(&child, &role);
		mr = region();
		if (wrong == 0)
			mr.arena.inode ^= 1;
		else if (wrong == 1)
			mr.arena.fd = 0; /* whatever that is */
		else if (wrong == 2)
			mr.arena.fd = 1000000;
		else if (wrong == 3)
			mr.arena.bytes = ARENA + 1; /* longer than the file */
		else if (wrong == 4)
			mr.shared_at = ARENA; /* behind its end */
		else
			mr.shared_at = UINT64_MAX & ~(uint64_t)(PAGE - 1);
		assert_int_equal(tell(&child, 'm', &mr, NULL), 0);
		expect_made(slot, false);
		stop(&child);
	}
}

static void one_that_can_be_cut_is_not_mapped(void **state)
{
	const int good = arena_fd;
	struct test_child child;
	struct test_role role;
	uint16_t slot;

	arena_fd = memfd_create("cut", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(arena_fd, ARENA), 0);
	slot = start(&child, &role);
	expect_made(slot, false);
	stop(&child);
	close(arena_fd);
	arena_fd = good;
}

static void what_is_mapped_stays(void **state)
{
	struct test_child child;
	struct test_role role;
	uint16_t slot = start(&child, &role);

	expect_made(slot, true);
	assert_int_equal(tell(&child, 'c', NULL, NULL), 0);
	expect_made(slot, true);
	stop(&child);
}

static void only_who_shares_uses_it(void **state)
{
	struct test_child child;
	struct test_role role;
	uint16_t slot = start(&child, &role);
	uint64_t before;

	vb_container_of(nic.carrier, struct vb_local, base)->use_shared = false;
	expect_made(slot, false);
	assert_true(atomic(slot, false, WHOLE, 0, 1, &before) < 0);
	stop(&child);
}

static int set_up(void **state)
{
	arena_fd = memfd_create("arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (arena_fd < 0 || ftruncate(arena_fd, ARENA) < 0 ||
	    fcntl(arena_fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		return -1;
	memory = mmap(NULL, 2 * PAGE + REGION, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (memory == MAP_FAILED)
		return -1;
	return mmap(memory + PAGE, REGION, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, arena_fd,
		    AT) == MAP_FAILED;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_whole_pages_are_in_the_arena),
		cmocka_unit_test(atomics_are_exact_or_refused),
		cmocka_unit_test(what_is_no_arena_is_not_mapped),
		cmocka_unit_test(one_that_can_be_cut_is_not_mapped),
		cmocka_unit_test(what_is_mapped_stays),
		cmocka_unit_test(only_who_shares_uses_it),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
