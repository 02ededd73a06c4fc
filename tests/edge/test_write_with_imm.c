/* SPDX-License-Identifier: BSD-2-Clause */
/* WRITE with immediate: any length, an SRQ, a receive without SGEs. */
#include "edge.h"

#include <arpa/inet.h>
#include <sys/mman.h>

#define LARGE (8u << 20)

static void write_with_imm(struct edge_pair *pair, uint32_t length, struct ibv_mr *from,
			   struct ibv_mr *to)
{
	struct ibv_sge sge = {(uintptr_t)from->addr, length, from->lkey};
	struct ibv_send_wr *bad_send;
	struct ibv_recv_wr *bad_recv;
	struct ibv_recv_wr recv = {.wr_id = length};
	struct ibv_send_wr send = {
		.wr_id = 77,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(0xcafe0000u + length),
		.wr.rdma = {(uintptr_t)to->addr, to->rkey},
	};
	struct ibv_wc wc;

	memset(from->addr, (int)(length % 251) + 1, length);
	memset(to->addr, 0, (size_t)length + 1);
	if (pair->b.srq)
		assert_int_equal(ibv_post_srq_recv(pair->b.srq, &recv, &bad_recv), 0);
	else
		assert_int_equal(ibv_post_recv(pair->b.qp, &recv, &bad_recv), 0);
	assert_int_equal(ibv_post_send(pair->a.qp, &send, &bad_send), 0);
	wc = edge_expect(pair->b.cq, length, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_true(wc.wc_flags & IBV_WC_WITH_IMM);
	assert_int_equal(ntohl(wc.imm_data), 0xcafe0000u + length);
	assert_int_equal(wc.byte_len, length);
	assert_memory_equal(to->addr, from->addr, length);
	assert_int_equal(((uint8_t *)to->addr)[length], 0);
	edge_expect(pair->a.cq, 77, IBV_WC_SUCCESS);
}

static void all_lengths(bool srq)
{
	static const uint32_t lengths[] = {0, 1, 1023, 1024, 1025, 5000, LARGE};
	struct edge_pair pair;
	uint8_t *memory = mmap(NULL, 2 * (size_t)LARGE + 8192, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *from, *to;

	assert_true(memory != MAP_FAILED);
	edge_open(&pair, &(struct edge_options){.srq_at_b = srq});
	from = ibv_reg_mr(pair.a.pd, memory, LARGE, EDGE_ALL_ACCESS);
	to = ibv_reg_mr(pair.b.pd, memory + LARGE, (size_t)LARGE + 4096, EDGE_ALL_ACCESS);
	assert_non_null(from);
	assert_non_null(to);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		write_with_imm(&pair, lengths[i], from, to);
	assert_int_equal(ibv_dereg_mr(from), 0);
	assert_int_equal(ibv_dereg_mr(to), 0);
	edge_close(&pair);
	munmap(memory, 2 * (size_t)LARGE + 8192);
}

static void own_receive_queue(void **state)
{
	all_lengths(false);
}

static void shared_receive_queue(void **state)
{
	all_lengths(true);
}

static void receive_buffer_is_untouched(void **state)
{
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){0});
	memset(pair.b.buffer + 8192, 0x5a, 64);
	memset(pair.a.buffer, 0x11, 64);
	edge_post_recv(&pair.b, 3, 8192, 64);
	assert_int_equal(edge_post(&pair.a, &pair.b, 4, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 64), 0);
	edge_expect(pair.b.cq, 3, IBV_WC_SUCCESS);
	for (int i = 0; i < 64; i++)
		assert_int_equal(pair.b.buffer[8192 + i], 0x5a);
	assert_memory_equal(pair.b.buffer, pair.a.buffer, 64);
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(own_receive_queue),
		cmocka_unit_test(shared_receive_queue),
		cmocka_unit_test(receive_buffer_is_untouched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
