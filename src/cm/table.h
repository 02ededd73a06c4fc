/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * table.h - a hash table of nodes that lie in the objects themselves.
 *
 * Whoever looks something up walks the nodes of one hash and compares the keys himself. Hashes are
 * keyed by a secret of the manager, since peers choose what is in them. The table grows with what
 * it holds; when there is no memory for that, its chains grow instead.
 */
#ifndef VB_CM_TABLE_H
#define VB_CM_TABLE_H

#include <stdbool.h>
#include <stdint.h>

struct vb_cm_entry {
	struct vb_cm_entry *next;
	uint64_t hash; /* 0: in no table */
};

struct vb_cm_table {
	struct vb_cm_entry **buckets;
	uint32_t mask, count;
};

/* vb_cm_hash - of two words under a secret; never 0. */
static inline uint64_t vb_cm_hash(uint64_t secret, uint64_t a, uint64_t b)
{
	unsigned __int128 m = (unsigned __int128)(a ^ secret) * 0x9e3779b97f4a7c15ull;
	uint64_t h = (uint64_t)m ^ (uint64_t)(m >> 64) ^ b;

	m = (unsigned __int128)(h ^ (secret >> 32 | secret << 32)) * 0xd6e8feb86659fd93ull;
	return ((uint64_t)m ^ (uint64_t)(m >> 64)) | 1ull << 63;
}

/* vb_cm_table_init - 0 or -ENOMEM. */
int vb_cm_table_init(struct vb_cm_table *table);
void vb_cm_table_finish(struct vb_cm_table *table);
/* vb_cm_table_add - a node that is in no table. */
void vb_cm_table_add(struct vb_cm_table *table, struct vb_cm_entry *node, uint64_t hash);
/* vb_cm_table_remove - does nothing when it is in none. */
void vb_cm_table_remove(struct vb_cm_table *table, struct vb_cm_entry *node);
/* vb_cm_table_first, vb_cm_table_next - the nodes of one hash, the last added first; NULL: no more.
 */
struct vb_cm_entry *vb_cm_table_first(const struct vb_cm_table *table, uint64_t hash);
struct vb_cm_entry *vb_cm_table_next(const struct vb_cm_entry *node);

#endif
