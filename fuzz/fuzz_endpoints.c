/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_endpoints.c - two NICs joined by a hostile wire; the input says what the two programs do and
 * what the wire does: deliver, lose, repeat, swap, corrupt, forge.
 *
 * Whatever happens, the invariants of world.h hold. While the wire only lost, repeated or swapped,
 * it was a network as the specification knows it: then, once it behaves, every reliable connection
 * comes to an end: all its requests complete or it fails.
 */
#include <string.h>

#include "world.h"

#define STEPS_MAX 600
#define DRAIN_ROUNDS 20000

struct story {
	bool forged; /* a packet that no core sent was taken for one: answers may be believed for
			nothing */
};

enum step {
	STEP_RUN,
	STEP_DELIVER,
	STEP_SEND,
	STEP_RECV,
	STEP_POLL,
	STEP_TIME,
	STEP_LOSE,
	STEP_REPEAT,
	STEP_SWAP,
	STEP_CORRUPT,
	STEP_FORGE,
	STEP_FORGE_WRONG_SOURCE,
	STEP_STATE,
	STEP_CONNECT,
	STEP_RECREATE,
	STEP_REGION,
	STEP_SRQ,
	STEP_ARM,
	STEP_RESIZE,
	STEP_UNBLOCK,
	STEP_COUNT,
};

static void run(struct fuzz_side *side)
{
	vb_nic_run(side->nic, side->world->now_ns);
}

static void unblock(struct fuzz_side *side)
{
	side->was_blocked = false;
	vb_nic_unblock(side->nic);
}

static void deliver(struct fuzz_side *from, uint32_t place)
{
	const struct fuzz_packet *packet;

	if (place >= from->out.count)
		return;
	packet = fuzz_link_take(&from->out, place);
	fuzz_rx(fuzz_peer(from), packet->data, packet->size, true);
}

static void repeat(struct fuzz_side *from, uint32_t place)
{
	const struct fuzz_packet *packet;

	if (place >= from->out.count)
		return;
	packet = fuzz_link_at(&from->out, place);
	fuzz_rx(fuzz_peer(from), packet->data, packet->size, true);
}

static void corrupt(struct fuzz_side *from, struct vb_fuzz_input *in)
{
	uint8_t bytes[FUZZ_PACKET_MAX];
	const struct fuzz_packet *packet;
	size_t size, at;

	if (!from->out.count)
		return;
	packet = fuzz_link_take(&from->out, 0);
	size = packet->size;
	memcpy(bytes, packet->data, size);
	at = vb_fuzz_u8(in) % size;
	bytes[at] ^= vb_fuzz_u8(in);
	if (vb_fuzz_u8(in) & 1)
		size -= vb_fuzz_u8(in) % size;
	fuzz_rx(fuzz_peer(from), bytes, size, true);
}

static void forge(struct fuzz_side *to, struct vb_fuzz_input *in, bool right_source)
{
	uint8_t bytes[FUZZ_PACKET_MAX];
	size_t size = fuzz_forge(to, in, bytes);

	if (size)
		fuzz_rx(to, bytes, size, right_source);
}

static uint64_t next_deadline(const struct fuzz_world *world)
{
	return VB_MIN(vb_nic_deadline(world->side[0].nic), vb_nic_deadline(world->side[1].nic));
}

static void pass_time(struct fuzz_world *world, struct vb_fuzz_input *in)
{
	uint8_t how = vb_fuzz_u8(in);
	uint64_t deadline = next_deadline(world);

	if (how & 1 && deadline != VB_NEVER)
		world->now_ns = VB_MAX(world->now_ns, deadline);
	else
		world->now_ns += 1000ull << (how >> 3);
}

static void change_queues(struct fuzz_side *side, struct vb_fuzz_input *in)
{
	uint8_t how = vb_fuzz_u8(in);

	(void)vb_cq_resize(how & 1 ? side->send_cq : side->recv_cq, how >> 1);
	if (side->srq) {
		(void)vb_srq_set_limit(side->srq, how & 7);
		(void)vb_srq_resize(side->srq, 1 + (how >> 3));
	}
}

static void change_objects(struct fuzz_side *side, enum step step, struct vb_fuzz_input *in)
{
	uint8_t how = vb_fuzz_u8(in);
	enum fuzz_kind kind = (enum fuzz_kind)(how % FUZZ_KINDS);

	if (step == STEP_STATE) {
		fuzz_set_state(side, kind, (enum vb_qp_state)((how >> 4) % VB_QPS_COUNT));
	} else if (step == STEP_REGION) {
		fuzz_region_toggle(side, (enum fuzz_region)(how % FUZZ_REGIONS));
	} else {
		if (step == STEP_RECREATE)
			fuzz_recreate(side, kind);
		fuzz_connect(side, kind);
		if (how & 0x40)
			fuzz_connect(fuzz_peer(side), kind);
	}
}

static void wire_step(struct fuzz_side *side, enum step step, struct vb_fuzz_input *in,
		      struct story *story)
{
	if (step == STEP_LOSE) {
		if (side->out.count)
			fuzz_link_take(&side->out, vb_fuzz_u8(in) % side->out.count);
	} else if (step == STEP_REPEAT) {
		repeat(side, vb_fuzz_below(in, FUZZ_LINK));
	} else if (step == STEP_SWAP) {
		deliver(side, vb_fuzz_below(in, FUZZ_LINK));
	} else if (step == STEP_CORRUPT) {
		story->forged = true;
		corrupt(side, in);
	} else {
		story->forged |= step == STEP_FORGE;
		forge(side, in, step == STEP_FORGE);
	}
}

static void do_step(struct fuzz_world *world, struct vb_fuzz_input *in, struct story *story)
{
	uint8_t code = vb_fuzz_u8(in);
	enum step step = (enum step)(code % 32 % STEP_COUNT);
	struct fuzz_side *side = &world->side[code >> 7];

	switch (step) {
	case STEP_RUN:
		run(side);
		break;
	case STEP_DELIVER:
		for (uint32_t n = 1 + (code >> 5 & 3) * 5; n; n--)
			deliver(side, 0);
		break;
	case STEP_SEND:
		fuzz_post_send(side, in);
		break;
	case STEP_RECV:
		fuzz_post_recv(side, in);
		break;
	case STEP_POLL:
		fuzz_poll(side, 1 + (code >> 5 & 3) * 8);
		break;
	case STEP_TIME:
		pass_time(world, in);
		break;
	case STEP_LOSE:
	case STEP_REPEAT:
	case STEP_SWAP:
	case STEP_CORRUPT:
	case STEP_FORGE:
	case STEP_FORGE_WRONG_SOURCE:
		wire_step(side, step, in, story);
		break;
	case STEP_STATE:
	case STEP_CONNECT:
	case STEP_RECREATE:
	case STEP_REGION:
		change_objects(side, step, in);
		break;
	case STEP_SRQ:
		fuzz_post_srq(side, in);
		break;
	case STEP_ARM:
		vb_cq_arm(code & 32 ? side->send_cq : side->recv_cq, code & 64);
		break;
	case STEP_RESIZE:
		change_queues(side, in);
		break;
	case STEP_UNBLOCK:
		unblock(side);
		break;
	case STEP_COUNT:
		break;
	}
}

/* --- the end: the wire behaves ----------------------------------------------------------- */

static bool is_at_rest(const struct fuzz_side *side)
{
	const struct vb_qp *qp = side->qp[FUZZ_RC];

	return side->out.count == 0 && (qp->state != VB_QPS_RTS || qp->sq_una == qp->sq_head);
}

static void drain_side(struct fuzz_side *side)
{
	run(side);
	while (side->out.count)
		deliver(side, 0);
	unblock(side);
	fuzz_poll(side, 64);
}

/* Everything is delivered; receives are posted while somebody may wait for one; time jumps to the
 * next deadline. */
static void drain(struct fuzz_world *world)
{
	struct fuzz_side *a = &world->side[0], *b = &world->side[1];

	for (int round = 0; round < DRAIN_ROUNDS; round++) {
		uint64_t deadline;

		drain_side(a);
		drain_side(b);
		fuzz_world_check(world);
		if (is_at_rest(a) && is_at_rest(b))
			return;
		fuzz_post_plain_recv(a, FUZZ_RC);
		fuzz_post_plain_recv(b, FUZZ_RC);
		deadline = next_deadline(world);
		if (deadline != VB_NEVER && a->out.count + b->out.count == 0 &&
		    vb_list_is_empty(&a->nic->ready) && vb_list_is_empty(&b->nic->ready))
			world->now_ns = VB_MAX(world->now_ns, deadline);
	}
	VB_ASSERT(!"a reliable connection comes to an end on a wire that behaves");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_fuzz_input in = {data, data + size};
	struct fuzz_world *world = fuzz_world_begin(&in);
	struct story story = {0};

	for (int i = 0; i < STEPS_MAX && !vb_fuzz_is_empty(&in); i++) {
		do_step(world, &in, &story);
		fuzz_world_check(world);
	}
	/* Without a timeout a lost packet is never missed. */
	if (!story.forged && world->config.timeout != 0)
		drain(world);
	fuzz_world_end(world);
	return 0;
}
