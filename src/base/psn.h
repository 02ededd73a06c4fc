/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * psn.h - arithmetic on packet sequence numbers: 24 bits, modulo 2^24 (IBTA 9.7.2).
 *
 * Of two PSNs, a is before b when going forward from a to b takes fewer than 2^23 steps.
 * Every PSN that is stored is already masked.
 */
#ifndef VB_BASE_PSN_H
#define VB_BASE_PSN_H

#include <stdbool.h>
#include <stdint.h>

#define VB_PSN_MASK 0xffffffu

static inline uint32_t vb_psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & VB_PSN_MASK;
}

/* vb_psn_diff - how many steps forward a is from b: -2^23 .. 2^23 - 1. */
static inline int32_t vb_psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

static inline bool vb_psn_before(uint32_t a, uint32_t b)
{
	return vb_psn_diff(a, b) < 0;
}

#endif
