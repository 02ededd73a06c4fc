/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket_endpoint.c - what a stream needs to move bytes: queue pair, completion queue, and three
 * registered pieces of memory.
 *
 *      rbuf     | first half  | second half |      the peer writes; granted half by half
 *      sbuf     | send_bytes: a ring        | control slots |
 *      shared   | slot | slot | iomap entries |    the peer writes; where we may write
 */
#include "rdmacm/rsocket.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static const bool is_big_endian = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;

static uint32_t clamp(uint32_t value, uint32_t lowest, uint32_t highest)
{
	return value < lowest ? lowest : value > highest ? highest : value;
}

static int open_cq(struct vb_rs *rs)
{
	struct vb_rs_stream *s = &rs->stream;

	s->cq_channel = ibv_create_comp_channel(s->id->verbs);
	if (!s->cq_channel)
		return vb_rs_failed(-1);
	if (fcntl(s->cq_channel->fd, F_SETFL, O_NONBLOCK) != 0)
		return vb_rs_failed(-1);
	s->cq = ibv_create_cq(s->id->verbs, (int)(rs->sq_size + rs->rq_size), rs, s->cq_channel, 0);
	return vb_rs_failed(s->cq ? 0 : -1);
}

static int open_queue_pair(struct vb_rs *rs)
{
	struct vb_rs_stream *s = &rs->stream;
	struct ibv_qp_init_attr init = {
		.qp_context = rs,
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.cap = {.max_send_wr = rs->sq_size,
			.max_recv_wr = rs->rq_size,
			.max_send_sge = 2,
			.max_recv_sge = 1,
			.max_inline_data = rs->inline_bytes},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	if (rdma_create_qp(s->id, NULL, &init) != 0)
		return vb_rs_failed(-1);
	s->inline_bytes = init.cap.max_inline_data;
	return 0;
}

/* Of fresh pages: what is never used takes no memory. */
static void *allocate(struct rdma_cm_id *id, size_t size, bool remote, struct ibv_mr **mr)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	*mr = remote ? rdma_reg_write(id, memory, size) : rdma_reg_msgs(id, memory, size);
	if (!*mr) {
		munmap(memory, size);
		return NULL;
	}
	return memory;
}

static int open_buffers(struct vb_rs *rs)
{
	struct vb_rs_stream *s = &rs->stream;

	rs->receive_bytes &= ~1u;
	s->arrived_size = rs->rq_size;
	s->arrived = calloc(s->arrived_size, sizeof(*s->arrived));
	if (!s->arrived)
		return -ENOMEM;
	s->rbuf = allocate(s->id, rs->receive_bytes, true, &s->rmr);
	if (!s->rbuf)
		return vb_rs_failed(-1);
	s->sbuf = allocate(s->id, rs->send_bytes + VB_RS_CONTROL_DEPTH * VB_RS_SLOT_BYTES, false,
			   &s->smr);
	if (!s->sbuf)
		return vb_rs_failed(-1);
	s->shared = allocate(s->id,
			     VB_RS_SLOTS * VB_RS_SLOT_BYTES + rs->iomap_slots * VB_RS_IOMAP_BYTES,
			     true, &s->shared_mr);
	if (!s->shared)
		return vb_rs_failed(-1);
	s->granted = s->free_bytes = s->grant_at = rs->receive_bytes / 2;
	s->credit_due = (uint16_t)(rs->rq_size / 2);
	s->send_free = rs->send_bytes;
	s->sq_free = rs->sq_size - VB_RS_CONTROL_DEPTH;
	s->control_free = VB_RS_CONTROL_DEPTH;
	return 0;
}

int vb_rs_open_endpoint(struct vb_rs *rs)
{
	struct ibv_recv_wr wr = {.wr_id = (uint64_t)VB_RS_REQUEST_RECEIVE << 32}, *bad;
	struct ibv_device_attr device;
	uint32_t most = VB_RS_QUEUE_MAX, i;
	int result;

	if (ibv_query_device(rs->stream.id->verbs, &device) == 0 && device.max_qp_wr > 0)
		most = clamp((uint32_t)device.max_qp_wr, VB_RS_QUEUE_MIN, VB_RS_QUEUE_MAX);
	rs->sq_size = clamp(rs->sq_size, VB_RS_QUEUE_MIN, most);
	rs->rq_size = clamp(rs->rq_size, VB_RS_QUEUE_MIN, most);
	result = open_cq(rs);
	if (!result)
		result = open_queue_pair(rs);
	if (!result)
		result = open_buffers(rs);
	for (i = 0; !result && i < rs->rq_size; i++)
		result = -ibv_post_recv(rs->stream.id->qp, &wr, &bad);
	return result;
}

static void release(struct ibv_mr *mr)
{
	void *memory;
	size_t size;

	if (!mr)
		return;
	memory = mr->addr;
	size = mr->length;
	ibv_dereg_mr(mr);
	munmap(memory, size);
}

void vb_rs_close_endpoint(struct vb_rs *rs)
{
	struct vb_rs_stream *s = &rs->stream;

	if (s->id && s->id->qp)
		rdma_destroy_qp(s->id);
	vb_rs_drop_mappings(rs);
	if (s->cq)
		ibv_destroy_cq(s->cq);
	if (s->cq_channel)
		ibv_destroy_comp_channel(s->cq_channel);
	release(s->rmr);
	release(s->smr);
	release(s->shared_mr);
	free(s->arrived);
}

void vb_rs_describe(const struct vb_rs *rs, uint8_t bytes[VB_RS_CONN_BYTES])
{
	const struct vb_rs_stream *s = &rs->stream;
	struct vb_rs_conn conn = {
		.big_endian = is_big_endian,
		.has_iomap = true,
		.credits = (uint16_t)rs->rq_size,
		.iomap_slots = rs->iomap_slots,
		.slots = {(uintptr_t)s->shared, s->shared_mr->rkey, VB_RS_SLOTS},
		.buffer = {(uintptr_t)s->rbuf, s->rmr->rkey, rs->receive_bytes / 2},
	};

	vb_rs_conn_encode(&conn, bytes);
}

void vb_rs_meet(struct vb_rs *rs, const struct vb_rs_conn *peer)
{
	struct vb_rs_stream *s = &rs->stream;

	s->peer_big_endian = peer->big_endian;
	s->peer_slots = peer->slots;
	s->peer_slot = 1 % peer->slots.length; /* the first one stands for peer->buffer */
	s->peer_iomap = (struct vb_rs_region){peer->slots.address + (uint64_t)VB_RS_SLOT_BYTES *
									    peer->slots.length,
					      peer->slots.key, peer->iomap_slots};
	s->target = peer->buffer;
	s->target_slot = 1;
	s->allowed = peer->credits;
}
