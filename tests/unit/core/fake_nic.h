/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fake_nic.h - a NIC whose surroundings are a record: what it sent, which events it raised, which
 * paths it holds. Include after the headers of cmocka.
 */
#ifndef VB_TESTS_FAKE_NIC_H
#define VB_TESTS_FAKE_NIC_H

#include <errno.h>
#include <string.h>

#include "core/nic.h"
#include "core/xrc.h"

#define FAKE_EVENTS 64
#define FAKE_PAYLOAD 8192

struct fake {
	struct vb_nic *nic;
	/* what happened */
	struct vb_event events[FAKE_EVENTS];
	unsigned int event_count;
	unsigned int cq_events;
	struct vb_cq *last_cq;
	unsigned int changes; /* qp_changed */
	int paths;	      /* resolved and not released */
	unsigned int tx_count;
	struct vb_headers tx_headers; /* of the last packet */
	uint8_t tx_payload[FAKE_PAYLOAD];
	uint32_t tx_bytes;
	/* how it answers */
	int resolve_result;
	uint32_t segment_max;
	bool own_segment;
	uint32_t window, pace, train;
	uint64_t seed;
	bool random_stuck; /* the same number every time */
};

static inline int fake_tx(void *env, const struct vb_path *path, const struct vb_tx *tx)
{
	struct fake *f = env;

	f->tx_count++;
	f->tx_headers = *tx->headers;
	f->tx_bytes = 0;
	for (int i = 0; i < tx->payload_parts; i++) {
		assert_true(f->tx_bytes + tx->payload[i].iov_len <= FAKE_PAYLOAD);
		memcpy(f->tx_payload + f->tx_bytes, tx->payload[i].iov_base,
		       tx->payload[i].iov_len);
		f->tx_bytes += (uint32_t)tx->payload[i].iov_len;
	}
	assert_int_equal(f->tx_bytes, tx->payload_bytes);
	return 0;
}

static inline int fake_resolve(void *env, const struct vb_ah_attr *ah, struct vb_path *path)
{
	struct fake *f = env;

	if (f->resolve_result < 0)
		return f->resolve_result;
	path->dgid = ah->dgid;
	path->segment_max = f->segment_max;
	path->own_segment = f->own_segment;
	path->window = f->window;
	path->pace = f->pace;
	path->pace_late = f->pace / 4;
	path->train = f->train;
	f->paths++;
	return 0;
}

static inline void fake_release(void *env, struct vb_path *path)
{
	struct fake *f = env;

	f->paths--;
}

static inline void fake_event(void *env, const struct vb_event *event)
{
	struct fake *f = env;

	assert_true(f->event_count < FAKE_EVENTS);
	f->events[f->event_count++] = *event;
}

static inline void fake_cq_event(void *env, struct vb_cq *cq)
{
	struct fake *f = env;

	f->cq_events++;
	f->last_cq = cq;
}

static inline void fake_qp_changed(void *env, struct vb_qp *qp)
{
	struct fake *f = env;

	f->changes++;
}

static inline uint32_t fake_random(void *env)
{
	struct fake *f = env;

	if (f->random_stuck)
		return (uint32_t)f->seed;
	f->seed = f->seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(f->seed >> 32);
}

static inline void fake_init_with(struct fake *f, const struct vb_nic_config *config)
{
	static const struct vb_nic_ops ops = {
		.tx = fake_tx,
		.resolve = fake_resolve,
		.release = fake_release,
		.event = fake_event,
		.cq_event = fake_cq_event,
		.qp_changed = fake_qp_changed,
		.random = fake_random,
	};

	*f = (struct fake){.segment_max = VB_MAX_PATH_MTU, .seed = 2};
	f->nic = vb_nic_create(&ops, f, config);
	assert_non_null(f->nic);
}

static inline void fake_init(struct fake *f)
{
	const struct vb_nic_config config = {.qpn_base = 0x18000};

	fake_init_with(f, &config);
}

/* Nothing may be left: what was created was counted, and destroyed. */
static inline void fake_finish(struct fake *f)
{
	assert_int_equal(f->nic->qp_count, 0);
	assert_int_equal(f->nic->mr_count, 0);
	assert_int_equal(f->nic->pd_count, 0);
	assert_int_equal(f->nic->cq_count, 0);
	assert_int_equal(f->nic->srq_count, 0);
	assert_int_equal(f->nic->ah_count, 0);
	assert_int_equal(f->nic->xrcd_count, 0);
	assert_int_equal(f->nic->xrc_srq_count, 0);
	assert_int_equal(f->paths, 0);
	vb_nic_destroy(f->nic);
}

static inline unsigned int fake_count_events(const struct fake *f, enum vb_event_type type)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < f->event_count; i++)
		n += f->events[i].type == type;
	return n;
}

/* A PD, a CQ and whatever a QP needs. */
struct fake_qp {
	struct vb_xrcd *xrcd; /* XRC_RECV */
	struct vb_pd *pd;
	struct vb_cq *cq;
	struct vb_qp *qp;
};

static inline struct vb_qp_init fake_qp_init(enum vb_qp_type type, struct vb_cq *cq)
{
	return (struct vb_qp_init){
		.type = type,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 4,
			.max_recv_wr = 4,
			.max_send_sge = 4,
			.max_recv_sge = 2,
			.max_inline_data = 64},
	};
}

static inline void fake_qp_create(struct fake *f, struct fake_qp *q, enum vb_qp_type type,
				  uint32_t cqe)
{
	struct vb_qp_init init;

	q->pd = vb_pd_create(f->nic);
	q->cq = vb_cq_create(f->nic, cqe, NULL);
	assert_non_null(q->pd);
	assert_non_null(q->cq);
	init = fake_qp_init(type, q->cq);
	q->xrcd = type == VB_QPT_XRC_RECV ? vb_xrcd_create(f->nic) : NULL;
	if (q->xrcd)
		init = (struct vb_qp_init){.type = type, .xrcd = q->xrcd};
	q->qp = vb_qp_create(q->xrcd ? NULL : q->pd, &init);
	assert_non_null(q->qp);
}

static inline void fake_qp_destroy(struct fake_qp *q)
{
	vb_qp_destroy(q->qp);
	assert_int_equal(vb_xrcd_destroy(q->xrcd), 0);
	assert_int_equal(vb_cq_destroy(q->cq), 0);
	assert_int_equal(vb_pd_destroy(q->pd), 0);
}

/* Values that suit every move. */
static inline struct vb_qp_attr fake_attr(void)
{
	struct vb_qp_attr attr = {
		.path_mtu = VB_MTU_1024,
		.qkey = 0x11111111,
		.rq_psn = 0x123456,
		.sq_psn = 0x654321,
		.dest_qpn = 0x17,
		.access_flags = VB_ACCESS_REMOTE_READ | VB_ACCESS_REMOTE_WRITE,
		.max_rd_atomic = 4,
		.max_dest_rd_atomic = 8,
		.min_rnr_timer = 12,
		.port_num = 1,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 6,
		.ah = {.is_global = true, .port_num = 1, .sgid_index = 1},
	};

	attr.ah.dgid.s6_addr[15] = 1;
	return attr;
}

/* The attributes that ibv_modify_qp(3) requires on the way up, to the state from the one before. */
static inline uint32_t fake_required(enum vb_qp_type type, enum vb_qp_state to)
{
	static const uint32_t required[][3] = {
		[VB_QPT_RC] = {VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS,
			       VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN |
				       VB_QP_MAX_DEST_RD_ATOMIC | VB_QP_MIN_RNR_TIMER,
			       VB_QP_SQ_PSN | VB_QP_MAX_QP_RD_ATOMIC | VB_QP_RETRY_CNT |
				       VB_QP_RNR_RETRY | VB_QP_TIMEOUT},
		[VB_QPT_UC] = {VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS,
			       VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN,
			       VB_QP_SQ_PSN},
		[VB_QPT_UD] = {VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_QKEY, 0, VB_QP_SQ_PSN},
		[VB_QPT_XRC_SEND] = {VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS,
				     VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN,
				     VB_QP_SQ_PSN | VB_QP_MAX_QP_RD_ATOMIC | VB_QP_RETRY_CNT |
					     VB_QP_RNR_RETRY | VB_QP_TIMEOUT},
		[VB_QPT_XRC_RECV] = {VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS,
				     VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN |
					     VB_QP_MAX_DEST_RD_ATOMIC | VB_QP_MIN_RNR_TIMER,
				     VB_QP_SQ_PSN | VB_QP_TIMEOUT},
	};

	return VB_QP_STATE | required[type][to - VB_QPS_INIT];
}

static inline int fake_modify(struct vb_qp *qp, enum vb_qp_state to, uint32_t mask)
{
	struct vb_qp_attr attr = fake_attr();

	attr.qp_state = to;
	attr.cur_qp_state = qp->state;
	return vb_qp_modify(qp, &attr, mask);
}

/* From RESET along the usual way to state. */
static inline void fake_bring_to(struct vb_qp *qp, enum vb_qp_state state)
{
	enum vb_qp_state up = state < VB_QPS_RTS ? state : VB_QPS_RTS;

	if (state == VB_QPS_ERR) {
		assert_int_equal(fake_modify(qp, state, VB_QP_STATE), 0);
		return;
	}
	for (enum vb_qp_state s = VB_QPS_INIT; s <= up; s++)
		assert_int_equal(fake_modify(qp, s, fake_required(qp->type, s)), 0);
	if (state == VB_QPS_SQD)
		assert_int_equal(fake_modify(qp, state, VB_QP_STATE), 0);
	else if (state == VB_QPS_SQE)
		vb_qp_set_state(qp, state);
	assert_int_equal(qp->state, state);
}

/* The peer acknowledges everything up to psn. */
static inline void fake_ack(struct fake *f, struct vb_qp *qp, uint32_t psn)
{
	const struct vb_headers h = {
		.opcode = vb_opcode(VB_TRANSPORT_RC, VB_OP_ACK),
		.pkey = VB_DEFAULT_PKEY,
		.qpn = qp->qpn,
		.psn = psn,
		.aeth = {.syndrome = VB_AETH_ACK_NO_CREDIT},
	};
	uint8_t packet[VB_HEADERS_MAX];
	int bytes = vb_headers_encode(&h, packet, sizeof(packet));
	const struct vb_rx rx = {.data = packet, .size = (size_t)bytes, .src = qp->path.dgid};

	assert_true(bytes > 0);
	vb_nic_rx(f->nic, &rx, f->nic->now_ns);
}

#endif
