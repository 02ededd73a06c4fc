/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_rx.c - any bytes, as packets for queue pairs that exist, are connected, wait for messages
 * and have requests under way.
 *
 * The input is a list of packets: a control byte, a size, the bytes. The destination QPN is put
 * right always, and what else a fuzzer would not guess as the control byte says: the PSN, the keys
 * and the address. What is behind the checks of both is to be reached too.
 */
#include <string.h>

#include "base/psn.h"
#include "world.h"

#define PACKETS_MAX 64

enum control {
	AS_IT_IS = 1 << 0, /* nothing but the QPN is put right */
	IS_ANSWER =
		1
		<< 1, /* the PSN is near the oldest request under way, else near the expected one */
	RIGHT_KEYS = 1 << 2,
	WRONG_SOURCE = 1 << 3,
	THEN_RUN = 1 << 4,
	THEN_DEADLINE = 1 << 5,
	THEN_POST = 1 << 6,
	LONG_SIZE = 1 << 7, /* two bytes */
};

static enum fuzz_kind kind_of(uint8_t opcode)
{
	switch (vb_opcode_transport(opcode)) {
	case VB_TRANSPORT_RC:
		return FUZZ_RC;
	case VB_TRANSPORT_UC:
		return FUZZ_UC;
	case VB_TRANSPORT_UD:
		return FUZZ_UD;
	case VB_TRANSPORT_XRC:
		return vb_opcode_table[opcode].flags & VB_IS_RESPONSE ? FUZZ_XRC_SEND
								      : FUZZ_XRC_RECV;
	}
	return FUZZ_RC;
}

static void put24(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 16);
	at[1] = (uint8_t)(value >> 8);
	at[2] = (uint8_t)value;
}

/* The headers are decoded, put right and encoded again; what does not decode stays as it is. */
static void put_right(const struct fuzz_side *side, uint8_t *bytes, size_t size, uint8_t control)
{
	const struct vb_qp *qp;
	struct vb_headers h;
	uint64_t memory = (uintptr_t)fuzz_memory(side);

	if (size < VB_BTH_BYTES)
		return;
	qp = side->qp[kind_of(bytes[0])];
	put24(bytes + 5, qp->qpn);
	if (control & AS_IT_IS || vb_headers_decode(&h, bytes, size) < 0)
		return;
	h.psn = vb_psn_add(control & IS_ANSWER ? qp->req.una_psn : qp->resp.epsn, h.psn & 7);
	if (control & RIGHT_KEYS) {
		h.pkey = VB_DEFAULT_PKEY;
		h.tver = 0;
		h.deth.qkey = qp->attr.qkey;
		h.srqn = side->xrc_srq->srqn;
		h.reth.rkey = h.atomic.rkey = side->mr[FUZZ_ALL_RIGHTS]->rkey;
		h.reth.va = memory + h.reth.va % (FUZZ_MEMORY + 8);
		h.atomic.va = memory + h.atomic.va % (FUZZ_MEMORY + 8);
	}
	VB_ASSERT(vb_headers_encode(&h, bytes, size) > 0);
}

/* A request under way of every kind that is answered, and receives. */
static void post(struct fuzz_side *side)
{
	static const uint8_t sends[] = {
		/* kind, opcode, flags, SGEs: 1 (offset, length, key), remote address, key, value */
		FUZZ_RC,
		VB_WR_SEND,
		2,
		1,
		0,
		0,
		200,
		0,
		FUZZ_RC,
		VB_WR_RDMA_READ,
		2,
		1,
		0,
		1,
		0xc2,
		100,
		0,
		0,
		4,
		0,
		1,
		FUZZ_RC,
		VB_WR_ATOMIC_FETCH_AND_ADD,
		2,
		1,
		0,
		2,
		8,
		0,
		0,
		4,
		0,
		1,
		FUZZ_XRC_SEND,
		VB_WR_RDMA_READ,
		2,
		1,
		0,
		1,
		0xc2,
		100,
		0,
		0,
		4,
		0,
		1,
		0,
		FUZZ_RC,
		VB_WR_RDMA_WRITE,
		2,
		1,
		0,
		3,
		0xc2,
		100,
		0,
		0,
		4,
		0,
		1,
	};
	struct vb_fuzz_input in = {sends, sends + sizeof(sends)};

	while (!vb_fuzz_is_empty(&in))
		fuzz_post_send(side, &in);
	for (int i = 0; i < 4; i++) {
		for (int k = 0; k < FUZZ_KINDS; k++)
			fuzz_post_plain_recv(side, (enum fuzz_kind)k);
	}
	vb_nic_run(side->nic, side->world->now_ns);
}

static void one_packet(struct fuzz_side *side, struct vb_fuzz_input *in)
{
	uint8_t bytes[UINT16_MAX];
	uint8_t control = vb_fuzz_u8(in);
	size_t size = control & LONG_SIZE ? vb_fuzz_u16(in) : vb_fuzz_u8(in);

	size = VB_MIN(size, (size_t)(in->end - in->at));
	memcpy(bytes, in->at, size);
	in->at += size;
	put_right(side, bytes, size, control);
	fuzz_rx(side, bytes, size, !(control & WRONG_SOURCE));
	if (control & THEN_RUN)
		vb_nic_run(side->nic, side->world->now_ns);
	if (control & THEN_DEADLINE && vb_nic_deadline(side->nic) != VB_NEVER)
		side->world->now_ns = VB_MAX(side->world->now_ns, vb_nic_deadline(side->nic));
	if (control & THEN_POST) {
		fuzz_poll(side, 8);
		post(side);
	}
	/* Nobody is at the other end. */
	side->out.count = 0;
	vb_nic_unblock(side->nic);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_fuzz_input in = {data, data + size};
	struct fuzz_world *world = fuzz_world_begin(&in);
	struct fuzz_side *side = &world->side[0];

	post(side);
	for (int i = 0; i < PACKETS_MAX && !vb_fuzz_is_empty(&in); i++) {
		one_packet(side, &in);
		fuzz_world_check(world);
	}
	fuzz_world_end(world);
	return 0;
}
