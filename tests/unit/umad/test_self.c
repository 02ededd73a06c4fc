/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_self.c - a port's own management agents, and how requests are sent, received, and given up.
 */
#include "fixture.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DIRECTION 0x8000u
#define STATUS_BAD_VERSION 0x04
#define STATUS_BAD_ATTRIBUTE 0x0c
#define STATUS_BAD_VALUE 0x1c
#define NODE_DESCRIPTION 0x10
#define NODE_INFO 0x11
#define SWITCH_INFO 0x12
#define GUID_INFO 0x14
#define PORT_INFO 0x15
#define PKEY_TABLE 0x16
#define PORT_COUNTERS 0x12
#define PORT_COUNTERS_EXTENDED 0x1d
#define DATA_AT 64

static int port, subnet, directed, performance;

static int open_port(void **state)
{
	port = umad_open_port("verbena0", 1);
	subnet = umad_register(port, UMAD_CLASS_SUBN_LID_ROUTED, 1, 0, NULL);
	directed = umad_register(port, UMAD_CLASS_SUBN_DIRECTED_ROUTE, 1, 0, NULL);
	performance = umad_register(port, UMAD_CLASS_PERF_MGMT, 1, 0, NULL);
	return port < 0 || subnet < 0 || directed < 0 || performance < 0;
}

static int close_port(void **state)
{
	return umad_close_port(port);
}

static struct mad ask_directed(uint16_t attribute, uint32_t modifier)
{
	struct mad mad = request(UMAD_CLASS_SUBN_DIRECTED_ROUTE, attribute, modifier, 77);

	return ask(port, directed, &mad);
}

/* One hop further than the port, where nobody is. */
static struct mad into_the_void(uint32_t tid)
{
	struct mad mad = request(UMAD_CLASS_SUBN_DIRECTED_ROUTE, NODE_INFO, 0, tid);

	set_field(&mad, 7, 1, 1);
	return mad;
}

/* --- subnet management ------------------------------------------------------------------- */

static void test_node_info(void **state)
{
	struct mad answer = ask_directed(NODE_INFO, 0);
	umad_ca_t ca;

	assert_int_equal(umad_get_ca("verbena0", &ca), 0);
	assert_int_equal(field(&answer, 4, 2), DIRECTION);
	assert_int_equal(field(&answer, DATA_AT, 4), 0x01010101); /* versions, a CA of one port */
	assert_int_equal(field(&answer, DATA_AT + 4, 8), be64toh(ca.system_guid));
	assert_int_equal(field(&answer, DATA_AT + 12, 8), be64toh(ca.node_guid));
	assert_int_equal(field(&answer, DATA_AT + 20, 8), be64toh(ca.ports[1]->port_guid));
	assert_int_equal(field(&answer, DATA_AT + 28, 2), ca.ports[1]->pkeys_size);
	assert_int_equal(field(&answer, DATA_AT + 36, 1), 1); /* local port */
	umad_release_ca(&ca);
}

static void test_lid_routed_is_the_same(void **state)
{
	struct mad mad = request(UMAD_CLASS_SUBN_LID_ROUTED, NODE_INFO, 0, 78), routed, other;

	routed = ask_directed(NODE_INFO, 0);
	other = ask(port, subnet, &mad);
	assert_int_equal(field(&other, 4, 2), 0); /* no direction */
	assert_memory_equal(other.bytes + DATA_AT, routed.bytes + DATA_AT, 64);
}

static void test_port_info(void **state)
{
	struct mad answer = ask_directed(PORT_INFO, 1), same = ask_directed(PORT_INFO, 0);

	assert_int_equal(field(&answer, 4, 2), DIRECTION);
	assert_memory_equal(answer.bytes + DATA_AT, same.bytes + DATA_AT, 64);
	assert_int_equal(field(&answer, DATA_AT + 8, 8), 0xfe80ull << 48);
	assert_int_equal(field(&answer, DATA_AT + 16, 4), 0); /* LIDs */
	assert_int_equal(field(&answer, DATA_AT + 32, 1) & 0xf, 4);
	assert_int_equal(field(&answer, DATA_AT + 33, 1) >> 4, 5);
	assert_int_equal(field(&answer, DATA_AT + 36, 1) >> 4, 5); /* MTU 4096 */
	answer = ask_directed(PORT_INFO, 2);
	assert_int_equal(field(&answer, 4, 2), DIRECTION | STATUS_BAD_VALUE);
}

static void test_tables_and_words(void **state)
{
	struct mad node = ask_directed(NODE_INFO, 0), answer = ask_directed(GUID_INFO, 0);

	assert_int_equal(field(&answer, DATA_AT, 8), field(&node, DATA_AT + 20, 8));
	assert_int_equal(field(&answer, DATA_AT + 8, 8), 0);
	answer = ask_directed(GUID_INFO, 1);
	assert_int_equal(field(&answer, 4, 2), DIRECTION | STATUS_BAD_VALUE);
	answer = ask_directed(PKEY_TABLE, 0);
	assert_int_equal(field(&answer, DATA_AT, 4), 0xffff0000);
	answer = ask_directed(PKEY_TABLE, 1);
	assert_int_equal(field(&answer, 4, 2), DIRECTION | STATUS_BAD_VALUE);
	answer = ask_directed(NODE_DESCRIPTION, 0);
	answer.bytes[DATA_AT + 64] = 0;
	assert_non_null(strstr((const char *)answer.bytes + DATA_AT, "verbena0"));
}

static void test_what_it_does_not_do(void **state)
{
	struct mad mad = request(UMAD_CLASS_SUBN_DIRECTED_ROUTE, PORT_INFO, 1, 79), answer;

	answer = ask_directed(SWITCH_INFO, 0);
	assert_int_equal(field(&answer, 4, 2), DIRECTION | STATUS_BAD_ATTRIBUTE);
	set_field(&mad, 3, 1, UMAD_METHOD_SET);
	answer = ask(port, directed, &mad);
	assert_int_equal(field(&answer, 4, 2), DIRECTION | STATUS_BAD_ATTRIBUTE);
	set_field(&mad, 3, 1, UMAD_METHOD_GET);
	set_field(&mad, 2, 1, 2);
	answer = ask(port, directed, &mad);
	assert_int_equal(field(&answer, 4, 2), DIRECTION | STATUS_BAD_VERSION);
}

/* --- performance management -------------------------------------------------------------- */

static struct mad counters(uint8_t method, uint16_t attribute, uint8_t select, uint16_t which)
{
	struct mad mad = request(UMAD_CLASS_PERF_MGMT, attribute, 0, 80);

	set_field(&mad, 3, 1, method);
	set_field(&mad, DATA_AT + 1, 1, select);
	set_field(&mad, DATA_AT + 2, 2, which);
	return ask(port, performance, &mad);
}

static void test_performance_class_and_refusals(void **state)
{
	struct mad mad = request(UMAD_CLASS_PERF_MGMT, 1, 0, 81), answer;

	answer = ask(port, performance, &mad);
	assert_int_equal(field(&answer, 4, 2), 0);
	assert_int_equal(field(&answer, DATA_AT, 2), 0x0101);
	assert_int_equal(field(&answer, DATA_AT + 2, 2) & 0x200, 0x200); /* extended counters */
	answer = counters(UMAD_METHOD_GET, PORT_COUNTERS, 2, 0);
	assert_int_equal(field(&answer, 4, 2), STATUS_BAD_VALUE);
	answer = counters(UMAD_METHOD_GET, 0x7777, 1, 0);
	assert_int_equal(field(&answer, 4, 2), STATUS_BAD_ATTRIBUTE);
	set_field(&mad, 2, 1, 9);
	answer = ask(port, performance, &mad);
	assert_int_equal(field(&answer, 4, 2), STATUS_BAD_VERSION);
}

/* A counter keeps what it was set to until something moves; the two sets do not share it. */
static void test_counters_are_set(void **state)
{
	struct mad mad = request(UMAD_CLASS_PERF_MGMT, PORT_COUNTERS_EXTENDED, 0, 82), answer;

	set_field(&mad, 3, 1, UMAD_METHOD_SET);
	set_field(&mad, DATA_AT + 1, 1, 1);
	set_field(&mad, DATA_AT + 2, 2, 1 << 0 | 1 << 3); /* data out, packets in */
	set_field(&mad, DATA_AT + 8, 8, 1ull << 40);
	set_field(&mad, DATA_AT + 24, 8, 5); /* not selected */
	set_field(&mad, DATA_AT + 32, 8, 7);
	answer = ask(port, performance, &mad);
	assert_int_equal(field(&answer, DATA_AT + 8, 8), 1ull << 40);
	assert_int_equal(field(&answer, DATA_AT + 32, 8), 7);
	answer = counters(UMAD_METHOD_GET, PORT_COUNTERS_EXTENDED, 1, 0);
	assert_int_equal(field(&answer, DATA_AT + 8, 8), 1ull << 40);
	assert_int_equal(field(&answer, DATA_AT + 24, 8), 0);
	assert_int_equal(field(&answer, DATA_AT + 32, 8), 7);
	answer = counters(UMAD_METHOD_SET, PORT_COUNTERS_EXTENDED, 0xff, 0xff);
	assert_int_equal(field(&answer, DATA_AT + 8, 8), 0);
	answer = counters(UMAD_METHOD_GET, PORT_COUNTERS, 1, 0);
	assert_int_equal(field(&answer, DATA_AT + 1, 1), 1);
	for (int at = 4; at < 44; at += 4)
		assert_int_equal(field(&answer, DATA_AT + at, 4), 0);
}

/* --- sending and receiving --------------------------------------------------------------- */

static void test_the_descriptor_is_readable_while_something_waits(void **state)
{
	struct mad mad = request(UMAD_CLASS_SUBN_DIRECTED_ROUTE, NODE_INFO, 0, 1), answer;
	struct pollfd one = {.fd = umad_get_fd(port), .events = POLLIN};
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	int length = MAD_BYTES, epoll = epoll_create1(0);

	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, one.fd, &event), 0);
	assert_int_equal(poll(&one, 1, 0), 0);
	assert_int_equal(umad_poll(port, 0), -ETIMEDOUT);
	assert_int_equal(umad_send(port, directed, &mad, MAD_BYTES, 1000, 0), 0);
	set_field(&mad, 12, 4, 2);
	assert_int_equal(umad_send(port, directed, &mad, MAD_BYTES, 1000, 0), 0);
	assert_int_equal(poll(&one, 1, 0), 1);
	assert_int_equal(epoll_wait(epoll, &event, 1, 0), 1);
	assert_int_equal(umad_poll(port, 0), 0);
	for (uint32_t tid = 1; tid <= 2; tid++) {
		assert_int_equal(umad_poll(port, 0), 0);
		assert_int_equal(umad_recv(port, &answer, &length, 0), directed);
		assert_int_equal(field(&answer, 12, 4), tid); /* in order */
		assert_int_equal(answer.umad.length, sizeof(answer.umad) + MAD_BYTES);
	}
	assert_int_equal(poll(&one, 1, 0), 0);
	assert_int_equal(umad_recv(port, &answer, &length, 0), -EWOULDBLOCK);
	assert_int_equal(errno, EWOULDBLOCK);
	assert_int_equal(umad_recv(port, &answer, &length, 1), -ETIMEDOUT);
	assert_int_equal(errno, ETIMEDOUT);
	close(epoll);
}

static void test_a_buffer_too_short_loses_nothing(void **state)
{
	struct mad mad = request(UMAD_CLASS_SUBN_DIRECTED_ROUTE, NODE_INFO, 0, 3), answer;
	int length = MAD_BYTES - 1;

	assert_int_equal(umad_send(port, directed, &mad, MAD_BYTES, 1000, 0), 0);
	assert_int_equal(umad_recv(port, &answer, &length, 0), -EINVAL);
	assert_int_equal(length, MAD_BYTES);
	assert_int_equal(umad_recv(port, &answer, &length, 0), directed);
	assert_int_equal(umad_recv(port, NULL, &length, 0), -EINVAL);
	assert_int_equal(umad_recv(port, &answer, NULL, 0), -EINVAL);
}

static void test_a_request_without_answer_comes_back(void **state)
{
	struct mad mad = into_the_void(4), back = {0};
	struct pollfd one = {.fd = umad_get_fd(port), .events = POLLIN};
	int length = MAD_BYTES;

	assert_int_equal(umad_send(port, directed, &mad, MAD_BYTES, 10, 3), 0);
	assert_int_equal(poll(&one, 1, PATIENCE_MS), 1); /* nobody else looks at the time */
	assert_int_equal(umad_recv(port, &back, &length, 0), directed);
	assert_int_equal(umad_status(&back), ETIMEDOUT);
	assert_int_equal(length, 24); /* the header */
	assert_memory_equal(back.bytes, mad.bytes, 8);
	assert_int_equal(field(&back, 12, 4), 4);
	assert_int_equal(back.umad.timeout_ms, 10);
	assert_int_equal(back.umad.retries, 3);
	assert_int_equal(umad_recv(port, &back, &length, 0), -EWOULDBLOCK); /* once */
}

/* As libibmad does it: the send must be given up before the wait for it ends. */
static void test_equal_timeouts_give_the_send_up_first(void **state)
{
	for (uint32_t i = 0; i < 20; i++) {
		struct mad mad = into_the_void(100 + i), back;
		int length = MAD_BYTES;

		assert_int_equal(umad_send(port, directed, &mad, MAD_BYTES, 5, 0), 0);
		assert_int_equal(umad_recv(port, &back, &length, 5), directed);
		assert_int_equal(umad_status(&back), ETIMEDOUT);
	}
}

static void test_a_blocking_descriptor_blocks(void **state)
{
	struct mad mad = into_the_void(5), back;
	int length = MAD_BYTES, flags = fcntl(port, F_GETFL);

	assert_int_equal(fcntl(port, F_SETFL, flags & ~O_NONBLOCK), 0);
	assert_int_equal(umad_send(port, directed, &mad, MAD_BYTES, 30, 0), 0);
	assert_int_equal(umad_recv(port, &back, &length, 0), directed);
	assert_int_equal(umad_status(&back), ETIMEDOUT);
	assert_int_equal(fcntl(port, F_SETFL, flags), 0);
}

static void test_without_a_timeout_no_answer_is_expected(void **state)
{
	struct mad mad = request(UMAD_CLASS_SUBN_DIRECTED_ROUTE, NODE_INFO, 0, 6);

	assert_int_equal(umad_send(port, directed, &mad, MAD_BYTES, 0, 0), 0);
	assert_int_equal(umad_poll(port, 20), -ETIMEDOUT);
}

static void expect_refused(int agent, struct mad mad, int length, int error)
{
	errno = 0;
	assert_int_equal(umad_send(port, agent, &mad, length, 1000, 0), -EIO);
	assert_int_equal(errno, error);
}

static void test_what_cannot_be_sent(void **state)
{
	struct mad mad = request(UMAD_CLASS_SUBN_DIRECTED_ROUTE, NODE_INFO, 0, 7), other;
	uint8_t gid[16];

	assert_int_equal(umad_send(9999, directed, &mad, MAD_BYTES, 0, 0), -EINVAL);
	expect_refused(31, mad, MAD_BYTES, EINVAL);
	expect_refused(32, mad, MAD_BYTES, EINVAL);
	expect_refused(-1, mad, MAD_BYTES, EINVAL);
	expect_refused(directed, mad, 35, EINVAL);
	expect_refused(directed, mad, MAD_BYTES + 1, EINVAL);
	umad_set_addr(&mad, 5, 0, 0, 0); /* a LID */
	expect_refused(directed, mad, MAD_BYTES, EINVAL);
	other = request(UMAD_CLASS_PERF_MGMT, 1, 0, 7);
	umad_set_addr(&other, 5, 1, 0, 0);
	expect_refused(performance, other, MAD_BYTES, EINVAL);
	fixture_gid(1, gid);
	to_gid(&mad, gid);
	expect_refused(directed, mad, MAD_BYTES, EINVAL); /* SMPs do not travel */
	assert_int_equal(umad_poll(port, 0), -ETIMEDOUT);
}

static void test_two_requests_of_one_transaction(void **state)
{
	struct mad mad = into_the_void(8);

	assert_int_equal(umad_send(port, directed, &mad, MAD_BYTES, PATIENCE_MS, 0), 0);
	expect_refused(directed, into_the_void(8), MAD_BYTES, EINVAL);
	mad = into_the_void(9);
	assert_int_equal(umad_send(port, directed, &mad, MAD_BYTES, PATIENCE_MS, 0), 0);
}

/* --- registering ------------------------------------------------------------------------- */

static void test_registration_is_checked(void **state)
{
	const uint8_t none[3] = {0}, oui[3] = {0, 0x14, 5};
	long get[16 / sizeof(long)] = {1 << UMAD_METHOD_GET};
	struct umad_reg_attr attr = {.mgmt_class = 0x32, .mgmt_class_version = 1, .oui = 0x1405};
	uint32_t id = 99;
	int agent;

	assert_int_equal(umad_register(9999, UMAD_CLASS_PERF_MGMT, 1, 0, NULL), -EINVAL);
	assert_int_equal(umad_register(port, UMAD_CLASS_PERF_MGMT, 1, 1, NULL), -EPERM);
	assert_int_equal(umad_register(port, 0x50, 1, 0, NULL), -EPERM);
	assert_int_equal(umad_register_oui(port, 0x2f, 0, (uint8_t *)oui, NULL), -EINVAL);
	assert_int_equal(umad_register_oui(port, 0x32, 0, (uint8_t *)none, NULL), -EPERM);
	agent = umad_register_oui(port, 0x32, 1, (uint8_t *)oui, get);
	assert_true(agent >= 0);
	assert_int_equal(umad_register_oui(port, 0x32, 1, (uint8_t *)oui, get), -EPERM);
	assert_int_equal(umad_unregister(port, agent), 0);
	assert_int_equal(umad_unregister(port, agent), -EINVAL);
	assert_int_equal(umad_unregister(port, 32), -EINVAL);
	assert_int_equal(umad_register2(port, &attr, NULL), EINVAL);
	attr.flags = 6;
	assert_int_equal(umad_register2(port, &attr, &id), EINVAL);
	assert_int_equal(attr.flags, UMAD_USER_RMPP);
	assert_int_equal(umad_register2(port, &attr, &id), 0);
	assert_int_equal(id, agent); /* the first free place */
	assert_int_equal(umad_unregister(port, (int)id), 0);
	attr.oui = 0x1000000;
	assert_int_equal(umad_register2(port, &attr, &id), EINVAL);
}

static void test_a_port_has_32_agents(void **state)
{
	int own = umad_open_port("verbena0", 1), i;

	for (i = 0; i < 32; i++)
		assert_int_equal(umad_register(own, UMAD_CLASS_PERF_MGMT, 1, 0, NULL), i);
	assert_int_equal(umad_register(own, UMAD_CLASS_PERF_MGMT, 1, 0, NULL), -EPERM);
	assert_int_equal(umad_unregister(own, 7), 0);
	assert_int_equal(umad_register(own, UMAD_CLASS_PERF_MGMT, 1, 0, NULL), 7);
	assert_int_equal(umad_close_port(own), 0);
}

static uint64_t now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

static void test_unregistering_ends_what_was_sent(void **state)
{
	struct mad mad = into_the_void(9);
	int agent = umad_register(port, UMAD_CLASS_SUBN_DIRECTED_ROUTE, 1, 0, NULL), length, i;

	for (i = 0; i < 10; i++) { /* until we were not off the processor in between */
		uint64_t begin = now_ms();

		assert_int_equal(umad_send(port, agent, &mad, MAD_BYTES, 50, 0), 0);
		assert_int_equal(umad_unregister(port, agent), 0);
		if (now_ms() - begin < 40)
			break;
		do
			length = MAD_BYTES;
		while (umad_recv(port, &mad, &length, 100) >= 0);
		agent = umad_register(port, UMAD_CLASS_SUBN_DIRECTED_ROUTE, 1, 0, NULL);
	}
	assert_int_equal(umad_poll(port, 150), -ETIMEDOUT);
}

/* The child has the descriptor's copy and may close it; the parent's port is not touched. */
static void test_a_forked_child_has_no_port(void **state)
{
	struct mad mad = request(UMAD_CLASS_SUBN_DIRECTED_ROUTE, NODE_INFO, 0, 10);
	int status, length = MAD_BYTES;
	pid_t child = fork();

	if (child == 0) {
		int faults = umad_send(port, directed, &mad, MAD_BYTES, 10, 0) != -EINVAL;

		faults += umad_recv(port, &mad, &length, 0) != -EINVAL;
		faults += umad_close_port(port) != 0;
		_exit(faults);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	ask_directed(NODE_INFO, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_node_info, open_port, close_port),
		cmocka_unit_test_setup_teardown(test_lid_routed_is_the_same, open_port, close_port),
		cmocka_unit_test_setup_teardown(test_port_info, open_port, close_port),
		cmocka_unit_test_setup_teardown(test_tables_and_words, open_port, close_port),
		cmocka_unit_test_setup_teardown(test_what_it_does_not_do, open_port, close_port),
		cmocka_unit_test_setup_teardown(test_performance_class_and_refusals, open_port,
						close_port),
		cmocka_unit_test_setup_teardown(test_counters_are_set, open_port, close_port),
		cmocka_unit_test_setup_teardown(
			test_the_descriptor_is_readable_while_something_waits, open_port,
			close_port),
		cmocka_unit_test_setup_teardown(test_a_buffer_too_short_loses_nothing, open_port,
						close_port),
		cmocka_unit_test_setup_teardown(test_a_request_without_answer_comes_back, open_port,
						close_port),
		cmocka_unit_test_setup_teardown(test_equal_timeouts_give_the_send_up_first,
						open_port, close_port),
		cmocka_unit_test_setup_teardown(test_a_blocking_descriptor_blocks, open_port,
						close_port),
		cmocka_unit_test_setup_teardown(test_without_a_timeout_no_answer_is_expected,
						open_port, close_port),
		cmocka_unit_test_setup_teardown(test_what_cannot_be_sent, open_port, close_port),
		cmocka_unit_test_setup_teardown(test_two_requests_of_one_transaction, open_port,
						close_port),
		cmocka_unit_test_setup_teardown(test_registration_is_checked, open_port,
						close_port),
		cmocka_unit_test_setup_teardown(test_a_port_has_32_agents, open_port, close_port),
		cmocka_unit_test_setup_teardown(test_unregistering_ends_what_was_sent, open_port,
						close_port),
		cmocka_unit_test_setup_teardown(test_a_forked_child_has_no_port, open_port,
						close_port),
	};

	return cmocka_run_group_tests(tests, fixture_begin, NULL);
}
