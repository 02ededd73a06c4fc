/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim_seeds.c - runs worlds: one seed, one random program on a random network, checked to the byte.
 *
 *	sim_seeds [--seeds N] [--first S] [--verbose]
 *
 * The first seed is fixed, so that a failure in a build is the same for everybody; --first moves on
 * to others. One seed in 64 runs twice and must have the same event hash.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "repeat.h"
#include "sim/world.h"

#define TWICE_EVERY 64
#define PROGRESS_NS 5000000000u

static const char *program;

static void begin_seed(uint64_t seed)
{
	snprintf(repeat, sizeof(repeat),
		 "seed %" PRIu64 " failed; repeat it with: %s --first %" PRIu64
		 " --seeds 1 --verbose\n",
		 seed, program, seed);
}

static bool run_seed(struct vb_world *world, uint64_t seed, bool trace, uint64_t *hash,
		     struct vb_world_stats *stats)
{
	if (vb_world_run(world, seed, trace, hash, stats))
		return true;
	say_repeat();
	fprintf(stderr, "%s\n", world->net.sim.failure);
	return false;
}

/* The same seed in memory that looks different must do the same. */
static bool run_again(uint64_t seed, uint64_t hash)
{
	struct vb_world_stats ignored = {0};
	struct vb_world *world = vb_world_create();
	uint64_t second;
	bool good;

	memset(world->arena, 0xa5, 4096);
	good = run_seed(world, seed, false, &second, &ignored);
	vb_world_destroy(world);
	if (good && second != hash) {
		say_repeat();
		fprintf(stderr, "two runs differ: event hash %016" PRIx64 " and %016" PRIx64 "\n",
			hash, second);
		return false;
	}
	return good;
}

static void print_stats(const struct vb_world_stats *s, uint64_t ns, uint64_t hash)
{
	printf("%" PRIu64 " seeds in %.1f s (%.1f s of virtual time): %" PRIu64
	       " requests, %" PRIu64 " messages, %" PRIu64 " MB, %" PRIu64 " events\n",
	       s->seeds, (double)ns / 1e9, (double)s->virtual_ns / 1e9, s->ops, s->messages,
	       s->bytes / 1000000, s->events);
	printf("  wire: %" PRIu64 " packets, %" PRIu64 " lost, %" PRIu64 " duplicated, %" PRIu64
	       " reordered, %" PRIu64 " corrupted, %" PRIu64 " overflowed, %" PRIu64 " forged\n",
	       s->packets, s->lost, s->duplicated, s->reordered, s->corrupted, s->overflowed,
	       s->forged);
	printf("  core: %" PRIu64 " go-backs, %" PRIu64 " timeouts, %" PRIu64 " NAKs, %" PRIu64
	       " RNR NAKs, %" PRIu64 " duplicates, %" PRIu64 " direct, %" PRIu64 " without room\n",
	       s->retries, s->timeouts, s->naks, s->rnr_naks, s->duplicates, s->direct, s->again);
	printf("  broken connections: %" PRIu64 ", retries exceeded: %" PRIu64 ", mischief:",
	       s->broken, s->retry_exceeded);
	for (enum vb_mischief m = VB_MISCHIEF_RKEY; m < VB_MISCHIEF_COUNT; m++)
		printf(" %s %" PRIu64 "%s", vb_mischief_name(m), s->mischief[m],
		       m + 1 < VB_MISCHIEF_COUNT ? "," : "");
	printf("\n  hash of all: %016" PRIx64 "\n", hash);
}

static int run_all(uint64_t first, uint64_t seeds, bool verbose)
{
	struct vb_world *world = vb_world_create();
	struct vb_world_stats stats = {0};
	uint64_t start = wall_ns(), said = start, hash, all = 0;

	for (uint64_t seed = first; seed < first + seeds; seed++) {
		begin_seed(seed);
		if (!run_seed(world, seed, verbose, &hash, &stats))
			return 1;
		if (seed % TWICE_EVERY == 0 && !run_again(seed, hash))
			return 1;
		all = all * 31 + hash;
		if (wall_ns() - said > PROGRESS_NS) {
			said = wall_ns();
			printf("%" PRIu64 " of %" PRIu64 " seeds, %.0f s\n", seed - first + 1,
			       seeds, (double)(said - start) / 1e9);
			fflush(stdout);
		}
	}
	print_stats(&stats, wall_ns() - start, all);
	vb_world_destroy(world);
	return 0;
}

static int usage(void)
{
	fprintf(stderr, "usage: %s [--seeds N] [--first S] [--verbose]\n", program);
	return 2;
}

int main(int argc, char **argv)
{
	uint64_t first = 1, seeds = 10000;
	bool verbose = false;

	program = argv[0];
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--verbose"))
			verbose = true;
		else if (!strcmp(argv[i], "--seeds") && i + 1 < argc)
			seeds = strtoull(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--first") && i + 1 < argc)
			first = strtoull(argv[++i], NULL, 0);
		else
			return usage();
	}
	say_repeat_when_it_crashes();
	return run_all(first, seeds, verbose);
}
