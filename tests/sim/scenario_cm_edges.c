/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scenario_cm_edges.c - connection managers out of the ordinary: refusals, programs that let go or
 * come back, messages of the past and of nobody, listeners, SIDR.
 */
#include "cm_scenario.h"

#include <errno.h>

#include "cm/ip.h"

static void test_stale_connection(void **state)
{
	struct vb_cm_conn *old;
	struct cm_pair *w = cm_begin();

	cm_establish(w);
	old = w->conn[B];
	vb_cm_net_stop(&w->net.nodes[A], true);
	vb_cm_net_start(&w->net.nodes[A]);
	cm_ask(w);
	cm_step(w);
	assert_int_equal(cm_last(w, A, VB_CM_REJ_RECEIVED)->reason, VB_CM_REJ_STALE_CONN);
	assert_ptr_equal(cm_last(w, B, VB_CM_DREP_RECEIVED)->conn, old);
	cm_let_go(w, A);
	w->conn[B] = NULL;
	cm_establish(w);
	assert_ptr_not_equal(w->conn[B], old);
	vb_cm_conn_destroy(old, cm_now(w));
	vb_cm_net_entered(&w->net.nodes[B]);
	cm_end(w);
}

static void test_dreq_to_a_successor(void **state)
{
	struct cm_pair *w = cm_begin();

	cm_establish(w);
	vb_cm_net_stop(&w->net.nodes[A], true);
	vb_cm_net_start(&w->net.nodes[A]);
	w->conn[A] = NULL;
	cm_disconnect(w, B);
	cm_step(w);
	cm_last(w, B, VB_CM_DREP_RECEIVED);
	assert_int_equal(cm_sent(w, B, VB_CM_KIND_DREQ), 1);
	cm_end(w);
}

static void test_manager_destroyed(void **state)
{
	struct cm_pair *w = cm_begin();

	cm_establish(w);
	vb_cm_net_stop(&w->net.nodes[A], false);
	vb_cm_net_start(&w->net.nodes[A]);
	w->conn[A] = NULL;
	cm_step(w);
	cm_last(w, B, VB_CM_DREQ_RECEIVED);
	cm_answer_dreq(w, B);
	cm_end(w);
}

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
			struct cm_pair *w = cm_begin();
			uint32_t events;

			cm_ask(w);
			if (at >= REQ_RCVD)
				cm_step(w);
			if (at == MRA_SENT)
				cm_done(w, B,
					vb_cm_send_mra(w->conn[B], TIMEOUT, NULL, 0, cm_now(w)));
			if (at >= REP_SENT)
				cm_accept(w);
			if (at >= REP_RCVD)
				cm_step(w);
			if (at >= ESTABLISHED)
				cm_agree(w), cm_step(w);
			if (at >= DREQ_SENT)
				cm_disconnect(w, A);
			if (at >= DREQ_RCVD)
				cm_step(w);
			if (at >= TIMEWAIT)
				cm_answer_dreq(w, B), cm_step(w);
			if (w->conn[side]) {
				events = w->told_count[side];
				cm_let_go(w, side);
				cm_run(w);
				assert_int_equal(w->told_count[side], events);
				assert_int_equal(cm_told(w, !side, VB_CM_REJ_RECEIVED) +
							 cm_told(w, !side, VB_CM_DREQ_RECEIVED) +
							 cm_told(w, !side, VB_CM_DREP_RECEIVED),
						 1);
			}
			cm_end(w);
		}
}

static void test_req_after_the_end(void **state)
{
	struct cm_pair *w = cm_begin();

	vb_cm_net_rule(&w->net, B, VB_CM_KIND_REP, 0, 100, VB_CM_LOSE, 0);
	vb_cm_net_rule(&w->net, B, VB_CM_KIND_REJ, 0, 1, VB_CM_LOSE, 0);
	cm_ask(w);
	cm_step(w);
	cm_accept(w);
	cm_run_until(w, vb_cm_time(TIMEOUT) + vb_cm_time(ACK_TIMEOUT) / 2);
	cm_let_go(w, B);
	cm_run(w);
	cm_last(w, A, VB_CM_TIMEWAIT_EXIT);
	assert_int_equal(cm_told(w, A, VB_CM_REJ_RECEIVED), 1);
	assert_int_equal(w->told[A][0].reason, VB_CM_REJ_STALE_CONN);
	assert_int_equal(cm_sent(w, A, VB_CM_KIND_REQ), 2);
	cm_end(w);
}

static void test_req_of_the_past(void **state)
{
	struct cm_pair *w = cm_begin();

	vb_cm_net_rule(&w->net, A, VB_CM_KIND_REQ, 0, 1, VB_CM_TWICE, 500000000000ull);
	cm_establish(w);
	cm_disconnect(w, A);
	cm_step(w);
	cm_answer_dreq(w, B);
	cm_run_until(w, 400000000000ull);
	cm_let_go(w, A);
	cm_let_go(w, B);
	cm_run_until(w, 501000000000ull);
	assert_int_equal(cm_told(w, B, VB_CM_REQ_RECEIVED), 2);
	cm_accept(w);
	cm_run(w);
	assert_int_equal(cm_told(w, B, VB_CM_ESTABLISHED), 1); /* the first */
	assert_int_equal(cm_told(w, B, VB_CM_REP_FAILED) + cm_told(w, B, VB_CM_REJ_RECEIVED), 1);
	cm_end(w);
}

static void test_everything_twice(void **state)
{
	struct cm_pair *w = cm_begin();

	for (enum vb_cm_kind kind = VB_CM_KIND_REP; kind <= VB_CM_KIND_DREP; kind++)
		vb_cm_net_rule(&w->net, VB_CM_ANY_NODE, kind, 0, 1, VB_CM_TWICE, 3000000);
	vb_cm_net_rule(&w->net, A, VB_CM_KIND_REQ, 0, 1, VB_CM_TWICE, 3000000);
	cm_establish(w);
	cm_disconnect(w, A);
	cm_step(w);
	cm_answer_dreq(w, B);
	cm_run(w);
	assert_int_equal(w->told_count[A], 3);
	assert_int_equal(w->told_count[B], 4);
	cm_end(w);
}

static void test_refused_by_the_program(void **state)
{
	struct cm_pair *w = cm_begin();

	w->refuses = true;
	cm_ask(w);
	cm_run(w);
	assert_int_equal(cm_last(w, A, VB_CM_REJ_RECEIVED)->reason, VB_CM_REJ_NO_RESOURCES);
	assert_int_equal(cm_told(w, B, VB_CM_REQ_RECEIVED), 1);
	cm_end(w);
}

static void test_put_off_by_the_program(void **state)
{
	struct cm_pair *w = cm_begin();

	w->refuses = w->puts_off = true;
	cm_ask(w);
	cm_step(w);
	assert_int_equal(w->told_count[A], 0);
	assert_int_equal(cm_sent(w, B, VB_CM_KIND_REJ), 0);
	w->refuses = false;
	cm_run_until(w, 2 * vb_cm_time(TIMEOUT));
	assert_int_equal(cm_told(w, B, VB_CM_REQ_RECEIVED), 2);
	cm_accept(w);
	cm_step(w);
	cm_last(w, A, VB_CM_REP_RECEIVED);
	cm_end(w);
}

static void test_reject(void **state)
{
	const struct vb_cm_rej rej = {
		.reason = VB_CM_REJ_CONSUMER_DEFINED,
		.private_data = "no room",
		.private_data_len = 7,
	};
	struct cm_pair *w = cm_begin();

	cm_ask(w);
	cm_step(w);
	cm_done(w, B, vb_cm_send_rej(w->conn[B], &rej, cm_now(w)));
	cm_run(w);
	assert_int_equal(cm_last(w, A, VB_CM_REJ_RECEIVED)->reason, VB_CM_REJ_CONSUMER_DEFINED);
	assert_memory_equal(cm_last(w, A, VB_CM_REJ_RECEIVED)->data, "no room\0\0", 9);
	assert_int_equal(cm_last(w, A, VB_CM_REJ_RECEIVED)->data_bytes, VB_CM_REJ_PRIVATE);
	cm_end(w);
}

static void test_private_data_sizes(void **state)
{
	uint8_t bytes[VB_CM_REP_PRIVATE + 1];
	struct vb_cm_req req = cm_req_of(SERVICE);
	struct cm_pair *w = cm_begin();
	struct vb_cm_path path = vb_cm_net_path(&w->net.nodes[A], &w->net.nodes[B]);
	struct vb_cm_conn *conn = vb_cm_conn_create(w->net.nodes[A].cm, NULL);
	struct vb_cm_rep rep = {.qpn = QPN_B, .private_data = bytes};

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i + 1);
	req.private_data = bytes;
	req.private_data_len = VB_CM_REQ_PRIVATE + 1;
	assert_int_equal(vb_cm_send_req(conn, &path, &req, cm_now(w)), -EMSGSIZE);
	assert_int_equal(w->sent_count, 0);
	vb_cm_conn_destroy(conn, cm_now(w));
	req.private_data_len = VB_CM_REQ_PRIVATE;
	cm_connect(w, &req);
	cm_step(w);
	assert_int_equal(cm_last(w, B, VB_CM_REQ_RECEIVED)->data_bytes, VB_CM_REQ_PRIVATE);
	assert_memory_equal(cm_last(w, B, VB_CM_REQ_RECEIVED)->data, bytes, VB_CM_REQ_PRIVATE);
	rep.private_data_len = VB_CM_REP_PRIVATE + 1;
	assert_int_equal(vb_cm_send_rep(w->conn[B], &rep, cm_now(w)), -EMSGSIZE);
	assert_int_equal(cm_sent(w, B, VB_CM_KIND_REP), 0);
	rep.private_data_len = VB_CM_REP_PRIVATE;
	cm_done(w, B, vb_cm_send_rep(w->conn[B], &rep, cm_now(w)));
	cm_step(w);
	assert_memory_equal(cm_last(w, A, VB_CM_REP_RECEIVED)->data, bytes, VB_CM_REP_PRIVATE);
	cm_end(w);
}

static void ask_sidr(struct cm_pair *w, uint64_t service_id)
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
	cm_done(w, A, vb_cm_send_sidr_req(w->conn[A], &path, &req, cm_now(w)));
}

static void test_sidr(void **state)
{
	const struct vb_cm_sidr_rep rep = {.qpn = QPN_B, .qkey = 0x01234567};
	struct cm_pair *w = cm_begin();

	vb_cm_net_rule(&w->net, A, VB_CM_KIND_SIDR_REQ, 0, 1, VB_CM_LOSE, 0);
	vb_cm_net_rule(&w->net, B, VB_CM_KIND_SIDR_REP, 0, 1, VB_CM_LOSE, 0);
	ask_sidr(w, SERVICE);
	cm_run_until(w, vb_cm_time(TIMEOUT) * 3 / 2);
	cm_last(w, B, VB_CM_SIDR_REQ_RECEIVED);
	assert_memory_equal(cm_last(w, B, VB_CM_SIDR_REQ_RECEIVED)->data, "who?\0", 5);
	cm_done(w, B, vb_cm_send_sidr_rep(w->conn[B], &rep, cm_now(w)));
	cm_run_until(w, vb_cm_time(TIMEOUT) * 5 / 2);
	assert_int_equal(cm_last(w, A, VB_CM_SIDR_REP_RECEIVED)->status, VB_CM_SIDR_VALID);
	assert_int_equal(cm_told(w, B, VB_CM_SIDR_REQ_RECEIVED), 1);
	assert_int_equal(cm_sent(w, A, VB_CM_KIND_SIDR_REQ), 3);
	cm_end(w);
}

static void test_sidr_failures(void **state)
{
	struct cm_pair *w = cm_begin();

	ask_sidr(w, SERVICE + 1);
	cm_run(w);
	assert_int_equal(w->told_count[A], 1);
	assert_int_equal(cm_last(w, A, VB_CM_SIDR_REP_RECEIVED)->status, VB_CM_SIDR_UNSUPPORTED);
	cm_let_go(w, A);
	w->net.cut[A][B] = true;
	ask_sidr(w, SERVICE);
	cm_run(w);
	assert_int_equal(w->told_count[A], 2);
	cm_last(w, A, VB_CM_SIDR_FAILED);
	assert_int_equal(cm_sent(w, A, VB_CM_KIND_SIDR_REQ), 1 + RETRIES + 1);
	cm_end(w);
}

static void test_strangers(void **state)
{
	struct cm_pair *w = cm_begin();
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
	assert_int_equal(cm_sent(w, B, VB_CM_KIND_DREP), 1);
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
	cm_end(w);
}

static void test_listener_of_an_address(void **state)
{
	struct cm_pair *w = cm_begin();
	struct vb_cm_ip ip = {.ipv4 = true, .source_port = 1};
	struct vb_cm_match match = {.at = 20, .len = 16, .ip_version = 4};
	const struct vb_cm_match only_version = {.ip_version = 4};
	uint8_t header[VB_CM_IP_HEADER_BYTES];
	struct vb_cm_req req = cm_req_of(SERVICE + 5);
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
	cm_connect(w, &req);
	cm_step(w);
	assert_ptr_equal(cm_last(w, B, VB_CM_REQ_RECEIVED)->listener, one);
	vb_cm_unlisten(any[0]);
	vb_cm_unlisten(any[1]);
	vb_cm_unlisten(one);
	cm_let_go(w, A);
	cm_step(w);
	cm_let_go(w, B);
	cm_connect(w, &req);
	cm_step(w);
	assert_int_equal(cm_last(w, A, VB_CM_REJ_RECEIVED)->reason, VB_CM_REJ_INVALID_SERVICE_ID);
	vb_cm_unlisten(other);
	cm_end(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stale_connection),
		cmocka_unit_test(test_dreq_to_a_successor),
		cmocka_unit_test(test_manager_destroyed),
		cmocka_unit_test(test_destroy_in_every_state),
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
