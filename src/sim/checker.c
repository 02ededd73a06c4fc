/* SPDX-License-Identifier: BSD-2-Clause */
/* checker.c - what every completion and every byte of a world must be. See world.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/world.h"

#define GRH 40u

/* --- bytes ------------------------------------------------------------------------------- */

void vb_pattern_fill(const struct vb_end *end, uint32_t op, uint8_t *out, uint32_t length)
{
	uint64_t base = (end->world->net.sim.seed ^ (uint64_t)(end->index + 1) << 48 ^
			 (uint64_t)(op + 1) << 24) *
			0x9e3779b97f4a7c15u;

	for (uint32_t k = 0; k < length; k += 8) {
		uint64_t x = base + k * 0xd1342543de82ef95u;

		x = (x ^ x >> 32) * 0xbf58476d1ce4e5b9u;
		x ^= x >> 29;
		memcpy(out + k, &x, VB_MIN(8u, length - k));
	}
}

void vb_scatter_pieces(uint8_t *slot, const struct vb_piece *piece, uint32_t pieces,
		       const uint8_t *data, uint32_t length)
{
	for (uint32_t i = 0; i < pieces && length; i++) {
		uint32_t n = VB_MIN(piece[i].length, length);

		memcpy(slot + piece[i].offset, data, n);
		data += n;
		length -= n;
	}
}

static uint32_t gather_pieces(const uint8_t *slot, const struct vb_piece *piece, uint32_t pieces,
			      uint8_t *out)
{
	uint32_t length = 0;

	for (uint32_t i = 0; i < pieces; i++) {
		memcpy(out + length, slot + piece[i].offset, piece[i].length);
		length += piece[i].length;
	}
	return length;
}

/* Whether a slot holds exactly these bytes in its pieces and nothing beside them. */
static bool slot_is(struct vb_world *world, const uint8_t *slot, uint32_t slot_bytes,
		    const struct vb_piece *piece, uint32_t pieces, const uint8_t *data,
		    uint32_t length)
{
	memset(world->scratch2, VB_FILL, slot_bytes);
	vb_scatter_pieces(world->scratch2, piece, pieces, data, length);
	return !memcmp(world->scratch2, slot, slot_bytes);
}

/* --- what an op is ----------------------------------------------------------------------- */

static bool consumes(const struct vb_op *op)
{
	return op->opcode == VB_WR_SEND || op->opcode == VB_WR_SEND_WITH_IMM ||
	       op->opcode == VB_WR_RDMA_WRITE_WITH_IMM;
}

static bool has_imm(const struct vb_op *op)
{
	return op->opcode == VB_WR_SEND_WITH_IMM || op->opcode == VB_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_write(const struct vb_op *op)
{
	return op->opcode == VB_WR_RDMA_WRITE || op->opcode == VB_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_atomic(const struct vb_op *op)
{
	return op->opcode == VB_WR_ATOMIC_CMP_AND_SWP || op->opcode == VB_WR_ATOMIC_FETCH_AND_ADD;
}

static enum vb_wc_opcode wc_opcode(const struct vb_op *op)
{
	static const enum vb_wc_opcode opcode[] = {
		[VB_WR_RDMA_WRITE] = VB_WC_RDMA_WRITE,
		[VB_WR_RDMA_WRITE_WITH_IMM] = VB_WC_RDMA_WRITE,
		[VB_WR_SEND] = VB_WC_SEND,
		[VB_WR_SEND_WITH_IMM] = VB_WC_SEND,
		[VB_WR_RDMA_READ] = VB_WC_RDMA_READ,
		[VB_WR_ATOMIC_CMP_AND_SWP] = VB_WC_COMP_SWAP,
		[VB_WR_ATOMIC_FETCH_AND_ADD] = VB_WC_FETCH_ADD,
	};

	return opcode[op->opcode];
}

static const char *type_name(const struct vb_end *end)
{
	switch (end->qp->type) {
	case VB_QPT_RC:
		return "RC";
	case VB_QPT_UC:
		return "UC";
	case VB_QPT_UD:
		return "UD";
	case VB_QPT_XRC_SEND:
	case VB_QPT_XRC_RECV:
		return "XRC";
	case VB_QPT_RAW_PACKET: /* not simulated */
		break;
	}
	return "?";
}

static void fail_at(const struct vb_end *end, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void fail_at(const struct vb_end *end, const char *format, ...)
{
	char text[300];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	vb_sim_fail(&end->world->net.sim, "end %u (%s, node %c): %s", end->index, type_name(end),
		    'A' + end->node->index, text);
}

/* --- completions of send requests -------------------------------------------------------- */

static bool responder_error(const struct vb_world *world)
{
	return world->mischief == VB_MISCHIEF_RKEY || world->mischief == VB_MISCHIEF_RANGE ||
	       world->mischief == VB_MISCHIEF_ALIGNMENT || world->mischief == VB_MISCHIEF_TOO_LONG;
}

/* Whether retries may run out on this end: its peer is gone or in ERR, or the wire is too bad. */
static bool may_exceed_retries(const struct vb_end *end)
{
	const struct vb_world *world = end->world;
	const struct vb_end *victim = world->victim;

	if (world->harsh || end->conn->broken || end->peer->node->dead)
		return true;
	/* The NAK was lost, and nobody is there any more to repeat it. */
	return victim == end && responder_error(world) && !world->lossless;
}

static bool may_flush_first(const struct vb_end *end)
{
	const struct vb_world *world = end->world;
	const struct vb_end *victim = world->victim;

	if (end->conn->torn_down)
		return true;
	return (victim == end && world->mischief == VB_MISCHIEF_SET_ERROR && world->struck) ||
	       (victim == end->peer && responder_error(world));
}

/* The first error of an end: it needs a cause, and that one. */
static void check_cause(struct vb_end *end, const struct vb_op *op, uint32_t index, uint8_t status)
{
	struct vb_world *world = end->world;
	bool right;

	switch ((enum vb_status)status) {
	case VB_WC_WR_FLUSH_ERR:
		right = may_flush_first(end);
		break;
	case VB_WC_RETRY_EXC_ERR:
		right = may_exceed_retries(end);
		world->stats.retry_exceeded++;
		break;
	case VB_WC_RNR_RETRY_EXC_ERR:
		right = world->mischief == VB_MISCHIEF_NO_RECEIVE && world->victim == end &&
			consumes(op);
		break;
	case VB_WC_LOC_PROT_ERR:
	case VB_WC_REM_INV_REQ_ERR:
	case VB_WC_REM_ACCESS_ERR:
		right = op->wanted == status;
		break;
	case VB_WC_SUCCESS:
	case VB_WC_LOC_LEN_ERR:
	case VB_WC_LOC_QP_OP_ERR:
	case VB_WC_MW_BIND_ERR:
	case VB_WC_BAD_RESP_ERR:
	case VB_WC_LOC_ACCESS_ERR:
	case VB_WC_REM_OP_ERR:
	case VB_WC_FATAL_ERR:
	case VB_WC_GENERAL_ERR:
	case VB_WC_TM_ERR:
	case VB_WC_TM_RNDV_INCOMPLETE:
	default:
		right = false;
		break;
	}
	if (!right)
		fail_at(end, "request %u (opcode %d, length %u) failed with status %u, wanted %u",
			index, op->opcode, op->length, status, op->wanted);
	if (!end->conn->broken)
		world->stats.broken++;
	vb_world_give_up(end->conn);
}

static void check_read(struct vb_end *end, const struct vb_op *op, uint32_t index)
{
	const uint8_t *slot = end->memory + op->slot * (size_t)end->slot_bytes;
	const uint8_t *want = end->snapshots + op->slot * (size_t)end->slot_bytes;

	end->peer->reads_out[op->region_slot]--;
	if (!slot_is(end->world, slot, end->slot_bytes, op->piece, op->pieces, want, op->length))
		fail_at(end, "READ %u of %u bytes brought something else", index, op->length);
}

static void check_atomic(struct vb_end *end, const struct vb_op *op, uint32_t index)
{
	const uint8_t *slot = end->memory + op->slot * (size_t)end->slot_bytes;
	uint64_t got;

	memcpy(&got, slot + op->piece[0].offset, 8);
	if (!op->shared_counter && got != op->old)
		fail_at(end, "atomic %u returned %" PRIx64 ", %" PRIx64 " was there", index, got,
			op->old);
	if (!slot_is(end->world, slot, end->slot_bytes, op->piece, op->pieces, (uint8_t *)&got, 8))
		fail_at(end, "atomic %u wrote beside its result", index);
}

static void succeed(struct vb_end *end, uint32_t index)
{
	struct vb_op *op = &end->ops[index];

	end->done = index + 1;
	if (op->wanted != VB_WC_SUCCESS) {
		fail_at(end, "request %u succeeded, wanted status %u", index, op->wanted);
		return;
	}
	op->succeeded = true;
	if (op->opcode == VB_WR_RDMA_READ)
		check_read(end, op, index);
	else if (is_atomic(op))
		check_atomic(end, op, index);
}

static void check_send(struct vb_end *end, const struct vb_cqe *cqe)
{
	uint32_t index = (uint32_t)cqe->wr_id;
	const struct vb_op *op = &end->ops[index];

	if (cqe->wr_id >> 32 != end->index + 1 || index < end->done || index >= end->posted) {
		fail_at(end, "completion of wr_id %" PRIx64 ", %u to %u are open", cqe->wr_id,
			end->done, end->posted);
		return;
	}
	/* Those before it were silent: they succeeded, unsignalled. */
	while (end->done < index && !end->world->net.sim.failed) {
		if (end->sig_all || (end->ops[end->done].flags & VB_SEND_SIGNALED) ||
		    end->phase != VB_PHASE_GOOD) {
			fail_at(end, "request %u did not complete before %u", end->done, index);
			return;
		}
		succeed(end, end->done);
	}
	if (cqe->opcode != wc_opcode(op))
		fail_at(end, "request %u completed as opcode %u", index, cqe->opcode);
	if (cqe->status == VB_WC_SUCCESS) {
		if (end->phase != VB_PHASE_GOOD)
			fail_at(end, "request %u succeeded behind an error", index);
		if (!end->sig_all && !(op->flags & VB_SEND_SIGNALED))
			fail_at(end, "request %u completed unasked", index);
		succeed(end, index);
		return;
	}
	if (end->phase == VB_PHASE_GOOD) {
		check_cause(end, op, index, cqe->status);
		end->phase = VB_PHASE_FLUSH;
	} else if (cqe->status != VB_WC_WR_FLUSH_ERR) {
		fail_at(end, "request %u behind an error has status %u", index, cqe->status);
	}
	end->done = index + 1;
}

/* --- completions of receive requests ----------------------------------------------------- */

/* The parts of the region that the peer's requests up to this one wrote are there. */
static void check_visible(struct vb_end *end, uint32_t index)
{
	for (uint32_t s = 0; s <= VB_REGION_SLOTS; s++) {
		uint32_t offset =
			s < VB_REGION_SLOTS ? VB_REGION_WORDS * 8 + s * end->region_slot_bytes : 0;
		uint32_t bytes = s < VB_REGION_SLOTS ? end->region_slot_bytes : VB_REGION_WORDS * 8;
		uint32_t writer = end->last_writer[s];

		if (writer > index + 1 || writer <= end->looked_at[s])
			continue;
		end->looked_at[s] = writer;
		if (memcmp(end->region + offset, end->shadow + offset, bytes) != 0)
			fail_at(end, "the write of request %u is not visible behind message %u",
				writer - 1, index);
	}
}

/* Whether the receive completion can be that of this op. */
static bool matches(struct vb_end *end, const struct vb_recv *recv, const uint8_t *slot,
		    uint32_t index, const struct vb_cqe *cqe)
{
	const struct vb_end *peer = end->peer;
	const struct vb_op *op = &peer->ops[index];
	struct vb_world *world = end->world;
	bool ud = end->conn->type == VB_QPT_UD, write = is_write(op);
	uint32_t skip = ud ? GRH : 0, length = write ? 0 : op->length, have;
	uint8_t *data = world->scratch;

	if (!consumes(op) || cqe->byte_len != op->length + skip ||
	    cqe->opcode != (write ? VB_WC_RECV_RDMA_WITH_IMM : VB_WC_RECV) ||
	    !(cqe->wc_flags & VB_WC_WITH_IMM) != !has_imm(op) ||
	    (has_imm(op) && cqe->imm != op->imm) || !(cqe->wc_flags & VB_WC_GRH) != !ud ||
	    cqe->solicited != !!(op->flags & VB_SEND_SOLICITED))
		return false;
	have = gather_pieces(slot, recv->piece, recv->pieces, data);
	vb_pattern_fill(peer, index, data + skip, length);
	if (write && end->conn->type == VB_QPT_UC) {
		vb_pattern_fill(peer, index, world->scratch2, op->length);
		if (memcmp(end->region + op->offset, world->scratch2, op->length) != 0)
			return false;
	}
	/* RC: nothing behind the message. UC may have begun another message in this buffer and lost
	 * it. */
	if (end->conn->type != VB_QPT_UC)
		have = length + skip;
	return slot_is(world, slot, end->pool->slot_bytes, recv->piece, recv->pieces, data, have);
}

static void check_grh(struct vb_end *end, const struct vb_recv *recv, const uint8_t *slot)
{
	uint8_t *grh = end->world->scratch;
	const struct vb_node *from = end->peer->node;
	uint32_t sum = 0;

	gather_pieces(slot, recv->piece, recv->pieces, grh);
	if (!IN6_IS_ADDR_V4MAPPED(&from->gid)) {
		if (grh[0] >> 4 != 6 || memcmp(grh + 8, &from->gid, 16) != 0 ||
		    memcmp(grh + 24, &end->node->gid, 16) != 0)
			fail_at(end, "the GRH of a message is wrong");
		return;
	}
	for (uint32_t i = 20; i < GRH; i += 2)
		sum += (uint32_t)grh[i] << 8 | grh[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	if (grh[20] != 0x45 || sum != 0xffff || memcmp(grh + 32, from->gid.s6_addr + 12, 4) != 0 ||
	    memcmp(grh + 36, end->node->gid.s6_addr + 12, 4) != 0)
		fail_at(end, "the IPv4 header before a message is wrong (sum %x)", sum);
}

/* UD: any of the peer's, once if one is left, else a copy that the wire made. */
static uint32_t find_datagram(struct vb_end *end, const struct vb_recv *recv, const uint8_t *slot,
			      const struct vb_cqe *cqe)
{
	uint32_t copy = UINT32_MAX;

	for (uint32_t i = 0; i < end->peer->posted; i++) {
		if (!matches(end, recv, slot, i, cqe))
			continue;
		if (!end->peer->ops[i].deliveries)
			return i;
		copy = i;
	}
	return copy;
}

/* RC: exactly the next; UC: the next that fits. */
static uint32_t find_next(struct vb_end *end, const struct vb_recv *recv, const uint8_t *slot,
			  const struct vb_cqe *cqe)
{
	for (uint32_t i = end->next_op; i < end->peer->posted; i++) {
		if (!consumes(&end->peer->ops[i]))
			continue;
		if (matches(end, recv, slot, i, cqe))
			return i;
		if (vb_conn_is_reliable(end->conn)) {
			const struct vb_op *op = &end->peer->ops[i];

			fail_at(end,
				"message %u (opcode %d, length %u) arrived changed: opcode %u, %u "
				"bytes, flags %x",
				i, op->opcode, op->length, cqe->opcode, cqe->byte_len,
				cqe->wc_flags);
			break;
		}
	}
	return UINT32_MAX;
}

static void check_message(struct vb_end *end, const struct vb_recv *recv, const uint8_t *slot,
			  const struct vb_cqe *cqe)
{
	bool ud = end->conn->type == VB_QPT_UD;
	uint32_t index = ud ? find_datagram(end, recv, slot, cqe) : find_next(end, recv, slot, cqe);

	if (index == UINT32_MAX) {
		fail_at(end, "a message of %u bytes arrived that nobody sent", cqe->byte_len);
		return;
	}
	vb_sim_say(&end->world->net.sim, "%c end %u got message %u", 'A' + end->node->index,
		   end->index, index);
	if (cqe->src_qpn != end->peer->qp->qpn)
		fail_at(end, "message %u came from QP %x", index, cqe->src_qpn);
	end->world->stats.messages++;
	end->received++;
	end->next_op = index + 1;
	end->peer->ops[index].deliveries++;
	if (ud)
		check_grh(end, recv, slot);
	if (vb_conn_is_reliable(end->conn))
		check_visible(end, index);
}

static void check_recv(struct vb_end *end, const struct vb_cqe *cqe)
{
	struct vb_pool *pool = end->pool;
	uint32_t slot = (uint32_t)cqe->wr_id & 0xff;
	struct vb_recv *recv = &pool->recv[slot];
	struct vb_world *world = end->world;

	if (slot >= pool->depth || recv->state != VB_RECV_POSTED || recv->wr_id != cqe->wr_id ||
	    (pool->end && pool->order[pool->taken % pool->depth] != slot)) {
		fail_at(end, "receive completion of wr_id %" PRIx64 " out of turn", cqe->wr_id);
		return;
	}
	pool->taken++;
	recv->state = VB_RECV_FREE;
	if (cqe->status == VB_WC_SUCCESS) {
		if (end->recv_flushing || end->recv_failed)
			fail_at(end, "a message arrived behind the error");
		check_message(end, recv, pool->memory + slot * (size_t)pool->slot_bytes, cqe);
		vb_workload_recv_later(pool, slot);
		return;
	}
	if (end->qp->state != VB_QPS_ERR)
		fail_at(end, "receive status %u in state %d", cqe->status, end->qp->state);
	if (cqe->status == VB_WC_LOC_LEN_ERR && world->victim == end->peer && !end->recv_failed &&
	    world->mischief == VB_MISCHIEF_TOO_LONG) {
		end->recv_failed = true;
	} else if (cqe->status == VB_WC_WR_FLUSH_ERR) {
		end->recv_flushing = true;
	} else {
		fail_at(end, "receive completion with status %u", cqe->status);
	}
	if (pool->srq)
		vb_workload_recv_later(pool, slot); /* others use it still */
}

void vb_check_completion(struct vb_world *world, struct vb_node *node, const struct vb_cqe *cqe)
{
	struct vb_end *end = vb_world_find_end(world, node, cqe->qpn);

	/* A receive of XRC is the SRQ's. */
	if (!end || (end->qp != cqe->qp && (cqe->qp || end->qp->type != VB_QPT_XRC_RECV))) {
		vb_sim_fail(&world->net.sim, "completion for unknown QP %x", cqe->qpn);
		return;
	}
	vb_sim_mix(&world->net.sim, 100, cqe->wr_id, cqe->status);
	vb_sim_say(&world->net.sim, "%c end %u polls %s %" PRIx64 " status %u", 'A' + node->index,
		   end->index, cqe->is_send ? "send" : "recv", cqe->wr_id, cqe->status);
	if (cqe->is_send) {
		check_send(end, cqe);
		vb_workload_post_later(end);
	} else {
		check_recv(end, cqe);
	}
}

/* --- the end ----------------------------------------------------------------------------- */

static const struct vb_end *end_at(const struct vb_world *world, uint32_t i)
{
	return &world->conn[i / 2].end[i % 2];
}

static bool is_unfinished(const struct vb_end *end)
{
	if (end->node->dead)
		return false;
	if (end->posted < end->op_count || end->done < end->posted)
		return true;
	if (end->conn->broken)
		return !end->conn->torn_down;
	return vb_conn_is_reliable(end->conn) && end->peer->received < end->consumers;
}

bool vb_check_is_done(const struct vb_world *world)
{
	for (uint32_t i = 0; i < 2 * world->conn_count; i++)
		if (is_unfinished(end_at(world, i)))
			return false;
	for (uint32_t i = 0; i < world->cq_count; i++)
		if (vb_cq_count(world->poller[i].cq) && !world->poller[i].node->dead)
			return false;
	return vb_net_in_flight(&world->net) == 0;
}

void vb_check_stuck(struct vb_world *world)
{
	for (uint32_t i = 0; i < 2 * world->conn_count; i++) {
		const struct vb_end *end = end_at(world, i);

		if (is_unfinished(end))
			fail_at(end,
				"does not finish: %u of %u posted, %u done, peer got %u of %u "
				"messages, state %d, events %" PRIu64,
				end->posted, end->op_count, end->done, end->peer->received,
				end->consumers, end->qp->state, world->net.sim.events);
	}
	vb_sim_fail(&world->net.sim, "the network does not come to rest");
}

/* What a broken connection left: what surely happened, and over it what may have. */
static bool byte_may_be(struct vb_world *world, const struct vb_end *end, uint8_t *maybe)
{
	const struct vb_end *peer = end->peer;
	uint8_t *sure = world->scratch;
	uint64_t word;

	memcpy(sure, end->first, end->region_bytes);
	memset(maybe, 0, end->region_bytes);
	for (uint32_t i = 0; i < peer->posted; i++) {
		const struct vb_op *op = &peer->ops[i];

		if (op->wanted != VB_WC_SUCCESS || op->shared_counter)
			continue;
		if (is_write(op)) {
			vb_pattern_fill(peer, i, world->scratch2, op->length);
			if (op->succeeded)
				memcpy(sure + op->offset, world->scratch2, op->length);
			for (uint32_t k = 0; k < op->length && !op->succeeded; k++)
				maybe[op->offset + k] |=
					world->scratch2[k] == end->region[op->offset + k];
		} else if (is_atomic(op) && op->succeeded) {
			memcpy(&word, sure + op->offset, 8);
			if (op->opcode == VB_WR_ATOMIC_FETCH_AND_ADD)
				word += op->compare;
			else if (word == op->compare)
				word = op->swap;
			memcpy(sure + op->offset, &word, 8);
		} else if (is_atomic(op)) {
			memset(maybe + op->offset, 1, 8);
		}
	}
	for (uint32_t k = 0; k < end->region_bytes; k++)
		if (end->region[k] != sure[k] && !maybe[k])
			return false;
	return true;
}

static void check_region(struct vb_world *world, const struct vb_end *end)
{
	uint8_t *maybe = end->shadow;
	bool right = false;

	switch (end->conn->type) {
	case VB_QPT_RC:
	case VB_QPT_XRC_SEND:
	case VB_QPT_XRC_RECV:
		right = end->conn->broken ? byte_may_be(world, end, maybe)
					  : !memcmp(end->region, end->shadow, end->region_bytes);
		break;
	case VB_QPT_UC: /* its requests succeed when they are sent, and may be lost */
		memcpy(maybe, end->first, end->region_bytes);
		for (uint32_t i = 0; i < end->peer->posted; i++)
			if (is_write(&end->peer->ops[i]))
				vb_pattern_fill(end->peer, i, maybe + end->peer->ops[i].offset,
						end->peer->ops[i].length);
		right = true;
		for (uint32_t k = 0; k < end->region_bytes; k++)
			right &= end->region[k] == maybe[k] || end->region[k] == end->first[k];
		break;
	case VB_QPT_UD:
		right = !memcmp(end->region, end->first, end->region_bytes);
		break;
	case VB_QPT_RAW_PACKET: /* not simulated */
		break;
	}
	if (!right)
		fail_at(end, "the region does not hold what was written into it");
}

static void check_deliveries(struct vb_world *world, const struct vb_end *end)
{
	const struct vb_link *link = &world->net.links[end->node->index][end->peer->node->index];
	uint64_t copies = 0;

	for (uint32_t i = 0; i < end->posted; i++) {
		const struct vb_op *op = &end->ops[i];

		if (op->shared_counter && !op->succeeded)
			world->counter_unsure[end->peer->node->index] = true;
		copies += op->deliveries > 1 ? op->deliveries - 1 : 0;
		if (op->deliveries > 1 && end->conn->type != VB_QPT_UD)
			fail_at(end, "message %u arrived %u times", i, op->deliveries);
		if (op->succeeded && consumes(op) && !op->deliveries &&
		    vb_conn_is_reliable(end->conn) && !end->peer->node->dead)
			fail_at(end, "message %u succeeded and never arrived", i);
	}
	if (copies > link->count.duplicated)
		fail_at(end, "more copies than the wire made");
}

void vb_check_end(struct vb_world *world)
{
	for (uint32_t i = 0; i < 2 * world->conn_count; i++) {
		const struct vb_end *end = end_at(world, i);

		if (!end->node->dead)
			check_region(world, end);
		check_deliveries(world, end);
	}
	for (uint32_t i = 0; i < world->net.node_count; i++)
		if (!world->net.nodes[i].dead && !world->counter_unsure[i] &&
		    *world->counter[i] != world->counter_sum[i])
			vb_sim_fail(&world->net.sim,
				    "node %c counted %" PRIx64 ", the sum is %" PRIx64, 'A' + i,
				    *world->counter[i], world->counter_sum[i]);
}

void vb_check_flushed(struct vb_world *world)
{
	for (uint32_t i = 0; i < 2 * world->conn_count; i++) {
		const struct vb_end *end = end_at(world, i);

		if (end->node->dead)
			continue;
		if (end->qp->state != VB_QPS_ERR || end->done != end->posted)
			fail_at(end, "%u of %u requests completed", end->done, end->posted);
		if (end->pool->end && end->pool->taken != end->pool->posted)
			fail_at(end, "%u of %u receive requests completed", end->pool->taken,
				end->pool->posted);
		if (end->qp->srq && !end->last_wqe)
			fail_at(end, "LAST_WQE_REACHED is missing");
	}
	for (uint32_t i = 0; i < world->cq_count; i++)
		if (world->poller[i].cq->overrun)
			vb_sim_fail(&world->net.sim, "a completion queue was overrun");
}
