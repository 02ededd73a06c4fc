/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * import.c - contexts, PDs, MRs and DMs that are made once more from a descriptor and a handle
 * (ibv_import_device(3), ibv_import_pd(3), ibv_import_mr(3), ibv_import_dm(3)).
 *
 * A device of ours lives in a process, and so do its objects: the descriptor of a context names
 * its process, device and family, and whoever holds a copy of it in the same process gets a context
 * of that family. Handles are good in all contexts of a family. In another process it is refused:
 * the memory behind the regions could not be reached there.
 *
 *      cmd_fd: a sealed memfd        magic | pid | device | family
 *
 *      context A (family 7)          context B (family 7)
 *        shell of a PD  <- siblings ->  shell of the same PD
 *                 \                    /
 *                  one core (a vb_pd)
 *
 * Destroying through any shell ends the core, and its other shells can only be unimported, as the
 * manual has it. Closing a context gives up its shells alone where there are others.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "verbs/face.h"

struct command {
	char magic[16];
	int32_t pid;
	uint32_t device;
	uint32_t family;
};

static const char magic[16] = "verbena context";

static pthread_mutex_t siblings_lock = PTHREAD_MUTEX_INITIALIZER;

int vb_face_command_fd(unsigned int device_index, uint32_t family)
{
	struct command command = {
		.pid = (int32_t)getpid(), .device = device_index, .family = family};
	int fd = memfd_create("verbena-context", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	memcpy(command.magic, magic, sizeof(magic));
	if (fd >= 0 && write(fd, &command, sizeof(command)) == (ssize_t)sizeof(command) &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		return fd;
	/* A context without can do all but be imported; programs set flags on the descriptor. */
	if (fd >= 0)
		close(fd);
	return open("/dev/null", O_RDWR | O_CLOEXEC);
}

/* 0 or the errno: EINVAL for what can be no context's, ENODEV for that of no device here. */
static int read_command(int fd, struct command *command)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return EINVAL;
	if (S_ISCHR(status.st_mode))
		return ENODEV;
	if (!S_ISREG(status.st_mode) ||
	    pread(fd, command, sizeof(*command), 0) != (ssize_t)sizeof(*command) ||
	    memcmp(command->magic, magic, sizeof(magic)) != 0)
		return EINVAL;
	return command->pid == (int32_t)getpid() ? 0 : EOPNOTSUPP;
}

struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct command command;
	struct ibv_device *device;

	errno = read_command(cmd_fd, &command);
	if (errno)
		return NULL;
	device = vb_face_device(command.device);
	if (!device) {
		errno = ENODEV;
		return NULL;
	}
	return vb_face_open(device, cmd_fd, command.family);
}

/* --- handles ----------------------------------------------------------------------------- */

struct search {
	uint32_t family;
	enum vb_face_kind kind;
	uint32_t handle;
	struct vb_face_object *found;
};

static bool search_context(struct vb_face_context *context, void *argument)
{
	struct search *search = argument;
	struct vb_list *link, *tmp;

	if (context->family != search->family)
		return false;
	pthread_mutex_lock(&context->lock);
	vb_list_for_each(link, tmp, &context->objects[search->kind])
	{
		struct vb_face_object *object = vb_list_entry(link, struct vb_face_object, link);

		if (object->has_handle && object->handle == search->handle)
			search->found = object;
	}
	pthread_mutex_unlock(&context->lock);
	return search->found != NULL;
}

struct vb_face_object *vb_face_find(struct vb_face_context *context, enum vb_face_kind kind,
				    uint32_t handle)
{
	struct search search = {.family = context->family, .kind = kind, .handle = handle};

	vb_face_contexts_visit(search_context, &search);
	return search.found;
}

void vb_face_join(struct vb_list *siblings, struct vb_list *newcomer)
{
	pthread_mutex_lock(&siblings_lock);
	vb_list_append(siblings, newcomer);
	pthread_mutex_unlock(&siblings_lock);
}

bool vb_face_part(struct vb_list *siblings)
{
	bool last;

	pthread_mutex_lock(&siblings_lock);
	last = vb_list_is_empty(siblings);
	vb_list_remove(siblings);
	pthread_mutex_unlock(&siblings_lock);
	return last;
}

struct vb_list *vb_face_part_any(struct vb_list *siblings)
{
	struct vb_list *other;

	pthread_mutex_lock(&siblings_lock);
	other = vb_list_pop(siblings);
	pthread_mutex_unlock(&siblings_lock);
	return other;
}

/* --- the objects: in pd.c, mr.c, dm.c what is done to their shells ----------------------- */

struct ibv_pd *ibv_import_pd(struct ibv_context *ibv, uint32_t handle)
{
	struct vb_face_object *object = vb_face_find(vb_face_context(ibv), VB_FACE_PD, handle);
	struct vb_face_pd *pd;

	if (!object) {
		errno = ENOENT;
		return NULL;
	}
	pd = vb_face_pd_share(ibv, vb_container_of(object, struct vb_face_pd, object));
	return pd ? &pd->ibv : NULL;
}

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct vb_face_object *object =
		vb_face_find(vb_face_context(pd->context), VB_FACE_MR, handle);
	struct vb_face_mr *mr;

	if (!object) {
		errno = ENOENT;
		return NULL;
	}
	mr = vb_face_mr_share(pd, vb_container_of(object, struct vb_face_mr, object));
	return mr ? &mr->ibv : NULL;
}

struct ibv_dm *ibv_import_dm(struct ibv_context *ibv, uint32_t handle)
{
	struct vb_face_object *object = vb_face_find(vb_face_context(ibv), VB_FACE_DM, handle);
	struct vb_face_dm *dm;

	if (!object) {
		errno = ENOENT;
		return NULL;
	}
	dm = vb_face_dm_share(ibv, vb_container_of(object, struct vb_face_dm, object));
	return dm ? &dm->ibv : NULL;
}
