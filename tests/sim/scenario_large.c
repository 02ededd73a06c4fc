/* SPDX-License-Identifier: BSD-2-Clause */
/* scenario_large.c - messages of thousands of packets, over wires that lose some: more than a
 * seed's world has. */
#define _GNU_SOURCE
#include "scenario.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGE (6u << 20)
#define LONGEST (1u << 31)
#define TILE (256u << 10)

struct large {
	struct scenario *s;
	struct vb_mr *mr[2];
	uint8_t *memory[2];
};

static struct large begin(const struct scenario_options *options, uint32_t loss, uint32_t reorder)
{
	struct large l = {.s = scenario_begin(options)};

	for (int i = 0; i < 2; i++) {
		struct vb_link *link = &l.s->net.links[i][!i];

		l.memory[i] = malloc(LARGE);
		assert_non_null(l.memory[i]);
		for (uint32_t k = 0; k < LARGE; k++)
			l.memory[i][k] = (uint8_t)(i ? k * 3 + (k >> 8) : k * 5 + (k >> 9));
		l.mr[i] = vb_mr_create(l.s->pd[i], l.memory[i], LARGE, 0x7000000,
				       VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL);
		link->filter = NULL; /* nothing is written down: it would be too much */
		link->rate = 100000000000;
		link->faulty = true;
		link->faults = (struct vb_link_faults){
			.loss = loss, .reorder = reorder, .reorder_ns = 5000};
	}
	return l;
}

static void end(struct large *l)
{
	for (int i = 0; i < 2; i++) {
		vb_mr_destroy(l->mr[i]);
		free(l->memory[i]);
	}
	scenario_end(l->s);
}

static void move(struct large *l, enum vb_wr_opcode opcode, uint32_t bytes)
{
	const struct vb_sge sge = {l->mr[A]->iova, bytes, l->mr[A]->lkey};
	const struct vb_send_wr wr = {
		.wr_id = 1,
		.sges = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.flags = VB_SEND_SIGNALED,
		.remote_addr = l->mr[B]->iova,
		.rkey = l->mr[B]->rkey,
	};

	scenario_post(l->s, A, &wr);
	scenario_run(l->s);
	scenario_expect(l->s, A, 0, 1, VB_WC_SUCCESS);
	assert_memory_equal(l->memory[A], l->memory[B], bytes);
}

static void with_loss(enum vb_wr_opcode opcode, enum vb_mtu mtu, uint32_t window, uint32_t bytes)
{
	const struct scenario_options options = {
		.retry_cnt = 7, .rnr_retry = 7, .mtu = mtu, .window = window};
	struct large l = begin(&options, 3000, 3000);

	if (opcode == VB_WR_SEND) {
		const struct vb_sge sge = {l.mr[B]->iova, bytes, l.mr[B]->lkey};
		const struct vb_recv_wr wr = {.wr_id = 2, .sges = &sge, .num_sge = 1};

		assert_int_equal(vb_qp_post_recv(l.s->qp[B], &wr), 0);
	}
	move(&l, opcode, bytes);
	if (opcode == VB_WR_SEND)
		assert_int_equal(scenario_expect(l.s, B, 0, 2, VB_WC_SUCCESS)->byte_len, bytes);
	end(&l);
}

static void send_of_20000_packets(void **state)
{
	with_loss(VB_WR_SEND, VB_MTU_256, 0, 20000 * 256 - 1);
}

static void write_of_6_mib(void **state)
{
	with_loss(VB_WR_RDMA_WRITE, VB_MTU_1024, 256 << 10, LARGE);
}

static void read_of_6_mib(void **state)
{
	with_loss(VB_WR_RDMA_READ, VB_MTU_1024, 256 << 10, LARGE - 3);
}

static void read_of_20000_packets_with_a_small_window(void **state)
{
	with_loss(VB_WR_RDMA_READ, VB_MTU_256, 4096, 20000 * 256 + 1);
}

/* Without loss nothing is sent twice, whatever the window. */
static void nothing_sent_twice_without_loss(void **state)
{
	static const uint32_t windows[] = {0, 1, 5000, 65536};

	for (uint32_t i = 0; i < VB_ARRAY_SIZE(windows); i++) {
		const struct scenario_options options = {.retry_cnt = 7, .window = windows[i]};
		struct large l = begin(&options, 0, 0);

		move(&l, i % 2 ? VB_WR_RDMA_READ : VB_WR_RDMA_WRITE, LARGE);
		assert_int_equal(l.s->net.nodes[A].nic->counters.retries, 0);
		assert_int_equal(l.s->net.nodes[B].nic->counters.rx_duplicate, 0);
		end(&l);
	}
}

/* 2 GiB of addresses over 256 KiB of memory, so that it stays in the cache. */
static uint8_t *tiled(void)
{
	int fd = memfd_create("tile", MFD_CLOEXEC);
	uint8_t *at =
		mmap(NULL, LONGEST, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_true(fd >= 0 && at != MAP_FAILED);
	assert_int_equal(ftruncate(fd, TILE), 0);
	for (uint64_t k = 0; k < LONGEST; k += TILE)
		assert_ptr_equal(mmap(at + k, TILE, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0),
				 at + k);
	close(fd);
	return at;
}

/* The longest message: every length and offset of 31 bits and one more. One byte more is refused.
 */
static void longest(enum vb_wr_opcode opcode)
{
	const struct scenario_options options = {
		.retry_cnt = 7, .rnr_retry = 7, .segment = 16384, .window = 128 << 10};
	struct scenario *s = scenario_begin(&options);
	uint8_t *memory[2];
	struct vb_mr *mr[2];
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, A, opcode, 1, LONGEST, &sge);
	struct vb_recv_wr recv = {.wr_id = 2, .sges = &sge, .num_sge = 1};

	for (int i = 0; i < 2; i++) {
		s->net.links[i][!i].filter = NULL;
		memory[i] = tiled();
		for (uint32_t k = 0; k < TILE; k++)
			memory[i][k] = (uint8_t)(i ? 0 : k * 7 + (k >> 10));
		mr[i] = vb_mr_create(s->pd[i], memory[i], LONGEST, 1,
				     VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL);
	}
	if (opcode == VB_WR_SEND) {
		sge = (struct vb_sge){1, LONGEST, mr[B]->lkey};
		assert_int_equal(vb_qp_post_recv(s->qp[B], &recv), 0);
	}
	sge = (struct vb_sge){1, LONGEST, mr[A]->lkey};
	wr.remote_addr = 1;
	wr.rkey = mr[B]->rkey;
	scenario_post(s, A, &wr);
	scenario_run(s);
	assert_int_equal(scenario_expect(s, A, 0, 1, VB_WC_SUCCESS)->byte_len, LONGEST);
	if (opcode == VB_WR_SEND)
		assert_int_equal(scenario_expect(s, B, 0, 2, VB_WC_SUCCESS)->byte_len, LONGEST);
	assert_memory_equal(memory[A], memory[B], TILE);
	sge.length++;
	scenario_post(s, A, &wr);
	scenario_run(s);
	scenario_expect(s, A, 1, 1, VB_WC_LOC_LEN_ERR);
	for (int i = 0; i < 2; i++) {
		vb_mr_destroy(mr[i]);
		munmap(memory[i], LONGEST);
	}
	scenario_end(s);
}

static void longest_write(void **state)
{
	longest(VB_WR_RDMA_WRITE);
}

static void longest_read(void **state)
{
	longest(VB_WR_RDMA_READ);
}

static void longest_send(void **state)
{
	longest(VB_WR_SEND);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(send_of_20000_packets),
		cmocka_unit_test(write_of_6_mib),
		cmocka_unit_test(read_of_6_mib),
		cmocka_unit_test(read_of_20000_packets_with_a_small_window),
		cmocka_unit_test(nothing_sent_twice_without_loss),
		cmocka_unit_test(longest_write),
		cmocka_unit_test(longest_read),
		cmocka_unit_test(longest_send),
	};

	/* The packets' memory stays: giving it back after each burst costs more than all the rest.
	 */
	mallopt(M_TRIM_THRESHOLD, 64 << 20);
	mallopt(M_TOP_PAD, 16 << 20);
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
