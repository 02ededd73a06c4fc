/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * face.h - the objects behind libibverbs.so.1.
 *
 * The face is thin: it checks arguments, translates between the public structs of
 * <infiniband/verbs.h> and the core's, and keeps what the verbs ask for beyond the core: event
 * queues with their descriptors, and who must be acknowledged before an object may go. Each public
 * struct is the first member of ours, so that a program's pointer is our pointer.
 *
 *      program -> ibv_qp                          vb_qp.user -> vb_face_qp
 *                 (vb_face_qp.ex.qp_base)         vb_face_qp.core -> vb_qp
 *
 * Locks, outermost first: the engine's, the list of contexts, a context's, an event queue's. The
 * mutexes inside the public structs guard what the header puts beside them.
 *
 * A PD, MR or DM may have several shells, in contexts that share a cmd_fd (import.c); its core goes
 * with whichever is destroyed first, or with the last one that is closed.
 *
 * A context lives until it is closed and its last object is destroyed: closing a device with live
 * objects destroys their cores, and the shells that programs still hold refuse with EIO.
 */
#ifndef VB_VERBS_FACE_H
#define VB_VERBS_FACE_H

#include <endian.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What the header declares is what the library exports. */
#pragma GCC visibility push(default)
#include <infiniband/verbs.h>
#pragma GCC visibility pop

#include "base/list.h"
#include "host/host.h"
#include "verbs/events.h"

#define VB_EXPORT __attribute__((visibility("default")))

#define VB_PORT 1u	 /* the only port of a device */
#define VB_POLL_BATCH 16 /* completions taken from the engine at a time */

/* Providers know their own devices by a pointer just behind the public struct: it must read as
 * NULL. */
#define VB_FACE_DEVICE_PAD 512u

struct vb_face_device {
	struct ibv_device ibv;
	uint8_t zero[VB_FACE_DEVICE_PAD];
	struct vb_device *host;
};

/* In the order in which closing a device takes them down. */
enum vb_face_kind {
	VB_FACE_FLOW,
	VB_FACE_COUNTERS,
	VB_FACE_QP,
	VB_FACE_WQ_TABLE,
	VB_FACE_WQ,
	VB_FACE_COMP_CNTR,
	VB_FACE_AH,
	VB_FACE_SRQ,
	VB_FACE_CQ,
	VB_FACE_MW,
	VB_FACE_MR,
	VB_FACE_DM,
	VB_FACE_XRCD,
	VB_FACE_TD,   /* has no core */
	VB_FACE_DMAH, /* nor has this */
	VB_FACE_PARENT,
	VB_FACE_PD,
	VB_FACE_KINDS,
};

/* In every object: its place in its context's lists. */
struct vb_face_object {
	struct vb_list link;
	struct vb_face_context *context;
	bool has_handle; /* it can be imported by that number */
	bool foreign;	 /* it was, from another process, whose number it is */
	uint32_t handle;
	uint32_t unit; /* where other processes find it: exports.h; 0: nowhere */
};

struct vb_face_context {
	struct vb_engine *engine; /* NULL once closed */
	struct vb_list link;	  /* in the list of open contexts */
	pthread_mutex_t lock;	  /* objects, references */
	struct vb_list objects[VB_FACE_KINDS];
	unsigned int references;    /* the program's, and one for each object */
	uint32_t family;	    /* what contexts of one cmd_fd have in common */
	struct vb_exports *exports; /* what others may import of it, or NULL */
	struct vb_imports *imports; /* what it may import of another process, or NULL */
	struct vb_event_queue async;
	struct vb_async_source device_fatal, port_active, port_error;
	struct verbs_context verbs; /* last: it ends with the public ibv_context */
};

struct vb_face_channel {
	struct ibv_comp_channel ibv;
	struct vb_event_queue queue;
	_Atomic uint32_t credit; /* how often a wait may begin with looking, see channel.c */
	_Atomic uint32_t waits;
};

struct vb_face_pd {
	struct ibv_pd ibv;
	struct vb_face_object object;
	struct vb_list siblings; /* the other shells of the same core */
	struct vb_engine *engine;
	struct vb_pd *core;
	struct vb_parent *parent; /* of a parent domain, else NULL */
};

struct vb_face_td {
	struct ibv_td ibv;
	struct vb_face_object object;
	atomic_uint users;
};

/* Memory for an object's rings, from a parent domain's allocator. */
struct vb_rings {
	struct ibv_pd *pd; /* the parent domain, which it keeps; NULL: no parent domain */
	void *memory;	   /* NULL: the core's own */
	uint64_t type;	   /* what the allocator was told */
};

enum vb_rings_type { VB_RINGS_QP, VB_RINGS_CQ, VB_RINGS_SRQ };

/* What a region that is not the program's own memory keeps alive. */
struct vb_mr_backing {
	struct vb_dm_memory *dm; /* device memory, or NULL */
	void *mapping;		 /* of a descriptor, or NULL: mapped bytes */
	size_t mapped;
	uint64_t offset;	    /* of the region in it */
	struct vb_foreign *foreign; /* another process's memory, or NULL */
};

struct vb_face_mr {
	struct ibv_mr ibv;
	struct vb_face_object object;
	struct vb_list siblings; /* the other shells of the same core */
	struct vb_engine *engine;
	struct vb_mr *core;
	struct vb_mr_backing *backing; /* NULL for the program's own memory */
	struct vb_face_dmah *dmah;     /* that it was registered with, or NULL: newer.h */
	uint32_t pd_handle;	       /* the PD's, where ibv.pd was a parent domain that is gone */
	bool imported;
};

struct vb_face_dm {
	struct ibv_dm ibv;
	struct vb_face_object object;
	struct vb_list siblings;     /* the other shells of the same memory */
	struct vb_dm_memory *memory; /* NULL once it was freed through another shell */
};

struct vb_face_cq {
	struct ibv_cq_ex ex; /* begins with the members of struct ibv_cq */
	struct vb_engine *engine;
	struct vb_cq *core;
	struct vb_cqe current; /* what the iterator of cq_ex.c stands on */
	struct vb_rings rings;
	struct vb_face_object object;
	struct vb_event_source completion;
	struct vb_async_source overrun;
};

struct vb_face_srq {
	struct ibv_srq ibv;
	struct vb_engine *engine;
	struct vb_srq *core;
	bool beside; /* as for a queue pair */
	struct vb_rings rings;
	struct vb_face_object object;
	struct vb_async_source error, limit;
	struct ibv_xrcd *xrcd; /* XRC, else NULL */
};

/* One handle of a domain: see xrc.c. */
struct vb_face_xrcd {
	struct ibv_xrcd ibv;
	struct vb_face_object object;
	struct vb_engine *engine;
	struct vb_domain *domain;
	struct vb_xrcd *core;
	uint32_t users; /* SRQs and QPs made or opened by this handle */
};

struct vb_face_ah {
	struct ibv_ah ibv;
	struct vb_face_object object;
	struct vb_engine *engine;
	struct vb_ah *core;
};

enum vb_qp_source {
	VB_QP_SOURCE_FATAL,
	VB_QP_SOURCE_REQ_ERR,
	VB_QP_SOURCE_ACCESS_ERR,
	VB_QP_SOURCE_COMM_EST,
	VB_QP_SOURCE_SQ_DRAINED,
	VB_QP_SOURCE_LAST_WQE,
	VB_QP_SOURCES,
};

struct vb_face_qp {
	struct ibv_qp_ex ex;
	void (*behind_ex)(
		void); /* ex's wr_flush in releases newer than the header we are built with */
	struct vb_engine *engine;
	struct vb_qp *core;
	bool beside; /* one thread alone posts to it, beside the NIC */
	struct vb_rings rings;
	struct vb_builder *builder; /* qp_ex.c; NULL for a QP made without send_ops_flags */
	int sq_sig_all;
	struct ibv_xrcd *xrcd; /* XRC_RECV */
	struct vb_list shared; /* XRC_RECV: all handles of one core QP; core->user is one of them */
	struct vb_face_object object;
	struct vb_async_source events[VB_QP_SOURCES];
};

static inline struct vb_face_context *vb_face_context(struct ibv_context *context)
{
	return vb_container_of(context, struct vb_face_context, verbs.context);
}

static inline struct vb_face_pd *vb_face_pd(struct ibv_pd *pd)
{
	return vb_container_of(pd, struct vb_face_pd, ibv);
}

static inline struct vb_face_mr *vb_face_mr(struct ibv_mr *mr)
{
	return vb_container_of(mr, struct vb_face_mr, ibv);
}

static inline struct vb_face_cq *vb_face_cq(struct ibv_cq *cq)
{
	return (struct vb_face_cq *)cq;
}

static inline struct vb_face_srq *vb_face_srq(struct ibv_srq *srq)
{
	return vb_container_of(srq, struct vb_face_srq, ibv);
}

static inline struct vb_face_xrcd *vb_face_xrcd(struct ibv_xrcd *xrcd)
{
	return vb_container_of(xrcd, struct vb_face_xrcd, ibv);
}

static inline struct vb_face_qp *vb_face_qp(struct ibv_qp *qp)
{
	return vb_container_of(qp, struct vb_face_qp, ex.qp_base);
}

/* channel.c */
/* vb_face_looks_itself - who waits on the channel mostly finds its events by looking: the thread
 * need not take over. NULL is no channel. */
bool vb_face_looks_itself(const struct ibv_comp_channel *channel);

/* vb_face_enter - the engine of an object; false once its device is closed, or in a forked child.
 */
static inline bool vb_face_enter(struct vb_engine *engine)
{
	return engine && vb_engine_enter(engine);
}

/* vb_face_beside - the same for what is posted beside the NIC; nothing is entered. */
static inline bool vb_face_beside(const struct vb_engine *engine)
{
	return engine && vb_engine_is_alive(engine);
}

/* vb_face_enter_to_arm - the same for who arms, and looks for the event himself. */
static inline bool vb_face_enter_to_arm(struct vb_engine *engine)
{
	return engine && vb_engine_enter_to_arm(engine);
}

/* vb_face_imm - the word of a completion that holds immediate data or, in host order, an rkey. */
static inline uint32_t vb_face_imm(const struct vb_cqe *cqe)
{
	return cqe->wc_flags & VB_WC_WITH_INV ? cqe->imm : htobe32(cqe->imm);
}

/* --- device.c, context.c ----------------------------------------------------------------- */
/* vb_face_setup - hands our hooks to the host, once. */
void vb_face_setup(void);
struct vb_device *vb_face_host_device(struct ibv_context *context);
/* vb_face_add, vb_face_remove - an object begins and ends to hold its context. */
void vb_face_add(struct ibv_context *context, struct vb_face_object *object,
		 enum vb_face_kind kind);
void vb_face_remove(struct vb_face_object *object);
/* vb_face_handle - a number for a public handle field. */
uint32_t vb_face_handle(void);

/* --- teardown: what closing a device does to objects that are still alive ---------------- */
void vb_face_qp_close(struct vb_face_qp *qp);
void vb_face_comp_cntr_close(struct vb_list *link); /* a place in its context's list */
void vb_face_ah_close(struct vb_face_ah *ah);
void vb_face_srq_close(struct vb_face_srq *srq);
void vb_face_cq_close(struct vb_face_cq *cq);
void vb_face_mw_close(struct vb_list *link);  /* a window's place in its context's list */
void vb_face_mr_close(struct vb_face_mr *mr); /* outside the engine, the others inside */
void vb_face_dm_close(struct vb_face_dm *dm); /* outside */
void vb_face_xrcd_close(struct vb_face_xrcd *xrcd);
void vb_face_parent_close(struct vb_face_pd *pd);
void vb_face_pd_close(struct vb_face_pd *pd);

/* vb_face_open - a context of that family on a device, without cmd_fd. NULL with errno. */
struct ibv_context *vb_face_open(struct ibv_device *device, uint32_t family);
/* vb_face_device - by its index; NULL. */
struct ibv_device *vb_face_device(unsigned int index);

/* --- import.c ---------------------------------------------------------------------------- */
/* vb_face_join - a shell becomes a sibling of another. */
void vb_face_join(struct vb_list *siblings, struct vb_list *newcomer);
/* vb_face_part - takes a shell out of its siblings. True: it was the last. */
bool vb_face_part(struct vb_list *siblings);
/* vb_face_part_any - takes one of the others out and returns it; NULL: there is none. */
struct vb_list *vb_face_part_any(struct vb_list *siblings);

/* --- pd.c, mr.c, dm.c -------------------------------------------------------------------- */
/* vb_face_pd_share - another shell of a PD, in another context. NULL with errno. */
struct vb_face_pd *vb_face_pd_share(struct ibv_context *context, struct vb_face_pd *with);
/* vb_face_mr_create - registers and makes the shell; backing is the shell's from then on. NULL with
 * errno, and backing is still the caller's. */
struct vb_face_mr *vb_face_mr_create(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				     unsigned int access, struct vb_mr_backing *backing);
/* vb_face_mr_share - another shell of a region, in pd's context. NULL with errno. */
struct vb_face_mr *vb_face_mr_share(struct ibv_pd *pd, struct vb_face_mr *with);
struct vb_face_dm *vb_face_dm_share(struct ibv_context *context, struct vb_face_dm *with);
struct ibv_dm *vb_face_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
int vb_face_free_dm(struct ibv_dm *dm);
struct ibv_mr *vb_face_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset,
				 size_t length, unsigned int access);
/* vb_face_dm_export - a descriptor of the memory, the caller's; -1 with errno EOPNOTSUPP where it
 * is less than a page. */
int vb_face_dm_export(struct ibv_dm *dm);
/* vb_dm_unregister - a region over this memory is gone. */
void vb_dm_unregister(struct vb_dm_memory *memory);

/* --- parent.c ---------------------------------------------------------------------------- */
struct ibv_td *vb_face_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int vb_face_dealloc_td(struct ibv_td *td);
struct ibv_pd *vb_face_alloc_parent_domain(struct ibv_context *context,
					   struct ibv_parent_domain_init_attr *attr);
/* vb_face_dealloc_parent - 0, or EBUSY while an object's rings are its. */
int vb_face_dealloc_parent(struct vb_face_pd *pd);
/* vb_face_is_single - a thread domain promises that one thread uses the objects. */
bool vb_face_is_single(const struct vb_face_pd *pd);
/* vb_rings_alloc - asks pd's allocator for bytes, zeroed; outside the engine, since it is the
 * program's code. 0 or -ENOMEM. Nothing to do for bytes 0, pd NULL or a plain one. */
int vb_rings_alloc(struct vb_rings *rings, struct ibv_pd *pd, size_t bytes,
		   enum vb_rings_type type);
/* vb_rings_free - outside; once what lies in them is gone. */
void vb_rings_free(struct vb_rings *rings);

/* --- query.c ----------------------------------------------------------------------------- */
int vb_face_query_device_ex(struct ibv_context *context,
			    const struct ibv_query_device_ex_input *input,
			    struct ibv_device_attr_ex *attr, size_t size);
int vb_face_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		       size_t size);
/* vb_face_query_gid_type - ibv_query_gid_type of the private nodes. 0, or -1 with errno. */
int vb_face_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
			   int *type);
int vb_face_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);

/* --- beside.c ---------------------------------------------------------------------------- */
/* vb_face_look_for_modules - those that came since the last look find our devices in the kernel's
 * files too. */
void vb_face_look_for_modules(void);
/* vb_face_open_beside - opens a file, ours where the path is one of the kernel's about our devices,
 * to read. The descriptor, or -1 with errno. */
int vb_face_open_beside(const char *path);

/* --- cq.c, cq_ex.c ----------------------------------------------------------------------- */
int vb_face_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int vb_face_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct vb_cq_options {
	struct ibv_pd *parent; /* a parent domain, or NULL */
	bool single;	       /* one thread uses it */
	bool overwrites;       /* instead of an overrun */
};
struct vb_face_cq *vb_face_cq_create(struct ibv_context *context, uint32_t entries, void *user,
				     struct ibv_comp_channel *channel, uint32_t vector,
				     const struct vb_cq_options *options);
int vb_face_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
struct ibv_cq_ex *vb_face_create_cq_ex(struct ibv_context *context,
				       struct ibv_cq_init_attr_ex *attr);

/* --- qp.c, qp_ex.c, post.c, srq.c -------------------------------------------------------- */
struct ibv_qp *vb_face_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
/* vb_builder_create - the ibv_wr_* functions of a QP. 0 or -ENOMEM, -EINVAL, -EOPNOTSUPP. */
int vb_builder_create(struct vb_face_qp *qp, uint64_t operations);
void vb_builder_destroy(struct vb_builder *builder);
int vb_face_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int vb_face_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int vb_face_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct ibv_srq *vb_face_create_srq_ex(struct ibv_context *context,
				      struct ibv_srq_init_attr_ex *attr);
/* What an SRQ of another type has beyond a basic one. */
struct vb_srq_more {
	struct vb_cq *cq;
	uint32_t max_num_tags; /* 0: no tag matching */
	struct ibv_xrcd *xrcd; /* NULL: not of XRC */
};
/* vb_face_srq_create - NULL with errno; attr returns what was given. */
struct ibv_srq *vb_face_srq_create(struct ibv_pd *pd, void *user, struct ibv_srq_attr *attr,
				   const struct vb_srq_more *more);

/* --- tm.c: tag matching ------------------------------------------------------------------ */
struct ibv_srq *vb_face_create_tm_srq(struct ibv_srq_init_attr_ex *attr);
int vb_face_post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *op, struct ibv_ops_wr **bad);
extern const struct ibv_tm_caps vb_face_tm_caps;

/* vb_face_qp_shell - a public queue pair without a core; pd or xrcd is NULL. NULL with errno. */
struct vb_face_qp *vb_face_qp_shell(struct ibv_context *context, struct ibv_pd *pd,
				    struct ibv_xrcd *xrcd, const struct ibv_qp_init_attr *attr);
void vb_face_qp_shell_free(struct vb_face_qp *qp);
int vb_face_get_srq_num(struct ibv_srq *srq, uint32_t *number);

/* --- xrc.c ------------------------------------------------------------------------------- */
void vb_face_xrc_tables(struct verbs_context *verbs);
/* vb_face_xrcd_use - one more or less that the handle may not be closed under; NULL is accepted. */
void vb_face_xrcd_use(struct ibv_xrcd *xrcd, int by);
/* --- mr.c, mw.c, advise.c ---------------------------------------------------------------- */
struct ibv_mr *vb_face_alloc_null_mr(struct ibv_pd *pd);
struct ibv_mw *vb_face_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int vb_face_dealloc_mw(struct ibv_mw *mw);
int vb_face_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
/* vb_face_bind_to_core - 0 or -EINVAL: what no window could be bound with. */
int vb_face_bind_to_core(const struct ibv_mw *mw, uint32_t rkey,
			 const struct ibv_mw_bind_info *info, struct vb_mw_bind *core);
int vb_face_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		      struct ibv_sge *list, uint32_t count);

/* --- ah.c -------------------------------------------------------------------------------- */
void vb_face_ah_attr_to_core(const struct vb_device *host, const struct ibv_ah_attr *from,
			     struct vb_ah_attr *to);
void vb_face_ah_attr_from_core(const struct vb_ah_attr *from, struct ibv_ah_attr *to);
/* vb_face_ah_core - NULL for NULL. */
static inline struct vb_ah *vb_face_ah_core(struct ibv_ah *ah)
{
	return ah ? vb_container_of(ah, struct vb_face_ah, ibv)->core : NULL;
}

/* --- async.c ----------------------------------------------------------------------------- */
extern const struct vb_host_hooks vb_face_hooks;
/* vb_face_raise_wq - wq.c's part. */
void vb_face_raise_wq(struct vb_wq *core);
void vb_face_async_init(struct vb_async_source *source, enum ibv_event_type type);
/* vb_face_contexts_* - the open contexts, for events that concern the whole device. */
void vb_face_contexts_add(struct vb_face_context *context);
void vb_face_contexts_remove(struct vb_face_context *context);
/* vb_face_contexts_visit - calls back for each until one call returns true. */
void vb_face_contexts_visit(bool (*visit)(struct vb_face_context *context, void *argument),
			    void *argument);

#endif
