/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region.c - memory regions: the host's share of registering and deregistering.
 *
 * Pages are checked when a region is registered, and only then: a program that unmaps them while
 * they are registered breaks itself, as it would break the promise that it made to a NIC.
 */
#include <errno.h>

#include "carrier/local.h"
#include "host/engine.h"
#include "host/memory.h"

static bool is_published(const struct vb_engine *engine, uint32_t access)
{
	return engine->local && engine->direct && (access & VB_ACCESS_REMOTE_ALL);
}

int vb_engine_reg_mr(struct vb_engine *engine, struct vb_pd *pd, void *addr, uint64_t length,
		     uint64_t iova, uint32_t access, struct vb_mr **out)
{
	const uint32_t writes =
		VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_WRITE | VB_ACCESS_REMOTE_ATOMIC;
	struct vb_mr *mr;
	int rc = vb_memory_check(addr, length, access & writes);

	if (rc)
		return rc;
	if (!vb_engine_enter(engine))
		return -EIO;
	mr = vb_mr_create(pd, addr, length, iova, access);
	if (!mr) {
		rc = -errno;
	} else if (is_published(engine, access)) {
		const struct vb_local_mr shown = {
			.rkey = mr->rkey,
			.pd_id = pd->id,
			.access = access,
			.addr = (uint64_t)(uintptr_t)addr,
			.iova = iova,
			.length = length,
		};

		vb_local_publish_mr(engine->local, &shown); /* no room: packets reach it */
	}
	vb_engine_leave(engine);
	*out = mr;
	return rc;
}

int vb_engine_dereg_mr(struct vb_engine *engine, struct vb_mr *mr)
{
	int rc = 0;

	/* Withdrawing waits for other processes, without the lock; counted first, so that exit does
	 * not take the carrier away meanwhile. */
	atomic_fetch_add(&engine->outside, 1);
	if (atomic_load(&engine->life) != VB_ALIVE)
		rc = -EIO;
	else if (is_published(engine, mr->access))
		rc = vb_local_withdraw_mr(engine->local, mr->rkey);
	atomic_fetch_sub(&engine->outside, 1);
	if (rc)
		return rc;
	if (!vb_engine_enter(engine))
		return -EIO;
	vb_mr_destroy(mr);
	vb_engine_leave(engine);
	return 0;
}
