/* SPDX-License-Identifier: BSD-2-Clause */
/* settings.c - see settings.h. */
#include "host/settings.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "host/address.h"

static bool parse_switch(const char *text, bool *out)
{
	if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
		return false;
	*out = text[0] == '1';
	return true;
}

static bool parse_equal_keys(struct vb_settings *settings, const char *text, char *why, size_t size)
{
	return parse_switch(text, &settings->equal_keys);
}

static bool parse_lid(struct vb_settings *settings, const char *text, char *why, size_t size)
{
	return parse_switch(text, &settings->lid);
}

static bool parse_local(struct vb_settings *settings, const char *text, char *why, size_t size)
{
	return parse_switch(text, &settings->local);
}

static bool parse_direct(struct vb_settings *settings, const char *text, char *why, size_t size)
{
	return parse_switch(text, &settings->direct);
}

static bool parse_redirect(struct vb_settings *settings, const char *text, char *why, size_t size)
{
	return parse_switch(text, &settings->redirect);
}

static bool parse_ring(struct vb_settings *settings, const char *text, char *why, size_t size)
{
	return parse_switch(text, &settings->ring);
}

static bool parse_share(struct vb_settings *settings, const char *text, char *why, size_t size)
{
	return parse_switch(text, &settings->share);
}

/* One address of the list: 10.0.0.1, fd00::1, fe80::1%eth0. */
static bool parse_address(const char *item, struct in6_addr *address, uint32_t *scope_id)
{
	char text[INET6_ADDRSTRLEN + IF_NAMESIZE + 1];
	struct in_addr ipv4;
	char *scope;

	if (strlen(item) >= sizeof(text))
		return false;
	strcpy(text, item);
	*scope_id = 0;
	if (inet_pton(AF_INET, text, &ipv4) == 1) {
		*address = vb_address_from_ipv4(ipv4);
		return ipv4.s_addr != INADDR_ANY && !vb_address_is_multicast(address);
	}
	scope = strchr(text, '%');
	if (scope)
		*scope++ = '\0';
	if (inet_pton(AF_INET6, text, address) != 1 || IN6_IS_ADDR_UNSPECIFIED(address) ||
	    vb_address_is_multicast(address))
		return false;
	if (!scope)
		return true;
	*scope_id = if_nametoindex(scope);
	return *scope_id != 0 && IN6_IS_ADDR_LINKLOCAL(address);
}

static bool parse_addresses(struct vb_settings *settings, const char *text, char *why, size_t size)
{
	char *copy = strdup(text), *rest = copy, *item;
	bool good = copy != NULL;

	while (good && (item = strsep(&rest, ",")) != NULL) {
		unsigned int n = settings->address_count;

		if (n == VB_SETTINGS_MAX_ADDRESSES) {
			snprintf(why, size, "it names more than %u addresses",
				 VB_SETTINGS_MAX_ADDRESSES);
			good = false;
		} else if (!parse_address(item, &settings->addresses[n], &settings->scope_ids[n])) {
			snprintf(why, size, "\"%.64s\" is not the address of a host", item);
			good = false;
		} else {
			settings->address_count++;
		}
	}
	free(copy);
	return good;
}

static const struct vb_setting table[] = {
	{
		.name = "VERBENA_ADDR",
		.meaning = "The address of this process's host; several give several devices, "
			   "verbena0, verbena1 and so on, in this order.",
		.allowed = "one or more IPv4 or IPv6 addresses of this machine's interfaces, "
			   "separated by "
			   "commas, at most 16; any address of 127.0.0.0/8 is a virtual host",
		.fallback = "the first address that is up and not loopback, else 127.0.0.1",
		.parse = parse_addresses,
	},
	{
		.name = "VERBENA_EQUAL_KEYS",
		.meaning =
			"1 gives a memory region one key as both lkey and rkey, for programs that "
			"mix them up.",
		.allowed = "0 or 1",
		.fallback = "0",
		.parse = parse_equal_keys,
	},
	{
		.name = "VERBENA_LID",
		.meaning =
			"1 gives each port a LID, the last 16 bits of its address, and InfiniBand "
			"as "
			"its link layer, and takes a LID in place of a GID, for programs that know "
			"InfiniBand alone; the hosts' addresses may differ in those bits only.",
		.allowed = "0 or 1",
		.fallback = "0",
		.parse = parse_lid,
	},
	{
		.name = "VERBENA_LOCAL",
		.meaning = "0 sends everything as UDP packets, between processes of one host too; "
			   "both ends "
			   "must have the same.",
		.allowed = "0 or 1",
		.fallback = "1",
		.parse = parse_local,
	},
	{
		.name = "VERBENA_DIRECT",
		.meaning =
			"0 keeps this process from copying straight between its memory and another "
			"process's, and others from copying to and from its own; packets do it.",
		.allowed = "0 or 1",
		.fallback = "1",
		.parse = parse_direct,
	},
	{
		.name = "VERBENA_REDIRECT",
		.meaning = "0 leaves a program's looks at /sys/class/infiniband, /dev/infiniband "
			   "and the "
			   "like to the system; else it finds Verbena's devices there.",
		.allowed = "0 or 1",
		.fallback = "1",
		.parse = parse_redirect,
	},
	{
		.name = "VERBENA_RING",
		.meaning =
			"0 receives by UDP sockets alone; else short datagrams come by a ring of "
			"memory that the kernel fills, without a system call, where the process "
			"has "
			"CAP_NET_RAW and Linux is 6.6 or newer.",
		.allowed = "0 or 1",
		.fallback = "1",
		.parse = parse_ring,
	},
	{
		.name = "VERBENA_SHARE",
		.meaning = "1 lets the processes of one host that have it set map each other's "
			   "registered "
			   "memory, for the shortest times; whole pages of private memory only, of "
			   "which at most 4 MiB are in use when it is registered.",
		.allowed = "0 or 1",
		.fallback = "0",
		.parse = parse_share,
	},
};

const struct vb_setting *vb_settings_table(size_t *count)
{
	*count = VB_ARRAY_SIZE(table);
	return table;
}

void vb_setting_refuse(FILE *complaints, const char *name, const char *value, const char *why)
{
	for (size_t i = 0; i < VB_ARRAY_SIZE(table); i++) {
		if (strcmp(table[i].name, name) != 0)
			continue;
		fprintf(complaints, "verbena: %s=\"%.200s\" is refused%s%s; allowed is %s.\n", name,
			value, *why ? ": " : "", why, table[i].allowed);
	}
}

int vb_settings_read(struct vb_settings *out, const char *(*get)(const char *name),
		     FILE *complaints)
{
	int rc = 0;

	*out = (struct vb_settings){.local = true, .direct = true, .redirect = true, .ring = true};
	for (size_t i = 0; i < VB_ARRAY_SIZE(table); i++) {
		const char *text = get(table[i].name);
		char why[160] = "";

		if (!text || !*text || table[i].parse(out, text, why, sizeof(why)))
			continue;
		vb_setting_refuse(complaints, table[i].name, text, why);
		rc = -EINVAL;
	}
	return rc;
}

static struct vb_settings settings_of_process;
static bool settings_are_good;

static const char *from_environment(const char *name)
{
	return getenv(name);
}

static void read_once(void)
{
	settings_are_good = vb_settings_read(&settings_of_process, from_environment, stderr) == 0;
}

const struct vb_settings *vb_settings(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_once);
	return settings_are_good ? &settings_of_process : NULL;
}
