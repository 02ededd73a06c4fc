/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scenario_cm.c - the life of a connection (IBTA 12.9): made, ended, with messages lost, with one
 * side silent or slow.
 */
#include "cm_scenario.h"

static void test_connect_and_disconnect(void **state)
{
	static const struct {
		uint32_t from;
		enum vb_cm_kind kind;
	} all[] = {
		{A, VB_CM_KIND_REQ},  {B, VB_CM_KIND_REP},  {A, VB_CM_KIND_RTU},
		{A, VB_CM_KIND_DREQ}, {B, VB_CM_KIND_DREP},
	};
	struct cm_pair *w = cm_begin();

	cm_establish(w);
	cm_disconnect(w, A);
	cm_step(w);
	cm_last(w, B, VB_CM_DREQ_RECEIVED);
	cm_answer_dreq(w, B);
	cm_run(w);
	assert_int_equal(cm_told(w, A, VB_CM_DREP_RECEIVED), 1);
	cm_last(w, A, VB_CM_TIMEWAIT_EXIT);
	cm_last(w, B, VB_CM_TIMEWAIT_EXIT);
	assert_int_equal(w->told_count[A], 3);
	assert_int_equal(w->told_count[B], 4);
	assert_int_equal(w->sent_count, VB_ARRAY_SIZE(all));
	for (uint32_t i = 0; i < VB_ARRAY_SIZE(all); i++) {
		assert_int_equal(w->sent[i].from, all[i].from);
		assert_int_equal(w->sent[i].kind, all[i].kind);
	}
	cm_end(w);
}

/* What is lost is sent again, the same to the byte, not before the peer had its time. */
static void test_lost_req(void **state)
{
	struct cm_pair *w = cm_begin();
	uint64_t first, second;

	vb_cm_net_rule(&w->net, A, VB_CM_KIND_REQ, 0, 1, VB_CM_LOSE, 0);
	cm_ask(w);
	cm_run_until(w, 2 * vb_cm_time(TIMEOUT) + vb_cm_time(ACK_TIMEOUT));
	assert_int_equal(cm_sent(w, A, VB_CM_KIND_REQ), 2);
	assert_memory_equal(cm_nth_sent(w, A, VB_CM_KIND_REQ, 0, &first),
			    cm_nth_sent(w, A, VB_CM_KIND_REQ, 1, &second), VB_MAD_BYTES);
	assert_true(second - first >= vb_cm_time(TIMEOUT));
	assert_int_equal(cm_told(w, B, VB_CM_REQ_RECEIVED), 1);
	cm_accept(w);
	cm_step(w);
	cm_agree(w);
	cm_step(w);
	cm_last(w, B, VB_CM_ESTABLISHED);
	cm_end(w);
}

static void test_lost_rep(void **state)
{
	struct cm_pair *w = cm_begin();

	vb_cm_net_rule(&w->net, B, VB_CM_KIND_REP, 0, 1, VB_CM_LOSE, 0);
	cm_ask(w);
	cm_step(w);
	cm_accept(w);
	cm_run_until(w, 2 * vb_cm_time(TIMEOUT));
	assert_int_equal(cm_told(w, A, VB_CM_REP_RECEIVED), 1);
	assert_int_equal(cm_told(w, B, VB_CM_REQ_RECEIVED), 1);
	assert_memory_equal(cm_nth_sent(w, B, VB_CM_KIND_REP, 0, NULL),
			    cm_nth_sent(w, B, VB_CM_KIND_REP, 1, NULL), VB_MAD_BYTES);
	cm_agree(w);
	cm_step(w);
	cm_last(w, B, VB_CM_ESTABLISHED);
	cm_end(w);
}

static void test_lost_rtu(void **state)
{
	struct cm_pair *w = cm_begin();

	vb_cm_net_rule(&w->net, A, VB_CM_KIND_RTU, 0, 1, VB_CM_LOSE, 0);
	cm_ask(w);
	cm_step(w);
	cm_accept(w);
	cm_step(w);
	cm_agree(w);
	cm_step(w);
	cm_last(w, B, VB_CM_REQ_RECEIVED);
	cm_run_until(w, 2 * vb_cm_time(TIMEOUT));
	assert_int_equal(cm_sent(w, B, VB_CM_KIND_REP), 2);
	assert_int_equal(cm_sent(w, A, VB_CM_KIND_RTU), 2);
	assert_int_equal(cm_told(w, A, VB_CM_REP_RECEIVED), 1);
	assert_int_equal(cm_told(w, B, VB_CM_ESTABLISHED), 1);
	assert_memory_equal(cm_last(w, B, VB_CM_ESTABLISHED)->data, "agreed\0\0", 8);
	cm_end(w);
}

static void test_lost_dreq(void **state)
{
	struct cm_pair *w = cm_begin();

	cm_establish(w);
	vb_cm_net_rule(&w->net, A, VB_CM_KIND_DREQ, 0, 1, VB_CM_LOSE, 0);
	cm_disconnect(w, A);
	cm_step(w);
	cm_last(w, B, VB_CM_ESTABLISHED);
	cm_run_until(w, 2 * vb_cm_time(TIMEOUT) + vb_cm_time(ACK_TIMEOUT));
	cm_last(w, B, VB_CM_DREQ_RECEIVED);
	cm_answer_dreq(w, B);
	cm_step(w);
	cm_last(w, A, VB_CM_DREP_RECEIVED);
	assert_int_equal(cm_sent(w, A, VB_CM_KIND_DREQ), 2);
	assert_int_equal(cm_sent(w, B, VB_CM_KIND_DREP), 1);
	cm_end(w);
}

/* The same answer to the same question, the program's words included, as long as timewait lasts. */
static void test_lost_drep(void **state)
{
	struct cm_pair *w = cm_begin();

	cm_establish(w);
	vb_cm_net_rule(&w->net, A, VB_CM_KIND_DREQ, 0, 1, VB_CM_TWICE, vb_cm_time(ACK_TIMEOUT) / 2);
	vb_cm_net_rule(&w->net, B, VB_CM_KIND_DREP, 0, 1, VB_CM_LOSE, 0);
	cm_disconnect(w, A);
	cm_step(w);
	cm_answer_dreq(w, B);
	cm_run(w);
	assert_int_equal(cm_sent(w, A, VB_CM_KIND_DREQ), 1);
	assert_memory_equal(cm_nth_sent(w, B, VB_CM_KIND_DREP, 0, NULL),
			    cm_nth_sent(w, B, VB_CM_KIND_DREP, 1, NULL), VB_MAD_BYTES);
	assert_int_equal(cm_told(w, A, VB_CM_DREP_RECEIVED), 1);
	assert_int_equal(cm_told(w, B, VB_CM_DREQ_RECEIVED), 1);
	cm_end(w);
}

/* ... and when the other side has forgotten all, an answer all the same. */
static void test_lost_drep_after_timewait(void **state)
{
	struct cm_pair *w = cm_begin();

	cm_establish(w);
	vb_cm_net_rule(&w->net, B, VB_CM_KIND_DREP, 0, 1, VB_CM_LOSE, 0);
	cm_disconnect(w, A);
	cm_step(w);
	cm_answer_dreq(w, B);
	cm_run_until(w, cm_now(w) + vb_cm_time(TIMEOUT) / 2);
	cm_last(w, B, VB_CM_TIMEWAIT_EXIT);
	cm_let_go(w, B);
	cm_run(w);
	assert_int_equal(cm_sent(w, B, VB_CM_KIND_DREP), 2);
	assert_int_equal(cm_told(w, A, VB_CM_DREP_RECEIVED), 1);
	cm_end(w);
}

static void test_nobody_listens(void **state)
{
	const struct vb_cm_req req = cm_req_of(SERVICE + 1);
	struct cm_pair *w = cm_begin();

	cm_connect(w, &req);
	cm_run(w);
	assert_int_equal(w->told_count[A], 1);
	assert_int_equal(cm_last(w, A, VB_CM_REJ_RECEIVED)->reason, VB_CM_REJ_INVALID_SERVICE_ID);
	assert_int_equal(w->told_count[B], 0);
	assert_int_equal(cm_sent(w, A, VB_CM_KIND_REQ), 1);
	cm_end(w);
}

static void test_silent_host(void **state)
{
	struct cm_pair *w = cm_begin();
	uint64_t wait_ns = (RETRIES + 1) * vb_cm_time(TIMEOUT);
	const struct cm_told *t;

	w->net.cut[A][B] = true;
	cm_ask(w);
	cm_run(w);
	t = cm_last(w, A, VB_CM_REQ_FAILED);
	assert_int_equal(w->told_count[A], 1);
	assert_int_equal(cm_sent(w, A, VB_CM_KIND_REQ), RETRIES + 1);
	assert_true(t->at_ns >= wait_ns);
	assert_true(t->at_ns <= 2 * wait_ns);
	cm_end(w);
}

/* REP, and then nothing comes back from the active side. */
static void test_silent_requester(void **state)
{
	struct cm_pair *w = cm_begin();

	cm_ask(w);
	cm_step(w);
	w->net.cut[B][A] = true;
	w->net.cut[A][B] = true;
	cm_accept(w);
	cm_run(w);
	cm_last(w, A, VB_CM_REQ_FAILED);
	assert_int_equal(cm_told(w, B, VB_CM_REP_FAILED), 1);
	assert_int_equal(cm_sent(w, B, VB_CM_KIND_REP), RETRIES + 1);
	cm_end(w);
}

/* DREQ and nobody answers: it is over all the same. */
static void test_silent_at_the_end(void **state)
{
	struct cm_pair *w = cm_begin();

	cm_establish(w);
	w->net.cut[A][B] = true;
	cm_disconnect(w, A);
	cm_run(w);
	assert_int_equal(cm_sent(w, A, VB_CM_KIND_DREQ), RETRIES + 1);
	assert_int_equal(cm_told(w, A, VB_CM_DREQ_FAILED), 1);
	cm_last(w, A, VB_CM_TIMEWAIT_EXIT);
	cm_end(w);
}

static void test_both_disconnect_at_once(void **state)
{
	struct cm_pair *w = cm_begin();

	cm_establish(w);
	cm_disconnect(w, A);
	cm_disconnect(w, B);
	cm_run(w);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(cm_told(w, i, VB_CM_DREP_RECEIVED), 1);
		assert_int_equal(cm_told(w, i, VB_CM_DREQ_RECEIVED), 0);
		assert_int_equal(cm_told(w, i, VB_CM_DREQ_FAILED), 0);
		cm_last(w, i, VB_CM_TIMEWAIT_EXIT);
	}
	cm_end(w);
}

/* The program disconnects before it has seen the other's DREQ: no DREQ stays unanswered. */
static void test_disconnect_after_dreq(void **state)
{
	struct cm_pair *w = cm_begin();

	cm_establish(w);
	cm_disconnect(w, A);
	cm_step(w);
	cm_last(w, B, VB_CM_DREQ_RECEIVED);
	cm_disconnect(w, B);
	cm_run(w);
	assert_int_equal(cm_told(w, A, VB_CM_DREP_RECEIVED), 1);
	assert_int_equal(cm_sent(w, A, VB_CM_KIND_DREQ), 1);
	assert_int_equal(cm_told(w, A, VB_CM_DREQ_RECEIVED), 0);
	assert_int_equal(cm_told(w, B, VB_CM_DREQ_RECEIVED), 1);
	assert_int_equal(cm_told(w, B, VB_CM_DREQ_FAILED), 0);
	cm_last(w, A, VB_CM_TIMEWAIT_EXIT);
	cm_last(w, B, VB_CM_TIMEWAIT_EXIT);
	cm_end(w);
}

/* The queue pair sees a packet before the RTU comes; the RTU then says nothing new. */
static void test_traffic_before_rtu(void **state)
{
	struct cm_pair *w = cm_begin();

	vb_cm_net_rule(&w->net, A, VB_CM_KIND_RTU, 0, 1, VB_CM_LATE, 1000000);
	cm_ask(w);
	cm_step(w);
	cm_accept(w);
	cm_step(w);
	cm_agree(w);
	cm_step(w);
	cm_done(w, B, vb_cm_notify_established(w->conn[B], cm_now(w)));
	assert_false(cm_last(w, B, VB_CM_ESTABLISHED)->has_data);
	cm_run_until(w, vb_cm_time(TIMEOUT) * 4);
	assert_int_equal(cm_told(w, B, VB_CM_ESTABLISHED), 1);
	assert_int_equal(cm_sent(w, B, VB_CM_KIND_REP), 1);
	cm_end(w);
}

/* Connected, nothing said, disconnected: the passive side never saw an RTU. */
static void test_dreq_before_rtu(void **state)
{
	struct cm_pair *w = cm_begin();

	vb_cm_net_rule(&w->net, A, VB_CM_KIND_RTU, 0, 100, VB_CM_LOSE, 0);
	cm_ask(w);
	cm_step(w);
	cm_accept(w);
	cm_step(w);
	cm_agree(w);
	cm_disconnect(w, A);
	cm_step(w);
	cm_last(w, B, VB_CM_DREQ_RECEIVED);
	cm_answer_dreq(w, B);
	cm_run(w);
	assert_int_equal(cm_told(w, A, VB_CM_DREP_RECEIVED), 1);
	assert_int_equal(cm_told(w, B, VB_CM_REP_FAILED), 0);
	cm_end(w);
}

/* A program dies and its successor connects with the same queue pair: the passive side still has
 * the old connection. It refuses once, ends the old one, and takes the next attempt. */
/* The peer has forgotten everything: a DREQ is answered all the same. */
/* A program ends in order: its peers hear of it. */
/* Destroyed at every point of its life, by either side: the other side hears of it at once, both
 * forget it, and nothing comes to the one that let go. */
/* The peer says that it takes longer: nobody asks again, and nobody gives up. */
static void test_mra_extends(void **state)
{
	struct cm_pair *w = cm_begin();

	cm_ask(w);
	cm_step(w);
	cm_done(w, B, vb_cm_send_mra(w->conn[B], TIMEOUT + 5, "wait", 4, cm_now(w)));
	cm_step(w);
	assert_memory_equal(cm_last(w, A, VB_CM_MRA_RECEIVED)->data, "wait\0", 5);
	cm_run_until(w, 10 * vb_cm_time(TIMEOUT));
	cm_last(w, A, VB_CM_MRA_RECEIVED);
	assert_int_equal(cm_sent(w, A, VB_CM_KIND_REQ), 1);
	cm_accept(w);
	cm_step(w);
	cm_agree(w);
	cm_step(w);
	cm_last(w, B, VB_CM_ESTABLISHED);
	assert_int_equal(cm_told(w, B, VB_CM_REQ_RECEIVED), 1);
	cm_end(w);
}

/* A program that decides slowly and does not say so: when it is asked again, its manager does. */
static void test_slow_program(void **state)
{
	const uint64_t slow_ns = 3 * (RETRIES + 1) * vb_cm_time(TIMEOUT);
	struct cm_pair *w = cm_begin();

	cm_ask(w);
	cm_run_until(w, slow_ns);
	assert_int_equal(cm_sent(w, A, VB_CM_KIND_REQ), 2);
	assert_int_equal(cm_sent(w, B, VB_CM_KIND_MRA), 1);
	cm_last(w, A, VB_CM_MRA_RECEIVED);
	cm_accept(w);
	cm_run_until(w, 2 * slow_ns);
	assert_int_equal(cm_sent(w, B, VB_CM_KIND_REP), 2);
	assert_int_equal(cm_sent(w, A, VB_CM_KIND_MRA), 1);
	cm_last(w, B, VB_CM_MRA_RECEIVED);
	cm_agree(w);
	cm_step(w);
	cm_last(w, B, VB_CM_ESTABLISHED);
	assert_int_equal(cm_told(w, B, VB_CM_REQ_RECEIVED), 1);
	assert_int_equal(cm_told(w, A, VB_CM_REP_RECEIVED), 1);
	cm_end(w);
}

/* The passive side accepts, and lets go; neither is heard. The next REQ finds a connection that has
 * just ended. */
static void test_mra_runs_out(void **state)
{
	struct cm_pair *w = cm_begin();

	cm_ask(w);
	cm_step(w);
	cm_done(w, B, vb_cm_send_mra(w->conn[B], TIMEOUT + 2, NULL, 0, cm_now(w)));
	cm_step(w);
	w->net.cut[B][A] = true;
	cm_run(w);
	assert_int_equal(cm_told(w, A, VB_CM_MRA_RECEIVED), 1);
	assert_true(cm_last(w, A, VB_CM_REQ_FAILED)->at_ns >= vb_cm_time(TIMEOUT + 2));
	cm_end(w);
}

/* A copy of the REQ was under way longer than both sides remember: what it starts ends by itself.
 */
/* Messages that come again long after they did their work. */
/* ... or put off: as if the message had been lost. */
/* The program says no, with its reasons. */
/* All 92 bytes, and not one more; nothing is sent and nothing has changed. */
/* Messages that are no messages, and messages of nobody: counted, and no answer but to DREQ. */
/* A listener of one address takes what is for it, and nothing else. */
int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connect_and_disconnect),
		cmocka_unit_test(test_lost_req),
		cmocka_unit_test(test_lost_rep),
		cmocka_unit_test(test_lost_rtu),
		cmocka_unit_test(test_lost_dreq),
		cmocka_unit_test(test_lost_drep),
		cmocka_unit_test(test_lost_drep_after_timewait),
		cmocka_unit_test(test_nobody_listens),
		cmocka_unit_test(test_silent_host),
		cmocka_unit_test(test_silent_requester),
		cmocka_unit_test(test_silent_at_the_end),
		cmocka_unit_test(test_both_disconnect_at_once),
		cmocka_unit_test(test_disconnect_after_dreq),
		cmocka_unit_test(test_traffic_before_rtu),
		cmocka_unit_test(test_dreq_before_rtu),
		cmocka_unit_test(test_mra_extends),
		cmocka_unit_test(test_slow_program),
		cmocka_unit_test(test_mra_runs_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
