/* SPDX-License-Identifier: BSD-2-Clause */
/* workload.c - what the programs of a world do: connect, post, poll, and now and then a mistake. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "sim/world.h"

#define POLL_LONGEST_NS 20000000u
#define POLL_AT_ONCE 8
#define GRH 40u

static struct vb_rng *rng_of(struct vb_world *world)
{
	return &world->net.sim.rng;
}

static bool is_atomic(enum vb_wr_opcode opcode)
{
	return opcode == VB_WR_ATOMIC_CMP_AND_SWP || opcode == VB_WR_ATOMIC_FETCH_AND_ADD;
}

static bool is_write(enum vb_wr_opcode opcode)
{
	return opcode == VB_WR_RDMA_WRITE || opcode == VB_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_read(enum vb_wr_opcode opcode)
{
	return opcode == VB_WR_RDMA_READ;
}

/* --- buffers ----------------------------------------------------------------------------- */

/* Cuts length bytes into pieces with gaps between them, within a slot. Returns how many. */
static uint32_t carve(struct vb_rng *rng, uint32_t length, uint32_t most, struct vb_piece *piece)
{
	uint32_t pieces = length ? 1 + vb_rng_below(rng, most) : vb_rng_below(rng, most + 1);
	uint32_t at = vb_rng_below(rng, 16);

	for (uint32_t i = 0; i < pieces; i++) {
		piece[i].offset = at;
		piece[i].length = i + 1 < pieces ? vb_rng_below(rng, length + 1) : length;
		length -= piece[i].length;
		at += piece[i].length + vb_rng_below(rng, 16);
	}
	return pieces;
}

static void make_sges(struct vb_rng *rng, struct vb_mr *const mr[2], uint64_t slot_offset,
		      const struct vb_piece *piece, uint32_t pieces, struct vb_sge *sges)
{
	for (uint32_t i = 0; i < pieces; i++) {
		const struct vb_mr *one = mr[vb_rng_below(rng, 2)];

		sges[i] = (struct vb_sge){one->iova + slot_offset + piece[i].offset,
					  piece[i].length, one->lkey};
		/* No bytes, no key: whatever stands there must not matter. */
		if (!piece[i].length && vb_rng_chance(rng, 500000))
			sges[i].lkey = (uint32_t)vb_rng_next(rng);
	}
}

/* --- receive requests -------------------------------------------------------------------- */

static void post_recv(void *object, uint64_t slot, void *data)
{
	struct vb_pool *pool = object;
	struct vb_recv *recv = &pool->recv[slot];
	struct vb_rng *rng = rng_of(pool->world);
	struct vb_sge sges[VB_END_SGES];
	struct vb_recv_wr wr = {.sges = sges};
	int r;

	if (pool->node->dead || !pool->left || (pool->end && pool->end->recv_flushing))
		return;
	pool->left--;
	recv->state = VB_RECV_POSTED;
	recv->wr_id = wr.wr_id = 1ull << 63 | ++pool->generation << 8 | slot;
	recv->length = pool->length;
	recv->pieces = wr.num_sge = carve(rng, recv->length, pool->sges, recv->piece);
	memset(pool->memory + slot * pool->slot_bytes, VB_FILL, pool->slot_bytes);
	make_sges(rng, pool->mr, slot * pool->slot_bytes, recv->piece, recv->pieces, sges);
	pool->order[pool->posted++ % pool->depth] = (uint32_t)slot;
	r = pool->srq ? vb_srq_post(pool->srq, &wr) : vb_qp_post_recv(pool->end->qp, &wr);
	if (pool->srq && vb_rng_chance(rng, 20000))
		r |= vb_srq_resize(pool->srq, pool->depth + vb_rng_below(rng, pool->depth));
	if (r)
		vb_sim_fail(&pool->world->net.sim, "a receive request was refused: %d", r);
	vb_node_kick(pool->node);
}

void vb_workload_recv_later(struct vb_pool *pool, uint32_t slot)
{
	struct vb_sim *sim = &pool->world->net.sim;

	vb_sim_at(sim, sim->now_ns + vb_rng_between(&sim->rng, 0, pool->late_ns), post_recv, pool,
		  slot, NULL);
}

/* --- send requests ----------------------------------------------------------------------- */

static enum vb_wr_opcode draw_opcode(struct vb_rng *rng, const struct vb_end *end)
{
	uint32_t sum = 0, at, i;

	for (i = 0; i < VB_ARRAY_SIZE(end->weight); i++)
		sum += end->weight[i];
	at = vb_rng_below(rng, sum);
	for (i = 0; at >= end->weight[i]; i++)
		at -= end->weight[i];
	return (enum vb_wr_opcode)i;
}

/* Around multiples of the MTU, small, or anything. */
static uint32_t draw_length(struct vb_rng *rng, const struct vb_conn *conn)
{
	uint32_t length;

	switch (vb_rng_below(rng, 4)) {
	case 0:
		length = vb_rng_below(rng, 65);
		break;
	case 1:
		length = vb_rng_below(rng, conn->max_length + 1);
		break;
	default:
		length = conn->mtu * vb_rng_below(rng, 6) + vb_rng_below(rng, 7);
		length = length > 3 ? length - 3 : 0;
		break;
	}
	return VB_MIN(length, conn->max_length);
}

/* Where in the peer's region the op goes, and what must be there afterwards. */
static void aim_rc(struct vb_end *end, struct vb_op *op, uint32_t index)
{
	struct vb_rng *rng = rng_of(end->world);
	struct vb_end *peer = end->peer;
	uint32_t room = peer->region_slot_bytes - op->length;

	op->region_slot = vb_rng_below(rng, VB_REGION_SLOTS);
	op->offset = VB_REGION_WORDS * 8 + op->region_slot * peer->region_slot_bytes +
		     vb_rng_below(rng, room + 1);
	if (is_read(op->opcode) && op->length <= 8 && vb_rng_chance(rng, 300000)) {
		op->region_slot = VB_REGION_SLOTS;
		op->offset = 8 * vb_rng_below(rng, VB_REGION_WORDS);
	}
	if (is_read(op->opcode)) {
		memcpy(end->snapshots + op->slot * (size_t)end->slot_bytes,
		       peer->shadow + op->offset, op->length);
		peer->reads_out[op->region_slot]++;
		return;
	}
	/* The one order that RC leaves open (IBTA 10.8.3.3, a request behind a READ). */
	if (peer->reads_out[op->region_slot])
		op->flags |= VB_SEND_FENCE;
	vb_pattern_fill(end, index, peer->shadow + op->offset, op->length);
	peer->last_writer[op->region_slot] = index + 1;
}

static void aim_uc(struct vb_end *end, struct vb_op *op)
{
	struct vb_end *peer = end->peer;

	if (peer->uc_used + op->length > peer->region_bytes - VB_REGION_GUARD) {
		op->opcode = VB_WR_SEND;
		return;
	}
	op->offset = peer->uc_used;
	peer->uc_used += op->length;
}

static void aim_atomic(struct vb_end *end, struct vb_op *op, uint32_t index)
{
	struct vb_rng *rng = rng_of(end->world);
	struct vb_end *peer = end->peer;
	uint64_t now;

	op->length = 8;
	op->compare = vb_rng_next(rng);
	op->swap = vb_rng_next(rng);
	op->shared_counter = op->opcode == VB_WR_ATOMIC_FETCH_AND_ADD && vb_rng_chance(rng, 400000);
	if (op->shared_counter) {
		end->world->counter_sum[peer->node->index] += op->compare;
		return;
	}
	op->region_slot = VB_REGION_SLOTS;
	op->offset = 8 * vb_rng_below(rng, VB_REGION_WORDS);
	if (peer->reads_out[op->region_slot])
		op->flags |= VB_SEND_FENCE;
	memcpy(&now, peer->shadow + op->offset, 8);
	op->old = now;
	if (op->opcode == VB_WR_ATOMIC_FETCH_AND_ADD) {
		now += op->compare;
	} else {
		if (vb_rng_chance(rng, 500000))
			op->compare = now;
		if (op->compare == now)
			now = op->swap;
	}
	memcpy(peer->shadow + op->offset, &now, 8);
	peer->last_writer[op->region_slot] = index + 1;
}

static bool is_mischief(const struct vb_end *end, uint32_t index, enum vb_mischief mischief)
{
	const struct vb_world *world = end->world;

	return world->victim == end && world->mischief == mischief && world->mischief_op == index;
}

/* The op that goes wrong. False: this one does not. */
static bool spoil(struct vb_end *end, struct vb_op *op, uint32_t index)
{
	struct vb_rng *rng = rng_of(end->world);
	bool range = is_mischief(end, index, VB_MISCHIEF_RANGE);

	if (is_mischief(end, index, VB_MISCHIEF_RKEY) || range) {
		op->opcode = vb_rng_chance(rng, 500000) ? VB_WR_RDMA_WRITE : VB_WR_RDMA_READ;
		op->length = VB_MAX(op->length, 1u);
		op->wanted = VB_WC_REM_ACCESS_ERR;
		op->offset = range ? end->peer->region_bytes - op->length + 1 +
					     vb_rng_below(rng, op->length)
				   : 0;
		return true;
	}
	if (is_mischief(end, index, VB_MISCHIEF_LKEY)) {
		op->opcode = VB_WR_SEND;
		op->length = VB_MAX(op->length, 1u);
		op->wanted = VB_WC_LOC_PROT_ERR;
		return true;
	}
	if (is_mischief(end, index, VB_MISCHIEF_ALIGNMENT)) {
		op->opcode = VB_WR_ATOMIC_FETCH_AND_ADD;
		op->length = 8;
		op->offset = 1 + vb_rng_below(rng, 7);
		op->wanted = VB_WC_REM_INV_REQ_ERR;
		return true;
	}
	if (is_mischief(end, index, VB_MISCHIEF_TOO_LONG)) {
		op->opcode = VB_WR_SEND;
		op->length = end->peer->pool->length + 1 + vb_rng_below(rng, 60);
		op->wanted = VB_WC_REM_INV_REQ_ERR;
		return true;
	}
	return false;
}

static bool consumes(enum vb_wr_opcode opcode)
{
	return opcode == VB_WR_SEND || opcode == VB_WR_SEND_WITH_IMM ||
	       opcode == VB_WR_RDMA_WRITE_WITH_IMM;
}

static void make_op(struct vb_end *end, struct vb_op *op, uint32_t index)
{
	struct vb_rng *rng = rng_of(end->world);
	bool last = index + 1 == end->op_count || index + 1 - end->done == end->depth;

	memset(op, 0, sizeof(*op));
	op->slot = index % end->depth;
	op->opcode = draw_opcode(rng, end);
	op->length = draw_length(rng, end->conn);
	op->imm = (uint32_t)vb_rng_next(rng);
	op->flags = vb_rng_chance(rng, 80000) ? VB_SEND_FENCE : 0;
	if (vb_rng_chance(rng, 200000))
		op->flags |= VB_SEND_SOLICITED;
	if (last || !vb_rng_chance(rng, end->unsignalled_ppm))
		op->flags |= VB_SEND_SIGNALED;
	if (!spoil(end, op, index)) {
		if (is_atomic(op->opcode))
			aim_atomic(end, op, index);
		else if (vb_conn_is_reliable(end->conn) &&
			 (is_write(op->opcode) || is_read(op->opcode)))
			aim_rc(end, op, index);
		else if (is_write(op->opcode))
			aim_uc(end, op);
	}
	if (op->length <= end->inline_max && !is_read(op->opcode) && !is_atomic(op->opcode) &&
	    op->wanted != VB_WC_LOC_PROT_ERR && vb_rng_chance(rng, 500000))
		op->flags |= VB_SEND_INLINE;
	if (consumes(op->opcode))
		end->consumers++;
}

/* The op's local memory: what goes out, or nothing yet where something comes in. */
static void prepare_memory(struct vb_end *end, struct vb_op *op, uint32_t index,
			   struct vb_send_wr *wr, struct vb_sge *sges)
{
	struct vb_rng *rng = rng_of(end->world);
	uint64_t slot_offset = op->slot * (uint64_t)end->slot_bytes;
	uint8_t *slot = end->memory + slot_offset;

	op->pieces = carve(rng, op->length, is_atomic(op->opcode) ? 1 : end->sges, op->piece);
	memset(slot, VB_FILL, end->slot_bytes);
	if (!is_read(op->opcode) && !is_atomic(op->opcode)) {
		vb_pattern_fill(end, index, end->world->scratch, op->length);
		vb_scatter_pieces(slot, op->piece, op->pieces, end->world->scratch, op->length);
	}
	make_sges(rng, end->mr, slot_offset, op->piece, op->pieces, sges);
	for (uint32_t i = 0; i < op->pieces; i++) {
		if (op->flags & VB_SEND_INLINE) {
			sges[i].addr = (uintptr_t)(slot + op->piece[i].offset);
			sges[i].lkey = (uint32_t)vb_rng_next(rng);
		}
		if (op->wanted == VB_WC_LOC_PROT_ERR)
			sges[i].lkey ^= 0x80000000u;
	}
	wr->sges = sges;
	wr->num_sge = op->pieces;
}

static void aim_request(struct vb_end *end, const struct vb_op *op, struct vb_send_wr *wr)
{
	const struct vb_end *peer = end->peer;
	struct vb_world *world = end->world;

	wr->remote_addr = peer->iova + op->offset;
	wr->rkey = peer->region_mr->rkey;
	if (op->shared_counter) {
		wr->remote_addr = world->counter_iova[peer->node->index];
		wr->rkey = world->counter_mr[peer->node->index]->rkey;
	}
	if (op->wanted == VB_WC_REM_ACCESS_ERR && world->mischief == VB_MISCHIEF_RKEY)
		wr->rkey ^= 0x80000000u;
	wr->compare_add = op->compare;
	wr->swap = op->swap;
	if (end->conn->type == VB_QPT_XRC_SEND)
		wr->remote_srqn = peer->pool->srq->srqn;
	if (end->conn->type == VB_QPT_UD) {
		wr->ah = end->ah;
		wr->remote_qpn = peer->qp->qpn;
		wr->remote_qkey = peer->qp->attr.qkey;
	}
}

static int post(struct vb_end *end, struct vb_op *op, uint32_t index)
{
	struct vb_sge sges[VB_END_SGES];
	struct vb_send_wr wr = {
		.wr_id = (uint64_t)(end->index + 1) << 32 | index,
		.opcode = op->opcode,
		.flags = op->flags,
		.imm = op->imm,
	};
	int r;

	prepare_memory(end, op, index, &wr, sges);
	aim_request(end, op, &wr);
	vb_sim_say(&end->world->net.sim, "%c end %u posts %u: opcode %d length %u flags %x slot %u",
		   'A' + end->node->index, end->index, index, op->opcode, op->length, op->flags,
		   op->region_slot);
	r = vb_qp_post_send(end->qp, &wr);
	if (op->flags & VB_SEND_INLINE) /* the buffer is the program's again */
		memset(end->memory + op->slot * (size_t)end->slot_bytes, 0xdd, end->slot_bytes);
	return r;
}

/* A queue that is full takes nothing more, and says so. */
static void post_too_many(struct vb_end *end)
{
	struct vb_send_wr wr = {.opcode = VB_WR_SEND};
	int r;

	if (end->qp->cap.max_send_wr != end->posted - end->done)
		return;
	if (end->conn->type == VB_QPT_UD)
		wr.ah = end->ah;
	r = vb_qp_post_send(end->qp, &wr);
	if (r != -ENOMEM)
		vb_sim_fail(&end->world->net.sim, "a full send queue took one more request: %d", r);
}

static void post_some(void *object, uint64_t word, void *data)
{
	struct vb_end *end = object;
	struct vb_sim *sim = &end->world->net.sim;
	uint32_t burst = 1 + vb_rng_below(&sim->rng, 8);

	end->post_scheduled = false;
	if (end->node->dead)
		return;
	while (burst-- && end->posted < end->op_count && end->posted - end->done < end->depth) {
		struct vb_op *op = &end->ops[end->posted];
		int r;

		make_op(end, op, end->posted);
		r = post(end, op, end->posted);
		if (r) {
			vb_sim_fail(sim, "end %u: request %u was refused: %d", end->index,
				    end->posted, r);
			return;
		}
		end->posted++;
		end->world->stats.ops++;
		end->world->stats.bytes += op->length;
	}
	if (end->posted - end->done == end->depth)
		post_too_many(end);
	vb_node_kick(end->node);
	vb_workload_post_later(end);
}

void vb_workload_post_later(struct vb_end *end)
{
	struct vb_sim *sim = &end->world->net.sim;

	if (!end->ready || end->post_scheduled || end->posted == end->op_count ||
	    end->posted - end->done == end->depth)
		return;
	end->post_scheduled = true;
	vb_sim_at(sim, sim->now_ns + vb_rng_between(&sim->rng, 0, end->gap_ns), post_some, end, 0,
		  NULL);
}

/* --- polling ----------------------------------------------------------------------------- */

/* A queue that is made larger or smaller loses nothing. */
static void resize_sometimes(struct vb_poller *poller)
{
	struct vb_rng *rng = rng_of(poller->world);
	uint32_t entries = VB_WORLD_CQES + vb_rng_below(rng, VB_WORLD_CQES);

	if (vb_rng_chance(rng, 5000) && vb_cq_resize(poller->cq, entries) != 0)
		vb_sim_fail(&poller->world->net.sim, "a completion queue was not resized");
}

static void poll(void *object, uint64_t word, void *data)
{
	struct vb_poller *poller = object;
	struct vb_world *world = poller->world;
	struct vb_cqe cqe[POLL_AT_ONCE];
	int most = 1 + (int)vb_rng_below(rng_of(world), POLL_AT_ONCE), n, sum = 0;

	poller->scheduled = false;
	if (poller->node->dead)
		return;
	if (poller->by_event) /* armed first, so that nothing that comes now is missed */
		vb_cq_arm(poller->cq, false);
	do {
		n = vb_cq_poll(poller->cq, cqe, most);
		for (int i = 0; i < n && !world->net.sim.failed; i++)
			vb_check_completion(world, poller->node, &cqe[i]);
		sum += n;
	} while (poller->by_event && n > 0);
	if (sum) {
		resize_sometimes(poller);
		vb_node_kick(poller->node);
	}
	if (poller->by_event)
		return;
	poller->interval_ns = sum ? poller->patience_ns
				  : VB_MIN(2 * poller->interval_ns, (uint64_t)POLL_LONGEST_NS);
	vb_workload_poll_later(poller, poller->interval_ns);
}

void vb_workload_poll_later(struct vb_poller *poller, uint64_t delay_ns)
{
	struct vb_sim *sim = &poller->world->net.sim;

	if (poller->scheduled)
		return;
	poller->scheduled = true;
	vb_sim_at(sim, sim->now_ns + delay_ns, poll, poller, 0, NULL);
}

static void on_cq_event(void *env, struct vb_node *node, struct vb_cq *cq)
{
	struct vb_poller *poller = cq->user;

	vb_workload_poll_later(poller, vb_rng_between(rng_of(env), 0, poller->patience_ns));
}

/* --- states ------------------------------------------------------------------------------ */

static void modify(struct vb_end *end, struct vb_qp_attr *attr, uint32_t mask)
{
	int r = vb_qp_modify(end->qp, attr, mask);

	if (r)
		vb_sim_fail(&end->world->net.sim, "end %u: state %d was refused: %d", end->index,
			    attr->qp_state, r);
	vb_node_kick(end->node);
}

static void to_init(struct vb_end *end)
{
	struct vb_qp_attr attr = {
		.qp_state = VB_QPS_INIT,
		.port_num = 1,
		.access_flags = VB_ACCESS_REMOTE_ALL,
		.qkey = (uint32_t)vb_rng_next(rng_of(end->world)) & 0x7fffffff,
	};
	bool ud = end->conn->type == VB_QPT_UD;

	modify(end, &attr,
	       VB_QP_STATE | VB_QP_PKEY_INDEX | VB_QP_PORT |
		       (ud ? VB_QP_QKEY : VB_QP_ACCESS_FLAGS));
}

static void to_rts(void *object, uint64_t word, void *data)
{
	struct vb_end *end = object;
	struct vb_qp_attr attr = {
		.qp_state = VB_QPS_RTS,
		.sq_psn = end->psn,
		.timeout = (uint8_t)end->timeout,
		.retry_cnt = (uint8_t)end->retry_cnt,
		.rnr_retry = (uint8_t)end->rnr_retry,
		.max_rd_atomic = (uint8_t)end->rd_atomic,
	};
	uint32_t mask = VB_QP_STATE | VB_QP_SQ_PSN;

	if (vb_conn_is_reliable(end->conn))
		mask |= VB_QP_TIMEOUT;
	if (vb_conn_is_reliable(end->conn) && end->qp->type != VB_QPT_XRC_RECV)
		mask |= VB_QP_RETRY_CNT | VB_QP_RNR_RETRY | VB_QP_MAX_QP_RD_ATOMIC;
	if (end->node->dead)
		return;
	if (end->qp->state == VB_QPS_RTR)
		modify(end, &attr, mask);
	end->ready = true;
	vb_workload_post_later(end);
}

static void to_rtr(void *object, uint64_t word, void *data)
{
	struct vb_end *end = object, *peer = end->peer;
	struct vb_sim *sim = &end->world->net.sim;
	struct vb_qp_attr attr = {
		.qp_state = VB_QPS_RTR,
		.ah = {.dgid = peer->node->gid, .is_global = true, .port_num = 1, .hop_limit = 64},
		.path_mtu = (enum vb_mtu)end->conn->path_mtu,
		.dest_qpn = peer->qp->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic =
			(uint8_t)vb_rng_between(&sim->rng, peer->rd_atomic, VB_MAX_RD_ATOMIC),
		.min_rnr_timer = (uint8_t)end->rnr_timer,
	};
	uint32_t mask = VB_QP_STATE;

	if (end->conn->type != VB_QPT_UD)
		mask |= VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN;
	if (end->qp->type == VB_QPT_RC || end->qp->type == VB_QPT_XRC_RECV)
		mask |= VB_QP_MAX_DEST_RD_ATOMIC | VB_QP_MIN_RNR_TIMER;
	if (end->node->dead)
		return;
	if (end->conn->type == VB_QPT_UD) {
		end->ah = vb_ah_create(end->world->pd[end->node->index], &attr.ah);
		VB_ASSERT(end->ah);
	}
	if (end->qp->state == VB_QPS_INIT)
		modify(end, &attr, mask);
	vb_sim_at(sim,
		  sim->now_ns + (vb_rng_chance(&sim->rng, 200000)
					 ? vb_rng_between(&sim->rng, 0, 3000000)
					 : 0),
		  to_rts, end, 0, NULL);
}

static void resume(void *object, uint64_t word, void *data)
{
	struct vb_end *end = object;
	struct vb_qp_attr attr = {.qp_state = VB_QPS_RTS};

	if (!end->node->dead && end->qp->state == VB_QPS_SQD)
		modify(end, &attr, VB_QP_STATE);
}

static void drain(void *object, uint64_t word, void *data)
{
	struct vb_end *end = object;
	struct vb_qp_attr attr = {.qp_state = VB_QPS_SQD, .en_sqd_async_notify = true};

	if (!end->node->dead && end->qp->state == VB_QPS_RTS)
		modify(end, &attr, VB_QP_STATE | VB_QP_EN_SQD_ASYNC_NOTIFY);
}

/* Whether this end may hear of errors that its peer's requests caused. */
static bool may_fail_as_responder(const struct vb_end *end)
{
	const struct vb_world *world = end->world;

	return world->victim && world->victim->peer == end &&
	       (world->mischief == VB_MISCHIEF_RKEY || world->mischief == VB_MISCHIEF_RANGE ||
		world->mischief == VB_MISCHIEF_ALIGNMENT ||
		world->mischief == VB_MISCHIEF_TOO_LONG);
}

static void on_event(void *env, struct vb_node *node, const struct vb_event *event)
{
	struct vb_world *world = env;
	struct vb_sim *sim = &world->net.sim;
	struct vb_end *end = event->qp ? event->qp->user : NULL;

	switch (event->type) {
	case VB_EVENT_SQ_DRAINED:
		vb_sim_at(sim, sim->now_ns + vb_rng_between(&sim->rng, 0, 200000), resume, end, 0,
			  NULL);
		break;
	case VB_EVENT_QP_LAST_WQE_REACHED:
		if (end->last_wqe || !end->qp->srq)
			vb_sim_fail(sim, "end %u: LAST_WQE_REACHED twice or without an SRQ",
				    end->index);
		end->last_wqe = true;
		break;
	case VB_EVENT_QP_FATAL:
	case VB_EVENT_QP_REQ_ERR:
	case VB_EVENT_QP_ACCESS_ERR:
		if (!may_fail_as_responder(end))
			vb_sim_fail(sim, "end %u: event %d without a cause", end->index,
				    event->type);
		break;
	case VB_EVENT_COMM_EST:
	case VB_EVENT_PORT_ACTIVE:
	case VB_EVENT_PORT_ERR:
	case VB_EVENT_SRQ_LIMIT_REACHED:
		break;
	case VB_EVENT_CQ_ERR:
	case VB_EVENT_DEVICE_FATAL:
	case VB_EVENT_SRQ_ERR:
	case VB_EVENT_WQ_FATAL:
		vb_sim_fail(sim, "event %d", event->type);
		break;
	}
}

/* --- mischief that is not a request ------------------------------------------------------ */

static void strike(void *object, uint64_t word, void *data)
{
	struct vb_world *world = object;
	struct vb_end *victim = world->victim;
	struct vb_qp_attr attr = {.qp_state = VB_QPS_ERR};
	struct vb_node *node = victim->peer->node;

	if (world->mischief == VB_MISCHIEF_SET_ERROR) {
		if (victim->qp->state != VB_QPS_ERR)
			modify(victim, &attr, VB_QP_STATE);
		world->struck = true;
		vb_world_give_up(victim->conn);
		return;
	}
	vb_node_kill(node);
	world->struck = true;
	for (uint32_t i = 0; i < world->conn_count; i++)
		if (world->conn[i].end[0].node == node || world->conn[i].end[1].node == node)
			vb_world_give_up(&world->conn[i]);
}

static void start_mischief(struct vb_world *world)
{
	struct vb_sim *sim = &world->net.sim;

	if (world->mischief == VB_MISCHIEF_NO_RECEIVE)
		world->victim->peer->pool->left = vb_rng_below(&sim->rng, 20);
	if (world->mischief == VB_MISCHIEF_SET_ERROR || world->mischief == VB_MISCHIEF_KILL)
		vb_sim_at(sim,
			  vb_rng_between(&sim->rng, 0,
					 vb_rng_chance(&sim->rng, 700000) ? 200000 : 10000000),
			  strike, world, 0, NULL);
}

void vb_workload_start(struct vb_world *world)
{
	struct vb_rng *rng = rng_of(world);

	for (uint32_t i = 0; i < world->net.node_count; i++) {
		struct vb_node *node = &world->net.nodes[i];

		node->env = world;
		node->on_event = on_event;
		node->on_cq_event = on_cq_event;
		if (world->srq_pool[i].srq)
			for (uint32_t k = 0; k < world->srq_pool[i].depth; k++)
				vb_workload_recv_later(&world->srq_pool[i], k);
	}
	start_mischief(world);
	for (uint32_t i = 0; i < 2 * world->conn_count; i++) {
		struct vb_end *end = &world->conn[i / 2].end[i % 2];

		to_init(end);
		vb_sim_at(&world->net.sim,
			  vb_rng_chance(rng, 200000) ? vb_rng_between(rng, 0, 5000000) : 0, to_rtr,
			  end, 0, NULL);
		if (vb_rng_chance(rng, 100000))
			vb_sim_at(&world->net.sim, vb_rng_between(rng, 0, 20000000), drain, end, 0,
				  NULL);
		for (uint32_t k = 0; end->pool == &end->own_pool && k < end->pool->depth; k++)
			vb_workload_recv_later(end->pool, k);
	}
	for (uint32_t i = 0; i < world->cq_count; i++)
		vb_workload_poll_later(&world->poller[i], 0);
}
