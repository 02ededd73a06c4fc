/* SPDX-License-Identifier: BSD-2-Clause */
/* A program gives up a connection, queue pair first, while another thread of it takes the events:
 * that thread may be moving the queue pair for the peer's answer. */
#define _GNU_SOURCE
#include "rdma.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#define ROUNDS 300
#define ANSWER_MS 20000

struct taker {
	struct rdma_event_channel *channel;
	enum rdma_cm_event_type got;
};

static void *take(void *arg)
{
	struct taker *taker = arg;
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(taker->channel, &event) == 0) {
		taker->got = event->event;
		rdma_ack_cm_event(event);
	}
	return NULL;
}

static void give_up_when_answered(struct rdma_event_channel *channel, struct rdma_cm_id *listener)
{
	struct rdma_cm_id *client = rdma_routed(channel, RDMA_PS_TCP, rdma_port(listener)), *server;
	struct pollfd wait = {.fd = channel->fd, .events = POLLIN};
	struct sockaddr_in to = rdma_server_address(rdma_port(listener));
	struct rdma_cm_id *other;
	struct taker taker = {channel, RDMA_CM_EVENT_CONNECT_ERROR};
	pthread_t thread;

	rdma_give_qp(client);
	assert_int_equal(rdma_connect(client, NULL), 0);
	server = rdma_take_request(listener->channel);
	rdma_give_qp(server);
	assert_int_equal(rdma_accept(server, NULL), 0);
	assert_int_equal(poll(&wait, 1, ANSWER_MS), 1);

	assert_int_equal(pthread_create(&thread, NULL, take, &taker), 0);
	while (rdma_waits(channel))
		; /* until that thread has it in its hands */
	rdma_drop(client);
	/* The event vanishes where the thread had its token only: another one lets it go on. */
	assert_int_equal(rdma_create_id(channel, &other, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(other, NULL, (struct sockaddr *)&to, RDMA_MS), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	/* with the queue pair, or when it was gone already: that is for the program to handle */
	assert_true(taker.got == RDMA_CM_EVENT_ESTABLISHED ||
		    taker.got == RDMA_CM_EVENT_CONNECT_RESPONSE ||
		    taker.got == RDMA_CM_EVENT_ADDR_RESOLVED);
	rdma_drop(other);
	rdma_drop(server);
}

static void an_answer_that_is_being_taken(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_event_channel *server_channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = rdma_listener(server_channel, RDMA_PS_TCP, 0);

	for (int i = 0; i < ROUNDS; i++)
		give_up_when_answered(channel, listener);
	assert_false(rdma_waits(channel));
	rdma_drop(listener);
	rdma_destroy_event_channel(server_channel);
	rdma_destroy_event_channel(channel);
}

struct latecomer {
	struct rdma_event_channel *channel;
	pthread_barrier_t destroyed;
	_Atomic pid_t tid;
};

static void *come_late(void *arg)
{
	struct latecomer *late = arg;
	struct rdma_cm_event *event;

	pthread_barrier_wait(&late->destroyed);
	late->tid = gettid();
	rdma_get_cm_event(late->channel, &event);
	return NULL;
}

static bool sleeps(pid_t tid)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
	file = fopen(path, "r");
	if (!file)
		return false;
	if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	fclose(file);
	return state == 'S';
}

/* rping's thread handles DISCONNECTED and comes back for the next event, while the main thread has
 * destroyed the channel and is about to end the process: no error may be seen meanwhile. */
static void a_channel_that_is_gone(void **state)
{
	struct latecomer late = {.channel = rdma_create_event_channel()};
	struct rdma_cm_event *event;
	pthread_t thread;
	void *result;

	assert_non_null(late.channel);
	assert_int_equal(pthread_barrier_init(&late.destroyed, NULL, 2), 0);
	assert_int_equal(pthread_create(&thread, NULL, come_late, &late), 0);
	rdma_destroy_event_channel(late.channel);
	pthread_barrier_wait(&late.destroyed);
	while (!late.tid || !sleeps(late.tid))
		;
	assert_int_equal(pthread_cancel(thread), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	/* who destroyed it himself is told */
	assert_int_equal(rdma_get_cm_event(late.channel, &event), -1);
	assert_int_equal(errno, EBADF);
	pthread_barrier_destroy(&late.destroyed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_that_is_being_taken),
		cmocka_unit_test(a_channel_that_is_gone),
	};

	rdma_hosts();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
