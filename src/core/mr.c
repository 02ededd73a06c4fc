/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mr.c - protection domains, memory regions, and the checks of keys (IBTA 10.6, 9.7.4.1.5, 11.6.2).
 *
 *      key    | random | slot in nic->mrs | random, or the consumer's |
 *              31     25 24               8 7                         0
 *
 * lkey and rkey of a region share the slot. Slot 0 is never given out, so that no key is 0. At most
 * three quarters of the slots are used, half of them by regions: a free one is found after four
 * draws on average, and which slot a new region gets cannot be guessed. The low bits are those that
 * IBTA 10.6.7.2 leaves to the consumer of a type 2 window; windows stand in the same table.
 */
#include "core/mr.h"

#include <errno.h>
#include <stdlib.h>

#include "core/demand.h"
#include "core/limits.h"
#include "core/nic.h"

#define SLOT_MASK ((1u << VB_MAX_MR_BITS) - 1)
#define TAG_COUNT (1u << (32 - VB_MAX_MR_BITS)) /* values of a key's random bits */
#define DRAWS 32

/* Memory that survives a loss of power is not known here: no region is flushed persistently. */
#define ACCESS_ALL                                                                                 \
	(VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL | VB_ACCESS_MW_BIND | VB_ACCESS_ON_DEMAND |  \
	 VB_ACCESS_FLUSH_GLOBAL)
#define ACCESS_WRITES (VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_WRITE | VB_ACCESS_REMOTE_ATOMIC)

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

/* A free slot. The caller made sure that a quarter of them is free, so the search behind unlucky
 * draws ends too. */
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

static uint32_t make_key(uint32_t slot, uint32_t random_bits)
{
	return random_bits >> VB_KEY_TAG_BITS << (VB_MAX_MR_BITS + VB_KEY_TAG_BITS) |
	       slot << VB_KEY_TAG_BITS | (random_bits & ((1u << VB_KEY_TAG_BITS) - 1));
}

/* has_good_keys - it brought them, of one slot, and that is free. */
static bool has_good_keys(const struct vb_nic *nic, const struct vb_mr *mr)
{
	const uint32_t slot = vb_key_slot(mr->lkey);

	return slot && slot == vb_key_slot(mr->rkey) && !nic->mrs[slot];
}

static void choose_keys(struct vb_nic *nic, struct vb_mr *mr)
{
	uint32_t slot, bits, other;

	if (has_good_keys(nic, mr)) {
		nic->mrs[vb_key_slot(mr->lkey)] = mr;
		return;
	}
	slot = choose_slot(nic);
	other = bits = nic->ops.random(nic->env) % TAG_COUNT;

	/* Any of the other values, each as likely. */
	if (!nic->config.equal_keys)
		other = (bits + 1 + nic->ops.random(nic->env) % (TAG_COUNT - 1)) % TAG_COUNT;
	mr->lkey = make_key(slot, bits);
	mr->rkey = make_key(slot, other);
	nic->mrs[slot] = mr;
}

int vb_mr_enter(struct vb_mr *mr, uint32_t *count, uint32_t limit)
{
	if (*count >= limit)
		return -ENOMEM;
	choose_keys(mr->nic, mr);
	++*count;
	mr->pd->users++;
	return 0;
}

void vb_mr_leave(struct vb_mr *mr, uint32_t *count)
{
	mr->nic->mrs[vb_key_slot(mr->rkey)] = NULL;
	--*count;
	mr->pd->users--;
}

static bool range_wraps(uint64_t start, uint64_t length)
{
	return length && start > UINT64_MAX - (length - 1);
}

static bool is_valid(const void *addr, uint64_t length, uint64_t iova, uint32_t access)
{
	if (access & ~ACCESS_ALL || range_wraps((uintptr_t)addr, length) ||
	    range_wraps(iova, length))
		return false;
	return access & VB_ACCESS_LOCAL_WRITE ||
	       !(access & (VB_ACCESS_REMOTE_WRITE | VB_ACCESS_REMOTE_ATOMIC));
}

/* add - a region of pd with a copy of what is given. */
static struct vb_mr *add(struct vb_pd *pd, const struct vb_mr *given)
{
	struct vb_mr *mr = calloc(1, sizeof(*mr));
	int rc = 0;

	if (!mr)
		return NULL;
	*mr = *given;
	mr->nic = pd->nic;
	mr->pd = pd;
	if (mr->access & VB_ACCESS_ON_DEMAND)
		rc = vb_demand_prepare(pd->nic);
	if (rc == 0)
		rc = vb_mr_enter(mr, &pd->nic->mr_count, VB_MAX_MR);
	if (rc) {
		free(mr);
		errno = -rc;
		return NULL;
	}
	return mr;
}

struct vb_mr *vb_mr_create(struct vb_pd *pd, void *addr, uint64_t length, uint64_t iova,
			   uint32_t access)
{
	return vb_mr_create_again(pd, addr, length, iova, access, 0, 0);
}

struct vb_mr *vb_mr_create_again(struct vb_pd *pd, void *addr, uint64_t length, uint64_t iova,
				 uint32_t access, uint32_t lkey, uint32_t rkey)
{
	const struct vb_mr given = {
		.addr = addr,
		.iova = iova,
		.length = length,
		.access = access,
		.lkey = lkey,
		.rkey = rkey,
	};

	if (!is_valid(addr, length, iova, access)) {
		errno = EINVAL;
		return NULL;
	}
	return add(pd, &given);
}

struct vb_mr *vb_mr_create_null(struct vb_pd *pd)
{
	const struct vb_mr given = {
		.length = UINT64_MAX,
		.access = VB_ACCESS_LOCAL_WRITE,
		.kind = VB_MR_NULL,
	};

	return add(pd, &given);
}

int vb_mr_destroy(struct vb_mr *mr)
{
	if (!mr)
		return 0;
	if (mr->windows)
		return -EBUSY;
	vb_mr_leave(mr, &mr->nic->mr_count);
	free(mr);
	return 0;
}

int vb_mr_judge_change(const struct vb_mr *mr, const struct vb_mr_change *change)
{
	if (mr->kind != VB_MR_MEMORY ||
	    !is_valid(change->addr, change->length, change->iova, change->access))
		return -EINVAL;
	return mr->windows ? -EBUSY : 0;
}

int vb_mr_change(struct vb_mr *mr, const struct vb_mr_change *change)
{
	int rc = vb_mr_judge_change(mr, change);

	if (rc == 0 && change->access & VB_ACCESS_ON_DEMAND)
		rc = vb_demand_prepare(mr->nic);
	if (rc)
		return rc;
	mr->pd->users--;
	mr->pd = change->pd;
	mr->pd->users++;
	mr->addr = change->addr;
	mr->length = change->length;
	mr->iova = change->iova;
	mr->access = change->access;
	return 0;
}

/* Which checks a lookup names when it fails: those of an SGE or those of a peer's request. */
struct key_checks {
	enum vb_check unknown, swapped, range, pd, rights, absent;
};

static const struct key_checks local_checks = {
	.unknown = VB_CHECK_SGE_LKEY_UNKNOWN,
	.swapped = VB_CHECK_SGE_IS_RKEY,
	.range = VB_CHECK_SGE_RANGE,
	.pd = VB_CHECK_SGE_PD,
	.rights = VB_CHECK_SGE_RIGHTS,
	.absent = VB_CHECK_SGE_ABSENT,
};

static const struct key_checks remote_checks = {
	.unknown = VB_CHECK_RKEY_UNKNOWN,
	.swapped = VB_CHECK_RKEY_IS_LKEY,
	.range = VB_CHECK_RKEY_RANGE,
	.pd = VB_CHECK_RKEY_PD,
	.rights = VB_CHECK_RKEY_RIGHTS,
	.absent = VB_CHECK_RKEY_ABSENT,
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

/* Nobody writes it: what is written to a null region is dropped. */
static uint8_t zeros[VB_NULL_BYTES];

bool vb_mr_is_null(const uint8_t *at)
{
	return at == zeros;
}

/* What is asked of a key. */
struct wanted {
	const struct vb_pd *pd;
	uint32_t key;
	uint64_t addr, length;
	uint32_t rights; /* enum vb_access, VB_WANT_PRESENT */
};

static bool is_present(const struct vb_mr *mr, const uint8_t *at, const struct wanted *w)
{
	const struct vb_nic *nic = mr->nic;

	if (!(mr->access & VB_ACCESS_ON_DEMAND) || !(w->rights & VB_WANT_PRESENT) ||
	    !nic->ops.present)
		return true;
	return nic->ops.present(nic->env, at, VB_MIN(w->length, (uint64_t)VB_PRESENT_BYTES),
				w->rights & ACCESS_WRITES);
}

/* check_region - mr is what stands in the key's slot, with the key that it is to be named by. */
static uint8_t *check_region(const struct vb_mr *mr, const struct wanted *w,
			     const struct key_checks *checks, struct vb_reason *reason)
{
	const uint32_t rights = w->rights & ~VB_WANT_PRESENT;
	uint8_t *at;

	if (mr->pd != w->pd)
		return refuse(reason, checks->pd, w->key, mr->pd->id, w->pd->id, 0);
	if (rights & ~mr->access)
		return refuse(reason, checks->rights, w->key, rights, mr->access, 0);
	if (mr->kind == VB_MR_NULL)
		return zeros;
	/* In this order nothing wraps. */
	if (w->addr < mr->iova || w->addr - mr->iova > mr->length ||
	    w->length > mr->length - (w->addr - mr->iova))
		return refuse(reason, checks->range, w->addr, w->length, mr->iova, mr->length);
	at = mr->addr + (w->addr - mr->iova);
	if (!is_present(mr, at, w))
		return refuse(reason, checks->absent, w->key, w->addr, w->length, 0);
	return at;
}

const struct vb_mr *vb_mr_find(const struct vb_nic *nic, uint32_t lkey)
{
	const struct vb_mr *mr = nic->mrs[vb_key_slot(lkey)];

	return mr && mr->kind != VB_MR_WINDOW && mr->lkey == lkey ? mr : NULL;
}

uint8_t *vb_mr_local(struct vb_nic *nic, const struct vb_pd *pd, uint32_t lkey, uint64_t addr,
		     uint32_t length, uint32_t want, struct vb_reason *reason)
{
	const struct vb_mr *mr = vb_mr_find(nic, lkey);
	const struct wanted w = {pd, lkey, addr, length, want};

	if (!length)
		return no_bytes();
	if (!mr) {
		mr = nic->mrs[vb_key_slot(lkey)];
		return refuse(reason,
			      mr && mr->rkey == lkey ? local_checks.swapped : local_checks.unknown,
			      lkey, addr, length, 0);
	}
	return check_region(mr, &w, &local_checks, reason);
}

/* find_remote - what stands in the rkey's slot, if that is its key and qpn may name it. */
static const struct vb_mr *find_remote(const struct vb_nic *nic, uint32_t qpn, uint32_t rkey,
				       uint64_t va, uint64_t length, struct vb_reason *reason)
{
	const struct vb_mr *mr = nic->mrs[vb_key_slot(rkey)];

	if (!mr || mr->kind == VB_MR_NULL || mr->rkey != rkey) {
		refuse(reason,
		       mr && mr->lkey == rkey ? remote_checks.swapped : remote_checks.unknown, rkey,
		       va, length, 0);
		return NULL;
	}
	if (mr->qpn && mr->qpn != qpn) {
		refuse(reason, VB_CHECK_RKEY_QP, rkey, mr->qpn, qpn, 0);
		return NULL;
	}
	return mr;
}

uint8_t *vb_mr_remote(struct vb_nic *nic, const struct vb_pd *pd, uint32_t qpn, uint32_t rkey,
		      uint64_t va, uint64_t length, uint32_t want, struct vb_reason *reason)
{
	const struct wanted w = {pd, rkey, va, length, want};
	const struct vb_mr *mr;

	if (!length)
		return no_bytes();
	mr = find_remote(nic, qpn, rkey, va, length, reason);
	return mr ? check_region(mr, &w, &remote_checks, reason) : NULL;
}

bool vb_mr_remote_whole(struct vb_nic *nic, const struct vb_pd *pd, uint32_t qpn, uint32_t rkey,
			uint32_t want, struct vb_reason *reason)
{
	const struct vb_mr *mr = find_remote(nic, qpn, rkey, 0, 0, reason);
	const struct wanted w = {pd, rkey, mr ? mr->iova : 0, 0, want};

	return mr && check_region(mr, &w, &remote_checks, reason);
}
