/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * idle.c - what queue pairs cost that do nothing: memory for each, and processor time for all.
 *
 *      bench_idle [QUEUE_PAIRS [SECONDS]]
 *
 * Makes RC queue pairs with the smallest queues, connects them to each other in pairs, and looks at
 * the process's own memory before and after; then sleeps, with an armed completion channel, and
 * looks at its processor time. An ordinary verbs program: it runs on any device.
 */
#include <infiniband/verbs.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GID_INDEX 1
#define PORT 1

struct setting {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	union ibv_gid gid;
};

static _Noreturn void die(const char *what)
{
	perror(what);
	exit(1);
}

static void open_device(struct setting *s)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);

	if (!list || count == 0)
		die("no device");
	s->context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	if (!s->context)
		die("ibv_open_device");
	s->pd = ibv_alloc_pd(s->context);
	s->channel = ibv_create_comp_channel(s->context);
	s->cq = ibv_create_cq(s->context, 64, NULL, s->channel, 0);
	if (!s->pd || !s->channel || !s->cq)
		die("protection domain, channel, completion queue");
	if (ibv_query_gid(s->context, PORT, GID_INDEX, &s->gid) || ibv_req_notify_cq(s->cq, 0))
		die("query GID, request notification");
}

static struct ibv_qp *create(struct setting *s)
{
	struct ibv_qp_init_attr init = {
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(s->pd, &init);

	if (!qp)
		die("ibv_create_qp");
	return qp;
}

static void connect_to(struct setting *s, struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = PORT};

	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("to INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = PORT,
			    .grh = {.dgid = s->gid, .sgid_index = GID_INDEX, .hop_limit = 64}},
	};
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("to RTR");
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .timeout = 14,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = 1};
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				  IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
		die("to RTS");
}

/* connected_pair - two queue pairs, each the other's peer. */
static void connected_pair(struct setting *s, struct ibv_qp *out[2])
{
	out[0] = create(s);
	out[1] = create(s);
	connect_to(s, out[0], out[1]->qp_num);
	connect_to(s, out[1], out[0]->qp_num);
}

static long resident_bytes(void)
{
	long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	if (!file || fscanf(file, "%*d %ld", &pages) != 1)
		die("/proc/self/statm");
	fclose(file);
	return pages * sysconf(_SC_PAGESIZE);
}

static long allocated_bytes(void)
{
	struct mallinfo2 info = mallinfo2();

	return (long)(info.uordblks + info.hblkhd);
}

static double processor_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 1000;
	unsigned int seconds = argc > 2 ? (unsigned int)atoi(argv[2]) : 10;
	struct ibv_qp *warm_up[2], **qps;
	struct setting s = {0};
	long resident, allocated;
	double busy;

	count = count < 2 ? 2 : count & ~1;
	qps = calloc((size_t)count, sizeof(*qps));
	if (!qps)
		die("calloc");
	open_device(&s);
	connected_pair(&s, warm_up); /* what exists once is not a queue pair's cost */

	resident = resident_bytes();
	allocated = allocated_bytes();
	for (int i = 0; i < count; i += 2)
		connected_pair(&s, qps + i);
	printf("idle_qp_resident %ld B\n", (resident_bytes() - resident) / count);
	printf("idle_qp_allocated %ld B\n", (allocated_bytes() - allocated) / count);
	fflush(stdout);

	busy = processor_seconds();
	sleep(seconds);
	busy = processor_seconds() - busy;
	printf("idle_ticks %.0f ticks\n", busy * (double)sysconf(_SC_CLK_TCK));
	printf("idle_processor %.4f %%\n", seconds ? busy / seconds * 100 : 0);

	for (int i = 0; i < count; i++)
		ibv_destroy_qp(qps[i]);
	for (int i = 0; i < 2; i++)
		ibv_destroy_qp(warm_up[i]);
	ibv_destroy_cq(s.cq);
	ibv_destroy_comp_channel(s.channel);
	ibv_dealloc_pd(s.pd);
	ibv_close_device(s.context);
	free(qps);
	return 0;
}
