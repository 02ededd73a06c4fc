/* SPDX-License-Identifier: BSD-2-Clause */
/* table.c - the hash table of table.h: chains, a power of two of them, doubled when it is full. */
#include "cm/table.h"

#include <errno.h>
#include <stdlib.h>

#define FIRST_BUCKETS 16u
#define MAX_BUCKETS (1u << 20)

static struct vb_cm_entry **bucket_of(const struct vb_cm_table *table, uint64_t hash)
{
	return &table->buckets[hash & table->mask];
}

int vb_cm_table_init(struct vb_cm_table *table)
{
	table->buckets = calloc(FIRST_BUCKETS, sizeof(*table->buckets));
	table->mask = FIRST_BUCKETS - 1;
	table->count = 0;
	return table->buckets ? 0 : -ENOMEM;
}

void vb_cm_table_finish(struct vb_cm_table *table)
{
	free(table->buckets);
	table->buckets = NULL;
}

static void grow(struct vb_cm_table *table)
{
	struct vb_cm_table larger = {.mask = table->mask * 2 + 1, .count = table->count};

	if (larger.mask >= MAX_BUCKETS)
		return;
	larger.buckets = calloc(larger.mask + 1, sizeof(*larger.buckets));
	if (!larger.buckets)
		return;
	for (uint32_t i = 0; i <= table->mask; i++) {
		struct vb_cm_entry *node = table->buckets[i];

		while (node) {
			struct vb_cm_entry *next = node->next;
			struct vb_cm_entry **bucket = bucket_of(&larger, node->hash);

			node->next = *bucket;
			*bucket = node;
			node = next;
		}
	}
	free(table->buckets);
	*table = larger;
}

void vb_cm_table_add(struct vb_cm_table *table, struct vb_cm_entry *node, uint64_t hash)
{
	struct vb_cm_entry **bucket;

	if (table->count > table->mask)
		grow(table);
	bucket = bucket_of(table, hash);
	node->hash = hash;
	node->next = *bucket;
	*bucket = node;
	table->count++;
}

void vb_cm_table_remove(struct vb_cm_table *table, struct vb_cm_entry *node)
{
	struct vb_cm_entry **at;

	if (!node->hash)
		return;
	at = bucket_of(table, node->hash);
	while (*at != node)
		at = &(*at)->next;
	*at = node->next;
	node->next = NULL;
	node->hash = 0;
	table->count--;
}

static struct vb_cm_entry *skip(struct vb_cm_entry *node, uint64_t hash)
{
	while (node && node->hash != hash)
		node = node->next;
	return node;
}

struct vb_cm_entry *vb_cm_table_first(const struct vb_cm_table *table, uint64_t hash)
{
	return skip(*bucket_of(table, hash), hash);
}

struct vb_cm_entry *vb_cm_table_next(const struct vb_cm_entry *node)
{
	return skip(node->next, node->hash);
}
