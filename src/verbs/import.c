/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * import.c - contexts, PDs, MRs and DMs that are made once more from a descriptor and a handle
 * (ibv_import_device(3), ibv_import_pd(3), ibv_import_mr(3), ibv_import_dm(3)).
 *
 * A device of ours lives in a process, and so do its objects: the descriptor of a context names
 * its process, device and family (exports.h), and whoever holds a copy of it gets a context of that
 * family. In the same process handles are good in all contexts of a family:
 *
 *      context A (family 7)          context B (family 7)
 *        shell of a PD  <- siblings ->  shell of the same PD
 *                 \                    /
 *                  one core (a vb_pd)
 *
 * Destroying through any shell ends the core, and its other shells can only be unimported, as the
 * manual has it. Closing a context gives up its shells alone where there are others.
 *
 * In another process of the host the device is that process's own, with a NIC and queue pairs of
 * its own, and so are the cores:
 *
 *      exporter                          importer
 *        PD        <- looked up -          a PD
 *        region    <- looked up -          a region with the same keys, if they are free there; its
 *        memory    <- copied to and from -   memory is the exporter's (host/foreign.h)
 *        DM        <- mapped -             the same pages
 *
 * When the exporter deregisters a region, changes it or ends, the importer's is there as one on
 * demand without memory. Destroying an import ends what the importer has, and no more.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "verbs/exports.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define SNAPSHOT_TRIES 1000

static pthread_mutex_t siblings_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t imports_lock = PTHREAD_MUTEX_INITIALIZER; /* their users */

/* 0 or the errno: EINVAL for what can be no context's, ENODEV for that of no device here. */
static int read_header(int fd, struct vb_export_header *header)
{
	const int seals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
	struct stat status;

	if (fstat(fd, &status) < 0)
		return EINVAL;
	if (S_ISCHR(status.st_mode))
		return ENODEV;
	if (!S_ISREG(status.st_mode) || (fcntl(fd, F_GET_SEALS) & seals) != seals ||
	    pread(fd, header, sizeof(*header), 0) != (ssize_t)sizeof(*header) ||
	    memcmp(header->magic, "verbena context", sizeof(header->magic)) != 0)
		return EINVAL;
	/* Who may not reach into that process could be made to reach into a third one. */
	return status.st_uid == geteuid() ? 0 : EPERM;
}

/* --- the device in this process ---------------------------------------------------------- */

static struct ibv_context *open_here(const struct vb_export_header *header)
{
	struct ibv_device *device = vb_face_device(header->device);
	struct ibv_context *ibv;

	if (!device) {
		errno = ENODEV;
		return NULL;
	}
	ibv = vb_face_open(device, header->family);
	if (ibv)
		vb_exports_join(vb_face_context(ibv));
	return ibv;
}

/* --- the device of another process -------------------------------------------------------- */

static struct ibv_device *device_at(const uint8_t *address)
{
	struct vb_device *const *list;
	const int count = vb_host_devices(&list);

	for (int i = 0; i < count; i++)
		if (memcmp(&list[i]->address, address, sizeof(list[i]->address)) == 0)
			return vb_face_device((unsigned int)i);
	return NULL;
}

/* What the file is, whatever has been made since. */
static bool is_same(const struct vb_export_header *a, const struct vb_export_header *b)
{
	return memcmp(&a->process, &b->process, sizeof(a->process)) == 0 && a->family == b->family;
}

struct source {
	const struct vb_export_header *header;
	struct vb_imports *found;
};

static bool search_imports(struct vb_face_context *context, void *argument)
{
	struct source *source = argument;

	pthread_mutex_lock(&imports_lock);
	if (context->imports && is_same(&context->imports->header, source->header)) {
		source->found = context->imports;
		source->found->users++;
	}
	pthread_mutex_unlock(&imports_lock);
	return source->found != NULL;
}

void vb_imports_put(struct vb_imports *imports)
{
	struct stat status;

	pthread_mutex_lock(&imports_lock);
	if (imports && --imports->users > 0)
		imports = NULL;
	pthread_mutex_unlock(&imports_lock);
	if (!imports)
		return;
	if (fstat(imports->fd, &status) == 0)
		munmap((void *)(uintptr_t)imports->units, (size_t)status.st_size);
	close(imports->fd);
	free(imports);
}

/* Locks are of an open file description, and the one that we were given is the exporter's too. */
static int open_again(int fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* NULL with errno. */
static struct vb_imports *make_imports(int fd, const struct vb_export_header *header)
{
	struct vb_imports *imports = calloc(1, sizeof(*imports));
	struct stat status;
	void *map = MAP_FAILED;
	int error;

	if (!imports)
		return NULL;
	imports->fd = open_again(fd);
	if (imports->fd >= 0 && fstat(imports->fd, &status) == 0)
		map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, imports->fd, 0);
	if (map == MAP_FAILED) {
		error = errno;
		if (imports->fd >= 0)
			close(imports->fd);
		free(imports);
		errno = error;
		return NULL;
	}
	imports->header = *header;
	imports->units = map;
	imports->users = 1;
	imports->family = vb_face_handle();
	return imports;
}

static struct ibv_context *open_there(int fd, const struct vb_export_header *header)
{
	struct source source = {.header = header};
	struct ibv_device *device = device_at(header->address);
	struct ibv_context *ibv = NULL;
	struct vb_face_context *context;
	int error;

	if (!device) {
		errno = ENODEV;
		return NULL;
	}
	vb_face_contexts_visit(search_imports, &source);
	if (!source.found)
		source.found = make_imports(fd, header);
	if (source.found)
		ibv = vb_face_open(device, source.found->family);
	if (!ibv) {
		error = errno;
		vb_imports_put(source.found);
		errno = error;
		return NULL;
	}
	context = vb_face_context(ibv);
	context->imports = source.found;
	if (vb_engine_meets(context->engine, &header->process))
		return ibv;
	ibv_close_device(ibv);
	errno = EIO; /* as of a device that was taken away */
	return NULL;
}

struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct vb_export_header header;
	struct ibv_context *context;

	errno = read_header(cmd_fd, &header);
	if (errno)
		return NULL;
	context = header.process.pid == (int32_t)getpid() ? open_here(&header)
							  : open_there(cmd_fd, &header);
	if (context)
		context->cmd_fd = cmd_fd;
	return context;
}

/* --- handles ----------------------------------------------------------------------------- */

struct search {
	uint32_t family;
	enum vb_face_kind kind;
	uint32_t handle;
	bool foreign;
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

		if (object->has_handle && object->handle == search->handle &&
		    object->foreign == search->foreign)
			search->found = object;
	}
	pthread_mutex_unlock(&context->lock);
	return search->found != NULL;
}

static struct vb_face_object *find(struct vb_face_context *context, enum vb_face_kind kind,
				   uint32_t handle, bool foreign)
{
	struct search search = {
		.family = context->family, .kind = kind, .handle = handle, .foreign = foreign};

	vb_face_contexts_visit(search_context, &search);
	return search.found;
}

/* A consistent copy of a unit; false: it is being changed. */
static bool read_unit(const struct vb_export *unit, struct vb_export *out)
{
	for (int tries = 0; tries < SNAPSHOT_TRIES; tries++) {
		uint32_t number = __atomic_load_n(&unit->number, __ATOMIC_ACQUIRE);

		*out = *(const volatile struct vb_export *)unit;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		out->number = number;
		if (!(number & 1) && __atomic_load_n(&unit->number, __ATOMIC_RELAXED) == number)
			return true;
	}
	return false;
}

/* The unit of what another process exports, or 0. */
static uint32_t look_up(const struct vb_imports *imports, enum vb_export_kind kind,
			enum vb_export_kind or_kind, uint32_t handle, struct vb_export *out)
{
	const struct vb_export_header *header = (const void *)imports->units;
	const uint32_t units = __atomic_load_n(&header->units, __ATOMIC_ACQUIRE);

	for (uint32_t unit = VB_EXPORT_FIRST; unit < units; unit++)
		if (read_unit(&imports->units[unit], out) && out->handle == handle &&
		    (out->kind == kind || out->kind == or_kind))
			return unit;
	return 0;
}

/* What there is of that handle: the unit of another process's, whose object may be in *found if it
 * was imported before; or 0, and in *found an object of this process, or nothing, with errno. In a
 * context that came from another process a handle is that one's: what was made here has numbers of
 * its own, which mean others there. */
static uint32_t resolve(struct vb_face_context *context, enum vb_face_kind kind,
			enum vb_export_kind there, enum vb_export_kind or_there, uint32_t handle,
			struct vb_face_object **found, struct vb_export *what)
{
	uint32_t unit = 0;

	*found = NULL;
	errno = ENOENT;
	if (!context->imports)
		*found = find(context, kind, handle, false);
	else if (!vb_engine_meets(context->engine, &context->imports->header.process))
		errno = EIO;
	else
		unit = look_up(context->imports, there, or_there, handle, what);
	if (unit)
		*found = find(context, kind, handle, true);
	return unit;
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
	struct vb_face_object *object;
	struct vb_face_pd *pd = NULL;
	struct vb_export what;
	uint32_t unit = resolve(vb_face_context(ibv), VB_FACE_PD, VB_EXPORT_PD, VB_EXPORT_PD,
				handle, &object, &what);

	if (object)
		pd = vb_face_pd_share(ibv, vb_container_of(object, struct vb_face_pd, object));
	else if (unit)
		pd = vb_face_pd_import(ibv, handle);
	return pd ? &pd->ibv : NULL;
}

/* A region of the process that the context was imported from. NULL with errno. */
static struct vb_face_mr *import_region(struct ibv_pd *pd, uint32_t unit,
					const struct vb_export *what)
{
	struct vb_face_context *context = vb_face_context(pd->context);
	const struct vb_foreign memory = {
		.owner = context->imports->header.process,
		.addr = what->addr,
		.length = what->length,
		.fd = context->imports->fd,
		.entry = unit,
		.now = &context->imports->units[unit].number,
		.then = what->number,
	};
	struct vb_foreign *foreign = NULL;
	struct vb_face_mr *mr;
	int error = 0;

	/* To be in one domain there and in another here would be a way around either. */
	if (!vb_face_pd(pd)->object.foreign || pd->handle != what->pd)
		error = -EINVAL;
	else if (what->kind == VB_EXPORT_MR && what->length == UINT64_MAX)
		error = -EOPNOTSUPP; /* all of an address space: there is no such room in ours */
	else if (what->kind == VB_EXPORT_MR)
		error = vb_foreign_create(context->engine, &memory, &foreign);
	if (error) {
		errno = error == -ESRCH ? EIO : -error;
		return NULL;
	}
	mr = vb_face_mr_import(pd, what, foreign);
	if (!mr && foreign) {
		error = errno;
		vb_foreign_destroy(context->engine, foreign);
		errno = error;
	}
	return mr;
}

/* A second shell of what is here. One that came from another process stays in its domain. NULL with
 * errno. */
static struct vb_face_mr *share_region(struct ibv_pd *pd, struct vb_face_object *object)
{
	struct vb_face_mr *mr = vb_container_of(object, struct vb_face_mr, object);

	if (object->foreign && mr->core->pd != vb_face_pd(pd)->core) {
		errno = EINVAL;
		return NULL;
	}
	return vb_face_mr_share(pd, mr);
}

/* It was imported before its owner changed it, or made another of the same number. */
static bool is_stale(struct vb_face_object *object, const struct vb_export *what)
{
	const struct vb_face_mr *mr = vb_container_of(object, struct vb_face_mr, object);

	return object->foreign && mr->backing && mr->backing->foreign &&
	       mr->backing->foreign->then != what->number;
}

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct vb_face_object *object;
	struct vb_face_mr *mr = NULL;
	struct vb_export what;
	uint32_t unit = resolve(vb_face_context(pd->context), VB_FACE_MR, VB_EXPORT_MR,
				VB_EXPORT_NULL_MR, handle, &object, &what);

	if (object && !is_stale(object, &what))
		mr = share_region(pd, object);
	else if (unit)
		mr = import_region(pd, unit, &what);
	return mr ? &mr->ibv : NULL;
}

/* The exporter's descriptor, opened through its process. NULL with errno. */
static struct vb_face_dm *import_memory(struct ibv_context *ibv, const struct vb_export *what)
{
	const struct vb_process *owner = &vb_face_context(ibv)->imports->header.process;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", owner->pid, what->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		errno = errno == ENOENT ? EIO : EPERM;
		return NULL;
	}
	return vb_face_dm_import(ibv, what, fd);
}

struct ibv_dm *ibv_import_dm(struct ibv_context *ibv, uint32_t handle)
{
	struct vb_face_object *object;
	struct vb_face_dm *dm = NULL;
	struct vb_export what;
	uint32_t unit = resolve(vb_face_context(ibv), VB_FACE_DM, VB_EXPORT_DM, VB_EXPORT_DM,
				handle, &object, &what);

	if (object)
		dm = vb_face_dm_share(ibv, vb_container_of(object, struct vb_face_dm, object));
	else if (unit)
		dm = import_memory(ibv, &what);
	return dm ? &dm->ibv : NULL;
}
