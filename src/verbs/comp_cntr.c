/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * comp_cntr.c - completion counters (ibv_create_comp_cntr(3), ibv_qp_attach_comp_cntr(3), node
 * IBVERBS_1.18): the core's (core/tally.h), with the errors of the manual pages.
 *
 * Who reads a counter may be waiting for it, and do nothing else: reading moves the NIC on, as
 * polling a completion queue does.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/tally.h"
#include "verbs/newer.h"

struct counter_caps {
	uint64_t max_value; /* one more is 0 */
	uint32_t max_counters;
	uint32_t kinds;
};
enum { COUNTS_OPERATIONS, COUNTS_BYTES };
struct counter_attr {
	uint32_t comp_mask;
	uint32_t type;
	uint32_t flags;
};
struct attach_attr {
	uint32_t comp_mask;
	uint32_t kinds; /* bits of enum vb_counted */
};
#define ALL_KINDS ((1u << VB_COUNTED_KINDS) - 1)

/* struct ibv_comp_cntr */
struct face_counter {
	struct ibv_context *context; /* this and handle is what programs see */
	uint32_t handle;
	struct vb_face_object object;
	struct vb_engine *engine; /* NULL once its context is closed */
	struct vb_counter *core;
};

int query_counter_caps(struct ibv_context *context, struct counter_caps *caps, size_t size)
	VB_NEWER("_ibv_query_comp_cntr_caps");
struct face_counter *create_counter(struct ibv_context *context, struct counter_attr *attr)
	VB_NEWER("ibv_create_comp_cntr");
int destroy_counter(struct face_counter *counter) VB_NEWER("ibv_destroy_comp_cntr");
int set_counter(struct face_counter *counter, uint64_t value) VB_NEWER("ibv_set_comp_cntr");
int set_error_counter(struct face_counter *counter, uint64_t value)
	VB_NEWER("ibv_set_err_comp_cntr");
int inc_counter(struct face_counter *counter, uint64_t amount) VB_NEWER("ibv_inc_comp_cntr");
int inc_error_counter(struct face_counter *counter, uint64_t amount)
	VB_NEWER("ibv_inc_err_comp_cntr");
int read_counter(struct face_counter *counter, uint64_t *value) VB_NEWER("ibv_read_comp_cntr");
int read_error_counter(struct face_counter *counter, uint64_t *value)
	VB_NEWER("ibv_read_err_comp_cntr");
int attach_counter(struct ibv_qp *qp, struct face_counter *counter, struct attach_attr *attr)
	VB_NEWER("ibv_qp_attach_comp_cntr");

int query_counter_caps(struct ibv_context *context, struct counter_caps *caps, size_t size)
{
	memset(caps, 0, size);
	if (size < sizeof(*caps))
		return EINVAL;
	*caps = (struct counter_caps){
		.max_value = UINT64_MAX,
		.max_counters = VB_MAX_COUNTERS,
		.kinds = ALL_KINDS,
	};
	return 0;
}

/* NULL with errno. */
static struct vb_counter *create_core(struct vb_engine *engine, bool bytes)
{
	struct vb_counter *core;
	int error;

	if (!vb_face_enter(engine)) {
		errno = EIO;
		return NULL;
	}
	core = vb_counter_create(vb_engine_nic(engine), bytes);
	error = errno;
	vb_engine_leave(engine);
	errno = error;
	return core;
}

struct face_counter *create_counter(struct ibv_context *context, struct counter_attr *attr)
{
	struct vb_engine *engine = vb_face_context(context)->engine;
	struct face_counter *counter;

	if (attr->comp_mask || attr->flags || attr->type > COUNTS_BYTES) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	counter = calloc(1, sizeof(*counter));
	if (!counter) {
		errno = ENOMEM;
		return NULL;
	}
	counter->core = create_core(engine, attr->type == COUNTS_BYTES);
	if (!counter->core) {
		free(counter);
		return NULL;
	}
	counter->context = context;
	counter->handle = vb_face_handle();
	counter->engine = engine;
	vb_face_add(context, &counter->object, VB_FACE_COMP_CNTR);
	return counter;
}

int destroy_counter(struct face_counter *counter)
{
	int error = 0;

	if (vb_face_enter(counter->engine)) {
		error = vb_counter_destroy(counter->core);
		vb_engine_leave(counter->engine);
	}
	if (error)
		return -error;
	vb_face_remove(&counter->object);
	free(counter);
	return 0;
}

/* The queue pairs of its context are gone. */
void vb_face_comp_cntr_close(struct vb_list *link)
{
	struct face_counter *counter = vb_container_of(link, struct face_counter, object.link);

	vb_counter_destroy(counter->core);
	counter->core = NULL;
	counter->engine = NULL;
}

/* --- values ------------------------------------------------------------------------------ */

enum entry { DONE, FAILED };

static uint64_t *value_of(struct face_counter *counter, enum entry entry)
{
	return entry == DONE ? &counter->core->done : &counter->core->failed;
}

static int change(struct face_counter *counter, enum entry entry, bool set, uint64_t value)
{
	uint64_t *place;

	if (!vb_face_enter(counter->engine))
		return EIO;
	place = value_of(counter, entry);
	*place = set ? value : *place + value;
	vb_engine_leave(counter->engine);
	return 0;
}

static int get(struct face_counter *counter, enum entry entry, uint64_t *value)
{
	if (!vb_face_enter(counter->engine))
		return EIO;
	vb_engine_pump(counter->engine);
	*value = *value_of(counter, entry);
	vb_engine_leave(counter->engine);
	return 0;
}

int set_counter(struct face_counter *counter, uint64_t value)
{
	return change(counter, DONE, true, value);
}

int set_error_counter(struct face_counter *counter, uint64_t value)
{
	return change(counter, FAILED, true, value);
}

int inc_counter(struct face_counter *counter, uint64_t amount)
{
	return change(counter, DONE, false, amount);
}

int inc_error_counter(struct face_counter *counter, uint64_t amount)
{
	return change(counter, FAILED, false, amount);
}

int read_counter(struct face_counter *counter, uint64_t *value)
{
	return get(counter, DONE, value);
}

int read_error_counter(struct face_counter *counter, uint64_t *value)
{
	return get(counter, FAILED, value);
}

/* --- queue pairs ------------------------------------------------------------------------- */

int attach_counter(struct ibv_qp *ibv, struct face_counter *counter, struct attach_attr *attr)
{
	struct vb_face_qp *qp = vb_face_qp(ibv);
	int error;

	if (attr->comp_mask || !attr->kinds || ibv->context != counter->context)
		return EINVAL;
	/* The receiving end of XRC belongs to nobody's context in particular. */
	if (attr->kinds & ~ALL_KINDS || qp->xrcd)
		return EOPNOTSUPP;
	if (!vb_face_enter(qp->engine))
		return EIO;
	error = vb_qp_attach_counter(qp->core, counter->core, attr->kinds);
	vb_engine_leave(qp->engine);
	return -error;
}
