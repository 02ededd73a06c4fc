/* SPDX-License-Identifier: BSD-2-Clause */
/* verbs.c - see verbs.h. */
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define GID_INDEX 1
#define PORT 1

_Noreturn void bench_die(const char *what)
{
	perror(what);
	exit(1);
}

double bench_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void bench_open(struct bench_device *device, int cqes)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);

	if (!list || count == 0)
		bench_die("no device");
	device->context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	if (!device->context)
		bench_die("ibv_open_device");
	device->pd = ibv_alloc_pd(device->context);
	device->channel = ibv_create_comp_channel(device->context);
	device->cq = ibv_create_cq(device->context, cqes, NULL, device->channel, 0);
	if (!device->pd || !device->channel || !device->cq)
		bench_die("protection domain, channel, completion queue");
	if (ibv_query_gid(device->context, PORT, GID_INDEX, &device->gid))
		bench_die("ibv_query_gid");
}

void bench_close(struct bench_device *device)
{
	ibv_destroy_cq(device->cq);
	ibv_destroy_comp_channel(device->channel);
	ibv_dealloc_pd(device->pd);
	ibv_close_device(device->context);
}

struct ibv_qp *bench_create_qp(struct bench_device *device, uint32_t send_requests,
			       struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = device->cq,
		.recv_cq = device->cq,
		.srq = srq,
		.cap = {.max_send_wr = send_requests,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(device->pd, &init);

	if (!qp)
		bench_die("ibv_create_qp");
	return qp;
}

void bench_connect_qp(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = PORT};

	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		bench_die("to INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = PORT,
			    .grh = {.dgid = *gid, .sgid_index = GID_INDEX, .hop_limit = 64}},
	};
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		bench_die("to RTR");
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .timeout = 14,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = 1};
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				  IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
		bench_die("to RTS");
}
