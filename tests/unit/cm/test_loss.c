/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_loss.c - each message lost, once and for good: when it is repeated, how often, and what the
 * program hears in the end. Times are arithmetic from the fields of REQ.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "pair.h"

static struct pair pair;

static int setup(void **state)
{
	pair_init(&pair);
	return 0;
}

static int teardown(void **state)
{
	pair_finish(&pair);
	return 0;
}

/* The side repeats the message that was lost, byte for byte. */
static void assert_repeats(struct side *from, enum vb_cm_attr attr, uint64_t after_ns)
{
	uint8_t mad[VB_MAD_BYTES];

	memcpy(mad, pair_lose(&pair, from, attr), sizeof(mad));
	pair_run_after(from, after_ns);
	pair_next(&pair, from, attr);
	assert_memory_equal(mad, pair.queue[pair.at].mad, sizeof(mad));
}

static void test_req_lost(void **state)
{
	struct vb_cm_conn *a = pair_connect(&pair);
	struct vb_cm_counters counters;

	assert_repeats(&pair.a, VB_CM_ATTR_REQ, REQ_INTERVAL);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_REQ);
	pair_event_of(&pair.b, VB_CM_REQ_RECEIVED);
	vb_cm_read_counters(pair.a.cm, &counters);
	assert_int_equal(counters.retries, 1);
	assert_int_equal(counters.tx_messages, 2);
	vb_cm_conn_destroy(a, pair.now);
}

static void test_req_lost_for_good(void **state)
{
	struct vb_cm_conn *a = pair_connect(&pair);
	struct vb_cm_message m;

	for (int i = 0; i < RETRIES; i++)
		assert_repeats(&pair.a, VB_CM_ATTR_REQ, REQ_INTERVAL);
	pair_lose(&pair, &pair.a, VB_CM_ATTR_REQ);
	pair_assert_no_event(&pair.a);
	pair_run_after(&pair.a, REQ_INTERVAL);
	pair_event_of(&pair.a, VB_CM_REQ_FAILED);
	/* Its farewell, should it be the answers alone that are lost. */
	m = pair_next(&pair, &pair.a, VB_CM_ATTR_REJ);
	assert_int_equal(m.rej.reason, VB_CM_REJ_TIMEOUT);
	assert_int_equal(m.rej.ari_len, 8);
	assert_memory_equal(m.rej.ari, "\x02\0\0\0\0\0\0\x01", 8);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_REJ); /* b has never heard of it */
	pair_assert_no_event(&pair.b);
	pair_assert_silence(&pair);
	pair_let_go(&pair, a, NULL);
}

/* The passive side has the REQ, but its REP never arrives: REJ TIMEOUT names it by GUID and ID. */
static void test_rep_lost_for_good(void **state)
{
	struct vb_cm_conn *a, *b = pair_replied(&pair, &a);
	unsigned int i;

	for (i = 0; i < RETRIES; i++)
		assert_repeats(&pair.b, VB_CM_ATTR_REP, REP_INTERVAL);
	pair_lose(&pair, &pair.b, VB_CM_ATTR_REP);
	pair_run_after(&pair.b, REP_INTERVAL);
	pair_event_of(&pair.b, VB_CM_REP_FAILED);
	assert_int_equal(pair_next(&pair, &pair.b, VB_CM_ATTR_REJ).rej.reason, VB_CM_REJ_TIMEOUT);
	/* It can be heard again, and says who it is by both its IDs. */
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_REJ);
	i = pair_event_of(&pair.a, VB_CM_REJ_RECEIVED);
	assert_int_equal(pair.a.events[i].rej.reason, VB_CM_REJ_TIMEOUT);
	pair_let_go(&pair, a, b);
}

static void test_requester_gives_up_while_the_program_decides(void **state)
{
	struct vb_cm_conn *a, *b = pair_requested(&pair, &a);
	unsigned int i;

	vb_cm_conn_destroy(a, pair.now);
	i = pair.at;
	assert_int_equal(pair_next(&pair, &pair.a, VB_CM_ATTR_REJ).rej.reason, VB_CM_REJ_TIMEOUT);
	assert_int_equal(pair_decode(pair.queue[i].mad).remote_id, 0); /* b's ID is not known */
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_REJ);
	i = pair_event_of(&pair.b, VB_CM_REJ_RECEIVED);
	assert_int_equal(pair.b.events[i].rej.reason, VB_CM_REJ_TIMEOUT);
	pair_let_go(&pair, NULL, b);
}

static void test_rep_lost(void **state)
{
	struct vb_cm_conn *a, *b = pair_replied(&pair, &a);

	assert_repeats(&pair.b, VB_CM_ATTR_REP, REP_INTERVAL);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_REP);
	pair_event_of(&pair.a, VB_CM_REP_RECEIVED);
	pair_let_go(&pair, a, b);
}

/* Whichever is repeated first heals it: here REQ, which is answered by the same REP. */
static void test_rep_lost_and_req_repeated(void **state)
{
	struct vb_cm_conn *a, *b = pair_replied(&pair, &a);

	pair_lose(&pair, &pair.b, VB_CM_ATTR_REP);
	pair.now += REQ_INTERVAL;
	vb_cm_run(pair.a.cm, pair.now); /* b's clock is late */
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_REQ);
	pair_assert_no_event(&pair.b);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_REP);
	pair_event_of(&pair.a, VB_CM_REP_RECEIVED);
	pair_let_go(&pair, a, b);
}

static void test_rtu_lost(void **state)
{
	struct vb_cm_conn *a, *b = pair_accepted(&pair, &a);
	uint8_t rtu[VB_MAD_BYTES];

	assert_int_equal(vb_cm_send_rtu(a, "ready", 5, pair.now), 0);
	memcpy(rtu, pair_lose(&pair, &pair.a, VB_CM_ATTR_RTU), sizeof(rtu));
	pair_run_after(&pair.b, REP_INTERVAL);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_REP);
	pair_assert_no_event(&pair.a);
	assert_memory_equal(pair_deliver(&pair, &pair.a, VB_CM_ATTR_RTU), rtu, sizeof(rtu));
	assert_memory_equal(pair.b.events[pair_event_of(&pair.b, VB_CM_ESTABLISHED)].private_data,
			    "ready", 6);
	assert_int_equal(vb_cm_deadline(pair.b.cm), UINT64_MAX);
	pair_let_go(&pair, a, b);
}

static void test_rtu_lost_and_traffic_seen(void **state)
{
	struct vb_cm_conn *a, *b = pair_accepted(&pair, &a);
	unsigned int i;

	assert_int_equal(vb_cm_notify_established(a, pair.now), -EINVAL);
	assert_int_equal(vb_cm_send_rtu(a, NULL, 0, pair.now), 0);
	pair_lose(&pair, &pair.a, VB_CM_ATTR_RTU);
	assert_int_equal(vb_cm_notify_established(b, pair.now), 0);
	i = pair_event_of(&pair.b, VB_CM_ESTABLISHED);
	assert_int_equal(pair.b.events[i].private_len, 0);
	assert_int_equal(vb_cm_notify_established(b, pair.now), -EISCONN);
	assert_int_equal(vb_cm_deadline(pair.b.cm), UINT64_MAX);
	pair_give(&pair.b, pair.queue[pair.at - 1].mad); /* the RTU comes after all */
	pair_assert_no_event(&pair.b);
	pair_let_go(&pair, a, b);
}

static void test_rtu_lost_for_good(void **state)
{
	struct vb_cm_conn *a, *b = pair_accepted(&pair, &a);
	unsigned int i;

	assert_int_equal(vb_cm_send_rtu(a, NULL, 0, pair.now), 0);
	for (i = 0; i < RETRIES; i++) {
		pair_lose(&pair, &pair.a, VB_CM_ATTR_RTU);
		pair_run_after(&pair.b, REP_INTERVAL);
		pair_deliver(&pair, &pair.b, VB_CM_ATTR_REP);
	}
	pair_lose(&pair, &pair.a, VB_CM_ATTR_RTU);
	pair_run_after(&pair.b, REP_INTERVAL);
	pair_event_of(&pair.b, VB_CM_REP_FAILED);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_REJ);
	i = pair_event_of(&pair.a, VB_CM_REJ_RECEIVED);
	assert_int_equal(pair.a.events[i].rej.reason, VB_CM_REJ_TIMEOUT);
	pair_run_after(&pair.a, TIMEWAIT); /* its queue pair was in use */
	pair_event_of(&pair.a, VB_CM_TIMEWAIT_EXIT);
	pair_let_go(&pair, a, b);
}

static void test_dreq_lost(void **state)
{
	struct vb_cm_conn *a, *b = pair_established(&pair, &a);

	assert_int_equal(vb_cm_send_dreq(a, NULL, 0, pair.now), 0);
	assert_repeats(&pair.a, VB_CM_ATTR_DREQ, REQ_INTERVAL);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_DREQ);
	pair_event_of(&pair.b, VB_CM_DREQ_RECEIVED);
	pair_let_go(&pair, a, b);

	b = pair_established(&pair, &a);
	assert_int_equal(vb_cm_send_dreq(b, NULL, 0, pair.now), 0);
	assert_repeats(&pair.b, VB_CM_ATTR_DREQ, REP_INTERVAL);
	pair_let_go(&pair, a, b);
}

static void test_dreq_lost_for_good(void **state)
{
	struct vb_cm_conn *a, *b = pair_established(&pair, &a);

	assert_int_equal(vb_cm_send_dreq(a, NULL, 0, pair.now), 0);
	for (int i = 0; i < RETRIES; i++)
		assert_repeats(&pair.a, VB_CM_ATTR_DREQ, REQ_INTERVAL);
	pair_lose(&pair, &pair.a, VB_CM_ATTR_DREQ);
	pair_run_after(&pair.a, REQ_INTERVAL);
	pair_event_of(&pair.a, VB_CM_DREQ_FAILED);
	pair_run_after(&pair.a, TIMEWAIT);
	pair_event_of(&pair.a, VB_CM_TIMEWAIT_EXIT);
	pair_assert_silence(&pair);
	pair_let_go(&pair, a, b);
}

static void test_drep_lost(void **state)
{
	struct vb_cm_conn *a, *b = pair_established(&pair, &a);
	uint8_t drep[VB_MAD_BYTES];

	assert_int_equal(vb_cm_send_dreq(a, NULL, 0, pair.now), 0);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_DREQ);
	pair_event_of(&pair.b, VB_CM_DREQ_RECEIVED);
	assert_int_equal(vb_cm_send_drep(b, "bye", 3, pair.now), 0);
	vb_cm_conn_destroy(b, pair.now); /* timewait answers without it */
	memcpy(drep, pair_lose(&pair, &pair.b, VB_CM_ATTR_DREP), sizeof(drep));
	/* at the same time, but b has not looked at its clock yet */
	pair_run_after(&pair.a, REQ_INTERVAL);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_DREQ);
	assert_memory_equal(pair_deliver(&pair, &pair.b, VB_CM_ATTR_DREP), drep, sizeof(drep));
	pair_event_of(&pair.a, VB_CM_DREP_RECEIVED);
	pair_let_go(&pair, a, NULL);
}

/* ... and when timewait has passed, DREQ is for nobody, who agrees. */
static void test_drep_lost_and_forgotten(void **state)
{
	struct vb_cm_conn *a, *b = pair_established(&pair, &a);
	struct vb_cm_message dreq, drep;

	assert_int_equal(vb_cm_send_dreq(a, NULL, 0, pair.now), 0);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_DREQ);
	pair_event_of(&pair.b, VB_CM_DREQ_RECEIVED);
	vb_cm_conn_destroy(b, pair.now);
	pair_lose(&pair, &pair.b, VB_CM_ATTR_DREP);
	pair_run_after(&pair.b, TIMEWAIT);
	pair_assert_no_event(&pair.b);
	pair.now += REQ_INTERVAL - TIMEWAIT;
	vb_cm_run(pair.a.cm, pair.now);
	dreq = pair_next(&pair, &pair.a, VB_CM_ATTR_DREQ);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_DREQ);
	drep = pair_next(&pair, &pair.b, VB_CM_ATTR_DREP);
	assert_int_equal(drep.mad.tid, dreq.mad.tid);
	assert_int_equal(drep.local_id, dreq.remote_id);
	assert_int_equal(drep.remote_id, dreq.local_id);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_DREP);
	pair_event_of(&pair.a, VB_CM_DREP_RECEIVED);
	pair_let_go(&pair, a, NULL);
}

/* The program that sent the DREP ends before the DREQ comes again: it says so once more as it goes.
 */
static void test_drep_lost_and_its_sender_gone(void **state)
{
	struct vb_cm_conn *a, *b = pair_established(&pair, &a);

	assert_int_equal(vb_cm_send_dreq(a, NULL, 0, pair.now), 0);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_DREQ);
	pair_event_of(&pair.b, VB_CM_DREQ_RECEIVED);
	assert_int_equal(vb_cm_send_drep(b, NULL, 0, pair.now), 0);
	pair_lose(&pair, &pair.b, VB_CM_ATTR_DREP);
	vb_cm_conn_destroy(b, pair.now);
	pair_assert_silence(&pair);
	vb_cm_destroy(pair.b.cm);
	pair.b.cm = NULL;
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_DREP);
	pair_event_of(&pair.a, VB_CM_DREP_RECEIVED);
	vb_cm_conn_destroy(a, pair.now);
}

/* The connection is over before the RTU came: DREQ says that there was one. */
static void test_rtu_lost_and_dreq_came(void **state)
{
	struct vb_cm_conn *a, *b = pair_accepted(&pair, &a);

	assert_int_equal(vb_cm_send_rtu(a, NULL, 0, pair.now), 0);
	pair_lose(&pair, &pair.a, VB_CM_ATTR_RTU);
	assert_int_equal(vb_cm_send_dreq(a, NULL, 0, pair.now), 0);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_DREQ);
	pair_event_of(&pair.b, VB_CM_DREQ_RECEIVED);
	assert_int_equal(vb_cm_deadline(pair.b.cm), UINT64_MAX);
	pair_let_go(&pair, a, b);
}

/* A refusal is sent once: when it is lost, the repeated REQ asks the program anew. */
static void test_rej_lost(void **state)
{
	struct vb_cm_conn *a, *b = pair_requested(&pair, &a);
	struct vb_cm_rej rej = {.reason = VB_CM_REJ_CONSUMER_DEFINED};

	assert_int_equal(vb_cm_send_rej(b, &rej, pair.now), 0);
	vb_cm_conn_destroy(b, pair.now);
	pair_lose(&pair, &pair.b, VB_CM_ATTR_REJ);
	pair_assert_silence(&pair);
	pair_run_after(&pair.a, REQ_INTERVAL);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_REQ);
	b = pair.b.events[pair_event_of(&pair.b, VB_CM_REQ_RECEIVED)].conn;
	assert_int_equal(vb_cm_send_rej(b, &rej, pair.now), 0);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_REJ);
	pair_event_of(&pair.a, VB_CM_REJ_RECEIVED);
	pair_let_go(&pair, a, b);
}

/* MRA moves the next repetition out by what it says and a packet's life; then it goes on. */
static void test_mra_of_a_req(void **state)
{
	struct vb_cm_conn *a, *b = pair_requested(&pair, &a);

	assert_int_equal(vb_cm_send_mra(b, 32, NULL, 0, pair.now), -EINVAL);
	assert_int_equal(vb_cm_send_mra(b, 24, NULL, 0, pair.now), 0);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_MRA);
	pair_event_of(&pair.a, VB_CM_MRA_RECEIVED);
	pair_run_after(&pair.a, T(24) + T(ACK_TIMEOUT - 1));
	/* b still decides, and says so again */
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_REQ);
	assert_int_equal(pair_next(&pair, &pair.b, VB_CM_ATTR_MRA).mra.service_timeout, 24);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_MRA);
	pair_event_of(&pair.a, VB_CM_MRA_RECEIVED);
	pair_run_after(&pair.a, T(24) + T(ACK_TIMEOUT - 1));
	for (int i = 2; i < RETRIES; i++) { /* b is dead now */
		pair_lose(&pair, &pair.a, VB_CM_ATTR_REQ);
		pair_run_after(&pair.a, REQ_INTERVAL);
	}
	pair_lose(&pair, &pair.a, VB_CM_ATTR_REQ);
	pair_run_after(&pair.a, REQ_INTERVAL);
	pair_event_of(&pair.a, VB_CM_REQ_FAILED);
	pair_let_go(&pair, a, b);
}

static void test_mra_of_a_rep(void **state)
{
	struct vb_cm_conn *a, *b = pair_accepted(&pair, &a);

	assert_int_equal(vb_cm_send_mra(a, 22, NULL, 0, pair.now), 0);
	assert_int_equal(pair_next(&pair, &pair.a, VB_CM_ATTR_MRA).mra.about, VB_CM_ABOUT_REP);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_MRA);
	pair_event_of(&pair.b, VB_CM_MRA_RECEIVED);
	pair_run_after(&pair.b, T(22) + T(ACK_TIMEOUT - 1));
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_REP);
	assert_int_equal(pair_next(&pair, &pair.a, VB_CM_ATTR_MRA).mra.service_timeout, 22);
	pair_let_go(&pair, a, b);
}

/* A short one does not make the wait shorter. */
static void test_short_mra(void **state)
{
	struct vb_cm_conn *a, *b = pair_requested(&pair, &a);

	assert_int_equal(vb_cm_send_mra(b, 0, NULL, 0, pair.now), 0);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_MRA);
	assert_int_equal(vb_cm_deadline(pair.a.cm), pair.now + REQ_INTERVAL);
	pair_let_go(&pair, a, b);
}

/* The longest that a message can ask for, nine hours, counts as 137 seconds. */
static void test_long_times_are_bounded(void **state)
{
	struct vb_cm_conn *a = vb_cm_conn_create(pair.a.cm, NULL), *b;
	struct vb_cm_path to = pair_path_to(&pair.b);
	struct vb_cm_req req = pair_req(&pair);
	struct vb_cm_rep rep = pair_rep();

	req.remote_cm_timeout = req.local_cm_timeout = req.ack_timeout = 31;
	assert_int_equal(vb_cm_send_req(a, &to, &req, pair.now), 0);
	assert_int_equal(vb_cm_deadline(pair.a.cm), pair.now + 3 * T(25));
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_REQ);
	b = pair.b.events[pair_event_of(&pair.b, VB_CM_REQ_RECEIVED)].conn;
	assert_int_equal(vb_cm_send_mra(b, 31, NULL, 0, pair.now), 0);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_MRA);
	assert_int_equal(vb_cm_deadline(pair.a.cm), pair.now + 3 * T(25));
	assert_int_equal(vb_cm_send_rep(b, &rep, pair.now), 0);
	assert_int_equal(vb_cm_deadline(pair.b.cm), pair.now + T(25));
	vb_cm_conn_destroy(b, pair.now);
	assert_int_equal(vb_cm_deadline(pair.b.cm), pair.now + T(23)); /* timewait */
	vb_cm_conn_destroy(a, pair.now);
}

static struct vb_cm_conn *ask(void)
{
	struct vb_cm_conn *conn = vb_cm_conn_create(pair.a.cm, NULL);
	struct vb_cm_path to = pair_path_to(&pair.b);
	struct vb_cm_sidr_req req = {
		.service_id = SERVICE, .timeout = CM_TIMEOUT, .max_retries = RETRIES};

	assert_int_equal(vb_cm_send_sidr_req(conn, &to, &req, pair.now), 0);
	return conn;
}

static void test_sidr_req_lost_for_good(void **state)
{
	struct vb_cm_conn *a = ask();

	for (int i = 0; i < RETRIES; i++)
		assert_repeats(&pair.a, VB_CM_ATTR_SIDR_REQ, T(CM_TIMEOUT));
	pair_lose(&pair, &pair.a, VB_CM_ATTR_SIDR_REQ);
	pair_run_after(&pair.a, T(CM_TIMEOUT));
	pair_event_of(&pair.a, VB_CM_SIDR_FAILED);
	pair_assert_silence(&pair);
	pair_let_go(&pair, a, NULL);
}

static void test_sidr_rep_lost(void **state)
{
	struct vb_cm_conn *a = ask(), *b;
	struct vb_cm_sidr_rep rep = {.qpn = 7, .qkey = 8};
	uint8_t sent[VB_MAD_BYTES];

	pair_deliver(&pair, &pair.a, VB_CM_ATTR_SIDR_REQ);
	b = pair.b.events[pair_event_of(&pair.b, VB_CM_SIDR_REQ_RECEIVED)].conn;
	assert_int_equal(vb_cm_send_sidr_rep(b, &rep, pair.now), 0);
	vb_cm_conn_destroy(b, pair.now); /* the memory answers without it */
	memcpy(sent, pair_lose(&pair, &pair.b, VB_CM_ATTR_SIDR_REP), sizeof(sent));
	pair_run_after(&pair.a, T(CM_TIMEOUT));
	vb_cm_run(pair.b.cm, pair.now);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_SIDR_REQ);
	pair_assert_no_event(&pair.b);
	assert_memory_equal(pair_deliver(&pair, &pair.b, VB_CM_ATTR_SIDR_REP), sent, sizeof(sent));
	pair_event_of(&pair.a, VB_CM_SIDR_REP_RECEIVED);
	pair_let_go(&pair, a, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_req_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_req_lost_for_good, setup, teardown),
		cmocka_unit_test_setup_teardown(test_requester_gives_up_while_the_program_decides,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_rep_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rep_lost_for_good, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rep_lost_and_req_repeated, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rtu_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rtu_lost_and_traffic_seen, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rtu_lost_for_good, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dreq_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dreq_lost_for_good, setup, teardown),
		cmocka_unit_test_setup_teardown(test_drep_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_drep_lost_and_forgotten, setup, teardown),
		cmocka_unit_test_setup_teardown(test_drep_lost_and_its_sender_gone, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_rtu_lost_and_dreq_came, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rej_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mra_of_a_req, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mra_of_a_rep, setup, teardown),
		cmocka_unit_test_setup_teardown(test_short_mra, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long_times_are_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sidr_req_lost_for_good, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sidr_rep_lost, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
