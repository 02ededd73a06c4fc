/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * settings.h - every VERBENA_* setting, in one table.
 *
 * The table is what parses the environment, what a refusal quotes, what `verbena settings` prints
 * and what the man page is made from. A setting that is absent or empty has its default.
 */
#ifndef VB_HOST_SETTINGS_H
#define VB_HOST_SETTINGS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define VB_SETTINGS_MAX_ADDRESSES 16u

struct vb_settings {
	struct in6_addr addresses[VB_SETTINGS_MAX_ADDRESSES]; /* IPv4 mapped */
	uint32_t scope_ids[VB_SETTINGS_MAX_ADDRESSES];	      /* of fe80::1%eth0, else 0 */
	unsigned int address_count;			      /* 0: choose one */
	bool equal_keys;
	bool lid;
	bool local;
	bool direct;
	bool redirect;
	bool share;
	bool ring;
};

struct vb_setting {
	const char *name;
	const char *meaning;  /* one sentence */
	const char *allowed;  /* fits behind "allowed is " */
	const char *fallback; /* the default, in words where it is no literal */
	/* parse - false: text is not allowed; why then holds what is wrong with it, or "" */
	bool (*parse)(struct vb_settings *settings, const char *text, char *why, size_t size);
};

/* vb_settings_table - all of them. */
const struct vb_setting *vb_settings_table(size_t *count);

/* vb_settings_read - defaults, then what get (getenv, or a test's own) returns for each name. 0, or
 * -EINVAL after a sentence for each wrong value went to complaints. */
int vb_settings_read(struct vb_settings *out, const char *(*get)(const char *name),
		     FILE *complaints);

/* vb_setting_refuse - the refusal's sentence: what was set, what is wrong with it, what is allowed.
 */
void vb_setting_refuse(FILE *complaints, const char *name, const char *value, const char *why);

/* vb_settings - this process's, read at the first call. NULL: something is wrong, and was said
 * then. */
const struct vb_settings *vb_settings(void);

#endif
