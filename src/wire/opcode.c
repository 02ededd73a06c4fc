/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * opcode.c - the opcode table (IBTA 9.2.1, table 38): what follows the BTH, and what the packet is.
 *
 * The one place that knows which opcode has which headers. An opcode that is not named here does
 * not exist (name NULL, no header bytes): reserved values, RD, XRC, and what UC and UD leave out.
 *
 * FIRST and LAST say where a packet stands in its message or, for the answers to a READ, in its
 * answer; what is always one packet (READ request, atomic, ACK) has both.
 */
#include "wire/packet.h"

/* Bytes of the extended headers (IBTA 9.3). */
#define DETH_BYTES 8
#define RETH_BYTES 16
#define ATOMIC_BYTES 28
#define AETH_BYTES 4
#define ATOMIC_ACK_BYTES 8
#define IMM_BYTES 4
#define IETH_BYTES 4

#define FIRST VB_IS_FIRST
#define LAST VB_IS_LAST
#define ONLY (VB_IS_FIRST | VB_IS_LAST)
#define SEND (VB_IS_REQUEST | VB_IS_SEND | VB_HAS_PAYLOAD)
#define WRITE (VB_IS_REQUEST | VB_IS_WRITE | VB_HAS_PAYLOAD)
#define READ_RESPONSE (VB_IS_RESPONSE | VB_IS_READ_RESPONSE | VB_HAS_PAYLOAD)

#define HAS(flags, flag, bytes) ((flags) & (flag) ? (bytes) : 0)
#define HEADER_BYTES(f)                                                                            \
	(VB_BTH_BYTES + HAS(f, VB_HAS_DETH, DETH_BYTES) + HAS(f, VB_HAS_RETH, RETH_BYTES) +        \
	 HAS(f, VB_HAS_ATOMIC, ATOMIC_BYTES) + HAS(f, VB_HAS_AETH, AETH_BYTES) +                   \
	 HAS(f, VB_HAS_ATOMIC_ACK, ATOMIC_ACK_BYTES) + HAS(f, VB_HAS_IMM, IMM_BYTES) +             \
	 HAS(f, VB_HAS_IETH, IETH_BYTES))

#define OPCODE(transport, op, f)                                                                   \
	[VB_TRANSPORT_##transport << 5 | VB_OP_##op] = {                                           \
		.name = #transport " " #op,                                                        \
		.flags = (f),                                                                      \
		.header_bytes = HEADER_BYTES(f),                                                   \
	}

/* What RC and UC have in common. */
/* clang-format off */
#define CONNECTED(transport)                                                                       \
	OPCODE(transport, SEND_FIRST, SEND | FIRST),                                               \
	OPCODE(transport, SEND_MIDDLE, SEND),                                                      \
	OPCODE(transport, SEND_LAST, SEND | LAST),                                                 \
	OPCODE(transport, SEND_LAST_IMM, SEND | LAST | VB_HAS_IMM),                                \
	OPCODE(transport, SEND_ONLY, SEND | ONLY),                                                 \
	OPCODE(transport, SEND_ONLY_IMM, SEND | ONLY | VB_HAS_IMM),                                \
	OPCODE(transport, WRITE_FIRST, WRITE | FIRST | VB_HAS_RETH),                               \
	OPCODE(transport, WRITE_MIDDLE, WRITE),                                                    \
	OPCODE(transport, WRITE_LAST, WRITE | LAST),                                               \
	OPCODE(transport, WRITE_LAST_IMM, WRITE | LAST | VB_HAS_IMM),                              \
	OPCODE(transport, WRITE_ONLY, WRITE | ONLY | VB_HAS_RETH),                                 \
	OPCODE(transport, WRITE_ONLY_IMM, WRITE | ONLY | VB_HAS_RETH | VB_HAS_IMM)

/* clang-format on */

const struct vb_opcode_info vb_opcode_table[256] = {
	CONNECTED(RC),
	OPCODE(RC, READ_REQUEST, VB_IS_REQUEST | ONLY | VB_HAS_RETH),
	OPCODE(RC, READ_RESPONSE_FIRST, READ_RESPONSE | FIRST | VB_HAS_AETH),
	OPCODE(RC, READ_RESPONSE_MIDDLE, READ_RESPONSE),
	OPCODE(RC, READ_RESPONSE_LAST, READ_RESPONSE | LAST | VB_HAS_AETH),
	OPCODE(RC, READ_RESPONSE_ONLY, READ_RESPONSE | ONLY | VB_HAS_AETH),
	OPCODE(RC, ACK, VB_IS_RESPONSE | ONLY | VB_HAS_AETH),
	OPCODE(RC, ATOMIC_ACK, VB_IS_RESPONSE | ONLY | VB_HAS_AETH | VB_HAS_ATOMIC_ACK),
	OPCODE(RC, CMP_SWP, VB_IS_REQUEST | ONLY | VB_HAS_ATOMIC),
	OPCODE(RC, FETCH_ADD, VB_IS_REQUEST | ONLY | VB_HAS_ATOMIC),
	OPCODE(RC, SEND_LAST_INV, SEND | LAST | VB_HAS_IETH),
	OPCODE(RC, SEND_ONLY_INV, SEND | ONLY | VB_HAS_IETH),

	CONNECTED(UC),

	OPCODE(UD, SEND_ONLY, SEND | ONLY | VB_HAS_DETH),
	OPCODE(UD, SEND_ONLY_IMM, SEND | ONLY | VB_HAS_DETH | VB_HAS_IMM),
};
