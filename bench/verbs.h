/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs.h - what our own verbs programs here have in common: a device, and RC queue pairs made and
 * connected by hand. Ordinary verbs: they run on any device. What fails ends the program.
 */
#ifndef BENCH_VERBS_H
#define BENCH_VERBS_H

#include <infiniband/verbs.h>

struct bench_device {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	union ibv_gid gid; /* an IP address */
};

/* bench_die - says what did not work, with errno, and exits. */
_Noreturn void bench_die(const char *what);

/* bench_now - seconds of the monotonic clock. */
double bench_now(void);

/* bench_open - the first device, with a completion queue of cqes entries and its channel. */
void bench_open(struct bench_device *device, int cqes);
void bench_close(struct bench_device *device);

/* bench_create_qp - RC; receives come from srq, or without one from a queue of one request. */
struct ibv_qp *bench_create_qp(struct bench_device *device, uint32_t send_requests,
			       struct ibv_srq *srq);

/* bench_connect_qp - from RESET to RTS, connected to queue pair peer at gid. */
void bench_connect_qp(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid);

#endif
