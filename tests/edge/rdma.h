/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma.h - ids of librdmacm for the tests of situations, through its public API alone.
 *
 * Both ends live in one process. VB_EDGE_TOPOLOGY says how they are joined, as for edge.h: "local"
 * (client and server share a device) or "wire" (two virtual hosts). Every helper fails the running
 * cmocka test when the library refuses something it must accept.
 */
#ifndef VB_TESTS_RDMA_H
#define VB_TESTS_RDMA_H

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "edge.h"

#define RDMA_MS 2000 /* for addresses and routes */

/* rdma_hosts - names the process's devices; the first call counts. */
void rdma_hosts(void);
/* rdma_server_address, rdma_client_address - with this port, host order. */
struct sockaddr_in rdma_server_address(uint16_t port);
struct sockaddr_in rdma_client_address(uint16_t port);

/* rdma_listener - bound to the server's address and listening. */
struct rdma_cm_id *rdma_listener(struct rdma_event_channel *channel, enum rdma_port_space ps,
				 int backlog);
uint16_t rdma_port(struct rdma_cm_id *id); /* its own, host order */

/* rdma_expect - the channel's next event (20 s at most), which must be that; to be acknowledged. */
struct rdma_cm_event *rdma_expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type);
/* rdma_expect_status - the same with a status; acknowledges it. */
void rdma_expect_status(struct rdma_event_channel *channel, enum rdma_cm_event_type type,
			int status);
/* rdma_waits - whether the channel has an event now. */
bool rdma_waits(struct rdma_event_channel *channel);
/* rdma_take_request - the id of the next CONNECT_REQUEST, whose event is acknowledged. */
struct rdma_cm_id *rdma_take_request(struct rdma_event_channel *channel);

/* rdma_routed - an id of the client that may connect to the server's port. */
struct rdma_cm_id *rdma_routed(struct rdma_event_channel *channel, enum rdma_port_space ps,
			       uint16_t port);
/* rdma_give_qp - a queue pair with CQs of its own. */
void rdma_give_qp(struct rdma_cm_id *id);
/* rdma_drop - its queue pair and the id. */
void rdma_drop(struct rdma_cm_id *id);

/* struct rdma_pair - a connection, each end on a channel of its own. */
struct rdma_pair {
	struct rdma_event_channel *server_channel, *client_channel;
	struct rdma_cm_id *listener, *server, *client;
};
void rdma_pair_open(struct rdma_pair *pair);
void rdma_pair_close(struct rdma_pair *pair);

#endif
