/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dmabuf.c - regions over a descriptor (ibv_reg_dmabuf_mr(3)).
 *
 * Whatever can be mapped will do: a dma-buf whose exporter allows it, a memfd, a file, a device.
 * The region is a shared mapping of our own, which ends with it; the descriptor may be closed
 * before.
 *
 *      file      |          | offset ... offset + length |
 *      mapping         |    | the region                 |  |     from a whole page, or huge page,
 *                                                                 to a whole one
 *
 * A file may be cut while it is registered, and to touch what was cut off ends a process. Such a
 * region is treated as one on demand: what is gone is an error of the request. That has its price
 * in system calls; a file that cannot be cut, a memfd sealed with F_SEAL_SHRINK, does not pay it,
 * nor do dma-bufs and devices.
 *
 * What the kernel refuses is refused alike: rights that a dma-buf cannot have, an offset and an
 * iova that lie differently in their pages, a descriptor that is no such thing, a range behind its
 * end (EINVAL), none at all (EBADF).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "verbs/face.h"

#define WRITES (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define ACCESS (WRITES | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING)
#define MAX_UNIT (1ull << 30) /* the largest huge page */

static int check(uint64_t offset, size_t length, uint64_t iova, unsigned int access)
{
	const uint64_t in_page = (uint64_t)sysconf(_SC_PAGESIZE) - 1;
	uint64_t end;

	if (access & ~(unsigned int)ACCESS || !length ||
	    __builtin_add_overflow(offset, length, &end) || end > INT64_MAX)
		return EINVAL;
	if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	return (offset & in_page) != (iova & in_page) ? EINVAL : 0;
}

/* Whether the range lies in it, and what its mappings begin at multiples of. 0 or the errno. */
static int measure(int fd, uint64_t end, uint64_t *unit)
{
	struct stat status;
	off_t size;

	if (fstat(fd, &status) < 0)
		return EBADF;
	*unit = (uint64_t)sysconf(_SC_PAGESIZE);
	switch (status.st_mode & S_IFMT) {
	case S_IFREG: /* of hugetlbfs this is the size of a huge page */
		if ((uint64_t)status.st_blksize > *unit && (uint64_t)status.st_blksize < MAX_UNIT &&
		    !(status.st_blksize & (status.st_blksize - 1)))
			*unit = (uint64_t)status.st_blksize;
		return end > (uint64_t)status.st_size ? EINVAL : 0;
	case 0: /* a dma-buf has no type, and tells its size by seeking */
		size = lseek(fd, 0, SEEK_END);
		lseek(fd, 0, SEEK_SET);
		return size < 0 || end > (uint64_t)size ? EINVAL : 0;
	case S_IFCHR: /* it knows itself how far it can be mapped */
	case S_IFBLK:
		return 0;
	default:
		return EINVAL;
	}
}

static bool can_be_cut(int fd)
{
	const int seals = fcntl(fd, F_GET_SEALS);
	struct stat status;

	return !(seals >= 0 && seals & F_SEAL_SHRINK) && fstat(fd, &status) == 0 &&
	       S_ISREG(status.st_mode);
}

/* 0 or the errno. */
static int map(int fd, uint64_t offset, size_t length, unsigned int access,
	       struct vb_mr_backing *backing)
{
	int rights = PROT_READ | (access & WRITES ? PROT_WRITE : 0);
	uint64_t unit, start;
	int error = measure(fd, offset + length, &unit);

	if (error)
		return error;
	start = offset / unit * unit;
	backing->mapped = (offset + length - start + unit - 1) / unit * unit;
	backing->mapping = mmap(NULL, backing->mapped, rights, MAP_SHARED, fd, (off_t)start);
	if (backing->mapping != MAP_FAILED) {
		backing->offset = offset - start;
		return 0;
	}
	backing->mapping = NULL;
	return errno == ENODEV ? EINVAL : errno; /* cannot be mapped: not what was asked for */
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access)
{
	struct vb_mr_backing *backing;
	struct vb_face_mr *mr;

	errno = check(offset, length, iova, (unsigned int)access);
	if (errno)
		return NULL;
	backing = calloc(1, sizeof(*backing));
	if (!backing) {
		errno = ENOMEM;
		return NULL;
	}
	errno = map(fd, offset, length, (unsigned int)access, backing);
	if (errno) {
		free(backing);
		return NULL;
	}
	mr = vb_face_mr_create(pd, (uint8_t *)backing->mapping + backing->offset, length, iova,
			       (unsigned int)access | (can_be_cut(fd) ? IBV_ACCESS_ON_DEMAND : 0),
			       backing);
	if (!mr) {
		int error = errno;

		munmap(backing->mapping, backing->mapped);
		free(backing);
		errno = error;
		return NULL;
	}
	mr->ibv.addr = (void *)(uintptr_t)offset; /* as the genuine library has it */
	return &mr->ibv;
}
