/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * both_ways.h - a story that is told twice, to a NIC that may take a short way and to one that may
 * not: what can be seen of it is written down, and must be the same.
 */
#ifndef TESTS_UNIT_CORE_BOTH_WAYS_H
#define TESTS_UNIT_CORE_BOTH_WAYS_H

#include "fake_nic.h"

#define NOTES_BYTES 65536u

struct notes {
	uint8_t bytes[NOTES_BYTES];
	uint32_t count;
};

static inline void note(struct notes *notes, const void *what, size_t bytes)
{
	assert_true(notes->count + bytes <= NOTES_BYTES);
	if (bytes)
		memcpy(notes->bytes + notes->count, what, bytes);
	notes->count += (uint32_t)bytes;
}

/* Numbers, each as 64 bits. */
#define NOTE(notes, ...)                                                                           \
	note(notes, (const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}))

/* A packet that went the long way; the fake has it already. */
static inline void note_packet(struct notes *notes, const struct fake *fake,
			       const struct vb_headers *headers)
{
	uint8_t header[VB_HEADERS_MAX];
	const int n = vb_headers_encode(headers, header, sizeof(header));

	assert_true(n > 0);
	note(notes, header, (size_t)n);
	note(notes, fake->tx_payload, fake->tx_bytes);
}

/* One that went the short way. */
static inline void note_short_packet(struct notes *notes, const struct vb_short *packet)
{
	note(notes, packet->header, packet->header_bytes);
	note(notes, packet->payload, packet->bytes);
}

/* All that are in the CQ. */
static inline void note_completions(struct notes *notes, struct vb_cq *cq, const struct vb_qp *qp)
{
	struct vb_cqe cqe;

	while (vb_cq_poll(cq, &cqe, 1) == 1) {
		NOTE(notes, cqe.wr_id, cqe.qp == qp, cqe.status, cqe.opcode, cqe.byte_len, cqe.imm,
		     cqe.wc_flags, cqe.vendor_err, cqe.qpn, cqe.src_qpn, cqe.sl, cqe.solicited,
		     cqe.is_send, cqe.time_ns);
		if (cqe.is_send)
			NOTE(notes, cqe.sq_slots_until);
	}
}

static inline void assert_same_notes(const struct notes *a, const struct notes *b)
{
	assert_int_equal(a->count, b->count);
	assert_memory_equal(a->bytes, b->bytes, a->count);
}

#endif
