/* SPDX-License-Identifier: BSD-2-Clause */
/* node.c - a NIC and its surroundings in virtual time. */
#include "sim/node.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "wire/icrc.h"

enum mix { MIX_TX = 1, MIX_RX, MIX_RUN, MIX_EVENT, MIX_CQ_EVENT, MIX_DIRECT };

static void wake_at(struct vb_node *node, uint64_t at_ns);

static void check(const struct vb_node *node)
{
	for (uint32_t i = 0; i < node->qp_count; i++)
		vb_qp_check(node->qps[i]);
}

/* --- packets ----------------------------------------------------------------------------- */

static uint32_t icrc_of(const struct vb_sim_packet *packet)
{
	const struct vb_icrc_ip ip = {
		.src = packet->src,
		.dst = packet->dst,
		.src_port = packet->src_port,
		.dst_port = VB_ROCE_PORT,
		.dont_fragment = true,
	};

	return vb_icrc_add_bth(vb_icrc_begin(&ip, packet->size), packet->bytes,
			       packet->size - VB_ICRC_BYTES);
}

static void say_packet(const struct vb_node *node, const char *what, const uint8_t *bytes,
		       uint32_t size)
{
	struct vb_headers h;
	int used;

	if (!node->net->sim.trace)
		return;
	used = vb_headers_decode(&h, bytes, size - VB_ICRC_BYTES);
	if (used < 0) {
		vb_sim_say(&node->net->sim, "%c %s undecodable, %u bytes", 'A' + node->index, what,
			   size);
		return;
	}
	vb_sim_say(&node->net->sim,
		   "%c %s %-24s qpn %06x psn %06x %4d B%s%s syn %02x msn %u len %u va %" PRIx64,
		   'A' + node->index, what, vb_opcode_table[h.opcode].name, h.qpn, h.psn,
		   (int)size - VB_ICRC_BYTES - used - h.pad, h.ack_req ? " A" : "",
		   h.solicited ? " S" : "", h.aeth.syndrome, h.aeth.msn, h.reth.length,
		   h.reth.va ? h.reth.va : h.atomic.va);
}

static void unblock(void *object, uint64_t word, void *data)
{
	struct vb_node *node = object;

	node->unblock_waits = false;
	if (node->dead)
		return;
	vb_sim_say(&node->net->sim, "%c has room again", 'A' + node->index);
	vb_nic_unblock(node->nic);
	vb_node_kick(node);
}

static int refuse_for_now(struct vb_node *node)
{
	struct vb_sim *sim = &node->net->sim;

	node->count.again++;
	vb_sim_say(sim, "%c has no room", 'A' + node->index);
	if (!node->unblock_waits) {
		node->unblock_waits = true;
		vb_sim_at(sim, sim->now_ns + vb_rng_between(&sim->rng, 1, 20000), unblock, node, 0,
			  NULL);
	}
	return -EAGAIN;
}

static struct vb_sim_packet *encode(const struct vb_path *path, const struct vb_tx *tx)
{
	uint32_t pad = tx->headers->pad, at;
	uint32_t room = VB_HEADERS_MAX + tx->payload_bytes + pad + VB_ICRC_BYTES;
	struct vb_sim_packet *packet = malloc(sizeof(*packet) + room);
	int used;

	VB_ASSERT(packet);
	*packet = (struct vb_sim_packet){.src = path->sgid,
					 .dst = path->dgid,
					 .src_port = (uint16_t)path->word[0],
					 .hop_limit = 64};
	used = vb_headers_encode(tx->headers, packet->bytes, VB_HEADERS_MAX);
	VB_ASSERT(used > 0);
	at = (uint32_t)used;
	for (int i = 0; i < tx->payload_parts; i++) {
		VB_ASSERT(at - (uint32_t)used + tx->payload[i].iov_len <= tx->payload_bytes);
		if (tx->payload[i].iov_len)
			memcpy(packet->bytes + at, tx->payload[i].iov_base, tx->payload[i].iov_len);
		at += (uint32_t)tx->payload[i].iov_len;
	}
	VB_ASSERT(at - (uint32_t)used == tx->payload_bytes);
	VB_ASSERT((tx->payload_bytes + pad) % 4 == 0 && pad < 4);
	memset(packet->bytes + at, 0, pad);
	packet->size = at + pad + VB_ICRC_BYTES;
	vb_icrc_store(packet->bytes + at + pad, icrc_of(packet));
	return packet;
}

/* Somebody who saw the packet sends one like it from elsewhere: whole, with a right ICRC and some
 * bytes of its headers changed. Whatever it says, it must change nothing. */
static void forge(struct vb_node *node, const struct vb_path *path, const struct vb_tx *tx)
{
	struct vb_rng *rng = &node->net->sim.rng;
	struct vb_sim_packet *packet = encode(path, tx);
	uint32_t changes = vb_rng_below(rng, 4);

	packet->src.s6_addr[15] = 0x77;
	while (changes--)
		packet->bytes[vb_rng_below(rng, VB_MIN(packet->size - VB_ICRC_BYTES, 28u))] =
			(uint8_t)vb_rng_next(rng);
	vb_icrc_store(packet->bytes + packet->size - VB_ICRC_BYTES, icrc_of(packet));
	node->count.forged++;
	say_packet(node, "forged", packet->bytes, packet->size);
	vb_link_send(path->carrier, packet);
}

static int tx(void *env, const struct vb_path *path, const struct vb_tx *tx)
{
	struct vb_node *node = env;
	struct vb_sim *sim = &node->net->sim;
	struct vb_sim_packet *packet;

	VB_ASSERT(!node->dead);
	if (vb_rng_chance(&sim->rng, node->again_ppm))
		return refuse_for_now(node);
	if (node->on_tx)
		node->on_tx(node->env, node, path, tx);
	packet = encode(path, tx);
	say_packet(node, "->", packet->bytes, packet->size);
	vb_sim_mix(sim, MIX_TX, node->index << 24 | packet->size,
		   vb_icrc_load(packet->bytes + packet->size - VB_ICRC_BYTES));
	vb_link_send(path->carrier, packet);
	if (vb_opcode_transport(tx->headers->opcode) != VB_TRANSPORT_UD &&
	    vb_rng_chance(&sim->rng, node->forge_ppm))
		forge(node, path, tx);
	return 0;
}

void vb_node_deliver(struct vb_node *node, const struct vb_sim_packet *packet)
{
	struct vb_sim *sim = &node->net->sim;
	uint32_t icrc = vb_icrc_load(packet->bytes + packet->size - VB_ICRC_BYTES);
	struct vb_rx rx = {
		.data = packet->bytes,
		.size = packet->size - VB_ICRC_BYTES,
		.src = packet->src,
		.dst = packet->dst,
		.traffic_class = packet->traffic_class,
		.hop_limit = packet->hop_limit,
	};

	vb_sim_mix(sim, MIX_RX, node->index << 24 | packet->size, icrc);
	if (node->dead)
		return;
	if (icrc != icrc_of(packet)) {
		node->count.bad_icrc++;
		vb_sim_say(sim, "%c <- bad ICRC, dropped", 'A' + node->index);
		return;
	}
	say_packet(node, "<-", packet->bytes, packet->size);
	vb_nic_rx(node->nic, &rx, sim->now_ns);
	vb_node_kick(node);
}

/* --- the other operations of a NIC ------------------------------------------------------- */

static bool peer_takes_direct(const struct vb_qp *qp, const struct vb_qp *peer, uint32_t right)
{
	return peer && peer->type == qp->type && peer->attr.dest_qpn == qp->qpn &&
	       (peer->state == VB_QPS_RTS || peer->state == VB_QPS_RTR ||
		peer->state == VB_QPS_SQD) &&
	       (peer->attr.access_flags & right);
}

static ssize_t direct(void *env, const struct vb_qp *qp, enum vb_direction direction, uint32_t rkey,
		      uint64_t va, const struct iovec *local, int parts, uint32_t length)
{
	struct vb_node *node = env, *peer = qp->path.peer;
	struct vb_sim *sim = &node->net->sim;
	uint32_t right =
		direction == VB_DIRECT_WRITE ? VB_ACCESS_REMOTE_WRITE : VB_ACCESS_REMOTE_READ;
	struct vb_qp *target = vb_nic_find_qp(peer->nic, qp->attr.dest_qpn);
	struct vb_reason reason = {0};
	uint32_t moved = 0, limit;
	uint8_t *remote;

	if (peer->dead || vb_rng_chance(&sim->rng, node->refuse_ppm) ||
	    !peer_takes_direct(qp, target, right))
		return -EACCES;
	remote = vb_mr_remote(peer->nic, target->pd, target->qpn, rkey, va, length, right, &reason);
	if (!remote)
		return -EFAULT;
	limit = vb_rng_chance(&sim->rng, 300000) ? 1 + vb_rng_below(&sim->rng, length) : length;
	for (int i = 0; i < parts && moved < limit; i++) {
		uint32_t n = VB_MIN((uint32_t)local[i].iov_len, limit - moved);

		if (direction == VB_DIRECT_WRITE)
			memcpy(remote + moved, local[i].iov_base, n);
		else
			memcpy(local[i].iov_base, remote + moved, n);
		moved += n;
	}
	node->nic->now_ns = sim->now_ns;
	node->count.direct++;
	vb_sim_say(sim, "%c direct %s qpn %06x va %" PRIx64 " %u of %u", 'A' + node->index,
		   direction == VB_DIRECT_WRITE ? "write" : "read", qp->qpn, va, moved, length);
	vb_sim_mix(sim, MIX_DIRECT, va, moved);
	return moved;
}

static int resolve(void *env, const struct vb_ah_attr *ah, struct vb_path *path)
{
	struct vb_node *node = env, *peer = NULL;
	const struct vb_way *way;

	for (uint32_t i = 0; i < node->net->node_count; i++)
		if (!memcmp(&node->net->nodes[i].gid, &ah->dgid, sizeof(ah->dgid)))
			peer = &node->net->nodes[i];
	if (!peer)
		return -ENETUNREACH;
	way = vb_net_way(node->net, node->index, peer->index);
	*path = (struct vb_path){
		.sgid = node->gid,
		.dgid = peer->gid,
		.segment_max = way->segment_max,
		.own_segment = way->own_segment,
		.window = way->window,
		.pace = way->window,
		.pace_late = way->window / 4,
		.train = way->train,
		.direct = way->direct,
		.carrier = &node->net->links[node->index][peer->index],
		.peer = peer,
		.word[0] = 0xc000 | (vb_rng_below(&node->net->sim.rng, 0x4000)),
	};
	node->paths++;
	return 0;
}

static void release(void *env, struct vb_path *path)
{
	struct vb_node *node = env;

	node->paths--;
	VB_ASSERT(node->paths >= 0);
}

static void event(void *env, const struct vb_event *event)
{
	struct vb_node *node = env;

	vb_sim_mix(&node->net->sim, MIX_EVENT, node->index, event->type);
	vb_sim_say(&node->net->sim, "%c event %d qpn %06x", 'A' + node->index, event->type,
		   event->qp ? event->qp->qpn : 0);
	if (node->on_event)
		node->on_event(node->env, node, event);
}

static void cq_event(void *env, struct vb_cq *cq)
{
	struct vb_node *node = env;

	vb_sim_mix(&node->net->sim, MIX_CQ_EVENT, node->index, 0);
	if (node->on_cq_event)
		node->on_cq_event(node->env, node, cq);
}

static uint32_t random32(void *env)
{
	struct vb_node *node = env;

	return (uint32_t)(vb_rng_next(&node->net->sim.rng) >> 32);
}

/* --- running ----------------------------------------------------------------------------- */

static void run(void *object, uint64_t word, void *data)
{
	struct vb_node *node = object;
	struct vb_sim *sim = &node->net->sim;
	uint64_t deadline;
	bool more;

	if (word != node->wake_ns || node->dead)
		return; /* an earlier or later wake-up took its place */
	node->wake_ns = VB_NEVER;
	more = vb_nic_run(node->nic, sim->now_ns);
	check(node);
	deadline = vb_nic_deadline(node->nic);
	vb_sim_mix(sim, MIX_RUN, node->index, more);
	if (more)
		wake_at(node, sim->now_ns + 1);
	else if (deadline <= sim->now_ns)
		vb_sim_fail(sim, "node %c: the deadline %" PRIu64 " has passed after the run",
			    'A' + node->index, deadline);
	else if (deadline != VB_NEVER)
		wake_at(node, deadline);
}

static void wake_at(struct vb_node *node, uint64_t at_ns)
{
	if (at_ns >= node->wake_ns)
		return;
	node->wake_ns = at_ns;
	vb_sim_at(&node->net->sim, at_ns, run, node, at_ns, NULL);
}

void vb_node_kick(struct vb_node *node)
{
	struct vb_sim *sim = &node->net->sim;

	if (node->dead)
		return;
	check(node);
	wake_at(node, sim->now_ns + vb_rng_between(&sim->rng, 0, node->run_delay_ns));
}

void vb_node_kill(struct vb_node *node)
{
	node->dead = true;
	vb_sim_say(&node->net->sim, "%c is killed", 'A' + node->index);
	for (uint32_t i = 0; i < node->net->node_count; i++) {
		node->net->links[node->index][i].cut = true;
		node->net->links[i][node->index].cut = true;
	}
}

void vb_node_watch(struct vb_node *node, struct vb_qp *qp)
{
	VB_ASSERT(node->qp_count < VB_NODE_QPS);
	node->qps[node->qp_count++] = qp;
}

void vb_node_unwatch(struct vb_node *node, struct vb_qp *qp)
{
	for (uint32_t i = 0; i < node->qp_count; i++)
		if (node->qps[i] == qp)
			node->qps[i] = node->qps[--node->qp_count];
}

/* --- the network ------------------------------------------------------------------------- */

static const struct vb_nic_ops ops = {
	.tx = tx,
	.direct = direct,
	.resolve = resolve,
	.release = release,
	.event = event,
	.cq_event = cq_event,
	.random = random32,
};

static struct in6_addr gid_of(uint32_t index, bool ipv6)
{
	struct in6_addr gid = {0};

	if (ipv6) {
		gid.s6_addr[0] = 0xfd;
		gid.s6_addr[7] = 1;
	} else {
		gid.s6_addr[10] = gid.s6_addr[11] = 0xff;
		gid.s6_addr[12] = 127;
	}
	gid.s6_addr[15] = (uint8_t)(index + 2);
	return gid;
}

void vb_net_init(struct vb_net *net, uint64_t seed, uint32_t node_count, bool ipv6,
		 const struct vb_nic_config *config)
{
	memset(net, 0, sizeof(*net));
	vb_sim_init(&net->sim, seed);
	net->node_count = node_count;
	for (uint32_t i = 0; i < node_count; i++) {
		struct vb_node *node = &net->nodes[i];
		struct vb_nic_config own = *config;

		own.qpn_base = (i + 1) << VB_MAX_QP_BITS; /* as if all were of one host */
		node->net = net;
		node->index = i;
		node->gid = gid_of(i, ipv6);
		node->wake_ns = VB_NEVER;
		node->nic = vb_nic_create(&ops, node, &own);
		VB_ASSERT(node->nic);
		for (uint32_t k = 0; k < node_count; k++) {
			net->links[i][k] = (struct vb_link){
				.sim = &net->sim,
				.from = node,
				.to = &net->nodes[k],
				.rate = 10000000000,
				.delay_ns = 5000,
			};
			net->ways[i][k].segment_max = VB_MAX_PATH_MTU;
		}
	}
}

void vb_net_finish(struct vb_net *net)
{
	vb_sim_finish(&net->sim);
	for (uint32_t i = 0; i < net->node_count; i++) {
		vb_nic_destroy(net->nodes[i].nic);
		VB_ASSERT(net->nodes[i].paths == 0);
	}
}

void vb_net_set_faulty(struct vb_net *net, bool faulty)
{
	for (uint32_t i = 0; i < net->node_count; i++)
		for (uint32_t k = 0; k < net->node_count; k++)
			net->links[i][k].faulty = faulty;
}

struct vb_way *vb_net_way(struct vb_net *net, uint32_t a, uint32_t b)
{
	return &net->ways[VB_MIN(a, b)][VB_MAX(a, b)];
}

uint32_t vb_net_in_flight(const struct vb_net *net)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < net->node_count; i++)
		for (uint32_t k = 0; k < net->node_count; k++)
			sum += net->links[i][k].in_flight;
	return sum;
}
