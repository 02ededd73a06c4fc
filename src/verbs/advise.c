/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * advise.c - ibv_advise_mr(3): bringing in pages of regions on demand ahead of their use.
 *
 * There is no device that would hold page tables of its own: what can be done ahead is to have the
 * pages in memory. With FLUSH that is done before the call returns, and what is not there is an
 * error; without it the kernel is told to begin reading what lies in files or swap. NO_FAULT asks
 * for what is in memory already, so nothing is left to do.
 *
 * Everything that is asked for is checked before anything is done.
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/memory.h"
#include "verbs/face.h"

/* find_range - the address of the SGE's bytes. 0 or -errno: ENOENT no such lkey, EINVAL a region
 * that is not on demand, EPERM another PD's or not writable, EFAULT beyond its end. Inside. */
static int find_range(struct vb_nic *nic, const struct vb_pd *pd, const struct ibv_sge *sge,
		      bool write, const uint8_t **at)
{
	const struct vb_mr *mr = vb_mr_find(nic, sge->lkey);
	uint64_t offset;

	if (!mr)
		return -ENOENT;
	if (!(mr->access & VB_ACCESS_ON_DEMAND))
		return -EINVAL;
	if (mr->pd != pd || (write && !(mr->access & VB_ACCESS_LOCAL_WRITE)))
		return -EPERM;
	offset = sge->addr - mr->iova;
	if (sge->addr < mr->iova || offset > mr->length || sge->length > mr->length - offset)
		return -EFAULT;
	*at = mr->addr + offset;
	return 0;
}

static void begin_to_read(const uint8_t *at, uint64_t length)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	const uintptr_t from = (uintptr_t)at & ~(page - 1);

	if (length)
		(void)madvise((void *)from, (uintptr_t)at + length - from, MADV_WILLNEED);
}

static int follow(enum ibv_advise_mr_advice advice, bool flush, const uint8_t *at, uint64_t length)
{
	switch (advice) {
	case IBV_ADVISE_MR_ADVICE_PREFETCH:
	case IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE:
		if (flush)
			return vb_memory_bring_in(at, length,
						  advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE);
		begin_to_read(at, length);
		break;
	case IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT:
		break;
	}
	return 0;
}

/* look - at every SGE, and follows the advice if told to. */
static int look(struct vb_face_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		const struct ibv_sge *list, uint32_t count, bool do_it)
{
	const bool write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	const uint8_t *at = NULL;
	uint32_t i;
	int error = 0;

	for (i = 0; i < count && !error; i++) {
		if (!vb_face_enter(pd->engine))
			return -EIO;
		error = find_range(vb_engine_nic(pd->engine), pd->core, &list[i], write, &at);
		vb_engine_leave(pd->engine);
		/* Outside: bringing in may take long. */
		if (!error && do_it)
			error = follow(advice, flags & IBV_ADVISE_MR_FLAG_FLUSH, at,
				       list[i].length);
	}
	return error;
}

int vb_face_advise_mr(struct ibv_pd *ibv, enum ibv_advise_mr_advice advice, uint32_t flags,
		      struct ibv_sge *list, uint32_t count)
{
	struct vb_face_pd *pd = vb_face_pd(ibv);
	int error;

	if ((unsigned int)advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return EOPNOTSUPP;
	if (flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH || !count || !list)
		return EINVAL;
	error = look(pd, advice, flags, list, count, false);
	if (!error)
		error = look(pd, advice, flags, list, count, true);
	return -error;
}
