/* SPDX-License-Identifier: BSD-2-Clause */
/* scenario.c - what the named scenarios share. */
#include "scenario.h"

#include <stdlib.h>
#include <string.h>

#include "core/xrc.h"

#define QKEY 0x1234567u
#define STEPS_MAX 1000000

/* --- what happens is written down -------------------------------------------------------- */

static enum vb_verdict filter(void *env, struct vb_link *link, const struct vb_headers *h,
			      uint32_t payload_bytes)
{
	struct scenario *s = env;
	int from = (int)link->from->index;
	enum vb_operation operation = vb_opcode_operation(h->opcode);
	enum vb_verdict verdict = VB_PASS;
	struct seen *seen = &s->seen[s->seen_count++];

	assert_true(s->seen_count < SCENARIO_SEEN);
	for (uint32_t i = 0; i < s->rule_count; i++) {
		struct rule *rule = &s->rule[i];
		uint32_t number;

		if (rule->from != from ||
		    (rule->operation >= 0 && rule->operation != (int)operation))
			continue;
		number = rule->met++;
		if (number >= rule->first && number - rule->first < rule->count)
			verdict = rule->verdict;
	}
	*seen = (struct seen){s->net.sim.now_ns, from, operation, *h, payload_bytes,
			      verdict == VB_DROP};
	return verdict;
}

static void on_event(void *env, struct vb_node *node, const struct vb_event *event)
{
	struct scenario *s = env;

	assert_true(s->event_count[node->index] < SCENARIO_EVENTS);
	s->event[node->index][s->event_count[node->index]++] = event->type;
}

static void on_cq_event(void *env, struct vb_node *node, struct vb_cq *cq)
{
	struct scenario *s = env;

	s->cq_events[node->index]++;
}

/* --- setting up -------------------------------------------------------------------------- */

static void modify(struct scenario *s, int at, struct vb_qp_attr *attr, uint32_t mask)
{
	assert_int_equal(vb_qp_modify(s->qp[at], attr, mask), 0);
	vb_node_kick(&s->net.nodes[at]);
}

void scenario_modify(struct scenario *s, int at, enum vb_qp_state state)
{
	struct vb_qp_attr attr = {.qp_state = state, .en_sqd_async_notify = true};

	modify(s, at, &attr,
	       VB_QP_STATE | (state == VB_QPS_SQD ? (uint32_t)VB_QP_EN_SQD_ASYNC_NOTIFY : 0u));
}

void scenario_connect(struct scenario *s, int at, const struct scenario_options *o)
{
	scenario_connect_to(s, at, !at, o);
}

void scenario_connect_to(struct scenario *s, int at, int peer, const struct scenario_options *o)
{
	struct vb_qp_attr attr = {
		.qp_state = VB_QPS_INIT,
		.port_num = 1,
		.qkey = QKEY,
		.access_flags = o->access == NO_ACCESS ? 0
				: o->access	       ? o->access
					    : VB_ACCESS_REMOTE_ALL | VB_ACCESS_FLUSH_GLOBAL,
		.ah = {.dgid = s->net.nodes[peer].gid,
		       .is_global = true,
		       .port_num = 1,
		       .hop_limit = 64},
		.path_mtu = o->mtu ? o->mtu : VB_MTU_1024,
		.dest_qpn = s->qp[peer]->qpn,
		.rq_psn = SCENARIO_PSN,
		.sq_psn = SCENARIO_PSN,
		.max_dest_rd_atomic = o->max_dest_rd_atomic == NO_RD_ATOMIC ? 0
				      : o->max_dest_rd_atomic		    ? o->max_dest_rd_atomic
									    : 16,
		.max_rd_atomic = o->max_rd_atomic ? o->max_rd_atomic : 16,
		.min_rnr_timer = o->min_rnr_timer,
		.timeout = o->timeout ? o->timeout : 14,
		.retry_cnt = o->retry_cnt,
		.rnr_retry = o->rnr_retry,
	};
	const enum vb_qp_type type = s->qp[at]->type;
	const bool ud = type == VB_QPT_UD;
	const bool responds = type == VB_QPT_RC || type == VB_QPT_XRC_RECV;
	const bool requests = type == VB_QPT_RC || type == VB_QPT_XRC_SEND;

	modify(s, at, &attr,
	       VB_QP_STATE | VB_QP_PKEY_INDEX | VB_QP_PORT |
		       (ud ? VB_QP_QKEY : VB_QP_ACCESS_FLAGS));
	attr.qp_state = VB_QPS_RTR;
	modify(s, at, &attr,
	       VB_QP_STATE | (ud ? 0u : VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN) |
		       (responds ? VB_QP_MAX_DEST_RD_ATOMIC | VB_QP_MIN_RNR_TIMER : 0u));
	attr.qp_state = VB_QPS_RTS;
	modify(s, at, &attr,
	       VB_QP_STATE | VB_QP_SQ_PSN | (requests || responds ? VB_QP_TIMEOUT : 0u) |
		       (requests ? VB_QP_RETRY_CNT | VB_QP_RNR_RETRY | VB_QP_MAX_QP_RD_ATOMIC
				 : 0u));
	if (ud)
		s->ah[at] = vb_ah_create(s->pd[at], &attr.ah);
}

static void make_side(struct scenario *s, int at, const struct scenario_options *o)
{
	struct vb_node *node = &s->net.nodes[at];
	struct vb_qp_init init = {
		.type = o->type ? o->type : VB_QPT_RC,
		.cap = {.max_send_wr = 64,
			.max_recv_wr = 64,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 128},
		.sq_sig_all = !o->not_signalled,
	};

	node->env = s;
	node->on_event = on_event;
	node->on_cq_event = on_cq_event;
	s->memory[at] = calloc(1, SCENARIO_BYTES);
	assert_non_null(s->memory[at]);
	s->pd[at] = vb_pd_create(node->nic);
	s->cq[at] = vb_cq_create(node->nic, o->cqes ? o->cqes : SCENARIO_CQES, NULL);
	s->mr[at] =
		vb_mr_create(s->pd[at], s->memory[at], SCENARIO_BYTES, 0x100000,
			     VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL | VB_ACCESS_FLUSH_GLOBAL);
	if (o->srq)
		s->srq[at] = vb_srq_create(s->pd[at], 64, 4, 0, NULL);
	if (o->xrc && at == B) {
		s->xrcd = vb_xrcd_create(node->nic);
		s->srq[at] = vb_xrc_srq_create(s->pd[at], s->xrcd, s->cq[at], 64, 4, NULL);
		init = (struct vb_qp_init){.type = VB_QPT_XRC_RECV, .xrcd = s->xrcd};
	} else {
		init.type = o->xrc ? VB_QPT_XRC_SEND : init.type;
		init.send_cq = init.recv_cq = s->cq[at];
		init.srq = s->srq[at];
	}
	s->qp[at] = vb_qp_create(init.xrcd ? NULL : s->pd[at], &init);
	assert_non_null(s->qp[at]);
	vb_node_watch(node, s->qp[at]);
}

struct scenario *scenario_begin(const struct scenario_options *options)
{
	const struct vb_nic_config config = {0};
	struct scenario *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	vb_net_init(&s->net, 1, 2, false, &config);
	s->net.sim.trace = getenv("VB_SIM_TRACE") != NULL;
	s->net.ways[A][B].window = options->window;
	s->net.ways[A][B].train = options->window / 2;
	if (options->segment) {
		s->net.ways[A][B].own_segment = true;
		s->net.ways[A][B].segment_max = options->segment;
	}
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < 2; k++) {
			struct vb_link *link = &s->net.links[i][k];

			link->rate = 0;
			link->delay_ns = SCENARIO_DELAY_NS;
			link->filter = filter;
			link->filter_env = s;
		}
	make_side(s, A, options);
	make_side(s, B, options);
	scenario_connect(s, A, options);
	scenario_connect(s, B, options);
	return s;
}

void scenario_destroy_qp(struct scenario *s, int at)
{
	if (s->qp[at])
		vb_node_unwatch(&s->net.nodes[at], s->qp[at]);
	vb_qp_destroy(s->qp[at]);
	s->qp[at] = NULL;
}

void scenario_end(struct scenario *s)
{
	for (int i = 0; i < 2; i++) {
		scenario_destroy_qp(s, i);
		vb_ah_put(s->ah[i]);
		vb_mr_destroy(s->mr[i]);
		assert_int_equal(vb_srq_destroy(s->srq[i]), 0);
		assert_int_equal(vb_cq_destroy(s->cq[i]), 0);
		assert_int_equal(vb_pd_destroy(s->pd[i]), 0);
	}
	assert_int_equal(vb_xrcd_destroy(s->xrcd), 0);
	vb_net_finish(&s->net);
	free(s->memory[A]);
	free(s->memory[B]);
	free(s);
}

void scenario_rule(struct scenario *s, int from, int operation, uint32_t first, uint32_t count,
		   enum vb_verdict verdict)
{
	assert_true(s->rule_count < SCENARIO_RULES);
	s->rule[s->rule_count++] = (struct rule){from, operation, first, count, verdict, 0};
}

/* --- requests ---------------------------------------------------------------------------- */

struct vb_send_wr scenario_wr(struct scenario *s, int from, enum vb_wr_opcode opcode,
			      uint64_t wr_id, uint32_t length, struct vb_sge *sge)
{
	*sge = (struct vb_sge){s->mr[from]->iova + LOCAL_OFFSET, length, s->mr[from]->lkey};
	return (struct vb_send_wr){
		.wr_id = wr_id,
		.sges = sge,
		.num_sge = 1,
		.opcode = opcode,
		.flags = VB_SEND_SIGNALED,
		.imm = 0x01020304,
		.remote_addr = s->mr[!from]->iova + REMOTE_OFFSET,
		.rkey = s->mr[!from]->rkey,
		.ah = s->ah[from],
		.remote_qpn = s->qp[!from]->qpn,
		.remote_qkey = QKEY,
		.remote_srqn = s->srq[!from] ? s->srq[!from]->srqn : 0,
	};
}

void scenario_post(struct scenario *s, int from, const struct vb_send_wr *wr)
{
	assert_int_equal(vb_qp_post_send(s->qp[from], wr), 0);
	vb_node_kick(&s->net.nodes[from]);
}

void scenario_send(struct scenario *s, int from, enum vb_wr_opcode opcode, uint64_t wr_id,
		   uint32_t length)
{
	struct vb_sge sge;
	struct vb_send_wr wr = scenario_wr(s, from, opcode, wr_id, length, &sge);

	scenario_post(s, from, &wr);
}

void scenario_recv(struct scenario *s, int at, uint64_t wr_id, uint32_t length)
{
	const struct vb_sge sge = {s->mr[at]->iova + RECV_OFFSET, length, s->mr[at]->lkey};
	const struct vb_recv_wr wr = {.wr_id = wr_id, .sges = &sge, .num_sge = 1};

	assert_int_equal(
		s->srq[at] ? vb_srq_post(s->srq[at], &wr) : vb_qp_post_recv(s->qp[at], &wr), 0);
	vb_node_kick(&s->net.nodes[at]);
}

/* --- running ----------------------------------------------------------------------------- */

static void poll_both(struct scenario *s)
{
	for (int i = 0; i < 2; i++) {
		struct vb_cqe *out = &s->cqe[i][s->cqe_count[i]];

		s->cqe_count[i] +=
			(uint32_t)vb_cq_poll(s->cq[i], out, (int)(SCENARIO_CQES - s->cqe_count[i]));
		vb_node_kick(&s->net.nodes[i]);
	}
}

void scenario_run_until(struct scenario *s, uint64_t at_ns)
{
	for (int i = 0; i < STEPS_MAX && vb_sim_next(&s->net.sim) <= at_ns; i++)
		if (!vb_sim_step(&s->net.sim))
			break;
	if (s->net.sim.failed)
		fail_msg("%s", s->net.sim.failure);
	poll_both(s);
}

void scenario_run(struct scenario *s)
{
	scenario_run_until(s, UINT64_MAX - 1);
}

void scenario_inject(struct scenario *s, int to, const struct vb_headers *h, const void *payload,
		     uint32_t bytes, const struct in6_addr *src)
{
	uint8_t packet[VB_HEADERS_MAX + VB_MAX_PATH_MTU];
	int used = vb_headers_encode(h, packet, VB_HEADERS_MAX);
	const struct vb_rx rx = {
		.data = packet,
		.size = (size_t)used + bytes + h->pad,
		.src = src ? *src : s->net.nodes[!to].gid,
		.dst = s->net.nodes[to].gid,
	};

	assert_true(used > 0 && bytes + h->pad <= VB_MAX_PATH_MTU);
	if (bytes)
		memcpy(packet + used, payload, bytes);
	memset(packet + used + bytes, 0, h->pad);
	vb_nic_rx(s->net.nodes[to].nic, &rx, s->net.sim.now_ns);
}

/* --- what was seen ----------------------------------------------------------------------- */

uint32_t scenario_count(const struct scenario *s, int from, int operation)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < s->seen_count; i++)
		count += s->seen[i].from == from &&
			 (operation < 0 || (int)s->seen[i].operation == operation);
	return count;
}

const struct seen *scenario_nth(const struct scenario *s, int from, int operation, uint32_t n)
{
	for (uint32_t i = 0; i < s->seen_count; i++)
		if (s->seen[i].from == from &&
		    (operation < 0 || (int)s->seen[i].operation == operation) && n-- == 0)
			return &s->seen[i];
	fail_msg("too few packets of operation %d from %c", operation, 'A' + from);
	return NULL;
}

const struct vb_cqe *scenario_expect(struct scenario *s, int at, uint32_t index, uint64_t wr_id,
				     enum vb_status status)
{
	assert_true(index < s->cqe_count[at]);
	assert_int_equal(s->cqe[at][index].wr_id, wr_id);
	assert_int_equal(s->cqe[at][index].status, status);
	assert_int_equal(s->cqe[at][index].qpn, s->qp[at]->qpn);
	return &s->cqe[at][index];
}

bool scenario_has_event(const struct scenario *s, int at, enum vb_event_type type)
{
	for (uint32_t i = 0; i < s->event_count[at]; i++)
		if (s->event[at][i] == type)
			return true;
	return false;
}

uint64_t scenario_timeout(uint8_t exponent)
{
	return (uint64_t)4096 << exponent;
}
