/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm_private.h - the manager's insides, for src/cm alone.
 *
 *      cm.c        the manager: what arrives finds its connection, its rule and its handler
 *      conn.c      a connection: its identity, its state, where it can be found, its end
 *      timers.c    when something happens by itself, and what
 *      message.c   writing a message, sending it, sending it again
 *      listener.c  who waits for requests
 *      req.c mra.c rep.c rtu.c rej.c dreq.c sidr.c
 *                  a message each (DREQ with DREP, SIDR_REQ with SIDR_REP): to send it, to take it,
 *                  to take it a second time
 *
 *      active                                            passive
 *      IDLE                                              (no object)
 *       | send REQ                                            | REQ
 *      REQ_SENT ------------ no answer, REJ: CLOSED        REQ_RCVD - MRA -> MRA_REQ_SENT
 *       | REP                                                 | send REP      /
 *      REP_RCVD - MRA -> MRA_REP_SENT                       REP_SENT <-------+
 *       | send RTU        /                                   | RTU, or traffic
 *      ESTABLISHED <-----+                                  ESTABLISHED
 *             \                                              /
 *              +- send DREQ: DREQ_SENT      DREQ: DREQ_RCVD +
 *                          \ DREP, DREQ, no answer     / send DREP
 *                           +------> TIMEWAIT <-------+
 *                                       | packets of it are gone
 *                                     CLOSED
 *
 *      IDLE - send SIDR_REQ -> SIDR_REQ_SENT -> CLOSED
 *      (no object) - SIDR_REQ -> SIDR_REQ_RCVD - send SIDR_REP -> SIDR_REP_SENT -> CLOSED
 *
 * Invariants. vb_cm_conn_move() alone changes a state, and arms the state's deadline. A connection
 * is in the table of local IDs from its creation to its end, so that no other gets its ID; in the
 * table of remote IDs from the first message of its peer until CLOSED; in the table of remote queue
 * pairs while the pair may be in use, which is before TIMEWAIT. sent holds the message that was
 * sent last and may have to be sent again.
 */
#ifndef VB_CM_CM_PRIVATE_H
#define VB_CM_CM_PRIVATE_H

#include "base/heap.h"
#include "base/list.h"
#include "cm/cm.h"
#include "cm/table.h"
#include "wire/cm_message.h"

#define VB_CM_NEVER UINT64_MAX
/* Connection objects at a time, those in timewait included; a REQ beyond is refused. */
#define VB_CM_MAX_CONNECTIONS 65536u
/* No time from a message or a program counts as longer than 4.096 us * 2^x: 137 seconds. */
#define VB_CM_MAX_EXPONENT 25u
/* ... and no timewait as longer than 34 seconds, by when no network holds a packet any more. */
#define VB_CM_MAX_TIMEWAIT_EXPONENT 23u
/* What we ask for when a duplicate says that the program's answer takes longer: 69 seconds. */
#define VB_CM_MRA_EXPONENT 24u
/* How long an answered SIDR_REQ is remembered once its program has let go of it: two attempts of a
 * requester with the usual timeout of 4.3 seconds. */
#define VB_CM_SIDR_MEMORY_EXPONENT 21u
/* 5 and 24 bits */
#define VB_CM_TIMEOUT_LIMIT 31u
#define VB_CM_QPN_MASK 0xffffffu

enum vb_cm_state {
	VB_CMS_IDLE,
	VB_CMS_REQ_SENT,
	VB_CMS_REQ_RCVD,
	VB_CMS_MRA_REQ_SENT,
	VB_CMS_REP_SENT,
	VB_CMS_REP_RCVD,
	VB_CMS_MRA_REP_SENT,
	VB_CMS_ESTABLISHED,
	VB_CMS_DREQ_SENT,
	VB_CMS_DREQ_RCVD,
	VB_CMS_TIMEWAIT,
	VB_CMS_SIDR_REQ_SENT,
	VB_CMS_SIDR_REQ_RCVD,
	VB_CMS_SIDR_REP_SENT,
	VB_CMS_CLOSED,
};
#define VB_CM_STATES (VB_CMS_CLOSED + 1)

struct vb_cm_listener {
	struct vb_cm *cm;
	struct vb_cm_entry entry; /* in cm->services, by service ID */
	struct vb_list link;	  /* in cm->listeners */
	uint64_t service_id;
	struct vb_cm_match match;
	void *user;
};

struct vb_cm_conn {
	struct vb_cm *cm;
	void *user;
	bool owned;    /* by a program; otherwise it lives until its state ends by itself */
	bool active;   /* sent the REQ or SIDR_REQ */
	bool xrc;      /* the REQ's transport */
	uint8_t state; /* enum vb_cm_state */
	uint8_t ack_timeout, max_retries, retries_left;
	uint8_t refusals;	      /* by a peer where nobody listens yet */
	uint32_t local_id, remote_id; /* remote_id 0: not known yet */
	uint32_t local_qpn, remote_qpn;
	uint64_t remote_guid;
	uint64_t tid;	   /* of REQ and what follows, or of SIDR_REQ */
	uint64_t dreq_tid; /* of the peer's DREQ */
	uint64_t service_id;
	uint64_t interval_ns; /* between attempts of what waits for an answer */
	struct vb_cm_path path;
	struct vb_cm_entry by_local, by_remote, by_qpn; /* SIDR: by_remote in cm->sidr_requests */
	struct vb_list link;				/* in cm->conns */
	struct vb_heap_item timer; /* in cm->timers, unless nothing happens by itself */
	uint8_t sent[VB_MAD_BYTES];
};

struct vb_cm {
	struct vb_cm_ops ops;
	void *env;
	struct vb_cm_config config;
	uint64_t secret;
	uint32_t max_connections;
	struct vb_cm_table local_ids, remote_ids, remote_qps, sidr_requests, services;
	struct vb_list conns, listeners;
	struct vb_heap timers; /* of connections; room for all that exist */
	uint32_t conn_count;
	struct vb_cm_counters counters;
};

/* A message as it arrived. */
struct vb_cm_rx {
	const struct vb_cm_path *from;
	struct vb_cm_message message;
	uint64_t now_ns;
};

/* vb_cm_time_ns - 4.096 us * 2^exponent, or as if the exponent were limit. */
static inline uint64_t vb_cm_time_ns(uint8_t exponent, uint8_t limit)
{
	return 4096ull << VB_MIN(exponent, limit);
}

/* vb_cm_life_ns - how long a packet is under way at most, which a queue pair's ACK timeout holds
 * twice (IBTA 12.7.34). */
static inline uint64_t vb_cm_life_ns(const struct vb_cm_conn *conn)
{
	return vb_cm_time_ns(conn->ack_timeout ? (uint8_t)(conn->ack_timeout - 1) : 0,
			     VB_CM_MAX_EXPONENT);
}

/* cm.c */
/* vb_cm_may_send - whether the message has its place in the connection's state. */
bool vb_cm_may_send(const struct vb_cm_conn *conn, enum vb_cm_attr attr);

/* conn.c */
/* vb_cm_conn_new - one of its own local ID. NULL: no memory, or too many. */
struct vb_cm_conn *vb_cm_conn_new(struct vb_cm *cm, void *user);
/* vb_cm_conn_free - takes it out of everything. */
void vb_cm_conn_free(struct vb_cm_conn *conn);
/* vb_cm_conn_move - into another state, with the deadline that the state has. An object without
 * owner that becomes CLOSED is freed: the caller touches it no more. */
void vb_cm_conn_move(struct vb_cm_conn *conn, enum vb_cm_state state, uint64_t now_ns);
/* vb_cm_conn_close - to CLOSED. */
void vb_cm_conn_close(struct vb_cm_conn *conn);
/* vb_cm_conn_know_peer - by REQ or REP: who it is, and its queue pair. */
void vb_cm_conn_know_peer(struct vb_cm_conn *conn, uint64_t guid, uint32_t remote_id, uint32_t qpn);
/* vb_cm_conn_know_requester - by SIDR_REQ; conn->path is known. */
void vb_cm_conn_know_requester(struct vb_cm_conn *conn, uint32_t request_id);
/* vb_cm_conn_end_all - as the manager ends: tells each peer, frees all. */
void vb_cm_conn_end_all(struct vb_cm *cm);
/* vb_cm_find_local - one that is alive (neither IDLE nor CLOSED), or NULL. */
struct vb_cm_conn *vb_cm_find_local(struct vb_cm *cm, uint32_t local_id);
/* vb_cm_find_pair - as vb_cm_find_local, where remote_id is its peer's. */
struct vb_cm_conn *vb_cm_find_pair(struct vb_cm *cm, uint32_t local_id, uint32_t remote_id);
struct vb_cm_conn *vb_cm_find_remote_id(struct vb_cm *cm, uint64_t guid, uint32_t id);
struct vb_cm_conn *vb_cm_find_remote_qp(struct vb_cm *cm, uint64_t guid, uint32_t qpn);
struct vb_cm_conn *vb_cm_find_sidr(struct vb_cm *cm, const struct vb_cm_rx *rx);

/* timers.c */
void vb_cm_timer_set(struct vb_cm_conn *conn, uint64_t deadline_ns);
static inline uint64_t vb_cm_timer(const struct vb_cm_conn *conn)
{
	return vb_heap_holds(&conn->timer) ? conn->timer.key : VB_CM_NEVER;
}
/* vb_cm_ask_again - nobody listens there: true, and conn asks once more in a moment, or false when
 * it has asked often enough. */
bool vb_cm_ask_again(struct vb_cm_conn *conn, uint64_t now_ns);

/* listener.c */
struct vb_cm_listener *vb_cm_find_listener(struct vb_cm *cm, uint64_t service_id,
					   const uint8_t *private_data, size_t len);

/* message.c */
/* vb_cm_begin - a message of this connection with nothing but its header and IDs. */
struct vb_cm_message vb_cm_begin(const struct vb_cm_conn *conn, enum vb_cm_attr attr, uint64_t tid);
/* vb_cm_write - puts it into conn->sent. 0, or -EMSGSIZE: too much private data or ARI; then
 * nothing has changed. */
int vb_cm_write(struct vb_cm_conn *conn, const struct vb_cm_message *message) VB_MUST_USE;
/* vb_cm_send_written - the message in conn->sent. */
void vb_cm_send_written(struct vb_cm_conn *conn);
/* vb_cm_has_written - whether that message is in conn->sent. */
bool vb_cm_has_written(const struct vb_cm_conn *conn, enum vb_cm_attr attr);
/* vb_cm_send_once - a message that nobody will have to repeat. */
void vb_cm_send_once(struct vb_cm *cm, const struct vb_cm_path *to,
		     const struct vb_cm_message *message);
/* vb_cm_reply - a message of nobody's to who sent rx: with its transaction and its IDs. */
struct vb_cm_message vb_cm_reply(const struct vb_cm_rx *rx, enum vb_cm_attr attr);
/* vb_cm_tell - an event to the program that owns conn. False: it refuses. */
bool vb_cm_tell(struct vb_cm_conn *conn, struct vb_cm_event *event);
/* vb_cm_tell_plain - one that says nothing but its type, and the private data of rx unless NULL. */
void vb_cm_tell_plain(struct vb_cm_conn *conn, enum vb_cm_event_type type,
		      const struct vb_cm_rx *rx);

/* rej.c */
/* vb_cm_reject - says so to who sent rx, in nobody's name. */
void vb_cm_reject(struct vb_cm *cm, const struct vb_cm_rx *rx, enum vb_cm_about about,
		  uint16_t reason);
/* vb_cm_send_last_rej - from a connection that ends, or that has ended. */
void vb_cm_send_last_rej(struct vb_cm_conn *conn, uint16_t reason);
/* vb_cm_reject_stale - rx speaks of a queue pair that old, a connection of ours, is connected to:
 * refuses it, and asks whether old still stands. */
void vb_cm_reject_stale(struct vb_cm *cm, const struct vb_cm_rx *rx, enum vb_cm_about about,
			struct vb_cm_conn *old);
/* mra.c */
/* vb_cm_mra_by_itself - a duplicate came while the program decides. */
void vb_cm_mra_by_itself(struct vb_cm_conn *conn, uint64_t now_ns);
/* dreq.c */
/* vb_cm_send_last_dreq, vb_cm_send_last_drep - from a connection that ends. */
void vb_cm_send_last_dreq(struct vb_cm_conn *conn);
void vb_cm_send_last_drep(struct vb_cm_conn *conn);
/* sidr.c */
void vb_cm_refuse_sidr(struct vb_cm_conn *conn);

/* What arrives: how the connection it is for is found, and what is done with it. NULL: nothing. */
struct vb_cm_conn *vb_cm_req_find(struct vb_cm *cm, const struct vb_cm_rx *rx);
void vb_cm_req_new(struct vb_cm *cm, const struct vb_cm_rx *rx);
void vb_cm_req_again(struct vb_cm_conn *conn, const struct vb_cm_rx *rx);
struct vb_cm_conn *vb_cm_mra_find(struct vb_cm *cm, const struct vb_cm_rx *rx);
void vb_cm_mra_take(struct vb_cm_conn *conn, const struct vb_cm_rx *rx);
struct vb_cm_conn *vb_cm_rej_find(struct vb_cm *cm, const struct vb_cm_rx *rx);
void vb_cm_rej_take(struct vb_cm_conn *conn, const struct vb_cm_rx *rx);
struct vb_cm_conn *vb_cm_rep_find(struct vb_cm *cm, const struct vb_cm_rx *rx);
void vb_cm_rep_take(struct vb_cm_conn *conn, const struct vb_cm_rx *rx);
void vb_cm_rep_again(struct vb_cm_conn *conn, const struct vb_cm_rx *rx);
void vb_cm_rep_stranger(struct vb_cm *cm, const struct vb_cm_rx *rx);
void vb_cm_rtu_take(struct vb_cm_conn *conn, const struct vb_cm_rx *rx);
void vb_cm_dreq_take(struct vb_cm_conn *conn, const struct vb_cm_rx *rx);
void vb_cm_dreq_again(struct vb_cm_conn *conn, const struct vb_cm_rx *rx);
void vb_cm_dreq_stranger(struct vb_cm *cm, const struct vb_cm_rx *rx);
void vb_cm_drep_take(struct vb_cm_conn *conn, const struct vb_cm_rx *rx);
void vb_cm_sidr_req_new(struct vb_cm *cm, const struct vb_cm_rx *rx);
void vb_cm_sidr_req_again(struct vb_cm_conn *conn, const struct vb_cm_rx *rx);
struct vb_cm_conn *vb_cm_sidr_rep_find(struct vb_cm *cm, const struct vb_cm_rx *rx);
void vb_cm_sidr_rep_take(struct vb_cm_conn *conn, const struct vb_cm_rx *rx);

#endif
