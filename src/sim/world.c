/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * world.c - draws a world from its seed, runs it to the end and takes it down.
 *
 * The order of the draws is the meaning of a seed: a new choice goes to the end of its function.
 */
#include "sim/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/psn.h"
#include "core/xrc.h"

#define ARENA_BYTES (48u << 20)
#define SCRATCH_BYTES (1u << 20)
#define SLOT_BUDGET (96u << 10) /* bytes of one queue's buffers, so that a seed stays small */
#define REGION_UC_BYTES (96u << 10)
#define EVENTS_MAX 4000000u
#define QUIET_NS                                                                                   \
	100000000000u /* after faults stop: 100 s of virtual time must do for everything           \
		       */
#define GIVE_UP_NS 6000000000u
#define GRH 40u

static struct vb_rng *rng_of(struct vb_world *world)
{
	return &world->net.sim.rng;
}

static uint32_t pick(struct vb_rng *rng, const uint32_t *from, uint32_t count)
{
	return from[vb_rng_below(rng, count)];
}

const char *vb_mischief_name(enum vb_mischief mischief)
{
	static const char *const names[VB_MISCHIEF_COUNT] = {
		"none",	    "rkey",	  "range",	  "lkey",	 "alignment",
		"too long", "no receive", "set to error", "node killed",
	};

	return names[mischief];
}

struct vb_world *vb_world_create(void)
{
	struct vb_world *world = calloc(1, sizeof(*world));

	VB_ASSERT(world);
	world->arena = aligned_alloc(4096, ARENA_BYTES);
	world->scratch = malloc(SCRATCH_BYTES);
	world->scratch2 = malloc(SCRATCH_BYTES);
	VB_ASSERT(world->arena && world->scratch && world->scratch2);
	return world;
}

void vb_world_destroy(struct vb_world *world)
{
	if (!world)
		return;
	free(world->arena);
	free(world->scratch);
	free(world->scratch2);
	free(world);
}

static void *take(struct vb_world *world, size_t bytes)
{
	void *at = world->arena + world->arena_used;

	world->arena_used += (bytes + 63) & ~(size_t)63;
	VB_ASSERT(world->arena_used <= ARENA_BYTES);
	return at;
}

/* --- nodes and links --------------------------------------------------------------------- */

static struct vb_link_faults draw_faults(struct vb_rng *rng, bool harsh)
{
	struct vb_link_faults faults = {.reorder_ns = vb_rng_between(rng, 100, 60000)};
	uint32_t most = harsh ? 200000 : 20000;

	if (vb_rng_chance(rng, 700000))
		faults.loss = vb_rng_below(rng, most);
	if (vb_rng_chance(rng, 400000))
		faults.duplicate = vb_rng_below(rng, 4 * most);
	if (vb_rng_chance(rng, 500000))
		faults.reorder = vb_rng_below(rng, 4 * most);
	if (vb_rng_chance(rng, 300000))
		faults.bit_error = vb_rng_below(rng, most / 2);
	return faults;
}

static void draw_link(struct vb_world *world, struct vb_link *link)
{
	static const uint32_t mbits[] = {0, 100000, 10000, 10000, 1000};
	struct vb_rng *rng = rng_of(world);

	link->rate = pick(rng, mbits, VB_ARRAY_SIZE(mbits)) * 1000000ull;
	link->delay_ns = vb_rng_between(rng, 0, vb_rng_chance(rng, 200000) ? 100000 : 8000);
	if (world->lossless)
		return;
	link->faults = draw_faults(rng, world->harsh);
	link->faulty = true;
	if (world->harsh && vb_rng_chance(rng, 300000))
		link->queue_ns = vb_rng_between(rng, 2000, 200000);
}

static void draw_way(struct vb_world *world, struct vb_way *way)
{
	static const uint32_t segments[] = {256, 512, 1200, 4096, 8192, 16384};
	struct vb_rng *rng = rng_of(world);

	way->segment_max = VB_MAX_PATH_MTU;
	way->window = vb_rng_chance(rng, 500000) ? (uint32_t)vb_rng_between(rng, 4096, 65536) : 0;
	way->train = way->window / 2;
	way->own_segment = vb_rng_chance(rng, 200000);
	if (way->own_segment)
		way->segment_max = pick(rng, segments, VB_ARRAY_SIZE(segments));
	way->direct = vb_rng_chance(rng, 300000);
}

static void draw_node(struct vb_world *world, struct vb_node *node)
{
	struct vb_rng *rng = rng_of(world);

	node->run_delay_ns =
		vb_rng_chance(rng, 300000)
			? 0
			: vb_rng_between(rng, 1, vb_rng_chance(rng, 100000) ? 100000 : 4000);
	node->again_ppm = vb_rng_chance(rng, 300000) ? vb_rng_below(rng, 200000) : 0;
	node->refuse_ppm = vb_rng_chance(rng, 500000) ? vb_rng_below(rng, VB_MILLION) : 0;
	node->forge_ppm = vb_rng_chance(rng, 200000) ? vb_rng_below(rng, 100000) : 0;
}

static void draw_net(struct vb_world *world, uint64_t seed, bool trace)
{
	struct vb_nic_config config = {0};
	struct vb_rng early;
	uint32_t nodes;
	bool ipv6;

	vb_rng_seed(&early, ~seed);
	nodes = 1 + (vb_rng_chance(&early, 900000) ? 1 : 0) +
		(vb_rng_chance(&early, 300000) ? 1 : 0);
	ipv6 = vb_rng_chance(&early, 300000);
	config.equal_keys = vb_rng_chance(&early, 100000);
	config.ack_timeout_min_ns = vb_rng_chance(&early, 200000) ? 20000000 : 0;
	vb_net_init(&world->net, seed, nodes, ipv6, &config);
	world->net.sim.trace = trace;
	world->lossless = vb_rng_chance(rng_of(world), 200000);
	world->harsh = !world->lossless && vb_rng_chance(rng_of(world), 250000);
	world->faults_until_ns = vb_rng_between(rng_of(world), 0, 300000000);
	world->limit_ns = world->faults_until_ns + QUIET_NS;
	for (uint32_t i = 0; i < nodes; i++) {
		draw_node(world, &world->net.nodes[i]);
		for (uint32_t k = 0; k < nodes; k++)
			draw_link(world, &world->net.links[i][k]);
		for (uint32_t k = i; k < nodes; k++)
			draw_way(world, vb_net_way(&world->net, i, k));
	}
}

/* --- connections: what they are like ----------------------------------------------------- */

static void draw_weights(struct vb_rng *rng, struct vb_end *end)
{
	for (uint32_t i = 0; i < VB_ARRAY_SIZE(end->weight); i++)
		end->weight[i] = vb_rng_chance(rng, 300000) ? 0 : 1 + vb_rng_below(rng, 10);
	if (!vb_conn_is_reliable(end->conn)) {
		end->weight[VB_WR_RDMA_READ] = 0;
		end->weight[VB_WR_ATOMIC_CMP_AND_SWP] = end->weight[VB_WR_ATOMIC_FETCH_AND_ADD] = 0;
	}
	if (end->conn->type == VB_QPT_UD)
		end->weight[VB_WR_RDMA_WRITE] = end->weight[VB_WR_RDMA_WRITE_WITH_IMM] = 0;
	end->weight[VB_WR_SEND]++; /* so that something is left */
}

static uint32_t draw_depth(struct vb_rng *rng, uint32_t slot_bytes)
{
	uint32_t most = VB_MAX(2u, VB_MIN(32u, SLOT_BUDGET / slot_bytes));

	return (uint32_t)vb_rng_between(rng, 1, most);
}

static void draw_end(struct vb_world *world, struct vb_conn *conn, struct vb_end *end)
{
	static const uint64_t gaps[] = {0, 1000, 20000, 500000};
	struct vb_rng *rng = rng_of(world);

	end->world = world;
	end->conn = conn;
	end->sges = (uint32_t)vb_rng_between(rng, 1, VB_END_SGES);
	end->slot_bytes = conn->max_length + 64 + (VB_END_SGES + 1) * 16;
	end->depth = draw_depth(rng, end->slot_bytes);
	end->inline_max = vb_rng_chance(rng, 500000) ? vb_rng_below(rng, 513) : 0;
	end->sig_all = vb_rng_chance(rng, 300000);
	end->unsignalled_ppm = vb_rng_chance(rng, 500000) ? vb_rng_below(rng, 950000) : 0;
	end->gap_ns = gaps[vb_rng_below(rng, VB_ARRAY_SIZE(gaps))];
	end->op_count = vb_rng_chance(rng, 150000) ? 0 : (uint32_t)vb_rng_between(rng, 1, 60);
	draw_weights(rng, end);
	end->psn = vb_rng_chance(rng, 500000) ? vb_psn_add(0, -vb_rng_below(rng, 40))
					      : (uint32_t)vb_rng_next(rng) & VB_PSN_MASK;
	end->rnr_timer = vb_rng_chance(rng, 20000) ? 0 : (uint32_t)vb_rng_between(rng, 1, 16);
	end->timeout = (uint32_t)vb_rng_between(rng, 12, 15);
	end->retry_cnt = 7;
	end->rnr_retry = 7;
	end->rd_atomic = (uint32_t)vb_rng_between(rng, 1, VB_MAX_RD_ATOMIC);
	end->region_slot_bytes = (conn->max_length + 64 + 7) & ~7u;
	end->region_bytes = conn->type == VB_QPT_UC
				    ? REGION_UC_BYTES
				    : VB_REGION_WORDS * 8 +
					      VB_REGION_SLOTS * end->region_slot_bytes +
					      VB_REGION_GUARD;
}

static void draw_conn(struct vb_world *world, uint32_t index)
{
	static const enum vb_qp_type types[] = {VB_QPT_RC, VB_QPT_RC, VB_QPT_RC,
						VB_QPT_UC, VB_QPT_UD, VB_QPT_XRC_SEND};
	struct vb_conn *conn = &world->conn[index];
	struct vb_rng *rng = rng_of(world);
	uint32_t a = vb_rng_below(rng, world->net.node_count), b;
	const struct vb_way *way;

	b = world->net.node_count > 1 && !vb_rng_chance(rng, 100000)
		    ? (a + 1 + vb_rng_below(rng, world->net.node_count - 1)) % world->net.node_count
		    : a;
	conn->index = index;
	conn->type = types[vb_rng_below(rng, VB_ARRAY_SIZE(types))];
	way = vb_net_way(&world->net, a, b);
	conn->path_mtu = (uint32_t)vb_rng_between(rng, VB_MTU_256, VB_MTU_4096);
	if (!way->own_segment)
		while (128u << conn->path_mtu > way->segment_max)
			conn->path_mtu--;
	conn->mtu = way->own_segment ? way->segment_max : 128u << conn->path_mtu;
	conn->max_length = conn->mtu * (uint32_t)vb_rng_between(rng, 1, 5) + 3;
	if (conn->max_length > 8192 && !vb_rng_chance(rng, 200000))
		conn->max_length = VB_MAX(conn->mtu + 3, 8192u);
	if (conn->type == VB_QPT_UD) {
		conn->mtu = VB_MAX_PATH_MTU;
		while (conn->mtu > way->segment_max)
			conn->mtu /= 2;
		conn->max_length = (uint32_t)vb_rng_between(rng, 8, conn->mtu);
	}
	for (uint32_t i = 0; i < 2; i++) {
		struct vb_end *end = &conn->end[i];

		draw_end(world, conn, end);
		end->index = 2 * index + i;
		end->node = &world->net.nodes[i ? b : a];
		end->peer = &conn->end[!i];
		if (i && conn->type == VB_QPT_XRC_SEND)
			end->op_count = 0; /* the target's half requests nothing */
	}
}

static void draw_mischief(struct vb_world *world)
{
	struct vb_rng *rng = rng_of(world);
	struct vb_conn *conn = &world->conn[vb_rng_below(rng, world->conn_count)];
	struct vb_end *end = &conn->end[vb_rng_below(rng, 2)];

	if (!vb_conn_is_reliable(conn) || !end->op_count || !vb_rng_chance(rng, 300000))
		return;
	world->mischief =
		(enum vb_mischief)vb_rng_between(rng, VB_MISCHIEF_RKEY, VB_MISCHIEF_COUNT - 1);
	if (world->mischief == VB_MISCHIEF_KILL && end->node == end->peer->node)
		world->mischief = VB_MISCHIEF_SET_ERROR;
	world->victim = end;
	world->mischief_op = vb_rng_below(rng, end->op_count);
	if (world->mischief == VB_MISCHIEF_NO_RECEIVE)
		end->rnr_retry = vb_rng_below(rng, 4);
}

/* --- objects ----------------------------------------------------------------------------- */

static struct vb_mr *register_memory(struct vb_world *world, struct vb_node *node, uint8_t *at,
				     uint64_t bytes, uint32_t access)
{
	uint64_t iova = vb_rng_next(rng_of(world)) & 0x7ffffffffff8u;
	struct vb_mr *mr = vb_mr_create(world->pd[node->index], at, bytes, iova, access);

	VB_ASSERT(mr);
	return mr;
}

static void make_pool(struct vb_world *world, struct vb_pool *pool, struct vb_node *node,
		      uint32_t length)
{
	struct vb_rng *rng = rng_of(world);

	pool->world = world;
	pool->node = node;
	pool->length = length;
	pool->slot_bytes = length + (VB_END_SGES + 1) * 16;
	pool->sges = (uint32_t)vb_rng_between(rng, 1, VB_END_SGES);
	pool->depth = draw_depth(rng, pool->slot_bytes);
	pool->late_ns =
		vb_rng_chance(rng, 400000)
			? 0
			: vb_rng_between(rng, 1, vb_rng_chance(rng, 300000) ? 5000000 : 50000);
	pool->left = UINT32_MAX;
	pool->memory = take(world, pool->depth * (size_t)pool->slot_bytes);
	for (uint32_t i = 0; i < 2; i++)
		pool->mr[i] = register_memory(world, node, pool->memory,
					      pool->depth * (uint64_t)pool->slot_bytes,
					      VB_ACCESS_LOCAL_WRITE);
}

static struct vb_pool *shared_pool(struct vb_world *world, struct vb_node *node)
{
	struct vb_pool *pool = &world->srq_pool[node->index];
	uint32_t length = GRH;

	if (pool->srq)
		return pool;
	for (uint32_t i = 0; i < world->conn_count; i++)
		length = VB_MAX(length, world->conn[i].max_length + GRH);
	make_pool(world, pool, node, length);
	pool->srq = vb_srq_create(world->pd[node->index], pool->depth, pool->sges, 0, pool);
	VB_ASSERT(pool->srq);
	return pool;
}

static void make_end_memory(struct vb_world *world, struct vb_end *end)
{
	struct vb_rng *rng = rng_of(world);
	uint64_t bytes = end->depth * (uint64_t)end->slot_bytes;

	end->ops = take(world, sizeof(*end->ops) * (end->op_count + 1));
	memset(end->ops, 0, sizeof(*end->ops) * (end->op_count + 1));
	end->memory = take(world, bytes);
	end->snapshots = take(world, bytes);
	for (uint32_t i = 0; i < 2; i++)
		end->mr[i] = register_memory(world, end->node, end->memory, bytes,
					     VB_ACCESS_LOCAL_WRITE);
	end->region = take(world, end->region_bytes);
	end->shadow = take(world, end->region_bytes);
	end->first = take(world, end->region_bytes);
	memset(end->first, 0x40 + (int)end->index, end->region_bytes);
	for (uint32_t i = 0; i < VB_REGION_WORDS; i++) {
		uint64_t word = vb_rng_next(rng);

		memcpy(end->first + 8 * i, &word, 8);
	}
	memcpy(end->region, end->first, end->region_bytes);
	memcpy(end->shadow, end->first, end->region_bytes);
	end->region_mr = register_memory(world, end->node, end->region, end->region_bytes,
					 VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL);
	end->iova = end->region_mr->iova;
}

static struct vb_poller *make_cq(struct vb_world *world, struct vb_node *node)
{
	struct vb_rng *rng = rng_of(world);
	struct vb_poller *poller = &world->poller[world->cq_count++];

	poller->world = world;
	poller->node = node;
	poller->by_event = vb_rng_chance(rng, 300000);
	poller->patience_ns = vb_rng_between(rng, 100, 30000);
	poller->interval_ns = poller->patience_ns;
	poller->cq = vb_cq_create(node->nic, VB_WORLD_CQES, poller);
	VB_ASSERT(poller->cq);
	return poller;
}

/* make_xrc_queue - the target's half receives from an SRQ of its own, in the node's one domain; the
 * initiator's half receives nothing. */
static void make_xrc_queue(struct vb_world *world, struct vb_end *end, struct vb_poller *recv_cq)
{
	struct vb_xrcd **xrcd = &world->xrcd[end->node->index];
	struct vb_pool *pool = &end->own_pool;

	end->pool = pool;
	make_pool(world, pool, end->node, end->conn->max_length);
	if (end == &end->conn->end[0]) {
		pool->end = end;
		pool->left = 0;
		return;
	}
	if (!*xrcd)
		*xrcd = vb_xrcd_create(end->node->nic);
	VB_ASSERT(*xrcd);
	pool->srq = vb_xrc_srq_create(world->pd[end->node->index], *xrcd, recv_cq->cq, pool->depth,
				      pool->sges, pool);
	VB_ASSERT(pool->srq);
}

static struct vb_qp *make_xrc_target(struct vb_world *world, struct vb_end *end)
{
	struct vb_qp_init init = {
		.type = VB_QPT_XRC_RECV,
		.xrcd = world->xrcd[end->node->index],
		.user = end,
	};

	return vb_qp_create(NULL, &init);
}

static void make_qp(struct vb_world *world, struct vb_end *end, struct vb_poller *send_cq,
		    struct vb_poller *recv_cq)
{
	struct vb_rng *rng = rng_of(world);
	struct vb_node *node = end->node;
	bool xrc = end->conn->type == VB_QPT_XRC_SEND;
	bool shared = end->conn->type != VB_QPT_UC && !xrc && vb_rng_chance(rng, 300000);
	struct vb_qp_init init = {
		.type = end->conn->type,
		.send_cq = send_cq->cq,
		.recv_cq = recv_cq->cq,
		.sq_sig_all = end->sig_all,
		.user = end,
	};

	/* These two need to know whose receive requests are used. */
	if (world->victim && end == world->victim->peer &&
	    (world->mischief == VB_MISCHIEF_TOO_LONG || world->mischief == VB_MISCHIEF_NO_RECEIVE))
		shared = false;
	if (xrc) {
		make_xrc_queue(world, end, recv_cq);
	} else if (shared) {
		end->pool = shared_pool(world, node);
		init.srq = end->pool->srq;
	} else {
		end->pool = &end->own_pool;
		make_pool(world, end->pool, node,
			  end->conn->max_length + (end->conn->type == VB_QPT_UD ? GRH : 0));
		end->pool->end = end;
	}
	init.cap = (struct vb_qp_cap){
		.max_send_wr = end->depth,
		.max_recv_wr = end->pool->depth,
		.max_send_sge = end->sges,
		.max_recv_sge = end->pool->sges,
		.max_inline_data = end->inline_max,
	};
	end->qp = xrc && end->pool->srq ? make_xrc_target(world, end)
					: vb_qp_create(world->pd[node->index], &init);
	VB_ASSERT(end->qp);
	VB_ASSERT(init.cap.max_send_wr >= end->depth && init.cap.max_send_sge >= end->sges);
	vb_node_watch(node, end->qp);
}

static void make_objects(struct vb_world *world)
{
	struct vb_poller *shared[VB_NET_NODES] = {0};

	for (uint32_t i = 0; i < world->net.node_count; i++) {
		struct vb_node *node = &world->net.nodes[i];

		world->pd[i] = vb_pd_create(node->nic);
		VB_ASSERT(world->pd[i]);
		world->counter[i] = take(world, sizeof(uint64_t));
		*world->counter[i] = 0;
		world->counter_mr[i] =
			register_memory(world, node, (uint8_t *)world->counter[i], 8,
					VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ATOMIC);
		world->counter_iova[i] = world->counter_mr[i]->iova;
		if (vb_rng_chance(rng_of(world), 500000))
			shared[i] = make_cq(world, node);
	}
	for (uint32_t i = 0; i < 2 * world->conn_count; i++) {
		struct vb_end *end = &world->conn[i / 2].end[i % 2];
		struct vb_poller *send_cq = shared[end->node->index], *recv_cq = send_cq;

		if (!send_cq) {
			send_cq = make_cq(world, end->node);
			recv_cq = make_cq(world, end->node);
		}
		make_qp(world, end, send_cq, recv_cq);
		make_end_memory(world, end);
	}
}

static void forget_objects(struct vb_world *world)
{
	for (uint32_t i = 0; i < 2 * world->conn_count; i++) {
		struct vb_end *end = &world->conn[i / 2].end[i % 2];

		vb_node_unwatch(end->node, end->qp);
		vb_qp_destroy(end->qp);
		VB_ASSERT(vb_srq_destroy(end->own_pool.srq) == 0);
		vb_ah_put(end->ah);
		vb_mr_destroy(end->region_mr);
		for (uint32_t k = 0; k < 2; k++) {
			vb_mr_destroy(end->mr[k]);
			vb_mr_destroy(end->own_pool.mr[k]);
		}
	}
	for (uint32_t i = 0; i < world->cq_count; i++)
		VB_ASSERT(vb_cq_destroy(world->poller[i].cq) == 0);
	for (uint32_t i = 0; i < world->net.node_count; i++) {
		if (world->srq_pool[i].srq)
			VB_ASSERT(vb_srq_destroy(world->srq_pool[i].srq) == 0);
		for (uint32_t k = 0; k < 2; k++)
			vb_mr_destroy(world->srq_pool[i].mr[k]);
		vb_mr_destroy(world->counter_mr[i]);
		VB_ASSERT(vb_xrcd_destroy(world->xrcd[i]) == 0);
		VB_ASSERT(vb_pd_destroy(world->pd[i]) == 0);
	}
}

struct vb_end *vb_world_find_end(struct vb_world *world, const struct vb_node *node, uint32_t qpn)
{
	for (uint32_t i = 0; i < 2 * world->conn_count; i++) {
		struct vb_end *end = &world->conn[i / 2].end[i % 2];

		if (end->node == node && end->qp->qpn == qpn)
			return end;
	}
	return NULL;
}

/* --- broken connections ------------------------------------------------------------------ */

static void set_to_error(struct vb_end *end)
{
	const struct vb_qp_attr attr = {.qp_state = VB_QPS_ERR};

	if (end->node->dead)
		return;
	VB_ASSERT(vb_qp_modify(end->qp, &attr, VB_QP_STATE) == 0);
	vb_node_kick(end->node);
}

static void tear_down(void *object, uint64_t word, void *data)
{
	struct vb_conn *conn = object;

	vb_sim_say(&conn->end[0].world->net.sim, "connection %u is torn down", conn->index);
	conn->torn_down = true;
	for (uint32_t i = 0; i < 2; i++)
		set_to_error(&conn->end[i]);
}

void vb_world_give_up(struct vb_conn *conn)
{
	struct vb_sim *sim = &conn->end[0].world->net.sim;

	if (conn->broken)
		return;
	conn->broken = true;
	vb_sim_at(sim, sim->now_ns + GIVE_UP_NS, tear_down, conn, 0, NULL);
}

/* --- the run ----------------------------------------------------------------------------- */

static void faults_stop(void *object, uint64_t word, void *data)
{
	struct vb_world *world = object;

	vb_sim_say(&world->net.sim, "faults stop");
	vb_net_set_faulty(&world->net, false);
	for (uint32_t i = 0; i < world->net.node_count; i++)
		for (uint32_t k = 0; k < world->net.node_count; k++)
			world->net.links[i][k].queue_ns = 0;
}

static void run(struct vb_world *world)
{
	struct vb_sim *sim = &world->net.sim;

	while (!vb_check_is_done(world)) {
		if (!vb_sim_step(sim)) {
			if (!sim->failed)
				vb_check_stuck(world);
			return;
		}
		if (sim->now_ns > world->limit_ns || sim->events > EVENTS_MAX) {
			vb_check_stuck(world);
			return;
		}
	}
	vb_check_end(world);
	for (uint32_t i = 0; i < 2 * world->conn_count && !sim->failed; i++)
		set_to_error(&world->conn[i / 2].end[i % 2]);
	for (uint32_t i = 0; i < world->cq_count && !sim->failed; i++)
		while (vb_cq_count(world->poller[i].cq) && !world->poller[i].node->dead &&
		       !sim->failed) {
			struct vb_cqe cqe;

			VB_ASSERT(vb_cq_poll(world->poller[i].cq, &cqe, 1) == 1);
			vb_check_completion(world, world->poller[i].node, &cqe);
		}
	if (!sim->failed)
		vb_check_flushed(world);
}

static void add_up(struct vb_world *world, struct vb_world_stats *to)
{
	const struct vb_net *net = &world->net;

	to->seeds++;
	to->events += net->sim.events;
	to->virtual_ns += net->sim.now_ns;
	to->ops += world->stats.ops;
	to->messages += world->stats.messages;
	to->bytes += world->stats.bytes;
	to->broken += world->stats.broken;
	to->retry_exceeded += world->stats.retry_exceeded;
	to->mischief[world->mischief]++;
	for (uint32_t i = 0; i < net->node_count; i++) {
		const struct vb_node *node = &net->nodes[i];
		const struct vb_counters *c = &node->nic->counters;

		to->retries += c->retries;
		to->timeouts += c->timeouts;
		to->naks += c->tx_naks;
		to->rnr_naks += c->tx_rnr_naks;
		to->duplicates += c->rx_duplicate;
		to->direct += node->count.direct;
		to->again += node->count.again;
		to->forged += node->count.forged;
		for (uint32_t k = 0; k < net->node_count; k++) {
			const struct vb_link *link = &net->links[i][k];

			to->packets += link->count.sent;
			to->lost += link->count.lost;
			to->duplicated += link->count.duplicated;
			to->reordered += link->count.reordered;
			to->corrupted += link->count.corrupted;
			to->overflowed += link->count.overflowed;
		}
	}
}

/* What a run leaves nothing of: everything but the memory. */
static void clear(struct vb_world *world)
{
	uint8_t *arena = world->arena, *scratch = world->scratch, *scratch2 = world->scratch2;

	memset(world, 0, sizeof(*world));
	world->arena = arena;
	world->scratch = scratch;
	world->scratch2 = scratch2;
}

bool vb_world_run(struct vb_world *world, uint64_t seed, bool trace, uint64_t *hash,
		  struct vb_world_stats *stats)
{
	clear(world);
	draw_net(world, seed, trace);
	world->conn_count = 1 + vb_rng_below(rng_of(world), VB_WORLD_CONNS);
	for (uint32_t i = 0; i < world->conn_count; i++)
		draw_conn(world, i);
	draw_mischief(world);
	make_objects(world);
	vb_workload_start(world);
	vb_sim_at(&world->net.sim, world->faults_until_ns, faults_stop, world, 0, NULL);
	run(world);
	*hash = world->net.sim.hash;
	add_up(world, stats);
	forget_objects(world);
	vb_net_finish(&world->net);
	return !world->net.sim.failed;
}
