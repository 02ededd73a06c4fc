/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_identity.c - who is who: listeners and what they ask for, communication IDs, stale
 * connections, repeated requests, messages for nobody, bytes that are no message; many at once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "cm/ip.h"
#include "pair.h"

#define MANY 4000

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

static struct vb_cm_match match_of(const struct side *side)
{
	struct vb_cm_match match = {.at = 32, .len = 4, .ip_version = 4};

	memcpy(match.bytes, &side->gid.s6_addr[12], 4);
	return match;
}

/* Sends a REQ that names that destination; the listener that got it, or NULL: refused. */
static struct vb_cm_listener *who_takes(uint64_t service_id, struct in6_addr to, bool ipv4)
{
	struct vb_cm_ip ip = {.ipv4 = ipv4, .source = pair.a.gid, .destination = to};
	struct vb_cm_conn *a = vb_cm_conn_create(pair.a.cm, NULL), *b = NULL;
	struct vb_cm_path path = pair_path_to(&pair.b);
	struct vb_cm_req req = pair_req(&pair);
	struct vb_cm_listener *listener = NULL;
	uint8_t header[VB_CM_IP_HEADER_BYTES];

	vb_cm_ip_encode(&ip, header);
	req.service_id = service_id;
	req.private_data = header;
	req.private_data_len = sizeof(header);
	assert_int_equal(vb_cm_send_req(a, &path, &req, pair.now), 0);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_REQ);
	if (pair.b.event_at < pair.b.event_count) {
		unsigned int i = pair_event_of(&pair.b, VB_CM_REQ_RECEIVED);

		listener = pair.b.events[i].listener;
		b = pair.b.events[i].conn;
	} else {
		assert_int_equal(pair_next(&pair, &pair.b, VB_CM_ATTR_REJ).rej.reason,
				 VB_CM_REJ_INVALID_SERVICE_ID);
	}
	pair_let_go(&pair, a, b);
	pair.at = pair.sent = 0;
	return listener;
}

static void test_listeners(void **state)
{
	struct vb_cm_match one = match_of(&pair.b), other = one, v6 = {.ip_version = 6}, bad = one;
	struct vb_cm_listener *l_one, *l_other, *l_v6, *l_next;
	struct in6_addr elsewhere = pair.b.gid;
	struct vb_cm_counters counters;

	elsewhere.s6_addr[15] = 99;
	memcpy(other.bytes, &elsewhere.s6_addr[12], 4);
	assert_int_equal(vb_cm_listen(pair.b.cm, SERVICE, NULL, NULL, &l_one), -EADDRINUSE);
	assert_int_equal(vb_cm_listen(pair.b.cm, SERVICE, &one, NULL, &l_one), 0);
	assert_int_equal(vb_cm_listen(pair.b.cm, SERVICE, &one, NULL, &l_other), -EADDRINUSE);
	assert_int_equal(vb_cm_listen(pair.b.cm, SERVICE, &other, NULL, &l_other), 0);
	assert_int_equal(vb_cm_listen(pair.b.cm, SERVICE, &v6, NULL, &l_v6), 0);
	assert_int_equal(vb_cm_listen(pair.b.cm, SERVICE + 1, &one, NULL, &l_next), 0);
	bad.len = 17;
	assert_int_equal(vb_cm_listen(pair.b.cm, SERVICE, &bad, NULL, &l_one), -EINVAL);
	bad.len = 16;
	bad.at = 92 - 15;
	assert_int_equal(vb_cm_listen(pair.b.cm, SERVICE, &bad, NULL, &l_one), -EINVAL);
	vb_cm_read_counters(pair.b.cm, &counters);
	assert_int_equal(counters.listeners, 5);

	/* Who asks for most takes it. */
	assert_ptr_equal(who_takes(SERVICE, pair.b.gid, true), l_one);
	assert_ptr_equal(who_takes(SERVICE, elsewhere, true), l_other);
	elsewhere.s6_addr[15] = 98;
	assert_ptr_equal(who_takes(SERVICE, elsewhere, true), pair.listener);
	assert_ptr_equal(who_takes(SERVICE, elsewhere, false), l_v6);
	assert_ptr_equal(who_takes(SERVICE + 1, pair.b.gid, true), l_next);
	assert_null(who_takes(SERVICE + 1, elsewhere, true));
	assert_null(who_takes(SERVICE + 1, pair.b.gid, false));
	assert_null(who_takes(SERVICE + 2, pair.b.gid, true));

	vb_cm_unlisten(l_one);
	assert_ptr_equal(who_takes(SERVICE, pair.b.gid, true), pair.listener);
	vb_cm_unlisten(pair.listener);
	assert_null(who_takes(SERVICE, pair.b.gid, true));
	assert_int_equal(vb_cm_listen(pair.b.cm, SERVICE, &one, NULL, &l_one), 0);
	assert_ptr_equal(who_takes(SERVICE, pair.b.gid, true), l_one);
}

/* Connections that came from a listener stay when it goes. */
static void test_unlisten(void **state)
{
	struct vb_cm_conn *a, *b = pair_requested(&pair, &a);
	struct vb_cm_rep rep = pair_rep();

	vb_cm_unlisten(pair.listener);
	assert_int_equal(vb_cm_send_rep(b, &rep, pair.now), 0);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_REP);
	pair_event_of(&pair.a, VB_CM_REP_RECEIVED);
	pair_let_go(&pair, a, b);
}

static void give_req(uint8_t mad[VB_MAD_BYTES], uint32_t id, uint32_t qpn, uint64_t tid)
{
	struct vb_cm_message m = pair_decode(mad);
	uint8_t changed[VB_MAD_BYTES];

	m.local_id = id;
	m.req.qpn = qpn;
	m.mad.tid = tid;
	assert_int_equal(vb_cm_message_encode(&m, changed), 0);
	pair_give(&pair.b, changed);
}

/* The peer has died and come back, and its new queue pair has the number of the old one. */
static void test_stale_connection(void **state)
{
	struct vb_cm_conn *a, *b = pair_established(&pair, &a);
	struct vb_cm_message req = pair_decode(pair.queue[0].mad), m;

	give_req(pair.queue[0].mad, req.local_id + 1, req.req.qpn, req.mad.tid + 1);
	pair_assert_no_event(&pair.b);
	m = pair_next(&pair, &pair.b, VB_CM_ATTR_REJ);
	assert_int_equal(m.rej.reason, VB_CM_REJ_STALE_CONN);
	assert_int_equal(m.rej.about, VB_CM_ABOUT_REQ);
	assert_int_equal(m.remote_id, req.local_id + 1);
	assert_int_equal(m.mad.tid, req.mad.tid + 1);
	pair.at++;
	/* The old one is asked; whoever is there now knows nothing of it, and agrees. */
	m = pair_next(&pair, &pair.b, VB_CM_ATTR_DREQ);
	assert_int_equal(m.remote_id, req.local_id);
	assert_int_equal(m.dreq.remote_qpn, req.req.qpn);
	vb_cm_conn_destroy(a, pair.now);
	pair.now += TIMEWAIT;
	vb_cm_run(pair.a.cm, pair.now);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_DREQ);
	pair.at++; /* a's own farewell */
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_DREP);
	pair_event_of(&pair.b, VB_CM_DREP_RECEIVED);
	/* ... and then the same REQ is welcome, timewait or not: see decisions.md. */
	give_req(pair.queue[0].mad, req.local_id + 1, req.req.qpn, req.mad.tid + 1);
	a = pair.b.events[pair_event_of(&pair.b, VB_CM_REQ_RECEIVED)].conn;
	vb_cm_conn_destroy(a, pair.now);
	pair_let_go(&pair, NULL, b);
}

/* Somebody else only says that queue pair's number: the connection is left alone. */
static void test_stale_connection_from_elsewhere(void **state)
{
	struct vb_cm_conn *a, *b = pair_established(&pair, &a);
	struct vb_cm_message m = pair_decode(pair.queue[0].mad);
	struct in6_addr gid = pair.a.gid;
	uint8_t mad[VB_MAD_BYTES];

	m.local_id++;
	assert_int_equal(vb_cm_message_encode(&m, mad), 0);
	pair.a.gid.s6_addr[15] = 77; /* what pair_give says where it came from */
	pair_give(&pair.b, mad);
	assert_int_equal(pair_next(&pair, &pair.b, VB_CM_ATTR_REJ).rej.reason,
			 VB_CM_REJ_STALE_CONN);
	pair.at++;
	pair_assert_silence(&pair);
	pair.a.gid = gid;
	assert_int_equal(vb_cm_send_dreq(b, NULL, 0, pair.now), 0); /* still established */
	pair_let_go(&pair, a, b);
}

static void test_stale_rep(void **state)
{
	struct vb_cm_conn *old, *b_old = pair_established(&pair, &old), *a;
	struct vb_cm_message rep = {.mad = {1, 7, 2, 3, .attr_id = VB_CM_ATTR_REP},
				    .local_id = 0x800077,
				    .rep = {.qpn = 0x202, .ca_guid = pair.b.guid}};
	uint8_t mad[VB_MAD_BYTES];
	unsigned int i;

	a = pair_connect(&pair);
	rep.remote_id = pair_next(&pair, &pair.a, VB_CM_ATTR_REQ).local_id;
	rep.mad.tid = pair_next(&pair, &pair.a, VB_CM_ATTR_REQ).mad.tid;
	pair.at++;
	assert_int_equal(vb_cm_message_encode(&rep, mad), 0);
	pair_give(&pair.a, mad);
	assert_int_equal(pair_next(&pair, &pair.a, VB_CM_ATTR_REJ).rej.reason,
			 VB_CM_REJ_STALE_CONN);
	assert_int_equal(pair_next(&pair, &pair.a, VB_CM_ATTR_REJ).rej.about, VB_CM_ABOUT_REP);
	pair.at++;
	pair_next(&pair, &pair.a, VB_CM_ATTR_DREQ);
	i = pair_event_of(&pair.a, VB_CM_REJ_RECEIVED);
	assert_ptr_equal(pair.a.events[i].conn, a);
	assert_int_equal(pair.a.events[i].rej.reason, VB_CM_REJ_STALE_CONN);
	vb_cm_conn_destroy(a, pair.now);
	pair_let_go(&pair, old, b_old);
}

/* A REQ with the ID of another one, which has another transaction or queue pair: IBTA's reason 30.
 */
static void test_duplicate_communication_id(void **state)
{
	struct vb_cm_conn *a, *b = pair_requested(&pair, &a);
	struct vb_cm_message req = pair_decode(pair.queue[0].mad);

	give_req(pair.queue[0].mad, req.local_id, req.req.qpn, req.mad.tid + 1);
	assert_int_equal(pair_next(&pair, &pair.b, VB_CM_ATTR_REJ).rej.reason,
			 VB_CM_REJ_DUPLICATE_LOCAL_COMM_ID);
	pair.at++;
	give_req(pair.queue[0].mad, req.local_id, req.req.qpn + 1, req.mad.tid);
	assert_int_equal(pair_next(&pair, &pair.b, VB_CM_ATTR_REJ).rej.reason,
			 VB_CM_REJ_DUPLICATE_LOCAL_COMM_ID);
	pair.at++;
	pair_assert_no_event(&pair.b);
	pair_let_go(&pair, a, b);
}

/* A REP of an earlier life of the ID: the transaction tells. */
static void test_answer_to_another_transaction(void **state)
{
	struct vb_cm_conn *a, *b = pair_replied(&pair, &a);
	struct vb_cm_message rep = pair_next(&pair, &pair.b, VB_CM_ATTR_REP);
	uint8_t mad[VB_MAD_BYTES];

	rep.mad.tid++;
	assert_int_equal(vb_cm_message_encode(&rep, mad), 0);
	pair_give(&pair.a, mad);
	pair_assert_no_event(&pair.a);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_REP);
	pair_event_of(&pair.a, VB_CM_REP_RECEIVED);
	assert_int_equal(pair_next(&pair, &pair.a, VB_CM_ATTR_REJ).rej.reason,
			 VB_CM_REJ_INVALID_COMM_ID);
	pair.at++;
	pair_let_go(&pair, a, b);
}

/* ... and a refusal of it. */
static void test_refusal_of_another_transaction(void **state)
{
	struct vb_cm_conn *a = pair_connect(&pair);
	struct vb_cm_message rej;
	uint8_t mad[VB_MAD_BYTES];

	vb_cm_unlisten(pair.listener);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_REQ);
	rej = pair_next(&pair, &pair.b, VB_CM_ATTR_REJ);
	rej.mad.tid++;
	assert_int_equal(vb_cm_message_encode(&rej, mad), 0);
	pair_give(&pair.a, mad);
	pair_assert_no_event(&pair.a);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_REJ);
	pair_event_of(&pair.a, VB_CM_REJ_RECEIVED);
	pair_let_go(&pair, a, NULL);
}

/* Right IDs and a wrong queue pair: nothing may come of it. */
static void test_dreq_of_another_qp(void **state)
{
	struct vb_cm_conn *a, *b = pair_established(&pair, &a);
	struct vb_cm_message dreq;
	uint8_t mad[VB_MAD_BYTES];

	assert_int_equal(vb_cm_send_dreq(a, NULL, 0, pair.now), 0);
	dreq = pair_next(&pair, &pair.a, VB_CM_ATTR_DREQ);
	dreq.dreq.remote_qpn++;
	assert_int_equal(vb_cm_message_encode(&dreq, mad), 0);
	pair.at++;
	pair_give(&pair.b, mad);
	pair_assert_no_event(&pair.b);
	pair_assert_silence(&pair);
	pair_let_go(&pair, a, b);
}

static void test_what_is_no_message(void **state)
{
	struct vb_cm_path from = pair_path_to(&pair.a);
	struct vb_cm_conn *a = pair_connect(&pair);
	struct vb_cm_counters counters;
	uint8_t mad[VB_MAD_BYTES];

	memcpy(mad, pair_lose(&pair, &pair.a, VB_CM_ATTR_REQ), sizeof(mad));
	vb_cm_rx(pair.b.cm, &from, mad, VB_MAD_BYTES - 1, pair.now);
	vb_cm_rx(pair.b.cm, &from, mad, 0, pair.now);
	mad[2] = 1; /* class version */
	vb_cm_rx(pair.b.cm, &from, mad, VB_MAD_BYTES, pair.now);
	mad[2] = 2;
	mad[17] = 0x19; /* LAP */
	vb_cm_rx(pair.b.cm, &from, mad, VB_MAD_BYTES, pair.now);
	vb_cm_read_counters(pair.b.cm, &counters);
	assert_int_equal(counters.rx_messages, 4);
	assert_int_equal(counters.rx_malformed, 3);
	assert_int_equal(counters.rx_unknown, 1);
	pair_assert_no_event(&pair.b);
	pair_assert_silence(&pair);
	pair_let_go(&pair, a, NULL);
}

/* ---- many ---------------------------------------------------------------------------------- */

struct crowd {
	struct vb_cm *cm;
	struct crowd *other;
	struct in6_addr gid;
	uint32_t random;
	unsigned int events[VB_CM_SIDR_FAILED + 1];
	struct vb_cm_conn *conns[MANY];
	uint32_t ids[MANY];
	unsigned int count;
	uint8_t (*queue)[VB_MAD_BYTES];
	unsigned int sent;
};

static void crowd_send(void *env, const struct vb_cm_path *to, const uint8_t mad[VB_MAD_BYTES])
{
	struct crowd *crowd = env;

	assert_true(crowd->sent < 2 * MANY);
	memcpy(crowd->queue[crowd->sent++], mad, VB_MAD_BYTES);
}

static bool crowd_event(void *env, const struct vb_cm_event *event)
{
	struct crowd *crowd = env;

	crowd->events[event->type]++;
	if (event->type == VB_CM_REQ_RECEIVED)
		crowd->conns[crowd->count++] = event->conn;
	return true;
}

static uint32_t crowd_random(void *env)
{
	struct crowd *crowd = env;

	crowd->random = crowd->random * 1664525u + 1013904223u;
	return crowd->random ^ crowd->random >> 16;
}

static void crowd_deliver(struct crowd *from, uint64_t now)
{
	struct vb_cm_path path = {.ah = {.dgid = from->gid}};
	unsigned int sent = from->sent;

	from->sent = 0;
	for (unsigned int i = 0; i < sent; i++)
		vb_cm_rx(from->other->cm, &path, from->queue[i], VB_MAD_BYTES, now);
}

static int compare_ids(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void crowd_init(struct crowd *crowd, struct crowd *other, uint8_t number)
{
	static const struct vb_cm_ops ops = {crowd_send, crowd_event, crowd_random};
	const struct vb_cm_config config = {
		.ca_guid = number, .id_base = (uint32_t)number << 16, .id_bits = 16};

	crowd->other = other;
	crowd->random = number;
	crowd->gid.s6_addr[15] = number;
	crowd->queue = malloc(2 * MANY * sizeof(*crowd->queue));
	crowd->cm = vb_cm_create(&ops, crowd, &config);
	assert_non_null(crowd->queue);
	assert_non_null(crowd->cm);
}

static void crowd_finish(struct crowd *crowd)
{
	vb_cm_destroy(crowd->cm);
	free(crowd->queue);
}

/* With 16 bits of ID and thousands alive: no ID twice, everything finds its own, nothing stays. */
static void test_many_connections(void **state)
{
	static struct crowd a, b;
	struct vb_cm_listener *listener;
	struct vb_cm_counters counters;
	struct vb_cm_req req = pair_req(&pair);
	struct vb_cm_rep rep = pair_rep();
	struct vb_cm_path to = {0};
	uint64_t now = SECOND;

	crowd_init(&a, &b, 1);
	crowd_init(&b, &a, 2);
	assert_int_equal(vb_cm_listen(b.cm, SERVICE, NULL, NULL, &listener), 0);
	for (unsigned int i = 0; i < MANY; i++) {
		a.conns[i] = vb_cm_conn_create(a.cm, NULL);
		assert_non_null(a.conns[i]);
		req.qpn = 0x1000 + i;
		assert_int_equal(vb_cm_send_req(a.conns[i], &to, &req, now), 0);
		a.ids[i] = pair_decode(a.queue[i]).local_id;
		assert_int_equal(a.ids[i] >> 16, 1);
	}
	qsort(a.ids, MANY, sizeof(a.ids[0]), compare_ids);
	for (unsigned int i = 1; i < MANY; i++)
		assert_true(a.ids[i] != a.ids[i - 1]);
	crowd_deliver(&a, now);
	assert_int_equal(b.count, MANY);
	for (unsigned int i = 0; i < MANY; i++) {
		rep.qpn = 0x9000 + i;
		assert_int_equal(vb_cm_send_rep(b.conns[i], &rep, now), 0);
	}
	crowd_deliver(&b, now);
	for (unsigned int i = 0; i < MANY; i++)
		assert_int_equal(vb_cm_send_rtu(a.conns[i], NULL, 0, now), 0);
	crowd_deliver(&a, now);
	assert_int_equal(b.events[VB_CM_ESTABLISHED], MANY);
	for (unsigned int i = 0; i < MANY; i++) {
		assert_int_equal(vb_cm_send_dreq(a.conns[i], NULL, 0, now), 0);
		vb_cm_conn_destroy(a.conns[i], now);
	}
	crowd_deliver(&a, now);
	assert_int_equal(b.events[VB_CM_DREQ_RECEIVED], MANY);
	for (unsigned int i = 0; i < MANY; i++)
		vb_cm_conn_destroy(b.conns[i], now);
	crowd_deliver(&b, now);
	vb_cm_read_counters(a.cm, &counters);
	assert_int_equal(counters.connections, 0);
	assert_int_equal(counters.timewaits, MANY);
	now += TIMEWAIT;
	vb_cm_run(a.cm, now);
	vb_cm_run(b.cm, now);
	for (unsigned int i = 0; i < 2; i++) {
		vb_cm_read_counters(i ? b.cm : a.cm, &counters);
		assert_int_equal(counters.connections, 0);
		assert_int_equal(counters.timewaits, 0);
		assert_true(vb_cm_deadline(i ? b.cm : a.cm) == UINT64_MAX);
	}
	crowd_finish(&a);
	crowd_finish(&b);
}

/* Deadlines of every length, set and taken back in any order: the next one is always known. */
static void test_many_deadlines(void **state)
{
	static struct crowd a;
	uint64_t due[64], now = SECOND, next;
	struct vb_cm_req req = pair_req(&pair);
	struct vb_cm_path to = {0};

	crowd_init(&a, &a, 1);
	for (unsigned int i = 0; i < 64; i++)
		due[i] = UINT64_MAX;
	for (unsigned int step = 0; step < 4000; step++) {
		unsigned int i = crowd_random(&a) % 64;

		if (due[i] == UINT64_MAX) {
			a.conns[i] = vb_cm_conn_create(a.cm, NULL);
			req.ack_timeout = 1;
			req.remote_cm_timeout = (uint8_t)(crowd_random(&a) % 26);
			now += crowd_random(&a) % 1000;
			due[i] = now + 2 * T(0) + T(req.remote_cm_timeout);
			assert_int_equal(vb_cm_send_req(a.conns[i], &to, &req, now), 0);
		} else {
			vb_cm_conn_destroy(a.conns[i], now);
			due[i] = UINT64_MAX;
		}
		a.sent = 0;
		next = UINT64_MAX;
		for (unsigned int j = 0; j < 64; j++)
			next = due[j] < next ? due[j] : next;
		assert_true(vb_cm_deadline(a.cm) == next);
	}
	crowd_finish(&a);
}

/* Half of the IDs at most: then a program gets ENOMEM, and a peer NO_RESOURCES. */
static void test_too_many_connections(void **state)
{
	static struct crowd a, b;
	struct vb_cm_listener *listener;
	struct vb_cm_req req = pair_req(&pair);
	struct vb_cm_path to = {0};
	struct vb_cm_conn *conn;
	unsigned int count = 0;

	crowd_init(&a, &b, 1);
	crowd_init(&b, &a, 2);
	assert_int_equal(vb_cm_listen(b.cm, SERVICE, NULL, NULL, &listener), 0);
	do {
		errno = 0;
		conn = vb_cm_conn_create(b.cm, NULL);
		count += conn != NULL;
	} while (conn);
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(count, 32768);
	conn = vb_cm_conn_create(a.cm, NULL);
	assert_int_equal(vb_cm_send_req(conn, &to, &req, 0), 0);
	crowd_deliver(&a, 0);
	assert_int_equal(b.sent, 1);
	assert_int_equal(pair_decode(b.queue[0]).rej.reason, VB_CM_REJ_NO_RESOURCES);
	assert_int_equal(b.events[VB_CM_REQ_RECEIVED], 0);
	crowd_finish(&a);
	crowd_finish(&b);
}

/* A manager that talks to itself: both ends are its own, with IDs, queue pairs and GUID beside each
 * other in the same tables. */
static void test_connection_to_oneself(void **state)
{
	static struct crowd a;
	struct vb_cm_listener *listener;
	struct vb_cm_req req = pair_req(&pair);
	struct vb_cm_rep rep = pair_rep();
	struct vb_cm_path to = {0};
	uint64_t now = SECOND;
	struct vb_cm_conn *conn;

	crowd_init(&a, &a, 1);
	assert_int_equal(vb_cm_listen(a.cm, SERVICE, NULL, NULL, &listener), 0);
	conn = vb_cm_conn_create(a.cm, NULL);
	assert_int_equal(vb_cm_send_req(conn, &to, &req, now), 0);
	crowd_deliver(&a, now);
	assert_int_equal(a.events[VB_CM_REQ_RECEIVED], 1);
	assert_int_equal(vb_cm_send_rep(a.conns[0], &rep, now), 0);
	crowd_deliver(&a, now);
	assert_int_equal(a.events[VB_CM_REP_RECEIVED], 1);
	assert_int_equal(vb_cm_send_rtu(conn, NULL, 0, now), 0);
	crowd_deliver(&a, now);
	assert_int_equal(a.events[VB_CM_ESTABLISHED], 1);
	assert_int_equal(vb_cm_send_dreq(a.conns[0], NULL, 0, now), 0);
	crowd_deliver(&a, now);
	assert_int_equal(a.events[VB_CM_DREQ_RECEIVED], 1);
	vb_cm_conn_destroy(conn, now);
	crowd_deliver(&a, now);
	assert_int_equal(a.events[VB_CM_DREP_RECEIVED], 1);
	vb_cm_conn_destroy(a.conns[0], now);
	crowd_finish(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_listeners, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unlisten, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stale_connection, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stale_connection_from_elsewhere, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_stale_rep, setup, teardown),
		cmocka_unit_test_setup_teardown(test_duplicate_communication_id, setup, teardown),
		cmocka_unit_test_setup_teardown(test_answer_to_another_transaction, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_refusal_of_another_transaction, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_dreq_of_another_qp, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_is_no_message, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_connections, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_deadlines, setup, teardown),
		cmocka_unit_test_setup_teardown(test_too_many_connections, setup, teardown),
		cmocka_unit_test_setup_teardown(test_connection_to_oneself, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
