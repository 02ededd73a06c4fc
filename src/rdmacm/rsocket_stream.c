/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket_stream.c - the bytes of a stream.
 *
 * Out: copied into the ring `sbuf` and written from there into the region that the peer announced,
 * each piece with a word that tells its length. Pieces grow from 4 to 64 KiB, so that the first
 * ones travel while the next ones are copied. A region is used up before the next one is begun.
 *
 * In: the peer has written already. Bytes are handed over in the order of the words about them.
 */
#include "rdmacm/rsocket.h"

#include <limits.h>
#include <string.h>

enum {
	LOW_WATER = 2048, /* with less room than this nothing is sent: pieces would get tiny */
};

ssize_t vb_rs_vector_bytes(const struct vb_rs_vector *vector)
{
	size_t total = 0;
	int i;

	for (i = 0; i < vector->count; i++) {
		if (vector->iov[i].iov_len > SSIZE_MAX - total)
			return -EINVAL;
		total += vector->iov[i].iov_len;
	}
	return (ssize_t)total;
}

size_t vb_rs_vector_copy(struct vb_rs_vector *vector, void *bytes, size_t size, bool into)
{
	size_t done = 0, piece;
	uint8_t *at;

	while (done < size && vector->count) {
		piece = vector->iov->iov_len - vector->offset;
		if (piece > size - done)
			piece = size - done;
		at = (uint8_t *)vector->iov->iov_base + vector->offset;
		if (piece && into)
			memcpy(at, (uint8_t *)bytes + done, piece);
		else if (piece)
			memcpy((uint8_t *)bytes + done, at, piece);
		done += piece;
		vector->offset += piece;
		if (vector->offset == vector->iov->iov_len) {
			vector->iov++;
			vector->count--;
			vector->offset = 0;
		}
	}
	return done;
}

/* The next region, once its slot is filled: it is emptied before the peer can fill it again. */
static bool has_target(struct vb_rs_stream *s)
{
	uint8_t *slot = s->shared + s->target_slot * VB_RS_SLOT_BYTES;
	struct vb_rs_region next;

	if (s->target.length)
		return true;
	next = vb_rs_slot_decode(slot);
	if (!next.length)
		return false;
	memset(slot, 0, VB_RS_SLOT_BYTES);
	s->target = next;
	s->target_slot = (s->target_slot + 1) % VB_RS_SLOTS;
	return true;
}

bool vb_rs_may_send(struct vb_rs *rs)
{
	struct vb_rs_stream *s = &rs->stream;

	return s->sq_free && s->send_free >= LOW_WATER && s->sent != s->allowed && has_target(s);
}

static bool may_send_or_never(struct vb_rs *rs)
{
	return !rs->stream.write_open || vb_rs_may_send(rs);
}

int vb_rs_await_room(struct vb_rs *rs, bool nonblocking)
{
	int result = 0;

	if (!rs->stream.write_open || !vb_rs_may_send(rs))
		result = vb_rs_wait(rs, may_send_or_never, nonblocking, -1);
	if (result || rs->stream.write_open)
		return result;
	if (rs->state == VB_RS_CONNECTED)
		return -EPIPE;
	result = rs->state == VB_RS_BROKEN && rs->error ? -rs->error : -ECONNRESET;
	rs->error = 0;
	return result;
}

uint32_t vb_rs_piece(const struct vb_rs *rs, size_t left, uint32_t room, uint32_t *step)
{
	uint32_t size = left < *step ? (uint32_t)left : *step;

	if (*step < VB_RS_LAST_STEP)
		*step *= 2;
	if (size > rs->stream.send_free)
		size = rs->stream.send_free;
	return size > room ? room : size;
}

int vb_rs_send_piece(struct vb_rs *rs, struct vb_rs_vector *from, uint32_t size,
		     struct ibv_send_wr *wr)
{
	struct vb_rs_stream *s = &rs->stream;
	uint32_t first = rs->send_bytes - s->send_at;
	struct ibv_sge pieces[2];

	if (first > size)
		first = size;
	vb_rs_vector_copy(from, s->sbuf + s->send_at, first, false);
	pieces[0] = (struct ibv_sge){(uintptr_t)s->sbuf + s->send_at, first, s->smr->lkey};
	wr->num_sge = 1;
	if (first < size) {
		vb_rs_vector_copy(from, s->sbuf, size - first, false);
		pieces[1] = (struct ibv_sge){(uintptr_t)s->sbuf, size - first, s->smr->lkey};
		wr->num_sge = 2;
	}
	s->send_at = (s->send_at + size) % rs->send_bytes;
	s->send_free -= size;
	wr->sg_list = pieces;
	if (size <= s->inline_bytes)
		wr->send_flags = IBV_SEND_INLINE;
	return vb_rs_post_write(rs, VB_RS_REQUEST_BYTES, size, wr);
}

static int send_data(struct vb_rs *rs, struct vb_rs_vector *from, uint32_t size)
{
	struct vb_rs_stream *s = &rs->stream;
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.imm_data = htonl(vb_rs_message(VB_RS_DATA, size)),
		.wr.rdma = {s->target.address, s->target.key},
	};

	s->target.address += size;
	s->target.length -= size;
	s->sent++;
	return vb_rs_send_piece(rs, from, size, &wr);
}

ssize_t vb_rs_stream_send(struct vb_rs *rs, struct vb_rs_vector *from, int flags)
{
	bool nonblocking = rs->nonblocking || (flags & MSG_DONTWAIT);
	ssize_t total = vb_rs_vector_bytes(from);
	uint32_t step = VB_RS_FIRST_STEP, size;
	ssize_t done = 0;
	int result;

	if (total < 0)
		return total;
	result = vb_rs_await_connection(rs, nonblocking);
	if (!result)
		result = vb_rs_send_mappings(rs, nonblocking);
	while (!result && done < total) {
		result = vb_rs_await_room(rs, nonblocking);
		if (result)
			break;
		size = vb_rs_piece(rs, (size_t)(total - done), rs->stream.target.length, &step);
		result = send_data(rs, from, size);
		if (!result)
			done += size;
	}
	return done ? done : result;
}

/* Copies what there is; a peek leaves everything as it was. */
static ssize_t hand_over(struct vb_rs *rs, struct vb_rs_vector *to, bool peek)
{
	struct vb_rs_stream *s = &rs->stream;
	uint32_t *length = &s->arrived[s->arrived_head];
	uint32_t at = s->read_at, left = s->unread, first, size;
	ssize_t done = 0;

	while (left) {
		first = rs->receive_bytes - at;
		size = (uint32_t)vb_rs_vector_copy(to, s->rbuf + at, first < left ? first : left,
						   true);
		if (!size)
			break;
		done += size;
		left -= size;
		at = (at + size) % rs->receive_bytes;
	}
	if (peek)
		return done;
	s->read_at = at;
	s->unread = left;
	s->free_bytes += (uint32_t)done;
	for (left = (uint32_t)done; left; left -= size) {
		length = &s->arrived[s->arrived_head];
		size = *length < left ? *length : left;
		*length -= size;
		if (*length)
			continue;
		s->arrived_head = (s->arrived_head + 1) % s->arrived_size;
		s->arrived_count--;
		s->taken++;
	}
	return done;
}

static bool readable_or_never(struct vb_rs *rs)
{
	return rs->stream.unread || !rs->stream.read_open;
}

static int end_of_data(struct vb_rs *rs)
{
	int result = rs->state == VB_RS_BROKEN ? -rs->error : 0;

	if (result)
		rs->error = 0;
	return result;
}

ssize_t vb_rs_stream_receive(struct vb_rs *rs, struct vb_rs_vector *to, int flags)
{
	bool nonblocking = rs->nonblocking || (flags & MSG_DONTWAIT);
	ssize_t total = vb_rs_vector_bytes(to);
	ssize_t done = 0;
	int result;

	if (total <= 0)
		return total;
	result = vb_rs_await_connection(rs, nonblocking);
	while (!result && done < total) {
		if (!rs->stream.unread)
			result = vb_rs_wait(rs, readable_or_never, nonblocking, -1);
		if (result)
			break;
		if (!rs->stream.unread) {
			result = done ? 0 : end_of_data(rs);
			break;
		}
		done += hand_over(rs, to, flags & MSG_PEEK);
		if (!(flags & MSG_WAITALL) || (flags & MSG_PEEK))
			break;
	}
	vb_rs_give_credits(rs); /* the peer may be waiting for what was freed */
	return done ? done : result;
}
