/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * nic.c - the NIC: its tables, what happens to a packet before its queue pair sees it, and the run
 * loop that gives each ready queue pair a turn.
 *
 * A packet is judged in the order of IBTA 9.6: BTH, then destination QP, then P_Key and address;
 * each refusal has its counter, and changes nothing else.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/mcast.h"
#include "core/timers.h"
#include "core/transport.h"
#include "wire/cursor.h"

struct vb_nic *vb_nic_create(const struct vb_nic_ops *ops, void *env,
			     const struct vb_nic_config *config)
{
	struct vb_nic *nic = calloc(1, sizeof(*nic));

	if (!nic)
		return NULL;
	nic->ops = *ops;
	nic->env = env;
	nic->config = *config;
	vb_list_init(&nic->groups);
	vb_list_init(&nic->ready);
	vb_list_init(&nic->blocked);
	vb_list_init(&nic->moderated);
	nic->moderated_due_ns = VB_NEVER;
	nic->qps = calloc(1u << VB_MAX_QP_BITS, sizeof(nic->qps[0]));
	nic->mrs = calloc(1u << VB_MAX_MR_BITS, sizeof(nic->mrs[0]));
	nic->rested = calloc(VB_QPN_REST, sizeof(nic->rested[0]));
	nic->resting = calloc(1u << VB_MAX_QP_BITS, sizeof(nic->resting[0]));
	if (!nic->qps || !nic->mrs || !nic->rested || !nic->resting) {
		vb_nic_destroy(nic);
		errno = ENOMEM;
		return NULL;
	}
	return nic;
}

void vb_nic_destroy(struct vb_nic *nic)
{
	if (!nic)
		return;
	VB_ASSERT(nic->qp_count == 0 && nic->awaiting == 0 && !nic->rung);
	free(nic->qps);
	free(nic->mrs);
	free(nic->xrc_srqs);
	free(nic->rested);
	free(nic->resting);
	free(nic->bounce);
	vb_heap_finish(&nic->timers);
	free(nic);
}

static uint32_t qp_index(const struct vb_nic *nic, uint32_t qpn)
{
	return qpn - nic->config.qpn_base;
}

struct vb_qp *vb_nic_find_qp(const struct vb_nic *nic, uint32_t qpn)
{
	uint32_t index = qp_index(nic, qpn);

	return index < 1u << VB_MAX_QP_BITS ? nic->qps[index] : NULL;
}

int vb_nic_add_qp(struct vb_nic *nic, struct vb_qp *qp)
{
	uint32_t index;

	if (nic->qp_count >= VB_MAX_QP || vb_heap_reserve(&nic->timers, nic->qp_count + 1) < 0)
		return -ENOMEM;
	do { /* at most three quarters of the numbers are taken: four draws on average at worst */
		index = nic->ops.random(nic->env) & ((1u << VB_MAX_QP_BITS) - 1);
	} while (index == 0 || nic->qps[index] || nic->resting[index]);
	nic->qps[index] = qp;
	nic->qp_count++;
	qp->qpn = nic->config.qpn_base + index;
	vb_heap_item_init(&qp->timer);
	vb_list_init(&qp->ready_link);
	qp->blocked = false;
	return 0;
}

/* rest - a peer holds the number of a connection that ended for a while (IBTA 12.4, timewait), and
 * takes a new connection from it for a mistake. */
static void rest(struct vb_nic *nic, uint32_t index)
{
	uint16_t *place = &nic->rested[nic->rest_count++ % VB_QPN_REST];

	nic->resting[*place] = 0; /* the first time round: index 0, which is never given */
	*place = (uint16_t)index;
	nic->resting[index] = 1;
}

void vb_nic_remove_qp(struct vb_nic *nic, struct vb_qp *qp)
{
	VB_ASSERT(vb_nic_find_qp(nic, qp->qpn) == qp);
	nic->qps[qp_index(nic, qp->qpn)] = NULL;
	rest(nic, qp_index(nic, qp->qpn));
	nic->qp_count--;
	for (uint32_t i = 0; i < VB_POSTED_AHEAD; i++)
		if (nic->posted[i] == qp)
			nic->posted[i] = NULL;
	vb_list_remove(&qp->ready_link);
	vb_heap_remove(&nic->timers, &qp->timer);
}

void vb_nic_make_ready(struct vb_nic *nic, struct vb_qp *qp)
{
	nic->ready_soon = true;
	vb_nic_make_ready_at_leisure(nic, qp);
}

void vb_nic_make_ready_at_leisure(struct vb_nic *nic, struct vb_qp *qp)
{
	if (!vb_list_is_linked(&qp->ready_link))
		vb_list_append(&nic->ready, &qp->ready_link);
}

void vb_nic_block(struct vb_nic *nic, struct vb_qp *qp)
{
	vb_list_remove(&qp->ready_link);
	vb_list_append(&nic->blocked, &qp->ready_link);
	qp->blocked = true;
}

void vb_nic_unblock(struct vb_nic *nic)
{
	struct vb_list *link;

	while ((link = vb_list_pop(&nic->blocked)) != NULL) {
		struct vb_qp *qp = vb_list_entry(link, struct vb_qp, ready_link);

		qp->blocked = false;
		vb_nic_make_ready(nic, qp);
	}
}

void vb_nic_raise(struct vb_nic *nic, enum vb_event_type type, struct vb_qp *qp, struct vb_cq *cq,
		  struct vb_srq *srq)
{
	const struct vb_event event = {.type = type, .qp = qp, .cq = cq, .srq = srq};

	nic->ops.event(nic->env, &event);
}

/* --- packets in -------------------------------------------------------------------------- */

/* is_in_its_direction - each end of an XRC connection is only one half: requests go to one,
 * responses to the other. */
static bool is_in_its_direction(const struct vb_qp *qp, const struct vb_headers *h)
{
	const bool response = vb_opcode_table[h->opcode].flags & VB_IS_RESPONSE;

	return !(qp->type == VB_QPT_XRC_SEND && !response) &&
	       !(qp->type == VB_QPT_XRC_RECV && response);
}

/* may_see - whether the packet is one for this QP; if not, the refusal's counter is counted. */
static bool may_see(struct vb_qp *qp, const struct vb_headers *h, const struct vb_rx *rx)
{
	struct vb_counters *c = &qp->nic->counters;

	if (qp->type == VB_QPT_RAW_PACKET ||
	    vb_opcode_transport(h->opcode) != vb_qp_transport(qp) || !is_in_its_direction(qp, h)) {
		c->rx_wrong_transport++;
		return false;
	}
	if (qp->state == VB_QPS_RESET || qp->state == VB_QPS_INIT || qp->state == VB_QPS_ERR) {
		c->rx_wrong_state++;
		return false;
	}
	if (!vb_pkey_is_default(h->pkey)) {
		c->rx_wrong_pkey++;
		return false;
	}
	if (qp->type != VB_QPT_UD && memcmp(&rx->src, &qp->path.dgid, sizeof(rx->src)) != 0) {
		c->rx_wrong_address++;
		return false;
	}
	return true;
}

/* A packet that was decoded. */
struct arrival {
	struct vb_headers h;
	const uint8_t *payload;
	uint32_t bytes;
	const struct vb_rx *rx;
};

static void give_to(struct vb_qp *qp, const void *env)
{
	const struct arrival *a = env;

	if (!may_see(qp, &a->h, a->rx))
		return;
	if (qp->watch.interval_ns)
		vb_watch_heard(qp, qp->nic->now_ns);
	switch (qp->type) {
	case VB_QPT_RC:
	case VB_QPT_XRC_SEND:
	case VB_QPT_XRC_RECV:
		if (vb_opcode_table[a->h.opcode].flags & VB_IS_RESPONSE)
			vb_rc_on_response(qp, &a->h, a->payload, a->bytes, qp->nic->now_ns);
		else
			vb_rc_on_request(qp, &a->h, a->payload, a->bytes, a->rx->lent);
		break;
	case VB_QPT_UC:
		vb_uc_on_request(qp, &a->h, a->payload, a->bytes);
		break;
	case VB_QPT_UD:
		vb_ud_on_packet(qp, &a->h, a->payload, a->bytes, a->rx);
		break;
	case VB_QPT_RAW_PACKET: /* may_see() refuses */
		break;
	}
	vb_qp_settle(qp);
}

/* is_next_middle - most packets of a stream: a MIDDLE one with the path MTU, nothing odd in its
 * BTH, from the peer. What is refused here, for whatever cause, is left to judge(). */
static bool is_next_middle(struct vb_nic *nic, const struct vb_rx *rx)
{
	const uint8_t *bth = rx->data;
	struct vb_headers h;
	struct vb_qp *qp;

	if (rx->size <= VB_BTH_BYTES || (bth[0] != vb_opcode(VB_TRANSPORT_RC, VB_OP_WRITE_MIDDLE) &&
					 bth[0] != vb_opcode(VB_TRANSPORT_RC, VB_OP_SEND_MIDDLE)))
		return false;
	vb_bth_decode(&h, bth);
	qp = vb_nic_find_qp(nic, h.qpn);
	if (!qp || h.pad || h.tver || qp->type != VB_QPT_RC || qp->state != VB_QPS_RTS ||
	    rx->size != VB_BTH_BYTES + qp->mtu || !vb_pkey_is_default(h.pkey) ||
	    memcmp(&rx->src, &qp->path.dgid, sizeof(rx->src)) != 0)
		return false;
	if (!vb_rc_on_middle(qp, h.opcode, h.psn, h.ack_req, rx->data + VB_BTH_BYTES))
		return false;
	if (qp->watch.interval_ns)
		vb_watch_heard(qp, nic->now_ns);
	vb_qp_settle(qp);
	return true;
}

/* takes_lent - only RC lends, and only SENDs. */
static bool takes_lent(const struct vb_headers *h)
{
	return vb_opcode_transport(h->opcode) == VB_TRANSPORT_RC &&
	       vb_opcode_table[h->opcode].flags & VB_IS_SEND;
}

/* is_for_the_same - two BTHs name one queue pair: it is here already. */
static inline bool is_for_the_same(const uint8_t *a, const uint8_t *b)
{
	return memcmp(a + 4, b + 4, 4) == 0;
}

/* fetch_next - the queue pair of the packet that comes next, if it is one of ours. */
static inline void fetch_next(const struct vb_nic *nic, const uint8_t *bth)
{
	const struct vb_qp *qp = vb_nic_find_qp(nic, vb_load_be32(bth + 4) & VB_QPN_MASK);

	if (qp)
		vb_qp_fetch(qp);
}

bool vb_nic_is_next(const struct vb_nic *nic, const uint8_t *packet)
{
	const struct vb_qp *qp;
	struct vb_headers h;

	vb_bth_decode(&h, packet);
	qp = vb_nic_find_qp(nic, h.qpn);
	if (!qp || qp->type == VB_QPT_UD || qp->type == VB_QPT_RAW_PACKET)
		return true;
	if (!(vb_opcode_table[h.opcode].flags & VB_IS_RESPONSE))
		return !vb_psn_before(qp->resp.epsn, h.psn);
	/* An acknowledgement may say more than what it is the first to say; an answer may not. */
	return qp->req.rd_outstanding == 0 || !vb_psn_before(qp->req.una_psn, h.psn);
}

/* judge - the long way: any packet, of which nothing is known. */
static __attribute__((noinline)) void judge(struct vb_nic *nic, const struct vb_rx *rx)
{
	struct arrival a = {.rx = rx};
	struct vb_qp *qp;
	int used;

	used = vb_headers_decode(&a.h, rx->data, rx->size);
	if (used < 0 || a.h.tver != 0) {
		nic->counters.rx_malformed++;
		return;
	}
	a.payload = rx->data + used;
	a.bytes = rx->lent ? rx->lent->bytes : (uint32_t)(rx->size - (size_t)used - a.h.pad);
	if ((rx->lent && !takes_lent(&a.h)) || (a.bytes + a.h.pad) % 4 != 0 ||
	    (a.bytes > 0 && !(vb_opcode_table[a.h.opcode].flags & VB_HAS_PAYLOAD))) {
		nic->counters.rx_malformed++;
		return;
	}
	if (a.h.qpn == VB_QPN_MULTICAST) {
		if (!vb_mcast_each(nic, &rx->dst, give_to, &a))
			nic->counters.rx_unknown_qp++;
		return;
	}
	qp = vb_nic_find_qp(nic, a.h.qpn);
	if (qp)
		give_to(qp, &a);
	else
		nic->counters.rx_unknown_qp++;
}

void vb_nic_rx(struct vb_nic *nic, const struct vb_rx *rx, uint64_t now_ns)
{
	nic->now_ns = now_ns;
	nic->counters.rx_packets++;
	if (rx->next && !is_for_the_same(rx->next, rx->data))
		fetch_next(nic, rx->next);
	if (!vb_rc_take_short(nic, rx) && !vb_rc_take_ack(nic, rx) && !is_next_middle(nic, rx))
		judge(nic, rx);
}

/* --- time and packets out ---------------------------------------------------------------- */

static void expire_timers(struct vb_nic *nic, uint64_t now_ns)
{
	struct vb_qp *qp;

	while ((qp = vb_timers_pop(nic, now_ns)) != NULL) {
		if (vb_requester_deadline(qp) <= now_ns) {
			vb_requester_on_deadline(qp, now_ns);
			vb_nic_make_ready(nic, qp);
		}
		vb_nic_arm_timer(nic, qp, vb_requester_deadline(qp));
		vb_qp_settle(qp);
	}
}

/* says_one_thing - has one short message to send, and an acknowledgement at most: what a program
 * says in answer to what it just got. The acknowledgement, for which nobody waits as for the
 * message, may then go behind it; being the shorter packet, it leaves in the same datagram. Not
 * behind what asks for an answer: a refusal would end the peer's queue pair before it is heard. */
static bool says_one_thing(const struct vb_qp *qp)
{
	const struct vb_send_wqe *w;

	if (qp->blocked || qp->sq_head - qp->sq_next != 1 ||
	    qp->resp.reply_next != qp->resp.reply_head)
		return false;
	w = vb_qp_wqe(qp, qp->sq_next);
	return !vb_wr_is_answered(w->opcode) && w->length <= qp->mtu;
}

/* run_qp - one turn. True: it has more to send at once. */
static bool run_qp(struct vb_qp *qp, uint64_t now_ns)
{
	bool more = false;

	if (qp->type == VB_QPT_RAW_PACKET) {
		more = vb_raw_run(qp);
	} else if (!vb_qp_is_reliable(qp)) {
		more = !qp->blocked && vb_requester_run(qp, now_ns);
	} else if (says_one_thing(qp)) {
		more = vb_requester_run(qp, now_ns);
		more |= vb_rc_responder_run(qp);
	} else {
		more = vb_rc_responder_run(qp);
		if (!qp->blocked)
			more |= vb_requester_run(qp, now_ns);
	}
	vb_qp_settle(qp);
	return more && !qp->blocked;
}

bool vb_nic_run(struct vb_nic *nic, uint64_t now_ns)
{
	struct vb_list *last = nic->ready.prev;
	struct vb_list *link;
	bool was_last = vb_list_is_empty(&nic->ready);

	nic->now_ns = now_ns;
	nic->ready_soon = false;
	if (vb_nic_deadline(nic) <= now_ns) {
		if (nic->moderated_due_ns <= now_ns)
			vb_cq_run_moderated(nic, now_ns);
		expire_timers(nic, now_ns);
		last = nic->ready.prev;
		was_last = vb_list_is_empty(&nic->ready);
	}
	while (!was_last && (link = vb_list_pop(&nic->ready)) != NULL) {
		struct vb_qp *qp = vb_list_entry(link, struct vb_qp, ready_link);

		was_last = link == last;
		if (vb_rc_turn_short(qp, now_ns))
			vb_qp_settle(qp);
		else if (run_qp(qp, now_ns))
			vb_nic_make_ready(nic, qp);
	}
	return !vb_list_is_empty(&nic->ready);
}

bool vb_nic_needs_time(const struct vb_nic *nic)
{
	const struct vb_list *first = nic->ready.next;

	return vb_list_is_empty(&nic->ready) || first != nic->ready.prev ||
	       !vb_requester_goes_on(vb_list_entry(first, const struct vb_qp, ready_link));
}

bool vb_nic_answer_is_due(struct vb_nic *nic, uint64_t now_ns)
{
	struct vb_heap_item *first;

	while ((first = vb_heap_first(&nic->timers)) != NULL && first->key <= now_ns) {
		struct vb_qp *qp = vb_container_of(first, struct vb_qp, timer);
		const uint64_t deadline_ns = vb_requester_deadline(qp);

		/* Of UC and UD it is their turn to send; behind them may be who awaits something.
		 */
		if (deadline_ns <= now_ns)
			return vb_qp_is_reliable(qp) || nic->awaiting > 0;
		vb_heap_remove(&nic->timers, first);
		vb_nic_arm_timer(nic, qp, deadline_ns);
	}
	return false;
}

uint64_t vb_nic_deadline(const struct vb_nic *nic)
{
	const struct vb_heap_item *first = vb_heap_first(&nic->timers);

	return VB_MIN(first ? first->key : VB_NEVER, nic->moderated_due_ns);
}
