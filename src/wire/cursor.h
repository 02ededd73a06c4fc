/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cursor.h - bytes of a packet, taken from the front, with the bound inside.
 *
 * A codec takes a whole header at once: one comparison proves that all its bytes are there, and the
 * fields are then loads and stores at constant offsets, big-endian, at any alignment. A compiler
 * makes one instruction (and a byte swap) of each.
 *
 *      const uint8_t *p = vb_reader_take(&r, 16);
 *      if (!p)
 *              return -EBADMSG;
 *      va = vb_load_be64(p);
 *      rkey = vb_load_be32(p + 8);
 */
#ifndef VB_WIRE_CURSOR_H
#define VB_WIRE_CURSOR_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct vb_reader {
	const uint8_t *at, *end;
};

struct vb_writer {
	uint8_t *at, *end;
};

/* vb_reader_take - the next bytes and moves past them; NULL, unmoved, when fewer are left. */
static inline const uint8_t *vb_reader_take(struct vb_reader *r, size_t bytes)
{
	const uint8_t *at = r->at;

	if (__builtin_expect((size_t)(r->end - at) < bytes, 0))
		return NULL;
	r->at = at + bytes;
	return at;
}

/* vb_writer_take - room for the next bytes and moves past it; NULL, unmoved, when less is left. */
static inline uint8_t *vb_writer_take(struct vb_writer *w, size_t bytes)
{
	uint8_t *at = w->at;

	if (__builtin_expect((size_t)(w->end - at) < bytes, 0))
		return NULL;
	w->at = at + bytes;
	return at;
}

static inline uint16_t vb_load_be16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return be16toh(v);
}

static inline uint32_t vb_load_be32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

static inline uint64_t vb_load_be64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

static inline void vb_store_be16(uint8_t *p, uint16_t v)
{
	v = htobe16(v);
	memcpy(p, &v, sizeof(v));
}

static inline void vb_store_be32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, sizeof(v));
}

static inline void vb_store_be64(uint8_t *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, sizeof(v));
}

#endif
