/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mr.c - memory regions (ibv_reg_mr(3)).
 *
 * Access flags of the optional range may be ignored by definition, and are. HUGETLB is a hint.
 */
#include <errno.h>
#include <unistd.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "verbs/exports.h"
#include "verbs/newer.h"

_Static_assert((int)VB_ACCESS_LOCAL_WRITE == (int)IBV_ACCESS_LOCAL_WRITE, "access");
_Static_assert((int)VB_ACCESS_REMOTE_WRITE == (int)IBV_ACCESS_REMOTE_WRITE, "access");
_Static_assert((int)VB_ACCESS_REMOTE_READ == (int)IBV_ACCESS_REMOTE_READ, "access");
_Static_assert((int)VB_ACCESS_REMOTE_ATOMIC == (int)IBV_ACCESS_REMOTE_ATOMIC, "access");

_Static_assert((int)VB_ACCESS_ON_DEMAND == (int)IBV_ACCESS_ON_DEMAND, "access");

#define VB_CORE_ACCESS                                                                             \
	(VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL | VB_ACCESS_MW_BIND | VB_ACCESS_ON_DEMAND |  \
	 VB_ACCESS_FLUSH_GLOBAL)
#define VB_KNOWN_ACCESS                                                                            \
	(VB_CORE_ACCESS | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE)

static struct vb_face_mr *make_shell(struct ibv_pd *pd, struct vb_engine *engine,
				     struct vb_mr_backing *backing)
{
	struct vb_face_mr *mr = calloc(1, sizeof(*mr));

	if (!mr) {
		errno = ENOMEM;
		return NULL;
	}
	mr->engine = engine;
	mr->backing = backing;
	mr->ibv.context = pd->context;
	mr->ibv.pd = pd;
	mr->pd_handle = pd->handle;
	vb_list_init(&mr->siblings);
	return mr;
}

/* What is known once there is a core; the shell is complete then. */
static void fill_shell(struct vb_face_mr *mr, struct vb_mr *core, size_t length, uint32_t handle)
{
	mr->core = core;
	mr->ibv.length = length;
	mr->ibv.handle = handle;
	mr->ibv.lkey = core->lkey;
	mr->ibv.rkey = core->kind == VB_MR_NULL ? 0 : core->rkey;
	mr->object.has_handle = true;
	mr->object.handle = handle;
	vb_face_add(mr->ibv.context, &mr->object, VB_FACE_MR);
}

/* What other processes may know of it. An implicit region has no range that they could name. */
static struct vb_export description(const struct vb_face_mr *mr)
{
	const struct vb_mr *core = mr->core;

	return (struct vb_export){
		.kind = core->kind == VB_MR_NULL ? VB_EXPORT_NULL_MR : VB_EXPORT_MR,
		.handle = mr->ibv.handle,
		.pd = mr->pd_handle,
		.access = core->access,
		.lkey = core->lkey,
		.rkey = core->rkey,
		.addr = (uintptr_t)core->addr,
		.iova = core->iova,
		.length = core->length,
	};
}

static void export(struct vb_face_mr *mr)
{
	const struct vb_export what = description(mr);

	vb_export_add(&mr->object, &what);
}

static void free_shell(struct vb_face_mr *mr)
{
	vb_face_remove(&mr->object);
	free(mr);
}

struct vb_face_mr *vb_face_mr_create(struct ibv_pd *ibv_pd, void *addr, size_t length,
				     uint64_t iova, unsigned int access,
				     struct vb_mr_backing *backing)
{
	struct vb_face_pd *pd = vb_face_pd(ibv_pd);
	const bool implicit = access & IBV_ACCESS_ON_DEMAND && !addr && length == SIZE_MAX;
	struct vb_face_mr *mr;
	struct vb_mr *core;
	int error;

	if (implicit && iova) {
		errno = EINVAL;
		return NULL;
	}
	if (access & ~(unsigned int)VB_KNOWN_ACCESS) {
		errno = EINVAL;
		return NULL;
	}
	mr = make_shell(ibv_pd, pd->engine, backing);
	if (!mr)
		return NULL;
	error = pd->engine ? vb_engine_reg_mr(pd->engine, pd->core, addr, length, iova,
					      access & VB_CORE_ACCESS, &core)
			   : -EIO;
	if (error) {
		free(mr);
		errno = -error;
		return NULL;
	}
	fill_shell(mr, core, length, vb_face_handle());
	export(mr);
	return mr;
}

/* Another process's region as it stands there; its keys, where they are free here. */
static int register_foreign(struct vb_face_pd *pd, const struct vb_export *like,
			    const struct vb_foreign *foreign, struct vb_mr **core)
{
	const struct vb_mr wanted = {
		.iova = like->iova,
		.access = like->access,
		.lkey = like->lkey,
		.rkey = like->rkey,
	};
	int rc = -EIO;

	if (foreign)
		return vb_engine_reg_foreign_mr(pd->engine, pd->core, foreign, &wanted, core);
	if (vb_face_enter(pd->engine)) {
		*core = vb_mr_create_null(pd->core);
		rc = *core ? 0 : -errno;
		vb_engine_leave(pd->engine);
	}
	return rc;
}

struct vb_face_mr *vb_face_mr_import(struct ibv_pd *ibv_pd, const struct vb_export *like,
				     struct vb_foreign *foreign)
{
	struct vb_face_pd *pd = vb_face_pd(ibv_pd);
	struct vb_mr_backing *backing = calloc(1, sizeof(*backing));
	struct vb_face_mr *mr = make_shell(ibv_pd, pd->engine, backing);
	struct vb_mr *core;
	int rc = mr && backing ? register_foreign(pd, like, foreign, &core) : -ENOMEM;

	if (rc) {
		free(backing);
		free(mr);
		errno = -rc;
		return NULL;
	}
	backing->foreign = foreign;
	mr->imported = true;
	mr->object.foreign = true;
	fill_shell(mr, core, like->length, like->handle);
	return mr;
}

/* An imported region has no address here (ibv_import_mr(3)). */
struct vb_face_mr *vb_face_mr_share(struct ibv_pd *pd, struct vb_face_mr *with)
{
	struct vb_face_mr *mr = make_shell(pd, with->engine, with->backing);

	if (!mr)
		return NULL;
	mr->imported = true;
	mr->dmah = with->dmah;
	mr->object.foreign = with->object.foreign;
	mr->object.unit = with->object.unit;
	vb_face_join(&with->siblings, &mr->siblings);
	fill_shell(mr, with->core, with->ibv.length, with->ibv.handle);
	return mr;
}

static struct ibv_mr *register_region(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				      unsigned int access)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	struct vb_face_mr *mr;

	/* As in the kernel: a region has a page at least, if only to name nothing in it. */
	if (length == 0 && (uintptr_t)addr % page == 0) {
		errno = EINVAL;
		return NULL;
	}
	mr = vb_face_mr_create(pd, addr, length, iova, access, NULL);
	if (!mr)
		return NULL;
	mr->ibv.addr = addr;
	return &mr->ibv;
}

static uint64_t default_iova(const void *addr, unsigned int access)
{
	return access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return register_region(pd, addr, length, default_iova(addr, (unsigned int)access),
			       (unsigned int)access);
}

#undef ibv_reg_mr_iova
struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       int access)
{
	return register_region(pd, addr, length, iova, (unsigned int)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access)
{
	/* The header's ibv_reg_mr comes here with the address as iova. */
	if (iova == (uintptr_t)addr)
		iova = default_iova(addr, access);
	return register_region(pd, addr, length, iova, access);
}

struct ibv_mr *vb_face_alloc_null_mr(struct ibv_pd *ibv_pd)
{
	struct vb_face_pd *pd = vb_face_pd(ibv_pd);
	struct vb_face_mr *mr = make_shell(ibv_pd, pd->engine, NULL);
	struct vb_mr *core;
	int error = EIO;

	if (!mr)
		return NULL;
	if (vb_face_enter(pd->engine)) {
		core = vb_mr_create_null(pd->core);
		error = core ? 0 : errno;
		vb_engine_leave(pd->engine);
	}
	if (error) {
		free(mr);
		errno = error;
		return NULL;
	}
	fill_shell(mr, core, SIZE_MAX, vb_face_handle());
	export(mr);
	return &mr->ibv;
}

/* --- ibv_rereg_mr(3) --------------------------------------------------------------------- */

/* What is wrong without looking at memory: the region is left alone. */
static bool rereg_input_is_good(const struct vb_face_mr *mr, int flags, const struct ibv_pd *pd,
				const void *addr, size_t length, int access)
{
	if (!mr->core || mr->core->kind != VB_MR_MEMORY || mr->backing || mr->imported)
		return false;
	if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED)
		return false;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION && (!addr || !length))
		return false;
	if (flags & IBV_REREG_MR_CHANGE_PD && (!pd || pd->context != mr->ibv.context))
		return false;
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		return !((unsigned int)access & ~(unsigned int)VB_KNOWN_ACCESS);
	return !access;
}

/* All or nothing: where the man page says that the region should not be used any more
 * (IBV_REREG_MR_ERR_CMD), it is what it was. */
int ibv_rereg_mr(struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *addr, size_t length,
		 int access)
{
	struct vb_face_mr *mr = vb_container_of(ibv, struct vb_face_mr, ibv);
	struct vb_mr_change change;
	struct vb_export what;
	int error;

	if (!rereg_input_is_good(mr, flags, pd, addr, length, access)) {
		errno = mr->core ? EINVAL : EIO;
		return IBV_REREG_MR_ERR_INPUT;
	}
	change = (struct vb_mr_change){mr->core->pd, mr->core->addr, mr->core->length,
				       mr->core->iova, mr->core->access};
	if (flags & IBV_REREG_MR_CHANGE_PD)
		change.pd = vb_face_pd(pd)->core;
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		change.access = (uint32_t)access & VB_CORE_ACCESS;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		change.addr = addr;
		change.length = length;
		change.iova = default_iova(addr, (unsigned int)access);
	}
	error = vb_export_take(&mr->object);
	if (error == 0) {
		error = vb_engine_rereg_mr(mr->engine, mr->core, &change);
		if (error)
			vb_export_give(&mr->object, NULL);
	}
	if (error) {
		errno = -error;
		return IBV_REREG_MR_ERR_CMD;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		ibv->pd = pd;
		mr->pd_handle = pd->handle;
	}
	ibv->addr = mr->core->addr;
	ibv->length = mr->core->length;
	what = description(mr);
	vb_export_give(&mr->object, &what);
	return 0;
}

/* What the region kept alive. */
static void release(struct vb_face_mr *mr)
{
	struct vb_mr_backing *backing = mr->backing;

	if (mr->dmah)
		atomic_fetch_sub(&mr->dmah->users, 1);
	if (!backing)
		return;
	if (backing->dm)
		vb_dm_unregister(backing->dm);
	if (backing->mapping)
		munmap(backing->mapping, backing->mapped);
	if (backing->foreign)
		vb_foreign_destroy(mr->engine, backing->foreign);
	free(backing);
}

/* The region is gone, and so is what its other shells were for. */
static void strip_siblings(struct vb_face_mr *mr)
{
	struct vb_list *link;

	while ((link = vb_face_part_any(&mr->siblings))) {
		struct vb_face_mr *other = vb_list_entry(link, struct vb_face_mr, siblings);

		other->core = NULL;
		other->engine = NULL;
		other->backing = NULL;
		other->dmah = NULL;
		other->object.has_handle = false;
		other->object.unit = 0;
	}
}

/* 0 or -errno: then nothing has changed. */
static int deregister(struct vb_face_mr *mr)
{
	int error;

	if (!vb_face_enter(mr->engine))
		return 0;
	vb_engine_leave(mr->engine);
	error = vb_export_take(&mr->object);
	if (error)
		return error;
	error = vb_engine_dereg_mr(mr->engine, mr->core);
	if (error)
		vb_export_give(&mr->object, NULL);
	else
		vb_export_drop(&mr->object);
	return error;
}

int ibv_dereg_mr(struct ibv_mr *ibv)
{
	struct vb_face_mr *mr = vb_face_mr(ibv);
	int error = deregister(mr);

	if (error)
		return -error;
	strip_siblings(mr);
	release(mr);
	free_shell(mr);
	return 0;
}

/* Without another shell nobody could end the region any more: then it goes too. */
void ibv_unimport_mr(struct ibv_mr *ibv)
{
	struct vb_face_mr *mr = vb_face_mr(ibv);

	if (vb_face_part(&mr->siblings) && deregister(mr) == 0)
		release(mr);
	free_shell(mr);
}

void vb_face_mr_close(struct vb_face_mr *mr)
{
	if (vb_face_part(&mr->siblings) && deregister(mr) == 0)
		release(mr);
	mr->core = NULL;
	mr->engine = NULL;
	mr->backing = NULL;
	mr->dmah = NULL;
	mr->object.has_handle = false;
}
