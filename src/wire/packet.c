/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * packet.c - packet headers from bytes and to bytes (IBTA 9.2 and 9.3).
 *
 *      BTH         opcode | SE M Pad TVer | P_Key | F B resv6 | DestQP (24) | A resv7 | PSN (24)
 *      DETH        Q_Key (32) | resv8 | SrcQP (24)
 *      XRCETH      resv8 | SRQ number (24)
 *      FETH        resv26 | selectivity (2) | placement (4)
 *      RETH        VA (64) | R_Key (32) | DMA length (32)
 *      AtomicETH   VA (64) | R_Key (32) | swap or add (64) | compare (64)
 *      AETH        syndrome (8) | MSN (24)
 *      AtomicAckETH, ImmDt, IETH   one field each: 64, 32 and 32 bits
 *
 * Reserved bits are written as zeros and ignored when read (IBTA 9.2: they are covered by the ICRC
 * and otherwise without meaning). The MIDDLE packets of a stream have a BTH alone and leave early.
 */
#include "wire/packet.h"

#include <errno.h>
#include <string.h>

#include "wire/cursor.h"

#define BTH_SE 0x80u
#define BTH_M 0x40u
#define BTH_PAD_SHIFT 4
#define BTH_TVER 0x0fu
#define BTH_FECN 0x80000000u
#define BTH_BECN 0x40000000u
#define BTH_A 0x80000000u
#define BITS_24 0xffffffu
#define FETH_PLACEMENT 0x0fu
#define FETH_SELECTIVITY_SHIFT 4
#define FETH_SELECTIVITY 3u

#define HAS_EXTENSION                                                                              \
	(VB_HAS_DETH | VB_HAS_RETH | VB_HAS_ATOMIC | VB_HAS_AETH | VB_HAS_ATOMIC_ACK |             \
	 VB_HAS_IMM | VB_HAS_IETH | VB_HAS_XRCETH | VB_HAS_FETH)

static inline void encode_bth(const struct vb_headers *h, uint8_t *p)
{
	p[0] = h->opcode;
	p[1] = (uint8_t)((h->solicited ? BTH_SE : 0) | (h->mig_req ? BTH_M : 0) |
			 (h->pad & 3u) << BTH_PAD_SHIFT | (h->tver & BTH_TVER));
	vb_store_be16(p + 2, h->pkey);
	vb_store_be32(p + 4,
		      (h->fecn ? BTH_FECN : 0) | (h->becn ? BTH_BECN : 0) | (h->qpn & BITS_24));
	vb_store_be32(p + 8, (h->ack_req ? BTH_A : 0) | (h->psn & BITS_24));
}

void vb_bth_decode(struct vb_headers *h, const uint8_t p[VB_BTH_BYTES])
{
	uint32_t qpn = vb_load_be32(p + 4);
	uint32_t psn = vb_load_be32(p + 8);

	h->opcode = p[0];
	h->solicited = p[1] & BTH_SE;
	h->mig_req = p[1] & BTH_M;
	h->pad = p[1] >> BTH_PAD_SHIFT & 3;
	h->tver = p[1] & BTH_TVER;
	h->pkey = vb_load_be16(p + 2);
	h->fecn = qpn & BTH_FECN;
	h->becn = qpn & BTH_BECN;
	h->qpn = qpn & BITS_24;
	h->ack_req = psn & BTH_A;
	h->psn = psn & BITS_24;
}

/* The room for all of them was checked: header_bytes is the sum of what the flags name. */
static void encode_extensions(const struct vb_headers *h, unsigned int flags, uint8_t *p)
{
	if (flags & VB_HAS_DETH) {
		vb_store_be32(p, h->deth.qkey);
		vb_store_be32(p + 4, h->deth.src_qpn & BITS_24);
		p += 8;
	}
	if (flags & VB_HAS_XRCETH) {
		vb_store_be32(p, h->srqn & BITS_24);
		p += 4;
	}
	if (flags & VB_HAS_FETH) {
		vb_store_be32(p, (h->feth.selectivity & FETH_SELECTIVITY)
						 << FETH_SELECTIVITY_SHIFT |
					 (h->feth.placement & FETH_PLACEMENT));
		p += 4;
	}
	if (flags & VB_HAS_RETH) {
		vb_store_be64(p, h->reth.va);
		vb_store_be32(p + 8, h->reth.rkey);
		vb_store_be32(p + 12, h->reth.length);
		p += 16;
	}
	if (flags & VB_HAS_ATOMIC) {
		vb_store_be64(p, h->atomic.va);
		vb_store_be32(p + 8, h->atomic.rkey);
		vb_store_be64(p + 12, h->atomic.swap_add);
		vb_store_be64(p + 20, h->atomic.compare);
		p += 28;
	}
	if (flags & VB_HAS_AETH) {
		vb_store_be32(p, (uint32_t)h->aeth.syndrome << 24 | (h->aeth.msn & BITS_24));
		p += 4;
	}
	if (flags & VB_HAS_ATOMIC_ACK) {
		vb_store_be64(p, h->atomic_ack);
		p += 8;
	}
	if (flags & VB_HAS_IMM) {
		vb_store_be32(p, h->imm);
		p += 4;
	}
	if (flags & VB_HAS_IETH)
		vb_store_be32(p, h->invalidate_rkey);
}

static void decode_extensions(struct vb_headers *h, unsigned int flags, const uint8_t *p)
{
	if (flags & VB_HAS_DETH) {
		h->deth.qkey = vb_load_be32(p);
		h->deth.src_qpn = vb_load_be32(p + 4) & BITS_24;
		p += 8;
	}
	if (flags & VB_HAS_XRCETH) {
		h->srqn = vb_load_be32(p) & BITS_24;
		p += 4;
	}
	if (flags & VB_HAS_FETH) {
		uint32_t feth = vb_load_be32(p);

		h->feth.placement = feth & FETH_PLACEMENT;
		h->feth.selectivity = feth >> FETH_SELECTIVITY_SHIFT & FETH_SELECTIVITY;
		p += 4;
	}
	if (flags & VB_HAS_RETH) {
		h->reth.va = vb_load_be64(p);
		h->reth.rkey = vb_load_be32(p + 8);
		h->reth.length = vb_load_be32(p + 12);
		p += 16;
	}
	if (flags & VB_HAS_ATOMIC) {
		h->atomic.va = vb_load_be64(p);
		h->atomic.rkey = vb_load_be32(p + 8);
		h->atomic.swap_add = vb_load_be64(p + 12);
		h->atomic.compare = vb_load_be64(p + 20);
		p += 28;
	}
	if (flags & VB_HAS_AETH) {
		uint32_t aeth = vb_load_be32(p);

		h->aeth.syndrome = (uint8_t)(aeth >> 24);
		h->aeth.msn = aeth & BITS_24;
		p += 4;
	}
	if (flags & VB_HAS_ATOMIC_ACK) {
		h->atomic_ack = vb_load_be64(p);
		p += 8;
	}
	if (flags & VB_HAS_IMM) {
		h->imm = vb_load_be32(p);
		p += 4;
	}
	if (flags & VB_HAS_IETH)
		h->invalidate_rkey = vb_load_be32(p);
}

int vb_headers_encode(const struct vb_headers *h, uint8_t *out, size_t size)
{
	const struct vb_opcode_info *info = &vb_opcode_table[h->opcode];
	struct vb_writer w = {.at = out, .end = out + size};
	uint8_t *p;

	if (!info->name)
		return -EINVAL;
	p = vb_writer_take(&w, info->header_bytes);
	if (!p)
		return -EMSGSIZE;
	encode_bth(h, p);
	if (info->flags & HAS_EXTENSION)
		encode_extensions(h, info->flags, p + VB_BTH_BYTES);
	return info->header_bytes;
}

int vb_headers_decode(struct vb_headers *h, const uint8_t *in, size_t size)
{
	struct vb_reader r = {.at = in, .end = in + size};
	const struct vb_opcode_info *info;
	const uint8_t *p;

	if (!size)
		return -EBADMSG;
	info = &vb_opcode_table[in[0]];
	if (!info->name)
		return -EBADMSG;
	p = vb_reader_take(&r, info->header_bytes);
	if (!p)
		return -EBADMSG;
	memset(h, 0, sizeof(*h));
	vb_bth_decode(h, p);
	if (!vb_reader_take(&r, h->pad))
		return -EBADMSG;
	if (info->flags & HAS_EXTENSION)
		decode_extensions(h, info->flags, p + VB_BTH_BYTES);
	return info->header_bytes;
}
