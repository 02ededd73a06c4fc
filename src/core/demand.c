/* SPDX-License-Identifier: BSD-2-Clause */
/* demand.c - see demand.h. */
#include "core/demand.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/transport.h"

int vb_demand_prepare(struct vb_nic *nic)
{
	if (!nic->bounce)
		nic->bounce = malloc(VB_BOUNCE_BYTES);
	return nic->bounce ? 0 : -ENOMEM;
}

bool vb_demand_read(struct vb_nic *nic, void *to, const uint8_t *from, uint32_t length)
{
	if (nic->ops.copy)
		return nic->ops.copy(nic->env, false, (void *)(uintptr_t)from, to, length);
	memcpy(to, from, length);
	return true;
}

bool vb_demand_write(struct vb_nic *nic, uint8_t *to, const uint8_t *from, uint32_t length)
{
	if (nic->ops.copy)
		return nic->ops.copy(nic->env, true, to, (void *)(uintptr_t)from, length);
	vb_place(to, from, length);
	return true;
}

bool vb_atomic_at(struct vb_nic *nic, uint32_t rkey, uint8_t *at, const struct vb_atomic *op,
		  uint64_t *before)
{
	uint64_t *word = (uint64_t *)(void *)at;

	if (vb_is_on_demand(nic, rkey) && nic->ops.atomic)
		return nic->ops.atomic(nic->env, word, op, before);
	*before = vb_atomic_do(word, op);
	return true;
}
