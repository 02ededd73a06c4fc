/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_golden.c - the manager in the place of one of the two kernels of a capture.
 *
 * What the other kernel said is given to it; where the replaced one spoke, it must say the same,
 * byte for byte: by itself, or because the test calls for it as the program did. Its communication
 * ID is made the captured one. Only transactions that it begins are numbered otherwise than the
 * kernel's, which is made up for in both directions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../wire/golden_mad.h"
#include "cm/cm.h"
#include "cm/ip.h"
#include "wire/cm_message.h"

#define ID_BITS 22
#define ID_MASK ((1u << ID_BITS) - 1)
#define TID_AT 8
#define SECOND 1000000000ull

struct player {
	struct vb_cm *cm;
	struct vb_cm_conn *conn;
	uint32_t id; /* to be taken */
	uint64_t service_id;
	struct vb_cm_path peer;
	struct {
		uint64_t captured, ours;
	} tids[4];
	unsigned int tid_count;
	uint8_t queue[8][VB_MAD_BYTES];
	unsigned int sent, at;
	unsigned int events[VB_CM_SIDR_FAILED + 1];
	uint64_t now;
};

static void on_send(void *env, const struct vb_cm_path *to, const uint8_t mad[VB_MAD_BYTES])
{
	struct player *player = env;

	assert_memory_equal(&to->ah.dgid, &player->peer.ah.dgid, 16);
	assert_true(player->sent < VB_ARRAY_SIZE(player->queue));
	memcpy(player->queue[player->sent++], mad, VB_MAD_BYTES);
}

static bool on_event(void *env, const struct vb_cm_event *event)
{
	struct player *player = env;

	player->conn = event->conn;
	player->events[event->type]++;
	return true;
}

static uint32_t on_random(void *env)
{
	const struct player *player = env;

	return player->id;
}

static uint64_t our_tid(const struct player *player, uint64_t captured)
{
	for (unsigned int i = 0; i < player->tid_count; i++) {
		if (player->tids[i].captured == captured)
			return player->tids[i].ours;
	}
	return captured;
}

static struct vb_cm_req req_of(const struct vb_cm_message *m)
{
	const struct vb_cm_wire_req *w = &m->req;

	return (struct vb_cm_req){
		.service_id = w->service_id,
		.qpn = w->qpn,
		.psn = w->psn,
		.responder_resources = w->responder_resources,
		.initiator_depth = w->initiator_depth,
		.flow_control = w->flow_control,
		.srq = w->srq,
		.retry_count = w->retry_count,
		.rnr_retry_count = w->rnr_retry_count,
		.pkey = w->pkey,
		.path_mtu = (uint16_t)(128u << w->path_mtu),
		.ack_timeout = w->primary.ack_timeout,
		.remote_cm_timeout = w->remote_cm_timeout,
		.local_cm_timeout = w->local_cm_timeout,
		.max_cm_retries = w->max_cm_retries,
		.sgid = w->primary.local_gid,
		.dgid = w->primary.remote_gid,
		.flow_label = w->primary.flow_label,
		.traffic_class = w->primary.traffic_class,
		.hop_limit = w->primary.hop_limit,
		.private_data = m->private_data,
		.private_data_len = m->private_len,
	};
}

static struct vb_cm_rep rep_of(const struct vb_cm_message *m)
{
	const struct vb_cm_wire_rep *w = &m->rep;

	return (struct vb_cm_rep){
		.qpn = w->qpn,
		.psn = w->psn,
		.responder_resources = w->responder_resources,
		.initiator_depth = w->initiator_depth,
		.rnr_retry_count = w->rnr_retry_count,
		.target_ack_delay = w->target_ack_delay,
		.flow_control = w->flow_control,
		.failover_accepted = w->failover_accepted,
		.srq = w->srq,
		.private_data = m->private_data,
		.private_data_len = m->private_len,
	};
}

/* What the program of the replaced kernel did, where the message does not come by itself. */
static int call_for(struct player *player, const struct vb_cm_message *m)
{
	struct vb_cm_req req;
	struct vb_cm_rep rep;
	struct vb_cm_sidr_req sidr_req;
	struct vb_cm_sidr_rep sidr_rep;

	switch ((enum vb_cm_attr)m->mad.attr_id) {
	case VB_CM_ATTR_REQ:
		req = req_of(m);
		player->conn = vb_cm_conn_create(player->cm, NULL);
		return vb_cm_send_req(player->conn, &player->peer, &req, player->now);
	case VB_CM_ATTR_REP:
		rep = rep_of(m);
		return vb_cm_send_rep(player->conn, &rep, player->now);
	case VB_CM_ATTR_RTU:
		return vb_cm_send_rtu(player->conn, NULL, 0, player->now);
	case VB_CM_ATTR_DREQ:
		return vb_cm_send_dreq(player->conn, NULL, 0, player->now);
	case VB_CM_ATTR_DREP:
		return vb_cm_send_drep(player->conn, NULL, 0, player->now);
	case VB_CM_ATTR_SIDR_REQ:
		sidr_req = (struct vb_cm_sidr_req){.service_id = m->sidr_req.service_id,
						   .pkey = m->sidr_req.pkey,
						   .timeout = 20,
						   .max_retries = 15,
						   .private_data = m->private_data,
						   .private_data_len = m->private_len};
		player->conn = vb_cm_conn_create(player->cm, NULL);
		return vb_cm_send_sidr_req(player->conn, &player->peer, &sidr_req, player->now);
	case VB_CM_ATTR_SIDR_REP:
		sidr_rep = (struct vb_cm_sidr_rep){.status = m->sidr_rep.status,
						   .qpn = m->sidr_rep.qpn,
						   .qkey = m->sidr_rep.qkey};
		return vb_cm_send_sidr_rep(player->conn, &sidr_rep, player->now);
	case VB_CM_ATTR_MRA:
	case VB_CM_ATTR_REJ:
		break;
	}
	return 1;
}

static void speak(struct player *player, const uint8_t *captured, bool repeated)
{
	struct vb_cm_message m;
	uint8_t *ours;

	assert_int_equal(vb_cm_message_decode(&m, captured, VB_MAD_BYTES), 0);
	if (repeated && player->at == player->sent) {
		player->now = vb_cm_deadline(player->cm);
		vb_cm_run(player->cm, player->now);
	} else if (player->at == player->sent) {
		assert_int_equal(call_for(player, &m), 0);
	}
	assert_int_equal(player->sent, player->at + 1);
	ours = player->queue[player->at++ % VB_ARRAY_SIZE(player->queue)];
	if (!repeated && (m.mad.attr_id == VB_CM_ATTR_REQ || m.mad.attr_id == VB_CM_ATTR_DREQ ||
			  m.mad.attr_id == VB_CM_ATTR_SIDR_REQ)) {
		player->tids[player->tid_count].captured = m.mad.tid;
		player->tids[player->tid_count++].ours = vb_load_be64(ours + TID_AT);
	}
	assert_int_equal(vb_load_be64(ours + TID_AT), our_tid(player, m.mad.tid));
	vb_store_be64(ours + TID_AT, m.mad.tid);
	assert_memory_equal(ours, captured, VB_MAD_BYTES);
}

static void listen_to(struct player *player, const uint8_t *captured)
{
	uint8_t mad[VB_MAD_BYTES];

	memcpy(mad, captured, sizeof(mad));
	vb_store_be64(mad + TID_AT, our_tid(player, vb_load_be64(mad + TID_AT)));
	vb_cm_rx(player->cm, &player->peer, mad, sizeof(mad), player->now);
}

struct role {
	const char *capture;
	bool active;	/* the replaced one sent REQ or SIDR_REQ */
	bool listening; /* somebody listens */
	bool forgets;	/* a long time before the last DREQ, its program has gone */
	unsigned int messages;
	enum vb_cm_event_type last; /* that its program hears */
};

/* The replaced kernel's ID and GUID, and where the other one is. */
static struct vb_cm_config learn(struct player *player, const struct role *role)
{
	struct vb_cm_config config = {.id_bits = ID_BITS};
	struct golden_file file;
	struct golden_packet p;
	struct in6_addr active;
	const uint8_t *mad;
	bool first = true;

	assert_true(golden_open(&file, role->capture));
	while ((mad = golden_next_mad(&file, &p))) {
		struct vb_cm_message m;
		bool ours;

		assert_int_equal(vb_cm_message_decode(&m, mad, VB_MAD_BYTES), 0);
		if (first)
			active = p.ip.src;
		if (first && m.mad.attr_id == VB_CM_ATTR_REQ)
			player->service_id = m.req.service_id;
		if (first && m.mad.attr_id == VB_CM_ATTR_SIDR_REQ)
			player->service_id = m.sidr_req.service_id;
		first = false;
		ours = (memcmp(&active, &p.ip.src, 16) == 0) == role->active;
		if (!ours) {
			player->peer.ah.dgid = p.ip.src;
			continue;
		}
		player->id = m.local_id ? m.local_id : player->id;
		if (m.mad.attr_id == VB_CM_ATTR_REQ && role->active)
			config.ca_guid = m.req.ca_guid;
		if (m.mad.attr_id == VB_CM_ATTR_REP)
			config.ca_guid = m.rep.ca_guid;
	}
	golden_close(&file);
	if (!player->id)
		player->id = 1; /* a refusal shows none */
	config.id_base = player->id & ~ID_MASK;
	return config;
}

static void play(const struct role *role)
{
	static const struct vb_cm_ops ops = {on_send, on_event, on_random};
	struct player player = {.now = SECOND};
	struct vb_cm_config config = learn(&player, role);
	struct vb_cm_listener *listener;
	unsigned int messages = 0;
	struct golden_file file;
	struct golden_packet p;
	const uint8_t *mad;
	uint16_t seen = 0;

	player.cm = vb_cm_create(&ops, &player, &config);
	assert_non_null(player.cm);
	if (role->listening) {
		assert_int_equal(vb_cm_listen(player.cm, player.service_id, NULL, NULL, &listener),
				 0);
	}
	assert_true(golden_open(&file, role->capture));
	while ((mad = golden_next_mad(&file, &p))) {
		uint16_t kind = (uint16_t)(1u << (vb_load_be16(mad + 16) - VB_CM_ATTR_REQ));
		bool ours = memcmp(&p.ip.src, &player.peer.ah.dgid, 16) != 0;

		if (ours) {
			speak(&player, mad, seen & kind);
		} else {
			if (role->forgets && seen & kind) {
				vb_cm_conn_destroy(player.conn, player.now);
				player.now += 80 * SECOND;
				vb_cm_run(player.cm, player.now);
			}
			listen_to(&player, mad);
		}
		seen |= kind;
		messages++;
	}
	golden_close(&file);
	assert_int_equal(messages, role->messages);
	assert_int_equal(player.at, player.sent);
	assert_int_equal(player.events[role->last], 1);
	player.at = player.sent = 0;
	vb_cm_destroy(player.cm);
}

static void test_as_the_requester(void **state)
{
	static const struct role roles[] = {
		{"rxe-rping-C3.pcap", true, false, false, 5, VB_CM_DREP_RECEIVED},
		{"rxe-rstream.pcap", true, false, false, 5, VB_CM_DREP_RECEIVED},
		{"rxe-ipv6-rping.pcap", true, false, false, 5, VB_CM_DREP_RECEIVED},
		{"rxe-ucmatose.pcap", true, false, false, 5, VB_CM_DREQ_RECEIVED},
		{"rxe-cm-reject-no-listener.pcap", true, false, false, 2, VB_CM_REJ_RECEIVED},
		{"rxe-udaddy-sidr.pcap", true, false, false, 2, VB_CM_SIDR_REP_RECEIVED},
		{"rxe-loss-cm-req.pcap", true, false, false, 6, VB_CM_DREP_RECEIVED},
		{"rxe-loss-cm-rep.pcap", true, false, false, 5, VB_CM_DREP_RECEIVED},
		{"rxe-loss-cm-rtu.pcap", true, false, false, 7, VB_CM_DREP_RECEIVED},
		{"rxe-loss-cm-dreq.pcap", true, false, true, 6, VB_CM_REP_RECEIVED},
		{"rxe-loss-cm-dreq-ucmatose.pcap", true, false, false, 5, VB_CM_DREQ_RECEIVED},
		{"rxe-loss-cm-drep.pcap", true, false, false, 4, VB_CM_REP_RECEIVED},
	};

	for (size_t i = 0; i < VB_ARRAY_SIZE(roles); i++)
		play(&roles[i]);
}

static void test_as_the_listener(void **state)
{
	static const struct role roles[] = {
		{"rxe-rping-C3.pcap", false, true, false, 5, VB_CM_DREQ_RECEIVED},
		{"rxe-rstream.pcap", false, true, false, 5, VB_CM_DREQ_RECEIVED},
		{"rxe-ipv6-rping.pcap", false, true, false, 5, VB_CM_DREQ_RECEIVED},
		{"rxe-ucmatose.pcap", false, true, false, 5, VB_CM_DREP_RECEIVED},
		{"rxe-udaddy-sidr.pcap", false, true, false, 2, VB_CM_SIDR_REQ_RECEIVED},
		{"rxe-loss-cm-drep.pcap", false, true, false, 4, VB_CM_DREQ_RECEIVED},
	};

	for (size_t i = 0; i < VB_ARRAY_SIZE(roles); i++)
		play(&roles[i]);
}

/* Nobody listens, so no program hears anything; the answer is the kernel's. */
static void test_as_a_host_where_nobody_listens(void **state)
{
	static const struct vb_cm_ops ops = {on_send, on_event, on_random};
	struct player player = {.now = SECOND, .id = 1};
	const struct vb_cm_config config = {.id_bits = ID_BITS};
	struct golden_file file;
	struct golden_packet p;
	const uint8_t *mad;

	player.cm = vb_cm_create(&ops, &player, &config);
	assert_true(golden_open(&file, "rxe-cm-reject-no-listener.pcap"));
	mad = golden_next_mad(&file, &p);
	player.peer.ah.dgid = p.ip.src;
	listen_to(&player, mad);
	assert_int_equal(player.sent, 1);
	mad = golden_next_mad(&file, &p);
	assert_memory_equal(player.queue[0], mad, VB_MAD_BYTES);
	golden_close(&file);
	vb_cm_destroy(player.cm);
}

/* The private data of the captured requests, as the RDMA IP CM service reads and writes it. */
static void test_ip_header(void **state)
{
	static const struct {
		const char *capture;
		bool ipv4;
		uint16_t port;
	} cases[] = {
		{"rxe-rping-C3.pcap", true, 0xa4b5},
		{"rxe-ipv6-rping.pcap", false, 0x970f},
		{"rxe-udaddy-sidr.pcap", true, 0xe2e1},
	};

	for (size_t i = 0; i < VB_ARRAY_SIZE(cases); i++) {
		uint8_t out[VB_CM_IP_HEADER_BYTES];
		struct golden_file file;
		struct golden_packet p;
		struct vb_cm_message m;
		struct vb_cm_ip ip;

		assert_true(golden_open(&file, cases[i].capture));
		assert_int_equal(vb_cm_message_decode(&m, golden_next_mad(&file, &p), VB_MAD_BYTES),
				 0);
		assert_int_equal(vb_cm_ip_decode(&ip, m.private_data, m.private_len), 0);
		assert_int_equal(ip.ipv4, cases[i].ipv4);
		assert_int_equal(ip.source_port, cases[i].port);
		assert_memory_equal(&ip.source, &p.ip.src, 16);
		assert_memory_equal(&ip.destination, &p.ip.dst, 16);
		vb_cm_ip_encode(&ip, out);
		assert_memory_equal(out, m.private_data, sizeof(out));
		golden_close(&file);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_as_the_requester),
		cmocka_unit_test(test_as_the_listener),
		cmocka_unit_test(test_as_a_host_where_nobody_listens),
		cmocka_unit_test(test_ip_header),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
