/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dm.c - device memory (ibv_alloc_dm(3)).
 *
 * An adapter's own memory, small and scarce, is here a shared anonymous mapping: a forked child
 * sees the same bytes, as it would see the adapter's. Each process has VB_MAX_DM bytes of it on
 * each device. No engine is needed to allocate and copy, so that a child may do it with what it
 * inherited. Registered, it is a region like any other, zero based.
 *
 * A page and more of it can be had as a descriptor (ibv_dm_export_dmabuf_fd(3)): it is a memfd. By
 * that another process imports it.
 *
 * Copies are of whole words at word offsets, as adapters want them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "verbs/exports.h"

#define WORD 4u
#define GRANULE 64u /* what a piece takes is a multiple of it */
#define ACCESS                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_OPTIONAL_RANGE)

struct vb_dm_memory {
	uint8_t *base; /* page aligned: enough for every alignment */
	size_t length;
	int fd; /* -1: less than a page */
	unsigned int device;
	bool foreign; /* another process's, which has it on its account */
	atomic_uint regions;
};

static _Atomic uint64_t taken[VB_MAX_DEVICES]; /* bytes */

static uint64_t granules(uint64_t length)
{
	return (length + GRANULE - 1) / GRANULE * GRANULE;
}

static bool take(unsigned int device, uint64_t bytes)
{
	uint64_t before = atomic_load(&taken[device]);

	do {
		if (bytes > VB_MAX_DM - before)
			return false;
	} while (!atomic_compare_exchange_weak(&taken[device], &before, before + bytes));
	return true;
}

static void free_memory(struct vb_dm_memory *memory)
{
	if (!memory->foreign)
		atomic_fetch_sub(&taken[memory->device], granules(memory->length));
	munmap(memory->base, memory->length);
	if (memory->fd >= 0)
		close(memory->fd);
	free(memory);
}

/* -1: it is too small for one of its own, or there is none to be had. */
static int make_descriptor(size_t length)
{
	int fd;

	if (length < (size_t)sysconf(_SC_PAGESIZE))
		return -1;
	fd = memfd_create("verbena-dm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)length) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* NULL: there is not so much left. */
static struct vb_dm_memory *make_memory(unsigned int device, size_t length)
{
	struct vb_dm_memory *memory = calloc(1, sizeof(*memory));

	if (!memory || !take(device, granules(length))) {
		free(memory);
		return NULL;
	}
	memory->fd = make_descriptor(length);
	memory->base = mmap(NULL, length, PROT_READ | PROT_WRITE,
			    MAP_SHARED | (memory->fd < 0 ? MAP_ANONYMOUS : 0), memory->fd, 0);
	if (memory->base == MAP_FAILED) {
		atomic_fetch_sub(&taken[device], granules(length));
		if (memory->fd >= 0)
			close(memory->fd);
		free(memory);
		return NULL;
	}
	memory->length = length;
	memory->device = device;
	return memory;
}

int vb_face_dm_export(struct ibv_dm *ibv)
{
	struct vb_face_dm *dm = vb_container_of(ibv, struct vb_face_dm, ibv);

	if (!dm->memory || dm->memory->fd < 0) {
		errno = dm->memory ? EOPNOTSUPP : EIO;
		return -1;
	}
	return fcntl(dm->memory->fd, F_DUPFD_CLOEXEC, 0);
}

void vb_dm_unregister(struct vb_dm_memory *memory)
{
	atomic_fetch_sub(&memory->regions, 1);
}

/* --- copies ------------------------------------------------------------------------------ */

/* 0 or the errno: EFAULT behind its end, EINVAL for a part of a word. */
static int check_copy(const struct vb_face_dm *dm, uint64_t offset, size_t length)
{
	if (!dm->memory)
		return EIO;
	if (offset > dm->memory->length || length > dm->memory->length - offset)
		return EFAULT;
	return offset % WORD || length % WORD ? EINVAL : 0;
}

static int copy_to(struct ibv_dm *ibv, uint64_t offset, const void *from, size_t length)
{
	struct vb_face_dm *dm = vb_container_of(ibv, struct vb_face_dm, ibv);
	int error = check_copy(dm, offset, length);

	if (error == 0 && length)
		memcpy(dm->memory->base + offset, from, length);
	return error;
}

static int copy_from(void *to, struct ibv_dm *ibv, uint64_t offset, size_t length)
{
	struct vb_face_dm *dm = vb_container_of(ibv, struct vb_face_dm, ibv);
	int error = check_copy(dm, offset, length);

	if (error == 0 && length)
		memcpy(to, dm->memory->base + offset, length);
	return error;
}

/* --- life -------------------------------------------------------------------------------- */

/* Takes over memory; NULL: no memory for the shell. */
static struct vb_face_dm *make_shell(struct ibv_context *context, struct vb_dm_memory *memory,
				     uint32_t handle)
{
	struct vb_face_dm *dm = calloc(1, sizeof(*dm));

	if (!dm)
		return NULL;
	dm->ibv = (struct ibv_dm){
		.context = context,
		.memcpy_to_dm = copy_to,
		.memcpy_from_dm = copy_from,
		.comp_mask = IBV_DM_MASK_HANDLE,
		.handle = handle,
	};
	dm->memory = memory;
	dm->object.has_handle = true;
	dm->object.handle = handle;
	vb_list_init(&dm->siblings);
	return dm;
}

static void export(struct vb_face_dm *dm)
{
	struct stat status;

	if (dm->memory->fd < 0 || fstat(dm->memory->fd, &status) < 0)
		return;
	vb_export_add(&dm->object, &(struct vb_export){
					   .kind = VB_EXPORT_DM,
					   .handle = dm->ibv.handle,
					   .fd = dm->memory->fd,
					   .length = dm->memory->length,
					   .inode = status.st_ino,
				   });
}

/* NULL: it is not what it was said to be, or no memory. */
static struct vb_dm_memory *map_foreign(const struct vb_export *like, int fd)
{
	struct vb_dm_memory *memory = calloc(1, sizeof(*memory));
	const int seals = fcntl(fd, F_GET_SEALS);
	struct stat status;

	if (!memory || seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &status) < 0 ||
	    status.st_ino != like->inode || (uint64_t)status.st_size != like->length) {
		free(memory);
		return NULL;
	}
	memory->base = mmap(NULL, like->length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory->base == MAP_FAILED) {
		free(memory);
		return NULL;
	}
	memory->length = like->length;
	memory->fd = fd;
	memory->foreign = true;
	return memory;
}

struct vb_face_dm *vb_face_dm_import(struct ibv_context *context, const struct vb_export *like,
				     int fd)
{
	struct vb_dm_memory *memory = map_foreign(like, fd);
	struct vb_face_dm *dm = memory ? make_shell(context, memory, like->handle) : NULL;

	if (!dm) {
		if (memory)
			free_memory(memory); /* and fd */
		else
			close(fd);
		errno = ENOMEM;
		return NULL;
	}
	dm->object.foreign = true;
	vb_face_add(context, &dm->object, VB_FACE_DM);
	return dm;
}

struct ibv_dm *vb_face_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	unsigned int device = vb_face_host_device(context)->index;
	struct vb_dm_memory *memory;
	struct vb_face_dm *dm;

	if (!vb_face_context(context)->engine) {
		errno = EIO;
		return NULL;
	}
	if (attr->comp_mask || !attr->length || attr->length > VB_MAX_DM ||
	    attr->log_align_req > VB_MAX_DM_ALIGN) {
		errno = EINVAL;
		return NULL;
	}
	memory = make_memory(device, attr->length);
	dm = memory ? make_shell(context, memory, vb_face_handle()) : NULL;
	if (!dm) {
		if (memory)
			free_memory(memory);
		errno = ENOMEM;
		return NULL;
	}
	vb_face_add(context, &dm->object, VB_FACE_DM);
	export(dm);
	return &dm->ibv;
}

struct vb_face_dm *vb_face_dm_share(struct ibv_context *context, struct vb_face_dm *with)
{
	struct vb_face_dm *dm = make_shell(context, with->memory, with->ibv.handle);

	if (!dm) {
		errno = ENOMEM;
		return NULL;
	}
	dm->object.foreign = with->object.foreign;
	dm->object.unit = with->object.unit;
	vb_face_join(&with->siblings, &dm->siblings);
	vb_face_add(context, &dm->object, VB_FACE_DM);
	return dm;
}

static void free_shell(struct vb_face_dm *dm)
{
	vb_face_remove(&dm->object);
	free(dm);
}

int vb_face_free_dm(struct ibv_dm *ibv)
{
	struct vb_face_dm *dm = vb_container_of(ibv, struct vb_face_dm, ibv);
	struct vb_list *link;

	if (dm->memory && atomic_load(&dm->memory->regions))
		return EBUSY;
	while ((link = vb_face_part_any(&dm->siblings))) {
		struct vb_face_dm *other = vb_list_entry(link, struct vb_face_dm, siblings);

		other->memory = NULL;
		other->object.has_handle = false;
		other->object.unit = 0;
	}
	vb_export_drop(&dm->object);
	if (dm->memory)
		free_memory(dm->memory);
	free_shell(dm);
	return 0;
}

/* Without another shell nobody could free the memory any more: then it goes too. */
static void leave(struct vb_face_dm *dm)
{
	if (vb_face_part(&dm->siblings) && dm->memory && !atomic_load(&dm->memory->regions)) {
		vb_export_drop(&dm->object);
		free_memory(dm->memory);
	}
	dm->memory = NULL;
	dm->object.has_handle = false;
}

void ibv_unimport_dm(struct ibv_dm *ibv)
{
	struct vb_face_dm *dm = vb_container_of(ibv, struct vb_face_dm, ibv);

	leave(dm);
	free_shell(dm);
}

void vb_face_dm_close(struct vb_face_dm *dm)
{
	leave(dm);
}

/* --- regions ----------------------------------------------------------------------------- */

static int check_region(const struct ibv_pd *pd, const struct vb_face_dm *dm, uint64_t offset,
			size_t length, unsigned int access)
{
	if (!dm->memory)
		return EIO;
	if (vb_face_context(dm->ibv.context)->family != vb_face_context(pd->context)->family ||
	    access & ~(unsigned int)ACCESS || !(access & IBV_ACCESS_ZERO_BASED) ||
	    offset > dm->memory->length || length > dm->memory->length - offset)
		return EINVAL;
	return 0;
}

struct ibv_mr *vb_face_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *ibv, uint64_t offset,
				 size_t length, unsigned int access)
{
	struct vb_face_dm *dm = vb_container_of(ibv, struct vb_face_dm, ibv);
	struct vb_mr_backing *backing;
	struct vb_face_mr *mr;

	errno = check_region(pd, dm, offset, length, access);
	if (errno)
		return NULL;
	backing = calloc(1, sizeof(*backing));
	if (!backing) {
		errno = ENOMEM;
		return NULL;
	}
	backing->dm = dm->memory;
	atomic_fetch_add(&dm->memory->regions, 1);
	mr = vb_face_mr_create(pd, dm->memory->base + offset, length, 0, access, backing);
	if (!mr) {
		vb_dm_unregister(dm->memory);
		free(backing);
		return NULL;
	}
	return &mr->ibv;
}
