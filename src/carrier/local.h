/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * local.h - between processes of one host (and within one): packets through rings in shared memory,
 * and the initiator's own copy for WRITE and READ.
 */
#ifndef VB_CARRIER_LOCAL_H
#define VB_CARRIER_LOCAL_H

#include <sys/types.h>
#include <sys/uio.h>

#include "carrier/carrier.h"
#include "registry/registry.h"

#define VB_LOCAL_SEGMENT 16384u	   /* payload bytes of one packet in a ring */
#define VB_LOCAL_LEND_FROM 524288u /* bytes of a message: one copy is faster than two from here */

int vb_local_create(struct vb_carrier **out, struct vb_registry *registry, vb_deliver_fn deliver,
		    void *env) VB_MUST_USE;
void vb_local_drop_in_child(struct vb_carrier *carrier);

/* vb_local_live - by a thread that lives as long as the process: its peers' copies then need not
 * ask the kernel whether that lives. vb_local_live_no_more - by the same thread, where it ends
 * before the carrier does. */
void vb_local_live(struct vb_carrier *carrier);
void vb_local_live_no_more(struct vb_carrier *carrier);

/* vb_local_tx_short - as ops->tx. */
int vb_local_tx_short(struct vb_carrier *carrier, const struct vb_short *packet);

/* vb_local_is_worth_a_look - of a program's poll: there is something, and what comes as a stream is
 * not looked at each time. Makes no system call. */
bool vb_local_is_worth_a_look(struct vb_carrier *carrier);
/* vb_local_has_something - a poll would find something, or has something else to do. */
bool vb_local_has_something(const struct vb_carrier *carrier);
/* vb_local_note_look - that it was, and what such a poll found. */
void vb_local_note_look(struct vb_carrier *carrier, int packets, uint64_t now_ns);

/* vb_local_route - fills path: segment_max, own_segment, direct. The slot is in each packet's QPN.
 */
void vb_local_route(struct vb_carrier *carrier, struct vb_path *path);

/* A memfd of this process, in which its shared pages are; the same at each mention, but for its
 * size, which may grow. */
struct vb_local_arena {
	int fd;
	uint64_t device, inode, bytes;
};

/* What other processes of the host may know of a region or a queue pair, to write and read without
 * us. */
struct vb_local_mr {
	uint32_t rkey, pd_id, access; /* enum ibv_access_flags bits */
	uint32_t qpn;		      /* the one queue pair that may name it; 0: any of the PD */
	uint64_t addr, iova, length;
	/* Whether the whole pages of the region are a memfd's, from shared_at on (page aligned). */
	bool shared;
	uint64_t shared_at;
	struct vb_local_arena arena;
};
struct vb_local_qp {
	uint32_t qpn, dest_qpn, pd_id, access;
	bool open; /* connected, in a state that takes requests (RTS) */
};

/* vb_local_publish_mr - makes the region reachable. 0; -ENOSPC: it stays reachable by packets only.
 */
int vb_local_publish_mr(struct vb_carrier *carrier, const struct vb_local_mr *mr);
/* vb_local_withdraw_mr - no new direct access starts; returns when none is under way: 0, or -EBUSY
 * when a live process kept one for longer than a bounded wait. Regions are withdrawn WITHOUT the
 * engine's lock. */
int vb_local_withdraw_mr(struct vb_carrier *carrier, uint32_t rkey);
/* vb_local_withdraw_shared_mr - the same of a region whose pages will be private again: a process
 * that was stopped half way is not waited for, and *worn says that it may still write to those of
 * the arena, and of the arena alone. */
int vb_local_withdraw_shared_mr(struct vb_carrier *carrier, uint32_t rkey, bool *worn);
/* vb_local_publish_qp - open false withdraws it: as above, but only marks; does not wait. */
void vb_local_publish_qp(struct vb_carrier *carrier, const struct vb_local_qp *qp);
/* vb_local_quiesce_qp - waits (bounded) until no direct access through this QP is under way. */
int vb_local_quiesce_qp(struct vb_carrier *carrier, uint32_t qpn);

/* vb_local_direct - the initiator's own copy. write: from local to the peer. Returns the bytes
 * moved (at most 1 MiB a call), or -errno: any doubt (unknown key or QP, rights, range, PD, dead or
 * foreign process, call forbidden) refuses, and the packets' way gives the peer's own verdict. */
ssize_t vb_local_direct(struct vb_carrier *carrier, bool write, uint32_t qpn, uint32_t dest_qpn,
			uint32_t rkey, uint64_t va, const struct iovec *local, int parts,
			uint32_t length);

/* vb_local_fetch - payload that the peer lent, into parts that hold as much: the same copy, from
 * whatever region the peer shows, whatever remote rights it has. 0 or -errno as above. */
int vb_local_fetch(struct vb_carrier *carrier, uint32_t qpn, uint32_t dest_qpn,
		   const struct vb_lent *lent, const struct iovec *to, int parts);

/* An atomic on eight bytes (IBTA 9.4.5). */
struct vb_local_atomic {
	bool swap; /* compare and swap, else fetch and add */
	uint32_t qpn, dest_qpn, rkey;
	uint64_t va, compare, swap_add;
};
/* vb_local_atomic - does it in the peer's shared pages: 0 with the word's value from before, or
 * -errno as above. */
int vb_local_atomic(struct vb_carrier *carrier, const struct vb_local_atomic *op, uint64_t *before);

/* vb_local_use_shared - accesses to peers' shared pages need no system call from here on. */
void vb_local_use_shared(struct vb_carrier *carrier);

struct vb_local_counters {
	uint64_t tx_packets, rx_packets, direct_writes, direct_reads, direct_refused, wakeups_sent;
	uint64_t fetched, fetch_refused, helped;
	uint64_t shared_accesses, shared_atomics; /* without a system call; the first are counted
						     above too */
};
void vb_local_read_counters(const struct vb_carrier *carrier, struct vb_local_counters *out);

#endif
