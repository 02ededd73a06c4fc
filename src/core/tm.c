/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tm.c - see tm.h. Matching is a walk along the list; who has thousands of tags posted pays for it,
 * as on an adapter.
 */
#include "core/tm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/transport.h"

#define READS_AT_ONCE (VB_TM_SENDS / 2) /* each becomes a FIN when it completes */
#define INDEX_BITS 16

_Static_assert(VB_MAX_TM_TAGS <= 1u << INDEX_BITS, "a handle has room for the index");

int vb_tm_init(struct vb_srq *srq, struct vb_cq *cq, uint32_t max_tags)
{
	struct vb_tm *tm;

	VB_ASSERT(srq->users == 0 && !srq->tm);
	if (max_tags == 0 || max_tags > VB_MAX_TM_TAGS)
		return -EINVAL;
	tm = calloc(1, sizeof(*tm));
	if (!tm)
		return -ENOMEM;
	tm->entries = calloc(max_tags, sizeof(*tm->entries));
	tm->sges = calloc((size_t)max_tags * VB_MAX_TM_SGE, sizeof(*tm->sges));
	if (!tm->entries || !tm->sges) {
		free(tm->entries);
		free(tm->sges);
		free(tm);
		return -ENOMEM;
	}
	tm->max_tags = max_tags;
	vb_list_init(&tm->list);
	vb_list_init(&tm->free);
	for (uint32_t i = 0; i < max_tags; i++) {
		tm->entries[i].sges = tm->sges + (size_t)i * VB_MAX_TM_SGE;
		vb_list_append(&tm->free, &tm->entries[i].link);
	}
	srq->tm = tm;
	srq->cq = cq;
	cq->users++;
	return 0;
}

void vb_tm_finish(struct vb_srq *srq)
{
	if (!srq->tm)
		return;
	srq->cq->users--;
	free(srq->tm->entries);
	free(srq->tm->sges);
	free(srq->tm);
	srq->tm = NULL;
}

/* --- the list ---------------------------------------------------------------------------- */

static bool in_step(const struct vb_tm *tm)
{
	return tm->handled == tm->unexpected;
}

static void synchronise(struct vb_tm *tm, uint32_t handled)
{
	struct vb_list *link, *tmp;

	tm->handled = handled;
	if (!in_step(tm))
		return;
	vb_list_for_each(link, tmp, &tm->list) vb_list_entry(link, struct vb_tm_entry, link)
		->enabled = true;
}

static uint32_t handle_of(const struct vb_tm *tm, const struct vb_tm_entry *e)
{
	return (uint32_t)e->generation << INDEX_BITS | (uint32_t)(e - tm->entries);
}

static void release(struct vb_tm *tm, struct vb_tm_entry *e)
{
	e->listed = false;
	e->generation++;
	vb_list_remove(&e->link);
	vb_list_append(&tm->free, &e->link);
}

static int add(struct vb_tm *tm, struct vb_tm_op *op)
{
	struct vb_tm_entry *e;
	struct vb_list *link;
	uint64_t length = 0;

	if (op->num_sge > VB_MAX_TM_SGE)
		return -EINVAL;
	for (uint32_t i = 0; i < op->num_sge; i++)
		length += op->sges[i].length;
	if (length > VB_MAX_MESSAGE)
		return -EINVAL;
	link = vb_list_pop(&tm->free);
	if (!link)
		return -ENOMEM;
	if (op->sync)
		synchronise(tm, op->unexpected);
	e = vb_list_entry(link, struct vb_tm_entry, link);
	e->listed = true;
	e->enabled = in_step(tm);
	e->tag = op->tag;
	e->mask = op->mask;
	e->wr_id = op->recv_wr_id;
	e->length = (uint32_t)length;
	e->num_sge = op->num_sge;
	if (op->num_sge)
		memcpy(e->sges, op->sges, op->num_sge * sizeof(*op->sges));
	vb_list_append(&tm->list, &e->link);
	op->handle = handle_of(tm, e);
	return 0;
}

/* delete - false: a message took the buffer before, or the handle was never given. */
static bool delete (struct vb_tm *tm, uint32_t handle)
{
	const uint32_t index = handle & ((1u << INDEX_BITS) - 1);
	struct vb_tm_entry *e = &tm->entries[index];

	if (index >= tm->max_tags || !e->listed || handle_of(tm, e) != handle)
		return false;
	release(tm, e);
	return true;
}

int vb_tm_post(struct vb_srq *srq, struct vb_tm_op *op)
{
	static const uint8_t wc_opcode[] = {
		[VB_TM_ADD] = VB_WC_TM_ADD,
		[VB_TM_DEL] = VB_WC_TM_DEL,
		[VB_TM_SYNC] = VB_WC_TM_SYNC,
	};
	struct vb_cqe cqe = {.wr_id = op->wr_id, .status = VB_WC_SUCCESS};
	struct vb_tm *tm = srq->tm;
	int rc;

	if (!tm || (unsigned int)op->opcode > VB_TM_SYNC)
		return -EINVAL;
	switch (op->opcode) {
	case VB_TM_ADD:
		rc = add(tm, op);
		if (rc < 0)
			return rc;
		break;
	case VB_TM_DEL:
		if (!delete (tm, op->handle))
			cqe.status = VB_WC_TM_ERR;
		if (op->sync)
			synchronise(tm, op->unexpected);
		break;
	case VB_TM_SYNC:
		synchronise(tm, op->unexpected);
		break;
	}
	if (!op->signaled && cqe.status == VB_WC_SUCCESS)
		return 0;
	cqe.opcode = wc_opcode[op->opcode];
	cqe.wc_flags = in_step(tm) ? 0 : VB_WC_TM_SYNC_REQ;
	vb_cq_push(srq->cq, &cqe, NULL);
	return 0;
}

/* --- receiving --------------------------------------------------------------------------- */

static uint32_t get32(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint64_t get64(const uint8_t *at)
{
	return (uint64_t)get32(at) << 32 | get32(at + 4);
}

static struct vb_tm_entry *find(struct vb_tm *tm, uint64_t tag)
{
	struct vb_list *link, *tmp;

	vb_list_for_each(link, tmp, &tm->list)
	{
		struct vb_tm_entry *e = vb_list_entry(link, struct vb_tm_entry, link);

		if (e->enabled && (tag & e->mask) == e->tag)
			return e;
	}
	return NULL;
}

static bool take_ordinary(struct vb_qp *qp, enum vb_tm_kind kind)
{
	if (!vb_qp_take_recv(qp))
		return false;
	qp->resp.tm = (struct vb_tm_message){.kind = (uint8_t)kind};
	if (kind == VB_TM_UNEXPECTED)
		qp->srq->tm->unexpected++;
	return true;
}

static void take_tagged(struct vb_qp *qp, struct vb_tm_entry *e)
{
	struct vb_recv_wqe *recv = &qp->resp.recv;

	VB_ASSERT(!qp->resp.recv_held);
	recv->sges = qp->recv_sges;
	recv->wr_id = e->wr_id;
	recv->length = e->length;
	recv->num_sge = e->num_sge;
	memcpy(recv->sges, e->sges, e->num_sge * sizeof(*e->sges));
	qp->resp.recv_held = true;
	release(qp->srq->tm, e);
}

bool vb_tm_take(struct vb_qp *qp, const uint8_t *payload, uint32_t bytes, bool only)
{
	struct vb_tm_message *message = &qp->resp.tm;
	const uint8_t operation = bytes ? payload[0] : VB_TMH_NO_TAG;
	struct vb_tm_entry *e = NULL;
	bool rndv = operation == VB_TMH_RNDV;

	if (bytes < VB_TMH_BYTES || (!rndv && operation != VB_TMH_EAGER))
		return take_ordinary(qp, VB_TM_NO_TAG);
	/* A rendezvous that is not as it should be, or that comes before the queue pair may send,
	 * is the program's to understand. */
	if (!rndv || (only && bytes >= VB_TM_HEADERS_BYTES && bytes <= VB_TM_RNDV_BYTES &&
		      qp->state == VB_QPS_RTS))
		e = find(qp->srq->tm, get64(payload + 8));
	if (!e)
		return take_ordinary(qp, VB_TM_UNEXPECTED);
	if (rndv && qp->sq_head - qp->sq_free >= READS_AT_ONCE)
		return false;
	take_tagged(qp, e);
	*message = (struct vb_tm_message){
		.kind = rndv ? VB_TM_RNDV : VB_TM_EAGER,
		.skip = rndv ? bytes : VB_TMH_BYTES,
		.app_ctx = get32(payload + 4),
		.tag = get64(payload + 8),
	};
	if (rndv)
		memcpy(message->headers, payload, VB_TM_HEADERS_BYTES);
	return true;
}

static struct vb_cqe about_match(const struct vb_tm_message *message, uint8_t more)
{
	return (struct vb_cqe){
		.status = VB_WC_SUCCESS,
		.opcode = VB_WC_TM_RECV,
		.wc_flags = VB_WC_TM_MATCH | more,
		.tm_tag = message->tag,
		.tm_priv = message->app_ctx,
	};
}

void vb_tm_begun(struct vb_qp *qp)
{
	const struct vb_cqe facts = about_match(&qp->resp.tm, 0);

	if (qp->resp.tm.kind == VB_TM_EAGER)
		vb_qp_push_recv(qp, &qp->resp.recv, &facts, NULL);
}

/* --- rendezvous -------------------------------------------------------------------------- */

static struct vb_send_wqe *next_place(struct vb_qp *qp)
{
	struct vb_send_wqe *w = vb_qp_wqe(qp, qp->sq_head);

	VB_ASSERT(qp->sq_head - qp->sq_free < VB_TM_SENDS);
	*w = (struct vb_send_wqe){.sges = w->sges, .inline_data = w->inline_data, .own = true};
	return w;
}

static void enqueue(struct vb_qp *qp)
{
	qp->sq_head++;
	vb_nic_make_ready(qp->nic, qp);
}

static void fetch(struct vb_qp *qp)
{
	const struct vb_tm_message *message = &qp->resp.tm;
	const struct vb_recv_wqe *recv = &qp->resp.recv;
	struct vb_send_wqe *w = next_place(qp);

	w->opcode = VB_WR_RDMA_READ;
	w->wr_id = recv->wr_id;
	w->remote_addr = get64(message->headers + VB_TMH_BYTES);
	w->rkey = get32(message->headers + VB_TMH_BYTES + 8);
	w->length = get32(message->headers + VB_TMH_BYTES + 12);
	w->num_sge = recv->num_sge;
	memcpy(w->sges, recv->sges, recv->num_sge * sizeof(*recv->sges));
	memcpy(w->inline_data, message->headers, VB_TM_HEADERS_BYTES); /* for the FIN */
	enqueue(qp);
}

/* The tagged buffer is too short for what the sender has: the program gets the headers in it. */
static void give_headers(struct vb_qp *qp, uint32_t wanted)
{
	const struct vb_recv_wqe *recv = &qp->resp.recv;
	struct vb_cqe facts = about_match(&qp->resp.tm, 0);
	struct vb_reason reason = vb_qp_reason(qp, VB_CHECK_RECV_TOO_SHORT);

	reason.value[0] = wanted;
	reason.value[1] = recv->length;
	facts.status = VB_WC_TM_RNDV_INCOMPLETE;
	facts.byte_len = VB_MIN(recv->length, VB_TM_HEADERS_BYTES);
	if (!vb_scatter_recv(qp, 0, qp->resp.tm.headers, facts.byte_len, &reason))
		facts.byte_len = 0;
	vb_qp_push_recv(qp, recv, &facts, &reason);
}

static void complete_rendezvous(struct vb_qp *qp)
{
	const struct vb_cqe facts = about_match(&qp->resp.tm, 0);
	const uint32_t length = get32(qp->resp.tm.headers + VB_TMH_BYTES + 12);

	if (length > qp->resp.recv.length) {
		give_headers(qp, length);
		return;
	}
	vb_qp_push_recv(qp, &qp->resp.recv, &facts, NULL);
	fetch(qp);
}

void vb_tm_complete(struct vb_qp *qp, const struct vb_headers *h, uint32_t total, bool only)
{
	const bool with_imm = vb_opcode_table[h->opcode].flags & VB_HAS_IMM;
	struct vb_cqe facts = {.status = VB_WC_SUCCESS, .opcode = VB_WC_TM_RECV};

	VB_ASSERT(qp->resp.recv_held);
	qp->resp.recv_held = false;
	switch ((enum vb_tm_kind)qp->resp.tm.kind) {
	case VB_TM_NO_TAG:
		facts.opcode = VB_WC_TM_NO_TAG;
		break;
	case VB_TM_UNEXPECTED:
		break;
	case VB_TM_EAGER:
		if (only)
			facts = about_match(&qp->resp.tm, VB_WC_TM_DATA_VALID);
		else
			facts.wc_flags = VB_WC_TM_DATA_VALID;
		break;
	case VB_TM_RNDV:
		complete_rendezvous(qp);
		return;
	}
	facts.byte_len = total;
	facts.solicited = h->solicited;
	facts.src_qpn = qp->attr.dest_qpn;
	if (with_imm) {
		facts.wc_flags |= VB_WC_WITH_IMM;
		facts.imm = h->imm;
	}
	vb_qp_push_recv(qp, &qp->resp.recv, &facts, NULL);
}

void vb_tm_sent(struct vb_qp *qp, const struct vb_send_wqe *w, enum vb_status status,
		const struct vb_reason *reason)
{
	const struct vb_recv_wqe recv = {.wr_id = w->wr_id};
	struct vb_cqe facts = {.status = (uint8_t)status, .opcode = VB_WC_TM_RECV};
	uint8_t headers[VB_TM_HEADERS_BYTES];
	struct vb_send_wqe *fin;

	if (w->opcode != VB_WR_RDMA_READ)
		return;
	if (status == VB_WC_SUCCESS) {
		facts.wc_flags = VB_WC_TM_DATA_VALID;
		facts.byte_len = w->length;
	}
	memcpy(headers, w->inline_data, sizeof(headers));
	vb_qp_push_recv(qp, &recv, &facts, reason);
	if (status != VB_WC_SUCCESS)
		return;
	headers[0] = VB_TMH_FIN;
	fin = next_place(qp);
	fin->opcode = VB_WR_SEND;
	fin->flags = VB_SEND_INLINE;
	fin->length = sizeof(headers);
	memcpy(fin->inline_data, headers, sizeof(headers));
	enqueue(qp);
}
