/* SPDX-License-Identifier: BSD-2-Clause */
/* device.h - from settings and interfaces to devices; see device.c. */
#ifndef VB_HOST_DEVICE_H
#define VB_HOST_DEVICE_H

#include <stdio.h>

#include "host/host.h"
#include "host/interface.h"
#include "host/settings.h"

/* vb_devices_make - fills out (room for VB_MAX_DEVICES). Returns how many, or -EINVAL after a
 * sentence to complaints. A function of its arguments alone. */
int vb_devices_make(const struct vb_settings *settings, const struct vb_ifaddr *interfaces,
		    size_t count, struct vb_device *out, FILE *complaints);

/* vb_device_owns - whether address (not a GID) is one of the device's own. */
bool vb_device_owns(const struct vb_device *device, const struct in6_addr *address);

/* vb_device_addresses - its addresses in the order that all processes of the host have, whichever
 * of them VERBENA_ADDR named. Returns how many, at most VB_MAX_GIDS. */
unsigned int vb_device_addresses(const struct vb_device *device, struct in6_addr *addresses,
				 uint32_t *scope_ids);

#endif
