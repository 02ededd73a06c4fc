/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * files.h - the files in a registry's directory, for the carriers that live in shared memory.
 *
 *      seg.<N>        one per slot: 4 KiB of header, then an area that the local carrier lays out
 *      bell.<N>       the one file of slot N that its peers may write: doorbells
 *      ring.<N>.<M>   from slot N to slot M; N writes, M reads
 *      tmp.<N>.<k>    a file of slot N on its way to its name
 *
 * Every file begins with struct vb_file_header. A file gets its name by rename(2) when it is
 * complete, so a name never shows half a file, and a replaced file lives on for those who have it
 * mapped: they learn from `closed` that it has no owner any more. `closed` is set by the owner when
 * it leaves, and by whoever sweeps up after an owner that died.
 *
 * A peer checks a file before it maps it: a regular file of our user, of the exact size, whose
 * header says the kind and slot that its name says. Bytes are reserved before they are written, so
 * that a full /dev/shm is an error here and not a SIGBUS later. What this does not hold against is
 * a process of the same user that truncates a file while others have it mapped: that process could
 * as well kill them.
 */
#ifndef VB_REGISTRY_FILES_H
#define VB_REGISTRY_FILES_H

#include <stddef.h>

#include "registry/registry.h"

#define VB_FILE_MAGIC 0x616e65627265762eull /* ".verbena" on a little-endian machine */
#define VB_FILE_VERSION 1u
#define VB_FILE_PAGE 4096u
#define VB_SEGMENT_BYTES (10u << 20) /* sparse: only what is reserved takes memory */

enum vb_file_kind { VB_FILE_SEGMENT, VB_FILE_BELL, VB_FILE_RING };

struct vb_file_header {
	uint64_t magic;
	uint32_t version;
	uint32_t kind;	   /* enum vb_file_kind */
	uint64_t bytes;	   /* the file's size */
	uint64_t instance; /* of the owner */
	uint64_t pid_ns;   /* inode of the owner's PID namespace, in which pid counts */
	uint32_t pid;
	uint16_t slot;	 /* of the owner */
	uint16_t peer;	 /* the other slot in the name; 0: none */
	uint32_t closed; /* not 0: nobody owns this file any more */
	uint8_t reserved[12];
};

/* vb_registry_file_create - a new file without a name yet, of bytes, of which the first reserve are
 * backed by memory; its header is written. Returns the descriptor or -errno. *number goes to
 * vb_registry_file_publish() or vb_registry_file_abandon(). */
int vb_registry_file_create(struct vb_registry *registry, enum vb_file_kind kind, uint16_t peer,
			    size_t bytes, size_t reserve, uint32_t *number) VB_MUST_USE;
/* vb_registry_file_publish - gives it its name, replacing what had it. */
int vb_registry_file_publish(struct vb_registry *registry, enum vb_file_kind kind, uint16_t peer,
			     uint32_t number) VB_MUST_USE;
void vb_registry_file_abandon(struct vb_registry *registry, uint32_t number);

/* vb_registry_file_open - another slot's file (or ours), checked. Returns the descriptor, its
 * header in *header, or -ENOENT, -EBADMSG (not what its name says), other -errno. It may be closed.
 */
int vb_registry_file_open(struct vb_registry *registry, enum vb_file_kind kind, uint16_t slot,
			  uint16_t peer, size_t bytes, bool writable,
			  struct vb_file_header *header) VB_MUST_USE;
/* vb_registry_file_remove - unlinks one of our own files. */
void vb_registry_file_remove(struct vb_registry *registry, enum vb_file_kind kind, uint16_t peer);

/* vb_registry_file_retire - what is left of a ring that its dead owner sent to us and that has been
 * read to its end: its memory is freed and, when nobody has taken the slot meanwhile, its name.
 * Only a file of that instance is touched. */
void vb_registry_file_retire(struct vb_registry *registry, uint16_t slot, uint64_t instance);

/* vb_file_map - maps [0, bytes) and makes sure that the file still has that size. -errno. */
int vb_file_map(int fd, size_t bytes, bool writable, void **out) VB_MUST_USE;

/* vb_registry_segment - our own segment, VB_SEGMENT_BYTES, writable. */
void *vb_registry_segment(struct vb_registry *registry);
/* vb_registry_reserve - backs a range of our own segment with memory. 0, -ENOSPC, -errno. */
int vb_registry_reserve(struct vb_registry *registry, size_t offset, size_t bytes) VB_MUST_USE;

/* vb_registry_pid_ns - inode of this process's PID namespace, 0 when unknown. */
uint64_t vb_registry_pid_ns(const struct vb_registry *registry);

/* vb_registry_check - whether we still hold what we joined: 0; -EBADF: the program closed our
 * descriptor (closefrom(3)) and with it the slot; -ESTALE: somebody unlinked the registry's files.
 */
int vb_registry_check(const struct vb_registry *registry);

#endif
