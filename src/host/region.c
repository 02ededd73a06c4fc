/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region.c - memory regions: the host's share of registering and deregistering.
 *
 * Pages are checked when a region is registered, and only then: a program that unmaps them while
 * they are registered breaks itself, as it would break the promise that it made to a NIC. A region
 * on demand makes no such promise: its pages are brought in, and so checked, at each packet.
 */
#include <errno.h>

#include "carrier/local.h"
#include "core/mw.h"
#include "host/engine.h"
#include "host/memory.h"
#include "host/share.h"

#define WRITES (VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_WRITE | VB_ACCESS_REMOTE_ATOMIC)

static bool is_published(const struct vb_engine *engine, const struct vb_mr *mr)
{
	return engine->local && engine->direct &&
	       (mr->access & VB_ACCESS_REMOTE_ALL || mr->lending == VB_LENT);
}

/* A window is where its region is. */
static bool is_shared(const struct vb_mr *mr)
{
	if (mr->kind != VB_MR_WINDOW)
		return mr->beside;
	return vb_container_of(mr, const struct vb_mw, shown)->mr->beside;
}

/* Where its pages are to be found by peers that share them. */
static void show_shared(const struct vb_mr *mr, struct vb_local_mr *shown)
{
	struct vb_share_arena arena;

	shown->shared = vb_share_find(mr->addr, mr->length, &shown->shared_at, &arena);
	if (shown->shared)
		shown->arena =
			(struct vb_local_arena){arena.fd, arena.device, arena.inode, arena.bytes};
}

void vb_engine_publish_mr(struct vb_engine *engine, const struct vb_mr *mr)
{
	struct vb_local_mr shown = {
		.rkey = mr->rkey,
		.pd_id = mr->pd->id,
		.access = mr->access,
		.qpn = mr->qpn,
		.addr = (uint64_t)(uintptr_t)mr->addr,
		.iova = mr->iova,
		.length = mr->length,
	};

	if (!is_published(engine, mr))
		return;
	if (is_shared(mr))
		show_shared(mr, &shown);
	vb_local_publish_mr(engine->local, &shown); /* no room: packets reach it */
}

int vb_engine_withdraw_mr(struct vb_engine *engine, const struct vb_mr *mr)
{
	return is_published(engine, mr) ? vb_local_withdraw_mr(engine->local, mr->rkey) : 0;
}

/* withdraw_outside - waits for other processes, without the lock; counted first, so that exit does
 * not take the carrier away meanwhile. *worn: what vb_share_let_go() is to know. */
static int withdraw_outside(struct vb_engine *engine, const struct vb_mr *mr, bool *worn)
{
	int rc = -EIO;

	*worn = false;
	atomic_fetch_add(&engine->outside, 1);
	if (atomic_load(&engine->life) != VB_ALIVE)
		rc = -EIO;
	else if (is_published(engine, mr) && mr->beside && vb_share_is_last(mr->beside))
		rc = vb_local_withdraw_shared_mr(engine->local, mr->rkey, worn);
	else
		rc = vb_engine_withdraw_mr(engine, mr);
	atomic_fetch_sub(&engine->outside, 1);
	return rc;
}

static int check_memory(const void *addr, uint64_t length, uint32_t access)
{
	return access & VB_ACCESS_ON_DEMAND ? 0 : vb_memory_check(addr, length, access & WRITES);
}

/* share - NULL: the region is one that packets and copies reach. */
static struct vb_share_extent *share(const struct vb_engine *engine, void *addr, uint64_t length,
				     uint32_t access)
{
	if (!engine->share || access & VB_ACCESS_ON_DEMAND ||
	    !(access & (VB_ACCESS_REMOTE_ALL | VB_ACCESS_MW_BIND)))
		return NULL;
	return vb_share_hold(addr, length);
}

int vb_engine_reg_mr(struct vb_engine *engine, struct vb_pd *pd, void *addr, uint64_t length,
		     uint64_t iova, uint32_t access, struct vb_mr **out)
{
	struct vb_share_extent *shared;
	struct vb_mr *mr = NULL;
	int rc = check_memory(addr, length, access);

	if (rc)
		return rc;
	shared = share(engine, addr, length, access);
	rc = -EIO;
	if (vb_engine_enter(engine)) {
		mr = vb_mr_create(pd, addr, length, iova, access);
		rc = mr ? 0 : -errno;
		if (mr) {
			mr->beside = shared;
			vb_engine_publish_mr(engine, mr);
		}
		vb_engine_leave(engine);
	}
	if (rc)
		vb_share_let_go(shared, false);
	*out = mr;
	return rc;
}

/* The change itself, once nobody uses the region any more. */
static int change_mr(struct vb_engine *engine, struct vb_mr *mr, const struct vb_mr_change *change,
		     int rc, enum vb_lending lending, struct vb_share_extent **shared)
{
	struct vb_share_extent *before = mr->beside;

	if (!vb_engine_enter(engine))
		return -EIO;
	/* Refused after all (a copy that does not end, a window bound meanwhile): it is what it
	 * was. */
	if (rc == 0)
		rc = vb_mr_change(mr, change);
	if (rc == 0) {
		mr->beside = *shared;
		*shared = before;
	}
	mr->lending = lending;
	vb_engine_publish_mr(engine, mr);
	vb_engine_leave(engine);
	return rc;
}

/* lend_no_more - inside, before it is withdrawn: what is lent for the first time behind that would
 * be shown again. */
static enum vb_lending lend_no_more(struct vb_mr *mr)
{
	const enum vb_lending before = mr->lending;

	if (before == VB_LENT_NEVER_YET)
		mr->lending = VB_LENT_NO_MORE;
	return before;
}

int vb_engine_rereg_mr(struct vb_engine *engine, struct vb_mr *mr,
		       const struct vb_mr_change *change)
{
	struct vb_share_extent *shared;
	enum vb_lending lending = VB_LENT_NEVER_YET;
	bool worn;
	int rc = check_memory(change->addr, change->length, change->access);

	if (rc)
		return rc;
	if (!vb_engine_enter(engine))
		return -EIO;
	rc = vb_mr_judge_change(mr, change);
	if (rc == 0)
		lending = lend_no_more(mr);
	vb_engine_leave(engine);
	if (rc)
		return rc;
	shared = share(engine, change->addr, change->length, change->access);
	rc = withdraw_outside(engine, mr, &worn);
	rc = change_mr(engine, mr, change, rc, lending, &shared);
	/* the new pages of a change that failed, or the old ones */
	vb_share_let_go(shared, worn);
	return rc;
}

int vb_engine_dereg_mr(struct vb_engine *engine, struct vb_mr *mr)
{
	struct vb_share_extent *shared = mr->beside;
	bool worn;
	int rc = 0;

	if (!vb_engine_enter(engine))
		return -EIO;
	if (mr->windows)
		rc = -EBUSY;
	else
		lend_no_more(mr);
	vb_engine_leave(engine);
	if (rc == 0)
		rc = withdraw_outside(engine, mr, &worn);
	if (rc)
		return rc;
	if (!vb_engine_enter(engine))
		return -EIO;
	rc = vb_mr_destroy(mr);
	if (rc) /* a window was bound meanwhile */
		vb_engine_publish_mr(engine, mr);
	vb_engine_leave(engine);
	if (rc == 0)
		vb_share_let_go(shared, worn);
	return rc;
}
