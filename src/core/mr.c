/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mr.c - protection domains, memory regions, and the checks of keys (IBTA 10.6, 9.7.4.1.5, 11.6.2).
 *
 *      key    | random, drawn at registration | slot in nic->mrs     |
 *              31          VB_MAX_MR_BITS      VB_MAX_MR_BITS - 1    0
 *
 * lkey and rkey of a region share the slot. Slot 0 is never given out, so that no key is 0. At most
 * half of the slots are used: a free one is found after two draws on average, and which slot a
 * new region gets cannot be guessed.
 */
#include "core/mr.h"

#include <errno.h>
#include <stdlib.h>

#include "core/limits.h"
#include "core/nic.h"

#define SLOT_MASK ((1u << VB_MAX_MR_BITS) - 1)
#define UPPER_COUNT (1u << (32 - VB_MAX_MR_BITS))
#define DRAWS 32

/* Memory that survives a loss of power is not known here: no region is flushed persistently. */
#define ACCESS_ALL (VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL | VB_ACCESS_FLUSH_GLOBAL)

struct vb_pd *vb_pd_create(struct vb_nic *nic)
{
	struct vb_pd *pd;

	if (nic->pd_count >= VB_MAX_PD) {
		errno = ENOMEM;
		return NULL;
	}
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	if (!++nic->next_pd_id)
		nic->next_pd_id = 1;
	pd->nic = nic;
	pd->id = nic->next_pd_id;
	nic->pd_count++;
	return pd;
}

int vb_pd_destroy(struct vb_pd *pd)
{
	if (!pd)
		return 0;
	if (pd->users)
		return -EBUSY;
	pd->nic->pd_count--;
	free(pd);
	return 0;
}

/* A free slot. The caller made sure that half of them are free, so the search behind unlucky draws
 * ends too. */
static uint32_t choose_slot(struct vb_nic *nic)
{
	uint32_t slot = 0;

	for (int i = 0; i < DRAWS; i++) {
		slot = nic->ops.random(nic->env) & SLOT_MASK;
		if (slot && !nic->mrs[slot])
			return slot;
	}
	do {
		slot = (slot + 1) & SLOT_MASK;
	} while (!slot || nic->mrs[slot]);
	return slot;
}

static void choose_keys(struct vb_nic *nic, struct vb_mr *mr)
{
	uint32_t slot = choose_slot(nic);
	uint32_t upper = nic->ops.random(nic->env) % UPPER_COUNT;
	uint32_t other = upper;

	/* Any of the other values, each as likely. */
	if (!nic->config.equal_keys)
		other = (upper + 1 + nic->ops.random(nic->env) % (UPPER_COUNT - 1)) % UPPER_COUNT;
	mr->lkey = upper << VB_MAX_MR_BITS | slot;
	mr->rkey = other << VB_MAX_MR_BITS | slot;
}

static bool range_wraps(uint64_t start, uint64_t length)
{
	return length && start > UINT64_MAX - (length - 1);
}

struct vb_mr *vb_mr_create(struct vb_pd *pd, void *addr, uint64_t length, uint64_t iova,
			   uint32_t access)
{
	struct vb_nic *nic = pd->nic;
	struct vb_mr *mr;

	if (access & ~ACCESS_ALL || range_wraps((uintptr_t)addr, length) ||
	    range_wraps(iova, length)) {
		errno = EINVAL;
		return NULL;
	}
	if (access & (VB_ACCESS_REMOTE_WRITE | VB_ACCESS_REMOTE_ATOMIC) &&
	    !(access & VB_ACCESS_LOCAL_WRITE)) {
		errno = EINVAL;
		return NULL;
	}
	if (nic->mr_count >= VB_MAX_MR) {
		errno = ENOMEM;
		return NULL;
	}
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;
	mr->nic = nic;
	mr->pd = pd;
	mr->addr = addr;
	mr->iova = iova;
	mr->length = length;
	mr->access = access;
	choose_keys(nic, mr);
	nic->mrs[mr->lkey & SLOT_MASK] = mr;
	nic->mr_count++;
	pd->users++;
	return mr;
}

void vb_mr_destroy(struct vb_mr *mr)
{
	if (!mr)
		return;
	mr->nic->mrs[mr->lkey & SLOT_MASK] = NULL;
	mr->nic->mr_count--;
	mr->pd->users--;
	free(mr);
}

/* Which checks a lookup names when it fails: those of an SGE or those of a peer's request. */
struct key_checks {
	enum vb_check unknown, swapped, range, pd, rights;
};

static const struct key_checks local_checks = {
	.unknown = VB_CHECK_SGE_LKEY_UNKNOWN,
	.swapped = VB_CHECK_SGE_IS_RKEY,
	.range = VB_CHECK_SGE_RANGE,
	.pd = VB_CHECK_SGE_PD,
	.rights = VB_CHECK_SGE_RIGHTS,
};

static const struct key_checks remote_checks = {
	.unknown = VB_CHECK_RKEY_UNKNOWN,
	.swapped = VB_CHECK_RKEY_IS_LKEY,
	.range = VB_CHECK_RKEY_RANGE,
	.pd = VB_CHECK_RKEY_PD,
	.rights = VB_CHECK_RKEY_RIGHTS,
};

static uint8_t *refuse(struct vb_reason *reason, enum vb_check check, uint64_t a, uint64_t b,
		       uint64_t c, uint64_t d)
{
	reason->check = check;
	reason->value[0] = a;
	reason->value[1] = b;
	reason->value[2] = c;
	reason->value[3] = d;
	return NULL;
}

/* What the program hands over for no bytes need not exist; something must be returned all the same.
 */
static uint8_t *no_bytes(void)
{
	static uint8_t none;

	return &none;
}

/* mr is the region in the key's slot or NULL, its own key that of the kind asked for (mine) and the
 * other one (its). */
static uint8_t *check_region(const struct vb_mr *mr, const struct vb_pd *pd, uint32_t key,
			     uint32_t mine, uint32_t its, uint64_t addr, uint64_t length,
			     uint32_t want, const struct key_checks *checks,
			     struct vb_reason *reason)
{
	if (!mr || key != mine) {
		bool swapped = mr && key == its;

		return refuse(reason, swapped ? checks->swapped : checks->unknown, key, addr,
			      length, 0);
	}
	if (mr->pd != pd)
		return refuse(reason, checks->pd, key, mr->pd->id, pd->id, 0);
	if (want & ~mr->access)
		return refuse(reason, checks->rights, key, want, mr->access, 0);
	/* In this order nothing wraps. */
	if (addr < mr->iova || addr - mr->iova > mr->length ||
	    length > mr->length - (addr - mr->iova))
		return refuse(reason, checks->range, addr, length, mr->iova, mr->length);
	return mr->addr + (addr - mr->iova);
}

uint8_t *vb_mr_local(struct vb_nic *nic, const struct vb_pd *pd, uint32_t lkey, uint64_t addr,
		     uint32_t length, uint32_t want, struct vb_reason *reason)
{
	const struct vb_mr *mr = nic->mrs[lkey & SLOT_MASK];

	if (!length)
		return no_bytes();
	return check_region(mr, pd, lkey, mr ? mr->lkey : 0, mr ? mr->rkey : 0, addr, length, want,
			    &local_checks, reason);
}

uint8_t *vb_mr_remote(struct vb_nic *nic, const struct vb_pd *pd, uint32_t rkey, uint64_t va,
		      uint64_t length, uint32_t want, struct vb_reason *reason)
{
	const struct vb_mr *mr = nic->mrs[rkey & SLOT_MASK];

	if (!length)
		return no_bytes();
	return check_region(mr, pd, rkey, mr ? mr->rkey : 0, mr ? mr->lkey : 0, va, length, want,
			    &remote_checks, reason);
}

bool vb_mr_remote_whole(struct vb_nic *nic, const struct vb_pd *pd, uint32_t rkey, uint32_t want,
			struct vb_reason *reason)
{
	const struct vb_mr *mr = nic->mrs[rkey & SLOT_MASK];

	return check_region(mr, pd, rkey, mr ? mr->rkey : 0, mr ? mr->lkey : 0, mr ? mr->iova : 0,
			    0, want, &remote_checks, reason);
}
