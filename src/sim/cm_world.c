/* SPDX-License-Identifier: BSD-2-Clause */
/* cm_world.c - draws a network of connection managers and their programs from a seed, and runs it.
 */
#include "sim/cm_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000u
#define EVENTS_MAX 2000000u
#define SPREAD_NS (300ull * MS)	  /* attempts begin in this time */
#define PROGRAMS_NS (700ull * MS) /* then the programs close what is open */
#define DRAIN_NS                                                                                   \
	(240000ull * MS) /* longer than every wait that can be drawn, one after the other */

static struct vb_rng *rng_of(struct vb_cm_world *world)
{
	return &world->net.sim.rng;
}

const char *vb_cm_stage_name(enum vb_cm_stage stage)
{
	static const char *const names[VB_CM_STAGES] = {
		"IDLE",		"REQ_SENT",    "REQ_MRA_RCVD", "REP_RCVD",
		"REP_MRA_SENT", "REQ_RCVD",    "REQ_MRA_SENT", "REP_SENT",
		"REP_MRA_RCVD", "ESTABLISHED", "DREQ_SENT",    "DREQ_RCVD",
		"SIDR_SENT",	"SIDR_RCVD",   "OVER",	       "GONE",
	};

	return names[stage];
}

const char *vb_cm_end_name(const struct vb_cm_end *end)
{
	static char names[4][64];
	static unsigned int next;
	char *name = names[next++ % 4];

	snprintf(name, sizeof(names[0]), "%c's end %" PRIu32 " (%s%s)", 'A' + end->node->index,
		 end->index, end->active ? "active" : "passive", end->sidr ? ", SIDR" : "");
	return name;
}

struct vb_cm_end *vb_cm_end_create(struct vb_cm_world *world, struct vb_cm_net_node *node)
{
	struct vb_cm_end *end;

	if (world->end_count == VB_CM_WORLD_ENDS) {
		vb_sim_fail(&world->net.sim,
			    "there are more connections than attempts can explain");
		return NULL;
	}
	end = &world->ends[world->end_count];
	memset(end, 0, sizeof(*end));
	end->world = world;
	end->node = node;
	end->index = world->end_count++;
	end->incarnation = node->incarnation;
	return end;
}

void vb_cm_end_move(struct vb_cm_end *end, enum vb_cm_stage stage)
{
	struct vb_sim *sim = &end->world->net.sim;

	vb_sim_mix(sim, 0x400, end->index, stage);
	vb_sim_say(sim, "%s: %s -> %s", vb_cm_end_name(end), vb_cm_stage_name(end->stage),
		   vb_cm_stage_name(stage));
	if (end->stage == VB_CM_STAGE_IDLE && end->active)
		end->remote_incarnation = end->remote->incarnation;
	end->stage = stage;
	end->since_ns = sim->now_ns;
	end->limit_ns = 0;
}

/* --- what is drawn ----------------------------------------------------------------------- */

static void set_cut(void *object, uint64_t word, void *data)
{
	struct vb_cm_world *world = object;
	uint64_t pair = word >> 1;

	world->net.cut[pair / VB_CM_NODES][pair % VB_CM_NODES] = word & 1;
}

static void draw_cuts(struct vb_cm_world *world)
{
	struct vb_rng *rng = rng_of(world);

	for (uint32_t i = vb_rng_below(rng, 4); i--;) {
		uint64_t pair = vb_rng_below(rng, world->net.node_count) * VB_CM_NODES +
				vb_rng_below(rng, world->net.node_count);
		uint64_t from = vb_rng_between(rng, 0, SPREAD_NS);

		vb_sim_at(&world->net.sim, from, set_cut, world, pair << 1 | 1, NULL);
		if (vb_rng_chance(rng, 700000))
			vb_sim_at(&world->net.sim, from + vb_rng_between(rng, 1, 3000ull * MS),
				  set_cut, world, pair << 1, NULL);
	}
}

static void draw_faults(struct vb_cm_world *world)
{
	static const uint32_t losses[] = {0, 10000, 100000, 300000, 500000};
	static const uint32_t wild_losses[] = {10000, 200000, 500000, 800000, 1000000};
	struct vb_cm_faults *faults = &world->net.faults;
	struct vb_rng *rng = rng_of(world);

	faults->loss = (world->gentle ? losses : wild_losses)[vb_rng_below(rng, 5)];
	faults->duplicate = vb_rng_chance(rng, 500000) ? vb_rng_below(rng, 500000) : 0;
	faults->late = vb_rng_chance(rng, 500000) ? vb_rng_below(rng, 500000) : 0;
	faults->late_ns = vb_cm_time(world->gentle ? 12 : 15) / 4;
	if (!world->gentle && vb_rng_chance(rng, 300000))
		faults->late_ns *= 16;
	faults->lost_in_a_row = world->gentle ? 2 : 0;
	world->net.faulty = true;
}

static void draw(struct vb_cm_world *world)
{
	struct vb_rng *rng = rng_of(world);
	struct vb_cm_net *net = &world->net;
	bool plan = world->options.plan;

	net->delay_ns = vb_rng_between(rng, 1000, MS / 2);
	net->jitter_ns = vb_rng_chance(rng, 500000) ? vb_rng_between(rng, 0, MS / 4) : 0;
	net->run_delay_ns = vb_rng_chance(rng, 500000) ? vb_rng_between(rng, 0, MS / 10) : 0;
	world->gentle = plan || vb_rng_chance(rng, 600000);
	world->quiet = plan || vb_rng_chance(rng, 400000);
	world->timeout_low = world->gentle ? 12 : 6;
	world->timeout_high = world->gentle ? 15 : 17;
	world->attempts = plan ? VB_CM_WORLD_ATTEMPTS
			       : (uint32_t)vb_rng_between(rng, 1, VB_CM_WORLD_ATTEMPTS);
	if (!plan)
		draw_faults(world);
	if (!world->gentle)
		draw_cuts(world);
	for (uint32_t i = 0; i < net->node_count; i++) {
		net->nodes[i].config.id_bits = (unsigned int)vb_rng_between(rng, 16, 22);
		world->next_qpn[i] = i << 15;
		vb_cm_net_start(&net->nodes[i]);
		vb_cm_program_listen(world, &net->nodes[i]);
	}
	for (uint32_t i = 0; i < world->attempts; i++)
		vb_cm_program_attempt(world, vb_rng_between(rng, 0, SPREAD_NS));
	if (!world->quiet && vb_rng_chance(rng, 400000))
		for (uint32_t i = 1 + vb_rng_below(rng, 3); i--;)
			vb_cm_program_crash(world, vb_rng_between(rng, 0, SPREAD_NS + 100 * MS));
}

/* --- the run ----------------------------------------------------------------------------- */

static bool run_until(struct vb_cm_world *world, uint64_t at_ns)
{
	struct vb_sim *sim = &world->net.sim;

	while (!sim->failed && vb_sim_next(sim) <= at_ns && vb_sim_step(sim))
		if (sim->events > EVENTS_MAX)
			vb_sim_fail(sim, "it does not end");
	return !sim->failed;
}

/* Every connection must have come to its end by itself now. */
static void close_rest(struct vb_cm_world *world)
{
	struct vb_sim *sim = &world->net.sim;

	for (uint32_t i = 0; i < world->end_count && !sim->failed; i++) {
		struct vb_cm_end *end = &world->ends[i];

		if (end->stage == VB_CM_STAGE_GONE)
			continue;
		if (end->stage != VB_CM_STAGE_OVER)
			vb_sim_fail(sim, "%s is still in %s", vb_cm_end_name(end),
				    vb_cm_stage_name(end->stage));
		else if (end->timewait_due)
			vb_sim_fail(sim, "%s did not hear of the end of timewait",
				    vb_cm_end_name(end));
		else
			vb_cm_program_destroy(end);
	}
	for (uint32_t i = 0; i < world->net.node_count && !sim->failed; i++) {
		struct vb_cm_net_node *node = &world->net.nodes[i];

		if (!node->cm)
			continue;
		for (uint32_t k = 0; k < VB_CM_SERVICES; k++) {
			vb_cm_unlisten(world->services[i][k].listener);
			world->services[i][k].listener = NULL;
		}
		vb_cm_net_entered(node);
	}
}

static void run(struct vb_cm_world *world)
{
	if (!run_until(world, PROGRAMS_NS))
		return;
	world->net.sim.now_ns = VB_MAX(world->net.sim.now_ns, PROGRAMS_NS);
	vb_cm_program_close(world);
	if (!run_until(world, PROGRAMS_NS + DRAIN_NS))
		return;
	close_rest(world);
	if (run_until(world, UINT64_MAX - 1))
		vb_cm_check_end(world);
}

static void add_up(const struct vb_cm_world *world, struct vb_cm_world_stats *to)
{
	const struct vb_cm_world_stats *from = &world->stats;
	const struct vb_cm_net *net = &world->net;

	to->worlds++;
	to->events += net->sim.events;
	to->virtual_ns += net->sim.now_ns;
	to->attempts += from->attempts;
	to->ends += world->end_count;
	to->established += from->established;
	to->rejected += from->rejected;
	to->failed += from->failed;
	to->stale += from->stale;
	to->disconnected += from->disconnected;
	to->dreq_failed += from->dreq_failed;
	to->sidr_answers += from->sidr_answers;
	to->sidr_failed += from->sidr_failed;
	to->crashes += from->crashes;
	to->wrong_calls += from->wrong_calls;
	to->refused += from->refused;
	to->retries += from->retries;
	to->duplicates += from->duplicates;
	to->messages += net->count.sent;
	to->lost += net->count.lost;
	to->duplicated += net->count.duplicated;
	to->late += net->count.late;
	to->rule_met += net->rule_count && net->rules[0].met > net->rules[0].first;
	for (uint32_t i = 0; i < VB_CM_KINDS; i++)
		to->kinds[i] += net->count.kinds[i];
}

struct vb_cm_world *vb_cm_world_create(void)
{
	struct vb_cm_world *world = calloc(1, sizeof(*world));

	VB_ASSERT(world);
	world->ends = calloc(VB_CM_WORLD_ENDS, sizeof(*world->ends));
	VB_ASSERT(world->ends);
	return world;
}

void vb_cm_world_destroy(struct vb_cm_world *world)
{
	if (world)
		free(world->ends);
	free(world);
}

/* What a run leaves nothing of: everything but the memory. Ends are cleared as they are made. */
static void clear(struct vb_cm_world *world)
{
	struct vb_cm_end *ends = world->ends;

	memset(world, 0, sizeof(*world));
	world->ends = ends;
}

bool vb_cm_world_run(struct vb_cm_world *world, const struct vb_cm_options *options, uint64_t *hash,
		     struct vb_cm_world_stats *stats)
{
	static const struct vb_cm_hooks hooks = {
		.event = vb_cm_check_event,
		.sent = vb_cm_check_sent,
		.arrives = vb_cm_check_arrival,
		.entered = vb_cm_check_node,
	};
	struct vb_rng first;

	clear(world);
	world->options = *options;
	vb_rng_seed(&first, ~options->seed);
	vb_cm_net_init(&world->net, options->seed,
		       options->plan ? 2 : 2 + vb_rng_below(&first, VB_CM_NODES - 1), &hooks,
		       world);
	world->net.sim.trace = options->trace;
	if (options->plan) {
		const struct vb_cm_rule *rule = &options->rule;

		vb_cm_net_rule(&world->net, rule->from, rule->kind, rule->first, rule->count,
			       rule->fate, rule->late_ns);
	}
	draw(world);
	run(world);
	*hash = world->net.sim.hash;
	add_up(world, stats);
	vb_cm_net_finish(&world->net);
	return !world->net.sim.failed;
}
