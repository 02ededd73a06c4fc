/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_states.c - every message in every state: what is sent, what arrives (IBTA 12.9.7).
 *
 * The tables here are written from the specification and from what the Linux kernel answers, not
 * from the manager's own. A message that arrives has the right IDs, transaction and queue pair for
 * the state; what must come of it is one event, one answer, both, or nothing. Nothing means also
 * that the connection goes on as if it had not come.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "pair.h"

static struct pair pair;

enum at {
	A_IDLE,
	A_REQ_SENT,
	A_REP_RCVD,
	A_MRA_REP_SENT,
	A_ESTABLISHED,
	A_DREQ_SENT,
	A_DREQ_RCVD,
	A_TIMEWAIT,
	A_CLOSED,
	P_REQ_RCVD,
	P_MRA_REQ_SENT,
	P_REP_SENT,
	P_ESTABLISHED,
	P_DREQ_SENT,
	P_DREQ_RCVD,
	P_TIMEWAIT,
	P_CLOSED,
	STATES,
};

#define MESSAGES 7 /* REQ .. DREP */
#define NO_EVENT 99

struct outcome {
	enum vb_cm_event_type event;
	uint16_t answer;
};

#define NONE                                                                                       \
	{                                                                                          \
		NO_EVENT, 0                                                                        \
	}
#define EVENT(e)                                                                                   \
	{                                                                                          \
		VB_CM_##e, 0                                                                       \
	}
#define ANSWER(m)                                                                                  \
	{                                                                                          \
		NO_EVENT, VB_CM_ATTR_##m                                                           \
	}
#define BOTH(e, m)                                                                                 \
	{                                                                                          \
		VB_CM_##e, VB_CM_ATTR_##m                                                          \
	}

/* In the order of the attributes: REQ MRA REJ REP RTU DREQ DREP. */
static const struct outcome arrives[STATES][MESSAGES] = {
	[A_IDLE] = {ANSWER(REJ), NONE, NONE, ANSWER(REJ), NONE, ANSWER(DREP), NONE},
	[A_REQ_SENT] = {ANSWER(REJ), EVENT(MRA_RECEIVED), EVENT(REJ_RECEIVED), EVENT(REP_RECEIVED),
			NONE, ANSWER(DREP), NONE},
	[A_REP_RCVD] = {ANSWER(REJ), NONE, EVENT(REJ_RECEIVED), ANSWER(MRA), NONE, NONE, NONE},
	[A_MRA_REP_SENT] = {ANSWER(REJ), NONE, EVENT(REJ_RECEIVED), ANSWER(MRA), NONE, NONE, NONE},
	[A_ESTABLISHED] = {ANSWER(REJ), NONE, EVENT(REJ_RECEIVED), ANSWER(RTU), NONE,
			   EVENT(DREQ_RECEIVED), NONE},
	[A_DREQ_SENT] = {ANSWER(REJ), NONE, EVENT(REJ_RECEIVED), NONE, NONE,
			 BOTH(DREP_RECEIVED, DREP), EVENT(DREP_RECEIVED)},
	[A_DREQ_RCVD] = {ANSWER(REJ), NONE, NONE, NONE, NONE, NONE, NONE},
	[A_TIMEWAIT] = {ANSWER(REJ), NONE, NONE, NONE, NONE, ANSWER(DREP), NONE},
	[A_CLOSED] = {ANSWER(REJ), NONE, NONE, ANSWER(REJ), NONE, ANSWER(DREP), NONE},
	/* Nobody can name it yet but by the peer's ID. */
	[P_REQ_RCVD] = {ANSWER(MRA), NONE, EVENT(REJ_RECEIVED), ANSWER(REJ), NONE, ANSWER(DREP),
			NONE},
	[P_MRA_REQ_SENT] = {ANSWER(MRA), NONE, EVENT(REJ_RECEIVED), ANSWER(REJ), NONE, NONE, NONE},
	[P_REP_SENT] = {ANSWER(REP), EVENT(MRA_RECEIVED), EVENT(REJ_RECEIVED), ANSWER(REJ),
			EVENT(ESTABLISHED), EVENT(DREQ_RECEIVED), NONE},
	[P_ESTABLISHED] = {NONE, NONE, EVENT(REJ_RECEIVED), ANSWER(REJ), NONE, EVENT(DREQ_RECEIVED),
			   NONE},
	[P_DREQ_SENT] = {NONE, NONE, EVENT(REJ_RECEIVED), ANSWER(REJ), NONE,
			 BOTH(DREP_RECEIVED, DREP), EVENT(DREP_RECEIVED)},
	[P_DREQ_RCVD] = {NONE, NONE, NONE, ANSWER(REJ), NONE, NONE, NONE},
	[P_TIMEWAIT] = {ANSWER(REJ), NONE, NONE, ANSWER(REJ), NONE, ANSWER(DREP), NONE},
	[P_CLOSED] = {EVENT(REQ_RECEIVED), NONE, NONE, ANSWER(REJ), NONE, ANSWER(DREP), NONE},
};

/* What may be sent, and what leaves then; 0: refused. SIDR_REQ and SIDR_REP beside the others. */
static const uint16_t sends[STATES][MESSAGES + 2] = {
	[A_IDLE] = {VB_CM_ATTR_REQ, 0, 0, 0, 0, 0, 0, VB_CM_ATTR_SIDR_REQ, 0},
	[A_REQ_SENT] = {0, 0, VB_CM_ATTR_REJ, 0, 0, 0, 0},
	[A_REP_RCVD] = {0, VB_CM_ATTR_MRA, VB_CM_ATTR_REJ, 0, VB_CM_ATTR_RTU, 0, 0},
	[A_MRA_REP_SENT] = {0, VB_CM_ATTR_MRA, VB_CM_ATTR_REJ, 0, VB_CM_ATTR_RTU, 0, 0},
	[A_ESTABLISHED] = {0, 0, 0, 0, 0, VB_CM_ATTR_DREQ, 0},
	[A_DREQ_SENT] = {0},
	[A_DREQ_RCVD] = {0, 0, 0, 0, 0, VB_CM_ATTR_DREP, VB_CM_ATTR_DREP},
	[A_TIMEWAIT] = {0},
	[A_CLOSED] = {0},
	[P_REQ_RCVD] = {0, VB_CM_ATTR_MRA, VB_CM_ATTR_REJ, VB_CM_ATTR_REP, 0, 0, 0},
	[P_MRA_REQ_SENT] = {0, VB_CM_ATTR_MRA, VB_CM_ATTR_REJ, VB_CM_ATTR_REP, 0, 0, 0},
	[P_REP_SENT] = {0, 0, VB_CM_ATTR_REJ, 0, 0, 0, 0},
	[P_ESTABLISHED] = {0, 0, 0, 0, 0, VB_CM_ATTR_DREQ, 0},
	[P_DREQ_SENT] = {0},
	[P_DREQ_RCVD] = {0, 0, 0, 0, 0, VB_CM_ATTR_DREP, VB_CM_ATTR_DREP},
	[P_TIMEWAIT] = {0},
	[P_CLOSED] = {0},
};

/* What destroying says. */
static const uint16_t farewells[STATES] = {
	[A_REQ_SENT] = VB_CM_ATTR_REJ,	   [A_REP_RCVD] = VB_CM_ATTR_REJ,
	[A_MRA_REP_SENT] = VB_CM_ATTR_REJ, [A_ESTABLISHED] = VB_CM_ATTR_DREQ,
	[A_DREQ_RCVD] = VB_CM_ATTR_DREP,   [P_REQ_RCVD] = VB_CM_ATTR_REJ,
	[P_MRA_REQ_SENT] = VB_CM_ATTR_REJ, [P_REP_SENT] = VB_CM_ATTR_REJ,
	[P_ESTABLISHED] = VB_CM_ATTR_DREQ, [P_DREQ_RCVD] = VB_CM_ATTR_DREP,
};

/* States that are remembered after destroy, for the length of timewait. */
static bool has_timewait(enum at at)
{
	return at == A_ESTABLISHED || at == A_DREQ_SENT || at == A_DREQ_RCVD || at == A_TIMEWAIT ||
	       at == P_REP_SENT || at == P_ESTABLISHED || at == P_DREQ_SENT || at == P_DREQ_RCVD ||
	       at == P_TIMEWAIT;
}

struct scene {
	struct vb_cm_conn *conn, *other;
	struct side *me;
	uint32_t my_id, other_id;
	uint64_t tid;
	uint8_t req[VB_MAD_BYTES]; /* of the connection, when there was one */
	uint8_t given[VB_MAD_BYTES];
};

static void disconnect(struct vb_cm_conn *from, struct side *side)
{
	assert_int_equal(vb_cm_send_dreq(from, NULL, 0, pair.now), 0);
	pair_deliver(&pair, side, VB_CM_ATTR_DREQ);
	pair_event_of(pair_other(side), VB_CM_DREQ_RECEIVED);
}

static void go_active(struct scene *s, enum at at)
{
	s->me = &pair.a;
	if (at == A_IDLE) {
		s->conn = vb_cm_conn_create(pair.a.cm, NULL);
	} else if (at == A_REQ_SENT) {
		s->conn = pair_connect(&pair);
	} else if (at == A_REP_RCVD || at == A_MRA_REP_SENT) {
		s->other = pair_accepted(&pair, &s->conn);
		if (at == A_MRA_REP_SENT)
			assert_int_equal(vb_cm_send_mra(s->conn, 20, NULL, 0, pair.now), 0);
	} else if (at == A_CLOSED) {
		const struct vb_cm_rej rej = {.reason = VB_CM_REJ_CONSUMER_DEFINED};

		s->other = pair_accepted(&pair, &s->conn);
		assert_int_equal(vb_cm_send_rej(s->conn, &rej, pair.now), 0);
	} else {
		s->other = pair_established(&pair, &s->conn);
		if (at == A_DREQ_SENT)
			assert_int_equal(vb_cm_send_dreq(s->conn, NULL, 0, pair.now), 0);
		if (at == A_DREQ_RCVD || at == A_TIMEWAIT)
			disconnect(s->other, &pair.b);
		if (at == A_TIMEWAIT)
			assert_int_equal(vb_cm_send_drep(s->conn, NULL, 0, pair.now), 0);
	}
}

static void go_passive(struct scene *s, enum at at)
{
	s->me = &pair.b;
	if (at == P_REQ_RCVD || at == P_MRA_REQ_SENT) {
		s->conn = pair_requested(&pair, &s->other);
		if (at == P_MRA_REQ_SENT)
			assert_int_equal(vb_cm_send_mra(s->conn, 20, NULL, 0, pair.now), 0);
	} else if (at == P_REP_SENT) {
		s->conn = pair_replied(&pair, &s->other);
	} else if (at == P_CLOSED) {
		const struct vb_cm_rej rej = {.reason = VB_CM_REJ_CONSUMER_DEFINED};

		s->conn = pair_requested(&pair, &s->other);
		assert_int_equal(vb_cm_send_rej(s->conn, &rej, pair.now), 0);
	} else {
		s->conn = pair_established(&pair, &s->other);
		if (at == P_DREQ_SENT)
			assert_int_equal(vb_cm_send_dreq(s->conn, NULL, 0, pair.now), 0);
		if (at == P_DREQ_RCVD || at == P_TIMEWAIT)
			disconnect(s->other, &pair.a);
		if (at == P_TIMEWAIT)
			assert_int_equal(vb_cm_send_drep(s->conn, NULL, 0, pair.now), 0);
	}
}

static struct scene go(enum at at)
{
	struct scene s = {0};

	if (at < P_REQ_RCVD)
		go_active(&s, at);
	else
		go_passive(&s, at);
	/* What has been said tells the IDs. */
	s.my_id = 0x400001;
	s.other_id = 0x800001;
	for (unsigned int i = 0; i < pair.sent; i++) {
		struct vb_cm_message m = pair_decode(pair.queue[i].mad);

		if (m.mad.attr_id == VB_CM_ATTR_REQ) {
			memcpy(s.req, pair.queue[i].mad, VB_MAD_BYTES);
			s.tid = m.mad.tid;
		}
		if (m.local_id)
			*(pair.queue[i].from == s.me ? &s.my_id : &s.other_id) = m.local_id;
	}
	pair.at = pair.sent;
	return s;
}

/* The message that the other side could send now. */
static void give(struct scene *s, uint16_t attr)
{
	struct vb_cm_message m = {.mad = {1, 7, 2, 3, .tid = s->tid, .attr_id = attr},
				  .local_id = s->other_id,
				  .remote_id = s->my_id};
	bool active = s->me == &pair.a;

	if (attr == VB_CM_ATTR_REQ) {
		if (!active) {
			memcpy(s->given, s->req, VB_MAD_BYTES);
			pair_give(s->me, s->given);
			return;
		}
		m.req = (struct vb_cm_wire_req){
			.service_id = SERVICE, .ca_guid = pair.b.guid, .qpn = 0x202, .path_mtu = 3};
	}
	if (attr == VB_CM_ATTR_MRA) {
		m.mra.about = active ? VB_CM_ABOUT_REQ : VB_CM_ABOUT_REP;
		m.mra.service_timeout = 20;
	}
	if (attr == VB_CM_ATTR_REJ) {
		m.rej.about = VB_CM_ABOUT_OTHER;
		m.rej.reason = VB_CM_REJ_TIMEOUT;
		m.rej.ari = (const uint8_t *)(active ? "\2\0\0\0\0\0\0\2" : "\2\0\0\0\0\0\0\1");
		m.rej.ari_len = 8;
	}
	if (attr == VB_CM_ATTR_REP)
		m.rep = (struct vb_cm_wire_rep){.qpn = 0x202, .ca_guid = pair.b.guid};
	if (attr == VB_CM_ATTR_DREQ) {
		m.dreq.remote_qpn = active ? 0x101 : 0x202;
		m.mad.tid++;
	}
	assert_int_equal(vb_cm_message_encode(&m, s->given), 0);
	pair_give(s->me, s->given);
}

static void let_go(struct scene *s)
{
	vb_cm_conn_destroy(s->conn, pair.now);
	vb_cm_conn_destroy(s->other, pair.now);
	pair.at = pair.sent;
}

static void test_what_arrives(void **state)
{
	for (enum at at = 0; at < STATES; at++) {
		for (uint16_t i = 0; i < MESSAGES; i++) {
			const struct outcome *expected = &arrives[at][i];
			struct vb_cm_counters before, after;
			struct scene s;

			pair_init(&pair);
			s = go(at);
			vb_cm_read_counters(s.me->cm, &before);
			give(&s, (uint16_t)(VB_CM_ATTR_REQ + i));
			vb_cm_read_counters(s.me->cm, &after);
			if (expected->event != NO_EVENT)
				pair_event_of(s.me, expected->event);
			pair_assert_no_event(s.me);
			if (expected->answer) {
				struct vb_cm_message m = pair_next(&pair, s.me, expected->answer);

				/* An answer belongs to the transaction of what it answers. */
				assert_int_equal(m.mad.tid, pair_decode(s.given).mad.tid);
				pair.at++;
			}
			pair_assert_silence(&pair);
			assert_int_equal(after.rx_malformed, 0);
			if (expected->event == NO_EVENT && !expected->answer)
				assert_int_equal(after.duplicates + after.rx_unknown,
						 before.duplicates + before.rx_unknown + 1);
			let_go(&s);
			pair_finish(&pair);
		}
	}
}

/* What had no effect had none: what could be sent before can be sent after, and the deadline stays.
 */
static void test_what_has_no_effect(void **state)
{
	for (enum at at = 0; at < STATES; at++) {
		struct scene s;
		uint64_t deadline;

		pair_init(&pair);
		s = go(at);
		deadline = vb_cm_deadline(s.me->cm);
		for (uint16_t i = 0; i < MESSAGES; i++) {
			if (arrives[at][i].event == NO_EVENT && !arrives[at][i].answer)
				give(&s, (uint16_t)(VB_CM_ATTR_REQ + i));
		}
		assert_true(vb_cm_deadline(s.me->cm) == deadline);
		pair_assert_silence(&pair);
		vb_cm_conn_destroy(s.conn, pair.now);
		if (farewells[at])
			pair_next(&pair, s.me, farewells[at]);
		else
			pair_assert_silence(&pair);
		s.conn = NULL;
		let_go(&s);
		pair_finish(&pair);
	}
}

static int call(const struct scene *s, unsigned int i)
{
	const struct vb_cm_path to = pair_path_to(pair_other(s->me));
	const struct vb_cm_req req = pair_req(&pair);
	const struct vb_cm_rep rep = pair_rep();
	const struct vb_cm_rej rej = {.reason = VB_CM_REJ_CONSUMER_DEFINED};
	const struct vb_cm_sidr_req sidr_req = {.service_id = SERVICE};
	const struct vb_cm_sidr_rep sidr_rep = {.status = VB_CM_SIDR_VALID};

	switch ((enum vb_cm_attr)(VB_CM_ATTR_REQ + i)) {
	case VB_CM_ATTR_REQ:
		return vb_cm_send_req(s->conn, &to, &req, pair.now);
	case VB_CM_ATTR_MRA:
		return vb_cm_send_mra(s->conn, 20, NULL, 0, pair.now);
	case VB_CM_ATTR_REJ:
		return vb_cm_send_rej(s->conn, &rej, pair.now);
	case VB_CM_ATTR_REP:
		return vb_cm_send_rep(s->conn, &rep, pair.now);
	case VB_CM_ATTR_RTU:
		return vb_cm_send_rtu(s->conn, NULL, 0, pair.now);
	case VB_CM_ATTR_DREQ:
		return vb_cm_send_dreq(s->conn, NULL, 0, pair.now);
	case VB_CM_ATTR_DREP:
		return vb_cm_send_drep(s->conn, NULL, 0, pair.now);
	case VB_CM_ATTR_SIDR_REQ:
		return vb_cm_send_sidr_req(s->conn, &to, &sidr_req, pair.now);
	case VB_CM_ATTR_SIDR_REP:
		return vb_cm_send_sidr_rep(s->conn, &sidr_rep, pair.now);
	}
	return 1;
}

static void test_what_may_be_sent(void **state)
{
	for (enum at at = 0; at < STATES; at++) {
		for (unsigned int i = 0; i < MESSAGES + 2; i++) {
			struct scene s;

			pair_init(&pair);
			s = go(at);
			assert_int_equal(call(&s, i), sends[at][i] ? 0 : -EINVAL);
			if (sends[at][i]) {
				pair_next(&pair, s.me, sends[at][i]);
				pair.at++;
			}
			pair_assert_silence(&pair);
			let_go(&s);
			pair_finish(&pair);
		}
	}
}

/* A refusal behind our own REP: the peer may believe in the connection, so it is remembered. */
static void test_refusal_behind_a_rep(void **state)
{
	const struct vb_cm_rej rej = {.reason = VB_CM_REJ_CONSUMER_DEFINED};
	struct scene s;

	pair_init(&pair);
	s = go(P_REP_SENT);
	assert_int_equal(vb_cm_send_rej(s.conn, &rej, pair.now), 0);
	assert_int_equal(vb_cm_deadline(s.me->cm), pair.now + TIMEWAIT);
	pair_lose(&pair, s.me, VB_CM_ATTR_REJ);
	give(&s, VB_CM_ATTR_REQ);
	assert_int_equal(pair_next(&pair, s.me, VB_CM_ATTR_REJ).rej.reason, VB_CM_REJ_STALE_CONN);
	pair_deliver(&pair, s.me, VB_CM_ATTR_REJ);
	pair_event_of(&pair.a, VB_CM_REJ_RECEIVED);
	let_go(&s);
	pair_finish(&pair);
}

static void test_destroy(void **state)
{
	for (enum at at = 0; at < STATES; at++) {
		struct vb_cm_counters counters;
		struct scene s;

		pair_init(&pair);
		s = go(at);
		vb_cm_conn_destroy(s.conn, pair.now);
		if (farewells[at]) {
			pair_next(&pair, s.me, farewells[at]);
			pair.at++;
		}
		pair_assert_silence(&pair);
		vb_cm_read_counters(s.me->cm, &counters);
		assert_int_equal(counters.connections, 0);
		assert_int_equal(counters.timewaits, has_timewait(at));
		/* Nobody hears of it any more, not even of the end of timewait. */
		for (uint16_t i = VB_CM_ATTR_MRA; i <= VB_CM_ATTR_DREP; i++)
			give(&s, i);
		if (has_timewait(at))
			assert_int_equal(vb_cm_deadline(s.me->cm), pair.now + TIMEWAIT);
		pair.now += TIMEWAIT;
		vb_cm_run(s.me->cm, pair.now);
		pair_assert_no_event(s.me);
		vb_cm_read_counters(s.me->cm, &counters);
		assert_int_equal(counters.timewaits, 0);
		assert_true(vb_cm_deadline(s.me->cm) == UINT64_MAX);
		s.conn = NULL;
		let_go(&s);
		pair_finish(&pair);
	}
}

/* The manager's own end says the same, once to each peer. */
static void test_destroy_of_the_manager(void **state)
{
	for (enum at at = 0; at < STATES; at++) {
		struct scene s;

		pair_init(&pair);
		s = go(at);
		vb_cm_destroy(s.me->cm);
		if (farewells[at]) {
			pair_next(&pair, s.me, farewells[at]);
			pair.at++;
		} else if (at == A_TIMEWAIT || at == P_TIMEWAIT) {
			/* nobody will be there for a DREQ that comes again */
			pair_next(&pair, s.me, VB_CM_ATTR_DREP);
			pair.at++;
		}
		pair_assert_silence(&pair);
		vb_cm_destroy(pair_other(s.me)->cm);
	}
	vb_cm_destroy(NULL);
	vb_cm_conn_destroy(NULL, 0);
	vb_cm_unlisten(NULL);
}

/* Everything that was said once is said again, in order, after each step; nothing more comes of it
 * than the answers, and no event. */
static void test_everything_twice(void **state)
{
	for (enum at at = A_REQ_SENT; at < STATES; at++) {
		unsigned int a_events, b_events, sent;
		struct scene s;

		if (at == P_CLOSED || at == A_CLOSED)
			continue; /* a refused REQ that comes again asks anew */
		pair_init(&pair);
		s = go(at);
		a_events = pair.a.event_count;
		b_events = pair.b.event_count;
		sent = pair.sent;
		for (unsigned int i = 0; i < sent; i++) {
			struct side *to = pair_other(pair.queue[i].from);

			/* what the other side has never got is no repetition for it */
			if (to != s.me)
				continue;
			pair_give(to, pair.queue[i].mad);
		}
		assert_int_equal(pair.a.event_count, a_events);
		assert_int_equal(pair.b.event_count, b_events);
		let_go(&s);
		pair_finish(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_arrives),
		cmocka_unit_test(test_what_has_no_effect),
		cmocka_unit_test(test_what_may_be_sent),
		cmocka_unit_test(test_refusal_behind_a_rep),
		cmocka_unit_test(test_destroy),
		cmocka_unit_test(test_destroy_of_the_manager),
		cmocka_unit_test(test_everything_twice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
