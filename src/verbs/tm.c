/* SPDX-License-Identifier: BSD-2-Clause */
/* tm.c - tag matching: SRQs of that type, and ibv_post_srq_ops(3). How it works is core/tm.h. */
#include <errno.h>
#include <infiniband/tm_types.h>

#include "verbs/face.h"

#define SAME(core, verbs) _Static_assert((int)(core) == (int)(verbs), #core)
SAME(VB_TM_ADD, IBV_WR_TAG_ADD);
SAME(VB_TM_DEL, IBV_WR_TAG_DEL);
SAME(VB_TM_SYNC, IBV_WR_TAG_SYNC);
SAME(VB_TMH_NO_TAG, IBV_TMH_NO_TAG);
SAME(VB_TMH_RNDV, IBV_TMH_RNDV);
SAME(VB_TMH_FIN, IBV_TMH_FIN);
SAME(VB_TMH_EAGER, IBV_TMH_EAGER);
_Static_assert(sizeof(struct ibv_tmh) == VB_TMH_BYTES, "struct ibv_tmh");
_Static_assert(sizeof(struct ibv_tmh) + sizeof(struct ibv_rvh) == VB_TM_HEADERS_BYTES,
	       "struct ibv_rvh");

const struct ibv_tm_caps vb_face_tm_caps = {
	.max_rndv_hdr_size = VB_TM_RNDV_BYTES,
	.max_num_tags = VB_MAX_TM_TAGS,
	.flags = IBV_TM_CAP_RC,
	.max_ops = VB_MAX_TM_OPS,
	.max_sge = VB_MAX_TM_SGE,
};

struct ibv_srq *vb_face_create_tm_srq(struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t needed = IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
	struct vb_srq_more more = {.max_num_tags = attr->tm_cap.max_num_tags};

	if ((attr->comp_mask & needed) != needed || attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD ||
	    !attr->cq || attr->cq->context != attr->pd->context || attr->tm_cap.max_num_tags == 0 ||
	    attr->tm_cap.max_ops == 0 || attr->tm_cap.max_ops > VB_MAX_TM_OPS) {
		errno = EINVAL;
		return NULL;
	}
	more.cq = vb_face_cq(attr->cq)->core;
	return vb_face_srq_create(attr->pd, attr->srq_context, &attr->attr, &more);
}

static int post_one(struct vb_srq *srq, struct ibv_ops_wr *wr)
{
	struct vb_tm_op op = {
		.wr_id = wr->wr_id,
		.opcode = (enum vb_tm_opcode)wr->opcode,
		.signaled = wr->flags & IBV_OPS_SIGNALED,
		.sync = wr->flags & IBV_OPS_TM_SYNC,
		.unexpected = wr->tm.unexpected_cnt,
		.handle = wr->tm.handle,
	};
	int error;

	if (wr->flags & ~(IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC))
		return -EINVAL;
	if (wr->opcode == IBV_WR_TAG_ADD) {
		if (!wr->tm.add.sg_list && wr->tm.add.num_sge)
			return -EINVAL;
		op.recv_wr_id = wr->tm.add.recv_wr_id;
		op.tag = wr->tm.add.tag;
		op.mask = wr->tm.add.mask;
		op.sges = (const struct vb_sge *)wr->tm.add.sg_list;
		op.num_sge = (uint32_t)wr->tm.add.num_sge;
	}
	error = vb_tm_post(srq, &op);
	if (!error && wr->opcode == IBV_WR_TAG_ADD)
		wr->tm.handle = op.handle;
	return error;
}

int vb_face_post_srq_ops(struct ibv_srq *ibv, struct ibv_ops_wr *op, struct ibv_ops_wr **bad)
{
	struct vb_face_srq *srq = vb_face_srq(ibv);
	int error = 0;

	if (!op)
		return 0;
	if (!vb_face_enter(srq->engine)) {
		*bad = op;
		return EIO;
	}
	for (; op; op = op->next) {
		error = post_one(srq->core, op);
		if (error) {
			*bad = op;
			break;
		}
	}
	vb_engine_leave(srq->engine);
	return -error;
}
