/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * demand.h - what moves to and from regions on demand, whose memory may go away at any instant.
 *
 * A look beforehand says nothing about the moment of the copy, so the surroundings make the copy,
 * in a way that survives (vb_nic_ops.copy, vb_nic_ops.atomic), or say that there was nothing. What
 * is to be sent comes through nic->bounce first: the carrier reads it more than once.
 *
 * Other regions never come here.
 */
#ifndef VB_CORE_DEMAND_H
#define VB_CORE_DEMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nic.h"

#define VB_BOUNCE_BYTES (128u << 10) /* more than any packet or frame carries */

/* vb_is_on_demand - whether the key, which was found good, is of such a region, or of a window into
 * one. */
static inline bool vb_is_on_demand(const struct vb_nic *nic, uint32_t key)
{
	const struct vb_mr *mr = nic->mrs[vb_key_slot(key)];

	return __builtin_expect(mr && mr->access & VB_ACCESS_ON_DEMAND, 0);
}

/* vb_demand_prepare - before the first such region: -ENOMEM. */
int vb_demand_prepare(struct vb_nic *nic);

/* vb_demand_read - from the region. False: the memory is not there. */
bool vb_demand_read(struct vb_nic *nic, void *to, const uint8_t *from, uint32_t length);
/* vb_demand_write - into the region, the last bytes last, as vb_place. False: it is not there, or
 * may not be written; part may have been. */
bool vb_demand_write(struct vb_nic *nic, uint8_t *to, const uint8_t *from, uint32_t length);

/* vb_atomic_do - on memory that stays. The value before. */
static inline uint64_t vb_atomic_do(uint64_t *word, const struct vb_atomic *op)
{
	uint64_t before = op->compare;

	switch (op->kind) {
	case VB_ATOMIC_ADD:
		return __atomic_fetch_add(word, op->operand, __ATOMIC_SEQ_CST);
	case VB_ATOMIC_COMPARE_SWAP: /* on a mismatch the builtin leaves the word's value in before
				      */
		__atomic_compare_exchange_n(word, &before, op->operand, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
		return before;
	case VB_ATOMIC_STORE:
		return __atomic_exchange_n(word, op->operand, __ATOMIC_SEQ_CST);
	}
	__builtin_unreachable();
}

/* vb_atomic_at - on the aligned word at an address that rkey was found good for. False: the memory
 * is not there. */
bool vb_atomic_at(struct vb_nic *nic, uint32_t rkey, uint8_t *at, const struct vb_atomic *op,
		  uint64_t *before);

#endif
