/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_udp_trains.c - which packets travel in one train: those of one path to one process and of
 * one size, whosever they are; and that what a queue pair sends keeps its order all the same.
 */
#define _GNU_SOURCE
#include "udp_fixture.h"

#define QPS 200u
#define LONG 8u /* bytes of payload: a message, and what is shorter, as an acknowledgement is */
#define SHORT 0u

static uint32_t sent[QPS], arrived[QPS];
static const uint8_t payload[2048];

static void check_order(struct host *h)
{
	const uint32_t qp = h->headers.qpn & ((1u << VB_SLOT_SHIFT) - 1);

	assert_true(qp < QPS);
	assert_int_equal(h->headers.psn, arrived[qp]);
	arrived[qp]++;
}

struct pair {
	struct host *a, *b;
	struct vb_path path;
};

static struct pair open_pair(const char *a, const char *b)
{
	struct pair p = {.a = host_open(a), .b = host_open(b)};

	p.path = host_path(p.a, &p.b->address);
	p.b->on_packet = check_order;
	memset(sent, 0, sizeof(sent));
	memset(arrived, 0, sizeof(arrived));
	return p;
}

static void close_pair(struct pair *p)
{
	assert_int_equal(host_counters(p->b).rx_bad_icrc, 0);
	assert_int_equal(host_counters(p->b).rx_solved_id, 0);
	host_close(p->a);
	host_close(p->b);
}

static void give(struct pair *p, uint32_t qp, uint32_t bytes)
{
	assert_int_equal(host_send(p->a, &p->path, host_qpn(p->b, qp), sent[qp]++, payload, bytes),
			 0);
}

static unsigned int trains(const struct pair *p)
{
	return vb_udp_of(p->a->carrier)->train_count;
}

static void expect_all(struct pair *p)
{
	uint64_t all = 0;

	host_flush(p->a);
	for (uint32_t q = 0; q < QPS; q++)
		all += sent[q];
	host_wait(p->b, all);
	assert_memory_equal(arrived, sent, sizeof(sent));
}

static void queue_pairs_share_a_train(void **state)
{
	struct pair p = open_pair("127.7.9.1", "127.7.9.2");
	const uint64_t calls = host_counters(p.a).tx_calls;

	for (uint32_t n = 0; n < VB_UDP_SEGMENTS; n++)
		give(&p, n, LONG);
	assert_int_equal(trains(&p), 1);
	give(&p, 0, LONG);
	assert_int_equal(trains(&p), 2); /* as many as one holds */
	expect_all(&p);
	assert_int_equal(host_counters(p.a).tx_calls - calls, 1);
	close_pair(&p);
}

/* A message, and behind it what is shorter: as much as one queue pair says at once. */
static void the_same_queue_pair_ends_it(void **state)
{
	struct pair p = open_pair("127.7.9.3", "127.7.9.4");

	give(&p, 1, LONG);
	give(&p, 1, SHORT);
	assert_int_equal(trains(&p), 1);
	give(&p, 2, LONG); /* that one has ended */
	assert_int_equal(trains(&p), 2);
	expect_all(&p);
	close_pair(&p);
}

/* Others' shorter packets have a train of their own, and do not end the longer ones'. */
static void sizes_have_trains_of_their_own(void **state)
{
	struct pair p = open_pair("127.7.9.5", "127.7.9.6");

	for (uint32_t n = 0; n < 30; n++) {
		give(&p, 2 * n, LONG);
		give(&p, 2 * n + 1, SHORT);
	}
	assert_int_equal(trains(&p), 2);
	expect_all(&p);
	close_pair(&p);
}

/* What a queue pair sends may not go into a train before the one that has its last packet. */
static void no_packet_overtakes_its_own_kind(void **state)
{
	struct pair p = open_pair("127.7.9.7", "127.7.9.8");

	give(&p, 1, LONG);
	give(&p, 2, SHORT);
	give(&p, 2, LONG); /* there is room for it before */
	assert_int_equal(trains(&p), 3);
	give(&p, 1, SHORT);
	give(&p, 1, LONG); /* into the third, not the first */
	assert_int_equal(trains(&p), 3);
	expect_all(&p);
	close_pair(&p);
}

/* The kernel that receives a train gives all of it to the process of its first packet. */
static void another_process_or_path_has_its_own(void **state)
{
	struct pair p = open_pair("127.7.9.9", "127.7.9.10");
	const uint32_t elsewhere = host_qpn(p.b, 1) ^ 1u << VB_SLOT_SHIFT;
	struct vb_path other;

	assert_int_equal(
		vb_udp_route(p.a->carrier, &other, &p.a->address, &p.b->address, 0, 1, 32, 64), 0);
	give(&p, 1, LONG);
	assert_int_equal(host_send(p.a, &p.path, elsewhere, 0, payload, LONG), 0);
	assert_int_equal(trains(&p), 2);
	assert_int_equal(host_send(p.a, &other, host_qpn(p.b, 2), sent[2]++, payload, LONG), 0);
	assert_int_equal(trains(&p), 3);
	give(&p, 3, LONG);
	assert_int_equal(trains(&p), 3);
	host_flush(p.a);
	host_wait(p.b, 3);
	assert_memory_equal(arrived, sent, sizeof(sent));
	close_pair(&p);
}

/* Paths without a flow label have one source port, whatever queue pair they are made for. */
static void without_a_flow_label_there_is_one_port(void **state)
{
	struct pair p = open_pair("127.7.9.11", "127.7.9.12");
	struct vb_path path[3];

	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(vb_udp_route(p.a->carrier, &path[i], &p.a->address, &p.b->address,
					      0, i < 2 ? 0 : 0x12345, 0, 64),
				 0);
	assert_memory_equal(path[0].word, path[1].word, sizeof(path[0].word));
	assert_memory_not_equal(path[0].word, path[2].word, sizeof(path[0].word));
	close_pair(&p);
}

static uint32_t draw(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

/* Any mixture of sizes and queue pairs, in batches that are too large for the trains as well. */
static void each_queue_pair_keeps_its_order(void **state)
{
	static const uint32_t sizes[] = {SHORT, LONG, LONG, 12, 1024};
	struct pair p = open_pair("127.7.9.13", "127.7.9.14");
	uint32_t seed = 5;

	for (unsigned int batch = 0; batch < 200; batch++) {
		const uint32_t qps = 1 + draw(&seed) % QPS;

		for (uint32_t n = 1 + draw(&seed) % 150; n > 0; n--)
			give(&p, draw(&seed) % qps, sizes[draw(&seed) % VB_ARRAY_SIZE(sizes)]);
		expect_all(&p); /* before the receive buffer is full */
	}
	close_pair(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(queue_pairs_share_a_train),
		cmocka_unit_test(the_same_queue_pair_ends_it),
		cmocka_unit_test(sizes_have_trains_of_their_own),
		cmocka_unit_test(no_packet_overtakes_its_own_kind),
		cmocka_unit_test(another_process_or_path_has_its_own),
		cmocka_unit_test(without_a_flow_label_there_is_one_port),
		cmocka_unit_test(each_queue_pair_keeps_its_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
