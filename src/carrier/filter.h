/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * filter.h - a small program for the kernel (classic BPF), written one instruction after the other.
 *
 * A question that is asked before it is known where its answers lead jumps to VB_FILTER_NO or
 * VB_FILTER_YES; vb_filter_land() says where these are. Jumps are short (8 bits), and forwards.
 */
#ifndef VB_CARRIER_FILTER_H
#define VB_CARRIER_FILTER_H

#include <linux/filter.h>
#include <stdint.h>

#include "base/macros.h"

#define VB_FILTER_NO 0xffu
#define VB_FILTER_YES 0xfeu

struct vb_filter {
	struct sock_filter *code;
	unsigned int length, room;
};

static inline void vb_filter_add(struct vb_filter *f, struct sock_filter instruction)
{
	VB_ASSERT(f->length < f->room);
	f->code[f->length++] = instruction;
}

/* vb_filter_load - what lies at this place of the packet; size: BPF_B, BPF_H or BPF_W. */
static inline void vb_filter_load(struct vb_filter *f, uint16_t size, uint32_t at)
{
	vb_filter_add(f, (struct sock_filter)BPF_STMT(BPF_LD | size | BPF_ABS, at));
}

/* vb_filter_ask - of what was loaded; test: BPF_JEQ, BPF_JGE and their like. Where an answer leads
 * is a number of instructions to leave out, or one of the two above. */
static inline void vb_filter_ask(struct vb_filter *f, uint16_t test, uint32_t value, uint8_t yes,
				 uint8_t no)
{
	vb_filter_add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | test | BPF_K, value, yes, no));
}

static inline void vb_filter_must_be(struct vb_filter *f, uint32_t value)
{
	vb_filter_ask(f, BPF_JEQ, value, 0, VB_FILTER_NO);
}

static inline void vb_filter_return(struct vb_filter *f, uint32_t value)
{
	vb_filter_add(f, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, value));
}

static inline uint8_t vb_filter_distance(uint8_t jump, unsigned int from, unsigned int no,
					 unsigned int yes)
{
	const unsigned int distance = (jump == VB_FILTER_NO ? no : yes) - from - 1;

	if (jump < VB_FILTER_YES)
		return jump;
	VB_ASSERT(distance < VB_FILTER_YES);
	return (uint8_t)distance;
}

/* vb_filter_land - no, yes: indices of instructions, behind all that ask. */
static inline void vb_filter_land(struct vb_filter *f, unsigned int no, unsigned int yes)
{
	for (unsigned int i = 0; i < f->length; i++) {
		struct sock_filter *at = &f->code[i];

		if (BPF_CLASS(at->code) != BPF_JMP)
			continue;
		at->jt = vb_filter_distance(at->jt, i, no, yes);
		at->jf = vb_filter_distance(at->jf, i, no, yes);
	}
}

#endif
