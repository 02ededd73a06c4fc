/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim.h - virtual time: one seed, one clock, one heap of events.
 *
 * Everything that happens in a simulation is an event of the heap; the clock jumps from one to the
 * next, and equal times run in the order in which they were scheduled. Every random choice comes
 * from the one generator that the seed starts, and every event is mixed into a hash, so that two
 * runs of one seed either have the same hash or show that something outside the seed crept in (a
 * pointer, a clock, memory that nobody wrote).
 *
 * The first thing that is wrong is kept as a sentence (vb_sim_fail) and ends the run.
 */
#ifndef VB_SIM_SIM_H
#define VB_SIM_SIM_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

#define VB_MILLION 1000000u

/* xoshiro256**, seeded by splitmix64 (both public domain algorithms of Blackman and Vigna). */
struct vb_rng {
	uint64_t s[4];
};

void vb_rng_seed(struct vb_rng *rng, uint64_t seed);
uint64_t vb_rng_next(struct vb_rng *rng);
/* vb_rng_below - 0 .. n - 1; n > 0. */
uint32_t vb_rng_below(struct vb_rng *rng, uint32_t n);
/* vb_rng_between - low .. high, both included. */
uint64_t vb_rng_between(struct vb_rng *rng, uint64_t low, uint64_t high);
/* vb_rng_chance - true so many times in a million. Draws nothing when per_million is 0. */
bool vb_rng_chance(struct vb_rng *rng, uint32_t per_million);

/* vb_sim_fn - what an event does. word and data are those given to vb_sim_at; data is freed
 * afterwards. */
typedef void (*vb_sim_fn)(void *object, uint64_t word, void *data);

struct vb_sim_event {
	uint64_t at_ns;
	uint64_t order; /* breaks ties: first scheduled, first run */
	vb_sim_fn run;
	void *object;
	uint64_t word;
	void *data; /* from malloc or NULL; the event owns it */
};

struct vb_sim {
	uint64_t seed;
	uint64_t now_ns;
	uint64_t hash;
	uint64_t events; /* that ran */
	uint64_t order;
	struct vb_rng rng;
	struct vb_sim_event *heap;
	uint32_t count, room;
	bool trace; /* say everything on standard output */
	bool failed;
	char failure[512];
};

void vb_sim_init(struct vb_sim *sim, uint64_t seed);
/* vb_sim_finish - drops the events that wait, with their data. */
void vb_sim_finish(struct vb_sim *sim);

/* vb_sim_at - schedules an event at a time that is not past. */
void vb_sim_at(struct vb_sim *sim, uint64_t at_ns, vb_sim_fn run, void *object, uint64_t word,
	       void *data);

/* vb_sim_step - runs the next event. False: none is left, or the simulation has failed. */
bool vb_sim_step(struct vb_sim *sim);

/* vb_sim_next - the time of the next event, UINT64_MAX: none. */
uint64_t vb_sim_next(const struct vb_sim *sim);

/* vb_sim_mix - adds a fact to the event hash, together with the time. */
void vb_sim_mix(struct vb_sim *sim, uint32_t kind, uint64_t a, uint64_t b);

/* vb_sim_fail - the run is wrong, and why; only the first sentence is kept. */
void vb_sim_fail(struct vb_sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* vb_sim_say - a line with the time, when tracing. */
void vb_sim_say(const struct vb_sim *sim, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
