/* SPDX-License-Identifier: BSD-2-Clause */
/* ring.h - rings whose size is a power of two, indexed by free-running 32-bit counters. */
#ifndef VB_BASE_RING_H
#define VB_BASE_RING_H

#include <stdint.h>

/* vb_ring_mask - the size - 1 of the smallest ring with room for entries (at most 2^31). 0 and 1
 * entries make a ring of one. */
static inline uint32_t vb_ring_mask(uint32_t entries)
{
	return entries <= 1 ? 0 : UINT32_MAX >> __builtin_clz(entries - 1);
}

#endif
