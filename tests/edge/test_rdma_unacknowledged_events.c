/* SPDX-License-Identifier: BSD-2-Clause */
/* An id is destroyed while the program has events of it, or while events of it wait: destroying
 * blocks until the last is acknowledged, and what nobody took vanishes. */
#include "rdma.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#define BLOCKED_MS 100 /* that long we watch it being blocked */

struct destroyer {
	pthread_t thread;
	struct rdma_cm_id *id;
	atomic_int acknowledged, done, acknowledged_when_done;
};

static void *destroy(void *argument)
{
	struct destroyer *d = argument;

	assert_int_equal(rdma_destroy_id(d->id), 0);
	d->acknowledged_when_done = d->acknowledged;
	d->done = 1;
	return NULL;
}

static void destroying_waits_for_every_acknowledgement(void **state)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_event *first, *second;
	struct sockaddr_in to = rdma_server_address(7), from = rdma_client_address(0);
	struct destroyer d = {0};

	channel = rdma_create_event_channel();
	assert_non_null(channel);
	assert_int_equal(rdma_create_id(channel, &d.id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(
		rdma_resolve_addr(d.id, (struct sockaddr *)&from, (struct sockaddr *)&to, RDMA_MS),
		0);
	first = rdma_expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(rdma_resolve_route(d.id, RDMA_MS), 0);
	second = rdma_expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);

	assert_int_equal(rdma_ack_cm_event(first), 0);
	assert_int_equal(pthread_create(&d.thread, NULL, destroy, &d), 0);
	for (int i = 0; i < BLOCKED_MS && !d.done; i++)
		poll(NULL, 0, 1);
	d.acknowledged = 1;
	assert_int_equal(rdma_ack_cm_event(second), 0);
	assert_int_equal(pthread_join(d.thread, NULL), 0);
	assert_int_equal(d.acknowledged_when_done, 1);
	rdma_destroy_event_channel(channel);
}

static void events_that_nobody_took_vanish(void **state)
{
	struct rdma_event_channel *channel;
	struct sockaddr_in to = rdma_server_address(7), from = rdma_client_address(0);
	struct rdma_cm_id *gone, *stays;
	struct rdma_cm_event *event;

	channel = rdma_create_event_channel();
	assert_non_null(channel);
	assert_int_equal(rdma_create_id(channel, &gone, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_create_id(channel, &stays, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(
		rdma_resolve_addr(gone, (struct sockaddr *)&from, (struct sockaddr *)&to, RDMA_MS),
		0);
	assert_int_equal(
		rdma_resolve_addr(stays, (struct sockaddr *)&from, (struct sockaddr *)&to, RDMA_MS),
		0);
	assert_int_equal(rdma_destroy_id(gone), 0);
	event = rdma_expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_ptr_equal(event->id, stays);
	assert_int_equal(rdma_ack_cm_event(event), 0);
	assert_false(rdma_waits(channel));
	assert_int_equal(rdma_destroy_id(stays), 0);
	rdma_destroy_event_channel(channel);
}

static void requests_vanish_with_their_listener(void **state)
{
	struct rdma_event_channel *server = rdma_create_event_channel(),
				  *client = rdma_create_event_channel();
	struct rdma_conn_param param = {.qp_num = 0x123456};
	struct rdma_cm_id *listener, *id;
	struct pollfd wait;

	listener = rdma_listener(server, RDMA_PS_TCP, 0);
	id = rdma_routed(client, RDMA_PS_TCP, rdma_port(listener));
	assert_int_equal(rdma_connect(id, &param), 0);
	wait = (struct pollfd){.fd = server->fd, .events = POLLIN};
	assert_int_equal(poll(&wait, 1, 20000), 1);
	assert_int_equal(rdma_destroy_id(listener), 0);
	assert_false(rdma_waits(server));
	rdma_expect_status(client, RDMA_CM_EVENT_REJECTED, 28);
	rdma_drop(id);
	rdma_destroy_event_channel(server);
	rdma_destroy_event_channel(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(destroying_waits_for_every_acknowledgement),
		cmocka_unit_test(events_that_nobody_took_vanish),
		cmocka_unit_test(requests_vanish_with_their_listener),
	};

	rdma_hosts();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
