/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * raw.c - sending and receiving whole frames. See raw.h.
 *
 * A frame is put together in the NIC's one buffer, since checksums and the headers of a cut segment
 * are written into it. A TSO request is cut when its turn comes, a frame at a time; `moved` counts
 * the payload bytes that have gone, so that it goes on where the carrier had no room.
 */
#include "core/raw.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/transport.h"
#include "core/wq.h"

#define FRAMES_PER_TURN 64u
#define TCP_FIN 0x01
#define TCP_PSH 0x08
#define TCP_CWR 0x80

int vb_raw_allowed(struct vb_nic *nic)
{
	return nic->ops.raw_allowed ? nic->ops.raw_allowed(nic->env) : 0;
}

int vb_raw_get(struct vb_nic *nic)
{
	struct vb_raw *raw = nic->raw;
	int rc;

	if (raw) {
		rc = vb_raw_allowed(nic);
		raw->users += rc == 0;
		return rc;
	}
	if (!nic->ops.raw_open)
		return -EOPNOTSUPP;
	raw = calloc(1, sizeof(*raw));
	if (!raw)
		return -ENOMEM;
	rc = nic->ops.raw_open(nic->env, &raw->port);
	if (rc < 0)
		goto err_free;
	raw->frame_bytes = VB_ETHERNET_BYTES + VB_VLAN_BYTES + raw->port.mtu;
	raw->frame = malloc(raw->frame_bytes);
	rc = -ENOMEM;
	if (!raw->frame)
		goto err_close;
	vb_list_init(&raw->flows);
	raw->users = 1;
	nic->raw = raw;
	return 0;
err_close:
	nic->ops.raw_close(nic->env);
err_free:
	free(raw);
	return rc;
}

void vb_raw_put(struct vb_nic *nic)
{
	struct vb_raw *raw = nic->raw;

	VB_ASSERT(raw && raw->users > 0);
	if (--raw->users > 0)
		return;
	VB_ASSERT(raw->flow_count == 0);
	nic->ops.raw_close(nic->env);
	free(raw->frame);
	free(raw);
	nic->raw = NULL;
}

uint32_t vb_raw_frame_max(const struct vb_nic *nic)
{
	return VB_ETHERNET_BYTES + nic->raw->port.mtu;
}

/* --- sending ----------------------------------------------------------------------------- */

enum outcome { SENT, WAIT, FAILED };

static enum outcome fail(struct vb_qp *qp, enum vb_status status, const struct vb_reason *reason)
{
	vb_qp_fail_send(qp, status, reason);
	return FAILED;
}

static enum outcome fail_length(struct vb_qp *qp, uint32_t length, uint32_t limit)
{
	struct vb_reason reason = vb_qp_reason(qp, VB_CHECK_MESSAGE_TOO_LONG);

	reason.value[0] = length;
	reason.value[1] = limit;
	return fail(qp, VB_WC_LOC_LEN_ERR, &reason);
}

/* gather - message bytes [offset, offset + length) to out. False: reason holds why. */
static bool gather(const struct vb_qp *qp, const struct vb_send_wqe *w, uint32_t offset,
		   uint32_t length, uint8_t *out, struct vb_reason *reason)
{
	struct iovec iov[VB_MAX_SGE];
	int parts;

	if (w->flags & VB_SEND_INLINE) {
		memcpy(out, w->inline_data + offset, length);
		return true;
	}
	parts = vb_gather_payload(qp, w->sges, w->num_sge, offset, length, iov, reason);
	for (int i = 0; i < parts; i++) {
		memcpy(out, iov[i].iov_base, iov[i].iov_len);
		out += iov[i].iov_len;
	}
	return parts >= 0;
}

/* put_out - hands the frame over, and lets our own rules see it. False: no room now. */
static bool put_out(struct vb_qp *qp, uint32_t size)
{
	struct vb_nic *nic = qp->nic;
	int rc = nic->ops.raw_tx(nic->env, nic->raw->frame, size);

	if (rc == -EAGAIN) {
		vb_nic_block(nic, qp);
		return false;
	}
	if (rc < 0)
		nic->counters.tx_dropped++;
	else
		nic->counters.tx_packets++;
	return true;
}

/* hear_it - as the last thing, since a rule may give it to the very queue pair that sent it. */
static void hear_it(struct vb_nic *nic, uint32_t size)
{
	if (!nic->raw->port.returns)
		vb_nic_raw_rx(nic, nic->raw->frame, size, VB_RAW_SENT, false, nic->now_ns);
}

static enum outcome send_frame(struct vb_qp *qp, struct vb_send_wqe *w)
{
	struct vb_nic *nic = qp->nic;
	const uint32_t size = w->length, limit = vb_raw_frame_max(nic);
	struct vb_reason reason = {0};
	struct vb_frame frame;

	if (size < VB_ETHERNET_BYTES || size > limit + VB_VLAN_BYTES)
		return fail_length(qp, size, limit);
	if (!gather(qp, w, 0, size, nic->raw->frame, &reason))
		return fail(qp, VB_WC_LOC_PROT_ERR, &reason);
	vb_frame_parse(&frame, nic->raw->frame, size);
	if (size > limit && !frame.has_vlan)
		return fail_length(qp, size, limit);
	if (w->flags & VB_SEND_IP_CSUM)
		vb_frame_fill_checksums(&frame, nic->raw->frame);
	if (!put_out(qp, size))
		return WAIT;
	vb_qp_complete_send(qp, VB_WC_SUCCESS, NULL);
	hear_it(nic, size);
	return SENT;
}

static uint32_t get16(const uint8_t *at)
{
	return (uint32_t)at[0] << 8 | at[1];
}

static void put16(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static void add32(uint8_t *at, uint32_t more)
{
	const uint32_t value = (get16(at) << 16 | get16(at + 2)) + more;

	put16(at, value >> 16);
	put16(at + 2, value & 0xffff);
}

/* adapt_headers - those of the whole become those of the segment that begins at offset. */
static void adapt_headers(const struct vb_frame *f, uint8_t *bytes, uint32_t offset, uint32_t index,
			  bool first, bool last)
{
	uint8_t *ip = bytes + f->l3_at, *tcp = bytes + f->l4_at;

	if (f->l3 == VB_L3_IPV4) {
		put16(ip + 2, f->size - f->l3_at);
		put16(ip + 4, get16(ip + 4) + index);
	} else {
		put16(ip + 4, f->size - f->l4_at);
	}
	add32(tcp + 4, offset);
	if (!last)
		tcp[13] &= (uint8_t) ~(TCP_FIN | TCP_PSH);
	if (!first)
		tcp[13] &= (uint8_t)~TCP_CWR;
	vb_frame_fill_checksums(f, bytes);
}

/* headers_can_be_cut - Ethernet, IP and TCP headers, and nothing behind them. */
static bool headers_can_be_cut(const struct vb_qp *qp, const struct vb_send_wqe *w)
{
	const uint8_t *header = vb_qp_tso_header(qp, w);
	struct vb_frame f;

	return vb_frame_parse(&f, header, w->tso_header_bytes) && f.l4 == VB_L4_TCP &&
	       f.l4_at + (uint32_t)(header[f.l4_at + 12] >> 4) * 4 == w->tso_header_bytes;
}

static enum outcome send_segment(struct vb_qp *qp, struct vb_send_wqe *w)
{
	struct vb_nic *nic = qp->nic;
	const uint32_t bytes = VB_MIN(w->length - w->moved, (uint32_t)w->tso_mss);
	const uint32_t size = w->tso_header_bytes + bytes;
	const bool last = w->moved + bytes == w->length;
	struct vb_reason reason = {0};
	struct vb_frame frame;

	if (w->moved == 0 && !headers_can_be_cut(qp, w)) {
		reason = vb_qp_reason(qp, VB_CHECK_TSO_HEADER);
		reason.value[0] = w->tso_header_bytes;
		return fail(qp, VB_WC_LOC_QP_OP_ERR, &reason);
	}
	if (size > nic->raw->frame_bytes)
		return fail_length(qp, size, nic->raw->frame_bytes);
	memcpy(nic->raw->frame, vb_qp_tso_header(qp, w), w->tso_header_bytes);
	if (!gather(qp, w, w->moved, bytes, nic->raw->frame + w->tso_header_bytes, &reason))
		return fail(qp, VB_WC_LOC_PROT_ERR, &reason);
	vb_frame_parse(&frame, nic->raw->frame, size);
	adapt_headers(&frame, nic->raw->frame, w->moved, w->moved / w->tso_mss, w->moved == 0,
		      last);
	if (!put_out(qp, size))
		return WAIT;
	w->moved += bytes;
	if (last)
		vb_qp_complete_send(qp, VB_WC_SUCCESS, NULL);
	hear_it(nic, size);
	return SENT;
}

/* SQD: what has begun goes on, nothing new begins. */
static bool may_send(const struct vb_qp *qp)
{
	if (qp->sq_next == qp->sq_head)
		return false;
	return qp->state == VB_QPS_RTS ||
	       (qp->state == VB_QPS_SQD && vb_qp_wqe(qp, qp->sq_next)->moved > 0);
}

bool vb_raw_run(struct vb_qp *qp)
{
	enum outcome outcome = SENT;
	uint32_t budget = FRAMES_PER_TURN;

	while (outcome == SENT && budget-- > 0 && may_send(qp)) {
		struct vb_send_wqe *w = vb_qp_wqe(qp, qp->sq_next);

		if (w->status_known)
			outcome = fail_length(qp, w->length, VB_MAX_TSO);
		else if (w->opcode == VB_WR_TSO)
			outcome = send_segment(qp, w);
		else
			outcome = send_frame(qp, w);
	}
	vb_requester_check_drained(qp);
	return outcome == SENT && may_send(qp);
}

/* --- receiving --------------------------------------------------------------------------- */

/* What is placed: all of it, or without its first VLAN tag. */
struct part {
	const uint8_t *from;
	uint32_t length;
};

static uint32_t split(const struct vb_frame *frame, bool strip, struct part parts[2])
{
	const uint32_t macs = 2 * VB_MAC_BYTES;

	parts[0] = (struct part){frame->bytes, frame->size};
	parts[1] = (struct part){0};
	if (!strip || !frame->has_vlan)
		return frame->size;
	parts[0].length = macs;
	parts[1].from = frame->bytes + macs + VB_VLAN_BYTES;
	parts[1].length = frame->size - macs - VB_VLAN_BYTES;
	return frame->size - VB_VLAN_BYTES;
}

static struct vb_cqe describe(const struct vb_frame *frame, uint32_t bytes, uint32_t tag,
			      bool checksums_right)
{
	return (struct vb_cqe){
		.status = VB_WC_SUCCESS,
		.opcode = VB_WC_RECV,
		.byte_len = bytes,
		.wc_flags = checksums_right ? VB_WC_IP_CSUM_OK : 0,
		.flow_tag = tag,
		.cvlan = (uint16_t)get16(frame->key.vlan_tag),
	};
}

static void give_to_wq(struct vb_wq *wq, const struct vb_frame *frame, struct vb_cqe *facts)
{
	struct vb_reason reason = {.check = VB_CHECK_RECV_TOO_SHORT, .qpn = wq->number};
	struct part parts[2];

	if (wq->state != VB_WQS_RDY || !vb_rq_take(&wq->rq, &wq->taken)) {
		wq->nic->counters.rx_no_receive++;
		return;
	}
	facts->byte_len = split(frame, wq->strip_vlan, parts);
	facts->wr_id = wq->taken.wr_id;
	facts->qpn = wq->number;
	if (facts->byte_len > wq->taken.length) {
		wq->nic->counters.rx_too_long++;
		reason.value[0] = facts->byte_len;
		reason.value[1] = wq->taken.length;
		vb_wq_fail(wq, VB_WC_LOC_LEN_ERR, &reason);
		return;
	}
	if (!vb_scatter_to(wq->nic, wq->pd, &wq->taken, 0, parts[0].from, parts[0].length,
			   &reason) ||
	    !vb_scatter_to(wq->nic, wq->pd, &wq->taken, parts[0].length, parts[1].from,
			   parts[1].length, &reason)) {
		vb_wq_fail(wq, VB_WC_LOC_PROT_ERR, &reason);
		return;
	}
	vb_cq_push(wq->cq, facts, NULL);
}

static bool receives(const struct vb_qp *qp)
{
	return qp->state == VB_QPS_RTR || qp->state == VB_QPS_RTS || qp->state == VB_QPS_SQD ||
	       qp->state == VB_QPS_SQE;
}

static void give_to_qp(struct vb_qp *qp, const struct vb_frame *frame, struct vb_cqe *facts)
{
	struct vb_reason reason = vb_qp_reason(qp, VB_CHECK_RECV_TOO_SHORT);
	struct part parts[2];

	if (!receives(qp)) {
		qp->nic->counters.rx_wrong_state++;
		return;
	}
	if (!vb_qp_take_recv(qp)) {
		qp->nic->counters.rx_no_receive++;
		return;
	}
	facts->byte_len = split(frame, qp->strip_vlan, parts);
	if (facts->byte_len > qp->resp.recv.length) {
		qp->nic->counters.rx_too_long++;
		reason.value[0] = facts->byte_len;
		reason.value[1] = qp->resp.recv.length;
		vb_qp_fail_recv(qp, VB_WC_LOC_LEN_ERR, &reason, VB_EVENT_QP_FATAL);
		return;
	}
	if (!vb_scatter_recv(qp, 0, parts[0].from, parts[0].length, &reason) ||
	    !vb_scatter_recv(qp, parts[0].length, parts[1].from, parts[1].length, &reason)) {
		vb_qp_fail_recv(qp, VB_WC_LOC_PROT_ERR, &reason, VB_EVENT_QP_FATAL);
		return;
	}
	qp->resp.recv_held = false;
	vb_qp_push_recv(qp, &qp->resp.recv, facts, NULL);
}

void vb_raw_give(struct vb_qp *qp, const struct vb_frame *frame, uint32_t tag, bool checksums_right)
{
	struct vb_cqe facts = describe(frame, frame->size, tag, checksums_right);

	if (qp->rss) {
		const struct vb_wq_table *table = qp->rss->table;

		give_to_wq(table->wqs[vb_rss_hash(qp->rss, frame) & table->mask], frame, &facts);
		return;
	}
	give_to_qp(qp, frame, &facts);
	vb_qp_settle(qp);
}
