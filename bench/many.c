/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * many.c - small messages round-robin over many connected queue pairs of one process.
 *
 *      bench_many [QUEUE_PAIRS [MILLISECONDS]]
 *
 *      sender                                        receiver (a child, with a device of its own)
 *        QP 0, QP 1, ... QP n-1, QP 0, ...  8 B      one shared receive queue, one completion queue
 *        WINDOW messages under way in all
 *
 * With one queue pair and with many the programs do the same: every SEND is signalled, completions
 * are polled in the same portions. Afterwards it times ibv_poll_cq() with nothing to find. Each
 * line of output is a name, a number and its unit.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "verbs.h"

#define WINDOW 128
#define PORTION 16
#define RECEIVES 4096
#define MESSAGE_BYTES 8
#define POLLS 20000
#define POLL_BATCHES 9

struct side {
	struct bench_device device;
	struct ibv_mr *mr;
	struct ibv_srq *srq; /* the receiver's */
	struct ibv_qp **qps;
	int count;
	char buffer[RECEIVES * MESSAGE_BYTES];
};

static void tell(int fd, const void *what, size_t bytes)
{
	if (send(fd, what, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
		bench_die("the other process");
}

static void hear(int fd, void *what, size_t bytes)
{
	if (recv(fd, what, bytes, MSG_WAITALL) != (ssize_t)bytes)
		bench_die("the other process");
}

/* set_up - the queue pairs, each connected to the other process's of the same index. */
static void set_up(struct side *side, int fd, int count, uint32_t send_requests)
{
	uint32_t *own = calloc((size_t)count, sizeof(*own));
	uint32_t *other = calloc((size_t)count, sizeof(*other));
	union ibv_gid gid;

	side->qps = calloc((size_t)count, sizeof(struct ibv_qp *));
	if (!own || !other || !side->qps)
		bench_die("calloc");
	side->count = count;
	side->mr = ibv_reg_mr(side->device.pd, side->buffer, sizeof(side->buffer),
			      IBV_ACCESS_LOCAL_WRITE);
	if (!side->mr)
		bench_die("ibv_reg_mr");
	for (int i = 0; i < count; i++) {
		side->qps[i] = bench_create_qp(&side->device, send_requests, side->srq);
		own[i] = side->qps[i]->qp_num;
	}
	tell(fd, &side->device.gid, sizeof(gid));
	tell(fd, own, (size_t)count * sizeof(*own));
	hear(fd, &gid, sizeof(gid));
	hear(fd, other, (size_t)count * sizeof(*other));
	for (int i = 0; i < count; i++)
		bench_connect_qp(side->qps[i], other[i], &gid);
	free(own);
	free(other);
}

static int poll_portion(struct side *side, struct ibv_wc wc[PORTION])
{
	int n = ibv_poll_cq(side->device.cq, PORTION, wc);

	if (n < 0)
		bench_die("ibv_poll_cq");
	for (int i = 0; i < n; i++)
		if (wc[i].status != IBV_WC_SUCCESS) {
			fprintf(stderr, "many: %s\n", ibv_wc_status_str(wc[i].status));
			exit(1);
		}
	return n;
}

static void post_receives(struct side *side, const struct ibv_wc *wc, int n)
{
	struct ibv_recv_wr wrs[PORTION], *bad;
	struct ibv_sge sges[PORTION];

	for (int i = 0; i < n; i++) {
		sges[i] = (struct ibv_sge){
			.addr = (uintptr_t)side->buffer + wc[i].wr_id * MESSAGE_BYTES,
			.length = MESSAGE_BYTES,
			.lkey = side->mr->lkey,
		};
		wrs[i] = (struct ibv_recv_wr){
			.wr_id = wc[i].wr_id,
			.next = i + 1 < n ? &wrs[i + 1] : NULL,
			.sg_list = &sges[i],
			.num_sge = 1,
		};
	}
	if (n && ibv_post_srq_recv(side->srq, wrs, &bad))
		bench_die("ibv_post_srq_recv");
}

/* receive - until the parent ends us. */
static _Noreturn void receive(struct side *side, int fd, int count)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = RECEIVES, .max_sge = 1}};
	struct ibv_wc wc[PORTION] = {0};
	char ready = 1;

	bench_open(&side->device, 2 * RECEIVES);
	side->srq = ibv_create_srq(side->device.pd, &srq);
	if (!side->srq)
		bench_die("ibv_create_srq");
	set_up(side, fd, count, 1);
	for (int i = 0; i < RECEIVES; i++) {
		wc[0].wr_id = (uint64_t)i;
		post_receives(side, wc, 1);
	}
	tell(fd, &ready, 1);
	for (;;)
		post_receives(side, wc, poll_portion(side, wc));
}

static void send_on(struct side *side, int index)
{
	struct ibv_sge sge = {(uintptr_t)side->buffer, MESSAGE_BYTES, side->mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};

	if (ibv_post_send(side->qps[index], &wr, &bad))
		bench_die("ibv_post_send");
}

/* stream - sends round-robin for so long; returns messages a second. */
static double stream(struct side *side, double seconds)
{
	const double begin = bench_now();
	struct ibv_wc wc[PORTION];
	long completed = 0;
	double end = begin;
	int under_way = 0, next = 0;

	while (end - begin < seconds || under_way) {
		for (; end - begin < seconds && under_way < WINDOW; under_way++) {
			send_on(side, next);
			next = next + 1 < side->count ? next + 1 : 0;
		}
		int n = poll_portion(side, wc);

		completed += n;
		under_way -= n;
		end = bench_now();
	}
	return (double)completed / (end - begin);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* empty_poll - seconds that a poll takes which finds nothing: the median of some batches. */
static double empty_poll(struct side *side)
{
	double batches[POLL_BATCHES];
	struct ibv_wc wc[PORTION];

	for (int batch = 0; batch < POLL_BATCHES; batch++) {
		double begin = bench_now();

		for (int i = 0; i < POLLS; i++)
			poll_portion(side, wc);
		batches[batch] = (bench_now() - begin) / POLLS;
	}
	qsort(batches, POLL_BATCHES, sizeof(*batches), ascending);
	return batches[POLL_BATCHES / 2];
}

int main(int argc, char **argv)
{
	static struct side side;
	int count = argc > 1 ? atoi(argv[1]) : 4096, fd[2];
	double seconds = (argc > 2 ? atoi(argv[2]) : 500) * 1e-3;
	char ready;
	pid_t pid;

	if (count < 1 || socketpair(AF_UNIX, SOCK_STREAM, 0, fd))
		bench_die("usage: bench_many [QUEUE_PAIRS [MILLISECONDS]]");
	pid = fork();
	if (pid < 0)
		bench_die("fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fd[0]);
		receive(&side, fd[1], count);
	}
	close(fd[1]);
	bench_open(&side.device, 2 * WINDOW);
	set_up(&side, fd[0], count, count >= WINDOW ? 2 : WINDOW);
	hear(fd[0], &ready, 1);
	stream(&side, seconds / 5); /* each queue pair once, and caches */
	printf("messages_per_second %.0f 1/s\n", stream(&side, seconds));
	printf("empty_poll %.2f ns\n", empty_poll(&side) * 1e9);
	fflush(stdout);
	kill(pid, SIGKILL); /* not reaped yet, so it is the one that we started */
	waitpid(pid, NULL, 0);
	for (int i = 0; i < count; i++)
		ibv_destroy_qp(side.qps[i]);
	ibv_dereg_mr(side.mr);
	bench_close(&side.device);
	return 0;
}
