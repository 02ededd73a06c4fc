/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cwnd.c - how much a queue pair may have under way, and how much of it goes in one turn.
 *
 * Of several queue pairs each has a share that their peer's buffer bears; one at a time, which has
 * lost nothing for long, has all that the path names. Where packets travel in trains, turns and the
 * pieces of long READs are whole ones.
 */
#include "core/transport.h"

#define PACKETS_PER_TURN 64u	   /* one QP's share of a run, then the next QP */
#define TURN_BYTES (256u << 10)	   /* the same of long messages, where a train has many packets */
#define ENDS 3u			   /* packets of an answer that belong to no whole train */
#define READS_AT_ONCE 2u	   /* pieces of long READs: each begins and ends a train */
#define WINDOW_WITHOUT_BOUND 1024u /* packets in flight where the path names no window */
#define WINDOW_MIN 4u
#define WINDOW_MAX 65536u	   /* far below 2^23, where PSN order would be lost */
#define WINDOW_SHARED (512u << 10) /* of each of several QPs; one at a time has the path's */
#define WIDE_NS 1000000ull	   /* without progress, after which another QP may have it */
#define CALM_PACKETS 65536u	   /* acknowledged since the last loss, before a QP may have it */

static uint32_t packets_of(const struct vb_qp *qp, uint32_t bytes)
{
	return VB_MAX(WINDOW_MIN, VB_MIN(bytes / qp->mtu, WINDOW_MAX));
}

/* shared_window - packets that every QP may have in flight at the same time. */
static uint32_t shared_window(const struct vb_qp *qp)
{
	if (!qp->path.window)
		return WINDOW_WITHOUT_BOUND;
	return packets_of(qp, VB_MIN(qp->path.window, WINDOW_SHARED));
}

/* has_wide_window - of several QPs that all want it, and would fill the peer's buffer together, the
 * one that has it keeps it, as long as it fills the window of all of them at least by half. */
static bool has_wide_window(struct vb_qp *qp, uint64_t now_ns)
{
	const int32_t in_flight = vb_psn_diff(qp->req.end_psn, qp->req.una_psn);
	struct vb_nic *nic = qp->nic;

	if (qp->path.window <= WINDOW_SHARED || qp->req.calm < CALM_PACKETS ||
	    (nic->wide_qpn != qp->qpn && nic->wide_until_ns > now_ns))
		return false;
	if (in_flight >= (int32_t)shared_window(qp) / 2) {
		nic->wide_qpn = qp->qpn;
		nic->wide_until_ns = now_ns + WIDE_NS;
	}
	return nic->wide_qpn == qp->qpn && nic->wide_until_ns > now_ns;
}

void vb_requester_open_window(struct vb_qp *qp, uint32_t acked, uint64_t now_ns)
{
	struct vb_requester *req = &qp->req;
	const bool calm = req->calm >= CALM_PACKETS;
	const uint32_t window = shared_window(qp);
	const uint32_t wanted = req->cwnd + VB_MAX(1u, calm ? acked : acked / 8);

	req->calm = VB_MIN(CALM_PACKETS, req->calm + acked);
	req->cwnd = VB_MIN(window, wanted);
	if (wanted > window && has_wide_window(qp, now_ns))
		req->cwnd = VB_MIN(packets_of(qp, qp->path.window), wanted);
}

/* vb_train - full packets of it that leave together; 1: each for itself. */
uint32_t vb_train(const struct vb_qp *qp)
{
	uint32_t packets = qp->path.train / (qp->mtu + VB_BTH_BYTES + VB_ICRC_BYTES);

	return VB_MAX(1u, VB_MIN(packets, PACKETS_PER_TURN));
}

uint32_t vb_turn(const struct vb_qp *qp)
{
	const uint32_t packets = vb_train(qp);

	if (packets == 1)
		return PACKETS_PER_TURN;
	return packets * VB_MAX(1u, TURN_BYTES / (packets * qp->mtu));
}

/* The FIRST and the LAST packet of an answer are longer than those between: the FIRST takes one of
 * them along, the LAST goes alone. What is left is whole trains. */
uint32_t vb_read_chunk(const struct vb_qp *qp)
{
	const uint32_t requests = VB_MAX(1u, VB_MIN(qp->attr.max_rd_atomic, READS_AT_ONCE));
	const uint32_t packets = vb_train(qp);
	uint32_t chunk = VB_MAX(1u, shared_window(qp) / requests);

	if (qp->path.window > WINDOW_SHARED)
		chunk = VB_MAX(chunk, packets_of(qp, qp->path.window / (2 * READS_AT_ONCE)));
	if (packets > 1 && chunk >= packets + ENDS)
		chunk -= (chunk - ENDS) % packets;
	return chunk;
}

void vb_requester_first_window(struct vb_qp *qp)
{
	qp->req.calm = CALM_PACKETS;
	qp->req.cwnd = vb_qp_is_datagram(qp) ? WINDOW_MAX : shared_window(qp);
}
