/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scenario_cm.c - two connection managers and a wire that loses exactly what the test says.
 *
 * A message takes DELAY_NS and a manager runs at its deadline, so that every message has a time
 * that arithmetic gives. Programs are the tests themselves: step() lets everything that is under
 * way arrive, then the test answers.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cm/ip.h"
#include "sim/cm_net.h"

#define A 0
#define B 1
#define DELAY_NS 5000u
#define TIMEOUT 14u /* 67 ms */
#define ACK_TIMEOUT 10u
#define RETRIES 3u
#define SERVICE vb_cm_service_id(0x0106, 7000)
#define QPN_A 0x1234u
#define QPN_B 0x5678u
#define SEEN 256
#define FAR_NS 600000000000ull

struct told {
	enum vb_cm_event_type type;
	struct vb_cm_conn *conn;
	struct vb_cm_listener *listener;
	uint64_t at_ns;
	uint16_t reason; /* REJ */
	uint8_t status;	 /* SIDR_REP */
	bool has_data;
	uint8_t data[VB_CM_PRIVATE_MAX];
	size_t data_bytes;
};

struct world {
	struct vb_cm_net net;
	struct told told[2][SEEN];
	uint32_t told_count[2];
	struct {
		uint64_t at_ns;
		uint32_t from;
		enum vb_cm_kind kind;
		enum vb_cm_fate fate;
		uint8_t bytes[VB_MAD_BYTES];
	} sent[SEEN];
	uint32_t sent_count;
	struct vb_cm_listener *listener;
	struct vb_cm_conn *conn[2]; /* the last ones that began */
	bool refuses, puts_off;
};

static bool on_event(void *env, struct vb_cm_net_node *node, const struct vb_cm_event *event)
{
	struct world *w = env;
	struct told *told = &w->told[node->index][w->told_count[node->index]++];
	bool request = event->type == VB_CM_REQ_RECEIVED || event->type == VB_CM_SIDR_REQ_RECEIVED;

	assert_true(w->told_count[node->index] <= SEEN);
	*told = (struct told){
		.type = event->type,
		.conn = event->conn,
		.listener = event->listener,
		.at_ns = w->net.sim.now_ns,
		.reason = event->type == VB_CM_REJ_RECEIVED ? event->rej->reason : 0,
		.status = event->type == VB_CM_SIDR_REP_RECEIVED ? event->sidr_rep->status : 0,
		.has_data = event->private_data != NULL,
		.data_bytes = event->private_data_len,
	};
	assert_true(event->private_data_len <= sizeof(told->data));
	if (event->private_data)
		memcpy(told->data, event->private_data, event->private_data_len);
	if (request && !w->refuses)
		w->conn[node->index] = event->conn;
	if (request)
		*event->later = w->refuses && w->puts_off;
	return !request || !w->refuses;
}

static void on_sent(void *env, const struct vb_cm_mad *mad, enum vb_cm_fate fate)
{
	struct world *w = env;

	assert_true(w->sent_count < SEEN);
	w->sent[w->sent_count].at_ns = w->net.sim.now_ns;
	w->sent[w->sent_count].from = mad->from->index;
	w->sent[w->sent_count].kind = mad->kind;
	w->sent[w->sent_count].fate = fate;
	memcpy(w->sent[w->sent_count++].bytes, mad->bytes, VB_MAD_BYTES);
}

static struct world *begin(void)
{
	static const struct vb_cm_hooks hooks = {.event = on_event, .sent = on_sent};
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	vb_cm_net_init(&w->net, 1, 2, &hooks, w);
	w->net.delay_ns = DELAY_NS;
	for (uint32_t i = 0; i < 2; i++)
		vb_cm_net_start(&w->net.nodes[i]);
	assert_int_equal(vb_cm_listen(w->net.nodes[B].cm, SERVICE, NULL, w, &w->listener), 0);
	return w;
}

static void run_until(struct world *w, uint64_t at_ns)
{
	struct vb_sim *sim = &w->net.sim;

	while (vb_sim_next(sim) <= at_ns && vb_sim_step(sim))
		;
	if (sim->failed)
		fail_msg("%s", sim->failure);
	if (at_ns != UINT64_MAX - 1)
		sim->now_ns = at_ns;
}

/* Everything that is under way arrives, and what is answered by itself as well. */
static void step(struct world *w)
{
	run_until(w, w->net.sim.now_ns + 10 * DELAY_NS);
}

static void run(struct world *w)
{
	run_until(w, w->net.sim.now_ns + FAR_NS);
}

/* After the programs let go and time has run, nothing is left. */
static void end(struct world *w)
{
	for (uint32_t i = 0; i < 2; i++) {
		if (w->conn[i] && w->net.nodes[i].cm)
			vb_cm_conn_destroy(w->conn[i], w->net.sim.now_ns);
		if (w->net.nodes[i].cm)
			vb_cm_net_entered(&w->net.nodes[i]);
	}
	vb_cm_unlisten(w->listener);
	run(w);
	for (uint32_t i = 0; i < 2; i++) {
		struct vb_cm_counters c;

		vb_cm_read_counters(w->net.nodes[i].cm, &c);
		assert_int_equal(c.connections, 0);
		assert_int_equal(c.timewaits, 0);
		assert_int_equal(c.listeners, 0);
		assert_true(vb_cm_deadline(w->net.nodes[i].cm) == UINT64_MAX);
	}
	vb_cm_net_finish(&w->net);
	free(w);
}

/* Sent or told so often. */
static uint32_t sent(const struct world *w, uint32_t from, enum vb_cm_kind kind)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->sent_count; i++)
		n += w->sent[i].from == from && w->sent[i].kind == kind;
	return n;
}

static const uint8_t *nth_sent(const struct world *w, uint32_t from, enum vb_cm_kind kind,
			       uint32_t n, uint64_t *at_ns)
{
	for (uint32_t i = 0; i < w->sent_count; i++)
		if (w->sent[i].from == from && w->sent[i].kind == kind && !n--) {
			if (at_ns)
				*at_ns = w->sent[i].at_ns;
			return w->sent[i].bytes;
		}
	fail_msg("%s was not sent so often", vb_cm_kind_name(kind));
	return NULL;
}

static uint32_t told(const struct world *w, uint32_t at, enum vb_cm_event_type type)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->told_count[at]; i++)
		n += w->told[at][i].type == type;
	return n;
}

/* The last event of the node is this one. */
static const struct told *last(const struct world *w, uint32_t at, enum vb_cm_event_type type)
{
	const struct told *t = &w->told[at][w->told_count[at] - 1];

	assert_true(w->told_count[at] > 0);
	assert_int_equal(t->type, type);
	return t;
}

static uint64_t now(const struct world *w)
{
	return w->net.sim.now_ns;
}

static void done(struct world *w, uint32_t at, int result)
{
	assert_int_equal(result, 0);
	vb_cm_net_entered(&w->net.nodes[at]);
}

static struct vb_cm_req req_of(uint64_t service_id)
{
	return (struct vb_cm_req){
		.service_id = service_id,
		.qpn = QPN_A,
		.psn = 1,
		.path_mtu = 1024,
		.pkey = 0xffff,
		.ack_timeout = ACK_TIMEOUT,
		.remote_cm_timeout = TIMEOUT,
		.local_cm_timeout = TIMEOUT,
		.max_cm_retries = RETRIES,
		.hop_limit = 64,
	};
}

static void connect_with(struct world *w, const struct vb_cm_req *given)
{
	const struct vb_cm_path path = vb_cm_net_path(&w->net.nodes[A], &w->net.nodes[B]);
	struct vb_cm_req req = *given;

	req.sgid = w->net.nodes[A].gid;
	req.dgid = w->net.nodes[B].gid;
	w->conn[A] = vb_cm_conn_create(w->net.nodes[A].cm, w);
	assert_non_null(w->conn[A]);
	done(w, A, vb_cm_send_req(w->conn[A], &path, &req, now(w)));
}

static void ask(struct world *w)
{
	const struct vb_cm_req req = req_of(SERVICE);

	connect_with(w, &req);
}

static void accept_it(struct world *w)
{
	const struct vb_cm_rep rep = {.qpn = QPN_B, .psn = 2, .failover_accepted = 1};

	done(w, B, vb_cm_send_rep(w->conn[B], &rep, now(w)));
}

static void agree(struct world *w)
{
	done(w, A, vb_cm_send_rtu(w->conn[A], "agreed", 6, now(w)));
}

static void disconnect(struct world *w, uint32_t at)
{
	done(w, at, vb_cm_send_dreq(w->conn[at], "bye", 3, now(w)));
}

static void answer_dreq(struct world *w, uint32_t at)
{
	done(w, at, vb_cm_send_drep(w->conn[at], "bye", 3, now(w)));
}

static void establish(struct world *w)
{
	ask(w);
	step(w);
	accept_it(w);
	step(w);
	agree(w);
	step(w);
	last(w, A, VB_CM_REP_RECEIVED);
	last(w, B, VB_CM_ESTABLISHED);
}

static void let_go(struct world *w, uint32_t at)
{
	vb_cm_conn_destroy(w->conn[at], now(w));
	w->conn[at] = NULL;
	vb_cm_net_entered(&w->net.nodes[at]);
}

static void test_connect_and_disconnect(void **state)
{
	static const struct {
		uint32_t from;
		enum vb_cm_kind kind;
	} all[] = {
		{A, VB_CM_KIND_REQ},  {B, VB_CM_KIND_REP},  {A, VB_CM_KIND_RTU},
		{A, VB_CM_KIND_DREQ}, {B, VB_CM_KIND_DREP},
	};
	struct world *w = begin();

	establish(w);
	disconnect(w, A);
	step(w);
	last(w, B, VB_CM_DREQ_RECEIVED);
	answer_dreq(w, B);
	run(w);
	assert_int_equal(told(w, A, VB_CM_DREP_RECEIVED), 1);
	last(w, A, VB_CM_TIMEWAIT_EXIT);
	last(w, B, VB_CM_TIMEWAIT_EXIT);
	assert_int_equal(w->told_count[A], 3);
	assert_int_equal(w->told_count[B], 4);
	assert_int_equal(w->sent_count, VB_ARRAY_SIZE(all));
	for (uint32_t i = 0; i < VB_ARRAY_SIZE(all); i++) {
		assert_int_equal(w->sent[i].from, all[i].from);
		assert_int_equal(w->sent[i].kind, all[i].kind);
	}
	end(w);
}

/* What is lost is sent again, the same to the byte, not before the peer had its time. */
static void test_lost_req(void **state)
{
	struct world *w = begin();
	uint64_t first, second;

	vb_cm_net_rule(&w->net, A, VB_CM_KIND_REQ, 0, 1, VB_CM_LOSE, 0);
	ask(w);
	run_until(w, 2 * vb_cm_time(TIMEOUT) + vb_cm_time(ACK_TIMEOUT));
	assert_int_equal(sent(w, A, VB_CM_KIND_REQ), 2);
	assert_memory_equal(nth_sent(w, A, VB_CM_KIND_REQ, 0, &first),
			    nth_sent(w, A, VB_CM_KIND_REQ, 1, &second), VB_MAD_BYTES);
	assert_true(second - first >= vb_cm_time(TIMEOUT));
	assert_int_equal(told(w, B, VB_CM_REQ_RECEIVED), 1);
	accept_it(w);
	step(w);
	agree(w);
	step(w);
	last(w, B, VB_CM_ESTABLISHED);
	end(w);
}

static void test_lost_rep(void **state)
{
	struct world *w = begin();

	vb_cm_net_rule(&w->net, B, VB_CM_KIND_REP, 0, 1, VB_CM_LOSE, 0);
	ask(w);
	step(w);
	accept_it(w);
	run_until(w, 2 * vb_cm_time(TIMEOUT));
	assert_int_equal(told(w, A, VB_CM_REP_RECEIVED), 1);
	assert_int_equal(told(w, B, VB_CM_REQ_RECEIVED), 1);
	assert_memory_equal(nth_sent(w, B, VB_CM_KIND_REP, 0, NULL),
			    nth_sent(w, B, VB_CM_KIND_REP, 1, NULL), VB_MAD_BYTES);
	agree(w);
	step(w);
	last(w, B, VB_CM_ESTABLISHED);
	end(w);
}

static void test_lost_rtu(void **state)
{
	struct world *w = begin();

	vb_cm_net_rule(&w->net, A, VB_CM_KIND_RTU, 0, 1, VB_CM_LOSE, 0);
	ask(w);
	step(w);
	accept_it(w);
	step(w);
	agree(w);
	step(w);
	last(w, B, VB_CM_REQ_RECEIVED);
	run_until(w, 2 * vb_cm_time(TIMEOUT));
	assert_int_equal(sent(w, B, VB_CM_KIND_REP), 2);
	assert_int_equal(sent(w, A, VB_CM_KIND_RTU), 2);
	assert_int_equal(told(w, A, VB_CM_REP_RECEIVED), 1);
	assert_int_equal(told(w, B, VB_CM_ESTABLISHED), 1);
	assert_memory_equal(last(w, B, VB_CM_ESTABLISHED)->data, "agreed\0\0", 8);
	end(w);
}

static void test_lost_dreq(void **state)
{
	struct world *w = begin();

	establish(w);
	vb_cm_net_rule(&w->net, A, VB_CM_KIND_DREQ, 0, 1, VB_CM_LOSE, 0);
	disconnect(w, A);
	step(w);
	last(w, B, VB_CM_ESTABLISHED);
	run_until(w, 2 * vb_cm_time(TIMEOUT) + vb_cm_time(ACK_TIMEOUT));
	last(w, B, VB_CM_DREQ_RECEIVED);
	answer_dreq(w, B);
	step(w);
	last(w, A, VB_CM_DREP_RECEIVED);
	assert_int_equal(sent(w, A, VB_CM_KIND_DREQ), 2);
	assert_int_equal(sent(w, B, VB_CM_KIND_DREP), 1);
	end(w);
}

/* The same answer to the same question, the program's words included, as long as timewait lasts. */
static void test_lost_drep(void **state)
{
	struct world *w = begin();

	establish(w);
	vb_cm_net_rule(&w->net, A, VB_CM_KIND_DREQ, 0, 1, VB_CM_TWICE, vb_cm_time(ACK_TIMEOUT) / 2);
	vb_cm_net_rule(&w->net, B, VB_CM_KIND_DREP, 0, 1, VB_CM_LOSE, 0);
	disconnect(w, A);
	step(w);
	answer_dreq(w, B);
	run(w);
	assert_int_equal(sent(w, A, VB_CM_KIND_DREQ), 1);
	assert_memory_equal(nth_sent(w, B, VB_CM_KIND_DREP, 0, NULL),
			    nth_sent(w, B, VB_CM_KIND_DREP, 1, NULL), VB_MAD_BYTES);
	assert_int_equal(told(w, A, VB_CM_DREP_RECEIVED), 1);
	assert_int_equal(told(w, B, VB_CM_DREQ_RECEIVED), 1);
	end(w);
}

/* ... and when the other side has forgotten all, an answer all the same. */
static void test_lost_drep_after_timewait(void **state)
{
	struct world *w = begin();

	establish(w);
	vb_cm_net_rule(&w->net, B, VB_CM_KIND_DREP, 0, 1, VB_CM_LOSE, 0);
	disconnect(w, A);
	step(w);
	answer_dreq(w, B);
	run_until(w, now(w) + vb_cm_time(TIMEOUT) / 2);
	last(w, B, VB_CM_TIMEWAIT_EXIT);
	let_go(w, B);
	run(w);
	assert_int_equal(sent(w, B, VB_CM_KIND_DREP), 2);
	assert_int_equal(told(w, A, VB_CM_DREP_RECEIVED), 1);
	end(w);
}

static void test_nobody_listens(void **state)
{
	const struct vb_cm_req req = req_of(SERVICE + 1);
	struct world *w = begin();

	connect_with(w, &req);
	run(w);
	assert_int_equal(w->told_count[A], 1);
	assert_int_equal(last(w, A, VB_CM_REJ_RECEIVED)->reason, VB_CM_REJ_INVALID_SERVICE_ID);
	assert_int_equal(w->told_count[B], 0);
	assert_int_equal(sent(w, A, VB_CM_KIND_REQ), 1);
	end(w);
}

static void test_silent_host(void **state)
{
	struct world *w = begin();
	uint64_t wait_ns = (RETRIES + 1) * vb_cm_time(TIMEOUT);
	const struct told *t;

	w->net.cut[A][B] = true;
	ask(w);
	run(w);
	t = last(w, A, VB_CM_REQ_FAILED);
	assert_int_equal(w->told_count[A], 1);
	assert_int_equal(sent(w, A, VB_CM_KIND_REQ), RETRIES + 1);
	assert_true(t->at_ns >= wait_ns);
	assert_true(t->at_ns <= 2 * wait_ns);
	end(w);
}

/* REP, and then nothing comes back from the active side. */
static void test_silent_requester(void **state)
{
	struct world *w = begin();

	ask(w);
	step(w);
	w->net.cut[B][A] = true;
	w->net.cut[A][B] = true;
	accept_it(w);
	run(w);
	last(w, A, VB_CM_REQ_FAILED);
	assert_int_equal(told(w, B, VB_CM_REP_FAILED), 1);
	assert_int_equal(sent(w, B, VB_CM_KIND_REP), RETRIES + 1);
	end(w);
}

/* DREQ and nobody answers: it is over all the same. */
static void test_silent_at_the_end(void **state)
{
	struct world *w = begin();

	establish(w);
	w->net.cut[A][B] = true;
	disconnect(w, A);
	run(w);
	assert_int_equal(sent(w, A, VB_CM_KIND_DREQ), RETRIES + 1);
	assert_int_equal(told(w, A, VB_CM_DREQ_FAILED), 1);
	last(w, A, VB_CM_TIMEWAIT_EXIT);
	end(w);
}

static void test_both_disconnect_at_once(void **state)
{
	struct world *w = begin();

	establish(w);
	disconnect(w, A);
	disconnect(w, B);
	run(w);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(told(w, i, VB_CM_DREP_RECEIVED), 1);
		assert_int_equal(told(w, i, VB_CM_DREQ_RECEIVED), 0);
		assert_int_equal(told(w, i, VB_CM_DREQ_FAILED), 0);
		last(w, i, VB_CM_TIMEWAIT_EXIT);
	}
	end(w);
}

/* The program disconnects before it has seen the other's DREQ: no DREQ stays unanswered. */
static void test_disconnect_after_dreq(void **state)
{
	struct world *w = begin();

	establish(w);
	disconnect(w, A);
	step(w);
	last(w, B, VB_CM_DREQ_RECEIVED);
	disconnect(w, B);
	run(w);
	assert_int_equal(told(w, A, VB_CM_DREP_RECEIVED), 1);
	assert_int_equal(sent(w, A, VB_CM_KIND_DREQ), 1);
	assert_int_equal(told(w, A, VB_CM_DREQ_RECEIVED), 0);
	assert_int_equal(told(w, B, VB_CM_DREQ_RECEIVED), 1);
	assert_int_equal(told(w, B, VB_CM_DREQ_FAILED), 0);
	last(w, A, VB_CM_TIMEWAIT_EXIT);
	last(w, B, VB_CM_TIMEWAIT_EXIT);
	end(w);
}

/* The queue pair sees a packet before the RTU comes; the RTU then says nothing new. */
static void test_traffic_before_rtu(void **state)
{
	struct world *w = begin();

	vb_cm_net_rule(&w->net, A, VB_CM_KIND_RTU, 0, 1, VB_CM_LATE, 1000000);
	ask(w);
	step(w);
	accept_it(w);
	step(w);
	agree(w);
	step(w);
	done(w, B, vb_cm_notify_established(w->conn[B], now(w)));
	assert_false(last(w, B, VB_CM_ESTABLISHED)->has_data);
	run_until(w, vb_cm_time(TIMEOUT) * 4);
	assert_int_equal(told(w, B, VB_CM_ESTABLISHED), 1);
	assert_int_equal(sent(w, B, VB_CM_KIND_REP), 1);
	end(w);
}

/* Connected, nothing said, disconnected: the passive side never saw an RTU. */
static void test_dreq_before_rtu(void **state)
{
	struct world *w = begin();

	vb_cm_net_rule(&w->net, A, VB_CM_KIND_RTU, 0, 100, VB_CM_LOSE, 0);
	ask(w);
	step(w);
	accept_it(w);
	step(w);
	agree(w);
	disconnect(w, A);
	step(w);
	last(w, B, VB_CM_DREQ_RECEIVED);
	answer_dreq(w, B);
	run(w);
	assert_int_equal(told(w, A, VB_CM_DREP_RECEIVED), 1);
	assert_int_equal(told(w, B, VB_CM_REP_FAILED), 0);
	end(w);
}

/* A program dies and its successor connects with the same queue pair: the passive side still has
 * the old connection. It refuses once, ends the old one, and takes the next attempt. */
static void test_stale_connection(void **state)
{
	struct vb_cm_conn *old;
	struct world *w = begin();

	establish(w);
	old = w->conn[B];
	vb_cm_net_stop(&w->net.nodes[A], true);
	vb_cm_net_start(&w->net.nodes[A]);
	ask(w);
	step(w);
	assert_int_equal(last(w, A, VB_CM_REJ_RECEIVED)->reason, VB_CM_REJ_STALE_CONN);
	assert_ptr_equal(last(w, B, VB_CM_DREP_RECEIVED)->conn, old);
	let_go(w, A);
	w->conn[B] = NULL;
	establish(w);
	assert_ptr_not_equal(w->conn[B], old);
	vb_cm_conn_destroy(old, now(w));
	vb_cm_net_entered(&w->net.nodes[B]);
	end(w);
}

/* The peer has forgotten everything: a DREQ is answered all the same. */
static void test_dreq_to_a_successor(void **state)
{
	struct world *w = begin();

	establish(w);
	vb_cm_net_stop(&w->net.nodes[A], true);
	vb_cm_net_start(&w->net.nodes[A]);
	w->conn[A] = NULL;
	disconnect(w, B);
	step(w);
	last(w, B, VB_CM_DREP_RECEIVED);
	assert_int_equal(sent(w, B, VB_CM_KIND_DREQ), 1);
	end(w);
}

/* A program ends in order: its peers hear of it. */
static void test_manager_destroyed(void **state)
{
	struct world *w = begin();

	establish(w);
	vb_cm_net_stop(&w->net.nodes[A], false);
	vb_cm_net_start(&w->net.nodes[A]);
	w->conn[A] = NULL;
	step(w);
	last(w, B, VB_CM_DREQ_RECEIVED);
	answer_dreq(w, B);
	end(w);
}

/* Destroyed at every point of its life, by either side: the other side hears of it at once, both
 * forget it, and nothing comes to the one that let go. */
static void test_destroy_in_every_state(void **state)
{
	enum {
		REQ_SENT,
		REQ_RCVD,
		MRA_SENT,
		REP_SENT,
		REP_RCVD,
		ESTABLISHED,
		DREQ_SENT,
		DREQ_RCVD,
		TIMEWAIT,
		POINTS
	};

	for (int at = 0; at < POINTS; at++)
		for (uint32_t side = 0; side < 2; side++) {
			struct world *w = begin();
			uint32_t events;

			ask(w);
			if (at >= REQ_RCVD)
				step(w);
			if (at == MRA_SENT)
				done(w, B, vb_cm_send_mra(w->conn[B], TIMEOUT, NULL, 0, now(w)));
			if (at >= REP_SENT)
				accept_it(w);
			if (at >= REP_RCVD)
				step(w);
			if (at >= ESTABLISHED)
				agree(w), step(w);
			if (at >= DREQ_SENT)
				disconnect(w, A);
			if (at >= DREQ_RCVD)
				step(w);
			if (at >= TIMEWAIT)
				answer_dreq(w, B), step(w);
			if (w->conn[side]) {
				events = w->told_count[side];
				let_go(w, side);
				run(w);
				assert_int_equal(w->told_count[side], events);
				assert_int_equal(told(w, !side, VB_CM_REJ_RECEIVED) +
							 told(w, !side, VB_CM_DREQ_RECEIVED) +
							 told(w, !side, VB_CM_DREP_RECEIVED),
						 1);
			}
			end(w);
		}
}

/* The peer says that it takes longer: nobody asks again, and nobody gives up. */
static void test_mra_extends(void **state)
{
	struct world *w = begin();

	ask(w);
	step(w);
	done(w, B, vb_cm_send_mra(w->conn[B], TIMEOUT + 5, "wait", 4, now(w)));
	step(w);
	assert_memory_equal(last(w, A, VB_CM_MRA_RECEIVED)->data, "wait\0", 5);
	run_until(w, 10 * vb_cm_time(TIMEOUT));
	last(w, A, VB_CM_MRA_RECEIVED);
	assert_int_equal(sent(w, A, VB_CM_KIND_REQ), 1);
	accept_it(w);
	step(w);
	agree(w);
	step(w);
	last(w, B, VB_CM_ESTABLISHED);
	assert_int_equal(told(w, B, VB_CM_REQ_RECEIVED), 1);
	end(w);
}

/* A program that decides slowly and does not say so: when it is asked again, its manager does. */
static void test_slow_program(void **state)
{
	const uint64_t slow_ns = 3 * (RETRIES + 1) * vb_cm_time(TIMEOUT);
	struct world *w = begin();

	ask(w);
	run_until(w, slow_ns);
	assert_int_equal(sent(w, A, VB_CM_KIND_REQ), 2);
	assert_int_equal(sent(w, B, VB_CM_KIND_MRA), 1);
	last(w, A, VB_CM_MRA_RECEIVED);
	accept_it(w);
	run_until(w, 2 * slow_ns);
	assert_int_equal(sent(w, B, VB_CM_KIND_REP), 2);
	assert_int_equal(sent(w, A, VB_CM_KIND_MRA), 1);
	last(w, B, VB_CM_MRA_RECEIVED);
	agree(w);
	step(w);
	last(w, B, VB_CM_ESTABLISHED);
	assert_int_equal(told(w, B, VB_CM_REQ_RECEIVED), 1);
	assert_int_equal(told(w, A, VB_CM_REP_RECEIVED), 1);
	end(w);
}

/* The passive side accepts, and lets go; neither is heard. The next REQ finds a connection that has
 * just ended. */
static void test_req_after_the_end(void **state)
{
	struct world *w = begin();

	vb_cm_net_rule(&w->net, B, VB_CM_KIND_REP, 0, 100, VB_CM_LOSE, 0);
	vb_cm_net_rule(&w->net, B, VB_CM_KIND_REJ, 0, 1, VB_CM_LOSE, 0);
	ask(w);
	step(w);
	accept_it(w);
	run_until(w, vb_cm_time(TIMEOUT) + vb_cm_time(ACK_TIMEOUT) / 2);
	let_go(w, B);
	run(w);
	last(w, A, VB_CM_TIMEWAIT_EXIT);
	assert_int_equal(told(w, A, VB_CM_REJ_RECEIVED), 1);
	assert_int_equal(w->told[A][0].reason, VB_CM_REJ_STALE_CONN);
	assert_int_equal(sent(w, A, VB_CM_KIND_REQ), 2);
	end(w);
}

static void test_mra_runs_out(void **state)
{
	struct world *w = begin();

	ask(w);
	step(w);
	done(w, B, vb_cm_send_mra(w->conn[B], TIMEOUT + 2, NULL, 0, now(w)));
	step(w);
	w->net.cut[B][A] = true;
	run(w);
	assert_int_equal(told(w, A, VB_CM_MRA_RECEIVED), 1);
	assert_true(last(w, A, VB_CM_REQ_FAILED)->at_ns >= vb_cm_time(TIMEOUT + 2));
	end(w);
}

/* A copy of the REQ was under way longer than both sides remember: what it starts ends by itself.
 */
static void test_req_of_the_past(void **state)
{
	struct world *w = begin();

	vb_cm_net_rule(&w->net, A, VB_CM_KIND_REQ, 0, 1, VB_CM_TWICE, 500000000000ull);
	establish(w);
	disconnect(w, A);
	step(w);
	answer_dreq(w, B);
	run_until(w, 400000000000ull);
	let_go(w, A);
	let_go(w, B);
	run_until(w, 501000000000ull);
	assert_int_equal(told(w, B, VB_CM_REQ_RECEIVED), 2);
	accept_it(w);
	run(w);
	assert_int_equal(told(w, B, VB_CM_ESTABLISHED), 1); /* the first */
	assert_int_equal(told(w, B, VB_CM_REP_FAILED) + told(w, B, VB_CM_REJ_RECEIVED), 1);
	end(w);
}

/* Messages that come again long after they did their work. */
static void test_everything_twice(void **state)
{
	struct world *w = begin();

	for (enum vb_cm_kind kind = VB_CM_KIND_REP; kind <= VB_CM_KIND_DREP; kind++)
		vb_cm_net_rule(&w->net, VB_CM_ANY_NODE, kind, 0, 1, VB_CM_TWICE, 3000000);
	vb_cm_net_rule(&w->net, A, VB_CM_KIND_REQ, 0, 1, VB_CM_TWICE, 3000000);
	establish(w);
	disconnect(w, A);
	step(w);
	answer_dreq(w, B);
	run(w);
	assert_int_equal(w->told_count[A], 3);
	assert_int_equal(w->told_count[B], 4);
	end(w);
}

static void test_refused_by_the_program(void **state)
{
	struct world *w = begin();

	w->refuses = true;
	ask(w);
	run(w);
	assert_int_equal(last(w, A, VB_CM_REJ_RECEIVED)->reason, VB_CM_REJ_NO_RESOURCES);
	assert_int_equal(told(w, B, VB_CM_REQ_RECEIVED), 1);
	end(w);
}

/* ... or put off: as if the message had been lost. */
static void test_put_off_by_the_program(void **state)
{
	struct world *w = begin();

	w->refuses = w->puts_off = true;
	ask(w);
	step(w);
	assert_int_equal(w->told_count[A], 0);
	assert_int_equal(sent(w, B, VB_CM_KIND_REJ), 0);
	w->refuses = false;
	run_until(w, 2 * vb_cm_time(TIMEOUT));
	assert_int_equal(told(w, B, VB_CM_REQ_RECEIVED), 2);
	accept_it(w);
	step(w);
	last(w, A, VB_CM_REP_RECEIVED);
	end(w);
}

/* The program says no, with its reasons. */
static void test_reject(void **state)
{
	const struct vb_cm_rej rej = {
		.reason = VB_CM_REJ_CONSUMER_DEFINED,
		.private_data = "no room",
		.private_data_len = 7,
	};
	struct world *w = begin();

	ask(w);
	step(w);
	done(w, B, vb_cm_send_rej(w->conn[B], &rej, now(w)));
	run(w);
	assert_int_equal(last(w, A, VB_CM_REJ_RECEIVED)->reason, VB_CM_REJ_CONSUMER_DEFINED);
	assert_memory_equal(last(w, A, VB_CM_REJ_RECEIVED)->data, "no room\0\0", 9);
	assert_int_equal(last(w, A, VB_CM_REJ_RECEIVED)->data_bytes, VB_CM_REJ_PRIVATE);
	end(w);
}

/* All 92 bytes, and not one more; nothing is sent and nothing has changed. */
static void test_private_data_sizes(void **state)
{
	uint8_t bytes[VB_CM_REP_PRIVATE + 1];
	struct vb_cm_req req = req_of(SERVICE);
	struct world *w = begin();
	struct vb_cm_path path = vb_cm_net_path(&w->net.nodes[A], &w->net.nodes[B]);
	struct vb_cm_conn *conn = vb_cm_conn_create(w->net.nodes[A].cm, NULL);
	struct vb_cm_rep rep = {.qpn = QPN_B, .private_data = bytes};

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i + 1);
	req.private_data = bytes;
	req.private_data_len = VB_CM_REQ_PRIVATE + 1;
	assert_int_equal(vb_cm_send_req(conn, &path, &req, now(w)), -EMSGSIZE);
	assert_int_equal(w->sent_count, 0);
	vb_cm_conn_destroy(conn, now(w));
	req.private_data_len = VB_CM_REQ_PRIVATE;
	connect_with(w, &req);
	step(w);
	assert_int_equal(last(w, B, VB_CM_REQ_RECEIVED)->data_bytes, VB_CM_REQ_PRIVATE);
	assert_memory_equal(last(w, B, VB_CM_REQ_RECEIVED)->data, bytes, VB_CM_REQ_PRIVATE);
	rep.private_data_len = VB_CM_REP_PRIVATE + 1;
	assert_int_equal(vb_cm_send_rep(w->conn[B], &rep, now(w)), -EMSGSIZE);
	assert_int_equal(sent(w, B, VB_CM_KIND_REP), 0);
	rep.private_data_len = VB_CM_REP_PRIVATE;
	done(w, B, vb_cm_send_rep(w->conn[B], &rep, now(w)));
	step(w);
	assert_memory_equal(last(w, A, VB_CM_REP_RECEIVED)->data, bytes, VB_CM_REP_PRIVATE);
	end(w);
}

static void ask_sidr(struct world *w, uint64_t service_id)
{
	const struct vb_cm_path path = vb_cm_net_path(&w->net.nodes[A], &w->net.nodes[B]);
	const struct vb_cm_sidr_req req = {
		.service_id = service_id,
		.pkey = 0xffff,
		.timeout = TIMEOUT,
		.max_retries = RETRIES,
		.private_data = "who?",
		.private_data_len = 4,
	};

	w->conn[A] = vb_cm_conn_create(w->net.nodes[A].cm, w);
	done(w, A, vb_cm_send_sidr_req(w->conn[A], &path, &req, now(w)));
}

static void test_sidr(void **state)
{
	const struct vb_cm_sidr_rep rep = {.qpn = QPN_B, .qkey = 0x01234567};
	struct world *w = begin();

	vb_cm_net_rule(&w->net, A, VB_CM_KIND_SIDR_REQ, 0, 1, VB_CM_LOSE, 0);
	vb_cm_net_rule(&w->net, B, VB_CM_KIND_SIDR_REP, 0, 1, VB_CM_LOSE, 0);
	ask_sidr(w, SERVICE);
	run_until(w, vb_cm_time(TIMEOUT) * 3 / 2);
	last(w, B, VB_CM_SIDR_REQ_RECEIVED);
	assert_memory_equal(last(w, B, VB_CM_SIDR_REQ_RECEIVED)->data, "who?\0", 5);
	done(w, B, vb_cm_send_sidr_rep(w->conn[B], &rep, now(w)));
	run_until(w, vb_cm_time(TIMEOUT) * 5 / 2);
	assert_int_equal(last(w, A, VB_CM_SIDR_REP_RECEIVED)->status, VB_CM_SIDR_VALID);
	assert_int_equal(told(w, B, VB_CM_SIDR_REQ_RECEIVED), 1);
	assert_int_equal(sent(w, A, VB_CM_KIND_SIDR_REQ), 3);
	end(w);
}

static void test_sidr_failures(void **state)
{
	struct world *w = begin();

	ask_sidr(w, SERVICE + 1);
	run(w);
	assert_int_equal(w->told_count[A], 1);
	assert_int_equal(last(w, A, VB_CM_SIDR_REP_RECEIVED)->status, VB_CM_SIDR_UNSUPPORTED);
	let_go(w, A);
	w->net.cut[A][B] = true;
	ask_sidr(w, SERVICE);
	run(w);
	assert_int_equal(w->told_count[A], 2);
	last(w, A, VB_CM_SIDR_FAILED);
	assert_int_equal(sent(w, A, VB_CM_KIND_SIDR_REQ), 1 + RETRIES + 1);
	end(w);
}

/* Messages that are no messages, and messages of nobody: counted, and no answer but to DREQ. */
static void test_strangers(void **state)
{
	struct world *w = begin();
	struct vb_cm_net_node *a = &w->net.nodes[A], *b = &w->net.nodes[B];
	struct vb_cm_counters before, after;
	uint8_t mad[VB_MAD_BYTES] = {1, VB_MAD_CM, 2, VB_MAD_SEND};
	static const struct {
		size_t at;
		uint8_t value;
	} broken[] = {{0, 2}, {2, 3}, {3, VB_MAD_GET}};

	mad[17] = 0x15;
	mad[27] = 9;
	mad[31] = 9;
	vb_cm_net_inject(b, a, mad, sizeof(mad));
	assert_int_equal(sent(w, B, VB_CM_KIND_DREP), 1);
	for (uint32_t i = 0; i < VB_ARRAY_SIZE(broken); i++) {
		uint8_t bad[VB_MAD_BYTES];

		memcpy(bad, mad, sizeof(bad));
		bad[broken[i].at] = broken[i].value;
		vb_cm_net_inject(b, a, bad, sizeof(bad));
	}
	vb_cm_net_inject(b, a, mad, sizeof(mad) - 1);
	vb_cm_net_inject(b, a, mad, 0);
	vb_cm_read_counters(b->cm, &before);
	assert_int_equal(before.rx_malformed, VB_ARRAY_SIZE(broken) + 2);
	assert_int_equal(w->sent_count, 1);
	mad[17] = 0x14; /* RTU */
	vb_cm_net_inject(b, a, mad, sizeof(mad));
	mad[17] = 0x16; /* DREP */
	vb_cm_net_inject(b, a, mad, sizeof(mad));
	vb_cm_read_counters(b->cm, &after);
	assert_int_equal(after.rx_unknown - before.rx_unknown, 2);
	assert_int_equal(w->sent_count, 1);
	assert_int_equal(w->told_count[B], 0);
	end(w);
}

/* A listener of one address takes what is for it, and nothing else. */
static void test_listener_of_an_address(void **state)
{
	struct world *w = begin();
	struct vb_cm_ip ip = {.ipv4 = true, .source_port = 1};
	struct vb_cm_match match = {.at = 20, .len = 16, .ip_version = 4};
	const struct vb_cm_match only_version = {.ip_version = 4};
	uint8_t header[VB_CM_IP_HEADER_BYTES];
	struct vb_cm_req req = req_of(SERVICE + 5);
	struct vb_cm_listener *one, *other, *any[2];
	struct vb_cm *b = w->net.nodes[B].cm;

	ip.source.s6_addr[10] = ip.source.s6_addr[11] = 0xff;
	ip.destination = w->net.nodes[B].gid;
	memcpy(match.bytes, &ip.destination, 16);
	vb_cm_ip_encode(&ip, header);
	/* The header has an IPv4 address in its last four bytes, zeros before. */
	memcpy(match.bytes, header + 20, 16);
	/* Of several that would take it, the one that asks for most. */
	assert_int_equal(vb_cm_listen(b, SERVICE + 5, NULL, NULL, &any[0]), 0);
	assert_int_equal(vb_cm_listen(b, SERVICE + 5, &match, NULL, &one), 0);
	assert_int_equal(vb_cm_listen(b, SERVICE + 5, &only_version, NULL, &any[1]), 0);
	assert_int_equal(vb_cm_listen(b, SERVICE + 5, &match, NULL, &other), -EADDRINUSE);
	match.bytes[15] ^= 1;
	assert_int_equal(vb_cm_listen(b, SERVICE + 5, &match, NULL, &other), 0);
	req.private_data = header;
	req.private_data_len = sizeof(header);
	connect_with(w, &req);
	step(w);
	assert_ptr_equal(last(w, B, VB_CM_REQ_RECEIVED)->listener, one);
	vb_cm_unlisten(any[0]);
	vb_cm_unlisten(any[1]);
	vb_cm_unlisten(one);
	let_go(w, A);
	step(w);
	let_go(w, B);
	connect_with(w, &req);
	step(w);
	assert_int_equal(last(w, A, VB_CM_REJ_RECEIVED)->reason, VB_CM_REJ_INVALID_SERVICE_ID);
	vb_cm_unlisten(other);
	end(w);
}

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
		cmocka_unit_test(test_stale_connection),
		cmocka_unit_test(test_dreq_to_a_successor),
		cmocka_unit_test(test_manager_destroyed),
		cmocka_unit_test(test_destroy_in_every_state),
		cmocka_unit_test(test_mra_extends),
		cmocka_unit_test(test_mra_runs_out),
		cmocka_unit_test(test_slow_program),
		cmocka_unit_test(test_req_after_the_end),
		cmocka_unit_test(test_req_of_the_past),
		cmocka_unit_test(test_everything_twice),
		cmocka_unit_test(test_refused_by_the_program),
		cmocka_unit_test(test_put_off_by_the_program),
		cmocka_unit_test(test_reject),
		cmocka_unit_test(test_private_data_sizes),
		cmocka_unit_test(test_sidr),
		cmocka_unit_test(test_sidr_failures),
		cmocka_unit_test(test_strangers),
		cmocka_unit_test(test_listener_of_an_address),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
