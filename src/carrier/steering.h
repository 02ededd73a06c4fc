/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * steering.h - which process of the host gets a packet that arrives on the shared port.
 *
 * All processes bind the same address and port with SO_REUSEPORT; the kernel keeps the sockets of
 * one bound address in an array and asks a classic-BPF program for an index. Ours looks at the
 * destination QPN, whose upper bits are the registry slot of the process:
 *
 *      BTH bytes 4-7:  | reserved 8 | slot 9 | QP 15 |
 *
 *      slot 511        the index itself (a probe, see below)
 *      a known slot    the index that the table in the registry gives
 *      anything else   the first index of one who stays
 *
 * A MAD for QP 1 that answers somebody names the slot too, as mad_route.h has it: the table then
 * holds for that. A request is "anything else", and its process hands it on (udp_stray.c).
 *
 * The kernel's array: who binds goes to the end; when a member closes or dies, the LAST one moves
 * into the hole. The table follows the same rule. It can be wrong for a moment (two died and we saw
 * them in the other order; a forked child still holds a dead one's socket), so that every change is
 * followed by probes: one small packet to each index. Who gets the probe for index i sits at index
 * i and says so in the table. Of several probes of one round only the first counts: an index past
 * the end of the kernel's array goes to a random member, and the true ones are sent first. A probe
 * comes from the address that it goes to, which no other host has; the random number of its round
 * says whether it still counts.
 *
 * Invariants: the table changes under vb_registry_lock() only, and each change ends with the
 * program attached again. A member dies at any instruction: its pidfd wakes those who watch it, the
 * first one takes it out. Everyone watches the next VB_STEERING_WATCHES slots after its own, in a
 * circle. Should all who watch it die too, the next join or the next stray packet finds out.
 *
 * Who leaves does it in two steps, so that nothing that waits in its socket is lost. First its
 * entry is marked: the program then gives it nothing that another could take, and it hands on what
 * is there. Then it closes and takes the entry out. Only a member can attach a program, so that the
 * others do it: until then the one who moved into the hole is missed, and strays find him.
 *
 * It does not move packets: a packet that reached the wrong process is udp_stray.c's.
 */
#ifndef VB_CARRIER_STEERING_H
#define VB_CARRIER_STEERING_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "registry/registry.h"

#define VB_STEERING_WATCHES 16u
#define VB_STEERING_GROUPS 16u
#define VB_PROBE_SLOT 511u
#define VB_PROBE_QPN (VB_PROBE_SLOT << VB_SLOT_SHIFT)
#define VB_PROBE_BYTES 24u
#define VB_STEERING_LEAVING 0x8000u /* the mark of an entry whose process is about to close */

/* One bound address. */
struct vb_steering_group {
	struct in6_addr address;
	uint32_t scope_id;
	int fd;			       /* the receive socket */
	int probe_fd;		       /* a socket of the same address to send probes from */
	struct vb_registry_port *port; /* our table while we are in it */
	uint32_t generation_seen;
	uint64_t probe_seen; /* the round of probes that was answered */
};

struct vb_steering_watch {
	uint16_t slot; /* 0: unused */
	int fd;	       /* pidfd */
	uint64_t key;  /* of the member when the watch began */
};

struct vb_steering {
	struct vb_registry *registry;
	int epoll_fd; /* the pidfds are added here, with data = watch_data | index */
	uint64_t watch_data;
	uint64_t key; /* ours, random */
	bool leaving;
	unsigned int group_count;
	struct vb_steering_group group[VB_STEERING_GROUPS];
	struct vb_steering_watch watch[VB_STEERING_WATCHES];
	uint64_t died[VB_REGISTRY_SLOTS]; /* keys of members whose pidfd said that they are dead */
	bool pending;			  /* something could not be done: sync again, and verify */
	uint64_t retry_after_ns, retry_wait_ns;
	uint64_t verify_after_ns, verify_wait_ns;
	uint64_t verifications; /* rounds of probes asked for because of strays */
};

/* vb_steering_init - joins nothing yet. 0, or -errno when there is no randomness. */
int vb_steering_init(struct vb_steering *s, struct vb_registry *registry, int epoll_fd,
		     uint64_t watch_data) VB_MUST_USE;

/* vb_steering_add - names an address before the join; fd is unbound, with SO_REUSEPORT set. */
void vb_steering_add(struct vb_steering *s, const struct in6_addr *address, uint32_t scope_id,
		     int fd, int probe_fd);

/* vb_steering_join - binds every fd and joins. 0 or -errno: -EADDRINUSE another user has the port,
 * -ENOSPC too many addresses on this host, -EADDRNOTAVAIL; the caller closes the sockets then. */
int vb_steering_join(struct vb_steering *s) VB_MUST_USE;

/* vb_steering_retire - the first step of leaving: from here on we get only what nobody else could
 * take. Returns the key of a member who stays, or 0. */
uint64_t vb_steering_retire(struct vb_steering *s);

/* vb_steering_leave - the second: closes the receive sockets and takes us out of every table. */
void vb_steering_leave(struct vb_steering *s);

/* vb_steering_drop_in_child - closes the pidfds; the sockets are the carrier's. */
void vb_steering_drop_in_child(struct vb_steering *s);

/* vb_steering_changed - cheap: whether others changed the membership since our last sync. */
static inline bool vb_steering_changed(const struct vb_steering *s)
{
	for (unsigned int i = 0; i < s->group_count; i++) {
		const struct vb_steering_group *g = &s->group[i];

		if (__atomic_load_n(&g->port->generation, __ATOMIC_RELAXED) != g->generation_seen)
			return true;
	}
	return false;
}

/* vb_steering_attach - makes the program follow the table; the caller has the lock. 0 or -errno. */
int vb_steering_attach(const struct vb_steering_group *g) VB_MUST_USE;

/* vb_steering_sync - takes the dead out, mends what is wrong about us, renews the watches. */
void vb_steering_sync(struct vb_steering *s);

/* vb_steering_on_death - the pidfd of watch[index] became readable. */
void vb_steering_on_death(struct vb_steering *s, unsigned int index);

/* vb_steering_on_probe - a packet of VB_PROBE_BYTES for a QPN of the probes' slot came in on
 * group's socket. False: it is none of our probes. One that is too late is ours, and does nothing.
 */
bool vb_steering_on_probe(struct vb_steering *s, unsigned int group, const struct in6_addr *from,
			  const uint8_t *packet);

/* vb_steering_on_stray - a packet for slot reached us. Returns the key of the member that it
 * belongs to, or 0; and, now and then, has the table verified. */
uint64_t vb_steering_on_stray(struct vb_steering *s, uint16_t slot);

#endif
