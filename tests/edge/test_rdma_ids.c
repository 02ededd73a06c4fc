/* SPDX-License-Identifier: BSD-2-Clause */
/* Ids without a channel, ids that change their channel, endpoints, options, and calls in the wrong
 * state: the errno of the man page, and nothing changed. */
#include "rdma.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>

#define TEXT "as synchronous as can be"

static void expect_errno(int rc, int error)
{
	assert_int_equal(rc, -1);
	assert_int_equal(errno, error);
	errno = 0;
}

/* --- synchronous ids and endpoints ------------------------------------------------------- */

static struct rdma_addrinfo *look_up(bool passive, uint16_t port)
{
	struct sockaddr_in at = rdma_server_address(0), from = rdma_client_address(0);
	struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP},
			     *found;
	char host[INET_ADDRSTRLEN], service[8];

	inet_ntop(AF_INET, &at.sin_addr, host, sizeof(host));
	snprintf(service, sizeof(service), "%u", port);
	if (passive) {
		hints.ai_flags |= RAI_PASSIVE;
	} else {
		hints.ai_src_addr = (struct sockaddr *)&from;
		hints.ai_src_len = sizeof(from);
	}
	assert_int_equal(rdma_getaddrinfo(host, service, &hints, &found), 0);
	assert_int_equal(found->ai_qp_type, IBV_QPT_RC);
	assert_int_equal(found->ai_port_space, RDMA_PS_TCP);
	assert_int_equal(found->ai_family, AF_INET);
	assert_int_equal(found->ai_src_len, sizeof(struct sockaddr_in));
	assert_int_equal(found->ai_dst_len, passive ? 0 : sizeof(struct sockaddr_in));
	return found;
}

static struct ibv_qp_init_attr qp_attr(void)
{
	return (struct ibv_qp_init_attr){.cap = {4, 4, 1, 1, 64}, .sq_sig_all = 1};
}

static void *serve_one(void *listener)
{
	static char buffer[64];
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	assert_int_equal(rdma_get_request(listener, &id), 0);
	assert_non_null(id->qp);
	assert_non_null(id->recv_cq);
	mr = rdma_reg_msgs(id, buffer, sizeof(buffer));
	assert_non_null(mr);
	assert_int_equal(rdma_post_recv(id, NULL, buffer, sizeof(buffer), mr), 0);
	assert_int_equal(rdma_accept(id, NULL), 0);
	assert_int_equal(rdma_get_recv_comp(id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_string_equal(buffer, TEXT);
	assert_int_equal(rdma_post_send(id, NULL, buffer, wc.byte_len, mr, 0), 0);
	assert_int_equal(rdma_get_send_comp(id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(rdma_disconnect(id), 0);
	assert_int_equal(rdma_dereg_mr(mr), 0);
	rdma_destroy_ep(id);
	return NULL;
}

static void endpoints_do_all_at_once(void **state)
{
	struct rdma_addrinfo *passive = look_up(true, 0), *active;
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_cm_id *listener, *id;
	char buffer[64] = TEXT, back[64];
	struct ibv_mr *mr, *back_mr;
	pthread_t server;
	struct ibv_wc wc;

	assert_int_equal(rdma_create_ep(&listener, passive, NULL, &attr), 0);
	assert_int_equal(rdma_listen(listener, 0), 0);
	assert_int_equal(pthread_create(&server, NULL, serve_one, listener), 0);
	active = look_up(false, rdma_port(listener));
	attr = qp_attr();
	assert_int_equal(rdma_create_ep(&id, active, NULL, &attr), 0);
	mr = rdma_reg_msgs(id, buffer, sizeof(buffer));
	back_mr = rdma_reg_msgs(id, back, sizeof(back));
	assert_int_equal(rdma_post_recv(id, NULL, back, sizeof(back), back_mr), 0);
	assert_int_equal(rdma_connect(id, NULL), 0);
	assert_int_equal(rdma_post_send(id, NULL, buffer, sizeof(TEXT), mr, 0), 0);
	assert_int_equal(rdma_get_send_comp(id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(rdma_get_recv_comp(id, &wc), 1);
	assert_int_equal(wc.byte_len, sizeof(TEXT));
	assert_string_equal(back, TEXT);
	assert_int_equal(rdma_disconnect(id), 0);
	assert_int_equal(pthread_join(server, NULL), 0);
	assert_int_equal(rdma_dereg_mr(mr), 0);
	assert_int_equal(rdma_dereg_mr(back_mr), 0);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
	rdma_freeaddrinfo(passive);
	rdma_freeaddrinfo(active);
}

static void names_that_are_none(void **state)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST}, *found;

	expect_errno(rdma_getaddrinfo(NULL, NULL, NULL, &found), EINVAL);
	assert_int_not_equal(rdma_getaddrinfo("not-a-number", "7", &hints, &found), 0);
}

/* --- channels ---------------------------------------------------------------------------- */

static void ids_take_their_events_along(void **state)
{
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_pair pair;
	struct pollfd wait;

	rdma_pair_open(&pair);
	assert_int_equal(rdma_disconnect(pair.server), 0);
	wait = (struct pollfd){.fd = pair.client_channel->fd, .events = POLLIN};
	assert_int_equal(poll(&wait, 1, 20000), 1);
	assert_int_equal(rdma_migrate_id(pair.client, other), 0);
	assert_ptr_equal(pair.client->channel, other);
	assert_false(rdma_waits(pair.client_channel));
	event = rdma_expect(other, RDMA_CM_EVENT_DISCONNECTED);
	assert_ptr_equal(event->id, pair.client);
	rdma_ack_cm_event(event);
	/* without a channel it is synchronous; such an id cannot become it once more */
	assert_int_equal(rdma_migrate_id(pair.client, NULL), 0);
	expect_errno(rdma_migrate_id(pair.client, NULL), EINVAL);
	assert_int_equal(rdma_migrate_id(pair.client, other), 0);
	rdma_pair_close(&pair);
	rdma_destroy_event_channel(other);
}

static void channels_are_real_descriptors(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct pollfd wait = {.fd = channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;

	assert_int_equal(poll(&wait, 1, 0), 0);
	assert_int_equal(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
	expect_errno(rdma_get_cm_event(channel, &event), EAGAIN);
	expect_errno(rdma_get_cm_event(channel, NULL), EINVAL);
	expect_errno(rdma_ack_cm_event(NULL), EINVAL);
	rdma_destroy_event_channel(channel);
}

/* --- states and options ------------------------------------------------------------------ */

static void calls_in_the_wrong_state(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in own = rdma_client_address(0), server = rdma_server_address(7);
	struct sockaddr_in elsewhere = {.sin_family = AF_INET};
	struct sockaddr none = {.sa_family = AF_UNIX};
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_conn_param param = {.qp_num = 1};
	struct ibv_qp_attr qp = {.qp_state = IBV_QPS_RTR};
	struct rdma_cm_id *id;
	int mask;

	expect_errno(rdma_create_id(channel, &id, NULL, (enum rdma_port_space)1), EINVAL);
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	expect_errno(rdma_resolve_route(id, RDMA_MS), EINVAL);
	expect_errno(rdma_connect(id, &param), EINVAL);
	expect_errno(rdma_accept(id, &param), EINVAL);
	expect_errno(rdma_reject(id, NULL, 0), EINVAL);
	expect_errno(rdma_disconnect(id), EINVAL);
	expect_errno(rdma_establish(id), EINVAL);
	expect_errno(rdma_notify(id, IBV_EVENT_COMM_EST), EINVAL);
	expect_errno(rdma_create_qp(id, NULL, &attr), EINVAL);
	expect_errno(rdma_init_qp_attr(id, &qp, &mask), EINVAL);
	expect_errno(rdma_bind_addr(id, &none), EINVAL);
	expect_errno(rdma_bind_addr(id, NULL), EINVAL);
	expect_errno(rdma_resolve_addr(id, NULL, &none, RDMA_MS), EINVAL);
	inet_pton(AF_INET, "192.0.2.77", &elsewhere.sin_addr);
	expect_errno(rdma_bind_addr(id, (struct sockaddr *)&elsewhere), EADDRNOTAVAIL);
	assert_null(id->verbs);

	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&own), 0);
	assert_non_null(id->verbs);
	assert_int_not_equal(rdma_get_src_port(id), 0);
	expect_errno(rdma_bind_addr(id, (struct sockaddr *)&own), EINVAL);
	expect_errno(rdma_connect(id, &param), EINVAL);
	expect_errno(rdma_join_multicast(id, (struct sockaddr *)&server, NULL), EINVAL);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&server, RDMA_MS), 0);
	rdma_expect_status(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	expect_errno(rdma_resolve_addr(id, NULL, (struct sockaddr *)&server, RDMA_MS), EINVAL);
	expect_errno(rdma_listen(id, 1), EINVAL);
	assert_int_equal(rdma_resolve_route(id, RDMA_MS), 0);
	rdma_expect_status(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	expect_errno(rdma_connect(id, NULL), EINVAL); /* neither a queue pair nor its number */
	param.responder_resources = 200;
	expect_errno(rdma_connect(id, &param), EINVAL);
	assert_false(rdma_waits(channel));
	rdma_drop(id);
	rdma_destroy_event_channel(channel);
}

static void options_are_checked(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in own = rdma_client_address(0);
	struct rdma_cm_id *id, *datagram;
	uint8_t byte = 20;
	int yes = 1;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_create_id(channel, &datagram, NULL, RDMA_PS_UDP), 0);
	assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1), 0);
	expect_errno(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &yes, sizeof(yes)),
		     EINVAL);
	assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1),
			 0);
	expect_errno(
		rdma_set_option(datagram, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1),
		EINVAL);
	assert_int_equal(
		rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof(yes)), 0);
	expect_errno(rdma_set_option(id, RDMA_OPTION_ID, 99, &yes, sizeof(yes)), ENOSYS);
	expect_errno(rdma_set_option(id, 99, 0, &yes, sizeof(yes)), ENOSYS);
	expect_errno(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &yes, sizeof(yes)),
		     EINVAL);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&own), 0);
	expect_errno(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof(yes)),
		     EINVAL);
	rdma_drop(id);
	rdma_drop(datagram);
	rdma_destroy_event_channel(channel);
}

static void a_path_says_what_a_connection_gets(void **state)
{
	struct rdma_event_channel *server = rdma_create_event_channel(),
				  *client = rdma_create_event_channel();
	struct sockaddr_in from = rdma_client_address(0), to;
	struct rdma_cm_id *listener = rdma_listener(server, RDMA_PS_TCP, 0), *id, *request;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	struct rdma_conn_param param = {
		.qp_num = 0x123456, .responder_resources = 3, .initiator_depth = 2};
	uint8_t tos = 0x28, ack_timeout = 12;
	struct ibv_sa_path_rec *path;
	struct rdma_cm_event *event;
	int mask;

	to = rdma_server_address(rdma_port(listener));
	assert_int_equal(rdma_create_id(client, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1), 0);
	assert_int_equal(
		rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout, 1),
		0);
	assert_int_equal(
		rdma_resolve_addr(id, (struct sockaddr *)&from, (struct sockaddr *)&to, RDMA_MS),
		0);
	rdma_expect_status(client, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	assert_int_equal(rdma_resolve_route(id, RDMA_MS), 0);
	rdma_expect_status(client, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	assert_int_equal(id->route.num_paths, 1);
	path = id->route.path_rec;
	assert_int_equal(path->traffic_class, tos);
	assert_int_equal(path->packet_life_time, ack_timeout - 1);
	assert_int_equal(path->pkey, 0xffff);
	assert_int_equal(path->mtu, IBV_MTU_4096);
	assert_memory_equal(&path->dgid.raw[12], &to.sin_addr, 4);
	assert_memory_equal(&path->sgid.raw[12], &from.sin_addr, 4);

	assert_int_equal(rdma_connect(id, &param), 0);
	event = rdma_expect(server, RDMA_CM_EVENT_CONNECT_REQUEST);
	request = event->id;
	/* as the other side is to use them: what it may ask of us, and what we may ask of it */
	assert_int_equal(event->param.conn.responder_resources, 2);
	assert_int_equal(event->param.conn.initiator_depth, 3);
	assert_int_equal(event->param.conn.qp_num, 0x123456);
	rdma_ack_cm_event(event);
	assert_int_equal(rdma_init_qp_attr(request, &attr, &mask), 0);
	assert_int_equal(mask,
			 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	assert_int_equal(attr.qp_access_flags, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
						       IBV_ACCESS_REMOTE_ATOMIC);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(rdma_init_qp_attr(request, &attr, &mask), 0);
	assert_int_equal(attr.dest_qp_num, 0x123456);
	assert_int_equal(attr.max_dest_rd_atomic, 2); /* what the requester may have under way */
	assert_int_equal(attr.ah_attr.grh.traffic_class, tos);
	assert_memory_equal(&attr.ah_attr.grh.dgid.raw[12], &from.sin_addr, 4);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(rdma_init_qp_attr(request, &attr, &mask), 0);
	assert_int_equal(attr.max_rd_atomic, 3);
	attr.qp_state = IBV_QPS_RTR; /* the requester knows nothing of the peer yet */
	expect_errno(rdma_init_qp_attr(id, &attr, &mask), EINVAL);
	rdma_drop(request);
	rdma_drop(id);
	rdma_drop(listener);
	rdma_destroy_event_channel(server);
	rdma_destroy_event_channel(client);
}

/* --- the end of a connection ------------------------------------------------------------- */

static void disconnecting_flushes_both_ends(void **state)
{
	struct rdma_pair pair;
	struct ibv_recv_wr *bad, wr = {.wr_id = 7};
	struct ibv_wc wc;

	rdma_pair_open(&pair);
	assert_int_equal(ibv_post_recv(pair.server->qp, &wr, &bad), 0);
	assert_int_equal(ibv_post_recv(pair.client->qp, &wr, &bad), 0);
	assert_int_equal(rdma_disconnect(pair.client), 0);
	wc = edge_wait(pair.client->recv_cq);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	rdma_expect_status(pair.server_channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	assert_int_equal(rdma_disconnect(pair.server), 0);
	wc = edge_wait(pair.server->recv_cq);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	rdma_expect_status(pair.client_channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	assert_int_equal(rdma_disconnect(pair.client), 0); /* once more does no harm */
	rdma_pair_close(&pair);
}

static void both_ends_may_disconnect_at_once(void **state)
{
	struct rdma_pair pair;

	rdma_pair_open(&pair);
	assert_int_equal(rdma_disconnect(pair.client), 0);
	assert_int_equal(rdma_disconnect(pair.server), 0);
	rdma_expect_status(pair.client_channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	rdma_expect_status(pair.server_channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	rdma_pair_close(&pair);
}

static void dropping_an_end_disconnects_the_other(void **state)
{
	struct rdma_pair pair;

	rdma_pair_open(&pair);
	rdma_drop(pair.server);
	rdma_expect_status(pair.client_channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	rdma_drop(pair.client);
	rdma_drop(pair.listener);
	rdma_destroy_event_channel(pair.client_channel);
	rdma_destroy_event_channel(pair.server_channel);
}

static void without_queue_pairs_programs_establish(void **state)
{
	struct rdma_event_channel *server = rdma_create_event_channel(),
				  *client = rdma_create_event_channel();
	struct rdma_cm_id *listener = rdma_listener(server, RDMA_PS_TCP, 0), *id, *request;
	struct rdma_conn_param param = {.qp_num = 0xabc};
	struct rdma_cm_event *event;

	id = rdma_routed(client, RDMA_PS_TCP, rdma_port(listener));
	assert_int_equal(rdma_connect(id, &param), 0);
	request = rdma_take_request(server);
	param.qp_num = 0xdef;
	assert_int_equal(rdma_accept(request, &param), 0);
	event = rdma_expect(client, RDMA_CM_EVENT_CONNECT_RESPONSE);
	assert_int_equal(event->param.conn.qp_num, 0xdef);
	rdma_ack_cm_event(event);
	assert_int_equal(rdma_establish(id), 0);
	rdma_expect_status(server, RDMA_CM_EVENT_ESTABLISHED, 0);
	expect_errno(rdma_establish(id), EINVAL);
	rdma_drop(id);
	rdma_expect_status(server, RDMA_CM_EVENT_DISCONNECTED, 0);
	rdma_drop(request);
	rdma_drop(listener);
	rdma_destroy_event_channel(server);
	rdma_destroy_event_channel(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(endpoints_do_all_at_once),
		cmocka_unit_test(names_that_are_none),
		cmocka_unit_test(ids_take_their_events_along),
		cmocka_unit_test(channels_are_real_descriptors),
		cmocka_unit_test(calls_in_the_wrong_state),
		cmocka_unit_test(options_are_checked),
		cmocka_unit_test(a_path_says_what_a_connection_gets),
		cmocka_unit_test(disconnecting_flushes_both_ends),
		cmocka_unit_test(both_ends_may_disconnect_at_once),
		cmocka_unit_test(dropping_an_end_disconnects_the_other),
		cmocka_unit_test(without_queue_pairs_programs_establish),
	};

	rdma_hosts();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
