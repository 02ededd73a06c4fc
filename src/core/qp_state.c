/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * qp_state.c - the states of a queue pair and what moves it between them (IBTA 10.3.1, 11.2.5.3).
 *
 *      RESET -> INIT -> RTR -> RTS <-> SQD        any state -> RESET, any state -> ERR
 *                               ^
 *                              SQE                a failed send of UC or UD leads into SQE
 *
 * The tables say for each move which attributes ibv_modify_qp(3) must get and which it may get;
 * what is in neither is refused. Modify is judge, then resolve, then apply: nothing is changed
 * before everything is known to be right.
 */
#include <errno.h>

#include "base/psn.h"
#include "core/beside.h"
#include "core/mcast.h"
#include "core/nic.h"
#include "core/transport.h"

struct move {
	bool valid;
	uint32_t required, optional; /* enum vb_qp_attr_mask, beside VB_QP_STATE */
};

/* Attributes of an alternate path are in the specification's table; this device has no automatic
 * path migration, so their values are refused in judge_values(). */
#define MIGRATION (VB_QP_ALT_PATH | VB_QP_PATH_MIG_STATE)

/* RESET and ERR, reached from everywhere without any attribute, are not in the tables. */

/* clang-format off */
static const struct move rc_moves[VB_QPS_COUNT][VB_QPS_COUNT] = {
	[VB_QPS_RESET][VB_QPS_INIT] = {
		.valid = true,
		.required = VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS,
	},
	[VB_QPS_INIT][VB_QPS_INIT] = {
		.valid = true,
		.optional = VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS,
	},
	[VB_QPS_INIT][VB_QPS_RTR] = {
		.valid = true,
		.required = VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN |
			    VB_QP_MAX_DEST_RD_ATOMIC | VB_QP_MIN_RNR_TIMER,
		.optional = VB_QP_ALT_PATH | VB_QP_ACCESS_FLAGS | VB_QP_PKEY_INDEX,
	},
	[VB_QPS_RTR][VB_QPS_RTS] = {
		.valid = true,
		.required = VB_QP_SQ_PSN | VB_QP_TIMEOUT | VB_QP_RETRY_CNT | VB_QP_RNR_RETRY |
			    VB_QP_MAX_QP_RD_ATOMIC,
		.optional = VB_QP_CUR_STATE | VB_QP_ACCESS_FLAGS | VB_QP_MIN_RNR_TIMER | MIGRATION,
	},
	[VB_QPS_RTS][VB_QPS_RTS] = {
		.valid = true,
		.optional = VB_QP_CUR_STATE | VB_QP_ACCESS_FLAGS | VB_QP_MIN_RNR_TIMER | MIGRATION,
	},
	[VB_QPS_RTS][VB_QPS_SQD] = {
		.valid = true,
		.optional = VB_QP_EN_SQD_ASYNC_NOTIFY,
	},
	[VB_QPS_SQD][VB_QPS_SQD] = {
		.valid = true,
		.optional = VB_QP_PORT | VB_QP_AV | VB_QP_TIMEOUT | VB_QP_RETRY_CNT |
			    VB_QP_RNR_RETRY | VB_QP_MAX_QP_RD_ATOMIC | VB_QP_MAX_DEST_RD_ATOMIC |
			    VB_QP_ACCESS_FLAGS | VB_QP_PKEY_INDEX | VB_QP_MIN_RNR_TIMER | MIGRATION,
	},
	[VB_QPS_SQD][VB_QPS_RTS] = {
		.valid = true,
		.optional = VB_QP_CUR_STATE | VB_QP_ACCESS_FLAGS | VB_QP_MIN_RNR_TIMER | MIGRATION,
	},
};

static const struct move uc_moves[VB_QPS_COUNT][VB_QPS_COUNT] = {
	[VB_QPS_RESET][VB_QPS_INIT] = {
		.valid = true,
		.required = VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS,
	},
	[VB_QPS_INIT][VB_QPS_INIT] = {
		.valid = true,
		.optional = VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS,
	},
	[VB_QPS_INIT][VB_QPS_RTR] = {
		.valid = true,
		.required = VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN,
		.optional = VB_QP_ALT_PATH | VB_QP_ACCESS_FLAGS | VB_QP_PKEY_INDEX,
	},
	[VB_QPS_RTR][VB_QPS_RTS] = {
		.valid = true,
		.required = VB_QP_SQ_PSN,
		.optional = VB_QP_CUR_STATE | VB_QP_ACCESS_FLAGS | MIGRATION,
	},
	[VB_QPS_RTS][VB_QPS_RTS] = {
		.valid = true,
		.optional = VB_QP_CUR_STATE | VB_QP_ACCESS_FLAGS | MIGRATION,
	},
	[VB_QPS_RTS][VB_QPS_SQD] = {
		.valid = true,
		.optional = VB_QP_EN_SQD_ASYNC_NOTIFY,
	},
	[VB_QPS_SQD][VB_QPS_SQD] = {
		.valid = true,
		.optional = VB_QP_AV | VB_QP_ACCESS_FLAGS | VB_QP_PKEY_INDEX | MIGRATION,
	},
	[VB_QPS_SQD][VB_QPS_RTS] = {
		.valid = true,
		.optional = VB_QP_CUR_STATE | VB_QP_ACCESS_FLAGS | MIGRATION,
	},
	[VB_QPS_SQE][VB_QPS_RTS] = {
		.valid = true,
		.optional = VB_QP_CUR_STATE | VB_QP_ACCESS_FLAGS,
	},
};

static const struct move ud_moves[VB_QPS_COUNT][VB_QPS_COUNT] = {
	[VB_QPS_RESET][VB_QPS_INIT] = {
		.valid = true,
		.required = VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_QKEY,
	},
	[VB_QPS_INIT][VB_QPS_INIT] = {
		.valid = true,
		.optional = VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_QKEY,
	},
	[VB_QPS_INIT][VB_QPS_RTR] = {
		.valid = true,
		.optional = VB_QP_PKEY_INDEX | VB_QP_QKEY,
	},
	[VB_QPS_RTR][VB_QPS_RTS] = {
		.valid = true,
		.required = VB_QP_SQ_PSN,
		.optional = VB_QP_CUR_STATE | VB_QP_QKEY,
	},
	[VB_QPS_RTS][VB_QPS_RTS] = {
		.valid = true,
		.optional = VB_QP_CUR_STATE | VB_QP_QKEY,
	},
	[VB_QPS_RTS][VB_QPS_SQD] = {
		.valid = true,
		.optional = VB_QP_EN_SQD_ASYNC_NOTIFY,
	},
	[VB_QPS_SQD][VB_QPS_SQD] = {
		.valid = true,
		.optional = VB_QP_PKEY_INDEX | VB_QP_QKEY,
	},
	[VB_QPS_SQD][VB_QPS_RTS] = {
		.valid = true,
		.optional = VB_QP_CUR_STATE | VB_QP_QKEY,
	},
	[VB_QPS_SQE][VB_QPS_RTS] = {
		.valid = true,
		.optional = VB_QP_CUR_STATE | VB_QP_QKEY,
	},
};

/* XRC (annex A14): RC's, divided between the half that requests and the half that responds. */
static const struct move xrc_send_moves[VB_QPS_COUNT][VB_QPS_COUNT] = {
	[VB_QPS_RESET][VB_QPS_INIT] = {
		.valid = true,
		.required = VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS,
	},
	[VB_QPS_INIT][VB_QPS_INIT] = {
		.valid = true,
		.optional = VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS,
	},
	[VB_QPS_INIT][VB_QPS_RTR] = {
		.valid = true,
		.required = VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN,
		.optional = VB_QP_ALT_PATH | VB_QP_ACCESS_FLAGS | VB_QP_PKEY_INDEX,
	},
	[VB_QPS_RTR][VB_QPS_RTS] = {
		.valid = true,
		.required = VB_QP_TIMEOUT | VB_QP_RETRY_CNT | VB_QP_RNR_RETRY | VB_QP_SQ_PSN |
			    VB_QP_MAX_QP_RD_ATOMIC,
		.optional = VB_QP_CUR_STATE | VB_QP_ACCESS_FLAGS | MIGRATION,
	},
	[VB_QPS_RTS][VB_QPS_RTS] = {
		.valid = true,
		.optional = VB_QP_CUR_STATE | VB_QP_ACCESS_FLAGS | MIGRATION,
	},
	[VB_QPS_RTS][VB_QPS_SQD] = {
		.valid = true,
		.optional = VB_QP_EN_SQD_ASYNC_NOTIFY,
	},
	[VB_QPS_SQD][VB_QPS_SQD] = {
		.valid = true,
		.optional = VB_QP_PORT | VB_QP_AV | VB_QP_TIMEOUT | VB_QP_RETRY_CNT |
			    VB_QP_RNR_RETRY | VB_QP_MAX_QP_RD_ATOMIC | VB_QP_ACCESS_FLAGS |
			    VB_QP_PKEY_INDEX | MIGRATION,
	},
	[VB_QPS_SQD][VB_QPS_RTS] = {
		.valid = true,
		.optional = VB_QP_CUR_STATE | VB_QP_ACCESS_FLAGS | MIGRATION,
	},
};

static const struct move xrc_recv_moves[VB_QPS_COUNT][VB_QPS_COUNT] = {
	[VB_QPS_RESET][VB_QPS_INIT] = {
		.valid = true,
		.required = VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS,
	},
	[VB_QPS_INIT][VB_QPS_INIT] = {
		.valid = true,
		.optional = VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS,
	},
	[VB_QPS_INIT][VB_QPS_RTR] = {
		.valid = true,
		.required = VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN |
			    VB_QP_MAX_DEST_RD_ATOMIC | VB_QP_MIN_RNR_TIMER,
		.optional = VB_QP_ALT_PATH | VB_QP_ACCESS_FLAGS | VB_QP_PKEY_INDEX,
	},
	[VB_QPS_RTR][VB_QPS_RTS] = {
		.valid = true,
		.required = VB_QP_TIMEOUT | VB_QP_SQ_PSN,
		.optional = VB_QP_CUR_STATE | VB_QP_ACCESS_FLAGS | VB_QP_MIN_RNR_TIMER | MIGRATION,
	},
	[VB_QPS_RTS][VB_QPS_RTS] = {
		.valid = true,
		.optional = VB_QP_CUR_STATE | VB_QP_ACCESS_FLAGS | VB_QP_MIN_RNR_TIMER | MIGRATION,
	},
	[VB_QPS_RTS][VB_QPS_SQD] = {
		.valid = true,
		.optional = VB_QP_EN_SQD_ASYNC_NOTIFY,
	},
	[VB_QPS_SQD][VB_QPS_SQD] = {
		.valid = true,
		.optional = VB_QP_PORT | VB_QP_AV | VB_QP_TIMEOUT | VB_QP_MAX_DEST_RD_ATOMIC |
			    VB_QP_ACCESS_FLAGS | VB_QP_PKEY_INDEX | VB_QP_MIN_RNR_TIMER | MIGRATION,
	},
	[VB_QPS_SQD][VB_QPS_RTS] = {
		.valid = true,
		.optional = VB_QP_CUR_STATE | VB_QP_ACCESS_FLAGS | VB_QP_MIN_RNR_TIMER | MIGRATION,
	},
};

/* Linux's, whose raw packet queue pairs have a port and nothing else. */
static const struct move raw_moves[VB_QPS_COUNT][VB_QPS_COUNT] = {
	[VB_QPS_RESET][VB_QPS_INIT] = {.valid = true, .required = VB_QP_PORT},
	[VB_QPS_INIT][VB_QPS_INIT] = {.valid = true},
	[VB_QPS_INIT][VB_QPS_RTR] = {.valid = true},
	[VB_QPS_RTR][VB_QPS_RTS] = {.valid = true},
	[VB_QPS_RTS][VB_QPS_RTS] = {.valid = true},
	[VB_QPS_RTS][VB_QPS_SQD] = {.valid = true},
	[VB_QPS_SQD][VB_QPS_SQD] = {.valid = true},
	[VB_QPS_SQD][VB_QPS_RTS] = {.valid = true},
	[VB_QPS_SQE][VB_QPS_RTS] = {.valid = true},
};

/* clang-format on */

static struct move find_move(enum vb_qp_type type, enum vb_qp_state from, enum vb_qp_state to)
{
	static const struct move bare = {.valid = true};

	if (to == VB_QPS_RESET || to == VB_QPS_ERR)
		return bare;
	switch (type) {
	case VB_QPT_RC:
		return rc_moves[from][to];
	case VB_QPT_UC:
		return uc_moves[from][to];
	case VB_QPT_UD:
		return ud_moves[from][to];
	case VB_QPT_XRC_SEND:
		return xrc_send_moves[from][to];
	case VB_QPT_XRC_RECV:
		return xrc_recv_moves[from][to];
	case VB_QPT_RAW_PACKET:
		return raw_moves[from][to];
	}
	return (struct move){0};
}

/* --- judge: pure ------------------------------------------------------------------------- */

static bool judge_move(const struct vb_qp *qp, const struct vb_qp_attr *attr, uint32_t mask,
		       enum vb_qp_state to)
{
	struct move move;

	if ((unsigned int)to >= VB_QPS_COUNT)
		return false;
	move = find_move(qp->type, qp->state, to);
	if (!move.valid || (mask & move.required) != move.required ||
	    mask & ~(move.required | move.optional | VB_QP_STATE))
		return false;
	/* The program says which state it believes the QP to be in; it must be right. */
	if (mask & VB_QP_CUR_STATE && attr->cur_qp_state != qp->state)
		return false;
	/* While requests are under way their path and counters stay (IBTA 10.3.1.5). */
	return !(qp->state == VB_QPS_SQD && to == VB_QPS_SQD && mask & ~VB_QP_STATE &&
		 !qp->sqd_notified);
}

static bool judge_values(const struct vb_qp_attr *attr, uint32_t mask)
{
	/* Programs hand over their regions' rights, of which those of peers matter. */
	const uint32_t access = VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_ALL | VB_ACCESS_MW_BIND |
				VB_ACCESS_ZERO_BASED | VB_ACCESS_ON_DEMAND |
				VB_ACCESS_FLUSH_GLOBAL | VB_ACCESS_FLUSH_PERSISTENT;

	if (mask & VB_QP_PORT && attr->port_num != 1)
		return false;
	if (mask & VB_QP_PKEY_INDEX && attr->pkey_index >= VB_PKEY_TABLE)
		return false;
	if (mask & VB_QP_ACCESS_FLAGS && attr->access_flags & ~access)
		return false;
	if (mask & VB_QP_AV && !vb_ah_attr_is_valid(&attr->ah))
		return false;
	if (mask & VB_QP_PATH_MTU && (attr->path_mtu < VB_MTU_256 || attr->path_mtu > VB_MTU_4096))
		return false;
	if (mask & VB_QP_DEST_QPN && attr->dest_qpn > VB_QPN_MASK)
		return false;
	if (mask & VB_QP_TIMEOUT && attr->timeout > 31)
		return false;
	if (mask & VB_QP_MIN_RNR_TIMER && attr->min_rnr_timer > 31)
		return false;
	if (mask & VB_QP_RETRY_CNT && attr->retry_cnt > 7)
		return false;
	if (mask & VB_QP_RNR_RETRY && attr->rnr_retry > 7)
		return false;
	if (mask & VB_QP_MAX_QP_RD_ATOMIC && attr->max_rd_atomic > VB_MAX_RD_ATOMIC)
		return false;
	if (mask & VB_QP_MAX_DEST_RD_ATOMIC && attr->max_dest_rd_atomic > VB_MAX_RD_ATOMIC)
		return false;
	/* Migrated (0) is the one state of a path that has no alternate. */
	if (mask & VB_QP_PATH_MIG_STATE && attr->path_mig_state != 0)
		return false;
	return !(mask & VB_QP_ALT_PATH);
}

/* --- apply ------------------------------------------------------------------------------- */

static void release_path(struct vb_qp *qp)
{
	if (qp->path_valid && qp->nic->ops.release)
		qp->nic->ops.release(qp->nic->env, &qp->path);
	qp->path_valid = false;
	qp->path = (struct vb_path){0};
}

/* The payload bytes per packet on this path, or -EINVAL when it does not take the path MTU. */
static int choose_mtu(const struct vb_path *path, enum vb_mtu path_mtu)
{
	uint32_t bytes = 128u << path_mtu;

	if (path->own_segment)
		return (int)path->segment_max;
	return bytes <= path->segment_max ? (int)bytes : -EINVAL;
}

/* Resolves the new address before anything changes; the old path is given back when it worked. */
static int change_path(struct vb_qp *qp, const struct vb_qp_attr *attr, uint32_t mask)
{
	enum vb_mtu path_mtu = mask & VB_QP_PATH_MTU ? attr->path_mtu : qp->attr.path_mtu;
	struct vb_nic *nic = qp->nic;
	struct vb_path path = {0};
	int mtu, rc;

	/* A connection has one other end: only UD names groups. */
	if (vb_mcast_gid_is_valid(&attr->ah.dgid))
		return -EINVAL;
	rc = nic->ops.resolve(nic->env, &attr->ah, &path);
	if (rc < 0)
		return rc;
	mtu = choose_mtu(&path, path_mtu);
	if (mtu < 0) {
		if (nic->ops.release)
			nic->ops.release(nic->env, &path);
		return mtu;
	}
	release_path(qp);
	qp->path = path;
	qp->path_valid = true;
	qp->mtu = (uint32_t)mtu;
	return 0;
}

static void apply(struct vb_qp *qp, const struct vb_qp_attr *from, uint32_t mask)
{
	struct vb_qp_attr *to = &qp->attr;

	if (mask & VB_QP_ACCESS_FLAGS)
		to->access_flags = from->access_flags;
	if (mask & VB_QP_PKEY_INDEX)
		to->pkey_index = from->pkey_index;
	if (mask & VB_QP_PORT)
		to->port_num = from->port_num;
	if (mask & VB_QP_QKEY)
		to->qkey = from->qkey;
	if (mask & VB_QP_AV)
		to->ah = from->ah;
	if (mask & VB_QP_PATH_MTU)
		to->path_mtu = from->path_mtu;
	if (mask & VB_QP_TIMEOUT)
		to->timeout = from->timeout;
	if (mask & VB_QP_RETRY_CNT)
		to->retry_cnt = from->retry_cnt;
	if (mask & VB_QP_RNR_RETRY)
		to->rnr_retry = from->rnr_retry;
	if (mask & VB_QP_RQ_PSN)
		to->rq_psn = from->rq_psn & VB_PSN_MASK;
	if (mask & VB_QP_MAX_QP_RD_ATOMIC)
		to->max_rd_atomic = from->max_rd_atomic;
	if (mask & VB_QP_MIN_RNR_TIMER)
		to->min_rnr_timer = from->min_rnr_timer;
	if (mask & VB_QP_SQ_PSN)
		to->sq_psn = from->sq_psn & VB_PSN_MASK;
	if (mask & VB_QP_MAX_DEST_RD_ATOMIC)
		to->max_dest_rd_atomic = from->max_dest_rd_atomic;
	if (mask & VB_QP_DEST_QPN)
		to->dest_qpn = from->dest_qpn;
}

static void tell_changed(struct vb_qp *qp)
{
	if (qp->nic->ops.qp_changed)
		qp->nic->ops.qp_changed(qp->nic->env, qp);
}

int vb_qp_modify(struct vb_qp *qp, const struct vb_qp_attr *attr, uint32_t mask)
{
	enum vb_qp_state to = mask & VB_QP_STATE ? attr->qp_state : qp->state;
	int rc;

	if (qp->rss) /* it has no states */
		return -EOPNOTSUPP;
	if (qp->single) /* what the program posted before counts as posted in the state before */
		vb_qp_take_posted(qp);
	if (!judge_move(qp, attr, mask, to) || !judge_values(attr, mask))
		return -EINVAL;
	if (mask & VB_QP_AV) {
		rc = change_path(qp, attr, mask);
		if (rc < 0)
			return rc;
	}
	apply(qp, attr, mask);
	if (to == VB_QPS_SQD && qp->state == VB_QPS_RTS)
		qp->attr.en_sqd_async_notify =
			mask & VB_QP_EN_SQD_ASYNC_NOTIFY && attr->en_sqd_async_notify;
	if (mask & VB_QP_STATE && (to != qp->state || to == VB_QPS_RESET))
		vb_qp_set_state(qp, to);
	else if (mask)
		tell_changed(qp);
	vb_qp_settle(qp);
	return 0;
}

/* --- the state --------------------------------------------------------------------------- */

static void enter_reset(struct vb_qp *qp)
{
	vb_qp_forget(qp);
	release_path(qp);
	qp->req = (struct vb_requester){0};
	qp->resp = (struct vb_responder){.recv.sges = qp->recv_sges};
	qp->attr = (struct vb_qp_attr){0};
	qp->reason = (struct vb_reason){0};
	qp->mtu = 0;
	qp->fatal_raised = qp->sqd_notified = false;
	qp->cq_overran = false;
}

static void enter_rtr(struct vb_qp *qp)
{
	if (vb_qp_is_datagram(qp))
		qp->mtu = VB_MAX_PATH_MTU;
	vb_responder_start(qp);
}

static void enter_rts(struct vb_qp *qp, enum vb_qp_state from)
{
	/* From SQD and SQE the queue goes on where it was. */
	if (from == VB_QPS_RTR)
		vb_requester_start(qp);
	else if (from == VB_QPS_SQE)
		qp->reason = (struct vb_reason){0}; /* that error is over */
	vb_nic_make_ready(qp->nic, qp);
}

static void enter_err(struct vb_qp *qp)
{
	vb_qp_flush(qp);
	/* From here on it takes nothing from the SRQ: who waits to free the SRQ's buffers may go
	 * on. */
	if (qp->srq)
		vb_nic_raise(qp->nic, VB_EVENT_QP_LAST_WQE_REACHED, qp, NULL, NULL);
}

void vb_qp_set_state(struct vb_qp *qp, enum vb_qp_state state)
{
	enum vb_qp_state from = qp->state;

	if (state == from && state != VB_QPS_RESET)
		return;
	/* Only RESET leads out of ERR. */
	if (from == VB_QPS_ERR && state != VB_QPS_RESET)
		return;
	/* First, so that what follows finds the QP where it is going. */
	__atomic_store_n(&qp->state, state, __ATOMIC_RELAXED); /* read beside the NIC */
	switch (state) {
	case VB_QPS_RESET:
		enter_reset(qp);
		break;
	case VB_QPS_INIT:
		break;
	case VB_QPS_RTR:
		enter_rtr(qp);
		break;
	case VB_QPS_RTS:
		enter_rts(qp, from);
		break;
	case VB_QPS_SQD:
		qp->sqd_notified = false;
		vb_requester_check_drained(qp);
		break;
	case VB_QPS_SQE:
		vb_qp_flush_sends(qp);
		break;
	case VB_QPS_ERR:
		enter_err(qp);
		break;
	}
	tell_changed(qp);
}

void vb_qp_end_overran(struct vb_qp *qp)
{
	qp->cq_overran = false;
	vb_qp_set_state(qp, VB_QPS_ERR);
}
