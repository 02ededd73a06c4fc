/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * watch.c - whether the peer of an idle reliable connection is still there.
 *
 * A process that is killed says nothing, and where a kernel owned its queue pairs, the kernel would
 * have disconnected them; ours are gone with the process. While requests are under way the
 * transport finds out by itself. While none are, a watched queue pair that has heard nothing for
 * interval_ns sends an empty SEND with the PSN before its oldest one. To the peer that is a
 * duplicate, which it acknowledges again and nothing else (IBTA 9.7.1, C9-105); the acknowledgement
 * is stale, and heard.
 *
 *      heard ---- interval ----> probe -- interval --> probe ... PROBES of them --> ERR, QP_FATAL
 */
#include "core/transport.h"

#define PROBES 6u

void vb_qp_watch(struct vb_qp *qp, uint64_t interval_ns)
{
	qp->watch = (struct vb_watch){
		.interval_ns = interval_ns,
		.due_ns = qp->nic->now_ns + interval_ns,
	};
	if (interval_ns)
		vb_nic_arm_timer(qp->nic, qp, vb_watch_deadline(qp));
}

uint64_t vb_watch_deadline(const struct vb_qp *qp)
{
	bool watched = qp->watch.interval_ns && qp->state == VB_QPS_RTS &&
		       (qp->type == VB_QPT_RC || qp->type == VB_QPT_XRC_SEND);

	return watched ? qp->watch.due_ns : VB_NEVER;
}

void vb_watch_heard(struct vb_qp *qp, uint64_t now_ns)
{
	qp->watch.heard_ns = now_ns;
	qp->watch.unanswered = 0;
}

static void probe(struct vb_qp *qp)
{
	const struct vb_headers headers = {
		.opcode = vb_opcode(vb_qp_transport(qp), VB_OP_SEND_ONLY),
		.pkey = VB_DEFAULT_PKEY,
		.ack_req = true,
		.qpn = qp->attr.dest_qpn,
		.psn = vb_psn_add(qp->req.una_psn, VB_PSN_MASK),
	};
	const struct vb_tx tx = {.headers = &headers};

	if (qp->nic->ops.tx(qp->nic->env, &qp->path, &tx) == 0)
		qp->nic->counters.tx_packets++;
}

static void give_up(struct vb_qp *qp)
{
	struct vb_reason reason = vb_qp_reason(qp, VB_CHECK_RETRY_EXCEEDED);

	reason.value[0] = qp->req.una_psn;
	reason.value[1] = qp->attr.timeout;
	reason.value[2] = PROBES;
	vb_qp_fail_recv(qp, VB_WC_WR_FLUSH_ERR, &reason, VB_EVENT_QP_FATAL);
}

void vb_watch_on_deadline(struct vb_qp *qp, uint64_t now_ns)
{
	struct vb_watch *watch = &qp->watch;

	if (watch->heard_ns + watch->interval_ns > now_ns) {
		watch->due_ns = watch->heard_ns + watch->interval_ns;
		return;
	}
	watch->due_ns = now_ns + watch->interval_ns;
	if (qp->req.una_psn != qp->req.end_psn)
		return; /* requests are under way: their own retries judge */
	if (watch->unanswered == PROBES) {
		give_up(qp);
		return;
	}
	watch->unanswered++;
	probe(qp);
}
