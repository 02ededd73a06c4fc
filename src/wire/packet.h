/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * packet.h - the headers of an InfiniBand transport packet, as values in host order.
 *
 *      BTH | DETH? | XRCETH? | FETH? | RETH? | AtomicETH? | AETH? | AtomicAckETH? | ImmDt? | IETH?
 * | payload | pad | ICRC
 *
 * Which extended headers follow the BTH is a property of the opcode (IBTA 9.2, table 38); the one
 * opcode table is in opcode.c. vb_headers_encode() and vb_headers_decode() turn bytes into
 * struct vb_headers and back and make no protocol decision: a packet whose opcode is unknown or
 * whose bytes are too few does not decode, everything else does.
 */
#ifndef VB_WIRE_PACKET_H
#define VB_WIRE_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

#define VB_ROCE_PORT 4791 /* UDP destination port of RoCEv2 (IBTA annex A17) */
#define VB_BTH_BYTES 12
#define VB_ICRC_BYTES 4
#define VB_GRH_BYTES 40	  /* what a UD receive buffer holds before the payload */
#define VB_HEADERS_MAX 64 /* no opcode has more bytes of headers */
#define VB_DEFAULT_PKEY 0xffff
#define VB_PKEY_BASE_MASK 0x7fffu /* without the bit of full membership */
#define VB_QPN_MASK 0xffffffu
#define VB_QPN_MULTICAST 0xffffffu

/* The opcode is the transport (bits 7-5) and the operation (bits 4-0). */
enum vb_transport {
	VB_TRANSPORT_RC = 0,
	VB_TRANSPORT_UC = 1,
	VB_TRANSPORT_UD = 3,
	VB_TRANSPORT_XRC = 5, /* annex A14 */
};

enum vb_operation {
	VB_OP_SEND_FIRST = 0x00,
	VB_OP_SEND_MIDDLE = 0x01,
	VB_OP_SEND_LAST = 0x02,
	VB_OP_SEND_LAST_IMM = 0x03,
	VB_OP_SEND_ONLY = 0x04,
	VB_OP_SEND_ONLY_IMM = 0x05,
	VB_OP_WRITE_FIRST = 0x06,
	VB_OP_WRITE_MIDDLE = 0x07,
	VB_OP_WRITE_LAST = 0x08,
	VB_OP_WRITE_LAST_IMM = 0x09,
	VB_OP_WRITE_ONLY = 0x0a,
	VB_OP_WRITE_ONLY_IMM = 0x0b,
	VB_OP_READ_REQUEST = 0x0c,
	VB_OP_READ_RESPONSE_FIRST = 0x0d,
	VB_OP_READ_RESPONSE_MIDDLE = 0x0e,
	VB_OP_READ_RESPONSE_LAST = 0x0f,
	VB_OP_READ_RESPONSE_ONLY = 0x10,
	VB_OP_ACK = 0x11,
	VB_OP_ATOMIC_ACK = 0x12,
	VB_OP_CMP_SWP = 0x13,
	VB_OP_FETCH_ADD = 0x14,
	VB_OP_SEND_LAST_INV = 0x16,
	VB_OP_SEND_ONLY_INV = 0x17,
	VB_OP_FLUSH = 0x1c,	   /* annex A19, memory placement extensions */
	VB_OP_ATOMIC_WRITE = 0x1d, /* the same */
};

static inline uint8_t vb_opcode(enum vb_transport transport, enum vb_operation operation)
{
	return (uint8_t)((unsigned)transport << 5 | (unsigned)operation);
}

static inline enum vb_transport vb_opcode_transport(uint8_t opcode)
{
	return (enum vb_transport)(opcode >> 5);
}

static inline enum vb_operation vb_opcode_operation(uint8_t opcode)
{
	return (enum vb_operation)(opcode & 0x1f);
}

/* What a packet of this opcode carries and where it stands in its message. */
enum vb_opcode_flags {
	VB_HAS_DETH = 1 << 0,
	VB_HAS_RETH = 1 << 1,
	VB_HAS_ATOMIC = 1 << 2,
	VB_HAS_AETH = 1 << 3,
	VB_HAS_ATOMIC_ACK = 1 << 4,
	VB_HAS_IMM = 1 << 5,
	VB_HAS_IETH = 1 << 6,
	VB_HAS_PAYLOAD = 1 << 7,
	VB_IS_FIRST = 1 << 8,	 /* begins a message (ONLY has both bits) */
	VB_IS_LAST = 1 << 9,	 /* ends a message */
	VB_IS_REQUEST = 1 << 10, /* from requester to responder */
	VB_IS_RESPONSE = 1 << 11,
	VB_IS_SEND = 1 << 12,
	VB_IS_WRITE = 1 << 13,
	VB_IS_READ_RESPONSE = 1 << 14,
	VB_HAS_XRCETH = 1 << 15,
	VB_HAS_FETH = 1 << 16,
};

struct vb_opcode_info {
	const char *name;     /* NULL: this opcode does not exist */
	uint32_t flags;	      /* enum vb_opcode_flags */
	uint8_t header_bytes; /* BTH and all extended headers */
};

/* vb_opcode_table - indexed by the whole opcode byte. */
extern const struct vb_opcode_info vb_opcode_table[256];

struct vb_headers {
	/* BTH (IBTA 9.2) */
	uint8_t opcode;
	bool solicited; /* SE */
	bool mig_req;	/* M: hardware sets it, Soft-RoCE does not; both are accepted */
	uint8_t pad;	/* PadCnt: bytes of padding behind the payload, 0..3 */
	uint8_t tver;	/* transport header version, 0 */
	uint16_t pkey;
	bool fecn, becn;
	bool ack_req; /* A */
	uint32_t qpn; /* destination QP */
	uint32_t psn;

	/* Extended headers; only those that the opcode has are meaningful. */
	struct {
		uint32_t qkey, src_qpn;
	} deth;
	uint32_t srqn; /* XRCETH: the shared receive queue that a request is for */
	struct {
		uint8_t placement;   /* enum vb_placement */
		uint8_t selectivity; /* enum vb_selectivity */
	} feth;
	struct {
		uint64_t va;
		uint32_t rkey, length;
	} reth;
	struct {
		uint64_t va;
		uint32_t rkey;
		uint64_t swap_add, compare;
	} atomic;
	struct {
		uint8_t syndrome;
		uint32_t msn;
	} aeth;
	uint64_t atomic_ack; /* the value before the operation */
	uint32_t imm; /* the program's four bytes, host order value of the big-endian field */
	uint32_t invalidate_rkey; /* IETH */
};

/* vb_headers_encode - writes the headers to out (at most size bytes). Returns the bytes written, or
 * -EMSGSIZE when they do not fit, -EINVAL when the opcode does not exist. */
int vb_headers_encode(const struct vb_headers *h, uint8_t *out, size_t size) VB_MUST_USE;

/* vb_headers_decode - reads the headers of the packet in[0..size). Returns the bytes used, or
 * -EBADMSG when the opcode does not exist or the packet is too short for its headers and pad. Every
 * field that the opcode does not have is zero. */
int vb_headers_decode(struct vb_headers *h, const uint8_t *in, size_t size) VB_MUST_USE;

/* vb_bth_decode - the fields of the BTH alone; the others are left as they are. */
void vb_bth_decode(struct vb_headers *h, const uint8_t in[VB_BTH_BYTES]);

/* What a FLUSH asks for (IBTA A19.4.1): the FETH's low bits 3-0 and 5-4. */
enum vb_placement {
	VB_FLUSH_GLOBAL = 1 << 0,     /* visible to everybody on the host */
	VB_FLUSH_PERSISTENT = 1 << 1, /* survives a loss of power */
};
enum vb_selectivity {
	VB_FLUSH_RANGE = 0,  /* the RETH's range */
	VB_FLUSH_REGION = 1, /* the whole region of its key */
};

/* AETH syndrome (IBTA 9.7.5.1.2, tables 44 to 47): bits 6-5 the kind, bits 4-0 its value. */
enum vb_aeth_kind {
	VB_AETH_ACK = 0,
	VB_AETH_RNR_NAK = 1,
	VB_AETH_RESERVED = 2,
	VB_AETH_NAK = 3,
};
enum vb_nak_code {
	VB_NAK_PSN_SEQUENCE = 0,
	VB_NAK_INVALID_REQUEST = 1,
	VB_NAK_REMOTE_ACCESS = 2,
	VB_NAK_REMOTE_OPERATIONAL = 3,
	VB_NAK_INVALID_RD_REQUEST = 4,
};
#define VB_AETH_ACK_NO_CREDIT 0x1f /* ACK, credit count "invalid": no end-to-end flow control */

static inline uint8_t vb_aeth_syndrome(enum vb_aeth_kind kind, unsigned int value)
{
	return (uint8_t)((unsigned)kind << 5 | (value & 0x1f));
}

static inline enum vb_aeth_kind vb_aeth_kind(uint8_t syndrome)
{
	return (enum vb_aeth_kind)(syndrome >> 5 & 3);
}

/* vb_pkey_is_default - of the one partition that there is, with full membership or without (IBTA
 * 10.9.3). */
static inline bool vb_pkey_is_default(uint16_t pkey)
{
	return (pkey & VB_PKEY_BASE_MASK) == (VB_DEFAULT_PKEY & VB_PKEY_BASE_MASK);
}

#endif
