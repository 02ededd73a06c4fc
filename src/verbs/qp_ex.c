/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * qp_ex.c - posting by function calls (ibv_wr_post(3)).
 *
 * Between ibv_wr_start and ibv_wr_complete the requests are only collected; complete posts all of
 * them or, when one is wrong or there is no room, none. The QP's builder is locked in between, not
 * the engine: a program may take its time; with a thread domain neither is. The first error is kept
 * and returned by complete.
 *
 *      requests   one for each operation, naming its first SGE
 *      sges       of all requests, in order
 *      bytes      inline data; an inline SGE holds an offset into it until complete, since the
 *                 array may move while it grows
 *
 * The arrays grow to what a program uses in one batch and stay.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/beside.h"
#include "verbs/face.h"

#define VB_BUILDER_FLAGS                                                                           \
	(IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_IP_CSUM)

struct vb_built {
	struct vb_send_wr wr;
	uint32_t first_sge;
	uint32_t header_at; /* TSO: in bytes */
	bool addressed;	    /* UD, XRC: the setter was called */
};

struct vb_builder {
	pthread_mutex_t lock; /* held from start to complete or abort, but for: */
	bool single;	      /* one thread alone posts */
	int error;
	struct vb_qp_cap cap;
	uint64_t operations; /* send_ops_flags that the QP's type has */
	bool needs_address;  /* UD, XRC */
	struct vb_built *requests;
	struct vb_sge *sges;
	uint8_t *bytes;
	uint32_t request_count, request_room;
	uint32_t sge_count, sge_room;
	uint32_t byte_count, byte_room;
};

static inline struct vb_builder *builder_of(struct ibv_qp_ex *ex)
{
	return vb_container_of(ex, struct vb_face_qp, ex)->builder;
}

/* Room for need elements in all, or NULL with the error kept. */
static void *grow(struct vb_builder *b, void *array, uint32_t *room, uint32_t need, size_t size)
{
	uint32_t more = *room ? *room : 16;
	void *grown;

	while (more < need)
		more *= 2;
	grown = realloc(array, more * size);
	if (grown)
		*room = more;
	else
		b->error = ENOMEM;
	return grown;
}

static bool reserve_sges(struct vb_builder *b, uint32_t n)
{
	void *grown;

	if (b->sge_count + n <= b->sge_room)
		return true;
	grown = grow(b, b->sges, &b->sge_room, b->sge_count + n, sizeof(*b->sges));
	if (grown)
		b->sges = grown;
	return grown;
}

static bool reserve_bytes(struct vb_builder *b, uint32_t n)
{
	void *grown;

	if (b->byte_count + n <= b->byte_room)
		return true;
	grown = grow(b, b->bytes, &b->byte_room, b->byte_count + n, 1);
	if (grown)
		b->bytes = grown;
	return grown;
}

/* --- one function for each operation ----------------------------------------------------- */

/* An operation's flag is the bit of its opcode, up to where those of two opcodes were left out. */
static inline uint64_t operation_of(enum vb_wr_opcode opcode)
{
	return 1ull << (opcode < VB_WR_FLUSH ? opcode : opcode - 3);
}

/* A new request with what all have in common; NULL once an error is kept. */
static struct vb_send_wr *begin(struct ibv_qp_ex *ex, enum vb_wr_opcode opcode)
{
	struct vb_builder *b = builder_of(ex);
	struct vb_built *built;

	if (b->error)
		return NULL;
	if (ex->wr_flags & ~(unsigned int)(VB_BUILDER_FLAGS | IBV_SEND_INLINE) ||
	    !(b->operations & operation_of(opcode))) {
		b->error = EINVAL;
		return NULL;
	}
	if (b->request_count == b->cap.max_send_wr) {
		b->error = ENOMEM;
		return NULL;
	}
	if (b->request_count == b->request_room) {
		built = grow(b, b->requests, &b->request_room, b->request_count + 1,
			     sizeof(*built));
		if (!built)
			return NULL;
		b->requests = built;
	}
	built = &b->requests[b->request_count++];
	built->wr = (struct vb_send_wr){
		.wr_id = ex->wr_id,
		.opcode = opcode,
		.flags = ex->wr_flags & VB_BUILDER_FLAGS,
	};
	built->first_sge = b->sge_count;
	built->addressed = false;
	return &built->wr;
}

static void wr_send(struct ibv_qp_ex *ex)
{
	begin(ex, VB_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	struct vb_send_wr *wr = begin(ex, VB_WR_SEND_WITH_IMM);

	if (wr)
		wr->imm = be32toh(imm);
}

static void begin_remote(struct ibv_qp_ex *ex, enum vb_wr_opcode opcode, uint32_t rkey,
			 uint64_t remote_addr, uint32_t imm)
{
	struct vb_send_wr *wr = begin(ex, opcode);

	if (!wr)
		return;
	wr->rkey = rkey;
	wr->remote_addr = remote_addr;
	wr->imm = imm;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	begin_remote(ex, VB_WR_RDMA_WRITE, rkey, remote_addr, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, __be32 imm)
{
	begin_remote(ex, VB_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr, be32toh(imm));
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	begin_remote(ex, VB_WR_RDMA_READ, rkey, remote_addr, 0);
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	struct vb_send_wr *wr = begin(ex, VB_WR_SEND_WITH_INV);

	if (wr)
		wr->imm = rkey;
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	struct vb_send_wr *wr = begin(ex, VB_WR_LOCAL_INV);

	if (wr)
		wr->imm = rkey;
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	struct vb_send_wr *wr = begin(ex, VB_WR_BIND_MW);

	if (wr &&
	    (!mw || mw->type != IBV_MW_TYPE_2 || vb_face_bind_to_core(mw, rkey, info, &wr->bind)))
		builder_of(ex)->error = EINVAL;
}

static void begin_atomic(struct ibv_qp_ex *ex, enum vb_wr_opcode opcode, uint32_t rkey,
			 uint64_t remote_addr, uint64_t compare_add, uint64_t swap)
{
	struct vb_send_wr *wr = begin(ex, opcode);

	if (!wr)
		return;
	wr->rkey = rkey;
	wr->remote_addr = remote_addr;
	wr->compare_add = compare_add;
	wr->swap = swap;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
			      uint64_t compare, uint64_t swap)
{
	begin_atomic(ex, VB_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
				uint64_t add)
{
	begin_atomic(ex, VB_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr, add, 0);
}

static void wr_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, size_t length,
		     uint8_t type, uint8_t level)
{
	struct vb_builder *b = builder_of(ex);
	struct vb_send_wr *wr = begin(ex, VB_WR_FLUSH);

	if (!wr)
		return;
	if (length > UINT32_MAX) {
		b->error = EINVAL;
		return;
	}
	wr->rkey = rkey;
	wr->remote_addr = remote_addr;
	wr->flush.length = (uint32_t)length;
	wr->flush.placement = type;
	wr->flush.selectivity = level;
}

/* The header is the program's again at once. */
static void wr_send_tso(struct ibv_qp_ex *ex, void *header, uint16_t bytes, uint16_t mss)
{
	struct vb_builder *b = builder_of(ex);
	struct vb_send_wr *wr = begin(ex, VB_WR_TSO);

	if (!wr)
		return;
	if (!header || !bytes || bytes > VB_MAX_TSO_HEADER) {
		b->error = EINVAL;
		return;
	}
	if (!reserve_bytes(b, bytes))
		return;
	memcpy(b->bytes + b->byte_count, header, bytes);
	b->requests[b->request_count - 1].header_at = b->byte_count;
	b->byte_count += bytes;
	wr->tso_header_bytes = bytes;
	wr->tso_mss = mss;
}

/* --- setters: they complete the latest request ------------------------------------------- */

static struct vb_send_wr *latest(struct vb_builder *b)
{
	if (!b->error && !b->request_count)
		b->error = EINVAL;
	return b->error ? NULL : &b->requests[b->request_count - 1].wr;
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn,
			   uint32_t remote_qkey)
{
	struct vb_builder *b = builder_of(ex);
	struct vb_send_wr *wr = latest(b);

	if (!wr)
		return;
	b->requests[b->request_count - 1].addressed = ah;
	wr->ah = vb_face_ah_core(ah);
	wr->remote_qpn = remote_qpn;
	wr->remote_qkey = remote_qkey;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t remote_srqn)
{
	struct vb_builder *b = builder_of(ex);
	struct vb_send_wr *wr = latest(b);

	if (!wr)
		return;
	b->requests[b->request_count - 1].addressed = true;
	wr->remote_srqn = remote_srqn;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *list)
{
	struct vb_builder *b = builder_of(ex);
	struct vb_send_wr *wr = latest(b);

	if (!wr)
		return;
	if (num_sge > b->cap.max_send_sge || wr->num_sge) {
		b->error = EINVAL;
		return;
	}
	if (!num_sge || !reserve_sges(b, (uint32_t)num_sge))
		return;
	memcpy(&b->sges[b->sge_count], list, num_sge * sizeof(*list));
	b->sge_count += (uint32_t)num_sge;
	wr->num_sge = (uint32_t)num_sge;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = {.addr = addr, .length = length, .lkey = lkey};

	wr_set_sge_list(ex, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf,
				    const struct ibv_data_buf *list)
{
	struct vb_builder *b = builder_of(ex);
	struct vb_send_wr *wr = latest(b);
	uint32_t total = 0;
	size_t i;

	if (!wr)
		return;
	for (i = 0; i < num_buf; i++) {
		/* Judged before it is added: total never exceeds the cap. */
		if (list[i].length > b->cap.max_inline_data - total) {
			b->error = EINVAL;
			return;
		}
		total += (uint32_t)list[i].length;
	}
	if (wr->num_sge) {
		b->error = EINVAL;
		return;
	}
	if (!reserve_sges(b, 1) || !reserve_bytes(b, total))
		return;
	b->sges[b->sge_count++] = (struct vb_sge){.addr = b->byte_count, .length = total};
	for (i = 0; i < num_buf; i++) {
		if (list[i].length)
			memcpy(b->bytes + b->byte_count, list[i].addr, list[i].length);
		b->byte_count += (uint32_t)list[i].length;
	}
	wr->num_sge = 1;
	wr->flags |= VB_SEND_INLINE;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buffer = {.addr = addr, .length = length};

	wr_set_inline_data_list(ex, 1, &buffer);
}

/* The eight bytes are the data: there is no setter for them. */
static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
			    const void *value)
{
	const struct ibv_data_buf buffer = {.addr = (void *)(uintptr_t)value,
					    .length = sizeof(uint64_t)};

	begin_remote(ex, VB_WR_ATOMIC_WRITE, rkey, remote_addr, 0);
	wr_set_inline_data_list(ex, 1, &buffer);
}

/* --- the critical region ----------------------------------------------------------------- */

static void lock(struct vb_builder *b)
{
	if (!b->single)
		pthread_mutex_lock(&b->lock);
}

static void unlock(struct vb_builder *b)
{
	if (!b->single)
		pthread_mutex_unlock(&b->lock);
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct vb_builder *b = builder_of(ex);

	lock(b);
	b->error = 0;
	b->request_count = 0;
	b->sge_count = 0;
	b->byte_count = 0;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	unlock(builder_of(ex));
}

/* Inside the engine, or beside it: all of them or, when one is refused, none. */
static int post_all(struct vb_qp *core, struct vb_builder *b)
{
	uint32_t i, used = vb_qp_sq_used(core);
	int error;

	if (b->request_count > core->cap.max_send_wr - used)
		return -ENOMEM;
	for (i = 0; i < b->request_count; i++) {
		struct vb_built *built = &b->requests[i];

		built->wr.sges = &b->sges[built->first_sge];
		if (built->wr.opcode == VB_WR_TSO)
			built->wr.tso_header = b->bytes + built->header_at;
		if ((b->needs_address && !built->addressed) ||
		    vb_qp_check_send(core, &built->wr) < 0)
			return -EINVAL;
	}
	for (i = 0; i < b->request_count; i++) {
		struct vb_built *built = &b->requests[i];

		if (built->wr.flags & VB_SEND_INLINE)
			b->sges[built->first_sge].addr += (uintptr_t)b->bytes;
		error = b->single ? vb_qp_post_send_beside(core, &built->wr)
				  : vb_qp_post_send(core, &built->wr);
		if (error)
			return error;
	}
	return 0;
}

static int complete_beside(struct vb_face_qp *qp)
{
	int error;

	if (!vb_face_beside(qp->engine))
		return EIO;
	error = -post_all(qp->core, qp->builder);
	vb_engine_hand_over(qp->engine, qp->core);
	return error;
}

static int complete_inside(struct vb_face_qp *qp)
{
	int error;

	if (!qp->engine || !vb_engine_enter_to_post(qp->engine, qp->core))
		return EIO;
	error = -post_all(qp->core, qp->builder);
	vb_engine_leave_sends(qp->engine, qp->core);
	return error;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct vb_face_qp *qp = vb_container_of(ex, struct vb_face_qp, ex);
	struct vb_builder *b = qp->builder;
	int error = b->error;

	if (!error && b->request_count)
		error = b->single ? complete_beside(qp) : complete_inside(qp);
	unlock(b);
	return error;
}

/* --- create and destroy ------------------------------------------------------------------ */

#define VB_SEND_OPS (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define VB_WRITE_OPS (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)
#define VB_READ_OPS                                                                                \
	(IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |                            \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
/* FLUSH is not in every release's header. */
#define VB_PLACEMENT_OPS (1 << 11 | IBV_QP_EX_WITH_ATOMIC_WRITE)

#define VB_WINDOW_OPS (IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW)

_Static_assert(IBV_QP_EX_WITH_RDMA_WRITE == 1 << VB_WR_RDMA_WRITE &&
		       IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM == 1 << VB_WR_RDMA_WRITE_WITH_IMM &&
		       IBV_QP_EX_WITH_SEND == 1 << VB_WR_SEND &&
		       IBV_QP_EX_WITH_SEND_WITH_IMM == 1 << VB_WR_SEND_WITH_IMM &&
		       IBV_QP_EX_WITH_RDMA_READ == 1 << VB_WR_RDMA_READ &&
		       IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP == 1 << VB_WR_ATOMIC_CMP_AND_SWP &&
		       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD == 1 << VB_WR_ATOMIC_FETCH_AND_ADD &&
		       IBV_QP_EX_WITH_LOCAL_INV == 1 << VB_WR_LOCAL_INV &&
		       IBV_QP_EX_WITH_BIND_MW == 1 << VB_WR_BIND_MW &&
		       IBV_QP_EX_WITH_SEND_WITH_INV == 1 << VB_WR_SEND_WITH_INV &&
		       IBV_QP_EX_WITH_ATOMIC_WRITE == 1 << (VB_WR_ATOMIC_WRITE - 3),
	       "send_ops_flags");

static uint64_t supported_operations(enum ibv_qp_type type)
{
	uint64_t operations = VB_SEND_OPS;

	if (type == IBV_QPT_RAW_PACKET)
		return IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO;
	if (type != IBV_QPT_UD)
		operations |= VB_WRITE_OPS | VB_WINDOW_OPS;
	if (type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND)
		operations |= VB_READ_OPS | VB_PLACEMENT_OPS | IBV_QP_EX_WITH_SEND_WITH_INV;
	return operations;
}

/* Newer releases have one more member: behind the last that this header is sure to have. */
static void set_wr_flush(struct vb_face_qp *qp)
{
	void (*function)(struct ibv_qp_ex * ex, uint32_t rkey, uint64_t remote_addr, size_t length,
			 uint8_t type, uint8_t level) = wr_flush;
	enum { at = offsetof(struct ibv_qp_ex, wr_atomic_write) + sizeof(void (*)(void)) };

	_Static_assert(offsetof(struct ibv_qp_ex, wr_atomic_write) + 2 * sizeof(function) <=
			       offsetof(struct vb_face_qp, engine),
		       "wr_flush");
	memcpy((char *)&qp->ex + at, &function, sizeof(function));
}

int vb_builder_create(struct vb_face_qp *qp, uint64_t operations)
{
	struct ibv_qp_ex *ex = &qp->ex;
	struct vb_builder *b;

	if (operations & ~supported_operations(ex->qp_base.qp_type))
		return -EOPNOTSUPP;
	b = calloc(1, sizeof(*b));
	if (!b)
		return -ENOMEM;
	pthread_mutex_init(&b->lock, NULL);
	b->single = qp->beside;
	b->cap = qp->core->cap;
	b->operations = supported_operations(ex->qp_base.qp_type);
	b->needs_address =
		ex->qp_base.qp_type == IBV_QPT_UD || ex->qp_base.qp_type == IBV_QPT_XRC_SEND;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_atomic_write = wr_atomic_write;
	set_wr_flush(qp);
	ex->wr_send_inv = wr_send_inv;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_send_tso = wr_send_tso;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	qp->builder = b;
	return 0;
}

void vb_builder_destroy(struct vb_builder *b)
{
	if (!b)
		return;
	pthread_mutex_destroy(&b->lock);
	free(b->requests);
	free(b->sges);
	free(b->bytes);
	free(b);
}
