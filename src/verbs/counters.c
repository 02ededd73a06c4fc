/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * counters.c - what flow rules count (ibv_create_counters(3), ibv_read_counters(3)).
 *
 * A program names, before it makes rules with the object, which place of the array that it reads
 * holds packets or bytes. All rules of an object count together.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs/raw.h"

static struct vb_face_counters *face_of(struct ibv_counters *counters)
{
	return vb_container_of(counters, struct vb_face_counters, ibv);
}

struct ibv_counters *vb_face_create_counters(struct ibv_context *context,
					     struct ibv_counters_init_attr *attr)
{
	struct vb_face_counters *counters;

	if (attr->comp_mask) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	counters = calloc(1, sizeof(*counters));
	if (!counters) {
		errno = ENOMEM;
		return NULL;
	}
	counters->ibv.context = context;
	counters->engine = vb_face_context(context)->engine;
	vb_face_add(context, &counters->object, VB_FACE_COUNTERS);
	return &counters->ibv;
}

int vb_face_destroy_counters(struct ibv_counters *ibv)
{
	struct vb_face_counters *counters = face_of(ibv);
	bool busy = false;

	if (vb_face_enter(counters->engine)) {
		busy = counters->users > 0;
		vb_engine_leave(counters->engine);
	}
	if (busy)
		return EBUSY;
	vb_face_remove(&counters->object);
	free(counters);
	return 0;
}

static int attach(struct vb_face_counters *counters, const struct ibv_counter_attach_attr *attr)
{
	if (counters->users > 0)
		return EBUSY;
	if (counters->point_count == VB_COUNTER_POINTS)
		return ENOMEM;
	counters->points[counters->point_count].index = attr->index;
	counters->points[counters->point_count].what = attr->counter_desc;
	counters->point_count++;
	counters->last_index = VB_MAX(counters->last_index, attr->index);
	return 0;
}

/* Points are given before a rule is made: to one that exists nothing is attached. */
int vb_face_attach_counters_point_flow(struct ibv_counters *ibv,
				       struct ibv_counter_attach_attr *attr, struct ibv_flow *flow)
{
	struct vb_face_counters *counters = face_of(ibv);
	int error;

	if (attr->comp_mask || attr->index >= VB_COUNTER_POINTS)
		return EINVAL;
	if (flow ||
	    (attr->counter_desc != IBV_COUNTER_PACKETS && attr->counter_desc != IBV_COUNTER_BYTES))
		return ENOTSUP;
	if (!vb_face_enter(counters->engine))
		return EIO;
	error = attach(counters, attr);
	vb_engine_leave(counters->engine);
	return error;
}

int vb_face_read_counters(struct ibv_counters *ibv, uint64_t *values, uint32_t count,
			  uint32_t flags)
{
	struct vb_face_counters *counters = face_of(ibv);
	int error = 0;

	if (flags & ~(uint32_t)IBV_READ_COUNTERS_ATTR_PREFER_CACHED || !count)
		return EINVAL;
	if (!vb_face_enter(counters->engine))
		return EIO;
	if (counters->point_count == 0 || counters->last_index >= count)
		error = EINVAL;
	else
		memset(values, 0, count * sizeof(*values));
	for (uint32_t i = 0; !error && i < counters->point_count; i++)
		values[counters->points[i].index] += counters->points[i].what == IBV_COUNTER_PACKETS
							     ? counters->core.packets
							     : counters->core.bytes;
	vb_engine_leave(counters->engine);
	return error;
}
