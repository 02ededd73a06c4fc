/* SPDX-License-Identifier: BSD-2-Clause */
/* ah.c - address handles (IBTA 11.2.2): resolved at creation, alive while a send request needs
 * them. */
#include "core/ah.h"

#include <errno.h>
#include <stdlib.h>

#include "core/beside.h"
#include "core/limits.h"
#include "core/nic.h"

bool vb_ah_attr_is_valid(const struct vb_ah_attr *attr)
{
	/* RoCE has no LIDs: without the GRH nothing names the peer (IBTA annex A16.4.1). */
	return attr->is_global && attr->port_num == 1;
}

struct vb_ah *vb_ah_create(struct vb_pd *pd, const struct vb_ah_attr *attr)
{
	struct vb_nic *nic = pd->nic;
	struct vb_ah *ah;
	int rc;

	if (!vb_ah_attr_is_valid(attr)) {
		errno = EINVAL;
		return NULL;
	}
	if (nic->ah_count >= VB_MAX_AH) {
		errno = ENOMEM;
		return NULL;
	}
	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;
	rc = nic->ops.resolve(nic->env, attr, &ah->path);
	if (rc < 0) {
		free(ah);
		errno = -rc;
		return NULL;
	}
	ah->nic = nic;
	ah->pd = pd;
	ah->attr = *attr;
	ah->refs = 1;
	nic->ah_count++;
	pd->users++;
	return ah;
}

struct vb_ah *vb_ah_get(struct vb_ah *ah)
{
	ah->refs++;
	return ah;
}

void vb_ah_destroy(struct vb_ah *ah)
{
	vb_nic_answer(ah->nic);
	vb_ah_put(ah);
}

void vb_ah_put(struct vb_ah *ah)
{
	if (!ah || --ah->refs)
		return;
	if (ah->nic->ops.release)
		ah->nic->ops.release(ah->nic->env, &ah->path);
	ah->nic->ah_count--;
	ah->pd->users--;
	free(ah);
}
