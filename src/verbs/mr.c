/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mr.c - memory regions (ibv_reg_mr(3)).
 *
 * Access flags of the optional range may be ignored by definition, and are. MW_BIND asks for a
 * right that nothing can use while there are no memory windows; HUGETLB is a hint.
 */
#include <errno.h>
#include <stdlib.h>

#include "verbs/face.h"

_Static_assert((int)VB_ACCESS_LOCAL_WRITE == (int)IBV_ACCESS_LOCAL_WRITE, "access");
_Static_assert((int)VB_ACCESS_REMOTE_WRITE == (int)IBV_ACCESS_REMOTE_WRITE, "access");
_Static_assert((int)VB_ACCESS_REMOTE_READ == (int)IBV_ACCESS_REMOTE_READ, "access");
_Static_assert((int)VB_ACCESS_REMOTE_ATOMIC == (int)IBV_ACCESS_REMOTE_ATOMIC, "access");

#define VB_CORE_ACCESS (VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL)
#define VB_KNOWN_ACCESS                                                                            \
	(VB_CORE_ACCESS | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB |        \
	 IBV_ACCESS_OPTIONAL_RANGE)

static struct ibv_mr *register_region(struct ibv_pd *ibv_pd, void *addr, size_t length,
				      uint64_t iova, unsigned int access)
{
	struct vb_face_pd *pd = vb_face_pd(ibv_pd);
	struct vb_face_mr *mr;
	int error;

	if (access & IBV_ACCESS_ON_DEMAND) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (access & ~(unsigned int)VB_KNOWN_ACCESS) {
		errno = EINVAL;
		return NULL;
	}
	mr = calloc(1, sizeof(*mr));
	if (!mr) {
		errno = ENOMEM;
		return NULL;
	}
	error = pd->engine ? vb_engine_reg_mr(pd->engine, pd->core, addr, length, iova,
					      access & VB_CORE_ACCESS, &mr->core)
			   : -EIO;
	if (error) {
		free(mr);
		errno = -error;
		return NULL;
	}
	mr->engine = pd->engine;
	mr->ibv = (struct ibv_mr){
		.context = ibv_pd->context,
		.pd = ibv_pd,
		.addr = addr,
		.length = length,
		.handle = vb_face_handle(),
		.lkey = mr->core->lkey,
		.rkey = mr->core->rkey,
	};
	vb_face_add(ibv_pd->context, &mr->object, VB_FACE_MR);
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

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access)
{
	errno = EOPNOTSUPP;
	return NULL;
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		 int access)
{
	errno = EOPNOTSUPP;
	return IBV_REREG_MR_ERR_INPUT;
}

int ibv_dereg_mr(struct ibv_mr *ibv)
{
	struct vb_face_mr *mr = vb_container_of(ibv, struct vb_face_mr, ibv);
	int error = 0;

	if (vb_face_enter(mr->engine)) {
		vb_engine_leave(mr->engine);
		error = vb_engine_dereg_mr(mr->engine, mr->core);
	}
	if (error)
		return -error;
	vb_face_remove(&mr->object);
	free(mr);
	return 0;
}

void vb_face_mr_close(struct vb_face_mr *mr)
{
	if (vb_face_enter(mr->engine)) {
		vb_engine_leave(mr->engine);
		vb_engine_dereg_mr(mr->engine, mr->core);
	}
	mr->core = NULL;
	mr->engine = NULL;
}
