/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cq_ex.c - extended completion queues: the iterator of ibv_create_cq_ex(3).
 *
 * Each step takes one completion from the engine and keeps it as the current one, from which the
 * read functions answer. Nothing is taken that the program has not reached, so that plain polling
 * may be mixed with it.
 */
#include <endian.h>
#include <errno.h>
#include <time.h>

#include "verbs/face.h"

#define VB_WC_FLAGS                                                                                \
	(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |                             \
	 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK | IBV_WC_EX_WITH_TM_INFO |                  \
	 IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG)

#define VB_CREATE_FLAGS (IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN)

static inline struct vb_cqe *current(struct ibv_cq_ex *ex)
{
	return &vb_container_of(ex, struct vb_face_cq, ex)->current;
}

static int step(struct ibv_cq_ex *ex)
{
	struct vb_face_cq *cq = vb_container_of(ex, struct vb_face_cq, ex);
	int got;

	if (!cq->engine)
		return EIO;
	got = vb_engine_poll_cq(cq->engine, cq->core, &cq->current, 1);
	if (got <= 0)
		return got ? -got : ENOENT;
	ex->wr_id = cq->current.wr_id;
	ex->status = (enum ibv_wc_status)cq->current.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	if (attr && attr->comp_mask)
		return EINVAL;
	return step(ex);
}

static void end_poll(struct ibv_cq_ex *ex)
{
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
	return (enum ibv_wc_opcode)current(ex)->opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
	return current(ex)->vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
	return current(ex)->byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
	return vb_face_imm(current(ex));
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
	return current(ex)->qpn;
}

static uint32_t read_src_qp(struct ibv_cq_ex *ex)
{
	return current(ex)->src_qpn;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ex)
{
	return current(ex)->wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *ex)
{
	return 0;
}

static uint8_t read_sl(struct ibv_cq_ex *ex)
{
	return current(ex)->sl;
}

static uint8_t read_zero(struct ibv_cq_ex *ex)
{
	return 0;
}

/* Of a completion that tells of a match; zeros otherwise. */
static void read_tm_info(struct ibv_cq_ex *ex, struct ibv_wc_tm_info *info)
{
	const struct vb_cqe *cqe = current(ex);
	const bool match = cqe->opcode == VB_WC_TM_RECV && cqe->wc_flags & VB_WC_TM_MATCH;

	info->tag = match ? cqe->tm_tag : 0;
	info->priv = match ? cqe->tm_priv : 0;
}

/* Of receives, which raw packets alone fill in. */
static uint16_t read_cvlan(struct ibv_cq_ex *ex)
{
	return current(ex)->opcode == VB_WC_RECV ? current(ex)->cvlan : 0;
}

static uint32_t read_flow_tag(struct ibv_cq_ex *ex)
{
	return current(ex)->opcode == VB_WC_RECV ? current(ex)->flow_tag : 0;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *ex)
{
	return current(ex)->time_ns;
}

static uint64_t read_wallclock_ns(struct ibv_cq_ex *ex)
{
	struct timespec now;
	uint64_t age = vb_engine_now() - current(ex)->time_ns;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - age;
}

/* 0 or the errno. */
static int read_options(struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr,
			struct vb_cq_options *options)
{
	uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;

	if (attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) ||
	    flags & ~(uint32_t)VB_CREATE_FLAGS)
		return EINVAL;
	if (attr->wc_flags & ~(uint64_t)VB_WC_FLAGS)
		return EOPNOTSUPP;
	options->single = flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	options->overwrites = flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	if (!(attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD))
		return 0;
	if (!attr->parent_domain || !vb_face_pd(attr->parent_domain)->parent ||
	    attr->parent_domain->context != context)
		return EINVAL;
	options->parent = attr->parent_domain;
	options->single |= vb_face_is_single(vb_face_pd(attr->parent_domain));
	return 0;
}

struct ibv_cq_ex *vb_face_create_cq_ex(struct ibv_context *context,
				       struct ibv_cq_init_attr_ex *attr)
{
	struct vb_cq_options options = {0};
	struct vb_face_cq *cq;

	errno = read_options(context, attr, &options);
	if (errno)
		return NULL;
	cq = vb_face_cq_create(context, attr->cqe, attr->cq_context, attr->channel,
			       attr->comp_vector, &options);
	if (!cq)
		return NULL;
	cq->ex.start_poll = start_poll;
	cq->ex.next_poll = step;
	cq->ex.end_poll = end_poll;
	cq->ex.read_opcode = read_opcode;
	cq->ex.read_vendor_err = read_vendor_err;
	cq->ex.read_byte_len = read_byte_len;
	cq->ex.read_imm_data = read_imm_data;
	cq->ex.read_qp_num = read_qp_num;
	cq->ex.read_src_qp = read_src_qp;
	cq->ex.read_wc_flags = read_wc_flags;
	cq->ex.read_slid = read_slid;
	cq->ex.read_sl = read_sl;
	cq->ex.read_dlid_path_bits = read_zero;
	cq->ex.read_completion_ts = read_completion_ts;
	cq->ex.read_tm_info = read_tm_info;
	cq->ex.read_cvlan = read_cvlan;
	cq->ex.read_flow_tag = read_flow_tag;
	cq->ex.read_completion_wallclock_ns = read_wallclock_ns;
	return &cq->ex;
}
