/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * transport.h - what the transport files (requester.c, rc_requester.c, rc_responder.c,
 * rc_answers.c, rc_short.c, rc_short_ack.c, uc.c, ud.c, flush.c, sge.c, timing.c) offer each other
 * and qp_state.c.
 */
#ifndef VB_CORE_TRANSPORT_H
#define VB_CORE_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/psn.h"
#include "core/nic.h"
#include "core/qp.h"

static inline enum vb_transport vb_qp_transport(const struct vb_qp *qp)
{
	switch (qp->type) {
	case VB_QPT_RC:
		return VB_TRANSPORT_RC;
	case VB_QPT_UC:
		return VB_TRANSPORT_UC;
	case VB_QPT_UD:
		return VB_TRANSPORT_UD;
	case VB_QPT_XRC_SEND:
	case VB_QPT_XRC_RECV:
		return VB_TRANSPORT_XRC;
	case VB_QPT_RAW_PACKET: /* its frames are raw.c's */
		break;
	}
	__builtin_unreachable();
}

/* --- flush.c: errors and what they end --------------------------------------------------- */

/* vb_qp_fail_send - the oldest incomplete send request completes with status and reason, and the QP
 * enters ERR (RC) or SQE (UC, UD; IBTA 10.3.1.6). */
void vb_qp_fail_send(struct vb_qp *qp, enum vb_status status, const struct vb_reason *reason);
/* vb_qp_fail_recv - the receive request held by the responder, if any, completes with status; event
 * is raised; the QP enters ERR. */
void vb_qp_fail_recv(struct vb_qp *qp, enum vb_status status, const struct vb_reason *reason,
		     enum vb_event_type event);
/* vb_qp_complete_recv - the held receive request completes with success. */
void vb_qp_complete_recv(struct vb_qp *qp, enum vb_wc_opcode opcode, uint32_t byte_len,
			 const struct vb_headers *h);
/* vb_qp_recv_cq - where its receives complete. */
static inline struct vb_cq *vb_qp_recv_cq(const struct vb_qp *qp)
{
	const struct vb_srq *srq = vb_qp_srq(qp);

	return srq && srq->cq ? srq->cq : qp->recv_cq;
}
/* vb_qp_push_recv - a completion of recv with these facts, into the CQ that its receives have. */
void vb_qp_push_recv(struct vb_qp *qp, const struct vb_recv_wqe *recv, const struct vb_cqe *facts,
		     const struct vb_reason *reason);
/* vb_qp_complete_datagram - the same of a datagram's receive request, which says how it came. */
void vb_qp_complete_datagram(struct vb_qp *qp, uint32_t byte_len, const struct vb_headers *h,
			     const struct vb_rx *rx);
/* vb_qp_reason - a reason about this QP and its peer; the check's values are the caller's to fill
 * in. */
struct vb_reason vb_qp_reason(const struct vb_qp *qp, enum vb_check check);
/* vb_qp_flush - in ERR: every send and receive request completes with WR_FLUSH_ERR, once, in order.
 */
void vb_qp_flush(struct vb_qp *qp);
/* vb_qp_flush_sends - in SQE: the send queue only. */
void vb_qp_flush_sends(struct vb_qp *qp);
/* vb_qp_forget - to RESET and before destroy: requests and completions vanish. */
void vb_qp_forget(struct vb_qp *qp);
/* vb_qp_complete_send - completes the WQE at sq_una with status; a successful unsignalled one is
 * silent. */
void vb_qp_complete_send(struct vb_qp *qp, enum vb_status status, const struct vb_reason *reason);

/* --- posting, both ways -------------------------------------------------------------------- */
#define VB_FORESEEN_REQUESTS 3u /* of a queue of two; behind them are its SGEs */

/* vb_qp_foresee - programs with many QPs post to them in turn, and often in the same turn as
 * before. Those that came a few posts after this one are fetched meanwhile, with the first requests
 * of a small queue, which lie behind it: half of what a post costs is waiting for them. So is the
 * place where the answer will look for this one. */
static inline void vb_qp_foresee(struct vb_qp *qp)
{
	struct vb_nic *nic = qp->nic;
	struct vb_qp **place, *before;

	if (nic->posted[(nic->posted_count - 1) % VB_POSTED_AHEAD] == qp)
		return;
	place = &nic->posted[nic->posted_count++ % VB_POSTED_AHEAD];
	before = *place;
	*place = qp;
	if (before && before->posted_next != qp) {
		before->posted_next = qp;
		before->posted_user = qp->user;
	}
	__builtin_prefetch(&nic->qps[qp->qpn - nic->config.qpn_base]);
	if (!qp->posted_next)
		return;
	vb_qp_fetch(qp->posted_next);
	for (unsigned int i = 0; i < VB_FORESEEN_REQUESTS; i++)
		__builtin_prefetch((const uint8_t *)qp->posted_next + sizeof(*qp) +
				   i * sizeof(struct vb_send_wqe));
}

/* --- requester.c ------------------------------------------------------------------------- */
/* vb_requester_start - entering RTS: cursors at sq_psn. */
void vb_requester_start(struct vb_qp *qp);
/* vb_requester_run - sends what may be sent now. True: budget used up, more is waiting. */
bool vb_requester_run(struct vb_qp *qp, uint64_t now_ns);
/* vb_requester_sends_at_once - tries to send what was just posted, where nothing is gained by
 * waiting for the run: a short message or copy for a peer of this host, and nothing before it.
 * False: the run has something to do. */
bool vb_requester_sends_at_once(struct vb_qp *qp);
/* vb_requester_goes_on - it has one SEND to begin, and the timer runs for others already. */
bool vb_requester_goes_on(const struct vb_qp *qp);
/* vb_requester_check_drained - SQD: raises SQ_DRAINED once nothing is under way. */
void vb_requester_check_drained(struct vb_qp *qp);
/* vb_requester_start_timer - that of what is on its way, unless nothing is, or it runs. */
void vb_requester_start_timer(struct vb_qp *qp, uint64_t now_ns);
uint64_t vb_requester_deadline(const struct vb_qp *qp);
/* vb_requester_on_deadline - the deadline has come: the end of an RNR wait, or a timeout. */
void vb_requester_on_deadline(struct vb_qp *qp, uint64_t now_ns);

/* vb_requester_await - an answer is due then; 0: none is under way, or it may take for ever. */
static inline void vb_requester_await(struct vb_qp *qp, uint64_t deadline_ns)
{
	qp->nic->awaiting += (deadline_ns != 0) - (qp->req.ack_deadline_ns != 0);
	qp->req.ack_deadline_ns = deadline_ns;
}

/* vb_requester_go_back - the next packet to send is the oldest unacknowledged one. */
void vb_requester_go_back(struct vb_qp *qp);
/* vb_read_chunk - packets of response that one READ request asks for at most; constant for a path.
 */
uint32_t vb_read_chunk(const struct vb_qp *qp);
/* vb_train - full packets that leave together; 1: each for itself. */
uint32_t vb_train(const struct vb_qp *qp);
/* vb_requester_first_window - entering RTS. */
void vb_requester_first_window(struct vb_qp *qp);
/* vb_turn - packets that a queue pair sends before it is the next one's turn: whole trains. */
uint32_t vb_turn(const struct vb_qp *qp);
/* vb_requester_open_window - RC: so many packets were acknowledged. More may be in flight, as far
 * as the path, and other QPs, allow. */
void vb_requester_open_window(struct vb_qp *qp, uint32_t acked, uint64_t now_ns);

/* --- lend.c ------------------------------------------------------------------------------ */
/* vb_lend_may - whether the message that begins is to be lent. */
bool vb_lend_may(struct vb_qp *qp, const struct vb_send_wqe *w);
/* vb_lend - the parts of message bytes [offset, offset + bytes); room for VB_LENT_PARTS. False:
 * they are to go as packets. */
bool vb_lend(const struct vb_qp *qp, const struct vb_send_wqe *w, uint32_t offset, uint32_t bytes,
	     struct vb_lent_part *parts, struct vb_lent *lent);
/* vb_lend_refused - what is under way goes as packets when it is repeated, and what follows for a
 * while. */
void vb_lend_refused(struct vb_qp *qp);
/* vb_lend_packets - how many packets one that lends stands for at most. */
static inline uint32_t vb_lend_packets(const struct vb_qp *qp)
{
	return VB_MAX(1u, VB_LENT_BYTES / qp->mtu);
}
/* vb_fetch_recv - lent payload into the receive request that the responder holds. False: the peer
 * is to send it as packets. */
bool vb_fetch_recv(const struct vb_qp *qp, const struct vb_lent *lent);

/* --- watch.c ----------------------------------------------------------------------------- */
/* vb_watch_heard - something came from the peer. */
void vb_watch_heard(struct vb_qp *qp, uint64_t now_ns);
uint64_t vb_watch_deadline(const struct vb_qp *qp);
void vb_watch_on_deadline(struct vb_qp *qp, uint64_t now_ns);

/* --- rc_requester.c ---------------------------------------------------------------------- */
void vb_rc_on_response(struct vb_qp *qp, const struct vb_headers *h, const uint8_t *payload,
		       uint32_t bytes, uint64_t now_ns);
void vb_rc_on_timeout(struct vb_qp *qp, uint64_t now_ns);

/* --- rc_responder.c ---------------------------------------------------------------------- */
/* vb_responder_start - entering RTR: epsn from rq_psn. All types. */
void vb_responder_start(struct vb_qp *qp);
/* vb_rc_on_request - lent: the payload is there, or NULL. */
void vb_rc_on_request(struct vb_qp *qp, const struct vb_headers *h, const uint8_t *payload,
		      uint32_t bytes, const struct vb_lent *lent);
/* vb_rc_on_middle - a SEND's or WRITE's MIDDLE packet with payload of the path MTU, of a queue pair
 * of type RC in RTS. False, with nothing changed but perhaps bytes that it brings: it is not just
 * the next one of its message, with ordinary memory for it, and goes to vb_rc_on_request(). */
bool vb_rc_on_middle(struct vb_qp *qp, uint8_t opcode, uint32_t psn, bool ack_req,
		     const uint8_t *payload);
/* vb_rc_acknowledge - the ACK or NAK is to be said, behind what is owed already. */
void vb_rc_acknowledge(struct vb_qp *qp, uint8_t syndrome, uint32_t psn);
/* vb_rc_advance - a request that takes so many PSNs was accepted. */
static inline void vb_rc_advance(struct vb_qp *qp, uint8_t opcode, uint32_t psns)
{
	qp->resp.epsn = vb_psn_add(qp->resp.epsn, psns);
	qp->resp.last_opcode = opcode;
	qp->resp.seq_nak_sent = false;
}
/* vb_rc_end_message - that was the last packet of a SEND or WRITE. */
static inline void vb_rc_end_message(struct vb_qp *qp)
{
	qp->resp.message = VB_MSG_NONE;
	qp->resp.received = 0;
	qp->resp.msn = (qp->resp.msn + 1) & VB_PSN_MASK;
}
/* vb_rc_nak - says so once what was accepted before is answered. */
void vb_rc_nak(struct vb_qp *qp, enum vb_nak_code code, uint32_t psn);

/* --- rc_short.c -------------------------------------------------------------------------- */
/* vb_rc_take_short - takes a packet that is the usual short SEND, at little cost. False: nothing
 * happened, and it is to be decoded and judged. */
bool vb_rc_take_short(struct vb_nic *nic, const struct vb_rx *rx);

/* --- rc_short_ack.c ---------------------------------------------------------------------- */
/* vb_rc_turn_short - the turn of a queue pair that has an ACK to give, if anything. False: nothing
 * happened, and it is to have an ordinary turn. */
bool vb_rc_turn_short(struct vb_qp *qp, uint64_t now_ns);
/* vb_rc_take_ack - takes a packet that is the usual ACK. False: nothing happened, as above. */
bool vb_rc_take_ack(struct vb_nic *nic, const struct vb_rx *rx);

/* --- rc_answers.c ------------------------------------------------------------------------ */
/* vb_rc_responder_run - sends answers and the acknowledgement. True: more is waiting. */
bool vb_rc_responder_run(struct vb_qp *qp);
/* vb_rc_owes_ack_alone - what it would send now is one ACK: no answer, and nothing refused. */
bool vb_rc_owes_ack_alone(const struct vb_qp *qp);
/* vb_rc_next_reply - the oldest of the replies is answered, or given up. */
void vb_rc_next_reply(struct vb_responder *resp);

/* --- uc.c, ud.c -------------------------------------------------------------------------- */
void vb_uc_on_request(struct vb_qp *qp, const struct vb_headers *h, const uint8_t *payload,
		      uint32_t bytes);
void vb_ud_on_packet(struct vb_qp *qp, const struct vb_headers *h, const uint8_t *payload,
		     uint32_t bytes, const struct vb_rx *rx);

/* --- sge.c: gather and scatter ----------------------------------------------------------- */
/* vb_send_pd - the keys of a send request are the QP's; what tag matching READs goes into the SRQ's
 * buffers. */
static inline const struct vb_pd *vb_send_pd(const struct vb_qp *qp)
{
	return qp->srq && qp->srq->tm ? qp->srq->pd : qp->pd;
}

/* vb_ordinary_memory - the usual case at little cost: memory of an ordinary region that the SGE,
 * from its byte skip on, may use. NULL: vb_mr_local judges. */
static inline uint8_t *vb_ordinary_memory(const struct vb_nic *nic, const struct vb_pd *pd,
					  const struct vb_sge *sge, uint32_t skip, uint32_t length,
					  uint32_t rights)
{
	const struct vb_mr *mr = nic->mrs[vb_key_slot(sge->lkey)];
	uint64_t offset;

	if (!mr || mr->lkey != sge->lkey || mr->pd != pd || mr->kind != VB_MR_MEMORY ||
	    mr->access & VB_ACCESS_ON_DEMAND || rights & ~mr->access)
		return NULL;
	offset = sge->addr + skip - mr->iova; /* huge where the SGE begins before the region */
	if (offset > mr->length || length > mr->length - offset)
		return NULL;
	return mr->addr + offset;
}

/* vb_gather_payload - the iovec of message bytes [offset, offset + length) to send. Returns the
 * parts, or -1 with the failed check in reason. Some may be in nic->bounce, and are good until the
 * next call only. */
int vb_gather_payload(const struct vb_qp *qp, const struct vb_sge *sges, uint32_t num_sge,
		      uint32_t offset, uint32_t length, struct iovec *out,
		      struct vb_reason *reason);
/* vb_gather - the same of where the bytes lie, for who does not touch them: those of a region on
 * demand may be gone. rights: 0 to read them, VB_ACCESS_LOCAL_WRITE to write. */
int vb_gather(const struct vb_qp *qp, const struct vb_sge *sges, uint32_t num_sge, uint32_t offset,
	      uint32_t length, uint32_t rights, struct iovec *out, struct vb_reason *reason);
/* vb_scatter - writes data at message offset of a send request's SGEs. False: reason holds why. */
bool vb_scatter(const struct vb_qp *qp, const struct vb_sge *sges, uint32_t num_sge,
		uint32_t offset, const uint8_t *data, uint32_t length, struct vb_reason *reason);
/* vb_scatter_recv - the same, into the receive request that the responder holds. */
bool vb_scatter_recv(const struct vb_qp *qp, uint32_t offset, const uint8_t *data, uint32_t length,
		     struct vb_reason *reason);
/* vb_scatter_to - the same into any receive request, whose keys are pd's. */
bool vb_scatter_to(struct vb_nic *nic, const struct vb_pd *pd, const struct vb_recv_wqe *recv,
		   uint32_t offset, const uint8_t *data, uint32_t length, struct vb_reason *reason);
/* vb_place_head - how many of the bytes are to be there before the rest. */
static inline uint32_t vb_place_head(const uint8_t *to, uint32_t length)
{
	const uintptr_t at = (uintptr_t)to;

	return length > 8 ? (uint32_t)(((at + length - 1) & ~(uintptr_t)7) - at) : 0;
}
/* vb_place_remote - vb_place at an address that rkey was found good for. False: a region on demand,
 * and no memory there. */
bool vb_place_remote(struct vb_nic *nic, uint32_t rkey, uint8_t *to, const uint8_t *from,
		     uint32_t length);
/* vb_place - copies so that the last bytes become visible last: programs poll on them. */
void vb_place(uint8_t *to, const uint8_t *from, uint32_t length);

/* --- nic.c ------------------------------------------------------------------------------- */
/* vb_nic_block - the carrier had no room for this QP's packet: it waits for vb_nic_unblock(). */
void vb_nic_block(struct vb_nic *nic, struct vb_qp *qp);

/* --- timing.c ---------------------------------------------------------------------------- */
/* vb_rnr_timer_ns - IBTA table 45: the wait that an RNR NAK's timer field asks for. */
uint64_t vb_rnr_timer_ns(uint8_t field);
/* vb_ack_timeout_ns - 4.096 us * 2^exponent (IBTA 9.7.6.1.3), not under the NIC's minimum; 0: none.
 */
uint64_t vb_ack_timeout_ns(const struct vb_nic *nic, uint8_t exponent);

#endif
