/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket_datagram_qp.c - the UD queue pairs of a datagram rsocket: one for each address of ours
 * that somebody is reached from.
 *
 * Memory, all registered once:
 *
 *      receive slots   | 24 unused | GRH 40 | header 8 or 24 | datagram ... |  2112 bytes each
 *      send slots                           | header         | datagram ... |
 *
 * A receive slot is posted again when its datagram was read; while all of them wait to be read,
 * what comes is lost, as with a full UDP socket.
 */
#include "rdmacm/rsocket.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum {
	GRH_BYTES = 40,
	GRH_AT = 24,
	DATA_AT = GRH_AT + GRH_BYTES,
	SLOT_BYTES = DATA_AT + VB_RS_DATAGRAM_BYTES,
	COMPLETIONS_AT_ONCE = 16,
	HOPS = 64,
};

#define SENT (UINT64_C(1) << 32)

static uint8_t *slot_at(const struct vb_rs_local *local, uint32_t slot)
{
	return local->memory + (size_t)slot * SLOT_BYTES;
}

static union ibv_gid gid_of(const union vb_rs_address *address)
{
	union ibv_gid gid = {.raw = {0}};

	if (address->any.sa_family == AF_INET6) {
		memcpy(gid.raw, &address->in6.sin6_addr, 16);
	} else {
		memset(gid.raw + 10, 0xff, 2);
		memcpy(gid.raw + 12, &address->in.sin_addr, 4);
	}
	return gid;
}

static int find_gid(struct vb_rs_local *local)
{
	union ibv_gid wanted = gid_of(&local->address);
	struct ibv_gid_entry entry;
	uint32_t i;

	for (i = 0; i <= UINT8_MAX; i++) {
		if (ibv_query_gid_ex(local->id->verbs, local->id->port_num, i, &entry, 0) != 0)
			continue;
		if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    memcmp(entry.gid.raw, wanted.raw, sizeof(wanted.raw)) == 0) {
			local->sgid_index = (uint8_t)i;
			return 0;
		}
	}
	return -EADDRNOTAVAIL;
}

struct ibv_ah *vb_rs_local_ah(const struct vb_rs_local *local, const union vb_rs_address *to)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.grh = {.dgid = gid_of(to), .sgid_index = local->sgid_index, .hop_limit = HOPS},
		.port_num = local->id->port_num,
	};

	return ibv_create_ah(local->id->pd, &attr);
}

static int open_queue_pair(struct vb_rs *rs, struct vb_rs_local *local)
{
	struct ibv_qp_init_attr init = {
		.qp_context = rs,
		.cap = {.max_send_wr = local->send_slots,
			.max_recv_wr = local->receive_slots,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
	};
	struct ibv_context *verbs = local->id->verbs;
	struct ibv_port_attr port;
	uint32_t mtu;

	if (ibv_query_port(verbs, local->id->port_num, &port) != 0)
		return -EIO;
	mtu = 128u << (port.active_mtu & 7);
	local->payload_bytes =
		(mtu < VB_RS_DATAGRAM_BYTES ? mtu : VB_RS_DATAGRAM_BYTES) - local->header_bytes;
	local->cq_channel = ibv_create_comp_channel(verbs);
	if (!local->cq_channel || fcntl(local->cq_channel->fd, F_SETFL, O_NONBLOCK) != 0)
		return vb_rs_failed(-1);
	local->cq = ibv_create_cq(verbs, (int)(local->send_slots + local->receive_slots), local,
				  local->cq_channel, 0);
	if (!local->cq)
		return vb_rs_failed(-1);
	init.send_cq = init.recv_cq = local->cq;
	return vb_rs_failed(rdma_create_qp(local->id, NULL, &init));
}

static int open_memory(struct vb_rs_local *local)
{
	uint32_t slots = local->receive_slots + local->send_slots, i;
	void *memory;

	if (posix_memalign(&memory, 4096, (size_t)slots * SLOT_BYTES) != 0)
		return -ENOMEM;
	local->memory = memory;
	memset(memory, 0, (size_t)slots * SLOT_BYTES);
	local->mr = rdma_reg_msgs(local->id, memory, (size_t)slots * SLOT_BYTES);
	if (!local->mr)
		return vb_rs_failed(-1);
	local->arrivals = calloc(local->receive_slots, sizeof(*local->arrivals));
	local->free_slots = calloc(local->send_slots, sizeof(*local->free_slots));
	if (!local->arrivals || !local->free_slots)
		return -ENOMEM;
	for (i = 0; i < local->receive_slots; i++)
		vb_rs_local_repost(local, i);
	for (i = 0; i < local->send_slots; i++)
		local->free_slots[local->free_count++] = local->receive_slots + i;
	return 0;
}

static uint32_t slots_for(uint32_t bytes, uint32_t most)
{
	uint32_t slots = bytes / VB_RS_DATAGRAM_BYTES;

	slots = slots < most ? slots : most;
	return slots < VB_RS_QUEUE_MIN ? VB_RS_QUEUE_MIN : slots;
}

static int make_local(struct vb_rs *rs, const union vb_rs_address *address,
		      struct vb_rs_local **made)
{
	struct vb_rs_local *local = calloc(1, sizeof(*local));
	union vb_rs_address unported = *address;
	int result;

	if (!local)
		return -ENOMEM;
	vb_list_init(&local->link);
	local->address = *address;
	local->header_bytes = (uint32_t)vb_rs_ud_encode(address, local->header);
	local->receive_slots = slots_for(rs->receive_bytes, rs->rq_size);
	local->send_slots = slots_for(rs->send_bytes, rs->sq_size);
	if (unported.any.sa_family == AF_INET6)
		unported.in6.sin6_port = 0;
	else
		unported.in.sin_port = 0;
	result = vb_rs_failed(rdma_create_id(NULL, &local->id, local, RDMA_PS_UDP));
	if (!result)
		result = vb_rs_failed(rdma_bind_addr(local->id, &unported.any));
	if (!result && !local->id->verbs)
		result = -ENODEV;
	if (!result)
		result = find_gid(local);
	if (!result)
		result = open_queue_pair(rs, local);
	if (!result)
		result = open_memory(local);
	if (result) {
		vb_rs_local_destroy(local);
		return result;
	}
	vb_list_append(&rs->datagram.queue_pairs, &local->link);
	rs->datagram.local_count++;
	*made = local;
	return 0;
}

int vb_rs_local_find(struct vb_rs *rs, const union vb_rs_address *address,
		     struct vb_rs_local **found)
{
	struct vb_list *link, *tmp;

	vb_list_for_each(link, tmp, &rs->datagram.queue_pairs)
	{
		*found = vb_list_entry(link, struct vb_rs_local, link);
		if (vb_rs_same_host(&(*found)->address, address))
			return 0;
	}
	if (rs->datagram.local_count == VB_RS_FDS_MAX - 1)
		return -ENOBUFS;
	return make_local(rs, address, found);
}

void vb_rs_local_destroy(struct vb_rs_local *local)
{
	vb_list_remove(&local->link);
	if (local->id && local->id->qp)
		rdma_destroy_qp(local->id);
	if (local->cq)
		ibv_destroy_cq(local->cq);
	if (local->cq_channel)
		ibv_destroy_comp_channel(local->cq_channel);
	if (local->mr)
		ibv_dereg_mr(local->mr);
	if (local->id)
		rdma_destroy_id(local->id);
	free(local->memory);
	free(local->arrivals);
	free(local->free_slots);
	free(local);
}

void vb_rs_local_repost(struct vb_rs_local *local, uint32_t slot)
{
	struct ibv_sge sge = {(uintptr_t)slot_at(local, slot) + GRH_AT,
			      GRH_BYTES + VB_RS_DATAGRAM_BYTES, local->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;

	ibv_post_recv(local->id->qp, &wr, &bad); /* refused: one slot less, as if it were lost */
}

static bool is_wanted(const struct vb_rs *rs, const union vb_rs_address *from)
{
	const struct vb_rs_peer *peer = rs->datagram.connected;

	return !peer || (vb_rs_same_host(&peer->address, from) &&
			 vb_rs_port(&peer->address) == vb_rs_port(from));
}

static void on_received(struct vb_rs *rs, struct vb_rs_local *local, const struct ibv_wc *wc)
{
	uint32_t slot = (uint32_t)wc->wr_id;
	struct vb_rs_arrival *arrival = &local->arrivals[slot];
	const uint8_t *data = slot_at(local, slot) + DATA_AT;
	int header = -EBADMSG;

	if (wc->status == IBV_WC_SUCCESS && wc->byte_len >= GRH_BYTES)
		header = vb_rs_ud_decode(&arrival->from, data, wc->byte_len - GRH_BYTES);
	if (header < 0 || !is_wanted(rs, &arrival->from)) {
		if (wc->status != IBV_WC_WR_FLUSH_ERR)
			vb_rs_local_repost(local, slot);
		return;
	}
	arrival->local = local;
	arrival->slot = slot;
	arrival->data = data + header;
	arrival->size = wc->byte_len - GRH_BYTES - (uint32_t)header;
	vb_list_append(&rs->datagram.arrived, &arrival->link);
}

bool vb_rs_local_poll(struct vb_rs *rs, struct vb_rs_local *local)
{
	struct ibv_wc wc[COMPLETIONS_AT_ONCE];
	bool some = false;
	int count, i;

	while ((count = ibv_poll_cq(local->cq, COMPLETIONS_AT_ONCE, wc)) > 0) {
		for (i = 0; i < count; i++) {
			if (wc[i].wr_id & SENT)
				local->free_slots[local->free_count++] = (uint32_t)wc[i].wr_id;
			else
				on_received(rs, local, &wc[i]);
		}
		some = true;
	}
	return some;
}

int vb_rs_local_send(struct vb_rs_local *local, const struct vb_rs_peer *peer,
		     struct vb_rs_vector *from, uint32_t size)
{
	uint32_t slot = local->free_slots[local->free_count - 1];
	uint8_t *data = slot_at(local, slot);
	struct ibv_sge sge = {(uintptr_t)data, local->header_bytes + size, local->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = SENT | slot,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.wr.ud = {peer->ah, peer->queue_pair, RDMA_UDP_QKEY},
	};
	struct ibv_send_wr *bad;
	int error;

	memcpy(data, local->header, local->header_bytes);
	vb_rs_vector_copy(from, data + local->header_bytes, size, false);
	error = ibv_post_send(local->id->qp, &wr, &bad);
	if (error)
		return -error;
	local->free_count--;
	return 0;
}

void vb_rs_datagram_arm(struct vb_rs *rs)
{
	struct vb_list *link, *tmp;

	vb_list_for_each(link, tmp, &rs->datagram.queue_pairs)
	{
		struct vb_rs_local *local = vb_list_entry(link, struct vb_rs_local, link);

		ibv_req_notify_cq(local->cq, 0);
		vb_rs_local_poll(rs, local);
	}
}

int vb_rs_datagram_fds(struct vb_rs *rs, struct pollfd *fds)
{
	struct vb_list *link, *tmp;
	int count = 0;

	fds[count++] = (struct pollfd){rs->fd, POLLIN, 0};
	vb_list_for_each(link, tmp, &rs->datagram.queue_pairs) fds[count++] = (struct pollfd){
		vb_list_entry(link, struct vb_rs_local, link)->cq_channel->fd, POLLIN, 0};
	return count;
}

static void take_cq_events(struct vb_rs_local *local)
{
	unsigned int count = 0;
	struct ibv_cq *cq;
	void *context;

	while (ibv_get_cq_event(local->cq_channel, &cq, &context) == 0)
		count++;
	if (count)
		ibv_ack_cq_events(local->cq, count);
}

void vb_rs_datagram_heed(struct vb_rs *rs, const struct pollfd *fds, int count)
{
	struct vb_list *link, *tmp;
	int i;

	for (i = 0; i < count; i++) {
		if (!fds[i].revents)
			continue;
		if (fds[i].fd == rs->fd)
			vb_rs_udp_take(rs);
		vb_list_for_each(link, tmp, &rs->datagram.queue_pairs)
		{
			struct vb_rs_local *local = vb_list_entry(link, struct vb_rs_local, link);

			if (local->cq_channel->fd == fds[i].fd)
				take_cq_events(local);
		}
	}
}
