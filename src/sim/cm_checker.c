/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm_checker.c - which event of a connection manager may come when, and with which content.
 *
 * allowed[] is the table: an event that is not in the set of an end's stage must not come to it.
 * What else must hold of an event is that its cause exists: the message that just arrived, the call
 * that the other side made, the private data that it gave. Messages are looked at as they leave:
 * the repetition of a request is the same to the byte, there are no more of them than was said, and
 * none of a connection that its program has destroyed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/cm_world.h"

#define MS 1000000u

static const char *const event_names[] = {
	"REQ_RECEIVED", "REP_RECEIVED",	     "REJ_RECEIVED",	  "REQ_FAILED",	 "REP_FAILED",
	"ESTABLISHED",	"DREQ_RECEIVED",     "DREP_RECEIVED",	  "DREQ_FAILED", "TIMEWAIT_EXIT",
	"MRA_RECEIVED", "SIDR_REQ_RECEIVED", "SIDR_REP_RECEIVED", "SIDR_FAILED",
};

#define S(name) VB_CM_STAGE_##name

#define E(name) (1u << VB_CM_##name)

/* The events that an end may be told in a stage. */
static const uint32_t allowed[VB_CM_STAGES] = {
	[S(REQ_SENT)] = E(MRA_RECEIVED) | E(REP_RECEIVED) | E(REJ_RECEIVED) | E(REQ_FAILED),
	[S(REQ_MRA_RCVD)] = E(MRA_RECEIVED) | E(REP_RECEIVED) | E(REJ_RECEIVED) | E(REQ_FAILED),
	[S(REP_RCVD)] = E(REJ_RECEIVED),
	[S(REP_MRA_SENT)] = E(REJ_RECEIVED),
	[S(REQ_RCVD)] = E(REJ_RECEIVED),
	[S(REQ_MRA_SENT)] = E(REJ_RECEIVED),
	[S(REP_SENT)] = E(MRA_RECEIVED) | E(ESTABLISHED) | E(REJ_RECEIVED) | E(REP_FAILED) |
			E(DREQ_RECEIVED),
	[S(REP_MRA_RCVD)] = E(MRA_RECEIVED) | E(ESTABLISHED) | E(REJ_RECEIVED) | E(REP_FAILED) |
			    E(DREQ_RECEIVED),
	[S(ESTABLISHED)] = E(REJ_RECEIVED) | E(DREQ_RECEIVED),
	[S(DREQ_SENT)] = E(REJ_RECEIVED) | E(DREP_RECEIVED) | E(DREQ_FAILED),
	[S(OVER)] = E(TIMEWAIT_EXIT),
	[S(SIDR_SENT)] = E(SIDR_REP_RECEIVED) | E(SIDR_FAILED),
};

/* Which may come more than once: the other side may say several times that it takes longer. */
#define REPEATABLE E(MRA_RECEIVED)

static enum vb_cm_stage stage_after(const struct vb_cm_end *end, enum vb_cm_event_type type)
{
	switch (type) {
	case VB_CM_MRA_RECEIVED:
		return end->active ? S(REQ_MRA_RCVD) : S(REP_MRA_RCVD);
	case VB_CM_REP_RECEIVED:
		return S(REP_RCVD);
	case VB_CM_ESTABLISHED:
		return S(ESTABLISHED);
	case VB_CM_DREQ_RECEIVED:
		return S(DREQ_RCVD);
	case VB_CM_REQ_RECEIVED:
	case VB_CM_SIDR_REQ_RECEIVED:
	case VB_CM_REJ_RECEIVED:
	case VB_CM_REQ_FAILED:
	case VB_CM_REP_FAILED:
	case VB_CM_DREP_RECEIVED:
	case VB_CM_DREQ_FAILED:
	case VB_CM_TIMEWAIT_EXIT:
	case VB_CM_SIDR_REP_RECEIVED:
	case VB_CM_SIDR_FAILED:
		break;
	}
	return S(OVER);
}

static bool fail(const struct vb_cm_end *end, const struct vb_cm_event *event, const char *why)
{
	vb_sim_fail(&end->world->net.sim, "%s gets %s in %s: %s", vb_cm_end_name(end),
		    event_names[event->type], vb_cm_stage_name(end->stage), why);
	return false;
}

static struct vb_cm_end *find_end(struct vb_cm_world *world, const struct vb_cm_net_node *node,
				  uint32_t incarnation, uint32_t local_id)
{
	for (uint32_t i = world->end_count; local_id && i--;) {
		struct vb_cm_end *end = &world->ends[i];

		if (end->node == node && end->incarnation == incarnation &&
		    end->local_id == local_id)
			return end;
	}
	return NULL;
}

/* --- content ----------------------------------------------------------------------------- */

static bool is_zero(const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i])
			return false;
	return true;
}

/* The whole field: as the sender gave it, and zero beyond. */
static bool same_field(const struct vb_cm_blob *blob, const void *data, size_t length, size_t field)
{
	const uint8_t *bytes = data;
	size_t given = blob && blob->sent ? blob->length : 0;

	return data && length == field && memcmp(bytes, blob ? blob->bytes : bytes, given) == 0 &&
	       is_zero(bytes + given, field - given);
}

static const size_t field_bytes[VB_CM_KINDS] = {
	[VB_CM_KIND_REQ] = VB_CM_REQ_PRIVATE,
	[VB_CM_KIND_MRA] = VB_CM_MRA_PRIVATE,
	[VB_CM_KIND_REJ] = VB_CM_REJ_PRIVATE,
	[VB_CM_KIND_REP] = VB_CM_REP_PRIVATE,
	[VB_CM_KIND_RTU] = VB_CM_RTU_PRIVATE,
	[VB_CM_KIND_DREQ] = VB_CM_DREQ_PRIVATE,
	[VB_CM_KIND_DREP] = VB_CM_DREP_PRIVATE,
	[VB_CM_KIND_SIDR_REQ] = VB_CM_SIDR_REQ_PRIVATE,
	[VB_CM_KIND_SIDR_REP] = VB_CM_SIDR_REP_PRIVATE,
};

static bool private_of(const struct vb_cm_event *event, const struct vb_cm_end *sender,
		       enum vb_cm_kind kind)
{
	return same_field(sender ? &sender->data[kind] : NULL, event->private_data,
			  event->private_data_len, field_bytes[kind]);
}

static bool private_zero(const struct vb_cm_event *event, enum vb_cm_kind kind)
{
	return same_field(NULL, event->private_data, event->private_data_len, field_bytes[kind]);
}

static bool same_req(const struct vb_cm_req *a, const struct vb_cm_req *b)
{
	return a->service_id == b->service_id && a->qpn == b->qpn && a->psn == b->psn &&
	       a->qkey == b->qkey && a->transport == b->transport &&
	       a->responder_resources == b->responder_resources &&
	       a->initiator_depth == b->initiator_depth && a->flow_control == b->flow_control &&
	       a->srq == b->srq && a->retry_count == b->retry_count &&
	       a->rnr_retry_count == b->rnr_retry_count && a->pkey == b->pkey &&
	       a->path_mtu == b->path_mtu && a->ack_timeout == b->ack_timeout &&
	       a->remote_cm_timeout == b->remote_cm_timeout &&
	       a->local_cm_timeout == b->local_cm_timeout &&
	       a->max_cm_retries == b->max_cm_retries &&
	       memcmp(&a->sgid, &b->sgid, sizeof(a->sgid)) == 0 &&
	       memcmp(&a->dgid, &b->dgid, sizeof(a->dgid)) == 0 && a->flow_label == b->flow_label &&
	       a->traffic_class == b->traffic_class && a->hop_limit == b->hop_limit &&
	       a->sl == b->sl;
}

static bool same_rep(const struct vb_cm_rep *a, const struct vb_cm_rep *b)
{
	return a->qpn == b->qpn && a->psn == b->psn && a->qkey == b->qkey &&
	       a->responder_resources == b->responder_resources &&
	       a->initiator_depth == b->initiator_depth && a->flow_control == b->flow_control &&
	       a->srq == b->srq && a->rnr_retry_count == b->rnr_retry_count &&
	       a->target_ack_delay == b->target_ack_delay &&
	       a->failover_accepted == b->failover_accepted;
}

/* --- a request arrives ------------------------------------------------------------------- */

static bool service_takes(const struct vb_cm_service *service, const struct vb_cm_end *from)
{
	uint32_t index;

	if (!service->listener || service->id != from->req.service_id)
		return false;
	if (!service->match.len)
		return true;
	index = from->service;
	return index < VB_CM_SERVICES && index == (service->match.ip_version == 4 ? 1u : 2u);
}

void vb_cm_check_arrival(void *env, const struct vb_cm_mad *mad)
{
	struct vb_cm_world *world = env;
	struct vb_cm_end *from;
	bool taken = false;

	if (mad->kind != VB_CM_KIND_REQ && mad->kind != VB_CM_KIND_SIDR_REQ)
		return;
	from = find_end(world, mad->from, mad->incarnation, mad->local_id);
	if (!from)
		return;
	for (uint32_t i = 0; i < VB_CM_SERVICES; i++)
		taken |= service_takes(&world->services[mad->to->index][i], from);
	from->met_nobody |= !taken;
}

/* Nobody may be asked twice while the first question is open. */
static bool is_asked_twice(struct vb_cm_world *world, const struct vb_cm_net_node *node,
			   const struct vb_cm_end *from)
{
	for (uint32_t i = 0; i < world->end_count; i++) {
		const struct vb_cm_end *other = &world->ends[i];

		if (!other->active && other->node == node &&
		    other->incarnation == node->incarnation && other->peer == from &&
		    other->stage < VB_CM_STAGE_OVER)
			return true;
	}
	return false;
}

static const char *judge_request(struct vb_cm_world *world, struct vb_cm_net_node *node,
				 const struct vb_cm_event *event, const struct vb_cm_end *from)
{
	bool sidr = event->type == VB_CM_SIDR_REQ_RECEIVED;
	enum vb_cm_kind kind = sidr ? VB_CM_KIND_SIDR_REQ : VB_CM_KIND_REQ;
	const struct vb_cm_service *service;

	if (!world->net.arriving || world->net.arriving->kind != kind || !from)
		return "there is no such message";
	if (is_asked_twice(world, node, from))
		return "it was asked before";
	if (!event->listener)
		return "no listener is named";
	service = vb_cm_listener_user(event->listener);
	if (service->listener != event->listener || !service_takes(service, from))
		return "this listener does not take it";
	if (!event->path ||
	    memcmp(&event->path->ah.dgid, &from->node->gid, sizeof(from->node->gid)) != 0 ||
	    event->path->ah.sgid_index != 1)
		return "the way back is wrong";
	if (!private_of(event, from, kind))
		return "wrong private data";
	if (sidr)
		return event->sidr_req->service_id == from->sidr_req.service_id &&
				       event->sidr_req->pkey == from->sidr_req.pkey
			       ? NULL
			       : "wrong content";
	if (!same_req(event->req, &from->req) || event->req->ca_guid != from->node->config.ca_guid)
		return "wrong content";
	return NULL;
}

static bool on_request(struct vb_cm_world *world, struct vb_cm_net_node *node,
		       const struct vb_cm_event *event)
{
	const struct vb_cm_mad *mad = world->net.arriving;
	struct vb_cm_end *from =
		mad ? find_end(world, mad->from, mad->incarnation, mad->local_id) : NULL;
	const char *why = judge_request(world, node, event, from);
	struct vb_cm_end *end;

	if (why)
		vb_sim_fail(&world->net.sim, "%c gets %s: %s", 'A' + node->index,
			    event_names[event->type], why);
	if (why || !(end = vb_cm_end_create(world, node)))
		return false;
	end->conn = event->conn;
	end->remote = from->node;
	end->remote_incarnation = mad->incarnation;
	end->peer = from;
	end->sidr = from->sidr;
	end->req = from->req;
	from->passives++;
	vb_cm_conn_set_user(event->conn, end);
	vb_cm_end_move(end, end->sidr ? VB_CM_STAGE_SIDR_RCVD : VB_CM_STAGE_REQ_RCVD);
	if (vb_cm_program_told(end, event))
		return true;
	from->met_refusal |= !*event->later;
	world->stats.refused++;
	end->conn = NULL;
	vb_cm_end_move(end, VB_CM_STAGE_GONE);
	return false;
}

/* --- other events ------------------------------------------------------------------------ */

/* The end that sent the message which is arriving, if it is of this kind. */
static struct vb_cm_end *sender_of(struct vb_cm_world *world, enum vb_cm_kind kind)
{
	const struct vb_cm_mad *mad = world->net.arriving;

	return mad && mad->kind == kind
		       ? find_end(world, mad->from, mad->incarnation, mad->local_id)
		       : NULL;
}

static bool arrives(const struct vb_cm_world *world, enum vb_cm_kind kind)
{
	return world->net.arriving && world->net.arriving->kind == kind;
}

static bool has_left(const struct vb_cm_end *end)
{
	return end->remote->incarnation != end->remote_incarnation || !end->remote->cm;
}

/* A passive end of this active one, or this end's peer, has done with it already. */
static bool other_is_gone(const struct vb_cm_end *end)
{
	const struct vb_cm_world *world = end->world;

	if (!end->active)
		return end->peer->stage >= VB_CM_STAGE_DREQ_SENT || end->peer->peer != end ||
		       end->peer->says_no;
	for (uint32_t i = 0; i < world->end_count; i++)
		if (!world->ends[i].active && world->ends[i].peer == end &&
		    world->ends[i].stage >= VB_CM_STAGE_OVER)
			return true;
	return false;
}

static const char *judge_rep(struct vb_cm_end *end, const struct vb_cm_event *event)
{
	struct vb_cm_end *from = sender_of(end->world, VB_CM_KIND_REP);

	if (!from || from->active || from->peer != end || !from->data[VB_CM_KIND_REP].sent)
		return "nobody answered";
	if (!same_rep(event->rep, &from->rep) || event->rep->ca_guid != from->node->config.ca_guid)
		return "wrong content";
	if (!private_of(event, from, VB_CM_KIND_REP))
		return "wrong private data";
	end->peer = from;
	return NULL;
}

/* A program's own refusal: which end's it was, the message need not say. */
static bool is_said_by(const struct vb_cm_end *from, const struct vb_cm_event *event)
{
	return from->data[VB_CM_KIND_REJ].sent && private_of(event, from, VB_CM_KIND_REJ) &&
	       event->rej->ari_len == from->ari.length &&
	       memcmp(event->rej->ari, from->ari.bytes, from->ari.length) == 0;
}

static const char *judge_consumer_rej(const struct vb_cm_end *end, const struct vb_cm_event *event)
{
	const struct vb_cm_world *world = end->world;

	if (end->peer && is_said_by(end->peer, event))
		return NULL;
	for (uint32_t i = 0; i < world->end_count; i++)
		if (!world->ends[i].active && world->ends[i].peer == end &&
		    is_said_by(&world->ends[i], event))
			return NULL;
	if (!has_left(end) && !other_is_gone(end))
		return "nobody refused";
	return private_zero(event, VB_CM_KIND_REJ) && !event->rej->ari_len ? NULL : "wrong content";
}

static const char *judge_rej(struct vb_cm_end *end, const struct vb_cm_event *event)
{
	struct vb_cm_world *world = end->world;
	bool excused = has_left(end) || other_is_gone(end);
	/* Somebody has used a queue pair of one of the two before. */
	bool back =
		end->incarnation || end->remote->incarnation || end->tries_left < VB_CM_WORLD_TRIES;

	/* A REP from a queue pair that we still hold for connected is refused by our own side. */
	if (!arrives(world, VB_CM_KIND_REJ))
		return event->rej->reason == VB_CM_REJ_STALE_CONN && back &&
				       arrives(world, VB_CM_KIND_REP)
			       ? NULL
			       : "there is no such message";
	switch (event->rej->reason) {
	case VB_CM_REJ_CONSUMER_DEFINED:
		return judge_consumer_rej(end, event);
	case VB_CM_REJ_INVALID_SERVICE_ID:
		return end->met_nobody ? NULL : "there is a listener";
	case VB_CM_REJ_NO_RESOURCES:
		return end->met_refusal ? NULL : "nobody lacks anything";
	case VB_CM_REJ_STALE_CONN:
		world->stats.stale++;
		return back || excused ? NULL : "nobody has come back";
	default:
		return excused || !world->gentle ? NULL : "for no reason";
	}
}

static const char *judge_established(struct vb_cm_end *end, const struct vb_cm_event *event)
{
	if (end->peer->peer != end || !end->peer->data[VB_CM_KIND_RTU].sent)
		return "the other side did not agree";
	if (end->world->calling == end)
		return event->private_data ? "there is no message" : NULL;
	if (!arrives(end->world, VB_CM_KIND_RTU))
		return "there is no such message";
	return private_of(event, end->peer, VB_CM_KIND_RTU) ? NULL : "wrong private data";
}

static const char *judge_dreq(struct vb_cm_end *end, const struct vb_cm_event *event)
{
	const struct vb_cm_end *peer = end->peer;

	if (!arrives(end->world, VB_CM_KIND_DREQ))
		return "there is no such message";
	if (!peer->data[VB_CM_KIND_DREQ].sent && peer->stage != VB_CM_STAGE_GONE &&
	    !peer->taken_for_stale)
		return "nobody disconnected";
	return private_of(event, peer, VB_CM_KIND_DREQ) || private_zero(event, VB_CM_KIND_DREQ)
		       ? NULL
		       : "wrong private data";
}

/* Once our DREQ is answered, the other side knows of the end, whatever it knew before. */
static const char *judge_drep(struct vb_cm_end *end, const struct vb_cm_event *event)
{
	const struct vb_cm_end *peer = end->peer;

	if (peer->peer == end && peer->stage != VB_CM_STAGE_DREQ_RCVD &&
	    peer->stage != VB_CM_STAGE_DREQ_SENT && peer->stage < VB_CM_STAGE_OVER)
		return "the other side does not know";
	if (!arrives(end->world, VB_CM_KIND_DREP))
		return event->private_data || (end->world->calling != end &&
					       !arrives(end->world, VB_CM_KIND_DREQ))
			       ? "there is no such message"
			       : NULL;
	/* A program that disconnects when it is told of our DREQ answers with what it wanted to
	 * say itself; a manager without a program has nothing to say. */
	return private_of(event, peer, VB_CM_KIND_DREP) ||
			       same_field(&peer->data[VB_CM_KIND_DREQ], event->private_data,
					  event->private_data_len, VB_CM_DREP_PRIVATE) ||
			       private_zero(event, VB_CM_KIND_DREP)
		       ? NULL
		       : "wrong private data";
}

static const char *judge_failure(const struct vb_cm_end *end, const struct vb_cm_event *event)
{
	bool excused = has_left(end) || (event->type != VB_CM_DREQ_FAILED && other_is_gone(end));

	if (event->private_data || event->private_data_len)
		return "there is no message";
	if (end->world->quiet && end->active)
		excused = false;
	return end->world->gentle && !excused ? "the network was good enough" : NULL;
}

static const char *judge_mra(struct vb_cm_end *end, const struct vb_cm_event *event)
{
	const struct vb_cm_end *from = sender_of(end->world, VB_CM_KIND_MRA);

	if (!from || (from->peer != end && end->peer != from))
		return "there is no such message";
	/* The program's own, or its manager's when the question came again before the answer. */
	return private_of(event, from, VB_CM_KIND_MRA) || private_zero(event, VB_CM_KIND_MRA)
		       ? NULL
		       : "wrong private data";
}

static bool is_answered_by(const struct vb_cm_end *from, const struct vb_cm_event *event)
{
	const struct vb_cm_sidr_rep *rep = event->sidr_rep;

	return from->data[VB_CM_KIND_SIDR_REP].sent && from->sidr_rep.qpn == rep->qpn &&
	       from->sidr_rep.status == rep->status && from->sidr_rep.qkey == rep->qkey &&
	       private_of(event, from, VB_CM_KIND_SIDR_REP);
}

static const char *judge_sidr(struct vb_cm_end *end, const struct vb_cm_event *event)
{
	const struct vb_cm_sidr_rep *rep = event->sidr_rep;
	struct vb_cm_world *world = end->world;

	if (!arrives(world, VB_CM_KIND_SIDR_REP))
		return "there is no such message";
	for (uint32_t i = 0; i < world->end_count; i++)
		if (!world->ends[i].active && world->ends[i].peer == end &&
		    is_answered_by(&world->ends[i], event))
			return NULL;
	if (rep->status == VB_CM_SIDR_VALID)
		return "nobody answered so";
	if (!private_zero(event, VB_CM_KIND_SIDR_REP))
		return "wrong private data";
	if (!end->met_nobody && !end->met_refusal && !other_is_gone(end))
		return "there is a listener";
	return NULL;
}

static const char *judge(struct vb_cm_end *end, const struct vb_cm_event *event)
{
	switch (event->type) {
	case VB_CM_REP_RECEIVED:
		return judge_rep(end, event);
	case VB_CM_REJ_RECEIVED:
		return judge_rej(end, event);
	case VB_CM_REQ_FAILED:
	case VB_CM_REP_FAILED:
	case VB_CM_DREQ_FAILED:
	case VB_CM_SIDR_FAILED:
		return judge_failure(end, event);
	case VB_CM_ESTABLISHED:
		return judge_established(end, event);
	case VB_CM_DREQ_RECEIVED:
		return judge_dreq(end, event);
	case VB_CM_DREP_RECEIVED:
		return judge_drep(end, event);
	case VB_CM_TIMEWAIT_EXIT:
		return event->private_data ? "there is no message"
		       : end->world->net.sim.now_ns - end->since_ns <
				       vb_cm_time(end->req.ack_timeout)
			       ? "packets may be under way"
			       : NULL;
	case VB_CM_MRA_RECEIVED:
		return judge_mra(end, event);
	case VB_CM_SIDR_REP_RECEIVED:
		return judge_sidr(end, event);
	case VB_CM_REQ_RECEIVED:
	case VB_CM_SIDR_REQ_RECEIVED:
		break;
	}
	return "it belongs to nobody yet";
}

static void count(struct vb_cm_end *end, const struct vb_cm_event *event)
{
	struct vb_cm_world_stats *stats = &end->world->stats;

	stats->established += event->type == VB_CM_ESTABLISHED;
	stats->rejected += event->type == VB_CM_REJ_RECEIVED;
	stats->failed += event->type == VB_CM_REQ_FAILED || event->type == VB_CM_REP_FAILED;
	stats->disconnected += event->type == VB_CM_DREQ_RECEIVED;
	stats->dreq_failed += event->type == VB_CM_DREQ_FAILED;
	stats->sidr_answers += event->type == VB_CM_SIDR_REP_RECEIVED;
	stats->sidr_failed += event->type == VB_CM_SIDR_FAILED;
}

/* How long the peer says that it takes (IBTA 12.6.6). */
static uint64_t mra_time(const struct vb_cm_mad *mad)
{
	return vb_cm_time(mad->bytes[VB_MAD_HEADER_BYTES + 9] >> 3);
}

/* What follows for the model. */
static void take(struct vb_cm_end *end, const struct vb_cm_event *event)
{
	uint64_t left = end->limit_ns ? end->limit_ns - end->world->net.sim.now_ns : 0;
	const struct vb_cm_mad *mad = end->world->net.arriving;

	vb_cm_end_move(end, stage_after(end, event->type));
	switch (event->type) {
	case VB_CM_MRA_RECEIVED:
		vb_cm_check_limit(end,
				  left + (end->req.max_cm_retries + 2ull) * (mra_time(mad) + MS));
		break;
	case VB_CM_DREP_RECEIVED:
	case VB_CM_DREQ_FAILED:
		end->timewait_due = true;
		break;
	case VB_CM_TIMEWAIT_EXIT:
		end->timewait_due = false;
		break;
	case VB_CM_REQ_RECEIVED:
	case VB_CM_REP_RECEIVED:
	case VB_CM_REJ_RECEIVED:
	case VB_CM_REQ_FAILED:
	case VB_CM_REP_FAILED:
	case VB_CM_ESTABLISHED:
	case VB_CM_DREQ_RECEIVED:
	case VB_CM_SIDR_REQ_RECEIVED:
	case VB_CM_SIDR_REP_RECEIVED:
	case VB_CM_SIDR_FAILED:
		break;
	}
}

bool vb_cm_check_event(void *env, struct vb_cm_net_node *node, const struct vb_cm_event *event)
{
	struct vb_cm_world *world = env;
	struct vb_cm_end *end;
	const char *why;

	vb_sim_mix(&world->net.sim, 0x300 + event->type, node->index, 0);
	if (event->type == VB_CM_REQ_RECEIVED || event->type == VB_CM_SIDR_REQ_RECEIVED)
		return on_request(world, node, event);
	end = vb_cm_conn_user(event->conn);
	if (!end) {
		vb_sim_fail(&world->net.sim, "%c gets %s of nobody", 'A' + node->index,
			    event_names[event->type]);
		return false;
	}
	vb_sim_say(&world->net.sim, "%s gets %s", vb_cm_end_name(end), event_names[event->type]);
	if (end->conn != event->conn)
		return fail(end, event, "the connection is destroyed");
	if (!(allowed[end->stage] >> event->type & 1) ||
	    (end->seen[event->type]++ && !(REPEATABLE >> event->type & 1)))
		return fail(end, event, "it has no place there");
	why = judge(end, event);
	if (why)
		return fail(end, event, why);
	count(end, event);
	take(end, event);
	return vb_cm_program_told(end, event);
}

static void limit(void *object, uint64_t word, void *data)
{
	struct vb_cm_end *end = object;

	if (end->limit_ns == word && end->stage != VB_CM_STAGE_GONE)
		vb_sim_fail(&end->world->net.sim, "%s still waits in %s since %.3f us",
			    vb_cm_end_name(end), vb_cm_stage_name(end->stage),
			    (double)end->since_ns / 1e3);
}

void vb_cm_check_limit(struct vb_cm_end *end, uint64_t span_ns)
{
	struct vb_sim *sim = &end->world->net.sim;

	end->limit_ns = sim->now_ns + span_ns;
	vb_sim_at(sim, end->limit_ns, limit, end, end->limit_ns, NULL);
}

/* --- messages as they leave -------------------------------------------------------------- */

static bool is_repeated(enum vb_cm_kind kind)
{
	return kind == VB_CM_KIND_REQ || kind == VB_CM_KIND_REP || kind == VB_CM_KIND_DREQ ||
	       kind == VB_CM_KIND_SIDR_REQ || kind == VB_CM_KIND_RTU;
}

/* Who sends its first message: the end whose call this is, or one whose program has not answered
 * yet while the question came again. */
static struct vb_cm_end *newcomer(struct vb_cm_world *world, const struct vb_cm_mad *mad)
{
	const struct vb_cm_mad *question = world->net.arriving;
	struct vb_cm_end *from;

	if (world->calling || mad->kind != VB_CM_KIND_MRA || !arrives(world, VB_CM_KIND_REQ))
		return world->calling;
	from = find_end(world, question->from, question->incarnation, question->local_id);
	for (uint32_t i = 0; from && i < world->end_count; i++)
		if (world->ends[i].node == mad->from && world->ends[i].peer == from &&
		    world->ends[i].stage == VB_CM_STAGE_REQ_RCVD)
			return &world->ends[i];
	return NULL;
}

/* The first message of an end shows its communication ID, which nobody else of the node may have,
 * nor have had while packets of that connection may be under way. */
static struct vb_cm_end *learn_id(struct vb_cm_world *world, const struct vb_cm_mad *mad)
{
	struct vb_cm_end *end = newcomer(world, mad), *other;
	const struct vb_cm_config *config = &mad->from->config;

	other = find_end(world, mad->from, mad->incarnation, mad->local_id);
	if (!end || end->local_id || !mad->local_id)
		return other;
	if (other && (other->stage != VB_CM_STAGE_GONE ||
		      (other->was_established && world->net.sim.now_ns - other->since_ns <
							 vb_cm_time(other->req.ack_timeout))))
		vb_sim_fail(&world->net.sim, "%s has the communication ID %#" PRIx32 " of %s",
			    vb_cm_end_name(end), mad->local_id, vb_cm_end_name(other));
	if (mad->local_id >> config->id_bits != config->id_base >> config->id_bits)
		vb_sim_fail(&world->net.sim, "%s has the communication ID %#" PRIx32,
			    vb_cm_end_name(end), mad->local_id);
	end->local_id = mad->local_id;
	return end;
}

static uint32_t qpn_of(const struct vb_cm_end *end)
{
	return end->active ? end->req.qpn : end->rep.qpn;
}

/* A manager ends a connection of its own accord when the queue pair at its other end wants another
 * one: the peer has come back, or a message from before this connection was still under way. */
static void on_own_dreq(struct vb_cm_end *end)
{
	struct vb_cm_world *world = end->world;
	const struct vb_cm_mad *mad = world->net.arriving;
	const struct vb_cm_end *from =
		mad ? find_end(world, mad->from, mad->incarnation, mad->local_id) : NULL;

	if (!from || from == end->peer || from->node != end->peer->node ||
	    qpn_of(from) != qpn_of(end->peer))
		vb_sim_fail(&world->net.sim, "%s disconnects by itself", vb_cm_end_name(end));
	end->taken_for_stale = true;
	vb_cm_end_move(end, VB_CM_STAGE_DREQ_SENT);
}

void vb_cm_check_sent(void *env, const struct vb_cm_mad *mad, enum vb_cm_fate fate)
{
	struct vb_cm_world *world = env;
	struct vb_cm_end *end;
	uint32_t most = UINT32_MAX;

	if (mad->kind == VB_CM_KIND_SIDR_REP)
		return; /* has no ID of its own */
	end = learn_id(world, mad);
	if (!end || !is_repeated(mad->kind))
		return;
	if (mad->kind == VB_CM_KIND_DREQ && world->calling != end &&
	    end->stage == VB_CM_STAGE_ESTABLISHED)
		on_own_dreq(end);
	if (!end->sent[mad->kind]++)
		memcpy(end->first[mad->kind], mad->bytes, VB_MAD_BYTES);
	else if (memcmp(end->first[mad->kind], mad->bytes, VB_MAD_BYTES) != 0)
		vb_sim_fail(&world->net.sim, "%s repeats its %s differently", vb_cm_end_name(end),
			    vb_cm_kind_name(mad->kind));
	if (mad->kind == VB_CM_KIND_REQ || mad->kind == VB_CM_KIND_DREQ ||
	    mad->kind == VB_CM_KIND_SIDR_REQ)
		most = 1u + end->req.max_cm_retries;
	if (end->sent[mad->kind] > most)
		vb_sim_fail(&world->net.sim, "%s sends its %s %" PRIu32 " times",
			    vb_cm_end_name(end), vb_cm_kind_name(mad->kind), end->sent[mad->kind]);
	if (end->stage == VB_CM_STAGE_GONE && world->calling != end && !mad->from->ends &&
	    mad->kind != VB_CM_KIND_RTU)
		vb_sim_fail(&world->net.sim, "%s is destroyed and sends a %s", vb_cm_end_name(end),
			    vb_cm_kind_name(mad->kind));
}

/* --- a manager after each call into it --------------------------------------------------- */

void vb_cm_check_node(void *env, struct vb_cm_net_node *node)
{
	struct vb_cm_world *world = env;
	struct vb_cm_counters counters;
	uint32_t alive = 0, listeners = 0;

	for (uint32_t i = 0; i < world->end_count; i++)
		alive += world->ends[i].node == node && world->ends[i].conn != NULL;
	for (uint32_t i = 0; i < VB_CM_SERVICES; i++)
		listeners += world->services[node->index][i].listener != NULL;
	vb_cm_read_counters(node->cm, &counters);
	if (counters.connections != alive || counters.listeners != listeners)
		vb_sim_fail(&world->net.sim,
			    "%c counts %" PRIu32 " connections and %" PRIu32
			    " listeners instead of %" PRIu32 " and %" PRIu32,
			    'A' + node->index, counters.connections, counters.listeners, alive,
			    listeners);
	if (counters.rx_messages != node->rx || counters.tx_messages != node->tx)
		vb_sim_fail(&world->net.sim,
			    "%c counts %" PRIu64 " messages in and %" PRIu64
			    " out instead of %" PRIu64 " and %" PRIu64,
			    'A' + node->index, counters.rx_messages, counters.tx_messages, node->rx,
			    node->tx);
}

void vb_cm_check_end(struct vb_cm_world *world)
{
	struct vb_sim *sim = &world->net.sim;

	for (uint32_t i = 0; i < world->end_count; i++)
		if (world->ends[i].stage != VB_CM_STAGE_GONE)
			vb_sim_fail(sim, "%s is left in %s", vb_cm_end_name(&world->ends[i]),
				    vb_cm_stage_name(world->ends[i].stage));
	for (uint32_t i = 0; i < world->net.node_count; i++) {
		struct vb_cm_net_node *node = &world->net.nodes[i];
		struct vb_cm_counters c;

		if (!node->cm)
			continue;
		vb_cm_read_counters(node->cm, &c);
		if (c.connections || c.listeners || c.timewaits)
			vb_sim_fail(sim,
				    "%c is left with %" PRIu32 " connections, %" PRIu32
				    " listeners, %" PRIu32 " timewaits",
				    'A' + i, c.connections, c.listeners, c.timewaits);
		if (c.rx_malformed)
			vb_sim_fail(sim, "%c found %" PRIu64 " messages malformed", 'A' + i,
				    c.rx_malformed);
		if (vb_cm_deadline(node->cm) != UINT64_MAX)
			vb_sim_fail(sim, "%c is left with a timer", 'A' + i);
		world->stats.retries += c.retries;
		world->stats.duplicates += c.duplicates;
	}
}
