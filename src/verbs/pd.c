/* SPDX-License-Identifier: BSD-2-Clause */
/* pd.c - protection domains. */
#include <errno.h>
#include <stdlib.h>

#include "verbs/exports.h"

/* Around a core that lives. NULL with errno. */
static struct vb_face_pd *make_shell(struct ibv_context *context, struct vb_engine *engine,
				     struct vb_pd *core, uint32_t handle)
{
	struct vb_face_pd *pd = calloc(1, sizeof(*pd));

	if (!pd) {
		errno = ENOMEM;
		return NULL;
	}
	pd->core = core;
	pd->engine = engine;
	pd->ibv.context = context;
	pd->ibv.handle = handle;
	pd->object.has_handle = true;
	pd->object.handle = handle;
	vb_list_init(&pd->siblings);
	return pd;
}

static void free_shell(struct vb_face_pd *pd)
{
	vb_face_remove(&pd->object);
	free(pd);
}

/* Its core is gone, and so is what its other shells were for. */
static void strip_siblings(struct vb_face_pd *pd)
{
	struct vb_list *link;

	while ((link = vb_face_part_any(&pd->siblings))) {
		struct vb_face_pd *other = vb_list_entry(link, struct vb_face_pd, siblings);

		other->core = NULL;
		other->engine = NULL;
		other->object.has_handle = false;
		other->object.unit = 0;
	}
}

/* Around a new core, whose number is the handle unless one is given. NULL with errno. */
static struct vb_face_pd *make_pd(struct ibv_context *context, const uint32_t *handle)
{
	struct vb_engine *engine = vb_face_context(context)->engine;
	struct vb_face_pd *pd = NULL;
	struct vb_pd *core;
	int error;

	if (!vb_face_enter(engine)) {
		errno = EIO;
		return NULL;
	}
	core = vb_pd_create(vb_engine_nic(engine));
	if (core)
		pd = make_shell(context, engine, core, handle ? *handle : core->id);
	error = errno;
	if (!pd)
		vb_pd_destroy(core);
	vb_engine_leave(engine);
	if (pd)
		vb_face_add(context, &pd->object, VB_FACE_PD);
	else
		errno = error;
	return pd;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct vb_face_pd *pd = make_pd(context, NULL);

	if (!pd)
		return NULL;
	vb_export_add(&pd->object,
		      &(struct vb_export){.kind = VB_EXPORT_PD, .handle = pd->object.handle});
	return &pd->ibv;
}

struct vb_face_pd *vb_face_pd_import(struct ibv_context *context, uint32_t handle)
{
	struct vb_face_pd *pd = make_pd(context, &handle);

	if (pd)
		pd->object.foreign = true;
	return pd;
}

struct vb_face_pd *vb_face_pd_share(struct ibv_context *context, struct vb_face_pd *with)
{
	struct vb_face_pd *pd = make_shell(context, with->engine, with->core, with->ibv.handle);

	if (!pd)
		return NULL;
	pd->object.foreign = with->object.foreign;
	pd->object.unit = with->object.unit;
	vb_face_join(&with->siblings, &pd->siblings);
	vb_face_add(context, &pd->object, VB_FACE_PD);
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *ibv)
{
	struct vb_face_pd *pd = vb_face_pd(ibv);
	int error = 0;

	if (pd->parent)
		return vb_face_dealloc_parent(pd);
	if (vb_face_enter(pd->engine)) {
		error = vb_pd_destroy(pd->core);
		if (!error)
			strip_siblings(pd);
		vb_engine_leave(pd->engine);
	}
	if (error)
		return -error;
	vb_export_drop(&pd->object);
	vb_face_part(&pd->siblings);
	free_shell(pd);
	return 0;
}

/* Without another shell nobody could use or end the domain any more: then it goes too. */
void ibv_unimport_pd(struct ibv_pd *ibv)
{
	struct vb_face_pd *pd = vb_face_pd(ibv);

	if (vb_face_part(&pd->siblings) && vb_face_enter(pd->engine)) {
		vb_pd_destroy(pd->core);
		vb_engine_leave(pd->engine);
		vb_export_drop(&pd->object);
	}
	free_shell(pd);
}

void vb_face_pd_close(struct vb_face_pd *pd)
{
	/* Busy only when a region could not be withdrawn: the host drops both with the NIC. */
	if (vb_face_part(&pd->siblings) && pd->core) {
		vb_pd_destroy(pd->core);
		vb_export_drop(&pd->object);
	}
	pd->core = NULL;
	pd->engine = NULL;
}
