/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * timers.c - what happens by itself: one binary heap of connections by their deadlines.
 *
 *      REQ_SENT REP_SENT DREQ_SENT SIDR_REQ_SENT   send once more; after the last time, give up
 *      TIMEWAIT SIDR_REP_SENT                      forget it
 *
 * Room for every connection is made when connections are (vb_cm_timer_room), so setting one cannot
 * fail.
 */
#include <errno.h>
#include <stdlib.h>

#include "cm/cm_private.h"

#define FIRST_ROOM 16u
#define ASK_AGAIN_NS (1000ull * 1000) /* doubled each time */

int vb_cm_timer_room(struct vb_cm *cm)
{
	struct vb_cm_conn **larger;
	uint32_t room = cm->timer_room ? 2 * cm->timer_room : FIRST_ROOM;

	if (cm->conn_count < cm->timer_room)
		return 0;
	larger = realloc(cm->timers, room * sizeof(*larger));
	if (!larger)
		return -ENOMEM;
	cm->timers = larger;
	cm->timer_room = room;
	return 0;
}

static void put(struct vb_cm *cm, uint32_t index, struct vb_cm_conn *conn)
{
	cm->timers[index] = conn;
	conn->timer_index = index;
}

static void sift_up(struct vb_cm *cm, uint32_t index)
{
	struct vb_cm_conn *conn = cm->timers[index];

	while (index > 0) {
		uint32_t parent = (index - 1) / 2;

		if (cm->timers[parent]->deadline_ns <= conn->deadline_ns)
			break;
		put(cm, index, cm->timers[parent]);
		index = parent;
	}
	put(cm, index, conn);
}

static void sift_down(struct vb_cm *cm, uint32_t index)
{
	struct vb_cm_conn *conn = cm->timers[index];

	for (;;) {
		uint32_t child = 2 * index + 1;

		if (child >= cm->timer_count)
			break;
		if (child + 1 < cm->timer_count &&
		    cm->timers[child + 1]->deadline_ns < cm->timers[child]->deadline_ns)
			child++;
		if (cm->timers[child]->deadline_ns >= conn->deadline_ns)
			break;
		put(cm, index, cm->timers[child]);
		index = child;
	}
	put(cm, index, conn);
}

static void take_out(struct vb_cm *cm, struct vb_cm_conn *conn)
{
	uint32_t index = conn->timer_index;
	struct vb_cm_conn *last = cm->timers[--cm->timer_count];

	conn->timer_index = VB_CM_NO_TIMER;
	if (last == conn)
		return;
	put(cm, index, last);
	sift_up(cm, index);
	sift_down(cm, last->timer_index);
}

void vb_cm_timer_set(struct vb_cm_conn *conn, uint64_t deadline_ns)
{
	struct vb_cm *cm = conn->cm;

	conn->deadline_ns = deadline_ns;
	if (deadline_ns == VB_CM_NEVER) {
		if (conn->timer_index != VB_CM_NO_TIMER)
			take_out(cm, conn);
		return;
	}
	if (conn->timer_index == VB_CM_NO_TIMER) {
		VB_ASSERT(cm->timer_count < cm->timer_room);
		put(cm, cm->timer_count++, conn);
	}
	sift_up(cm, conn->timer_index);
	sift_down(cm, conn->timer_index);
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
	while (cm->timer_count && cm->timers[0]->deadline_ns <= now_ns)
		on_deadline(cm->timers[0], now_ns);
}

uint64_t vb_cm_deadline(const struct vb_cm *cm)
{
	return cm->timer_count ? cm->timers[0]->deadline_ns : VB_CM_NEVER;
}
