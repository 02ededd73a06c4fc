/* SPDX-License-Identifier: BSD-2-Clause */
/* test_mr.c - protection domains, keys, and what the checks of a key say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "fake_nic.h"

#define ALL (VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL)

static uint8_t memory[256];

struct fixture {
	struct fake fake;
	struct vb_pd *pd, *other_pd;
	struct vb_mr *mr;
	struct vb_reason reason;
};

static void set_up(struct fixture *x, bool equal_keys)
{
	const struct vb_nic_config config = {.equal_keys = equal_keys};

	*x = (struct fixture){0};
	fake_init_with(&x->fake, &config);
	x->pd = vb_pd_create(x->fake.nic);
	x->other_pd = vb_pd_create(x->fake.nic);
	assert_non_null(x->pd);
	x->mr = vb_mr_create(x->pd, memory + 16, 100, 0x10000, ALL);
	assert_non_null(x->mr);
}

static void tear_down(struct fixture *x)
{
	vb_mr_destroy(x->mr);
	assert_int_equal(vb_pd_destroy(x->pd), 0);
	assert_int_equal(vb_pd_destroy(x->other_pd), 0);
	fake_finish(&x->fake);
}

static uint8_t *local(struct fixture *x, uint32_t lkey, uint64_t addr, uint32_t length)
{
	x->reason = (struct vb_reason){0};
	return vb_mr_local(x->fake.nic, x->pd, lkey, addr, length, VB_ACCESS_LOCAL_WRITE,
			   &x->reason);
}

static uint8_t *remote(struct fixture *x, uint32_t rkey, uint64_t va, uint64_t length)
{
	x->reason = (struct vb_reason){0};
	return vb_mr_remote(x->fake.nic, x->pd, 1, rkey, va, length, VB_ACCESS_REMOTE_READ,
			    &x->reason);
}

static void assert_refused(struct fixture *x, const uint8_t *got, enum vb_check check, uint64_t a,
			   uint64_t b, uint64_t c, uint64_t d)
{
	const uint64_t want[4] = {a, b, c, d};

	assert_null(got);
	assert_int_equal(x->reason.check, check);
	assert_memory_equal(x->reason.value, want, sizeof(want));
}

static void test_pd_is_busy_while_used(void **state)
{
	struct fixture x;

	set_up(&x, false);
	assert_int_not_equal(x.pd->id, 0);
	assert_int_not_equal(x.pd->id, x.other_pd->id);
	assert_int_equal(vb_pd_destroy(x.pd), -EBUSY);
	assert_int_equal(vb_pd_destroy(NULL), 0);
	vb_mr_destroy(NULL);
	tear_down(&x);
}

static void test_addresses(void **state)
{
	struct fixture x;

	set_up(&x, false);
	assert_ptr_equal(local(&x, x.mr->lkey, 0x10000, 100), memory + 16);
	assert_ptr_equal(local(&x, x.mr->lkey, 0x10063, 1), memory + 16 + 99);
	assert_ptr_equal(remote(&x, x.mr->rkey, 0x10032, 50), memory + 16 + 50);
	tear_down(&x);
}

static void test_range(void **state)
{
	struct fixture x;
	uint32_t l, r;

	set_up(&x, false);
	l = x.mr->lkey;
	r = x.mr->rkey;
	assert_refused(&x, local(&x, l, 0x10000, 101), VB_CHECK_SGE_RANGE, 0x10000, 101, 0x10000,
		       100);
	assert_refused(&x, local(&x, l, 0xffff, 1), VB_CHECK_SGE_RANGE, 0xffff, 1, 0x10000, 100);
	assert_refused(&x, local(&x, l, 0x10064, 1), VB_CHECK_SGE_RANGE, 0x10064, 1, 0x10000, 100);
	assert_refused(&x, local(&x, l, 0x10063, 2), VB_CHECK_SGE_RANGE, 0x10063, 2, 0x10000, 100);
	assert_refused(&x, local(&x, l, UINT64_MAX, UINT32_MAX), VB_CHECK_SGE_RANGE, UINT64_MAX,
		       UINT32_MAX, 0x10000, 100);
	/* Ends that wrap around to inside. */
	assert_refused(&x, remote(&x, r, 0x10001, UINT64_MAX), VB_CHECK_RKEY_RANGE, 0x10001,
		       UINT64_MAX, 0x10000, 100);
	assert_refused(&x, remote(&x, r, UINT64_MAX, 0x10002), VB_CHECK_RKEY_RANGE, UINT64_MAX,
		       0x10002, 0x10000, 100);
	tear_down(&x);
}

static void test_region_at_the_end_of_memory(void **state)
{
	struct fixture x;
	struct vb_mr *mr;

	set_up(&x, false);
	/* The last 100 addresses: the range ends at 2^64 and does not wrap. */
	mr = vb_mr_create(x.pd, memory, 100, UINT64_MAX - 99, ALL);
	assert_non_null(mr);
	assert_ptr_equal(remote(&x, mr->rkey, UINT64_MAX, 1), memory + 99);
	assert_null(remote(&x, mr->rkey, UINT64_MAX, 2));
	vb_mr_destroy(mr);

	errno = 0;
	assert_null(vb_mr_create(x.pd, memory, 100, UINT64_MAX - 98, ALL));
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_null(vb_mr_create(x.pd, memory, UINT64_MAX, 0, ALL));
	assert_int_equal(errno, EINVAL);
	tear_down(&x);
}

static void test_keys(void **state)
{
	struct fixture x;
	uint32_t unknown;

	set_up(&x, false);
	assert_int_not_equal(x.mr->lkey, x.mr->rkey);
	unknown = x.mr->lkey ^ 1; /* another slot */
	assert_refused(&x, local(&x, unknown, 0x10000, 8), VB_CHECK_SGE_LKEY_UNKNOWN, unknown,
		       0x10000, 8, 0);
	assert_refused(&x, remote(&x, unknown, 0x10000, 8), VB_CHECK_RKEY_UNKNOWN, unknown, 0x10000,
		       8, 0);
	/* The right slot with other upper bits is as unknown, unless it is the other key. */
	unknown = x.mr->lkey ^ 1u << 31;
	if (unknown == x.mr->rkey)
		unknown ^= 1u << 30;
	assert_null(local(&x, unknown, 0x10000, 8));
	assert_int_equal(x.reason.check, VB_CHECK_SGE_LKEY_UNKNOWN);
	assert_null(local(&x, 0, 0x10000, 8));
	assert_int_equal(x.reason.check, VB_CHECK_SGE_LKEY_UNKNOWN);
	tear_down(&x);
}

static void test_swapped_keys(void **state)
{
	struct fixture x;

	set_up(&x, false);
	assert_refused(&x, local(&x, x.mr->rkey, 0x10000, 8), VB_CHECK_SGE_IS_RKEY, x.mr->rkey,
		       0x10000, 8, 0);
	assert_refused(&x, remote(&x, x.mr->lkey, 0x10000, 8), VB_CHECK_RKEY_IS_LKEY, x.mr->lkey,
		       0x10000, 8, 0);
	tear_down(&x);

	set_up(&x, true);
	assert_int_equal(x.mr->lkey, x.mr->rkey);
	assert_non_null(local(&x, x.mr->rkey, 0x10000, 8));
	assert_non_null(remote(&x, x.mr->lkey, 0x10000, 8));
	tear_down(&x);
}

static void test_pd_and_rights(void **state)
{
	struct fixture x;
	struct vb_mr *mr;

	set_up(&x, false);
	mr = vb_mr_create(x.other_pd, memory, 8, 0, ALL);
	assert_non_null(mr);
	assert_refused(&x, local(&x, mr->lkey, 0, 8), VB_CHECK_SGE_PD, mr->lkey, x.other_pd->id,
		       x.pd->id, 0);
	assert_refused(&x, remote(&x, mr->rkey, 0, 8), VB_CHECK_RKEY_PD, mr->rkey, x.other_pd->id,
		       x.pd->id, 0);
	vb_mr_destroy(mr);

	mr = vb_mr_create(x.pd, memory, 8, 0, 0);
	assert_non_null(mr);
	assert_refused(&x, local(&x, mr->lkey, 0, 8), VB_CHECK_SGE_RIGHTS, mr->lkey,
		       VB_ACCESS_LOCAL_WRITE, 0, 0);
	assert_refused(&x, remote(&x, mr->rkey, 0, 8), VB_CHECK_RKEY_RIGHTS, mr->rkey,
		       VB_ACCESS_REMOTE_READ, 0, 0);
	/* Local read is always allowed. */
	assert_ptr_equal(vb_mr_local(x.fake.nic, x.pd, mr->lkey, 0, 8, 0, &x.reason), memory);
	vb_mr_destroy(mr);
	tear_down(&x);
}

static void test_no_bytes_need_no_key(void **state)
{
	struct fixture x;

	set_up(&x, false);
	assert_non_null(local(&x, 0xdeadbeef, 12345, 0));
	assert_non_null(remote(&x, 0, 0, 0));
	assert_int_equal(x.reason.check, VB_CHECK_NONE);
	tear_down(&x);
}

static void test_access_flags(void **state)
{
	const uint32_t bad[] = {VB_ACCESS_REMOTE_WRITE,
				VB_ACCESS_REMOTE_ATOMIC,
				VB_ACCESS_REMOTE_ALL,
				VB_ACCESS_ZERO_BASED,
				1 << 7,
				1u << 31};
	struct fixture x;
	struct vb_mr *mr;

	set_up(&x, false);
	for (size_t i = 0; i < VB_ARRAY_SIZE(bad); i++) {
		errno = 0;
		assert_null(vb_mr_create(x.pd, memory, 8, 0, bad[i]));
		assert_int_equal(errno, EINVAL);
	}
	mr = vb_mr_create(x.pd, memory, 8, 0, VB_ACCESS_REMOTE_READ);
	assert_non_null(mr);
	vb_mr_destroy(mr);
	tear_down(&x);
}

static void test_a_destroyed_key_is_unknown(void **state)
{
	struct fixture x;
	struct vb_mr *mr;
	uint32_t lkey, rkey;

	set_up(&x, false);
	mr = vb_mr_create(x.pd, memory, 8, 0, ALL);
	lkey = mr->lkey;
	rkey = mr->rkey;
	vb_mr_destroy(mr);
	assert_null(local(&x, lkey, 0, 8));
	assert_int_equal(x.reason.check, VB_CHECK_SGE_LKEY_UNKNOWN);
	assert_null(remote(&x, rkey, 0, 8));
	assert_int_equal(x.reason.check, VB_CHECK_RKEY_UNKNOWN);
	tear_down(&x);
}

/* All regions that there may be: each found by its own keys, none is 0; one more is refused. */
static void test_full_table(void **state)
{
	struct vb_mr **mrs = calloc(VB_MAX_MR, sizeof(*mrs));
	struct fixture x;
	uint32_t n;

	assert_non_null(mrs);
	set_up(&x, false);
	for (n = 0; n < VB_MAX_MR - 1; n++) {
		mrs[n] = vb_mr_create(x.pd, memory, 8, n, ALL);
		assert_non_null(mrs[n]);
	}
	errno = 0;
	assert_null(vb_mr_create(x.pd, memory, 8, 0, ALL));
	assert_int_equal(errno, ENOMEM);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_not_equal(mrs[i]->lkey, 0);
		assert_int_not_equal(mrs[i]->rkey, 0);
		assert_int_not_equal(mrs[i]->lkey, mrs[i]->rkey);
		assert_ptr_equal(local(&x, mrs[i]->lkey, i, 8), memory);
		assert_ptr_equal(remote(&x, mrs[i]->rkey, i, 8), memory);
		vb_mr_destroy(mrs[i]);
	}
	free(mrs);
	tear_down(&x);
}

/* A random source that always says 0 must not hang the search, give key 0 or make keys equal. */
static void test_stuck_random(void **state)
{
	struct vb_mr *mrs[8];
	struct fixture x;

	set_up(&x, false);
	x.fake.random_stuck = true;
	x.fake.seed = 0;
	for (size_t i = 0; i < VB_ARRAY_SIZE(mrs); i++) {
		mrs[i] = vb_mr_create(x.pd, memory, 8, 0, ALL);
		assert_non_null(mrs[i]);
		assert_int_not_equal(mrs[i]->lkey, 0);
		assert_int_not_equal(mrs[i]->lkey, mrs[i]->rkey);
	}
	for (size_t i = 0; i < VB_ARRAY_SIZE(mrs); i++)
		vb_mr_destroy(mrs[i]);
	tear_down(&x);
}

/* A region from elsewhere keeps its keys, unless another has their slot. */
static void test_keys_from_elsewhere(void **state)
{
	struct fixture x;
	struct vb_mr *again;
	uint32_t lkey, rkey;

	set_up(&x, false);
	lkey = x.mr->lkey;
	rkey = x.mr->rkey;
	again = vb_mr_create_again(x.pd, memory, 10, 0, ALL, lkey, rkey);
	assert_non_null(again);
	assert_int_not_equal(vb_key_slot(again->lkey), vb_key_slot(lkey));
	vb_mr_destroy(again);
	vb_mr_destroy(x.mr);
	x.mr = vb_mr_create_again(x.pd, memory, 10, 0, ALL, lkey, rkey);
	assert_non_null(x.mr);
	assert_int_equal(x.mr->lkey, lkey);
	assert_int_equal(x.mr->rkey, rkey);
	assert_ptr_equal(local(&x, lkey, 2, 4), memory + 2);
	assert_ptr_equal(remote(&x, rkey, 2, 4), memory + 2);
	/* Two keys of two slots are nobody's. */
	again = vb_mr_create_again(x.pd, memory, 10, 0, ALL, lkey + (1u << VB_KEY_TAG_BITS), rkey);
	assert_non_null(again);
	assert_int_equal(vb_key_slot(again->lkey), vb_key_slot(again->rkey));
	vb_mr_destroy(again);
	tear_down(&x);
}

static void test_a_null_region(void **state)
{
	struct fixture x;
	struct vb_mr *null;
	uint8_t *at;

	set_up(&x, false);
	null = vb_mr_create_null(x.pd);
	assert_non_null(null);
	at = local(&x, null->lkey, UINT64_MAX, UINT32_MAX);
	assert_non_null(at);
	assert_true(vb_mr_is_null(at));
	assert_false(vb_mr_is_null(local(&x, x.mr->lkey, 0x10000, 1)));
	assert_refused(&x, remote(&x, null->rkey, 0, 1), VB_CHECK_RKEY_UNKNOWN, null->rkey, 0, 1,
		       0);
	assert_null(vb_mr_local(x.fake.nic, x.other_pd, null->lkey, 0, 1, 0, &x.reason));
	assert_int_equal(x.reason.check, VB_CHECK_SGE_PD);
	assert_int_equal(vb_mr_destroy(null), 0);
	tear_down(&x);
}

static void test_change(void **state)
{
	const struct vb_mr_change wraps = {NULL, memory, UINT64_MAX, 0, ALL};
	struct vb_mr_change change;
	struct fixture x;
	uint32_t lkey, rkey;

	set_up(&x, false);
	lkey = x.mr->lkey;
	rkey = x.mr->rkey;
	change = (struct vb_mr_change){x.other_pd, memory, 8, 0, VB_ACCESS_LOCAL_WRITE};
	assert_int_equal(vb_mr_judge_change(x.mr, &change), 0);
	assert_int_equal(x.mr->length, 100);
	assert_int_equal(vb_mr_change(x.mr, &wraps), -EINVAL);
	assert_int_equal(x.mr->length, 100);
	assert_int_equal(vb_mr_change(x.mr, &change), 0);
	assert_int_equal(x.mr->lkey, lkey);
	assert_int_equal(x.mr->rkey, rkey);
	assert_null(local(&x, lkey, 0, 8));
	assert_int_equal(x.reason.check, VB_CHECK_SGE_PD);
	assert_ptr_equal(vb_mr_local(x.fake.nic, x.other_pd, lkey, 0, 8, 0, &x.reason), memory);
	assert_int_equal(vb_pd_destroy(x.other_pd), -EBUSY);
	change.access = VB_ACCESS_REMOTE_WRITE;
	assert_int_equal(vb_mr_change(x.mr, &change), -EINVAL);
	assert_int_equal(x.mr->access, VB_ACCESS_LOCAL_WRITE);
	tear_down(&x);
}

/* What the surroundings are asked about a region on demand, and about no other. */
static struct {
	const void *at;
	uint64_t length;
	unsigned int count;
	bool write, answer;
} asked;

static bool note_asked(void *env, const void *at, uint64_t length, bool write)
{
	asked.at = at;
	asked.length = length;
	asked.write = write;
	asked.count++;
	return asked.answer;
}

static void test_on_demand(void **state)
{
	struct fixture x;
	struct vb_mr *mr;

	set_up(&x, false);
	x.fake.nic->ops.present = note_asked;
	asked.count = 0;
	mr = vb_mr_create(x.pd, NULL, UINT64_MAX, 0, ALL | VB_ACCESS_ON_DEMAND);
	assert_non_null(mr);
	asked.answer = true;
	assert_non_null(vb_mr_remote(x.fake.nic, x.pd, 1, mr->rkey, 5000, 100,
				     VB_ACCESS_REMOTE_READ | VB_WANT_PRESENT, &x.reason));
	assert_int_equal(asked.count, 1);
	assert_ptr_equal(asked.at, (void *)5000);
	assert_int_equal(asked.length, 100);
	assert_false(asked.write);
	assert_non_null(vb_mr_remote(x.fake.nic, x.pd, 1, mr->rkey, 5000, 1u << 30,
				     VB_ACCESS_REMOTE_ATOMIC | VB_WANT_PRESENT, &x.reason));
	assert_int_equal(asked.length, VB_PRESENT_BYTES);
	assert_true(asked.write);
	assert_non_null(vb_mr_remote(x.fake.nic, x.pd, 1, mr->rkey, 5000, 1, VB_ACCESS_REMOTE_READ,
				     &x.reason));
	assert_non_null(
		vb_mr_local(x.fake.nic, x.pd, x.mr->lkey, 0x10000, 1, VB_WANT_PRESENT, &x.reason));
	assert_int_equal(asked.count, 2);
	asked.answer = false;
	assert_null(vb_mr_remote(x.fake.nic, x.pd, 1, mr->rkey, 5000, 100,
				 VB_ACCESS_REMOTE_READ | VB_WANT_PRESENT, &x.reason));
	assert_int_equal(x.reason.check, VB_CHECK_RKEY_ABSENT);
	assert_null(vb_mr_local(x.fake.nic, x.pd, mr->lkey, 5000, 100,
				VB_ACCESS_LOCAL_WRITE | VB_WANT_PRESENT, &x.reason));
	assert_int_equal(x.reason.check, VB_CHECK_SGE_ABSENT);
	assert_true(asked.write);
	assert_int_equal(vb_mr_destroy(mr), 0);
	tear_down(&x);
}

static void test_check_names(void **state)
{
	for (int i = 0; i < VB_CHECK_COUNT; i++) {
		assert_string_not_equal(vb_check_name((enum vb_check)i), "unknown");
		for (int j = 0; j < i; j++)
			assert_string_not_equal(vb_check_name((enum vb_check)i),
						vb_check_name((enum vb_check)j));
	}
	assert_string_equal(vb_check_name(VB_CHECK_RKEY_RANGE), "rkey-range");
	assert_string_equal(vb_check_name((enum vb_check)9999), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pd_is_busy_while_used),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_range),
		cmocka_unit_test(test_region_at_the_end_of_memory),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_swapped_keys),
		cmocka_unit_test(test_pd_and_rights),
		cmocka_unit_test(test_no_bytes_need_no_key),
		cmocka_unit_test(test_access_flags),
		cmocka_unit_test(test_a_destroyed_key_is_unknown),
		cmocka_unit_test(test_full_table),
		cmocka_unit_test(test_stuck_random),
		cmocka_unit_test(test_keys_from_elsewhere),
		cmocka_unit_test(test_a_null_region),
		cmocka_unit_test(test_change),
		cmocka_unit_test(test_on_demand),
		cmocka_unit_test(test_check_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
