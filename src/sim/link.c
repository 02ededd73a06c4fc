/* SPDX-License-Identifier: BSD-2-Clause */
/* link.c - a wire with a rate, a delay and faults. */
#include "sim/link.h"

#include <stdlib.h>
#include <string.h>

#include "sim/node.h"

#define WIRE_OVERHEAD 46 /* Ethernet, IPv4 and UDP headers and the frame check, bytes */

static void arrive(void *object, uint64_t word, void *data)
{
	struct vb_link *link = object;

	link->in_flight--;
	link->count.delivered++;
	vb_node_deliver(link->to, data);
}

static void schedule(struct vb_link *link, struct vb_sim_packet *packet, uint64_t at_ns)
{
	link->in_flight++;
	vb_sim_at(link->sim, at_ns, arrive, link, 0, packet);
}

static struct vb_sim_packet *copy_of(const struct vb_sim_packet *packet)
{
	struct vb_sim_packet *copy = malloc(sizeof(*copy) + packet->size);

	VB_ASSERT(copy);
	memcpy(copy, packet, sizeof(*copy) + packet->size);
	return copy;
}

/* One to three flipped bits: the ICRC finds every one of them. */
static void corrupt(struct vb_link *link, struct vb_sim_packet *packet)
{
	uint32_t flips = 1 + vb_rng_below(&link->sim->rng, 3);

	link->count.corrupted++;
	while (flips--)
		packet->bytes[vb_rng_below(&link->sim->rng, packet->size)] ^=
			(uint8_t)(1u << vb_rng_below(&link->sim->rng, 8));
}

static enum vb_verdict ask_filter(struct vb_link *link, const struct vb_sim_packet *packet)
{
	struct vb_headers h;
	int used;

	if (!link->filter)
		return VB_PASS;
	used = vb_headers_decode(&h, packet->bytes, packet->size - VB_ICRC_BYTES);
	VB_ASSERT(used > 0); /* our own NIC made it */
	return link->filter(link->filter_env, link, &h,
			    packet->size - VB_ICRC_BYTES - (uint32_t)used - h.pad);
}

void vb_link_send(struct vb_link *link, struct vb_sim_packet *packet)
{
	struct vb_sim *sim = link->sim;
	const struct vb_link_faults none = {0};
	const struct vb_link_faults *faults = link->faulty ? &link->faults : &none;
	enum vb_verdict verdict = ask_filter(link, packet);
	uint64_t start = VB_MAX(link->busy_until_ns, sim->now_ns), at;

	link->count.sent++;
	if (link->queue_ns && start - sim->now_ns > link->queue_ns) {
		link->count.overflowed++;
		vb_sim_say(sim, "       overflow");
		free(packet);
		return;
	}
	if (link->rate)
		start += (packet->size + WIRE_OVERHEAD) * 8ull * 1000000000ull / link->rate;
	link->busy_until_ns = start;
	at = start + link->delay_ns;
	if (link->cut || verdict == VB_DROP || vb_rng_chance(&sim->rng, faults->loss)) {
		link->count.lost++;
		vb_sim_say(sim, "       lost");
		free(packet);
		return;
	}
	if (verdict == VB_DUPLICATE || vb_rng_chance(&sim->rng, faults->duplicate)) {
		link->count.duplicated++;
		vb_sim_say(sim, "       duplicated");
		schedule(link, copy_of(packet),
			 at + vb_rng_between(&sim->rng, 0, faults->reorder_ns));
	}
	if (verdict == VB_CORRUPT || vb_rng_chance(&sim->rng, faults->bit_error)) {
		vb_sim_say(sim, "       corrupted");
		corrupt(link, packet);
	}
	if (vb_rng_chance(&sim->rng, faults->reorder)) {
		link->count.reordered++;
		at += vb_rng_between(&sim->rng, 1, faults->reorder_ns + 1);
		vb_sim_say(sim, "       reordered");
	}
	schedule(link, packet, at);
}
