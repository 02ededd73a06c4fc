/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm_program.c - what the programs on a simulated network do with their connection managers.
 *
 * An end draws its habits when it is made and reacts to what it is told some time later, by an
 * event of the simulation: a callback may not call back. By then things may have changed; an act
 * that the end's stage no longer has a place for is not done, or, as a wrong call, done on purpose
 * and must be refused without a trace.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "cm/ip.h"
#include "sim/cm_world.h"

enum act {
	ACT_CONNECT,
	ACT_MRA,
	ACT_ANSWER, /* a REQ or SIDR_REQ: yes or no */
	ACT_RTU,    /* or REJ */
	ACT_TRAFFIC,
	ACT_DISCONNECT,
	ACT_DREP,
	ACT_DESTROY,
	ACT_WRONG,
};

#define MS 1000000u

static struct vb_rng *rng_of(const struct vb_cm_world *world)
{
	return (struct vb_rng *)&world->net.sim.rng;
}

static uint64_t between(struct vb_cm_world *world, uint64_t low, uint64_t high)
{
	return vb_rng_between(rng_of(world), low, high);
}

static bool chance(struct vb_cm_world *world, uint32_t per_million)
{
	return vb_rng_chance(rng_of(world), per_million);
}

static void act(void *object, uint64_t word, void *data);

static void later(struct vb_cm_end *end, uint64_t after_ns, enum act what)
{
	struct vb_sim *sim = &end->world->net.sim;

	vb_sim_at(sim, sim->now_ns + after_ns, act, end, what, NULL);
}

/* --- what is drawn ----------------------------------------------------------------------- */

static void fill(struct vb_cm_world *world, uint8_t *at, size_t length)
{
	for (size_t i = 0; i < length; i++)
		at[i] = (uint8_t)vb_rng_next(rng_of(world));
}

static struct vb_cm_blob *draw_blob(struct vb_cm_end *end, enum vb_cm_kind kind, uint32_t most)
{
	struct vb_cm_blob *blob = &end->data[kind];
	struct vb_cm_world *world = end->world;

	if (blob->sent) /* a call that was refused before drew it */
		return blob;
	blob->length = (uint16_t)(chance(world, 150000)	  ? 0
				  : chance(world, 150000) ? most
							  : between(world, 1, most));
	fill(world, blob->bytes, blob->length);
	blob->sent = true;
	return blob;
}

/* A time that a good program takes for an answer, or any. */
static uint64_t draw_delay(struct vb_cm_world *world, uint8_t exponent)
{
	uint64_t time = vb_cm_time(exponent);

	if (chance(world, 300000))
		return 0;
	return between(world, 0, world->gentle ? time / 8 : time * (chance(world, 200000) ? 3 : 1));
}

static uint8_t draw_timeout(struct vb_cm_world *world)
{
	return (uint8_t)between(world, world->timeout_low, world->timeout_high);
}

static void draw_habits(struct vb_cm_end *end, uint8_t own_timeout)
{
	struct vb_cm_world *world = end->world;

	end->answer_ns = draw_delay(world, own_timeout);
	end->drep_ns = draw_delay(world, world->timeout_low);
	end->hold_ns = chance(world, 400000)   ? UINT64_MAX
		       : chance(world, 200000) ? 0
					       : between(world, 0, 60 * MS);
	end->says_mra = chance(world, world->options.plan ? 500000 : 200000);
	end->service_timeout = (uint8_t)(world->gentle ? own_timeout + 4 : own_timeout + 2);
	if (end->says_mra)
		end->answer_ns = between(world, MS / 100, 2 * vb_cm_time(own_timeout));
	end->says_no = chance(world, 150000);
	end->sees_traffic = chance(world, 200000);
	end->keeps = chance(world, 500000);
	if (!world->quiet && chance(world, 200000))
		later(end, between(world, 0, 3 * vb_cm_time(own_timeout)), ACT_DESTROY);
	if (!world->options.plan && chance(world, 300000))
		for (uint32_t i = 0; i < 4; i++)
			later(end, between(world, 0, 3 * vb_cm_time(own_timeout)), ACT_WRONG);
}

static void draw_req(struct vb_cm_end *end)
{
	struct vb_cm_world *world = end->world;
	struct vb_rng *rng = rng_of(world);

	end->req = (struct vb_cm_req){
		.service_id = vb_cm_service_id(0x0106, end->service == 0		  ? 7000
						       : end->service == VB_CM_NO_SERVICE ? 7002
											  : 7001),
		.qpn = ++world->next_qpn[end->node->index],
		.psn = (uint32_t)vb_rng_next(rng) & 0xffffff,
		.qkey = (uint32_t)vb_rng_next(rng),
		.transport = chance(world, 300000) ? VB_CM_UC : VB_CM_RC,
		.responder_resources = (uint8_t)vb_rng_next(rng),
		.initiator_depth = (uint8_t)vb_rng_next(rng),
		.flow_control = chance(world, 500000),
		.srq = chance(world, 500000),
		.retry_count = (uint8_t)vb_rng_below(rng, 8),
		.rnr_retry_count = (uint8_t)vb_rng_below(rng, 8),
		.pkey = 0xffff,
		.path_mtu = (uint16_t)(256u << vb_rng_below(rng, 5)),
		.ack_timeout = (uint8_t)between(world, 5, 14),
		.remote_cm_timeout = draw_timeout(world),
		.local_cm_timeout = draw_timeout(world),
		.max_cm_retries = world->gentle ? 15 : (uint8_t)vb_rng_below(rng, 16),
		.sgid = end->node->gid,
		.dgid = end->remote->gid,
		.flow_label = (uint32_t)vb_rng_next(rng) & 0xfffff,
		.traffic_class = (uint8_t)vb_rng_next(rng),
		.hop_limit = (uint8_t)between(world, 1, 255),
		.sl = (uint8_t)vb_rng_below(rng, 8),
	};
}

/* Where the service has an address, the message begins with it (IBTA annex A11). */
static void draw_ip_header(struct vb_cm_end *end, struct vb_cm_blob *blob)
{
	struct vb_cm_ip ip = {.source_port = 40000, .source = end->node->gid};
	bool known = end->service != VB_CM_NO_ADDRESS;
	uint32_t like = known ? end->service : 1 + vb_rng_below(rng_of(end->world), 2);

	if (end->service == 0 || end->service == VB_CM_NO_SERVICE)
		return;
	ip.ipv4 = like == 1;
	memcpy(&ip.destination, end->world->services[end->remote->index][like].match.bytes, 16);
	if (!known)
		ip.destination.s6_addr[15] ^= 0x80;
	blob->length = VB_MAX(blob->length, (uint16_t)VB_CM_IP_HEADER_BYTES);
	vb_cm_ip_encode(&ip, blob->bytes);
}

/* --- calls, as a program makes them ------------------------------------------------------ */

static void begin_call(struct vb_cm_end *end)
{
	VB_ASSERT(end->conn && !end->node->inside);
	end->world->calling = end;
}

/* The call must have had this result. */
static bool end_call(struct vb_cm_end *end, const char *call, int result, int wanted)
{
	struct vb_cm_world *world = end->world;

	world->calling = NULL;
	vb_sim_mix(&world->net.sim, 0x200, end->index, (uint64_t)-result);
	if (result != wanted)
		vb_sim_fail(&world->net.sim, "%s: %s is %d instead of %d", vb_cm_end_name(end),
			    call, result, wanted);
	else
		vb_cm_net_entered(end->node);
	return !world->net.sim.failed;
}

static uint64_t answer_limit(const struct vb_cm_end *end, uint8_t timeout, uint8_t retries)
{
	return (retries + 2ull) * (vb_cm_time(timeout) + 4 * vb_cm_time(end->req.ack_timeout) +
				   end->world->net.run_delay_ns + MS);
}

static void ask(struct vb_cm_end *end)
{
	const struct vb_cm_path path = vb_cm_net_path(end->node, end->remote);
	struct vb_cm_blob *blob = draw_blob(end, VB_CM_KIND_REQ, VB_CM_REQ_PRIVATE);
	int result;

	draw_ip_header(end, blob);
	end->req.private_data = blob->bytes;
	end->req.private_data_len = blob->length;
	begin_call(end);
	vb_cm_end_move(end, VB_CM_STAGE_REQ_SENT);
	vb_cm_check_limit(end,
			  answer_limit(end, end->req.remote_cm_timeout, end->req.max_cm_retries));
	result = vb_cm_send_req(end->conn, &path, &end->req, end->world->net.sim.now_ns);
	end_call(end, "send_req", result, 0);
}

static void ask_sidr(struct vb_cm_end *end)
{
	const struct vb_cm_path path = vb_cm_net_path(end->node, end->remote);
	struct vb_cm_blob *blob = draw_blob(end, VB_CM_KIND_SIDR_REQ, VB_CM_SIDR_REQ_PRIVATE);
	int result;

	draw_ip_header(end, blob);
	end->sidr_req = (struct vb_cm_sidr_req){
		.service_id = end->req.service_id,
		.pkey = end->req.pkey,
		.timeout = end->req.remote_cm_timeout,
		.max_retries = end->req.max_cm_retries,
		.private_data = blob->bytes,
		.private_data_len = blob->length,
	};
	begin_call(end);
	vb_cm_end_move(end, VB_CM_STAGE_SIDR_SENT);
	vb_cm_check_limit(end, answer_limit(end, end->sidr_req.timeout, end->sidr_req.max_retries));
	result = vb_cm_send_sidr_req(end->conn, &path, &end->sidr_req, end->world->net.sim.now_ns);
	end_call(end, "send_sidr_req", result, 0);
}

static void accept_req(struct vb_cm_end *end)
{
	struct vb_cm_world *world = end->world;
	struct vb_rng *rng = rng_of(world);
	struct vb_cm_blob *blob = draw_blob(end, VB_CM_KIND_REP, VB_CM_REP_PRIVATE);
	int result;

	end->rep = (struct vb_cm_rep){
		.qpn = ++world->next_qpn[end->node->index],
		.psn = (uint32_t)vb_rng_next(rng) & 0xffffff,
		.qkey = (uint32_t)vb_rng_next(rng),
		.responder_resources = (uint8_t)vb_rng_next(rng),
		.initiator_depth = (uint8_t)vb_rng_next(rng),
		.flow_control = chance(world, 500000),
		.srq = chance(world, 500000),
		.rnr_retry_count = (uint8_t)vb_rng_below(rng, 8),
		.target_ack_delay = (uint8_t)vb_rng_below(rng, 12),
		.failover_accepted = 1,
		.private_data = blob->bytes,
		.private_data_len = blob->length,
	};
	begin_call(end);
	vb_cm_end_move(end, VB_CM_STAGE_REP_SENT);
	vb_cm_check_limit(end,
			  answer_limit(end, end->req.local_cm_timeout, end->req.max_cm_retries));
	result = vb_cm_send_rep(end->conn, &end->rep, world->net.sim.now_ns);
	if (end_call(end, "send_rep", result, 0) && end->sees_traffic)
		later(end, between(world, 0, 3 * MS), ACT_TRAFFIC);
}

static void reject(struct vb_cm_end *end)
{
	struct vb_cm_world *world = end->world;
	struct vb_cm_blob *blob = draw_blob(end, VB_CM_KIND_REJ, VB_CM_REJ_PRIVATE);
	int result;

	end->ari.length = (uint16_t)between(world, 0, VB_CM_REJ_ARI);
	fill(world, end->ari.bytes, end->ari.length);
	end->rej = (struct vb_cm_rej){
		.reason = VB_CM_REJ_CONSUMER_DEFINED,
		.ari = end->ari.bytes,
		.ari_len = end->ari.length,
		.private_data = blob->bytes,
		.private_data_len = blob->length,
	};
	begin_call(end);
	vb_cm_end_move(end, VB_CM_STAGE_OVER);
	result = vb_cm_send_rej(end->conn, &end->rej, world->net.sim.now_ns);
	if (end_call(end, "send_rej", result, 0))
		later(end, between(world, 0, 2 * MS), ACT_DESTROY);
}

static void answer_sidr(struct vb_cm_end *end)
{
	struct vb_cm_world *world = end->world;
	struct vb_cm_blob *blob = draw_blob(end, VB_CM_KIND_SIDR_REP, VB_CM_SIDR_REP_PRIVATE);
	int result;

	end->sidr_rep = (struct vb_cm_sidr_rep){
		.status = end->says_no ? VB_CM_SIDR_REJECTED : VB_CM_SIDR_VALID,
		.qpn = ++world->next_qpn[end->node->index],
		.qkey = (uint32_t)vb_rng_next(rng_of(world)),
		.private_data = blob->bytes,
		.private_data_len = blob->length,
	};
	begin_call(end);
	vb_cm_end_move(end, VB_CM_STAGE_OVER);
	result = vb_cm_send_sidr_rep(end->conn, &end->sidr_rep, world->net.sim.now_ns);
	if (end_call(end, "send_sidr_rep", result, 0))
		later(end, between(world, 0, 2 * MS), ACT_DESTROY);
}

static void say_mra(struct vb_cm_end *end)
{
	struct vb_cm_blob *blob = draw_blob(end, VB_CM_KIND_MRA, VB_CM_MRA_PRIVATE);
	int result;

	begin_call(end);
	vb_cm_end_move(end, end->active ? VB_CM_STAGE_REP_MRA_SENT : VB_CM_STAGE_REQ_MRA_SENT);
	result = vb_cm_send_mra(end->conn, end->service_timeout, blob->bytes, blob->length,
				end->world->net.sim.now_ns);
	end_call(end, "send_mra", result, 0);
}

static void hold(struct vb_cm_end *end)
{
	end->was_established = true;
	if (end->hold_ns != UINT64_MAX || end->world->closing)
		later(end, end->world->closing ? 0 : end->hold_ns, ACT_DISCONNECT);
}

static void say_rtu(struct vb_cm_end *end)
{
	struct vb_cm_blob *blob = draw_blob(end, VB_CM_KIND_RTU, VB_CM_RTU_PRIVATE);
	int result;

	begin_call(end);
	vb_cm_end_move(end, VB_CM_STAGE_ESTABLISHED);
	result = vb_cm_send_rtu(end->conn, blob->bytes, blob->length, end->world->net.sim.now_ns);
	if (end_call(end, "send_rtu", result, 0))
		hold(end);
}

/* The queue pair saw the peer's first packet: the peer has sent its RTU. */
static void see_traffic(struct vb_cm_end *end)
{
	int result;

	if (!end->peer || end->peer->peer != end || !end->peer->was_established)
		return;
	begin_call(end);
	result = vb_cm_notify_established(end->conn, end->world->net.sim.now_ns);
	if (end_call(end, "notify_established", result, 0) && end->stage != VB_CM_STAGE_ESTABLISHED)
		vb_sim_fail(&end->world->net.sim, "%s: no event of the traffic",
			    vb_cm_end_name(end));
}

static void disconnect(struct vb_cm_end *end)
{
	struct vb_cm_blob *blob = draw_blob(end, VB_CM_KIND_DREQ, VB_CM_DREQ_PRIVATE);
	bool both = end->stage == VB_CM_STAGE_DREQ_RCVD;
	int result;

	begin_call(end);
	vb_cm_end_move(end, VB_CM_STAGE_DREQ_SENT);
	vb_cm_check_limit(
		end,
		answer_limit(end, VB_MAX(end->req.remote_cm_timeout, end->req.local_cm_timeout),
			     end->req.max_cm_retries));
	result = vb_cm_send_dreq(end->conn, blob->bytes, blob->length, end->world->net.sim.now_ns);
	/* Both sides asked: nothing is to be waited for. */
	if (both && end->stage != VB_CM_STAGE_OVER)
		vb_sim_fail(&end->world->net.sim, "%s waits although both sides disconnect",
			    vb_cm_end_name(end));
	end_call(end, "send_dreq", result, 0);
}

static void answer_dreq(struct vb_cm_end *end)
{
	struct vb_cm_blob *blob = draw_blob(end, VB_CM_KIND_DREP, VB_CM_DREP_PRIVATE);
	int result;

	begin_call(end);
	end->timewait_due = true;
	vb_cm_end_move(end, VB_CM_STAGE_OVER);
	result = vb_cm_send_drep(end->conn, blob->bytes, blob->length, end->world->net.sim.now_ns);
	if (end_call(end, "send_drep", result, 0) && !end->keeps)
		later(end, between(end->world, 0, MS), ACT_DESTROY);
}

void vb_cm_program_destroy(struct vb_cm_end *end)
{
	struct vb_cm_conn *conn = end->conn;

	begin_call(end);
	end->conn = NULL;
	vb_cm_end_move(end, VB_CM_STAGE_GONE);
	vb_cm_conn_destroy(conn, end->world->net.sim.now_ns);
	end_call(end, "destroy", 0, 0);
}

/* --- calls that have no place ------------------------------------------------------------ */

#define STAGE(name) (1u << VB_CM_STAGE_##name)

enum call {
	CALL_REQ,
	CALL_SIDR_REQ,
	CALL_REP,
	CALL_RTU,
	CALL_REJ,
	CALL_MRA,
	CALL_DREQ,
	CALL_DREP,
	CALL_SIDR_REP,
	CALL_NOTIFY,
	CALLS,
};

/* Where a call has its place; where it may be taken or refused, nothing is tried. */
static const struct {
	const char *name;
	uint32_t right, either;
	uint32_t most; /* bytes of private data; 0: has none */
} calls[CALLS] = {
	[CALL_REQ] = {"send_req", 0, STAGE(IDLE), 0},
	[CALL_SIDR_REQ] = {"send_sidr_req", 0, STAGE(IDLE), 0},
	[CALL_REP] = {"send_rep", STAGE(REQ_RCVD) | STAGE(REQ_MRA_SENT), 0, VB_CM_REP_PRIVATE},
	[CALL_RTU] = {"send_rtu", STAGE(REP_RCVD) | STAGE(REP_MRA_SENT), 0, VB_CM_RTU_PRIVATE},
	[CALL_REJ] = {"send_rej",
		      STAGE(REQ_RCVD) | STAGE(REQ_MRA_SENT) | STAGE(REP_RCVD) | STAGE(REP_MRA_SENT),
		      STAGE(REQ_SENT) | STAGE(REQ_MRA_RCVD) | STAGE(REP_SENT) | STAGE(REP_MRA_RCVD),
		      VB_CM_REJ_PRIVATE},
	[CALL_MRA] = {"send_mra",
		      STAGE(REQ_RCVD) | STAGE(REP_RCVD) | STAGE(REQ_MRA_SENT) | STAGE(REP_MRA_SENT),
		      0, VB_CM_MRA_PRIVATE},
	[CALL_DREQ] = {"send_dreq", STAGE(ESTABLISHED) | STAGE(DREQ_RCVD),
		       STAGE(REP_SENT) | STAGE(REP_MRA_RCVD), VB_CM_DREQ_PRIVATE},
	[CALL_DREP] = {"send_drep", STAGE(DREQ_RCVD), 0, VB_CM_DREP_PRIVATE},
	[CALL_SIDR_REP] = {"send_sidr_rep", STAGE(SIDR_RCVD), 0, VB_CM_SIDR_REP_PRIVATE},
	[CALL_NOTIFY] = {"notify_established", STAGE(REP_SENT) | STAGE(REP_MRA_RCVD),
			 STAGE(ESTABLISHED), 0},
};

static int make_call(struct vb_cm_end *end, enum call call, const void *data, size_t length)
{
	const struct vb_cm_path path = vb_cm_net_path(end->node, end->remote);
	const struct vb_cm_rep rep = {.qpn = 1, .private_data = data, .private_data_len = length};
	const struct vb_cm_rej rej = {.reason = VB_CM_REJ_CONSUMER_DEFINED,
				      .private_data = data,
				      .private_data_len = length};
	const struct vb_cm_sidr_rep sidr = {.private_data = data, .private_data_len = length};
	uint64_t now_ns = end->world->net.sim.now_ns;

	switch (call) {
	case CALL_REQ:
		return vb_cm_send_req(end->conn, &path, &end->req, now_ns);
	case CALL_SIDR_REQ:
		return vb_cm_send_sidr_req(end->conn, &path, &end->sidr_req, now_ns);
	case CALL_REP:
		return vb_cm_send_rep(end->conn, &rep, now_ns);
	case CALL_RTU:
		return vb_cm_send_rtu(end->conn, data, length, now_ns);
	case CALL_REJ:
		return vb_cm_send_rej(end->conn, &rej, now_ns);
	case CALL_MRA:
		return vb_cm_send_mra(end->conn, 10, data, length, now_ns);
	case CALL_DREQ:
		return vb_cm_send_dreq(end->conn, data, length, now_ns);
	case CALL_DREP:
		return vb_cm_send_drep(end->conn, data, length, now_ns);
	case CALL_SIDR_REP:
		return vb_cm_send_sidr_rep(end->conn, &sidr, now_ns);
	case CALL_NOTIFY:
		return vb_cm_notify_established(end->conn, now_ns);
	case CALLS:
		break;
	}
	return 0;
}

/* Out of place: -EINVAL; in its place with a byte too many: -EMSGSIZE. No message, no event. */
static void call_wrongly(struct vb_cm_end *end)
{
	static const uint8_t long_data[256];
	struct vb_cm_world *world = end->world;
	enum call call = (enum call)vb_rng_below(rng_of(world), CALLS);
	uint32_t stage = 1u << end->stage;
	bool in_place = calls[call].right & stage;
	uint64_t tx = end->node->tx;
	int result;

	if (calls[call].either & stage || (in_place && !calls[call].most))
		return;
	world->stats.wrong_calls++;
	vb_sim_say(&world->net.sim, "%s: a wrong %s", vb_cm_end_name(end), calls[call].name);
	begin_call(end);
	result = make_call(end, call, long_data, in_place ? calls[call].most + 1 : 0);
	if (end_call(end, calls[call].name, result, in_place ? -EMSGSIZE : -EINVAL) &&
	    tx != end->node->tx)
		vb_sim_fail(&world->net.sim, "%s: a refused %s sent something", vb_cm_end_name(end),
			    calls[call].name);
}

/* --- reactions --------------------------------------------------------------------------- */

static void answer(struct vb_cm_end *end)
{
	if (end->stage == VB_CM_STAGE_SIDR_RCVD)
		answer_sidr(end);
	else if (end->stage == VB_CM_STAGE_REQ_RCVD || end->stage == VB_CM_STAGE_REQ_MRA_SENT)
		(end->says_no ? reject : accept_req)(end);
}

static void act(void *object, uint64_t word, void *data)
{
	struct vb_cm_end *end = object;
	enum vb_cm_stage stage = end->stage;

	if (!end->conn)
		return;
	switch ((enum act)word) {
	case ACT_CONNECT:
		if (stage == VB_CM_STAGE_IDLE)
			(end->sidr ? ask_sidr : ask)(end);
		break;
	case ACT_MRA:
		if (stage == VB_CM_STAGE_REQ_RCVD || stage == VB_CM_STAGE_REP_RCVD)
			say_mra(end);
		break;
	case ACT_ANSWER:
		answer(end);
		break;
	case ACT_RTU:
		if (stage == VB_CM_STAGE_REP_RCVD || stage == VB_CM_STAGE_REP_MRA_SENT)
			(end->says_no ? reject : say_rtu)(end);
		break;
	case ACT_TRAFFIC:
		if (stage == VB_CM_STAGE_REP_SENT || stage == VB_CM_STAGE_REP_MRA_RCVD)
			see_traffic(end);
		break;
	case ACT_DISCONNECT:
		if (stage == VB_CM_STAGE_ESTABLISHED || stage == VB_CM_STAGE_DREQ_RCVD)
			disconnect(end);
		break;
	case ACT_DREP:
		if (stage == VB_CM_STAGE_DREQ_RCVD)
			answer_dreq(end);
		break;
	case ACT_DESTROY:
		vb_cm_program_destroy(end);
		break;
	case ACT_WRONG:
		call_wrongly(end);
		break;
	}
}

static void answer_later(struct vb_cm_end *end, enum act what)
{
	if (end->says_mra && !end->sidr)
		later(end, between(end->world, 0, MS / 100), ACT_MRA);
	later(end, end->answer_ns, what);
}

/* A program that came back is taken for its former self once; it tries again. */
static void try_again(struct vb_cm_end *old)
{
	struct vb_cm_world *world = old->world;
	struct vb_cm_end *end;

	if (!old->tries_left || world->closing || !(end = vb_cm_end_create(world, old->node)))
		return;
	end->active = true;
	end->remote = old->remote;
	end->service = old->service;
	end->tries_left = old->tries_left - 1;
	draw_req(end);
	end->req.qpn = old->req.qpn;
	draw_habits(end, end->req.local_cm_timeout);
	end->conn = vb_cm_conn_create(end->node->cm, end);
	VB_ASSERT(end->conn);
	later(end, between(world, MS, 100 * MS), ACT_CONNECT);
}

static void told_of_end(struct vb_cm_end *end, const struct vb_cm_event *event)
{
	if (event->type == VB_CM_REJ_RECEIVED && event->rej->reason == VB_CM_REJ_STALE_CONN)
		try_again(end);
	if (!end->timewait_due || !end->keeps)
		later(end, between(end->world, 0, 2 * MS), ACT_DESTROY);
}

bool vb_cm_program_told(struct vb_cm_end *end, const struct vb_cm_event *event)
{
	struct vb_cm_world *world = end->world;

	switch (event->type) {
	case VB_CM_REQ_RECEIVED:
	case VB_CM_SIDR_REQ_RECEIVED:
		draw_habits(end, end->sidr ? world->timeout_low : end->req.remote_cm_timeout);
		*event->later = !world->options.plan && chance(world, 60000);
		if (*event->later || (!world->options.plan && chance(world, 40000)))
			return false;
		answer_later(end, ACT_ANSWER);
		break;
	case VB_CM_REP_RECEIVED:
		answer_later(end, ACT_RTU);
		break;
	case VB_CM_ESTABLISHED:
		hold(end);
		break;
	case VB_CM_DREQ_RECEIVED:
		later(end, end->drep_ns,
		      chance(world, 200000)   ? ACT_DISCONNECT
		      : chance(world, 250000) ? ACT_DESTROY
					      : ACT_DREP);
		break;
	case VB_CM_REJ_RECEIVED:
	case VB_CM_REQ_FAILED:
	case VB_CM_REP_FAILED:
	case VB_CM_DREP_RECEIVED:
	case VB_CM_DREQ_FAILED:
	case VB_CM_SIDR_REP_RECEIVED:
	case VB_CM_SIDR_FAILED:
		told_of_end(end, event);
		break;
	case VB_CM_TIMEWAIT_EXIT:
		later(end, between(world, 0, MS), ACT_DESTROY);
		break;
	case VB_CM_MRA_RECEIVED:
		break;
	}
	return true;
}

/* --- attempts, services, crashes --------------------------------------------------------- */

static void attempt(void *object, uint64_t word, void *data)
{
	struct vb_cm_world *world = object;
	struct vb_rng *rng = rng_of(world);
	struct vb_cm_net_node *from = &world->net.nodes[vb_rng_below(rng, world->net.node_count)];
	struct vb_cm_end *end;

	if (!from->cm || !(end = vb_cm_end_create(world, from)))
		return;
	world->stats.attempts++;
	end->active = true;
	end->remote = chance(world, 80000)
			      ? from
			      : &world->net.nodes[(from->index + 1 +
						   vb_rng_below(rng, world->net.node_count - 1)) %
						  world->net.node_count];
	end->sidr = chance(world, 250000);
	end->service = chance(world, 80000)   ? VB_CM_NO_SERVICE
		       : chance(world, 80000) ? VB_CM_NO_ADDRESS
					      : vb_rng_below(rng, VB_CM_SERVICES);
	end->tries_left = VB_CM_WORLD_TRIES;
	draw_req(end);
	draw_habits(end, end->req.local_cm_timeout);
	end->conn = vb_cm_conn_create(from->cm, end);
	VB_ASSERT(end->conn);
	later(end, chance(world, 800000) ? 0 : between(world, 0, MS), ACT_CONNECT);
}

void vb_cm_program_attempt(struct vb_cm_world *world, uint64_t at_ns)
{
	vb_sim_at(&world->net.sim, at_ns, attempt, world, 0, NULL);
}

static void toggle_listener(void *object, uint64_t word, void *data)
{
	struct vb_cm_world *world = object;
	struct vb_cm_net_node *node = &world->net.nodes[word / VB_CM_SERVICES];
	struct vb_cm_service *service = &world->services[node->index][word % VB_CM_SERVICES];

	if (!node->cm || world->closing)
		return;
	if (service->listener) {
		vb_cm_unlisten(service->listener);
		service->listener = NULL;
		vb_sim_at(&world->net.sim, world->net.sim.now_ns + between(world, MS, 100 * MS),
			  toggle_listener, world, word, NULL);
	} else if (vb_cm_listen(node->cm, service->id, &service->match, service,
				&service->listener)) {
		vb_sim_fail(&world->net.sim, "%c cannot listen", 'A' + node->index);
		return;
	}
	vb_cm_net_entered(node);
}

void vb_cm_program_listen(struct vb_cm_world *world, struct vb_cm_net_node *node)
{
	struct vb_cm_service *services = world->services[node->index];
	struct vb_cm_listener *other;

	for (uint32_t i = 0; i < VB_CM_SERVICES && !world->net.sim.failed; i++) {
		struct vb_cm_service *service = &services[i];

		service->id = vb_cm_service_id(0x0106, i ? 7001 : 7000);
		if (i)
			service->match = (struct vb_cm_match){
				.at = 20,
				.len = 16,
				.ip_version = i == 1 ? 4 : 6,
			};
		/* An IPv4 address has zeros before it. */
		service->match.bytes[i == 1 ? 12 : 0] = i == 1 ? 127 : 0xfd;
		service->match.bytes[15] = (uint8_t)(node->index + 2);
		if (vb_cm_listen(node->cm, service->id, &service->match, service,
				 &service->listener))
			vb_sim_fail(&world->net.sim, "%c cannot listen", 'A' + node->index);
		else if (vb_cm_listen(node->cm, service->id, &service->match, NULL, &other) !=
			 -EADDRINUSE)
			vb_sim_fail(&world->net.sim, "%c listens twice", 'A' + node->index);
		if (!world->quiet && chance(world, 150000))
			vb_sim_at(&world->net.sim,
				  world->net.sim.now_ns + between(world, MS, 200 * MS),
				  toggle_listener, world, node->index * VB_CM_SERVICES + i, NULL);
	}
	if (!world->net.sim.failed)
		vb_cm_net_entered(node);
}

static void come_back(void *object, uint64_t word, void *data)
{
	struct vb_cm_world *world = object;
	struct vb_cm_net_node *node = &world->net.nodes[word];

	if (node->cm)
		return;
	world->next_qpn[node->index] = node->index << 15;
	vb_cm_net_start(node);
	vb_cm_program_listen(world, node);
}

/* The program ends, or is killed; its successor comes soon and has its queue pairs' numbers. */
static void crash(void *object, uint64_t word, void *data)
{
	struct vb_cm_world *world = object;
	struct vb_cm_net_node *node =
		&world->net.nodes[vb_rng_below(rng_of(world), world->net.node_count)];

	if (!node->cm || world->closing)
		return;
	world->stats.crashes++;
	for (uint32_t i = 0; i < world->end_count; i++)
		if (world->ends[i].node == node && world->ends[i].stage != VB_CM_STAGE_GONE) {
			world->ends[i].conn = NULL;
			vb_cm_end_move(&world->ends[i], VB_CM_STAGE_GONE);
		}
	for (uint32_t i = 0; i < VB_CM_SERVICES; i++)
		world->services[node->index][i].listener = NULL;
	vb_cm_net_stop(node, chance(world, 600000));
	vb_sim_at(&world->net.sim,
		  world->net.sim.now_ns + (chance(world, 300000) ? 0 : between(world, 0, 100 * MS)),
		  come_back, world, node->index, NULL);
}

void vb_cm_program_crash(struct vb_cm_world *world, uint64_t at_ns)
{
	vb_sim_at(&world->net.sim, at_ns, crash, world, 0, NULL);
}

bool vb_cm_program_close(struct vb_cm_world *world)
{
	bool found = false;

	world->closing = true;
	for (uint32_t i = 0; i < world->end_count && !world->net.sim.failed; i++) {
		struct vb_cm_end *end = &world->ends[i];

		if (end->stage != VB_CM_STAGE_ESTABLISHED)
			continue;
		found = true;
		if (!world->quiet && chance(world, 300000))
			vb_cm_program_destroy(end);
		else
			disconnect(end);
	}
	return found;
}
