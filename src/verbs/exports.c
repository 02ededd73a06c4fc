/* SPDX-License-Identifier: BSD-2-Clause */
/* exports.c - the owner's side of what others may import: see exports.h. */
#define _GNU_SOURCE
#include "verbs/exports.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define UNITS (1u << 14)
#define BYTES (UNITS * sizeof(struct vb_export))
#define PATIENCE_MS 500 /* for a copy of 128 KiB in another process */

struct vb_exports {
	struct vb_list link;
	pid_t pid; /* a forked child has the mapping, too, and nothing to say in it */
	unsigned int users;
	uint32_t family;
	struct vb_export_header *header;
	struct vb_export *units; /* the same memory */
	uint32_t free;		 /* a unit that is free again, whose handle is the next; 0: none */
};

static pthread_mutex_t exports_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list all = {&all, &all};

static int make_file(void **map)
{
	const int seals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int fd = memfd_create("verbena-context", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	*map = MAP_FAILED;
	if (ftruncate(fd, BYTES) == 0)
		*map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (*map != MAP_FAILED && fcntl(fd, F_ADD_SEALS, seals) == 0)
		return fd;
	if (*map != MAP_FAILED)
		munmap(*map, BYTES);
	close(fd);
	return -1;
}

int vb_exports_create(struct vb_face_context *context, unsigned int device_index)
{
	struct vb_exports *exports = calloc(1, sizeof(*exports));
	void *map = NULL;
	int fd = exports ? make_file(&map) : -1;

	if (fd < 0) {
		free(exports);
		return -1;
	}
	exports->pid = getpid();
	exports->users = 1;
	exports->family = context->family;
	exports->header = map;
	exports->units = map;
	memcpy(exports->header->magic, "verbena context", 16);
	vb_engine_identify(context->engine, &exports->header->process);
	memcpy(exports->header->address, &vb_engine_device(context->engine)->address, 16);
	exports->header->device = device_index;
	exports->header->family = context->family;
	exports->header->units = VB_EXPORT_FIRST;
	context->exports = exports;
	pthread_mutex_lock(&exports_lock);
	vb_list_append(&all, &exports->link);
	pthread_mutex_unlock(&exports_lock);
	return fd;
}

void vb_exports_join(struct vb_face_context *context)
{
	struct vb_list *link, *tmp;

	pthread_mutex_lock(&exports_lock);
	vb_list_for_each(link, tmp, &all)
	{
		struct vb_exports *exports = vb_list_entry(link, struct vb_exports, link);

		if (exports->family == context->family && exports->pid == getpid()) {
			exports->users++;
			context->exports = exports;
		}
	}
	pthread_mutex_unlock(&exports_lock);
}

void vb_exports_part(struct vb_face_context *context)
{
	struct vb_exports *exports = context->exports;

	context->exports = NULL;
	pthread_mutex_lock(&exports_lock);
	if (exports && --exports->users == 0)
		vb_list_remove(&exports->link);
	else
		exports = NULL;
	pthread_mutex_unlock(&exports_lock);
	if (!exports)
		return;
	munmap(exports->header, BYTES);
	free(exports);
}

/* --- objects ----------------------------------------------------------------------------- */

/* NULL: it has no place in a file of ours. */
static struct vb_export *unit_of(const struct vb_face_object *object)
{
	const struct vb_exports *exports = object->context->exports;

	return exports && exports->pid == getpid() && object->unit ? &exports->units[object->unit]
								   : NULL;
}

/* Zero: the file is full. Under the lock. */
static uint32_t take_unit(struct vb_exports *exports)
{
	uint32_t unit = exports->free;

	if (unit)
		exports->free = exports->units[unit].handle;
	else if (exports->header->units < UNITS)
		unit = exports->header->units++;
	return unit;
}

static void write_unit(struct vb_export *unit, const struct vb_export *what)
{
	const uint32_t number = unit->number | 1;
	struct vb_export all_but_number = *what;

	__atomic_store_n(&unit->number, number, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	all_but_number.number = number;
	*unit = all_but_number;
	__atomic_store_n(&unit->number, number + 1, __ATOMIC_SEQ_CST);
}

void vb_export_add(struct vb_face_object *object, const struct vb_export *what)
{
	struct vb_exports *exports = object->context->exports;

	object->unit = 0;
	if (!exports || exports->pid != getpid())
		return;
	pthread_mutex_lock(&exports_lock);
	object->unit = take_unit(exports);
	if (object->unit)
		write_unit(&exports->units[object->unit], what);
	pthread_mutex_unlock(&exports_lock);
}

static bool is_locked(int fd, uint32_t unit)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = unit, .l_len = 1};

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

int vb_export_take(struct vb_face_object *object)
{
	const struct timespec pause = {.tv_nsec = 1000 * 1000};
	struct vb_export *unit = unit_of(object);
	const int fd = object->context->verbs.context.cmd_fd;

	if (!unit)
		return 0;
	__atomic_fetch_or(&unit->number, 1, __ATOMIC_SEQ_CST);
	for (int tries = 0; is_locked(fd, object->unit); tries++) {
		if (tries == PATIENCE_MS) {
			vb_export_give(object, NULL);
			return -EBUSY;
		}
		nanosleep(&pause, NULL);
	}
	return 0;
}

void vb_export_give(struct vb_face_object *object, const struct vb_export *what)
{
	struct vb_export *unit = unit_of(object);

	if (unit && what)
		write_unit(unit, what);
	else if (unit)
		__atomic_fetch_and(&unit->number, ~1u, __ATOMIC_SEQ_CST);
}

void vb_export_drop(struct vb_face_object *object)
{
	struct vb_export *unit = unit_of(object);
	struct vb_exports *exports = object->context->exports;

	if (!unit)
		return;
	pthread_mutex_lock(&exports_lock);
	write_unit(unit, &(struct vb_export){.handle = exports->free});
	exports->free = object->unit;
	pthread_mutex_unlock(&exports_lock);
	object->unit = 0;
}
