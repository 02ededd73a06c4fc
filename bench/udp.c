/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * udp.c - UDP as a program uses it that knows no tricks: one sendto or recvfrom for each message.
 *
 *      bench_udp serve [--block] ADDRESS PORT            until it is ended, or its parent is
 *      bench_udp ping [--block] ADDRESS PORT BYTES...    one way, microseconds
 *      bench_udp flood ADDRESS PORT BYTES...             arrived, messages a second
 *
 * With --block a side sleeps in recvfrom until a message is there, otherwise it polls. The first
 * byte of a message says what the server shall do with it. Each line of output is the mode, the
 * size in bytes, the number and its unit; a ping's is the median of some batches.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum kind { PING = 'p', COUNTED = 'c', HOW_MANY = 'h' };

#define LARGEST 65507
#define BATCHES 25
#define PINGS_PER_BATCH 40
#define FLOOD_SECONDS 0.3
#define TRIES 50
#define PATIENCE_MS 200 /* until a lost message is sent again */

static char message[LARGEST];
static int fd;
static struct sockaddr_in peer;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "udp: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void send_to_peer(size_t bytes)
{
	if (sendto(fd, message, bytes, 0, (struct sockaddr *)&peer, sizeof(peer)) < 0)
		die("sendto");
}

static void serve(int flags)
{
	uint64_t count = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (bind(fd, (struct sockaddr *)&peer, sizeof(peer)) != 0)
		die("bind");
	for (;;) {
		socklen_t size = sizeof(peer);
		ssize_t bytes = recvfrom(fd, message, sizeof(message), flags,
					 (struct sockaddr *)&peer, &size);

		if (bytes <= 0)
			continue;
		switch ((enum kind)message[0]) {
		case PING:
			send_to_peer((size_t)bytes);
			break;
		case COUNTED:
			count++;
			break;
		case HOW_MANY:
			memcpy(message, &count, sizeof(count));
			send_to_peer(sizeof(count));
			break;
		}
	}
}

/* ask - sends a message and waits for the answer; sends it again, should one of them be lost. */
static void ask(enum kind kind, size_t bytes, int flags)
{
	for (int i = 0; i < TRIES; i++) {
		const double until = now() + PATIENCE_MS * 1e-3;
		long polls = 0;

		message[0] = (char)kind;
		send_to_peer(bytes);
		do {
			if (recvfrom(fd, message, sizeof(message), flags, NULL, NULL) >= 0)
				return;
			if (errno != EAGAIN && errno != EINTR)
				die("recvfrom");
		} while ((flags && ++polls % 1024) || now() < until);
	}
	errno = ETIMEDOUT;
	die("no answer");
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void ping(size_t bytes, int flags)
{
	double batches[BATCHES];

	for (int batch = -1; batch < BATCHES; batch++) {
		double begin = now();

		for (int i = 0; i < PINGS_PER_BATCH; i++)
			ask(PING, bytes, flags);
		if (batch >= 0)
			batches[batch] = (now() - begin) / PINGS_PER_BATCH / 2;
	}
	qsort(batches, BATCHES, sizeof(*batches), ascending);
	printf("ping %zu %.4f us\n", bytes, batches[BATCHES / 2] * 1e6);
}

static uint64_t how_many(void)
{
	uint64_t count;

	/* What was asked for twice may have been answered twice. */
	while (recvfrom(fd, message, sizeof(message), MSG_DONTWAIT, NULL, NULL) >= 0)
		;
	ask(HOW_MANY, sizeof(count), 0);
	memcpy(&count, message, sizeof(count));
	return count;
}

static void flood(size_t bytes)
{
	const uint64_t before = how_many();
	const double begin = now();
	double end;

	message[0] = COUNTED;
	do {
		for (int i = 0; i < 16; i++)
			send_to_peer(bytes);
		end = now();
	} while (end - begin < FLOOD_SECONDS);
	printf("flood %zu %.0f 1/s\n", bytes, (double)(how_many() - before) / (end - begin));
}

static int usage(void)
{
	fprintf(stderr, "usage: bench_udp serve|ping|flood [--block] ADDRESS PORT [BYTES...]\n");
	return 2;
}

int main(int argc, char **argv)
{
	struct timeval patience = {.tv_usec = PATIENCE_MS * 1000};
	const char *mode = argc > 1 ? argv[1] : "";
	int block = argc > 2 && strcmp(argv[2], "--block") == 0, flags = block ? 0 : MSG_DONTWAIT;

	argv += 2 + block;
	argc -= 2 + block;
	if (argc < 2)
		return usage();
	peer = (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_port = htons((uint16_t)atoi(argv[1]))};
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0 || inet_pton(AF_INET, argv[0], &peer.sin_addr) != 1)
		die("socket, address");
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (strcmp(mode, "serve") == 0)
		serve(flags);
	for (int i = 2; i < argc; i++) {
		size_t bytes = strtoul(argv[i], NULL, 10);

		if (bytes < sizeof(uint64_t) || bytes > LARGEST)
			return usage();
		if (strcmp(mode, "ping") == 0)
			ping(bytes, flags);
		else if (strcmp(mode, "flood") == 0)
			flood(bytes);
		else
			return usage();
	}
	return 0;
}
