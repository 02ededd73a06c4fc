/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * look.h - what a device's port does, for those who only look: the generated sysfs files.
 *
 * The device need not be alive in this process: then the interface is asked, and the registry is
 * read without joining it. So looking costs no slot, no socket and no thread.
 */
#ifndef VB_HOST_LOOK_H
#define VB_HOST_LOOK_H

#include "host/host.h"
#include "host/performance.h"
#include "host/traffic.h"

struct vb_look {
	enum vb_port_state port;
	struct vb_port_counters counters;
	uint64_t traffic[VB_TRAFFIC_KINDS]; /* the host's sums, never set back */
};

/* vb_host_look - outside. Where nobody is on the host, nothing has been counted. */
void vb_host_look(struct vb_device *device, struct vb_look *out);

#endif
