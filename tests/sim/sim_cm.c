/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim_cm.c - runs worlds of connection managers: random programs that connect over random networks.
 *
 *	sim_cm [--seeds N] [--first S] [--plans N] [--verbose] [--only KIND,FROM,FIRST,FATE]
 *
 * Seeds are worlds with random faults. Plans are gentle worlds of two nodes in which exactly one
 * message is lost, or comes twice, or comes later than its repetition: each of the nine kinds, from
 * each of the two nodes, the first or one of the next of that kind. Every plan runs with so many
 * seeds. One run in 64 is made twice and must have the same event hash.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "repeat.h"
#include "sim/cm_world.h"

#define TWICE_EVERY 64
#define PLAN_NUMBERS 4	     /* the first to the fourth message of a kind */
#define LATE_NS 450000000ull /* more than three timeouts of a gentle world */

static const char *program;
static struct vb_cm_world *world, *other_world;
static struct vb_cm_world_stats stats;
static uint64_t all, runs;
static bool verbose;

static void begin(const struct vb_cm_options *o)
{
	if (o->plan)
		snprintf(repeat, sizeof(repeat),
			 "seed %" PRIu64 " failed; repeat it with: %s --first %" PRIu64
			 " --plans 1 --verbose --only %d,%" PRIu32 ",%" PRIu32 ",%d\n",
			 o->seed, program, o->seed, o->rule.kind, o->rule.from, o->rule.first,
			 o->rule.fate);
	else
		snprintf(repeat, sizeof(repeat),
			 "seed %" PRIu64 " failed; repeat it with: %s --first %" PRIu64
			 " --seeds 1 --plans 0 --verbose\n",
			 o->seed, program, o->seed);
}

static bool run(const struct vb_cm_options *o)
{
	struct vb_cm_world_stats ignored = {0};
	uint64_t hash, second;

	begin(o);
	if (!vb_cm_world_run(world, o, &hash, &stats)) {
		say_repeat();
		fprintf(stderr, "%s\n", world->net.sim.failure);
		return false;
	}
	all = all * 31 + hash;
	if (runs++ % TWICE_EVERY)
		return true;
	/* The same in memory that looks different must do the same. */
	memset(other_world->ends, 0xa5, VB_CM_WORLD_ENDS * sizeof(*other_world->ends));
	if (!vb_cm_world_run(other_world, o, &second, &ignored) || second != hash) {
		say_repeat();
		fprintf(stderr, "two runs differ: event hash %016" PRIx64 " and %016" PRIx64 "\n",
			hash, second);
		return false;
	}
	return true;
}

/* A plan whose message never came tested nothing. */
static bool run_plan(struct vb_cm_options *o, uint64_t first, uint64_t seeds)
{
	uint64_t met = stats.rule_met;

	o->plan = true;
	for (o->seed = first; o->seed < first + seeds; o->seed++)
		if (!run(o))
			return false;
	if (stats.rule_met == met)
		fprintf(stderr, "no world had %s number %" PRIu32 " from %c\n",
			vb_cm_kind_name(o->rule.kind), o->rule.first, 'A' + o->rule.from);
	return stats.rule_met > met;
}

static bool run_plans(uint64_t first, uint64_t seeds)
{
	struct vb_cm_options o = {.trace = verbose};

	if (!seeds)
		return true;
	for (enum vb_cm_kind kind = VB_CM_KIND_REQ; kind < VB_CM_KINDS; kind++)
		for (uint32_t from = 0; from < 2; from++)
			for (uint32_t number = 0; number < PLAN_NUMBERS; number++)
				for (enum vb_cm_fate fate = VB_CM_LOSE; fate <= VB_CM_LATE;
				     fate++) {
					o.rule = (struct vb_cm_rule){from, kind,    number, 1,
								     fate, LATE_NS, 0};
					if (!run_plan(&o, first, seeds))
						return false;
				}
	return true;
}

static bool run_seeds(uint64_t first, uint64_t seeds)
{
	struct vb_cm_options o = {.trace = verbose};

	for (o.seed = first; o.seed < first + seeds; o.seed++)
		if (!run(&o))
			return false;
	return true;
}

static void print_stats(const char *what, uint64_t ns)
{
	const struct vb_cm_world_stats *s = &stats;

	printf("%s: %" PRIu64 " worlds in %.1f s (%.0f s of virtual time), %" PRIu64
	       " events, %" PRIu64 " attempts, %" PRIu64 " crashes, %" PRIu64 " wrong calls\n",
	       what, s->worlds, (double)ns / 1e9, (double)s->virtual_ns / 1e9, s->events,
	       s->attempts, s->crashes, s->wrong_calls);
	printf("  wire: %" PRIu64 " messages, %" PRIu64 " lost, %" PRIu64 " duplicated, %" PRIu64
	       " late;",
	       s->messages, s->lost, s->duplicated, s->late);
	for (enum vb_cm_kind kind = VB_CM_KIND_REQ; kind < VB_CM_KINDS; kind++)
		printf(" %s %" PRIu64, vb_cm_kind_name(kind), s->kinds[kind]);
	printf("\n  ends: %" PRIu64 " established, %" PRIu64 " rejected (%" PRIu64
	       " as stale), %" PRIu64 " failed, %" PRIu64 " refused, %" PRIu64
	       " told of DREQ, %" PRIu64 " DREQs failed, SIDR: %" PRIu64 " answered, %" PRIu64
	       " failed\n",
	       s->established, s->rejected, s->stale, s->failed, s->refused, s->disconnected,
	       s->dreq_failed, s->sidr_answers, s->sidr_failed);
	printf("  managers: %" PRIu64 " retries, %" PRIu64 " duplicates; hash of all: %016" PRIx64
	       "\n",
	       s->retries, s->duplicates, all);
}

static int usage(void)
{
	fprintf(stderr,
		"usage: %s [--seeds N] [--first S] [--plans N] [--verbose] [--only "
		"KIND,FROM,FIRST,FATE]\n",
		program);
	return 2;
}

static bool run_all(uint64_t first, uint64_t seeds, uint64_t plans, const char *only)
{
	struct vb_cm_options o = {.trace = verbose};
	unsigned int kind, from, number, fate;
	uint64_t start = wall_ns();

	if (only) {
		if (sscanf(only, "%u,%u,%u,%u", &kind, &from, &number, &fate) != 4)
			return false;
		o.rule = (struct vb_cm_rule){
			from, (enum vb_cm_kind)kind, number, 1, (enum vb_cm_fate)fate, LATE_NS, 0};
		return run_plan(&o, first, plans);
	}
	printf("first seed %" PRIu64 "\n", first);
	fflush(stdout);
	if (!run_plans(first, plans))
		return false;
	print_stats("plans", wall_ns() - start);
	memset(&stats, 0, sizeof(stats));
	start = wall_ns();
	if (!run_seeds(first, seeds))
		return false;
	print_stats("seeds", wall_ns() - start);
	return true;
}

int main(int argc, char **argv)
{
	uint64_t first = 1, seeds = 2000, plans = 4;
	const char *only = NULL;
	bool good;

	program = argv[0];
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--verbose"))
			verbose = true;
		else if (!strcmp(argv[i], "--seeds") && i + 1 < argc)
			seeds = strtoull(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--first") && i + 1 < argc)
			first = strtoull(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--plans") && i + 1 < argc)
			plans = strtoull(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--only") && i + 1 < argc)
			only = argv[++i];
		else
			return usage();
	}
	say_repeat_when_it_crashes();
	world = vb_cm_world_create();
	other_world = vb_cm_world_create();
	good = run_all(first, seeds, plans, only);
	vb_cm_world_destroy(world);
	vb_cm_world_destroy(other_world);
	return good ? 0 : 1;
}
