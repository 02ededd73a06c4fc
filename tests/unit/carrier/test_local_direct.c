/* SPDX-License-Identifier: BSD-2-Clause */
/* test_local_direct.c - the initiator's own WRITE and READ: what is moved, what is refused, and
 * that nothing is moved any more once a region was taken back. */
#define _GNU_SOURCE /* close_range */
#include "local_helper.h"

#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "carrier/local_private.h"

enum {
	ACCESS_WRITE = 1 << 1,
	ACCESS_READ = 1 << 2,
	ACCESS_ON_DEMAND = 1 << 6,
	PD = 5,
	RKEY = 0xabcd0000 + 77,
	OUR_INDEX = 3,
	ITS_INDEX = 9,
	REGION = 3 << 20,
};
#define IOVA 0x10000000ull

static struct test_nic nic;
static uint8_t *shared; /* REGION bytes that both processes see, to check what moved */

static struct vb_local_mr region(void)
{
	struct vb_local_mr mr = {.rkey = RKEY,
				 .pd_id = PD,
				 .access = ACCESS_WRITE | ACCESS_READ,
				 .addr = (uint64_t)(uintptr_t)shared,
				 .iova = IOVA,
				 .length = REGION};
	return mr;
}

static struct vb_local_qp its_qp(unsigned int its_slot, unsigned int our_slot)
{
	struct vb_local_qp qp = {.qpn = test_qpn(its_slot, ITS_INDEX),
				 .dest_qpn = test_qpn(our_slot, OUR_INDEX),
				 .pd_id = PD,
				 .access = ACCESS_WRITE | ACCESS_READ,
				 .open = true};
	return qp;
}

static ssize_t direct(unsigned int slot, bool write, uint64_t va, void *data, uint32_t bytes)
{
	struct iovec part = {data, bytes};

	return vb_local_direct(nic.carrier, write, test_qpn(nic.registry->slot, OUR_INDEX),
			       test_qpn(slot, ITS_INDEX), RKEY, va, &part, 1, bytes);
}

/* Commands of the test to the owner. */
struct order {
	char what; /* m: publish mr, q: publish qp, w: withdraw, z: quiesce, x: close every
		      descriptor, l: begin a thread that lives, d: it dies, e: exec */
	struct vb_local_mr mr;
	struct vb_local_qp qp;
};

static struct {
	pthread_t thread;
	pthread_barrier_t both;
} life;

static void *live(void *carrier)
{
	vb_local_live(carrier);
	pthread_barrier_wait(&life.both);
	pthread_barrier_wait(&life.both);
	return NULL; /* without a word */
}

static int begin_to_live(struct test_nic *n)
{
	int r = pthread_barrier_init(&life.both, NULL, 2);

	if (r == 0)
		r = pthread_create(&life.thread, NULL, live, n->carrier);
	if (r == 0)
		pthread_barrier_wait(&life.both);
	return r;
}

static int die(void)
{
	pthread_barrier_wait(&life.both);
	return pthread_join(life.thread, NULL);
}

static void owner(struct test_nic *n, int fd, struct test_role *role)
{
	struct order order;

	while (test_receive(fd, &order, sizeof(order))) {
		int r = 0;

		if (order.what == 'e')
			execl("/bin/sleep", "sleep", "60", (char *)NULL); /* fd goes with us */

		if (order.what == 'm')
			r = vb_local_publish_mr(n->carrier, &order.mr);
		else if (order.what == 'q')
			vb_local_publish_qp(n->carrier, &order.qp);
		else if (order.what == 'w')
			r = vb_local_withdraw_mr(n->carrier, order.mr.rkey);
		else if (order.what == 'l')
			r = begin_to_live(n);
		else if (order.what == 'd')
			r = die();
		else if (order.what == 'x')
			r = (fd > 3 && close_range(3, (unsigned int)fd - 1, 0)) ||
			    close_range((unsigned int)fd + 1, ~0u, 0);
		else
			r = vb_local_quiesce_qp(n->carrier, order.qp.qpn);
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

static void move_bytes(unsigned int slot)
{
	static uint8_t out[REGION], in[REGION];
	struct iovec parts[100];
	uint64_t seed = 1;
	uint32_t i, moved;
	ssize_t n;

	for (i = 0; i < 200; i++) {
		uint32_t bytes = 1 + test_random(&seed) % (i % 10 ? 100 : 100000);
		uint64_t at = test_random(&seed) % (REGION - bytes + 1);

		test_fill(out, bytes, i);
		assert_int_equal(direct(slot, true, IOVA + at, out, bytes), bytes);
		assert_true(test_filled(shared + at, bytes, i));
		assert_int_equal(direct(slot, false, IOVA + at, in, bytes), bytes);
		assert_memory_equal(in, out, bytes);
	}
	/* The whole region, its first and last byte; at most 1 MiB a call. */
	test_fill(out, REGION, 99);
	for (moved = 0; moved < REGION; moved += (uint32_t)n) {
		n = direct(slot, true, IOVA + moved, out + moved, REGION - moved);
		assert_int_equal(n, 1 << 20);
	}
	assert_memory_equal(shared, out, REGION);
	/* More parts than one call takes, empty ones among them: what was moved is said. */
	for (i = 0; i < 100; i++)
		parts[i] = (struct iovec){out + i * 11, i % 5 ? 11 : 0};
	n = vb_local_direct(nic.carrier, true, test_qpn(nic.registry->slot, OUR_INDEX),
			    test_qpn(slot, ITS_INDEX), RKEY, IOVA + 1, parts, 100, 80 * 11);
	assert_int_equal(n, 64 * 11);
	for (i = 0, moved = 0; i < 80; i++) {
		if (i % 5 == 0)
			continue;
		assert_memory_equal(shared + 1 + moved, out + i * 11, 11);
		moved += 11;
	}
	/* The length counts, not what the parts hold beyond it. */
	memset(shared, 0, 64);
	parts[0] = (struct iovec){out, 50};
	n = vb_local_direct(nic.carrier, true, test_qpn(nic.registry->slot, OUR_INDEX),
			    test_qpn(slot, ITS_INDEX), RKEY, IOVA, parts, 1, 20);
	assert_int_equal(n, 20);
	assert_memory_equal(shared, out, 20);
	assert_int_equal(shared[20], 0);
}

static void refuse(unsigned int slot, struct test_child *child)
{
	struct vb_local_mr mr = region();
	struct vb_local_qp qp = its_qp(slot, nic.registry->slot);
	uint8_t data[64] = {1}, before[64];
	struct iovec part = {data, 8};
	uint32_t ours = test_qpn(nic.registry->slot, OUR_INDEX), its = test_qpn(slot, ITS_INDEX);

	memset(shared, 0x55, REGION);
	memcpy(before, shared, sizeof(before));
#define RAW(qpn_, dest_, rkey_, va_, length_)                                                      \
	vb_local_direct(nic.carrier, true, qpn_, dest_, rkey_, va_, &part, 1, length_)
	assert_int_equal(RAW(ours, its, RKEY, IOVA, 8), 8);
	memset(shared, 0x55, 8);
	assert_true(RAW(ours, its, RKEY ^ 1, IOVA, 8) < 0);
	assert_true(RAW(ours, its, RKEY ^ 0x80000000, IOVA, 8) < 0);  /* the same table slot */
	assert_true(RAW(ours, its, RKEY + (1000 << 8), IOVA, 8) < 0); /* a page never written */
	assert_true(RAW(ours ^ 1, its, RKEY, IOVA, 8) < 0);
	assert_true(RAW(ours, its ^ 1, RKEY, IOVA, 8) < 0);
	assert_true(RAW(ours, its ^ 0x4000, RKEY, IOVA, 8) < 0);
	assert_true(RAW(ours, its | 0x1000000, RKEY, IOVA, 8) < 0);
	assert_true(RAW(ours, test_qpn(0, 1), RKEY, IOVA, 8) < 0);
	assert_true(RAW(ours, test_qpn(511, 1), RKEY, IOVA, 8) < 0);
	assert_true(RAW(ours, its, RKEY, IOVA - 1, 8) < 0);
	assert_true(RAW(ours, its, RKEY, IOVA + REGION - 7, 8) < 0);
	assert_int_equal(RAW(ours, its, RKEY, IOVA + REGION - 8, 8), 8);
	assert_true(RAW(ours, its, RKEY, IOVA + REGION, 8) < 0);
	assert_true(RAW(ours, its, RKEY, UINT64_MAX - 3, 8) < 0);
	assert_true(RAW(ours, its, RKEY, 0, 8) < 0);
	assert_true(RAW(ours, its, RKEY, IOVA, 0) < 0);

	mr.access = ACCESS_READ;
	assert_int_equal(tell(child, 'm', &mr, NULL), 0);
	assert_true(direct(slot, true, IOVA, data, 8) < 0);
	assert_int_equal(direct(slot, false, IOVA, data, 8), 8);
	mr.access = ACCESS_WRITE;
	assert_int_equal(tell(child, 'm', &mr, NULL), 0);
	assert_true(direct(slot, false, IOVA, data, 8) < 0);
	/* a window of one queue pair */
	mr = region();
	mr.qpn = its;
	assert_int_equal(tell(child, 'm', &mr, NULL), 0);
	assert_int_equal(direct(slot, true, IOVA, data, 8), 8);
	mr.qpn = its ^ 1;
	assert_int_equal(tell(child, 'm', &mr, NULL), 0);
	assert_true(direct(slot, true, IOVA, data, 8) < 0);
	/* memory on demand of another process: the kernel finds out */
	mr = region();
	mr.access |= ACCESS_ON_DEMAND;
	assert_int_equal(tell(child, 'm', &mr, NULL), 0);
	assert_int_equal(direct(slot, true, IOVA, data, 8), 8);
	mr = region();
	mr.pd_id = PD + 1;
	assert_int_equal(tell(child, 'm', &mr, NULL), 0);
	assert_true(direct(slot, true, IOVA, data, 8) < 0);
	mr = region();
	assert_int_equal(tell(child, 'm', &mr, NULL), 0);

	qp.access = ACCESS_READ;
	(void)tell(child, 'q', NULL, &qp);
	assert_true(direct(slot, true, IOVA, data, 8) < 0);
	qp.access = ACCESS_READ | ACCESS_WRITE;
	qp.dest_qpn ^= 1;
	(void)tell(child, 'q', NULL, &qp);
	assert_true(direct(slot, true, IOVA, data, 8) < 0);
	qp = its_qp(slot, nic.registry->slot);
	qp.open = false;
	(void)tell(child, 'q', NULL, &qp);
	assert_int_equal(tell(child, 'z', NULL, &qp), 0);
	assert_true(direct(slot, true, IOVA, data, 8) < 0);
	qp.open = true;
	(void)tell(child, 'q', NULL, &qp);
	/* A region at the end of the address space: its range wraps. */
	mr.addr = UINT64_MAX - 4;
	mr.iova = 0;
	assert_int_equal(tell(child, 'm', &mr, NULL), 0);
	assert_true(direct(slot, true, 0, data, 8) < 0);
	/* Pages that are not there. */
	mr = region();
	mr.addr = 4096;
	assert_int_equal(tell(child, 'm', &mr, NULL), 0);
	assert_int_equal(direct(slot, true, IOVA, data, 8), -EFAULT);
	assert_memory_equal(shared, before, sizeof(before));
	mr = region();
	assert_int_equal(tell(child, 'm', &mr, NULL), 0);
	assert_int_equal(direct(slot, true, IOVA, data, 8), 8);
	assert_int_equal(tell(child, 'w', &mr, NULL), 0);
	assert_true(direct(slot, true, IOVA, data, 8) < 0);
	assert_int_equal(tell(child, 'w', &mr, NULL), 0);
}

static void another_process_is_written_and_read(void **state)
{
	struct test_role role = {.address = test_address(45), .run = owner};
	struct vb_local_mr mr = region();
	struct vb_local_counters counters;
	struct test_child child;
	struct vb_local_qp qp;
	uint8_t byte = 0;
	uint16_t slot;

	assert_int_equal(test_nic_open(&nic, &role.address), 0);
	slot = test_start_nic(&child, &role);
	assert_true(direct(slot, true, IOVA, &byte, 1) < 0);
	qp = its_qp(slot, nic.registry->slot);
	assert_int_equal(tell(&child, 'm', &mr, NULL), 0);
	assert_true(direct(slot, true, IOVA, &byte, 1) < 0);
	(void)tell(&child, 'q', NULL, &qp);
	move_bytes(slot);
	refuse(slot, &child);
	mr = region();
	assert_int_equal(tell(&child, 'm', &mr, NULL), 0);
	assert_int_equal(direct(slot, true, IOVA, &byte, 1), 1);
	test_kill(&child);
	assert_true(direct(slot, true, IOVA, &byte, 1) < 0);
	vb_local_read_counters(nic.carrier, &counters);
	assert_true(counters.direct_writes > 200 && counters.direct_reads >= 200);
	assert_true(counters.direct_refused > 20);
	test_nic_close(&nic);
}

/* What exec does to a process: its lock is gone in one moment, and its PID stays. Whatever has come
 * to lie at the region's addresses is not ours to write. */
static void nothing_is_written_after_exec(void **state)
{
	struct test_role role = {.address = test_address(49), .run = owner};
	struct vb_local_mr mr = region();
	struct test_child child;
	uint8_t byte = 1;
	struct vb_local_qp qp;
	uint16_t slot;

	assert_int_equal(test_nic_open(&nic, &role.address), 0);
	slot = test_start_nic(&child, &role);
	qp = its_qp(slot, nic.registry->slot);
	assert_int_equal(tell(&child, 'm', &mr, NULL), 0);
	assert_int_equal(tell(&child, 'q', NULL, &qp), 0);
	shared[0] = 0;
	assert_int_equal(direct(slot, true, IOVA, &byte, 1), 1);
	assert_int_equal(shared[0], 1);
	assert_int_equal(tell(&child, 'x', NULL, NULL), 0);
	byte = 2;
	assert_true(direct(slot, true, IOVA, &byte, 1) < 0);
	assert_int_equal(shared[0], 1);
	test_kill(&child);
	test_nic_close(&nic);
}

static bool lives(uint16_t slot)
{
	return vb_local_area_lives(
		vb_container_of(nic.carrier, struct vb_local, base)->peers[slot]->area);
}

/* A process with a thread that lives: nobody asks for the lock, until the thread ends. */
static void a_thread_says_that_its_process_lives(void **state)
{
	struct test_role role = {.address = test_address(43), .run = owner};
	struct vb_local_mr mr = region();
	struct order exec = {.what = 'e'};
	struct test_child child;
	struct vb_local_qp qp;
	uint8_t byte = 1;
	uint16_t slot;

	for (int with_exec = 0; with_exec < 2; with_exec++) {
		assert_int_equal(test_nic_open(&nic, &role.address), 0);
		slot = test_start_nic(&child, &role);
		qp = its_qp(slot, nic.registry->slot);
		assert_int_equal(tell(&child, 'm', &mr, NULL), 0);
		assert_int_equal(tell(&child, 'q', NULL, &qp), 0);
		assert_int_equal(direct(slot, true, IOVA, &byte, 1), 1);
		assert_false(lives(slot));
		assert_int_equal(tell(&child, 'l', NULL, NULL), 0);
		assert_true(lives(slot));
		shared[0] = 0;
		assert_int_equal(direct(slot, true, IOVA, &byte, 1), 1);
		assert_int_equal(shared[0], 1);
		if (with_exec) {
			test_send(child.fd, &exec, sizeof(exec));
			assert_false(test_receive(child.fd, &byte, 1)); /* another program now */
		} else {
			assert_int_equal(tell(&child, 'd', NULL, NULL), 0);
			assert_false(lives(slot)); /* perhaps not: the lock is asked for */
			assert_int_equal(direct(slot, true, IOVA, &byte, 1), 1);
			assert_int_equal(tell(&child, 'l', NULL, NULL), 0);
			assert_true(lives(slot));
			assert_int_equal(kill(child.pid, SIGKILL), 0);
			assert_false(test_receive(child.fd, &byte, 1));
		}
		assert_false(lives(slot));
		assert_true(direct(slot, true, IOVA, &byte, 1) < 0);
		test_kill(&child);
		test_nic_close(&nic);
	}
}

static void our_own_regions_are_written_and_read(void **state)
{
	struct in6_addr address = test_address(46);
	struct vb_local_mr mr = region();
	struct vb_local_qp qp;
	uint8_t byte = 0;

	assert_int_equal(test_nic_open(&nic, &address), 0);
	qp = its_qp(nic.registry->slot, nic.registry->slot);
	assert_int_equal(vb_local_publish_mr(nic.carrier, &mr), 0);
	vb_local_publish_qp(nic.carrier, &qp);
	move_bytes(nic.registry->slot);
	/* memory on demand could be missing, and the copy is made by us */
	mr.access |= ACCESS_ON_DEMAND;
	assert_int_equal(vb_local_publish_mr(nic.carrier, &mr), 0);
	assert_true(direct(nic.registry->slot, true, IOVA, &byte, 1) < 0);
	mr = region();
	assert_int_equal(vb_local_publish_mr(nic.carrier, &mr), 0);
	assert_int_equal(vb_local_withdraw_mr(nic.carrier, RKEY ^ 1), 0); /* another key: nothing */
	assert_int_equal(direct(nic.registry->slot, true, IOVA, &byte, 1), 1);
	assert_int_equal(vb_local_withdraw_mr(nic.carrier, RKEY), 0);
	assert_true(direct(nic.registry->slot, true, IOVA, &byte, 1) < 0);
	qp.open = false;
	vb_local_publish_qp(nic.carrier, &qp);
	assert_int_equal(vb_local_quiesce_qp(nic.carrier, qp.qpn), 0);
	test_nic_close(&nic);
}

/* --- withdrawing against accesses in flight
 * ------------------------------------------------------------ */

/* Writes its pattern into the owner's region for ever, whatever the answers are. */
static void writer(struct test_nic *n, int fd, struct test_role *role)
{
	static uint8_t data[65536];
	struct iovec part = {data, sizeof(data)};
	uint32_t i;

	memset(data, 0xee, sizeof(data));
	for (i = 0;; i++) {
		part.iov_len = i % 3 ? 65536 : 64;
		(void)vb_local_direct(n->carrier, true, test_qpn(n->registry->slot, OUR_INDEX),
				      test_qpn(role->peer, ITS_INDEX + role->number), RKEY, IOVA,
				      &part, 1, (uint32_t)part.iov_len);
		if (i == 0)
			test_send(fd, "r", 1);
	}
}

static bool is_all(const uint8_t *p, uint8_t value, size_t bytes)
{
	return p[0] == value && !memcmp(p, p + 1, bytes - 1);
}

static void nothing_is_written_after_withdrawal(void **state)
{
	enum { WRITERS = 2, ENOUGH_MS = 4000, PATIENCE_MS = 60000 };
	struct test_role role[WRITERS];
	struct test_child child[WRITERS];
	struct vb_local_mr mr = region();
	unsigned int rounds = 0, written = 0, kills = 0, i;
	uint64_t start = test_now_ms(), seed = 17;

	for (i = 0; i < WRITERS; i++)
		role[i] =
			(struct test_role){.address = test_address(47), .run = writer, .number = i};
	assert_int_equal(test_nic_open(&nic, &role[0].address), 0);
	for (i = 0; i < WRITERS; i++) {
		struct vb_local_qp qp;
		uint16_t slot;
		char c;

		role[i].peer = nic.registry->slot;
		slot = test_start_nic(&child[i], &role[i]);
		assert_true(test_receive(child[i].fd, &c, 1));
		qp = its_qp(nic.registry->slot, slot);
		qp.qpn += i;
		vb_local_publish_qp(nic.carrier, &qp);
	}
	mr.length = 65536;
	/* a busy machine gets the rounds that say something, if later */
	while (rounds < 3000 &&
	       test_now_ms() - start < (rounds > 10 && written ? ENOUGH_MS : PATIENCE_MS)) {
		memset(shared, 0, 65536);
		assert_int_equal(vb_local_publish_mr(nic.carrier, &mr), 0);
		for (i = test_random(&seed) % 200; i; i--)
			sched_yield();
		assert_int_equal(vb_local_withdraw_mr(nic.carrier, RKEY), 0);
		/* The memory is the program's again: it must not change under it. */
		written += shared[0] != 0;
		memset(shared, 0x11, 65536);
		for (i = 0; i < 3; i++) {
			sched_yield();
			assert_true(is_all(shared, 0x11, 65536));
		}
		if (++rounds % 64 == 0 && kills < 20) {
			struct vb_local_qp qp;
			uint16_t slot;
			char c;

			i = kills++ % WRITERS;
			test_kill(&child[i]); /* perhaps with its hazard set */
			slot = test_start_nic(&child[i], &role[i]);
			assert_true(test_receive(child[i].fd, &c, 1));
			qp = its_qp(nic.registry->slot, slot);
			qp.qpn += i;
			vb_local_publish_qp(nic.carrier, &qp);
		}
	}
	assert_true(rounds > 10);
	assert_true(written > 0);
	for (i = 0; i < WRITERS; i++)
		test_kill(&child[i]);
	assert_int_equal(vb_local_withdraw_mr(nic.carrier, RKEY), 0);
	test_nic_close(&nic);
}

/* A process with its hazard set as in the middle of an access, where it stays until told; with a
 * number it may make that one itself, in shared pages, as far as it knows. */
static void holder(struct test_nic *n, int fd, struct test_role *role)
{
	static uint8_t data[8];
	struct iovec part = {data, 8};
	struct vb_local_area *area;
	char c;

	if (!test_receive(fd, &c, 1))
		_exit(2);
	if (vb_local_direct(n->carrier, true, test_qpn(n->registry->slot, OUR_INDEX),
			    test_qpn(role->peer, ITS_INDEX), RKEY, IOVA, &part, 1, 8) != 8)
		_exit(3);
	area = (void *)((char *)vb_registry_segment(n->registry) + VB_FILE_PAGE);
	vb_container_of(n->carrier, struct vb_local, base)->bell->sharing = role->number;
	__atomic_store_n(&area->hazard,
			 VB_HAZARD_VALID | (uint64_t)test_qpn(role->peer, ITS_INDEX) << 32 | RKEY,
			 __ATOMIC_SEQ_CST);
	test_send(fd, "h", 1);
	if (!test_receive(fd, &c, 1))
		_exit(4);
	__atomic_store_n(&area->hazard, 0, __ATOMIC_SEQ_CST);
	test_send(fd, "c", 1);
	(void)test_receive(fd, &c, 1);
	test_nic_close(n);
}

static void start_holder(struct test_child *child, struct test_role *role)
{
	struct vb_local_mr mr = region();
	struct vb_local_qp qp;
	char c;

	qp = its_qp(nic.registry->slot, test_start_nic(child, role));
	vb_local_publish_qp(nic.carrier, &qp);
	assert_int_equal(vb_local_publish_mr(nic.carrier, &mr), 0);
	test_send(child->fd, "g", 1);
	assert_true(test_receive(child->fd, &c, 1));
}

static void an_access_that_does_not_end_is_waited_for_and_a_dead_one_is_not(void **state)
{
	struct test_role role = {.address = test_address(48), .run = holder};
	uint32_t qpn;
	struct test_child child;
	uint64_t start;
	char c;

	assert_int_equal(test_nic_open(&nic, &role.address), 0);
	role.peer = nic.registry->slot;
	qpn = test_qpn(role.peer, ITS_INDEX);

	start_holder(&child, &role);
	start = test_now_ms();
	assert_int_equal(vb_local_withdraw_mr(nic.carrier, RKEY), -EBUSY);
	assert_true(test_now_ms() - start >= VB_LOCAL_WITHDRAW_MS);
	assert_int_equal(vb_local_quiesce_qp(nic.carrier, qpn ^ 1), 0);
	test_send(child.fd, "c", 1);
	assert_true(test_receive(child.fd, &c, 1));
	assert_int_equal(vb_local_withdraw_mr(nic.carrier, RKEY), 0); /* the second attempt */
	assert_int_equal(vb_local_quiesce_qp(nic.carrier, qpn), 0);
	test_send(child.fd, "q", 1);
	assert_int_equal(test_join_child(&child), 0);

	start_holder(&child, &role);
	test_kill(&child);
	assert_int_equal(vb_local_quiesce_qp(nic.carrier, qpn), 0);
	assert_int_equal(vb_local_withdraw_mr(nic.carrier, RKEY), 0);
	test_nic_close(&nic);
}

static void stop_holder(struct test_child *child, struct test_role *role)
{
	int status;

	assert_int_equal(test_nic_open(&nic, &role->address), 0);
	role->peer = nic.registry->slot;
	start_holder(child, role);
	assert_int_equal(kill(child->pid, SIGSTOP), 0);
	assert_int_equal(waitpid(child->pid, &status, WUNTRACED), child->pid);
	assert_true(WIFSTOPPED(status));
}

static void continue_holder(struct test_child *child)
{
	char c;

	assert_int_equal(kill(child->pid, SIGCONT), 0);
	test_send(child->fd, "c", 1);
	assert_true(test_receive(child->fd, &c, 1));
	test_send(child->fd, "q", 1);
	assert_int_equal(test_join_child(child), 0);
	test_nic_close(&nic);
}

/* Its hazard stands, but it does nothing: not before the memory is the program's again, and whoever
 * is stopped behind its copy has nothing more to do with it. */
static void nobody_waits_for_a_stopped_process(void **state)
{
	struct test_role role = {.address = test_address(51), .run = holder};
	struct test_child child;

	stop_holder(&child, &role);
	assert_int_equal(vb_local_withdraw_mr(nic.carrier, RKEY), 0);
	assert_int_equal(vb_local_quiesce_qp(nic.carrier, test_qpn(role.peer, ITS_INDEX)), 0);
	continue_holder(&child);
}

/* It was stopped before it knew that this region is none of those that it reaches itself. */
static void nor_for_one_that_shares_other_pages(void **state)
{
	struct test_role role = {.address = test_address(58), .run = holder, .number = 1};
	struct vb_local_mr mr = region();
	struct test_child child;

	stop_holder(&child, &role);
	assert_int_equal(vb_local_withdraw_mr(nic.carrier, RKEY), 0);
	mr.shared = true;
	assert_int_equal(vb_local_publish_mr(nic.carrier, &mr), 0);
	assert_int_equal(vb_local_withdraw_mr(nic.carrier, RKEY), -EBUSY);
	continue_holder(&child);
}

/* Copies when it is told to, under the eyes of its owner, and says what came of it. */
static void traced_copier(struct test_nic *n, int fd, struct test_role *role)
{
	static uint8_t data[4096];
	struct iovec part = {data, sizeof(data)};
	uint32_t from = test_qpn(n->registry->slot, OUR_INDEX);
	uint32_t to = test_qpn(role->peer, ITS_INDEX);
	ssize_t result;
	char c;

	memset(data, 0x22, sizeof(data));
	if (!test_receive(fd, &c, 1) || ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(2);
	/* this one is only looked at by the kernel: every page and file is there */
	if (vb_local_direct(n->carrier, true, from, to, RKEY, IOVA, &part, 1, 8) != 8)
		_exit(3);
	raise(SIGSTOP);
	result = vb_local_direct(n->carrier, role->number, from, to, RKEY, IOVA, &part, 1,
				 sizeof(data));
	raise(SIGSTOP);
	/* and nothing is broken */
	test_send(fd, &result, sizeof(result));
	if (!test_receive(fd, &c, 1))
		_exit(4);
	result = vb_local_direct(n->carrier, true, from, to, RKEY, IOVA, &part, 1, sizeof(data));
	test_send(fd, &result, sizeof(result));
	(void)test_receive(fd, &c, 1);
	test_nic_close(n);
}

/* To where the child enters that system call. */
static void run_to_call(pid_t pid, uint64_t number)
{
	struct __ptrace_syscall_info info = {0};
	int status;

	for (int i = 0; i < 1000; i++) {
		assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSTOPPED(status));
		assert_int_equal(WSTOPSIG(status), SIGTRAP | 0x80);
		assert_true(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) > 0);
		if (info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr == number)
			return;
	}
	fail_msg("the copy never came");
}

/* Stopped after every check and before the kernel looks at where to copy. The region is taken back,
 * and a copy afterwards would write into, or read, what is no longer shown. */
static void stop_before_copy(bool write)
{
	struct test_role role = {
		.address = test_address(52), .run = traced_copier, .number = write};
	struct vb_local_mr mr = region();
	struct vb_local_qp qp;
	struct test_child child;
	ssize_t result = 0;
	int status;

	assert_int_equal(test_nic_open(&nic, &role.address), 0);
	role.peer = nic.registry->slot;
	qp = its_qp(nic.registry->slot, test_start_nic(&child, &role));
	vb_local_publish_qp(nic.carrier, &qp);
	assert_int_equal(vb_local_publish_mr(nic.carrier, &mr), 0);
	test_send(child.fd, "g", 1);
	assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(ptrace(PTRACE_SETOPTIONS, child.pid, NULL, PTRACE_O_TRACESYSGOOD), 0);
	run_to_call(child.pid, write ? SYS_process_vm_writev : SYS_process_vm_readv);

	assert_int_equal(vb_local_withdraw_mr(nic.carrier, RKEY), 0);
	memset(shared, 0x11, 65536);
	assert_int_equal(ptrace(PTRACE_CONT, child.pid, NULL, NULL), 0);
	assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
	assert_true(WIFSTOPPED(status));
	assert_true(is_all(shared, 0x11, 65536));
	assert_int_equal(ptrace(PTRACE_DETACH, child.pid, NULL, NULL), 0);
	assert_true(test_receive(child.fd, &result, sizeof(result)));
	assert_true(result < 0);

	assert_int_equal(vb_local_publish_mr(nic.carrier, &mr), 0);
	test_send(child.fd, "g", 1);
	assert_true(test_receive(child.fd, &result, sizeof(result)));
	assert_int_equal(result, 4096);
	assert_true(is_all(shared, 0x22, 4096));
	test_send(child.fd, "q", 1);
	assert_int_equal(test_join_child(&child), 0);
	test_nic_close(&nic);
}

static void a_copy_that_was_stopped_before_it_began_never_begins(void **state)
{
	stop_before_copy(true);
	stop_before_copy(false);
}

static int set_up(void **state)
{
	shared = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return shared == MAP_FAILED;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_process_is_written_and_read),
		cmocka_unit_test(nothing_is_written_after_exec),
		cmocka_unit_test(a_thread_says_that_its_process_lives),
		cmocka_unit_test(our_own_regions_are_written_and_read),
		cmocka_unit_test(nothing_is_written_after_withdrawal),
		cmocka_unit_test(an_access_that_does_not_end_is_waited_for_and_a_dead_one_is_not),
		cmocka_unit_test(nobody_waits_for_a_stopped_process),
		cmocka_unit_test(nor_for_one_that_shares_other_pages),
		cmocka_unit_test(a_copy_that_was_stopped_before_it_began_never_begins),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
