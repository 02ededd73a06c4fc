/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * beside.h - posting beside the NIC: by one thread, while another may be driving the NIC.
 *
 * A queue pair that one thread alone posts to (single) has a counter more. The thread writes its
 * requests behind sq_head, where the NIC does not look, and counts them in sq_posted; whoever
 * drives the NIC takes them over.
 *
 *      sq_free     sq_una     sq_next     sq_head              sq_posted
 *         | polled by |          |           | posted, the NIC     | the thread
 *         | whoever   |     the NIC's        | has not heard yet   | writes here
 *
 * That there is something to take over is said by ringing: the queue pair puts itself, once, at the
 * front of a chain that begins in nic->rung.
 *
 *      nic->rung -> qp -> qp -> NULL            next_rung
 *
 * Whoever posts rings and then tries to get in; who is inside looks at the chain after he went out
 * (host/engine.h): one of the two finds it.
 *
 * A receive queue needs none of that, its own or a shared one: the ring has one writer, who moves
 * head, and one reader, who moves tail, and the NIC sees a receive request from the moment in which
 * it is posted. Ringing is for the queue pair that was in ERR: its receives are flushed.
 *
 * What the thread reads of a queue pair either never changes, or is its state. That may turn ERR or
 * SQE behind its back, both of which take requests: they are flushed when they are taken over. The
 * states that take none are entered and left by the thread itself, as all that ends or changes the
 * queue pair is.
 */
#ifndef VB_CORE_BESIDE_H
#define VB_CORE_BESIDE_H

#include "core/nic.h"

/* --- the thread that the queue pair is for, inside or not -------------------------------- */

/* vb_qp_post_send_beside, vb_qp_post_recv_beside - as vb_qp_post_send and vb_qp_post_recv, of a QP
 * that is single; nothing happens before the QP is rung, or taken over. An address handle must not
 * be destroyed before. */
int vb_qp_post_send_beside(struct vb_qp *qp, const struct vb_send_wr *wr);
int vb_qp_post_recv_beside(struct vb_qp *qp, const struct vb_recv_wr *wr);

/* vb_qp_ring - says that something was posted. */
void vb_qp_ring(struct vb_qp *qp);

/* vb_qp_sq_used - places of the send queue that are taken, as the thread sees it. */
static inline uint32_t vb_qp_sq_used(const struct vb_qp *qp)
{
	return (qp->single ? qp->sq_posted : qp->sq_head) - vb_qp_sq_free(qp);
}

/* --- anybody ----------------------------------------------------------------------------- */

/* vb_nic_is_rung - in one order with what happens to the lock of whoever owns the NIC. */
static inline bool vb_nic_is_rung(const struct vb_nic *nic)
{
	return __atomic_load_n(&nic->rung, __ATOMIC_SEQ_CST) != NULL;
}

/* --- whoever drives the NIC -------------------------------------------------------------- */

/* vb_qp_take_posted - takes over what was posted to a QP that is single. */
void vb_qp_take_posted(struct vb_qp *qp);

/* vb_nic_answer - the same for every QP that was rung. */
void vb_nic_answer(struct vb_nic *nic);

#endif
