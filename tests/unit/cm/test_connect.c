/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_connect.c - a connection from REQ to the end of timewait: what each message and each event
 * says; refusals; private data of every length.
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

static int send_sidr_req(struct vb_cm_conn *conn, const void *data, size_t len)
{
	struct vb_cm_path to = pair_path_to(&pair.b);
	struct vb_cm_sidr_req req = {.service_id = SERVICE,
				     .timeout = CM_TIMEOUT,
				     .max_retries = RETRIES,
				     .private_data = data,
				     .private_data_len = len};

	return vb_cm_send_sidr_req(conn, &to, &req, pair.now);
}

static void test_req(void **state)
{
	struct vb_cm_conn *conn = vb_cm_conn_create(pair.a.cm, &pair);
	struct vb_cm_path to = pair_path_to(&pair.b);
	struct vb_cm_req req = pair_req(&pair);
	const struct vb_cm_req *got;
	struct vb_cm_message m;
	unsigned int i;

	assert_ptr_equal(vb_cm_conn_user(conn), &pair);
	req.private_data = "hello";
	req.private_data_len = 5;
	assert_int_equal(vb_cm_send_req(conn, &to, &req, pair.now), 0);
	m = pair_next(&pair, &pair.a, VB_CM_ATTR_REQ);
	assert_int_equal(m.local_id & ~0x3fffffu, 1u << 22);
	assert_int_not_equal(m.local_id & 0x3fffffu, 0);
	assert_int_equal(m.req.ca_guid, pair.a.guid);
	assert_int_equal(m.req.primary.local_lid, 0xffff);
	assert_int_equal(m.req.primary.remote_lid, 0xffff);
	assert_int_equal(m.req.path_mtu, 3);
	assert_false(m.req.primary.subnet_local);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_REQ);

	i = pair_event_of(&pair.b, VB_CM_REQ_RECEIVED);
	got = &pair.b.events[i].req;
	assert_int_equal(got->service_id, SERVICE);
	assert_int_equal(got->qpn, 0x101);
	assert_int_equal(got->psn, 0xabcdef);
	assert_int_equal(got->transport, VB_CM_RC);
	assert_int_equal(got->responder_resources, 1);
	assert_int_equal(got->initiator_depth, 2);
	assert_int_equal(got->retry_count, 7);
	assert_int_equal(got->rnr_retry_count, 6);
	assert_int_equal(got->pkey, 0xffff);
	assert_int_equal(got->path_mtu, 1024);
	assert_int_equal(got->ack_timeout, 19);
	assert_int_equal(got->remote_cm_timeout, 20);
	assert_int_equal(got->local_cm_timeout, 20);
	assert_int_equal(got->max_cm_retries, 15);
	assert_int_equal(got->ca_guid, pair.a.guid);
	assert_memory_equal(&got->sgid, &pair.a.gid, 16);
	assert_memory_equal(&got->dgid, &pair.b.gid, 16);
	assert_ptr_equal(pair.b.events[i].listener, pair.listener);
	assert_ptr_equal(vb_cm_listener_user(pair.listener), &pair);
	assert_memory_equal(&pair.b.events[i].path.ah.dgid, &pair.a.gid, 16);
	assert_int_equal(pair.b.events[i].private_len, 92);
	assert_memory_equal(pair.b.events[i].private_data, "hello\0", 6);
	assert_int_equal(vb_cm_deadline(pair.b.cm), UINT64_MAX); /* the program's turn */
	pair_let_go(&pair, conn, pair.b.events[i].conn);
}

/* XRC: transport service type 3, extended type 1; the target's number is in the place of the EE
 * context's, and it always has an SRQ (annex A14). */
static void test_xrc(void **state)
{
	struct vb_cm_conn *a = vb_cm_conn_create(pair.a.cm, &pair), *b;
	struct vb_cm_path to = pair_path_to(&pair.b);
	struct vb_cm_req req = pair_req(&pair);
	struct vb_cm_rep rep = pair_rep();
	struct vb_cm_message m;
	unsigned int i;

	req.transport = VB_CM_XRC;
	assert_int_equal(vb_cm_send_req(a, &to, &req, pair.now), 0);
	m = pair_next(&pair, &pair.a, VB_CM_ATTR_REQ);
	assert_int_equal(m.req.transport, 3);
	assert_int_equal(m.req.extended_transport, 1);
	assert_int_equal(m.req.qpn, 0x101);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_REQ);
	i = pair_event_of(&pair.b, VB_CM_REQ_RECEIVED);
	assert_int_equal(pair.b.events[i].req.transport, VB_CM_XRC);
	b = pair.b.events[i].conn;

	assert_int_equal(vb_cm_send_rep(b, &rep, pair.now), 0);
	m = pair_next(&pair, &pair.b, VB_CM_ATTR_REP);
	assert_int_equal(m.rep.qpn, 0);
	assert_int_equal(m.rep.eecn, 0x202);
	assert_true(m.rep.srq);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_REP);
	i = pair_event_of(&pair.a, VB_CM_REP_RECEIVED);
	assert_int_equal(pair.a.events[i].rep.qpn, 0x202);
	pair_let_go(&pair, a, b);
}

static void test_whole_life(void **state)
{
	struct vb_cm_conn *a, *b = pair_replied(&pair, &a);
	struct vb_cm_message m = pair_next(&pair, &pair.b, VB_CM_ATTR_REP);
	struct vb_cm_message req = pair_decode(pair.queue[0].mad);
	const struct vb_cm_rep *rep;

	assert_int_equal(m.mad.tid, req.mad.tid);
	assert_int_equal(m.remote_id, req.local_id);
	assert_int_equal(m.rep.ca_guid, pair.b.guid);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_REP);
	rep = &pair.a.events[pair_event_of(&pair.a, VB_CM_REP_RECEIVED)].rep;
	assert_int_equal(rep->qpn, 0x202);
	assert_int_equal(rep->psn, 0x123456);
	assert_int_equal(rep->responder_resources, 2);
	assert_int_equal(rep->initiator_depth, 1);
	assert_int_equal(rep->rnr_retry_count, 5);
	assert_int_equal(rep->target_ack_delay, 15);
	assert_int_equal(rep->failover_accepted, 1);
	assert_int_equal(rep->ca_guid, pair.b.guid);
	assert_int_equal(vb_cm_deadline(pair.a.cm), UINT64_MAX);

	assert_int_equal(vb_cm_send_rtu(a, NULL, 0, pair.now), 0);
	m = pair_next(&pair, &pair.a, VB_CM_ATTR_RTU);
	assert_int_equal(m.mad.tid, req.mad.tid);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_RTU);
	pair_event_of(&pair.b, VB_CM_ESTABLISHED);
	assert_int_equal(vb_cm_deadline(pair.b.cm), UINT64_MAX);

	assert_int_equal(vb_cm_send_dreq(b, NULL, 0, pair.now), 0);
	m = pair_next(&pair, &pair.b, VB_CM_ATTR_DREQ);
	assert_int_equal(m.dreq.remote_qpn, 0x101);
	assert_int_not_equal(m.mad.tid, req.mad.tid);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_DREQ);
	pair_event_of(&pair.a, VB_CM_DREQ_RECEIVED);
	assert_int_equal(vb_cm_send_drep(a, NULL, 0, pair.now), 0);
	assert_int_equal(pair_next(&pair, &pair.a, VB_CM_ATTR_DREP).mad.tid, m.mad.tid);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_DREP);
	pair_event_of(&pair.b, VB_CM_DREP_RECEIVED);

	assert_int_equal(vb_cm_deadline(pair.a.cm), pair.now + TIMEWAIT);
	pair_run_after(&pair.b, TIMEWAIT);
	pair_event_of(&pair.b, VB_CM_TIMEWAIT_EXIT);
	vb_cm_run(pair.a.cm, pair.now);
	pair_event_of(&pair.a, VB_CM_TIMEWAIT_EXIT);
	pair_assert_silence(&pair);
	vb_cm_conn_destroy(a, pair.now);
	vb_cm_conn_destroy(b, pair.now);
	pair_assert_empty(&pair);
	pair_assert_silence(&pair);
}

static void test_nobody_listens(void **state)
{
	struct vb_cm_conn *a;
	struct vb_cm_message m;
	const struct vb_cm_rej *rej;

	vb_cm_unlisten(pair.listener);
	a = pair_connect(&pair);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_REQ);
	pair_assert_no_event(&pair.b);
	m = pair_next(&pair, &pair.b, VB_CM_ATTR_REJ);
	assert_int_equal(m.local_id, 0);
	assert_int_equal(m.rej.about, VB_CM_ABOUT_REQ);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_REJ);
	rej = &pair.a.events[pair_event_of(&pair.a, VB_CM_REJ_RECEIVED)].rej;
	assert_int_equal(rej->reason, VB_CM_REJ_INVALID_SERVICE_ID);
	assert_int_equal(rej->ari_len, 0);
	pair_let_go(&pair, a, NULL);
}

static void test_program_refuses(void **state)
{
	struct vb_cm_conn *a, *b = pair_requested(&pair, &a);
	struct vb_cm_rej rej = {.reason = VB_CM_REJ_CONSUMER_DEFINED,
				.ari = "why",
				.ari_len = 3,
				.private_data = "no",
				.private_data_len = 2};
	struct vb_cm_message m;
	unsigned int i;

	assert_int_equal(vb_cm_send_rej(b, &rej, pair.now), 0);
	m = pair_next(&pair, &pair.b, VB_CM_ATTR_REJ);
	assert_int_equal(m.local_id, 0); /* a has never heard of b's ID */
	assert_int_equal(m.rej.about, VB_CM_ABOUT_REQ);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_REJ);
	i = pair_event_of(&pair.a, VB_CM_REJ_RECEIVED);
	assert_int_equal(pair.a.events[i].rej.reason, 28);
	assert_int_equal(pair.a.events[i].rej.ari_len, 3);
	assert_memory_equal(pair.a.events[i].ari, "why", 3);
	assert_int_equal(pair.a.events[i].private_len, 148);
	assert_memory_equal(pair.a.events[i].private_data, "no\0", 3);
	assert_int_equal(vb_cm_deadline(pair.a.cm), UINT64_MAX);
	pair_let_go(&pair, a, b);
}

static void test_requester_refuses_the_rep(void **state)
{
	struct vb_cm_conn *a, *b = pair_accepted(&pair, &a);
	struct vb_cm_rej rej = {.reason = VB_CM_REJ_CONSUMER_DEFINED};
	struct vb_cm_message m;

	assert_int_equal(vb_cm_send_rej(a, &rej, pair.now), 0);
	m = pair_next(&pair, &pair.a, VB_CM_ATTR_REJ);
	assert_int_equal(m.rej.about, VB_CM_ABOUT_REP);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_REJ);
	pair_event_of(&pair.b, VB_CM_REJ_RECEIVED);
	pair_let_go(&pair, a, b);
}

/* A program whose backlog is full says false; the peer hears so at once. */
static void test_nobody_can_take_it(void **state)
{
	struct vb_cm_conn *a;
	unsigned int i;

	pair.b.refuse = true;
	a = pair_connect(&pair);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_REQ);
	pair_event_of(&pair.b, VB_CM_REQ_RECEIVED);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_REJ);
	i = pair_event_of(&pair.a, VB_CM_REJ_RECEIVED);
	assert_int_equal(pair.a.events[i].rej.reason, VB_CM_REJ_NO_RESOURCES);
	pair_let_go(&pair, a, NULL);
}

/* ... or that it may have room later: then the message counts as lost. */
static void test_nobody_can_take_it_now(void **state)
{
	struct vb_cm_conn *a;

	pair.b.put_off = true;
	a = pair_connect(&pair);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_REQ);
	pair_event_of(&pair.b, VB_CM_REQ_RECEIVED);
	pair_assert_silence(&pair);
	pair_run_after(&pair.a, REQ_INTERVAL);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_REQ);
	pair_let_go(&pair, a, pair.b.events[pair_event_of(&pair.b, VB_CM_REQ_RECEIVED)].conn);

	pair.b.put_off = true;
	a = vb_cm_conn_create(pair.a.cm, NULL);
	assert_int_equal(send_sidr_req(a, NULL, 0), 0);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_SIDR_REQ);
	pair_event_of(&pair.b, VB_CM_SIDR_REQ_RECEIVED);
	pair_assert_silence(&pair);
	pair_run_after(&pair.a, T(CM_TIMEOUT));
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_SIDR_REQ);
	pair_let_go(&pair, a, pair.b.events[pair_event_of(&pair.b, VB_CM_SIDR_REQ_RECEIVED)].conn);
}

static void give_changed_req(size_t at, uint8_t value)
{
	uint8_t mad[VB_MAD_BYTES];

	memcpy(mad, pair_lose(&pair, &pair.a, VB_CM_ATTR_REQ), sizeof(mad));
	mad[VB_MAD_HEADER_BYTES + at] = value;
	pair_give(&pair.b, mad);
}

static void test_req_that_we_cannot_do(void **state)
{
	static const struct {
		uint8_t at, value, reason;
	} cases[] = {
		{43, 20 << 3 | 2 << 1, VB_CM_REJ_INVALID_TRANSPORT}, /* RD */
		{43, 20 << 3 | 3 << 1, VB_CM_REJ_INVALID_TRANSPORT},
		{50, 0 << 4 | 7, 26}, /* invalid path MTU */
		{50, 6 << 4 | 7, 26},
		{15, 0x07, VB_CM_REJ_INVALID_SERVICE_ID},
	};

	for (size_t i = 0; i < VB_ARRAY_SIZE(cases); i++) {
		struct vb_cm_conn *a = pair_connect(&pair);

		give_changed_req(cases[i].at, cases[i].value);
		pair_assert_no_event(&pair.b);
		assert_int_equal(pair_next(&pair, &pair.b, VB_CM_ATTR_REJ).rej.reason,
				 cases[i].reason);
		pair_let_go(&pair, a, NULL);
	}
}

/* What goes wrong with len + 1 bytes must not have happened at all: the message is sent afterwards.
 */
static void assert_room(int (*send)(struct vb_cm_conn *conn, const void *data, size_t len),
			struct vb_cm_conn *conn, struct side *from, enum vb_cm_event_type event,
			size_t room)
{
	uint8_t data[VB_CM_PRIVATE_MAX + 1];
	struct side *to = pair_other(from);
	unsigned int i;

	memset(data, 0x5a, sizeof(data));
	assert_int_equal(send(conn, data, room + 1), -EMSGSIZE);
	pair_assert_silence(&pair);
	assert_int_equal(send(conn, data, room), 0);
	pair_give(to, pair.queue[pair.at++].mad);
	i = pair_event_of(to, event);
	assert_int_equal(to->events[i].private_len, room);
	assert_memory_equal(to->events[i].private_data, data, room);
}

static int send_req(struct vb_cm_conn *conn, const void *data, size_t len)
{
	struct vb_cm_path to = pair_path_to(&pair.b);
	struct vb_cm_req req = pair_req(&pair);

	req.private_data = data;
	req.private_data_len = len;
	return vb_cm_send_req(conn, &to, &req, pair.now);
}

static int send_mra(struct vb_cm_conn *conn, const void *data, size_t len)
{
	return vb_cm_send_mra(conn, 20, data, len, pair.now);
}

static int send_rep(struct vb_cm_conn *conn, const void *data, size_t len)
{
	struct vb_cm_rep rep = pair_rep();

	rep.private_data = data;
	rep.private_data_len = len;
	return vb_cm_send_rep(conn, &rep, pair.now);
}

static int send_rtu(struct vb_cm_conn *conn, const void *data, size_t len)
{
	return vb_cm_send_rtu(conn, data, len, pair.now);
}

static int send_dreq(struct vb_cm_conn *conn, const void *data, size_t len)
{
	return vb_cm_send_dreq(conn, data, len, pair.now);
}

static int send_drep(struct vb_cm_conn *conn, const void *data, size_t len)
{
	return vb_cm_send_drep(conn, data, len, pair.now);
}

static int send_rej(struct vb_cm_conn *conn, const void *data, size_t len)
{
	struct vb_cm_rej rej = {.reason = 28, .private_data = data, .private_data_len = len};

	return vb_cm_send_rej(conn, &rej, pair.now);
}

static int send_ari(struct vb_cm_conn *conn, const void *data, size_t len)
{
	struct vb_cm_rej rej = {.reason = 28, .ari = data, .ari_len = len};

	return vb_cm_send_rej(conn, &rej, pair.now);
}

static int send_sidr_rep(struct vb_cm_conn *conn, const void *data, size_t len)
{
	struct vb_cm_sidr_rep rep = {.private_data = data, .private_data_len = len};

	return vb_cm_send_sidr_rep(conn, &rep, pair.now);
}

static struct vb_cm_conn *last_conn_of(struct side *side)
{
	return side->events[(side->event_at - 1) % PAIR_EVENTS].conn;
}

static void test_private_data_of_every_message(void **state)
{
	struct vb_cm_conn *a = vb_cm_conn_create(pair.a.cm, NULL), *b;

	assert_room(send_req, a, &pair.a, VB_CM_REQ_RECEIVED, 92);
	b = last_conn_of(&pair.b);
	assert_room(send_mra, b, &pair.b, VB_CM_MRA_RECEIVED, 222);
	assert_room(send_rep, b, &pair.b, VB_CM_REP_RECEIVED, 196);
	assert_room(send_rtu, a, &pair.a, VB_CM_ESTABLISHED, 224);
	assert_room(send_dreq, a, &pair.a, VB_CM_DREQ_RECEIVED, 220);
	assert_room(send_drep, b, &pair.b, VB_CM_DREP_RECEIVED, 224);
	pair_let_go(&pair, a, b);

	b = pair_requested(&pair, &a);
	assert_int_equal(send_ari(b, "", 73), -EMSGSIZE);
	assert_room(send_rej, b, &pair.b, VB_CM_REJ_RECEIVED, 148);
	pair_let_go(&pair, a, b);

	a = vb_cm_conn_create(pair.a.cm, NULL);
	assert_room(send_sidr_req, a, &pair.a, VB_CM_SIDR_REQ_RECEIVED, 216);
	b = last_conn_of(&pair.b);
	assert_room(send_sidr_rep, b, &pair.b, VB_CM_SIDR_REP_RECEIVED, 136);
	pair_let_go(&pair, a, b);
}

static void test_arguments_of_req(void **state)
{
	struct vb_cm_conn *conn = vb_cm_conn_create(pair.a.cm, NULL);
	struct vb_cm_path to = pair_path_to(&pair.b);
	struct vb_cm_req good = pair_req(&pair), bad[9];

	for (size_t i = 0; i < VB_ARRAY_SIZE(bad); i++)
		bad[i] = good;
	bad[0].path_mtu = 0;
	bad[1].path_mtu = 8192;
	bad[2].path_mtu = 1000;
	bad[3].transport = 2;
	bad[4].retry_count = 8;
	bad[5].rnr_retry_count = 8;
	bad[6].remote_cm_timeout = 32;
	bad[7].local_cm_timeout = 32;
	bad[8].max_cm_retries = 16;
	for (size_t i = 0; i < VB_ARRAY_SIZE(bad); i++)
		assert_int_equal(vb_cm_send_req(conn, &to, &bad[i], pair.now), -EINVAL);
	pair_assert_silence(&pair);
	vb_cm_conn_destroy(conn, pair.now);
	for (uint16_t mtu = 256, code = 1; mtu <= 4096; mtu = (uint16_t)(mtu * 2), code++) {
		struct vb_cm_conn *a = vb_cm_conn_create(pair.a.cm, NULL);

		good.path_mtu = mtu;
		good.qpn++;
		assert_int_equal(vb_cm_send_req(a, &to, &good, pair.now), 0);
		assert_int_equal(pair_next(&pair, &pair.a, VB_CM_ATTR_REQ).req.path_mtu, code);
		pair_deliver(&pair, &pair.a, VB_CM_ATTR_REQ);
		assert_int_equal(
			pair.b.events[pair_event_of(&pair.b, VB_CM_REQ_RECEIVED)].req.path_mtu,
			mtu);
		pair_let_go(&pair, a, last_conn_of(&pair.b));
	}
}

static void test_sidr(void **state)
{
	struct vb_cm_conn *a = vb_cm_conn_create(pair.a.cm, NULL);
	struct vb_cm_sidr_rep rep = {.qpn = 0x303, .qkey = 0x01234567};
	struct vb_cm_message m;
	unsigned int i;

	assert_int_equal(send_sidr_req(a, "ab", 2), 0);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_SIDR_REQ);
	i = pair_event_of(&pair.b, VB_CM_SIDR_REQ_RECEIVED);
	assert_int_equal(pair.b.events[i].sidr_req.service_id, SERVICE);
	assert_ptr_equal(pair.b.events[i].listener, pair.listener);
	assert_int_equal(vb_cm_send_sidr_rep(pair.b.events[i].conn, &rep, pair.now), 0);
	m = pair_next(&pair, &pair.b, VB_CM_ATTR_SIDR_REP);
	assert_int_equal(m.sidr_rep.service_id, SERVICE);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_SIDR_REP);
	i = pair_event_of(&pair.a, VB_CM_SIDR_REP_RECEIVED);
	assert_int_equal(pair.a.events[i].sidr_rep.status, VB_CM_SIDR_VALID);
	assert_int_equal(pair.a.events[i].sidr_rep.qpn, 0x303);
	assert_int_equal(pair.a.events[i].sidr_rep.qkey, 0x01234567);
	pair_let_go(&pair, a, last_conn_of(&pair.b));
}

static void test_sidr_refusals(void **state)
{
	struct vb_cm_conn *a = vb_cm_conn_create(pair.a.cm, NULL);
	unsigned int i;

	pair.b.refuse = true;
	assert_int_equal(send_sidr_req(a, NULL, 0), 0);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_SIDR_REQ);
	pair_event_of(&pair.b, VB_CM_SIDR_REQ_RECEIVED);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_SIDR_REP);
	i = pair_event_of(&pair.a, VB_CM_SIDR_REP_RECEIVED);
	assert_int_equal(pair.a.events[i].sidr_rep.status, VB_CM_SIDR_REJECTED);
	pair_let_go(&pair, a, NULL);

	vb_cm_unlisten(pair.listener);
	a = vb_cm_conn_create(pair.a.cm, NULL);
	assert_int_equal(send_sidr_req(a, NULL, 0), 0);
	pair_deliver(&pair, &pair.a, VB_CM_ATTR_SIDR_REQ);
	pair_assert_no_event(&pair.b);
	pair_deliver(&pair, &pair.b, VB_CM_ATTR_SIDR_REP);
	i = pair_event_of(&pair.a, VB_CM_SIDR_REP_RECEIVED);
	assert_int_equal(pair.a.events[i].sidr_rep.status, VB_CM_SIDR_UNSUPPORTED);
	pair_let_go(&pair, a, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_req, setup, teardown),
		cmocka_unit_test_setup_teardown(test_whole_life, setup, teardown),
		cmocka_unit_test_setup_teardown(test_xrc, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nobody_listens, setup, teardown),
		cmocka_unit_test_setup_teardown(test_program_refuses, setup, teardown),
		cmocka_unit_test_setup_teardown(test_requester_refuses_the_rep, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nobody_can_take_it, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nobody_can_take_it_now, setup, teardown),
		cmocka_unit_test_setup_teardown(test_req_that_we_cannot_do, setup, teardown),
		cmocka_unit_test_setup_teardown(test_private_data_of_every_message, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_arguments_of_req, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sidr, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sidr_refusals, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
