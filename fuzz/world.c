/* SPDX-License-Identifier: BSD-2-Clause */
/* world.c - see world.h. This file: the surroundings of the two NICs, and their objects. */
#include "world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "world_private.h"

#define GUARD_BYTE 0x5a
#define QKEY 0x11111111u
#define START_NS 1000000000u

static struct fuzz_world the_world;

static const struct in6_addr addresses[2] = {
	{.s6_addr = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 2}},
	{.s6_addr = {[0] = 0xfe, [1] = 0x80, [15] = 3}},
};

/* --- what the NICs ask of their surroundings --------------------------------------------- */

static void check_tx(const struct fuzz_side *side, const struct vb_path *path,
		     const struct vb_tx *tx)
{
	size_t sum = 0;

	VB_ASSERT(tx->payload_parts >= 0 && tx->payload_parts <= (int)VB_MAX_SGE);
	for (int i = 0; i < tx->payload_parts; i++)
		sum += tx->payload[i].iov_len;
	VB_ASSERT(sum == tx->payload_bytes);
	VB_ASSERT((tx->payload_bytes + tx->headers->pad) % 4 == 0);
	VB_ASSERT(tx->payload_bytes <= path->segment_max);
	VB_ASSERT(tx->payload_bytes == 0 ||
		  vb_opcode_table[tx->headers->opcode].flags & VB_HAS_PAYLOAD);
	VB_ASSERT(memcmp(&path->sgid, &addresses[side->index], 16) == 0);
}

static int on_tx(void *env, const struct vb_path *path, const struct vb_tx *tx)
{
	struct fuzz_side *side = env;
	struct fuzz_packet *packet;
	int bytes;

	check_tx(side, path, tx);
	if (side->out.count == FUZZ_LINK) {
		side->was_blocked = true;
		return -EAGAIN;
	}
	packet = &side->out.packets[side->out.order[side->out.count]];
	bytes = vb_headers_encode(tx->headers, packet->data, sizeof(packet->data));
	VB_ASSERT(bytes > 0);
	packet->size = (size_t)bytes;
	for (int i = 0; i < tx->payload_parts; i++) {
		memcpy(packet->data + packet->size, tx->payload[i].iov_base,
		       tx->payload[i].iov_len);
		packet->size += tx->payload[i].iov_len;
	}
	memset(packet->data + packet->size, 0, tx->headers->pad);
	packet->size += tx->headers->pad;
	side->out.count++;
	return 0;
}

/* Like a carrier on one host: as far as it likes, and only what the peer's region allows. */
static ssize_t on_direct(void *env, const struct vb_qp *qp, enum vb_direction direction,
			 uint32_t rkey, uint64_t va, const struct iovec *local, int parts,
			 uint32_t length)
{
	struct fuzz_side *side = env;
	struct fuzz_side *peer = fuzz_peer(side);
	bool write = direction == VB_DIRECT_WRITE;
	struct vb_reason reason;
	uint32_t piece = length, done = 0;
	uint8_t *remote;

	if (side->world->config.forgetful_direct && side->world->direct_calls++ % 3 == 2)
		return -ESRCH;
	if (side->world->config.forgetful_direct && length > 1000)
		piece = 1000;
	remote = vb_mr_remote(peer->nic, peer->pd, qp->attr.dest_qpn, rkey, va, piece,
			      write ? VB_ACCESS_REMOTE_WRITE : VB_ACCESS_REMOTE_READ, &reason);
	if (!remote || !peer->qp[FUZZ_RC] || qp->attr.dest_qpn != peer->qp[FUZZ_RC]->qpn)
		return -EFAULT;
	for (int i = 0; i < parts && done < piece; i++) {
		uint32_t n = VB_MIN((uint32_t)local[i].iov_len, piece - done);

		memmove(write ? remote + done : local[i].iov_base,
			write ? local[i].iov_base : remote + done, n);
		done += n;
	}
	VB_ASSERT(done == piece);
	return done;
}

static int on_resolve(void *env, const struct vb_ah_attr *ah, struct vb_path *path)
{
	struct fuzz_side *side = env;
	const struct fuzz_config *config = &side->world->config;

	if (memcmp(&ah->dgid, &addresses[!side->index], 16) != 0)
		return -ENETUNREACH;
	*path = (struct vb_path){
		.sgid = addresses[side->index],
		.dgid = ah->dgid,
		.segment_max = config->segment_max,
		.own_segment = config->own_segment,
		.window = config->window,
		.direct = config->direct,
	};
	side->paths++;
	return 0;
}

static void on_release(void *env, struct vb_path *path)
{
	struct fuzz_side *side = env;

	VB_ASSERT(side->paths > 0);
	side->paths--;
}

static void on_event(void *env, const struct vb_event *event)
{
	const struct fuzz_side *side = env;

	VB_ASSERT(!event->qp || event->qp->nic == side->nic);
	VB_ASSERT(!event->cq || event->cq == side->send_cq || event->cq == side->recv_cq);
	VB_ASSERT(!event->srq || event->srq == side->srq || event->srq == side->xrc_srq);
}

static void on_cq_event(void *env, struct vb_cq *cq)
{
	const struct fuzz_side *side = env;

	VB_ASSERT(cq == side->send_cq || cq == side->recv_cq);
	VB_ASSERT(vb_cq_count(cq) > 0);
}

static uint32_t on_random(void *env)
{
	struct fuzz_side *side = env;
	uint64_t *r = &side->world->random;

	*r = *r * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*r >> 32);
}

static const struct vb_nic_ops ops = {
	.tx = on_tx,
	.direct = on_direct,
	.resolve = on_resolve,
	.release = on_release,
	.event = on_event,
	.cq_event = on_cq_event,
	.random = on_random,
};

/* --- configuration ----------------------------------------------------------------------- */

static void draw_config(struct fuzz_config *c, struct vb_fuzz_input *in)
{
	static const uint32_t segments[] = {4096, 16384, 5000, 256};
	uint8_t bits = vb_fuzz_u8(in), segment = vb_fuzz_u8(in), sizes = vb_fuzz_u8(in);
	uint8_t acks = vb_fuzz_u8(in), atomics = vb_fuzz_u8(in), random = vb_fuzz_u8(in);
	uint32_t access = bits & 32 ? vb_fuzz_u8(in) & 0xf : VB_ACCESS_REMOTE_ALL;
	uint32_t psn = bits & 64 ? vb_fuzz_u32(in) & 0xffffff : 0xfffffc;

	/* Here and elsewhere: one draw a statement, or the compiler would choose their order. */
	*c = (struct fuzz_config){
		.random = random,
		.use_srq = bits & 1,
		.sig_all = bits & 2,
		.direct = bits & 4,
		.forgetful_direct = bits & 8,
		.own_segment = (segment & 3) != 0 && (segment & 3) != 3,
		.segment_max = segments[segment & 3],
		.window = segment & 4 ? 3000 : 0,
		.cq_entries = bits & 16 ? 1 + (sizes & 15) : 128,
		.access = access,
		.psn = psn,
		.mtu = (uint8_t)(segment & 8 ? VB_MTU_256 : VB_MTU_256 + (segment >> 4) % 5),
		.timeout = (uint8_t)(acks & 1 ? 14 : acks >> 3),
		.retry_cnt = acks & 7,
		.rnr_retry = acks >> 5,
		.min_rnr_timer = sizes >> 3,
		.rd_atomic = atomics % (VB_MAX_RD_ATOMIC + 1),
		.dest_rd_atomic = (atomics >> 4) + 1,
	};
	if (c->segment_max == 256)
		c->mtu = VB_MTU_256;
	c->cap = (struct vb_qp_cap){
		.max_send_wr = 1 + (sizes >> 2 & 15),
		.max_recv_wr = 1 + (sizes >> 4),
		.max_send_sge = FUZZ_SGE_MAX,
		.max_recv_sge = FUZZ_SGE_MAX,
		.max_inline_data = 100,
	};
}

/* --- objects
 * --------------------------------------------------------------------------------------- */

static void init_side_once(struct fuzz_world *world, unsigned int index)
{
	static const struct vb_nic_config nic_config[2] = {{.qpn_base = 1u << 15},
							   {.qpn_base = 2u << 15}};
	struct fuzz_side *side = &world->side[index];

	if (side->nic)
		return;
	side->world = world;
	side->index = index;
	side->nic = vb_nic_create(&ops, side, &nic_config[index]);
	side->block = malloc(FUZZ_MEMORY + 2 * FUZZ_GUARD);
	side->out.packets = calloc(FUZZ_LINK, sizeof(*side->out.packets));
	VB_ASSERT(side->nic && side->block && side->out.packets);
}

static void clear_account(struct fuzz_account *account)
{
	account->posted = account->completed = 0;
}

static void create_qp(struct fuzz_side *side, enum fuzz_kind kind)
{
	static const enum vb_qp_type type[FUZZ_KINDS] = {VB_QPT_RC, VB_QPT_UC, VB_QPT_UD,
							 VB_QPT_XRC_SEND, VB_QPT_XRC_RECV};
	const struct fuzz_config *c = &side->world->config;
	struct vb_qp_init init = {
		.type = type[kind],
		.send_cq = side->send_cq,
		.recv_cq = side->recv_cq,
		.srq = kind == FUZZ_RC || kind == FUZZ_UD ? side->srq : NULL,
		.cap = c->cap,
		.sq_sig_all = c->sig_all,
	};

	if (kind == FUZZ_XRC_RECV)
		init = (struct vb_qp_init){.type = VB_QPT_XRC_RECV, .xrcd = side->xrcd};
	side->qp[kind] = vb_qp_create(init.xrcd ? NULL : side->pd, &init);
	VB_ASSERT(side->qp[kind]);
	side->qp[kind]->user = (void *)(uintptr_t)kind;
	clear_account(&side->sends[kind]);
	clear_account(&side->recvs[kind]);
}

void fuzz_recreate(struct fuzz_side *side, enum fuzz_kind kind)
{
	vb_qp_destroy(side->qp[kind]);
	create_qp(side, kind);
}

void fuzz_region_toggle(struct fuzz_side *side, enum fuzz_region region)
{
	const uint32_t all = VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL | VB_ACCESS_MW_BIND |
			     VB_ACCESS_FLUSH_GLOBAL;
	struct vb_mr **mr = &side->mr[region];

	if (*mr) {
		if (vb_mr_destroy(*mr) == 0)
			*mr = NULL;
		return;
	}
	*mr = vb_mr_create(region == FUZZ_OTHER_PD ? side->other_pd : side->pd, fuzz_memory(side),
			   region == FUZZ_HALF ? FUZZ_MEMORY / 2 : FUZZ_MEMORY,
			   (uintptr_t)fuzz_memory(side), region == FUZZ_READ_ONLY ? 0 : all);
	VB_ASSERT(*mr);
}

static void create_objects(struct fuzz_side *side)
{
	const struct fuzz_config *c = &side->world->config;
	const struct vb_ah_attr attr = {
		.dgid = addresses[!side->index], .is_global = true, .port_num = 1, .hop_limit = 64};

	side->out.count = 0;
	for (uint32_t i = 0; i < FUZZ_LINK; i++)
		side->out.order[i] = i;
	side->was_blocked = false;
	memset(side->block, GUARD_BYTE, FUZZ_MEMORY + 2 * FUZZ_GUARD);
	side->pd = vb_pd_create(side->nic);
	side->other_pd = vb_pd_create(side->nic);
	side->send_cq = vb_cq_create(side->nic, c->cq_entries, NULL);
	side->recv_cq = vb_cq_create(side->nic, c->cq_entries, NULL);
	side->srq = c->use_srq ? vb_srq_create(side->pd, 16, FUZZ_SGE_MAX, 2, NULL) : NULL;
	side->xrcd = vb_xrcd_create(side->nic);
	VB_ASSERT(side->xrcd);
	side->xrc_srq =
		vb_xrc_srq_create(side->pd, side->xrcd, side->recv_cq, 16, FUZZ_SGE_MAX, NULL);
	VB_ASSERT(side->xrc_srq);
	side->ah = vb_ah_create(side->pd, &attr);
	VB_ASSERT(side->pd && side->other_pd && side->send_cq && side->recv_cq && side->ah);
	VB_ASSERT(!c->use_srq || side->srq);
	for (int r = 0; r < FUZZ_REGIONS; r++)
		fuzz_region_toggle(side, (enum fuzz_region)r);
	for (int w = 0; w < FUZZ_WINDOWS; w++) {
		side->mw[w] = vb_mw_create(side->pd, (enum vb_mw_type)(VB_MW_TYPE_1 + w));
		VB_ASSERT(side->mw[w]);
	}
	clear_account(&side->srq_recvs);
	clear_account(&side->xrc_recvs);
	for (int k = 0; k < FUZZ_KINDS; k++)
		create_qp(side, (enum fuzz_kind)k);
}

static void check_empty(const struct vb_nic *nic)
{
	VB_ASSERT(nic->qp_count == 0 && nic->mr_count == 0 && nic->mw_count == 0 &&
		  nic->pd_count == 0);
	VB_ASSERT(nic->cq_count == 0 && nic->srq_count == 0 && nic->ah_count == 0);
	VB_ASSERT(vb_list_is_empty(&nic->ready) && vb_list_is_empty(&nic->blocked));
	VB_ASSERT(nic->timers.count == 0);
}

static void destroy_objects(struct fuzz_side *side)
{
	for (int k = 0; k < FUZZ_KINDS; k++)
		vb_qp_destroy(side->qp[k]);
	VB_ASSERT(!side->mw[1]->mr);
	for (int w = 0; w < FUZZ_WINDOWS; w++)
		VB_ASSERT(vb_mw_destroy(side->mw[w]) == 0);
	for (int r = 0; r < FUZZ_REGIONS; r++) {
		VB_ASSERT(vb_mr_destroy(side->mr[r]) == 0);
		side->mr[r] = NULL;
	}
	vb_ah_put(side->ah);
	VB_ASSERT(vb_srq_destroy(side->srq) == 0);
	VB_ASSERT(vb_srq_destroy(side->xrc_srq) == 0);
	VB_ASSERT(vb_xrcd_destroy(side->xrcd) == 0);
	VB_ASSERT(vb_cq_destroy(side->send_cq) == 0);
	VB_ASSERT(vb_cq_destroy(side->recv_cq) == 0);
	VB_ASSERT(vb_pd_destroy(side->pd) == 0);
	VB_ASSERT(vb_pd_destroy(side->other_pd) == 0);
	VB_ASSERT(side->paths == 0);
	check_empty(side->nic);
}

/* --- states
 * ---------------------------------------------------------------------------------------- */

static struct vb_qp_attr connection(struct fuzz_side *side, enum fuzz_kind kind)
{
	const struct fuzz_config *c = &side->world->config;

	return (struct vb_qp_attr){
		.port_num = 1,
		.qkey = QKEY,
		.access_flags = c->access,
		.ah = side->ah->attr,
		.path_mtu = (enum vb_mtu)c->mtu,
		.dest_qpn = fuzz_peer(side)->qp[fuzz_peer_kind(kind)]->qpn,
		.rq_psn = c->psn,
		.sq_psn = c->psn,
		.timeout = c->timeout,
		.retry_cnt = c->retry_cnt,
		.rnr_retry = c->rnr_retry,
		.min_rnr_timer = c->min_rnr_timer,
		.max_rd_atomic = c->rd_atomic,
		.max_dest_rd_atomic = c->dest_rd_atomic,
	};
}

static const uint32_t step_masks[FUZZ_KINDS][3] = {
	{VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS,
	 VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN | VB_QP_MAX_DEST_RD_ATOMIC |
		 VB_QP_MIN_RNR_TIMER,
	 VB_QP_SQ_PSN | VB_QP_TIMEOUT | VB_QP_RETRY_CNT | VB_QP_RNR_RETRY | VB_QP_MAX_QP_RD_ATOMIC},
	{VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS,
	 VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN, VB_QP_SQ_PSN},
	{VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_QKEY, 0, VB_QP_SQ_PSN},
	{VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS,
	 VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN,
	 VB_QP_SQ_PSN | VB_QP_TIMEOUT | VB_QP_RETRY_CNT | VB_QP_RNR_RETRY | VB_QP_MAX_QP_RD_ATOMIC},
	{VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS,
	 VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN | VB_QP_MAX_DEST_RD_ATOMIC |
		 VB_QP_MIN_RNR_TIMER,
	 VB_QP_SQ_PSN | VB_QP_TIMEOUT},
};

void fuzz_connect(struct fuzz_side *side, enum fuzz_kind kind)
{
	struct vb_qp_attr attr = connection(side, kind);

	fuzz_set_state(side, kind, VB_QPS_RESET);
	for (int step = 0; step < 3; step++) {
		attr.qp_state = (enum vb_qp_state)(VB_QPS_INIT + step);
		VB_ASSERT(vb_qp_modify(side->qp[kind], &attr,
				       VB_QP_STATE | step_masks[kind][step]) == 0);
	}
}

void fuzz_set_state(struct fuzz_side *side, enum fuzz_kind kind, enum vb_qp_state state)
{
	struct vb_qp *qp = side->qp[kind];
	struct vb_qp_attr attr = connection(side, kind);
	uint32_t mask = VB_QP_STATE;

	attr.qp_state = state;
	if (state == VB_QPS_INIT || state == VB_QPS_RTR)
		mask |= step_masks[kind][state - VB_QPS_INIT];
	else if (state == VB_QPS_RTS && qp->state == VB_QPS_RTR)
		mask |= step_masks[kind][2];
	if (vb_qp_modify(qp, &attr, mask) == 0 && state == VB_QPS_RESET) {
		clear_account(&side->sends[kind]);
		clear_account(&side->recvs[kind]);
	}
}

/* --- the world
 * ------------------------------------------------------------------------------------- */

struct fuzz_world *fuzz_world_begin(struct vb_fuzz_input *in)
{
	struct fuzz_world *world = &the_world;

	draw_config(&world->config, in);
	world->now_ns = START_NS;
	world->random = world->config.random;
	world->direct_calls = 0;
	for (unsigned int i = 0; i < 2; i++) {
		init_side_once(world, i);
		create_objects(&world->side[i]);
	}
	for (unsigned int i = 0; i < 2; i++) {
		for (int k = 0; k < FUZZ_KINDS; k++)
			fuzz_connect(&world->side[i], (enum fuzz_kind)k);
	}
	return world;
}

static void check_guards(const struct fuzz_side *side)
{
	const uint8_t *behind = side->block + FUZZ_GUARD + FUZZ_MEMORY;

	for (uint32_t i = 0; i < FUZZ_GUARD; i++)
		VB_ASSERT(side->block[i] == GUARD_BYTE && behind[i] == GUARD_BYTE);
}

void fuzz_world_check(const struct fuzz_world *world)
{
	for (int i = 0; i < 2; i++) {
		for (int k = 0; k < FUZZ_KINDS; k++)
			vb_qp_check(world->side[i].qp[k]);
	}
}

void fuzz_world_end(struct fuzz_world *world)
{
	for (int i = 0; i < 2; i++) {
		struct fuzz_side *side = &world->side[i];

		for (int k = 0; k < FUZZ_KINDS; k++)
			fuzz_set_state(side, (enum fuzz_kind)k, VB_QPS_ERR);
		fuzz_world_check(world);
		fuzz_poll(side, INT32_MAX);
		fuzz_check_all_completed(side);
		check_guards(side);
	}
	for (int i = 0; i < 2; i++)
		destroy_objects(&world->side[i]);
}

void fuzz_rx(struct fuzz_side *side, const uint8_t *data, size_t size, bool right_source)
{
	uint8_t *exact = malloc(size ? size : 1);
	struct vb_rx rx = {
		.data = exact,
		.size = size,
		.src = addresses[right_source ? !side->index : side->index],
		.dst = addresses[side->index],
		.hop_limit = 64,
	};

	VB_ASSERT(exact);
	memcpy(exact, data, size);
	vb_nic_rx(side->nic, &rx, side->world->now_ns);
	free(exact);
}

const struct fuzz_packet *fuzz_link_at(const struct fuzz_link *link, uint32_t place)
{
	VB_ASSERT(place < link->count);
	return &link->packets[link->order[place]];
}

const struct fuzz_packet *fuzz_link_take(struct fuzz_link *link, uint32_t place)
{
	uint32_t taken = link->order[place];

	VB_ASSERT(place < link->count);
	link->count--;
	for (uint32_t i = place; i < link->count; i++)
		link->order[i] = link->order[i + 1];
	link->order[link->count] = taken;
	return &link->packets[taken];
}
