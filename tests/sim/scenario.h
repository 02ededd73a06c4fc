/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scenario.h - two nodes, one connection, and a wire that loses exactly what the test says.
 *
 * The wire is infinitely fast and takes SCENARIO_DELAY_NS; a node runs at once. So every packet has
 * a time that arithmetic gives. Each packet that a node sends is written down; rules say which are
 * lost.
 */
#ifndef VB_TESTS_SIM_SCENARIO_H
#define VB_TESTS_SIM_SCENARIO_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/nic.h"
#include "core/transport.h"
#include "sim/node.h"

#define SCENARIO_DELAY_NS 5000u
#define SCENARIO_RTT_NS (2 * SCENARIO_DELAY_NS)
#define SCENARIO_BYTES (256u << 10)
#define SCENARIO_SEEN 4096
#define SCENARIO_CQES 256
#define SCENARIO_RULES 8
#define SCENARIO_EVENTS 32
#define SCENARIO_PSN 0xfffffeu /* of both sides' first packet: the numbers wrap soon */
#define A 0
#define B 1

struct scenario_options {
	enum vb_qp_type type; /* 0: RC */
	enum vb_mtu mtu;      /* 0: 1024 */
	uint8_t timeout;      /* 0: 14 */
	uint8_t retry_cnt;    /* as given */
	uint8_t rnr_retry, min_rnr_timer;
	uint8_t max_rd_atomic, max_dest_rd_atomic; /* 0: 16; NO_RD_ATOMIC: 0 */
	uint32_t access;			   /* 0: all remote rights; NO_ACCESS: none */
	uint32_t window;			   /* of the path */
	uint32_t segment;			   /* not 0: the path has packets of its own size */
	uint32_t cqes;				   /* 0: plenty */
	bool srq;	    /* receive requests of both sides go to one SRQ a node */
	bool xrc;	    /* A is the initiator of an XRC connection, B the target */
	bool not_signalled; /* sq_sig_all is off */
};
#define NO_RD_ATOMIC 0xff
#define NO_ACCESS UINT32_MAX

/* A packet that was sent. */
struct seen {
	uint64_t at_ns;
	int from;
	enum vb_operation operation;
	struct vb_headers h;
	uint32_t bytes;
	bool lost;
};

/* The packets number `first` to `first + count - 1` of this kind from this node. */
struct rule {
	int from;
	int operation; /* enum vb_operation, -1: any */
	uint32_t first, count;
	enum vb_verdict verdict;
	uint32_t met;
};

struct scenario {
	struct vb_net net;
	struct vb_pd *pd[2];
	struct vb_cq *cq[2];
	struct vb_srq *srq[2];
	struct vb_xrcd *xrcd; /* xrc: at B */
	struct vb_qp *qp[2];
	struct vb_mr *mr[2]; /* all rights, SCENARIO_BYTES at memory */
	struct vb_ah *ah[2];
	uint8_t *memory[2];
	struct seen seen[SCENARIO_SEEN];
	uint32_t seen_count;
	struct rule rule[SCENARIO_RULES];
	uint32_t rule_count;
	struct vb_cqe cqe[2][SCENARIO_CQES];
	uint32_t cqe_count[2];
	enum vb_event_type event[2][SCENARIO_EVENTS];
	uint32_t event_count[2], cq_events[2];
};

/* scenario_begin - both sides in RTS. Free with scenario_end. */
struct scenario *scenario_begin(const struct scenario_options *options);
void scenario_end(struct scenario *s);
/* scenario_connect - one side from RESET to RTS, as scenario_begin does; _to: with any peer. */
void scenario_connect(struct scenario *s, int at, const struct scenario_options *options);
void scenario_connect_to(struct scenario *s, int at, int peer,
			 const struct scenario_options *options);
void scenario_destroy_qp(struct scenario *s, int at);
/* scenario_rule - what becomes of packets number first (from 0) to first + count - 1 of this kind.
 */
void scenario_rule(struct scenario *s, int from, int operation, uint32_t first, uint32_t count,
		   enum vb_verdict verdict);

/* scenario_wr - a request for length bytes at offset 0x1000 of the own memory, to or from offset
 * 0x8000 of the peer's; sge is the caller's. */
struct vb_send_wr scenario_wr(struct scenario *s, int from, enum vb_wr_opcode opcode,
			      uint64_t wr_id, uint32_t length, struct vb_sge *sge);
/* scenario_post - posts it, signalled; it must be taken. */
void scenario_post(struct scenario *s, int from, const struct vb_send_wr *wr);
/* scenario_send - scenario_wr and scenario_post in one. */
void scenario_send(struct scenario *s, int from, enum vb_wr_opcode opcode, uint64_t wr_id,
		   uint32_t length);
/* scenario_recv - a receive request of length bytes at offset 0x20000 of the node's memory. */
void scenario_recv(struct scenario *s, int at, uint64_t wr_id, uint32_t length);
void scenario_modify(struct scenario *s, int at, enum vb_qp_state state);

/* scenario_run - until nothing is left to happen, or until the time. Then polls both CQs. */
void scenario_run(struct scenario *s);
void scenario_run_until(struct scenario *s, uint64_t at_ns);

/* scenario_inject - the node gets this packet now, without any wire; it does not run yet. src NULL:
 * the peer's. */
void scenario_inject(struct scenario *s, int to, const struct vb_headers *h, const void *payload,
		     uint32_t bytes, const struct in6_addr *src);

/* scenario_count - packets of this kind that the node sent. */
uint32_t scenario_count(const struct scenario *s, int from, int operation);
/* scenario_nth - the n-th (from 0) of them; there must be so many. */
const struct seen *scenario_nth(const struct scenario *s, int from, int operation, uint32_t n);
/* scenario_expect - the next completion of the node is this one. Returns it. */
const struct vb_cqe *scenario_expect(struct scenario *s, int at, uint32_t index, uint64_t wr_id,
				     enum vb_status status);
bool scenario_has_event(const struct scenario *s, int at, enum vb_event_type type);
/* scenario_timeout - 4.096 us * 2^exponent in nanoseconds. */
uint64_t scenario_timeout(uint8_t exponent);

#define LOCAL_OFFSET 0x1000u
#define REMOTE_OFFSET 0x8000u
#define RECV_OFFSET 0x20000u

#endif
