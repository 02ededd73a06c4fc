/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * edge.h - two connected ends for the tests of situations that broke verbs stacks.
 *
 * Both ends live in one process and use only the public verbs API. VB_EDGE_TOPOLOGY says how they
 * are joined: "local" (one device: shared memory) or "wire" (two virtual hosts: RoCEv2 on
 * loopback). Every helper fails the running cmocka test when the library refuses something it must
 * accept.
 */
#ifndef VB_TESTS_EDGE_H
#define VB_TESTS_EDGE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>

#include <cmocka.h>
#include <infiniband/verbs.h>

#define EDGE_BUFFER (1u << 20)
#define EDGE_QKEY 0x11223344u /* of every UD queue pair that edge.c brings up */
#define EDGE_ALL_ACCESS                                                                            \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)

struct edge_options {
	enum ibv_qp_type type;	/* 0: RC */
	struct ibv_qp_cap cap;	/* zeros: 16 requests, 4 SGEs, 64 bytes inline */
	bool cap_is_exact;	/* take cap as it stands, zeros too */
	bool srq_at_b;		/* b receives from an SRQ */
	bool tm_at_b;		/* that SRQ is one of tag matching, and completes into tm_cq */
	bool srq_in_own_pd;	/* that SRQ and its buffers live in a PD of their own */
	int qp_access;		/* -1: none; 0: all */
	int max_dest_rd_atomic; /* -1: none; 0: 4 */
	int max_rd_atomic;	/* -1: none; 0: 4 */
	uint8_t timeout;	/* 0: 14 */
	int retry_cnt;		/* -1: none; 0: 7 */
	int rnr_retry;		/* -1: none; 0: 7 */
	uint8_t min_rnr_timer;	/* 0: 1 (0.01 ms), unless rnr_timer_is_exact */
	bool rnr_timer_is_exact;
	enum ibv_mtu mtu;    /* 0: 1024 */
	int gid_index;	     /* 0: index 1 (IPv4); -1: index 0 */
	uint32_t cq_entries; /* 0: 256 */
	bool leave_in_rtr;   /* b stays in RTR */
	uint64_t send_ops;   /* not 0: the QPs have the ibv_wr_* functions for these */
};

struct edge_end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_cq_ex *tm_cq;
	struct ibv_pd *srq_pd; /* pd, or its own */
	struct ibv_mr *srq_mr;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buffer;   /* EDGE_BUFFER bytes, page aligned */
	struct ibv_ah *ah; /* UD: to the other end */
	union ibv_gid gid;
};

struct edge_pair {
	struct ibv_device **list;
	struct edge_end a, b;
	struct edge_options options;
};

/* edge_open - both ends, connected, in RTS. */
void edge_open(struct edge_pair *pair, const struct edge_options *options);
void edge_close(struct edge_pair *pair);
/* edge_reconnect - both QPs through RESET back to RTS, after an error. */
void edge_reconnect(struct edge_pair *pair);

/* edge_connect_qp - a queue pair beside the pair's, in RESET, to RTS: its peer lies at gid. Both
 * ends are to be connected so. */
void edge_connect_qp(struct ibv_qp *qp, const struct ibv_qp *peer, const union ibv_gid *gid,
		     unsigned int access);

/* edge_wait - polls until a completion comes (20 s at most) and returns it. */
struct ibv_wc edge_wait(struct ibv_cq *cq);
/* edge_expect - edge_wait with the given wr_id and status. */
struct ibv_wc edge_expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status);
/* edge_expect_none - nothing is there after a few milliseconds of polling. */
void edge_expect_none(struct ibv_cq *cq);

void edge_post_recv(struct edge_end *end, uint64_t wr_id, uint32_t offset, uint32_t length);
/* edge_post - a signalled request of one SGE [offset, offset + length) of from's buffer, at the
 * same place of to's where it has a remote address; returns what ibv_post_send returned. */
int edge_post(struct edge_end *from, const struct edge_end *to, uint64_t wr_id,
	      enum ibv_wr_opcode opcode, uint32_t offset, uint32_t length);
/* edge_fill, edge_is_filled - with bytes that differ from place to place, and from seed to seed. */
void edge_fill(uint8_t *at, size_t bytes, uint32_t seed);
bool edge_is_filled(const uint8_t *at, size_t bytes, uint32_t seed);
double edge_seconds(void);
enum ibv_qp_state edge_state(struct ibv_qp *qp);

#endif
