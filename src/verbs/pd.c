/* SPDX-License-Identifier: BSD-2-Clause */
/* pd.c - protection domains. */
#include <errno.h>
#include <stdlib.h>

#include "verbs/face.h"

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct vb_engine *engine = vb_face_context(context)->engine;
	struct vb_face_pd *pd = calloc(1, sizeof(*pd));
	int error;

	if (!pd) {
		errno = ENOMEM;
		return NULL;
	}
	if (!vb_face_enter(engine)) {
		free(pd);
		errno = EIO;
		return NULL;
	}
	pd->core = vb_pd_create(vb_engine_nic(engine));
	error = errno;
	vb_engine_leave(engine);
	if (!pd->core) {
		free(pd);
		errno = error;
		return NULL;
	}
	pd->engine = engine;
	pd->ibv.context = context;
	pd->ibv.handle = pd->core->id;
	vb_face_add(context, &pd->object, VB_FACE_PD);
	return &pd->ibv;
}

int ibv_dealloc_pd(struct ibv_pd *ibv)
{
	struct vb_face_pd *pd = vb_face_pd(ibv);
	int error = 0;

	if (vb_face_enter(pd->engine)) {
		error = vb_pd_destroy(pd->core);
		vb_engine_leave(pd->engine);
	}
	if (error)
		return -error;
	vb_face_remove(&pd->object);
	free(pd);
	return 0;
}

void vb_face_pd_close(struct vb_face_pd *pd)
{
	/* Busy only when a region could not be withdrawn: the host drops both with the NIC. */
	if (pd->core)
		vb_pd_destroy(pd->core);
	pd->core = NULL;
	pd->engine = NULL;
}
