/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket_progress.c - what a stream's completions mean, and when its peer hears of credits.
 *
 * A peer may write the bytes that it was granted, and send as many data messages as there are
 * receives. What was handed to the program is given back half a buffer, or half the receives, at a
 * time. Both are counted here too: a peer that writes or sends more than it was granted has broken
 * the connection, and nothing of it is believed.
 *
 * Control messages have no credit. There are at most VB_RS_CONTROL_DEPTH under way, and the
 * transport repeats what meets no receive.
 */
#include "rdmacm/rsocket.h"

#include <string.h>

enum {
	COMPLETIONS_AT_ONCE = 16,
	LOOK_AT_CM_EVERY = 256, /* fruitless looks at the completion queue */
};

void vb_rs_break(struct vb_rs *rs, int error)
{
	if (rs->state != VB_RS_CONNECTED)
		return;
	rs->state = VB_RS_BROKEN;
	rs->error = error;
	rs->stream.read_open = rs->stream.write_open = false;
}

static void end(struct vb_rs *rs)
{
	if (rs->state == VB_RS_CONNECTED)
		rs->state = VB_RS_ENDED;
	rs->stream.read_open = rs->stream.write_open = false;
}

int vb_rs_post_write(struct vb_rs *rs, enum vb_rs_request_kind kind, uint32_t bytes,
		     struct ibv_send_wr *wr)
{
	struct vb_rs_stream *s = &rs->stream;
	struct ibv_send_wr *bad;
	int error;

	wr->wr_id = (uint64_t)kind << 32 | bytes;
	error = ibv_post_send(s->id->qp, wr, &bad);
	if (error) {
		vb_rs_break(rs, error);
		return -error;
	}
	if (kind == VB_RS_REQUEST_BYTES) {
		s->sq_free--;
	} else {
		s->control_free--;
		s->control_next++;
	}
	return 0;
}

bool vb_rs_control_free(struct vb_rs *rs)
{
	return rs->stream.control_free > 0;
}

bool vb_rs_all_sent(struct vb_rs *rs)
{
	return rs->stream.control_free == VB_RS_CONTROL_DEPTH &&
	       rs->stream.sq_free == rs->sq_size - VB_RS_CONTROL_DEPTH;
}

int vb_rs_post_control(struct vb_rs *rs, enum vb_rs_control control)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.imm_data = htonl(vb_rs_message(VB_RS_CONTROL, control)),
	};

	return vb_rs_post_write(
		rs, control == VB_RS_DISCONNECT ? VB_RS_REQUEST_LAST : VB_RS_REQUEST_CONTROL, 0,
		&wr);
}

void vb_rs_post_keepalive(struct vb_rs *rs)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};

	if (rs->state == VB_RS_CONNECTED && vb_rs_control_free(rs))
		vb_rs_post_write(rs, VB_RS_REQUEST_CONTROL, 0, &wr);
}

/* A peer that was killed while nothing was under way says nothing, and nobody says it for it. What
 * is under way is repeated by the transport until it is acknowledged, or fails. */
void vb_rs_probe(struct vb_rs *rs)
{
	struct vb_rs_stream *s = &rs->stream;

	if (rs->state == VB_RS_CONNECTED && vb_rs_all_sent(rs) &&
	    vb_rs_now_ns() - s->heard_ns >= vb_rs_config()->wake_up_ms * UINT64_C(1000000))
		vb_rs_post_keepalive(rs);
}

static void send_credits(struct vb_rs *rs)
{
	struct vb_rs_stream *s = &rs->stream;
	uint32_t half = rs->receive_bytes / 2;
	uint8_t *slot = s->sbuf + rs->send_bytes;
	struct ibv_sge sge = {.length = VB_RS_SLOT_BYTES, .lkey = s->smr->lkey};
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.imm_data = htonl(vb_rs_message(VB_RS_CREDIT, (uint16_t)(s->taken + rs->rq_size))),
	};

	if (s->free_bytes >= half) {
		struct vb_rs_region next = {(uintptr_t)s->rbuf + s->grant_at, s->rmr->rkey, half};

		/* Requests complete in order: the slot of four control messages ago is free. */
		slot += s->control_next % VB_RS_CONTROL_DEPTH * VB_RS_SLOT_BYTES;
		if (s->inline_bytes >= VB_RS_SLOT_BYTES)
			wr.send_flags = IBV_SEND_INLINE;
		vb_rs_slot_encode(&next, s->peer_big_endian, slot);
		sge.addr = (uintptr_t)slot;
		wr.sg_list = &sge;
		wr.num_sge = 1;
		wr.wr.rdma.remote_addr =
			s->peer_slots.address + (uint64_t)s->peer_slot * VB_RS_SLOT_BYTES;
		wr.wr.rdma.rkey = s->peer_slots.key;
		s->peer_slot = (s->peer_slot + 1) % s->peer_slots.length;
		s->free_bytes -= half;
		s->granted += half;
		s->grant_at = s->grant_at ? 0 : half;
	}
	s->credit_due = (uint16_t)(s->taken + rs->rq_size / 2);
	vb_rs_post_write(rs, VB_RS_REQUEST_CONTROL, 0, &wr);
}

void vb_rs_give_credits(struct vb_rs *rs)
{
	struct vb_rs_stream *s = &rs->stream;

	while (rs->state == VB_RS_CONNECTED && s->control_free &&
	       (s->free_bytes >= rs->receive_bytes / 2 ||
		(int16_t)(uint16_t)(s->taken - s->credit_due) >= 0))
		send_credits(rs);
}

static void on_data(struct vb_rs *rs, uint32_t bytes)
{
	struct vb_rs_stream *s = &rs->stream;

	if (bytes > s->granted || s->arrived_count == s->arrived_size) {
		vb_rs_break(rs, EPROTO);
		return;
	}
	if (bytes == 0) {
		s->taken++;
		return;
	}
	s->granted -= bytes;
	s->unread += bytes;
	s->arrived[(s->arrived_head + s->arrived_count++) % s->arrived_size] = bytes;
}

static void on_message(struct vb_rs *rs, uint32_t message)
{
	struct vb_rs_stream *s = &rs->stream;
	uint32_t value = vb_rs_message_value(message);

	switch (vb_rs_message_kind(message)) {
	case VB_RS_DATA:
		on_data(rs, value);
		break;
	case VB_RS_CREDIT:
		s->allowed = (uint16_t)value;
		break;
	case VB_RS_IOMAP:
		s->taken++; /* the entry is read when it is used; the message had a credit */
		break;
	case VB_RS_CONTROL:
		if (value == VB_RS_DISCONNECT || (value == VB_RS_SHUTDOWN && s->end_told))
			end(rs);
		else if (value == VB_RS_SHUTDOWN)
			s->read_open = false;
		break;
	default:
		vb_rs_break(rs, EPROTO);
		break;
	}
}

static void on_sent(struct vb_rs *rs, uint64_t wr_id)
{
	struct vb_rs_stream *s = &rs->stream;

	switch ((enum vb_rs_request_kind)(wr_id >> 32)) {
	case VB_RS_REQUEST_BYTES:
		s->sq_free++;
		s->send_free += (uint32_t)wr_id;
		break;
	case VB_RS_REQUEST_CONTROL:
		s->control_free++;
		break;
	case VB_RS_REQUEST_LAST:
		s->control_free++;
		end(rs);
		break;
	case VB_RS_REQUEST_RECEIVE:
		break;
	}
}

static int error_of(enum ibv_wc_status status)
{
	return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_RNR_RETRY_EXC_ERR ? ETIMEDOUT
	       : status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_REM_ACCESS_ERR ||
			       status == IBV_WC_REM_OP_ERR || status == IBV_WC_REM_INV_REQ_ERR
		       ? ECONNRESET
		       : EIO;
}

/* Returns how many receives have to be posted again. */
static uint32_t on_completion(struct vb_rs *rs, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS) {
		vb_rs_break(rs, error_of(wc->status));
		return 0;
	}
	if (wc->wr_id >> 32 != VB_RS_REQUEST_RECEIVE) {
		on_sent(rs, wc->wr_id);
		return 0;
	}
	if (wc->wc_flags & IBV_WC_WITH_IMM)
		on_message(rs, ntohl(wc->imm_data));
	else
		vb_rs_break(rs, EPROTO);
	return 1;
}

bool vb_rs_take_completions(struct vb_rs *rs)
{
	struct ibv_recv_wr wr = {.wr_id = (uint64_t)VB_RS_REQUEST_RECEIVE << 32}, *bad;
	struct ibv_wc wc[COMPLETIONS_AT_ONCE];
	bool some = false;
	uint32_t posts;
	int count, i;

	/* Not until nothing comes: an engine takes empty polls for a program that only waits. */
	do {
		count = ibv_poll_cq(rs->stream.cq, COMPLETIONS_AT_ONCE, wc);
		posts = 0;
		for (i = 0; i < count; i++)
			posts += on_completion(rs, &wc[i]);
		while (posts-- && rs->state == VB_RS_CONNECTED)
			if (ibv_post_recv(rs->stream.id->qp, &wr, &bad) != 0)
				vb_rs_break(rs, EIO);
		some |= count > 0;
	} while (count == COMPLETIONS_AT_ONCE);
	if (count < 0)
		vb_rs_break(rs, EIO);
	if (some)
		rs->stream.heard_ns = vb_rs_now_ns();
	return some || count < 0;
}

bool vb_rs_progress(struct vb_rs *rs)
{
	bool some = false;

	if (rs->type == SOCK_DGRAM) {
		some = vb_rs_datagram_progress(rs);
	} else if (rs->state == VB_RS_LISTENING || vb_rs_is_opening(rs)) {
		some = vb_rs_cm_events(rs);
	} else if (rs->stream.cq && rs->state == VB_RS_CONNECTED) {
		some = vb_rs_take_completions(rs);
		vb_rs_give_credits(rs);
		if (some) {
			rs->stream.fruitless = 0;
		} else if (++rs->stream.fruitless % LOOK_AT_CM_EVERY == 0) {
			some = vb_rs_cm_events(rs);
			vb_rs_probe(rs);
		}
	}
	if (some)
		vb_rs_wake(rs);
	return some;
}

bool vb_rs_readable(struct vb_rs *rs)
{
	if (rs->type == SOCK_DGRAM)
		return vb_rs_datagram_readable(rs);
	if (rs->state == VB_RS_LISTENING)
		return vb_rs_has_request(rs);
	return rs->stream.unread || rs->state == VB_RS_FAILED ||
	       (rs->state >= VB_RS_CONNECTED && !rs->stream.read_open);
}

bool vb_rs_writable(struct vb_rs *rs)
{
	if (rs->type == SOCK_DGRAM)
		return vb_rs_datagram_writable(rs);
	if (rs->state == VB_RS_CONNECTED)
		return !rs->stream.write_open || vb_rs_may_send(rs);
	return rs->state >= VB_RS_CONNECTED;
}
