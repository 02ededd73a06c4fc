/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * local_private.h - the shared memory of the local carrier, and what its files offer each other.
 *
 *   local.c         create, destroy, the carrier's ops
 *   local_peer.c    other processes: finding them, noticing that they are gone, housekeeping
 *   local_ring.c    packets into and out of a ring
 *   local_bell.c    doorbells, sleeping and waking
 *   local_follow.c  doing without doorbells while the consumer looks anyway
 *   local_tables.c  publishing regions and queue pairs
 *   local_hazard.c  waiting for accesses in flight
 *   local_direct.c  the initiator's own WRITE and READ
 *   local_together.c  the same of what a peer lent, by both at once
 *   local_life.c    whether a peer's process is still the one that it was
 *   local_share.c   the same, and atomics, in pages that both have mapped
 *
 * Who writes what:
 *
 *      process N                                         process M
 *      seg.N   hazard, tables, consumed[]   <- reads --  every peer
 *      ring.N.M   frames, want              <- reads --  M
 *      bell.N  summary, word[], armed, accessors, target, fetch  <- reads and writes: N and peers
 *
 * So nobody but a process itself writes its ring positions, tables and hazards, and a ring has one
 * producer and one consumer: nothing waits for a process that died. Everything read from another
 * process is masked or checked, and what decides is read once.
 */
#ifndef VB_CARRIER_LOCAL_PRIVATE_H
#define VB_CARRIER_LOCAL_PRIVATE_H

#include <pthread.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "carrier/local.h"
#include "registry/files.h"

#define VB_LOCAL_VERSION 7u
#define VB_LOCAL_RING_BYTES (256u << 10) /* 15 pieces of VB_LOCAL_SEGMENT; a power of two */
#define VB_LOCAL_RING_FILE (VB_FILE_PAGE + VB_LOCAL_RING_BYTES)
#define VB_LOCAL_BELL_FILE VB_FILE_PAGE
#define VB_LOCAL_WAKE_NAME_MAX 80u
#define VB_LOCAL_QPS (1u << 15) /* a QPN's bits below the slot */
#define VB_LOCAL_MRS (1u << 17) /* core/limits.h VB_MAX_MR_BITS */
#define VB_LOCAL_KEY_TAG_BITS 8 /* of an rkey, below its place; VB_KEY_TAG_BITS */
#define VB_LOCAL_STALE_MS 50u	/* how long a look at a peer's life is believed */
#define VB_LOCAL_CLOCK_EVERY                                                                       \
	16u /* packets to a peer, or copies, between looks at the clock for that */
#define VB_LOCAL_SWEEP_MS 1000u /* how often the rings to and from the dead are given back */
#define VB_LOCAL_WITHDRAW_MS 1000u
#define VB_LOCAL_DIRECT_MAX                                                                        \
	(1u << 20) /* bytes a call: a copy does not end when its target is killed */
#define VB_LOCAL_IOVECS 64
#define VB_LOCAL_TURN 32     /* packets of one ring before the next gets its turn */
#define VB_LOCAL_FOLLOWED 6u /* a look at them leaves room for others, and costs little */
#define VB_LOCAL_LENT_LOOKS                                                                        \
	4096u /* polls in vain until a peer is taken for one that fetches later */

/* --- shared memory ----------------------------------------------------------------------- */

/* How far the owner of the segment has read the ring from one slot. ring_id says of which ring;
 * followed is the same while that needs no doorbells (local_follow.c). */
struct vb_local_consumed {
	_Alignas(64) uint64_t ring_id;
	uint64_t head;
	uint64_t followed;
};

/* Entries are guarded by seq: odd while the owner writes, another even number after each change. A
 * reader that sees it odd or changed refuses. */
struct vb_local_qp_entry {
	_Alignas(32) uint32_t seq;
	uint32_t qpn, dest_qpn, pd_id, access, open;
};

struct vb_local_mr_entry {
	_Alignas(64) uint32_t seq;
	uint32_t rkey, pd_id, access;
	uint64_t addr, iova, length; /* length 0: nothing here */
	uint32_t qpn;
	uint64_t shared; /* VB_LOCAL_SHARED | where the region's first whole page is in the arena */
};
#define VB_LOCAL_SHARED 1ull

#define VB_LOCAL_QP_PAGES (VB_LOCAL_QPS * sizeof(struct vb_local_qp_entry) / VB_FILE_PAGE)
#define VB_LOCAL_MR_PAGES (VB_LOCAL_MRS * sizeof(struct vb_local_mr_entry) / VB_FILE_PAGE)

/* A segment behind its header page. */
struct vb_local_area {
	uint64_t id; /* random, of one carrier's life; 0: no carrier */
	uint32_t version;
	uint32_t wake_length;
	char wake_name[VB_LOCAL_WAKE_NAME_MAX]; /* abstract AF_UNIX address, without the leading 0
						 */
	/* The owner's memfd with shared pages: its number in /proc/<pid>/fd, and which file that
	 * must be. Written before the first entry that speaks of it; arena_bytes grows. */
	uint64_t arena_fd, arena_device, arena_inode, arena_bytes;
	/* What the owner is accessing right now: VB_HAZARD_VALID | destination QPN << 32 | rkey, or
	 * 0. One per process is enough: direct access happens under the engine's lock. */
	_Alignas(64) uint64_t hazard;
	/* Held by a thread of the owner's while that lives: local_life.c. */
	_Alignas(64) pthread_mutex_t life;
	/* Pages of the tables that are backed by memory. Nobody touches another: even reading a
	 * hole of a shared file takes memory, and kills with SIGBUS where there is none. */
	_Alignas(64) uint64_t qp_pages[VB_LOCAL_QP_PAGES / 64];
	uint64_t mr_pages[VB_LOCAL_MR_PAGES / 64];
	struct vb_local_consumed consumed[VB_REGISTRY_SLOTS + 1];
	_Alignas(4096) struct vb_local_qp_entry qps[VB_LOCAL_QPS];
	struct vb_local_mr_entry mrs[VB_LOCAL_MRS];
};
#define VB_HAZARD_VALID (1ull << 63)
#define VB_HAZARD_SLOT ((uint64_t)(VB_QPN_MASK >> VB_SLOT_SHIFT) << (32 + VB_SLOT_SHIFT))
#define VB_LOCAL_WATCH_BYTES (2 * VB_FILE_PAGE) /* of a segment: as far as the hazard */

_Static_assert(VB_FILE_PAGE + sizeof(struct vb_local_area) <= VB_SEGMENT_BYTES, "the area fits");
_Static_assert(offsetof(struct vb_local_area, hazard) + 8 <= VB_FILE_PAGE, "hazard is in view");

/* bell.N. A bit of word[] says that the ring from that slot has news, a bit of summary that the
 * word has bits. All of it is a hint: a wrong bit costs a look into a ring. */
struct vb_local_bell {
	struct vb_file_header header;
	_Alignas(64) uint32_t summary;
	uint32_t armed; /* not 0: the owner sleeps, or is about to; another value each time */
	uint64_t word[8];
	/* Slots whose processes have ever accessed the owner's memory: whose hazards it looks at.
	 */
	_Alignas(64) uint64_t accessors[8];
	/* Where in another process the owner's copy goes to or comes from. The kernel reads it from
	 * here when the copy begins: a length that was made 0 before that stops a copy which its
	 * process was about to make when it was stopped (local_hazard.c). */
	_Alignas(64) struct iovec target[2];
	uint32_t sharing; /* that copy is the owner's own, in shared pages, and can stop half way */
	/* What the owner is fetching, and the peer whose it is may help with: local_together.c. */
	_Alignas(64) struct {
		uint32_t job; /* 0: nothing */
		uint32_t bytes, qpn, dest_qpn, rkey;
		uint64_t va; /* of rkey, the helper's */
		uint64_t to; /* the owner's address */
	} fetch;
	_Alignas(64) uint64_t fetch_claim;  /* job << 32 | back << 16 | front */
	_Alignas(64) uint64_t fetch_helped; /* job << 32 | failed << 16 | count: the helper's */
};
_Static_assert(sizeof(struct vb_local_bell) <= VB_LOCAL_BELL_FILE, "one page");

/* ring.N.M: one page of this, then VB_LOCAL_RING_BYTES of frames; see local_ring.c */
struct vb_local_ring {
	struct vb_file_header header;
	uint64_t ring_id;	    /* random */
	uint64_t consumer_id;	    /* area id of the carrier that may read it */
	uint32_t barriers;	    /* the producer takes part in membarrier(2): local_follow.c */
	_Alignas(64) uint32_t want; /* changes when the producer waits for room */
};

/* --- one process's view ------------------------------------------------------------------ */

struct vb_local_out {
	struct vb_local_ring *ring; /* NULL: none */
	uint8_t *data;		    /* the frames, mapped twice in a row: no frame ever wraps */
	uint64_t ring_id;
	uint64_t tail;	 /* free running, bytes */
	uint64_t head;	 /* the consumer's, as last seen and checked */
	uint32_t needed; /* bytes of the packet that found no room */
	bool waiting;	 /* in carrier->waiting */
	bool bell_busy;	 /* the last doorbell was still standing: look before ringing */
};

struct vb_local_in {
	const struct vb_local_ring *ring; /* NULL: none */
	const uint8_t *data;
	uint64_t ring_id; /* also of the latest one, once it is closed: not to be read twice */
	uint64_t instance;
	uint64_t head;	    /* free running, bytes */
	uint64_t published; /* what consumed[] says */
	uint32_t want_served;
	bool corrupt;	    /* held nonsense: not read any more */
	bool producer_dead; /* was seen without its lock: release when empty */
	bool follows;	    /* is in local->followed */
	uint32_t arms;	    /* local->arms ... */
	uint32_t packets;   /* ... since when it has brought so many */
};

/* Another process of the host, or our own. Exists from the first contact to the carrier's end; what
 * it maps comes and goes. */
struct vb_local_peer {
	uint16_t slot;
	/* its view: NULL segment when there is none */
	const struct vb_file_header *segment;
	const struct vb_local_area *area;
	struct vb_local_bell *bell;
	uint64_t instance, id;
	uint64_t checked_ms;   /* when it was last seen alive */
	pid_t pid;	       /* 0: direct access is impossible */
	bool suspect;	       /* something failed: look before the next use */
	bool broken;	       /* wrote nonsense: nothing is sent to it */
	bool direct_forbidden; /* the kernel refused */
	bool announced;	       /* our bit stands in its accessors */
	/* Its arena, as far as it is mapped; NULL with bytes: mapping that much has failed. */
	uint8_t *arena;
	uint64_t arena_bytes;
	uint32_t tx_count, access_count;
	struct sockaddr_un wake;
	socklen_t wake_bytes;
	struct vb_local_out out;
	struct vb_local_in in;
};

/* A peer's hazard, for withdrawing; apart from the peers because it is used without the engine's
 * lock. */
struct vb_local_watch {
	const struct vb_file_header *segment; /* VB_LOCAL_WATCH_BYTES */
};

/* How often the rings that are followed are looked at: local_follow.c. */
struct vb_local_pace {
	bool spoke;    /* sent more than acknowledgements since it last found something */
	bool seldom;   /* leaves polls out ... */
	uint32_t left; /* ... so many now */
	uint64_t found_ns;
	uint32_t few;	/* looks in a row that found few packets */
	uint32_t tries; /* in a row that were in vain */
};

struct vb_local {
	struct vb_carrier base;
	struct vb_registry *registry;
	uint16_t slot;
	struct vb_local_area *area; /* ours */
	struct vb_local_bell *bell; /* ours */
	int wake_fd;		    /* bound abstract socket: wakes and is woken */
	int timer_fd;		    /* looks after a full ring whose consumer died */
	struct vb_local_peer *peers[VB_REGISTRY_SLOTS + 1];
	unsigned int waiting; /* peers with a packet that found no room */
	bool use_shared;
	size_t page;   /* the system's */
	bool room_due; /* one of them went away: the next poll says that there is room */
	/* While somebody waits or is to be tried again: when that was looked at. */
	uint32_t waiting_polls;
	uint64_t waiting_checked_ms;
	uint64_t swept_ms;
	uint32_t fetch_job;  /* the last one of ours: local_together.c */
	uint32_t lent_looks; /* that are left at whether the peer in this slot fetches */
	uint16_t lent_to;
	/* doorbells taken out of the shared page and not yet served */
	uint32_t pending_summary;
	uint64_t pending[8];
	uint64_t retry[8]; /* slots whose ring could not be opened for want of resources: try again
			    */
	bool retries;	   /* retry has bits */
	unsigned int next_slot; /* where the next poll begins, so that all get their turn */
	/* rings that are looked at without a doorbell: local_follow.c */
	struct vb_local_peer *followed[VB_LOCAL_FOLLOWED];
	unsigned int followed_count;
	uint32_t arms; /* times that we were about to sleep */
	bool barriers; /* membarrier(2) is to be had */
	struct vb_local_pace pace;
	struct vb_local_counters counters;

	pthread_mutex_t tables_lock; /* publishing and withdrawing */
	pthread_mutex_t watch_lock;
	struct vb_local_watch watch[VB_REGISTRY_SLOTS + 1];
};

/* vb_local_mr_index - a region's or window's place in the table of its owner. */
static inline uint32_t vb_local_mr_index(uint32_t rkey)
{
	return (rkey >> VB_LOCAL_KEY_TAG_BITS) % VB_LOCAL_MRS;
}

static inline uint64_t vb_local_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

/* vb_local_shield, vb_local_unshield - around what is a cancellation point: sending is none, and
 * the thread that sends holds the engine's lock. */
static inline int vb_local_shield(void)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	return state;
}

static inline void vb_local_unshield(int state)
{
	pthread_setcancelstate(state, NULL);
}

static inline bool vb_local_is_closed(const struct vb_file_header *header)
{
	return __atomic_load_n(&header->closed, __ATOMIC_ACQUIRE) != 0;
}

/* vb_local_hazard_slot - the target's slot within a hazard. */
static inline uint64_t vb_local_hazard_slot(uint16_t slot)
{
	return (uint64_t)slot << (32 + VB_SLOT_SHIFT);
}

/* local_peer.c */
/* vb_local_peer - the object of a slot, made if need be; NULL: no memory. */
struct vb_local_peer *vb_local_peer(struct vb_local *local, unsigned int slot);
/* vb_local_peer_view - maps what the peer published, unless that is mapped and has an owner. Costs
 * a system call only where something is wrong or new. 0; -EHOSTUNREACH: nobody is there; other
 * -errno. */
int vb_local_peer_view(struct vb_local *local, struct vb_local_peer *peer) VB_MUST_USE;
/* vb_local_peer_is_good - it has a view, which needs nothing of that. */
static inline bool vb_local_peer_is_good(const struct vb_local_peer *peer)
{
	return peer->segment && !peer->suspect && !vb_local_is_closed(peer->segment) &&
	       __atomic_load_n(&peer->area->id, __ATOMIC_ACQUIRE) == peer->id;
}
/* vb_local_peer_refresh - as above, and looks at its life when the last look is old. */
int vb_local_peer_refresh(struct vb_local *local, struct vb_local_peer *peer) VB_MUST_USE;
/* vb_local_peer_drop - forgets what was mapped for sending to it and accessing it. */
void vb_local_peer_drop(struct vb_local *local, struct vb_local_peer *peer);
/* vb_local_peer_recheck - with a view: whether its process still lives; drops the view when not. */
bool vb_local_peer_recheck(struct vb_local *local, struct vb_local_peer *peer);
/* vb_local_check_waiting - drops those who owe us room and are gone. */
void vb_local_check_waiting(struct vb_local *local);
/* vb_local_sweep - gives back the rings to and from the dead. */
void vb_local_sweep(struct vb_local *local);

/* local_ring.c */
int vb_local_ring_create(struct vb_local *local, struct vb_local_peer *peer) VB_MUST_USE;
void vb_local_ring_close_out(struct vb_local *local, struct vb_local_peer *peer);
/* vb_local_ring_put - one packet. 0, -EAGAIN, -EMSGSIZE, -EINVAL, -EIO. */
int vb_local_ring_put(struct vb_local *local, struct vb_local_peer *peer, const struct vb_tx *tx);
/* vb_local_ring_put_short - False: nothing happened, vb_local_ring_put() is to say why. */
bool vb_local_ring_put_short(struct vb_local *local, struct vb_local_peer *peer,
			     const struct vb_short *packet);
/* vb_local_ring_has_room - after -EAGAIN: whether the packet fits now; asks again when not. */
bool vb_local_ring_has_room(struct vb_local *local, struct vb_local_peer *peer);
/* vb_local_ring_drain - delivers up to budget packets. *more: it may hold more. */
int vb_local_ring_drain(struct vb_local *local, struct vb_local_peer *peer, int budget, bool *more);
void vb_local_ring_close_in(struct vb_local *local, struct vb_local_peer *peer);
/* vb_local_ring_unmap - NULL is accepted. */
void vb_local_ring_unmap(const struct vb_local_ring *ring);

/* vb_local_ring_has_news - of an open one: a packet, or nonsense, is next. */
static inline bool vb_local_ring_has_news(const struct vb_local_in *in)
{
	return __atomic_load_n(
		       (const uint64_t *)(const void *)(in->data + in->head % VB_LOCAL_RING_BYTES),
		       __ATOMIC_RELAXED) != 0;
}

/* local_follow.c */
bool vb_local_take_part_in_barriers(void);
/* vb_local_follow_if_busy - the open ring from the peer has just brought some packets. */
void vb_local_follow_if_busy(struct vb_local *local, struct vb_local_peer *peer, int packets);
/* vb_local_unfollow - the ring from the peer is not to be read any more. */
void vb_local_unfollow(struct vb_local *local, struct vb_local_peer *peer);
/* vb_local_unfollow_all - about to sleep: from here on everybody rings, and what came without is
 * pending. False: that is not certain yet. */
bool vb_local_unfollow_all(struct vb_local *local);
/* vb_local_is_followed - the peer looks at our ring to it by itself. The compiler must leave this
 * behind the frame's mark; that the processor does is local_follow.c's. */
static inline bool vb_local_is_followed(const struct vb_local *local,
					const struct vb_local_peer *peer)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(&peer->area->consumed[local->slot].followed, __ATOMIC_RELAXED) ==
	       peer->out.ring_id;
}
/* vb_local_followed_has_news - one of the rings that are followed has a packet. */
static inline bool vb_local_followed_has_news(const struct vb_local *local)
{
	for (unsigned int i = 0; i < local->followed_count; i++)
		if (vb_local_ring_has_news(&local->followed[i]->in))
			return true;
	return false;
}

/* vb_local_has_doorbells - something is to be done besides looking at those. */
static inline bool vb_local_has_doorbells(const struct vb_local *local)
{
	return __atomic_load_n(&local->bell->summary, __ATOMIC_RELAXED) | local->pending_summary |
	       local->waiting | local->lent_looks | (unsigned int)local->room_due |
	       (unsigned int)local->retries;
}
/* vb_local_is_quiet - a poll would find nothing and has nothing else to do. */
static inline bool vb_local_is_quiet(const struct vb_local *local)
{
	return !vb_local_has_doorbells(local) && !vb_local_followed_has_news(local);
}

/* local_hazard.c */
/* vb_local_wait_for_hazards - until no process that ever accessed our memory has a hazard set of
 * which the bits in mask are value. 0, or -EBUSY when that took too long. *worn as for
 * vb_local_withdraw_shared_mr, or NULL. With or without the engine's lock. */
int vb_local_wait_for_hazards(struct vb_local *local, uint64_t mask, uint64_t value,
			      bool *worn) VB_MUST_USE;

/* local_direct.c */
/* What a permission rests on: the peer's entries as they were; and the addresses whose pages are in
 * the peer's arena, none where both are 0. */
struct vb_local_grant {
	const uint32_t *qp_now, *mr_now;
	uint32_t qp_seq, mr_seq;
	uint64_t shared_from, shared_to, shared_at;
};
/* What somebody wants to access: of a queue pair, through the one that it is connected to. */
struct vb_local_wanted {
	uint32_t right; /* enum ibv_access_flags bits; 0 for what the owner lent */
	uint32_t qpn, dest_qpn, rkey;
	uint64_t va;
	uint32_t bytes;
};
/* vb_local_check_access - the address of the range in the memory of the area's process, or 0:
 * refused. The hazard stands already. in_place: the copy will be without the kernel. */
uint64_t vb_local_check_access(const struct vb_local *local, const struct vb_local_area *area,
			       bool in_place, const struct vb_local_wanted *wanted,
			       struct vb_local_grant *grant);
/* vb_local_accessible - the peer of a queue pair, seen alive a short while ago, and told to look at
 * our hazard. NULL with -errno in *why. */
struct vb_local_peer *vb_local_accessible(struct vb_local *local, uint32_t dest_qpn, ssize_t *why);
/* vb_local_set_hazard - from here on the owner waits for us: until the hazard is 0. */
void vb_local_set_hazard(struct vb_local *local, uint32_t dest_qpn, uint32_t rkey);
/* vb_local_copy_there - between the parts and an address of the peer's. */
ssize_t vb_local_copy_there(struct vb_local *local, struct vb_local_peer *peer, bool write,
			    uint64_t address, const struct iovec *parts, int count, uint32_t bytes,
			    const struct vb_local_grant *grant);
/* vb_local_copy - within what this process has mapped: WRITE puts the parts at `at`, the last bytes
 * last; READ fills them. */
void vb_local_copy(bool write, uint8_t *at, const struct iovec *parts, int count, uint32_t bytes);

/* local_together.c */
/* vb_local_copy_together - READs what is wanted, at the peer's address, into one part, of which the
 * peer writes some if it looks. The hazard stands. Bytes or -errno. */
ssize_t vb_local_copy_together(struct vb_local *local, struct vb_local_peer *peer,
			       const struct vb_local_wanted *wanted, uint64_t address,
			       const struct iovec *to, const struct vb_local_grant *grant);
/* vb_local_help - looks whether the peer that something was lent to last is fetching it. */
void vb_local_help(struct vb_local *local);

/* local_life.c */
/* vb_local_area_thread - a thread of the area's process, which has not ended, nor taken another
 * program's place; the process's first thread may have ended, and then has no memory. 0: it may be
 * that there is none. */
pid_t vb_local_area_thread(const struct vb_local_area *area);
static inline bool vb_local_area_lives(const struct vb_local_area *area)
{
	return vb_local_area_thread(area) != 0;
}

/* local_share.c */
/* vb_local_shared - where [at, at + bytes) of the peer's arena is mapped here; NULL: it is not. */
uint8_t *vb_local_shared(struct vb_local *local, struct vb_local_peer *peer, uint64_t at,
			 uint64_t bytes);
void vb_local_shared_drop(struct vb_local_peer *peer);

/* local_bell.c */
int vb_local_bell_create(struct vb_local *local) VB_MUST_USE;
void vb_local_bell_finish(struct vb_local *local);
/* vb_local_bell_ring - the ring from us to the peer has news, or the one from it has room. */
void vb_local_bell_ring(struct vb_local *local, struct vb_local_peer *peer);
/* vb_local_bell_leave - as above without waking: it finds out when it wakes. */
void vb_local_bell_leave(struct vb_local *local, struct vb_local_peer *peer);
/* vb_local_bell_take - moves the doorbells of the shared page to local->pending. */
void vb_local_bell_take(struct vb_local *local);
/* vb_local_bell_pend - a slot is to be looked at, without a doorbell. */
static inline void vb_local_bell_pend(struct vb_local *local, unsigned int slot)
{
	local->pending[slot / 64] |= 1ull << (slot % 64);
	local->pending_summary |= 1u << (slot / 64);
}
bool vb_local_arm(struct vb_carrier *carrier);
void vb_local_disarm(struct vb_carrier *carrier);

#endif
