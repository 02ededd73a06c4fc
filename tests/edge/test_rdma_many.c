/* SPDX-License-Identifier: BSD-2-Clause */
/* Many connections of a process to itself (or to its other host), dropped in every order: data
 * arrives on each, and nothing is left behind: as many again, in the same channels, and as good as
 * the same descriptors afterwards. Then threads that share a channel while ids come and go. */
#include "rdma.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

#define COUNT 100
#define ROUNDS 3
/* Each host sends from 16 sockets, of which a connection takes one at random: now and then a
 * hundred connections leave one to the next hundred. One descriptor a connection would be 200. */
#define POOLS (2 * 16)

struct end {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	uint64_t word;
};

static unsigned int descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	unsigned int count = 0;

	assert_non_null(directory);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static void prepare(struct end *end, struct rdma_cm_id *id, uint64_t word)
{
	end->id = id;
	end->word = word;
	rdma_give_qp(id);
	end->mr = rdma_reg_msgs(id, &end->word, sizeof(end->word));
	assert_non_null(end->mr);
}

static void drop(struct end *end)
{
	assert_int_equal(rdma_dereg_mr(end->mr), 0);
	rdma_drop(end->id);
}

/* Client i of the request: its context carries nothing over the wire, its private data does. */
static void connect_all(struct rdma_event_channel *server, struct rdma_event_channel *client,
			uint16_t port, struct end *servers, struct end *clients)
{
	for (unsigned int i = 0; i < COUNT; i++) {
		struct rdma_conn_param param = {
			.private_data = &i,
			.private_data_len = sizeof(i),
			.retry_count = 7,
			.rnr_retry_count = 7,
		};

		prepare(&clients[i], rdma_routed(client, RDMA_PS_TCP, port), i * 1000003u);
		assert_int_equal(rdma_connect(clients[i].id, &param), 0);
	}
	for (unsigned int n = 0; n < COUNT; n++) {
		struct rdma_cm_event *event = rdma_expect(server, RDMA_CM_EVENT_CONNECT_REQUEST);
		struct rdma_cm_id *id = event->id;
		unsigned int i;

		memcpy(&i, event->param.conn.private_data, sizeof(i));
		assert_true(i < COUNT);
		assert_null(servers[i].id);
		rdma_ack_cm_event(event);
		prepare(&servers[i], id, 0);
		assert_int_equal(
			rdma_post_recv(id, NULL, &servers[i].word, sizeof(uint64_t), servers[i].mr),
			0);
		assert_int_equal(rdma_accept(id, NULL), 0);
	}
	for (unsigned int i = 0; i < COUNT; i++)
		rdma_expect_status(client, RDMA_CM_EVENT_ESTABLISHED, 0);
	for (unsigned int i = 0; i < COUNT; i++)
		rdma_expect_status(server, RDMA_CM_EVENT_ESTABLISHED, 0);
}

static void one_round(struct rdma_event_channel *server, struct rdma_event_channel *client,
		      unsigned int round)
{
	static struct end servers[COUNT], clients[COUNT];
	struct rdma_cm_id *listener = rdma_listener(server, RDMA_PS_TCP, 0);

	memset(servers, 0, sizeof(servers));
	connect_all(server, client, rdma_port(listener), servers, clients);
	rdma_drop(listener); /* the connections stay */
	for (unsigned int i = 0; i < COUNT; i++) {
		assert_int_equal(rdma_post_send(clients[i].id, NULL, &clients[i].word,
						sizeof(uint64_t), clients[i].mr, 0),
				 0);
		assert_int_equal(edge_wait(servers[i].id->recv_cq).status, IBV_WC_SUCCESS);
		assert_int_equal(servers[i].word, i * 1000003u);
		assert_int_equal(edge_wait(clients[i].id->send_cq).status, IBV_WC_SUCCESS);
	}
	for (unsigned int i = 0; i < COUNT; i++) {
		drop(round % 2 ? &clients[i] : &servers[COUNT - 1 - i]);
		if (round == 2)
			drop(&clients[i]);
	}
	for (unsigned int i = 0; i < COUNT && round != 2; i++)
		drop(round % 2 ? &servers[i] : &clients[i]);
	assert_false(rdma_waits(server));
	assert_false(rdma_waits(client));
}

static void many_connections_leave_nothing(void **state)
{
	struct rdma_event_channel *server = rdma_create_event_channel(),
				  *client = rdma_create_event_channel();
	unsigned int before = 0;

	for (unsigned int round = 0; round < ROUNDS; round++) {
		one_round(server, client, round);
		if (round == 0)
			before = descriptors();
	}
	assert_in_range(descriptors(), before, before + POOLS);
	rdma_destroy_event_channel(server);
	rdma_destroy_event_channel(client);
}

/* --- threads ----------------------------------------------------------------------------- */

#define THREADS 3
#define IDS 200

struct shared {
	struct rdma_event_channel *channel;
	atomic_uint acknowledged;
};

/* Takes and acknowledges until the last event, whose status says so. */
static void *take_events(void *argument)
{
	struct shared *shared = argument;
	struct rdma_cm_event *event;

	for (;;) {
		void *last;

		assert_int_equal(rdma_get_cm_event(shared->channel, &event), 0);
		last = event->id->context;
		shared->acknowledged++;
		assert_int_equal(rdma_ack_cm_event(event), 0);
		if (last)
			return NULL;
	}
}

static void threads_share_a_channel_while_ids_go(void **state)
{
	struct shared shared = {.channel = rdma_create_event_channel()};
	struct sockaddr_in from = rdma_client_address(0), to = rdma_server_address(7);
	struct rdma_cm_id *last[THREADS];
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_events, &shared), 0);
	for (int i = 0; i < IDS; i++) {
		struct rdma_cm_id *id;

		assert_int_equal(rdma_create_id(shared.channel, &id, NULL, RDMA_PS_TCP), 0);
		assert_int_equal(rdma_resolve_addr(id, (struct sockaddr *)&from,
						   (struct sockaddr *)&to, RDMA_MS),
				 0);
		assert_int_equal(rdma_destroy_id(id), 0); /* with or without its event */
	}
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(rdma_create_id(shared.channel, &last[i], &shared, RDMA_PS_TCP), 0);
		assert_int_equal(rdma_resolve_addr(last[i], (struct sockaddr *)&from,
						   (struct sockaddr *)&to, RDMA_MS),
				 0);
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_true(shared.acknowledged >= THREADS);
	assert_false(rdma_waits(shared.channel));
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(rdma_destroy_id(last[i]), 0);
	rdma_destroy_event_channel(shared.channel);
}

static void *wait_for_an_event(void *channel)
{
	struct rdma_cm_event *event;

	while (!rdma_get_cm_event(channel, &event))
		rdma_ack_cm_event(event);
	return NULL;
}

static void *poll_for_ever(void *cq)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) == 0)
		pthread_testcancel();
	return NULL;
}

/* rping cancels its threads: wherever they are, they hold nothing that the others want. */
static void threads_may_be_cancelled(void **state)
{
	struct rdma_pair pair;

	rdma_pair_open(&pair);
	for (int i = 0; i < IDS; i++) {
		pthread_t waiter, poller;

		assert_int_equal(
			pthread_create(&waiter, NULL, wait_for_an_event, pair.client_channel), 0);
		assert_int_equal(pthread_create(&poller, NULL, poll_for_ever, pair.client->recv_cq),
				 0);
		assert_int_equal(pthread_cancel(waiter), 0);
		assert_int_equal(pthread_cancel(poller), 0);
		assert_int_equal(pthread_join(waiter, NULL), 0);
		assert_int_equal(pthread_join(poller, NULL), 0);
	}
	rdma_pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_connections_leave_nothing),
		cmocka_unit_test(threads_share_a_channel_while_ids_go),
		cmocka_unit_test(threads_may_be_cancelled),
	};

	rdma_hosts();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
