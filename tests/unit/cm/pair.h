/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pair.h - two managers and the wire between them, one message at a time, for tests of src/cm.
 *
 * What a side sends waits in one queue, in order; a test delivers, loses, repeats or looks at it.
 * Events are kept in order per side, with a copy of what they said.
 */
#ifndef VB_TESTS_CM_PAIR_H
#define VB_TESTS_CM_PAIR_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cm/cm.h"
#include "wire/cm_message.h"

#define PAIR_QUEUE 64
#define PAIR_EVENTS 64
#define SECOND 1000000000ull
#define SERVICE 0x01061c06ull
/* The usual timeouts of the RDMA CM: 4.3 s to answer, half a second of packet life and less. */
#define CM_TIMEOUT 20
#define ACK_TIMEOUT 19
#define T(exponent) (4096ull << (exponent))
/* There and back, and the answer; and what the passive side allows for RTU. */
#define REQ_INTERVAL (2 * T(ACK_TIMEOUT - 1) + T(CM_TIMEOUT))
#define REP_INTERVAL T(CM_TIMEOUT)
#define TIMEWAIT T(ACK_TIMEOUT)
#define RETRIES 15

struct pair;

struct side {
	struct pair *pair;
	struct vb_cm *cm;
	struct in6_addr gid;
	uint64_t guid;
	unsigned int random;
	bool refuse, put_off; /* the next request */
	struct {
		enum vb_cm_event_type type;
		struct vb_cm_conn *conn;
		struct vb_cm_listener *listener;
		struct vb_cm_path path;
		union {
			struct vb_cm_req req;
			struct vb_cm_rep rep;
			struct vb_cm_rej rej;
			struct vb_cm_sidr_req sidr_req;
			struct vb_cm_sidr_rep sidr_rep;
		};
		uint8_t ari[VB_CM_REJ_ARI];
		uint8_t private_data[VB_CM_PRIVATE_MAX];
		size_t private_len;
	} events[PAIR_EVENTS];
	unsigned int event_count, event_at;
};

struct pair {
	struct side a, b; /* a connects, b listens */
	struct vb_cm_listener *listener;
	struct {
		struct side *from;
		uint8_t mad[VB_MAD_BYTES];
	} queue[PAIR_QUEUE];
	unsigned int sent, at; /* at: the first that was not delivered */
	uint64_t now;
};

static inline struct side *pair_other(struct side *side)
{
	return side == &side->pair->a ? &side->pair->b : &side->pair->a;
}

static inline void pair_send(void *env, const struct vb_cm_path *to,
			     const uint8_t mad[VB_MAD_BYTES])
{
	struct side *side = env;
	struct pair *pair = side->pair;

	assert_memory_equal(&to->ah.dgid, &pair_other(side)->gid, 16);
	assert_true(pair->sent < PAIR_QUEUE);
	pair->queue[pair->sent].from = side;
	memcpy(pair->queue[pair->sent++].mad, mad, VB_MAD_BYTES);
}

static inline bool pair_event(void *env, const struct vb_cm_event *event)
{
	struct side *side = env;
	unsigned int i = side->event_count++ % PAIR_EVENTS;

	memset(&side->events[i], 0, sizeof(side->events[i]));
	side->events[i].type = event->type;
	side->events[i].conn = event->conn;
	side->events[i].listener = event->listener;
	if (event->path)
		side->events[i].path = *event->path;
	side->events[i].private_len = event->private_data_len;
	if (event->private_data)
		memcpy(side->events[i].private_data, event->private_data, event->private_data_len);
	switch (event->type) {
	case VB_CM_REQ_RECEIVED:
		side->events[i].req = *event->req;
		break;
	case VB_CM_REP_RECEIVED:
		side->events[i].rep = *event->rep;
		break;
	case VB_CM_REJ_RECEIVED:
		side->events[i].rej = *event->rej;
		if (event->rej->ari)
			memcpy(side->events[i].ari, event->rej->ari, event->rej->ari_len);
		break;
	case VB_CM_SIDR_REQ_RECEIVED:
		side->events[i].sidr_req = *event->sidr_req;
		break;
	case VB_CM_SIDR_REP_RECEIVED:
		side->events[i].sidr_rep = *event->sidr_rep;
		break;
	case VB_CM_REQ_FAILED:
	case VB_CM_REP_FAILED:
	case VB_CM_ESTABLISHED:
	case VB_CM_DREQ_RECEIVED:
	case VB_CM_DREP_RECEIVED:
	case VB_CM_DREQ_FAILED:
	case VB_CM_TIMEWAIT_EXIT:
	case VB_CM_MRA_RECEIVED:
	case VB_CM_SIDR_FAILED:
		break;
	}
	if (side->put_off) {
		side->put_off = false;
		*event->later = true;
		return false;
	}
	if (side->refuse) {
		side->refuse = false;
		return false;
	}
	return true;
}

static inline uint32_t pair_random(void *env)
{
	struct side *side = env;

	side->random = side->random * 1103515245u + 12345u;
	return side->random ^ side->random >> 15;
}

static uint8_t pair_insist; /* of both sides' configuration */

static inline void side_init(struct pair *pair, struct side *side, uint8_t number)
{
	static const struct vb_cm_ops ops = {pair_send, pair_event, pair_random};
	const struct vb_cm_config config = {
		.ca_guid = 0x0200000000000000ull | number,
		.id_base = (uint32_t)number << 22,
		.id_bits = 22,
		.insist = pair_insist,
	};

	side->pair = pair;
	side->guid = config.ca_guid;
	side->random = number;
	side->gid =
		(struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = number}};
	side->cm = vb_cm_create(&ops, side, &config);
	assert_non_null(side->cm);
}

static inline void pair_init(struct pair *pair)
{
	memset(pair, 0, sizeof(*pair));
	pair->now = SECOND;
	side_init(pair, &pair->a, 1);
	side_init(pair, &pair->b, 2);
	assert_int_equal(vb_cm_listen(pair->b.cm, SERVICE, NULL, pair, &pair->listener), 0);
}

static inline void pair_finish(struct pair *pair)
{
	vb_cm_destroy(pair->a.cm);
	vb_cm_destroy(pair->b.cm);
}

static inline struct vb_cm_path pair_path_to(const struct side *to)
{
	return (struct vb_cm_path){.ah = {.dgid = to->gid, .hop_limit = 64, .is_global = true}};
}

/* pair_give - any bytes to that side, as if from the other. */
static inline void pair_give(struct side *to, const uint8_t *mad)
{
	struct vb_cm_path from = pair_path_to(pair_other(to));

	vb_cm_rx(to->cm, &from, mad, VB_MAD_BYTES, to->pair->now);
}

static inline struct vb_cm_message pair_decode(const uint8_t *mad)
{
	struct vb_cm_message m;

	assert_int_equal(vb_cm_message_decode(&m, mad, VB_MAD_BYTES), 0);
	return m;
}

/* pair_next - looks at the next message on the wire, which must be of that kind and from there. */
static inline struct vb_cm_message pair_next(struct pair *pair, struct side *from,
					     enum vb_cm_attr attr)
{
	struct vb_cm_message m;

	assert_true(pair->at < pair->sent);
	m = pair_decode(pair->queue[pair->at].mad);
	assert_int_equal(m.mad.attr_id, attr);
	assert_ptr_equal(pair->queue[pair->at].from, from);
	return m;
}

/* pair_lose - the next message, of that kind, from there. */
static inline const uint8_t *pair_lose(struct pair *pair, struct side *from, enum vb_cm_attr attr)
{
	pair_next(pair, from, attr);
	return pair->queue[pair->at++].mad;
}

static inline const uint8_t *pair_deliver(struct pair *pair, struct side *from,
					  enum vb_cm_attr attr)
{
	const uint8_t *mad = pair_lose(pair, from, attr);

	pair_give(pair_other(from), mad);
	return mad;
}

static inline void pair_assert_silence(const struct pair *pair)
{
	assert_int_equal(pair->at, pair->sent);
}

/* pair_event_of - the next event of that side, which must be of that type; its index. */
static inline unsigned int pair_event_of(struct side *side, enum vb_cm_event_type type)
{
	unsigned int i = side->event_at++ % PAIR_EVENTS;

	assert_true(side->event_at <= side->event_count);
	assert_int_equal(side->events[i].type, type);
	return i;
}

static inline void pair_assert_no_event(const struct side *side)
{
	assert_int_equal(side->event_at, side->event_count);
}

/* pair_run_after - to the next time at which that side wants to run; it must be in that many
 * nanoseconds. */
static inline void pair_run_after(struct side *side, uint64_t ns)
{
	assert_int_equal(vb_cm_deadline(side->cm), side->pair->now + ns);
	side->pair->now += ns;
	vb_cm_run(side->cm, side->pair->now - 1); /* too early: nothing */
	vb_cm_run(side->cm, side->pair->now);
}

static inline struct vb_cm_req pair_req(struct pair *pair)
{
	return (struct vb_cm_req){
		.service_id = SERVICE,
		.qpn = 0x101,
		.psn = 0xabcdef,
		.transport = VB_CM_RC,
		.responder_resources = 1,
		.initiator_depth = 2,
		.retry_count = 7,
		.rnr_retry_count = 6,
		.pkey = 0xffff,
		.path_mtu = 1024,
		.ack_timeout = ACK_TIMEOUT,
		.remote_cm_timeout = CM_TIMEOUT,
		.local_cm_timeout = CM_TIMEOUT,
		.max_cm_retries = RETRIES,
		.sgid = pair->a.gid,
		.dgid = pair->b.gid,
		.hop_limit = 64,
	};
}

static inline struct vb_cm_rep pair_rep(void)
{
	return (struct vb_cm_rep){
		.qpn = 0x202,
		.psn = 0x123456,
		.responder_resources = 2,
		.initiator_depth = 1,
		.rnr_retry_count = 5,
		.target_ack_delay = 15,
		.failover_accepted = 1,
	};
}

/* pair_connect - a sends REQ. */
static inline struct vb_cm_conn *pair_connect(struct pair *pair)
{
	struct vb_cm_conn *conn = vb_cm_conn_create(pair->a.cm, NULL);
	struct vb_cm_path to = pair_path_to(&pair->b);
	struct vb_cm_req req = pair_req(pair);

	assert_non_null(conn);
	assert_int_equal(vb_cm_send_req(conn, &to, &req, pair->now), 0);
	return conn;
}

/* pair_requested - ... and b has it. */
static inline struct vb_cm_conn *pair_requested(struct pair *pair, struct vb_cm_conn **a)
{
	*a = pair_connect(pair);
	pair_deliver(pair, &pair->a, VB_CM_ATTR_REQ);
	return pair->b.events[pair_event_of(&pair->b, VB_CM_REQ_RECEIVED)].conn;
}

static inline struct vb_cm_conn *pair_replied(struct pair *pair, struct vb_cm_conn **a)
{
	struct vb_cm_conn *b = pair_requested(pair, a);
	struct vb_cm_rep rep = pair_rep();

	assert_int_equal(vb_cm_send_rep(b, &rep, pair->now), 0);
	return b;
}

static inline struct vb_cm_conn *pair_accepted(struct pair *pair, struct vb_cm_conn **a)
{
	struct vb_cm_conn *b = pair_replied(pair, a);

	pair_deliver(pair, &pair->b, VB_CM_ATTR_REP);
	pair_event_of(&pair->a, VB_CM_REP_RECEIVED);
	return b;
}

static inline struct vb_cm_conn *pair_established(struct pair *pair, struct vb_cm_conn **a)
{
	struct vb_cm_conn *b = pair_accepted(pair, a);

	assert_int_equal(vb_cm_send_rtu(*a, NULL, 0, pair->now), 0);
	pair_deliver(pair, &pair->a, VB_CM_ATTR_RTU);
	pair_event_of(&pair->b, VB_CM_ESTABLISHED);
	return b;
}

/* pair_assert_empty - no object of either side is left, and nothing waits. */
static inline void pair_assert_empty(const struct pair *pair)
{
	const struct side *sides[] = {&pair->a, &pair->b};

	for (unsigned int i = 0; i < 2; i++) {
		struct vb_cm_counters counters;

		vb_cm_read_counters(sides[i]->cm, &counters);
		assert_int_equal(counters.connections, 0);
		assert_int_equal(counters.timewaits, 0);
		assert_true(vb_cm_deadline(sides[i]->cm) == UINT64_MAX);
	}
}

/* pair_let_go - both programs destroy what they have; timewait passes; nothing is left. */
static inline void pair_let_go(struct pair *pair, struct vb_cm_conn *a, struct vb_cm_conn *b)
{
	vb_cm_conn_destroy(a, pair->now);
	vb_cm_conn_destroy(b, pair->now);
	pair->at = pair->sent;
	pair->now += 100 * SECOND;
	vb_cm_run(pair->a.cm, pair->now);
	vb_cm_run(pair->b.cm, pair->now);
	pair_assert_empty(pair);
}

#endif
