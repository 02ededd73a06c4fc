/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heap.h - a binary heap of items by their time, for whoever has many deadlines and wants the
 * first.
 *
 * Items are members of the caller's objects (vb_container_of) and know their place, so that one can
 * be moved or taken out wherever it is. Room is reserved when objects are made: setting a time
 * cannot fail.
 */
#ifndef VB_BASE_HEAP_H
#define VB_BASE_HEAP_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/macros.h"

#define VB_HEAP_OUT UINT32_MAX

struct vb_heap_item {
	uint64_t key;
	uint32_t index; /* in items, or VB_HEAP_OUT */
};

/* The key once more: comparing reads no item, of which thousands are in nobody's cache. */
struct vb_heap_entry {
	uint64_t key;
	struct vb_heap_item *item;
};

struct vb_heap {
	struct vb_heap_entry *items;
	uint32_t count, room;
};

/* vb_heap_item_init - before its first use: it is in no heap. */
static inline void vb_heap_item_init(struct vb_heap_item *item)
{
	item->index = VB_HEAP_OUT;
}

static inline bool vb_heap_holds(const struct vb_heap_item *item)
{
	return item->index != VB_HEAP_OUT;
}

/* vb_heap_reserve - room for items of that number. 0 or -ENOMEM. */
static inline int vb_heap_reserve(struct vb_heap *heap, uint32_t number)
{
	uint32_t room = heap->room ? heap->room : 16;
	struct vb_heap_entry *items;

	if (number <= heap->room)
		return 0;
	while (room < number)
		room *= 2;
	items = realloc(heap->items, room * sizeof(items[0]));
	if (!items)
		return -ENOMEM;
	heap->items = items;
	heap->room = room;
	return 0;
}

static inline void vb_heap_finish(struct vb_heap *heap)
{
	free(heap->items);
	*heap = (struct vb_heap){0};
}

static inline void vb_heap_put(struct vb_heap *heap, uint32_t index, struct vb_heap_entry entry)
{
	heap->items[index] = entry;
	entry.item->index = index;
}

static inline void vb_heap_sift_up(struct vb_heap *heap, uint32_t index)
{
	const struct vb_heap_entry entry = heap->items[index];

	while (index > 0) {
		uint32_t parent = (index - 1) / 2;

		if (heap->items[parent].key <= entry.key)
			break;
		vb_heap_put(heap, index, heap->items[parent]);
		index = parent;
	}
	vb_heap_put(heap, index, entry);
}

static inline void vb_heap_sift_down(struct vb_heap *heap, uint32_t index)
{
	const struct vb_heap_entry entry = heap->items[index];

	for (;;) {
		uint32_t child = 2 * index + 1;

		if (child >= heap->count)
			break;
		if (child + 1 < heap->count && heap->items[child + 1].key < heap->items[child].key)
			child++;
		if (heap->items[child].key >= entry.key)
			break;
		vb_heap_put(heap, index, heap->items[child]);
		index = child;
	}
	vb_heap_put(heap, index, entry);
}

/* vb_heap_set - puts the item in, or moves it, to its new key. */
static inline void vb_heap_set(struct vb_heap *heap, struct vb_heap_item *item, uint64_t key)
{
	item->key = key;
	if (!vb_heap_holds(item)) {
		VB_ASSERT(heap->count < heap->room);
		item->index = heap->count++;
	}
	vb_heap_put(heap, item->index, (struct vb_heap_entry){key, item});
	vb_heap_sift_up(heap, item->index);
	vb_heap_sift_down(heap, item->index);
}

/* vb_heap_remove - takes it out, if it is in. */
static inline void vb_heap_remove(struct vb_heap *heap, struct vb_heap_item *item)
{
	uint32_t index = item->index;
	struct vb_heap_entry last;

	if (index == VB_HEAP_OUT)
		return;
	item->index = VB_HEAP_OUT;
	last = heap->items[--heap->count];
	if (last.item == item)
		return;
	vb_heap_put(heap, index, last);
	vb_heap_sift_up(heap, index);
	vb_heap_sift_down(heap, last.item->index);
}

/* vb_heap_first - of those that are in, one with the smallest key; NULL: none is. */
static inline struct vb_heap_item *vb_heap_first(const struct vb_heap *heap)
{
	return heap->count ? heap->items[0].item : NULL;
}

#endif
