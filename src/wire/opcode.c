/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * opcode.c - the opcode table (IBTA 9.2.1, table 38): what follows the BTH, and what the packet is.
 *
 * The one place that knows which opcode has which headers. An opcode that is not named here does
 * not exist (name NULL, no header bytes): reserved values, RD, and what UC and UD leave out. XRC
 * (annex A14) has what RC has, with an XRCETH in every request. FLUSH and ATOMIC WRITE (annex A19)
 * are answered by an empty READ response.
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
#define XRCETH_BYTES 4
#define FETH_BYTES 4

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
	 HAS(f, VB_HAS_IETH, IETH_BYTES) + HAS(f, VB_HAS_XRCETH, XRCETH_BYTES) +                   \
	 HAS(f, VB_HAS_FETH, FETH_BYTES))

#define OPCODE(transport, op, f)                                                                   \
	[VB_TRANSPORT_##transport << 5 | VB_OP_##op] = {                                           \
		.name = #transport " " #op,                                                        \
		.flags = (f),                                                                      \
		.header_bytes = HEADER_BYTES(f),                                                   \
	}

/* What RC and UC have in common, and XRC, whose requests have one more header. */
/* clang-format off */
#define CONNECTED(transport, more)                                                                 \
	OPCODE(transport, SEND_FIRST, (more) | SEND | FIRST),                                      \
	OPCODE(transport, SEND_MIDDLE, (more) | SEND),                                             \
	OPCODE(transport, SEND_LAST, (more) | SEND | LAST),                                        \
	OPCODE(transport, SEND_LAST_IMM, (more) | SEND | LAST | VB_HAS_IMM),                       \
	OPCODE(transport, SEND_ONLY, (more) | SEND | ONLY),                                        \
	OPCODE(transport, SEND_ONLY_IMM, (more) | SEND | ONLY | VB_HAS_IMM),                       \
	OPCODE(transport, WRITE_FIRST, (more) | WRITE | FIRST | VB_HAS_RETH),                      \
	OPCODE(transport, WRITE_MIDDLE, (more) | WRITE),                                           \
	OPCODE(transport, WRITE_LAST, (more) | WRITE | LAST),                                      \
	OPCODE(transport, WRITE_LAST_IMM, (more) | WRITE | LAST | VB_HAS_IMM),                     \
	OPCODE(transport, WRITE_ONLY, (more) | WRITE | ONLY | VB_HAS_RETH),                        \
	OPCODE(transport, WRITE_ONLY_IMM, (more) | WRITE | ONLY | VB_HAS_RETH | VB_HAS_IMM)

/* What RC and XRC have beyond that. */
#define RELIABLE(transport, more)                                                                  \
	OPCODE(transport, READ_REQUEST, (more) | VB_IS_REQUEST | ONLY | VB_HAS_RETH),              \
	OPCODE(transport, READ_RESPONSE_FIRST, READ_RESPONSE | FIRST | VB_HAS_AETH),               \
	OPCODE(transport, READ_RESPONSE_MIDDLE, READ_RESPONSE),                                    \
	OPCODE(transport, READ_RESPONSE_LAST, READ_RESPONSE | LAST | VB_HAS_AETH),                 \
	OPCODE(transport, READ_RESPONSE_ONLY, READ_RESPONSE | ONLY | VB_HAS_AETH),                 \
	OPCODE(transport, ACK, VB_IS_RESPONSE | ONLY | VB_HAS_AETH),                               \
	OPCODE(transport, ATOMIC_ACK, VB_IS_RESPONSE | ONLY | VB_HAS_AETH | VB_HAS_ATOMIC_ACK),    \
	OPCODE(transport, CMP_SWP, (more) | VB_IS_REQUEST | ONLY | VB_HAS_ATOMIC),                 \
	OPCODE(transport, FETCH_ADD, (more) | VB_IS_REQUEST | ONLY | VB_HAS_ATOMIC),               \
	OPCODE(transport, SEND_LAST_INV, (more) | SEND | LAST | VB_HAS_IETH),                      \
	OPCODE(transport, SEND_ONLY_INV, (more) | SEND | ONLY | VB_HAS_IETH),                      \
	OPCODE(transport, FLUSH, (more) | VB_IS_REQUEST | ONLY | VB_HAS_FETH | VB_HAS_RETH),       \
	OPCODE(transport, ATOMIC_WRITE,                                                            \
	       (more) | VB_IS_REQUEST | ONLY | VB_HAS_RETH | VB_HAS_PAYLOAD)

/* clang-format on */

const struct vb_opcode_info vb_opcode_table[256] = {
	CONNECTED(RC, 0u),
	RELIABLE(RC, 0u),

	CONNECTED(UC, 0u),

	OPCODE(UD, SEND_ONLY, SEND | ONLY | VB_HAS_DETH),
	OPCODE(UD, SEND_ONLY_IMM, SEND | ONLY | VB_HAS_DETH | VB_HAS_IMM),

	CONNECTED(XRC, VB_HAS_XRCETH),
	RELIABLE(XRC, VB_HAS_XRCETH),
};
