/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tally.h - completion counters: how many operations of the queue pairs that a counter is attached
 * to have completed, with success and without, whether or not they make completions.
 *
 *      queue pair    SEND  RECV  READ  REMOTE READ  WRITE  REMOTE WRITE     by each one counter at
 * most \     |                        / counter                   counter
 *
 * Remote operations are those that the peer began: counted when the last of the data is placed, or
 * the last packet of the answer has left for the first time. They are only known to who gets their
 * packets: a queue pair of which they are counted shows its peers none of those rights (glue.c), so
 * that nobody copies by himself.
 */
#ifndef VB_CORE_TALLY_H
#define VB_CORE_TALLY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/qp.h"

/* In the order of the bits of enum ibv_qp_attach_comp_cntr_op. */
enum vb_counted {
	VB_COUNTED_SEND,
	VB_COUNTED_RECV,
	VB_COUNTED_READ,
	VB_COUNTED_REMOTE_READ,
	VB_COUNTED_WRITE,
	VB_COUNTED_REMOTE_WRITE,
	VB_COUNTED_KINDS,
};

struct vb_counter {
	struct vb_nic *nic;
	bool bytes; /* of what succeeded; else operations */
	uint64_t done, failed;
	uint32_t users; /* queue pairs, each as often as it counts kinds with it */
};

struct vb_tally {
	struct vb_counter *of[VB_COUNTED_KINDS]; /* NULL: nobody counts it */
};

/* vb_counter_create - NULL with errno ENOMEM at VB_MAX_COUNTERS. */
struct vb_counter *vb_counter_create(struct vb_nic *nic, bool bytes);
/* vb_counter_destroy - 0, or -EBUSY while a queue pair uses it. NULL is accepted. */
int vb_counter_destroy(struct vb_counter *counter);

/* vb_qp_attach_counter - kinds (a bit each) are counted from here on. 0; -EINVAL: the queue pair is
 * past INIT; -EBUSY: one of them is counted already; -ENOMEM. */
int vb_qp_attach_counter(struct vb_qp *qp, struct vb_counter *counter, uint32_t kinds);
/* vb_qp_detach_counters - as it is destroyed. */
void vb_qp_detach_counters(struct vb_qp *qp);

/* vb_tally_hidden - the remote rights that it does not show. */
uint32_t vb_tally_hidden(const struct vb_tally *tally);

/* vb_tally_add - for those that follow. */
void vb_tally_add(struct vb_tally *tally, enum vb_counted kind, bool good, uint64_t bytes);
void vb_tally_add_sent(struct vb_tally *tally, enum vb_wr_opcode opcode, bool good, uint64_t bytes);

static inline void vb_count(const struct vb_qp *qp, enum vb_counted kind, bool good, uint64_t bytes)
{
	if (__builtin_expect(qp->tally != NULL, 0))
		vb_tally_add(qp->tally, kind, good, bytes);
}

static inline void vb_count_sent(const struct vb_qp *qp, enum vb_wr_opcode opcode, bool good,
				 uint64_t bytes)
{
	if (__builtin_expect(qp->tally != NULL, 0))
		vb_tally_add_sent(qp->tally, opcode, good, bytes);
}

#endif
