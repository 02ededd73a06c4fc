/* SPDX-License-Identifier: BSD-2-Clause */
/* cq.c - completion queues: create, poll, arm, resize, destroy. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>

#include "verbs/face.h"

#define SAME(core, verbs) _Static_assert((int)(core) == (int)(verbs), #core)
SAME(VB_WC_SUCCESS, IBV_WC_SUCCESS);
SAME(VB_WC_LOC_LEN_ERR, IBV_WC_LOC_LEN_ERR);
SAME(VB_WC_LOC_QP_OP_ERR, IBV_WC_LOC_QP_OP_ERR);
SAME(VB_WC_LOC_PROT_ERR, IBV_WC_LOC_PROT_ERR);
SAME(VB_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR);
SAME(VB_WC_MW_BIND_ERR, IBV_WC_MW_BIND_ERR);
SAME(VB_WC_BAD_RESP_ERR, IBV_WC_BAD_RESP_ERR);
SAME(VB_WC_LOC_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR);
SAME(VB_WC_REM_INV_REQ_ERR, IBV_WC_REM_INV_REQ_ERR);
SAME(VB_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
SAME(VB_WC_REM_OP_ERR, IBV_WC_REM_OP_ERR);
SAME(VB_WC_RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR);
SAME(VB_WC_RNR_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR);
SAME(VB_WC_FATAL_ERR, IBV_WC_FATAL_ERR);
SAME(VB_WC_GENERAL_ERR, IBV_WC_GENERAL_ERR);
SAME(VB_WC_SEND, IBV_WC_SEND);
SAME(VB_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE);
SAME(VB_WC_RDMA_READ, IBV_WC_RDMA_READ);
SAME(VB_WC_COMP_SWAP, IBV_WC_COMP_SWAP);
SAME(VB_WC_FETCH_ADD, IBV_WC_FETCH_ADD);
SAME(VB_WC_BIND_MW, IBV_WC_BIND_MW);
SAME(VB_WC_LOCAL_INV, IBV_WC_LOCAL_INV);
SAME(VB_WC_RECV, IBV_WC_RECV);
SAME(VB_WC_RECV_RDMA_WITH_IMM, IBV_WC_RECV_RDMA_WITH_IMM);
SAME(VB_WC_TM_ERR, IBV_WC_TM_ERR);
SAME(VB_WC_TM_RNDV_INCOMPLETE, IBV_WC_TM_RNDV_INCOMPLETE);
SAME(VB_WC_TM_ADD, IBV_WC_TM_ADD);
SAME(VB_WC_TM_NO_TAG, IBV_WC_TM_NO_TAG);
SAME(VB_WC_TM_SYNC_REQ, IBV_WC_TM_SYNC_REQ);
SAME(VB_WC_TM_MATCH, IBV_WC_TM_MATCH);
SAME(VB_WC_TM_DATA_VALID, IBV_WC_TM_DATA_VALID);
SAME(VB_WC_GRH, IBV_WC_GRH);
SAME(VB_WC_WITH_IMM, IBV_WC_WITH_IMM);
SAME(VB_WC_WITH_INV, IBV_WC_WITH_INV);

/* The iterator's struct begins with the plain one. */
_Static_assert(offsetof(struct ibv_cq_ex, cq_context) == offsetof(struct ibv_cq, cq_context) &&
		       offsetof(struct ibv_cq_ex, async_events_completed) ==
			       offsetof(struct ibv_cq, async_events_completed),
	       "struct ibv_cq_ex");

static void init_shell(struct vb_face_cq *cq, struct ibv_context *context, void *user,
		       struct ibv_comp_channel *channel)
{
	cq->ex.context = context;
	cq->ex.channel = channel;
	cq->ex.cq_context = user;
	cq->ex.handle = vb_face_handle();
	pthread_mutex_init(&cq->ex.mutex, NULL);
	pthread_cond_init(&cq->ex.cond, NULL);
	cq->object.context = vb_face_context(context);
	vb_event_source_init(&cq->completion);
	vb_face_async_init(&cq->overrun, IBV_EVENT_CQ_ERR);
	cq->overrun.event.element.cq = ibv_cq_ex_to_cq(&cq->ex);
}

static void free_shell(struct vb_face_cq *cq)
{
	vb_rings_free(&cq->rings);
	pthread_mutex_destroy(&cq->ex.mutex);
	pthread_cond_destroy(&cq->ex.cond);
	free(cq);
}

/* 0 or -errno. */
static int create_core(struct vb_face_cq *cq, struct vb_engine *engine, uint32_t entries,
		       const struct vb_cq_options *options)
{
	int error = vb_rings_alloc(&cq->rings, options->parent, vb_cq_room(entries), VB_RINGS_CQ);

	if (error)
		return error;
	if (!vb_face_enter(engine))
		return -EIO;
	cq->core = vb_cq_create_in(vb_engine_nic(engine), entries, cq, cq->rings.memory);
	error = cq->core ? 0 : -errno;
	if (cq->core) {
		/* What overwrites moves the reader's end too: then nobody may read beside it. */
		cq->core->single = options->single && !options->overwrites;
		cq->core->overwrites = options->overwrites;
	}
	vb_engine_leave(engine);
	return error;
}

struct vb_face_cq *vb_face_cq_create(struct ibv_context *context, uint32_t entries, void *user,
				     struct ibv_comp_channel *channel, uint32_t vector,
				     const struct vb_cq_options *options)
{
	struct vb_engine *engine = vb_face_context(context)->engine;
	struct vb_face_cq *cq;
	int error;

	if (vector >= (uint32_t)context->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	/* The kernel looks the channel up among the file's own. */
	if (channel &&
	    vb_face_context(channel->context)->family != vb_face_context(context)->family) {
		errno = EBADF;
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	if (!cq) {
		errno = ENOMEM;
		return NULL;
	}
	init_shell(cq, context, user, channel);
	error = create_core(cq, engine, entries, options);
	if (error) {
		free_shell(cq);
		errno = -error;
		return NULL;
	}
	cq->engine = engine;
	cq->ex.cqe = (int)cq->core->capacity;
	if (channel)
		__atomic_add_fetch(&channel->refcnt, 1, __ATOMIC_ACQ_REL);
	vb_face_add(context, &cq->object, VB_FACE_CQ);
	return cq;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int comp_vector)
{
	const struct vb_cq_options plain = {0};
	struct vb_face_cq *cq;

	if (cqe <= 0 || comp_vector < 0) {
		errno = EINVAL;
		return NULL;
	}
	cq = vb_face_cq_create(context, (uint32_t)cqe, cq_context, channel, (uint32_t)comp_vector,
			       &plain);
	return cq ? ibv_cq_ex_to_cq(&cq->ex) : NULL;
}

static inline void translate(const struct vb_cqe *from, struct ibv_wc *to)
{
	to->wr_id = from->wr_id;
	to->status = (enum ibv_wc_status)from->status;
	to->opcode = (enum ibv_wc_opcode)from->opcode;
	to->vendor_err = from->vendor_err;
	to->byte_len = from->byte_len;
	to->imm_data = vb_face_imm(from);
	to->qp_num = from->qpn;
	to->src_qp = from->src_qpn;
	to->wc_flags = from->wc_flags;
	to->pkey_index = 0;
	to->slid = 0;
	to->sl = from->sl;
	to->dlid_path_bits = 0;
}

int vb_face_poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	struct vb_face_cq *cq = vb_face_cq(ibv);
	struct vb_cqe batch[VB_POLL_BATCH];
	int done = 0, asked, got, i;

	if (!cq->engine)
		return -EIO;
	while (done < n) {
		asked = VB_MIN(n - done, VB_POLL_BATCH);
		got = vb_engine_poll_cq(cq->engine, cq->core, batch, asked);
		if (got < 0)
			return done ? done : got;
		for (i = 0; i < got; i++)
			translate(&batch[i], &wc[done + i]);
		done += got;
		if (got < asked)
			break;
	}
	return done;
}

int vb_face_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	struct vb_face_cq *cq = vb_face_cq(ibv);

	const bool looks_itself = vb_face_looks_itself(ibv->channel);

	if (!(looks_itself ? vb_face_enter_to_arm(cq->engine) : vb_face_enter(cq->engine)))
		return EIO;
	vb_cq_arm(cq->core, solicited_only != 0);
	if (!looks_itself)
		vb_engine_wake_thread(cq->engine);
	vb_engine_leave(cq->engine);
	return 0;
}

int ibv_resize_cq(struct ibv_cq *ibv, int cqe)
{
	struct vb_face_cq *cq = vb_face_cq(ibv);
	struct vb_rings rings, unused;
	int error;

	if (cqe <= 0)
		return EINVAL;
	error = vb_rings_alloc(&rings, cq->rings.pd, vb_cq_room((uint32_t)cqe), VB_RINGS_CQ);
	if (error)
		return -error;
	unused = rings;
	if (!vb_face_enter(cq->engine)) {
		error = -EIO;
	} else {
		error = vb_cq_resize_in(cq->core, (uint32_t)cqe, rings.memory);
		if (!error) {
			unused = cq->rings;
			cq->rings = rings;
		}
		ibv->cqe = (int)cq->core->capacity;
		vb_engine_leave(cq->engine);
	}
	vb_rings_free(&unused);
	return -error;
}

/* The kernel's two refusals: of nothing, and of what it does not know. */
int vb_face_modify_cq(struct ibv_cq *ibv, struct ibv_modify_cq_attr *attr)
{
	struct vb_face_cq *cq = vb_face_cq(ibv);

	if (!attr->attr_mask)
		return EINVAL;
	if (attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE)
		return EOPNOTSUPP;
	if (!vb_face_enter(cq->engine))
		return EIO;
	vb_cq_moderate(cq->core, attr->moderate.cq_count, attr->moderate.cq_period * 1000ull);
	vb_engine_leave(cq->engine);
	return 0;
}

/* The program still holds events of this CQ: it is to acknowledge them first (ibv_get_cq_event(3)).
 */
static void await_acknowledgements(struct vb_face_cq *cq)
{
	struct ibv_comp_channel *channel = cq->ex.channel;
	uint32_t completions = 0, overruns;

	overruns = vb_event_forget(&cq->object.context->async, &cq->overrun.source);
	if (channel)
		completions = vb_event_forget(
			&vb_container_of(channel, struct vb_face_channel, ibv)->queue,
			&cq->completion);
	pthread_mutex_lock(&cq->ex.mutex);
	while (cq->ex.comp_events_completed != completions ||
	       cq->ex.async_events_completed != overruns)
		pthread_cond_wait(&cq->ex.cond, &cq->ex.mutex);
	pthread_mutex_unlock(&cq->ex.mutex);
	if (channel)
		__atomic_sub_fetch(&channel->refcnt, 1, __ATOMIC_ACQ_REL);
}

int ibv_destroy_cq(struct ibv_cq *ibv)
{
	struct vb_face_cq *cq = vb_face_cq(ibv);
	int error = 0;

	if (vb_face_enter(cq->engine)) {
		error = vb_cq_destroy(cq->core);
		vb_engine_leave(cq->engine);
	}
	if (error)
		return -error;
	await_acknowledgements(cq);
	vb_face_remove(&cq->object);
	free_shell(cq);
	return 0;
}

void vb_face_cq_close(struct vb_face_cq *cq)
{
	vb_cq_destroy(cq->core);
	cq->core = NULL;
	cq->engine = NULL;
}
