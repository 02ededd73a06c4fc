/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_tag_matching.c - tagged buffers on an SRQ, and messages that find them or not. Expected
 * values are those of rdma-core's tag_matching.md, ibv_post_srq_ops(3) and rdma-core's own tests.
 */
#include "edge.h"

#include <endian.h>
#include <infiniband/tm_types.h>

#define TMH_BYTES sizeof(struct ibv_tmh)
#define HEADERS_BYTES (sizeof(struct ibv_tmh) + sizeof(struct ibv_rvh))
#define ORDINARY_AT 0u	       /* of b's buffer: one ordinary receive */
#define TAGGED_AT (512u << 10) /* of b's buffer */
#define DATA_AT (512u << 10)   /* of a's buffer: what is offered by rendezvous */
#define MTU 1024u
#define PRIVATE 0xabcd1234u

struct fixture {
	struct edge_pair pair;
	uint32_t dealt_with; /* unexpected messages */
};

static void open_fixture(struct fixture *f)
{
	const struct edge_options options = {
		.srq_at_b = true, .tm_at_b = true, .srq_in_own_pd = true, .mtu = IBV_MTU_1024};

	memset(f, 0, sizeof(*f));
	edge_open(&f->pair, &options);
	for (uint32_t i = 0; i < EDGE_BUFFER; i++)
		f->pair.a.buffer[i] = (uint8_t)(i * 7 + (i >> 8));
	memset(f->pair.b.buffer, 0xee, EDGE_BUFFER);
}

struct seen {
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	uint64_t wr_id, tag;
	unsigned int flags;
	uint32_t priv, byte_len;
};

/* The next completion of the SRQ. */
static struct seen next(struct fixture *f)
{
	struct ibv_cq_ex *cq = f->pair.b.tm_cq;
	const double until = edge_seconds() + 20;
	struct ibv_poll_cq_attr attr = {0};
	struct ibv_wc_tm_info info;
	struct seen seen;
	int rc;

	do {
		rc = ibv_start_poll(cq, &attr);
	} while (rc == ENOENT && edge_seconds() < until);
	assert_int_equal(rc, 0);
	ibv_wc_read_tm_info(cq, &info);
	seen = (struct seen){
		.status = cq->status,
		.opcode = ibv_wc_read_opcode(cq),
		.wr_id = cq->wr_id,
		.tag = info.tag,
		.flags = ibv_wc_read_wc_flags(cq),
		.priv = info.priv,
		.byte_len = ibv_wc_read_byte_len(cq),
	};
	ibv_end_poll(cq);
	return seen;
}

static struct seen expect(struct fixture *f, enum ibv_wc_opcode opcode, uint64_t wr_id,
			  unsigned int flags)
{
	struct seen seen = next(f);

	assert_int_equal(seen.status, IBV_WC_SUCCESS);
	assert_int_equal(seen.opcode, opcode);
	assert_int_equal(seen.wr_id, wr_id);
	assert_int_equal(seen.flags, flags);
	return seen;
}

static int add(struct fixture *f, uint64_t wr_id, uint64_t tag, uint64_t mask, uint32_t length,
	       uint32_t *handle)
{
	struct ibv_sge sge = {(uintptr_t)f->pair.b.buffer + TAGGED_AT, length,
			      f->pair.b.srq_mr->lkey};
	struct ibv_ops_wr *bad = NULL, wr = {
					       .wr_id = wr_id + 1000,
					       .opcode = IBV_WR_TAG_ADD,
					       .flags = IBV_OPS_SIGNALED,
					       .tm = {.add = {wr_id, &sge, 1, tag, mask}},
				       };
	int rc = ibv_post_srq_ops(f->pair.b.srq, &wr, &bad);

	if (handle)
		*handle = wr.tm.handle;
	if (rc)
		assert_ptr_equal(bad, &wr);
	return rc;
}

static void add_well(struct fixture *f, uint64_t wr_id, uint64_t tag, uint32_t length)
{
	assert_int_equal(add(f, wr_id, tag, UINT64_MAX, length, NULL), 0);
	expect(f, IBV_WC_TM_ADD, wr_id + 1000, 0);
}

static struct seen operate(struct fixture *f, enum ibv_ops_wr_opcode opcode, uint32_t handle)
{
	struct ibv_ops_wr *bad, wr = {
					.wr_id = 77,
					.opcode = opcode,
					.flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC,
					.tm = {.unexpected_cnt = f->dealt_with, .handle = handle},
				};

	assert_int_equal(ibv_post_srq_ops(f->pair.b.srq, &wr, &bad), 0);
	return next(f);
}

static void write_header(uint8_t *at, uint8_t operation, uint64_t tag)
{
	struct ibv_tmh tmh = {
		.opcode = operation, .app_ctx = htobe32(PRIVATE), .tag = htobe64(tag)};

	memcpy(at, &tmh, sizeof(tmh));
}

/* length bytes of a's buffer, which begin with the header. */
static void send_message(struct fixture *f, uint8_t operation, uint64_t tag, uint32_t length)
{
	write_header(f->pair.a.buffer, operation, tag);
	assert_int_equal(edge_post(&f->pair.a, &f->pair.b, 5, IBV_WR_SEND, 0, length), 0);
}

static void send_well(struct fixture *f, uint8_t operation, uint64_t tag, uint32_t length)
{
	send_message(f, operation, tag, length);
	edge_expect(f->pair.a.cq, 5, IBV_WC_SUCCESS);
}

/* The headers lie at from of a's buffer. */
static void offer_from(struct fixture *f, uint32_t from, uint64_t tag, uint32_t length)
{
	struct ibv_rvh rvh = {
		.va = htobe64((uintptr_t)f->pair.a.buffer + DATA_AT),
		.rkey = htobe32(f->pair.a.mr->rkey),
		.len = htobe32(length),
	};

	write_header(f->pair.a.buffer + from, IBV_TMH_RNDV, tag);
	memcpy(f->pair.a.buffer + from + TMH_BYTES, &rvh, sizeof(rvh));
	assert_int_equal(edge_post(&f->pair.a, &f->pair.b, 5, IBV_WR_SEND, from, HEADERS_BYTES + 8),
			 0);
}

static void offer(struct fixture *f, uint64_t tag, uint32_t length)
{
	offer_from(f, 0, tag, length);
}

static void offered(struct fixture *f)
{
	edge_expect(f->pair.a.cq, 5, IBV_WC_SUCCESS);
}

static void assert_byte(const uint8_t *at, uint8_t value)
{
	assert_int_equal(*at, value);
}

/* --- eager ------------------------------------------------------------------------------- */

static void a_match_takes_the_data_alone(void **state)
{
	struct fixture f;
	struct seen seen;

	open_fixture(&f);
	edge_post_recv(&f.pair.b, 1, ORDINARY_AT, 4096);
	add_well(&f, 2, 0x1234567890abcdef, 500);
	send_well(&f, IBV_TMH_EAGER, 0x1234567890abcdef, TMH_BYTES + 300);
	seen = expect(&f, IBV_WC_TM_RECV, 2, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
	assert_int_equal(seen.tag, 0x1234567890abcdef);
	assert_int_equal(seen.priv, PRIVATE);
	assert_int_equal(seen.byte_len, 300);
	assert_memory_equal(f.pair.b.buffer + TAGGED_AT, f.pair.a.buffer + TMH_BYTES, 300);
	assert_byte(f.pair.b.buffer + TAGGED_AT + 300, 0xee);
	assert_byte(f.pair.b.buffer + ORDINARY_AT, 0xee);
	edge_close(&f.pair);
}

/* Of several packets: the match is told at once, the data when it is there. */
static void a_long_match_is_told_twice(void **state)
{
	const uint32_t bytes = 9 * MTU + 17; /* of one path MTU or of the local carrier's pieces */
	const uint32_t longer = 40000;
	struct fixture f;
	struct seen seen;

	open_fixture(&f);
	add_well(&f, 2, 9, bytes + longer);
	send_well(&f, IBV_TMH_EAGER, 9, TMH_BYTES + bytes + longer);
	seen = expect(&f, IBV_WC_TM_RECV, 2, IBV_WC_TM_MATCH);
	assert_int_equal(seen.tag, 9);
	seen = expect(&f, IBV_WC_TM_RECV, 2, IBV_WC_TM_DATA_VALID);
	assert_int_equal(seen.byte_len, bytes + longer);
	assert_memory_equal(f.pair.b.buffer + TAGGED_AT, f.pair.a.buffer + TMH_BYTES,
			    bytes + longer);
	edge_close(&f.pair);
}

/* TMH.tag & mask == tag, and the buffer that was added first. */
static void the_first_that_fits_is_taken(void **state)
{
	struct fixture f;

	open_fixture(&f);
	add_well(&f, 2, 0x0101, 100);
	assert_int_equal(add(&f, 3, 0x0200, 0xff00, 100, NULL), 0);
	expect(&f, IBV_WC_TM_ADD, 1003, 0);
	assert_int_equal(add(&f, 4, 0, 0, 100, NULL), 0);
	expect(&f, IBV_WC_TM_ADD, 1004, 0);
	send_well(&f, IBV_TMH_EAGER, 0x0299, 64);
	expect(&f, IBV_WC_TM_RECV, 3, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
	send_well(&f, IBV_TMH_EAGER, 0x0299, 64);
	expect(&f, IBV_WC_TM_RECV, 4, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
	send_well(&f, IBV_TMH_EAGER, 0x0101, 64);
	expect(&f, IBV_WC_TM_RECV, 2, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
	edge_close(&f.pair);
}

static void too_short_a_buffer_is_an_error(void **state)
{
	struct fixture f;
	struct seen seen;

	open_fixture(&f);
	add_well(&f, 2, 7, 99);
	send_message(&f, IBV_TMH_EAGER, 7, TMH_BYTES + 100);
	edge_expect(f.pair.a.cq, 5, IBV_WC_REM_INV_REQ_ERR);
	seen = next(&f);
	assert_int_equal(seen.status, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(seen.wr_id, 2);
	assert_byte(f.pair.b.buffer + TAGGED_AT, 0xee);
	edge_close(&f.pair);
}

/* --- messages that are not matched ------------------------------------------------------- */

static void what_has_no_tag_comes_whole(void **state)
{
	struct fixture f;
	struct seen seen;

	open_fixture(&f);
	add_well(&f, 2, 0, 100);
	edge_post_recv(&f.pair.b, 1, ORDINARY_AT, 4096);
	send_well(&f, IBV_TMH_NO_TAG, 0, 50);
	seen = expect(&f, IBV_WC_TM_NO_TAG, 1, 0);
	assert_int_equal(seen.byte_len, 50);
	assert_memory_equal(f.pair.b.buffer + ORDINARY_AT, f.pair.a.buffer, 50);
	/* Shorter than a header: whatever it says, it has no tag. */
	edge_post_recv(&f.pair.b, 3, ORDINARY_AT, 4096);
	send_well(&f, IBV_TMH_EAGER, 0, TMH_BYTES - 1);
	expect(&f, IBV_WC_TM_NO_TAG, 3, 0);
	edge_close(&f.pair);
}

static void the_unexpected_stops_new_buffers(void **state)
{
	struct fixture f;
	struct seen seen;

	open_fixture(&f);
	add_well(&f, 2, 8, 100);
	edge_post_recv(&f.pair.b, 1, ORDINARY_AT, 4096);
	send_well(&f, IBV_TMH_EAGER, 7, 64);
	seen = expect(&f, IBV_WC_TM_RECV, 1, 0);
	assert_int_equal(seen.byte_len, 64);
	assert_memory_equal(f.pair.b.buffer + ORDINARY_AT, f.pair.a.buffer, 64);

	/* The program does not yet know of it: a buffer that it adds must wait, old ones do not. */
	assert_int_equal(add(&f, 3, 7, UINT64_MAX, 100, NULL), 0);
	expect(&f, IBV_WC_TM_ADD, 1003, IBV_WC_TM_SYNC_REQ);
	send_well(&f, IBV_TMH_EAGER, 8, 64);
	expect(&f, IBV_WC_TM_RECV, 2, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
	edge_post_recv(&f.pair.b, 4, ORDINARY_AT, 4096);
	send_well(&f, IBV_TMH_EAGER, 7, 64);
	expect(&f, IBV_WC_TM_RECV, 4, 0);

	f.dealt_with = 1; /* of two */
	seen = operate(&f, IBV_WR_TAG_SYNC, 0);
	assert_int_equal(seen.opcode, IBV_WC_TM_SYNC);
	assert_int_equal(seen.flags, IBV_WC_TM_SYNC_REQ);
	f.dealt_with = 2;
	seen = operate(&f, IBV_WR_TAG_SYNC, 0);
	assert_int_equal(seen.flags, 0);
	assert_int_equal(seen.wr_id, 77);
	send_well(&f, IBV_TMH_EAGER, 7, 64);
	expect(&f, IBV_WC_TM_RECV, 3, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
	edge_close(&f.pair);
}

static void a_buffer_can_be_taken_back(void **state)
{
	struct fixture f;
	struct seen seen;
	uint32_t first, second;

	open_fixture(&f);
	assert_int_equal(add(&f, 2, 7, UINT64_MAX, 100, &first), 0);
	expect(&f, IBV_WC_TM_ADD, 1002, 0);
	assert_int_equal(add(&f, 3, 7, UINT64_MAX, 100, &second), 0);
	expect(&f, IBV_WC_TM_ADD, 1003, 0);
	assert_int_not_equal(first, second);
	seen = operate(&f, IBV_WR_TAG_DEL, first);
	assert_int_equal(seen.status, IBV_WC_SUCCESS);
	assert_int_equal(seen.opcode, IBV_WC_TM_DEL);
	send_well(&f, IBV_TMH_EAGER, 7, 64);
	expect(&f, IBV_WC_TM_RECV, 3, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
	/* Gone, one taken back and one used; and one that never was. */
	assert_int_equal(operate(&f, IBV_WR_TAG_DEL, first).status, IBV_WC_TM_ERR);
	assert_int_equal(operate(&f, IBV_WR_TAG_DEL, second).status, IBV_WC_TM_ERR);
	assert_int_equal(operate(&f, IBV_WR_TAG_DEL, UINT32_MAX).status, IBV_WC_TM_ERR);
	edge_close(&f.pair);
}

/* --- rendezvous -------------------------------------------------------------------------- */

static void rendezvous_fetches_the_data(void **state)
{
	const uint32_t bytes = 300001;
	struct ibv_tmh fin;
	struct fixture f;
	struct seen seen;

	open_fixture(&f);
	add_well(&f, 2, 7, bytes + 1);
	edge_post_recv(&f.pair.a, 6, 4096, 128);
	offer(&f, 7, bytes);
	offered(&f);
	seen = expect(&f, IBV_WC_TM_RECV, 2, IBV_WC_TM_MATCH);
	assert_int_equal(seen.tag, 7);
	assert_int_equal(seen.priv, PRIVATE);
	seen = expect(&f, IBV_WC_TM_RECV, 2, IBV_WC_TM_DATA_VALID);
	assert_int_equal(seen.byte_len, bytes);
	assert_memory_equal(f.pair.b.buffer + TAGGED_AT, f.pair.a.buffer + DATA_AT, bytes);
	assert_byte(f.pair.b.buffer + TAGGED_AT + bytes, 0xee);

	assert_int_equal(edge_expect(f.pair.a.cq, 6, IBV_WC_SUCCESS).byte_len, HEADERS_BYTES);
	memcpy(&fin, f.pair.a.buffer + 4096, sizeof(fin));
	assert_int_equal(fin.opcode, IBV_TMH_FIN);
	assert_int_equal(be64toh(fin.tag), 7);
	assert_memory_equal(f.pair.a.buffer + 4096 + 1, f.pair.a.buffer + 1, HEADERS_BYTES - 1);
	edge_close(&f.pair);
}

/* Sixteen under way, five times: places in the NIC's own send queue come back. */
static void many_rendezvous_at_once(void **state)
{
	enum { AT_ONCE = 16, ROUNDS = 5 };
	struct fixture f;

	open_fixture(&f);
	for (unsigned int round = 0; round < ROUNDS; round++) {
		unsigned int matched = 0, valid = 0;

		for (unsigned int i = 0; i < AT_ONCE; i++) {
			add_well(&f, i, i, 4096);
			edge_post_recv(&f.pair.a, 100 + i, 4096, 128);
		}
		for (unsigned int i = 0; i < AT_ONCE; i++)
			offer_from(&f, i * 64, i, 4096);
		while (matched < AT_ONCE || valid < AT_ONCE) {
			struct seen seen = next(&f);

			assert_int_equal(seen.status, IBV_WC_SUCCESS);
			assert_int_equal(seen.wr_id,
					 seen.flags == IBV_WC_TM_MATCH ? matched++ : valid++);
		}
		/* What was sent, and the FINs. */
		for (unsigned int i = 0; i < 2 * AT_ONCE; i++)
			assert_int_equal(edge_wait(f.pair.a.cq).status, IBV_WC_SUCCESS);
	}
	edge_close(&f.pair);
}

static void rendezvous_into_too_little(void **state)
{
	struct fixture f;
	struct seen seen;

	open_fixture(&f);
	add_well(&f, 2, 7, 1000);
	offer(&f, 7, 1001);
	offered(&f);
	seen = next(&f);
	assert_int_equal(seen.status, IBV_WC_TM_RNDV_INCOMPLETE);
	assert_int_equal(seen.wr_id, 2);
	assert_memory_equal(f.pair.b.buffer + TAGGED_AT, f.pair.a.buffer, HEADERS_BYTES);
	assert_byte(f.pair.b.buffer + TAGGED_AT + HEADERS_BYTES, 0xee);
	assert_int_equal(edge_state(f.pair.b.qp), IBV_QPS_RTS);
	add_well(&f, 3, 7, 1000);
	send_well(&f, IBV_TMH_EAGER, 7, 64);
	expect(&f, IBV_WC_TM_RECV, 3, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
	edge_close(&f.pair);
}

/* The sender names memory that it may not: the READ fails, and the buffer with it. */
static void rendezvous_with_a_wrong_key(void **state)
{
	struct fixture f;
	struct seen seen;

	open_fixture(&f);
	add_well(&f, 2, 7, 1000);
	f.pair.a.mr->rkey ^= 0x80000000u;
	offer(&f, 7, 1000);
	offered(&f);
	expect(&f, IBV_WC_TM_RECV, 2, IBV_WC_TM_MATCH);
	seen = next(&f);
	assert_int_equal(seen.status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(seen.wr_id, 2);
	assert_byte(f.pair.b.buffer + TAGGED_AT, 0xee);
	edge_close(&f.pair);
}

/* --- what is refused --------------------------------------------------------------------- */

static struct ibv_srq *create(struct fixture *f, uint32_t without, struct ibv_tm_cap cap)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = {.max_wr = 4, .max_sge = 1},
		.comp_mask = (IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			      IBV_SRQ_INIT_ATTR_TM) &
			     ~without,
		.srq_type = IBV_SRQT_TM,
		.pd = f->pair.b.pd,
		.cq = f->pair.b.cq,
		.tm_cap = cap,
	};

	errno = 0;
	return ibv_create_srq_ex(f->pair.b.context, &attr);
}

static void creation_checks_its_arguments(void **state)
{
	struct ibv_device_attr_ex device;
	struct ibv_qp_init_attr init;
	struct fixture f;

	open_fixture(&f);
	assert_int_equal(ibv_query_device_ex(f.pair.b.context, NULL, &device), 0);
	assert_int_equal(device.tm_caps.flags, IBV_TM_CAP_RC);
	assert_true(device.tm_caps.max_rndv_hdr_size >= HEADERS_BYTES);
	assert_null(create(&f, IBV_SRQ_INIT_ATTR_CQ, (struct ibv_tm_cap){1, 1}));
	assert_int_equal(errno, EINVAL);
	assert_null(create(&f, IBV_SRQ_INIT_ATTR_TM, (struct ibv_tm_cap){1, 1}));
	assert_int_equal(errno, EINVAL);
	assert_null(create(&f, IBV_SRQ_INIT_ATTR_PD, (struct ibv_tm_cap){1, 1}));
	assert_int_equal(errno, EINVAL);
	assert_null(create(&f, 0, (struct ibv_tm_cap){0, 1}));
	assert_int_equal(errno, EINVAL);
	assert_null(create(&f, 0, (struct ibv_tm_cap){device.tm_caps.max_num_tags + 1, 1}));
	assert_int_equal(errno, EINVAL);
	assert_null(create(&f, 0, (struct ibv_tm_cap){1, device.tm_caps.max_ops + 1}));
	assert_int_equal(errno, EINVAL);

	/* Queue pairs on it: RC alone, without a send queue of the program's. */
	init = (struct ibv_qp_init_attr){
		.send_cq = f.pair.b.cq,
		.recv_cq = f.pair.b.cq,
		.srq = f.pair.b.srq,
		.cap = {.max_send_wr = 1, .max_send_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	assert_null(ibv_create_qp(f.pair.b.pd, &init));
	assert_int_equal(errno, EINVAL);
	init.cap.max_send_wr = 0;
	init.qp_type = IBV_QPT_UD;
	assert_null(ibv_create_qp(f.pair.b.pd, &init));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(edge_post(&f.pair.b, &f.pair.a, 1, IBV_WR_SEND, 0, 0), EINVAL);
	/* The CQ is in use as long as the SRQ is there. */
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(f.pair.b.tm_cq)), EBUSY);
	edge_close(&f.pair);
}

static void operations_check_their_arguments(void **state)
{
	struct ibv_sge sges[17] = {{0}};
	struct ibv_srq_init_attr basic = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_ops_wr *bad = NULL, wr = {.opcode = IBV_WR_TAG_SYNC};
	struct ibv_srq *srq;
	struct fixture f;

	open_fixture(&f);
	assert_int_equal(ibv_post_srq_ops(f.pair.b.srq, NULL, &bad), 0);
	wr.flags = 1 << 2;
	assert_int_equal(ibv_post_srq_ops(f.pair.b.srq, &wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr);
	wr.flags = 0;
	wr.opcode = IBV_WR_TAG_SYNC + 1;
	assert_int_equal(ibv_post_srq_ops(f.pair.b.srq, &wr, &bad), EINVAL);
	wr.opcode = IBV_WR_TAG_ADD;
	wr.tm.add.sg_list = sges;
	wr.tm.add.num_sge = 17; /* tm_caps.max_sge is 16 */
	assert_int_equal(ibv_post_srq_ops(f.pair.b.srq, &wr, &bad), EINVAL);
	wr.tm.add.num_sge = -1;
	assert_int_equal(ibv_post_srq_ops(f.pair.b.srq, &wr, &bad), EINVAL);
	wr.tm.add.num_sge = 0;
	for (unsigned int i = 0; i < 64; i++)
		assert_int_equal(ibv_post_srq_ops(f.pair.b.srq, &wr, &bad), 0);
	assert_int_equal(add(&f, 1, 1, 1, 1, NULL), ENOMEM);

	srq = ibv_create_srq(f.pair.b.pd, &basic);
	assert_non_null(srq);
	assert_int_equal(ibv_post_srq_ops(srq, &wr, &bad), EINVAL);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	edge_close(&f.pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_match_takes_the_data_alone),
		cmocka_unit_test(a_long_match_is_told_twice),
		cmocka_unit_test(the_first_that_fits_is_taken),
		cmocka_unit_test(too_short_a_buffer_is_an_error),
		cmocka_unit_test(what_has_no_tag_comes_whole),
		cmocka_unit_test(the_unexpected_stops_new_buffers),
		cmocka_unit_test(a_buffer_can_be_taken_back),
		cmocka_unit_test(rendezvous_fetches_the_data),
		cmocka_unit_test(many_rendezvous_at_once),
		cmocka_unit_test(rendezvous_into_too_little),
		cmocka_unit_test(rendezvous_with_a_wrong_key),
		cmocka_unit_test(creation_checks_its_arguments),
		cmocka_unit_test(operations_check_their_arguments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
