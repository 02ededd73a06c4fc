/* SPDX-License-Identifier: BSD-2-Clause */
/* pd.c - protection domains. */
#include <errno.h>
#include <stdlib.h>

#include "verbs/face.h"

/* Around a core that lives. NULL with errno. */
static struct vb_face_pd *make_shell(struct ibv_context *context, struct vb_engine *engine,
				     struct vb_pd *core)
{
	struct vb_face_pd *pd = calloc(1, sizeof(*pd));

	if (!pd) {
		errno = ENOMEM;
		return NULL;
	}
	pd->core = core;
	pd->engine = engine;
	pd->ibv.context = context;
	pd->ibv.handle = core->id;
	pd->object.has_handle = true;
	pd->object.handle = core->id;
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
	}
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
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
		pd = make_shell(context, engine, core);
	error = errno;
	if (!pd)
		vb_pd_destroy(core);
	vb_engine_leave(engine);
	if (!pd) {
		errno = error;
		return NULL;
	}
	vb_face_add(context, &pd->object, VB_FACE_PD);
	return &pd->ibv;
}

struct vb_face_pd *vb_face_pd_share(struct ibv_context *context, struct vb_face_pd *with)
{
	struct vb_face_pd *pd = make_shell(context, with->engine, with->core);

	if (!pd)
		return NULL;
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
	}
	free_shell(pd);
}

void vb_face_pd_close(struct vb_face_pd *pd)
{
	/* Busy only when a region could not be withdrawn: the host drops both with the NIC. */
	if (vb_face_part(&pd->siblings) && pd->core)
		vb_pd_destroy(pd->core);
	pd->core = NULL;
	pd->engine = NULL;
}
