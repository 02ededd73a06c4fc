/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_post.c - creating queue pairs and posting to them: in which states, what is refused, and
 * what is copied at once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "post_fixture.h"

static void assert_refused(struct fixture *x, const struct vb_send_wr *wr)
{
	uint32_t head = x->q.qp->sq_head;
	uint32_t refs = x->ah->refs;

	assert_int_equal(vb_qp_post_send(x->q.qp, wr), -EINVAL);
	assert_int_equal(x->q.qp->sq_head, head);
	assert_int_equal(x->ah->refs, refs);
}

/* --- creation ---------------------------------------------------------------------------- */

static void assert_not_created(struct fixture *x, const struct vb_qp_init *init)
{
	struct vb_qp_init copy = *init;

	errno = 0;
	assert_null(vb_qp_create(x->q.pd, &copy));
	assert_int_equal(errno, EINVAL);
	assert_memory_equal(&copy.cap, &init->cap, sizeof(copy.cap));
}

static void test_create_refusals(void **state)
{
	struct fixture x;
	struct vb_qp_init good, init;
	struct vb_srq *srq;

	set_up(&x, VB_QPT_RC, VB_QPS_RESET);
	good = fake_qp_init(VB_QPT_RC, x.q.cq);
#define REFUSED(field, value)                                                                      \
	do {                                                                                       \
		init = good;                                                                       \
		init.field = value;                                                                \
		assert_not_created(&x, &init);                                                     \
	} while (0)
	REFUSED(type, (enum vb_qp_type)0);
	REFUSED(type, (enum vb_qp_type)7);
	REFUSED(send_cq, NULL);
	REFUSED(recv_cq, NULL);
	REFUSED(cap.max_send_wr, VB_MAX_QP_WR + 1);
	REFUSED(cap.max_recv_wr, VB_MAX_QP_WR + 1);
	REFUSED(cap.max_send_sge, VB_MAX_SGE + 1);
	REFUSED(cap.max_recv_sge, VB_MAX_SGE + 1);
	REFUSED(cap.max_inline_data, VB_MAX_INLINE + 1);
	REFUSED(cap.max_send_wr, UINT32_MAX);
#undef REFUSED
	srq = vb_srq_create(x.q.pd, 4, 1, 0, NULL);
	init = good;
	init.type = VB_QPT_UC;
	init.srq = srq;
	assert_not_created(&x, &init);
	assert_int_equal(vb_srq_destroy(srq), 0);
	tear_down(&x);
}

static void assert_caps(struct fixture *x, struct vb_srq *srq, struct vb_qp_cap asked,
			struct vb_qp_cap given)
{
	struct vb_qp_init init = fake_qp_init(VB_QPT_RC, x->q.cq);
	struct vb_qp *qp;

	init.cap = asked;
	init.srq = srq;
	qp = vb_qp_create(x->q.pd, &init);
	assert_non_null(qp);
	assert_memory_equal(&init.cap, &given, sizeof(given));
	assert_memory_equal(&qp->cap, &given, sizeof(given));
	vb_qp_destroy(qp);
}

static void test_caps(void **state)
{
	const struct vb_qp_cap most = {VB_MAX_QP_WR, VB_MAX_QP_WR, VB_MAX_SGE, VB_MAX_SGE,
				       VB_MAX_INLINE};
	const struct vb_qp_cap odd = {5, 7, 3, 2, 49};
	const struct vb_qp_cap none = {0, 0, 0, 0, 0};
	/* inline data has the room of the SGEs at least, 16 bytes each */
	const struct vb_qp_cap least = {1, 0, 1, 0, 16};
	const struct vb_qp_cap few = {5, 7, 3, 2, 47}, rounded = {5, 7, 3, 2, 48};
	const struct vb_qp_cap huge = {1, UINT32_MAX, 1, UINT32_MAX, 0};
	struct fixture x;
	struct vb_srq *srq;

	set_up(&x, VB_QPT_RC, VB_QPS_RESET);
	assert_caps(&x, NULL, most, most);
	assert_caps(&x, NULL, odd, odd);
	assert_caps(&x, NULL, none, least);
	assert_caps(&x, NULL, few, rounded);
	/* With an SRQ the receive caps are ignored, however large. */
	srq = vb_srq_create(x.q.pd, 4, 1, 0, NULL);
	assert_caps(&x, srq, huge, least);
	assert_int_equal(vb_srq_destroy(srq), 0);
	tear_down(&x);
}

static void test_idle_qp_is_small(void **state)
{
	assert_true(sizeof(struct vb_qp) <= 4096);
}

static void test_qps_have_numbers_of_their_own(void **state)
{
	struct vb_qp_init init;
	struct vb_qp *qps[64];
	struct fixture x;

	set_up(&x, VB_QPT_RC, VB_QPS_RESET);
	for (size_t i = 0; i < VB_ARRAY_SIZE(qps); i++) {
		init = fake_qp_init(VB_QPT_RC, x.q.cq);
		qps[i] = vb_qp_create(x.q.pd, &init);
		assert_non_null(qps[i]);
		assert_in_range(qps[i]->qpn, 0x18001, 0x1ffff);
		assert_ptr_equal(vb_nic_find_qp(x.fake.nic, qps[i]->qpn), qps[i]);
	}
	for (size_t i = 0; i < VB_ARRAY_SIZE(qps); i++)
		vb_qp_destroy(qps[i]);
	vb_qp_destroy(NULL);
	tear_down(&x);
}

/* --- states ------------------------------------------------------------------------------ */

static void test_states(void **state)
{
	const struct vb_recv_wr recv = {.wr_id = 1};
	struct fixture x;

	for (enum vb_qp_state s = VB_QPS_RESET; s <= VB_QPS_ERR; s++) {
		bool sends = s >= VB_QPS_RTS;

		set_up(&x, VB_QPT_UC, s);
		assert_int_equal(post(&x, 1, VB_SEND_SIGNALED), sends ? 0 : -EINVAL);
		assert_int_equal(vb_qp_post_recv(x.q.qp, &recv), s == VB_QPS_RESET ? -EINVAL : 0);
		tear_down(&x);
	}
}

static void test_sqd_keeps_and_rts_sends(void **state)
{
	struct fixture x;

	set_up(&x, VB_QPT_UC, VB_QPS_SQD);
	assert_int_equal(post(&x, 1, VB_SEND_SIGNALED), 0);
	run(&x);
	assert_int_equal(x.fake.tx_count, 0);
	assert_int_equal(fake_modify(x.q.qp, VB_QPS_RTS, VB_QP_STATE), 0);
	run(&x);
	assert_int_equal(x.fake.tx_count, 1);
	assert_polls(&x, 1, VB_WC_SUCCESS);
	tear_down(&x);
}

static void test_opcodes_of_each_type(void **state)
{
	static const uint32_t allowed[] = {
		[VB_QPT_RC] = 0x7f | 1 << VB_WR_SEND_WITH_INV | 1 << VB_WR_FLUSH |
			      1 << VB_WR_ATOMIC_WRITE,
		[VB_QPT_XRC_SEND] = 0x7f | 1 << VB_WR_SEND_WITH_INV | 1 << VB_WR_FLUSH |
				    1 << VB_WR_ATOMIC_WRITE,
		[VB_QPT_UC] = 1 << VB_WR_SEND | 1 << VB_WR_SEND_WITH_IMM | 1 << VB_WR_RDMA_WRITE |
			      1 << VB_WR_RDMA_WRITE_WITH_IMM,
		[VB_QPT_UD] = 1 << VB_WR_SEND | 1 << VB_WR_SEND_WITH_IMM,
	};
	struct fixture x;

	static const enum vb_qp_type types[] = {VB_QPT_RC, VB_QPT_UC, VB_QPT_UD, VB_QPT_XRC_SEND};

	for (size_t t = 0; t < VB_ARRAY_SIZE(types); t++) {
		const enum vb_qp_type type = types[t];

		for (uint32_t opcode = 0; opcode < 70; opcode++) {
			bool ok = opcode < 32 && allowed[type] & 1u << opcode;
			struct vb_send_wr wr;

			set_up(&x, type, VB_QPS_SQD);
			x.sge.length = 8;
			wr = make_wr(&x, 1, 0);
			wr.opcode = (enum vb_wr_opcode)opcode;
			if (opcode == VB_WR_FLUSH) {
				wr.num_sge = 0;
				wr.flush.placement = VB_FLUSH_GLOBAL;
			}
			if (ok)
				assert_int_equal(vb_qp_post_send(x.q.qp, &wr), 0);
			else
				assert_refused(&x, &wr);
			tear_down(&x);
		}
	}
}

static void test_requests_about_windows_have_no_data(void **state)
{
	static const enum vb_wr_opcode opcodes[] = {VB_WR_BIND_MW, VB_WR_LOCAL_INV};

	for (enum vb_qp_type type = VB_QPT_RC; type <= VB_QPT_UD; type++) {
		for (size_t i = 0; i < VB_ARRAY_SIZE(opcodes); i++) {
			struct vb_send_wr wr;
			struct fixture x;

			set_up(&x, type, VB_QPS_SQD);
			wr = make_wr(&x, 1, 0);
			wr.opcode = opcodes[i];
			assert_refused(&x, &wr);
			wr.num_sge = 0;
			if (type == VB_QPT_UD)
				assert_refused(&x, &wr);
			else
				assert_int_equal(vb_qp_post_send(x.q.qp, &wr), 0);
			tear_down(&x);
		}
	}
}

/* --- refusals ---------------------------------------------------------------------------- */

static void test_flags_and_sges(void **state)
{
	struct vb_sge sges[5];
	struct vb_send_wr wr;
	struct vb_recv_wr recv = {.sges = sges};
	struct fixture x;

	set_up(&x, VB_QPT_RC, VB_QPS_RTS);
	for (uint32_t bit = 4; bit < 32; bit++) {
		wr = make_wr(&x, 1, 1u << bit);
		assert_refused(&x, &wr);
	}
	for (size_t i = 0; i < VB_ARRAY_SIZE(sges); i++)
		sges[i] = x.sge;
	wr = make_wr(&x, 1, 0);
	wr.sges = sges;
	wr.num_sge = 5; /* max_send_sge is 4 */
	assert_refused(&x, &wr);
	wr.num_sge = UINT32_MAX;
	assert_refused(&x, &wr);
	wr.num_sge = 4;
	assert_int_equal(vb_qp_post_send(x.q.qp, &wr), 0);
	recv.num_sge = 3; /* max_recv_sge is 2 */
	assert_int_equal(vb_qp_post_recv(x.q.qp, &recv), -EINVAL);
	tear_down(&x);
}

static void test_atomics_take_eight_bytes(void **state)
{
	static const enum vb_wr_opcode opcodes[] = {VB_WR_ATOMIC_CMP_AND_SWP,
						    VB_WR_ATOMIC_FETCH_AND_ADD};
	struct vb_sge two[2];
	struct vb_send_wr wr;
	struct fixture x;

	set_up(&x, VB_QPT_RC, VB_QPS_SQD);
	for (size_t i = 0; i < VB_ARRAY_SIZE(opcodes); i++) {
		wr = make_wr(&x, 1, 0);
		wr.opcode = opcodes[i];
		x.sge.length = 7;
		assert_refused(&x, &wr);
		x.sge.length = 9;
		assert_refused(&x, &wr);
		wr.num_sge = 0;
		assert_refused(&x, &wr);
		x.sge.length = 4;
		two[0] = two[1] = x.sge;
		wr.sges = two;
		wr.num_sge = 2;
		assert_refused(&x, &wr);
		x.sge.length = 8;
		wr = make_wr(&x, 1, VB_SEND_INLINE);
		wr.opcode = opcodes[i];
		assert_refused(&x, &wr);
		wr.flags = 0;
		assert_int_equal(vb_qp_post_send(x.q.qp, &wr), 0);
	}
	wr = make_wr(&x, 1, VB_SEND_INLINE);
	wr.opcode = VB_WR_RDMA_READ;
	assert_refused(&x, &wr);
	tear_down(&x);
}

static void test_ud_addresses(void **state)
{
	const struct vb_ah_attr attr = fake_attr().ah;
	struct vb_send_wr wr;
	struct vb_pd *pd;
	struct vb_ah *ah;
	struct fixture x;

	set_up(&x, VB_QPT_UD, VB_QPS_RTS);
	pd = vb_pd_create(x.fake.nic);
	ah = vb_ah_create(pd, &attr);
	assert_non_null(ah);
	wr = make_wr(&x, 1, 0);
	wr.ah = NULL;
	assert_refused(&x, &wr);
	wr.ah = ah; /* of another PD */
	assert_refused(&x, &wr);
	wr.ah = x.ah;
	wr.remote_qpn = 1 << 24;
	assert_refused(&x, &wr);
	/* The request keeps the AH that the program destroys meanwhile. */
	assert_int_equal(post(&x, 2, VB_SEND_SIGNALED), 0);
	assert_int_equal(x.ah->refs, 2);
	run(&x);
	assert_int_equal(x.ah->refs, 1);
	assert_polls(&x, 2, VB_WC_SUCCESS);
	vb_ah_put(ah);
	assert_int_equal(vb_pd_destroy(pd), 0);
	tear_down(&x);
}

static void test_ah_refusals(void **state)
{
	struct vb_ah_attr attr = fake_attr().ah;
	struct fixture x;

	set_up(&x, VB_QPT_UD, VB_QPS_RESET);
	attr.is_global = false;
	errno = 0;
	assert_null(vb_ah_create(x.q.pd, &attr));
	assert_int_equal(errno, EINVAL);
	attr = fake_attr().ah;
	attr.port_num = 2;
	assert_null(vb_ah_create(x.q.pd, &attr));
	x.fake.resolve_result = -ENETUNREACH;
	attr.port_num = 1;
	errno = 0;
	assert_null(vb_ah_create(x.q.pd, &attr));
	assert_int_equal(errno, ENETUNREACH);
	vb_ah_put(NULL);
	tear_down(&x);
}

/* A QP that is destroyed gives back the AHs of requests that never went out. */
static void test_destroy_gives_ahs_back(void **state)
{
	struct fixture x;

	set_up(&x, VB_QPT_UD, VB_QPS_SQD);
	assert_int_equal(post(&x, 1, 0), 0);
	assert_int_equal(post(&x, 2, 0), 0);
	assert_int_equal(x.ah->refs, 3);
	assert_int_equal(fake_modify(x.q.qp, VB_QPS_RESET, VB_QP_STATE), 0);
	assert_int_equal(x.ah->refs, 1);
	fake_bring_to(x.q.qp, VB_QPS_SQD);
	assert_int_equal(post(&x, 1, 0), 0);
	tear_down(&x);
}

/* --- inline data ------------------------------------------------------------------------- */

static void test_inline_is_copied_at_once(void **state)
{
	const uint8_t want[] = {1, 2, 3, 4, 5, 6, 7};
	uint8_t a[] = {1, 2, 3}, b[] = {4, 5, 6, 7};
	/* No key is looked at, and an empty SGE may point anywhere. */
	struct vb_sge sges[] = {{(uintptr_t)a, 3, 0xbad}, {0, 0, 0}, {(uintptr_t)b, 4, 0}};
	struct vb_send_wr wr;
	struct fixture x;

	set_up(&x, VB_QPT_UC, VB_QPS_RTS);
	wr = make_wr(&x, 1, VB_SEND_INLINE | VB_SEND_SIGNALED);
	wr.sges = sges;
	wr.num_sge = 3;
	assert_int_equal(vb_qp_post_send(x.q.qp, &wr), 0);
	memset(a, 0xff, sizeof(a));
	memset(b, 0xff, sizeof(b));
	memset(sges, 0, sizeof(sges));
	run(&x);
	assert_int_equal(x.fake.tx_bytes, sizeof(want));
	assert_memory_equal(x.fake.tx_payload, want, sizeof(want));
	assert_polls(&x, 1, VB_WC_SUCCESS);
	tear_down(&x);
}

static void test_inline_cap_is_on_the_sum(void **state)
{
	struct vb_sge sges[2];
	struct vb_send_wr wr;
	struct fixture x;

	set_up(&x, VB_QPT_UC, VB_QPS_RTS);
	wr = make_wr(&x, 1, VB_SEND_INLINE | VB_SEND_SIGNALED);
	wr.sges = sges;
	wr.num_sge = 2;
	sges[0] = sges[1] = x.sge;
	sges[0].length = 32;
	sges[1].length = 33;
	assert_refused(&x, &wr);
	/* The sum in 32 bits would be 0. */
	sges[0].length = sges[1].length = 0x80000000u;
	assert_refused(&x, &wr);
	sges[0].length = sges[1].length = 32;
	assert_int_equal(vb_qp_post_send(x.q.qp, &wr), 0);
	run(&x);
	assert_int_equal(x.fake.tx_bytes, 64);
	assert_memory_equal(x.fake.tx_payload, x.memory, 32);
	assert_memory_equal(x.fake.tx_payload + 32, x.memory, 32);
	tear_down(&x);
}

static void test_little_inline_when_none_was_asked_for(void **state)
{
	const struct vb_qp_cap cap = {.max_send_wr = 4, .max_send_sge = 1};
	struct vb_send_wr wr;
	struct fixture x;

	set_up_with(&x, VB_QPT_UC, &cap, false);
	fake_bring_to(x.q.qp, VB_QPS_RTS);
	x.sge.length = 17;
	wr = make_wr(&x, 1, VB_SEND_INLINE | VB_SEND_SIGNALED);
	assert_refused(&x, &wr);
	x.sge.length = 16;
	assert_int_equal(vb_qp_post_send(x.q.qp, &wr), 0);
	run(&x);
	assert_int_equal(x.fake.tx_bytes, 16);
	assert_polls(&x, 1, VB_WC_SUCCESS);
	tear_down(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_create_refusals),
		cmocka_unit_test(test_caps),
		cmocka_unit_test(test_idle_qp_is_small),
		cmocka_unit_test(test_qps_have_numbers_of_their_own),
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_sqd_keeps_and_rts_sends),
		cmocka_unit_test(test_opcodes_of_each_type),
		cmocka_unit_test(test_requests_about_windows_have_no_data),
		cmocka_unit_test(test_flags_and_sges),
		cmocka_unit_test(test_atomics_take_eight_bytes),
		cmocka_unit_test(test_ud_addresses),
		cmocka_unit_test(test_ah_refusals),
		cmocka_unit_test(test_destroy_gives_ahs_back),
		cmocka_unit_test(test_inline_is_copied_at_once),
		cmocka_unit_test(test_inline_cap_is_on_the_sum),
		cmocka_unit_test(test_little_inline_when_none_was_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
