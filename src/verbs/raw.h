/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * raw.h - the faces of raw packets: work queues and their tables (wq.c), rules (flow.c), what rules
 * count (counters.c), and what a raw packet queue pair has beyond others (raw.c).
 */
#ifndef VB_VERBS_RAW_H
#define VB_VERBS_RAW_H

#include "verbs/face.h"

#define VB_COUNTER_POINTS 64u /* a counters object's */

struct vb_face_wq {
	struct ibv_wq ibv;
	struct vb_face_object object;
	struct vb_engine *engine;
	struct vb_wq *core;
	struct vb_async_source fatal;
};

struct vb_face_wq_table {
	struct ibv_rwq_ind_table ibv;
	struct vb_face_object object;
	struct vb_engine *engine;
	struct vb_wq_table *core;
};

struct vb_face_counters {
	struct ibv_counters ibv;
	struct vb_face_object object;
	struct vb_engine *engine;
	struct vb_flow_counter core;
	uint32_t users; /* flows; inside the engine, as all below */
	uint32_t point_count;
	uint32_t last_index; /* the highest of points */
	struct {
		uint32_t index;
		enum ibv_counter_description what;
	} points[VB_COUNTER_POINTS];
};

struct vb_face_flow {
	struct ibv_flow ibv;
	struct vb_face_object object;
	struct vb_engine *engine;
	struct vb_flow *core;
	struct vb_face_counters *counters; /* NULL: it counts nothing */
};

/* --- wq.c, flow.c, counters.c: the functions of struct verbs_context --------------------- */
struct ibv_wq *vb_face_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr);
int vb_face_modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *attr);
int vb_face_destroy_wq(struct ibv_wq *wq);
struct ibv_rwq_ind_table *vb_face_create_rwq_ind_table(struct ibv_context *context,
						       struct ibv_rwq_ind_table_init_attr *attr);
int vb_face_destroy_rwq_ind_table(struct ibv_rwq_ind_table *table);
struct ibv_flow *vb_face_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr);
int vb_face_destroy_flow(struct ibv_flow *flow);
struct ibv_counters *vb_face_create_counters(struct ibv_context *context,
					     struct ibv_counters_init_attr *attr);
int vb_face_destroy_counters(struct ibv_counters *counters);
int vb_face_attach_counters_point_flow(struct ibv_counters *counters,
				       struct ibv_counter_attach_attr *attr, struct ibv_flow *flow);
int vb_face_read_counters(struct ibv_counters *counters, uint64_t *values, uint32_t count,
			  uint32_t flags);

/* Teardown, inside the engine; objects are a context's. Rules go before queue pairs, work queues
 * after them. */
void vb_face_flows_close(struct vb_list *objects);
void vb_face_flow_close(struct vb_face_flow *flow);
void vb_face_wqs_close(struct vb_list *objects);

/* --- raw.c ------------------------------------------------------------------------------- */
/* vb_face_raw_init - what attr asks for a raw packet queue pair, into init; rss is filled in, and
 * pointed to, where it asks for that. 0 or -errno. */
int vb_face_raw_init(const struct ibv_qp_init_attr_ex *attr, struct vb_qp_init *init,
		     struct vb_rss *rss);
/* vb_face_raw_post - one send request, inside the engine. 0 or -errno. */
int vb_face_raw_post(struct vb_face_qp *qp, const struct ibv_send_wr *wr);
/* vb_face_raw_tables - fills in the functions above. */
void vb_face_raw_tables(struct verbs_context *verbs);
/* vb_face_raw_caps - what a device says of raw packets. */
void vb_face_raw_caps(struct ibv_device_attr_ex *attr);

#endif
