/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * local.c - the carrier between the processes of one host, and within one: its life and its ops.
 *
 * A packet's destination is the slot in its QPN; of a packet to QP 1, the process to which its MAD
 * belongs (mad_route.h), and ourselves where it belongs to nobody. Sending copies it into the ring
 * to that slot and rings a doorbell; polling looks at one word and, when it is not zero, at the
 * rings that it names. There is no batch: flush has nothing to do. local_private.h shows the shared
 * memory, local_ring.c the frames.
 */
#define _GNU_SOURCE
#include "carrier/local_private.h"
#include "carrier/mad_route.h"
#include "wire/mad.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#define WAITING_EVERY 64u /* polls between looks at the clock while a ring is full */

static struct vb_local *to_local(struct vb_carrier *carrier)
{
	return vb_container_of(carrier, struct vb_local, base);
}

/* Where a MAD goes. One that belongs to nobody alive is answered by ourselves, as it would be by
 * any process that gets it. */
static unsigned int gsi_slot(struct vb_local *local, const struct vb_tx *tx)
{
	uint8_t mad[VB_MAD_BYTES];
	size_t have = 0;
	uint16_t slot;

	for (int i = 0; i < tx->payload_parts && have < sizeof(mad); i++) {
		size_t n = VB_MIN(tx->payload[i].iov_len, sizeof(mad) - have);

		memcpy(mad + have, tx->payload[i].iov_base, n);
		have += n;
	}
	slot = vb_mad_route(local->registry, mad, have);
	return slot && vb_registry_is_alive(local->registry, slot) ? slot : local->slot;
}

/* tx_with_care - to a peer that was not met yet, or is to be looked at. */
static int tx_with_care(struct vb_local *local, unsigned int slot, const struct vb_tx *tx)
{
	struct vb_local_peer *peer;
	int r;

	if (tx->headers->qpn == VB_GSI_QPN)
		slot = gsi_slot(local, tx);
	if (slot == 0 || slot >= VB_REGISTRY_SLOTS)
		return -EHOSTUNREACH;
	peer = vb_local_peer(local, slot);
	if (!peer)
		return -ENOMEM;
	r = vb_local_peer_refresh(local, peer);
	if (r == 0 && peer->broken)
		r = -EIO;
	if (r == 0 && !peer->out.ring)
		r = vb_local_ring_create(local, peer);
	return r ? r : vb_local_ring_put(local, peer, tx);
}

static int local_tx(struct vb_carrier *carrier, const struct vb_path *path, const struct vb_tx *tx)
{
	struct vb_local *local = to_local(carrier);
	const unsigned int slot = (tx->headers->qpn & VB_QPN_MASK) >> VB_SLOT_SHIFT;
	struct vb_local_peer *peer = slot < VB_REGISTRY_SLOTS ? local->peers[slot] : NULL;
	int r;

	(void)path;
	if (__builtin_expect(peer && peer->out.ring && !peer->broken &&
				     ++peer->tx_count % VB_LOCAL_CLOCK_EVERY &&
				     vb_local_peer_is_good(peer),
			     1)) {
		r = vb_local_ring_put(local, peer, tx);
	} else {
		const int shield = vb_local_shield();

		r = tx_with_care(local, slot, tx);
		vb_local_unshield(shield);
	}
	if (r == 0)
		local->counters.tx_packets++;
	local->pace.spoke |= tx->payload_bytes > 0;
	return r;
}

/* may_go - the peer is good, having been looked at where that is due. */
static bool may_go(struct vb_local *local, struct vb_local_peer *peer)
{
	bool good;
	int shield;

	if (__builtin_expect(++peer->tx_count % VB_LOCAL_CLOCK_EVERY && vb_local_peer_is_good(peer),
			     1))
		return true;
	shield = vb_local_shield();
	good = vb_local_peer_refresh(local, peer) == 0;
	vb_local_unshield(shield);
	return good && !peer->broken && peer->out.ring;
}

/* The headers as a struct, which the long way wants: to a peer that was not met yet, or is gone. */
static int tx_short_with_care(struct vb_local *local, const struct vb_short *packet)
{
	const struct iovec iov = {(void *)(uintptr_t)packet->payload, packet->bytes};
	struct vb_headers headers;
	const struct vb_tx tx = {.headers = &headers,
				 .payload = &iov,
				 .payload_parts = packet->bytes > 0,
				 .payload_bytes = packet->bytes};
	uint8_t bytes[sizeof(packet->header) + 3] = {0}; /* the pad is a part of what is decoded */
	int used;

	memcpy(bytes, packet->header, sizeof(packet->header));
	used = vb_headers_decode(&headers, bytes, sizeof(bytes));
	return used < 0 ? used : local_tx(&local->base, NULL, &tx);
}

int vb_local_tx_short(struct vb_carrier *carrier, const struct vb_short *packet)
{
	struct vb_local *local = to_local(carrier);
	const unsigned int slot = packet->qpn >> VB_SLOT_SHIFT;
	struct vb_local_peer *peer = slot < VB_REGISTRY_SLOTS ? local->peers[slot] : NULL;

	if (__builtin_expect(!peer || !peer->out.ring || peer->broken || !may_go(local, peer) ||
				     !vb_local_ring_put_short(local, peer, packet),
			     0))
		return tx_short_with_care(local, packet);
	local->counters.tx_packets++;
	local->pace.spoke |= packet->bytes > 0;
	return 0;
}

static void local_flush(struct vb_carrier *carrier)
{
	(void)carrier; /* each packet was on its way when tx returned */
}

/* The first slot at or behind from, in a circle, that waits to be looked at. Some slot does. */
static unsigned int next_pending(const struct vb_local *local, unsigned int from)
{
	unsigned int w = from / 64;
	uint64_t bits = local->pending[w] >> (from % 64) << (from % 64);

	while (!bits) {
		w = (w + 1) % 8;
		bits = local->pending[w];
	}
	return w * 64 + (unsigned int)__builtin_ctzll(bits);
}

static void clear_pending(struct vb_local *local, unsigned int slot)
{
	local->pending[slot / 64] &= ~(1ull << (slot % 64));
}

/* Recomputes the summary; returns whether any slot is pending. */
static bool any_pending(struct vb_local *local)
{
	unsigned int w;

	for (w = 0; w < 8; w++)
		if (local->pending[w])
			return true;
	local->pending_summary = 0;
	return false;
}

/* One slot's turn: it sent something, or made room, or left. */
static int serve(struct vb_local *local, unsigned int slot, int budget, bool *room, bool *more)
{
	struct vb_local_peer *peer = NULL;

	*more = false;
	if (slot != 0 && slot < VB_REGISTRY_SLOTS)
		peer = vb_local_peer(local, slot);
	if (!peer)
		return 0;
	if (peer->out.waiting && vb_local_ring_has_room(local, peer))
		*room = true;
	return vb_local_ring_drain(local, peer, budget, more);
}

static void look_after_waiting(struct vb_local *local)
{
	uint64_t now_ms = vb_local_now_ms();
	unsigned int w;

	if (now_ms - local->waiting_checked_ms < VB_LOCAL_STALE_MS)
		return;
	local->waiting_checked_ms = now_ms;
	vb_local_check_waiting(local);
	if (!local->retries)
		return;
	local->retries = false;
	for (w = 0; w < 8; w++) {
		local->pending[w] |= local->retry[w];
		local->pending_summary |= local->retry[w] ? 1u << w : 0;
		local->retry[w] = 0;
	}
}

/* The rings that are followed; reading one may end that, and another takes its place. */
static int serve_followed(struct vb_local *local, int budget)
{
	int count = 0;
	bool more;

	for (unsigned int i = 0; i < local->followed_count && count < budget;) {
		struct vb_local_peer *peer = local->followed[i];

		if (vb_local_ring_has_news(&peer->in))
			count += vb_local_ring_drain(local, peer,
						     VB_MIN(budget - count, VB_LOCAL_TURN), &more);
		i += i < local->followed_count && local->followed[i] == peer;
	}
	return count;
}

static int local_poll(struct vb_carrier *carrier, int budget, bool *room)
{
	struct vb_local *local = to_local(carrier);
	int turns, count;

	if (vb_local_is_quiet(local))
		return 0;
	if (local->lent_looks)
		vb_local_help(local);
	count = serve_followed(local, budget);
	if (__atomic_load_n(&local->bell->summary, __ATOMIC_RELAXED))
		vb_local_bell_take(local);
	if ((local->waiting || local->retries) && local->waiting_polls++ % WAITING_EVERY == 0)
		look_after_waiting(local);
	for (turns = 0; count < budget && turns < budget + VB_LOCAL_TURN && local->pending_summary;
	     turns++) {
		unsigned int slot;
		bool more;

		if (!any_pending(local))
			break;
		slot = next_pending(local, local->next_slot);
		count += serve(local, slot, VB_MIN(budget - count, VB_LOCAL_TURN), room, &more);
		if (!more)
			clear_pending(local, slot);
		local->next_slot = (slot + 1) % 512;
	}
	(void)any_pending(local);
	if (local->room_due) {
		local->room_due = false;
		*room = true;
	}
	return count;
}

/* Unmaps and closes what belongs to the carrier alone. */
static void release(struct vb_local *local)
{
	unsigned int slot;

	for (slot = 0; slot <= VB_REGISTRY_SLOTS; slot++) {
		struct vb_local_peer *peer = local->peers[slot];

		if (local->watch[slot].segment)
			munmap((void *)(uintptr_t)local->watch[slot].segment, VB_LOCAL_WATCH_BYTES);
		if (!peer)
			continue;
		vb_local_ring_unmap(peer->in.ring);
		vb_local_ring_unmap(peer->out.ring);
		vb_local_shared_drop(peer);
		if (peer->segment && slot != local->slot)
			munmap((void *)(uintptr_t)peer->segment, VB_SEGMENT_BYTES);
		if (peer->bell && slot != local->slot)
			munmap(peer->bell, VB_LOCAL_BELL_FILE);
		free(peer);
	}
	vb_local_bell_finish(local);
	pthread_mutex_destroy(&local->tables_lock);
	pthread_mutex_destroy(&local->watch_lock);
	free(local);
}

static void local_destroy(struct vb_carrier *carrier)
{
	struct vb_local *local = to_local(carrier);
	unsigned int slot;

	__atomic_store_n(&local->area->id, 0, __ATOMIC_SEQ_CST); /* from here on nobody finds us */
	for (slot = 1; slot < VB_REGISTRY_SLOTS; slot++)
		if (local->peers[slot])
			vb_local_peer_drop(local, local->peers[slot]);
	vb_registry_file_remove(local->registry, VB_FILE_BELL, 0);
	release(local);
}

static const struct vb_carrier_ops local_ops = {
	.name = "local",
	.tx = local_tx,
	.flush = local_flush,
	.poll = local_poll,
	.arm = vb_local_arm,
	.disarm = vb_local_disarm,
	.destroy = local_destroy,
};

/* The area may hold what an earlier carrier of this process wrote: empties what was ever written.
 */
static int prepare_area(struct vb_local *local)
{
	struct vb_local_area *area = local->area;
	const size_t hot = offsetof(struct vb_local_area, qps);
	int r = vb_registry_reserve(local->registry, VB_FILE_PAGE, hot);

	if (r)
		return r;
	memset(area, 0, hot);
	if (madvise(area->qps, sizeof(area->qps), MADV_REMOVE) ||
	    madvise(area->mrs, sizeof(area->mrs), MADV_REMOVE))
		return -errno; /* they become holes again, as the bitmaps now say */
	area->version = VB_LOCAL_VERSION;
	return 0;
}

int vb_local_create(struct vb_carrier **out, struct vb_registry *registry, vb_deliver_fn deliver,
		    void *env)
{
	struct vb_local *local = calloc(1, sizeof(*local));
	uint64_t id;
	int r;

	if (!local)
		return -ENOMEM;
	local->base =
		(struct vb_carrier){.ops = &local_ops, .deliver = deliver, .env = env, .fd = -1};
	local->registry = registry;
	local->slot = registry->slot;
	local->wake_fd = local->timer_fd = -1;
	local->barriers = vb_local_take_part_in_barriers();
	local->area =
		(struct vb_local_area *)((uint8_t *)vb_registry_segment(registry) + VB_FILE_PAGE);
	local->page = (size_t)sysconf(_SC_PAGESIZE);
	local->swept_ms = vb_local_now_ms();
	pthread_mutex_init(&local->tables_lock, NULL);
	pthread_mutex_init(&local->watch_lock, NULL);
	r = -EBUSY; /* two carriers cannot share a slot */
	if (__atomic_load_n(&local->area->id, __ATOMIC_ACQUIRE))
		goto err_release;
	r = prepare_area(local);
	if (r == 0)
		r = vb_local_bell_create(local);
	if (r == 0 && getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
		r = -EIO;
	if (r)
		goto err_release;
	/* With Yama's ptrace_scope 1 a peer of our user may write our memory only if we say so;
	 * where there is no Yama this fails, and nothing is needed. */
	(void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	__atomic_store_n(&local->area->id, id | 1, __ATOMIC_SEQ_CST);
	*out = &local->base;
	return 0;

err_release:
	release(local);
	return r;
}

void vb_local_drop_in_child(struct vb_carrier *carrier)
{
	struct vb_local *local = to_local(carrier);

	/* The parent's threads may have held them. */
	pthread_mutex_init(&local->tables_lock, NULL);
	pthread_mutex_init(&local->watch_lock, NULL);
	release(local);
}

void vb_local_route(struct vb_carrier *carrier, struct vb_path *path)
{
	path->segment_max = VB_LOCAL_SEGMENT;
	path->own_segment = true;
	path->window = path->pace = 0;
	path->direct = true;
	path->lend_from = VB_LOCAL_LEND_FROM;
	path->carrier = carrier;
	path->peer = NULL;
	memset(path->word, 0, sizeof(path->word));
}

void vb_local_use_shared(struct vb_carrier *carrier)
{
	to_local(carrier)->use_shared = true;
}

void vb_local_read_counters(const struct vb_carrier *carrier, struct vb_local_counters *out)
{
	*out = vb_container_of(carrier, const struct vb_local, base)->counters;
}
