/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * local_peer.c - the other processes of the host: what we map of them, and noticing that they are
 * gone.
 *
 * A view is the peer's segment and bell, mapped. It is valid while the segment has an owner: an
 * owner that leaves clears its area's id, and whoever takes a dead one's slot sets `closed` before
 * anything else, so that a new owner is never met through the view of the old one. That costs two
 * loads and no system call. Death without a successor is found by asking the kernel for the slot's
 * lock: at first use, before a direct copy unless local_life.c knows, after an error, when a ring
 * stays full, when the last look is VB_LOCAL_STALE_MS old (of a sender: every 16th packet asks the
 * clock), and in the sweep before sleeping.
 */
#include "carrier/local_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct vb_local_peer *vb_local_peer(struct vb_local *local, unsigned int slot)
{
	struct vb_local_peer *peer = local->peers[slot];

	if (peer)
		return peer;
	peer = calloc(1, sizeof(*peer));
	if (peer)
		peer->slot = (uint16_t)slot;
	local->peers[slot] = peer;
	return peer;
}

static int map_segment(struct vb_local *local, struct vb_local_peer *peer,
		       struct vb_file_header *header)
{
	void *map;
	int r, fd;

	fd = vb_registry_file_open(local->registry, VB_FILE_SEGMENT, peer->slot, 0,
				   VB_SEGMENT_BYTES, false, header);
	if (fd < 0)
		return fd;
	r = vb_file_map(fd, VB_SEGMENT_BYTES, false, &map);
	close(fd);
	if (r)
		return r;
	peer->segment = map;
	peer->area = (const struct vb_local_area *)((const uint8_t *)map + VB_FILE_PAGE);
	return 0;
}

static int map_bell(struct vb_local *local, struct vb_local_peer *peer, uint64_t instance)
{
	struct vb_file_header header;
	void *map;
	int r, fd;

	fd = vb_registry_file_open(local->registry, VB_FILE_BELL, peer->slot, 0, VB_LOCAL_BELL_FILE,
				   true, &header);
	if (fd < 0)
		return fd;
	r = header.instance == instance ? vb_file_map(fd, VB_LOCAL_BELL_FILE, true, &map)
					: -EHOSTUNREACH;
	close(fd);
	if (r == 0)
		peer->bell = map;
	return r;
}

/* Reads what the area says about its carrier; false: there is none, or one that we do not know. */
static bool read_area(struct vb_local_peer *peer)
{
	const struct vb_local_area *area = peer->area;
	uint32_t length;

	peer->id = __atomic_load_n(&area->id, __ATOMIC_ACQUIRE);
	length = __atomic_load_n(&area->wake_length, __ATOMIC_RELAXED);
	if (peer->id == 0 || length == 0 || length > VB_LOCAL_WAKE_NAME_MAX ||
	    __atomic_load_n(&area->version, __ATOMIC_RELAXED) != VB_LOCAL_VERSION)
		return false;
	memset(&peer->wake, 0, sizeof(peer->wake));
	peer->wake.sun_family = AF_UNIX;
	memcpy(&peer->wake.sun_path[1], area->wake_name, length);
	peer->wake_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
	return true;
}

/* Our own slot: the same view of what we have mapped anyway. */
static void view_ourselves(struct vb_local *local, struct vb_local_peer *peer)
{
	peer->segment = vb_registry_segment(local->registry);
	peer->area = local->area;
	peer->bell = local->bell;
	peer->pid = vb_registry_pid(local->registry, local->slot);
	peer->instance = local->registry->instance;
	(void)read_area(peer);
}

static int open_view(struct vb_local *local, struct vb_local_peer *peer)
{
	struct vb_file_header header;
	int r;

	peer->suspect = peer->broken = peer->direct_forbidden = peer->announced = false;
	peer->checked_ms = vb_local_now_ms();
	if (peer->slot == local->slot) {
		view_ourselves(local, peer);
		return 0;
	}
	if (!vb_registry_is_alive(local->registry, peer->slot))
		return -EHOSTUNREACH;
	peer->pid = vb_registry_pid(local->registry, peer->slot);
	r = map_segment(local, peer, &header);
	if (r == 0)
		r = map_bell(local, peer, header.instance);
	if (r == 0 && (vb_local_is_closed(peer->segment) || !read_area(peer)))
		r = -EHOSTUNREACH;
	/* In another PID namespace the owner's word for its PID and the kernel's cannot be
	 * compared, and writing into the memory of a wrong process is worse than not writing. */
	if (header.pid_ns == 0 || header.pid_ns != vb_registry_pid_ns(local->registry))
		peer->pid = 0;
	else if (r == 0 && (uint32_t)peer->pid != header.pid)
		r = -EHOSTUNREACH; /* the slot is just changing hands */
	if (r) {
		vb_local_peer_drop(local, peer);
		return r == -ENOENT ? -EHOSTUNREACH : r;
	}
	peer->instance = header.instance;
	return 0;
}

bool vb_local_peer_recheck(struct vb_local *local, struct vb_local_peer *peer)
{
	if (peer->slot == local->slot)
		return true;
	peer->suspect = false;
	peer->checked_ms = vb_local_now_ms();
	if (vb_registry_is_alive(local->registry, peer->slot) &&
	    (!peer->pid || vb_registry_pid(local->registry, peer->slot) == peer->pid) &&
	    !vb_local_is_closed(peer->segment))
		return true;
	vb_local_peer_drop(local, peer);
	return false;
}

int vb_local_peer_view(struct vb_local *local, struct vb_local_peer *peer)
{
	if (vb_local_peer_is_good(peer))
		return 0;
	if (peer->segment) {
		if (!vb_local_is_closed(peer->segment) &&
		    __atomic_load_n(&peer->area->id, __ATOMIC_ACQUIRE) == peer->id)
			return vb_local_peer_recheck(local, peer) ? 0 : -EHOSTUNREACH;
		vb_local_peer_drop(local, peer);
	}
	return open_view(local, peer);
}

int vb_local_peer_refresh(struct vb_local *local, struct vb_local_peer *peer)
{
	if (peer->segment && peer->slot != local->slot &&
	    vb_local_now_ms() - peer->checked_ms > VB_LOCAL_STALE_MS)
		peer->suspect = true;
	return vb_local_peer_view(local, peer);
}

void vb_local_peer_drop(struct vb_local *local, struct vb_local_peer *peer)
{
	if (peer->out.ring)
		vb_local_ring_close_out(local, peer);
	if (peer->slot != local->slot) {
		if (peer->segment)
			munmap((void *)(uintptr_t)peer->segment, VB_SEGMENT_BYTES);
		if (peer->bell)
			munmap(peer->bell, VB_LOCAL_BELL_FILE);
	}
	vb_local_shared_drop(peer);
	peer->segment = NULL;
	peer->area = NULL;
	peer->bell = NULL;
	peer->pid = 0;
}

void vb_local_check_waiting(struct vb_local *local)
{
	unsigned int slot;

	for (slot = 1; slot < VB_REGISTRY_SLOTS; slot++) {
		struct vb_local_peer *peer = local->peers[slot];

		/* A peer that is gone is dropped there, and with it what waits. */
		if (peer && peer->out.waiting && vb_local_peer_refresh(local, peer))
			continue;
	}
}

void vb_local_sweep(struct vb_local *local)
{
	unsigned int slot;

	local->swept_ms = vb_local_now_ms();
	for (slot = 1; slot < VB_REGISTRY_SLOTS; slot++) {
		struct vb_local_peer *peer = local->peers[slot];

		if (!peer)
			continue;
		if (peer->segment)
			(void)vb_local_peer_recheck(local, peer);
		if (!peer->in.ring)
			continue;
		if (vb_local_is_closed(&peer->in.ring->header) ||
		    !vb_registry_is_alive(local->registry, (uint16_t)slot)) {
			peer->in.producer_dead = true;
			vb_local_bell_pend(local, slot); /* what it still said is delivered first */
		}
	}
}
