/* SPDX-License-Identifier: BSD-2-Clause */
/* test_sim.c - the simulator itself: time, order, chance, and what a link does to a packet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/node.h"
#include "sim/world.h"

#define EVENTS 1000

struct order {
	struct vb_sim *sim;
	uint64_t last_ns, last_word;
	uint32_t count;
};

static void note(void *object, uint64_t word, void *data)
{
	struct order *order = object;

	assert_int_equal(order->sim->now_ns, *(uint64_t *)data);
	assert_true(order->sim->now_ns >= order->last_ns);
	if (order->sim->now_ns == order->last_ns && order->count)
		assert_true(word > order->last_word); /* equal times: as they were scheduled */
	order->last_ns = order->sim->now_ns;
	order->last_word = word;
	order->count++;
}

static void events_in_order(void **state)
{
	struct vb_sim sim;
	struct order order = {.sim = &sim};

	vb_sim_init(&sim, 7);
	for (uint64_t i = 0; i < EVENTS; i++) {
		uint64_t *at = malloc(sizeof(*at));

		*at = vb_rng_below(&sim.rng, 50);
		vb_sim_at(&sim, *at, note, &order, i, at);
	}
	while (vb_sim_step(&sim))
		;
	assert_int_equal(order.count, EVENTS);
	assert_int_equal(vb_sim_next(&sim), UINT64_MAX);
	vb_sim_finish(&sim);
}

static void failure_ends_the_run(void **state)
{
	struct vb_sim sim;
	struct order order = {.sim = &sim};
	uint64_t *at = malloc(sizeof(*at));

	vb_sim_init(&sim, 7);
	vb_sim_at(&sim, 5, note, &order, 0, at);
	vb_sim_fail(&sim, "first %d", 1);
	vb_sim_fail(&sim, "second");
	assert_false(vb_sim_step(&sim));
	assert_int_equal(order.count, 0);
	assert_string_equal(sim.failure, "at 0.000 us: first 1");
	vb_sim_finish(&sim); /* frees what waits */
}

static void chances(void **state)
{
	struct vb_rng rng;
	uint32_t hits = 0, seen[6] = {0};

	vb_rng_seed(&rng, 1);
	for (uint32_t i = 0; i < 100000; i++)
		hits += vb_rng_chance(&rng, 250000);
	assert_in_range(hits, 24000, 26000);
	for (uint32_t i = 0; i < 6000; i++)
		seen[vb_rng_below(&rng, 6)]++;
	for (uint32_t i = 0; i < 6; i++)
		assert_in_range(seen[i], 850, 1150);
	for (uint32_t i = 0; i < 1000; i++)
		assert_in_range(vb_rng_between(&rng, 10, 12), 10, 12);
	assert_false(vb_rng_chance(&rng, 0));
	assert_true(vb_rng_chance(&rng, VB_MILLION));
}

/* --- links ------------------------------------------------------------------------------- */

static struct vb_sim_packet *packet_of(const struct vb_net *net, uint32_t size)
{
	struct vb_sim_packet *packet = calloc(1, sizeof(*packet) + size);

	packet->src = net->nodes[0].gid;
	packet->dst = net->nodes[1].gid;
	packet->size = size;
	return packet; /* its ICRC is wrong: the node counts it */
}

static void begin(struct vb_net *net)
{
	const struct vb_nic_config config = {0};

	vb_net_init(net, 3, 2, false, &config);
	net->links[0][1].rate = 1000000000;
	net->links[0][1].delay_ns = 7000;
}

static void link_rate_and_delay(void **state)
{
	struct vb_net net;
	/* 954 bytes and 46 of Ethernet, IPv4 and UDP: 1,000 bytes at 1 Gbit/s are 8 us. */
	const uint64_t one = 8000;

	begin(&net);
	for (int i = 0; i < 3; i++)
		vb_link_send(&net.links[0][1], packet_of(&net, 954));
	for (uint64_t i = 1; i <= 3; i++) {
		assert_int_equal(vb_sim_next(&net.sim), i * one + 7000);
		assert_int_equal(vb_net_in_flight(&net), 4 - i);
		vb_sim_step(&net.sim);
		assert_int_equal(net.nodes[1].count.bad_icrc, i);
	}
	vb_net_finish(&net);
}

static void link_queue(void **state)
{
	struct vb_net net;

	begin(&net);
	net.links[0][1].queue_ns = 20000; /* two and a half packets may be before it */
	for (int i = 0; i < 10; i++)
		vb_link_send(&net.links[0][1], packet_of(&net, 954));
	assert_int_equal(net.links[0][1].count.overflowed, 7);
	assert_int_equal(vb_net_in_flight(&net), 3);
	vb_net_finish(&net);
}

static void link_faults(void **state)
{
	struct vb_net net;
	struct vb_link *link = &net.links[0][1];

	begin(&net);
	link->faults = (struct vb_link_faults){.loss = 100000,
					       .duplicate = 200000,
					       .reorder = 300000,
					       .bit_error = 400000,
					       .reorder_ns = 1000};
	for (int i = 0; i < 1000; i++)
		vb_link_send(link, packet_of(&net, 100));
	assert_int_equal(link->count.lost + link->count.duplicated + link->count.reordered +
				 link->count.corrupted,
			 0); /* not switched on */
	vb_net_set_faulty(&net, true);
	for (int i = 0; i < 10000; i++)
		vb_link_send(link, packet_of(&net, 100));
	assert_in_range(link->count.lost, 850, 1150);
	assert_in_range(link->count.duplicated, 1600, 2000); /* of 9,000 */
	assert_in_range(link->count.reordered, 2450, 2950);
	assert_in_range(link->count.corrupted, 3300, 3900);
	assert_int_equal(vb_net_in_flight(&net), 11000 - link->count.lost + link->count.duplicated);
	vb_net_finish(&net);
}

/* --- worlds ------------------------------------------------------------------------------ */

/* One seed, one history; another seed, another. Memory of before must not matter. */
static void seed_is_replay(void **state)
{
	struct vb_world *world = vb_world_create();
	struct vb_world_stats stats = {0};
	uint64_t first, again, other;

	assert_true(vb_world_run(world, 42, false, &first, &stats));
	assert_true(vb_world_run(world, 43, false, &other, &stats));
	assert_true(vb_world_run(world, 42, false, &again, &stats));
	assert_true(first == again);
	assert_true(first != other);
	assert_int_equal(stats.seeds, 3);
	vb_world_destroy(world);
	vb_world_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_in_order), cmocka_unit_test(failure_ends_the_run),
		cmocka_unit_test(chances),	   cmocka_unit_test(link_rate_and_delay),
		cmocka_unit_test(link_queue),	   cmocka_unit_test(link_faults),
		cmocka_unit_test(seed_is_replay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
