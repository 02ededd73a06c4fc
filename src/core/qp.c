/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * qp.c - queue pairs: creation, destruction, query, and the invariants that hold between any two
 * calls. All memory that a QP will ever need is taken here.
 */
#include "core/beside.h"
#include "core/mcast.h"
#include "core/qp.h"
#include "core/xrc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/psn.h"
#include "base/ring.h"
#include "core/nic.h"
#include "core/room.h"
#include "core/tally.h"
#include "core/transport.h"

/* What an idle RC QP costs beside its queues; the promise is 8 KiB, the path's carrier has its
 * share. */
_Static_assert(sizeof(struct vb_qp) <= 4096, "an idle queue pair stays small");
#define ROOM_BEHIND 4096u
#define HEAP_BYTES 16u /* of its own, beside each piece */
#define SGE_BYTES 16u  /* in an adapter's queue: address, length, lkey */

_Static_assert(VB_MAX_SGE *SGE_BYTES <= VB_MAX_INLINE, "no QP gets more than the limit");
_Static_assert(VB_MAX_INLINE <= VB_MAX_PATH_MTU, "an inline UD message fits a packet");

static bool is_type(enum vb_qp_type type)
{
	switch (type) {
	case VB_QPT_RC:
	case VB_QPT_UC:
	case VB_QPT_UD:
	case VB_QPT_XRC_SEND:
	case VB_QPT_XRC_RECV:
	case VB_QPT_RAW_PACKET:
		return true;
	}
	return false;
}

/* What a QP of this type lives in and completes into, and nothing else. */
static bool surroundings_are_valid(const struct vb_pd *pd, const struct vb_qp_init *init)
{
	if (!is_type(init->type))
		return false;
	if (init->rss)
		return init->type == VB_QPT_RAW_PACKET && pd && !init->xrcd && !init->send_cq &&
		       !init->recv_cq && !init->srq;
	if (init->type == VB_QPT_XRC_RECV)
		return init->xrcd && !pd && !init->send_cq && !init->recv_cq && !init->srq;
	if (!pd || init->xrcd || !init->send_cq)
		return false;
	if (init->type == VB_QPT_XRC_SEND)
		return !init->srq;
	/* ibv_create_qp(3) */
	return init->recv_cq && !(init->srq && init->type == VB_QPT_UC);
}

static bool has_receive_queue(const struct vb_qp_init *init)
{
	return !init->srq && init->type != VB_QPT_XRC_SEND && init->type != VB_QPT_XRC_RECV;
}

static bool init_is_valid(const struct vb_qp_init *init)
{
	const struct vb_qp_cap *cap = &init->cap;

	if (init->type == VB_QPT_XRC_RECV || init->rss) /* have no queues */
		return true;
	if (init->max_tso_header > VB_MAX_TSO_HEADER ||
	    (init->type != VB_QPT_RAW_PACKET && (init->max_tso_header || init->strip_vlan)))
		return false;
	/* Tag matching is for RC, and takes the send queue for itself. */
	if (init->srq && init->srq->tm && (init->type != VB_QPT_RC || cap->max_send_wr))
		return false;
	if (cap->max_send_wr > VB_MAX_QP_WR || cap->max_send_sge > VB_MAX_SGE ||
	    cap->max_inline_data > VB_MAX_INLINE)
		return false;
	/* Without a receive queue, what was asked for it does not matter. */
	return !has_receive_queue(init) ||
	       (cap->max_recv_wr <= VB_MAX_QP_WR && cap->max_recv_sge <= VB_MAX_SGE);
}

/* What the QP gets: what was asked for, but a send queue that can be used. Adapters keep inline
 * data where a request's SGEs would be, so that there is room for some without asking, and programs
 * send it without asking (rdma_xclient). */
static struct vb_qp_cap choose_cap(const struct vb_qp_init *init)
{
	struct vb_qp_cap cap = init->cap;

	if (init->type == VB_QPT_XRC_RECV || init->rss || (init->srq && init->srq->tm))
		return (struct vb_qp_cap){0};
	cap.max_send_wr = VB_MAX(cap.max_send_wr, 1u);
	cap.max_send_sge = VB_MAX(cap.max_send_sge, 1u);
	cap.max_inline_data = VB_MAX(cap.max_inline_data, cap.max_send_sge * SGE_BYTES);
	if (!has_receive_queue(init))
		cap.max_recv_wr = cap.max_recv_sge = 0;
	else if (cap.max_recv_wr)
		cap.max_recv_sge = VB_MAX(cap.max_recv_sge, 1u);
	return cap;
}

/* What the send queue must have room for. */
static struct vb_qp_cap send_room(const struct vb_srq *srq, const struct vb_qp_cap *cap)
{
	if (!srq || !srq->tm)
		return *cap;
	return (struct vb_qp_cap){
		.max_send_wr = VB_TM_SENDS,
		.max_send_sge = VB_MAX_TM_SGE,
		.max_inline_data = VB_TM_HEADERS_BYTES,
	};
}

size_t vb_qp_room(const struct vb_qp_init *init)
{
	struct vb_qp_cap cap, sends;
	size_t places;

	if (!init_is_valid(init))
		return 0;
	cap = choose_cap(init);
	sends = send_room(init->srq, &cap);
	if (!sends.max_send_wr) /* XRC_RECV, RSS */
		return 0;
	places = (size_t)vb_ring_mask(sends.max_send_wr) + 1;
	return vb_room_bytes(places, sizeof(struct vb_send_wqe)) +
	       vb_room_bytes(places * sends.max_send_sge, sizeof(struct vb_sge)) +
	       vb_room_bytes(places, (size_t)sends.max_inline_data + init->max_tso_header) +
	       vb_rq_room(cap.max_recv_wr, cap.max_recv_sge);
}

static int alloc_send_queue(struct vb_qp *qp, void **room)
{
	const struct vb_qp_cap sends = send_room(qp->srq, &qp->cap), *cap = &sends;
	const size_t bytes = (size_t)cap->max_inline_data + qp->tso_header_max;
	size_t places;

	if (!cap->max_send_wr) /* XRC_RECV, RSS */
		return 0;
	qp->sq_mask = vb_ring_mask(cap->max_send_wr);
	places = (size_t)qp->sq_mask + 1;
	qp->sq = vb_room_take(room, places, sizeof(*qp->sq));
	qp->sq_sges = vb_room_take(room, places * cap->max_send_sge, sizeof(*qp->sq_sges));
	qp->sq_inline = vb_room_take(room, places, bytes);
	if (!qp->sq || !qp->sq_sges || !qp->sq_inline)
		return -ENOMEM;
	for (size_t i = 0; i < places; i++) {
		qp->sq[i].sges = qp->sq_sges + i * cap->max_send_sge;
		qp->sq[i].inline_data = qp->sq_inline + i * bytes;
	}
	return 0;
}

static int alloc_receive_queue(struct vb_qp *qp, void *room)
{
	uint32_t sges = VB_MAX(qp->srq ? qp->srq->rq.max_sge : qp->cap.max_recv_sge, 1u);

	if (qp->srq && qp->srq->tm)
		sges = VB_MAX(sges, VB_MAX_TM_SGE);
	if (qp->xrcd)
		sges = VB_MAX_SRQ_SGE;
	qp->recv_sges = calloc(sges, sizeof(*qp->recv_sges));
	if (!qp->recv_sges)
		return -ENOMEM;
	qp->resp.recv.sges = qp->recv_sges;
	return vb_rq_init_in(&qp->rq, qp->cap.max_recv_wr, qp->cap.max_recv_sge, room);
}

static void free_qp(struct vb_qp *qp)
{
	free(qp->rss);
	vb_rq_finish(&qp->rq);
	free(qp->recv_sges);
	if (!qp->given) {
		free(qp->sq_inline);
		free(qp->sq_sges);
		free(qp->sq);
	}
	free(qp);
}

static void count_users(struct vb_qp *qp, int by)
{
	if (qp->pd)
		qp->pd->users += (uint32_t)by;
	if (qp->send_cq)
		qp->send_cq->users += (uint32_t)by;
	if (qp->recv_cq)
		qp->recv_cq->users += (uint32_t)by;
	if (qp->xrcd)
		qp->xrcd->users += (uint32_t)by;
	if (qp->rss)
		qp->rss->table->users += (uint32_t)by;
	if (qp->srq)
		qp->srq->users += (uint32_t)by;
}

static int copy_rss(struct vb_qp *qp, const struct vb_rss *rss)
{
	if (!rss)
		return 0;
	qp->rss = malloc(sizeof(*qp->rss));
	if (!qp->rss)
		return -ENOMEM;
	*qp->rss = *rss;
	return 0;
}

/* Memory, and a number; what was taken so far is free_qp()'s when it fails. */
static int take_all(struct vb_qp *qp, const struct vb_rss *rss, void *room)
{
	if (copy_rss(qp, rss) < 0 || alloc_send_queue(qp, &room) < 0 ||
	    alloc_receive_queue(qp, room) < 0)
		return -ENOMEM;
	return vb_nic_add_qp(qp->nic, qp);
}

/* Raw packets need the NIC to judge them; the other types' send queues are not the program's. */
static bool may_be_single(const struct vb_qp_init *init)
{
	return init->type != VB_QPT_RAW_PACKET && init->type != VB_QPT_XRC_RECV &&
	       !(init->srq && init->srq->tm);
}

/* allocate - the QP and, behind it, the room of small queues that nobody gave memory for: one
 * piece, in whole lines. Large ones stay untouched until they are used. */
static struct vb_qp *allocate(const struct vb_qp_init *init, void **room)
{
	size_t behind = init->room ? 0 : vb_qp_room(init), bytes;
	struct vb_qp *qp;
	void *piece;

	if (behind > ROOM_BEHIND)
		behind = 0;
	/* From one to the next it is to be an odd number of lines, the heap's own bytes included,
	 * or a few sets of the cache would have to hold the same line of all. */
	bytes = sizeof(*qp) + behind;
	if ((bytes + HEAP_BYTES + VB_LINE_BYTES - 1) / VB_LINE_BYTES % 2 == 0)
		bytes += VB_LINE_BYTES;
	if (posix_memalign(&piece, VB_LINE_BYTES, bytes) != 0)
		return NULL;
	memset(piece, 0, bytes);
	qp = piece;
	*room = behind ? (void *)(qp + 1) : init->room;
	qp->given = *room != NULL;
	return qp;
}

struct vb_qp *vb_qp_create(struct vb_pd *pd, struct vb_qp_init *init)
{
	struct vb_qp *qp;
	void *room;
	int rc;

	if (!surroundings_are_valid(pd, init) || !init_is_valid(init)) {
		errno = EINVAL;
		return NULL;
	}
	qp = allocate(init, &room);
	if (!qp) {
		errno = ENOMEM;
		return NULL;
	}
	qp->nic = pd ? pd->nic : init->xrcd->nic;
	qp->user = init->user;
	qp->type = init->type;
	qp->state = VB_QPS_RESET;
	qp->pd = pd;
	qp->send_cq = init->send_cq;
	qp->recv_cq = init->recv_cq;
	qp->srq = init->srq;
	qp->xrcd = init->xrcd;
	vb_list_init(&qp->xrc_link);
	qp->sq_sig_all = init->sq_sig_all;
	qp->single = init->single && may_be_single(init);
	vb_list_init(&qp->windows);
	qp->cap = choose_cap(init);
	qp->tso_header_max = init->max_tso_header;
	qp->strip_vlan = init->strip_vlan;
	rc = init->type == VB_QPT_RAW_PACKET ? vb_raw_get(pd->nic) : 0;
	if (rc == 0) {
		rc = take_all(qp, init->rss, room);
		if (rc < 0 && init->type == VB_QPT_RAW_PACKET)
			vb_raw_put(pd->nic);
	}
	if (rc < 0) {
		free_qp(qp);
		errno = -rc;
		return NULL;
	}
	count_users(qp, 1);
	if (qp->xrcd)
		vb_list_append(&qp->xrcd->qps, &qp->xrc_link);
	init->cap = qp->cap;
	return qp;
}

void vb_qp_destroy(struct vb_qp *qp)
{
	struct vb_nic *nic;

	if (!qp)
		return;
	nic = qp->nic;
	VB_ASSERT(qp->flows == 0);
	if (qp->single)
		vb_nic_answer(nic); /* none is rung any more, this one neither */
	vb_mcast_detach_all(qp);
	/* RESET forgets requests and completions, gives the path back and tells the surroundings.
	 */
	vb_qp_set_state(qp, VB_QPS_RESET);
	vb_mw_free_all(qp);
	vb_qp_detach_counters(qp);
	vb_nic_remove_qp(nic, qp);
	vb_list_remove(&qp->xrc_link);
	if (qp->type == VB_QPT_RAW_PACKET)
		vb_raw_put(nic);
	count_users(qp, -1);
	free_qp(qp);
}

void vb_qp_query(const struct vb_qp *qp, struct vb_qp_attr *attr)
{
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = qp->state;
	attr->sq_draining = qp->state == VB_QPS_SQD && !qp->sqd_notified;
	/* While it lives, the PSNs are those that come next, as hardware has it. */
	switch (qp->state) {
	case VB_QPS_RTS:
	case VB_QPS_SQD:
	case VB_QPS_SQE:
		attr->sq_psn = qp->req.nxt_psn;
		attr->rq_psn = qp->resp.epsn;
		break;
	case VB_QPS_RTR:
		attr->rq_psn = qp->resp.epsn;
		break;
	case VB_QPS_RESET:
	case VB_QPS_INIT:
	case VB_QPS_ERR:
		break;
	}
}

/* --- invariants -------------------------------------------------------------------------- */

static void check_places(const struct vb_qp *qp)
{
	const struct vb_nic *nic = qp->nic;

	VB_ASSERT(vb_nic_find_qp(nic, qp->qpn) == qp);
	VB_ASSERT(!qp->blocked || vb_list_is_linked(&qp->ready_link));
	if (vb_heap_holds(&qp->timer)) {
		VB_ASSERT(qp->timer.index < nic->timers.count);
		VB_ASSERT(nic->timers.items[qp->timer.index].item == &qp->timer);
	}
}

static void check_queues(const struct vb_qp *qp)
{
	uint32_t used = qp->sq_head - vb_qp_sq_free(qp);

	/* sq_free <= sq_una <= sq_next <= sq_head, and no more than was promised between the ends.
	 */
	VB_ASSERT(used <= send_room(qp->srq, &qp->cap).max_send_wr);
	VB_ASSERT(qp->sq_una - vb_qp_sq_free(qp) <= used);
	VB_ASSERT(qp->sq_next - qp->sq_una <= qp->sq_head - qp->sq_una);
	VB_ASSERT(qp->sq_head - qp->sq_una <= used);
	VB_ASSERT(vb_rq_count(&qp->rq) <= qp->rq.max_wr);
	VB_ASSERT(!qp->srq || qp->rq.max_wr == 0);
	VB_ASSERT(qp->single || (qp->sq_posted == 0 && !qp->rung));
	VB_ASSERT(!qp->xrcd || qp->sq_head == 0);
}

static void check_requester(const struct vb_qp *qp)
{
	const struct vb_requester *req = &qp->req;

	VB_ASSERT(req->una_psn <= VB_PSN_MASK && req->nxt_psn <= VB_PSN_MASK &&
		  req->end_psn <= VB_PSN_MASK);
	VB_ASSERT(!vb_psn_before(req->nxt_psn, req->una_psn));
	VB_ASSERT(!vb_psn_before(req->end_psn, req->nxt_psn));
	VB_ASSERT(req->sq_assigned - qp->sq_una <= qp->sq_head - qp->sq_una);
	VB_ASSERT(req->rd_outstanding <= VB_MAX_RD_ATOMIC);
}

static void check_responder(const struct vb_qp *qp)
{
	const struct vb_responder *resp = &qp->resp;

	VB_ASSERT(resp->epsn <= VB_PSN_MASK && resp->msn <= VB_PSN_MASK);
	VB_ASSERT(resp->reply_head - resp->reply_next <= VB_MAX_RD_ATOMIC);
	VB_ASSERT(resp->reply_done - resp->reply_next <= resp->reply_head - resp->reply_next);
	VB_ASSERT(resp->recv.sges == qp->recv_sges);
	VB_ASSERT(!qp->xrcd || !resp->recv_held || resp->srq);
	/* UC keeps the request of a message that was lost in the middle, RC that of one which it
	 * could not fetch (lend.c); a WRITE may come in between. */
	VB_ASSERT(!resp->recv_held || resp->message != VB_MSG_NONE || qp->type == VB_QPT_UC ||
		  (qp->type == VB_QPT_RC && qp->nic->ops.fetch));
}

void vb_qp_check(const struct vb_qp *qp)
{
	check_places(qp);
	check_queues(qp);
	switch (qp->state) {
	case VB_QPS_RESET:
		VB_ASSERT(!qp->path_valid && vb_rq_count(&qp->rq) == 0);
		VB_ASSERT(qp->sq_head == qp->sq_free && !qp->resp.recv_held);
		break;
	case VB_QPS_INIT:
		VB_ASSERT(qp->sq_head == qp->sq_free && !qp->resp.recv_held);
		break;
	case VB_QPS_RTR:
	case VB_QPS_RTS:
	case VB_QPS_SQD:
	case VB_QPS_SQE:
		VB_ASSERT(qp->path_valid == !vb_qp_is_datagram(qp) && qp->mtu >= 256);
		check_responder(qp);
		if (qp->state != VB_QPS_RTR)
			check_requester(qp);
		if (qp->state == VB_QPS_SQE)
			VB_ASSERT(!vb_qp_is_reliable(qp) && qp->sq_una == qp->sq_head);
		break;
	case VB_QPS_ERR: /* all was flushed */
		VB_ASSERT(qp->sq_una == qp->sq_head && !qp->resp.recv_held);
		VB_ASSERT(vb_rq_count(&qp->rq) == 0 || qp->single); /* may come meanwhile */
		break;
	}
}
