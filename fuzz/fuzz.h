/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz.h - what a fuzz target offers, and how it reads its input.
 *
 * An input is a program: the target takes numbers from its front, and zeros once it is used up, so
 * that a cut of a good input is a good input too.
 */
#ifndef VB_FUZZ_FUZZ_H
#define VB_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* LLVMFuzzerTestOneInput - libFuzzer's entry point. Returns 0; a fault aborts. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct vb_fuzz_input {
	const uint8_t *at, *end;
};

static inline bool vb_fuzz_is_empty(const struct vb_fuzz_input *in)
{
	return in->at == in->end;
}

static inline uint8_t vb_fuzz_u8(struct vb_fuzz_input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

static inline uint16_t vb_fuzz_u16(struct vb_fuzz_input *in)
{
	uint16_t low = vb_fuzz_u8(in);

	return (uint16_t)(low | vb_fuzz_u8(in) << 8);
}

static inline uint32_t vb_fuzz_u32(struct vb_fuzz_input *in)
{
	uint32_t low = vb_fuzz_u16(in);

	return low | (uint32_t)vb_fuzz_u16(in) << 16;
}

/* vb_fuzz_below - a number of 0 .. n - 1; n is at most 256. */
static inline uint32_t vb_fuzz_below(struct vb_fuzz_input *in, uint32_t n)
{
	return vb_fuzz_u8(in) % n;
}

#endif
