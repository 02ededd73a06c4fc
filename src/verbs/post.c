/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * post.c - posting work requests: the hot path from the program to the core.
 *
 * One call takes the engine once, whatever the length of the list, and lets it work once. What was
 * made with a thread domain is posted to beside the engine (core/beside.h), and handed over.
 */
#include <endian.h>
#include <errno.h>

#include "core/beside.h"
#include "verbs/face.h"
#include "verbs/raw.h"

#define SAME(core, verbs) _Static_assert((int)(core) == (int)(verbs), #core)
SAME(VB_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE);
SAME(VB_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM);
SAME(VB_WR_SEND, IBV_WR_SEND);
SAME(VB_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM);
SAME(VB_WR_RDMA_READ, IBV_WR_RDMA_READ);
SAME(VB_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_CMP_AND_SWP);
SAME(VB_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD);
SAME(VB_WR_LOCAL_INV, IBV_WR_LOCAL_INV);
SAME(VB_WR_BIND_MW, IBV_WR_BIND_MW);
SAME(VB_WR_SEND_WITH_INV, IBV_WR_SEND_WITH_INV);
SAME(VB_WR_ATOMIC_WRITE, IBV_WR_ATOMIC_WRITE);
SAME(VB_SEND_FENCE, IBV_SEND_FENCE);
SAME(VB_SEND_SIGNALED, IBV_SEND_SIGNALED);
SAME(VB_SEND_SOLICITED, IBV_SEND_SOLICITED);
SAME(VB_SEND_INLINE, IBV_SEND_INLINE);
_Static_assert(sizeof(struct vb_sge) == sizeof(struct ibv_sge) &&
		       offsetof(struct vb_sge, addr) == offsetof(struct ibv_sge, addr) &&
		       offsetof(struct vb_sge, length) == offsetof(struct ibv_sge, length) &&
		       offsetof(struct vb_sge, lkey) == offsetof(struct ibv_sge, lkey),
	       "struct ibv_sge");

#define VB_SEND_FLAGS (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE)

/* A negative count becomes a huge one, which the core refuses. */
static inline bool sges_are_sane(const struct ibv_sge *list, int count)
{
	return list || count == 0;
}

/* A FLUSH has its fields in ibv_wr_flush() only. */
static inline bool has_plain_form(unsigned int opcode)
{
	return opcode <= IBV_WR_SEND_WITH_INV || opcode == IBV_WR_ATOMIC_WRITE;
}

/* What the requests about windows have of their own. Two of them have no SGEs, whatever is said. */
static bool of_windows_to_core(const struct ibv_send_wr *wr, struct vb_send_wr *core)
{
	core->imm = wr->invalidate_rkey;
	if (wr->opcode == IBV_WR_SEND_WITH_INV)
		return true;
	core->num_sge = 0;
	if (wr->opcode == IBV_WR_LOCAL_INV)
		return true;
	return wr->bind_mw.mw && wr->bind_mw.mw->type == IBV_MW_TYPE_2 &&
	       !vb_face_bind_to_core(wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info,
				     &core->bind);
}

/* One of core/qp.h and core/beside.h, a constant wherever it is used. */
typedef int post_send_fn(struct vb_qp *qp, const struct vb_send_wr *wr);

static inline __attribute__((always_inline)) int
post_one(struct vb_face_qp *qp, const struct ibv_send_wr *wr, post_send_fn *post)
{
	struct vb_send_wr core;

	if (qp->ex.qp_base.qp_type == IBV_QPT_RAW_PACKET)
		return vb_face_raw_post(qp, wr);
	if (wr->send_flags & ~(unsigned int)VB_SEND_FLAGS ||
	    !has_plain_form((unsigned int)wr->opcode) || !sges_are_sane(wr->sg_list, wr->num_sge))
		return -EINVAL;
	core.wr_id = wr->wr_id;
	core.sges = (const struct vb_sge *)wr->sg_list;
	core.num_sge = (uint32_t)wr->num_sge;
	core.opcode = (enum vb_wr_opcode)wr->opcode;
	core.flags = wr->send_flags;
	core.imm = be32toh(wr->imm_data);
	if (qp->ex.qp_base.qp_type == IBV_QPT_UD) {
		if (!wr->wr.ud.ah)
			return -EINVAL;
		core.remote_addr = 0;
		core.rkey = 0;
		core.ah = vb_face_ah_core(wr->wr.ud.ah);
		core.remote_qpn = wr->wr.ud.remote_qpn;
		core.remote_qkey = wr->wr.ud.remote_qkey;
	} else {
		/* The address lies at the same place for RDMA and atomics, the key does not. */
		core.ah = NULL;
		core.remote_addr = wr->wr.rdma.remote_addr;
		core.rkey = wr->wr.rdma.rkey;
	}
	if (qp->ex.qp_base.qp_type == IBV_QPT_XRC_SEND)
		core.remote_srqn = wr->qp_type.xrc.remote_srqn;
	if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		core.rkey = wr->wr.atomic.rkey;
		core.compare_add = wr->wr.atomic.compare_add;
		core.swap = wr->wr.atomic.swap;
	}
	if (wr->opcode >= IBV_WR_LOCAL_INV && wr->opcode <= IBV_WR_SEND_WITH_INV &&
	    !of_windows_to_core(wr, &core))
		return -EINVAL;
	return post(qp->core, &core);
}

static int post_sends_beside(struct vb_face_qp *qp, struct ibv_send_wr *wr,
			     struct ibv_send_wr **bad)
{
	int error = 0;

	if (!vb_face_beside(qp->engine)) {
		*bad = wr;
		return EIO;
	}
	for (; wr; wr = wr->next) {
		error = post_one(qp, wr, vb_qp_post_send_beside);
		if (error) {
			*bad = wr;
			break;
		}
	}
	vb_engine_hand_over(qp->engine, qp->core);
	return -error;
}

/* post_short - the usual short message, in one go (core/rc_short.c). False: it is something else.
 */
static inline bool post_short(const struct vb_face_qp *qp, const struct ibv_send_wr *wr)
{
	const struct vb_short_wr wanted = {
		.wr_id = wr->wr_id,
		.sge = (const struct vb_sge *)wr->sg_list,
		.flags = wr->send_flags,
		.imm = be32toh(wr->imm_data),
		.with_imm = wr->opcode == IBV_WR_SEND_WITH_IMM,
	};

	return (wr->opcode == IBV_WR_SEND || wanted.with_imm) && wr->num_sge == 1 && wr->sg_list &&
	       !(wr->send_flags & ~(unsigned int)VB_SHORT_FLAGS) &&
	       vb_rc_post_short(qp->core, &wanted);
}

/* foresee - the lines that a post needs of the queue pair whose turn comes soon
 * (vb_qp_foresee). */
static inline void foresee(const struct vb_face_qp *next)
{
	if (!next)
		return;
	__builtin_prefetch(next);
	__builtin_prefetch(&next->engine);
	__builtin_prefetch(&next->beside);
}

int vb_face_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct vb_face_qp *qp = vb_face_qp(ibv);
	int error = 0;

	if (!wr)
		return 0;
	if (qp->beside)
		return post_sends_beside(qp, wr, bad);
	if (!qp->engine || !vb_engine_enter_to_post(qp->engine, qp->core)) {
		*bad = wr;
		return EIO;
	}
	foresee(qp->core->posted_user);
	for (; wr; wr = wr->next) {
		if (post_short(qp, wr))
			continue;
		error = post_one(qp, wr, vb_qp_post_send);
		if (error) {
			*bad = wr;
			break;
		}
	}
	vb_engine_leave_sends(qp->engine, qp->core);
	return -error;
}

static inline bool receive_to_core(const struct ibv_recv_wr *wr, struct vb_recv_wr *core)
{
	core->wr_id = wr->wr_id;
	core->sges = (const struct vb_sge *)wr->sg_list;
	core->num_sge = (uint32_t)wr->num_sge;
	return sges_are_sane(wr->sg_list, wr->num_sge);
}

/* post_receives - to the queue pair's own queue, or to srq where it is not NULL. */
static inline int post_receives(struct vb_engine *engine, struct vb_qp *qp, struct vb_srq *srq,
				struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct vb_recv_wr core;
	int error = 0;

	if (!wr)
		return 0;
	if (!engine || !vb_engine_enter_to_post(engine, qp)) {
		*bad = wr;
		return EIO;
	}
	for (; wr; wr = wr->next) {
		if (!receive_to_core(wr, &core))
			error = -EINVAL;
		else
			error = srq ? vb_srq_post(srq, &core) : vb_qp_post_recv(qp, &core);
		if (error) {
			*bad = wr;
			break;
		}
	}
	vb_engine_leave_receives(engine);
	return -error;
}

/* The same beside the engine. */
static int post_receives_beside(struct vb_engine *engine, struct vb_qp *qp, struct vb_srq *srq,
				struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct vb_recv_wr core;
	int error = 0;

	if (!wr)
		return 0;
	if (!vb_face_beside(engine)) {
		*bad = wr;
		return EIO;
	}
	for (; wr; wr = wr->next) {
		if (!receive_to_core(wr, &core))
			error = -EINVAL;
		else
			error = srq ? vb_srq_post(srq, &core) : vb_qp_post_recv_beside(qp, &core);
		if (error) {
			*bad = wr;
			break;
		}
	}
	vb_engine_hand_over(engine, qp);
	return -error;
}

int vb_face_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct vb_face_qp *qp = vb_face_qp(ibv);

	if (qp->beside)
		return post_receives_beside(qp->engine, qp->core, NULL, wr, bad);
	return post_receives(qp->engine, qp->core, NULL, wr, bad);
}

int vb_face_post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct vb_face_srq *srq = vb_face_srq(ibv);

	if (srq->beside)
		return post_receives_beside(srq->engine, NULL, srq->core, wr, bad);
	return post_receives(srq->engine, NULL, srq->core, wr, bad);
}
