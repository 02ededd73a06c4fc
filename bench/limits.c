/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * limits.c - what this machine can do at best, without any RDMA in between: the measure for the
 * rest.
 *
 * Each line of output is a name, a number and its unit. Best of a few short batches, since the
 * machine may be doing other things as well; two processes, each bound to a processor of its own
 * when there are two. A child dies with its parent.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES (64u << 20)
#define BATCHES 5
#define SEGMENT_BYTES (4096 + 60) /* a RoCE packet of the largest path MTU, as UDP payload */
#define SEGMENTS_PER_TRAIN 15
#define PING_PONG_SECONDS 1.0
#define STREAM_SECONDS 1.0
#define STREAM_WINDOW (1u << 20) /* bytes under way */

/* What parent and child share. The words of the ping-pong have cache lines of their own. */
struct shared {
	_Alignas(128) _Atomic uint64_t ping;
	_Alignas(128) _Atomic uint64_t pong;
	_Alignas(128) _Atomic uint64_t received;
	_Atomic int ready;
};

static struct shared *shared;
static char *source, *target;

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

/* start - a child that does run() on the second processor, and ends with us. */
static pid_t start(void (*run)(void *), void *argument)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		die("fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		use_processor(1);
		run(argument);
		_exit(0);
	}
	return pid;
}

static void finish(pid_t pid)
{
	kill(pid, SIGKILL); /* not reaped yet, so it is the one that we started */
	waitpid(pid, NULL, 0);
}

static void measure_memcpy(const char *name, size_t bytes, int times)
{
	double best = 1e9;

	for (int batch = 0; batch < BATCHES; batch++) {
		double t = now();

		for (int i = 0; i < times; i++) {
			memcpy(target, source, bytes);
			__asm__ volatile("" ::: "memory");
		}
		t = (now() - t) / times;
		best = t < best ? t : best;
	}
	printf("%s %.3f GB/s\n", name, (double)bytes / best / 1e9);
}

static void be_a_target(void *argument)
{
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	memset(target, 2, BUFFER_BYTES);
	shared->ready = 1;
	for (;;)
		pause();
}

static void measure_process_vm(const char *name, pid_t pid, size_t bytes, int times)
{
	struct iovec local = {source, bytes}, remote = {target, bytes};
	double best = 1e9;

	for (int batch = 0; batch < BATCHES; batch++) {
		double t = now();

		for (int i = 0; i < times; i++)
			if (process_vm_writev(pid, &local, 1, &remote, 1, 0) != (ssize_t)bytes)
				die("process_vm_writev");
		t = (now() - t) / times;
		best = t < best ? t : best;
	}
	printf("%s_latency %.3f us\n", name, best * 1e6);
	printf("%s %.3f GB/s\n", name, (double)bytes / best / 1e9);
}

static void measure_all_process_vm(void)
{
	pid_t pid = start(be_a_target, NULL);

	while (!shared->ready)
		sched_yield();
	measure_process_vm("process_vm_writev_8B", pid, 8, 20000);
	measure_process_vm("process_vm_writev_64KiB", pid, 64 << 10, 2000);
	measure_process_vm("process_vm_writev_1MiB", pid, 1 << 20, 300);
	finish(pid);
}

static void answer_in_memory(void *argument)
{
	uint64_t seen = 0;

	for (;;) {
		uint64_t ping = shared->ping;

		if (ping != seen)
			shared->pong = seen = ping;
	}
}

static void measure_shared_memory(void)
{
	const int rounds = 5000; /* few: where the two share a processor, a round is milliseconds */
	pid_t pid = start(answer_in_memory, NULL);
	const double until = now() + PING_PONG_SECONDS;
	uint64_t value = 0;
	double best = 1e9;

	while (now() < until) {
		double t = now();

		for (int i = 0; i < rounds; i++) {
			shared->ping = ++value;
			while (shared->pong != value)
				;
		}
		t = (now() - t) / rounds / 2;
		best = t < best ? t : best;
	}
	finish(pid);
	printf("shared_memory_one_way %.4f us\n", best * 1e6);
}

/* Two UDP sockets on loopback, connected to each other. */
static void make_sockets(int fd[2])
{
	struct sockaddr_in address[2];
	socklen_t size = sizeof(address[0]);

	for (int i = 0; i < 2; i++) {
		address[i] = (struct sockaddr_in){.sin_family = AF_INET,
						  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		fd[i] = socket(AF_INET, SOCK_DGRAM, 0);
		if (fd[i] < 0 || bind(fd[i], (struct sockaddr *)&address[i], size) != 0 ||
		    getsockname(fd[i], (struct sockaddr *)&address[i], &size) != 0)
			die("socket");
	}
	for (int i = 0; i < 2; i++)
		if (connect(fd[i], (struct sockaddr *)&address[!i], size) != 0)
			die("connect");
}

static void answer_by_udp(void *argument)
{
	int fd = *(int *)argument;
	char message[64];

	for (;;)
		if (recv(fd, message, sizeof(message), MSG_DONTWAIT) == sizeof(message))
			send(fd, message, sizeof(message), 0);
}

static void measure_udp_latency(void)
{
	const int rounds = 5000;
	char message[64] = {0};
	double best = 1e9;
	int fd[2];
	pid_t pid;

	make_sockets(fd);
	pid = start(answer_by_udp, &fd[1]);
	for (int batch = 0; batch < BATCHES; batch++) {
		double t = now();

		for (int i = 0; i < rounds; i++) {
			send(fd[0], message, sizeof(message), 0);
			while (recv(fd[0], message, sizeof(message), MSG_DONTWAIT) < 0)
				;
		}
		t = (now() - t) / rounds / 2;
		best = t < best ? t : best;
	}
	finish(pid);
	close(fd[0]);
	close(fd[1]);
	printf("udp_loopback_one_way %.3f us\n", best * 1e6);
}

static void count_stream(void *argument)
{
	int fd = *(int *)argument;

	for (;;) {
		ssize_t bytes = recv(fd, target, 65536, 0);

		if (bytes > 0)
			shared->received += (uint64_t)bytes;
	}
}

/* measure_udp_stream - trains of packets (UDP_SEGMENT), taken whole (UDP_GRO). What is lost is not
 * counted and not waited for longer than a moment. */
static void measure_udp_stream(void)
{
	int segment = SEGMENT_BYTES, one = 1, room = 4 << 20, fd[2];
	uint64_t sent = 0;
	double begin, last;
	pid_t pid;

	make_sockets(fd);
	setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	setsockopt(fd[1], SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	if (setsockopt(fd[0], IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment)) != 0 ||
	    setsockopt(fd[1], IPPROTO_UDP, UDP_GRO, &one, sizeof(one)) != 0)
		die("UDP_SEGMENT, UDP_GRO");
	pid = start(count_stream, &fd[1]);
	begin = last = now();
	while (now() - begin < STREAM_SECONDS) {
		if (sent - shared->received > STREAM_WINDOW && now() - last < 0.001) {
			sched_yield();
			continue;
		}
		if (sent - shared->received > STREAM_WINDOW)
			sent = shared->received; /* lost */
		if (send(fd[0], source, SEGMENTS_PER_TRAIN * SEGMENT_BYTES, 0) > 0)
			sent += SEGMENTS_PER_TRAIN * SEGMENT_BYTES;
		last = now();
	}
	printf("udp_loopback_stream %.3f GB/s\n", (double)shared->received / (now() - begin) / 1e9);
	finish(pid);
	close(fd[0]);
	close(fd[1]);
}

int main(void)
{
	if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
		die("sched_getaffinity");
	use_processor(0);
	source = pages(BUFFER_BYTES, MAP_PRIVATE);
	target = pages(BUFFER_BYTES, MAP_PRIVATE);
	shared = pages(sizeof(*shared), MAP_SHARED);
	memset(source, 1, BUFFER_BYTES);
	memset(target, 2, BUFFER_BYTES);

	measure_memcpy("memcpy_64KiB", 64 << 10, 2000);
	measure_memcpy("memcpy_64MiB", BUFFER_BYTES, 1);
	measure_all_process_vm();
	measure_shared_memory();
	measure_udp_latency();
	measure_udp_stream();
	return 0;
}
