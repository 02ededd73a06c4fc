/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mr.h - protection domains and memory regions (IBTA 10.2.3, 10.6). Windows into them: mw.h.
 *
 * VB_MAX_MR_BITS bits in the middle of a key are a slot of the NIC's table, chosen at random among
 * the free ones; the bits around are random too, drawn anew at each registration. One region has
 * one slot and two keys: lkey and rkey differ in the random bits (unless the NIC is told to make
 * them equal), so that a program which swaps them is found out here. Looking up a key is one load
 * and one compare.
 *
 * A region says where its bytes lie: remote address iova + k is local address addr + k. Whether the
 * pages exist is checked by the host at registration; the core trusts addr. A region on demand is
 * not checked then, and never touched: the surroundings are asked whether its memory is there
 * (vb_nic_ops.present), and copy it (demand.h).
 */
#ifndef VB_CORE_MR_H
#define VB_CORE_MR_H

#include <stdbool.h>
#include <stdint.h>

#include "core/limits.h"
#include "core/reason.h"

struct vb_nic;

/* enum vb_access - numerically equal to enum ibv_access_flags. */
enum vb_access {
	VB_ACCESS_LOCAL_WRITE = 1 << 0,
	VB_ACCESS_REMOTE_WRITE = 1 << 1,
	VB_ACCESS_REMOTE_READ = 1 << 2,
	VB_ACCESS_REMOTE_ATOMIC = 1 << 3,
	VB_ACCESS_MW_BIND = 1 << 4,
	VB_ACCESS_ZERO_BASED = 1 << 5, /* of a window only */
	VB_ACCESS_ON_DEMAND = 1 << 6,
	/* not in every release's header: what a peer's FLUSH may ask for */
	VB_ACCESS_FLUSH_GLOBAL = 1 << 8,
	VB_ACCESS_FLUSH_PERSISTENT = 1 << 9,
};
/* In the rights that a lookup wants: the first VB_PRESENT_BYTES of the range are to be there, too.
 */
#define VB_WANT_PRESENT (1u << 31)
#define VB_PRESENT_BYTES 65536u /* more than a packet carries */
#define VB_ACCESS_REMOTE_ALL                                                                       \
	(VB_ACCESS_REMOTE_WRITE | VB_ACCESS_REMOTE_READ | VB_ACCESS_REMOTE_ATOMIC)

struct vb_pd {
	struct vb_nic *nic;
	uint32_t id;	/* unique among the NIC's PDs, never 0 */
	uint32_t users; /* MRs, MWs, QPs, SRQs and AHs that live in it */
};

enum vb_mr_kind {
	VB_MR_MEMORY,
	VB_MR_NULL,   /* reads as zeros, what is written is dropped; for SGEs only */
	VB_MR_WINDOW, /* in a struct vb_mw */
};

/* Whether payload in it may be lent to peers of the host (lend.c). The surroundings' to change. */
enum vb_lending { VB_LENT_NEVER_YET, VB_LENT, VB_LENT_NO_MORE };

struct vb_mr {
	struct vb_nic *nic;
	struct vb_pd *pd;
	uint8_t *addr;
	uint64_t iova;
	uint64_t length;
	uint32_t access; /* enum vb_access */
	uint32_t lkey, rkey;
	uint32_t qpn;	  /* the one QP that may name it (a window of type 2); 0: any of the PD */
	uint32_t windows; /* bound to it */
	enum vb_mr_kind kind;
	enum vb_lending lending;
	void *beside; /* the surroundings' own */
};

/* vb_key_slot - where the key's region or window stands in nic->mrs. */
static inline uint32_t vb_key_slot(uint32_t key)
{
	return key >> VB_KEY_TAG_BITS & ((1u << VB_MAX_MR_BITS) - 1);
}

/* vb_pd_create - a new protection domain. Returns NULL with errno ENOMEM at VB_MAX_PD. */
struct vb_pd *vb_pd_create(struct vb_nic *nic);

/* vb_pd_destroy - 0, or -EBUSY while anything lives in it. NULL is accepted. */
int vb_pd_destroy(struct vb_pd *pd);

/* vb_mr_create - registers addr[0..length) as iova[0..length). Refuses (NULL with errno EINVAL)
 * unknown access bits, REMOTE_WRITE or REMOTE_ATOMIC without LOCAL_WRITE (IBTA 10.6.3.1,
 * ibv_reg_mr(3)), and ranges that wrap; ENOMEM at VB_MAX_MR. */
struct vb_mr *vb_mr_create(struct vb_pd *pd, void *addr, uint64_t length, uint64_t iova,
			   uint32_t access);

/* vb_mr_create_again - the same for a region that has its keys already, from another NIC: it is
 * known by them here where their slot is free, else by keys of its own. */
struct vb_mr *vb_mr_create_again(struct vb_pd *pd, void *addr, uint64_t length, uint64_t iova,
				 uint32_t access, uint32_t lkey, uint32_t rkey);

/* vb_mr_create_null - the null region of a PD (ibv_alloc_null_mr(3)): any SGE of its lkey is in
 * range. Only the lkey is of use. ENOMEM as above. */
struct vb_mr *vb_mr_create_null(struct vb_pd *pd);

/* vb_mr_destroy - the keys are invalid from here on. NULL is accepted. 0, or -EBUSY while windows
 * are bound to it. */
int vb_mr_destroy(struct vb_mr *mr);

/* What ibv_rereg_mr(3) makes of a region. */
struct vb_mr_change {
	struct vb_pd *pd;
	void *addr;
	uint64_t length, iova;
	uint32_t access;
};
/* vb_mr_judge_change - 0; -EINVAL: what vb_mr_create would refuse, or a null region; -EBUSY:
 * windows are bound to it. */
int vb_mr_judge_change(const struct vb_mr *mr, const struct vb_mr_change *change);
/* vb_mr_change - as above, or -ENOMEM, and does it. The keys stay, as adapters have it and programs
 * expect. */
int vb_mr_change(struct vb_mr *mr, const struct vb_mr_change *change);

/* vb_mr_find - the region with this lkey; NULL. */
const struct vb_mr *vb_mr_find(const struct vb_nic *nic, uint32_t lkey);

/* vb_mr_local - the local address of an SGE, or NULL with the failed check and its values in
 * reason. A zero-length range needs no valid key. want is 0 (read) or VB_ACCESS_LOCAL_WRITE, with
 * VB_WANT_PRESENT. Of a null region it is an address of VB_NULL_BYTES zeros; what is to be written
 * there is dropped (vb_mr_is_null). */
uint8_t *vb_mr_local(struct vb_nic *nic, const struct vb_pd *pd, uint32_t lkey, uint64_t addr,
		     uint32_t length, uint32_t want, struct vb_reason *reason);

/* vb_mr_remote - the same for a peer's request to the queue pair qpn: rkey, remote address, rights.
 */
uint8_t *vb_mr_remote(struct vb_nic *nic, const struct vb_pd *pd, uint32_t qpn, uint32_t rkey,
		      uint64_t va, uint64_t length, uint32_t want, struct vb_reason *reason);

#define VB_NULL_BYTES (1u << 20) /* no packet and no piece of a copy is longer */
/* vb_mr_is_null - an address that vb_mr_local gave for a null region. */
bool vb_mr_is_null(const uint8_t *at);

/* Between mr.c and mw.c */
/* vb_mr_enter - gives it a slot and random keys, unless it brought good ones. -ENOMEM when count
 * reaches limit. */
int vb_mr_enter(struct vb_mr *mr, uint32_t *count, uint32_t limit);
void vb_mr_leave(struct vb_mr *mr, uint32_t *count);

/* vb_mr_remote_whole - the same for all of the key's region, wherever that lies. */
bool vb_mr_remote_whole(struct vb_nic *nic, const struct vb_pd *pd, uint32_t qpn, uint32_t rkey,
			uint32_t want, struct vb_reason *reason);

#endif
