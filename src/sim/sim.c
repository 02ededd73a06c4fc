/* SPDX-License-Identifier: BSD-2-Clause */
/* sim.c - the clock, the heap of events, the generator and the hash of a simulation. */
#include "sim/sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t rotate(uint64_t x, int bits)
{
	return x << bits | x >> (64 - bits);
}

void vb_rng_seed(struct vb_rng *rng, uint64_t seed)
{
	for (unsigned int i = 0; i < 4; i++) {
		uint64_t z = seed += 0x9e3779b97f4a7c15u;

		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
		z = (z ^ z >> 27) * 0x94d049bb133111ebu;
		rng->s[i] = z ^ z >> 31;
	}
}

uint64_t vb_rng_next(struct vb_rng *rng)
{
	uint64_t *s = rng->s;
	uint64_t result = rotate(s[1] * 5, 7) * 9;
	uint64_t t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotate(s[3], 45);
	return result;
}

uint32_t vb_rng_below(struct vb_rng *rng, uint32_t n)
{
	return (uint32_t)((vb_rng_next(rng) >> 32) * n >> 32);
}

uint64_t vb_rng_between(struct vb_rng *rng, uint64_t low, uint64_t high)
{
	return low + vb_rng_next(rng) % (high - low + 1);
}

bool vb_rng_chance(struct vb_rng *rng, uint32_t per_million)
{
	return per_million && vb_rng_below(rng, VB_MILLION) < per_million;
}

void vb_sim_init(struct vb_sim *sim, uint64_t seed)
{
	memset(sim, 0, sizeof(*sim));
	sim->seed = seed;
	sim->hash = seed ^ 0x6a09e667f3bcc908u;
	vb_rng_seed(&sim->rng, seed);
}

void vb_sim_finish(struct vb_sim *sim)
{
	for (uint32_t i = 0; i < sim->count; i++)
		free(sim->heap[i].data);
	free(sim->heap);
	sim->heap = NULL;
	sim->count = sim->room = 0;
}

static bool before(const struct vb_sim_event *a, const struct vb_sim_event *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

void vb_sim_at(struct vb_sim *sim, uint64_t at_ns, vb_sim_fn run, void *object, uint64_t word,
	       void *data)
{
	struct vb_sim_event event = {at_ns, sim->order++, run, object, word, data};
	uint32_t i;

	VB_ASSERT(at_ns >= sim->now_ns);
	if (sim->count == sim->room) {
		sim->room = sim->room ? 2 * sim->room : 64;
		sim->heap = realloc(sim->heap, sim->room * sizeof(*sim->heap));
		VB_ASSERT(sim->heap);
	}
	for (i = sim->count++; i && before(&event, &sim->heap[(i - 1) / 2]); i = (i - 1) / 2)
		sim->heap[i] = sim->heap[(i - 1) / 2];
	sim->heap[i] = event;
}

static struct vb_sim_event pop(struct vb_sim *sim)
{
	struct vb_sim_event first = sim->heap[0], last = sim->heap[--sim->count];
	uint32_t i = 0, child;

	while ((child = 2 * i + 1) < sim->count) {
		if (child + 1 < sim->count && before(&sim->heap[child + 1], &sim->heap[child]))
			child++;
		if (!before(&sim->heap[child], &last))
			break;
		sim->heap[i] = sim->heap[child];
		i = child;
	}
	sim->heap[i] = last;
	return first;
}

bool vb_sim_step(struct vb_sim *sim)
{
	struct vb_sim_event event;

	if (!sim->count || sim->failed)
		return false;
	event = pop(sim);
	sim->now_ns = event.at_ns;
	sim->events++;
	event.run(event.object, event.word, event.data);
	free(event.data);
	return !sim->failed;
}

uint64_t vb_sim_next(const struct vb_sim *sim)
{
	return sim->count ? sim->heap[0].at_ns : UINT64_MAX;
}

void vb_sim_mix(struct vb_sim *sim, uint32_t kind, uint64_t a, uint64_t b)
{
	const uint64_t words[] = {sim->now_ns, kind, a, b};

	for (unsigned int i = 0; i < VB_ARRAY_SIZE(words); i++) {
		sim->hash ^= words[i];
		sim->hash *= 0xff51afd7ed558ccdu;
		sim->hash ^= sim->hash >> 32;
	}
}

void vb_sim_fail(struct vb_sim *sim, const char *format, ...)
{
	va_list args;
	int n;

	if (sim->failed)
		return;
	sim->failed = true;
	n = snprintf(sim->failure, sizeof(sim->failure), "at %.3f us: ", (double)sim->now_ns / 1e3);
	va_start(args, format);
	vsnprintf(sim->failure + n, sizeof(sim->failure) - (size_t)n, format, args);
	va_end(args);
	vb_sim_say(sim, "FAILED: %s", sim->failure);
}

void vb_sim_say(const struct vb_sim *sim, const char *format, ...)
{
	va_list args;

	if (!sim->trace)
		return;
	printf("%14.3f  ", (double)sim->now_ns / 1e3);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}
