/* SPDX-License-Identifier: BSD-2-Clause */
/* test_peer.c - MADs between two hosts: the peer's agents, a server of a vendor's class, nobody. */
#include "fixture.h"

#include <endian.h>
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATUS_BAD_ATTRIBUTE 0x0c
#define PORT_COUNTERS_EXTENDED 0x1d
#define DATA_AT 64
#define VENDOR_CLASS 0x32
#define OUI_AT 37
#define MANY 200
#define REQUESTS 5

static const uint8_t oui[3] = {0x00, 0x14, 0x05}, other_oui[3] = {0x02, 0x56, 0x42};
static int near, far; /* ports of verbena0 and verbena1 */
static uint8_t near_gid[16], far_gid[16];

static int open_ports(void **state)
{
	near = umad_open_port("verbena0", 1);
	far = umad_open_port("verbena1", 1);
	fixture_gid(0, near_gid);
	fixture_gid(1, far_gid);
	return near < 0 || far < 0;
}

static int close_ports(void **state)
{
	return umad_close_port(near) | umad_close_port(far);
}

static struct mad extended_counters(int agent, uint32_t tid)
{
	struct mad mad = request(UMAD_CLASS_PERF_MGMT, PORT_COUNTERS_EXTENDED, 0, tid);

	set_field(&mad, DATA_AT + 1, 1, 1);
	to_gid(&mad, far_gid);
	return ask(near, agent, &mad);
}

static void test_a_peers_counters_move(void **state)
{
	int agent = umad_register(near, UMAD_CLASS_PERF_MGMT, 1, 0, NULL);
	struct mad first = extended_counters(agent, 1), second = extended_counters(agent, 2);
	/* BTH, DETH, a MAD, ICRC: in words */
	const uint64_t words = (12 + 8 + MAD_BYTES + 4) / 4;

	assert_int_equal(field(&first, 4, 2), 0);
	assert_int_equal(first.umad.addr.grh_present, 1);
	assert_memory_equal(first.umad.addr.gid, far_gid, 16);
	assert_int_equal(be32toh(first.umad.addr.qpn), 1);
	/* between the two the peer sent one answer and took one request */
	assert_int_equal(field(&second, DATA_AT + 8, 8) - field(&first, DATA_AT + 8, 8), words);
	assert_int_equal(field(&second, DATA_AT + 16, 8) - field(&first, DATA_AT + 16, 8), words);
	for (int at = 24; at < 56; at += 8)
		assert_int_equal(field(&second, DATA_AT + at, 8) - field(&first, DATA_AT + at, 8),
				 1);
	assert_int_equal(field(&second, DATA_AT + 56, 8), 0); /* multicast */
}

static void test_a_class_that_nobody_has_is_refused(void **state)
{
	int agent = umad_register(near, UMAD_CLASS_DEVICE_MGMT, 1, 0, NULL);
	struct mad mad = request(UMAD_CLASS_DEVICE_MGMT, 0x11, 0, 3), answer;

	to_gid(&mad, far_gid);
	answer = ask(near, agent, &mad);
	assert_int_equal(field(&answer, 4, 2), STATUS_BAD_ATTRIBUTE);
}

static void expect_given_up(int agent, uint32_t tid)
{
	struct mad back = {0};
	int length = MAD_BYTES;

	assert_int_equal(umad_recv(near, &back, &length, PATIENCE_MS), agent);
	assert_int_equal(umad_status(&back), ETIMEDOUT);
	assert_int_equal(field(&back, 12, 4), tid);
}

/* Sends of a class without answers are dropped there, and a host that is not there says nothing. */
static void test_silence(void **state)
{
	int agent = umad_register(near, UMAD_CLASS_DEVICE_MGMT, 1, 0, NULL);
	struct mad mad = request(UMAD_CLASS_DEVICE_MGMT, 0x11, 0, 4);
	uint8_t nobody[16];

	to_gid(&mad, far_gid);
	set_field(&mad, 3, 1, UMAD_METHOD_SEND);
	assert_int_equal(umad_send(near, agent, &mad, MAD_BYTES, 20, 1), 0);
	expect_given_up(agent, 4);
	mad = request(UMAD_CLASS_DEVICE_MGMT, 0x11, 0, 5);
	fixture_gid(2, nobody);
	to_gid(&mad, nobody);
	assert_int_equal(umad_send(near, agent, &mad, MAD_BYTES, 20, 1), 0);
	expect_given_up(agent, 5);
}

/* --- a server ---------------------------------------------------------------------------- */

static struct mad vendor_request(uint32_t tid, const uint8_t vendor[3])
{
	struct mad mad = request(VENDOR_CLASS, 0x20, 0, tid);

	memcpy(mad.bytes + OUI_AT, vendor, 3);
	set_field(&mad, 40, 8, 0x1122334455667788ull + tid);
	return mad;
}

/* Answers the next request by port with its own bytes. */
static struct mad serve(int port, int agent)
{
	struct mad mad = {0}, answer;
	int length = MAD_BYTES;

	assert_int_equal(umad_recv(port, &mad, &length, PATIENCE_MS), agent);
	assert_int_equal(umad_status(&mad), 0);
	answer = mad;
	set_field(&answer, 3, 1, UMAD_METHOD_GET_RESP);
	assert_int_equal(umad_send(port, agent, &answer, MAD_BYTES, 0, 0), 0);
	return mad;
}

static void expect_answer(int agent, const struct mad *mad)
{
	struct mad answer = {0};
	int length = MAD_BYTES;

	assert_int_equal(umad_recv(near, &answer, &length, PATIENCE_MS), agent);
	assert_int_equal(umad_status(&answer), 0);
	assert_int_equal(field(&answer, 3, 1), UMAD_METHOD_GET_RESP);
	assert_int_equal(field(&answer, 12, 4), field(mad, 12, 4));
	assert_memory_equal(answer.bytes + 24, mad->bytes + 24, MAD_BYTES - 24);
}

static void test_a_server_of_a_vendors_class(void **state)
{
	long get[16 / sizeof(long)] = {1 << UMAD_METHOD_GET};
	int server = umad_register_oui(far, VENDOR_CLASS, 0, (uint8_t *)oui, get);
	int client = umad_register_oui(near, VENDOR_CLASS, 0, (uint8_t *)oui, NULL);
	struct mad mad = vendor_request(6, oui), seen;

	assert_true(server >= 0 && client >= 0);
	to_gid(&mad, far_gid);
	assert_int_equal(umad_send(near, client, &mad, MAD_BYTES, PATIENCE_MS, 0), 0);
	seen = serve(far, server);
	assert_memory_equal(seen.umad.addr.gid, near_gid, 16);
	assert_memory_equal(seen.bytes + 24, mad.bytes + 24, MAD_BYTES - 24);
	expect_answer(client, &mad);
	/* another vendor's MAD of the same class is not for this server */
	mad = vendor_request(7, other_oui);
	to_gid(&mad, far_gid);
	assert_int_equal(umad_send(near, client, &mad, MAD_BYTES, 20, 0), 0);
	expect_given_up(client, 7);
	assert_int_equal(umad_poll(far, 0), -ETIMEDOUT);
}

/* With LID 0 and no GRH a MAD of a class without an agent of ours is for this host's programs. */
static void test_a_server_on_the_same_host(void **state)
{
	long get[16 / sizeof(long)] = {1 << UMAD_METHOD_GET};
	int server_port = umad_open_port("verbena0", 1);
	int server = umad_register_oui(server_port, VENDOR_CLASS, 0, (uint8_t *)oui, get);
	int client = umad_register_oui(near, VENDOR_CLASS, 0, (uint8_t *)oui, NULL);
	struct mad mad = vendor_request(8, oui);

	assert_int_equal(umad_send(near, client, &mad, MAD_BYTES, PATIENCE_MS, 0), 0);
	serve(server_port, server);
	expect_answer(client, &mad);
	assert_int_equal(umad_close_port(server_port), 0);
}

/* The other process of that host: first it is the server, then it only has the port open. */
static int live_in_child(int ready, int end)
{
	long get[16 / sizeof(long)] = {1 << UMAD_METHOD_GET};
	int port = umad_open_port("verbena1", 1);
	int server = umad_register_oui(port, VENDOR_CLASS, 0, (uint8_t *)oui, get);
	char byte = server < 0;

	if (write(ready, &byte, 1) != 1)
		return 1;
	for (int i = 0; i < REQUESTS; i++)
		serve(port, server);
	byte = umad_unregister(port, server) != 0;
	if (write(ready, &byte, 1) != 1)
		return 1;
	return read(end, &byte, 1) != 1 || umad_close_port(port) != 0;
}

static void expect_ready(int ready)
{
	char byte = 1;

	assert_int_equal(read(ready, &byte, 1), 1);
	assert_int_equal(byte, 0);
}

/* Sends requests to verbena1; server: its agent in this process, -1: the other process has it. */
static void ask_server(int client, int server, uint32_t first_tid)
{
	for (uint32_t i = 0; i < REQUESTS; i++) {
		struct mad mad = vendor_request(first_tid + i, oui);

		to_gid(&mad, far_gid);
		assert_int_equal(umad_send(near, client, &mad, MAD_BYTES, PATIENCE_MS, 0), 0);
		if (server >= 0)
			serve(far, server);
		expect_answer(client, &mad);
	}
}

/* Two processes have the host's QP 1; requests are for the one that registered for their class,
 * whichever of the two packets would reach by themselves. */
static void test_requests_go_to_the_process_that_registered(void **state)
{
	long get[16 / sizeof(long)] = {1 << UMAD_METHOD_GET};
	int ready[2], end[2], status, client, server;
	pid_t child;

	assert_int_equal(pipe(ready) | pipe(end), 0);
	child = fork();
	if (child == 0)
		_exit(live_in_child(ready[1], end[0]));
	expect_ready(ready[0]);
	assert_int_equal(open_ports(state), 0);
	assert_int_equal(umad_register_oui(far, VENDOR_CLASS, 0, (uint8_t *)oui, get), -EPERM);
	client = umad_register_oui(near, VENDOR_CLASS, 0, (uint8_t *)oui, NULL);
	ask_server(client, -1, 20);
	expect_ready(ready[0]);
	server = umad_register_oui(far, VENDOR_CLASS, 0, (uint8_t *)oui, get);
	assert_true(server >= 0);
	ask_server(client, server, 40);
	assert_int_equal(write(end[1], "", 1), 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(close_ports(state), 0);
	for (int i = 0; i < 2; i++) {
		close(ready[i]);
		close(end[i]);
	}
}

/* Answers find their requests whatever their order; one that comes twice or late is nobody's. */
static void test_answers_out_of_order_and_twice(void **state)
{
	long get[16 / sizeof(long)] = {1 << UMAD_METHOD_GET};
	int server = umad_register_oui(far, VENDOR_CLASS, 0, (uint8_t *)oui, get);
	int client = umad_register_oui(near, VENDOR_CLASS, 0, (uint8_t *)oui, NULL);
	struct mad sent[2] = {vendor_request(9, oui), vendor_request(10, oui)}, seen[2];
	int length = MAD_BYTES;

	for (int i = 0; i < 2; i++) {
		to_gid(&sent[i], far_gid);
		assert_int_equal(umad_send(near, client, &sent[i], MAD_BYTES, PATIENCE_MS, 0), 0);
		assert_int_equal(umad_recv(far, &seen[i], &length, PATIENCE_MS), server);
		set_field(&seen[i], 3, 1, UMAD_METHOD_GET_RESP);
	}
	assert_int_equal(umad_send(far, server, &seen[1], MAD_BYTES, 0, 0), 0);
	assert_int_equal(umad_send(far, server, &seen[1], MAD_BYTES, 0, 0), 0);
	assert_int_equal(umad_send(far, server, &seen[0], MAD_BYTES, 0, 0), 0);
	expect_answer(client, &sent[1]);
	expect_answer(client, &sent[0]);
	assert_int_equal(umad_poll(near, 0), -ETIMEDOUT);
}

static void test_many_at_once(void **state)
{
	int agent = umad_register(near, UMAD_CLASS_PERF_MGMT, 1, 0, NULL);
	uint8_t seen[MANY] = {0};

	for (uint32_t i = 0; i < MANY; i++) {
		struct mad mad = request(UMAD_CLASS_PERF_MGMT, 1, 0, i);

		to_gid(&mad, far_gid);
		assert_int_equal(umad_send(near, agent, &mad, MAD_BYTES, 1000, 9), 0);
	}
	for (int i = 0; i < MANY; i++) {
		int length = MAD_BYTES;
		struct mad answer;
		uint64_t tid;

		assert_int_equal(umad_recv(near, &answer, &length, PATIENCE_MS), agent);
		assert_int_equal(umad_status(&answer), 0);
		tid = field(&answer, 12, 4);
		assert_true(tid < MANY && !seen[tid]);
		seen[tid] = 1;
	}
	assert_int_equal(umad_poll(near, 0), -ETIMEDOUT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_peers_counters_move, open_ports,
						close_ports),
		cmocka_unit_test_setup_teardown(test_a_class_that_nobody_has_is_refused, open_ports,
						close_ports),
		cmocka_unit_test_setup_teardown(test_silence, open_ports, close_ports),
		cmocka_unit_test_setup_teardown(test_a_server_of_a_vendors_class, open_ports,
						close_ports),
		cmocka_unit_test_setup_teardown(test_a_server_on_the_same_host, open_ports,
						close_ports),
		cmocka_unit_test(test_requests_go_to_the_process_that_registered),
		cmocka_unit_test_setup_teardown(test_answers_out_of_order_and_twice, open_ports,
						close_ports),
		cmocka_unit_test_setup_teardown(test_many_at_once, open_ports, close_ports),
	};

	return cmocka_run_group_tests(tests, fixture_begin, NULL);
}
