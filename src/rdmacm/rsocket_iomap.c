/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket_iomap.c - memory that the peer writes directly, at offsets which the two agreed on.
 *
 *      here: riomap()  registers the memory, takes a free entry of the peer's table
 *      next send       writes the entry into the peer's `shared`, ahead of the data
 *      there: riowrite() finds the entry by offset, and writes without a word: the receiver learns
 *                      of it by the next data
 *
 * A mapping for PROT_NONE is registered and told to nobody.
 */
#include "rdmacm/rsocket.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct vb_rs_mapping {
	struct vb_list link;
	struct ibv_mr *mr;
	uint64_t offset;
	uint32_t entry; /* of the peer's table; none when local */
	bool remote;
};

static void drop(struct vb_rs_stream *s, struct vb_rs_mapping *mapping)
{
	vb_list_remove(&mapping->link);
	ibv_dereg_mr(mapping->mr);
	if (mapping->remote)
		s->map_used[mapping->entry] = 0;
	free(mapping);
}

void vb_rs_drop_mappings(struct vb_rs *rs)
{
	struct vb_rs_stream *s = &rs->stream;
	struct vb_list *lists[] = {&s->mapped, &s->to_map}, *link, *tmp;
	size_t i;

	for (i = 0; i < 2; i++)
		vb_list_for_each(link, tmp, lists[i])
			drop(s, vb_list_entry(link, struct vb_rs_mapping, link));
	free(s->map_used);
	s->map_used = NULL;
}

static int send_mapping(struct vb_rs *rs, struct vb_rs_mapping *mapping)
{
	struct vb_rs_stream *s = &rs->stream;
	struct vb_rs_region region = {(uintptr_t)mapping->mr->addr, mapping->mr->rkey,
				      (uint32_t)mapping->mr->length};
	uint8_t bytes[VB_RS_IOMAP_BYTES];
	struct iovec iov = {bytes, sizeof(bytes)};
	struct vb_rs_vector from = {&iov, 1, 0};
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.imm_data = htonl(vb_rs_message(VB_RS_IOMAP, mapping->entry)),
		.wr.rdma = {s->peer_iomap.address + (uint64_t)mapping->entry * VB_RS_IOMAP_BYTES,
			    s->peer_iomap.key},
	};

	vb_rs_iomap_encode(&region, mapping->offset, s->peer_big_endian, bytes);
	s->sent++;
	return vb_rs_send_piece(rs, &from, sizeof(bytes), &wr);
}

int vb_rs_send_mappings(struct vb_rs *rs, bool nonblocking)
{
	struct vb_rs_stream *s = &rs->stream;
	struct vb_list *link;
	int result = 0;

	while (!result && !vb_list_is_empty(&s->to_map)) {
		result = vb_rs_await_room(rs, nonblocking);
		if (result)
			break;
		link = vb_list_pop(&s->to_map); /* it may have been unmapped meanwhile */
		if (!link)
			break;
		vb_list_append(&s->mapped, link);
		result = send_mapping(rs, vb_list_entry(link, struct vb_rs_mapping, link));
	}
	return result;
}

static int take_entry(struct vb_rs_stream *s, struct vb_rs_mapping *mapping)
{
	uint32_t i;

	if (!s->map_used)
		s->map_used = calloc(s->peer_iomap.length + 1, 1);
	if (!s->map_used)
		return -ENOMEM;
	for (i = 0; i < s->peer_iomap.length; i++) {
		if (s->map_used[i])
			continue;
		s->map_used[i] = 1;
		mapping->entry = i;
		mapping->remote = true;
		return 0;
	}
	return -ENOMEM;
}

static int map(struct vb_rs *rs, void *buf, size_t len, bool remote, uint64_t offset)
{
	struct vb_rs_stream *s = &rs->stream;
	struct vb_rs_mapping *mapping = calloc(1, sizeof(*mapping));
	int result = 0;

	if (!mapping)
		return -ENOMEM;
	vb_list_init(&mapping->link);
	mapping->offset = offset;
	if (remote)
		result = take_entry(s, mapping);
	if (!result) {
		mapping->mr =
			ibv_reg_mr(s->id->pd, buf, len,
				   IBV_ACCESS_LOCAL_WRITE | (remote ? IBV_ACCESS_REMOTE_WRITE : 0));
		result = vb_rs_failed(mapping->mr ? 0 : -1);
		if (result && remote)
			s->map_used[mapping->entry] = 0;
	}
	if (result) {
		free(mapping);
		return result;
	}
	vb_list_append(remote ? &s->to_map : &s->mapped, &mapping->link);
	return 0;
}

off_t riomap(int fd, void *buf, size_t len, int prot, int flags, off_t offset)
{
	struct vb_rs *rs = vb_rs_enter(fd);
	int result;

	if (!rs)
		return -1;
	if (offset == -1)
		offset = (off_t)(intptr_t)buf;
	if (rs->type != SOCK_STREAM || !rs->stream.id->pd || (prot & ~(PROT_WRITE | PROT_NONE)) ||
	    !len || len > UINT32_MAX)
		result = -EINVAL;
	else if (rs->state < VB_RS_ACCEPTING || rs->state == VB_RS_FAILED) /* whose table? */
		result = vb_rs_await_connection(rs, rs->nonblocking);
	else
		result = 0;
	if (!result)
		result = map(rs, buf, len, prot & PROT_WRITE, (uint64_t)offset);
	pthread_mutex_unlock(&rs->lock);
	vb_rs_put(rs);
	return result ? vb_rs_result(result) : offset;
}

static struct vb_rs_mapping *find_mapping(struct vb_rs_stream *s, const void *buf, size_t len)
{
	struct vb_list *lists[] = {&s->mapped, &s->to_map}, *link, *tmp;
	struct vb_rs_mapping *mapping;
	size_t i;

	for (i = 0; i < 2; i++) {
		vb_list_for_each(link, tmp, lists[i])
		{
			mapping = vb_list_entry(link, struct vb_rs_mapping, link);
			if (mapping->mr->addr == buf && mapping->mr->length == len)
				return mapping;
		}
	}
	return NULL;
}

int riounmap(int fd, void *buf, size_t len)
{
	struct vb_rs *rs = vb_rs_enter(fd);
	struct vb_rs_mapping *mapping = NULL;

	if (!rs)
		return -1;
	if (rs->type == SOCK_STREAM)
		mapping = find_mapping(&rs->stream, buf, len);
	if (mapping)
		drop(&rs->stream, mapping);
	return (int)vb_rs_leave(rs, mapping ? 0 : -EINVAL);
}

/* Where `offset` is in the peer's memory, and how much is behind it; false when nothing is mapped.
 */
static bool find_target(struct vb_rs *rs, uint64_t offset, struct vb_rs_region *target)
{
	const uint8_t *entries = rs->stream.shared + VB_RS_SLOTS * VB_RS_SLOT_BYTES;
	struct vb_rs_region region;
	uint64_t start;
	uint32_t i;

	for (i = 0; i < rs->iomap_slots; i++) {
		region = vb_rs_iomap_decode(entries + (size_t)i * VB_RS_IOMAP_BYTES, &start);
		if (offset < start || offset - start >= region.length)
			continue;
		target->address = region.address + (offset - start);
		target->key = region.key;
		target->length = region.length - (uint32_t)(offset - start);
		return true;
	}
	return false;
}

static ssize_t write_direct(struct vb_rs *rs, const void *buf, size_t count, uint64_t offset,
			    bool nonblocking)
{
	struct iovec iov = {(void *)(uintptr_t)buf, count};
	struct vb_rs_vector from = {&iov, 1, 0};
	uint32_t step = VB_RS_FIRST_STEP, size;
	struct vb_rs_region target;
	size_t done = 0;
	int result;

	if (count > SSIZE_MAX)
		return -EINVAL;
	result = vb_rs_await_connection(rs, nonblocking);
	if (!result)
		result = vb_rs_send_mappings(rs, nonblocking);
	while (!result && done < count && find_target(rs, offset + done, &target)) {
		struct ibv_send_wr wr = {
			.opcode = IBV_WR_RDMA_WRITE,
			.wr.rdma = {target.address, target.key},
		};

		result = vb_rs_await_room(rs, nonblocking);
		if (result)
			break;
		size = vb_rs_piece(rs, count - done, target.length, &step);
		result = vb_rs_send_piece(rs, &from, size, &wr);
		if (!result)
			done += size;
	}
	return done ? (ssize_t)done : result;
}

size_t riowrite(int fd, const void *buf, size_t count, off_t offset, int flags)
{
	struct vb_rs *rs = vb_rs_find(fd);
	ssize_t result;

	if (!rs)
		return (size_t)vb_rs_result(-EBADF);
	if (rs->type != SOCK_STREAM) {
		vb_rs_put(rs);
		return (size_t)vb_rs_result(-EINVAL);
	}
	pthread_mutex_lock(&rs->sender);
	pthread_mutex_lock(&rs->lock);
	result = write_direct(rs, buf, count, (uint64_t)offset,
			      rs->nonblocking || (flags & MSG_DONTWAIT));
	pthread_mutex_unlock(&rs->lock);
	pthread_mutex_unlock(&rs->sender);
	vb_rs_put(rs);
	return (size_t)vb_rs_result(result);
}
