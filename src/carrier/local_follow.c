/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * local_follow.c - rings whose next mark their consumer looks at by itself, so that nobody rings.
 *
 * A doorbell costs its sender and its owner four atomic operations on lines that both write, more
 * than all the rest of a short message. While the consumer looks at its rings anyway, again and
 * again, it follows those that are busy:
 *
 *      producer                                consumer
 *      frame, then its mark                    follows: followed = the ring's id
 *      followed = the ring's id? -> done       look: a mark -> read the ring
 *      else ring the doorbell                  before it sleeps: followed = 0
 *                                              membarrier(2)
 *                                              look at the marks once more
 *
 * The producer has no barrier between its mark and its look at followed, which may thus come first:
 * that barrier is what the doorbell costs. The consumer makes it for both. Of a producer that saw
 * the old value before membarrier(2) the mark is visible behind it; any other rings.
 *
 * Only rings of producers are followed that take part (`barriers`), by consumers that may call it;
 * where the system forbids it meanwhile, the consumer does not sleep at once but looks once more a
 * turn later, when what a processor had not written yet has long been. A ring is busy that has
 * brought FOLLOW_AFTER packets since its consumer last armed: who sleeps between two messages has
 * doorbells as ever.
 *
 * A look takes the line of the next mark away from the producer, who is about to write there. A
 * consumer that looks without a pause at a stream finds one packet at a time, each with an
 * acknowledgement of its own, and both wait for each other's caches more than they work. So a
 * program that polls fast, gets packet after packet and says nothing itself looks at one poll in
 * SELDOM, as long as that brings several packets at once and soon. What it says ends that, since it
 * may be waiting for the answer.
 *
 *      few packets a look, ALONE_FIRST looks in a row --> one poll in SELDOM --- several: stays
 *                ^                                             |
 *                +---- few, POOR looks in a row; the next try comes later and later
 */
#define _GNU_SOURCE
#include "carrier/local_private.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FOLLOW_AFTER 64u
#define SELDOM 24u /* polls, of tens of nanoseconds each */
#define SEVERAL 3
#define ALONE_FIRST 64u
#define TRIES_MAX 10u
#define POOR 4u
#define SOON_NS 10000u /* between two looks that found something */

bool vb_local_take_part_in_barriers(void)
{
	return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void vb_local_follow_if_busy(struct vb_local *local, struct vb_local_peer *peer, int packets)
{
	struct vb_local_in *in = &peer->in;

	if (in->follows)
		return;
	if (in->arms != local->arms) {
		in->arms = local->arms;
		in->packets = 0;
	}
	in->packets += (unsigned int)packets;
	if (in->packets < FOLLOW_AFTER || local->followed_count == VB_LOCAL_FOLLOWED ||
	    !local->barriers || !in->ring->barriers ||
	    __atomic_load_n(&local->bell->armed, __ATOMIC_SEQ_CST))
		return; /* armed: the thread sleeps, and whoever looks now may stop to */
	in->follows = true;
	local->followed[local->followed_count++] = peer;
	__atomic_store_n(&local->area->consumed[peer->slot].followed, in->ring_id,
			 __ATOMIC_RELEASE);
}

void vb_local_unfollow(struct vb_local *local, struct vb_local_peer *peer)
{
	unsigned int i = 0;

	if (!peer->in.follows)
		return;
	peer->in.follows = false;
	__atomic_store_n(&local->area->consumed[peer->slot].followed, 0, __ATOMIC_SEQ_CST);
	while (local->followed[i] != peer)
		i++;
	local->followed[i] = local->followed[--local->followed_count];
}

bool vb_local_unfollow_all(struct vb_local *local)
{
	bool sure = true;

	local->arms++;
	if (local->followed_count == 0)
		return true;
	for (unsigned int i = 0; i < local->followed_count; i++)
		__atomic_store_n(&local->area->consumed[local->followed[i]->slot].followed, 0,
				 __ATOMIC_SEQ_CST);
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0))
		sure = local->barriers = false;
	while (local->followed_count > 0) {
		struct vb_local_peer *peer = local->followed[--local->followed_count];

		peer->in.follows = false;
		if (!sure || vb_local_ring_has_news(&peer->in))
			vb_local_bell_pend(local, peer->slot);
	}
	return sure;
}

void vb_local_note_look(struct vb_carrier *carrier, int packets, uint64_t now_ns)
{
	struct vb_local_pace *pace = &vb_container_of(carrier, struct vb_local, base)->pace;
	const bool few = packets < SEVERAL;
	const bool late = now_ns - pace->found_ns > SOON_NS;

	pace->found_ns = now_ns;
	if (pace->spoke || late) {
		*pace = (struct vb_local_pace){.found_ns = now_ns, .tries = pace->tries};
		return;
	}
	pace->few = few ? pace->few + 1 : 0;
	if (!pace->seldom) {
		pace->seldom = pace->few >= ALONE_FIRST << pace->tries;
		pace->few = pace->seldom ? 0 : pace->few;
	} else if (!few) {
		pace->tries = 0;
	} else if (pace->few == POOR) {
		pace->seldom = false;
		pace->few = 0;
		pace->tries = VB_MIN(pace->tries + 1, TRIES_MAX);
	}
	/* More than a turn: the rest waits already. */
	pace->left = pace->seldom && packets < VB_LOCAL_TURN ? SELDOM : 0;
}

bool vb_local_has_something(const struct vb_carrier *carrier)
{
	return !vb_local_is_quiet(vb_container_of(carrier, const struct vb_local, base));
}

bool vb_local_is_worth_a_look(struct vb_carrier *carrier)
{
	struct vb_local *local = vb_container_of(carrier, struct vb_local, base);
	struct vb_local_pace *pace = &local->pace;

	if (pace->left > 0 && !pace->spoke) {
		pace->left--;
		return vb_local_has_doorbells(local);
	}
	return !vb_local_is_quiet(local);
}
