/* SPDX-License-Identifier: BSD-2-Clause */
/* test_heap.c - against a model: an array that is searched from end to end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/heap.h"

#define ITEMS 40
#define STEPS 200000

static uint64_t state = 0x9e3779b97f4a7c15u;

static uint32_t draw(uint32_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32) % below;
}

static void agrees_with_a_search(void **unused)
{
	struct vb_heap_item items[ITEMS];
	uint64_t key[ITEMS];
	bool in[ITEMS] = {false};
	struct vb_heap heap = {0};

	for (int i = 0; i < ITEMS; i++)
		vb_heap_item_init(&items[i]);
	assert_int_equal(vb_heap_reserve(&heap, ITEMS), 0);
	for (int step = 0; step < STEPS; step++) {
		uint32_t i = draw(ITEMS), count = 0;
		const struct vb_heap_item *first;
		uint64_t least = UINT64_MAX;

		if (draw(3)) {
			key[i] = draw(100); /* equal keys are common */
			in[i] = true;
			vb_heap_set(&heap, &items[i], key[i]);
		} else {
			in[i] = false;
			vb_heap_remove(&heap, &items[i]);
		}
		for (int k = 0; k < ITEMS; k++) {
			assert_int_equal(vb_heap_holds(&items[k]), in[k]);
			if (!in[k])
				continue;
			count++;
			assert_int_equal(items[k].key, key[k]);
			least = key[k] < least ? key[k] : least;
		}
		assert_int_equal(heap.count, count);
		first = vb_heap_first(&heap);
		assert_int_equal(first != NULL, count > 0);
		if (first)
			assert_int_equal(first->key, least);
	}
	vb_heap_finish(&heap);
}

static void room_grows_and_items_stay(void **unused)
{
	struct vb_heap_item items[100];
	struct vb_heap heap = {0};

	for (uint32_t i = 0; i < 100; i++) {
		vb_heap_item_init(&items[i]);
		assert_int_equal(vb_heap_reserve(&heap, i + 1), 0);
		vb_heap_set(&heap, &items[i], 100 - i);
	}
	for (uint64_t key = 1; key <= 100; key++) {
		struct vb_heap_item *first = vb_heap_first(&heap);

		assert_int_equal(first->key, key);
		vb_heap_remove(&heap, first);
	}
	assert_null(vb_heap_first(&heap));
	vb_heap_finish(&heap);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agrees_with_a_search),
		cmocka_unit_test(room_grows_and_items_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
