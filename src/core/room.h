/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * room.h - where the rings of an object lie: in one piece of memory that its owner gave, or on the
 * heap.
 *
 *      given    | ring | SGEs | inline data | ...     each at a multiple of VB_ROOM_STEP
 *
 * Who gives memory asks first how much (vb_cq_room and kin), zeroes it, keeps it until the object
 * is destroyed, and then frees it.
 */
#ifndef VB_CORE_ROOM_H
#define VB_CORE_ROOM_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define VB_ROOM_ALIGN ((size_t)64) /* of the whole */
#define VB_ROOM_STEP ((size_t)16)

/* vb_room_bytes - what count elements take in given memory. */
static inline size_t vb_room_bytes(size_t count, size_t size)
{
	return (count * size + VB_ROOM_STEP - 1) / VB_ROOM_STEP * VB_ROOM_STEP;
}

/* vb_room_take - the next piece of *room, or of the heap where that is NULL. */
static inline void *vb_room_take(void **room, size_t count, size_t size)
{
	void *piece = *room;

	if (!piece)
		return calloc(count, size);
	*room = (uint8_t *)piece + vb_room_bytes(count, size);
	return piece;
}

#endif
