/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * timers.c - what happens by itself: one heap of connections by their deadlines.
 *
 *      REQ_SENT REP_SENT DREQ_SENT SIDR_REQ_SENT   send once more; after the last time, give up
 *      TIMEWAIT SIDR_REP_SENT                      forget it
 *
 * Room for every connection is made when connections are, so setting one cannot fail.
 */
#include "cm/cm_private.h"

#define ASK_AGAIN_NS (1000ull * 1000) /* doubled each time */

void vb_cm_timer_set(struct vb_cm_conn *conn, uint64_t deadline_ns)
{
	if (deadline_ns == VB_CM_NEVER)
		vb_heap_remove(&conn->cm->timers, &conn->timer);
	else
		vb_heap_set(&conn->cm->timers, &conn->timer, deadline_ns);
}

/* Nobody answered. The peer hears of it, since it may be our side alone that hears nothing (IBTA
 * 12.9.8.3); a DREQ needs no farewell. */
static void give_up(struct vb_cm_conn *conn, uint64_t now_ns)
{
	switch ((enum vb_cm_state)conn->state) {
	case VB_CMS_REQ_SENT:
		vb_cm_send_last_rej(conn, VB_CM_REJ_TIMEOUT);
		vb_cm_conn_close(conn);
		vb_cm_tell_plain(conn, VB_CM_REQ_FAILED, NULL);
		break;
	case VB_CMS_REP_SENT:
		vb_cm_send_last_rej(conn, VB_CM_REJ_TIMEOUT);
		vb_cm_conn_close(conn);
		vb_cm_tell_plain(conn, VB_CM_REP_FAILED, NULL);
		break;
	case VB_CMS_DREQ_SENT:
		vb_cm_conn_move(conn, VB_CMS_TIMEWAIT, now_ns);
		vb_cm_tell_plain(conn, VB_CM_DREQ_FAILED, NULL);
		break;
	case VB_CMS_SIDR_REQ_SENT:
		vb_cm_conn_close(conn);
		vb_cm_tell_plain(conn, VB_CM_SIDR_FAILED, NULL);
		break;
	case VB_CMS_IDLE:
	case VB_CMS_REQ_RCVD:
	case VB_CMS_MRA_REQ_SENT:
	case VB_CMS_REP_RCVD:
	case VB_CMS_MRA_REP_SENT:
	case VB_CMS_ESTABLISHED:
	case VB_CMS_DREQ_RCVD:
	case VB_CMS_TIMEWAIT:
	case VB_CMS_SIDR_REQ_RCVD:
	case VB_CMS_SIDR_REP_SENT:
	case VB_CMS_CLOSED:
		VB_ASSERT(!"a state that waits for an answer");
	}
}

static void on_deadline(struct vb_cm_conn *conn, uint64_t now_ns)
{
	bool owned = conn->owned;

	if (conn->state == VB_CMS_TIMEWAIT || conn->state == VB_CMS_SIDR_REP_SENT) {
		vb_cm_conn_close(conn);
		if (owned)
			vb_cm_tell_plain(conn, VB_CM_TIMEWAIT_EXIT, NULL);
	} else if (conn->retries_left) {
		conn->retries_left--;
		conn->cm->counters.retries++;
		vb_cm_timer_set(conn, now_ns + conn->interval_ns);
		vb_cm_send_written(conn);
	} else {
		give_up(conn, now_ns);
	}
}

/* Programs tell each other by other means that a server is about to listen, and connect at once:
 * perftest -R does, qperf too. Adapters take so long to connect that the listener is always there;
 * we do not. */
bool vb_cm_ask_again(struct vb_cm_conn *conn, uint64_t now_ns)
{
	if (conn->refusals >= conn->cm->config.insist)
		return false;
	conn->retries_left++; /* it is not for want of an answer */
	vb_cm_timer_set(conn, now_ns + (ASK_AGAIN_NS << conn->refusals++));
	return true;
}

void vb_cm_run(struct vb_cm *cm, uint64_t now_ns)
{
	/* Ends: what expires is gone, in a state without a deadline, or has one after now. */
	while (vb_cm_deadline(cm) <= now_ns)
		on_deadline(vb_container_of(vb_heap_first(&cm->timers), struct vb_cm_conn, timer),
			    now_ns);
}

uint64_t vb_cm_deadline(const struct vb_cm *cm)
{
	const struct vb_heap_item *first = vb_heap_first(&cm->timers);

	return first ? first->key : VB_CM_NEVER;
}
