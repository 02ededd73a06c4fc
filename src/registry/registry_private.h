/* SPDX-License-Identifier: BSD-2-Clause */
/* registry_private.h - what the registry's own files share: directory.c, slots.c, files.c, ports.c,
 * leftovers.c, registry.c. */
#ifndef VB_REGISTRY_REGISTRY_PRIVATE_H
#define VB_REGISTRY_REGISTRY_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "registry/directory.h"
#include "registry/files.h"
#include "registry/registry.h"

#define VB_REGISTRY_MAGIC 0x76627265u
/* The table's size is part of its version: two layouts never share a file. */
#define VB_REGISTRY_VERSION (2u << 24 | (uint32_t)sizeof(struct vb_registry_shared))
/* Page 0 of the file is the locks' bytes, the shared table lies behind it. */
#define VB_REGISTRY_SHARED_BYTES                                                                   \
	((sizeof(struct vb_registry_shared) + VB_FILE_PAGE - 1) / VB_FILE_PAGE * VB_FILE_PAGE)
#define VB_REGISTRY_FILE_BYTES (VB_FILE_PAGE + VB_REGISTRY_SHARED_BYTES)
#define VB_REGISTRY_LOCK_BYTE 600      /* whoever holds it works on shared, joins or leaves */
#define VB_REGISTRY_LOCK_WAIT_MS 10000 /* a stopped holder is an error, not a hang */
#define VB_DIRECTORY_NAME_MAX 96
#define VB_PORTS_NAME "ports"
#define VB_PORT_SPACES 5u
#define VB_PORT_PAGES 1280u /* of words in the file of ports */

struct vb_registry_private {
	int dir_fd; /* <netns>-<address> */
	int reg_fd; /* the locks hang on it */
	int seg_fd;
	ino_t reg_inode;
	pid_t pid;	   /* the process that joined; a forked child is another */
	unsigned int refs; /* joins of this address in this process */
	uint64_t pid_ns;
	uint32_t next_temporary;
	char name[VB_DIRECTORY_NAME_MAX]; /* of the directory */
	uint8_t *segment;
	int ports_fd;
	ino_t ports_inode;
	uint8_t *ports;					  /* the file of ports, mapped */
	_Atomic uint64_t ports_pages[VB_PORT_PAGES / 64]; /* those known to have memory */
	pthread_mutex_t lock; /* POSIX locks do not hold threads of one process apart */
};

/* directory.c */
/* vb_directory_name - "<netns>-<address>" of the calling thread's network namespace. 0 or -errno.
 */
int vb_directory_name(const struct in6_addr *address, char out[VB_DIRECTORY_NAME_MAX]) VB_MUST_USE;
/* vb_directory_open - opens, and makes where it is missing, the directory. The descriptor, -EAGAIN:
 * it vanished while we looked, try again; -EACCES: not ours alone; other -errno. */
int vb_directory_open(const char *name) VB_MUST_USE;
/* vb_directory_open_file - a file of it, to read; nothing is made. The descriptor or -errno. */
int vb_directory_open_file(const char *name, const char *file) VB_MUST_USE;
/* vb_directory_remove - if empty. */
void vb_directory_remove(const char *name);
/* vb_directory_pid_ns - inode of the PID namespace, 0 when unknown. */
uint64_t vb_directory_pid_ns(void);

/* slots.c: locks on bytes of `reg` */
/* vb_slot_try - -EAGAIN when another process holds it. */
int vb_slot_try(int reg_fd, unsigned int byte) VB_MUST_USE;
void vb_slot_release(int reg_fd, unsigned int byte);
/* vb_slot_holder - whether ANOTHER process holds one of the bytes, and, if pid is not NULL, which
 * (0: not visible in our PID namespace). */
bool vb_slot_holder(int reg_fd, unsigned int first, unsigned int count, pid_t *pid);
/* vb_slot_take_random - a free slot chosen at random and now held, or -ENOSPC. */
int vb_slot_take_random(int reg_fd) VB_MUST_USE;
/* vb_slot_wait - as vb_slot_try, for at most wait_ms; -ETIMEDOUT. */
int vb_slot_wait(int reg_fd, unsigned int byte, unsigned int wait_ms) VB_MUST_USE;

/* files.c */
/* vb_files_sweep - with the registry's lock: removes what owners left that hold no slot any more,
 * and the files of our own slot (when joining, those of its owner before us; when leaving, ours).
 */
void vb_files_sweep(struct vb_registry *registry);

/* leftovers.c */
#define VB_LEFTOVERS_MAX 128 /* hosts that one look is about */
/* vb_leftovers_sweep - while nobody of this process joins or leaves: removes the registries of
 * other hosts in which nobody is. Waits for nobody. */
void vb_leftovers_sweep(void);

/* registry.c */
/* vb_registry_has_joined - whether this process is in the registry of that directory; as above. */
bool vb_registry_has_joined(const char *name);

/* ports.c */
/* vb_ports_open - with the registry's lock and our slot. 0 or -errno. */
int vb_ports_open(struct vb_registry *registry) VB_MUST_USE;
/* vb_ports_withdraw - with the lock: our ports are free. */
void vb_ports_withdraw(struct vb_registry *registry);
/* vb_ports_close - touches nothing shared. */
void vb_ports_close(struct vb_registry_private *p);

#endif
