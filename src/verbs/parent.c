/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * parent.c - thread domains and parent domains (ibv_alloc_td(3), ibv_alloc_parent_domain(3)).
 *
 * A parent domain is one more shell of a PD's core, with what else its objects are made with: a
 * thread domain, and the program's allocator for the rings of QPs, CQs and SRQs. It keeps the PD by
 * counting among its users, and each object whose rings are its keeps it.
 *
 * A thread domain is a promise: one thread at a time uses what is made with it. Polling a CQ and
 * posting to a QP or an SRQ then take no lock, and wait for no other thread (core/cq.h,
 * core/beside.h, docs/decisions.md). Two kinds of objects are as without one: raw packet QPs, and
 * SRQs of tag matching with their QPs, whose lists and send queues are the NIC's as well.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/room.h"
#include "verbs/face.h"

struct vb_parent {
	struct vb_face_td *td;
	void *(*alloc)(struct ibv_pd *pd, void *context, size_t size, size_t alignment,
		       uint64_t type);
	void (*free)(struct ibv_pd *pd, void *context, void *memory, uint64_t type);
	void *context;
	atomic_uint users;
};

struct ibv_td *vb_face_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct vb_face_td *td;

	if (attr->comp_mask) {
		errno = EINVAL;
		return NULL;
	}
	if (!vb_face_context(context)->engine) {
		errno = EIO;
		return NULL;
	}
	td = calloc(1, sizeof(*td));
	if (!td) {
		errno = ENOMEM;
		return NULL;
	}
	td->ibv.context = context;
	vb_face_add(context, &td->object, VB_FACE_TD);
	return &td->ibv;
}

int vb_face_dealloc_td(struct ibv_td *ibv)
{
	struct vb_face_td *td = vb_container_of(ibv, struct vb_face_td, ibv);

	if (atomic_load(&td->users))
		return EBUSY;
	vb_face_remove(&td->object);
	free(td);
	return 0;
}

/* --- parent domains ---------------------------------------------------------------------- */

static int check_parent(struct ibv_context *context, const struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t known =
		IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;

	if (!attr->pd || attr->comp_mask & ~known || attr->pd->context != context ||
	    vb_face_pd(attr->pd)->parent)
		return EINVAL;
	if (attr->td && attr->td->context != context)
		return EINVAL;
	return 0;
}

static struct vb_parent *make_parent(const struct ibv_parent_domain_init_attr *attr)
{
	struct vb_parent *parent = calloc(1, sizeof(*parent));

	if (!parent)
		return NULL;
	if (attr->td)
		parent->td = vb_container_of(attr->td, struct vb_face_td, ibv);
	/* One without the other cannot be used. */
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS && attr->alloc && attr->free) {
		parent->alloc = attr->alloc;
		parent->free = attr->free;
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		parent->context = attr->pd_context;
	return parent;
}

struct ibv_pd *vb_face_alloc_parent_domain(struct ibv_context *context,
					   struct ibv_parent_domain_init_attr *attr)
{
	struct vb_face_pd *of, *pd;

	errno = check_parent(context, attr);
	if (errno)
		return NULL;
	of = vb_face_pd(attr->pd);
	pd = calloc(1, sizeof(*pd));
	if (pd)
		pd->parent = make_parent(attr);
	if (!pd || !pd->parent) {
		free(pd);
		errno = ENOMEM;
		return NULL;
	}
	if (!vb_face_enter(of->engine)) {
		free(pd->parent);
		free(pd);
		errno = EIO;
		return NULL;
	}
	of->core->users++;
	vb_engine_leave(of->engine);
	if (pd->parent->td)
		atomic_fetch_add(&pd->parent->td->users, 1);
	pd->core = of->core;
	pd->engine = of->engine;
	pd->ibv.context = context;
	pd->ibv.handle = of->ibv.handle;
	vb_list_init(&pd->siblings);
	vb_face_add(context, &pd->object, VB_FACE_PARENT);
	return &pd->ibv;
}

int vb_face_dealloc_parent(struct vb_face_pd *pd)
{
	if (atomic_load(&pd->parent->users))
		return EBUSY;
	if (vb_face_enter(pd->engine)) {
		pd->core->users--;
		vb_engine_leave(pd->engine);
	}
	if (pd->parent->td)
		atomic_fetch_sub(&pd->parent->td->users, 1);
	vb_face_remove(&pd->object);
	free(pd->parent);
	free(pd);
	return 0;
}

void vb_face_parent_close(struct vb_face_pd *pd)
{
	pd->core->users--;
	pd->core = NULL;
	pd->engine = NULL;
}

bool vb_face_is_single(const struct vb_face_pd *pd)
{
	return pd->parent && pd->parent->td;
}

/* --- rings ------------------------------------------------------------------------------- */

int vb_rings_alloc(struct vb_rings *rings, struct ibv_pd *ibv, size_t bytes,
		   enum vb_rings_type type)
{
	struct vb_parent *parent = ibv ? vb_face_pd(ibv)->parent : NULL;
	void *memory = IBV_ALLOCATOR_USE_DEFAULT;

	/* The upper half says whose code the lower is: by the kernel's enum rdma_driver_id
	 * nobody's, so zero. */
	*rings = (struct vb_rings){.type = (uint64_t)type};
	if (!parent || !bytes)
		return 0;
	if (parent->alloc)
		memory = parent->alloc(ibv, parent->context, bytes, VB_ROOM_ALIGN, rings->type);
	if (!memory)
		return -ENOMEM;
	if (memory != IBV_ALLOCATOR_USE_DEFAULT && (uintptr_t)memory % VB_ROOM_ALIGN) {
		parent->free(ibv, parent->context, memory, rings->type);
		return -ENOMEM; /* not what was asked for */
	}
	rings->pd = ibv;
	atomic_fetch_add(&parent->users, 1);
	if (memory != IBV_ALLOCATOR_USE_DEFAULT)
		rings->memory = memset(memory, 0, bytes);
	return 0;
}

void vb_rings_free(struct vb_rings *rings)
{
	struct vb_parent *parent;

	if (!rings->pd)
		return;
	parent = vb_face_pd(rings->pd)->parent;
	if (rings->memory)
		parent->free(rings->pd, parent->context, rings->memory, rings->type);
	atomic_fetch_sub(&parent->users, 1);
	*rings = (struct vb_rings){0};
}
