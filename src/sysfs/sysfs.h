/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sysfs.h - the files that the kernel would show of our devices, for programs that look beside the
 * libraries.
 *
 *      sys/class/infiniband/verbena0        ->
 * ../../devices/verbena/verbena0:00.0/infiniband/verbena0 sys/class/infiniband_verbs/uverbs0   ->
 * ... sys/class/infiniband_mad/umad0       -> ... sys/devices/verbena/verbena0:00.0/   the adapter:
 * vendor, numa_node, net/<interface>, driver infiniband/verbena0/         node_guid,
 * ports/1/{state,gids,counters,...} infiniband_verbs/uverbs0/ infiniband_mad/umad0/
 *      dev/infiniband/{uverbs0,umad0,rdma_cm}   -> /dev/null
 *
 *   describe.c   which files there are and what each one says
 *   tree.c       writes them below a directory
 *   shared.c     the one tree of this user's processes with the same devices, and its end
 *
 * A file either never changes while the process lives, or is one of a port's state and counters.
 * What those say in a tree is of when it was written; vb_sysfs_value() says what they would say
 * now.
 */
#ifndef VB_SYSFS_SYSFS_H
#define VB_SYSFS_SYSFS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/macros.h"
#include "host/host.h"

#define VB_SYSFS_TEXT_MAX 256u /* no file says more */

/* What describe.c says, file by file. Paths begin with "sys/" or "dev/". */
struct vb_sysfs_sink {
	/* file - text; moves: it may say something else the next time. 0, or -errno, which ends the
	 * description. */
	int (*file)(struct vb_sysfs_sink *sink, const char *path, const char *text, bool moves);
	int (*link)(struct vb_sysfs_sink *sink, const char *path, const char *target);
};

/* vb_sysfs_describe - all of these devices, as they are now. 0 or what a sink returned. */
int vb_sysfs_describe(struct vb_device *const *list, int count, struct vb_sysfs_sink *sink);

/* vb_sysfs_describe_moving - of one device, what moves alone. */
int vb_sysfs_describe_moving(struct vb_device *device, struct vb_sysfs_sink *sink);

/* vb_sysfs_write - everything, below an empty directory. 0 or -errno. */
int vb_sysfs_write(int root_fd, struct vb_device *const *list, int count) VB_MUST_USE;
/* vb_sysfs_seen_create - what was written last, of so many devices: nothing yet. NULL: no memory.
 */
struct vb_sysfs_seen *vb_sysfs_seen_create(int count);
void vb_sysfs_seen_destroy(struct vb_sysfs_seen *seen);
/* vb_sysfs_refresh - writes anew what has moved since it was seen, each file at once. 0 or -errno.
 */
int vb_sysfs_refresh(int root_fd, struct vb_device *const *list, int count,
		     struct vb_sysfs_seen *seen) VB_MUST_USE;
/* vb_sysfs_remove - the directory `name` below parent_fd, with all that is in it. */
void vb_sysfs_remove(int parent_fd, const char *name);

/* vb_sysfs_is_moving - whether a path ("/sys/...") is that of a file whose text moves. */
bool vb_sysfs_is_moving(const char *path);
/* vb_sysfs_is_refused - whether it is that of a file that is there, and that the kernel does not
 * let be read (EINVAL): about an entry of the table of GIDs that has none. In a tree it is empty.
 */
bool vb_sysfs_is_refused(struct vb_device *const *list, int count, const char *path);
/* vb_sysfs_value - what it says now. Bytes, or -ENOENT: there is no such file. */
int vb_sysfs_value(struct vb_device *const *list, int count, const char *path,
		   char text[VB_SYSFS_TEXT_MAX]);

/* vb_sysfs_shared - the directory of this user's tree, made if need be, without a "/" at its end;
 * stays valid. NULL: there are no devices, or no place for it. */
const char *vb_sysfs_shared(void);
/* vb_sysfs_shared_made - the same where one was made already. */
const char *vb_sysfs_shared_made(void);
/* vb_sysfs_shared_device - where it lies; 0: none was made. */
dev_t vb_sysfs_shared_device(void);

/* vb_sysfs_sweep - removes trees of this user that nobody uses, as killed processes leave them: so
 * many, and without waiting. */
void vb_sysfs_sweep(void);

#endif
