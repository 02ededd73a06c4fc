/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * idle.c - what queue pairs cost that do nothing: memory for each, and processor time for all.
 *
 *      bench_idle [QUEUE_PAIRS [SECONDS]]
 *
 * Makes RC queue pairs with the smallest queues, connects them to each other in pairs, and looks at
 * the process's own memory before and after; then sleeps, with an armed completion channel, and
 * looks at its processor time. Each line of output is a name, a number and its unit.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "verbs.h"

/* connected_pair - two queue pairs, each the other's peer. */
static void connected_pair(struct bench_device *device, struct ibv_qp *out[2])
{
	out[0] = bench_create_qp(device, 1, NULL);
	out[1] = bench_create_qp(device, 1, NULL);
	bench_connect_qp(out[0], out[1]->qp_num, &device->gid);
	bench_connect_qp(out[1], out[0]->qp_num, &device->gid);
}

static long resident_bytes(void)
{
	long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	if (!file || fscanf(file, "%*d %ld", &pages) != 1)
		bench_die("/proc/self/statm");
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
	struct bench_device device = {0};
	long resident, allocated;
	double busy;

	count = count < 2 ? 2 : count & ~1;
	qps = calloc((size_t)count, sizeof(struct ibv_qp *));
	if (!qps)
		bench_die("calloc");
	bench_open(&device, 64);
	if (ibv_req_notify_cq(device.cq, 0))
		bench_die("ibv_req_notify_cq");
	connected_pair(&device, warm_up); /* what exists once is not a queue pair's cost */

	resident = resident_bytes();
	allocated = allocated_bytes();
	for (int i = 0; i < count; i += 2)
		connected_pair(&device, qps + i);
	printf("idle_qp_resident %ld B\n", (resident_bytes() - resident) / count);
	printf("idle_qp_allocated %ld B\n", (allocated_bytes() - allocated) / count);
	fflush(stdout);

	busy = processor_seconds();
	sleep(seconds);
	busy = processor_seconds() - busy;
	printf("idle_ticks %.2f ticks\n", busy * (double)sysconf(_SC_CLK_TCK));

	for (int i = 0; i < count; i++)
		ibv_destroy_qp(qps[i]);
	for (int i = 0; i < 2; i++)
		ibv_destroy_qp(warm_up[i]);
	bench_close(&device);
	free(qps);
	return 0;
}
