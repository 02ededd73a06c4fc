/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pairs.c - what libibumad has had since rdma-core 53: some adapters show subnet management and the
 * rest as two devices, which belong together. Ours are both in one.
 *
 * The header that this is built with may not have these calls yet, or may have them: they have
 * other names here, and their own where programs look for them.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "umad/face.h"

#define EXPORT __attribute__((visibility("default")))

/* struct umad_ca_pair */
struct pair {
	char smi_name[UMAD_CA_NAME_LEN];
	uint32_t smi_preferred_port;
	char gsi_name[UMAD_CA_NAME_LEN];
	uint32_t gsi_preferred_port;
};

EXPORT int open_smi_port(const char *ca_name, int portnum) __asm__("umad_open_smi_port");
EXPORT int get_pairs(struct pair pairs[], size_t max) __asm__("umad_get_smi_gsi_pairs");
EXPORT int get_pair(const char *ca_name, uint8_t portnum, struct pair *pair,
		    unsigned int enforce_smi) __asm__("umad_get_smi_gsi_pair_by_ca_name");

int open_smi_port(const char *ca_name, int portnum)
{
	return umad_open_port(ca_name, portnum);
}

static void fill(const struct vb_device *device, struct pair *pair)
{
	*pair = (struct pair){
		.smi_preferred_port = VB_UMAD_PORT,
		.gsi_preferred_port = VB_UMAD_PORT,
	};
	snprintf(pair->smi_name, sizeof(pair->smi_name), "%.*s", UMAD_CA_NAME_LEN - 1,
		 device->name);
	memcpy(pair->gsi_name, pair->smi_name, sizeof(pair->gsi_name));
}

int get_pairs(struct pair pairs[], size_t max)
{
	struct vb_device *const *list;
	int count = vb_host_devices(&list), filled = 0;

	while (filled < count && (size_t)filled < max) {
		fill(list[filled], &pairs[filled]);
		filled++;
	}
	return filled;
}

int get_pair(const char *ca_name, uint8_t portnum, struct pair *pair, unsigned int enforce_smi)
{
	struct vb_device *device;

	if (!pair)
		return -1;
	memset(pair, 0, sizeof(*pair));
	if (vb_umad_find(ca_name, portnum, &device)) {
		errno = ENODEV;
		return -ENODEV;
	}
	fill(device, pair);
	return 0;
}
