/* SPDX-License-Identifier: BSD-2-Clause */
/* Ports belong to the host: a second listener is refused in this process and in another, a listener
 * that was killed frees its port, a full backlog loses requests and does not refuse them, and where
 * nobody listens the answer says so. */
#include "rdma.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY_LISTENS 8 /* REJ reason: invalid service ID */

static int bind_to(struct rdma_cm_id *id, struct sockaddr_in at)
{
	errno = 0;
	return rdma_bind_addr(id, (struct sockaddr *)&at);
}

static struct rdma_cm_id *new_id(void)
{
	static struct rdma_event_channel *channel;
	struct rdma_cm_id *id;

	if (!channel)
		channel = rdma_create_event_channel();
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	return id;
}

static void expect_in_use(struct sockaddr_in at)
{
	struct rdma_cm_id *id = new_id();

	assert_int_equal(bind_to(id, at), -1);
	assert_int_equal(errno, EADDRINUSE);
	rdma_drop(id);
}

static void a_second_listener_is_refused(void **state)
{
	struct rdma_cm_id *first = new_id(), *other_space;
	struct sockaddr_in at = rdma_server_address(0), anywhere = {.sin_family = AF_INET};

	assert_int_equal(bind_to(first, at), 0);
	at.sin_port = anywhere.sin_port = rdma_get_src_port(first);
	assert_int_equal(rdma_listen(first, 1), 0);
	expect_in_use(at);
	expect_in_use(anywhere);
	assert_int_equal(rdma_create_id(first->channel, &other_space, NULL, RDMA_PS_UDP), 0);
	assert_int_equal(bind_to(other_space, at), 0);
	rdma_drop(other_space);
	rdma_drop(first);
	first = new_id();
	assert_int_equal(bind_to(first, anywhere), 0);
	expect_in_use(at);
	rdma_drop(first);
}

static void reused_addresses_have_one_listener(void **state)
{
	struct rdma_cm_id *first = new_id(), *second = new_id();
	struct sockaddr_in at = rdma_server_address(0);
	int yes = 1;

	assert_int_equal(
		rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof(yes)),
		0);
	assert_int_equal(bind_to(first, at), 0);
	at.sin_port = rdma_get_src_port(first);
	assert_int_equal(bind_to(second, at), -1);
	assert_int_equal(errno, EADDRINUSE);
	assert_int_equal(rdma_set_option(second, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes,
					 sizeof(yes)),
			 0);
	assert_int_equal(bind_to(second, at), 0);
	expect_in_use(at); /* the one who does not say so */
	assert_int_equal(rdma_listen(first, 1), -1);
	assert_int_equal(errno, EADDRINUSE);
	rdma_drop(second);
	assert_int_equal(rdma_listen(first, 1), 0);
	rdma_drop(first);

	/* nor may one come to a port whose owner does not */
	first = new_id();
	second = new_id();
	at.sin_port = 0;
	assert_int_equal(bind_to(first, at), 0);
	at.sin_port = rdma_get_src_port(first);
	assert_int_equal(rdma_set_option(second, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes,
					 sizeof(yes)),
			 0);
	assert_int_equal(bind_to(second, at), -1);
	assert_int_equal(errno, EADDRINUSE);
	rdma_drop(second);
	rdma_drop(first);
}

/* A process of its own that listens there until it is killed. */
static pid_t listen_elsewhere(struct sockaddr_in at, int *error)
{
	int pipe_ends[2];
	pid_t child;

	assert_int_equal(pipe(pipe_ends), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct rdma_cm_id *id;
		int rc;

		rc = rdma_create_id(rdma_create_event_channel(), &id, NULL, RDMA_PS_TCP);
		if (rc == 0)
			rc = rdma_bind_addr(id, (struct sockaddr *)&at);
		if (rc == 0)
			rc = rdma_listen(id, 1);
		rc = rc ? errno : 0;
		if (write(pipe_ends[1], &rc, sizeof(rc)) == sizeof(rc))
			pause();
		_exit(1);
	}
	assert_int_equal(read(pipe_ends[0], error, sizeof(*error)), sizeof(*error));
	close(pipe_ends[0]);
	close(pipe_ends[1]);
	return child;
}

static void end(pid_t child)
{
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
}

static void a_killed_listener_frees_its_port(void **state)
{
	struct rdma_cm_id *id = new_id();
	struct sockaddr_in at = rdma_server_address(0);
	pid_t child;
	int error;

	assert_int_equal(bind_to(id, at), 0);
	at.sin_port = rdma_get_src_port(id);
	child = listen_elsewhere(at, &error);
	assert_int_equal(error, EADDRINUSE);
	end(child);
	rdma_drop(id);

	child = listen_elsewhere(at, &error);
	assert_int_equal(error, 0);
	expect_in_use(at);
	end(child);
	id = new_id();
	assert_int_equal(bind_to(id, at), 0);
	assert_int_equal(rdma_listen(id, 1), 0);
	rdma_drop(id);
}

static void nobody_listens(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_conn_param param = {.qp_num = 1};
	struct sockaddr_in from = rdma_client_address(0), to = rdma_server_address(0);
	struct rdma_cm_id *bound = new_id(), *id;

	/* a port that is taken, by somebody who does not listen */
	assert_int_equal(bind_to(bound, to), 0);
	to.sin_port = rdma_get_src_port(bound);
	id = rdma_routed(channel, RDMA_PS_TCP, ntohs(to.sin_port));
	assert_int_equal(rdma_connect(id, &param), 0);
	rdma_expect_status(channel, RDMA_CM_EVENT_REJECTED, NOBODY_LISTENS);
	rdma_drop(id);

	id = rdma_routed(channel, RDMA_PS_UDP, ntohs(to.sin_port));
	assert_int_equal(rdma_connect(id, &param), 0);
	rdma_expect_status(channel, RDMA_CM_EVENT_UNREACHABLE, 1);
	rdma_drop(id);

	assert_int_equal(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(
		rdma_resolve_addr(id, (struct sockaddr *)&from, (struct sockaddr *)&to, RDMA_MS),
		0);
	assert_int_equal(rdma_resolve_route(id, RDMA_MS), 0);
	errno = 0;
	assert_int_equal(rdma_connect(id, &param), -1);
	assert_int_equal(errno, ECONNREFUSED);
	rdma_drop(id);
	rdma_drop(bound);
	rdma_destroy_event_channel(channel);
}

/* Messages of one host to another arrive in order: what was sent before has been seen by now. */
static void wait_until_seen(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_conn_param param = {.qp_num = 1};
	struct rdma_cm_id *id = rdma_routed(channel, RDMA_PS_TCP, 1);

	assert_int_equal(rdma_connect(id, &param), 0);
	rdma_expect_status(channel, RDMA_CM_EVENT_REJECTED, NOBODY_LISTENS);
	rdma_drop(id);
	rdma_destroy_event_channel(channel);
}

static void a_full_backlog_takes_the_next_attempt(void **state)
{
	struct rdma_event_channel *server = rdma_create_event_channel(),
				  *client = rdma_create_event_channel();
	struct rdma_cm_id *listener = rdma_listener(server, RDMA_PS_TCP, 1), *clients[2],
			  *requests[2];

	for (int i = 0; i < 2; i++) {
		clients[i] = rdma_routed(client, RDMA_PS_TCP, rdma_port(listener));
		rdma_give_qp(clients[i]);
		assert_int_equal(rdma_connect(clients[i], NULL), 0);
	}
	wait_until_seen();
	requests[0] = rdma_take_request(server);
	assert_false(rdma_waits(server)); /* the other was lost */
	requests[1] = rdma_take_request(server);
	for (int i = 0; i < 2; i++) {
		rdma_give_qp(requests[i]);
		assert_int_equal(rdma_accept(requests[i], NULL), 0);
		rdma_expect_status(client, RDMA_CM_EVENT_ESTABLISHED, 0);
		rdma_expect_status(server, RDMA_CM_EVENT_ESTABLISHED, 0);
	}
	for (int i = 0; i < 2; i++) {
		rdma_drop(clients[i]);
		rdma_drop(requests[i]);
	}
	rdma_drop(listener);
	rdma_destroy_event_channel(server);
	rdma_destroy_event_channel(client);
}

static void a_wildcard_listener_hears_every_device(void **state)
{
	struct rdma_event_channel *server = rdma_create_event_channel(),
				  *client = rdma_create_event_channel();
	struct sockaddr_in6 anywhere = {.sin6_family = AF_INET6};
	struct rdma_conn_param param = {.qp_num = 0x123456};
	struct rdma_cm_id *listener, *id, *request;
	struct sockaddr_in *peer, *own;

	assert_int_equal(rdma_create_id(server, &listener, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(listener, (struct sockaddr *)&anywhere), 0);
	assert_null(listener->verbs);
	assert_int_equal(rdma_listen(listener, 1), 0);
	id = rdma_routed(client, RDMA_PS_TCP, rdma_port(listener));
	assert_int_equal(rdma_connect(id, &param), 0);
	request = rdma_take_request(server);
	assert_non_null(request->verbs);
	assert_int_equal(request->port_num, 1);
	assert_int_equal(request->route.num_paths, 1);
	own = (struct sockaddr_in *)rdma_get_local_addr(request);
	peer = (struct sockaddr_in *)rdma_get_peer_addr(request);
	assert_int_equal(own->sin_family, AF_INET);
	assert_int_equal(own->sin_addr.s_addr, rdma_server_address(0).sin_addr.s_addr);
	assert_int_equal(own->sin_port, rdma_get_src_port(listener));
	assert_int_equal(peer->sin_addr.s_addr, rdma_client_address(0).sin_addr.s_addr);
	assert_int_equal(peer->sin_port, rdma_get_src_port(id));
	rdma_drop(request);
	rdma_expect_status(client, RDMA_CM_EVENT_REJECTED, 28);
	rdma_drop(id);
	rdma_drop(listener);
	rdma_destroy_event_channel(server);
	rdma_destroy_event_channel(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_second_listener_is_refused),
		cmocka_unit_test(reused_addresses_have_one_listener),
		cmocka_unit_test(a_killed_listener_frees_its_port),
		cmocka_unit_test(nobody_listens),
		cmocka_unit_test(a_full_backlog_takes_the_next_attempt),
		cmocka_unit_test(a_wildcard_listener_hears_every_device),
	};

	rdma_hosts();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
