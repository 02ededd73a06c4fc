/* SPDX-License-Identifier: BSD-2-Clause */
/* rdma.c - see rdma.h. */
#include "rdma.h"

#include <poll.h>
#include <unistd.h>

#define WAIT_MS 20000

static bool two_hosts(void)
{
	const char *topology = getenv("VB_EDGE_TOPOLOGY");

	assert_non_null(topology);
	return strcmp(topology, "wire") == 0;
}

/* Addresses of this process's own, as edge.c's: others end in .4 and .5. */
static struct in_addr host(unsigned int last)
{
	unsigned int high = 64 + (unsigned int)getpid() / 256 % 64,
		     low = (unsigned int)getpid() % 256;

	return (struct in_addr){htonl(127u << 24 | high << 16 | low << 8 | last)};
}

static struct in_addr server_host, client_host;

void rdma_hosts(void)
{
	char server[INET_ADDRSTRLEN], client[INET_ADDRSTRLEN], both[2 * INET_ADDRSTRLEN];

	if (server_host.s_addr)
		return;
	server_host = host(6);
	client_host = host(two_hosts() ? 7 : 6);
	inet_ntop(AF_INET, &server_host, server, sizeof(server));
	inet_ntop(AF_INET, &client_host, client, sizeof(client));
	snprintf(both, sizeof(both), "%s,%s", server, client);
	setenv("VERBENA_ADDR", two_hosts() ? both : server, 1);
}

static struct sockaddr_in address(struct in_addr at, uint16_t port)
{
	rdma_hosts();
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = at, .sin_port = htons(port)};
}

struct sockaddr_in rdma_server_address(uint16_t port)
{
	rdma_hosts();
	return address(server_host, port);
}

struct sockaddr_in rdma_client_address(uint16_t port)
{
	rdma_hosts();
	return address(client_host, port);
}

uint16_t rdma_port(struct rdma_cm_id *id)
{
	return ntohs(rdma_get_src_port(id));
}

struct rdma_cm_id *rdma_listener(struct rdma_event_channel *channel, enum rdma_port_space ps,
				 int backlog)
{
	struct sockaddr_in at = rdma_server_address(0);
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(channel, &id, NULL, ps), 0);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&at), 0);
	assert_int_equal(rdma_listen(id, backlog), 0);
	assert_int_not_equal(rdma_port(id), 0);
	return id;
}

bool rdma_waits(struct rdma_event_channel *channel)
{
	struct pollfd wait = {.fd = channel->fd, .events = POLLIN};

	return poll(&wait, 1, 0) == 1;
}

struct rdma_cm_event *rdma_expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct pollfd wait = {.fd = channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;

	assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
	assert_int_equal(rdma_get_cm_event(channel, &event), 0);
	if (event->event != type)
		print_error("%s (status %d), expected %s\n", rdma_event_str(event->event),
			    event->status, rdma_event_str(type));
	assert_int_equal(event->event, type);
	return event;
}

void rdma_expect_status(struct rdma_event_channel *channel, enum rdma_cm_event_type type,
			int status)
{
	struct rdma_cm_event *event = rdma_expect(channel, type);

	assert_int_equal(event->status, status);
	assert_int_equal(rdma_ack_cm_event(event), 0);
}

struct rdma_cm_id *rdma_take_request(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event = rdma_expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;

	assert_int_equal(event->status, 0);
	assert_int_equal(rdma_ack_cm_event(event), 0);
	return id;
}

struct rdma_cm_id *rdma_routed(struct rdma_event_channel *channel, enum rdma_port_space ps,
			       uint16_t port)
{
	struct sockaddr_in from = rdma_client_address(0), to = rdma_server_address(port);
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(channel, &id, NULL, ps), 0);
	assert_int_equal(
		rdma_resolve_addr(id, (struct sockaddr *)&from, (struct sockaddr *)&to, RDMA_MS),
		0);
	if (channel)
		rdma_expect_status(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	assert_int_equal(rdma_resolve_route(id, RDMA_MS), 0);
	if (channel)
		rdma_expect_status(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	return id;
}

void rdma_give_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = {16, 16, 2, 2, 64},
		.qp_type = id->qp_type,
		.sq_sig_all = 1,
	};

	assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
}

void rdma_drop(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
}

void rdma_pair_open(struct rdma_pair *pair)
{
	rdma_hosts();
	pair->server_channel = rdma_create_event_channel();
	pair->client_channel = rdma_create_event_channel();
	assert_non_null(pair->server_channel);
	assert_non_null(pair->client_channel);
	pair->listener = rdma_listener(pair->server_channel, RDMA_PS_TCP, 0);
	pair->client = rdma_routed(pair->client_channel, RDMA_PS_TCP, rdma_port(pair->listener));
	rdma_give_qp(pair->client);
	assert_int_equal(rdma_connect(pair->client, NULL), 0);
	pair->server = rdma_take_request(pair->server_channel);
	rdma_give_qp(pair->server);
	assert_int_equal(rdma_accept(pair->server, NULL), 0);
	rdma_expect_status(pair->client_channel, RDMA_CM_EVENT_ESTABLISHED, 0);
	rdma_expect_status(pair->server_channel, RDMA_CM_EVENT_ESTABLISHED, 0);
}

void rdma_pair_close(struct rdma_pair *pair)
{
	rdma_drop(pair->client);
	rdma_drop(pair->server);
	rdma_drop(pair->listener);
	rdma_destroy_event_channel(pair->client_channel);
	rdma_destroy_event_channel(pair->server_channel);
}
