/* SPDX-License-Identifier: BSD-2-Clause */
/* writer.h - between the files of this part: where a description is, and its first error. */
#ifndef VB_SYSFS_WRITER_H
#define VB_SYSFS_WRITER_H

#include "sysfs/sysfs.h"

struct vb_sysfs_writer {
	struct vb_sysfs_sink *sink;
	char directory[192]; /* of the files that are named next */
	int rc;
};

/* vb_sysfs_say - a file; nothing once something failed. */
__attribute__((format(printf, 3, 4))) void vb_sysfs_say(struct vb_sysfs_writer *w, const char *name,
							const char *format, ...);
/* vb_sysfs_point - a symbolic link. */
void vb_sysfs_point(struct vb_sysfs_writer *w, const char *name, const char *target);
/* vb_sysfs_enter - below this directory of a device's adapter; "": the adapter's own. */
void vb_sysfs_enter(struct vb_sysfs_writer *w, const struct vb_device *device, const char *below);

/* vb_sysfs_describe_adapter - what a PCI device's directory would have. */
void vb_sysfs_describe_adapter(struct vb_sysfs_writer *w, const struct vb_device *device);
/* vb_sysfs_describe_driver - once for all adapters. */
void vb_sysfs_describe_driver(struct vb_sysfs_writer *w);

#endif
