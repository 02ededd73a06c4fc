/* SPDX-License-Identifier: BSD-2-Clause */
/* cm_scenario.c - what the scenarios of connection managers share. */
#include "cm_scenario.h"

#include <stdlib.h>
#include <string.h>

#include "cm/ip.h"

#define FAR_NS 600000000000ull

static bool on_event(void *env, struct vb_cm_net_node *node, const struct vb_cm_event *event)
{
	struct cm_pair *w = env;
	struct cm_told *told = &w->told[node->index][w->told_count[node->index]++];
	bool request = event->type == VB_CM_REQ_RECEIVED || event->type == VB_CM_SIDR_REQ_RECEIVED;

	assert_true(w->told_count[node->index] <= CM_SEEN);
	*told = (struct cm_told){
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
	struct cm_pair *w = env;

	assert_true(w->sent_count < CM_SEEN);
	w->sent[w->sent_count].at_ns = w->net.sim.now_ns;
	w->sent[w->sent_count].from = mad->from->index;
	w->sent[w->sent_count].kind = mad->kind;
	w->sent[w->sent_count].fate = fate;
	memcpy(w->sent[w->sent_count++].bytes, mad->bytes, VB_MAD_BYTES);
}

struct cm_pair *cm_begin(void)
{
	static const struct vb_cm_hooks hooks = {.event = on_event, .sent = on_sent};
	struct cm_pair *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	vb_cm_net_init(&w->net, 1, 2, &hooks, w);
	w->net.delay_ns = DELAY_NS;
	for (uint32_t i = 0; i < 2; i++)
		vb_cm_net_start(&w->net.nodes[i]);
	assert_int_equal(vb_cm_listen(w->net.nodes[B].cm, SERVICE, NULL, w, &w->listener), 0);
	return w;
}

void cm_run_until(struct cm_pair *w, uint64_t at_ns)
{
	struct vb_sim *sim = &w->net.sim;

	while (vb_sim_next(sim) <= at_ns && vb_sim_step(sim))
		;
	if (sim->failed)
		fail_msg("%s", sim->failure);
	if (at_ns != UINT64_MAX - 1)
		sim->now_ns = at_ns;
}

void cm_step(struct cm_pair *w)
{
	cm_run_until(w, w->net.sim.now_ns + 10 * DELAY_NS);
}

void cm_run(struct cm_pair *w)
{
	cm_run_until(w, w->net.sim.now_ns + FAR_NS);
}

void cm_end(struct cm_pair *w)
{
	for (uint32_t i = 0; i < 2; i++) {
		if (w->conn[i] && w->net.nodes[i].cm)
			vb_cm_conn_destroy(w->conn[i], w->net.sim.now_ns);
		if (w->net.nodes[i].cm)
			vb_cm_net_entered(&w->net.nodes[i]);
	}
	vb_cm_unlisten(w->listener);
	cm_run(w);
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

uint32_t cm_sent(const struct cm_pair *w, uint32_t from, enum vb_cm_kind kind)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->sent_count; i++)
		n += w->sent[i].from == from && w->sent[i].kind == kind;
	return n;
}

const uint8_t *cm_nth_sent(const struct cm_pair *w, uint32_t from, enum vb_cm_kind kind, uint32_t n,
			   uint64_t *at_ns)
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

uint32_t cm_told(const struct cm_pair *w, uint32_t at, enum vb_cm_event_type type)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->told_count[at]; i++)
		n += w->told[at][i].type == type;
	return n;
}

const struct cm_told *cm_last(const struct cm_pair *w, uint32_t at, enum vb_cm_event_type type)
{
	const struct cm_told *t = &w->told[at][w->told_count[at] - 1];

	assert_true(w->told_count[at] > 0);
	assert_int_equal(t->type, type);
	return t;
}

uint64_t cm_now(const struct cm_pair *w)
{
	return w->net.sim.now_ns;
}

void cm_done(struct cm_pair *w, uint32_t at, int result)
{
	assert_int_equal(result, 0);
	vb_cm_net_entered(&w->net.nodes[at]);
}

struct vb_cm_req cm_req_of(uint64_t service_id)
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

void cm_connect(struct cm_pair *w, const struct vb_cm_req *given)
{
	const struct vb_cm_path path = vb_cm_net_path(&w->net.nodes[A], &w->net.nodes[B]);
	struct vb_cm_req req = *given;

	req.sgid = w->net.nodes[A].gid;
	req.dgid = w->net.nodes[B].gid;
	w->conn[A] = vb_cm_conn_create(w->net.nodes[A].cm, w);
	assert_non_null(w->conn[A]);
	cm_done(w, A, vb_cm_send_req(w->conn[A], &path, &req, cm_now(w)));
}

void cm_ask(struct cm_pair *w)
{
	const struct vb_cm_req req = cm_req_of(SERVICE);

	cm_connect(w, &req);
}

void cm_accept(struct cm_pair *w)
{
	const struct vb_cm_rep rep = {.qpn = QPN_B, .psn = 2, .failover_accepted = 1};

	cm_done(w, B, vb_cm_send_rep(w->conn[B], &rep, cm_now(w)));
}

void cm_agree(struct cm_pair *w)
{
	cm_done(w, A, vb_cm_send_rtu(w->conn[A], "agreed", 6, cm_now(w)));
}

void cm_disconnect(struct cm_pair *w, uint32_t at)
{
	cm_done(w, at, vb_cm_send_dreq(w->conn[at], "bye", 3, cm_now(w)));
}

void cm_answer_dreq(struct cm_pair *w, uint32_t at)
{
	cm_done(w, at, vb_cm_send_drep(w->conn[at], "bye", 3, cm_now(w)));
}

void cm_establish(struct cm_pair *w)
{
	cm_ask(w);
	cm_step(w);
	cm_accept(w);
	cm_step(w);
	cm_agree(w);
	cm_step(w);
	cm_last(w, A, VB_CM_REP_RECEIVED);
	cm_last(w, B, VB_CM_ESTABLISHED);
}

void cm_let_go(struct cm_pair *w, uint32_t at)
{
	vb_cm_conn_destroy(w->conn[at], cm_now(w));
	w->conn[at] = NULL;
	vb_cm_net_entered(&w->net.nodes[at]);
}
