/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * conn.c - a connection: its identity, its state, where it can be found, its end.
 *
 * Communication IDs are drawn at random, so that a message which is late by a connection's lifetime
 * finds nobody, and an ID is free again only when its object is gone, which is after timewait.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cm/cm_private.h"
#include "wire/cursor.h"

/* Half of the IDs are free at least: two draws find one on average, so many fail for nobody. */
#define ID_DRAWS 64

static uint64_t hash_local(const struct vb_cm *cm, uint32_t local_id)
{
	return vb_cm_hash(cm->secret, local_id, 0);
}

static uint64_t hash_remote(const struct vb_cm *cm, uint64_t guid, uint32_t number)
{
	return vb_cm_hash(cm->secret, guid, number);
}

static uint64_t hash_sidr(const struct vb_cm *cm, const struct in6_addr *gid, uint32_t request_id)
{
	uint64_t first = vb_cm_hash(cm->secret, vb_load_be64(gid->s6_addr), request_id);

	return vb_cm_hash(cm->secret, first, vb_load_be64(gid->s6_addr + 8));
}

static struct vb_cm_conn *find_id(struct vb_cm *cm, uint32_t local_id)
{
	struct vb_cm_entry *entry = vb_cm_table_first(&cm->local_ids, hash_local(cm, local_id));

	for (; entry; entry = vb_cm_table_next(entry)) {
		struct vb_cm_conn *conn = vb_container_of(entry, struct vb_cm_conn, by_local);

		if (conn->local_id == local_id)
			return conn;
	}
	return NULL;
}

struct vb_cm_conn *vb_cm_find_local(struct vb_cm *cm, uint32_t local_id)
{
	struct vb_cm_conn *conn = find_id(cm, local_id);

	return conn && conn->state != VB_CMS_IDLE && conn->state != VB_CMS_CLOSED ? conn : NULL;
}

struct vb_cm_conn *vb_cm_find_pair(struct vb_cm *cm, uint32_t local_id, uint32_t remote_id)
{
	struct vb_cm_conn *conn = vb_cm_find_local(cm, local_id);

	return conn && conn->remote_id == remote_id ? conn : NULL;
}

struct vb_cm_conn *vb_cm_find_remote_id(struct vb_cm *cm, uint64_t guid, uint32_t id)
{
	struct vb_cm_entry *entry = vb_cm_table_first(&cm->remote_ids, hash_remote(cm, guid, id));

	for (; entry; entry = vb_cm_table_next(entry)) {
		struct vb_cm_conn *conn = vb_container_of(entry, struct vb_cm_conn, by_remote);

		if (conn->remote_guid == guid && conn->remote_id == id)
			return conn;
	}
	return NULL;
}

struct vb_cm_conn *vb_cm_find_remote_qp(struct vb_cm *cm, uint64_t guid, uint32_t qpn)
{
	struct vb_cm_entry *entry = vb_cm_table_first(&cm->remote_qps, hash_remote(cm, guid, qpn));

	for (; entry; entry = vb_cm_table_next(entry)) {
		struct vb_cm_conn *conn = vb_container_of(entry, struct vb_cm_conn, by_qpn);

		if (conn->remote_guid == guid && conn->remote_qpn == qpn)
			return conn;
	}
	return NULL;
}

struct vb_cm_conn *vb_cm_find_sidr(struct vb_cm *cm, const struct vb_cm_rx *rx)
{
	const struct in6_addr *gid = &rx->from->ah.dgid;
	const struct vb_cm_message *m = &rx->message;
	struct vb_cm_entry *entry =
		vb_cm_table_first(&cm->sidr_requests, hash_sidr(cm, gid, m->local_id));

	for (; entry; entry = vb_cm_table_next(entry)) {
		struct vb_cm_conn *conn = vb_container_of(entry, struct vb_cm_conn, by_remote);

		if (conn->remote_id == m->local_id && conn->tid == m->mad.tid &&
		    conn->service_id == m->sidr_req.service_id &&
		    memcmp(&conn->path.ah.dgid, gid, sizeof(*gid)) == 0)
			return conn;
	}
	return NULL;
}

/* 0: none was found. */
static uint32_t draw_id(struct vb_cm *cm)
{
	uint32_t mask = (1u << cm->config.id_bits) - 1;

	for (int i = 0; i < ID_DRAWS; i++) {
		uint32_t number = cm->ops.random(cm->env) & mask;
		uint32_t id = cm->config.id_base | number;

		if (number && !find_id(cm, id))
			return id;
	}
	return 0;
}

struct vb_cm_conn *vb_cm_conn_new(struct vb_cm *cm, void *user)
{
	struct vb_cm_conn *conn;
	uint32_t id;

	if (cm->conn_count >= cm->max_connections ||
	    vb_heap_reserve(&cm->timers, cm->conn_count + 1))
		return NULL;
	id = draw_id(cm);
	conn = id ? calloc(1, sizeof(*conn)) : NULL;
	if (!conn)
		return NULL;
	conn->cm = cm;
	conn->user = user;
	conn->owned = true;
	conn->local_id = id;
	vb_heap_item_init(&conn->timer);
	conn->tid = (uint64_t)cm->ops.random(cm->env) << 32 | id;
	vb_cm_table_add(&cm->local_ids, &conn->by_local, hash_local(cm, id));
	vb_list_append(&cm->conns, &conn->link);
	cm->conn_count++;
	cm->counters.connections++;
	return conn;
}

static void forget_peer(struct vb_cm_conn *conn)
{
	bool sidr = conn->state == VB_CMS_SIDR_REQ_RCVD || conn->state == VB_CMS_SIDR_REP_SENT;

	vb_cm_table_remove(sidr ? &conn->cm->sidr_requests : &conn->cm->remote_ids,
			   &conn->by_remote);
	vb_cm_table_remove(&conn->cm->remote_qps, &conn->by_qpn);
}

void vb_cm_conn_free(struct vb_cm_conn *conn)
{
	struct vb_cm *cm = conn->cm;

	forget_peer(conn);
	vb_cm_timer_set(conn, VB_CM_NEVER);
	vb_cm_table_remove(&cm->local_ids, &conn->by_local);
	vb_list_remove(&conn->link);
	cm->conn_count--;
	if (conn->owned)
		cm->counters.connections--;
	else
		cm->counters.timewaits--;
	free(conn);
}

static void disown(struct vb_cm_conn *conn)
{
	conn->owned = false;
	conn->user = NULL;
	conn->cm->counters.connections--;
	conn->cm->counters.timewaits++;
}

/* How long the state lasts by itself, from now on; VB_CM_NEVER: until something happens. */
static uint64_t span_of(const struct vb_cm_conn *conn)
{
	switch ((enum vb_cm_state)conn->state) {
	case VB_CMS_REQ_SENT:
	case VB_CMS_REP_SENT:
	case VB_CMS_DREQ_SENT:
	case VB_CMS_SIDR_REQ_SENT:
		return conn->interval_ns;
	case VB_CMS_TIMEWAIT:
		return vb_cm_time_ns(conn->ack_timeout, VB_CM_MAX_TIMEWAIT_EXPONENT);
	case VB_CMS_SIDR_REP_SENT:
		return conn->owned ? VB_CM_NEVER
				   : vb_cm_time_ns(VB_CM_SIDR_MEMORY_EXPONENT, VB_CM_MAX_EXPONENT);
	case VB_CMS_IDLE:
	case VB_CMS_REQ_RCVD:
	case VB_CMS_MRA_REQ_SENT:
	case VB_CMS_REP_RCVD:
	case VB_CMS_MRA_REP_SENT:
	case VB_CMS_ESTABLISHED:
	case VB_CMS_DREQ_RCVD:
	case VB_CMS_SIDR_REQ_RCVD:
	case VB_CMS_CLOSED:
		return VB_CM_NEVER;
	}
	return VB_CM_NEVER;
}

void vb_cm_conn_move(struct vb_cm_conn *conn, enum vb_cm_state state, uint64_t now_ns)
{
	uint64_t span_ns;

	if (state == VB_CMS_CLOSED)
		forget_peer(conn);
	/* Whoever uses that queue pair again has done with this connection: what of it is still
	 * under way names our own, which is in timewait. */
	if (state == VB_CMS_TIMEWAIT)
		vb_cm_table_remove(&conn->cm->remote_qps, &conn->by_qpn);
	conn->state = state;
	conn->retries_left = conn->max_retries;
	span_ns = span_of(conn);
	vb_cm_timer_set(conn, span_ns == VB_CM_NEVER ? VB_CM_NEVER : now_ns + span_ns);
	if (state == VB_CMS_CLOSED && !conn->owned)
		vb_cm_conn_free(conn);
}

void vb_cm_conn_close(struct vb_cm_conn *conn)
{
	vb_cm_conn_move(conn, VB_CMS_CLOSED, 0);
}

void vb_cm_conn_know_peer(struct vb_cm_conn *conn, uint64_t guid, uint32_t remote_id, uint32_t qpn)
{
	struct vb_cm *cm = conn->cm;

	conn->remote_guid = guid;
	conn->remote_id = remote_id;
	conn->remote_qpn = qpn;
	vb_cm_table_add(&cm->remote_ids, &conn->by_remote, hash_remote(cm, guid, remote_id));
	vb_cm_table_add(&cm->remote_qps, &conn->by_qpn, hash_remote(cm, guid, qpn));
}

void vb_cm_conn_know_requester(struct vb_cm_conn *conn, uint32_t request_id)
{
	struct vb_cm *cm = conn->cm;

	conn->remote_id = request_id;
	vb_cm_table_add(&cm->sidr_requests, &conn->by_remote,
			hash_sidr(cm, &conn->path.ah.dgid, request_id));
}

struct vb_cm_conn *vb_cm_conn_create(struct vb_cm *cm, void *user)
{
	struct vb_cm_conn *conn = vb_cm_conn_new(cm, user);

	if (!conn)
		errno = ENOMEM;
	return conn;
}

/* Says to the peer what it must know when the program lets go; returns the state that remains. */
static enum vb_cm_state say_farewell(struct vb_cm_conn *conn)
{
	switch ((enum vb_cm_state)conn->state) {
	case VB_CMS_REQ_SENT:
		vb_cm_send_last_rej(conn, VB_CM_REJ_TIMEOUT);
		return VB_CMS_CLOSED;
	case VB_CMS_REQ_RCVD:
	case VB_CMS_MRA_REQ_SENT:
	case VB_CMS_REP_RCVD:
	case VB_CMS_MRA_REP_SENT:
		vb_cm_send_last_rej(conn, VB_CM_REJ_CONSUMER_DEFINED);
		return VB_CMS_CLOSED;
	case VB_CMS_REP_SENT:
		vb_cm_send_last_rej(conn, VB_CM_REJ_CONSUMER_DEFINED);
		return VB_CMS_TIMEWAIT;
	case VB_CMS_ESTABLISHED:
		vb_cm_send_last_dreq(conn);
		return VB_CMS_TIMEWAIT;
	case VB_CMS_DREQ_RCVD:
		vb_cm_send_last_drep(conn);
		return VB_CMS_TIMEWAIT;
	case VB_CMS_DREQ_SENT:
	case VB_CMS_TIMEWAIT:
		return VB_CMS_TIMEWAIT;
	case VB_CMS_SIDR_REQ_RCVD:
		vb_cm_refuse_sidr(conn);
		return VB_CMS_SIDR_REP_SENT;
	case VB_CMS_SIDR_REP_SENT:
		return VB_CMS_SIDR_REP_SENT;
	case VB_CMS_IDLE:
	case VB_CMS_SIDR_REQ_SENT:
	case VB_CMS_CLOSED:
		return VB_CMS_CLOSED;
	}
	return VB_CMS_CLOSED;
}

void vb_cm_conn_destroy(struct vb_cm_conn *conn, uint64_t now_ns)
{
	enum vb_cm_state state;

	if (!conn)
		return;
	state = say_farewell(conn);
	disown(conn);
	/* A timewait that has begun is not made longer. */
	if (conn->state != VB_CMS_TIMEWAIT)
		vb_cm_conn_move(conn, state, now_ns);
}

void vb_cm_conn_set_user(struct vb_cm_conn *conn, void *user)
{
	conn->user = user;
}

void *vb_cm_conn_user(const struct vb_cm_conn *conn)
{
	return conn->user;
}

/* The manager ends: the peers hear what they would hear of each connection by itself. Who was sent
 * a DREP lately is sent it again: if it was lost, nobody will be here to answer the next DREQ. */
void vb_cm_conn_end_all(struct vb_cm *cm)
{
	struct vb_list *link;

	while ((link = vb_list_pop(&cm->conns))) {
		struct vb_cm_conn *conn = vb_list_entry(link, struct vb_cm_conn, link);

		if (conn->state == VB_CMS_TIMEWAIT && vb_cm_has_written(conn, VB_CM_ATTR_DREP))
			vb_cm_send_written(conn);
		else if (conn->owned)
			say_farewell(conn);
		vb_cm_conn_free(conn);
	}
}
