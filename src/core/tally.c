/* SPDX-License-Identifier: BSD-2-Clause */
/* tally.c - completion counters: see tally.h. */
#include "core/tally.h"

#include <errno.h>
#include <stdlib.h>

#include "core/limits.h"
#include "core/nic.h"

struct vb_counter *vb_counter_create(struct vb_nic *nic, bool bytes)
{
	struct vb_counter *counter = NULL;

	if (nic->counter_count < VB_MAX_COUNTERS)
		counter = calloc(1, sizeof(*counter));
	if (!counter) {
		errno = ENOMEM;
		return NULL;
	}
	counter->nic = nic;
	counter->bytes = bytes;
	nic->counter_count++;
	return counter;
}

int vb_counter_destroy(struct vb_counter *counter)
{
	if (!counter)
		return 0;
	if (counter->users)
		return -EBUSY;
	counter->nic->counter_count--;
	free(counter);
	return 0;
}

static bool overlaps(const struct vb_tally *tally, uint32_t kinds)
{
	for (uint32_t i = 0; tally && i < VB_COUNTED_KINDS; i++)
		if (kinds & 1u << i && tally->of[i])
			return true;
	return false;
}

int vb_qp_attach_counter(struct vb_qp *qp, struct vb_counter *counter, uint32_t kinds)
{
	if (qp->state != VB_QPS_RESET && qp->state != VB_QPS_INIT)
		return -EINVAL;
	if (overlaps(qp->tally, kinds))
		return -EBUSY;
	if (!qp->tally)
		qp->tally = calloc(1, sizeof(*qp->tally));
	if (!qp->tally)
		return -ENOMEM;
	for (uint32_t i = 0; i < VB_COUNTED_KINDS; i++) {
		if (!(kinds & 1u << i))
			continue;
		qp->tally->of[i] = counter;
		counter->users++;
	}
	return 0;
}

void vb_qp_detach_counters(struct vb_qp *qp)
{
	for (uint32_t i = 0; qp->tally && i < VB_COUNTED_KINDS; i++)
		if (qp->tally->of[i])
			qp->tally->of[i]->users--;
	free(qp->tally);
	qp->tally = NULL;
}

uint32_t vb_tally_hidden(const struct vb_tally *tally)
{
	uint32_t rights = 0;

	if (tally && tally->of[VB_COUNTED_REMOTE_READ])
		rights |= VB_ACCESS_REMOTE_READ;
	if (tally && tally->of[VB_COUNTED_REMOTE_WRITE])
		rights |= VB_ACCESS_REMOTE_WRITE;
	return rights;
}

void vb_tally_add(struct vb_tally *tally, enum vb_counted kind, bool good, uint64_t bytes)
{
	struct vb_counter *counter = tally->of[kind];

	if (!counter)
		return;
	if (!good)
		counter->failed++;
	else
		counter->done += counter->bytes ? bytes : 1;
}

/* Of what the send queue does, the API has names for SENDs, READs and WRITEs. */
void vb_tally_add_sent(struct vb_tally *tally, enum vb_wr_opcode opcode, bool good, uint64_t bytes)
{
	switch (opcode) {
	case VB_WR_SEND:
	case VB_WR_SEND_WITH_IMM:
	case VB_WR_SEND_WITH_INV:
	case VB_WR_TSO:
		vb_tally_add(tally, VB_COUNTED_SEND, good, bytes);
		break;
	case VB_WR_RDMA_READ:
		vb_tally_add(tally, VB_COUNTED_READ, good, bytes);
		break;
	case VB_WR_RDMA_WRITE:
	case VB_WR_RDMA_WRITE_WITH_IMM:
		vb_tally_add(tally, VB_COUNTED_WRITE, good, bytes);
		break;
	case VB_WR_ATOMIC_CMP_AND_SWP:
	case VB_WR_ATOMIC_FETCH_AND_ADD:
	case VB_WR_LOCAL_INV:
	case VB_WR_BIND_MW:
	case VB_WR_FLUSH:
	case VB_WR_ATOMIC_WRITE:
		break;
	}
}
