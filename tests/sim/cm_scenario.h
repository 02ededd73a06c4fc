/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm_scenario.h - two connection managers and a wire that loses exactly what the test says.
 *
 * A message takes DELAY_NS and a manager runs at its deadline, so that every message has a time
 * that arithmetic gives. Programs are the tests themselves: cm_step() lets everything that is under
 * way arrive, then the test answers. B listens; A asks.
 */
#ifndef VB_TESTS_SIM_CM_SCENARIO_H
#define VB_TESTS_SIM_CM_SCENARIO_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cm/ip.h"
#include "sim/cm_net.h"

#define A 0
#define B 1
#define DELAY_NS 5000u
#define TIMEOUT 14u /* 67 ms */
#define ACK_TIMEOUT 10u
#define RETRIES 3u
#define SERVICE vb_cm_service_id(0x0106, 7000)
#define QPN_A 0x1234u
#define QPN_B 0x5678u
#define CM_SEEN 256

/* An event, as a program was told. */
struct cm_told {
	enum vb_cm_event_type type;
	struct vb_cm_conn *conn;
	struct vb_cm_listener *listener;
	uint64_t at_ns;
	uint16_t reason; /* REJ */
	uint8_t status;	 /* SIDR_REP */
	bool has_data;
	uint8_t data[VB_CM_PRIVATE_MAX];
	size_t data_bytes;
};

/* Two nodes, what they sent and what they were told. */
struct cm_pair {
	struct vb_cm_net net;
	struct cm_told told[2][CM_SEEN];
	uint32_t told_count[2];
	struct {
		uint64_t at_ns;
		uint32_t from;
		enum vb_cm_kind kind;
		enum vb_cm_fate fate;
		uint8_t bytes[VB_MAD_BYTES];
	} sent[CM_SEEN];
	uint32_t sent_count;
	struct vb_cm_listener *listener;
	struct vb_cm_conn *conn[2]; /* the last ones that began */
	bool refuses, puts_off;
};

/* cm_begin - both up, B listens to SERVICE. */
struct cm_pair *cm_begin(void);
/* cm_end - the programs let go, time runs: nothing may be left. */
void cm_end(struct cm_pair *w);

void cm_run_until(struct cm_pair *w, uint64_t at_ns);
/* cm_step - everything that is under way arrives, and what is answered by itself as well. */
void cm_step(struct cm_pair *w);
/* cm_run - longer than everything that a manager waits for. */
void cm_run(struct cm_pair *w);
uint64_t cm_now(const struct cm_pair *w);

/* cm_sent, cm_told - how many of this kind. */
uint32_t cm_sent(const struct cm_pair *w, uint32_t from, enum vb_cm_kind kind);
uint32_t cm_told(const struct cm_pair *w, uint32_t at, enum vb_cm_event_type type);
/* cm_nth_sent - the n-th (from 0); it must be there. at_ns may be NULL. */
const uint8_t *cm_nth_sent(const struct cm_pair *w, uint32_t from, enum vb_cm_kind kind, uint32_t n,
			   uint64_t *at_ns);
/* cm_last - the last event of the node, which is this one. */
const struct cm_told *cm_last(const struct cm_pair *w, uint32_t at, enum vb_cm_event_type type);

/* cm_done - a call of this node's program succeeded. */
void cm_done(struct cm_pair *w, uint32_t at, int result);
struct vb_cm_req cm_req_of(uint64_t service_id);
/* cm_connect - A asks so; cm_ask - as usual. */
void cm_connect(struct cm_pair *w, const struct vb_cm_req *given);
void cm_ask(struct cm_pair *w);
void cm_accept(struct cm_pair *w); /* B: REP */
void cm_agree(struct cm_pair *w);  /* A: RTU */
void cm_disconnect(struct cm_pair *w, uint32_t at);
void cm_answer_dreq(struct cm_pair *w, uint32_t at);
/* cm_establish - REQ, REP, RTU. */
void cm_establish(struct cm_pair *w);
/* cm_let_go - the program destroys its connection. */
void cm_let_go(struct cm_pair *w, uint32_t at);

#endif
