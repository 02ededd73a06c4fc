/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * registry.h - the processes of one virtual host, found through files in shared memory.
 *
 *      /dev/shm/verbena-<uid>/<netns>-<address>/     mode 0700, checked
 *          reg       one byte per slot, held by a POSIX record lock while its process lives;
 *                    and a small shared table (struct vb_registry_shared) behind it
 *          ports     which process has which RDMA port (ports.h)
 *          seg.<N>   the segment of slot N: written by its owner, mapped read-only by the others
 *
 * Nothing in it needs a dead process to finish: the kernel frees a dead process's lock, and whoever
 * takes the lock of a slot cleans what was left there. Everything read from another process's
 * segment is checked before use.
 *
 * One registry object per process and address; it must be the only code that opens `reg`, since
 * closing any other descriptor of that file would drop the lock.
 */
#ifndef VB_REGISTRY_REGISTRY_H
#define VB_REGISTRY_REGISTRY_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"

#define VB_REGISTRY_SLOTS                                                                          \
	511u /* usable slots are 1 .. 510: QPN bits 23-15; 0 holds QP0 and QP1, 511 probes */
#define VB_SLOT_SHIFT 15u

#define VB_REGISTRY_TRAFFIC 16u /* counters of what passes a port; host/traffic.h names them */
#define VB_REGISTRY_PORTS 16u /* bound addresses that one host may have */

/* One SO_REUSEPORT group, that is one bound address: which slot each index of the group belongs to.
 * carrier/steering.c keeps it. */
struct vb_registry_port {
	struct in6_addr address; /* IPv4 mapped; the entry is free while count is 0 */
	uint32_t scope_id;
	uint32_t generation; /* counts changes of the membership */
	uint64_t probe;	     /* random number of the latest probes: what others send is no probe */
	uint32_t count;
	uint16_t slot[VB_REGISTRY_SLOTS]; /* 0: not known whose index this is */
};

/* Written under vb_registry_lock() by any process of the host; a reader checks every value. */
struct vb_registry_shared {
	uint32_t magic, version;
	struct vb_registry_port port[VB_REGISTRY_PORTS];
	/* Of the process that joined the groups from a slot: a random number that tells it from
	 * those before and after it, and names its socket for packets that reached another process.
	 */
	uint64_t member_key[VB_REGISTRY_SLOTS];
	/* What a slot's owners have counted, written by the present one without the lock; and what the
	 * port's counters, short and extended, leave out of the sum since they were last set. */
	uint64_t traffic[VB_REGISTRY_SLOTS][VB_REGISTRY_TRAFFIC];
	uint64_t traffic_behind[2][VB_REGISTRY_TRAFFIC];
};

struct vb_registry {
	uint16_t slot;	   /* ours, 1 .. 510 */
	uint64_t instance; /* random, tells two owners of one slot apart */
	struct in6_addr address;
	struct vb_registry_shared *shared;
	/* the rest is registry.c's own; see registry_private.h */
	struct vb_registry_private *private_data;
};

/* vb_registry_join - takes a free slot of address's host and makes the segment. 0, or -errno:
 * -ENOSPC all slots taken, -EACCES the directory is not ours or its mode is wrong, others from the
 * system. */
int vb_registry_join(struct vb_registry **out, const struct in6_addr *address) VB_MUST_USE;

/* vb_registry_peek - what the processes of a host have counted (sum), and what its port's counters
 * leave out (behind), without joining. 0; -ENOENT: nobody is there; other -errno. */
int vb_registry_peek(const struct in6_addr *address, uint64_t sum[VB_REGISTRY_TRAFFIC],
		     uint64_t behind[2][VB_REGISTRY_TRAFFIC]) VB_MUST_USE;

/* vb_registry_leave - frees the slot and removes the segment. NULL is accepted. */
void vb_registry_leave(struct vb_registry *registry);

/* vb_registry_drop_in_child - after fork, in the child: unmaps and closes, without touching the
 * parent's slot. */
void vb_registry_drop_in_child(struct vb_registry *registry);

/* vb_registry_lock - one process at a time works on shared; freed by the kernel when the holder
 * dies. */
int vb_registry_lock(struct vb_registry *registry) VB_MUST_USE;
/* vb_registry_lock_within - the same for those who cannot wait long: -ETIMEDOUT. */
int vb_registry_lock_within(struct vb_registry *registry, unsigned int wait_ms) VB_MUST_USE;
void vb_registry_unlock(struct vb_registry *registry);

/* vb_registry_is_alive - whether a process holds that slot now (its lock, not its word). */
bool vb_registry_is_alive(struct vb_registry *registry, uint16_t slot);

/* vb_registry_pid - the process of a slot, 0 when unknown. */
pid_t vb_registry_pid(struct vb_registry *registry, uint16_t slot);

#endif
