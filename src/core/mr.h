/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mr.h - protection domains and memory regions (IBTA 10.2.3, 10.6).
 *
 * A key's low VB_MAX_MR_BITS bits are a slot of the NIC's region table, chosen at random among the
 * free ones; the bits above are random too, drawn anew at each registration. One region has one
 * slot and two keys: lkey and rkey differ in the upper bits (unless the NIC is told to make them
 * equal), so that a program which swaps them is found out here. Looking up a key is one load and
 * one compare.
 *
 * A region says where its bytes lie: remote address iova + k is local address addr + k. Whether the
 * pages exist is checked by the host at registration; the core trusts addr.
 */
#ifndef VB_CORE_MR_H
#define VB_CORE_MR_H

#include <stdbool.h>
#include <stdint.h>

#include "core/reason.h"

struct vb_nic;

/* enum vb_access - numerically equal to enum ibv_access_flags. */
enum vb_access {
	VB_ACCESS_LOCAL_WRITE = 1 << 0,
	VB_ACCESS_REMOTE_WRITE = 1 << 1,
	VB_ACCESS_REMOTE_READ = 1 << 2,
	VB_ACCESS_REMOTE_ATOMIC = 1 << 3,
	/* not in every release's header: what a peer's FLUSH may ask for */
	VB_ACCESS_FLUSH_GLOBAL = 1 << 8,
	VB_ACCESS_FLUSH_PERSISTENT = 1 << 9,
};
#define VB_ACCESS_REMOTE_ALL                                                                       \
	(VB_ACCESS_REMOTE_WRITE | VB_ACCESS_REMOTE_READ | VB_ACCESS_REMOTE_ATOMIC)

struct vb_pd {
	struct vb_nic *nic;
	uint32_t id;	/* unique among the NIC's PDs, never 0 */
	uint32_t users; /* MRs, QPs, SRQs and AHs that live in it */
};

struct vb_mr {
	struct vb_nic *nic;
	struct vb_pd *pd;
	uint8_t *addr;
	uint64_t iova;
	uint64_t length;
	uint32_t access; /* enum vb_access */
	uint32_t lkey, rkey;
};

/* vb_pd_create - a new protection domain. Returns NULL with errno ENOMEM at VB_MAX_PD. */
struct vb_pd *vb_pd_create(struct vb_nic *nic);

/* vb_pd_destroy - 0, or -EBUSY while anything lives in it. NULL is accepted. */
int vb_pd_destroy(struct vb_pd *pd);

/* vb_mr_create - registers addr[0..length) as iova[0..length). Refuses (NULL with errno EINVAL)
 * unknown access bits, REMOTE_WRITE or REMOTE_ATOMIC without LOCAL_WRITE (IBTA 10.6.3.1,
 * ibv_reg_mr(3)), and ranges that wrap; ENOMEM at VB_MAX_MR. */
struct vb_mr *vb_mr_create(struct vb_pd *pd, void *addr, uint64_t length, uint64_t iova,
			   uint32_t access);

/* vb_mr_destroy - the keys are invalid from here on. NULL is accepted. */
void vb_mr_destroy(struct vb_mr *mr);

/* vb_mr_local - the local address of an SGE, or NULL with the failed check and its values in
 * reason. A zero-length range needs no valid key. want is 0 (read) or VB_ACCESS_LOCAL_WRITE. */
uint8_t *vb_mr_local(struct vb_nic *nic, const struct vb_pd *pd, uint32_t lkey, uint64_t addr,
		     uint32_t length, uint32_t want, struct vb_reason *reason);

/* vb_mr_remote - the same for a peer's request: rkey, remote address, rights. */
uint8_t *vb_mr_remote(struct vb_nic *nic, const struct vb_pd *pd, uint32_t rkey, uint64_t va,
		      uint64_t length, uint32_t want, struct vb_reason *reason);

/* vb_mr_remote_whole - the same for all of the key's region, wherever that lies. */
bool vb_mr_remote_whole(struct vb_nic *nic, const struct vb_pd *pd, uint32_t rkey, uint32_t want,
			struct vb_reason *reason);

#endif
