/* SPDX-License-Identifier: BSD-2-Clause */
/* cm_net.c - connection managers, the messages between them, and what becomes of those. */
#include "sim/cm_net.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MIX_SENT = 0x100, MIX_ARRIVES, MIX_RUN, MIX_START, MIX_STOP };

#define CM_ATTR_FIRST 0x10u
#define GUID_BASE 0x0200000000000100u

static uint32_t get32(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

const char *vb_cm_kind_name(enum vb_cm_kind kind)
{
	static const char *const names[VB_CM_KINDS] = {"REQ",  "MRA",  "REJ",	   "REP",     "RTU",
						       "DREQ", "DREP", "SIDR_REQ", "SIDR_REP"};

	return kind < VB_CM_KINDS ? names[kind] : "?";
}

/* --- a message's way --------------------------------------------------------------------- */

static void arrive(void *object, uint64_t word, void *data)
{
	struct vb_cm_net *net = object;
	const struct vb_cm_mad *mad = data;
	struct vb_cm_net_node *node = mad->to;

	net->in_flight--;
	if (!node->cm)
		return;
	net->count.delivered++;
	vb_sim_mix(&net->sim, MIX_ARRIVES, (uint64_t)mad->kind << 8 | node->index, mad->local_id);
	vb_sim_say(&net->sim, "      %c gets %s %" PRIx32 "/%" PRIx32, 'A' + node->index,
		   vb_cm_kind_name(mad->kind), mad->local_id, mad->remote_id);
	net->arriving = mad;
	if (net->hooks.arrives)
		net->hooks.arrives(net->env, mad);
	vb_cm_net_inject(node, mad->from, mad->bytes, sizeof(mad->bytes));
	net->arriving = NULL;
}

static void deliver_at(struct vb_cm_net *net, const struct vb_cm_mad *mad, uint64_t at_ns)
{
	struct vb_cm_mad *copy = malloc(sizeof(*copy));

	VB_ASSERT(copy);
	*copy = *mad;
	net->in_flight++;
	vb_sim_at(&net->sim, at_ns, arrive, net, 0, copy);
}

/* How often the messages like this one were lost, one after the other. */
static uint32_t *stream_of(struct vb_cm_net *net, const struct vb_cm_mad *mad)
{
	uint64_t key = ((uint64_t)mad->local_id << 32 | mad->remote_id) * 0x9e3779b97f4a7c15u;
	uint32_t i;

	key ^= ((uint64_t)mad->kind << 16 | mad->from->index << 8 | mad->to->index) + 1;
	key *= 0xff51afd7ed558ccdu;
	key |= 1;
	for (i = (uint32_t)(key >> 40);; i++) {
		i &= VB_CM_STREAMS - 1;
		if (!net->streams[i].key)
			net->streams[i].key = key;
		if (net->streams[i].key == key)
			return &net->streams[i].lost;
	}
}

static enum vb_cm_fate ask_rules(struct vb_cm_net *net, const struct vb_cm_mad *mad,
				 uint64_t *late_ns)
{
	enum vb_cm_fate fate = VB_CM_PASS;

	for (uint32_t i = 0; i < net->rule_count; i++) {
		struct vb_cm_rule *rule = &net->rules[i];
		uint32_t number;

		if (rule->kind != mad->kind ||
		    (rule->from != VB_CM_ANY_NODE && rule->from != mad->from->index))
			continue;
		number = rule->met++;
		if (number < rule->first || number - rule->first >= rule->count)
			continue;
		fate = rule->fate;
		*late_ns = rule->late_ns;
	}
	return fate;
}

/* The exhausted patience of a stream overrides chance, not rules and cuts. */
static enum vb_cm_fate draw_fate(struct vb_cm_net *net, const struct vb_cm_mad *mad,
				 uint64_t *late_ns)
{
	const struct vb_cm_faults *faults = &net->faults;
	struct vb_rng *rng = &net->sim.rng;
	uint32_t *lost;

	if (!net->faulty)
		return VB_CM_PASS;
	lost = stream_of(net, mad);
	if (vb_rng_chance(rng, faults->loss) &&
	    (!faults->lost_in_a_row || *lost < faults->lost_in_a_row)) {
		++*lost;
		return VB_CM_LOSE;
	}
	*lost = 0;
	*late_ns = faults->late_ns ? vb_rng_between(rng, 1, faults->late_ns) : 0;
	if (vb_rng_chance(rng, faults->duplicate))
		return VB_CM_TWICE;
	return vb_rng_chance(rng, faults->late) ? VB_CM_LATE : VB_CM_PASS;
}

static void travel(struct vb_cm_net *net, const struct vb_cm_mad *mad)
{
	static const char *const words[] = {"", " (lost)", " (twice)", " (late)"};
	uint64_t late_ns = 0, at;
	enum vb_cm_fate fate = ask_rules(net, mad, &late_ns);

	if (fate == VB_CM_PASS)
		fate = draw_fate(net, mad, &late_ns);
	if (net->cut[mad->from->index][mad->to->index])
		fate = VB_CM_LOSE;
	vb_sim_mix(&net->sim, MIX_SENT, (uint64_t)mad->kind << 8 | mad->from->index, fate);
	vb_sim_say(&net->sim, "%c sends %s %" PRIx32 "/%" PRIx32 " to %c%s", 'A' + mad->from->index,
		   vb_cm_kind_name(mad->kind), mad->local_id, mad->remote_id, 'A' + mad->to->index,
		   words[fate]);
	if (net->hooks.sent)
		net->hooks.sent(net->env, mad, fate);
	net->count.sent++;
	net->count.kinds[mad->kind]++;
	net->count.lost += fate == VB_CM_LOSE;
	net->count.duplicated += fate == VB_CM_TWICE;
	net->count.late += fate == VB_CM_LATE;
	at = net->sim.now_ns + net->delay_ns +
	     (net->jitter_ns ? vb_rng_between(&net->sim.rng, 0, net->jitter_ns) : 0);
	switch (fate) {
	case VB_CM_LOSE:
		return;
	case VB_CM_TWICE:
		deliver_at(net, mad, at + late_ns);
		break;
	case VB_CM_LATE:
		at += late_ns;
		break;
	case VB_CM_PASS:
		break;
	}
	deliver_at(net, mad, at);
}

/* --- what a manager asks of its surroundings --------------------------------------------- */

static struct vb_cm_net_node *find_node(struct vb_cm_net *net, const struct in6_addr *gid)
{
	for (uint32_t i = 0; i < net->node_count; i++)
		if (memcmp(&net->nodes[i].gid, gid, sizeof(*gid)) == 0)
			return &net->nodes[i];
	return NULL;
}

static void send_mad(void *env, const struct vb_cm_path *to, const uint8_t bytes[VB_MAD_BYTES])
{
	struct vb_cm_net_node *node = env;
	struct vb_sim *sim = &node->net->sim;
	uint32_t attr = (uint32_t)bytes[16] << 8 | bytes[17];
	struct vb_cm_mad mad = {
		.from = node,
		.to = find_node(node->net, &to->ah.dgid),
		.incarnation = node->incarnation,
		.kind = (enum vb_cm_kind)(attr - CM_ATTR_FIRST),
		.path = *to,
	};

	if (node->mute)
		return;
	node->tx++;
	if (!mad.to)
		vb_sim_fail(sim, "%c sends to a GID that nobody has", 'A' + node->index);
	else if (attr < CM_ATTR_FIRST || attr - CM_ATTR_FIRST >= VB_CM_KINDS)
		vb_sim_fail(sim, "%c sends attribute %#" PRIx32, 'A' + node->index, attr);
	else if (bytes[0] != 1 || bytes[1] != VB_MAD_CM || bytes[2] != 2 || bytes[3] != VB_MAD_SEND)
		vb_sim_fail(sim, "%c sends a MAD with a wrong header", 'A' + node->index);
	if (sim->failed)
		return;
	mad.local_id = get32(bytes + 24);
	if (mad.kind < VB_CM_KIND_SIDR_REQ && mad.kind != VB_CM_KIND_REQ)
		mad.remote_id = get32(bytes + 28);
	memcpy(mad.bytes, bytes, VB_MAD_BYTES);
	travel(node->net, &mad);
}

static bool event(void *env, const struct vb_cm_event *event)
{
	struct vb_cm_net_node *node = env;
	bool taken;

	if (!node->net->hooks.event)
		return false;
	node->inside = true;
	taken = node->net->hooks.event(node->net->env, node, event);
	node->inside = false;
	return taken;
}

static uint32_t random32(void *env)
{
	struct vb_cm_net_node *node = env;

	return (uint32_t)(vb_rng_next(&node->net->sim.rng) >> 32);
}

static const struct vb_cm_ops ops = {
	.send = send_mad,
	.event = event,
	.random = random32,
};

/* --- when a manager runs ----------------------------------------------------------------- */

/* A wake-up that another one overtook finds a later wake_ns, or that the node started anew. */
static void run(void *object, uint64_t word, void *data)
{
	struct vb_cm_net_node *node = object;
	struct vb_sim *sim = &node->net->sim;

	if (!node->cm || !node->wanted || node->wake_ns != sim->now_ns)
		return;
	node->wanted = false;
	vb_cm_run(node->cm, sim->now_ns);
	vb_sim_mix(sim, MIX_RUN, node->index, 0);
	if (vb_cm_deadline(node->cm) <= sim->now_ns)
		vb_sim_fail(sim, "%c: the deadline %" PRIu64 " has passed after the run",
			    'A' + node->index, vb_cm_deadline(node->cm));
	vb_cm_net_entered(node);
}

void vb_cm_net_entered(struct vb_cm_net_node *node)
{
	struct vb_sim *sim = &node->net->sim;
	uint64_t deadline = vb_cm_deadline(node->cm), at;

	VB_ASSERT(!node->inside);
	if (node->net->hooks.entered)
		node->net->hooks.entered(node->net->env, node);
	if (deadline == UINT64_MAX || sim->failed)
		return;
	at = VB_MAX(deadline, sim->now_ns);
	if (node->wanted && node->wake_ns <= at + node->net->run_delay_ns)
		return;
	if (node->net->run_delay_ns)
		at += vb_rng_between(&sim->rng, 0, node->net->run_delay_ns);
	node->wanted = true;
	node->wake_ns = at;
	vb_sim_at(sim, at, run, node, 0, NULL);
}

void vb_cm_net_inject(struct vb_cm_net_node *node, const struct vb_cm_net_node *from,
		      const uint8_t *bytes, size_t size)
{
	const struct vb_cm_path path = vb_cm_net_path(node, from);

	node->rx++;
	vb_cm_rx(node->cm, &path, bytes, size, node->net->sim.now_ns);
	vb_cm_net_entered(node);
}

/* --- the network ------------------------------------------------------------------------- */

struct vb_cm_path vb_cm_net_path(const struct vb_cm_net_node *node, const struct vb_cm_net_node *to)
{
	return (struct vb_cm_path){
		.ah =
			{
				.dgid = to->gid,
				.sgid_index = 1,
				.hop_limit = 64,
				.port_num = 1,
				.is_global = true,
			},
	};
}

void vb_cm_net_start(struct vb_cm_net_node *node)
{
	VB_ASSERT(!node->cm);
	node->cm = vb_cm_create(&ops, node, &node->config);
	VB_ASSERT(node->cm);
	node->wanted = false;
	node->tx = node->rx = 0;
	vb_sim_mix(&node->net->sim, MIX_START, node->index, node->incarnation);
	vb_sim_say(&node->net->sim, "%c starts", 'A' + node->index);
}

void vb_cm_net_stop(struct vb_cm_net_node *node, bool crash)
{
	if (!node->cm)
		return;
	vb_sim_mix(&node->net->sim, MIX_STOP, node->index, crash);
	vb_sim_say(&node->net->sim, "%c %s", 'A' + node->index, crash ? "crashes" : "stops");
	node->mute = crash;
	node->ends = true;
	vb_cm_destroy(node->cm);
	node->mute = node->ends = false;
	node->cm = NULL;
	node->incarnation++;
}

void vb_cm_net_init(struct vb_cm_net *net, uint64_t seed, uint32_t node_count,
		    const struct vb_cm_hooks *hooks, void *env)
{
	VB_ASSERT(node_count <= VB_CM_NODES);
	memset(net, 0, sizeof(*net));
	vb_sim_init(&net->sim, seed);
	net->node_count = node_count;
	net->delay_ns = 5000;
	net->hooks = *hooks;
	net->env = env;
	for (uint32_t i = 0; i < node_count; i++) {
		struct vb_cm_net_node *node = &net->nodes[i];

		node->net = net;
		node->index = i;
		node->gid.s6_addr[10] = node->gid.s6_addr[11] = 0xff;
		node->gid.s6_addr[12] = 127;
		node->gid.s6_addr[15] = (uint8_t)(i + 2);
		node->config = (struct vb_cm_config){
			.ca_guid = GUID_BASE + i,
			.id_base = (i + 1) << 22,
			.id_bits = 22,
		};
	}
}

void vb_cm_net_finish(struct vb_cm_net *net)
{
	vb_sim_finish(&net->sim);
	for (uint32_t i = 0; i < net->node_count; i++)
		vb_cm_net_stop(&net->nodes[i], true);
}

struct vb_cm_rule *vb_cm_net_rule(struct vb_cm_net *net, uint32_t from, enum vb_cm_kind kind,
				  uint32_t first, uint32_t count, enum vb_cm_fate fate,
				  uint64_t late_ns)
{
	struct vb_cm_rule *rule = &net->rules[net->rule_count++];

	VB_ASSERT(net->rule_count <= VB_CM_RULES);
	*rule = (struct vb_cm_rule){from, kind, first, count, fate, late_ns, 0};
	return rule;
}
