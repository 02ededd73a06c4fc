/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_qp_state.c - the whole table of moves, attribute by attribute, against ibv_modify_qp(3) and
 * IBTA table 91; the values; all or nothing; what a change of state sets in motion.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fake_nic.h"

#define RESET VB_QPS_RESET
#define INIT VB_QPS_INIT
#define RTR VB_QPS_RTR
#define RTS VB_QPS_RTS
#define SQD VB_QPS_SQD
#define SQE VB_QPS_SQE
#define ERR VB_QPS_ERR

#define CUR VB_QP_CUR_STATE
#define NOTIFY VB_QP_EN_SQD_ASYNC_NOTIFY
#define ACCESS VB_QP_ACCESS_FLAGS
#define PKEY VB_QP_PKEY_INDEX
#define PORT VB_QP_PORT
#define QKEY VB_QP_QKEY
#define AV VB_QP_AV
#define MTU VB_QP_PATH_MTU
#define TIMEOUT VB_QP_TIMEOUT
#define RETRY VB_QP_RETRY_CNT
#define RNR VB_QP_RNR_RETRY
#define RQ_PSN VB_QP_RQ_PSN
#define RD_ATOMIC VB_QP_MAX_QP_RD_ATOMIC
#define ALT VB_QP_ALT_PATH
#define MIN_RNR VB_QP_MIN_RNR_TIMER
#define SQ_PSN VB_QP_SQ_PSN
#define DEST_RD_ATOMIC VB_QP_MAX_DEST_RD_ATOMIC
#define MIG VB_QP_PATH_MIG_STATE
#define DEST VB_QP_DEST_QPN

/* What the specification has, ALT left out: this device has no alternate paths, and refuses it
 * everywhere. Every move that is not here and does not lead to RESET or ERR must be refused. */
static const struct expected {
	enum vb_qp_type type;
	enum vb_qp_state from, to;
	uint32_t required, optional;
} table[] = {
	{VB_QPT_RC, RESET, INIT, PKEY | PORT | ACCESS, 0},
	{VB_QPT_RC, INIT, INIT, 0, PKEY | PORT | ACCESS},
	{VB_QPT_RC, INIT, RTR, AV | MTU | DEST | RQ_PSN | DEST_RD_ATOMIC | MIN_RNR, ACCESS | PKEY},
	{VB_QPT_RC, RTR, RTS, TIMEOUT | RETRY | RNR | SQ_PSN | RD_ATOMIC,
	 CUR | ACCESS | MIN_RNR | MIG},
	{VB_QPT_RC, RTS, RTS, 0, CUR | ACCESS | MIN_RNR | MIG},
	{VB_QPT_RC, RTS, SQD, 0, NOTIFY},
	{VB_QPT_RC, SQD, SQD, 0,
	 PORT | AV | TIMEOUT | RETRY | RNR | RD_ATOMIC | DEST_RD_ATOMIC | ACCESS | PKEY | MIN_RNR |
		 MIG},
	{VB_QPT_RC, SQD, RTS, 0, CUR | ACCESS | MIN_RNR | MIG},

	{VB_QPT_UC, RESET, INIT, PKEY | PORT | ACCESS, 0},
	{VB_QPT_UC, INIT, INIT, 0, PKEY | PORT | ACCESS},
	{VB_QPT_UC, INIT, RTR, AV | MTU | DEST | RQ_PSN, ACCESS | PKEY},
	{VB_QPT_UC, RTR, RTS, SQ_PSN, CUR | ACCESS | MIG},
	{VB_QPT_UC, RTS, RTS, 0, CUR | ACCESS | MIG},
	{VB_QPT_UC, RTS, SQD, 0, NOTIFY},
	{VB_QPT_UC, SQD, SQD, 0, AV | ACCESS | PKEY | MIG},
	{VB_QPT_UC, SQD, RTS, 0, CUR | ACCESS | MIG},
	{VB_QPT_UC, SQE, RTS, 0, CUR | ACCESS},

	{VB_QPT_UD, RESET, INIT, PKEY | PORT | QKEY, 0},
	{VB_QPT_UD, INIT, INIT, 0, PKEY | PORT | QKEY},
	{VB_QPT_UD, INIT, RTR, 0, PKEY | QKEY},
	{VB_QPT_UD, RTR, RTS, SQ_PSN, CUR | QKEY},
	{VB_QPT_UD, RTS, RTS, 0, CUR | QKEY},
	{VB_QPT_UD, RTS, SQD, 0, NOTIFY},
	{VB_QPT_UD, SQD, SQD, 0, PKEY | QKEY},
	{VB_QPT_UD, SQD, RTS, 0, CUR | QKEY},
	{VB_QPT_UD, SQE, RTS, 0, CUR | QKEY},

	/* RC's, divided: what is about requests at one end, what is about responses at the other */
	{VB_QPT_XRC_SEND, RESET, INIT, PKEY | PORT | ACCESS, 0},
	{VB_QPT_XRC_SEND, INIT, INIT, 0, PKEY | PORT | ACCESS},
	{VB_QPT_XRC_SEND, INIT, RTR, AV | MTU | DEST | RQ_PSN, ACCESS | PKEY},
	{VB_QPT_XRC_SEND, RTR, RTS, TIMEOUT | RETRY | RNR | SQ_PSN | RD_ATOMIC, CUR | ACCESS | MIG},
	{VB_QPT_XRC_SEND, RTS, RTS, 0, CUR | ACCESS | MIG},
	{VB_QPT_XRC_SEND, RTS, SQD, 0, NOTIFY},
	{VB_QPT_XRC_SEND, SQD, SQD, 0,
	 PORT | AV | TIMEOUT | RETRY | RNR | RD_ATOMIC | ACCESS | PKEY | MIG},
	{VB_QPT_XRC_SEND, SQD, RTS, 0, CUR | ACCESS | MIG},

	{VB_QPT_XRC_RECV, RESET, INIT, PKEY | PORT | ACCESS, 0},
	{VB_QPT_XRC_RECV, INIT, INIT, 0, PKEY | PORT | ACCESS},
	{VB_QPT_XRC_RECV, INIT, RTR, AV | MTU | DEST | RQ_PSN | DEST_RD_ATOMIC | MIN_RNR,
	 ACCESS | PKEY},
	{VB_QPT_XRC_RECV, RTR, RTS, TIMEOUT | SQ_PSN, CUR | ACCESS | MIN_RNR | MIG},
	{VB_QPT_XRC_RECV, RTS, RTS, 0, CUR | ACCESS | MIN_RNR | MIG},
	{VB_QPT_XRC_RECV, RTS, SQD, 0, NOTIFY},
	{VB_QPT_XRC_RECV, SQD, SQD, 0,
	 PORT | AV | TIMEOUT | DEST_RD_ATOMIC | ACCESS | PKEY | MIN_RNR | MIG},
	{VB_QPT_XRC_RECV, SQD, RTS, 0, CUR | ACCESS | MIN_RNR | MIG},
};

/* False: the move does not exist. */
static bool find_expected(enum vb_qp_type type, enum vb_qp_state from, enum vb_qp_state to,
			  struct expected *out)
{
	for (size_t i = 0; i < VB_ARRAY_SIZE(table); i++) {
		*out = table[i];
		if (out->type == type && out->from == from && out->to == to)
			return true;
	}
	*out = (struct expected){.type = type, .from = from, .to = to};
	return to == RESET || to == ERR;
}

/* One try on a fresh QP: the result, and that a refusal changed nothing. */
static void try_move(struct fake *f, enum vb_qp_type type, enum vb_qp_state from,
		     enum vb_qp_state to, uint32_t mask, int want)
{
	struct vb_qp_attr before = {0}, after = {0};
	unsigned int changes;
	struct fake_qp q;
	int paths;

	fake_qp_create(f, &q, type, 16);
	fake_bring_to(q.qp, from);
	vb_qp_query(q.qp, &before);
	changes = f->changes;
	paths = f->paths;
	assert_int_equal(fake_modify(q.qp, to, mask), want);
	if (want == 0) {
		assert_int_equal(q.qp->state, mask & VB_QP_STATE ? to : from);
	} else {
		vb_qp_query(q.qp, &after);
		assert_memory_equal(&before, &after, sizeof(before));
		assert_int_equal(f->changes, changes);
		assert_int_equal(f->paths, paths);
	}
	vb_qp_check(q.qp);
	fake_qp_destroy(&q);
}

static void walk_move(struct fake *f, enum vb_qp_type type, enum vb_qp_state from,
		      enum vb_qp_state to)
{
	struct expected e;
	bool valid = find_expected(type, from, to, &e);

	try_move(f, type, from, to, VB_QP_STATE | e.required, valid ? 0 : -EINVAL);
	try_move(f, type, from, to, VB_QP_STATE | e.required | e.optional, valid ? 0 : -EINVAL);
	if (from == to)
		try_move(f, type, from, to, e.required | e.optional, valid ? 0 : -EINVAL);
	for (int bit = 1; bit < 32; bit++) {
		uint32_t attribute = 1u << bit;

		if (e.required & attribute)
			try_move(f, type, from, to, VB_QP_STATE | (e.required & ~attribute),
				 -EINVAL);
		else if (e.optional & attribute)
			try_move(f, type, from, to, VB_QP_STATE | e.required | attribute, 0);
		else
			try_move(f, type, from, to, VB_QP_STATE | e.required | attribute, -EINVAL);
	}
}

static void walk_type(enum vb_qp_type type)
{
	struct fake f;

	fake_init(&f);
	for (int from = RESET; from <= ERR; from++) {
		for (int to = RESET; to <= ERR; to++) {
			if (type != VB_QPT_UC && type != VB_QPT_UD && from == SQE)
				continue; /* what is reliable has no such state */
			walk_move(&f, type, (enum vb_qp_state)from, (enum vb_qp_state)to);
			f.event_count = 0;
		}
	}
	fake_finish(&f);
}

static void test_matrix_rc(void **state)
{
	walk_type(VB_QPT_RC);
}

static void test_matrix_uc(void **state)
{
	walk_type(VB_QPT_UC);
}

static void test_matrix_ud(void **state)
{
	walk_type(VB_QPT_UD);
}

static void test_matrix_xrc(void **state)
{
	walk_type(VB_QPT_XRC_SEND);
	walk_type(VB_QPT_XRC_RECV);
}

/* --- values ------------------------------------------------------------------------------ */

/* The move to state with attr, all else as required, must be refused; then the right one works. */
static void assert_value_refused(struct fake *f, enum vb_qp_state to, const struct vb_qp_attr *attr,
				 uint32_t extra)
{
	struct vb_qp_attr bad = *attr, before = {0}, after = {0};
	struct fake_qp q;

	fake_qp_create(f, &q, VB_QPT_RC, 16);
	for (enum vb_qp_state s = INIT; s < to; s++)
		assert_int_equal(fake_modify(q.qp, s, fake_required(VB_QPT_RC, s)), 0);
	vb_qp_query(q.qp, &before);
	bad.qp_state = to;
	assert_int_equal(vb_qp_modify(q.qp, &bad, fake_required(VB_QPT_RC, to) | extra), -EINVAL);
	vb_qp_query(q.qp, &after);
	assert_memory_equal(&before, &after, sizeof(before));
	assert_int_equal(fake_modify(q.qp, to, fake_required(VB_QPT_RC, to)), 0);
	fake_qp_destroy(&q);
}

static void test_values(void **state)
{
	struct fake f;

	fake_init(&f);
#define REFUSED(to, extra, field, ...)                                                             \
	do {                                                                                       \
		struct vb_qp_attr attr = fake_attr();                                              \
		attr.field = __VA_ARGS__;                                                          \
		assert_value_refused(&f, to, &attr, extra);                                        \
	} while (0)
	REFUSED(INIT, 0, port_num, 0);
	REFUSED(INIT, 0, port_num, 2);
	REFUSED(INIT, 0, pkey_index, 1);
	REFUSED(INIT, 0, access_flags, 1u << 7);
	REFUSED(INIT, 0, access_flags, 1u << 31);
	REFUSED(RTR, 0, path_mtu, (enum vb_mtu)0);
	REFUSED(RTR, 0, path_mtu, (enum vb_mtu)6);
	REFUSED(RTR, 0, ah.is_global, false);
	REFUSED(RTR, 0, ah.port_num, 2);
	REFUSED(RTR, 0, dest_qpn, 1u << 24);
	REFUSED(RTR, 0, max_dest_rd_atomic, VB_MAX_RD_ATOMIC + 1);
	REFUSED(RTR, 0, min_rnr_timer, 32);
	REFUSED(RTS, 0, max_rd_atomic, VB_MAX_RD_ATOMIC + 1);
	REFUSED(RTS, 0, timeout, 32);
	REFUSED(RTS, 0, retry_cnt, 8);
	REFUSED(RTS, 0, rnr_retry, 8);
	REFUSED(RTS, MIG, path_mig_state, 1);
#undef REFUSED
	fake_finish(&f);
}

static void test_states_that_do_not_exist(void **state)
{
	struct fake_qp q;
	struct fake f;

	fake_init(&f);
	fake_qp_create(&f, &q, VB_QPT_RC, 16);
	assert_int_equal(fake_modify(q.qp, (enum vb_qp_state)7, VB_QP_STATE), -EINVAL);
	assert_int_equal(fake_modify(q.qp, (enum vb_qp_state) - 1, VB_QP_STATE), -EINVAL);
	assert_int_equal(q.qp->state, RESET);
	fake_qp_destroy(&q);
	fake_finish(&f);
}

static void test_wrong_current_state(void **state)
{
	struct vb_qp_attr attr = fake_attr();
	struct fake_qp q;
	struct fake f;

	fake_init(&f);
	fake_qp_create(&f, &q, VB_QPT_UD, 16);
	fake_bring_to(q.qp, RTS);
	attr.qp_state = RTS;
	attr.cur_qp_state = SQD;
	assert_int_equal(vb_qp_modify(q.qp, &attr, VB_QP_STATE | CUR), -EINVAL);
	attr.cur_qp_state = RTS;
	assert_int_equal(vb_qp_modify(q.qp, &attr, VB_QP_STATE | CUR), 0);
	fake_qp_destroy(&q);
	fake_finish(&f);
}

static void test_query(void **state)
{
	struct vb_qp_attr want = fake_attr(), got;
	struct fake_qp q;
	struct fake f;

	fake_init(&f);
	fake_qp_create(&f, &q, VB_QPT_RC, 16);
	want.rq_psn |= 0xff000000; /* only 24 bits are looked at */
	want.qp_state = INIT;
	assert_int_equal(vb_qp_modify(q.qp, &want, fake_required(VB_QPT_RC, INIT)), 0);
	want.qp_state = RTR;
	assert_int_equal(vb_qp_modify(q.qp, &want, fake_required(VB_QPT_RC, RTR)), 0);
	want.qp_state = RTS;
	assert_int_equal(vb_qp_modify(q.qp, &want, fake_required(VB_QPT_RC, RTS)), 0);
	vb_qp_query(q.qp, &got);
	assert_int_equal(got.qp_state, RTS);
	assert_int_equal(got.cur_qp_state, RTS);
	assert_int_equal(got.rq_psn, 0x123456);
	assert_int_equal(q.qp->attr.rq_psn, 0x123456);
	assert_int_equal(got.sq_psn, 0x654321);
	assert_int_equal(got.path_mtu, VB_MTU_1024);
	assert_int_equal(got.dest_qpn, 0x17);
	assert_int_equal(got.access_flags, want.access_flags);
	assert_int_equal(got.max_rd_atomic, 4);
	assert_int_equal(got.max_dest_rd_atomic, 8);
	assert_int_equal(got.min_rnr_timer, 12);
	assert_int_equal(got.timeout, 14);
	assert_int_equal(got.retry_cnt, 7);
	assert_int_equal(got.rnr_retry, 6);
	assert_int_equal(got.port_num, 1);
	assert_memory_equal(&got.ah, &want.ah, sizeof(want.ah));
	assert_int_equal(q.qp->mtu, 1024);
	assert_int_equal(fake_modify(q.qp, RESET, VB_QP_STATE), 0);
	vb_qp_query(q.qp, &got);
	assert_int_equal(got.qp_state, RESET);
	assert_int_equal(got.dest_qpn, 0);
	fake_qp_destroy(&q);
	fake_finish(&f);
}

/* --- paths ------------------------------------------------------------------------------- */

static void test_address_does_not_resolve(void **state)
{
	struct vb_qp_attr before = {0}, after = {0};
	struct fake_qp q;
	struct fake f;

	fake_init(&f);
	fake_qp_create(&f, &q, VB_QPT_RC, 16);
	fake_bring_to(q.qp, INIT);
	vb_qp_query(q.qp, &before);
	f.resolve_result = -ENETUNREACH;
	assert_int_equal(fake_modify(q.qp, RTR, fake_required(VB_QPT_RC, RTR)), -ENETUNREACH);
	vb_qp_query(q.qp, &after);
	assert_memory_equal(&before, &after, sizeof(before));
	f.resolve_result = 0;
	/* The path takes no packets of 1024 bytes. */
	f.segment_max = 1023;
	assert_int_equal(fake_modify(q.qp, RTR, fake_required(VB_QPT_RC, RTR)), -EINVAL);
	vb_qp_query(q.qp, &after);
	assert_memory_equal(&before, &after, sizeof(before));
	assert_int_equal(f.paths, 0);
	f.segment_max = 1024;
	assert_int_equal(fake_modify(q.qp, RTR, fake_required(VB_QPT_RC, RTR)), 0);
	assert_int_equal(f.paths, 1);
	fake_qp_destroy(&q);
	fake_finish(&f);
}

static void test_carrier_of_pieces(void **state)
{
	struct fake_qp q;
	struct fake f;

	fake_init(&f);
	f.segment_max = 16384;
	f.own_segment = true;
	fake_qp_create(&f, &q, VB_QPT_RC, 16);
	fake_bring_to(q.qp, RTR);
	assert_int_equal(q.qp->mtu, 16384);
	fake_qp_destroy(&q);
	fake_finish(&f);
}

/* A new address in SQD: the old path stays until the new one is known to be good. */
static void test_new_path_in_sqd(void **state)
{
	struct fake_qp q;
	struct fake f;

	fake_init(&f);
	fake_qp_create(&f, &q, VB_QPT_RC, 16);
	fake_bring_to(q.qp, SQD);
	assert_int_equal(f.paths, 1);
	f.segment_max = 512; /* the path MTU of 1024 does not fit */
	assert_int_equal(fake_modify(q.qp, SQD, AV), -EINVAL);
	assert_int_equal(q.qp->path.segment_max, VB_MAX_PATH_MTU);
	f.segment_max = 2048;
	assert_int_equal(fake_modify(q.qp, SQD, AV), 0);
	assert_int_equal(q.qp->path.segment_max, 2048);
	assert_int_equal(f.paths, 1);
	assert_int_equal(fake_modify(q.qp, RESET, VB_QP_STATE), 0);
	assert_int_equal(f.paths, 0);
	fake_qp_destroy(&q);
	fake_finish(&f);
}

/* --- what follows from a state ----------------------------------------------------------- */

static void post_recvs(struct vb_qp *qp, uint64_t first, uint64_t n)
{
	for (uint64_t id = first; id < first + n; id++) {
		const struct vb_recv_wr wr = {.wr_id = id};

		assert_int_equal(vb_qp_post_recv(qp, &wr), 0);
	}
}

static void assert_flushed_recvs(struct fake_qp *q, uint64_t first, uint64_t n)
{
	struct vb_cqe cqe;

	for (uint64_t id = first; id < first + n; id++) {
		assert_int_equal(vb_cq_poll(q->cq, &cqe, 1), 1);
		assert_int_equal(cqe.wr_id, id);
		assert_int_equal(cqe.status, VB_WC_WR_FLUSH_ERR);
		assert_int_equal(cqe.vendor_err, VB_CHECK_FLUSHED);
		assert_int_equal(cqe.qpn, q->qp->qpn);
		assert_int_equal(cqe.opcode, VB_WC_RECV);
	}
	assert_int_equal(vb_cq_poll(q->cq, &cqe, 1), 0);
}

static void test_error_flushes_once(void **state)
{
	struct fake_qp q;
	struct fake f;

	fake_init(&f);
	fake_qp_create(&f, &q, VB_QPT_RC, 16);
	fake_bring_to(q.qp, RTR);
	post_recvs(q.qp, 0, 4);
	assert_int_equal(fake_modify(q.qp, ERR, VB_QP_STATE), 0);
	assert_flushed_recvs(&q, 0, 4);
	assert_int_equal(fake_modify(q.qp, ERR, VB_QP_STATE), 0);
	assert_flushed_recvs(&q, 0, 0);
	/* What is posted now is flushed at once. */
	post_recvs(q.qp, 4, 2);
	assert_flushed_recvs(&q, 4, 2);
	/* Without an SRQ there is no event of its last request. */
	assert_int_equal(f.event_count, 0);
	fake_qp_destroy(&q);
	fake_finish(&f);
}

static void test_reset_forgets(void **state)
{
	struct vb_cqe cqe;
	struct fake_qp q;
	struct fake f;

	fake_init(&f);
	fake_qp_create(&f, &q, VB_QPT_RC, 16);
	fake_bring_to(q.qp, RTR);
	post_recvs(q.qp, 0, 4);
	assert_int_equal(fake_modify(q.qp, ERR, VB_QP_STATE), 0);
	post_recvs(q.qp, 4, 1);
	assert_int_equal(fake_modify(q.qp, RESET, VB_QP_STATE), 0);
	assert_int_equal(vb_cq_poll(q.cq, &cqe, 1), 0);
	fake_bring_to(q.qp, INIT);
	post_recvs(q.qp, 0, 4);
	assert_int_equal(fake_modify(q.qp, RESET, VB_QP_STATE), 0);
	/* Nothing is left that ERR could flush. */
	assert_int_equal(fake_modify(q.qp, ERR, VB_QP_STATE), 0);
	assert_int_equal(vb_cq_poll(q.cq, &cqe, 1), 0);
	fake_qp_destroy(&q);
	fake_finish(&f);
}

static void test_last_wqe_event(void **state)
{
	struct vb_qp_init init;
	struct vb_srq *srq;
	struct vb_qp *qp;
	struct fake_qp q;
	struct fake f;

	fake_init(&f);
	fake_qp_create(&f, &q, VB_QPT_RC, 16);
	srq = vb_srq_create(q.pd, 4, 1, 0, NULL);
	init = fake_qp_init(VB_QPT_RC, q.cq);
	init.srq = srq;
	qp = vb_qp_create(q.pd, &init);
	assert_non_null(qp);
	fake_bring_to(qp, RTS);
	assert_int_equal(fake_modify(qp, ERR, VB_QP_STATE), 0);
	assert_int_equal(f.event_count, 1);
	assert_int_equal(f.events[0].type, VB_EVENT_QP_LAST_WQE_REACHED);
	assert_ptr_equal(f.events[0].qp, qp);
	assert_int_equal(fake_modify(qp, ERR, VB_QP_STATE), 0);
	assert_int_equal(f.event_count, 1);
	/* Once for each life. */
	assert_int_equal(fake_modify(qp, RESET, VB_QP_STATE), 0);
	fake_bring_to(qp, RTR);
	assert_int_equal(fake_modify(qp, ERR, VB_QP_STATE), 0);
	assert_int_equal(f.event_count, 2);
	vb_qp_destroy(qp);
	assert_int_equal(vb_srq_destroy(srq), 0);
	fake_qp_destroy(&q);
	fake_finish(&f);
}

static void test_sqd_event(void **state)
{
	struct vb_qp_attr attr = fake_attr();
	struct fake_qp q;
	struct fake f;

	fake_init(&f);
	fake_qp_create(&f, &q, VB_QPT_RC, 16);
	fake_bring_to(q.qp, RTS);
	/* Nothing is under way: drained at once, and told only who asked. */
	assert_int_equal(fake_modify(q.qp, SQD, VB_QP_STATE), 0);
	assert_int_equal(f.event_count, 0);
	assert_int_equal(fake_modify(q.qp, RTS, VB_QP_STATE), 0);
	attr.qp_state = SQD;
	attr.en_sqd_async_notify = true;
	assert_int_equal(vb_qp_modify(q.qp, &attr, VB_QP_STATE | NOTIFY), 0);
	assert_int_equal(f.event_count, 1);
	assert_int_equal(f.events[0].type, VB_EVENT_SQ_DRAINED);
	assert_ptr_equal(f.events[0].qp, q.qp);
	vb_qp_query(q.qp, &attr);
	assert_false(attr.sq_draining);
	/* The wish is for one move. */
	assert_int_equal(fake_modify(q.qp, RTS, VB_QP_STATE), 0);
	assert_int_equal(fake_modify(q.qp, SQD, VB_QP_STATE), 0);
	assert_int_equal(f.event_count, 1);
	fake_qp_destroy(&q);
	fake_finish(&f);
}

/* What has been sent must be answered first; meanwhile the attributes stay as they are. */
static void test_sqd_drains(void **state)
{
	const struct vb_send_wr wr = {.wr_id = 1, .opcode = VB_WR_SEND, .flags = VB_SEND_SIGNALED};
	struct vb_qp_attr attr = fake_attr();
	struct vb_cqe cqe;
	struct fake_qp q;
	struct fake f;

	fake_init(&f);
	fake_qp_create(&f, &q, VB_QPT_RC, 16);
	fake_bring_to(q.qp, RTS);
	assert_int_equal(vb_qp_post_send(q.qp, &wr), 0);
	vb_nic_run(f.nic, 1);
	assert_int_equal(f.tx_count, 1);
	attr.qp_state = SQD;
	attr.en_sqd_async_notify = true;
	assert_int_equal(vb_qp_modify(q.qp, &attr, VB_QP_STATE | NOTIFY), 0);
	assert_int_equal(f.event_count, 0);
	vb_qp_query(q.qp, &attr);
	assert_true(attr.sq_draining);
	assert_int_equal(attr.sq_psn, 0x654322); /* the next */
	assert_int_equal(fake_modify(q.qp, SQD, TIMEOUT), -EINVAL);
	/* Posted now: kept, not sent. */
	assert_int_equal(vb_qp_post_send(q.qp, &wr), 0);
	fake_ack(&f, q.qp, 0x654321);
	vb_nic_run(f.nic, 2);
	assert_int_equal(f.tx_count, 1);
	assert_int_equal(vb_cq_poll(q.cq, &cqe, 1), 1);
	assert_int_equal(cqe.status, VB_WC_SUCCESS);
	assert_int_equal(f.event_count, 1);
	assert_int_equal(f.events[0].type, VB_EVENT_SQ_DRAINED);
	vb_qp_query(q.qp, &attr);
	assert_false(attr.sq_draining);
	assert_int_equal(fake_modify(q.qp, SQD, TIMEOUT), 0);
	assert_int_equal(fake_modify(q.qp, RTS, VB_QP_STATE), 0);
	vb_nic_run(f.nic, 3);
	assert_int_equal(f.tx_count, 2);
	fake_qp_destroy(&q);
	fake_finish(&f);
}

/* A queue that failed and went on tells of its next error, not of the old one. */
static void test_reason_of_the_second_error(void **state)
{
	const struct vb_sge unknown = {.addr = 0x1000, .length = 8, .lkey = 0};
	const struct vb_send_wr wr = {.sges = &unknown, .num_sge = 1, .opcode = VB_WR_SEND};
	struct fake_qp q;
	struct fake f;

	fake_init(&f);
	fake_qp_create(&f, &q, VB_QPT_UC, 16);
	fake_bring_to(q.qp, RTS);
	q.qp->reason.check = VB_CHECK_SGE_RANGE;
	vb_qp_set_state(q.qp, SQE);
	assert_int_equal(fake_modify(q.qp, RTS, VB_QP_STATE), 0);
	assert_int_equal(vb_qp_post_send(q.qp, &wr), 0);
	vb_nic_run(f.nic, 1);
	assert_int_equal(q.qp->state, SQE);
	assert_int_equal(q.qp->reason.check, VB_CHECK_SGE_LKEY_UNKNOWN);
	fake_qp_destroy(&q);
	fake_finish(&f);
}

static void test_changes_are_told(void **state)
{
	struct fake_qp q;
	struct fake f;
	unsigned int n;

	fake_init(&f);
	fake_qp_create(&f, &q, VB_QPT_RC, 16);
	for (enum vb_qp_state s = INIT; s <= RTS; s++) {
		n = f.changes;
		assert_int_equal(fake_modify(q.qp, s, fake_required(VB_QPT_RC, s)), 0);
		assert_int_equal(f.changes, n + 1);
	}
	n = f.changes;
	assert_int_equal(fake_modify(q.qp, RTS, ACCESS), 0);
	assert_int_equal(f.changes, n + 1);
	fake_qp_destroy(&q);
	assert_int_equal(f.changes, n + 2);
	fake_finish(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_matrix_rc),
		cmocka_unit_test(test_matrix_uc),
		cmocka_unit_test(test_matrix_ud),
		cmocka_unit_test(test_matrix_xrc),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_states_that_do_not_exist),
		cmocka_unit_test(test_wrong_current_state),
		cmocka_unit_test(test_query),
		cmocka_unit_test(test_address_does_not_resolve),
		cmocka_unit_test(test_carrier_of_pieces),
		cmocka_unit_test(test_new_path_in_sqd),
		cmocka_unit_test(test_error_flushes_once),
		cmocka_unit_test(test_reset_forgets),
		cmocka_unit_test(test_last_wqe_event),
		cmocka_unit_test(test_sqd_event),
		cmocka_unit_test(test_sqd_drains),
		cmocka_unit_test(test_reason_of_the_second_error),
		cmocka_unit_test(test_changes_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
