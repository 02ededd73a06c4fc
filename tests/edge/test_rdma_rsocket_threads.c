/* SPDX-License-Identifier: BSD-2-Clause */
/* Several threads send on one rsocket, and several wait for it by rpoll() and by rrecv() at once:
 * every byte arrives once, and each thread learns of the end. */
#include "rdma.h"

#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>

#define THREADS 3 /* of each kind, at each end */
#define PIECE 10000
#define PIECES 100
#define POLL_MS 20

struct worker {
	pthread_t thread;
	int rsocket;
	size_t bytes;
};

static void *send_all(void *arg)
{
	static const char piece[PIECE];
	struct worker *worker = arg;

	for (int i = 0; i < PIECES; i++) {
		ssize_t sent = rsend(worker->rsocket, piece, sizeof(piece), 0);

		if (sent != sizeof(piece))
			break;
		worker->bytes += (size_t)sent;
	}
	return NULL;
}

static void *receive_to_the_end(void *arg)
{
	struct worker *worker = arg;
	char piece[PIECE / 3];
	ssize_t got;

	do {
		struct pollfd wait = {.fd = worker->rsocket, .events = POLLIN};

		rpoll(&wait, 1, POLL_MS);
		got = rrecv(worker->rsocket, piece, sizeof(piece), 0);
		worker->bytes += got > 0 ? (size_t)got : 0;
	} while (got > 0);
	return NULL;
}

static void *connect_to(void *arg)
{
	struct worker *worker = arg;
	struct sockaddr_in at = rdma_server_address((uint16_t)worker->bytes);

	worker->bytes = rconnect(worker->rsocket, (struct sockaddr *)&at, sizeof(at)) == 0;
	return NULL;
}

static void open_pair(int ends[2])
{
	struct sockaddr_in at = rdma_server_address(0);
	socklen_t size = sizeof(at);
	int listener = rsocket(AF_INET, SOCK_STREAM, 0);
	struct worker client = {.rsocket = rsocket(AF_INET, SOCK_STREAM, 0)};

	assert_int_equal(rbind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(rlisten(listener, 1), 0);
	assert_int_equal(rgetsockname(listener, (struct sockaddr *)&at, &size), 0);
	client.bytes = ntohs(at.sin_port);
	at = rdma_client_address(0);
	assert_int_equal(rbind(client.rsocket, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(pthread_create(&client.thread, NULL, connect_to, &client), 0);
	ends[1] = raccept(listener, NULL, NULL);
	assert_int_equal(pthread_join(client.thread, NULL), 0);
	assert_int_equal(client.bytes, 1);
	assert_true(ends[1] >= 0);
	ends[0] = client.rsocket;
	assert_int_equal(rclose(listener), 0);
}

static void start(struct worker *workers, void *(*run)(void *), int rsocket)
{
	for (int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.rsocket = rsocket};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, run, &workers[i]), 0);
	}
}

static size_t join(struct worker *workers)
{
	size_t bytes = 0;

	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
		bytes += workers[i].bytes;
	}
	return bytes;
}

static void threads_share_an_rsocket(void **state)
{
	struct worker senders[2][THREADS], receivers[2][THREADS];
	int ends[2];

	open_pair(ends);
	for (int i = 0; i < 2; i++) {
		start(receivers[i], receive_to_the_end, ends[i]);
		start(senders[i], send_all, ends[i]);
	}
	for (int i = 0; i < 2; i++) {
		assert_int_equal(join(senders[i]), THREADS * PIECES * PIECE);
		assert_int_equal(rshutdown(ends[i], SHUT_WR), 0);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(join(receivers[i]), THREADS * PIECES * PIECE);
	for (int i = 0; i < 2; i++)
		assert_int_equal(rclose(ends[i]), 0);
}

/* The second to close finds the word of the first while it waits to say its own, which it must say
 * all the same: the first waits for it. */
static void both_ends_shut_after_each_other(void **state)
{
	struct pollfd wait = {.events = POLLIN};
	char byte;
	int ends[2];

	for (int round = 0; round < 20; round++) {
		open_pair(ends);
		for (int i = 0; i < 2; i++)
			assert_int_equal(rshutdown(ends[i], SHUT_WR), 0);
		for (int i = 0; i < 2; i++) {
			wait.fd = ends[i];
			assert_int_equal(rpoll(&wait, 1, 20000), 1);
			assert_int_equal(rrecv(ends[i], &byte, 1, 0), 0);
		}
		for (int i = 0; i < 2; i++)
			assert_int_equal(rclose(ends[i]), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_share_an_rsocket),
		cmocka_unit_test(both_ends_shut_after_each_other),
	};

	rdma_hosts();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
