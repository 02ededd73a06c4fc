/* SPDX-License-Identifier: BSD-2-Clause */
/* A peer that is killed says nothing: whoever only waits for it learns all the same, from its
 * channel and from its receives. */
#include "rdma.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_MS 90000

/* A process that connects to the port which it reads, says so, and is there until it is killed. */
static void be_a_client(int in, int out)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	uint16_t port;

	if (read(in, &port, sizeof(port)) != sizeof(port))
		_exit(1);
	channel = rdma_create_event_channel();
	id = rdma_routed(channel, RDMA_PS_TCP, port);
	rdma_give_qp(id);
	assert_int_equal(rdma_connect(id, NULL), 0);
	rdma_expect_status(channel, RDMA_CM_EVENT_ESTABLISHED, 0);
	if (write(out, &port, sizeof(port)) == sizeof(port))
		pause();
	_exit(1);
}

static void a_killed_peer_is_noticed(void **state)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener, *id;
	struct ibv_recv_wr *bad, wr = {.wr_id = 7};
	int to_child[2], from_child[2];
	struct pollfd wait;
	uint16_t port;
	pid_t child;

	assert_int_equal(pipe(to_child), 0);
	assert_int_equal(pipe(from_child), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		be_a_client(to_child[0], from_child[1]);
	channel = rdma_create_event_channel();
	listener = rdma_listener(channel, RDMA_PS_TCP, 1);
	port = rdma_port(listener);
	assert_int_equal(write(to_child[1], &port, sizeof(port)), sizeof(port));
	id = rdma_take_request(channel);
	rdma_give_qp(id);
	assert_int_equal(ibv_post_recv(id->qp, &wr, &bad), 0);
	assert_int_equal(rdma_accept(id, NULL), 0);
	rdma_expect_status(channel, RDMA_CM_EVENT_ESTABLISHED, 0);
	assert_int_equal(read(from_child[0], &port, sizeof(port)), sizeof(port));

	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	wait = (struct pollfd){.fd = channel->fd, .events = POLLIN};
	assert_int_equal(poll(&wait, 1, LIMIT_MS), 1);
	rdma_expect_status(channel, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT);
	assert_int_equal(edge_wait(id->recv_cq).status, IBV_WC_WR_FLUSH_ERR);
	rdma_drop(id);
	rdma_drop(listener);
	rdma_destroy_event_channel(channel);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_killed_peer_is_noticed),
	};

	rdma_hosts();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
