/* SPDX-License-Identifier: BSD-2-Clause */
/* test_qpn.c - which numbers queue pairs get: never 0 of a process, never one that a peer may still
 * hold in timewait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "fake_nic.h"

static uint32_t next_number(struct fake_qp *q)
{
	struct vb_qp_init init = fake_qp_init(VB_QPT_RC, q->cq);
	struct vb_qp *qp = vb_qp_create(q->pd, &init);
	uint32_t qpn;

	assert_non_null(qp);
	qpn = qp->qpn;
	vb_qp_destroy(qp);
	return qpn;
}

/* Twice as many as rest at a time: by then the first ones have been given again or may be. */
static void no_number_comes_back_soon(void **state)
{
	uint64_t *given = calloc(1u << VB_MAX_QP_BITS, sizeof(*given)); /* when, from 1 */
	struct fake_qp q;
	struct fake f;
	unsigned int again = 0;

	assert_non_null(given);
	fake_init(&f);
	fake_qp_create(&f, &q, VB_QPT_RC, 16);
	for (uint64_t now = 1; now <= 2 * VB_QPN_REST; now++) {
		uint32_t index = next_number(&q) - f.nic->config.qpn_base;

		assert_in_range(index, 1, (1u << VB_MAX_QP_BITS) - 1);
		if (given[index]) {
			assert_true(now - given[index] > VB_QPN_REST);
			again++;
		}
		given[index] = now;
	}
	assert_true(again > 0);
	fake_qp_destroy(&q);
	fake_finish(&f);
	free(given);
}

/* Every number is resting or in use but for a quarter: all that may be alive still find theirs. */
static void all_that_may_live_find_one(void **state)
{
	struct vb_qp **qps = calloc(VB_MAX_QP, sizeof(*qps));
	struct vb_qp_init init;
	struct fake_qp q;
	struct fake f;
	unsigned int n;

	assert_non_null(qps);
	fake_init(&f);
	fake_qp_create(&f, &q, VB_QPT_RC, 16);
	for (n = 0; n < VB_QPN_REST; n++)
		next_number(&q);
	init = fake_qp_init(VB_QPT_RC, q.cq);
	init.cap = (struct vb_qp_cap){0};
	for (n = 0; n < VB_MAX_QP - 1; n++) {
		qps[n] = vb_qp_create(q.pd, &init);
		assert_non_null(qps[n]);
	}
	assert_null(vb_qp_create(q.pd, &init));
	while (n-- > 0)
		vb_qp_destroy(qps[n]);
	fake_qp_destroy(&q);
	fake_finish(&f);
	free(qps);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_number_comes_back_soon),
		cmocka_unit_test(all_that_may_live_find_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
