/* SPDX-License-Identifier: BSD-2-Clause */
/* Private data: as much as fits arrives, zeros behind it; a byte more is EINVAL, and nothing is
 * sent. The sizes are what the messages hold (IBTA 12.6.5, 12.6.7, 12.6.8, 12.11.1) less the 36
 * bytes of the IP header (annex A11) in those that ask. */
#include "rdma.h"

struct sizes {
	enum rdma_port_space ps;
	uint8_t connect, accept, reject;
};

static const struct sizes sizes_of[] = {
	{RDMA_PS_TCP, 56, 196, 148},
	{RDMA_PS_UDP, 180, 136, 136},
};

struct ends {
	struct rdma_event_channel *server, *client;
	struct rdma_cm_id *listener;
	const struct sizes *sizes;
};

static uint8_t text[256];

static void open_ends(struct ends *ends, const struct sizes *sizes)
{
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)(i * 7 + 1);
	ends->sizes = sizes;
	ends->server = rdma_create_event_channel();
	ends->client = rdma_create_event_channel();
	ends->listener = rdma_listener(ends->server, sizes->ps, 0);
}

static void close_ends(struct ends *ends)
{
	rdma_drop(ends->listener);
	assert_false(rdma_waits(ends->server));
	assert_false(rdma_waits(ends->client));
	rdma_destroy_event_channel(ends->server);
	rdma_destroy_event_channel(ends->client);
}

static struct rdma_conn_param with(uint8_t len)
{
	return (struct rdma_conn_param){
		.private_data = text, .private_data_len = len, .qp_num = 0x123456};
}

static void expect_text(const struct rdma_cm_event *event, uint8_t field, uint8_t sent)
{
	bool ud = event->id->qp_type == IBV_QPT_UD;
	const uint8_t *data = ud ? event->param.ud.private_data : event->param.conn.private_data;
	uint8_t len = ud ? event->param.ud.private_data_len : event->param.conn.private_data_len;

	assert_int_equal(len, field);
	assert_non_null(data);
	assert_memory_equal(data, text, sent);
	for (uint8_t i = sent; i < field; i++)
		assert_int_equal(data[i], 0);
}

/* A request with len bytes comes as it was sent. */
static struct rdma_cm_id *ask(struct ends *ends, struct rdma_cm_id *id, uint8_t len)
{
	struct rdma_conn_param param = with(len);
	struct rdma_cm_event *event;
	struct rdma_cm_id *request;

	assert_int_equal(rdma_connect(id, &param), 0);
	event = rdma_expect(ends->server, RDMA_CM_EVENT_CONNECT_REQUEST);
	expect_text(event, ends->sizes->connect, len);
	assert_ptr_equal(event->listen_id, ends->listener);
	request = event->id;
	rdma_ack_cm_event(event);
	return request;
}

static struct rdma_cm_id *routed(struct ends *ends)
{
	struct rdma_cm_id *id =
		rdma_routed(ends->client, ends->sizes->ps, rdma_port(ends->listener));

	rdma_give_qp(id);
	return id;
}

static void accept_with(struct ends *ends, uint8_t asked, uint8_t len)
{
	struct rdma_cm_id *id = routed(ends), *request = ask(ends, id, asked);
	struct rdma_conn_param good = with(len), bad = with((uint8_t)(ends->sizes->accept + 1));
	struct rdma_cm_event *event;

	rdma_give_qp(request);
	errno = 0;
	assert_int_equal(rdma_accept(request, &bad), -1);
	assert_int_equal(errno, EINVAL);
	assert_false(rdma_waits(ends->client));
	assert_int_equal(rdma_accept(request, &good), 0);
	event = rdma_expect(ends->client, RDMA_CM_EVENT_ESTABLISHED);
	expect_text(event, ends->sizes->accept, len);
	rdma_ack_cm_event(event);
	if (ends->sizes->ps == RDMA_PS_TCP)
		rdma_expect_status(ends->server, RDMA_CM_EVENT_ESTABLISHED, 0);
	rdma_drop(request);
	if (ends->sizes->ps == RDMA_PS_TCP)
		rdma_expect_status(ends->client, RDMA_CM_EVENT_DISCONNECTED, 0);
	rdma_drop(id);
}

static void reject_with(struct ends *ends, uint8_t len)
{
	struct rdma_cm_id *id = routed(ends), *request = ask(ends, id, 1);
	struct rdma_cm_event *event;

	errno = 0;
	assert_int_equal(rdma_reject(request, text, (uint8_t)(ends->sizes->reject + 1)), -1);
	assert_int_equal(errno, EINVAL);
	assert_false(rdma_waits(ends->client));
	assert_int_equal(rdma_reject(request, text, len), 0);
	if (ends->sizes->ps == RDMA_PS_TCP) {
		event = rdma_expect(ends->client, RDMA_CM_EVENT_REJECTED);
		assert_int_equal(event->status, 28);
	} else {
		event = rdma_expect(ends->client, RDMA_CM_EVENT_UNREACHABLE);
		assert_int_equal(event->status, 2);
	}
	expect_text(event, ends->sizes->reject, len);
	rdma_ack_cm_event(event);
	rdma_drop(request);
	rdma_drop(id);
}

static void refuse_to_ask(struct ends *ends)
{
	struct rdma_conn_param param = with((uint8_t)(ends->sizes->connect + 1));
	struct rdma_cm_id *id = routed(ends), *request;

	errno = 0;
	assert_int_equal(rdma_connect(id, &param), -1);
	assert_int_equal(errno, EINVAL);
	/* the id is as it was, and the first request to come is the good one */
	request = ask(ends, id, ends->sizes->connect);
	rdma_drop(id);
	rdma_drop(request);
}

static void check(const struct sizes *sizes)
{
	struct ends ends;

	open_ends(&ends, sizes);
	refuse_to_ask(&ends);
	accept_with(&ends, 0, 0);
	accept_with(&ends, 1, 1);
	accept_with(&ends, sizes->connect, sizes->accept);
	reject_with(&ends, 0);
	reject_with(&ends, sizes->reject);
	close_ends(&ends);
}

static void of_connections(void **state)
{
	check(&sizes_of[0]);
}

static void of_datagram_services(void **state)
{
	check(&sizes_of[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_connections),
		cmocka_unit_test(of_datagram_services),
	};

	rdma_hosts();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
