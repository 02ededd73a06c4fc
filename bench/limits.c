/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * limits.c - what this machine can do within itself, without any RDMA in between: the measure for
 * the rest.
 *
 *      bench_limits LIMIT[:BYTES[,BYTES...]] ...
 *
 *      memcpy              between two private buffers
 *      shared_copy         memcpy into pages that another process has mapped too
 *      process_vm_writev   into another process
 *      process_vm_readv    out of it
 *      ping_pong           a word in shared memory goes there and back, both sides spin; BYTES mean
 * nothing
 *
 * Each line of output is the limit's name, the size in bytes, and the microseconds that one takes
 * (one way): the median of some batches. Two processes, each bound to a processor of its own when
 * there are two. The other one ends with us.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES (8u << 20)
#define BATCHES 15
#define BATCH_SECONDS 0.005

/* What the two processes share. The words of the ping-pong have cache lines of their own. */
struct shared {
	_Alignas(128) _Atomic uint64_t ping;
	_Alignas(128) _Atomic uint64_t pong;
	_Alignas(128) _Atomic int ready;
};

static struct shared *shared;
static char *source, *target, *shared_pages;
static pid_t other; /* the process that is copied into, or plays ping-pong */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "limits: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void *pages(size_t bytes, int flags)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);

	if (at == MAP_FAILED)
		die("mmap");
	return at;
}

static cpu_set_t allowed; /* the processors that we may use */

/* use_processor - the n-th of them, so that two of us do not share one. */
static void use_processor(int n)
{
	cpu_set_t one;

	n %= CPU_COUNT(&allowed);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &allowed) || n-- > 0)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		sched_setaffinity(0, sizeof(one), &one);
		return;
	}
}

/* start - a child that does run() on the second processor. */
static void start(void (*run)(void))
{
	shared->ready = 0;
	fflush(stdout);
	other = fork();
	if (other < 0)
		die("fork");
	if (other == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		use_processor(1);
		run();
		_exit(0);
	}
	while (!shared->ready)
		sched_yield();
}

static void finish(void)
{
	kill(other, SIGKILL); /* not reaped yet, so it is the one that we started */
	waitpid(other, NULL, 0);
}

static void be_a_target(void)
{
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	memset(target, 2, BUFFER_BYTES);
	memset(shared_pages, 2, BUFFER_BYTES);
	shared->ready = 1;
	for (;;)
		pause();
}

static void answer(void)
{
	uint64_t seen = shared->ping;

	shared->ready = 1;
	for (;;) {
		uint64_t ping = shared->ping;

		if (ping != seen)
			shared->pong = seen = ping;
	}
}

static void copy(size_t bytes)
{
	memcpy(target, source, bytes);
	__asm__ volatile("" ::: "memory");
}

static void copy_shared(size_t bytes)
{
	memcpy(shared_pages, source, bytes);
	__asm__ volatile("" ::: "memory");
}

static void write_other(size_t bytes)
{
	struct iovec here = {source, bytes}, there = {target, bytes};

	if (process_vm_writev(other, &here, 1, &there, 1, 0) != (ssize_t)bytes)
		die("process_vm_writev");
}

static void read_other(size_t bytes)
{
	struct iovec here = {source, bytes}, there = {target, bytes};

	if (process_vm_readv(other, &here, 1, &there, 1, 0) != (ssize_t)bytes)
		die("process_vm_readv");
}

static void there_and_back(size_t bytes)
{
	uint64_t value = shared->ping + 1;

	shared->ping = value;
	while (shared->pong != value)
		;
}

static const struct limit {
	const char *name;
	void (*other)(void); /* what the other process does */
	void (*once)(size_t bytes);
	int ways; /* that once() goes */
} limits[] = {
	{"memcpy", be_a_target, copy, 1},
	{"shared_copy", be_a_target, copy_shared, 1},
	{"process_vm_writev", be_a_target, write_other, 1},
	{"process_vm_readv", be_a_target, read_other, 1},
	{"ping_pong", answer, there_and_back, 2},
};

static double seconds_of(const struct limit *limit, size_t bytes, int times)
{
	double begin = now();

	for (int i = 0; i < times; i++)
		limit->once(bytes);
	return now() - begin;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(const struct limit *limit, size_t bytes)
{
	double batches[BATCHES];
	int times = 1;

	/* How many make a batch; warms up as well. */
	while (seconds_of(limit, bytes, times) < BATCH_SECONDS && times < 1 << 24)
		times *= 2;
	for (int i = 0; i < BATCHES; i++)
		batches[i] = seconds_of(limit, bytes, times) / times / limit->ways;
	qsort(batches, BATCHES, sizeof(*batches), ascending);
	printf("%s %zu %.5f us\n", limit->name, bytes, batches[BATCHES / 2] * 1e6);
}

/* measure_named - what one argument asks for; whether there is such a limit. */
static int measure_named(char *argument)
{
	char *sizes = strchr(argument, ':');
	const struct limit *limit = limits;

	if (sizes)
		*sizes++ = '\0';
	while (limit < limits + sizeof(limits) / sizeof(*limits) && strcmp(limit->name, argument))
		limit++;
	if (limit == limits + sizeof(limits) / sizeof(*limits))
		return 0;
	start(limit->other);
	for (char *size = strtok(sizes ? sizes : (char[]){"8"}, ","); size;
	     size = strtok(NULL, ",")) {
		size_t bytes = strtoul(size, NULL, 10);

		if (bytes == 0 || bytes > BUFFER_BYTES)
			return 0;
		measure(limit, bytes);
	}
	finish();
	return 1;
}

int main(int argc, char **argv)
{
	if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
		die("sched_getaffinity");
	use_processor(0);
	source = pages(BUFFER_BYTES, MAP_PRIVATE);
	target = pages(BUFFER_BYTES, MAP_PRIVATE);
	shared_pages = pages(BUFFER_BYTES, MAP_SHARED);
	shared = pages(sizeof(*shared), MAP_SHARED);
	memset(source, 1, BUFFER_BYTES);
	memset(target, 2, BUFFER_BYTES);
	memset(shared_pages, 2, BUFFER_BYTES);
	for (int i = 1; i < argc; i++)
		if (!measure_named(argv[i])) {
			fprintf(stderr, "limits: there is no limit \"%s\" of such sizes\n",
				argv[i]);
			return 2;
		}
	return 0;
}
