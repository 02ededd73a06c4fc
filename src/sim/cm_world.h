/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm_world.h - random programs that connect over a random network, and what must come of it.
 *
 *   cm_world.c    draws network and attempts from the seed; runs, closes everything, looks for
 * rests cm_program.c  what the programs do: connect, listen, answer, disconnect, destroy, go wrong
 *   cm_checker.c  knows which event may come when, with which content
 *
 * An attempt is one program's wish to reach a service of another node: a connection or a SIDR
 * exchange. Its ends are kept until the world ends, also when the connection object is gone, so
 * that a late event is noticed. An end of the active side and those of the passive side that its
 * REQ made know each other: mostly one, several when the passive side had forgotten the first (a
 * REQ that came much too late, a program that destroyed its end). The one whose REP was taken is
 * the peer; only it may become established.
 *
 * Worlds are gentle or wild. In a gentle one the network loses a message a few times in a row at
 * most, no delay is longer than a part of the timeouts, nobody is slow without saying so (MRA), and
 * there are 15 retries: every attempt at a living peer must end in an answer, and no failure may be
 * reported. In a wild one anything goes, and what must hold is that every end comes to an end,
 * once, in time, and that nothing is left behind.
 */
#ifndef VB_SIM_CM_WORLD_H
#define VB_SIM_CM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "cm/cm.h"
#include "sim/cm_net.h"

#define VB_CM_WORLD_ENDS 640
#define VB_CM_WORLD_ATTEMPTS 24
#define VB_CM_WORLD_TRIES 3 /* more, with the same queue pair, of an end that is taken for stale   \
			     */
/* Services of a node: 0 at every address, 1 and 2 with one ID at an IPv4 and an IPv6 address; and
 * two that nobody offers: an unknown ID, an unknown address. */
#define VB_CM_SERVICES 3
#define VB_CM_NO_SERVICE 3
#define VB_CM_NO_ADDRESS 4

/* What an end knows of its own state, by what it did and was told (IBTA 12.9.7). */
enum vb_cm_stage {
	VB_CM_STAGE_IDLE,
	VB_CM_STAGE_REQ_SENT,
	VB_CM_STAGE_REQ_MRA_RCVD,
	VB_CM_STAGE_REP_RCVD,
	VB_CM_STAGE_REP_MRA_SENT,
	VB_CM_STAGE_REQ_RCVD,
	VB_CM_STAGE_REQ_MRA_SENT,
	VB_CM_STAGE_REP_SENT,
	VB_CM_STAGE_REP_MRA_RCVD,
	VB_CM_STAGE_ESTABLISHED,
	VB_CM_STAGE_DREQ_SENT,
	VB_CM_STAGE_DREQ_RCVD,
	VB_CM_STAGE_SIDR_SENT,
	VB_CM_STAGE_SIDR_RCVD,
	VB_CM_STAGE_OVER, /* its end was reported, or it said the last word */
	VB_CM_STAGE_GONE, /* destroyed by its program, or with its node */
	VB_CM_STAGES,
};

/* Private data of one message as its sender gave it. */
struct vb_cm_blob {
	bool sent;
	uint16_t length;
	uint8_t bytes[VB_CM_PRIVATE_MAX];
};

struct vb_cm_world;

/* struct vb_cm_end - one connection object of a program. */
struct vb_cm_end {
	struct vb_cm_world *world;
	struct vb_cm_net_node *node;
	uint32_t index, incarnation; /* of the node */
	struct vb_cm_conn *conn;     /* NULL: gone */
	enum vb_cm_stage stage;
	bool active, sidr;
	/* the other side */
	struct vb_cm_net_node *remote;
	uint32_t remote_incarnation;
	struct vb_cm_end *peer; /* active: whose REP came; passive: whose REQ it was */
	uint32_t passives;	/* active: how many REQ_RECEIVED it made */
	uint32_t service;
	uint32_t local_id; /* 0: no message has shown it yet */
	/* what the other side may be told because of it */
	bool met_nobody, met_refusal; /* its REQ found no listener, a refusal */
	/* parameters */
	struct vb_cm_req req;
	struct vb_cm_rep rep;
	struct vb_cm_rej rej;
	struct vb_cm_sidr_req sidr_req;
	struct vb_cm_sidr_rep sidr_rep;
	struct vb_cm_blob data[VB_CM_KINDS], ari;
	uint8_t service_timeout; /* of its MRA */
	/* habits */
	uint64_t answer_ns; /* from REQ or REP to the answer */
	uint64_t hold_ns;   /* from established to DREQ; UINT64_MAX: waits for the other */
	uint64_t drep_ns;
	bool says_mra, says_no, sees_traffic, keeps; /* keeps: destroyed only after timewait */
	uint32_t tries_left;			     /* after a refusal as stale */
	/* what has happened */
	uint32_t seen[VB_CM_SIDR_FAILED + 1]; /* events of each type */
	uint32_t sent[VB_CM_KINDS];	      /* messages of each kind, repetitions included */
	uint8_t first[VB_CM_KINDS][VB_MAD_BYTES];
	bool was_established, timewait_due, taken_for_stale;
	uint64_t since_ns; /* in this stage */
	uint64_t limit_ns; /* an answer or a failure is due; 0: not waiting */
};

struct vb_cm_service {
	struct vb_cm_listener *listener; /* NULL: nobody listens now */
	uint64_t id;
	struct vb_cm_match match; /* len 0: every address */
};

struct vb_cm_options {
	uint64_t seed;
	bool trace;
	/* A plan loses, repeats or delays exactly the messages of one rule, in a gentle world of
	 * two nodes without any other fault. */
	bool plan;
	struct vb_cm_rule rule;
};

struct vb_cm_world_stats {
	uint64_t worlds, events, virtual_ns, attempts, ends, established, rejected, failed, stale;
	uint64_t disconnected, dreq_failed, sidr_answers, sidr_failed, crashes, wrong_calls,
		refused;
	uint64_t messages, lost, duplicated, late, retries, duplicates, rule_met;
	uint64_t kinds[VB_CM_KINDS];
};

struct vb_cm_world {
	struct vb_cm_net net;
	struct vb_cm_service services[VB_CM_NODES][VB_CM_SERVICES];
	struct vb_cm_end *ends; /* VB_CM_WORLD_ENDS */
	uint32_t end_count, attempts;
	uint32_t next_qpn[VB_CM_NODES]; /* begins anew with each incarnation: numbers come back */
	struct vb_cm_options options;
	bool gentle, quiet;		   /* quiet: no crash, no destroy out of turn */
	bool closing;			   /* programs start nothing new */
	uint8_t timeout_low, timeout_high; /* exponents to draw from */
	struct vb_cm_end *calling;	   /* the end whose call is under way */
	struct vb_cm_world_stats stats;
};

/* vb_cm_world_create - memory for one world after the other. */
struct vb_cm_world *vb_cm_world_create(void);
void vb_cm_world_destroy(struct vb_cm_world *world);
/* vb_cm_world_run - one seed. False: net.sim.failure says what was wrong. */
bool vb_cm_world_run(struct vb_cm_world *world, const struct vb_cm_options *options, uint64_t *hash,
		     struct vb_cm_world_stats *stats);

/* --- among the three files --------------------------------------------------------------- */

/* vb_cm_end_create - one more end; fails the simulation when there are too many: somebody connects
 * for ever. */
struct vb_cm_end *vb_cm_end_create(struct vb_cm_world *world, struct vb_cm_net_node *node);
/* vb_cm_end_move - the only writer of a stage. */
void vb_cm_end_move(struct vb_cm_end *end, enum vb_cm_stage stage);
const char *vb_cm_stage_name(enum vb_cm_stage stage);
/* vb_cm_end_name - for messages; valid until the fourth next call. */
const char *vb_cm_end_name(const struct vb_cm_end *end);

void vb_cm_program_attempt(struct vb_cm_world *world, uint64_t at_ns);
void vb_cm_program_listen(struct vb_cm_world *world, struct vb_cm_net_node *node);
void vb_cm_program_crash(struct vb_cm_world *world, uint64_t at_ns);
/* vb_cm_program_told - an event came to the end; reacts later. False: refuses a request. */
bool vb_cm_program_told(struct vb_cm_end *end, const struct vb_cm_event *event);
/* vb_cm_program_close - ends what the programs left open; returns whether it found anything. */
bool vb_cm_program_close(struct vb_cm_world *world);
/* vb_cm_program_destroy - destroys the end's connection in whatever state it is. */
void vb_cm_program_destroy(struct vb_cm_end *end);

/* vb_cm_check_limit - the end must leave its stage before so much time has passed. */
void vb_cm_check_limit(struct vb_cm_end *end, uint64_t span_ns);
bool vb_cm_check_event(void *env, struct vb_cm_net_node *node, const struct vb_cm_event *event);
void vb_cm_check_sent(void *env, const struct vb_cm_mad *mad, enum vb_cm_fate fate);
void vb_cm_check_arrival(void *env, const struct vb_cm_mad *mad);
void vb_cm_check_node(void *env, struct vb_cm_net_node *node);
/* vb_cm_check_end - everything was closed and time has run. */
void vb_cm_check_end(struct vb_cm_world *world);

#endif
