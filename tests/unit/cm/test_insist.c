/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_insist.c - a peer where nobody listens yet is asked again for a while: 1, 2 and 4 ms after
 * its refusals here. What the program hears in the end is the last answer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "pair.h"

#define MS 1000000ull
#define TIMES 3

static struct pair pair;

static int setup(void **state)
{
	pair_insist = TIMES;
	pair_init(&pair);
	vb_cm_unlisten(pair.listener);
	return 0;
}

static int teardown(void **state)
{
	pair_finish(&pair);
	return 0;
}

static void refuse(enum vb_cm_attr request, enum vb_cm_attr refusal)
{
	pair_deliver(&pair, &pair.a, request);
	pair_assert_no_event(&pair.b);
	pair_deliver(&pair, &pair.b, refusal);
}

static void ask_in_vain(enum vb_cm_attr request, enum vb_cm_attr refusal)
{
	for (int i = 0; i < TIMES; i++) {
		refuse(request, refusal);
		pair_assert_no_event(&pair.a);
		pair_assert_silence(&pair);
		pair_run_after(&pair.a, MS << i);
	}
	refuse(request, refusal);
}

static void nobody_comes(void **state)
{
	struct vb_cm_conn *a = pair_connect(&pair);
	unsigned int i;

	ask_in_vain(VB_CM_ATTR_REQ, VB_CM_ATTR_REJ);
	i = pair_event_of(&pair.a, VB_CM_REJ_RECEIVED);
	assert_int_equal(pair.a.events[i].rej.reason, VB_CM_REJ_INVALID_SERVICE_ID);
	pair_let_go(&pair, a, NULL);
}

static void somebody_comes(void **state)
{
	struct vb_cm_rep rep = pair_rep();
	struct vb_cm_conn *a = pair_connect(&pair), *b;

	refuse(VB_CM_ATTR_REQ, VB_CM_ATTR_REJ);
	assert_int_equal(vb_cm_listen(pair.b.cm, SERVICE, NULL, &pair, &pair.listener), 0);
	pair_run_after(&pair.a, MS);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_REQ);
	b = pair.b.events[pair_event_of(&pair.b, VB_CM_REQ_RECEIVED)].conn;
	assert_int_equal(vb_cm_send_rep(b, &rep, pair.now), 0);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_REP);
	pair_event_of(&pair.a, VB_CM_REP_RECEIVED);
	pair_let_go(&pair, a, b);
}

/* The refusals do not count as attempts that nobody answered. */
static void it_falls_silent(void **state)
{
	struct vb_cm_conn *a = pair_connect(&pair);

	refuse(VB_CM_ATTR_REQ, VB_CM_ATTR_REJ);
	pair_run_after(&pair.a, MS);
	for (int i = 0; i <= RETRIES; i++) {
		pair_assert_no_event(&pair.a);
		pair_lose(&pair, &pair.a, VB_CM_ATTR_REQ);
		pair.now = vb_cm_deadline(pair.a.cm);
		vb_cm_run(pair.a.cm, pair.now);
	}
	pair_event_of(&pair.a, VB_CM_REQ_FAILED);
	pair_let_go(&pair, a, NULL);
}

/* Only the absence of a listener may be about to end. */
static void another_refusal_counts_at_once(void **state)
{
	const struct vb_cm_rej no = {.reason = VB_CM_REJ_CONSUMER_DEFINED};
	struct vb_cm_conn *a, *b;
	unsigned int i;

	assert_int_equal(vb_cm_listen(pair.b.cm, SERVICE, NULL, &pair, &pair.listener), 0);
	b = pair_requested(&pair, &a);
	assert_int_equal(vb_cm_send_rej(b, &no, pair.now), 0);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_REJ);
	i = pair_event_of(&pair.a, VB_CM_REJ_RECEIVED);
	assert_int_equal(pair.a.events[i].rej.reason, VB_CM_REJ_CONSUMER_DEFINED);
	pair_let_go(&pair, a, b);
}

static void no_datagram_service(void **state)
{
	struct vb_cm_conn *a = vb_cm_conn_create(pair.a.cm, NULL);
	struct vb_cm_path to = pair_path_to(&pair.b);
	struct vb_cm_sidr_req req = {
		.service_id = SERVICE, .timeout = CM_TIMEOUT, .max_retries = RETRIES};
	unsigned int i;

	assert_int_equal(vb_cm_send_sidr_req(a, &to, &req, pair.now), 0);
	ask_in_vain(VB_CM_ATTR_SIDR_REQ, VB_CM_ATTR_SIDR_REP);
	i = pair_event_of(&pair.a, VB_CM_SIDR_REP_RECEIVED);
	assert_int_equal(pair.a.events[i].sidr_rep.status, VB_CM_SIDR_UNSUPPORTED);
	pair_let_go(&pair, a, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nobody_comes, setup, teardown),
		cmocka_unit_test_setup_teardown(somebody_comes, setup, teardown),
		cmocka_unit_test_setup_teardown(it_falls_silent, setup, teardown),
		cmocka_unit_test_setup_teardown(another_refusal_counts_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(no_datagram_service, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
