/* SPDX-License-Identifier: BSD-2-Clause */
/* test_settings.c - what each VERBENA_ setting takes, and the sentence that refuses the rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "host/address.h"
#include "host/settings.h"

static const char *asked_name, *asked_value;

static const char *one_setting(const char *name)
{
	return asked_name && strcmp(name, asked_name) == 0 ? asked_value : NULL;
}

/* Reads with one setting set; *said is what was complained, to be freed. */
static int read_with(const char *name, const char *value, struct vb_settings *out, char **said)
{
	size_t size;
	FILE *complaints = open_memstream(said, &size);
	int rc;

	asked_name = name;
	asked_value = value;
	rc = vb_settings_read(out, one_setting, complaints);
	fclose(complaints);
	return rc;
}

static void defaults(void **state)
{
	struct vb_settings settings;
	char *said;

	assert_int_equal(read_with(NULL, NULL, &settings, &said), 0);
	assert_string_equal(said, "");
	assert_int_equal(settings.address_count, 0);
	assert_false(settings.equal_keys);
	assert_false(settings.lid);
	assert_true(settings.local);
	assert_true(settings.direct);
	assert_true(settings.redirect);
	free(said);
}

static void empty_is_default(void **state)
{
	size_t count;
	const struct vb_setting *table = vb_settings_table(&count);

	for (size_t i = 0; i < count; i++) {
		struct vb_settings settings;
		char *said;

		assert_int_equal(read_with(table[i].name, "", &settings, &said), 0);
		assert_string_equal(said, "");
		assert_true(settings.local && settings.direct && !settings.equal_keys);
		free(said);
	}
}

static void wrong_values(void **state)
{
	static const struct {
		const char *name, *value;
	} wrong[] = {
		{"VERBENA_EQUAL_KEYS", "2"},
		{"VERBENA_EQUAL_KEYS", "yes"},
		{"VERBENA_LID", "7"},
		{"VERBENA_LOCAL", "-1"},
		{"VERBENA_LOCAL", "00"},
		{"VERBENA_LOCAL", " 1"},
		{"VERBENA_DIRECT", "on"},
		{"VERBENA_SHARE", "true"},
		{"VERBENA_RING", "off"},
		{"VERBENA_ADDR", "eth0"},
		{"VERBENA_ADDR", "10.0.0.256"},
		{"VERBENA_ADDR", "10.0.0.1:4791"},
		{"VERBENA_ADDR", "10.0.0.1,,10.0.0.2"},
		{"VERBENA_ADDR", "10.0.0.1,"},
		{"VERBENA_ADDR", ","},
		{"VERBENA_ADDR", "10.0.0.1 10.0.0.2"},
		{"VERBENA_ADDR", "0.0.0.0"},
		{"VERBENA_ADDR", "224.0.0.1"},
		{"VERBENA_ADDR", "255.255.255.255"},
		{"VERBENA_ADDR", "::"},
		{"VERBENA_ADDR", "ff02::1"},
		{"VERBENA_ADDR", "fe80::1%no-such-if"},
		{"VERBENA_ADDR", "fd00::1%lo"},
		{"VERBENA_ADDR", "127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4,127.0.0.5,127.0.0.6,"
				 "127.0.0.7,127.0.0.8,127.0.0.9,127.0.0.10,127.0.0.11,127.0.0.12,"
				 "127.0.0.13,127.0.0.14,127.0.0.15,127.0.0.16,127.0.0.17"},
	};

	for (size_t i = 0; i < VB_ARRAY_SIZE(wrong); i++) {
		struct vb_settings settings;
		char *said;

		assert_int_equal(read_with(wrong[i].name, wrong[i].value, &settings, &said),
				 -EINVAL);
		/* one line, which names the setting, the value, and what is allowed */
		assert_non_null(strstr(said, wrong[i].name));
		assert_non_null(strstr(said, wrong[i].value));
		assert_non_null(strstr(said, "allowed is "));
		assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
		free(said);
	}
}

static void very_long_value(void **state)
{
	struct vb_settings settings;
	char *value = malloc(100001), *said;

	memset(value, 'x', 100000);
	value[100000] = '\0';
	assert_int_equal(read_with("VERBENA_ADDR", value, &settings, &said), -EINVAL);
	assert_true(strlen(said) < 1000);
	free(said);
	free(value);
}

static void addresses(void **state)
{
	struct vb_settings settings;
	char *said, text[VB_ADDRESS_TEXT];

	assert_int_equal(read_with("VERBENA_ADDR", "127.0.0.2,fd00::1,::ffff:10.1.2.3,fe80::1%lo",
				   &settings, &said),
			 0);
	assert_string_equal(said, "");
	assert_int_equal(settings.address_count, 4);
	assert_string_equal(vb_address_text(&settings.addresses[0], text), "127.0.0.2");
	assert_string_equal(vb_address_text(&settings.addresses[1], text), "fd00::1");
	assert_string_equal(vb_address_text(&settings.addresses[2], text), "10.1.2.3");
	assert_string_equal(vb_address_text(&settings.addresses[3], text), "fe80::1");
	assert_int_equal(settings.scope_ids[2], 0);
	assert_int_not_equal(settings.scope_ids[3], 0);
	free(said);
}

static void as_many_as_devices(void **state)
{
	struct vb_settings settings;
	char *said, list[16 * 16] = "";

	for (int i = 1; i <= 16; i++)
		sprintf(list + strlen(list), "%s127.0.0.%d", i > 1 ? "," : "", i);
	assert_int_equal(read_with("VERBENA_ADDR", list, &settings, &said), 0);
	assert_int_equal(settings.address_count, 16);
	free(said);
}

static void switches(void **state)
{
	struct vb_settings settings;
	char *said;

	assert_int_equal(read_with("VERBENA_EQUAL_KEYS", "1", &settings, &said), 0);
	assert_true(settings.equal_keys);
	free(said);
	assert_int_equal(read_with("VERBENA_LID", "1", &settings, &said), 0);
	assert_true(settings.lid);
	free(said);
	assert_int_equal(read_with("VERBENA_LOCAL", "0", &settings, &said), 0);
	assert_false(settings.local);
	assert_true(settings.direct);
	free(said);
	assert_int_equal(read_with("VERBENA_DIRECT", "0", &settings, &said), 0);
	assert_false(settings.direct);
	assert_true(settings.local);
	assert_false(settings.share);
	free(said);
	assert_int_equal(read_with("VERBENA_SHARE", "1", &settings, &said), 0);
	assert_true(settings.share);
	assert_true(settings.ring);
	free(said);
	assert_int_equal(read_with("VERBENA_RING", "0", &settings, &said), 0);
	assert_false(settings.ring);
	free(said);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults),	cmocka_unit_test(empty_is_default),
		cmocka_unit_test(wrong_values), cmocka_unit_test(very_long_value),
		cmocka_unit_test(addresses),	cmocka_unit_test(as_many_as_devices),
		cmocka_unit_test(switches),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
